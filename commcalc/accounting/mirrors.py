"""Groups that mirrored ranks belong to: what DualPipe's ranks sum that hold the same two stages.

A pipeline of p stages that is fed from both ends has the stages i and p - 1 - i on the ranks at both places, so that
their gradients are summed over the ranks that share each of them (deepseek-ai/DualPipe, examples/example_dualpipe.py:
``p0.grad += p1all[pp_size - 1 - rank]``). No mesh axis has these ranks: they lie p - 1 - 2 i stages apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from commcalc.algebra.mesh import Mesh
from commcalc.network.link import Network
from commcalc.network.placement import Placement, place_axes, place_groups


def mirrored_groups(mesh: Mesh, axes: Sequence[str], places: Iterable[int] | None = None) -> list[tuple[int, ...]]:
    """Ranks of every group over ``axes`` with those of its mirror, in rank order.

    ``places`` are those in the first half of the pipeline whose groups are wanted, by default all.

    >>> mirrored_groups(Mesh.of({"pp": 4, "dp": 2}), ["dp"])
    [(0, 1, 6, 7), (2, 3, 4, 5)]
    """
    stages, apart = mesh.size(["pp"]), mesh.stride("pp")
    inside = set(mesh.expand(axes))
    members = _ranks(mesh, [name for name, _ in mesh.axes if name in inside])
    starts = _ranks(mesh, [name for name, _ in mesh.axes if name not in inside and name != "pp"])
    found = []
    for place in range(stages // 2) if places is None else places:
        both = (place * apart, (stages - 1 - place) * apart)
        found += [tuple(sorted(at + start + member for at in both for member in members)) for start in starts]
    return sorted(found)


def group_placement(mesh: Mesh, axes: Sequence[str], network: Network, *, mirrored: bool) -> Placement:
    """Where the groups over ``axes`` lie, or those with their mirrors: of the first and last stage, farthest apart."""
    if not mirrored:
        return place_axes(mesh.axes, mesh.expand(axes), network)
    return place_groups(mirrored_groups(mesh, axes, [0]), network, mesh.devices)


def _ranks(mesh: Mesh, names: Sequence[str]) -> list[int]:
    """Ranks of those that are first on every other axis than ``names``."""
    found = [0]
    for name in names:
        stride = mesh.stride(name)
        found = [rank + at * stride for rank in found for at in range(mesh.size([name]))]
    return found
