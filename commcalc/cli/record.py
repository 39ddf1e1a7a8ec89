"""``commcalc record``: an experiment's record with its predictions, and filled records compared."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Any, Optional

import typer

from commcalc.cli import options as o
from commcalc.cli.output import Format, colour_of_terminal, warn, width_of_terminal, write
from commcalc.document import Leaf, read_text, scalar
from commcalc.errors import CommcalcError, SpecError, UsageError, raise_all

EXAMPLES = """\b
Examples:
  commcalc record gpt3-175b-a100 > tp8.yaml
  commcalc record --model llama-3-70b --hardware h100 --tp 4 > tp4.yaml
  commcalc record gpt3-175b-a100 --measured step.time_s=5.2s > run.yaml
  commcalc record compare filled.yaml --tolerance 15%
  commcalc record compare filled.yaml --json
"""
COMPARE = "compare"
OFF = 1
_TOLERANCE = "10%"


@o.with_examples(EXAMPLES)
def record(
    ctx: typer.Context,
    words: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="[JOB | compare FILE...]", help="A job; or files to compare.", show_default=False),
    ] = None,
    model: o.Model = None,
    hardware: o.Hardware = None,
    tp: o.Tp = None,
    sp: o.Sp = None,
    pp: o.Pp = None,
    dp: o.Dp = None,
    seq: o.Seq = None,
    micro_batch: o.MicroBatch = None,
    global_batch: o.GlobalBatch = None,
    dtype: o.DtypeOption = None,
    phase: o.Phase = None,
    efficiency: o.Efficiency = None,
    bandwidth: o.Bandwidth = None,
    latency: o.Latency = None,
    set_: o.Set = None,
    measured: Annotated[
        Optional[list[str]],
        typer.Option(
            "--measured",
            metavar="FIELD=VALUE",
            help="Fill in step.time_s, collectives.block.mean_s, ...",
            show_default=False,
        ),
    ] = None,
    tolerance: Annotated[
        o.Text, typer.Option("--tolerance", metavar="X%", help="How far measured may be off [10%].", show_default=False)
    ] = None,
    format_: o.FormatOption = None,
    json_: o.Json = False,
    output: o.OutputOption = None,
    no_color: o.NoColor = False,
) -> None:
    """An experiment's record with its predictions; with compare, measured beside predicted.

    A record is YAML: fill in what is empty behind `measured:`. The exit status of compare is 1 where something is
    further off than the tolerance.
    """
    style = o.format_from(ctx.params)
    if words and words[0] == COMPARE:
        given = [name for name in _making() if ctx.params.get(name) not in (None, [], ())]
        if given:
            told = f"--{given[0].rstrip('_').replace('_', '-')}"
            raise UsageError(
                f"{told} is for making a record", where=told, hint="record compare FILE... --tolerance 10%"
            )
        _compare(words[1:], tolerance, style, no_color)
        return
    if tolerance is not None:
        raise UsageError("a tolerance is for comparing", where="--tolerance", hint="commcalc record compare FILE...")
    if len(words or ()) > 1:
        raise UsageError("one record is of one job", where="record", hint="commcalc record compare FILE... compares")
    _make({**ctx.params, "job": words[0] if words else None}, style)


def _making() -> Sequence[str]:
    return ("model", "hardware", "tp", "sp", "pp", "dp", "seq", "micro_batch", "global_batch", "dtype", "phase",
            "efficiency", "bandwidth", "latency", "set_", "measured")  # fmt: skip


def _make(params: dict[str, Any], style: Format) -> None:
    from commcalc.catalog.answer import answer_to
    from commcalc.catalog.job import resolve_job
    from commcalc.report.json import render_json
    from commcalc.report.record import fill_in, record_document, render_record

    if style not in (Format.TABLE, Format.JSON):
        raise UsageError("a record is YAML or JSON", where=f"--format {style}", hint="--json, or none of them")
    answer = answer_to(resolve_job(o.request_from(params)))
    made = record_document(answer)
    problems: list[CommcalcError] = []
    for path, leaf in o.measured_from(params.get("measured")).items():
        try:
            fill_in(made, path, leaf)
        except CommcalcError as problem:
            problems.append(problem)
    raise_all(problems)
    warn(answer.priced.warnings)
    write(render_json(made) if style is Format.JSON else render_record(made))


def _compare(files: Sequence[str], tolerance: str | None, style: Format, no_color: bool) -> None:
    from commcalc.accounting.quantities import SHARE, bound_of, tolerance_of
    from commcalc.accounting.record import outcome_of
    from commcalc.catalog.record import read_record
    from commcalc.report import record_compare as report

    if not files:
        raise UsageError("no records to compare", where="record compare", hint="commcalc record compare FILE...")
    text = tolerance or _TOLERANCE
    problems: list[CommcalcError] = []
    within = 0.0
    try:
        within = bound_of(Leaf(scalar(text), text, "--tolerance"), SHARE._replace(parse=tolerance_of, like="10%"))
    except CommcalcError as problem:
        problems.append(SpecError(problem.message, where=f"--tolerance {text[:60]}", hint=problem.hint))
    found = []
    for file in files:
        try:
            stdin = file == "-"
            read = read_record(o.read_stdin("record") if stdin else read_text(file), "stdin" if stdin else file)
            if not _measured(read):
                hint = "fill in what is empty behind `measured:`"
                raise SpecError("nothing in this record is measured", where=file, hint=hint)
            found.append(report.Filed("stdin" if stdin else file, outcome_of(read, within)))
        except CommcalcError as problem:
            problems += problem.problems
    raise_all(problems)
    _write(found, within, style, no_color)
    if any(one.outcome.off for one in found):
        raise typer.Exit(OFF)


def _measured(read: Any) -> bool:
    pairs = [*read.step.values(), *read.correctness.values()]
    pairs += [pair for one in read.collectives for pair in (one.mean_s, one.calls)]
    return any(pair.measured is not None for pair in pairs)


def _write(found: Sequence[Any], tolerance: float, style: Format, no_color: bool) -> None:
    from commcalc.report import record_compare as report
    from commcalc.report.json import render_json, render_jsonl
    from commcalc.report.table import Terminal, folded, render, render_csv, render_markdown

    if style is Format.JSON:
        text = render_json(report.document(found, tolerance))
    elif style is Format.JSONL:
        text = render_jsonl(report.flat_rows(found))
    elif style is Format.CSV:
        text = render_csv([dict(row) for row in report.flat_rows(found)])
    elif style is Format.MARKDOWN:
        text = f"{render_markdown(report.tables(found))}\n{report.tail(found)}"
    else:
        terminal = Terminal(width_of_terminal(os.environ), colour_of_terminal(os.environ, no_color))
        text = f"{render(report.tables(found), terminal)}\n{folded(report.tail(found), terminal.width)}"
    write(text)
