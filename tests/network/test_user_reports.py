"""Questions about links and benchmarks asked in public (tests/data/user_reports_links.yaml), each answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from commcalc.algebra.collective import Convention, Kind
from commcalc.network.busbw import Bandwidths, bandwidths
from commcalc.network.cost import Algorithm, Cost, cost_on
from commcalc.network.hierarchy import price
from commcalc.network.link import InNetworkReduction, Level, Network
from commcalc.network.placement import place
from commcalc.units import Dtype, parse_rate
from conftest import DATA, run_commcalc

ENTRIES = {entry["id"]: entry for entry in yaml.safe_load((DATA / "user_reports_links.yaml").read_text())["entries"]}
GIB, GB = 2**30, 10**9
AR, AG = Kind.ALL_REDUCE, Kind.ALL_GATHER
ANSWERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def answers(ident: str) -> Callable[[Callable[[dict[str, Any]], dict[str, Any]]], object]:
    """The function gives, by name, all that the entry expects."""

    def keep(function: Callable[[dict[str, Any]], dict[str, Any]]) -> object:
        ANSWERS[ident] = function
        return function

    return keep


def bench(kind: str, n: int, **given: Any) -> Bandwidths:
    return bandwidths(kind, n, **given)


def ring(kind: Kind, payload: int, n: int, gb_per_s: float, latency_s: float = 0.0) -> Cost:
    found = cost_on(Algorithm.RING, kind, payload, n, Level("link", gb_per_s * 1e9, latency_s=latency_s))
    assert found is not None
    return found


def summed(payload: int, n: int, gb_per_s: float) -> Bandwidths:
    """In-network AllReduce at a wire rate, as a benchmark would print it."""
    cost = cost_on(
        Algorithm.IN_NETWORK, AR, payload, n, Level("nvlink", gb_per_s * 1e9, in_network=InNetworkReduction())
    )
    assert cost is not None
    return bandwidths("all_reduce", n, payload_bytes=payload, time_s=cost.time_s, in_network=True)


def nodes(per_node: int, link: float, nic: float, **nic_level: Any) -> Network:
    inner = Level("nvlink", link * 1e9, devices=per_node)
    return Network((inner, Level("nic", nic * 1e9, **nic_level)))


@answers("UR-019")
def upside_down(given: dict[str, Any]) -> dict[str, Any]:
    return {"algbw_gbs": bench("all_reduce", given["n"], busbw=given["busbw_gbs"] * 1e9).algbw / 1e9}


@answers("UR-020")
def is_96_good(given: dict[str, Any]) -> dict[str, Any]:
    found = bench("all_reduce", 24, payload_bytes=given["bytes"], time_s=given["time_us"] * 1e-6, link=96e9)
    assert found.share_of_link is not None
    return {
        "algbw_gbs": found.algbw / 1e9,
        "busbw_gbs": found.busbw / 1e9,
        "percent_of_target": found.share_of_link * 100,
    }


@answers("UR-021")
def marketing(given: dict[str, Any]) -> dict[str, Any]:
    """480 GB/s is what was measured with reduction in the switch: the base of the share."""
    found = bench("all_reduce", 8, algbw=given["algbw"] * 1e9, link=480e9)
    assert found.share_of_link is not None
    best = bench("all_reduce", 8, busbw=480e9)
    return {"busbw_gbs": found.busbw / 1e9, "expected_busbw": best.busbw / 1e9, "expected_algbw": best.algbw / 1e9,
            "percent": found.share_of_link * 100}  # fmt: skip


@answers("UR-022")
def the_law_of_480(given: dict[str, Any]) -> dict[str, Any]:
    h100, h800 = summed(8 * GIB, 8, 308.6), summed(8 * GIB, 8, 308.6 * 200 / 450)
    return {"algbw_gbs": h100.algbw / 1e9, "busbw_gbs": h100.busbw / 1e9,
            "h800": {"link_gbs": h800.wire / 1e9, "busbw_gbs": h800.busbw / 1e9}}  # fmt: skip


@answers("UR-023")
def it_rises_with_n(given: dict[str, Any]) -> dict[str, Any]:
    return {"busbw_gbs": {str(n): summed(4 * GIB, n, 308.6).busbw / 1e9 for n in (4, 5, 6, 7, 8)}}


@answers("UR-024")
def above_the_link(given: dict[str, Any]) -> dict[str, Any]:
    args = [
        "busbw",
        "all_reduce",
        "--group-size",
        "8",
        "--busbw",
        "475GB/s",
        "--in-network",
        "--hardware",
        "h200",
        "--json",
    ]
    found = run_commcalc(*args).json
    assert "with in-network reduction busbw is no wire rate" in found["notes"]
    return {"wire_gbs": found["wire_bytes_per_s"] / 1e9, "link_gbs": found["link_bytes_per_s"] / 1e9,
            "warn": "busbw is not a wire rate with in-switch reduction"}  # fmt: skip


@answers("UR-025")
def two_factors(given: dict[str, Any]) -> dict[str, Any]:
    args = [
        "collective",
        "all_reduce",
        "--bytes",
        "1GB",
        "--group-size",
        "8",
        "--hardware",
        "h100",
        "--algorithm",
        "in-network",
    ]
    found = run_commcalc(*args, "--json").json
    best = next(one for one in found["algorithms"] if one["name"] == found["best"])
    return {"wire_bytes_per_gpu": best["egress_bytes"], "ring_wire_bytes_per_gpu": found["wire_bytes"]}


@answers("UR-026")
def a_gate_on_busbw(given: dict[str, Any]) -> dict[str, Any]:
    share = bench("all_reduce", 8, busbw=480e9, in_network=True, link=450e9).share_of_link
    assert share is not None
    return {"utilisation_pct": share * 100}


@answers("UR-027")
def advertised_600(given: dict[str, Any]) -> dict[str, Any]:
    """The preset has the line rate one way; 230 is what NCCL reaches, given as the bandwidth."""
    args = ["collective", "all_reduce", "--bytes", "8GiB", "--group-size", "8", "--hardware", "a100", "--json"]
    line = run_commcalc(*args).json["hardware"]["network"][0]["bandwidth_bytes_per_s"]
    reached = run_commcalc(*args, "--bandwidth", "230GB/s").json["algorithms"][0]["busbw_bytes_per_s"]
    return {"busbw_gbs": reached / 1e9, "line_rate_per_dir": line / 1e9}


@answers("UR-028")
def a_rack_of_72(given: dict[str, Any]) -> dict[str, Any]:
    return {"busbw_gbs": summed(8 * GIB, 72, 463).busbw / 1e9}


@answers("UR-029")
def share_of_what(given: dict[str, Any]) -> dict[str, Any]:
    share = bench("all_reduce", given["n"], busbw=given["busbw"] * 1e9, link=450e9).share_of_link
    assert share is not None
    return {"utilisation_pct": share * 100}


@answers("UR-030")
def half_and_then_four_fifths(given: dict[str, Any]) -> dict[str, Any]:
    args = ["collective", "all_gather", "--bytes", "1GiB", "--group-size", "8", "--hardware", "h800", "--json"]
    level = run_commcalc(*args).json["hardware"]["network"][0]["bandwidth_bytes_per_s"]
    found = run_commcalc(*args, "--bandwidth", "160GB/s").json
    rate = found["hardware"]["network"][0]["bandwidth_bytes_per_s"]
    return {"link_gbs_per_dir": level / 1e9, "eff_gbs": rate / 1e9, "time_ms": found["algorithms"][0]["time_s"] * 1e3}


@answers("UR-031")
def above_the_network(given: dict[str, Any]) -> dict[str, Any]:
    """The tree sends S out of a node; read as Gb/s the same figure is an eighth."""
    algbw = bench("all_reduce", 16, busbw=given["busbw"] * 1e9).algbw
    network = nodes(8, 450, 12.5)
    tree = price(AR, GIB, place(16, 1, network), network, Algorithm.DOUBLE_BINARY_TREE).cost
    assert tree.bandwidth == 100e9  # 8 ports of 12.5 GB/s
    assert parse_rate("161Gbps") * 8 == parse_rate("161GB/s")
    return {"algbw_gbs": algbw / 1e9, "inter_node_gbs": algbw / 1e9, "reject_unit": "Gbps",
            "nic_utilisation_pct": 100 * algbw / tree.bandwidth}  # fmt: skip


@answers("UR-032")
def the_faster_run(given: dict[str, Any]) -> dict[str, Any]:
    rings = bench("all_reduce", 16, payload_bytes=GIB, time_s=0.268)
    tree = bench("all_reduce", 16, payload_bytes=GIB, time_s=0.134)
    return {"busbw_gbit": rings.busbw * 8 / 1e9,
            "tree": {"algbw_gbit": tree.algbw * 8 / 1e9, "busbw_gbit": tree.busbw * 8 / 1e9}}  # fmt: skip


@answers("UR-033")
def tree_on_two_nodes(given: dict[str, Any]) -> dict[str, Any]:
    network = nodes(8, 450, 12 / 8)
    at = place(16, 1, network)
    tree = price(AR, GB, at, network, Algorithm.DOUBLE_BINARY_TREE).cost
    flat = price(AR, GB, at, network, Algorithm.RING).cost
    return {"inter_node_bytes": tree.bandwidth_s * 12e9, "time_ms": tree.time_s * 1e3,
            "ring": {"inter_node_bytes": flat.bandwidth_s * 12e9, "time_ms": flat.time_s * 1e3}}  # fmt: skip


@answers("UR-036")
def which_size(given: dict[str, Any]) -> dict[str, Any]:
    total, each = ring(AG, GIB, 8, 1), ring(AG, 8 * GIB, 8, 1)
    return {"wire_bytes_per_gpu": total.egress_bytes, "if_size_is_per_rank": each.egress_bytes}


@answers("UR-037")
def slicing(given: dict[str, Any]) -> dict[str, Any]:
    return {"time_ms": ring(AR, GIB, 8, 230).time_s * 1e3}


@answers("UR-040")
def bridged_pairs(given: dict[str, Any]) -> dict[str, Any]:
    """Pairs at 208 GB/s, 20 between them: three cards lie in unequal parts, one ring at its slowest edge."""
    network = Network((Level("bridge", 208e9, devices=2), Level("pcie", 20e9, devices=8)))
    found = price(AR, GIB, place(3, 1, network, 3), network).cost
    return {"busbw_gbs": bench("all_reduce", 3, payload_bytes=GIB, time_s=found.time_s).busbw / 1e9,
            "time_ms": found.time_s * 1e3}  # fmt: skip


@answers("UR-042")
def a_row_of_a_table(given: dict[str, Any]) -> dict[str, Any]:
    found = bench("all_reduce", 8, payload_bytes=33554432, time_s=195.40e-6)
    return {"algbw_gbs": found.algbw / 1e9, "busbw_gbs": found.busbw / 1e9}


@answers("UR-043")
def share_of_a_mesh(given: dict[str, Any]) -> dict[str, Any]:
    found = bench("all_reduce", 8, payload_bytes=given["bytes"], time_s=24.2e-6, link=537.6e9)
    assert found.share_of_link is not None
    return {"busbw_gbs": found.busbw / 1e9, "utilisation_pct": found.share_of_link * 100}


@answers("UR-062")
def ports_decide(given: dict[str, Any]) -> dict[str, Any]:
    def rate(**level: Any) -> float:
        network = nodes(8, 450, 50, **level)
        found = price(AR, GIB, place(16, 1, network), network, Algorithm.RING).cost
        assert found.bandwidth is not None
        return found.bandwidth / 1e9

    eight, one = rate(), rate(shared_by=8)
    return {"bottleneck": "nic" if eight < 450 else "nvlink", "effective_gbs": eight, "penalty": 450 / eight,
            "with_1_nic": {"effective_gbs": one, "penalty": 450 / one}}  # fmt: skip


@answers("UR-063")
def one_rank_a_node(given: dict[str, Any]) -> dict[str, Any]:
    network = nodes(8, 450, 48)
    at = place(8, 8, network)
    assert at.parts == ((1, 8),)
    times = [price(kind, 4 * 2**20, at, network).cost.time_s for kind in (Kind.REDUCE_SCATTER, AR)]
    return {"ratio_to_all_reduce": times[0] / times[1]}


@answers("UR-064")
def both_directions(given: dict[str, Any]) -> dict[str, Any]:
    return {"time_ms": ring(AR, GIB, 8, 450 * 0.8222).time_s * 1e3, "naive_ms": ring(AR, GIB, 8, 900).time_s * 1e3}


@answers("UR-065")
def inverse_bandwidth(given: dict[str, Any]) -> dict[str, Any]:
    args = ["busbw", "broadcast", "--group-size", "2", "--busbw", "1GB/s", "--link", "900GB/s", "--json"]
    return {"ps_per_byte": run_commcalc(*args).json["link_ps_per_byte"]}


@answers("UR-066")
def gradients(given: dict[str, Any]) -> dict[str, Any]:
    return {"time_ms": ring(AR, 16 * GB, 8, 230).time_s * 1e3, "line_rate_ms": ring(AR, 16 * GB, 8, 300).time_s * 1e3}


@answers("UR-072")
def many_small_ones(given: dict[str, Any]) -> dict[str, Any]:
    """The time of one call is latency alone: 59 or 23 us over the 6 steps of a ring of 4."""

    def of(call_us: float) -> float:
        return 100 * float(ring(AR, 0, 4, 1, call_us * 1e-6 / 6).time_s) * 1e3

    return {"total_ms": of(59), "improved_ms": of(23)}


@answers("UR-091")
def gather_of_parameters(given: dict[str, Any]) -> dict[str, Any]:
    found = ring(AG, 10 * GB, 8, 230)
    return {"time_ms": found.time_s * 1e3, "wire_bytes_per_gpu": found.egress_bytes}


@answers("UR-116")
def more_takes_longer(given: dict[str, Any]) -> dict[str, Any]:
    inner = Level("nvlink", 450e9, devices=8, latency_s=3e-6)
    network = Network((inner, Level("nic", 48e9, latency_s=20e-6)))
    one, two = (price(AG, size, place(64, 1, network), network).cost.time_s for size in (10**6, 2 * 10**6))
    assert two > one
    return {"property": "time(2MB) > time(1MB)"}


@answers("UR-117")
def one_message_wins(given: dict[str, Any]) -> dict[str, Any]:
    each, single = (ring(AR, size, 8, 300, 6.6e-6 / 14).time_s * 1e6 for size in (64 * 1024, 256 * 1024))
    return {"total_us": 4 * each, "single_256KiB_us": single}


@answers("UR-118")
def a_measured_bandwidth(given: dict[str, Any]) -> dict[str, Any]:
    return {"time_us": ring(AG, given["bytes"], 2, 30.93).time_s * 1e6}


@answers("UR-119")
def factors_of_a_file(given: dict[str, Any]) -> dict[str, Any]:
    """A factor of 1.5 overstates a gather by half."""
    exact = ring(AG, GIB, 8, 300 * 0.65).time_s * 1e3
    return {"time_ms": exact, "calculon_factor_1_5": 1.5 * exact}


@answers("UR-124")
def direct_is_no_faster_on_a_switch(given: dict[str, Any]) -> dict[str, Any]:
    level = Level("switch", 50e9)
    direct = cost_on(Algorithm.TWO_SHOT, AR, 10**8, 8, level, Convention.EXACT)
    around = ring(AR, 10**8, 8, 50)
    assert direct is not None
    assert direct.time_s == around.time_s
    return {"time_ms": around.time_s * 1e3}


@answers("UR-125")
def a_formula_has_no_holes(given: dict[str, Any]) -> dict[str, Any]:
    args = [
        "collective",
        "all_reduce",
        "--group-size",
        "8",
        "--elements",
        "28951552",
        "--dtype",
        "bf16",
        "--bandwidth",
        "650GB/s",
    ]
    found = run_commcalc(*args, "--json").json
    tokens = found["payload_bytes"] * 8 // Dtype.BF16.bits / 7168
    return {"payload_bytes": found["payload_bytes"], "tokens_at_7168": int(tokens),
            "time_us": found["algorithms"][0]["time_s"] * 1e6}  # fmt: skip


@answers("UR-128")
def binary_and_decimal(given: dict[str, Any]) -> dict[str, Any]:
    right, wrong = (bench("send_recv", 2, payload_bytes=size, time_s=81.92e-3) for size in (GIB, GB))
    return {"gbit_s": right.algbw * 8 / 1e9, "decimal_reading": wrong.algbw * 8 / 1e9}


@answers("UR-133")
def below_the_floor(given: dict[str, Any]) -> dict[str, Any]:
    found = bench("all_reduce", 8, payload_bytes=28 * 2**20, time_s=397.8e-6)
    return {"algbw_gbs": found.algbw / 1e9, "busbw_gbs": found.busbw / 1e9,
            "message_bytes_64_tokens": 64 * given["hidden"] * Dtype.BF16.bits // 8}  # fmt: skip


@answers("UR-145")
def a_log_in_other_units(given: dict[str, Any]) -> dict[str, Any]:
    right, wrong = (bench("broadcast", 8, payload_bytes=size, time_s=10.82e-3) for size in (50 * 2**20, 50 * 10**6))
    return {"busbw_gbit": right.busbw * 8 / 1e9, "decimal_reading": wrong.busbw * 8 / 1e9}


def agree(got: Any, want: Any, tolerance: float) -> bool:
    """Numbers within the tolerance, whole numbers of bytes exactly, texts alike, all names there."""
    if isinstance(want, dict):
        return got.keys() == want.keys() and all(agree(got[name], want[name], tolerance) for name in want)
    if isinstance(want, int) and want > 10**6:
        return bool(got == want)
    return bool(got == (want if isinstance(want, str) else pytest.approx(want, rel=tolerance)))


@pytest.mark.parametrize("ident", ENTRIES)
def test_report(ident: str) -> None:
    entry = ENTRIES[ident]
    want = {name: value for name, value in entry["expect"].items() if name != "tol_pct"}
    got = ANSWERS[ident](entry["inputs"])
    assert agree(got, want, entry["expect"].get("tol_pct", 1) / 100), (got, want)


def test_every_report_is_answered() -> None:
    assert ANSWERS.keys() == ENTRIES.keys()
    assert len(ENTRIES) == 36
