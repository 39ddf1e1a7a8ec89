"""The tables of groups: a line for each kind, and of very many groups the first ones."""

from __future__ import annotations

from typing import Any

import pytest

from commcalc.report.ranks import ranks_tables, spans
from commcalc.report.table import Terminal, render

SPANS = [
    ([0, 1, 2, 3, 8], "0..3, 8"),
    ([0, 8], "0, 8"),
    ([0, 4, 8], "0, 4, 8"),
    ([0, 4, 8, 12], "0..12 by 4"),
    ([0, 1, 4, 5, 8, 9], "0..1, 4..5, 8..9"),
    ([at * 4 + one for at in range(12) for one in (0, 1)], "0..1, 4..5, 8..9, ..., 44..45"),
]


@pytest.mark.parametrize(("ranks", "text"), SPANS)
def test_spans(ranks: list[int], text: str) -> None:
    assert spans(ranks) == text


def record(index: int, ranks: list[int], nodes: int, levels: list[str]) -> dict[str, Any]:
    return {
        "group": "dp", "index": index, "ranks": ranks, "level": levels[-1], "domains": [ranks], "crossings": [],
        "nodes": nodes, "levels": levels,
    }  # fmt: skip


TABLES = """\
Groups
group  ranks  groups  stride  the first  nodes
----------------------------------------------
dp         3       2       4  0, 4, 8     1..2

Groups, continued
group  rides on
--------------------------
dp     node or node and ib

Groups by rank
group  ranks     level  inside each domain  crosses between
-----------------------------------------------------------
dp 0   0, 4, 8   node   0, 4, 8             nowhere
dp 1   1, 5, 10  ib     1, 5, 10            nowhere
"""


def test_groups_that_differ_are_told_so_and_the_tables_fit_the_terminal() -> None:
    records = [record(0, [0, 4, 8], 1, ["node"]), record(1, [1, 5, 10], 2, ["node", "ib"])]
    assert render(ranks_tables(records), Terminal(60)) == TABLES


@pytest.mark.parametrize(("count", "shown", "more"), [(16, 16, None), (17, 8, 9), (5000, 8, 4992)])
def test_of_very_many_groups_the_first_are_listed(count: int, shown: int, more: int | None) -> None:
    kinds, groups = ranks_tables([record(at, [at, at + count], 1, ["node"]) for at in range(count)])
    assert kinds.rows == (("dp", "2", str(count), str(count), f"0, {count}", "1", "node"),)
    lines = [row for row in groups.rows if len(row) > 1]
    rest = [row for row in groups.rows if len(row) == 1]
    assert (len(lines), rest) == (shown, [] if more is None else [(f"and {more} more of dp; --json lists all",)])
    assert all(len(line) <= 60 for line in render([kinds, groups], Terminal(60)).splitlines())


def test_one_device_has_no_groups() -> None:
    assert "no group has more than one rank" in render(ranks_tables([]), Terminal(None))
