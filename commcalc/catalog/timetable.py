"""What a machine's links come to: the constants of what was measured, and a small table of times by payload."""

from __future__ import annotations

from collections.abc import Iterator

from commcalc.algebra.collective import Kind, factor
from commcalc.errors import CommcalcError
from commcalc.network.hierarchy import price
from commcalc.network.link import Network
from commcalc.network.measured import Sweep, law_of
from commcalc.network.placement import Placement, place

PAYLOADS = (8 * 2**10, 64 * 2**10, 2**20, 16 * 2**20, 128 * 2**20, 2**30)
_KINDS = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL)
# The group shown where nothing says how many devices a level joins.
_USUAL = 8


def constants(network: Network) -> list[dict[str, object]]:
    """The law of every sweep: its own, or fitted to its points."""
    return [
        {
            "level": level.name,
            "collective": sweep.kind,
            "ranks": sweep.ranks,
            "nodes": sweep.domains if index else 1,
            "algorithm": sweep.algorithm,
            **_law(sweep),
            "sizes": len(sweep.points) or sweep.rows or None,
            "source": sweep.source or None,
        }
        for index, level in enumerate(network.levels)
        for sweep in level.measured
    ]


def _law(sweep: Sweep) -> dict[str, object]:
    law = law_of(sweep)
    return {
        "t0_s": law.t0_s,
        "c_s_per_sqrt_byte": law.c,
        "bandwidth_bytes_per_s": law.bandwidth,
        "half_bandwidth_payload_bytes": round(law.half_bandwidth_bytes / float(factor(sweep.kind, sweep.ranks))),
    }


def times(network: Network) -> list[dict[str, object]]:
    """Seconds of the usual collectives by payload, over the largest group inside each level and over two of them."""
    return [
        {
            "level": name,
            "collective": kind,
            "ranks": where.size,
            "confidence": found[0].cost.confidence,
            "lower_bound": found[0].cost.lower_bound,
            "times": [
                {"payload_bytes": size, "time_s": float(one.cost.time_s)}
                for size, one in zip(PAYLOADS, found, strict=True)
            ],
        }
        for name, where in _groups(network)
        for kind in _KINDS
        for found in [[price(kind, size, where, network) for size in PAYLOADS]]
    ]


def _groups(network: Network) -> Iterator[tuple[str, Placement]]:
    """A group on each level: of the sizes that were measured there, else all that the level joins, or two domains."""
    inside = 1
    for index, level in enumerate(network.levels):
        joined = inside * (level.devices or (2 if index else _USUAL))
        sizes = sorted({sweep.ranks for sweep in level.measured} | {min(joined, _USUAL) if index == 0 else 2 * inside})
        for size in sizes:
            try:
                yield level.name, place(size, 1, network, devices=size)
            except CommcalcError:
                continue  # a part of a torus that is no axis
        inside = joined
