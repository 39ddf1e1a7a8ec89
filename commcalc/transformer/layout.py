"""The named layouts: how dimensions are laid on the tensor-parallel axis. None of them names a collective.

A layout says over which axes each dimension of a *weight* is split, and how the *residual stream* lies between the
sublayers. What must be gathered and reduced follows (`algebra.derive`).

    none          nothing is split: every rank does the whole work
    megatron      heads, FFN width and vocabulary over TP; the stream whole on every rank
                  (Shoeybi et al. 2019, arXiv:1909.08053, section 3)
    megatron-sp   the same weights; the stream split by tokens over TP
                  (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2)
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.sharding import Sharding

TP = "tp"
# The parts of the TP axis where it is larger than the number of KV heads: one part counts the KV heads, ranks that
# differ only in the other hold the same KV head.
TP_KV, TP_REPLICA = "tp_kv", "tp_replica"


class LayoutName(StrEnum):
    """How dimensions are laid on the TP axis."""

    NONE = "none"
    MEGATRON = "megatron"
    MEGATRON_SP = "megatron-sp"


class KvPolicy(StrEnum):
    """What happens where the TP degree exceeds the KV heads.

    ``refuse`` it; ``replicate`` each KV head on several ranks (vLLM QKVParallelLinear); or split the fused QKV weight
    evenly and ``gather`` its output (Megatron-LM core/transformer/attention.py).
    """

    REFUSE = "refuse"
    REPLICATE = "replicate"
    GATHER = "gather"


_WEIGHTS = ("N", "K", "F", "V", "QKV")
_SPLITS: Mapping[LayoutName, tuple[tuple[str, ...], tuple[str, ...]]] = {
    LayoutName.NONE: ((), ()),
    LayoutName.MEGATRON: (_WEIGHTS, ()),
    LayoutName.MEGATRON_SP: (_WEIGHTS, ("T",)),
}


class Layout(NamedTuple):
    """A layout on a mesh: the axes of each dimension in weights, and in the residual stream."""

    name: LayoutName
    mesh: Mesh
    weights: Mapping[str, tuple[str, ...]]
    stream: Mapping[str, tuple[str, ...]]
    gathers_kv: bool

    def weight(self, *dims: str) -> Sharding:
        """How a weight with these dimensions is stored."""
        return Sharding.of(dims, self.weights)

    def stream_of(self, *dims: str) -> Sharding:
        """How a tensor of the residual stream lies."""
        return Sharding.of(dims, self.stream)


def splits(name: LayoutName) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The dimensions that a layout splits over TP: those of weights, those of the residual stream."""
    return _SPLITS[name]


def lay_out(name: LayoutName, mesh: Mesh, kv_heads: int | None, kv: KvPolicy) -> Layout:
    """The layout ``name`` on ``mesh``; the TP axis is seen as two where it exceeds the KV heads.

    Whether the degree is legal is for `transformer.limits` to say.
    """
    tp = mesh.size([TP])
    weights, stream = _SPLITS[name]
    shared = kv_heads is not None and bool(weights) and tp > kv_heads and tp % kv_heads == 0
    if shared and kv_heads is not None:
        mesh = mesh.divide(TP, {TP_KV: kv_heads, TP_REPLICA: tp // kv_heads})
    axes = dict.fromkeys(weights, mesh.expand([TP]))
    if shared:
        axes["K"] = (TP_KV,)
    return Layout(name, mesh, axes, dict.fromkeys(stream, mesh.expand([TP])), shared and kv is KvPolicy.GATHER)
