"""``commcalc collective``: one primitive every way, primitives compared, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from conftest import Inside, run_commcalc

GIB = 2**30


def asked(*args: str) -> dict[str, Any]:
    ran = run_commcalc("collective", *args, "--json")
    assert ran.status == 0, ran.err or ran.out
    document: dict[str, Any] = ran.json
    return document


def way(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(
        one for one in [*document["algorithms"], *document["not_offered"]] if one["name"] == name
    )
    return found


def test_the_fields_of_the_interface() -> None:
    found = asked("all_reduce", "--bytes", "1GiB", "--group-size", "8", "--hardware", "h20-sxm")
    assert next(iter(found)) == "schema"
    assert found["schema"] == "commcalc/collective/1"
    assert (found["collective"], found["payload_bytes"], found["group_size"]) == ("all_reduce", GIB, 8)
    fields = {"name", "steps", "egress_bytes", "time_s", "algbw_bytes_per_s", "busbw_bytes_per_s", "bound", "level"}
    assert all(fields <= set(one) for one in (*found["algorithms"], *found["not_offered"]))
    assert (found["best"], found["runner_up"]) == ("in-network", "ring")
    assert found["wire_bytes"] == way(found, "ring")["egress_bytes"] == 2 * 7 * GIB // 8
    assert way(found, "in-network")["egress_bytes"] == 9 * GIB // 8
    assert found["crossover_payload_bytes"] == way(found, "in-network")["crossover_payload_bytes"]


def test_best_is_the_least_time_of_those_on_offer() -> None:
    for payload in ("1KiB", "1MiB", "1GiB"):
        found = asked("all_reduce", "--bytes", payload, "--group-size", "8", "--hardware", "h100")
        times = [one["time_s"] for one in found["algorithms"]]
        assert times == sorted(times)
        assert found["best"] == found["algorithms"][0]["name"]


def test_latency_and_bandwidth_are_equal_at_the_crossover() -> None:
    at = way(asked("all_gather", "--bytes", "1MiB", "--group-size", "8", "--hardware", "h100"), "ring")
    payload = at["crossover_payload_bytes"]
    there = way(asked("all_gather", "--bytes", str(payload), "--group-size", "8", "--hardware", "h100"), "ring")
    assert there["latency_s"] == pytest.approx(there["bandwidth_s"], rel=1e-6)


@pytest.mark.parametrize(
    ("args", "name", "microseconds"),
    [
        # Closed forms at zero latency; sources are those of tests/network.
        ("all_gather --bytes 64MiB --group-size 16 --hardware tpu-v5e --latency 0s", "ring-two-way", 699.051),
        ("all_gather --bytes 64MiB --group-size 16 --hardware tpu-v5e --convention textbook", "ring-two-way", 745.654),
        ("all_reduce --bytes 64MiB --group-size 16 --hardware tpu-v5e --latency 0s", "ring-two-way", 1398.101),
        ("all_gather --bytes 34000000 --group-size 4 --hardware tpu-v5e --shape 4x4 --latency 0s", "line", 566.667),
        ("all_to_all --bytes 4MiB --group-size 16 --hardware tpu-v5e --latency 0s", "ring-two-way", 186.414),
        ("all_reduce --bytes 1GiB --group-size 8 --hardware h100 --latency 0s", "ring", 4175.663),
        ("all_reduce --bytes 1GiB --group-size 8 --hardware h100 --latency 0s", "in-network", 2684.355),
        ("all_reduce --bytes 1GiB --group-size 8 --bandwidth 450GB/s --in-network --convention textbook",
         "in-network", 2386.093),
        ("all_gather --bytes 1GiB --group-size 8 --hardware h100 --latency 0s", "ring", 2087.831),
        ("all_to_all --bytes 1GiB --group-size 8 --hardware h100 --latency 0s", "pairwise", 2087.831),
        ("all_reduce --bytes 1GiB --group-size 2 --hardware mi300x", "two-shot", 16777.216),
        ("all_reduce --bytes 4GiB --group-size 32 --hardware b200 --latency 0s --latency infiniband=0s",
         "hierarchical", 24457.453),
        ("all_reduce --bytes 4GiB --group-size 32 --hardware b200 --latency 0s --latency infiniband=0s", "ring", 20803.748),
    ],
)  # fmt: skip
def test_published_values(args: str, name: str, microseconds: float) -> None:
    assert way(asked(*args.split()), name)["time_s"] * 1e6 == pytest.approx(microseconds, abs=6e-3)


def test_a_group_over_nodes_shows_both_levels() -> None:
    found = asked("all_reduce", "--bytes", "128MiB", "--group-size", "16", "--hardware", "h20")
    assert [(one["level"], one["members"]) for one in found["placement"]] == [("nvlink", 8), ("infiniband", 2)]
    best = way(found, found["best"])
    assert [(one["level"], one["collective"], one["group_size"]) for one in best["phases"]] == [
        ("nvlink", "reduce_scatter", 8), ("infiniband", "all_reduce", 2), ("nvlink", "all_gather", 8),
    ]  # fmt: skip
    assert best["time_s"] == pytest.approx(sum(one["time_s"] for one in best["phases"]))
    inside = best["phases"][0]["time_s"] + best["phases"][2]["time_s"]
    assert best["time_overlapped_s"] == max(inside, best["phases"][1]["time_s"])
    table = run_commcalc("collective", "all_reduce", "--bytes", "128MiB", "--group-size", "16", "--hardware", "h20")
    assert "nvlink: 8; infiniband: 2" in table.out
    assert "but auto takes only what infiniband offers" in table.out


def test_phases_that_overlap() -> None:
    """4 GiB over 4 nodes of 8 B200: 16.106 ms where inside and between run at once, 24.457 ms one after another."""
    found = asked("all_reduce", "--bytes", "4GiB", "--group-size", "32", "--hardware", "b200", "--latency", "0s",
                  "--latency", "infiniband=0s")  # fmt: skip
    assert way(found, "hierarchical")["time_overlapped_s"] * 1e3 == pytest.approx(16.106, abs=5e-4)
    assert way(found, "hierarchical")["time_s"] * 1e3 == pytest.approx(24.457, abs=5e-4)


def test_a_level_that_lists_the_flat_ring_takes_it_where_it_is_faster() -> None:
    args = ["--bytes", "1GiB", "--group-size", "16", "--hardware", "h100"]
    offer = ["--set", "hardware.network.infiniband.algorithms=ring"]
    listed = asked("all_reduce", *args, *offer)
    assert (listed["best"], [one["name"] for one in listed["algorithms"]]) == ("ring", ["ring"])
    three = asked("all_reduce", *args, *offer[:1], f"{offer[1]},hierarchical, double-binary-tree")
    assert [one["name"] for one in three["not_offered"]] == []
    assert three["best"] == min(three["algorithms"], key=lambda one: one["time_s"])["name"] == "double-binary-tree"
    assert three["runner_up"] == three["algorithms"][1]["name"]
    none = run_commcalc("collective", "all_reduce", *args, *offer[:1], "hardware.network.infiniband.algorithms=rign")
    assert (none.status, "unknown algorithm 'rign'" in none.err) == (2, True)


def test_primitives_are_compared_on_one_array_cheapest_first() -> None:
    found = asked("--bytes", "1MiB", "--group-size", "16", "--hardware", "tpu-v5e", "--convention", "textbook",
                  "--latency", "0s")  # fmt: skip
    assert [one["collective"] for one in found["primitives"]] == [
        "all_to_all", "all_gather", "reduce_scatter", "all_reduce",
    ]  # fmt: skip
    # How To Scale Your Model, part 3 (golden TOR-26), in us.
    want = [2.9127111111111113, 11.650844444444445, 11.650844444444445, 23.30168888888889]
    assert [one["time_s"] * 1e6 for one in found["primitives"]] == pytest.approx(want)
    assert (found["best"], found["collective"]) == ("all_to_all", None)
    assert all(one["reason"] for one in found["primitives"])


@pytest.mark.parametrize(
    ("change", "kind", "payload"),
    [
        ("A[I_X, J] -> A[I, J]", "all_gather", 8192 * 4096 * 2),
        ("A[I_X, J] -> A[I, J_X]", "all_to_all", 8192 * 4096 * 2 // 4),
        ("A[I, J]{U_X} -> A[I, J]", "all_reduce", 8192 * 4096 * 2),
        ("A[I, J_Y]{U_X} -> A[I_X, J_Y]", "reduce_scatter", 8192 * 4096 * 2 // 4),
    ],
)
def test_a_tensor_and_its_change_of_sharding(change: str, kind: str, payload: int) -> None:
    found = asked(change, "--mesh", "X=4,Y=4", "--dim", "I=8192", "--dim", "J=4096", "--hardware", "tpu-v5p",
                  "--shape", "4x4x4")  # fmt: skip
    assert (found["collective"], found["payload_bytes"], found["group_size"]) == (kind, payload, 4)


def test_mesh_axes_lie_on_the_axes_of_the_torus() -> None:
    args = ["all_gather", "--bytes", "8MiB", "--mesh", "X=4,Y=4,Z=4", "--hardware", "tpu-v4", "--shape", "4x4x4",
            "--convention", "textbook"]  # fmt: skip
    for axes, microseconds in (("X", 93.207), ("X,Z", 46.603), ("X,Y,Z", 31.069)):
        found = asked(*args, "--axes", axes)
        assert found["algorithms"][0]["time_s"] * 1e6 == pytest.approx(microseconds, abs=1e-3)
        assert len(found["placement"][0]["axes"]) == len(axes.split(","))


def test_a_named_algorithm_is_the_best_and_wire_bytes_stay() -> None:
    ring = asked("all_reduce", "--bytes", "64MiB", "--group-size", "8", "--hardware", "h100")
    named = asked(
        "all_reduce", "--bytes", "64MiB", "--group-size", "8", "--hardware", "h100", "--algorithm", "rabenseifner"
    )
    assert named["best"] == "rabenseifner"
    assert named["wire_bytes"] == ring["wire_bytes"]
    assert way(named, "rabenseifner")["steps"] == 6


def test_every_kind_on_every_packaged_machine() -> None:
    from commcalc.algebra.collective import Kind
    from commcalc.catalog.hardware import read_hardware
    from commcalc.catalog.presets import load, names
    from commcalc.network.placement import place
    from commcalc.network.primitive import primitive

    for name in names("hardware"):
        network = read_hardware(load("hardware", name))[0].network
        for n in (1, 2, 4, 8, 16, 32):
            if network.levels[-1].devices and n > network.levels[-1].devices:
                continue
            for kind in Kind:
                if kind is Kind.SLICE:
                    continue
                answer = primitive(kind, 1 << 20, place(n, 1, network, n), network)
                assert (answer.best.time_s > 0) == (n > 1), (name, n, kind)
                assert all(math.isfinite(one.time_s) for one in (*answer.offered, *answer.others))


def test_every_format() -> None:
    args = ["collective", "all_reduce", "--bytes", "1GiB", "--group-size", "8", "--hardware", "h20", "--format"]
    lines = run_commcalc(*args, "jsonl").out.splitlines()
    assert [json.loads(line)["name"] for line in lines][:2] == ["in-network", "ring"]
    assert [row["name"] for row in csv.DictReader(io.StringIO(run_commcalc(*args, "csv").out))][:2] == [
        "in-network",
        "ring",
    ]
    assert "| in-network (chosen) |" in " ".join(run_commcalc(*args, "markdown").out.split())
    assert "in-network (chosen)" in run_commcalc(*args, "table").out
    explained = run_commcalc(*args, "table", "--explain").out
    assert "wire = 2(n-1)/n * payload = 14/8 * 1,073,741,824 = 1,879,048,192 B" in explained
    assert "ring: 14 steps * 1.9 us + 1,879,048,192 B / 450 GB/s" in explained


def test_a_link_without_latency_and_a_group_of_one_are_said() -> None:
    out = run_commcalc("collective", "all_gather", "--bytes", "1MiB", "--group-size", "8", "--bandwidth", "450GB/s").out
    assert "no latency is given for link: taken as zero" in out
    alone = run_commcalc("collective", "all_reduce", "--bytes", "1MiB", "--group-size", "1", "--hardware", "h100")
    assert (alone.status, "a group of one device: no communication" in alone.out) == (0, True)
    one = asked("all_reduce", "--bytes", "1MiB", "--group-size", "1", "--hardware", "h100")
    assert (one["algorithms"][0]["time_s"], one["algorithms"][0]["algbw_bytes_per_s"], one["wire_bytes"]) == (
        0,
        None,
        0,
    )


def test_a_payload_of_nothing_takes_the_latencies() -> None:
    found = asked("all_gather", "--bytes", "0B", "--group-size", "8", "--hardware", "h100")
    ring = way(found, "ring")
    assert (ring["time_s"], ring["egress_bytes"], ring["busbw_bytes_per_s"]) == (pytest.approx(7 * 1.9e-6), 0, 0)
    assert any("payload of 0 bytes" in line for line in found["assumptions"])


H100 = ["--group-size", "8", "--hardware", "h100"]
WRONG = {
    "a bare rate": (["all_reduce", "--bytes", "1GiB", "--group-size", "8", "--bandwidth", "450"], 2,
                    "error: '450' has no unit\n  at --bandwidth 450\nhint: a rate needs one, like 450GB/s or 400Gb/s"),
    "no links": (["all_reduce", "--bytes", "1GiB", "--group-size", "8"], 2, "error: no links are given"),
    "no payload": (["all_reduce", *H100], 2, "error: no payload"),
    "no group": (["all_reduce", "--bytes", "1GiB", "--hardware", "h100"], 2, "error: no group is given"),
    "an unknown kind": (["allreduse", "--bytes", "1GiB", *H100], 2,
                        "error: unknown collective 'allreduse'\n  at KIND\nhint: did you mean all_reduce or reduce?"),
    "a kind of benchmarks": (["reduce", "--bytes", "1GiB", *H100], 2, "error: reduce has no price here, only its factor"),
    "a negative payload": (["all_reduce", "--bytes", "-1", *H100], 2, "error: -1 is negative"),
    "too large a payload": (["all_reduce", "--bytes", "1e400", *H100], 2, "error: 1e400"),
    "no number": (["all_reduce", "--bytes", "nan", *H100], 2, "error: 'nan' is no size"),
    "an empty size": (["all_reduce", "--bytes", "", *H100], 2, "error: '' is no size"),
    "half a byte": (["all_reduce", "--bytes", "1b", *H100], 2, "not a whole number of bytes"),
    "zero devices": (["all_reduce", "--bytes", "1GiB", "--group-size", "0", "--hardware", "h100"], 2,
                     "error: '0' is not above zero\n  at --group-size 0"),
    "other digits": (["all_reduce", "--bytes", "1GiB", "--group-size", "８", "--hardware", "h100"], 2, "is no whole number"),
    "zero bandwidth": (["all_reduce", "--bytes", "1GiB", "--group-size", "8", "--bandwidth", "0GB/s"], 2,
                       "error: '0GB/s' is not above zero"),
    "negative bandwidth": (["all_reduce", "--bytes", "1GiB", "--group-size", "8", "--bandwidth", "-1GB/s"], 2,
                           "error: -1 is negative"),
    "a latency alone": (["all_reduce", "--bytes", "1GiB", "--group-size", "8", "--latency", "1us"], 2,
                        "error: no links are given"),
    "an algorithm that is not": (["all_reduce", "--bytes", "1GiB", *H100, "--algorithm", "treee"], 2,
                                 "error: unknown algorithm 'treee'"),
    "an algorithm of another topology": (["all_reduce", "--bytes", "1GiB", *H100, "--algorithm", "line"], 2,
                                         "error: level nvlink (switch) does not offer line"),
    "an algorithm of another kind": (["all_gather", "--bytes", "1GiB", *H100, "--algorithm", "rabenseifner"], 2,
                                     "error: rabenseifner does not run all_gather over 8 devices on nvlink"),
    "an algorithm that the file leaves out": (
        ["all_reduce", "--bytes", "1GiB", *H100, "--algorithm", "one-shot",
         "--set", "hardware.network.nvlink.algorithms=ring"], 2, "error: level nvlink (switch) does not offer one-shot"),
    "too few for the switch": (
        ["all_reduce", "--bytes", "1GiB", "--group-size", "4", "--hardware", "h100", "--algorithm", "in-network"], 2,
        "error: in-network does not run all_reduce over 4 devices on nvlink"),
    "a switch that sums nothing": (["all_reduce", "--bytes", "1GiB", "--group-size", "8", "--hardware", "a100",
                                    "--algorithm", "in-network"], 2, "error: level nvlink does not reduce in the network"),
    "powers of two": (["all_gather", "--bytes", "1GiB", "--group-size", "6", "--hardware", "h100",
                       "--algorithm", "recursive-doubling"], 2, "error: recursive-doubling does not run all_gather over 6"),
    "a group larger than the network": (["all_reduce", "--bytes", "1GiB", "--group-size", "512", "--hardware", "tpu-v6e",
                                         "--set", "hardware.network.ici.shape=4x4", "--set", "hardware.network.dcn.devices=64"],
                                        3, "does not fit in the network: its outermost level dcn joins 64 devices"),
    "off the axes": (["all_reduce", "--bytes", "1GiB", "--group-size", "24", "--hardware", "tpu-v5e"], 3,
                     "error: a group of 24 ranks does not lie evenly along the axes of ici (torus 16x16)"),
    "a slice that is not offered": (["all_reduce", "--bytes", "1GiB", "--group-size", "4", "--hardware", "tpu-v5e",
                                     "--shape", "3x5"], 2, "error: there is no slice 3x5\n  at --shape 3x5\nhint: slices: 1x1,"),
    "no shape": (["all_reduce", "--bytes", "1GiB", "--group-size", "4", "--hardware", "tpu-v5e", "--shape", "axb"], 2,
                 "error: 'a' is no whole number\n  at --shape axb\nhint: write it like [16, 16] or 16x16"),
    "a shape of no torus": (["all_reduce", "--bytes", "1GiB", *H100, "--shape", "4x4"], 2, "error: h100-sxm has no torus"),
    "size and mesh": (["all_reduce", "--bytes", "1GiB", *H100, "--mesh", "X=8"], 2, "error: a group size and a mesh"),
    "an axis named twice": (
        ["all_reduce", "--bytes", "1MiB", "--mesh", "X=4,Y=4", "--axes", "X,X", "--hardware", "h100"],
        2,
        "error: an axis is named twice",
    ),
    "axes of no mesh": (["all_reduce", "--bytes", "1GiB", *H100, "--axes", "X"], 2, "error: axes of no mesh"),
    "an unknown axis": (["all_reduce", "--bytes", "1GiB", "--mesh", "X=8", "--axes", "Y", "--hardware", "h100"], 2,
                        "error: unknown mesh axis 'Y'"),
    "no mesh": (["all_reduce", "--bytes", "1GiB", "--mesh", "8", "--hardware", "h100"], 2, "error: '8' is no NAME=SIZE"),
    "an axis twice": (["all_reduce", "--bytes", "1GiB", "--mesh", "X=8,X=2", "--hardware", "h100"], 2, "X is given twice"),
    "a tensor without a mesh": (["A[I_X] -> A[I]", *H100], 2, "error: a tensor's axes need a mesh"),
    "a tensor that does not divide": (["A[I_X] -> A[I]", "--mesh", "X=3", "--dim", "I=8", "--hardware", "h100"], 3,
                                      "error: dimension I of size 8 does not split 3 ways"),
    "a tensor without size": (["A[I_X] -> A[I]", "--mesh", "X=3", "--hardware", "h100"], 2, "error: no size of dimension I"),
    "no change": (["A[I_X] -> A[I_X]", "--mesh", "X=2", "--dim", "I=8", "--hardware", "h100"], 2, "needs no collective"),
    "no arrow": (["A[I_X]", "--mesh", "X=2", "--dim", "I=8", "--hardware", "h100"], 2, "error: no change: there is no ->"),
    "a product": (["A[I, J] @ B[J, K] -> C[I, K]", "--mesh", "X=2", "--dim", "I=8", "--hardware", "h100"], 2,
                  "error: one tensor and one change are priced here"),
    "a function": (["relu(A[I_X]) -> A[I]", "--mesh", "X=2", "--dim", "I=8", "--hardware", "h100"], 2,
                   "error: one tensor and one change are priced here"),
    "a dimension of another tensor": (["A[I_X] -> A[I]", "--mesh", "X=2", "--dim", "I=8,J=8", "--hardware", "h100"], 2,
                                      "error: the tensor has no dimension 'J'"),
    "an illegal tensor": (["A[I_X, J_X] -> A[I, J]", "--mesh", "X=2", "--dim", "I=8", "--hardware", "h100"], 3,
                          "error: axis X is used twice"),
    "a value of no machine": (["all_reduce", "--bytes", "1GiB", *H100, "--set", "model.hidden_size=8"], 2,
                              "error: one collective does not depend on model.hidden_size"),
    "several at once": (["all_reduse", "--bytes", "x", "--group-size", "y", "--hardware", "h100"], 2, "error: 'y' is no whole number"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_questions(name: str, inside: Inside) -> None:
    args, status, text = WRONG[name]
    ran = inside("collective", *args)
    assert (ran.status, ran.out) == (status, ""), ran
    assert text in ran.err


def test_an_error_is_a_document_too() -> None:
    for name in ("an unknown kind", "off the axes", "several at once"):
        args, status, _ = WRONG[name]
        document = run_commcalc("collective", *args, "--json")
        assert document.status == status
        assert document.json["error"]["message"]
    assert len(document.json["error"]["violations"]) == 3


LEVELS = {
    "ends of other axes": ("{name: a, topology: torus, shape: [4, 4], wraparound: [true], bandwidth: 1 GB/s}",
                           "1 of 2 axes of the shape have a wraparound"),
    "an unknown rule": ("{name: a, topology: torus, shape: [4, 4], wraparound: axis-of-15, bandwidth: 1 GB/s}",
                        "unknown wraparound 'axis-of-15'"),
    "a rule of axes": ("{name: a, topology: torus, shape: [4, 4], wraparound: [true, all], bandwidth: 1 GB/s}",
                       "'all' is neither true nor false"),
    "a torus without shape": ("{name: a, topology: torus, bandwidth: 1 GB/s}", "a torus needs its shape"),
    "a shape of a switch": ("{name: a, shape: [4], bandwidth: 1 GB/s}", "shape belongs to a torus, not to a switch"),
    "a shape that is not": ("{name: a, topology: torus, shape: [4, 0], bandwidth: 1 GB/s}", "'0' is not above zero"),
    "a mapping for a shape": ("{name: a, topology: torus, shape: {x: 4}, bandwidth: 1 GB/s}", "a mapping where one value"),
    "an empty shape": ("{name: a, topology: torus, shape: [], bandwidth: 1 GB/s}", "0 axes; a torus has 1 to 8"),
    "too large a shape": ("{name: a, topology: torus, shape: [1048576, 1048576, 8], bandwidth: 1 GB/s}", "are more than there are"),
    "shape and devices": ("{name: a, topology: torus, shape: [4, 4], devices: 8, bandwidth: 1 GB/s}",
                          "a shape of 4x4 holds 16 devices, not 8"),
    "a slice": ("{name: a, topology: torus, shape: [4, 6], wraparound: axis-of-16, bandwidth: 1 GB/s}", "there is no slice 4x6"),
    "a slice beyond the pod": ("{name: a, topology: torus, shape: [8, 8], pod: [4, 4], bandwidth: 1 GB/s}",
                               "a slice 8x8 does not fit in the pod of 4x4"),
    "a mesh without devices": ("{name: a, topology: full-mesh, bandwidth: 1 GB/s}", "a full mesh needs the number of its devices"),
    "a mesh that sums": ("{name: a, topology: full-mesh, devices: 8, bandwidth: 1 GB/s, in_network_reduction: true}",
                         "a full-mesh has no switch that could sum"),
    "two ways of a switch": ("{name: a, two_way: true, bandwidth: 1 GB/s}", "two_way belongs to a ring"),
    "an unknown algorithm": ("{name: a, bandwidth: 1 GB/s, algorithms: [rign]}", "unknown algorithm 'rign'"),
    "an algorithm of a torus": ("{name: a, bandwidth: 1 GB/s, algorithms: [torus]}", "a switch cannot run torus"),
    "shared by none": ("{name: a, bandwidth: 1 GB/s, shared_by: 0}", "'0' is not above zero"),
    "oversubscribed below one": ("{name: a, bandwidth: 1 GB/s, oversubscription: 0.5}", "'0.5' is no ratio of at least 1"),
    "oversubscribed by no number": ("{name: a, bandwidth: 1 GB/s, oversubscription: .nan}", "is no ratio of at least 1"),
    "a zero rate": ("{name: a, bandwidth: 0 GB/s}", "'0 GB/s' is not above zero"),
    "a negative latency": ("{name: a, bandwidth: 1 GB/s, latency: -1us}", "-1 is negative"),
    "levels that do not nest": ("{name: a, devices: 8, bandwidth: 1 GB/s}, {name: b, devices: 12, bandwidth: 1 GB/s}",
                                "level b (12 devices) does not hold whole domains of level a (8 devices)"),
    "a torus of slices that do not nest": (
        "{name: a, topology: torus, shape: [4, 4], bandwidth: 1 GB/s}, {name: b, devices: 24, bandwidth: 1 GB/s}",
        "level b (24 devices) does not hold whole domains of level a (16 devices)"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEVELS)
def test_wrong_levels(name: str, tmp_path: Path, inside: Inside) -> None:
    levels, text = LEVELS[name]
    path = tmp_path / "machine.yaml"
    path.write_text(f"network: [{levels}]\n")
    ran = inside("collective", "all_reduce", "--bytes", "1GiB", "--group-size", "4", "--hardware", str(path))
    assert (ran.status, text in ran.err) == (2, True), ran.err
    assert f"{path}:1:" in ran.err


def test_a_pcie_box_with_a_shared_link_between_its_sockets(tmp_path: Path) -> None:
    """8 cards at 32 GB/s, 4 a socket, 22 GB/s between the sockets (NCCL's figure for Sapphire Rapids): a flat ring runs
    at 22 GB/s, as its one crossing each way does."""
    path = tmp_path / "box.yaml"
    path.write_text(
        "network:\n- {name: pcie, devices: 4, bandwidth: 32 GB/s}\n"
        "- {name: sockets, devices: 8, bandwidth: 22 GB/s, shared_by: 4, algorithms: [ring, hierarchical]}\n"
    )
    found = asked("all_reduce", "--bytes", "1GiB", "--group-size", "8", "--hardware", str(path))
    assert way(found, "ring")["time_s"] == pytest.approx(2 * 7 / 8 * GIB / 22e9)
    assert found["best"] == min(found["algorithms"], key=lambda one: one["time_s"])["name"]


def test_oversubscribed_uplinks_are_slower_by_as_much(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    for ratio, times in (("1", 1.0), ("2:1", 2.0)):
        path.write_text(
            "network:\n- {name: nvlink, devices: 8, bandwidth: 450 GB/s}\n- {name: leaf, devices: 256, bandwidth: 50 GB/s}\n"
            f"- {{name: spine, bandwidth: 50 GB/s, oversubscription: '{ratio}'}}\n"
        )
        found = asked("all_reduce", "--bytes", "1GiB", "--group-size", "512", "--hardware", str(path))
        best = way(found, "hierarchical")
        assert [one["level"] for one in best["phases"]] == ["nvlink", "leaf", "spine", "leaf", "nvlink"]
        assert best["phases"][2]["time_s"] == pytest.approx(times * GIB / 256 / 50e9)


@pytest.mark.parametrize(
    ("wraparound", "closed"),
    [("true", [True, True]), ("false", [False, False]), ("[true, false]", [True, False]), ("none", [False, False])],
)
def test_ends_of_axes_in_a_file(wraparound: str, closed: list[bool], tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(
        f"network: [{{name: a, topology: torus, shape: 4x8, wraparound: {wraparound}, bandwidth: 1 GB/s}}]\n"
    )
    found = asked("all_gather", "--bytes", "1MiB", "--group-size", "32", "--hardware", str(path))
    assert found["hardware"]["network"][0]["wraps"] == closed
    assert [one["closed"] for one in found["placement"][0]["axes"]] == closed[::-1]


def test_a_bare_link_reduces_where_that_is_asked_for() -> None:
    """NVIDIA/nccl issue 1455: 411.5 GB/s of busbw on 5 devices at 308.6 GB/s."""
    args = ["all_reduce", "--bytes", "4GiB", "--group-size", "5", "--bandwidth", "308.6GB/s"]
    for more in (["--algorithm", "in-network"], ["--in-network"]):
        found = asked(*args, *more)
        assert found["best"] == "in-network"
        assert way(found, "in-network")["busbw_bytes_per_s"] / 1e9 == pytest.approx(411.5, abs=0.1)


def test_arrows_as_people_write_them() -> None:
    asks = (["A[I_X, J] -> A[I, J]"], ["A[I_X, J] \u2192 A[I, J]"], ["A[I_X, J] => A[I, J]"])
    tail = ("--mesh", "X=8", "--dim", "I=8,J=8", "--hardware", "h100")
    first, *others = [asked(*one, *tail) for one in asks]
    assert first["collective"] == "all_gather"
    assert first["payload_bytes"] == 128
    assert all(other == first for other in others)


CHIP = "extends: tpu-v5e\nnetwork:\n- {name: ici, shape: [16, 16], wraparound: [true, false]}\n"


@pytest.mark.parametrize(
    ("text", "shape", "told"),
    [
        (CHIP, "2x2x2", "2 of 3 axes of the shape have a wraparound"),
        (
            "extends: tpu-v5e\nnetwork:\n- {name: ici, shape: [4, 4]}\n- {name: dcn, devices: 64}\n",
            "8x8",
            "level dcn (64 devices) does not hold whole domains of level ici (64 devices)",
        ),
    ],
)
def test_a_slice_is_checked_like_the_shape_of_a_file(text: str, shape: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "chip.yaml"
    path.write_text(text)
    ran = run_commcalc("collective", "all_reduce", "--bytes", "1MB", "--group-size", "4", "--hardware", str(path),
                       "--shape", shape)  # fmt: skip
    assert (ran.status, ran.out) == (2, "")
    assert f"error: {told}" in ran.err
    assert f"at --shape {shape}" in ran.err


def test_a_preset_of_ones_own_takes_another_slice(tmp_path: Path) -> None:
    path = tmp_path / "slice.yaml"
    path.write_text("extends: tpu-v5e\nnetwork:\n- {name: ici, shape: [4, 8]}\n")
    found = asked("all_gather", "--bytes", "1MiB", "--group-size", "32", "--hardware", str(path))
    assert [one["closed"] for one in found["placement"][0]["axes"]] == [False, False]


def test_a_send_is_between_the_members_farthest_apart() -> None:
    """16 MiB from corner to corner of a 4x4: over two links at once and 6 hops of 1 us; on a ring of 16 half way round.

    Source: How To Scale Your Model, part 2, question 5 (TOR-19): 186.41 us and 6 us.
    """
    args = ("--bytes", "16MiB", "--group-size", "16", "--hardware", "tpu-v5e")
    corner = asked("send_recv", *args, "--shape", "4x4")["algorithms"][0]
    assert corner["time_s"] == pytest.approx(2**24 / 90e9 + 6e-6)
    assert corner["egress_bytes"] == 2**24
    ring = asked("send_recv", *args)["algorithms"][0]
    assert (ring["steps"], ring["bandwidth_s"]) == (8, pytest.approx(2**24 / 45e9))


def test_the_textbook_takes_the_slowest_level() -> None:
    """Source: How To Scale Your Model, part 12: V over the least of 450 GB/s a GPU and 400 GB/s a node of 8."""
    args = ("--bytes", "256MiB", "--group-size", "32", "--hardware", "h100", "--convention", "textbook")
    assert asked("all_gather", *args)["algorithms"][0]["time_s"] == pytest.approx(2**28 / 400e9)


def test_a_switch_that_is_told_to_reduce_does_so_for_few() -> None:
    """4 devices at 308.6 GB/s: busbw 2W(n-1)/(n+1) = 370.3 GB/s (UR-023), though NCCL would not use NVLS for 4."""
    args = ("--bytes", "4GiB", "--group-size", "4", "--hardware", "h100", "--bandwidth", "308.6GB/s", "--latency", "0s")
    found = asked("all_reduce", *args, "--in-network")
    assert found["best"] == "in-network"
    assert found["algorithms"][0]["busbw_bytes_per_s"] == pytest.approx(2 * 308.6e9 * 3 / 5)
    refused = run_commcalc("collective", "all_reduce", *args, "--algorithm", "in-network")
    assert refused.status == 2
    assert "its switch sums from 5 devices on" in refused.err


def test_a_named_algorithm_inside_is_the_one_that_is_shown() -> None:
    found = asked("all_reduce", "--bytes", "64KiB", "--group-size", "16", "--hardware", "h100", "--algorithm", "direct")
    best = way(found, found["best"])
    assert best["phases"][0]["algorithm"] == "direct"
    assert best["time_s"] == pytest.approx(sum(phase["time_s"] for phase in best["phases"]))
    assert [one["name"] for one in found["algorithms"]].count("hierarchical") == 1


@pytest.mark.parametrize(
    ("machine", "kind", "size", "listed"),
    [("h100", "reduce_scatter", 6, "recursive-halving"), ("a100", "all_reduce", 8, "in-network"),
     ("h100", "all_reduce", 4, "in-network")],
)  # fmt: skip
def test_what_is_listed_and_cannot_run_gives_way_to_the_usual(machine: str, kind: str, size: int, listed: str) -> None:
    offer = ("--set", f"hardware.network.nvlink.algorithms={listed}")
    args = ("--bytes", "1GiB", "--group-size", str(size), "--hardware", machine)
    assert asked(kind, *args, *offer)["best"] == "ring"


def test_an_uneven_exchange_is_no_faster_than_its_links() -> None:
    """L40S, 8 cards a box at 32 GB/s: of 12 in boxes of 8 and 4 each sends 11/12 of its GiB, 7 of them inside its box."""
    times = []
    for n in (8, 12):
        args = ("--bytes", "1GiB", "--group-size", str(n), "--hardware", "l40s")
        times.append(asked("all_to_all", *args)["algorithms"][0]["bandwidth_s"])
    assert times[0] == pytest.approx(GIB * 7 / 8 / 32e9)
    assert times[1] == pytest.approx(
        max(GIB * 4 / 12 / 50e9 + GIB * 7 / 12 / 32e9, GIB * 8 / 12 / 50e9 + GIB * 3 / 12 / 32e9)
    )


def test_a_group_that_no_level_joins_says_so() -> None:
    ran = run_commcalc("collective", "all_reduce", "--bytes", "1MiB", "--group-size", "9999", "--hardware", "tpu-v7x")
    assert ran.status == 3
    assert "its outermost level ici joins 4096 devices" in ran.err
