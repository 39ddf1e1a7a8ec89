"""Which part of a group lies on which level of the network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

from commcalc.errors import IllegalDegree
from commcalc.network.link import Level, Network


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


def place(size: int, stride: int, network: Network) -> Placement:
    """Where a group of ``size`` ranks, ``stride`` apart, lies; `IllegalDegree` where no level joins it.

    Ranks are laid on the devices in order, so the axis with stride 1 is innermost.
    """
    if size == 1:
        return Placement(1, ((0, 1),))
    parts: list[tuple[int, int]] = []
    joined = 1
    for index, level in enumerate(network.levels):
        inside = _inside(size, stride, level.devices)
        if inside is None:
            return _uneven(size, stride, network, index)
        if inside > joined:
            parts.append((index, inside // joined))
            joined = inside
        if joined == size:
            return Placement(size, tuple(parts))
    last = network.levels[-1]
    raise IllegalDegree(
        f"a group of {size} ranks, {stride} apart, does not fit in the network: its outermost level {last.name} "
        f"joins {last.devices} devices",
        where="hardware.network",
        hint="a smaller degree, or a hardware file with a further level",
    )


def members(ranks: Sequence[int], level: Level) -> Counter[int]:
    """How many of ``ranks`` lie in each domain of ``level``."""
    return Counter(rank // level.devices if level.devices else 0 for rank in ranks)


def _inside(size: int, stride: int, devices: int | None) -> int | None:
    """Members of the group in one domain of ``devices``; None where domains differ."""
    if devices is None:
        return size
    if stride >= devices:
        return 1
    if devices % stride:
        return None
    room = devices // stride
    if size <= room:
        return size if room % size == 0 else None
    return room if size % room == 0 else None


def _uneven(size: int, stride: int, network: Network, index: int) -> Placement:
    """The flat placement of a group that cuts domains of level ``index`` into unequal parts; the worst group counts."""
    devices = network.levels[index].devices or 1
    block = size * stride
    patterns = block * devices // gcd(block, devices) // block
    worst = [0]
    for start in range(patterns):
        ranks = [start * block + i * stride for i in range(size)]
        split = sorted(members(ranks, network.levels[index]).values())
        if len(split) > len(worst) or (len(split) == len(worst) and split[0] < worst[0]):
            worst = split
    for outer in range(index + 1, len(network.levels)):
        if network.levels[outer].devices is None or _inside(size, stride, network.levels[outer].devices) == size:
            return Placement(size, ((outer, size),), uneven=True, channels=max(1, worst[0]))
    return place(size, network.levels[-1].devices or 1, network)  # says that nothing joins it
