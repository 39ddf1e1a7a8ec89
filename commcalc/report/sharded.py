"""Sharded computations as documents and as tables: ``shard``, ``matmul``, ``reshard``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from commcalc import __version__
from commcalc.accounting.links import evidence_record, explain_time, explain_wire
from commcalc.accounting.products import Answer, Bill, Cut, Local, Stage
from commcalc.accounting.resharding import Resharding
from commcalc.algebra.mesh import Mesh
from commcalc.algebra.notation import format_spec, format_tensor
from commcalc.algebra.problem import Problem
from commcalc.algebra.sharding import Sharding
from commcalc.report.table import Column, Table
from commcalc.units import Dtype, format_bytes, format_seconds

Writer = Callable[[str, Sharding], str]


class Style(NamedTuple):
    """How tensors are written, and whether every number is derived beside it."""

    specs: bool = False
    explain: bool = False

    def writer(self, mesh: Mesh) -> Writer:
        """``A[I_X, J]``, or ``A: P('X', None)``."""
        if self.specs:
            return lambda name, sharding: f"{name}: {format_spec(_labelled(sharding, mesh))}"
        return lambda name, sharding: format_tensor(name, sharding, mesh)


def _labelled(sharding: Sharding, mesh: Mesh) -> Sharding:
    split = tuple(mesh.label(axes) for axes in sharding.split)
    return Sharding(sharding.dims, split, mesh.label(sharding.unreduced))


def question(problem: Problem, dtype: Dtype) -> dict[str, object]:
    """What was asked: expression, mesh, sizes, and what was done to it."""
    return {
        "expression": problem.expression.text,
        "mesh": dict(problem.given.axes),
        "dims": dict(problem.sizes),
        "dtype": dtype,
        "padding": {dim: {"from": old, "to": new} for dim, (old, new) in problem.padding.items()},
        "sub_axes": {name: list(parts) for name, parts in problem.mesh.parts} if problem.sub_axes else None,
        "notes": list(problem.notes),
    }


class Block(NamedTuple):
    """How one tensor lies: the answer of ``shard``."""

    name: str
    sharding: Sharding
    global_shape: tuple[int, ...]
    local_shape: tuple[int, ...]
    bytes_per_device: int
    shards: int
    replicas: int
    total_bytes: int
    mesh: Mesh

    @property
    def state(self) -> str:
        """``partial``, ``sharded`` or ``replicated``; axes of size 1 split nothing."""
        terms = self.mesh.size(self.sharding.unreduced)
        return "partial" if terms > 1 else "sharded" if self.shards > 1 else "replicated"

    def record(self) -> dict[str, object]:
        """The fields of the JSON document."""
        return {
            "tensor": format_tensor(self.name, self.sharding, self.mesh),
            "partition_spec": format_spec(self.sharding),
            "state": self.state,
            "global_shape": list(self.global_shape),
            "local_shape": list(self.local_shape),
            "bytes_per_device": self.bytes_per_device,
            "shards": self.shards,
            "replicas": self.replicas,
            "total_bytes": self.total_bytes,
        }


def shard_document(block: Block, problem: Problem, dtype: Dtype, explain: Sequence[str]) -> dict[str, object]:
    """The document of ``commcalc shard --json``."""
    found = {"schema": "commcalc/shard/1", "version": __version__, **question(problem, dtype), **block.record()}
    return found | {"explain": list(explain)} if explain else found


def shard_tables(block: Block) -> list[Table]:
    """One line a fact."""
    shape = " x ".join(str(size) for size in block.local_shape) or "1"
    whole = " x ".join(str(size) for size in block.global_shape) or "1"
    rows = (
        ("global shape", whole),
        ("local shape", shape),
        ("bytes per device", format_bytes(block.bytes_per_device)),
        ("different shards", format_bytes(block.shards)),
        ("replicas of each", format_bytes(block.replicas)),
        ("bytes over all devices", format_bytes(block.total_bytes)),
        ("state", block.state),
        ("PartitionSpec", format_spec(block.sharding)),
    )
    return [Table(format_tensor(block.name, block.sharding, block.mesh), (Column("fact"), Column("value", True)), rows)]


def step_record(bill: Bill, problem: Problem, style: Style) -> dict[str, object]:
    """One collective with the fields of INTERFACE, and more."""
    written = style.writer(problem.mesh)
    cost = bill.priced.cost if bill.priced else None
    found: dict[str, object] = {
        "collective": bill.step.kind,
        "axes": list(problem.mesh.label(bill.step.axes)),
        "group_size": bill.group_size,
        "tensor": bill.tensor,
        "before": written(bill.tensor, bill.step.before),
        "after": written(bill.tensor, bill.step.after),
        "strided_over": list(problem.mesh.label(bill.strided)),
        "payload_bytes": bill.payload_bytes,
        "wire_bytes": bill.wire_bytes,
        "time_s": bill.time_s,
        "algorithm": cost.algorithm if cost else None,
        "level": bill.priced.level if bill.priced else None,
        "bound": bill.bound,
        **evidence_record(cost),
        "formula": bill.payload.text(),
    }
    return found


def slice_records(slices: Sequence[Cut], problem: Problem, style: Style) -> list[dict[str, object]]:
    """The free slices."""
    written = style.writer(problem.mesh)
    return [
        {
            "tensor": cut.tensor,
            "before": written(cut.tensor, cut.before),
            "after": written(cut.tensor, cut.after),
            "strided": cut.strided,
        }
        for cut in slices
    ]


def explain_bill(bill: Bill, answer: Answer | Resharding) -> list[str]:
    """Lines that derive payload, wire bytes and time of one collective."""
    problem, fabric = answer.problem, answer.pricing.fabric
    values = bill.payload.with_values(problem.values())
    tail = f"; {bill.bound} bound"
    return [
        f"payload = {bill.payload.text()} = {values} = {format_bytes(bill.payload_bytes)} B",
        explain_wire(bill.step.kind, bill.group_size, bill.payload_bytes, bill.wire_bytes, fabric.convention),
        *explain_time(bill.priced, bill.group_size, bill.payload_bytes, tail),
    ]


def seconds_cell(time: float | None) -> str:
    """A time in a table; empty where there is none."""
    return "" if time is None else format_seconds(time)


def steps_table(
    title: str, listed: Sequence[tuple[str, Sequence[Stage]]], answer: Answer | Resharding, style: Style
) -> Table:
    """Every stage in the order it runs, under the name of what it belongs to."""
    timed = answer.pricing.fabric.network is not None
    columns = [
        Column("before"),
        Column("step"),
        Column("over"),
        Column("after"),
        Column("payload bytes", True),
        Column("wire bytes", True),
    ]
    if timed:
        columns += [Column("time", True), Column("bound")]
    rows: list[tuple[str, ...]] = []
    for name, stages in listed:
        rows.append((name,))
        for stage in stages:
            cells = (*_cells(stage, answer.problem, style), *([""] * 2 if timed else []))
            if timed and isinstance(stage, Bill):
                cells = (*cells[:-2], seconds_cell(stage.time_s), stage.bound or "")
            rows.append(cells)
        if not any(isinstance(stage, Bill) for stage in stages):
            rows.append(("  no communication", *[""] * (len(columns) - 1)))
    return Table(title, tuple(columns), tuple(rows))


def _cells(stage: Stage, problem: Problem, style: Style) -> tuple[str, ...]:
    """Before, step, axes, after, payload and wire bytes."""
    written = style.writer(problem.mesh)
    if isinstance(stage, Local):
        operands = f"{written(*stage.left)} @ {written(*stage.right)}"
        return (f"  {operands}", "multiply", "", written(*stage.out), "", "")
    if isinstance(stage, Cut):
        return (
            f"  {written(stage.tensor, stage.before)}",
            "strided slice" if stage.strided else "slice",
            "",
            written(stage.tensor, stage.after),
            "",
            "0",
        )
    return (
        f"  {written(stage.tensor, stage.step.before)}",
        stage.step.kind.value,
        f"{','.join(problem.mesh.label(stage.step.axes))} {stage.group_size}",
        written(stage.tensor, stage.step.after),
        format_bytes(stage.payload_bytes),
        format_bytes(stage.wire_bytes),
    )


def told_of(problem: Problem) -> list[str]:
    """What was done to the question: padding, axes left out."""
    padded = [f"{dim} is padded from {old} to {new}" for dim, (old, new) in problem.padding.items()]
    parts = [f"axis {name} is {' x '.join(parts)}, the slowest first" for name, parts in problem.mesh.parts]
    return [*padded, *problem.notes, *(parts if problem.sub_axes else [])]
