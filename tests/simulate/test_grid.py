"""Blocks of devices: laid out by the sharding, put together again, padded, and copies that drift apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.sharding import Sharding
from commcalc.algebra.states import arrangements
from commcalc.errors import ShardingError
from commcalc.simulate.grid import Grid, cut, overlap, shape_of

MESHES = [{"X": 1}, {"X": 4}, {"X": 2, "Y": 3}, {"X": 2, "Y": 2, "Z": 2}]


def test_blocks_are_digits_of_the_axes() -> None:
    """A[I_{YX}] on X=2, Y=3: block y * 2 + x, the first axis the most significant (scaling book, part 3)."""
    grid = Grid(Mesh.of({"X": 2, "Y": 3}), {"I": 12})
    places = [(x, y) for x in range(2) for y in range(3)]
    blocks = grid.blocks(Sharding(("I",), (("Y", "X"),)))
    assert blocks == [((2 * (2 * y + x), 2 * (2 * y + x) + 2),) for x, y in places]
    whole = np.arange(12)
    assert [block.tolist() for block in grid.lay_out(whole, Sharding(("I",), (("X",),)))] == [
        list(range(6 * x, 6 * x + 6)) for x, _ in places
    ]


def test_parts_of_a_divided_axis_are_digits_too() -> None:
    grid = Grid(Mesh.of({"tp": 4}).divide("tp", {"a": 2, "b": 2}), {"I": 4, "K": 2})
    assert grid.blocks(Sharding(("I",), (("a", "b"),))) == grid.blocks(Sharding(("I",), (("tp",),)))
    assert [block[0] for block in grid.blocks(Sharding(("K",), (("a",),)))] == [(0, 1), (0, 1), (1, 2), (1, 2)]


def test_a_size_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ShardingError, match="dimension I of size 10 does not split 4 ways"):
        Grid(Mesh.of({"X": 4}), {"I": 10}).blocks(Sharding(("I",), (("X",),)))


def test_padding_leaves_the_last_blocks_short() -> None:
    """10 elements on 4 devices: 3, 3, 3 and 1, with two zeros behind it."""
    grid = Grid(Mesh.of({"X": 4}), {"I": 12})
    blocks = grid.lay_out(np.arange(1.0, 11.0), Sharding(("I",), (("X",),)))
    assert [block.tolist() for block in blocks] == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 0, 0]]


@st.composite
def laid(draw: st.DrawFn) -> tuple[dict[str, int], Sharding]:
    mesh = draw(st.sampled_from(MESHES))
    options = arrangements(mesh, 2, lambda *_: True, [list(mesh)])
    split, held = draw(st.sampled_from(options))
    return mesh, Sharding(("I", "J"), split, tuple(held[0]) if held else ())


@given(laid(), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_what_is_laid_out_is_put_together_again(question: tuple[dict[str, int], Sharding], seed: int) -> None:
    mesh, sharding = question
    rng = np.random.default_rng(seed)
    grid = Grid(Mesh.of(mesh), {"I": 24, "J": 48})
    whole = rng.standard_normal((24, 48))
    blocks = grid.lay_out(whole, sharding, rng)
    found = grid.assemble(blocks, sharding)
    assert np.allclose(found.array, whole, rtol=0, atol=1e-13)
    assert found.drift == 0
    for block, at in zip(blocks, grid.blocks(sharding), strict=True):
        assert block.shape == shape_of(at)
    first = grid.first_holders(sharding)
    assert sum(blocks[rank].size for rank in first) == 24 * 48


def test_copies_that_differ_are_seen() -> None:
    grid = Grid(Mesh.of({"X": 2, "Y": 2}), {"I": 4})
    sharding = Sharding(("I",), (("X",),))
    blocks = grid.lay_out(np.arange(4.0), sharding)
    blocks[1] = blocks[1] + np.array([0, 0.25])
    assert grid.assemble(blocks, sharding).drift == 0.25


def test_a_copy_that_is_no_number_is_infinitely_apart() -> None:
    grid = Grid(Mesh.of({"X": 2}), {"I": 2})
    assert grid.assemble([np.ones(2), np.array([1.0, np.nan])], Sharding(("I",), ((),))).drift == np.inf


def test_a_maximum_is_put_together_by_maxima() -> None:
    grid = Grid(Mesh.of({"X": 2}), {"I": 3})
    blocks = [np.array([1.0, -5.0, 2.0]), np.array([0.0, -4.0, 3.0])]
    found = grid.assemble(blocks, Sharding(("I",), ((),), ("X",)), np.maximum)
    assert found.array.tolist() == [1, -4, 3]


def test_parts_and_overlaps() -> None:
    assert overlap(((0, 4), (2, 6)), ((3, 8), (0, 3))) == ((3, 4), (2, 3))
    assert shape_of(overlap(((0, 2),), ((4, 6),))) == (0,)
    assert cut(np.arange(10, 20), ((10, 20),), ((12, 14),)).tolist() == [12, 13]
