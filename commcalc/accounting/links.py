"""Levels, wire bytes and times in words, with the numbers that they are made of."""

from __future__ import annotations

from commcalc.algebra.collective import Convention, Kind
from commcalc.network.cost import Algorithm, Cost
from commcalc.network.hierarchy import Priced
from commcalc.network.link import Level
from commcalc.units import format_bytes, format_rate, format_seconds


def parts_of(cost: Cost) -> str:
    """``14 steps * 1.9 us + 88,080,384 B / 300 GB/s = 26.6 us + 293.6 us``; bytes here are not rounded up."""
    latency = format_seconds(cost.latency_s)
    steps = f"{cost.steps} steps * {format_seconds(cost.latency_s / cost.steps)}" if cost.steps else latency
    rate = cost.bandwidth or 1.0
    exact = cost.bandwidth_s * rate
    sent = format_bytes(cost.egress_bytes) if abs(exact - cost.egress_bytes) < 1e-6 * exact else f"{exact:.10g}"
    if abs(exact - round(exact)) < 1e-3:
        sent = format_bytes(round(exact))
    moving = format_seconds(cost.bandwidth_s)
    if cost.overlapped:
        return f"the larger of {steps} and {sent} B / {format_rate(rate)} = {latency} and {moving}"
    return f"{steps} + {sent} B / {format_rate(rate)} = {latency} + {moving}"


def explain_wire(kind: Kind, n: int, payload_bytes: int, wire_bytes: int, convention: Convention) -> str:
    """``wire = 2(n-1)/n * payload = 2*7/8 * 134,217,728 = 234,881,024 B``."""
    passes = 2 if kind is Kind.ALL_REDUCE else 1
    shown, payload = "2" if passes == 2 else "", format_bytes(payload_bytes)
    if kind in (Kind.SEND_RECV, Kind.PERMUTE, Kind.BROADCAST) or convention is Convention.TEXTBOOK:
        times = f"{shown} * " if shown else ""
        return f"wire = {times}payload = {times}{payload} = {format_bytes(wire_bytes)} B"
    values = f"{shown}*{n - 1}/{n}" if shown else f"{n - 1}/{n}"
    return f"wire = {shown}(n-1)/n * payload = {values} * {payload} = {_whole(passes * (n - 1) * payload_bytes, n)}"


def explain_time(found: Priced | None, n: int, payload_bytes: int, tail: str) -> list[str]:
    """Lines that derive the time of one call, phase by phase; ``tail`` says what bounds it."""
    if found is None:
        return []
    total = format_seconds(found.cost.time_s)
    if not found.phases:
        lines = [f"time = {parts_of(found.cost)} = {total} ({found.cost.algorithm} on {found.level}{tail})"]
        if found.cost.algorithm is Algorithm.IN_NETWORK:
            egress = _whole(payload_bytes * (n + 1), n)
            line = f"egress = (1 + 1/n) * payload = {n + 1}/{n} * {format_bytes(payload_bytes)} = {egress}"
            if found.cost.egress_bytes == payload_bytes:  # a tree of switches keeps the sum; the textbook limit
                line = f"egress = 1 * payload = 1 * {format_bytes(payload_bytes)} = {format_bytes(payload_bytes)} B"
            lines.insert(0, line)
        return lines
    together = sum(float(phase.cost.time_s) for phase in found.phases) > 1.0000001 * float(found.cost.time_s)
    how = "the phases of the slowest level" if together else "the phases one after another"
    lines = [f"time = {how} = {total} (hierarchical{tail})"]
    for phase in found.phases:
        lines.append(
            f"  {phase.kind} of {format_bytes(phase.payload_bytes)} B over {phase.group_size} on {phase.level}: "
            f"{parts_of(phase.cost)} = {format_seconds(phase.cost.time_s)} ({phase.cost.algorithm})"
        )
    return lines


def _whole(over: int, under: int) -> str:
    """A quotient of bytes, and that it was rounded up where it was."""
    count = -(-over // under)
    return (
        f"{format_bytes(count)} B"
        if over % under == 0
        else f"{over / under:.10g}, rounded up to {format_bytes(count)} B"
    )


def explain_links(levels: tuple[Level, ...]) -> list[str]:
    """The levels with the numbers that times are made of."""
    lines = []
    for inside, level in enumerate(levels):
        joins = f"{level.devices} devices" if level.devices else "any number of devices"
        kind = f"{level.topology} {'x'.join(map(str, level.shape))}".strip()
        each = "link" if level.axes else "device"
        line = f"{level.name}: {kind} of {joins}, {format_rate(level.bandwidth)} one way per {each}"
        if level.rate != level.bandwidth:
            line += f", of which one has {format_rate(level.rate)} when all send"
        if level.axes:
            line += f", {_closed(level)}"
        line += f", {format_seconds(level.latency_s)} a {'hop' if level.axes else 'step'}"
        if level.in_network is not None:
            sums = level.in_network
            line += f"; sums in the switch from {sums.min_ranks} ranks, {format_seconds(sums.latency_s)} a call"
        if inside and not any(one.axes for one in levels[: inside + 1]):
            line += "; one flat ring across it runs on the links of all members of a domain at once"
        lines.append(line)
    return lines


def _closed(level: Level) -> str:
    from commcalc.network.torus import wraps

    closed = wraps(level)
    if all(closed) or not any(closed):
        return "ends joined" if closed[0] else "ends open"
    return "axes " + ", ".join("closed" if one else "open" for one in closed)
