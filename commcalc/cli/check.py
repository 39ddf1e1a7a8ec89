"""``commcalc check``: budgets for CI, a line for each limit, and a status that fails a build."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from commcalc.cli import options as o
from commcalc.cli.output import colour_of_terminal, warn, width_of_terminal, write
from commcalc.document import Leaf, read_text
from commcalc.errors import NO_LEGAL_ANSWER, CommcalcError, SpecError, UnknownName, UsageError, raise_all

if TYPE_CHECKING:
    from commcalc.catalog.answer import Answer
    from commcalc.catalog.assign import Assignment
    from commcalc.catalog.budget import BudgetJob
    from commcalc.report.check import Checked

EXAMPLES = """\b
Examples:
  commcalc check budget.yaml
  commcalc check budget.yaml --set workload.recompute=selective
  commcalc check budget.yaml --format github
  commcalc check budget.yaml --format junit > report.xml
  commcalc check budget.yaml --measured totals.step.tp.count=1960
  commcalc check - < budget.yaml
"""
# The status of a check that failed.
BROKEN = 1


class Style(StrEnum):
    """How the limits are written."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    MARKDOWN = "markdown"
    GITHUB = "github"
    JUNIT = "junit"


@o.with_examples(EXAMPLES)
def check(
    budget: Annotated[str, typer.Argument(metavar="BUDGET", help="Budget file, or - for stdin.", show_default=False)],
    measured: Annotated[
        Optional[list[str]],
        typer.Option("--measured", metavar="FIELD=VALUE", help="A measured value of a limit.", show_default=False),
    ] = None,
    set_: o.Set = None,
    style_: Annotated[
        o.Text,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="table, json, github, junit, markdown, jsonl or csv [table].",
            show_default=False,
        ),
    ] = None,
    json_: o.Json = False,
    output: o.OutputOption = None,
    no_color: o.NoColor = False,
) -> None:
    """Hold jobs against a budget: exit status 1 where a limit is broken.

    A field that is not there, or traffic that is zero where a degree is above 1, is an error (2), never a pass.
    """
    style = _style(style_, json_)
    name = "stdin" if budget == "-" else budget
    try:
        found = _checked(budget, o.measured_from(measured), o.request_from({"set_": set_}).assignments)
    except CommcalcError as problem:
        _tell(problem, style, name)
        raise
    _write(found, style, name, no_color)
    if not all(one.verdict.passed for one in found):
        raise typer.Exit(BROKEN)


def _style(given: str | None, json_: bool) -> Style:
    if given is not None and given not in Style.__members__.values():
        raise UnknownName("format", given, [*Style], where=f"--format {given[:60]}")
    if json_ and given not in (None, "json"):
        raise UsageError(f"--json and --format {given} contradict each other", where="--json")
    return Style.JSON if json_ else Style(given or "table")


def _checked(given: str, measured: Mapping[str, Leaf], assignments: Sequence[Assignment]) -> list[Checked]:
    """Every limit on every job; what is wrong with any of them is raised together."""
    from commcalc.accounting.budget import judge
    from commcalc.catalog.budget import read_budget
    from commcalc.report.check import Checked, documents_of

    text = o.read_stdin("budget") if given == "-" else read_text(given)
    folder = Path() if given == "-" else Path(given).parent
    budget = read_budget(text, "stdin" if given == "-" else given, folder, measured)
    problems = list(budget.problems)
    found: list[Checked] = []
    told: dict[tuple[str, str], None] = {}
    for job in budget.jobs:
        try:
            answer = _answer(job, assignments)
        except CommcalcError as problem:
            problems += _placed(problem, job)
            continue
        told |= dict.fromkeys((warning.code, warning.message) for warning in answer.priced.warnings)
        documents = documents_of(answer)
        for limit in budget.limits:
            try:
                found.append(Checked(job.name, judge(limit, documents)))
            except CommcalcError as problem:
                problems += problem.problems
    # What is wrong with a limit is wrong for every job.
    raise_all(list({(one.message, one.where): one for one in problems}.values()))
    warn(list(told))
    return found


def _answer(job: BudgetJob, assignments: Sequence[Assignment]) -> Answer:
    from commcalc.catalog.answer import answer_to
    from commcalc.catalog.job import resolve_job

    return answer_to(resolve_job(job.request._replace(assignments=assignments)))


def _placed(problem: CommcalcError, job: BudgetJob) -> Sequence[CommcalcError]:
    """What is wrong with a job, at its place in the budget where it has none in a file."""
    file = job.where.rsplit(":", 2)[0]
    for one in problem.problems:
        where = one.where or ""
        if one.status == NO_LEGAL_ANSWER:
            one.where = f"{job.where} job {job.name}: {where}"
        elif job.request.job is not None and where in (job.request.job, f"job: {job.request.job[:80]}"):
            if isinstance(one, SpecError):
                one.message = f"{one.message}: {job.request.job}"
            one.where = f"{job.where} job"
        elif where == file:
            one.where = f"{job.where} job {job.name}"
    return problem.problems


def _tell(problem: CommcalcError, style: Style, name: str) -> None:
    """Errors where a CI looks for them, beside the text on stderr."""
    from commcalc.report.check import error_annotations, error_junit

    if style is Style.GITHUB:
        write(error_annotations(problem))
    elif style is Style.JUNIT:
        write(error_junit(name, problem))


def _write(found: Sequence[Checked], style: Style, name: str, no_color: bool) -> None:
    from commcalc.report import check as report
    from commcalc.report.json import render_json, render_jsonl
    from commcalc.report.table import Terminal, render, render_csv, render_markdown

    if style is Style.JSON:
        text = render_json(report.document(found))
    elif style is Style.JSONL:
        text = render_jsonl([report.limit_record(one) for one in found])
    elif style is Style.CSV:
        text = render_csv([report.limit_record(one) for one in found])
    elif style is Style.JUNIT:
        text = report.junit(name, found)
    elif style is Style.MARKDOWN:
        reasons = [f"- {one.job}: {one.verdict.path}: {one.verdict.reason}" for one in found if one.verdict.reason]
        text = render_markdown([report.limits_table(found)]) + ("\n" + "\n".join(reasons) + "\n" if reasons else "")
    else:
        terminal = Terminal(width_of_terminal(os.environ), colour_of_terminal(os.environ, no_color))
        text = render([report.limits_table(found)], terminal)
        if style is Style.GITHUB:
            text += report.broken_annotations(found)
        else:
            text += "".join(
                f"{one.verdict.where} {one.job}: {one.verdict.path}: {one.verdict.reason}\n"
                for one in found
                if one.verdict.reason
            )
    write(text)
