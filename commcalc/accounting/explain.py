"""Each number of a row with its formula and the values put into it, and what the names stand for."""

from __future__ import annotations

from commcalc.accounting.ledger import Ledger
from commcalc.accounting.links import explain_time, explain_wire
from commcalc.accounting.pricing import Entry, PricedLedger
from commcalc.accounting.rows import Row
from commcalc.transformer.spec import KEY_OF_DIM, Phase
from commcalc.units import format_bytes


def explain_row(entry: Entry, priced: PricedLedger) -> list[str]:
    """Lines that derive payload, wire bytes, time and number of calls of one row."""
    ledger, row = priced.ledger, entry.row
    payload = row.payload_bytes
    lines = [
        f"payload = {row.payload.text()} = {row.payload.with_values(ledger.sizes)} = {format_bytes(payload)} B",
        explain_wire(row.kind, row.group_size, payload, row.wire_bytes, ledger.convention),
        *explain_time(entry.priced, row.group_size, payload, _bound(entry)),
    ]
    lines.append(_calls(row, ledger))
    if row.note:
        lines.append(f"note: {row.note}")
    return lines


def _calls(row: Row, ledger: Ledger) -> str:
    times = ledger.times_in_step(row)
    if row.per == "step":
        return f"calls = {row.calls} in a step"
    each = counted(ledger.microbatches, "microbatch")
    if row.per == "block":
        each = f"{counted(ledger.stage.layers, 'block')} * {each}"
    if times == 0:
        end = "first" if row.part == "embedding" else "last"
        return f"calls = {row.calls} per {row.per} on the {end} stage; none on stage {ledger.stage.number}, the busiest"
    return f"calls = {row.calls} per {row.per} * {each} = {times} in a step"


def counted(number: int, what: str) -> str:
    """``1 block``, ``80 blocks``, ``4 microbatches``."""
    return f"{number} {what}" + ("" if number == 1 else "es" if what.endswith("ch") else "s")


def _bound(entry: Entry) -> str:
    equal = entry.crossover_payload_bytes
    return f"; {entry.bound} bound" + (
        f", latency and bandwidth equal at a payload of {format_bytes(equal)} B" if equal else ""
    )


def explain_names(priced: PricedLedger) -> list[str]:
    """What every name in the formulas stands for, with its value; then the links."""
    ledger = priced.ledger
    used = {name for entry in priced.entries for product in entry.row.payload.products for name in product.dims}
    used |= {name for entry in priced.entries for product in entry.row.payload.products for name in product.axes}
    lines = [f"{name} = {_meaning(name, ledger)} = {ledger.sizes[name]}" for name in ledger.sizes if name in used]
    return [*lines, "n = ranks in the group"]


def _meaning(name: str, ledger: Ledger) -> str:
    work = ledger.work
    if name == "T":
        tokens = "1 token" if work.phase is Phase.DECODE else str(work.tokens_per_sequence)
        return f"tokens of a microbatch = {work.micro_batch_size} * {tokens}"
    if name == "B":
        return "sequences of a microbatch"
    if name == "QKV":
        sizes = ledger.sizes
        return f"(N + 2*K)*H = ({sizes['N']} + 2*{sizes['K']})*{sizes['H']}"
    if name == "V":
        return "vocab_size, padded"
    return KEY_OF_DIM.get(name, f"ranks of axis {name}")


def explain_totals(priced: PricedLedger) -> list[str]:
    """How block, stage and step add up, in wire bytes."""
    ledger = priced.ledger
    block = [entry.row for entry in priced.entries if entry.row.per == "block"]
    terms = " + ".join(format_bytes(row.wire_bytes) for row in block) or "0"
    totals = priced.totals
    lines = [
        f"block = {terms} = {format_bytes(totals['block']['all'].wire_bytes)} B on the wire",
        f"stage = {counted(ledger.stage.layers, 'block')} * {format_bytes(totals['block']['all'].wire_bytes)}"
        f" = {format_bytes(totals['stage']['all'].wire_bytes)} B",
    ]
    rest = [entry.row for entry in priced.entries if entry.row.per != "block" and ledger.times_in_step(entry.row)]
    outside = "".join(f" + {ledger.times_in_step(row)} * {format_bytes(row.wire_bytes)}" for row in rest)
    stages = f"{counted(ledger.microbatches, 'microbatch')} * {format_bytes(totals['stage']['all'].wire_bytes)}"
    lines.append(f"step = {stages}{outside} = {format_bytes(totals['step']['all'].wire_bytes)} B")
    return lines
