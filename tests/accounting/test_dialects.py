"""What each framework issues for each kind of layer: kinds, counts and payloads per layer and microbatch.

Source of every expected row: the programs run on CPU with gloo and their collectives counted (transformers 5.24.0 with
its tp_plan, torch 2.14.1 with the plan of the PyTorch tutorial, 2 layers, b 2, s 8, tp 2); rows of Megatron-LM core
0.20.0, Transformer Engine, torchtitan and vLLM 0.33.0 were read from their code and are marked so.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pytest

from commcalc.accounting.pricing import PricedLedger
from conftest import ask, fields, rows

# As in the measured programs: T = 16 tokens, 8 of them a sequence.
SIZES = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 8,
    "intermediate_size": 96, "vocab_size": 64,
}  # fmt: skip
H, Q, KV, F, T = 64, 64, 32, 96, 16
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MLA = {
    "kv_lora_rank": 24, "q_lora_rank": 40, "qk_nope_head_dim": 6, "qk_rope_head_dim": 2, "v_head_dim": 8,
    "num_key_value_heads": 8,
}  # fmt: skip
LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 10,
    "linear_conv_kernel_dim": 4, "full_attention_interval": 2, "attention_output_gate": True,
}  # fmt: skip
NEOX = {"parallel_block": True, "parallel_norms": 2, "gated_mlp": False, "num_key_value_heads": 8}
AR, AG, RS = "all_reduce", "all_gather", "reduce_scatter"


class Case(NamedTuple):
    """A model by its family and fields, how it is run, and elements of each call of one block by pass."""

    framework: str
    family: str
    fields: dict[str, Any]
    sp: bool
    forward: list[tuple[str, int]]
    backward: list[tuple[str, int]]
    phase: str = "train"
    part: str = "block"


MEASURED = {
    "hf llama: 2 forward, one for each of q, k, v, gate, up backward": Case(
        "hf", "llama", {}, False, 2 * [(AR, T * H)], 5 * [(AR, T * H)]
    ),
    "hf gpt_neox: fused QKV and one fc1": Case("hf", "gpt_neox", NEOX, False, 2 * [(AR, T * H)], 2 * [(AR, T * H)]),
    "hf cohere: a parallel block reduces twice": Case(
        "hf", "cohere", {"parallel_block": True}, False, 2 * [(AR, T * H)], 5 * [(AR, T * H)]
    ),
    "hf mixtral: q, k, v, the experts' input, the routing weights": Case(
        "hf", "mixtral", MOE, False, 2 * [(AR, T * H)], [*4 * [(AR, T * H)], (AR, T * 2)]
    ),
    "hf shared expert: one more forward, two backward": Case(
        "hf", "glm4_moe", MOE | {"shared_expert_intermediate_size": 32}, False,
        3 * [(AR, T * H)], [*6 * [(AR, T * H)], (AR, T * 2)],
    ),
    "hf qwen3: norms of heads are reduced in every backward pass": Case(
        "hf", "qwen3", {"qk_norm": "head_dim"}, False, 2 * [(AR, T * H)], [*5 * [(AR, T * H)], (AR, 8), (AR, 8)]
    ),
    "hf minimax_m2: Q, K and V gathered for a norm over all heads": Case(
        "hf", "minimax_m2", MOE | {"qk_norm": "full_width"}, False,
        [(AG, T * Q), (AG, T * KV), (AG, T * KV), *2 * [(AR, T * H)]],
        [(AG, T * Q), *4 * [(AR, T * H)], (AR, T * 2)],
    ),
    "hf phi3: fused projections gathered": Case(
        "hf", "phi3", {}, False,
        [(AG, T * (Q + 2 * KV)), (AG, T * 2 * F), *2 * [(AR, T * H)]],
        [(AG, T * Q), (AG, T * F), *2 * [(AR, T * H)]],
    ),
    "hf deepseek_v2: latents and the rotary key": Case(
        "hf", "deepseek_v2", MLA, False, 2 * [(AR, T * H)],
        [(AR, T * 40), (AR, T * 24), (AR, T * 2), *2 * [(AR, T * H)]],
    ),
    "hf deepseek_v3: attention whole on every rank": Case(
        "hf", "deepseek_v3", MLA, False, [(AR, T * H)], 2 * [(AR, T * H)]
    ),
    "hf deepseek_v3 with experts: routed and shared each": Case(
        "hf", "deepseek_v3", MLA | MOE | {"shared_expert_intermediate_size": 32}, False,
        2 * [(AR, T * H)], [*3 * [(AR, T * H)], (AR, T * 2)],
    ),
    "hf gpt_oss: nothing but embedding and head": Case("hf", "gpt_oss", MOE, False, [], []),
    "tutorial plan without SP": Case("torchtitan", "llama", {}, False, 2 * [(AR, T * H)], 2 * [(AR, T * H)]),
    "tutorial plan with SP": Case(
        "torchtitan", "llama", {}, True,
        2 * [(AG, T * H), (RS, T * H)], 2 * [(AG, T * H), (RS, T * H)],
    ),
}  # fmt: skip
READ = {
    "hf qwen3_5 linear layers: every projection gathered": Case(
        "hf", "qwen3_5", LINEAR, False,
        [(AG, T * (2 * 12 + 40)), (AG, T * 40), (AG, T * 4), (AG, T * 4), (AG, T * H), (AR, T * H)],
        [*4 * [(AR, T * H)], (AR, T * 40), *2 * [(AR, T * H)]], part="linear",
    ),
    # transformers 5.24.0 configuration_qwen3_next.py: in_proj_qkvz and in_proj_ba.
    "hf qwen3_next linear layers: two projections": Case(
        "hf", "qwen3_next", LINEAR, False,
        [(AG, T * (2 * 12 + 80)), (AG, T * 8), (AG, T * H), (AR, T * H)],
        [*2 * [(AR, T * H)], (AR, T * 40), *2 * [(AR, T * H)]], part="linear",
    ),
    # modeling_llama4.py: hidden_states.repeat(experts, 1) goes into the experts and comes out of them.
    "hf llama4: a row for each pair of a token and an expert": Case(
        "hf", "llama4", MOE | {"shared_expert_intermediate_size": 32}, False,
        [*2 * [(AR, T * H)], (AR, 4 * T * H)], [*5 * [(AR, T * H)], (AR, 4 * T * H)],
    ),
    # configuration_qwen2_moe.py has no shared_expert.
    "hf qwen2_moe: a shared expert that the plan leaves out": Case(
        "hf", "qwen2_moe", MOE | {"shared_expert_intermediate_size": 32}, False,
        2 * [(AR, T * H)], [*4 * [(AR, T * H)], (AR, T * 2)],
    ),
    "hf deepseek_v32: the plan of deepseek_v2": Case(
        "hf", "deepseek_v32", MLA, False, 2 * [(AR, T * H)],
        [(AR, T * 40), (AR, T * 24), (AR, T * 2), *2 * [(AR, T * H)]],
    ),
    "hf glm4_moe: norms of heads that the plan does not name": Case(
        "hf", "glm4_moe", {"qk_norm": "head_dim"}, False, 2 * [(AR, T * H)], 5 * [(AR, T * H)]
    ),
    # experts' biases are a part of each rank's sum, so that one reduction carries both.
    "torchtitan experts with biases": Case(
        "torchtitan", "gpt_oss", MOE | {"expert_bias": True, "router_bias": True}, True,
        2 * [(AG, T * H), (RS, T * H)], 2 * [(AG, T * H), (RS, T * H)],
    ),
    "megatron with SP": Case(
        "megatron", "llama", {}, True, 2 * [(AG, T * H), (RS, T * H)], [*4 * [(AG, T * H)], *2 * [(RS, T * H)]]
    ),
    "megatron latent attention with SP": Case(
        "megatron", "deepseek_v3", MLA, True,
        [(AG, T * 40), (AG, T * 24), (AG, T * 2), (RS, T * H), (AG, T * H), (RS, T * H)],
        [(RS, T * 40), (RS, T * 24), (RS, T * 2), (AG, T * H), (AG, T * 40), (AG, T * 24),
         *2 * [(AG, T * H)], (RS, T * H)],
    ),
    "megatron latent attention without a latent of queries": Case(
        "megatron", "deepseek_v2", MLA | {"q_lora_rank": 0}, True,
        [(AG, T * H), (AG, T * 24), (AG, T * 2), (RS, T * H), (AG, T * H), (RS, T * H)],
        [(RS, T * H), (RS, T * 24), (RS, T * 2), (AG, T * H), (AG, T * H), (AG, T * 24),
         *2 * [(AG, T * H)], (RS, T * H)],
    ),
    "torchtitan latent attention with SP": Case(
        "torchtitan", "deepseek_v3", MLA, True, 2 * [(AG, T * H), (RS, T * H)],
        [(AR, T * 40), (AR, T * 24), (AR, T * 2), *2 * [(AG, T * H)], (RS, T * H)],
    ),
    "megatron shared expert beside the routed ones": Case(
        "megatron", "qwen2_moe", MOE | {"shared_expert_intermediate_size": 32}, True,
        [(AG, T * 4), (AG, T * 4), *3 * [(AG, T * H), (RS, T * H)]],
        # QKV and the shared expert's input are gathered again, what the experts got is kept.
        [(RS, T * 4), *3 * [(AG, T * H), (RS, T * H)], *2 * [(AG, T * H)]],
    ),
    "vllm experts: the shared one added before the one reduction": Case(
        "vllm", "qwen2_moe", MOE | {"shared_expert_intermediate_size": 32}, False, 2 * [(AR, T * H)], [], "prefill"
    ),
    "vllm latent attention": Case("vllm", "deepseek_v3", MLA, False, 2 * [(AR, T * H)], [], "prefill"),
    "vllm falcon: a parallel block reduces once": Case(
        "vllm", "falcon", {"parallel_block": True}, False, [(AR, T * H)], [], "prefill"
    ),
    "vllm gptj: a parallel block reduces twice": Case(
        "vllm", "gptj", {"parallel_block": True}, False, 2 * [(AR, T * H)], [], "prefill"
    ),
    "vllm norm over all heads: both sums of squares in one call": Case(
        "vllm", "minimax_m2", MOE | {"qk_norm": "full_width"}, False,
        [(AR, T * 2), *2 * [(AR, T * H)]], [], "prefill",
    ),
    "vllm phi3: nothing more than any other": Case("vllm", "phi3", {}, False, 2 * [(AR, T * H)], [], "prefill"),
    "vllm linear layers: split by heads": Case(
        "vllm", "qwen3_next", LINEAR, False, 2 * [(AR, T * H)], [], "prefill", "linear"
    ),
}  # fmt: skip


def found(case: Case, direction: str) -> Counter[tuple[str, int]]:
    """Calls of one block by kind and elements, whatever their type."""
    priced = ask(
        fields(**SIZES | case.fields | {"family": case.family}),
        parallelism__framework=case.framework,
        parallelism__tp=2,
        parallelism__sp=case.sp,
        workload__sequence_length=8,
        workload__micro_batch_size=2,
        workload__phase=case.phase,
    )
    met: Counter[tuple[str, int]] = Counter()
    for row in rows(priced, part=case.part, direction=direction):
        met[row.kind.value, row.payload_bytes * 8 // row.dtype.bits] += row.calls
    return met


@pytest.mark.parametrize("case", [*MEASURED.values(), *READ.values()], ids=[*MEASURED, *READ])
def test_issues_what_the_framework_issues(case: Case) -> None:
    assert found(case, "forward") == Counter(case.forward)
    assert found(case, "backward") == Counter(case.backward)


def calls(priced: PricedLedger, **wanted: object) -> Counter[tuple[str, int]]:
    """Calls by kind and elements."""
    met: Counter[tuple[str, int]] = Counter()
    for row in rows(priced, **wanted):
        met[row.kind.value, row.payload_bytes * 8 // row.dtype.bits] += row.calls
    return met


def llama(framework: str, *, sp: bool = False, **values: object) -> PricedLedger:
    asked: dict[str, object] = {"parallelism__tp": 2, "workload__sequence_length": 8, "workload__micro_batch_size": 2}
    sizes = SIZES | {"family": "llama"}
    return ask(fields(**sizes), parallelism__framework=framework, parallelism__sp=sp, **asked | values)


@pytest.mark.parametrize(
    ("framework", "sp", "repeated"),
    [
        # transformers checkpoints with torch.utils.checkpoint and its early stop: measured 1 AR instead of 2.
        ("hf", False, [(AR, T * H)]),
        ("hf", True, [*5 * [(AG, T * H)], (RS, T * H)]),
        # Without the early stop (torchtitan): measured 2 AR, and 2 AG + 2 RS.
        ("torchtitan", False, 2 * [(AR, T * H)]),
        ("torchtitan", True, 2 * [(AG, T * H), (RS, T * H)]),
        # Megatron-LM core/tensor_parallel/random.py runs the whole layer again, read.
        ("megatron", False, 2 * [(AR, T * H)]),
        ("megatron", True, 2 * [(AG, T * H), (RS, T * H)]),
    ],
)
def test_full_recomputation_repeats(framework: str, sp: bool, repeated: list[tuple[str, int]]) -> None:
    priced = llama(framework, sp=sp, workload__recompute="full")
    assert calls(priced, part="block", direction="recompute") == Counter(repeated)
    assert not rows(priced, part="head", direction="recompute")
    # The weight gradients' own gathers stay (read): 4 of Megatron's with SP.
    gathers = [row for row in rows(priced, part="block", direction="backward") if row.kind.value == AG]
    assert len(gathers) == {"megatron": 4, "torchtitan": 2, "hf": 2}[framework] * sp


@pytest.mark.parametrize(
    ("modules", "repeated"),
    [
        ("core_attn,layernorm,moe_act", []),
        ("mla_up_proj", [(AG, T * 40), (AG, T * 24)]),
        ("shared_experts", [(AG, T * H), (RS, T * H)]),
        ("moe", [(AG, T * 4), (AG, T * 4), *2 * [(AG, T * H), (RS, T * H)]]),
        ("mlp", []),
    ],
)
def test_selective_recomputation_repeats_what_its_modules_move(modules: str, repeated: list[tuple[str, int]]) -> None:
    """Source: Megatron-LM core/transformer/transformer_config.py, recompute_modules (read)."""
    model = SIZES | MLA | MOE | {"shared_expert_intermediate_size": 32}
    priced = ask(
        fields(**model), parallelism__tp=2, parallelism__sp=True, parallelism__framework="megatron",
        workload__sequence_length=8, workload__micro_batch_size=2, workload__recompute="selective",
        workload__recompute_modules=modules,
    )  # fmt: skip
    assert calls(priced, part="block", direction="recompute") == Counter(repeated)


def test_torchtitans_selective_recomputation_gathers_again() -> None:
    """Read: its policy saves what a ReduceScatter made, not what an AllGather did."""
    priced = llama("torchtitan", sp=True, workload__recompute="selective")
    assert calls(priced, part="block", direction="recompute") == Counter(2 * [(AG, T * H)])


@pytest.mark.parametrize(
    ("framework", "sp", "forward", "backward"),
    [
        # Measured: HF gathers padded logits, the loss is local; the gradient of the logits is split locally.
        ("hf", False, [(AG, T * 64)], [(AR, T * H)]),
        # Measured: loss_parallel reduces MAX, SUM and SUM of T in fp32; with SP a ReduceScatter and no re-gather.
        ("torchtitan", False, 3 * [(AR, T)], [(AR, T * H)]),
        ("torchtitan", True, [(AG, T * H), *3 * [(AR, T)]], [(RS, T * H)]),
        ("megatron", True, [(AG, T * H), *3 * [(AR, T)]], [(RS, T * H), (AG, T * H)]),
    ],
)
def test_head_and_loss(
    framework: str, sp: bool, forward: list[tuple[str, int]], backward: list[tuple[str, int]]
) -> None:
    priced = llama(framework, sp=sp, parallelism__vocab_padding="none")
    assert calls(priced, part="head", direction="forward") == Counter(forward)
    assert calls(priced, part="head", direction="backward") == Counter(backward)


@pytest.mark.parametrize(("tp", "columns"), [(2, 66), (4, 68)])
def test_transformers_pads_the_gather_of_an_uneven_vocabulary(tp: int, columns: int) -> None:
    """Measured: of 65 rows shards of 33 (2 ranks) and of 17 (4 ranks)."""
    priced = llama("hf", parallelism__tp=tp, model__vocab_size=65)
    assert calls(priced, part="head", direction="forward") == Counter({(AG, T * columns): 1})


def test_embedding_is_reduced_whole_or_scattered() -> None:
    """Measured: 1 AR of T*h in transformers; RS and AG back in the tutorial's plan with SP."""
    assert calls(llama("hf"), part="embedding") == Counter({(AR, T * H): 1})
    assert calls(llama("torchtitan", sp=True), part="embedding") == Counter({(RS, T * H): 1, (AG, T * H): 1})


@pytest.mark.parametrize(
    ("framework", "elements"), [("vllm", 2 * 64), ("sglang", 2 * 64), ("megatron", 2 * 256), ("hf", T * 64)]
)
def test_logits_of_sampled_positions_or_of_all(framework: str, elements: int) -> None:
    """Read: vLLM gathers one position for each sequence, transformers (measured) all of them."""
    priced = llama(framework, workload__phase="prefill")
    assert calls(priced, part="head", direction="forward") == Counter({(AG, elements): 1})


def test_the_once_per_step_sync_of_deepseek_v3() -> None:
    """Read: 61*7168*2112 elements for the down projections alone, in fp32 main gradients, under SP."""
    priced = ask("deepseek-v3", parallelism__tp=8, parallelism__sp=True, parallelism__framework="megatron")
    (sync,) = rows(priced, direction="update")
    down = 61 * 7168 * 2112
    router, norms = 58 * 7168 * 256, (2 * 61 + 1) * 7168 + 61 * (1536 + 512)
    assert down == 923_467_776
    assert sync.payload_bytes == 4 * (down + router + norms)


def test_what_deepseek_v3_gathers_before_attention() -> None:
    """2,112 elements a token in Megatron (latents and rotary key), 7,168 in torchtitan (the whole input)."""
    for framework, elements in (("megatron", 2112), ("torchtitan", 7168)):
        priced = ask(
            "deepseek-v3", parallelism__tp=8, parallelism__sp=True, parallelism__framework=framework,
            workload__sequence_length=4096,
        )  # fmt: skip
        for part in ("dense", "moe"):
            met = rows(priced, part=part, direction="forward", sublayer="attention")
            gathered = [row.payload_bytes for row in met if row.kind.value == AG]
            assert sum(gathered) == 4096 * elements * 2


@pytest.mark.parametrize(
    ("framework", "layers"),
    [("vllm", [15, 15, 16, 15]), ("sglang", [15, 15, 15, 16]), ("hf", [16, 15, 15, 15]), (None, [16, 15, 15, 15])],
)
def test_layers_that_do_not_divide_over_the_stages(framework: str | None, layers: list[int]) -> None:
    """Read: vLLM distributed/utils.py get_pp_indices, SGLang the last, transformers the first stages."""
    named = {} if framework is None else {"parallelism__framework": framework}
    priced = ask("deepseek-v3", parallelism__tp=8, parallelism__pp=4, workload__phase="prefill", **named)
    assert [stage.layers for stage in priced.ledger.stages] == layers


def test_the_busiest_stage_counts_what_it_syncs_once() -> None:
    """With one microbatch stage 0 of DeepSeek-V3 sends more: 3 dense and 13 MoE blocks, embedding, and its sync."""
    priced = ask(
        "deepseek-v3", parallelism__tp=8, parallelism__sp=True, parallelism__pp=4, workload__sequence_length=4096
    )
    update = 7 * 4 * (16 * 7168 * 2112 + 13 * 7168 * 256 + 32 * 7168 + 16 * 2048) // 4
    assert priced.ledger.stage.number == 0
    assert priced.totals["step"]["tp"].wire_bytes == 3 * 404_619_264 + 13 * 614_727_680 + 2 * 51_380_224 + update


def test_a_routing_weight_of_transformers_keeps_fp32_where_its_router_does_not_cast_it_back() -> None:
    for family, dtype in (("mixtral", "fp32"), ("qwen3_moe", "bf16")):
        priced = ask(fields(**SIZES | MOE | {"family": family}), parallelism__framework="hf", parallelism__tp=2)
        (row,) = [row for row in rows(priced, direction="backward") if row.tensor.startswith("drouting")]
        assert row.dtype == dtype
