"""A collective as it was predicted, by a row of the ledger or the bill of a strategy, beside what was counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from commcalc.accounting.links import explain_wire
from commcalc.algebra.collective import Convention, Kind
from commcalc.algebra.size import Size
from commcalc.network.forms import form
from commcalc.simulate.check import Check, exact
from commcalc.simulate.moves import Counted


class Predicted(NamedTuple):
    """What a row or bill says of one call; ``sizes`` are those of the names in the payload's formula."""

    kind: Kind
    group_size: int
    payload: Size
    payload_bytes: int
    wire_bytes: int
    sizes: Mapping[str, int]


def compared(said: Predicted, counted: Counted, where: str) -> Iterator[Check]:
    """Payload, wire bytes and steps, all exact; the kind alone where another collective ran."""
    if said.kind is not counted.kind:
        yield Check("kind", 0, 1, False, where, f"a {counted.kind} ran")
        return
    n = said.group_size
    one = form(counted.algorithm, said.kind, n)
    if one is None:
        yield Check("steps", 0, counted.steps, False, where, f"{counted.algorithm} has no closed form of {said.kind}")
        return
    formula = f"{said.payload.text()} = {said.payload.with_values(said.sizes)}"
    told = "the buffer has another size"
    yield exact("payload_bytes", said.payload_bytes, counted.payload_bytes, where, told, formula)
    wire = explain_wire(said.kind, n, said.payload_bytes, said.wire_bytes, Convention.EXACT)
    yield exact("wire_bytes", said.wire_bytes, counted.sent_bytes, where, _miscounted(said, counted.sent_bytes), wire)
    took = f"{counted.algorithm} took another number of steps"
    yield exact("steps", int(one.steps), counted.steps, where, took, f"{counted.algorithm} over {n}")


def _miscounted(said: Predicted, sent: int) -> str:
    n = said.group_size
    told = f"predicted are {said.wire_bytes:,} B, a device sent {sent:,} B"
    if said.wire_bytes * (n - 1) == sent * n:
        return f"{told}: (n-1)/n is missing"
    if sent * (n - 1) == said.wire_bytes * n:
        return f"{told}: (n-1)/n is there twice"
    return told
