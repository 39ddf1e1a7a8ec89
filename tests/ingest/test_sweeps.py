"""Logs of collective benchmarks, whole and damaged: what is read from them, and what is said of those that cannot be."""

# ruff: noqa: E501 - tables of lines as logs hold them

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commcalc.algebra.collective import Kind, wire_ratio
from commcalc.errors import CommcalcError, SpecError
from commcalc.ingest.nccl_tests import LONGEST_LINE, read_log, read_sweeps
from commcalc.ingest.sweeps import LogSweep, Row
from conftest import DATA

LOGS = DATA / "logs"
EXPECTED = json.loads((LOGS / "EXPECTED.json").read_text())
KIND = {"alltoall": Kind.ALL_TO_ALL, "sendrecv": Kind.SEND_RECV}
REFUSED = "15_no_mpi_each_process_alone.txt"

CONFIG = "# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n"
DEVICES = "#\n# Using devices\n" + "".join(
    f"#  Rank {rank:2} Group  0 Pid   {500 + rank} on     node-a device  {rank} [0x1b] NVIDIA H100 80GB HBM3\n"
    for rank in range(8)
)
PLACES = "#\n#                                                              out-of-place                       in-place          \n"
HEAD = PLACES + (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       \n"
)
# An AllReduce over 8 ranks.
ROW_1M = "     1048576        262144     float     sum      -1    40.00   26.21   45.88      0    41.00   25.58   44.76      0\n"
ROW_2M = "     2097152        524288     float     sum      -1    50.00   41.94   73.40      0    52.00   40.33   70.58      0\n"
ROW_4M = "     4194304       1048576     float     sum      -1    80.00   52.43   91.75      0    81.00   51.78   90.62      0\n"
FOOT = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 69.4979 \n#\n"
TABLE = HEAD + ROW_1M + ROW_2M + ROW_4M
WHOLE = CONFIG + DEVICES + TABLE + FOOT
TIMES = {1048576: (40.0, 41.0), 2097152: (50.0, 52.0), 4194304: (80.0, 81.0)}


def read(text: str, source: str = "log.txt") -> list[LogSweep]:
    return read_sweeps(text.splitlines(keepends=True), source)


def one(text: str, source: str = "log.txt") -> LogSweep:
    (sweep,) = read(text, source)
    return sweep


def microseconds(sweep: LogSweep) -> dict[int, tuple[float | None, float | None]]:
    def us(seconds: float | None) -> float | None:
        return None if seconds is None else round(seconds * 1e6, 6)

    return {row.size_bytes: (us(row.out_s), us(row.in_s)) for row in sweep.rows}


def error(text: str, source: str = "log.txt") -> CommcalcError:
    with pytest.raises(SpecError) as caught:
        read(text, source)
    return caught.value


# The sample logs.


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - {REFUSED}))
def test_sample(name: str) -> None:
    expected = EXPECTED[name]
    found = read_log(str(LOGS / name))
    assert len(found) == len(expected["sweeps"])
    for sweep, wanted in zip(found, expected["sweeps"], strict=True):
        last = sweep.rows[-1]
        assert sweep.source == str(LOGS / name)
        assert len(sweep.rows) == wanted["rows"]
        assert sweep.ranks == wanted.get("ranks")
        if "collective" in wanted:
            assert sweep.collective == KIND.get(wanted["collective"], wanted["collective"])
            assert sweep.dtype == wanted["dtype"]
            assert sweep.rows[0].size_bytes == wanted["first_size"]
            assert last.size_bytes == wanted["last_size"]
            # One sample was measured to more digits than their lines show.
            assert last.out_s == pytest.approx(wanted["last_time_out_us"] / 1e6, rel=2e-5)
            assert last.in_s == pytest.approx(wanted["last_time_in_us"] / 1e6, rel=2e-5)
        else:
            assert wanted["tool"].startswith(sweep.tool)
            assert sweep.collective == Kind.ALL_REDUCE
            if "last_size" in wanted:
                assert (last.size_bytes, last.best_s) == (wanted["last_size"], wanted["last_time_us"] / 1e6)
        assert sweep.zero_rows == wanted.get("zero_rows", 0)
        assert sweep.torn_rows == wanted.get("torn_rows", 0)
        assert sweep.failed_size == wanted.get("failed_size")
        average = wanted.get("avg_busbw", expected.get("avg_busbw"))
        if average is not None:
            assert sweep.average_busbw == pytest.approx(average, abs=5e-3)
            assert sweep.printed_busbw == pytest.approx(average, abs=5e-3)
        assert not any("missing" in note for note in sweep.notes)


def test_the_sample_of_processes_alone_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        read_log(str(LOGS / REFUSED))
    assert caught.value.message == "2 runs of one rank each: nothing crossed a link"
    assert caught.value.hint is not None and "MPI=1" in caught.value.hint


def test_what_else_the_samples_say() -> None:
    tools = {name[:2]: read_log(str(LOGS / name))[0].tool for name in sorted(set(EXPECTED) - {REFUSED})}
    assert tools["07"] == "rccl-tests" and tools["13"] == "nccl-tests json" and tools["01"] == "nccl-tests"
    eight = read_log(str(LOGS / "08_new_2.18_b200x8_five_collectives.txt"))
    assert {sweep.gpus_per_process for sweep in eight} == {8}
    assert not eight[0].graph and eight[0].out_of_bounds == 0
    assert [sweep.rows[0].line for sweep in eight] == [18, 68, 119, 170, 221]
    assert read_log(str(LOGS / "13_json_h100x8.json"))[0].rows[0].line == 116


# One run, damaged in every way that was seen. All of these read back to the same three rows.


def prefixed(text: str, prefix: str) -> str:
    return "".join(prefix + line for line in text.splitlines(keepends=True))


def torn(text: str, at: str, between: str) -> str:
    """The row of 2 MiB broken before its text ``at``."""
    return text.replace(ROW_2M, ROW_2M.replace(at, between + at, 1))


INFO = "node-01:500:577 [0] NCCL INFO Connected all rings\n"
SAME = {
    "whole": WHOLE,
    "mpirun --tag-output": prefixed(WHOLE, "[1,0]<stdout>:"),
    "mpirun tag with a blank": prefixed(WHOLE, "[1, 0]<stdout>: "),
    "mpirun tags of errors between": prefixed(WHOLE, "[1,0]<stdout>:").replace("[1,0]<stdout>:     2097152", "[1,3]<stderr>:node: warning 7\n[1,0]<stdout>:     2097152"),
    "prterun": prefixed(WHOLE, "[prterun-node-01-4242@1,0]<stdout>: "),
    "srun -l": prefixed(WHOLE, " 0: "),
    "srun -l, others between": prefixed(WHOLE, "0: ").replace("0:      2097152", "7: node-b:1:2 [7] NCCL INFO comm 0x5 rank 7 nranks 8 cudaDev 7\n0:      2097152"),
    "mpiexec -l": prefixed(WHOLE, "[0] "),
    "mpiexec -l with flushes inside a row": prefixed(WHOLE, "[0] ").replace("sum      -1 ", "sum      -1[0] ").replace("      0    52.00", "      0[0]    52.00"),
    "time stamp of a collector": prefixed(WHOLE, "2025-06-01T00:00:00.000Z "),
    "pod and container": prefixed(WHOLE, "pod/worker-0 "),
    "worker": prefixed(WHOLE, "worker-0: "),
    "two prefixes": prefixed(WHOLE, "2025-06-01T00:00:00.000Z [1,0]<stdout>:"),
    "quoted": prefixed(WHOLE, "> "),
    "quoted twice": prefixed(WHOLE, "> > "),
    "indented": prefixed(WHOLE, "        "),
    "hashes stripped": WHOLE.replace("#wrong", "wrong").replace("#", " "),
    "hashes of the heads only": WHOLE.replace("\n#", "\n"),
    "tabs": WHOLE.replace("    ", "\t"),
    "one blank between": "".join(" ".join(line.split()) + "\n" for line in WHOLE.splitlines()),
    "no-break spaces": WHOLE.replace(" ", "\xa0"),
    "colour": "".join(f"\x1b[32m{line}\x1b[0m\n" for line in WHOLE.splitlines()),
    "colour within a row": WHOLE.replace("40.00", "\x1b[1;31m40.00\x1b[m"),
    "carriage returns": WHOLE.replace("\n", "\r\n"),
    "byte order mark": "\ufeff" + WHOLE,
    "typographic minus": WHOLE.replace(" -1 ", " \u22121 "),
    "a Markdown table": "".join("| " + " | ".join(line.split()) + " |\n" if line[0] != "#" else line for line in WHOLE.splitlines(keepends=True)),
    "torn before the root": torn(WHOLE, "     -1 ", INFO),
    "torn after the root": torn(WHOLE, "   50.00", INFO),
    "torn between the blocks": torn(WHOLE, "   52.00", INFO),
    "torn in the second block": torn(WHOLE, "  40.33", INFO),
    "torn, several lines between": torn(WHOLE, "   50.00", INFO + "node-02: UCX WARN  transport\n" + INFO + "--------\n\n"),
    "torn twice": torn(torn(WHOLE, "   50.00", INFO).replace("   52.00", INFO + "   52.00"), "nothing", ""),
    "torn under labels": prefixed(torn(WHOLE, "     -1 ", "[3]" + INFO), "[0] "),
    "torn under srun labels": prefixed(torn(WHOLE, "   50.00", INFO), "0: "),
    "torn by a warning with a date": torn(WHOLE, "     -1 ", "[2026-01-01 00:00:00] node-01:500:577 [0] misc/socket.cc:1 NCCL WARN socket\n"),
    "messages between": WHOLE.replace(ROW_2M, "NCCL version 2.26.2+cuda12.8\nWarning: Permanently added 'node-01' (ED25519)\n" + INFO + ROW_2M + "[node-01:00042] PMIX ERROR: 12 in file x.c at line 4\n"),
    "commands echoed": "+ mpirun -np 8 -x NCCL_DEBUG=INFO \\\n  -x LD_LIBRARY_PATH ./build/all_reduce_perf -b 1M -e 4M -f 2 -g 1\n" + WHOLE,
    "a time stamp column": WHOLE.replace("  44.76      0\n", "  44.76      0 2026-01-31 12:00:00\n").replace("70.58      0", "70.58      0 2026-01-31 12:00:01").replace("90.62      0", "90.62      0 2026-01-31T12:00:02"),
    "#wrong not counted": WHOLE.replace("      0", "    N/A"),
    "#wrong wider (2.17)": WHOLE.replace("#wrong", " #wrong").replace("      0 ", "       0 "),
    "errors as floats": WHOLE.replace("#wrong", " error").replace("      0 ", "  5e-07 "),
    "an asterisk after the error": WHOLE.replace("45.88      0", "45.88  1e-05*").replace("#wrong", "error"),
    "e-notation": WHOLE.replace("   50.00", " 5.00e+01"),
    "optional lines": WHOLE.replace("# Using", "# GPU memory usage : 1 MB\n# Blocking Enabled: wait for completion\n# Parallel Init Enabled: threads\n#\n# Reducing maxBytes to 4194304 due to memory limitation\n# Using"),
    "names of the test": "# nccl-tests version 2.18.3 nccl-headers=22903 nccl-library=22903\n# Collective test starting: all_reduce_perf\n" + WHOLE + "# Collective test concluded: all_reduce_perf\n",
    "no device list": CONFIG + TABLE + FOOT,
    "no configuration line": DEVICES + TABLE + FOOT,
    "no header": CONFIG + DEVICES + ROW_1M + ROW_2M + ROW_4M + FOOT,
    "rows alone": ROW_1M + ROW_2M + ROW_4M,
    "headless": " 579.3    0.00    0.00      0    137.0    0.00    0.00      0\n" + ROW_1M + ROW_2M + ROW_4M + FOOT,
    "ranks elided": CONFIG + DEVICES.splitlines()[2] + "\n#  Rank  0 Group  0 Pid 5 on node-a device  0 [0x1b] NVIDIA H100\n......\n" + TABLE,
    "a title": "### all_reduce\n" + WHOLE,
    "rows of size 0": WHOLE.replace(ROW_1M, ROW_1M.replace("1048576        262144", "      0             0").replace("40.00   26.21   45.88", " 0.10    0.00    0.00").replace("41.00   25.58   44.76", " 0.10    0.00    0.00") + ROW_1M),
    "underscores and commas": WHOLE.replace("    1048576 ", "  1_048_576 ").replace("    2097152 ", "  2,097,152 "),
    "counts rounded, sizes with a unit": WHOLE.replace("1048576        262144", "1M   2.62e+5").replace("2097152        524288", "2MiB 5.24e+5"),
    "bandwidths redacted": WHOLE.replace("45.88", "XX.XX").replace("26.21", "XX.XX"),
    "a column more": WHOLE.replace("#wrong\n", "#wrong  power\n").replace("    0\n", "    0    612\n"),
    "labels of rows cut off": prefixed(WHOLE, "12:34:56 "),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_damage_changes_nothing(name: str) -> None:
    sweep = one(SAME[name])
    assert microseconds(sweep) == TIMES, sweep.notes
    assert (sweep.collective, sweep.ranks, sweep.dtype) == (Kind.ALL_REDUCE, 8, "float"), sweep.notes
    assert sweep.torn_rows == name.startswith("torn")
    assert sweep.zero_rows == (name == "rows of size 0")
    assert sweep.failed_size is None
    if name == "whole":
        assert sweep.notes == ("all_reduce, from the columns of the rows",)
        assert sweep.average_busbw == pytest.approx(69.4979, abs=5e-3)
        assert sweep.printed_busbw == 69.4979
        assert [row.line for row in sweep.rows] == [16, 17, 18]


def test_damage_that_takes_rows() -> None:
    gaps = one(CONFIG + DEVICES + HEAD + ROW_1M + "...\n" + ROW_4M + FOOT)
    assert list(microseconds(gaps)) == [1048576, 4194304]
    assert gaps.average_busbw is None and gaps.printed_busbw == 69.4979
    assert "rows were left out of the log" in gaps.notes
    cut = one(WHOLE.replace(ROW_1M, "# Truncated smaller message sizes\n"))
    assert cut.average_busbw is None and len(cut.rows) == 2
    silent = one(WHOLE.replace(ROW_2M, ""))
    assert silent.average_busbw == pytest.approx(68.25, abs=0.01)
    assert any("rows are missing" in note for note in silent.notes)
    given_up = one(torn(WHOLE, "   50.00", INFO).replace(ROW_2M[ROW_2M.index("   50.00") :], "garbage\n"))
    assert list(microseconds(given_up)) == [1048576, 4194304]
    assert any("unreadable" in note for note in given_up.notes)


@pytest.mark.parametrize(
    ("tail", "rows", "failed"),
    [
        (ROW_4M[:40] + "     -1node-077: Test NCCL failure common.cu:303 'remote process exited'\n .. node-077 pid 5: Test failure common.cu:401\n", 2, 4194304),
        (ROW_4M[:48] + "\n", 2, 4194304),
        (ROW_4M[:48] + "\nsrun: error: node-01: task 3: Exited with exit code 3\n", 2, 4194304),
        (ROW_4M[: ROW_4M.index("   81.00")], 3, None),  # the first block is whole
        (ROW_4M[:100], 3, None),
        (ROW_4M[:66], 2, None),
        (ROW_4M[:20], 2, None),
    ],
)  # fmt: skip
def test_the_end_of_a_log(tail: str, rows: int, failed: int | None) -> None:
    sweep = one(CONFIG + DEVICES + HEAD + ROW_1M + ROW_2M + tail)
    assert len(sweep.rows) == rows
    assert sweep.failed_size == failed
    assert sweep.average_busbw is None
    if rows == 3:
        assert (sweep.rows[-1].out_s, sweep.rows[-1].in_s) == (8e-5, None)
        assert sweep.rows[-1].best_s == 8e-5


def test_a_crash_and_then_another_run() -> None:
    crashed, after = read(CONFIG + DEVICES + HEAD + ROW_1M + ROW_2M[:48] + "\n" + WHOLE)
    assert (len(crashed.rows), crashed.failed_size) == (1, 2097152)
    assert (len(after.rows), after.failed_size) == (3, None)


# Generations of the format.

OLD_AG = """# nThread 1 nGpus 4 minBytes 8 maxBytes 1 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#   Rank  0 Pid  9 on node device  0 [0x00] A100
#   Rank  3 Pid  9 on node device  3 [0x00] A100
#                                             out-of-place                       in-place
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
     1048576         65536   float    40.00   26.21   19.66  0e+00    41.00   25.58   19.18  0e+00
  1073741824      67108864   float    12345   86.98   65.23  0e+00    12346   86.97   65.23  0e+00
"""
OLD_AR = """#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
     1048576        262144   float     sum    40.00   26.21   39.32  5e-07    41.00   25.58   38.36  5e-07
  1073741824     268435456   float     sum    12345   86.98  130.47  5e-07    12346   86.97  130.46  5e-07
"""
OLD_REDUCE = OLD_AR.replace("redop ", "redop root ").replace("sum ", "sum 0 ").replace("39.32", "26.21").replace("38.36", "25.58").replace("130.47", " 86.98").replace("130.46", " 86.97")  # fmt: skip
IN_PLACE = """#                                                               in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    40.00   26.21   45.88      0
     2097152        524288     float     sum      -1    50.00   41.94   73.40      0
"""
ITERATIONS = """#                                          out-of-place (+ per-iteration)            in-place (+ per-iteration)
#  size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw busbw #wrong i_min i_max i_p99 i_cv%
 1048576 524288 half sum -1 40.00 26.21 45.88 N/A 39.0 44.0 43.0 1.10 41.00 25.58 44.76 N/A 39.0 44.0 43.0 1.10
"""
VERSION_1 = """#                                      out-of-place                    in-place
#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res
     33554432       8388608   float     sum    0.640  52.43  91.75    0e+00    0.641  52.35  91.61    0e+00
"""
VERSION_1_ONE = """#      bytes             N    type      op     time  algbw  busbw      res
     33554432       8388608   float     sum    0.640  52.43  91.75    0e+00
"""


@pytest.mark.parametrize(
    ("text", "kind", "ranks", "size", "times"),
    [
        (OLD_AG, None, 4, 1073741824, (12345.0, 12346.0)),  # no column tells an AllGather from an AllToAll
        ("### all_gather\n" + OLD_AG, Kind.ALL_GATHER, 4, 1073741824, (12345.0, 12346.0)),
        (OLD_AR, Kind.ALL_REDUCE, 4, 1073741824, (12345.0, 12346.0)),
        (OLD_AR.split("\n", 1)[1], Kind.ALL_REDUCE, 4, 1073741824, (12345.0, 12346.0)),
        (OLD_REDUCE, None, None, 1073741824, (12345.0, 12346.0)),
        (OLD_REDUCE.split("\n", 1)[1], None, None, 1073741824, (12345.0, 12346.0)),
        (IN_PLACE, Kind.ALL_REDUCE, 8, 2097152, (None, 50.0)),
        (IN_PLACE.split("root", 1)[1].split("\n", 1)[1], Kind.ALL_REDUCE, 8, 2097152, (None, 50.0)),
        (ITERATIONS, Kind.ALL_REDUCE, 8, 1048576, (40.0, 41.0)),
        (ITERATIONS.split("i_cv%\n", 1)[1], Kind.ALL_REDUCE, 8, 1048576, (40.0, 41.0)),
        (VERSION_1, Kind.ALL_REDUCE, 8, 33554432, (640.0, 641.0)),
        (VERSION_1_ONE, Kind.ALL_REDUCE, 8, 33554432, (640.0, None)),
    ],
)
def test_generation(text: str, kind: Kind | None, ranks: int | None, size: int, times: tuple[float, float]) -> None:
    sweep = one(text)
    assert (sweep.collective, sweep.ranks) == (kind, ranks), sweep.notes
    assert sweep.rows[-1].size_bytes == size
    assert microseconds(sweep)[size] == times


def test_forms_of_numbers() -> None:
    rows = (
        "   1048576 262144 f8e4m3 sum 0 35.15 29.83 0.00 1.5e+06 12345.6 0.08 0.00 N/A\n"
        " 17179869184 4294967296 float sum -1 1.2e+06 14.32 25.05 0 324082 53.01 92.77 0\n"
    )
    large = one(rows.splitlines()[1])
    assert microseconds(large) == {17179869184: (1.2e6, 324082.0)}
    counted = one(HEAD + rows.splitlines()[0].replace("f8e4m3", "bfloat16").replace(" 0.00", " 52.20", 1))
    assert counted.out_of_bounds == 1_500_000


# Names and ranks.


def rows_of(redop: str, root: int, n: int, share: bool, factor: float) -> str:
    lines = []
    for size in (2**24, 2**26, 2**28):
        count, micro = size // 4 // (n if share else 1), size / 2e5
        algbw = size / micro / 1e3
        block = f"{micro:.1f} {algbw:.2f} {algbw * factor:.2f} 0"
        lines.append(f" {size} {count} float {redop} {root} {block} {block}\n")
    return "".join(lines)


AR8 = rows_of("sum", -1, 8, False, 1.75)
RS8 = rows_of("sum", -1, 8, True, 0.875)
AG8 = rows_of("none", -1, 8, True, 0.875)
SR8 = rows_of("none", -1, 8, False, 1.0)
BC8 = rows_of("none", 0, 8, False, 1.0)
RD8 = rows_of("sum", 0, 8, False, 1.0)
GA8 = rows_of("none", 0, 8, True, 0.875)
AR2 = rows_of("sum", -1, 2, False, 1.0)


@pytest.mark.parametrize(
    ("text", "source", "kind", "ranks", "note"),
    [
        (AR8, "log", Kind.ALL_REDUCE, 8, "8 ranks, from busbw/algbw"),
        (RS8, "log", Kind.REDUCE_SCATTER, 8, "reduce_scatter, from the columns of the rows"),
        (AG8, "log", None, 8, "the log does not say which collective: all_gather or alltoall or hypercube"),
        (AG8, "run_alltoall-2.log", Kind.ALL_TO_ALL, 8, "alltoall, from the file name"),
        (AG8, "/runs/all_reduce/AllGather.log", Kind.ALL_GATHER, 8, "all_gather, from the file name"),
        (AG8, "allreduce.log", None, 8, "the file name says all_reduce, the rows cannot be that"),
        ("### AllGather, 1 node\n" + AG8, "log", Kind.ALL_GATHER, 8, "all_gather, from a title line"),
        ("## all_gather\n" + AG8, "allreduce.log", Kind.ALL_GATHER, 8, "all_gather, from a title line"),
        ("$ ./alltoall_perf -b 8 -e 1G\n" + AG8, "log", Kind.ALL_TO_ALL, 8, "alltoall, from the command"),
        ("mpirun -np 8 x/hypercube_perf -b 8\n" + AG8, "log", None, 8, "hypercube is no supported collective"),
        ("# Collective test starting: gather_perf\n" + GA8, "log", None, 8, "gather is no supported collective"),
        ("# Collective test starting: all_gather_perf\n" + AG8, "log", Kind.ALL_GATHER, 8, None),
        (SR8, "log", Kind.SEND_RECV, None, "sendrecv, from the columns of the rows"),
        (BC8, "log", Kind.BROADCAST, None, "broadcast, from the columns of the rows"),
        (RD8, "log", None, None, "reduce is no supported collective"),
        (GA8, "log", None, 8, "the log does not say which collective: gather or scatter"),
        (AR2, "log", Kind.ALL_REDUCE, 2, "2 ranks, from busbw/algbw"),
        ("+ mpirun -np 8 -x A ./sendrecv_perf -n 20\n" + SR8, "log", Kind.SEND_RECV, 8, "8 ranks, from the command"),
        ("srun -N 2 --ntasks=16 x/sendrecv_perf\n" + SR8, "log", Kind.SEND_RECV, 16, "16 ranks, from the command"),
        ("mpirun -np 2 x/all_reduce_perf -g 8\n" + AR8, "log", Kind.ALL_REDUCE, 8, "8 ranks, from busbw/algbw"),
        (CONFIG.replace("nGpus 1", "nGpus 8") + SR8, "log", Kind.SEND_RECV, 8, "8 ranks, from the configuration line taken for one process"),
        (prefixed(CONFIG, "0: ") + "7: h:1:2 [7] NCCL INFO x\n" + SR8, "log", Kind.SEND_RECV, 8, "8 ranks, from task labels"),
        ("h:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 8 cudaDev 0\n" + SR8, "log", Kind.SEND_RECV, 8, None),
        (DEVICES + rows_of("sum", -1, 8, False, 1.5), "log", Kind.ALL_REDUCE, 8, "busbw/algbw is 1.5, which all_reduce over 8 ranks does not give"),
        (DEVICES.replace("Group  0", "Group  1", 4) + rows_of("sum", -1, 4, False, 1.5), "log", Kind.ALL_REDUCE, 4, "8 ranks in 2 groups that run at the same time"),
        (rows_of("sum", -1, 64, False, 2 * 63 / 64), "log", Kind.ALL_REDUCE, 64, "64 ranks, from busbw/algbw"),
        (rows_of("sum", -1, 512, False, 2 * 511 / 512), "log", Kind.ALL_REDUCE, 512, "fit busbw/algbw"),
        (" 8 2 float sum -1 40.0 0.00 0.00 0 40.0 0.00 0.00 0\n", "log", Kind.ALL_REDUCE, None, None),
        ("graph\n" + CONFIG.replace("graph: 0", "graph: 20") + AR8, "log", Kind.ALL_REDUCE, 8, None),
    ],
)  # fmt: skip
def test_names_and_ranks(text: str, source: str, kind: Kind | None, ranks: int | None, note: str | None) -> None:
    sweep = one(text, source)
    assert (sweep.collective, sweep.ranks) == (kind, ranks), sweep.notes
    assert sweep.graph == text.startswith("graph")
    if note is not None:
        assert any(note in said for said in sweep.notes), sweep.notes


# Several runs, types and cycles.


def test_runs_one_after_another() -> None:
    other = WHOLE.replace("float", "half").replace("262144", "524288").replace("        524288     half", "       1048576      half")  # fmt: skip
    assert [sweep.dtype for sweep in read(WHOLE + WHOLE + CONFIG + DEVICES + TABLE)] == ["float"] * 3
    assert [len(sweep.rows) for sweep in read(TABLE + FOOT + TABLE)] == [3, 3]
    assert [len(sweep.rows) for sweep in read(TABLE + HEAD + ROW_2M)] == [3, 1]
    assert [len(sweep.rows) for sweep in read(ROW_2M + ROW_4M + ROW_1M + ROW_2M)] == [2, 2]
    assert [len(sweep.rows) for sweep in read("$ ./all_reduce_perf\n" + AR8 + "$ ./all_gather_perf -b 8\n" + AG8)] == [3, 3]  # fmt: skip
    assert {sweep.ranks for sweep in read(WHOLE + TABLE)} == {8}
    assert len(read(WHOLE + other)) == 2


def test_cycles_are_one_sweep() -> None:
    for text in (
        CONFIG
        + DEVICES
        + HEAD
        + "# Testing 1 cycle.\n"
        + (ROW_1M + ROW_2M)
        + "# Testing 2 cycle.\n"
        + (ROW_1M + ROW_2M),
        HEAD + (ROW_1M + ROW_2M) * 2 + FOOT,
        "# Testing 1 cycle.\n" + HEAD + ROW_1M + ROW_2M + "# Testing 2 cycle.\n" + HEAD + ROW_1M + ROW_2M,
    ):
        sweep = one(text)
        assert [row.size_bytes for row in sweep.rows] == [1048576, 2097152] * 2
        assert "2 cycles over the same sizes" in sweep.notes
    assert len(one(ROW_1M * 3).rows) == 3


def test_all_types_of_one_run() -> None:
    types = [AR8, AR8.replace("float", "int32"), AR8.replace("float", "uint32").replace("sum", "max")]
    found = read(HEAD + "".join(types) + "# Avg bus bandwidth : 350.0\n")
    assert [(sweep.dtype, len(sweep.rows)) for sweep in found] == [("float", 3), ("int32", 3), ("uint32", 3)]
    assert [sweep.average_busbw for sweep in found] == [pytest.approx(350.0, abs=0.01)] * 3
    again = read(HEAD + "".join(types) * 2)
    assert [len(sweep.rows) for sweep in again] == [6, 6, 6]


def test_sizes_out_of_order() -> None:
    falling = one(ROW_4M + ROW_2M + ROW_1M)
    assert [row.size_bytes for row in falling.rows] == [4194304, 2097152, 1048576]
    assert "sizes out of order: they fall from line 1 on" in falling.notes
    mixed = one(ROW_1M + ROW_4M + ROW_2M)
    assert "sizes out of order at line 3" in mixed.notes and len(mixed.rows) == 3


def test_wrong_values_are_told() -> None:
    assert one(WHOLE.replace("values : 0 OK", "values : 17 FAILED")).out_of_bounds == 17
    assert one(TABLE.replace("45.88      0", "45.88      3")).out_of_bounds == 3


def test_times_that_cannot_be() -> None:
    for bad in ("0.00", "-1.00", "nan", "inf", "XX.XX", "1e+300"):
        sweep = one(WHOLE.replace("   50.00   41.94   73.40", f" {bad} nan nan"))
        assert microseconds(sweep)[2097152] == (None, 52.0)
        assert "line 17: a time that is not above 0 left out" in sweep.notes
        both = one(WHOLE.replace(ROW_2M, f" 2097152 524288 float sum -1 {bad} nan nan 0 {bad} nan nan 0\n"))
        assert list(microseconds(both)) == [1048576, 4194304]


def test_a_row_that_contradicts_itself_is_left_out() -> None:
    sweep = one(WHOLE.replace("   50.00   41.94", "   50.00   11.94"))
    assert list(microseconds(sweep)) == [1048576, 4194304]
    assert "line 17: left out: algbw is not size/time" in sweep.notes


# rccl-tests, nccom-test and others.

RCCL = (
    "RCCL version : 2.22.3-HEAD:abc\nHIP version  : 6.4\nROCm version : 6.4.0.0\nHostname     : gpu-0\nLibrccl path : /opt/rocm/lib/librccl.so.1\n"
    + CONFIG
    + "#\nrccl-tests: Version develop:a7809b3\n# Using devices\n"
    + "".join(f"#   Rank  {n} Pid  70{n} on gpu-0 device  {n} [0000:05:00.0] AMD Radeon Graphics\n" for n in range(8))
    + TABLE
    + "# Errors with asterisks indicate errors that have exceeded the maximum threshold.\n"
    + FOOT
)
NCCOM = """nccom-test -r 4 -b 16MB -e 64MB allr
size(B)   count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)
 16777216      4194304     fp32       400.0          39.06          58.59
 67108864     16777216     fp32      1600.0          39.06          58.59
Avg bus bandwidth:\t58.59GB/s
"""
PARAM = (
    "\tCOMMS-RES\ttotal-size (B)\tnElementsPerRank\tTime(us):p50\tp75\tp95\tMin\tMax\tAlgBW(GB/s)\tBusBW(GB/s)\n"
    "\tCOMMS-RES-all_reduce-float32\t16777216\t4194304\t200.0\t210.0\t220.0\t190.0\t230.0\t83.886\t146.801\n"
    "\tCOMMS-RES-all_reduce-float32\t67108864\t16777216\t500.0\t510.0\t520.0\t490.0\t530.0\t134.218\t234.881\n"
)
PARAM_SHORT = "0: \tCOMMS-RES-all_reduce-float32  1073741824  41.187  77.226\n"
BENCH = """The average bandwidth of all_reduce over 8 ranks (5 warmups / 20 trials):

| payload |    busbw   |    algbw   |
| ------: | ---------: | ---------: |
|   32KiB |   1.44GBps |   0.82GBps |
|    1GiB | 466.38GBps | 266.50GBps |
"""
DEEPSPEED = """---- Performance of all_reduce on 8 devices ---------------------------------------------------------
Size (Bytes)     Description    Duration        Throughput (Gbps)    BusBW (Gbps)
16.0 MB          2048x1         1.25 ms         13.4                 23.4
1073741824       4096x1         4500 us         1908.9               3340.5
"""


def test_rccl() -> None:
    sweep = one(RCCL)
    assert (sweep.tool, sweep.ranks, microseconds(sweep)) == ("rccl-tests", 8, TIMES)
    assert (
        one("# rccl-tests version 2.17.9-develop:1 rccl-headers=22803 rccl-library=22707\n" + TABLE).tool
        == "rccl-tests"
    )


def test_nccom_means_gib() -> None:
    sweep = one(NCCOM)
    assert (sweep.tool, sweep.collective, sweep.ranks) == ("nccom-test", Kind.ALL_REDUCE, 4)
    assert microseconds(sweep) == {16777216: (400.0, None), 67108864: (1600.0, None)}
    assert sweep.printed_busbw == pytest.approx(58.59 * 2**30 / 1e9)
    assert sweep.average_busbw == pytest.approx(sweep.printed_busbw, rel=1e-3)
    assert one(NCCOM.split("\n", 1)[1]).ranks == 4


def test_param() -> None:
    sweep = one(PARAM)
    assert (sweep.tool, sweep.collective, sweep.ranks, sweep.dtype) == ("PARAM", Kind.ALL_REDUCE, 8, "float32")
    assert microseconds(sweep) == {16777216: (200.0, None), 67108864: (500.0, None)}
    assert "PARAM prints medians, not means" in sweep.notes
    short = one(PARAM_SHORT)
    assert short.ranks == 16 and short.rows[0].best_s == pytest.approx(1073741824 / 41.187e9)
    assert one(PARAM.replace("all_reduce-float32", "all_gather-half-compressed").replace("146.801", "73.400").replace("234.881", "117.441")).dtype == "half-compressed"  # fmt: skip


def test_all_reduce_bench() -> None:
    sweep = one(BENCH)
    assert (sweep.tool, sweep.collective, sweep.ranks) == ("all_reduce_bench", Kind.ALL_REDUCE, 8)
    assert [row.size_bytes for row in sweep.rows] == [32768, 2**30]
    assert sweep.rows[1].best_s == pytest.approx(2**30 / 266.5e9)
    bare = one("\n".join(BENCH.splitlines()[4:]))
    assert (bare.ranks, len(bare.rows)) == (8, 2)
    swapped = one(BENCH.replace("   busbw   |    algbw", "   algbw   |    busbw").replace("over 8 ranks", ""))
    assert swapped.rows[1].best_s == pytest.approx(2**30 / 466.38e9)


def test_deepspeed() -> None:
    sweep = one(DEEPSPEED)
    assert (sweep.tool, sweep.collective, sweep.ranks) == ("DeepSpeed", Kind.ALL_REDUCE, 8)
    assert microseconds(sweep) == {16777216: (1250.0, None), 1073741824: (4500.0, None)}


@pytest.mark.parametrize(
    ("text", "kind", "ranks", "rows", "note"),
    [
        ("# OSU MPI-CUDA Allreduce Latency Test v7.0\n# Size Avg Latency(us)\n4 1.98\nnode warning 3\n8 2.04\n", Kind.ALL_REDUCE, None, {4: 1.98, 8: 2.04}, "OSU prints no number of ranks"),
        ("# OSU MPI-ROCM Allreduce Latency Test v7.5\n# Size Avg Latency(us) Min Latency(us) Max Latency(us) Iterations P50 Validation\n4 1.98 1.0 2.0 100 1.9 Pass\n", Kind.ALL_REDUCE, None, {4: 1.98}, None),
        ("0: # OSU NCCL Allreduce Latency Test\n0: # Size Avg Latency(us)\n0: 4 1.98\n", Kind.ALL_REDUCE, None, {4: 1.98}, None),
        ("mpirun -np 4 ./osu_allgather -f\n# OSU MPI Allgather Latency Test v7.4\n# Size Avg Latency(us)\n4 1.98\n", Kind.ALL_GATHER, 4, {16: 1.98}, "multiplied by the ranks"),
        ("# OSU MPI All-to-All Latency Test v7.4\n# Size Avg Latency(us)\n4 1.98\n", Kind.ALL_TO_ALL, None, {4: 1.98}, "multiply by the ranks"),
        ("# OSU MPI-CUDA Latency Test v7.0\n# Size Latency (us)\n4 1.98\n", Kind.SEND_RECV, 2, {4: 1.98}, "one message from rank to rank"),
        ("# OSU MPI-CUDA Bandwidth Test v7.0\n# Size Bandwidth (MB/s)\n1048576 20000.00\n", Kind.SEND_RECV, 2, {1048576: 52.4288}, "times follow from the bandwidth"),
        ("# OSU MPI Reduce Latency Test v7.0\n# Size Avg Latency(us)\n4 1.98\n", None, None, {4: 1.98}, "reduce is no supported collective"),
    ],
)  # fmt: skip
def test_osu(text: str, kind: Kind | None, ranks: int | None, rows: dict[int, float], note: str | None) -> None:
    sweep = one(text)
    assert (sweep.tool, sweep.collective, sweep.ranks) == ("osu", kind, ranks), sweep.notes
    assert {size: out for size, (out, _) in microseconds(sweep).items()} == rows
    assert note is None or any(note in said for said in sweep.notes)


def test_ranks_told_by_the_user_make_payloads_of_shares() -> None:
    sweep = one("# OSU MPI Allgather Latency Test v7.4\n# Size Avg Latency(us)\n4 1.98\n")
    assert sweep.with_ranks(8).rows == (Row(32, 1.98e-6, None, 3),)
    assert sweep.with_ranks(8).with_ranks(8).rows[0].size_bytes == 32
    assert one(WHOLE).with_ranks(8).rows == one(WHOLE).rows


def test_a_table_made_by_hand() -> None:
    text = "| size (B) | time (us) | algbw (GB/s) | busbw (GB/s) |\n|---|---|---|---|\n| 16M | 200.0 | 83.89 | 146.80 |\n| 64M | 500.0 | 134.22 | 234.88 |\n"
    sweep = one(text, "allreduce.md")
    assert (sweep.collective, sweep.ranks) == (Kind.ALL_REDUCE, 8)
    assert [row.best_s for row in sweep.rows] == [2e-4, 5e-4]


# JSON.


def document(**changes: object) -> dict[str, object]:
    block = {"time": 40.0, "alg_bw": 26.2144, "bus_bw": 45.8752, "nwrong": 0}
    result = {"size": 1048576, "count": 524288, "type": "half", "redop": "sum", "root": "-1", "out_of_place": block, "in_place": {**block, "time": 41.0}}  # fmt: skip
    return {
        "version": 3,
        "args": ["/opt/build/all_reduce_perf", "-b", "8"],
        "env": ["TOKEN=secret"],
        "config": {"nthreads": 1, "ngpus": 2, "graph": 0, "devices": [{"rank": n, "group": 0} for n in range(8)]},
        "results": [result, {**result, "size": 2097152, "count": 1048576, "out_of_place": {"time": 50.0}}],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 45.0, "okay": "unchecked"},
        **changes,
    }


def test_json() -> None:
    sweep = one(json.dumps(document(), indent=1))
    assert (sweep.collective, sweep.ranks, sweep.dtype, sweep.gpus_per_process) == (Kind.ALL_REDUCE, 8, "half", 2)
    assert microseconds(sweep) == {1048576: (40.0, 41.0), 2097152: (50.0, 41.0)}
    assert "secret" not in repr(sweep)
    assert one(json.dumps(document())) == one(json.dumps(document()) + "\n")._replace()
    assert len(read(json.dumps(document()) + "\n" + json.dumps(document()))) == 2
    timed = json.dumps(document()).replace('"time"', '"cpu_time"')
    assert microseconds(one(timed)) == microseconds(sweep)
    assert one(json.dumps(document(out_of_bounds={"count": 4}))).out_of_bounds == 4
    assert one(json.dumps(document(config={"ngpus": 1, "graph": 3}))).graph


@pytest.mark.parametrize("value", ["nan", None, 0, -1, True, 1e308, "40", [], 10**400])
def test_json_with_times_that_cannot_be(value: object) -> None:
    wrong = json.dumps(document()).replace('"time": 40.0', f'"time": {json.dumps(value) if value != 10**400 else "1" + "0" * 400}')  # fmt: skip
    assert microseconds(one(wrong))[1048576] == (None, 41.0)


def test_json_cut_off_by_a_crash() -> None:
    text = json.dumps(document(), indent=1)
    cut = one(text[: text.index('"size": 2097152') + 40])
    assert list(microseconds(cut)) == [1048576]
    assert cut.ranks == 8 and "the file ends in mid-run: whole results were read" in cut.notes
    assert "not valid JSON" in error(text[:80]).message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}', "JSON without a list `results`; its keys: a"),
        ('{"results": []}', "no rows"),
        ('{"results": [1, null, {"size": "x"}, {"size": -8}]}', "no rows"),
        ("{" * 100_000, "not valid JSON"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"results": [{"size": 8}], "x": }', "not valid JSON"),
    ],
)
def test_json_that_cannot_be_read(text: str, message: str) -> None:
    assert message in error(text).message


# Bad input.

ALONE = (CONFIG + "#\n# Using devices\n#  Rank  0 Group  0 Pid  5 on node-a device  0 [0x1b] NVIDIA A100\n") * 8
ALONE_ROWS = " 1048576 262144 float sum -1 3.62 289.66 0.00 0 0.17 6168.09 0.00 0\n" * 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\n  \n\t\n", "the file is empty"),
        ("hello\nworld\n", "no rows of sizes and times in 2 lines; it begins with 'hello'"),
        (CONFIG + DEVICES, "no rows of sizes and times in 11 lines; found a configuration line and a list of devices"),
        (CONFIG + DEVICES + HEAD, "found a configuration line and a header line and a list of devices"),
        (CONFIG + DEVICES + HEAD + ROW_1M[:48], "the run ended before its first row, of size 1048576"),
        (ALONE + HEAD + ALONE_ROWS, "8 runs of one rank each: nothing crossed a link"),
        (ALONE, "8 runs of one rank each: nothing crossed a link"),
        (HEAD + ALONE_ROWS, "1 run of one rank each: nothing crossed a link"),
        (prefixed(ALONE + HEAD + ALONE_ROWS, "[1,3]<stdout>:"), "8 runs of one rank each: nothing crossed a link"),
        (HEAD + " 8 2 float sum -1 0.00 0.00 0.00 0 0.00 0.00 0.00 0\n" * 3, "no row has a time above 0"),
        (HEAD + " 8 2 float sum -1 nan nan nan N/A nan nan nan N/A\n", "no row has a time above 0"),
        (HEAD + " 0 0 float none -1 0.1 0.00 0.00 0 0.1 0.00 0.00 0\n", "all rows are of size 0"),
        (TABLE.replace("40.00", "0.040").replace("41.00", "0.041").replace("50.00", "0.050").replace("80.00", "0.080"), "algbw is not size/time in 3 of 3 rows"),
        ("a\0b\n", "not text: a NUL byte"),
        (WHOLE + "\0\0\0", "not text: a NUL byte"),
        ("caf\udce9\n", "not text: bytes that are no UTF-8"),
        ("[BENCHMARK] hcclAllReduce(dataSize=1)\nNW Bandwidth : 2 GB/s\n", "a log of another tool, hccl_demo"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x) 12.5\n", "a log of another tool, a profiler trace"),
        ("num_workers,size,time_stats.all_reduce.min\n8,1024,0.01\n", "a log of another tool, a vidur table"),
        ("framework,version,device,op_name,nccl_dtype,num_gpus\n", "a log of another tool, an aiconfigurator table"),
        (" #bytes #iterations BW peak[MB/sec] BW average[MB/sec]\n 65536 1000 23000 23000\n", "another tool, perftest"),
        ("# OSU MPI-CUDA Bi-Directional Bandwidth Test v7.0\n# Size Bandwidth (MB/s)\n4 1.98\n", "counts both ways at once"),
        ("# OSU MPI Non-blocking Allreduce Latency Test\n# Size Overall(us) Compute(us)\n4 1.98 1.0\n", "non-blocking"),
        ("x" * (LONGEST_LINE + 1), "no rows"),
    ],
)  # fmt: skip
def test_what_cannot_be_read(text: str, message: str) -> None:
    problem = error(text)
    assert message in problem.message
    assert problem.where is not None and problem.where.startswith("log.txt")
    assert problem.hint is not None or "ended before" in problem.message
    assert problem.message[0] == problem.message[0].lower() or problem.message.startswith("JSON")


def test_runs_of_one_rank_beside_good_ones_are_left_out() -> None:
    sweep = one(ALONE + HEAD + ALONE_ROWS + WHOLE)
    assert microseconds(sweep) == TIMES
    assert any("one rank each were left out" in note for note in sweep.notes)


def test_files(tmp_path: Path) -> None:
    def message(data: bytes) -> str:
        path = tmp_path / "a.log"
        path.write_bytes(data)
        with pytest.raises(SpecError) as caught:
            read_log(str(path))
        assert caught.value.where is not None and caught.value.where.startswith(str(path))
        return caught.value.message

    assert message(b"") == "the file is empty"
    assert message(b"\x1f\x8b\x08\x00") == "packed with gzip, not text"
    assert message(b"ok\n\xff\xfe\n") == "not text: byte 0xff, which is no UTF-8"
    assert message(WHOLE.encode("utf-16")) == "not text: byte 0xff, which is no UTF-8"
    assert message(b"x" * 50_000 + b"\0") == "not text: a NUL byte"
    assert message(b"{\xff") == "not text: byte 0xff, which is no UTF-8"
    for path in (str(tmp_path), str(tmp_path / "none.log"), "a\0b"):
        with pytest.raises(SpecError):
            read_log(path)
    good = tmp_path / "allreduce.log"
    good.write_bytes(b"\xef\xbb\xbf" + ("y" * 100_000 + "\n" + WHOLE).encode())
    (sweep,) = read_log(str(good))
    assert microseconds(sweep) == TIMES
    assert [row.line for row in sweep.rows] == [17, 18, 19]
    assert any("1 lines of more than" in note for note in sweep.notes)


def test_a_large_log_is_streamed() -> None:
    noise = "node-01:500:577 [0] NCCL INFO Channel 00/16 : 0[0] -> 1[1] via P2P/CUMEM/read" + " padding" * 70 + "\n"
    count = 50 * 2**20 // len(noise)

    def lines() -> Iterator[str]:
        yield from WHOLE[: WHOLE.index("   50.00")].splitlines(keepends=True)
        for _ in range(count):
            yield noise
        yield from WHOLE[WHOLE.index("   50.00") :].splitlines(keepends=True)

    start = time.perf_counter()
    tracemalloc.start()
    try:
        (sweep,) = read_sweeps(lines(), "log")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert microseconds(sweep) == TIMES
    assert peak < 2**20
    assert time.perf_counter() - start < 10


# Whatever is written reads back.

GENERATIONS = ("2.10", "2.13", "2.17", "2.19", "in place")
PREFIXES = (
    "",
    " 0: ",
    "[1,0]<stdout>:",
    "[0] ",
    "> ",
    "2025-06-01T00:00:00.000Z ",
    "pod/worker-0 ",
    "    ",
    "worker-0: ",
)


def printed(value: float, width: int, generation: str) -> str:
    if generation in ("2.17", "2.19"):
        for decimals in (2, 1, 0):
            text = f"{value:.{decimals}f}"
            if len(text) <= width:
                return text
        return f"{value:.1e}"
    if width == 7:
        return f"{value:.{2 if value < 100 else 1 if value < 10_000 else 0}f}"
    return f"{value:.2f}"


@st.composite
def sweeps(draw: st.DrawFn) -> tuple[str, str, int, dict[int, tuple[float | None, float | None]]]:
    generation, ranks = draw(st.sampled_from(GENERATIONS)), draw(st.integers(2, 64))
    first = draw(st.integers(6, 20))
    rows, lines = {}, []
    if draw(st.booleans()):
        lines += [f"#  Rank {rank:2} Pid 5 on node device {rank} [0x1b] NVIDIA H100" for rank in range(ranks)]
    if draw(st.booleans()):
        lines.append("# out-of-place in-place" if generation != "in place" else "# in-place")
        block = " time algbw busbw " + ("error" if generation == "2.10" else "#wrong")
        block += " i_min i_max i_p99 i_cv%" * (generation == "2.19")
        root = " root" * (generation != "2.10")
        lines.append(f"# size count type redop{root}" + block * (1 if generation == "in place" else 2))
    for power in range(first, first + draw(st.integers(2, 12))):
        size, shown, blocks = 2**power, [], []
        for _ in range(1 if generation == "in place" else 2):
            time = printed(draw(st.floats(3.0, 3e6)), 7, generation)
            micro = float(time)
            algbw = size / micro / 1e3
            blocks.append(
                f"{time} {printed(algbw, 6, generation)} {printed(algbw * 2 * (ranks - 1) / ranks, 6, generation)} 0"
            )
            blocks[-1] += " 1.00 2.00 2.00 1.10" * (generation == "2.19")
            shown.append(micro)
        rows[size] = (None, shown[0]) if generation == "in place" else (shown[0], shown[1])
        root = " -1" * (generation != "2.10")
        lines.append(f"  {size}  {size // 4}  float  sum{root}  " + "  ".join(blocks))
    return generation, "\n".join(lines), ranks, rows


@settings(max_examples=150, deadline=None)
@given(sweeps(), st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=2), st.data())
def test_what_is_written_reads_back(
    written: tuple[str, str, int, dict[int, tuple[float | None, float | None]]],
    prefixes: list[str],
    data: st.DataObject,
) -> None:
    _, text, ranks, rows = written
    lines = []
    for line in text.splitlines():
        lines.append("".join(prefixes) + line)
        if data.draw(st.integers(0, 5)) == 0:
            lines.append(data.draw(st.sampled_from([INFO.strip(), "", "UCX  WARN  xpmem 7 8 9", "--------"])))
    sweep = one("\n".join(lines))
    assert microseconds(sweep) == rows
    assert sweep.collective == Kind.ALL_REDUCE, sweep.notes
    assert ranks == sweep.ranks or "Rank" not in text
    if sweep.ranks is not None and not any("about" in note for note in sweep.notes):
        assert sweep.ranks == ranks


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([*WHOLE.splitlines(), *RCCL.splitlines()[:8], *BENCH.splitlines(), *OLD_AG.splitlines(), *PARAM.splitlines(), *DEEPSPEED.splitlines(), "# OSU MPI Allreduce Latency Test", "8 2.5", "{", "...", INFO.strip()]), max_size=30), st.text(max_size=20), st.integers(0, 100))  # fmt: skip
def test_nothing_crashes(lines: list[str], noise: str, cut: int) -> None:
    text = "\n".join(line[cut:] if len(line) % 7 == cut % 7 else line for line in lines) + noise
    try:
        found = read(text)
    except CommcalcError as problem:
        assert problem.message
        return
    for sweep in found:
        assert sweep.rows
        for row in sweep.rows:
            assert row.size_bytes > 0 and row.best_s > 0 and row.line >= 1
        if sweep.collective is not None and sweep.ranks is not None:
            assert wire_ratio(sweep.collective, sweep.ranks)[1] > 0
