"""The ledger beside what ran: every row, what rows add up to, and how many collectives a layer may have at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from commcalc.accounting.ledger import RECOMPUTE, UPDATE, Ledger
from commcalc.accounting.pricing import price_ledger
from commcalc.accounting.rows import Row
from commcalc.algebra.notation import format_tensor
from commcalc.algebra.schedule import BACKWARD, FORWARD, Event
from commcalc.simulate.check import Check, exact
from commcalc.simulate.moves import Counted
from commcalc.simulate.predicted import Predicted, compared
from commcalc.simulate.published import per_layer
from commcalc.simulate.training import BLOCK, Training

SYNC = "gradient_sync"


class Ran(NamedTuple):
    """A collective that ran: for which operation, of which tensor, over which axes, in how wide elements."""

    op: str
    tensor: str
    axes: tuple[str, ...]
    bits: int
    counted: Counted


def check_rows(training: Training) -> Iterator[Check]:
    """Every row of the ledger beside what was counted, in the order in which they run; each row is looked at."""
    ledger = training.ledger
    order = [(part, FORWARD) for part in training.parts]
    order += [(part, direction) for part in reversed(training.parts) for direction in (RECOMPUTE, BACKWARD)]
    seen = {(part.program, direction) for part, direction in order}
    for part, direction in order:
        rows = [row for row in ledger.rows if (row.part, row.direction) == (part.program, direction)]
        ran = [_ran(training, count.event, count.counted) for count in training.counts(part, direction)]
        yield from _beside(rows, ran, part.name, ledger.sizes)
    updates = [row for row in ledger.rows if row.direction == UPDATE]
    bits = ledger.work.grad_dtype.bits
    synced = [Ran(SYNC, one.tensors, one.axes, bits, one.counted) for one in training.synced]
    order_of = {row.axes: at for at, row in enumerate(updates)}
    synced.sort(key=lambda one: order_of.get(one.axes, len(updates)))
    yield from _beside(updates, synced, UPDATE, ledger.sizes)
    lost = [row for row in ledger.rows if (row.part, row.direction) not in seen and row.direction != UPDATE]
    if lost:
        yield exact("rows", 0, len(lost), _row(lost[0]), "the ledger has rows of a pass that does not run")


def _ran(training: Training, event: Event, counted: Counted) -> Ran:
    tensor = format_tensor(event.tensor, event.step.before, training.ledger.layout.mesh)
    return Ran(event.label, tensor, event.step.axes, training.setting.bits[event.role], counted)


def _beside(rows: list[Row], ran: list[Ran], name: str, sizes: Mapping[str, int]) -> Iterator[Check]:
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
        said = (row.op, row.tensor, row.axes, row.dtype.bits, row.group_size)
        was = (one.op, one.tensor, one.axes, one.bits, one.counted.group_size)
        wrong = [f"{ours!r} is {theirs!r}" for ours, theirs in zip(said, was, strict=True) if ours != theirs]
        yield exact("row", 0, len(wrong), where, "; ".join(wrong))
        bill = Predicted(row.kind, row.group_size, row.payload, row.payload_bytes, row.wire_bytes, sizes)
        yield from compared(bill, one.counted, where)


def _row(row: Row) -> str:
    return f"{row.direction} {row.op}: {row.kind} of {row.tensor}"


def check_totals(training: Training) -> Iterator[Check]:
    """What a block, a stage and a step send, as the ledger adds it up, beside the sum of all that ran.

    One microbatch runs; a step has all of them, and what is reduced once.
    """
    ledger = training.ledger
    sent = {part.name: _sent(training, part.name, part.program) for part in training.parts}
    blocks = [bytes_ for part, bytes_ in sent.items() if part.startswith(BLOCK)]
    usual = next(part for part in training.parts if part.program == ledger.usual)
    once = sum(one.counted.sent_bytes for one in training.synced)
    ran = {"block": sent[usual.name], "stage": sum(blocks), "step": ledger.microbatches * sum(sent.values()) + once}
    totals = price_ledger(ledger, None).totals
    for scope, found in ran.items():
        said = totals[scope]["tp"].wire_bytes
        told = f"the ledger adds up to {said:,} B, a device sent {found:,} B"
        yield exact("total_wire_bytes", said, found, f"totals.{scope}.tp", told, _sum_text(scope, ledger))
        others = totals[scope]["all"].wire_bytes
        yield exact("total_wire_bytes", found, others, f"totals.{scope}.all", "other groups have what nobody sent")


def _sent(training: Training, name: str, program: str) -> int:
    part = next(part for part in training.parts if (part.name, part.program) == (name, program))
    directions = (FORWARD, RECOMPUTE, BACKWARD)
    return sum(count.counted.sent_bytes for direction in directions for count in training.counts(part, direction))


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
