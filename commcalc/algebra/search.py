"""Cheapest paths in the graph of one tensor, from what it is and towards what is wanted.

A key is one int made of three: the objective, then the number of collectives, then how many of them are AllGathers or
ReduceScatters, so that of two plans of equal cost the one with fewer steps wins, and then the one with an AllReduce.
Dijkstra 1959; every edge costs at least nothing.
"""

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from commcalc.algebra.collective import Kind
from commcalc.algebra.states import CostOf, Graph, Move, State

# The objective of a move that cannot be made where the question is asked: more than any that can.
IMPOSSIBLE = 1 << 400
_STEP = 1 << 16
_OBJECTIVE = 1 << 32


class Table(NamedTuple):
    """Keys of all reachable nodes, and for each the edge that leads there (or onwards, in a table of the way back)."""

    keys: dict[State, int]
    edges: dict[State, Move]

    def path(self, state: State) -> list[Move]:
        """The moves from the start to ``state``."""
        moves: list[Move] = []
        while state in self.edges:
            move = self.edges[state]
            moves.append(move)
            state = move.start
        return moves[::-1]

    def way_on(self, state: State) -> list[Move]:
        """In a table of the way back: the moves from ``state`` to the end."""
        moves: list[Move] = []
        while state in self.edges:
            moves.append(self.edges[state])
            state = moves[-1].target
        return moves


def objective(key: int) -> int:
    """The cost in a key, without the tie-breaks."""
    return key // _OBJECTIVE


def key_of(cost: int) -> int:
    """The key of something that costs and is no collective."""
    return cost * _OBJECTIVE


class Prices:
    """The key of each edge of one graph; ``bits`` is the width of an element.

    ``grown`` (new, old) prices a tensor one of whose dimensions has another size than in the graph.
    """

    def __init__(self, bits: int, cost: CostOf, grown: tuple[int, int] = (1, 1)) -> None:
        self.bits = bits
        self.cost = cost
        self.grown = grown
        self._known: dict[tuple[Kind, tuple[str, ...], int], int] = {}

    def key(self, move: Move) -> int:
        """The price of one move; a slice is free."""
        if move.kind is Kind.SLICE:
            return 0
        what = (move.kind, move.axes, move.elements)
        known = self._known.get(what)
        if known is None:
            new, old = self.grown
            known = self._known[what] = self.priced(move.kind, move.axes, move.elements * new // old)
        return known

    def priced(self, kind: Kind, axes: tuple[str, ...], elements: int) -> int:
        """The key of a collective with a payload of ``elements``."""
        if kind is Kind.SLICE:
            return 0
        payload = -(-elements * self.bits // 8)
        scatters = kind in (Kind.ALL_GATHER, Kind.REDUCE_SCATTER)
        return self.cost(kind, axes, payload) * _OBJECTIVE + _STEP + scatters


def forward(graph: Graph, starts: Mapping[State, int], prices: Prices, end: State | None = None) -> Table:
    """The cheapest key of every node from the nearest of ``starts``; up to ``end`` where only that is asked for."""
    whole = State(((),) * len(graph.sizes))
    cut: list[State] = []

    def out(state: State) -> list[tuple[State, Move]]:
        # Everything is a free slice of the whole tensor: nothing settled after it leads to anything cheaper.
        if cut:
            return [(move.target, move) for move in graph.slices(state)]
        if state == whole:
            cut.append(state)
        return [(move.target, move) for move in graph.moves(state)]

    return _settle(starts, out, prices, end)


def backward(graph: Graph, ends: Mapping[State, int], prices: Prices) -> Table:
    """The cheapest key from every node to the nearest of ``ends``; its edges lead onwards."""
    return _settle(ends, graph.into, prices)


def _settle(
    starts: Mapping[State, int],
    neighbours: Callable[[State], list[tuple[State, Move]]],
    prices: Prices,
    end: State | None = None,
) -> Table:
    keys: dict[State, int] = {}
    edges: dict[State, Move] = {}
    best = dict(starts)
    first = sorted((key, state) for state, key in starts.items())
    waiting: list[tuple[int, int, State, Move | None]] = [
        (key, at, state, None) for at, (key, state) in enumerate(first)
    ]
    count = len(waiting)
    while waiting:
        key, _, state, edge = heappop(waiting)
        if state in keys:
            continue
        keys[state] = key
        if edge is not None:
            edges[state] = edge
        if state == end:
            break
        for other, move in neighbours(state):
            if other in keys:
                continue
            reached = key + prices.key(move)
            if reached < best.get(other, reached + 1):
                best[other] = reached
                count += 1
                heappush(waiting, (reached, count, other, move))
    return Table(keys, edges)
