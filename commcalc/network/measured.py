"""Times that were measured on a level: taken as they are for the group measured, carried over to others by law.

For a collective and group size with measured points the time is read off straight lines between them (`law.between`).
Where two or more group sizes were measured, another one is served by the law fitted to each of them: ``t0`` by the rule
``t0 = base + step k`` with ``k`` the steps of a ring, the other two terms on straight lines over the group sizes. The
rule fits one-node sweeps over 2, 4 and 8 devices to 5 % (9 % on PCIe).
A sweep belongs to a level by how many devices of each domain inside it took part, and how many domains.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from commcalc.algebra.collective import Kind, factor, wire_ratio
from commcalc.errors import UsageError
from commcalc.network.cost import Cost, Number, many, share, smaller
from commcalc.network.forms import form, ring_form
from commcalc.network.law import Law, between
from commcalc.network.link import KERNELS, Algorithm, Level, Network

# A prediction this many times beyond the largest measured size, or group, is no longer one.
REACH = 4
_MIB = 2**20


class Confidence(StrEnum):
    """How sure a time is: from points of this collective and group, carried over by law, or a datasheet's bound."""

    MEASURED = "measured"
    CALIBRATED = "calibrated"
    DATASHEET = "datasheet"


class Sweep(NamedTuple):
    """Times of one collective in one group: ``points`` (payload in bytes, seconds), or a ``law`` fitted to them.

    ``ranks`` took part, in ``domains`` domains of the level inside (on the innermost level each device is one).
    ``algorithm`` is ``measured``, or a kernel by name (one-shot, two-shot) that serves payloads up to ``most_bytes``.
    ``own``: on this very machine, not on one of its kind. ``rows`` is how many sizes a law was fitted to.
    """

    kind: Kind
    ranks: int
    domains: int
    points: tuple[tuple[int, float], ...] = ()
    law: Law | None = None
    algorithm: Algorithm = Algorithm.MEASURED
    most_bytes: int | None = None
    own: bool = False
    rows: int = 0
    source: str = ""

    @property
    def largest(self) -> int | None:
        """The largest payload that was measured; None of a law."""
        return self.points[-1][0] if self.points else None


class Band(NamedTuple):
    """Relative error to expect: half of all predictions are closer than ``median``, nine of ten than ``p90``."""

    median: float
    p90: float


class Evidence(NamedTuple):
    """What a time rests on. ``beyond``: how many times the payload is the largest measured one, where more than once;
    ``below``: how many times the smallest measured one is the payload.

    ``points`` are those it lies between, ``law`` the law that carried it over.
    """

    confidence: Confidence
    band: Band | None
    source: str
    beyond: float = 0.0
    below: float = 0.0
    points: tuple[tuple[int, float], ...] = ()
    law: Law | None = None


def fitting(
    kind: Kind, index: int, ranks: int, domains: int, network: Network, algorithm: Algorithm = Algorithm.MEASURED
) -> Sequence[Sweep]:
    """The sweeps of a level that serve a group: the one of its own size alone, or those of at least two others."""
    alike = [
        sweep
        for sweep in network.levels[index].measured
        if sweep.kind is kind and sweep.algorithm is algorithm and sweep.ranks * domains == ranks * sweep.domains
    ]
    same = [sweep for sweep in alike if sweep.ranks == ranks]
    if same:
        return same[:1]
    sizes = {sweep.ranks for sweep in alike}
    return alike if len(sizes) > 1 and ranks <= REACH * max(sizes) else ()


def measured_cost(
    kind: Kind,
    payload_bytes: Number,
    index: int,
    ranks: int,
    domains: int,
    network: Network,
    algorithm: Algorithm = Algorithm.MEASURED,
) -> Cost | None:
    """The time of a group by what was measured on level ``index``; None where nothing serves it.

    A kernel that hands over above some payload takes what was measured of the next one from there on: one-shot of
    two-shot, and two-shot of the library.
    """
    level = network.levels[index]
    if not level.measured or ranks == 1:
        return None
    sweeps = fitting(kind, index, ranks, domains, network, algorithm)
    if not sweeps:
        return None
    nodes = domains if index else 1
    if len(sweeps) == 1 and sweeps[0].ranks == ranks:
        found = _from_points(sweeps[0], payload_bytes, nodes)
    else:
        found = _carried_over(kind, sweeps, payload_bytes, ranks, nodes)
    most = min((sweep.most_bytes for sweep in sweeps if sweep.most_bytes is not None), default=None)
    if most is None:
        return found
    beyond = None
    for next_one in KERNELS[KERNELS.index(algorithm) + 1 :]:
        beyond = beyond or measured_cost(kind, payload_bytes, index, ranks, domains, network, next_one)
    if beyond is None:
        return found if not hasattr(payload_bytes, "shape") and payload_bytes <= most else None
    return _chosen(payload_bytes <= most, found, beyond)


def _chosen(inside: Number, found: Cost, beyond: Cost) -> Cost:
    if not hasattr(inside, "shape"):
        return found if inside else beyond
    mixed = {
        name: getattr(found, name) * inside + getattr(beyond, name) * (inside == 0)
        for name in ("latency_s", "ramp_s", "bandwidth_s")
    }
    return found._replace(**mixed)


def _from_points(sweep: Sweep, payload: Number, nodes: int) -> Cost:
    """A time on the lines between points, or by the sweep's own law, split into its three terms.

    Latency is the time of the smallest size, bandwidth what the payload takes at the rate of the last two sizes, and
    the rest is the ramp between them. Below the smallest size the law fitted to the points counts, where it is less.
    """
    if not sweep.points:
        law = sweep.law or Law(0.0, 0.0, 1.0)
        evidence = Evidence(Confidence.CALIBRATED, _band(sweep, payload, nodes), sweep.source, law=law)
        return _by_law(sweep, law, payload, evidence)
    points = sweep.points
    seconds = _seconds(sweep, payload)
    (low, start), (high, end) = points[-2], points[-1]
    slope = (end - start) / (high - low)
    late = smaller(points[0][1], seconds)
    moving = smaller(payload * slope, seconds - late)
    around: tuple[tuple[int, float], ...] = ()
    beyond = below = 0.0
    if not many(payload):
        at = next((at for at, (size, _) in enumerate(points) if size >= payload), len(points) - 1)
        around = points[max(at - 1, 0) : max(at - 1, 0) + 2]
        beyond = payload / high if payload > high else 0.0
        below = points[0][0] / max(payload, 1) if payload < points[0][0] else 0.0
    sure = Confidence.CALIBRATED if below else Confidence.MEASURED
    evidence = Evidence(sure, _band(sweep, payload, nodes), sweep.source, beyond, below, around)
    return Cost(
        sweep.algorithm, 0, late, moving, _wire(sweep, payload), 1 / slope if slope else None,
        ramp_s=seconds - late - moving, evidence=evidence,
    )  # fmt: skip


def _seconds(sweep: Sweep, payload: Number) -> Number:
    """The time of a payload, or of each of an array."""
    seconds, first = between(sweep.points, payload), sweep.points[0][0]
    below = payload < first
    if not (below.any() if hasattr(below, "any") else below):
        return seconds
    over, under = wire_ratio(sweep.kind, sweep.ranks)
    by_law = law_of(sweep).seconds(payload * over / under)
    return seconds * (below == 0) + smaller(seconds, by_law) * below


def _by_law(sweep: Sweep, law: Law, payload: Number, evidence: Evidence) -> Cost:
    over, under = wire_ratio(sweep.kind, sweep.ranks)
    bus = payload * over / under
    return Cost(
        sweep.algorithm, 0, law.t0_s + bus * 0.0, bus / law.bandwidth, _wire(sweep, payload), law.bandwidth,
        ramp_s=law.ramp(bus), evidence=evidence,
    )  # fmt: skip


def _carried_over(kind: Kind, sweeps: Sequence[Sweep], payload: Number, ranks: int, nodes: int) -> Cost:
    """The law for a group of another size than those measured."""
    laws = {sweep.ranks: law_of(sweep) for sweep in sweeps}
    law = law_for(kind, laws, ranks)
    source = ", ".join(dict.fromkeys(sweep.source for sweep in sweeps if sweep.source))
    evidence = Evidence(Confidence.CALIBRATED, _band(sweeps[0], payload, nodes), source, law=law)
    return _by_law(sweeps[0]._replace(ranks=ranks), law, payload, evidence)


@cache
def law_of(sweep: Sweep) -> Law:
    """The law of a sweep: its own, or the one fitted to its points."""
    if sweep.law is not None:
        return sweep.law
    from commcalc.network.fitting import law_of_points

    return law_of_points(sweep.points, float(factor(sweep.kind, sweep.ranks)))


def law_for(kind: Kind, laws: Mapping[int, Law], ranks: int) -> Law:
    """The law of a group of ``ranks`` from those of two or more other sizes."""
    from commcalc.network.fitting import latency_rule

    def steps(n: int) -> int:
        return int(ring_form(kind, n).steps)

    base, step = latency_rule({n: law.t0_s for n, law in laws.items()}, steps)
    ramps = tuple(sorted((n, law.c) for n, law in laws.items()))
    slow = tuple(sorted((n, 1 / law.bandwidth) for n, law in laws.items()))
    return Law(base + step * steps(ranks), _on_lines(ramps, ranks), 1 / _on_lines(slow, ranks))


def _on_lines(points: tuple[tuple[int, float], ...], n: int) -> float:
    """Between the measured group sizes on straight lines; outside them that of the nearest."""
    return float(between(points, min(max(n, points[0][0]), points[-1][0])))


def _band(sweep: Sweep, payload: Number, nodes: int) -> Band | None:
    """The error to expect, as measured over published sweeps (tests/benchmarks/accuracy.py).

    On the machine itself: 3 % and 15 % with 8 sizes or more, 8 % and 25 % with 4 or more, from 8 KiB to 1 GiB and
    inside what was measured. On another machine of its kind: 8 % and 25 % from 16 MiB on, else 15 % and 35 %; over
    several nodes 15 % and 30 % from 64 MiB on, and below that a factor of 1.5 and of 3. None where nothing is known:
    far beyond the largest measured size, or below the smallest.
    """
    if many(payload):
        return None
    largest = sweep.largest
    if largest is not None and not sweep.points[0][0] <= REACH * payload <= REACH**2 * largest:
        return None
    if sweep.own:
        sizes = len(sweep.points) or sweep.rows
        if not 8 * 1024 <= payload <= 1024 * _MIB or (largest is not None and payload > largest) or sizes < 4:
            return None
        return Band(0.03, 0.15) if sizes >= 8 else Band(0.08, 0.25)
    if nodes > 1:
        return Band(0.15, 0.30) if payload >= 64 * _MIB else Band(0.5, 2.0)
    return Band(0.08, 0.25) if payload >= 16 * _MIB else Band(0.15, 0.35)


def _wire(sweep: Sweep, payload: Number) -> Number:
    """What a kernel sends, or what a ring would: by which algorithm the library really went is not known."""
    known = form(sweep.algorithm, sweep.kind, sweep.ranks)
    return share(payload, known.sent if known else wire_ratio(sweep.kind, sweep.ranks))


def not_measured(level: Level, kind: Kind, ranks: int) -> UsageError:
    """The error of ``measured`` where nothing was."""
    there = sorted({f"{sweep.kind} over {sweep.ranks}" for sweep in level.measured})
    return UsageError(
        f"level {level.name} has no measured times of {kind} over {ranks} devices",
        where="--algorithm measured",
        hint=f"measured: {', '.join(there)}"
        if there
        else "commcalc calibrate LOG --output FILE makes a machine that has",
    )
