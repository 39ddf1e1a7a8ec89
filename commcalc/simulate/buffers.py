"""Parameters in flat buffers and in equal shards, as optimizers and FSDP keep them, moved by real collectives.

Two ways to cut them. *Rows*: every parameter by itself, its first dimension (as torch stores it) padded to a multiple
of the group, and all of a group of parameters in one call. *Runs*: all parameters in one row, cut into buckets of
equal shards, each bucket in a call of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from commcalc.algebra.collective import Kind
from commcalc.algebra.program import Op, Rule
from commcalc.algebra.sharding import Sharding
from commcalc.simulate.grid import Grid
from commcalc.simulate.moves import Counted, Done, move
from commcalc.simulate.wire import Array, Combine

Blocks: TypeAlias = list[Array]
# What every device has of each part that is cut by itself: of a parameter, or of a bucket.
Pieces: TypeAlias = dict[str, Blocks]
_FLAT = ("elements",)


class Stored(NamedTuple):
    """A parameter's block on one device, and which of its dimensions are the first in storage."""

    shape: tuple[int, ...]
    first: tuple[int, ...]

    def rows(self, block: Array, ways: int) -> Array:
        """The block as ``ways`` equal shards of its rows, zeros behind the last: [ways, elements]."""
        rows = block.transpose(self._order).reshape(prod(self.shape[at] for at in self.first), -1)
        padded = np.pad(rows, ((0, -len(rows) % ways), (0, 0)))
        return padded.reshape(ways, -1)

    def block(self, shards: Array) -> Array:
        """The block from all its shards."""
        order = self._order
        flat = shards.reshape(-1)[: prod(self.shape)]
        return flat.reshape([self.shape[at] for at in order]).transpose(np.argsort(order))

    @property
    def _order(self) -> tuple[int, ...]:
        return (*self.first, *(at for at in range(len(self.shape)) if at not in self.first))


def first_dims(op: Op, name: str, dims: Sequence[str], made: Sequence[str]) -> tuple[int, ...]:
    """Which dimensions of a weight come first in storage, by number; ``made`` are those of what the operation makes.

    As transformers and torch keep them: experts by expert, tables by row, biases and norms over all heads as one
    vector, a convolution by channel, a linear layer as [out, in].
    """
    every = tuple(range(len(dims)))
    if (dims[0] == "E" and len(dims) > 1) or dims[0] in ("V", "P"):
        return (0,)
    if op.function == "convolution":
        return every[:-1]
    if op.rule is Rule.CONTRACT and name == op.weights[0]:
        return tuple(at for at in every if dims[at] in made)  # none of [1, in]
    one_vector = op.rule is not Rule.NORM or set(dims) <= set(op.over)
    return every if one_vector else (0,)


class Shards:
    """A group of parameters in equal shards over ``axes``, by rows; `Runs` cuts them in one row."""

    def __init__(self, members: Mapping[str, Stored], grid: Grid, axes: Sequence[str]) -> None:
        self.members = dict(members)
        self.grid = grid
        self.axes = tuple(axes)
        self.ways = grid.mesh.size(axes)

    def cut(self, blocks: Mapping[str, Array]) -> dict[str, Array]:
        """Blocks of one device as shards, [ways, elements] of each part."""
        return {name: one.rows(blocks[name], self.ways) for name, one in self.members.items()}

    def join(self, parts: Mapping[str, Array]) -> dict[str, Array]:
        """The blocks of one device from all shards of each part."""
        return {name: one.block(parts[name]) for name, one in self.members.items()}

    def calls(self, parts: Sequence[str]) -> list[list[str]]:
        """The parts that go together in one call."""
        return [list(parts)]

    def own(self, held: Mapping[str, Blocks]) -> Pieces:
        """Every device's own shard of what it holds whole; nothing is sent."""
        number = [self.grid.term(self.axes, rank) for rank in range(self.grid.devices)]
        cut = self._cut(held)
        return {part: [one[part][at] for one, at in zip(cut, number, strict=True)] for part in cut[0]}

    def scatter(self, held: Mapping[str, Blocks], bits: int, combine: Combine) -> tuple[Pieces, list[Counted]]:
        """ReduceScatter: the sum over the group of what devices hold, a shard on each."""
        cut = self._cut(held)
        found: Pieces = {}
        counts = []
        for names in self.calls(list(cut[0])):
            buffers = [np.concatenate([one[part] for part in names], axis=1) for one in cut]
            widths = [cut[0][part].shape[1] for part in names]
            done = self._moved(Kind.REDUCE_SCATTER, [one.ravel() for one in buffers], bits, combine)
            found |= _parted(names, widths, done.blocks)
            counts += [] if done.counted is None else [done.counted]
        return found, counts

    def gather(self, pieces: Pieces, bits: int) -> tuple[dict[str, Blocks], list[Counted]]:
        """AllGather: the blocks of every device from all shards of its group."""
        whole: list[dict[str, Array]] = [{} for _ in range(self.grid.devices)]
        counts = []
        for names in self.calls(list(pieces)):
            widths = [pieces[part][0].size for part in names]
            own = [np.concatenate(ones) for ones in zip(*(pieces[part] for part in names), strict=True)]
            done = self._moved(Kind.ALL_GATHER, own, bits, np.add)
            for rank, array in enumerate(done.blocks):
                ends = np.cumsum(widths)[:-1]
                whole[rank] |= dict(zip(names, np.split(array.reshape(self.ways, -1), ends, axis=1), strict=True))
            counts += [] if done.counted is None else [done.counted]
        blocks = [self.join(parts) for parts in whole]
        return {name: [one[name] for one in blocks] for name in self.members}, counts

    def _cut(self, held: Mapping[str, Blocks]) -> list[dict[str, Array]]:
        return [self.cut({name: held[name][rank] for name in self.members}) for rank in range(self.grid.devices)]

    def _moved(self, kind: Kind, buffers: Blocks, bits: int, combine: Combine) -> Done:
        gathers = kind is Kind.ALL_GATHER
        flat = Grid(self.grid.mesh, {_FLAT[0]: buffers[0].size * (self.ways if gathers else 1)})
        whole, split = Sharding(_FLAT, ((),)), Sharding(_FLAT, (self.axes,))
        before, after = (split, whole) if gathers else (whole.reduced(self.axes), split)
        return move(kind, self.axes, before, after, buffers, flat, bits, combine)


class Runs(Shards):
    """All parameters of a group in one row, in buckets of at most ``most`` elements, each padded to equal shards."""

    def __init__(self, members: Mapping[str, Stored], grid: Grid, axes: Sequence[str], most: int | None) -> None:
        super().__init__(members, grid, axes)
        elements = sum(prod(one.shape) for one in members.values())
        # Buckets that are cut into shards hold a whole number of them.
        each = elements if most is None else max(most // self.ways, 1) * self.ways
        self.bounds = [(low, min(low + each, elements)) for low in range(0, elements, each)]

    def cut(self, blocks: Mapping[str, Array]) -> dict[str, Array]:
        """The row as shards of each bucket."""
        row = in_one_row([blocks[name] for name in self.members])
        found = {}
        for at, (low, high) in enumerate(self.bounds):
            found[f"bucket {at}"] = np.pad(row[low:high], (0, (low - high) % self.ways)).reshape(self.ways, -1)
        return found

    def join(self, parts: Mapping[str, Array]) -> dict[str, Array]:
        """The blocks that the row was made of."""
        row = np.concatenate(
            [part.reshape(-1)[: high - low] for part, (low, high) in zip(parts.values(), self.bounds, strict=True)]
        )
        return dict(zip(self.members, out_of_row(row, [one.shape for one in self.members.values()]), strict=True))

    def calls(self, parts: Sequence[str]) -> list[list[str]]:
        """Each bucket by itself."""
        return [[part] for part in parts]


def _parted(names: Sequence[str], widths: Sequence[int], blocks: Sequence[Array]) -> Pieces:
    ends = np.cumsum(widths)[:-1]
    parted = [np.split(block, ends) for block in blocks]
    return {name: [ones[at] for ones in parted] for at, name in enumerate(names)}


def in_one_row(blocks: Sequence[Array]) -> Array:
    """Blocks of one device, flat and one after another."""
    return np.concatenate([block.ravel() for block in blocks])


def out_of_row(row: Array, shapes: Sequence[tuple[int, ...]]) -> Blocks:
    """The blocks of these shapes that a row was made of."""
    ends = np.cumsum([prod(shape) for shape in shapes])[:-1]
    return [one.reshape(shape) for one, shape in zip(np.split(row, ends), shapes, strict=True)]
