"""What frameworks refuse, pad or split unevenly: the same model and degree may be legal in one and an error in another.

Read from their source, and for heads and KV heads run: Megatron core 0.20.0, vLLM 0.33.0, SGLang 0.5.23,
transformers 5.24.0, torchtitan.
"""

from __future__ import annotations

from typing import NamedTuple

from commcalc.transformer.layout import KvPolicy
from commcalc.transformer.work import Framework, VocabPadding


class Habits(NamedTuple):
    """What a framework does where a dimension does not divide."""

    # KV heads fewer than ranks, and the vocabulary before it is split.
    kv: KvPolicy
    vocab_padding: VocabPadding
    # Dimensions that it deals out unevenly instead of refusing.
    uneven: frozenset[str] = frozenset()
    # Families of models that it cannot split at all, and those whose attention or experts stay whole on every rank.
    without_plan: frozenset[str] = frozenset()
    whole_attention: frozenset[str] = frozenset()
    whole_experts: frozenset[str] = frozenset()
    # The sequence is always split too, and each share by this.
    sequence_shares: int = 0
    # Experts are trained with TP only where the sequence is split as well.
    experts_need_sp: bool = False


_COLUMNS = frozenset({"ffn", "expert_ffn", "shared_ffn", "vocab"})

HABITS: dict[Framework, Habits] = {
    # transformer_config.py: KV heads are a multiple or a divisor of TP; vocab_utils.py: padded to 128*tp;
    # moe_layer.py: ValueError for experts in training with TP and without SP.
    Framework.MEGATRON: Habits(KvPolicy.GATHER, VocabPadding.MEGATRON, experts_need_sp=True),
    # models/llama.py: KV heads copied; vocab_parallel_embedding.py: padded to 64, then it must divide.
    Framework.VLLM: Habits(KvPolicy.REPLICATE, VocabPadding.VLLM),
    Framework.SGLANG: Habits(KvPolicy.REPLICATE, VocabPadding.SGLANG),
    # base_model_tp_plan of each configuration: `colwise` splits heads, `colwise_gather_output` leaves them whole. No
    # check at load: the head view of the first forward fails. Columns and rows are dealt out as ceil(n/t).
    Framework.HF: Habits(
        KvPolicy.REFUSE,
        VocabPadding.NONE,
        uneven=_COLUMNS | {"linear_key_heads", "linear_value_heads"},
        without_plan=frozenset({"gpt2", "gpt_bigcode", "bloom", "falcon", "opt", "paper"}),
        whole_attention=frozenset(
            (
                "phi3",
                "minimax_m2",
                "olmo2",
                "olmo3",
                "olmoe",
                "flex_olmo",
                "step3p7",
                "gpt_oss",
                "deepseek_v3",
                "kimi_k2",
            )
        ),
        whole_experts=frozenset({"gpt_oss"}),
    ),
    # tensor_parallel_degree must divide n_heads and n_kv_heads; tokens % (tp * 2cp) (parallel_dims.py).
    Framework.TORCHTITAN: Habits(KvPolicy.REFUSE, VocabPadding.NONE, uneven=_COLUMNS, sequence_shares=2),
}
