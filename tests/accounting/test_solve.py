"""Limits found by pricing equal the textbook's formulas, which are nowhere in the code.

Sources: tests/data/goldens_memory.yaml (the scaling book, parts 5, 6 and 7) and user_reports_step.yaml (UR-038, 075 and
146). The book looks at the two products of an MLP alone, forward, on links that add both directions, and drops
(n-1)/n: so do these questions (``--sublayer mlp --pass forward --convention textbook``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from commcalc.accounting.solve import Pass, Question, best_mix, degrees, largest, mixes, smallest_batch
from commcalc.accounting.step import Machine
from conftest import DATA, Inside, fields, question

GOLDENS = {case["id"]: case for case in yaml.safe_load((DATA / "goldens_memory.yaml").read_text())["cases"]}
REPORTS = {one["id"]: one for one in yaml.safe_load((DATA / "user_reports_step.yaml").read_text())["entries"]}
# TPU v5p: 4.59e14 FLOP/s in bf16, 9e10 B/s a link and direction, so 1.8e11 on an axis both ways.
ALPHA = 2550


def golden(ident: str) -> dict[str, Any]:
    return {value["name"]: value["recomputed"] for value in GOLDENS[ident]["expected"]}


def chip(tmp_path: Path, link: str = "180 GB/s", **flops: str) -> str:
    """A machine of one level, as the book's formulas have it."""
    peaks = flops or {"bf16": "459 TFLOP/s", "int8": "918 TFLOP/s"}
    path = tmp_path / "chip.yaml"
    machine = {
        "name": "chip",
        "chip": {"flops": peaks, "hbm": {"capacity": "96 GB", "bandwidth": "1440 GB/s"}},
        "network": [{"name": "axis", "topology": "switch", "bandwidth": link, "latency": "0 s"}],
    }
    path.write_text(json.dumps(machine))
    return str(path)


def mlp(width: int, hidden: int = 8192, heads: int = 1008) -> str:
    """Two products; what else a block has is not looked at."""
    return fields(
        hidden_size=hidden, intermediate_size=width, gated_mlp=False, num_hidden_layers=1, num_attention_heads=heads,
        num_key_value_heads=heads, head_dim=128, norm="layernorm",
    )  # fmt: skip


def asked(
    model: str, machine: str, passes: Pass = Pass.FORWARD, sublayers: tuple[str, ...] = ("mlp",), **values: object
) -> Question:
    found = question(model, machine, **({"links__convention": "textbook", "workload__sequence_length": 1} | values))
    assert found.hardware is not None
    return Question(
        found.model, found.parallel, found.work, found.convention,
        Machine(found.chip, found.hardware.network, found.algorithm), found.states, found.clock, sublayers, passes,
    )  # fmt: skip


def largest_tp(model: str, machine: str, tried: list[int], **values: object) -> int:
    question = asked(model, machine, **({"workload__sequence_length": 4096} | values))
    found = largest(degrees(question, tried), question.states)
    assert found is not None
    return found.parallel.tp


def smallest(model: str, machine: str, passes: Pass = Pass.FORWARD, **values: object) -> int:
    question = asked(model, machine, passes, **values)
    point = smallest_batch(question, question.parallel)
    assert point.compute_bound
    return point.micro_batch


# Tensor parallelism


def test_ways_of_an_mlp(tmp_path: Path) -> None:
    """LIM-05: F / 2550 ways: 11.76 of F = 30000, 19.6 of 50000; eight ways need F = 20400."""
    machine, want = chip(tmp_path), golden("LIM-05")
    # The degrees around the limit that divide F and the heads.
    assert largest_tp(mlp(30000), machine, [1, 6, 8, 12]) == 8 < want["llama3"] < 12
    assert largest_tp(mlp(49920), machine, [8, 16, 18, 24]) == 16 < want["gemma"] < 24
    assert largest_tp(mlp(want["F_for_8"]), machine, [1, 2, 4, 8, 12]) == 8
    assert largest_tp(mlp(want["F_for_8"] - 8), machine, [1, 2, 4, 8, 12]) == 4


def test_ways_do_not_depend_on_the_batch_nor_on_the_type(tmp_path: Path) -> None:
    """LIM-07: in int8 compute is twice as fast and bytes are half as many."""
    machine = chip(tmp_path)
    assert golden("LIM-07")["limit_ratio"] == 1
    for values in ({}, {"workload__dtype": "int8"}, {"workload__micro_batch_size": 16}):
        assert largest_tp(mlp(12 * ALPHA), machine, [1, 2, 4, 6, 12, 18], **values) == 12


def test_ways_of_a_gated_mlp_are_half_as_many_again(tmp_path: Path) -> None:
    """Three products move what two move."""
    model = json.loads(mlp(8 * ALPHA)) | {"gated_mlp": True}
    assert largest_tp(json.dumps(model), chip(tmp_path), [1, 2, 4, 8, 12, 16]) == 12


def test_ways_in_decoding(tmp_path: Path) -> None:
    """LIM-18: weights are read at 8 times the link's rate, so Y = F / (8B): 64 of 16384 at 32, 56 of 28672 at 64."""
    machine, want = chip(tmp_path), golden("LIM-18")
    decoding = {"workload__phase": "decode", "workload__sequence_length": 128}
    at = {**decoding, "workload__micro_batch_size": 32}
    assert largest_tp(mlp(16384, 8192, 1024), machine, [32, 64, 128], **at) == want["small"]
    at = {**decoding, "workload__micro_batch_size": 64}
    assert largest_tp(mlp(28672 * 9), machine, [72, 9 * 56, 1008], **at) == 9 * want["llama3"]


# Data parallelism


@pytest.mark.parametrize(("link", "name"), [("180 GB/s", "one_axis"), ("540 GB/s", "three_axes")])
def test_tokens_of_fsdp(tmp_path: Path, link: str, name: str) -> None:
    """LIM-01: gathers hide from C/W tokens a chip on: 2550 on one axis, 850 on three; LIM-03: chips of a batch."""
    values = {"parallelism__dp": 64, "parallelism__zero": 3}
    tokens = smallest(mlp(28672), chip(tmp_path, link), **values)
    # Both norms of the MLP are gathered with it, and the bias of none: a part in ten thousand.
    assert tokens == pytest.approx(golden("LIM-01")[name], rel=2e-3)
    if name == "three_axes":
        assert 8960 * tokens / 1e6 == pytest.approx(golden("LIM-01")["pod_batch"], rel=2e-3)
        assert 40e6 / tokens == pytest.approx(golden("LIM-03")["chips_40M"], rel=2e-3)
        assert 16e6 / tokens == pytest.approx(golden("LIM-03")["chips_16M"], rel=2e-3)


def test_times_of_fsdp_and_dp(tmp_path: Path) -> None:
    """LIM-04: 4DF/W and 4BDF/XC forward; gradients in bf16 8DF/W and 8BDF/XC, backward."""
    want, batch = golden("LIM-04"), 4_000_000 // 1024
    model = mlp(28672)
    sharded = asked(model, chip(tmp_path), parallelism__dp=1024, parallelism__zero=3)
    point = _at(sharded, batch)
    assert 1e6 * point.comm_s == pytest.approx(want["fsdp_fwd_comm"], rel=1e-4)
    assert 1e6 * point.compute_s * 4_000_000 / 1024 / batch == pytest.approx(want["fsdp_fwd_math"], rel=1e-4)
    plain = asked(model, chip(tmp_path), Pass.BACKWARD, parallelism__dp=1024, workload__grad_dtype="bf16")
    point = _at(plain, batch)
    assert 1e6 * point.comm_s == pytest.approx(want["dp_bwd_comm"], rel=1e-4)
    assert 1e6 * point.compute_s * 4_000_000 / 1024 / batch == pytest.approx(want["dp_bwd_math"], rel=1e-4)


def _at(question: Question, batch: int) -> Any:
    from commcalc.accounting.solve import examine

    return examine(question, question.parallel, batch)


def test_tokens_between_pods(tmp_path: Path) -> None:
    """LIM-15: 25 GB/s of a host are shared by four chips: 73,440 tokens hide a sum of gradients between pods."""
    values = {"parallelism__dp": 2, "workload__grad_dtype": "bf16"}
    found = smallest(mlp(28672), chip(tmp_path, "6.25 GB/s"), Pass.BACKWARD, **values)
    assert found == pytest.approx(golden("LIM-15")["per_pod"], rel=5e-4)


def test_tokens_of_a_sharded_product_on_other_machines(tmp_path: Path) -> None:
    """UR-146: 989 TFLOP/s behind 400 GB/s are 2473 tokens a device, whatever the width of the model."""
    machine = chip(tmp_path, "400 GB/s", bf16="989 TFLOP/s")
    for hidden, width in ((4096, 16384), (16384, 65536)):
        found = smallest(mlp(width, hidden), machine, parallelism__dp=16, parallelism__zero=3)
        assert found == pytest.approx(REPORTS["UR-146"]["expect"]["min_tokens_per_gpu"], rel=5e-4)


# Both


def smallest_mix(tmp_path: Path, width: int, devices: int, combine: str, link: str = "180 GB/s") -> tuple[float, int]:
    """Tokens on a device, and TP, of the best split."""
    question = asked(mlp(width), chip(tmp_path, link), parallelism__zero=3, step__combine=combine)
    best = best_mix(list(mixes(question, devices)), question.work, question.states)
    assert best is not None
    return best.tokens_per_device(question.work), best.parallel.tp


def test_mix_where_times_are_added(tmp_path: Path) -> None:
    """LIM-09: 4 alpha^2 / F tokens a chip (an axis each); F = 30000 is best at 5.88 ways, found at 6."""
    want = golden("LIM-09")
    found, tp = smallest_mix(tmp_path, 30000, 48, "added")
    # The book has two axes for FSDP, which halves it.
    assert tp == 6
    assert found / 2 == pytest.approx(want["llama3"], rel=2e-3)
    # F / (2 alpha) ways come out whole where F = 8 * 2 * 2550: the formula to a few parts in ten thousand.
    found, tp = smallest_mix(tmp_path, 16 * ALPHA, 32, "added")
    assert tp == 8
    assert found == pytest.approx(4 * ALPHA**2 / (16 * ALPHA), rel=1e-3)


def test_mix_where_the_larger_time_counts(tmp_path: Path) -> None:
    """LIM-10: alpha^2 / F, a fourth of that: F / alpha ways, where these come out whole."""
    want = golden("LIM-10")["B_over_N"]
    bounds = []
    for ways in (12, 16):
        found, tp = smallest_mix(tmp_path, ways * ALPHA, 2 * ways, "largest")
        assert tp == ways
        assert found == pytest.approx(ALPHA**2 / (ways * ALPHA), rel=1e-3)
        bounds.append(found / 2)
    # F = 32768 is 12.85 ways.
    assert bounds[1] < want < bounds[0]


def test_both_models_differ_by_four(tmp_path: Path) -> None:
    """LIM-11: all schemes are bound by communication below 1.6 million tokens on 4096 chips, not 1.6e10 as printed."""
    added, _ = smallest_mix(tmp_path, 16 * ALPHA, 32, "added")
    largest_, _ = smallest_mix(tmp_path, 16 * ALPHA, 32, "largest")
    assert added / largest_ == pytest.approx(4, rel=2e-3)
    width = GOLDENS["LIM-11"]["inputs"]["F__elems"]
    assert golden("LIM-11")["batch"] == 4096 * 2 * ALPHA**2 / width
    # Of F = 16 alpha: 2 alpha^2 / F on two axes is half of what is found on one of each.
    assert 4096 * added / 2 == pytest.approx(4096 * 2 * ALPHA**2 / (16 * ALPHA), rel=1e-3)


def test_the_batch_of_llama_3_70b(tmp_path: Path) -> None:
    """LIM-12: 453.6 tokens a chip where F = 28672; 4M tokens on 8960 chips are 468, so the mix is bound by compute."""
    want = golden("LIM-12")
    found, _ = smallest_mix(tmp_path, 28672, 56, "added")
    assert 1 < found / 2 / want["threshold"] < 1.07  # degrees are whole, the formula's are not
    assert want["per_chip"] > want["threshold"]
    # X_opt = sqrt(2BN/F) of FSDP, so N / X_opt = 5.53 of TP.
    assert 8960 / want["X_opt"] == pytest.approx(5.53, abs=0.01)
    assert smallest_mix(tmp_path, 28672, 56, "added")[1] == 7


def test_checkpoints_of_llama_3_70b(inside: Inside) -> None:
    """LIM-13, LIM-14 and ACT-11: three tensors a layer of 4M tokens are 15.7 TB (20.9 as printed are of four)."""
    full = inside("ledger", "--model", "llama-3-70b", "--seq", "4096", "--recompute", "full", "--json").json["memory"]
    token = full["block_activations_bytes"] / 4096
    assert 3 * 80 * token * 4e6 / 1e12 == golden("LIM-13")["bytes"]
    assert golden("LIM-14")["days_small"] == 44 * 8960 / 225
    assert golden("LIM-14")["years"] == golden("LIM-14")["days_small"] / 365
    # The book's 64 layers of 8192: an input each is 4.2 TB, twenty such tensors 84.
    assert 64 * token * 4e6 / 1e12 == golden("ACT-11")["block"]
    assert 20 * 64 * token * 4e6 / 1e12 == golden("ACT-11")["all"]


def test_days_of_llama_3_70b() -> None:
    """LIM-03: 6PT FLOP on 18,823 chips of 459 TFLOP/s at half of the peak take 17 days."""
    want = golden("LIM-03")["days"]
    found = step_of_llama()
    assert found["mfu"] == pytest.approx(0.5 * found["model_flops"] / found["flops"], rel=1e-9)
    days = found["train_days"] / (16e6 / 850)
    # The model's own FLOPs are more than 6 for each of 70 billion parameters: attention, and 70.55 billion.
    excess = found["flops"] / (6 * 70e9 * found["tokens"])
    assert days / excess == pytest.approx(want, rel=1e-6)
    assert 1 < excess < 1.15


def step_of_llama() -> dict[str, Any]:
    from commcalc.report.step import step_document
    from conftest import step

    values = {"step__efficiency": "0.5", "step__train_tokens": "15e12", "workload__attention": "unfused"}
    return step_document(step("llama-3-70b", "tpu-v5p", **values))


# The command


def test_solve_tp(inside: Inside) -> None:
    ran = inside("solve", "tp", "--model", "llama-3-70b", "--hardware", "h100", "--sp", "--seq", "8K", "--json")
    document = ran.json
    assert (ran.status, document["schema"], document["what"]) == (0, "commcalc/solve/1", "tp")
    assert [point["tp"] for point in document["points"]] == [1, 2, 4, 8]
    assert document["answer"] == document["points"][-1]
    for point in document["points"]:
        assert point["compute_bound"] == all(one["comm_s"] <= one["compute_s"] for one in point["passes"].values())
        assert point["tokens_per_device"] == 8192 / point["tp"]


def test_solve_names_degrees_that_are_not_legal(inside: Inside) -> None:
    given = ("solve", "tp", "--model", "llama-2-13b", "--hardware", "h100", "--tp", "1..4", "--json")
    points = inside(*given).json["points"]
    assert [point["legal"] for point in points] == [True, True, False, True]
    assert "40 mod 3 = 1" in points[2]["reason"]


def test_solve_batch_is_the_smallest(inside: Inside) -> None:
    model = ("--model", "llama-3-8b", "--hardware", "h100", "--dp", "64", "--zero", "3", "--seq", "512")
    answer = inside("solve", "batch", *model, "--json").json["answer"]
    batch = answer["micro_batch"]
    assert batch > 1
    for size, hidden in ((batch - 1, False), (batch, True)):
        document = inside("ledger", *model, "--micro-batch", str(size), "--global-batch", str(64 * size), "--overlap",
                          "full", "--json").json["step"]  # fmt: skip
        window = document["microbatch"]
        assert (window["exposed_s"] + document["exposed"]["dp"] < 1e-9) is hidden


def test_solve_mix(inside: Inside) -> None:
    ran = inside(
        "solve", "mix", "--model", "llama-3-70b", "--hardware", "h100", "--devices", "64", "--zero", "3", "--json"
    )
    document = ran.json
    assert {point["tp"] * point["dp"] for point in document["points"]} == {64}
    bound = [point["tokens_per_device"] for point in document["points"] if point["compute_bound"]]
    assert document["answer"]["tokens_per_device"] == min(bound)


def test_solve_bandwidth(inside: Inside) -> None:
    """UR-075: 160 messages of 33.55 MB in 4.43 s are 1.212 GB/s."""
    want = REPORTS["UR-075"]["expect"]
    ran = inside("solve", "bandwidth", "--model", "llama-2-70b", "--tp", "2", "--phase", "prefill", "--seq", "2048",
                 "--time", "4.43s", "--scope", "stage", "--json")  # fmt: skip
    answer = ran.json["answer"]
    assert answer["wire_bytes"] == want["bytes"]
    assert answer["bandwidth_bytes_per_s"] / 1e9 == pytest.approx(want["effective_gbs"], rel=1e-3)


@pytest.mark.parametrize(("time", "rate"), [("363ms", 7.71), ("173ms", 16.18), ("132ms", 21.21)])
def test_bandwidth_of_three_placements(inside: Inside, time: str, rate: float) -> None:
    """UR-038: 1.6 GB on 8 GPUs in three placements; working back from the time, with busbw."""
    ran = inside("busbw", "all_reduce", "--group-size", "8", "--bytes", "1600000000", "--time", time, "--json")
    assert ran.json["busbw_bytes_per_s"] / 1e9 == pytest.approx(rate, rel=1e-3)


def test_no_answer_is_status_3(inside: Inside) -> None:
    given = ("solve", "batch", "--model", "llama-3-8b", "--hardware", "h100", "--tp", "8", "--bandwidth", "1GB/s")
    ran = inside(*given)
    assert ran.status == 3
    assert "no batch is bound by compute" in ran.err


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["tq"], 2, "unknown question 'tq'"),
        (["tp", "--model", "llama-3-8b"], 2, "nothing to price on"),
        (["tp", "--model", "llama-3-8b", "--hardware", "h100", "--dtype", "fp64"], 2, "gives no FLOP/s in fp64"),
        (["tp", "--model", "llama-3-8b", "--hardware", "h100", "--sublayer", "mpl"], 2, "unknown sublayer 'mpl'"),
        (["tp", "--model", "llama-3-8b", "--hardware", "h100", "--pass", "back"], 2, "unknown pass 'back'"),
        (["tp", "--model", "llama-3-8b", "--hardware", "h100", "--tp", "8..2"], 2, "empty range"),
        (["mix", "--model", "llama-3-8b", "--hardware", "h100"], 2, "how many devices there are is not said"),
        (["mix", "--model", "llama-3-8b", "--hardware", "h100", "--dp", "4"], 2, "parallelism.dp is what is looked for"),
        (["batch", "--model", "llama-3-8b", "--hardware", "h100", "--micro-batch", "4"], 2, "is what is looked for"),
        (["bandwidth", "--model", "llama-3-8b", "--tp", "2"], 2, "how long it took is not said"),
        (["bandwidth", "--model", "llama-3-8b", "--tp", "2", "--time", "3"], 2, "--time 3"),
        (["bandwidth", "--model", "llama-3-8b", "--time", "3s"], 2, "moves nothing"),
        (["bandwidth", "--model", "llama-3-8b", "--tp", "2", "--time", "3s", "--group", "xp"], 2, "unknown group 'xp'"),
        (["tp", "--model", "llama-3-8b", "--hardware", "h100", "--time", "3s"], 2, "--time is for solve bandwidth"),
        (["tp", "--model", "llama-3-8b", "--hardware", "h100", "--efficiency", "1.5"], 2, "'1.5' is above 1"),
        (["tp", "--model", "llama-3-8b", "--hardware", "h100", "--devices", "8"], 2, "is for solve mix"),
        (["tp", "--model", "llama-3-8b", "--hardware", "h100", "--phase", "decode", "--pass", "backward"], 2, "no backward"),
        (["tp", "--model", "llama-3-8b", "--hardware", "h100", "--pass", ""], 2, "unknown pass ''"),
        (["tp", "--model", "llama-3-8b", "--hardware", "h100", "--sublayer", ""], 2, "a sublayer without a name"),
        (["batch", "--model", "llama-3-8b", "--hardware", "h100", "--set", "workload.micro_batch_size=4"], 2, "looked for"),
        (["mix", "--model", "llama-3-8b", "--hardware", "h100", "--devices", "16", "--set", "parallelism.tp=4"], 2, "looked for"),
        (["mix", "--model", "llama-3-70b", "--hardware", "h100", "--devices", "16", "--pp", "3"], 3, "16 devices mod 3"),
        (["batch", "--model", "llama-3-8b", "--hardware", "h100", "--set", "step.overlap=full"], 2, "is not asked about"),
        (["bandwidth", "--model", "llama-3-8b", "--tp", "2", "--time", "1e-300s"], 2, "is no rate of a link"),
        (["bandwidth", "--model", "llama-3-8b", "--tp", "2", "--time", "3s", "--pass", "forward"], 2, "--pass is for solve"),
        (["tp", "--model", "{hidden_size: 64, num_hidden_layers: 2}", "--hardware", "h100"], 2, "does not give head_dim"),
    ],
)  # fmt: skip
def test_wrong_questions(inside: Inside, arguments: list[str], status: int, told: str) -> None:
    ran = inside("solve", *arguments)
    assert (ran.status, ran.out) == (status, "")
    assert told in ran.err


@pytest.mark.parametrize("sublayer", ["embedding", "head", "loss", "attention", "mlp"])
def test_sublayers_alone(inside: Inside, sublayer: str) -> None:
    given = ("solve", "tp", "--model", "llama-3-8b", "--hardware", "h100", "--sublayer", sublayer, "--json")
    ran = inside(*given)
    assert ran.status in (0, 3)
    assert ran.json["inputs"]["sublayers"] == [sublayer]
    for sparse in ("mlp", "moe"):
        assert inside("solve", "tp", "--model", "deepseek-v3", "--hardware", "h100", "--sublayer", sparse).status in (
            0,
            3,
        )


@pytest.mark.parametrize("job", ["deepseek-v3-h800", "mixtral-8x7b-h100"])
def test_jobs_with_schedules_can_be_solved(inside: Inside, job: str) -> None:
    """As many microbatches in a step as the job has, whatever their size."""
    document = inside("solve", "tp", job, "--tp", "1,2", "--json").json
    assert document["points"][0]["legal"]
    assert document["inputs"]["microbatches"] > 1


def test_what_must_fit_is_what_fits(inside: Inside) -> None:
    given = ("solve", "batch", "--model", "llama-3-8b", "--hardware", "h100", "--json")
    plain = inside(*given)
    assert (plain.status, plain.json["answer"]["fits"]) == (0, False)
    demanded = inside(*given, "--set", "memory.must_fit=true")
    assert (demanded.status, demanded.json["answer"]) == (3, None)
    assert "what is bound by compute does not fit" in demanded.err


def test_gaps_below_the_largest_degree_are_told(inside: Inside) -> None:
    ran = inside("solve", "tp", "--model", "gpt3-175b", "--hardware", "gaudi-3", "--phase", "prefill", "--convention",
                 "textbook")  # fmt: skip
    assert ran.status == 0
    assert "bound by compute up to tp 8, but not at 2" in ran.out
