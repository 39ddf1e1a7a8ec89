"""Multi-head latent attention: queries, keys and values from low-rank latents, one rotary key for all heads.

Source: DeepSeek-V2, arXiv:2405.04434, section 2.1. What goes down to the latents is the same on every rank of a TP
group, and so are the latents' norms; what comes up from them is split by heads (Megatron-LM
core/transformer/multi_latent_attention.py, vLLM models/deepseek_v2.py).
"""

from __future__ import annotations

from commcalc.algebra.program import Builder, Rule
from commcalc.algebra.sharding import Sharding
from commcalc.transformer.attention import exchange
from commcalc.transformer.dialects import Dialect
from commcalc.transformer.layout import Layout
from commcalc.transformer.spec import Model


def latent_attention(b: Builder, model: Model, layout: Layout, x: str, kept: Sharding | None, dialect: Dialect) -> str:
    """Add latent attention on ``x[T, D]``; the output ``Y[T, D]`` is left as the projection makes it, or ``kept``."""
    b.sublayer = "attention"
    _queries(b, model, layout, x, dialect)
    _down(b, layout, x, "kv", "LKV")
    for name, width in (("K", "HC"), ("V", "HV")):
        label, module = dialect.linear("kv_b_proj", "kv_b_proj")
        low = name.lower()
        b.weight(f"W{low}_up", layout.weight("LKV", "N", width))
        b.op(
            Rule.CONTRACT, f"{low}_up_proj", ("Ckvn",), name, ("T", "N", width), weights=(f"W{low}_up",),
            label=label, module=module,
        )  # fmt: skip
    b.weight("Wk_rope", layout.weight("D", "R"))
    b.op(Rule.CONTRACT, "k_rope_proj", (x,), "Krw", ("T", "R"), weights=("Wk_rope",), label="kv_a_proj")
    # It is joined to heads of all the tokens that a rank has keys of.
    whole = layout.whole("T", "R") if layout.context else None
    b.op(Rule.POINTWISE, "k_rope", ("Krw",), "Kr", ("T", "R"), label="k_rope", function="rope", kept=whole)
    heads = ("T", "N", "HV")
    if layout.context:
        _attend_in_context(b, layout, heads)
    else:
        b.op(
            Rule.ATTEND, "attention", ("Q", "K", "Kr", "V"), "O", heads, over=("T",), label="k_rope",
            function="latent_attention",
        )  # fmt: skip
    b.weight("Wo", layout.weight("N", "HV", "D"))
    label, module = dialect.linear("out_proj", "out_proj")
    return b.op(
        Rule.CONTRACT, "out_proj", ("O",), "Y", ("T", "D"), weights=("Wo",), kept=kept, label=label, module=module
    )  # fmt: skip


def _queries(b: Builder, model: Model, layout: Layout, x: str, dialect: Dialect) -> None:
    """Queries from their own latent, or straight from the stream where there is none."""
    read, name, into = x, "q_proj", "D"
    if model.q_lora_rank:
        read, name, into = _down(b, layout, x, "q", "LQ"), "q_b_proj", "LQ"
    label, module = dialect.linear(name, name)
    b.weight("Wq", layout.weight(into, "N", "H"))
    b.op(Rule.CONTRACT, name, (read,), "Q", ("T", "N", "H"), weights=("Wq",), label=label, module=module)


def _down(b: Builder, layout: Layout, x: str, which: str, rank: str) -> str:
    """A latent and its norm, on whatever tokens the rank has."""
    dims = ("T", rank)
    b.weight(f"W{which}_down", layout.weight("D", rank))
    b.op(
        Rule.CONTRACT, f"{which}_a_proj", (x,), f"C{which}", dims, weights=(f"W{which}_down",),
        label=f"{which}_a_proj",
    )  # fmt: skip
    gain = b.weight(f"g_{which}_down", layout.weight(rank))
    return b.op(
        Rule.NORM, f"{which}_a_norm", (f"C{which}",), f"C{which}n", dims,
        weights=(gain,), over=(rank,), function="rmsnorm", label=f"{which}_a_norm",
    )  # fmt: skip


def _attend_in_context(b: Builder, layout: Layout, heads: tuple[str, ...]) -> None:
    """Attention over sequences that are split: the rotary key goes round with every head's own part of it.

    Source: Megatron-LM core/transformer/multi_latent_attention.py, where k_pos_emb is expanded before core attention.
    """
    wide = ("T", "N", "H")
    b.op(Rule.POINTWISE, "join_rope", ("K", "Kr"), "Kj", wide, label="k_rope")
    parts = {"Q": ("Q", wide), "K": ("Kj", wide), "V": ("V", heads)}
    made = "O"
    if layout.exchanges:
        parts, made = exchange(b, layout, parts), "Ox"
    b.op(Rule.ATTEND, "attention", tuple(name for name, _ in parts.values()), made, heads, over=("T",), forgets=True)
    if layout.exchanges:
        b.op(
            Rule.POINTWISE, "exchange_o", (made,), "O", heads, label="attention", function="same",
            kept=layout.split(*heads),
        )  # fmt: skip
