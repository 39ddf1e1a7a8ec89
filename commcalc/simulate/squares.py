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


def _moments(at: Local, held: Sequence[Array]) -> Array:
    """The sum of each token [T, 2], and of its squares."""
    return np.stack([held[0].sum(axis=1), np.square(held[0]).sum(axis=1)], axis=1)


def _moments_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    made: Array = grad[:, :1] + 2 * held[0] * grad[:, 1:]
    return made


def _layernorm_by(eps: float) -> Kernel:
    """``(x - mean) / sqrt(variance + eps) * gain``, and a bias where there is one, from the moments of all elements."""

    def centred(at: Local, held: Sequence[Array]) -> tuple[Array, Array, int]:
        count = at.sizes[at.out_dims[1]]
        mean = held[1][:, :1] / count
        variance = held[1][:, 1:] / count - mean**2
        by: Array = 1 / np.sqrt(variance + held[0].dtype.type(eps))
        return held[0] - mean, by, count

    def forward(at: Local, held: Sequence[Array]) -> Array:
        moved, by, _ = centred(at, held)
        made: Array = moved * by * held[2]
        return made + held[3] if len(held) > 3 else made

    def backward(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
        moved, by, count = centred(at, held)
        if which > 1:
            found: Array = (grad * moved * by if which == 2 else grad).sum(axis=0)
            return found
        inner = grad * held[2]
        if which == 0:
            return np.asarray(inner * by)
        # Of the variance, and of the mean: both are of the moments.
        spread = (inner * moved).sum(axis=1) * by[:, 0] ** 3 / -2
        mean = -(inner * by).sum(axis=1) - 2 * held[1][:, 0] / count * spread
        return np.stack([mean, spread], axis=1) / count

    return Kernel(forward, backward)


def by_squares(eps: float) -> dict[str, Kernel]:
    """The kernels by function; ``eps`` is that of all norms."""
    return {
        "squares": Kernel(_squares, _squares_back),
        "q_norm_by_squares": norm_by(0, eps),
        "k_norm_by_squares": norm_by(1, eps),
        "norm_by_squares": norm_by(None, eps),
        "rmsnorm_by_sums": norm_by(None, eps),
        "moments": Kernel(_moments, _moments_back),
        "layernorm_by_sums": _layernorm_by(eps),
    }
