"""A product of two sharded tensors: what the local product gives, and where none can be formed.

The four cases of the scaling book, for one contracted dimension J (Source: How To Scale Your Model, part 3):

    1  J split on neither side                   no communication
    2  J split on one side only                  gather that side, or slice the other and reduce
    3  J split on both sides over the same axes  the local product is a pending sum
    4  one axis on two dimensions of the output  illegal: gather one side first
"""

from collections.abc import Sequence
from typing import NamedTuple

from commcalc.algebra.sharding import Sharding


class Conflict(NamedTuple):
    """An axis that keeps the local product from being formed: what it splits on either side."""

    axis: str
    left: str
    right: str
    case: int


def conflicts(left: Sharding, right: Sharding) -> list[Conflict]:
    """The axes over which ``left`` and ``right`` cannot be multiplied as they lie; empty where they can.

    >>> X = Sharding(("T", "D"), (("tp",), ()))
    >>> conflicts(X, Sharding(("D", "F"), ((), ("tp",))))
    [Conflict(axis='tp', left='T', right='F', case=4)]
    """
    found = []
    for axis, dim in left.placed.items():
        other = right.placed.get(axis)
        if axis in right.unreduced:
            found.append(Conflict(axis, dim, "the pending sum", 4))
        elif other is None and dim in right.dims:
            found.append(Conflict(axis, dim, "nothing", 2))
        elif other is not None and other != dim:
            found.append(Conflict(axis, dim, other, 2 if dim in right.dims or other in left.dims else 4))
    for axis in left.unreduced:
        if axis in right.unreduced:  # a product of sums is no sum of products
            found.append(Conflict(axis, "the pending sum", "the pending sum", 4))
    for axis, dim in right.placed.items():
        if axis in left.unreduced:
            found.append(Conflict(axis, "the pending sum", dim, 4))
        elif axis not in left.placed and dim in left.dims:
            found.append(Conflict(axis, "nothing", dim, 2))
    return found


def product_sharding(left: Sharding, right: Sharding, dims: Sequence[str]) -> Sharding:
    """The sharding of the local product with output ``dims``; the operands must be free of `conflicts`.

    Contracted dimensions that are split leave a pending sum over their axes; a pending sum of an operand stays.

    >>> Z, W = Sharding(("T", "F"), ((), ("tp",))), Sharding(("F", "D"), (("tp",), ()))
    >>> product_sharding(Z, W, ("T", "D"))
    Sharding(dims=('T', 'D'), split=((), ()), unreduced=('tp',))
    """
    placed = left.placed | right.placed
    pending = [axis for axis, dim in placed.items() if dim not in dims]
    pending += [axis for axis in (*left.unreduced, *right.unreduced) if axis not in pending]
    axes = {dim: left.axes_of(dim) or right.axes_of(dim) for dim in dims}
    return Sharding.of(dims, axes, pending)


def case(left: Sharding, right: Sharding, dims: Sequence[str]) -> int:
    """Which of the four cases the product is; with several axes the one that costs most to resolve."""
    found = [conflict.case for conflict in conflicts(left, right)]
    if found:
        return max(found)
    return 3 if product_sharding(left, right, dims).unreduced else 1
