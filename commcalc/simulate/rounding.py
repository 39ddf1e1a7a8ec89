"""What rounding alone does to a computation: how far the same program on one device moves when every operation errs.

The tolerances of `precision` are for the sizes that are run by default. Deeper models, and models that divide by little
(a norm over two elements), magnify what was rounded before; how much depends on weights and data, and no formula of
sizes tells. So where an error is larger than its tolerance, the plain program runs again a few times in float64, with
random relative errors as large as those of rounding (`tape.Noise`; Parker, Monte Carlo Arithmetic, 1997):

    u             in every result and every gradient of an operation, u that of the arithmetic: float32 for bfloat16
    u sqrt(k/2)   in a sum of up to k terms: its partial sums grow from one term to the whole
    u sqrt(n/2)   in a sum over n devices, whose partial sums are rounded to the format; of the tensors of a layer one
                  in eight is one, and it is squares that add up
    u             in all that is kept in the format: weights, tensors between operations, and their gradients

Allowed is then the tolerance, or `TIMES` the largest error in these runs, if that is more. No number that a simulated
device made enters, so that a wrong program is not excused by its own errors. At the default sizes float64 is never
allowed more than its tolerance, and no other format three times its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from commcalc.simulate.precision import Precision
from commcalc.simulate.tape import Noise
from commcalc.simulate.wire import Array

# Between the errors of two runs of the same size; the largest of several runs keeps single numbers, which may be lucky,
# from counting as exact.
TIMES = 2
RUNS = 8
# Where rounding alone makes errors as large as the number itself nothing of it is left to be compared: any will do.
ANY = 1e99

T = TypeVar("T")


class Rounding(Generic[T]):
    """The errors of a plain run with `Noise`, by what is checked. Nothing is run before somebody asks."""

    def __init__(
        self, again: Callable[[Noise], T], measures: Mapping[str, Callable[[T], float]], noise: Callable[[int], Noise]
    ) -> None:
        self._again = again
        self._measures = measures
        self._noise = noise
        self._found: dict[str, float] = {}

    def allowed(self, what: str) -> float:
        """The error of ``what`` that rounding may excuse; 0 where it can say nothing."""
        if not self._found:
            self._found = dict.fromkeys(self._measures, 0.0)
            for seed in range(RUNS):
                made = self._again(self._noise(seed))
                for name, measure in self._measures.items():
                    error = TIMES * measure(made)
                    self._found[name] = max(self._found[name], error if math.isfinite(error) else 0.0)
        found = self._found[what]
        return ANY if found > 1 else float(f"{found:.1e}")


def noise_of(precision: Precision, longest: int, devices: int, share: float) -> Callable[[int], Noise]:
    """The noise of a format by seed, where sums have up to ``longest`` terms and go over ``devices``."""
    inside = precision.arithmetic_unit
    kept = precision.unit * math.sqrt(1 / 4 + share * devices / 2)

    def rounded(array: Array) -> Array:
        return precision.of(array).astype(float)

    return lambda seed: Noise(inside, inside * math.sqrt(longest / 2), kept, rounded, seed)
