"""Runs that were published (presets/jobs), each step against arithmetic by hand: tokens, widths, layers, microbatches.

Payloads of a device of one pipeline stage. Gradients have 4 bytes, activations and parameters 2. Sources of the layouts
stand in the presets; the sizes of the models in theirs.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from functools import cache

import pytest

from commcalc.accounting.ledger import Ledger, build, rows_of_stage
from commcalc.algebra.program import Role
from commcalc.catalog.job import Request, resolve_job
from commcalc.transformer.work import Schedule
from conftest import Inside, run_commcalc

JOBS = {
    "deepseek-v3-h800": 2048,
    "llama-3.1-405b-8k-gpus": 8192,
    "llama-3.1-405b-16k-gpus": 16384,
    "llama-3.1-405b-128k-context": 16384,
    "mixtral-8x7b-h100": 64,
    "qwen3-235b-a22b-h100": 256,
    "gpt-oss-120b-h100": 64,
}


@cache
def step(job: str, stage: int) -> Ledger:
    """The ledger of a job whose step is that of ``stage``."""
    found = resolve_job(Request(job=job))
    return build(found.model, found.parallel, found.work, found.convention, stage)


def payloads(ledger: Ledger) -> dict[str, int]:
    """What the rows of each group add up to in a step."""
    found: Counter[str] = Counter()
    for row in ledger.rows:
        found[row.group] += row.payload_bytes * ledger.times_in_step(row)
    return {group: size for group, size in found.items() if size}


@pytest.mark.parametrize("job", JOBS)
def test_every_job_runs(job: str) -> None:
    ran = run_commcalc("ledger", job)
    assert (ran.status, "Traceback" in ran.err) == (0, False)
    assert "step of a device" in ran.out


def test_every_job_is_listed(inside: Inside) -> None:
    listed = inside("presets", "list", "--kind", "job").out
    assert all(f"\n{job} " in listed for job in JOBS)


@pytest.mark.parametrize(("job", "devices"), JOBS.items())
def test_devices_of_every_job(job: str, devices: int) -> None:
    assert step(job, 0).layout.mesh.devices == devices


# DeepSeek-V3: 61 layers, of which 3 are dense, on 16 stages; 4096 tokens and 120 = 15360 / 128 microbatches. Under
# DualPipe the ranks at places i and 15 - i hold both of these stages, and run 60 microbatches through each.

# Latent attention of width 7168: queries by way of 1536, keys and values of 512 and 64, 128 heads of 128 + 64 and 128.
LATENT = 7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * 256 + 128 * 128 * 7168
NORMS = 2 * 7168
DENSE = LATENT + NORMS + 3 * 7168 * 18432
EXPERT = 3 * 7168 * 2048
# Beside experts a layer has a router of 256 and one shared expert.
SPARSE = LATENT + NORMS + 256 * 7168 + EXPERT
TABLE = 129280 * 7168
# Prediction: two norms, both tokens joined, a layer, a norm.
PREDICTION = 2 * 7168 + 2 * 7168 * 7168 + SPARSE + 7168
# Layers on a stage: the first 13 hold four of the 61, the last three three.
STAGES = {
    0: (TABLE + 3 * DENSE + SPARSE, 1),
    **dict.fromkeys(range(1, 13), (4 * SPARSE, 4)),
    **dict.fromkeys((13, 14), (3 * SPARSE, 3)),
    15: (3 * SPARSE + 7168 + TABLE + PREDICTION + TABLE, 4),
}


def test_parameters_of_deepseek_v3_by_hand() -> None:
    assert (LATENT, DENSE, SPARSE, EXPERT) == (187_107_328, 583_483_392, 232_996_864, 44_040_192)
    whole = 3 * DENSE + 58 * (SPARSE + 256 * EXPERT) + 2 * TABLE + 7168
    assert whole + 58 * 256 == 671_026_419_200  # with the biases of the router: as published


def held(place: int) -> tuple[int, int]:
    """Parameters beside experts, and layers with experts, of both stages; the ends share one table for embeddings.

    Source: DeepSeek-V3, arXiv:2412.19437, section 3.2.3 (shared embedding and head, on the same rank under DualPipe).
    """
    both = [STAGES[place], STAGES[15 - place]]
    shared = sum(parameters for parameters, _ in both) - (TABLE if place in (0, 15) else 0)
    return shared, sum(layers for _, layers in both)


def test_every_parameter_is_held_twice() -> None:
    """Table 2 of the report: 2x the parameters over all 16 places; the embedding of the prediction layer is shared."""
    shared = sum(held(place)[0] for place in range(16))
    assert shared == 2 * (sum(parameters for parameters, _ in STAGES.values()) - TABLE) == 34_906_824_704
    assert sum(held(place)[1] for place in range(16)) == 2 * (58 + 1)


@pytest.mark.parametrize("stage", STAGES)
def test_parameters_of_every_stage_of_deepseek_v3(stage: int) -> None:
    """Gradients over 2 x dp 128, and those of 4 experts of a layer over 2 x edp 2: 128 ranks hold 64 x 4 twice."""
    ledger = step("deepseek-v3-h800", 15)
    rows = rows_of_stage(ledger, ledger.stages[stage])
    found = {(row.group, row.group_size): row.payload_bytes for row in rows if row.op == "gradients"}
    shared, sparse = held(stage)
    assert found == {("dp", 256): 4 * (shared + -shared % 256), ("edp", 4): 4 * sparse * 4 * EXPERT}
    # Parameters come back in bf16.
    back = {(row.group, row.group_size): row.payload_bytes for row in rows if row.op == "parameters"}
    assert back == {group: size // 2 for group, size in found.items()}


def test_a_step_of_deepseek_v3() -> None:
    """The ends: a layer with experts of the first stage, four of the last with the prediction layer, 60 times each.

    Of 60 microbatches the activation goes on, of 60 the gradient goes back. Embedding and head lie on one rank, so no
    table is summed between stages.
    """
    ledger = step("deepseek-v3-h800", 15)
    # 8 choices among the 128 experts of 4 of 8 nodes: of these nodes, with 32 experts each, and of their 32 ranks, with
    # 4 each, those that hold one of them.
    nodes = 4 * (1 - Fraction(math.comb(96, 8), math.comb(128, 8)))
    ranks = 32 * (1 - Fraction(math.comb(124, 8), math.comb(128, 8)))
    assert (round(float(nodes), 3), round(float(ranks), 3)) == (3.629, 7.359)
    of_layer = 64 * 256 * 8
    for copies in (nodes, ranks):  # between nodes, then inside of each
        fp8 = math.ceil(4096 * copies * (7168 + 56 * 4))  # 56 blocks of 128, a scale of four bytes each
        bf16 = math.ceil(4096 * copies * 7168 * 2)
        weights = math.ceil(4096 * copies * 8 * 4)
        numbers = math.ceil(4096 * copies * 8 * 4)  # of the experts, in int32 over nodes; they have no gradients
        # There and back, and back and there again for gradients.
        of_layer += fp8 + bf16 + 2 * bf16 + 2 * weights + numbers
    shared, sparse = held(15)
    assert (shared, sparse) == (4_871_581_696, 5)
    assert (
        payloads(ledger)
        == payloads(step("deepseek-v3-h800", 0))
        == {
            "ep": 60 * 5 * of_layer,
            "pp": 120 * 4096 * 7168 * 2,
            "dp": (4 + 2) * shared,
            "edp": (4 + 2) * sparse * 4 * EXPERT,
        }
    )
    assert shared % 256 == 0


def test_a_middle_step_of_deepseek_v3() -> None:
    """Places 3 to 12 hold two stages of four layers: 60 times an activation and a gradient to either side.

    As many messages as without DualPipe; at the ends, where half of the stages have no neighbour, half as many.
    """
    middle, last = (payloads(step("deepseek-v3-h800", place)) for place in (3, 15))
    assert middle["pp"] == 4 * 60 * 4096 * 7168 * 2 == 14_092_861_440 == 2 * last["pp"]
    assert middle["ep"] * 5 == last["ep"] * 8
    assert middle["dp"] == 6 * 8 * SPARSE == 11_183_849_472
    assert middle["edp"] == 6 * 8 * 4 * EXPERT == 8_455_716_864
    assert resolve_job(Request(job="deepseek-v3-h800")).parallel.schedule is Schedule.DUALPIPE


def test_the_busiest_place_of_deepseek_v3() -> None:
    """Where both stages have four layers with experts: the first pair of places that do are 3 and 12."""
    found = resolve_job(Request(job="deepseek-v3-h800"))
    ledger = build(found.model, found.parallel, found.work, found.convention)
    assert (ledger.stage.number, ledger.stage.ends, ledger.stage.times["moe"]) == (3, 2, 8)
    assert [stage.layers for stage in ledger.stages] == [4] * 13 + [3] * 3


def test_wire_of_deepseek_v3() -> None:
    """What a rank keeps does not leave it: 63 of 64 parts of tokens, 255 of 256 of gradients, a quarter of experts."""
    for row in step("deepseek-v3-h800", 1).rows:
        if row.group in ("dp", "ep", "edp"):
            assert abs(row.wire_bytes * row.group_size - row.payload_bytes * (row.group_size - 1)) <= row.group_size


# Llama 3.1 405B: 126 layers of width 16384 on 16 stages, 128 heads and 8 KV heads of 128, MLP 53248, TP 8.

# On one of 8 ranks: queries, keys and values, output, gate, up and down; norms whole.
LLAMA_LAYER = 16384 * (128 + 2 * 8) * 128 // 8 + 16384 * 16384 // 8 + 3 * 16384 * 53248 // 8 + 2 * 16384
# Rows of the table padded to a multiple of 128 x 8.
LLAMA_TABLE = 129_024 * 16384 // 8
LLAMA = [
    # job, microbatches, tokens of a rank of cp, ranks of cp
    ("llama-3.1-405b-8k-gpus", 32, 8192, 1),
    ("llama-3.1-405b-16k-gpus", 16, 8192, 1),
    ("llama-3.1-405b-128k-context", 16, 131072 // 16, 16),
]


def test_parameters_of_llama_by_hand() -> None:
    """The published 405,853,388,800, with norms on every rank and the table padded by 768 rows."""
    whole = 126 * (8 * LLAMA_LAYER - 7 * 2 * 16384) + 2 * 128_256 * 16384 + 16384
    assert whole == 405_853_388_800
    assert 8 * LLAMA_TABLE == (128_256 + 768) * 16384


@pytest.mark.parametrize(("job", "microbatches", "tokens", "cp"), LLAMA, ids=[case[0] for case in LLAMA])
def test_a_step_of_llama(job: str, microbatches: int, tokens: int, cp: int) -> None:
    """The first stage: the embedding and eight layers, each with 2 gathers and 2 scatters, back 2 + 2 re-gathered + 2.

    FSDP of gradients and optimizer states: gradients leave in every microbatch, parameters come once a step.
    """
    stream = tokens * 16384 * 2
    replicated = 8 * 2 * 16384 * 4  # norms, in every microbatch before gradients leave
    held = 8 * LLAMA_LAYER + LLAMA_TABLE
    want = {
        "tp": microbatches * ((8 * 10 + 2) * stream + replicated),
        "pp": microbatches * stream // 8,
        "dp": microbatches * 4 * held + 2 * held,
    }
    if cp > 1:  # keys and values of one of 8 KV heads: gathered, gathered again, and their gradients scattered
        want["cp"] = microbatches * 8 * 6 * tokens * cp * 128 * 2
    ledger = step(job, 0)
    assert ledger.microbatches == microbatches
    assert payloads(ledger) == want
    assert {row.group_size for row in ledger.rows if row.group == "dp"} == {{32: 64, 16: 128}[microbatches]}


# Mixtral 8x7B: 32 layers on 4 stages, in 8 chunks each; width 4096, 2 of 8 experts of 14336, one on a rank.


@pytest.mark.parametrize("stage", [1, 2])
def test_a_step_of_mixtral(stage: int) -> None:
    """16 = 256 / 16 microbatches; each of 8 chunks sends on and back; 8 layers' experts twice among 16 ranks."""
    layer = 4096 * (32 + 2 * 8) * 128 + 4096 * 4096 + 2 * 4096 + 8 * 4096
    rows, weights, numbers = 4096 * 2 * 4096 * 2, 4096 * 2 * 4, 8 * 8 * 8
    assert payloads(step("mixtral-8x7b-h100", stage)) == {
        "ep": 16 * 8 * (4 * rows + 2 * weights + numbers),
        "pp": 16 * 8 * 2 * 4096 * 4096 * 2,
        "dp": (4 + 2) * 8 * layer,
        "edp": (4 + 2) * 8 * 3 * 4096 * 14336,
    }


def test_the_last_step_of_mixtral() -> None:
    """The last stage has one send on less in each microbatch, the head and the last norm."""
    middle, last = (payloads(step("mixtral-8x7b-h100", stage)) for stage in (1, 3))
    assert middle["pp"] - last["pp"] == 16 * 4096 * 4096 * 2
    assert last["dp"] - middle["dp"] == 6 * (32000 * 4096 + 4096)


# Qwen3 235B-A22B: 94 layers on 8 stages, width 4096, 64 heads and 4 KV heads of 128, 8 of 128 experts of 1536, TP 2.


def test_a_step_of_qwen3() -> None:
    """Twelve layers, 128 = 2048 / 16 microbatches, 2048 tokens of a TP rank; 32 ranks hold every expert once."""
    tokens, whole = 2048, 4096 * 4096 * 2
    replicated = 2 * 4096 + 2 * 128 + 128 * 4096  # norms of the stream and of heads, the router
    layer = 4096 * (64 + 2 * 4) * 128 // 2 + 64 * 128 * 4096 // 2 + replicated
    sent, weights, numbers = tokens * 8 * 4096 * 2, tokens * 8 * 4, 32 * 128 * 8
    assert payloads(step("qwen3-235b-a22b-h100", 1)) == {
        # attention: gathered, scattered, gathered, gathered again, scattered
        "tp": 128 * 12 * 5 * whole + 12 * replicated * 4,
        "ep": 128 * 12 * (4 * sent + 2 * weights + numbers),
        "pp": 128 * 2 * whole // 2,
        "dp": (4 + 2) * 12 * layer,
    }


# gpt-oss-120b: 36 layers on 4 stages, width 2880, 64 heads and 8 KV heads of 64, biases, sinks, 4 of 128 experts.


def test_a_step_of_gpt_oss() -> None:
    """Nine layers, 8 = 512 / 64 microbatches of 16384 tokens; 16 experts of a layer on a rank, twice among 16 ranks."""
    columns = (64 + 2 * 8) * 64
    attention = 2880 * columns + columns + 64 * 64 * 2880 + 2880 + 64
    layer = attention + 2 * 2880 + 128 * 2880 + 128
    expert = 3 * 2880 * 2880 + 2 * 2880 + 2880
    sent, weights, numbers = 16384 * 4 * 2880 * 2, 16384 * 4 * 4, 8 * 128 * 8
    assert payloads(step("gpt-oss-120b-h100", 1)) == {
        "ep": 8 * 9 * (4 * sent + 2 * weights + numbers),
        "pp": 8 * 2 * 16384 * 2880 * 2,
        "dp": (4 + 2) * 9 * layer,
        "edp": (4 + 2) * 9 * 16 * expert,
    }


@pytest.mark.parametrize("job", ["deepseek-v3-h800", "mixtral-8x7b-h100", "qwen3-235b-a22b-h100", "gpt-oss-120b-h100"])
def test_tokens_go_to_experts_in_their_types(job: str) -> None:
    """DeepSeek-V3 dispatches in fp8 and combines in bf16; the others stay in bf16."""
    moved = [row for row in step(job, 1).rows if row.group == "ep" and row.role is Role.ACTIVATION]
    types = {(row.direction, row.op): row.dtype.value for row in moved if row.kind.value == "all_to_all"}
    assert types[("forward", "dispatch")] == ("fp8" if job.startswith("deepseek") else "bf16")
    assert types[("forward", "combine")] == "bf16"
