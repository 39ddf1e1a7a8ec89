"""Other benchmarks whose tables hold times or bandwidths by size: OSU, PARAM, all_reduce_bench, DeepSpeed.

What they do not print is left open: OSU no ranks, all_reduce_bench no times (they follow from algbw).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from commcalc.ingest.prefixes import strip_prefix
from commcalc.ingest.runs import Run
from commcalc.ingest.sweeps import Block, Point, collective_names, half_unit, number, whole_size

_OSU = re.compile(r"\bOSU\b(?:\s+MPI)?\S*\s+(.*?)\s*\b(Latency|Bandwidth)\s+Test", re.IGNORECASE)
_OSU_SHARE = ("all_gather", "alltoall")
_PROCESSES = re.compile(r"\b(?:mpirun|mpiexec|srun)\b.*?\s(?:-np|-n|--np|--ntasks)[ =](\d{1,7})\b.*\bosu_")
_DATATYPE = re.compile(r"Datatype:\s*(\w+)")
_PARAM = re.compile(r"COMMS-RES-([A-Za-z_]+)-(\w+)(\S*)\s+(.*)")
_BENCH_RANKS = re.compile(r"\b(?:over|of|on)\s+(\d{1,7})\s+(?:ranks|gpus|devices)\b", re.IGNORECASE)
_BENCH_ROW = re.compile(r"\|?\s*([\d.]+\s*[KMGT]?i?B)\s*\|\s*([\d.]+)\s*(GBps|GB/s|Gbps)\s*\|\s*([\d.]+)\s*\3\s*\|?")
_BENCH_HEAD = re.compile(r"\|\s*(?:payload|size)\s*\|\s*(busbw|algbw)\s*\|\s*(busbw|algbw)\s*\|", re.IGNORECASE)
_DEEPSPEED = re.compile(r"-{2,}\s*Performance of (\w+) on (\d{1,7}) devices")
_DEEPSPEED_ROW = re.compile(r"([\d.]+(?: ?[KMGT]?i?B)?)\s+(\S*\dx\d\S*)\s+([\d.]+) ?(ns|us|µs|μs|ms|s)\b")
_PER_SECOND = {"ns": 1e9, "us": 1e6, "µs": 1e6, "μs": 1e6, "ms": 1e3, "s": 1.0}


class OtherBenchmarks:
    """Reads lines of these tools into runs; `feed` says whether a line was one of theirs."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.runs: list[Run] = []
        self.refused: list[tuple[int, str]] = []
        self._rows: Callable[[int, str], bool] | None = None
        self._bench_order = ("busbw", "algbw")
        self._bench_ranks: int | None = None
        self._in_bench = False
        self._processes: int | None = None
        self._osu_bandwidth = False
        self._share = 1
        self._dtype = ""

    def feed(self, place: int, line: str) -> bool:
        """Take one clean line."""
        if "OSU" in line and (match := _OSU.search(line)):
            self._osu(place, match[1], match[2].lower())
            return True
        if "COMMS-RES" in line:
            return self._param(place, line)
        if "osu_" in line and (processes := _PROCESSES.search(line)):
            self._processes = int(processes[1])
            return True
        if "Performance of" in line and (performance := _DEEPSPEED.search(line)):
            self._begin("DeepSpeed", performance[1], int(performance[2]))
            self._rows = self._deepspeed_row
            return True
        if ("|" in line or "all_reduce" in line) and self._bench(place, line):
            return True
        return self._rows is not None and self._rows(place, line)

    def _begin(self, tool: str, name: str, ranks: int | None) -> Run:
        self._in_bench = False
        run = Run(self.source, tool)
        names = collective_names(name)
        if names:
            run.names["the log"] = names[0]
        run.nranks = ranks
        run.count_is_share = False
        self.runs.append(run)
        return run

    # OSU micro-benchmarks.

    def _osu(self, place: int, name: str, kind: str) -> None:
        self._rows = None
        bandwidth = kind == "bandwidth"
        if "bi-" in name.lower() or "bidirectional" in name.lower():
            self.refused.append((place, "a bidirectional bandwidth of OSU counts both ways at once"))
            return
        if "non-blocking" in name.lower():
            self.refused.append((place, "a non-blocking test of OSU times computation too"))
            return
        names = collective_names(name)
        run = self._begin("osu", "sendrecv" if not names else name, self._processes)
        if not names:
            run.nranks = 2
            run.notes.append("one message from rank to rank")
        if bandwidth:
            run.notes.append("times follow from the bandwidth, with many messages under way")
        if names and self._processes is None:
            run.notes.append("OSU prints no number of ranks")
        if names and names[0] in _OSU_SHARE:
            shown = "multiplied by the ranks" if self._processes else "multiply by the ranks for the payload"
            run.notes.append(f"OSU's size is one rank's share: {shown}")
        self._osu_bandwidth = bandwidth
        self._share = (self._processes or 1) if names and names[0] in _OSU_SHARE else 1
        self._dtype = ""
        self._rows = self._osu_row
        self._processes = None

    def _osu_row(self, place: int, line: str) -> bool:
        text = strip_prefix(line).strip()
        if "Size" in text and ("atency" in text or "andwidth" in text):
            return True
        if "Datatype" in text and (match := _DATATYPE.search(text)):
            self._dtype = match[1]
            return True
        tokens = text.split()
        if len(tokens) < 2 or not tokens[0].isdecimal() or number(tokens[1]) is None:
            return False
        if any(number(token) is None and token.lower() not in ("pass", "fail", "-", "n/a") for token in tokens[2:]):
            return False  # a message that begins with two numbers
        size, value = whole_size(tokens[0]), number(tokens[1])
        if size is None or value is None:
            return False
        size *= self._share
        seconds = _over(size, value * 1e6) if self._osu_bandwidth else value / 1e6
        self.runs[-1].add(Point(size, None, self._dtype, None, None, Block(seconds), None, place))
        return True

    # PARAM (comms.py).

    def _param(self, place: int, line: str) -> bool:
        match = _PARAM.search(line)
        if match is None:
            return True  # its header
        self._rows = None
        values = match[4].split()
        if not values or any(number(value) is None for value in values):
            if self.runs and self.runs[-1].tool == "PARAM":
                self.runs[-1].unreadable.append(place)
            return True
        name, dtype = match[1], match[2] + match[3]
        names = collective_names(name)
        if not self.runs or self.runs[-1].tool != "PARAM" or self.runs[-1].names.get("the log") != (names or [""])[0]:
            run = self._begin("PARAM", name, None)
            run.notes.append("PARAM prints medians, not means" if len(values) > 3 else "times follow from algbw")
            run.notes.append("sizes are PARAM's total-size")
        run = self.runs[-1]
        size = whole_size(values[0])
        if size is None or len(values) not in (3, *range(9, 14)):
            run.unreadable.append(place)
            return True
        # total-size, elements, p50, p75, p95, min, max, AlgBW, BusBW; or size, AlgBW, BusBW.
        texts = values[1:3] if len(values) == 3 else values[7:9]
        algbw, busbw = number(texts[0]) or 0.0, number(texts[1])
        seconds = (number(values[2]) or 0.0) / 1e6 if len(values) > 3 else _over(size, algbw * 1e9)
        block = Block(seconds, algbw, busbw, half_unit(texts[0]), half_unit(texts[1]))
        run.add(Point(size, None, dtype, "sum" if "reduce" in name else "none", None, block, None, place))
        return True

    # all_reduce_bench: bandwidths without times.

    def _bench(self, place: int, line: str) -> bool:
        if "ranks" in line or "GPUs" in line:
            ranks = _BENCH_RANKS.search(line)
            if ranks is not None and "all_reduce" in line:
                self._bench_ranks = int(ranks[1])
                self._in_bench = False
                return True
        head = _BENCH_HEAD.search(line)
        if head is not None:
            self._bench_order = head[1].lower(), head[2].lower()
            self._in_bench = False
            return True
        match = _BENCH_ROW.fullmatch(strip_prefix(line).strip())
        if match is None:
            return False
        if not self._in_bench:
            run = self._begin("all_reduce_bench", "all_reduce", self._bench_ranks)
            run.notes.append("the table prints no times: they follow from algbw")
            self._in_bench, self._rows = True, None
            self._bench_ranks = None
        size = whole_size(match[1].replace(" ", ""))
        texts = dict(zip(self._bench_order, (match[2], match[4]), strict=True))
        unit = 1e9 if "B" in match[3] else 1e9 / 8
        algbw, busbw = number(texts.get("algbw", "")), number(texts.get("busbw", ""))
        run = self.runs[-1]
        if size is None or algbw is None or busbw is None:
            run.unreadable.append(place)
            return True
        block = Block(_over(size, algbw * unit), algbw, busbw, half_unit(texts["algbw"]), half_unit(texts["busbw"]))
        run.add(Point(size, None, "", "sum", None, block, None, place))
        return True

    # EleutherAI cookbook and DeepSpeed.

    def _deepspeed_row(self, place: int, line: str) -> bool:
        match = _DEEPSPEED_ROW.match(strip_prefix(line).strip())
        if match is None:
            return False
        size, duration = whole_size(match[1].replace(" ", "")), number(match[3])
        if size is None or duration is None:
            self.runs[-1].unreadable.append(place)
        else:
            seconds = duration / _PER_SECOND[match[4]]
            self.runs[-1].add(Point(size, None, "", None, None, Block(seconds), None, place))
        return True


def _over(size: int, rate: float) -> float | None:
    return size / rate if rate > 0 else None
