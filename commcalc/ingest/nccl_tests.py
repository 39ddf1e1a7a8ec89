"""Reads logs of collective benchmarks: finds the format, streams the lines, says what is wrong with a file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from commcalc.errors import SpecError
from commcalc.ingest.nccl_json import MAX_JSON_BYTES, read_json
from commcalc.ingest.nccl_text import NcclTests
from commcalc.ingest.other_benchmarks import OtherBenchmarks
from commcalc.ingest.prefixes import clean
from commcalc.ingest.runs import Run
from commcalc.ingest.sweeps import LogSweep, collective_names

# A row has some 250 characters; longer lines are dumps of something else.
LONGEST_LINE = 16_384
_READS = "nccl-tests, rccl-tests, their JSON, nccom-test, OSU, PARAM, all_reduce_bench and DeepSpeed tables are read"
# Other tools by a word of their output.
_FOREIGN = (
    ("hccl_demo", ("[BENCHMARK] hccl", "hcclAllReduce")),
    ("a profiler trace", ("ncclDevKernel_", "ncclKernel_")),
    ("an aiconfigurator table", ("nccl_dtype,num_gpus", "framework,version,device")),
    ("a vidur table", ("time_stats.",)),
    ("perftest (ib_write_bw and the like)", ("RDMA_Write BW", "RDMA_Write Latency", "Send BW Test", "BW peak[")),
    ("nvbandwidth or bandwidthTest", ("nvbandwidth", "bandwidthTest", "P2P Connectivity Matrix")),
    ("iperf", ("iperf", "Mbits/sec", "Gbits/sec")),
    ("Intel MPI Benchmarks", ("Intel(R) MPI Benchmarks",)),
)
_FOREIGN_WITHIN = 1000
_PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstd", b"BZh": "bzip2"}


def read_log(path: str) -> list[LogSweep]:
    """The sweeps of a log file, streamed; `SpecError` says why it cannot be read or what is missing in it."""
    if not path:
        raise SpecError("the path of a log is empty", where="LOG", hint="a file, or - for stdin")
    if "\0" in path:
        raise SpecError("no path: it holds a character that paths cannot", where=repr(path[:80]))
    if os.path.isdir(path):
        raise SpecError("a folder, not a file", where=path)
    try:
        with open(path, "rb") as file:
            return read_stream(file, path)
    except OSError as problem:
        raise SpecError(f"cannot be read: {(problem.strerror or str(problem)).lower()}", where=path) from None


def read_stream(file: BinaryIO, source: str) -> list[LogSweep]:
    """The sweeps of a log as bytes, in pieces; `SpecError` as of `read_log`."""
    start = file.readline(LONGEST_LINE + 1)
    for magic, packer in _PACKED.items():
        if start.startswith(magic):
            raise SpecError(f"packed with {packer}, not text", where=source, hint="unpack the file first")
    if start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{":
        data = start + file.read(MAX_JSON_BYTES + 1 - len(start))
        if len(data) > MAX_JSON_BYTES:
            raise SpecError(f"JSON larger than {MAX_JSON_BYTES} bytes", where=source, hint=_READS)
        return read_sweeps([_text(data, source, 0)], source)
    return read_sweeps(_lines(start, file, source), source)


def _lines(start: bytes, file: BinaryIO, path: str) -> Iterator[str]:
    place, chunk = 0, start
    while chunk:
        place += 1
        if len(chunk) > LONGEST_LINE and not chunk.endswith(b"\n"):
            while chunk and not chunk.endswith(b"\n"):
                _text_or_binary(chunk, path, place)
                chunk = file.readline(LONGEST_LINE + 1)
            yield " " * (LONGEST_LINE + 1)
        else:
            yield _text(chunk, path, place)
        chunk = file.readline(LONGEST_LINE + 1)


def _text_or_binary(data: bytes, path: str, place: int) -> None:
    if b"\0" in data:
        raise _binary("a NUL byte", path, place)


def _text(data: bytes, path: str, place: int) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise _binary(f"byte {data[problem.start]:#04x}, which is no UTF-8", path, place) from None


def _binary(what: str, source: str, place: int) -> SpecError:
    where = f"{source}:{place}" if place else source
    return SpecError(f"not text: {what}", where=where, hint="save the log as UTF-8 text")


def read_sweeps(lines: Iterable[str], source: str) -> list[LogSweep]:
    """The sweeps of a log, in the order they stand in it; `SpecError` says what is wrong or missing."""
    reader = _Reader(source)
    feed = iter(lines)
    for line in feed:
        if not reader.begun and line.lstrip("\ufeff \t\r\n").startswith("{"):
            runs = _json(line, feed, source)
            reader.place, reader.first = reader.place + 1, "{"
            return reader.told(runs)
        reader.take(line)
    return reader.told(reader.runs())


def _json(first: str, rest: Iterator[str], source: str) -> list[Run]:
    parts, size = [first.lstrip("\ufeff")], len(first)
    for line in rest:
        parts.append(line if line.endswith("\n") else line + "\n")
        size += len(line)
        if size > MAX_JSON_BYTES:
            break
    if size > MAX_JSON_BYTES:
        raise SpecError(f"JSON larger than {MAX_JSON_BYTES} bytes", where=source, hint=_READS)
    text = "".join(parts)
    if "\0" in text:
        raise _binary("a NUL byte", source, 0)
    return read_json(text, source)


class _Reader:
    """One pass over the lines, each given to the tool it belongs to."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.nccl = NcclTests(source)
        self.others = OtherBenchmarks(source)
        self.place = 0
        self.long_lines = 0
        self.first = ""
        self.foreign = ""

    @property
    def begun(self) -> bool:
        """Whether a line with something on it was seen."""
        return bool(self.first)

    def take(self, raw: str) -> None:
        """Take one line."""
        self.place += 1
        if len(raw) > LONGEST_LINE:
            self.long_lines += 1
            return
        if "\0" in raw:
            raise _binary("a NUL byte", self.source, self.place)
        line = clean(raw)
        if not line:
            return
        if not line.isascii() and any("\ud800" <= letter <= "\udfff" for letter in line):
            raise _binary("bytes that are no UTF-8", self.source, self.place)
        if not self.first:
            self.first = line.strip()[:60]
        # Most lines of a long log are NCCL's own.
        if " NCCL INFO " not in line:
            if self.place <= _FOREIGN_WITHIN and not self.foreign:
                self._tool(line)
            if self.others.feed(self.place, line):
                return
        self.nccl.feed(self.place, line)

    def _tool(self, line: str) -> None:
        for tool, words in _FOREIGN:
            if any(word in line for word in words):
                self.foreign = tool
                return

    def runs(self) -> list[Run]:
        """All runs of the file."""
        return [*self.nccl.end(), *self.others.runs]

    def told(self, runs: list[Run]) -> list[LogSweep]:
        """The sweeps, with the file's name as the last word on what they are; or why there are none."""
        named = collective_names(os.path.basename(self.source))
        alone = [run for run in runs if run.alone()]
        kept = [run for run in runs if run not in alone]
        found: list[LogSweep] = []
        for run in kept:
            if len(named) == 1:
                run.names.setdefault("the file name", named[0])
            if self.long_lines:
                run.notes.append(f"{self.long_lines} lines of more than {LONGEST_LINE} characters were skipped")
            if alone:
                run.notes.append(f"{len(alone)} runs of one rank each were left out")
            contradicting = len(run.contradictions)
            if contradicting > run.rows:
                raise SpecError(
                    f"algbw is not size/time in {contradicting} of {contradicting + run.rows} rows",
                    where=f"{self.source}:{run.contradictions[0]}",
                    hint="give the table as the benchmark printed it: bytes, microseconds, GB/s of 10^9 bytes",
                )
            found += run.sweeps()
        if not found:
            raise self._nothing(runs, alone)
        return sorted(found, key=lambda sweep: sweep.rows[0].line)

    def _nothing(self, runs: list[Run], alone: list[Run]) -> SpecError:
        where = self.source
        if alone:
            count = max(len(alone), *(run.headers for run in alone))
            return SpecError(
                f"{count} run{'s' if count > 1 else ''} of one rank each: nothing crossed a link",
                where=where,
                hint="build nccl-tests with MPI=1 when it is started by mpirun or srun, or give it -g GPUS",
            )
        for place, why in self.others.refused:
            return SpecError(why, where=f"{where}:{place}", hint=_READS)
        bad = [line for run in runs for line in run.bad_times]
        if bad:
            return SpecError(
                "no row has a time above 0", where=f"{where}:{bad[0]}", hint="is this a log of a failed run?"
            )
        failed = [run.failed_size for run in runs if run.failed_size is not None]
        if failed:
            return SpecError(f"the run ended before its first row, of size {failed[0]}", where=where)
        if sum(segment.zero_rows for run in runs for segment in run.segments):
            return SpecError("all rows are of size 0", where=where, hint="measure larger sizes: -b 1K -e 1G -f 2")
        if not self.begun and not self.long_lines:
            return SpecError(
                "the file is empty", where=where, hint="a log of nccl-tests holds a table of sizes and times"
            )
        if self.foreign:
            return SpecError(f"a log of another tool, {self.foreign}", where=where, hint=_READS)
        seen = sorted(self.nccl.seen)
        found = f"found {' and '.join(seen)}" if seen else f"it begins with {self.first!r}"
        return SpecError(f"no rows of sizes and times in {self.place} lines; {found}", where=where, hint=_READS)
