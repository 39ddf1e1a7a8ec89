"""One collective on the levels its group really spans: inside, across, inside again.

    AllReduce       ReduceScatter inside, AllReduce of the share across, AllGather inside
    ReduceScatter   inside, then of the share across
    AllGather       of the share across, then inside

Phases follow one another, so their times add up; a network that overlaps them is faster by at most the smaller part.
Source: NCCL's hierarchical form as in topology notes of the scaling book, part 12, and stas00/ml-engineering,
"Inter-node speed depends on intra-node speed".
"""

from typing import NamedTuple

from commcalc.algebra.collective import Convention, Kind
from commcalc.errors import UsageError
from commcalc.network.cost import Algorithm, Cost, Number, in_network, offers_in_network, ring
from commcalc.network.link import Level, Network
from commcalc.network.placement import Placement


class Phase(NamedTuple):
    """One part of a collective on one level."""

    level: str
    kind: Kind
    group_size: int
    payload_bytes: int
    cost: Cost


class Priced(NamedTuple):
    """A collective with its time; ``phases`` is empty where one level serves it."""

    cost: Cost
    level: str
    phases: tuple[Phase, ...]


def price(
    kind: Kind,
    payload_bytes: int,
    placement: Placement,
    network: Network,
    algorithm: Algorithm = Algorithm.AUTO,
    convention: Convention = Convention.EXACT,
) -> Priced:
    """Time of one call.

    With ``auto`` a group on one level takes the fastest that the level offers (the ring where two are equal), and a
    group across levels is hierarchical. ``ring`` across levels is one flat ring of several channels (`flat_ring`).
    ``in-network`` falls back to the ring for kinds that no switch sums; `UsageError` where the level that joins the
    group does not sum at all.
    """
    outer = network.levels[placement.outermost]
    if placement.uneven or (len(placement.parts) > 1 and algorithm is Algorithm.RING):
        return Priced(flat_ring(kind, payload_bytes, placement, network, convention), outer.name, ())
    if len(placement.parts) > 1:
        if kind not in (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER):
            raise UsageError(f"{kind} over a group that crosses levels has no price here")
        phases = _phases(kind, payload_bytes, placement, network, algorithm, convention)
        cost = Cost(
            Algorithm.HIERARCHICAL,
            sum(phase.cost.steps for phase in phases),
            sum(phase.cost.latency_s for phase in phases),
            sum(phase.cost.bandwidth_s for phase in phases),
            sum(phase.cost.egress_bytes for phase in phases),
            None,
        )
        return Priced(cost, outer.name, phases)
    return Priced(_on_level(kind, payload_bytes, placement.size, outer, algorithm, convention), outer.name, ())


def _on_level(kind: Kind, payload: Number, n: int, level: Level, algorithm: Algorithm, convention: Convention) -> Cost:
    plain = ring(kind, payload, n, level, convention)
    if algorithm is Algorithm.IN_NETWORK and kind is Kind.ALL_REDUCE and level.in_network is None:
        raise UsageError(
            f"level {level.name} does not reduce in the network",
            where="--algorithm in-network",
            hint="--algorithm ring, or in_network_reduction in the hardware file",
        )
    if algorithm in (Algorithm.RING, Algorithm.HIERARCHICAL) or not offers_in_network(kind, n, level):
        return plain
    summed = in_network(payload, n, level)
    return summed if algorithm is Algorithm.IN_NETWORK or summed.time_s < plain.time_s else plain


def _phases(
    kind: Kind, payload: int, placement: Placement, network: Network, algorithm: Algorithm, convention: Convention
) -> tuple[Phase, ...]:
    """Inner levels scatter on the way out and gather on the way back; the outermost does the kind itself."""
    out: list[Phase] = []
    back: list[Phase] = []
    share = 1
    for index, n in placement.parts:
        level = network.levels[index]
        bytes_here = -(-payload // share)
        last = index == placement.outermost
        if kind is Kind.ALL_REDUCE and not last:
            for kinds, phases in ((Kind.REDUCE_SCATTER, out), (Kind.ALL_GATHER, back)):
                cost = ring(kinds, bytes_here, n, level, convention)
                phases.append(Phase(level.name, kinds, n, bytes_here, cost))
        else:
            cost = _on_level(kind, bytes_here, n, level, algorithm, convention)
            (back if kind is Kind.ALL_GATHER else out).append(Phase(level.name, kind, n, bytes_here, cost))
        share *= n
    return (*out, *reversed(back))


def flat_ring(kind: Kind, payload_bytes: int, placement: Placement, network: Network, convention: Convention) -> Cost:
    """One ring through all members that changes domains on as many links at once as each domain has members.

    The slowest level decides: ``min(W, g * W_outer)`` for ``g`` members in a domain, and its latency every step.
    Source: stas00/ml-engineering network/README.md, 20.8 ms for 4 GiB on 4 nodes of 8 B200.
    """
    parts = placement.parts
    outer = network.levels[placement.outermost]
    channels = placement.channels if placement.uneven else placement.size // parts[-1][1]
    inner = network.levels[: placement.outermost]
    rate = min([outer.bandwidth * channels, *(level.bandwidth for level in inner)])
    latency = max(network.levels[index].latency_s for index in range(placement.outermost + 1))
    wide = Level(name=outer.name, bandwidth=rate, latency_s=latency)
    return ring(kind, payload_bytes, placement.size, wide, convention)
