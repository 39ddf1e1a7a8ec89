"""Times that were measured on a level: which group they serve, what they come to, and how sure they are.

Expected numbers are by hand from the points in the test, or published: tests/data/measured names the sources.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from commcalc.accounting.links import beyond_measured, evidence_record, told_of_times
from commcalc.algebra.collective import Convention, Kind
from commcalc.catalog.job import resolve_links
from commcalc.cli.options import request_from
from commcalc.errors import UsageError
from commcalc.network.hierarchy import price, ways
from commcalc.network.law import Law, between
from commcalc.network.link import Algorithm, InNetworkReduction, Level, Network
from commcalc.network.measured import Band, Confidence, Sweep, law_for
from commcalc.network.placement import place

AR, AG, RS, A2A = Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL
MIB = 2**20
US = 1e-6
POINTS = ((1 * MIB, 20 * US), (4 * MIB, 50 * US), (16 * MIB, 110 * US))


def machine(*sweeps: Sweep, outer: tuple[Sweep, ...] = (), algorithms: tuple[Algorithm, ...] = ()) -> Network:
    inner = Level(
        "nvlink", 450e9, latency_s=1.9e-6, devices=8, in_network=InNetworkReduction(25e-6, 5), measured=sweeps,
        algorithms=algorithms,
    )  # fmt: skip
    return Network((inner, Level("ib", 50e9, latency_s=4e-6, measured=outer)))


def cost(kind: Kind, payload: int, n: int, network: Network, algorithm: Algorithm = Algorithm.AUTO):
    return price(kind, payload, place(n, 1, network, devices=n), network, algorithm).cost


# The law: 15 us + 8 ns sqrt(x) + x / 500 GB/s on bus bytes x, by hand.
def test_the_law_by_hand() -> None:
    law = Law(15e-6, 8e-9, 500e9)
    # x = 10^8 B: sqrt is 10^4, so 80 us; 10^8 / 5 10^11 = 200 us.
    assert math.isclose(law.seconds(10**8), 295e-6, rel_tol=1e-12)
    assert Law(15e-6, 0.0, 500e9).seconds(10**8) == pytest.approx(215e-6)  # alpha-beta
    # Half the bandwidth where x / B = t0 + c sqrt(x): with c = 0 at t0 B.
    assert Law(15e-6, 0.0, 500e9).half_bandwidth_bytes == pytest.approx(7_500_000)
    half = law.half_bandwidth_bytes
    assert half / law.bandwidth == pytest.approx(law.t0_s + law.c * half**0.5)


def test_between_points_beyond_and_below() -> None:
    assert between(POINTS, 2 * MIB) == pytest.approx(30 * US)  # a third of the way from 20 to 50
    assert between(POINTS, 4 * MIB) == 50 * US
    assert between(POINTS, 512) == 20 * US
    # The last segment rises 5 us a MiB.
    assert between(POINTS, 64 * MIB) == pytest.approx(350 * US)
    assert between(((1000, 2.0), (2000, 1.0)), 5000) == 1.0  # a fall is not continued
    found = between(POINTS, np.array([[512, 2 * MIB], [4 * MIB, 64 * MIB]]))
    assert np.allclose(found, np.array([[20, 30], [50, 350]]) * US, rtol=1e-12)


def test_measured_points_win_over_every_formula() -> None:
    network = machine(Sweep(AR, 8, 8, POINTS, source="log"))
    found = cost(AR, 2 * MIB, 8, network)
    assert (found.algorithm, found.confidence) == (Algorithm.MEASURED, "measured")
    assert found.time_s == pytest.approx(30 * US)
    assert found.latency_s + found.ramp_s + found.bandwidth_s == pytest.approx(found.time_s)
    assert found.evidence is not None
    assert found.evidence.source == "log"
    assert found.evidence.points == POINTS[:2]
    # The library's way is not known: what a ring would send is told.
    assert found.egress_bytes == 2 * MIB * 14 // 8
    assert [one.cost.algorithm for one in ways(AR, MIB, place(8, 1, network), network).offered] == [Algorithm.MEASURED]


@pytest.mark.parametrize(
    ("kind", "n"), [(AG, 8), (AR, 4), (AR, 2), (AR, 16)], ids=["another kind", "four", "two", "two nodes"]
)
def test_with_one_group_size_measured_others_are_datasheet(kind: Kind, n: int) -> None:
    network = machine(Sweep(AR, 8, 8, POINTS))
    bare = machine()
    found = cost(kind, 4 * MIB, n, network)
    if n != 16:  # over two nodes the phases inside are measured or by formula as they are
        assert found.confidence == "datasheet"
        assert found.evidence is None
        assert found.time_s == cost(kind, 4 * MIB, n, bare).time_s


# t0 = base + step k with k = 2(n-1) ring steps: 4 us + 1 us k gives 6 us for 2 and 18 us for 8, so 10 us for 4.
def test_two_group_sizes_serve_a_third() -> None:
    laws = {2: Law(6e-6, 4e-9, 200e9), 8: Law(18e-6, 4e-9, 200e9)}
    law = law_for(AR, laws, 4)
    assert law.t0_s == pytest.approx(10e-6)
    assert (law.c, law.bandwidth) == pytest.approx((4e-9, 200e9))
    network = machine(*(Sweep(AR, n, n, law=law) for n, law in laws.items()))
    found = cost(AR, 2**27, 4, network)
    bus = 2**27 * 6 / 4
    assert found.confidence == "calibrated"
    assert found.time_s == pytest.approx(10e-6 + 4e-9 * bus**0.5 + bus / 200e9)
    assert (found.latency_s, found.bandwidth_s) == pytest.approx((10e-6, bus / 200e9))
    # H100s, fits to aiconfigurator's sweeps: t0 of 2 and 4 give 17.1 us for 8, where 15.0 us were measured.
    fitted = law_for(AR, {2: Law(5.9e-6, 0, 3e11), 4: Law(9.6e-6, 0, 3e11)}, 8)
    assert fitted.t0_s == pytest.approx(17.0e-6, abs=0.2e-6)


def test_no_group_is_served_from_far_away() -> None:
    laws = (Sweep(AR, 2, 2, law=Law(6e-6, 0, 2e11)), Sweep(AR, 4, 4, law=Law(9e-6, 0, 2e11)))
    wide = Network((Level("nvlink", 900e9, latency_s=1.9e-6, devices=72, measured=laws),))
    assert cost(AR, MIB, 16, wide).confidence == "calibrated"  # 4 times the largest measured
    assert cost(AR, MIB, 17, wide).confidence == "datasheet"


def test_a_sweep_over_nodes_serves_groups_of_as_many_ranks_a_node() -> None:
    network = machine(outer=(Sweep(AR, 16, 2, POINTS),))
    assert cost(AR, 4 * MIB, 16, network).time_s == pytest.approx(50 * US)
    strided = price(AR, 4 * MIB, place(2, 8, network), network).cost  # one device of each node
    assert strided.confidence == "datasheet"
    assert cost(AR, 4 * MIB, 32, network).confidence == "datasheet"


def test_the_textbook_and_named_algorithms_are_formulas() -> None:
    network = machine(Sweep(AR, 8, 8, POINTS))
    at = place(8, 1, network)
    assert price(AR, MIB, at, network, convention=Convention.TEXTBOOK).cost.confidence == "datasheet"
    ring = price(AR, MIB, at, network, Algorithm.RING).cost
    assert ring.time_s == pytest.approx(14 * 1.9e-6 + MIB * 14 / 8 / 450e9)
    with pytest.raises(UsageError, match="no measured times of all_gather over 8"):
        price(AG, MIB, at, network, Algorithm.MEASURED)
    listed = machine(Sweep(AR, 8, 8, POINTS), algorithms=(Algorithm.RING,))
    assert price(AR, MIB, at, listed).cost.algorithm is Algorithm.RING


KERNELS = (
    Sweep(AR, 8, 8, ((8192, 5 * US), (131072, 8 * US)), algorithm=Algorithm.ONE_SHOT, most_bytes=262143),
    Sweep(AR, 8, 8, ((262144, 15 * US), (8 * MIB, 61 * US)), algorithm=Algorithm.TWO_SHOT, most_bytes=8 * MIB),
    Sweep(AR, 8, 8, ((8192, 16 * US), (16 * MIB, 122 * US))),
)


@pytest.mark.parametrize(
    ("payload", "named", "ran", "time"),
    [
        (8192, Algorithm.ONE_SHOT, Algorithm.ONE_SHOT, 5 * US),
        (262144, Algorithm.ONE_SHOT, Algorithm.TWO_SHOT, 15 * US),
        (16 * MIB, Algorithm.ONE_SHOT, Algorithm.MEASURED, 122 * US),
        (8 * MIB, Algorithm.TWO_SHOT, Algorithm.TWO_SHOT, 61 * US),
        (16 * MIB, Algorithm.TWO_SHOT, Algorithm.MEASURED, 122 * US),
        (8192, Algorithm.AUTO, Algorithm.MEASURED, 16 * US),
    ],
)
def test_kernels_hand_over_where_their_server_does(payload: int, named: Algorithm, ran: Algorithm, time: float) -> None:
    network = machine(*KERNELS)
    found = price(AR, payload, place(8, 1, network), network, named).cost
    assert (found.algorithm, found.time_s) == (ran, pytest.approx(time))
    alike = price(AR, np.array([payload]), place(8, 1, network), network, named).cost
    assert alike.time_s == pytest.approx(np.array([time]))


def test_a_kernel_sends_what_it_sends() -> None:
    network = machine(*KERNELS)
    at = place(8, 1, network)
    assert price(AR, 8192, at, network, Algorithm.ONE_SHOT).cost.egress_bytes == 7 * 8192
    assert price(AR, MIB, at, network, Algorithm.TWO_SHOT).cost.egress_bytes == 2 * 7 * MIB // 8
    # What a kernel of AllReduce is named for takes the library's way for other kinds.
    both = machine(*KERNELS, Sweep(AG, 8, 8, POINTS))
    assert price(AG, 4 * MIB, at, both, Algorithm.ONE_SHOT).cost.time_s == pytest.approx(50 * US)


def test_a_group_over_nodes_takes_measured_phases_inside() -> None:
    network = machine(Sweep(AG, 8, 8, POINTS), Sweep(RS, 8, 8, POINTS))
    found = price(AR, 4 * MIB, place(16, 1, network), network, Algorithm.HIERARCHICAL)
    inside = [phase.cost for phase in found.phases if phase.level == "nvlink"]
    assert [one.confidence for one in inside] == ["measured", "measured"]
    assert [one.time_s for one in inside] == pytest.approx([50 * US, 50 * US])
    assert found.cost.time_s == pytest.approx(sum(phase.cost.time_s for phase in found.phases))


@pytest.mark.parametrize(
    ("sweep", "n", "payload", "band"),
    [
        (Sweep(AR, 8, 8, POINTS), 8, MIB, Band(0.15, 0.35)),
        (Sweep(AR, 8, 8, POINTS), 8, 16 * MIB, Band(0.08, 0.25)),
        (Sweep(AR, 8, 8, POINTS), 8, 64 * MIB, Band(0.08, 0.25)),
        (Sweep(AR, 8, 8, POINTS), 8, 65 * MIB, None),
        (Sweep(AR, 8, 8, POINTS), 8, MIB // 8, None),
        (Sweep(AR, 8, 8, law=Law(1e-5, 0, 1e11), own=True, rows=8), 8, MIB, Band(0.03, 0.15)),
        (Sweep(AR, 8, 8, law=Law(1e-5, 0, 1e11), own=True, rows=4), 8, MIB, Band(0.08, 0.25)),
        (Sweep(AR, 8, 8, law=Law(1e-5, 0, 1e11), own=True, rows=3), 8, MIB, None),
        (Sweep(AR, 8, 8, law=Law(1e-5, 0, 1e11), own=True, rows=8), 8, 4096, None),
    ],
)
def test_the_error_to_expect(sweep: Sweep, n: int, payload: int, band: Band | None) -> None:
    found = cost(AR, payload, n, machine(sweep))
    assert found.evidence is not None
    assert found.evidence.band == band


def test_over_nodes_the_error_to_expect_is_another() -> None:
    network = machine(outer=(Sweep(AR, 16, 2, ((8192, 3e-5), (2**30, 4e-3))),))
    near, far = cost(AR, MIB, 16, network).evidence, cost(AR, 64 * MIB, 16, network).evidence
    assert near is not None
    assert far is not None
    assert (near.band, far.band) == (Band(0.5, 2.0), Band(0.15, 0.30))
    assert far.confidence is Confidence.MEASURED


def packaged(name: str, kind: Kind, payload: int, n: int = 8) -> float:
    hardware = resolve_links(request_from({"hardware": name})).hardware
    assert hardware is not None
    return float(cost(kind, payload, n, hardware.network).time_s)


# An AllReduce of half-precision data over 8 GPUs, nccl-tests: A100 between 367.0 us at 32 MiB and 595.3 us at 64 MiB
# (NCCL 2.27.3), H100 579 us (2.29.2); aiconfigurator's tables, tests/data/measured.
@pytest.mark.parametrize(
    ("name", "payload", "seconds"), [("a100", 48 * MIB, 481e-6), ("h100", 128 * MIB, 579e-6)], ids=["a100", "h100"]
)
def test_presets_meet_published_times(name: str, payload: int, seconds: float) -> None:
    assert packaged(name, AR, payload) == pytest.approx(seconds, rel=0.03)


# The same tables: ReduceScatter and AllGather beside the AllReduce of the same bytes.
@pytest.mark.parametrize(
    ("name", "payload", "ratio"), [("a100", 48 * MIB, 1.15), ("h100", 128 * MIB, 1.34), ("b200", 128 * MIB, 1.04)]
)
def test_split_and_whole_reductions_differ_in_time(name: str, payload: int, ratio: float) -> None:
    split = packaged(name, RS, payload) + packaged(name, AG, payload)
    assert split / packaged(name, AR, payload) == pytest.approx(ratio, rel=0.05)


# Kernels of servers at 8 KiB over 8 GPUs beside NCCL (aiconfigurator): H100 16.0 and 5.1 us, A100 21.3 and 6.3 us.
@pytest.mark.parametrize(("name", "library", "kernel"), [("h100", 16.0e-6, 5.1e-6), ("a100", 21.3e-6, 6.3e-6)])
def test_decode_kernels_are_several_times_faster(name: str, library: float, kernel: float) -> None:
    hardware = resolve_links(request_from({"hardware": name})).hardware
    assert hardware is not None
    assert packaged(name, AR, 8192) == pytest.approx(library, rel=0.03)
    assert cost(AR, 8192, 8, hardware.network, Algorithm.ONE_SHOT).time_s == pytest.approx(kernel, rel=0.05)


# 8 sizes of 1 MiB to 128 MiB on the law 15 us + x / 400 GB/s, the first one 10 us slower than that.
def test_below_the_smallest_size_the_law_counts_where_it_is_less() -> None:
    law = Law(15e-6, 0.0, 400e9)
    points = tuple((2**k, law.seconds(1.75 * 2**k) + (1e-5 if k == 20 else 0.0)) for k in range(20, 28))
    network = machine(Sweep(AR, 8, 8, points))
    small, near = cost(AR, 8192, 8, network), cost(AR, 2**19, 8, network)
    assert small.time_s == pytest.approx(law.seconds(1.75 * 8192), rel=0.05)
    assert small.time_s < near.time_s < points[0][1]
    assert small.evidence is not None
    assert (small.confidence, small.evidence.band, small.evidence.below) == ("calibrated", None, 128)
    alike = price(AR, np.array([8192, 2**20, 2**22]), place(8, 1, network), network).cost.time_s
    assert alike[0] == small.time_s
    assert alike[1:].tolist() == pytest.approx([points[0][1], points[2][1]])


def test_what_is_measured_says_how_sure_it_is() -> None:
    network = machine(Sweep(AG, 8, 8, POINTS), Sweep(RS, 8, 8, POINTS))
    over_nodes = price(AR, 4 * MIB, place(16, 1, network), network, Algorithm.HIERARCHICAL).cost
    ring = price(AR, 4 * MIB, place(8, 1, network), network, Algorithm.RING).cost
    known = cost(AG, 4 * MIB, 8, network)
    assert [evidence_record(one)["lower_bound"] for one in (over_nodes, ring, known)] == [False, True, False]
    assert told_of_times([over_nodes]) == [
        "times by datasheet rates are no bounds here: phases of several levels may overlap"
    ]
    assert told_of_times([ring, over_nodes]) == ["times by datasheet rates are lower bounds, save hierarchical ones"]
    assert told_of_times([cost(AG, 8192, 8, network)]) == ["for sizes far from those measured no error is known"]
    (small,) = beyond_measured([("it", cost(AG, 8192, 8, network))])
    (large,) = beyond_measured([("it", cost(AG, 256 * MIB, 8, network)), ("not it", cost(AG, 64 * MIB, 8, network))])
    assert small.startswith("it is far below the smallest payload that was measured (1,048,576 B)")
    assert large.startswith("it is 16 times the largest payload that was measured (16,777,216 B)")
