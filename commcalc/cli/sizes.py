"""Sizes by name, as several commands take them: the mesh ``X=4,Y=2`` and dimensions ``I=8K``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Optional

import typer

from commcalc.errors import CommcalcError, UsageError
from commcalc.units import parse_count, parse_tokens

MeshOption = Annotated[
    Optional[list[str]],
    typer.Option(
        "--mesh", metavar="AXIS=SIZE,...", help="The mesh, innermost axis last, like X=4,Y=2.", show_default=False
    ),
]
Dims = Annotated[
    Optional[list[str]],
    typer.Option(
        "--dim", metavar="NAME=SIZE", help="The size of a dimension, like I=8192 or I=8K.", show_default=False
    ),
]
Shape = Annotated[
    Optional[str], typer.Option("--shape", metavar="AxBxC", help="Slice of the machine's torus.", show_default=False)
]
SetSizes = Annotated[
    Optional[list[str]],
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Override a size, like mesh.X=8 or dims.I=4096.", show_default=False
    ),
]
SetLinks = Annotated[
    Optional[list[str]],
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Override any field, like hardware.chip.flops.bf16.", show_default=False
    ),
]
# Names with a prime are dimensions only.
_NAMED = re.compile(r"\s*([^\W\d][\w']*)\s*[=:]\s*(\S+)\s*$")


def mesh_of(given: Sequence[str] | None, problems: list[CommcalcError]) -> dict[str, int]:
    """The axes of ``--mesh`` in order, slowest first; what is wrong joins ``problems``."""
    found = _pairs(given, "--mesh", parse_count, problems)
    problems += [
        UsageError(f"{name!r} is no name of an axis", where="--mesh", hint="letters, digits and _")
        for name in found
        if "'" in name
    ]
    return found


def dims_of(given: Sequence[str] | None, problems: list[CommcalcError]) -> dict[str, int]:
    """The sizes of ``--dim``; what is wrong joins ``problems``."""
    return _pairs(given, "--dim", parse_tokens, problems)


def _pairs(
    given: Sequence[str] | None, option: str, read: Callable[[str], int], problems: list[CommcalcError]
) -> dict[str, int]:
    """``X=4,Y=2``, in one option or several."""
    found: dict[str, int] = {}
    for text in given or ():
        for part in text.strip().strip("{}").split(","):
            where = f"{option} {text[:60]}"
            match = _NAMED.match(part)
            if match is None:
                problems.append(UsageError(f"{part[:60]!r} is no NAME=SIZE", where=where, hint=f"{option} X=4"))
                continue
            name, size = match.groups()
            if name in found:
                problems.append(UsageError(f"{name} is given twice", where=where))
                continue
            try:
                found[name] = read(size)
            except CommcalcError as problem:
                problem.where = where
                problems.append(problem)
    return found
