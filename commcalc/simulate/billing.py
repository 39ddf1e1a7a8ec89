"""The ledger beside what ran: every row, what rows add up to, and how many collectives a layer may have at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from commcalc.accounting.draft import group_of, group_of_axes, notation_of
from commcalc.accounting.ledger import Ledger, rows_of_stage
from commcalc.accounting.pricing import price_ledger
from commcalc.accounting.rows import GROUPS, RECOMPUTE, UPDATE, Row, Stage
from commcalc.algebra.collective import Kind
from commcalc.algebra.schedule import BACKWARD, FORWARD, Event
from commcalc.network.link import Algorithm
from commcalc.simulate.check import Check, exact
from commcalc.simulate.execute import Count
from commcalc.simulate.moves import Counted
from commcalc.simulate.predicted import Predicted, compared
from commcalc.simulate.published import per_layer
from commcalc.simulate.stages import ALL, BLOCK, Exchange, Part
from commcalc.simulate.training import Training
from commcalc.transformer.work import CpComm

# Sublayers of rows that no program has, by their first word.
_OF_STAGES = ("parameters", "pipeline")


class Ran(NamedTuple):
    """A collective that ran: for which operation, of which tensor, over which axes, in how wide elements."""

    op: str
    tensor: str
    axes: tuple[str, ...]
    group: str
    bits: int
    counted: Counted


def check_rows(training: Training) -> Iterator[Check]:
    """Every row of the ledger beside what was counted, in the order in which they run; each row is looked at."""
    ledger = training.ledger
    order = [(part, FORWARD) for part in training.parts]
    order += [(part, direction) for part in reversed(training.parts) for direction in (RECOMPUTE, BACKWARD)]
    seen = {(part.program, direction) for part, direction in order}
    programs, _ = _parted(ledger.rows)
    for part, direction in order:
        rows = [row for row in programs if (row.part, row.direction) == (part.program, direction)]
        rows = [row for row in rows for _ in range(row.calls)]
        ran = list(_all_ran(training, training.counts(part, direction)))
        yield from _beside(rows, ran, part.name, ledger)
    for stage in ledger.stages:
        yield from _check_stage(training, stage)
    lost = [row for row in programs if (row.part, row.direction) not in seen]
    if lost:
        yield exact("rows", 0, len(lost), _row(lost[0]), "the ledger has rows of a pass that does not run")


def _parted(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of programs, and those of a stage: of parameters, of their gradients, and between stages."""
    programs: list[Row] = []
    others: list[Row] = []
    for row in rows:
        of_stage = row.direction == UPDATE or row.sublayer.partition(" ")[0] in _OF_STAGES
        (others if of_stage else programs).append(row)
    return programs, others


def _rows_of(ledger: Ledger, stage: Stage) -> list[Row]:
    """The rows of a stage that no program has."""
    return _parted(ledger.rows)[1] if stage == ledger.stage else rows_of_stage(ledger, stage)


def _check_stage(training: Training, stage: Stage) -> Iterator[Check]:
    """The rows of parameters, of gradients and of what goes between stages: those of each layer, and all others."""
    ledger = training.ledger
    rows = _rows_of(ledger, stage)
    ran = _exchanged(training, stage)
    units = dict.fromkeys((one.unit, one.part) for one in ran)
    known = {part for _, part in units}
    units |= dict.fromkeys((row.part, row.part) for row in rows if row.part not in known)
    for unit, part in units:
        # What runs several times in a microbatch, messages of chunks, has one row.
        times = stage.times[part] if unit == part and part != ALL else 1
        mine = [row for row in rows if row.part == part for _ in range(row.calls * times)]
        own = _in_order([one for one in ran if one.unit == unit], mine)
        name = UPDATE if unit == ALL else unit
        name = f"stage {stage.number}, {name}" if len(ledger.stages) > 1 else name
        alike = [Ran(one.op, one.tensor, one.axes, _group(ledger, one), one.bits, one.counted) for one in own]
        yield from _beside(mine, alike, name, ledger)


def _in_order(ran: Iterable[Exchange], rows: Sequence[Row]) -> list[Exchange]:
    """What ran in the order of its rows; what has none comes last."""
    places: dict[tuple[str, str, tuple[str, ...], str], list[int]] = {}
    for at, row in enumerate(rows):
        places.setdefault((row.direction, row.op, row.axes, row.tensor), []).append(at)
    found = []
    for one in ran:
        left = places.get((one.direction, one.op, one.axes, one.tensor), [])
        found.append((left.pop(0) if left else len(rows), one))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def _exchanged(training: Training, stage: Stage) -> list[Exchange]:
    return [one for one in training.exchanges if one.stage == stage.number and one.counted.group_size > 1]


def _all_ran(training: Training, counts: Sequence[Count]) -> Iterator[Ran]:
    """What ran, in order; what goes round a context group is a message of every hop, keys with values in one."""
    layout = training.ledger.layout
    parallel = training.ledger.parallel
    ring = parallel.cp > 1 and parallel.cp_comm is CpComm.RING
    rounds: dict[tuple[Kind, str], list[Count]] = {}
    for count in counts:
        event = count.event
        if ring and event.label == "attention" and event.step.axes == layout.context:
            rounds.setdefault((event.step.kind, event.note), []).append(count)
    for count in counts:
        event = count.event
        together = rounds.get((event.step.kind, event.note), [])
        if count not in together:
            yield _ran(training, event, count.counted)
        elif count is together[0]:
            yield from _hops(training, together)


def _hops(training: Training, together: Sequence[Count]) -> Iterator[Ran]:
    """The messages of one round: as many as it took steps, each an equal part of what was sent."""
    event, first = together[0].event, together[0].counted
    each = sum(one.counted.sent_bytes for one in together) // first.steps
    counted = Counted(Kind.SEND_RECV, Algorithm.DIRECT, first.group_size, each, each, 1)
    tensors = ", ".join(one.event.tensor for one in together)
    for _ in range(first.steps):
        yield _ran(training, event, counted)._replace(tensor=tensors)


def _ran(training: Training, event: Event, counted: Counted) -> Ran:
    layout, axes = training.ledger.layout, event.step.axes
    tensor = notation_of(layout, event.tensor, event.step.before)
    return Ran(event.label, tensor, axes, group_of(layout, event), training.setting.elements.of(event), counted)


def _group(ledger: Ledger, one: Exchange) -> str:
    """Under which name totals have what is exchanged: copies, shards and experts have their own."""
    return one.group or group_of_axes(ledger.layout, one.axes)


def _beside(rows: list[Row], ran: list[Ran], name: str, ledger: Ledger) -> Iterator[Check]:
    if len(rows) != len(ran):  # a row too many or too few puts all after it beside the wrong one
        pairs = zip(rows, ran, strict=False)
        alike = ((row.op, row.kind, row.tensor) == (one.op, one.counted.kind, one.tensor) for row, one in pairs)
        first = next((at for at, same in enumerate(alike) if not same), min(len(rows), len(ran)))
        parted = f"at {_row(rows[first])}" if first < len(rows) else "after the last row"
        message = f"the ledger has {len(rows)} collectives here, {len(ran)} ran; they part {parted}"
        yield exact("rows", len(rows), len(ran), name, message)
        return
    for row, one in zip(rows, ran, strict=True):
        where = f"{name}, {_row(row)}"
        said = (row.op, row.tensor, row.axes, row.group, row.dtype.bits, row.group_size)
        was = (one.op, one.tensor, one.axes, one.group, one.bits, one.counted.group_size)
        wrong = [f"{ours!r} is {theirs!r}" for ours, theirs in zip(said, was, strict=True) if ours != theirs]
        yield exact("row", 0, len(wrong), where, "; ".join(wrong))
        bill = Predicted(row.kind, row.group_size, row.payload, row.payload_bytes, row.wire_bytes, ledger.sizes)
        yield from compared(bill, one.counted, where)


def _row(row: Row) -> str:
    return f"{row.direction} {row.op}: {row.kind} of {row.tensor}"


def check_totals(training: Training) -> Iterator[Check]:
    """What a block, a stage and a step send, as the ledger adds it up, beside the sum of all that ran, by group.

    One microbatch runs; a step has all of them, and what is exchanged once. Of other stages than the busiest the step.
    """
    ledger = training.ledger
    busiest = ledger.stage
    usual = next(part for part in training.parts if part.program == ledger.usual)
    layers = [part for part in training.parts if part.name.startswith(BLOCK) and _on(training, part, busiest)]
    ran = {
        # What is gathered and reduced has rows of the busiest stage alone.
        "block": _sent(training, [usual], with_parameters=busiest.times[ledger.usual] > 0),
        "stage": _sent(training, layers),
        "step": _sent_in_step(training, busiest),
    }
    totals = price_ledger(ledger, None).totals
    for scope, found in ran.items():
        said = {group: total.wire_bytes for group, total in totals[scope].items()}
        yield from _compared(f"totals.{scope}", said, found, _sum_text(scope, ledger))
    for stage in ledger.stages:
        if stage != busiest:
            where = f"stage {stage.number}, totals.step"
            yield from _compared(where, _said_in_step(ledger, stage), _sent_in_step(training, stage), "")


def _compared(where: str, said: Mapping[str, int], sent: Counter[str], formula: str) -> Iterator[Check]:
    """Totals of every group, and that no group has what nobody sent."""
    for group in (group for group in GROUPS if group == "tp" or said.get(group) or sent[group]):
        told = f"the ledger adds up to {said.get(group, 0):,} B, a device sent {sent[group]:,} B"
        yield exact("total_wire_bytes", said.get(group, 0), sent[group], f"{where}.{group}", told, formula)
    told = "other groups have what nobody sent"
    yield exact("total_wire_bytes", sum(sent.values()), said["all"], f"{where}.all", told)


def _on(training: Training, part: Part, stage: Stage) -> bool:
    return training.stage_of(part) == stage.number


def _sent(training: Training, parts: list[Part], *, with_parameters: bool = True) -> Counter[str]:
    """Bytes by group that these parts send in every microbatch, with what is exchanged for them alone."""
    ledger, names = training.ledger, {part.name for part in parts}
    found: Counter[str] = Counter()
    for part in parts:
        for direction in (FORWARD, RECOMPUTE, BACKWARD):
            for count in training.counts(part, direction):
                found[group_of(ledger.layout, count.event)] += count.counted.sent_bytes
    for one in training.exchanges if with_parameters else ():
        if one.unit in names and one.counted.group_size > 1 and not one.once:
            found[_group(ledger, one)] += one.counted.sent_bytes
    return found


def _sent_in_step(training: Training, stage: Stage) -> Counter[str]:
    """Bytes by group that a device of one stage sends in a step."""
    ledger = training.ledger
    each = _sent(training, [part for part in training.parts if _on(training, part, stage)])
    found = Counter({group: bytes_ * ledger.microbatches for group, bytes_ in each.items()})
    names = {part.name for part in training.parts}
    for one in _exchanged(training, stage):
        if one.once or one.unit not in names:
            found[_group(ledger, one)] += one.counted.sent_bytes * (1 if one.once else ledger.microbatches)
    return found


def _said_in_step(ledger: Ledger, stage: Stage) -> dict[str, int]:
    """What the rows of a stage add up to in a step, by group and all together."""
    found = dict.fromkeys((*GROUPS, "all"), 0)
    for row in [*_parted(ledger.rows)[0], *_rows_of(ledger, stage)]:
        sent = row.wire_bytes * ledger.times_in_step(row, stage)
        found[row.group] += sent
        found["all"] += sent
    return found


def _sum_text(scope: str, ledger: Ledger) -> str:
    layers = ledger.stage.layers
    return {
        "block": "one layer, forward and back",
        "stage": f"{layers} layers",
        "step": f"{ledger.microbatches} microbatches of embedding, {layers} layers and head, and what is reduced once",
    }[scope]


def check_published(training: Training) -> Iterator[Check]:
    """The collectives of one layer of each kind beside the counts that were published for its layout."""
    ledger = training.ledger
    for kind, name in ledger.programs.layers.names.items():
        first = next(part for part in training.parts if part.program == name)
        for direction, expected in per_layer(ledger.model, kind, ledger.parallel, ledger.work).items():
            ran = Counter(count.counted.kind for count in training.counts(first, direction))
            for op in sorted({*expected, *ran}):
                told = f"published are {expected[op]} in a layer, {ran[op]} ran"
                yield exact("collectives", expected[op], ran[op], f"{first.name}, {direction}: {op}", told)
