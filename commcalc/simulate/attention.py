"""Attention on the heads that a device has, and its heads taken out of a fused projection.

Head counts are those of the blocks, never those of the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from commcalc.simulate.grid import slices
from commcalc.simulate.local import Kernel, Local
from commcalc.simulate.wire import Array


def _by_sequence(at: Local, array: Array) -> Array:
    return array.reshape(at.batch.sequences, -1, *array.shape[1:])


def _shared(array: Array, queries: int) -> Array:
    """KV heads, each as often as query heads use it: local counts on either side."""
    return np.repeat(array, queries // array.shape[2], axis=2)


def _weights_of_attention(at: Local, held: Sequence[Array]) -> tuple[Array, Array, Array, Array]:
    """Softmax of causal scores, [B, heads, s, s], with the operands by sequence and KV heads shared out."""
    q = _by_sequence(at, held[0])
    k, v = (_shared(_by_sequence(at, one), q.shape[2]) for one in held[1:])
    scores = np.einsum("bshd,bthd->bhst", q, k) / q.dtype.type(math.sqrt(q.shape[3]))
    hidden = np.triu(np.ones(scores.shape[2:], dtype=bool), 1)
    scores[..., hidden] = -np.inf
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return scores / scores.sum(axis=-1, keepdims=True), q, k, v


def _attend(at: Local, held: Sequence[Array]) -> Array:
    weights, _, _, v = _weights_of_attention(at, held)
    made: Array = np.einsum("bhst,bthd->bshd", weights, v).reshape(held[0].shape)
    return made


def _attend_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    weights, q, k, v = _weights_of_attention(at, held)
    grad = _by_sequence(at, grad)
    if which == 2:
        found = np.einsum("bhst,bshd->bthd", weights, grad)
    else:
        back = np.einsum("bshd,bthd->bhst", grad, v)
        back = weights * (back - (back * weights).sum(axis=-1, keepdims=True))
        back = back / q.dtype.type(math.sqrt(q.shape[3]))
        found = np.einsum("bhst,bthd->bshd", back, k) if which == 0 else np.einsum("bhst,bshd->bthd", back, q)
    if which > 0:  # each KV head gets what all its query heads say
        heads = held[which].shape[1]
        found = found.reshape(*found.shape[:2], heads, -1, found.shape[3]).sum(axis=3)
    made: Array = found.reshape(held[which].shape)
    return made


def _taken(at: Local) -> tuple[slice, ...]:
    """The columns of the fused projection that are queries, keys or values: Q first, then K, then V."""
    sizes, last = at.sizes, at.placed.op.output[0]
    wide = {"Q": sizes["N"] * sizes["H"], "K": sizes["K"] * sizes["H"], "V": sizes["K"] * sizes["H"]}
    start = sum(width for name, width in wide.items() if "QKV".index(name) < "QKV".index(last))
    return (slice(None), slice(start, start + wide[last]))


def _take(at: Local, held: Sequence[Array]) -> Array:
    whole = held[0][_taken(at)].reshape(tuple(at.sizes[dim] for dim in at.out_dims))
    return whole[slices(at.output)]


def _take_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    whole = np.zeros(tuple(at.sizes[dim] for dim in at.out_dims), dtype=grad.dtype)
    whole[slices(at.output)] = grad
    made = np.zeros_like(held[0])
    made[_taken(at)] = whole.reshape(held[0].shape[0], -1)
    return made


ATTENTION = Kernel(_attend, _attend_back)
TAKE = Kernel(_take, _take_back)
