"""Where a group lies: every answer checked by laying the ranks out one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.algebra.mesh import Mesh
from commcalc.errors import IllegalDegree, UsageError
from commcalc.network.link import Level, Network
from commcalc.network.placement import place, place_axes

TWO = Network((Level(name="nvlink", bandwidth=450e9, devices=8), Level(name="infiniband", bandwidth=50e9)))
THREE = Network(
    (
        Level(name="nvlink", bandwidth=450e9, devices=8),
        Level(name="rail", bandwidth=50e9, devices=64),
        Level(name="spine", bandwidth=25e9),
    )
)


@pytest.mark.parametrize(
    ("size", "stride", "parts"),
    [
        (8, 1, ((0, 8),)),
        (4, 1, ((0, 4),)),
        (4, 2, ((0, 4),)),
        (16, 1, ((0, 8), (1, 2))),
        (64, 1, ((0, 8), (1, 8))),
        (2, 8, ((1, 2),)),
        (4, 4, ((0, 2), (1, 2))),
        (16, 16, ((1, 16),)),
    ],
)
def test_even_groups(size: int, stride: int, parts: tuple[tuple[int, int], ...]) -> None:
    found = place(size, stride, TWO)
    assert (found.parts, found.uneven) == (parts, False)


def test_three_levels() -> None:
    assert place(128, 1, THREE).parts == ((0, 8), (1, 8), (2, 2))
    assert place(16, 8, THREE).parts == ((1, 8), (2, 2))


@pytest.mark.parametrize(("size", "channels"), [(12, 4), (6, 2), (10, 2), (9, 1)])
def test_uneven_groups_are_one_flat_part(size: int, channels: int) -> None:
    found = place(size, 1, TWO)
    assert (found.uneven, found.parts, found.channels) == (True, ((1, size),), channels)


def test_a_group_of_one_lies_nowhere_in_particular() -> None:
    assert place(1, 1, TWO).parts == ((0, 1),)


def test_a_group_larger_than_the_network_is_refused() -> None:
    alone = Network((TWO.levels[0],))
    with pytest.raises(IllegalDegree, match="a group of 16 ranks, 1 apart, does not fit in the network") as refused:
        place(16, 1, alone)
    assert refused.value.status == 3
    with pytest.raises(IllegalDegree, match="outermost level nvlink joins 8 devices"):
        place(12, 1, alone)


def patterns(size: int, stride: int, devices: int, blocks: int) -> list[list[int]]:
    """Members by domain of every group of ``blocks`` blocks, each rank laid out."""
    found = []
    for block in range(blocks):
        for offset in range(stride):
            domains: dict[int, int] = {}
            for i in range(size):
                rank = block * size * stride + offset + i * stride
                domains[rank // devices] = domains.get(rank // devices, 0) + 1
            found.append(sorted(domains.values()))
    return found


@given(st.integers(2, 40), st.integers(1, 20), st.sampled_from([2, 4, 6, 8, 12]), st.integers(1, 12))
def test_parts_are_what_laying_out_the_ranks_gives(size: int, stride: int, devices: int, blocks: int) -> None:
    """The worst group counts: in most domains, with the fewest members in one."""
    network = Network((Level(name="in", bandwidth=1e9, devices=devices), Level(name="out", bandwidth=1e9)))
    found = place(size, stride, network, size * stride * blocks)
    worst = max(patterns(size, stride, devices, blocks), key=lambda domains: (len(domains), -domains[0]))
    assert found.uneven == (worst[0] != worst[-1])
    if found.uneven:
        assert (found.parts, found.channels) == (((1, size),), worst[0])
    else:
        assert dict(found.parts).get(0, 1) == worst[0]


def test_one_group_that_fits_its_node_stays_inside() -> None:
    """5 ranks of 8 stay on the node; with four such groups some cross."""
    assert place(5, 1, TWO, 5).parts == ((0, 5),)
    assert place(5, 1, TWO, 20).uneven


def test_a_huge_group_that_cuts_domains_is_refused() -> None:
    with pytest.raises(UsageError, match="groups of 999999 ranks that cut domains of 8 devices are too many"):
        place(999_999, 1, TWO)
    assert place(2**40, 1, TWO).parts == ((0, 8), (1, 2**37))


@given(st.lists(st.integers(2, 4), min_size=3, max_size=4), st.data(), st.sampled_from([2, 3, 4, 6, 8, 12]))
def test_axes_that_lie_apart_are_what_laying_out_the_ranks_gives(
    sizes: list[int], data: st.DataObject, devices: int
) -> None:
    """Axes of a mesh with others between them, on domains that they may cut."""
    mesh = [(f"a{at}", size) for at, size in enumerate(sizes)]
    names = data.draw(st.lists(st.sampled_from([name for name, _ in mesh]), min_size=1, unique=True))
    network = Network((Level(name="in", bandwidth=1e9, devices=devices), Level(name="out", bandwidth=1e9)))
    found = place_axes(mesh, names, network)
    worst = None
    for group in Mesh.of(dict(mesh)).groups(names):
        domains: dict[int, int] = {}
        for rank in group:
            domains[rank // devices] = domains.get(rank // devices, 0) + 1
        spread = (len(domains), -min(domains.values()), max(domains.values()))
        worst = spread if worst is None else max(worst, spread)
    assert worst is not None
    _, fewest, most = worst
    if found.uneven:
        assert (-fewest != most) and found.channels == -fewest
    else:
        assert dict(found.parts).get(0, 1) == most == -fewest
