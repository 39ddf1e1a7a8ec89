"""Time of one collective on one level without axes: a switch, or all peers linked to each other.

    time = latency + bandwidth,  latency = steps * alpha,  bandwidth = bytes in sequence / (bytes per second)

Source: Hockney 1994 for the two terms; `forms` has the steps and bytes of each algorithm with their sources. The
textbook convention is the scaling book's, part 3: the larger of the two terms, and no ``(n-1)/n``.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from commcalc.algebra.collective import Convention, Kind
from commcalc.network.forms import Form, form, ring_form, textbook
from commcalc.network.link import Algorithm as Algorithm
from commcalc.network.link import Level, Topology, in_network_ratio

if TYPE_CHECKING:
    from commcalc.network.measured import Evidence

Number = Any


class Cost(NamedTuple):
    """Time of one call, split; and what one device sends under the algorithm that was priced.

    ``steps`` are the steps that cost the level's latency each; 0 where one fixed latency covers the call. ``bandwidth``
    is the rate in bytes per second that the bytes were divided by; None for the sum of phases at several rates.
    ``link_bytes`` is the most that one directed link carries; None where that is not known. ``overlapped``: the time
    is the larger of the two parts (textbook), not their sum. ``ramp_s`` is the square-root term of a measured link, and
    ``evidence`` what a measured time rests on; without it the time is a datasheet's lower bound.
    """

    algorithm: Algorithm
    steps: Number
    latency_s: Number
    bandwidth_s: Number
    egress_bytes: Number
    bandwidth: float | None
    link_bytes: Number | None = None
    overlapped: bool = False
    ramp_s: Number = 0.0
    evidence: "Evidence | None" = None

    @property
    def time_s(self) -> Number:
        """Seconds of one call."""
        if self.overlapped:
            return larger(self.latency_s, self.bandwidth_s)
        return self.latency_s + self.ramp_s + self.bandwidth_s

    @property
    def confidence(self) -> str:
        """``measured``, ``calibrated`` or ``datasheet``."""
        return "datasheet" if self.evidence is None else self.evidence.confidence

    @property
    def lower_bound(self) -> bool:
        """Whether it is by datasheet alone and so a bound; phases one after another are none, as they may overlap."""
        return self.evidence is None and self.algorithm is not Algorithm.HIERARCHICAL

    @property
    def counted(self) -> tuple[Number, Number]:
        """Latency and bandwidth as they add up to the time: the smaller is 0 where the larger hides it."""
        if not self.overlapped:
            return self.latency_s, self.bandwidth_s
        late = self.latency_s > self.bandwidth_s
        return self.latency_s * late, self.bandwidth_s * (late == 0)

    @property
    def bound(self) -> str:
        """``latency`` or ``bandwidth``: the larger part of the time; of numbers, not of arrays."""
        return "latency" if self.latency_s > self.bandwidth_s else "bandwidth"


def added(numbers: Iterable[Number]) -> Number:
    """The sum from left to right, of arrays too: `sum` mends what rounding loses from Python 3.12 on, of floats alone.

    >>> added([1.0, 2.0]), added([])
    (3.0, 0)
    """
    total: Number = 0
    for number in numbers:
        total = total + number
    return total


def larger(one: Number, other: Number) -> Number:
    """The larger of two numbers, element by element where one is an array."""
    if many(one) or many(other):
        return one * (one >= other) + other * (other > one)
    return max(one, other)


def smaller(one: Number, other: Number) -> Number:
    """The smaller of two numbers, element by element where one is an array; exact, not a sum less the larger."""
    if many(one) or many(other):
        return one * (one <= other) + other * (other < one)
    return min(one, other)


def many(number: Number) -> bool:
    """Whether a number stands for many: an array, or one whose calculation is recorded to be repeated."""
    return hasattr(number, "shape") or hasattr(number, "tape")


def cheapest(costs: Sequence[Cost]) -> Cost:
    """The cost of least time, the first of equals; for arrays element by element.

    Where elements take different algorithms the result is called ``auto``, and has no one rate.
    """
    best = costs[0]
    for cost in costs[1:]:
        better = cost.time_s < best.time_s
        if not hasattr(better, "shape"):
            best = cost if better else best
            continue
        numbers = {
            name: getattr(cost, name) * better + getattr(best, name) * (better == 0)
            for name in ("steps", "latency_s", "ramp_s", "bandwidth_s", "egress_bytes")
        }
        if better.all() or not better.any():
            best = (cost if better.all() else best)._replace(**numbers)
        else:
            best = best._replace(**numbers, algorithm=Algorithm.AUTO, bandwidth=None, link_bytes=None, evidence=None)
    return best


def share(payload_bytes: Number, ratio: tuple[Number, Number]) -> Number:
    """Whole bytes of a ratio of the payload, rounded up once.

    >>> share(1000, (7, 8)), share(1001, (7, 8))
    (875, 876)
    """
    return -(-payload_bytes * ratio[0] // ratio[1])


def timed(
    algorithm: Algorithm,
    found: Form,
    payload_bytes: Number,
    rate: float,
    latency_s: float,
    convention: Convention = Convention.EXACT,
) -> Cost:
    """The cost of a form whose bytes in sequence pass at ``rate`` bytes per second, each step ``latency_s`` late."""
    over, under = found.through
    return Cost(
        algorithm,
        found.steps,
        found.steps * latency_s,
        payload_bytes * over / under / rate,
        share(payload_bytes, found.sent),
        rate,
        share(payload_bytes, found.link),
        convention is Convention.TEXTBOOK,
    )


def ring(kind: Kind, payload_bytes: Number, n: Number, level: Level, convention: Convention) -> Cost:
    """A one-way ring over ``n`` devices that each send at the level's bandwidth.

    H100, 8 devices, AllReduce of 1 GiB at 450 GB/s: 2 * 7/8 * 2^30 / 450e9 = 4175.663 us.
    """
    found = ring_form(kind, n)
    if convention is Convention.TEXTBOOK:
        found = textbook(Algorithm.RING, kind, n, found)
    return timed(Algorithm.RING, found, payload_bytes, level.rate, level.latency_s, convention)


def in_network(payload_bytes: Number, n: Number, level: Level, convention: Convention = Convention.EXACT) -> Cost:
    """An AllReduce in a switch that sums: ``S (1 + 1/n)`` out of each device, one fixed latency.

    Each device sends its data to the switch, and its own n-th of the result once to all (NVLS: nccl-tests pull 239);
    `S` alone where the switches keep the sum themselves (SHARP), and in the textbook limit.
    H100, 8 devices, 1 GiB at 450 GB/s: 9/8 * 2^30 / 450e9 = 2684.355 us.
    """
    sums = level.in_network
    latency = sums.latency_s if sums else 0.0
    own = convention is not Convention.TEXTBOOK and (sums is None or sums.own_copy)
    sent = in_network_ratio(n, own)
    found = timed(Algorithm.IN_NETWORK, Form(0, sent, sent, sent), payload_bytes, level.rate, 0.0, convention)
    return found._replace(latency_s=latency * (n > 1))


def offers_in_network(kind: Kind, n: int, level: Level) -> bool:
    """Whether the level's switch sums this collective for a group of ``n``."""
    return kind is Kind.ALL_REDUCE and level.in_network is not None and n >= max(2, level.in_network.min_ranks)


# All peers at once over their own links.
_AT_ONCE = (Algorithm.DIRECT, Algorithm.ONE_SHOT, Algorithm.TWO_SHOT)


def cost_on(
    algorithm: Algorithm,
    kind: Kind,
    payload_bytes: Number,
    n: Number,
    level: Level,
    convention: Convention = Convention.EXACT,
    ends: int | None = None,
) -> Cost | None:
    """The cost of ``algorithm`` for ``n`` members of a switch or full mesh; None where it cannot run there.

    On a full mesh of ``ends`` devices, m of them have m-1 links each at work: an AllGather takes ``V / (m w)``, w the
    rate of one link. An algorithm that talks to one peer at a time has one link. MI300X, AllReduce of 1 GiB between 2
    devices, w = 64 GB/s: 2^30 / 64e9 = 16777.216 us.
    """
    if algorithm is Algorithm.IN_NETWORK:
        return in_network(payload_bytes, n, level, convention) if offers_in_network(kind, n, level) else None
    if algorithm not in candidates(level, kind):
        return None
    found = form(algorithm, kind, n)
    if found is None:
        return None
    if convention is Convention.TEXTBOOK:
        found = textbook(algorithm, kind, n, found)
    if level.topology is not Topology.FULL_MESH:
        return timed(algorithm, found, payload_bytes, level.rate, level.latency_s, convention)
    peers = (ends or level.devices or 2) - 1
    link = level.rate / peers
    if algorithm in _AT_ONCE:
        found = found._replace(through=found.link)
    return timed(algorithm, found, payload_bytes, link, level.latency_s, convention)


_A = Algorithm
# What can run where devices have one port to a switch, or a link to each peer; the first ones are what `auto` may take
# where the level lists no algorithms of its own: what NCCL, RCCL and their kin run.
_USUAL = {
    Topology.SWITCH: {
        Kind.ALL_REDUCE: (_A.RING, _A.IN_NETWORK),
        Kind.ALL_GATHER: (_A.RING,),
        Kind.REDUCE_SCATTER: (_A.RING,),
        Kind.ALL_TO_ALL: (_A.PAIRWISE,),
        Kind.SEND_RECV: (_A.DIRECT,),
        Kind.PERMUTE: (_A.DIRECT,),
        Kind.BROADCAST: (_A.RING,),
    },
    Topology.FULL_MESH: {
        Kind.ALL_REDUCE: (_A.TWO_SHOT,),
        Kind.ALL_GATHER: (_A.DIRECT,),
        Kind.REDUCE_SCATTER: (_A.DIRECT,),
        Kind.ALL_TO_ALL: (_A.DIRECT,),
        Kind.SEND_RECV: (_A.DIRECT,),
        Kind.PERMUTE: (_A.DIRECT,),
        Kind.BROADCAST: (_A.TWO_SHOT, _A.DIRECT),
    },
}
_POSSIBLE = {
    Kind.ALL_REDUCE: (
        _A.RING, _A.IN_NETWORK, _A.TWO_SHOT, _A.ONE_SHOT, _A.RABENSEIFNER, _A.RECURSIVE_DOUBLING,
        _A.DOUBLE_BINARY_TREE, _A.BINOMIAL_TREE,
    ),
    Kind.ALL_GATHER: (_A.RING, _A.DIRECT, _A.RECURSIVE_DOUBLING, _A.BRUCK),
    Kind.REDUCE_SCATTER: (_A.RING, _A.DIRECT, _A.RECURSIVE_HALVING, _A.PAIRWISE),
    Kind.ALL_TO_ALL: (_A.PAIRWISE, _A.DIRECT, _A.BRUCK),
    Kind.SEND_RECV: (_A.DIRECT,),
    Kind.PERMUTE: (_A.DIRECT,),
    Kind.BROADCAST: (_A.RING, _A.DIRECT, _A.TWO_SHOT, _A.DOUBLE_BINARY_TREE, _A.BINOMIAL_TREE),
}  # fmt: skip


def candidates(level: Level, kind: Kind) -> tuple[Algorithm, ...]:
    """What could run ``kind`` on a switch or full mesh, whatever its software offers."""
    return () if level.axes else _POSSIBLE.get(kind, ())


def usual(level: Level, kind: Kind) -> tuple[Algorithm, ...]:
    """What `auto` may take for ``kind`` where the level lists no algorithms."""
    return _USUAL[level.topology].get(kind, ())
