"""Closed forms against a simulator that moved real blocks (tests/data/ring_sim.json), and against MPICH's formulas."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.algebra.collective import Convention, Kind
from commcalc.network.cost import cost_on, share, timed
from commcalc.network.forms import FORMS, ceil_log2, floor_log2, form, popcounts
from commcalc.network.link import Algorithm, Level
from ring_sim import KINDS, NAMES, ROWS


def test_the_simulator_ran_21_algorithms() -> None:
    ran = Counter((row["collective"], row["algorithm"]) for row in ROWS)
    assert (len(ROWS), len(ran)) == (267, 21)
    assert {row["n"] for row in ROWS} == set(range(2, 17))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['collective']}, {row['algorithm']}, {row['n']}")
def test_steps_and_bytes_are_those_that_were_counted(row: dict[str, Any]) -> None:
    n, payload, algorithm = row["n"], row["S"], NAMES[row["algorithm"]]
    found = form(algorithm, KINDS[row["collective"]], n)
    assert found is not None
    if algorithm is Algorithm.ONE_SHOT:  # the simulator's ranks send to one peer at a time
        found = found._replace(steps=found.steps * (n - 1))
    cost = timed(algorithm, found, payload, 1.0, 0.0)
    assert (cost.steps, cost.egress_bytes, cost.link_bytes) == (row["steps"], row["sent_max"], row["link_max"])
    if row["algorithm"] != "open line (store and forward)":  # its greedy schedule waits; the busiest link is the bound
        assert cost.time_s == row["serial_cost"]


# Thakur, Rabenseifner, Gropp 2005, in microseconds for 2^20 bytes at alpha = 5 us and beta = 0.001 us per byte, without
# the sums (gamma): goldens ALG-01, 02, 03, 06, 08, 09, 11, 17.
LINK = Level(name="link", bandwidth=1e9, latency_s=5e-6)
SIZE = 2**20
MPICH = [
    (Kind.ALL_GATHER, Algorithm.RECURSIVE_DOUBLING, 16, 1003.04),
    (Kind.ALL_GATHER, Algorithm.RING, 16, 1058.04),
    (Kind.ALL_GATHER, Algorithm.BRUCK, 12, 981.1946666666666),
    (Kind.REDUCE_SCATTER, Algorithm.RECURSIVE_HALVING, 16, 1248.8 - 15 / 16 * SIZE * 0.00025),
    (Kind.REDUCE_SCATTER, Algorithm.PAIRWISE, 16, 1303.8 - 15 / 16 * SIZE * 0.00025),
    (Kind.ALL_REDUCE, Algorithm.RABENSEIFNER, 16, 2251.84 - 15 / 16 * SIZE * 0.00025),
    # MPICH counts 2 * 11/12 where the 8 ranks left over send 2 * 7/8 (a simulator counts the same).
    (
        Kind.ALL_REDUCE,
        Algorithm.RABENSEIFNER,
        12,
        4561.984 - 23 / 12 * SIZE * 0.00025 - 2 * (1 / 8 - 1 / 12) * SIZE * 1e-3,
    ),
    (Kind.ALL_TO_ALL, Algorithm.BRUCK, 16, 2117.152),
    (Kind.ALL_REDUCE, Algorithm.BINOMIAL_TREE, 16, 9477.184 - 4 * SIZE * 0.00025),
    # ALG-16's lower bound of a broadcast; two trees reach it where the message is long.
    (Kind.BROADCAST, Algorithm.DOUBLE_BINARY_TREE, 16, 1068.576),
]


@pytest.mark.parametrize(("kind", "algorithm", "n", "microseconds"), MPICH)
def test_times_of_mpich(kind: Kind, algorithm: Algorithm, n: int, microseconds: float) -> None:
    cost = cost_on(algorithm, kind, SIZE, n, LINK)
    assert cost is not None
    assert cost.time_s * 1e6 == pytest.approx(microseconds, rel=1e-9)


def test_pairwise_alltoall_sends_nothing_to_itself() -> None:
    """Golden ALG-11 counts n bytes where (p-1)/p n leave the rank; MPICH's own block stays."""
    cost = cost_on(Algorithm.PAIRWISE, Kind.ALL_TO_ALL, SIZE, 16, LINK)
    assert cost is not None
    assert cost.time_s * 1e6 == pytest.approx(15 * 5 + 15 / 16 * SIZE * 0.001, rel=1e-12)
    assert cost.time_s * 1e6 < 1123.576


def test_one_way_ring_of_the_scaling_book() -> None:
    """Part 3, question 10 (TOR-16): N^2 (1 - 1/D) scalars over a link for a gather, half for an AllToAll."""
    whole = 4096 * 4096  # of all 8 devices; one holds an eighth for its AllToAll
    gather = form(Algorithm.RING, Kind.ALL_GATHER, 8)
    moved = form(Algorithm.RING, Kind.ALL_TO_ALL, 8)
    assert gather is not None
    assert moved is not None
    assert (share(whole, gather.link), share(whole // 8, moved.link)) == (14680064, 7340032)


def test_two_way_ring_of_the_scaling_book() -> None:
    """TOR-17: D^2/4 chunks of V/D^2 sent by each device, 4 times faster than one way, a quarter of the gather."""
    chunks = 64  # one device holds 8 of 64 chunks of the whole
    two, one = (form(name, Kind.ALL_TO_ALL, 8) for name in (Algorithm.RING_TWO_WAY, Algorithm.RING))
    gather = form(Algorithm.RING_TWO_WAY, Kind.ALL_GATHER, 8)
    assert two is not None and one is not None and gather is not None
    assert share(8, two.sent) == chunks // 4 == 16
    limit = 2**40
    many = form(Algorithm.RING_TWO_WAY, Kind.ALL_TO_ALL, limit), form(Algorithm.RING, Kind.ALL_TO_ALL, limit)
    assert many[0] is not None and many[1] is not None
    ratio = (many[1].link[0] * many[0].link[1]) / (many[1].link[1] * many[0].link[0])
    assert ratio == pytest.approx(4)


@given(st.integers(1, 2**40))
def test_logarithms(n: int) -> None:
    assert 2 ** floor_log2(n) <= n < 2 ** (floor_log2(n) + 1)
    assert n <= 2 ** ceil_log2(n) < 2 * n or n == 1


@given(st.integers(1, 400))
def test_popcounts(n: int) -> None:
    assert popcounts(n) == sum(i.bit_count() for i in range(n))


POWERS = (Algorithm.RECURSIVE_DOUBLING, Algorithm.RECURSIVE_HALVING)


@given(
    st.sampled_from([*FORMS]),
    st.sampled_from([kind for kind in Kind if kind is not Kind.SLICE]),
    st.lists(st.tuples(st.integers(1, 64), st.integers(0, 10**10)), min_size=1, max_size=6),
    st.sampled_from(Convention),
)
def test_arrays_give_what_numbers_give(
    algorithm: Algorithm, kind: Kind, points: list[tuple[int, int]], convention: Convention
) -> None:
    """Every closed form, element by element, group sizes and payloads together."""
    if algorithm in POWERS:
        points = [(2 ** (n % 7), payload) for n, payload in points]
    level = Level(name="link", bandwidth=3e9, latency_s=1e-6)
    sizes, payloads = (np.array(column) for column in zip(*points, strict=True))
    many = cost_on(algorithm, kind, payloads, sizes, level, convention)
    each = [cost_on(algorithm, kind, payload, n, level, convention) for n, payload in points]
    if many is None:
        assert each == [None] * len(points)
        return
    for field in ("steps", "egress_bytes", "link_bytes"):
        assert np.broadcast_to(getattr(many, field), sizes.shape).tolist() == [getattr(cost, field) for cost in each]
    assert np.allclose(many.time_s, [cost.time_s for cost in each if cost], rtol=1e-12, atol=0)
