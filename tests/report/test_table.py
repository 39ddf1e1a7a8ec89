"""Tables at every width: nothing is cut, and a pipe is as wide as it must be."""

from __future__ import annotations

import re

import pytest

from commcalc.report.table import Column, Table, Terminal, render, render_csv, render_markdown

TABLE = Table(
    "Numbers",
    (Column("name"), Column("payload bytes", True), Column("wire bytes", True), Column("a[i_x, j]")),
    (("section",), ("first", "134,217,728", "234,881,024", "x[b] {U_Y}"), ("second [bold]", "1", "2", "")),
)


def test_a_pipe_gets_the_whole_table() -> None:
    assert render([TABLE], Terminal()) == (
        "Numbers\n"
        "name           payload bytes   wire bytes  a[i_x, j]\n"
        "-----------------------------------------------------\n"
        "section\n"
        "first            134,217,728  234,881,024  x[b] {U_Y}\n"
        "second [bold]              1            2\n"
    )


@pytest.mark.parametrize("width", [10, 24, 30, 40, 60, 200])
def test_no_digit_is_cut_at_any_width(width: int) -> None:
    text = render([TABLE], Terminal(width))
    for cell in ("134,217,728", "234,881,024", "x[b] {U_Y}", "second [bold]"):
        assert cell in text
    if width >= 30:
        assert max(len(line) for line in text.splitlines()) <= width


def test_columns_that_do_not_fit_follow_with_the_first_column_again() -> None:
    text = render([TABLE], Terminal(40))
    assert text.count("second [bold]") == 2
    assert "Numbers, continued" in text


def test_colour_only_where_it_is_asked_for() -> None:
    plain = render([TABLE], Terminal(80))
    coloured = render([TABLE], Terminal(80, colour=True))
    assert "\x1b[" in coloured
    assert "\x1b" not in plain
    without = "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines())
    assert without == "\n".join(line.rstrip() for line in plain.splitlines())


def test_markdown() -> None:
    assert render_markdown([TABLE]) == (
        "**Numbers**\n"
        "\n"
        "| name | payload bytes | wire bytes | a[i_x, j] |\n"
        "| --- | ---: | ---: | --- |\n"
        "| **section** |  |  |  |\n"
        "| first | 134,217,728 | 234,881,024 | x[b] {U_Y} |\n"
        "| second [bold] | 1 | 2 |  |\n"
    )


def test_csv_of_nothing_is_nothing() -> None:
    assert render_csv([]) == ""
    assert render_csv([{"a": 1, "b": "x,y"}]) == 'a,b\n1,"x,y"\n'
