"""One collective priced every way, and the primitives compared on one array."""

from typing import NamedTuple

from commcalc.algebra.collective import Convention, Kind, wire_bytes
from commcalc.errors import UsageError
from commcalc.network.busbw import ratio
from commcalc.network.cost import Algorithm, added
from commcalc.network.forms import MESSAGES
from commcalc.network.hierarchy import Priced, price, ways
from commcalc.network.link import KERNELS, Network
from commcalc.network.placement import Placement

# A payload at which no rounding shows, to find where latency and bandwidth are equal.
_LARGE = 2**60
PRIMITIVES = (Kind.ALL_TO_ALL, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_REDUCE)


class Way(NamedTuple):
    """One algorithm for one collective, with the numbers that a benchmark would show."""

    kind: Kind
    n: int
    payload_bytes: int
    priced: Priced
    # Payload at which latency and bandwidth take equally long; None where nothing is sent.
    crossover_payload_bytes: int | None

    @property
    def name(self) -> Algorithm:
        """The algorithm."""
        return self.priced.cost.algorithm

    @property
    def time_s(self) -> float:
        """Seconds of one call."""
        return float(self.priced.cost.time_s)

    @property
    def overlapped_s(self) -> float:
        """Seconds if the phases on different levels ran at once: those of the busiest level; else the time."""
        by_level: dict[str, float] = {}
        for phase in self.priced.phases:
            by_level[phase.level] = by_level.get(phase.level, 0.0) + float(phase.cost.time_s)
        return max(by_level.values(), default=self.time_s)

    @property
    def algbw(self) -> float | None:
        """Payload over time, bytes per second; None where no time passes."""
        return self.payload_bytes / self.time_s if self.time_s else None

    @property
    def busbw(self) -> float | None:
        """``algbw`` times the factor of nccl-tests."""
        over, under = ratio(self.kind.value, self.n)
        return None if self.algbw is None else self.algbw * over / under


class Answer(NamedTuple):
    """A collective with all ways to run it, cheapest first; ``others`` run there, but the level does not offer them."""

    kind: Kind
    n: int
    payload_bytes: int
    wire_bytes: int
    best: Way
    runner_up: Way | None
    offered: tuple[Way, ...]
    others: tuple[Way, ...]
    placement: Placement


def primitive(
    kind: Kind,
    payload_bytes: int,
    placement: Placement,
    network: Network,
    algorithm: Algorithm = Algorithm.AUTO,
    convention: Convention = Convention.EXACT,
) -> Answer:
    """Every way to run ``kind`` for the group, and the one that `price` takes.

    `UsageError` where ``algorithm`` cannot run it there or is not on offer.
    """
    offered, others = (
        tuple(
            sorted(
                (_way(kind, payload_bytes, placement, network, convention, one) for one in found),
                key=lambda way: way.time_s,
            )
        )
        for found in ways(kind, payload_bytes, placement, network, convention, others=True)
    )
    if algorithm is Algorithm.AUTO:
        best = offered[0]
    else:
        chosen = price(kind, payload_bytes, placement, network, algorithm, convention)
        if algorithm in KERNELS and chosen.cost.evidence is not None:
            algorithm = chosen.cost.algorithm  # a kernel hands this payload over
        inside = {phase.cost.algorithm for phase in chosen.phases}
        if chosen.cost.algorithm is not algorithm and algorithm not in inside and placement.size > 1:
            names = [way.name for way in (*offered, *others)]
            level = network.levels[placement.outermost]
            few = level.in_network is not None and placement.size < level.in_network.min_ranks
            told = f"its switch sums from {level.in_network.min_ranks} devices on; " if few and level.in_network else ""
            raise UsageError(
                f"{algorithm} does not run {kind} over {placement.size} devices on "
                f"{network.levels[placement.outermost].name}",
                where=f"--algorithm {algorithm}",
                hint=f"{told if algorithm is Algorithm.IN_NETWORK else ''}here run {', '.join(names)}",
            )
        best = _way(kind, payload_bytes, placement, network, convention, chosen, algorithm)
        others = tuple(way for way in others if way.name is not best.name)
        offered = tuple(way for way in offered if way.name is not best.name)
        offered = tuple(sorted((*offered, best), key=lambda way: way.time_s))
    rest = [way for way in offered if way.name is not best.name]
    return Answer(
        kind, placement.size, payload_bytes, wire_bytes(kind, payload_bytes, placement.size, convention), best,
        rest[0] if rest else None, offered, others, placement,
    )  # fmt: skip


def _way(
    kind: Kind,
    payload: int,
    placement: Placement,
    network: Network,
    convention: Convention,
    found: Priced,
    algorithm: Algorithm | None = None,
) -> Way:
    """The way with the payload where its two terms are equal, from its price for a large one."""
    name = algorithm or found.cost.algorithm
    large = next(
        (one for group in ways(kind, _LARGE, placement, network, convention, others=True) for one in group
         if one.cost.algorithm is name),
        None,
    ) or price(kind, _LARGE, placement, network, name, convention)  # fmt: skip
    equal = None
    if large.cost.bandwidth_s:
        late = added(phase.cost.latency_s for phase in large.phases) if large.phases else large.cost.latency_s
        sent = added(phase.cost.bandwidth_s for phase in large.phases) if large.phases else large.cost.bandwidth_s
        equal = round(late / sent * _LARGE)
    if found.runner_up is not None:
        found = found._replace(runner_up=None)
    return Way(kind, placement.size, payload, found, equal)


class Compared(NamedTuple):
    """A primitive on an array that the group holds together, and why it costs what it does."""

    way: Way
    reason: str


def compare(
    array_bytes: int,
    placement: Placement,
    network: Network,
    algorithm: Algorithm = Algorithm.AUTO,
    convention: Convention = Convention.EXACT,
) -> list[Compared]:
    """The four primitives on an array of ``array_bytes`` in all, cheapest first (equal ones in the order named).

    An AllGather ends with the array on every device, a ReduceScatter and an AllReduce begin with a partial sum of it on
    every device, an AllToAll moves the split of it to another dimension.
    Source: How To Scale Your Model, part 3, "Selection priority".
    """
    n = placement.size
    found = []
    for kind in PRIMITIVES:
        payload = -(-array_bytes // n) if kind is Kind.ALL_TO_ALL else array_bytes
        taken = price(kind, payload, placement, network, algorithm, convention)
        found.append(_way(kind, payload, placement, network, convention, taken))
    by_time = sorted(found, key=lambda way: way.time_s)
    return [Compared(way, _reason(way, by_time[0], array_bytes)) for way in by_time]


def _reason(way: Way, cheapest: Way, array_bytes: int) -> str:
    """What a device sends of the array, and how often the cheapest fits into the time."""
    n = way.n
    if n == 1:
        return "a group of one device: no communication"
    if way.kind is Kind.ALL_TO_ALL:
        why = f"each device holds a {_th(n)} and sends {n - 1}/{n} of that; nothing is copied"
    elif way.kind is Kind.ALL_GATHER:
        why = f"each device ends with the whole: {n - 1}/{n} of the array passes every device"
    elif way.kind is Kind.REDUCE_SCATTER:
        why = "the transpose of all_gather: the same bytes, summed on the way"
    elif way.name is Algorithm.IN_NETWORK:
        why = f"summed in the switch: each device sends its data and a {_th(n)} of the result"
    else:
        why = "a reduce_scatter and an all_gather of the result: twice the bytes"
    if way.kind is not cheapest.kind and cheapest.time_s:
        why += f"; {way.time_s / cheapest.time_s:.3g} times {cheapest.kind}"
    return why if array_bytes else "a payload of 0 bytes: latency alone"


def _th(n: int) -> str:
    """``8th``, ``2nd``, ``3rd``."""
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def what_payload_is(kind: Kind) -> str:
    """What the payload of a kind counts, by the convention of nccl-tests."""
    if kind in MESSAGES or kind is Kind.BROADCAST:
        return "the message"
    return {
        Kind.ALL_REDUCE: "the buffer on each device",
        Kind.ALL_GATHER: "the gathered result",
        Kind.REDUCE_SCATTER: "the unreduced input on each device",
        Kind.ALL_TO_ALL: "what one device holds",
    }[kind]
