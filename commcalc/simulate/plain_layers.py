"""What each layer of a plain decoder is made of, and the weights it has: read from the model's keys, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from commcalc.errors import SpecError
from commcalc.transformer.spec import LinearAttention, Model, Norm, NormPlacement, Positions, QkNorm


class Layer(NamedTuple):
    """One layer: how it attends, the dimensions of its heads, whether it holds experts."""

    linear: bool = False
    latent: bool = False
    sparse: bool = False
    sinks: bool = False
    # Dimensions: KV heads, width of queries and keys, width of values; and whether keys serve as values.
    kv: str = "K"
    width: str = "H"
    value: str = "H"
    keys_are_values: bool = False


def layer(model: Model, at: int) -> Layer:
    """Layer number ``at``, from the lists of the model or, where it has none, from its rules."""
    full, linear = _attends(model, at)
    if linear:
        return Layer(linear=True, sparse=_sparse(model, at))
    sinks = model.attention_sinks and not (full and model.sinks_in_sliding_only)
    found = Layer(latent=bool(model.kv_lora_rank), sparse=_sparse(model, at), sinks=sinks)
    if full and model.global_head_dim:
        return found._replace(kv="KG", width="HG", value="HG", keys_are_values=model.global_keys_are_values)
    if not full and model.sliding_num_key_value_heads:
        found = found._replace(kv="KS")
    return found._replace(value="HV") if model.v_head_dim else found


def _attends(model: Model, at: int) -> tuple[bool, bool]:
    """Whether a layer attends to all tokens, and whether it does so through a state."""
    if model.layer_types:
        word = model.layer_types[at]
        return word == "full_attention", word == "linear_attention"
    others = bool(model.linear_num_value_heads or model.sliding_window or model.attention_chunk_size)
    last = model.full_attention_interval and at % model.full_attention_interval == model.full_attention_interval - 1
    full = bool(last) or not others
    return full, not full and model.linear_num_value_heads > 0


def _sparse(model: Model, at: int) -> bool:
    if not model.num_experts:
        return False
    if model.mlp_layer_types:
        return model.mlp_layer_types[at] == "sparse"
    step = model.interleave_moe_layer_step
    return at >= model.first_k_dense_replace and at % step == step - 1


def weight_shapes(model: Model, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shape of every weight of ``model`` with all its layers, by part and name: ``block.0.Wq`` is [D, N, H].

    ``sizes`` has a size for each dimension: D, N, K, H, F, V, and P (rows of the table, extra rows included) where
    positions are learned, E, C, M, ... where there are experts. A tied head has no weight of its own:
    ``embedding.E`` [V, D] serves both.
    """
    _check(model)
    parts = {
        "embedding": {"E": "V D"}
        | (norms(model, "embedding") if model.embedding_norm else {})
        | ({"Wpos": "P D"} if model.position_embedding is Positions.LEARNED else {})
    }
    for at in range(model.need("num_hidden_layers", "the weights of all layers")):
        parts[f"block.{at}"] = _block(model, layer(model, at))
    parts["head"] = (
        norms(model, "final")
        | ({} if model.tie_word_embeddings else {"Wlm": "V D"})
        | ({"blm": "V"} if model.lm_head_bias else {})
    )
    return {
        f"{part}.{name}": tuple(sizes[dim] for dim in dims.split())
        for part, weights in parts.items()
        for name, dims in weights.items()
    }


def _check(model: Model) -> None:
    """`SpecError` for what is not written here."""
    unknown = model.unpriced()
    if unknown:
        raise SpecError(f"the plain decoder does not have {', '.join(unknown)}", where="model")


def norms(model: Model, *names: str) -> dict[str, str]:
    """The weights of norms over D."""
    return {f"{of}_{name}": "D" for name in names for of in ("gb" if model.norm is Norm.LAYERNORM else "g")}


def _block(model: Model, of: Layer) -> dict[str, str]:
    """The weights of one layer with their dimensions."""
    if of.linear:
        heads = _delta_net(model) if model.linear_attention is LinearAttention.GATED_DELTA_NET else _lightning()
    else:
        heads = _latent(model) if of.latent else _attention(model, of)
    beside = model.dense_mlp_beside_moe
    found = heads | (_experts(model) if of.sparse else {}) | (_mlp(model) if beside or not of.sparse else {})
    return found | _block_norms(model, of)


def _attention(model: Model, of: Layer) -> dict[str, str]:
    key, kv, value = of.width, of.kv, of.value
    found = {"Wq": f"D N {key}", "Wk": f"D {kv} {key}", "Wo": f"N {value} D"}
    if not of.keys_are_values:
        found["Wv"] = f"D {kv} {value}"
    if model.attention_output_gate:
        found["Wqgate"] = f"D N {value}"
    if model.attention_bias:
        found |= {f"b{low}": found[f"W{low}"].removeprefix("D ") for low in "qkv" if f"W{low}" in found}
    if model.attention_output_bias:
        found["bo"] = "D"
    if of.sinks:
        found["sinks"] = "N"
    if model.qk_norm in (QkNorm.NONE, QkNorm.NO_WEIGHT):
        return found
    query, keys = (key, key) if model.qk_norm is QkNorm.HEAD_DIM else (f"N {key}", f"{kv} {key}")
    found |= {"gq": query, "gk": keys}
    return found | ({"bq_norm": query, "bk_norm": keys} if model.norm is Norm.LAYERNORM else {})


def _latent(model: Model) -> dict[str, str]:
    found = {"Wkv_down": "D LKV", "g_kv_down": "LKV", "Wk_up": "LKV N HC", "Wv_up": "LKV N HV", "Wk_rope": "D R"}
    found |= {"Wq": "LQ N H", "Wq_down": "D LQ", "g_q_down": "LQ"} if model.q_lora_rank else {"Wq": "D N H"}
    return found | {"Wo": "N HV D"}


def _delta_net(model: Model) -> dict[str, str]:
    found = {"Wlq": "D NK HK", "Wlk": "D NK HK", "Wlv": "D NV HL", "Wlz": "D NV HL", "Wlb": "D NV", "Wla": "D NV"}
    if model.linear_conv_kernel_dim:
        found |= {"Wconv_q": "NK HK CONV", "Wconv_k": "NK HK CONV", "Wconv_v": "NV HL CONV"}
    return found | {"A_log": "NV", "dt_bias": "NV", "g_heads": "HL", "Wo": "NV HL D"}


def _lightning() -> dict[str, str]:
    found = {"Wlq": "D NK HK", "Wlk": "D NK HK", "Wlv": "D NV HL", "Wlz": "D NV HL"}
    return found | {"g_heads": "NV HL", "Wo": "NV HL D"}


def _mlp(model: Model) -> dict[str, str]:
    names = ("gate", "up") if model.gated_mlp else ("up",)
    found = {f"W{name}": "D F" for name in names} | {"Wdown": "F D"}
    return found | ({f"b{name}": "F" for name in names} | {"bdown": "D"} if model.mlp_bias else {})


def _experts(model: Model) -> dict[str, str]:
    """Router and experts, and the expert that all tokens share."""
    names = ("gate", "up") if model.gated_mlp else ("up",)
    found = {"Wr": "D E"} | {f"We_{name}": "E D M" for name in names} | {"We_down": "E M D"}
    if model.router_scales:
        found |= {"g_router": "D", "g_each_expert": "E"}
    if model.router_bias:
        found["br"] = "E"
    if model.expert_bias:
        found |= {f"be_{name}": "E M" for name in names} | {"be_down": "E D"}
    if model.shared_expert_intermediate_size:
        found |= {f"W{name}s": "D S" for name in names} | {"Wdowns": "S D"}
        found |= {"Wshare": "D"} if model.shared_expert_gate else {}
    return found


def _block_norms(model: Model, of: Layer) -> dict[str, str]:
    if model.parallel_block:
        return norms(model, *(("attention", "mlp") if model.parallel_norms == 2 else ("attention",)))
    found = norms(model, "attention", "mlp") if model.norm_placement is not NormPlacement.POST else {}
    if model.norm_placement is not NormPlacement.PRE:
        found |= norms(model, "post_attention", "post_mlp")
    beside = of.sparse and model.dense_mlp_beside_moe
    return found | (norms(model, "dense_branch", "experts", "expert_branch") if beside else {})
