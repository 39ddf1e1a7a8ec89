"""Routers and experts on the tokens and columns that a device has.

A router's logits become shares by a softmax over the chosen ones, or by a sigmoid where one is chosen: a softmax would
be 1 and have no gradient (Llama 4 does so). Other functions of one token's logits (groups, corrections, scales) sit at
the same place and move nothing. Choices are kept in the order of the experts' numbers, so that it does not matter
whether they are made from scores or read from a map.
"""

# Kernels of devices share one signature.
# ruff: noqa: ARG001

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from commcalc.simulate.linear import sigmoid
from commcalc.simulate.local import Kernel, Local, no_gradient
from commcalc.simulate.wire import Array


def _best(scores: Array, count: int) -> Array:
    """The experts with the highest scores of every token, [T, C] in rising order; of equals the lower number."""
    best: Array = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :count], axis=1)
    return best


def _choose(at: Local, held: Sequence[Array]) -> Array:
    """The best by their scores, or those that were drawn for the tokens."""
    if at.batch.choices is not None:
        (low, high), *_ = at.output
        return at.batch.choices[low:high]
    return _best(held[0], at.sizes["C"])


def _map(at: Local, held: Sequence[Array]) -> Array:
    return _marked(held[0].shape, _best(held[0], at.sizes["C"]))


def _marked(shape: tuple[int, ...], chosen: Array) -> Array:
    """Ones for the chosen experts of each token, zeros for the others: [T, E]."""
    made = np.zeros(shape, dtype=np.int8)
    np.put_along_axis(made, chosen, 1, axis=1)
    return made


def _shares(logits: Array, there: Array, count: int) -> Array:
    """How much each of the ``count`` choices that are there counts; zero for others."""
    if count == 1:
        return sigmoid(logits) * there
    logits = np.where(there, logits, -np.inf)
    exps = np.exp(logits - logits.max(axis=1, keepdims=True))
    made: Array = exps / exps.sum(axis=1, keepdims=True)
    return made


def _shares_back(shares: Array, grad: Array, count: int) -> Array:
    mean = shares * grad if count == 1 else (shares * grad).sum(axis=1, keepdims=True)
    made: Array = shares * (grad - mean)
    return made


def _routed(held: Sequence[Array]) -> Array:
    scores, chosen, *_ = held
    return _shares(np.take_along_axis(scores, chosen, axis=1), np.ones(chosen.shape, dtype=bool), chosen.shape[1])


def _routing(at: Local, held: Sequence[Array]) -> Array:
    shares = _routed(held)
    return shares * held[2][held[1]] if len(held) > 2 else shares


def _routing_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    scores, chosen, *gain = held
    shares = _routed(held)
    if which == 2:
        made = np.zeros_like(gain[0])
        np.add.at(made, chosen, grad * shares)
        return made
    made = np.zeros_like(scores)
    found = _shares_back(shares, grad * gain[0][chosen] if gain else grad, chosen.shape[1])
    np.put_along_axis(made, chosen, found, axis=1)
    return made


def _dense(held: Sequence[Array]) -> Array:
    scores, chosen, *_ = held
    return _shares(scores, _marked(scores.shape, chosen) > 0, chosen.shape[1])


def _probabilities(at: Local, held: Sequence[Array]) -> Array:
    shares = _dense(held)
    return shares * held[2] if len(held) > 2 else shares


def _probabilities_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    shares = _dense(held)
    if which == 2:
        found: Array = (grad * shares).sum(axis=0)
        return found
    return _shares_back(shares, grad * held[2] if len(held) > 2 else grad, held[1].shape[1])


def _pick(at: Local, held: Sequence[Array]) -> Array:
    return np.take_along_axis(held[0], held[1], axis=1)


def _pick_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    made = np.zeros_like(held[0])
    np.put_along_axis(made, held[1], grad, axis=1)
    return made


def _sent(held: Sequence[Array]) -> Iterator[tuple[int, tuple[Array, Array], tuple[Array, ...]]]:
    """Every expert with its tokens: token and number of the choice, and both as an index into what is sent."""
    x, chosen = held[:2]
    for expert in range(held[2].shape[0]):
        token, number = np.nonzero(chosen == expert)
        yield expert, (token, number), (token, number)[: x.ndim - 1]


def _expert(at: Local, held: Sequence[Array]) -> Array:
    """``x[T, D]`` (or ``[T, C, M]``) by the matrix of each chosen expert, and its bias: [T, C, M] (or [T, C, D])."""
    x, chosen, matrix, *bias = held
    made = np.zeros((*chosen.shape, matrix.shape[2]), dtype=x.dtype)
    for expert, here, rows in _sent(held):
        made[here] = x[rows] @ matrix[expert] + (bias[0][expert] if bias else 0)
    return made


def _expert_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    x, _, matrix, *_ = held
    made = np.zeros_like(held[which])
    for expert, here, rows in _sent(held):
        if which == 0:
            made[rows] += grad[here] @ matrix[expert].T
        else:
            made[expert] = x[rows].T @ grad[here] if which == 2 else grad[here].sum(axis=0)
    return made


def _bias(at: Local, held: Sequence[Array]) -> Array:
    return held[1][held[0]]


def _bias_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    made = np.zeros_like(held[1])
    np.add.at(made, held[0], grad)
    return made


def _repeat(at: Local, held: Sequence[Array]) -> Array:
    """Every token once for each expert: [T, D] to [T, E, D]."""
    return np.repeat(held[0][:, None], at.sizes["E"], axis=1)


def _repeat_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    made: Array = grad.sum(axis=1)
    return made


def _parts(at: Local) -> int:
    """Into how many equal parts a sum is dealt out."""
    return math.prod(at.sizes[axis] for axis in at.placed.output.unreduced)


def _share(at: Local, held: Sequence[Array]) -> Array:
    made: Array = held[0] / held[0].dtype.type(_parts(at))
    return made


def _share_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    made: Array = grad / grad.dtype.type(_parts(at))
    return made


EXPERTS = {
    "choose": Kernel(_choose, no_gradient),
    "repeat": Kernel(_repeat, _repeat_back),
    "share": Kernel(_share, _share_back),
    "routing": Kernel(_routing, _routing_back),
    "routing_map": Kernel(_map, no_gradient),
    "probabilities": Kernel(_probabilities, _probabilities_back),
    "pick": Kernel(_pick, _pick_back),
    "expert": Kernel(_expert, _expert_back),
    "expert_bias": Kernel(_bias, _bias_back),
}
