"""Each number of a row with its formula and the values put into it, and what the names stand for."""

from __future__ import annotations

from commcalc.accounting.ledger import Ledger, Row
from commcalc.accounting.pricing import Entry, PricedLedger
from commcalc.algebra.collective import Convention, Kind
from commcalc.network.cost import Algorithm, Cost
from commcalc.network.link import Level
from commcalc.transformer.spec import KEY_OF_DIM, Phase
from commcalc.units import format_bytes, format_rate, format_seconds


def explain_row(entry: Entry, priced: PricedLedger) -> list[str]:
    """Lines that derive payload, wire bytes, time and number of calls of one row."""
    ledger, row = priced.ledger, entry.row
    payload = row.payload_bytes
    lines = [
        f"payload = {row.payload.text()} = {row.payload.with_values(ledger.sizes)} = {format_bytes(payload)} B",
        _wire(row, ledger.convention),
        *_time(entry),
    ]
    times = ledger.times_in_step(row)
    if row.per == "step":
        lines.append("calls = 1 in a step")
    else:
        blocks = f"{counted(ledger.stage.layers, 'block')} * " if row.per == "block" else ""
        each = f"{blocks}{counted(ledger.microbatches, 'microbatch')}"
        lines.append(f"calls = {row.calls} per {row.per} * {each} = {times} in a step")
    if row.note:
        lines.append(f"note: {row.note}")
    return lines


def counted(number: int, what: str) -> str:
    """``1 block``, ``80 blocks``, ``4 microbatches``."""
    return f"{number} {what}" + ("" if number == 1 else "es" if what.endswith("ch") else "s")


def _wire(row: Row, convention: Convention) -> str:
    """``wire = 2(n-1)/n * payload = 2*7/8 * 134,217,728 = 234,881,024 B``."""
    n, passes = row.group_size, "2" if row.kind is Kind.ALL_REDUCE else ""
    result = f"{format_bytes(row.payload_bytes)} = {format_bytes(row.wire_bytes)} B"
    if row.kind in (Kind.SEND_RECV, Kind.PERMUTE, Kind.BROADCAST) or convention is Convention.TEXTBOOK:
        times = f"{passes} * " if passes else ""
        return f"wire = {times}payload = {times}{result}"
    values = f"2*{n - 1}/{n}" if passes else f"{n - 1}/{n}"
    return f"wire = {passes}(n-1)/n * payload = {values} * {result}"


def _time(entry: Entry) -> list[str]:
    if entry.priced is None:
        return []
    found, row = entry.priced, entry.row
    total = format_seconds(found.cost.time_s)
    equal = entry.crossover_payload_bytes
    tail = f"; {entry.bound} bound" + (f", equal at a payload of {format_bytes(equal)} B" if equal is not None else "")
    if not found.phases:
        rate = found.cost.egress_bytes / found.cost.bandwidth_s if found.cost.bandwidth_s else 0.0
        where = f" ({found.cost.algorithm} on {found.level}{tail})"
        lines = [f"time = {_parts(found.cost, format_rate(rate))} = {total}{where}"]
        if found.cost.algorithm is Algorithm.IN_NETWORK:
            n, egress = row.group_size, format_bytes(found.cost.egress_bytes)
            lines.insert(
                0, f"egress = (1 + 1/n) * payload = {n + 1}/{n} * {format_bytes(row.payload_bytes)} = {egress} B"
            )
        return lines
    lines = [f"time = the phases one after another = {total} (hierarchical{tail})"]
    for phase in found.phases:
        rate = phase.cost.egress_bytes / phase.cost.bandwidth_s if phase.cost.bandwidth_s else 0.0
        lines.append(
            f"  {phase.kind} of {format_bytes(phase.payload_bytes)} B over {phase.group_size} on {phase.level}: "
            f"{_parts(phase.cost, format_rate(rate))} = {format_seconds(phase.cost.time_s)} ({phase.cost.algorithm})"
        )
    return lines


def _parts(cost: Cost, rate: str) -> str:
    """``14 steps * 1.9 us + 88,080,384 B / 300 GB/s = 26.6 us + 293.6 us``."""
    latency = format_seconds(cost.latency_s)
    steps = f"{cost.steps} steps * {format_seconds(cost.latency_s / cost.steps)}" if cost.steps else latency
    return f"{steps} + {format_bytes(cost.egress_bytes)} B / {rate} = {latency} + {format_seconds(cost.bandwidth_s)}"


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
            sums = level.in_network
            line += f"; sums in the switch from {sums.min_ranks} ranks, {format_seconds(sums.latency_s)} a call"
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
        f"stage = {counted(ledger.stage.layers, 'block')} * {format_bytes(totals['block']['all'].wire_bytes)}"
        f" = {format_bytes(totals['stage']['all'].wire_bytes)} B",
    ]
    rest = [entry.row for entry in priced.entries if entry.row.per != "block" and ledger.times_in_step(entry.row)]
    outside = "".join(f" + {ledger.times_in_step(row)} * {format_bytes(row.wire_bytes)}" for row in rest)
    stages = f"{counted(ledger.microbatches, 'microbatch')} * {format_bytes(totals['stage']['all'].wire_bytes)}"
    lines.append(f"step = {stages}{outside} = {format_bytes(totals['step']['all'].wire_bytes)} B")
    return lines
