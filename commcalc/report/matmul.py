"""``commcalc matmul`` as a document, as tables and as sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from commcalc import __version__
from commcalc.accounting.advice import Advice, Primitive
from commcalc.accounting.products import Answer, Bill, Cut, Objective, Overlap, Strategy, evened
from commcalc.accounting.turning_points import Balance, Flip
from commcalc.algebra.collective import Kind
from commcalc.algebra.planner import Moved, Plan
from commcalc.algebra.problem import Problem
from commcalc.network.cost import added
from commcalc.report.sharded import (
    Style,
    explain_bill,
    question,
    seconds_cell,
    slice_records,
    step_record,
    steps_table,
    told_of,
)
from commcalc.report.table import Column, Table
from commcalc.units import Dtype, format_bytes, format_seconds


def _flops_text(one: Strategy, answer: Answer) -> str:
    chain = answer.problem.chain()
    parts = []
    for at in range(len(chain.products)):
        dims = chain.dims(at)
        parts.append("2*" + "*".join(dims) + " = 2*" + "*".join(str(chain.sizes[dim]) for dim in dims))
    return f"FLOPs of one device = {one.flops:,}, of the whole {' and '.join(parts)}"


def strategy_record(one: Strategy, answer: Answer, style: Style) -> dict[str, object]:
    """One strategy with the fields of INTERFACE; times are null where no machine was given."""
    problem, times = answer.problem, one.times
    name = answer.found.planner.chain.products[-1].name
    record: dict[str, object] = {
        "name": one.name,
        "legal": True,
        "output": style.writer(problem.mesh)(name, one.output),
        "steps": [
            step_record(bill, problem, style) | ({"explain": explain_bill(bill, answer)} if style.explain else {})
            for bill in one.steps
        ],
        "slices": slice_records(one.slices, problem, style),
        "wire_bytes": one.wire_bytes,
        "comm_s": times.comm_s if times else None,
        "flops": one.flops,
        "compute_s": times.compute_s if times else None,
        "time_overlapped_s": times.overlapped_s if times else None,
        "time_serial_s": times.serial_s if times else None,
        "time_collective_matmul_s": times.blockwise_s if times else None,
        "peak_bytes": one.peak_bytes,
    }
    return record | ({"explain": [_flops_text(one, answer)]} if style.explain else {})


# What each collective comes back as; an AllReduce as nothing.
_BACK = {
    Kind.ALL_GATHER: Kind.REDUCE_SCATTER,
    Kind.REDUCE_SCATTER: Kind.ALL_GATHER,
    Kind.ALL_TO_ALL: Kind.ALL_TO_ALL,
    Kind.PERMUTE: Kind.PERMUTE,
}


class Told(NamedTuple):
    """All that is said beside the strategies of ``matmul``."""

    flips: Sequence[Flip]
    balances: Sequence[Balance]
    advice: Sequence[Advice]
    primitives: Sequence[Primitive]
    backward: Sequence[Bill | Cut] | None
    backward_flops: int
    dtype: Dtype
    assumptions: Sequence[str]

    @property
    def backward_steps(self) -> list[Bill]:
        """The collectives of the backward pass."""
        return [stage for stage in self.backward or () if isinstance(stage, Bill)]


def matmul_document(answer: Answer, told: Told, style: Style) -> dict[str, object]:
    """The document of ``commcalc matmul --json``."""
    problem = answer.problem
    cases = answer.found.cases
    every = [case.case for found in cases for case in found]
    best = answer.best
    document: dict[str, object] = {
        "schema": "commcalc/matmul/1",
        "version": __version__,
        **question(problem, told.dtype),
        "case": max(every, default=1),
        "cases": [{case.axis: case.case for case in found} for found in cases],
        "case_reasons": [{"axis": case.axis, "case": case.case, "why": case.why} for found in cases for case in found],
        "minimize": answer.pricing.objective,
        "overlap": answer.pricing.overlap,
        "strategies": [strategy_record(one, answer, style) for one in answer.strategies],
        "more_strategies": answer.untold,
        "best": best.name,
        "why": why(answer),
        "crossovers": [
            {
                "dim": flip.dim,
                "at": flip.at,
                "below": flip.below,
                "above": flip.above,
                "below_steps": plan_steps(problem, flip.below_plan, style),
                "above_steps": plan_steps(problem, flip.above_plan, style),
                "among": flip.among,
            }
            for flip in told.flips
        ],
        "compute_bound_above": {balance.dim: balance.at for balance in told.balances},
        "advice": [{"code": one.code, "message": one.message} for one in told.advice],
        "primitives": [
            {
                "collective": one.kind,
                "payload_bytes": one.payload_bytes,
                "wire_bytes": one.wire_bytes,
                "time_s": one.time_s,
            }
            for one in told.primitives
        ],
        "backward": [
            step_record(bill, problem, style) | {"transpose_of": transpose_of(bill, best)}
            for bill in told.backward_steps
        ],
        "assumptions": list(told.assumptions),
        "warnings": [],
    }
    if told.backward is not None:
        times = [bill.time_s for bill in told.backward_steps]
        document["gradient"] = {
            "wire_bytes": sum(bill.wire_bytes for bill in told.backward_steps),
            "comm_s": None if answer.pricing.fabric.network is None else added(time or 0.0 for time in times),
            "flops": told.backward_flops,
        }
    return document


def plan_steps(problem: Problem, plan: Plan, style: Style) -> list[str]:
    """The collectives of a plan that may not be among the listed strategies, one a line."""
    written = style.writer(problem.mesh)
    found = []
    for event in plan.events:
        if isinstance(event, Moved) and event.move.kind is not Kind.SLICE:
            before, after = (problem.sharding(event.dims, state) for state in (event.move.start, event.move.target))
            over = ",".join(problem.mesh.label(event.move.axes))
            found.append(
                f"{event.move.kind} over {over}: {written(event.name, before)} -> {written(event.name, after)}"
            )
    return found


def transpose_of(back: Bill, best: Strategy) -> str | None:
    """What of the forward pass this step of the backward pass carries back; None for one of its own."""
    name = back.tensor.removeprefix("d")
    for stage in best.stages:
        if isinstance(stage, Bill):
            axes, kind = set(stage.step.axes), _BACK.get(stage.step.kind)
            what: str = stage.step.kind
        elif isinstance(stage, Cut):
            axes, kind = set(stage.after.varying) - set(stage.before.varying), Kind.ALL_GATHER
            what = Kind.SLICE
        else:
            continue
        if stage.tensor == name and kind is back.step.kind and axes == set(back.step.axes):
            return f"{what} of {name}"
    return None


def why(answer: Answer) -> str:
    """One sentence: what the best has least of, against the next."""
    best, others = answer.best, answer.strategies[1:]
    if not best.steps:
        return "it needs no communication"
    if not others:
        return "it is the only strategy"
    other = others[0]
    if answer.pricing.objective is Objective.BYTES or best.times is None or other.times is None:
        if other.wire_bytes == best.wire_bytes:
            return f"it sends as few bytes as {other.name}, {_tie(best, other)}"
        return f"it sends {best.wire_bytes:,} B a device; {other.name}, the next, {other.wire_bytes:,} B"
    overlap = answer.pricing.overlap
    mine, yours = evened(best.times.under(overlap)), evened(other.times.under(overlap))
    if mine == yours:
        return f"it takes as long as {other.name}, {_tie(best, other)}"
    return f"it takes {format_seconds(mine)}; {other.name}, the next, {format_seconds(yours)}"


def _tie(best: Strategy, other: Strategy) -> str:
    if len(best.steps) < len(other.steps):
        return f"in {len(best.steps)} steps instead of {len(other.steps)}"
    return "and comes first by kind of collective or by name"


def matmul_tables(answer: Answer, told: Told, style: Style) -> list[Table]:
    """Strategies side by side, then the steps of each, then the backward pass and the primitives."""
    timed = answer.best.times is not None
    columns = [
        Column("#", True),
        Column("strategy"),
        Column("wire bytes", True),
        Column("FLOPs", True),
        Column("peak bytes", True),
    ]
    if timed:
        columns += [Column("comm", True), Column("compute", True), Column("serial", True), Column("overlapped", True)]
        if answer.pricing.overlap is Overlap.COLLECTIVE_MATMUL:
            columns.append(Column("block by block", True))
    rows = []
    for number, one in enumerate(answer.strategies, 1):
        cells = [
            str(number),
            one.name,
            format_bytes(one.wire_bytes),
            format_bytes(one.flops),
            format_bytes(one.peak_bytes),
        ]
        if one.times is not None:
            times = one.times
            cells += [
                seconds_cell(time) for time in (times.comm_s, times.compute_s, times.serial_s, times.overlapped_s)
            ]
            if answer.pricing.overlap is Overlap.COLLECTIVE_MATMUL:
                cells.append(seconds_cell(times.blockwise_s))
        rows.append(tuple(cells))
    title = "Strategies, best first"
    steps = [(f"{number} {one.name}", one.stages) for number, one in enumerate(answer.strategies, 1)]
    tables = [Table(title, tuple(columns), tuple(rows)), steps_table("Steps", steps, answer, style)]
    if told.backward is not None:
        tables.append(steps_table("Backward pass", [(f"of {answer.best.name}", told.backward)], answer, style))
    if told.primitives:
        rows = [
            (one.kind.value, format_bytes(one.payload_bytes), format_bytes(one.wire_bytes), seconds_cell(one.time_s))
            for one in told.primitives
        ]
        name = answer.found.planner.chain.products[-1].name
        columns = [
            Column("collective"),
            Column("payload bytes", True),
            Column("wire bytes", True),
            Column("time", True),
        ]
        shown = len(columns) if timed else 3
        tables.append(
            Table(f"What each would cost on {name}", tuple(columns[:shown]), tuple(tuple(row[:shown]) for row in rows))
        )
    return tables


def matmul_text(answer: Answer, told: Told) -> str:
    """The sentences above the tables: cases, the best and why, where it flips, advice."""
    lines = []
    products = answer.found.planner.chain.products
    for at, found in enumerate(answer.found.cases):
        of = f" of product {at + 1}" if len(products) > 1 else ""
        lines += [f"case {case.case}{of}: axis {case.axis}: {case.why}" for case in found]
        if not found:
            lines.append(f"case 1{of}: no operand is split")
    lines.append(f"best: {answer.best.name}: {why(answer)}")
    for flip in told.flips:
        among = "" if flip.among == "all" else " of those listed"
        lines.append(f"from {flip.dim} = {flip.at} on {flip.above} is best{among} instead of {flip.below}")
    lines += [f"bound by compute above {balance.dim} = {balance.at:.6g}" for balance in told.balances]
    lines += [one.message for one in told.advice]
    if answer.untold:
        lines.append(f"{answer.untold} more strategies are beaten in bytes, FLOPs and memory; --all lists them")
    for bill in told.backward_steps:
        back = transpose_of(bill, answer.best)
        if back is not None:
            lines.append(f"backward: the {bill.step.kind} of {bill.tensor} is the transpose of the {back}")
    lines += told_of(answer.problem)
    return "\n".join(lines) + "\n"


def matmul_explanation(answer: Answer, told: Told) -> str:
    """Every number of the listed strategies with its formula."""
    lines = []
    for one in answer.strategies:
        lines.append(one.name)
        for bill in one.steps:
            lines.append(f"  {bill.step.kind} of {bill.tensor}")
            lines += [f"    {line}" for line in explain_bill(bill, answer)]
        lines.append(f"  {_flops_text(one, answer)}")
        if one.times is not None and one.times.compute_s is not None and answer.pricing.peak:
            peak = answer.pricing.peak
            lines.append(f"  compute = {one.flops:,} / {peak:.6g} FLOP/s = {format_seconds(one.times.compute_s)}")
        lines.append(f"  peak bytes = inputs as stored and what is in use beside them = {one.peak_bytes:,} B")
    for bill in told.backward_steps:
        lines.append(f"backward: {bill.step.kind} of {bill.tensor}")
        lines += [f"    {line}" for line in explain_bill(bill, answer)]
    values = answer.problem.values()
    lines.append("n = ranks in the group; " + ", ".join(f"{name} = {size}" for name, size in values.items()))
    return "\n".join(lines) + "\n"
