"""``commcalc verify`` as a process: what it prints, its documents, its exit statuses, and wrong input."""

from __future__ import annotations

import json
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
    assert first == "62 runs of layouts and 267 runs of collectives in float64, seed 0: 5,551 checks, all passed"
    assert title == "Layouts: relative errors against one device, and the rows of the ledger that were counted"
    assert any(line.split()[:6] == ["megatron-sp,", "tp", "8,", "KV", "heads", "gathered"] for line in rest)
    assert any(line.startswith("all_reduce by double-binary-tree ") for line in rest)
    assert "FAILED" not in ran.out
    assert run_commcalc("verify").out == ran.out


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
    assert "sizes made small (D 40, N 64, K 8, H 16, F 48, V 112, P 16, QKV 1280)" in ran.out


def test_degrees_that_are_not_legal_are_left_out_unless_asked_for() -> None:
    ran = run_commcalc("verify", "--model", "qwen2.5-7b", "--layout", "megatron")
    assert ran.status == 0
    assert "- left out: tp 8 is not legal for qwen2.5-7b: num_attention_heads 28 mod 8 = 4" in ran.out
    asked = run_commcalc("verify", "--model", "qwen2.5-7b", "--layout", "megatron", "--tp", "8")
    assert asked.status == 3
    assert "error: tp 8 is not legal for qwen2.5-7b: num_attention_heads 28 mod 8 = 4" in asked.err


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
    assert head[0].endswith(": 539 checks, 40 failed")
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
    assert (found["passed"], found["failed"]) == (False, 40)
    broken = [check for check in found["checks"] if not check["passed"] and check["what"] == "wire_bytes"]
    assert {(check["what"], check["expected"], check["found"]) for check in broken} == {("wire_bytes", 1280, 1920)}


# Wrong input.

WRONG = [
    (["--layout", "megatron_sp"], 2, "error: unknown layout 'megatron_sp'\n  at --layout megatron_sp\nhint: did you mean megatron-sp"),
    (["--layout", "foo,bar"], 2, "error: unknown layout 'bar'"),
    (["--layout", ""], 2, "error: unknown layout ''"),
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
    ([PRODUCT, "--mesh", "X=4", "--no-regather"], 2, "error: --regather has nothing to act on"),
    ([PRODUCT, "--mesh", "X=4", "--all"], 2, "error: --all has nothing to act on"),
    (["--all", "--model", "llama-3-70b"], 2, "error: --all runs architectures of its own, not one model"),
    (["--model", "{}", "--tp", "2", "--seq", "8192"], 2, "bytes of memory; the limit is 2,147,483,648"),
    ([PRODUCT, "--mesh", "X=8192"], 2, "error: a mesh of 8192 devices is too large to simulate; at most 4096"),
    ([PRODUCT, "--mesh", "X=4", "--dim", "I=1M,J=1M,K=1M"], 2, "bytes of memory; the limit is 2,147,483,648"),
    ([PRODUCT, "--mesh", "X=4", "--dim", "I=2"], 3, "of size 2, does not split 4 ways: 2 mod 4 = 2"),
    ([PRODUCT], 2, "error: 'X' is no axis of the mesh"),
    (["A[I_X, J]", "--mesh", "X=4"], 2, "error: one tensor alone has nothing to run"),
    (["f(A[I_X, J]) -> A[I, J]", "--mesh", "X=4"], 2, "takes tensors, and no function of them"),
    (["A[I, J] -> A[I, J]{U_X}", "--mesh", "X=4"], 3, "cannot become a pending sum"),
    (["--model", "llama-3-70bb"], 2, "error: unknown model preset 'llama-3-70bb'"),
    (["--model", "{num_attention_heads: 4}", "--tp", "8"], 3, "num_attention_heads 4 mod 8 = 4"),
    (["--set", "model.intermediate_size=10", "--tp", "4"], 3, "error: tp 4 is not legal for model: intermediate_size 10 mod 4 = 2"),
    (["--set", "model.hidden_size=1000000", "--set", "model.intermediate_size=1000000", "--tp", "2"], 2, "bytes of memory"),
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
