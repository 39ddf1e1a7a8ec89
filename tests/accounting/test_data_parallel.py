"""Data parallelism, ZeRO and FSDP against what PyTorch issued, published formulas, and what people reported.

Sources: tests/data/fsdp2_collectives.json (recorded programs), goldens_groups.yaml, user_reports_groups.yaml, and
ZeRO, Rajbhandari et al. 2019, arXiv:1910.02054, section 7 (ZeRO 1 and 2 move what an AllReduce moves, ZeRO 3 half
as much again).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from commcalc.accounting.pricing import PricedLedger
from commcalc.accounting.rows import Row
from conftest import DATA, Inside, ask, fields, rows

CASES: list[dict[str, Any]] = json.loads((DATA / "fsdp2_collectives.json").read_text())["cases"]
GOLDENS = {case["id"]: case for case in yaml.safe_load((DATA / "goldens_groups.yaml").read_text())["cases"]}
REPORTS = {entry["id"]: entry for entry in yaml.safe_load((DATA / "user_reports_groups.yaml").read_text())["entries"]}
DATA_GROUPS = ("dp", "dp_shard", "dp_replica")


def golden(ident: str) -> dict[str, Any]:
    return {value["name"]: value["recomputed"] for value in GOLDENS[ident]["expected"]}


def of_data(priced: PricedLedger, **wanted: object) -> list[Row]:
    return [row for row in rows(priced, **wanted) if row.group in DATA_GROUPS]


def in_step(priced: PricedLedger, what: str = "wire_bytes", **wanted: object) -> int:
    """What the data-parallel rows of a device add up to in a step."""
    return sum(getattr(row, what) * priced.ledger.times_in_step(row) for row in of_data(priced, **wanted))


# What PyTorch issued


def question(case: dict[str, Any], *, ends: bool = True, tp: int = 1) -> PricedLedger:
    """The recorded model, with embedding and head or without."""
    config = case["config"]
    given_model: dict[str, object] = {
        "hidden_size": config["D"],
        "num_hidden_layers": config["L"],
        "num_attention_heads": config["H"],
        "num_key_value_heads": config["G"],
        "head_dim": config["hd"],
        "intermediate_size": config["F"],
    }
    if ends:
        given_model["vocab_size"] = config["V"]
    dp = config["dp"] // config.get("fsdp_tp", 1)
    copies = {"parallelism__dp_shard": dp // config["hsdp"]} if "hsdp" in config else {}
    return ask(
        fields(**given_model),
        **copies,
        parallelism__tp=tp,
        parallelism__dp=dp,
        parallelism__zero=3,
        parallelism__vocab_padding="none",
        workload__sequence_length=config["S"],
        workload__micro_batch_size=config["B"],
        workload__global_batch_size=config["B"] * dp,
        workload__dtype=config["dtype"],
        workload__grad_dtype="float32",
        workload__reshard="all" if config["reshard"] else "never",
        workload__defer_all_reduce=False,
    )


def counted(found: Counter[tuple[object, ...]], priced: PricedLedger, *parts: str) -> None:
    phases = {"forward": "fwd", "backward": "bwd"}
    for row in rows(priced):
        if not parts or row.part in parts:
            times = priced.ledger.times_in_step(row)
            key = (phases[row.direction], row.kind.value, row.group_size, row.dtype.value, row.payload_bytes)
            found[key] += times


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_step_under_fsdp2_issues_what_pytorch_issued(case: dict[str, Any]) -> None:
    issued: Counter[tuple[object, ...]] = Counter()
    for call in case["collectives"]:
        short = {"float32": "fp32", "bfloat16": "bf16"}[call["dtype"]]
        issued[call["phase"], call["collective"], call["group_size"], short, call["payload_bytes"]] += call["count"]
    predicted: Counter[tuple[object, ...]] = Counter()
    tp = case["config"].get("fsdp_tp", 1)
    if tp == 1:
        counted(predicted, question(case))
    else:  # blocks on a TP group, embedding and head whole on each of its ranks: asked apart
        counted(predicted, question(case, ends=False, tp=tp))
        counted(predicted, question(case), "root")
    if not case["config"]["backward"]:  # a program without a backward pass was recorded
        predicted = Counter({key: count for key, count in predicted.items() if key[0] == "fwd"})
    assert predicted == issued


def test_every_kind_of_program_is_there() -> None:
    seen = Counter((case["config"]["variant"], case["config"]["reshard"]) for case in CASES)
    assert seen == {
        ("f32", True): 4,
        ("f32", False): 2,
        ("bf16 params, f32 reduce", True): 1,
        ("HSDP 2x2", True): 1,
        ("f32 uneven (3 ranks)", True): 1,
        ("FSDP4 x TP2", True): 1,
    }


# Published formulas


def llama_8b(**more: object) -> PricedLedger:
    """Gradients in bf16; 128256 rows of the vocabulary need no padding."""
    return ask("llama-3-8b", parallelism__dp=8, workload__grad_dtype="bf16", **more)


def test_fsdp_moves_half_as_much_again_as_ddp_when_every_group_is_resharded() -> None:
    """ZeRO, arXiv:1910.02054, section 7.2.2: 3 Psi against 2 Psi; 8,030,261,248 parameters of 2 bytes, 7 of 8 parts."""
    parameters = 8_030_261_248
    ddp = in_step(llama_8b())
    fsdp = in_step(llama_8b(parallelism__zero=3, workload__reshard="all"))
    assert ddp == 2 * 2 * parameters * 7 // 8
    assert fsdp == 3 * 2 * parameters * 7 // 8
    assert 2 * fsdp == 3 * ddp


def test_fsdp_that_keeps_its_root_gathers_embedding_and_head_once() -> None:
    """FSDP2's default (fully_shard: reshard_after_forward is False for the root): tables 2 V D and the last norm D."""
    parameters, root = 8_030_261_248, 2 * 128256 * 4096 + 4096
    kept = in_step(llama_8b(parallelism__zero=3, workload__reshard="blocks"))
    assert kept == (3 * parameters - root) * 2 * 7 // 8
    assert round(kept / in_step(llama_8b()), 4) == 1.4346
    assert in_step(llama_8b(parallelism__zero=3, workload__reshard="never")) == in_step(llama_8b())


# All first dimensions are multiples of 64, so nothing is padded: 12 layers, 2 norms, 4 D x D, 2 D x 4 D each.
EVEN = fields(
    hidden_size=1024, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=16, intermediate_size=4096,
    gated_mlp=False, vocab_size=6400,
)  # fmt: skip
EVEN_PARAMETERS = 12 * (2 * 1024 + 12 * 1024 * 1024) + 2 * 6400 * 1024 + 1024


def even(**more: object) -> PricedLedger:
    return ask(EVEN, workload__grad_dtype="bf16", parallelism__vocab_padding="none", **more)


def test_traffic_of_replication_full_and_hybrid_sharding() -> None:
    """VOL-04, Zhao et al. 2023, arXiv:2304.11277, section 3.2.2: 2M(W-1)/W, 3M(W-1)/W, and across hosts
    2(M/G)(W/G-1)/(W/G) (the printed 2M(W-1)/(GW) is an erratum); W = 64 GPUs, G = 8 on a host, M = 20 GB. All are
    proportional to M; ours is smaller."""
    want, given_gb = golden("VOL-04"), 20
    scale = 2 * EVEN_PARAMETERS
    replication = in_step(even(parallelism__dp=64))
    full = in_step(even(parallelism__dp=64, parallelism__zero=3, workload__reshard="all"))
    hybrid = even(parallelism__dp=64, parallelism__zero=3, parallelism__dp_shard=8, workload__reshard="all")
    across = in_step(hybrid, group="dp_replica")
    for got, name in ((replication, "replication"), (full, "full_sharding"), (across, "hybrid_exact")):
        assert got * given_gb == want[name] * scale, name
    assert across * given_gb != want["hybrid_printed"] * scale
    # Inside a host nothing changes but the number of ranks: 3M(G-1)/G.
    assert in_step(hybrid, group="dp_shard") == 3 * scale * 7 // 8


@pytest.mark.parametrize(
    ("ident", "name", "layers", "hidden", "heads"),
    [
        ("PP-09", "1.2B", 40, 1536, 16),
        ("PP-09", "2.5B", 54, 1920, 20),
        ("PP-09", "4.2B", 64, 2304, 24),
        ("PP-09", "8.3B", 72, 3072, 32),
    ],
)
def test_gradients_of_published_models_are_as_many_as_their_parameters(
    ident: str, name: str, layers: int, hidden: int, heads: int
) -> None:
    """Shoeybi et al. 2019, arXiv:1909.08053, table 1; the formula leaves out the last norm, 2 h."""
    model = fields(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * hidden,
        gated_mlp=False, norm="layernorm", attention_bias=True, attention_output_bias=True, mlp_bias=True,
        vocab_size=51200, max_position_embeddings=1024, position_embedding="learned", tie_word_embeddings=True,
    )  # fmt: skip
    (row,) = of_data(ask(model, parallelism__dp=2, parallelism__vocab_padding="none", workload__sequence_length=1024))
    assert row.payload_bytes == 4 * (round(golden(ident)[name] * 1e9) + 2 * hidden)


# What people reported


def block_of_250_million(layers: int) -> str:
    """``layers`` x 250,000,000 parameters: 8000 (2 + 2 x 15624); 8 divides every first dimension."""
    return fields(
        hidden_size=8000, num_hidden_layers=layers, num_attention_heads=1, num_key_value_heads=1, head_dim=4000,
        intermediate_size=7624, gated_mlp=False,
    )  # fmt: skip


def sharded(layers: int, **more: object) -> PricedLedger:
    values: dict[str, object] = {"workload__grad_dtype": "bf16", "parallelism__dp": 8, **more}
    return ask(block_of_250_million(layers), **values)


def test_zero_1_moves_parameters_in_their_type_and_gradients_in_theirs() -> None:
    """UR-084: 7 G parameters on 2 TP ranks are 3.5 G each (14 layers x 8000 (2 + 2 x 15624))."""
    model = fields(
        hidden_size=8000, num_hidden_layers=14, num_attention_heads=2, num_key_value_heads=2, head_dim=4000,
        intermediate_size=15248, gated_mlp=False,
    )  # fmt: skip
    want = REPORTS["UR-084"]["expect"]
    priced = ask(model, parallelism__tp=2, parallelism__dp=2, parallelism__zero=1)
    found = {f"{row.kind.value}_bytes": row.payload_bytes for row in of_data(priced)}
    assert {**found, "wire_bytes_per_gpu": in_step(priced)} == want


def test_bytes_of_an_element_follow_the_types() -> None:
    """UR-085: 2 x parameters gathered and scattered where both are bf16, 4 x scattered in fp32."""
    priced = sharded(4, parallelism__dp=64, parallelism__zero=1)
    assert {f"{row.kind.value}_bytes": row.payload_bytes for row in of_data(priced)} == REPORTS["UR-085"]["expect"]
    wide = sharded(4, parallelism__dp=64, parallelism__zero=1, workload__grad_dtype="fp32")
    assert [row.payload_bytes for row in of_data(wide, kind="reduce_scatter")] == [4_000_000_000]


def test_bytes_between_nodes_of_zero_3() -> None:
    """UR-086: 3 x 160 GB x 15/16 into every node for 80 G parameters on 16 nodes of 8, at 42.5 GB/s a node.

    Our 80 layers have 8192 (2 + 2 x 8192 + 2 x 1024 + 3 x 28672) parameters each; bytes and time are proportional.
    """
    want = REPORTS["UR-086"]["expect"]
    model = fields(
        hidden_size=8192, num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8, intermediate_size=28672
    )
    machine = fields(
        name="nodes",
        network=[
            {"name": "node", "devices": 8, "bandwidth": "1e9 GB/s", "latency": "0 s"},
            {"name": "net", "bandwidth": f"{42.5 / 8} GB/s", "latency": "0 s"},
        ],
    )
    parameters = 80 * 8192 * (2 + 2 * 8192 + 2 * 1024 + 3 * 28672)
    priced = ask(
        model, machine, parallelism__dp=128, parallelism__zero=3, workload__grad_dtype="bf16", workload__reshard="all"
    )
    crossing, time = 0, 0.0
    for entry in priced.entries:
        assert entry.priced is not None
        times = priced.ledger.times_in_step(entry.row)
        time += entry.time_s * times
        crossing += 8 * times * sum(phase.cost.egress_bytes for phase in entry.priced.phases if phase.level == "net")
    assert crossing * 80_000_000_000 == want["inter_node_bytes_per_node"] * parameters
    assert time * 80e9 / parameters == pytest.approx(want["time_s"], rel=0.01)


def test_zero_2_moves_what_plain_data_parallelism_moves() -> None:
    """UR-087: ReduceScatter and AllGather, not ReduceScatter and AllReduce."""
    want = REPORTS["UR-087"]["expect"]
    zero = sharded(4, parallelism__zero=2)
    assert [row.kind.value for row in of_data(zero)] == ["reduce_scatter", "all_gather"]
    assert in_step(zero) == want["wire_bytes_per_gpu"]
    assert in_step(sharded(4)) == want["ddp_wire_bytes_per_gpu"]


def test_fully_sharded_traffic_has_three_terms() -> None:
    """UR-088: two gathers, one where parameters are kept, and a scatter in the type of the gradients."""
    want = REPORTS["UR-088"]["expect"]
    assert in_step(sharded(32, parallelism__zero=3, workload__reshard="all")) == want["wire_bytes_per_gpu"]
    assert in_step(sharded(32, parallelism__zero=3, workload__reshard="never")) == want["no_reshard"]
    wide = sharded(32, parallelism__zero=3, workload__reshard="all", workload__grad_dtype="fp32")
    assert in_step(wide) == want["fp32_grads"]


def test_copies_of_shards_sum_the_shards_alone() -> None:
    """UR-089: scatter first; to sum whole gradients over the 4 copies would move 8 times as much."""
    want = REPORTS["UR-089"]["expect"]
    hybrid = sharded(4, parallelism__dp=32, parallelism__dp_shard=8, parallelism__zero=3)
    assert in_step(hybrid, group="dp_replica") == want["inter_node_bytes_per_gpu"]
    assert in_step(sharded(4, parallelism__dp=4)) == want["all_reduce_first"]


def test_copies_are_summed_once_a_step_or_in_every_microbatch() -> None:
    """UR-090: 4 micro-steps; gathers and scatters happen in each of them, the sum of copies only if not deferred."""
    want = REPORTS["UR-090"]["expect"]

    def step(*, defer: bool) -> PricedLedger:
        return sharded(
            1, parallelism__dp=16, parallelism__dp_shard=8, parallelism__zero=3, workload__global_batch_size=64,
            workload__defer_all_reduce=defer,
        )  # fmt: skip

    def calls(priced: PricedLedger, group: str) -> int:
        return sum(priced.ledger.times_in_step(row) for row in of_data(priced, group=group))

    deferred, each = step(defer=True), step(defer=False)
    assert calls(deferred, "dp_replica") == want["inter_node_ops"]
    assert calls(each, "dp_replica") == want["without_defer"]
    ratio = in_step(each, group="dp_replica") / in_step(deferred, group="dp_replica")
    assert ratio == want["byte_ratio"]
    assert calls(deferred, "dp_shard") == calls(each, "dp_shard") == 4 * 3


def test_one_command_for_a_whole_plan(inside: Inside) -> None:
    """UR-127: every collective with its count and bytes; a share of the whole is not printed, but follows."""
    asked = "--model llama-3-70b --tp 8 --pp 4 --dp 8 --zero 1 --recompute full --global-batch 1024 --seq 4096 --json"
    found = inside("ledger", *asked.split())
    assert found.status == 0, found.err
    answer = found.json
    # 1024 / 8 microbatches, 20 layers a stage: 2 AllReduces forward, 2 again, 2 backward, of 4096 x 8192 x 2 bytes.
    blocks = [row for row in answer["rows"] if row["group"] == "tp" and row["per"] == "block"]
    assert {row["collective"] for row in blocks} == {"all_reduce"}
    assert {(row["payload_bytes"], row["wire_bytes"]) for row in blocks} == {(67108864, 2 * 7 * 67108864 // 8)}
    assert sum(row["count_in_step"] for row in blocks) == 6 * 20 * 128
    step = answer["totals"]["step"]
    for what in ("payload_bytes", "wire_bytes"):
        groups = {row["group"] for row in answer["rows"]}
        assert groups == {"tp", "pp", "dp"}
        assert sum(step[group][what] for group in groups) == step["all"][what]
        for group in groups:
            of_group = [row for row in answer["rows"] if row["group"] == group]
            assert sum(row[what] * row["count_in_step"] for row in of_group) == step[group][what]


# Laws


@st.composite
def models(draw: st.DrawFn) -> dict[str, Any]:
    heads = draw(st.integers(1, 6))
    return {
        "hidden_size": draw(st.integers(1, 40)),
        "num_hidden_layers": draw(st.integers(1, 4)),
        "num_attention_heads": heads,
        "num_key_value_heads": draw(st.sampled_from([1, heads])),
        "head_dim": draw(st.integers(1, 9)),
        "intermediate_size": draw(st.integers(1, 50)),
        "vocab_size": draw(st.integers(1, 300)),
        "gated_mlp": draw(st.booleans()),
        "norm": draw(st.sampled_from(["rmsnorm", "layernorm"])),
        "attention_bias": draw(st.booleans()),
        "mlp_bias": draw(st.booleans()),
        "tie_word_embeddings": draw(st.booleans()),
    }


def shapes_of(model: dict[str, Any]) -> list[tuple[int, int]]:
    """Of every parameter as PyTorch keeps it: its first dimension, and the product of the others."""
    d, f, v = model["hidden_size"], model["intermediate_size"], model["vocab_size"]
    q, kv = (model[f"num_{which}_heads"] * model["head_dim"] for which in ("attention", "key_value"))
    norm = [(d, 1)] * (2 if model["norm"] == "layernorm" else 1)
    up = [(f, d)] * (2 if model["gated_mlp"] else 1)
    layer = [*norm, *norm, (q, d), (kv, d), (kv, d), (d, q), *up, (d, f)]
    layer += [(q, 1), (kv, 1), (kv, 1)] if model["attention_bias"] else []
    layer += [*[(f, 1)] * len(up), (d, 1)] if model["mlp_bias"] else []
    return layer * model["num_hidden_layers"] + norm + [(v, d)] * (1 if model["tie_word_embeddings"] else 2)


def parameters_of(model: dict[str, Any]) -> int:
    return sum(first * rest for first, rest in shapes_of(model))


def asked(model: dict[str, Any], dp: int, microbatches: int = 1, **more: object) -> PricedLedger:
    return ask(
        fields(**model), parallelism__dp=dp, workload__global_batch_size=dp * microbatches,
        workload__sequence_length=8, parallelism__vocab_padding="none", **more,
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(models(), st.integers(2, 9), st.integers(1, 3))
def test_gradients_are_the_parameters_whatever_the_number_of_ranks_and_microbatches(
    model: dict[str, Any], dp: int, microbatches: int
) -> None:
    (row,) = of_data(priced := asked(model, dp, microbatches))
    assert row.payload_bytes == 4 * parameters_of(model)
    assert (row.group_size, priced.ledger.times_in_step(row)) == (dp, 1)


@settings(max_examples=60, deadline=None)
@given(models(), st.integers(2, 9), st.sampled_from(["bf16", "fp32"]))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(model: dict[str, Any], dp: int, dtype: str) -> None:
    """Shards are equal: where the parameters do not divide, a few elements are added, and nothing else differs."""
    same = {"workload__dtype": dtype, "workload__grad_dtype": dtype}
    size, shard = {"bf16": 2, "fp32": 4}[dtype], math.ceil(parameters_of(model) / dp)
    plain = in_step(asked(model, dp, **same))
    assert plain == math.ceil(2 * (dp - 1) * parameters_of(model) * size / dp)
    for zero in (1, 2):
        split = asked(model, dp, parallelism__zero=zero, **same)
        assert [row.kind.value for row in of_data(split)] == ["reduce_scatter", "all_gather"]
        assert in_step(split) == 2 * (dp - 1) * shard * size
        assert in_step(split) == plain or parameters_of(model) % dp


@settings(max_examples=60, deadline=None)
@given(models(), st.integers(2, 5), st.integers(1, 4), st.integers(1, 3))
def test_what_is_exchanged_in_every_microbatch(model: dict[str, Any], dp: int, microbatches: int, zero: int) -> None:
    """ZeRO 1 scatters once a step, ZeRO 2 in every microbatch; ZeRO 3 gathers in every microbatch too."""
    priced = asked(model, dp, microbatches, parallelism__zero=zero)
    times = {
        kind: {priced.ledger.times_in_step(row) for row in of_data(priced, kind=kind) if row.part in ("all", "root")}
        for kind in ("reduce_scatter", "all_gather")
    }
    scatters = {1: 1, 2: microbatches, 3: microbatches}[zero]
    gathers = {1: 1, 2: 1, 3: microbatches}[zero]
    assert times == {"reduce_scatter": {scatters}, "all_gather": {gathers}}


@settings(max_examples=60, deadline=None)
@given(models(), st.integers(2, 9), st.integers(1, 5000), st.sampled_from([0, 1, 2]), st.sampled_from(["bf16", "fp32"]))
def test_buckets_add_up_to_the_whole(model: dict[str, Any], dp: int, elements: int, zero: int, dtype: str) -> None:
    """Gradients in fp32 in buckets of so many bytes; parameters in the same buckets, each of equal shards."""
    whole = parameters_of(model)
    ranks = dp if zero else 1
    each = max(elements // ranks, 1) * ranks
    priced = asked(model, dp, parallelism__zero=zero, workload__dtype=dtype, workload__bucket_bytes=f"{4 * elements} B")
    assert of_data(priced)
    for kind in {row.kind.value for row in of_data(priced)}:
        found = of_data(priced, kind=kind)
        size = 2 if kind == "all_gather" and dtype == "bf16" else 4
        assert sum(row.payload_bytes * row.calls for row in found) == size * math.ceil(whole / ranks) * ranks
        assert sum(row.calls for row in found) == math.ceil(whole / each)
        assert all(0 < row.payload_bytes <= size * each for row in found)


@settings(max_examples=60, deadline=None)
@given(models(), st.integers(2, 9))
def test_one_copy_of_shards_is_plain_zero_3(model: dict[str, Any], dp: int) -> None:
    plain = asked(model, dp, parallelism__zero=3)
    one = asked(model, dp, parallelism__zero=3, parallelism__dp_shard=dp)
    assert of_data(one) == of_data(plain)
    # Every parameter is padded for itself to equal shards of its first dimension (torch-105 of the recorded cases).
    padded = sum(math.ceil(first / dp) * dp * rest for first, rest in shapes_of(model))
    assert in_step(plain, "payload_bytes", kind="reduce_scatter") == 4 * padded


@settings(max_examples=60, deadline=None)
@given(models(), st.integers(2, 4), st.integers(2, 4), st.integers(1, 3))
def test_copies_of_shards_sum_what_the_scatter_left(
    model: dict[str, Any], shard: int, copies: int, microbatches: int
) -> None:
    priced = asked(model, shard * copies, microbatches, parallelism__zero=3, parallelism__dp_shard=shard)
    sizes = {(row.group, row.group_size) for row in of_data(priced)}
    assert sizes == {("dp_shard", shard), ("dp_replica", copies)}
    left = in_step(priced, "payload_bytes", kind="all_reduce")
    assert shard * left * microbatches == in_step(priced, "payload_bytes", kind="reduce_scatter")
