"""One level of a network: how many devices it joins, in which shape, how fast, how late."""

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from commcalc.network.measured import Sweep


class Topology(StrEnum):
    """How the devices of one level are joined.

    ``bandwidth`` of a level is one direction, per device: through its port to a ``switch``, over all peers of a
    ``full-mesh`` together. On ``ring``, ``line`` and ``torus`` it is that of one link. The link between the halves of a
    PCIe box is a level of its own, a switch of two halves that its devices share.
    """

    SWITCH = "switch"
    RING = "ring"
    LINE = "line"
    TORUS = "torus"
    FULL_MESH = "full-mesh"


class Wraparound(StrEnum):
    """Which axes of a torus close.

    ``axis-of-16``: TPU v5e and v6e, only an axis of exactly 16. ``cubes-of-4``: TPU v4, v5p and 7x, all axes where the
    slice is made of whole 4x4x4 cubes, else none. ``full-pod``: TPU v2 and v3, only the whole pod.
    Source: How To Scale Your Model, part 2; docs.cloud.google.com/tpu/docs/{v4,v5e,v5p,v6e,tpu7x}.
    """

    ALL = "all"
    NONE = "none"
    AXIS_OF_16 = "axis-of-16"
    CUBES_OF_4 = "cubes-of-4"
    FULL_POD = "full-pod"


class Algorithm(StrEnum):
    """How a collective is run; ``auto`` takes the fastest that the level offers.

    ``measured``: as the library did when the level's times were taken; it wins wherever there are such times.
    """

    AUTO = "auto"
    RING = "ring"
    RING_TWO_WAY = "ring-two-way"
    LINE = "line"
    TORUS = "torus"
    RECURSIVE_DOUBLING = "recursive-doubling"
    RECURSIVE_HALVING = "recursive-halving"
    RABENSEIFNER = "rabenseifner"
    BINOMIAL_TREE = "binomial-tree"
    DOUBLE_BINARY_TREE = "double-binary-tree"
    BRUCK = "bruck"
    PAIRWISE = "pairwise"
    DIRECT = "direct"
    ONE_SHOT = "one-shot"
    TWO_SHOT = "two-shot"
    IN_NETWORK = "in-network"
    HIERARCHICAL = "hierarchical"
    MEASURED = "measured"


# What may have been measured, each handing over to the next above its largest payload: kernels of inference servers,
# and the library.
KERNELS = (Algorithm.ONE_SHOT, Algorithm.TWO_SHOT, Algorithm.MEASURED)


class InNetworkReduction(NamedTuple):
    """A switch that sums: one pass up and one down instead of a ring, for AllReduce only.

    ``latency_s`` is the fixed cost of one call; ``min_ranks`` the smallest group that the hardware serves. With
    ``own_copy`` each device also sends its share of the result once (NVLS: S (1 + 1/n)); a tree of switches that keeps
    the sum itself (SHARP on InfiniBand) takes S.
    """

    latency_s: float = 0.0
    min_ranks: int = 2
    own_copy: bool = True


def in_network_ratio(n: int, own_copy: bool) -> tuple[int, int]:
    """What each of ``n`` devices sends per byte of an AllReduce that the switch sums, as a quotient.

    >>> in_network_ratio(8, True), in_network_ratio(8, False)
    ((9, 8), (8, 8))
    """
    return (n + own_copy) * (n > 1), n


class Level(NamedTuple):
    """One level. ``bandwidth`` is bytes per second, one direction (see `Topology`); ``latency_s`` is per step.

    ``devices`` counts all devices inside one domain of this level; None is as many as wanted. ``shape`` are the axes
    of a torus, in domains of the level inside it; ``joined`` says of each whether its ends are, where no rule does.
    ``two_way``: a ring with a link to either neighbour. ``shared_by``
    devices share one port of this bandwidth, and uplinks carry 1/``oversubscription`` of it when all send at once.
    ``algorithms``: what the software on this level offers; empty is what its topology usually runs. ``measured`` are
    times taken on it.
    """

    name: str
    bandwidth: float
    topology: Topology = Topology.SWITCH
    devices: int | None = None
    latency_s: float = 0.0
    in_network: InNetworkReduction | None = None
    shape: tuple[int, ...] = ()
    wraparound: Wraparound = Wraparound.ALL
    pod: tuple[int, ...] = ()
    joined: tuple[bool, ...] = ()
    two_way: bool = False
    shared_by: int = 1
    oversubscription: float = 1.0
    algorithms: tuple[Algorithm, ...] = ()
    measured: "tuple[Sweep, ...]" = ()

    @property
    def rate(self) -> float:
        """Bytes per second, one direction, that one device (or one link) has when all devices are busy."""
        return self.bandwidth / self.shared_by / self.oversubscription

    @property
    def axes(self) -> bool:
        """Whether devices are joined along axes, so that it matters which of them a group holds."""
        return self.topology in (Topology.RING, Topology.LINE, Topology.TORUS)


class Network(NamedTuple):
    """Levels, innermost first: each domain of a level lies inside one domain of the next."""

    levels: tuple[Level, ...]
    # A fixed cost of every call, in place of what the levels' latencies come to; None: theirs.
    call_latency_s: float | None = None

    def inside(self, index: int) -> int:
        """Devices in one domain of the level inside level ``index``; 1 below the innermost."""
        return (self.levels[index - 1].devices or 1) if index else 1

    def ends(self, index: int) -> int | None:
        """Domains that one domain of level ``index`` joins; None for any number."""
        devices = self.levels[index].devices
        return None if devices is None else devices // self.inside(index)
