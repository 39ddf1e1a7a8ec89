"""``commcalc busbw``: what time, algorithm bandwidth and bus bandwidth of a benchmark say of each other."""

import os
from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeVar

import typer

from commcalc.cli import options as o
from commcalc.cli.output import Format, colour_of_terminal, warn, width_of_terminal, write
from commcalc.errors import CommcalcError, UsageError, raise_all
from commcalc.network.busbw import Bandwidths, bandwidths, kind_named
from commcalc.units import parse_count, parse_payload, parse_rate, parse_seconds

EXAMPLES = """\b
Examples:
  commcalc busbw all_reduce --group-size 8 --bytes 1GiB --time 5.07ms
  commcalc busbw all_gather --group-size 8 --bytes 1GiB --busbw 360GB/s
  commcalc busbw all_reduce --group-size 8 --busbw 480GB/s --in-network
  commcalc busbw all_reduce --group-size 8 --algbw 131GB/s --hardware a100
"""


Value = TypeVar("Value")


@o.with_examples(EXAMPLES)
def busbw(
    ctx: typer.Context,
    primitive: Annotated[str, typer.Argument(metavar="KIND", help="all_reduce, all_gather, ...", show_default=False)],
    group_size: o.GroupSize = None,
    bytes_: o.Bytes = None,
    time: Annotated[
        o.Text, typer.Option("--time", metavar="TIME", help="Time of one call.", show_default=False)
    ] = None,
    algbw: Annotated[
        o.Text, typer.Option("--algbw", metavar="RATE", help="Payload over time, like 210GB/s.", show_default=False)
    ] = None,
    busbw_: Annotated[
        o.Text, typer.Option("--busbw", metavar="RATE", help="As nccl-tests prints it.", show_default=False)
    ] = None,
    in_network: o.InNetwork = False,
    link: Annotated[
        o.Text,
        typer.Option(
            "--link", metavar="RATE", help="One-way rate of a device's link, like 450GB/s.", show_default=False
        ),
    ] = None,
    both_ways: Annotated[
        bool, typer.Option("--both-ways", help="The --link rate adds both directions: halve it.", show_default=False)
    ] = False,
    hardware: o.Hardware = None,
    format_: o.FormatOption = None,
    json_: o.Json = False,
    output: o.OutputOption = None,
    no_color: o.NoColor = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Each number with its formula and values.", show_default=False)
    ] = False,
) -> None:
    """Any one of time, algbw and busbw gives the others.

    The factor is that of nccl-tests; the share of the link is told against its one-way rate.
    """
    style = o.format_from(ctx.params)
    found, known = _asked(
        primitive,
        group_size,
        bytes_,
        {"time": time, "algbw": algbw, "busbw": busbw_},
        in_network,
        link,
        both_ways,
        hardware,
    )
    notes, warnings = _said(found, both_ways)
    _print(found, (*notes, *known), warnings, style, explain=explain, no_color=no_color)


def _asked(
    primitive: str,
    group_size: str | None,
    payload: str | None,
    given: dict[str, str | None],
    in_network: bool,
    link: str | None,
    both_ways: bool,
    hardware: str | None,
) -> tuple[Bandwidths, tuple[str, ...]]:
    """What the options say, and what is to be known of the machine; all that is wrong with them is raised together."""
    problems: list[CommcalcError] = []

    def read(option: str, text: str | None, parse: Callable[[str], Value]) -> Value | None:
        if text is None:
            return None
        try:
            value = parse(text)
            if option == "--time" and value == 0:
                raise UsageError(f"{text!r} is not above zero")
        except CommcalcError as problem:
            problem.where = problem.where or f"{option} {text[:60]}"
            problems.append(problem)
            return None
        return value

    kind = read("KIND", primitive, kind_named)
    n = read("--group-size", group_size, parse_count)
    size = read("--bytes", payload, parse_payload)
    time = read("--time", given["time"], parse_seconds)
    rates = {name: read(f"--{name}", given[name], parse_rate) for name in ("algbw", "busbw")}
    rate = read("--link", link, parse_rate)
    if group_size is None:
        problems.append(UsageError("no group size", where="the command line", hint="--group-size 8"))
    if both_ways and link is None:
        problems.append(
            UsageError("--both-ways says what --link counts", where="--both-ways", hint="add --link 900GB/s")
        )
    if link is not None and hardware is not None:
        problems.append(UsageError("--link and --hardware both name the link", where="--link", hint="give one of them"))
    raise_all(problems)
    if rate is not None and both_ways:
        rate /= 2
    at = _Link(rate, True, ()) if hardware is None else _link_of(hardware, n or 1, kind or "")
    found = bandwidths(
        kind or "", n, payload_bytes=size, time_s=time, algbw=rates["algbw"], busbw=rates["busbw"],
        in_network=in_network, link=at.rate, own_copy=at.own_copy,
    )  # fmt: skip
    return found, at.notes


class _Link(NamedTuple):
    """What bounds a device's sending on a machine, whether its switches take a copy of the result, and what to know."""

    rate: float | None
    own_copy: bool
    notes: tuple[str, ...]


def _link_of(hardware: str, n: int, kind: str) -> _Link:
    """The link of ``n`` neighbouring devices of a machine."""
    from commcalc.catalog.job import Request
    from commcalc.catalog.machine import machine
    from commcalc.network.hierarchy import egress_rate
    from commcalc.network.placement import place

    found = machine(Request(hardware=hardware))
    network = found.hardware.network
    at = place(n, 1, network, n)
    said = list(found.links.assumptions)
    if len(at.parts) > 1 or at.uneven:
        said.append("over several levels the link is what bounds a ring: all ports out of a domain, or one inside")
    sums = network.levels[at.outermost].in_network
    return _Link(egress_rate(at, network, kind), sums is None or sums.own_copy, tuple(said))


def _said(found: Bandwidths, both_ways: bool) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Notes and warnings that the numbers call for."""
    from commcalc.units import format_rate

    notes, warnings = [], []
    if both_ways and found.link is not None:
        notes.append(f"the link rate counts both directions: one way it is {format_rate(found.link)}")
    if found.n == 1:
        notes.append("a group of one device sends nothing: there is no communication")
    if found.payload_bytes == 0:
        notes.append("a payload of 0 bytes: the time is latency alone, rates say nothing")
    if found.in_network:
        notes.append("with in-network reduction busbw is no wire rate")
        if found.link is not None and found.busbw > found.link >= found.wire:
            told = f"busbw {format_rate(found.busbw)} above the link's {format_rate(found.link)} is right"
            notes.append(f"{told}: a device sends only {format_rate(found.wire)}")
    if found.share_of_link is not None and found.share_of_link > 1:
        message = f"{format_rate(found.wire)} on the wire is above the link's one-way {format_rate(found.link or 0)}"
        asks = "is the rate in bits, does it count both ways" + (
            ", or does the switch reduce (--in-network)?"
            if found.kind == "all_reduce" and not found.in_network
            else "?"
        )
        warnings.append(("above-link-rate", f"{message}: {asks}"))
    return tuple(notes), tuple(warnings)


def _print(
    found: Bandwidths,
    notes: tuple[str, ...],
    warnings: tuple[tuple[str, str], ...],
    style: Format,
    *,
    explain: bool,
    no_color: bool,
) -> None:
    from commcalc.report import busbw as report
    from commcalc.report import json as as_json

    if style is Format.JSON:
        text = as_json.render_json(report.busbw_document(found, notes, warnings))
    elif style is Format.JSONL:
        text = as_json.render_jsonl([report.busbw_record(found)])
    else:
        from commcalc.report import table

        if style is Format.CSV:
            text = table.render_csv([report.busbw_record(found)])
        else:
            tables = [report.busbw_table(found)]
            width = width_of_terminal(os.environ)
            tail = "".join(f"- {line}\n" for line in notes)
            if explain:
                tail = "".join(f"{line}\n" for line in report.explained(found)) + tail
            if style is Format.MARKDOWN:
                text = table.render_markdown(tables)
            else:
                text = table.render(tables, table.Terminal(width, colour_of_terminal(os.environ, no_color)))
            text += "\n" + table.folded(tail, width) if tail else ""
    warn(warnings)
    write(text)
