"""Cross-entropy over the part of the vocabulary that a device has, and which token is sampled from whole logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commcalc.simulate.local import Kernel, Local, no_gradient
from commcalc.simulate.wire import Array


def _targets(at: Local) -> tuple[Array, Array]:
    """The rows whose target this device has a logit of, and its column."""
    _, (low, high) = at.inputs[0]
    here = np.flatnonzero((at.batch.targets >= low) & (at.batch.targets < high))
    return here, at.batch.targets[here] - low


def _target_logit(at: Local, held: Sequence[Array]) -> Array:
    here, columns = _targets(at)
    made = np.zeros(held[0].shape[0], dtype=held[0].dtype)
    made[here] = held[0][here, columns]
    return made


def _target_logit_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    here, columns = _targets(at)
    made = np.zeros_like(held[0])
    made[here, columns] = grad[here]
    return made


def _largest(at: Local, held: Sequence[Array]) -> Array:
    made: Array = held[0].max(axis=1)
    return made


def _sum(at: Local, held: Sequence[Array]) -> Array:
    made: Array = held[0].sum(axis=1)
    return made


def _sum_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    return np.broadcast_to(grad[:, None], held[0].shape)


def _exp(at: Local, held: Sequence[Array]) -> Array:
    made: Array = np.exp(held[0] - held[1][:, None])
    return made


def _exp_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    return grad * _exp(at, held)


def _cross_entropy(at: Local, held: Sequence[Array]) -> Array:
    made: Array = np.log(held[0]) + held[2] - held[1]
    return made


def _cross_entropy_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    return grad / held[0] if which == 0 else -grad


def _sample(at: Local, held: Sequence[Array]) -> Array:
    made: Array = held[0].argmax(axis=1)
    return made


LOSS = {
    "max_logit": Kernel(_largest, no_gradient),
    "target_logit": Kernel(_target_logit, _target_logit_back),
    "sum_exp": Kernel(_sum, _sum_back),
    "exp": Kernel(_exp, _exp_back),
    "cross_entropy": Kernel(_cross_entropy, _cross_entropy_back),
    "sample": Kernel(_sample, no_gradient),
}
