"""The grid of a sweep: which options are lists, what they hold, and the job of every combination."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice, product
from math import prod
from typing import Any, NamedTuple

from commcalc.accounting.sweep import DEGREES, SIZES, WORK
from commcalc.catalog.assign import Assignment
from commcalc.catalog.fields import Field, many_whole
from commcalc.catalog.job import Job, Request, resolve_job
from commcalc.catalog.sections import SECTIONS
from commcalc.cli import options as o
from commcalc.document import scalar
from commcalc.errors import CommcalcError, UsageError, raise_all
from commcalc.ranges import parse_range

# Points whose lines can be written, and that can be looked at where only the best are told.
MOST_LINES, MOST_LOOKED_AT = 10**8, 10**10
# Members of a list that are each read before the sweep begins.
_READ_FIRST = 64
_RANGE = re.compile(r"\s*\d\w*\s*\.\.")
# They vary fastest, in this order.
LAST = ("dp", "seq", "micro_batch", "global_batch")


class Axis(NamedTuple):
    """One option with its values: ``name`` in lines, ``path`` in the job, ``option`` as it was written."""

    name: str
    path: str
    option: str
    # As they are read, and as lines show them.
    texts: tuple[str, ...]
    shown: tuple[Any, ...]
    # Which of several that may be repeated (bandwidth, latency).
    place: int = 0

    @property
    def varies(self) -> bool:
        """Whether it is a list of more than one."""
        return len(self.texts) > 1

    @property
    def size(self) -> str:
        """The field of model, degrees or work that may vary inside of one structure; empty for others."""
        section, _, key = self.path.partition(".")
        known = {"model": SIZES, "parallelism": DEGREES, "workload": WORK}.get(section, ())
        return key if key in known and all(isinstance(value, int) for value in self.shown) else ""


class Grid(NamedTuple):
    """Axes, the slowest first, and what the command line says beside them."""

    axes: tuple[Axis, ...]
    base: Request

    @property
    def points(self) -> int:
        """How many combinations there are."""
        return prod(len(axis.texts) for axis in self.axes)

    @property
    def varying(self) -> tuple[Axis, ...]:
        """The axes that lines name."""
        return tuple(axis for axis in self.axes if axis.varies)

    def inner(self) -> int:
        """Where the last axes begin that are sizes alone."""
        at = len(self.axes)
        while at and self.axes[at - 1].size:
            at -= 1
        return at

    def request(self, chosen: Sequence[int]) -> Request:
        """The question of one combination: for each axis which of its values."""
        named: dict[str, str] = {}
        assignments, links = [], {"bandwidth": list(self.base.bandwidths), "latency": list(self.base.latencies)}
        for axis, at in zip(self.axes, chosen, strict=True):
            text = axis.texts[at]
            if axis.path in ("model", "hardware"):
                named[axis.path] = text
            elif axis.path in links:
                links[axis.path][axis.place] = text
            else:
                assignments.append(Assignment(axis.path, text, f"{axis.option}{text[:60]}"))
        return self.base._replace(
            model=named.get("model"), hardware=named.get("hardware"), assignments=assignments,
            bandwidths=links["bandwidth"], latencies=links["latency"],
        )  # fmt: skip

    def job(self, chosen: Sequence[int]) -> Job:
        """The resolved job of one combination."""
        return resolve_job(self.request(chosen))


def grid_from(params: Mapping[str, Any], order: Sequence[str]) -> Grid:
    """The grid of a command's parameters, in the ``order`` of their names; every list that cannot be read is told."""
    problems: list[CommcalcError] = []
    found: list[Axis] = []

    def add(name: str, path: str, option: str, text: str, place: int = 0) -> None:
        try:
            texts, shown = _members(path, text)
            found.append(Axis(name, path, option, texts, shown, place))
        except CommcalcError as problem:
            where = f"{option}{text[:60]}"
            problems.append(UsageError(problem.message, where=where, hint=problem.hint))

    for kind in ("model", "hardware"):
        if params.get(kind) is not None:
            add(kind, kind, f"--{kind} ", str(params[kind]))
    for kind in ("bandwidth", "latency"):
        for place, given in enumerate(params.get(kind) or ()):
            level, equals, _ = given.rpartition("=")
            add(f"{kind}.{level}" if equals else kind, kind, f"--{kind} ", given, place)
    sets = _given(params.get("set_") or (), problems)
    names = {path: name for name, (path, _) in o.PATHS.items()}
    for name in sorted(o.PATHS.keys() & set(order), key=order.index):
        path, option = o.PATHS[name]
        value = params.get(name)
        if isinstance(value, bool):
            shown = o.WORDS.get(name, {}).get(value, str(value).lower())
            spelled = option if value else option.replace("--", "--no-", 1)
            found.append(Axis(_column(name), path, f"{spelled} ", (shown,), (scalar(shown),)))
        elif value is not None:
            add(_column(name), path, f"{option} ", value)
    for path, text in sets:
        add(_column(names[path]) if path in names else path, path, f"--set {path}=", text)
    twice = {axis.path for axis in found if [one.path for one in found].count(axis.path) > 1 and axis.varies}
    for path in sorted(twice - {"bandwidth", "latency"}):
        problems.append(UsageError(f"{path} is given twice, once as a list", where=path, hint="give it once"))
    raise_all(problems)
    found.sort(key=lambda axis: LAST.index(axis.name) + 1 if axis.name in LAST else 0)
    job = params.get("job")
    base = Request(
        job=None if job == "-" else job,
        job_text=o.read_stdin("job") if job == "-" else None,
        bandwidths=tuple(params.get("bandwidth") or ()),
        latencies=tuple(params.get("latency") or ()),
    )
    return Grid(tuple(found), base)


def _column(name: str) -> str:
    return {"overlap_groups": "overlap"}.get(name, name)


def _given(sets: Sequence[str], problems: list[CommcalcError]) -> list[tuple[str, str]]:
    found = []
    for given in sets:
        path, equals, value = given.partition("=")
        if equals and path.strip():
            found.append((path.strip(), value.strip()))
        else:
            problems.append(
                UsageError(f"{given[:60]!r} sets nothing", where=f"--set {given[:60]}", hint="--set PATH=LIST")
            )
    return found


def _members(path: str, text: str) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """The values of a list as they are read, and as lines show them."""
    section, _, key = path.partition(".")
    field: Field | None = SECTIONS.get(section, {}).get(key)
    if text.lstrip()[:1] in ("{", "[") or (field is not None and (field.joined or field.many)):
        return (text,), (text,)
    if field is not None and many_whole(field):
        if not re.search(r"[,:]|\.\.", text):  # one value, for the field itself to judge
            return (text,), (_whole(text),)
        whole = [_numbers(part.strip()) for part in text.split(",")]
        values = list(dict.fromkeys(value for part in whole for value in part))
        return tuple(str(value) for value in values), tuple(values)
    parts: list[str] = []
    for part in text.split(","):
        if section == "hardware" and _RANGE.match(part):
            parts += [str(value) for value in parse_range(part)]
        else:
            parts.append(part.strip())
    if not all(parts) and len(parts) > 1:
        raise UsageError("a list with nothing between two commas")
    texts = tuple(dict.fromkeys(parts))
    return texts, tuple(scalar(one) for one in texts)


def _numbers(text: str) -> list[int]:
    """Of a part of a list; a range may begin at zero, which no number of things is."""
    if text == "0":
        return [0]
    zero, dots, rest = text.partition("..")
    if zero.strip() != "0" or not dots or ":x" in rest:
        return parse_range(text)
    last, _, step = rest.partition(":")
    return [0, *(parse_range(f"{step or 1}..{last}:{step or 1}") if last.strip() != "0" else [])]


def _whole(text: str) -> object:
    try:
        return parse_range(text)[0]
    except CommcalcError:
        return scalar(text)


def check_members(grid: Grid) -> None:
    """Read the first combination, and every member of a list beside it; all that cannot be read is told."""
    first = [0] * len(grid.axes)
    problems: dict[str, CommcalcError] = {}
    for problem in _wrong(grid, first):
        # What two lists say together is a combination that is not legal, and has a line.
        if problem.kind != "usage" or not any(axis.path in (problem.where or "") for axis in grid.varying):
            problems.setdefault(problem.text(), problem)
    for at, axis in enumerate(grid.axes):
        members = list(range(len(axis.texts)))
        if all(isinstance(value, int) for value in axis.shown):  # all between are as good as these
            members = sorted({axis.shown.index(min(axis.shown)), axis.shown.index(max(axis.shown))})
        for member in members[:_READ_FIRST]:
            origin = f"{axis.option}{axis.texts[member][:60]}"
            for problem in _wrong(grid, [*first[:at], member, *first[at + 1 :]]):
                if problem.kind == "unknown-name" or origin in (problem.where or ""):
                    problems.setdefault(problem.text(), problem)
    raise_all(list(problems.values()))


def _wrong(grid: Grid, chosen: Sequence[int]) -> Sequence[CommcalcError]:
    try:
        grid.job(chosen)
    except CommcalcError as problem:
        return problem.problems
    return ()


def first_document(grid: Grid) -> dict[str, Any]:
    """The ledger's document at the first legal point of those looked at; empty where none is."""
    from commcalc.report.sweep import whole_document

    places = product(*(range(len(axis.texts)) for axis in grid.axes))
    for chosen in islice(places, _READ_FIRST):
        with suppress(CommcalcError):
            return whole_document(grid.job(chosen))
    return {}


def check_size(grid: Grid, *, best_only: bool) -> None:
    """`UsageError` for more points than can be written, or looked at."""
    most = MOST_LOOKED_AT if best_only else MOST_LINES
    if grid.points <= most:
        return
    lengths = " x ".join(f"{axis.name} {len(axis.texts)}" for axis in grid.varying)
    hint = "fewer values or wider steps"
    if not best_only and grid.points <= MOST_LOOKED_AT:
        hint += f"; --top K --by FIELD tells the best of up to {MOST_LOOKED_AT:,} points"
    raise UsageError(
        f"{grid.points:,} points ({lengths}); at most {most:,} are {'looked at' if best_only else 'written'}",
        where="the grid", hint=hint,
    )  # fmt: skip
