"""Exact parameter counts, total and active, added up from the weights of the programs.

No buffers, no prediction layers, no vision towers. Only the indexers of sparse attention have no program: they are
counted from their published shapes.
"""

from __future__ import annotations

from math import prod

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.program import Program, Role
from commcalc.errors import CommcalcError, SpecError, raise_all
from commcalc.transformer.block import block_program
from commcalc.transformer.embedding import embedding_program, head_program
from commcalc.transformer.layers import Ffn, layers_of
from commcalc.transformer.layout import KvPolicy, Layout, LayoutName, lay_out
from commcalc.transformer.prediction import prediction_program
from commcalc.transformer.spec import Model, Phase

_NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")
# Weights of which a layer has one for each expert.
_EXPERTS = ("We_", "be_")


def parameters(model: Model) -> int:
    """Parameters of the language model; `SpecError` names every size that is missing."""
    return _count(model, model.num_experts)


def active_parameters(model: Model) -> int:
    """Parameters that one token meets: of the experts, only those it is sent to."""
    return _count(model, model.num_experts_per_tok)


def prediction_parameters(model: Model) -> int:
    """Parameters of the layers that predict further tokens, which share embedding and head with the model."""
    raise_all(missing(model))
    if not model.num_nextn_predict_layers:
        return 0
    from commcalc.transformer.dialects import Dialect

    program = prediction_program(model, _unsplit(), layers_of(model).kinds[-1], Dialect())
    each = _weights(program, model, model.num_experts) + (indexer(model) if model.index_layers else 0)
    return model.num_nextn_predict_layers * each


def missing(model: Model) -> list[CommcalcError]:
    """What keeps the parameters from being counted: sizes that are not given, parts that are not described."""
    if model.undescribed:
        message = f"the parameters of {model.name} cannot be counted: {model.undescribed}"
        return [SpecError(message, where=f"model {model.name}")]
    needed = list(_NEEDED)
    if any(kind.ffn is Ffn.DENSE for kind in layers_of(model).kinds) or model.dense_mlp_beside_moe:
        needed.append("intermediate_size")
    if model.position_embedding == "learned":
        needed.append("max_position_embeddings")
    return [
        SpecError(f"the model does not give {key}, needed for the parameter count", where=f"model.{key}")
        for key in needed
        if getattr(model, key) is None
    ]


def _count(model: Model, experts: int) -> int:
    raise_all(missing(model))
    layout = _unsplit()
    # A tied table has one name at both ends and counts once.
    first, last = embedding_program(model, layout), head_program(model, layout, Phase.TRAIN)
    total = sum((_named(first, model, experts) | _named(last, model, experts)).values())
    total += model.index_layers * indexer(model)
    layers = layers_of(model)
    counts = layers.counted()
    for kind, name in layers.names.items():
        total += counts[name] * _weights(block_program(model, layout, kind), model, experts)
    return total


def _unsplit() -> Layout:
    return lay_out(LayoutName.NONE, Mesh.of({"tp": 1}), {}, KvPolicy.REFUSE)


def _weights(program: Program, model: Model, experts: int) -> int:
    return sum(_named(program, model, experts).values())


def _named(program: Program, model: Model, experts: int) -> dict[str, int]:
    """Elements of each weight of a program, with so many of the experts."""
    sizes = model.dims
    chosen = sizes | {"E": experts}
    return {
        tensor.name: prod((chosen if tensor.name.startswith(_EXPERTS) else sizes)[dim] for dim in tensor.dims)
        for tensor in program.tensors.values()
        if tensor.role is Role.WEIGHT
    }


def indexer(model: Model) -> int:
    """The indexer of sparse attention, as published for each of two kinds.

    DeepSeek-V3.2 (transformers 5.24.0 models/deepseek_v32): queries from their latent, one key with a LayerNorm, a
    weight for each head. MiniMax-M3 (models/minimax_m3): queries and one key from the stream, a norm of each.
    """
    d, heads, width = model.hidden_size or 0, model.index_n_heads, model.index_head_dim
    if model.q_lora_rank:
        return model.q_lora_rank * heads * width + d * width + 2 * width + d * heads
    return d * heads * width + d * width + 2 * width
