"""From one sharding of a tensor to another: the cheapest sequence of collectives, and the ones not taken."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple

from commcalc.accounting.products import Bill, Cut, Objective, Pricing, moved
from commcalc.algebra.collective import Kind
from commcalc.algebra.notation import format_tensor
from commcalc.algebra.planner import Moved
from commcalc.algebra.problem import Problem
from commcalc.algebra.search import IMPOSSIBLE, Prices, forward, objective
from commcalc.algebra.states import Graph, Move, State, graph_of
from commcalc.errors import CommcalcError, ShardingError

# What the sequences that are shown beside the cheapest may not use.
_WITHOUT: tuple[tuple[str, tuple[Kind, ...]], ...] = (
    ("without-all-to-all", (Kind.ALL_TO_ALL,)),
    ("without-permute", (Kind.PERMUTE,)),
    ("without-all-reduce", (Kind.ALL_REDUCE,)),
    ("without-reduce-scatter", (Kind.REDUCE_SCATTER,)),
    ("without-all-gather", (Kind.ALL_GATHER,)),
    ("without-all-to-all-and-permute", (Kind.ALL_TO_ALL, Kind.PERMUTE)),
)


class Route(NamedTuple):
    """One sequence of collectives and free slices; ``key`` is how routes are compared."""

    name: str
    stages: tuple[Bill | Cut, ...]
    key: int

    @property
    def steps(self) -> tuple[Bill, ...]:
        """The collectives."""
        return tuple(stage for stage in self.stages if isinstance(stage, Bill))

    @property
    def slices(self) -> tuple[Cut, ...]:
        """The free slices."""
        return tuple(stage for stage in self.stages if isinstance(stage, Cut))

    @property
    def wire_bytes(self) -> int:
        """Bytes one device sends."""
        return sum(step.wire_bytes for step in self.steps)

    @property
    def comm_s(self) -> float | None:
        """Seconds; None where nothing is priced."""
        if any(step.time_s is None for step in self.steps):
            return None
        return sum(step.time_s or 0.0 for step in self.steps)


class Resharding(NamedTuple):
    """The cheapest route and the others, cheapest first."""

    problem: Problem
    pricing: Pricing
    best: Route
    alternatives: tuple[Route, ...]

    def lost(self, other: Route) -> str:
        """Why another route was not taken."""
        timed = self.pricing.objective is Objective.TIME
        mine, yours = (self.best.comm_s, other.comm_s) if timed else (self.best.wire_bytes, other.wire_bytes)
        if mine is not None and yours is not None and yours > mine:
            if isinstance(yours, int):
                return f"{yours - mine:,} B more"
            return f"{yours / mine:.4g} times as long" if mine else "it takes time, and the cheapest takes none"
        if len(other.steps) > len(self.best.steps):
            return f"as cheap, in {len(other.steps)} steps instead of {len(self.best.steps)}"
        return "as cheap; an AllReduce goes before a ReduceScatter or AllGather"


def reshardings(problem: Problem, pricing: Pricing) -> Resharding:
    """The routes from the first tensor of the expression through its stops to its output.

    `ShardingError` where there is none: nothing that is whole becomes a pending sum.
    """
    prices = Prices(problem.bits, pricing.cost)
    best = _route(problem, pricing, prices, "cheapest", ())
    if best is None:
        raise _no_way(problem, pricing)
    found: dict[tuple[Bill, ...], Route] = {best.steps: best}
    for name, kinds in _WITHOUT:
        other = _route(problem, pricing, prices, name, kinds)
        if other is not None:
            found.setdefault(other.steps, other)
    whole = _by_the_whole(problem, pricing, prices)
    if whole is not None:
        found.setdefault(whole.steps, whole)
    others = sorted((route for route in found.values() if route is not best), key=lambda one: (one.key, one.name))
    return Resharding(problem, pricing, best, tuple(others))


def _route(
    problem: Problem,
    pricing: Pricing,
    prices: Prices,
    name: str,
    without: Collection[Kind],
    through: State | None = None,
) -> Route | None:
    stations = problem.expression.stations
    dims = stations[0].sharding.dims
    states = [problem.state(station) for station in stations]
    if through is not None:
        states.insert(1, through)
    sizes = tuple(problem.sizes[dim] for dim in dims)
    whole = graph_of(sizes, tuple(problem.axes.items()), states[0].pending)
    graph = _Restricted(whole, without) if without else whole
    moves: list[Move] = []
    key = 0
    for now, then in pairwise(states):
        table = forward(graph, {now: 0}, prices, then)
        if then not in table.keys or objective(table.keys[then]) >= IMPOSSIBLE:
            return None
        moves += table.path(then)
        key += table.keys[then]
    events = [Moved(stations[0].name, dims, move) for move in moves]
    stages = tuple(stage for event in events for stage in moved(problem, pricing.fabric, event))
    return Route(name, stages, key)


def _by_the_whole(problem: Problem, pricing: Pricing, prices: Prices) -> Route | None:
    """Everything gathered everywhere, then cut: a compiler's last way ("involuntary full rematerialization")."""
    rank = len(problem.expression.first.sharding.dims)
    return _route(
        problem, pricing, prices, "replicate-then-slice", (Kind.ALL_TO_ALL, Kind.PERMUTE), State(((),) * rank)
    )


class _Restricted(Graph):
    """A graph without some kinds of moves; it shares the edges of the whole one."""

    def __init__(self, whole: Graph, without: Collection[Kind]) -> None:
        super().__init__(whole.sizes, whole.axes, whole.pendable)
        self.whole = whole
        self.without = set(without)

    def moves(self, state: State) -> list[Move]:
        """The edges that are allowed."""
        return [move for move in self.whole.moves(state) if move.kind not in self.without]


def _no_way(problem: Problem, pricing: Pricing) -> CommcalcError:
    expression = problem.expression
    first, last = expression.stations[0], expression.stations[-1]
    new = [axis for axis in last.sharding.unreduced if axis not in first.sharding.unreduced]
    if new:
        return ShardingError(
            f"a tensor that is whole over {', '.join(new)} cannot become a pending sum",
            source=expression.text,
            span=last.span,
            hint="only a product over a split dimension leaves one",
        )
    refused = (pricing.fabric.refuses((axis,)) for axis in problem.axes)
    return next(
        (found for found in refused if found is not None),
        ShardingError(
            f"there is no way to {format_tensor(last.name, last.sharding)}", source=expression.text, span=last.span
        ),
    )
