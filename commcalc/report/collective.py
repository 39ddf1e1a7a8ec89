"""One collective priced every way, and primitives compared: documents and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from commcalc import __version__
from commcalc.accounting.links import evidence_record, explain_links, parts_of
from commcalc.catalog.hardware import Hardware, hardware_values
from commcalc.network.busbw import formula, ratio
from commcalc.network.hierarchy import Phase
from commcalc.network.link import Network
from commcalc.network.placement import Placement
from commcalc.network.primitive import Answer, Compared, Way
from commcalc.report.table import Column, Table
from commcalc.units import format_binary, format_bytes, format_rate, format_seconds

SCHEMA = "commcalc/collective/1"


class Said(NamedTuple):
    """What the numbers rest on: assumptions, warnings with their code, and where values came from."""

    assumptions: tuple[str, ...]
    warnings: tuple[tuple[str, str], ...]
    sources: dict[str, str]


def answer_document(answer: Answer, hardware: Hardware, said: Said, explain: bool) -> dict[str, object]:
    """The document of one collective."""
    over, under = ratio(answer.kind.value, answer.n)
    document: dict[str, object] = {
        "schema": SCHEMA,
        "version": __version__,
        "collective": answer.kind,
        "payload_bytes": answer.payload_bytes,
        "wire_bytes": answer.wire_bytes,
        "factor": over / under,
        "group_size": answer.n,
        "placement": placement_records(answer.placement, hardware.network),
        "algorithms": [way_record(way) for way in answer.offered],
        "not_offered": [way_record(way) for way in answer.others],
        "best": answer.best.name,
        "runner_up": answer.runner_up.name if answer.runner_up else None,
        "crossover_payload_bytes": answer.best.crossover_payload_bytes,
    }
    return document | _about(hardware, said) | ({"explain": explained(answer, hardware)} if explain else {})


def compared_document(
    found: Sequence[Compared], array_bytes: int, placement: Placement, hardware: Hardware, said: Said
) -> dict[str, object]:
    """The document of the primitives on one array."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "collective": None,
        "payload_bytes": array_bytes,
        "group_size": placement.size,
        "placement": placement_records(placement, hardware.network),
        "primitives": [compared_record(one) for one in found],
        "best": found[0].way.kind,
    } | _about(hardware, said)


def _about(hardware: Hardware, said: Said) -> dict[str, object]:
    return {
        "hardware": {"name": hardware.name, **hardware_values(hardware)},
        "assumptions": list(said.assumptions),
        "warnings": [{"code": code, "message": message} for code, message in said.warnings],
        "sources": said.sources,
    }


def placement_records(placement: Placement, network: Network) -> list[dict[str, object]]:
    """Which part of the group lies on which level, innermost first."""
    records = []
    for index, members in placement.parts:
        level = network.levels[index]
        record: dict[str, object] = {"level": level.name, "topology": level.topology, "members": members}
        if level.axes:
            record["axes"] = [
                {"members": span.members, "hop": span.hop, "closed": span.ring} for span in placement.spans_on(index)
            ]
        if placement.uneven:
            record |= {"uneven": True, "links_across": placement.channels}
        records.append(record)
    return records


def way_record(way: Way) -> dict[str, object]:
    """One algorithm with the fields of INTERFACE, and its parts."""
    cost = way.priced.cost
    return {
        "name": way.name,
        "steps": cost.steps,
        "egress_bytes": cost.egress_bytes,
        "busiest_link_bytes": cost.link_bytes,
        "time_s": way.time_s,
        "time_overlapped_s": way.overlapped_s,
        "latency_s": float(cost.counted[0]),
        "ramp_s": float(cost.ramp_s),
        "bandwidth_s": float(cost.counted[1]),
        "algbw_bytes_per_s": way.algbw,
        "busbw_bytes_per_s": way.busbw,
        "bound": cost.bound,
        **evidence_record(cost),
        "level": way.priced.level,
        "crossover_payload_bytes": way.crossover_payload_bytes,
        "phases": [
            {
                "level": phase.level,
                "collective": phase.kind,
                "group_size": phase.group_size,
                "payload_bytes": phase.payload_bytes,
                "time_s": float(phase.cost.time_s),
                "algorithm": phase.cost.algorithm,
            }
            for phase in way.priced.phases
        ],
    }


def compared_record(found: Compared) -> dict[str, object]:
    """One primitive: its best algorithm and the reason."""
    way = found.way
    return {"collective": way.kind, "payload_bytes": way.payload_bytes, **way_record(way), "reason": found.reason}


def _rate(rate: float | None) -> str:
    return "" if rate is None else format_rate(rate)


def answer_tables(answer: Answer, network: Network) -> list[Table]:
    """Where the group lies, then every algorithm, cheapest first."""
    columns = (
        Column("algorithm"),
        Column("steps", True),
        Column("egress bytes", True),
        Column("time", True),
        Column("algbw", True),
        Column("busbw", True),
        Column("bound"),
        Column("level"),
        Column("confidence"),
        Column("equal at", True),
    )

    def cells(way: Way) -> tuple[str, ...]:
        cost = way.priced.cost
        chosen = " (chosen)" if way.name is answer.best.name else ""
        return (
            f"  {way.name}{chosen}", str(cost.steps), format_bytes(cost.egress_bytes), format_seconds(way.time_s),
            _rate(way.algbw), _rate(way.busbw), cost.bound, _levels(way), cost.confidence,
            _equal(way),
        )  # fmt: skip

    rows: list[tuple[str, ...]] = [("offered by the level",), *(cells(way) for way in answer.offered)]
    for way in answer.offered:
        if way.name is answer.best.name:
            rows += [_phase_cells(phase) for phase in way.priced.phases]
    if answer.others:
        rows += [("could run there, not on offer",), *(cells(way) for way in answer.others)]
    where = "; ".join(f"{network.levels[index].name}: {members}" for index, members in answer.placement.parts) + (
        " in unequal parts" if answer.placement.uneven else ""
    )
    title = f"{answer.kind} over {answer.n} devices ({where})"
    return [Table(title, columns, tuple(rows))]


def _phase_cells(phase: Phase) -> tuple[str, ...]:
    cost = phase.cost
    return (
        f"    {phase.kind} by {cost.algorithm}", str(cost.steps), format_bytes(cost.egress_bytes),
        format_seconds(float(cost.time_s)), "", "", cost.bound, f"{phase.level}: {phase.group_size}",
        cost.confidence, "",
    )  # fmt: skip


def _levels(way: Way) -> str:
    return " + ".join(dict.fromkeys(phase.level for phase in way.priced.phases)) or way.priced.level


def _equal(way: Way) -> str:
    return "" if way.crossover_payload_bytes is None else format_binary(way.crossover_payload_bytes)


def compared_tables(found: Sequence[Compared], array_bytes: int, placement: Placement) -> list[Table]:
    """The primitives on one array, cheapest first."""
    columns = (
        Column("collective"),
        Column("payload bytes", True),
        Column("algorithm"),
        Column("egress bytes", True),
        Column("time", True),
        Column("bound"),
        Column("why"),
    )
    rows = tuple(
        (
            one.way.kind.value, format_bytes(one.way.payload_bytes), one.way.name.value,
            format_bytes(one.way.priced.cost.egress_bytes), format_seconds(one.way.time_s), one.way.priced.cost.bound,
            one.reason,
        )
        for one in found
    )  # fmt: skip
    title = f"An array of {format_bytes(array_bytes)} bytes over {placement.size} devices, cheapest first"
    return [Table(title, columns, rows)]


def heading(answer: Answer, hardware: Hardware, what: str) -> str:
    """What was asked, in two lines."""
    over, under = ratio(answer.kind.value, answer.n)
    exact = -(-answer.payload_bytes * over // under) == answer.wire_bytes  # the textbook drops (n-1)/n
    times = f" ({formula(answer.kind.value)} of it)" if exact and formula(answer.kind.value) != "1" else ""
    wire = f"{format_bytes(answer.wire_bytes)} B on a ring's wire{times}"
    size = f"{format_bytes(answer.payload_bytes)} B" + (
        f" = {format_binary(answer.payload_bytes)}" if answer.payload_bytes >= 1024 else ""
    )
    chosen = f"{answer.best.name}: {format_seconds(answer.best.time_s)}"
    if answer.runner_up is not None:
        chosen += f"; next {answer.runner_up.name}: {format_seconds(answer.runner_up.time_s)}"
    return f"{answer.kind} on {hardware.name}: payload {size}, {what}; {wire}\n{chosen}\n"


def explained(answer: Answer, hardware: Hardware) -> list[str]:
    """Each number with its formula and the values put into it."""
    over, under = ratio(answer.kind.value, answer.n)
    lines = explain_links(hardware.network.levels)
    payload, wire = format_bytes(answer.payload_bytes), format_bytes(answer.wire_bytes)
    if -(-answer.payload_bytes * over // under) == answer.wire_bytes:
        lines.append(f"wire = {formula(answer.kind.value)} * payload = {over}/{under} * {payload} = {wire} B")
    else:
        lines.append(f"wire = payload without (n-1)/n, as the textbook: {wire} B")
    for way in (*answer.offered, *answer.others):
        if way.priced.phases:
            lines.append(f"{way.name}: the phases one after another = {format_seconds(way.time_s)}")
            lines += [
                f"  {phase.kind} of {format_bytes(phase.payload_bytes)} B over {phase.group_size} on {phase.level}: "
                f"{parts_of(phase.cost)} = {format_seconds(float(phase.cost.time_s))} ({phase.cost.algorithm})"
                for phase in way.priced.phases
            ]
        else:
            lines.append(f"{way.name}: {parts_of(way.priced.cost)} = {format_seconds(way.time_s)}")
    return lines
