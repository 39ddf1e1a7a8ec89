"""Levels whose devices are joined along axes: rings, open lines, tori; and which part of them a group holds.

An axis that a group fills closes into a ring where the level wraps; a part of it is an open line. Every other chip of
an axis is a ring whose hops are two links long, and the group between shares those links.

    one axis, closed     AG, RS: V (n-1)/n / 2w,  floor(n/2) hops        AllToAll: S n/8 / w (odd n: (n^2-1)/8n)
    one axis, open       AG, RS: V (n-1)/n / w,   n-1 hops               AllToAll: S floor(n/2) ceil(n/2) / n / w
    k axes at once       AG, RS: V (N-1)/N / sum of 2w or w,  hops added  AllToAll: the slowest axis, with all of S

with w the rate of one link in one direction. For k axes the array is cut into k parts that walk the axes in different
orders. With parts of the right sizes every axis is busy all the time: the loads of the axes add up to V (N-1)/N
whatever the sizes are, unless some axes are too slow for what must cross them alone. AllReduce is ReduceScatter and
AllGather. A send is between the two members that are farthest apart, a permute between neighbours.

Sources: How To Scale Your Model, parts 2 and 3 (sharding), which drops (n-1)/n and takes the larger of hops times
latency and bytes over bandwidth: the textbook convention; ND AllToAll there, dimension by dimension. Axes of unequal
rates: derived here; a simulator of dimension-ordered routing gives the same for tori with equal axes.
"""

from itertools import combinations
from math import lcm, prod
from typing import NamedTuple

from commcalc.algebra.collective import Convention, Kind
from commcalc.network.cost import Cost, Number, added, timed
from commcalc.network.forms import AG, AR, RS, Form, form, textbook
from commcalc.network.link import Algorithm, Level, Topology, Wraparound

# Slices that a TPU generation with two axes offers (docs.cloud.google.com/tpu/docs/v5e and v6e), either way round.
FLAT_SLICES = ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
# And those of three axes below a whole cube (docs.cloud.google.com/tpu/docs/v4, v5p, tpu7x).
SMALL_SLICES = ((1, 1, 1), (1, 2, 2), (2, 2, 2), (2, 2, 4), (2, 4, 4))
CUBE = 4
FULL_AXIS = 16


class Span(NamedTuple):
    """The part of one axis that a group holds: ``members``, ``hop`` links apart, on an axis of ``length`` ends.

    ``closed``: the members make a ring. ``length`` 0 is not known.
    """

    members: int
    hop: int = 1
    closed: bool = False
    length: int = 0

    @property
    def ring(self) -> bool:
        """Whether both ways round lead to different neighbours; two ends of one link are a line."""
        return self.closed and (self.members > 2 or self.hop > 1)

    @property
    def hops(self) -> int:
        """Links to the farthest member."""
        return (self.members // 2 if self.ring else self.members - 1) * self.hop


def wraps(level: Level) -> tuple[bool, ...]:
    """For each axis of ``level`` whether its ends are joined."""
    if level.topology is not Topology.TORUS:
        return (level.topology is Topology.RING,)
    rule, shape = level.wraparound, level.shape
    if level.joined:
        return level.joined
    if rule is Wraparound.AXIS_OF_16:
        return tuple(size == FULL_AXIS for size in shape)
    if rule is Wraparound.CUBES_OF_4:
        return (all(size % CUBE == 0 for size in shape),) * len(shape)
    if rule is Wraparound.FULL_POD:
        return (sorted(shape) == sorted(level.pod),) * len(shape)
    return (rule is Wraparound.ALL,) * len(shape)


def slice_problem(level: Level) -> tuple[str, str] | None:
    """Why a generation does not offer the slice of ``level``, and which it does; None where it does."""
    shape, rule = level.shape, level.wraparound
    text = "x".join(map(str, shape))
    if level.pod:
        pod = "x".join(map(str, level.pod))
        fits = len(shape) == len(level.pod) and all(
            size <= most for size, most in zip(sorted(shape), sorted(level.pod), strict=True)
        )
        if not fits:
            return f"a slice {text} does not fit in the pod of {pod}", f"a shape of {len(level.pod)} axes within {pod}"
    if rule is Wraparound.AXIS_OF_16 and tuple(sorted(shape)) not in FLAT_SLICES:
        known = ", ".join("x".join(map(str, one)) for one in FLAT_SLICES)
        return f"there is no slice {text}", f"slices: {known}"
    if rule is Wraparound.CUBES_OF_4:
        whole = len(shape) == 3 and all(size % CUBE == 0 for size in shape)
        if not whole and tuple(sorted(shape)) not in SMALL_SLICES:
            known = ", ".join("x".join(map(str, sorted(one, reverse=True))) for one in SMALL_SLICES)
            return f"there is no slice {text}", f"slices: {known}, and three axes that are multiples of 4"
    return None


def possible(spans: tuple[Span, ...], level: Level) -> tuple[Algorithm, ...]:
    """What can run on these parts of axes, the usual one first."""
    if len(spans) > 1:
        return (Algorithm.TORUS,)
    if level.topology is Topology.RING and not level.two_way:
        return (Algorithm.RING,)
    closed = not spans or spans[0].ring
    return (Algorithm.RING_TWO_WAY, Algorithm.RING) if closed else (Algorithm.LINE,)


def cost_on_axes(
    algorithm: Algorithm,
    kind: Kind,
    payload_bytes: Number,
    spans: tuple[Span, ...],
    level: Level,
    convention: Convention = Convention.EXACT,
) -> Cost | None:
    """The cost of ``algorithm`` on parts of axes; None where it cannot run there.

    TPU v5e, ring of 16, AllGather of 64 MiB over links of 45 GB/s: 15/16 * 2^26 / 90e9 = 699.051 us; the textbook
    says 745.654 us. An open line of 4, 34 MB: 3/4 * 34e6 / 45e9 = 566.667 us.
    """
    if algorithm not in possible(spans, level):
        return None
    if kind is Kind.SEND_RECV and spans:
        return send_across(payload_bytes, spans, level, convention)._replace(algorithm=algorithm)
    if algorithm is Algorithm.TORUS:
        return timed(
            algorithm, _together(kind, spans, convention), payload_bytes, level.rate, level.latency_s, convention
        )
    span = spans[0] if spans else Span(1)
    found = form(algorithm, kind, span.members)
    if found is None:
        return None
    if convention is Convention.TEXTBOOK:
        found = textbook(algorithm, kind, span.members, found)
    hop = span.hop
    if algorithm is Algorithm.RING and not span.closed:  # round the rest of a one-way ring, as all other groups do
        hop = span.length - (span.members - 1) * span.hop
        return timed(algorithm, _slower(found, hop, 1), payload_bytes, level.rate * span.members / span.length,
                     level.latency_s, convention)  # fmt: skip
    return timed(algorithm, _slower(found, hop, hop), payload_bytes, level.rate, level.latency_s, convention)


def _slower(found: Form, hop: int, shared: int) -> Form:
    """Hops of several links, each shared by as many groups."""
    return found._replace(steps=found.steps * hop, through=(found.through[0] * shared, found.through[1]))


def _together(kind: Kind, spans: tuple[Span, ...], convention: Convention) -> Form:
    """Several axes at once; rates in links of the group's own: a closed axis has 2, an open one 1."""
    n = prod(span.members for span in spans)
    common = lcm(*(span.hop for span in spans))
    rates = [(2 if span.ring else 1) * common // span.hop for span in spans]
    total = added(rates)
    hops = added(span.hops for span in spans)
    if kind in (AG, RS, AR):
        over, under = (n, n) if convention is Convention.TEXTBOOK else (n - 1, n)
        through = max(_bounds(spans, rates, common, convention), key=lambda load: load[0] / load[1])
        passes = 2 if kind is AR else 1
        twice = (passes * through[0], through[1])
        gathered, parts = _sent_by_gather(spans, rates, total)
        scattered = parts if kind is AR else 0
        sent = (over * (parts if kind is RS else gathered + scattered), under * parts)
        return Form(passes * hops, sent, twice, twice)
    if kind is Kind.ALL_TO_ALL:
        each = [form(Algorithm.RING_TWO_WAY if span.ring else Algorithm.LINE, kind, span.members) for span in spans]
        if convention is Convention.TEXTBOOK:
            each = [
                textbook(Algorithm.RING_TWO_WAY if span.ring else Algorithm.LINE, kind, span.members, one)
                for span, one in zip(spans, each, strict=True)
                if one
            ]
        loads = [(one.through[0] * span.hop, one.through[1]) for span, one in zip(spans, each, strict=True) if one]
        under = lcm(*(one.sent[1] for one in each if one))
        sent = (sum(one.sent[0] * under // one.sent[1] for one in each if one), under)
        slowest = max(loads, key=lambda load: load[0] / load[1])
        return Form(hops, sent, slowest, slowest)
    ends = added((1 if span.ring else span.members - 1) * span.hop for span in spans)
    shared = max(span.hop for span in spans)
    if kind is Kind.BROADCAST:  # along one axis after another, in small pieces: every piece crosses every axis
        through = max(((span.hop, 2 if span.ring else 1) for span in spans), key=lambda load: load[0] / load[1])
        return Form(sum((span.members - 1) * span.hop for span in spans), (len(spans), 1), through, through)
    # Messages between neighbours in the order of the group, the next of a row's last one being in another row.
    back = 2 if any(not span.ring and span.members > 2 for span in spans) else 1
    return Form(ends, (back, 1), (shared, 1), (shared, 1))


def _bounds(spans: tuple[Span, ...], rates: list[int], common: int, convention: Convention) -> list[tuple[int, int]]:
    """For each set of axes what must cross it in an AllGather, over what its links carry together.

    N_A members along the axes of a set A hold N_A/N of the array between them, and each gets all but its own from the
    others: V (N_A-1)/N over the rates of A. All axes together are the usual bound; a slow one alone can be worse.
    """
    n = prod(span.members for span in spans)
    found = []
    for count in range(1, len(spans) + 1):
        for chosen in combinations(range(len(spans)), count):
            members = prod(spans[at].members for at in chosen)
            over = members if convention is Convention.TEXTBOOK else members - 1
            found.append((over * common, n * added(rates[at] for at in chosen)))
    return found


def _sent_by_gather(spans: tuple[Span, ...], rates: list[int], total: int) -> tuple[int, int]:
    """What one device sends in an AllGather over its links, as a ratio to V (N-1)/N.

    In the middle of an open axis of m it forwards both ways: (m+1)/(m-1) of what passes a link.
    """
    under = lcm(*(span.members - 1 for span in spans))
    over = 0
    for span, rate in zip(spans, rates, strict=True):
        middle = not span.ring and span.members > 2
        over += rate * under * (span.members + 1 if middle else span.members - 1) // (span.members - 1)
    return over, total * under


def send_across(
    payload_bytes: Number, spans: tuple[Span, ...], level: Level, convention: Convention = Convention.EXACT
) -> Cost:
    """A message between the two members farthest from each other, out of a corner over one link of every axis.

    TPU v5e 4x4, corner to corner: bytes / (2 * 45 GB/s) + 6 hops. Source: How To Scale Your Model, part 2, question 5.
    """
    one_way = level.topology is Topology.RING and not level.two_way
    hops = added((span.members - 1) * span.hop if one_way else span.hops for span in spans)
    one = (1, len(spans))
    return timed(Algorithm.DIRECT, Form(hops, (1, 1), one, one), payload_bytes, level.rate, level.latency_s, convention)
