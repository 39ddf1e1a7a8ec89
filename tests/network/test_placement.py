"""Where a group lies: every answer checked by laying the ranks out one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.errors import IllegalDegree
from commcalc.network.link import Level, Network
from commcalc.network.placement import place

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


@given(st.integers(1, 40), st.integers(1, 20), st.sampled_from([2, 4, 6, 8, 12]))
def test_parts_are_what_laying_out_the_ranks_gives(size: int, stride: int, devices: int) -> None:
    network = Network((Level(name="in", bandwidth=1e9, devices=devices), Level(name="out", bandwidth=1e9)))
    found = place(size, stride, network)
    # All groups of this stride until the pattern of domains repeats: blocks of size*stride ranks.
    counts = set()
    for block in range(devices):
        for offset in range(stride):
            ranks = [block * size * stride + offset + i * stride for i in range(size)]
            domains: dict[int, int] = {}
            for rank in ranks:
                domains[rank // devices] = domains.get(rank // devices, 0) + 1
            counts.add(tuple(sorted(domains.values())))
    inside = {count for pattern in counts for count in pattern}
    if found.uneven:
        assert len(inside) > 1
    else:
        inner = dict(found.parts).get(0, 1)
        assert inside == {inner}
