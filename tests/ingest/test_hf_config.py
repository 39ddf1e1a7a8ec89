"""``config.json`` files as people have them: every reading, exact parameter counts included."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml

from commcalc.catalog.models import read_model
from commcalc.catalog.presets import load
from commcalc.document import parse_document
from commcalc.errors import CommcalcError
from commcalc.ingest.families import FAMILIES, UNDESCRIBED
from commcalc.transformer.layers import attentions, count_of, ffns
from commcalc.transformer.parameters import active_parameters, parameters
from commcalc.transformer.spec import Model
from conftest import DATA, run_commcalc

EXPECTED = yaml.safe_load((DATA / "configs" / "expected.yaml").read_text())
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "vocab_size": 100,
}  # fmt: skip


def read(**config: object) -> Model:
    model, found = read_model(parse_document(json.dumps(config), "config.json"))
    assert found.problems == []
    return model


@pytest.mark.parametrize("expected", EXPECTED, ids=[case["file"] for case in EXPECTED])
def test_sample(expected: dict[str, object]) -> None:
    model, found = read_model(load("model", str(DATA / "configs" / str(expected["file"]))))
    assert found.problems == []
    assert {
        "hidden_size": model.hidden_size,
        "num_layers": model.num_hidden_layers,
        "num_heads": model.num_attention_heads,
        "num_kv_heads": model.num_key_value_heads,
        "head_dim": model.head_dim,
        "q_width": (model.num_attention_heads or 0) * (model.head_dim or 0),
        "dense_ffn_size": model.intermediate_size,
        "gated_mlp": model.gated_mlp,
        "vocab_size": model.vocab_size,
        "tie_embeddings": model.tie_word_embeddings,
        "parallel_block": model.parallel_block,
        "qkv_bias": model.attention_bias,
        "moe_layers": count_of(model, sparse=True),
        "num_experts": model.num_experts,
        "top_k": model.num_experts_per_tok,
        "expert_ffn_size": model.moe_intermediate_size,
        "shared_ffn_size": model.shared_expert_intermediate_size,
        "mla": bool(model.kv_lora_rank),
        "text_params": parameters(model),
    } == {key: value for key, value in expected.items() if key not in ("file", "source")}


def test_every_sample_is_expected() -> None:
    files = {path.name for path in (DATA / "configs").glob("*.json")}
    assert files == {case["file"] for case in EXPECTED}


# Announced active parameters, in billions (model cards).
ACTIVE = {
    "mixtral-8x7b.json": 12.9,
    "llama-4-maverick-17b-128e.json": 17,
    "gemma-4-26b-a4b.json": 4,
    "minimax-m2.5.json": 11,
}


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters(name: str) -> None:
    model, _ = read_model(load("model", str(DATA / "configs" / name)))
    assert active_parameters(model) / 1e9 == pytest.approx(ACTIVE[name], rel=0.05)


@pytest.mark.parametrize("name", ["llama-3.1-8b.json", "qwen3-32b.json", "falcon-40b.json", "bloom.json", "phi-4.json"])
def test_the_ledger_takes_a_config_as_a_model(name: str) -> None:
    ran = run_commcalc("ledger", "--model", str(DATA / "configs" / name), "--tp", "2", "--json")
    assert ran.status == 0
    sources = ran.json["inputs"]["sources"]
    assert f"{name}:" in sources["model.hidden_size"]
    assert "default of " in sources["model.norm"]


# Two files read as the preset of the same name: a list of one says what a rule of the other says.
SAME = {
    "llama-3.1-8b.json": "llama-3.1-8b",
    "qwen3-32b.json": "qwen3-32b",
    "mixtral-8x7b.json": "mixtral-8x7b",
    "gpt-oss-20b.json": "gpt-oss-20b",
    "gemma-3-27b-it.json": "gemma-3-27b",
    "gemma-4-26b-a4b.json": "gemma-4-26b-a4b",
    "glm-4.5-air.json": "glm-4.5-air",
    "glm-5.2.json": "glm-5.2",
    "kimi-k2.5.json": "kimi-k2.5",
    "llama-4-maverick-17b-128e.json": "llama-4-maverick",
    "llama-4-scout-17b-16e.json": "llama-4-scout",
    "minimax-m2.5.json": "minimax-m2.5",
    "qwen3-next-80b-a3b.json": "qwen3-next-80b-a3b",
}
RULES = ("layer_types", "mlp_layer_types", "full_attention_interval", "first_k_dense_replace")


@pytest.mark.parametrize("name", SAME)
def test_a_file_reads_as_its_preset(name: str) -> None:
    model, _ = read_model(load("model", str(DATA / "configs" / name)))
    preset, _ = read_model(load("model", SAME[name]))
    assert (attentions(model), ffns(model)) == (attentions(preset), ffns(preset))
    plain = {key: getattr(Model(), key) for key in (*RULES, "name", "quantization_group_size")}
    if name == "qwen3-next-80b-a3b.json":  # whose file does not say that a layer predicts further tokens
        preset = preset._replace(num_nextn_predict_layers=0)
    assert model._replace(**plain) == preset._replace(**plain)


def test_null_is_absent_where_the_family_allows_it() -> None:
    assert read(**LLAMA, num_key_value_heads=None, head_dim=None).num_key_value_heads == 4
    with pytest.raises(CommcalcError, match="num_key_value_heads is null, which mistral does not allow"):
        read(**{**LLAMA, "model_type": "mistral"}, num_key_value_heads=None)


# Source: transformers 5.24.0 class defaults, printed from the installed classes.
@pytest.mark.parametrize(
    ("family", "kv"),
    [
        ("llama", 16),
        ("mistral", 8),
        ("qwen2", 32),
        ("qwen3", 32),
        ("gemma2", 4),
        ("phi3", 16),
        ("cohere", 16),
        ("starcoder2", 2),
    ],
)
def test_kv_heads_where_the_key_is_absent(family: str, kv: int) -> None:
    heads = 32 if kv == 32 else 16
    config = {**LLAMA, "model_type": family, "num_attention_heads": heads, "head_dim": 8}
    assert read(**config).num_key_value_heads == kv


@pytest.mark.parametrize(
    ("family", "width"), [("llama", 16), ("gemma2", 256), ("gemma3", 256), ("qwen3", 128), ("gpt_oss", 64)]
)
def test_head_size_where_the_key_is_absent(family: str, width: int) -> None:
    config = {**LLAMA, "model_type": family, "num_key_value_heads": 4}
    assert read(**config).head_dim == width


@pytest.mark.parametrize(
    ("family", "tied"),
    [
        ("llama", False),
        ("gpt2", True),
        ("falcon", True),
        ("cohere", True),
        ("gemma2", True),
        ("qwen3", False),
        ("phi3", False),
    ],
)
def test_tied_embeddings_where_the_key_is_absent(family: str, tied: bool) -> None:
    config = {**LLAMA, "model_type": family, "num_key_value_heads": 4, "head_dim": 16}
    assert read(**config).tie_word_embeddings is tied
    assert read(**config, tie_word_embeddings=not tied).tie_word_embeddings is not tied


def falcon(**more: object) -> Model:
    return read(model_type="falcon", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=100, **more)


def test_falcon() -> None:
    """FalconConfig: multi_query counts only in the old architecture, num_kv_heads only in the new one."""
    old = falcon(num_kv_heads=2)
    assert (old.num_key_value_heads, old.parallel_block, old.parallel_norms) == (1, True, 1)
    new = falcon(num_kv_heads=2, new_decoder_architecture=True)
    assert (new.num_key_value_heads, new.parallel_block, new.parallel_norms) == (2, True, 2)
    plain = falcon(multi_query=False, parallel_attn=False, bias=True, alibi=True)
    assert (plain.num_key_value_heads, plain.parallel_block, plain.mlp_bias) == (4, False, True)
    assert plain.position_embedding == "alibi"
    assert (old.intermediate_size, old.max_position_embeddings) == (256, 2048)
    assert falcon(num_kv_heads=2, new_decoder_architecture=True, num_ln_in_parallel_attn=1).parallel_norms == 1


def test_old_spellings() -> None:
    old = read(
        model_type="RefinedWeb",
        n_embed=64,
        n_layer=2,
        n_head=4,
        n_head_kv=2,
        vocab_size=9,
        new_decoder_architecture=True,
    )
    assert (old.hidden_size, old.num_hidden_layers, old.num_key_value_heads) == (64, 2, 2)
    gpt = read(model_type="gpt2", n_embd=64, n_layer=2, n_head=4, vocab_size=100, n_positions=32, n_inner=None)
    assert (gpt.intermediate_size, gpt.max_position_embeddings, gpt.attention_bias) == (256, 32, True)
    assert gpt.position_embedding == "learned"


def test_gpt2_has_the_parameters_of_its_preset() -> None:
    config = read(model_type="gpt2", n_embd=768, n_layer=12, n_head=12, vocab_size=50257, n_positions=1024)
    assert parameters(config) == 124_439_808


def test_the_language_part_of_a_multimodal_file() -> None:
    vision = {"model_type": "siglip", "hidden_size": 1152, "num_attention_heads": 16}
    nested = read(model_type="llava", text_config=LLAMA, vision_config=vision, tie_word_embeddings=True)
    assert (nested.hidden_size, nested.tie_word_embeddings) == (64, True)
    inside = read(model_type="omni", thinker_config={"text_config": LLAMA, "audio_config": {"d_model": 3}})
    assert inside.num_attention_heads == 4


def test_gemma_3_4b_leaves_out_what_its_class_knows() -> None:
    config = read(
        model_type="gemma3",
        text_config={
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
        },
    )
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim, config.vocab_size) == (
        8,
        4,
        256,
        262208,
    )
    assert parameters(config) == 3_880_263_168


def test_the_class_says_the_family_where_no_type_does() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "model_type"}
    assert read(**config, architectures=["LlamaForCausalLM"]).num_attention_heads == 4
    with pytest.raises(CommcalcError, match="unknown model family 'OtherForCausalLM'"):
        read(**config, architectures=["OtherForCausalLM"])
    with pytest.raises(CommcalcError, match="MambaForCausalLM cannot be described: layers of Mamba"):
        read(**config, architectures=["MambaForCausalLM"])
    with pytest.raises(CommcalcError, match="neither model_type nor architectures says which family this is"):
        read(text_config=config)


def test_quantisation_changes_only_what_stays_together_and_unknown_keys_nothing() -> None:
    plain = read(**LLAMA)
    quantized = read(
        **LLAMA, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]}, rope_theta=5e5
    )
    assert plain == quantized._replace(quantization_group_size=1)


QWEN_MOE = {
    "model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 4,
    "vocab_size": 10, "num_key_value_heads": 4, "intermediate_size": 96, "num_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}  # fmt: skip


def sparse(model: Model) -> list[int]:
    return [at for at, kind in enumerate(ffns(model)) if kind == "sparse"]


def full(model: Model) -> list[int]:
    return [at for at, kind in enumerate(attentions(model)) if kind == "full_attention"]


def test_layers_with_experts() -> None:
    """Qwen3MoeConfig: not in mlp_only_layers, and every decoder_sparse_step-th."""
    assert sparse(read(**QWEN_MOE)) == [*range(8)]
    assert sparse(read(**QWEN_MOE, decoder_sparse_step=2)) == [1, 3, 5, 7]
    assert sparse(read(**QWEN_MOE, mlp_only_layers=[0, 1, 2])) == [3, 4, 5, 6, 7]
    assert sparse(read(**QWEN_MOE, mlp_only_layers=[3], decoder_sparse_step=2)) == [1, 5, 7]
    assert read(**QWEN_MOE).intermediate_size is None
    assert read(**QWEN_MOE, decoder_sparse_step=2).intermediate_size == 96


def test_layers_with_experts_of_other_families() -> None:
    llama = {
        "model_type": "llama4_text", "hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 8,
        "vocab_size": 10, "intermediate_size": 32, "intermediate_size_mlp": 96, "num_local_experts": 4,
        "num_experts_per_tok": 1,
    }  # fmt: skip
    assert sparse(read(**llama, interleave_moe_layer_step=2)) == [1, 3, 5]
    assert sparse(read(**llama, interleave_moe_layer_step=2, moe_layers=[0, 4])) == [0, 4]
    deepseek = {**MLA, "num_hidden_layers": 6, **EXPERTS}
    assert sparse(read(**deepseek)) == [3, 4, 5]  # the class default of first_k_dense_replace
    assert sparse(read(**deepseek, first_k_dense_replace=1)) == [1, 2, 3, 4, 5]
    assert sparse(read(**deepseek, first_k_dense_replace=1, moe_layer_freq=2)) == [2, 4]
    assert sparse(read(**deepseek, moe_layer_freq=[0, 1, 0, 1, 1, 1])) == [1, 3, 4, 5]
    assert sparse(read(**deepseek, mlp_layer_types=["dense"] * 5 + ["sparse"])) == [5]


MLA = {
    "model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 10,
    "intermediate_size": 96, "kv_lora_rank": 16, "q_lora_rank": None, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
    "v_head_dim": 8, "num_key_value_heads": 4,
}  # fmt: skip
EXPERTS = {"n_routed_experts": 16, "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 32}
SLIDING = {
    "hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16,
    "intermediate_size": 96, "vocab_size": 10,
}  # fmt: skip


# Which layers attend to all tokens, and how far the others look (transformers 5.24.0, __post_init__ of each class).
@pytest.mark.parametrize(
    ("config", "layers", "window"),
    [
        ({"model_type": "mistral", "sliding_window": None}, [*range(8)], 0),
        ({"model_type": "mistral", "sliding_window": 32}, [], 32),
        ({"model_type": "mistral"}, [], 4096),
        ({"model_type": "phi3"}, [*range(8)], 0),
        ({"model_type": "phi3", "sliding_window": 2047}, [], 2047),
        ({"model_type": "llama", "sliding_window": 32}, [*range(8)], 0),
        ({"model_type": "qwen2", "sliding_window": 32}, [*range(8)], 0),
        ({"model_type": "qwen2", "sliding_window": 32, "use_sliding_window": False}, [*range(8)], 0),
        (
            {"model_type": "qwen2", "sliding_window": 32, "use_sliding_window": True, "max_window_layers": 6},
            [*range(6)],
            32,
        ),
        ({"model_type": "qwen3", "use_sliding_window": True}, [*range(8)], 0),
        ({"model_type": "gemma2"}, [1, 3, 5, 7], 4096),
        ({"model_type": "gemma3_text", "sliding_window": 512}, [5], 512),
        ({"model_type": "gemma3_text", "sliding_window": 512, "sliding_window_pattern": 2}, [1, 3, 5, 7], 512),
        ({"model_type": "cohere2"}, [3, 7], 4096),
        ({"model_type": "olmo3"}, [3, 7], 4096),
        ({"model_type": "gpt_oss"}, [1, 3, 5, 7], 128),
        ({"model_type": "gemma4_text", "hidden_size_per_layer_input": 0}, [5, 7], 512),
        ({"model_type": "gpt_oss", "layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 6}, [0, 1], 128),
        ({"model_type": "mimo_v2_flash", "sliding_window_size": 128}, [0, 5], 128),
        ({"model_type": "mimo_v2_flash", "hybrid_layer_pattern": [0, 1, 1, 0, 1, 1, 1, 1]}, [0, 3], 129),
        ({"model_type": "minimax_m2", "layer_types": ["full_attention"] * 8}, [*range(8)], 0),
    ],
    ids=str,
)
def test_layers_that_slide(config: dict[str, object], layers: list[int], window: int) -> None:
    model = read(**SLIDING, **config)
    assert (full(model), model.sliding_window, model.attention_chunk_size) == (layers, window, 0)


def test_layers_that_look_into_chunks() -> None:
    """Llama4TextConfig: the layers with rotary positions, three of four."""
    llama = {**SLIDING, "model_type": "llama4_text"}
    plain = read(**llama)
    assert (full(plain), plain.attention_chunk_size) == ([3, 7], 8192)
    assert (plain.qk_norm, read(**llama, use_qk_norm=False).qk_norm) == ("no_weight", "none")
    listed = read(**llama, no_rope_layers=[1, 1, 0, 1, 1, 1, 1, 0])
    assert full(listed) == [2, 7]
    whole = read(**llama, attention_chunk_size=None)
    assert (full(whole), whole.attention_chunk_size) == ([*range(8)], 0)


def test_layers_of_linear_attention() -> None:
    qwen = {
        **SLIDING, "model_type": "qwen3_next", "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4,
    }  # fmt: skip
    assert full(read(**qwen)) == [3, 7]
    assert full(read(**qwen, full_attention_interval=2)) == [1, 3, 5, 7]
    assert full(read(**qwen, layer_types=["full_attention"] + ["linear_attention"] * 7)) == [0]
    minimax = {**SLIDING, "model_type": "minimax"}
    lightning = read(**minimax, attn_type_list=[0, 0, 0, 1, 0, 0, 0, 1])
    assert (full(lightning), lightning.linear_attention, lightning.linear_num_value_heads) == ([3, 7], "lightning", 8)
    assert full(read(**minimax)) == [0, 2, 4, 6]
    assert read(**minimax, layer_types=["full_attention"] * 8).linear_num_value_heads == 0


# Shapes of the presets, keys of the published files; the counts are those of transformers 5.24.0 on the meta device.
HYBRIDS = [
    (
        {
            "model_type": "minimax_text_01", "hidden_size": 6144, "num_hidden_layers": 80, "num_attention_heads": 64,
            "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9216, "vocab_size": 200064,
            "max_position_embeddings": 10240000, "num_local_experts": 32, "num_experts_per_tok": 2,
            "shared_intermediate_size": 0, "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10,
        },
        "minimax-text-01",
        456_089_655_296,
    ),
    (
        {
            "model_type": "minimax_m3_vl", "text_config": {
                "hidden_size": 6144, "num_hidden_layers": 60, "num_attention_heads": 64, "num_key_value_heads": 4,
                "head_dim": 128, "intermediate_size": 3072, "dense_intermediate_size": 12288, "vocab_size": 200064,
                "max_position_embeddings": 1048576, "num_local_experts": 128, "num_experts_per_tok": 4,
                "shared_intermediate_size": 3072, "n_shared_experts": 1, "use_qk_norm": True,
                "qk_norm_type": "per_head", "moe_layer_freq": [0] * 3 + [1] * 57,
                "sparse_attention_config": {
                    "sparse_num_index_heads": 4, "sparse_index_dim": 128, "sparse_attention_freq": [0] * 3 + [1] * 57,
                },
            },
        },
        "minimax-m3",
        426_174_565_632,
    ),
    (
        {
            "model_type": "mimo_v2_flash", "hidden_size": 4096, "num_hidden_layers": 48, "num_attention_heads": 64,
            "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "swa_num_attention_heads": 64,
            "swa_num_key_value_heads": 8, "swa_head_dim": 192, "swa_v_head_dim": 128, "intermediate_size": 16384,
            "moe_intermediate_size": 2048, "vocab_size": 152576, "max_position_embeddings": 262144,
            "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": None, "sliding_window": 128,
            "attention_chunk_size": 128, "add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False,
            "hybrid_layer_pattern": [0 if at in (0, 5, 11, 17, 23, 29, 35, 41, 47) else 1 for at in range(48)],
            "moe_layer_freq": [0] + [1] * 47,
        },
        "mimo-v2-flash",
        308_778_768_832,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("config", "name", "count"), HYBRIDS, ids=[name for _, name, _ in HYBRIDS])
def test_files_with_lists_of_layers(config: dict[str, object], name: str, count: int) -> None:
    model, (preset, _) = read(**config), read_model(load("model", name))
    assert (attentions(model), ffns(model)) == (attentions(preset), ffns(preset))
    plain = {key: getattr(Model(), key) for key in (*RULES, "name")}
    assert model._replace(**plain) == preset._replace(**plain)
    assert parameters(model) == count


# Files of families that no preset has, with counts that others publish.
COUNTED = [
    (  # zai-org/chatglm3-6b: Hub safetensors total
        {
            "model_type": "chatglm", "num_layers": 28, "hidden_size": 4096, "ffn_hidden_size": 13696,
            "num_attention_heads": 32, "kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2,
            "padded_vocab_size": 65024, "add_qkv_bias": True, "add_bias_linear": False, "seq_length": 8192,
            "rmsnorm": True,
        },
        6_243_584_000,
    ),
    (  # mosaicml/mpt-7b: Hub safetensors total
        {
            "model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "expansion_ratio": 4,
            "max_seq_len": 2048, "vocab_size": 50432, "no_bias": True, "attn_config": {"alibi": True, "qk_ln": False},
        },
        6_649_286_656,
    ),
    (  # databricks/dbrx-base: 132B announced, and the sizes of its file added up
        {
            "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32768,
            "vocab_size": 100352, "attn_config": {"kv_n_heads": 8, "clip_qkv": 8},
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        },
        40 * (6144 * (6144 + 2 * 1024) + 6144 * 6144 + 16 * 3 * 6144 * 10752 + 16 * 6144 + 2 * 6144)
        + (2 * 100352 + 1) * 6144,
    ),
    (  # allenai/OLMoE-1B-7B-0924: 6.92B announced, and the sizes of its file added up
        {
            "model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16,
            "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 50304, "num_experts": 64,
            "num_experts_per_tok": 8, "clip_qkv": None,
        },
        16 * (4 * 2048 * 2048 + 2 * 2048 + 64 * 3 * 2048 * 1024 + 64 * 2048 + 2 * 2048) + (2 * 50304 + 1) * 2048,
    ),
    (  # xai-org/grok-1 in the keys of its community ports: 314B announced, and its sizes added up
        {
            "model_type": "grok-1", "hidden_size": 6144, "intermediate_size": 32768, "num_hidden_layers": 64,
            "num_attention_heads": 48, "num_key_value_heads": 8, "vocab_size": 131072, "num_experts": 8,
            "num_experts_per_tok": 2, "max_position_embeddings": 8192,
        },
        64 * (2 * 6144 * 6144 + 2 * 6144 * 1024 + 8 * 3 * 6144 * 32768 + 8 * 6144 + 4 * 6144) + (131072 + 1) * 6144,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("config", "count"), COUNTED, ids=[str(config["model_type"]) for config, _ in COUNTED])
def test_families_without_a_preset(config: dict[str, object], count: int) -> None:
    assert parameters(read(**config)) == count


def test_layers_that_predict_further_tokens() -> None:
    deepseek = {**MLA, **EXPERTS}
    assert read(**deepseek).num_nextn_predict_layers == 0
    assert read(**deepseek, num_nextn_predict_layers=1).num_nextn_predict_layers == 1
    minimax = {
        **SLIDING, "model_type": "minimax_m2", "num_mtp_modules": 3, "mtp_transformer_layers": 2,
    }  # fmt: skip
    assert read(**minimax).num_nextn_predict_layers == 6
    assert read(**minimax, use_mtp=False).num_nextn_predict_layers == 0


def test_layers_with_an_indexer() -> None:
    """GlmMoeDsaConfig: by a list, a letter a layer, or every n-th behind the first; DeepSeek-V3.2: all."""
    glm = {**MLA, "q_lora_rank": 16, "num_hidden_layers": 8, "index_n_heads": 2, "index_head_dim": 8}
    assert read(**{**glm, "model_type": "deepseek_v32"}).index_layers == 8
    glm["model_type"] = "glm_moe_dsa"
    assert read(**glm).index_layers == 8
    assert read(**glm, index_topk_freq=4, index_skip_topk_offset=3).index_layers == 4
    assert read(**glm, index_topk_pattern="FFSSSFSS").index_layers == 3
    assert read(**glm, indexer_types=["full"] * 2 + ["shared"] * 6).index_layers == 2


def test_kimi_takes_no_generation_setting_for_its_routing() -> None:
    """The text_config of Kimi-K2.5 holds ``top_k: 50``, which is for sampling."""
    inner = {**MLA, **EXPERTS, "model_type": "kimi_k2", "top_k": 50, "first_k_dense_replace": 1}
    model = read(model_type="kimi_k25", text_config=inner, tie_word_embeddings=False)
    assert (model.num_experts_per_tok, model.q_lora_rank, model.head_dim) == (8, 0, 12)
    assert (sparse(model), model.family) == ([1, 2, 3], "kimi_k2")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"intermediate_size": None}, "intermediate_size is missing"),
        ({"hidden_size": "64"}, "'64' is no whole number"),
        ({"hidden_size": 64.0}, None),
        ({"hidden_size": 64.5}, "is no whole number"),
        ({"num_attention_heads": True}, "is no whole number"),
        ({"num_attention_heads": 5, "num_key_value_heads": 2}, "num_attention_heads 5 mod num_key_value_heads 2 = 1"),
        ({"attention_bias": "yes"}, "'yes' is neither true nor false"),
        ({"hidden_size": [64]}, "a list where one value is expected"),
    ],
)
def test_files_that_are_wrong(change: dict[str, object], message: str | None) -> None:
    try:
        _, found = read_model(parse_document(json.dumps({**LLAMA, **change}), "config.json"))
        problems = [problem.message for problem in found.problems]
    except CommcalcError as problem:
        problems = [one.message for one in problem.problems]
    assert (problems == []) == (message is None)
    assert message is None or any(message in problem for problem in problems), problems


def problems_of(config: object) -> list[CommcalcError]:
    try:
        _, found = read_model(parse_document(json.dumps(config), "config.json"))
    except CommcalcError as problem:
        return list(problem.problems)
    return found.problems


def test_layer_lists_must_have_a_word_for_each_layer() -> None:
    config = json.loads((DATA / "configs" / "gemma-4-26b-a4b.json").read_text())
    config["text_config"]["layer_types"].pop()
    (problem,) = problems_of(config)
    assert problem.message == "layer_types lists 29 layers of 30"
    assert problem.where is not None
    assert problem.where.startswith("config.json:1:")
    assert problem.where.endswith(" layer_types")


GPT_OSS = {**SLIDING, "model_type": "gpt_oss"}


@pytest.mark.parametrize(
    ("config", "message", "where"),
    [
        ({**GPT_OSS, "layer_types": ["mamba"] * 8}, "no field describes layers of 'mamba'", "layer_types"),
        ({**GPT_OSS, "layer_types": ["full_attention"] * 7}, "layer_types lists 7 layers of 8", "layer_types"),
        (
            {**GPT_OSS, "sliding_window": 0, "layer_types": ["sliding_attention"] * 4 + ["full_attention"] * 4},
            "layers of sliding_attention without sliding_window",
            None,
        ),
        ({**MLA, **EXPERTS, "mlp_layer_types": ["moe"] * 4}, "'moe' is neither dense nor sparse", "mlp_layer_types"),
        ({**MLA, **EXPERTS, "moe_layer_freq": [0, 1]}, "moe_layer_freq lists 2 layers of 4", "moe_layer_freq"),
        ({**MLA, **EXPERTS, "num_experts_per_tok": 17}, "num_experts_per_tok 17 is above num_experts 16", None),
        ({**QWEN_MOE, "mlp_only_layers": [8]}, "8 is no layer of 8", "mlp_only_layers"),
        ({**QWEN_MOE, "mlp_only_layers": [[1]]}, "what stands here is no layer of 8", "mlp_only_layers"),
        (
            {**SLIDING, "model_type": "mimo_v2_flash", "hybrid_layer_pattern": [0, 2, 1, 1, 1, 1, 1, 1]},
            "'2' is none of 0, 1",
            "hybrid_layer_pattern",
        ),
        ({**SLIDING, "model_type": "mimo_v2_flash", "swa_head_dim": 8}, "swa_head_dim other than head_dim", None),
        ({**SLIDING, "model_type": "gemma4"}, "hidden_size_per_layer_input above 0", None),
        ({**SLIDING, "model_type": "stablelm", "qk_layernorm": True}, "qk_layernorm", None),
        ({**SLIDING, "model_type": "mpt", "attn_config": {"alibi": False}}, "alibi false is not described", None),
        ({**SLIDING, "model_type": "minimax_m2", "qk_norm_type": "per_head"}, "qk_norm_type per_head", None),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, str) else "",
)
def test_lists_and_parts_that_cannot_be(config: dict[str, object], message: str, where: str | None) -> None:
    found = problems_of(config)
    assert any(message in problem.message for problem in found), found
    if where is not None:
        assert all((problem.where or "").endswith(f" {where}") for problem in found)


@pytest.mark.parametrize("name", UNDESCRIBED)
def test_families_that_cannot_be_described_say_why(name: str) -> None:
    (problem,) = problems_of({**LLAMA, "model_type": name})
    assert problem.message == f"{name} cannot be described: {UNDESCRIBED[name]}"
    assert problem.where is not None
    assert problem.where.startswith("config.json:1:")
    (nested,) = problems_of({"model_type": "some_vl", "text_config": {**LLAMA, "model_type": name}})
    assert nested.message == problem.message


def test_no_family_is_both_read_and_refused() -> None:
    assert not UNDESCRIBED.keys() & FAMILIES.keys()


def test_a_family_that_cannot_be_described_ends_the_program_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    inner = {**LLAMA, "model_type": "kimi_linear"}
    path.write_text(json.dumps({"model_type": "kimi_k3", "text_config": inner}))
    ran = run_commcalc("presets", "show", str(path))
    assert ran.status == 2
    assert "error: kimi_k3 cannot be described: experts in a latent space narrower than hidden_size" in ran.err


def test_every_family_reads_a_plain_file() -> None:
    """No family stumbles over a file that only has the usual keys."""
    usual = {
        **LLAMA, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16, "kv_lora_rank": 16,
        "qk_nope_head_dim": 8, "v_head_dim": 8,
        "qk_rope_head_dim": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
        "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "num_hidden_layers": 4, "max_position_embeddings": 64,
        "hidden_size_per_layer_input": 0, "num_experts_per_tok": 2,
    }  # fmt: skip
    for name, family in FAMILIES.items():
        config = {
            key: value for key, value in usual.items() if family.latent or not key.startswith(("kv_lora", "qk_", "v_"))
        }
        assert parameters(read(**{**config, "model_type": name})) > 0, name


def test_a_config_in_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    ran = run_commcalc("ledger", "--model", "config.json", "--tp", "2", "--json", cwd=tmp_path)
    assert (ran.status, ran.json["inputs"]["model"]["name"]) == (0, "config")


@pytest.mark.parametrize(
    ("quantization", "group"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 128),
        ({"quant_method": "awq", "q_group_size": 64}, 64),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 128),
        ({"quant_method": "gptq", "group_size": -1}, 1),
        ({"quant_method": "fp8", "weight_block_size": None}, 1),
        ({"config_groups": {"group_0": {"weights": {"group_size": 128, "num_bits": 4}}}}, 128),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, 1),
    ],
)
def test_groups_of_quantised_weights_are_read(quantization: dict[str, object], group: int) -> None:
    assert read(**LLAMA, quantization_config=quantization).quantization_group_size == group
    outside = {"model_type": "llava", "text_config": LLAMA, "quantization_config": quantization}
    assert read(**outside).quantization_group_size == group


def test_a_group_quantised_checkpoint_is_refused_where_its_groups_would_be_cut(tmp_path: Path) -> None:
    """Users of a 72B GPTQ model with 29568 = 231 * 128 columns (QwenLM/Qwen3-VL issue 231): no even TP."""
    config = {
        "model_type": "qwen2", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
        "num_key_value_heads": 8, "intermediate_size": 29568, "vocab_size": 152064,
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    ran = run_commcalc("degrees", "--model", str(path), "--tp", "2,4,8")
    assert ran.status == 3
    assert "29568 FFN columns are 231 groups of 128: 231 mod 2 = 1" in ran.err
    path.write_text(json.dumps(config | {"intermediate_size": 29696}))
    padded = run_commcalc("degrees", "--model", str(path), "--tp", "2,4,8", "--json")
    assert [degree["legal"] for degree in padded.json["degrees"]] == [True, True, True]


@pytest.mark.parametrize("config", [LLAMA, {"model_type": "llava", "text_config": LLAMA}], ids=["plain", "nested"])
def test_single_values_win_over_a_config(config: dict[str, object], tmp_path: Path) -> None:
    """Keys that a config.json has, keys that its family decides, and keys that only a model preset has."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    changes = {"hidden_size": 32, "gated_mlp": False, "quantization_group_size": 4, "num_hidden_layers": 1}
    options = [part for key, value in changes.items() for part in ("--set", f"model.{key}={str(value).lower()}")]
    shown = run_commcalc("ledger", "--model", str(path), *options, "--json").json["inputs"]["model"]
    assert {key: shown[key] for key in changes} == changes
    over = tmp_path / "over.yaml"
    over.write_text(json.dumps({"extends": "./config.json", **changes, "head_dim": 8}))
    laid = run_commcalc("ledger", "--model", str(over), "--json").json["inputs"]["model"]
    assert {key: laid[key] for key in changes} == changes


def test_a_config_written_on_the_command_line_is_read_by_the_same_rules() -> None:
    """Latent attention: the head_dim of the file is not the width of queries and keys."""
    path = DATA / "configs" / "glm-5.2.json"
    inline = run_commcalc("presets", "show", path.read_text(), "--kind", "model", "--json").json
    assert inline["values"] == run_commcalc("presets", "show", str(path), "--json").json["values"]


M3 = {**SLIDING, "model_type": "minimax_m3", "num_local_experts": 8, "num_experts_per_tok": 2}
GLM = {**MLA, "model_type": "glm_moe_dsa", "q_lora_rank": 16, "num_hidden_layers": 8}
GLM4 = {**SLIDING, "model_type": "glm4_moe", **EXPERTS}
GEMMA = {**SLIDING, "model_type": "gemma3"}
LLAMA4 = {
    **SLIDING, "model_type": "llama4", "intermediate_size_mlp": 100, "num_local_experts": 8, "num_experts_per_tok": 1,
}  # fmt: skip

# A file, and the one error that it gives, with the key of the file at its place.
WRONG = [
    # Items of lists that are none.
    ({**GLM4, "moe_layer_freq": [0, [], 1, 1, 1, 1, 1, 1]}, "a list where one value is expected", "moe_layer_freq"),
    ({**GLM4, "moe_layer_freq": [{}, 0, 1, 1, 1, 1, 1, 1]}, "a mapping where one value is expected", "moe_layer_freq"),
    ({**GEMMA, "layer_types": [["x"], *["full_attention"] * 7]}, "a list where one value is expected", "layer_types"),
    (
        {**SLIDING, "model_type": "minimax", "attn_type_list": [[], *[1] * 7]},
        "a list where one value is expected",
        "attn_type_list",
    ),
    # What is neither 0 nor 1.
    ({**GLM4, "moe_layer_freq": ["0", *[1] * 7]}, "'0' is neither 0 nor 1", "moe_layer_freq"),
    ({**GLM4, "moe_layer_freq": [None] * 8}, "'null' is neither 0 nor 1", "moe_layer_freq"),
    ({**GLM4, "moe_layer_freq": [1] * 7 + [-1]}, "'-1' is neither 0 nor 1", "moe_layer_freq"),
    ({**GLM4, "moe_layer_freq": [1] * 7 + [True]}, "'true' is neither 0 nor 1", "moe_layer_freq"),
    ({**GLM4, "moe_layer_freq": "2"}, "'2' is no whole number", "moe_layer_freq"),
    ({**GLM4, "moe_layer_freq": True}, "'true' is no whole number", "moe_layer_freq"),
    (
        {**M3, "sparse_attention_config": {"sparse_attention_freq": ["0"] * 8}},
        "'0' is neither 0 nor 1",
        "sparse_attention_freq",
    ),
    ({**SLIDING, "model_type": "minimax", "attn_type_list": ["1"] * 8}, "'1' is none of 0, 1", "attn_type_list"),
    # One value or a mapping where a list belongs, and the reverse.
    ({**GEMMA, "layer_types": "full_attention"}, "one value where a list is expected", "layer_types"),
    ({**GEMMA, "layer_types": {"a": 1}}, "a mapping where a list is expected", "layer_types"),
    ({**GEMMA, "layer_types": []}, "layer_types lists 0 layers of 8", "layer_types"),
    ({**QWEN_MOE, "mlp_only_layers": 3}, "one value where a list is expected", "mlp_only_layers"),
    ({**LLAMA4, "moe_layers": 3}, "one value where a list is expected", "moe_layers"),
    ({**GLM4, "moe_layer_freq": {"a": 1}}, "a mapping where one value is expected", "moe_layer_freq"),
    ({**GLM, "index_topk_pattern": ["F"] * 8}, "a list where one value is expected", "index_topk_pattern"),
    (
        {**M3, "sparse_attention_config": {"sparse_attention_freq": 3}},
        "one value where a list is expected",
        "sparse_attention_freq",
    ),
    ({**M3, "sparse_attention_config": [1]}, "a list where a mapping is expected", "sparse_attention_config"),
    ({**LLAMA, "quantization_config": [1]}, "a list where a mapping is expected", "quantization_config"),
    ({**LLAMA, "quantization_config": "gptq"}, "one value where a mapping is expected", "quantization_config"),
    ({**LLAMA, "num_key_value_heads": [2]}, "a list where one value is expected", "num_key_value_heads"),
    # Sizes of groups of quantised weights.
    ({**LLAMA, "quantization_config": {"group_size": "128"}}, "'128' is no size of a group", "group_size"),
    ({**LLAMA, "quantization_config": {"group_size": "0x80"}}, "'0x80' is no size of a group", "group_size"),
    ({**LLAMA, "quantization_config": {"group_size": -2}}, "'-2' is no size of a group", "group_size"),
    ({**LLAMA, "quantization_config": {"group_size": True}}, "'true' is no size of a group", "group_size"),
    (
        {**LLAMA, "quantization_config": {"weight_block_size": [128, [128]]}},
        "what stands here is no size of a group",
        "weight_block_size",
    ),
    (
        {**LLAMA, "quantization_config": {"config_groups": {"group_0": {"weights": {"group_size": "64"}}}}},
        "'64' is no size of a group",
        "group_size",
    ),
    # Numbers that are text, by the key of the file.
    ({**GLM4, "moe_intermediate_size": "64"}, "'64' is no whole number", "moe_intermediate_size"),
    ({**GLM4, "n_shared_experts": "2"}, "'2' is no whole number", "n_shared_experts"),
    ({**GLM4, "n_routed_experts": "x"}, "'x' is no whole number", "n_routed_experts"),
    ({**GLM4, "n_routed_experts": -1}, "'-1' is below zero", "n_routed_experts"),
    ({**LLAMA4, "intermediate_size": "x"}, "'x' is no whole number", "intermediate_size"),
    ({**LLAMA, "n_layer": [2], "num_hidden_layers": None}, "a list where one value is expected", "n_layer"),
    # Words and lengths of indexers.
    ({**GLM, "indexer_types": ["x"] * 8}, "'x' is neither full nor shared", "indexer_types"),
    ({**GLM, "indexer_types": ["full"]}, "indexer_types lists 1 layers of 8", "indexer_types"),
    ({**GLM, "index_topk_pattern": "FS"}, "index_topk_pattern has 2 letters for 8 layers", "index_topk_pattern"),
    ({**GLM, "index_topk_pattern": "FFFFFFFX"}, "'X' is neither F (full) nor S (shared)", "index_topk_pattern"),
    (
        {**M3, "sparse_attention_config": {"sparse_attention_freq": [1] * 60}},
        "sparse_attention_freq lists 60 layers of 8",
        "sparse_attention_freq",
    ),
    # Experts where there are none.
    ({**LLAMA, "num_local_experts": 8}, "llama has no experts, and here are 8", "num_local_experts"),
    ({**SLIDING, "model_type": "qwen3", "num_experts": 8}, "qwen3 has no experts, and here are 8", "num_experts"),
    (
        {**LLAMA, "mlp_layer_types": ["dense", "sparse"]},
        "a layer is sparse, and llama has no experts",
        "mlp_layer_types",
    ),
    (
        {**GLM4, "n_routed_experts": 0, "mlp_layer_types": ["sparse"] * 8},
        "a layer is sparse, and the file has no experts",
        "mlp_layer_types",
    ),
    # Steps of zero, by which the classes divide.
    ({**QWEN_MOE, "decoder_sparse_step": 0}, "'0' is not above zero", "decoder_sparse_step"),
    ({**QWEN_MOE, "decoder_sparse_step": 0, "mlp_only_layers": [1]}, "'0' is not above zero", "decoder_sparse_step"),
    ({**LLAMA4, "interleave_moe_layer_step": 0}, "'0' is not above zero", "interleave_moe_layer_step"),
    ({**LLAMA4, "no_rope_layer_interval": 0}, "'0' is not above zero", "no_rope_layer_interval"),
    ({**GLM4, "moe_layer_freq": 0}, "'0' is not above zero", "moe_layer_freq"),
    ({**GEMMA, "sliding_window_pattern": 0}, "'0' is not above zero", "sliding_window_pattern"),
    (
        {**SLIDING, "model_type": "qwen3_next", "full_attention_interval": 0},
        "'0' is not above zero",
        "full_attention_interval",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("config", "message", "key"), WRONG, ids=[f"{key}: {told}" for _, told, key in WRONG])
def test_what_a_file_has_in_the_wrong_form_is_an_error_at_its_place(
    config: dict[str, object], message: str, key: str
) -> None:
    text = json.dumps(config)
    (problem,) = problems_of(config)
    assert problem.message == message
    place, told = str(problem.where).split(" ")
    assert (place.rsplit(":", 1)[0], told) == ("config.json:1", key)
    assert int(place.rsplit(":", 1)[1]) > text.index(f'"{key}"') + len(key) + 2  # the value, not the key


def test_everything_wrong_with_a_file_is_told_at_once() -> None:
    told = problems_of({**GLM4, "moe_layer_freq": ["0"] * 8, "n_shared_experts": "2", "head_dim": [1]})
    assert [str(problem.where).split(" ")[1] for problem in told] == ["head_dim", "moe_layer_freq", "n_shared_experts"]


def test_no_experts_are_no_error_where_there_are_none() -> None:
    for more in ({"num_local_experts": 0}, {"num_experts": None}, {"mlp_layer_types": ["dense"] * 2}):
        assert read(**LLAMA, **more).num_experts == 0
    assert read(**{**GLM4, "n_routed_experts": None}).num_experts == 0
    dense = read(**{**SLIDING, "model_type": "mixtral", "num_local_experts": 0})
    assert (dense.num_experts, dense.intermediate_size) == (0, 96)
    assert read(**SLIDING, model_type="gpt_oss", num_local_experts=0).router_bias is False


def test_layers_of_llama_4() -> None:
    """Llama4TextConfig: an empty moe_layers is a list, an empty no_rope_layers is none."""
    assert sparse(read(**LLAMA4, moe_layers=[])) == []
    assert sparse(read(**LLAMA4, moe_layers=None)) == [*range(8)]
    assert sparse(read(**LLAMA4, moe_layers=[5, 1, 1])) == [1, 5]
    assert full(read(**LLAMA4, no_rope_layers=[])) == [3, 7]
    assert full(read(**LLAMA4, no_rope_layer_interval=2)) == [1, 3, 5, 7]
    assert full(read(**LLAMA4, no_rope_layer_interval=1)) == [*range(8)]


def test_lists_that_say_the_same_of_every_layer() -> None:
    """What only other layers have is not read then."""
    whole = ["full_attention"] * 8
    qwen = read(**SLIDING, model_type="qwen3_next", layer_types=whole)
    assert (full(qwen), qwen.linear_num_value_heads) == ([*range(8)], 0)
    mimo = read(**SLIDING, model_type="mimo_v2_flash", layer_types=whole)
    assert (full(mimo), mimo.sliding_num_key_value_heads, mimo.attention_sinks) == ([*range(8)], 0, False)
    assert full(read(**SLIDING, model_type="qwen3_next", full_attention_interval=1)) == [*range(8)]
    last = read(**SLIDING, model_type="gemma4", hidden_size_per_layer_input=0, layer_types=["sliding_attention"] * 8)
    assert full(last) == [7]  # Gemma4TextConfig: the last in any case


def test_long_lists_are_read_at_once() -> None:
    layers = 19_000
    qwen = {**QWEN_MOE, "num_hidden_layers": layers, "mlp_only_layers": [layers - 1] * 900}
    start = time.monotonic()
    assert count_of(read(**qwen), sparse=True) == layers - 1
    qwen["mlp_only_layers"] = [*range(0, layers, 2)]
    assert count_of(read(**qwen), sparse=True) == layers // 2
    assert time.monotonic() - start < 2


# Source: transformers 5.24.0, the fields of each class.
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "qwen2_moe"}, {"num_key_value_heads": 16, "shared_expert_intermediate_size": 5632}),
        ({"model_type": "qwen2_moe", "qkv_bias": False}, {"attention_bias": False}),
        ({"model_type": "qwen2_vl"}, {"num_key_value_heads": 8}),
        ({"model_type": "qwen3_vl", "use_sliding_window": True}, {"num_key_value_heads": 32, "sliding_window": 0}),
        ({"model_type": "qwen3_5"}, {"num_key_value_heads": 4, "linear_num_value_heads": 32, "num_experts": 0}),
        ({"model_type": "qwen3_5_moe"}, {"num_key_value_heads": 2, "num_experts": 256, "num_experts_per_tok": 8}),
        (
            {"model_type": "qwen3_next", "attention_bias": True},
            {"attention_bias": True, "attention_output_bias": True, "shared_expert_intermediate_size": 512},
        ),
        ({"model_type": "gemma", "attention_bias": True}, {"attention_bias": True, "attention_output_bias": True}),
        ({"model_type": "gemma3", "attention_bias": True}, {"attention_bias": True, "attention_output_bias": True}),
        ({"model_type": "gemma4", "hidden_size_per_layer_input": 0}, {"num_key_value_heads": 4}),
        ({"model_type": "mixtral"}, {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96}),
        ({"model_type": "gpt_oss"}, {"num_experts": 128, "num_experts_per_tok": 4}),
        ({"model_type": "llama4"}, {"num_experts": 16, "num_experts_per_tok": 1}),
        ({"model_type": "mimo_v2_flash"}, {"sliding_window": 129, "num_experts": 256, "moe_intermediate_size": 2048}),
        ({"model_type": "glm4_moe"}, {"num_experts": 128, "shared_expert_intermediate_size": 1408}),
        (
            {"model_type": "deepseek_v3"},
            {"q_lora_rank": 1536, "kv_lora_rank": 512, "head_dim": 192, "num_experts": 256, "first_k_dense_replace": 3},
        ),
        ({"model_type": "deepseek_v3", "q_lora_rank": None}, {"q_lora_rank": 0}),
        ({"model_type": "deepseek_v2", "num_experts_per_tok": 6}, {"shared_expert_intermediate_size": 2 * 1407}),
        ({"model_type": "deepseek_v2", "num_experts_per_tok": 6, "mlp_bias": True}, {"mlp_bias": True}),
        ({"model_type": "deepseek_v32"}, {"index_n_heads": 64, "index_head_dim": 128, "index_layers": 8}),
        ({"model_type": "glm_moe_dsa"}, {"q_lora_rank": 2048, "v_head_dim": 256, "index_n_heads": 32}),
        ({"model_type": "glm4_moe_lite"}, {"q_lora_rank": 768, "qk_nope_head_dim": 192, "num_experts_per_tok": 4}),
    ],
    ids=str,
)
def test_what_a_class_fills_in(config: dict[str, object], expected: dict[str, object]) -> None:
    usual = {key: value for key, value in SLIDING.items() if key not in ("num_key_value_heads", "head_dim")}
    model = read(**{**usual, "num_attention_heads": 32, **config})
    assert {key: getattr(model, key) for key in expected} == expected


@pytest.mark.parametrize("family", ["gemma", "gemma4", "qwen3_next", "qwen3_5", "glm4_moe", "starcoder2", "stablelm"])
def test_kv_heads_that_a_class_does_not_take_as_null(family: str) -> None:
    (problem,) = problems_of(
        {**SLIDING, "model_type": family, "num_key_value_heads": None, "hidden_size_per_layer_input": 0}
    )
    assert problem.message == f"num_key_value_heads is null, which {family} does not allow"


@pytest.mark.parametrize("family", ["smollm3", "qwen2_moe"])
def test_windows_that_no_field_describes_are_refused(family: str) -> None:
    (problem,) = problems_of({**SLIDING, "model_type": family, "use_sliding_window": True})
    assert problem.message == f"{family}: use_sliding_window true is not described yet"
