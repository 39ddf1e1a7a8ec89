"""Groups that communicate often on a slow level of the network, while rarer ones sit on a fast one.

Ranks lie on the devices in the order of the axes, innermost first (Megatron-LM core/parallel_state.py, RankGenerator),
so the order decides which groups stay in a node. Another order moves the same bytes in other times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import combinations, permutations

from commcalc.accounting.ledger import Ledger, build
from commcalc.accounting.mirrors import group_placement
from commcalc.accounting.pricing import PricedLedger, priced_alone
from commcalc.accounting.ranks import Group, groups_of
from commcalc.accounting.rows import Warn
from commcalc.algebra.mesh import Mesh
from commcalc.errors import CommcalcError
from commcalc.network.cost import Algorithm
from commcalc.network.link import Network
from commcalc.transformer.work import DEFAULT_ORDER
from commcalc.units import format_seconds

# From the group that communicates most often: in every layer, in some, once a microbatch or step.
FREQUENT, RARE = ("tp", "ep", "cp"), ("dp", "dp_shard", "dp_replica", "pp")


def contention(priced: PricedLedger, network: Network, algorithm: Algorithm) -> list[Warn]:
    """A warning for the most frequent group that crosses to a slower level than a rare one, if an order mends it.

    Of the orders that shorten what the group takes and the step, and lengthen no group that is more frequent, the one
    with the shortest step; of equals the one nearest to the usual.
    """
    placed = _contended(priced.ledger, network)
    tried = list(_tried(priced, network, algorithm)) if placed else []
    shorter = [one for one in tried if _less(_seconds(one), _seconds(priced))]
    for frequent, said in placed:
        here = _seconds(priced, frequent)
        mended = _shortest([one for one in shorter if _mends(frequent, one, priced)])
        if mended is None:
            continue
        message = (
            f"{said}: {frequent} communicates for {format_seconds(here)} of a step's "
            f"{format_seconds(_seconds(priced))}; with --order {_order(mended)} for "
            f"{format_seconds(_seconds(mended, frequent))} of {format_seconds(_seconds(mended))}"
        )
        least = _shortest(shorter)
        if least is not None and least is not mended:
            message += f" (the shortest step, {format_seconds(_seconds(least))}, has --order {_order(least)})"
        return [Warn("frequent-group-on-slow-level", message)]
    return []


def _tried(priced: PricedLedger, network: Network, algorithm: Algorithm) -> Iterator[PricedLedger]:
    """The ledger in every order that the network can hold."""
    for order in orders(priced.ledger):
        with suppress(CommcalcError):  # a group that lies on no axes of a torus, or on no level
            yield priced_alone(reordered(priced.ledger, order), network, algorithm)


def _mends(group: str, one: PricedLedger, now: PricedLedger) -> bool:
    """Whether ``one`` shortens what a group takes, at the cost of none that is more frequent."""
    before = FREQUENT[: FREQUENT.index(group)]
    harmed = any(_less(_seconds(now, other), _seconds(one, other)) for other in before)
    return _less(_seconds(one, group), _seconds(now, group)) and not harmed


def _shortest(tried: Sequence[PricedLedger]) -> PricedLedger | None:
    """The one with the shortest step; of equals the first."""
    best: PricedLedger | None = None
    for one in tried:
        if best is None or _less(_seconds(one), _seconds(best)):
            best = one
    return best


def _seconds(priced: PricedLedger, group: str = "all") -> float:
    """What a group takes of a step."""
    return priced.totals["step"][group].time_s or 0.0


def _order(priced: PricedLedger) -> str:
    return "-".join(priced.ledger.parallel.order)


def orders(ledger: Ledger) -> list[tuple[str, ...]]:
    """Every order of the axes that are split, the nearest to the usual order first; axes of 1 keep their places."""
    # Where expert groups lie follows from the place of ep among the others.
    split = [axis for axis in DEFAULT_ORDER if getattr(ledger.parallel, axis) > 1]
    found = []
    for chosen in permutations(split):
        taken = iter(chosen)
        found.append(tuple(next(taken) if axis in split else axis for axis in DEFAULT_ORDER))
    return sorted(found, key=lambda order: (_exchanged(order), [DEFAULT_ORDER.index(axis) for axis in order]))


def reordered(ledger: Ledger, order: tuple[str, ...]) -> Ledger:
    """The same rows on a mesh whose axes come in another order, innermost first; expert groups are laid out anew."""
    layout = ledger.layout
    if layout.moves_tokens:
        parallel = ledger.parallel._replace(order=order)
        return build(ledger.model, parallel, ledger.work, ledger.convention, ledger.stage.number)
    sizes = dict(layout.mesh.axes)
    axes = tuple((part, sizes[part]) for axis in reversed(order) for part in layout.mesh.expand([axis]))
    layout = layout._replace(mesh=Mesh(axes, layout.mesh.parts))
    parallel = ledger.parallel._replace(order=order)
    return ledger._replace(parallel=parallel, programs=ledger.programs._replace(layout=layout))


def _contended(ledger: Ledger, network: Network) -> list[tuple[str, str]]:
    """Each frequent group that crosses to a slower level than a rarer one, with that in words."""
    mesh = ledger.layout.mesh
    groups = {name: group for name, group in groups_of(ledger).items() if name in (*FREQUENT, *RARE)}
    names = [name for name in (*FREQUENT, *RARE) if name in groups]
    reach = {name: level for name in names if (level := _outermost(mesh, groups[name], network)) is not None}
    found = []
    for frequent, outer in reach.items():
        inside = [name for name in names[names.index(frequent) + 1 :] if reach.get(name, outer) < outer]
        if frequent in FREQUENT and inside:
            rare = inside[-1]
            crosses, stays = network.levels[outer].name, network.levels[reach[rare]].name
            sizes = groups[frequent].size(mesh), groups[rare].size(mesh)
            said = f"{frequent} {sizes[0]} crosses {crosses} while {rare} {sizes[1]} stays on {stays}"
            found.append((frequent, said))
    return found


def _outermost(mesh: Mesh, group: Group, network: Network) -> int | None:
    """The level that joins groups; None where none does."""
    try:
        return group_placement(mesh, group.axes, network, mirrored=group.mirrored).outermost
    except CommcalcError:
        return None


def _exchanged(order: Sequence[str]) -> int:
    """Pairs of axes that stand the other way round than usual."""
    at = [DEFAULT_ORDER.index(axis) for axis in order]
    return sum(before > after for before, after in combinations(at, 2))


def _less(one: float, other: float) -> bool:
    """Shorter by more than the rounding of a sum."""
    return one < other * (1 - 1e-9)
