"""What the files of each Hugging Face family leave unsaid: class defaults and habits, by ``model_type``.

Source: transformers 5.24.0, models/*/configuration_*.py and modeling_*.py; a key of the file wins. Families that it
has not name their own source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

# A bias or flag is fixed, or named by a key of the file with the class default behind it.
Told = bool | tuple[str, bool]
HEADS = "heads"


_Sizes = tuple[tuple[str, int], ...]


class Family(NamedTuple):
    """Defaults of a family. ``kv`` and ``head_dim`` hold where the key is absent; None is derived."""

    kv: int | str | None = HEADS
    kv_null: bool = True
    head_dim: int | None = None
    gated: bool = True
    norm: str = "rmsnorm"
    placement: str = "pre"
    # Fixed, or what a key of the file switches on, with the class default.
    qk_norm: str | tuple[str, str, bool] = "none"
    qkv_bias: Told = False
    out_bias: Told = False
    mlp_bias: Told = False
    head_bias: Told = False
    position: str = "rope"
    tie: bool = False
    parallel: Told = False
    norms: int = 1
    ffn_multiple: int = 0
    # Which layers hold experts (`hf_layers.expert_layers`), and the key of an expert's width.
    moe: str = ""
    expert_key: str = "moe_intermediate_size"
    # How layers attend that do not attend to all tokens, and each how many-th does (0: none). ``last_full``: the last
    # does in any case; ``window_flag``: only with use_sliding_window; ``full_first``: max_window_layers.
    other: str = ""
    every: int = 0
    last_full: bool = False
    window_flag: bool = False
    full_first: int = 0
    # A key that lists numbers for layers, and the word that each number means.
    pattern: tuple[str, tuple[str, ...]] = ("", ())
    latent: bool = False
    # Whole numbers that the class fills in where the file is silent.
    sizes: _Sizes = ()
    # Where these defaults are from; empty: the class of transformers.
    origin: str = ""


_FULL, _SLIDING, _LINEAR, _CHUNKED = "full_attention", "sliding_attention", "linear_attention", "chunked_attention"
_ATTENTION = ("attention_bias", False)


def _mixture(experts: int, top_k: int, width: int = 0, shared: int = 0, shared_width: int = 0) -> _Sizes:
    """Sizes of experts that a class fills in; 0 for those that it does not."""
    sizes = (
        ("num_experts", experts), ("num_experts_per_tok", top_k), ("moe_intermediate_size", width),
        ("shared_experts", shared), ("shared_expert_intermediate_size", shared_width),
    )  # fmt: skip
    return tuple(size for size in sizes if size[1])


def _latents(query: int, nope: int, value: int) -> _Sizes:
    """Sizes of latent attention that a class fills in."""
    return (
        ("q_lora_rank", query), ("kv_lora_rank", 512), ("qk_nope_head_dim", nope), ("qk_rope_head_dim", 64),
        ("v_head_dim", value),
    )  # fmt: skip


_LLAMA = Family(qkv_bias=_ATTENTION, out_bias=_ATTENTION, mlp_bias=("mlp_bias", False))
_GPT = Family(
    gated=False, norm="layernorm", qkv_bias=True, out_bias=True, mlp_bias=True, position="learned", tie=True,
    ffn_multiple=4,
)  # fmt: skip
_GEMMA = Family(kv=16, kv_null=False, head_dim=256, tie=True, qkv_bias=_ATTENTION, out_bias=_ATTENTION)
_GEMMA2 = _GEMMA._replace(
    kv=4, placement="sandwich", other=_SLIDING, every=2, sizes=(("sliding_window", 4096),)
)  # fmt: skip
_GEMMA3 = _GEMMA2._replace(
    qk_norm="head_dim", every=6,
    sizes=(
        ("num_attention_heads", 8), ("vocab_size", 262208), ("max_position_embeddings", 131072),
        ("sliding_window", 4096),
    ),
)  # fmt: skip
_DEEPSEEK2 = Family(
    latent=True, moe="first_dense", mlp_bias=("mlp_bias", False),
    sizes=(*_mixture(64, 0, 1407, shared=2), *_latents(1536, 128, 128)),
)  # fmt: skip
_DEEPSEEK = Family(
    latent=True, moe="first_dense",
    sizes=(("first_k_dense_replace", 3), *_mixture(256, 8, 2048, shared=1), *_latents(1536, 128, 128)),
)  # fmt: skip
_COHERE = Family(
    norm="layernorm_no_bias", parallel=True, tie=True, qkv_bias=_ATTENTION, out_bias=_ATTENTION,
    qk_norm=("use_qk_norm", "per_head", False),
)  # fmt: skip
_QWEN2 = Family(
    kv=32, qkv_bias=True, other=_SLIDING, window_flag=True, full_first=28, sizes=(("sliding_window", 4096),)
)
_QWEN3 = _QWEN2._replace(head_dim=128, qk_norm="head_dim", qkv_bias=_ATTENTION, out_bias=_ATTENTION)
_QWEN3_MOE = _QWEN3._replace(
    kv=4, kv_null=False, head_dim=None, moe="qwen", full_first=0,
    sizes=(("sliding_window", 4096), *_mixture(128, 8, 768)),
)  # fmt: skip
_DELTA_NET = (
    ("linear_num_key_heads", 16), ("linear_num_value_heads", 32), ("linear_key_head_dim", 128),
    ("linear_value_head_dim", 128), ("linear_conv_kernel_dim", 4),
)  # fmt: skip
_QWEN_LINEAR = Family(
    kv=2, kv_null=False, head_dim=256, qk_norm="head_dim", qkv_bias=_ATTENTION, out_bias=_ATTENTION, moe="qwen",
    other=_LINEAR, every=4, sizes=(*_DELTA_NET, *_mixture(512, 10, 512, shared_width=512)),
)  # fmt: skip
_OLMO2 = Family(placement="post", qk_norm="full_width", qkv_bias=_ATTENTION, out_bias=_ATTENTION)

FAMILIES: dict[str, Family] = {
    "llama": _LLAMA,
    "granite": _LLAMA,
    "smollm3": _LLAMA._replace(kv=4, tie=True),
    "seed_oss": _LLAMA._replace(
        kv=8, head_dim=128, qkv_bias=("attention_bias", True), out_bias=("attention_out_bias", False)
    ),
    "mistral": Family(kv=8, kv_null=False, other=_SLIDING, sizes=(("sliding_window", 4096),)),
    "mixtral": Family(
        kv=8, kv_null=False, moe="all", expert_key="intermediate_size", other=_SLIDING,
        sizes=_mixture(8, 2),
    ),
    "dbrx": Family(
        kv=1, norm="layernorm_no_bias", moe="all", expert_key="ffn_hidden_size", sizes=_mixture(4, 1, 3584)
    ),
    "grok-1": Family(
        kv=8, placement="sandwich", tie=True, moe="all", expert_key="intermediate_size",
        origin="habit of grok-1 in xai-org/grok-1 model.py and run.py",
    ),
    "qwen2": _QWEN2,
    "qwen2_vl": _QWEN2._replace(kv=8, full_first=80),
    "qwen2_moe": Family(
        kv=16, qkv_bias=("qkv_bias", True), moe="qwen", sizes=_mixture(60, 4, 1408, shared_width=5632)
    ),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl": _QWEN3._replace(other="", window_flag=False, full_first=0, sizes=()),
    "qwen3_vl_moe": _QWEN3_MOE._replace(kv=16, other="", window_flag=False, sizes=_mixture(60, 4, 1408)),
    "qwen3_next": _QWEN_LINEAR,
    "qwen3_5": _QWEN_LINEAR._replace(kv=4, moe="", sizes=_DELTA_NET),
    "qwen3_5_moe": _QWEN_LINEAR._replace(
        moe="all", sizes=(*_DELTA_NET, *_mixture(256, 8, 512, shared_width=512))
    ),
    "phi": Family(
        gated=False, norm="layernorm", qkv_bias=True, out_bias=True, mlp_bias=True, head_bias=True, parallel=True
    ),
    "phi3": Family(other=_SLIDING),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA3,
    "gemma4": _GEMMA2._replace(
        qk_norm="head_dim", moe="all", every=6, last_full=True,
        sizes=(("sliding_window", 512), ("global_head_dim", 512)),
    ),
    "cohere": _COHERE,
    "cohere2": _COHERE._replace(qk_norm="none", other=_SLIDING, every=4, sizes=(("sliding_window", 4096),)),
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
        kv=2, kv_null=False, gated=False, norm="layernorm", qkv_bias=("use_bias", True), out_bias=("use_bias", True),
        mlp_bias=("use_bias", True), tie=True, other=_SLIDING,
    ),
    "stablelm": Family(
        kv=32, kv_null=False, norm="layernorm", qkv_bias=("use_qkv_bias", False),
        parallel=("use_parallel_residual", False),
    ),
    "mpt": Family(gated=False, norm="layernorm_no_bias", position="alibi", tie=True, ffn_multiple=4),
    "chatglm": Family(
        kv=1, qkv_bias=("add_qkv_bias", False), out_bias=("add_bias_linear", False),
        mlp_bias=("add_bias_linear", False),
        origin="habit of chatglm in zai-org/chatglm3-6b modeling_chatglm.py",
    ),
    "olmo2": _OLMO2,
    "olmo3": _OLMO2._replace(other=_SLIDING, every=4, sizes=(("sliding_window", 4096),)),
    "olmoe": _OLMO2._replace(
        placement="pre", moe="all", expert_key="intermediate_size", sizes=_mixture(64, 8)
    ),
    "flex_olmo": _OLMO2._replace(moe="all", expert_key="intermediate_size", sizes=_mixture(7, 5)),
    "deepseek_v2": _DEEPSEEK2,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK._replace(sizes=(*_DEEPSEEK.sizes, ("index_n_heads", 64), ("index_head_dim", 128))),
    "kimi_k2": _DEEPSEEK,
    "glm_moe_dsa": _DEEPSEEK._replace(
        sizes=(
            ("first_k_dense_replace", 3), *_mixture(256, 8, 2048, shared=1), *_latents(2048, 192, 256),
            ("index_n_heads", 32), ("index_head_dim", 128),
        )
    ),
    "glm4_moe": Family(
        kv=8, kv_null=False, qkv_bias=_ATTENTION, qk_norm=("use_qk_norm", "head_dim", False), moe="first_dense",
        sizes=(("first_k_dense_replace", 1), *_mixture(128, 8, 1408, shared=1)),
    ),
    "glm4_moe_lite": _DEEPSEEK._replace(
        sizes=(("first_k_dense_replace", 1), *_mixture(64, 4, 1536, shared=1), *_latents(768, 192, 256))
    ),
    "gpt_oss": Family(
        kv=8, kv_null=False, head_dim=64, qkv_bias=("attention_bias", True), out_bias=("attention_bias", True),
        moe="all", expert_key="intermediate_size", other=_SLIDING, every=2,
        sizes=(("sliding_window", 128), *_mixture(128, 4)),
    ),
    "llama4": Family(
        kv=8, kv_null=False, head_dim=128, qkv_bias=_ATTENTION, out_bias=_ATTENTION, moe="interleaved",
        expert_key="intermediate_size", qk_norm=("use_qk_norm", "no_weight", True), other=_CHUNKED, every=4,
        pattern=("no_rope_layers", (_FULL, _CHUNKED)), sizes=(("attention_chunk_size", 8192), *_mixture(16, 1)),
    ),
    "minimax": Family(
        kv=8, kv_null=False, moe="all", expert_key="intermediate_size", other=_LINEAR,
        pattern=("attn_type_list", (_LINEAR, _FULL)), sizes=_mixture(8, 2),
    ),
    "minimax_m2": Family(
        kv=8, kv_null=False, head_dim=128, qk_norm=("use_qk_norm", "full_width", True), moe="all",
        expert_key="intermediate_size", sizes=_mixture(256, 8),
    ),
    "minimax_m3": Family(
        kv=4, kv_null=False, head_dim=128, qk_norm=("use_qk_norm", "head_dim", True), moe="all",
        expert_key="intermediate_size",
        sizes=(*_mixture(128, 4, shared_width=3072), ("index_n_heads", 4), ("index_head_dim", 128)),
    ),
    "mimo_v2_flash": Family(
        kv=4, kv_null=False, head_dim=192, qkv_bias=_ATTENTION, moe="first_dense", other=_SLIDING, every=6,
        pattern=("hybrid_layer_pattern", (_FULL, _SLIDING)),
        sizes=(
            ("v_head_dim", 128), ("sliding_window", 129), ("first_k_dense_replace", 1), *_mixture(256, 8, 2048),
        ),
    ),
}  # fmt: skip

# First match wins. Source: vLLM transformers_utils CONFIG_FIELD_ALIASES, and files seen.
ALIASES: Mapping[str, Sequence[str]] = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "n_embed", "dim"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "num_key_value_heads": (
        "n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups",
        "kv_n_heads",
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
    "sliding_window": ("sliding_window", "sliding_window_size"),
    "num_nextn_predict_layers": (
        "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers",
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
    "rwforcausallm": "falcon", "rw": "falcon", "grok1": "grok-1", "qwen2_vl_text": "qwen2_vl", "qwen2_5_vl": "qwen2_vl",
    "qwen2_5_vl_text": "qwen2_vl", "qwen3_vl_text": "qwen3_vl",
    "qwen3_vl_moe_text": "qwen3_vl_moe", "minimax_text_01": "minimax", "minimaxtext01": "minimax",
    "minimax_m1": "minimax", "minimaxm1": "minimax", "minimax_m3_vl": "minimax_m3", "minimax_m3_vl_text": "minimax_m3",
    "minimaxm3sparse": "minimax_m3", "mimo_v2": "mimo_v2_flash", "mimov2flash": "mimo_v2_flash",
    "flexolmo": "flex_olmo", "seedoss": "seed_oss", "glm4moelite": "glm4_moe_lite",
}  # fmt: skip

_ENCODER = "an encoder beside the decoder"
_MAMBA = "layers of Mamba, which keep a state that no field sizes"
# Families that are known and cannot be described: the part, and why.
UNDESCRIBED = {
    "nemotron_h": "one mixer a layer (Mamba-2, attention or experts), where a layer here is attention and an MLP",
    "nemotron-nas": "heads and MLP widths that differ from layer to layer (block_configs)",
    "deci": "heads and MLP widths that differ from layer to layer (block_configs)",
    "decilm": "heads and MLP widths that differ from layer to layer (block_configs)",
    "jamba": _MAMBA, "bamba": _MAMBA, "zamba": _MAMBA, "zamba2": _MAMBA, "mamba": _MAMBA, "mamba2": _MAMBA,
    "falcon_mamba": _MAMBA, "falcon_h1": _MAMBA, "granitemoehybrid": _MAMBA,
    "kimi_linear": "layers of Kimi delta attention, whose low-rank gates no field sizes",
    "kimi_k3": "experts in a latent space narrower than hidden_size, and layers of Kimi delta attention",
    "deepseek_v4": "compressed attention with a grouped low-rank output, and hyper-connections of residual streams",
    "longcat_flash": "two attentions and MLPs a block beside the experts, some of which compute nothing",
    "ernie4_5_vl_moe": "experts of two kinds, text and vision, with a count and a width for each",
    "step3": "queries of several factors (multi-matrix factorisation attention)",
    "step3_text": "queries of several factors (multi-matrix factorisation attention)",
    "gemma3n": "embeddings for every layer, several residual streams and layers that share keys and values",
    "olmo": "norms without weights",
    "rwkv": "layers of a recurrence instead of attention",
    "recurrent_gemma": "layers of a recurrence instead of attention",
    "lfm2": "layers of short convolutions instead of attention",
    "lfm2_moe": "layers of short convolutions instead of attention",
    "t5": _ENCODER, "bart": _ENCODER, "whisper": _ENCODER,
}  # fmt: skip
