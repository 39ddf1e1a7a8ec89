"""What fits: parameters, optimizer, activations, cache and buffers of a device, against published values.

Sources: tests/data/goldens_memory.yaml; Korthikanti et al. 2022, arXiv:2205.05198, tables 2 and 3, figures 1 and 7 (the
figures' values as tabulated in calculon llm/validation.py); Rajbhandari et al. 2019, arXiv:1910.02054, figure 1 and
table 1; Megatron-LM docs, dist_optimizer; DeepSeek-V3, arXiv:2412.19437, table 2.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from commcalc.accounting.memory import Memory, in_flight
from commcalc.errors import IllegalDegree
from commcalc.transformer.work import Parallelism, Schedule
from conftest import DATA, Inside, ask, fields, look, memory

GOLDENS = {case["id"]: case for case in yaml.safe_load((DATA / "goldens_memory.yaml").read_text())["cases"]}
GIB = 2**30

# Korthikanti et al., table 3: hidden size, heads, layers, stages, chunks, micro-batch, global batch.
SHAPES = {
    "22B": (6144, 64, 48, 1, 1, 4, 4),
    "175B": (12288, 96, 96, 8, 3, 1, 64),
    "530B": (20480, 128, 105, 35, 3, 1, 280),
    "1T": (25600, 160, 128, 64, 1, 1, 512),
}


def golden(ident: str) -> dict[str, Any]:
    return {value["name"]: value["recomputed"] for value in GOLDENS[ident]["expected"]}


def gpt(hidden: int, heads: int, layers: int, **more: object) -> str:
    """A decoder of the years of GPT-3: plain MLP of four times the width, layer norms, learned positions."""
    return fields(
        name="gpt", hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=heads,
        head_dim=hidden // heads, intermediate_size=4 * hidden, num_hidden_layers=layers, vocab_size=51200,
        max_position_embeddings=2048, gated_mlp=False, norm="layernorm", position_embedding="learned",
        tie_word_embeddings=True, **more,
    )  # fmt: skip


def of_2022(name: str, **more: object) -> Memory:
    """The run of table 3: scores kept, dropout, TP 8."""
    hidden, heads, layers, stages, chunks, micro, batch = SHAPES[name]
    asked: dict[str, object] = {
        "workload__sequence_length": 2048, "workload__micro_batch_size": micro, "workload__global_batch_size": batch,
        "workload__attention": "unfused", "workload__dropout": True, "parallelism__tp": 8, "parallelism__pp": stages,
    }  # fmt: skip
    if chunks > 1:
        asked |= {"parallelism__schedule": "interleaved", "parallelism__virtual_stages": chunks}
    return memory(gpt(hidden, heads, layers), **(asked | more))


def block(**more: object) -> float:
    """Bytes that a block of GPT-3 keeps of a microbatch, over s*b*h."""
    asked: dict[str, object] = {
        "workload__sequence_length": 2048, "workload__attention": "unfused", "workload__dropout": True,
    }  # fmt: skip
    return memory(gpt(12288, 96, 1), **(asked | more)).block_activations / (2048 * 12288)


# Activations of a block


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("none", {}),
        ("tp", {"parallelism__tp": 8}),
        ("tp_sp", {"parallelism__tp": 8, "parallelism__sp": True}),
        ("tp_sel", {"parallelism__tp": 8, "workload__recompute": "selective"}),
        ("tp_sp_sel", {"parallelism__tp": 8, "parallelism__sp": True, "workload__recompute": "selective"}),
        ("full", {"parallelism__tp": 8, "workload__recompute": "full"}),
    ],
)
def test_six_configurations_of_korthikanti(name: str, asked: dict[str, object]) -> None:
    assert block(**asked) == golden("ACT-02")[name]


def test_the_parts_of_a_block() -> None:
    found = memory(
        gpt(12288, 96, 1), workload__sequence_length=2048, workload__attention="unfused", workload__dropout=True
    )
    sbh, expected = 2048 * 12288, golden("ACT-01")
    parts = [(name, size / sbh) for name, size in found.tensors]
    of = {name: sum(size for one, size in parts if one in names) for name, names in {
        "attention": ("A", "Q", "K", "V", "O", "softmax", "softmax_mask", "softmax_dropped"),
        "mlp": ("M", "U", "Z"), "layernorm": ("X", "R"), "attn_core": ("softmax", "softmax_mask", "softmax_dropped"),
    }.items()}  # fmt: skip
    # A mask of dropout follows attention, and one the MLP.
    assert (of["attention"] + 1, of["mlp"] + 1) == (expected["attention"], expected["mlp"])
    assert (of["layernorm"], of["attn_core"]) == (expected["layernorm"], expected["attn_core"])
    assert found.block_activations == expected["bytes"]


def test_what_selective_recomputation_saves() -> None:
    expected = golden("ACT-03")
    for name, hidden, heads in (("gpt3", 12288, 96), ("mtnlg", 20480, 128)):
        asked = {"workload__sequence_length": 2048, "workload__attention": "unfused", "workload__dropout": True}
        whole = memory(gpt(hidden, heads, 1), **asked).block_activations
        less = memory(gpt(hidden, heads, 1), **asked, workload__recompute="selective").block_activations
        assert 100 * (whole - less) / whole == pytest.approx(expected[f"{name}_saved"], rel=1e-12)


@pytest.mark.parametrize(("name", "ident"), [("22B", "ACT-04"), ("175B", "ACT-05"), ("530B", "ACT-06")])
def test_activations_of_the_first_stage(name: str, ident: str) -> None:
    expected = golden(ident)
    plain = of_2022(name)
    split = of_2022(name, parallelism__sp=True, workload__recompute="selective")
    assert plain.block_activations * plain.in_flight / GIB == pytest.approx(expected["tp_only"], rel=1e-12)
    assert split.block_activations * split.in_flight / GIB == pytest.approx(expected["sp_selective"], rel=1e-12)


def test_activations_of_a_trillion_parameters() -> None:
    """Figure 1 of Korthikanti et al.: 131.25 and 26.5625 GiB."""
    plain, split = of_2022("1T"), of_2022("1T", parallelism__sp=True, workload__recompute="selective")
    assert plain.block_activations * plain.in_flight / GIB == 131.25
    assert split.block_activations * split.in_flight / GIB == 26.5625


# Figure 7, read from a plot: percent of what TP alone keeps.
PERCENT = {
    "22B": {"seq": 66.84, "sel": 49.42, "seqsel": 16.18, "full": 7.64},
    "175B": {"seq": 62.04, "sel": 56.53, "seqsel": 18.49, "full": 8.71},
    "530B": {"seq": 58.31, "sel": 62.04, "seqsel": 20.27, "full": 9.42},
}


@pytest.mark.parametrize("name", PERCENT)
def test_percent_of_what_tp_alone_keeps(name: str) -> None:
    whole = of_2022(name).block_activations
    ways = {
        "seq": {"parallelism__sp": True},
        "sel": {"workload__recompute": "selective"},
        "seqsel": {"parallelism__sp": True, "workload__recompute": "selective"},
        "full": {"workload__recompute": "full"},
    }
    for way, asked in ways.items():
        found = 100 * of_2022(name, **asked).block_activations / whole
        assert found == pytest.approx(PERCENT[name][way], abs=0.15), way


def test_flash_attention_keeps_no_scores() -> None:
    """34 less the masks: what a fused kernel without dropout leaves of table 2."""
    assert block(workload__attention="flash", workload__dropout=False) == 32
    assert block(workload__attention="flash", workload__dropout=False, parallelism__tp=8) == 8 + 24 / 8


def test_without_regather_the_gathered_inputs_are_kept() -> None:
    """Two inputs of 2sbh are kept whole instead of in eighths."""
    asked: dict[str, object] = {"parallelism__tp": 8, "parallelism__sp": True, "workload__recompute": "selective"}
    assert block(**asked, workload__regather=False) - block(**asked) == 4 - 4 / 8


def test_a_gated_mlp_and_grouped_heads() -> None:
    """Llama-3-8B by hand: s*b of X, A, R, M (4096), Q, O (4096), K, V (1024) and gate, up, product (14336), in bf16."""
    found = memory("llama-3-8b", workload__sequence_length=8192)
    assert found.block_activations == 8192 * 2 * (4 * 4096 + 2 * 4096 + 2 * 1024 + 3 * 14336)


def test_full_recomputation_holds_one_layer_whole_while_it_runs() -> None:
    asked = {"workload__sequence_length": 8192, "workload__recompute": "full"}
    found, whole = memory("llama-3-8b", **asked), memory("llama-3-8b", workload__sequence_length=8192)
    assert found.block_activations == 8192 * 4096 * 2
    assert found.working == whole.block_activations - found.block_activations
    every_four = memory("llama-3-8b", **asked, workload__recompute_layers=4)
    assert every_four.working == 4 * whole.block_activations - found.block_activations
    kept = found.activations - found.working
    # Embedding and head keep the same in both.
    assert kept - (every_four.activations - every_four.working) == 24 * found.block_activations


def test_how_often_to_checkpoint() -> None:
    """PP-04: memory is least with sqrt(l * A_int / A_in) checkpoints; here 16 layers whose insides are 16 times."""
    model = gpt(1024, 8, 16)
    asked = {"workload__sequence_length": 1024, "workload__recompute": "full"}
    ratio = memory(model, workload__sequence_length=1024).block_activations / (1024 * 1024 * 2)
    assert ratio == 16
    sizes = {16 // n: memory(model, **asked, workload__recompute_layers=n).activations for n in (1, 2, 4, 8, 16)}
    assert min(sizes, key=sizes.__getitem__) == math.sqrt(16 * ratio)
    # The numbers of the question: 16 layers, four times; by the same formula with 1/4 of the layers.
    assert golden("PP-04")["c"] == math.sqrt(16 * 4.0) == 8


@pytest.mark.parametrize(
    ("model", "modules", "gone"),
    [
        # A norm before a dense linear layer is one kernel with it: nothing to give up; with an MLP it runs again.
        ("llama-3-8b", "layernorm", ""),
        ("llama-3-8b", "mlp", "M G U Z"),
        ("llama-3-8b", "core_attn", ""),
        ("mixtral-8x7b", "layernorm", "M"),
        ("mixtral-8x7b", "moe_act", "Ze"),
        ("deepseek-v3", "layernorm", "A M"),
        # Up-projections of latents run again with the latents' norms, and join the rotary key.
        ("deepseek-v3", "mla_up_proj", "Q K V Cqn Ckvn"),
        ("deepseek-v3", "moe_act", "Ze"),
    ],
)
def test_modules_that_run_again(model: str, modules: str, gone: str) -> None:
    """Megatron-LM's ``--recompute-modules`` under its Transformer Engine spec, gpt_layer_specs.py."""
    whole = dict(memory(model).tensors)
    asked = {"workload__recompute": "selective", "workload__recompute_modules": modules}
    found = memory(model, **asked)
    less = dict(found.tensors)
    assert whole.keys() - less.keys() == set(gone.split())
    # What is made again is there while its layer is differentiated.
    assert found.working == sum(whole.values()) - sum(less.values())


def test_what_a_mixture_keeps() -> None:
    """Megatron-LM's grouped experts: rows by choice, gate and up, and their weighed product; not what comes of it.

    Mixtral, 4096 tokens, two choices each: X, A, R, M, Q, O of 4096; K, V of 1024; rows of 4096 and 3 x 14336 a choice.
    """
    tokens = 4096
    kept = tokens * 2 * (6 * 4096 + 2 * 1024 + 2 * (4096 + 3 * 14336))
    found = memory("mixtral-8x7b")
    router = sum(size for name, size in found.tensors if name in ("scores", "chosen", "routing"))
    assert found.block_activations == kept + router
    # On ranks of their own: the same rows, sent; how much each counts goes along.
    spread = memory("mixtral-8x7b", parallelism__dp=8, parallelism__ep=8)
    with_them = sum(size for name, size in spread.tensors if name in ("scores", "chosen", "routing", "Re"))
    assert spread.block_activations == kept + with_them


def test_keys_of_latent_attention_hold_their_rotary_part() -> None:
    """DeepSeek-V3: keys of 128 heads of 128 + 64, joined before attention (multi_latent_attention.py)."""
    found = dict(memory("deepseek-v3", parallelism__tp=4).tensors)
    assert found["K"] == found["Q"] == 4096 * 32 * 192 * 2
    assert "Kr" not in found


def test_the_embedding_keeps_its_mask_of_dropout() -> None:
    """Korthikanti et al., section 4.3: sbhp/t beside the layers, of as many microbatches as are under way."""
    without, with_ = (
        of_2022("1T", parallelism__sp=True, workload__recompute="selective", workload__dropout=dropout)
        for dropout in (False, True)
    )
    masks = with_.activations - with_.working - (without.activations - without.working)
    of_layers = with_.in_flight * 2 * 2048 * 25600 // 8
    assert masks - of_layers == 64 * 2048 * 25600 // 8


# Microbatches under way


def test_layers_in_flight() -> None:
    one = Parallelism(pp=8)
    assert [in_flight(one, 64, stage) for stage in range(8)] == [(8 - stage,) for stage in range(8)]
    assert in_flight(one, 3, 0) == (3,)
    chunks = Parallelism(pp=8, virtual_stages=3, schedule=Schedule.INTERLEAVED)
    # Korthikanti et al., section 4.2.3: p*v + p - 1 chunks on the first stage.
    assert sum(in_flight(chunks, 64, 0)) == 3 * 8 + 7
    assert sum(in_flight(chunks, 64, 7)) == 2 * 8 + 1


def test_dualpipe_holds_one_more_and_parameters_twice() -> None:
    expected = {value["name"]: value["recomputed"] for value in _groups("PP-05")}
    for stage in range(16):
        held = in_flight(Parallelism(pp=16, schedule=Schedule.DUALPIPE), 64, stage)
        assert sum(held) == expected["dualpipe_activations"]
    asked = {"parallelism__pp": 16, "workload__global_batch_size": 64, "parallelism__dp": 2}
    once, twice = (
        sum(one.parameters for one in look("llama-3.1-405b", **asked, parallelism__schedule=name).memory or ())
        for name in ("1f1b", "dualpipe")
    )
    assert twice == expected["dualpipe_params"] * once


def _groups(ident: str) -> list[dict[str, Any]]:
    cases = yaml.safe_load((DATA / "goldens_groups.yaml").read_text())["cases"]
    return next(list(case["expected"]) for case in cases if case["id"] == ident)


# Parameters, gradients, optimizer


def per_parameter(**asked: object) -> float:
    """Bytes of parameters and what belongs to them, for each parameter of a device."""
    found = memory("llama-3-8b", **asked)
    return (found.weights + found.gradients + found.optimizer) / found.parameters


HALVES = {"workload__grad_dtype": "fp16", "workload__dtype": "fp16"}


@pytest.mark.parametrize(("ident", "psi"), [("ZER-02", 128), ("ZER-03", 1000)])
def test_zero_table_1(ident: str, psi: int) -> None:
    """GB of so many billion parameters: bytes of one parameter times their number."""
    for name, expected in golden(ident).items():
        kind, _, ranks = name.rpartition("_N")
        asked: dict[str, object] = {**HALVES}
        if int(ranks) > 1:
            zero = {"Pos": 1, "Pos_g": 2, "Pos_g_p": 3}[kind]
            asked |= {"parallelism__dp": ranks, "parallelism__zero": zero}
        # A vocabulary that 1024 ranks divide needs no padding.
        assert psi * per_parameter(**asked, model__vocab_size=131072) == pytest.approx(expected, rel=1e-9), name


def test_limits_of_zero() -> None:
    expected, whole = golden("ZER-04"), per_parameter(**HALVES)
    assert whole == 16
    many = {"parallelism__dp": 4096, **HALVES}
    assert whole / per_parameter(**many, parallelism__zero=1) == pytest.approx(expected["pos"], rel=1e-3)
    assert whole / per_parameter(**many, parallelism__zero=2) == pytest.approx(expected["pos_g"], rel=2e-3)
    assert 1.5 * whole == expected["gpt2"]


@pytest.mark.parametrize(
    ("name", "plain", "asked"),
    [
        ("fp16_fp16", "plain_fp16", {**HALVES, "memory__main_grad_dtype": "fp32"}),
        ("bf16_fp32", "plain_bf16", {}),
        ("fp32_fp32", "plain_fp32", {"workload__dtype": "fp32"}),
    ],
)
def test_bytes_of_megatrons_optimizer(name: str, plain: str, asked: dict[str, object]) -> None:
    expected = golden("ZER-05")
    assert per_parameter(**asked) == expected[plain]
    sharded = per_parameter(**asked, parallelism__dp=64, parallelism__zero=1)
    assert sharded == pytest.approx(expected[name], rel=1e-9)


@pytest.mark.parametrize(("name", "ident"), [("22B", "ACT-04"), ("175B", "ACT-05"), ("530B", "ACT-06")])
def test_parameters_and_optimizer_of_figure_1(name: str, ident: str) -> None:
    """18 bytes of the 12 h^2 of each layer, in eighths; the figure leaves out biases and norms, 1 part in 2000."""
    hidden, heads, layers, stages = SHAPES[name][:4]
    asked = {"parallelism__tp": 8, "parallelism__pp": stages, "workload__global_batch_size": 64}
    stage = (look(gpt(hidden, heads, layers), **asked).memory or ())[stages // 2]
    held = stage.weights + stage.gradients + stage.optimizer
    if stages == 1:  # table, positions and the last norm
        held -= 18 * (51200 * hidden // 8 + 2048 * hidden + 2 * hidden)
    assert held / GIB == pytest.approx(golden(ident)["params_optimizer"], rel=5e-4)


def test_types_of_the_optimizer() -> None:
    assert per_parameter(memory__optimizer="momentum") == 2 + 4 + 4 + 4
    assert per_parameter(memory__optimizer="sgd", memory__master_dtype="none") == 2 + 4
    assert per_parameter(memory__moment_dtype="bf16") == 2 + 4 + 2 * 2 + 4
    # The scaling book, part 5: parameters in bf16 and moments in fp32 are ten bytes; 96 GB hold 9.6 billion.
    found = memory("llama-3-8b", memory__master_dtype="none")
    assert 96e9 / ((found.weights + found.optimizer) / found.parameters) == golden("LIM-02")["params"]


def test_torchtitan_stores_fp32() -> None:
    """FSDP2 with a MixedPrecisionPolicy: parameters, gradients and two moments in fp32, all in shards."""
    asked = {"parallelism__framework": "torchtitan", "parallelism__dp": 8, "parallelism__zero": 3}
    found = memory("llama-3-8b", **asked)
    assert found.weights + found.gradients + found.optimizer == found.parameters * 16 // 8
    # The root stays gathered, two blocks are, and one is reduced in fp32.
    root, one = 2 * 128256 * 4096 + 4096, 218_112_000
    assert found.buffers == 2 * (root + 2 * one) + 4 * max(root, one)


def test_experts_are_sharded_over_their_own_ranks() -> None:
    """Mixtral 8x7B on 8 ranks, an expert each: those parameters have no copies, and their optimizer is whole."""
    asked = {"parallelism__dp": 8, "parallelism__ep": 8, "parallelism__zero": 1}
    found = memory("mixtral-8x7b", **asked)
    experts = 32 * 3 * 4096 * 14336
    others = found.parameters - experts
    assert found.optimizer == 12 * (experts + -(-others // 8))


# Cache of keys and values


def cache(model: str, **asked: object) -> int:
    return memory(model, **({"workload__phase": "decode"} | asked)).kv_cache


def test_cache_of_published_models() -> None:
    expected = golden("ACT-12")
    # D = 8192 in 64 layers, all heads with keys of their own, in one byte, 8k tokens; 4096 wide in one byte a token.
    wide, narrow = gpt(8192, 64, 64), gpt(4096, 32, 64)
    one = {"memory__kv_dtype": "int8"}
    assert cache(wide, **one, workload__sequence_length=8192) / GIB == expected["cache"]
    assert cache(narrow, **one, workload__sequence_length=1) == expected["per_token_4096"]
    assert cache("llama-3-70b", **one, workload__sequence_length=1) == expected["llama3_per_token"]


def test_cache_of_user_reports() -> None:
    """UR-069: 3000 tokens of Llama-3-70B in bf16 are 0.98 GB, not 8; UR-008: 16 ranks of 8 KV heads hold one each."""
    assert cache("llama-3-70b", workload__sequence_length=3000) == 983_040_000
    eight = cache("llama-3-70b", parallelism__tp=8)
    assert cache("llama-3-70b", parallelism__tp=16) == eight == cache("llama-3-70b") // 8


def test_cache_of_latents_windows_and_states() -> None:
    # DeepSeek-V3: 512 + 64 elements a token and layer, whole on every rank, of 61 layers.
    assert cache("deepseek-v3", workload__sequence_length=8192, parallelism__tp=8) == 8192 * 61 * 576 * 2
    # Gemma 3 27B: 16 KV heads of 128; every sixth of 62 layers sees all, the others 1024 tokens.
    each = 2 * 16 * 128 * 2
    assert cache("gemma-3-27b", workload__sequence_length=8192) == each * (10 * 8192 + 52 * 1024)
    # Qwen3-Next: 12 layers of 2 KV heads of 256; 36 of a state 32 x 128 x 128 and 3 tokens of 8192 columns.
    attention, state = 8192 * 2 * 2 * 256 * 12, 36 * (32 * 128 * 128 + 3 * 8192)
    assert cache("qwen3-next-80b-a3b", workload__sequence_length=8192) == 2 * (attention + state)


def test_weights_of_llama_in_three_types() -> None:
    """ACT-15: 140 GB, 70 GB; the published 45 GB of int4 is an erratum for 35."""
    expected = golden("ACT-15")
    for name, dtype in (("bf16", "bf16"), ("int8", "int8"), ("int4", "int4")):
        found = memory("llama-3-70b", workload__phase="decode", workload__dtype=dtype)
        # 70.55 billion parameters, where the source says 70.
        assert found.weights * 70e9 / found.parameters / 1e9 == pytest.approx(expected[name], rel=1e-9)


def test_a_ring_holds_six_blocks() -> None:
    """CP-05: query, output, keys and values of its own, keys and values that arrive: 6bch elements; scores 2bns^2."""
    expected = golden("CP-05")
    model = gpt(4096, 32, 1)
    asked = {"workload__sequence_length": 8192, "workload__micro_batch_size": 1}
    ring = ask(model, parallelism__cp=8, **asked)
    found = look(model, parallelism__cp=8, **asked).memory
    assert found is not None
    own = sum(size for name, size in found[0].tensors if name in "QKVO")
    (hop,) = {entry.row.payload_bytes for entry in ring.entries if entry.row.kind == "send_recv"
              and entry.row.direction == "forward"}  # fmt: skip
    assert (own + hop) // 2 == expected["ring"]
    vanilla = dict(memory(model, **asked, workload__attention="unfused").tensors)
    assert vanilla["softmax"] == expected["vanilla_attention"] == expected["vanilla_total"]


# Whether it fits


def test_fits_by_how_much(inside: Inside) -> None:
    found = inside("ledger", "--model", "llama-3-8b", "--hardware", "h100", "--json")
    document = found_json(found)["memory"]
    parts = ("weights", "gradients", "optimizer", "activations", "kv_cache", "buffers")
    assert document["total_bytes"] == sum(document[f"{part}_bytes"] for part in parts)
    assert document["margin_bytes"] == 80_000_000_000 - document["total_bytes"] < 0
    assert document["fits"] is False
    missing = -document["margin_bytes"]
    assert f"{missing:,} B are missing [does-not-fit]" in found.err
    assert found.status == 0
    refused = inside("ledger", "--model", "llama-3-8b", "--hardware", "h100", "--must-fit")
    assert refused.status == 3
    assert f"{missing:,} B are missing" in refused.err
    fitting = inside("ledger", "--model", "llama-3-8b", "--hardware", "h100", "--must-fit", "--dp", "8", "--zero", "3",
                     "--recompute", "full", "--json")  # fmt: skip
    assert fitting.status == 0
    assert found_json(fitting)["memory"]["fits"] is True


def found_json(ran: Any) -> Any:
    return ran.json


def test_offload(inside: Inside) -> None:
    given = ("ledger", "--model", "llama-3-8b", "--hardware", "h100", "--offload", "optimizer,activations", "--json")
    assert inside(*given).status == 2
    assert "whose memory is not given" in inside(*given).json["error"]["message"]
    small = inside(*given, "--host-memory", "64GB")
    assert small.status == 3
    document = inside(*given, "--host-memory", "256GB").json["memory"]
    on_host = document["optimizer_bytes"] + document["activations_bytes"]
    assert document["offloaded_bytes"] == on_host
    assert (
        document["total_bytes"] == document["weights_bytes"] + document["gradients_bytes"] + document["buffers_bytes"]
    )


@settings(max_examples=40, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4, 8]), dp=st.sampled_from([1, 2, 4]), pp=st.sampled_from([1, 2, 4]),
    zero=st.sampled_from([0, 1, 2, 3]), recompute=st.sampled_from(["none", "selective", "full"]), sp=st.booleans(),
)  # fmt: skip
def test_more_ranks_never_need_more(tp: int, dp: int, pp: int, zero: int, recompute: str, sp: bool) -> None:
    """Parameters of all stages and TP ranks add up to the model's or more; sharding and recomputing save memory."""
    zero = zero if dp > 1 else 0
    asked = {
        "parallelism__tp": tp, "parallelism__dp": dp, "parallelism__pp": pp, "parallelism__zero": zero,
        "workload__recompute": recompute, "workload__global_batch_size": 8 * dp, "workload__sequence_length": 1024,
        "parallelism__sp": sp and tp > 1,
    }  # fmt: skip
    found = look("llama-3-8b", **asked).memory
    assert found is not None
    assert sum(one.parameters for one in found) * tp >= 8_030_261_248
    whole = look("llama-3-8b", **(asked | {"parallelism__zero": 0})).memory
    kept = look("llama-3-8b", **(asked | {"workload__recompute": "none"})).memory
    assert whole is not None and kept is not None
    for one, unsharded, all_kept in zip(found, whole, kept, strict=True):
        assert one.optimizer <= unsharded.optimizer
        assert one.block_activations <= all_kept.block_activations


def test_a_dtype_that_is_none(inside: Inside) -> None:
    ran = inside("ledger", "--master-dtype", "fp33")
    assert ran.status == 2
    with pytest.raises(IllegalDegree):
        look("llama-3-70b", "h100", memory__must_fit=True)
