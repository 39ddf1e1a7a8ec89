"""Shardings to text and back: ``A[I_X, J_{YZ}]{U_W}``, and ``P('X', ('Y', 'Z'))`` as JAX writes it.

The grammar is told in `reader`, which is loaded only where something is read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.sharding import Sharding


def parse_tensor(text: str, axes: Collection[str]) -> tuple[str, Sharding]:
    """Name and sharding of one tensor over a mesh with ``axes``; `NotationError` marks the character that is wrong.

    >>> parse_tensor("A[I_XY, J]", "XYZ")
    ('A', Sharding(dims=('I', 'J'), split=(('X', 'Y'), ()), unreduced=()))
    """
    from commcalc.algebra.reader import Reader

    reader = Reader(text, axes)
    found = reader.tensor()
    reader.end()
    return found


def format_tensor(name: str, sharding: Sharding, mesh: Mesh | None = None) -> str:
    """The notation of a tensor; with ``mesh`` a divided axis that is used whole has its own name.

    >>> format_tensor("A", Sharding(("I", "J"), (("X", "Y"), ())))
    'A[I_{XY}, J]'
    """
    taken = mesh.sizes if mesh else {}

    def label(axes: Sequence[str]) -> Sequence[str]:
        return mesh.label(axes) if mesh else axes

    dims = [
        dim + (f"_{_subscript(label(axes), taken)}" if axes else "")
        for dim, axes in zip(sharding.dims, sharding.split, strict=True)
    ]
    pending = f"{{U_{_subscript(label(sharding.unreduced), taken)}}}" if sharding.unreduced else ""
    return f"{name}[{', '.join(dims)}]{pending}"


def format_spec(sharding: Sharding) -> str:
    """The same as JAX writes it.

    >>> format_spec(Sharding(("I", "J"), (("X", "Y"), ()), ("Z",)))
    "P(('X', 'Y'), None, unreduced={'Z'})"
    """

    def entry(axes: tuple[str, ...]) -> str:
        if not axes:
            return "None"
        listed = ", ".join(f"'{axis}'" for axis in axes)
        return listed if len(axes) == 1 else f"({listed})"

    entries = [entry(axes) for axes in sharding.split]
    if sharding.unreduced:
        entries.append("unreduced={" + ", ".join(f"'{axis}'" for axis in sharding.unreduced) + "}")
    return f"P({', '.join(entries)})"


def _subscript(axes: Sequence[str], taken: Collection[str]) -> str:
    """``X``, ``{XY}`` or ``{dp,tp}``; letters that together are the name of another axis are told apart."""
    if len(axes) == 1 and "_" not in axes[0]:
        return axes[0]
    joined = "".join(axes)
    apart = joined in taken or any(len(axis) != 1 for axis in axes)
    return "{" + (",".join(axes) if apart else joined) + "}"
