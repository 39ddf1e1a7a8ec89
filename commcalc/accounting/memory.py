"""Memory of one device: parameters, gradients, optimizer, activations, cache and buffers; and whether it is enough.

Activations of a stage are those of a microbatch, as often as microbatches are under way when the first of them comes
back. Sources: Narayanan et al. 2021, arXiv:2104.04473, section 2.2 (1F1B: as many as stages lie behind);
Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.3 (interleaved: 1 + (p-1)/(pv) times as many layers);
DeepSeek-V3, arXiv:2412.19437, table 2 (DualPipe: one more than stages).
"""

from collections import Counter
from typing import NamedTuple

from commcalc.accounting.activations import Kept, kept_by, rows_as_chosen
from commcalc.accounting.choices import Part, States
from commcalc.accounting.compute import chunks_of, layers_held
from commcalc.accounting.draft import Draft, dtypes
from commcalc.accounting.holdings import cache_bytes, gathered, holdings
from commcalc.accounting.ledger import Ledger
from commcalc.accounting.programs import EMBEDDING, HEAD, PREDICTION
from commcalc.accounting.rows import UPDATE, Stage
from commcalc.algebra.schedule import Value
from commcalc.errors import CommcalcError, IllegalDegree, UsageError
from commcalc.transformer.work import Parallelism, Recompute, Schedule


class Memory(NamedTuple):
    """Bytes on one device of ``stage``; ``hosted`` lies on the host instead, ``capacity`` is None where not known."""

    stage: int
    weights: int
    gradients: int
    optimizer: int
    activations: int
    kv_cache: int
    buffers: int
    hosted: int
    capacity: int | None
    # Of the block that most layers are, and of what runs again.
    block_activations: int
    working: int
    # Microbatches under way, in layers: what `activations` multiplies.
    in_flight: int
    # Parameters as one device uses them, and the tensors that a block of the usual kind keeps.
    parameters: int
    tensors: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        """All that lies on the device."""
        parts = self.weights + self.gradients + self.optimizer + self.activations + self.kv_cache + self.buffers
        return parts - self.hosted

    @property
    def margin(self) -> int | None:
        """What is left; below zero what is missing."""
        return None if self.capacity is None else self.capacity - self.total

    @property
    def fits(self) -> bool | None:
        """Whether it is enough; None where the capacity is not known."""
        return None if self.margin is None else self.margin >= 0


def memory_of(ledger: Ledger, states: States, capacity: int | None) -> tuple[Memory, ...]:
    """Memory of every stage, in order."""
    draft = ledger.draft
    kept = kept_by(draft)
    largest = max(
        (row.payload_bytes for row in ledger.rows[: ledger.of_programs] if row.direction != UPDATE), default=0
    )
    working = (
        max(_operands(draft, name) for name in draft.programs.derivations) if not ledger.work.phase.training else 0
    )
    return tuple(_of_stage(ledger, draft, stage, kept, states, capacity, largest, working) for stage in ledger.stages)


def fullest(found: tuple[Memory, ...]) -> Memory:
    """The stage that needs most; the first of equals."""
    return max(found, key=lambda one: (one.total, -one.stage))


def _of_stage(
    ledger: Ledger,
    draft: Draft,
    stage: Stage,
    kept: dict[str, Kept],
    states: States,
    capacity: int | None,
    largest: int,
    working: int,
) -> Memory:
    held = holdings(draft, stage, states)
    activations, flying = _activations(ledger, stage, kept)
    # What runs again is there while its layers are differentiated, as many as run at once.
    at_once = min(_at_once(ledger), max(len(chunk) for chunk in chunks_of(ledger, stage)))
    there = [kept[name] for name in ledger.programs.blocks if stage.times[name]]
    held_again = [one.whole * at_once - one.stored for one in there]
    again = max(held_again, default=0) if ledger.work.recompute is not Recompute.NONE else 0
    cache = cache_bytes(draft, dict(layers_held(ledger, stage)), states)
    parts = {
        Part.WEIGHTS: held.weights,
        Part.GRADIENTS: held.gradients,
        Part.OPTIMIZER: held.optimizer,
        Part.ACTIVATIONS: activations,
        Part.KV_CACHE: cache,
    }
    return Memory(
        stage.number, held.weights, held.gradients, held.optimizer, activations + again + working, cache,
        largest + gathered(draft, stage), sum(parts[part] for part in states.offload), capacity,
        kept[ledger.usual].stored, again + working, flying, held.elements, kept[ledger.usual].tensors,
    )  # fmt: skip


def _activations(ledger: Ledger, stage: Stage, kept: dict[str, Kept]) -> tuple[int, int]:
    """Bytes that microbatches under way have left on a stage, and how many layers' worth that is."""
    if not ledger.work.phase.training:
        return 0, 0
    each = _at_once(ledger)
    layers, found, flying = ledger.programs.layers, 0, 0
    counts = in_flight(ledger.parallel, ledger.microbatches, stage.number)
    for chunk, count in zip(chunks_of(ledger, stage), counts, strict=True):
        names = [layers.names[layers.kinds[at]] for at in chunk]
        found += count * sum(kept[name].stored for name in names[::each])
        flying += count * len(names)
    ends = {EMBEDDING: max(counts) if stage.ends > 1 else counts[0], PREDICTION: counts[-1], HEAD: 1}
    for name, count in ends.items():
        if name in kept:
            found += count * stage.times[name] * kept[name].stored
    return found, flying


def _at_once(ledger: Ledger) -> int:
    """Layers that run again together."""
    return ledger.work.recompute_layers if ledger.work.recompute is Recompute.FULL else 1


def in_flight(parallel: Parallelism, microbatches: int, stage: int) -> tuple[int, ...]:
    """Microbatches whose activations a stage holds at most, for each chunk of its layers.

    >>> in_flight(Parallelism(pp=8), 64, 0), in_flight(Parallelism(pp=8), 64, 7)
    ((8,), (1,))
    """
    stages, chunks, m = parallel.pp, parallel.virtual_stages, microbatches
    if parallel.mirrors > 1:  # of its own stage, and of the mirror's: those that enter at the other end
        return (min(m // 2, stages - stage), min(m // 2, stage + 1))
    if parallel.schedule is not Schedule.INTERLEAVED or stages == 1:
        return (min(m, stages - stage),)
    # Forward passes before the first backward one (Megatron-LM core/pipeline_parallel/schedules.py).
    run = min((stages - stage - 1) * 2 + (chunks - 1) * stages + 1, m * chunks)
    started = Counter(at % (stages * chunks) // stages for at in range(run))
    return tuple(started[chunk] for chunk in range(chunks))


def _operands(draft: Draft, name: str) -> int:
    """Bytes of the operation that holds most at once: all it reads, and what it makes."""
    draft = rows_as_chosen(draft)
    derivation = draft.programs.derivations[name]
    types, tensors = dtypes(draft.work), derivation.program.tensors

    def size(value: Value) -> int:
        bits = types[tensors[value.name].role].bits
        count: int = draft.own(value.sharding.local_size(bits)).value(draft.sizes)
        return count

    return max(
        sum(size(value) for value in (*placed.operands[: len(placed.op.inputs)], placed.made))
        for placed in derivation.placed
    )


def misfits(found: tuple[Memory, ...], states: States) -> list[CommcalcError]:
    """What does not fit where fitting was demanded, and what is to lie on a host that is too small."""
    wrong: list[CommcalcError] = []
    most = max(one.hosted for one in found)
    if states.offload and states.host_bytes is None:
        message = f"{', '.join(states.offload)} on the host, whose memory is not given"
        wrong.append(
            UsageError(message, where="memory.offload (--offload)", hint="--host-memory SIZE, for each device")
        )
    elif states.host_bytes is not None and most > states.host_bytes:
        message = f"{most:,} B of {', '.join(states.offload)} do not fit the {states.host_bytes:,} B of a device's host"
        wrong.append(IllegalDegree(message, where="memory.offload (--offload)", hint="offload less, or more devices"))
    worst = fullest(found)
    if states.must_fit and worst.capacity is None:
        message = "whether it fits cannot be told: the memory of a device is not known"
        wrong.append(UsageError(message, where="--must-fit", hint="--hardware NAME"))
    elif states.must_fit and worst.margin is not None and worst.margin < 0:
        of = f"{worst.total:,} B of {worst.capacity:,} B"
        message = f"stage {worst.stage} needs {of}: {-worst.margin:,} B are missing"
        hint = "a higher --tp, --pp or --zero, --recompute full, a smaller --micro-batch, or --offload"
        wrong.append(IllegalDegree(message, where="--must-fit", hint=hint))
    return wrong
