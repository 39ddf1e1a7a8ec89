"""Self-attention: projections by heads, softmax attention inside each head, projection back."""

from __future__ import annotations

from commcalc.algebra.program import Builder, Rule
from commcalc.algebra.sharding import Sharding
from commcalc.transformer.layout import Layout
from commcalc.transformer.spec import Model, Norm, QkNorm

_HEADS = {"Q": ("T", "N", "H"), "K": ("T", "K", "H"), "V": ("T", "K", "H")}
QKV = "qkv_proj"


def attention(b: Builder, model: Model, layout: Layout, x: str, kept: Sharding | None) -> str:
    """Add attention on ``x[T, D]``; the output ``Y[T, D]`` is left as the projection makes it, or ``kept``."""
    b.sublayer = "attention"
    names = _fused_qkv(b, model, layout, x) if layout.gathers_kv else _separate_qkv(b, model, layout, x)
    if model.qk_norm is not QkNorm.NONE:
        names["Q"] = _qk_norm(b, model, layout, "Q", names["Q"])
        names["K"] = _qk_norm(b, model, layout, "K", names["K"])
    b.op(Rule.ATTEND, "attention", (names["Q"], names["K"], names["V"]), "O", ("T", "N", "H"), over=("T",))
    b.weight("Wo", layout.weight("N", "H", "D"))
    return b.op(Rule.CONTRACT, "out_proj", ("O",), "Y", ("T", "D"), weights=("Wo",), kept=kept)


def _separate_qkv(b: Builder, model: Model, layout: Layout, x: str) -> dict[str, str]:
    """One weight for each of Q, K and V, split by heads: each rank makes the heads it works on."""
    names = {}
    for name, dims in _HEADS.items():
        low = name.lower()
        b.weight(f"W{low}", layout.weight("D", *dims[1:]))
        made = f"{name}w" if model.attention_bias else name
        b.op(Rule.CONTRACT, f"{low}_proj", (x,), made, dims, weights=(f"W{low}",), label=QKV)
        if model.attention_bias:
            b.weight(f"b{low}", layout.weight(*dims[1:]))
            b.op(Rule.BIAS, f"{low}_bias", (made,), name, dims, weights=(f"b{low}",), label=QKV)
        names[name] = name
    return names


def _fused_qkv(b: Builder, model: Model, layout: Layout, x: str) -> dict[str, str]:
    """One weight split evenly, whatever heads it cuts through; each rank takes its heads from the whole output.

    Source: Megatron-LM core/transformer/attention.py, get_query_key_value_tensors, num_query_groups < world_size.
    """
    b.weight("Wqkv", layout.weight("D", "QKV"))
    made = "QKVw" if model.attention_bias else "QKV"
    b.op(Rule.CONTRACT, QKV, (x,), made, ("T", "QKV"), weights=("Wqkv",))
    if model.attention_bias:
        b.weight("bqkv", layout.weight("QKV"))
        b.op(Rule.BIAS, "qkv_bias", (made,), "QKV", ("T", "QKV"), weights=("bqkv",), label=QKV)
    for name, dims in _HEADS.items():
        heads = Sharding.of(dims, layout.weights)
        b.op(Rule.TAKE, f"take_{name.lower()}", ("QKV",), name, dims, label="kv_heads", kept=heads, over=("QKV",))
    return {name: name for name in _HEADS}


def _qk_norm(b: Builder, model: Model, layout: Layout, name: str, x: str) -> str:
    low, dims = name.lower(), _HEADS[name]
    own = dims[2:] if model.qk_norm is QkNorm.HEAD_DIM else dims[1:]
    over = dims[1:] if model.qk_norm is QkNorm.FULL_WIDTH else dims[2:]
    weights = [b.weight(f"g{low}", layout.weight(*own))]
    if model.norm is Norm.LAYERNORM:
        weights.append(b.weight(f"b{low}_norm", layout.weight(*own)))
    function = "rmsnorm" if model.norm is Norm.RMSNORM else "layernorm"
    return b.op(
        Rule.NORM, f"{low}_norm", (x,), f"{name}n", dims,
        weights=tuple(weights), over=over, function=function, partial_gradient=True,
    )  # fmt: skip
