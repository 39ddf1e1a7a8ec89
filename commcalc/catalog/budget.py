"""A budget file: jobs, and limits on what their ledgers say. Everything that is wrong with it is told together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from commcalc.accounting.budget import NAMES, NUMBERS, Limit
from commcalc.catalog.presets import extended, is_path
from commcalc.catalog.tree import Request
from commcalc.document import Items, Leaf, Node, Section, parse_document
from commcalc.errors import CommcalcError, SpecError, UnknownName

_KEYS = ("schema", "name", "notes", "job", "jobs", "limits")
SCHEMA = "commcalc/budget/1"
_EXAMPLE = "limits: {totals.block.tp.wire_bytes: {max: 1 GB}}"


class BudgetJob(NamedTuple):
    """A job of a budget: what it goes by, where it stands, and what it asks."""

    name: str
    where: str
    request: Request


class Budget(NamedTuple):
    """What a budget file says, and what is wrong with it."""

    jobs: tuple[BudgetJob, ...]
    limits: tuple[Limit, ...]
    problems: tuple[CommcalcError, ...]


def read_budget(text: str, name: str, folder: Path, measured: Mapping[str, Leaf] | None = None) -> Budget:
    """The budget that YAML text holds; paths in it are relative to ``folder``.

    ``measured`` are values by field that stand above what the file says was measured.
    """
    root = parse_document(text, name)
    problems: list[CommcalcError] = [
        UnknownName("key in the budget", key, _KEYS, where=root.keys[key]) for key in root.entries if key not in _KEYS
    ]
    schema = root.entries.get("schema")
    if schema is not None and not (isinstance(schema, Leaf) and schema.value == SCHEMA):
        problems.append(SpecError("another schema than this reads", where=f"{schema.where} schema", hint=SCHEMA))
    jobs = list(_jobs(root, folder, problems))
    _lay_over(root.entries.get("limits"), measured or {}, problems)
    return Budget(tuple(jobs), tuple(_limits(root, problems)), tuple(problems))


def _lay_over(limits: Node | None, measured: Mapping[str, Leaf], problems: list[CommcalcError]) -> None:
    """Put measured values into the limits they belong to."""
    entries = limits.entries if isinstance(limits, Section) else {}
    for path, leaf in measured.items():
        limit = entries.get(path)
        if path not in entries:
            problems.append(UnknownName("limit", path, entries, where=leaf.where))
        elif isinstance(limit, Section):
            limit.entries["measured"] = leaf
            limit.keys["measured"] = leaf.where


def _jobs(root: Section, folder: Path, problems: list[CommcalcError]) -> Iterator[BudgetJob]:
    found = [(key, root.entries[key]) for key in ("job", "jobs") if key in root.entries]
    if len(found) == 2:
        problems.append(SpecError("job and jobs both", where=root.keys["jobs"], hint="list all under jobs"))
    if not found:
        hint = "job: NAME, a YAML file, or {model: ..., hardware: ..., parallelism: {tp: 8}}"
        problems.append(SpecError("a budget without a job", where=root.where, hint=hint))
    named: list[tuple[str | None, Node]] = []
    for key, node in found:
        if key == "jobs" and isinstance(node, Items):
            named += [(None, item) for item in node.items]
        elif key == "jobs" and isinstance(node, Section):
            named += node.entries.items()
        elif key == "jobs":
            hint = "jobs: [NAME, NAME], or names and jobs"
            problems.append(SpecError("no list of jobs", where=f"{node.where} jobs", hint=hint))
            continue
        else:
            named.append((None, node))
        if not named:
            problems.append(SpecError("no jobs", where=f"{node.where} {key}", hint="jobs: [NAME, NAME]"))
    seen: dict[str, str] = {}
    for at, (name, node) in enumerate(named):
        try:
            job = _job(name, node, folder, at + 1)
        except CommcalcError as problem:
            problems += problem.problems
            continue
        if job.name in seen:
            hint = f"first at {seen[job.name]}; `name:` tells them apart"
            problems.append(SpecError(f"two jobs are called {job.name!r}", where=job.where, hint=hint))
        seen.setdefault(job.name, job.where)
        yield job


def _job(name: str | None, node: Node, folder: Path, number: int) -> BudgetJob:
    if isinstance(node, Leaf):
        if not isinstance(node.value, str) or not node.text.strip():
            raise SpecError("no job", where=f"{node.where} job", hint="a preset name, a YAML file, or the fields")
        given = str(folder / node.text) if is_path(node.text) else node.text
        return BudgetJob(name or node.text, node.where, Request(job=given))
    if not isinstance(node, Section):
        raise SpecError("a list where one job is expected", where=f"{node.where} job", hint="jobs: takes several")
    told, model = node.entries.get("name"), node.entries.get("model")
    for one in (told, model):
        if name is None and isinstance(one, Leaf) and one.value is not None:
            name = one.text
    _found_from(node, folder)
    for kind in ("model", "hardware"):
        part = node.entries.get(kind)
        if isinstance(part, Section):
            _found_from(part, folder)
        elif isinstance(part, Leaf):
            node.entries[kind] = _relative(part, folder)
    return BudgetJob(name or f"job {number}", node.where, Request(section=extended("job", node)))


def _found_from(section: Section, folder: Path) -> None:
    """What the section extends is looked for beside the budget."""
    base = section.entries.get("extends")
    if isinstance(base, Leaf):
        section.entries["extends"] = _relative(base, folder)


def _relative(leaf: Leaf, folder: Path) -> Leaf:
    if not is_path(leaf.text):
        return leaf
    path = str(folder / leaf.text)
    return leaf._replace(value=path, text=path)


def _limits(root: Section, problems: list[CommcalcError]) -> Iterator[Limit]:
    node = root.entries.get("limits")
    empty = isinstance(node, Leaf) and node.value is None
    if node is None or empty or (isinstance(node, Section) and not node.entries):
        where = f"{node.where} limits" if node else root.where
        problems.append(SpecError("a budget without limits checks nothing", where=where, hint=_EXAMPLE))
        return
    if not isinstance(node, Section):
        problems.append(SpecError("no mapping of fields to limits", where=f"{node.where} limits", hint=_EXAMPLE))
        return
    for path, asked in node.entries.items():
        limit = _limit(path, asked, node.keys[path], problems)
        if limit is not None:
            yield limit


def _limit(path: str, node: Node, where: str, problems: list[CommcalcError]) -> Limit | None:
    place = f"{where} limits.{path[:80]}"
    before = len(problems)
    if not isinstance(node, Section) or not node.entries:
        hint = "{max: 1 GB}, {min: 0.3}, {only: [nvlink]}, {none: [tp-crosses-level]}"
        problems.append(SpecError(f"no limit of {path[:80]}", where=place, hint=hint))
        return None
    bounds: dict[str, Leaf] = {}
    names: dict[str, tuple[Leaf, ...]] = {}
    for key, value in node.entries.items():
        inner = f"{node.keys[key]} limits.{path[:80]}.{key[:80]}"
        if key not in (*NUMBERS, *NAMES):
            problems.append(UnknownName("key in a limit", key, (*NUMBERS, *NAMES), where=inner))
            if isinstance(value, Section):
                problems[-1].hint = f"write the path in one: {path[:80]}.{key[:80]}: {{max: ...}}"
        elif key in NUMBERS:
            if isinstance(value, Leaf) and value.value is not None:
                bounds[key] = value
            else:
                problems.append(SpecError(f"no number for {key}", where=inner, hint=f"{key}: 1 GB"))
        else:
            items = value.items if isinstance(value, Items) else [value]
            leaves = tuple(item for item in items if isinstance(item, Leaf) and item.value is not None)
            if len(leaves) != len(items) or (key == "none" and not leaves):
                problems.append(SpecError(f"no list of names for {key}", where=inner, hint=f"{key}: [NAME, ...]"))
            names[key] = leaves
    if "tolerance" in node.entries and "measured" not in node.entries:
        hint = "measured: 5.2 ms, tolerance: 10%"
        problems.append(SpecError("a tolerance without a measured value", where=place, hint=hint))
    elif "measured" in node.entries and not {"tolerance", "min", "max"} & node.entries.keys():
        hint = "tolerance: 10% holds it against the prediction, max: against a bound"
        problems.append(SpecError("a measured value without a bound", where=place, hint=hint))
    if len(problems) > before:
        return None
    # What an alias names stands elsewhere: the line that is wrong is that of the field.
    keys = dict(node.keys) if _position(node.where) >= _position(where) else {}
    return Limit(path, where, bounds, names, keys)


def _position(where: str) -> tuple[int, int]:
    _, line, column = where.rsplit(":", 2)
    return int(line), int(column)
