"""A change of sharding as one collective: ``A[I_X, J] -> A[I, J_X]``."""

from __future__ import annotations

from collections.abc import Sequence

from commcalc.algebra.collective import Kind
from commcalc.algebra.expression import parse_expression
from commcalc.algebra.mesh import Mesh
from commcalc.algebra.reshard import reshard
from commcalc.algebra.sharding import Sharding, local_shape
from commcalc.cli.sizes import dims_of
from commcalc.errors import CommcalcError, NotationError, UsageError, raise_all


def change_of(
    text: str, mesh: tuple[tuple[str, int], ...], dims: Sequence[str], bits: int
) -> tuple[Kind, int, tuple[str, ...]]:
    """Kind, payload in bytes and mesh axes of the one collective that the change needs.

    `UsageError` where it needs none or several, `ShardingError` where a size does not divide.
    """
    expression = parse_expression(text, [name for name, _ in mesh])
    functions = any(one.function for one in expression.stations)
    if expression.products or expression.output is None or expression.stops or functions:
        told = "no change: there is no ->" if expression.output is None else "one tensor and one change are priced here"
        raise NotationError(told, source=text[:200], span=(0, len(text[:200])), hint="A[I_X, J] -> A[I, J]")
    (name, before), (other, after) = ((one.name, one.sharding) for one in expression.stations)
    if name != other:
        raise UsageError(f"{name} cannot become {other}", where="KIND", hint=f"{name}[...] -> {name}[...]")
    sizes = _sizes(dims, before)
    for held in (before, after):
        local_shape(held, sizes, Mesh.of(dict(mesh)))
    moves = [step for step in reshard(before, after) if step.kind is not Kind.SLICE]
    if len(moves) != 1:
        told = ", ".join(f"{step.kind} over {', '.join(step.axes)}" for step in moves) or "no collective"
        raise UsageError(
            f"{text.strip()[:80]} needs {told}; one is priced here",
            where="KIND",
            hint="a change that is one collective",
        )
    (step,) = moves
    return step.kind, step.payload(bits).value(sizes | dict(mesh)), step.axes


def _sizes(given: Sequence[str], tensor: Sharding) -> dict[str, int]:
    """The size of every dimension of the tensor, and of no other."""
    problems: list[CommcalcError] = []
    found = dims_of(given, problems)
    known = f"dimensions: {', '.join(tensor.dims)}"
    for name in found:
        if name not in tensor.dims:
            told = f"the tensor has no dimension {name[:60]!r}"
            problems.append(UsageError(told, where=f"--dim {name[:60]}", hint=known))
    for dim in tensor.dims:
        if dim not in found and not problems:
            problems.append(UsageError(f"no size of dimension {dim}", where="--dim", hint=f"--dim {dim}=1024"))
    raise_all(problems)
    return found
