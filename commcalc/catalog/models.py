"""A model file: the fields of `transformer.spec.Model`, by the key names of Hugging Face, each with its source."""

from __future__ import annotations

from typing import Any

from commcalc.catalog.about import KEYS, read_about
from commcalc.catalog.fields import Field, Read, flag, one_of, read_section, text, tokens, whole, whole_or_zero
from commcalc.document import Section
from commcalc.errors import SpecError
from commcalc.transformer.spec import Model, Norm, NormPlacement, Positions, QkNorm

FIELDS = {
    "name": Field(text, like="llama-3-70b"),
    "hidden_size": Field(whole, like="8192"),
    "num_hidden_layers": Field(whole, like="80"),
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
    "shared_expert_intermediate_size": Field(whole_or_zero, like="2048"),
    "shared_expert_gate": Field(flag, like="false"),
    "router_bias": Field(flag, like="false"),
    "router_scales": Field(flag, like="false"),
    "expert_bias": Field(flag, like="false"),
    "dense_mlp_beside_moe": Field(flag, like="false"),
    "moe_branch_norms": Field(whole_or_zero, like="3"),
    "q_lora_rank": Field(whole_or_zero, like="1536"),
    "kv_lora_rank": Field(whole_or_zero, like="512"),
    "qk_nope_head_dim": Field(whole_or_zero, like="128"),
    "qk_rope_head_dim": Field(whole_or_zero, like="64"),
    "v_head_dim": Field(whole_or_zero, like="128"),
    "index_n_heads": Field(whole_or_zero, like="32"),
    "index_head_dim": Field(whole_or_zero, like="128"),
    "index_layers": Field(whole_or_zero, like="21"),
    "linear_layers": Field(whole_or_zero, like="48"),
    "linear_num_key_heads": Field(whole_or_zero, like="16"),
    "linear_num_value_heads": Field(whole_or_zero, like="48"),
    "linear_key_head_dim": Field(whole_or_zero, like="128"),
    "linear_value_head_dim": Field(whole_or_zero, like="128"),
    "linear_conv_kernel_dim": Field(whole_or_zero, like="4"),
    "global_layers": Field(whole_or_zero, like="10"),
    "global_num_key_value_heads": Field(whole_or_zero, like="4"),
    "global_head_dim": Field(whole_or_zero, like="512"),
    "global_keys_are_values": Field(flag, like="false"),
    "attention_output_gate": Field(flag, like="false"),
    "attention_sinks": Field(flag, like="false"),
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
    values: dict[str, Any] = read.values
    model = _derived(Model(**values), read, section, path)
    return model, read


def _derived(model: Model, read: Read, section: Section, path: str) -> Model:
    """KV heads and head size where they follow from the others; contradictions are collected."""
    heads, kv = model.num_attention_heads, model.num_key_value_heads
    if heads is not None and kv is None:
        model = model._replace(num_key_value_heads=heads)
        read.sources["num_key_value_heads"] = "as many as num_attention_heads"
    elif heads is not None and kv is not None and heads % kv:
        where = f"{section.entries['num_key_value_heads'].where} {path}.num_key_value_heads"
        read.problems.append(
            SpecError(
                f"num_attention_heads {heads} mod num_key_value_heads {kv} = {heads % kv}: each KV head serves "
                "equally many query heads",
                where=where,
            )
        )
    if model.head_dim is None and heads is not None and model.hidden_size is not None:
        if model.hidden_size % heads:
            where = f"{section.entries['num_attention_heads'].where} {path}.num_attention_heads"
            read.problems.append(
                SpecError(
                    f"hidden_size {model.hidden_size} mod num_attention_heads {heads} = {model.hidden_size % heads}, "
                    "and head_dim is not given",
                    where=where,
                    hint="give head_dim",
                )
            )
        else:
            model = model._replace(head_dim=model.hidden_size // heads)
            read.sources["head_dim"] = "hidden_size / num_attention_heads"
    if model.parallel_block and model.norm_placement is not NormPlacement.PRE:
        message = f"a parallel block has no {model.norm_placement} norms"
        read.problems.append(SpecError(message, where=f"{path}.norm_placement", hint="norm_placement: pre"))
    if model.parallel_norms == 2 and not model.parallel_block:
        where = f"{path}.parallel_norms"
        read.problems.append(
            SpecError("parallel_norms 2 without parallel_block", where=where, hint="parallel_block: true")
        )
    if model.parallel_norms not in (1, 2):
        read.problems.append(
            SpecError(f"parallel_norms {model.parallel_norms} is neither 1 nor 2", where=f"{path}.parallel_norms")
        )
    return model
