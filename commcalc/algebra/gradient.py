"""The backward pass of a plan: the gradients of all inputs, each as its input lies, from that of the result.

    The gradient of an operand is split as the operand was in the product, and is a pending sum over every axis along
    which the other operand differs and this one does not.

It is brought to where its tensor lay before the product by the cheapest way, which is the transpose of the way in: an
AllGather comes back as a ReduceScatter where the gradient is a pending sum, a ReduceScatter as an AllGather, an
AllReduce as nothing, a slice as an AllGather. Gathered operands are kept for the backward pass, not gathered again.
Sources: the rule is that of `derive`; jax.vjp of shard_map programs (tests/data/jax_cases.json).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from commcalc.algebra.planner import Chain, Moved, Multiply, Plan
from commcalc.algebra.search import Prices, forward
from commcalc.algebra.states import CostOf, State, graph_of
from commcalc.errors import ShardingError


class Gradient(NamedTuple):
    """Moves of the backward pass in order, and its FLOPs on one device: two products for each of the forward pass."""

    moves: tuple[Moved, ...]
    flops: int


def gradient(chain: Chain, plan: Plan, cost: CostOf) -> Gradient:
    """The backward pass of ``plan``, given the gradient of its result as that lies."""
    prices = Prices(chain.bits, cost)

    def bring(name: str, dims: Sequence[str], now: State, wanted: State) -> list[Moved]:
        dims = tuple(dims)
        graph = graph_of(tuple(chain.sizes[dim] for dim in dims), tuple(chain.axes.items()), tuple(chain.axes))
        table = forward(graph, {now: 0}, prices)
        if wanted not in table.keys:
            raise ShardingError(f"the gradient of {name.removeprefix('d')} cannot be brought to where {name[1:]} lies")
        return [Moved(name, dims, move) for move in table.path(wanted)]

    moves: list[Moved] = []
    flops = 0
    now = State(plan.final.split)
    for event in reversed(plan.events):
        if not isinstance(event, Multiply):
            continue
        product = chain.products[event.at]
        whole = State(event.out.split)  # what every term of a pending sum gets
        moves += bring(f"d{product.name}", product.out, now, whole)
        right = product.right
        theirs = State(event.right.split, _pending(event.left, event.right))
        moves += bring(f"d{right.name}", right.dims, theirs, State(right.state.split))
        now = State(event.left.split, _pending(event.right, event.left))
        flops += 2 * event.flops
    return Gradient(
        (*moves, *bring(f"d{chain.first.name}", chain.first.dims, now, State(chain.first.state.split))), flops
    )


def _pending(other: State, mine: State) -> tuple[str, ...]:
    """The axes along which ``other`` differs from device to device and ``mine`` does not."""

    def varying(state: State) -> set[str]:
        return {axis for axes in state.split for axis in axes} | set(state.pending)

    return tuple(sorted(varying(other) - varying(mine)))
