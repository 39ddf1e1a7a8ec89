"""The groups of ranks: which ranks each holds, and which levels of the network join them."""

from __future__ import annotations

from typing import NamedTuple

from commcalc.accounting.ledger import Ledger
from commcalc.accounting.mirrors import mirrored_groups
from commcalc.accounting.programs import DP_REPLICA, DP_SHARD
from commcalc.algebra.mesh import Mesh
from commcalc.errors import UsageError
from commcalc.network.link import Network
from commcalc.transformer.layout import EDP, EP, ETP
from commcalc.transformer.work import DEFAULT_ORDER

MOST_DEVICES = 65_536


class Group(NamedTuple):
    """The mesh axes of a kind of group, and whether the ranks of the mirror's stage belong to it too."""

    axes: tuple[str, ...]
    mirrored: bool = False

    def size(self, mesh: Mesh) -> int:
        """Ranks in one."""
        return mesh.size(self.axes) * (2 if self.mirrored else 1)

    def ranks(self, mesh: Mesh) -> list[tuple[int, ...]]:
        """The ranks of every group."""
        return mirrored_groups(mesh, self.axes) if self.mirrored else mesh.groups(self.axes)


def groups_of(ledger: Ledger) -> dict[str, Group]:
    """Every kind of group with more than one rank, by its name.

    First the axes, in the usual order whatever ``--order`` is, then parts of dp, the ranks that share an expert and
    its copies, then what rows go over besides:
    several axes together, named as Megatron-LM does (``dp-cp``), or the ranks of tp that hold the same KV heads. Where
    ranks sum gradients with their mirrors, the group is that of both.
    """
    layout, mesh = ledger.layout, ledger.layout.mesh
    experts = {EP: layout.experts, ETP: layout.expert_tp, EDP: layout.expert_data}
    found: dict[str, tuple[str, ...]] = {axis: experts.get(axis, (axis,)) for axis in DEFAULT_ORDER}
    found |= {part: (part,) for part in (DP_SHARD, DP_REPLICA) if part in mesh.sizes} | experts
    known = {frozenset(mesh.expand(axes)) for axes in found.values()}
    others = [row.axes for row in ledger.rows if not row.mirrored and frozenset(row.axes) not in known]
    found |= {"-".join(mesh.label(axes)): mesh.label(axes) for axes in others}
    groups = {name: Group(axes) for name, axes in found.items()}
    for row in ledger.rows:
        if row.mirrored:
            axes = mesh.label(row.axes)
            # As other groups are named: dp-cp where the ranks of cp sum with those of dp.
            alone = not axes or set(row.axes) == set(mesh.expand(found.get(row.group, ())))
            groups[row.group if alone else "-".join(dict.fromkeys((row.group, *axes)))] = Group(row.axes, True)
    return {name: group for name, group in groups.items() if group.size(mesh) > 1}


def rank_groups(ledger: Ledger, network: Network | None) -> tuple[dict[str, object], ...]:
    """One record per group: its ranks, the level that joins it, its members by domain of the innermost level.

    ``crossings`` are neighbours on the group's ring that lie in different domains, ``nodes`` how many of these it
    spans, ``levels`` those on which some of its members meet. `UsageError` above 65,536 devices.
    """
    mesh = ledger.layout.mesh
    if mesh.devices > MOST_DEVICES:
        raise UsageError(f"{mesh.devices} devices are too many to list; at most {MOST_DEVICES}", where="--ranks")
    return tuple(
        _record(name, index, ranks, network)
        for name, group in groups_of(ledger).items()
        for index, ranks in enumerate(group.ranks(mesh))
    )


def _record(name: str, index: int, ranks: tuple[int, ...], network: Network | None) -> dict[str, object]:
    domains = [list(ranks)] if network is None else _domains(ranks, network.levels[0].devices)
    home = {rank: at for at, domain in enumerate(domains) for rank in domain}
    ring = zip(ranks, (*ranks[1:], ranks[0]), strict=True)
    return {
        "group": name,
        "index": index,
        "ranks": list(ranks),
        "level": None if network is None else _joining(ranks, network),
        "domains": domains,
        "crossings": [[a, b] for a, b in ring if home[a] != home[b]],
        "nodes": None if network is None else len(domains),
        "levels": None if network is None else _ridden(ranks, network),
    }


def _domains(ranks: tuple[int, ...], devices: int | None) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for rank in ranks:
        found.setdefault(rank // devices if devices else 0, []).append(rank)
    return list(found.values())


def _joining(ranks: tuple[int, ...], network: Network) -> str:
    """The innermost level with all ranks in one domain; the outermost where none has."""
    for level in network.levels:
        if len(_domains(ranks, level.devices)) == 1:
            return level.name
    return network.levels[-1].name


def _ridden(ranks: tuple[int, ...], network: Network) -> list[str]:
    """The levels that join what the level inside them left apart."""
    found, apart = [], len(ranks)
    for level in network.levels:
        domains = len(_domains(ranks, level.devices))
        if domains < apart:
            found.append(level.name)
        apart = domains
    return found
