"""Jobs from files, options and defaults: who wins, and what contradicts."""

from __future__ import annotations

from typing import Any

import pytest

from commcalc.catalog.assign import Assignment
from commcalc.catalog.job import Job, Request, resolve_job
from commcalc.errors import CommcalcError
from commcalc.transformer.layout import LayoutName


def job(text: str, *options: tuple[str, str], **more: Any) -> Job:
    assignments = [Assignment(path, value, f"--{path.split('.')[-1]} {value}") for path, value in options]
    return resolve_job(Request(job_text=text, assignments=assignments, **more))


MODEL = "model: {hidden_size: 64, num_hidden_layers: 2}\n"


@pytest.mark.parametrize(
    ("text", "options", "layout", "sp"),
    [
        ("", [], LayoutName.MEGATRON, False),
        ("parallelism: {sp: true}", [], LayoutName.MEGATRON_SP, True),
        ("parallelism: {layout: megatron-sp}", [], LayoutName.MEGATRON_SP, True),
        ("parallelism: {layout: megatron-sp, sp: true}", [], LayoutName.MEGATRON_SP, True),
        ("parallelism: {layout: megatron-sp}", [("parallelism.sp", "false")], LayoutName.MEGATRON, False),
        ("parallelism: {sp: true}", [("parallelism.layout", "megatron")], LayoutName.MEGATRON, False),
        ("parallelism: {layout: none}", [], LayoutName.NONE, False),
    ],
)
def test_layout_and_sequence_parallelism(
    text: str, options: list[tuple[str, str]], layout: LayoutName, sp: bool
) -> None:
    found = job(MODEL + text, *options).parallel
    assert (found.layout, found.sp) == (layout, sp)


def test_modules_to_recompute_are_a_text_or_a_list() -> None:
    for text in ('"mlp,moe"', "[mlp, moe]", "[moe, mlp]", '["mlp,moe", mlp]'):
        found = job(MODEL + f"workload: {{recompute: selective, recompute_modules: {text}}}")
        assert sorted(found.work.recompute_modules) == ["mlp", "moe"]
    with pytest.raises(CommcalcError) as told:
        job(MODEL + "workload: {recompute_modules: [mlp, mpl, 3]}")
    assert [(one.message, one.where) for one in told.value.problems] == [
        ("unknown module to recompute 'mpl'", "stdin:2:37 workload.recompute_modules"),
        ("unknown module to recompute '3'", "stdin:2:42 workload.recompute_modules"),
    ]


def test_contradictions_are_refused() -> None:
    for text in ("parallelism: {layout: megatron, sp: true}", "parallelism: {layout: megatron-sp, sp: false}"):
        with pytest.raises(CommcalcError, match="contradict each other"):
            job(MODEL + text)


def test_set_wins_over_what_came_before() -> None:
    found = job(MODEL + "parallelism: {tp: 2}", ("parallelism.tp", "4"), ("parallelism.tp", "8"))
    assert found.parallel.tp == 8
    assert found.sources["parallelism.tp"] == "--tp 8"


def test_hardware_levels_are_set_by_name() -> None:
    found = job(
        MODEL + "hardware: h100-sxm",
        ("hardware.network.nvlink.bandwidth", "400GB/s"),
        ("hardware.chip.hbm.capacity", "94 GB"),
        ("hardware.network.infiniband.latency", "7us"),
    )
    assert found.hardware is not None
    assert [level.bandwidth for level in found.hardware.network.levels] == [400e9, 50e9]
    assert found.hardware.network.levels[1].latency_s == 7e-6
    assert found.hardware.hbm_bytes == 94 * 10**9


def test_bandwidth_and_latency_replace_a_level() -> None:
    found = job(MODEL + "hardware: h100-sxm", bandwidths=["infiniband=25GB/s"], latencies=["1us"])
    assert found.hardware is not None
    inner, outer = found.hardware.network.levels
    assert (inner.bandwidth, outer.bandwidth) == (450e9, 25e9)
    assert (inner.latency_s, outer.latency_s) == (1e-6, 4e-6)
    # The fixed cost of the switch's own reduction changes in proportion: from 25 us at 1.9 us a step.
    assert inner.in_network is not None
    assert inner.in_network.latency_s == pytest.approx(25e-6 / 1.9, rel=1e-12)
    assert found.sources["hardware.network.infiniband.bandwidth"] == "--bandwidth infiniband=25GB/s"


def test_a_machine_of_one_link() -> None:
    found = job(MODEL, bandwidths=["450GB/s"])
    assert found.hardware is not None
    (level,) = found.hardware.network.levels
    assert (level.name, level.bandwidth, level.latency_s, level.devices) == ("link", 450e9, 0.0, None)
    with pytest.raises(CommcalcError, match="a latency but no bandwidth"):
        job(MODEL, latencies=["1us"])


def test_kv_heads_and_head_size_follow_where_they_are_not_given() -> None:
    found = job("model: {hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4}").model
    assert (found.num_key_value_heads, found.head_dim) == (4, 16)
    odd = job("model: {hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 3, head_dim: 20}").model
    assert odd.head_dim == 20


def test_inference_ignores_recomputation_with_a_warning() -> None:
    found = job(MODEL + "workload: {phase: decode, recompute: full}")
    assert [code for code, _ in found.warnings] == ["recompute-without-backward"]


def test_both_files_may_be_wrong_at_once() -> None:
    with pytest.raises(CommcalcError) as refused:
        job("model: nosuch\nhardware: nosuch\nparallelism: {tp: 0}\n")
    assert [problem.message for problem in refused.value.problems] == [
        "unknown model preset 'nosuch'",
        "unknown hardware preset 'nosuch'",
        "'0' is not above zero",
    ]
