"""What an experiment's record says: measured beside predicted, what is off, and whether it is the network at all.

Backwards from a step's time: what compute and the bubble do not account for is what communication must have cost, and
the bytes of a step over that are the bus bandwidth that it must have had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from commcalc.units import format_rate, format_seconds


class Pair(NamedTuple):
    """A value as it was predicted (or as the baseline has it) and as it was measured; None where not known."""

    predicted: float | None = None
    measured: float | None = None

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return self.measured / self.predicted if self.measured is not None and self.predicted else None

    def beyond(self, tolerance: float) -> bool:
        """Whether measured is further from predicted than a share of it."""
        if self.measured is None or self.predicted is None:
            return False
        return abs(self.measured - self.predicted) > tolerance * abs(self.predicted) * (1 + 1e-12)


class Measured(NamedTuple):
    """One collective of a record; bytes and times are of one call."""

    name: str
    group: str
    collective: str
    payload_bytes: int
    wire_bytes: int
    count_in_step: int
    calls: Pair
    mean_s: Pair
    p95_s: float | None
    exposed_tail_s: float | None

    @property
    def busbw(self) -> float | None:
        """Bytes per second as nccl-tests counts them (payload * factor / time), of the measured mean."""
        return self.wire_bytes / self.mean_s.measured if self.mean_s.measured else None


class Record(NamedTuple):
    """A record as it was read; ``missing`` names what nobody has measured yet."""

    name: str
    degree: int
    collectives: tuple[Measured, ...]
    step: Mapping[str, Pair]
    correctness: Mapping[str, Pair]
    missing: tuple[str, ...]


class GroupTime(NamedTuple):
    """Seconds of a step that the measured collectives of a group take, and their bytes."""

    group: str
    time_s: Pair
    wire_bytes: int


class Implied(NamedTuple):
    """What communication must have cost, from the step's time alone; a share of it for each collective.

    ``explained_s`` is what compute, bubble and predicted communication come to.
    """

    compute_s: float
    comm_s: float
    busbw: float | None
    ratio: float | None
    mean_s: Mapping[str, float]
    explained_s: float | None


class Outcome(NamedTuple):
    """A record compared: by group, backwards from the step, what is off and what is said of it."""

    record: Record
    groups: tuple[GroupTime, ...]
    implied: Implied | None
    off: tuple[str, ...]
    said: tuple[str, ...]


def outcome_of(record: Record, tolerance: float) -> Outcome:
    """Compare everything that was measured."""
    groups = tuple(_groups(record))
    implied = _implied(record)
    off = _off(record, implied, tolerance)
    return Outcome(record, groups, implied, tuple(off), tuple(_said(record, groups, implied, off, tolerance)))


def _groups(record: Record) -> list[GroupTime]:
    found = []
    for group in dict.fromkeys(one.group for one in record.collectives):
        mine = [one for one in record.collectives if one.group == group and one.mean_s.measured is not None]
        if mine:
            predicted = [one.mean_s.predicted for one in mine]
            known = [value * one.count_in_step for value, one in zip(predicted, mine, strict=True) if value is not None]
            measured = sum(one.mean_s.measured * one.count_in_step for one in mine if one.mean_s.measured)
            time = Pair(sum(known) if len(known) == len(mine) else None, measured)
            found.append(GroupTime(group, time, sum(one.wire_bytes * one.count_in_step for one in mine)))
    return found


def _known(pair: Pair) -> float | None:
    return pair.measured if pair.measured is not None else pair.predicted


def _implied(record: Record) -> Implied | None:
    step = record.step
    whole, compute = step["time_s"].measured, _known(step["compute_s"])
    if whole is None or compute is None:
        return None
    bubble = _known(step["bubble_s"]) or 0.0
    comm = whole - compute - bubble
    predicted = step["comm_s"].predicted
    exposed = step["exposed_s"].predicted if step["exposed_s"].predicted is not None else predicted
    wire = sum(one.wire_bytes * one.count_in_step for one in record.collectives)
    # What compute hides took time that the step does not show.
    shown = predicted is None or exposed == predicted
    usable = comm > 0 and shown
    each: dict[str, float] = {}
    if usable and wire:
        for one in record.collectives:
            mean = one.mean_s.predicted
            each[one.name] = comm * (mean / predicted if mean and predicted else one.wire_bytes / wire)
    explained = None if exposed is None else compute + bubble + exposed
    ratio = comm / exposed if exposed and comm > 0 else None
    return Implied(compute, comm, wire / comm if usable else None, ratio, each, explained)


def _off(record: Record, implied: Implied | None, tolerance: float) -> list[str]:
    """The names of all that is beyond the tolerance."""
    off = [f"collectives.{one.name}" for one in record.collectives if one.mean_s.beyond(tolerance)]
    off += [f"count of {one.name}" for one in record.collectives if one.calls.beyond(0)]
    off += [f"step.{key}" for key, pair in record.step.items() if pair.beyond(tolerance)]
    whole = record.step["time_s"]
    if whole.predicted is None and implied and Pair(implied.explained_s, whole.measured).beyond(tolerance):
        off.append("step.time_s")
    for key, pair in record.correctness.items():
        worse = pair.measured is not None and pair.measured > tolerance
        if worse if key == "parameter_update_error" else pair.beyond(tolerance):
            off.append(f"correctness.{key}")
    return off


def _said(
    record: Record, groups: Sequence[GroupTime], implied: Implied | None, off: Sequence[str], tolerance: float
) -> list[str]:
    """What follows, in words: which group is off, and whether it is the network."""
    said = []
    slow = []
    for one in groups:
        ratio = one.time_s.ratio
        rate = _rate(one.wire_bytes / one.time_s.measured) if one.time_s.measured else ""
        if ratio is None:
            said.append(f"{one.group}: measured at {rate} busbw; nothing is predicted")
        elif one.time_s.beyond(tolerance):
            slow.append(one.group)
            before = _rate(one.wire_bytes / one.time_s.predicted) if one.time_s.predicted else ""
            said.append(f"{one.group} is off: {ratio:.4g} times the predicted time, {rate} busbw against {before}")
        else:
            said.append(f"{one.group} is as predicted: {ratio:.4g} times the time, {rate} busbw")
    counts = [name for name in off if name.startswith("count of")]
    if counts:
        said.append(f"another number of calls than the layout has, which no link explains: {', '.join(counts)}")
    said += _of_step(record, groups, implied, off, slow)
    wrong = [name.removeprefix("correctness.") for name in off if name.startswith("correctness.")]
    if wrong:
        said.append(f"not the same computation as the baseline: {', '.join(wrong)}; times of it say little")
    return said


def _of_step(
    record: Record, groups: Sequence[GroupTime], implied: Implied | None, off: Sequence[str], slow: Sequence[str]
) -> list[str]:
    if implied is None:
        return []
    if implied.comm_s <= 0:
        least = format_seconds(implied.compute_s)
        return [f"not the network: compute and bubble alone would take longer than the step (compute {least})"]
    said = []
    must = f"the step leaves {format_seconds(implied.comm_s)} to communication"
    if implied.busbw is not None:
        must += f", {_rate(implied.busbw)} busbw over all calls"
    if implied.ratio is not None:
        must += f", {implied.ratio:.4g} times what is predicted"
    said.append(must)
    measured = sum(one.time_s.measured or 0.0 for one in groups)
    compute = record.step["compute_s"]
    if "step.compute_s" in off and compute.ratio is not None:
        said.append(f"compute takes {compute.ratio:.4g} times what is predicted: that is not the network")
    if groups and not slow and "step.time_s" in off:
        rest = format_seconds(max(0.0, implied.comm_s - measured))
        said.append(f"not the network: what was measured of it is as predicted, yet the step has {rest} more")
    elif groups and slow:
        share = measured / implied.comm_s
        said.append(f"the measured collectives account for {100 * share:.4g} % of what the step leaves")
    return said


def _rate(bytes_per_s: float) -> str:
    """A measured rate: four digits of it."""
    return format_rate(float(f"{bytes_per_s:.4g}"))
