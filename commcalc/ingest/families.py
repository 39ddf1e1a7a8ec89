"""What the files of each Hugging Face family leave unsaid: class defaults and habits, by ``model_type``.

Source: transformers 5.24.0, models/*/configuration_*.py and modeling_*.py; a preset key of the family's own file wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

# A bias or flag is fixed, or named by a key of the file with the class default behind it.
Told = bool | tuple[str, bool]
HEADS = "heads"


class Family(NamedTuple):
    """Defaults of a family. ``kv`` and ``head_dim`` hold where the key is absent; None is derived."""

    kv: int | str | None = HEADS
    kv_null: bool = True
    head_dim: int | None = None
    gated: bool = True
    norm: str = "rmsnorm"
    placement: str = "pre"
    qk_norm: str | tuple[str, str] = "none"
    qkv_bias: Told = False
    out_bias: Told = False
    mlp_bias: Told = False
    head_bias: Told = False
    position: str = "rope"
    tie: bool = False
    parallel: Told = False
    norms: int = 1
    ffn_multiple: int = 0
    # Which layers hold experts (`hf_config.MOE_LAYERS`), and the key of an expert's width.
    moe: str = ""
    expert_key: str = "moe_intermediate_size"
    latent: bool = False
    # Whole numbers that the class fills in where the file is silent.
    sizes: tuple[tuple[str, int], ...] = ()


_ATTENTION = ("attention_bias", False)
_LLAMA = Family(qkv_bias=_ATTENTION, out_bias=_ATTENTION, mlp_bias=("mlp_bias", False))
_GPT = Family(
    gated=False, norm="layernorm", qkv_bias=True, out_bias=True, mlp_bias=True, position="learned", tie=True,
    ffn_multiple=4,
)  # fmt: skip
_GEMMA3 = Family(
    kv=4, kv_null=False, head_dim=256, placement="sandwich", qk_norm="head_dim", tie=True,
    sizes=(("num_attention_heads", 8), ("vocab_size", 262208), ("max_position_embeddings", 131072)),
)  # fmt: skip
_DEEPSEEK = Family(latent=True, moe="first_dense")
_COHERE = Family(
    norm="layernorm_no_bias", parallel=True, tie=True, qkv_bias=_ATTENTION, out_bias=_ATTENTION,
    qk_norm=("use_qk_norm", "per_head"),
)  # fmt: skip
_QWEN_LINEAR = Family(kv=2, head_dim=256, qk_norm="head_dim", moe="qwen")

FAMILIES: dict[str, Family] = {
    "llama": _LLAMA,
    "mistral": Family(kv=8, kv_null=False),
    "mixtral": Family(kv=8, kv_null=False, moe="all", expert_key="intermediate_size"),
    "qwen2": Family(kv=32, qkv_bias=True),
    "qwen2_moe": Family(kv=None, qkv_bias=True, moe="qwen"),
    "qwen3": Family(kv=32, head_dim=128, qk_norm="head_dim", qkv_bias=_ATTENTION, out_bias=_ATTENTION),
    "qwen3_moe": Family(kv=4, kv_null=False, qk_norm="head_dim", qkv_bias=_ATTENTION, out_bias=_ATTENTION, moe="qwen"),
    "qwen3_next": _QWEN_LINEAR,
    "qwen3_5": _QWEN_LINEAR,
    "qwen3_5_moe": _QWEN_LINEAR._replace(moe="all"),
    "phi": Family(
        gated=False, norm="layernorm", qkv_bias=True, out_bias=True, mlp_bias=True, head_bias=True, parallel=True
    ),
    "phi3": Family(),
    "gemma": Family(kv=16, head_dim=256, tie=True),
    "gemma2": Family(kv=4, kv_null=False, head_dim=256, placement="sandwich", tie=True),
    "gemma3": _GEMMA3,
    "gemma4": Family(kv=None, head_dim=256, placement="sandwich", qk_norm="head_dim", tie=True, moe="all"),
    "cohere": _COHERE,
    "cohere2": _COHERE._replace(qk_norm="none"),
    "gpt2": _GPT,
    "gpt_bigcode": _GPT,
    "gptj": _GPT._replace(
        qkv_bias=False, out_bias=False, head_bias=True, position="rope", tie=False, parallel=True
    ),
    "gpt_neox": _GPT._replace(
        qkv_bias=("attention_bias", True), out_bias=("attention_bias", True), position="rope", tie=False,
        parallel=("use_parallel_residual", True), norms=2,
    ),
    "opt": _GPT._replace(
        qkv_bias=("enable_bias", True), out_bias=("enable_bias", True), mlp_bias=("enable_bias", True), ffn_multiple=0
    ),
    "bloom": _GPT._replace(position="alibi"),
    "falcon": _GPT._replace(
        kv=None, qkv_bias=("bias", False), out_bias=("bias", False), mlp_bias=("bias", False), position="rope",
        sizes=(("max_position_embeddings", 2048),),
    ),
    "starcoder2": Family(
        kv=2, gated=False, norm="layernorm", qkv_bias=("use_bias", True), out_bias=("use_bias", True),
        mlp_bias=("use_bias", True), tie=True,
    ),
    "olmo2": Family(placement="post", qk_norm="full_width", qkv_bias=_ATTENTION, out_bias=_ATTENTION),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm_moe_dsa": _DEEPSEEK,
    "glm4_moe": Family(
        kv=8, qkv_bias=_ATTENTION, qk_norm=("use_qk_norm", "head_dim"), moe="first_dense"
    ),
    "gpt_oss": Family(
        kv=8, kv_null=False, head_dim=64, qkv_bias=("attention_bias", True), out_bias=("attention_bias", True),
        moe="all", expert_key="intermediate_size",
    ),
    "llama4": Family(
        kv=8, kv_null=False, head_dim=128, qkv_bias=_ATTENTION, out_bias=_ATTENTION, moe="interleaved",
        expert_key="intermediate_size",
    ),
    "minimax_m2": Family(
        kv=8, kv_null=False, head_dim=128, qk_norm=("use_qk_norm", "full_width"), moe="all",
        expert_key="intermediate_size",
    ),
}  # fmt: skip

# First match wins. Source: vLLM transformers_utils CONFIG_FIELD_ALIASES, and files seen.
ALIASES: Mapping[str, Sequence[str]] = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "n_embed", "dim"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "num_key_value_heads": (
        "n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups",
    ),
    "head_dim": ("head_dim", "kv_channels", "attention_head_dim", "hidden_size_per_head", "d_kv"),
    "intermediate_size": (
        "intermediate_size_mlp", "dense_intermediate_size", "intermediate_size", "ffn_dim", "n_inner",
        "ffn_hidden_size",
    ),
    "vocab_size": ("vocab_size", "padded_vocab_size"),
    "max_position_embeddings": (
        "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "model_max_length",
    ),
    "num_experts": ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts"),
    "num_experts_per_tok": (
        "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_top_k", "moe_k",
    ),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
    "shared_expert_intermediate_size": (
        "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size",
        "share_expert_dim",
    ),
}  # fmt: skip
# Other spellings of `model_type`, and classes of `architectures` for files without one.
SPELLINGS = {
    "refinedweb": "falcon", "refinedwebmodel": "falcon", "phi-msft": "phi", "phi4": "phi3",
    "gemma3_text": "gemma3", "gemma4_text": "gemma4", "llama4_text": "llama4", "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5_moe", "kimi_k25": "kimi_k2", "deepseek_v3_2": "deepseek_v32",
    "gptneox": "gpt_neox", "gptbigcode": "gpt_bigcode", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe",
    "qwen3next": "qwen3_next", "deepseekv2": "deepseek_v2", "deepseekv3": "deepseek_v3", "glm4moe": "glm4_moe",
    "glmmoedsa": "glm_moe_dsa", "gptoss": "gpt_oss", "minimaxm2": "minimax_m2",
    "rwforcausallm": "falcon", "rw": "falcon",
}  # fmt: skip
