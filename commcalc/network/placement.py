"""Which part of a group lies on which level of the network."""

from collections import Counter
from collections.abc import Sequence
from math import gcd, prod
from typing import TYPE_CHECKING, NamedTuple

from commcalc.errors import IllegalDegree, UnknownName, UsageError
from commcalc.network.link import Level, Network

if TYPE_CHECKING:
    from commcalc.network.torus import Span

MOST_LAID_OUT = 2_000_000


class Placement(NamedTuple):
    """A group of ``size`` ranks on the levels.

    ``parts`` are (index of level, members that meet there), innermost first; their product is ``size``. An ``uneven``
    group has domains with different numbers of members: it is one flat part on the level that joins it, and
    ``channels`` of its members can cross at once. ``spans`` are, for each part on a level with axes, the parts of the
    axes that the group holds there, innermost axis first.
    """

    size: int
    parts: tuple[tuple[int, int], ...]
    uneven: bool = False
    channels: int = 1
    spans: "tuple[tuple[int, tuple[Span, ...]], ...]" = ()

    def spans_on(self, index: int) -> "tuple[Span, ...]":
        """The parts of the axes of level ``index`` that the group holds."""
        return next((spans for level, spans in self.spans if level == index), ())

    @property
    def outermost(self) -> int:
        """Index of the level that joins the whole group."""
        return self.parts[-1][0]


def place(size: int, stride: int, network: Network, devices: int | None = None) -> Placement:
    """Where a group of ``size`` ranks, ``stride`` apart, lies; `IllegalDegree` where no level joins it.

    Ranks are laid on the devices in order, so the axis with stride 1 is innermost. Of the groups on ``devices`` ranks
    in all (as many as wanted by default) the worst counts: the one in most domains, with the fewest in one of them.
    On a torus ranks run along the last axis of its shape first.
    """
    found = _placed(size, stride, network, devices)
    return _on_axes(found, ((size, stride),), network, alone=devices is not None and devices <= size * stride)


def place_axes(mesh: Sequence[tuple[str, int]], axes: Sequence[str], network: Network) -> Placement:
    """Where the groups over ``axes`` of a mesh lie; its axes come with the slowest-varying rank first.

    Axes that follow one another are one group of their product; others keep their own stride, so on a torus the mesh
    axes lie on the axes of the machine. `UnknownName` for an axis that the mesh does not have.
    """
    sizes = dict(mesh)
    for name in axes:
        if name not in sizes:
            raise UnknownName("mesh axis", name, sizes)
    factors: list[tuple[int, int]] = []
    stride = 1
    for name, size in reversed(mesh):
        if name in axes and size > 1:
            if factors and factors[-1][0] * factors[-1][1] == stride:
                factors[-1] = (factors[-1][0] * size, factors[-1][1])
            else:
                factors.append((size, stride))
        stride *= size
    if len(factors) < 2:
        size, apart = factors[0] if factors else (1, 1)
        return place(size, apart, network, stride)
    return _several(factors, network, stride)


def _several(factors: list[tuple[int, int]], network: Network, devices: int) -> Placement:
    """A group over mesh axes with others between them: on each level the product of what each has there."""
    members: dict[int, int] = {}
    for size, stride in factors:
        if not all(_aligned(size, stride, level.devices) for level in network.levels):
            return _laid_out(factors, network, devices)
        found = _placed(size, stride, network, devices)
        for index, inside in found.parts:
            members[index] = members.get(index, 1) * inside
    size = prod(size for size, _ in factors)
    return _on_axes(Placement(size, tuple(sorted(members.items()))), tuple(factors), network)


def _aligned(size: int, stride: int, domain: int | None) -> bool:
    """Whether all groups of ``size`` ranks, ``stride`` apart, lie alike in domains of so many devices."""
    if domain is None or domain % (size * stride) == 0 or stride % domain == 0:
        return True
    return size * stride % domain == 0 and domain % stride == 0


def _laid_out(factors: list[tuple[int, int]], network: Network, devices: int) -> Placement:
    """The same where domains are cut: every group is laid out, and the worst counts, as in `place`."""
    if devices > MOST_LAID_OUT:
        size = prod(size for size, _ in factors)
        raise UsageError(f"{devices} devices are too many to lay out groups of {size} ranks over axes that lie apart")
    members = [0]
    for extent, stride in factors:
        members = [start + at * stride for start in members for at in range(extent)]
    starts = [rank for rank in range(devices) if all(rank // stride % extent == 0 for extent, stride in factors)]
    return place_groups([tuple(start + at for at in members) for start in starts], network, devices)


def place_groups(groups: Sequence[Sequence[int]], network: Network, devices: int) -> Placement:
    """Where groups of equally many ranks of ``devices`` lie, each given by its ranks: the worst counts, as in `place`.

    `IllegalDegree` where a level has axes, along which such ranks do not lie.
    """
    size = len(groups[0])
    cut = next((level for level in network.levels if level.axes), None)
    if cut is not None:
        raise _off_axes(size, cut)
    parts: list[tuple[int, int]] = []
    joined = 1
    for index, level in enumerate(network.levels):
        counts = [size]
        if level.devices is not None:
            spreads = (list(Counter(rank // level.devices for rank in ranks).values()) for ranks in groups)
            counts = max(spreads, key=lambda found: (len(found), -min(found)))
        if min(counts) != max(counts):
            for outer in range(index + 1, len(network.levels)):
                if (network.levels[outer].devices or devices) >= devices:
                    return Placement(size, ((outer, size),), uneven=True, channels=min(counts))
            break
        if counts[0] > joined:
            parts.append((index, counts[0] // joined))
            joined = counts[0]
        if joined == size:
            return Placement(size, tuple(parts))
    raise _outside(devices, 1, network)


def _on_axes(
    found: Placement, factors: tuple[tuple[int, int], ...], network: Network, alone: bool = False
) -> Placement:
    """The same with the parts of axes, where a level has some; ``alone``: there is no other group to leave room for."""
    if not any(level.axes for level in network.levels[: found.outermost + 1]):
        return found
    from commcalc.network.torus import Span, wraps

    if found.uneven:
        raise _off_axes(found.size, network.levels[found.outermost])
    spans: list[tuple[int, tuple[Span, ...]]] = []
    for index, members in found.parts:
        level = network.levels[index]
        if not level.axes or members == 1:
            continue
        ends = network.ends(index)
        shape = level.shape or ((ends,) if ends else (members,))
        held = _held(factors, network.inside(index), shape, wraps(level), alone)
        if held is None or prod(span.members for span in held) != members:
            raise _off_axes(found.size, level)
        spans.append((index, held))
    return found._replace(spans=tuple(spans))


def _held(
    factors: tuple[tuple[int, int], ...], unit: int, shape: tuple[int, ...], closed: tuple[bool, ...], alone: bool
) -> "tuple[Span, ...] | None":
    """The part of each axis that the group holds; None where it does not lie evenly along them."""
    from commcalc.network.torus import Span

    found: list[Span] = []
    for at in reversed(range(len(shape))):
        below = unit * prod(shape[at + 1 :])
        length = shape[at]
        here = []
        for size, stride in factors:
            first, last = max(below, stride), min(below * length, stride * size)
            if last <= first:
                continue
            if first % below or last % first or ((below * length) % last and not alone):
                return None
            here.append(Span(last // first, first // below, closed[at] and last == below * length, length))
        if len(here) > 1:  # two pieces of one axis with others between them
            return None
        found += here
    return tuple(found)


def _off_axes(size: int, level: Level) -> IllegalDegree:
    shape = "x".join(map(str, level.shape)) or f"{level.devices}"
    return IllegalDegree(
        f"a group of {size} ranks does not lie evenly along the axes of {level.name} ({level.topology} {shape})",
        where="hardware.network",
        hint="a degree that fills axes of the shape or divides one of them",
    )


def _placed(size: int, stride: int, network: Network, devices: int | None) -> Placement:
    if size == 1:
        return Placement(1, ((0, 1),))
    most = network.levels[-1].devices
    if most is not None and size > most:
        raise _outside(size, stride, network)
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
    if network.levels[index].axes:
        raise _off_axes(size, network.levels[index])
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
