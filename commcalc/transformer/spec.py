"""What an architecture is: the sizes and choices of a dense decoder, by the key names of Hugging Face."""

from __future__ import annotations

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
    """Norms of queries and keys: none, one weight of head_dim for all heads, or a weight for each head."""

    NONE = "none"
    HEAD_DIM = "head_dim"
    PER_HEAD = "per_head"


class Positions(StrEnum):
    """How positions enter: rotary (or ALiBi, or none: nothing is added), or a learned table added to the words."""

    ROPE = "rope"
    LEARNED = "learned"
    ALIBI = "alibi"
    NONE = "none"


class Model(NamedTuple):
    """A dense decoder. A size that is None was not given; whoever needs it asks for it by name (`Model.need`)."""

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
            "P": self.max_position_embeddings,
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
