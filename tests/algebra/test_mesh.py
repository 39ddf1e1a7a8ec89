"""Axes, rank groups, and an axis seen as two."""

from __future__ import annotations

import pytest

from commcalc.algebra.mesh import Mesh
from commcalc.errors import ShardingError, UnknownName

MESH = Mesh.of({"pp": 2, "dp": 2, "tp": 4})


def test_groups_by_rank_in_row_major_order() -> None:
    assert MESH.groups(["tp"]) == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15)]
    assert MESH.groups(["dp"])[0] == (0, 4)
    assert MESH.groups(["pp"])[-1] == (7, 15)
    assert MESH.groups(["dp", "tp"])[0] == tuple(range(8))


def test_every_rank_is_in_one_group_of_each_axis() -> None:
    for axes in (["tp"], ["dp"], ["pp"], ["pp", "tp"]):
        groups = MESH.groups(axes)
        assert sorted(rank for group in groups for rank in group) == list(range(16))
        assert {len(group) for group in groups} == {MESH.size(axes)}


@pytest.mark.parametrize(("axis", "stride"), [("tp", 1), ("dp", 4), ("pp", 8)])
def test_stride(axis: str, stride: int) -> None:
    assert MESH.stride(axis) == stride
    first, second = MESH.groups([axis])[0][:2]
    assert second - first == stride


def test_a_divided_axis_keeps_devices_and_ranks() -> None:
    divided = MESH.divide("tp", {"a": 2, "b": 2})
    assert divided.devices == 16
    assert divided.groups(["tp"]) == MESH.groups(["tp"])
    assert divided.groups(["b"])[0] == (0, 1)
    assert divided.groups(["a"])[0] == (0, 2)
    assert (divided.label(["a", "b"]), divided.label(["a"]), divided.owner("b")) == (("tp",), ("a",), "tp")
    assert divided.expand(["dp", "tp"]) == ("dp", "a", "b")
    assert divided.stride("tp") == 1


def test_a_wrong_division_is_refused() -> None:
    with pytest.raises(ShardingError, match="is no product of"):
        MESH.divide("tp", {"a": 3, "b": 2})


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ShardingError, match="axis X has size 0"):
        Mesh.of({"X": 0})


def test_an_unknown_axis_is_named() -> None:
    with pytest.raises(UnknownName, match="unknown mesh axis 'tpp'"):
        MESH.size(["tpp"])
