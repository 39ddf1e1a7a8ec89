"""Which part of a group lies on which level of the network."""

from collections import Counter
from math import gcd
from typing import NamedTuple

from commcalc.errors import IllegalDegree, UsageError
from commcalc.network.link import Network

MOST_LAID_OUT = 2_000_000


class Placement(NamedTuple):
    """A group of ``size`` ranks on the levels.

    ``parts`` are (index of level, members that meet there), innermost first; their product is ``size``. An ``uneven``
    group has domains with different numbers of members: it is one flat part on the level that joins it, and
    ``channels`` of its members can cross at once.
    """

    size: int
    parts: tuple[tuple[int, int], ...]
    uneven: bool = False
    channels: int = 1

    @property
    def outermost(self) -> int:
        """Index of the level that joins the whole group."""
        return self.parts[-1][0]


def place(size: int, stride: int, network: Network, devices: int | None = None) -> Placement:
    """Where a group of ``size`` ranks, ``stride`` apart, lies; `IllegalDegree` where no level joins it.

    Ranks are laid on the devices in order, so the axis with stride 1 is innermost. Of the groups on ``devices`` ranks
    in all (as many as wanted by default) the worst counts: the one in most domains, with the fewest in one of them.
    """
    if size == 1:
        return Placement(1, ((0, 1),))
    span = size * stride
    blocks = None if devices is None else max(1, devices // span)
    parts: list[tuple[int, int]] = []
    joined = 1
    for index, level in enumerate(network.levels):
        spread = _spread(size, stride, level.devices, blocks)
        if spread.fewest != spread.most:
            return _uneven(size, stride, network, blocks, index, spread.fewest)
        inside = spread.most
        if inside > joined:
            parts.append((index, inside // joined))
            joined = inside
        if joined == size:
            return Placement(size, tuple(parts))
    raise _outside(size, stride, network)


class _Spread(NamedTuple):
    """In how many domains a group lies, and how many members the emptiest and the fullest of them have."""

    domains: int
    fewest: int
    most: int


def _spread(size: int, stride: int, devices: int | None, blocks: int | None) -> _Spread:
    """How the worst group lies in domains of ``devices``: in most of them, with fewest members in one."""
    if devices is None:
        return _Spread(1, size, size)
    if stride >= devices:
        return _Spread(size, 1, 1)
    span = size * stride
    if devices % span == 0:
        return _Spread(1, size, size)
    if span % devices == 0 and devices % stride == 0:
        return _Spread(span // devices, devices // stride, devices // stride)
    period = devices // gcd(span, devices)  # after so many groups they lie in the domains as the first did
    tried = period if blocks is None else min(blocks, period)
    if tried * span > MOST_LAID_OUT:
        raise UsageError(f"groups of {size} ranks that cut domains of {devices} devices are too many to lay out")
    worst = _Spread(1, size, size)
    for block in range(tried):
        for offset in range(stride):
            start = block * span + offset
            members = Counter((start + i * stride) // devices for i in range(size)).values()
            found = _Spread(len(members), min(members), max(members))
            if (found.domains, -found.fewest) > (worst.domains, -worst.fewest):
                worst = found
    return worst


def _uneven(size: int, stride: int, network: Network, blocks: int | None, index: int, channels: int) -> Placement:
    """The flat placement of a group that cuts domains of level ``index`` into unequal parts."""
    for outer in range(index + 1, len(network.levels)):
        if _spread(size, stride, network.levels[outer].devices, blocks).domains == 1:
            return Placement(size, ((outer, size),), uneven=True, channels=channels)
    raise _outside(size, stride, network)


def _outside(size: int, stride: int, network: Network) -> IllegalDegree:
    last = network.levels[-1]
    return IllegalDegree(
        f"a group of {size} ranks, {stride} apart, does not fit in the network: its outermost level {last.name} "
        f"joins {last.devices} devices",
        where="hardware.network",
        hint="a smaller degree, or a hardware file with a further level",
    )
