"""``commcalc verify`` as a process: what it prints, its documents, its exit statuses, and wrong input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from commcalc.accounting.ledger import Ledger, build
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Parallelism, Workload
from conftest import Inside, run_commcalc

PRODUCT = "A[I_X, J] @ B[J_X, K] -> C[I, K]"


def test_the_default_run() -> None:
    ran = run_commcalc("verify")
    assert (ran.status, ran.err) == (0, "")
    first, _, title, *rest = ran.out.splitlines()
    told = re.fullmatch(
        r"(\d+) runs of layouts and 267 runs of collectives in float64, seed 0: ([\d,]+) checks, all passed", first
    )
    assert told and int(told[1]) > 170 and int(told[2].replace(",", "")) > 15000
    assert title == "Layouts: relative errors against one device, and the rows of the ledger that were counted"
    assert any(line.split()[:6] == ["megatron-sp,", "tp", "8,", "KV", "heads", "gathered"] for line in rest)
    assert any(line.startswith("all_reduce by double-binary-tree ") for line in rest)
    assert "FAILED" not in ran.out
    again = [run_commcalc("verify", "--layout", "megatron-sp", "--tp", "4").out for _ in range(2)]
    assert again[0] == again[1]


def test_the_document() -> None:
    ran = run_commcalc("verify", "--layout", "megatron-sp", "--tp", "4", "--json")
    assert ran.status == 0
    found = ran.json
    assert found["schema"] == "commcalc/verify/1"
    assert (found["passed"], found["failed"], found["dtype"], found["seed"]) == (True, 0, "float64", 0)
    assert found["expression"] is None
    row = next(check for check in found["checks"] if check["what"] == "wire_bytes")
    assert row == {
        "layout": "megatron-sp",
        "mesh": {"tp": 4},
        "case": "gqa gated sequential",
        "note": "KV heads copied",
        "what": "wire_bytes",
        "where": "embedding, forward embedding: reduce_scatter of X[T, D]{U_tp}",
        "expected": 960,
        "at_most": False,
        "found": 960,
        "found_is": "exact",
        "passed": True,
        "message": None,
    }
    error = next(check for check in found["checks"] if check["what"] == "gradient_error")
    assert (error["expected"], error["at_most"], error["found"]) == (1e-12, True, 1e-14)
    names = {check["what"] for check in found["checks"]}
    assert names == {
        "forward_error", "copies", "loss_error", "gradient_error", "gradient_copies", "input_gradient_error",
        "gradient_norm_error", "sgd_update_error", "sgd_update_copies", "adam_update_error", "adam_update_copies",
        "row", "payload_bytes", "wire_bytes", "steps", "total_wire_bytes", "collectives",
    }  # fmt: skip


def test_every_strategy_of_an_expression() -> None:
    ran = run_commcalc("verify", PRODUCT, "--mesh", "X=4", "--json")
    assert ran.status == 0
    cases = list(dict.fromkeys(check["case"] for check in ran.json["checks"]))
    listed = run_commcalc("matmul", PRODUCT, "--mesh", "X=4", "--dim", "I=8,J=8,K=8", "--all", "--json").json
    assert cases == [one["name"] for one in listed["strategies"]]
    assert ran.json["expression"] == PRODUCT
    assert ran.json["assumptions"][0] == "sizes: I=8, J=8, K=8; --dim gives others"
    sent = [check["found"] for check in ran.json["checks"]
            if check["what"] == "wire_bytes" and "backward" not in check["where"]]  # fmt: skip
    assert sum(sent) == sum(one["wire_bytes"] for one in listed["strategies"])


def test_a_change_of_sharding_from_stdin() -> None:
    ran = run_commcalc("verify", "-", "--mesh", "X=4", stdin="A[I_X, J] -> A[I, J_X]\n")
    assert ran.status == 0
    assert ran.out.startswith("2 runs of strategies in float64, seed 0: 8 checks, all passed\n")


def test_a_model_in_small() -> None:
    ran = run_commcalc("verify", "--model", "llama-3-70b", "--tp", "16", "--kv", "replicate", "--layout", "megatron")
    assert ran.status == 0
    row = next(line for line in ran.out.splitlines() if "megatron, tp 16, KV heads copied" in line)
    assert row.split()[-4:] == ["14", "28/28", "14/14", "passed"]
    assert "sizes made small (D 40, N 64, K 8, H 16, F 48, V 112, P 16)" in ran.out


# A preset in small: status 0, and what is told of it.
MODELS = [
    (["--model", "deepseek-v3", "--tp", "4"], "LQ 12, LKV 10, HC 16, R 8, HV 12, P 8; layers dense, moe, moe)"),
    (["--model", "mixtral-8x7b", "--framework", "hf", "--layout", "megatron"],
     "- run as hf runs it: the tp_plan of transformers 5.24.0\n"),
    (["--model", "qwen3-next-80b-a3b", "--tp", "2"], "NK 16, NV 32, HK 8, HL 12, CONV 3, P 8; layers linear, full, linear)"),
    (["--model", "gpt-oss-20b", "--framework", "vllm", "--phase", "decode", "--layout", "megatron", "--tp", "8"],
     "- windows and chunks are left out: a head looks at the same tokens wherever it is\n"),
    (["--model", "gemma-4-26b-a4b", "--kv", "gather", "--tp", "4"], "megatron, tp 4, KV heads gathered "),
    (["--model", "minimax-text-01", "--tp", "4"], "- the decay of lightning attention, a constant of each head, is left out\n"),
    (["--model", "minimax-m2.5", "--framework", "hf", "--layout", "megatron", "--tp", "4", "--recompute", "full"],
     "megatron, tp 4, as hf runs it "),
    (["--model", "llama-4-scout", "--layout", "megatron-sp", "--tp", "4"], "or the sigmoid of a single one"),
    (["--model", "mimo-v2-flash", "--kv", "replicate", "--tp", "8"], "layers full dense, sliding moe, full moe, sliding moe)"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "told"), MODELS, ids=str)
def test_presets_of_every_kind_in_small(args: list[str], told: str, inside: Inside) -> None:
    ran = inside("verify", *args)
    assert (ran.status, ran.err) == (0, "")
    assert told in ran.out


# Data-parallel ranks and pipeline stages: status 0, and the row of each run.
SPLIT = [
    (["--dp", "4", "--zero", "3", "--dp-shard", "2"], "  megatron-sp, tp 2, dp 4, ZeRO 3 on 2 ranks a copy "),
    (["--dp", "3", "--zero", "1", "--set", "workload.bucket_bytes=10000B"], "  megatron-sp, tp 2, dp 3, ZeRO 1, buckets of 10,000 B "),
    (["--model", "gemma-2-9b", "--pp", "3"], "  megatron-sp, tp 2, pp 3 "),
    (["--model", "deepseek-v3", "--dp", "2", "--pp", "2", "--zero", "2"], "  megatron-sp, tp 2, dp 2, pp 2, ZeRO 2 "),
    (["--pp", "2", "--set", "parallelism.schedule=interleaved", "--set", "parallelism.virtual_stages=2"],
     "  megatron-sp, tp 2, pp 2, 2 chunks a stage "),
    (["--model", "llama-3-70b", "--cp", "2"], "  megatron-sp, tp 2, cp 2, context by ring, early and late parts of a sequence "),
    (["--model", "deepseek-v3", "--cp", "2", "--cp-comm", "ulysses", "--dp", "2", "--zero", "3", "--ep", "4"],
     "  megatron-sp, tp 2, cp 2, dp 2, ep 4, etp 2, ZeRO 3, context by ulysses, tokens to experts by all_to_all, early and late parts of a sequence "),
    (["--model", "gpt-oss-20b", "--cp", "4", "--cp-comm", "all_gather"],
     "  megatron-sp, tp 2, cp 4, context by all_gather, early and late parts of a sequence "),
    (["--model", "deepseek-v3", "--dp", "4", "--ep", "4", "--etp", "2"],
     "  megatron-sp, tp 2, dp 4, ep 4, etp 2, ZeRO 0, tokens to experts by all_to_all "),
    (["--model", "mixtral-8x7b", "--dp", "2", "--ep", "2", "--etp", "1", "--dispatch", "all_gather", "--zero", "3"],
     "  megatron-sp, tp 2, dp 2, ep 2, etp 1, ZeRO 3, tokens to experts by all_gather "),
    (["--model", "llama-3-70b", "--cp", "2", "--micro-batch", "3"], "context by ring, early and late parts of 3 sequences "),
    (["--model", "deepseek-v3", "--dp", "2", "--ep", "4", "--etp", "1", "--dispatch", "deduplicated"],
     "ep 4, etp 1, ZeRO 0, tokens to experts by deduplicated "),
    (["--model", "mixtral-8x7b", "--dp", "2", "--ep", "4", "--etp", "1", "--dispatch", "deduplicated", "--set", "parallelism.ep_nodes=2",
      "--set", "parallelism.node_limit=1"], "tokens to experts by deduplicated over 2 nodes, of which 1 "),
    (["--model", "deepseek-v3", "--dp", "2", "--ep", "2", "--set", "workload.capacity_factor=1.5", "--set", "workload.dispatch_dtype=fp8",
      "--set", "workload.scale_block=16"], "by all_to_all, a capacity of 1.5, in fp8 in blocks of 16, back in bf16 "),
    (["--model", "mixtral-8x7b", "--dp", "2", "--ep", "2", "--set", "workload.combine_dtype=fp8"],
     "what is narrower on its way to experts and back is counted so and keeps its digits"),
    (["--model", "mixtral-8x7b", "--dp", "2", "--ep", "2", "--etp", "1", "--dispatch", "deduplicated"],
     "each rank has as many tokens for every choice that one may make: experts are drawn"),
    (["--dp", "2", "--framework", "torchtitan", "--model", "llama-3-70b", "--zero", "3"],
     "  megatron-sp, tp 2, dp 2, as torchtitan runs it, ZeRO 3 "),
]  # fmt: skip


@pytest.mark.parametrize(("args", "told"), SPLIT, ids=str)
def test_data_parallel_ranks_and_stages(args: list[str], told: str, inside: Inside) -> None:
    ran = inside("verify", *args, "--tp", "2", "--layout", "megatron-sp")
    assert (ran.status, ran.err) == (0, "")
    assert told in ran.out


def test_the_mesh_of_a_run_is_in_the_document(inside: Inside) -> None:
    ran = inside("verify", "--dp", "2", "--pp", "2", "--zero", "1", "--tp", "2", "--layout", "megatron", "--json")
    assert {tuple(check["mesh"].items()) for check in ran.json["checks"]} == {(("tp", 2), ("dp", 2), ("pp", 2))}
    assert {check["note"] for check in ran.json["checks"]} == {"ZeRO 1"}
    where = {check["where"] for check in ran.json["checks"] if check["what"] == "wire_bytes"}
    assert "stage 1, update, update gradients: reduce_scatter of gradients" in where
    assert "stage 0, to next stage, forward send activation: send_recv of X" in where


def test_layers_that_are_asked_for_stay(inside: Inside) -> None:
    ran = inside(
        "verify", "--model", "deepseek-v3", "--set", "model.num_hidden_layers=4", "--tp", "2", "--layout", "megatron"
    )
    assert "; layers dense, dense, dense, moe)" in ran.out


def test_degrees_that_are_not_legal_are_left_out_unless_asked_for() -> None:
    ran = run_commcalc("verify", "--model", "qwen2.5-7b", "--layout", "megatron")
    assert ran.status == 0
    assert "- left out: tp 8 is not legal for qwen2.5-7b: num_attention_heads 28 mod 8 = 4" in ran.out
    asked = run_commcalc("verify", "--model", "qwen2.5-7b", "--layout", "megatron", "--tp", "8")
    assert asked.status == 3
    assert "error: tp 8 is not legal for qwen2.5-7b: num_attention_heads 28 mod 8 = 4" in asked.err


LEFT_OUT = [
    (["--phase", "decode", "--tp", "4"], "- left out: megatron-sp: tp 4 is not legal for model: sequence_length 1 mod 4 = 1"),
    (["--kv", "refuse", "--set", "model.num_key_value_heads=2", "--tp", "1..8:x2", "--seq", "8"],
     "- left out: tp 4 is not legal for model: num_key_value_heads 2 mod 4 = 2"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "told"), LEFT_OUT, ids=str)
def test_what_other_options_make_illegal_is_left_out(args: list[str], told: str, inside: Inside) -> None:
    ran = inside("verify", *args)
    assert (ran.status, told in ran.out) == (0, True)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_inference_has_no_gradients(phase: str) -> None:
    ran = run_commcalc("verify", "--phase", phase, "--layout", "megatron", "--tp", "4", "--json")
    assert ran.status == 0
    assert {check["what"] for check in ran.json["checks"]} == {
        "forward_error", "copies", "row", "payload_bytes", "wire_bytes", "steps", "total_wire_bytes", "collectives"
    }  # fmt: skip


def test_recomputation_repeats_the_rows() -> None:
    plain, again = (
        run_commcalc("verify", "--recompute", how, "--layout", "megatron", "--tp", "2", "--model", "{}", "--json").json
        for how in ("none", "full")
    )
    counted = [sum(check["what"] == "wire_bytes" for check in one["checks"]) for one in (plain, again)]
    assert counted == [13, 17]  # two layers with two collectives each, once more


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_short_formats(dtype: str) -> None:
    ran = run_commcalc("verify", "--layout", "megatron-sp", "--tp", "2", "--dtype", dtype, "--seed", "7", "--json")
    assert (ran.status, ran.json["seed"]) == (0, 7)
    assert ran.json["dtype"] == {"float32": "float32", "bf16": "bfloat16"}[dtype]


@pytest.mark.parametrize("style", ["csv", "jsonl", "markdown"])
def test_formats(style: str) -> None:
    ran = run_commcalc("verify", PRODUCT, "--mesh", "X=2", "--format", style)
    assert ran.status == 0
    if style == "jsonl":
        assert all(json.loads(line)["passed"] for line in ran.out.splitlines())
    elif style == "csv":
        assert ran.out.splitlines()[0] == (
            "layout,mesh,case,note,what,where,expected,at_most,found,found_is,passed,message"
        )  # fmt: skip
    else:
        assert "| strategy | result | gradients |" in ran.out


def test_every_check_is_explained() -> None:
    ran = run_commcalc("verify", "--layout", "megatron", "--tp", "2", "--explain")
    assert "T*D*2 B" in ran.out
    assert "wire = 2(n-1)/n * payload = 2*1/2 * 1,280 = 1,280 B" in ran.out
    assert "ring over 2" in ran.out


@pytest.mark.parametrize("style", ["csv", "jsonl"])
def test_records_are_explained(style: str, inside: Inside) -> None:
    ran = inside("verify", "--layout", "megatron", "--tp", "2", "--format", style, "--explain")
    first, *_ = ran.out.splitlines()
    assert first.endswith(",formula") if style == "csv" else "formula" in json.loads(first)
    assert "wire = 2(n-1)/n * payload" in ran.out


def test_layouts_in_any_case_and_all_of_them(inside: Inside) -> None:
    some, every = (inside("verify", "--layout", names, "--tp", "2", "--seq", "2") for names in ("Megatron", "all,none"))
    assert [some.out.count("  megatron, tp 2"), some.out.count("  none, tp 2")] == [1, 0]
    assert [every.out.count(f"  {name}, tp 2") for name in ("none", "megatron", "megatron-sp")] == [1, 1, 1]


def test_padding_that_is_set_is_run(inside: Inside) -> None:
    """57 rows of a vocabulary do not split two ways; 256 do."""
    args = ("verify", "--tp", "2", "--layout", "megatron", "--set", "model.vocab_size=57")
    assert inside(*args).status == 3
    for padding in (("--set", "parallelism.vocab_padding=megatron"), ("--vocab-padding", "megatron")):
        assert inside(*args, *padding).status == 0


def test_allowed_errors_are_told(inside: Inside) -> None:
    short = inside("verify", "--layout", "megatron", "--tp", "2", "--seq", "2", "--dtype", "bf16", "--json")
    told = "allowed are relative errors of 0.15, 0.3 of the gradient of one weight, 0.77 of the first step of Adam"
    assert told in short.json["assumptions"]
    assert "- allowed are relative errors of 1e-12\n" in inside("verify", PRODUCT, "--mesh", "X=2").out
    moved = inside("verify", "A[I_X] -> A[I]", "--mesh", "X=2")
    assert (
        "- gradients of a change of sharding are not run: they are changes of sharding too, the other way" in moved.out
    )


# Rounding alone: status 0, and more is allowed only where the same model on one device needs it.

ROUNDED = [
    ["--set", "model.hidden_size=1", "--tp", "2", "--layout", "megatron"],
    ["--set", "model.hidden_size=24", "--set", "model.head_dim=2", "--set", "model.qk_norm=head_dim", "--set",
     "model.norm=layernorm", "--tp", "3", "--layout", "none", "--dtype", "float32", "--seed", "51"],
    ["A[I_X] @ B[I_X] -> C[]", "--mesh", "X=2", "--dim", "I=4", "--dtype", "bf16", "--seed", "44"],
]  # fmt: skip


@pytest.mark.parametrize("args", ROUNDED, ids=str)
def test_rounding_alone_is_no_mismatch(args: list[str], inside: Inside) -> None:
    ran = inside("verify", *args)
    assert ran.status == 0
    assert "- rounding alone does more than that to this on one device, so that more is allowed: " in ran.out


@pytest.mark.parametrize("dtype", ["float64", "bf16"])
def test_a_loss_of_zero(dtype: str, inside: Inside) -> None:
    ran = inside("verify", "--set", "model.vocab_size=1", "--tp", "1", "--layout", "none", "--dtype", dtype)
    assert (ran.status, "Traceback" in ran.err) == (0, False)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bf16"])
def test_a_product_that_is_a_number(dtype: str, inside: Inside) -> None:
    ran = inside("verify", "A[I_X] @ B[I_X] -> C[]", "--mesh", "X=2", "--dtype", dtype)
    assert ran.out.startswith(f"2 runs of strategies in {dtype.replace('bf', 'bfloat')}, seed 0: 17 checks, all passed")


def test_strategies_tell_how_far_they_are(monkeypatch: pytest.MonkeyPatch, inside: Inside) -> None:
    told: list[tuple[int, str, int]] = []
    monkeypatch.setattr("commcalc.cli.output.Progress.at", lambda one, done: told.append((one.total, one.what, done)))
    monkeypatch.setattr("commcalc.cli.verify.Progress.at", lambda one, done: told.append((one.total, one.what, done)))
    inside("verify", PRODUCT, "--mesh", "X=2")
    assert told == [(5, "strategies", done) for done in range(1, 6)]


# A ledger that is wrong.


def miscounted(model: Model, parallel: Parallelism, work: Workload) -> Ledger:
    ledger = build(model, parallel, work)
    rows = tuple(row._replace(wire_bytes=row.payload_bytes) if row.op == "down_proj" else row for row in ledger.rows)
    return ledger._replace(rows=rows)


def test_a_mismatch_ends_with_status_1(monkeypatch: pytest.MonkeyPatch, inside: Inside) -> None:
    monkeypatch.setattr("commcalc.simulate.cases.build", miscounted)
    ran = inside("verify", "--layout", "megatron", "--tp", "4")
    assert ran.status == 1
    out, head = ran.out, ran.out.splitlines()
    told = re.search(r": ([\d,]+) checks, (\d+) failed$", head[0])
    assert told and int(told[1].replace(",", "")) > 2500 and int(told[2]) > 150
    assert head[1:4] == [
        "failed: wire_bytes of megatron on tp=4 (gqa gated sequential, KV heads copied)",
        "  at block.0, forward down_proj: all_reduce of P[T, D]{U_tp}: 1,920, expected 1,280",
        "  predicted are 1,280 B, a device sent 1,920 B",
    ]
    assert "FAILED" in out


def test_a_mismatch_is_in_the_document(monkeypatch: pytest.MonkeyPatch, inside: Inside) -> None:
    monkeypatch.setattr("commcalc.simulate.cases.build", miscounted)
    ran = inside("verify", "--layout", "megatron", "--tp", "4", "--json")
    assert ran.status == 1
    found = ran.json
    assert found["passed"] is False
    assert found["failed"] == sum(not check["passed"] for check in found["checks"]) > 150
    broken = [check for check in found["checks"] if not check["passed"] and check["what"] == "wire_bytes"]
    alike = {(check["what"], check["expected"], check["found"]) for check in broken if check["case"].startswith("gqa")}
    assert alike == {("wire_bytes", 1280, 1920)}


# Wrong input.

WRONG = [
    (["--layout", "megatron_sp"], 2, "error: unknown layout 'megatron_sp'\n  at --layout megatron_sp\nhint: did you mean megatron-sp"),
    (["--layout", "foo,bar"], 2, "error: unknown layout 'bar'"),
    (["--layout", ""], 2, "error: a name is missing in the list of layouts\n  at --layout \nhint: --layout none,megatron"),
    (["--layout", "megatron,"], 2, "error: a name is missing in the list of layouts"),
    (["--layout", "all,foo"], 2, "error: unknown layout 'foo'"),
    (["--pp", "2", "--set", "parallelism.schedule=dualpipe"], 2, "error: verify runs a pipeline from one end: dualpipe feeds it from both"),
    (["--ep", "2"], 3, "error: model has no experts to deal out\n"),
    (["--model", "deepseek-v3", "--dp", "2", "--ep", "2", "--set", "workload.imbalance=1.5"], 2,
     "error: verify has as many rows for each rank: what the busiest gets beyond them is not run\n  at --set workload.imbalance=1.5\nhint: leave it out\n"),
    (["--model", "deepseek-v3", "--dp", "2", "--ep", "2", "--set", "workload.capacity_factor=5"], 3,
     "error: an expert takes at most all tokens of a rank: 4 times the average\n"),
    (["--model", "mixtral-8x7b", "--tp", "1", "--dp", "2", "--ep", "2", "--dispatch", "deduplicated", "--seq", "8"], 2,
     "error: 16 tokens of a rank are no multiple of the 28 choices that a token may make\n  at --seq 8\nhint: leave it out: then there are as many as are needed\n"),
    (["--model", "mixtral-8x7b", "--tp", "1", "--dp", "2", "--ep", "2", "--dispatch", "deduplicated", "--phase", "decode", "--micro-batch", "3"], 2,
     "error: 3 tokens of a rank are no multiple of the 28 choices that a token may make\n  at --micro-batch 3\n"),
    (["--model", "mixtral-8x7b", "--tp", "1", "--dp", "2", "--ep", "2", "--dispatch", "deduplicated", "--set", "model.num_experts=64", "--set", "model.num_experts_per_tok=6"], 2,
     "error: a token may choose among 64 experts in 74,974,368 ways, and verify has a token for each of them\n  at --dispatch deduplicated\n"),
    (["--model", "mixtral-8x7b", "--tp", "1", "--dp", "16", "--ep", "16", "--dispatch", "deduplicated", "--set", "parallelism.ep_nodes=16"], 3,
     "8 experts mod 16 = 8"),
    (["--model", "mixtral-8x7b", "--tp", "1", "--dp", "2", "--ep", "2", "--dispatch", "deduplicated", "--set", "parallelism.node_limit=3"], 3,
     "error: a limit of 3 nodes where groups span 1"),
    (["--zero", "3"], 3, "error: zero 3 shards over data-parallel ranks, and there is one\n"),
    (["--dp", "4", "--zero", "3", "--dp-shard", "3"], 3, "dp 4 mod dp_shard 3 = 1\n"),
    (["--dp", "2", "--zero", "4"], 2, "zero"),
    (["--pp", "4", "--set", "model.num_hidden_layers=2"], 3, "error: 2 layers do not fill 4 pipeline stages\n"),
    (["--dp", "4096", "--tp", "2"], 2, "error: a mesh of 8192 devices is too large to simulate"),
    ([PRODUCT, "--mesh", "X=4", "--dp", "2"], 2, "error: --dp has nothing to act on"),
    (["--all", "--pp", "2"], 2, "error: --all runs architectures of its own, not one model"),
    (["--set", "parallelism.layout=megatron"], 2, "cannot be set: --layout says which layouts are run\n  at --set parallelism.layout=megatron\nhint: --layout megatron\n"),
    (["--set", "parallelism.sp=true"], 2, "hint: --layout megatron-sp\n"),
    (["--set", "parallelism.tp=4", "--tp", "1,2"], 2, "error: parallelism.tp cannot be set: --tp says which degrees are run"),
    (["--set", "parallelism.order=tp-dp-cp-ep-pp"], 2, "error: parallelism.order cannot be set"),
    (["--set", "workload.global_batch_size=8"], 2, "error: workload.global_batch_size cannot be set: one microbatch is run"),
    (["--set", "links.algorithm=ring"], 2, "error: links.algorithm cannot be set: nothing is timed"),
    (["--set", "model.position_embedding=learned", "--set", "model.max_position_embeddings=4", "--seq", "64"], 2,
     "error: a sequence of 64 tokens is beyond the 4 learned positions\n  at --seq 64\nhint: --seq 4, or --set model.max_position_embeddings=64\n"),
    (["--phase", "decode", "--recompute", "full"], 2, "error: decode has no backward pass: nothing is recomputed\n  at --recompute full\n"),
    (["--phase", "decode", "--layout", "megatron-sp", "--tp", "4"], 3, "hint: --layout none,megatron, or a sequence length that 4 divides"),
    (["--phase", "train", "--model", "deepseek-v3", "--set", "workload.predict_layers=1"], 2,
     "error: verify runs a model's own layers, and none that predict further tokens: 1\n  at --set workload.predict_layers=1\n"),
    (["--recompute", "selective", "--framework", "torchtitan", "--layout", "megatron-sp", "--tp", "2", "--seq", "8"], 2,
     "error: verify recomputes whole layers, or the inside of attention"),
    (["--framework", "hf", "--layout", "megatron", "--tp", "4", "--set", "model.intermediate_size=10"], 2,
     "error: 10 columns in unequal parts on 4 ranks: verify runs equal ones\n  at model.intermediate_size\n"),
    (["--model", "deepseek-v4-pro"], 2, "error: the ledger cannot price this yet: compressed attention"),
    (["--framework", "vllm"], 3, "serves models and has no backward pass"),
    ([PRODUCT, "--mesh", "X=4", "--framework", "hf"], 2, "error: --framework has nothing to act on"),
    (["--seed", "1.5"], 2, "error: a seed is a whole number of at least 0, not '1.5'\n  at --seed 1.5\nhint: --seed 1\n"),
    (["--seed", "-1"], 2, "error: a seed is a whole number of at least 0, not '-1'"),
    (["--seed", "nan"], 2, "not 'nan'"),
    (["--seed", ""], 2, "not ''"),
    (["--seed", "٣"], 2, "a seed is a whole number"),
    (["--seed", "9" * 50], 2, "a seed is a whole number"),
    (["--tp", "8192"], 2, "error: a mesh of 8192 devices is too large to simulate; at most 4096\n  at --tp 8192\n"),
    (["--tp", "0"], 2, "error: '0' is not above zero\n  at --tp 0"),
    (["--tp", "2,x"], 2, "error: 'x' is no whole number\n  at --tp 2,x"),
    (["--dtype", "fp8"], 2, "error: fp8 is not simulated\n  at --dtype fp8\nhint: one of float64, float32, bfloat16"),
    (["--dtype", "float65"], 2, "error: unknown dtype 'float65'\n  at --dtype float65\nhint: did you mean float64"),
    (["--mesh", "X=4"], 2, "error: --mesh has nothing to act on: there is no expression"),
    ([PRODUCT, "--mesh", "X=4", "--tp", "4"], 2, "error: --tp has nothing to act on: an expression runs by itself"),
    ([PRODUCT, "--mesh", "X=4", "--no-regather"], 2, "error: --no-regather has nothing to act on"),
    ([PRODUCT, "--mesh", "X=4", "--all"], 2, "error: --all has nothing to act on"),
    (["--all", "--model", "llama-3-70b"], 2, "error: --all runs architectures of its own, not one model"),
    (["--model", "{}", "--tp", "1,2,4", "--seq", "8192", "--layout", "none"], 2, "GiB of memory at tp 1, "),
    (["--model", "{}", "--tp", "8,16,32", "--seq", "256"], 2, "GiB of memory at tp 32; the limit is 2 GiB\n  at model model\nhint: smaller sizes, or --tp 8,16\n"),
    ([PRODUCT, "--mesh", "X=8192"], 2, "error: a mesh of 8192 devices is too large to simulate; at most 4096"),
    ([PRODUCT, "--mesh", "X=4", "--dim", "I=1M,J=1M,K=1M"], 2, "TiB of memory; the limit is 2 GiB"),
    (["A[I,J,K] @ B[J,K,L] -> C[I,L]", "--mesh", "X=12", "--dim", "I=4,J=4000,K=4000,L=1"], 2, "hint: smaller sizes: --dim J=24\n"),
    ([PRODUCT, "--mesh", "X=4", "--dim", "I=2"], 3, "of size 2, does not split 4 ways: 2 mod 4 = 2"),
    ([PRODUCT], 2, "error: 'X' is no axis of the mesh"),
    (["A[I_X, J]", "--mesh", "X=4"], 2, "error: one tensor alone has nothing to run"),
    (["f(A[I_X, J]) -> A[I, J]", "--mesh", "X=4"], 2, "takes tensors, and no function of them"),
    (["A[I, J] -> A[I, J]{U_X}", "--mesh", "X=4"], 3, "cannot become a pending sum"),
    (["--model", "llama-3-70bb"], 2, "error: unknown model preset 'llama-3-70bb'"),
    (["--model", "{num_attention_heads: 4}", "--tp", "8"], 3, "num_attention_heads 4 mod 8 = 4"),
    (["--set", "model.intermediate_size=10", "--tp", "4"], 3, "error: tp 4 is not legal for model: intermediate_size 10 mod 4 = 2"),
    (["--set", "model.hidden_size=1000000", "--set", "model.intermediate_size=1000000", "--tp", "2"], 2, "of memory at tp 2; the limit is 2 GiB"),
    (["--seq", "10", "--layout", "megatron-sp", "--tp", "4"], 3, "sequence_length 10 mod 4 = 2"),
    (["--phase", "foo"], 2, "error: unknown phase 'foo'"),
    (["--set", "workload.foo=3"], 2, "error: unknown key in workload 'foo'"),
    (["--format", "xml"], 2, "error: unknown format 'xml'"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "status", "told"), WRONG, ids=str)
def test_wrong_input(args: list[str], status: int, told: str, inside: Inside) -> None:
    ran = inside("verify", *args)
    assert (ran.status, ran.out) == (status, "")
    assert told in ran.err
    assert "Traceback" not in ran.err


def test_wrong_input_as_a_document() -> None:
    ran = run_commcalc("verify", "--layout", "foo", "--json")
    assert ran.status == 2
    assert ran.json["error"]["kind"] == "unknown-name"


def test_no_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_commcalc("verify", PRODUCT, "--mesh", "X=2").status == 0
    assert list(tmp_path.iterdir()) == []
