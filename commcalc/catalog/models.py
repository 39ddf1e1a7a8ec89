"""A model file: the fields of `transformer.spec.Model`, by the key names of Hugging Face, each with its source."""

from __future__ import annotations

from typing import Any

from commcalc.catalog.about import KEYS, read_about
from commcalc.catalog.contradictions import contradictions, says_which_are_sparse
from commcalc.catalog.fields import (
    Field,
    Read,
    flag,
    layers,
    list_of,
    one_of,
    read_section,
    text,
    tokens,
    whole,
    whole_or_zero,
)  # fmt: skip
from commcalc.document import Section
from commcalc.transformer.layers import Attention, Ffn
from commcalc.transformer.spec import LinearAttention, Model, Norm, NormPlacement, Positions, QkNorm

# Of `Model`, in its order; and ``moe_layers``, a count that says which layers hold experts where nothing else does.
FIELDS = {
    "name": Field(text, like="llama-3-70b"),
    "hidden_size": Field(whole, like="8192"),
    "num_hidden_layers": Field(layers, like="80"),
    "num_attention_heads": Field(whole, like="64"),
    "num_key_value_heads": Field(whole, like="8"),
    "head_dim": Field(whole, like="128"),
    "intermediate_size": Field(whole, like="28672"),
    "vocab_size": Field(whole, like="128256"),
    "max_position_embeddings": Field(tokens, like="8192 or 8K"),
    "gated_mlp": Field(flag, like="true"),
    "norm": one_of(Norm),
    "norm_placement": one_of(NormPlacement),
    "qk_norm": one_of(QkNorm),
    "attention_bias": Field(flag, like="false"),
    "attention_output_bias": Field(flag, like="false"),
    "mlp_bias": Field(flag, like="false"),
    "lm_head_bias": Field(flag, like="false"),
    "position_embedding": one_of(Positions),
    "tie_word_embeddings": Field(flag, like="false"),
    "parallel_block": Field(flag, like="false"),
    "parallel_norms": Field(whole, like="1"),
    "quantization_group_size": Field(whole, like="128"),
    "embedding_norm": Field(flag, like="false"),
    "extra_position_rows": Field(whole_or_zero, like="2"),
    "num_experts": Field(whole_or_zero, like="8"),
    "num_experts_per_tok": Field(whole_or_zero, like="2"),
    "moe_intermediate_size": Field(whole_or_zero, like="14336"),
    "moe_layers": Field(whole_or_zero, like="32"),
    "mlp_layer_types": list_of(Ffn),
    "first_k_dense_replace": Field(whole_or_zero, like="3"),
    "interleave_moe_layer_step": Field(whole, like="2"),
    "shared_expert_intermediate_size": Field(whole_or_zero, like="2048"),
    "shared_expert_gate": Field(flag, like="false"),
    "router_bias": Field(flag, like="false"),
    "router_scales": Field(flag, like="false"),
    "expert_bias": Field(flag, like="false"),
    "dense_mlp_beside_moe": Field(flag, like="false"),
    "q_lora_rank": Field(whole_or_zero, like="1536"),
    "kv_lora_rank": Field(whole_or_zero, like="512"),
    "qk_nope_head_dim": Field(whole_or_zero, like="128"),
    "qk_rope_head_dim": Field(whole_or_zero, like="64"),
    "v_head_dim": Field(whole_or_zero, like="128"),
    "index_n_heads": Field(whole_or_zero, like="32"),
    "index_head_dim": Field(whole_or_zero, like="128"),
    "index_layers": Field(whole_or_zero, like="21"),
    "layer_types": list_of(Attention),
    "full_attention_interval": Field(whole_or_zero, like="4"),
    "sliding_window": Field(whole_or_zero, like="4096"),
    "attention_chunk_size": Field(whole_or_zero, like="8192"),
    "sliding_num_key_value_heads": Field(whole_or_zero, like="8"),
    "linear_attention": one_of(LinearAttention),
    "linear_num_key_heads": Field(whole_or_zero, like="16"),
    "linear_num_value_heads": Field(whole_or_zero, like="48"),
    "linear_key_head_dim": Field(whole_or_zero, like="128"),
    "linear_value_head_dim": Field(whole_or_zero, like="128"),
    "linear_conv_kernel_dim": Field(whole_or_zero, like="4"),
    "global_num_key_value_heads": Field(whole_or_zero, like="4"),
    "global_head_dim": Field(whole_or_zero, like="512"),
    "global_keys_are_values": Field(flag, like="false"),
    "attention_output_gate": Field(flag, like="false"),
    "attention_sinks": Field(flag, like="false"),
    "sinks_in_sliding_only": Field(flag, like="false"),
    "num_nextn_predict_layers": Field(whole_or_zero, like="1"),
    "undescribed": Field(text, like="Mamba-2 layers"),
    "family": Field(text, like="llama"),
}


def is_config(section: Section) -> bool:
    """Whether a mapping is a Hugging Face ``config.json``; the reader of those is loaded only for one."""
    return bool({"model_type", "architectures", "text_config", "thinker_config"} & section.entries.keys())


def as_fields(section: Section) -> Section:
    """The mapping itself, or the fields of a ``config.json``; single values from options are laid over those."""
    if not is_config(section):
        return section
    from commcalc.ingest.hf_config import read_config

    fields = read_config(section)
    for key, node in section.entries.items():
        if key == "name" or (key in FIELDS and node.where.startswith("--set ")):
            fields.entries[key] = node
            fields.keys[key] = section.keys[key]
    return fields


def read_model(section: Section, path: str = "model") -> tuple[Model, Read]:
    """The model of a mapping, ours or a ``config.json``; what it does not give and nothing needs stays None."""
    section = as_fields(section)
    own = {key: node for key, node in section.entries.items() if key not in KEYS}
    read = read_section(Section(section.where, own, section.keys), FIELDS, path)
    read.problems.extend(read_about(section, path)[1])
    values: dict[str, Any] = dict(read.values)
    counted = values.pop("moe_layers", None)
    model = _derived(Model(**values), counted, read)
    unread = {key for key in own if key in FIELDS and key not in read.values}
    for problem in contradictions(model, counted, read.values, unread):
        key = (problem.where or "").removeprefix("model.")
        node = section.entries.get(key)
        problem.where = f"{path}.{key}" if node is None else f"{node.where} {path}.{key}"
        read.problems.append(problem)
    return model, read


def _derived(model: Model, moe_layers: int | None, read: Read) -> Model:
    """The sizes that follow from others: KV heads, the size of a head, which layers are dense."""
    heads = model.num_attention_heads
    if heads is not None and model.num_key_value_heads is None:
        model = model._replace(num_key_value_heads=heads)
        read.sources["num_key_value_heads"] = "as many as num_attention_heads"
    if model.head_dim is None and model.kv_lora_rank:
        model = model._replace(head_dim=model.qk_nope_head_dim + model.qk_rope_head_dim)
        read.sources["head_dim"] = "qk_nope_head_dim + qk_rope_head_dim"
    if model.head_dim is None and heads is not None and model.hidden_size is not None and not model.hidden_size % heads:
        model = model._replace(head_dim=model.hidden_size // heads)
        read.sources["head_dim"] = "hidden_size / num_attention_heads"
    return model if moe_layers is None else _last_hold_experts(model, moe_layers, read)


def _last_hold_experts(model: Model, moe_layers: int, read: Read) -> Model:
    """The last ``moe_layers`` of the layers hold experts, where neither a list nor a rule says which do."""
    depth = model.num_hidden_layers
    if depth is None or moe_layers > depth or not model.num_experts or says_which_are_sparse(read.values):
        return model
    read.sources["first_k_dense_replace"] = "num_hidden_layers - moe_layers"
    return model._replace(first_k_dense_replace=depth - moe_layers)
