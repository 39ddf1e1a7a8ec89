"""``commcalc sweep``: the ledger at every point of a grid, a line each, or the best of them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from commcalc.accounting.filters import Condition
from commcalc.cli import options as o
from commcalc.cli.grid import Grid, check_members, check_size, first_document, grid_from
from commcalc.cli.output import Format, Progress, say
from commcalc.errors import NO_LEGAL_ANSWER, CommcalcError, UnknownName, UsageError, nearest, raise_all
from commcalc.report.sweep import REASON, RESULTS, Best, Lines, chosen, is_known, known_paths, part
from commcalc.units import parse_count

EXAMPLES = """Lists and ranges: 1,2,4 or 1..64:x2 or 4096..131072:4096. A line has what varies,
then legal, block_wire_bytes, block_comm_s, step_wire_bytes, step_comm_s,
exposed_share (of a block's time) and memory_bytes; null where not known. The
last of these varies fastest: model, hardware, links, the options in the order
below, --set as given, dp, seq, micro-batch, global-batch. At most 10^8 points are
written, and 10^10 looked at for --top.

\b
Examples:
  commcalc sweep --model llama-3-70b --hardware h100 --tp 1..8:x2
  commcalc sweep --hardware h100,a100 --tp 1,2,4,8 --where 'step_comm_s < 1'
  commcalc sweep --tp 1..8:x2 --micro-batch 1..16 --top 5 --by exposed_share
  commcalc sweep --set model.hidden_size=4096..16384:1024 --format csv
  commcalc sweep --tp 3,8 --columns reason,totals.step.tp.wire_bytes
"""
# Without --where or --top nothing but Ctrl-C ends a long list.
MOST_TOLD, MOST_COLUMNS = 1_000_000, 1000
# Points whose lines are made at once.
LINES = 2**13


@o.with_examples(EXAMPLES)
def sweep(
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
    where: Annotated[
        o.Text, typer.Option("--where", metavar="EXPR", help="Points that meet a condition.", show_default=False)
    ] = None,
    top: Annotated[
        o.Text, typer.Option("--top", metavar="K", help="The K legal points with least --by.", show_default=False)
    ] = None,
    by: Annotated[
        o.Text, typer.Option("--by", metavar="[-]FIELD", help="Column of --top; -: largest.", show_default=False)
    ] = None,
    columns: Annotated[
        o.Text,
        typer.Option(
            "--columns", metavar="LIST", help="More columns: paths of ledger --json, or reason.", show_default=False
        ),
    ] = None,
    format_: Annotated[
        o.Text, typer.Option("--format", metavar="FORMAT", help="jsonl or csv [jsonl].", show_default=False)
    ] = None,
    json_: o.Json = False,
    output: o.OutputOption = None,
) -> None:
    """The ledger at every point of a grid of options, a line each, streamed.

    Options take lists and ranges. A combination that is not legal has a line with legal false.
    """
    asked = _asked(ctx.params, [str(param.name) for param in ctx.command.params])
    if not _write(asked):
        say("error: no point of the grid is legal")
        say("hint: --columns reason says why")
        raise typer.Exit(NO_LEGAL_ANSWER)


class _Asked(NamedTuple):
    """What to sweep, and which of its points to write."""

    grid: Grid
    names: tuple[str, ...]
    extra: tuple[str, ...]
    csv: bool
    where: Condition | None
    top: int | None
    # The column that the best points are the least in, or the largest.
    by: str
    largest: bool


def _asked(params: Mapping[str, Any], order: Sequence[str]) -> _Asked:
    """The command's parameters, read and checked; all that is wrong is raised together."""
    problems: list[CommcalcError] = []
    csv = _is_csv(params, problems)
    top = _top(params.get("top"), params.get("by"), problems)
    extra = tuple(dict.fromkeys(part.strip() for part in (params.get("columns") or "").split(",") if part.strip()))
    if len(extra) > MOST_COLUMNS:
        raise UsageError(f"{len(extra)} columns; at most {MOST_COLUMNS}", where="--columns")
    try:
        grid = grid_from(params, order)
        check_size(grid, best_only=top is not None)
        check_members(grid)
    except CommcalcError as problem:
        raise_all([*problems, *problem.problems])
        raise
    problems += _unknown_columns(grid, extra)
    names = tuple(dict.fromkeys([*(axis.name for axis in grid.varying), "legal", *RESULTS, *extra]))
    known = tuple(dict.fromkeys([*names, *(axis.name for axis in grid.axes)]))
    where = None
    if params.get("where") is not None:
        try:
            where = Condition(params["where"], known)
        except CommcalcError as problem:
            problems += problem.problems
    given = (params.get("by") or "").strip()
    by = given.removeprefix("-")
    if given and by not in known:
        problems.append(UnknownName("column", by, known, where=f"--by {given[:60]}"))
    raise_all(problems)
    return _Asked(grid, names, extra, csv, where, top, by, given.startswith("-"))


def _is_csv(params: Mapping[str, Any], problems: list[CommcalcError]) -> bool:
    given = params.get("format_")
    lines = (Format.JSONL, Format.CSV)
    if params.get("json_") or given in {*Format} - {*lines}:
        where = "--json" if params.get("json_") else f"--format {given}"
        problems.append(UsageError("a sweep is a stream of lines", where=where, hint="--format jsonl or csv"))
    elif given is not None and given not in lines:
        problems.append(UnknownName("format", given, lines, where=f"--format {given[:60]}"))
    return given == Format.CSV


def _top(top: str | None, by: str | None, problems: list[CommcalcError]) -> int | None:
    if top is None:
        if by is not None:
            problems.append(UsageError("--by says by what the best are chosen", where="--by", hint="add --top K"))
        return None
    if by is None:
        hint = "add --by step_comm_s, or another column"
        problems.append(UsageError("--top needs to know by what", where="--top", hint=hint))
    try:
        count = parse_count(top)
    except CommcalcError as problem:
        problems.append(UsageError(problem.message, where=f"--top {top[:60]}", hint=problem.hint))
        return 1
    if count > MOST_TOLD:
        problems.append(UsageError(f"{count:,} is above {MOST_TOLD:,}", where=f"--top {top[:60]}"))
    return count


def _unknown_columns(grid: Grid, extra: Sequence[str]) -> list[CommcalcError]:
    """Paths of ``--columns`` that lead to no value of a document."""
    asked = [path for path in extra if path not in (REASON, "legal", *RESULTS)]
    if not asked:
        return []
    known = known_paths(first_document(grid))
    found: list[CommcalcError] = []
    for path in asked:
        if not is_known(path, known):
            hint = None if nearest(path, known) else "a path of ledger --json, like totals.step.tp.time_s, or reason"
            found.append(UnknownName("column", path, known, where=f"--columns {path[:60]}", hint=hint))
    return found


def _write(asked: _Asked) -> bool:
    """Write the lines; whether any point was legal."""
    from commcalc.cli.lines import line_writer
    from commcalc.cli.points import Points

    lines, best = Lines(asked.names, asked.csv), None
    if asked.top is not None:
        best = Best(asked.top, asked.by, asked.largest)
    write, progress = line_writer(), Progress(asked.grid.points, "points", beside=best is not None)
    done, legal, head = 0, False, lines.head()
    for count, columns in Points(asked.grid, asked.extra).chunks():
        done += count
        legal = legal or bool(columns["legal"].any())
        if asked.where is not None:
            count, columns = chosen(columns, asked.where(columns, count))
        if best is not None:
            best.add(columns, count)
        else:
            for start in range(0, count, LINES):
                here = slice(start, min(start + LINES, count))
                write(head + lines.text(part(columns, here), here.stop - start))
                head = ""
        progress.at(done)
    if best is not None:
        count, columns = best.found()
        head += lines.text(columns, count) if count else ""
    write(head)
    return legal
