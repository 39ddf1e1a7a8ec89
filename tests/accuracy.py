"""How far the product's times are from published ones: what the benchmark prints and a test asserts.

Every time goes the way of the program: a preset is found by name, a log is calibrated into the text of a hardware file
and read back, and `price` is asked with its default algorithm. An error is ``|predicted / measured - 1|``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from commcalc.catalog.calibrate import Calibrated, calibrated, hardware_text, placed
from commcalc.catalog.hardware import read_hardware
from commcalc.catalog.job import Request
from commcalc.catalog.machine import machine
from commcalc.document import parse_document
from commcalc.errors import raise_all
from commcalc.ingest.sweeps import LogSweep, Row
from commcalc.network.fitting import cleaned, quantile
from commcalc.network.hierarchy import price
from commcalc.network.link import Algorithm, Network
from commcalc.network.placement import Placement, place, place_axes
from measured import Measured, Point, sweeps

KIB, MIB, GIB = 2**10, 2**20, 2**30
ENDLESS = 2**60
# Payloads whose errors are told together, from one to below the next.
RANGES = (0, 8 * KIB, MIB, 16 * MIB, 64 * MIB, GIB + 1, ENDLESS)
# A preset of a rack is one domain of so many devices.
RACK = 72


class Goal(NamedTuple):
    """The most that median and 90th percentile may be for payloads of ``least`` to below ``most`` bytes."""

    mode: str
    payload: str
    least: int
    most: int
    median: float
    p90: float


MANY = Goal("calibrated, 8 or more sizes, inside their range", "8 KiB to 1 GiB", 8 * KIB, GIB + 1, 0.03, 0.15)
FEW = Goal("calibrated on 4 or 5 sizes", "8 KiB to 1 GiB", 8 * KIB, GIB + 1, 0.08, 0.25)
LARGE = Goal("shipped preset, same device, one node", "16 MiB and more", 16 * MIB, ENDLESS, 0.08, 0.25)
SMALL = Goal("shipped preset, same device, one node", "below 16 MiB", 0, 16 * MIB, 0.15, 0.35)
NODES = Goal("shipped preset, 2 to 8 nodes, InfiniBand or RoCE", "64 MiB and more", 64 * MIB, ENDLESS, 0.15, 0.30)
GOALS = (MANY, FEW, LARGE, SMALL, NODES)


class Device(NamedTuple):
    """How a system of the data is called here, the preset of it, and why it is listed apart where it is."""

    label: str
    preset: str = ""
    apart: str = ""


_A100, _A100_40 = Device("A100 80GB", "a100-80g-sxm"), Device("A100 40GB", "a100-40g-sxm")
_B200, _H100, _MI300X = Device("B200", "b200-sxm"), Device("H100", "h100-sxm"), Device("MI300X", "mi300x")
_MI355X = Device("MI355X", "mi355x")
DEVICES = {
    "A100-SXM": _A100,  # two posters who do not name the memory
    "A100-SXM4-80GB": _A100,
    "A100-SXM 40GB": _A100_40,
    "A100-SXM 40GB (BM.GPU.B4.8)": _A100_40,
    "B200": _B200,
    "B200 (Lambda)": _B200,
    "B200 (p6-b200)": _B200,
    "B300": Device("B300", "b300-sxm"),
    "GB200": Device("GB200", "gb200-nvl72"),
    "GB300": Device("GB300", "gb300-nvl72"),
    "H100-SXM": _H100,
    "H100-SXM (A3 High/Edge)": _H100,
    "H100-SXM (A3 Mega)": _H100,
    "H100-SXM (BM.GPU.H100.8)": _H100,
    "H100-SXM (p5)": _H100,
    "H200-SXM": Device("H200", "h200-sxm"),
    "L40S": Device("L40S", "l40s"),
    "MI300X": _MI300X,
    "MI300X (VF)": _MI300X,
    "MI325X": Device("MI325X", "mi300x", "no preset of this device; held against the MI300X"),
    "MI355X": _MI355X,
    "MI355X (device string 'AMD Radeon Graphics')": _MI355X,
    "RTX 4090": Device("RTX 4090", "rtx-4090"),
    "TPU v5e 8x4": Device("TPU v5e", "tpu-v5e", "two values of a slice of a torus, no node"),
    "8-GPU NVLink server, GPUs 0,1 (model not in excerpt)": Device("NVLink pair"),
    "Gaudi (8, generation not stated)": Device("Gaudi"),
    "Intel Arc Pro B60": Device("Arc Pro B60", "arc-pro-b60"),
    "RTX 5090": Device("RTX 5090"),
    "RTX PRO 6000 Blackwell Server": Device("RTX PRO 6000", "rtx-pro-6000"),
    "unnamed 4-node 32-GPU (busbw/algbw=1.9375)": Device("unnamed"),
}
NOISY = "congested or untuned: rows of milliseconds come and go"
KERNEL = "a server's own kernel: bfloat16, not the library"
BYTES = "int8: a half sweep once more"
OWN = "shipped points themselves"
# Flags of the data that set a log apart from a preset, the first that a sweep has.
FLAGS = {
    "kernel": KERNEL,
    "noisy": NOISY,
    "faulty": "a broken box",
    "virtual": "a virtual function of a cloud",
    "one-process": "-g 8: one process drives all GPUs",
    "pcie": "a PCIe box",
}
# The same for the network between nodes.
NETWORKS = {
    "nvlink-domain": "trays of one NVLink domain, or racks",
    "sharp": "reduced in the switches",
    "efa": "EFA, not InfiniBand or RoCE",
    "tcpx": "TCPX, not InfiniBand or RoCE",
}
# Sources that are apart for more than their flags say.
SOURCES = {"rhocp_l40s_2n_1g": "a PCIe box on 100 or 200 Gb/s; the preset has 400"}


class Found(NamedTuple):
    """One time: what it counts for (None: listed apart, or no goal is set there), and how far it is off."""

    goal: Goal | None
    mode: str
    apart: str
    system: str
    sweep: Measured
    payload_bytes: int
    error: float


class Cell(NamedTuple):
    """Errors together: sweeps, points, median and 90th percentile."""

    sweeps: int
    points: int
    median: float
    p90: float

    def meets(self, goal: Goal) -> bool:
        return self.median <= goal.median and self.p90 <= goal.p90


def cell(found: Sequence[Found]) -> Cell:
    errors = [one.error for one in found]
    return Cell(len({id(one.sweep) for one in found}), len(found), quantile(errors, 0.5), quantile(errors, 0.9))


def totals(found: Sequence[Found]) -> dict[Goal, Cell]:
    """Each goal with all that counts for it; a goal without a point is a mistake."""
    return {goal: cell([one for one in found if one.goal is goal]) for goal in GOALS}


@cache
def independent() -> tuple[Measured, ...]:
    """Every sweep but those that are copies of another under another name."""
    seen: dict[tuple[object, ...], Measured] = {}
    for sweep in sweeps():
        seen.setdefault((sweep.system, sweep.kind, sweep.gpus, sweep.nodes, sweep.dtype, sweep.points), sweep)
    return tuple(seen.values())


def device_of(sweep: Measured) -> Device:
    return DEVICES[sweep.system]


def system_of(sweep: Measured) -> str:
    """The device, over how many nodes, and who took the time where it was not the library's benchmark."""
    timed = " by PyTorch" if "pytorch" in sweep.flags else ""
    return device_of(sweep).label + timed + (f", {sweep.nodes} nodes" if sweep.nodes > 1 else "")


# With calibration.


def calibrated_errors(wanted: Sequence[Measured]) -> Iterator[Found]:
    """Every sweep calibrated on every second of its points, both ways, and on 4 and on 5 sizes from 8 KiB to 1 GiB."""
    for sweep in wanted:
        for start in (0, 1):
            yield from _left_out(sweep, sweep.points[start::2], MANY)
        inside = sweep.between(FEW.least, FEW.most - 1)
        for count in (4, 5):
            if len(inside) >= 2 * count - 1:  # else hardly anything is left between
                chosen = [inside[round(at * (len(inside) - 1) / (count - 1))] for at in range(count)]
                yield from _left_out(sweep, chosen, FEW)


def _left_out(sweep: Measured, taken: Sequence[Point], goal: Goal) -> Iterator[Found]:
    """Errors at the points of a sweep that lie between those taken for calibration; the sizes kept say which goal."""
    count = len(cleaned(taken)[0])
    if not (count >= 8 if goal is MANY else 4 <= count <= 5):
        return
    one, network = own_machine(sweep, taken)
    where = placed(one, network)
    sizes = {size for size, _ in taken}
    for size, seconds in sweep.between(max(goal.least, one.points[0][0]), min(goal.most - 1, one.points[-1][0])):
        if size not in sizes:
            error = abs(float(price(sweep.kind, size, where, network).cost.time_s) / seconds - 1)
            apart = BYTES if sweep.int8 else KERNEL if sweep.kernel else NOISY if "noisy" in sweep.flags else ""
            yield Found(None if apart else goal, goal.mode, apart, system_of(sweep), sweep, size, error)


def own_machine(sweep: Measured, taken: Sequence[Point]) -> tuple[Calibrated, Network]:
    """What ``commcalc calibrate -o FILE`` makes of a log with these rows, and the network read from that file."""
    rows = tuple(Row(size, seconds, None, line) for line, (size, seconds) in enumerate(taken, 1))
    log = LogSweep(sweep.source, "nccl-tests", sweep.kind, sweep.gpus, sweep.dtype, rows)
    one = calibrated(log, nodes=sweep.nodes)
    if sweep.nodes == 1:
        hardware, _, problems = read_hardware(parse_document(hardware_text("own", [one], None, None), "own.yaml"))
        raise_all(problems)
        return one, hardware.network
    with TemporaryDirectory() as folder:  # what is inside a node is of another machine; no time depends on it
        path = Path(folder) / "own.yaml"
        base = machine(Request(hardware="h100")).hardware
        path.write_text(hardware_text("own", [one], base, "h100"))
        return one, machine(Request(hardware=str(path))).hardware.network


# With the presets as shipped.


def shipped_errors(wanted: Sequence[Measured]) -> Iterator[Found]:
    """Every sweep of a device with a preset, held against that."""
    for sweep in wanted:
        device = device_of(sweep)
        if not device.preset:
            continue
        network = _network(device.preset, "8x4" if sweep.system.endswith("8x4") else None)
        where = placement(sweep, network)
        apart, goals = _standing(sweep, where, network)
        for size, seconds in sweep.points:
            error = abs(float(price(sweep.kind, size, where, network).cost.time_s) / seconds - 1)
            goal = next((goal for goal in goals if goal.least <= size < goal.most), None)
            mode = NODES.mode if sweep.nodes > 1 else LARGE.mode
            yield Found(goal, mode, apart, system_of(sweep), sweep, size, error)


@cache
def _network(preset: str, shape: str | None) -> Network:
    return machine(Request(hardware=preset), shape).hardware.network


def placement(sweep: Measured, network: Network) -> Placement:
    """The devices of one domain in order, or as many of each node as took part."""
    domains = sweep.nodes
    if "nvlink-domain" in sweep.flags:
        domains = -(-sweep.gpus // RACK)
    inner = network.levels[0].devices
    each = sweep.gpus // domains
    if domains == 1 or inner is None:
        return place(sweep.gpus, 1, network, sweep.gpus)
    return place_axes([("domains", domains), ("idle", inner // each), ("each", each)], ["domains", "each"], network)


def _standing(sweep: Measured, where: Placement, network: Network) -> tuple[str, tuple[Goal, ...]]:
    """Why a sweep is listed apart, or the goals that it counts for."""
    reason = BYTES if sweep.int8 else OWN if ships(sweep, where, network) else reason_apart(sweep)
    if reason:
        return reason, ()
    return "", (NODES,) if sweep.nodes > 1 else (LARGE, SMALL)


def reason_apart(sweep: Measured) -> str:
    """Why a sweep is not one that shipped presets are held to; empty where it is."""
    told = next((told for flag, told in FLAGS.items() if flag in sweep.flags), "")
    told = told or SOURCES.get(sweep.source, "") or device_of(sweep).apart
    if told or sweep.nodes == 1:
        return told
    told = next((told for flag, told in NETWORKS.items() if flag in sweep.flags), "")
    if told:
        return told
    if not sweep.flags & {"infiniband", "roce"}:
        return "network not named"
    return "more than 8 nodes" if sweep.nodes > 8 else ""


def ships(sweep: Measured, where: Placement, network: Network) -> bool:
    """Whether the preset has points or a law of this very sweep."""
    index, domains = where.parts[-1]
    name = re.compile(rf"(?<![\w.]){re.escape(sweep.source)}(?!\.?\w)")
    return any(
        (one.kind, one.ranks, one.domains) == (sweep.kind, sweep.gpus, domains)
        and one.algorithm is Algorithm.MEASURED
        and name.search(one.source)
        for one in network.levels[index].measured
    )
