"""The groups of ranks as tables: a line for each kind of group, then every group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from commcalc.report.table import Column, Table

Record = Mapping[str, Any]
# Groups of a kind, and items of a cell, of which all are shown; of more the first ones.
_ALL_GROUPS, _FIRST_GROUPS = 16, 8
_ALL_ITEMS, _FIRST_ITEMS = 8, 3


def ranks_tables(records: Sequence[Record]) -> list[Table]:
    """The kinds of group in one table, and the groups in another; very many of a kind are not all shown."""
    kinds: dict[str, list[Record]] = {}
    for record in records:
        kinds.setdefault(record["group"], []).append(record)
    if not kinds:
        return [Table("Groups", (Column("group"),), (("no group has more than one rank",),))]
    return [_kinds_table(kinds), _groups_table(kinds)]


def _kinds_table(kinds: Mapping[str, Sequence[Record]]) -> Table:
    columns = [
        Column("group"), Column("ranks", True), Column("groups", True), Column("stride", True), Column("the first"),
    ]  # fmt: skip
    placed = any(one["levels"] is not None for records in kinds.values() for one in records)
    if placed:
        columns += [Column("nodes", True), Column("rides on")]
    rows = []
    for name, records in kinds.items():
        ranks = records[0]["ranks"]
        cells = (name, str(len(ranks)), str(len(records)), _stride(ranks), spans(ranks))
        rows.append((*cells, _nodes(records), _levels(records)) if placed else cells)
    return Table("Groups", tuple(columns), tuple(rows))


def _stride(ranks: Sequence[int]) -> str:
    """The distance between neighbours, where it is one."""
    apart = {after - before for before, after in pairwise(ranks)}
    return str(apart.pop()) if len(apart) == 1 else ""


def _nodes(records: Sequence[Record]) -> str:
    spanned = sorted({one["nodes"] for one in records})
    return str(spanned[0]) if len(spanned) == 1 else f"{spanned[0]}..{spanned[-1]}"


def _levels(records: Sequence[Record]) -> str:
    return " or ".join(dict.fromkeys(" and ".join(one["levels"]) for one in records))


def _groups_table(kinds: Mapping[str, Sequence[Record]]) -> Table:
    columns = (
        Column("group"), Column("ranks"), Column("level"), Column("inside each domain"), Column("crosses between"),
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for name, records in kinds.items():
        shown = records if len(records) <= _ALL_GROUPS else records[:_FIRST_GROUPS]
        rows += [_cells(one) for one in shown]
        if len(shown) < len(records):
            rows.append((f"and {len(records) - len(shown)} more of {name}; --json lists all",))
    return Table("Groups by rank", columns, tuple(rows))


def _cells(record: Record) -> tuple[str, ...]:
    crossings = _few([f"{a}-{b}" for a, b in record["crossings"]], ", ")
    return (
        f"{record['group']} {record['index']}",
        spans(record["ranks"]),
        str(record["level"] or ""),
        _few([spans(domain) for domain in record["domains"]], "; "),
        crossings or "nowhere",
    )


def spans(ranks: Sequence[int]) -> str:
    """Ranks with runs shortened, and very many runs left out.

    >>> spans([0, 1, 2, 3, 8])
    '0..3, 8'
    >>> spans([0, 8, 16, 24])
    '0..24 by 8'
    """
    stride = _stride(ranks)
    if len(ranks) > 3 and stride not in ("", "1"):
        return f"{ranks[0]}..{ranks[-1]} by {stride}"
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], rank]
        else:
            runs.append([rank])
    return _few([f"{run[0]}..{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs], ", ")


def _few(items: Sequence[str], between: str) -> str:
    """All of them, or the first and the last.

    >>> _few("abcdefghi", ", ")
    'a, b, c, ..., i'
    """
    if len(items) > _ALL_ITEMS:
        items = [*items[:_FIRST_ITEMS], "...", items[-1]]
    return between.join(items)
