"""``config.json`` files as people have them: every reading, exact parameter counts included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from commcalc.catalog.models import read_model
from commcalc.catalog.presets import load
from commcalc.document import parse_document
from commcalc.errors import CommcalcError
from commcalc.ingest.families import FAMILIES
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
        "moe_layers": model.moe_layers,
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


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("mixtral-8x7b.json", ["mixture of experts (8 experts in 32 layers)"]),
        ("glm-5.2.json", ["mixture of experts (256 experts in 75 layers)", "latent attention (kv_lora_rank 512)"]),
        ("gemma-4-26b-a4b.json", ["mixture of experts", "layers with other heads (5 global layers)"]),
        ("minimax-m2.5.json", ["query and key norms over all heads together"]),
    ],
)
def test_the_ledger_says_what_it_cannot_price(name: str, parts: list[str]) -> None:
    ran = run_commcalc("ledger", "--model", str(DATA / "configs" / name), "--tp", "2")
    assert ran.status == 2
    for part in parts:
        assert f"error: the ledger cannot price this yet: {part}" in ran.err


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
    with pytest.raises(CommcalcError, match="unknown model family 'MambaForCausalLM'"):
        read(**config, architectures=["MambaForCausalLM"])
    with pytest.raises(CommcalcError, match="neither model_type nor architectures says which family this is"):
        read(text_config=config)


def test_quantisation_changes_only_what_stays_together_and_unknown_keys_nothing() -> None:
    plain = read(**LLAMA)
    quantized = read(
        **LLAMA, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]}, rope_theta=5e5
    )
    assert plain == quantized._replace(quantization_group_size=1)


def test_layers_with_experts() -> None:
    """Qwen3MoeConfig: not in mlp_only_layers, and every decoder_sparse_step-th."""
    base = {
        "model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 4,
        "vocab_size": 10, "num_key_value_heads": 4, "intermediate_size": 96, "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    }  # fmt: skip
    assert read(**base).moe_layers == 8
    assert read(**base, decoder_sparse_step=2).moe_layers == 4
    assert read(**base, mlp_only_layers=[0, 1, 2]).moe_layers == 5
    assert read(**base).intermediate_size is None
    assert read(**base, decoder_sparse_step=2).intermediate_size == 96
    with pytest.raises(CommcalcError, match="num_experts_per_tok 9 is above num_experts"):
        read(**{**base, "num_experts_per_tok": 9})


def test_kimi_takes_no_generation_setting_for_its_routing() -> None:
    config = {
        "model_type": "kimi_k2", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 10,
        "intermediate_size": 96, "n_routed_experts": 16, "num_experts_per_tok": 8, "top_k": 50, "n_shared_experts": 1,
        "moe_intermediate_size": 32, "first_k_dense_replace": 1, "kv_lora_rank": 16, "q_lora_rank": None,
        "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "num_key_value_heads": 4,
    }  # fmt: skip
    model = read(**config)
    assert (model.num_experts_per_tok, model.moe_layers, model.q_lora_rank, model.head_dim) == (8, 3, 0, 12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"intermediate_size": None}, "intermediate_size is missing"),
        ({"hidden_size": "64"}, None),
        ({"hidden_size": 64.5}, "is no whole number"),
        ({"num_attention_heads": True}, "is no whole number"),
        ({"num_attention_heads": 5, "num_key_value_heads": 2}, "num_attention_heads 5 mod num_key_value_heads 2 = 1"),
        ({"attention_bias": "yes"}, "'yes' is neither true nor false"),
        ({"hidden_size": [64]}, "hidden_size is missing"),
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


def test_layer_lists_must_have_a_word_for_each_layer() -> None:
    config = json.loads((DATA / "configs" / "gemma-4-26b-a4b.json").read_text())
    config["text_config"]["layer_types"].pop()
    with pytest.raises(CommcalcError, match="layer_types lists 29 layers of 30"):
        read(**config)


def test_every_family_reads_a_plain_file() -> None:
    """No family stumbles over a file that only has the usual keys."""
    usual = {
        **LLAMA, "num_key_value_heads": 4, "head_dim": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "v_head_dim": 8,
        "qk_rope_head_dim": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
        "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "num_hidden_layers": 4, "max_position_embeddings": 64,
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
