"""Which parameters are gathered and reduced together, and what devices hold of them while a model runs.

Under ZeRO 3 devices store shards. The parameters of a layer are gathered before it runs and forgotten after it, those
outside of layers gathered once; an operation that needs what is not gathered fails. Otherwise all are there all along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from commcalc.accounting.ledger import Ledger
from commcalc.accounting.programs import copies_of, replicating
from commcalc.algebra.program import Role
from commcalc.algebra.schedule import Derivation
from commcalc.simulate.buffers import Blocks, Pieces, Runs, Shards, Stored, first_dims
from commcalc.simulate.grid import Grid, shape_of
from commcalc.simulate.moves import Counted
from commcalc.simulate.stages import ALL, EMBEDDING, HEAD, ROOT, Chunk, Exchange, Part
from commcalc.transformer.layout import EDP
from commcalc.transformer.work import Reshard

ENDS = (EMBEDDING, HEAD)


class Unit(NamedTuple):
    """Parameters of one stage that are gathered and reduced in one call (or in buckets), by part and name.

    ``axes`` are those over which they are cut into shards (or summed), ``copies`` those that hold the same shards;
    ``groups`` are what ranks along the two are called. Experts that lie on other ranks than all else are by themselves.
    """

    stage: int
    name: str
    part: str
    members: tuple[str, ...]
    axes: tuple[str, ...]
    copies: tuple[str, ...] = ()
    groups: tuple[str, str] = ("", "")
    what: str = ""


class Cutter:
    """Cuts the members of a unit as its ZeRO stage says."""

    def __init__(self, ledger: Ledger, derivations: Mapping[str, Derivation], grid: Grid) -> None:
        self.grid, self.zero = grid, ledger.parallel.zero
        bucket = ledger.work.bucket_bytes
        # Buckets are counted in gradients; parameters go in the same buckets.
        self.most = None if bucket is None else max(bucket * 8 // ledger.work.grad_dtype.bits, 1)
        self.stored = {
            (program, weight): stored
            for program, derivation in derivations.items()
            for weight, stored in _stored(derivation, grid)
        }

    def shards(self, unit: Unit, parts: Mapping[str, Part], members: Sequence[str]) -> Shards:
        """Some members of a unit in shards."""
        stored = {}
        for name in members:
            part, weight = name.rsplit(".", 1)
            stored[name] = self.stored[parts[part].program, weight]
        if self.zero == 3:
            return Shards(stored, self.grid, unit.axes)
        return Runs(stored, self.grid, unit.axes, self.most)


def _stored(derivation: Derivation, grid: Grid) -> Iterator[tuple[str, Stored]]:
    tensors = derivation.program.tensors
    for op in derivation.program.ops:
        for weight in op.weights:
            sharding, dims = tensors[weight].sharding, tensors[weight].dims
            if sharding is not None:
                first = first_dims(op, weight, dims, tensors[op.output].dims)
                yield weight, Stored(shape_of(grid.blocks(sharding)[0]), first)


def units_of(ledger: Ledger, chunks: Sequence[Chunk], derivations: Mapping[str, Derivation]) -> list[Unit]:
    """The units of every stage: all of its parameters, or under ZeRO 3 those of each layer and those outside of layers.

    A table that embedding and head share is one parameter, where one stage has both.
    """
    sharded = ledger.parallel.zero == 3
    found: dict[tuple[int, str, tuple[str, ...]], Unit] = {}
    for chunk in chunks:
        for part in chunk.parts:
            name, kind = (part.name, part.program) if sharded else (ALL, ALL)
            if sharded and part.program in ENDS:
                name = kind = ROOT
            for weight in weights_of(derivations[part.program]):
                ranks = _alike(ledger, part, weight)
                unit = found.get((chunk.stage, name, ranks), _unit(ledger, ranks)._replace(part=kind))
                unit = unit._replace(stage=chunk.stage, name=name)
                if f"{part.name}.{weight}" != f"{HEAD}.E" or f"{EMBEDDING}.E" not in unit.members:
                    unit = unit._replace(members=(*unit.members, f"{part.name}.{weight}"))
                found[chunk.stage, name, ranks] = unit
    return list(found.values())


def _alike(ledger: Ledger, part: Part, weight: str) -> tuple[str, ...]:
    """The axes whose ranks hold the same part of a weight and have other tokens for it."""
    gradient = ledger.derivations[part.program].gradients.get(weight)
    pending = () if gradient is None else gradient.sharding.unreduced
    return tuple(axis for axis in copies_of(weight, ledger.layout) if axis in pending)


def _unit(ledger: Ledger, ranks: tuple[str, ...]) -> Unit:
    """A unit without members, whose parameters ``ranks`` hold alike."""
    layout = ledger.layout
    replicas = replicating(ledger.parallel, layout)
    axes, copies = (tuple(axis for axis in ranks if (axis in replicas) is held) for held in (False, True))
    groups = ("dp_shard", "dp_replica") if replicas else ("dp", "")
    if not layout.moves_tokens or ranks != layout.expert_data or ranks == layout.replicas:
        return Unit(0, "", "", (), axes, copies, groups)
    return Unit(0, "", "", (), axes, copies, (EDP, groups[1]), " of experts")


def weights_of(derivation: Derivation) -> list[str]:
    """The names of a program's weights."""
    return [name for name, tensor in derivation.program.tensors.items() if tensor.role is Role.WEIGHT]


class Parameters:
    """What devices hold of each unit. ``whole`` are every device's blocks of all weights, by part and name."""

    def __init__(
        self, ledger: Ledger, units: Sequence[Unit], cutter: Cutter, parts: Sequence[Part],
        whole: Mapping[str, Blocks], log: Callable[[Exchange], None],
    ) -> None:  # fmt: skip
        self._work, self._log = ledger.work, log
        sharded = ledger.parallel.zero == 3 and ledger.work.phase.training
        self._parts = {part.name: part for part in parts}
        self._shards = {
            unit: cutter.shards(unit, self._parts, unit.members) for unit in units if sharded and unit.axes
        }  # fmt: skip
        self._pieces: dict[Unit, Pieces] = {unit: shards.own(whole) for unit, shards in self._shards.items()}
        self._units: dict[str, list[Unit]] = {}
        for unit in self._shards:
            for part in dict.fromkeys(name.rsplit(".", 1)[0] for name in unit.members):
                self._units.setdefault(part, []).append(unit)
        cut = {name for unit in self._shards for name in unit.members} | ({f"{HEAD}.E"} if self._shards else set())
        self._there: dict[str, Blocks] = {name: blocks for name, blocks in whole.items() if name not in cut}

    def use(self, part: Part, weights: Sequence[str], direction: str) -> dict[str, Blocks]:
        """The weights of a part, gathered first where they are not there; by their short names."""
        for unit in self._units.get(part.name, ()):
            self._gather(unit, direction)
        found = {}
        for weight in weights:
            name = f"{part.name}.{weight}"
            if name not in self._there and name == f"{HEAD}.E":
                name = f"{EMBEDDING}.E"
            if name in self._there:
                found[weight] = self._there[name]
        return found

    def leave(self, part: Part) -> bool:
        """Forget the weights of a layer after its forward pass, where that is asked for; whether they are gone."""
        gone = part.program not in ENDS and self._work.reshard is not Reshard.NEVER
        units = self._units.get(part.name, ()) if gone else ()
        for unit in units:
            self._forget(unit)
        return bool(units)

    def leave_ends(self) -> bool:
        """Forget what lies outside of layers after the forward pass of the whole model."""
        gone = bool(self._shards) and self._work.reshard is Reshard.ALL
        for unit in self._shards if gone else ():
            if unit.name == ROOT:
                self._forget(unit)
        return gone

    def _gather(self, unit: Unit, direction: str) -> None:
        if all(name in self._there for name in unit.members):
            return
        bits = self._work.dtype.bits
        found, counts = self._shards[unit].gather(self._pieces[unit], bits)
        self._there |= found
        for counted in counts:
            self._log(parameters_moved(unit, direction, bits, counted))

    def _forget(self, unit: Unit) -> None:
        for name in unit.members:
            self._there.pop(name, None)


def parameters_moved(unit: Unit, direction: str, bits: int, counted: Counted, *, once: bool = False) -> Exchange:
    """The gather of a unit's parameters."""
    return Exchange(
        unit.stage, unit.name, unit.part, direction, "parameters", f"parameters{unit.what}", unit.axes, bits, counted,
        once, unit.groups[0],
    )  # fmt: skip


def gradients_moved(
    unit: Unit, direction: str, bits: int, counted: Counted, *, once: bool, copies: bool = False
) -> Exchange:
    """The reduction of a unit's gradients, or of their shards over copies."""
    tensor, axes = ("gradient shards", unit.copies) if copies else ("gradients", unit.axes)
    return Exchange(
        unit.stage, unit.name, unit.part, direction, "gradients", f"{tensor}{unit.what}", axes, bits, counted,
        once, unit.groups[copies],
    )  # fmt: skip
