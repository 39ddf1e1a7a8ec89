"""A hardware file: the chip and the levels of its network, innermost first, each value with its source."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from commcalc.catalog.about import read_about
from commcalc.catalog.fields import Field, flops, rate, scalar_of, size, text
from commcalc.catalog.levels import Reading, level_values, read_levels
from commcalc.document import Node, Section
from commcalc.errors import CommcalcError, SpecError, UnknownName, UsageError
from commcalc.network.link import Level, Network
from commcalc.units import Dtype, parse_dtype

KEYS = ("name", "chip", "network", "aliases", "confidence", "sources", "notes")
NAME = {"name": Field(text, like="h100-sxm")}
CHIP = ("flops", "hbm")
HBM = {"capacity": Field(size, like="80 GB"), "bandwidth": Field(rate, like="3.35 TB/s")}


class Hardware(NamedTuple):
    """A machine: peak FLOP/s by dtype (dense), memory, and the network. Chip values are None where not given."""

    name: str
    network: Network
    flops: Mapping[Dtype, float] = MappingProxyType({})
    hbm_bytes: int | None = None
    hbm_bytes_per_s: float | None = None
    notes: str = ""


def hardware_values(hardware: Hardware, *, points: bool = False) -> dict[str, object]:
    """The machine as plain data: FLOP/s, bytes, bytes per second, seconds; None where not given.

    With ``points`` those of measured sweeps too, else how many there are.
    """
    return {
        "chip": {
            "flops": {str(dtype): peak for dtype, peak in hardware.flops.items()},
            "hbm_bytes": hardware.hbm_bytes,
            "hbm_bytes_per_s": hardware.hbm_bytes_per_s,
        },
        "network": [level_values(level, points=points) for level in hardware.network.levels],
    }


def read_hardware(section: Section) -> tuple[Hardware, dict[str, str], list[CommcalcError]]:
    """The machine of a mapping, the source of each value, and all that is wrong."""
    reading = Reading()
    for key in section.entries:
        if key not in KEYS:
            reading.problems.append(UnknownName("key in hardware", key, KEYS, where=section.keys[key]))
    named: dict[str, Node] = {key: section.entries[key] for key in ("name",) if key in section.entries}
    told = reading.section(Section(section.where, named, section.keys), NAME, "hardware")
    about, problems = read_about(section, "hardware")
    reading.problems += problems
    levels = read_levels(section, reading)
    chip = section.entries.get("chip")
    peaks: dict[Dtype, float] = {}
    hbm: dict[str, Any] = {}
    if isinstance(chip, Section):
        for key in chip.entries:
            if key not in CHIP:
                reading.problems.append(UnknownName("key in hardware.chip", key, CHIP, where=chip.keys[key]))
        if "hbm" in chip.entries:
            hbm = reading.section(chip.entries["hbm"], HBM, "hardware.chip.hbm")
        if "flops" in chip.entries:
            peaks = _peaks(chip.entries["flops"], reading)
    elif chip is not None:
        reading.problems.append(SpecError("a mapping is expected here", where=f"{chip.where} hardware.chip"))
    hardware = Hardware(
        told.get("name", "hardware"), Network(tuple(levels)), peaks, hbm.get("capacity"), hbm.get("bandwidth"),
        str(about.get("notes", "")),
    )  # fmt: skip
    sources: dict[str, str] = {}
    for key, where in reading.sources.items():
        if key != "hardware.name":
            sources.setdefault(_of_list(key), where)
    return hardware, sources, reading.problems


def _of_list(key: str) -> str:
    """The path of a value; sweeps share that of their list."""
    inside, found, _ = key.partition(".measured.")
    return f"{inside}.measured" if found else key


def _peaks(node: Node, reading: Reading) -> dict[Dtype, float]:
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


def with_link(hardware: Hardware | None, key: str, given: str, read: Any, option: str) -> tuple[Hardware, str]:
    """The machine with one level's bandwidth or latency replaced, and that level's name.

    ``LEVEL=VALUE``, or a bare VALUE for the innermost level. Without a machine, a network of one level that joins any
    number of devices. The fixed cost of the switch's own reduction changes in proportion to a latency. What was
    measured on the level is of the old link and goes.
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
    if amount == getattr(level, "bandwidth" if key == "bandwidth" else "latency_s"):
        return hardware, level.name
    if key == "bandwidth":
        levels[at] = level._replace(bandwidth=amount, measured=())
    else:
        sums = level.in_network
        if sums is not None and level.latency_s:
            sums = sums._replace(latency_s=sums.latency_s * amount / level.latency_s)
        levels[at] = level._replace(latency_s=amount, in_network=sums, measured=())
    return hardware._replace(network=Network(tuple(levels))), levels[at].name
