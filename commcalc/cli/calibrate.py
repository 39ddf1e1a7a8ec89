"""``commcalc calibrate``: measured links from logs, how far a machine is from them, and what to measure for a job."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from commcalc.cli import options as o
from commcalc.cli.logs import asked_of, sweeps_of
from commcalc.cli.output import Format, say, warn, write
from commcalc.errors import UsageError
from commcalc.units import format_rate

if TYPE_CHECKING:
    from commcalc.catalog.calibrate import Calibrated
    from commcalc.catalog.hardware import Hardware

EXAMPLES = """\b
Examples:
  commcalc calibrate nccl.log
  commcalc calibrate nccl.log --hardware h100 --output mine.yaml
  commcalc calibrate --compare h100 nccl.log --tolerance 15%
  commcalc calibrate --plan llama-3-70b-h100
"""
# More than this share of the datasheet's rate is no measurement of that link.
_BEYOND_DATASHEET = 1.5


@o.with_examples(EXAMPLES)
def calibrate(
    ctx: typer.Context,
    logs: Annotated[
        Optional[list[str]],
        typer.Argument(
            metavar="[LOG]...", help="Logs of nccl-tests, rccl-tests or OSU, or - for stdin.", show_default=False
        ),
    ] = None,
    collective: Annotated[
        o.Text,
        typer.Option(
            "--collective", metavar="KIND", help="Where the log does not say, like all_reduce.", show_default=False
        ),
    ] = None,
    ranks: Annotated[
        o.Text, typer.Option("--ranks", metavar="N", help="Where the log does not say.", show_default=False)
    ] = None,
    nodes: Annotated[
        o.Text,
        typer.Option(
            "--nodes", metavar="N", help="Nodes that took part [as the machine's levels say].", show_default=False
        ),
    ] = None,
    hardware: o.Hardware = None,
    output: Annotated[
        o.Text,
        typer.Option("--output", "-o", metavar="FILE", help="Write a hardware file, - for stdout.", show_default=False),
    ] = None,
    compare: Annotated[
        o.Text,
        typer.Option("--compare", metavar="NAME|FILE", help="Hold a machine against the logs.", show_default=False),
    ] = None,
    tolerance: Annotated[
        o.Text,
        typer.Option("--tolerance", metavar="SHARE", help="Error allowed at every size [25%].", show_default=False),
    ] = None,
    plan: Annotated[
        o.Text, typer.Option("--plan", metavar="JOB", help="Print what to measure for a job.", show_default=False)
    ] = None,
    set_: o.Set = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Each number with its formula.", show_default=False)
    ] = False,
    format_: o.FormatOption = None,
    json_: o.Json = False,
    no_color: o.NoColor = False,
) -> None:
    """Measured links from benchmark logs.

    The exit status is 1 where --compare finds an error beyond the tolerance,
    or the log tells of wrong values.
    """  # fmt: skip
    style = o.format_from(ctx.params)
    if plan is not None:
        _print_plan(ctx.params, style, plan)
        return
    asked = asked_of(ctx.params, style)
    sweeps = sweeps_of(ctx.params["logs"], asked)
    machine = asked.machine
    if compare is not None and machine is not None:
        _print_compared(ctx.params, style, sweeps, machine, asked.tolerance)
        return
    if output is not None:
        _write_machine(output, sweeps, machine, hardware)
        if output == "-":
            return
    _print_sweeps(ctx.params, style, sweeps, machine, explain=explain)


def _write_machine(path: str, sweeps: Sequence[Calibrated], machine: Hardware | None, extends: str | None) -> None:
    from commcalc.catalog import presets
    from commcalc.catalog.calibrate import hardware_text

    base = extends
    if extends is not None and presets.is_path(extends):
        if extends.lstrip().startswith("{") or not os.path.exists(extends):
            told = "a machine given as a mapping cannot be extended"
            raise UsageError(told, where="--hardware", hint="a preset or a file")
        if path != "-":
            if os.path.exists(path) and os.path.samefile(path, extends):
                told = "the file is what the machine rests on"
                raise UsageError(told, where=f"--output {path}", hint="another name")
            base = os.path.relpath(extends, os.path.dirname(os.path.abspath(path)))
            base = base if "/" in base else f"./{base}"
    stem = "calibrated" if path == "-" else Path(path).stem.lower()
    text = hardware_text(re.sub(r"[^a-z0-9.]+", "-", stem).strip("-.") or "calibrated", sweeps, machine, base)
    if path == "-":
        write(text)
        return
    from commcalc.cli.destination import put

    put(path, text)
    say(f"wrote {path if path.isprintable() else ascii(path)}")


def _print_sweeps(
    params: Mapping[str, Any], style: Format, sweeps: Sequence[Calibrated], machine: Hardware | None, *, explain: bool
) -> None:
    from commcalc.report import calibrate as report

    rates = [_datasheet(one, machine) for one in sweeps]
    warnings = [*_warnings(sweeps), *_too_fast(sweeps, rates)]
    plots = "\n".join(report.plot(one) for one in sweeps)
    if style is Format.MARKDOWN:  # which would join the lines
        plots = f"```text\n{plots}```\n"
    more = "\n".join(line for one in sweeps for line in report.explained(one)) + "\n" if explain else ""
    _show(
        params, style,
        lambda: report.calibrate_document(sweeps, rates, warnings),
        lambda: [report.sweep_record(one, rate) for one, rate in zip(sweeps, rates, strict=True)],
        lambda: report.calibrate_tables(sweeps, rates),
        as_is=plots,
        below=more + _notes(sweeps, machine),
    )  # fmt: skip
    warn(warnings)


def _datasheet(one: Calibrated, machine: Hardware | None) -> float | None:
    """The rate that bounds the bus bandwidth of the group on the machine, by its datasheet."""
    if machine is None:
        return None
    from commcalc.catalog.calibrate import placed
    from commcalc.network.hierarchy import egress_rate
    from commcalc.network.link import Network

    bare = Network(tuple(level._replace(measured=()) for level in machine.network.levels))
    return egress_rate(placed(one, bare), bare, one.kind.value)


def _too_fast(sweeps: Sequence[Calibrated], rates: Sequence[float | None]) -> list[tuple[str, str]]:
    return [
        ("beyond-datasheet", f"{one.log.source}: best busbw is {one.best_busbw / rate:.3g} times the datasheet's rate")
        for one, rate in zip(sweeps, rates, strict=True)
        if rate and one.best_busbw > _BEYOND_DATASHEET * rate
    ]


def _notes(sweeps: Sequence[Calibrated], machine: Hardware | None) -> str:
    """What was deduced from the logs or seen in them, and what busbw means where a switch sums."""
    notes = [(one, note) for one in sweeps for note in (*one.log.notes, *_summed(one, machine))]
    told = dict.fromkeys(f"- {os.path.basename(one.log.source)}: {note}" for one, note in notes)
    return "".join(f"{line}\n" for line in ("Read from the logs", *told)) if told else ""


def _summed(one: Calibrated, machine: Hardware | None) -> list[str]:
    """What busbw could reach where the switch sums: it sends (n+1)/n of the payload, not 2(n-1)/n."""
    from commcalc.algebra.collective import Kind
    from commcalc.catalog.calibrate import placed

    if machine is None or one.kind is not Kind.ALL_REDUCE:
        return []
    level = machine.network.levels[placed(one, machine.network).outermost]
    if level.in_network is None or one.ranks < level.in_network.min_ranks:
        return []
    most = 2 * (one.ranks - 1) / (one.ranks + 1) * level.rate
    told = f"busbw is no wire rate where {level.name} sums in its switch; there it could reach {format_rate(most)}"
    return [f"{told}, of which {100 * one.best_busbw / most:.3g} % were"]


def _warnings(sweeps: Sequence[Calibrated]) -> list[tuple[str, str]]:
    found = []
    for one in sweeps:
        log = one.log
        if log.out_of_bounds:
            found.append(("wrong-values", f"{log.source}: {log.out_of_bounds} values came out wrong"))
        if log.failed_size:
            found.append(("crashed", f"{log.source}: the run ended before {log.failed_size:,} B was done"))
        if log.gpus_per_process > 1:
            told = f"{log.source}: one process drives {log.gpus_per_process} GPUs, which makes small sizes slow"
            found.append(("one-process", told))
        if one.fit.capped:
            told = f"{log.source}: the sizes set no bandwidth; it is held at 1.5 times the largest busbw"
            found.append(("no-plateau", told))
    return list(dict.fromkeys(found))


def _print_compared(
    params: Mapping[str, Any], style: Format, sweeps: Sequence[Calibrated], machine: Hardware, tolerance: float
) -> None:
    from commcalc.catalog.calibrate import compare
    from commcalc.report import calibrate as report

    pairs = [(one, compare(one, machine.network)) for one in sweeps]
    worst = max((abs(each.error) for _, found in pairs for each in found), default=0.0)
    beyond = sum(abs(each.error) > tolerance for _, found in pairs for each in found)
    count = sum(len(found) for _, found in pairs)
    verdict = f"{beyond} of {count} sizes are beyond" if beyond else f"all {count} sizes are within"
    largest = round(100 * worst, 3)
    wrong = sum(one.log.out_of_bounds for one in sweeps)
    warn(_warnings(sweeps))
    _show(
        params, style,
        lambda: report.compared_document(machine.name, pairs, tolerance),
        lambda: [record for one, found in pairs for record in report.compared_records(one, found, tolerance)],
        lambda: report.compared_tables(pairs, tolerance),
        above=f"{machine.name}: {verdict} {100 * tolerance:.3g} %; the largest error is {largest:.3g} %\n",
    )  # fmt: skip
    if beyond or wrong:
        raise typer.Exit(1)


def _print_plan(params: Mapping[str, Any], style: Format, job: str) -> None:
    from commcalc.accounting.acceptance import acceptance
    from commcalc.accounting.rows import Warn
    from commcalc.catalog.job import resolve_job
    from commcalc.report import acceptance as report

    for name in ("logs", "compare", "output", "collective", "ranks", "nodes", "tolerance", "explain"):
        if params.get(name):
            where = "LOG" if name == "logs" else f"--{name}"
            raise UsageError("a plan is made before anything is measured", where=where, hint="leave it out with --plan")
    found = resolve_job(o.request_from({"job": job, "hardware": params.get("hardware"), "set_": params.get("set_")}))
    plan = acceptance(found.model, found.parallel, found.work, found.hardware, found.algorithm)
    plan = plan._replace(
        assumptions=(*found.assumptions, *plan.assumptions),
        warnings=(*(Warn(*one) for one in found.warnings), *plan.warnings),
    )
    warn(plan.warnings)
    said = "".join(f"- {line}\n" for line in plan.assumptions)
    _show(
        params, style,
        lambda: report.plan_document(plan),
        lambda: report.plan_records(plan),
        lambda: report.plan_tables(plan),
        above=report.plan_heading(plan),
        as_is=report.plan_commands(plan),
        below=f"Assumptions\n{said}" if said else "",
    )  # fmt: skip


def _show(
    params: Mapping[str, Any],
    style: Format,
    document: Any,
    records: Any,
    tables: Any,
    above: str = "",
    as_is: str = "",
    below: str = "",
) -> None:
    from commcalc.cli.sharded import show

    show(params, style, document, records, tables, above, below, as_is)
