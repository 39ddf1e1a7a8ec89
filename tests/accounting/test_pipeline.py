"""Pipeline stages: what they send, how long they idle, which layers they hold, against published formulas.

Sources: tests/data/goldens_groups.yaml; Narayanan et al. 2021, arXiv:2104.04473, sections 2.2, 3.2 and 4.1;
DeepSeek-V3, arXiv:2412.19437, table 2; deepseek-ai/DualPipe (dualpipe/dualpipe.py, examples/example_dualpipe.py);
Megatron-LM core/pipeline_parallel/p2p_communication.py; vLLM distributed/utils.py (get_pp_indices) and
distributed/parallel_state.py (send_tensor_dict).
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from commcalc.accounting.explain import explain_row, explain_totals
from commcalc.accounting.ledger import rows_of_stage
from commcalc.accounting.pipeline import bubble
from commcalc.accounting.pricing import PricedLedger, placement_of
from commcalc.accounting.rows import TIED, TO_NEXT, TO_PREVIOUS, Row
from commcalc.catalog.job import Request, resolve_job
from commcalc.errors import IllegalDegree
from commcalc.transformer.work import Parallelism, Schedule
from conftest import DATA, Inside, ask, fields, rows

GOLDENS = {case["id"]: case for case in yaml.safe_load((DATA / "goldens_groups.yaml").read_text())["cases"]}


def golden(ident: str) -> dict[str, Any]:
    return {value["name"]: value["recomputed"] for value in GOLDENS[ident]["expected"]}


def sends(priced: PricedLedger, part: str) -> list[tuple[Row, int]]:
    """For every stage its message in one direction, and how often it sends that in a step; sends of none left out."""
    ledger = priced.ledger
    return [
        (row, ledger.times_in_step(row, stage))
        for stage in ledger.stages
        for row in rows_of_stage(ledger, stage)
        if row.part == part
    ]


def by_stage(priced: PricedLedger, part: str) -> dict[int, int]:
    """The number of messages of each stage in a step."""
    ledger = priced.ledger
    return {
        stage.number: sum(ledger.times_in_step(row, stage) for row in rows_of_stage(ledger, stage) if row.part == part)
        for stage in ledger.stages
    }


# Published answers


def trillion(**more: object) -> PricedLedger:
    """The 1T model of the paper: h = 25600, s = 2048, b = 1, t = 8."""
    model = fields(hidden_size=25600, num_hidden_layers=128, num_attention_heads=160, intermediate_size=102400)
    return ask(model, parallelism__tp=8, parallelism__pp=64, workload__sequence_length=2048, **more)


def test_a_message_between_stages() -> None:
    """PP-01, sections 3.2 and 4.1: b s h elements, or with tokens split over the TP group b s h / t."""
    want = golden("PP-01")
    plain = {row.payload_bytes for row, _ in sends(trillion(), TO_NEXT)}
    split = {row.payload_bytes for row, _ in sends(trillion(parallelism__sp=True), TO_NEXT)}
    assert plain == {want["plain_bytes"]} == {2 * want["plain"]}
    assert split == {2 * int(want["scatter_gather"])}
    assert plain == {size * want["reduction"] for size in split}


def test_bubble_of_published_examples() -> None:
    """PP-02, section 2.2: (p-1)/m, and (p-1)/(m v); PP-03: (n-d)/b' on 32 GPUs of which 8 are data-parallel."""
    want = golden("PP-02")
    plain = bubble(Parallelism(pp=8), 64)
    assert plain == Fraction(7, 64) == Fraction(want["plain"]) == Fraction(want["via_n_t"])
    interleaved = Parallelism(pp=8, schedule=Schedule.INTERLEAVED, virtual_stages=2)
    assert bubble(interleaved, 64) == Fraction(7, 128) == Fraction(want["interleaved"])
    priced = ask("llama-3-8b", parallelism__pp=4, parallelism__dp=8, workload__global_batch_size=128)
    assert priced.ledger.microbatches == 16
    assert bubble(priced.ledger.parallel, priced.ledger.microbatches) == Fraction(golden("PP-03")["bubble"])


def test_interleaving_multiplies_messages() -> None:
    """PP-02, section 2.2: the volume of communication grows by v; here v = 2 chunks, 8 stages, 64 microbatches."""
    common = {"parallelism__pp": 8, "workload__global_batch_size": 64}
    plain = ask("llama-3-8b", **common)
    twice = ask("llama-3-8b", parallelism__schedule="interleaved", parallelism__virtual_stages=2, **common)
    v = golden("PP-02")["comm_factor"]
    for part in (TO_NEXT, TO_PREVIOUS):
        inner = range(1, 7)
        before, after = by_stage(plain, part), by_stage(twice, part)
        assert [after[stage] for stage in inner] == [v * before[stage] for stage in inner] == [v * 64] * 6
        assert {row.payload_bytes for row, _ in sends(twice, part)} == {4096 * 4096 * 2}


def test_bubbles_of_zero_bubble_and_dualpipe() -> None:
    """PP-05, table 2 of DeepSeek-V3: 16 stages, F = 1, B = 2, W = 1, F and B together 2.5; units are m(F+B)."""
    want = golden("PP-05")
    for schedule, name in ((Schedule.ONE_F_ONE_B, "1f1b"), (Schedule.ZB1P, "zb1p"), (Schedule.DUALPIPE, "dualpipe")):
        for microbatches in (32, 64):
            idle = bubble(Parallelism(pp=16, schedule=schedule), microbatches)
            assert idle * microbatches * 3 == Fraction(want[name]), name


# DualPipe: rank i of p holds stages i and p - 1 - i, and half of the microbatches enter at each end.

DUAL = {"parallelism__schedule": "dualpipe", "parallelism__pp": 4, "parallelism__vocab_padding": "none"}
# A layer: 2 norms of 64; queries, keys, values and output 64 x 64 each; gate, up and down 64 x 256 each.
LAYER = 2 * 64 + 4 * 64 * 64 + 3 * 64 * 256
assert LAYER == 65_664


def small(layers: int = 8, **more: object) -> str:
    return fields(hidden_size=64, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=256, **more)


def dual(model: str, hardware: str | None = None, **more: object) -> PricedLedger:
    """8 microbatches of 32 tokens on each of the data-parallel ranks, the fewest that 4 stages are fed with."""
    dp = more.get("parallelism__dp", 1)
    assert isinstance(dp, int)
    question = {"workload__sequence_length": 32, "workload__global_batch_size": 8 * dp, **DUAL, **more}
    return ask(model, hardware, **question)


def updates(priced: PricedLedger, stage: int = 0) -> list[tuple[str, str, int, int, int]]:
    """Op, group, ranks, payload and times in a step of what a place sends of parameters."""
    ledger = priced.ledger
    at = ledger.stages[stage]
    return [
        (row.op, row.group, row.group_size, row.payload_bytes, ledger.times_in_step(row, at))
        for row in rows_of_stage(ledger, at)
        if row.op in ("gradients", "parameters")
    ]


def test_a_dualpipe_rank_holds_the_parameters_of_two_stages() -> None:
    """PP-05, table 2 of DeepSeek-V3, column Parameter: 2x. 16 layers on 8 stages: four of 65,664 on each rank."""
    want = golden("PP-05")["dualpipe_params"]
    common = {"parallelism__pp": 8, "parallelism__dp": 2, "workload__global_batch_size": 32}
    plain, both = ask(small(16), **common), dual(small(16), **common)
    for place in range(8):
        ((_, _, ranks, alone, _),) = updates(plain, place)
        ((_, _, doubled, together, _),) = updates(both, place)
        assert (ranks, alone) == (2, 4 * 131_328)
        assert (doubled, together) == (2 * 2, want * alone) == (4, 1_050_624)


@pytest.mark.parametrize(
    ("dp", "cp", "zero", "found"),
    [
        # Mirrored ranks computed gradients of the same four layers: deepseek-ai/DualPipe, examples, p0.grad += p1all.
        (1, 1, 0, [("gradients", "dp", 2, 4 * 262_656, 1)]),
        (2, 1, 0, [("gradients", "dp", 4, 4 * 262_656, 1)]),
        (3, 2, 0, [("gradients", "dp", 12, 4 * 262_656, 1)]),
        (1, 1, 1, [("gradients", "dp", 2, 4 * 262_656, 1), ("parameters", "dp", 2, 2 * 262_656, 1)]),
        (4, 1, 1, [("gradients", "dp", 8, 4 * 262_656, 1), ("parameters", "dp", 8, 2 * 262_656, 1)]),
        # 10 ranks share 262,656 parameters in parts of 26,266.
        (5, 1, 1, [("gradients", "dp", 10, 4 * 262_660, 1), ("parameters", "dp", 10, 2 * 262_660, 1)]),
        # Once for each of 4 pairs of microbatches, one through either stage.
        (2, 1, 2, [("gradients", "dp", 4, 4 * 262_656, 4), ("parameters", "dp", 4, 2 * 262_656, 1)]),
    ],
)  # fmt: skip
def test_mirrored_ranks_are_more_data_parallel_ranks(
    dp: int, cp: int, zero: int, found: list[tuple[str, str, int, int, int]]
) -> None:
    priced = dual(small(), parallelism__dp=dp, parallelism__cp=cp, parallelism__zero=zero)
    assert all(updates(priced, place) == found for place in range(4))
    for row in rows(priced, direction="update"):
        n = row.group_size
        moved = row.payload_bytes * (n - 1) * (2 if row.kind.value == "all_reduce" else 1)
        assert row.wire_bytes == -(-moved // n)


def test_mirrored_ranks_shard_parameters_too() -> None:
    """ZeRO 3, dp 2: four layers of 4 x 65,664 B and the two ends, each for 4 microbatches, over four ranks."""
    whole = dual(small(vocab_size=512), parallelism__dp=2, parallelism__zero=3)
    layer = [("parameters", "dp", 4, 2 * LAYER, 16)] * 2 + [("gradients", "dp", 4, 4 * LAYER, 16)]
    table = 512 * 64
    ends = [
        ("parameters", "dp", 4, 2 * table, 4), ("gradients", "dp", 4, 4 * table, 4),
        ("parameters", "dp", 4, 2 * (table + 64), 4), ("gradients", "dp", 4, 4 * (table + 64), 4),
    ]  # fmt: skip
    assert sorted(updates(whole, 0)) == sorted(updates(whole, 3)) == sorted(layer + ends)
    assert updates(whole, 1) == updates(whole, 2) == layer
    # Where it is said how many ranks share a copy, the mirror has one more: two of two shards each.
    copies = dual(small(), parallelism__dp=2, parallelism__zero=3, parallelism__dp_shard=2)
    sums = [("gradients", "dp_replica", 2, 4 * LAYER // 2, 4)]
    one = [("parameters", "dp", 2, 2 * LAYER, 16)] * 2 + [("gradients", "dp", 2, 4 * LAYER, 16)]
    assert updates(copies, 1) == one + sums


def test_gradients_of_experts_are_summed_with_the_mirror() -> None:
    """Four layers on a rank, each with 2 of 8 experts of 3 x 64 x 32; 4 ranks hold them once, the mirrors once more."""
    model = small(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32)
    priced = dual(model, parallelism__dp=4, parallelism__ep=4, parallelism__etp=1)
    shared = 4 * (2 * 64 + 4 * 64 * 64 + 8 * 64)
    assert sorted(updates(priced)) == [
        ("gradients", "dp", 8, 4 * shared, 1),
        ("gradients", "edp", 2, 4 * 4 * 2 * 3 * 64 * 32, 1),
    ]


def test_replicated_parameters_of_both_stages_are_summed_over_tp() -> None:
    """Four layers with two norms of 64 in fp32."""
    priced = dual(small(), parallelism__tp=2, parallelism__sp=True)
    (row,) = rows(priced, op="gradient_sync")
    assert (row.group, row.group_size, row.payload_bytes, row.mirrored) == ("tp", 2, 4 * 2 * 64 * 4, False)


def test_messages_from_both_ends() -> None:
    """deepseek-ai/DualPipe, dualpipe.py: _send_forward and _send_backward of both phases, none beyond either end.

    12 microbatches: an inner rank sends 6 activations and 6 gradients each way; the ends have one neighbour.
    """
    priced = dual(small(), workload__global_batch_size=12)
    assert by_stage(priced, TO_NEXT) == by_stage(priced, TO_PREVIOUS) == {0: 6, 1: 12, 2: 12, 3: 6}
    assert {row.payload_bytes for part in (TO_NEXT, TO_PREVIOUS) for row, _ in sends(priced, part)} == {32 * 64 * 2}
    # As many cross every boundary as from one end.
    plain = dual(small(), workload__global_batch_size=12, parallelism__schedule="1f1b")
    assert sum(by_stage(plain, TO_NEXT).values()) == sum(by_stage(priced, TO_NEXT).values()) == 36
    prefill = dual(small(), workload__global_batch_size=12, workload__phase="prefill")
    assert by_stage(prefill, TO_NEXT) == {0: 6, 1: 12, 2: 12, 3: 6}
    assert updates(prefill) == []


def test_the_ends_of_a_dualpipe() -> None:
    """The first and the last rank embed 4 microbatches and have the loss of 4; the tied table is there once.

    GPT-2: 50257 x 768 and 1024 positions; twelve layers, six on a rank; the last norm.
    """
    priced = dual("gpt2", workload__sequence_length=1024, parallelism__dp=2)
    assert by_stage(priced, TIED) == {0: 0, 1: 0, 2: 0, 3: 0}
    layer = 12 * 768 * 768 + 13 * 768
    ends = 6 * layer + 50257 * 768 + 1024 * 768 + 2 * 768
    assert updates(priced, 0) == updates(priced, 3) == [("gradients", "dp", 4, 4 * ends, 1)]
    assert (ends, updates(priced, 1)) == (81_912_576, [("gradients", "dp", 4, 4 * 6 * 7_087_872, 1)])
    split = dual("llama-3-8b", parallelism__tp=2)
    last = split.ledger.stages[3]
    times = {row.part: split.ledger.times_in_step(row, last) for row in rows(split) if row.per != "step"}
    # 8 of 32 layers on each stage.
    assert (times["embedding"], times["block"], times["head"]) == (4, 16 * 4, 4)


def test_totals_of_a_stage_are_of_one_microbatch() -> None:
    """Eight of 32 layers, as without DualPipe; a step runs 16 of them for half of the microbatches."""
    plain, both = (
        ask("llama-3-8b", parallelism__tp=2, parallelism__pp=4, parallelism__schedule=schedule,
            workload__global_batch_size=16)
        for schedule in ("1f1b", "dualpipe")
    )  # fmt: skip
    assert plain.totals["stage"] == both.totals["stage"]
    assert plain.totals["stage"]["tp"].calls == 8 * plain.totals["block"]["tp"].calls
    inner = both.ledger.stages[1]
    assert (inner.times["block"], inner.own["block"], inner.ends) == (16, 8, 2)
    block = next(row for row in both.ledger.rows if row.per == "block")
    assert (
        both.ledger.times_in_step(block, inner) == 16 * 8 == plain.ledger.times_in_step(block, plain.ledger.stages[1])
    )


@pytest.mark.parametrize(
    ("count", "hint", "message"),
    [(7, 8, "7 mod 2 = 1"), (6, 8, "6 are fewer than 8"), (3, 8, "3 mod 2 = 1"), (13, 14, "13 mod 2 = 1")],
)
@pytest.mark.parametrize("phase", ["train", "prefill"])
def test_microbatches_fill_a_dualpipe(count: int, hint: int, message: str, phase: str) -> None:
    """deepseek-ai/DualPipe, dualpipe.py, step: num_chunks % 2 == 0 and num_chunks >= num_ranks * 2."""
    with pytest.raises(IllegalDegree, match=message) as found:
        dual(small(), parallelism__dp=3, workload__global_batch_size=3 * count, workload__phase=phase)
    assert found.value.hint == f"the nearest that does: --global-batch {3 * hint}"
    dual(small(), parallelism__dp=3, workload__global_batch_size=3 * hint, workload__phase=phase)


def test_mirrored_ranks_are_listed(inside: Inside) -> None:
    """tp 2, dp 2, pp 4: ranks 0 and 2 hold stages 0 and 3, as 12 and 14 do."""
    args = (
        "ledger",
        "--model",
        "llama-3-8b",
        "--pp",
        "4",
        "--schedule",
        "dualpipe",
        "--dp",
        "2",
        "--global-batch",
        "16",
    )
    found = inside(*args, "--tp", "2", "--hardware", "h100-sxm", "--ranks", "--json")
    assert found.status == 0, found.err
    groups = {(one["group"], one["index"]): one for one in found.json["ranks"]}
    dp = [one["ranks"] for (name, _), one in groups.items() if name == "dp"]
    assert dp == [[0, 2, 12, 14], [1, 3, 13, 15], [4, 6, 8, 10], [5, 7, 9, 11]]
    assert [one["nodes"] for (name, _), one in groups.items() if name == "dp"] == [2, 2, 2, 2]
    assert groups[("pp", 0)]["ranks"] == [0, 4, 8, 12]
    alone = inside(*args, "--dp", "1", "--global-batch", "8", "--ranks", "--json")
    assert [one["ranks"] for one in alone.json["ranks"] if one["group"] == "dp"] == [[0, 3], [1, 2]]
    assert [one["mirror"] for one in alone.json["inputs"]["stages"]] == [3, 2, 1, 0]
    ((name, size),) = {(row["group"], row["group_size"]) for row in alone.json["rows"] if row["op"] == "gradients"}
    assert (name, size) == ("dp", 2)
    context = inside(*args, "--dp", "1", "--cp", "2", "--global-batch", "8", "--ranks", "--json")
    kinds = {name: [one["ranks"] for one in context.json["ranks"] if one["group"] == name] for name in ("cp", "dp-cp")}
    assert kinds == {"cp": [[0, 1], [2, 3], [4, 5], [6, 7]], "dp-cp": [[0, 1, 6, 7], [2, 3, 4, 5]]}


@pytest.mark.parametrize(
    ("dp", "order", "parts"),
    [
        # Stages of 8 ranks fill nodes of 8: two nodes. Stages of 4 lie with a neighbour, first and last apart.
        (8, "tp-cp-ep-dp-pp", [("nvlink", 8), ("infiniband", 2)]),
        (4, "tp-cp-ep-dp-pp", [("nvlink", 4), ("infiniband", 2)]),
        # All four stages inside: mirrors too.
        (2, "tp-cp-ep-dp-pp", [("nvlink", 4)]),
        (4, "tp-cp-ep-pp-dp", [("nvlink", 4), ("infiniband", 2)]),
        # Ranks 0, 4, 8 and 3, 7, 11: four in one node, two in the next, so a flat ring over the slower level.
        (3, "tp-cp-ep-pp-dp", [("infiniband", 6)]),
    ],
)
def test_mirrored_ranks_ride_the_level_that_joins_them(dp: int, order: str, parts: list[tuple[str, int]]) -> None:
    job = resolve_job(Request(hardware="h100-sxm"))
    assert job.hardware is not None
    network = job.hardware.network
    priced = dual(small(), "h100-sxm", parallelism__dp=dp, parallelism__order=order)
    (row,) = rows(priced, op="gradients")
    at = placement_of(row, priced.ledger, network)
    assert [(network.levels[level].name, members) for level, members in at.parts] == parts
    assert at.size == row.group_size == 2 * dp


@pytest.mark.parametrize("zero", range(4))
@pytest.mark.parametrize(("tp", "cp", "dp"), [(1, 1, 1), (2, 1, 2), (1, 2, 3), (2, 2, 2)])
def test_calls_of_a_dualpipe_are_explained(zero: int, tp: int, cp: int, dp: int) -> None:
    priced = dual(
        small(vocab_size=512), "h100-sxm", parallelism__tp=tp, parallelism__sp=tp > 1, parallelism__cp=cp,
        parallelism__dp=dp, parallelism__zero=zero, workload__sequence_length=64,
    )  # fmt: skip
    lines = explain_totals(priced)
    left, right = lines[-1].split(" = ")[1:]
    worked = re.sub(r" ?(pairs? of microbatches|,)", "", left)
    assert eval(worked) == int(right.replace(",", "").split()[0]) == priced.totals["step"]["all"].wire_bytes
    for entry in priced.entries:
        calls = next(line for line in explain_row(entry, priced) if line.startswith("calls"))
        *factors, product = (int(number) for number in re.findall(r"\d+", calls))
        assert math.prod(factors) == product == priced.ledger.times_in_step(entry.row), calls


@pytest.mark.parametrize(
    ("stage", "cp", "dp", "sequences", "tokens"),
    [(1, 1, 64, 2048, 8192), (2, 1, 128, 2048, 8192), (3, 16, 8, 128, 131072)],
)
def test_the_three_stages_of_llama_3_405b(stage: int, cp: int, dp: int, sequences: int, tokens: int) -> None:
    """PP-10, The Llama 3 Herd of Models, table 4 (v3: 8 data-parallel ranks in the last row; v1 printed 4)."""
    want = golden("PP-10")
    priced = ask(
        "llama-3.1-405b", parallelism__tp=8, parallelism__cp=cp, parallelism__pp=16, parallelism__dp=dp,
        workload__sequence_length=tokens, workload__global_batch_size=sequences,
    )  # fmt: skip
    assert priced.ledger.layout.mesh.devices == want.get(f"stage{stage}_gpus", 16384)
    # 16 M tokens a step: what the messages of all copies and context ranks carry, 16384 x 2 bytes a token.
    messages = sends(priced, TO_NEXT)
    carried = {row.payload_bytes * times * dp * cp for row, times in messages}
    assert carried == {want[f"stage{stage}_tokens"] * 16384 * 2}
    # Copies and context ranks hold the same parameters, and sum their gradients together.
    (gradients,) = rows(priced, op="gradients")
    assert gradients.group_size == dp * cp


# Where layers lie


@pytest.mark.parametrize(
    ("framework", "layers"),
    [
        (None, [4] * 13 + [3] * 3),
        # get_pp_indices: what is left goes to the last but one, then backwards.
        ("vllm", [3, 3] + [4] * 13 + [3]),
    ],
)
def test_61_layers_on_16_stages(framework: str | None, layers: list[int]) -> None:
    more = {"parallelism__framework": framework, "workload__phase": "prefill"} if framework else {}
    model = fields(hidden_size=64, num_hidden_layers=61, num_attention_heads=4, intermediate_size=256, vocab_size=1024)
    priced = ask(model, parallelism__pp=16, **more)
    assert [stage.layers for stage in priced.ledger.stages] == layers
    deep = ask("deepseek-v3", parallelism__pp=16)
    assert sum(stage.layers for stage in deep.ledger.stages) == 61
    # 3 dense layers come first, all on the first stage.
    assert [stage.times["dense"] for stage in deep.ledger.stages] == [3] + [0] * 15
    assert sum(stage.times["moe"] for stage in deep.ledger.stages) == 58


def test_chunks_must_fill_every_stage() -> None:
    """61 layers do not make 16 x 2 chunks; microbatches go round in whole rounds of stages."""
    interleaved = {"parallelism__schedule": "interleaved", "parallelism__virtual_stages": 2}
    with pytest.raises(IllegalDegree, match="61 layers mod 32"):
        ask("deepseek-v3", parallelism__pp=16, workload__global_batch_size=16, **interleaved)
    with pytest.raises(IllegalDegree, match="6 mod 4 = 2"):
        ask("llama-3-8b", parallelism__pp=4, workload__global_batch_size=6, **interleaved)
    with pytest.raises(IllegalDegree, match="do not fill 33"):
        ask("llama-3-8b", parallelism__pp=33)


def test_a_tied_table_lies_on_both_ends() -> None:
    """GPT-2's table, 50257 x 768 in fp32, is summed by first and last stage once a step, however many microbatches."""
    tied = {"workload__sequence_length": 1024, "parallelism__vocab_padding": "none", "workload__global_batch_size": 8}
    priced = ask("gpt2", parallelism__pp=4, **tied)
    assert [(row.payload_bytes, row.group_size, times) for row, times in sends(priced, TIED)] == [
        (50257 * 768 * 4, 2, 1)
    ] * 2
    assert by_stage(priced, TIED) == {0: 1, 1: 0, 2: 0, 3: 1}
    assert sends(ask("llama-3-8b", parallelism__pp=4), TIED) == []


def test_vllm_sends_hidden_states_and_residual_in_parts() -> None:
    """Each of 4 TP ranks sends a quarter of 2 x T x h, and gathers the whole where it arrives; nothing goes back."""
    priced = ask(
        "llama-3-8b", parallelism__framework="vllm", parallelism__tp=4, parallelism__pp=2, workload__phase="prefill",
        workload__sequence_length=2048,
    )  # fmt: skip
    whole = 2 * 2048 * 4096 * 2
    assert sum(row.payload_bytes * times for row, times in sends(priced, TO_NEXT)) == whole // 4
    last = priced.ledger.stages[-1]
    gathered = [row for row in rows_of_stage(priced.ledger, last) if row.kind.value == "all_gather"]
    assert sum(row.payload_bytes * priced.ledger.times_in_step(row, last) for row in gathered) == whole
    assert {row.group_size for row in gathered} == {4}


def test_the_command_tells_schedule_and_bubble(inside: Inside) -> None:
    found = inside("ledger", "--model", "llama-3-8b", "--pp", "8", "--global-batch", "64", "--json")
    assert found.status == 0, found.err
    assert found.json["inputs"]["pipeline"] == {"schedule": "1f1b", "bubble_fraction": 0.109375}
    # An inner stage sends 64 activations on and 64 gradients back, 4096 x 4096 x 2 bytes each.
    assert found.json["totals"]["step"]["pp"]["wire_bytes"] == 128 * 33554432


# Laws


@st.composite
def pipelines(draw: st.DrawFn) -> dict[str, Any]:
    """A model and stages that its chunks of layers fill."""
    p = draw(st.integers(2, 6))
    v = draw(st.integers(1, 3))
    tp = draw(st.sampled_from([1, 2]))
    layers = p * v * draw(st.integers(1, 3)) if v > 1 else draw(st.integers(p, 20))
    hidden = draw(st.integers(1, 30))
    question: dict[str, Any] = {
        "model": fields(
            hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=2, head_dim=4, intermediate_size=8,
            tie_word_embeddings=draw(st.booleans()), **({"vocab_size": 64} if draw(st.booleans()) else {}),
        ),
        "parallelism__pp": p,
        "parallelism__tp": tp,
        "parallelism__sp": tp > 1 and draw(st.booleans()),
        "parallelism__vocab_padding": "none",
        "workload__sequence_length": 2 * draw(st.integers(1, 20)),
        "workload__micro_batch_size": draw(st.integers(1, 3)),
    }  # fmt: skip
    microbatches = p * draw(st.integers(1, 4)) if v > 1 else draw(st.integers(1, 9))
    question["workload__global_batch_size"] = question["workload__micro_batch_size"] * microbatches
    if v > 1:
        question |= {"parallelism__schedule": "interleaved", "parallelism__virtual_stages": v}
    return {"question": question, "p": p, "v": v, "m": microbatches, "layers": layers, "hidden": hidden}


@settings(max_examples=60, deadline=None)
@given(pipelines())
def test_every_message_is_answered(drawn: dict[str, Any]) -> None:
    """For each activation that crosses a boundary its gradient crosses back: stage i sends on as often as the next
    (after the last the first, with more chunks than one) sends back, in messages of one size."""
    question, p, v, m = drawn["question"], drawn["p"], drawn["v"], drawn["m"]
    priced = ask(**question)
    forward, back = by_stage(priced, TO_NEXT), by_stage(priced, TO_PREVIOUS)
    assert [forward[stage] for stage in range(p)] == [back[(stage + 1) % p] for stage in range(p)]
    # p v chunks in a row have p v - 1 boundaries.
    assert sum(forward.values()) == m * (p * v - 1)
    split = question["parallelism__tp"] if question["parallelism__sp"] else 1
    tokens = question["workload__sequence_length"] * question["workload__micro_batch_size"]
    sizes = {row.payload_bytes for part in (TO_NEXT, TO_PREVIOUS) for row, _ in sends(priced, part)}
    assert sizes == {tokens * drawn["hidden"] * 2 // split}
    assert bubble(priced.ledger.parallel, m) == Fraction(p - 1, m * v)


@settings(max_examples=60, deadline=None)
@given(pipelines())
def test_stages_share_out_all_layers(drawn: dict[str, Any]) -> None:
    stages = ask(**drawn["question"]).ledger.stages
    held = [stage.layers for stage in stages]
    assert (len(held), sum(held)) == (drawn["p"], drawn["layers"])
    assert max(held) - min(held) <= 1
    assert held == [stage.times["block"] for stage in stages]


@settings(max_examples=60, deadline=None)
@given(pipelines(), st.integers(2, 4))
def test_stages_sum_the_gradients_of_their_own_parameters(drawn: dict[str, Any], dp: int) -> None:
    """Together those of the model; a tied table lies on the first and on the last stage, and both reduce theirs."""
    question = {**drawn["question"], "parallelism__tp": 1, "parallelism__sp": False, "parallelism__dp": dp}
    question["workload__global_batch_size"] *= dp
    priced, d = ask(**question), drawn["hidden"]
    ledger = priced.ledger
    summed = sum(
        row.payload_bytes * ledger.times_in_step(row, stage)
        for stage in ledger.stages
        for row in rows_of_stage(ledger, stage)
        if row.op == "gradients"
    )
    # 2 norms; Q, K, V and the output projection of 2 x 4 columns; gate, up and down of 8.
    parameters = drawn["layers"] * (2 * d + 4 * d * 8 + 3 * d * 8)
    if '"vocab_size"' in question["model"]:
        parameters += 2 * 64 * d + d
    assert summed == 4 * parameters
