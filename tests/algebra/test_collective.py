"""Collectives as transitions: factors of nccl-tests, conservation, transposes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.algebra.collective import (
    Convention,
    Kind,
    all_gather,
    all_reduce,
    all_to_all,
    factor,
    keep_slice,
    reduce_scatter,
    transpose,
    wire_bytes,
)
from commcalc.algebra.notation import parse_tensor
from commcalc.algebra.sharding import Sharding
from commcalc.errors import ShardingError

# nccl-tests doc/PERFORMANCE.md, "Bus bandwidth": the factor of each operation over n ranks.
NCCL_TESTS = {
    Kind.ALL_REDUCE: lambda n: Fraction(2 * (n - 1), n),
    Kind.ALL_GATHER: lambda n: Fraction(n - 1, n),
    Kind.REDUCE_SCATTER: lambda n: Fraction(n - 1, n),
    Kind.ALL_TO_ALL: lambda n: Fraction(n - 1, n),
    Kind.BROADCAST: lambda n: Fraction(1),
    Kind.SEND_RECV: lambda n: Fraction(1),
}


def sharding(text: str) -> Sharding:
    return parse_tensor(text, "XY")[1]


@pytest.mark.parametrize("kind", NCCL_TESTS)
@pytest.mark.parametrize("n", [2, 3, 7, 8, 16, 72])
def test_factor_is_that_of_nccl_tests(kind: Kind, n: int) -> None:
    assert factor(kind, n) == NCCL_TESTS[kind](n)


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("convention", Convention)
def test_one_device_sends_nothing(kind: Kind, convention: Convention) -> None:
    assert wire_bytes(kind, 1 << 30, 1, convention) == 0


def test_wire_bytes_round_up_once() -> None:
    assert wire_bytes(Kind.ALL_REDUCE, 10, 3) == 14  # 13.33
    assert wire_bytes(Kind.ALL_GATHER, 1, 8) == 1


@given(st.integers(0, 10**15), st.integers(1, 512))
def test_allreduce_is_reduce_scatter_and_allgather(pieces: int, n: int) -> None:
    payload = pieces * n
    halves = wire_bytes(Kind.REDUCE_SCATTER, payload, n) + wire_bytes(Kind.ALL_GATHER, payload, n)
    assert wire_bytes(Kind.ALL_REDUCE, payload, n) == halves


@given(st.integers(1, 10**12), st.integers(2, 512))
def test_wire_bytes_grow_with_the_group_and_stay_below_their_limit(payload: int, n: int) -> None:
    for kind, limit in ((Kind.ALL_REDUCE, 2), (Kind.ALL_GATHER, 1)):
        sent = wire_bytes(kind, payload, n)
        assert sent <= wire_bytes(kind, payload, n + 1) <= limit * payload


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=6), st.integers(1, 64))
def test_arrays_give_what_ints_give(payloads: list[int], n: int) -> None:
    for kind in Kind:
        array = wire_bytes(kind, np.array(payloads), np.full(len(payloads), n))
        assert np.broadcast_to(array, len(payloads)).tolist() == [wire_bytes(kind, payload, n) for payload in payloads]


def test_textbook_drops_the_n_minus_one_over_n() -> None:
    assert factor(Kind.ALL_REDUCE, 8, Convention.TEXTBOOK) == 2
    assert factor(Kind.ALL_GATHER, 8, Convention.TEXTBOOK) == 1


STEPS = {
    "all_reduce": (all_reduce(sharding("C[I, K]{U_X}"), ("X",)), "C[I, K]", None),
    "all_gather": (all_gather(sharding("A[I_X, J]"), "I", ("X",)), "A[I, J]", ("reduce_scatter", "A[I_X, J]")),
    "reduce_scatter": (reduce_scatter(sharding("C[I, K]{U_X}"), "K", ("X",)), "C[I, K_X]", ("all_gather", "C[I, K]")),
    "all_to_all": (all_to_all(sharding("A[I_X, J]"), "I", "J", ("X",)), "A[I, J_X]", ("all_to_all", "A[I_X, J]")),
    "slice": (keep_slice(sharding("A[I, J_Y]"), "I", ("X",)), "A[I_X, J_Y]", ("all_gather", "A[I, J_Y]")),
}


@pytest.mark.parametrize("name", STEPS)
def test_transition_and_transpose(name: str) -> None:
    """How To Scale Your Model, part 3: each primitive as a signature, AllGather and ReduceScatter as transposes."""
    step, after, back = STEPS[name]
    assert step.after == sharding(after)
    found = transpose(step)
    if back is None:
        assert found is None
    else:
        assert found is not None
        assert (found.kind.value, found.after) == (back[0], sharding(back[1]))


def test_payload_is_the_large_side() -> None:
    sizes = {"I": 64, "J": 32, "K": 16, "X": 4, "Y": 2}
    gathered = all_gather(sharding("A[I_X, J_Y]"), "I", ("X",))
    assert gathered.payload(16).value(sizes) == 64 * 32 // 2 * 2
    scattered = reduce_scatter(sharding("C[I, K_Y]{U_X}"), "I", ("X",))
    assert scattered.payload(16).value(sizes) == 64 * 16 // 2 * 2
    exchanged = all_to_all(sharding("A[I_X, J]"), "I", "J", ("X",))
    assert exchanged.payload(16).value(sizes) == 64 * 32 // 4 * 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: all_reduce(sharding("C[I]"), ("X",)), "the tensor is not unreduced over X"),
        (lambda: all_gather(sharding("A[I_XY]"), "I", ("X",)), "dimension I is not split last over X"),
    ],
)
def test_a_step_that_does_not_apply_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        make()
