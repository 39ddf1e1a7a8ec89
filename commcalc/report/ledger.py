"""The ledger as a JSON document and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from commcalc import __version__
from commcalc.accounting.explain import counted, explain_row
from commcalc.accounting.ledger import Ledger
from commcalc.accounting.links import evidence_record
from commcalc.accounting.outlook import Outlook
from commcalc.accounting.pricing import Entry, PricedLedger
from commcalc.accounting.programs import PREDICTION
from commcalc.accounting.rows import GROUPS, Row
from commcalc.catalog.hardware import hardware_values
from commcalc.catalog.job import Job
from commcalc.network.hierarchy import Phase, Priced
from commcalc.report.step import outlook_documents, totals_record
from commcalc.report.table import Column, Table
from commcalc.transformer.spec import MADE_DIMS
from commcalc.transformer.work import Framework
from commcalc.units import format_binary, format_bytes, format_seconds

if TYPE_CHECKING:
    from commcalc.accounting.tensors import TensorLine

SCHEMA = "commcalc/ledger/1"
# Numbers that need not be whole: printed as such even where they are.
_RATIOS = ("capacity_factor", "imbalance", "efficiency", "hbm_efficiency")
_PASSES = ("forward", "recompute", "backward", "update")


def ledger_document(
    priced: PricedLedger,
    job: Job,
    outlook: Outlook,
    *,
    explain: bool = False,
    tensors: tuple[TensorLine, ...] | None = None,
    ranks: tuple[Mapping[str, object], ...] | None = None,
) -> dict[str, object]:
    """The document of ``commcalc ledger --json``."""
    ledger = priced.ledger
    document: dict[str, object] = {
        "schema": SCHEMA,
        "version": __version__,
        "inputs": inputs_document(job, priced),
        "assumptions": list(priced.assumptions),
        "warnings": [{"code": warning.code, "message": warning.message} for warning in priced.warnings],
        "rows": [
            row_record(entry, ledger.times_in_step(entry.row), priced)
            | ({"explain": explain_row(entry, priced)} if explain else {})
            for entry in priced.entries
        ],
        "totals": {scope: totals_record(groups) for scope, groups in priced.totals.items()} | _by_kind(priced),
        **outlook_documents(outlook),
    }
    if tensors is not None:
        document["tensors"] = [line.record() for line in tensors]
    if ranks is not None:
        document["ranks"] = [dict(record) for record in ranks]
    return document


def _by_kind(priced: PricedLedger) -> dict[str, object]:
    """The block by kind, where a model's layers differ."""
    if len(priced.blocks) == 1:
        return {}
    return {"blocks": {name: totals_record(groups) for name, groups in priced.blocks.items()}}


def inputs_document(job: Job, priced: PricedLedger) -> dict[str, object]:
    """The resolved inputs, the sizes behind the formulas, and where each value came from."""
    ledger = priced.ledger
    used = {name for row in ledger.rows for product in row.payload.products for name in product.dims}
    named = ledger.sizes.keys() - (MADE_DIMS.keys() - {"QKV"} - used)
    whose = ledger.parallel.framework or (None if ledger.parallel.layout.own else Framework.MEGATRON)
    parallel = spec_values(ledger.parallel) | {"order": "-".join(ledger.parallel.order), "framework": whose}
    return {
        "model": ledger.model.described(),
        "hardware": {} if job.hardware is None else {"name": job.hardware.name, **hardware_values(job.hardware)},
        "parallelism": parallel,
        "workload": spec_values(ledger.work) | {"microbatches": ledger.microbatches},
        "memory": spec_values(job.states),
        "step": spec_values(job.clock),
        "links": {
            "algorithm": job.algorithm,
            "convention": job.convention,
            "call_latency_s": job.hardware.network.call_latency_s if job.hardware else None,
        },
        "sizes": {name: size for name, size in ledger.sizes.items() if name not in GROUPS and name in named},
        "stages": [
            {"layers": stage.layers, "blocks": {name: stage.own[name] for name in ledger.programs.blocks}}
            | ({"mirror": len(ledger.stages) - 1 - stage.number} if stage.ends > 1 else {})
            for stage in ledger.stages
        ],
        "pipeline": _pipeline(ledger),
        "busiest_stage": ledger.stage.number,
        "sources": dict(job.sources),
    }


def _pipeline(ledger: Ledger) -> dict[str, object] | None:
    """The schedule and its bubble, where there are stages."""
    if ledger.parallel.pp == 1:
        return None
    from commcalc.accounting.pipeline import bubble

    idle = bubble(ledger.parallel, ledger.microbatches, training=ledger.work.phase.training)
    return {"schedule": ledger.parallel.schedule, "bubble_fraction": float(idle)}


def spec_values(spec: Any) -> dict[str, object]:
    """The fields of a part of the question, as JSON has them."""
    return {
        key: float(value) if key in _RATIOS and value is not None else value for key, value in spec._asdict().items()
    }


def row_record(entry: Entry, times: int, ledger: PricedLedger) -> dict[str, object]:
    """One row with the fields of INTERFACE; times are null where no network was given.

    ``times`` is how often it happens in a step of the busiest stage; shares are of what that sends, and of how long it
    communicates.
    """
    row, priced = entry.row, entry.priced
    step = ledger.totals["step"]["all"]
    cost = priced.cost if priced else None
    return {
        "pass": row.direction,
        "part": row.part,
        "sublayer": row.sublayer,
        "op": row.op,
        "collective": row.kind,
        "group": row.group,
        "group_size": row.group_size,
        "tensor": row.tensor,
        "dtype": row.dtype,
        "payload_bytes": row.payload_bytes,
        "wire_bytes": row.wire_bytes,
        "egress_bytes": entry.egress_bytes,
        "count": row.calls,
        "per": row.per,
        "count_in_step": times,
        "wire_share": row.wire_bytes * times / step.wire_bytes if step.wire_bytes else 0.0,
        "time_share": entry.time_s * times / step.time_s if step.time_s else None,
        "algorithm": cost.algorithm if cost else None,
        "level": priced.level if priced else None,
        "phases": [_phase(phase) for phase in priced.phases] if priced else [],
        "time_s": cost.time_s if cost else None,
        "latency_s": cost.counted[0] if cost else None,
        "ramp_s": float(cost.ramp_s) if cost else None,
        "bandwidth_s": cost.counted[1] if cost else None,
        "bound": entry.bound,
        **evidence_record(cost),
        "crossover_payload_bytes": entry.crossover_payload_bytes,
        "formula": row.payload.text(),
        "note": row.note or None,
        "runner_up": _runner_up(priced),
    }


def _runner_up(priced: Priced | None) -> dict[str, object] | None:
    """The second fastest algorithm where there was a choice."""
    if priced is None or priced.runner_up is None:
        return None
    return {"algorithm": priced.runner_up.algorithm, "time_s": priced.runner_up.time_s}


def _phase(phase: Phase) -> dict[str, object]:
    return {
        "level": phase.level,
        "collective": phase.kind,
        "group_size": phase.group_size,
        "payload_bytes": phase.payload_bytes,
        "time_s": phase.cost.time_s,
        "algorithm": phase.cost.algorithm,
    }


def ledger_tables(priced: PricedLedger) -> list[Table]:
    """Rows by sublayer, then the totals."""
    return [_rows_table(priced), _totals_table(priced)]


def heading(priced: PricedLedger, job: Job) -> str:
    """What was asked, in one or two lines."""
    ledger = priced.ledger
    work, parallel = ledger.work, ledger.parallel
    degrees = [f"{axis} {getattr(parallel, axis)}" for axis in parallel.order if getattr(parallel, axis) > 1]
    degrees += [f"etp {parallel.expert_tp}"] if parallel.moves_tokens else []
    degrees += [f"zero {parallel.zero}"] if parallel.zero else []
    whose = f" as {parallel.framework}" if parallel.framework else ""
    machine = job.hardware.name if job.hardware else "no hardware (bytes only)"
    return (
        f"{ledger.model.name} on {machine}: {work.phase}{whose}, {parallel.layout}, "
        f"{', '.join(degrees) or 'one device'}\n"
        f"microbatch {work.micro_batch_size} x {work.tokens_per_sequence} tokens, {work.dtype}; "
        f"{counted(ledger.microbatches, 'microbatch')} a step\n"
    )


def _rows_table(priced: PricedLedger) -> Table:
    timed = any(entry.priced for entry in priced.entries)
    columns = [
        Column("pass, operation"),
        Column("collective"),
        Column("group"),
        Column("payload bytes", True),
        Column("wire bytes", True),
        Column("calls per", True),
        Column("of step", True),
    ]
    if timed:
        columns += [Column("time", True), Column("bound"), Column("algorithm"), Column("level")]
    sure = any(entry.priced and entry.priced.cost.evidence for entry in priced.entries)
    columns += [Column("confidence")] if sure else []
    rows: list[tuple[str, ...]] = []
    order: list[tuple[str, tuple[str, tuple[tuple[str, ...], ...]]]] = []
    # Kinds of block that have the same rows in a sublayer share them.
    sections: dict[tuple[str, tuple[tuple[str, ...], ...]], list[str]] = {}
    for part, sublayer in priced.ledger.sections:
        mine = [entry for entry in priced.entries if (entry.row.part, entry.row.sublayer) == (part, sublayer)]
        mine.sort(key=lambda entry: _PASSES.index(entry.row.direction))
        cells = tuple(_cells(entry, priced, timed, sure) for entry in mine)
        alike = (sublayer if part in priced.blocks else f"{part} {sublayer}", cells)
        sections.setdefault(alike, []).append(part)
        if len(sections[alike]) == 1:
            order.append((sublayer, alike))
    title = ""
    for sublayer, alike in order:
        before, title = title, _section(priced, sections[alike], sublayer)
        rows += [*([] if title == before else [(title,)]), *alike[1]]
    if not rows:
        rows.append(("no communication",))
    return Table("One call of each collective", tuple(columns), tuple(rows))


def _section(priced: PricedLedger, parts: Sequence[str], sublayer: str) -> str:
    """A sublayer by its name; where blocks differ, with the kinds of block and how many the stage has."""
    if PREDICTION in parts and sublayer != PREDICTION:
        return f"{sublayer} of prediction layers"
    if len(priced.blocks) == 1 or parts[0] not in priced.blocks:
        return sublayer
    times = priced.ledger.stage.times
    return f"{sublayer} of {' and '.join(f'{times[part]} {part}' for part in parts)} blocks"


def _cells(entry: Entry, priced: PricedLedger, timed: bool, sure: bool) -> tuple[str, ...]:
    row = entry.row
    record = row_record(entry, priced.ledger.times_in_step(row), priced)
    share = float(str(record["time_share"] if record["time_share"] is not None else record["wire_share"]))
    cells = [
        f"  {row.direction} {row.op}" + (" (re-gather)" if _is_regather(row) else ""),
        row.kind.value,
        f"{row.group} {row.group_size}",
        format_bytes(row.payload_bytes),
        format_bytes(row.wire_bytes),
        f"{row.calls} {row.per}",
        f"{100 * share:.1f} %",
    ]
    if timed and entry.priced is not None:
        cost = entry.priced.cost
        cells += [format_seconds(cost.time_s), entry.bound or "", cost.algorithm.value, entry.priced.level]
        cells += [cost.confidence] if sure else []
    return tuple(cells)


def _is_regather(row: Row) -> bool:
    return row.direction == "backward" and row.note.startswith("re-gather")


def _totals_table(priced: PricedLedger) -> Table:
    ledger = priced.ledger
    columns = (
        Column("in one"),
        Column("group"),
        Column("calls", True),
        Column("payload bytes", True),
        Column("wire bytes", True),
        Column("wire", True),
        Column("time", True),
    )
    usual = "block" if len(priced.blocks) == 1 else f"{ledger.usual} block"
    what = {"block": usual, "stage": f"stage of {counted(ledger.stage.layers, 'block')}", "step": "step of a device"}
    rows = []
    others = {name: groups for name, groups in priced.blocks.items() if name != ledger.usual}
    what |= {name: f"{name} block" for name in others}
    scopes = {"block": priced.totals["block"]} | others | priced.totals
    for scope, groups in scopes.items():
        shown = [group for group in groups if group != "all" and groups[group].calls] or ["all"]
        if len(shown) > 1:
            shown.append("all")
        for group in shown:
            total = groups[group]
            rows.append(
                (
                    what[scope],
                    group,
                    format_bytes(total.calls),
                    format_bytes(total.payload_bytes),
                    format_bytes(total.wire_bytes),
                    format_binary(total.wire_bytes),
                    "" if total.time_s is None else format_seconds(total.time_s),
                )
            )
    return Table("Totals", columns, tuple(rows))


def tensors_table(lines: tuple[TensorLine, ...]) -> Table:
    """Every tensor with its sharding and shapes."""
    columns = (
        Column("pass, tensor"),
        Column("held"),
        Column("split"),
        Column("global shape"),
        Column("local shape"),
        Column("local bytes", True),
        Column("dtype"),
    )
    rows: list[tuple[str, ...]] = []
    part = ""
    for line in lines:
        if line.part != part:
            part = line.part
            rows.append((part,))
        rows.append(
            (
                f"  {line.direction} {line.tensor}",
                line.state,
                line.split or "",
                _shape(line.global_shape),
                _shape(line.local_shape),
                format_bytes(line.local_bytes),
                line.dtype.value,
            )
        )
    heads = {line.tensor.partition("[")[0]: line.local_heads for line in lines if line.local_heads is not None}
    parts = {line.part for line in lines if line.local_heads is not None}
    local = (
        f" ({heads['Q']} query heads, {heads['K']} KV heads)" if {"Q", "K"} <= heads.keys() and len(parts) == 1 else ""
    )
    return Table(f"Tensors as one device holds them{local}", columns, tuple(rows))


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(str(size) for size in shape) + "]"
