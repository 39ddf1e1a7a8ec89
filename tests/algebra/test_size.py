"""Payload formulas: exact with ints, alike with arrays, and readable."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.algebra.size import Product, Size, total
from commcalc.errors import SpecError

TD = Size((Product(1, ("T", "D")),), 16)


def test_value_and_text() -> None:
    sizes = {"T": 8192, "D": 12288, "cp": 2}
    assert TD.value(sizes) == 201_326_592
    assert TD.text() == "T*D*2 B"
    assert TD.with_values(sizes) == "8192*12288*2"
    split = Size((Product(1, ("T", "D"), ("cp",)),), 8)
    assert (split.value(sizes), split.text()) == (50_331_648, "T*D/cp*1 B")


def test_half_bytes_round_up_once_at_the_end() -> None:
    assert Size((Product(1, ("I",)),), 4).value({"I": 3}) == 2
    assert Size((Product(1, ("I",)), Product(1, ("J",))), 4).value({"I": 3, "J": 3}) == 3
    assert Size((Product(1, ("I",)),), 4).text() == "I*4/8 B"


def test_fractions_of_a_sum_are_added_before_rounding() -> None:
    thirds = Size((Product(1, ("I",), ("X",)), Product(2, ("I",), ("X",))), 8)
    assert thirds.value({"I": 4, "X": 3}) == 4


def test_total_adds_like_products() -> None:
    block = Size((Product(160, ("D",)),), 32)
    final = Size((Product(1, ("D",)),), 32)
    assert total([block, final]).text() == "161*D*4 B"
    assert total([block, Size((Product(1, ("H",)),), 32)]).text() == "(160*D + H)*4 B"


def test_a_size_that_was_not_given_is_asked_for_by_name() -> None:
    with pytest.raises(SpecError, match="the size of D is needed and not given"):
        TD.value({"T": 8})


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=5), st.integers(1, 1000), st.integers(1, 64))
def test_arrays_give_what_ints_give(tokens: list[int], width: int, ways: int) -> None:
    size = Size((Product(3, ("T", "D"), ("X",)), Product(1, ("D",))), 16)
    array = size.value({"T": np.array(tokens), "D": width, "X": ways})
    assert array.tolist() == [size.value({"T": t, "D": width, "X": ways}) for t in tokens]
