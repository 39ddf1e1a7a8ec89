"""``commcalc verify``: run layouts, strategies and collectives on simulated devices, and compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commcalc.accounting.products import Objective, Pricing, answer
from commcalc.accounting.resharding import reshardings
from commcalc.cli import options as o
from commcalc.cli import sharded as s
from commcalc.cli import sizes
from commcalc.cli.output import Progress
from commcalc.cli.verified_model import of_model
from commcalc.errors import CommcalcError, UnknownName, UsageError, raise_all
from commcalc.network.fabric import Fabric
from commcalc.ranges import parse_range
from commcalc.transformer.layout import LayoutName

if TYPE_CHECKING:
    from commcalc.algebra.expression import Expression
    from commcalc.report.verify import Proof
    from commcalc.simulate.check import Run
    from commcalc.simulate.precision import Precision
    from commcalc.transformer.spec import Model
    from commcalc.transformer.work import Parallelism, Workload

# Options of an expression, and of layouts: they do not go together.
_OF_EXPRESSIONS = {"mesh": "--mesh", "dim": "--dim", "pad": "--pad", "sub_axes": "--sub-axes"}
_OF_LAYOUTS = {
    "layout": "--layout", "tp": "--tp", "model": "--model", "framework": "--framework", "kv": "--kv",
    "vocab_padding": "--vocab-padding", "seq": "--seq", "micro_batch": "--micro-batch", "phase": "--phase",
    "recompute": "--recompute", "regather": "--regather", "dp": "--dp", "zero": "--zero", "dp_shard": "--dp-shard",
    "pp": "--pp", "ep": "--ep", "etp": "--etp", "dispatch": "--dispatch", "cp": "--cp", "cp_comm": "--cp-comm",
    "set_": "--set",
}  # fmt: skip
Seq = Annotated[
    o.Text,
    typer.Option("--seq", metavar="TOKENS", help="Tokens of a sequence [8, or what TP splits].", show_default=False),
]
# An error that a reduction over two devices makes where it is left out: an allowance above it proves little.
_LEFT_OUT = 0.35
# Devices of the largest groups that collectives are run on, by default and with --all.
_DEVICES, _ALL_DEVICES = 8, 16
_MOST_SEED_DIGITS = 40
_PRODUCT = "A[I_X, J] @ B[J, K]"
EXAMPLES = """\b
Examples:
  commcalc verify --layout megatron-sp --tp 2,4 --dtype bfloat16
  commcalc verify --model llama-3-70b --tp 16 --kv replicate
  commcalc verify --model deepseek-v3 --framework hf --layout megatron
  commcalc verify --model llama-3-70b --tp 2 --dp 4 --zero 3 --dp-shard 2
  commcalc verify --model mixtral-8x7b --dp 2 --ep 2
  commcalc verify --model llama-3-70b --cp 4 --cp-comm ulysses --dp 2
  commcalc verify "A[I_X, J] @ B[J_X, K] -> C[I, K]" --mesh X=4
  commcalc verify "A[I_X, J] -> A[I, J_X]" --mesh X=4 --json
"""


@o.with_examples(EXAMPLES)
def verify(
    ctx: typer.Context,
    expression: Annotated[
        o.Text,
        typer.Argument(
            metavar="[EXPRESSION]", help="A product or change of sharding, or - for stdin.", show_default=False
        ),
    ] = None,
    mesh: sizes.MeshOption = None,
    dim: sizes.Dims = None,
    pad: s.Pad = False,
    sub_axes: s.SubAxes = False,
    layout: Annotated[
        o.Text,
        typer.Option("--layout", metavar="LIST", help="Layouts, like megatron,megatron-sp [all].", show_default=False),
    ] = None,
    tp: Annotated[
        o.Text, typer.Option("--tp", metavar="LIST", help="Degrees, like 2,4 or 1..8:x2 [1,2,4,8].", show_default=False)
    ] = None,
    dp: o.Dp = None,
    zero: o.Zero = None,
    dp_shard: o.DpShard = None,
    pp: o.Pp = None,
    cp: o.Cp = None,
    cp_comm: o.CpComm = None,
    ep: o.Ep = None,
    etp: o.Etp = None,
    dispatch: o.Dispatch = None,
    model: o.Model = None,
    framework: o.Framework = None,
    kv: o.Kv = None,
    vocab_padding: o.VocabPadding = None,
    seq: Seq = None,
    micro_batch: o.MicroBatch = None,
    phase: o.Phase = None,
    recompute: o.Recompute = None,
    regather: o.Regather = None,
    set_: o.Set = None,
    all_: Annotated[
        bool,
        typer.Option(
            "--all", help="Every architecture, phase, policy and framework; groups up to 16.", show_default=False
        ),
    ] = False,
    dtype: Annotated[
        o.Text,
        typer.Option("--dtype", metavar="DTYPE", help="float64, float32 or bfloat16 [float64].", show_default=False),
    ] = None,
    seed: Annotated[
        o.Text, typer.Option("--seed", metavar="N", help="Of the random weights and data [0].", show_default=False)
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Every single check, with its formula.", show_default=False)
    ] = False,
    format_: o.FormatOption = None,
    json_: o.Json = False,
    output: o.OutputOption = None,
    no_color: o.NoColor = False,
) -> None:
    """Run the layouts on simulated devices and compare.

    Values and gradients with one device, bytes and steps with the ledger. The sizes of a model are made small; its
    heads and choices stay. The exit status is 1 where anything differs.
    """  # fmt: skip
    style = o.format_from(ctx.params)
    number = _seed(seed)
    precision = _precision(dtype)
    if expression is not None:
        refused = _OF_LAYOUTS | {"all_": "--all"}
        _refuse(ctx.params, refused, "an expression runs by itself, in every strategy", "leave it out")
        proof = _expression(ctx.params, precision, number)
    else:
        _refuse(
            ctx.params, _OF_EXPRESSIONS, "there is no expression", 'commcalc verify "A[I_X, J] @ B[J, K]" --mesh X=4'
        )
        proof = _layouts(ctx.params, precision, number)
    from commcalc.report import verify as report

    s.show(
        ctx.params,
        style,
        lambda: report.verify_document(proof, explain),
        lambda: report.verify_records(proof, explain),
        lambda: report.verify_tables(proof, explain),
        above=report.verdict(proof) + report.failures(proof),
        below=s.listed(proof.assumptions),
    )
    if proof.failed:
        raise typer.Exit(1)


def _seed(given: str | None) -> int:
    """A whole number of at least 0; `UsageError` for anything else."""
    text = "0" if given is None else given.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_SEED_DIGITS):
        raise UsageError(
            f"a seed is a whole number of at least 0, not {text[:60]!r}", where=f"--seed {text[:60]}", hint="--seed 1"
        )
    return int(text)


def _precision(given: str | None) -> Precision:
    from commcalc.simulate.precision import Format, precision_of
    from commcalc.units import Dtype, parse_dtype

    names = {Dtype.FP64: Format.FLOAT64, Dtype.FP32: Format.FLOAT32, Dtype.BF16: Format.BFLOAT16}
    if given is None:
        return precision_of(Format.FLOAT64)
    where = f"--dtype {given[:60]}"
    try:
        kind = parse_dtype(given)
    except CommcalcError:
        raise UnknownName("dtype", given, [*Format], where=where) from None
    if kind not in names:
        raise UsageError(f"{kind} is not simulated", where=where, hint=f"one of {', '.join(Format)}")
    return precision_of(names[kind])


def _refuse(params: Mapping[str, Any], options: Mapping[str, str], why: str, hint: str) -> None:
    given = [
        "--no-regather" if name == "regather" and params[name] is False else option
        for name, option in options.items()
        if _given(name, params)
    ]
    raise_all([UsageError(f"{option} has nothing to act on: {why}", where=option, hint=hint) for option in given])


def _given(name: str, params: Mapping[str, Any]) -> bool:
    """Whether an option was given; `--no-regather` is."""
    value = params.get(name)
    return value not in (None, [], ()) and (value is not False or name == "regather")


def _expression(params: Mapping[str, Any], precision: Precision, seed: int) -> Proof:
    """Every strategy of a product, or every route of a change of sharding."""
    from commcalc.report.verify import Proof
    from commcalc.simulate.products import run_routes, run_strategies

    problem, kind = s.asked(
        {**params, "dtype": None}, pad=bool(params.get("pad")), sub_axes=bool(params.get("sub_axes")), shape=_runnable,
        filled=_smallest,
    )  # fmt: skip
    pricing = Pricing(Fabric(problem.mesh), None, Objective.BYTES)
    said = []
    if problem.expression.products:
        found = answer(problem, pricing, everything=True)
        runs = run_strategies(found, precision, seed, Progress(len(found.strategies), "strategies").at)
    else:
        routes = reshardings(problem, pricing)
        runs = run_routes(routes, precision, seed, Progress(1 + len(routes.alternatives), "routes").at)
        said = ["gradients of a change of sharding are not run: they are changes of sharding too, the other way"]
    used = ", ".join(f"{dim}={size}" for dim, size in problem.sizes.items())
    said = [
        f"sizes: {used}" + ("" if params.get("dim") else "; --dim gives others"),
        f"elements are computed in {precision.format} and counted on the wire in {kind}",
        *(f"{dim} is padded from {old} to {new}" for dim, (old, new) in problem.padding.items()),
        *(["a function is run as tanh, whatever its name"] if _functions(problem.expression) else []),
        *_allowances(runs, precision, gradients=bool(problem.expression.products), steps=False),
        *said,
        *problem.notes,
    ]
    return Proof((), runs, (), precision.format, seed, problem.expression.text, said)


def _allowances(runs: Sequence[Run], precision: Precision, *, gradients: bool, steps: bool) -> list[str]:
    """Which errors were allowed, and where rounding alone makes larger ones."""
    from commcalc.simulate.rounding import ANY

    usual = {"gradient_error": precision.gradient_tolerance, "adam_update_error": precision.adam_tolerance}
    others = []
    if gradients:
        others.append((precision.gradient_tolerance, "the gradient of one weight" if steps else "gradients"))
    if steps:
        others.append((precision.adam_tolerance, "the first step of Adam"))
    told = "".join(f", {size:.2g} of {what}" for size, what in others if size != precision.tolerance)
    said = [f"allowed are relative errors of {precision.tolerance:g}{told}"]
    more: dict[str, float] = {}
    for check in (check for run in runs for check in run.checks if check.most and not check.what.endswith("copies")):
        if check.expected > usual.get(check.what, precision.tolerance):
            more[check.what] = max(check.expected, more.get(check.what, 0.0))
    if more:
        listed = ", ".join(f"{what} {'any' if size >= ANY else f'{size:.2g}'}" for what, size in more.items())
        said.append(f"rounding alone does more than that to this on one device, so that more is allowed: {listed}")
    if max(more.values(), default=0) > _LEFT_OUT:
        said.append(f"a reduction that is left out may make no larger error: in {precision.format} this proves little")
    return said


def _runnable(expression: Expression) -> None:
    if not expression.products and expression.output is None:
        raise UsageError(
            "one tensor alone has nothing to run",
            where=expression.text[:60],
            hint='"A[I, J_X] @ B[J_X, K] -> C[I, K]" or "A[I_X, J] -> A[I, J_X]"',
        )
    if not expression.products:
        s.no_functions(expression, "a change of sharding")


def _functions(expression: Expression) -> bool:
    tensors = any(one.function for one in expression.tensors)
    return tensors or any(times.function for times in expression.products)


def _smallest(mesh: Mapping[str, int]) -> int:
    """A size that splits over all axes together."""
    devices = 1
    for size in mesh.values():
        devices *= size
    return devices if devices > 16 else 2 * devices


def _layouts(params: Mapping[str, Any], precision: Precision, seed: int) -> Proof:
    """Layouts, and where nothing narrows the question collectives too."""
    from commcalc.report.verify import Proof
    from commcalc.simulate.cases import DEGREES, cases, plan_all, run_planned
    from commcalc.simulate.collectives import check_collectives

    names = _named_layouts(params.get("layout"))
    degrees = _degrees(params.get("tp")) or list(DEGREES)
    everything = bool(params.get("all_"))
    narrowed = any(_given(name, params) for name in _OF_LAYOUTS)
    of_a_model = any(_given(name, params) for name in _OF_LAYOUTS if name not in ("layout", "tp"))
    if of_a_model and params.get("layout") is None:  # others run where they are named: many models have no such
        names = [name for name in names if not name.own]
    if of_a_model and everything:
        told = "--all runs architectures of its own, not one model"
        raise UsageError(told, where="--all", hint="leave it out, or name layouts and degrees alone")
    found, said = (
        of_model(params, names, degrees, chosen=params.get("tp") is not None)
        if of_a_model
        else (cases(names, degrees, everything), [])
    )
    runs: list[Run] = []
    planned = plan_all(found)
    progress = Progress(len(planned), "runs")
    for case, ledger in planned:
        runs.append(run_planned(case, ledger, precision, seed))
        progress.at(len(runs))
    collectives = [] if narrowed else check_collectives(_ALL_DEVICES if everything else _DEVICES, seed)
    work = found[0].work
    trained = any(case.work.phase.training for case in found)
    said += [
        f"elements are computed in {precision.format} and counted on the wire in the ledger's types: {work.dtype}, "
        f"gradients of parameters {work.grad_dtype}",
        "rotary and ALiBi positions are left out: they turn or shift what one head has",
        *_simplified([case.model for case in found]),
        *_dealt_out([(case.parallel, case.work) for case in found]),
        "no dropout; the loss is the mean over tokens; one step of SGD, or the first of Adam, from the same weights",
        *_allowances(runs, precision, gradients=trained, steps=trained),
    ]
    return Proof(runs, (), collectives, precision.format, seed, "", said)


def _simplified(models: Sequence[Model]) -> list[str]:
    """What of these models stays inside one head or one token and is left out, and what is said of choices."""
    said = []
    if any(model.sliding_window or model.attention_chunk_size for model in models):
        said.append("windows and chunks are left out: a head looks at the same tokens wherever it is")
    if any(model.linear_attention == "lightning" and model.linear_num_value_heads for model in models):
        said.append("the decay of lightning attention, a constant of each head, is left out")
    if any(model.num_experts for model in models):
        said.append(
            "routers take a softmax over the chosen scores, or the sigmoid of a single one; of experts whose scores "
            "differ by less than the error that is allowed either may be chosen"
        )
    return said


def _dealt_out(plans: Sequence[tuple[Parallelism, Workload]]) -> list[str]:
    """What is said of experts and of sequences that ranks share out."""
    from commcalc.simulate.choices import sends_copies

    said = []
    moved = [(parallel, work) for parallel, work in plans if parallel.moves_tokens]
    if moved:
        said.append(
            "every expert has a row for each token, so that none is left out, or as many as its capacity says: then it "
            "takes the first tokens of each rank; rows without a token are zeros"
        )
    if any(sends_copies(parallel) for parallel, _ in moved):
        said.append(
            "where a token goes once to a rank, each rank has as many tokens for every choice that one may make: "
            "experts are drawn, routers only weigh them"
        )
    if any(work.dispatch_dtype or work.combine_dtype for _, work in moved):
        said.append(
            "what is narrower on its way to experts and back is counted so and keeps its digits; its scales are powers "
            "of two"
        )
    if any(parallel.cp > 1 for parallel, _ in plans):
        said.append(
            "of sequences that are split every rank has an early and a late part, or a run; all send as much as others"
        )
    return said


def _named_layouts(given: str | None) -> list[LayoutName]:
    """The layouts of a list, in any case; `UnknownName` for each that is none."""
    if given is None:
        return [*LayoutName]
    names = [name.strip() for name in given.split(",")]
    where = f"--layout {given[:60]}"
    if "" in names:
        raise UsageError("a name is missing in the list of layouts", where=where, hint="--layout none,megatron")
    known = [*LayoutName, "all"]
    raise_all([UnknownName("layout", name, known, where=where) for name in names if name.casefold() not in known])
    folded = [name.casefold() for name in names]
    return [*LayoutName] if "all" in folded else list(dict.fromkeys(LayoutName(name) for name in folded))


def _degrees(given: str | None) -> list[int] | None:
    if given is None:
        return None
    from commcalc.algebra.mesh import Mesh
    from commcalc.simulate.memory import check_devices

    try:
        found = parse_range(given)
    except CommcalcError as problem:
        problem.where = f"--tp {given[:60]}"
        raise
    problems: list[CommcalcError] = []
    for tp in found:
        try:
            check_devices(Mesh.of({"tp": tp}))
        except CommcalcError as problem:
            problem.where = f"--tp {given[:60]}"
            problems.append(problem)
    raise_all(problems)
    return found
