"""``commcalc sweep``: its lines, its order, what it refuses, and how it ends."""

from __future__ import annotations

import csv
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import Inside, Ran, environment, run_commcalc

MODEL = ("--model", "llama-3-8b", "--hardware", "h100")
RESULTS = ["block_wire_bytes", "block_comm_s", "step_wire_bytes", "step_comm_s", "exposed_share", "memory_bytes"]
MANY = ("--seq", "1024..102400:1024", "--micro-batch", "1..100", "--tp", "1..8:x2")


def lines(ran: Ran) -> list[dict[str, Any]]:
    assert (ran.status, ran.err) == (0, "")
    return [json.loads(line) for line in ran.out.splitlines()]


def test_a_line_has_what_varies_and_the_results_in_order(inside: Inside) -> None:
    found = lines(inside("sweep", *MODEL, "--tp", "1,2", "--seq", "4K", "--micro-batch", "1..2"))
    assert [list(line) for line in found] == [["tp", "micro_batch", "legal", *RESULTS]] * 4
    assert [(line["tp"], line["micro_batch"]) for line in found] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    document = inside("ledger", *MODEL, "--tp", "2", "--seq", "4K", "--micro-batch", "2", "--json").json
    totals = document["totals"]
    assert list(found[3].values())[3:] == [
        totals["block"]["all"]["wire_bytes"], totals["block"]["all"]["time_s"], totals["step"]["all"]["wire_bytes"],
        totals["step"]["all"]["time_s"], document["block"]["exposed_share"], document["memory"]["total_bytes"],
    ]  # fmt: skip


def test_the_order_does_not_depend_on_that_of_the_options(inside: Inside) -> None:
    options = (
        ("--tp", "1,2"),
        ("--hardware", "h100,a100"),
        ("--seq", "1K,2K"),
        ("--set", "model.vocab_size=1000,2000"),
    )
    texts = {inside("sweep", "--model", "llama-3-8b", *sum(order, ())).out for order in (options, options[::-1])}
    (text,) = texts
    names = list(json.loads(text.splitlines()[0]))[:4]
    assert names == ["hardware", "tp", "model.vocab_size", "seq"]


def test_csv_has_one_head_and_empty_cells_for_what_is_not_known(inside: Inside) -> None:
    ran = inside("sweep", *MODEL, "--tp", "2,3", "--format", "csv", "--columns", "reason")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [row["legal"] for row in rows] == ["true", "false"]
    assert all(rows[1][name] == "" for name in RESULTS)
    assert rows[1]["reason"].startswith("tp 3 is not legal for llama-3-8b: num_attention_heads 32 mod 3 = 2")


def test_nothing_is_told_of_an_illegal_point_whose_column_is_of_two_types(inside: Inside) -> None:
    # step_comm_s is the whole number 0 at dp 1, where nothing is sent, and a float at dp 2.
    found = lines(inside("sweep", *MODEL, "--dp", "1,2,3", "--global-batch", "8"))
    assert [line["legal"] for line in found] == [True, True, False]
    assert [found[2][name] for name in RESULTS] == [None] * len(RESULTS)


def test_without_a_machine_bytes_are_known_and_times_are_not(inside: Inside) -> None:
    (one, two) = lines(inside("sweep", "--model", "llama-3-8b", "--tp", "2,4", "--seq", "1K"))
    assert one["block_wire_bytes"] < two["block_wire_bytes"]
    assert (one["block_comm_s"], one["exposed_share"], one["memory_bytes"] > 0) == (None, None, True)


def test_a_condition_chooses_points(inside: Inside) -> None:
    every = lines(inside("sweep", *MODEL, "--tp", "1..8", "--micro-batch", "1..8"))
    asked = "legal and (micro_batch in (2, 4) or not tp <= 4) and step_comm_s * 1000 > 20 and memory_bytes // 10 >= 1"
    found = lines(inside("sweep", *MODEL, "--tp", "1..8", "--micro-batch", "1..8", "--where", asked))
    assert found == [
        line for line in every
        if line["legal"] and (line["micro_batch"] in (2, 4) or line["tp"] > 4) and line["step_comm_s"] * 1000 > 20
    ]  # fmt: skip
    assert found


def test_what_is_not_known_meets_no_condition_nor_its_contrary(inside: Inside) -> None:
    for condition in ("step_comm_s < 1e9", "not step_comm_s < 1e9", "memory_bytes != 0"):
        found = lines(inside("sweep", *MODEL, "--tp", "2,3", "--where", condition))
        assert all(line["legal"] for line in found), condition
    assert [line["tp"] for line in lines(inside("sweep", *MODEL, "--tp", "2,3", "--where", "not legal"))] == [3]
    names = ("--model", "llama-3-8b,gpt3-175b")
    assert len(lines(inside("sweep", *names, "--seq", "1K,2K", "--where", "model == 'gpt3-175b'"))) == 2


def test_the_best_are_those_of_all_lines(inside: Inside) -> None:
    every = [line for line in lines(inside("sweep", *MODEL, "--tp", "1..8", "--seq", "1K..32K:1K")) if line["legal"]]
    for by, sign in (("exposed_share", 1), ("-memory_bytes", -1), ("step_comm_s", 1)):
        found = lines(inside("sweep", *MODEL, "--tp", "1..8", "--seq", "1K..32K:1K", "--top", "5", "--by", by))
        assert found == sorted(every, key=lambda line: sign * line[by.removeprefix("-")])[:5]


def test_columns_are_paths_of_the_document(inside: Inside) -> None:
    paths = "totals.step.tp.time_s,rows.0.payload_bytes,inputs.workload.dtype,memory.fits,step.mfu"
    found = lines(inside("sweep", *MODEL, "--tp", "2,4", "--columns", paths))
    document = inside("ledger", *MODEL, "--tp", "4", "--json").json
    assert [found[1][path] for path in paths.split(",")] == [
        document["totals"]["step"]["tp"]["time_s"], document["rows"][0]["payload_bytes"], "bf16",
        document["memory"]["fits"], document["step"]["mfu"],
    ]  # fmt: skip


def test_a_grid_without_a_legal_point_is_status_3(inside: Inside) -> None:
    ran = inside("sweep", *MODEL, "--tp", "3,5")
    assert ran.status == 3
    assert [json.loads(line)["legal"] for line in ran.out.splitlines()] == [False, False]
    assert "no point of the grid is legal" in ran.err


BAD = [
    (("--tp", "1,x,4", "--dp", "4..2", "--seq", "1..8:x1"), ["'x' is no", "empty range", "never ends"]),
    (("--tp", "1,,2"), ["at --tp 1,,2"]),
    (("--seq", "1..100000", "--micro-batch", "1..100000", "--global-batch", "1..100"), ["1,000,000,000,000 points", "10"]),
    (("--tp", "1..200000"), ["100000"]),
    (("--dtype", "bf16,foo", "--zero", "1,4", "--layout", "none,megatronn"), ["zero 4", "'foo'", "did you mean megatron"]),
    (("--set", "model.hiden_size=1,2"), ["did you mean hidden_size?"]),
    (("--set", "foo"), ["sets nothing"]),
    (("--hardware", "h100,zzz"), ["unknown hardware preset 'zzz'"]),
    (("--efficiency", "nan,0.5"), ["'nan'"]),
    (("--tp", "1,2", "--set", "parallelism.tp=4"), ["given twice"]),
    (("--tp", "1,2", "--where", "tp <"), ["this is no condition", "    tp <\n        ^"]),
    (("--tp", "1,2", "--where", "tq < 1 and f(2) or step_com_s > 1e999"),
     ["no column 'tq'", "not allowed", "did you mean step_comm_s?", "no number that", "^^^^"]),
    (("--tp", "1,2", "--where", "__import__('os').system('x')"), ["not allowed"]),
    (("--tp", "1,2", "--where", "tp ** 99 > 1"), ["not allowed"]),
    (("--tp", "1,2", "--where", "(" * 300 + "1" + ")" * 300), ["this is no condition"]),
    (("--tp", "1,2", "--where", "step_comm_s > nan"), ["no column 'nan'"]),
    (("--tp", "1,2", "--where", "dtype == 3", "--dtype", "bf16,fp8"), ["a text is compared with a number"]),
    (("--tp", "1,2", "--columns", "totals.step.tp.time_z,foo", "--by", "bar", "--top", "0"),
     ["did you mean totals.step.tp.time_s", "unknown column 'foo'", "unknown column 'bar'", "'0' is not above zero"]),
    (("--tp", "1,2", "--top", "3"), ["--top needs to know by what"]),
    (("--tp", "1,2", "--by", "tp"), ["add --top K"]),
    (("--tp", "1,2", "--format", "table"), ["jsonl or csv"]),
    (("--tp", "1,2", "--format", "xml"), ["unknown format 'xml'"]),
]  # fmt: skip


@pytest.mark.parametrize(("args", "told"), BAD, ids=[" ".join(args)[:40] for args, _ in BAD])
def test_bad_input_is_told_all_at_once(args: tuple[str, ...], told: list[str], inside: Inside) -> None:
    hardware = () if "--hardware" in args else ("--hardware", "h100")
    ran = inside("sweep", "--model", "llama-3-8b", *hardware, *args)
    assert (ran.status, ran.out) == (2, "")
    for text in told:
        assert text in ran.err, ran.err
    assert "Traceback" not in ran.err


def test_one_document_is_no_stream(inside: Inside) -> None:
    ran = inside("sweep", *MODEL, "--tp", "1,2", "--json")
    assert (ran.status, ran.json["error"]["hint"]) == (2, "--format jsonl or csv")


def test_a_large_grid_is_looked_at_for_the_best(inside: Inside) -> None:
    ran = inside("sweep", *MODEL, "--seq", "1..100000", "--micro-batch", "1..100000", "--top", "1", "--by", "seq",
                 "--global-batch", "1..2")  # fmt: skip
    assert ran.status == 2
    assert "at most 10,000,000,000 are looked at" in ran.err


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "commcalc", "sweep", *MODEL, *args]


def test_a_closed_pipe_ends_quietly() -> None:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", '"$@" | head -n 2', "-", *command(*MANY)], capture_output=True,
        env=environment(), timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (0, b"", 2)


@pytest.mark.parametrize("into", ["pipe", "file"])
def test_what_is_written_before_ctrl_c_is_whole_lines(into: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("wb") as file:
        process = subprocess.Popen(
            command("--seq", "1..100000", "--micro-batch", "1..100"), stdout=file if into == "file" else subprocess.PIPE,
            stderr=subprocess.PIPE, env=environment(),
        )  # fmt: skip
        text = b""
        if process.stdout is not None:
            text = os.read(process.stdout.fileno(), 4096)
        deadline = time.monotonic() + 30
        while into == "file" and not path.stat().st_size and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        more, told = process.communicate(timeout=60)
    text = path.read_bytes() if into == "file" else text + more
    assert (process.returncode, told) == (130, b"")
    assert text.endswith(b"}\n")
    assert all(json.loads(line) for line in text.splitlines())


def test_a_full_disk_is_told_and_leaves_whole_lines(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command("--tp", "1,2"), stdout=full, stderr=subprocess.PIPE, env=environment())
    assert (done.returncode, b"no space left" in done.stderr) == (2, True)
    path = tmp_path / "out"
    with path.open("wb") as file:
        done = subprocess.run(
            command(*MANY), stdout=file, stderr=subprocess.PIPE, env=environment(), timeout=60,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_001, 1_000_001)),
        )  # fmt: skip
    assert done.returncode == 2
    assert b"cannot write" in done.stderr
    text = path.read_bytes()
    assert 990_000 < len(text) < 1_000_001
    assert text.endswith(b"}\n")


def test_memory_is_flat() -> None:
    peaks = []
    for lengths in (1000, 20000):
        process = subprocess.Popen(
            command("--seq", f"1..{lengths}", "--micro-batch", "1..16"), stdout=subprocess.DEVNULL, env=environment()
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        peaks.append(usage.ru_maxrss)
    assert peaks[1] < 1.5 * peaks[0]


def test_a_job_from_stdin_is_the_base() -> None:
    job = "{model: llama-3-8b, hardware: h100, parallelism: {tp: 8}, workload: {sequence_length: 2048}}"
    ran = run_commcalc("sweep", "-", "--micro-batch", "1,2", "--columns", "inputs.parallelism.tp", stdin=job)
    assert [line["inputs.parallelism.tp"] for line in lines(ran)] == [8, 8]
