"""The four cases of a sharded product (How To Scale Your Model, part 3), with the book's examples."""

from __future__ import annotations

import pytest

from commcalc.algebra.contraction import case, conflicts, product_sharding
from commcalc.algebra.notation import format_tensor, parse_tensor

# left, right, output dimensions, the case, and the local product where one can be formed.
CASES = [
    ("A[I_X, J]", "B[J, K_Y]", "IK", 1, "C[I_X, K_Y]"),
    ("A[I, J]", "B[J, K]", "IK", 1, "C[I, K]"),
    ("A[I, J_X]", "B[J, K]", "IK", 2, None),
    ("A[I, J]", "B[J_X, K]", "IK", 2, None),
    ("A[I, J_X]", "B[J_X, K]", "IK", 3, "C[I, K]{U_X}"),
    ("A[I_Y, J_X]", "B[J_X, K]", "IK", 3, "C[I_Y, K]{U_X}"),
    ("A[I, J_XY]", "B[J_XY, K]", "IK", 3, "C[I, K]{U_{XY}}"),
    ("A[I_X, J]", "B[J, K_X]", "IK", 4, None),
    ("A[I, J]{U_X}", "B[J, K]", "IK", 3, "C[I, K]{U_X}"),
    ("A[I, J]{U_X}", "B[J, K_X]", "IK", 4, None),
    ("A[I, J]{U_X}", "B[J, K]{U_X}", "IK", 4, None),
    ("A[B_X, I, J]", "B[B_X, J, K]", "BIK", 1, "C[B_X, I, K]"),
    ("A[I, J_X]", "B[J_Y, K]", "IK", 2, None),
]


@pytest.mark.parametrize(("left", "right", "dims", "which", "product"), CASES)
def test_case(left: str, right: str, dims: str, which: int, product: str | None) -> None:
    a, b = parse_tensor(left, "XY")[1], parse_tensor(right, "XY")[1]
    assert case(a, b, tuple(dims)) == which
    assert bool(conflicts(a, b)) == (product is None)
    if product is not None:
        assert format_tensor("C", product_sharding(a, b, tuple(dims))) == product


def test_a_product_is_the_same_from_either_side() -> None:
    for left, right, dims, which, _ in CASES:
        a, b = parse_tensor(left, "XY")[1], parse_tensor(right, "XY")[1]
        assert case(b, a, tuple(dims)) == which
