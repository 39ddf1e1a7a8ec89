"""A small model on simulated devices: forward pass, loss, backward pass, gradient sync, as the ledger's programs say.

Embedding, every layer and the head run one after another, each by the schedule that its rows in the ledger come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from commcalc.accounting.ledger import RECOMPUTE, Ledger
from commcalc.algebra.program import Role
from commcalc.algebra.schedule import BACKWARD, FORWARD, Derivation, Value
from commcalc.simulate.execute import Blocks, Count, Execution, Setting
from commcalc.simulate.grid import Grid
from commcalc.simulate.local import Batch
from commcalc.simulate.moves import Counted, all_reduce_buffers
from commcalc.simulate.plain_layers import weight_shapes
from commcalc.simulate.precision import Precision
from commcalc.simulate.wire import Array
from commcalc.transformer.work import Recompute, Workload

EMBEDDING, BLOCK, HEAD = "embedding", "block", "head"
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
    """Weights by part and name (``block.0.Wq``), and the batch; the same for sharded and plain runs."""

    weights: dict[str, Array]
    batch: Batch


class Part(NamedTuple):
    """One program in the chain: which of the ledger's derivations it is, and its name in this model (``block.0``).

    A layer's program is that of its kind.
    """

    program: str
    name: str


class Synced(NamedTuple):
    """The coalesced AllReduce of gradients that are pending over ``axes``; ``tensors`` are their names."""

    axes: tuple[str, ...]
    tensors: str
    counted: Counted


def bits_of(work: Workload) -> dict[Role, int]:
    """How wide an element of each role is on the wire, said apart from the ledger: the loss is reduced in fp32.

    Masks are bytes, indices those of PyTorch (int64).
    """
    wide = {Role.ACTIVATION: work.dtype.bits, Role.WEIGHT: work.dtype.bits, Role.GRADIENT: work.grad_dtype.bits}
    return wide | {Role.FP32: 32, Role.MASK: 8, Role.INDEX: 64}


def random_data(ledger: Ledger, seed: int) -> Data:
    """Random weights and tokens for the ledger's model; equal seeds give equal data.

    A matrix has the spread 1/sqrt(rows) that keeps activations near 1; norm weights are near 1 and biases, sinks and
    rates near 0, none of them all alike, so that a weight that is used in the wrong place shows.
    """
    rng = np.random.default_rng(seed)
    sizes = ledger.sizes
    weights = {}
    for name, shape in weight_shapes(ledger.model, sizes).items():
        made = rng.standard_normal(shape)
        short = name.rsplit(".", 1)[1]
        if short.startswith("W") or short == "E":
            weights[name] = made / np.sqrt(_rows(short, shape))
        else:
            weights[name] = made * 0.3 + (1.0 if short.startswith("g") else 0.0)
    tokens, targets = rng.integers(0, sizes["V"], (2, sizes["T"]))
    return Data(weights, Batch(tokens, targets, sizes["B"], ledger.model.extra_position_rows))


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
        self.ledger = ledger
        self.data = data
        self.derivations = dict(derivations or ledger.derivations)
        grid = Grid(ledger.layout.mesh, ledger.sizes)
        self.setting = Setting(grid, precision, data.batch, bits_of(ledger.work))
        layers = ledger.programs.layers
        blocks = [Part(layers.names[kind], f"{BLOCK}.{at}") for at, kind in enumerate(layers.kinds)]
        self.parts = [Part(EMBEDDING, EMBEDDING), *blocks, Part(HEAD, HEAD)]
        self.runs: dict[str, Execution] = {}
        self.recomputed: dict[str, list[Count]] = {}
        self.synced: list[Synced] = []
        # Gradients of weights as the devices hold them in the end, by part and name.
        self.gradients: dict[str, tuple[Value, Blocks]] = {}
        self._forward()
        if ledger.work.phase.training:
            self._backward()
            self._sync()
            self._tie()

    def weights(self, part: Part) -> dict[str, Array]:
        """The whole weights of a part under the names of its program."""
        return stored(self.data.weights, self.derivations[part.program], part, self.ledger.sizes)

    def held(self, name: str) -> Blocks:
        """Every device's blocks of a weight, by part and name."""
        part, short = name.rsplit(".", 1)
        sharding = self.gradients[name][0].sharding
        array = self.weights(next(one for one in self.parts if one.name == part))[short]
        return [self.setting.precision.of(block) for block in self.setting.grid.lay_out(array, sharding)]

    def counts(self, part: Part, direction: str) -> list[Count]:
        """The collectives that ran in one direction, in order, without those of a group of one."""
        found = {
            FORWARD: self.runs[part.name].forward_counts,
            BACKWARD: self.runs[part.name].backward_counts,
            RECOMPUTE: self.recomputed.get(part.name, []),
        }[direction]
        return [count for count in found if count.counted.group_size > 1]

    def _forward(self) -> None:
        x: Blocks = []
        for part in self.parts:
            run = self.runs[part.name] = self._execution(part)
            x = run.forward({"tokens": self._tokens()} if part.program == EMBEDDING else {"X": x})

    def _execution(self, part: Part) -> Execution:
        derivation = self.derivations[part.program]
        tensors = derivation.program.tensors
        weights = {}
        for name, array in self.weights(part).items():
            sharding = tensors[name].sharding
            if sharding is not None:
                weights[name] = self.setting.grid.lay_out(self.setting.precision.of(array), sharding)
        return Execution(derivation, self.setting, weights)

    def _tokens(self) -> Blocks:
        return [self.data.batch.tokens] * self.setting.grid.devices

    def _backward(self) -> None:
        """From the mean loss back; a layer that is recomputed runs forward again from its saved input."""
        rows = self.ledger.sizes["T"]
        seed = [self.setting.precision.of(np.full(rows, 1 / rows))] * self.setting.grid.devices
        for part in reversed(self.parts):
            run = self.runs[part.name]
            before = run
            if part.program not in (EMBEDDING, HEAD) and self.ledger.work.recompute is Recompute.FULL:
                run = self._again(part, run)
            run.backward(seed)
            run.values = before.values | run.values  # what was not computed again is compared as well
            seed = run.gradient("X") or []
            derivation = self.derivations[part.program]
            for name, value in derivation.gradients.items():
                if derivation.program.tensors[name].role is Role.WEIGHT:
                    self.gradients[f"{part.name}.{name}"] = value, run.held(value)

    def _again(self, part: Part, run: Execution) -> Execution:
        """The layer's forward pass once more, from nothing but its input.

        PyTorch's checkpoint ends it where the last tensor is there again that the backward pass reads
        (torch.utils.checkpoint, early_stop); Megatron's runs all of it.
        """
        sharding = self.derivations[part.program].program.tensors["X"].sharding
        again = self._execution(part)
        again.forward(
            {} if sharding is None else {"X": run.held(Value("X", sharding))},
            early=self.ledger.programs.dialect.stops_early,
        )
        self.recomputed[part.name] = again.forward_counts
        again.forward_counts = run.forward_counts
        self.runs[part.name] = again
        return again

    def _sync(self) -> None:
        """Reduce the gradients that are still pending sums: one AllReduce for all that are pending over the same axes.

        Source: Megatron-LM core/distributed/finalize_model_grads.py, _allreduce_non_tensor_model_parallel_grads.
        """
        groups: dict[tuple[str, ...], list[str]] = {}
        for part in self.parts:
            for name, _ in self.derivations[part.program].pending:
                full = f"{part.name}.{name}"
                groups.setdefault(self.gradients[full][0].sharding.unreduced, []).append(full)
        bits, precision = self.ledger.work.grad_dtype.bits, self.setting.precision
        for axes, names in groups.items():
            held = [self.gradients[name][1] for name in names]
            buffers = [np.concatenate([block.ravel() for block in blocks]) for blocks in zip(*held, strict=True)]
            done = all_reduce_buffers(axes, buffers, self.setting.grid, bits, precision.add)
            if done.counted is not None and done.counted.group_size > 1:
                short = sorted({f"d{name.rsplit('.', 1)[1]}" for name in names})
                self.synced.append(Synced(axes, ", ".join(short), done.counted))
            ends = np.cumsum([blocks[0].size for blocks in held])[:-1]
            parted = [np.split(buffer, ends) for buffer in done.blocks]
            for at, name in enumerate(names):
                value, blocks = self.gradients[name]
                whole = value._replace(sharding=value.sharding.reduced())
                made = [pieces[at].reshape(block.shape) for pieces, block in zip(parted, blocks, strict=True)]
                self.gradients[name] = whole, made

    def _tie(self) -> None:
        """A tied head has the embedding's table: their gradients are added."""
        head, table = f"{HEAD}.E", f"{EMBEDDING}.E"
        if head in self.gradients:
            value, blocks = self.gradients.pop(head)
            other = self.gradients[table][1]
            both = [self.setting.precision.add(one, two) for one, two in zip(blocks, other, strict=True)]
            self.gradients[table] = value, both


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
