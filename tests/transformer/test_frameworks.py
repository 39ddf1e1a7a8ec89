"""What each framework accepts, against lists made from the frameworks' own rules (tests/data/divisibility.yaml)."""

from __future__ import annotations

import pytest
import yaml

from commcalc.catalog.assign import Assignment
from commcalc.catalog.job import Request, resolve_job
from commcalc.transformer.limits import limits
from commcalc.transformer.work import Framework
from conftest import DATA, run_commcalc

TABLE = yaml.safe_load((DATA / "divisibility.yaml").read_text())
CASES = [(model, framework, accepted) for model, row in TABLE["models"].items() for framework, accepted in row.items()]


def legal(model: str, framework: str) -> list[int]:
    given = str(DATA / model) if model.startswith("configs/") else model
    chosen = Assignment("parallelism.framework", framework, "--framework")
    plain = Assignment(
        "model.quantization_group_size", "1", "--set model.quantization_group_size=1"
    )  # as the lists say
    job = resolve_job(Request(model=given, assignments=[chosen, plain]))
    if job.model.num_experts and framework == "megatron":  # which trains no experts without
        chosen_sp = Assignment("parallelism.sp", "true", "--sp")
        job = resolve_job(Request(model=given, assignments=[chosen, plain, chosen_sp]))
    rules = limits(job.model, job.parallel, job.work)
    return [tp for tp in TABLE["asked"] if all(rule.allows(tp) for rule in rules)]


@pytest.mark.parametrize(
    ("model", "framework", "accepted"), CASES, ids=[f"{model[:24]}-{framework}" for model, framework, _ in CASES]
)
def test_accepted(model: str, framework: str, accepted: list[int] | None) -> None:
    # torchtitan also splits the 4096 tokens of the sequence; all degrees of these lists that divide 2048 stay.
    sequence = [tp for tp in accepted or [] if framework != "torchtitan" or 2048 % tp == 0]
    assert legal(model, framework) == sequence


@pytest.mark.parametrize("model", ["gpt3-175b", "palm-540b", "{family: gpt_bigcode, num_attention_heads: 48}"])
def test_what_transformers_has_no_plan_for(model: str) -> None:
    """No class of that name, or one without base_model_tp_plan (configuration_gpt_bigcode.py, transformers 5.24.0)."""
    assert legal(model, "hf") == []


def test_gathered_attention_keeps_every_kv_head_on_every_rank() -> None:
    """configuration_phi3.py: qkv_proj is colwise_gather_output."""
    ran = run_commcalc("degrees", "--model", "phi-4", "--framework", "hf", "--tp", "8", "--json")
    assert (ran.status, ran.json["degrees"][0]["kv_replication"]) == (0, 8)


@pytest.mark.parametrize("model", TABLE["hf_free"])
def test_transformers_leaves_some_attention_whole(model: str) -> None:
    assert legal(model, "hf") == TABLE["asked"]


def test_every_framework_is_in_the_table() -> None:
    assert {framework for _, framework, _ in CASES} == {*Framework}


def test_the_framework_says_what_happens_to_few_kv_heads() -> None:
    """tp 16 on 8 KV heads: copies in vLLM, a gathered QKV in Megatron, refused by torchtitan."""
    asked = {}
    for framework in ("vllm", "megatron", "torchtitan"):
        ran = run_commcalc("degrees", "--model", "qwen3-8b", "--framework", framework, "--tp", "16", "--json")
        asked[framework] = (ran.status, ran.json["degrees"][0]["legal"])
    assert asked == {"vllm": (0, True), "megatron": (0, True), "torchtitan": (3, False)}
    gathered = run_commcalc("ledger", "--model", "qwen3-8b", "--framework", "megatron", "--tp", "16", "--json").json
    assert any(row["collective"] == "all_gather" and row["op"] == "kv_heads" for row in gathered["rows"])
    assert gathered["inputs"]["sources"]["parallelism.kv"] == "habit of megatron"


def test_a_class_without_a_plan_is_refused_with_the_reason() -> None:
    ran = run_commcalc("degrees", "--model", "gpt2", "--framework", "hf", "--tp", "2")
    assert ran.status == 3
    assert "error: tp 2 is not legal for gpt2: transformers has no tp_plan for family gpt2" in ran.err


def test_megatron_trains_experts_only_with_sequence_parallelism() -> None:
    """moe_layer.py raises a ValueError for training with TP and without SP."""
    asked = ["degrees", "--model", str(DATA / "configs" / "mixtral-8x7b.json"), "--framework", "megatron", "--tp", "2"]
    ran = run_commcalc(*asked)
    assert ran.status == 3
    assert "megatron trains experts on more than one TP rank only with sequence parallelism" in ran.err
    assert "hint: --sp\n" in ran.err
    assert run_commcalc(*asked, "--sp").status == 0
    assert run_commcalc(*asked, "--phase", "decode").status == 0


def test_a_quantised_block_fits_the_columns_of_attention_too() -> None:
    """vLLM fp8_utils.py: 16 heads of 64 on 16 ranks are 64 columns, half a block of 128; on 8 ranks a whole one."""
    model = "{num_attention_heads: 16, num_key_value_heads: 16, head_dim: 64, quantization_group_size: 128}"
    ran = run_commcalc("degrees", "--model", model, "--framework", "vllm", "--tp", "8,16", "--json")
    assert [degree["legal"] for degree in ran.json["degrees"]] == [True, False]
    assert "64 columns on a rank are 0.5 groups" in ran.json["degrees"][1]["reasons"][0]


def test_minimax_as_it_is_stored_needs_expert_parallelism_beyond_tp_4() -> None:
    """Its FP8 blocks of 128 cut an expert's 1536 columns into 12; vLLM runs it at TP 4, or TP 8 with experts whole."""
    model = str(DATA / "configs" / "minimax-m2.5.json")
    ran = run_commcalc("degrees", "--model", model, "--framework", "vllm", "--tp", "4,8", "--json")
    assert [degree["legal"] for degree in ran.json["degrees"]] == [True, False]
    assert "192 columns on a rank are 1.5 groups" in ran.json["degrees"][1]["reasons"][0]


def test_a_framework_is_offered_only_what_it_can_do() -> None:
    for framework in ("hf", "torchtitan"):
        ran = run_commcalc("degrees", "--model", "qwen3-8b", "--framework", framework, "--tp", "16")
        assert (ran.status, "--kv replicate" in ran.err) == (3, False)
    assert "--kv replicate" in run_commcalc("degrees", "--model", "qwen3-8b", "--tp", "16").err


def test_torchtitan_splits_the_sequence_too() -> None:
    """``tokens % (tp * 2cp)``, parallel_dims.py: 1000 tokens on 8 ranks are 62.5 each of two halves."""
    ran = run_commcalc("degrees", "--model", "llama-3-8b", "--framework", "torchtitan", "--tp", "8", "--seq", "1000")
    assert ran.status == 3
    assert "1000 tokens of a sequence mod 16 (8 ranks x 2) = 8" in ran.err
    assert (
        run_commcalc(
            "degrees", "--model", "llama-3-8b", "--framework", "torchtitan", "--tp", "8", "--seq", "1024"
        ).status
        == 0
    )
