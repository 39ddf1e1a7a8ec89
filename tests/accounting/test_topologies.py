"""A transformer on tori, full meshes and clusters of several levels: the bytes stay, the times follow the links."""

from __future__ import annotations

import math

import pytest

from commcalc.accounting.pricing import PricedLedger
from commcalc.network.cost import Algorithm
from conftest import ask, fields, run_commcalc

MACHINES = [
    "h100-sxm",
    "tpu-v5e",
    "tpu-v5p",
    "mi300x",
    "mi250x",
    "gaudi-3",
    "trn2-ultraserver",
    "ascend-910b",
    "gb200-nvl72",
]
THREE_LEVELS = fields(
    name="cluster",
    network=[
        {"name": "nvlink", "devices": 8, "bandwidth": "450 GB/s", "latency": "1.9 us"},
        {"name": "leaf", "devices": 256, "bandwidth": "50 GB/s", "latency": "4 us"},
        {"name": "spine", "bandwidth": "50 GB/s", "oversubscription": "2:1", "latency": "6 us"},
    ],
)


def priced(hardware: str, tp: int = 8, **more: object) -> PricedLedger:
    return ask("llama-3-70b", hardware, parallelism__tp=tp, **more)


@pytest.mark.parametrize("hardware", MACHINES)
def test_bytes_do_not_depend_on_the_machine(hardware: str) -> None:
    found, plain = priced(hardware), ask("llama-3-70b", parallelism__tp=8)
    assert [entry.row.wire_bytes for entry in found.entries] == [entry.row.wire_bytes for entry in plain.entries]
    for entry in found.entries:
        assert entry.priced is not None
        assert math.isfinite(entry.time_s) and entry.time_s > 0
        assert entry.egress_bytes >= entry.row.wire_bytes or entry.priced.cost.algorithm is Algorithm.IN_NETWORK


def block_us(found: PricedLedger) -> float:
    return 1e6 * (found.totals["block"]["tp"].time_s or 0.0)


def test_a_block_on_a_torus_by_hand() -> None:
    """4 AllReduces of 64 MiB over 8 chips of a v5p: 2*7/8*V over one open axis; twice the axes, half the time."""
    payload = 4096 * 8192 * 2
    line = priced("tpu-v5p", latency=["0s"])
    assert block_us(line) == pytest.approx(4 * 2 * 7 / 8 * payload / 90e9 * 1e6)
    # 2x2x2: three open axes, all links at once.
    cube = priced("tpu-v5p", latency=["0s"], hardware__network__ici__shape="2x2x2")
    assert block_us(cube) == pytest.approx(4 * 2 * 7 / 8 * payload / (3 * 90e9) * 1e6)
    # 4x4x4: an axis of 4 that closes and half of another: 180 + 90 GB/s.
    part = priced("tpu-v5p", latency=["0s"], hardware__network__ici__shape="4x4x4")
    assert block_us(part) == pytest.approx(4 * 2 * 7 / 8 * payload / 270e9 * 1e6)
    assert {entry.priced.cost.algorithm for entry in part.entries if entry.priced} == {Algorithm.TORUS}


def test_a_block_on_a_full_mesh_by_hand() -> None:
    """Fewer devices have fewer links: V/4 over 3 links of 64 GB/s, not over 448 GB/s."""
    payload = 4096 * 8192 * 2
    assert block_us(priced("mi300x", 8, links__algorithm="two-shot")) == pytest.approx(4 * 2 * payload / 8 / 64e9 * 1e6)
    assert block_us(priced("mi300x", 4)) == pytest.approx(4 * 2 * payload / 4 / 64e9 * 1e6)
    assert block_us(priced("mi300x", 2)) == pytest.approx(4 * 2 * payload / 2 / 64e9 * 1e6)


def test_three_levels() -> None:
    """tp 16 of 2 nodes, in the leaf; its rows have a phase for each level."""
    found = ask("gpt3-175b", THREE_LEVELS, parallelism__tp=16)
    (entry,) = [entry for entry in found.entries if entry.row.op == "out_proj" and entry.row.direction == "forward"]
    assert entry.priced is not None
    assert [phase.level for phase in entry.priced.phases] == ["nvlink", "leaf", "nvlink"]
    spread = ask("gpt3-175b", THREE_LEVELS, parallelism__tp=8, parallelism__dp=64, parallelism__order="dp-tp-cp-ep-pp")
    where = {entry.priced.level for entry in spread.entries if entry.priced and entry.row.group == "tp"}
    assert where == {"spine"}  # 8 ranks, 64 apart: two nodes' worth of leaves each


def test_the_slice_is_a_value_like_any_other() -> None:
    args = ["ledger", "--hardware", "tpu-v5e", "--tp", "8", "--json", "--set"]
    shown = run_commcalc(*args, "hardware.network.ici.shape=2x4").json
    level = shown["inputs"]["hardware"]["network"][0]
    assert (level["shape"], level["wraps"], level["devices"]) == ([2, 4], [False, False], 8)
    refused = run_commcalc(*args, "hardware.network.ici.shape=3x5")
    assert (refused.status, "there is no slice 3x5" in refused.out) == (2, True)


def test_runner_up_and_choice_are_in_the_document() -> None:
    row = run_commcalc("ledger", "--hardware", "h20", "--tp", "8", "--json").json["rows"][0]
    assert (row["algorithm"], row["runner_up"]["algorithm"]) == ("in-network", "ring")
    assert row["time_s"] <= row["runner_up"]["time_s"]


def test_a_degree_off_the_axes_has_no_answer() -> None:
    model = "{num_attention_heads: 6, hidden_size: 384, num_hidden_layers: 1, intermediate_size: 96}"
    ran = run_commcalc("ledger", "--model", model, "--tp", "6", "--dp", "4", "--hardware", "tpu-v5e")
    assert ran.status == 3
    assert "error: a group of 6 ranks does not lie evenly along the axes of ici (torus 16x16)" in ran.err


def test_the_textbook_takes_the_larger_term() -> None:
    found = priced("tpu-v5p", links__convention="textbook")
    for entry in found.entries:
        assert entry.priced is not None
        cost = entry.priced.cost
        assert entry.time_s == max(cost.latency_s, cost.bandwidth_s)
    row = run_commcalc("ledger", "--hardware", "tpu-v5p", "--convention", "textbook", "--json").json["rows"][0]
    assert row["time_s"] == row["latency_s"] + row["ramp_s"] + row["bandwidth_s"]


def test_explain_says_how_devices_are_joined() -> None:
    out = run_commcalc("ledger", "--hardware", "tpu-v5e", "--tp", "8", "--explain").out
    assert "ici: torus 16x16 of 256 devices, 45 GB/s one way per link, ends joined, 1 us a hop" in out
    out = run_commcalc("ledger", "--hardware", "mi250x", "--tp", "8", "--explain").out
    assert "slingshot: switch of any number of devices, 25 GB/s one way per device, of which one has 12.5 GB/s" in out


def test_a_reshard_uses_the_axes_of_a_torus_that_are_free() -> None:
    """How To Scale Your Model, part 3, question 2 (golden TOR-08): slicing over idle axes first, a gather over X alone
    becomes one over X and Z: 11.65 us for 23.3, and 31.07 us over three axes."""
    args = ["--mesh", "X=4,Y=4,Z=4", "--dim", "I=1024,J=4096", "--hardware", "tpu-v4", "--convention", "textbook",
            "--set", "hardware.network.ici.shape=4x4x4", "--json"]  # fmt: skip
    one = run_commcalc("reshard", "A[I_X, J_Y] -> A[I, J_Y]", *args).json
    assert one["comm_s"] * 1e6 == pytest.approx(11.650844444444445)
    assert one["steps"][0]["axes"] == ["X", "Z"]
    both = run_commcalc("reshard", "A[I_X, J_Y] -> A[I, J]", *args).json
    last = both["steps"][-1]
    assert (last["collective"], last["group_size"]) == ("all_gather", 64)
    assert last["time_s"] * 1e6 == pytest.approx(31.068918518518515)


def test_a_product_on_a_full_mesh_has_the_links_of_its_group() -> None:
    """MI300X: an AllReduce of 64 MiB over 8 takes 2/8 of it over one link of 64 GB/s, over 2 half of it twice."""
    for n, times in ((8, 2 / 8), (2, 1.0)):
        found = run_commcalc(
            "matmul", "A[I, J_X] @ B[J_X, K] -> C[I, K]", "--mesh", f"X={n}", "--dim", "I=4096,J=8192,K=8192",
            "--hardware", "mi300x", "--algorithm", "two-shot", "--json",
        ).json  # fmt: skip
        plan = next(one for one in found["strategies"] if one["name"] == "multiply-then-all-reduce")
        assert plan["comm_s"] == pytest.approx(times * 2**26 / 64e9)
