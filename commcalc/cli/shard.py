"""``commcalc shard``: what one device holds of a tensor."""

import typer

from commcalc.algebra.expression import Expression
from commcalc.algebra.sharding import bytes_per_device, local_shape, replicas, shards
from commcalc.cli import options as o
from commcalc.cli import sharded as s
from commcalc.cli import sizes
from commcalc.cli.output import say
from commcalc.errors import UsageError
from commcalc.report.sharded import Block, shard_document, shard_tables, told_of

EXAMPLES = """\b
Examples:
  commcalc shard "A[I_XY, J]" --mesh X=2,Y=8,Z=2 --dim I=128 --dim J=2048
  commcalc shard "A[B, D]: P('X', 'Y')" --mesh X=4,Y=2 --dim B=8 --dim D=2048
  commcalc shard "A[I_X, J]" --mesh X=3 --dim I=128 --dim J=64 --pad --json
"""


@o.with_examples(EXAMPLES)
def shard(
    ctx: typer.Context,
    expression: s.ExpressionArgument,
    mesh: sizes.MeshOption = None,
    dim: sizes.Dims = None,
    dtype: s.DtypeOption = None,
    pad: s.Pad = False,
    explain: s.Explain = False,
    set_: sizes.SetSizes = None,
    format_: o.FormatOption = None,
    json_: o.Json = False,
    output: o.OutputOption = None,
    no_color: o.NoColor = False,
) -> None:
    """Local shape, bytes and copies of a sharded tensor."""
    style = o.format_from(ctx.params)
    s.check_sizes_only(ctx.params)
    problem, kind = s.asked(ctx.params, pad=pad, sub_axes=False, shape=_one_tensor, planned=False)
    operand = problem.expression.first
    sharding, given, size_of = operand.sharding, problem.given, problem.sizes
    local = local_shape(sharding, size_of, given)
    held = bytes_per_device(sharding, size_of, given, kind.bits)
    block = Block(
        operand.name,
        sharding,
        tuple(size_of[name] for name in sharding.dims),
        local,
        held,
        shards(sharding, given),
        replicas(sharding, given),
        held * given.devices,
        given,
    )
    lines = []
    if explain:
        elements = "*".join(str(size) for size in local) or "1"
        lines = [
            *(
                f"{name}: {size_of[name]} / {given.size(axes)} = {size}"
                for name, axes, size in zip(sharding.dims, sharding.split, local, strict=True)
            ),
            f"bytes per device = {elements} elements * {kind.bits}/8 B = {held:,} B",
            f"replicas = {given.devices} devices / {block.shards} shards"
            + (f" / {given.size(sharding.unreduced)} terms" if sharding.unreduced else "")
            + f" = {block.replicas}",
            f"bytes over all devices = {held:,} * {given.devices} = {block.total_bytes:,} B",
        ]
    for note in told_of(problem):
        say(f"note: {note}")
    s.show(
        ctx.params,
        style,
        lambda: shard_document(block, problem, kind, lines),
        lambda: [block.record()],
        lambda: shard_tables(block),
        below="".join(f"{line}\n" for line in lines),
    )


def _one_tensor(expression: Expression) -> None:
    s.no_functions(expression, "shard")
    if expression.products or expression.output is not None:
        raise UsageError(
            "shard takes one tensor",
            where=expression.text[:60],
            hint="commcalc matmul for a product, commcalc reshard for A[I_X] -> A[I]",
        )
