"""Wrong input to memory and the step: what is told, where, and with which status; options that change nothing."""

from __future__ import annotations

import pytest

from commcalc.transformer.parameters import parameters
from conftest import Inside, memory, question, step

WRONG = [
    (["--efficiency", "0"], 2, "error: '0' is not above 0\n  at --efficiency 0 step.efficiency\nhint: write it like 0.6\n"),
    (["--efficiency", "1.01"], 2, "error: '1.01' is above 1\n  at --efficiency 1.01 step.efficiency\nhint: a share of the peak"),
    (["--efficiency", "nan"], 2, "error: 'nan' is no such number"),
    (["--efficiency=-1"], 2, "error: '-1' is no such number"),
    (["--efficiency", "1e-300"], 2, "error: '1e-300' is no such number"),
    (["--set", "step.overlap=[none, dp]"], 2, "error: none,dp names groups beside none or full\n  at --set step.overlap=[none, dp]"),
    (["--overlap", "dq,dp,xx"], 2, "error: unknown group 'xx'"),
    (["--model", "{hidden_size: 64, num_hidden_layers: 2}", "--hardware", "h100", "--efficiency", "0.5"], 2, "error: memory and step are not counted"),
    (["--set", "hardware.chip.flops.bf16=1e-300 FLOP/s"], 2, "is no rate of a chip: below 1 FLOP/s or above 10^24 FLOP/s"),
    (["--hbm-efficiency", "2"], 2, "error: '2' is above 1"),
    (["--overlap", "dq"], 2, "error: unknown group 'dq'\n  at --overlap dq step.overlap\nhint: known: cp, dp, ep, full, none, pp, tp\n"),
    (["--overlap", "dp,none"], 2, "error: dp,none names groups beside none or full"),
    (["--overlap", ""], 2, "error: no value"),
    (["--overlap", "tp"], 3, "error: tp cannot overlap: an AllReduce stands before the next computation, which needs all of it\n  at step.overlap (--overlap)\nhint: --sp, whose gathers and scatters run beside the products\n"),
    (["--pp", "4", "--global-batch", "8", "--overlap", "tp,pp"], 3, "error: pp cannot overlap: under 1f1b a stage waits"),
    (["--combine", "sum"], 2, "error: unknown combine 'sum'"),
    (["--scores", "half"], 2, "error: unknown scores 'half'"),
    (["--train-tokens", "0"], 2, "error: '0' is not above zero"),
    (["--train-tokens", "many"], 2, "error: 'many' is no whole number"),
    (["--train-tokens", "1e40"], 2, "error: '1e40' is too large"),
    (["--optimizer", "lamb"], 2, "error: unknown optimizer 'lamb'\n  at --optimizer lamb memory.optimizer\nhint: known: adam, momentum, sgd\n"),
    (["--moment-dtype", "f31"], 2, "error: unknown dtype 'f31'"),
    (["--master-dtype", "some"], 2, "error: unknown dtype 'some'"),
    (["--param-dtype", "3"], 2, "error: unknown dtype '3'"),
    (["--kv-dtype", "int3"], 2, "error: unknown dtype 'int3'"),
    (["--offload", "wheights"], 2, "error: unknown part of memory 'wheights'\n  at --offload wheights memory.offload\nhint: did you mean weights?\n"),
    (["--offload", "optimizer"], 2, "error: optimizer on the host, whose memory is not given\n  at memory.offload (--offload)\nhint: --host-memory SIZE, for each device\n"),
    (["--offload", "optimizer", "--host-memory", "1GB"], 3, "error: 105,863,282,688 B of optimizer do not fit the 1,000,000,000 B of a device's host"),
    (["--host-memory", "12"], 2, "error: '12' has no unit"),
    (["--host-memory=-4GB"], 2, "error: -4 is negative"),
    (["--must-fit"], 3, "B are missing\n  at --must-fit\nhint: a higher --tp, --pp or --zero"),
    (["--must-fit", "--model", "llama-3-70b"], 2, "error: whether it fits cannot be told: the memory of a device is not known"),
    (["--model", "{hidden_size: 64, num_hidden_layers: 2}", "--must-fit"], 2, "error: memory and step are not counted: the model does not give head_dim"),
    (["--recompute-layers", "0"], 2, "error: '0' is not above zero"),
    (["--attention", "fused"], 2, "error: unknown attention kernel 'fused'\n  at --attention fused workload.attention\nhint: did you mean unfused?"),
    (["--call-latency", "3"], 2, "error: '3' has no unit"),
    (["--call-latency=-3us"], 2, "error: -3 is negative"),
    (["--model", "llama-3-70b", "--call-latency", "3us"], 2, "error: a cost of calls but nothing that they run on"),
    (["--dtype", "fp64", "--efficiency", "0.5"], 2, "error: h100-sxm gives no FLOP/s in fp64; it gives bf16, fp16, fp8, int8\n  at --dtype fp64 workload.dtype\nhint: --set hardware.chip.flops.fp64='900 TFLOP/s', or another --dtype\n"),
    (["--model", "llama-3-8b", "--efficiency", "0.5"], 2, "error: no machine whose step could be timed"),
    (["--set", "memory.must_fit=1"], 2, "error: '1' is neither true nor false"),
    (["--set", "memory.moments=2"], 2, "error: unknown key in memory 'moments'"),
    (["--set", "step=4"], 2, "error: step is a section; name a key in it"),
    (["--set", "memory.offload=[optimizer, x]", "--host-memory", "1TB"], 2, "error: unknown part of memory 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "status", "told"), WRONG, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_wrong_input(inside: Inside, arguments: list[str], status: int, told: str) -> None:
    ran = inside("ledger", *arguments)
    assert (ran.status, ran.out) == (status, "")
    assert told in ran.err
    document = inside("ledger", *arguments, "--json")
    assert document.status == status
    assert document.json["error"]["message"]


def test_all_is_told_at_once(inside: Inside) -> None:
    ran = inside("ledger", "--efficiency", "2", "--optimizer", "lamb", "--host-memory", "1", "--overlap", "x")
    assert ran.status == 2
    assert ran.err.count("error: ") == 4


IDLE = [
    (["--kv-dtype", "fp8"], "--kv-dtype: it is for prefill and decode"),
    (["--recompute-layers", "2", "--hbm-efficiency", "0.5"], "--hbm-efficiency: it is for decode"),
    (["--recompute-layers", "2"], "--recompute-layers: whole layers do not run again"),
    (["--phase", "decode", "--optimizer", "sgd", "--moment-dtype", "bf16", "--dropout", "--train-tokens", "1T"],
     "--optimizer, --moment-dtype, --dropout, --train-tokens: it is for training"),
    (["--combine", "largest"], "--combine: nothing overlaps"),
    (["--host-memory", "1GB"], "--host-memory: nothing lies on the host"),
    (["--offload", "kv_cache", "--host-memory", "1GB"], "--offload kv_cache: there is none of it"),
    (["--phase", "decode", "--offload", "gradients", "--host-memory", "1GB"], "--offload gradients: there is none of it"),
    (["--phase", "decode", "--pp", "2", "--schedule", "zb1p"], "--schedule: there is no backward pass to fill in with"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "told"), IDLE)
def test_options_without_effect(inside: Inside, arguments: list[str], told: str) -> None:
    ran = inside("ledger", *arguments)
    assert ran.status == 0
    assert f"warning: {told} [option-without-effect]" in ran.err


def test_communication_is_answered_where_the_step_is_not(inside: Inside) -> None:
    ran = inside("ledger", "--dtype", "fp64", "--json")
    assert ran.status == 0
    assert ran.json["step"] is None
    assert ran.json["memory"]["fits"] is False
    assert ran.json["totals"]["step"]["tp"]["time_s"] > 0
    assert "the machine gives no FLOP/s in fp64: communication is timed, the step is not [step-not-timed]" in ran.err
    bare = inside("ledger", "--model", "{hidden_size: 8192, num_hidden_layers: 10}", "--tp", "8", "--json")
    assert (bare.status, bare.json["memory"], bare.json["step"]) == (0, None, None)
    assert any(
        line.startswith("memory and step are not counted: the model does not give") for line in bare.json["assumptions"]
    )


def test_a_job_says_all_that_options_say(inside: Inside, tmp_path: object) -> None:
    path = f"{tmp_path}/job.yaml"
    with open(path, "w") as file:
        file.write(
            "model: llama-3-8b\nhardware: h100\nparallelism: {tp: 8, sp: true, dp: 2, zero: 1}\n"
            "workload: {recompute: full, recompute_layers: 4, global_batch_size: 8}\n"
            "memory: {optimizer: adam, moment_dtype: bf16, must_fit: true, offload: [optimizer], host_bytes: 64 GB}\n"
            "step: {efficiency: 0.5, overlap: [tp, dp], combine: largest, scores: causal, train_tokens: 15T}\n"
            "links: {call_latency: 20us}\n"
        )
    options = ["--model", "llama-3-8b", "--hardware", "h100", "--tp", "8", "--sp", "--dp", "2", "--zero", "1",
               "--recompute", "full", "--recompute-layers", "4", "--global-batch", "8", "--moment-dtype", "bf16",
               "--must-fit", "--offload", "optimizer", "--host-memory", "64GB", "--efficiency", "0.5", "--overlap", "tp,dp",
               "--combine", "largest", "--scores", "causal", "--train-tokens", "15T", "--call-latency", "20us"]  # fmt: skip
    by_file, by_options = (inside("ledger", *given, "--json").json for given in ([path], options))
    for part in ("memory", "step", "block", "stages", "totals", "rows"):
        assert by_file[part] == by_options[part]
    assert by_file["step"]["train_days"] > 0


def test_what_lies_on_the_host_is_not_timed(inside: Inside) -> None:
    ran = inside("ledger", "--offload", "optimizer", "--host-memory", "256GB")
    assert ran.status == 0
    assert "optimizer lie on the host: how long they are on their way is not counted [offload-not-timed]" in ran.err


def test_decoding_with_all_hidden_says_what_is_hidden(inside: Inside) -> None:
    given = ("--phase", "decode", "--overlap", "full", "--json")
    step = inside("ledger", *given).json["step"]
    decode = step["decode"]
    parts = sum(decode[f"{name}_s"] for name in ("weights", "kv", "flops", "fixed", "bytes")) - decode["hidden_s"]
    assert decode["hidden_s"] > 0
    assert decode["time_s"] == pytest.approx(parts) == pytest.approx(step["time_s"])


def test_a_pipeline_that_decodes_has_the_bubble_of_its_length(inside: Inside) -> None:
    """One sequence goes through all stages, whatever the schedule of training would be."""
    common = ("ledger", "--phase", "decode", "--pp", "4", "--global-batch", "1", "--json")
    plain, other = (inside(*common, "--schedule", name).json["step"] for name in ("1f1b", "zb1p"))
    assert plain == other
    assert plain["time_s"] == pytest.approx(plain["decode"]["time_s"])


def test_a_rate_of_dropped_tokens_is_no_more_than_all(inside: Inside) -> None:
    given = ("--model", "mixtral-8x7b", "--hardware", "h100", "--dp", "8", "--ep", "8", "--capacity-factor", "0.25")
    step = inside("ledger", *given, "--json").json["step"]
    assert 0 < step["mfu"] <= step["hfu"] <= 1


def test_no_more_layers_run_again_than_a_stage_has(inside: Inside) -> None:
    common = ("ledger", "--recompute", "full", "--json", "--recompute-layers")
    found = [inside(*common, number).json["memory"]["total_bytes"] for number in ("80", "1000")]
    assert found[0] == found[1]


def test_weights_are_those_of_the_presets() -> None:
    """Indexers of sparse attention too, which no program has."""
    for name in (
        "deepseek-v3.2",
        "glm-5",
        "glm-5.2",
        "minimax-m3",
        "deepseek-v3",
        "qwen3-next-80b-a3b",
        "gpt-oss-120b",
    ):
        found = memory(name, parallelism__vocab_padding="none")
        assert found.parameters == parameters(question(name).model), name


def test_prefill_reads_its_weights() -> None:
    """The scaling book, part 7: a short prompt takes no less than reading the weights once."""
    short = step("llama-3-8b", "h100", workload__phase="prefill", workload__sequence_length=16)
    assert short.time_s >= (8_030_261_248 - 128256 * 4096) * 2 / 3.35e12
    long = step("llama-3-8b", "h100", workload__phase="prefill", workload__sequence_length=8192)
    assert long.mfu > 0.99 > 0.1 > short.mfu
