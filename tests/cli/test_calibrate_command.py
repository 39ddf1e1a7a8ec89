"""``commcalc calibrate`` as a process: what it prints, writes, compares and refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from conftest import DATA, Inside, Ran, run_commcalc

LOGS = DATA / "logs"
H100 = str(LOGS / "13_json_h100x8.json")
HEAD = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"


def run(*args: str, **more: object) -> Ran:
    return run_commcalc("calibrate", *args, **more)


def row(size: int, microseconds: float, ranks: int = 8) -> str:
    """A row of all_reduce_perf, whose bandwidths fit its time."""
    algbw = size / microseconds / 1e3
    return f"{size} {size // 4} float sum -1 {microseconds:.2f} {algbw:.2f} {algbw * 2 * (ranks - 1) / ranks:.2f} 0\n"


def log(times: dict[int, float]) -> str:
    return HEAD + "".join(row(size, time) for size, time in times.items())


TIMES = {2**k: 15 + 2**k / 200e3 for k in range(13, 25)}


def test_the_fields_of_the_interface() -> None:
    found = run(H100, "--hardware", "h100", "--json").json
    assert found["schema"] == "commcalc/calibrate/1"
    (sweep,) = found["sweeps"]
    assert (sweep["collective"], sweep["ranks"], sweep["dtype"], sweep["rows"]) == ("all_reduce", 8, "half", 21)
    assert sweep["dropped"] == []
    # An independent fit to the same sweep (tests/data/measured/fits.txt): 15.0 us, 7.8 us per root of an MB, 512 GB/s.
    assert sweep["t0_s"] == pytest.approx(15.0e-6, rel=0.03)
    assert sweep["c_s_per_sqrt_byte"] == pytest.approx(7.8e-9, rel=0.03)
    assert sweep["bandwidth_bytes_per_s"] == pytest.approx(512e9, rel=0.01)
    # 512 MiB in 2111.06 us: 7/4 of it on the bus.
    last = sweep["points"][-1]
    assert (last["payload_bytes"], last["time_s"]) == (2**29, pytest.approx(2111.06e-6))
    assert last["busbw_bytes_per_s"] == pytest.approx(1.75 * 2**29 / 2111.06e-6)
    assert sweep["best_busbw_bytes_per_s"] == last["busbw_bytes_per_s"]
    assert sweep["share_of_datasheet"] == pytest.approx(445.05 / 450, rel=1e-4)
    assert {*sweep["fit"]} == {*sweep["left_out"]} == {"median_rel_error", "p90_rel_error"}
    assert sweep["left_out"]["median_rel_error"] < 0.05


def test_the_table_has_a_plot() -> None:
    ran = run(H100)
    assert (ran.status, ran.err) == (0, "")
    assert "13_json_h100x8.json: all_reduce over 8; o measured, - fitted, * both" in ran.out
    lines = [line for line in ran.out.splitlines() if " |" in line]
    assert len(lines) == 14
    assert lines[0].startswith(" 2.111 ms |")
    assert "           512 B                                                512 MiB" in ran.out
    told = run(H100, "--explain").out
    assert "x = 1.75 * payload" in told


# NVLS sends (n+1)/n of the payload for 2(n-1)/n on the bus: 450 GB/s * 14/9 = 700 GB/s, and 445.05 is 63.6 % of that.
def test_busbw_over_a_switch_that_sums_is_no_wire_rate() -> None:
    told = "busbw is no wire rate where nvlink sums in its switch; there it could reach 700 GB/s, of which 63.6 % were"
    assert told in run(H100, "--hardware", "h100").out
    assert "no wire rate" not in run(H100, "--hardware", "a100").out


@pytest.mark.parametrize("style", ["jsonl", "csv", "markdown"])
def test_every_format(style: str) -> None:
    ran = run(H100, str(LOGS / "08_new_2.18_b200x8_five_collectives.txt"), "--format", style)
    assert ran.status == 0
    if style == "jsonl":
        assert [json.loads(line)["collective"] for line in ran.out.splitlines()][:3] == [
            "all_reduce", "all_reduce", "all_gather",
        ]  # fmt: skip
    elif style == "csv":
        assert len(list(csv.DictReader(io.StringIO(ran.out)))) == 6
    else:
        assert "| 13_json_h100x8.json |" in ran.out


def test_a_log_from_stdin_and_narrow() -> None:
    ran = run("-", stdin=log(TIMES), COLUMNS="40")
    assert (ran.status, ran.err) == (0, "")
    assert run("-", "--json", stdin=log(TIMES)).json["sweeps"][0]["source"] == "stdin"


def test_the_machine_it_writes_is_one(tmp_path: Path) -> None:
    ran = run(H100, "--hardware", "h100", "--output", "mine.yaml", cwd=tmp_path)
    assert (ran.status, ran.err) == (0, "wrote mine.yaml\n")
    assert run_commcalc("presets", "validate", "mine.yaml", cwd=tmp_path).status == 0
    args = ("--bytes", "128MiB", "--group-size", "8", "--hardware", "mine.yaml", "--json")
    way = run_commcalc("collective", "all_reduce", *args, cwd=tmp_path).json["algorithms"][0]
    assert (way["name"], way["confidence"], way["time_s"]) == ("measured", "measured", pytest.approx(578.74e-6))
    assert way["error_band"] == {"median": 0.03, "p90": 0.15}
    # What was not measured anew is that of the preset.
    gathered = run_commcalc("collective", "all_gather", *args, cwd=tmp_path).json["algorithms"][0]
    assert gathered["measured_in"] == "aic_h100_sxm_nccl_2.29.2"
    again = run("--compare", "mine.yaml", H100, "--tolerance", "3%", "--json", cwd=tmp_path)
    assert (again.status, again.json["passed"]) == (0, True)
    alone = run(H100, "--output", "-", cwd=tmp_path)
    assert (alone.status, alone.out.startswith('name: "calibrated"\n')) == (0, True)


def test_compare_is_an_acceptance_test(tmp_path: Path) -> None:
    passed = run("--compare", "h100", H100)
    assert (passed.status, "all 21 sizes are within 25 %" in passed.out) == (0, True)
    (tmp_path / "slow.log").write_text(log({size: 2 * time for size, time in TIMES.items()}))
    failed = run("--compare", "h100", "slow.log", "--tolerance", "0.3", "--json", cwd=tmp_path)
    assert (failed.status, failed.json["passed"]) == (1, False)
    sizes = failed.json["sizes"]
    assert {*sizes[0]} >= {"payload_bytes", "measured_s", "predicted_s", "rel_error", "confidence", "passed"}
    for one in sizes:
        assert one["rel_error"] == pytest.approx(one["predicted_s"] / one["measured_s"] - 1)
        assert one["passed"] == (abs(one["rel_error"]) <= 0.3)


def test_groups_that_fill_no_nodes_are_measured_and_found_again(tmp_path: Path) -> None:
    """12 ranks on two nodes of 8: six a node, 3 times the steps of none."""
    (tmp_path / "twelve.log").write_text(HEAD + "".join(row(size, time, 12) for size, time in TIMES.items()))
    unsaid = run("twelve.log", "--hardware", "h100", cwd=tmp_path)
    assert (unsaid.status, "12 ranks fill no whole domains" in unsaid.err) == (2, True)
    args = ("twelve.log", "--nodes", "2")
    assert run(*args, "--hardware", "h100", "-o", "mine.yaml", cwd=tmp_path).status == 0
    again = run(*args, "--compare", "mine.yaml", "--tolerance", "1%", "--json", cwd=tmp_path).json
    assert again["passed"]
    assert {one["confidence"] for one in again["sizes"]} == {"measured"}


def test_the_node_is_the_domain_that_the_level_joins(tmp_path: Path) -> None:
    """MI250X: packages of 2 in nodes of 8; 16 ranks are two nodes."""
    (tmp_path / "sixteen.log").write_text(HEAD + "".join(row(size, time, 16) for size, time in TIMES.items()))
    assert run("sixteen.log", "--hardware", "mi250x", "-o", "mine.yaml", cwd=tmp_path).status == 0
    assert "nodes: 2" in (tmp_path / "mine.yaml").read_text()
    assert run("sixteen.log", "--compare", "mine.yaml", "--tolerance", "1%", cwd=tmp_path).status == 0


def test_a_machine_is_not_written_over_what_it_rests_on(tmp_path: Path) -> None:
    assert run(H100, "-o", "self.yaml", cwd=tmp_path).status == 0
    before = (tmp_path / "self.yaml").read_text()
    ran = run(H100, "--hardware", "self.yaml", "-o", "./self.yaml", cwd=tmp_path)
    assert (ran.status, "what the machine rests on" in ran.err) == (2, True)
    assert (tmp_path / "self.yaml").read_text() == before


@pytest.mark.parametrize("name", [b"b\xff.log", b"new\nline.log", b"esc\x1b[31m.log"])
def test_names_that_cannot_be_printed(name: bytes, tmp_path: Path) -> None:
    import os

    with open(os.path.join(os.fsencode(tmp_path), name), "w") as file:
        file.write(log(TIMES))
    ran = run(os.fsdecode(name), "-o", "mine.yaml", cwd=tmp_path)
    assert (ran.status, "Traceback" in ran.err) == (0, False)
    assert run_commcalc("presets", "validate", "mine.yaml", cwd=tmp_path).status == 0


def test_wrong_values_fail_a_comparison(tmp_path: Path) -> None:
    (tmp_path / "bad.log").write_text(log(TIMES) + "# Out of bounds values : 7 FAILED\n")
    ran = run("bad.log", "--compare", "h100", "--tolerance", "100%", cwd=tmp_path)
    assert (ran.status, "7 values came out wrong" in ran.err) == (1, True)


def test_runs_with_and_without_graphs_make_no_machine(tmp_path: Path) -> None:
    config = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 graph: 1\n"
    (tmp_path / "plain.log").write_text(log(TIMES))
    (tmp_path / "graph.log").write_text(config + log({size: 0.9 * time for size, time in TIMES.items()}))
    ran = run("plain.log", "graph.log", "--ranks", "8", "-o", "mine.yaml", cwd=tmp_path)
    assert (ran.status, "one run replays CUDA graphs" in ran.err) == (2, True)


def test_plan_prints_what_to_measure() -> None:
    ran = run("--plan", "llama-3-70b-h100")
    assert ran.status == 0
    # 8192 tokens x 8192 hidden: 128 MiB in bf16, 64 MiB in fp8.
    assert "all_reduce_perf -b 134217728 -e 134217728 -f 2 -d bfloat16" in ran.out
    assert "all_reduce_perf -b 67108864 -e 67108864 -f 2 -d f8e4m3" in ran.out
    found = run("--plan", "llama-3-70b-h100", "--json").json
    assert found["schema"] == "commcalc/acceptance/1"


# Wrong input: status, and what is said of it.
@pytest.mark.parametrize(
    ("args", "text", "status", "told"),
    [
        ([], "", 2, "no log is given"),
        (["none.log"], "", 2, "no such file"),
        (["."], "", 2, "a folder, not a file"),
        (["-"], "", 2, "empty"),
        (["-"], "ib_write_bw: RDMA_Write BW Test\n65536 5000 23000 22900 0.36\n", 2, "perftest"),
        (["-"], HEAD, 2, "no rows"),
        (["-"], log({2**20: 50.0}), 2, "a single size"),
        (["-"], HEAD + row(2**20, 50.0).replace("50.00", "0.00") * 2, 2, "0"),
        (["-", "--collective", "all_gather"], log(TIMES), 2, "the log is of all_reduce, not of all_gather"),
        (["-", "--collective", "all_sum"], log(TIMES), 2, "all_sum"),
        (["-", "--ranks", "0"], log(TIMES), 2, "--ranks"),
        (["-", "--ranks", "16"], log(TIMES), 2, "the log is of 8 ranks, not of 16"),
        (["-", "--nodes", "3"], log(TIMES), 2, "8 ranks do not lie evenly on 3 nodes"),
        (["-", "--tolerance", "5%"], log(TIMES), 2, "nothing to compare with"),
        (["-", "--compare", "h100", "--tolerance", "0"], log(TIMES), 2, "no share above 0"),
        (["-", "--compare", "h100", "--tolerance", "nan"], log(TIMES), 2, "'nan' is no share"),
        (["-", "--compare", "h100", "--tolerance", "25"], log(TIMES), 2, "25% if percent are meant"),
        (["-", "--compare", ""], log(TIMES), 2, "hardware"),
        (["-", "--compare", "h100", "--hardware", "h100"], log(TIMES), 2, "--hardware has nothing to act on"),
        (["-", "--set", "hardware.network.nvlink.devices=16", "--hardware", "h100", "-o", "x.yaml"], log(TIMES), 2,
         "the file would not hold single values"),
        (["-", "-"], log(TIMES), 2, "stdin is there once"),
        (["-", "--nodes", "2", "-o", "x.yaml"], log(TIMES), 2, "nothing was measured inside a node"),
        (["-", "--hardware", "tpu-v5e", "-o", "x.yaml"], log(TIMES), 2, "level ici is a torus"),
        (["-"], HEAD + "".join(row(size, time) + row(size, 5 * time) for size, time in TIMES.items()), 2,
         "rows contradict each other: times of one size differ by a factor of 5"),
        (["-", "--compare", "h1000"], log(TIMES), 2, "h1000"),
        (["-", "--compare", "h100", "--output", "x.yaml"], log(TIMES), 2, "--output"),
        (["-", "--output", "no/such/place.yaml"], log(TIMES), 2, "cannot be written"),
        (["-", "--plan", "llama-3-70b-h100"], log(TIMES), 2, "before anything is measured"),
        (["--plan", "llama-9"], "", 2, "llama-9"),
        ([str(LOGS / "15_no_mpi_each_process_alone.txt")], "", 2, "one rank each"),
        ([str(LOGS / "14_osu_allreduce_a100.txt")], "", 2, "how many ranks took part"),
    ],
)  # fmt: skip
def test_wrong_input(args: list[str], text: str, status: int, told: str, tmp_path: Path) -> None:
    ran = run(*args, stdin=text, cwd=tmp_path)
    assert (ran.status, told in ran.err, "Traceback" in ran.err) == (status, True, False), ran.err


def test_contradictory_logs_and_every_violation_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(log(TIMES))
    (tmp_path / "b.log").write_text(log({size: 3 * time for size, time in TIMES.items()}))
    ran = run("a.log", "b.log", cwd=tmp_path)
    assert (ran.status, "contradict each other" in ran.err) == (2, True)
    many = run("none.log", str(LOGS / "15_no_mpi_each_process_alone.txt"), "a.log", cwd=tmp_path)
    assert (many.status, many.err.count("error:")) == (2, 2)


def test_binary_and_packed_logs(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "b.gz").write_bytes(b"\x1f\x8b\x08\x00rest")
    for name in ("a.log", "b.gz"):
        ran = run(name, cwd=tmp_path)
        assert (ran.status, "Traceback" in ran.err) == (2, False)
        assert "text" in ran.err


def test_osu_with_its_ranks(inside: Inside) -> None:
    found = inside("calibrate", str(LOGS / "14_osu_allreduce_a100.txt"), "--ranks", "8", "--json")
    assert [(one["ranks"], one["rows"]) for one in found.json["sweeps"]] == [(8, 13)]
    assert "a run of a single size, which fixes no law, is left out [single-size]" in found.err
