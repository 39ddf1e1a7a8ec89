"""Runs the schedule of a program (`algebra.schedule`) on devices: the list that the ledger's rows are counted from.

Nothing is decided here. An operation runs on the blocks that the schedule says, a collective moves what it says, and
what a device then holds is compared with what it should hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from commcalc.algebra.collective import Kind
from commcalc.algebra.program import Role, Rule
from commcalc.algebra.schedule import FORWARD, REGATHER, Add, Derivation, Differentiate, Event, Move, Placed, Value
from commcalc.algebra.sharding import Sharding
from commcalc.simulate.copies import Owners, Packing, check_told, move_copies, owners_of
from commcalc.simulate.elements import SCALE_BITS, SCALES, Elements, of_scales, scales_of, spread, together
from commcalc.simulate.grid import Assembled, Grid, shape_of
from commcalc.simulate.kernels import COMBINES, kernel_of
from commcalc.simulate.local import Local, Share
from commcalc.simulate.moves import Counted, Done, Mismatch, move
from commcalc.simulate.precision import Precision
from commcalc.simulate.shares import within_share
from commcalc.simulate.wire import Array, Combine
from commcalc.transformer.layout import COMBINE, DISPATCH

Blocks = list[Array]
# Operations whose gradient needs none of what went in.
_SAVES_NOTHING = (Rule.ADD, Rule.BIAS, Rule.TAKE)


class Count(NamedTuple):
    """A collective that ran, and what it sent."""

    event: Event
    counted: Counted


class Setting(NamedTuple):
    """Where programs run: devices, number format, each device's share of the batch, how wide elements are on wires.

    ``sizes`` are those that one data-parallel rank sees.
    """

    grid: Grid
    precision: Precision
    shares: Sequence[Share]
    sizes: Mapping[str, int]
    elements: Elements
    # Whether tokens go once to each rank that holds experts of theirs.
    copies: bool = False


class Execution:
    """One run of a program: what every device holds of every tensor, and what every collective sent."""

    def __init__(self, derivation: Derivation, setting: Setting, weights: Mapping[str, Blocks]) -> None:
        self.derivation = derivation
        self.setting = setting
        self.values: dict[Value, Blocks] = {}
        self.forgotten: set[Value] = set()
        self.forward_counts: list[Count] = []
        self.backward_counts: list[Count] = []
        self._owners: Owners | None = None
        self._makers = {placed.op.output: placed.op.function for placed in derivation.placed}
        self.give(weights)

    def give(self, weights: Mapping[str, Blocks]) -> None:
        """Put weights, whole as operations use them, where operations find them."""
        for value in self._weights():
            if value.name not in weights:
                raise Mismatch(f"{value.name} is used on devices that have not gathered it")
            self.values[value] = weights[value.name]

    def forget(self) -> None:
        """Leave no weight on any device."""
        for value in [*self._weights(), *self._used()]:
            self.values.pop(value, None)

    def forget_brought(self) -> None:
        """Leave no weight as operations use it where it is stored otherwise."""
        for value in set(self._used()) - set(self._weights()):
            self.values.pop(value, None)

    def _weights(self) -> list[Value]:
        """All weights where operations find them, those that they bring as they are stored."""
        tensors = self.derivation.program.tensors
        brought = {name: one.sharding for name, one in tensors.items() if one.used and one.sharding}
        return [value._replace(sharding=brought.get(value.name, value.sharding)) for value in self._used()]

    def _used(self) -> list[Value]:
        return [value for placed in self.derivation.placed for value in placed.operands[len(placed.inputs) :]]

    def forward(self, inputs: Mapping[str, Blocks], *, early: bool = False) -> Blocks:
        """Run the forward pass on the blocks of the inputs; the output as it is kept.

        ``early`` ends it as soon as all is there that the backward pass reads; the output is empty then.
        """
        tensors = self.derivation.program.tensors
        for name, blocks in inputs.items():
            sharding = tensors[name].sharding
            if sharding is not None:
                self.values[Value(name, sharding)] = blocks
        for action in self.derivation.forward[: self._last_read() if early else None]:
            if isinstance(action, Placed):
                self._compute(action)
            elif isinstance(action, Move):
                self._move(action, self.forward_counts)
        return [] if early else self.values[self.derivation.output]

    def _last_read(self) -> int:
        """How many actions of the forward pass there are up to the last that makes what the backward pass reads."""
        read: set[Value] = set()
        for action in self.derivation.backward:
            if isinstance(action, Differentiate) and action.placed.op.rule not in _SAVES_NOTHING:
                read.update(action.placed.operands)
        made = [one.made if isinstance(one, Placed) else one.target for one in self.derivation.forward
                if isinstance(one, Placed | Move)]  # fmt: skip
        return max(at for at, value in enumerate(made, 1) if value in read)

    def backward(self, seed: Blocks) -> None:
        """Run the backward pass from the gradient of the output.

        What was gathered and is saved split is forgotten first by the linear layers that read it: it must come back by
        its own re-gather. Experts that gathered the same for themselves keep theirs.
        """
        if self.derivation.seed is None:
            return
        for action in self.derivation.backward:
            if isinstance(action, Move) and action.event.note == REGATHER:
                self.forgotten.add(action.target)
        self.values[self.derivation.seed] = seed
        for action in self.derivation.backward:
            if isinstance(action, Differentiate):
                self._differentiate(action)
            elif isinstance(action, Move):
                self._move(action, self.backward_counts)
            elif isinstance(action, Add):
                terms = zip(*map(self.held, action.terms), strict=True)
                self.values[action.made] = [self._sum(one) for one in terms]

    def gradient(self, name: str) -> Blocks | None:
        """What the devices hold of the gradient of a weight or input; None where it has none."""
        value = self.derivation.gradients.get(name)
        return None if value is None else self.held(value)

    def held(self, value: Value) -> Blocks:
        """The blocks of a value; `Mismatch` where no device has it at this point."""
        if value not in self.values:
            raise Mismatch(f"{value.name} is used as {value.sharding.split} before any device holds it so")
        return self.values[value]

    def whole(self, value: Value) -> Assembled:
        """The whole tensor that the devices hold together."""
        return self.setting.grid.assemble(self.held(value), value.sharding, self._combine(value.name, np.add))

    def _combine(self, name: str, usual: Combine) -> Combine:
        return COMBINES.get(self._makers.get(name, ""), usual)

    def _sum(self, terms: Sequence[Array]) -> Array:
        found = terms[0]
        for term in terms[1:]:
            found = self.setting.precision.add(found, term)
        return found

    def _compute(self, placed: Placed) -> None:
        kernel = kernel_of(placed)
        blocks = zip(*(self.held(value) for value in placed.operands), strict=True)
        of = self.setting.precision.of
        with _on_a_device(placed.op.name):
            made = [of(kernel.forward(local, held)) for local, held in zip(self._locals(placed), blocks, strict=True)]
        self._check(placed.made, made)
        self.values[placed.made] = made

    def _differentiate(self, action: Differentiate) -> None:
        placed = action.placed
        kernel = kernel_of(placed)
        nothing: Blocks = [np.empty(0)] * self.setting.grid.devices
        # What was forgotten and is not gathered again is not there: a kernel that asks for it all the same fails.
        gone = self.forgotten if placed.op.rule is Rule.CONTRACT else ()
        operands = (nothing if value in gone else self.values.get(value, nothing) for value in placed.operands)
        blocks = zip(*operands, strict=True)
        of, grads = self.setting.precision.of, self.held(action.gradient)
        with _on_a_device(f"the gradient of {placed.op.name}"):
            made = [
                of(kernel.backward(local, held, grad, action.at))
                for local, held, grad in zip(self._locals(placed), blocks, grads, strict=True)
            ]
        self._check(action.made, made)
        self.values[action.made] = made

    def _locals(self, placed: Placed) -> list[Local]:
        """What the operation must know of each device."""
        setting = self.setting
        shardings = (*placed.inputs, *placed.weights)
        dims = tuple(sharding.dims for sharding in shardings)
        out = placed.output
        blocks = zip(*(setting.grid.blocks(sharding) for sharding in (*shardings, out)), strict=True)
        found = []
        for held, share in zip(blocks, setting.shares, strict=True):
            own = held
            if any(share.begins.values()):
                own = tuple(within_share(one, of, share) for one, of in zip(held, (*dims, out.dims), strict=True))
            found.append(Local(placed, own[:-1], own[-1], dims, out.dims, setting.sizes, share.batch))
        return found

    def _check(self, value: Value, blocks: Sequence[Array]) -> None:
        """A device must hold a block of the shape that the sharding says: `Mismatch` where it does not."""
        for rank, (array, block) in enumerate(zip(blocks, self.setting.grid.blocks(value.sharding), strict=True)):
            if array.shape != shape_of(block):
                dims = ", ".join(value.sharding.dims)
                raise Mismatch(
                    f"device {rank} has {value.name}[{dims}] of shape {array.shape}, by its sharding {shape_of(block)}"
                )

    def _move(self, action: Move, counts: list[Count]) -> None:
        event, grid, blocks = action.event, self.setting.grid, self.held(action.source)
        bits, block = self.setting.elements.of(event), self.setting.elements.scale_block
        scales = self.setting.elements.blocks(event, grid.sizes.get("D", 0))
        if not scales or block is None:
            done = self._send(event, event.step.before, event.step.after, blocks, grid, bits)
        else:
            own = [scales_of(one, scales, block) for one in blocks]
            narrow = [one / spread(scale, block, one.shape[-1]) for one, scale in zip(blocks, own, strict=True)]
            sent = self._send(event, event.step.before, event.step.after, narrow, grid, bits)
            wide, before, after = grid.sizes["D"], of_scales(event.step.before), of_scales(event.step.after)
            beside = Grid(grid.mesh, {**grid.sizes, SCALES: scales})
            with_them = self._send(event, before, after, own, beside, SCALE_BITS)
            arrived = zip(sent.blocks, with_them.blocks, strict=True)
            made = [one * spread(scale, block, wide) for one, scale in arrived]
            done = Done(made, together(sent.counted, with_them.counted))
        self.values[action.target] = done.blocks
        if event.note == REGATHER:
            self.forgotten.discard(action.target)
        if done.counted is not None:
            counts.append(Count(event, done.counted))

    def _send(
        self, event: Event, before: Sharding, after: Sharding, blocks: Sequence[Array], grid: Grid, bits: int
    ) -> Done:
        """Blocks to where they are wanted, rows for experts as copies of tokens where these are sent once."""
        step, packing = event.step, _packing(event) if self.setting.copies else None
        if packing is not None:
            owners = self._rows_of_tokens()
            done = move_copies(step.axes, before, after, blocks, grid, bits, owners, packing)
            if event.role is Role.INDEX:
                check_told(owners, done.blocks, grid.blocks(after))
            return done
        combine = self._combine(event.tensor, self.setting.precision.add)
        return move(step.kind, step.axes, before, after, blocks, grid, bits, combine)

    def _rows_of_tokens(self) -> Owners:
        """Which token every row for an expert belongs to."""
        if self._owners is None:
            grid = self.setting.grid
            placed = next(one for one in self.derivation.placed if one.op.function == "permute")
            chosen = self.held(placed.operands[placed.op.inputs.index("chosen")])
            shape = (grid.sizes["E"], grid.sizes["Q"])
            self._owners = owners_of(chosen, grid.blocks(placed.output), shape)
        return self._owners


def _packing(event: Event) -> Packing | None:
    """What goes over the wire for a token where rows for experts do; None of all else.

    Tokens are copied on their way to experts, and their results are summed; gradients the other way round.
    """
    dims = event.step.before.dims
    if event.step.kind is not Kind.ALL_TO_ALL or dims[:2] != ("E", "Q") or event.label not in (DISPATCH, COMBINE):
        return None
    if len(dims) == 2:
        return Packing.CHOICES
    there = (event.label == DISPATCH) == (event.direction == FORWARD)
    return Packing.COPY if there else Packing.SUM


@contextmanager
def _on_a_device(what: str) -> Iterator[None]:
    """Blocks of shapes that do not go together are a mistake of the program: `Mismatch`."""
    try:
        yield
    except (ValueError, IndexError) as problem:
        raise Mismatch(f"{what} cannot be computed on a device: {str(problem).splitlines()[0]}") from None
