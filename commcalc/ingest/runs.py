"""One run of a benchmark as its lines come in: what it says about itself, its rows, and the sweeps they make."""

from __future__ import annotations

from itertools import pairwise

from commcalc.algebra.collective import wire_ratio
from commcalc.errors import SpecError
from commcalc.ingest.evidence import Evidence
from commcalc.ingest.stated import Stated
from commcalc.ingest.sweeps import KINDS, Block, LogSweep, Point, Row

MOST_ROWS = 500_000
_MOST_LINES_NAMED = 5


class _Segment:
    """Rows of one sweep."""

    def __init__(self, key: tuple[str, str | None]) -> None:
        self.key = key
        self.rows: list[Row] = []
        self.rates = 0.0  # sum of size/time over the blocks
        self.zero_rows = 0
        self.torn_rows = 0
        self.cycles = 1
        self.notes: list[str] = []
        self.evidence = Evidence()


class Run(Stated):
    """Collects a run; `sweeps` gives what came of it."""

    def __init__(self, source: str, tool: str) -> None:
        super().__init__()
        self.source = source
        self.tool = tool
        self.headers = 0
        self.cycle_marks = 0
        self.closed = False
        self.elided = False
        self.count_is_share = True  # count tells a share from a whole, as in nccl-tests
        self.single_block = False  # one block a row and no header that says which
        self.failed_size: int | None = None
        self.wrong: int | None = None
        self.wrong_in_rows = 0
        self.printed: float | None = None
        self.contradictions: list[int] = []
        self.bad_times: list[int] = []
        self.unreadable: list[int] = []
        self.notes: list[str] = []
        self.points = 0
        self.bus_sum = 0.0
        self.bus_count = 0
        self.bus_missing = False
        self.unit = 1e9  # bytes per second in a printed GB/s
        self.segments: list[_Segment] = []

    @property
    def rows(self) -> int:
        """Rows kept."""
        return sum(len(segment.rows) for segment in self.segments)

    def heir(self) -> Run:
        """A run on the same ranks whose own configuration line is not there."""
        run = Run(self.source, self.tool)
        run.inherit(self)
        return run

    # Taking rows.

    def add(self, point: Point) -> None:
        """Take one row; times that cannot be are noted and left out."""
        self.points += 1
        if self.points > MOST_ROWS:
            raise SpecError(f"more than {MOST_ROWS} rows", where=f"{self.source}:{point.line}", hint="cut the log")
        segment = self._segment(point)
        for block in (point.out, point.inside):
            if block is not None:
                self._count(block)
        if point.size == 0:
            segment.zero_rows += 1
            return
        times = [block.seconds if block is not None else None for block in (point.out, point.inside)]
        good = [time if time is not None and 0.0 < time < 1e9 else None for time in times]
        there = [block is not None for block in (point.out, point.inside)]
        if any(is_there and time is None for is_there, time in zip(there, good, strict=True)):
            self.bad_times.append(point.line)
        if good == [None, None]:
            return
        segment.rows.append(Row(point.size, good[0], good[1], point.line))
        segment.torn_rows += point.torn
        segment.rates += sum(point.size / time for time in good if time is not None)
        segment.evidence.add(point, share=self.count_is_share)

    def _count(self, block: Block) -> None:
        self.wrong_in_rows += block.wrong
        if block.busbw is None:
            self.bus_missing = True
        else:
            self.bus_sum += block.busbw
            self.bus_count += 1

    def _segment(self, point: Point) -> _Segment:
        """The sweep this row belongs to: sizes that start again are a cycle (``-N``) or begin another sweep."""
        key = point.dtype, point.redop
        now = self.segments[-1] if self.segments else None
        if now is None or now.key != key:
            back = [
                s for s in self.segments if s.key == key and (not s.rows or point.size in (0, s.rows[0].size_bytes))
            ]
            if back:
                # The types come round again in the next cycle.
                self.segments.remove(back[0])
                self.segments.append(back[0])
                back[0].cycles += 1
                return back[0]
        elif not now.rows or point.size == 0 or point.size >= now.rows[-1].size_bytes:
            return now
        elif point.size == now.rows[0].size_bytes:
            now.cycles += 1
            return now
        elif point.size > now.rows[0].size_bytes:
            now.notes.append(f"sizes out of order at line {point.line}")
            return now
        self.segments.append(_Segment(key))
        return self.segments[-1]

    # What came of it.

    def alone(self) -> bool:
        """Whether this was a run of one rank: nothing crossed a link."""
        every = [segment.evidence for segment in self.segments]
        busbw = max((evidence.busbw for evidence in every), default=0.0)
        if busbw == 0.0 and max((evidence.algbw for evidence in every), default=0.0) >= 0.5:
            return True
        if self.ids != {0} and (self.ids or self.nranks != 1):
            return False
        if self.ids_elided or (self.threads or 1) * (self.gpus or 1) > 1 or (self.nranks or 1) > 1:
            return False
        return not any(evidence.crossed() for evidence in every)

    def sweeps(self) -> list[LogSweep]:
        """The sweeps with rows, in file order."""
        self._join_falling()
        kept = [segment for segment in self.segments if segment.rows]
        kept.sort(key=lambda segment: segment.rows[0].line)
        found = [self._sweep(segment, last=segment is kept[-1]) for segment in kept]
        average = self._average(found, kept)
        printed = None if self.printed is None else self.printed * self.unit / 1e9
        notes: tuple[str, ...] = ()
        # Times are rounded to three or more digits, the average is printed with six.
        if average is not None and printed is not None and abs(average - printed) > 0.006 + 5e-4 * printed:
            notes = (f"the mean busbw of the rows is {average:.6g}, the log prints {printed:.6g}: rows are missing",)
        return [
            sweep._replace(average_busbw=average, printed_busbw=printed, notes=sweep.notes + notes) for sweep in found
        ]

    def _join_falling(self) -> None:
        """Single rows whose sizes fall are one sweep, written from large to small."""
        joined: list[_Segment] = []
        for segment in self.segments:
            before = joined[-1] if joined else None
            if before is not None and before.key == segment.key and before.cycles == 1 and len(segment.rows) == 1:
                sizes = [row.size_bytes for row in before.rows] + [segment.rows[0].size_bytes]
                if all(a > b for a, b in pairwise(sizes)):
                    before.rows += segment.rows
                    before.torn_rows += segment.torn_rows
                    before.rates += segment.rates
                    before.evidence.join(segment.evidence)
                    before.notes = [f"sizes out of order: they fall from line {before.rows[0].line} on"]
                    continue
            joined.append(segment)
        self.segments = joined

    def _sweep(self, segment: _Segment, *, last: bool) -> LogSweep:
        evidence = segment.evidence
        notes = [*self.notes, *segment.notes]
        ranks = self.ranks_by(evidence, notes)
        collective = self.collective_by(evidence, ranks, notes)
        if ranks is None:
            ranks = evidence.ranks_by_ratio(collective, notes)
        elif collective is not None:
            evidence.check(collective, ranks, notes)
        rows = self._blocks(segment, notes)
        if segment.cycles > 1:
            notes.append(f"{segment.cycles} cycles over the same sizes")
        if self.elided:
            notes.append("rows were left out of the log")
        for lines, what in (
            (self.contradictions, "left out: algbw is not size/time"),
            (self.bad_times, "a time that is not above 0 left out"),
            (self.unreadable, "unreadable, left out"),
        ):
            if lines:
                notes.append(f"{_lines(lines)}: {what}")
        failed = self.failed_size if last else None
        if failed is not None:
            notes.append(f"the run ended before size {failed} was measured")
        return LogSweep(
            self.source,
            self.tool,
            KINDS.get(collective or ""),
            ranks,
            segment.key[0],
            rows,
            segment.zero_rows,
            segment.torn_rows,
            failed,
            self.graph,
            self.gpus or 1,
            self.wrong if self.wrong is not None else self.wrong_in_rows,
            notes=tuple(dict.fromkeys(notes)),
        )

    def _average(self, sweeps: list[LogSweep], segments: list[_Segment]) -> float | None:
        """The mean busbw over all rows and blocks of the run in GB/s, where the log is whole enough to compare.

        From the times where collective and ranks are known, as the two printed decimals are few for small sizes.
        """
        whole = not (self.elided or self.bus_missing or self.unreadable or self.contradictions or self.bad_times)
        if self.printed is None or not whole or not self.bus_count or self.failed_size is not None:
            return None
        total = 0.0
        for sweep, segment in zip(sweeps, segments, strict=True):
            if sweep.collective is None or sweep.ranks is None:
                return self.bus_sum / self.bus_count * self.unit / 1e9
            over, under = wire_ratio(sweep.collective, sweep.ranks)
            total += segment.rates * over / under
        return total / self.bus_count / 1e9

    def _blocks(self, segment: _Segment, notes: list[str]) -> tuple[Row, ...]:
        """The rows; a lone block without a header is the in-place one, the only form printed like that."""
        rows = segment.rows
        if all(row.in_s is None for row in rows):
            notes.append("one block a row")
            if self.single_block and len(rows) > 1:
                rows = [Row(row.size_bytes, None, row.out_s, row.line) for row in rows]
        elif all(row.out_s is None for row in rows):
            notes.append("one block a row, in place")
        return tuple(rows)


def _lines(numbers: list[int]) -> str:
    told = ", ".join(map(str, numbers[:_MOST_LINES_NAMED]))
    more = f" and {len(numbers) - _MOST_LINES_NAMED} more" if len(numbers) > _MOST_LINES_NAMED else ""
    return f"line{'s' if len(numbers) > 1 else ''} {told}{more}"
