"""The join of volumes and prices: each row on the levels its group rides, and the totals by group."""

from contextlib import suppress
from typing import NamedTuple

from commcalc.accounting.ledger import Ledger, build, rows_of_stage
from commcalc.accounting.links import beyond_measured, told_of_times
from commcalc.accounting.mirrors import group_placement
from commcalc.accounting.rows import AXES, GROUPS, TIED, Row, Stage, Warn
from commcalc.algebra.collective import Convention, Kind
from commcalc.errors import CommcalcError, IllegalDegree
from commcalc.network.cost import Algorithm, added
from commcalc.network.hierarchy import Priced, price
from commcalc.network.link import Network
from commcalc.network.placement import Placement, place, place_axes
from commcalc.transformer.limits import legal_degrees, limits
from commcalc.units import format_bytes, format_seconds


class Entry(NamedTuple):
    """A row with its price; None where no network was given."""

    row: Row
    priced: Priced | None

    @property
    def time_s(self) -> float:
        """Seconds of one call."""
        seconds: float = self.priced.cost.time_s if self.priced else 0.0
        return seconds

    @property
    def egress_bytes(self) -> int:
        """Bytes one device sends under the priced algorithm; the ring count where nothing is priced."""
        return int(self.priced.cost.egress_bytes) if self.priced else self.row.wire_bytes

    @property
    def bound(self) -> str | None:
        """``latency`` or ``bandwidth``: the larger part of the time."""
        if self.priced is None:
            return None
        return self.priced.cost.bound

    @property
    def crossover_payload_bytes(self) -> int | None:
        """The payload at which latency and bandwidth take equally long, everything else alike."""
        if self.priced is None or self.priced.cost.bandwidth_s == 0:
            return None
        cost = self.priced.cost
        equal: int = round(cost.latency_s / cost.bandwidth_s * self.row.payload_bytes)
        return equal


class Total(NamedTuple):
    """What a group's rows add up to. ``time_s`` is None where nothing was priced."""

    calls: int
    payload_bytes: int
    wire_bytes: int
    time_s: float | None


class PricedLedger(NamedTuple):
    """A ledger with its prices and totals: ``totals[scope][group]``, scopes block (the usual kind), stage and step.

    ``blocks`` has the block by kind.
    """

    ledger: Ledger
    entries: tuple[Entry, ...]
    totals: dict[str, dict[str, Total]]
    blocks: dict[str, dict[str, Total]]
    warnings: tuple[Warn, ...]
    assumptions: tuple[str, ...]


def placement_of(row: Row, ledger: Ledger, network: Network) -> Placement:
    """Where the group of ``row`` lies on the network: each of its mesh axes by its own stride."""
    mesh = ledger.layout.mesh
    if row.group == "pp":
        with suppress(CommcalcError):
            return _of_stages(row, ledger, network)
        return _of_neighbours(mesh.size(row.axes), mesh.stride(row.axes[0]), network, mesh.devices)
    return group_placement(mesh, row.axes, network, mirrored=row.mirrored)


def _of_neighbours(stages: int, apart: int, network: Network, devices: int) -> Placement:
    """A stage and the next, of those that lie farthest apart; where stages fill no ring or axis of a torus."""
    far = apart
    for level in network.levels[:-1]:
        inside = level.devices or devices
        if any(at * apart // inside != (at + 1) * apart // inside for at in range(stages - 1)):
            far = max(far, inside)
    return place(2, far, network, devices)


def _of_stages(row: Row, ledger: Ledger, network: Network) -> Placement:
    """The stages in a row, or the first and the last of them."""
    mesh = ledger.layout.mesh
    if row.part == TIED:
        return place(2, (mesh.size(row.axes) - 1) * mesh.stride(row.axes[0]), network, mesh.devices)
    return place_axes(mesh.axes, mesh.expand(row.axes), network)


def price_ledger(ledger: Ledger, network: Network | None, algorithm: Algorithm = Algorithm.AUTO) -> PricedLedger:
    """Price every row, one by one, and say what is to be said of it; ``network`` None counts bytes only."""
    found = priced_alone(ledger, network, algorithm)
    ledger = found.ledger
    if network is None:
        said = "no hardware is given: bytes are counted, nothing is timed"
        return found._replace(assumptions=(*ledger.assumptions, said))
    told = (*_crossing(found, network, algorithm), *_contention(found, network, algorithm), *_beyond(found))
    return found._replace(
        warnings=(*ledger.warnings, *told), assumptions=(*ledger.assumptions, *_said(found, network, algorithm))
    )


def priced_alone(
    ledger: Ledger, network: Network | None, algorithm: Algorithm = Algorithm.AUTO, *, told: bool = True
) -> PricedLedger:
    """Prices and totals alone: nothing is compared with other degrees or orders; ``told`` as in `build`.

    With times, the busiest stage is the one that communicates longest.
    """
    entries = _priced(ledger, network, algorithm)
    if network is not None and len(ledger.stages) > 1:
        known: dict[tuple[tuple[str, int], ...], float] = {}

        def seconds(stage: Stage) -> float:
            alike = tuple(stage.times.items())
            if alike not in known:
                known[alike] = _stage_seconds(ledger, entries, stage, network, algorithm)
            return known[alike]

        slowest = max(ledger.stages, key=lambda stage: (seconds(stage), -stage.number))
        if slowest != ledger.stage:
            again = build(
                ledger.model, ledger.parallel, ledger.work, ledger.convention, slowest.number, ledger.sublayers,
                told=told,
            )  # fmt: skip
            ledger = again._replace(warnings=ledger.warnings)
            entries = _priced(ledger, network, algorithm)
    timed = network is not None
    there = {entry.row.group for entry in entries}
    groups = [group for group in GROUPS if group in AXES or group in there]

    def of_blocks(times: dict[str, int]) -> dict[str, Total]:
        inside = [entry for entry in entries if entry.row.part in times and entry.row.per != "layer"]
        return _by_group([(entry, entry.row.calls * times[entry.row.part]) for entry in inside], groups, timed)

    blocks = {name: of_blocks({name: 1}) for name in ledger.programs.blocks}
    totals = {
        "block": blocks.get(ledger.usual) or of_blocks({}),
        "stage": of_blocks({name: ledger.stage.own[name] for name in blocks}),
        "step": _by_group([(entry, ledger.times_in_step(entry.row)) for entry in entries], groups, timed),
    }
    return PricedLedger(ledger, tuple(entries), totals, blocks, ledger.warnings, ledger.assumptions)


def _priced(ledger: Ledger, network: Network | None, algorithm: Algorithm) -> list[Entry]:
    return [_entry(row, ledger, network, algorithm) for row in ledger.rows]


def _entry(row: Row, ledger: Ledger, network: Network | None, algorithm: Algorithm) -> Entry:
    if network is None:
        return Entry(row, None)
    at = placement_of(row, ledger, network)
    return Entry(row, price(row.kind, row.payload_bytes, at, network, algorithm, ledger.convention))


def _stage_seconds(ledger: Ledger, entries: list[Entry], stage: Stage, network: Network, algorithm: Algorithm) -> float:
    """Seconds that a stage communicates in a step."""
    each = _of_stage(ledger, entries, stage, network, algorithm)
    seconds: float = added(entry.time_s * ledger.times_in_step(entry.row, stage) for entry in each)
    return seconds


def totals_of_stages(
    priced: PricedLedger, network: Network | None, algorithm: Algorithm = Algorithm.AUTO
) -> tuple[dict[str, Total], ...]:
    """What a step of each stage adds up to, by group, in order; embedding and head on theirs."""
    ledger, first = priced.ledger, priced.totals["step"]
    if len(ledger.stages) == 1:
        return (first,)
    known: dict[tuple[tuple[str, int], ...], dict[str, Total]] = {tuple(ledger.stage.times.items()): first}
    for stage in ledger.stages:
        key = tuple(stage.times.items())
        if key not in known:
            counted = [
                (entry, ledger.times_in_step(entry.row, stage))
                for entry in stage_entries(priced, stage, network, algorithm)
            ]
            there = {entry.row.group for entry, times in counted if times}
            groups = [group for group in GROUPS if group in first or group in there]
            known[key] = _by_group(counted, groups, network is not None)
    return tuple(known[tuple(stage.times.items())] for stage in ledger.stages)


def stage_entries(
    priced: PricedLedger, stage: Stage, network: Network | None, algorithm: Algorithm = Algorithm.AUTO
) -> list[Entry]:
    """The priced rows of any stage."""
    if stage == priced.ledger.stage:
        return list(priced.entries)
    return _of_stage(priced.ledger, list(priced.entries), stage, network, algorithm)


def _of_stage(
    ledger: Ledger, entries: list[Entry], stage: Stage, network: Network | None, algorithm: Algorithm
) -> list[Entry]:
    """The rows of programs, which stages share, and those of a stage."""
    its_own = [_entry(row, ledger, network, algorithm) for row in rows_of_stage(ledger, stage)]
    return [*entries[: ledger.of_programs], *its_own]


def _by_group(chosen: list[tuple[Entry, int]], groups: list[str], timed: bool) -> dict[str, Total]:
    def add(rows: list[tuple[Entry, int]]) -> Total:
        return Total(
            sum(times for _, times in rows),
            sum(entry.row.payload_bytes * times for entry, times in rows),
            sum(entry.row.wire_bytes * times for entry, times in rows),
            added(entry.time_s * times for entry, times in rows) if timed else None,
        )

    found = {group: add([item for item in chosen if item[0].row.group == group]) for group in groups}
    return found | {"all": add(chosen)}


def _crossing(priced: PricedLedger, network: Network, algorithm: Algorithm) -> list[Warn]:
    """A frequent group that leaves its fastest level: what a block then costs, and beside it the degree that stays."""
    ledger = priced.ledger
    parallel = ledger.parallel
    at = next((entry for entry in priced.entries if entry.row.group_size == parallel.tp), None)
    if parallel.tp == 1 or at is None or at.priced is None or not priced.totals["stage"]["tp"].calls:
        return []
    where = placement_of(at.row, ledger, network)
    if where.outermost == 0:
        return []
    inner, outer = network.levels[0], network.levels[where.outermost]
    size = f" ({inner.devices} devices)" if inner.devices else ""
    message = f"tp {parallel.tp} leaves {inner.name}{size} and crosses {outer.name}"
    if where.uneven:
        message += f", in unequal parts: priced as one flat ring with {where.channels} links across"
    here = priced.totals["block"]["tp"].time_s or 0.0
    message += f": a block communicates for {format_seconds(here)}"
    stays = _largest_inside(ledger, network)
    if stays is not None:
        smaller = parallel._replace(tp=stays)
        beside = priced_alone(build(ledger.model, smaller, ledger.work, ledger.convention), network, algorithm)
        there = beside.totals["block"]["tp"].time_s or 0.0
        ratio = f", {here / there:.3g} times as long" if there else ""
        message += f", against {format_seconds(there)} at tp {stays}, which stays on {inner.name}{ratio}"
    return [Warn("tp-crosses-level", message)]


def _contention(priced: PricedLedger, network: Network, algorithm: Algorithm) -> list[Warn]:
    """Whether another order of axes would place frequent groups better; of one axis or one level there is none."""
    split = [axis for axis in priced.ledger.parallel.order if getattr(priced.ledger.parallel, axis) > 1]
    if len(split) < 2 or len(network.levels) < 2:
        return []
    from commcalc.accounting.contention import contention

    return contention(priced, network, algorithm)


def _largest_inside(ledger: Ledger, network: Network) -> int | None:
    """The largest legal TP degree above 1 that stays on the innermost level, if there is one."""
    devices = network.levels[0].devices
    parallel = ledger.parallel
    stride = parallel.mesh.stride("tp")
    if devices is None or stride >= devices:
        return None
    others = parallel.mesh.devices // parallel.tp
    legal = legal_degrees(limits(ledger.model, parallel, ledger.work), devices // stride)
    inside = [tp for tp in legal if tp > 1 and _stays(tp, stride, network, tp * others)]
    return max(inside, default=None)


def _stays(tp: int, stride: int, network: Network, devices: int) -> bool:
    """Whether the groups lie on the innermost level; not where they follow no axes of its torus."""
    try:
        return place(tp, stride, network, devices).outermost == 0
    except IllegalDegree:
        return False


def _said(priced: PricedLedger, network: Network, algorithm: Algorithm) -> list[str]:
    said = ["bandwidths are one direction, per device; times are latency plus bandwidth"]
    if network.call_latency_s is not None:
        said.append(f"every call costs {format_seconds(network.call_latency_s)}, in place of the links' latencies")
    said += told_of_times([entry.priced.cost for entry in priced.entries if entry.priced])
    if algorithm is Algorithm.AUTO:
        said.append("algorithm: the fastest that a level offers to each collective; hierarchical across levels")
    else:
        said.append(
            f"algorithm: {algorithm}"
            if algorithm is Algorithm.RING
            else f"algorithm: {algorithm} where a collective can use it, else the usual one of its level"
        )
    said += _split_or_whole(priced, network) if algorithm in (Algorithm.AUTO, Algorithm.MEASURED) else []
    ridden = {name for entry in priced.entries for name in _by_datasheet(entry)}
    idle = [level.name for level in network.levels if level.latency_s == 0 and level.name in ridden]
    if idle:
        said.append(f"latency is taken as zero on {', '.join(idle)}")
    if any(entry.priced and entry.priced.phases for entry in priced.entries):
        textbook = priced.ledger.convention is Convention.TEXTBOOK
        how = "run at once: the slowest level counts" if textbook else "follow one another; their times add up"
        said.append(f"phases of a collective over several levels {how}")
    if priced.ledger.convention is Convention.TEXTBOOK:
        said.append("textbook convention: times drop (n-1)/n and are the larger of latency and bandwidth")
    return said


def _split_or_whole(priced: PricedLedger, network: Network) -> list[str]:
    """Why layouts of equal bytes differ in time: an AllReduce beside a ReduceScatter and an AllGather, as measured."""
    ledger = priced.ledger
    halves = (Kind.REDUCE_SCATTER, Kind.ALL_GATHER)
    row = max(
        (entry.row for entry in priced.entries if entry.row.per == "block" and entry.row.group == "tp"
         and entry.row.kind in (Kind.ALL_REDUCE, *halves)),
        key=lambda row: row.payload_bytes, default=None,
    )  # fmt: skip
    if row is None or row.group_size == 1:
        return []
    where = placement_of(row, ledger, network)
    costs = {kind: price(kind, row.payload_bytes, where, network).cost for kind in (Kind.ALL_REDUCE, *halves)}
    if any(cost.evidence is None for cost in costs.values()):
        return []
    whole, split = costs[Kind.ALL_REDUCE].time_s, sum(costs[kind].time_s for kind in halves)
    level = network.levels[where.outermost]
    sums = level.in_network is not None and row.group_size >= level.in_network.min_ranks
    why = f"{level.name} sums in its switch, for all_reduce only" if sums else "two calls, each with its own start"
    return [
        f"equal bytes, other times: of {format_bytes(row.payload_bytes)} B a reduce_scatter and an all_gather take "
        f"{format_seconds(split)}, an all_reduce {format_seconds(whole)} ({split / whole:.3g} times): {why}"
    ]


def _beyond(priced: PricedLedger) -> list[Warn]:
    """Payloads far beyond what was measured."""
    named = [(f"{entry.row.kind} of {entry.row.payload_bytes:,} B", entry.priced.cost)
             for entry in priced.entries if entry.priced]  # fmt: skip
    return [Warn("beyond-measured", told) for told in beyond_measured(named)]


def _by_datasheet(entry: Entry) -> list[str]:
    """The levels whose closed forms priced a row."""
    if entry.priced is None or entry.priced.cost.evidence is not None:
        return []
    parts = [(phase.level, phase.cost) for phase in entry.priced.phases] or [(entry.priced.level, entry.priced.cost)]
    return [level for level, cost in parts if cost.evidence is None]
