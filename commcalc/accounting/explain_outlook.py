"""Memory and the step with their formulas and the values put into them."""

from __future__ import annotations

from fractions import Fraction

from commcalc.accounting.choices import States
from commcalc.accounting.holdings import stored_as
from commcalc.accounting.ledger import Ledger
from commcalc.accounting.memory import Memory, fullest
from commcalc.accounting.outlook import Outlook
from commcalc.accounting.step import Step
from commcalc.units import format_bytes, format_flops, format_seconds


def explain_outlook(outlook: Outlook, ledger: Ledger, states: States) -> list[str]:
    """Lines that derive memory and step, as far as they are known."""
    lines = []
    if outlook.memory:
        lines += ["memory", *(f"  {line}" for line in _memory(fullest(outlook.memory), ledger, states))]
    if outlook.step:
        lines += ["step", *(f"  {line}" for line in _step(outlook.step))]
    return lines


def _memory(memory: Memory, ledger: Ledger, states: States) -> list[str]:
    draft = ledger.draft
    stored, work, zero = stored_as(draft, states), ledger.work, ledger.parallel.zero
    training = work.phase.training
    held = {3: " in shards"}.get(zero, "") if training else ""
    lines = [
        f"parameters of a device = {format_bytes(memory.parameters)}",
        f"weights = parameters{held} * {_bytes(stored.bits)} B = {format_bytes(memory.weights)} B",
    ]
    if training:
        sharded = {0: "", 1: "", 2: " in shards", 3: " in shards"}[zero]
        of = " in shards" if zero else ""
        each = [f"{states.optimizer.moments} * {_bytes(states.moment_dtype.bits)}"] if states.optimizer.moments else []
        each += [_bytes(copy.bits) for copy in (states.master(stored), states.main_grad_dtype) if copy]
        lines += [
            f"gradients = parameters{sharded} * {_bytes(work.grad_dtype.bits)} B = {format_bytes(memory.gradients)} B",
            f"optimizer = parameters{of} * ({' + '.join(each) or '0'}) B = {format_bytes(memory.optimizer)} B",
            f"a block keeps {' + '.join(f'{name} {format_bytes(size)}' for name, size in memory.tensors)} "
            f"= {format_bytes(memory.block_activations)} B",
            f"activations = {memory.in_flight} layers under way, embedding and head = "
            f"{format_bytes(memory.activations)} B",
        ]
        if memory.working:
            lines[-1] += f", of which {format_bytes(memory.working)} B while layers run again"
    elif memory.kv_cache:
        lines.append(f"kv cache = {format_bytes(memory.kv_cache)} B for {work.sequence_length} tokens of a sequence")
    lines.append(f"buffers = {format_bytes(memory.buffers)} B: the largest call, and parameters gathered whole")
    return lines


def _bytes(bits: int) -> str:
    return f"{float(Fraction(bits, 8)):g}"


def _step(step: Step) -> list[str]:
    one, flops, m = step.slowest, step.stage_flops, step.microbatches
    rate = format_flops(step.rate)
    passes = {"forward": (flops.forward, one.forward_s), "backward": (flops.backward, one.backward_s)}
    passes["recompute"] = (flops.recompute, one.recompute_s)
    lines = []
    if step.decode is None:
        lines += [
            f"{name} = {count:,} FLOP / {rate} = {format_seconds(seconds)} a microbatch"
            for name, (count, seconds) in passes.items()
            if count
        ]
    lines.append(
        f"step = {m} * ({format_seconds(one.compute_s)} + {format_seconds(one.exposed_s)} exposed) * "
        f"(1 + {step.idle:.4g} bubble) + {format_seconds(one.once_exposed_s)} once = {format_seconds(step.time_s)}"
    )
    lines.append(f"tokens/s = {step.tokens:,} / {format_seconds(step.time_s)} = {step.tokens_per_s:,.1f}")
    if step.decode is None:
        of = f"{step.devices} * {format_flops(step.peak)} * {format_seconds(step.time_s)}"
        lines.append(f"MFU = {step.model_flops:,} FLOP of the model / ({of}) = {100 * step.mfu:.1f} %")
    return lines
