"""Expert parallelism on the ranks of the others: the same devices, numbered by expert groups instead.

Attention counts the ranks of a pipeline stage by (tp, cp, dp), experts by (etp, ep, edp), both in the order of the
axes and with the same number of ranks (Megatron-LM core/parallel_state.py, expert_decoder_rank_generator; Liu et al.
2025, arXiv:2504.14960, section 3.3). So an expert group is a run of whole axes and of parts of axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import prod
from typing import NamedTuple

from commcalc.algebra.mesh import Mesh
from commcalc.errors import CommcalcError, IllegalDegree, UsageError
from commcalc.transformer.layout import EDP, EP, EP_LOCAL, EP_NODES, ETP
from commcalc.transformer.work import Parallelism

_DENSE = ("tp", "cp", "dp", "pp")
# What takes the place of each axis in the numbering by experts.
_IN_PLACE_OF = {"tp": ETP, "cp": None, "ep": EP, "dp": EDP, "pp": "pp"}


class Run(NamedTuple):
    """Part of an axis: neighbours are ``low`` places apart on it, the last is ``high`` from where it begins again."""

    axis: str
    low: int
    high: int

    def axes(self, mesh: Mesh) -> tuple[str, ...]:
        """The parts of the axis on ``mesh`` that lie within, outermost first."""
        parts, sizes = mesh.expand([self.axis]), mesh.sizes
        found = []
        for at, part in enumerate(parts):
            low = prod(sizes[one] for one in parts[at + 1 :])
            # A part of one rank stands at the end of a run, and belongs to the one that ends there.
            begins = self.low <= low if sizes[part] > 1 else self.low < low
            if begins and low * sizes[part] <= self.high:
                found.append(part)
        return tuple(found)


class Folding(NamedTuple):
    """Expert groups as runs of axes, outermost first."""

    runs: Mapping[str, tuple[Run, ...]]

    def cuts(self, axis: str) -> set[int]:
        """Where ``axis`` must be divided, counted in places from its fastest end."""
        return {end for runs in self.runs.values() for run in runs if run.axis == axis for end in (run.low, run.high)}

    def axes(self, group: str, mesh: Mesh) -> tuple[str, ...]:
        """The axes of ``mesh``, or their parts, that a group is made of, outermost first."""
        return tuple(part for run in self.runs.get(group, ()) for part in run.axes(mesh))


def fold(parallel: Parallelism) -> Folding:
    """The expert groups of a plan, whose degrees have nothing that is `unfolded`."""
    dense = _intervals(parallel.order, {axis: getattr(parallel, axis) for axis in _DENSE})
    experts = _intervals(parallel.order, _expert_sizes(parallel), _IN_PLACE_OF)
    runs: dict[str, tuple[Run, ...]] = {}
    low, high = experts.get(EP, (1, 1))
    inside = high // parallel.ep_nodes
    if parallel.ep_nodes > 1:
        experts |= {EP_LOCAL: (low, inside), EP_NODES: (inside, high)}
    for group in (ETP, EP, EDP, EP_LOCAL, EP_NODES):
        low, high = experts.get(group, (1, 1))
        found = [
            Run(axis, max(low, start) // start, min(high, end) // start)
            for axis, (start, end) in dense.items()
            if max(low, start) < min(high, end)
        ]
        runs[group] = tuple(reversed(found))
    return Folding(runs)


def unfolded(parallel: Parallelism) -> list[CommcalcError]:
    """What keeps expert groups from the ranks of the others, each with its reason."""
    if parallel.ep == 1 and parallel.etp is None:
        return []
    where = f"parallelism.ep (--ep {parallel.ep})"
    ranks = parallel.tp * parallel.cp * parallel.dp
    each = parallel.ep * parallel.expert_tp
    if ranks % each:
        message = (
            f"{ranks} ranks of a stage (tp {parallel.tp} x cp {parallel.cp} x dp {parallel.dp}) mod {each} "
            f"(ep {parallel.ep} x etp {parallel.expert_tp}) = {ranks % each}"
        )
        legal = ", ".join(
            str(n) for n in range(1, ranks // parallel.expert_tp + 1) if ranks % (n * parallel.expert_tp) == 0
        )
        return [IllegalDegree(message, where=where, hint=f"legal: {legal or 'none with this etp'}")]
    sizes = _expert_sizes(parallel)
    ends = {end for _, end in _intervals(parallel.order, {axis: getattr(parallel, axis) for axis in _DENSE}).values()}
    ends |= {end for _, end in _intervals(parallel.order, sizes, _IN_PLACE_OF).values()}
    ordered = sorted(ends)
    if any(more % fewer for fewer, more in pairwise(ordered)):
        message = f"groups of {parallel.ep} ranks that end in the middle of others, which end after {ordered} ranks"
        told = f"the ledger cannot price this yet: {message}"
        return [UsageError(told, where=where, hint="degrees that divide one another")]
    dense = _intervals(parallel.order, {axis: getattr(parallel, axis) for axis in _DENSE})
    if dense.get("pp") != _intervals(parallel.order, sizes, _IN_PLACE_OF).get("pp"):
        message = f"stages would hold other ranks for experts than for attention in order {'-'.join(parallel.order)}"
        return [IllegalDegree(message, where="parallelism.order (--order)", hint="pp last, as in tp-cp-ep-dp-pp")]
    return []


def _expert_sizes(parallel: Parallelism) -> dict[str, int]:
    each = parallel.ep * parallel.expert_tp
    return {
        ETP: parallel.expert_tp,
        EP: parallel.ep,
        EDP: parallel.tp * parallel.cp * parallel.dp // each,
        "pp": parallel.pp,
    }


def _intervals(
    order: tuple[str, ...], sizes: Mapping[str, int], names: Mapping[str, str | None] | None = None
) -> dict[str, tuple[int, int]]:
    """Where each axis begins and ends in ranks, innermost first; those of one rank left out."""
    found, at = {}, 1
    for axis in order:
        name = axis if names is None else names[axis]
        size = sizes.get(name, 1) if name is not None else 1
        if size > 1 and name is not None:
            found[name] = (at, at * size)
            at *= size
    return found


def divided(mesh: Mesh, axis: str, cuts: set[int], names: Mapping[int, str] | None = None) -> Mesh:
    """``mesh`` with ``axis`` divided at ``cuts``, counted from its fastest end; the same where none lies within.

    >>> divided(Mesh.of({"dp": 8}), "dp", {2}).axes
    (('dp_2', 4), ('dp_1', 2))
    """
    size = mesh.size([axis])
    ends = sorted({cut for cut in cuts if 1 < cut < size})
    if not ends:
        return mesh
    bounds = [1, *ends, size]
    parts = {}
    for low, high in reversed(list(pairwise(bounds))):
        parts[(names or {}).get(low, f"{axis}_{low}")] = high // low
    return mesh.divide(axis, parts)
