"""Closed forms of one level against values computed elsewhere, and laws of cost."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.algebra.collective import Convention, Kind
from commcalc.network.cost import in_network, offers_in_network, ring
from commcalc.network.hierarchy import price
from commcalc.network.link import InNetworkReduction, Level, Network
from commcalc.network.placement import place

NVLINK = Level(name="nvlink", bandwidth=450e9, devices=8)
GIB = 2**30
EXACT = Convention.EXACT
# Microseconds on 8 H100 at 450 GB/s one way, latency 0: 2*7/8*P/W; (1+1/8)*P/W as nccl-tests pull 239 counts NVLS;
# 7/8*V/W for the gathered array and for what each rank holds for an AllToAll.
H100_US = {"ring": 4175.663, "in-network": 2684.355, "all_gather": 2087.831, "all_to_all": 2087.831}


def test_h100_ring_allreduce_of_a_gibibyte() -> None:
    assert ring(Kind.ALL_REDUCE, GIB, 8, NVLINK, EXACT).time_s * 1e6 == pytest.approx(H100_US["ring"], abs=5e-4)


def test_h100_in_network_allreduce_of_a_gibibyte() -> None:
    cost = in_network(GIB, 8, NVLINK)
    assert cost.time_s * 1e6 == pytest.approx(H100_US["in-network"], abs=5e-4)
    assert cost.egress_bytes == GIB + GIB // 8


@pytest.mark.parametrize("kind", [Kind.ALL_GATHER, Kind.ALL_TO_ALL])
def test_h100_other_collectives(kind: Kind) -> None:
    alone = Network((NVLINK,))
    assert price(kind, GIB, place(8, 1, alone), alone).cost.time_s * 1e6 == pytest.approx(H100_US[kind], abs=5e-4)


@pytest.mark.parametrize(
    ("kind", "n", "steps"),
    [
        (Kind.ALL_REDUCE, 8, 14),
        (Kind.ALL_GATHER, 8, 7),
        (Kind.REDUCE_SCATTER, 2, 1),
        (Kind.ALL_REDUCE, 1, 0),
        (Kind.SEND_RECV, 2, 1),
        (Kind.SEND_RECV, 1, 0),
    ],
)
def test_ring_steps_cost_a_latency_each(kind: Kind, n: int, steps: int) -> None:
    cost = ring(kind, 0, n, NVLINK._replace(latency_s=2e-6), EXACT)
    assert (cost.steps, cost.latency_s, cost.bandwidth_s) == (steps, steps * 2e-6, 0)


def test_nccl_ring_latency() -> None:
    """NCCL's own ring AllReduce of 8 ranks, LL128: 14 steps of 1.9 us beside its base of 14 us make 40.6 us."""
    cost = ring(Kind.ALL_REDUCE, 0, 8, NVLINK._replace(latency_s=1.9e-6), EXACT)
    assert math.isclose(14e-6 + cost.time_s, 40.6e-6)


def test_textbook_time_drops_the_factor() -> None:
    """How To Scale Your Model, part 3: V / W, whatever the number of devices."""
    for n in (2, 8, 64):
        assert math.isclose(ring(Kind.ALL_GATHER, GIB, n, NVLINK, Convention.TEXTBOOK).time_s, GIB / 450e9)
    assert ring(Kind.ALL_GATHER, GIB, 1, NVLINK, Convention.TEXTBOOK).time_s == 0


def test_only_allreduce_of_enough_ranks_is_summed_in_the_switch() -> None:
    level = NVLINK._replace(in_network=InNetworkReduction(min_ranks=5))
    assert offers_in_network(Kind.ALL_REDUCE, 5, level)
    assert not offers_in_network(Kind.ALL_REDUCE, 4, level)
    assert not offers_in_network(Kind.ALL_GATHER, 8, level)
    assert not offers_in_network(Kind.ALL_REDUCE, 8, NVLINK)


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=5), st.integers(1, 64))
def test_arrays_give_what_numbers_give(payloads: list[int], n: int) -> None:
    level = NVLINK._replace(latency_s=1e-6)
    for kind in (Kind.ALL_REDUCE, Kind.ALL_GATHER):
        many = ring(kind, np.array(payloads), n, level, EXACT)
        each = [ring(kind, payload, n, level, EXACT) for payload in payloads]
        assert many.egress_bytes.tolist() == [cost.egress_bytes for cost in each]
        assert np.allclose(many.time_s, [cost.time_s for cost in each], rtol=1e-12, atol=0)


@given(st.integers(1, 10**12), st.integers(2, 64), st.floats(1e9, 1e12), st.floats(0, 1e-4))
def test_laws_of_cost(payload: int, n: int, bandwidth: float, latency: float) -> None:
    level = Level(name="link", bandwidth=bandwidth, latency_s=latency)
    cost = ring(Kind.ALL_REDUCE, payload, n, level, EXACT)
    assert cost.time_s >= max(cost.latency_s, cost.bandwidth_s)
    assert cost.time_s <= ring(Kind.ALL_REDUCE, payload * 2, n, level, EXACT).time_s
    assert cost.time_s <= ring(Kind.ALL_REDUCE, payload, n + 1, level, EXACT).time_s
    assert cost.time_s >= ring(Kind.ALL_REDUCE, payload, n, level._replace(bandwidth=bandwidth * 2), EXACT).time_s
    halves = [ring(kind, payload, n, level, EXACT).time_s for kind in (Kind.REDUCE_SCATTER, Kind.ALL_GATHER)]
    assert math.isclose(cost.time_s, sum(halves), rel_tol=1e-12)
