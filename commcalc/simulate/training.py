"""A small model on simulated devices: forward pass, loss, backward pass, reductions, as the ledger's programs say.

Embedding, every layer and the head run one after another, each by the schedule that its rows in the ledger come from;
pipeline stages do so on devices of their own, to which the stream is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from commcalc.accounting.ledger import Ledger
from commcalc.accounting.rows import RECOMPUTE
from commcalc.algebra.program import Role
from commcalc.algebra.schedule import BACKWARD, FORWARD, Derivation, Value
from commcalc.simulate.buffers import Blocks, Shards, Stored
from commcalc.simulate.capacity import room_of
from commcalc.simulate.choices import drawn, sends_copies
from commcalc.simulate.elements import elements_of
from commcalc.simulate.execute import Count, Execution, Setting
from commcalc.simulate.grid import Grid
from commcalc.simulate.local import Batch
from commcalc.simulate.parameters import Cutter, Parameters, units_of, weights_of
from commcalc.simulate.places import Order, Parts, order_of, parts_of
from commcalc.simulate.plain_layers import weight_shapes
from commcalc.simulate.precision import Precision
from commcalc.simulate.reduction import HEAD_TABLE, TABLE, Reduction
from commcalc.simulate.shares import STAGE_AXIS, devices_of_stage, shares_of, whole_sizes
from commcalc.simulate.stages import (
    BLOCK,
    EMBEDDING,
    HEAD,
    TO_NEXT,
    TO_PREVIOUS,
    Chunk,
    Exchange,
    Part,
    chunks_of,
    send,
)  # fmt: skip
from commcalc.simulate.wire import Array
from commcalc.transformer.layout import TP
from commcalc.transformer.work import Framework, Recompute

__all__ = ["BLOCK", "EMBEDDING", "HEAD", "Data", "Part", "Training", "in_a_row", "random_data", "stored"]
# Weights that frameworks fuse, of which the plain model has the parts; each part's columns stand in a row.
FUSED_WEIGHTS = {
    "Wqkv": ("Wq", "Wk", "Wv", "Wqgate"),
    "bqkv": ("bq", "bk", "bv"),
    "Wgate_up": ("Wgate", "Wup"),
    "Wlqkv": ("Wlq", "Wlk", "Wlv"),
    "Wlqkvz": ("Wlq", "Wlk", "Wlv", "Wlz"),
    "Wlba": ("Wlb", "Wla"),
}


class Data(NamedTuple):
    """Weights by part and name (``block.0.Wq``), and the batch; the same for sharded and plain runs.

    ``parts`` of the sequences are those of the ranks that share them out.
    """

    weights: dict[str, Array]
    batch: Batch
    parts: Parts = Parts.RUNS


def random_data(ledger: Ledger, seed: int, asked: Parts | None = None) -> Data:
    """Random weights and tokens for the ledger's model; equal seeds give equal data.

    A matrix has the spread 1/sqrt(rows) that keeps activations near 1; norm weights are near 1 and biases, sinks and
    rates near 0, none of them all alike, so that a weight that is used in the wrong place shows.
    """
    rng = np.random.default_rng(seed)
    sizes = whole_sizes(ledger)
    weights = {}
    for name, shape in weight_shapes(ledger.model, sizes).items():
        made = rng.standard_normal(shape)
        short = name.rsplit(".", 1)[1]
        if short.startswith("W") or short == "E":
            weights[name] = made / np.sqrt(_rows(short, shape))
        else:
            weights[name] = made * 0.3 + (1.0 if short.startswith("g") else 0.0)
    tokens, targets = rng.integers(0, sizes["V"], (2, sizes["T"]))
    choices, parts = drawn(ledger, sizes["T"], rng), parts_of(ledger, asked)
    if choices is not None:
        choices = order_in(ledger, parts).back(choices)
    return Data(weights, Batch(tokens, targets, sizes["B"], ledger.model.extra_position_rows, choices), parts)


def order_in(ledger: Ledger, parts: Parts) -> Order:
    """The order of the tokens of all ranks."""
    sizes, mesh = whole_sizes(ledger), ledger.layout.mesh
    ranks, ways = mesh.size(ledger.layout.whole_sequences), mesh.size(ledger.layout.context)
    return order_of(sizes["T"], sizes["B"], ranks, ways, parts)


def _rows(name: str, shape: tuple[int, ...]) -> int:
    """How many elements a product with this matrix sums."""
    if name == "Wo":
        return shape[0] * shape[1]
    if name.startswith("Wconv_"):
        return shape[2]
    return shape[1] if name in ("E", "Wlm") or name.startswith("We_") else shape[0]


class Training:
    """One step of a small model on the ledger's mesh; ``derivations`` replace the ledger's own (to see them fail)."""

    def __init__(
        self, ledger: Ledger, data: Data, precision: Precision, derivations: Mapping[str, Derivation] | None = None
    ) -> None:
        layout, batch = ledger.layout, data.batch
        self.ledger = ledger
        self.data = data
        self.derivations = dict(derivations or ledger.derivations)
        grid = Grid(devices_of_stage(ledger.layout.mesh), whole_sizes(ledger))
        shares = shares_of(batch, grid, layout.whole_sequences, layout.context, data.parts)
        self.order = order_in(ledger, data.parts)
        self.room = room_of(ledger, self.order.tokens, grid.sizes["Q"])
        elements = elements_of(ledger.work, ledger.parallel, moves_tokens=ledger.layout.moves_tokens)
        self.setting = Setting(grid, precision, shares, ledger.sizes, elements, sends_copies(ledger.parallel))
        self.chunks = chunks_of(ledger)
        self.parts = [part for chunk in self.chunks for part in chunk.parts]
        self.exchanges: list[Exchange] = []
        self.runs: dict[str, Execution] = {}
        self.recomputed: dict[str, list[Count]] = {}
        # Gradients of weights as the devices hold them in the end, by part and name.
        self.gradients: dict[str, tuple[Value, Blocks]] = {}
        units, cutter = units_of(ledger, self.chunks, self.derivations), Cutter(ledger, self.derivations, grid)
        self._whole = {f"{part.name}.{name}": held for part in self.parts for name, held in self._laid_out(part)}
        self._parameters = Parameters(ledger, units, cutter, self.parts, self._whole, self.exchanges.append)
        self._forward()
        if ledger.work.phase.training:
            self._backward()
            self._reduction = Reduction(ledger, grid, precision, units, cutter, self.parts, self.gradients)
            self.gradients = self._reduction.run()
            self.exchanges += [*self._reduction.exchanges, *self._reduction.gathers(self._whole)]

    def weights(self, part: Part) -> dict[str, Array]:
        """The whole weights of a part under the names of its program."""
        return stored(self.data.weights, self.derivations[part.program], part, self.ledger.sizes)

    def held(self, name: str) -> Blocks:
        """Every device's blocks of a weight, by part and name."""
        return self._whole[name]

    def counts(self, part: Part, direction: str) -> list[Count]:
        """The collectives that ran in one direction, in order, without those of a group of one."""
        found = {
            FORWARD: self.runs[part.name].forward_counts,
            BACKWARD: self.runs[part.name].backward_counts,
            RECOMPUTE: self.recomputed.get(part.name, []),
        }[direction]
        return [count for count in found if count.counted.group_size > 1]

    def stage_of(self, part: Part) -> int:
        """The pipeline stage that runs a part."""
        return next(chunk.stage for chunk in self.chunks if part in chunk.parts)

    def stepped(self, step: Callable[[Array], Array]) -> Iterator[tuple[str, Blocks, Blocks]]:
        """One step of an optimizer: of each parameter by how much its blocks change, and what they are then.

        What is reduced to shards is stepped in shards, and gathered.
        """
        of = self.setting.precision.of
        for cut in self._reduction.cut.values():
            old = cut.shards.own({name: self.held(name) for name in cut.shards.members})
            changes = {part: [of(step(piece)) for piece in pieces] for part, pieces in cut.pieces.items()}
            new = {
                part: [of(one - change) for one, change in zip(old[part], pieces, strict=True)]
                for part, pieces in changes.items()
            }  # fmt: skip
            (moved, _), (updated, _) = (cut.shards.gather(one, 1) for one in (changes, new))
            for name in cut.shards.members:
                yield name, moved[name], updated[name]
        in_shards = {name for cut in self._reduction.cut.values() for name in cut.shards.members}
        for name, (_, blocks) in self.gradients.items():
            if name not in in_shards:
                moved_blocks = [of(step(block)) for block in blocks]
                pairs = zip(self.held(name), moved_blocks, strict=True)
                yield name, moved_blocks, [of(old_block - change) for old_block, change in pairs]

    @staticmethod
    def origin(name: str) -> str:
        """The parameter that a gradient is of: a head that another stage ties to the table has a copy of it."""
        return TABLE if name == HEAD_TABLE else name

    def _laid_out(self, part: Part) -> Iterator[tuple[str, Blocks]]:
        tensors = self.derivations[part.program].program.tensors
        for name, array in self.weights(part).items():
            sharding = tensors[name].sharding
            if sharding is not None:
                yield name, self.setting.grid.lay_out(self.setting.precision.of(array), sharding)

    def _forward(self) -> None:
        x: Blocks = []
        for at, chunk in enumerate(self.chunks):
            if at:
                x = self._send(x, self.chunks[at - 1], chunk, FORWARD)
            for part in chunk.parts:
                run = self.runs[part.name] = self._execution(part, FORWARD)
                x = run.forward({"tokens": self._tokens()} if part.program == EMBEDDING else {"X": x})
                if self._parameters.leave(part):
                    run.forget()
        if self._parameters.leave_ends():
            for name in (EMBEDDING, HEAD):
                self.runs[name].forget()

    def _send(self, blocks: Blocks, source: Chunk, target: Chunk, direction: str) -> Blocks:
        """The stream (or its gradient) as each device holds it, to the stage that goes on with it."""
        if self.ledger.parallel.framework is Framework.VLLM:
            return self._send_parts(blocks, source, target)
        bits, stages = self.setting.elements.bits[Role.ACTIVATION], len(self.ledger.stages)
        (arrived,), counted = send([blocks], source.stage, target.stage, stages, bits)
        part, op, tensor = (TO_NEXT, "send activation", "X")
        if direction == BACKWARD:
            part, op, tensor = (TO_PREVIOUS, "send gradient", "dX")
        self.exchanges.append(Exchange(source.stage, part, part, direction, op, tensor, (STAGE_AXIS,), bits, counted))
        return arrived

    def _send_parts(self, blocks: Blocks, source: Chunk, target: Chunk) -> Blocks:
        """The stream as two terms, of which each TP rank sends its part; all are gathered where they arrive.

        Source: vLLM distributed/parallel_state.py, send_tensor_dict and recv_tensor_dict.
        """
        bits, grid = self.setting.elements.bits[Role.ACTIVATION], self.setting.grid
        stages = len(self.ledger.stages)
        residual = [self.setting.precision.of(block / 2) for block in blocks]
        held = {"hidden": [block - one for block, one in zip(blocks, residual, strict=True)], "residual": residual}
        axes, tensors = grid.mesh.expand([TP]), "X, residual"
        stored = Stored(blocks[0].shape, tuple(range(blocks[0].ndim)))
        shards = Shards(dict.fromkeys(held, stored), grid, axes)
        pieces = shards.own(held)
        arrived, counted = send(list(pieces.values()), source.stage, target.stage, stages, bits)
        whole, (gathered,) = shards.gather(dict(zip(pieces, arrived, strict=True)), bits)
        self.exchanges += [
            Exchange(source.stage, TO_NEXT, TO_NEXT, FORWARD, "send activation", tensors, (STAGE_AXIS,), bits, counted),
            Exchange(
                target.stage, TO_PREVIOUS, TO_PREVIOUS, FORWARD, "receive activation", tensors, axes, bits, gathered
            ),
        ]
        return [self.setting.precision.add(*pair) for pair in zip(*whole.values(), strict=True)]

    def _execution(self, part: Part, direction: str) -> Execution:
        derivation = self.derivations[part.program]
        return Execution(derivation, self.setting, self._parameters.use(part, weights_of(derivation), direction))

    def _tokens(self) -> Blocks:
        return [share.batch.tokens for share in self.setting.shares]

    def _backward(self) -> None:
        """From the mean loss over all ranks back; a layer that is recomputed runs again from its saved input."""
        rows = len(self.setting.shares[0].batch.tokens)
        first = np.full(rows, 1 / self.setting.grid.sizes["T"])
        seed = [self.setting.precision.of(first)] * self.setting.grid.devices
        for at, chunk in reversed(list(enumerate(self.chunks))):
            if at + 1 < len(self.chunks):
                seed = self._send(seed, self.chunks[at + 1], chunk, BACKWARD)
            for part in reversed(chunk.parts):
                seed = self._back(part, seed)

    def _back(self, part: Part, seed: Blocks) -> Blocks:
        """The backward pass of one part: the gradient of its input."""
        run = before = self.runs[part.name]
        derivation = self.derivations[part.program]
        if part.program not in (EMBEDDING, HEAD) and self.ledger.work.recompute is Recompute.FULL:
            run = self._again(part, run)
        else:
            run.give(self._parameters.use(part, weights_of(derivation), BACKWARD))
            run.forget_brought()
        run.backward(seed)
        run.values = before.values | run.values  # what was not computed again is compared as well
        for name, value in derivation.gradients.items():
            if derivation.program.tensors[name].role is Role.WEIGHT:
                self.gradients[f"{part.name}.{name}"] = value, run.held(value)
        return run.gradient("X") or []

    def _again(self, part: Part, run: Execution) -> Execution:
        """The layer's forward pass once more, from nothing but its input.

        PyTorch's checkpoint ends it where the last tensor is there again that the backward pass reads
        (torch.utils.checkpoint, early_stop); Megatron's runs all of it.
        """
        sharding = self.derivations[part.program].program.tensors["X"].sharding
        again = self._execution(part, BACKWARD)
        again.forward(
            {} if sharding is None else {"X": run.held(Value("X", sharding))},
            early=self.ledger.programs.dialect.stops_early,
        )
        self.recomputed[part.name] = again.forward_counts
        again.forward_counts = run.forward_counts
        self.runs[part.name] = again
        return again


def stored(
    arrays: Mapping[str, Array], derivation: Derivation, part: Part, sizes: Mapping[str, int]
) -> dict[str, Array]:
    """Whole weights (or their gradients) under the names of a program, and with its dimensions.

    A fused projection is its parts in a row; heads are columns where a program has no heads.
    """
    found = {}
    for name, tensor in derivation.program.tensors.items():
        if tensor.role is not Role.WEIGHT:
            continue
        parts = [arrays[full] for one in FUSED_WEIGHTS.get(name, ()) if (full := f"{part.name}.{one}") in arrays]
        if parts:
            found[name] = in_a_row(parts, len(tensor.dims) - 1)
        else:
            tied = name == "E" and part.program == HEAD
            whole = arrays[f"{EMBEDDING}.E" if tied else f"{part.name}.{name}"]
            found[name] = whole.reshape([sizes[dim] for dim in tensor.dims])
    return found


def in_a_row(parts: Sequence[Array], lead: int) -> Array:
    """Arrays side by side, with all dimensions behind the first ``lead`` flat."""
    return np.concatenate([one.reshape(*one.shape[:lead], -1) for one in parts], axis=-1)
