"""What ``shard``, ``matmul`` and ``reshard`` share: the expression with its mesh and sizes, the links, the output."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from commcalc.accounting.links import beyond_measured, told_of_times
from commcalc.accounting.products import Bill, Objective
from commcalc.algebra.expression import Expression, parse_expression
from commcalc.algebra.mesh import Mesh
from commcalc.algebra.problem import Problem, bind
from commcalc.catalog.job import Links, resolve_links
from commcalc.cli import options as o
from commcalc.cli.output import Format, colour_of_terminal, width_of_terminal, write
from commcalc.cli.sizes import dims_of, mesh_of
from commcalc.errors import CommcalcError, SpecError, UnknownName, UsageError, raise_all
from commcalc.network.fabric import Fabric
from commcalc.report.sharded import Style
from commcalc.report.table import Table
from commcalc.units import Dtype, parse_count, parse_dtype, parse_tokens

ExpressionArgument = Annotated[
    str, typer.Argument(metavar="EXPRESSION", help="Tensors in the notation A[I_X, J], or - for stdin.")
]
DtypeOption = Annotated[
    o.Text, typer.Option("--dtype", metavar="DTYPE", help="Element type [bf16].", show_default=False)
]
Pad = Annotated[bool, typer.Option("--pad", help="Pad sizes that do not divide, and say so.", show_default=False)]
SubAxes = Annotated[
    bool, typer.Option("--sub-axes", help="Let a move use a prime factor of an axis.", show_default=False)
]
Minimize = Annotated[
    o.Text,
    typer.Option("--minimize", metavar="WHAT", help="time or bytes [time where links are given].", show_default=False),
]
Explain = Annotated[bool, typer.Option("--explain", help="Each number with its formula.", show_default=False)]
Notation = Annotated[
    o.Text,
    typer.Option(
        "--notation", metavar="HOW", help="Print A[I_X, J] (book) or P('X', None) (spec).", show_default=False
    ),
]
NOTATIONS = ("book", "spec")
# The sections of sizes that `--set` knows.
_SIZES = ("mesh", "dims")


def asked(
    params: Mapping[str, Any],
    *,
    pad: bool,
    sub_axes: bool,
    shape: Callable[[Expression], None],
    planned: bool = True,
    filled: Callable[[Mapping[str, int]], int] | None = None,
) -> tuple[Problem, Dtype]:
    """The problem of an expression, a mesh and sizes; ``shape`` refuses expressions of another command.

    ``filled`` gives dimensions without a size one that suits the mesh.
    """
    problems: list[CommcalcError] = []
    sizes = mesh_of(params.get("mesh"), problems)
    dims = dims_of(params.get("dim"), problems)
    for section, name, value, origin in _replaced(params):
        try:
            if section == "mesh" and name not in sizes:
                raise UnknownName("mesh axis", name, sizes)
            (sizes if section == "mesh" else dims)[name] = (
                parse_count(value) if section == "mesh" else parse_tokens(value)
            )
        except CommcalcError as problem:
            problem.where = origin
            problems.append(problem)
    dtype = Dtype.BF16
    if params.get("dtype") is not None:
        try:
            dtype = parse_dtype(str(params["dtype"]))
        except CommcalcError as problem:
            problem.where = f"--dtype {str(params['dtype'])[:60]}"
            problems.append(problem)
    raise_all(problems)
    text = str(params["expression"])
    expression = parse_expression(_stdin() if text == "-" else text, sizes)
    shape(expression)
    names = list(dict.fromkeys(dim for operand in expression.tensors for dim in operand.sharding.dims))
    unknown = [name for name in dims if name not in names]
    raise_all([UnknownName("dimension", name, names, where=f"--dim {name}") for name in unknown])
    if filled is not None:
        dims = {name: dims.get(name) or filled(sizes) for name in names}
    bound = bind(expression, Mesh.of(sizes), dims, dtype.bits, pad=pad, sub_axes=sub_axes, planned=planned)
    return bound, dtype


def _replaced(params: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Those of ``--set`` that are sizes: section, name, value, origin."""
    found = []
    for given in params.get("set_") or ():
        path, equals, value = given.partition("=")
        section, _, name = path.strip().partition(".")
        if section in _SIZES and equals and not name:
            told = f"{section} is a section; name one of its sizes"
            raise UsageError(told, where=f"--set {given[:60]}", hint=f"--set {section}.X=4")
        if section in _SIZES and name:
            found.append((section, name, value.strip(), f"--set {given[:60]}"))
    return found


def check_sizes_only(params: Mapping[str, Any]) -> None:
    """Refuse every ``--set`` that is no size: where nothing is priced there is nothing else to set."""
    for given in params.get("set_") or ():
        path, equals, _ = given.partition("=")
        section = path.strip().partition(".")[0]
        where = f"--set {given[:60]}"
        if not equals:
            raise UsageError(f"{given[:60]!r} sets nothing", where=where, hint="--set PATH=VALUE")
        if section not in _SIZES:
            raise UnknownName("section", section, _SIZES, where=where)


def no_functions(expression: Expression, command: str) -> None:
    """Refuse functions where nothing is multiplied."""
    for tensor in expression.tensors:
        if tensor.function:
            raise UsageError(
                f"{command} takes tensors, and no function of them",
                where=expression.text[:60],
                hint="commcalc matmul for functions between products",
            )


def links_of(params: Mapping[str, Any]) -> Links:
    """The machine, if one is given, and the algorithm."""
    others = [
        given
        for given in params.get("set_") or ()
        if "=" not in given or given.partition("=")[0].strip().partition(".")[0] not in _SIZES
    ]
    wanted = {key: params.get(key) for key in ("hardware", "bandwidth", "latency", "algorithm", "convention")}
    request = o.request_from(wanted | {"set_": others})
    known = ("hardware", "links", *_SIZES)
    for one in request.assignments:
        section = one.path.partition(".")[0]
        if section not in known:
            raise UnknownName("section", section, known, where=one.origin)
    links = resolve_links(request)
    if params.get("shape") is None:
        return links
    if links.hardware is None:
        raise UsageError("a slice of no machine", where="--shape", hint="add --hardware tpu-v5e")
    from commcalc.catalog.machine import sliced

    return links._replace(hardware=sliced(links.hardware, str(params["shape"])))


def assumed(problem: Problem, links: Links, dtype: Dtype, *, multiplied: bool = False) -> tuple[str, ...]:
    """What was taken for granted; ``multiplied`` where compute is counted too."""
    if links.hardware is None:
        return (*links.assumptions, "no machine is given: bytes are counted, nothing is timed")
    said = [*links.assumptions, "the mesh is laid on the devices in order, its last axis innermost"]
    for level in links.hardware.network.levels:
        if level.shape:
            shape = "x".join(map(str, level.shape))
            said.append(
                f"{level.name} is a slice of {shape} for a mesh of {problem.mesh.devices}: --shape asks for another"
            )
    if multiplied and dtype in links.hardware.flops:
        said.append(f"compute is FLOPs over the chip's peak in {dtype}; reading memory is not counted")
        said.append(
            "serial: compute and then communication; overlapped: the larger of the two; bound by compute above: equal"
        )
    elif multiplied:
        said.append(f"the machine gives no peak in {dtype}: compute is not timed (chip: {{flops: {{{dtype}: ...}}}})")
    return tuple(said)


def told_of_bills(bills: Sequence[Bill]) -> list[str]:
    """How sure the times of the best plan are."""
    named = [(f"{bill.step.kind} of {bill.payload_bytes:,} B", bill.priced.cost) for bill in bills if bill.priced]
    return [*told_of_times([cost for _, cost in named]), *beyond_measured(named)]


def priced_by(
    problem: Problem, links: Links, minimize: str | None, dtype: Dtype
) -> tuple[Fabric, float | None, Objective]:
    """The prices: on the machine where one is given; and what is to be least."""
    chosen = one_of("--minimize", minimize, [*Objective])
    network = links.hardware.network if links.hardware is not None else None
    if chosen == Objective.TIME and network is None:
        raise UsageError("no times without links", where="--minimize time", hint="add --hardware or --bandwidth")
    objective = Objective(chosen or (Objective.TIME if network is not None else Objective.BYTES))
    peak = links.hardware.flops.get(dtype) if links.hardware is not None else None
    return Fabric(problem.mesh, network, links.algorithm, links.convention), peak, objective


def one_of(option: str, given: str | None, known: Sequence[str]) -> str | None:
    """A choice by name; `UnknownName` with the nearest."""
    if given is not None and given not in known:
        raise UnknownName("choice", given, known, where=f"{option} {given[:60]}")
    return given


def style_from(params: Mapping[str, Any]) -> Style:
    """How tensors are written."""
    written = one_of("--notation", params.get("notation"), NOTATIONS)
    return Style(specs=written == "spec", explain=bool(params.get("explain")))


def listed(assumptions: Sequence[str]) -> str:
    """The assumptions under the tables."""
    return "Assumptions\n" + "".join(f"- {line}\n" for line in assumptions)


def _stdin() -> str:
    text = o.read_stdin("expression").strip()
    if "\n" in text:
        raise SpecError("more than one line where one expression is expected", where="-")
    return text


def show(
    params: Mapping[str, Any],
    style: Format,
    document: Callable[[], dict[str, object]],
    records: Callable[[], list[dict[str, object]]],
    tables: Callable[[], Sequence[Table]],
    above: str = "",
    below: str = "",
    as_is: str = "",
) -> None:
    """The answer in the format asked for; ``as_is`` are lines under the tables that are never folded."""
    if style is Format.JSON:
        from commcalc.report.json import render_json

        write(render_json(document()))
    elif style is Format.JSONL:
        from commcalc.report.json import render_jsonl

        write(render_jsonl(records()))
    else:
        from commcalc.report import table

        if style is Format.CSV:
            write(table.render_csv(records()))
        elif style is Format.MARKDOWN:
            write("\n".join(part for part in (above, table.render_markdown(list(tables())), as_is, below) if part))
        else:
            width = width_of_terminal(os.environ)
            terminal = table.Terminal(width, colour_of_terminal(os.environ, bool(params.get("no_color"))))
            head, tail = (table.folded(text, width) for text in (above, below))
            drawn = table.render(list(tables()), terminal)
            write("\n".join(part for part in (head, drawn, as_is, tail) if part))
