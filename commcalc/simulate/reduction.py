"""Gradients from pending sums to where the optimizer wants them: over TP ranks, tied tables, and data-parallel ranks.

What TP ranks hold alike is summed once a step, in one call for all that is pending over the same axes; a table that
first and last stage hold, once a step between the two. Under ZeRO 2 gradients leave in every microbatch, so that both
come before, in every microbatch too; under ZeRO 3 both are sums of shards.
Source: Megatron-LM core/distributed/finalize_model_grads.py (of Megatron-FSDP the local shards, ``_local_tensor``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from commcalc.accounting.ledger import Ledger
from commcalc.accounting.programs import copies_of
from commcalc.accounting.rows import UPDATE
from commcalc.algebra.schedule import BACKWARD, Value
from commcalc.simulate.buffers import Blocks, Pieces, Shards, in_one_row, out_of_row
from commcalc.simulate.grid import Grid
from commcalc.simulate.moves import Counted, Mismatch, all_reduce_buffers
from commcalc.simulate.parameters import Cutter, Unit, gradients_moved, parameters_moved
from commcalc.simulate.precision import Precision
from commcalc.simulate.shares import STAGE_AXIS
from commcalc.simulate.stages import ALL, EMBEDDING, HEAD, TIED, Exchange, Part, add_up
from commcalc.simulate.wire import Array

TABLE, HEAD_TABLE = f"{EMBEDDING}.E", f"{HEAD}.E"
Gradients = dict[str, tuple[Value, Blocks]]


class Cut(NamedTuple):
    """The gradients of a unit in shards, each device its own."""

    shards: Shards
    pieces: Pieces


class Reduction:
    """All reductions of one step. ``gradients`` are the devices' own, as the backward pass leaves them."""

    def __init__(
        self, ledger: Ledger, grid: Grid, precision: Precision, units: Sequence[Unit], cutter: Cutter,
        parts: Sequence[Part], gradients: Gradients,
    ) -> None:  # fmt: skip
        self.work, self.zero, self.layout = ledger.work, ledger.parallel.zero, ledger.layout
        self.last = len(ledger.stages) - 1
        self.grid, self.precision, self.cutter = grid, precision, cutter
        self.units, self.parts = units, {part.name: part for part in parts}
        self.values = {name: value for name, (value, _) in gradients.items()}
        self.blocks = {name: blocks for name, (_, blocks) in gradients.items()}
        self.pending = {name: value.sharding.unreduced for name, value in self.values.items()}
        self.cut: dict[Unit, Cut] = {}
        self.exchanges: list[Exchange] = []

    def run(self) -> Gradients:
        """Reduce everything; whole gradients of every device, put together from shards where there are any."""
        if self.zero == 3:
            self._tie_at_home()
            for unit in self.units:
                self._scatter(unit)
            self._sum_alike(self._pieces())
            self._tie_stages(self._pieces())
        else:
            if self.pending.get(HEAD_TABLE) == self.pending.get(TABLE):  # one gradient, which is summed once
                self._tie_at_home()
            self._sum_alike(self.blocks)
            self._tie_at_home()
            self._tie_stages(self.blocks)
            for unit in self.units:
                self._scatter(unit) if self.zero else self._all_reduce(unit)
        for one in self.cut.values():
            self.blocks |= one.shards.gather(one.pieces, self.work.grad_dtype.bits)[0]
        found = {}
        for name, value in self.values.items():
            if name in self.blocks:
                sharding = value.sharding.reduced(self.pending[name])
                found[name] = value._replace(sharding=sharding), self.blocks[name]
        return found

    def _pieces(self) -> dict[str, Blocks]:
        """What devices hold of each gradient: its shards, where it is in shards."""
        return self.blocks | {name: one for cut in self.cut.values() for name, one in cut.pieces.items()}

    def _put(self, name: str, blocks: Blocks) -> None:
        for cut in self.cut.values():
            if name in cut.pieces:
                cut.pieces[name] = blocks
                return
        self.blocks[name] = blocks

    def _sum_alike(self, held: Mapping[str, Blocks]) -> None:
        """One AllReduce of each stage for all that TP ranks hold alike and that is pending over the same axes."""
        groups: dict[tuple[int, tuple[str, ...]], list[str]] = {}
        for unit in self.units:
            own = set(unit.members) | ({HEAD_TABLE} if unit.stage == self.last and not unit.what else set())
            for name in (name for name in self.pending if name in own):
                ranks = copies_of(name.rsplit(".", 1)[1], self.layout)
                axes = tuple(axis for axis in self.pending[name] if axis not in ranks)
                names = groups.setdefault((unit.stage, axes), [])
                if axes and name in held and name not in names:
                    names.append(name)
        for (stage, axes), names in groups.items():
            if names:
                tensors = ", ".join(sorted({f"d{name.rsplit('.', 1)[1]}" for name in names}))
                made, counted = self._all_reduced([held[name] for name in names], axes)
                for name, blocks in zip(names, made, strict=True):
                    self._put(name, blocks)
                    self.pending[name] = tuple(axis for axis in self.pending[name] if axis not in axes)
                self._log(stage, ALL, "gradient_sync", tensors, axes, counted)

    def _log(self, stage: int, part: str, op: str, tensor: str, axes: tuple[str, ...], counted: Counted | None) -> None:
        """What is summed once a step, unless gradients leave in every microbatch."""
        if counted is not None:
            bits, once = self.work.grad_dtype.bits, self.zero != 2
            self.exchanges.append(Exchange(stage, part, part, UPDATE, op, tensor, axes, bits, counted, once))

    def _all_reduced(self, held: Sequence[Blocks], axes: Sequence[str]) -> tuple[list[Blocks], Counted | None]:
        """Gradients summed over the group in one buffer."""
        rows = [in_one_row(blocks) for blocks in zip(*held, strict=True)]
        done = all_reduce_buffers(axes, rows, self.grid, self.work.grad_dtype.bits, self.precision.add)
        parted = [out_of_row(row, [blocks[0].shape for blocks in held]) for row in done.blocks]
        return [list(blocks) for blocks in zip(*parted, strict=True)], done.counted

    def _tie_at_home(self) -> None:
        """Embedding and head of one stage have one table: their gradients are added."""
        if self.last or HEAD_TABLE not in self.blocks:
            return
        if self.pending[HEAD_TABLE] != self.pending[TABLE]:
            raise Mismatch("the gradients of a tied table are pending over different axes")
        self.blocks[TABLE] = self._added(self.blocks.pop(HEAD_TABLE), self.blocks[TABLE])

    def _added(self, one: Blocks, other: Blocks) -> Blocks:
        return [self.precision.add(*pair) for pair in zip(one, other, strict=True)]

    def _tie_stages(self, held: Mapping[str, Blocks]) -> None:
        """First and last stage have a table each: an AllReduce of the two."""
        if not self.last or HEAD_TABLE not in held:
            return
        bits = self.work.grad_dtype.bits
        first, last, counted = add_up(held[TABLE], held[HEAD_TABLE], self.last, bits, self.precision.add)
        self._put(TABLE, first)
        self._put(HEAD_TABLE, last)
        for stage in (0, self.last):
            self._log(stage, TIED, "tied_embedding", "dE", (STAGE_AXIS,), counted)

    def _members(self, unit: Unit) -> list[str]:
        """The parameters whose gradients are pending sums over data-parallel ranks."""
        ranks = {*unit.axes, *unit.copies}
        return [name for name in unit.members if name in self.blocks and ranks & set(self.pending[name])]

    def _over_ranks(self, names: Sequence[str], axes: Sequence[str]) -> None:
        for name in names:
            self.pending[name] = tuple(axis for axis in self.pending[name] if axis not in axes)

    def _all_reduce(self, unit: Unit) -> None:
        """Whole gradients on every rank, once a step, in buckets."""
        names = self._members(unit)
        if not names:
            return
        rows = [in_one_row(blocks) for blocks in zip(*(self.blocks[name] for name in names), strict=True)]
        bits, size = self.work.grad_dtype.bits, rows[0].size
        made: list[list[Array]] = [[] for _ in rows]
        for low in range(0, size, self.cutter.most or size):
            part = [row[low : low + (self.cutter.most or size)] for row in rows]
            done = all_reduce_buffers(unit.axes, part, self.grid, bits, self.precision.add)
            for own, block in zip(made, done.blocks, strict=True):
                own.append(block)
            if done.counted is not None:
                self.exchanges.append(gradients_moved(unit, UPDATE, bits, done.counted, once=True))
        shapes = [self.blocks[name][0].shape for name in names]
        parted = [out_of_row(np.concatenate(own), shapes) for own in made]
        self.blocks |= {name: [one[at] for one in parted] for at, name in enumerate(names)}
        self._over_ranks(names, unit.axes)

    def _scatter(self, unit: Unit) -> None:
        """A shard of the sum on each rank; copies of shards are summed after, once a step or in every microbatch."""
        names = self._members(unit)
        if not names:
            return
        bits, add = self.work.grad_dtype.bits, self.precision.add
        shards = self.cutter.shards(unit, self.parts, names)
        pieces, counts = shards.scatter({name: self.blocks.pop(name) for name in names}, bits, add)
        direction = BACKWARD if self.zero == 3 else UPDATE
        for counted in counts:
            self.exchanges.append(gradients_moved(unit, direction, bits, counted, once=self.zero == 1))
        self._over_ranks(names, unit.axes)
        if unit.copies:
            made, summed = self._all_reduced(list(pieces.values()), unit.copies)
            pieces = dict(zip(pieces, made, strict=True))
            self._over_ranks(names, unit.copies)
            once = self.work.defer_all_reduce
            if summed is not None:
                moved = gradients_moved(unit, UPDATE if once else BACKWARD, bits, summed, once=once, copies=True)
                self.exchanges.append(moved)
        self.cut[unit] = Cut(shards, pieces)

    def gathers(self, held: Mapping[str, Blocks]) -> Iterator[Exchange]:
        """What an update gathers, once a step: parameters that are stored whole and stepped in shards."""
        for unit, cut in self.cut.items():
            if self.zero < 3:
                bits = self.work.dtype.bits
                for counted in cut.shards.gather(cut.shards.own(held), bits)[1]:
                    yield parameters_moved(unit, UPDATE, bits, counted, once=True)
