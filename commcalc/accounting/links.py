"""Levels and costs in words, with the numbers that times are made of."""

from __future__ import annotations

from commcalc.network.cost import Cost
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
