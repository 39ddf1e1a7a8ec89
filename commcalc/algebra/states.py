"""One tensor on a mesh as a graph: its shardings are the nodes, the collectives between them the edges.

    slice        A[I]            -> A[I_X]          free, on any dimension
    all_gather   A[I_{XYZ}]      -> A[I_X]          the last axes of one dimension
    all_reduce   C[I]{U_{XY}}    -> C[I]{U_Y}       any of the pending axes
    reduce_scatter  C[I_Y]{U_X}  -> C[I_{YX}]       onto the end of one dimension
    all_to_all   A[I_{XY}, J]    -> A[I_X, J_Y]     the last axes of some dimensions to the ends of others
    permute      A[I_{XY}]       -> A[I_{YX}]       whole blocks change place: any sharding of the same local shape

A ReduceScatter or AllToAll may be preceded by a *strided* slice: each device keeps every m-th part of what it holds, so
that the axis of the collective comes out before the sliced one, C[I]{U_X} -> C[I_{XY}]. Every strategy of the planner
is a path in such graphs; that they hold no other moves is what "cheapest" is relative to.
Source of the moves: How To Scale Your Model, part 3; Shardy's explicit collectives (all-slice, collective-permute).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import combinations, permutations, product
from math import prod
from typing import NamedTuple

from commcalc.algebra.collective import Kind
from commcalc.algebra.sharding import Sharding

# Axes and dimensions are kept as plain tuples here: the planner looks at thousands of them.
Split = tuple[tuple[str, ...], ...]
# The objective of one collective: kind, axes, payload in bytes. An int, so that equal plans are equal.
CostOf = Callable[[Kind, tuple[str, ...], int], int]


# Axes up to which an AllToAll between several dimensions is looked for.
_FEW = 3


class State(NamedTuple):
    """A sharding without the names of the dimensions; ``pending`` is sorted."""

    split: Split
    pending: tuple[str, ...] = ()


class Move(NamedTuple):
    """An edge. ``elements`` is the payload; ``sliced`` are the axes of a strided slice just before it."""

    kind: Kind
    axes: tuple[str, ...]
    source: State
    target: State
    elements: int
    sliced: tuple[str, ...] = ()

    @property
    def start(self) -> State:
        """The node it starts from: before its strided slice."""
        if not self.sliced:
            return self.source
        split = tuple(tuple(axis for axis in axes if axis not in self.sliced) for axes in self.source.split)
        return State(split, self.source.pending)


def state_of(sharding: Sharding) -> State:
    """The node of a sharding."""
    return State(sharding.split, sharding.unreduced)


def arrangements(
    axes: Iterable[str],
    slots: int,
    ways: Callable[[int, tuple[str, ...]], bool],
    bags: Collection[Collection[str]] = (),
) -> list[tuple[Split, tuple[tuple[str, ...], ...]]]:
    """Every way to put some of ``axes``, in order, on ``slots`` dimensions, or into one of the unordered ``bags``.

    ``ways(slot, axes)`` says whether a dimension can be split so; ``bags`` name the axes that each admits.
    For k axes on d dimensions these are sum over j of C(k, j) * j! * C(j + d - 1, j).
    """
    found: list[tuple[Split, tuple[tuple[str, ...], ...]]] = [(((),) * slots, ((),) * len(bags))]
    for axis in axes:
        more = []
        for split, held in found:
            for at in range(slots):
                for place in range(len(split[at]) + 1):
                    listed = (*split[at][:place], axis, *split[at][place:])
                    if ways(at, listed):
                        more.append(((*split[:at], listed, *split[at + 1 :]), held))
            for at, admitted in enumerate(bags):
                if axis in admitted:
                    more.append((split, (*held[:at], (*held[at], axis), *held[at + 1 :])))
        found += more
    return found


class Graph:
    """All shardings of one tensor with ``dims`` of ``sizes`` over ``axes``; ``pendable`` axes may be pending sums."""

    def __init__(self, sizes: tuple[int, ...], axes: Mapping[str, int], pendable: Collection[str] = ()) -> None:
        self.sizes = sizes
        self.axes = dict(axes)
        self.pendable = tuple(axis for axis in axes if axis in set(pendable))
        self._ways: dict[tuple[str, ...], int] = {}
        self._orders: dict[tuple[tuple[str, ...], tuple[str, ...]], list[_Order]] = {}
        self._dealt: dict[tuple[tuple[str, ...], int], list[Split]] = {}
        self._states: list[State] = []
        self._alike: dict[tuple[int, ...], list[State]] = {}
        self._moves: dict[State, list[Move]] = {}
        self._into: dict[State, list[tuple[State, Move]]] = {}

    def states(self) -> list[State]:
        """Every node."""
        if not self._states:
            bags = [self.pendable] if self.pendable else []
            self._states = [
                State(split, tuple(sorted(held[0])) if held else ())
                for split, held in arrangements(self.axes, len(self.sizes), self.divides, bags)
            ]
        return self._states

    def divides(self, dim: int, axes: tuple[str, ...]) -> bool:
        """Whether dimension number ``dim`` can be split over ``axes`` in equal parts."""
        return self.sizes[dim] % self.ways(axes) == 0

    def ways(self, axes: tuple[str, ...]) -> int:
        """Devices in a group over ``axes``."""
        known = self._ways.get(axes)
        if known is None:
            known = self._ways[axes] = prod([self.axes[axis] for axis in axes])
        return known

    def elements(self, state: State) -> int:
        """Elements that one device holds."""
        return prod([size // self.ways(axes) for size, axes in zip(self.sizes, state.split, strict=True)])

    def moves(self, state: State) -> list[Move]:
        """Every edge out of ``state``."""
        if state not in self._moves:
            self._moves[state] = list(self._out(state))
        return self._moves[state]

    def into(self, state: State) -> list[tuple[State, Move]]:
        """Every edge into ``state``, with the node it comes from."""
        if not self._into:
            for other in self.states():
                self._into.setdefault(other, [])
                for move in self.moves(other):
                    self._into.setdefault(move.target, []).append((other, move))
        return self._into[state]

    def _out(self, state: State) -> Iterator[Move]:
        split, pending = state
        held = self.elements(state)
        free = self._free(state)
        yield from self.slices(state)
        for at, axes in enumerate(split):
            for count in range(1, len(axes) + 1):
                rest, gone = _with(state, at, axes[:-count]), axes[-count:]
                yield Move(Kind.ALL_GATHER, gone, state, rest, held * self.ways(gone))
                for to in range(len(split)):
                    if to != at:
                        yield from self._onto(Kind.ALL_TO_ALL, rest, state, to, gone, free, held)
        yield from self._between(state, held)
        for count in range(1, len(pending) + 1):
            for chosen in combinations(pending, count):
                left = State(split, tuple([axis for axis in pending if axis not in chosen]))
                yield Move(Kind.ALL_REDUCE, chosen, state, left, held)
                for to in range(len(split)):
                    yield from self._onto(Kind.REDUCE_SCATTER, left, state, to, chosen, free, held)
        for other in self._same_shape(state):
            if other != state:
                yield Move(Kind.PERMUTE, _exchanged(state, other), state, other, held)

    def _between(self, state: State, held: int) -> Iterator[Move]:
        """AllToAlls over the last axes of several dimensions at once, or to the ends of several others.

        Where no dimension both gives and takes, every device gets an equal part from every other, so that one call over
        all the axes sends (n-1)/n where several calls would send more. Up to three axes; of more they are too many.
        """
        rank = len(state.split)
        if rank < 3 or len(self.axes) > _FEW or sum(map(len, state.split)) < 2:
            return
        for counts in product(*(range(len(axes) + 1) for axes in state.split)):
            if sum(counts) < 2:
                continue
            takers = [at for at, count in enumerate(counts) if not count]
            givers = rank - len(takers)
            if not takers or (givers < 2 and len(takers) < 2):
                continue
            cut = [len(axes) - count for axes, count in zip(state.split, counts, strict=True)]
            moved = tuple([axis for axes, end in zip(state.split, cut, strict=True) for axis in axes[end:]])
            rest = [axes[:end] for axes, end in zip(state.split, cut, strict=True)]
            for parts in self._parts(moved, len(takers)):
                if givers < 2 and sum(map(bool, parts)) < 2:
                    continue
                split = list(rest)
                for at, more in zip(takers, parts, strict=True):
                    if more:
                        split[at] = split[at] + more
                if all(self.divides(at, split[at]) for at, more in zip(takers, parts, strict=True) if more):
                    yield Move(Kind.ALL_TO_ALL, moved, state, State(tuple(split), state.pending), held)

    def _parts(self, moved: tuple[str, ...], takers: int) -> list[Split]:
        """Every way to deal all of ``moved``, in order, to ``takers`` dimensions."""
        if (moved, takers) not in self._dealt:
            dealt = arrangements(moved, takers, lambda *_: True)
            self._dealt[moved, takers] = [parts for parts, _ in dealt if sum(map(len, parts)) == len(moved)]
        return self._dealt[moved, takers]

    def slices(self, state: State) -> Iterator[Move]:
        """The free edges."""
        for at, axes in enumerate(state.split):
            for axis in self._free(state):
                if self.divides(at, (*axes, axis)):
                    yield Move(Kind.SLICE, (axis,), state, _with(state, at, (*axes, axis)), 0)

    def _free(self, state: State) -> tuple[str, ...]:
        spent = {axis for axes in state.split for axis in axes} | set(state.pending)
        return tuple([axis for axis in self.axes if axis not in spent])

    def _onto(
        self, kind: Kind, rest: State, state: State, to: int, group: tuple[str, ...], free: tuple[str, ...], held: int
    ) -> Iterator[Move]:
        """The edges that put ``group`` at the end of dimension ``to``, in any order, with strided slices between."""
        if (group, free) not in self._orders:
            self._orders[group, free] = _orders(group, free, self.ways)
        split = state.split[to]
        local = self.sizes[to] // self.ways(split)
        for order, moved, kept, parts, ways in self._orders[group, free]:
            if local % ways == 0:
                before = _with(state, to, split + kept) if kept else state
                yield Move(kind, moved, before, _with(rest, to, split + order), held // parts, kept)

    def _same_shape(self, state: State) -> list[State]:
        if not self._alike:
            for other in self.states():
                self._alike.setdefault(self._shape(other), []).append(other)
        return self._alike.get(self._shape(state), [])

    def _shape(self, state: State) -> tuple[int, ...]:
        return (*[self.ways(axes) for axes in state.split], self.ways(state.pending))


@lru_cache(maxsize=256)
def graph_of(sizes: tuple[int, ...], axes: tuple[tuple[str, int], ...], pendable: tuple[str, ...] = ()) -> Graph:
    """The graph of a tensor; the same object for the same question, since its edges are worked out once."""
    return Graph(sizes, dict(axes), pendable)


class _Order(NamedTuple):
    """Axes in the order they come out: those of the group, those sliced in how many parts, and all their ways."""

    order: tuple[str, ...]
    moved: tuple[str, ...]
    kept: tuple[str, ...]
    parts: int
    ways: int


def _orders(group: tuple[str, ...], free: tuple[str, ...], ways: Callable[[tuple[str, ...]], int]) -> list[_Order]:
    found = []
    for count in range(len(free) + 1):
        for sliced in combinations(free, count):
            for order in permutations((*group, *sliced)):
                if count and set(order[:count]) == set(sliced):
                    continue  # what is sliced before all axes of the group is an ordinary slice
                moved = tuple(axis for axis in order if axis in group)
                kept = tuple(axis for axis in order if axis in sliced)
                found.append(_Order(order, moved, kept, ways(kept), ways(order)))
    return found


def _with(state: State, at: int, axes: tuple[str, ...]) -> State:
    split, pending = state
    return State((*split[:at], axes, *split[at + 1 :]), pending)


def _exchanged(before: State, after: State) -> tuple[str, ...]:
    """The axes along which blocks change place."""
    places = zip((*before.split, before.pending), (*after.split, after.pending), strict=True)
    return tuple(dict.fromkeys([axis for old, new in places if old != new for axis in (*old, *new)]))
