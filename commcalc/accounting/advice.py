"""What to do about it: shardings without communication, sums better left scattered, primitives by their cost.

Source: the order of choice of the scaling book's part 3: no sharded contraction, no communication; where one is forced,
an AllToAll before a ReduceScatter or AllGather before an AllReduce; keep the result scattered where the next use can.
"""

from __future__ import annotations

from typing import NamedTuple

from commcalc.accounting.products import Answer, Strategy
from commcalc.algebra.collective import Kind
from commcalc.algebra.notation import format_tensor
from commcalc.algebra.sharding import Sharding
from commcalc.algebra.states import Graph, State, graph_of, state_of


class Advice(NamedTuple):
    """One piece of advice: a code and a sentence."""

    code: str
    message: str


class Primitive(NamedTuple):
    """What one collective on the result costs: payload and wire bytes of one device, seconds where priced."""

    kind: Kind
    payload_bytes: int
    wire_bytes: int
    time_s: float | None


def advice(answer: Answer) -> list[Advice]:
    """All that applies."""
    if not answer.best.steps:
        return []
    found = [_silent(answer), _scattered(answer)]
    return [one for one in found if one is not None]


def _silent(answer: Answer) -> Advice | None:
    """Input shardings with which the same result needs no communication: those of the fewest bytes on a device."""
    problem, planner = answer.problem, answer.found.planner
    chain = planner.chain
    if len(chain.products) != 1:
        return None
    product = chain.products[0]
    wanted = problem.state(problem.expression.output) if problem.expression.output is not None else None
    left_graph, right_graph = planner.tensors[0][2], _graph_of(answer)
    best: tuple[int, int] | None = None
    chosen: tuple[State, State] | None = None
    for link in planner.joints[0]:
        if link.out.pending or link.right is None or not _free(link.out, wanted):
            continue
        elements = left_graph.elements(link.left) + right_graph.elements(link.right)
        moved = (link.left != chain.first.state) + (link.right != product.right.state)
        if best is None or (elements, moved) < best:
            best, chosen = (elements, moved), (link.left, link.right)
    if best is None or chosen is None or chosen == (chain.first.state, product.right.state):
        return None
    left = format_tensor(chain.first.name, problem.sharding(product.left, chosen[0]), problem.mesh)
    right = format_tensor(product.right.name, problem.sharding(product.right.dims, chosen[1]), problem.mesh)
    held = best[0] * problem.bits
    return Advice(
        "no-communication",
        f"stored as {left} and {right} this product needs no communication ({-(-held // 8):,} B of inputs a device)",
    )


def _graph_of(answer: Answer) -> Graph:
    """The graph of the right operand of the only product."""
    chain = answer.found.planner.chain
    sizes = tuple(chain.sizes[dim] for dim in chain.products[0].right.dims)
    return graph_of(sizes, tuple(chain.axes.items()))


def _free(made: State, wanted: State | None) -> bool:
    """Whether ``wanted`` is a slice of what is made."""
    if wanted is None:
        return True
    pairs = zip(made.split, wanted.split, strict=True)
    return not wanted.pending and all(now == then[: len(now)] for now, then in pairs)


def _scattered(answer: Answer) -> Advice | None:
    """Half the bytes for a result that stays scattered."""
    best, problem = answer.best, answer.problem
    last = best.steps[-1]
    if last.step.kind is not Kind.ALL_REDUCE or last.tensor != answer.found.planner.chain.products[-1].name:
        return None
    graph = answer.found.planner.tensors[-1][2]
    source = state_of(last.step.before)
    moves = [
        move for move in graph.moves(source)
        if move.kind is Kind.REDUCE_SCATTER and move.axes == last.step.axes and not move.sliced
    ]  # fmt: skip
    if not moves:
        return None
    into = [
        format_tensor(last.tensor, problem.sharding(last.step.before.dims, move.target), problem.mesh) for move in moves
    ]
    spared = last.wire_bytes - answer.pricing.fabric.wire_bytes(Kind.REDUCE_SCATTER, last.step.axes, last.payload_bytes)
    message = (
        f"where the next use takes it scattered, as {' or '.join(into)}, a ReduceScatter ends the sum with "
        f"{spared:,} B less than the AllReduce, and each device keeps 1/{last.group_size}"
    )
    return Advice("keep-scattered", message)


def primitives(answer: Answer) -> list[Primitive]:
    """The four primitives on the result over the axes of the first step, cheapest first; others keep their split."""
    best: Strategy = answer.best
    if not best.steps:
        return []
    axes = best.steps[0].step.axes
    n = best.steps[0].group_size
    problem = answer.problem
    rest = Sharding(best.output.dims, tuple(tuple(a for a in split if a not in axes) for split in best.output.split))
    whole = int(rest.local_size(problem.bits).value(problem.values()))
    fabric = answer.pricing.fabric
    found = []
    for kind in (Kind.ALL_TO_ALL, Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.ALL_REDUCE):
        payload = -(-whole // n) if kind is Kind.ALL_TO_ALL else whole
        priced = fabric.priced(kind, axes, payload)
        time = float(priced.cost.time_s) if priced else None
        found.append(Primitive(kind, payload, fabric.wire_bytes(kind, axes, payload), time))
    return sorted(found, key=lambda one: one.wire_bytes if one.time_s is None else one.time_s)
