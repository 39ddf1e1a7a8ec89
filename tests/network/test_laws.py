"""Laws of cost that hold on every topology, whatever the numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from commcalc.algebra.collective import Convention, Kind
from commcalc.network.cost import Algorithm, in_network
from commcalc.network.hierarchy import price, ways
from commcalc.network.link import InNetworkReduction, Level, Network, Topology
from commcalc.network.placement import place
from commcalc.network.primitive import primitive
from commcalc.network.torus import Span, cost_on_axes, possible

KINDS = [kind for kind in Kind if kind is not Kind.SLICE]
PAYLOADS = st.integers(0, 2**40)
RATES = st.floats(1e6, 1e13)
LATE = st.floats(0, 1e-3)


@st.composite
def levels(draw: st.DrawFn) -> Level:
    """A single level that joins 16 devices, with or without what its topology may have."""
    kind = draw(st.sampled_from(Topology))
    level = Level("l", draw(RATES), kind, devices=16, latency_s=draw(LATE), shared_by=draw(st.sampled_from([1, 4])))
    if kind is Topology.TORUS:
        return level._replace(shape=draw(st.sampled_from([(16,), (4, 4), (2, 8), (2, 2, 4)])))
    if kind is Topology.RING:
        return level._replace(two_way=draw(st.booleans()))
    return level


GROUPS = st.sampled_from([(2, 1), (4, 1), (8, 1), (16, 1), (2, 8), (4, 4), (4, 2)])
CONVENTIONS = st.sampled_from(Convention)


def seconds(
    kind: Kind, payload: int, group: tuple[int, int], network: Network, convention: Convention = Convention.EXACT
) -> float:
    return float(price(kind, payload, place(*group, network), network, convention=convention).cost.time_s)


@given(levels(), GROUPS, st.sampled_from(KINDS), PAYLOADS, st.integers(1, 2**30), CONVENTIONS)
def test_more_bytes_never_take_less_time(
    level: Level, group: tuple[int, int], kind: Kind, payload: int, more: int, convention: Convention
) -> None:
    """On every way to run it, offered or not; what a device sends grows too."""
    network = Network((level,))
    at = place(*group, network)
    small, large = (ways(kind, size, at, network, convention, others=True) for size in (payload, payload + more))
    for one, two in zip((*small.offered, *small.others), (*large.offered, *large.others), strict=True):
        assert one.cost.algorithm is two.cost.algorithm
        assert one.cost.time_s <= two.cost.time_s
        assert one.cost.egress_bytes <= two.cost.egress_bytes
        assert math.isfinite(two.cost.time_s)


@given(levels(), GROUPS, PAYLOADS, CONVENTIONS)
def test_an_allreduce_is_at_most_a_scatter_and_a_gather(
    level: Level, group: tuple[int, int], payload: int, convention: Convention
) -> None:
    network = Network((level,))
    parts = sum(seconds(kind, payload, group, network, convention) for kind in (Kind.REDUCE_SCATTER, Kind.ALL_GATHER))
    assert seconds(Kind.ALL_REDUCE, payload, group, network, convention) <= parts * (1 + 1e-12)


@given(levels(), GROUPS, st.sampled_from(KINDS), PAYLOADS, st.floats(1, 100))
def test_a_faster_link_is_never_slower(
    level: Level, group: tuple[int, int], kind: Kind, payload: int, times: float
) -> None:
    slow, fast = Network((level,)), Network((level._replace(bandwidth=level.bandwidth * times),))
    assert seconds(kind, payload, group, fast) <= seconds(kind, payload, group, slow)
    late = Network((level._replace(latency_s=level.latency_s * times),))
    assert seconds(kind, payload, group, slow) <= seconds(kind, payload, group, late) * (1 + 1e-12)


@given(RATES, LATE, st.sampled_from([Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER]), PAYLOADS)
def test_a_larger_group_is_never_faster_on_a_switch(rate: float, late: float, kind: Kind, payload: int) -> None:
    network = Network((Level("switch", rate, latency_s=late),))
    times = [seconds(kind, payload, (n, 1), network) for n in range(2, 40)]
    assert all(one <= two * (1 + 1e-12) for one, two in itertools.pairwise(times))


@given(RATES, st.integers(1, 2**20), st.sampled_from([2, 4, 8]), st.sampled_from([2, 4]), st.sampled_from([2, 3, 5]))
def test_splitting_a_level_changes_nothing(rate: float, pieces: int, a: int, b: int, c: int) -> None:
    """One switch, and the same cut into levels of its own rate: the bytes and the time they take stay."""
    n = a * b * c
    payload = pieces * n
    whole = Network((Level("whole", rate),))
    cut = Network((Level("a", rate, devices=a), Level("b", rate, devices=a * b), Level("c", rate)))
    for kind in (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL):
        one, parts = (price(kind, payload, place(n, 1, network), network).cost for network in (whole, cut))
        assert one.bandwidth_s == pytest.approx(parts.bandwidth_s, rel=1e-12)
        assert one.egress_bytes == parts.egress_bytes
        flat = price(kind, payload, place(n, 1, cut), cut, Algorithm.RING).cost
        assert flat.bandwidth_s == pytest.approx(one.bandwidth_s, rel=1e-12)


@given(levels(), GROUPS, st.sampled_from(KINDS), st.integers(1, 2**40))
def test_the_choice_is_the_least_of_what_is_on_offer(
    level: Level, group: tuple[int, int], kind: Kind, payload: int
) -> None:
    network = Network((level,))
    at = place(*group, network)
    found = price(kind, payload, at, network)
    offered = ways(kind, payload, at, network).offered
    assert found.cost.time_s == min(one.cost.time_s for one in offered)
    if len(offered) > 1:
        assert found.runner_up is not None
        assert found.runner_up.time_s == sorted(float(one.cost.time_s) for one in offered)[1]
    answer = primitive(kind, payload, at, network)
    assert answer.best.priced.cost == found.cost


@given(
    st.lists(PAYLOADS, min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(2, 8), st.integers(1, 2), st.booleans()), min_size=1, max_size=3),
    st.sampled_from(KINDS),
    CONVENTIONS,
)
def test_arrays_give_what_numbers_give_on_axes(
    payloads: list[int], axes: list[tuple[int, int, bool]], kind: Kind, convention: Convention
) -> None:
    spans = tuple(Span(members, hop, closed, members * hop) for members, hop, closed in axes)
    level = Level("ici", 45e9, Topology.TORUS, latency_s=1e-6)
    for algorithm in possible(spans, level):
        many = cost_on_axes(algorithm, kind, np.array(payloads), spans, level, convention)
        each = [cost_on_axes(algorithm, kind, payload, spans, level, convention) for payload in payloads]
        assert many is not None
        assert np.allclose(many.time_s, [one.time_s for one in each if one], rtol=1e-12, atol=0)
        assert many.egress_bytes.tolist() == [one.egress_bytes for one in each if one]
        assert np.allclose(many.counted[0] + many.counted[1], many.time_s)


@given(st.lists(st.tuples(st.integers(1, 512), PAYLOADS), min_size=1, max_size=5))
def test_arrays_give_what_numbers_give_in_a_switch_that_sums(points: list[tuple[int, int]]) -> None:
    level = Level("nvlink", 450e9, in_network=InNetworkReduction(25e-6, 5))
    sizes, payloads = (np.array(column) for column in zip(*points, strict=True))
    many = in_network(payloads, sizes, level)
    each = [in_network(payload, n, level) for n, payload in points]
    assert np.allclose(many.time_s, [one.time_s for one in each], rtol=1e-12, atol=0)
    assert many.egress_bytes.tolist() == [one.egress_bytes for one in each]


@given(st.integers(2, 8), st.integers(1, 2**30))
def test_part_of_a_full_mesh_has_part_of_its_links(m: int, payload: int) -> None:
    """m of 8 peers: V / (m w), w one link; all 8 are as fast as a switch of the same rate."""
    mesh = Network((Level("mesh", 7e9, Topology.FULL_MESH, devices=8),))
    assert (
        seconds(Kind.ALL_GATHER, payload, (m, 1), mesh) == pytest.approx(payload / m / 1e9) if m in (2, 4, 8) else True
    )
    switch = Network((Level("switch", 7e9, devices=8),))
    assert seconds(Kind.ALL_REDUCE, payload, (8, 1), mesh) == pytest.approx(
        seconds(Kind.ALL_REDUCE, payload, (8, 1), switch)
    )


@given(st.integers(1, 2**34), st.integers(2, 64))
def test_wire_rate_in_the_switch_never_exceeds_the_link(payload: int, n: int) -> None:
    """busbw does: 2 (n-1)/(n+1) of the link's rate; from 4 devices on it is above it."""
    assume(payload > n)
    level = Level("nvlink", 450e9, in_network=InNetworkReduction())
    network = Network((level,))
    way = primitive(Kind.ALL_REDUCE, payload * n, place(n, 1, network), network, Algorithm.IN_NETWORK).best
    assert way.busbw is not None
    assert way.busbw / 450e9 == pytest.approx(2 * (n - 1) / (n + 1))
    assert (way.busbw > 450e9 * (1 + 1e-12)) == (n > 3)


CLUSTER = Network(
    (
        Level("nvlink", 450e9, devices=8, latency_s=1.9e-6, in_network=InNetworkReduction(25e-6, 5)),
        Level("ib", 50e9, latency_s=4e-6),
    )
)
POD = Network((Level("ici", 45e9, Topology.TORUS, devices=16, latency_s=1e-6, shape=(4, 4)), Level("dcn", 6.25e9)))


@given(
    st.lists(st.integers(0, 2**34), min_size=1, max_size=6),
    st.sampled_from([(CLUSTER, 8), (CLUSTER, 32), (CLUSTER, 12), (POD, 16), (POD, 64)]),
    st.sampled_from(KINDS),
    CONVENTIONS,
)
def test_an_array_of_payloads_is_priced_element_by_element(
    payloads: list[int], where: tuple[Network, int], kind: Kind, convention: Convention
) -> None:
    """The least time of each, by whichever algorithm."""
    network, n = where
    at = place(n, 1, network, n)
    many = price(kind, np.array(payloads), at, network, convention=convention).cost
    each = [price(kind, payload, at, network, convention=convention).cost for payload in payloads]
    assert np.allclose(many.time_s, [one.time_s for one in each], rtol=1e-12, atol=0)
    assert np.broadcast_to(many.egress_bytes, len(payloads)).tolist() == [one.egress_bytes for one in each]
