"""Presets as documents and tables: the list, one in full, and what is wrong with files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from commcalc import __version__
from commcalc.catalog.describe import Described, Listed
from commcalc.errors import CommcalcError
from commcalc.report.json import violation
from commcalc.report.table import Column, Table
from commcalc.units import format_flops, format_rate, format_seconds

LIST_SCHEMA = "commcalc/presets/1"
SHOW_SCHEMA = "commcalc/preset/1"
UNPRICED = "not_priced_yet"
VALIDATE_SCHEMA = "commcalc/validation/1"


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

    values = tuple((path, _shown(value, path), source(path, value)) for path, value in _flat(found.values))
    tables = [
        Table(f"{found.name} ({found.kind})", (Column("key"), Column("value", True), Column("source", True)), values)
    ]
    follows = ((path, value) for path, value in _flat(found.derived) if path != UNPRICED)
    derived = tuple((path, _shown(value, path)) for path, value in follows if value not in ([], {}))
    if derived:
        tables.append(Table("Derived", (Column("key"), Column("value", True)), derived))
    return tables


def _source(found: Described, path: str) -> str:
    """The source of a value, or of what it is part of."""
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
    unpriced = found.derived.get(UNPRICED) or ()
    assert isinstance(unpriced, Sequence)  # noqa: S101  (catalog.describe; mypy does not see it)
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
