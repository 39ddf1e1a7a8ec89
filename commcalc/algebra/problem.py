"""An expression on a mesh with sizes: what the planner is asked, and what was done to the question on the way.

Axes of one device are left out (they move nothing); with sub-axes every axis is divided into its prime factors, so that
a move may use a part of one; uneven sizes are refused, or padded to what the shardings need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import lcm
from typing import NamedTuple

from commcalc.algebra.expression import Expression, Operand
from commcalc.algebra.mesh import Mesh
from commcalc.algebra.planner import Chain, Factor, Product
from commcalc.algebra.sharding import Sharding, nearest
from commcalc.algebra.states import State
from commcalc.errors import ShardingError, SpecError, UsageError, raise_all

# Factors of axes that the planner divides a mesh into; beyond that it keeps axes whole.
MOST_FACTORS = 4
# Arrangements of axes on dimensions that are searched: a second or two of work.
MOST_FORMS = 5_000


class Problem(NamedTuple):
    """``given`` is the mesh that was given, ``mesh`` has its axes divided and not the ``idle`` ones of size 1.

    The planner uses all its axes but the ``dropped`` ones.

    ``sizes`` are those after padding; ``padding`` tells the old and the new size of each padded dimension.
    """

    expression: Expression
    given: Mesh
    mesh: Mesh
    sizes: Mapping[str, int]
    bits: int
    padding: Mapping[str, tuple[int, int]]
    idle: tuple[str, ...]
    dropped: tuple[str, ...]
    sub_axes: bool
    notes: tuple[str, ...]

    def sharding(self, dims: Sequence[str], state: State) -> Sharding:
        """The sharding of a node of the planner, in the names of the mesh it works on."""
        return Sharding(tuple(dims), state.split, state.pending)

    def state(self, operand: Operand) -> State:
        """How a tensor of the expression lies, on the planner's mesh."""
        return self._state(operand.sharding)

    def _state(self, sharding: Sharding) -> State:
        def kept(axes: Sequence[str]) -> tuple[str, ...]:
            return tuple(axis for axis in self.mesh.expand(axes) if axis not in self.idle)

        return State(tuple(kept(axes) for axes in sharding.split), tuple(sorted(kept(sharding.unreduced))))

    @property
    def axes(self) -> dict[str, int]:
        """The axes the planner may use."""
        return {name: size for name, size in self.mesh.axes if name not in self.dropped}

    def values(self) -> dict[str, int]:
        """Sizes of dimensions and axes, for formulas."""
        return {**self.sizes, **self.mesh.sizes}

    def chain(self) -> Chain:
        """The products as the planner takes them."""
        first = self.expression.first
        products = []
        left = first.sharding.dims
        last = len(self.expression.products) - 1
        for at, times in enumerate(self.expression.products):
            right = times.right
            name = self._result(at, last)
            kept = self.state(times.kept) if times.kept is not None else None
            factor = Factor(right.name, right.sharding.dims, self.state(right), bool(right.function))
            products.append(Product(left, factor, times.dims, name, bool(times.function), kept))
            left = times.dims
        begin = Factor(first.name, first.sharding.dims, self.state(first), bool(first.function))
        return Chain(begin, tuple(products), self.axes, self.sizes, self.bits)

    def _result(self, at: int, last: int) -> str:
        """What the result of a product is called: as it is written, else a letter that is free."""
        kept, wanted = self.expression.products[at].kept, self.expression.output
        if kept is not None:
            return kept.name
        if at == last and wanted is not None:
            return wanted.name
        taken = {operand.name for operand in self.expression.tensors}
        free = [letter for letter in "CDEGHLMNOPQRSTVWXYZ" if letter not in taken]
        return free[at % len(free)] if at == last else f"T{at + 1}"


def bind(
    expression: Expression,
    mesh: Mesh,
    sizes: Mapping[str, int],
    bits: int,
    *,
    pad: bool = False,
    sub_axes: bool = False,
    planned: bool = True,
) -> Problem:
    """The question of ``expression``; everything that is missing or uneven is raised together.

    ``planned`` False is for questions that search nothing, so that no number of axes is too many.

    `SpecError` for a dimension without a size, `ShardingError` for one that does not divide, `UsageError` where the
    arrangements are too many.
    """
    dims = list(dict.fromkeys(dim for operand in expression.tensors for dim in operand.sharding.dims))
    raise_all(
        [
            SpecError(f"dimension {dim} has no size", where=f"--dim {dim}", hint=f"--dim {dim}=1024")
            for dim in dims
            if dim not in sizes
        ]
    )
    needed = {dim: _needed(expression, mesh, dim) for dim in dims}
    padded = {dim: -(-sizes[dim] // needed[dim]) * needed[dim] for dim in dims}
    padding = {dim: (sizes[dim], padded[dim]) for dim in dims if padded[dim] != sizes[dim]}
    if padding and not pad:
        raise_all(_uneven(expression, mesh, sizes))
    idle = tuple(name for name, size in mesh.axes if size == 1)
    used = Mesh(tuple((name, size) for name, size in mesh.axes if size > 1))
    notes = [f"axis {name} has size 1: nothing moves over it" for name in idle]
    uses = Counter(operand.name for operand in (expression.first, *(times.right for times in expression.products)))
    notes += [
        f"{name} is used {many} times; each use is brought and counted on its own"
        for name, many in uses.items()
        if many > 1
    ]
    divided = False
    if sub_axes:
        used, divided, note = _divided(used)
        notes += [note] if note else []
    dropped = _too_many(expression, used) if planned else ()
    notes += [f"axis {name} splits no tensor here and is left out, to keep the plans countable" for name in dropped]
    return Problem(
        expression, mesh, used, {dim: padded[dim] for dim in dims}, bits, padding, idle, dropped, divided, tuple(notes)
    )


def _needed(expression: Expression, mesh: Mesh, dim: str) -> int:
    return lcm(*(mesh.size(operand.sharding.axes_of(dim)) for operand in expression.tensors))


def _uneven(expression: Expression, mesh: Mesh, sizes: Mapping[str, int]) -> list[ShardingError]:
    """One error for every dimension of a tensor that does not divide."""
    found = []
    for operand in dict.fromkeys(expression.tensors):
        for dim, axes in zip(operand.sharding.dims, operand.sharding.split, strict=True):
            ways = mesh.size(axes)
            if sizes[dim] % ways:
                over = ", ".join(f"{name}={mesh.size([name])}" for name in axes)
                found.append(
                    ShardingError(
                        f"dimension {dim} of {operand.name}, of size {sizes[dim]}, does not split {ways} ways: "
                        f"{sizes[dim]} mod {ways} = {sizes[dim] % ways}",
                        source=expression.text, span=operand.span, context=f"mesh: {over}",
                        hint=f"--pad pads it; the {nearest(sizes[dim], ways)}",
                    )
                )  # fmt: skip
    return found


def _divided(mesh: Mesh) -> tuple[Mesh, bool, str | None]:
    """The mesh with every axis as the product of its prime factors, if they are few enough."""
    parts = {name: _primes(size) for name, size in mesh.axes}
    count = sum(len(found) for found in parts.values())
    if count > MOST_FACTORS:
        return (
            mesh,
            False,
            f"the axes have {count} prime factors; above {MOST_FACTORS} only whole axes are planned with",
        )
    taken = {name for name, _ in mesh.axes}
    for name, factors in parts.items():
        if len(factors) > 1:
            names = _part_names(name, len(factors), taken)
            mesh = mesh.divide(name, dict(zip(names, factors, strict=True)))
    return mesh, True, None


def _part_names(axis: str, count: int, taken: set[str]) -> list[str]:
    """``X1, X2``, the slowest first; with more letters where those are names already."""
    stem = axis
    while any(f"{stem}{at}" in taken for at in range(1, count + 1)):
        stem += "_"
    return [f"{stem}{at}" for at in range(1, count + 1)]


def _primes(size: int) -> list[int]:
    found = []
    prime = 2
    while prime * prime <= size:
        while size % prime == 0:
            found.append(prime)
            size //= prime
        prime += 1
    return [*found, size] if size > 1 else found


def _too_many(expression: Expression, mesh: Mesh) -> tuple[str, ...]:
    """Axes to leave out because they split nothing, where the arrangements would be too many; `UsageError` beyond."""
    ranks = [len(operand.sharding.dims) + 1 for operand in expression.tensors]
    left = expression.first.sharding.dims
    for times in expression.products:
        ranks.append(len({*left, *times.right.sharding.dims}) + 1)
        left = times.dims
    names = [name for name, _ in mesh.axes]
    dropped: tuple[str, ...] = ()
    if forms(len(names), max(ranks)) > MOST_FORMS:
        spent = {part for operand in expression.tensors for part in mesh.expand(operand.sharding.varying)}
        dropped = tuple(name for name in names if name not in spent)
    count = forms(len(names) - len(dropped), max(ranks))
    if count > MOST_FORMS:
        raise UsageError(
            f"{len(names) - len(dropped)} axes on {max(ranks) - 1} dimensions have {count} arrangements; "
            f"at most {MOST_FORMS} are searched",
            where="--mesh",
            hint="merge axes that always go together, or ask about fewer dimensions",
        )
    return dropped


def forms(axes: int, slots: int) -> int:
    """How many ways there are to put some of ``axes`` axes, in order, on ``slots`` places.

    >>> forms(3, 2), forms(4, 5)
    (49, 2721)
    """
    found, chosen, ordered = 0, 1, 1
    for count in range(axes + 1):
        found += chosen * ordered
        chosen = chosen * (axes - count) // (count + 1)
        ordered *= slots + count
    return found
