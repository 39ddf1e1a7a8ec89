"""``commcalc reshard``: the cheapest way from one sharding of a tensor to another."""

import typer

from commcalc.accounting.products import Pricing
from commcalc.accounting.resharding import reshardings
from commcalc.algebra.expression import Expression
from commcalc.cli import options as o
from commcalc.cli import sharded as s
from commcalc.cli import sizes
from commcalc.cli.output import say
from commcalc.errors import NotationError, UsageError
from commcalc.report.reshard import reshard_document, reshard_explanation, reshard_tables, route_record
from commcalc.report.sharded import told_of

EXAMPLES = """\b
Examples:
  commcalc reshard "A[I_X, J] -> A[I, J_X]" --mesh X=4 --dim I=1K --dim J=4K
  commcalc reshard "C[I, K]{U_X} -> C[I_X, K]" --mesh X=8 --dim I=8K,K=8K
  commcalc reshard "P('X', 'Y') -> P('Y', 'X')" --mesh X=4,Y=2 --dim I=8,J=8
  commcalc reshard "A[I_X] -> A[I]" --mesh X=8 --dim I=8K --hardware h100
"""


@o.with_examples(EXAMPLES)
def reshard(
    ctx: typer.Context,
    expression: s.ExpressionArgument,
    mesh: sizes.MeshOption = None,
    dim: sizes.Dims = None,
    dtype: s.DtypeOption = None,
    pad: s.Pad = False,
    sub_axes: s.SubAxes = False,
    minimize: s.Minimize = None,
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
    """The cheapest collectives from one sharding to another."""
    style, written = o.format_from(ctx.params), s.style_from(ctx.params)
    links = s.links_of(ctx.params)
    problem, kind = s.asked(ctx.params, pad=pad, sub_axes=sub_axes, shape=_two_shardings)
    pricing = Pricing(*s.priced_by(problem, links, minimize, kind))
    found = reshardings(problem, pricing)
    said = (*s.assumed(problem, links, kind), *s.told_of_bills(found.best.steps))
    for note in told_of(problem):
        say(f"note: {note}")
    s.show(
        ctx.params,
        style,
        lambda: reshard_document(found, kind, said, written),
        lambda: [route_record(route, found, written) for route in (found.best, *found.alternatives)],
        lambda: reshard_tables(found, written),
        below=(reshard_explanation(found) + "\n" if explain else "") + s.listed(said),
    )


def _two_shardings(expression: Expression) -> None:
    s.no_functions(expression, "reshard")
    if expression.products or expression.output is None:
        raise UsageError(
            "reshard takes one tensor before and after an arrow",
            where=expression.text[:60],
            hint='"A[I_X, J] -> A[I, J_X]"; commcalc matmul for a product',
        )
    dims = expression.first.sharding.dims
    for station in expression.stations[1:]:
        if station.sharding.dims != dims:
            raise NotationError(
                f"{station.name} has dimensions [{', '.join(station.sharding.dims)}], and {expression.first.name} "
                f"[{', '.join(dims)}]: a reshard keeps the dimensions and their order",
                source=expression.text,
                span=station.span,
            )
