"""Each number of a row with its formula and the values put into it, and what the names stand for."""

from __future__ import annotations

from commcalc.accounting.ledger import Ledger
from commcalc.accounting.pricing import Entry, PricedLedger
from commcalc.algebra.collective import Convention, Kind
from commcalc.network.cost import Algorithm
from commcalc.network.link import Level
from commcalc.transformer.spec import KEY_OF_DIM, Phase
from commcalc.units import format_bytes, format_rate, format_seconds


def explain_row(entry: Entry, priced: PricedLedger) -> list[str]:
    """Lines that derive payload, wire bytes, time and number of calls of one row."""
    ledger, row = priced.ledger, entry.row
    lines = [
        f"payload = {row.payload.text()} = {row.payload.with_values(ledger.sizes)} = {format_bytes(row.payload_bytes)} B",
        f"wire = {_factor(row.kind, row.group_size, ledger.convention)} * payload = {format_bytes(row.wire_bytes)} B",
        *_time(entry, priced),
    ]
    times = ledger.times_in_step(row)
    if row.per == "step":
        lines.append("calls = 1 in a step")
    else:
        blocks = f"{ledger.stage.layers} blocks * " if row.per == "block" else ""
        lines.append(f"calls = {row.count} per {row.per} * {blocks}{ledger.microbatches} microbatches = {times} in a step")
    if row.note:
        lines.append(f"note: {row.note}")
    return lines


def _factor(kind: Kind, n: int, convention: Convention) -> str:
    if kind in (Kind.SEND_RECV, Kind.PERMUTE, Kind.BROADCAST):
        return "1"
    passes = "2" if kind is Kind.ALL_REDUCE else ""
    if convention is Convention.TEXTBOOK:
        return passes or "1"
    values = f"2*{n - 1}/{n}" if passes else f"{n - 1}/{n}"
    return f"{passes}(n-1)/n = {values}"


def _time(entry: Entry, priced: PricedLedger) -> list[str]:
    if entry.priced is None:
        return []
    found, row = entry.priced, entry.row
    total = format_seconds(found.cost.time_s)
    equal = entry.crossover_payload_bytes
    tail = f"; {entry.bound} bound" + (f", equal at a payload of {format_bytes(equal)} B" if equal is not None else "")
    if not found.phases:
        egress = format_bytes(found.cost.egress_bytes)
        rate = found.cost.egress_bytes / found.cost.bandwidth_s if found.cost.bandwidth_s else 0.0
        over = f"{egress} B / {format_rate(rate)} = {format_seconds(found.cost.bandwidth_s)}"
        lines = [
            f"time = latency + bandwidth = {format_seconds(found.cost.latency_s)} + {over} = {total}"
            f" ({found.cost.algorithm} on {found.level}{tail})"
        ]
        if found.cost.algorithm is Algorithm.IN_NETWORK:
            lines.insert(0, f"egress = (1 + 1/n) * payload = {row.group_size + 1}/{row.group_size} * payload = {egress} B")
        return lines
    lines = [f"time = the phases one after another = {total} (hierarchical{tail})"]
    for phase in found.phases:
        cost = phase.cost
        lines.append(
            f"  {phase.kind} of {format_bytes(phase.payload_bytes)} B over {phase.group_size} on {phase.level}: "
            f"{format_seconds(cost.latency_s)} + {format_bytes(cost.egress_bytes)} B"
            f" in {format_seconds(cost.bandwidth_s)} ({cost.algorithm})"
        )
    return lines


def explain_names(priced: PricedLedger) -> list[str]:
    """What every name in the formulas stands for, with its value; then the links."""
    ledger = priced.ledger
    used = {name for entry in priced.entries for product in entry.row.payload.products for name in product.dims}
    used |= {name for entry in priced.entries for product in entry.row.payload.products for name in product.axes}
    lines = [f"{name} = {_meaning(name, ledger)} = {ledger.sizes[name]}" for name in ledger.sizes if name in used]
    return [*lines, "n = ranks in the group"]


def explain_links(levels: tuple[Level, ...]) -> list[str]:
    """The levels with the numbers that times are made of."""
    lines = []
    for level in levels:
        joins = f"{level.devices} devices" if level.devices else "any number of devices"
        line = f"{level.name}: {level.topology} of {joins}, {format_rate(level.bandwidth)} one way per device"
        line += f", {format_seconds(level.latency_s)} a step"
        if level.in_network is not None:
            line += f"; sums in the switch from {level.in_network.min_ranks} ranks, {format_seconds(level.in_network.latency_s)} a call"
        lines.append(line)
    return lines


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
        f"stage = {ledger.stage.layers} blocks * {format_bytes(totals['block']['all'].wire_bytes)}"
        f" = {format_bytes(totals['stage']['all'].wire_bytes)} B",
    ]
    rest = [entry.row for entry in priced.entries if entry.row.per != "block" and ledger.times_in_step(entry.row)]
    outside = "".join(f" + {ledger.times_in_step(row)} * {format_bytes(row.wire_bytes)}" for row in rest)
    lines.append(
        f"step = {ledger.microbatches} microbatches * {format_bytes(totals['stage']['all'].wire_bytes)}{outside}"
        f" = {format_bytes(totals['step']['all'].wire_bytes)} B"
    )
    return lines
