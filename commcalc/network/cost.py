"""Time of one collective on one level: closed forms, for numbers and for arrays alike.

    time = latency + bandwidth,  latency = steps * alpha,  bandwidth = egress bytes / (bytes per second)

Sources: Hockney 1994 for the two terms; Patarasuk and Yuan 2009 for the ring; NVIDIA NVLS (nccl-tests pull 239) for
the switch that sums, where one device sends its data and its share of the result once, S (1 + 1/n).
"""

from enum import StrEnum
from typing import Any, NamedTuple

from commcalc.algebra.collective import Convention, Kind, wire_ratio
from commcalc.network.link import Level

Number = Any


class Algorithm(StrEnum):
    """How a collective is run; ``auto`` takes the fastest that the level offers."""

    AUTO = "auto"
    RING = "ring"
    IN_NETWORK = "in-network"
    HIERARCHICAL = "hierarchical"


class Cost(NamedTuple):
    """Time of one call, split; and what one device sends under the algorithm that was priced.

    ``steps`` are the steps that cost the level's latency each; 0 where one fixed latency covers the call. ``bandwidth``
    is the rate in bytes per second that the bytes were divided by; None for the sum of phases at several rates.
    """

    algorithm: Algorithm
    steps: Number
    latency_s: Number
    bandwidth_s: Number
    egress_bytes: Number
    bandwidth: float | None

    @property
    def time_s(self) -> Number:
        """Seconds of one call."""
        return self.latency_s + self.bandwidth_s


def ring_steps(kind: Kind, n: Number) -> Number:
    """Steps of the pipelined ring: n-1, twice that for an AllReduce; one for a message."""
    if kind in (Kind.SEND_RECV, Kind.PERMUTE):
        return (n > 1) * 1
    return (2 if kind is Kind.ALL_REDUCE else 1) * (n - 1)


def ring(kind: Kind, payload_bytes: Number, n: Number, level: Level, convention: Convention) -> Cost:
    """A one-way ring over ``n`` devices that each send at the level's bandwidth.

    H100, 8 devices, AllReduce of 1 GiB at 450 GB/s: 2 * 7/8 * 2^30 / 450e9 = 4175.663 us.
    """
    over, under = wire_ratio(kind, n, convention)
    egress = -(-payload_bytes * over // under)
    seconds = payload_bytes * over / under / level.bandwidth
    steps = ring_steps(kind, n)
    return Cost(Algorithm.RING, steps, steps * level.latency_s, seconds, egress, level.bandwidth)


def in_network(payload_bytes: Number, n: Number, level: Level) -> Cost:
    """An AllReduce in a switch that sums: ``S (1 + 1/n)`` out of each device, one fixed latency.

    H100, 8 devices, 1 GiB at 450 GB/s: 9/8 * 2^30 / 450e9 = 2684.355 us.
    """
    latency = level.in_network.latency_s if level.in_network else 0.0
    egress = -(-payload_bytes * (n + 1) // n)
    return Cost(
        Algorithm.IN_NETWORK, 0, latency, payload_bytes * (n + 1) / n / level.bandwidth, egress, level.bandwidth
    )


def offers_in_network(kind: Kind, n: int, level: Level) -> bool:
    """Whether the level's switch sums this collective for a group of ``n``."""
    return kind is Kind.ALL_REDUCE and level.in_network is not None and n >= max(2, level.in_network.min_ranks)
