"""From logs of a benchmark to a calibrated machine: sweeps cleaned and fitted, and the hardware file they make.

Source of the method: fits of ten forms to 269 published sweeps (`network.fitting`); with six sizes or more the points
themselves predict better than any formula, below that the law does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from commcalc import __version__
from commcalc.algebra.collective import Convention, Kind, factor
from commcalc.catalog.hardware import Hardware
from commcalc.catalog.measured import MOST_POINTS
from commcalc.errors import CommcalcError, SpecError, UsageError
from commcalc.ingest.sweeps import LogSweep
from commcalc.network.fitting import Fit, Point, cleaned, fit, left_out_lines
from commcalc.network.forms import ring_form
from commcalc.network.hierarchy import Priced, price
from commcalc.network.law import between
from commcalc.network.link import Network, Topology
from commcalc.network.placement import Placement, place

# Sizes from which on the points go into a hardware file, not the law.
ENOUGH_POINTS = 6
# Two sweeps of one collective and group that differ so much in the median are not of one machine.
CONTRADICTION = 1.5


class Calibrated(NamedTuple):
    """One sweep with what it says of the link.

    ``points`` are kept (payload in bytes, seconds, one time per size), ``dropped`` those that were not with the reason.
    ``lines`` is the error of left-out points on straight lines between the others.
    """

    log: LogSweep
    kind: Kind
    ranks: int
    nodes: int
    points: tuple[Point, ...]
    dropped: tuple[tuple[Point, str], ...]
    fit: Fit
    lines: tuple[float, float] | None

    @property
    def factor(self) -> float:
        """Bus bytes per byte of payload."""
        return float(factor(self.kind, self.ranks))

    @property
    def best_busbw(self) -> float:
        """The largest bus bandwidth that was measured, bytes per second."""
        return max(self.factor * size / time for size, time in self.points)


def calibrated(log: LogSweep, kind: Kind | None = None, ranks: int | None = None, nodes: int = 1) -> Calibrated:
    """Clean and fit one sweep; ``kind`` and ``ranks`` are what the user says where the log does not.

    `UsageError` where neither says, or they contradict each other; `SpecError` where too little is left to fit.
    """
    if kind is not None and log.collective is not None and kind is not log.collective:
        raise UsageError(
            f"the log is of {log.collective}, not of {kind}",
            where=log.source,
            hint="leave --collective out, or give that log",
        )
    found = kind or log.collective
    if found is None:
        told = "; ".join(log.notes) or "the log does not name it"
        raise UsageError(f"which collective is this? {told}", where=log.source, hint="--collective all_reduce")
    if ranks is not None and log.ranks is not None and ranks != log.ranks:
        raise UsageError(f"the log is of {log.ranks} ranks, not of {ranks}", where=log.source, hint="leave --ranks out")
    count = ranks or log.ranks
    if count is None:
        raise UsageError("how many ranks took part? The log does not say", where=log.source, hint="--ranks 8")
    if count < 2:
        raise SpecError("one rank alone sends nothing", where=log.source, hint="a run of 2 ranks or more")
    if count % nodes:
        raise UsageError(f"{count} ranks do not lie evenly on {nodes} nodes", where=f"--nodes {nodes}")
    log = log if log.ranks == count else log.with_ranks(count)
    dropped: list[tuple[Point, str]] = []
    try:
        kept, dropped = cleaned([(row.size_bytes, time) for row in log.rows for time in (row.out_s, row.in_s)
                                 if time is not None])  # fmt: skip
        law = fit(kept, float(factor(found, count)))
        lines = left_out_lines(kept) if len(kept) >= 3 else None
    except SpecError as problem:
        why = f"; {len(dropped)} rows were dropped: {dropped[0][1]}" if dropped else ""
        raise SpecError(problem.message + why, where=log.source, hint=problem.hint) from None
    return Calibrated(log, found, count, nodes, tuple(kept), tuple(dropped), law, lines)


def nodes_of(ranks: int, network: Network | None, source: str) -> int:
    """How many domains of a machine so many ranks fill; 1 where no machine is given, or one domain holds them."""
    if network is None:
        return 1
    try:
        found = place(ranks, 1, network, devices=ranks)
    except CommcalcError as problem:
        raise UsageError(f"{ranks} ranks do not lie on the machine: {problem.message}", where=source,
                         hint="--nodes N, or another machine") from None  # fmt: skip
    if found.uneven:
        raise UsageError(f"{ranks} ranks fill no whole domains of the machine", where=source, hint="--nodes N")
    return found.parts[-1][1] if found.outermost else 1


def contradicting_rows(log: LogSweep) -> SpecError | None:
    """Rows of one sweep that give most sizes very different times, as two runs pasted together do."""
    times: dict[int, list[float]] = {}
    for row in log.rows:
        times.setdefault(row.size_bytes, []).append(row.best_s)
    ratios = sorted(max(found) / max(min(found), 1e-12) for found in times.values() if len(found) > 1)
    if not ratios or ratios[len(ratios) // 2] <= CONTRADICTION:
        return None
    told = f"rows contradict each other: times of one size differ by a factor of {ratios[len(ratios) // 2]:.3g}"
    return SpecError(f"{told} in the median", where=log.source, hint="give one run of one machine and setting")


def contradictions(sweeps: Sequence[Calibrated]) -> list[SpecError]:
    """Sweeps of one collective and group whose times are not of one machine, where their sizes overlap."""
    problems = []
    for at, one in enumerate(sweeps):
        for other in sweeps[:at]:
            if _key(one) != _key(other):
                continue
            low, high = other.points[0][0], other.points[-1][0]
            pairs = [(time, between(other.points, size)) for size, time in one.points if low <= size <= high]
            ratios = sorted(max(mine / theirs, theirs / mine) for mine, theirs in pairs)
            if ratios and ratios[len(ratios) // 2] > CONTRADICTION:
                problems.append(
                    SpecError(
                        f"two sweeps of {one.kind} over {one.ranks} ranks contradict each other: their times differ by "
                        f"a factor of {ratios[len(ratios) // 2]:.3g} in the median",
                        where=f"{other.log.source} and {one.log.source}",
                        hint="give logs of one machine and one setting",
                    )
                )
    return problems


def _key(one: Calibrated) -> tuple[object, ...]:
    return one.kind, one.ranks, one.nodes, one.log.graph


def even(points: Sequence[Point]) -> list[Point]:
    """The points with times that never fall: neighbours that do are given their mean (pool adjacent violators).

    >>> even([(1, 1.0), (2, 3.0), (4, 2.0), (8, 4.0)])
    [(1, 1.0), (2, 2.5), (4, 2.5), (8, 4.0)]
    """
    pools: list[list[float]] = []
    for _, time in points:
        pools.append([time])
        while len(pools) > 1 and _mean(pools[-2]) > _mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    times = [_mean(pool) for pool in pools for _ in pool]
    return [(size, time) for (size, _), time in zip(points, times, strict=True)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def merged(sweeps: Sequence[Calibrated]) -> list[Calibrated]:
    """One sweep for each collective and group: of several the least time of each size; the first names them."""
    found: dict[tuple[object, ...], Calibrated] = {}
    for one in sweeps:
        key = one.kind, one.ranks, one.nodes
        if key not in found:
            found[key] = one
            continue
        if found[key].log.graph != one.log.graph:
            told = f"{one.kind} over {one.ranks}: one run replays CUDA graphs, the other does not"
            raise UsageError(told, where=f"{found[key].log.source} and {one.log.source}", hint="write a machine of one")
        kept, _ = cleaned([*found[key].points, *one.points])
        both = ", ".join(dict.fromkeys((found[key].log.source, one.log.source)))
        found[key] = found[key]._replace(
            points=tuple(kept), fit=fit(kept, one.factor), log=found[key].log._replace(source=both)
        )
    return list(found.values())


def hardware_text(name: str, sweeps: Sequence[Calibrated], base: Hardware | None, extends: str | None) -> str:
    """A hardware file with what was measured: laid over ``extends``, or a machine of its own.

    A group over several nodes belongs to the level that joins the nodes. Without a machine to extend the rates are the
    largest bus bandwidth of each level's sweeps, which real algorithms do not pass, latencies t0 over a ring's steps.
    """
    levels: dict[int, list[Calibrated]] = {}
    if base is None and all(one.nodes > 1 for one in sweeps):
        raise UsageError("nothing was measured inside a node, and no machine says what is there", where="--output",
                         hint="--hardware h100, or a log of one node too")  # fmt: skip
    for one in merged(sweeps):
        levels.setdefault(_level_of(one, base), []).append(one)
    lines = [f"name: {_quoted(name)}"]
    lines += [f"extends: {_quoted(extends)}"] if extends else []
    lines.append("network:")
    inside = max((one.ranks // one.nodes for one in sweeps), default=1)
    known = [level.name for level in base.network.levels] if base else ["node", "nodes"]
    for index in levels if base else ():
        level = base.network.levels[index] if base else None
        if level and level.topology not in (Topology.SWITCH, Topology.FULL_MESH):
            told = f"level {level.name} is a {level.topology}: there it matters which devices took part"
            raise UsageError(told, where="--hardware", hint="measured times are kept for switches and full meshes")
    for index in sorted(levels if base else {0, *levels}):
        mine = levels.get(index, [])
        lines.append(f"- name: {_quoted(known[index])}")
        if base is None:
            lines += _own_level(index, mine, inside, levels)
        if mine:
            lines.append("  measured:")
        for one in mine:
            lines += _sweep_lines(one)
    lines.append("sources:")
    for index in sorted(levels):
        logs = ", ".join(dict.fromkeys(name for one in levels[index] for name in one.log.source.split(", ")))
        lines.append(f"  network.{known[index]}.measured: {_quoted(logs)}")
    lines.append(f'notes: "calibrated by commcalc {__version__}"')
    return "\n".join(lines) + "\n"


def _level_of(one: Calibrated, base: Hardware | None) -> int:
    """The level that joins the group: by its place on the machine, or by its nodes where there is none."""
    if base is None:
        return int(one.nodes > 1)
    return placed(one, base.network).outermost


def placed(one: Calibrated, network: Network) -> Placement:
    """Where the ranks of a sweep lie: in order on the devices of one domain, or on as many nodes as were told.

    `UsageError` where the machine has no level for such a group.
    """
    source, each = one.log.source, one.ranks // one.nodes
    try:
        if one.nodes == 1:
            return place(one.ranks, 1, network, devices=one.ranks)
        for index, level in enumerate(network.levels[1:], 1):
            domain = network.levels[index - 1].devices
            room = level.devices is None or (domain or 1) * one.nodes <= level.devices
            if domain is not None and domain >= each and room:
                inside = place(each, 1, network, devices=each)
                return Placement(one.ranks, (*(inside.parts if each > 1 else ()), (index, one.nodes)))
    except CommcalcError as problem:
        raise UsageError(f"{one.ranks} ranks do not lie on the machine: {problem.message}", where=source) from None
    told = f"the machine has no {one.nodes} nodes of {each} devices or more"
    raise UsageError(told, where=source, hint="--nodes N, or another machine")


def _own_level(index: int, mine: Sequence[Calibrated], inside: int, levels: Mapping[int, object]) -> list[str]:
    rate = max(one.best_busbw for one in mine)
    if index:
        rate /= inside
    late = min((one.fit.law.t0_s / int(ring_form(one.kind, one.ranks).steps) for one in mine), default=0.0)
    found = ["  topology: switch"]
    if index == 0:
        count = inside if 1 in levels or not mine else max(one.ranks for one in mine)
        found.append(f"  devices: {count}")
    return [*found, f"  bandwidth: {rate:.6g} B/s", f"  latency: {late * 1e6:.6g} us"]


def _sweep_lines(one: Calibrated) -> list[str]:
    found = [f"  - collective: {one.kind}", f"    ranks: {one.ranks}"]
    found += [f"    nodes: {one.nodes}"] if one.nodes > 1 else []
    found += ["    same_machine: true", f"    source: {_quoted(one.log.source)}"]
    if ENOUGH_POINTS <= len(one.points) <= MOST_POINTS:
        points = ", ".join(f"{size}B {time * 1e6:.6g}us" for size, time in even(one.points))
        return [*found, f"    points: {points}"]
    law = one.fit.law
    return [
        *found, f"    rows: {len(one.points)}", f"    t0: {law.t0_s * 1e6:.6g} us", f"    sqrt: {law.c * 1e9:.6g} ns",
        f"    bandwidth: {law.bandwidth:.6g} B/s",
    ]  # fmt: skip


def _quoted(text: str) -> str:
    """Text for YAML; what cannot be printed, as some names of files cannot, is marked."""
    return json.dumps("".join(letter if letter.isprintable() else "?" for letter in text), ensure_ascii=False)


class Compared(NamedTuple):
    """One size: measured, predicted by a machine, and by how much the prediction is off."""

    payload_bytes: int
    measured_s: float
    predicted: Priced

    @property
    def error(self) -> float:
        """Predicted over measured, less one: above 0 the link is faster than it was thought."""
        return float(self.predicted.cost.time_s) / self.measured_s - 1


def compare(one: Calibrated, network: Network) -> list[Compared]:
    """A machine's times beside those of a log, size by size."""
    where = placed(one, network)
    return [
        Compared(size, time, price(one.kind, size, where, network, convention=Convention.EXACT))
        for size, time in one.points
    ]
