"""Linear attention on the heads that a device has: a state for each head, token by token.

Lightning attention's decay is a constant of each head and left out, as rotary positions are, and so is the activation
of its queries, keys and values: whatever happens inside one head happens on one device.
"""

# Kernels of devices share one signature.
# ruff: noqa: ARG001

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from commcalc.simulate.attention import by_sequence, shared
from commcalc.simulate.local import Kernel, Local
from commcalc.simulate.wire import Array

# Of the length that queries and keys are divided by (transformers models/qwen3_next, l2norm).
EPSILON = 1e-6


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))``."""
    made: Array = 1 / (1 + np.exp(-x))
    return made


def _silu_slope(x: Array) -> Array:
    open_ = sigmoid(x)
    made: Array = open_ * (1 + x * (1 - open_))
    return made


def _earlier(x: Array, by: int) -> Array:
    """[B, s, ...] as it was ``by`` tokens before, zeros in front; a negative ``by`` looks ahead."""
    made = np.zeros_like(x)
    if by >= 0:
        made[:, by:] = x[:, : x.shape[1] - by]
    else:
        made[:, :by] = x[:, -by:]
    return made


def _taps(length: int, weights: Array) -> list[tuple[int, Array]]:
    """How many tokens each weight of a channel looks back; the last one looks at the token itself."""
    last = weights.shape[-1] - 1
    return [(last - at, weights[..., at]) for at in range(last + 1) if last - at < length]


def _convolved(at: Local, held: Sequence[Array]) -> Array:
    x = by_sequence(at, held[0])
    return sum((weight * _earlier(x, back) for back, weight in _taps(x.shape[1], held[1])), np.zeros_like(x))


def _convolution(at: Local, held: Sequence[Array]) -> Array:
    """A causal convolution of every channel, then SiLU."""
    made = _convolved(at, held)
    return (made * sigmoid(made)).reshape(held[0].shape)


def _convolution_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    x = by_sequence(at, held[0])
    grad = by_sequence(at, grad) * _silu_slope(_convolved(at, held))
    taps = _taps(x.shape[1], held[1])
    if which == 0:
        found = sum((_earlier(grad * weight, -back) if back else grad * weight for back, weight in taps), 0 * x)
        return found.reshape(held[0].shape)
    made = np.zeros_like(held[1])
    for back, _ in taps:
        made[..., made.shape[-1] - 1 - back] = (grad * _earlier(x, back)).sum(axis=(0, 1))
    return made


def _softplus(x: Array) -> Array:
    made: Array = np.logaddexp(x.dtype.type(0), x)
    return made


def _decay(at: Local, held: Sequence[Array]) -> Array:
    """exp(-exp(A_log) softplus(a + dt_bias)) of every token and head."""
    a, log, shift = held
    made: Array = np.exp(-np.exp(log) * _softplus(a + shift))
    return made


def _decay_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    a, log, shift = held
    found = grad * _decay(at, held) * -np.exp(log)
    found = found * (_softplus(a + shift) if which == 1 else sigmoid(a + shift))
    made: Array = found if which == 0 else found.sum(axis=0)
    return made


class _Rule(NamedTuple):
    """The operands of the delta rule by sequence: q and k of length 1 and for every value head, beta, and decays."""

    q: Array
    k: Array
    v: Array
    beta: Array
    decay: Array


def _long(x: Array) -> Array:
    length: Array = np.sqrt((x * x).sum(axis=-1, keepdims=True) + x.dtype.type(EPSILON))
    return length


def _operands(at: Local, held: Sequence[Array]) -> _Rule:
    q, k, v, b, decay = (by_sequence(at, one) for one in held)
    q, k = (shared(one / _long(one), v.shape[2]) for one in (q, k))
    return _Rule(q / q.dtype.type(math.sqrt(q.shape[3])), k, v, sigmoid(b), decay)


def _step(of: _Rule, state: Array, t: int) -> tuple[Array, Array]:
    """The decayed state [B, heads, value, key] and what is written to it: beta (v - S k)."""
    kept = of.decay[:, t, :, None, None] * state
    told = of.v[:, t] - np.einsum("bhvk,bhk->bhv", kept, of.k[:, t])
    return kept, of.beta[:, t, :, None] * told


def _delta_rule(at: Local, held: Sequence[Array]) -> Array:
    """``S = decay S (I - beta k k^T) + beta v k^T``, read by each query.

    Source: Yang et al. 2024, arXiv:2412.06464, equation 10.
    """
    of = _operands(at, held)
    batch, length, heads, width = of.v.shape
    state = np.zeros((batch, heads, width, of.k.shape[3]), dtype=of.v.dtype)
    made = np.zeros_like(of.v)
    for t in range(length):
        kept, written = _step(of, state, t)
        state = kept + np.einsum("bhv,bhk->bhvk", written, of.k[:, t])
        made[:, t] = np.einsum("bhvk,bhk->bhv", state, of.q[:, t])
    return made.reshape(held[2].shape)


def _delta_rule_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    of, grad = _operands(at, held), by_sequence(at, grad)
    batch, length, heads, width = of.v.shape
    states = [np.zeros((batch, heads, width, of.k.shape[3]), dtype=of.v.dtype)]
    for t in range(length):
        kept, written = _step(of, states[-1], t)
        states.append(kept + np.einsum("bhv,bhk->bhvk", written, of.k[:, t]))
    found = _Rule(*(np.zeros_like(one) for one in of))
    back = np.zeros_like(states[0])
    for t in reversed(range(length)):
        kept, written = _step(of, states[t], t)
        k, beta = of.k[:, t], of.beta[:, t, :, None]
        found.q[:, t] = np.einsum("bhvk,bhv->bhk", states[t + 1], grad[:, t])
        back = back + np.einsum("bhv,bhk->bhvk", grad[:, t], of.q[:, t])
        told = np.einsum("bhvk,bhk->bhv", back, k)
        found.v[:, t] = beta * told
        found.beta[:, t] = (told * (of.v[:, t] - np.einsum("bhvk,bhk->bhv", kept, k))).sum(axis=-1)
        found.k[:, t] = np.einsum("bhvk,bhv->bhk", back, written) - np.einsum("bhvk,bhv->bhk", kept, beta * told)
        back = back - np.einsum("bhv,bhk->bhvk", beta * told, k)
        found.decay[:, t] = (back * states[t]).sum(axis=(-2, -1))
        back = of.decay[:, t, :, None, None] * back
    made = (found.q, found.k, found.v, found.beta * of.beta * (1 - of.beta), found.decay)[which]
    return made.reshape(held[which].shape) if which > 1 else _of_direction(at, held[which], made, scaled=which == 0)


def _of_direction(at: Local, x: Array, grad: Array, *, scaled: bool) -> Array:
    """The gradient of a key (or query) from that of its direction for every value head that shares it."""
    heads = x.shape[1]
    grad = grad.reshape(*grad.shape[:2], heads, -1, grad.shape[3]).sum(axis=3).reshape(x.shape)
    if scaled:
        grad = grad / grad.dtype.type(math.sqrt(x.shape[2]))
    length = _long(x)
    made: Array = (grad - x * (x * grad).sum(axis=-1, keepdims=True) / (length * length)) / length
    return made


def _past(at: Local, held: Sequence[Array]) -> tuple[Array, ...]:
    """Products of queries and keys, zero for later tokens, and the operands for every value head."""
    q, k, v = (by_sequence(at, one) for one in held)
    q, k = shared(q, v.shape[2]), shared(k, v.shape[2])
    return np.tril(np.einsum("bshd,bthd->bhst", q, k)), q, k, v


def _lightning(at: Local, held: Sequence[Array]) -> Array:
    """``sum over s <= t of (q_t . k_s) v_s``: MiniMax-01, arXiv:2501.08313, section 2.2, without its decay."""
    scores, _, _, v = _past(at, held)
    made: Array = np.einsum("bhst,bthd->bshd", scores, v).reshape(held[2].shape)
    return made


def _lightning_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    scores, q, k, v = _past(at, held)
    grad = by_sequence(at, grad)
    back = np.tril(np.einsum("bshd,bthd->bhst", grad, v))
    if which == 2:
        values: Array = np.einsum("bhst,bshd->bthd", scores, grad).reshape(held[2].shape)
        return values
    found = np.einsum("bhst,bthd->bshd", back, k) if which == 0 else np.einsum("bhst,bshd->bthd", back, q)
    made: Array = found.reshape(held[which].shape[0], held[which].shape[1], -1, found.shape[3]).sum(axis=2)
    return made


def _output_gate(at: Local, held: Sequence[Array]) -> Array:
    return held[0] * sigmoid(held[1])


def _output_gate_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    open_ = sigmoid(held[1])
    return grad * open_ if which == 0 else grad * held[0] * open_ * (1 - open_)


def _silu_gate(at: Local, held: Sequence[Array]) -> Array:
    return held[0] * held[1] * sigmoid(held[1])


def _silu_gate_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    return grad * held[1] * sigmoid(held[1]) if which == 0 else grad * held[0] * _silu_slope(held[1])


LINEAR = {
    "convolution": Kernel(_convolution, _convolution_back),
    "decay": Kernel(_decay, _decay_back),
    "delta_rule": Kernel(_delta_rule, _delta_rule_back),
    "lightning": Kernel(_lightning, _lightning_back),
    "output_gate": Kernel(_output_gate, _output_gate_back),
    "silu_gate": Kernel(_silu_gate, _silu_gate_back),
}
