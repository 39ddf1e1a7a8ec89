"""Exact parameter counts, total and active, of every architecture that can be described.

What the programs derive is counted from their weights; experts, latent and linear attention from their published
shapes (no buffers, no prediction heads, no vision towers). Source of each shape: transformers 5.24.0, the modelling
file of the family.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.program import Program, Role, Rule
from commcalc.errors import CommcalcError, SpecError, raise_all
from commcalc.transformer.block import block_program
from commcalc.transformer.embedding import embedding_program, head_program
from commcalc.transformer.layout import KvPolicy, LayoutName, lay_out
from commcalc.transformer.spec import Model, Phase, QkNorm

_NEEDED = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
)  # fmt: skip


def parameters(model: Model) -> int:
    """Parameters of the language model; `SpecError` names every size that is missing."""
    return _count(model, model.num_experts)


def active_parameters(model: Model) -> int:
    """Parameters that one token meets: of the experts, only those it is sent to."""
    return _count(model, model.num_experts_per_tok if model.num_experts else 0)


def missing(model: Model) -> list[CommcalcError]:
    """The sizes that the count needs and the model does not give."""
    needed = list(_NEEDED)
    if dense_layers(model):
        needed.append("intermediate_size")
    if model.position_embedding == "learned":
        needed.append("max_position_embeddings")
    return [
        SpecError(f"the model does not give {key}, needed for the parameter count", where=f"model.{key}")
        for key in needed
        if getattr(model, key) is None
    ]


def dense_layers(model: Model) -> int:
    """Layers with a dense MLP."""
    layers = model.num_hidden_layers or 0
    return layers if model.dense_mlp_beside_moe else layers - model.moe_layers


def _count(model: Model, experts: int) -> int:
    raise_all(missing(model))
    layout = lay_out(LayoutName.NONE, Mesh.of({"tp": 1}), model.num_key_value_heads, KvPolicy.REFUSE)
    sizes = model.dims | {"F": model.intermediate_size or 0}
    # A tied table has one name at both ends and counts once.
    ends = _weights(embedding_program(model, layout), sizes) | _weights(head_program(model, layout, Phase.TRAIN), sizes)
    block = block_program(model, layout)
    mlp = _weights(block, sizes, lambda sublayer, rule: sublayer == "mlp" and rule is not Rule.NORM)
    attention = _weights(block, sizes, lambda sublayer, rule: sublayer == "attention" and rule is not Rule.NORM)
    qk_norms = _weights(block, sizes, lambda _, rule: rule is Rule.NORM, "gq", "gk", "bq_norm", "bk_norm")
    every = _weights(block, sizes)
    norms = sum(every.values()) - sum(mlp.values()) - sum(attention.values()) - sum(qk_norms.values())
    layers = model.num_hidden_layers or 0
    plain = layers - model.linear_layers - model.global_layers
    own = _latent(model) if model.kv_lora_rank else sum(attention.values()) + sum(qk_norms.values())
    return (
        sum(ends.values())
        + layers * norms
        + plain * (own + _extras(model))
        + model.global_layers * _global(model)
        + model.linear_layers * _linear(model)
        + dense_layers(model) * sum(mlp.values())
        + model.moe_layers * _moe(model, experts)
        + model.index_layers * _indexer(model)
    )


def _weights(
    program: Program, sizes: dict[str, int], wanted: Callable[[str, Rule], bool] = lambda *_: True, *names: str
) -> dict[str, int]:
    """Elements of each weight of the operations that ``wanted`` names by sublayer and rule."""
    found = {}
    for op in program.ops:
        for name in op.weights:
            tensor = program.tensors[name]
            if tensor.role is Role.WEIGHT and wanted(op.sublayer, op.rule) and (not names or name in names):
                found[name] = prod(sizes[dim] for dim in tensor.dims)
    return found


def _extras(model: Model) -> int:
    """Attention weights that no operation of the program has: an output gate beside the queries, sinks."""
    heads = model.num_attention_heads or 0
    gate = (model.hidden_size or 0) * heads * (model.head_dim or 0) if model.attention_output_gate else 0
    return gate + (heads if model.attention_sinks else 0)


def _global(model: Model) -> int:
    """Attention of a layer with heads of its own; keys may serve as values."""
    d, heads = model.hidden_size or 0, model.num_attention_heads or 0
    width, kv = model.global_head_dim, model.global_num_key_value_heads
    norms = 2 * width if model.qk_norm is QkNorm.HEAD_DIM else 0
    return 2 * d * heads * width + (1 if model.global_keys_are_values else 2) * d * kv * width + norms


def _linear(model: Model) -> int:
    """A gated delta-net layer: projections of q, k, v, an output gate, two gates a value head, a short convolution."""
    d, values = model.hidden_size or 0, model.linear_num_value_heads
    key = model.linear_num_key_heads * model.linear_key_head_dim
    value = values * model.linear_value_head_dim
    convolution = (2 * key + value) * model.linear_conv_kernel_dim
    return d * (2 * key + 2 * value + 2 * values) + convolution + 2 * values + model.linear_value_head_dim + value * d


def _latent(model: Model) -> int:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1), with the norms of the latents."""
    d, heads = model.hidden_size or 0, model.num_attention_heads or 0
    query = heads * (model.qk_nope_head_dim + model.qk_rope_head_dim)
    queries = d * query if not model.q_lora_rank else model.q_lora_rank * (d + 1 + query)
    latent = model.kv_lora_rank
    keys = d * (latent + model.qk_rope_head_dim) + latent
    up = latent * heads * (model.qk_nope_head_dim + model.v_head_dim)
    return queries + keys + up + heads * model.v_head_dim * d


def _indexer(model: Model) -> int:
    """The indexer of sparse attention: queries from their latent, one key with a LayerNorm, a weight a head."""
    d, heads, width = model.hidden_size or 0, model.index_n_heads, model.index_head_dim
    return model.q_lora_rank * heads * width + d * width + 2 * width + d * heads


def _moe(model: Model, experts: int) -> int:
    """Router, ``experts`` of the experts, and the shared expert of one layer."""
    d, width = model.hidden_size or 0, model.moe_intermediate_size
    matrices = 3 if model.gated_mlp else 2
    router = d * model.num_experts + (model.num_experts if model.router_bias else 0)
    scales = (d + model.num_experts if model.router_scales else 0) + model.moe_branch_norms * d
    bias = (matrices - 1) * width + d if model.expert_bias else 0
    shared = matrices * d * model.shared_expert_intermediate_size + (d if model.shared_expert_gate else 0)
    return router + scales + experts * (matrices * d * width + bias) + shared
