"""Collectives on real arrays: right results, and counts that agree with another simulator and with the closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commcalc.algebra.collective import Kind
from commcalc.errors import UsageError
from commcalc.network.forms import FORMS, MESSAGES, form
from commcalc.network.hierarchy import price
from commcalc.network.link import Algorithm, Level, Network, in_network_ratio
from commcalc.network.placement import place
from commcalc.simulate import switches
from commcalc.simulate.algorithms import PROGRAMS, all_reduce, program, runs, send
from commcalc.simulate.exchanges import pairwise_all_to_all
from commcalc.simulate.trees import first_tree, second_tree
from commcalc.simulate.wire import SWITCH, Array, Wire, lock_step, run
from ring_sim import KINDS, NAMES, ROWS

AG, RS, AR, A2A = Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_REDUCE, Kind.ALL_TO_ALL
BROADCAST = Kind.BROADCAST
SIZES = range(2, 17)


def given_to(kind: Kind, n: int, payload: int) -> Any:
    """Arrays for one call of ``n`` members whose payload is so many elements, of one byte each as the wire counts."""
    buffers = [np.arange(payload) * 7 + i * 1000 for i in range(n)]
    if kind is AG:
        return [buffer[: payload // n] for buffer in buffers]
    if kind in (RS, A2A):
        return [np.split(buffer, n) for buffer in buffers]
    return buffers[0] if kind is BROADCAST else buffers


def expected(kind: Kind, n: int, arrays: Any, combine: Callable[[Array, Array], Array] = np.add) -> Any:
    if kind is AG:
        return [list(arrays)] * n
    if kind is RS:
        return [reduce(combine, [own[j] for own in arrays]) for j in range(n)]
    if kind is AR:
        return [reduce(combine, arrays)] * n
    return [arrays] * n if kind is BROADCAST else [[arrays[j][i] for j in range(n)] for i in range(n)]


def flat(arrays: Any) -> list[Array]:
    """All arrays of a nest of lists."""
    return [one for own in arrays for one in flat(own)] if isinstance(arrays, list) else [arrays]


def assert_same(found: Any, wanted: Any) -> None:
    ours, theirs = flat(found), flat(wanted)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def counted(kind: Kind, algorithm: Algorithm, n: int, payload: int) -> Wire:
    """The wire after one call with so many elements of payload, its result checked."""
    wire, arrays = Wire(bits=8), given_to(kind, n, payload)
    assert_same(run(wire, program(kind, algorithm, wire, range(n), arrays)), expected(kind, n, arrays))
    return wire


# Counts of another simulator.

ONE_PEER_AT_A_TIME = "gather everything, reduce locally"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['collective']}, {row['algorithm']}, {row['n']}")
def test_another_simulator_counts_the_same(row: dict[str, Any]) -> None:
    kind, n, payload = KINDS[row["collective"]], row["n"], row["S"]
    if row["algorithm"] == ONE_PEER_AT_A_TIME:  # the buffer to one peer after another; one-shot sends to all at once
        buffers = given_to(AR, n, payload)
        wire = Wire(bits=8)
        got = run(wire, pairwise_all_to_all(wire, range(n), [[buffer] * n for buffer in buffers]))
        assert_same([reduce(np.add, own) for own in got], expected(AR, n, buffers))
        at_once = counted(AR, Algorithm.ONE_SHOT, n, payload)
        assert (at_once.steps, at_once.sent_max, at_once.link_max) == (1, wire.sent_max, wire.link_max)
    else:
        wire = counted(kind, NAMES[row["algorithm"]], n, payload)
    sent, links = wire.sent.values(), wire.links.values()
    found = {
        "steps": wire.steps, "sent_max": max(sent), "sent_min": min(sent), "recv_max": max(wire.received.values()),
        "link_max": max(links), "link_min": min(links), "links_used": len(links), "total": sum(sent),
        "serial_cost": wire.serial,
    }  # fmt: skip
    assert found == {key: row[key] for key in found}
    assert (wire.sent_max, wire.link_max) == (row["sent_max"], row["link_max"])


def test_all_of_its_rows_were_run() -> None:
    assert len(ROWS) == 267
    assert {row["algorithm"] for row in ROWS} == {*NAMES, ONE_PEER_AT_A_TIME}


# Closed forms.


def whole_payload(n: int) -> int:
    """A payload that every algorithm cuts without a rest: in n-ths, halves of these, and 2^k-ths."""
    return 2 * math.lcm(n, 1 << (n.bit_length() - 1))


def ratios(wire: Wire, payload: int) -> tuple[int, Fraction, Fraction]:
    return wire.steps, Fraction(wire.sent_max, payload), Fraction(wire.link_max, payload)


# Counts that the closed forms give otherwise: steps, sent and on the busiest link, as ratios to the payload.
COUNTED: dict[tuple[Kind, Algorithm, int], tuple[int, Fraction, Fraction]] = {
    # Two ways round between two devices are two cables; as one pair of devices they are one link with all of it.
    (AG, Algorithm.RING_TWO_WAY, 2): (1, Fraction(1, 2), Fraction(1, 2)),
    (RS, Algorithm.RING_TWO_WAY, 2): (1, Fraction(1, 2), Fraction(1, 2)),
    (AR, Algorithm.RING_TWO_WAY, 2): (2, Fraction(1), Fraction(1)),
    (A2A, Algorithm.RING_TWO_WAY, 2): (1, Fraction(1, 2), Fraction(1, 2)),
    (BROADCAST, Algorithm.RING_TWO_WAY, 2): (1, Fraction(1), Fraction(1)),
}
# Here whole messages are handed on, and all that a line's link has to carry at once; the forms' bytes in sequence are
# those of small pieces that follow one another without a gap.
IN_PIECES = [
    *((BROADCAST, algorithm) for algorithm in (Algorithm.RING, Algorithm.RING_TWO_WAY, Algorithm.LINE)),
    *((kind, Algorithm.DOUBLE_BINARY_TREE) for kind in (AR, BROADCAST)),
    (A2A, Algorithm.LINE),
]
CASES = [
    (kind, algorithm, n)
    for kind in (AG, RS, AR, A2A, BROADCAST)
    for algorithm in FORMS
    for n in SIZES
    if runs(kind, algorithm, n)
]


@pytest.mark.parametrize(("kind", "algorithm", "n"), [case for case in CASES if case not in COUNTED])
def test_closed_forms_count_the_same(kind: Kind, algorithm: Algorithm, n: int) -> None:
    found = form(algorithm, kind, n)
    assert found is not None
    payload = whole_payload(n)
    wire = counted(kind, algorithm, n, payload)
    assert ratios(wire, payload) == (found.steps, Fraction(*found.sent), Fraction(*found.link))
    if algorithm in (Algorithm.DIRECT, Algorithm.ONE_SHOT, Algorithm.TWO_SHOT):  # over all links at once
        assert Fraction(wire.serial, payload) == Fraction(*found.link)
    elif (kind, algorithm) not in IN_PIECES:
        assert Fraction(wire.serial, payload) == Fraction(*found.through)


@pytest.mark.parametrize("case", COUNTED, ids=lambda case: f"{case[0]}-{case[1]}-{case[2]}")
def test_what_the_closed_forms_do_not_count(case: tuple[Kind, Algorithm, int]) -> None:
    payload = whole_payload(case[2])
    assert ratios(counted(*case, payload), payload) == COUNTED[case]


def test_what_has_a_closed_form_runs() -> None:
    for algorithm in FORMS:
        for kind in (AG, RS, AR, A2A, BROADCAST):
            for n in range(1, 17):
                assert runs(kind, algorithm, n) == (form(algorithm, kind, n) is not None), (kind, algorithm, n)


@pytest.mark.parametrize("algorithm", [Algorithm.RING, Algorithm.RING_TWO_WAY, Algorithm.DIRECT])
@pytest.mark.parametrize("n", SIZES)
def test_messages_are_one_step(algorithm: Algorithm, n: int) -> None:
    shifted, one = Wire(bits=8), Wire(bits=8)
    got = send(shifted, [(i, (i + 1) % n, np.full(5, i)) for i in range(n)])
    assert [own.tolist() for own in got] == [[i] * 5 for i in range(n)]
    send(one, [(0, 1, np.arange(5))])
    for kind, wire in zip(MESSAGES, (one, shifted), strict=True):
        found = form(algorithm, kind, n)
        assert found is not None
        assert ratios(wire, 5) == (found.steps, Fraction(*found.sent), Fraction(*found.link))


@pytest.mark.parametrize("n", SIZES)
def test_a_shift_along_a_line_goes_back_from_the_last_to_the_first(n: int) -> None:
    wire, data = Wire(bits=8), np.arange(5)
    send(wire, [*((i, i + 1, data) for i in range(n - 1)), (n - 1, n - 2, data)])
    for i in range(n - 2, 0, -1):
        send(wire, [(i, i - 1, data)])
    found = form(Algorithm.LINE, Kind.PERMUTE, n)
    assert found is not None
    assert ratios(wire, 5) == (found.steps, Fraction(*found.sent), Fraction(*found.link))


# A switch that sums.


@pytest.mark.parametrize("own_copy", [True, False])
@pytest.mark.parametrize("n", range(1, 17))
def test_a_switch_that_sums(n: int, own_copy: bool) -> None:
    wire, payload = Wire(bits=8), 6 * n
    buffers = given_to(AR, n, payload)
    assert_same(run(wire, switches.all_reduce(wire, range(n), buffers, np.add, own_copy)), expected(AR, n, buffers))
    ratio = Fraction(*in_network_ratio(n, own_copy))
    for i in range(n):
        assert Fraction(wire.sent.get(i, 0), payload) == ratio
        assert wire.received.get(i, 0) == wire.sent.get(i, 0)
    assert wire.sent.get(SWITCH, 0) == wire.received.get(SWITCH, 0) == n * ratio * payload
    assert wire.sent_max == ratio * payload
    assert all(SWITCH in link for link in wire.links)


# Two levels.

HIERARCHICAL: dict[Kind, Callable[..., Any]] = {
    AG: switches.hierarchical_all_gather,
    RS: switches.hierarchical_reduce_scatter,
    AR: switches.hierarchical_all_reduce,
    A2A: switches.hierarchical_all_to_all,
    BROADCAST: switches.hierarchical_broadcast,
}


def over_two_levels(kind: Kind, wire: Wire, domains: list[list[int]], arrays: Any, combine: Any = np.add) -> Any:
    more = (combine,) if kind in (RS, AR) else ()
    return run(wire, HIERARCHICAL[kind](wire, domains, arrays, *more))


@pytest.mark.parametrize("kind", HIERARCHICAL)
@pytest.mark.parametrize("members", [2, 4, 8])
@pytest.mark.parametrize("number", [2, 3, 4])
def test_phases_over_two_levels_count_the_same(kind: Kind, members: int, number: int) -> None:
    n = members * number
    payload = 2 * n
    domains = [list(range(d * members, (d + 1) * members)) for d in range(number)]
    wire, arrays = Wire(bits=8), given_to(kind, n, payload)
    assert_same(over_two_levels(kind, wire, domains, arrays), expected(kind, n, arrays))

    network = Network((Level(name="inside", bandwidth=4e9, devices=members), Level(name="across", bandwidth=1e9)))
    found = price(kind, payload, place(n, 1, network), network, Algorithm.HIERARCHICAL)
    for level in ("inside", "across"):
        sent = [0] * n
        for (source, target), elements in wire.links.items():
            if (level == "inside") == (int(source) // members == int(target) // members):
                sent[int(source)] += elements
        wanted = sum(phase.cost.egress_bytes for phase in found.phases if phase.level == level)
        assert max(sent) == wanted
        assert kind is BROADCAST or min(sent) == wanted
    assert wire.steps == found.cost.steps
    if kind is not A2A:  # only between members with the same position
        crossed = [link for link in wire.links if int(link[0]) // members != int(link[1]) // members]
        assert all(int(source) % members == int(target) % members for source, target in crossed)


# Any sizes.


def arrays_for(kind: Kind, n: int, shape: Callable[[], tuple[int, ...]], numbers: np.random.Generator) -> Any:
    def array(of: tuple[int, ...]) -> Array:
        return numbers.integers(-1000, 1000, of)

    if kind is AG:
        return [array(shape()) for _ in range(n)]
    if kind is A2A:
        return [[array(shape()) for _ in range(n)] for _ in range(n)]
    shapes = [shape() for _ in range(n)]
    if kind is RS:
        return [[array(of) for of in shapes] for _ in range(n)]
    return array(shapes[0]) if kind is BROADCAST else [array(shapes[0]) for _ in range(n)]


@st.composite
def uneven(draw: Any, kind: Kind, n: int) -> Any:
    """Arrays of random shapes, with no elements now and then."""
    numbers = np.random.default_rng(draw(st.integers(0, 2**32)))

    def shape() -> tuple[int, ...]:
        return tuple(int(size) for size in numbers.integers(0, 5, numbers.integers(0, 4)))

    return arrays_for(kind, n, shape, numbers)


def joined(algorithm: Algorithm, at: dict[Any, int], source: Any, target: Any, n: int) -> bool:
    """Whether the topology that the algorithm is for has this link."""
    if algorithm is Algorithm.IN_NETWORK:
        return (source == SWITCH) != (target == SWITCH)
    ahead = at[target] - at[source]
    if algorithm is Algorithm.RING:
        return ahead % n == 1
    if algorithm is Algorithm.RING_TWO_WAY:
        return ahead % n in (1, n - 1)
    return abs(ahead) == 1 if algorithm is Algorithm.LINE else source in at and target in at


COMBINES = [np.add, np.maximum, np.minimum]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_sizes_give_the_right_result_over_links_that_are_there(data: st.DataObject) -> None:
    kind, algorithm = data.draw(st.sampled_from([*PROGRAMS]))
    n = data.draw(st.integers(1, 13).filter(lambda size: runs(kind, algorithm, size)))
    ranks = data.draw(st.permutations(range(20)))[:n]
    combine = data.draw(st.sampled_from(COMBINES))
    arrays = data.draw(uneven(kind, n))
    before = [array.copy() for array in flat(arrays)]
    wire = Wire(bits=16)
    found = run(wire, program(kind, algorithm, wire, ranks, arrays, combine))
    assert_same(found, expected(kind, n, arrays, combine))
    assert_same(flat(arrays), before)
    assert not any(np.shares_memory(got, own) for got in flat(found) for own in flat(arrays))
    for i, own in enumerate(found):
        assert not any(np.shares_memory(one, other) for j in range(i) for one in flat(own) for other in flat(found[j]))
    at = {rank: i for i, rank in enumerate(ranks)}
    assert all(joined(algorithm, at, source, target, n) for source, target in wire.links)
    assert sum(wire.sent.values()) == sum(wire.received.values()) == sum(wire.links.values())
    assert n > 1 or (wire.steps, wire.links) == (0, {})


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_sizes_over_two_levels(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([*HIERARCHICAL]))
    members, number = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    n = members * number
    ranks = data.draw(st.permutations(range(20)))[:n]
    combine = data.draw(st.sampled_from(COMBINES))
    arrays = data.draw(uneven(kind, n))
    before = [array.copy() for array in flat(arrays)]
    domains = [ranks[d * members : (d + 1) * members] for d in range(number)]
    wire = Wire(bits=16)
    assert_same(over_two_levels(kind, wire, domains, arrays, combine), expected(kind, n, arrays, combine))
    assert_same(flat(arrays), before)


@pytest.mark.parametrize(("kind", "algorithm"), [key for key in PROGRAMS if key[0] is AR])
def test_all_members_end_with_the_same_bits(kind: Kind, algorithm: Algorithm) -> None:
    """Sums of floating point depend on their order, which is another one for each algorithm."""
    numbers = np.random.default_rng(0)
    for n in (size for size in SIZES if runs(kind, algorithm, size)):
        got = all_reduce(algorithm, Wire(bits=32), range(n), list(numbers.normal(size=(n, 37)).astype(np.float32)))
        assert {one.tobytes() for one in got} == {got[0].tobytes()}


# The wire and the rest.


def test_the_wire_counts_elements_and_steps() -> None:
    wire = Wire(bits=4)
    data = np.arange(6).reshape(2, 3)
    arrived = wire.send("a", "b", data)
    assert arrived.tolist() == data.tolist()
    assert not np.shares_memory(arrived, data)
    wire.send("a", "b", data[0])
    wire.send("b", "a", data[0, :1])
    wire.send("b", "a", data[:0])
    wire.step()
    wire.send("b", "a", data[:0])
    wire.step()
    assert (wire.steps, wire.serial, wire.sent_max, wire.link_max) == (1, 9, 9, 9)
    assert (wire.sent, wire.received) == ({"a": 9, "b": 1}, {"b": 9, "a": 1})
    assert wire.links == {("a", "b"): 9, ("b", "a"): 1}
    assert wire.bytes(wire.sent_max) == 5
    assert (Wire(8).sent_max, Wire(8).link_max) == (0, 0)
    with pytest.raises(ValueError, match="node 3 sends to itself"):
        wire.send(3, 3, data)


def test_groups_at_the_same_time_share_their_steps() -> None:
    alone, together = Wire(bits=8), Wire(bits=8)
    run(alone, program(AR, Algorithm.RING, alone, range(4), given_to(AR, 4, 8)))
    groups = [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9)]
    programs = [program(AR, Algorithm.RING, together, ranks, given_to(AR, len(ranks), 8)) for ranks in groups]
    got = run(together, lock_step(programs))
    for ranks, result in zip(groups, got, strict=True):
        assert_same(result, expected(AR, len(ranks), given_to(AR, len(ranks), 8)))
    # The group of two is done after two of the steps, whose chunks are halves of 8 elements.
    assert (together.steps, alone.steps, alone.serial, together.serial) == (6, 6, 12, 2 * 4 + 4 * 2)


def test_what_does_not_run() -> None:
    with pytest.raises(UsageError, match="binomial-tree does not run all_gather here"):
        program(AG, Algorithm.BINOMIAL_TREE, Wire(8), range(4), given_to(AG, 4, 8))
    with pytest.raises(UsageError, match="recursive-doubling needs a power of two of devices, not 6"):
        all_reduce(Algorithm.RECURSIVE_DOUBLING, Wire(8), range(6), given_to(AR, 6, 12))
    with pytest.raises(UsageError, match="domains of 1, 2 members"):
        run(Wire(8), switches.hierarchical_broadcast(Wire(8), [[0, 1], [2]], np.arange(3)))
    assert [runs(kind, Algorithm.DIRECT, 5) for kind in MESSAGES] == [True, True]
    assert not runs(Kind.SLICE, Algorithm.DIRECT, 5)


def test_trees_of_nccl() -> None:
    """The drawings in NCCL src/graph/trees.cc: 14 members; both trees of 12 and of 13."""
    assert first_tree(14) == [None, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12]
    assert first_tree(12) == [None, 2, 4, 2, 8, 6, 4, 6, 0, 10, 8, 10]
    assert second_tree(12) == [1, 3, 1, 11, 5, 7, 5, 3, 9, 7, 9, None]
    assert first_tree(13) == [None, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8]
    assert second_tree(13) == [9, None, 3, 5, 3, 9, 7, 5, 7, 1, 11, 0, 11]


@given(st.integers(2, 200))
def test_no_member_but_one_is_inside_both_trees(n: int) -> None:
    """For an odd number the shift puts member 0, the first tree's root, inside the second one."""
    inside = set(first_tree(n)) & set(second_tree(n)) - {None}
    assert inside <= ({0} if n % 2 else set())
