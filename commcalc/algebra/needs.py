"""What an operation needs of the shardings of its operands, and how its output then lies: a function for each rule."""

from collections.abc import Callable

from commcalc.algebra.contraction import conflicts, product_sharding
from commcalc.algebra.program import Op, Rule
from commcalc.algebra.sharding import Sharding
from commcalc.errors import ShardingError

_Needs = Callable[[Op, list[Sharding], tuple[Sharding, ...]], list[Sharding]]


def _need_product(op: Op, inputs: list[Sharding], weights: tuple[Sharding, ...]) -> list[Sharding]:
    """Activations are brought to the weights: what conflicts with a weight is gathered, or reduced."""
    needs = list(inputs)
    for weight in weights:
        while found := conflicts(needs[0], weight):
            needs[0] = _freed(op, needs[0], found[0].axis)
    return needs


def _freed(op: Op, sharding: Sharding, axis: str) -> Sharding:
    """``sharding`` without ``axis``: reduced, or gathered together with the axes that split the dimension further."""
    if axis in sharding.unreduced:
        return sharding.reduced([name for name in sharding.unreduced if name != axis])
    if axis not in sharding.placed:
        raise ShardingError(
            f"{op.name}: a weight is split over {axis} on a dimension that the activation holds whole",
            hint="store the weight whole over that axis, or split the activation as well",
        )
    dim = sharding.placed[axis]
    held = sharding.axes_of(dim)
    return sharding.with_dim(dim, held[: held.index(axis)])


def _need_same(op: Op, inputs: list[Sharding], weights: tuple[Sharding, ...]) -> list[Sharding]:
    """Terms of a sum lie alike; the sum stays pending only where every term is."""
    pending = {sharding.unreduced for sharding in inputs}
    if len(pending) == 1 and len({sharding.split for sharding in inputs}) == 1:
        return inputs
    target = next((sharding for sharding in inputs if not sharding.unreduced), inputs[0].reduced())
    return [target] * len(inputs)


def _need_whole(op: Op, inputs: list[Sharding], weights: tuple[Sharding, ...]) -> list[Sharding]:
    """No pending sum, and the dimensions ``over`` whole."""
    needs = []
    for sharding in inputs:
        need = sharding.reduced()
        for dim in op.over:
            need = need.with_dim(dim, [axis for axis in need.axes_of(dim) if axis in op.data])
        needs.append(need)
    return needs


def _need_attended(op: Op, inputs: list[Sharding], weights: tuple[Sharding, ...]) -> list[Sharding]:
    """Queries as they lie, what they look at whole."""
    return [inputs[0].reduced(), *_need_whole(op, inputs[1:], weights)]


def _need_unpended(op: Op, inputs: list[Sharding], weights: tuple[Sharding, ...]) -> list[Sharding]:
    """No pending sum; dimensions stay split."""
    return [sharding.reduced() for sharding in inputs]


def _need_regrouped(op: Op, inputs: list[Sharding], weights: tuple[Sharding, ...]) -> list[Sharding]:
    """What is put in another order stays as it is, a pending sum too; what says where to is whole."""
    return [inputs[0], *(sharding.reduced() for sharding in inputs[1:])]


def _need_routed(op: Op, inputs: list[Sharding], weights: tuple[Sharding, ...]) -> list[Sharding]:
    """Tokens as a product needs them, and their choices of the same tokens."""
    (rows,) = _need_product(op, inputs[:1], weights[:1])
    return [rows, _alike(inputs[1], rows)]


def _need_weighed(op: Op, inputs: list[Sharding], weights: tuple[Sharding, ...]) -> list[Sharding]:
    """What is weighed stays as it is, a pending sum too; its weights are whole, and of the same tokens."""
    return [inputs[0], _alike(inputs[1], inputs[0])]


def _alike(sharding: Sharding, other: Sharding) -> Sharding:
    """``sharding`` reduced, and split as ``other`` along the dimensions that both have."""
    found = sharding.reduced()
    for dim in sharding.dims:
        if dim in other.dims:
            found = found.with_dim(dim, other.axes_of(dim))
    return found


NEEDS: dict[Rule, _Needs] = {
    Rule.CONTRACT: _need_product,
    Rule.LOOKUP: _need_unpended,
    Rule.ADD: _need_same,
    Rule.BIAS: _need_unpended,
    Rule.NORM: _need_whole,
    Rule.POINTWISE: _need_unpended,
    Rule.ATTEND: _need_attended,
    Rule.SCAN: _need_whole,
    Rule.REDUCE: _need_unpended,
    Rule.TAKE: _need_whole,
    Rule.ROUTE: _need_routed,
    Rule.REGROUP: _need_regrouped,
    Rule.SHARE: _need_unpended,
    Rule.WEIGH: _need_weighed,
}


def output(
    op: Op, dims: tuple[str, ...], inputs: list[Sharding], weights: tuple[Sharding, ...], kept: Sharding | None
) -> Sharding:
    """How the output lies before any reshard."""
    if op.rule in (Rule.CONTRACT, Rule.ROUTE):
        return product_sharding(inputs[0], weights[0], dims)
    if op.rule is Rule.LOOKUP:  # each device finds the rows it has, as if its one-hot columns were split alike
        table = {dim: weights[0].axes_of(dim) for dim in op.over}
        rows = Sharding.of((*inputs[0].dims, *op.over), table | {d: inputs[0].axes_of(d) for d in inputs[0].dims})
        return product_sharding(rows, weights[0], dims)
    if op.rule in (Rule.TAKE, Rule.REGROUP, Rule.SHARE):
        if kept is None:
            raise ShardingError(f"{op.name}: the layout does not say which part of {op.output} a device takes")
        return kept
    first = inputs[0]
    if op.rule is Rule.REDUCE:
        gone = [axis for dim in op.over for axis in first.axes_of(dim)]
        return Sharding.of(dims, {dim: first.axes_of(dim) for dim in dims}, gone)
    if op.rule is Rule.WEIGH:
        return Sharding.of(dims, {dim: first.axes_of(dim) for dim in dims}, first.unreduced)
    held = {dim: next((one.axes_of(dim) for one in inputs if dim in one.dims), ()) for dim in dims}
    return Sharding.of(dims, held, first.unreduced)
