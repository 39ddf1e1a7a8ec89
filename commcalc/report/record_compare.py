"""Records compared, as a document and as tables: measured beside predicted, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from commcalc import __version__
from commcalc.accounting.record import Measured, Outcome, Pair
from commcalc.report.table import Column, Table
from commcalc.units import format_bytes, format_rate, format_seconds

SCHEMA = "commcalc/record-compare/1"


class Filed(NamedTuple):
    """A record's outcome, and the file it was read from."""

    file: str
    outcome: Outcome


def document(found: Sequence[Filed], tolerance: float) -> dict[str, Any]:
    """The document of ``commcalc record compare --json``."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "passed": not any(one.outcome.off for one in found),
        "tolerance": tolerance,
        "records": [_record(one) for one in found],
        "degrees": degrees(found),
    }


def _record(one: Filed) -> dict[str, Any]:
    outcome, record = one.outcome, one.outcome.record
    implied = outcome.implied
    return {
        "file": one.file,
        "name": record.name,
        "degree": record.degree,
        "passed": not outcome.off,
        "rows": rows(one),
        "groups": [
            {"group": group.group, **_pair(group.time_s), "wire_bytes": group.wire_bytes} for group in outcome.groups
        ],
        "step": {key: _pair(pair) for key, pair in record.step.items()},
        "implied": None
        if implied is None
        else {
            "compute_s": implied.compute_s,
            "comm_s": implied.comm_s,
            "busbw_bytes_per_s": implied.busbw,
            "ratio": implied.ratio,
            "explained_s": implied.explained_s,
            "step_ratio": Pair(implied.explained_s, record.step["time_s"].measured).ratio,
        },
        "correctness": {
            key: {"baseline": pair.predicted, "measured": pair.measured, "ratio": pair.ratio}
            for key, pair in record.correctness.items()
        },
        "off": list(outcome.off),
        "said": list(outcome.said),
        "missing": list(record.missing),
    }


def _pair(pair: Pair) -> dict[str, Any]:
    return {"predicted": pair.predicted, "measured": pair.measured, "ratio": pair.ratio}


def rows(one: Filed) -> list[dict[str, Any]]:
    """A record for each collective: times of one call."""
    implied = one.outcome.implied
    return [
        {
            "record": one.outcome.record.name,
            "name": row.name,
            "group": row.group,
            "collective": row.collective,
            "payload_bytes": row.payload_bytes,
            "wire_bytes": row.wire_bytes,
            "count_in_step": row.count_in_step,
            "predicted_s": row.mean_s.predicted,
            "measured_s": row.mean_s.measured,
            "ratio": row.mean_s.ratio,
            "busbw_bytes_per_s": row.busbw,
            "p95_s": row.p95_s,
            "exposed_tail_s": row.exposed_tail_s,
            "implied_s": implied.mean_s.get(row.name) if implied else None,
            "off": f"collectives.{row.name}" in one.outcome.off,
        }
        for row in one.outcome.record.collectives
    ]


def degrees(found: Sequence[Filed]) -> list[dict[str, Any]]:
    """Steps of all records side by side; speed-ups are to the first record."""
    first = found[0].outcome.record.step["time_s"]
    lines = []
    for one in found:
        record, implied = one.outcome.record, one.outcome.implied
        time = record.step["time_s"]
        lines.append(
            {
                "file": one.file,
                "name": record.name,
                "degree": record.degree,
                "predicted_s": time.predicted,
                "measured_s": time.measured,
                "ratio": time.ratio,
                "predicted_speedup": _over(first.predicted, time.predicted),
                "measured_speedup": _over(first.measured, time.measured),
                "implied_comm_s": implied.comm_s if implied else None,
                "implied_busbw_bytes_per_s": implied.busbw if implied else None,
            }
        )
    return lines


def _over(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def tables(found: Sequence[Filed]) -> list[Table]:
    """The collectives and the step of each record, then all steps side by side."""
    made: list[Table] = []
    for one in found:
        made += [_collectives(one), _others(one)]
    return [*made, _degrees(found)] if len(found) > 1 else made


def _collectives(one: Filed) -> Table:
    implied = one.outcome.implied
    columns = (Column("collective"), Column("payload bytes", True), Column("in step", True), Column("predicted", True),
               Column("measured", True), Column("ratio", True), Column("busbw", True), Column("P95", True),
               Column("exposed tail", True), Column("step implies", True))  # fmt: skip
    made = []
    for row in one.outcome.record.collectives:
        cells = _cells(row.mean_s, f"collectives.{row.name}" in one.outcome.off)
        rate = "" if row.busbw is None else format_rate(float(f"{row.busbw:.4g}"))
        each = implied.mean_s.get(row.name) if implied else None
        counts = (format_bytes(row.payload_bytes), _calls(row))
        made.append((row.name, *counts, *cells, rate, *map(_seconds, (row.p95_s, row.exposed_tail_s, each))))
    title = f"{one.outcome.record.name} ({one.file}): one call of each collective (* off)"
    return Table(title, columns, tuple(made))


def _calls(row: Measured) -> str:
    predicted, measured = row.calls
    told = "" if measured is None else f" ({measured:g} of {'?' if predicted is None else f'{predicted:g}'})"
    return f"{row.count_in_step}{told}"


def _others(one: Filed) -> Table:
    """The step and what must equal the baseline, as far as they are known."""
    record, off, implied = one.outcome.record, one.outcome.off, one.outcome.implied
    whole = record.step["time_s"]
    made: list[tuple[str, ...]] = [
        (key, *_cells(pair, pair.ratio is not None and f"step.{key}" in off))
        for key, pair in record.step.items()
        if pair != Pair()
    ]
    if implied is not None and implied.explained_s is not None:
        both = Pair(implied.explained_s, whole.measured)
        made.append(("known compute and predicted communication", *_cells(both, "step.time_s" in off)))
    for key, pair in record.correctness.items():
        if pair != Pair():
            values = ["" if value is None else f"{value:.6g}" for value in (pair.predicted, pair.measured)]
            ratio = "" if pair.ratio is None else f"{pair.ratio:.4g}"
            made.append((key, *values, ratio + ("*" if f"correctness.{key}" in off else "")))
    columns = (Column("step"), Column("predicted", True), Column("measured", True), Column("ratio", True))
    return Table("The step, and results beside the baseline's", columns, tuple(made))


def _degrees(found: Sequence[Filed]) -> Table:
    columns = (Column("record"), Column("tp", True), Column("predicted", True), Column("measured", True),
               Column("ratio", True), Column("speed-up predicted", True), Column("measured", True),
               Column("left to communication", True))  # fmt: skip
    made = []
    for line in degrees(found):
        numbers = ["" if line[key] is None else f"{line[key]:.4g}" for key in ("predicted_speedup", "measured_speedup")]
        ratio = "" if line["ratio"] is None else f"{line['ratio']:.4g}"
        times = [_seconds(line[key]) for key in ("predicted_s", "measured_s")]
        made.append((line["file"], str(line["degree"]), *times, ratio, *numbers, _seconds(line["implied_comm_s"])))
    return Table("Steps side by side (speed-ups to the first)", columns, tuple(made))


def _cells(pair: Pair, off: bool) -> tuple[str, str, str]:
    ratio = "" if pair.ratio is None else f"{pair.ratio:.4g}"
    return _seconds(pair.predicted), _seconds(pair.measured), ratio + ("*" if off else "")


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"-{format_seconds(-value)}" if value < 0 else format_seconds(value)


def tail(found: Sequence[Filed]) -> str:
    """What follows, and what nobody has measured."""
    lines = []
    for one in found:
        before = f"{one.file}: " if len(found) > 1 else ""
        lines += [f"{before}{said}" for said in one.outcome.said]
        missing = _missing(one.outcome.record.missing, len(one.outcome.record.collectives))
        lines += [f"{before}not measured: {', '.join(missing)}"] if missing else []
    return "".join(f"{line}\n" for line in lines)


def _missing(paths: Sequence[str], collectives: int) -> list[str]:
    """Fields without a measured value, those of collectives counted by field."""
    counts: dict[str, int] = {}
    for path in paths:
        start, _, rest = path.removesuffix(".measured").partition(".")
        key = rest.rpartition(".")[2]
        name = f"{key} of {{}} of {collectives} collectives" if start == "collectives" else f"{start}.{rest}"
        counts[name] = counts.get(name, 0) + 1
    return [name.format(count) for name, count in counts.items()]


def flat_rows(found: Sequence[Filed]) -> list[Mapping[str, Any]]:
    """Rows of all records, for formats of one table."""
    return [row for one in found for row in rows(one)]
