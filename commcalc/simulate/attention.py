"""Softmax attention on the heads that a device has, and its part of what frameworks fuse into one projection.

Head counts are those of the blocks, never those of the model. Windows and chunks are left out: which tokens a head
looks at is the same on whatever device that head is.
"""

# Kernels of devices share one signature.

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from commcalc.simulate.grid import slices
from commcalc.simulate.local import Kernel, Local
from commcalc.simulate.places import Lines, lines_of
from commcalc.simulate.wire import Array


class _Scored(NamedTuple):
    """Softmax of causal scores [B, heads, s, s], what each head's sink took of it, and the operands by sequence."""

    shares: Array
    sink: Array
    q: Array
    k: Array
    v: Array


def by_sequence(at: Local, array: Array) -> Array:
    """[T, ...] as [B, s, ...]."""
    return array.reshape(at.batch.sequences, -1, *array.shape[1:])


def shared(array: Array, queries: int) -> Array:
    """KV heads, each as often as query heads use it: local counts on either side."""
    return np.repeat(array, queries // array.shape[2], axis=2)


def _hidden(queries: Lines, keys: Lines) -> Array:
    """Which keys a query does not see [s, s]: those of later positions."""
    made: Array = keys.positions[None, :] > queries.positions[:, None]
    return made


def _scored(q: Array, k: Array, v: Array, sinks: Array | None, hidden: Array) -> _Scored:
    """Scores [B, heads, s, s] of q and k [B, s, heads, width]; a sink is one more logit of every row, with no value."""
    scores = np.einsum("bshd,bthd->bhst", q, k) / q.dtype.type(math.sqrt(q.shape[3]))
    scores[..., hidden] = -np.inf
    top = scores.max(axis=-1, keepdims=True)
    more = 0 * top
    if sinks is not None:
        logit = sinks[None, :, None, None]
        top = np.maximum(top, logit)
        more = np.exp(logit - top)
    scores = np.exp(scores - top)
    total = scores.sum(axis=-1, keepdims=True) + more
    return _Scored(scores / total, more / total, q, k, v)


def _score_gradient(of: _Scored, grad: Array) -> tuple[Array, Array]:
    """The gradients of scaled scores [B, heads, s, s] and of the sinks [heads], from that of the output."""
    back = np.einsum("bshd,bthd->bhst", grad, of.v)
    mean = (back * of.shares).sum(axis=-1, keepdims=True)
    scale = of.q.dtype.type(math.sqrt(of.q.shape[3]))
    return of.shares * (back - mean) / scale, -(of.sink * mean).sum(axis=(0, 2, 3))


def _lines(at: Local) -> tuple[Lines, Lines]:
    """Queries and keys by sequence."""
    return lines_of(at, at.inputs[0]), lines_of(at, at.inputs[1])


def _of_softmax(at: Local, held: Sequence[Array]) -> _Scored:
    queries, keys = _lines(at)
    q = queries.by_sequence(held[0])
    k, v = (shared(keys.by_sequence(one), q.shape[2]) for one in held[1:3])
    return _scored(q, k, v, held[3] if len(held) > 3 else None, _hidden(queries, keys))


def _out(at: Local, of: _Scored) -> Array:
    """The weighted values, [T, heads, width]."""
    queries, _ = _lines(at)
    return queries.by_token(np.einsum("bhst,bthd->bshd", of.shares, of.v))


def _attend(at: Local, held: Sequence[Array]) -> Array:
    return _out(at, _of_softmax(at, held))


def _attend_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    of, (queries, keys) = _of_softmax(at, held), _lines(at)
    grad = queries.by_sequence(grad)
    if which == 2:
        found = np.einsum("bhst,bshd->bthd", of.shares, grad)
    else:
        scores, sinks = _score_gradient(of, grad)
        if which == 3:
            return sinks
        found = np.einsum("bhst,bthd->bshd", scores, of.k) if which == 0 else np.einsum("bhst,bshd->bthd", scores, of.q)
    if which > 0:  # each KV head gets what all its query heads say
        heads = held[which].shape[1]
        found = found.reshape(*found.shape[:2], heads, -1, found.shape[3]).sum(axis=3)
    return (keys if which else queries).by_token(found)


def _of_latents(at: Local, held: Sequence[Array]) -> _Scored:
    """Keys of every head with the one rotary key behind them: DeepSeek-V2, arXiv:2405.04434, equations 14 to 18."""
    queries, keys = _lines(at)
    q, (k, rotary, v) = queries.by_sequence(held[0]), (keys.by_sequence(one) for one in held[1:])
    one = np.broadcast_to(rotary[:, :, None, :], (*k.shape[:3], rotary.shape[2]))
    return _scored(q, np.concatenate([k, one], axis=3), v, None, _hidden(queries, keys))


def _attend_latent(at: Local, held: Sequence[Array]) -> Array:
    return _out(at, _of_latents(at, held))


def _attend_latent_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    of, (queries, keys) = _of_latents(at, held), _lines(at)
    grad = queries.by_sequence(grad)
    if which == 3:
        found = np.einsum("bhst,bshd->bthd", of.shares, grad)
    else:
        scores, _ = _score_gradient(of, grad)
        if which == 0:
            found = np.einsum("bhst,bthd->bshd", scores, of.k)
        else:
            both, own = np.einsum("bhst,bshd->bthd", scores, of.q), held[1].shape[2]
            found = both[..., :own] if which == 1 else both[..., own:].sum(axis=2)
    return (keys if which else queries).by_token(found)


# KV heads and width of keys in a fused projection of queries, keys, values and gates.
_KV_HEADS = {"QKV": ("K", "H"), "QKVG": ("KG", "HG"), "QKVS": ("KS", "H")}


def _taken(at: Local) -> tuple[slice, ...]:
    """The columns of a fused projection that one part of it is: those behind the parts before it."""
    sizes, op = at.sizes, at.placed.op
    wide = math.prod(sizes[dim] for dim in at.out_dims[1:])
    part = op.function.removeprefix("take_")
    before = 0
    if op.over[0] in _KV_HEADS:
        kv, width = (sizes[dim] for dim in _KV_HEADS[op.over[0]])
        queries = sizes["N"] * width
        before = {"q": 0, "k": queries, "v": queries + kv * width}.get(part, sizes[op.over[0]] - wide)
    elif op.over[0] in ("LQKV", "LQKVZ"):
        keys, values = sizes["NK"] * sizes["HK"], sizes["NV"] * sizes["HL"]
        before = {"lq": 0, "lk": keys, "lv": 2 * keys, "lz": 2 * keys + values}[part]
    elif op.over[0] == "LBA":
        before = 0 if part == "lb" else wide
    elif part == "u":
        before = wide
    return (slice(None), slice(before, before + wide))


def _heads_taken(at: Local, rows: int) -> tuple[tuple[int, ...], tuple[slice, ...]]:
    """The shape of all heads of so many tokens, and those that the device goes on with."""
    (begins, _), *_ = at.inputs[0]
    (low, high), *others = at.output
    shape = (rows, *(at.sizes[dim] for dim in at.out_dims[1:]))
    return shape, (slice(low - begins, high - begins), *slices(tuple(others)))


def _take(at: Local, held: Sequence[Array]) -> Array:
    shape, own = _heads_taken(at, len(held[0]))
    return held[0][_taken(at)].reshape(shape)[own]


def _take_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    (begins, end), *_ = at.inputs[0]
    shape, own = _heads_taken(at, end - begins)
    whole = np.zeros(shape, dtype=grad.dtype)
    whole[own] = grad
    made = np.zeros((whole.shape[0], at.sizes[at.placed.op.over[0]]), dtype=grad.dtype)
    made[_taken(at)] = whole.reshape(whole.shape[0], -1)
    return made


def _flat(at: Local, held: Sequence[Array]) -> Array:
    return held[0].reshape(held[0].shape[0], -1)


def _flat_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    return grad.reshape(held[0].shape)


def _repeated(at: Local) -> Array:
    """Which of the KV heads here each repeated one is."""
    (low, high), (first, _) = at.output[1], at.inputs[0][1]
    found: Array = np.arange(low, high) * at.sizes[at.dims[0][1]] // at.sizes[at.out_dims[1]] - first
    return found


def _repeat(at: Local, held: Sequence[Array]) -> Array:
    return held[0][:, _repeated(at)]


def _repeat_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    made = np.zeros_like(held[0])
    np.add.at(np.moveaxis(made, 1, 0), _repeated(at), np.moveaxis(grad, 1, 0))
    return made


def _join_rope(at: Local, held: Sequence[Array]) -> Array:
    """Keys of every head with the one rotary key behind each."""
    k, rotary = held
    return np.concatenate([k, np.broadcast_to(rotary[:, None], (*k.shape[:2], rotary.shape[1]))], axis=2)


def _join_rope_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    own = held[0].shape[2]
    made: Array = grad[..., :own] if which == 0 else grad[..., own:].sum(axis=1)
    return made


TAKE = Kernel(_take, _take_back)
_PARTS = ("q", "k", "v", "qgate", "g", "u", "lq", "lk", "lv", "lz", "lb", "la", "out")
ATTENTION = {
    "attention": Kernel(_attend, _attend_back),
    "latent_attention": Kernel(_attend_latent, _attend_latent_back),
    "repeat_heads": Kernel(_repeat, _repeat_back),
    "join_rope": Kernel(_join_rope, _join_rope_back),
    "flatten": Kernel(_flat, _flat_back),
    "unflatten": TAKE,
} | {f"take_{part}": TAKE for part in _PARTS}
