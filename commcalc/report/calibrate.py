"""``commcalc calibrate`` as a document, as tables, and as a plot in the terminal."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

from commcalc import __version__
from commcalc.accounting.links import evidence_record
from commcalc.catalog.calibrate import Calibrated, Compared
from commcalc.report.table import Column, Table
from commcalc.units import format_binary, format_bytes, format_rate, format_seconds

SCHEMA = "commcalc/calibrate/1"
# Columns and lines of the plot, without its axes.
_WIDE, _HIGH = 60, 14


def sweep_record(one: Calibrated, datasheet: float | None) -> dict[str, object]:
    """One sweep with the fields of INTERFACE; ``datasheet`` is the rate of the level in bytes per second."""
    law, best = one.fit.law, one.best_busbw
    return {
        "source": one.log.source,
        "tool": one.log.tool,
        "collective": one.kind,
        "ranks": one.ranks,
        "nodes": one.nodes,
        "dtype": one.log.dtype,
        "rows": len(one.log.rows),
        "dropped": [{"payload_bytes": size, "time_s": time, "reason": reason} for (size, time), reason in one.dropped],
        "torn_rows": one.log.torn_rows,
        "zero_rows": one.log.zero_rows,
        "failed_size": one.log.failed_size,
        "t0_s": law.t0_s,
        "c_s_per_sqrt_byte": law.c,
        "bandwidth_bytes_per_s": law.bandwidth,
        "bandwidth_capped": one.fit.capped,
        "half_bandwidth_payload_bytes": law.half_bandwidth_bytes / one.factor,
        "best_busbw_bytes_per_s": best,
        "share_of_datasheet": best / datasheet if datasheet else None,
        "points": [
            {"payload_bytes": size, "time_s": time, "busbw_bytes_per_s": one.factor * size / time}
            for size, time in one.points
        ],
        "fit": {"median_rel_error": one.fit.median, "p90_rel_error": one.fit.p90},
        "left_out": _errors(one.fit.left_out_median, one.fit.left_out_p90),
        "left_out_lines": _errors(*(one.lines or (None, None))),
        "notes": list(one.log.notes),
    }


def _errors(median: float | None, p90: float | None) -> dict[str, float] | None:
    return None if median is None or p90 is None else {"median_rel_error": median, "p90_rel_error": p90}


def calibrate_document(
    sweeps: Sequence[Calibrated], datasheet: Sequence[float | None], warnings: Sequence[tuple[str, str]]
) -> dict[str, object]:
    """The document of ``commcalc calibrate --json``."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "sweeps": [sweep_record(one, rate) for one, rate in zip(sweeps, datasheet, strict=True)],
        "warnings": [{"code": code, "message": message} for code, message in warnings],
    }


def calibrate_tables(sweeps: Sequence[Calibrated], datasheet: Sequence[float | None]) -> list[Table]:
    """A row for each sweep, and what was dropped."""
    columns = (
        Column("log"), Column("collective"), Column("ranks", True), Column("dtype"), Column("sizes", True),
        Column("t0", True), Column("c", True), Column("B", True), Column("half of B at", True),
        Column("best busbw", True), *([Column("of datasheet", True)] if any(datasheet) else []),
        Column("fit error", True), Column("left out", True), Column("lines", True),
    )  # fmt: skip
    rows = []
    for one, rate in zip(sweeps, datasheet, strict=True):
        law = one.fit.law
        of = [f"{100 * one.best_busbw / rate:.3g} %" if rate else ""] if any(datasheet) else []
        rows.append(
            (
                _named(one), one.kind.value, str(one.ranks), one.log.dtype, str(len(one.points)),
                format_seconds(law.t0_s), f"{law.c * 1e9:.3g} ns", format_rate(law.bandwidth),
                format_binary(round(law.half_bandwidth_bytes / one.factor)), format_rate(one.best_busbw), *of,
                _percent(one.fit.median, one.fit.p90), _percent(one.fit.left_out_median, one.fit.left_out_p90),
                _percent(*(one.lines or (None, None))),
            )
        )  # fmt: skip
    tables = [Table("Fitted: t = t0 + c sqrt(x) + x/B on bus bytes x; errors are median/p90", columns, tuple(rows))]
    dropped = [
        (_named(one), format_bytes(size), format_seconds(time), reason)
        for one in sweeps
        for (size, time), reason in one.dropped
    ]
    if dropped:
        told = (Column("log"), Column("payload bytes", True), Column("time", True), Column("why"))
        tables.append(Table("Dropped rows", told, tuple(dropped)))
    return tables


def _named(one: Calibrated) -> str:
    """The log without its folder."""
    return os.path.basename(one.log.source)


def _percent(median: float | None, p90: float | None) -> str:
    return "" if median is None or p90 is None else f"{100 * median:.2g} %/{100 * p90:.2g} %"


def explained(one: Calibrated) -> list[str]:
    """Each number of a fit with the values put into it, at the largest size."""
    law, (size, time) = one.fit.law, one.points[-1]
    bus = one.factor * size
    said = law.seconds(bus)
    terms = [format_seconds(term) for term in (law.t0_s, law.ramp(bus), bus / law.bandwidth)]
    formula = f"{terms[0]} + {law.c * 1e9:.4g} ns * sqrt(x) + x / {format_rate(law.bandwidth)}"
    return [
        f"{_named(one)}: {one.kind} over {one.ranks}",
        f"  x = {one.factor:.6g} * payload, as nccl-tests counts bus bytes",
        f"  at {format_bytes(size)} B: x = {bus:.10g}, t = {formula} = {' + '.join(terms)} = {format_seconds(said)}; "
        f"measured {format_seconds(time)}",
    ]


def plot(one: Calibrated) -> str:
    """Time over payload, both in doublings: ``o`` measured, ``-`` the fitted law, ``*`` both."""
    sizes = [math.log2(size) for size, _ in one.points]
    low, high = sizes[0], max(sizes[-1], sizes[0] + 1e-9)
    curve = [low + (high - low) * at / (_WIDE - 1) for at in range(_WIDE)]
    fitted = [math.log2(max(one.fit.law.seconds(one.factor * 2**x), 1e-12)) for x in curve]
    times = [math.log2(time) for _, time in one.points]
    bottom, top = min(*fitted, *times), max(*fitted, *times)
    grid = [[" "] * _WIDE for _ in range(_HIGH)]

    def row(time: float) -> int:
        return round((top - time) / ((top - bottom) or 1.0) * (_HIGH - 1))

    for at, time in enumerate(fitted):
        grid[row(time)][at] = "-"
    for size, time in zip(sizes, times, strict=True):
        at = round((size - low) / (high - low) * (_WIDE - 1))
        grid[row(time)][at] = "*" if grid[row(time)][at] in "-*" else "o"
    marks = {0: format_seconds(2**top), _HIGH - 1: format_seconds(2**bottom)}
    lines = [f"{marks.get(at, ''):>9} |{''.join(cells).rstrip()}" for at, cells in enumerate(grid)]
    first, last = format_binary(one.points[0][0]), format_binary(one.points[-1][0])
    lines.append(f"{'':9} +{'-' * _WIDE}")
    lines.append(f"{'':11}{first}{last:>{_WIDE - len(first)}}")
    title = f"{_named(one)}: {one.kind} over {one.ranks}; o measured, - fitted, * both"
    return "\n".join([title, *lines]) + "\n"


def compared_records(one: Calibrated, found: Sequence[Compared], tolerance: float) -> list[dict[str, object]]:
    """One record for each size."""
    return [
        {
            "source": one.log.source,
            "collective": one.kind,
            "ranks": one.ranks,
            "payload_bytes": each.payload_bytes,
            "measured_s": each.measured_s,
            "predicted_s": float(each.predicted.cost.time_s),
            "rel_error": each.error,
            "algorithm": each.predicted.cost.algorithm,
            **evidence_record(each.predicted.cost),
            "passed": abs(each.error) <= tolerance,
        }
        for each in found
    ]


def compared_document(
    name: str, pairs: Sequence[tuple[Calibrated, Sequence[Compared]]], tolerance: float
) -> dict[str, object]:
    """The document of ``commcalc calibrate --compare``."""
    sizes = [record for one, found in pairs for record in compared_records(one, found, tolerance)]
    return {
        "schema": "commcalc/calibrate-compare/1",
        "version": __version__,
        "hardware": name,
        "tolerance": tolerance,
        "passed": all(record["passed"] for record in sizes),
        "sizes": sizes,
    }


def compared_tables(pairs: Sequence[tuple[Calibrated, Sequence[Compared]]], tolerance: float) -> list[Table]:
    """Every size of every log, and how far the machine is from it."""
    columns = (
        Column("payload bytes", True), Column("measured", True), Column("predicted", True), Column("off by", True),
        Column("algorithm"), Column("confidence"), Column("verdict"),
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for one, found in pairs:
        rows.append((f"{_named(one)}: {one.kind} over {one.ranks}",))
        rows += [
            (
                format_bytes(each.payload_bytes), format_seconds(each.measured_s),
                format_seconds(float(each.predicted.cost.time_s)), f"{round(100 * each.error, 3):+.3g} %",
                each.predicted.cost.algorithm.value, each.predicted.cost.confidence,
                "passed" if abs(each.error) <= tolerance else "BEYOND",
            )
            for each in found
        ]  # fmt: skip
    return [Table(f"Predicted against measured, tolerance {100 * tolerance:.3g} %", columns, tuple(rows))]
