"""One thing that was checked: what was expected, what was found, and where they part."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from commcalc.simulate.wire import Array

# The error of what is checked that rounding may excuse.
Excuse: TypeAlias = Callable[[str], float]


class Check(NamedTuple):
    """``expected`` is a count that must be met exactly, or, with ``most``, the largest error that is allowed.

    ``where`` names the row or tensor, ``message`` says what it means where it failed, ``formula`` what a count was
    expected by.
    """

    what: str
    expected: float
    found: float
    passed: bool
    where: str = ""
    message: str = ""
    most: bool = False
    formula: str = ""


class Run(NamedTuple):
    """Something that was run once, and all that was checked of it: a layout, a strategy or a collective.

    ``case`` says which model, strategy or algorithm, ``note`` what tells runs of one case apart; ``layout`` is empty
    where there is none.
    """

    layout: str
    mesh: tuple[tuple[str, int], ...]
    case: str
    checks: tuple[Check, ...]
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether every check did."""
        return all(check.passed for check in self.checks)


def exact(what: str, expected: float, found: float, where: str, message: str = "", formula: str = "") -> Check:
    """Two counts that must be equal."""
    passed = expected == found
    return Check(what, expected, found, passed, where, "" if passed else message, formula=formula)


def at_most(
    what: str, allowed: float, error: float, where: str = "", message: str = "", more: Excuse | None = None
) -> Check:
    """An error that must not exceed what is allowed; one that is no number fails.

    ``more`` says what rounding may excuse besides; it is asked only where that matters.
    """
    worst = Worst(what, allowed, more)
    worst.met(error, where, message)
    check = worst.check()
    return check._replace(where=where)


class Worst:
    """The largest of many errors, and where the first was that is not allowed; one that is no number is infinite."""

    def __init__(self, what: str, allowed: float, more: Excuse | None = None) -> None:
        self.what = what
        self.allowed = allowed
        self.error = 0.0
        self.where = self.message = ""
        self._more = more

    def first(self, error: float) -> bool:
        """Whether this would be the first error that is not allowed."""
        if not error <= self.allowed and self._more is not None:
            self.allowed = max(self.allowed, self._more(self.what))
            self._more = None
        return not error <= self.allowed and not self.where

    def met(self, error: float, where: str, message: str) -> None:
        """One more error."""
        if self.first(error):
            self.where, self.message = where, message
        self.error = max(self.error, error if error == error else float("inf"))

    def check(self) -> Check:
        """The check of all of them."""
        passed = self.error <= self.allowed
        message = "" if passed else self.message
        return Check(self.what, self.allowed, self.error, passed, self.where, message, most=True)


def relative(found: Array, expected: Array, floor: float = 0.0) -> float:
    """The norm of the difference over the norm of what was expected, or over ``floor`` where that is larger.

    A floor keeps what is zero but for rounding (the gradient of a key bias: softmax does not see it) from counting as
    wholly wrong.
    """
    if found.shape != expected.shape:
        return float("inf")
    size = max(norm(expected), floor)
    difference = norm(np.subtract(found, expected, dtype=float))
    return difference / size if size else difference


def norm(array: Array) -> float:
    """The Euclidean norm of all elements, in float64."""
    return float(np.sqrt(np.sum(np.square(array, dtype=float))))
