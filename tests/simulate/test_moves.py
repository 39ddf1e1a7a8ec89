"""Changes of sharding on devices: the right blocks, the bytes of the closed forms, and transposes that are adjoint."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commcalc.algebra.collective import Kind, Step, all_gather, all_to_all, reduce_scatter, transpose, wire_bytes
from commcalc.algebra.mesh import Mesh
from commcalc.algebra.sharding import Sharding
from commcalc.algebra.states import Graph, Move
from commcalc.simulate.grid import Grid
from commcalc.simulate.moves import Mismatch, all_reduce_buffers, move
from commcalc.simulate.wire import Array

MESHES = [{"X": 2}, {"X": 4}, {"X": 2, "Y": 2}, {"X": 4, "Y": 2}, {"X": 2, "Y": 3}, {"X": 2, "Y": 2, "Z": 2}]
SIZE = 24


@given(st.sampled_from(MESHES), st.integers(0, 2**32), st.data())
@settings(max_examples=250, deadline=None)
def test_every_move_keeps_the_tensor_and_sends_what_it_says(
    mesh: dict[str, int], seed: int, data: st.DataObject
) -> None:
    """Any edge of the planner's graph, strided slices included, from any sharding of a tensor of 2 or 3 dimensions."""
    rank = data.draw(st.sampled_from([2, 3]))
    graph = Graph((SIZE,) * rank, mesh, tuple(mesh))
    edge: Move = data.draw(st.sampled_from(graph.moves(data.draw(st.sampled_from(graph.states())))))
    dims = ("I", "J", "K")[:rank]
    before, after = (Sharding(dims, state.split, state.pending) for state in (edge.start, edge.target))
    grid = Grid(Mesh.of(mesh), dict.fromkeys(dims, SIZE))
    rng = np.random.default_rng(seed)
    whole = rng.standard_normal((SIZE,) * rank)
    done = move(edge.kind, edge.axes, before, after, grid.lay_out(whole, before, rng), grid, 16)
    found = grid.assemble(done.blocks, after)
    assert np.allclose(found.array, whole, rtol=0, atol=1e-12)
    assert found.drift == 0
    if edge.kind is Kind.SLICE:
        assert done.counted is None
        return
    assert done.counted is not None
    n = prod(mesh[axis] for axis in edge.axes)
    assert done.counted.payload_bytes == 2 * edge.elements
    assert done.counted.sent_bytes == wire_bytes(edge.kind, 2 * edge.elements, n)


def inner(grid: Grid, one: list[Array], other: list[Array], sharding: Sharding) -> float:
    """The inner product of two tensors, each element counted once: devices that hold copies count as one."""
    places = grid.blocks(sharding)
    once = {(grid.term(sharding.unreduced, rank), at): rank for rank, at in enumerate(places)}
    return float(sum(np.sum(one[rank] * other[rank]) for rank in once.values()))


@given(st.sampled_from(["gather", "exchange"]), st.integers(2, 8), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_transposes_are_adjoint(which: str, n: int, seed: int) -> None:
    """<AG x, y> = <x, RS y> and <A2A x, y> = <x, A2A' y>.

    The y of a gather is what every device says about its own copy of the result, a pending sum.
    """
    grid = Grid(Mesh.of({"X": n}), {"I": 3 * n, "J": 2 * n})
    split = Sharding(("I", "J"), (("X",), ()))
    there = all_gather(split, "I", ("X",)) if which == "gather" else all_to_all(split, "I", "J", ("X",))
    back = transpose(there)
    assert back is not None
    rng = np.random.default_rng(seed)
    x = grid.lay_out(rng.standard_normal((3 * n, 2 * n)), split)
    y = [rng.standard_normal(block.shape) for block in grid.lay_out(np.zeros((3 * n, 2 * n)), there.after)]
    moved, returned = run(there, x, grid), run(back, y, grid)
    # Copies of the gathered tensor are used apart, so their inner products add up over all devices.
    left = sum(float(np.sum(a * b)) for a, b in zip(moved, y, strict=True))
    right = sum(float(np.sum(a * b)) for a, b in zip(x, returned, strict=True))
    assert left == pytest.approx(right, rel=1e-12, abs=1e-12)


@given(st.integers(2, 8), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_the_transpose_of_a_reduction(n: int, seed: int) -> None:
    """<RS x, y> = <x, AG y>, and of an AllReduce nothing: <AR x, y> over the sum = each term's own with y."""
    grid = Grid(Mesh.of({"X": n}), {"I": 2 * n})
    partial = Sharding(("I",), ((),), ("X",))
    there = reduce_scatter(partial, "I", ("X",))
    back = transpose(there)
    assert back is not None
    rng = np.random.default_rng(seed)
    x = [rng.standard_normal(2 * n) for _ in range(n)]
    y = [rng.standard_normal(2) for _ in range(n)]
    left = sum(float(a @ b) for a, b in zip(run(there, x, grid), y, strict=True))
    right = sum(float(a @ b) for a, b in zip(x, run(back, y, grid), strict=True))
    assert left == pytest.approx(right, rel=1e-12, abs=1e-12)
    whole = rng.standard_normal(2 * n)
    reduced = move(Kind.ALL_REDUCE, ("X",), partial, partial.reduced(), x, grid, 8).blocks
    assert inner(grid, reduced, [whole] * n, partial.reduced()) == pytest.approx(sum(float(a @ whole) for a in x))


def run(step: Step, blocks: list[Array], grid: Grid) -> list[Array]:
    return move(step.kind, step.axes, step.before, step.after, blocks, grid, 8).blocks


def test_a_buffer_that_does_not_divide_is_counted_in_the_mean() -> None:
    """An AllReduce of 10 elements over 4: 15 cross the wire in each half round, 2 * 3/4 * 10 = 15 a device."""
    grid = Grid(Mesh.of({"X": 4}), {"I": 4})
    done = all_reduce_buffers(("X",), [np.full(10, float(rank)) for rank in range(4)], grid, 8)
    assert [block.tolist() for block in done.blocks] == [[6.0] * 10] * 4
    assert done.counted is not None
    assert (done.counted.sent_bytes, done.counted.steps) == (15, 6)


def test_a_move_that_cannot_be_is_seen() -> None:
    grid = Grid(Mesh.of({"X": 2, "Y": 2}), {"I": 4, "J": 4})
    rows, columns = Sharding(("I", "J"), (("X",), ())), Sharding(("I", "J"), ((), ("X",)))
    whole = Sharding(("I", "J"), ((), ()))
    blocks = grid.lay_out(np.zeros((4, 4)), rows)
    with pytest.raises(Mismatch, match="does not belong to the block, or is there already"):
        move(Kind.ALL_GATHER, ("Y",), rows, whole, blocks, grid, 8)  # the axis does not split it
    with pytest.raises(Mismatch, match="must cut a part out of what it does not hold"):
        move(Kind.SLICE, (), rows, columns, blocks, grid, 8)
    with pytest.raises(Mismatch, match="no member of its group holds"):
        move(Kind.PERMUTE, ("Y",), rows, Sharding(("I", "J"), (("Y",), ())), blocks, grid, 8)
    with pytest.raises(Mismatch, match="has no term of a part"):
        move(Kind.REDUCE_SCATTER, ("X",), rows, columns, blocks, grid, 8)
