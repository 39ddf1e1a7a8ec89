"""What an architecture is: the sizes and choices of a dense decoder, by the key names of Hugging Face."""

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

    None, one weight of head_dim for all heads, a weight for each head, or one norm over all heads together.
    """

    NONE = "none"
    HEAD_DIM = "head_dim"
    PER_HEAD = "per_head"
    FULL_WIDTH = "full_width"


class Positions(StrEnum):
    """How positions enter: rotary (or ALiBi, or none: nothing is added), or a learned table added to the words."""

    ROPE = "rope"
    LEARNED = "learned"
    ALIBI = "alibi"
    NONE = "none"


class Model(NamedTuple):
    """A decoder. A size that is None was not given; whoever needs it asks for it by name (`Model.need`).

    The fields from ``num_experts`` on describe what is read and counted, but not priced yet (`unpriced`).
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
    moe_layers: int = 0
    shared_expert_intermediate_size: int = 0
    shared_expert_gate: bool = False
    router_bias: bool = False
    router_scales: bool = False
    expert_bias: bool = False
    dense_mlp_beside_moe: bool = False
    moe_branch_norms: int = 0
    # Multi-head latent attention, and its sparse indexer.
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    index_n_heads: int = 0
    index_head_dim: int = 0
    index_layers: int = 0
    # Layers of linear attention, and layers whose heads differ from the others'.
    linear_layers: int = 0
    linear_num_key_heads: int = 0
    linear_num_value_heads: int = 0
    linear_key_head_dim: int = 0
    linear_value_head_dim: int = 0
    linear_conv_kernel_dim: int = 0
    global_layers: int = 0
    global_num_key_value_heads: int = 0
    global_head_dim: int = 0
    global_keys_are_values: bool = False
    attention_output_gate: bool = False
    attention_sinks: bool = False
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
        return int(value)

    def described(self) -> dict[str, object]:
        """Every field by name; those of parts that this model has not (experts, latents, ...) are left out."""
        first = list(self._fields).index("embedding_norm")
        return {key: value for at, (key, value) in enumerate(self._asdict().items()) if at < first or value}

    def unpriced(self) -> list[str]:
        """The parts of this architecture that no program here derives yet, each in words."""
        parts = {
            f"mixture of experts ({self.num_experts} experts in {self.moe_layers} layers)": self.num_experts,
            f"latent attention (kv_lora_rank {self.kv_lora_rank})": self.kv_lora_rank,
            f"linear attention ({self.linear_layers} layers)": self.linear_layers,
            f"layers with other heads ({self.global_layers} global layers)": self.global_layers,
            "query and key norms over all heads together": self.qk_norm is QkNorm.FULL_WIDTH,
            "a gate on the attention output": self.attention_output_gate,
            "attention sinks": self.attention_sinks,
            "norms after a branch in a parallel block": self.parallel_block
            and self.norm_placement is not NormPlacement.PRE,
            "a norm of the embedding beside learned positions": self.embedding_norm
            and self.position_embedding is Positions.LEARNED,
        }
        return [part for part, there in parts.items() if there]

    @property
    def dims(self) -> dict[str, int]:
        """The named dimensions of the programs, as far as the model gives them; V is not yet padded."""
        found = {
            "D": self.hidden_size,
            "N": self.num_attention_heads,
            "K": self.num_key_value_heads,
            "H": self.head_dim,
            "F": self.intermediate_size,
            "V": self.vocab_size,
            "P": self.max_position_embeddings and self.max_position_embeddings + self.extra_position_rows,
        }
        sizes = {dim: size for dim, size in found.items() if size is not None}
        if {"N", "K", "H"} <= sizes.keys():
            sizes["QKV"] = (sizes["N"] + 2 * sizes["K"]) * sizes["H"]
        return sizes


# The model key behind each named dimension, for messages.
KEY_OF_DIM = {
    "D": "hidden_size",
    "N": "num_attention_heads",
    "K": "num_key_value_heads",
    "H": "head_dim",
    "F": "intermediate_size",
    "V": "vocab_size",
    "P": "max_position_embeddings",
    "QKV": "num_attention_heads",
}
