"""``commcalc degrees``: which degrees are legal for a model, and the rule that forbids the others."""

import os
from typing import Annotated

import typer

from commcalc.catalog.job import resolve_job
from commcalc.cli import options as o
from commcalc.cli.output import Format, colour_of_terminal, say, warn, width_of_terminal, write
from commcalc.errors import NO_LEGAL_ANSWER, CommcalcError, SpecError, UsageError, raise_all
from commcalc.ranges import parse_range
from commcalc.report.degrees import degrees_document, degrees_tables, examine_all
from commcalc.transformer.frameworks import refusals
from commcalc.transformer.limits import largest_degree, limits
from commcalc.transformer.spec import Phase

# What of a job a question of degrees depends on, besides the model.
ASKED = (
    "parallelism.sp",
    "parallelism.layout",
    "parallelism.framework",
    "parallelism.kv",
    "parallelism.vocab_padding",
    "workload.sequence_length",
    "workload.micro_batch_size",
    "workload.phase",
)
MOST_TOLD, MOST_ASKED = 8, 10_000
EXAMPLES = """\b
Examples:
  commcalc degrees --model llama-3-70b
  commcalc degrees --model llama-2-13b --tp 1..16
  commcalc degrees --model phi-3-medium --phase decode --tp 2,4,8 --json
  commcalc degrees --model qwen2.5-7b --framework vllm
  commcalc degrees --model '{num_attention_heads: 40}' --tp 3
"""


@o.with_examples(EXAMPLES)
def degrees(
    ctx: typer.Context,
    model: o.Model = None,
    tp_list: Annotated[
        o.Text, typer.Option("--tp", metavar="LIST", help="Degrees, like 1,2,4 or 1..16 [all].", show_default=False)
    ] = None,
    sp: o.Sp = None,
    layout: o.Layout = None,
    framework: o.Framework = None,
    kv: o.Kv = None,
    vocab_padding: o.VocabPadding = None,
    seq: o.Seq = None,
    phase: o.Phase = None,
    set_: o.Set = None,
    format_: o.FormatOption = None,
    json_: o.Json = False,
    output: o.OutputOption = None,
    no_color: o.NoColor = False,
) -> None:
    """Which TP degrees are legal, and the rule that forbids others.

    The exit status is 3 where none of the degrees asked for is legal.
    """
    style = o.format_from(ctx.params)
    request = o.request_from(ctx.params)
    foreign = [one for one in request.assignments if one.path.partition(".")[0] != "model" and one.path not in ASKED]
    raise_all([UsageError(f"degrees does not ask for {one.path[:60]}", where=one.origin) for one in foreign])
    job = resolve_job(request)
    rules = limits(job.model, job.parallel, job.work)
    if not rules and not limits(job.model, job.parallel._replace(framework=None), job.work):
        raise SpecError(
            "the model gives nothing that a degree must divide",
            where="--model",
            hint="give num_attention_heads, num_key_value_heads, intermediate_size or vocab_size",
        )
    try:
        asked = list(range(1, largest_degree(rules) + 1)) if tp_list is None else parse_range(tp_list)
    except CommcalcError as problem:
        problem.where = f"--tp {(tp_list or '')[:60]}"
        raise
    if len(asked) > MOST_ASKED:
        raise UsageError(f"{len(asked)} degrees; at most {MOST_ASKED} are examined at once", where="--tp")
    found = examine_all(asked, job.model, rules, job.parallel)
    if tp_list is None and any(degree.legal for degree in found):
        found = [degree for degree in found if degree.legal]
    from commcalc.report import json as as_json

    if style is Format.JSON:
        text = as_json.render_json(degrees_document(job.model, job.parallel, rules, found))
    elif style is Format.JSONL:
        text = as_json.render_jsonl(degree.record() for degree in found)
    else:
        from commcalc.report import table

        tables = degrees_tables(job.model, job.parallel, rules, found)
        if style is Format.CSV:
            text = table.render_csv([degree.record() for degree in found])
        elif style is Format.MARKDOWN:
            text = table.render_markdown(tables)
        else:
            width = width_of_terminal(os.environ)
            text = table.render(tables, table.Terminal(width, colour_of_terminal(os.environ, no_color)))
    # Whatever the degree; that a server does not train is no news here.
    refused = refusals(job.model, job.parallel, job.work._replace(phase=Phase.PREFILL))
    warn([*job.warnings, *(("framework-refuses", problem.message) for problem in refused)])
    write(text)
    if not any(degree.legal for degree in found):
        for degree in found[:MOST_TOLD]:
            say(f"error: tp {degree.tp} is not legal for {job.model.name}: {'; '.join(degree.reasons)}")
            say(f"  at --tp {tp_list or 'all'}")
            for hint in dict.fromkeys(degree.hints):
                say(f"hint: {hint}")
        if len(found) > MOST_TOLD:
            say(f"error: nor are {len(found) - MOST_TOLD} more")
        raise typer.Exit(NO_LEGAL_ANSWER)
