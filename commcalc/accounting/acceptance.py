"""What to measure on collective hardware for a job, and how fast its collectives must be to stay hidden.

They stay hidden where, in one pass of a block, all of them together take no longer than the block's GEMMs:

    busbw needed = bus bytes of the pass / seconds of its GEMMs,  bus bytes = calls * payload * factor

Payload, factor and busbw are those of nccl-tests (doc/PERFORMANCE.md). GEMMs take as long as their FLOPs at the chip's
peak, or as reading their weights once from memory where that is longer, as it is in decoding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from commcalc.accounting.compute import counted
from commcalc.accounting.gemms import gemms_of, weight_bytes_of
from commcalc.accounting.ledger import Ledger, build
from commcalc.accounting.links import told_of_times
from commcalc.accounting.pricing import placement_of
from commcalc.accounting.rows import RECOMPUTE, UPDATE, Row, Warn
from commcalc.algebra.collective import Kind, wire_bytes, wire_ratio
from commcalc.algebra.program import Role
from commcalc.algebra.schedule import BACKWARD, FORWARD
from commcalc.network.cost import Algorithm
from commcalc.network.hierarchy import Priced, egress_rate, price
from commcalc.network.link import Network
from commcalc.network.measured import Confidence
from commcalc.network.placement import Placement
from commcalc.transformer.layout import LayoutName
from commcalc.transformer.spec import Model, Phase
from commcalc.transformer.work import Parallelism, Recompute, Workload
from commcalc.units import Dtype, format_flops

# Activations are measured in both, whatever the job sends.
BUFFERS = (Dtype.BF16, Dtype.FP8)
# At whose peak the GEMMs of each run: the first that the chip gives.
_PEAKS = {Dtype.BF16: (Dtype.BF16, Dtype.FP16), Dtype.FP8: (Dtype.FP8, Dtype.BF16, Dtype.FP16)}
# nccl-tests deals these out in parts of whole 16 bytes: all_gather.cu, reduce_scatter.cu, alltoall.cu.
DEALT = (Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL)
# A payload whose time is all bandwidth.
_LARGE = 2**40


class Machine(Protocol):
    """What is asked of a machine; a hardware preset is one."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def network(self) -> Network:
        """Its levels."""

    @property
    def flops(self) -> Mapping[Dtype, float]:
        """Dense FLOP/s by type."""

    @property
    def hbm_bytes_per_s(self) -> float | None:
        """The rate of its memory."""


class Pass(NamedTuple):
    """One pass of a block on one device, with its buffers in ``dtype``.

    ``least_s`` is what its collectives take at the most that the links' datasheets allow, ``expected_s`` what they take
    by the preset. Seconds are None where the machine does not say enough.
    """

    direction: str
    dtype: Dtype
    gemm_flops: int
    gemm_s: float | None
    calls: int
    bus_bytes: int
    least_s: float | None
    expected_s: float | None

    @property
    def needed(self) -> float | None:
        """Busbw in bytes per second at which the collectives take exactly as long as the GEMMs."""
        return self.bus_bytes / self.gemm_s if self.gemm_s else None

    @property
    def verdict(self) -> str | None:
        """``hidden`` or ``exposed`` by the preset's times; ``cannot be hidden`` by any that the links allow."""
        if self.gemm_s is None or self.least_s is None or self.expected_s is None:
            return None
        if self.least_s > self.gemm_s:
            return "cannot be hidden"
        return "hidden" if self.expected_s <= self.gemm_s else "exposed"


class Rates(NamedTuple):
    """What a collective can reach, in bytes per second.

    ``datasheet`` is the rate of its links, ``bound`` that of its busbw, which is larger where a switch sums.
    """

    datasheet: float
    bound: float
    priced: Priced


class Measurement(NamedTuple):
    """One collective of one payload, over every ``stride``-th of ``group_size * stride`` ranks.

    ``calls`` are those of a block by pass, ``others`` those outside by what they are counted per; ``needed`` is the
    busbw by pass. ``crosses``: the ranks do not fit on the innermost level.
    """

    kind: Kind
    group: str
    group_size: int
    stride: int
    crosses: bool
    dtype: Dtype
    payload_bytes: int
    ops: tuple[str, ...]
    calls: Mapping[str, int]
    others: Mapping[str, int]
    needed: Mapping[str, float]
    rates: Rates | None

    @property
    def hardest(self) -> float | None:
        """The largest busbw that a pass needs; None where nothing hides it."""
        return max(self.needed.values(), default=None)

    @property
    def share(self) -> float | None:
        """What that is of the links' datasheet rate."""
        return self.hardest / self.rates.datasheet if self.hardest and self.rates else None

    @property
    def reachable(self) -> bool | None:
        """Whether the links allow that busbw at all."""
        return self.hardest <= self.rates.bound if self.hardest and self.rates else None

    @property
    def expected_busbw(self) -> float | None:
        """By the preset."""
        if self.rates is None:
            return None
        over, under = wire_ratio(self.kind, self.group_size)
        return float(self.payload_bytes * over / under / self.rates.priced.cost.time_s)

    @property
    def rounded(self) -> bool:
        """Whether nccl-tests measures a little less than the payload."""
        return self.kind in DEALT and self.payload_bytes % (16 * self.group_size) != 0


class Plan(NamedTuple):
    """All that is to be measured for a job; ``note`` says why where that is nothing."""

    ledger: Ledger
    machine: str | None
    passes: tuple[Pass, ...]
    measurements: tuple[Measurement, ...]
    note: str | None
    assumptions: tuple[str, ...]
    warnings: tuple[Warn, ...]


def acceptance(
    model: Model, parallel: Parallelism, work: Workload, hardware: Machine | None, algorithm: Algorithm = Algorithm.AUTO
) -> Plan:
    """The plan of a job: each distinct collective once in each type of its buffer, those of a block first."""
    ledger = build(model, parallel, work)
    draft = _Draft(ledger, hardware, algorithm)
    measurements = draft.measurements()
    note = None if measurements else _nothing(ledger)
    said = tuple(_assumed(draft, measurements)) if measurements else ()
    return Plan(
        ledger, hardware.name if hardware else None, draft.passes, measurements, note, said, ledger.warnings
    )  # fmt: skip


class _Draft:
    """Puts the rows of a ledger together."""

    def __init__(self, ledger: Ledger, hardware: Machine | None, algorithm: Algorithm) -> None:
        self.ledger = ledger
        self.hardware = hardware
        self.algorithm = algorithm
        self.peaks = {dtype: _peak(dtype, hardware) for dtype in BUFFERS}
        found = [
            (part, pass_, [row for row in ledger.rows if row.part == part and _pass_of(row) == pass_])
            for part in ledger.programs.blocks
            for pass_ in (FORWARD, BACKWARD)
        ]
        self.passes = tuple(
            self._pass(part, pass_, dtype, rows) for dtype in BUFFERS for part, pass_, rows in found if rows
        )  # fmt: skip

    def _named(self, row: Row) -> str:
        """The pass of a row by its name: where blocks differ, with the kind of block."""
        return _pass_of(row) if len(self.ledger.programs.blocks) == 1 else f"{_pass_of(row)} of {row.part} blocks"

    def _pass(self, part: str, direction: str, dtype: Dtype, rows: Sequence[Row]) -> Pass:
        gemms = gemms_of(self.ledger.derivations[part], direction, self.ledger.work)
        draft = self.ledger.draft
        flops = sum(found[0] for gemm in gemms if (found := counted(draft, gemm)) is not None)
        seconds = None
        if self.hardware is not None and (peak := self.peaks[dtype]) is not None:
            seconds = flops / self.hardware.flops[peak]
            if self.hardware.hbm_bytes_per_s is not None:
                read = sum(weight_bytes_of(gemm, dtype, self.ledger.sizes) for gemm in gemms)
                seconds = max(seconds, read / self.hardware.hbm_bytes_per_s)
        bus = [int(wire_bytes(row.kind, self._payload(row, dtype), row.group_size)) * row.calls for row in rows]
        least = expected = None
        if self.hardware is not None:
            rates = [self._rates(row, dtype, self.hardware.network) for row in rows]
            least = sum(sent / one.bound for sent, one in zip(bus, rates, strict=True))
            expected = sum(row.calls * float(one.priced.cost.time_s) for row, one in zip(rows, rates, strict=True))
        name = self._named(rows[0])
        return Pass(name, dtype, flops, seconds, sum(row.calls for row in rows), sum(bus), least, expected)

    def measurements(self) -> tuple[Measurement, ...]:
        """Rows that are alike count as one."""
        found: dict[tuple[Kind, tuple[str, ...], int, int, Dtype], list[Row]] = {}
        for row in sorted(self.ledger.rows, key=lambda row: row.per != "block"):
            for dtype in BUFFERS if _activation(row) else (row.dtype,):
                found.setdefault((row.kind, row.axes, row.group_size, self._payload(row, dtype), dtype), []).append(row)
        return tuple(self._measurement(rows, dtype) for (*_, dtype), rows in found.items())

    def _measurement(self, rows: Sequence[Row], dtype: Dtype) -> Measurement:
        row, mesh = rows[0], self.ledger.layout.mesh
        calls: dict[str, int] = {}
        others: dict[str, int] = {}
        for one in rows:
            counted, name = (calls, self._named(one)) if one.per == "block" else (others, one.per)
            counted[name] = counted.get(name, 0) + one.calls
        needed = {one.direction: one.needed for one in self.passes if one.dtype is dtype and one.needed is not None}
        # Ranks that only their mirrors share parameters with lie as far apart as first and last stage.
        farthest = (mesh.size(["pp"]) - 1) * mesh.stride("pp") if row.mirrored else mesh.devices
        stride = min((mesh.stride(axis) for axis in mesh.expand(row.axes)), default=farthest)
        network = self.hardware.network if self.hardware else None
        inside = network.levels[0].devices if network else None
        return Measurement(
            row.kind, ", ".join(mesh.label(row.axes)) or row.group, row.group_size, stride,
            inside is not None and max(row.group_size * stride, row.mirrored and farthest + 1) > inside, dtype,
            self._payload(row, dtype),
            tuple(dict.fromkeys(f"{one.direction} {one.op}" for one in rows)), calls, others,
            {name: rate for name, rate in needed.items() if name in calls},
            self._rates(row, dtype, network) if network else None,
        )  # fmt: skip

    def _payload(self, row: Row, dtype: Dtype) -> int:
        bits = dtype.bits if _activation(row) else row.dtype.bits
        return int(row.payload._replace(bits=bits).value(self.ledger.sizes))

    def _rates(self, row: Row, dtype: Dtype, network: Network) -> Rates:
        """What the links allow and the preset expects; NCCL's kernels for a switch that sums take no FP8.

        Source: NVIDIA/nccl src/include/device.h, ncclNvlsSupported.
        """
        algorithm = self.algorithm
        at = placement_of(row, self.ledger, network)
        sums = network.levels[at.outermost].in_network
        if dtype is Dtype.FP8:
            network = Network(tuple(level._replace(in_network=None) for level in network.levels))
            algorithm = Algorithm.AUTO if algorithm is Algorithm.IN_NETWORK else algorithm
        bare = Network(tuple(level._replace(measured=(), algorithms=()) for level in network.levels))
        over, under = wire_ratio(row.kind, row.group_size)
        best = _LARGE * over / under / float(price(row.kind, _LARGE, at, bare).cost.bandwidth_s)
        datasheet = egress_rate(at, bare, row.kind)
        priced = price(row.kind, self._payload(row, dtype), at, network, algorithm)
        if dtype is Dtype.FP8 and row.kind is Kind.ALL_REDUCE and priced.cost.evidence and sums:
            priced = self._in_halves(row, at, network)
        return Rates(datasheet, max(datasheet, best), priced)

    def _in_halves(self, row: Row, at: Placement, network: Network) -> Priced:
        """An AllReduce of FP8 as its two halves: what was measured of it may be the switch's, which takes no FP8."""
        size = self._payload(row, Dtype.FP8)
        halves = [price(kind, size, at, network) for kind in (Kind.REDUCE_SCATTER, Kind.ALL_GATHER)]
        if any(one.cost.evidence is None for one in halves):
            return price(row.kind, size, at, Network(tuple(level._replace(measured=()) for level in network.levels)))
        first, second = (one.cost for one in halves)
        both = {name: getattr(first, name) + getattr(second, name)
                for name in ("egress_bytes", "latency_s", "ramp_s", "bandwidth_s")}  # fmt: skip
        evidence = first.evidence._replace(confidence=Confidence.CALIBRATED) if first.evidence else None
        return halves[0]._replace(cost=first._replace(evidence=evidence, **both))


def _nothing(ledger: Ledger) -> str:
    """Why there is nothing to measure, and what would change that."""
    if ledger.parallel.tp > 1 and ledger.layout.name is LayoutName.NONE:
        return "layout none splits nothing, so there is nothing to measure: --set parallelism.layout=megatron splits"
    return "a block at tp 1 sends nothing, so there is nothing to measure: --set parallelism.tp=8 splits it"


def _activation(row: Row) -> bool:
    """Whether it moves activations or their gradients, whose type is a choice."""
    return row.role in (Role.ACTIVATION, Role.WEIGHT) and row.direction != UPDATE


def _pass_of(row: Row) -> str:
    """What is computed again runs in the backward pass."""
    return BACKWARD if row.direction == RECOMPUTE else row.direction


def _peak(dtype: Dtype, hardware: Machine | None) -> Dtype | None:
    return next((one for one in _PEAKS[dtype] if hardware and one in hardware.flops), None)


def _assumed(draft: _Draft, measurements: Sequence[Measurement]) -> list[str]:
    """What the plan rests on, how to run it, and how to fill it in."""
    work = draft.ledger.work
    said = [
        "busbw needed: the bus bytes of all collectives of a pass of one block, over the time of that pass's GEMMs; "
        "bus bytes are 2(n-1)/n of an AllReduce's payload, (n-1)/n of the others'",
        *_assumed_of_gemms(draft),
        "a pass is hidden where its collectives by the preset take no longer than its GEMMs, exposed where they take "
        "longer; it cannot be hidden where they take longer even at the bound of the links",
        "hiding supposes GEMMs that need not wait, as those of chunks or of another microbatch: gemm_overlap tells",
        f"activations are measured as bfloat16 and as f8e4m3, the same elements at 2 and at 1 byte; the job sends "
        f"{work.dtype}",
        "f8e4m3 needs NCCL 2.24, nccl-tests built with it, and for sums GPUs of compute capability 9.0; rings sum in "
        "the buffer's type, so a job that reduces in BF16 takes the bfloat16 lines of all_reduce and reduce_scatter",
    ]
    if any(level.in_network for level in (draft.hardware.network.levels if draft.hardware else ())):
        said.append(
            "FP8 sums have the bound of links without a switch that sums: NCCL's NVLS kernels take no FP8, save those "
            "for symmetric memory on Blackwell; where the switch may have summed in what was measured, their time is "
            "that of a reduce_scatter and an all_gather"
        )
    if any(one.dtype not in BUFFERS for one in measurements):
        said.append("sums of the loss and gradients of weights are measured in their own type; nothing hides them here")
    said += told_of_times([one.rates.priced.cost for one in measurements if one.rates])
    said += [
        "command lines are nccl-tests built with MPI=1, one process for each GPU (without MPI=1 mpirun starts N runs "
        "of one GPU); rccl-tests takes the same options; read the out-of-place columns, the size is the whole buffer",
        'one group runs alone; NCCL_TESTS_SPLIT="DIV n" on all GPUs of a node runs its groups of n at once, as jobs do',
    ]
    if any(one.stride > 1 for one in measurements):
        said.append(
            'groups of ranks that lie apart: NCCL_TESTS_SPLIT="MOD s" puts every s-th rank in one group and runs all '
            "groups at once; it needs nccl-tests of 2025, before that which devices are used places a group"
        )
    if any(one.crosses for one in measurements):
        said.append('--hostfile hosts: one line for each node in the order of the ranks, like "node1 slots=8"')
    if any(one.rounded for one in measurements):
        said.append("nccl-tests deals out parts of whole 16 bytes, so some sizes come out slightly smaller")
    if work.phase is Phase.DECODE:
        said.append("-G 10: decoding runs from CUDA graphs; leave it out for eager execution")
    return [
        *said,
        "startup_latency_s: the time of the smallest sizes of the start-up line, where it falls with the size no more",
        "measured_busbw_bytes_per_s: busbw of the line at the payload, in bytes per second",
        "async_progress: start the collective on a stream of its own, make no call on the host for as long as it takes "
        "alone, then wait for it; 1 - wait / time alone: 1 progresses by itself, 0 only while waited for",
        "gemm_overlap: the pass's GEMMs on one stream, the collective on another; "
        "(GEMMs alone + collective alone - both) / collective alone: 1 is hidden whole, 0 one after the other, "
        "below 0 they hold each other up",
    ]


def _assumed_of_gemms(draft: _Draft) -> list[str]:
    work, hardware = draft.ledger.work, draft.hardware
    if hardware is None:
        return ["no machine is given: nothing is timed, and no busbw is needed"]
    told = [
        f"{dtype} buffers {format_flops(hardware.flops[peak])}"
        + ("" if peak is dtype else f" (of {peak}: the chip gives none in {dtype})")
        for dtype, peak in draft.peaks.items()
        if peak is not None
    ]
    if not told:
        return ["the chip gives no peak in bf16, fp16 or fp8, so no busbw is needed (chip: {flops: {bf16: ...}})"]
    said = [
        f"GEMMs run at the chip's peak: {', '.join(told)}; at half of it half the busbw would do",
        "GEMMs are the products with weights; attention's scores and what runs element by element hide nothing here",
    ]
    said += [
        f"the chip gives no peak for {dtype} buffers: no busbw is needed in them"
        for dtype, peak in draft.peaks.items()
        if peak is None
    ]
    if hardware.hbm_bytes_per_s is not None:
        said.append("where reading the weights of a pass from memory takes longer than its FLOPs, that is its time")
    if work.phase.training:
        again = ", and again forward first" if work.recompute is Recompute.FULL else ""
        said.append(f"the backward pass multiplies twice, for the gradient of the input and of the weight{again}")
    return said
