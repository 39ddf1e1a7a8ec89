"""The devices of a mesh and the block of a tensor that each of them holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod, sqrt
from typing import Any, NamedTuple

import numpy as np

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.sharding import Sharding
from commcalc.errors import ShardingError
from commcalc.simulate.wire import Array, Combine

# Of each dimension the first index that a device holds, and the one after its last.
Block = tuple[tuple[int, int], ...]


class Assembled(NamedTuple):
    """A whole tensor put together from blocks, and by how much copies of one block differ at most."""

    array: Array
    drift: float


class Grid:
    """A mesh with the sizes of all dimensions: which device holds what.

    Where a dimension does not divide, the last blocks hold fewer elements of the tensor than others: behind its last
    element they are zeros, so that all blocks are as large on the wire, as compilers pad. ``sizes`` are those after
    padding.
    """

    def __init__(self, mesh: Mesh, sizes: Mapping[str, int]) -> None:
        self.mesh = mesh
        self.sizes = sizes
        self.names = [name for name, _ in mesh.axes]
        self.places = [
            dict(zip(self.names, at, strict=True)) for at in product(*(range(size) for _, size in mesh.axes))
        ]
        self._blocks: dict[tuple[tuple[str, ...], tuple[tuple[str, ...], ...]], list[Block]] = {}

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return len(self.places)

    def blocks(self, sharding: Sharding) -> list[Block]:
        """The block of every device. Axes count like digits, the first the most significant: I_{XY} is x * |Y| + y."""
        key = sharding.dims, sharding.split
        if key not in self._blocks:
            found = []
            for place in self.places:
                block = []
                for dim, axes in zip(sharding.dims, sharding.split, strict=True):
                    number, ways = self._number(axes, place)
                    if self.sizes[dim] % ways:
                        raise ShardingError(f"dimension {dim} of size {self.sizes[dim]} does not split {ways} ways")
                    each = self.sizes[dim] // ways
                    block.append((number * each, (number + 1) * each))
                found.append(tuple(block))
            self._blocks[key] = found
        return self._blocks[key]

    def shape(self, dims: Sequence[str]) -> tuple[int, ...]:
        """The shape of a whole tensor."""
        return tuple(self.sizes[dim] for dim in dims)

    def term(self, axes: Sequence[str], rank: int) -> int:
        """Which term of a sum that is pending over ``axes`` a device holds."""
        return self._number(axes, self.places[rank])[0]

    def _number(self, axes: Sequence[str], place: Mapping[str, int]) -> tuple[int, int]:
        number, ways = 0, 1
        for axis in self.mesh.expand(axes):
            size = self.mesh.sizes[axis]
            number, ways = number * size + place[axis], ways * size
        return number, ways

    def lay_out(self, array: Array, sharding: Sharding, rng: np.random.Generator | None = None) -> list[Array]:
        """Every device's block of a whole tensor, padded with zeros where that is smaller than its dimensions.

        A pending sum is dealt out in random terms that add up to it; ``rng`` makes them. However many there are, their
        sum over some of them is about 1: where it grew far above the whole, a short format would lose that.
        """
        short = [(0, self.sizes[dim] - size) for dim, size in zip(sharding.dims, array.shape, strict=True)]
        whole = np.pad(array, short) if any(more for _, more in short) else array
        terms = [whole]
        if sharding.unreduced:
            if rng is None:
                raise ValueError("a pending sum needs random terms")
            count = self.mesh.size(sharding.unreduced)
            spread = 1 / sqrt(count)
            terms = [(spread * rng.standard_normal(whole.shape)).astype(whole.dtype) for _ in range(count - 1)]
            terms.append(whole - sum(terms, np.zeros_like(whole)))
        return [
            terms[self.term(sharding.unreduced, rank)][slices(block)].copy()
            for rank, block in enumerate(self.blocks(sharding))
        ]

    def assemble(self, blocks: Sequence[Array], sharding: Sharding, combine: Combine = np.add) -> Assembled:
        """The whole tensor from the blocks of all devices; terms of a pending sum are combined, in float64."""
        whole = np.full(self.shape(sharding.dims), -np.inf if combine is np.maximum else 0, dtype=_wide(blocks[0]))
        first: dict[tuple[int, Block], Array] = {}
        drift = 0.0
        for rank, at in enumerate(self.blocks(sharding)):
            key = self.term(sharding.unreduced, rank), at
            if key in first:  # a copy: it must not differ
                if not np.array_equal(first[key], blocks[rank]):
                    apart = float(np.max(np.abs(np.subtract(first[key], blocks[rank], dtype=float))))
                    drift = max(drift, apart if apart == apart else np.inf)
            else:
                first[key] = blocks[rank]
                whole[slices(at)] = combine(whole[slices(at)], blocks[rank])
        return Assembled(whole, drift)

    def first_holders(self, sharding: Sharding) -> list[int]:
        """One device for each different block: the first of those that hold it."""
        first: dict[Block, int] = {}
        for rank, at in enumerate(self.blocks(sharding)):
            first.setdefault(at, rank)
        return list(first.values())


def _wide(array: Array) -> np.dtype[Any]:
    return np.dtype(float) if array.dtype.kind == "f" else array.dtype


def slices(block: Block) -> tuple[slice, ...]:
    """The block as an index into the whole tensor."""
    return tuple(slice(*ends) for ends in block)


def shape_of(block: Block) -> tuple[int, ...]:
    """How many elements the block has along each dimension."""
    return tuple(end - start for start, end in block)


def overlap(one: Block, other: Block) -> Block:
    """What two blocks share; empty along a dimension where they do not meet."""
    found = []
    for (start, end), (begin, stop) in zip(one, other, strict=True):
        low = max(start, begin)
        found.append((low, max(low, min(end, stop))))
    return tuple(found)


def cut(array: Array, held: Block, wanted: Block) -> Array:
    """The part ``wanted`` of an array that holds the block ``held``."""
    return array[within(held, wanted)]


def within(held: Block, wanted: Block) -> tuple[slice, ...]:
    """Where ``wanted`` lies inside ``held``."""
    return tuple(slice(start - low, end - low) for (start, end), (low, _) in zip(wanted, held, strict=True))


def elements(block: Block) -> int:
    """Elements of a block."""
    return prod(shape_of(block))
