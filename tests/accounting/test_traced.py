"""Numbers that record what is done with them, and the record run on arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.accounting.replay import Script
from commcalc.accounting.traced import Tape

Function = Callable[[Any, Any], Any]


def script_of(function: Function, a: int, b: int) -> Script:
    tape = Tape()
    return Script(tape, [function(tape.variable("a", a), tape.variable("b", b))])


def run(function: Function, at: tuple[int, int], points: list[tuple[int, int]]) -> tuple[list[bool], list[Any]]:
    inputs = {name: np.array([point[place] for point in points], dtype=np.int64) for place, name in enumerate("ab")}
    served, (answer,) = script_of(function, *at).run(inputs, len(points))
    count = int(served.sum())
    return served.tolist(), answer.tolist() if hasattr(answer, "tolist") else [answer] * count


FUNCTIONS: dict[str, Function] = {
    "a ceiling": lambda a, b: -(-a * 16 // (8 * b)),
    "a chain of products": lambda a, b: -(-(a * 6) // 3 * -4) * b * 1,
    "a quotient": lambda a, b: a * 7 / 8 / b / 4.5e11,
    "a rest": lambda a, b: a % b + divmod(a, 3)[1],
    "a branch": lambda a, b: a * 2 if a > b else b - a,
    "the larger": lambda a, b: max(a, b, 7) + min(a, 0.5),
    "truths as numbers": lambda a, b: (a > 1) * 1 + (b > 1) + (a == b),
    "an index": lambda a, b: list(range(10))[b % 10] + a,
    "a key": lambda a, b: {1: 10, 2: 20}.get(b, 0) + a,
    "a root": lambda a, b: a**0.5 * 1e-9 + b,
    "a rounded number": lambda a, b: round(a / b),
    "a difference of times": lambda a, b: a * 1e-6 - b / 3e9 + 0.1,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 2**20)), min_size=1, max_size=8))
def test_a_script_says_what_the_function_says_or_nothing(name: str, points: list[tuple[int, int]]) -> None:
    function = FUNCTIONS[name]
    served, found = run(function, points[0], points)
    assert served[0]
    assert found == [function(*point) for point, mine in zip(points, served, strict=True) if mine]


def test_what_differs_in_a_decision_is_not_served() -> None:
    points = [(3, 2), (2, 3), (5, 1), (1, 1)]
    assert run(FUNCTIONS["a branch"], (3, 2), points) == ([True, False, True, False], [6, 10])
    assert run(FUNCTIONS["an index"], (1, 3), [(9, 3), (9, 4)]) == ([True, False], [12])


def test_whole_numbers_beyond_arrays_are_exact() -> None:
    points = [(2**61, 2**61), (3, 5)]
    assert run(operator.mul, (3, 5), points)[1] == [2**122, 15]
    assert run(lambda a, b: a * b * b / 3, (3, 5), points)[1] == [2**183 / 3, 25.0]


def test_a_divisor_of_zero_is_another_decision() -> None:
    assert run(lambda a, b: a // (b - 1), (4, 3), [(4, 3), (4, 1)]) == ([True, False], [2])


def test_texts_narrow_only_where_they_count() -> None:
    tape, strict = Tape(), Tape(texts=True)
    assert f"{tape.variable('a', 5)} {strict.variable('a', 5)}" == "5 5"
    assert (len(tape.guards), len(strict.guards)) == (0, 1)
