"""A chain of named operations on tensors with named dimensions, before anything is said of devices.

An operation names a *rule*, which says all that the derivation must know of it: what it needs of its operands'
shardings. What it computes is the simulator's business and is named by ``function``.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from commcalc.algebra.sharding import Sharding
from commcalc.errors import ShardingError


class Rule(StrEnum):
    """What an operation needs of its operands.

    ``CONTRACT``   sums over the dimensions its output lacks; pending sums pass through
    ``LOOKUP``     rows of a table by index: a contraction with a one-hot matrix that is never built
    ``ADD``        terms of one sum; stays pending only where all terms are
    ``BIAS``       adds a vector that every device holds, so the other operand must be no pending sum: n devices would
                   add it n times
    ``NORM``       non-linear, and needs the dimensions ``over`` whole
    ``POINTWISE``  non-linear, element by element; operands may lack dimensions (broadcast)
    ``ATTEND``     softmax attention: non-linear, needs the dimensions ``over`` whole of all operands but the first, the
                   queries, each of which is answered where it is
    ``SCAN``       a state that runs along the dimensions ``over``: non-linear, needs them whole
    ``REDUCE``     sum or maximum over the dimensions ``over``; pending where those are split
    ``TAKE``       each device takes its part of the dimensions ``over``, which must be whole
    ``ROUTE``      a contraction with the weight of whichever expert a token was sent to: rows by index, then a product
    ``REGROUP``    puts what a device has in another order, tokens by expert say; its output lies as the layout says
    ``SHARE``      what every device holds, seen as a sum over devices of equal parts
    ``WEIGH``      the first operand times the second, summed over the dimensions ``over``: linear in each
    """

    CONTRACT = "contract"
    LOOKUP = "lookup"
    ADD = "add"
    BIAS = "bias"
    NORM = "norm"
    POINTWISE = "pointwise"
    ATTEND = "attend"
    SCAN = "scan"
    REDUCE = "reduce"
    TAKE = "take"
    ROUTE = "route"
    REGROUP = "regroup"
    SHARE = "share"
    WEIGH = "weigh"


class Role(StrEnum):
    """Whose element type a tensor has; an index has no gradient, nor has a mask of one byte an element."""

    INDEX = "index"
    MASK = "mask"
    ACTIVATION = "activation"
    WEIGHT = "weight"
    GRADIENT = "gradient"
    FP32 = "fp32"


class Tensor(NamedTuple):
    """A tensor of the program.

    ``sharding`` is how the layout stores a weight or input, or keeps an activation; None where an activation lies
    as the operation that makes it leaves it.
    """

    name: str
    dims: tuple[str, ...]
    role: Role = Role.ACTIVATION
    sharding: Sharding | None = None
    # How operations use a weight that is stored otherwise: brought before each of them, and forgotten after it.
    used: Sharding | None = None


class Op(NamedTuple):
    """One operation. ``label`` is the name it shares with operations that frameworks run as one (``qkv_proj``)."""

    name: str
    label: str
    sublayer: str
    rule: Rule
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    output: str
    over: tuple[str, ...] = ()
    function: str = ""
    # False where no gradient flows back through it (the maximum that steadies a softmax).
    differentiable: bool = True
    # True for a norm of a head that devices share: its backward is linear in the gradient, so each device runs it
    # on its own part of the sum, and nothing is reduced before it.
    # Source: Megatron-LM core/transformer/attention.py (k_layernorm after the gather of shared KV heads).
    partial_gradient: bool = False
    # Operations of one module bring their input for themselves, and reduce its gradient for themselves; those of no
    # module share both with all that ask for the same.
    module: str = ""
    # The gradient of a weight that devices share is reduced in every backward pass; otherwise it stays a pending sum,
    # for one call a step.
    syncs_at_once: bool = False
    # What is gathered for the operation is not saved, but gathered again for its backward pass.
    forgets: bool = False
    # Axes that deal out whole sequences: no operation needs tokens of other ranks along them.
    data: tuple[str, ...] = ()


class Program(NamedTuple):
    """Operations in order, their tensors by name, and what goes in."""

    name: str
    tensors: Mapping[str, Tensor]
    ops: tuple[Op, ...]
    inputs: tuple[str, ...]
    output: str
    notes: tuple[str, ...] = ()


class Builder:
    """Writes a `Program` down, operation by operation, under one sublayer at a time."""

    def __init__(
        self, name: str, sublayer: str = "", data: tuple[str, ...] = (), gathered: tuple[str, ...] = ()
    ) -> None:
        """``data`` deal out whole sequences, weights are used whole over ``gathered``."""
        self.data = data
        self.gathered = gathered
        self.name = name
        self.sublayer = sublayer
        self.tensors: dict[str, Tensor] = {}
        self.ops: list[Op] = []
        self.inputs: list[str] = []
        self.notes: list[str] = []

    def input(self, name: str, sharding: Sharding, role: Role = Role.ACTIVATION) -> str:
        """A tensor that comes from outside, as it lies there."""
        self._add(Tensor(name, sharding.dims, role, sharding))
        self.inputs.append(name)
        return name

    def weight(self, name: str, sharding: Sharding) -> str:
        """A parameter, as the layout stores it."""
        used = sharding
        for dim in sharding.dims if self.gathered else ():
            used = used.with_dim(dim, [axis for axis in used.axes_of(dim) if axis not in self.gathered])
        self._add(Tensor(name, sharding.dims, Role.WEIGHT, sharding, used if used != sharding else None))
        return name

    def _add(self, tensor: Tensor) -> None:
        if tensor.name in self.tensors:
            raise ShardingError(f"{tensor.name} is named twice in program {self.name}")
        self.tensors[tensor.name] = tensor

    def op(
        self,
        rule: Rule,
        name: str,
        inputs: tuple[str, ...],
        output: str,
        dims: tuple[str, ...],
        *,
        weights: tuple[str, ...] = (),
        label: str | None = None,
        kept: Sharding | None = None,
        role: Role = Role.ACTIVATION,
        over: tuple[str, ...] = (),
        function: str = "",
        differentiable: bool = True,
        partial_gradient: bool = False,
        module: str = "",
        syncs_at_once: bool = False,
        forgets: bool = False,
    ) -> str:
        """Add an operation and the tensor it makes; returns that tensor's name."""
        self._add(Tensor(output, dims, role, kept))
        self.ops.append(
            Op(
                name, label or name, self.sublayer, rule, inputs, weights, output, over,
                function or name, differentiable, partial_gradient, module, syncs_at_once,
                forgets, self.data,
            )
        )  # fmt: skip
        return output

    def program(self) -> Program:
        """What was written; its output is the last tensor made."""
        return Program(
            self.name, self.tensors, tuple(self.ops), tuple(self.inputs), self.ops[-1].output, tuple(self.notes)
        )
