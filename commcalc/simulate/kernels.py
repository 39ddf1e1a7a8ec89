"""What one device computes: every operation of the programs on the blocks it holds, and the gradient of each operand.

Kernels know no mesh. `Local` tells where the device's blocks begin, which matters where an operation looks at indices:
rows of a vocabulary, positions, heads cut out of a fused projection.

A derivative here is written by hand; the baseline (`plain`) derives its own by a tape and shares nothing with this.
Rotary positions are left out: they turn a head in itself, on whatever device that head is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from commcalc.algebra.program import Rule
from commcalc.algebra.schedule import Placed
from commcalc.errors import SpecError
from commcalc.simulate.attention import ATTENTION
from commcalc.simulate.dispatch import DISPATCH
from commcalc.simulate.experts import EXPERTS
from commcalc.simulate.grid import shape_of
from commcalc.simulate.linear import LINEAR, sigmoid
from commcalc.simulate.local import Kernel, Local, no_gradient
from commcalc.simulate.loss import LOSS
from commcalc.simulate.places import lines_of, within
from commcalc.simulate.squares import by_squares
from commcalc.simulate.wire import Array

EPSILON = 1e-5
_GELU, _CUBE = math.sqrt(2 / math.pi), 0.044715


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
    made = np.zeros(shape_of(at.inputs[1]), dtype=grad.dtype)  # of rows that need not be there any more
    np.add.at(made, rows, grad[here])
    return made


def _add(at: Local, held: Sequence[Array]) -> Array:
    return sum(held[1:], start=held[0])


def _add_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    return grad


def _bias(at: Local, held: Sequence[Array]) -> Array:
    """The bias of every column, whatever dimensions of rows stand among its own."""
    wide = [size if dim in at.dims[1] else 1 for dim, size in zip(at.out_dims, held[0].shape, strict=True)]
    made: Array = held[0] + held[1].reshape(wide)
    return made


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
    _, position = within(at.batch.known_places, (0, len(at.batch.tokens)))
    return position + at.batch.offset


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
        made = made * held[1] if len(held) > 1 else made
        return made + held[2] if len(held) > 2 else made

    def backward(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
        normed, scale = _normed(at, held[0], centred)
        if which > 0:
            return _to(grad * normed if which == 1 else grad, at.out_dims, at.dims[which])
        axes = _over(at)
        inner: Array = grad * held[1] if len(held) > 1 else grad
        found = inner - normed * (inner * normed).mean(axis=axes, keepdims=True)
        if centred:
            found = found - inner.mean(axis=axes, keepdims=True)
        made: Array = found * scale
        return made

    return Kernel(forward, backward)


def _sigmoid(at: Local, held: Sequence[Array]) -> Array:
    return sigmoid(held[0])


def _sigmoid_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    open_ = sigmoid(held[0])
    made: Array = grad * open_ * (1 - open_)
    return made


def _same(at: Local, held: Sequence[Array]) -> Array:
    return held[0]


def _gated(at: Local, held: Sequence[Array]) -> Array:
    gate, up = held
    made: Array = gate * sigmoid(gate) * up
    return made


def _gated_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    gate, up = held
    open_ = sigmoid(gate)
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


def _last_position(at: Local, held: Sequence[Array]) -> Array:
    lines = lines_of(at, at.inputs[0])
    last: Array = lines.by_sequence(held[0])[:, -1]
    return last


RULES: dict[Rule, Kernel] = {
    Rule.CONTRACT: Kernel(_contract, _contract_back),
    Rule.LOOKUP: Kernel(_lookup, _lookup_back),
    Rule.ADD: Kernel(_add, _add_back),
    Rule.BIAS: Kernel(_bias, _bias_back),
}
KERNELS: dict[str, Kernel] = (
    ATTENTION
    | EXPERTS
    | DISPATCH
    | LINEAR
    | LOSS
    | by_squares(EPSILON)
    | {
        "rmsnorm": _norm(centred=False),
        "layernorm": _norm(centred=True),
        "gated_activation": Kernel(_gated, _gated_back),
        "activation": Kernel(_gelu, _gelu_back),
        "positions": Kernel(_positions, _positions_back),
        "last_position": Kernel(_last_position, no_gradient),
        "rope": Kernel(_same, _add_back),
        "sigmoid": Kernel(_sigmoid, _sigmoid_back),
        # The first operand times the second, summed over what the output lacks: as a product of matrices is.
        "weigh": Kernel(_contract, _contract_back),
    }
)
# What a pending value of these adds up by, where that is no sum.
COMBINES = {"max_logit": np.maximum}
