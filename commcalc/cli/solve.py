"""``commcalc solve``: the degree, batch or bandwidth at which something is just so, found by pricing."""

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from commcalc.accounting import solve as solver
from commcalc.accounting.choices import Combine
from commcalc.accounting.ledger import build
from commcalc.accounting.pricing import priced_alone
from commcalc.accounting.rows import GROUPS
from commcalc.accounting.step import Machine
from commcalc.catalog.assign import Assignment
from commcalc.catalog.job import Job, Request, resolve_job
from commcalc.catalog.sections import STEP
from commcalc.cli import options as o
from commcalc.cli.output import Format, colour_of_terminal, say, warn, width_of_terminal, write
from commcalc.errors import NO_LEGAL_ANSWER, CommcalcError, SpecError, UnknownName, UsageError, raise_all
from commcalc.ranges import parse_range
from commcalc.report import solve as report
from commcalc.report.ledger import spec_values
from commcalc.transformer.spec import Phase
from commcalc.units import parse_seconds

EXAMPLES = """\b
Examples:
  commcalc solve tp --model llama-3-70b --hardware h100 --sp --seq 8K
  commcalc solve batch --model llama-3-8b --hardware h100 --dp 64 --zero 3
  commcalc solve mix --model llama-3-8b --hardware h100 --devices 64 --zero 3
  commcalc solve tp --model llama-3-70b --hardware h100 --phase decode --json
  commcalc solve bandwidth --model llama-2-70b --tp 2 --seq 2K --time 13.3s
"""
MOST_ASKED, MOST_BYTES_PER_S = 1000, 1e18


class What(StrEnum):
    """What is looked for."""

    TP = "tp"
    BATCH = "batch"
    MIX = "mix"
    BANDWIDTH = "bandwidth"


_LOOKED_FOR = "is what is looked for"
_MIX = "is for solve mix"


class Scope(StrEnum):
    """Which total a measured time is of."""

    BLOCK = "block"
    STAGE = "stage"
    STEP = "step"


@o.with_examples(EXAMPLES)
def solve(
    ctx: typer.Context,
    what: Annotated[str, typer.Argument(metavar="WHAT", help="tp, batch, mix or bandwidth.", show_default=False)],
    job: Annotated[
        o.Text, typer.Argument(metavar="[JOB]", help="Job preset, YAML file, or - for stdin.", show_default=False)
    ] = None,
    model: o.Model = None,
    hardware: o.Hardware = None,
    tp_list: Annotated[
        o.Text, typer.Option("--tp", metavar="N|LIST", help="The degree; for tp those to try.", show_default=False)
    ] = None,
    sp: o.Sp = None,
    cp: o.Cp = None,
    ep: o.Ep = None,
    pp: o.Pp = None,
    dp: o.Dp = None,
    devices: o.Devices = None,
    zero: o.Zero = None,
    layout: o.Layout = None,
    framework: o.Framework = None,
    order: o.Order = None,
    kv: o.Kv = None,
    seq: o.Seq = None,
    micro_batch: o.MicroBatch = None,
    global_batch: o.GlobalBatch = None,
    dtype: o.DtypeOption = None,
    grad_dtype: o.GradDtype = None,
    phase: o.Phase = None,
    recompute: o.Recompute = None,
    regather: o.Regather = None,
    reshard: o.Reshard = None,
    bandwidth: o.Bandwidth = None,
    latency: o.Latency = None,
    call_latency: o.CallLatency = None,
    algorithm: o.AlgorithmOption = None,
    convention: o.ConventionOption = None,
    efficiency: o.Efficiency = None,
    hbm_efficiency: o.HbmEfficiency = None,
    combine: o.CombineOption = None,
    scores: o.ScoresOption = None,
    sublayer: Annotated[
        o.Text,
        typer.Option("--sublayer", metavar="LIST", help="Look at some sublayers alone, like mlp.", show_default=False),
    ] = None,
    passes: Annotated[
        o.Text, typer.Option("--pass", metavar="WHICH", help="forward, backward or all [all].", show_default=False)
    ] = None,
    time: Annotated[
        o.Text, typer.Option("--time", metavar="TIME", help="Measured time, for bandwidth.", show_default=False)
    ] = None,
    scope: Annotated[
        o.Text,
        typer.Option("--scope", metavar="SCOPE", help="What took it: block, stage or step [step].", show_default=False),
    ] = None,
    group: Annotated[
        o.Text, typer.Option("--group", metavar="GROUP", help="Whose communication took it [all].", show_default=False)
    ] = None,
    set_: o.Set = None,
    format_: o.FormatOption = None,
    json_: o.Json = False,
    output: o.OutputOption = None,
    no_color: o.NoColor = False,
) -> None:
    """Limits found by pricing: the largest TP, the smallest batch, the best mix.

    tp: the largest degree at which a step is bound by compute. batch: the smallest micro-batch at which it is.
    mix: how to deal devices out to dp and tp so that it is from the fewest tokens. bandwidth: what a measured time
    of communication implies. The exit status is 3 where there is no answer.
    """
    style = o.format_from(ctx.params)
    asked = _one_of(What, what, "question")
    request = _request(ctx.params, asked, tp_list)
    _belongs(asked, ctx.params, request)
    found = resolve_job(request)
    if asked is What.BANDWIDTH:
        _bandwidth(found, ctx.params, style)
        return
    question = _question(found, ctx.params)
    points, best = _solved(asked, question, found, tp_list)
    records = [report.point_record(point, found.work) for point in points]
    shown = report.points_table(points, found.work, any_batch=asked is not What.TP)
    answer = None if best is None else report.point_record(best, found.work)
    told, said = _told(asked, best, points, question), _said(question)
    warn(found.warnings)
    _print(
        style, report.document(asked, answer, records, _inputs(found, question), said), records,
        [shown], [told, *said], no_color=no_color,
    )  # fmt: skip
    if best is None:
        say(f"error: {told}")
        raise typer.Exit(NO_LEGAL_ANSWER)


def _one_of(kind: type[StrEnum], given: str, where: str) -> Any:
    if given not in kind.__members__.values():
        raise UnknownName(where.strip("-").lower(), given, [*kind], where=f"{where} {given[:60]}")
    return kind(given)


def _request(params: Mapping[str, Any], what: What, tp_list: str | None) -> Request:
    request = o.request_from(params)
    if tp_list is None or what is What.TP:
        return request
    return request._replace(
        assignments=[*request.assignments, Assignment("parallelism.tp", tp_list, f"--tp {tp_list[:60]}")]
    )


# What a question looks for, or does not ask about, by the path of the value.
_FOREIGN: Mapping[What, Mapping[str, str]] = {
    What.TP: {"parallelism.tp": "is what is looked for: --tp LIST names those to try", "parallelism.devices": _MIX},
    What.BATCH: {"workload.micro_batch_size": _LOOKED_FOR},
    What.MIX: {
        "parallelism.tp": _LOOKED_FOR, "parallelism.dp": _LOOKED_FOR, "workload.micro_batch_size": _LOOKED_FOR,
    },
    What.BANDWIDTH: {},
}  # fmt: skip


def _belongs(what: What, params: Mapping[str, Any], request: Request) -> None:
    """Options that a question has no use for are told, not dropped."""
    problems: list[CommcalcError] = []
    alone = {"time": "--time", "scope": "--scope", "group": "--group"}
    for name, option in (alone if what is not What.BANDWIDTH else {"passes": "--pass"}).items():
        if params.get(name) is not None:
            of = "solve bandwidth" if what is not What.BANDWIDTH else "solve tp, batch and mix"
            problems.append(UsageError(f"{option} is for {of}", where=option, hint="leave it out"))
    foreign = dict(_FOREIGN[what])
    if what is not What.BANDWIDTH:
        foreign |= dict.fromkeys(("step.overlap", "step.train_tokens"), "is not asked about: all groups may overlap")
    else:
        foreign |= {f"step.{key}": "is of compute, which is not asked about" for key in STEP}
    for one in request.assignments:
        if one.path in foreign:
            problems.append(UsageError(f"{one.path} {foreign[one.path]}", where=one.origin, hint="leave it out"))
    raise_all(problems)


def _question(job: Job, params: Mapping[str, Any]) -> solver.Question:
    hardware, dtype = job.hardware, job.work.dtype
    if hardware is None:
        raise UsageError("nothing to price on", where="the command line", hint="--hardware NAME")
    if dtype not in job.chip.flops:
        known = ", ".join(job.chip.flops) or "none"
        hint = f"--set hardware.chip.flops.{dtype}='900 TFLOP/s', or another --dtype"
        raise SpecError(
            f"{hardware.name} gives no FLOP/s in {dtype}; it gives {known}", where="hardware.chip.flops", hint=hint
        )
    if job.work.phase is Phase.DECODE and job.chip.hbm_bytes_per_s is None:
        message = f"{hardware.name} gives no bandwidth of its memory, which decoding waits for"
        raise SpecError(message, where="hardware.chip.hbm", hint="--set hardware.chip.hbm.bandwidth='3.35 TB/s'")
    passes, asked = params.get("passes"), solver.Pass.ALL
    if passes is not None:
        asked = _one_of(solver.Pass, passes, "--pass")
    if asked is solver.Pass.BACKWARD and not job.work.phase.training:
        message = f"{job.work.phase} has no backward pass"
        raise UsageError(message, where="--pass backward", hint="--pass forward, or --phase train")
    return solver.Question(
        job.model, job.parallel, job.work, job.convention, Machine(job.chip, hardware.network, job.algorithm),
        job.states, job.clock, _sublayers(params), asked, max(job.work.microbatches(job.parallel.dp), 1),
    )  # fmt: skip


def _sublayers(params: Mapping[str, Any]) -> tuple[str, ...]:
    given = params.get("sublayer")
    if given is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",")))
    if not all(names):
        raise UsageError("a sublayer without a name", where=f"--sublayer {given[:60]}", hint="--sublayer mlp")
    return names


def _solved(
    what: What, question: solver.Question, job: Job, tp_list: str | None
) -> tuple[list[solver.Point], solver.Point | None]:
    """The candidates and the best of them."""
    if what is What.TP:
        points = solver.degrees(question, _asked(tp_list))
        return points, solver.largest(points, job.states)
    if what is What.BATCH:
        point = solver.smallest_batch(question, job.parallel)
        return [point], next(iter(solver.answers([point], job.states)), None)
    if job.parallel.devices is None:
        raise UsageError("how many devices there are is not said", where="solve mix", hint="--devices N")
    points = list(solver.mixes(question, job.parallel.devices))
    return points, solver.best_mix(points, job.work, job.states)


def _asked(tp_list: str | None) -> list[int] | None:
    if tp_list is None:
        return None
    try:
        found = parse_range(tp_list)
    except CommcalcError as problem:
        problem.where = f"--tp {tp_list[:60]}"
        raise
    if len(found) > MOST_ASKED:
        raise UsageError(f"{len(found)} degrees; at most {MOST_ASKED} are priced at once", where="--tp")
    return found


def _told(what: What, best: solver.Point | None, points: Sequence[solver.Point], question: solver.Question) -> str:
    if best is None:
        reasons = {point.reason for point in points}
        if None not in reasons:
            return f"nothing of this is legal: {'; '.join(sorted(str(reason) for reason in reasons)[:3])}"
        if any(point.compute_bound for point in points):
            return "what is bound by compute does not fit"
        return {
            What.TP: "no legal degree is bound by compute",
            What.BATCH: "no batch is bound by compute: communication grows with it as compute does",
            What.MIX: "no split of the devices is bound by compute, whatever the batch",
        }[what]
    tokens = f"{best.tokens_per_device(question.work):,.6g} tokens on a device"
    if what is What.TP:
        between = [
            str(point.parallel.tp)
            for point in points
            if point.legal and not point.compute_bound and point.parallel.tp < best.parallel.tp
        ]
        gaps = f", but not at {', '.join(between)}" if between else ""
        return f"bound by compute up to tp {best.parallel.tp}{gaps}"
    if what is What.BATCH:
        return f"bound by compute from micro-batch {best.micro_batch:,} on: {tokens}"
    return f"bound by compute from {tokens} on: dp {best.parallel.dp} x tp {best.parallel.tp}"


def _said(question: solver.Question) -> list[str]:
    clock = question.clock
    how = "added" if clock.combine is Combine.ADDED else "the larger counts"
    which = {solver.Pass.ALL: "forward and backward", solver.Pass.FORWARD: "forward", solver.Pass.BACKWARD: "backward"}
    said = [
        f"bound by compute: communication takes no longer than compute, {which[question.passes]}; "
        f"times of groups are {how}",
        f"compute at {float(clock.efficiency):g} of peak, over all pairs of tokens"
        if clock.scores == "full"
        else f"compute at {float(clock.efficiency):g} of peak, over the pairs that a causal mask leaves",
    ]
    return said + ([f"sublayers: {', '.join(question.sublayers)} alone"] if question.sublayers else [])


def _inputs(job: Job, question: solver.Question | None = None) -> dict[str, object]:
    """What it was asked of; of a question of limits all but what is looked for."""
    found: dict[str, object] = {
        "model": job.model.name,
        "hardware": job.hardware.name if job.hardware else None,
        "parallelism": spec_values(job.parallel) | {"order": "-".join(job.parallel.order)},
        "workload": spec_values(job.work),
        "links": {"algorithm": job.algorithm, "convention": job.convention},
    }
    if question is not None:
        found |= {
            "step": spec_values(job.clock),
            "sublayers": list(question.sublayers),
            "pass": question.passes,
            "microbatches": question.microbatches,
        }
    return found


def _bandwidth(job: Job, params: Mapping[str, Any], style: Format) -> None:
    given = params.get("time")
    if given is None:
        raise UsageError("how long it took is not said", where="solve bandwidth", hint="--time 4.43s")
    try:
        seconds = parse_seconds(given)
    except CommcalcError as problem:
        problem.where = f"--time {given[:60]}"
        raise
    if seconds <= 0:
        raise UsageError("a time above zero is needed", where=f"--time {given[:60]}")
    scope = _one_of(Scope, params.get("scope") or "step", "--scope")
    group = params.get("group") or "all"
    if group not in (*GROUPS, "all"):
        raise UnknownName("group", group, [*GROUPS, "all"], where=f"--group {group[:60]}")
    sublayers = _sublayers(params)
    priced = priced_alone(build(job.model, job.parallel, job.work, job.convention, sublayers=sublayers), None)
    total = priced.totals[scope].get(group)
    if total is None or not total.wire_bytes:
        message = f"{group} moves nothing in a {scope}, so no bandwidth follows"
        raise UsageError(message, where="solve bandwidth", hint="a degree above 1")
    rate = total.wire_bytes / seconds
    if not 1 <= rate <= MOST_BYTES_PER_S:
        message = f"{total.wire_bytes:,} B in that time is no rate of a link: below 1 B/s or above 10^18 B/s"
        raise UsageError(message, where=f"--time {given[:60]}", hint="--time 4.43s")
    record: dict[str, object] = {
        "scope": scope,
        "group": group,
        "calls": total.calls,
        "payload_bytes": total.payload_bytes,
        "wire_bytes": total.wire_bytes,
        "time_s": seconds,
        "bandwidth_bytes_per_s": rate,
    }
    said = ["wire bytes of a ring over the time: what one device sends, one direction, latency and waiting included"]
    warn([*job.warnings, *priced.warnings])
    _print(
        style, report.document(What.BANDWIDTH, record, [], _inputs(job), said), [record],
        [report.bandwidth_table(record)], said, no_color=bool(params.get("no_color")),
    )  # fmt: skip


def _print(
    style: Format,
    document: Mapping[str, object],
    records: Sequence[dict[str, object]],
    tables: Sequence[Any],
    said: Sequence[str],
    *,
    no_color: bool,
) -> None:
    from commcalc.report import json as as_json
    from commcalc.report import table

    tail = "".join(f"- {line}\n" for line in said)
    if style is Format.JSON:
        write(as_json.render_json(document))
    elif style is Format.JSONL:
        write(as_json.render_jsonl(records))
    elif style is Format.CSV:
        write(table.render_csv(records))
    elif style is Format.MARKDOWN:
        write(f"{table.render_markdown(tables)}\n{tail}")
    else:
        terminal = table.Terminal(width_of_terminal(os.environ), colour_of_terminal(os.environ, no_color))
        write(f"{table.render(tables, terminal)}\n{table.folded(tail, terminal.width)}")
