"""What an architecture is: the sizes and choices of a decoder, by the key names of Hugging Face."""

# Annotations are no text here: as fields of a NamedTuple each would be compiled at every start.
from enum import StrEnum
from typing import NamedTuple

from commcalc.errors import SpecError


class Phase(StrEnum):
    """What the model does: a training step, reading a prompt, or making one token per sequence."""

    TRAIN = "train"
    PREFILL = "prefill"
    DECODE = "decode"

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return self is Phase.TRAIN


class Norm(StrEnum):
    """The kind of normalisation, which decides what weights it has."""

    RMSNORM = "rmsnorm"
    LAYERNORM = "layernorm"
    LAYERNORM_NO_BIAS = "layernorm_no_bias"


class NormPlacement(StrEnum):
    """``pre``: x + f(norm(x)); ``sandwich``: x + norm(f(norm(x))); ``post``: x + norm(f(x))."""

    PRE = "pre"
    SANDWICH = "sandwich"
    POST = "post"


class QkNorm(StrEnum):
    """Norms of queries and keys.

    None, one weight of head_dim for all heads, a weight for each head, one norm over all heads together, or a norm of
    each head without weights.
    """

    NONE = "none"
    HEAD_DIM = "head_dim"
    PER_HEAD = "per_head"
    FULL_WIDTH = "full_width"
    NO_WEIGHT = "no_weight"


class Positions(StrEnum):
    """How positions enter: rotary (or ALiBi, or none: nothing is added), or a learned table added to the words."""

    ROPE = "rope"
    LEARNED = "learned"
    ALIBI = "alibi"
    NONE = "none"


class LinearAttention(StrEnum):
    """The kind of linear attention.

    ``gated_delta_net``: Yang et al. 2024, arXiv:2412.06464, as in Qwen3-Next; ``lightning``: MiniMax-01,
    arXiv:2501.08313, section 2.2.
    """

    GATED_DELTA_NET = "gated_delta_net"
    LIGHTNING = "lightning"


class Model(NamedTuple):
    """A decoder. A size that is None was not given; whoever needs it asks for it by name (`Model.need`).

    Which layer is of which kind, lists and rules say together: `transformer.layers`.
    """

    name: str = "model"
    hidden_size: int | None = None
    num_hidden_layers: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int | None = None
    vocab_size: int | None = None
    max_position_embeddings: int | None = None
    gated_mlp: bool = True
    norm: Norm = Norm.RMSNORM
    norm_placement: NormPlacement = NormPlacement.PRE
    qk_norm: QkNorm = QkNorm.NONE
    attention_bias: bool = False
    attention_output_bias: bool = False
    mlp_bias: bool = False
    lm_head_bias: bool = False
    position_embedding: Positions = Positions.ROPE
    tie_word_embeddings: bool = False
    parallel_block: bool = False
    parallel_norms: int = 1
    quantization_group_size: int = 1
    embedding_norm: bool = False
    extra_position_rows: int = 0
    # Mixture of experts: every token goes to some of the experts of a layer.
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    # Which layers hold experts: ``dense`` or ``sparse`` for each layer; or, without a list, every
    # ``interleave_moe_layer_step``-th behind the first ``first_k_dense_replace``.
    mlp_layer_types: tuple[str, ...] = ()
    first_k_dense_replace: int = 0
    interleave_moe_layer_step: int = 1
    shared_expert_intermediate_size: int = 0
    shared_expert_gate: bool = False
    router_bias: bool = False
    router_scales: bool = False
    expert_bias: bool = False
    dense_mlp_beside_moe: bool = False
    # Multi-head latent attention, and its sparse indexer.
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    index_n_heads: int = 0
    index_head_dim: int = 0
    index_layers: int = 0
    # How layers attend: a word for each layer (`transformer.layers.Attention`); or, without a list, every
    # ``full_attention_interval``-th to all tokens (0: none) and the others as the sizes below say.
    layer_types: tuple[str, ...] = ()
    full_attention_interval: int = 0
    # Tokens that a sliding layer looks back, or of a chunk that it looks into; its KV heads, where they are others.
    sliding_window: int = 0
    attention_chunk_size: int = 0
    sliding_num_key_value_heads: int = 0
    # Layers of linear attention.
    linear_attention: LinearAttention = LinearAttention.GATED_DELTA_NET
    linear_num_key_heads: int = 0
    linear_num_value_heads: int = 0
    linear_key_head_dim: int = 0
    linear_value_head_dim: int = 0
    linear_conv_kernel_dim: int = 0
    # Heads of the layers that attend to all tokens, where the others slide and have heads of their own.
    global_num_key_value_heads: int = 0
    global_head_dim: int = 0
    global_keys_are_values: bool = False
    attention_output_gate: bool = False
    # A learned logit a head that takes a share of every softmax; in all layers, or in the sliding ones alone.
    attention_sinks: bool = False
    sinks_in_sliding_only: bool = False
    # Layers that predict further tokens in training; no part of num_hidden_layers.
    num_nextn_predict_layers: int = 0
    # What this model has and no field describes, in words: neither counted nor priced then.
    undescribed: str = ""
    # The ``model_type`` of Hugging Face, by which frameworks know it.
    family: str = ""

    def need(self, key: str, purpose: str) -> int:
        """The size ``key``; `SpecError` naming it and what it is needed for where it was not given."""
        value = getattr(self, key)
        if value is None:
            raise SpecError(
                f"the model does not give {key}, needed for {purpose}",
                where=f"model.{key}",
                hint=f"add {key} to the model, or --set model.{key}=N",
            )
        size: int = value
        return size

    def described(self) -> dict[str, object]:
        """Every field by name; those of parts that this model has not (experts, latents, ...) are left out."""
        first = list(self._fields).index("embedding_norm")
        usual, values = self._field_defaults, self._asdict().items()
        return {key: value for at, (key, value) in enumerate(values) if at < first or value != usual[key]}

    def unpriced(self) -> list[str]:
        """The parts of this architecture that no program here derives, each in words."""
        parts = {
            self.undescribed: self.undescribed,
            "norms after a branch in a parallel block": self.parallel_block
            and self.norm_placement is not NormPlacement.PRE,
            "a norm of the embedding beside learned positions": self.embedding_norm
            and self.position_embedding is Positions.LEARNED,
            "experts in a parallel block": self.parallel_block and self.num_experts,
            "biases of an MLP beside experts": self.mlp_bias and self.dense_mlp_beside_moe,
            "biases of experts with scales of a router": self.expert_bias and self.router_scales,
            "biases of queries with a gate on attention's output": self.attention_bias and self.attention_output_gate,
            "a layer norm of queries and keys over all heads": self.qk_norm is QkNorm.FULL_WIDTH
            and self.norm is not Norm.RMSNORM,
        }
        return [part for part, there in parts.items() if there]

    @property
    def dims(self) -> dict[str, int]:
        """The named dimensions of the programs, as far as the model gives them; V is not yet padded."""
        positions = self.max_position_embeddings and self.max_position_embeddings + self.extra_position_rows
        given = {dim: getattr(self, key) for dim, key in KEY_OF_DIM.items() if dim != "P"}
        sizes = {dim: size for dim, size in given.items() if size is not None and (size or dim in _DENSE)}
        if positions is not None:
            sizes["P"] = positions
        for columns, kv, width in (("QKV", "K", "H"), ("QKVG", "KG", "HG"), ("QKVS", "KS", "H")):
            if {"N", kv, width} <= sizes.keys():
                value = sizes["HV"] if "HV" in sizes and kv != "KG" and not self.kv_lora_rank else sizes[width]
                values = 0 if kv == "KG" and self.global_keys_are_values else sizes[kv]
                values += sizes["N"] if self.attention_output_gate else 0
                sizes[columns] = (sizes["N"] + sizes[kv]) * sizes[width] + values * value
        if {"N", "K", "H"} <= sizes.keys():
            value = sizes["HV"] if "HV" in sizes and not self.kv_lora_rank else sizes["H"]
            sizes |= {"QCOL": sizes["N"] * sizes["H"], "KCOL": sizes["K"] * sizes["H"]}
            sizes |= {"VCOL": sizes["K"] * value, "OCOL": sizes["N"] * value}
        if "F" in sizes:
            sizes["GU"] = 2 * sizes["F"]
        if {"NK", "HK", "NV", "HL"} <= sizes.keys():
            values = sizes["NV"] * sizes["HL"]
            sizes |= {
                "LQKV": 2 * sizes["NK"] * sizes["HK"] + values,
                "LZ": values,
                "LG": sizes["NV"],
                "LBA": 2 * sizes["NV"],
            }
            sizes["LQKVZ"] = sizes["LQKV"] + values
        if "D" in sizes:
            sizes |= {"DO": sizes["D"], "D2": 2 * sizes["D"]}
        return sizes | {"QK": 2, "SUMS": 2}


_DENSE = ("D", "N", "K", "H", "F", "V")
# The model key behind each named dimension, for messages.
KEY_OF_DIM = {
    "D": "hidden_size",
    "N": "num_attention_heads",
    "K": "num_key_value_heads",
    "H": "head_dim",
    "F": "intermediate_size",
    "V": "vocab_size",
    "P": "max_position_embeddings",
    "E": "num_experts",
    "C": "num_experts_per_tok",
    "M": "moe_intermediate_size",
    "S": "shared_expert_intermediate_size",
    "LQ": "q_lora_rank",
    "LKV": "kv_lora_rank",
    "HC": "qk_nope_head_dim",
    "R": "qk_rope_head_dim",
    "HV": "v_head_dim",
    "KS": "sliding_num_key_value_heads",
    "KG": "global_num_key_value_heads",
    "HG": "global_head_dim",
    "NK": "linear_num_key_heads",
    "NV": "linear_num_value_heads",
    "HK": "linear_key_head_dim",
    "HL": "linear_value_head_dim",
    "CONV": "linear_conv_kernel_dim",
}
# Dimensions that are made of others, in words.
MADE_DIMS = {
    "QKV": "columns of the fused QKV projection: queries, keys, values, and the output gate where there is one",
    "QKVG": "columns of the fused QKV projection of layers that attend to all tokens",
    "QKVS": "columns of the fused QKV projection of sliding layers",
    "QCOL": "columns of the queries, N*H",
    "KCOL": "columns of the keys, K*H",
    "VCOL": "columns of the values",
    "OCOL": "columns of what the heads say",
    "GU": "columns of gate and up together, 2*F",
    "LQKV": "columns of queries, keys and values of linear attention, 2*NK*HK + NV*HL",
    "LQKVZ": "columns of queries, keys, values and gate of linear attention, 2*NK*HK + 2*NV*HL",
    "LBA": "both gates of linear attention, 2*NV",
    "LZ": "columns of the gate of linear attention, NV*HL",
    "LG": "gates of linear attention, one a value head, NV",
    "DO": "columns of the projection back, D",
    "D2": "the stream and the next token's embedding side by side, 2*D",
    "QK": "a sum for the queries and one for the keys",
    "SUMS": "a sum of elements and one of their squares",
}


def key_of(dim: str) -> str:
    """The key of a model that gives a named dimension; of one made of others, the first of these."""
    made = {
        "QKV": "num_attention_heads", "QCOL": "num_attention_heads", "OCOL": "num_attention_heads",
        "KCOL": "num_key_value_heads", "VCOL": "num_key_value_heads", "QKVG": "global_head_dim",
        "QKVS": "sliding_num_key_value_heads", "GU": "intermediate_size", "DO": "hidden_size", "D2": "hidden_size",
    }  # fmt: skip
    return KEY_OF_DIM.get(dim) or made.get(dim, "linear_num_value_heads")
