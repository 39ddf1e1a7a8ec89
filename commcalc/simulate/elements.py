"""How wide elements are on the wire, said apart from the ledger, and the scales that go with narrow ones.

Everything is computed in one format (`precision`) and counted in the types of the work. What goes to experts and comes
back may be narrower: the results of the forward pass alone, never gradients, routing weights or numbers.

Where blocks of elements of a token share a scale, they are sent divided by it and multiplied by it where they arrive,
as they are quantized: the scale is the power of two that brings the largest element of the block within the range of
the type, so that in binary floating point nothing is lost, and a scale that does not arrive shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from commcalc.algebra.program import Role
from commcalc.algebra.schedule import FORWARD, Event
from commcalc.algebra.sharding import Sharding
from commcalc.simulate.moves import Counted, Mismatch
from commcalc.simulate.wire import Array
from commcalc.transformer.layout import COMBINE, DISPATCH
from commcalc.transformer.work import Framework, Parallelism, Workload

# The dimension of scales, and what takes their place in the tensor: one for each block of D.
WIDTH, SCALES = "D", "scales"
SCALE_BITS = 32
# The largest number of the types that are as narrow: e4m3 (arXiv:2209.05433, table 1); others have one like it.
_LARGEST = 448.0


class Elements(NamedTuple):
    """Bits by role, by tensor where it has numbers of experts, and by label of what goes to experts and comes back."""

    bits: Mapping[Role, int]
    numbers: Mapping[str, int]
    moved: Mapping[str, int]
    scale_block: int | None

    def of(self, event: Event) -> int:
        """Bits of an element of what is sent."""
        if event.tensor in self.numbers:
            return self.numbers[event.tensor]
        results = event.direction == FORWARD and event.role is Role.ACTIVATION
        return self.moved.get(event.label, self.bits[event.role]) if results else self.bits[event.role]

    def blocks(self, event: Event, width: int) -> int:
        """Scales that a token is sent with."""
        if not self.scale_block or event.label != DISPATCH or WIDTH not in event.step.before.dims or self.of(event) > 8:
            return 0
        return -(-width // self.scale_block)


def elements_of(work: Workload, parallel: Parallelism, *, moves_tokens: bool) -> Elements:
    """Masks are bytes, the loss is reduced in fp32, indices are those of PyTorch (int64).

    vLLM and SGLang number experts in int32 (topk_ids), DeepEP those that it sends over nodes.
    """
    wide = {Role.ACTIVATION: work.dtype.bits, Role.WEIGHT: work.dtype.bits, Role.GRADIENT: work.grad_dtype.bits}
    asked = {DISPATCH: work.dispatch_dtype, COMBINE: work.combine_dtype} if moves_tokens else {}
    moved = {label: dtype.bits for label, dtype in asked.items() if dtype is not None}
    numbers = {"chosen": 32} if parallel.framework in (Framework.VLLM, Framework.SGLANG) else {}
    numbers |= {"Ien": 32, "Ie": 32} if parallel.ep_nodes > 1 else {}
    return Elements(wide | {Role.FP32: 32, Role.MASK: 8, Role.INDEX: 64}, numbers, moved, work.scale_block)


def scales_of(x: Array, blocks: int, block: int) -> Array:
    """The scale of every block of the last dimension, [..., blocks]; of one without any element above zero it is 1.

    >>> scales_of(np.array([[448.0, 1.0, 450.0]]), 2, 2).tolist()
    [[1.0, 2.0]]
    """
    padded = np.zeros((*x.shape[:-1], blocks * block), dtype=x.dtype)
    padded[..., : x.shape[-1]] = np.abs(x)
    largest = padded.reshape(*x.shape[:-1], blocks, block).max(axis=-1)
    exponents = np.ceil(np.log2(np.where(largest > 0, largest, _LARGEST) / _LARGEST))
    made: Array = np.exp2(exponents).astype(x.dtype)
    return made


def spread(scales: Array, block: int, width: int) -> Array:
    """For every element the scale of its block."""
    return np.repeat(scales, block, axis=-1)[..., :width]


def of_scales(sharding: Sharding) -> Sharding:
    """How the scales of a tensor lie: as its elements, all blocks of a token where the token is."""
    dims = tuple(SCALES if dim == WIDTH else dim for dim in sharding.dims)
    return Sharding(dims, sharding.split, sharding.unreduced)


def together(elements: Counted | None, scales: Counted | None) -> Counted | None:
    """What was sent where scales go in one message with their elements."""
    if elements is None or scales is None:
        return None
    if elements[:3] != scales[:3] or elements.steps != scales.steps:
        raise Mismatch("scales went another way than their elements")
    payload = elements.payload_bytes + scales.payload_bytes
    return elements._replace(payload_bytes=payload, sent_bytes=elements.sent_bytes + scales.sent_bytes)
