"""What one device computes: every operation of the programs on the blocks it holds, and the gradient of each operand.

Kernels know no mesh. `Local` tells where the device's blocks begin, which matters where an operation looks at indices:
rows of a vocabulary, positions, heads cut out of a fused projection.

A derivative here is written by hand; the baseline (`plain`) derives its own by a tape and shares nothing with this.
Rotary positions are left out: they turn a head in itself, on whatever device that head is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from commcalc.algebra.program import Rule
from commcalc.algebra.schedule import Placed
from commcalc.errors import SpecError
from commcalc.simulate.grid import Block, slices
from commcalc.simulate.wire import Array

EPSILON = 1e-5
_GELU, _CUBE = math.sqrt(2 / math.pi), 0.044715


class Batch(NamedTuple):
    """What a model is run on: token and target of every row, sequences, rows of a position table before the first."""

    tokens: Array
    targets: Array
    sequences: int
    offset: int = 0


class Local(NamedTuple):
    """One operation on one device: its blocks of inputs and weights, and of the output, and the sizes of dimensions."""

    placed: Placed
    inputs: tuple[Block, ...]
    output: Block
    dims: tuple[tuple[str, ...], ...]
    out_dims: tuple[str, ...]
    sizes: Mapping[str, int]
    batch: Batch


Forward = Callable[[Local, Sequence[Array]], Array]
Backward = Callable[[Local, Sequence[Array], Array, int], Array]


class Kernel(NamedTuple):
    """An operation: its value, and the gradient of operand ``at`` from that of its output."""

    forward: Forward
    backward: Backward


def kernel_of(placed: Placed) -> Kernel:
    """The kernel of an operation: by its rule, where that says all, else by its function."""
    op = placed.op
    found = KERNELS.get(op.function) or RULES.get(op.rule)
    if found is None:
        raise SpecError(f"no device knows how to run {op.name} ({op.function})")
    return found


@lru_cache(maxsize=512)
def subscripts(*tensors: tuple[str, ...]) -> str:
    """``ab,bc->ac`` from the names of dimensions."""
    names = {dim: chr(97 + at) for at, dim in enumerate(dict.fromkeys(dim for dims in tensors for dim in dims))}
    *operands, out = ["".join(names[dim] for dim in dims) for dims in tensors]
    return ",".join(operands) + "->" + out


def _contract(at: Local, held: Sequence[Array]) -> Array:
    found: Array = np.einsum(subscripts(*at.dims, at.out_dims), *held)
    return found


def _contract_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    other = 1 - which
    found: Array = np.einsum(subscripts(at.out_dims, at.dims[other], at.dims[which]), grad, held[other])
    return found


def _rows(at: Local) -> tuple[Array, Array]:
    """The tokens whose rows of the table this device has, and which row of its block each is."""
    (low, high), *_ = at.inputs[1]
    here = np.flatnonzero((at.batch.tokens >= low) & (at.batch.tokens < high))
    return here, at.batch.tokens[here] - low


def _lookup(at: Local, held: Sequence[Array]) -> Array:
    here, rows = _rows(at)
    made = np.zeros((len(at.batch.tokens), *held[1].shape[1:]), dtype=held[1].dtype)
    made[here] = held[1][rows]
    return made


def _lookup_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    here, rows = _rows(at)
    made = np.zeros_like(held[1])
    np.add.at(made, rows, grad[here])
    return made


def _add(at: Local, held: Sequence[Array]) -> Array:
    return sum(held[1:], start=held[0])


def _add_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    return grad


def _bias_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    return _to(grad, at.out_dims, at.dims[which])


def _to(grad: Array, dims: Sequence[str], wanted: Sequence[str]) -> Array:
    """``grad`` summed over the dimensions that ``wanted`` lacks."""
    gone = tuple(at for at, dim in enumerate(dims) if dim not in wanted)
    return np.asarray(grad.sum(axis=gone)) if gone else grad


def _positions(at: Local, held: Sequence[Array]) -> Array:
    made: Array = held[0] + held[1][_places(at)]
    return made


def _places(at: Local) -> Array:
    rows = at.sizes["T"]
    return np.arange(rows) % (rows // at.batch.sequences) + at.batch.offset


def _positions_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    if which == 0:
        return grad
    made = np.zeros_like(held[1])
    np.add.at(made, _places(at), grad)
    return made


def _over(at: Local) -> tuple[int, ...]:
    return tuple(at.out_dims.index(dim) for dim in at.placed.op.over)


def _normed(at: Local, x: Array, centred: bool) -> tuple[Array, Array]:
    """The normalised input without weights, and what it was multiplied by."""
    axes = _over(at)
    x = x - x.mean(axis=axes, keepdims=True) if centred else x
    scale: Array = 1 / np.sqrt((x * x).mean(axis=axes, keepdims=True) + x.dtype.type(EPSILON))
    return x * scale, scale


def _norm(centred: bool) -> Kernel:
    def forward(at: Local, held: Sequence[Array]) -> Array:
        made, _ = _normed(at, held[0], centred)
        made = made * held[1]
        return made + held[2] if len(held) > 2 else made

    def backward(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
        normed, scale = _normed(at, held[0], centred)
        if which > 0:
            return _to(grad * normed if which == 1 else grad, at.out_dims, at.dims[which])
        axes = _over(at)
        inner = grad * held[1]
        found = inner - normed * (inner * normed).mean(axis=axes, keepdims=True)
        if centred:
            found = found - inner.mean(axis=axes, keepdims=True)
        made: Array = found * scale
        return made

    return Kernel(forward, backward)


def _sigmoid(x: Array) -> Array:
    made: Array = 1 / (1 + np.exp(-x))
    return made


def _gated(at: Local, held: Sequence[Array]) -> Array:
    gate, up = held
    made: Array = gate * _sigmoid(gate) * up
    return made


def _gated_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    gate, up = held
    open_ = _sigmoid(gate)
    slope = 1 + gate * (1 - open_)
    if which == 1:
        up, slope = gate, 1
    made: Array = grad * up * open_ * slope
    return made


def _gelu(at: Local, held: Sequence[Array]) -> Array:
    x = held[0]
    made: Array = 0.5 * x * (1 + np.tanh(_GELU * (x + _CUBE * x * x * x)))
    return made


def _gelu_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    x = held[0]
    bent = np.tanh(_GELU * (x + _CUBE * x * x * x))
    slope = _GELU * (1 + 3 * _CUBE * x * x)
    made: Array = grad * 0.5 * (1 + bent + x * (1 - bent * bent) * slope)
    return made


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


def _no_gradient(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    raise SpecError(f"{at.placed.op.name} has no gradient")


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


def _last_position(at: Local, held: Sequence[Array]) -> Array:
    each = at.sizes["T"] // at.batch.sequences
    return held[0][each - 1 :: each]


RULES: dict[Rule, Kernel] = {
    Rule.CONTRACT: Kernel(_contract, _contract_back),
    Rule.LOOKUP: Kernel(_lookup, _lookup_back),
    Rule.ADD: Kernel(_add, _add_back),
    Rule.BIAS: Kernel(_add, _bias_back),
}
KERNELS: dict[str, Kernel] = {
    "rmsnorm": _norm(centred=False),
    "layernorm": _norm(centred=True),
    "gated_activation": Kernel(_gated, _gated_back),
    "activation": Kernel(_gelu, _gelu_back),
    "attention": Kernel(_attend, _attend_back),
    "positions": Kernel(_positions, _positions_back),
    "take_q": Kernel(_take, _take_back),
    "take_k": Kernel(_take, _take_back),
    "take_v": Kernel(_take, _take_back),
    "last_position": Kernel(_last_position, _no_gradient),
    "max_logit": Kernel(_largest, _no_gradient),
    "target_logit": Kernel(_target_logit, _target_logit_back),
    "sum_exp": Kernel(_sum, _sum_back),
    "exp": Kernel(_exp, _exp_back),
    "cross_entropy": Kernel(_cross_entropy, _cross_entropy_back),
    "sample": Kernel(_sample, _no_gradient),
}
# What a pending value of these adds up by, where that is no sum.
COMBINES = {"max_logit": np.maximum}
