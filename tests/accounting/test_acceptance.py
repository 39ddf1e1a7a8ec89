"""What to measure for a job: payloads, calls and the busbw to reach, against hand arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from commcalc.accounting.acceptance import Measurement, Plan, acceptance
from commcalc.algebra.collective import Kind
from commcalc.catalog.assign import Assignment
from commcalc.catalog.hardware import Hardware
from commcalc.catalog.job import Request, resolve_job
from commcalc.network.link import InNetworkReduction, Level, Network
from commcalc.network.measured import Sweep
from commcalc.report.acceptance import plan_commands, plan_document, plan_heading, plan_records, plan_tables
from commcalc.report.json import render_json
from commcalc.report.table import render_csv
from commcalc.units import Dtype

# One device of eight: 450 GB/s inside eight, 50 GB/s outside, no latency anywhere.
LEVELS = (Level("nvlink", 450e9, devices=8), Level("infiniband", 50e9))
PEAKS = {Dtype.BF16: 989e12, Dtype.FP8: 1979e12}
PLAIN = Hardware("plain", Network(LEVELS), PEAKS, hbm_bytes_per_s=3.35e12)

# Llama 3 70B, one layer: Q and O 8192 x 8192, K and V 8192 x 1024, three MLP matrices 8192 x 28672.
WEIGHTS = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672
FORWARD_FLOPS = 2 * 8192 * WEIGHTS // 8  # 8192 tokens, an eighth on each device
PAYLOAD = 8192 * 8192 * 2  # 128 MiB
BUS = 2 * PAYLOAD * 14 // 8  # two AllReduces a pass, 2 * 7/8 of each


def plan(hardware: Hardware | None = PLAIN, **values: object) -> Plan:
    """The plan of the packaged job on ``hardware``; ``tp=16`` or ``phase="decode"`` replace single values."""
    inside = {"phase": "workload", "micro_batch_size": "workload", "recompute": "workload"}
    assignments = [
        Assignment(f"{inside.get(key, 'parallelism')}.{key}", str(value), key) for key, value in values.items()
    ]
    job = resolve_job(Request(job="llama-3-70b-h100", assignments=assignments))
    return acceptance(job.model, job.parallel, job.work, hardware)


def alike(found: Plan, **wanted: object) -> Measurement:
    """The one measurement with these fields."""
    (one,) = (each for each in found.measurements if all(getattr(each, key) == value for key, value in wanted.items()))
    return one


def test_a_block_of_llama_70b_in_both_types() -> None:
    assert (WEIGHTS, FORWARD_FLOPS, BUS) == (855_638_016, 1_752_346_656_768, 469_762_048)
    found = plan()
    by_pass = {(one.direction, one.dtype.value): one for one in found.passes}
    assert {key: (one.gemm_flops, one.calls, one.bus_bytes) for key, one in by_pass.items()} == {
        ("forward", "bf16"): (FORWARD_FLOPS, 2, BUS),
        ("backward", "bf16"): (2 * FORWARD_FLOPS, 2, BUS),
        ("forward", "fp8"): (FORWARD_FLOPS, 2, BUS // 2),
        ("backward", "fp8"): (2 * FORWARD_FLOPS, 2, BUS // 2),
    }
    # 469762048 B in 1752346656768 / 989e12 s = 1771.84 us: 265.127 GB/s; half of it backward.
    assert by_pass["forward", "bf16"].needed == pytest.approx(265.127e9, rel=1e-5)
    assert by_pass["backward", "bf16"].needed == pytest.approx(132.5635e9, rel=1e-5)
    assert by_pass["forward", "fp8"].needed == pytest.approx(BUS / 2 * 1979e12 / FORWARD_FLOPS, rel=1e-12)
    # A ring at 450 GB/s takes 1043.9 of 1771.8 us.
    assert by_pass["forward", "bf16"].expected_s == pytest.approx(BUS / 450e9, rel=1e-12)
    assert {one.verdict for one in found.passes} == {"hidden"}


def test_ranks_with_batches_of_their_own_do_all_of_the_work_of_one() -> None:
    """A data-parallel rank multiplies its whole microbatch; a rank of a context group its part of it."""
    for values, ways in (({"dp": 4}, 1), ({"cp": 2}, 2)):
        flops = [one.gemm_flops for one in plan(**values).passes if one.direction == "forward"]
        assert set(flops) == {FORWARD_FLOPS // ways}


def test_every_distinct_collective_once() -> None:
    found = plan()
    assert [(one.kind.value, one.group, one.group_size, one.dtype.value, one.payload_bytes, one.calls, one.others)
            for one in found.measurements] == [
        ("all_reduce", "tp", 8, "bf16", PAYLOAD, {"forward": 2, "backward": 2}, {"microbatch": 2}),
        ("all_reduce", "tp", 8, "fp8", PAYLOAD // 2, {"forward": 2, "backward": 2}, {"microbatch": 2}),
        ("all_reduce", "tp", 8, "fp32", 8192 * 4, {}, {"microbatch": 3}),
    ]  # fmt: skip
    first, _, loss = found.measurements
    assert (first.hardest, first.reachable) == (pytest.approx(265.127e9, rel=1e-5), True)
    assert first.share == pytest.approx(0.58917, rel=1e-4)  # of 450 GB/s
    assert first.expected_busbw == pytest.approx(450e9)
    assert (loss.hardest, loss.share, loss.reachable) == (None, None, None)


def test_sequence_parallelism_gathers_again_in_the_backward_pass() -> None:
    """Two pairs a pass, and two gathers more backward: 6 * 7/8 of the payload in twice the forward time."""
    found = plan(sp="true")
    assert alike(found, kind="all_gather", dtype=Dtype.BF16).calls == {"forward": 2, "backward": 4}
    assert alike(found, kind="reduce_scatter", dtype=Dtype.FP8).calls == {"forward": 2, "backward": 2}
    assert alike(found, kind="all_gather", dtype=Dtype.FP8).payload_bytes == PAYLOAD // 2
    (back,) = (one for one in found.passes if one.direction == "backward" and one.dtype is Dtype.BF16)
    assert back.bus_bytes == 6 * PAYLOAD * 7 // 8
    assert back.needed == pytest.approx(6 * PAYLOAD * 7 / 8 * 989e12 / (2 * FORWARD_FLOPS), rel=1e-12)
    # The norms' gradients: two vectors of 8192 in 80 layers and the last norm, in the type of the gradients.
    assert alike(found, others={"step": 1}).payload_bytes == (2 * 80 + 1) * 8192 * 4


def test_full_recomputation_belongs_to_the_backward_pass() -> None:
    found = plan(recompute="full")
    (back,) = (one for one in found.passes if one.direction == "backward" and one.dtype is Dtype.BF16)
    assert (back.gemm_flops, back.calls) == (3 * FORWARD_FLOPS, 4)


def test_decoding_waits_for_weights_from_memory() -> None:
    """64 tokens: an eighth of 855638016 weights of 2 B at 3.35 TB/s is 63.85 us, the FLOPs only 13.8 us."""
    found = plan(phase="decode", micro_batch_size=64)
    assert [one.direction for one in found.passes] == ["forward", "forward"]
    bf16, fp8 = found.passes
    assert bf16.gemm_s == pytest.approx(63.854e-6, rel=1e-4)
    assert fp8.gemm_s == pytest.approx(31.927e-6, rel=1e-4)
    assert bf16.bus_bytes == 2 * (64 * 8192 * 2) * 14 // 8
    assert bf16.needed == pytest.approx(57.4755e9, rel=1e-5)
    # 129024 rows of padded vocabulary for each of 64 sequences; nothing of a block hides them.
    logits = alike(found, kind="all_gather", dtype=Dtype.BF16)
    assert (logits.payload_bytes, logits.hardest) == (64 * 129024 * 2, None)
    assert plan_records(found)[0]["command"] == (
        "mpirun -np 8 ./build/all_reduce_perf -b 1048576 -e 1048576 -f 2 -d bfloat16 -t 1 -g 1 -n 20 -w 5 -c 1 -G 10"
    )


def test_beyond_the_links_nothing_hides() -> None:
    """Over two nodes of eight, K and V still in eighths: a flat ring has 8 * 50 GB/s, and 557 GB/s are needed."""
    found = plan(tp=16, phase="prefill")
    flops = 2 * 8192 * ((2 * 8192 * 8192 + 3 * 8192 * 28672) // 16 + 2 * 8192 * 1024 // 8)
    assert flops == 893_353_197_568
    assert [one.gemm_flops for one in found.passes] == [flops, flops]
    needed = 2 * PAYLOAD * 30 / 16 * 989e12 / flops
    assert needed == pytest.approx(557.204e9, rel=1e-5)
    one = alike(found, kind="all_reduce", dtype=Dtype.BF16)
    assert one.needed == {"forward": pytest.approx(needed, rel=1e-12)}
    assert one.share == pytest.approx(needed / 400e9, rel=1e-12)
    assert (one.reachable, one.crosses) == (False, True)
    assert {one.verdict for one in found.passes} == {"cannot be hidden"}
    assert "mpirun -np 16 --hostfile hosts ./build/all_reduce_perf" in plan_commands(found)


def test_fp8_sums_take_the_measured_halves_where_the_switch_may_have_summed() -> None:
    """64 MiB in FP8: 200 us and 208 us of the halves, not 324 us that a switch took."""
    inner = LEVELS[0]._replace(
        in_network=InNetworkReduction(25e-6, 5),
        measured=tuple(
            Sweep(kind, 8, 8, ((2**26, late), (2**27, 2 * late)))
            for kind, late in ((Kind.ALL_REDUCE, 324e-6), (Kind.REDUCE_SCATTER, 200e-6), (Kind.ALL_GATHER, 208e-6))
        ),
    )
    found = plan(PLAIN._replace(network=Network((inner, LEVELS[1]))))
    bf16, fp8 = (alike(found, kind="all_reduce", dtype=dtype) for dtype in (Dtype.BF16, Dtype.FP8))
    assert bf16.rates is not None
    assert fp8.rates is not None
    assert bf16.rates.priced.cost.time_s == pytest.approx(648e-6)
    assert fp8.rates.priced.cost.time_s == pytest.approx(408e-6)
    assert (bf16.rates.priced.cost.confidence, fp8.rates.priced.cost.confidence) == ("measured", "calibrated")
    by_pass = {(one.direction, one.dtype.value): one for one in found.passes}
    assert by_pass["forward", "fp8"].expected_s == pytest.approx(2 * 408e-6)


def test_a_switch_that_sums_reaches_more_than_its_links_but_not_in_fp8() -> None:
    """Eight devices: busbw up to 2 * 7/9 of the link, 350 of 225 GB/s, where 265 are needed."""
    sums = (LEVELS[0]._replace(bandwidth=225e9, in_network=InNetworkReduction()), LEVELS[1])
    found = plan(PLAIN._replace(network=Network(sums)))
    bf16, fp8 = (alike(found, dtype=dtype) for dtype in (Dtype.BF16, Dtype.FP8))
    assert bf16.rates is not None
    assert fp8.rates is not None
    assert (bf16.rates.datasheet, bf16.rates.bound) == (225e9, pytest.approx(350e9))
    assert (bf16.reachable, fp8.rates.bound, fp8.reachable) == (True, 225e9, False)
    assert [one.verdict for one in found.passes] == ["hidden", "hidden", "cannot be hidden", "hidden"]


def test_latency_can_expose_what_bandwidth_would_hide() -> None:
    slow = (LEVELS[0]._replace(latency_s=60e-6), LEVELS[1])
    found = plan(PLAIN._replace(network=Network(slow)))
    assert found.passes[0].expected_s == pytest.approx(BUS / 450e9 + 2 * 14 * 60e-6, rel=1e-12)
    assert found.passes[0].verdict == "exposed"  # 1043.9 + 1680 us in 1771.8
    assert alike(found, dtype=Dtype.BF16).reachable is True


@pytest.mark.parametrize(
    ("peaks", "forward", "said"),
    [
        ({Dtype.BF16: 989e12}, [989e12, 989e12], "fp8 buffers 989 TFLOP/s (of bf16: the chip gives none in fp8)"),
        ({Dtype.FP16: 125e12}, [125e12, 125e12], "bf16 buffers 125 TFLOP/s (of fp16: the chip gives none in bf16)"),
        ({Dtype.FP8: 233e12}, [None, 233e12], "the chip gives no peak for bf16 buffers: no busbw is needed in them"),
        ({}, [None, None], "the chip gives no peak in bf16, fp16 or fp8"),
    ],
)
def test_a_chip_without_a_peak_takes_the_next(
    peaks: dict[Dtype, float], forward: list[float | None], said: str
) -> None:
    found = plan(PLAIN._replace(flops=peaks))
    seconds = [one.gemm_s for one in found.passes if one.direction == "forward"]
    assert seconds == [None if peak is None else pytest.approx(FORWARD_FLOPS / peak) for peak in forward]
    assert any(said in line for line in found.assumptions)


def test_the_command_lines() -> None:
    calls = (
        "forward out_proj, forward down_proj, backward gate_up_proj, backward qkv_proj, forward embedding, "
        "backward lm_head"
    )
    assert plan_commands(plan()) == (
        f"""Commands

    # 1: {calls}
    mpirun -np 8 ./build/all_reduce_perf -b 134217728 -e 134217728 -f 2 -d bfloat16 -t 1 -g 1 -n 20 -w 5 -c 1
    # 2: {calls}
    mpirun -np 8 ./build/all_reduce_perf -b 67108864 -e 67108864 -f 2 -d f8e4m3 -t 1 -g 1 -n 20 -w 5 -c 1
    # 3: forward max_logit, forward target_logit, forward sum_exp
    mpirun -np 8 ./build/all_reduce_perf -b 32768 -e 32768 -f 2 -d float -t 1 -g 1 -n 20 -w 5 -c 1
    # start-up latency of 1
    mpirun -np 8 ./build/all_reduce_perf -b 8 -e 65536 -f 2 -d bfloat16 -t 1 -g 1 -n 100 -w 20 -c 1
    # start-up latency of 2
    mpirun -np 8 ./build/all_reduce_perf -b 8 -e 65536 -f 2 -d f8e4m3 -t 1 -g 1 -n 100 -w 20 -c 1
    # start-up latency of 3
    mpirun -np 8 ./build/all_reduce_perf -b 8 -e 65536 -f 2 -d float -t 1 -g 1 -n 100 -w 20 -c 1
"""
    )


def test_groups_that_lie_apart_are_split_off() -> None:
    """With DP innermost every second of 16 ranks is in one TP group; gathers begin at 16 B for each of 8 ranks."""
    found = plan(sp="true", dp=2, order="dp-tp-cp-ep-pp")
    record: dict[str, Any] = next(one for one in plan_records(found) if one["collective"] == "reduce_scatter")
    assert (record["group_size"], record["group_stride"]) == (8, 2)
    begin = 'mpirun -np 16 --hostfile hosts -x NCCL_TESTS_SPLIT="MOD 2" ./build/reduce_scatter_perf'
    assert record["command"] == f"{begin} -b 134217728 -e 134217728 -f 2 -d bfloat16 -t 1 -g 1 -n 20 -w 5 -c 1"
    assert record["startup_command"] == f"{begin} -b 128 -e 65536 -f 2 -d bfloat16 -t 1 -g 1 -n 100 -w 20 -c 1"
    assert any("MOD s" in line for line in found.assumptions)
    assert not found.warnings


def test_the_document_leaves_fields_to_fill_in() -> None:
    found = plan()
    document: dict[str, Any] = plan_document(found)
    assert document["schema"] == "commcalc/acceptance/1"
    assert (document["inputs"]["tokens"], document["inputs"]["hidden_size"], document["inputs"]["tp"]) == (
        8192,
        8192,
        8,
    )
    record = document["measurements"][1]
    assert (record["dtype"], record["nccl_type"], record["confidence"]) == ("fp8", "f8e4m3", "datasheet")
    fields = ["startup_latency_s", "measured_busbw_bytes_per_s", "async_progress", "gemm_overlap"]
    assert list(record)[-4:] == fields
    assert all(record[field] is None for field in fields)
    assert all(any(line.startswith(f"{field}: ") for line in found.assumptions) for field in fields)
    assert render_json(document) == render_json(plan_document(plan()))
    assert len(render_csv(plan_records(found)).splitlines()) == 4
    needed, measured, blank = plan_tables(found)
    assert needed.rows[0][5:7] == ("469,762,048", "265.127 GB/s")
    assert measured.rows[0][:6] == ("1", "all_reduce", "tp 8", "bfloat16", "134,217,728", "128 MiB")
    assert blank.rows[1] == ("2", "all_reduce", "f8e4m3", "67,108,864", "", "", "", "")


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ({"tp": 1}, "a block at tp 1 sends nothing, so there is nothing to measure: --set parallelism.tp=8 splits it"),
        ({"tp": 1, "phase": "decode"}, "a block at tp 1 sends nothing"),
        ({"layout": "none"}, "layout none splits nothing, so there is nothing to measure"),
    ],
)
def test_nothing_to_measure_is_said(values: dict[str, object], note: str) -> None:
    found = plan(**values)
    assert found.note is not None
    assert found.note.startswith(note)
    assert (found.measurements, found.passes, found.assumptions) == ((), (), ())
    assert (plan_tables(found), plan_records(found), plan_commands(found)) == ([], [], "")
    assert note in plan_heading(found)
    assert plan_document(found)["note"] == found.note


def test_without_a_machine_payloads_and_commands_are_left() -> None:
    found = plan(None)
    assert [one.payload_bytes for one in found.measurements] == [PAYLOAD, PAYLOAD // 2, 32768]
    assert {(one.needed, one.gemm_s, one.verdict) for one in found.passes} == {(None, None, None)}
    assert "no machine is given: nothing is timed, and no busbw is needed" in found.assumptions
    assert plan_commands(found) == plan_commands(plan())
    assert plan_heading(found).startswith("llama-3-70b on no hardware: train, megatron, tp 8\n")
