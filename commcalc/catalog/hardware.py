"""A hardware file: the chip and the levels of its network, innermost first, each value with its source."""

import itertools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from commcalc.catalog.about import read_about
from commcalc.catalog.fields import (
    Field,
    flag,
    flops,
    label,
    one_of,
    rate,
    read_section,
    scalar_of,
    seconds,
    size,
    text,
    whole,
)
from commcalc.document import Items, Leaf, Node, Section
from commcalc.errors import CommcalcError, SpecError, UnknownName, UsageError
from commcalc.network.link import InNetworkReduction, Level, Network, Topology
from commcalc.units import Dtype, parse_dtype

_KEYS = ("name", "chip", "network", "aliases", "confidence", "sources", "notes")
_LEVEL = {
    "name": Field(label, like="nvlink"),
    "topology": one_of(Topology),
    "devices": Field(whole, like="8"),
    "bandwidth": Field(rate, like="450 GB/s"),
    "latency": Field(seconds, like="3 us"),
}
_IN_NETWORK = {"latency": Field(seconds, like="25 us"), "min_ranks": Field(whole, like="5")}
_NAME = {"name": Field(text, like="h100-sxm")}
_HBM = {"capacity": Field(size, like="80 GB"), "bandwidth": Field(rate, like="3.35 TB/s")}


class Hardware(NamedTuple):
    """A machine: peak FLOP/s by dtype (dense), memory, and the network. Chip values are None where not given."""

    name: str
    network: Network
    flops: Mapping[Dtype, float] = MappingProxyType({})
    hbm_bytes: int | None = None
    hbm_bytes_per_s: float | None = None
    notes: str = ""


def hardware_values(hardware: Hardware) -> dict[str, object]:
    """The machine as plain data: FLOP/s, bytes, bytes per second, seconds; None where not given."""
    return {
        "chip": {
            "flops": {str(dtype): peak for dtype, peak in hardware.flops.items()},
            "hbm_bytes": hardware.hbm_bytes,
            "hbm_bytes_per_s": hardware.hbm_bytes_per_s,
        },
        "network": [
            {
                "name": level.name,
                "topology": level.topology,
                "devices": level.devices,
                "bandwidth_bytes_per_s": level.bandwidth,
                "latency_s": level.latency_s,
                "in_network_reduction": None
                if level.in_network is None
                else {"latency_s": level.in_network.latency_s, "min_ranks": level.in_network.min_ranks},
            }
            for level in hardware.network.levels
        ],
    }


class _Reading:
    """Collects values, sources and problems of one hardware mapping."""

    def __init__(self) -> None:
        self.sources: dict[str, str] = {}
        self.problems: list[CommcalcError] = []

    def section(self, node: Node, fields: Mapping[str, Field], path: str) -> dict[str, Any]:
        if not isinstance(node, Section):
            self.problems.append(SpecError("a mapping is expected here", where=f"{node.where} {path}"))
            return {}
        read = read_section(node, fields, path)
        self.sources |= {f"{path.removeprefix('hardware.')}.{key}": where for key, where in read.sources.items()}
        self.problems += read.problems
        return read.values


def read_hardware(section: Section) -> tuple[Hardware, dict[str, str], list[CommcalcError]]:
    """The machine of a mapping, the source of each value, and all that is wrong."""
    reading = _Reading()
    for key in section.entries:
        if key not in _KEYS:
            reading.problems.append(UnknownName("key in hardware", key, _KEYS, where=section.keys[key]))
    named: dict[str, Node] = {key: section.entries[key] for key in ("name",) if key in section.entries}
    told = reading.section(Section(section.where, named, section.keys), _NAME, "hardware")
    about, problems = read_about(section, "hardware")
    reading.problems += problems
    levels = _levels(section, reading)
    chip = section.entries.get("chip")
    peaks: dict[Dtype, float] = {}
    hbm: dict[str, Any] = {}
    if isinstance(chip, Section):
        for key in chip.entries:
            if key not in ("flops", "hbm"):
                reading.problems.append(
                    UnknownName("key in hardware.chip", key, ("flops", "hbm"), where=chip.keys[key])
                )
        if "hbm" in chip.entries:
            hbm = reading.section(chip.entries["hbm"], _HBM, "hardware.chip.hbm")
        if "flops" in chip.entries:
            peaks = _peaks(chip.entries["flops"], reading)
    elif chip is not None:
        reading.problems.append(SpecError("a mapping is expected here", where=f"{chip.where} hardware.chip"))
    hardware = Hardware(
        told.get("name", "hardware"), Network(tuple(levels)), peaks, hbm.get("capacity"), hbm.get("bandwidth"),
        str(about.get("notes", "")),
    )  # fmt: skip
    sources = {key: where for key, where in reading.sources.items() if key != "hardware.name"}
    return hardware, sources, reading.problems


def _peaks(node: Node, reading: _Reading) -> dict[Dtype, float]:
    if not isinstance(node, Section):
        reading.problems.append(
            SpecError("a mapping of dtypes is expected here", where=f"{node.where} hardware.chip.flops")
        )
        return {}
    peaks = {}
    for key, value in node.entries.items():
        where = f"{value.where} hardware.chip.flops.{key}"
        try:
            peaks[parse_dtype(key)] = float(str(flops(scalar_of(value, where))))
            reading.sources[f"chip.flops.{key}"] = value.where
        except CommcalcError as problem:
            reading.problems.append(SpecError(problem.message, where=where, hint=problem.hint))
    return peaks


def _levels(section: Section, reading: _Reading) -> list[Level]:
    node = section.entries.get("network")
    if not isinstance(node, Items) or not node.items:
        place = section.where if node is None else node.where
        reading.problems.append(
            SpecError(
                "hardware.network is missing" if node is None else "hardware.network is no list with a level in it",
                where=place,
                hint="list levels innermost first: - {name: nvlink, devices: 8, bandwidth: 450 GB/s, latency: 3 us}",
            )
        )
        return []
    levels = []
    for index, item in enumerate(node.items):
        level = _level(item, index, reading)
        if level is not None:
            levels.append(level)
    for inner, outer in itertools.pairwise(levels):
        inside, outside = inner.devices, outer.devices
        if inside is None or (outside is not None and (outside <= inside or outside % inside)):
            reading.problems.append(
                SpecError(
                    f"level {outer.name} ({outside or 'all'} devices) does not hold whole domains of level "
                    f"{inner.name} ({inside or 'all'} devices)",
                    where=f"{node.where} hardware.network",
                    hint="list levels innermost first; `devices` counts all devices inside one domain of the level",
                )
            )
    seen = [level.name for level in levels]
    for name in sorted({name for name in seen if seen.count(name) > 1}):
        reading.problems.append(SpecError(f"two levels are called {name!r}", where=f"{node.where} hardware.network"))
    return levels


def _level(item: Node, index: int, reading: _Reading) -> Level | None:
    if not isinstance(item, Section):
        reading.problems.append(SpecError("a level is a mapping", where=f"{item.where} hardware.network"))
        return None
    named = item.entries.get("name")
    path = f"hardware.network.{named.text if isinstance(named, Leaf) else index}"
    rest = {key: node for key, node in item.entries.items() if key != "in_network_reduction"}
    values = reading.section(Section(item.where, rest, item.keys), _LEVEL, path)
    for key in ("name", "bandwidth"):
        if key not in item.entries:
            reading.problems.append(SpecError(f"{path}.{key} is missing", where=item.where, hint=f"add {key}"))
    sums = _in_network(item.entries.get("in_network_reduction"), path, values.get("latency", 0.0), reading)
    if "name" not in values or "bandwidth" not in values:
        return None
    if sums is not None and values.get("topology") is Topology.RING:
        where = f"{item.where} {path}.in_network_reduction"
        reading.problems.append(SpecError("a ring has no switch that could sum", where=where))
    return Level(
        name=values["name"],
        topology=values.get("topology", Topology.SWITCH),
        devices=values.get("devices"),
        bandwidth=values["bandwidth"],
        latency_s=values.get("latency", 0.0),
        in_network=sums,
    )


def _in_network(node: Node | None, path: str, latency: float, reading: _Reading) -> InNetworkReduction | None:
    """``true``: two steps of the level's latency, up and down; or its own ``{latency, min_ranks}``."""
    if node is None:
        return None
    if isinstance(node, Section):
        values = reading.section(node, _IN_NETWORK, f"{path}.in_network_reduction")
        return InNetworkReduction(latency_s=values.get("latency", 2 * latency), min_ranks=values.get("min_ranks", 2))
    where = f"{node.where} {path}.in_network_reduction"
    try:
        given = flag(scalar_of(node, where))
    except CommcalcError as problem:
        reading.problems.append(
            SpecError(problem.message, where=where, hint="true, false or {latency: 25 us, min_ranks: 5}")
        )
        return None
    reading.sources[f"{path.removeprefix('hardware.')}.in_network_reduction"] = node.where
    return InNetworkReduction(latency_s=2 * latency) if given else None


def with_link(hardware: Hardware | None, key: str, given: str, read: Any, option: str) -> tuple[Hardware, str]:
    """The machine with one level's bandwidth or latency replaced, and that level's name.

    ``LEVEL=VALUE``, or a bare VALUE for the innermost level. Without a machine, a network of one level that joins any
    number of devices. The fixed cost of the switch's own reduction changes in proportion to a latency.
    """
    name, found, value = given.rpartition("=")
    amount = read(value)
    if found and not name:
        raise UsageError("no level before the =", where=f"{option} {given[:60]}", hint=f"{option} {value}")
    if hardware is None:
        first = Level(name=name or "link", bandwidth=float("nan"), latency_s=0.0)
        hardware = Hardware("link", Network((first,)))
    levels = list(hardware.network.levels)
    known = [level.name for level in levels]
    if name and name not in known:
        raise UnknownName("network level", name, known, where=f"{option} {given[:60]}")
    at = known.index(name) if name else 0
    level = levels[at]
    if key == "bandwidth":
        levels[at] = level._replace(bandwidth=amount)
    else:
        sums = level.in_network
        if sums is not None and level.latency_s:
            sums = sums._replace(latency_s=sums.latency_s * amount / level.latency_s)
        levels[at] = level._replace(latency_s=amount, in_network=sums)
    return hardware._replace(network=Network(tuple(levels))), levels[at].name
