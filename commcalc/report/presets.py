"""Presets as documents and tables: the list, one in full, and what is wrong with files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from commcalc import __version__
from commcalc.catalog.describe import Described, Listed
from commcalc.errors import CommcalcError
from commcalc.report.json import violation
from commcalc.report.table import Column, Table
from commcalc.units import format_binary, format_flops, format_rate, format_seconds

LIST_SCHEMA = "commcalc/presets/1"
SHOW_SCHEMA = "commcalc/preset/1"
UNPRICED = "not_priced_yet"
VALIDATE_SCHEMA = "commcalc/validation/1"
# What is derived of a machine's links, shown as tables of their own; and the paths of measured sweeps.
_OF_LINKS = ("constants", "times")
_MEASURED = re.compile(r"^network\.[^.]+\.measured(?:\.|$)")


def list_document(found: Sequence[Listed]) -> dict[str, object]:
    """The document of ``presets list --json``."""
    return {"schema": LIST_SCHEMA, "version": __version__, "presets": [one.record() for one in found]}


def list_tables(found: Sequence[Listed]) -> list[Table]:
    """One table a kind."""
    titles = {
        "model": ("Models", ("name", "size", "family", "source", "also")),
        "hardware": ("Hardware", ("name", "links", "source", "also")),
        "job": ("Jobs", ("name", "joins", "source", "also")),
    }
    tables = []
    for kind, (title, columns) in titles.items():
        rows = tuple(
            (one.name, one.size, *([one.family] if kind == "model" else []), _trusted(one), ", ".join(one.aliases))
            for one in found
            if one.kind == kind
        )
        if rows:
            tables.append(Table(title, tuple(Column(column) for column in columns), rows))
    return tables


def _trusted(one: Listed) -> str:
    """Whose it is, and how sure its values are where they are not."""
    return one.origin if one.confidence in ("", "high") else f"{one.origin}, confidence {one.confidence}"


def show_document(found: Described) -> dict[str, object]:
    """The document of ``presets show --json``."""
    return {
        "schema": SHOW_SCHEMA,
        "version": __version__,
        "kind": found.kind,
        "name": found.name,
        "values": dict(found.values),
        "derived": dict(found.derived),
        "sources": dict(found.sources),
        "about": dict(found.about),
    }


def show_records(found: Described) -> list[dict[str, object]]:
    """Every value as a flat record: path, value, source."""
    return [{"path": path, "value": value, "source": _source(found, path)} for path, value in _flat(found.values)] + [
        {"path": f"derived.{path}", "value": value, "source": "derived"} for path, value in _flat(found.derived)
    ]


def show_tables(found: Described) -> list[Table]:
    """Values with their sources, then what follows from them."""
    numbers = _numbered(found)

    def source(path: str, value: object) -> str:
        told = _source(found, path)
        return numbers[told] if told else "" if value is None else "default"

    plain = ((path, value) for path, value in _flat(found.values) if not _MEASURED.search(path))
    values = tuple((path, _shown(value, path), source(path, value)) for path, value in plain)
    tables = [
        Table(f"{found.name} ({found.kind})", (Column("key"), Column("value", True), Column("source", True)), values)
    ]
    single = {key: value for key, value in found.derived.items() if key not in _OF_LINKS}
    follows = ((path, value) for path, value in _flat(single) if path != UNPRICED)
    derived = tuple((path, _shown(value, path)) for path, value in follows if value not in ([], {}))
    if derived:
        tables.append(Table("Derived", (Column("key"), Column("value", True)), derived))
    return [*tables, *_link_tables(found, numbers)]


def _link_tables(found: Described, numbers: Mapping[str, str]) -> list[Table]:
    """The constants of what was measured, and times by payload."""
    constants, times = (_dicts(found.derived.get(key)) for key in _OF_LINKS)
    return [*([_constants_table(found, constants, numbers)] if constants else []),
            *([_times_table(times)] if times else [])]  # fmt: skip


def _constants_table(found: Described, constants: Sequence[Mapping[str, object]], numbers: Mapping[str, str]) -> Table:
    columns = (
        Column("group"), Column("algorithm"), Column("sizes", True),
        Column("t0", True), Column("c", True), Column("B", True), Column("half of B at", True), Column("measured in"),
        Column("source", True),
    )  # fmt: skip
    rows = tuple(
        (
            _group(one), str(one["algorithm"]), str(one["sizes"] or ""), format_seconds(_number(one["t0_s"])),
            f"{_number(one['c_s_per_sqrt_byte']) * 1e9:.3g} ns", format_rate(_number(one["bandwidth_bytes_per_s"])),
            format_binary(int(_number(one["half_bandwidth_payload_bytes"]))), str(one["source"] or ""),
            numbers.get(_source(found, f"network.{one['level']}.measured"), ""),
        )
        for one in constants
    )  # fmt: skip
    return Table("Measured, fitted: t = t0 + c sqrt(x) + x/B on bus bytes x", columns, rows)


def _times_table(times: Sequence[Mapping[str, object]]) -> Table:
    sizes = [format_binary(int(_number(each["payload_bytes"]))) for each in _dicts(times[0]["times"])]
    columns = (
        Column("group"), *(Column(size, True) for size in sizes), Column("confidence"),
    )  # fmt: skip
    rows = tuple(
        (
            _group(one),
            *(format_seconds(_number(each["time_s"])) for each in _dicts(one["times"])),
            f"{one['confidence']}{', lower bound' if one['lower_bound'] else ''}",
        )
        for one in times
    )  # fmt: skip
    return Table("Time of one call by payload", columns, rows)


def _group(one: Mapping[str, object]) -> str:
    return f"{one['level']}: {one['collective']} over {one['ranks']}"


def _dicts(value: object) -> list[Mapping[str, object]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _source(found: Described, path: str) -> str:
    """The source of a value, or of what it is part of."""
    whole = _MEASURED.search(path)
    if whole:  # sweeps share the source of their list
        return found.sources.get(path[: whole.end()].rstrip("."), "")
    return found.sources.get(path) or found.sources.get(path.rpartition(".")[0]) or ""


def _numbered(found: Described) -> dict[str, str]:
    """A number for every source, in the order of the values."""
    texts = dict.fromkeys(_source(found, path) for path, _ in _flat(found.values))
    return {text: str(at) for at, text in enumerate((text for text in texts if text), 1)}


def show_notes(found: Described) -> str:
    """The sources by number, and what the file says about itself, a line each."""
    lines = ["Sources", *(f"{number} {text}" for text, number in _numbered(found).items())]
    if len(lines) == 1:
        lines = []
    unpriced = cast("Sequence[str]", found.derived.get(UNPRICED) or ())
    if found.about or unpriced:
        lines += ["", "About"] if lines else ["About"]
    lines += [f"not priced yet: {part}" for part in unpriced]
    for key, value in found.about.items():
        lines.append(f"{key}: {_shown(value)}")
    return "".join(f"{line}\n" for line in lines)


def validate_document(checked: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """The document of ``presets validate --json``."""
    return {"schema": VALIDATE_SCHEMA, "version": __version__, "files": [dict(one) for one in checked]}


def validate_record(path: str, kind: str, name: str, problems: Sequence[CommcalcError]) -> dict[str, object]:
    """One file: what it is, and every violation."""
    return {
        "path": path,
        "kind": kind or None,
        "name": name or None,
        "valid": not problems,
        "violations": [violation(problem) for problem in problems],
    }


def validate_table(checked: Sequence[Mapping[str, object]]) -> Table:
    """One line a file."""
    rows = tuple(
        (str(one["path"]), str(one["kind"] or ""), str(one["name"] or ""), "valid" if one["valid"] else "wrong")
        for one in checked
    )
    return Table("Files", (Column("file"), Column("kind"), Column("name"), Column("verdict")), rows)


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Path and value of every leaf; things in a list go by their name."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}.")
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for at, item in enumerate(value):
                rest = {name: inner for name, inner in item.items() if name != "name"}
                yield from _flat(rest, f"{path}.{item.get('name', at)}.")
        else:
            yield path, value


def _shown(value: object, path: str = "") -> str:
    """A value for people; the path of a quantity tells its unit."""
    if value is None:
        return "not given"
    if isinstance(value, float) and path.endswith("_bytes_per_s"):
        return format_rate(value)
    if isinstance(value, float) and path.endswith("_s"):
        return format_seconds(value)
    if isinstance(value, float) and path.startswith("chip.flops."):
        return format_flops(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(str(item).lower() if isinstance(item, bool) else str(item) for item in value)
    return str(value)
