"""The columns of an nccl-tests table, of every version: which number of a row is what.

The columns before the timing blocks changed with the version and the collective, so a row is read by its header or,
without one, by the layout in which algbw is size/time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from commcalc.ingest.sweeps import Block, half_unit, is_value, number

_STAMP = re.compile(r"\d{4}-\d\d-\d\d(?:[T_]\d\d:\d\d:\d\d\S*)?|\d\d:\d\d:\d\d(?:\.\d+)?")
# A label that a launcher put into the row: ``[0]``, ``[1,0]<stdout>:``.
LABEL = re.compile(r"\[\d+(?:, ?\d+)?\](?:<\w+>:)?")


class Layout(NamedTuple):
    """Columns of a table: numbers before the blocks, the blocks, and what stands where in a block."""

    lead: int
    blocks: tuple[str, ...]
    width: int
    time: int = 0
    algbw: int | None = 1
    busbw: int | None = 2
    wrong: int | None = None  # only where it counts wrong elements
    per_second: float = 1e6
    unit: float = 1e9
    exact: bool = True  # no further columns may follow

    @property
    def length(self) -> int:
        """Numbers of a whole row."""
        return self.lead + self.width * len(self.blocks)


_BOTH = ("out", "in")
# Without a header: with and without a root, with and without the columns of single iterations.
DEFAULTS = (Layout(1, _BOTH, 4), Layout(0, _BOTH, 4), Layout(1, _BOTH, 8), Layout(0, _BOTH, 8))


class Header(NamedTuple):
    """A header line: the layout, and whether its columns name a type, as rows without one are read by place."""

    layout: Layout
    leading: tuple[str, ...]


def is_header(line: str) -> bool:
    """Whether a line names the columns of a table."""
    lower = line.lower()
    if "algbw" not in lower and "busbw" not in lower:
        return False
    words = _words(line)
    return "time" in words and bool({"size", "bytes"} & set(words))


def _words(line: str) -> list[str]:
    plain = re.sub(r"\([^)]*\)", " ", line.lower()).replace("|", " ")
    words = [re.sub(r"[^a-z0-9_]", "", word) for word in plain.split()]
    return [word for word in words if word]


def read_header(line: str, places: list[str]) -> Header:
    """The layout a header names; ``places`` are the blocks the line above it names."""
    words = _words(line)
    start = next(place for place, word in enumerate(words) if word in ("size", "bytes"))
    words = words[start:]
    times = [place for place, word in enumerate(words) if word == "time"]
    leading = tuple(words[: times[0]])
    ends = [*times[1:], len(words)]
    width = ends[0] - times[0]
    names = words[times[0] : times[0] + width]
    blocks = tuple(places) if len(places) == len(times) else _BOTH[: len(times)]
    old = "bytes" in leading and "n" in leading
    return Header(
        Layout(
            lead=int("root" in leading),
            blocks=blocks[:2],
            width=width,
            algbw=names.index("algbw") if "algbw" in names else None,
            busbw=names.index("busbw") if "busbw" in names else None,
            wrong=names.index("wrong") if "wrong" in names else None,
            per_second=1e3 if old or "time(ms)" in line.lower().replace(" ", "") else 1e6,
            # nccom-test, whose columns carry their units, means GiB by GB.
            unit=2.0**30 if "size(B)" in line and "count(elems)" in line else 1e9,
            exact=False,
        ),
        leading,
    )


def values_of(text: str) -> tuple[list[str], bool]:
    """The numbers a text begins with, labels and time stamps taken out; and whether something else follows them.

    >>> values_of("-1[0]   36.33 0.00 N/A 2026-01-31 12:00:00")
    (['-1', '36.33', '0.00', 'N/A'], False)
    """
    values: list[str] = []
    for token in LABEL.sub(" ", text).replace("|", " ").split():
        if is_value(token):
            values.append(token)
        elif not _STAMP.fullmatch(token):
            if not values and token.startswith("-1"):
                values.append("-1")  # a message glued to the root
            return values, True
    return values, False


class Fit(NamedTuple):
    """A row read by a layout; ``whole`` where all its blocks are there."""

    root: int | None
    out: Block | None
    inside: Block | None
    whole: bool
    layout: Layout


def fit(values: list[str], size: int, layouts: tuple[Layout, ...]) -> Fit | bool:
    """A row's blocks by the first layout they agree with.

    ``False`` where a layout has all its numbers but algbw is not size/time; ``True`` where numbers are missing.
    """
    contradicts = False
    for layout in layouts:
        length = layout.length
        if len(values) == length or (len(values) > length and not layout.exact):
            found = [_block(values, layout, place, size) for place in range(len(layout.blocks))]
            if all(agrees is not False for _, agrees in found) and (
                len(values) == length or all(agrees for _, agrees in found)
            ):
                return _fit(values, layout, [block for block, _ in found], whole=True)
            contradicts = True
    # A row that ends early may be torn: later lines can bring the rest.
    for layout in layouts:
        if layout.lead + layout.width <= len(values) < layout.length:
            block, agrees = _block(values, layout, 0, size)
            if agrees:
                return _fit(values, layout, [block], whole=False)
            contradicts = contradicts or (not layout.exact and agrees is False)
    return not contradicts


def _fit(values: list[str], layout: Layout, blocks: list[Block], *, whole: bool) -> Fit:
    named = dict(zip(layout.blocks, blocks, strict=False))
    root = number(values[0]) if layout.lead else None
    return Fit(None if root is None else int(root), named.get("out"), named.get("in"), whole, layout)


def _block(values: list[str], layout: Layout, place: int, size: int) -> tuple[Block, bool | None]:
    """A block, and whether its algbw is size/time (None where that cannot be told)."""
    start = layout.lead + place * layout.width
    part = values[start : start + layout.width]
    algbw_text = part[layout.algbw] if layout.algbw is not None else ""
    busbw_text = part[layout.busbw] if layout.busbw is not None else ""
    time, algbw, busbw = number(part[layout.time]), number(algbw_text), number(busbw_text)
    wrong = number(part[layout.wrong]) if layout.wrong is not None else None
    block = Block(
        None if time is None else time / layout.per_second,
        algbw,
        busbw,
        half_unit(algbw_text),
        half_unit(busbw_text),
        int(wrong or 0),
    )
    if time is None or time <= 0 or algbw is None:
        return block, None
    half = half_unit(part[layout.time])
    low = size * layout.per_second / (time + half) / layout.unit
    high = size * layout.per_second / (time - half) / layout.unit if time > half else float("inf")
    slack = block.algbw_half * 1.01 + 1e-5 * algbw
    if not low - slack <= algbw <= high + slack:
        return block, False
    most = 2 * (algbw + block.algbw_half)
    return block, busbw is None or -block.busbw_half <= busbw <= most + block.busbw_half
