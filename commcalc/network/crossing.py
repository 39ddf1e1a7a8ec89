"""Collectives of groups that cross levels.

    hierarchical  AllReduce       ReduceScatter inside, AllReduce of the share across, AllGather inside
                  ReduceScatter   inside, then of the share across
                  AllGather       of the share across, then inside
                  AllToAll        each level carries what goes to its own members: S (g-1)/n inside, S (n-g)/n across
    ring          one ring through all members, on as many links across as a domain has members (several channels)
    double-binary-tree  AllReduce: a chain inside each domain, two trees over the domains
    direct        a message: the outermost level that it crosses

Phases follow one another, so their times add up; a network that overlaps them is faster by at most the smaller part.
The textbook convention overlaps them: the slowest level counts.
Each member has its own port across (a rail); ports that are shared, and uplinks that carry less than all ports
together, are slower by as much (`Level.rate`).
Sources: NCCL's hierarchical form as in the scaling book, part 12; stas00/ml-engineering network/README.md, "Inter-node
speed depends on intra-node speed"; NCCL src/graph/tuning.cc for the steps of the tree.
"""

import math

from commcalc.algebra.collective import Convention, Kind, wire_bytes
from commcalc.network.cost import Algorithm, Cost, Number, added, larger, ring, share, timed
from commcalc.network.forms import MESSAGES, Form, ceil_log2, tree_ratio
from commcalc.network.hierarchy import Phase, Priced, Ways, not_offered, offered_by, on_level
from commcalc.network.link import Level, Network
from commcalc.network.placement import Placement

_A = Algorithm
_POSSIBLE = {
    Kind.ALL_REDUCE: (_A.HIERARCHICAL, _A.RING, _A.DOUBLE_BINARY_TREE),
    Kind.ALL_GATHER: (_A.HIERARCHICAL, _A.RING),
    Kind.REDUCE_SCATTER: (_A.HIERARCHICAL, _A.RING),
    Kind.ALL_TO_ALL: (_A.HIERARCHICAL,),
    Kind.SEND_RECV: (_A.DIRECT,),
    Kind.PERMUTE: (_A.DIRECT,),
    Kind.BROADCAST: (_A.RING, _A.HIERARCHICAL),
}


def across(
    kind: Kind, payload_bytes: int, placement: Placement, network: Network, convention: Convention, others: bool = False
) -> Ways:
    """The ways on offer to run a collective of a group that crosses levels; with ``others`` the rest too."""
    possible = _possible(kind, placement, network)
    outer = network.levels[placement.outermost]
    wanted = offered_by(outer, possible, possible[:1])
    rest = tuple(one for one in possible if one not in wanted) if others else ()

    def priced(names: tuple[Algorithm, ...]) -> tuple[Priced, ...]:
        return tuple(_by(name, kind, payload_bytes, placement, network, _A.AUTO, convention) for name in names)

    return Ways(priced(wanted), priced(rest))


def named_across(
    kind: Kind, payload_bytes: int, placement: Placement, network: Network, algorithm: Algorithm, convention: Convention
) -> Priced:
    """The price by a named algorithm: one that crosses levels, or one for the phases on each level."""
    possible = _possible(kind, placement, network)
    outer = network.levels[placement.outermost]
    if algorithm in possible:
        if outer.algorithms and algorithm not in offered_by(outer, possible, possible[:1]):
            raise not_offered(outer, algorithm, offered_by(outer, possible, possible[:1]))
        return _by(algorithm, kind, payload_bytes, placement, network, _A.AUTO, convention)
    return _by(possible[0], kind, payload_bytes, placement, network, algorithm, convention)


def _possible(kind: Kind, placement: Placement, network: Network) -> tuple[Algorithm, ...]:
    """A flat ring and trees need a port of each member on every level; uneven domains leave the flat ring alone."""
    found = _POSSIBLE[kind]
    if placement.uneven:
        return (_A.DIRECT,) if kind in MESSAGES else (_A.RING,)
    if any(network.levels[index].axes for index, _ in placement.parts):
        return tuple(one for one in found if one in (_A.HIERARCHICAL, _A.DIRECT))
    return found


def _by(
    name: Algorithm,
    kind: Kind,
    payload: int,
    placement: Placement,
    network: Network,
    inside: Algorithm,
    convention: Convention,
) -> Priced:
    outer = network.levels[placement.outermost]
    if name is _A.RING:
        return Priced(flat_ring(kind, payload, placement, network, convention), outer.name, ())
    if name is _A.DOUBLE_BINARY_TREE:
        tree = _tree(payload, placement, network)
        return Priced(tree._replace(overlapped=convention is Convention.TEXTBOOK), outer.name, ())
    if name is _A.DIRECT:
        index, n = placement.parts[-1]
        # A pair of domains: the message crosses between two of them, whatever else the group holds.
        cost = on_level(kind, payload, n, placement, index, network, inside, convention)
        return Priced(cost._replace(algorithm=_A.DIRECT), outer.name, ())
    phases = _phases(kind, payload, placement, network, inside, convention)
    late, sent = (added(parts) for parts in zip(*(phase.cost.counted for phase in phases), strict=True))
    ramp = added(phase.cost.ramp_s for phase in phases)
    if convention is Convention.TEXTBOOK:
        late, sent = _slowest_level(phases)
    cost = Cost(
        _A.HIERARCHICAL,
        sum(phase.cost.steps for phase in phases),
        late,
        sent,
        _sent(kind, payload, placement.size, phases, convention),
        None,
        ramp_s=ramp,
    )
    return Priced(cost, outer.name, phases)


def _slowest_level(phases: tuple[Phase, ...]) -> tuple[Number, Number]:
    """Latency and bandwidth of the level that takes longest, as the scaling book, part 12, counts."""
    slowest: tuple[Number, Number] = (0.0, 0.0)
    for level in dict.fromkeys(phase.level for phase in phases):
        here = [phase.cost.counted for phase in phases if phase.level == level]
        late, sent = (added(parts) for parts in zip(*here, strict=True))
        longer = (late + sent > slowest[0] + slowest[1]) * 1
        slowest = (late * longer + slowest[0] * (1 - longer), sent * longer + slowest[1] * (1 - longer))
    return slowest


# Phases by these send together what one ring sends, so the count is rounded once.
_AS_A_RING = (_A.RING, _A.PAIRWISE, _A.DIRECT, _A.TWO_SHOT, _A.MEASURED)


def _sent(kind: Kind, payload: int, n: int, phases: tuple[Phase, ...], convention: Convention) -> Number:
    """What one device sends in all phases."""
    alike = all(phase.cost.algorithm in _AS_A_RING for phase in phases)
    if alike and kind is not Kind.BROADCAST and convention is Convention.EXACT:
        return wire_bytes(kind, payload, n)
    return sum(phase.cost.egress_bytes for phase in phases)


def _phases(
    kind: Kind, payload: int, placement: Placement, network: Network, algorithm: Algorithm, convention: Convention
) -> tuple[Phase, ...]:
    """Inner levels scatter on the way out and gather on the way back; the outermost does the kind itself."""
    out: list[Phase] = []
    back: list[Phase] = []
    done = 1
    n = placement.size

    def phase(kinds: Kind, members: int, index: int, bytes_here: int, by: Algorithm, times: int = 1) -> Phase:
        cost = on_level(kinds, bytes_here, members, placement, index, network, by, convention)
        if times > 1:
            cost = cost._replace(steps=cost.steps * times, latency_s=cost.latency_s * times)
        return Phase(network.levels[index].name, kinds, members, bytes_here, cost)

    for index, members in placement.parts:
        last = index == placement.outermost
        if kind is Kind.ALL_TO_ALL:  # a message for each rank that is reached over this level, aggregated nowhere
            bytes_here = share(payload, (done * members, n))
            axes = network.levels[index].axes
            out.append(phase(kind, members, index, bytes_here, algorithm, 1 if axes else done))
        elif kind is Kind.BROADCAST:
            out.insert(0, phase(kind, members, index, payload, algorithm))
        elif kind is Kind.ALL_REDUCE and not last:
            bytes_here = -(-payload // done)
            inside = _A.AUTO if algorithm in (_A.IN_NETWORK, _A.HIERARCHICAL) else algorithm
            out.append(phase(Kind.REDUCE_SCATTER, members, index, bytes_here, inside))
            back.append(phase(Kind.ALL_GATHER, members, index, bytes_here, inside))
        else:
            found = phase(kind, members, index, -(-payload // done), algorithm)
            (back if kind is Kind.ALL_GATHER else out).append(found)
        done *= members
    return (*out, *reversed(back))


def flat_ring(kind: Kind, payload_bytes: int, placement: Placement, network: Network, convention: Convention) -> Cost:
    """One ring through all members that changes domains on as many links at once as each domain has members.

    The slowest level decides the rate: ``min(W, g * W_outer)`` for ``g`` members in a domain. A step is as late as the
    link that it crosses: of the hops of a pass k-1 are between k domains. Where these are uneven every step waits for
    the slowest.
    Sources: stas00/ml-engineering network/README.md, 20.8 ms for 4 GiB on 4 nodes of 8 B200; NCCL src/graph/tuning.cc,
    ring across nodes: 56 steps inside and 6 between for 4 nodes of 8.
    """
    outer = network.levels[placement.outermost]
    latency = max(network.levels[index].latency_s for index in range(placement.outermost + 1))
    if kind is Kind.ALL_TO_ALL:
        return _uneven_exchange(payload_bytes, placement, network, latency, convention)
    wide = Level(name=outer.name, bandwidth=ring_rate(placement, network), latency_s=latency)
    found = ring(kind, payload_bytes, placement.size, wide, convention)
    if placement.uneven:
        return found
    passes = 2 if kind is Kind.ALL_REDUCE else 1
    late = added(passes * hops * network.levels[index].latency_s for index, hops in ring_hops(placement))
    return found._replace(latency_s=late)


def ring_rate(placement: Placement, network: Network) -> float:
    """The rate of one flat ring through the group: that of the level which lets the least through."""
    if placement.uneven:
        outer = network.levels[placement.outermost]
        inner = network.levels[: placement.outermost]
        return min([outer.rate * placement.channels, *(level.rate for level in inner)])
    return min(rate for _, rate in channel_rates(placement, network))


def channel_rates(placement: Placement, network: Network) -> list[tuple[int, float]]:
    """For each level of an even group the rate at which one chain of several channels leaves a domain inside it.

    As many ports as the domain has members work at once.
    """
    members = 1
    found = []
    for index, part in placement.parts:
        found.append((index, network.levels[index].rate * members))
        members *= part
    return found


def _uneven_exchange(
    payload_bytes: int, placement: Placement, network: Network, latency: float, convention: Convention
) -> Cost:
    """An AllToAll of uneven domains: each member sends what leaves its domain through its own port, then what stays.

    Those of the smallest domain send most across, those of a full one most inside; the slower of them counts.
    """
    n, outer = placement.size, network.levels[placement.outermost]
    inner = network.levels[: placement.outermost]
    slow = min(level.rate for level in inner)
    full = min(n - placement.channels, inner[-1].devices or n)
    leaves = Form(n - 1, (n - 1, n), (1, n), (n - placement.channels, n))
    found = timed(_A.PAIRWISE, leaves, payload_bytes, outer.rate, latency, convention)
    times = [
        payload_bytes * (n - members) / n / outer.rate + payload_bytes * (members - 1) / n / slow
        for members in (placement.channels, full)
    ]
    return found._replace(bandwidth_s=larger(*times), bandwidth=None)


def ring_hops(placement: Placement) -> list[tuple[int, int]]:
    """For each level of an even group the hops of one pass round its flat ring that cross that level and no further."""
    domains = placement.size  # of the level inside
    found = []
    for index, members in placement.parts:
        domains //= members
        found.append((index, domains * (members - 1)))
    return found


def tree_steps(members: int, domains: int) -> tuple[int, int]:
    """Steps of an AllReduce up and down a chain of ``members`` in each domain, and over a tree of ``domains``.

    >>> tree_steps(8, 4)
    (14, 4)
    """
    return 2 * (members - 1), 2 * ceil_log2(domains)


def _tree(payload: int, placement: Placement, network: Network) -> Cost:
    """AllReduce over two trees of domains with a chain inside each.

    Every byte crosses the ports of a domain once up and once down, so 2S over ``g`` ports (S of two domains, 3/2 S of
    three: `tree_ratio`); inside, S up and S down the chain.

    Two nodes of 8, 1 GB, 12 GB/s out of a node: 83.3 ms, where a ring needs 1.875 times as long.
    Source: NVIDIA/nccl issues 812, 1576; src/graph/tuning.cc: 2 ((g-1) inner + log2(k) outer) steps of latency.
    """
    index, domains = placement.parts[-1]
    outer = network.levels[index]
    members = placement.size // domains
    over, under = tree_ratio(domains)
    crossing = payload * over / under / (outer.rate * members)
    slowest = min((rate for _, rate in channel_rates(placement, network)[:-1]), default=math.inf)
    within = 2 * payload / slowest
    down, across_ = tree_steps(sum(part - 1 for _, part in placement.parts[:-1]) + 1, domains)
    chain = added((part - 1) * network.levels[at].latency_s for at, part in placement.parts[:-1])
    late = 2 * chain + across_ * outer.latency_s
    steps = down + across_
    rate = outer.rate * members if crossing >= within else slowest
    egress = 2 * payload + share(payload, (over, under * members))
    return Cost(_A.DOUBLE_BINARY_TREE, steps, late, max(crossing, within), egress, rate)
