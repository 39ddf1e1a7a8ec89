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
from commcalc.catalog.job import Job, resolve_job
from commcalc.cli import options as o
from commcalc.cli.output import Format, colour_of_terminal, say, warn, width_of_terminal, write
from commcalc.errors import NO_LEGAL_ANSWER, CommcalcError, SpecError, UnknownName, UsageError
from commcalc.ranges import parse_range
from commcalc.report import solve as report
from commcalc.transformer.spec import Phase
from commcalc.units import parse_seconds

EXAMPLES = """\b
Examples:
  commcalc solve tp --model llama-3-70b --hardware h100 --sp --seq 8K
  commcalc solve batch --model llama-3-8b --hardware h100 --dp 64 --zero 3
  commcalc solve mix --model llama-3-70b --hardware tpu-v5p --devices 256 --zero 3
  commcalc solve tp --model llama-3-70b --hardware h100 --phase decode --json
  commcalc solve bandwidth --model llama-3-70b --tp 2 --phase prefill --time 4.43s
"""
MOST_ASKED = 1000


class What(StrEnum):
    """What is looked for."""

    TP = "tp"
    BATCH = "batch"
    MIX = "mix"
    BANDWIDTH = "bandwidth"


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
    no_color: o.NoColor = False,
) -> None:
    """Limits found by pricing: the largest TP, the smallest batch, the best mix.

    tp: the largest degree at which a step is bound by compute. batch: the smallest micro-batch at which it is.
    mix: how to deal devices out to dp and tp so that it is from the fewest tokens. bandwidth: what a measured time
    of communication implies. The exit status is 3 where there is no answer.
    """
    style = o.format_from(ctx.params)
    asked = _one_of(What, what, "WHAT")
    found = resolve_job(_request(ctx.params, asked, tp_list))
    _belongs(asked, ctx.params)
    if asked is What.BANDWIDTH:
        _bandwidth(found, ctx.params, style)
        return
    question = _question(found, ctx.params)
    points, best = _solved(asked, question, found, tp_list)
    records = [report.point_record(point, found.work) for point in points]
    shown = report.points_table(points, found.work, any_batch=asked is not What.TP)
    answer = None if best is None else report.point_record(best, found.work)
    said = _said(question)
    warn(found.warnings)
    _print(
        style, report.document(asked, answer, records, _inputs(found), said), records,
        [shown], [_told(asked, best, found), *said], no_color=no_color,
    )  # fmt: skip
    if best is None:
        say(f"error: {_told(asked, best, found)}")
        raise typer.Exit(NO_LEGAL_ANSWER)


def _one_of(kind: type[StrEnum], given: str, where: str) -> Any:
    if given not in kind.__members__.values():
        raise UnknownName(where.strip("-").lower(), given, [*kind], where=f"{where} {given[:60]}")
    return kind(given)


def _request(params: Mapping[str, Any], what: What, tp_list: str | None) -> Any:
    request = o.request_from(params)
    if tp_list is None or what is What.TP:
        return request
    return request._replace(
        assignments=[*request.assignments, Assignment("parallelism.tp", tp_list, f"--tp {tp_list[:60]}")]
    )


def _belongs(what: What, params: Mapping[str, Any]) -> None:
    """Options that a question has no use for are told, not dropped."""
    others = {"time": "--time", "scope": "--scope", "group": "--group"}
    for name, option in others.items():
        if what is not What.BANDWIDTH and params.get(name) is not None:
            message = f"{option} is for solve bandwidth"
            raise UsageError(message, where=option, hint=f"commcalc solve bandwidth {option} ...")
    if what is What.BATCH and params.get("micro_batch") is not None:
        raise UsageError("the micro-batch is what is looked for", where="--micro-batch", hint="leave it out")
    if what is What.MIX:
        for name in ("tp_list", "dp", "micro_batch"):
            if params.get(name) is not None:
                option = {"tp_list": "--tp", "dp": "--dp", "micro_batch": "--micro-batch"}[name]
                raise UsageError(f"{option} is what is looked for", where=option, hint="--devices N")


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
    sublayer, passes = params.get("sublayer"), params.get("passes")
    return solver.Question(
        job.model, job.parallel, job.work, job.convention, Machine(job.chip, hardware.network, job.algorithm),
        job.states, job.clock, tuple(name.strip() for name in sublayer.split(",")) if sublayer else (),
        _one_of(solver.Pass, passes, "--pass") if passes else solver.Pass.ALL,
    )  # fmt: skip


def _solved(
    what: What, question: solver.Question, job: Job, tp_list: str | None
) -> tuple[list[solver.Point], solver.Point | None]:
    """The candidates and the best of them."""
    if what is What.TP:
        points = solver.degrees(question, _asked(tp_list))
        return points, solver.largest(points)
    if what is What.BATCH:
        point = solver.smallest_batch(question, job.parallel)
        return [point], point if point.compute_bound else None
    if job.parallel.devices is None:
        raise UsageError("how many devices there are is not said", where="solve mix", hint="--devices N")
    points = list(solver.mixes(question, job.parallel.devices))
    return points, solver.best_mix(points, job.work)


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


def _told(what: What, best: solver.Point | None, job: Job) -> str:
    if best is None:
        return {
            What.TP: "no legal degree is bound by compute",
            What.BATCH: "no batch is bound by compute: communication grows with it as compute does, or it is not legal",
            What.MIX: "no split of the devices is bound by compute, whatever the batch",
        }[what]
    tokens = f"{best.tokens_per_device(job.work):,.6g} tokens on a device"
    if what is What.TP:
        return f"bound by compute up to tp {best.parallel.tp}"
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


def _inputs(job: Job) -> dict[str, object]:
    return {
        "model": job.model.name,
        "hardware": job.hardware.name if job.hardware else None,
        "phase": job.work.phase,
        "sequence_length": job.work.sequence_length,
        "dtype": job.work.dtype,
    }


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
    priced = priced_alone(build(job.model, job.parallel, job.work, job.convention), None)
    total = priced.totals[scope].get(group)
    if total is None or not total.wire_bytes:
        message = f"{group} moves nothing in a {scope}, so no bandwidth follows"
        raise UsageError(message, where="solve bandwidth", hint="a degree above 1")
    record: dict[str, object] = {
        "scope": scope,
        "group": group,
        "calls": total.calls,
        "payload_bytes": total.payload_bytes,
        "wire_bytes": total.wire_bytes,
        "time_s": seconds,
        "bandwidth_bytes_per_s": total.wire_bytes / seconds,
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
