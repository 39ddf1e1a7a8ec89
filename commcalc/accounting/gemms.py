"""The products with weights of a block, and how many bytes of weights one device reads for them."""

from __future__ import annotations

from collections.abc import Mapping

from commcalc.algebra.program import Rule
from commcalc.algebra.schedule import FORWARD, Derivation, Differentiate, Placed
from commcalc.transformer.work import Recompute, Workload
from commcalc.units import Dtype

_PRODUCTS = (Rule.CONTRACT, Rule.ROUTE)


def gemms_of(block: Derivation, direction: str, work: Workload) -> list[Placed]:
    """The products with weights in one pass: each once forward, and once for either gradient backward."""
    forward = [one for one in block.placed if one.op.rule in _PRODUCTS]
    if direction == FORWARD:
        return forward
    backward = [one.placed for one in block.backward if isinstance(one, Differentiate)]
    again = forward if work.recompute is Recompute.FULL else []
    return [*again, *(one for one in backward if one.op.rule in _PRODUCTS)]


def weight_bytes_of(gemm: Placed, dtype: Dtype, sizes: Mapping[str, int]) -> int:
    """Bytes of weights that one device reads; of experts no more than there are choices."""
    held = sum(int(weight.local_size(dtype.bits).value(sizes)) for weight in gemm.weights)
    if gemm.op.rule is not Rule.ROUTE:
        return held
    return held * min(sizes["E"], sizes["T"] * sizes["C"]) // sizes["E"]
