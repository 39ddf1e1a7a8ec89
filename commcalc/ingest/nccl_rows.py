"""Rows of nccl-tests in lines with other text: found, mended where they are torn, checked, given to the run.

Rows are found by ``size count type`` anywhere in a line, so that no label before them matters. A row that ends early is
kept open until the rest comes, past all lines that do not begin with a number.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from commcalc.ingest.prefixes import strip_prefix
from commcalc.ingest.runs import Run
from commcalc.ingest.sweeps import ELEMENT_BYTES, REDUCTIONS, Point, whole_size
from commcalc.ingest.table_rows import DEFAULTS, LABEL, Fit, Header, Layout, fit, values_of

_ROW = re.compile(
    r"(?<![\w.,/+-])(\d[\d_,.]*(?:[KMGT](?:i?B)?)?)\s+(\d[\d_,.]*(?:[eE]\+?\d+)?[KMG]?)"
    rf"\s+({'|'.join(sorted(ELEMENT_BYTES, key=len, reverse=True))})(?![\w.:/-])"
)
# One of these stands in every name of a type.
_TYPE_HINT = re.compile("float|int|half|double|f8e|fp|bf16|char")
# What a line must begin with to go on with a row.
FIRST_OF_VALUES = frozenset("-+.0123456789Nn")


class _Open(NamedTuple):
    """A row whose blocks are not all there yet."""

    size: int
    elements: int | None
    dtype: str
    redop: str | None
    line: int
    base: list[str]
    values: list[str]
    fit: Fit | None
    torn: bool


class RowReader:
    """The row at hand and the runs that rows go to."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.runs: list[Run] = [Run(source, "nccl-tests")]
        self.header: Header | None = None
        self.waiting: _Open | None = None

    @property
    def run(self) -> Run:
        """The run that lines belong to now."""
        return self.runs[-1]

    def take_row(self, place: int, line: str, *, glued: bool) -> bool:
        """Take a line that begins a row; ``glued`` where text of something else followed it."""
        if _TYPE_HINT.search(line) is None:
            return False
        if "[" in line:
            line = LABEL.sub(" ", line)
        if "|" in line:
            line = line.replace("|", " ")
        match = _ROW.search(line)
        if match is None:
            return False
        self._row(place, match, line[match.end() :], glued=glued)
        return True

    def take_numbers(self, place: int, line: str) -> bool:
        """Take a line without a type: more of the open row, or a row of a table without types."""
        if self.waiting is not None:
            return self._continue(self.waiting, line)
        return self.header is not None and self._typeless(self.header, place, line)

    def _row(self, place: int, match: re.Match[str], rest: str, *, glued: bool) -> None:
        size, elements = whole_size(match[1]), None
        digits = match[2].replace(",", "").replace("_", "")
        if digits.isdecimal():
            elements = int(digits[:20])
        self.close(last=False)
        if size is None:
            self.run.unreadable.append(place)
            return
        if self.run.closed:
            self.runs.append(self.run.heir())
        words = rest.split(None, 1)
        redop = words[0] if words and words[0] in REDUCTIONS else None
        if redop is not None:
            rest = words[1] if len(words) > 1 else ""
        values, more = values_of(rest)
        self.waiting = _Open(size, elements, match[3], redop, place, values, values, None, torn=False)
        self._try(self.waiting, values, whole_line=not (more or glued))

    def _layouts(self) -> tuple[Layout, ...]:
        return DEFAULTS if self.header is None else (self.header.layout, *DEFAULTS)

    def _try(self, waiting: _Open, values: list[str], *, torn: bool = False, whole_line: bool) -> bool:
        """Read the open row with these numbers; whether they belong to it."""
        found = fit(values, waiting.size, self._layouts())
        if found is False:
            if not torn and whole_line:
                self.run.contradictions.append(waiting.line)
                self.waiting = None
            return False
        partial = found if isinstance(found, Fit) else None
        self.waiting = waiting._replace(values=values, fit=partial or waiting.fit, torn=torn)
        if partial is not None and partial.whole:
            self._emit(self.waiting, partial)
        return True

    def _continue(self, waiting: _Open, line: str) -> bool:
        """Numbers that go on with the open row."""
        text = strip_prefix(line).strip()
        if not text or text[0] not in FIRST_OF_VALUES:
            return False
        values, more = values_of(text)
        if not values or (more and len(values) < 3):
            return False
        for start in (waiting.values, waiting.base):
            found = fit([*start, *values], waiting.size, self._layouts())
            if isinstance(found, Fit) and found.whole:
                self._emit(waiting._replace(torn=True), found)
                return True
        return self._try(waiting, [*waiting.values, *values], torn=True, whole_line=False)

    def _emit(self, row: _Open, found: Fit) -> None:
        self.waiting = None
        point = Point(
            row.size, row.elements, row.dtype, row.redop, found.root, found.out, found.inside, row.line, torn=row.torn
        )
        self.run.add(point)

    def close(self, *, last: bool) -> None:
        """No more lines come for the open row: a row with its first block is a row, one without any is none."""
        waiting, self.waiting = self.waiting, None
        if waiting is None:
            return
        if waiting.fit is not None:
            if self.header is None:
                self.run.single_block = True
            elif len(self.header.layout.blocks) > 1:
                self.run.bus_missing = True  # the average is over more blocks than there are
            self._emit(waiting, waiting.fit)
        elif last and len(waiting.values) <= 1:
            self.run.failed_size = waiting.size
        else:
            self.run.unreadable.append(waiting.line)

    def _typeless(self, header: Header, place: int, line: str) -> bool:
        """A row of a table whose header names no type, such as one made by hand."""
        if "type" in header.leading:
            return False
        tokens = strip_prefix(line).replace("|", " ").split()
        leading = len(header.leading)
        if len(tokens) != leading - header.layout.lead + header.layout.length or not tokens[0][0].isdigit():
            return False
        size = whole_size(tokens[0])
        values, more = values_of(" ".join(tokens[leading - header.layout.lead :]))
        if size is None or more:
            return False
        self.waiting = _Open(size, None, "", None, place, values, values, None, torn=False)
        self._try(self.waiting, values, whole_line=True)
        return True
