"""``commcalc calibrate --plan`` as a document, as tables to fill in, and as command lines of nccl-tests."""

from __future__ import annotations

from commcalc import __version__
from commcalc.accounting.acceptance import DEALT, Measurement, Pass, Plan
from commcalc.accounting.links import evidence_record
from commcalc.algebra.collective import Kind
from commcalc.report.table import Column, Table
from commcalc.transformer.spec import Phase
from commcalc.units import Dtype, format_binary, format_bytes, format_rate, format_seconds

SCHEMA = "commcalc/acceptance/1"
_BINARIES = {
    Kind.ALL_REDUCE: "all_reduce_perf", Kind.ALL_GATHER: "all_gather_perf", Kind.REDUCE_SCATTER: "reduce_scatter_perf",
    Kind.ALL_TO_ALL: "alltoall_perf", Kind.SEND_RECV: "sendrecv_perf", Kind.PERMUTE: "sendrecv_perf",
    Kind.BROADCAST: "broadcast_perf",
}  # fmt: skip
# Source: nccl-tests src/common.cu, test_typenames. Types that it does not have are as wide as bytes.
_TYPES = {
    Dtype.FP64: "double", Dtype.FP32: "float", Dtype.FP16: "half", Dtype.BF16: "bfloat16", Dtype.FP8: "f8e4m3",
    Dtype.INT8: "int8",
}  # fmt: skip
# The last size of a start-up line.
_SMALL = 64 * 1024
_BLANK = {"startup_latency_s": None, "measured_busbw_bytes_per_s": None, "async_progress": None, "gemm_overlap": None}


def plan_document(plan: Plan) -> dict[str, object]:
    """The document of ``commcalc calibrate --plan JOB --json``."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "inputs": _inputs(plan),
        "passes": [_pass_record(one) for one in plan.passes],
        "measurements": plan_records(plan),
        "note": plan.note,
        "assumptions": list(plan.assumptions),
        "warnings": [{"code": warning.code, "message": warning.message} for warning in plan.warnings],
    }


def _inputs(plan: Plan) -> dict[str, object]:
    work, parallel = plan.ledger.work, plan.ledger.parallel
    return {
        "model": plan.ledger.model.name,
        "hardware": plan.machine,
        "phase": work.phase,
        "layout": parallel.layout,
        **{axis: getattr(parallel, axis) for axis in parallel.order},
        "order": "-".join(parallel.order),
        "tokens": work.tokens,
        "hidden_size": plan.ledger.sizes["D"],
        "dtype": work.dtype,
    }


def _pass_record(one: Pass) -> dict[str, object]:
    return {
        "pass": one.direction,
        "dtype": one.dtype,
        "gemm_flops": one.gemm_flops,
        "gemm_s": one.gemm_s,
        "calls": one.calls,
        "bus_bytes": one.bus_bytes,
        "required_busbw_bytes_per_s": one.needed,
        "least_time_s": one.least_s,
        "expected_time_s": one.expected_s,
        "verdict": one.verdict,
    }


def plan_records(plan: Plan) -> list[dict[str, object]]:
    """One record for each measurement, with what is to be filled in as null."""
    return [_record(number, one, plan) for number, one in enumerate(plan.measurements, 1)]


def _record(number: int, one: Measurement, plan: Plan) -> dict[str, object]:
    rates = one.rates
    cost = rates.priced.cost if rates else None
    return {
        "number": number,
        "collective": one.kind,
        "group": one.group,
        "group_size": one.group_size,
        "group_stride": one.stride,
        "level": rates.priced.level if rates else None,
        "dtype": one.dtype,
        "nccl_type": _TYPES.get(one.dtype, "uint8"),
        "payload_bytes": one.payload_bytes,
        "operations": list(one.ops),
        "calls_forward": one.calls.get("forward", 0),
        "calls_backward": one.calls.get("backward", 0),
        "calls_microbatch": one.others.get("microbatch", 0),
        "calls_step": one.others.get("step", 0),
        "required_busbw_forward_bytes_per_s": one.needed.get("forward"),
        "required_busbw_backward_bytes_per_s": one.needed.get("backward"),
        "required_busbw_bytes_per_s": one.hardest,
        "datasheet_bytes_per_s": rates.datasheet if rates else None,
        "bound_busbw_bytes_per_s": rates.bound if rates else None,
        "share_of_datasheet": one.share,
        "reachable": one.reachable,
        "expected_time_s": float(cost.time_s) if cost else None,
        "expected_busbw_bytes_per_s": one.expected_busbw,
        "algorithm": cost.algorithm if cost else None,
        **evidence_record(cost),
        "command": command(one, plan),
        "startup_command": startup_command(one, plan),
        **_BLANK,
    }


def plan_heading(plan: Plan) -> str:
    """What was asked, and that there is nothing to measure where that is so."""
    inputs = _inputs(plan)
    degrees = [f"{axis} {inputs[axis]}" for axis in plan.ledger.parallel.order if inputs[axis] != 1]
    return (
        f"{inputs['model']} on {plan.machine or 'no hardware'}: {inputs['phase']}, {inputs['layout']}, "
        f"{', '.join(degrees) or 'one device'}\n"
        f"what to measure for {inputs['tokens']} tokens x {inputs['hidden_size']} hidden, in bf16 and fp8 buffers\n"
        + (f"{plan.note}\n" if plan.note else "")
    )


def plan_tables(plan: Plan) -> list[Table]:
    """What a pass needs, what to measure, and the fields to fill in; none where nothing is to be measured."""
    if not plan.measurements:
        return []
    numbered = [(str(number), one) for number, one in enumerate(plan.measurements, 1)]
    blank = (
        Column("#", True), Column("collective"), Column("type"), Column("payload bytes", True),
        Column("start-up latency", True), Column("measured busbw", True), Column("async progress", True),
        Column("GEMM overlap", True),
    )  # fmt: skip
    rows = tuple((number, *_named(one)[::2], format_bytes(one.payload_bytes), *[""] * 4) for number, one in numbered)
    measured = Table("To measure", _COLUMNS, tuple((number, *_cells(one)) for number, one in numbered))
    return [*([_passes_table(plan)] if plan.passes else []), measured, Table("To fill in", blank, rows)]


def _passes_table(plan: Plan) -> Table:
    columns = (
        Column("pass"), Column("buffers"), Column("GEMM FLOPs", True), Column("GEMM time", True),
        Column("calls", True), Column("bus bytes", True), Column("busbw needed", True), Column("expected", True),
        Column("by the preset"),
    )  # fmt: skip
    rows = tuple(
        (
            one.direction, one.dtype.value, format_bytes(one.gemm_flops), _seconds(one.gemm_s), str(one.calls),
            format_bytes(one.bus_bytes), _rate(one.needed), _seconds(one.expected_s), one.verdict or "",
        )
        for one in plan.passes
    )  # fmt: skip
    return Table("To stay hidden: the collectives of a block within the GEMMs of the same pass", columns, rows)


_COLUMNS = (
    Column("#", True), Column("collective"), Column("group"), Column("type"), Column("payload bytes", True),
    Column("payload", True), Column("calls"), Column("busbw needed", True), Column("of datasheet", True),
    Column("reachable"), Column("expected busbw", True), Column("time", True), Column("level"), Column("confidence"),
)  # fmt: skip


def _named(one: Measurement) -> tuple[str, str, str]:
    return one.kind.value, f"{one.group} {one.group_size}", _TYPES.get(one.dtype, "uint8")


def _cells(one: Measurement) -> tuple[str, ...]:
    calls = [f"{count} {name}" for name, count in one.calls.items()]
    calls += [f"{count} a {name}" for name, count in one.others.items()]
    return (
        *_named(one), format_bytes(one.payload_bytes), format_binary(one.payload_bytes), ", ".join(calls),
        _rate(one.hardest), "" if one.share is None else f"{100 * one.share:.3g} %",
        {True: "yes", False: "no", None: ""}[one.reachable], _rate(one.expected_busbw),
        _seconds(float(one.rates.priced.cost.time_s) if one.rates else None),
        one.rates.priced.level if one.rates else "", one.rates.priced.cost.confidence if one.rates else "",
    )  # fmt: skip


def _rate(value: float | None) -> str:
    return "" if value is None else format_rate(value)


def _seconds(value: float | None) -> str:
    return "" if value is None else format_seconds(value)


def plan_commands(plan: Plan) -> str:
    """The command lines under the numbers of the measurements, as a block of code; each start-up line once."""
    lines = []
    startup: dict[str, list[str]] = {}
    for number, one in enumerate(plan.measurements, 1):
        lines += [f"# {number}: {', '.join(one.ops)}", command(one, plan)]
        startup.setdefault(startup_command(one, plan), []).append(str(number))
    for line, numbers in startup.items():
        lines += [f"# start-up latency of {', '.join(numbers)}", line]
    return "Commands\n\n" + "".join(f"    {line}\n" for line in lines) if lines else ""


def command(one: Measurement, plan: Plan) -> str:
    """One line of nccl-tests at the payload itself."""
    return _line(one, plan, f"-b {one.payload_bytes} -e {one.payload_bytes}", "-n 20 -w 5")


def startup_command(one: Measurement, plan: Plan) -> str:
    """One line over the smallest sizes; where parts of 16 bytes are dealt out, from one such part for each rank."""
    least = 16 * one.group_size if one.kind in DEALT else 8
    return _line(one, plan, f"-b {least} -e {max(_SMALL, least)}", "-n 100 -w 20")


def _line(one: Measurement, plan: Plan, sizes: str, times: str) -> str:
    split = f' -x NCCL_TESTS_SPLIT="MOD {one.stride}"' if one.stride > 1 else ""
    hosts = " --hostfile hosts" if one.crosses else ""
    graph = " -G 10" if plan.ledger.work.phase is Phase.DECODE else ""
    return (
        f"mpirun -np {one.group_size * one.stride}{hosts}{split} ./build/{_BINARIES[one.kind]} {sizes} -f 2 "
        f"-d {_TYPES.get(one.dtype, 'uint8')} -t 1 -g 1 {times} -c 1{graph}"
    )
