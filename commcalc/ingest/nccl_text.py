"""Text output of nccl-tests, rccl-tests and nccom-test, every version, as people paste it: the lines about a run.

Where a run begins is told by its configuration line, its header, the echo of its command, or a title.
"""

from __future__ import annotations

import re

from commcalc.ingest.nccl_rows import FIRST_OF_VALUES, RowReader
from commcalc.ingest.prefixes import strip_prefix
from commcalc.ingest.runs import Run
from commcalc.ingest.sweeps import KINDS, collective_names, number, starts_with_name
from commcalc.ingest.table_rows import is_header, read_header, values_of

_CONFIG = re.compile(r"\bnThreads?\s+(\d{1,6})\s+nGpus\s+(\d{1,6})\b")
_GRAPH = re.compile(r"\bgraph:\s*(\d+)")
_RANK = re.compile(r"\bRank\s+(\d{1,7})\s.*?\bdevice\s")
_GROUP = re.compile(r"\bGroup\s+(\d{1,6})\s")
_NRANKS = re.compile(r"\bn[rR]anks\s*[= ]\s*(\d{1,7})\b")
_TEST = re.compile(r"Collective test (starting|concluded)\s*:\s*(\S+)")
_VERSION = re.compile(r"\b(nccl|rccl)-tests(?: version |:? Version)", re.IGNORECASE)
_COMMAND = re.compile(r"(?:^|[\s/])(\w+)_perf\b(.*)")
_NCCOM = re.compile(r"\bnccom-test\b(.*)")
_NCCOM_NAMES = {"allr": "all_reduce", "allg": "all_gather", "redsct": "reduce_scatter", "alltoall": "alltoall"}
_PROCESSES = re.compile(r"\s(?:-np|-n|--np|--n|--ntasks)[ =](\d{1,7})\b")
_WRONG = re.compile(r"Out of bounds values\s*:\s*(\d+)")
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*(\S+?)(?:GB/s)?(?:\s|$)")
_CYCLE = re.compile(r"\bTesting\s+\d+\s+cycle")
_GAP = re.compile(r"[#\s|>]*(?:\.{2,}|[\[(<]?\s*(?:\.{3,}|…|snip)[^:]{0,60})[\s|]*")
_LEFT_OUT = re.compile(r"\b(?:truncated|omitted|snipped)\b", re.IGNORECASE)
_TITLE = re.compile(r"[#=*\-_\s>\[`]*(?:\d+[.)]\s+)?(?:(?:results?|test|benchmark|running|for|of|nccl|rccl)[\s:]+)*")
_HEADING = frozenset("#=*-_`[")
_LONGEST_TITLE = 60
_NAME_HINT = re.compile("(?i)reduce|gather|scatter|to.?all|recv|cast|hypercube")
_TASK = re.compile(r"\s{0,6}(?:(\d{1,6}):(?:\s|$)|\[1, ?(\d{1,6})\]<)")
_FIRST_OF_FRAGMENTS = FIRST_OF_VALUES | {"[", ">"}
_FIRST_OF_LABELS = frozenset(" [0123456789")


class NcclTests(RowReader):
    """Reads lines of any of the three tools into runs."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.places: list[str] = []
        self.tasks = 0  # highest label + 1
        self.fragments: list[int] = []
        self.seen: set[str] = set()  # what lines of the tool were there, for messages

    def feed(self, place: int, line: str) -> None:
        """Take one clean line."""
        if line[0] in _FIRST_OF_LABELS and (task := _TASK.match(line)):
            self.tasks = max(self.tasks, int(task[1] or task[2]) + 1)
        at = line.find(" NCCL ")
        if self.take_row(place, line if at < 0 else line[:at], glued=at >= 0):
            return
        if at >= 0:
            if self.waiting is not None:
                self.take_numbers(place, line[:at])
            if "anks" in line and (nranks := _NRANKS.search(line)):
                self.run.nranks = max(self.run.nranks or 0, int(nranks[1]))
            return
        if not self.take_numbers(place, line):
            self._other(place, line)

    def end(self) -> list[Run]:
        """All runs, the last row closed."""
        self.close(last=True)
        for run in self.runs:
            run.tasks = self.tasks
            if self.fragments and run.rows:
                run.notes.append(f"line {self.fragments[0]}: a piece of a row without its size, left out")
                self.fragments = []
        return self.runs

    # Lines about the run.

    def _other(self, place: int, line: str) -> None:
        if "nThread" in line and (match := _CONFIG.search(line)):
            self._configuration(line, match)
        elif "Rank" in line and (match := _RANK.search(line)):
            self._rank(line, int(match[1]))
        elif is_header(line):
            self._header(line)
        elif "out-of-place" in line or "in-place" in line:
            words = re.findall(r"out-of-place|in-place", line)
            self.places = ["out" if word.startswith("out") else "in" for word in words]
        elif "Out of bounds" in line and (match := _WRONG.search(line)):
            self.close(last=False)
            self.run.wrong = int(match[1][:18])
            self.run.closed = True
        elif "Avg bus" in line and (match := _AVERAGE.search(line)):
            self.close(last=False)
            self.run.printed = number(match[1])
            self.run.closed = True
        elif "asterisks" in line:
            self.run.tool = "rccl-tests"
        elif "cycle" in line and _CYCLE.search(line):
            self.run.cycle_marks += 1
        elif "Collective test" in line and (match := _TEST.search(line)):
            self._named(match[1], match[2])
        elif (".." in line or "…" in line or "snip" in line or "runcated" in line or "mitted" in line) and self._gap_in(
            line
        ):
            self._gap()
        elif "-tests" in line and (match := _VERSION.search(line)):
            self._fresh()
            self.run.tool = f"{match[1].lower()}-tests"
        elif "RCCL version" in line or "Librccl" in line:
            self.run.tool = "rccl-tests"
        elif "_perf" in line or "nccom-test" in line or "mpirun" in line or "srun" in line or "mpiexec" in line:
            self._command(line)
        else:
            self._rest(place, line)

    def _rest(self, place: int, line: str) -> None:
        if len(line) > _LONGEST_TITLE or (line.lstrip()[0] not in _FIRST_OF_FRAGMENTS and not _NAME_HINT.search(line)):
            return
        text = strip_prefix(line).strip()
        if not text:
            return
        if text[0] in FIRST_OF_VALUES:
            values, glued = values_of(text)
            if len(values) >= 4 and not glued:
                self.fragments.append(place)
            return
        # Amid rows, or with a name that is also a plain word, only what is marked as a heading is one.
        marked = text[0] in _HEADING
        if self.run.points and not self.run.closed and not marked:
            return
        start = _TITLE.match(text)
        names = collective_names(text)
        if len(names) == 1 and starts_with_name(text[start.end() if start else 0 :]) and (marked or names[0] in KINDS):
            self._fresh()
            self.run.names["a title line"] = names[0]

    def _fresh(self) -> None:
        """A new run, where the one at hand has rows."""
        self.close(last=True)
        if self.run.points or self.run.closed or self.run.failed_size is not None:
            self.runs.append(Run(self.source, "nccl-tests"))
            self.header = None

    def _configuration(self, line: str, match: re.Match[str]) -> None:
        self.seen.add("a configuration line")
        self._fresh()
        if self.run.configured:
            tool, self.header = self.run.tool, None
            self.runs.append(Run(self.source, tool))
        self.run.threads, self.run.gpus = max(1, int(match[1])), max(1, int(match[2]))
        graph = _GRAPH.search(line)
        self.run.graph = graph is not None and int(graph[1][:9]) > 0

    def _rank(self, line: str, rank: int) -> None:
        self.seen.add("a list of devices")
        if self.run.points:
            self._fresh()
        self.run.ids.add(rank)
        group = _GROUP.search(line)
        if group is not None:
            self.run.groups.add(int(group[1]))
        if "AMD " in line:
            self.run.tool = "rccl-tests"

    def _header(self, line: str) -> None:
        self.seen.add("a header line")
        self.close(last=True)
        if self.run.points and not self.run.cycle_marks:
            self.runs.append(self.run.heir())
        self.header = read_header(line, self.places)
        self.places = []
        self.run.headers += 1
        if self.header.layout.unit != 1e9:
            self.run.tool = "nccom-test"
            self.run.count_is_share = False
            self.run.unit = self.header.layout.unit

    def _named(self, when: str, name: str) -> None:
        names = collective_names(name)
        if when == "starting":
            self._fresh()
        if names and (when == "starting" or "the log" not in self.run.names):
            self.run.names["the log"] = names[0]

    def _gap_in(self, line: str) -> bool:
        text = strip_prefix(line).strip()
        return _GAP.fullmatch(text) is not None or (len(text) < 120 and _LEFT_OUT.search(text) is not None)

    def _gap(self) -> None:
        if self.run.points or self.header is not None:
            self.run.elided = True
        else:
            self.run.ids_elided = True

    def _command(self, line: str) -> None:
        """The echo of a command line; after rows only one with options counts, messages name programs too."""
        test = _COMMAND.search(line) if "_perf" in line else None
        nccom = _NCCOM.search(line) if "nccom-test" in line else None
        names = collective_names(test[1]) if test else []
        launcher = "mpirun" in line or "srun" in line or "mpiexec" in line
        launched = _PROCESSES.search(line[: test.start() + 1] if test else line) if launcher else None
        if nccom is not None:
            words = nccom[1].split()
            names = [_NCCOM_NAMES[word] for word in words if word in _NCCOM_NAMES]
            launched = re.search(r"\s-r\s+(\d{1,6})\b", nccom[1])
        options = test is not None and re.match(r"\s+-\w", test[2]) is not None
        if self.run.points and not (options or launched or nccom):
            return
        if names or launched:
            self._fresh()
        if names:
            self.run.names["the command"] = names[0]
        if launched is not None:
            self.run.processes = int(launched[1])
