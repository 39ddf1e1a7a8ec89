"""What a sharding may be, and what each device then holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.notation import parse_tensor
from commcalc.algebra.sharding import Sharding, bytes_per_device, local_shape, replicas, shards
from commcalc.errors import ShardingError

MESH = Mesh.of({"X": 4, "Y": 2})


@pytest.mark.parametrize("text", ["A[I_X, J_X]", "A[I_XY, J_Y]", "A[I_X, J]{U_X}", "A[I_XX, J]"])
def test_an_axis_is_spent_once(text: str) -> None:
    with pytest.raises(ShardingError, match="is used twice in one tensor"):
        parse_tensor(text, "XY")


def test_the_reason_names_both_places_and_the_way_out() -> None:
    with pytest.raises(ShardingError) as refused:
        Sharding(("I", "J"), (("X",), ("X",)))
    assert refused.value.message == "axis X is used twice in one tensor: on I and on J"
    assert "only the diagonal blocks could be held" in str(refused.value.hint)
    assert refused.value.status == 3


def test_a_size_that_does_not_divide_names_the_remainder() -> None:
    with pytest.raises(ShardingError, match="dimension I of size 10 does not split 4 ways: 10 mod 4 = 2") as refused:
        local_shape(Sharding(("I",), (("X",),)), {"I": 10}, MESH)
    assert refused.value.hint == "the nearest sizes that divide are 8 and 12"


@pytest.mark.parametrize(
    ("text", "state"), [("A[I, J]", "replicated"), ("A[I_X, J]", "sharded"), ("A[I, J]{U_X}", "partial")]
)
def test_state(text: str, state: str) -> None:
    assert parse_tensor(text, "XY")[1].state() == state


def test_order_of_the_pending_sum_does_not_matter() -> None:
    assert Sharding(("I",), ((),), ("Y", "X")) == Sharding(("I",), ((),), ("X", "Y"))


@given(st.integers(1, 8), st.integers(1, 8), st.sampled_from(["A[I, J]", "A[I_X, J]", "A[I_XY, J]", "A[I_X, J_Y]"]))
def test_all_devices_together_hold_every_block_replicas_times(rows: int, columns: int, text: str) -> None:
    _, sharding = parse_tensor(text, "XY")
    sizes = {"I": 8 * rows, "J": 2 * columns}
    whole = 8 * rows * 2 * columns
    each = bytes_per_device(sharding, sizes, MESH, 8)
    assert each * MESH.devices == whole * replicas(sharding, MESH)
    assert each * shards(sharding, MESH) == whole
    assert sharding.local_size(8).value(sizes | MESH.sizes) == each
