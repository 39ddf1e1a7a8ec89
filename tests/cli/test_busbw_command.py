"""``commcalc busbw``: any one of time, algbw and busbw gives the others."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.network.busbw import KINDS, bandwidths, formula, kind_named
from conftest import Inside, run_commcalc

GIB = 2**30


def asked(*args: str) -> dict[str, Any]:
    ran = run_commcalc("busbw", *args, "--json")
    assert ran.status == 0, ran.err or ran.out
    document: dict[str, Any] = ran.json
    return document


def test_the_fields_of_the_interface() -> None:
    found = asked("all_reduce", "--group-size", "8", "--bytes", "1GiB", "--time", "5.07ms")
    assert next(iter(found)) == "schema"
    assert found["schema"] == "commcalc/busbw/1"
    assert found["factor"] == 1.75
    assert found["algbw_bytes_per_s"] == pytest.approx(GIB / 5.07e-3)
    assert found["busbw_bytes_per_s"] == pytest.approx(1.75 * GIB / 5.07e-3)
    assert (found["time_s"], found["share_of_link"]) == (5.07e-3, None)


# nccl-tests doc/PERFORMANCE.md (golden NCC-01), at n = 8.
FACTORS = {"all_reduce": 1.75, "reduce_scatter": 0.875, "all_gather": 0.875, "all_to_all": 0.875, "broadcast": 1,
           "reduce": 1, "send_recv": 1, "permute": 1, "gather": 0.875, "scatter": 0.875}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_factors_of_nccl_tests(kind: str) -> None:
    found = bandwidths(kind, 8, algbw=1e9)
    assert found.busbw / found.algbw == FACTORS[kind]
    assert formula(kind) == {1.75: "2(n-1)/n", 0.875: "(n-1)/n", 1: "1"}[FACTORS[kind]]


# stas00/ml-engineering network/benchmarks, 4 nodes of 8 (golden NCC-03): algbw and the busbw printed beside it, GB/s.
@pytest.mark.parametrize(("algbw", "busbw"), [(48.48, 93.93), (48.59, 94.14312500000001), (47.32, 91.6825)])
def test_a_printed_table(algbw: float, busbw: float) -> None:
    assert bandwidths("all_reduce", 32, algbw=algbw).busbw == pytest.approx(busbw, rel=1e-9)


# Best possible times at 370.8 GB/s a rank (golden NCC-05) and NCCL's ring at 360 GB/s (NCC-10), 8 ranks.
@pytest.mark.parametrize(
    ("kind", "microseconds"),
    [("all_reduce", 5067.551758360301), ("reduce_scatter", 2533.7758791801507), ("broadcast", 2895.7438619201725)],
)
def test_best_possible_times(kind: str, microseconds: float) -> None:
    found = bandwidths(kind, 8, payload_bytes=GIB, busbw=370.8e9)
    assert found.time_s is not None
    assert found.time_s * 1e6 == pytest.approx(microseconds, rel=1e-9)


def test_a_measured_bus_bandwidth() -> None:
    """4 GiB over 4 nodes of 8 B200 at 377.34 GB/s of busbw: 22.053 ms (stas00/ml-engineering network/README.md)."""
    found = bandwidths("all_reduce", 32, payload_bytes=4 * GIB, busbw=377.34e9)
    assert found.time_s is not None
    assert found.time_s * 1e3 == pytest.approx(22.053, abs=5e-4)


def test_nccl_turns_bus_into_algorithm_bandwidth() -> None:
    found = bandwidths("all_reduce", 8, payload_bytes=67108864, busbw=360e9)
    assert found.algbw / 1e9 == pytest.approx(205.71428571428572, rel=1e-9)
    assert found.time_s is not None
    assert 56 + found.time_s * 1e6 == pytest.approx(382.22364444444446, rel=1e-9)


# NVIDIA/nccl issue 1455: 4 to 8 H100 with reduction in the switch, W = 308.6 GB/s: busbw 2W(n-1)/(n+1).
@pytest.mark.parametrize(("n", "busbw"), [(4, 370.3), (5, 411.5), (6, 440.9), (7, 462.9), (8, 480.0)])
def test_the_law_of_in_network_reduction(n: int, busbw: float) -> None:
    found = bandwidths("all_reduce", n, busbw=busbw * 1e9, in_network=True)
    assert found.wire / 1e9 == pytest.approx(308.6, abs=0.1)
    assert 2 * 308.6 * (n - 1) / (n + 1) == pytest.approx(busbw, abs=0.1)


def test_busbw_above_the_link_is_right_in_network_and_says_so() -> None:
    args = ["all_reduce", "--group-size", "8", "--busbw", "475GB/s", "--link", "450GB/s"]
    found = asked(*args, "--in-network")
    assert found["wire_bytes_per_s"] / 1e9 == pytest.approx(305.36, abs=0.01)
    assert found["share_of_link"] == pytest.approx(305.357 / 450, abs=1e-5)
    assert any("busbw 475 GB/s above the link's 450 GB/s is right" in note for note in found["notes"])
    assert found["warnings"] == []
    plain = run_commcalc("busbw", *args)
    assert plain.status == 0
    assert "475 GB/s on the wire is above the link's one-way 450 GB/s" in plain.err
    assert "does the switch reduce (--in-network)?" in plain.err


def test_bits_and_both_ways_are_told_apart() -> None:
    bits = asked("all_reduce", "--group-size", "16", "--busbw", "161Gb/s", "--link", "400Gb/s")
    assert (bits["busbw_bytes_per_s"], bits["link_bytes_per_s"]) == (161e9 / 8, 50e9)
    both = asked("all_reduce", "--group-size", "8", "--busbw", "230GB/s", "--link", "600GB/s", "--both-ways")
    assert (both["link_bytes_per_s"], both["share_of_link"]) == (300e9, pytest.approx(230 / 300))
    assert "the link rate counts both directions: one way it is 300 GB/s" in both["notes"]
    out = run_commcalc("busbw", "broadcast", "--group-size", "8", "--bytes", "50MiB", "--time", "10.82ms").out
    assert "38.7644 Gb/s" in out
    decimal = run_commcalc("busbw", "broadcast", "--group-size", "8", "--bytes", "50MB", "--time", "10.82ms").out
    assert "36.9686 Gb/s" in decimal


def test_the_link_of_a_machine_is_what_the_group_uses() -> None:
    def link(n: int, machine: str) -> float:
        rate: float = asked("all_gather", "--group-size", str(n), "--busbw", "1GB/s", "--hardware", machine)[
            "link_bytes_per_s"
        ]
        return rate

    assert [link(n, "h100") for n in (8, 16, 32)] == [450e9, 400e9, 400e9]  # over nodes: all 8 ports of one together
    assert [link(n, "mi300x") for n in (2, 4, 8)] == pytest.approx([64e9, 192e9, 448e9])
    assert [link(n, "tpu-v5e") for n in (8, 16, 256)] == [45e9, 90e9, 180e9]


def test_every_format() -> None:
    args = ["busbw", "all_reduce", "--group-size", "8", "--bytes", "1GiB", "--time", "5.07ms", "--format"]
    assert json.loads(run_commcalc(*args, "jsonl").out)["factor"] == 1.75
    (row,) = csv.DictReader(io.StringIO(run_commcalc(*args, "csv").out))
    assert row["factor"] == "1.75"
    assert "| factor | 1.75 | 2(n-1)/n |" in run_commcalc(*args, "markdown").out
    assert "busbw = algbw * factor" in run_commcalc(*args, "table", "--explain").out


def test_a_group_of_one_and_a_payload_of_nothing() -> None:
    alone = asked("all_reduce", "--group-size", "1", "--bytes", "1MiB", "--time", "1us")
    assert (alone["factor"], alone["busbw_bytes_per_s"]) == (0, 0)
    assert "a group of one device sends nothing: there is no communication" in alone["notes"]
    nothing = asked("all_reduce", "--group-size", "8", "--bytes", "0", "--time", "1us")
    assert nothing["algbw_bytes_per_s"] == 0
    assert any("payload of 0 bytes" in note for note in nothing["notes"])


EIGHT = ["all_reduce", "--group-size", "8"]
WRONG = {
    "a bare busbw": ([*EIGHT, "--busbw", "450"], "error: '450' has no unit\n  at --busbw 450"),
    "a bare time": ([*EIGHT, "--bytes", "1GiB", "--time", "5.07"], "error: '5.07' has no unit\n  at --time 5.07"),
    "nothing given": (EIGHT, "error: none of time, algbw, busbw is given"),
    "two given": ([*EIGHT, "--algbw", "1GB/s", "--busbw", "1GB/s"], "error: algbw and busbw are given"),
    "a time alone": ([*EIGHT, "--time", "1us"], "error: a time without the payload"),
    "no time at all": ([*EIGHT, "--bytes", "1GiB", "--time", "0s"], "error: '0s' is not above zero"),
    "no group": (["all_reduce", "--busbw", "1GB/s"], "error: no group size"),
    "an unknown kind": (["allredcue", "--group-size", "8", "--busbw", "1GB/s"], "hint: did you mean all_reduce or reduce?"),
    "a gather in the switch": (["all_gather", "--group-size", "8", "--busbw", "1GB/s", "--in-network"],
                               "error: a switch reduces all_reduce, not all_gather"),
    "busbw of one device": (["all_reduce", "--group-size", "1", "--busbw", "1GB/s"], "error: a group of one device sends nothing"),
    "both ways of nothing": ([*EIGHT, "--busbw", "1GB/s", "--both-ways"], "error: --both-ways says what --link counts"),
    "two links": ([*EIGHT, "--busbw", "1GB/s", "--link", "1GB/s", "--hardware", "h100"], "error: --link and --hardware both"),
    "a negative rate": ([*EIGHT, "--busbw", "-1GB/s"], "error: -1 is negative"),
    "infinite": ([*EIGHT, "--busbw", "infGB/s"], "error: 'infGB/s' is no rate"),
    "1e400": ([*EIGHT, "--algbw", "1e400GB/s"], "error: 1e400 is too large"),
    "an unknown unit": ([*EIGHT, "--busbw", "1 GB"], "error: unknown unit 'GB' in '1 GB'"),
    "a huge group": (["all_reduce", "--group-size", "99999999999999999999", "--busbw", "1GB/s"], "is too large"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_questions(name: str, inside: Inside) -> None:
    args, text = WRONG[name]
    ran = inside("busbw", *args)
    assert (ran.status, ran.out) == (2, "")
    assert text in ran.err


def test_an_error_is_a_document_too() -> None:
    ran = run_commcalc("busbw", "all_reduce", "--busbw", "450", "--link", "x", "--json")
    assert (ran.status, len(ran.json["error"]["violations"])) == (2, 3)


@given(st.sampled_from(KINDS), st.integers(2, 4096), st.integers(1, 10**9), st.floats(1e-9, 1e6), st.booleans())
def test_each_gives_the_others(kind: str, n: int, payload: int, time: float, in_network: bool) -> None:
    summed = in_network and kind == "all_reduce"
    first = bandwidths(kind, n, payload_bytes=payload, time_s=time, in_network=summed)
    for one in ({"algbw": first.algbw}, {"busbw": first.busbw}):
        again = bandwidths(kind, n, payload_bytes=payload, in_network=summed, **one)
        for name in ("time_s", "algbw", "busbw", "wire"):
            assert getattr(again, name) == pytest.approx(getattr(first, name), rel=1e-12)


def test_arrays_give_what_numbers_give() -> None:
    sizes, times = np.array([2, 8, 72]), np.array([1e-3, 2e-3, 5e-3])
    for kind in KINDS:
        many = bandwidths(kind, sizes, payload_bytes=GIB, time_s=times)
        each = [bandwidths(kind, int(n), payload_bytes=GIB, time_s=float(t)) for n, t in zip(sizes, times, strict=True)]
        assert np.allclose(many.busbw, [one.busbw for one in each], rtol=1e-15)


@pytest.mark.parametrize("text", ["AllReduce", "all-reduce", "ALL_REDUCE", "allreduce", " all reduce "])
def test_spellings(text: str) -> None:
    assert kind_named(text) == "all_reduce"


def test_faster_than_any_link_is_refused() -> None:
    ran = run_commcalc("busbw", "all_reduce", "--group-size", "8", "--bytes", "1GiB", "--time", "1e-300s", "--json")
    assert ran.status == 2
    assert "is faster than 10^18 B/s" in ran.json["error"]["message"]


def test_formulas_are_true_where_there_is_no_time_or_no_communication() -> None:
    """Rates alone: algbw is busbw over the factor; no payload or one device: nothing is divided by nothing."""
    rates = run_commcalc("busbw", "all_reduce", "--group-size", "8", "--busbw", "370GB/s", "--explain").out
    assert "algbw = busbw / factor = 370 GB/s / 1.75 = 211.429 GB/s" in rates
    empty = run_commcalc(
        "busbw", "all_reduce", "--group-size", "8", "--bytes", "0B", "--busbw", "5GB/s", "--explain"
    ).out
    assert "algbw = payload" not in empty
    one = run_commcalc(
        "busbw", "all_reduce", "--group-size", "1", "--bytes", "1GiB", "--time", "5ms", "--in-network", "--explain"
    ).out
    assert "on the wire = algbw" not in one


def test_the_link_over_three_levels_counts_the_ports_of_each(tmp_path: Path) -> None:
    """A socket of 4 has one port of 88 GB/s for all: 22 a member, 4 members at once; the outer one 8 * 50. The least
    is the 32 GB/s inside."""
    path = tmp_path / "box.yaml"
    path.write_text(
        "network:\n- {name: pcie, devices: 4, bandwidth: 32 GB/s}\n"
        "- {name: sockets, devices: 8, bandwidth: 88 GB/s, shared_by: 4}\n- {name: ib, bandwidth: 50 GB/s}\n"
    )
    found = asked("all_reduce", "--group-size", "32", "--busbw", "16GB/s", "--hardware", str(path))
    assert (found["link_bytes_per_s"], found["share_of_link"], found["warnings"]) == (32e9, 0.5, [])


def test_a_switch_that_keeps_the_sum_takes_the_payload_alone(tmp_path: Path) -> None:
    """SHARP: S out of each device, so 50 GB/s of algbw fill a port of 50 GB/s (NVLS would need 9/8 of it)."""
    path = tmp_path / "sharp.yaml"
    path.write_text(
        "network:\n- name: ib\n  bandwidth: 50 GB/s\n  in_network_reduction: {own_copy: false, latency: 10 us}\n"
    )
    args = (
        "all_reduce",
        "--group-size",
        "8",
        "--algbw",
        "50GB/s",
        "--bytes",
        "1GB",
        "--in-network",
        "--hardware",
        str(path),
    )
    found = asked(*args)
    assert (found["wire_bytes_per_s"], found["egress_bytes"], found["share_of_link"]) == (50e9, 10**9, 1.0)
    assert found["warnings"] == []
    assert any("algbw * n/n = 50 GB/s * 8/8 = 50 GB/s" in line for line in found["formulas"])


def test_an_exchange_on_a_ring_is_bound_by_what_is_forwarded() -> None:
    """16 on a two-way ring of 45 GB/s links: S n/8 over each link, so busbw is at most 15/16 / 2 * 45 GB/s."""
    found = asked("all_to_all", "--group-size", "16", "--busbw", "70GB/s", "--hardware", "v5e")
    assert found["link_bytes_per_s"] == pytest.approx(15 / 16 / 2 * 45e9)
    assert found["share_of_link"] > 3
