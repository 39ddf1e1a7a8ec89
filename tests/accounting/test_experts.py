"""Expert parallelism against what PyTorch issued, what frameworks do, published answers, and what people reported.

Sources: tests/data/experts_collectives.json (recorded programs), goldens_experts.yaml, user_reports_experts.yaml, and
Megatron-LM core/transformer/moe/token_dispatcher.py and core/parallel_state.py, vLLM all2all_backend.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from commcalc.accounting.pricing import PricedLedger
from commcalc.accounting.ranks import groups_of, rank_groups
from commcalc.accounting.rows import Row
from commcalc.algebra.program import Role
from commcalc.catalog.job import Request, resolve_job
from commcalc.errors import CommcalcError, IllegalDegree
from commcalc.transformer.work import Parallelism, copies_of_a_token
from commcalc.units import Dtype
from conftest import DATA, Inside, ask, fields, rows, run_commcalc

CASES: list[dict[str, Any]] = json.loads((DATA / "experts_collectives.json").read_text())["cases"]
GOLDENS = {case["id"]: case for case in yaml.safe_load((DATA / "goldens_experts.yaml").read_text())["cases"]}
REPORTS = {entry["id"]: entry for entry in yaml.safe_load((DATA / "user_reports_experts.yaml").read_text())["entries"]}
# b * s tokens of a microbatch, width, experts, choices, expert width: Mixtral 8x7B.
T, D, E, K, M = 4096, 4096, 8, 2, 14336


def golden(ident: str) -> dict[str, Any]:
    return {value["name"]: value["recomputed"] for value in GOLDENS[ident]["expected"]}


def expected(ident: str) -> dict[str, Any]:
    found: dict[str, Any] = REPORTS[ident]["expect"]
    return found


def small(experts: int = 16, choices: int = 2, width: int = 96) -> str:
    """A model of one layer of experts."""
    return fields(
        hidden_size=width, num_hidden_layers=1, num_attention_heads=8, num_experts=experts,
        num_experts_per_tok=choices, moe_intermediate_size=64,
    )  # fmt: skip


def tokens_moved(priced: PricedLedger, op: str, direction: str = "forward") -> Row:
    """The one row that brings activations to experts (``dispatch``) or back (``combine``)."""
    found = rows(priced, sublayer="moe", op=op, direction=direction, role=Role.ACTIVATION)
    assert len(found) == 1
    return found[0]


def brought(priced: PricedLedger) -> list[tuple[object, ...]]:
    """What goes to experts and comes back: pass, operation, collective, group, its size, payload; no routing."""
    return [
        (row.direction, row.op, row.kind.value, row.group, row.group_size, row.payload_bytes)
        for row in rows(priced, sublayer="moe", role=Role.ACTIVATION)
        if row.op != "router"
    ]


# What PyTorch issued


def recorded(case: dict[str, Any], **more: object) -> PricedLedger:
    config = case["config"]
    return ask(
        small(config["E"], config["k"], config["D"]),
        parallelism__framework="torchtitan",
        parallelism__dp=config["ep"],
        parallelism__ep=config["ep"],
        parallelism__dispatch="all_to_all",
        workload__sequence_length=config["T"],
        workload__global_batch_size=config["ep"],
        workload__dtype=config["dtype"],
        **more,
    )


def issued(case: dict[str, Any]) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    for call in case["collectives"]:
        phase = {"counts": "fwd"}.get(call["phase"], call["phase"])
        short = {"float32": "fp32"}.get(call["dtype"], call["dtype"])
        found[phase, call["collective"], call["group_size"], short, call["in_bytes"]] += call["count"]
    return found


def predicted(priced: PricedLedger) -> Counter[tuple[object, ...]]:
    phases = {"forward": "fwd", "backward": "bwd"}
    found: Counter[tuple[object, ...]] = Counter()
    for row in rows(priced, group="ep"):
        found[phases[row.direction], row.kind.value, row.group_size, row.dtype.value, row.payload_bytes] += row.calls
    return found


def even(case: dict[str, Any]) -> bool:
    return case["config"]["variant"] != "random"


@pytest.mark.parametrize("case", [case for case in CASES if even(case)], ids=lambda case: case["id"])
def test_dispatch_and_combine_are_what_pytorch_issued(case: dict[str, Any]) -> None:
    """Kinds, groups, types, payloads and counts, of numbers of rows too; a capacity of C rows is C / (T k / E)."""
    config = case["config"]
    average = Fraction(config["T"] * config["k"], config["E"])
    bounded = config["variant"] == "capacity"
    more = {"workload__capacity_factor": float(config["C"] / average)} if bounded else {}
    assert predicted(recorded(case, **more)) == issued(case)


@pytest.mark.parametrize("case", [case for case in CASES if not even(case)], ids=lambda case: case["id"])
def test_uneven_choices_are_what_pytorch_issued(case: dict[str, Any]) -> None:
    """Rank 0 sends as many rows as choices say, T k, and gets the sum of what all send to it.

    Dispatch, and its mirror the backward of combine, are compared with even choices; combine, and the backward of
    dispatch, with an imbalance of what the rank got over T k, rounded up to six decimals, so that a payload may be a
    byte more. Payloads are the operands on rank 0.
    """
    config, got = case["config"], sum(case["rows"]["recv"])
    assert sum(case["rows"]["send"]) == config["T"] * config["k"]
    balanced = predicted(recorded(case))
    share = math.ceil(Fraction(got, config["T"] * config["k"]) * 10**6) / 10**6
    skewed = predicted(recorded(case, workload__imbalance=share))
    bytes_sent = config["T"] * config["k"] * config["D"] * 4
    bytes_got = got * config["D"] * 4
    want = issued(case)
    for phase in ("fwd", "bwd"):
        key = (phase, "all_to_all", config["ep"], "fp32")
        assert balanced[*key, bytes_sent] == skewed[*key, bytes_got] + skewed[*key, bytes_got + 1] == 2
        assert want[*key, bytes_sent] == want[*key, bytes_got] == 1
    numbers = ("fwd", "all_to_all", config["ep"], "int64", config["E"] * 8)
    assert balanced[numbers] == want[numbers] == 1
    assert balanced.total() == want.total()


def test_every_kind_of_program_is_there() -> None:
    seen = Counter((case["config"]["variant"], case["config"]["ep"]) for case in CASES)
    assert seen == {
        ("random", 2): 1, ("capacity", 2): 1, ("capacity", 4): 1, ("uniform", 8): 1, ("capacity", 8): 1,
    }  # fmt: skip


# What frameworks do


def mixtral(**more: object) -> PricedLedger:
    """Mixtral 8x7B on tp 2 with sequence parallelism and dp 4, experts on 4 ranks."""
    given = {"parallelism__tp": 2, "parallelism__sp": True, "parallelism__dp": 4, "parallelism__ep": 4}
    return ask("mixtral-8x7b", **(given | {"workload__sequence_length": T} | more))


# Rows of width D that a rank has for experts: n k of its n = T / 2 tokens.
SENT = T // 2 * K * D * 2


def test_megatrons_all_to_all() -> None:
    """alltoall: AllToAll of n k rows and of their n k probabilities, and the same of the outputs; backward mirrors."""
    assert brought(mixtral(parallelism__etp=1)) == [
        ("forward", "dispatch", "all_to_all", "ep", 4, SENT),
        ("forward", "combine", "all_to_all", "ep", 4, SENT),
        ("backward", "combine", "all_to_all", "ep", 4, SENT),
        ("backward", "dispatch", "all_to_all", "ep", 4, SENT),
    ]
    others = [row for row in rows(mixtral(parallelism__etp=1), sublayer="moe") if row.role is not Role.ACTIVATION]
    assert [(row.direction, row.kind.value, row.dtype.value, row.payload_bytes) for row in others] == [
        ("forward", "all_gather", "int64", 4 * E * 8),  # rows for each of E experts, from all ranks of ep and etp
        ("forward", "all_to_all", "fp32", T // 2 * K * 4),
        ("backward", "all_to_all", "fp32", T // 2 * K * 4),
    ]


def test_megatrons_all_to_all_with_experts_split_over_the_tp_ranks() -> None:
    """expert_tensor_parallel_size is TP where it is not given: AllGather and ReduceScatter of e n k rows each way."""
    wanted = [
        ("forward", "dispatch", "all_to_all", "ep", 4, SENT),
        ("forward", "experts", "all_gather", "etp", 2, 2 * SENT),
        ("forward", "experts", "reduce_scatter", "etp", 2, 2 * SENT),
        ("forward", "combine", "all_to_all", "ep", 4, SENT),
        ("backward", "combine", "all_to_all", "ep", 4, SENT),
        ("backward", "experts", "all_gather", "etp", 2, 2 * SENT),
        ("backward", "experts", "reduce_scatter", "etp", 2, 2 * SENT),
        ("backward", "dispatch", "all_to_all", "ep", 4, SENT),
    ]
    assert brought(mixtral()) == wanted
    assert brought(mixtral(parallelism__etp=2, parallelism__framework="megatron")) == wanted
    edp = rows(mixtral(), group="edp")
    assert not edp  # 4 x 2 ranks hold all parts of all experts once


@pytest.mark.parametrize(("etp", "ranks"), [(1, 4), (2, 8)])
def test_megatrons_all_gather(etp: int, ranks: int) -> None:
    """allgather: over ep and etp together, n rows each of all ranks, the map and the probabilities of all experts."""
    whole = T // 2 * ranks
    priced = mixtral(parallelism__dispatch="all_gather", parallelism__etp=etp)
    assert brought(priced) == [
        ("forward", "dispatch", "all_gather", "ep", ranks, whole * D * 2),
        ("forward", "combine", "reduce_scatter", "ep", ranks, whole * D * 2),
        ("backward", "combine", "all_gather", "ep", ranks, whole * D * 2),
        ("backward", "dispatch", "reduce_scatter", "ep", ranks, whole * D * 2),
    ]
    routing = {row.dtype.value: row.payload_bytes for row in rows(priced, op="router", direction="forward")}
    assert set(routing.values()) == {whole * E, whole * E * 2}


def test_megatrons_flex_dispatcher() -> None:
    """DeepEP and HybridEP: a token goes once to each rank that holds an expert of its choice.

    2 of 8 experts, 2 on a rank: the second choice lies beside the first with 1/7, so 13/7 copies on average.
    """
    copies = math.ceil(Fraction(T // 2 * D * 2 * 13, 7))
    assert brought(mixtral(parallelism__dispatch="deduplicated", parallelism__etp=1)) == [
        ("forward", "dispatch", "all_to_all", "ep", 4, copies),
        ("forward", "combine", "all_to_all", "ep", 4, copies),
        ("backward", "combine", "all_to_all", "ep", 4, copies),
        ("backward", "dispatch", "all_to_all", "ep", 4, copies),
    ]


def test_the_weights_of_all_choices_go_with_every_copy() -> None:
    """DeepEP csrc/deep_ep.cpp, recv_topk_weights: k in fp32 for each row that is received."""
    priced = mixtral(parallelism__dispatch="deduplicated", parallelism__etp=1)
    weights = rows(priced, sublayer="moe", op="dispatch", role=Role.FP32)
    assert {row.payload_bytes for row in weights} == {math.ceil(Fraction(T // 2 * K * 4 * 13, 7))}


def test_the_numbers_of_all_choices_go_with_every_copy() -> None:
    """DeepEP csrc/kernels/intranode.cu, channel_topk_idx_buffers (topk_idx_t, int64): k for each row, no gradients."""
    priced = mixtral(parallelism__dispatch="deduplicated", parallelism__etp=1)
    numbers = [
        row for row in rows(priced, sublayer="moe", op="dispatch", role=Role.INDEX) if row.tensor.startswith("Ie[")
    ]
    assert [(row.direction, row.kind.value, row.payload_bytes) for row in numbers] == [
        ("forward", "all_to_all", math.ceil(Fraction(T // 2 * K * 8 * 13, 7)))
    ]


def test_numbers_go_over_nodes_in_four_bytes() -> None:
    """DeepEP csrc/kernels/internode.cu, get_num_bytes_per_token: num_topk_idx * sizeof(int)."""
    degrees = {"parallelism__dp": 64, "parallelism__ep": 64, "parallelism__dispatch": "deduplicated"}
    asked = ask("deepseek-v3", **degrees, parallelism__ep_nodes=8, parallelism__node_limit=4)
    numbers = [row for row in rows(asked, op="dispatch", role=Role.INDEX) if row.tensor.startswith("Ie")]
    assert [(row.tensor, row.dtype) for row in numbers] == [("Ien[E, Q]", Dtype.INT32), ("Ie[E, Q]", Dtype.INT32)]


@pytest.mark.parametrize(("framework", "phase"), [("torchtitan", "train"), ("vllm", "prefill"), ("sglang", "prefill")])
def test_every_framework_sends_weights_with_copies(framework: str, phase: str) -> None:
    """What a rank sends back is a sum over its experts, so that it must weigh them itself."""
    degrees = {"parallelism__dp": 4, "parallelism__ep": 4, "parallelism__framework": framework}
    found = {}
    for how in ("deduplicated", "all_to_all"):
        asked = ask("mixtral-8x7b", **degrees, parallelism__dispatch=how, workload__phase=phase)
        sent = rows(asked, op="dispatch", role=Role.FP32, direction="forward")
        found[how] = [row.tensor for row in sent]
    assert found == {"deduplicated": ["Re[E, Q]"], "all_to_all": []}


def vllm(**more: object) -> PricedLedger:
    return ask("mixtral-8x7b", parallelism__framework="vllm", workload__sequence_length=T, **more)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_vllm_without_data_parallelism_sums_what_experts_say(phase: str) -> None:
    """Every TP rank has all tokens: one AllReduce of T h, as with experts split over TP, and no AllToAll."""
    spread = vllm(parallelism__tp=8, parallelism__ep=8, workload__phase=phase)
    split = vllm(parallelism__tp=8, workload__phase=phase)
    payload = (T if phase == "prefill" else 1) * D * 2
    assert [row[2:] for row in brought(spread)] == [row[2:] for row in brought(split)]
    assert [row[2:] for row in brought(spread)] == [("all_reduce", "tp", 8, payload)]
    assert all(row.kind.value != "all_to_all" for row in rows(spread))


def test_vllm_gathers_the_tokens_of_all_data_parallel_ranks() -> None:
    """allgather_reducescatter, the default: all tokens, their top-k weights and ids, and the outputs scattered."""
    priced = vllm(parallelism__dp=4, parallelism__ep=4, workload__phase="prefill")
    assert brought(priced) == [
        ("forward", "dispatch", "all_gather", "ep", 4, 4 * T * D * 2),
        ("forward", "combine", "reduce_scatter", "ep", 4, 4 * T * D * 2),
    ]
    chosen = rows(priced, op="router")
    assert {row.kind.value for row in chosen} == {"all_gather"}
    assert 4 * T * K * 4 in {row.payload_bytes for row in chosen}  # weights in fp32


def test_vllm_gathers_ids_of_four_bytes() -> None:
    """Source: vLLM fused_moe, fused_topk: topk_ids are int32 where the kernel asks for nothing else."""
    priced = vllm(parallelism__dp=4, parallelism__ep=4, workload__phase="prefill")
    assert sorted(row.payload_bytes for row in rows(priced, op="router")) == [4 * T * K * 4, 4 * T * K * 4]


def test_vllm_sends_copies_where_it_is_told_to() -> None:
    priced = vllm(parallelism__dp=4, parallelism__ep=4, parallelism__dispatch="all_to_all", workload__phase="prefill")
    assert brought(priced) == [
        ("forward", "dispatch", "all_to_all", "ep", 4, T * K * D * 2),
        ("forward", "combine", "all_to_all", "ep", 4, T * K * D * 2),
    ]


def test_rows_on_all_tp_ranks_are_of_the_expert_group() -> None:
    priced = ask("mixtral-8x7b", parallelism__tp=8, parallelism__ep=8, parallelism__etp=1)
    moved = rows(priced, sublayer="moe", kind="all_to_all")
    assert {row.group for row in moved} == {"ep"}


# Published answers


def test_bytes_of_the_low_latency_kernels() -> None:
    """EP-04: fp8 with a scale of four bytes for each 128, and bf16 back; every copy counts, also those kept."""
    want, given_values = golden("EP-04"), GOLDENS["EP-04"]["inputs"]
    for ep, latency in ((8, "8"), (64, "64")):
        priced = low_latency(ep)
        sent, back = (tokens_moved(priced, op).payload_bytes for op in ("dispatch", "combine"))
        assert (sent, back) == (want["dispatch_bytes"], want["combine_bytes"])
        to, fro = given_values[f"t_d{latency}__us"], given_values[f"t_c{latency}__us"]
        assert math.isclose(sent / to / 1e3, want[f"disp_bw_ep{ep}"])
        assert math.isclose(back / fro / 1e3, want[f"comb_bw_ep{ep}"])


def low_latency(ep: int) -> PricedLedger:
    """128 tokens a rank decode with DeepSeek-V3's experts."""
    return ask(
        "deepseek-v3", parallelism__dp=ep, parallelism__ep=ep, workload__phase="decode", workload__micro_batch_size=128,
        workload__global_batch_size=128 * ep, workload__dispatch_dtype="fp8", workload__scale_block=128,
        workload__combine_dtype="bf16",
    )  # fmt: skip


def test_time_of_a_token_on_two_networks() -> None:
    """EP-01: 32 tokens go to 9 experts (the shared one as any other) in a byte and come back in two, twice a layer."""
    want, values = golden("EP-01"), GOLDENS["EP-01"]["inputs"]
    model = fields(
        hidden_size=values["hidden__elems"], num_hidden_layers=values["layers__layers"], num_experts=288,
        num_experts_per_tok=values["paths__experts"], moe_intermediate_size=64,
    )  # fmt: skip
    tokens = values["tokens__tokens"]
    priced = ask(
        model, parallelism__dp=288, parallelism__ep=288, workload__phase="decode", workload__micro_batch_size=tokens,
        workload__global_batch_size=tokens * 288, workload__dispatch_dtype="fp8", workload__combine_dtype="bf16",
    )  # fmt: skip
    both = [tokens_moved(priced, op) for op in ("dispatch", "combine")]
    once = sum(row.payload_bytes for row in both)
    whole = sum(row.payload_bytes * priced.ledger.times_in_step(row) for row in both)
    slow, fast = values["ib__bytes_per_s"], values["nvl__bytes_per_s"]
    got = {
        "ib_step": once / slow * 1e6,
        "ib_layer": 2 * once / slow * 1e6,
        "ib_tpot": 2 * whole / slow * 1e3,
        "ib_rate": slow / (2 * whole),
        "nvl_step": once / fast * 1e6,
        "nvl_tpot": 2 * whole / fast * 1e3,
        "nvl_rate": fast / (2 * whole),
    }
    assert got == pytest.approx(want, rel=1e-9)


def test_nodes_of_an_expert_group() -> None:
    """EP-06: 64 ranks on nodes of 8; 256 experts, whose gradients on a rank are 4 x 3 x 7168 x 2048 of a layer."""
    want = golden("EP-06")
    priced = ask("deepseek-v3", "h800-sxm", parallelism__dp=128, parallelism__ep=64, workload__grad_dtype="bf16")
    machine = resolve_job(Request(model="deepseek-v3", hardware="h800-sxm")).hardware
    assert machine is not None
    groups = [one for one in rank_groups(priced.ledger, machine.network) if one["group"] == "ep"]
    assert {one["nodes"] for one in groups} == {want["nodes"]}
    (gradients,) = rows(priced, group="edp", op="gradients")
    assert gradients.payload_bytes == 58 * want["experts_per_gpu"] * 3 * 7168 * 2048 * 2


# What people asked


def test_copies_of_a_token_by_way_of_dispatch() -> None:
    """UR-105: copies that leave a rank, for 6 of 64 experts on 4 ranks."""
    want, per_token = expected("UR-105"), 64 * 96 * 2
    names = {"gather_copies": "all_gather", "dedup_copies": "deduplicated", "naive_copies": "all_to_all"}
    for name, how in names.items():
        priced = ask(
            small(64, 6), parallelism__dp=4, parallelism__ep=4, parallelism__dispatch=how, workload__sequence_length=64
        )
        assert tokens_moved(priced, "dispatch").wire_bytes / per_token == pytest.approx(want[name], rel=0.01)


def test_replicated_tokens_need_no_all_to_all() -> None:
    """UR-107: experts on the TP ranks of Mixtral still end in one AllReduce of a layer, beside that of attention."""
    priced = vllm(parallelism__tp=4, parallelism__ep=4, workload__phase="decode")
    found: Counter[str] = Counter()
    for row in rows(priced, part="block"):
        found[row.kind.value] += priced.ledger.times_in_step(row)
    assert found == {kind: count for kind, count in expected("UR-107").items() if count}


def test_volume_grows_with_choices_and_not_with_experts() -> None:
    """UR-108: 64 tokens, one on each of 64 ranks; a byte there and two back, over all ranks and the 58 layers."""
    priced = ask(
        "deepseek-v3", parallelism__dp=64, parallelism__ep=64, workload__phase="decode",
        workload__dispatch_dtype="fp8", workload__combine_dtype="bf16",
    )  # fmt: skip
    moved = [tokens_moved(priced, op) for op in ("dispatch", "combine")]
    total = 64 * sum(row.payload_bytes * priced.ledger.times_in_step(row) for row in moved)
    assert total == expected("UR-108")["total_bytes_all_ranks_max"]


def test_gather_against_all_to_all_without_tensor_parallelism() -> None:
    """UR-109: what leaves a rank of 8 with 4096 tokens: 7 others' tokens pass, or 2 x 7/8 of its own."""
    want = expected("UR-109")
    names = {"gather_bytes_per_rank": "all_gather", "all_to_all_bytes_per_rank": "all_to_all"}
    for name, how in names.items():
        priced = ask("mixtral-8x7b", parallelism__dp=8, parallelism__ep=8, parallelism__dispatch=how)
        assert tokens_moved(priced, "dispatch").wire_bytes == want[name]


def test_rates_of_the_low_latency_kernels_count_every_copy() -> None:
    """UR-147: dispatch in 172 us and combine in 319 us."""
    want, priced = expected("UR-147"), low_latency(8)
    sent, back = (tokens_moved(priced, op).payload_bytes for op in ("dispatch", "combine"))
    assert (sent, back) == (want["dispatch_bytes"], want["combine_bytes"])
    assert sent / 172e-6 / 1e9 == pytest.approx(want["dispatch_gbs_at_172us"], rel=want["tol_pct"] / 100)
    assert back / 319e-6 / 1e9 == pytest.approx(want["combine_gbs_at_319us"], rel=want["tol_pct"] / 100)


def test_a_combine_that_reduces_leaves_one_all_reduce() -> None:
    """UR-053: 24 layers of width 2880 on 8 ranks, one token: AllReduces of attention alone, and tokens there and back.

    The wrong count charges two AllReduces to each layer beside these. Numbers of rows, weights, and the gather that
    gives every TP rank all tokens again are not counted there.
    """
    want = expected("UR-053")
    priced = ask(
        "gpt-oss-20b", parallelism__tp=8, parallelism__ep=8, parallelism__etp=1, workload__phase="decode",
    )  # fmt: skip
    counted: Counter[str] = Counter()
    for row in rows(priced, part=priced.ledger.usual):
        if row.role is Role.ACTIVATION:
            counted[row.kind.value] += row.calls * 24
    assert (counted["all_reduce"], counted["all_to_all"]) == (want["all_reduce"], want["all_to_all"])
    assert counted["all_reduce"] + counted["all_to_all"] == want["total"]
    split = ask("gpt-oss-20b", parallelism__tp=8, workload__phase="decode")
    both = sum(row.calls * 24 for row in rows(split, part=split.ledger.usual, kind="all_reduce"))
    assert both + counted["all_to_all"] == want["naive_total"]


# What is refused

UNLAWFUL = [
    ("mixtral-8x7b", {"dp": 12, "ep": 3}, ["8 experts mod 3 = 2"]),
    ("mixtral-8x7b", {"dp": 6, "ep": 4}, ["6 ranks of a stage (tp 1 x cp 1 x dp 6) mod 4 (ep 4 x etp 1) = 2"]),
    ("mixtral-8x7b", {"tp": 2, "dp": 2, "ep": 4, "etp": 2}, ["mod 8 (ep 4 x etp 2) = 4"]),
    ("llama-3-8b", {"dp": 4, "ep": 4}, ["llama-3-8b has no experts to deal out"]),
    (
        "mixtral-8x7b",
        {"tp": 2, "dp": 4, "ep": 2, "etp": 2, "dispatch": "deduplicated"},
        ["ranks that hold whole experts, not to 2 that share one"],
    ),
    (
        "mixtral-8x7b",
        {"tp": 2, "dp": 6, "ep": 3, "etp": 5, "dispatch": "deduplicated"},
        ["mod 15 (ep 3 x etp 5) = 12", "8 experts mod 3 = 2", "ranks that hold whole experts", "14336 mod 5 = 1"],
    ),
]


@pytest.mark.parametrize(("model", "degrees", "told"), UNLAWFUL)
def test_unlawful_degrees_are_all_told(model: str, degrees: dict[str, object], told: list[str]) -> None:
    with pytest.raises(CommcalcError) as raised:
        ask(model, **{f"parallelism__{name}": value for name, value in degrees.items()})
    problems = raised.value.problems
    assert all(isinstance(problem, IllegalDegree) for problem in problems)
    assert len(problems) == len(told)
    for text in told:
        assert any(text in problem.message for problem in problems), text


@pytest.mark.parametrize(("model", "degrees", "told"), UNLAWFUL[1::4])
def test_unlawful_degrees_end_with_status_3(model: str, degrees: dict[str, object], told: list[str]) -> None:
    options = [part for name, value in degrees.items() for part in (f"--{name}", str(value))]
    ran = run_commcalc("ledger", "--model", model, *options)
    assert (ran.status, ran.out) == (3, "")
    assert ran.err.count("error: ") == len(told)
    assert all(text in ran.err for text in told)
    assert "Traceback" not in ran.err


WRONG = [
    ({"capacity_factor": 1.5, "imbalance": 1.2}, "with a capacity every rank gets the same number of rows"),
    ({"imbalance": 0.5}, "'0.5' is below 1"),
    ({"imbalance": "nan"}, "'nan'"),
    ({"capacity_factor": "inf"}, "'inf'"),
    ({"capacity_factor": "-1"}, "'-1'"),
    ({"scale_block": 0}, "'0' is not above zero"),
    ({"dispatch_dtype": "fp3"}, "fp3"),
    ({"combine_dtype": ""}, ""),
]


@pytest.mark.parametrize(("values", "told"), WRONG)
def test_wrong_values_are_told(inside: Inside, values: dict[str, object], told: str) -> None:
    options = [part for name, value in values.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    ran = inside("ledger", "--model", "mixtral-8x7b", "--dp", "4", "--ep", "4", *options)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert told in ran.err


def test_an_unknown_way_of_dispatch_is_told_with_those_there_are() -> None:
    ran = run_commcalc("ledger", "--model", "mixtral-8x7b", "--dp", "4", "--ep", "4", "--dispatch", "magic")
    assert (ran.status, ran.out) == (2, "")
    assert "unknown dispatch 'magic'" in ran.err
    assert "hint: known: all_gather, all_to_all, deduplicated" in ran.err


# Which ranks

# Order tp-cp-ep-dp-pp: attention is numbered tp, cp, dp, experts etp, ep, edp, both innermost first.
BY_HAND: list[tuple[dict[str, int], dict[str, list[list[int]]]]] = [
    (
        {"tp": 2, "dp": 4, "ep": 4, "etp": 1},
        {
            "tp": [[0, 1], [2, 3], [4, 5], [6, 7]],
            "dp": [[0, 2, 4, 6], [1, 3, 5, 7]],
            "ep": [[0, 1, 2, 3], [4, 5, 6, 7]],
            "edp": [[0, 4], [1, 5], [2, 6], [3, 7]],
        },
    ),
    (
        {"tp": 2, "dp": 4, "ep": 2, "etp": 2},
        {
            "tp": [[0, 1], [2, 3], [4, 5], [6, 7]],
            "etp": [[0, 1], [2, 3], [4, 5], [6, 7]],
            "ep": [[0, 2], [1, 3], [4, 6], [5, 7]],
            "edp": [[0, 4], [1, 5], [2, 6], [3, 7]],
        },
    ),
    (
        {"dp": 4, "ep": 2, "pp": 2},
        {
            "ep": [[0, 1], [2, 3], [4, 5], [6, 7]],
            "edp": [[0, 2], [1, 3], [4, 6], [5, 7]],
            "pp": [[0, 4], [1, 5], [2, 6], [3, 7]],
        },
    ),
    # "With (CP=8, EP=8) ... it only requires 8 GPUs": Megatron-LM core/transformer/moe/README.md, at 4.
    ({"cp": 4, "ep": 4}, {"cp": [[0, 1, 2, 3]], "ep": [[0, 1, 2, 3]]}),
    # Attention unsplit, experts split over neighbours.
    ({"dp": 4, "ep": 2, "etp": 2}, {"etp": [[0, 1], [2, 3]], "ep": [[0, 2], [1, 3]], "dp": [[0, 1, 2, 3]]}),
]


@pytest.mark.parametrize(("degrees", "groups"), BY_HAND)
def test_expert_groups_by_hand(inside: Inside, degrees: dict[str, int], groups: dict[str, list[list[int]]]) -> None:
    options = [part for name, value in degrees.items() for part in (f"--{name}", str(value))]
    ran = inside("ledger", "--model", "mixtral-8x7b", *options, "--ranks", "--json")
    assert ran.status == 0
    found: dict[str, list[list[int]]] = {}
    for record in ran.json["ranks"]:
        found.setdefault(record["group"], []).append(record["ranks"])
    assert {name: found.get(name) for name in groups} == groups
    for name in ("etp", "ep", "edp"):  # groups of more ranks than one, every rank in one of them
        if name in found:
            world = math.prod(degrees.get(axis, 1) for axis in ("tp", "cp", "dp", "pp"))
            assert sorted(rank for group in found[name] for rank in group) == list(range(world))


# What holds for all

DEGREES = st.sampled_from([1, 2, 4])
COUNTS = st.integers(1, 8)


def spread(how: str, ep: int, experts: int, choices: int, tokens: int, **more: object) -> PricedLedger:
    return ask(
        small(experts, choices), parallelism__dp=ep, parallelism__ep=ep, parallelism__dispatch=how,
        workload__sequence_length=tokens, **more,
    )  # fmt: skip


@given(ep=st.sampled_from([2, 4, 8]), choices=COUNTS, more=st.integers(1, 4), tokens=st.integers(1, 300))
@settings(max_examples=25, deadline=None)
def test_volume_by_choices(ep: int, choices: int, more: int, tokens: int) -> None:
    experts = 8 * (choices + more)
    one, many = (spread("all_to_all", ep, experts, k, tokens) for k in (1, choices))
    dispatch = tokens_moved(one, "dispatch").payload_bytes
    assert tokens_moved(many, "dispatch").payload_bytes == choices * dispatch == choices * tokens * 96 * 2
    one, many = (spread("all_gather", ep, experts, k, tokens) for k in (1, choices))
    gathered = tokens_moved(one, "dispatch").payload_bytes
    assert tokens_moved(many, "dispatch").payload_bytes == gathered == ep * tokens * 96 * 2
    copies = tokens_moved(spread("deduplicated", ep, experts, choices, tokens), "dispatch")
    assert copies.payload_bytes <= min(choices * dispatch, gathered)
    assert copies.payload_bytes >= dispatch


@given(tp=DEGREES, dp=DEGREES, choices=st.integers(1, 4), sp=st.booleans())
@settings(max_examples=20, deadline=None)
def test_one_rank_for_all_experts_changes_nothing(tp: int, dp: int, choices: int, sp: bool) -> None:
    degrees = {"parallelism__tp": tp, "parallelism__dp": dp, "parallelism__sp": sp and tp > 1}
    plain = ask(small(8, choices), **degrees)
    assert rows(ask(small(8, choices), **degrees, parallelism__ep=1)) == rows(plain)
    assert not {row.group for row in rows(plain)} & {"ep", "etp", "edp"}


@given(tp=DEGREES, cp=DEGREES, dp=DEGREES, ep=st.sampled_from([1, 2, 4, 8]), etp=DEGREES)
@settings(max_examples=40, deadline=None)
def test_expert_groups_make_up_the_ranks_of_a_stage(tp: int, cp: int, dp: int, ep: int, etp: int) -> None:
    """ep etp edp = tp cp dp; and whatever does not divide is refused."""
    ranks = tp * cp * dp
    degrees = {"tp": tp, "cp": cp, "dp": dp, "ep": ep, "etp": etp, "sp": tp > 1}
    values = {f"parallelism__{name}": value for name, value in degrees.items()}
    if ranks % (ep * etp):
        with pytest.raises(IllegalDegree, match="ranks of a stage"):
            ask(small(), **values)
        return
    ledger = ask(small(), **values).ledger
    sizes = {name: group.size(ledger.layout.mesh) for name, group in groups_of(ledger).items()}
    assert math.prod(sizes.get(name, 1) for name in ("ep", "etp", "edp")) == ranks
    assert (sizes.get("ep", 1), sizes.get("etp", 1)) == (ep, etp)


@given(ep=st.sampled_from([2, 4, 8]), imbalance=st.integers(64, 128), tokens=st.integers(1, 64))
@settings(max_examples=20, deadline=None)
def test_the_busiest_rank_gets_as_much_more(ep: int, imbalance: int, tokens: int) -> None:
    even_rows = tokens_moved(spread("all_to_all", ep, 16, 2, 64 * tokens), "dispatch").payload_bytes
    uneven = spread("all_to_all", ep, 16, 2, 64 * tokens, workload__imbalance=imbalance / 64)
    assert tokens_moved(uneven, "dispatch").payload_bytes * 64 == even_rows * imbalance


@given(tokens=st.integers(1, 200), factor=st.sampled_from([1.0, 1.25, 1.5, 2.0, 4.0]))
@settings(max_examples=20, deadline=None)
def test_capacity_is_megatrons(tokens: int, factor: float) -> None:
    """ceil(tokens k / E x factor) rows for each expert, whatever is chosen: moe_utils.py, get_capacity."""
    priced = spread("all_to_all", 4, 16, 2, tokens, workload__capacity_factor=factor)
    capacity = math.ceil(Fraction(tokens * 2, 16) * Fraction(factor))
    assert tokens_moved(priced, "dispatch").payload_bytes == 16 * capacity * 96 * 2


@pytest.mark.parametrize(("recompute", "modules"), [("full", "core_attn"), ("selective", "moe")])
def test_recomputation_brings_tokens_to_experts_again(recompute: str, modules: str) -> None:
    """A layer with experts is run again whole: its rows of the forward pass, once more each."""
    priced = mixtral(parallelism__etp=1, workload__recompute=recompute, workload__recompute_modules=modules)
    again, first = ([row[1:] for row in brought(priced) if row[0] == way] for way in ("recompute", "forward"))
    assert again == first
    assert [row[2] for row in again] == ["ep", "ep"]


@pytest.mark.parametrize(("zero", "shards"), [(0, None), (1, None), (3, None), (3, 2)])
def test_gradients_of_experts_go_over_their_copies(zero: int, shards: int | None) -> None:
    """2 of 8 experts on each of 4 ranks, in 2 copies among 8: 32 layers, 3 x 4096 x 14336 each, in fp32."""
    more = {} if shards is None else {"parallelism__dp_shard": shards}
    priced = ask("mixtral-8x7b", parallelism__dp=8, parallelism__ep=4, parallelism__zero=zero, **more)
    every = [row for row in rows(priced, op="gradients") if "of experts" in row.tensor]
    assert {row.group_size for row in every} == {2}
    sent = sum(row.payload_bytes * priced.ledger.times_in_step(row) for row in every)
    assert sent == 32 * 2 * 3 * D * M * 4
    assert {row.group for row in every} <= {"edp", "dp_replica"}


def test_blocks_with_one_scale_are_those_of_a_row() -> None:
    """4096 elements in blocks of 128: 32 scales of four bytes for each row that goes there, none for the way back."""
    priced = mixtral(parallelism__etp=1, workload__dispatch_dtype="fp8", workload__scale_block=128)
    assert tokens_moved(priced, "dispatch").payload_bytes == T // 2 * K * (D + 32 * 4)
    assert tokens_moved(priced, "combine").payload_bytes == SENT


# Faults that are known


@pytest.mark.parametrize(("block", "scales"), [(100, 41), (10_000, 1)])
def test_a_block_that_is_not_full_has_a_whole_scale(block: int, scales: int) -> None:
    priced = mixtral(parallelism__etp=1, workload__dispatch_dtype="fp8", workload__scale_block=block)
    assert tokens_moved(priced, "dispatch").payload_bytes == T // 2 * K * (D + scales * 4)


def test_torchtitan_lays_experts_within_a_copy() -> None:
    """Source: torchtitan distributed/parallel_dims.py: ep must divide dp_shard * cp * tp."""
    with pytest.raises(IllegalDegree):
        ask(
            "mixtral-8x7b", parallelism__framework="torchtitan", parallelism__dp=8, parallelism__ep=4,
            parallelism__zero=3, parallelism__dp_shard=2,
        )  # fmt: skip


def test_vllm_deals_experts_out_unevenly() -> None:
    """Source: vLLM fused_moe/layer.py: the first E mod ep ranks hold one more; what tokens move is the same."""
    priced = vllm(parallelism__dp=3, parallelism__ep=3, workload__phase="prefill")
    assert brought(priced)[0] == ("forward", "dispatch", "all_gather", "ep", 3, 3 * T * D * 2)


def test_the_hint_for_a_dense_model_is_the_option_that_was_given() -> None:
    with pytest.raises(IllegalDegree) as raised:
        ask("llama-3-8b", parallelism__dp=2, parallelism__etp=1)
    assert "etp" in str(raised.value.problems[0].where)


def test_vllm_splits_tokens_over_tp_where_there_is_data_parallelism_too() -> None:
    """Source: vLLM config/parallel.py, use_sequence_parallel_moe: with the default backend where tp and dp exceed 1."""
    priced = vllm(parallelism__tp=2, parallelism__dp=4, parallelism__ep=8, workload__phase="prefill")
    assert brought(priced)[:2] == [
        ("forward", "dispatch", "all_gather", "ep", 8, 4 * T * D * 2),
        ("forward", "combine", "reduce_scatter", "ep", 8, 4 * T * D * 2),
    ]


def test_tokens_go_to_nodes_first() -> None:
    """DeepSeek-V3, arXiv:2412.19437, 3.2.2: over InfiniBand once to each node, over NVLink to the ranks of the node."""
    degrees = {"parallelism__dp": 64, "parallelism__ep": 64, "parallelism__dispatch": "deduplicated"}
    asked = ask("deepseek-v3", "h800-sxm", **degrees, parallelism__ep_nodes=8, parallelism__node_limit=4)
    sent = [
        (entry.row.group_size, entry.priced.level if entry.priced else "")
        for entry in asked.entries
        if entry.row.op == "dispatch" and entry.row.direction == "forward" and entry.row.tensor.startswith("X")
    ]
    assert sent == [(8, "infiniband"), (8, "nvlink")]


@given(st.sampled_from([(64, 6), (256, 8), (128, 8), (16, 1)]), st.sampled_from([1, 2, 4, 8]), st.integers(1, 8))
def test_copies_never_exceed_choices_nodes_or_ranks(counts: tuple[int, int], nodes: int, limit: int) -> None:
    """A token has no more copies than choices, nor more nodes than its limit; one node is reached always."""
    experts, choices = counts
    limit = min(limit, nodes)
    plan = Parallelism(ep=16, ep_nodes=nodes, node_limit=limit)
    if choices > limit * experts // nodes:
        return
    copies = copies_of_a_token(experts, choices, plan)
    assert 1 <= copies["node_copies"] <= min(limit, choices)
    assert copies["node_copies"] <= copies["copies"] <= min(choices, limit * 16 // nodes)
    assert nodes > 1 or copies["node_copies"] == 1
