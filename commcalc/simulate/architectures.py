"""Which models are run: every choice of an architecture that changes what it communicates, and of a framework."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from commcalc.transformer.layout import LayoutName
from commcalc.transformer.spec import LinearAttention, Model, Norm, NormPlacement, Positions, QkNorm
from commcalc.transformer.work import Framework

_BIASED = Model(gated_mlp=False, norm=Norm.LAYERNORM, attention_bias=True, attention_output_bias=True, mlp_bias=True)
# Numbers above 0 say that there is such a thing; `small.sized` makes its size.
_EXPERTS = Model(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=1)
_LATENTS = _EXPERTS._replace(
    q_lora_rank=1, kv_lora_rank=1, qk_nope_head_dim=1, qk_rope_head_dim=1, v_head_dim=1, first_k_dense_replace=1,
    shared_expert_intermediate_size=1,
)  # fmt: skip
# Heads of linear attention are as many as eight devices split, or a multiple for more of them (`cases`).
_LINEAR = Model(
    linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=1, linear_value_head_dim=1,
    linear_conv_kernel_dim=1, full_attention_interval=2,
)  # fmt: skip
_GPT_OSS = _EXPERTS._replace(
    attention_bias=True, attention_output_bias=True, router_bias=True, expert_bias=True, attention_sinks=True,
    sliding_window=1, full_attention_interval=2,
)  # fmt: skip
_GEMMA_4 = _EXPERTS._replace(
    norm_placement=NormPlacement.SANDWICH, qk_norm=QkNorm.HEAD_DIM, tie_word_embeddings=True, router_scales=True,
    dense_mlp_beside_moe=True, sliding_window=1, full_attention_interval=2, global_head_dim=1,
    global_num_key_value_heads=1, global_keys_are_values=True,
)  # fmt: skip
_LIGHTNING = _LINEAR._replace(
    linear_attention=LinearAttention.LIGHTNING, linear_num_value_heads=1, linear_conv_kernel_dim=0
)
_QWEN_NEXT = _LINEAR._replace(
    num_experts=8, num_experts_per_tok=2, moe_intermediate_size=1, shared_expert_intermediate_size=1,
    shared_expert_gate=True, attention_output_gate=True, qk_norm=QkNorm.HEAD_DIM,
)  # fmt: skip


class Spoken(NamedTuple):
    """A model as a framework runs it: how its KV heads are shared, and on which layout it is run."""

    framework: Framework
    heads: str
    model: Model
    layout: LayoutName = LayoutName.MEGATRON


def architectures(everything: bool) -> dict[str, Model]:
    """Models without sizes, by name: the names say how KV heads are shared, and what the blocks are made of."""
    found = {
        "gqa gated sequential": Model(),
        "mha plain, biases, learned positions": _BIASED._replace(
            position_embedding=Positions.LEARNED, tie_word_embeddings=True
        ),
        "mqa plain parallel, biases": _BIASED._replace(parallel_block=True),
        "gqa gated, sandwich and head norms": Model(
            norm_placement=NormPlacement.SANDWICH, qk_norm=QkNorm.HEAD_DIM, tie_word_embeddings=True
        ),
        "gqa experts and a shared one behind a dense layer": _EXPERTS._replace(
            first_k_dense_replace=1, shared_expert_intermediate_size=1, shared_expert_gate=True
        ),
        "mha latents, experts": _LATENTS,
        "pairs delta rule and gated attention": _LINEAR._replace(
            attention_output_gate=True, qk_norm=QkNorm.HEAD_DIM
        ),
        "gqa sinks, experts with biases": _GPT_OSS,
        "gqa norms over all heads": Model(qk_norm=QkNorm.FULL_WIDTH),
        "pairs experts beside an MLP, other heads by layer": _GEMMA_4,
    }  # fmt: skip
    return found | _more() if everything else found


def _more() -> dict[str, Model]:
    found = {}
    for heads, gated, parallel in product(("mha", "gqa", "mqa"), (True, False), (False, True)):
        name = f"{heads} {'gated' if gated else 'plain'} {'parallel' if parallel else 'sequential'}"
        found[name] = Model(gated_mlp=gated, parallel_block=parallel)
    return found | {
        "gqa gated parallel, two norms, biases": _BIASED._replace(
            gated_mlp=True, norm=Norm.RMSNORM, parallel_block=True, parallel_norms=2
        ),
        "mha gated, norms after, norms of each head": Model(
            norm_placement=NormPlacement.POST, qk_norm=QkNorm.PER_HEAD, norm=Norm.LAYERNORM, lm_head_bias=True
        ),
        "mha plain, biases, embedding norm": _BIASED._replace(embedding_norm=True),
        "mha plain, positions behind two rows": Model(
            gated_mlp=False, position_embedding=Positions.LEARNED, extra_position_rows=2, norm=Norm.LAYERNORM_NO_BIAS
        ),
        "mha lightning, experts": _LIGHTNING._replace(
            num_experts=8, num_experts_per_tok=2, moe_intermediate_size=1
        ),
        "gqa delta rule, experts and a gated shared one": _QWEN_NEXT,
        "pairs sinks in sliding layers, narrow values": _EXPERTS._replace(
            v_head_dim=1, sliding_window=1, full_attention_interval=2, sliding_num_key_value_heads=1,
            attention_sinks=True, sinks_in_sliding_only=True, first_k_dense_replace=1,
        ),
        "mha latents of keys alone": Model(
            kv_lora_rank=1, qk_nope_head_dim=1, qk_rope_head_dim=1, v_head_dim=1
        ),
        "gqa one expert of a token, every other layer": _EXPERTS._replace(
            num_experts_per_tok=1, interleave_moe_layer_step=2, shared_expert_intermediate_size=1
        ),
        "mqa plain experts, norms without weights": _EXPERTS._replace(
            gated_mlp=False, norm=Norm.LAYERNORM, qk_norm=QkNorm.NO_WEIGHT, expert_bias=True,
            shared_expert_intermediate_size=1,
        ),
        "mha two experts, both chosen": Model(num_experts=2, num_experts_per_tok=2, moe_intermediate_size=1),
        "mha norms over all heads, after": Model(qk_norm=QkNorm.FULL_WIDTH, norm_placement=NormPlacement.POST),
        "gqa windows by list": Model(layer_types=("full_attention", "sliding_attention"), attention_sinks=True,
                                     sinks_in_sliding_only=True),
    }  # fmt: skip


def spoken() -> dict[str, Spoken]:
    """The models that frameworks run each in its own way, by name."""
    hf, vllm, split = Framework.HF, Framework.VLLM, LayoutName.MEGATRON_SP
    fused = Model(family="phi3")
    return {
        "megatron: experts": Spoken(
            Framework.MEGATRON, "gqa", _EXPERTS._replace(shared_expert_intermediate_size=1), split
        ),
        "torchtitan: llama": Spoken(Framework.TORCHTITAN, "pairs", Model(), split),
        "torchtitan: latents, experts": Spoken(Framework.TORCHTITAN, "mha", _LATENTS, split),
        "torchtitan: gpt_oss": Spoken(Framework.TORCHTITAN, "pairs", _GPT_OSS, split),
        "hf: llama": Spoken(hf, "pairs", Model(family="llama")),
        "hf: qwen3, norms of heads": Spoken(hf, "pairs", Model(family="qwen3", qk_norm=QkNorm.HEAD_DIM)),
        "hf: gpt_neox, fused by heads": Spoken(
            hf, "mha", _BIASED._replace(family="gpt_neox", parallel_block=True, parallel_norms=2)
        ),
        "hf: phi3, fused and gathered": Spoken(hf, "pairs", fused),
        "hf: minimax_m2, heads gathered": Spoken(
            hf, "pairs", _EXPERTS._replace(family="minimax_m2", qk_norm=QkNorm.FULL_WIDTH)
        ),
        "hf: mixtral": Spoken(hf, "pairs", _EXPERTS._replace(family="mixtral")),
        "hf: gpt_oss, all whole": Spoken(hf, "pairs", _GPT_OSS._replace(family="gpt_oss")),
        "hf: deepseek_v2": Spoken(hf, "mha", _LATENTS._replace(family="deepseek_v2")),
        "hf: deepseek_v3, attention whole": Spoken(hf, "mha", _LATENTS._replace(family="deepseek_v3")),
        "hf: qwen3_next, gathered": Spoken(hf, "pairs", _QWEN_NEXT._replace(family="qwen3_next")),
        "hf: qwen3_5, gathered in four": Spoken(
            hf, "pairs", _LINEAR._replace(family="qwen3_5", attention_output_gate=True, qk_norm=QkNorm.HEAD_DIM)
        ),
        "hf: llama4, every expert": Spoken(
            hf, "pairs", _EXPERTS._replace(family="llama4", num_experts_per_tok=1, shared_expert_intermediate_size=1)
        ),
        "hf: gemma, sandwich": Spoken(
            hf, "pairs", Model(family="gemma2", norm_placement=NormPlacement.SANDWICH, tie_word_embeddings=True)
        ),
        "vllm: llama": Spoken(vllm, "gqa", Model(family="llama")),
        "vllm: gptj, reduced twice": Spoken(vllm, "mha", _BIASED._replace(family="gptj", parallel_block=True)),
        "vllm: minimax_m2": Spoken(vllm, "gqa", _EXPERTS._replace(family="minimax_m2", qk_norm=QkNorm.FULL_WIDTH)),
        "vllm: deepseek_v3": Spoken(vllm, "mha", _LATENTS._replace(family="deepseek_v3")),
        "vllm: qwen3_next": Spoken(vllm, "gqa", _QWEN_NEXT._replace(family="qwen3_next")),
        "sglang: mixtral": Spoken(Framework.SGLANG, "gqa", _EXPERTS._replace(family="mixtral")),
        "sglang: gpt_oss": Spoken(Framework.SGLANG, "gqa", _GPT_OSS._replace(family="gpt_oss")),
    }
