"""Tables as data, and their text: on a terminal, in a pipe, in Markdown, as CSV.

A table wider than the terminal is not cut: its columns are dealt out to several tables under one another, each with
the first column again. In a pipe a table is as wide as it must be. The text is plain ASCII on any machine.
"""

import io
import json
from collections.abc import Sequence
from typing import NamedTuple

from commcalc.errors import printable

_GAP = 2


class Column(NamedTuple):
    """A column's title, and whether its values are numbers (set to the right)."""

    title: str
    number: bool = False


class Table(NamedTuple):
    """A title, columns, and rows of text; a row with only its first cell is a heading inside the table."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


class Terminal(NamedTuple):
    """Where the text goes: ``width`` None is a pipe."""

    width: int | None = None
    colour: bool = False


def render(tables: Sequence[Table], terminal: Terminal) -> str:
    """The tables as text, a blank line between them."""
    clean = (_printable(table) for table in tables)
    return "\n".join(_drawn(part, terminal) for table in clean for part in _dealt(table, terminal.width))


def _printable(table: Table) -> Table:
    """The table without what steers a terminal or breaks a line."""
    rows = tuple(tuple(printable(cell).replace("\n", "\\n") for cell in row) for row in table.rows)
    return table._replace(title=printable(table.title), rows=rows)


def _widths(table: Table) -> list[int]:
    return [
        max([len(column.title), *(len(row[at]) for row in table.rows if at < len(row) and len(row) > 1)], default=0)
        for at, column in enumerate(table.columns)
    ]


def _dealt(table: Table, width: int | None) -> list[Table]:
    """The table, or its columns in as many tables as the width asks for."""
    widths = _widths(table)
    if width is None or sum(widths) + _GAP * (len(widths) - 1) <= width:
        return [table]
    chunks: list[list[int]] = [[0]]
    room = width - widths[0]
    for at in range(1, len(widths)):
        if len(chunks[-1]) > 1 and widths[at] + _GAP > room:
            chunks.append([0])
            room = width - widths[0]
        chunks[-1].append(at)
        room -= widths[at] + _GAP
    return [
        Table(
            table.title if number == 0 else f"{table.title}, continued",
            tuple(table.columns[at] for at in chunk),
            tuple(row if len(row) == 1 else tuple(row[at] for at in chunk) for row in table.rows),
        )
        for number, chunk in enumerate(chunks)
    ]


def _drawn(table: Table, terminal: Terminal) -> str:
    lines = _lines(table)
    if not terminal.colour:
        return "".join(f"{line}\n" for line, _ in lines)
    from rich.console import Console
    from rich.text import Text

    file = io.StringIO()
    console = Console(
        file=file, force_terminal=True, color_system="standard", legacy_windows=False, markup=False, emoji=False,
        highlight=False, _environ={},
    )  # fmt: skip
    for line, bold in lines:
        console.print(Text(line, style="bold" if bold else ""), soft_wrap=True)
    return file.getvalue()


def _lines(table: Table) -> list[tuple[str, bool]]:
    """Every line of the table, and whether it is a title or heading."""
    widths = _widths(table)
    gap = " " * _GAP

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if column.number else cell.ljust(width)
            for cell, width, column in zip(cells, widths, table.columns, strict=True)
        )
        return gap.join(padded).rstrip()

    rule = "-" * (sum(widths) + _GAP * (len(widths) - 1))
    head = [(table.title, True), (line([column.title for column in table.columns]), True), (rule, False)]
    return head + [(row[0], True) if len(row) == 1 else (line(row), False) for row in table.rows]


def folded(text: str, width: int | None) -> str:
    """Prose folded at words for a narrow terminal; what follows hangs under what it belongs to."""
    if width is None:
        return text
    from textwrap import fill

    def fold(line: str) -> str:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        return fill(line, max(20, width), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)

    return "".join(fold(line) + "\n" for line in text.splitlines())


def render_markdown(tables: Sequence[Table]) -> str:
    """The tables as GitHub Markdown; heading rows become bold lines of their own."""
    return "\n".join(_markdown(_printable(table)) for table in tables)


def _markdown(table: Table) -> str:
    lines = [f"**{_escaped(table.title)}**", ""]
    lines.append("| " + " | ".join(_escaped(column.title) for column in table.columns) + " |")
    lines.append("| " + " | ".join("---:" if column.number else "---" for column in table.columns) + " |")
    for row in table.rows:
        cells = [_escaped(cell) for cell in row]
        if len(row) == 1:
            cells = [f"**{cells[0]}**", *[""] * (len(table.columns) - 1)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def _cell(value: object) -> object:
    """A value in one cell: lists and mappings as JSON, truth as JSON writes it, nothing for null."""
    if value is None or (isinstance(value, (int, float, str)) and not isinstance(value, bool)):
        return value
    return json.dumps(value, ensure_ascii=False)


def render_csv(records: Sequence[dict[str, object]]) -> str:
    """Records as CSV with one header line: a column for every key that one of them has, in the order they appear."""
    import csv

    file = io.StringIO()
    if records:
        writer = csv.DictWriter(
            file, fieldnames=list(dict.fromkeys(key for one in records for key in one)), lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in record.items()} for record in records)
    return file.getvalue()
