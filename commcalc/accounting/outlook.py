"""Memory and the step of a priced ledger together, with what is to be said of them."""

from typing import NamedTuple

from commcalc.accounting.choices import Chip, Clock, Combine, Part, Scores, States
from commcalc.accounting.compute import lacking_sizes
from commcalc.accounting.memory import Memory, fullest, memory_of, misfits
from commcalc.accounting.overlap import cannot_overlap, refused
from commcalc.accounting.pricing import PricedLedger, Total, totals_of_stages
from commcalc.accounting.rows import AXES, Stage, Warn
from commcalc.accounting.step import Machine, Step, can_time, step_of
from commcalc.errors import SpecError, raise_all
from commcalc.network.cost import Algorithm
from commcalc.network.link import Network
from commcalc.transformer.spec import Phase
from commcalc.transformer.work import AttentionKernel, Recompute
from commcalc.units import format_bytes, format_flops


class Outlook(NamedTuple):
    """Totals of a step by stage, memory of every stage, and the step; None where sizes or the machine are not known."""

    stages: tuple[Stage, ...]
    totals: tuple[dict[str, Total], ...]
    memory: tuple[Memory, ...] | None
    step: Step | None
    warnings: tuple[Warn, ...]
    assumptions: tuple[str, ...]


def outlook_of(
    priced: PricedLedger, chip: Chip, network: Network | None, algorithm: Algorithm, states: States, clock: Clock
) -> Outlook:
    """What fits and how long it takes; `IllegalDegree` or `UsageError` for what was demanded and cannot be."""
    ledger = priced.ledger
    raise_all(refused(clock.overlap, ledger.parallel, ledger.work))
    totals = totals_of_stages(priced, network, algorithm)
    lacking = lacking_sizes(ledger)
    if lacking:
        why = f"memory and step are not counted: the model does not give {', '.join(lacking)}"
        if states != States() or clock != Clock():
            raise SpecError(why, where="memory or step", hint="give the sizes, or leave out what asks for them")
        return Outlook(ledger.stages, totals, None, None, (), (why, _NOTHING_HIDDEN))
    memory = memory_of(ledger, states, chip.hbm_bytes)
    raise_all(misfits(memory, states))
    step = None
    if network is not None:
        step = step_of(priced, Machine(chip, network, algorithm), clock, states)
    said = [*_of_memory(priced, states), *_of_step(priced, chip, clock, step)]
    warnings = _warnings(priced, chip, states, clock, memory, timed=network is not None)
    return Outlook(ledger.stages, totals, memory, step, tuple(warnings), tuple(said))


_NOTHING_HIDDEN = "no communication is hidden behind compute"


def _of_memory(priced: PricedLedger, states: States) -> list[str]:
    """What the bytes of memory are of."""
    from commcalc.accounting.holdings import stored_as

    ledger, work = priced.ledger, priced.ledger.work
    draft = ledger.draft
    stored = stored_as(draft, states)
    if not work.phase.training:
        layout = ledger.layout
        sequences = work.global_batch_size // (ledger.parallel.dp * layout.mesh.size(layout.dealt))
        return [
            f"memory: weights in {stored}, keys and values in {states.kv_dtype or work.dtype} for "
            f"{sequences} sequences of {work.sequence_length} tokens on a device, "
            "the operation that holds most at once, and the buffer of the largest call"
        ]
    master = states.master(stored)
    copies = [f"{states.optimizer.moments} moments in {states.moment_dtype}"] if states.optimizer.moments else []
    copies += [f"a copy of the parameters in {master}"] if master else []
    copies += [f"a copy of the gradients in {states.main_grad_dtype}"] if states.main_grad_dtype else []
    kept = {
        Recompute.NONE: "all that derivatives read",
        Recompute.SELECTIVE: "what derivatives read and does not run again",
        Recompute.FULL: "the input of every layer, or of as many as run again at once, and all of those while they run",
    }[work.recompute]
    scores = "" if work.attention is AttentionKernel.FLASH else ", scores of attention too"
    return [
        f"memory: parameters in {stored}, gradients in {work.grad_dtype}, {states.optimizer}: "
        f"{', '.join(copies) or 'nothing beside them'}",
        f"activations: {kept}{scores}; {'with' if work.dropout else 'without'} masks of dropout; statistics of a token "
        "(norms, softmax), buffers of libraries and fragments are not counted",
    ]


def _of_step(priced: PricedLedger, chip: Chip, clock: Clock, step: Step | None) -> list[str]:
    """What the times of a step rest on."""
    if step is None:
        return [_NOTHING_HIDDEN]
    work = priced.ledger.work
    peak = format_flops(chip.flops[work.dtype])
    best = " (an upper bound of speed: --efficiency)" if clock.efficiency == 1 else ""
    said = [f"compute: FLOPs of products and attention at {float(clock.efficiency):g} of {peak} in {work.dtype}{best}"]
    if work.phase is Phase.DECODE:
        said.append(
            f"decode: weights and cache are read at {float(clock.hbm_efficiency):g} of the memory's bandwidth, "
            "of experts those that some token chose; products no faster than their weights"
        )
    elif clock.scores is Scores.FULL:
        said.append("attention is counted over all pairs of tokens, as published MFU is; --scores causal halves it")
    if not clock.overlap:
        return [*said, _NOTHING_HIDDEN]
    who = "every group" if set(clock.overlap) >= set(AXES) else ", ".join(clock.overlap)
    how = "their times are added" if clock.combine is Combine.ADDED else "the larger of their times counts"
    said.append(f"{who} runs beside the compute of its pass, {how}; the rest is exposed")
    return said


def _warnings(
    priced: PricedLedger, chip: Chip, states: States, clock: Clock, memory: tuple[Memory, ...], *, timed: bool
) -> list[Warn]:
    """What does not fit, and what could not be timed."""
    ledger, found = priced.ledger, list[Warn]()
    worst = fullest(memory)
    if worst.margin is not None and worst.margin < 0:
        of = f" (stage {worst.stage})" if len(memory) > 1 else ""
        needs = f"{format_bytes(worst.total)} B of {format_bytes(worst.capacity or 0)} B"
        message = f"the model does not fit{of}: {needs}, {format_bytes(-worst.margin)} B are missing"
        found.append(Warn("does-not-fit", message))
    found += _without_effect(priced, states, clock, memory)
    if timed and states.offload:
        message = f"{', '.join(states.offload)} lie on the host: how long they are on their way is not counted"
        found.append(Warn("offload-not-timed", message))
    if ledger.model.index_layers:
        message = (
            "sparse attention is counted over all tokens; what its indexer computes is not counted, its weights are"
        )
        found.append(Warn("indexer-not-counted", message))
    if timed and not can_time(priced, chip):
        what = f"FLOP/s in {ledger.work.dtype}" if ledger.work.dtype not in chip.flops else "bandwidth of its memory"
        found.append(Warn("step-not-timed", f"the machine gives no {what}: communication is timed, the step is not"))
    if timed and set(clock.overlap) >= set(AXES):
        waits = cannot_overlap(clock.overlap, ledger.parallel, ledger.work)
        for axis, why in waits.items():
            found.append(Warn("overlap-is-a-bound", f"all groups overlap, {axis} too, though {why}"))
    return found


def _amount(memory: tuple[Memory, ...], part: Part) -> int:
    """Bytes of a part that lie anywhere; of activations, those that wait for a backward pass."""
    amounts = {
        Part.WEIGHTS: [one.weights for one in memory],
        Part.GRADIENTS: [one.gradients for one in memory],
        Part.OPTIMIZER: [one.optimizer for one in memory],
        Part.ACTIVATIONS: [one.in_flight for one in memory],
        Part.KV_CACHE: [one.kv_cache for one in memory],
    }
    return sum(amounts[part])


def _without_effect(priced: PricedLedger, states: States, clock: Clock, memory: tuple[Memory, ...]) -> list[Warn]:
    """Options that change nothing here, by what they would be for."""
    work, usual = priced.ledger.work, States()
    training, decoding = work.phase.training, work.phase is Phase.DECODE
    again = work.recompute_layers > 1 and work.recompute is not Recompute.FULL
    of_training = ("optimizer", "moment_dtype", "master_dtype", "main_grad_dtype")
    states_given = [name for name in of_training if getattr(states, name) != getattr(usual, name)]
    idle = {
        "it is for training": [f"--{name.replace('_', '-')}" for name in states_given if not training]
        + ["--dropout"] * (work.dropout and not training)
        + ["--train-tokens"] * (clock.train_tokens is not None and not training),
        "it is for prefill and decode": ["--kv-dtype"] * (states.kv_dtype is not None and training),
        "it is for decode": ["--hbm-efficiency"] * (clock.hbm_efficiency != 1 and not decoding),
        "whole layers do not run again": ["--recompute-layers"] * again,
        "nothing overlaps": ["--combine"] * (clock.combine is not Combine.ADDED and not clock.overlap),
        "nothing lies on the host": ["--host-memory"] * (states.host_bytes is not None and not states.offload),
        "there is none of it": [f"--offload {part}" for part in states.offload if not _amount(memory, part)],
    }
    return [Warn("option-without-effect", f"{', '.join(names)}: {why}") for why, names in idle.items() if names]
