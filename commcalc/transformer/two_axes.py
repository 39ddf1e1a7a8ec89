"""The layout ``2d``: TP ranks as a grid, weights split over both of its axes, activations moved along both.

    weights       D over tp_x, heads, columns and vocabulary over tp_y
    the stream    D over both
    heads and     over both, tp_y first: what a product leaves is a sum over tp_x, scattered over its own columns
    columns

So the input of a product is gathered over tp_y, its output scattered over tp_x, and the projection back does the same
the other way round. Source: Pope et al. 2022, arXiv:2211.05102, section 3.2.2 and figure 2b.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt, log

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.program import Builder, Role, Rule
from commcalc.errors import ShardingError
from commcalc.transformer.layout import TP, Layout, LayoutName, kv_counts, splits
from commcalc.transformer.spec import Model, Norm
from commcalc.transformer.work import Parallelism

# The axes of the grid, and the part of either whose ranks hold the same KV heads.
TP_X, TP_Y = "tp_x", "tp_y"
TP_X_REPLICA, TP_Y_REPLICA = "tp_x_replica", "tp_y_replica"
# F over D of the models of the paper, where a model does not give both.
_USUAL_WIDTH = 4


def grid_of(model: Model, parallel: Parallelism) -> tuple[int, int]:
    """Ranks along tp_x and tp_y: those asked for, or of the factors of the degree the nearest to the optimum.

    The gathers of a layer hold D/x and F/y of each token, and move least where both are equal: x = sqrt(n D / F), for
    F = 4 D half the square root of n (section 3.2.2). Factors that let KV heads be shared come first.
    """
    tp = parallel.tp
    if parallel.tp_x is not None:
        return parallel.tp_x, tp // parallel.tp_x
    wide, narrow = model.intermediate_size or 0, model.hidden_size or 0
    best = log(tp / (wide / narrow if wide and narrow else _USUAL_WIDTH)) / 2
    heads = kv_counts(model)
    found = min(
        factors(tp),
        key=lambda x: (not all(shared(count, x, tp // x) for count in heads.values()), abs(log(x) - best), -x),
    )
    return found, tp // found


def factors(degree: int) -> list[int]:
    """The numbers that divide a degree, in order.

    >>> factors(12)
    [1, 2, 3, 4, 6, 12]
    """
    low = [n for n in range(1, isqrt(degree) + 1) if degree % n == 0]
    return low + [degree // n for n in reversed(low) if n * n != degree]


def shared(heads: int, x: int, y: int) -> bool:
    """Whether so many KV heads go into the ranks of a grid, or these into them: tp_y first, then tp_x."""
    inner = heads % y == 0 or y % heads == 0
    return inner and (heads % (x * y) == 0 or (x * y) % heads == 0)


def lay_out_2d(mesh: Mesh, kv_heads: Mapping[str, int], grid: tuple[int, int], data: tuple[str, ...]) -> Layout:
    """The layout on ``mesh``, its TP axis seen as ``grid``; whether the degrees are legal is for others to say."""
    (x, y), fewer = grid, sorted({heads for heads in kv_heads.values() if heads % (grid[0] * grid[1])})
    if len(fewer) > 1 or not all(shared(heads, x, y) for heads in fewer):
        raise ShardingError(f"{' and '.join(map(str, fewer))} KV heads cannot be shared by {x} x {y} ranks")
    heads = fewer[0] if fewer else x * y
    # KV heads on either axis: all that there are along tp_y first, the others along tp_x.
    along_y, along_x = min(heads, y), max(heads // y, 1)
    parts_x = {TP_X: along_x, TP_X_REPLICA: x // along_x} if 1 < along_x < x else {TP_X: x}
    parts_y = {TP_Y: along_y, TP_Y_REPLICA: y // along_y} if 1 < along_y < y else {TP_Y: y}
    mesh, over_x, over_y = mesh.divide(TP, parts_x | parts_y), tuple(parts_x), tuple(parts_y)
    weights = {dim: over_x if dim == "D" else over_y for dim in splits(LayoutName.TWO_D)[0]}
    columns = {dim: (*over_y, *over_x) for dim in weights if dim != "D"}
    for dim, count in kv_heads.items():
        if count in fewer:
            weights[dim] = (TP_Y,) if along_y > 1 else ()
            columns[dim] = (*weights[dim], *((TP_X,) if along_x > 1 else ()))
    stream = {"T": data, "B": data, "D": (*over_x, *over_y)}
    return Layout(LayoutName.TWO_D, mesh, weights, stream, data=data, columns=columns)


def norm_by_sums(b: Builder, model: Model, layout: Layout, name: str, x: str, output: str) -> str:
    """A normalisation of ``x[T, D]`` where no rank has all of D: its sums go round, two numbers of a token."""
    root = model.norm is Norm.RMSNORM
    sums, made = ("T",) if root else ("T", "SUMS"), f"{output}_sums"
    weights = [b.weight(f"g_{name}", layout.vector("D"))]
    if model.norm is Norm.LAYERNORM:
        weights.append(b.weight(f"b_{name}", layout.vector("D")))
    label = f"{name}_norm"
    b.op(
        Rule.REDUCE, f"{name}_sums", (x,), made, sums, label=label, role=Role.FP32, over=("D",),
        kept=layout.whole(*sums), function="squares" if root else "moments",
    )  # fmt: skip
    return b.op(
        Rule.POINTWISE, label, (x, made), output, ("T", "D"), weights=tuple(weights), label=label,
        function="rmsnorm_by_sums" if root else "layernorm_by_sums",
    )  # fmt: skip
