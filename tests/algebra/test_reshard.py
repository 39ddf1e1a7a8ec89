"""Collectives from one sharding to another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.algebra.collective import Kind
from commcalc.algebra.notation import parse_tensor
from commcalc.algebra.reshard import reshard
from commcalc.algebra.sharding import Sharding
from commcalc.errors import ShardingError

# How To Scale Your Model, part 3, section "Core communication primitives", and what XLA issues for these.
CASES = [
    ("A[I, J]", "A[I, J]", []),
    ("A[I_X, J]", "A[I, J]", ["all_gather"]),
    ("A[I, J]", "A[I_X, J]", ["slice"]),
    ("A[I, J]{U_X}", "A[I, J]", ["all_reduce"]),
    ("A[I, J]{U_X}", "A[I, J_X]", ["reduce_scatter"]),
    ("A[I_X, J]", "A[I, J_X]", ["all_to_all"]),
    ("A[I, J]{U_XY}", "A[I, J]", ["all_reduce"]),
    ("A[I_XY, J]", "A[I, J]", ["all_gather"]),
    ("A[I_X, J]{U_Y}", "A[I_X, J]", ["all_reduce"]),
    ("A[I_X, J]{U_Y}", "A[I, J_Y]", ["reduce_scatter", "all_gather"]),
    ("A[I_X, J]", "A[I, J_Y]", ["slice", "all_gather"]),
]


def sharding(text: str) -> Sharding:
    return parse_tensor(text, "XY")[1]


@pytest.mark.parametrize(("before", "after", "kinds"), CASES)
def test_steps(before: str, after: str, kinds: list[str]) -> None:
    steps = reshard(sharding(before), sharding(after))
    assert [step.kind.value for step in steps] == kinds
    assert (steps[-1].after if steps else sharding(before)) == sharding(after)


def test_axes_that_go_together_go_in_one_collective() -> None:
    (step,) = reshard(sharding("A[I_XY, J]"), sharding("A[I, J]"))
    assert step.axes == ("X", "Y")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("A[I, J]", "A[I, J]{U_X}", "cannot become a pending sum"),
        ("A[I, J]", "A[J, I]", "are not the same tensor"),
        ("A[I_XY, J]", "A[I_YX, J]", "exchanging the order of axes"),
    ],
)
def test_refusals(before: str, after: str, message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        reshard(sharding(before), sharding(after))


@given(st.sampled_from("IJ "), st.sampled_from("IJU "), st.sampled_from("IJ "), st.sampled_from("IJU "))
def test_every_step_starts_where_the_last_ended(x_to: str, x_from: str, y_to: str, y_from: str) -> None:
    def made(x: str, y: str) -> Sharding:
        axes = {dim: tuple(axis for axis, at in (("X", x), ("Y", y)) if at == dim) for dim in "IJ"}
        return Sharding.of("IJ", axes, [axis for axis, at in (("X", x), ("Y", y)) if at == "U"])

    before, after = made(x_from, y_from), made(x_to, y_to)
    try:
        steps = reshard(before, after)
    except ShardingError:
        return
    now = before
    for step in steps:
        assert step.before == now
        now = step.after
    assert now == after
    assert all(step.kind is not Kind.ALL_REDUCE or set(step.axes) <= set(before.unreduced) for step in steps)
