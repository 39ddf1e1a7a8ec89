"""Linear attention: a state of fixed size for each head instead of scores against every token before.

Heads are split over TP like those of softmax attention, with one reduction behind the projection back. Sources:
transformers 5.24.0 models/qwen3_next/modeling_qwen3_next.py (Qwen3NextGatedDeltaNet) and models/minimax
(MiniMaxLightningAttention); its norm over all heads as vLLM splits it (MiniMaxText01RMSNormTP).
"""

from __future__ import annotations

from commcalc.algebra.program import Builder, Role, Rule
from commcalc.algebra.sharding import Sharding
from commcalc.transformer.dialects import Dialect
from commcalc.transformer.layout import Layout
from commcalc.transformer.spec import LinearAttention, Model

_KEYS, _VALUES, _GATES = ("T", "NK", "HK"), ("T", "NV", "HL"), ("T", "NV")


def linear_attention(b: Builder, model: Model, layout: Layout, x: str, kept: Sharding | None, dialect: Dialect) -> str:
    """Add linear attention on ``x[T, D]``; the output ``Y[T, D]`` is left as the projection makes it, or ``kept``."""
    b.sublayer = "attention"
    delta = model.linear_attention is LinearAttention.GATED_DELTA_NET
    whole = delta and dialect.gathers_linear_attention
    if whole:
        # Every rank goes on with all heads: what belongs to heads is split no more.
        _gathered(b, layout, x, dialect)
        layout = layout._replace(weights={dim: axes for dim, axes in layout.weights.items() if dim not in ("NK", "NV")})
    else:
        parts = {"q": _KEYS, "k": _KEYS, "v": _VALUES, "z": _VALUES} | ({"b": _GATES, "a": _GATES} if delta else {})
        for low, dims in parts.items():
            label, module = dialect.linear(f"in_proj_{low}", "in_proj")
            weight = b.weight(f"Wl{low}", layout.weight("D", *dims[1:]))
            b.op(
                Rule.CONTRACT, f"in_proj_{low}", (x,), f"L{low}", dims, weights=(weight,), label=label, module=module
            )  # fmt: skip
    if delta:
        _delta_net(b, model, layout)
    else:
        _lightning(b, layout)
    label, module = dialect.linear("out_proj", "out_proj")
    if not whole:
        b.weight("Wo", layout.weight("NV", "HL", "D"))
        return b.op(
            Rule.CONTRACT, "out_proj", ("O",), "Y", ("T", "D"), weights=("Wo",), kept=kept, label=label, module=module
        )  # fmt: skip
    # Split by its columns, the model's width under another name, and gathered.
    b.weight("Wo", layout.weight("NV", "HL", "DO"))
    columns = layout.whole("T", "DO")
    b.op(
        Rule.CONTRACT, "out_proj", ("O",), "Yw", ("T", "DO"), weights=("Wo",), kept=columns, label=label, module=module
    )  # fmt: skip
    return b.op(
        Rule.TAKE, "take_out", ("Yw",), "Y", ("T", "D"), over=("DO",), kept=kept or layout.whole("T", "D")
    )  # fmt: skip


def _gathered(b: Builder, layout: Layout, x: str, dialect: Dialect) -> None:
    """Projections split by columns and gathered whole.

    Sources: transformers 5.24.0 configuration_qwen3_5.py (four of them), configuration_qwen3_next.py (two).
    """
    columns = {"qkv": "LQKV", "z": "LZ", "b": "LG", "a": "LG", "qkvz": "LQKVZ", "ba": "LBA"}
    parts = {"q": _KEYS, "k": _KEYS, "v": _VALUES, "z": _VALUES, "b": _GATES, "a": _GATES}
    for made in dialect.linear_projections:
        dim = columns[made]
        label, module = dialect.linear(f"in_proj_{made}", "in_proj")
        weight = b.weight(f"Wl{made}", layout.weight("D", dim))
        b.op(
            Rule.CONTRACT, f"in_proj_{made}", (x,), f"L{made}w", ("T", dim), weights=(weight,), label=label,
            module=module, kept=layout.whole("T", dim),
        )  # fmt: skip
        for low in made:
            b.op(
                Rule.TAKE, f"take_l{low}", (f"L{made}w",), f"L{low}", parts[low], over=(dim,),
                kept=layout.whole(*parts[low]), label="in_proj",
            )  # fmt: skip


def _delta_net(b: Builder, model: Model, layout: Layout) -> None:
    """A short convolution, the gated delta rule, and a norm of each head that a gate opens."""
    names = {low: f"L{low}" for low in "qkv"}
    if model.linear_conv_kernel_dim:
        for low in names:
            dims = b.tensors[names[low]].dims
            weight = b.weight(f"Wconv_{low}", layout.weight(*dims[1:], "CONV"))
            names[low] = b.op(
                Rule.SCAN, f"conv_{low}", (names[low],), f"L{low}c", dims,
                weights=(weight,), over=("T",), label="conv", function="convolution",
            )  # fmt: skip
    decay = (b.weight("A_log", layout.weight("NV")), b.weight("dt_bias", layout.weight("NV")))
    b.op(Rule.POINTWISE, "decay", ("La",), "decay", _GATES, weights=decay)
    b.op(
        Rule.SCAN, "delta_rule", (names["q"], names["k"], names["v"], "Lb", "decay"), "LO", _VALUES, over=("T",)
    )  # fmt: skip
    gain = b.weight("g_heads", layout.weight("HL"))
    b.op(Rule.NORM, "heads_norm", ("LO",), "LOn", _VALUES, weights=(gain,), over=("HL",), function="rmsnorm")
    b.op(Rule.POINTWISE, "output_gate", ("LOn", "Lz"), "O", _VALUES, function="silu_gate")


def _lightning(b: Builder, layout: Layout) -> None:
    """Decayed linear attention, and a norm over all heads whose sum of squares goes round."""
    b.op(Rule.SCAN, "lightning", ("Lq", "Lk", "Lv"), "LO", _VALUES, over=("T",))
    b.op(
        Rule.REDUCE, "squares", ("LO",), "squares", ("T",),
        label="heads_norm", role=Role.FP32, over=("NV", "HL"), kept=layout.whole("T"),
    )  # fmt: skip
    gain = b.weight("g_heads", layout.weight("NV", "HL"))
    b.op(
        Rule.POINTWISE, "heads_norm", ("LO", "squares"), "LOn", _VALUES, weights=(gain,),
        function="norm_by_squares",
    )  # fmt: skip
    b.op(Rule.POINTWISE, "output_gate", ("LOn", "Lz"), "O", _VALUES)
