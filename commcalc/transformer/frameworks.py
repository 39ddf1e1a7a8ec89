"""What frameworks refuse, pad or split unevenly: the same model and degree may be legal in one and an error in another.

Read from their source, and for heads and KV heads run: Megatron core 0.20.0, vLLM 0.33.0, SGLang 0.5.23,
transformers 5.24.0, torchtitan.
"""

from collections.abc import Mapping
from typing import NamedTuple

from commcalc.errors import CommcalcError, IllegalDegree
from commcalc.transformer.layout import KvPolicy, LayoutName
from commcalc.transformer.spec import Model, QkNorm
from commcalc.transformer.work import Framework, Parallelism, Recompute, VocabPadding, Workload


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
    # Families whose Q, K and V are split by columns and gathered, so that no head need divide; among them those that
    # fuse Q with K and V, and gate with up, into one linear layer each.
    gathered_attention: frozenset[str] = frozenset()
    fused_projections: frozenset[str] = frozenset()
    # What it has not, and why: training, sequence parallelism, a parallel block, norms over all heads.
    lacks: Mapping[str, str] = {}
    # The sequence is always split too, and each share by this.
    sequence_shares: int = 0
    # Experts are trained with TP only where the sequence is split as well.
    experts_need_sp: bool = False


_COLUMNS = frozenset({"ffn", "expert_ffn", "shared_ffn", "vocab"})

_SERVES = {"train": "serves models and has no backward pass", "sp": "splits no sequence of a dense layer over TP ranks"}

HABITS: dict[Framework, Habits] = {
    # transformer_config.py: KV heads are a multiple or a divisor of TP; vocab_utils.py: padded to 128*tp;
    # moe_layer.py: ValueError for experts in training with TP and without SP; gpt_layer_specs.py: no parallel block,
    # q_layernorm and k_layernorm of each head.
    Framework.MEGATRON: Habits(
        KvPolicy.GATHER,
        VocabPadding.MEGATRON,
        experts_need_sp=True,
        lacks={
            "parallel_block": "core (transformer_layer.py) has no block with parallel attention and MLP",
            "full_width": "core/transformer/attention.py normalises the queries and keys of each head, not of all",
        },
    ),
    # models/llama.py: KV heads copied; vocab_parallel_embedding.py: padded to 64, then it must divide.
    Framework.VLLM: Habits(KvPolicy.REPLICATE, VocabPadding.VLLM, lacks=_SERVES),
    Framework.SGLANG: Habits(KvPolicy.REPLICATE, VocabPadding.SGLANG, lacks=_SERVES),
    # base_model_tp_plan of each configuration: `colwise` splits heads, `colwise_gather_output` leaves them whole. No
    # check at load: the head view of the first forward fails. Columns and rows are dealt out as ceil(n/t).
    Framework.HF: Habits(
        KvPolicy.REFUSE,
        VocabPadding.NONE,
        uneven=_COLUMNS | {"linear_key_heads", "linear_value_heads"},
        without_plan=frozenset(
            {
                "gpt2",
                "gpt_bigcode",
                "bloom",
                "falcon",
                "opt",
                "paper",
                "dbrx",
                "stablelm",
                "mpt",
                "minimax_m3",
                "grok-1",
                "chatglm",  # classes that it does not have
                "qwen3_vl",  # its plan names embed_tokens alone
            }
        ),
        whole_attention=frozenset({"gpt_oss", "deepseek_v3", "kimi_k2"}),
        whole_experts=frozenset({"gpt_oss"}),
        gathered_attention=frozenset({"phi3", "minimax_m2", "olmo2", "olmo3", "olmoe", "flex_olmo", "step3p7"}),
        fused_projections=frozenset({"phi3"}),
        lacks={
            "beside_gathered": "gathers whole projections in families without gates, sinks, biases or other heads",
            "full_width": "gathers queries and keys for norms over all heads in families of its own only",
            "selective": "checkpoints whole layers (gradient_checkpointing_enable)",
            "prediction": "does not run the prediction layers (_keys_to_ignore_on_load_unexpected)",
        },
    ),
    # tensor_parallel_degree must divide n_heads and n_kv_heads; tokens % (tp * 2cp) (parallel_dims.py).
    Framework.TORCHTITAN: Habits(
        KvPolicy.REFUSE,
        VocabPadding.NONE,
        uneven=_COLUMNS,
        sequence_shares=2,
        lacks={"tied_stages": "refuses to tie embedding and head that lie on different pipeline stages"},
    ),
}


def refusals(model: Model, parallel: Parallelism, work: Workload) -> list[CommcalcError]:
    """What the framework that was named does not do at all, each with its own rule."""
    if parallel.framework is None:
        return []
    framework, habits = parallel.framework, HABITS[parallel.framework]
    asked = {
        "train": (work.phase.training, f"workload.phase (--phase {work.phase})", "--phase prefill or --phase decode"),
        "sp": (parallel.layout is LayoutName.MEGATRON_SP, "parallelism.sp (--sp)", "--no-sp"),
        "parallel_block": (model.parallel_block, f"model {model.name}, parallel_block", _ANOTHER),
        "full_width": (
            model.qk_norm is QkNorm.FULL_WIDTH and parallel.tp > 1 and model.family not in habits.gathered_attention,
            f"model {model.name}, qk_norm full_width",
            _ANOTHER,
        ),
        "prediction": (work.predict_layers > 0, "workload.predict_layers (--predict-layers)", "leave it out"),
        "tied_stages": (
            model.tie_word_embeddings and parallel.pp > 1,
            f"model {model.name}, tie_word_embeddings",
            "--pp 1, or --set model.tie_word_embeddings=false",
        ),
        "beside_gathered": (
            model.family in habits.gathered_attention and parallel.tp > 1 and _beyond_plan(model, habits),
            f"model {model.name}, family {model.family}",
            _ANOTHER,
        ),
        "selective": (
            work.phase.training and work.recompute is Recompute.SELECTIVE,
            "workload.recompute (--recompute selective)",
            "--recompute full",
        ),
    }
    found: list[CommcalcError] = []
    for part, (there, where, hint) in asked.items():
        if there and part in habits.lacks:
            found.append(IllegalDegree(f"{framework} {habits.lacks[part]}", where=where, hint=hint))
    return found


def _beyond_plan(model: Model, habits: Habits) -> bool:
    """Whether a model has what no family has whose projections are gathered."""
    other_heads = model.sliding_num_key_value_heads or model.global_head_dim or model.v_head_dim
    biases = model.family in habits.fused_projections and (model.attention_bias or model.mlp_bias)
    return bool(other_heads or biases or model.attention_sinks or model.attention_output_gate)


_ANOTHER = "another --framework, or none: then every layer is split as Megatron splits it"
