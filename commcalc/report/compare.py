"""Combinations side by side: as a document, as tables, pivoted, and as bars in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from commcalc import __version__
from commcalc.accounting.comparison import Compared
from commcalc.accounting.pricing import Total
from commcalc.report.ledger import spec_values
from commcalc.report.table import Column, Table
from commcalc.units import format_bytes, format_seconds

SCHEMA = "commcalc/compare/1"
# Characters of the longest bar.
WIDTH = 60


class Measure(NamedTuple):
    """A column: its path in a row's record, its title, how it is written, and whether less of it is better."""

    path: str
    title: str
    shown: Callable[[Any], str]
    less: bool | None = True


def _share(value: Any) -> str:
    return f"{100 * value:.1f} %"


def _rate(value: Any) -> str:
    return f"{value:,.1f}"


MEASURES = (
    Measure("block.payload_bytes", "block payload", format_bytes),
    Measure("block.wire_bytes", "block wire", format_bytes),
    Measure("block.comm_s", "block comm", format_seconds),
    Measure("block.compute_s", "block compute", format_seconds, None),
    Measure("block.share", "share", _share),
    Measure("block.exposed_s", "exposed", format_seconds),
    Measure("step.wire_bytes", "step wire", format_bytes),
    Measure("step.time_s", "step", format_seconds),
    Measure("step.tokens_per_s", "tokens/s", _rate, less=False),
    Measure("memory.weights_bytes", "weights", format_bytes),
    Measure("memory.stream_bytes", "hidden state", format_bytes),
    Measure("memory.activations_bytes", "activations", format_bytes),
    Measure("memory.total_bytes", "memory", format_bytes),
    Measure("memory.fits", "fits", lambda value: "yes" if value else "no", None),
)


def row_record(one: Compared) -> dict[str, Any]:
    """One combination with the fields of the contract; null where it is not legal, or not known."""
    candidate = one.candidate
    return {
        "model": candidate.model.name,
        "hardware": candidate.hardware,
        "layout": candidate.parallel.layout,
        "parallelism": spec_values(candidate.parallel) | {"order": "-".join(candidate.parallel.order)},
        "workload": spec_values(candidate.work),
        "legal": one.reason is None,
        "reason": one.reason,
        "block": _block(one),
        "step": _step(one),
        "memory": _memory(one),
        "levels": one.levels,
        "crossing_bytes": one.crossing_bytes,
        "warnings": [] if one.priced is None or one.outlook is None
        else sorted({warning.code for warning in (*one.priced.warnings, *one.outlook.warnings)}),
    }  # fmt: skip


def _block(one: Compared) -> dict[str, Any]:
    total = None if one.priced is None else one.priced.totals["block"]["all"]
    block = one.outlook.step.block if one.outlook and one.outlook.step else None
    whole = block.compute_s + block.exposed_s if block else 0.0
    together = block.compute_s + block.comm_s if block else 0.0
    return _moved(total) | {
        "compute_s": block.compute_s if block else None,
        "exposed_s": block.exposed_s if block else None,
        "exposed_share": block.exposed_s / whole if block and whole else None,
        "share": block.comm_s / together if block and together else None,
    }


def _step(one: Compared) -> dict[str, Any]:
    total = None if one.priced is None else one.priced.totals["step"]["all"]
    step = one.outlook.step if one.outlook else None
    return _moved(total) | {
        "compute_s": step.microbatches * step.slowest.compute_s if step else None,
        "exposed_s": step.exposed_s if step else None,
        "exposed_share": step.exposed_s / step.time_s if step and step.time_s else None,
        "time_s": step.time_s if step else None,
        "tokens_per_s": step.tokens_per_s if step else None,
        "mfu": step.mfu if step else None,
    }


def _moved(total: Total | None) -> dict[str, Any]:
    return {
        "payload_bytes": total.payload_bytes if total else None,
        "wire_bytes": total.wire_bytes if total else None,
        "comm_s": total.time_s if total else None,
    }


def _memory(one: Compared) -> dict[str, Any]:
    memory = one.memory
    return {
        "weights_bytes": memory.weights if memory else None,
        "stream_bytes": one.stream_bytes,
        "activations_bytes": memory.activations if memory else None,
        "total_bytes": memory.total if memory else None,
        "fits": memory.fits if memory else None,
    }


def value_at(record: Mapping[str, Any], path: str) -> Any:
    """The value of a path in a record; None where there is none."""
    found: Any = record
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def best_rows(records: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """For each measure that has a better and a worse, the rows that are best; none where all are alike."""
    found = {}
    for measure in MEASURES:
        values = {at: value_at(record, measure.path) for at, record in enumerate(records)}
        known = {at: value for at, value in values.items() if value is not None}
        if measure.less is None or len(set(known.values())) < 2:
            continue
        best = min(known.values()) if measure.less else max(known.values())
        found[measure.path] = [at for at, value in known.items() if value == best]
    return found


def ratios(records: Sequence[Mapping[str, Any]], baseline: int) -> list[dict[str, float | None]]:
    """Every measure over that of the baseline; None where either is not known or nothing."""
    base = records[baseline]
    found = []
    for record in records:
        one: dict[str, float | None] = {}
        for measure in MEASURES:
            value, of = value_at(record, measure.path), value_at(base, measure.path)
            number = isinstance(value, (int, float)) and isinstance(of, (int, float)) and not isinstance(value, bool)
            one[measure.path] = value / of if number and of else None
        found.append(one)
    return found


def document(
    records: Sequence[Mapping[str, Any]], varying: Sequence[str], assumptions: Sequence[str], baseline: int | None
) -> dict[str, Any]:
    """The document of ``commcalc compare --json``."""
    rows = [dict(record) for record in records]
    if baseline is not None:
        for row, ratio in zip(rows, ratios(records, baseline), strict=True):
            row["ratios"] = ratio
    return {
        "schema": SCHEMA,
        "version": __version__,
        "varying": list(varying),
        "assumptions": list(assumptions),
        "rows": rows,
        "best": best_rows(records),
        "baseline": baseline,
    }


def flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A record in one level, its keys the paths of the document; lists joined by spaces."""
    found: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
    return found


def flattened(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """All records in one level with the same keys; empty where a record has none of a key."""
    rows = [flat(record) for record in records]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    # What groups ride on stands together, whichever combination has them.
    keys.sort(key=lambda key: ("levels.", "crossing_bytes.", "warnings").index(_start(key)) if _start(key) else -1)
    return [{key: row.get(key) for key in keys} for row in rows]


def _start(key: str) -> str:
    return next((start for start in ("levels.", "crossing_bytes.", "warnings") if key.startswith(start)), "")


def comparison_table(
    records: Sequence[Mapping[str, Any]], labels: Sequence[Mapping[str, str]], baseline: int | None
) -> Table:
    """A line for each combination; the best of a column has a star, a column that nobody has is left out."""
    best, names = best_rows(records), list(labels[0])
    shown = [measure for measure in MEASURES if any(value_at(record, measure.path) is not None for record in records)]
    over = ratios(records, baseline) if baseline is not None else None
    crossing = any(record["crossing_bytes"] for record in records)
    columns = [Column(name) for name in names or ["combination"]]
    columns += [Column(measure.title, True) for measure in shown]
    columns += [Column("leaves its level")] if crossing else []
    columns += [Column("not legal because")] if any(not record["legal"] for record in records) else []
    rows = []
    for at, (record, label) in enumerate(zip(records, labels, strict=True)):
        cells = [label[name] for name in names] or ["1"]
        for measure in shown:
            value = value_at(record, measure.path)
            text = "" if value is None else measure.shown(value)
            ratio = over[at][measure.path] if over else None
            if ratio is not None and measure.less is not None and at != baseline:
                text += f" ({ratio:.3g}x)"
            cells.append(text + ("*" if at in best.get(measure.path, ()) else ""))
        cells += [", ".join(record["crossing_bytes"])] if crossing else []
        cells += [record["reason"] or ""] if len(columns) > len(cells) else []
        rows.append(tuple(cells))
    return Table("Side by side (* best)", tuple(columns), tuple(rows))


def pivoted(records: Sequence[Mapping[str, Any]], labels: Sequence[Mapping[str, str]], pivot: str) -> list[Table]:
    """Values of one field as columns, measures as lines: a table for each combination of the other fields."""
    groups: dict[tuple[tuple[str, str], ...], dict[str, Mapping[str, Any]]] = {}
    for record, label in zip(records, labels, strict=True):
        rest = tuple((name, value) for name, value in label.items() if name != pivot)
        groups.setdefault(rest, {})[label[pivot]] = record
    tables = []
    for rest, found in groups.items():
        title = ", ".join(f"{name} {value}" for name, value in rest) or "Side by side"
        chosen = list(found.values())
        best = best_rows(chosen)
        rows = []
        for measure in MEASURES:
            values = [value_at(record, measure.path) for record in chosen]
            if all(value is None for value in values):
                continue
            cells = ["" if value is None else measure.shown(value) for value in values]
            stars = best.get(measure.path, [])
            rows.append((measure.title, *(cell + "*" * (at in stars) for at, cell in enumerate(cells))))
        if any(record["crossing_bytes"] for record in chosen):
            rows.append(("leaves its level", *(", ".join(record["crossing_bytes"]) for record in chosen)))
        if not all(record["legal"] for record in chosen):
            rows.append(("legal", *("yes" if record["legal"] else "no" for record in chosen)))
        columns = (Column(pivot), *(Column(value, True) for value in found))
        tables.append(Table(title, columns, tuple(rows)))
    return tables


def bars(records: Sequence[Mapping[str, Any]], labels: Sequence[Mapping[str, str]]) -> str:
    """Compute (#) and exposed communication (=) of a block, as bars; the longest fills the width."""
    times = [(record["block"]["compute_s"], record["block"]["exposed_s"]) for record in records]
    longest = max((compute + exposed for compute, exposed in times if compute is not None), default=0.0)
    names = [" ".join(f"{name} {value}" for name, value in label.items()) or "1" for label in labels]
    wide = max(len(name) for name in names)
    lines = ["A block: compute (#), exposed communication (=)"]
    for name, (compute, exposed), record in zip(names, times, records, strict=True):
        if compute is None:
            why = f"not legal: {record['reason']}" if record["reason"] else "not timed"
            lines.append(f"{name.ljust(wide)}  {why}")
            continue
        scale = WIDTH / longest if longest else 0.0
        first = round(compute * scale)
        rest = round((compute + exposed) * scale) - first
        lines.append(f"{name.ljust(wide)}  {'#' * first}{'=' * rest}  {format_seconds(compute + exposed)}")
    return "\n".join(lines) + "\n"
