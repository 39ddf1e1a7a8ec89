"""``commcalc collective``: one primitive priced every way, or the primitives compared on one array."""

import os
from collections.abc import Callable, Sequence
from math import prod
from typing import Annotated, NamedTuple, TypeVar

import typer

from commcalc.accounting.links import beyond_measured, told_of_times
from commcalc.algebra.collective import Kind
from commcalc.catalog.hardware import Hardware
from commcalc.catalog.machine import Machine, machine
from commcalc.cli import options as o
from commcalc.cli import sizes
from commcalc.cli.output import Format, colour_of_terminal, warn, width_of_terminal, write
from commcalc.errors import CommcalcError, UsageError, raise_all
from commcalc.network.busbw import kind_named
from commcalc.network.link import KERNELS, Algorithm, InNetworkReduction, Network
from commcalc.network.placement import Placement, place, place_axes
from commcalc.network.primitive import Answer, Compared, compare, primitive, what_payload_is
from commcalc.report import collective as report
from commcalc.report.table import Table
from commcalc.units import Dtype, format_bytes, format_seconds, parse_count, parse_dtype, parse_payload

EXAMPLES = """\b
Examples:
  commcalc collective all_reduce --bytes 8MiB --group-size 8 --hardware h100
  commcalc collective all_gather --bytes 8MiB --group-size 16 --hardware v5e
  commcalc collective --bytes 64MiB --group-size 16 --hardware h100
  commcalc collective 'A[I_X] -> A[I]' --mesh X=8 --dim I=8K --hardware h100
  commcalc collective all_to_all --bytes 1MB --group-size 4 --bandwidth 1GB/s
"""
MOST_AXES = 16


Value = TypeVar("Value")


class Question(NamedTuple):
    """What to price: a kind (None: all on one array), its payload, and the group as mesh axes or as a size."""

    kind: Kind | None
    payload_bytes: int
    mesh: tuple[tuple[str, int], ...]
    axes: tuple[str, ...]

    def place(self, network: Network) -> Placement:
        """Where the group lies."""
        if self.axes == tuple(name for name, _ in self.mesh):
            size = prod(size for _, size in self.mesh)
            return place(size, 1, network, size)
        return place_axes(self.mesh, self.axes, network)


@o.with_examples(EXAMPLES)
def collective(
    ctx: typer.Context,
    primitive_: Annotated[
        o.Text,
        typer.Argument(metavar="[KIND]", help="all_reduce, ... or 'A[I_X] -> A[I]' [compare].", show_default=False),
    ] = None,
    bytes_: o.Bytes = None,
    elements: Annotated[
        o.Text, typer.Option("--elements", metavar="N", help="Payload in elements of --dtype.", show_default=False)
    ] = None,
    dtype: o.DtypeOption = None,
    group_size: o.GroupSize = None,
    mesh: sizes.MeshOption = None,
    axes: Annotated[
        o.Text, typer.Option("--axes", metavar="AXES", help="Axes of the group [all of --mesh].", show_default=False)
    ] = None,
    dim: sizes.Dims = None,
    hardware: o.Hardware = None,
    shape: sizes.Shape = None,
    bandwidth: o.Bandwidth = None,
    latency: o.Latency = None,
    in_network: o.InNetwork = False,
    algorithm: o.AlgorithmOption = None,
    convention: o.ConventionOption = None,
    set_: sizes.SetLinks = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Each number with its formula and values.", show_default=False)
    ] = False,
    format_: o.FormatOption = None,
    json_: o.Json = False,
    output: o.OutputOption = None,
    no_color: o.NoColor = False,
) -> None:
    """One collective by every algorithm, or primitives compared.

    The payload is that of nccl-tests: the gathered result of an all_gather, the unreduced input of a reduce_scatter,
    what one device holds for an all_to_all. Without a KIND, --bytes is an array that the whole group shares.
    """
    style = o.format_from(ctx.params)
    request = o.request_from({name: value for name, value in ctx.params.items() if name != "dtype"})
    found = machine(request, shape)
    if in_network or (hardware is None and found.links.algorithm is Algorithm.IN_NETWORK):  # a link without a file
        found = found._replace(hardware=_reducing(found.hardware))
    question = _question(
        primitive_, payload=bytes_, elements=elements, group_size=group_size, mesh=mesh, axes=axes, dims=dim or (),
        dtype=dtype,
    )  # fmt: skip
    if in_network and question.kind not in (None, Kind.ALL_REDUCE):
        warn(
            [("in-network-unused", f"a switch reduces all_reduce alone: --in-network does nothing for {question.kind}")]
        )
    placement = question.place(found.hardware.network)
    links = found.links
    if question.kind is None:
        if explain:
            raise UsageError("--explain is for one collective", where="--explain", hint="name a KIND")
        compared = compare(question.payload_bytes, placement, found.hardware.network, links.algorithm, links.convention)
        _print_compared(compared, question, placement, found, style, no_color)
        return
    answer = primitive(
        question.kind, question.payload_bytes, placement, found.hardware.network, links.algorithm, links.convention
    )
    _print_answer(answer, found, style, explain=explain, no_color=no_color)


def _reducing(hardware: Hardware) -> Hardware:
    """The machine whose innermost level reduces in its switch, from two devices on."""
    first, *rest = hardware.network.levels
    if first.axes or first.in_network is not None or first.topology != "switch":
        if first.in_network is not None:  # asked for, so also for groups that the software would not use it for
            first = first._replace(in_network=first.in_network._replace(min_ranks=2))
            return hardware._replace(network=Network((first, *rest)))
        raise UsageError(f"{first.name} is a {first.topology}: it has no switch that could sum", where="--in-network")
    sums = InNetworkReduction(latency_s=2 * first.latency_s)
    return hardware._replace(network=Network((first._replace(in_network=sums), *rest)))


def _question(
    kind: str | None,
    *,
    payload: str | None,
    elements: str | None,
    group_size: str | None,
    mesh: Sequence[str] | None,
    axes: str | None,
    dims: Sequence[str],
    dtype: str | None,
) -> Question:
    """What the options ask; all that is wrong with them is raised together."""
    problems: list[CommcalcError] = []

    def attempt(where: str, function: Callable[[str], Value], text: str) -> Value | None:
        try:
            return function(text)
        except CommcalcError as problem:
            problem.where = problem.where if problem.place() else where
            problems.extend(problem.problems)
            return None

    element = attempt(f"--dtype {(dtype or '')[:60]}", parse_dtype, dtype) if dtype is not None else Dtype.BF16
    bits = element.bits if element is not None else 0
    tensor = kind is not None and "[" in kind
    axis_sizes = tuple(sizes.mesh_of(mesh, problems).items())
    if len(axis_sizes) > MOST_AXES:
        problems.append(UsageError(f"{len(axis_sizes)} axes; a mesh has at most {MOST_AXES}", where="--mesh"))
    names = None if axes is None else tuple(part.strip() for part in axes.split(","))
    count = attempt(f"--group-size {(group_size or '')[:60]}", parse_count, group_size) if group_size else None
    if group_size is not None and not group_size:
        problems.append(UsageError("an empty group size", where="--group-size", hint="--group-size 8"))
    if group_size is not None and mesh:
        problems.append(UsageError("a group size and a mesh", where="--group-size, --mesh", hint="give one of them"))
    if group_size is None and not mesh:
        problems.append(
            UsageError("no group is given", where="the command line", hint="--group-size 8 or --mesh X=4,Y=2")
        )
    if names is not None and len(set(names)) < len(names):
        problems.append(UsageError("an axis is named twice", where=f"--axes {(axes or '')[:60]}"))
    if axes is not None and not mesh:
        problems.append(UsageError("axes of no mesh", where="--axes", hint="add --mesh X=4,Y=2"))
    if tensor:
        for option, value in (("--bytes", payload), ("--elements", elements), ("--axes", axes)):
            if value is not None:
                told = f"{option} beside a tensor, whose sharding says it"
                problems.append(UsageError(told, where=option, hint="leave it out"))
        if not mesh and group_size is not None:
            problems.append(UsageError("a tensor's axes need a mesh", where="--group-size", hint="--mesh X=8"))
        raise_all(problems)
        from commcalc.cli.sharding_change import change_of

        step_kind, bytes_, step_axes = change_of(str(kind), axis_sizes, dims, bits)
        return Question(step_kind, bytes_, axis_sizes, step_axes)
    for one in dims:
        problems.append(
            UsageError("a dimension of no tensor", where=f"--dim {one[:60]}", hint="'A[I_X, J] -> A[I, J]'")
        )
    named = attempt("KIND", _priced_kind, kind) if kind is not None else None
    size: int | None = None
    if payload is not None and elements is not None:
        problems.append(UsageError("bytes and elements", where="--bytes, --elements", hint="give one of them"))
    elif payload is not None:
        size = attempt(f"--bytes {payload[:60]}", parse_payload, payload)
    elif elements is not None:
        number = attempt(f"--elements {elements[:60]}", parse_count, elements)
        size = None if number is None else -(-number * bits // 8)
    else:
        problems.append(
            UsageError("no payload", where="the command line", hint="--bytes 128MiB, --elements or a tensor")
        )
    raise_all(problems)
    group = axis_sizes or (("group", count or 1),)
    return Question(named, size or 0, group, names or tuple(name for name, _ in group))


def _priced_kind(text: str) -> Kind:
    """A kind that the network can price; `UsageError` for those that only benchmarks name."""
    name = kind_named(text)
    if name not in Kind.__members__.values():
        raise UsageError(f"{name} has no price here, only its factor", where="KIND", hint=f"commcalc busbw {name}")
    return Kind(name)


def _said(found: Machine, placement: Placement, payload_bytes: int, kind: Kind | None) -> report.Said:
    """Assumptions and warnings of one answer."""
    network = found.hardware.network
    ridden = [network.levels[index] for index in range(placement.outermost + 1)]
    said = (
        [f"payload: {what_payload_is(kind)}"] if kind else ["the array is what all devices of the group hold together"]
    )
    said += found.links.assumptions
    said.append("rates are one direction; all devices of the machine send at once, each group as this one")
    idle = [level.name for level in ridden if level.latency_s == 0]
    if idle and placement.size > 1:
        said.append(f"no latency is given for {', '.join(idle)}: taken as zero")
    if len(placement.parts) > 1:
        serial = "follow one another; their times add up"
        textbook = "run at once (textbook): the slowest level counts"
        how = textbook if found.links.convention == "textbook" else serial
        said.append(f"phases of a collective over several levels {how}")
    if found.links.convention == "textbook":
        said.append("textbook convention: times drop (n-1)/n and are the larger of latency and bandwidth")
    if placement.size == 1:
        said.append("a group of one device: no communication")
    if payload_bytes == 0:
        said.append("a payload of 0 bytes: the times are latencies alone")
    warnings = []
    if placement.uneven:
        message = (
            f"the group lies in unequal parts on its domains: one flat ring with {placement.channels} links across"
        )
        warnings.append(("uneven-group", message))
    sources = {path: where for path, where in found.links.sources.items() if path.startswith("hardware.")}
    return report.Said(tuple(said), tuple(warnings), sources)


def _print_answer(answer: Answer, found: Machine, style: Format, *, explain: bool, no_color: bool) -> None:
    said = _said(found, answer.placement, answer.payload_bytes, answer.kind)
    cost = answer.best.priced.cost
    more = (*told_of_times([cost]), *_overlapped(answer), *_passed_over(answer, found))
    beyond = [("beyond-measured", told) for told in beyond_measured([(f"{answer.payload_bytes:,} B", cost)])]
    said = said._replace(assumptions=(*said.assumptions, *more), warnings=(*said.warnings, *beyond))
    head = report.heading(answer, found.hardware, what_payload_is(answer.kind))
    lines = report.explained(answer, found.hardware) if explain and style in (Format.TABLE, Format.MARKDOWN) else []
    _print(
        style,
        lambda: report.answer_document(answer, found.hardware, said, explain),
        [{"collective": answer.kind, **report.way_record(way), "offered": True} for way in answer.offered]
        + [{"collective": answer.kind, **report.way_record(way), "offered": False} for way in answer.others],
        lambda: report.answer_tables(answer, found.hardware.network),
        head, lines, said.assumptions, no_color,
    )  # fmt: skip
    warn(said.warnings)


def _overlapped(answer: Answer) -> list[str]:
    if not answer.best.priced.phases:
        return []
    return [
        f"phases of different levels at once would take {format_seconds(answer.best.overlapped_s)}, the busiest level"
    ]


def _passed_over(answer: Answer, found: Machine) -> list[str]:
    """The fastest of the ways that the level does not offer, where it would beat the chosen one; what handed over."""
    if found.links.algorithm in KERNELS and answer.best.name is not found.links.algorithm:
        return [
            f"{found.links.algorithm} hands over to {answer.best.name} before {format_bytes(answer.payload_bytes)} B"
        ]
    if (
        found.links.algorithm is not Algorithm.AUTO
        or not answer.others
        or answer.others[0].time_s >= answer.best.time_s
        or answer.best.priced.cost.confidence != answer.others[0].priced.cost.confidence  # a lower bound always is
    ):
        return []
    other = answer.others[0]
    level = found.hardware.network.levels[answer.placement.outermost].name
    listed = ", ".join(dict.fromkeys([*(way.name.value for way in answer.offered), other.name.value]))
    return [
        f"{other.name} would take {format_seconds(other.time_s)}, but auto takes only what {level} offers: "
        f"algorithms: [{listed}] in its hardware file would let it"
    ]


def _print_compared(
    compared: list[Compared], question: Question, placement: Placement, found: Machine, style: Format, no_color: bool
) -> None:
    said = _said(found, placement, question.payload_bytes, None)
    _print(
        style,
        lambda: report.compared_document(compared, question.payload_bytes, placement, found.hardware, said),
        [report.compared_record(one) for one in compared],
        lambda: report.compared_tables(compared, question.payload_bytes, placement),
        f"on {found.hardware.name}\n", [], said.assumptions, no_color,
    )  # fmt: skip
    warn(said.warnings)


def _print(
    style: Format,
    document: Callable[[], dict[str, object]],
    records: list[dict[str, object]],
    tables: Callable[[], list[Table]],
    head: str,
    explained: list[str],
    assumptions: tuple[str, ...],
    no_color: bool,
) -> None:
    from commcalc.report import json as as_json

    if style is Format.JSON:
        write(as_json.render_json(document()))
        return
    if style is Format.JSONL:
        write(as_json.render_jsonl(records))
        return
    from commcalc.report import table

    if style is Format.CSV:
        write(table.render_csv(records))
        return
    tail = "Assumptions\n" + "".join(f"- {line}\n" for line in assumptions)
    if explained:
        tail = "Explained\n" + "".join(f"  {line}\n" for line in explained) + "\n" + tail
    drawn = tables()
    if style is Format.MARKDOWN:
        write(f"{head}\n{table.render_markdown(drawn)}\n{tail}")
        return
    width = width_of_terminal(os.environ)
    text = table.render(drawn, table.Terminal(width, colour_of_terminal(os.environ, no_color)))
    write(f"{head}\n{text}\n{table.folded(tail, width)}")
