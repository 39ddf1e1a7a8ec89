"""Self-attention: projections by heads, softmax attention inside each head, projection back."""

from typing import NamedTuple

from commcalc.algebra.program import Builder, Role, Rule
from commcalc.algebra.sharding import Sharding
from commcalc.transformer.dialects import Dialect
from commcalc.transformer.layers import Heads, Kind
from commcalc.transformer.layout import Layout
from commcalc.transformer.spec import Model, Norm, QkNorm

QKV = "qkv_proj"


class HeadDims(NamedTuple):
    """The named dimensions of one kind of attention: KV heads, width of queries and keys, of values, all columns."""

    kv: str = "K"
    width: str = "H"
    value: str = "H"
    columns: str = "QKV"
    keys_are_values: bool = False

    gated: bool = False

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """The dimensions of Q, K, V, and of the gate that is made with the queries; in this order where fused."""
        found: dict[str, tuple[str, ...]] = {"Q": ("T", "N", self.width), "K": ("T", self.kv, self.width)}
        if not self.keys_are_values:
            found["V"] = ("T", self.kv, self.value)
        return found | ({"Qgate": ("T", "N", self.value)} if self.gated else {})


def head_dims(model: Model, kind: Kind) -> HeadDims:
    """The dimensions of the heads that layers of a kind have."""
    gated = model.attention_output_gate
    if kind.heads is Heads.GLOBAL and model.global_head_dim:
        return HeadDims("KG", "HG", "HG", "QKVG", model.global_keys_are_values, gated)
    value = "HV" if model.v_head_dim and not model.kv_lora_rank else "H"
    if kind.heads is Heads.SLIDING and model.sliding_num_key_value_heads:
        return HeadDims("KS", "H", value, "QKVS", gated=gated)
    return HeadDims("K", "H", value, gated=gated)


def attention(
    b: Builder, model: Model, layout: Layout, x: str, kept: Sharding | None, dialect: Dialect, kind: Kind
) -> str:
    """Add attention on ``x[T, D]``; the output ``Y[T, D]`` is left as the projection makes it, or ``kept``."""
    b.sublayer = "attention"
    dims = head_dims(model, kind)
    fused = dims.kv in layout.gathers or (dialect.gathers_qkv and dialect.fused_qkv)
    names = (_fused_qkv if fused else _separate_qkv)(b, model, layout, x, dialect, dims)
    if model.qk_norm is QkNorm.FULL_WIDTH and model.norm is Norm.RMSNORM and dialect.reduces_squares:
        _norm_by_squares(b, layout, names, dims)
    elif model.qk_norm is not QkNorm.NONE:
        for name in ("Q", "K"):
            names[name] = _qk_norm(b, model, layout, dialect, name, names[name], dims)
    if dims.keys_are_values:
        names["V"] = "K"
    parts = {name: (names[name], dims.parts["K" if dims.keys_are_values and name == "V" else name]) for name in "QKV"}
    parts = exchange(b, layout, parts) if layout.exchanges else parts
    sinks = (b.weight("sinks", _of_heads(layout, "N")),) if kind.sinks else ()
    heads = ("T", "N", dims.value)
    out = "Oa" if dims.gated else "O"
    looked = tuple(parts[name][0] for name in "QKV")
    made = f"{out}x" if layout.exchanges else out
    b.op(
        Rule.ATTEND,
        "attention",
        looked,
        made,
        heads,
        weights=sinks,
        over=("T",),
        label="attention",
        forgets=bool(layout.context),
    )
    if layout.exchanges:  # every rank gets all heads of its tokens back
        b.op(
            Rule.POINTWISE,
            "exchange_o",
            (made,),
            out,
            heads,
            label="attention",
            function="same",
            kept=layout.split(*heads),
        )
    if dims.gated:
        b.op(Rule.POINTWISE, "output_gate", (out, "Qgate"), "O", heads)
    read = "O"
    rows: tuple[str, ...] = ("N", dims.value)
    if dialect.gathers_qkv:  # every rank worked on all heads, and goes on with its own columns
        rows = ("OCOL",)
        part = layout.split("T", *rows)
        read = b.op(Rule.POINTWISE, "flatten", ("O",), "Of", ("T", *rows), kept=part, label="out_proj")
    b.weight("Wo", layout.weight(*rows, "D"))
    label, module = dialect.linear("out_proj", "out_proj")
    return b.op(
        Rule.CONTRACT, "out_proj", (read,), "Y", ("T", "D"), weights=("Wo",), kept=kept, label=label, module=module
    )  # fmt: skip


def exchange(
    b: Builder, layout: Layout, parts: dict[str, tuple[str, tuple[str, ...]]]
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Heads for tokens: each rank gets some heads of whole sequences; KV heads are repeated where there are fewer.

    Source: DeepSpeed-Ulysses, Jacobs et al. 2023, arXiv:2309.14509, section 3.1.
    """
    found = {}
    for name, (tensor, dims) in parts.items():
        if name != "Q" and layout.repeats(dims[1]):
            dims = (dims[0], "KR", dims[2])
            tensor = b.op(
                Rule.REGROUP, f"repeat_{name.lower()}", (tensor,), f"{name}r", dims, label="attention",
                function="repeat_heads", kept=layout.split(*dims),
            )  # fmt: skip
        made = b.op(
            Rule.POINTWISE, f"exchange_{name.lower()}", (tensor,), f"{name}x", dims, label="attention",
            function="same", kept=layout.exchanged(*dims),
        )  # fmt: skip
        found[name] = (made, dims)
    return found


def _of_heads(layout: Layout, *dims: str) -> Sharding:
    """A weight of heads as attention has them."""
    if not layout.exchanges:
        return layout.vector(*dims)
    return Sharding.of(dims, {dim: (*layout.weights.get(dim, ()), *layout.context) for dim in dims})


def _separate_qkv(b: Builder, model: Model, layout: Layout, x: str, dialect: Dialect, dims: HeadDims) -> dict[str, str]:
    """One weight for each of Q, K and V, split by heads: each rank makes the heads it works on.

    Where they are gathered they are split by columns, through heads if need be.
    """
    for name, heads in dims.parts.items():
        low = name.lower()
        gathered = dialect.gathers_qkv
        made_dims = ("T", f"{name[0]}COL") if gathered else heads
        whole = layout.whole(*made_dims) if gathered else layout.scattered(*made_dims)
        label, module = dialect.linear("q_proj" if name == "Qgate" else f"{low}_proj", QKV, qkv=True)
        b.weight(f"W{low}", layout.weight("D", *made_dims[1:]))
        biased = model.attention_bias and name != "Qgate"
        output = f"{name}c" if gathered else name
        made = f"{name}w" if biased else output
        b.op(
            Rule.CONTRACT, f"{low}_proj", (x,), made, made_dims, weights=(f"W{low}",), label=label, module=module,
            kept=None if biased and gathered else whole,
        )  # fmt: skip
        if biased:
            b.weight(f"b{low}", layout.vector(*made_dims[1:]))
            b.op(
                Rule.BIAS, f"{low}_bias", (made,), output, made_dims, weights=(f"b{low}",), label=label, kept=whole
            )  # fmt: skip
        if gathered:
            b.op(
                Rule.TAKE, f"heads_{low}", (output,), name, heads, over=made_dims[1:], kept=layout.whole(*heads),
                label=label, function="unflatten",
            )  # fmt: skip
    return {name: name for name in dims.parts}


def _fused_qkv(b: Builder, model: Model, layout: Layout, x: str, dialect: Dialect, dims: HeadDims) -> dict[str, str]:
    """One weight split evenly, whatever heads it cuts through; each rank takes its heads from the whole output.

    Sources: Megatron-LM core/transformer/attention.py, get_query_key_value_tensors, num_query_groups < world_size;
    transformers 5.24.0 configuration_phi3.py, where every rank goes on with all heads.
    """
    label, module = dialect.linear(QKV, QKV, qkv=True)
    shape = ("T", dims.columns)
    b.weight("Wqkv", layout.weight("D", dims.columns))
    made = "QKVw" if model.attention_bias else "QKV"
    whole = layout.whole(*shape) if dialect.gathers_qkv else None
    b.op(
        Rule.CONTRACT, QKV, (x,), made, shape, weights=("Wqkv",), label=label, module=module,
        kept=None if model.attention_bias else whole,
    )  # fmt: skip
    if model.attention_bias:
        b.weight("bqkv", layout.weight(dims.columns))
        b.op(Rule.BIAS, "qkv_bias", (made,), "QKV", shape, weights=("bqkv",), label=label, kept=whole)
    for name, made_dims in dims.parts.items():
        heads = (layout.whole if dialect.gathers_qkv else layout.split)(*made_dims)
        b.op(
            Rule.TAKE, f"take_{name.lower()}", ("QKV",), name, made_dims,
            label="kv_heads", kept=heads, over=(dims.columns,), function=f"take_{name.lower()}",
        )  # fmt: skip
    return {name: name for name in dims.parts}


def _qk_norm(b: Builder, model: Model, layout: Layout, dialect: Dialect, name: str, x: str, dims: HeadDims) -> str:
    low, made = name.lower(), dims.parts[name]
    own = made[2:] if model.qk_norm is QkNorm.HEAD_DIM else made[1:]
    over = made[1:] if model.qk_norm is QkNorm.FULL_WIDTH else made[2:]
    stored = Sharding.of(own, {}) if dialect.gathers_qkv else layout.vector(*own)
    weights = []
    if model.qk_norm is not QkNorm.NO_WEIGHT:
        weights.append(b.weight(f"g{low}", stored))
        if model.norm is Norm.LAYERNORM:
            weights.append(b.weight(f"b{low}_norm", stored))
    function = "rmsnorm" if model.norm is Norm.RMSNORM else "layernorm"
    return b.op(
        Rule.NORM, f"{low}_norm", (x,), f"{name}n", made,
        weights=tuple(weights), over=over, function=function, partial_gradient=True,
        syncs_at_once=dialect.syncs_head_norms,
    )  # fmt: skip


def _norm_by_squares(b: Builder, layout: Layout, names: dict[str, str], dims: HeadDims) -> None:
    """Norms over all heads: both sums of squares go round in one call, the heads stay where they are.

    Source: vLLM 0.33.0 model_executor/layers/minimax_rms_norm.
    """
    b.op(
        Rule.REDUCE, "squares", (names["Q"], names["K"]), "squares", ("T", "QK"),
        label="qk_norm", role=Role.FP32, over=("N", dims.kv, dims.width), kept=layout.whole("T", "QK"),
    )  # fmt: skip
    for name in ("Q", "K"):
        low, made = name.lower(), dims.parts[name]
        weight = b.weight(f"g{low}", layout.vector(*made[1:]))
        names[name] = b.op(
            Rule.POINTWISE, f"{low}_norm", (names[name], "squares"), f"{name}n", made,
            weights=(weight,), label="qk_norm", function=f"{low}_norm_by_squares", partial_gradient=True,
        )  # fmt: skip
