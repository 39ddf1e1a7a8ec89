"""Memory and the step: as parts of the ledger's document, and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from commcalc.accounting.memory import Memory, fullest
from commcalc.accounting.outlook import Outlook
from commcalc.accounting.pricing import Total
from commcalc.accounting.step import Decode, StageTime, Step
from commcalc.report.table import Column, Table
from commcalc.units import format_binary, format_bytes, format_seconds

_DAY = 86400.0


def outlook_documents(outlook: Outlook) -> dict[str, object]:
    """``memory``, ``step``, ``block`` and ``stages`` of the document; null where what they need is not known."""
    memory, step = outlook.memory, outlook.step
    return {
        "memory": memory_document(fullest(memory)) if memory else None,
        "step": step_document(step) if step else None,
        "block": _block(step) if step else None,
        "stages": _stages(outlook),
    }


def memory_document(memory: Memory) -> dict[str, object]:
    """Bytes on one device of the stage that needs most."""
    return {
        "stage": memory.stage,
        "weights_bytes": memory.weights,
        "gradients_bytes": memory.gradients,
        "optimizer_bytes": memory.optimizer,
        "activations_bytes": memory.activations,
        "kv_cache_bytes": memory.kv_cache,
        "buffers_bytes": memory.buffers,
        "offloaded_bytes": memory.hosted,
        "total_bytes": memory.total,
        "capacity_bytes": memory.capacity,
        "margin_bytes": memory.margin,
        "fits": memory.fits,
        "block_activations_bytes": memory.block_activations,
        "working_bytes": memory.working,
        "layers_in_flight": memory.in_flight,
    }


def step_document(step: Step) -> dict[str, object]:
    """Times of the slowest stage, bounds, and what follows from them."""
    one = step.slowest
    return {
        "stage": one.stage,
        "time_s": step.time_s,
        "serial_s": step.serial_s,
        "overlapped_s": step.overlapped_s,
        "compute_s": step.microbatches * one.compute_s,
        "comm_s": step.comm_s,
        "exposed_s": step.exposed_s,
        "bubble_s": step.bubble_s,
        "exposed": step.exposed,
        "microbatch": {
            "count": step.microbatches,
            "forward_s": one.forward_s,
            "backward_s": one.backward_s,
            "recompute_s": one.recompute_s,
            "comm_s": one.comm_s,
            "exposed_s": one.exposed_s,
        },
        "tokens": step.tokens,
        "tokens_per_s": step.tokens_per_s,
        "tokens_per_s_per_device": step.tokens_per_s / step.devices,
        "model_flops": step.model_flops,
        "flops": step.flops,
        "mfu": step.mfu,
        "hfu": step.hfu,
        "train_days": None if step.train_s is None else step.train_s / _DAY,
        "decode": _decode(step.decode) if step.decode else None,
    }


def _decode(decode: Decode) -> dict[str, object]:
    return {
        "time_s": decode.time_s,
        "weights_s": decode.weights_s,
        "kv_s": decode.kv_s,
        "flops_s": decode.flops_s,
        "calls": decode.calls,
        "fixed_s": decode.fixed_s,
        "bytes_s": decode.bytes_s,
        "hidden_s": decode.hidden_s,
    }


def _block(step: Step) -> dict[str, object]:
    block = step.block
    return {
        "flops": step.block_flops,
        "compute_s": block.compute_s,
        "comm_s": block.comm_s,
        "exposed_s": block.exposed_s,
        "exposed_share": block.exposed_share,
    }


def _stages(outlook: Outlook) -> list[dict[str, object]]:
    """One record a stage: its layers, what it moves in a step, its memory, and where it is timed its times."""
    count = len(outlook.stages)
    times: Sequence[StageTime | None] = outlook.step.stages if outlook.step else [None] * count
    memories: Sequence[Memory | None] = outlook.memory or [None] * count
    return [
        {
            "stage": stage.number,
            "layers": stage.layers,
            "memory_bytes": memory.total if memory else None,
            "compute_s": one.compute_s if one else None,
            "comm_s": one.comm_s if one else None,
            "exposed_s": one.exposed_s if one else None,
            "once_exposed_s": one.once_exposed_s if one else None,
            "totals": totals_record(totals),
        }
        for stage, totals, memory, one in zip(outlook.stages, outlook.totals, memories, times, strict=True)
    ]


def totals_record(totals: Mapping[str, Total]) -> dict[str, object]:
    """What the rows of each group add up to."""
    return {
        group: {
            "count": total.calls,
            "payload_bytes": total.payload_bytes,
            "wire_bytes": total.wire_bytes,
            "time_s": total.time_s,
        }
        for group, total in totals.items()
    }


def outlook_tables(outlook: Outlook) -> list[Table]:
    """Memory, then the step, as far as they are known."""
    found = [_stages_table(outlook)] if len(outlook.stages) > 1 else []
    if outlook.memory:
        found.append(_memory_table(fullest(outlook.memory), len(outlook.memory)))
    if outlook.step:
        found.append(_step_table(outlook.step))
    return found


def _stages_table(outlook: Outlook) -> Table:
    """A line for stages in a row that are alike."""
    rows: list[tuple[str, tuple[str, ...]]] = []
    for record, totals in zip(_stages(outlook), outlook.totals, strict=True):
        seconds = (record["compute_s"], record["exposed_s"])
        cells = (
            str(record["layers"]),
            format_bytes(totals["all"].wire_bytes),
            "" if record["memory_bytes"] is None else format_bytes(int(str(record["memory_bytes"]))),
            *("" if value is None else format_seconds(float(str(value))) for value in seconds),
        )
        number = str(record["stage"])
        if rows and rows[-1][1] == cells:
            number = f"{rows.pop()[0].partition('..')[0]}..{number}"
        rows.append((number, cells))
    columns = (
        Column("stage"), Column("layers", True), Column("wire bytes in a step", True), Column("memory", True),
        Column("compute of a microbatch", True), Column("exposed", True),
    )  # fmt: skip
    return Table("Stages", columns, tuple((number, *cells) for number, cells in rows))


def _memory_table(memory: Memory, stages: int) -> Table:
    flying = f" ({memory.in_flight} layers under way)" if memory.in_flight else ""
    parts = {
        "weights": memory.weights,
        "gradients": memory.gradients,
        "optimizer": memory.optimizer,
        f"activations{flying}": memory.activations,
        "kv cache": memory.kv_cache,
        "buffers": memory.buffers,
        "on the host": -memory.hosted,
    }
    rows = [(name, format_bytes(size), _signed(size)) for name, size in parts.items() if size]
    rows.append(("total", format_bytes(memory.total), format_binary(memory.total)))
    if memory.capacity is not None and memory.margin is not None:
        rows.append(("of", format_bytes(memory.capacity), format_binary(memory.capacity)))
        word = "left" if memory.margin >= 0 else "missing"
        rows.append((word, format_bytes(abs(memory.margin)), format_binary(abs(memory.margin))))
    which = f" of stage {memory.stage}" if stages > 1 else ""
    return Table(
        f"Memory of a device{which}", (Column("part"), Column("bytes", True), Column("size", True)), tuple(rows)
    )


def _signed(size: int) -> str:
    return format_binary(size) if size >= 0 else f"-{format_binary(-size)}"


def _step_table(step: Step) -> Table:
    one, whole = step.slowest, step.time_s
    m = step.microbatches

    def row(name: str, seconds: float) -> tuple[str, ...]:
        sign = "-" if seconds < 0 else ""
        return (name, f"{sign}{format_seconds(abs(seconds))}", f"{100 * seconds / whole:.1f} %")

    if step.decode is not None:
        decode = step.decode
        parts = {
            "read weights": decode.weights_s,
            "read keys and values": decode.kv_s,
            "compute beyond that": decode.flops_s,
            f"fixed cost of {decode.calls:,} calls": decode.fixed_s,
            "bytes of them": decode.bytes_s,
            "hidden of all that": -decode.hidden_s,
        }
        whole = decode.time_s
        rows = [row(name, seconds) for name, seconds in parts.items() if seconds]
        rows.append(row("time of a token", whole))
        rows.append(("tokens/s", f"{step.tokens_per_s:,.1f}", ""))
        return Table("A token of each sequence", _COLUMNS, tuple(rows))
    parts = {"forward": m * one.forward_s, "backward": m * one.backward_s, "recompute": m * one.recompute_s}
    rows = [row(name, seconds) for name, seconds in parts.items() if seconds]
    rows += [row(f"exposed {group}", seconds) for group, seconds in step.exposed.items() if seconds]
    rows += [row("bubble", step.bubble_s)] if step.bubble_s else []
    rows.append(row("step", whole))
    rows.append(("nothing hidden", format_seconds(step.serial_s), ""))
    rows.append(("everything hidden", format_seconds(step.overlapped_s), ""))
    rows.append(("tokens/s", f"{step.tokens_per_s:,.1f}", ""))
    rows.append(("MFU", f"{100 * step.mfu:.1f} %", ""))
    if step.train_s is not None:
        rows.append((f"days for {step.train_tokens:,} tokens", f"{step.train_s / _DAY:,.1f}", ""))
    return Table("Step", _COLUMNS, tuple(rows))


_COLUMNS = (Column("part"), Column("time", True), Column("share", True))
