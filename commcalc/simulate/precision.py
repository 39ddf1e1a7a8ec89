"""The number formats that a program can be run in, and how far its result may be from the exact one.

With unit roundoff u a sum or product is wrong by at most u of its value. Errors of separate operations are as good as
independent, so that of k in a row the relative error of the result grows as sqrt(k) u, and no faster than k u (Higham,
Accuracy and Stability of Numerical Algorithms, section 2.6). A value passes through some 50 operations on its way
through two layers, forward and back, each a sum over 4 to 100 terms.

    float64   u = 1.1e-16   1e-12, what the layouts are held to; k u = 50 * 100 * 1.1e-16 is 6e-13
    float32   u = 6.0e-8    1e-4; k u is 3e-4 and sqrt(k) u 4e-6
    bfloat16  u = 3.9e-3    0.15; sums inside an operation run in float32 and are rounded once, as accelerators do, so
                            that k is 50: sqrt(k) u is 0.03, and k u 0.2

The gradient of one weight is a sum over tokens whose terms nearly cancel where the weight matters little; its error is
relative to the terms, not to what is left of them. In bfloat16 it may be off by 0.3. A reduction that is left out loses
(n-1)/n of n equal shares, of two at least 0.35 in the norm where the shares are independent.

Copies of one block are made by the same operations on the same numbers, or are copies: they may differ by a unit in the
last place where a processor adds in another order, 4 u.

Adam's first step divides a gradient by its own size: an element that is smaller than the error of its gradient gets a
step of any sign. Where gradients are spread evenly around zero, a share e of them is smaller than e, and an update
that is wrong by up to 2 on that share is wrong by 2 sqrt(e) in the norm: that is its tolerance, 0.02 in float32 and
0.77 in bfloat16. In float64 it is 1e-12 still, since there no element that matters is so small.

These hold at the default sizes. Of other models `rounding` says what else may be allowed.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from commcalc.simulate.wire import Array


class Format(StrEnum):
    """What elements are computed and sent in."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


_UNITS = {Format.FLOAT64: 2.0**-53, Format.FLOAT32: 2.0**-24, Format.BFLOAT16: 2.0**-8}


class Precision(NamedTuple):
    """A format with the relative errors it is allowed: of values, of a weight's gradient, of copies, of Adam's step."""

    format: Format
    tolerance: float
    gradient_tolerance: float
    copies_tolerance: float
    adam_tolerance: float

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type that holds the elements; bfloat16 is float32 with half of its bits zero."""
        return np.dtype(np.float64 if self.format is Format.FLOAT64 else np.float32)

    def of(self, array: Array) -> Array:
        """``array`` in this format; whole numbers stay as they are."""
        if array.dtype.kind != "f":
            return array
        found = array.astype(self.dtype, copy=False)
        return rounded_to_bfloat16(found) if self.format is Format.BFLOAT16 else found

    @property
    def unit(self) -> float:
        """The unit roundoff."""
        return _UNITS[self.format]

    @property
    def arithmetic_unit(self) -> float:
        """The unit roundoff inside an operation."""
        return _UNITS[Format.FLOAT64 if self.format is Format.FLOAT64 else Format.FLOAT32]

    @property
    def short(self) -> bool:
        """Whether so few bits are kept that a choice between near values may fall otherwise."""
        return self.format is Format.BFLOAT16

    def add(self, one: Array, other: Array) -> Array:
        """A sum in this format, as it is made on the way of a reduction."""
        return self.of(np.add(one, other))


def precision_of(name: Format) -> Precision:
    """The format with its tolerances; the docstring of this module has the reasons."""
    tolerance = {Format.FLOAT64: 1e-12, Format.FLOAT32: 1e-4, Format.BFLOAT16: 0.15}[name]
    adam = tolerance if name is Format.FLOAT64 else 2 * math.sqrt(tolerance)
    return Precision(name, tolerance, 0.3 if name is Format.BFLOAT16 else tolerance, 4 * _UNITS[name], adam)


def rounded_to_bfloat16(array: Array) -> Array:
    """Float32 rounded to the nearest number with 8 significant bits, ties to even.

    >>> rounded_to_bfloat16(np.array([1.0, 1.00390625, 1.01171875, 3.14159265], dtype=np.float32)).tolist()
    [1.0, 1.0, 1.015625, 3.140625]
    """
    bits = np.asarray(array, dtype=np.float32, order="C").view(np.uint32)
    up = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    found: Array = ((bits + up) & np.uint32(0xFFFF0000)).view(np.float32)
    return found
