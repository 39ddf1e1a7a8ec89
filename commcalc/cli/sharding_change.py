"""A change of sharding as one collective: ``A[I_X, J] -> A[I, J_X]``."""

from __future__ import annotations

from collections.abc import Sequence

from commcalc.algebra.collective import Kind
from commcalc.algebra.mesh import Mesh
from commcalc.algebra.notation import parse_tensor
from commcalc.algebra.reshard import reshard
from commcalc.algebra.sharding import Sharding, local_shape
from commcalc.errors import CommcalcError, NotationError, UsageError, raise_all
from commcalc.units import parse_tokens


def change_of(
    text: str, mesh: tuple[tuple[str, int], ...], dims: Sequence[str], bits: int
) -> tuple[Kind, int, tuple[str, ...]]:
    """Kind, payload in bytes and mesh axes of the one collective that the change needs.

    `UsageError` where it needs none or several, `ShardingError` where a size does not divide.
    """
    left, arrow, right = text.partition("->")
    if not arrow:
        raise NotationError("no change: there is no ->", source=text[:200], span=(0, len(text[:200])),
                            hint="A[I_X, J] -> A[I, J]")  # fmt: skip
    names = [name for name, _ in mesh]
    (name, before), (other, after) = parse_tensor(left, names), parse_tensor(right, names)
    if name != other:
        raise UsageError(f"{name} cannot become {other}", where="KIND", hint=f"{left.strip()} -> {name}[...]")
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


def _sizes(dims: Sequence[str], tensor: Sharding) -> dict[str, int]:
    """``NAME=SIZE`` of every dimension of the tensor."""
    found: dict[str, int] = {}
    problems: list[CommcalcError] = []
    for given in (part for one in dims for part in one.split(",")):
        name, equals, size = given.partition("=")
        where = f"--dim {given[:60]}"
        if not equals:
            problems.append(UsageError(f"{given[:60]!r} sets no size", where=where, hint="--dim I=1024"))
            continue
        try:
            found[name.strip()] = parse_tokens(size)
        except CommcalcError as problem:
            problem.where = where
            problems.append(problem)
        if name.strip() not in tensor.dims:
            known = f"dimensions: {', '.join(tensor.dims)}"
            problems.append(UsageError(f"the tensor has no dimension {name.strip()[:60]!r}", where=where, hint=known))
    for dim in tensor.dims:
        if dim not in found and not problems:
            problems.append(UsageError(f"no size of dimension {dim}", where="--dim", hint=f"--dim {dim}=1024"))
    raise_all(problems)
    return found
