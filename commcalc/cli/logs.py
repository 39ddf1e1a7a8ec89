"""The options and the logs of ``commcalc calibrate``, read; all that is wrong is told together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from commcalc.cli import options as o
from commcalc.cli.output import Format, warn
from commcalc.errors import CommcalcError, UnknownName, UsageError, raise_all
from commcalc.units import parse_count

if TYPE_CHECKING:
    from commcalc.algebra.collective import Kind
    from commcalc.catalog.calibrate import Calibrated
    from commcalc.catalog.hardware import Hardware

# A machine passes where every size is predicted this well.
DEFAULT_TOLERANCE = 0.25
_LARGEST_TOLERANCE = 100


class Asked(NamedTuple):
    """What the options say, read; ``machine`` is the one to compare with, or to extend."""

    machine: Hardware | None
    kind: Kind | None
    ranks: int | None
    nodes: int | None
    tolerance: float


def asked_of(params: Mapping[str, Any], style: Format) -> Asked:
    """The options; all that is wrong with them is told together."""
    problems: list[CommcalcError] = list(_together(params, style))

    def read(make: Callable[[], Any]) -> Any:
        try:
            return make()
        except CommcalcError as problem:
            problems.extend(problem.problems)
            return None

    named = params["hardware"] if params["compare"] is None else params["compare"]
    found = Asked(
        read(lambda: _machine(params, named)),
        read(lambda: _kind(params["collective"])),
        read(lambda: _count(params, "ranks")),
        read(lambda: _count(params, "nodes")),
        read(lambda: _share(params["tolerance"])),
    )
    raise_all(problems)
    return found


def _together(params: Mapping[str, Any], style: Format) -> Iterator[UsageError]:
    """What of the options does not go together."""
    logs, compare, output = params["logs"] or (), params["compare"], params["output"]
    if not logs:
        yield UsageError("no log is given", where="commcalc calibrate", hint="a log of all_reduce_perf, or --plan JOB")
    if logs.count("-") > 1:
        yield UsageError("stdin is there once", where="- -", hint="give one - alone")
    for name in ("hardware", "output") if compare is not None else ():
        if params[name] is not None:
            yield UsageError(f"--compare names the machine and writes none: --{name} has nothing to act on",
                             where=f"--{name}", hint="leave one of them out")  # fmt: skip
    if compare is not None and params["explain"]:
        yield UsageError("a comparison has no formulas of its own", where="--explain", hint="leave it out")
    if compare is None and params["tolerance"] is not None:
        yield UsageError("a tolerance but nothing to compare with", where="--tolerance", hint="--compare h100")
    if output is not None and params["set_"]:
        yield UsageError("the file would not hold single values", where="--set", hint="put them into a hardware file")
    if output == "-" and (style is not Format.TABLE or params["explain"]):
        yield UsageError("stdout takes the machine", where="--output -", hint="a file, or no --format and --explain")


def _machine(params: Mapping[str, Any], named: str | None) -> Hardware | None:
    """The machine that a name, file or mapping gives, with single values replaced."""
    from commcalc.catalog.job import resolve_links

    if named is None and not params.get("set_"):
        return None
    return resolve_links(o.request_from({"hardware": named, "set_": params.get("set_")})).hardware


def sweeps_of(logs: Sequence[str], asked: Asked) -> list[Calibrated]:
    """Every sweep of every log, cleaned and fitted; all that is wrong is told together."""
    from commcalc.catalog.calibrate import calibrated, contradicting_rows, contradictions, nodes_of
    from commcalc.ingest.nccl_tests import read_log, read_stream

    network = asked.machine.network if asked.machine else None
    problems: list[CommcalcError] = []
    found: list[Calibrated] = []
    lone: list[tuple[str, str]] = []
    for log in logs:
        try:
            read = read_stream(o.stdin_of("log"), "stdin") if log == "-" else read_log(log)
        except CommcalcError as problem:
            problems += problem.problems
            continue
        for sweep in read:
            if len(sweep.rows) == 1 and len(read) > 1:
                where = f"{sweep.source}:{sweep.rows[0].line}"
                lone.append(("single-size", f"{where}: a run of a single size, which fixes no law, is left out"))
                continue
            try:
                raise_all([problem for problem in [contradicting_rows(sweep)] if problem])
                ranks = asked.ranks or sweep.ranks
                nodes = asked.nodes or (nodes_of(ranks, network, sweep.source) if ranks else 1)
                found.append(calibrated(sweep, asked.kind, asked.ranks, nodes))
            except CommcalcError as problem:
                problems += problem.problems
    raise_all(problems)
    raise_all(contradictions(found))
    warn(lone)
    return found


def _kind(given: str | None) -> Kind | None:
    from commcalc.algebra.collective import Kind

    if given is None:
        return None
    known = [kind for kind in Kind if kind not in (Kind.SLICE, Kind.PERMUTE)]
    if given not in [kind.value for kind in known]:
        raise UnknownName("collective", given, known, where=f"--collective {given[:60]}")
    return Kind(given)


def _count(params: Mapping[str, Any], name: str) -> int | None:
    given = params.get(name)
    if given is None:
        return None
    try:
        return parse_count(str(given))
    except CommcalcError as problem:
        problem.where = f"--{name} {str(given)[:60]}"
        raise


def _share(given: str | None) -> float:
    """``25%`` or ``0.25``: above 0, and with a percent sign where it is above 1."""
    if given is None:
        return DEFAULT_TOLERANCE
    text = given.strip()
    where = f"--tolerance {text[:60]}"
    found = re.fullmatch(r"(\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE]([+-]?\d{1,2}))?\s*(%?)", text, re.ASCII)
    if found is None:
        raise UsageError(f"{text[:60]!r} is no share", where=where, hint="25% or 0.25")
    value = float(f"{found[1]}e{found[2] or 0}")
    if value > 1 and not found[3]:
        raise UsageError(f"{text} is {100 * value:.6g} %", where=where, hint=f"{text}% if percent are meant")
    value /= 100 if found[3] else 1
    if not 0 < value <= _LARGEST_TOLERANCE:
        told = "no share above 0" if value <= 0 else f"beyond {100 * _LARGEST_TOLERANCE} %"
        raise UsageError(f"{text[:60]!r} is {told}", where=where, hint="25% or 0.25")
    return value
