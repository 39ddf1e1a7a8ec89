"""Every move of every plan can be run: checked on the sets of elements that devices hold, which share no code with it.

Each device holds a set of global indices. A gather, an AllToAll or a permute may give a device only what some member of
its group held, a slice only what it held itself, a ReduceScatter only what all members of its group have terms of.
"""

from __future__ import annotations

from itertools import product
from math import prod

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from commcalc.algebra.collective import Kind, wire_bytes
from commcalc.algebra.expression import parse_expression
from commcalc.algebra.mesh import Mesh
from commcalc.algebra.notation import format_tensor
from commcalc.algebra.planner import Moved, Multiply
from commcalc.algebra.problem import Problem, bind
from commcalc.algebra.search import Prices, forward, objective
from commcalc.algebra.sharding import Sharding
from commcalc.algebra.states import Graph, Move, State, arrangements
from commcalc.algebra.strategies import strategies

MESHES = [{"X": 2}, {"X": 4}, {"X": 2, "Y": 2}, {"X": 4, "Y": 2}, {"X": 2, "Y": 3}, {"X": 2, "Y": 2, "Z": 2}]
SIZE = 24
Device = tuple[int, ...]
Block = frozenset[tuple[int, ...]]


def blocks(state: State, sizes: tuple[int, ...], mesh: dict[str, int]) -> dict[Device, Block]:
    """The global indices that each device holds: block number of the axes as digits, the first the most significant."""
    names = list(mesh)
    held = {}
    for device in product(*(range(size) for size in mesh.values())):
        at = dict(zip(names, device, strict=True))
        ranges = []
        for size, axes in zip(sizes, state.split, strict=True):
            number, ways = 0, 1
            for axis in axes:
                number, ways = number * mesh[axis] + at[axis], ways * mesh[axis]
            ranges.append(range(number * size // ways, (number + 1) * size // ways))
        held[device] = frozenset(product(*ranges))
    return held


def groups(axes: tuple[str, ...], mesh: dict[str, int]) -> list[list[Device]]:
    """Devices that differ only along ``axes``."""
    names = list(mesh)
    found: dict[Device, list[Device]] = {}
    for device in product(*(range(size) for size in mesh.values())):
        rest = tuple(place for name, place in zip(names, device, strict=True) if name not in axes)
        found.setdefault(rest, []).append(device)
    return list(found.values())


def check(move: Move, sizes: tuple[int, ...], mesh: dict[str, int]) -> None:
    """The move gives no device what its group did not hold, and its payload is what it says."""
    before, after = blocks(move.start, sizes, mesh), blocks(move.target, sizes, mesh)
    biggest = max(len(block) for block in before.values())
    for group in groups(move.axes, mesh):
        together = frozenset[tuple[int, ...]]().union(*(before[device] for device in group))
        for device in group:
            if move.kind is Kind.SLICE:
                assert after[device] <= before[device]
            elif move.kind is Kind.ALL_REDUCE:
                assert after[device] == before[device]
            elif move.kind is Kind.REDUCE_SCATTER:
                assert all(after[device] <= before[other] for other in group)
            elif move.kind is Kind.PERMUTE:
                assert any(after[device] == block for block in before.values())
            else:
                assert after[device] <= together
        if move.kind is Kind.REDUCE_SCATTER and not move.sliced:  # the parts are all there, once
            assert sum(len(after[device]) for device in group) == len(before[group[0]])
    if move.kind is Kind.PERMUTE:
        assert sorted(map(sorted, before.values())) == sorted(map(sorted, after.values()))
    expected = {Kind.ALL_GATHER: max(len(block) for block in after.values()), Kind.SLICE: 0}.get(
        move.kind, biggest // prod(mesh[axis] for axis in move.sliced)
    )
    assert move.elements == expected
    pending = set(move.start.pending) - set(move.target.pending)
    reduces = move.kind in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER)
    assert pending == (set(move.axes) if reduces else pending)
    assert reduces or len(move.start.pending) == len(move.target.pending)


@st.composite
def tensors(draw: st.DrawFn, pending: bool = True) -> tuple[State, State, dict[str, int]]:
    """Two shardings of one tensor over one mesh."""
    mesh = draw(st.sampled_from(MESHES))
    rank = draw(st.integers(1, 3))
    found = []
    for may_pend in (pending, False):
        options = arrangements(mesh, rank, lambda *_: True, [list(mesh)] if may_pend else [])
        split, held = draw(st.sampled_from(options))
        found.append(State(split, tuple(sorted(held[0])) if held else ()))
    return found[0], found[1], mesh


@given(tensors())
@settings(max_examples=150, deadline=None)
def test_cheapest_reshards_can_be_run(question: tuple[State, State, dict[str, int]]) -> None:
    start, end, mesh = question
    sizes = (SIZE,) * len(start.split)
    graph = Graph(sizes, mesh, start.pending)

    def ring(kind: Kind, axes: tuple[str, ...], payload: int) -> int:
        return int(wire_bytes(kind, payload, prod(mesh[axis] for axis in axes)))

    prices = Prices(8, ring)
    table = forward(graph, {start: 0}, prices)
    assume(end in table.keys)
    moves = table.path(end)
    now = start
    for move in moves:
        assert move.start == now
        check(move, sizes, mesh)
        now = move.target
    assert now == end
    sent = [ring(move.kind, move.axes, move.elements) for move in moves if move.kind is not Kind.SLICE]
    assert objective(table.keys[end]) == sum(sent)
    # no more than reducing and gathering everything everywhere, then cutting
    whole = State(((),) * len(start.split))
    assert table.keys[end] <= table.keys[whole]
    # no less than what it takes to hold the new block: what was not there before must arrive, whole terms or not
    before, after = blocks(start, sizes, mesh), blocks(end, sizes, mesh)
    if not start.pending:
        arriving = sum(len(after[device] - before[device]) for device in before)
        assert arriving <= sum(sent) * len(before)


@given(st.sampled_from(MESHES), st.data())
@settings(max_examples=60, deadline=None)
def test_every_edge_can_be_run(mesh: dict[str, int], data: st.DataObject) -> None:
    graph = Graph((SIZE,) * data.draw(st.sampled_from([2, 3])), mesh, tuple(mesh))
    state = data.draw(st.sampled_from(graph.states()))
    for move in graph.moves(state):
        check(move, graph.sizes, mesh)
        assert (state, move) in graph.into(move.target)


def asked(text: str, mesh: dict[str, int]) -> Problem:
    return bind(parse_expression(text, mesh), Mesh.of(mesh), dict.fromkeys("IJK", SIZE), 8)


@given(st.sampled_from(MESHES), st.data())
@settings(max_examples=80, deadline=None)
def test_every_strategy_of_a_product_can_be_run(mesh: dict[str, int], data: st.DataObject) -> None:
    """Operands lie alike where they share a dimension, the result is what they leave, and ends where it was wanted."""
    options = [State(split) for split, _ in arrangements(mesh, 2, lambda *_: True)]

    def tensor(name: str, dims: tuple[str, str]) -> str:
        return format_tensor(name, Sharding(dims, data.draw(st.sampled_from(options)).split))

    text = f"{tensor('A', ('I', 'J'))} @ {tensor('B', ('J', 'K'))} -> {tensor('C', ('I', 'K'))}"
    problem = asked(text, mesh)

    def ring(kind: Kind, axes: tuple[str, ...], payload: int) -> int:
        return int(wire_bytes(kind, payload, prod(mesh[axis] for axis in axes)))

    found = strategies(problem, ring, lambda _: 0)
    keys = [one.plan.key for one in found.plans]
    assert keys == sorted(keys)
    assert len({one.name for one in found.plans}) == len(found.plans)
    expression = problem.expression
    assert expression.output is not None
    for one in found.plans:
        now = {"A": problem.state(expression.first), "B": problem.state(expression.products[0].right)}
        for event in one.plan.events:
            if isinstance(event, Moved):
                assert event.move.start == now[event.name]
                check(event.move, (SIZE, SIZE), mesh)
                now[event.name] = event.move.target
            else:
                now["C"] = multiplied(event, mesh)
        assert now["C"] == problem.state(expression.output)


def multiplied(event: Multiply, mesh: dict[str, int]) -> State:
    """The local product by its elements: every device multiplies what it holds, and all terms are there once."""
    left, right = blocks(event.left, (SIZE, SIZE), mesh), blocks(event.right, (SIZE, SIZE), mesh)
    terms: dict[tuple[int, int, int], int] = {}
    for device in left:
        rows, inner = {i for i, _ in left[device]}, {j for _, j in left[device]}
        assert inner == {j for j, _ in right[device]}
        columns = {k for _, k in right[device]}
        assert 2 * len(rows) * len(inner) * len(columns) == event.flops
        for i, j, k in product(sorted(rows)[:2], sorted(inner), sorted(columns)[:2]):
            terms[i, j, k] = terms.get((i, j, k), 0) + 1
    spent = [axis for axes in (*event.left.split, *event.right.split) for axis in axes]
    copies = prod(size for axis, size in mesh.items() if axis not in spent)
    assert set(terms.values()) == {copies}
    return event.out
