"""Lines of a sweep: what the ledger's document holds at a path, and columns as JSON or CSV."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from commcalc.accounting.ledger import build
from commcalc.accounting.memory import fullest
from commcalc.accounting.outlook import Outlook, outlook_of
from commcalc.accounting.pricing import price_ledger
from commcalc.accounting.rows import GROUPS
from commcalc.accounting.sweep import Found
from commcalc.catalog.job import Job, Request, resolve_job
from commcalc.report.ledger import ledger_document
from commcalc.report.step import memory_document, outlook_documents, totals_record

# The columns that every line has behind the fields that vary and `legal`, and where the ledger's document has them.
RESULTS = {
    "block_wire_bytes": "totals.block.all.wire_bytes",
    "block_comm_s": "totals.block.all.time_s",
    "step_wire_bytes": "totals.step.all.wire_bytes",
    "step_comm_s": "totals.step.all.time_s",
    "exposed_share": "block.exposed_share",
    "memory_bytes": "memory.total_bytes",
}
# Why a point is not legal; in no document.
REASON = "reason"
# Parts of the document that are numbers alone; a column of another part needs every word of it.
_NUMBERS = ("totals", "memory", "block", "step", "stages")


def needs_whole_document(paths: Iterable[str]) -> bool:
    """Whether some path leads into a part of the document that is made one by one."""
    return any(path.partition(".")[0] not in _NUMBERS for path in paths)


def needs_step(paths: Iterable[str]) -> bool:
    """Whether the step and its stages are needed, which the usual columns are not made of."""
    usual = set(RESULTS.values())
    return any(path not in usual and path.partition(".")[0] in ("step", "block", "stages") for path in paths)


def document_of(found: Found) -> dict[str, Any]:
    """The numbers of the ledger's document."""
    priced = found.priced
    totals: dict[str, Any] = {scope: totals_record(groups) for scope, groups in priced.totals.items()}
    if len(priced.blocks) > 1:
        totals["blocks"] = {name: totals_record(groups) for name, groups in priced.blocks.items()}
    if found.stages is not None:
        outlook = Outlook(priced.ledger.stages, found.stages, found.memory, found.step, (), ())
        return {"totals": totals, **outlook_documents(outlook)}
    return {
        "totals": totals,
        "memory": memory_document(fullest(found.memory)) if found.memory else None,
        "block": {"exposed_share": found.block.exposed_share if found.block else None},
    }


def whole_document(job: Job) -> dict[str, Any]:
    """The document of one point; raises where it is not legal."""
    ledger = build(job.model, job.parallel, job.work, job.convention)
    network = job.hardware.network if job.hardware else None
    priced = price_ledger(ledger, network, job.algorithm)
    outlook = outlook_of(priced, job.chip, network, job.algorithm, job.states, job.clock)
    return ledger_document(priced, job, outlook)


def at_path(document: Any, path: str) -> Any:
    """What stands at ``totals.step.tp.time_s``; None where nothing does."""
    for part in path.split("."):
        if isinstance(document, Mapping):
            document = document.get(part)
        elif isinstance(document, Sequence) and not isinstance(document, str) and part.isdecimal():
            document = document[int(part)] if int(part) < len(document) else None
        else:
            return None
    return None if isinstance(document, (Mapping, list, tuple)) else document


def known_paths(document: Mapping[str, Any]) -> set[str]:
    """Paths of single values in a document and in that of the packaged job; items of lists by the number 0."""
    found = _paths(document) | _paths(whole_document(resolve_job(Request())))
    totals = ("count", "payload_bytes", "wire_bytes", "time_s")
    scopes = ("block", "stage", "step")
    found |= {f"totals.{scope}.{group}.{key}" for scope in scopes for group in GROUPS for key in totals}
    found |= {"warnings.0.code", "warnings.0.message"}
    return found | {f"step.exposed.{group}" for group in GROUPS}


def is_known(path: str, known: set[str]) -> bool:
    """Whether a path leads to a value that documents have."""
    return re.sub(r"\.\d+(?=\.|$)", ".0", path) in known


def _paths(document: Any, before: str = "") -> set[str]:
    items: Iterable[tuple[str, Any]]
    if isinstance(document, Mapping):
        items = document.items()
    elif isinstance(document, (list, tuple)):
        items = [("0", one) for one in document]
    else:
        return {before[:-1]}
    return {path for key, value in items for path in _paths(value, f"{before}{key}.")}


class Lines:
    """Columns of points as lines of JSON or CSV, in the order of ``names``."""

    def __init__(self, names: Sequence[str], csv: bool) -> None:
        self.names = tuple(names)
        self.csv = csv
        self.null = "" if csv else "null"
        keys = [json.dumps(name, ensure_ascii=False) + ": " for name in self.names]
        self.before = [""] + [","] * (len(keys) - 1) if csv else ["{" + keys[0], *(", " + key for key in keys[1:])]
        self.end = "\n" if csv else "}\n"

    def head(self) -> str:
        """The first line of a table."""
        return ",".join(_quoted(name) for name in self.names) + "\n" if self.csv else ""

    def text(self, columns: Mapping[str, Any], count: int) -> str:
        """A line for each point."""
        cells, line = [], ""
        for name, before in zip(self.names, self.before, strict=True):
            column = columns[name]
            line += before.replace("%", "%%")
            if hasattr(column, "dtype"):
                cells.append(self._cells(column))
                line += "%s"
            else:  # one value of all
                line += self._cell(column).replace("%", "%%")
        line += self.end
        return "".join(map(line.__mod__, zip(*cells, strict=True))) if cells else line % () * count

    def _cells(self, column: Any) -> list[str]:
        hidden = getattr(column, "mask", None)
        if hidden is not None:
            column = column.data
        values = column.tolist()
        if column.dtype == object:
            cells = [self._cell(value) for value in values]
        elif column.dtype == bool:
            cells = ["true" if value else "false" for value in values]
        elif column.dtype.kind == "U":
            cells = [self._cell(value) for value in values]
        elif column.dtype.kind == "f" and not isfinite(column.sum()):
            cells = [repr(value) if isfinite(value) else self.null for value in values]
        else:
            cells = list(map(repr, values))
        if hidden is not None:
            for at in hidden.nonzero()[0].tolist():
                cells[at] = self.null
        return cells

    def _cell(self, value: object) -> str:
        if value is None or (isinstance(value, float) and not isfinite(value)):
            return self.null
        if isinstance(value, (bool, int, float)) or not self.csv:
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        return _quoted(str(value))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search('[",\r\n]', text) else text


def part(columns: Mapping[str, Any], here: Any) -> dict[str, Any]:
    """Some of the points, by a slice or by their places."""
    return {name: column[here] if hasattr(column, "dtype") else column for name, column in columns.items()}


def chosen(columns: Mapping[str, Any], met: Any) -> tuple[int, dict[str, Any]]:
    """The points that meet a condition, and how many they are."""
    count = int(met.sum())
    return count, dict(columns) if count == met.size else part(columns, met)


class Best:
    """Of all points that are added the ``most`` with the least (or largest) ``by``; the first of equals."""

    def __init__(self, most: int, by: str, largest: bool) -> None:
        self.most = most
        self.by = by
        self.largest = largest
        self.kept: dict[str, Any] = {}
        self.keys: Any = None

    def add(self, columns: Mapping[str, Any], count: int) -> None:
        """Look at more points; those whose ``by`` is not known are none of the best."""
        import numpy as np

        keys, known = _numbers(columns[self.by], count)
        keys = -keys if self.largest else keys
        mine = np.flatnonzero(known & _legal(columns["legal"], count))
        if self.keys is not None and self.keys.size == self.most:
            mine = mine[keys[mine] < self.keys[-1]]
        if not mine.size:
            return
        mine = mine[np.argsort(keys[mine], kind="stable")[: self.most]]
        new = {name: _filled(column, mine) for name, column in columns.items()}
        both = keys[mine] if self.keys is None else np.concatenate([self.keys, keys[mine]])
        order = np.argsort(both, kind="stable")[: self.most]
        old = self.kept
        self.kept = {
            name: (values if not old else _objects([*old[name].tolist(), *values.tolist()]))[order]
            for name, values in new.items()
        }
        self.keys = both[order]

    def found(self) -> tuple[int, dict[str, Any]]:
        """How many there are, and their columns."""
        return (0, {}) if self.keys is None else (self.keys.size, self.kept)


def _legal(column: Any, count: int) -> Any:
    import numpy as np

    return np.broadcast_to(column, count)


def _numbers(column: Any, count: int) -> tuple[Any, Any]:
    """The numbers of a column, and where there are some."""
    import numpy as np

    if not hasattr(column, "dtype"):
        column = np.full(count, column, dtype=object)
    if column.dtype != object and column.dtype.kind in "ifb":
        known = ~np.ma.getmaskarray(column) if np.ma.isMaskedArray(column) else np.ones(count, dtype=bool)
        numbers = np.asarray(np.ma.getdata(column))
        return (numbers.astype(np.int64) if numbers.dtype == bool else numbers), known
    values = column.tolist()
    known = np.array([isinstance(value, (int, float)) for value in values], dtype=bool)
    return _objects([value if good else 0 for value, good in zip(values, known.tolist(), strict=True)]), known


def _filled(column: Any, mine: Any) -> Any:
    """The values of some points as objects, None where there is none."""
    if hasattr(column, "dtype"):
        return _objects(column[mine].tolist())
    return _objects([column] * mine.size)


def _objects(values: Sequence[object]) -> Any:
    import numpy as np

    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found
