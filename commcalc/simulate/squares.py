"""Norms over all heads where each device has some of them: sums of squares that go round, and what is made of them."""

# Kernels of devices share one signature.

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from commcalc.simulate.local import Kernel, Local
from commcalc.simulate.wire import Array


def _copies(at: Local, which: int) -> int:
    """How many of the devices that add up hold the same heads: each of these copies counts as one part of them.

    vLLM's mean over ranks does the same (minimax_rms_norm: the mean of squares is reduced and divided by the ranks).
    """
    own = at.placed.inputs[which].varying
    return math.prod(at.sizes[axis] for axis in at.placed.output.unreduced if axis not in own)


def _squares(at: Local, held: Sequence[Array]) -> Array:
    found = [np.square(x).sum(axis=tuple(range(1, x.ndim))) / _copies(at, which) for which, x in enumerate(held)]
    return found[0] if len(found) == 1 else np.stack(found, axis=1)


def _squares_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    x = held[which]
    own = grad if grad.ndim == 1 else grad[:, which]
    made: Array = 2 * x * _by_token(own, x) / _copies(at, which)
    return made


def _by_token(numbers: Array, x: Array) -> Array:
    return numbers.reshape(-1, *[1] * (x.ndim - 1))


def norm_by(column: int | None, eps: float) -> Kernel:
    """``x / sqrt(squares / elements + eps) * gain``, the sum of squares [T] or a column of [T, 2]."""

    def scale(at: Local, held: Sequence[Array]) -> tuple[Array, int]:
        count = math.prod(at.sizes[dim] for dim in at.out_dims[1:])
        own = held[1] if column is None else held[1][:, column]
        found: Array = 1 / np.sqrt(_by_token(own, held[0]) / count + held[0].dtype.type(eps))
        return found, count

    def forward(at: Local, held: Sequence[Array]) -> Array:
        made: Array = held[0] * scale(at, held)[0] * held[2]
        return made

    def backward(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
        by, count = scale(at, held)
        if which == 0:
            return grad * held[2] * by
        if which == 2:
            found: Array = (grad * held[0] * by).sum(axis=0)
            return found
        back = (grad * held[2] * held[0] * by**3).sum(axis=tuple(range(1, grad.ndim))) / (-2 * count)
        if column is None:
            return np.asarray(back)
        made = np.zeros_like(held[1])
        made[:, column] = back
        return made

    return Kernel(forward, backward)


def by_squares(eps: float) -> dict[str, Kernel]:
    """The kernels by function; ``eps`` is that of all norms."""
    return {
        "squares": Kernel(_squares, _squares_back),
        "q_norm_by_squares": norm_by(0, eps),
        "k_norm_by_squares": norm_by(1, eps),
        "norm_by_squares": norm_by(None, eps),
    }
