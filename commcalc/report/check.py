"""What a budget's limits say: as a document, tables, GitHub annotations and JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from commcalc import __version__
from commcalc.accounting.budget import Verdict
from commcalc.accounting.rows import AXES
from commcalc.algebra.collective import Kind
from commcalc.catalog.answer import Answer, compared
from commcalc.errors import CommcalcError, printable
from commcalc.report.compare import row_record
from commcalc.report.ledger import ledger_document
from commcalc.report.table import Column, Table

SCHEMA = "commcalc/check/1"
_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d+):(?P<column>\d+)(?: |$)")
# Of XML 1.0: what no document may hold.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Checked(NamedTuple):
    """A limit of a budget on one of its jobs."""

    job: str
    verdict: Verdict


def documents_of(answer: Answer) -> tuple[Mapping[str, Any], ...]:
    """What limits are looked up in: the ledger's document, the row of a comparison, and calls by their kind."""
    ledger = ledger_document(answer.priced, answer.job, answer.outlook)
    rows: Any = ledger["rows"]
    counts: dict[str, dict[str, int]] = {
        group: {kind.value: 0 for kind in Kind if kind is not Kind.SLICE}
        for group in (*AXES, *(row["group"] for row in rows), "all")
    }
    for row in rows:
        for group in (row["group"], "all"):
            counts[group][row["collective"]] += row["count_in_step"]
    used = {group: [kind for kind, count in kinds.items() if count] for group, kinds in counts.items()}
    return ledger, row_record(compared(answer), {}), {"collectives": used, "calls": {"step": counts}}


def document(limits: Sequence[Checked]) -> dict[str, Any]:
    """The document of ``commcalc check --json``."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "passed": all(one.verdict.passed for one in limits),
        "limits": [limit_record(one) for one in limits],
    }


def limit_record(one: Checked) -> dict[str, Any]:
    """A limit on a job; what a limit does not have is null."""
    verdict = one.verdict
    return {
        "job": one.job,
        "field": verdict.path,
        "value": verdict.value,
        "min": verdict.low,
        "max": verdict.high,
        "margin": verdict.margin,
        "passed": verdict.passed,
        "unit": verdict.unit,
        "headroom": verdict.headroom,
        "predicted": verdict.predicted,
        "measured": verdict.measured,
        "tolerance": verdict.tolerance,
        "only": verdict.only,
        "none": verdict.none,
        "where": verdict.where,
        "reason": verdict.reason,
    }


def limits_table(limits: Sequence[Checked]) -> Table:
    """A line for each limit; the job is left out where there is one."""
    several = len({one.job for one in limits}) > 1
    columns = (Column("passed"), *([Column("job")] if several else []), Column("field"), Column("value", True),
               Column("bound", True), Column("left", True), Column("margin", True))  # fmt: skip
    rows = []
    for one in limits:
        verdict = one.verdict
        margin = "" if verdict.margin is None else f"{100 * verdict.margin:.1f} %"
        cells = ("yes" if verdict.passed else "NO", *([one.job] if several else []), verdict.path, verdict.shown)
        rows.append((*cells, verdict.asked, verdict.headroom_shown, margin))
    broken = sum(not one.verdict.passed for one in limits)
    title = f"{len(limits)} limit{'s' if len(limits) != 1 else ''}, {broken or 'none'} broken"
    return Table(title, columns, tuple(rows))


def broken_annotations(limits: Sequence[Checked]) -> str:
    """Workflow commands of GitHub Actions: an error at the line of every limit that is broken."""
    return "".join(
        _annotation(one.verdict.where, "commcalc check", f"{one.job}: {one.verdict.path}: {one.verdict.reason}")
        for one in limits
        if not one.verdict.passed
    )


def error_annotations(error: CommcalcError) -> str:
    """The same of what is wrong with a budget or its jobs."""
    return "".join(
        _annotation(one.where or "", "commcalc check: wrong input", one.message + (f"; {one.hint}" if one.hint else ""))
        for one in error.problems
    )


def _annotation(where: str, title: str, message: str) -> str:
    found = _PLACE.match(where)
    place = {"file": found["file"], "line": found["line"], "col": found["column"]} if found else {}
    if not found and where:
        message = f"{message} (at {where})"
    if place.get("file") == "stdin":  # of no file in the repository
        del place["file"]
    told = ",".join(f"{key}={_property(value)}" for key, value in (*place.items(), ("title", title)))
    return f"::error {told}::{_data(message)}\n"


def _data(text: str) -> str:
    """The message of a workflow command. Source: actions/toolkit, packages/core/src/command.ts, escapeData."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """A property of a workflow command. Source: the same, escapeProperty."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def junit(name: str, limits: Sequence[Checked]) -> str:
    """A JUnit report: a suite for each job, a test case for each limit."""
    from xml.etree.ElementTree import Element, SubElement, indent, tostring

    root = Element("testsuites", {"name": _xml(name)} | _counts(limits))
    for job in dict.fromkeys(one.job for one in limits):
        mine = [one for one in limits if one.job == job]
        suite = SubElement(root, "testsuite", {"name": _xml(job)} | _counts(mine))
        for one in mine:
            verdict = one.verdict
            case = SubElement(suite, "testcase", {"classname": _xml(job), "name": _xml(verdict.path)})
            if not verdict.passed:
                failure = SubElement(case, "failure", {"message": _xml(verdict.reason or ""), "type": "limit"})
                failure.text = _xml(f"{verdict.path}: {verdict.shown}, asked {verdict.asked}\nat {verdict.where}")
    indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{tostring(root, encoding='unicode')}\n"


def error_junit(name: str, error: CommcalcError) -> str:
    """A JUnit report of a budget that could not be checked: errors, so that nobody takes it for a pass."""
    from xml.etree.ElementTree import Element, SubElement, indent, tostring

    counts = {"tests": str(len(error.problems)), "failures": "0", "errors": str(len(error.problems))}
    root = Element("testsuites", {"name": _xml(name)} | counts)
    suite = SubElement(root, "testsuite", {"name": _xml(name)} | counts)
    for one in error.problems:
        case = SubElement(suite, "testcase", {"classname": _xml(name), "name": _xml(one.place() or "budget")})
        SubElement(case, "error", {"message": _xml(one.message), "type": one.kind}).text = _xml(one.text())
    indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{tostring(root, encoding='unicode')}\n"


def _counts(limits: Sequence[Checked]) -> dict[str, str]:
    broken = sum(not one.verdict.passed for one in limits)
    return {"tests": str(len(limits)), "failures": str(broken), "errors": "0"}


def _xml(text: str) -> str:
    return _NOT_XML.sub("?", printable(text))
