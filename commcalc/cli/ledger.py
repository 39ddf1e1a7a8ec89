"""``commcalc ledger``: what a block, a stage and a step move, by group, and how long it takes."""

import os
from typing import Annotated

import typer

from commcalc.accounting.outlook import Outlook
from commcalc.accounting.pricing import PricedLedger
from commcalc.catalog.answer import answer_to
from commcalc.catalog.job import Job, resolve_job
from commcalc.cli import options as o
from commcalc.cli.output import Format, colour_of_terminal, warn, width_of_terminal, write
from commcalc.errors import UsageError

EXAMPLES = """\b
Examples:
  commcalc ledger
  commcalc ledger --model llama-3-70b --hardware h100 --tp 8 --sp --seq 8K
  commcalc ledger gpt3-175b-a100 --explain
  commcalc ledger --model llama-3-70b --tp 8 --phase decode --json
  commcalc ledger --model deepseek-v3 --framework megatron --tp 8 --sp
  commcalc ledger deepseek-v3-h800
  commcalc ledger --model llama-3-8b --dp 8 --zero 3 --global-batch 8
  commcalc ledger --model mixtral-8x7b --hardware h100 --dp 16 --ep 8 --ranks
  commcalc ledger --recompute full --pp 4 --global-batch 16 --efficiency 0.6
"""


@o.with_examples(EXAMPLES)
def ledger(
    ctx: typer.Context,
    job: Annotated[
        o.Text, typer.Argument(metavar="[JOB]", help="Job preset, YAML file, or - for stdin.", show_default=False)
    ] = None,
    model: o.Model = None,
    hardware: o.Hardware = None,
    tp: o.Tp = None,
    sp: o.Sp = None,
    cp: o.Cp = None,
    cp_comm: o.CpComm = None,
    ep: o.Ep = None,
    etp: o.Etp = None,
    dispatch: o.Dispatch = None,
    ep_nodes: o.EpNodes = None,
    node_limit: o.NodeLimit = None,
    pp: o.Pp = None,
    dp: o.Dp = None,
    devices: o.Devices = None,
    zero: o.Zero = None,
    dp_shard: o.DpShard = None,
    schedule: o.Schedule = None,
    virtual_stages: o.VirtualStages = None,
    layout: o.Layout = None,
    tp_x: o.TpX = None,
    framework: o.Framework = None,
    order: o.Order = None,
    kv: o.Kv = None,
    vocab_padding: o.VocabPadding = None,
    seq: o.Seq = None,
    micro_batch: o.MicroBatch = None,
    global_batch: o.GlobalBatch = None,
    dtype: o.DtypeOption = None,
    grad_dtype: o.GradDtype = None,
    phase: o.Phase = None,
    recompute: o.Recompute = None,
    recompute_modules: o.RecomputeModules = None,
    regather: o.Regather = None,
    logits: o.Logits = None,
    predict_layers: o.PredictLayers = None,
    capacity_factor: o.CapacityFactor = None,
    imbalance: o.Imbalance = None,
    dispatch_dtype: o.DispatchDtype = None,
    scale_block: o.ScaleBlock = None,
    combine_dtype: o.CombineDtype = None,
    reshard: o.Reshard = None,
    bucket: o.Bucket = None,
    defer_all_reduce: o.DeferAllReduce = None,
    recompute_layers: o.RecomputeLayers = None,
    attention: o.AttentionOption = None,
    dropout: o.Dropout = None,
    param_dtype: o.ParamDtype = None,
    optimizer: o.Optimizer = None,
    moment_dtype: o.MomentDtype = None,
    master_dtype: o.MasterDtype = None,
    main_grad_dtype: o.MainGradDtype = None,
    kv_dtype: o.KvDtype = None,
    offload: o.Offload = None,
    host_memory: o.HostMemory = None,
    must_fit: o.MustFit = None,
    efficiency: o.Efficiency = None,
    hbm_efficiency: o.HbmEfficiency = None,
    overlap_groups: o.Overlap = None,
    combine: o.CombineOption = None,
    scores: o.ScoresOption = None,
    train_tokens: o.TrainTokens = None,
    call_latency: o.CallLatency = None,
    bandwidth: o.Bandwidth = None,
    latency: o.Latency = None,
    algorithm: o.AlgorithmOption = None,
    convention: o.ConventionOption = None,
    set_: o.Set = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Each number with its formula and values.", show_default=False)
    ] = False,
    tensors: Annotated[
        bool, typer.Option("--tensors", help="Layout and local shape of every tensor.", show_default=False)
    ] = False,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="Every group by rank, and the levels it rides on.", show_default=False)
    ] = False,
    format_: o.FormatOption = None,
    json_: o.Json = False,
    output: o.OutputOption = None,
    no_color: o.NoColor = False,
) -> None:
    """What a block, a stage and a step move, how long it takes, and whether it fits.

    Without arguments it answers for the packaged default job; with --model it inherits nothing from that.
    """
    style = o.format_from(ctx.params)
    if style in (Format.CSV, Format.JSONL):
        _one_table(style, explain=explain, tensors=tensors, ranks=ranks)
    found, priced, outlook = answer_to(resolve_job(o.request_from(ctx.params)))
    text = _text(priced, found, outlook, style, explain=explain, tensors=tensors, ranks=ranks, no_color=no_color)
    warn(priced.warnings)
    write(text)


def _one_table(style: Format, *, explain: bool, tensors: bool, ranks: bool) -> None:
    """Csv and jsonl hold one kind of record."""
    if explain:
        raise UsageError(
            f"--explain has no place in {style}", where=f"--format {style}", hint="table, markdown or json"
        )
    if tensors and ranks:
        raise UsageError("--tensors and --ranks are two tables", where=f"--format {style}", hint="ask for one of them")


def _text(
    priced: PricedLedger,
    job: Job,
    outlook: Outlook,
    style: Format,
    *,
    explain: bool,
    tensors: bool,
    ranks: bool,
    no_color: bool,
) -> str:
    from commcalc.report import json as as_json
    from commcalc.report import ledger as report

    lines = None
    if tensors:
        from commcalc.accounting.tensors import tensor_lines

        lines = tensor_lines(priced.ledger)
    groups = None
    if ranks:
        from commcalc.accounting.ranks import rank_groups

        groups = rank_groups(priced.ledger, job.hardware.network if job.hardware else None)
    if style is Format.JSON:
        return as_json.render_json(
            report.ledger_document(priced, job, outlook, explain=explain, tensors=lines, ranks=groups)
        )
    if style in (Format.JSONL, Format.CSV):
        times = priced.ledger.times_in_step
        records = [report.row_record(entry, times(entry.row), priced) for entry in priced.entries]
        if lines is not None:
            records = [line.record() for line in lines]
        if groups is not None:
            records = [dict(group) for group in groups]
        if style is Format.JSONL:
            return as_json.render_jsonl(records)
        from commcalc.report.table import render_csv

        return render_csv(records)
    from commcalc.report.step import outlook_tables
    from commcalc.report.table import Terminal, folded, render, render_markdown

    tables = [*report.ledger_tables(priced), *outlook_tables(outlook)]
    if lines is not None:
        tables.append(report.tensors_table(lines))
    if groups is not None:
        from commcalc.report.ranks import ranks_tables

        tables += ranks_tables(groups)
    head = report.heading(priced, job)
    tail = "Assumptions\n" + "".join(f"- {line}\n" for line in priced.assumptions)
    if explain:
        tail = _explained(priced, job, outlook) + "\n" + tail
    if style is Format.MARKDOWN:
        return f"{head}\n{render_markdown(tables)}\n{tail}"
    terminal = Terminal(width_of_terminal(os.environ), colour_of_terminal(os.environ, no_color))
    return f"{head}\n{render(tables, terminal)}\n{folded(tail, terminal.width)}"


def _explained(priced: PricedLedger, job: Job, outlook: Outlook) -> str:
    from commcalc.accounting.explain import explain_names, explain_row, explain_totals
    from commcalc.accounting.explain_outlook import explain_outlook
    from commcalc.accounting.links import explain_links

    lines = ["Explained", *(f"  {line}" for line in explain_names(priced))]
    if job.hardware:
        lines += [f"  {line}" for line in explain_links(job.hardware.network.levels)]
    for entry in priced.entries:
        row = entry.row
        over = ", ".join(priced.ledger.layout.mesh.label(row.axes))
        blocks = priced.ledger.programs.blocks
        of = f" of {row.part} blocks" if len(blocks) > 1 and row.part in blocks else ""
        lines.append(f"{row.sublayer}{of}, {row.direction} {row.op}: {row.kind} of {row.tensor} over {over}")
        lines += [f"  {line}" for line in explain_row(entry, priced)]
    lines += ["totals", *(f"  {line}" for line in explain_totals(priced))]
    lines += explain_outlook(outlook, priced.ledger, job.states)
    return "\n".join(lines) + "\n"
