"""What was solved for, as a document and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from commcalc import __version__
from commcalc.accounting.solve import Point
from commcalc.report.table import Column, Table
from commcalc.transformer.work import Workload
from commcalc.units import format_bytes, format_rate, format_seconds

SCHEMA = "commcalc/solve/1"


def point_record(point: Point, work: Workload) -> dict[str, object]:
    """One candidate; times are null where it is not legal."""
    parallel = point.parallel
    return {
        "tp": parallel.tp,
        "cp": parallel.cp,
        "dp": parallel.dp,
        "pp": parallel.pp,
        "micro_batch": point.micro_batch,
        "tokens_per_device": point.tokens_per_device(work),
        "legal": point.legal,
        "reason": point.reason,
        "compute_s": point.compute_s if point.legal else None,
        "comm_s": point.comm_s if point.legal else None,
        "ratio": point.ratio,
        "passes": {name: {"compute_s": compute, "comm_s": comm} for name, compute, comm in point.passes},
        "total_bytes": point.total_bytes,
        "fits": point.fits,
        "compute_bound": point.compute_bound if point.legal else None,
    }


def document(
    what: str,
    answer: Mapping[str, object] | None,
    points: Sequence[Mapping[str, object]],
    inputs: Mapping[str, object],
    assumptions: Sequence[str],
) -> dict[str, object]:
    """The document of ``commcalc solve --json``; ``answer`` is null where there is none."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "what": what,
        "inputs": dict(inputs),
        "assumptions": list(assumptions),
        "answer": answer,
        "points": list(points),
    }


def points_table(points: Sequence[Point], work: Workload, *, any_batch: bool = False) -> Table:
    """A line for each candidate, with what it is bound by; ``any_batch``: a larger one would not help."""
    other = ", whatever the batch" if any_batch else ""
    columns = (
        Column("tp", True), Column("dp", True), Column("micro-batch", True), Column("tokens/device", True),
        Column("compute", True), Column("communication", True), Column("most of a pass", True), Column("bound by"),
        Column("fits"),
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for point in points:
        start = (str(point.parallel.tp), str(point.parallel.dp))
        if not point.legal:
            rows.append((*start, "", "", "", "", "", f"not legal: {point.reason}"))
            continue
        ratio = "" if point.ratio is None else f"{point.ratio:.3g}"
        bound = "compute" if point.compute_bound else f"communication{other}"
        rows.append(
            (
                *start,
                format_bytes(point.micro_batch),
                f"{point.tokens_per_device(work):,.6g}",
                format_seconds(point.compute_s),
                format_seconds(point.comm_s),
                ratio,
                bound,
                "" if point.fits is None else "yes" if point.fits else "no",
            )
        )
    return Table("Candidates", columns, tuple(rows))


def bandwidth_table(record: Mapping[str, object]) -> Table:
    """Bytes, time, and the rate that they come to."""
    rows = (
        ("calls", format_bytes(int(str(record["calls"])))),
        ("payload bytes", format_bytes(int(str(record["payload_bytes"])))),
        ("wire bytes", format_bytes(int(str(record["wire_bytes"])))),
        ("time", format_seconds(float(str(record["time_s"])))),
        ("bandwidth", format_rate(float(str(record["bandwidth_bytes_per_s"])))),
    )
    return Table("Bandwidth that the time implies", (Column("of one device"), Column("value", True)), rows)
