"""Collectives over several levels: published values, phases written out by hand, and conservation of bytes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.algebra.collective import Convention, Kind, wire_bytes
from commcalc.errors import UsageError
from commcalc.network.cost import Algorithm
from commcalc.network.hierarchy import price
from commcalc.network.link import InNetworkReduction, Level, Network
from commcalc.network.placement import place

# 4 nodes of 8 B200: 900 GB/s one way inside, one 50 GB/s port per GPU. stas00/ml-engineering network/README.md.
B200 = Network((Level(name="nvlink", bandwidth=900e9, devices=8), Level(name="infiniband", bandwidth=50e9)))
H100 = Network(
    (
        Level(name="nvlink", bandwidth=450e9, devices=8, latency_s=2e-6, in_network=InNetworkReduction(25e-6, 5)),
        Level(name="infiniband", bandwidth=50e9, latency_s=4e-6),
    )
)


def test_hierarchical_allreduce_of_four_gibibytes_on_32_b200() -> None:
    found = price(Kind.ALL_REDUCE, 4 * 2**30, place(32, 1, B200), B200)
    assert [(phase.kind.value, phase.group_size, phase.payload_bytes) for phase in found.phases] == [
        ("reduce_scatter", 8, 4 * 2**30),
        ("all_reduce", 4, 4 * 2**30 // 8),
        ("all_gather", 8, 4 * 2**30),
    ]
    assert [round(phase.cost.time_s * 1e3, 4) for phase in found.phases] == [4.1757, 16.1061, 4.1757]
    assert found.cost.time_s * 1e3 == pytest.approx(4.1757 + 16.1061 + 4.1757, abs=1e-4)
    assert (found.cost.algorithm, found.level) == (Algorithm.HIERARCHICAL, "infiniband")


def test_flat_ring_of_the_same() -> None:
    """The ring changes nodes on 8 links at once: 400 GB/s out of a node."""
    found = price(Kind.ALL_REDUCE, 4 * 2**30, place(32, 1, B200), B200, Algorithm.RING)
    assert found.cost.time_s * 1e3 == pytest.approx(20.804, abs=5e-4)
    assert (found.cost.algorithm, found.phases) == (Algorithm.RING, ())


def test_one_port_for_the_whole_node() -> None:
    """One 50 GB/s port for 8 devices is 6.25 GB/s each: 2*15/16*S/50e9 by the flat ring."""
    network = Network((B200.levels[0]._replace(bandwidth=450e9), Level(name="nic", bandwidth=6.25e9)))
    found = price(Kind.ALL_REDUCE, 2**26, place(16, 1, network), network, Algorithm.RING)
    assert math.isclose(found.cost.time_s, 2 * 15 / 16 * 2**26 / 50e9)


@pytest.mark.parametrize(
    ("kind", "order"),
    [
        (Kind.REDUCE_SCATTER, [("nvlink", 8, 1 << 26), ("infiniband", 2, 1 << 23)]),
        (Kind.ALL_GATHER, [("infiniband", 2, 1 << 23), ("nvlink", 8, 1 << 26)]),
    ],
)
def test_scatter_goes_in_first_and_gather_comes_from_outside(kind: Kind, order: list[tuple[str, int, int]]) -> None:
    found = price(kind, 1 << 26, place(16, 1, H100), H100)
    assert [(phase.level, phase.group_size, phase.payload_bytes) for phase in found.phases] == order
    assert {phase.kind for phase in found.phases} == {kind}


@given(
    st.sampled_from([Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER]),
    st.integers(1, 10**6),
    st.sampled_from([2, 4, 8]),
)
def test_phases_send_what_the_ring_sends(kind: Kind, pieces: int, nodes: int) -> None:
    payload = pieces * 8 * nodes
    found = price(kind, payload, place(8 * nodes, 1, H100), H100)
    assert found.cost.egress_bytes == wire_bytes(kind, payload, 8 * nodes)
    assert math.isclose(found.cost.time_s, sum(phase.cost.time_s for phase in found.phases), rel_tol=1e-12)


def test_what_phases_send_is_rounded_once() -> None:
    for kind in (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL):
        found = price(kind, 1001, place(24, 1, H100), H100, Algorithm.HIERARCHICAL)
        assert found.cost.egress_bytes == wire_bytes(kind, 1001, 24)


def test_splitting_a_group_that_stays_inside_changes_nothing() -> None:
    inside = price(Kind.ALL_REDUCE, 1 << 26, place(8, 1, H100), H100, Algorithm.RING)
    alone = Network((H100.levels[0],))
    assert inside == price(Kind.ALL_REDUCE, 1 << 26, place(8, 1, alone), alone, Algorithm.RING)


def test_the_fastest_algorithm_is_taken() -> None:
    at = place(8, 1, H100)
    small = price(Kind.ALL_REDUCE, 1024, at, H100)
    large = price(Kind.ALL_REDUCE, 1 << 27, at, H100)
    assert large.cost.algorithm is Algorithm.IN_NETWORK
    for payload, found in ((1024, small), (1 << 27, large)):
        each = [price(Kind.ALL_REDUCE, payload, at, H100, name).cost.time_s for name in ("ring", "in-network")]
        assert found.cost.time_s == min(each)
    faster = Network((H100.levels[0]._replace(latency_s=1e-6), H100.levels[1]))
    assert price(Kind.ALL_REDUCE, 1024, at, faster).cost.algorithm is Algorithm.RING


def test_a_gather_uses_the_ring_where_the_switch_sums() -> None:
    found = price(Kind.ALL_GATHER, 1 << 27, place(8, 1, H100), H100, Algorithm.IN_NETWORK)
    assert found.cost.algorithm is Algorithm.RING


def test_a_switch_that_does_not_sum_is_named() -> None:
    with pytest.raises(UsageError, match="level nvlink does not reduce in the network"):
        price(Kind.ALL_REDUCE, 1 << 27, place(8, 1, B200), B200, Algorithm.IN_NETWORK)


def test_textbook_drops_the_factor_in_every_phase() -> None:
    found = price(Kind.ALL_REDUCE, 1 << 26, place(16, 1, B200), B200, convention=Convention.TEXTBOOK)
    assert [phase.cost.time_s for phase in found.phases] == pytest.approx(
        [2**26 / 900e9, 2 * 2**23 / 50e9, 2**26 / 900e9]
    )
    assert math.isclose(found.cost.time_s, max(2 * 2**26 / 900e9, 2 * 2**23 / 50e9))


def test_alltoall_over_levels_sends_to_each_level_its_own_share() -> None:
    """4 nodes of 8, 256 MiB a device, 450 and 50 GB/s: 130.489 us inside, 4026.532 us across."""
    network = Network((B200.levels[0]._replace(bandwidth=450e9), B200.levels[1]))
    found = price(Kind.ALL_TO_ALL, 2**28, place(32, 1, network), network)
    assert [round(phase.cost.time_s * 1e6, 3) for phase in found.phases] == [130.489, 4026.532]
    assert found.cost.steps == 31
    assert found.cost.egress_bytes == wire_bytes(Kind.ALL_TO_ALL, 2**28, 32)


def test_switches_between_nodes_that_sum_take_the_share_once() -> None:
    """SHARP: P/g out of each port instead of 2(k-1)/k P/g; the ring inside stays."""
    sums = InNetworkReduction(min_ranks=2, own_copy=False)
    network = Network((B200.levels[0], B200.levels[1]._replace(in_network=sums)))
    payload = 4 * 2**30
    found = price(Kind.ALL_REDUCE, payload, place(32, 1, network), network)
    assert [phase.cost.algorithm.value for phase in found.phases] == ["ring", "in-network", "ring"]
    assert math.isclose(found.phases[1].cost.time_s, payload / 8 / 50e9)


def test_tree_over_nodes() -> None:
    """Two nodes send S each, more send 2S through 8 ports; up and down a chain of 8 inside."""
    payload = 2**30
    for nodes, sent in ((2, 1), (4, 2)):
        network = Network((B200.levels[0]._replace(latency_s=1e-6), B200.levels[1]._replace(latency_s=5e-6)))
        found = price(Kind.ALL_REDUCE, payload, place(8 * nodes, 1, network), network, Algorithm.DOUBLE_BINARY_TREE)
        assert math.isclose(found.cost.bandwidth_s, max(sent * payload / 400e9, 2 * payload / 900e9))
        assert math.isclose(found.cost.latency_s, 14e-6 + 2 * (nodes // 2) * 5e-6)


@pytest.mark.parametrize("kind", [Kind.SEND_RECV, Kind.PERMUTE])
def test_a_message_crosses_the_outermost_level(kind: Kind) -> None:
    found = price(kind, 2**20, place(16, 1, B200), B200)
    assert (found.cost.algorithm, found.level) == (Algorithm.DIRECT, "infiniband")
    assert math.isclose(found.cost.time_s, 2**20 / 50e9)


def test_a_broadcast_runs_down_one_flat_chain_or_level_by_level() -> None:
    at = place(16, 1, B200)
    flat = price(Kind.BROADCAST, 2**30, at, B200)
    assert (flat.cost.algorithm, flat.phases) == (Algorithm.RING, ())
    assert math.isclose(flat.cost.time_s, 2**30 / 400e9)
    levels = price(Kind.BROADCAST, 2**30, at, B200, Algorithm.HIERARCHICAL)
    assert [(phase.level, phase.group_size) for phase in levels.phases] == [("infiniband", 2), ("nvlink", 8)]


def test_a_flat_ring_over_three_levels_leaves_each_domain_on_all_its_ports() -> None:
    """4 cards at 32 GB/s, 22 GB/s between two sockets, a 50 GB/s port a card: the sockets decide."""
    network = Network(
        (
            Level(name="pcie", bandwidth=32e9, devices=4),
            Level(name="sockets", bandwidth=22e9, devices=8, shared_by=4),
            Level(name="ib", bandwidth=50e9),
        )
    )
    at = place(32, 1, network)
    for name, times in ((Algorithm.RING, 2 * 31 / 32), (Algorithm.DOUBLE_BINARY_TREE, 2)):
        found = price(Kind.ALL_REDUCE, 2**30, at, network, name).cost
        assert (found.bandwidth, found.bandwidth_s) == (22e9, pytest.approx(times * 2**30 / 22e9))


def test_what_a_level_lists_is_all_that_auto_takes() -> None:
    listed = Network((H100.levels[0]._replace(algorithms=(Algorithm.ONE_SHOT, Algorithm.RING)), H100.levels[1]))
    at = place(8, 1, listed)
    assert price(Kind.ALL_REDUCE, 64, at, listed).cost.algorithm is Algorithm.ONE_SHOT
    assert price(Kind.ALL_REDUCE, 2**30, at, listed).cost.algorithm is Algorithm.RING
    assert price(Kind.ALL_TO_ALL, 2**30, at, listed).cost.algorithm is Algorithm.PAIRWISE  # it lists none for this kind
    with pytest.raises(UsageError, match="level nvlink \\(switch\\) does not offer two-shot"):
        price(Kind.ALL_REDUCE, 64, at, listed, Algorithm.TWO_SHOT)


def test_an_uneven_group_sends_what_leaves_its_domain_through_its_own_port() -> None:
    """12 ranks, 4 of them alone: each of those sends 8/12 of its buffer across and 3/12 to the others of its domain."""
    found = price(Kind.ALL_TO_ALL, 12 * 2**20, place(12, 1, B200), B200)
    assert math.isclose(found.cost.time_s, 8 * 2**20 / 50e9 + 3 * 2**20 / 900e9)
