"""The groups of an axis by rank, and where each crosses a level of the network."""

from __future__ import annotations

from commcalc.accounting.ledger import Ledger
from commcalc.errors import UsageError
from commcalc.network.link import Network

MOST_DEVICES = 65_536


def rank_groups(ledger: Ledger, network: Network | None, axis: str = "tp") -> tuple[dict[str, object], ...]:
    """One record per group: its ranks, the level that joins it, its members by domain of the innermost level.

    ``crossings`` are neighbours on the group's ring that lie in different domains. `UsageError` above 65,536 devices.
    """
    mesh = ledger.layout.mesh
    if mesh.devices > MOST_DEVICES:
        raise UsageError(f"{mesh.devices} devices are too many to list; at most {MOST_DEVICES}", where="--ranks")
    records = []
    for index, group in enumerate(mesh.groups([axis])):
        domains = [list(group)] if network is None else _domains(group, network.levels[0].devices)
        home = {rank: at for at, domain in enumerate(domains) for rank in domain}
        ring = zip(group, (*group[1:], group[0]), strict=True)
        crossings = [[a, b] for a, b in ring if home[a] != home[b]]
        records.append(
            {
                "group": axis,
                "index": index,
                "ranks": list(group),
                "level": None if network is None else _joining(group, network),
                "domains": domains,
                "crossings": crossings,
            }
        )
    return tuple(records)


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
