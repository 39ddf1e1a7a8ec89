"""Which of the four cases a product is, axis by axis, and how its work is divided as it lies.

    1  the axis splits nothing that is summed over                  no communication
    2  it splits a contracted dimension on one side                 gather that side, or slice the other and reduce
    3  it splits the same contracted dimension on both sides        the local product is a pending sum
    4  it splits two dimensions of the output                       gather one side first

Source: How To Scale Your Model, part 3, "Computation With Sharded Arrays".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from commcalc.algebra.planner import Product
from commcalc.algebra.states import State


class AxisCase(NamedTuple):
    """The case of one axis, and why in words."""

    axis: str
    case: int
    why: str


def axis_cases(left: State, product: Product, axes: Sequence[str]) -> list[AxisCase]:
    """The case of every axis that splits an operand; an axis that splits none is not told."""
    mine = _places(left, product.left)
    yours = _places(product.right.state, product.right.dims)
    return [_case(axis, mine.get(axis), yours.get(axis), product) for axis in axes if axis in mine or axis in yours]


def _places(state: State, dims: Sequence[str]) -> dict[str, str]:
    placed = {axis: dim for dim, axes in zip(dims, state.split, strict=True) for axis in axes}
    return placed | dict.fromkeys(state.pending, "the pending sum")


def _case(axis: str, mine: str | None, yours: str | None, product: Product) -> AxisCase:
    right = product.right.name
    if mine is not None and yours is not None:
        if mine != yours:
            shared = [dim for dim in (mine, yours) if dim in product.left and dim in product.right.dims]
            summed = [dim for dim in shared if dim not in product.out]
            why = f"splits {mine} on the left and {yours} of {right}: "
            if summed:
                return AxisCase(axis, 2, f"{why}{summed[0]} is summed over, and split on one side only")
            return AxisCase(axis, 4, f"{why}only the diagonal blocks could be multiplied")
        if mine == "the pending sum":
            return AxisCase(axis, 4, "both sides are pending sums over it, and a product of sums is no sum of products")
        if mine in product.out:
            return AxisCase(axis, 1, f"splits {mine}, which both sides and the output have")
        return AxisCase(axis, 3, f"splits the contracted {mine} on both sides: the local product is a pending sum")
    place = mine if mine is not None else yours
    side = "the left side" if mine is not None else right
    if place in product.left and place in product.right.dims:
        if place in product.out:
            return AxisCase(axis, 1, f"splits {place} of {side}; the other side is sliced for free")
        return AxisCase(axis, 2, f"splits the contracted {place} of {side} only")
    if place == "the pending sum":
        return AxisCase(axis, 1, f"{side} is a pending sum over it, and so is the local product")
    if place not in product.out:
        return AxisCase(axis, 3, f"splits {place} of {side}, which is summed over: the local product is a pending sum")
    return AxisCase(axis, 1, f"splits {place} of {side}, which is not summed over")


def divided(left: State, product: Product, wanted: State | None, axes: Mapping[str, int]) -> set[str]:
    """The axes over which the work is divided as everything lies.

    Such an axis splits one dimension, in the same way in every tensor that has it; only the output may leave it whole.
    A plan that multiplies along it undivided does extra FLOPs.
    """
    where = {dim: set[tuple[str, ...]]() for dim in dict.fromkeys((*product.left, *product.right.dims))}
    for dims, state in ((product.left, left), (product.right.dims, product.right.state)):
        for dim, split in zip(dims, state.split, strict=True):
            where[dim].add(split)
    spread: dict[str, set[str]] = {}
    for dim, splits in where.items():
        for axis in {axis for split in splits for axis in split}:
            spread.setdefault(axis, set()).add(dim)
    if wanted is not None:
        for dim, split in zip(product.out, wanted.split, strict=True):
            if split:
                where[dim].add(split)
            for axis in split:
                spread.setdefault(axis, set()).add(dim)
    return {
        axis
        for axis, dims in spread.items()
        if axis in axes
        and len(dims) == 1
        and all(len(where[dim]) == 1 and axis in next(iter(where[dim])) for dim in dims)
    }
