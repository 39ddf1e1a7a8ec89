"""``commcalc compare``: layouts, degrees and machines side by side."""

import os
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Annotated, Any

import typer

from commcalc.accounting.comparison import Compared
from commcalc.accounting.comparison import compare as priced
from commcalc.accounting.rows import AXES, Warn
from commcalc.catalog.answer import candidate_of
from commcalc.catalog.assign import Assignment
from commcalc.catalog.job import Request, resolve_job
from commcalc.cli import options as o
from commcalc.cli.output import Format, colour_of_terminal, say, warn, width_of_terminal, write
from commcalc.errors import NO_LEGAL_ANSWER, CommcalcError, UnknownName, UsageError, raise_all
from commcalc.ranges import parse_range

EXAMPLES = """\b
Examples:
  commcalc compare --model llama-3-70b --hardware h100 --tp 1,2,4,8 --seq 8K
  commcalc compare --model gpt3-175b --hardware h100 --tp 4..16:x2 --pivot tp
  commcalc compare --tp 8 --layout megatron,megatron-sp --baseline first
  commcalc compare --model llama-3-8b --hardware h100 --dp 8 --zero 0,1,2,3
  commcalc compare --tp 2,4,8 --micro-batch 1,8 --efficiency 0.6 --plot
  commcalc compare --tp 2,4,8 --json
"""
MOST = 1000
# What --plot without a file stands for (`cli.spelled_out`).
TERMINAL = "terminal"
# Lists, by the name of their parameter: the path they set, the option, and whether they are numbers.
LISTS: Mapping[str, tuple[str, str, bool]] = {
    "layout_list": ("parallelism.layout", "--layout", False),
    "framework_list": ("parallelism.framework", "--framework", False),
    "tp_list": ("parallelism.tp", "--tp", True),
    "cp_list": ("parallelism.cp", "--cp", True),
    "ep_list": ("parallelism.ep", "--ep", True),
    "pp_list": ("parallelism.pp", "--pp", True),
    "dp_list": ("parallelism.dp", "--dp", True),
    "zero_list": ("parallelism.zero", "--zero", False),
    "seq_list": ("workload.sequence_length", "--seq", True),
    "micro_batch_list": ("workload.micro_batch_size", "--micro-batch", True),
    "global_batch_list": ("workload.global_batch_size", "--global-batch", True),
    "dtype_list": ("workload.dtype", "--dtype", False),
    "phase_list": ("workload.phase", "--phase", False),
    "recompute_list": ("workload.recompute", "--recompute", False),
}
# Warnings that a column says.
TOLD = ("does-not-fit", "tp-crosses-level")


def _list(option: str, what: str) -> Any:
    return typer.Option(option, metavar="LIST", help=what, show_default=False)


@o.with_examples(EXAMPLES)
def compare(
    ctx: typer.Context,
    job: Annotated[
        o.Text, typer.Argument(metavar="[JOB]", help="Job preset, YAML file, or - for stdin.", show_default=False)
    ] = None,
    models: Annotated[o.Text, _list("--model", "Models.")] = None,
    machines: Annotated[o.Text, _list("--hardware", "Machines.")] = None,
    layout_list: Annotated[o.Text, _list("--layout", "Layouts on the TP axis.")] = None,
    framework_list: Annotated[o.Text, _list("--framework", "Whose habits.")] = None,
    tp_list: Annotated[o.Text, _list("--tp", "Tensor-parallel degrees, like 1,2,4 or 1..64:x2.")] = None,
    cp_list: Annotated[o.Text, _list("--cp", "Context-parallel degrees.")] = None,
    ep_list: Annotated[o.Text, _list("--ep", "Expert-parallel degrees.")] = None,
    pp_list: Annotated[o.Text, _list("--pp", "Pipeline stages.")] = None,
    dp_list: Annotated[o.Text, _list("--dp", "Data-parallel degrees.")] = None,
    zero_list: Annotated[o.Text, _list("--zero", "ZeRO stages.")] = None,
    seq_list: Annotated[o.Text, _list("--seq", "Sequence lengths, like 8K,128K.")] = None,
    micro_batch_list: Annotated[o.Text, _list("--micro-batch", "Sequences of a microbatch.")] = None,
    global_batch_list: Annotated[o.Text, _list("--global-batch", "Sequences of a step.")] = None,
    dtype_list: Annotated[o.Text, _list("--dtype", "Element types of activations.")] = None,
    phase_list: Annotated[o.Text, _list("--phase", "train, prefill, decode.")] = None,
    recompute_list: Annotated[o.Text, _list("--recompute", "none, selective, full.")] = None,
    sp: o.Sp = None,
    cp_comm: o.CpComm = None,
    etp: o.Etp = None,
    dispatch: o.Dispatch = None,
    dp_shard: o.DpShard = None,
    schedule: o.Schedule = None,
    virtual_stages: o.VirtualStages = None,
    order: o.Order = None,
    kv: o.Kv = None,
    grad_dtype: o.GradDtype = None,
    tp_x: o.TpX = None,
    regather: o.Regather = None,
    reshard: o.Reshard = None,
    attention: o.AttentionOption = None,
    optimizer: o.Optimizer = None,
    efficiency: o.Efficiency = None,
    overlap_groups: o.Overlap = None,
    combine: o.CombineOption = None,
    scores: o.ScoresOption = None,
    bandwidth: o.Bandwidth = None,
    latency: o.Latency = None,
    call_latency: o.CallLatency = None,
    algorithm: o.AlgorithmOption = None,
    convention: o.ConventionOption = None,
    set_: o.Set = None,
    baseline: Annotated[
        o.Text, typer.Option("--baseline", metavar="first|KEY=VALUE,...", help="Ratios to a row.", show_default=False)
    ] = None,
    pivot: Annotated[
        o.Text, typer.Option("--pivot", metavar="FIELD", help="Its values as columns, like tp.", show_default=False)
    ] = None,
    plot: Annotated[
        o.Text,
        typer.Option("--plot", metavar="[FILE]", help="Bars: in the terminal, or as .svg or .png.", show_default=False),
    ] = None,
    format_: o.FormatOption = None,
    json_: o.Json = False,
    output: o.OutputOption = None,
    no_color: o.NoColor = False,
) -> None:
    """Layouts, degrees and machines side by side: a row for every combination.

    A combination that is not legal is a row that says why; the exit status is 3 where none is legal.
    """
    from commcalc.report import compare as report

    style = o.format_from(ctx.params)
    if style not in (Format.TABLE, Format.MARKDOWN) and (pivot or plot == TERMINAL):
        option = "--pivot" if pivot else "--plot"
        raise UsageError(f"{option} has no place in {style}", where=f"--format {style}", hint="table or markdown")
    found, labels = _compared(ctx.params)
    at = _baseline(baseline, labels)
    if pivot is not None and pivot not in labels[0]:
        raise UnknownName("field that varies", pivot, list(labels[0]), where=f"--pivot {pivot[:60]}")
    _raise_if_none_works(found)
    records = [report.row_record(one, label) for one, label in zip(found, labels, strict=True)]
    if plot is not None and plot != TERMINAL:
        from commcalc.report.picture import draw

        draw(records, labels, plot)
    said, told = _shared(found), _warnings(found)
    warn(told)
    if style is Format.JSON:
        from commcalc.report.json import render_json

        write(render_json(report.document(records, list(labels[0]), said, told, at)))
    elif style is Format.JSONL:
        from commcalc.report.json import render_jsonl

        write(render_jsonl(report.with_ratios(records, at)))
    elif style is Format.CSV:
        from commcalc.report.table import render_csv

        write(render_csv(report.flattened(report.with_ratios(records, at))))
    else:
        head = _heading(found, labels)
        write(
            _text(report, records, labels, head, said, style, at, pivot=pivot, plot=plot == TERMINAL, no_color=no_color)
        )
    if not any(record["legal"] for record in records):
        say(f"error: none of {len(records)} combinations is legal")
        raise typer.Exit(NO_LEGAL_ANSWER)


def _raise_if_none_works(found: Sequence[Compared]) -> None:
    """Wrong in the same way whatever the combination: that is the question's fault, not theirs."""
    problems = [one.problem for one in found]
    if all(problem is not None and problem.status != NO_LEGAL_ANSWER for problem in problems):
        raise_all(list({problem.message: problem for problem in problems if problem is not None}.values())[:1])


def _heading(found: Sequence[Compared], labels: Sequence[Mapping[str, str]]) -> str:
    """What all combinations share, in a line."""
    one, varying = found[0].candidate, labels[0]
    work, parallel = one.work, one.parallel
    fixed = {
        "model": one.model.name, "hardware": f"on {one.hardware or 'no hardware (bytes only)'}",
        "phase": str(work.phase),
        "layout": str(parallel.layout), "dtype": str(work.dtype), "seq": f"{work.sequence_length:,} tokens",
        "micro-batch": f"microbatch {work.micro_batch_size}", "recompute": f"recompute {work.recompute}",
    }  # fmt: skip
    degrees = [
        f"{axis} {getattr(parallel, axis)}"
        for axis in (*AXES, "zero")
        if axis not in varying and getattr(parallel, axis) > (0 if axis == "zero" else 1)
    ]
    return ", ".join([text for name, text in fixed.items() if name not in varying] + degrees) + "\n"


def _text(
    report: Any,
    records: Sequence[Mapping[str, Any]],
    labels: Sequence[Mapping[str, str]],
    head: str,
    said: Sequence[str],
    style: Format,
    at: int | None,
    *,
    pivot: str | None,
    plot: bool,
    no_color: bool,
) -> str:
    from commcalc.report.table import Terminal, folded, render, render_markdown

    terminal = Terminal(width_of_terminal(os.environ), colour_of_terminal(os.environ, no_color))
    tables = report.pivoted(records, labels, pivot, at) if pivot else [report.comparison_table(records, labels, at)]
    markdown = style is Format.MARKDOWN
    bars = report.bars(records, labels, None if markdown else terminal.width) if plot else ""
    why = report.reasons(records)
    parts = [("Not legal", why)] if why else []
    parts += [("Columns", report.LEGEND), ("Assumptions", said)]
    tail = "\n".join(f"{title}\n" + "".join(f"- {line}\n" for line in lines) for title, lines in parts)
    if markdown:
        fenced = f"\n```\n{bars}```\n" if bars else ""
        return f"{head}\n{render_markdown(tables)}{fenced}\n{tail}"
    drawn = f"\n{bars}" if bars else ""
    return f"{folded(head, terminal.width)}\n{render(tables, terminal)}{drawn}\n{folded(tail, terminal.width)}"


def _compared(params: Mapping[str, Any]) -> tuple[list[Compared], list[dict[str, str]]]:
    """Every combination with its answer, and the values of the fields that vary."""
    base = o.request_from(params)._replace(lenient=True)
    varied, problems = _varied(params)
    if problems:
        raise_all([*problems, *_unreadable(base, varied)])
    paths = {path: option for path, option, _ in LISTS.values() if option.removeprefix("--") in varied}
    for one in base.assignments:
        if one.path in paths:
            message = f"{one.path} is set twice"
            raise UsageError(message, where=one.origin, hint=f"{paths[one.path]} names its values")
    total = 1
    for values in varied.values():
        total *= len(values)
    if total > MOST:
        raise UsageError(
            f"{total:,} combinations; at most {MOST:,} are compared", where="compare", hint="commcalc sweep takes more"
        )
    several = [name for name, values in varied.items() if len(values) > 1]
    found, labels = [], []
    for combined in product(*varied.values()):
        chosen = dict(zip(varied, combined, strict=True))
        try:
            found.append(_one(_request(base, chosen)))
        except CommcalcError as problem:
            raise_all(_unreadable(base, varied))
            raise problem  # of members that are wrong together alone
        labels.append({name: chosen[name] for name in several})
    return found, labels


def _unreadable(base: Request, varied: Mapping[str, Sequence[str]]) -> list[CommcalcError]:
    """What is wrong with the question whatever the combination: with single values, and with members of lists."""
    found: dict[str, CommcalcError] = {}
    for name, values in varied.items():
        for value in values:
            try:
                resolve_job(_request(base, {name: value}))
            except CommcalcError as problem:
                told = [one for one in problem.problems if one.status != NO_LEGAL_ANSWER]
                found |= {one.text(): one for one in told}
    return list(found.values())


def _varied(params: Mapping[str, Any]) -> tuple[dict[str, list[str]], list[CommcalcError]]:
    """The values of every list that was given, by option without its dashes; and why others cannot be read."""
    found: dict[str, list[str]] = {}
    problems: list[CommcalcError] = []
    named = [("models", "--model", False), ("machines", "--hardware", False)]
    for name, option, numbers in [*named, *((name, option, numbers) for name, (_, option, numbers) in LISTS.items())]:
        given = params.get(name)
        if given is None:
            continue
        try:
            # A model written as its fields has commas of its own.
            whole = option in ("--model", "--hardware") and given.lstrip().startswith("{")
            values = [given] if whole else _numbers(given, option) if numbers else _words(given, option)
            found[option.removeprefix("--")] = values
        except CommcalcError as problem:
            problems += problem.problems
    return found, problems


def _words(given: str, option: str) -> list[str]:
    words = [word.strip() for word in given.split(",")]
    if not all(words):
        raise UsageError("an empty value in a list", where=f"{option} {given[:60]}", hint="write it like a,b")
    return list(dict.fromkeys(words))


def _numbers(given: str, option: str) -> list[str]:
    try:
        return [str(number) for number in parse_range(given)]
    except CommcalcError as problem:
        problem.where = f"{option} {given[:60]}"
        raise


def _request(base: Request, chosen: Mapping[str, str]) -> Request:
    paths = {option.removeprefix("--"): path for path, option, _ in LISTS.values()}
    assignments = [
        Assignment(paths[name], value, f"--{name} {value[:60]}") for name, value in chosen.items() if name in paths
    ]
    return base._replace(
        model=chosen.get("model", base.model), hardware=chosen.get("hardware", base.hardware),
        assignments=[*base.assignments, *assignments],
    )  # fmt: skip


def _one(request: Request) -> Compared:
    job = resolve_job(request)
    warnings = tuple(Warn(*warning) for warning in job.warnings)
    return priced(candidate_of(job))._replace(assumptions=job.assumptions, warnings=warnings)


def _baseline(given: str | None, labels: Sequence[Mapping[str, str]]) -> int | None:
    """The row that ratios are to."""
    if given is None:
        return None
    if given == "first":
        return 0
    where = f"--baseline {given[:60]}"
    wanted: dict[str, str] = {}
    for part in given.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            raise UsageError(f"{part[:60]!r} says no value", where=where, hint="--baseline first, or KEY=VALUE")
        if name not in labels[0]:
            raise UnknownName("field that varies", name, list(labels[0]), where=where)
        if name in wanted:
            raise UsageError(f"{name} is given twice", where=where, hint="once each")
        numbers = any(option == f"--{name}" and numeric for _, option, numeric in LISTS.values())
        wanted[name] = _numbers(value, "--baseline")[0] if numbers else value
    for at, label in enumerate(labels):
        if all(label[name] == value for name, value in wanted.items()):
            return at
    raise UsageError("no combination has these values", where=where, hint="--baseline first")


def _shared(found: Sequence[Compared]) -> list[str]:
    """What all answers rest on, and how much more some of them."""
    each = [
        (*one.assumptions, *one.priced.assumptions, *one.outlook.assumptions)
        for one in found
        if one.priced and one.outlook
    ]
    if not each:
        return []
    same = [line for line in each[0] if all(line in other for other in each)]
    others = {line for lines in each for line in lines} - set(same)
    said = [f"{len(others)} more hold for some combinations: ledger tells those of each"] if others else []
    return [*same, *said]


def _warnings(found: Sequence[Compared]) -> list[tuple[str, str]]:
    """One message of each kind, and how many combinations have another; what a column says is left out."""
    told: dict[str, list[str]] = {}
    for one in found:
        if one.priced and one.outlook:
            of = dict.fromkeys((*one.warnings, *one.priced.warnings, *one.outlook.warnings))
            for warning in of:
                if warning.code not in TOLD:
                    told.setdefault(warning.code, []).append(warning.message)
    return [
        (code, messages[0] + (f" (and {len(messages) - 1} more like it)" if len(messages) > 1 else ""))
        for code, messages in told.items()
    ]
