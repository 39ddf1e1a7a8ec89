"""Rings, lines and tori against the scaling book and section-14 values; and which part of an axis a group holds."""

from __future__ import annotations

import itertools
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.algebra.collective import Convention, Kind
from commcalc.errors import IllegalDegree, UnknownName
from commcalc.network.cost import Algorithm
from commcalc.network.hierarchy import Priced, price
from commcalc.network.link import Level, Network, Topology, Wraparound
from commcalc.network.placement import place, place_axes
from commcalc.network.torus import Span, cost_on_axes, send_across, slice_problem, wraps

EXACT, BOOK = Convention.EXACT, Convention.TEXTBOOK
MIB64 = 2**26
HOP = 1e-6


def torus(*shape: int, rate: float = 45e9, rule: Wraparound = Wraparound.ALL, hop: float = 0.0) -> Network:
    level = Level(name="ici", bandwidth=rate, topology=Topology.TORUS, shape=shape, wraparound=rule, latency_s=hop)
    return Network((level._replace(devices=prod(shape)),))


def on(network: Network, kind: Kind, payload: int, *axes: int, convention: Convention = EXACT) -> Priced:
    """The collective over whole axes of the machine, by their numbers."""
    shape = network.levels[0].shape
    mesh = [(f"a{at}", size) for at, size in enumerate(shape)]
    return price(kind, payload, place_axes(mesh, [f"a{at}" for at in axes], network), network, convention=convention)


# The v5e has 2 axes of 16 that wrap; V is 64 MiB. (kind, convention, closed form in us, how it was published)
V5E = torus(16, 16, rule=Wraparound.AXIS_OF_16)
RING_OF_16 = [
    (Kind.ALL_GATHER, BOOK, 745.654, "V / W_bidi"),
    (Kind.ALL_GATHER, EXACT, 699.051, "15/16 of it"),
    (Kind.REDUCE_SCATTER, EXACT, 699.051, "as a gather"),
    (Kind.ALL_REDUCE, EXACT, 1398.101, "twice"),
]


@pytest.mark.parametrize(("kind", "convention", "microseconds", "how"), RING_OF_16)
def test_ring_of_16(kind: Kind, convention: Convention, microseconds: float, how: str) -> None:
    found = on(V5E, kind, MIB64, 1, convention=convention)
    assert found.cost.algorithm is Algorithm.RING_TWO_WAY
    assert found.cost.time_s * 1e6 == pytest.approx(microseconds, abs=5e-4), how


def test_alltoall_on_ring_and_line_of_16() -> None:
    """V / 8w and V / 4w of the global array: 186.414 and 372.827 us for 64 MiB, of which one device holds a 16th."""
    assert on(V5E, Kind.ALL_TO_ALL, MIB64 // 16, 1).cost.time_s * 1e6 == pytest.approx(186.414, abs=5e-4)
    line = torus(16, rule=Wraparound.NONE)
    assert on(line, Kind.ALL_TO_ALL, MIB64 // 16, 0).cost.time_s * 1e6 == pytest.approx(372.827, abs=5e-4)


def test_open_line_of_4() -> None:
    """Part 3, pop quiz 2: 34 MB over a v5e axis of 4: 3 hops of 8.5 MB, 567 us; the textbook keeps the hops."""
    line = torus(4, 8, rule=Wraparound.AXIS_OF_16)
    for convention in Convention:
        found = on(line, Kind.ALL_GATHER, 34_000_000, 0, convention=convention)
        assert found.cost.algorithm is Algorithm.LINE
        assert found.cost.time_s * 1e6 == pytest.approx(566.667, abs=5e-4)


def test_small_gather_over_an_open_line_is_bound_by_hops() -> None:
    """TOR-03: shards of 32,768 B need 0.728 us a hop of 1 us: 3 us in all; TOR-01 is 372.827 us as if it wrapped."""
    line = torus(4, 8, rule=Wraparound.AXIS_OF_16, hop=HOP)
    small = on(line, Kind.ALL_GATHER, 256 * 256 * 2, 0, convention=BOOK).cost
    assert (small.time_s, small.bound) == (pytest.approx(3e-6), "latency")
    assert small.bandwidth_s / 3 * 1e6 == pytest.approx(0.7281777777777778)
    closed = torus(4, hop=HOP)
    wrapped = on(closed, Kind.ALL_GATHER, 2048 * 8192 * 2, 0, convention=BOOK).cost
    assert wrapped.time_s * 1e6 == pytest.approx(372.82702222222224)


V4P = torus(4, 4, 4, rule=Wraparound.CUBES_OF_4, hop=HOP)
BF16_ARRAY = 2 * 1024 * 4096


def test_gather_of_a_sharded_array_over_one_axis_and_over_two() -> None:
    """Part 3, question 2 (TOR-04, TOR-05, TOR-08): 23.302 us for the Y shard, 46.603 us for the whole over X and Y."""
    shard = on(V4P, Kind.ALL_GATHER, BF16_ARRAY // 4, 0, convention=BOOK).cost
    assert shard.bandwidth_s * 1e6 == pytest.approx(23.30168888888889)
    two = on(V4P, Kind.ALL_GATHER, BF16_ARRAY, 0, 1, convention=BOOK).cost
    assert two.bandwidth_s * 1e6 == pytest.approx(46.60337777777778)
    assert two.latency_s == pytest.approx(4e-6)
    assert on(V4P, Kind.ALL_GATHER, BF16_ARRAY // 4, 0, 2, convention=BOOK).cost.bandwidth_s * 1e6 == pytest.approx(
        11.650844444444445
    )
    three = on(V4P, Kind.ALL_GATHER, BF16_ARRAY, 0, 1, 2, convention=BOOK).cost
    assert three.bandwidth_s * 1e6 == pytest.approx(31.068918518518515)


def test_a_tiny_gather_takes_half_the_ring() -> None:
    """Part 3, question 3 (TOR-09): 256 bytes over a wrapped axis of 4 take 2 hops, 2 us; TOR-11: 2 hops of 5, not 3."""
    tiny = on(V4P, Kind.ALL_GATHER, 256, 0, convention=BOOK).cost
    assert (tiny.steps, tiny.time_s) == (2, pytest.approx(2e-6))
    assert on(torus(5), Kind.ALL_GATHER, 256, 0).cost.steps == 2


def test_where_latency_ends() -> None:
    """TOR-13, TOR-23: a hop of 1 us carries 45,000 B, 8 shards 360,000 B: 16 x 8192 int8 are latency bound."""
    line = torus(8, rule=Wraparound.NONE, hop=HOP)
    at = on(line, Kind.ALL_GATHER, 360_000, 0, convention=BOOK).cost
    assert at.latency_s == pytest.approx(at.bandwidth_s)
    assert on(line, Kind.ALL_GATHER, 16 * 8192, 0, convention=BOOK).cost.bound == "latency"


def test_alltoall_of_several_axes_is_bound_by_the_longest() -> None:
    """Part 3, later edition (TOR-15): V max(A, B) / (4 N W) for V of all chips on 4 x 8; in one dimension V / 4W."""
    whole = 2**30
    grid = torus(4, 8)
    found = on(grid, Kind.ALL_TO_ALL, whole // 32, 0, 1).cost
    assert found.time_s * 1e6 == pytest.approx(745.6540444444445)
    assert found.algorithm is Algorithm.TORUS
    assert on(torus(8), Kind.ALL_TO_ALL, whole // 8, 0).cost.time_s * 1e6 == pytest.approx(2982.616177777778)


def test_a_message_from_corner_to_corner() -> None:
    """Part 2, question 5 (TOR-19): bf16[8, 128, 8192] over a v5e 4x4: 6 hops of 1 us and 2 ports: 192.4 us."""
    level = torus(4, 4, rule=Wraparound.AXIS_OF_16, hop=HOP).levels[0]
    cost = send_across(2 * 8388608, (Span(4), Span(4)), level)
    assert (cost.steps, cost.latency_s) == (6, pytest.approx(6e-6))
    assert cost.time_s * 1e6 == pytest.approx(192.41351111111112)


def test_reducescatter_of_a_profile_and_the_order_of_primitives() -> None:
    """TOR-21: 134,217,728 B at 120 GB/s both ways: 1.1185 ms. TOR-26: AllToAll, gather = scatter, AllReduce."""
    ring = torus(16, rate=60e9)
    shard = 32 * 1024 * 8192 * 2 // 4
    assert on(ring, Kind.REDUCE_SCATTER, shard, 0, convention=BOOK).cost.time_s * 1e3 == pytest.approx(
        1.1184810666666667
    )
    one = torus(16)
    kinds = (Kind.ALL_TO_ALL, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_REDUCE)
    # The same array of 2^20 bytes over 16 chips, of which one holds a 16th before its AllToAll.
    times = [on(one, kind, 2**20 // (16 if kind is Kind.ALL_TO_ALL else 1), 0, convention=BOOK) for kind in kinds]
    want = [2.9127111111111113, 11.650844444444445, 11.650844444444445, 23.30168888888889]
    assert [found.cost.time_s * 1e6 for found in times] == pytest.approx(want)


def test_one_way_ring_of_the_summary() -> None:
    """Part 3, summary (TOR-18): V / W (n-1)/n on a ring that runs one way; a ring level runs so unless it says more."""
    level = Level(name="r", bandwidth=45e9, topology=Topology.RING, devices=4)
    network = Network((level,))
    found = price(Kind.ALL_GATHER, 33554432, place(4, 1, network), network)
    assert found.cost.algorithm is Algorithm.RING
    assert found.cost.time_s * 1e6 == pytest.approx(559.2405333333334)
    both = Network((level._replace(two_way=True),))
    twice = price(Kind.ALL_GATHER, 33554432, place(4, 1, both), both)
    assert twice.cost.algorithm is Algorithm.RING_TWO_WAY
    assert twice.cost.time_s * 2 == pytest.approx(found.cost.time_s)
    assert twice.runner_up is not None
    assert twice.runner_up.algorithm is Algorithm.RING


@pytest.mark.parametrize(
    ("shape", "rule", "closed"),
    [
        ((16, 16), Wraparound.AXIS_OF_16, (True, True)),
        ((8, 16), Wraparound.AXIS_OF_16, (False, True)),
        ((8, 8), Wraparound.AXIS_OF_16, (False, False)),
        ((4, 4, 4), Wraparound.CUBES_OF_4, (True, True, True)),
        ((4, 4, 8), Wraparound.CUBES_OF_4, (True, True, True)),
        ((2, 2, 4), Wraparound.CUBES_OF_4, (False, False, False)),
        ((2, 4, 4), Wraparound.CUBES_OF_4, (False, False, False)),
        ((3, 5), Wraparound.ALL, (True, True)),
        ((3, 5), Wraparound.NONE, (False, False)),
    ],
)
def test_which_axes_wrap(shape: tuple[int, ...], rule: Wraparound, closed: tuple[bool, ...]) -> None:
    assert wraps(torus(*shape, rule=rule).levels[0]) == closed


def test_only_the_whole_pod_of_an_old_tpu_wraps() -> None:
    pod = torus(32, 32, rule=Wraparound.FULL_POD).levels[0]._replace(pod=(32, 32))
    assert wraps(pod) == (True, True)
    assert wraps(pod._replace(shape=(16, 16))) == (False, False)


@pytest.mark.parametrize(
    ("shape", "rule", "text"),
    [
        ((3, 5), Wraparound.AXIS_OF_16, "there is no slice 3x5"),
        ((16, 32), Wraparound.AXIS_OF_16, "a slice 16x32 does not fit in the pod of 16x16"),
        ((4, 4), Wraparound.CUBES_OF_4, "a slice 4x4 does not fit in the pod of 16x16x16"),
        ((4, 4, 6), Wraparound.CUBES_OF_4, "there is no slice 4x4x6"),
        ((4, 8), Wraparound.AXIS_OF_16, None),
        ((2, 2, 1), Wraparound.CUBES_OF_4, None),
        ((4, 8, 12), Wraparound.CUBES_OF_4, None),
    ],
)
def test_slices_that_a_generation_offers(shape: tuple[int, ...], rule: Wraparound, text: str | None) -> None:
    pod = (16, 16) if rule is Wraparound.AXIS_OF_16 else (16, 16, 16)
    found = slice_problem(torus(*shape, rule=rule).levels[0]._replace(pod=pod))
    assert (found[0] if found else None) == text


def test_a_group_is_laid_along_the_last_axis_first() -> None:
    network = torus(8, 16, rule=Wraparound.AXIS_OF_16)
    assert place(16, 1, network).spans_on(0) == (Span(16, 1, True, 16),)
    assert place(8, 1, network).spans_on(0) == (Span(8, 1, False, 16),)
    assert place(4, 4, network).spans_on(0) == (Span(4, 4, True, 16),)
    assert place(8, 16, network).spans_on(0) == (Span(8, 1, False, 8),)
    assert place(32, 1, network).spans_on(0) == (Span(16, 1, True, 16), Span(2, 1, False, 8))


@pytest.mark.parametrize("size", [3, 12, 5, 24])
def test_a_group_that_does_not_follow_the_axes_is_refused(size: int) -> None:
    with pytest.raises(IllegalDegree, match=f"a group of {size} ranks does not lie evenly along the axes of ici"):
        place(size, 1, torus(16, 16))


def test_a_group_alone_takes_what_it_needs_of_an_axis() -> None:
    """3 chips of an axis of 16 are a line of 3; 24 are no part of the axes."""
    assert place(3, 1, torus(16, 16), 3).spans_on(0) == (Span(3, 1, False, 16),)
    with pytest.raises(IllegalDegree, match="does not lie evenly"):
        place(24, 1, torus(16, 16), 24)


def test_a_group_larger_than_the_torus_is_refused() -> None:
    with pytest.raises(IllegalDegree, match="does not fit in the network"):
        place(512, 1, torus(16, 16))


def test_axes_of_a_mesh_lie_where_their_strides_say() -> None:
    mesh = [("x", 4), ("y", 4), ("z", 4)]
    assert place_axes(mesh, ["x", "z"], V4P).spans_on(0) == (Span(4, 1, True, 4), Span(4, 1, True, 4))
    assert place_axes(mesh, ["x", "y", "z"], V4P) == place(64, 1, V4P)
    assert place_axes(mesh, [], V4P) == place(1, 1, V4P)
    with pytest.raises(UnknownName, match="unknown mesh axis 'w'"):
        place_axes(mesh, ["w"], V4P)
    nodes = Network((Level(name="nvlink", bandwidth=1e9, devices=8), Level(name="ib", bandwidth=1e9)))
    assert place_axes([("dp", 4), ("tp", 4), ("cp", 2)], ["dp", "cp"], nodes).parts == ((0, 2), (1, 4))


def test_multislice() -> None:
    """Two v5p slices of 64 chips at 6.25 GB/s a chip: the AllReduce of 32 GB over DCN takes 80 ms."""
    slices = torus(4, 4, 4, rate=90e9, rule=Wraparound.CUBES_OF_4)
    network = Network((*slices.levels, Level(name="dcn", bandwidth=6.25e9)))
    found = price(Kind.ALL_REDUCE, 32 * 10**9, place(128, 1, network), network)
    assert [(phase.level, phase.kind.value, phase.group_size) for phase in found.phases] == [
        ("ici", "reduce_scatter", 64), ("dcn", "all_reduce", 2), ("ici", "all_gather", 64),
    ]  # fmt: skip
    assert found.phases[1].cost.time_s * 1e3 == pytest.approx(80.0)


def test_part_of_a_one_way_ring_goes_round_the_rest() -> None:
    """4 neighbours of 8: a step waits for 5 links back, and both groups use every link."""
    level = Level(name="r", bandwidth=8e9, topology=Topology.RING, devices=8, latency_s=1e-6)
    cost = cost_on_axes(Algorithm.RING, Kind.ALL_GATHER, 4000, (Span(4, 1, False, 8),), level)
    assert cost is not None
    assert (cost.latency_s, cost.bandwidth_s) == (pytest.approx(15e-6), pytest.approx(3000 / 4e9))


SHAPES = st.lists(st.integers(2, 8), min_size=2, max_size=3)


@given(SHAPES, st.sampled_from([Wraparound.ALL, Wraparound.NONE]), st.sampled_from([Kind.ALL_GATHER, Kind.ALL_REDUCE]))
def test_more_axes_are_never_slower_for_the_same_array(shape: list[int], rule: Wraparound, kind: Kind) -> None:
    """An array over all axes against the same array over one: as many more links carry it, of (N-1)/N more."""
    network = torus(*shape, rule=rule)
    together = on(network, kind, 2**30, *range(len(shape))).cost
    alone = [on(network, kind, 2**30, at).cost for at in range(len(shape))]
    ends = prod(shape)
    limit = sum(1 / (cost.bandwidth_s * size / (size - 1)) for cost, size in zip(alone, shape, strict=True))
    assert together.bandwidth_s == pytest.approx((ends - 1) / ends / limit)
    assert together.egress_bytes >= 2**30 * (ends - 1) // ends


@given(SHAPES)
def test_alltoall_of_a_torus_is_what_routing_every_block_gives(shape: list[int]) -> None:
    """Dimension by dimension, the shorter way round, equal ways halved: the busiest link, counted block by block."""
    network = torus(*shape)
    found = on(network, Kind.ALL_TO_ALL, 2**30, *range(len(shape))).cost
    ends = prod(shape)
    busiest = 0.0
    for size in shape:
        loads = [0.0] * size
        for start, end in itertools.product(range(size), repeat=2):
            distance = (end - start) % size
            if distance and (2 * distance <= size):
                part = (0.5 if 2 * distance == size else 1.0) if size > 2 else 1.0
                for step in range(distance):
                    loads[(start + step) % size] += part * ends / size
        busiest = max(busiest, *loads)
    assert found.bandwidth_s == pytest.approx(busiest * 2**30 / ends / 45e9)


def test_a_slow_axis_alone_can_bind() -> None:
    """Two of four members 8 links apart on a closed axis, two on an open one: half of V must cross 8 hops each way.

    By counting: 64 such groups on a 16x16 TPU v5e send 64 * 8 V over its 512 directed links of that axis, so V / w.
    """
    level = Level("ici", 45e9, topology=Topology.TORUS, shape=(16, 16))
    spans = (Span(2, 8, closed=True, length=16), Span(2, 1, length=16))
    for kind, passes in ((Kind.ALL_GATHER, 1), (Kind.REDUCE_SCATTER, 1), (Kind.ALL_REDUCE, 2)):
        found = cost_on_axes(Algorithm.TORUS, kind, 2**28, spans, level)
        assert found is not None
        assert found.bandwidth_s == pytest.approx(passes * 2**28 / 45e9)


def test_a_send_under_the_textbook_is_the_larger_of_hops_and_bytes() -> None:
    """4x4, the farthest two: 4 hops of 1 us, as all ends are joined, hidden by 1 MB over two links of 45 GB/s."""
    exact = on(torus(4, 4, hop=HOP), Kind.SEND_RECV, 10**6, 0, 1)
    book = on(torus(4, 4, hop=HOP), Kind.SEND_RECV, 10**6, 0, 1, convention=BOOK)
    assert exact.cost.time_s == pytest.approx(4 * HOP + 1e6 / 90e9)
    assert book.cost.time_s == pytest.approx(1e6 / 90e9)
