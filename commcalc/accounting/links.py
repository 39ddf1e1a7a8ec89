"""Levels, wire bytes and times in words, with the numbers that they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from commcalc.algebra.collective import Convention, Kind
from commcalc.network.cost import Algorithm, Cost
from commcalc.network.hierarchy import Priced
from commcalc.network.link import Level
from commcalc.units import format_binary, format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from commcalc.network.measured import Evidence


def evidence_record(cost: Cost | None) -> dict[str, object]:
    """How sure a time is: confidence, the relative error to expect, whether it is only a lower bound, its source."""
    evidence = cost.evidence if cost else None
    band = evidence.band if evidence else None
    return {
        "confidence": cost.confidence if cost else None,
        "lower_bound": cost is not None and cost.lower_bound,
        "error_band": {"median": band.median, "p90": band.p90} if band else None,
        "measured_in": evidence.source or None if evidence else None,
    }


def told_of_times(costs: Sequence[Cost]) -> list[str]:
    """How sure the times are, in words: bounds by datasheet where nothing was measured, and with which error else."""
    said = []
    bands = sorted({(one.median, one.p90) for cost in costs if cost.evidence and (one := cost.evidence.band)})
    if bands:
        errors = ", ".join(f"{100 * median:.3g} %/{100 * p90:.3g} %" for median, p90 in bands)
        said.append(f"measured times and those carried over from them: error to expect {errors} (median/p90)")
    if any(cost.evidence and cost.evidence.band is None for cost in costs):
        said.append("for sizes far from those measured no error is known")
    bare = [cost for cost in costs if cost.evidence is None and cost.time_s]
    which = "times of confidence datasheet" if bands else "times by datasheet rates"
    if any(cost.lower_bound for cost in bare):
        mixed = not all(cost.lower_bound for cost in bare)
        said.append(f"{which} are lower bounds" + (", save hierarchical ones" if mixed else ""))
    elif bare:
        said.append(f"{which} are no bounds here: phases of several levels may overlap")
    return said


def beyond_measured(costs: Iterable[tuple[str, Cost]]) -> list[str]:
    """Which calls are so far from any size measured that their times are guesses; each named once."""
    from commcalc.network.measured import REACH

    told = {}
    for what, cost in costs:
        if cost.evidence is not None and cost.evidence.beyond > REACH:
            largest = cost.evidence.points[-1][0]
            told[what] = (
                f"{what} is {cost.evidence.beyond:.3g} times the largest payload that was measured "
                f"({format_bytes(largest)} B): its time goes on as between the last two"
            )
        elif cost.evidence is not None and cost.evidence.below > REACH:
            smallest = cost.evidence.points[0][0]
            told[what] = (
                f"{what} is far below the smallest payload that was measured ({format_bytes(smallest)} B): "
                "its time is that of the law fitted there"
            )
    return list(told.values())


def _as_measured(cost: Cost, evidence: Evidence) -> str:
    """``on the line through 64 MiB 324.5 us and 128 MiB 579 us``, or the three terms of a law."""
    if evidence.law is not None:
        law = evidence.law
        terms = [format_seconds(one) for one in (cost.latency_s, cost.ramp_s, cost.bandwidth_s)]
        root = f"{law.c * 1e9:.4g} ns sqrt(x)"
        return f"t0 + c sqrt(x) + x / B, c sqrt(x) = {root}, B = {format_rate(law.bandwidth)}: {' + '.join(terms)}"
    if evidence.below:
        size, time = evidence.points[0]
        return f"by the law below the smallest size measured, {format_binary(size)} in {format_seconds(time)}"
    points = " and ".join(f"{format_binary(size)} {format_seconds(time)}" for size, time in evidence.points)
    return f"on the line through {points}" if len(evidence.points) > 1 else points


def parts_of(cost: Cost) -> str:
    """``14 steps * 1.9 us + 88,080,384 B / 300 GB/s = 26.6 us + 293.6 us``; bytes here are not rounded up."""
    if cost.evidence is not None:
        return _as_measured(cost, cost.evidence)
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
        sure = f", {found.cost.confidence}" if found.cost.confidence == "calibrated" else ""
        lines = [f"time = {parts_of(found.cost)} = {total} ({found.cost.algorithm} on {found.level}{sure}{tail})"]
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
        if level.measured:
            groups = dict.fromkeys(f"{sweep.kind} over {sweep.ranks}" for sweep in level.measured)
            line += f"; measured: {', '.join(groups)}"
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
