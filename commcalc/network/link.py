"""One level of a network: how many devices it joins, how fast, how late."""

from enum import StrEnum
from typing import NamedTuple


class Topology(StrEnum):
    """How the devices of one level are joined. Other topologies will bring their own cost forms."""

    SWITCH = "switch"
    RING = "ring"


class InNetworkReduction(NamedTuple):
    """A switch that sums: one pass up and one down instead of a ring, for AllReduce only.

    ``latency_s`` is the fixed cost of one call; ``min_ranks`` the smallest group that the hardware serves.
    """

    latency_s: float = 0.0
    min_ranks: int = 2


class Level(NamedTuple):
    """One level. ``bandwidth`` is bytes per second, one direction, per device; ``latency_s`` is per step.

    ``devices`` counts all devices inside one domain of this level; None is as many as wanted.
    """

    name: str
    bandwidth: float
    topology: Topology = Topology.SWITCH
    devices: int | None = None
    latency_s: float = 0.0
    in_network: InNetworkReduction | None = None


class Network(NamedTuple):
    """Levels, innermost first: each domain of a level lies inside one domain of the next."""

    levels: tuple[Level, ...]
