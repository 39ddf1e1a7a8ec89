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
    Measure("devices", "devices", format_bytes, None),
    Measure("step.wire_bytes", "step wire", format_bytes),
    Measure("step.time_s", "step", format_seconds),
    Measure("step.tokens_per_s", "tokens/s", _rate, less=False),
    Measure("step.tokens_per_s_per_device", "of a device", _rate, less=False),
    Measure("step.mfu", "MFU", _share, less=False),
    Measure("memory.weights_bytes", "weights", format_bytes),
    Measure("memory.stream_bytes", "hidden state", format_bytes),
    Measure("memory.activations_bytes", "activations", format_bytes),
    Measure("memory.total_bytes", "memory", format_bytes),
    Measure("memory.fits", "fits", lambda value: "yes" if value else "no", None),
)


# What stands under a table.
LEGEND = (
    "payload and wire: bytes of one device; share: of communication in a block's compute and communication together",
    "exposed: what of a block's communication nothing hides; hidden state: the residual stream between blocks",
    "step and tokens/s: of the slowest pipeline stage; weights, activations and memory: of the fullest",
)


def row_record(one: Compared, label: Mapping[str, str]) -> dict[str, Any]:
    """One combination with the fields of the contract; null where it is not legal, or not known."""
    candidate = one.candidate
    codes = set() if one.priced is None or one.outlook is None else {
        warning.code for warning in (*one.warnings, *one.priced.warnings, *one.outlook.warnings)
    }  # fmt: skip
    return {
        "combination": dict(label),
        "model": candidate.model.name,
        "hardware": candidate.hardware,
        "layout": candidate.parallel.layout,
        "parallelism": spec_values(candidate.parallel) | {"order": "-".join(candidate.parallel.order)},
        "workload": spec_values(candidate.work),
        "devices": candidate.parallel.mesh.devices,
        "legal": one.reason is None,
        "reason": one.reason,
        "block": _block(one),
        "step": _step(one),
        "memory": _memory(one),
        "levels": one.levels,
        "crossing_bytes": one.crossing_bytes,
        "warnings": sorted(codes),
    }


def _block(one: Compared) -> dict[str, Any]:
    total = None if one.priced is None else one.priced.totals["block"]["all"]
    block = one.outlook.step.block if one.outlook and one.outlook.step else None
    together = block.compute_s + block.comm_s if block else 0.0
    return _moved(total) | {
        "compute_s": block.compute_s if block else None,
        "exposed_s": block.exposed_s if block else None,
        "exposed_share": block.exposed_share if block else None,
        "share": block.comm_s / together if block and together else None,
    }


def _step(one: Compared) -> dict[str, Any]:
    """Of the slowest stage; where nothing is timed, of the one that sends most."""
    step = one.outlook.step if one.outlook else None
    total = None if one.priced is None else one.priced.totals["step"]["all"]
    if step is not None and one.outlook is not None:
        total = one.outlook.totals[step.slowest.stage]["all"]
    stage = step.slowest.stage if step else one.priced.ledger.stage.number if one.priced else None
    return _moved(total) | {
        "stage": stage,
        "compute_s": step.microbatches * step.slowest.compute_s if step else None,
        "exposed_s": step.exposed_s if step else None,
        "exposed_share": step.exposed_s / step.time_s if step and step.time_s else None,
        "time_s": step.time_s if step else None,
        "tokens_per_s": step.tokens_per_s if step else None,
        "tokens_per_s_per_device": step.tokens_per_s / step.devices if step else None,
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
        "stage": memory.stage if memory else None,
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
    """For each measure that has a better and a worse, the rows that are best; none where all are alike.

    Rows that do the same work stand against one another; where some of them fit, those alone.
    """
    found: dict[str, list[int]] = {}
    for rivals in _rivals(records):
        for measure in MEASURES:
            values = {at: value_at(records[at], measure.path) for at in rivals}
            known = {at: value for at, value in values.items() if value is not None}
            if measure.less is None or len(set(known.values())) < 2:
                continue
            best = min(known.values()) if measure.less else max(known.values())
            found.setdefault(measure.path, []).extend(at for at, value in known.items() if value == best)
    return {path: sorted(rows) for path, rows in found.items()}


def _rivals(records: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Rows that do the same work, and may be best: those that fit, where any does."""
    same: dict[tuple[Any, ...], list[int]] = {}
    for at, record in enumerate(records):
        work = record["workload"]
        keys = ("phase", "sequence_length", "micro_batch_size", "global_batch_size")
        same.setdefault((record["model"], *(work[key] for key in keys)), []).append(at)
    chosen = []
    for rows in same.values():
        fitting = [at for at in rows if record_fits(records[at])]
        chosen.append(fitting or rows)
    return chosen


def record_fits(record: Mapping[str, Any]) -> bool:
    """Whether a row is known to fit."""
    return record["memory"]["fits"] is True


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
    records: Sequence[Mapping[str, Any]],
    varying: Sequence[str],
    assumptions: Sequence[str],
    warnings: Sequence[tuple[str, str]],
    baseline: int | None,
) -> dict[str, Any]:
    """The document of ``commcalc compare --json``."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "varying": list(varying),
        "assumptions": list(assumptions),
        "warnings": [{"code": code, "message": message} for code, message in warnings],
        "rows": with_ratios(records, baseline),
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
    shown = _shown(records)
    over = ratios(records, baseline) if baseline is not None else None
    crossing = any(record["crossing_bytes"] for record in records)
    told = any(_told(record) for record in records)
    columns = [Column(name) for name in names or ["combination"]]
    columns += [Column(measure.title, True) for measure in shown]
    columns += [Column("leaves its level")] * crossing + [Column("warnings")] * told
    columns += [Column("legal")] * any(not record["legal"] for record in records)
    rows = []
    for at, (record, label) in enumerate(zip(records, labels, strict=True)):
        cells = [label[name] for name in names] or ["1"]
        ratio = over[at] if over and at != baseline else None
        cells += [_cell(measure, record, ratio, at in best.get(measure.path, ())) for measure in shown]
        cells += [", ".join(record["crossing_bytes"])] * crossing + [_told(record)] * told
        cells += ["yes" if record["legal"] else "no"] if len(columns) > len(cells) else []
        rows.append(tuple(cells))
    return Table("Side by side (* best of those that fit)", tuple(columns), tuple(rows))


def _shown(records: Sequence[Mapping[str, Any]]) -> list[Measure]:
    """The measures that some row has; devices where they differ."""
    found = [one for one in MEASURES if any(value_at(record, one.path) is not None for record in records)]
    alike = len({record["devices"] for record in records}) == 1
    return [one for one in found if one.path != "devices" or not alike]


def _cell(measure: Measure, record: Mapping[str, Any], over: Mapping[str, float | None] | None, best: bool) -> str:
    value = value_at(record, measure.path) if record["legal"] else None
    if value is None:
        return ""
    ratio = over[measure.path] if over and measure.less is not None else None
    return measure.shown(value) + (f" ({ratio:.3g}x)" if ratio is not None else "") + "*" * best


def _told(record: Mapping[str, Any]) -> str:
    """Warnings that no other column says."""
    return ", ".join(code for code in record["warnings"] if code not in ("does-not-fit", "tp-crosses-level"))


def reasons(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why rows are not legal, a line for each."""
    return [
        f"{' '.join(f'{name} {value}' for name, value in record['combination'].items()) or 'it'}: {record['reason']}"
        for record in records
        if not record["legal"]
    ]


def pivoted(
    records: Sequence[Mapping[str, Any]], labels: Sequence[Mapping[str, str]], pivot: str, baseline: int | None
) -> list[Table]:
    """Values of one field as columns, measures as lines: a table for each combination of the other fields."""
    groups: dict[tuple[tuple[str, str], ...], dict[str, int]] = {}
    for at, label in enumerate(labels):
        rest = tuple((name, value) for name, value in label.items() if name != pivot)
        groups.setdefault(rest, {})[label[pivot]] = at
    best, over = best_rows(records), ratios(records, baseline) if baseline is not None else []
    against = {at: ratio for at, ratio in enumerate(over) if at != baseline}
    tables = []
    for rest, found in groups.items():
        title = ", ".join(f"{name} {value}" for name, value in rest) or "Side by side"
        chosen = [records[at] for at in found.values()]
        rows = []
        for measure in _shown(chosen):
            cells = [
                _cell(measure, records[at], against.get(at), at in best.get(measure.path, ())) for at in found.values()
            ]
            rows.append((measure.title, *cells))
        if any(record["crossing_bytes"] for record in chosen):
            rows.append(("leaves its level", *(", ".join(record["crossing_bytes"]) for record in chosen)))
        if any(_told(record) for record in chosen):
            rows.append(("warnings", *(_told(record) for record in chosen)))
        if not all(record["legal"] for record in chosen):
            rows.append(("legal", *("yes" if record["legal"] else "no" for record in chosen)))
        columns = (Column(pivot), *(Column(value, True) for value in found))
        tables.append(Table(f"{title} (* best of those that fit)", columns, tuple(rows)))
    return tables


def with_ratios(records: Sequence[Mapping[str, Any]], baseline: int | None) -> list[dict[str, Any]]:
    """The records, each with its ratios to the baseline where there is one."""
    rows = [dict(record) for record in records]
    if baseline is not None:
        for row, ratio in zip(rows, ratios(records, baseline), strict=True):
            row["ratios"] = ratio
    return rows


def bars(records: Sequence[Mapping[str, Any]], labels: Sequence[Mapping[str, str]], width: int | None) -> str:
    """Compute (#) and exposed communication (=) of a block, as bars; the longest fills the width."""
    times = [(record["block"]["compute_s"], record["block"]["exposed_s"]) for record in records]
    longest = max((compute + exposed for compute, exposed in times if compute is not None), default=0.0)
    names = [" ".join(f"{name} {value}" for name, value in label.items()) or "1" for label in labels]
    wide = max(len(name) for name in names)
    # Two gaps, and a time.
    room = WIDTH if width is None else max(10, min(WIDTH, width - wide - 14))
    lines = ["A block: compute (#), exposed communication (=)"]
    for name, (compute, exposed), record in zip(names, times, records, strict=True):
        if compute is None:
            lines.append(f"{name.ljust(wide)}  {'not timed' if record['legal'] else 'not legal'}")
            continue
        scale = room / longest if longest else 0.0
        first = round(compute * scale)
        rest = round((compute + exposed) * scale) - first
        lines.append(f"{name.ljust(wide)}  {'#' * first}{'=' * rest}  {format_seconds(compute + exposed)}")
    return "\n".join(lines) + "\n"
