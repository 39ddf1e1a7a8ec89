"""How long a step or a token takes: FLOPs, what is exposed, bubbles and decoding, against published values.

Sources: tests/data/goldens_memory.yaml; Narayanan et al. 2021, arXiv:2104.04473, equations 3 and 4; Korthikanti et al.
2022, arXiv:2205.05198, section 5; Chowdhery et al. 2022, arXiv:2204.02311, appendix B; Dao 2023, arXiv:2307.08691,
section 4.1; the scaling book, parts 4 and 7; user reports UR-059, 068, 070, 072, 078, 127 and 129
(tests/data/user_reports_step.yaml).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from commcalc.accounting.choices import Combine, Scores
from commcalc.accounting.compute import Flops, computed, pairs_of
from commcalc.accounting.ledger import build
from commcalc.accounting.overlap import Window, expose
from commcalc.accounting.pipeline import bubble
from commcalc.accounting.pricing import stage_entries
from commcalc.errors import CommcalcError
from commcalc.transformer.layers import Attention
from commcalc.transformer.spec import Phase
from conftest import DATA, Inside, ask, fields, look, question, step

GOLDENS = {case["id"]: case for case in yaml.safe_load((DATA / "goldens_memory.yaml").read_text())["cases"]}
REPORTS = {one["id"]: one for one in yaml.safe_load((DATA / "user_reports_step.yaml").read_text())["entries"]}


def golden(ident: str) -> dict[str, Any]:
    return {value["name"]: value["recomputed"] for value in GOLDENS[ident]["expected"]}


def expected(ident: str) -> dict[str, Any]:
    return dict(REPORTS[ident]["expect"])


def flops(model: str, name: str = "block", attention: Attention = Attention.FULL, **asked: object) -> Flops:
    """FLOPs of one layer for one microbatch."""
    return computed(ask(model, **asked).ledger).block(name, attention)


GPT3 = {"workload__sequence_length": 2048}


# FLOPs


def test_flops_of_gpt3() -> None:
    """24bsh^2 + 4bs^2h forward; twice that backward, and half an attention more for a fused kernel's scores."""
    h, s = 12288, 2048
    forward, attention = 24 * s * h * h + 4 * s * s * h, 4 * s * s * h
    found = flops("gpt3-175b", **GPT3)
    assert found == Flops(forward, 2 * forward + attention // 2, 0, forward)
    assert flops("gpt3-175b", **GPT3, workload__attention="unfused").backward == 2 * forward


def test_flops_are_shared_out() -> None:
    whole = flops("gpt3-175b", **GPT3)
    for tp in (2, 4, 8):
        assert flops("gpt3-175b", **GPT3, parallelism__tp=tp).forward * tp == whole.forward
        assert flops("gpt3-175b", **GPT3, parallelism__tp=tp).model == whole.forward
    assert flops("gpt3-175b", **GPT3, parallelism__cp=4).forward * 4 == whole.forward
    # Data-parallel ranks have microbatches of their own.
    assert flops("gpt3-175b", **GPT3, parallelism__dp=4) == whole


def test_flops_of_full_recomputation_are_narayanans() -> None:
    """Equation 3: 96Blsh^2 (1 + s/6h + V/16lh) for a batch of B, scores written to memory."""
    b, s, h, layers, v = 4, 2048, 12288, 96, 50304
    found = step(
        "gpt3-175b", "a100-80g-sxm", **GPT3, workload__recompute="full", workload__attention="unfused",
        workload__global_batch_size=b,
    )  # fmt: skip
    assert found.flops == 96 * b * layers * s * h * h + 16 * b * layers * s * s * h + 6 * b * s * v * h
    assert found.model_flops == 72 * b * layers * s * h * h + 12 * b * layers * s * s * h + 6 * b * s * v * h


def test_flops_of_selective_recomputation() -> None:
    """One more pass over the scores: s/6h of the products of the forward pass, published as 2.7 and 1.6 percent."""
    for name, hidden, heads in (("gpt3", 12288, 96), ("mtnlg", 20480, 128)):
        model = fields(
            hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=heads, head_dim=hidden // heads,
            intermediate_size=4 * hidden, num_hidden_layers=1, gated_mlp=False,
        )  # fmt: skip
        found = flops(model, **GPT3, workload__recompute="selective", workload__attention="unfused")
        products = 24 * 2048 * hidden * hidden
        assert 100 * found.recompute / products == pytest.approx(golden("ACT-03")[f"{name}_flops"], rel=1e-12)


def test_flops_of_a_llama_are_those_of_its_parameters() -> None:
    """Two for each parameter that a token meets, table aside; attention 4sh a layer (Chowdhery et al., appendix B)."""
    tokens, layers, h = 8192, 32, 4096
    found = step("llama-3-8b", "h100", workload__sequence_length=tokens)
    met = 8_030_261_248 - 128256 * h - (2 * layers + 1) * h
    padding = 2 * tokens * (found.model_flops and 128256 % 128) * h
    assert found.model_flops == 3 * (2 * tokens * met + layers * 4 * tokens * tokens * h + padding)


def test_flops_of_a_mixture_are_of_chosen_experts() -> None:
    """Mixtral: two of eight experts of 3 x 4096 x 14336, a router, and attention of 8 KV heads."""
    s = 4096
    attention = 2 * s * (2 * 4096 * 4096 + 2 * 4096 * 1024) + 4 * s * s * 4096
    experts = 2 * s * (2 * 3 * 4096 * 14336 + 4096 * 8)
    assert flops("mixtral-8x7b").forward == attention + experts
    spread = flops("mixtral-8x7b", parallelism__dp=8, parallelism__ep=8)
    assert spread.forward == spread.model == attention + experts
    deduplicated = {"parallelism__dp": 8, "parallelism__ep": 8, "parallelism__dispatch": "deduplicated"}
    assert flops("mixtral-8x7b", **deduplicated).forward == attention + experts
    busy = flops("mixtral-8x7b", parallelism__dp=8, parallelism__ep=8, workload__imbalance="1.5")
    assert busy.forward - attention - 2 * s * 4096 * 8 == Fraction(3, 2) * 2 * s * 2 * 3 * 4096 * 14336
    assert busy.model == attention + experts


def test_flops_of_latent_attention() -> None:
    """DeepSeek-V3, dense layers: latents of 1536 and 512 + 64, 128 heads of 128 + 64 and 128, an MLP of 18432."""
    s, d, heads = 4096, 7168, 128
    products = d * 1536 + 1536 * heads * 192 + d * 576 + 512 * heads * 256 + heads * 128 * d + 3 * d * 18432
    assert flops("deepseek-v3", "dense").forward == 2 * s * products + 2 * s * s * heads * (192 + 128)


def test_pairs_of_tokens() -> None:
    found = question("gemma-3-27b", workload__sequence_length=4096)
    full = pairs_of(found.model, found.work, Scores.FULL)
    assert (full[Attention.FULL], full[Attention.SLIDING]) == (4096 * 4096, 4096 * 1024)
    causal = pairs_of(found.model, found.work, Scores.CAUSAL)
    assert causal[Attention.FULL] == sum(range(1, 4097))
    assert causal[Attention.SLIDING] == sum(min(at, 1024) for at in range(1, 4097))
    decoding = pairs_of(found.model, found.work._replace(phase=Phase.DECODE), Scores.FULL)
    assert (decoding[Attention.FULL], decoding[Attention.SLIDING]) == (4096, 1024)
    chunked = question("llama-4-scout-17b-16e", workload__sequence_length=20480)
    assert pairs_of(chunked.model, chunked.work, Scores.FULL)[Attention.CHUNKED] == 2 * 8192**2 + 4096**2


# The step


def test_a_step_adds_up() -> None:
    asked = {
        "parallelism__tp": 8, "parallelism__pp": 4, "parallelism__dp": 4, "workload__global_batch_size": 64,
        "workload__recompute": "full", "parallelism__zero": 1, "step__efficiency": "0.5",
    }  # fmt: skip
    priced, found = ask("llama-3-70b", "h100", **asked), step("llama-3-70b", "h100", **asked)
    one, m = found.slowest, 16
    assert found.time_s == pytest.approx(m * (one.compute_s + one.exposed_s) * (1 + 3 / m) + one.once_exposed_s)
    assert found.idle == 3 / 16 == float(bubble(priced.ledger.parallel, m))
    # Nothing is hidden: what is exposed is what the rows of the stage say, which is the last, with the head.
    ledger = priced.ledger
    stage = ledger.stages[one.stage]
    assert one.stage == 3
    hardware = question("llama-3-70b", "h100").hardware
    assert hardware is not None
    seconds: dict[str, float] = {}
    for entry in stage_entries(priced, stage, hardware.network):
        group = entry.row.group
        seconds[group] = seconds.get(group, 0.0) + entry.time_s * ledger.times_in_step(entry.row, stage)
    assert found.exposed == pytest.approx(seconds)
    assert found.exposed_s == pytest.approx(sum(seconds.values()))
    forward = computed(ledger).stage(ledger, stage).forward
    assert one.forward_s == pytest.approx(forward / (0.5 * 989e12))
    assert one.recompute_s < one.forward_s  # the head does not run again


def test_tokens_per_second_and_mfu() -> None:
    found = step("llama-3-8b", "h100", parallelism__dp=8, workload__global_batch_size=8, workload__sequence_length=8192)
    assert found.tokens_per_s == pytest.approx(8 * 8192 / found.time_s)
    assert found.mfu == pytest.approx(found.model_flops / (8 * 989e12 * found.time_s))
    assert found.hfu > found.mfu  # scores are made twice


def test_stages_have_times_of_their_own() -> None:
    found = look("llama-3-8b", "h100", parallelism__pp=4, workload__global_batch_size=8)
    assert found.step is not None
    assert found.memory is not None
    first, second, third, last = (one.compute_s for one in found.step.stages)
    assert second == third == first  # looking words up is no product
    head = 3 * 2 * 4096 * 128256 * 4096
    assert last - first == pytest.approx(head / 989e12, rel=1e-3)
    assert found.step.slowest.stage == 3


def test_every_stage_has_totals_of_its_own() -> None:
    """The embedding's reduction and its table's gradients on the first, head and loss on the last, messages between."""
    asked = {
        "parallelism__tp": 2, "parallelism__pp": 4, "parallelism__dp": 2, "workload__global_batch_size": 16,
        "parallelism__zero": 1,
    }  # fmt: skip
    found, job = look("llama-3-8b", "h100", **asked), question("llama-3-8b", "h100", **asked)
    message, reduced = 4096 * 4096 * 2, 4096 * 4096 * 2
    for number, totals in enumerate(found.totals):
        ledger = build(job.model, job.parallel, job.work, job.convention, number)
        rows = [(row, ledger.times_in_step(row)) for row in ledger.rows]
        for group in ("tp", "pp", "dp", "all"):
            wire = sum(row.wire_bytes * times for row, times in rows if group in (row.group, "all"))
            assert totals[group].wire_bytes == wire, (number, group)
        sends = 8 * (1 if number in (0, 3) else 2)
        assert totals["pp"].payload_bytes == sends * message
        # Two reductions a layer and pass; one more of the embedding, and of the head's input with three of the loss.
        ends = {0: 8 * reduced, 3: 8 * (reduced + 3 * 4096 * 4)}.get(number, 0)
        assert totals["tp"].payload_bytes == 8 * 8 * 4 * reduced + ends
    assert [totals["dp"].payload_bytes > found.totals[1]["dp"].payload_bytes for totals in found.totals] == [
        True, False, False, True,
    ]  # fmt: skip


def test_days_of_training() -> None:
    """Equation 4 of Narayanan et al. leaves attention and logits out: 8TP/nX; times and FLOPs else as published."""
    days = golden("PP-07")["gpt3"]
    found = step(
        "gpt3-175b", "a100-80g-sxm", **GPT3, workload__recompute="full", workload__attention="unfused",
        step__efficiency=str(140 / 312)[:14], step__train_tokens="300e9",
    )  # fmt: skip
    assert found.train_s is not None
    alone = found.train_s / 1024 / 86400  # a device by itself, as many tokens, a 1024th of the time
    published = 8 * 175e9 * 2048 / (found.flops)
    assert alone * published == pytest.approx(days, rel=1e-6)
    assert alone == pytest.approx(days, rel=0.05)


@pytest.mark.parametrize("name", ["175_384", "175_1536", "530_560", "530_2240"])
def test_days_of_table_2(name: str) -> None:
    """Narayanan et al., table 2: 174.6 and 529.6 billion parameters at 153 to 171 TFLOP/s a GPU."""
    _, _, devices = name.partition("_")
    model, parameters = ("gpt3-175b", 174.6e9) if name.startswith("175") else ("mt-nlg-530b", 529.6e9)
    reached = {"175_384": 153, "175_1536": 141, "530_560": 171, "530_2240": 159}[name]
    found = step(
        model, "a100-80g-sxm", **GPT3, workload__recompute="full", workload__attention="unfused",
        step__efficiency=str(reached / 312)[:14], step__train_tokens="300e9",
    )  # fmt: skip
    assert found.train_s is not None
    days = found.train_s / int(devices) / 86400
    assert days * 8 * parameters * 2048 / found.flops == pytest.approx(golden("PP-08")[name], rel=1e-6)
    # With attention and logits it takes up to five percent longer than the estimate.
    assert 1 < days / golden("PP-08")[name] < 1.05


# What is hidden


def test_exposed_one_after_another_or_at_once() -> None:
    window = Window(1.0, {"tp": 0.7, "dp": 0.6, "pp": 0.1})
    assert expose(window, (), Combine.ADDED).total_s == pytest.approx(1.4)
    added = expose(window, ("tp", "dp"), Combine.ADDED)
    assert added.by_group == pytest.approx({"tp": 0.0, "dp": 0.3, "pp": 0.1})
    assert (added.total_s, added.spent_s) == pytest.approx((0.4, 1.0))
    largest = expose(window, ("tp", "dp"), Combine.LARGEST)
    assert (largest.total_s, largest.spent_s) == pytest.approx((0.1, 0.7))
    assert expose(Window(0.5, {"tp": 0.7, "dp": 0.6}), ("tp", "dp"), Combine.LARGEST).total_s == pytest.approx(0.2)
    assert expose(Window(0.5, {"edp": 0.7}), ("dp",), Combine.ADDED, 0.2).total_s == pytest.approx(0.4)


def test_gradients_hide_behind_the_last_microbatch() -> None:
    asked = {"parallelism__dp": 64, "workload__sequence_length": 4096, "step__efficiency": "0.5"}
    plain = step("llama-3-8b", "h100", **asked, workload__global_batch_size=64)
    hidden = step("llama-3-8b", "h100", **asked, workload__global_batch_size=64, step__overlap="dp")
    one = plain.slowest
    assert plain.exposed["dp"] == pytest.approx(one.once_comm_s)
    assert hidden.exposed["dp"] == pytest.approx(max(one.once_comm_s - one.compute_s, 0.0))
    assert plain.serial_s == plain.time_s
    assert hidden.time_s == pytest.approx(hidden.overlapped_s)


@pytest.mark.parametrize(
    ("axis", "asked", "way_out"),
    [
        ("tp", {"parallelism__tp": 8}, {"parallelism__sp": True}),
        ("cp", {"parallelism__cp": 2, "parallelism__cp_comm": "all_gather"}, {"parallelism__cp_comm": "ring"}),
        ("pp", {"parallelism__pp": 2, "workload__global_batch_size": 4},
         {"parallelism__schedule": "interleaved", "parallelism__virtual_stages": 2}),
    ],
)  # fmt: skip
def test_what_cannot_overlap(axis: str, asked: dict[str, object], way_out: dict[str, object]) -> None:
    with pytest.raises(CommcalcError, match=f"{axis} cannot overlap") as told:
        step("llama-3-8b", "h100", **asked, step__overlap=axis)
    assert told.value.status == 3
    assert step("llama-3-8b", "h100", **(asked | way_out), step__overlap=axis).time_s > 0


def test_experts_overlap_with_another_microbatch() -> None:
    asked = {"parallelism__dp": 8, "parallelism__ep": 8, "step__overlap": "ep"}
    with pytest.raises(CommcalcError, match="ep cannot overlap"):
        step("mixtral-8x7b", "h100", **asked, workload__global_batch_size=8)
    assert step("mixtral-8x7b", "h100", **asked, workload__global_batch_size=16).time_s > 0


def test_full_overlap_is_a_bound_and_says_so() -> None:
    found = look("llama-3-8b", "h100", parallelism__tp=8, step__overlap="full")
    assert [warning.code for warning in found.warnings if warning.code == "overlap-is-a-bound"]
    assert found.step is not None
    assert found.step.time_s == found.step.overlapped_s < found.step.serial_s


@settings(max_examples=60, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 8]), sp=st.booleans(), dp=st.sampled_from([1, 4]), zero=st.sampled_from([0, 1, 2, 3]),
    pp=st.sampled_from([1, 2, 4]), batch=st.sampled_from([4, 8]), combine=st.sampled_from(["added", "largest"]),
    overlap=st.sampled_from(["none", "dp", "full"]),
)  # fmt: skip
def test_bounds_hold_what_is_between_them(
    tp: int, sp: bool, dp: int, zero: int, pp: int, batch: int, combine: str, overlap: str
) -> None:
    found = step(
        "llama-3-8b", "a100", parallelism__tp=tp, parallelism__sp=sp and tp > 1, parallelism__dp=dp,
        parallelism__zero=zero if dp > 1 else 0, parallelism__pp=pp, workload__global_batch_size=batch * dp,
        step__combine=combine, step__overlap=overlap, workload__sequence_length=1024,
    )  # fmt: skip
    assert found.overlapped_s <= found.time_s * (1 + 1e-12)
    assert found.time_s <= found.serial_s * (1 + 1e-12)
    one, m = found.slowest, found.microbatches
    assert found.overlapped_s >= m * one.compute_s * (1 + found.idle) * (1 - 1e-12)
    assert 0 < found.mfu <= found.hfu <= 1


# One token


def test_a_decoding_step_reads_weights_and_cache() -> None:
    """The scaling book, part 7: (B KV + P) / (n W); from a larger batch on products take 2BP / (n C) instead.

    Its invented model: 64 layers of 4096, gated 16384, 32 heads and 8 KV heads of 256, in one byte, on 16 chips.
    """
    shape = {
        "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 64, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 256, "vocab_size": 32128, "tie_word_embeddings": True,
    }  # fmt: skip
    asked = {
        "workload__phase": "decode", "workload__sequence_length": 8192, "workload__dtype": "int8",
        "parallelism__tp": 4, "parallelism__vocab_padding": "none", "hardware__chip__hbm__bandwidth": "810 GB/s",
        "hardware__chip__flops__int8": "394 TFLOP/s",
    }  # fmt: skip
    products = golden("ACT-16")["q1_params"]
    assert products == 64 * 4096 * (3 * 16384 + 2 * 256 * 40) + 4096 * 32128
    norms = 129 * 4096  # whole on every rank
    for batch in (4, 256):
        found = step(fields(**shape), "tpu-v5e", **asked, workload__micro_batch_size=batch).decode
        assert found is not None
        read, rate = products // 4 + norms, 810e9
        assert found.weights_s == pytest.approx(read / rate, rel=1e-9)
        assert found.kv_s == pytest.approx(batch * 8192 * 2 * 64 * 8 * 256 / 4 / rate, rel=1e-9)
        compute = 2 * batch * products // 4 / 394e12
        assert found.flops_s == pytest.approx(max(compute - found.weights_s, 0.0), rel=1e-6, abs=1e-12)


def test_fixed_cost_of_each_call() -> None:
    """UR-068: 128 AllReduces of 10,240 B, 92.5 us each, beside 63.6 GB of weights over TP at 2039 GB/s."""
    want = expected("UR-068")
    for tp, weights_ms in ((2, 15.6), (4, 7.8), (8, 3.9)):
        asked = {"parallelism__tp": tp, "workload__phase": "decode", "workload__sequence_length": 200}
        priced = ask("qwen3-32b", "a100-80g-sxm", **asked, links__call_latency="92.5us")
        assert priced.totals["stage"]["tp"].calls == want["all_reduce"]
        assert {entry.row.payload_bytes for entry in priced.entries if entry.row.per == "block"} == {
            want["message_bytes"]
        }
        found = step("qwen3-32b", "a100-80g-sxm", **asked, links__call_latency="92.5us").decode
        assert found is not None
        assert found.fixed_s == pytest.approx(found.calls * 92.5e-6)
        # Two calls more: the embedding's, and the gather of logits.
        assert 1e3 * 92.5e-6 * (found.calls - 2) == pytest.approx(want["latency_ms"], rel=1e-9)
        assert 1e3 * found.weights_s == pytest.approx(weights_ms, rel=0.02)
        assert found.bytes_s < 0.02 * found.fixed_s


def test_129_calls_of_a_step() -> None:
    """UR-129: two for each of 64 layers and one of the embedding; at 0.443 ms each they take 57.1 of 108.6 ms."""
    want = expected("UR-129")
    asked = {"parallelism__tp": 4, "workload__phase": "decode"}
    for cost, key in (("443us", "latency_ms"), ("392.3us", "at_392_3_us")):
        priced = ask("qwen3-32b", "a100-80g-sxm", **asked, links__call_latency=cost)
        reduced = [entry for entry in priced.entries if entry.row.kind == "all_reduce"]
        calls = sum(priced.ledger.times_in_step(entry.row) for entry in reduced)
        assert calls == want["all_reduce"]
        fixed = sum(priced.ledger.times_in_step(entry.row) * entry.priced.cost.latency_s
                    for entry in reduced if entry.priced)  # fmt: skip
        assert 1e3 * fixed == pytest.approx(want[key], rel=1e-5)
    left = 0.1086 - want["latency_ms"] / 1e3
    assert 1 / left == pytest.approx(want["ceiling_tok_s"], rel=1e-3)


def test_a_slow_link_that_is_not_the_problem() -> None:
    """UR-070: 160 messages of 16,384 B on a link of 24 GB/s are 0.109 ms; 160 calls of 50 us are 8 ms."""
    want = expected("UR-070")
    asked = {"parallelism__tp": 2, "workload__phase": "decode"}
    priced = ask("llama-3-70b", bandwidth=["24GB/s"], links__call_latency="50us", **asked)
    inside = [entry for entry in priced.entries if entry.row.per == "block" and entry.priced]
    assert priced.totals["stage"]["tp"].wire_bytes == want["wire_bytes"]
    calls = 80
    assert 1e3 * calls * sum(one.priced.cost.bandwidth_s for one in inside if one.priced) == pytest.approx(
        want["bandwidth_ms"], rel=5e-3
    )
    assert 1e3 * calls * sum(one.priced.cost.latency_s for one in inside if one.priced) == pytest.approx(
        want["latency_ms"]
    )


def test_rate_of_a_decoding_server() -> None:
    """UR-059: 48 tokens a second are 160 messages of 16,384 B each: 125.8 MB/s, 220.2 on the wire at TP 8."""
    want = expected("UR-059")
    total = ask("llama-3-70b", parallelism__tp=8, workload__phase="decode").totals["stage"]["tp"]
    assert total.payload_bytes // total.calls == want["message_bytes"]
    assert 48 * total.payload_bytes / 1e6 == pytest.approx(want["payload_mb_s"], rel=1e-3)
    assert 48 * total.wire_bytes / 1e6 == pytest.approx(want["wire_mb_s_per_gpu"], rel=1e-3)


def test_what_overlap_can_save_at_most() -> None:
    """UR-078: Qwen3-32B, TP 8 with SP on 262,144 tokens: 1503 GB a GPU, 4.18 s at 360 GB/s; 5.85 recomputing."""
    want = expected("UR-078")
    asked = {
        "parallelism__tp": 8, "parallelism__sp": True, "workload__sequence_length": 16384,
        "workload__global_batch_size": 16,
    }  # fmt: skip
    plain = ask("qwen3-32b", bandwidth=["360GB/s"], **asked)
    total = plain.totals["stage"]["tp"]
    assert 16 * total.wire_bytes == want["wire_bytes_per_gpu"]
    assert 16 * (total.time_s or 0) == pytest.approx(want["time_s"], rel=1e-3)
    again = ask("qwen3-32b", bandwidth=["360GB/s"], **asked, workload__recompute="full")
    assert 16 * (again.totals["stage"]["tp"].time_s or 0) == pytest.approx(want["with_full_recompute_s"], rel=1e-3)


def test_a_share_for_every_collective(inside: Inside) -> None:
    """UR-127: one command, with bytes and percent for each collective."""
    ran = inside("ledger", "--model", "llama-3-70b", "--hardware", "h100", "--tp", "8", "--pp", "4", "--dp", "8",
                 "--zero", "1", "--recompute", "full", "--global-batch", "1024", "--seq", "4096", "--json")  # fmt: skip
    rows = ran.json["rows"]
    assert ran.status == 0
    for row in rows:
        assert {"collective", "count", "payload_bytes", "wire_bytes", "wire_share", "time_share"} <= row.keys()
    assert sum(row["wire_share"] for row in rows) == pytest.approx(1)
    assert sum(row["time_share"] for row in rows) == pytest.approx(1)
    wire = ran.json["totals"]["step"]["dp"]["wire_bytes"] / ran.json["totals"]["step"]["all"]["wire_bytes"]
    assert sum(row["wire_share"] for row in rows if row["group"] == "dp") == pytest.approx(wire)


def test_experts_that_some_token_chose() -> None:
    """64 tokens choose 2 of 8 experts each: 1 - (3/4)^64 of them are read; one token reads two."""
    one = step("mixtral-8x7b", "h100", workload__phase="decode").decode
    many = step("mixtral-8x7b", "h100", workload__phase="decode", workload__micro_batch_size=64).decode
    assert one is not None
    assert many is not None
    experts = 32 * 8 * 3 * 4096 * 14336 * 2
    grown = (many.weights_s - one.weights_s) * 3.35e12
    assert grown == pytest.approx(experts * (1 - 0.75**64 - 0.25), rel=1e-3)


# Context and experts


def test_a_ring_hides_from_as_many_tokens_as_flops_for_a_byte() -> None:
    """CP-03: 4dc^2 FLOP behind 4cd bytes, so c = F/B tokens; six such blocks are a sequence."""
    systems = {"a100_nvlink": (312, 300), "tpuv3": (123, 112), "tpuv4": (275, 268), "tpuv5e": (196, 186)}
    model = fields(hidden_size=4096, num_attention_heads=32, num_key_value_heads=32, head_dim=128,
                   intermediate_size=16384, num_hidden_layers=1)  # fmt: skip
    for c in (512, 1024):
        priced = ask(model, parallelism__cp=8, workload__sequence_length=8 * c)
        (hop,) = {entry.row.payload_bytes for entry in priced.entries
                  if entry.row.kind == "send_recv" and entry.row.direction == "forward"}  # fmt: skip
        pair = computed(priced.ledger).parts["block"].pairs["attention"].forward * 8
        assert pair // 8 * 8 == pair
        assert pair * c * c // 8 == 4 * 4096 * c * c // 8
        assert 4 * 4096 * c * c / hop == c
    for name, (rate, link) in systems.items():
        assert rate / link == pytest.approx(golden("CP-03")[f"{name}_c"], rel=1e-12)


def test_experts_a_token_reaches_while_it_crosses_nodes() -> None:
    """EP-02: NVLink at 160 GB/s carries 3.2 copies while InfiniBand at 50 carries one; of 4 nodes 12.8."""
    links = ["nvlink=160GB/s", "infiniband=50GB/s"]
    asked = {
        "parallelism__dp": 64, "parallelism__ep": 64, "parallelism__ep_nodes": 8, "parallelism__node_limit": 4,
        "parallelism__dispatch": "deduplicated",
    }  # fmt: skip
    priced = ask("deepseek-v3", "h800", bandwidth=links, **asked)
    rates = {}
    for entry in priced.entries:
        if entry.row.op == "dispatch" and entry.row.direction == "forward" and entry.priced:
            rates[entry.priced.level] = entry.row.wire_bytes / entry.priced.cost.bandwidth_s
    ratio = rates["nvlink"] / rates["infiniband"]
    # Bytes on the wire are whole.
    assert ratio == pytest.approx(golden("EP-02")["ratio"], rel=1e-5)
    assert 4 * ratio == pytest.approx(golden("EP-02")["max_experts"], rel=1e-5)
    assert math.floor(4 * ratio) >= 8
