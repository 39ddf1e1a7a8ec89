"""``commcalc matmul``: every way to run a sharded product, or a chain of them, and the best."""

from typing import Annotated

import typer

from commcalc.accounting.advice import advice, primitives
from commcalc.accounting.products import Answer, Overlap, Pricing, answer, moved
from commcalc.accounting.turning_points import balances, flips
from commcalc.algebra.expression import Expression
from commcalc.algebra.gradient import gradient
from commcalc.cli import options as o
from commcalc.cli import sharded as s
from commcalc.cli import sizes
from commcalc.errors import UsageError
from commcalc.report.matmul import (
    Told,
    matmul_document,
    matmul_explanation,
    matmul_tables,
    matmul_text,
    strategy_record,
)
from commcalc.units import Dtype

EXAMPLES = """\b
Examples:
  commcalc matmul "A[I,J_X] @ B[J,K] -> C[I,K]" --mesh X=4 --dim I=8,J=8,K=8
  commcalc matmul "A[I_X, J] @ B[J, K_X]" --mesh X=4 --dim I=64,J=64,K=64
  commcalc matmul "A[I_X,J] @ B[J,K]" --mesh X=8 --dim I=8K,J=8K,K=8K --grad
  commcalc matmul "f(A[B,D]@V[D,F_X])@W[F_X,D]" --mesh X=8 --dim B=8,D=8,F=8
"""


@o.with_examples(EXAMPLES)
def matmul(
    ctx: typer.Context,
    expression: s.ExpressionArgument,
    mesh: sizes.MeshOption = None,
    dim: sizes.Dims = None,
    dtype: s.DtypeOption = None,
    pad: s.Pad = False,
    sub_axes: s.SubAxes = False,
    minimize: s.Minimize = None,
    overlap: Annotated[
        o.Text,
        typer.Option("--overlap", metavar="HOW", help="none, full or collective-matmul [none].", show_default=False),
    ] = None,
    no_extra_flops: Annotated[
        bool, typer.Option("--no-extra-flops", help="Keep the work as divided as it lies.", show_default=False)
    ] = False,
    no_communication: Annotated[
        bool, typer.Option("--no-communication", help="Refuse whatever moves data (status 3).", show_default=False)
    ] = False,
    grad: Annotated[
        bool, typer.Option("--grad", help="Add the backward pass of the best.", show_default=False)
    ] = False,
    all_: Annotated[
        bool, typer.Option("--all", help="List strategies that others beat too.", show_default=False)
    ] = False,
    hardware: o.Hardware = None,
    shape: sizes.Shape = None,
    bandwidth: o.Bandwidth = None,
    latency: o.Latency = None,
    algorithm: o.AlgorithmOption = None,
    convention: o.ConventionOption = None,
    explain: s.Explain = False,
    notation: s.Notation = None,
    set_: sizes.SetLinks = None,
    format_: o.FormatOption = None,
    json_: o.Json = False,
    output: o.OutputOption = None,
    no_color: o.NoColor = False,
) -> None:
    """Every way to run a sharded matmul, and the cheapest."""
    style, written = o.format_from(ctx.params), s.style_from(ctx.params)
    how = Overlap(s.one_of("--overlap", overlap, [*Overlap]) or "none")
    links = s.links_of(ctx.params)
    problem, kind = s.asked(ctx.params, pad=pad, sub_axes=sub_axes, shape=_a_product)
    pricing = Pricing(*s.priced_by(problem, links, minimize, kind), overlap=how)
    if how is not Overlap.NONE and pricing.peak is None:
        raise UsageError(
            "an overlap needs the time of compute", where=f"--overlap {how}",
            hint=f"--hardware h100, or a machine whose chip.flops has {kind}",
        )  # fmt: skip
    found = answer(
        problem, pricing, extra_flops=not no_extra_flops, communication=not no_communication, everything=all_
    )
    said = (*s.assumed(problem, links, kind, multiplied=True), *s.told_of_bills(found.best.steps))
    told = _told(found, kind, (*said, *([f"gradients move in {kind}, as their tensors"] if grad else [])), grad=grad)
    s.show(
        ctx.params,
        style,
        lambda: matmul_document(found, told, written),
        lambda: [strategy_record(one, found, written) for one in found.strategies],
        lambda: matmul_tables(found, told, written),
        above=matmul_text(found, told),
        below=(matmul_explanation(found, told) + "\n" if explain else "") + s.listed(told.assumptions),
    )


def _told(found: Answer, kind: Dtype, assumptions: tuple[str, ...], *, grad: bool) -> Told:
    backward, flops = None, 0
    if grad:
        back = gradient(found.found.planner.chain, found.best.plan, found.pricing.cost)
        backward = [stage for event in back.moves for stage in moved(found.problem, found.pricing.fabric, event)]
        flops = back.flops
    return Told(flips(found), balances(found), advice(found), primitives(found), backward, flops, kind, assumptions)


def _a_product(expression: Expression) -> None:
    if not expression.products:
        raise UsageError(
            "matmul takes a product of tensors",
            where=expression.text[:60],
            hint='"A[I, J_X] @ B[J_X, K] -> C[I, K]"; commcalc reshard for A[I_X] -> A[I]',
        )
