"""Each number of a row with its formula and the values put into it, and what the names stand for."""

from __future__ import annotations

from collections.abc import Mapping

from commcalc.accounting.ledger import Ledger
from commcalc.accounting.links import explain_time, explain_wire
from commcalc.accounting.pricing import Entry, PricedLedger
from commcalc.accounting.rows import TO_NEXT, TO_PREVIOUS, Row
from commcalc.transformer.spec import KEY_OF_DIM, MADE_DIMS, Phase
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
    if row.per == "layer":
        return f"calls = {row.calls} per layer * {_blocks(row.part, ledger)} = {times} in a step"
    each, runs = _microbatches(ledger), ledger.stage.times[row.part]
    if row.per == "block":
        each = f"{_blocks(row.part, ledger)} * {each}"
    elif runs > 1:
        what = "time" if row.part not in (TO_NEXT, TO_PREVIOUS) else "chunk" if ledger.stage.ends == 1 else "stage"
        each = f"{counted(runs, what)} * {each}"
    if times == 0:
        end = "first" if row.part == "embedding" else "last"
        stage = ledger.stage
        here = f"stage {stage.number}"
        if stage.ends > 1:
            here = f"stages {stage.number} and {len(ledger.stages) - 1 - stage.number}"
        return f"calls = {row.calls} per {row.per} on the {end} stage; none on {here}, the busiest"
    return f"calls = {row.calls} per {row.per} * {each} = {times} in a step"


def _microbatches(ledger: Ledger) -> str:
    """How often a step runs what the rank holds: ``4 microbatches``, or from both ends ``2 pairs of microbatches``."""
    pairs = ledger.microbatches // ledger.stage.ends
    if ledger.stage.ends == 1:
        return counted(pairs, "microbatch")
    return f"{counted(pairs, 'pair')} of microbatches"


def _blocks(part: str, ledger: Ledger, times: Mapping[str, int] | None = None) -> str:
    """How many blocks of a kind the rank runs: ``80 blocks``, ``58 moe blocks``."""
    kind = "block" if len(ledger.programs.blocks) == 1 else f"{part} block"
    return counted((ledger.stage.times if times is None else times)[part], kind)


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
    if name == "V":
        return "vocab_size, padded"
    if name == "QKV" and "HV" not in ledger.sizes and not ledger.model.attention_output_gate:
        sizes = ledger.sizes
        return f"(N + 2*K)*H = ({sizes['N']} + 2*{sizes['K']})*{sizes['H']}"
    return KEY_OF_DIM.get(name) or MADE_DIMS.get(name) or f"ranks of axis {name}"


def explain_totals(priced: PricedLedger) -> list[str]:
    """How block, stage and step add up, in wire bytes."""
    ledger = priced.ledger
    totals = priced.totals
    stage = ledger.stage
    lines: list[str] = []
    for name, block in priced.blocks.items():
        rows = [entry.row for entry in priced.entries if entry.row.part == name]
        terms = " + ".join(format_bytes(row.wire_bytes) for row in rows) or "0"
        kind = "block" if len(priced.blocks) == 1 else f"{name} block"
        lines.append(f"{kind} = {terms} = {format_bytes(block['all'].wire_bytes)} B on the wire")
    whole = format_bytes(totals["stage"]["all"].wire_bytes)
    lines.append(f"stage = {_shares(priced, stage.own)} = {whole} B")
    if stage.ends > 1:
        other = sum(block["all"].wire_bytes * stage.mirrored[name] for name, block in priced.blocks.items())
        lines.append(f"mirrored stage = {_shares(priced, stage.mirrored)} = {format_bytes(other)} B")
        whole = f"({whole} + {format_bytes(other)})"
    rest = [entry.row for entry in priced.entries if entry.row.per != "block" and ledger.times_in_step(entry.row)]
    outside = "".join(f" + {ledger.times_in_step(row)} * {format_bytes(row.wire_bytes)}" for row in rest)
    stages = f"{_microbatches(ledger)} * {whole}"
    lines.append(f"step = {stages}{outside} = {format_bytes(totals['step']['all'].wire_bytes)} B")
    return lines


def _shares(priced: PricedLedger, times: Mapping[str, int]) -> str:
    """The blocks of a stage by kind, each with its wire bytes."""
    blocks = priced.blocks.items()
    shares = [f"{_blocks(name, priced.ledger, times)} * {format_bytes(one['all'].wire_bytes)}" for name, one in blocks]
    return " + ".join(shares)
