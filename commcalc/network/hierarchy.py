"""One collective on the levels its group really spans, by the algorithm that is fastest there or by a named one.

On one level the least time among those that the level offers is taken. Across levels (`crossing`) a collective is
hierarchical: inside, across, inside again; one flat ring or a tree across the domains where the level offers them, or
when they are named.
"""

from typing import NamedTuple

from commcalc.algebra.collective import Convention, Kind
from commcalc.errors import UsageError
from commcalc.network.cost import Algorithm, Cost, Number, added, candidates, cheapest, cost_on, usual
from commcalc.network.link import Level, Network, Topology
from commcalc.network.placement import Placement

# A payload whose time is all bandwidth.
_LARGE = 2**40


class Phase(NamedTuple):
    """One part of a collective on one level."""

    level: str
    kind: Kind
    group_size: int
    payload_bytes: int
    cost: Cost


class RunnerUp(NamedTuple):
    """The second fastest of the algorithms on offer."""

    algorithm: Algorithm
    time_s: float


class Priced(NamedTuple):
    """A collective with its time; ``phases`` is empty where one level serves it.

    ``runner_up`` is the next of those on offer; None where there was no choice.
    """

    cost: Cost
    level: str
    phases: tuple[Phase, ...]
    runner_up: RunnerUp | None = None


class Ways(NamedTuple):
    """All ways to run one collective: those on offer, and those that would run but that the level does not offer."""

    offered: tuple[Priced, ...]
    others: tuple[Priced, ...]


def price(
    kind: Kind,
    payload_bytes: Number,
    placement: Placement,
    network: Network,
    algorithm: Algorithm = Algorithm.AUTO,
    convention: Convention = Convention.EXACT,
) -> Priced:
    """Time of one call; an array of payloads gives arrays, the least time element by element.

    With ``auto`` the fastest that the level offers (the first of equals). A named algorithm is taken where the kind can
    use it; a kind that cannot (a gather where ``in-network`` is named) takes the usual one of its level. ``ring``
    across levels is one flat ring of several channels. `UsageError` where the level does not offer the algorithm. A
    network with a fixed cost of every call has it in place of the latency that its levels come to.
    """
    found = _price(kind, payload_bytes, placement, network, Algorithm(algorithm), convention)
    if network.call_latency_s is None:
        return found
    return found._replace(cost=found.cost._replace(steps=0, latency_s=network.call_latency_s), runner_up=None)


def _price(
    kind: Kind,
    payload_bytes: Number,
    placement: Placement,
    network: Network,
    algorithm: Algorithm,
    convention: Convention,
) -> Priced:
    if algorithm is Algorithm.AUTO:
        found = ways(kind, payload_bytes, placement, network, convention).offered
        if len(found) == 1:
            return found[0]
        if hasattr(payload_bytes, "shape"):
            return Priced(cheapest([one.cost for one in found]), found[0].level, ())
        by_time = sorted(found, key=lambda one: one.cost.time_s)
        return by_time[0]._replace(runner_up=RunnerUp(by_time[1].cost.algorithm, float(by_time[1].cost.time_s)))
    taken = as_measured(kind, payload_bytes, placement, network, convention, algorithm)
    if taken is not None:
        return Priced(taken, network.levels[placement.outermost].name, ())
    if algorithm is Algorithm.MEASURED and placement.size > 1:
        from commcalc.network.measured import not_measured

        raise not_measured(network.levels[placement.outermost], kind, placement.size)
    if len(placement.parts) > 1 or placement.uneven:
        from commcalc.network.crossing import named_across

        return named_across(kind, payload_bytes, placement, network, algorithm, convention)
    index, n = placement.parts[0]
    level = network.levels[index]
    cost = on_level(kind, payload_bytes, n, placement, index, network, algorithm, convention)
    return Priced(cost, level.name, ())


def as_measured(
    kind: Kind,
    payload_bytes: Number,
    placement: Placement,
    network: Network,
    convention: Convention,
    algorithm: Algorithm = Algorithm.MEASURED,
) -> Cost | None:
    """The time that was measured for such a group on the level that joins it; None where none was, or may not be used.

    The textbook convention is a formula's; a level that lists its algorithms without ``measured`` does not use it.
    """
    index, domains = placement.parts[-1]
    if placement.uneven:
        return None
    return _taken(kind, payload_bytes, index, placement.size, domains, network, convention, algorithm)


def _taken(
    kind: Kind,
    payload: Number,
    index: int,
    ranks: int,
    domains: int,
    network: Network,
    convention: Convention,
    algorithm: Algorithm = Algorithm.MEASURED,
) -> Cost | None:
    level = network.levels[index]
    listed = not level.algorithms or algorithm in level.algorithms
    if not level.measured or not listed or convention is Convention.TEXTBOOK:
        return None
    from commcalc.network.measured import measured_cost

    return measured_cost(kind, payload, index, ranks, domains, network, algorithm)


def ways(
    kind: Kind,
    payload_bytes: int,
    placement: Placement,
    network: Network,
    convention: Convention = Convention.EXACT,
    others: bool = False,
) -> Ways:
    """Every way to run the collective, as the level prefers them; with ``others`` those not on offer too.

    What was measured is the one way on offer, unless the level lists several.
    """
    taken = as_measured(kind, payload_bytes, placement, network, convention)
    if taken is None:
        return _by_formula(kind, payload_bytes, placement, network, convention, others)
    outer = network.levels[placement.outermost]
    mine = Priced(taken, outer.name, ())
    if not others and not outer.algorithms:
        return Ways((mine,), ())
    kernels = _kernels(kind, payload_bytes, placement, network, convention)
    formulas = _by_formula(kind, payload_bytes, placement, network, convention, others=True)
    kernels = tuple({one.cost.algorithm: one for one in kernels}.values())
    known = {one.cost.algorithm for one in kernels}
    rest = [*kernels, *(one for group in formulas for one in group if one.cost.algorithm not in known)]
    listed = tuple(one for one in rest if one.cost.algorithm in outer.algorithms)
    return Ways((mine, *listed), tuple(one for one in rest if one not in listed) if others else ())


def _kernels(
    kind: Kind, payload_bytes: Number, placement: Placement, network: Network, convention: Convention
) -> tuple[Priced, ...]:
    """Kernels with measured times of their own."""
    level = network.levels[placement.outermost]
    names = dict.fromkeys(sweep.algorithm for sweep in level.measured if sweep.algorithm is not Algorithm.MEASURED)
    costs = (as_measured(kind, payload_bytes, placement, network, convention, name) for name in names)
    # A kernel that hands over at this payload is not one of the ways.
    return tuple(Priced(cost, level.name, ()) for cost in costs if cost is not None and cost.algorithm in names)


def _by_formula(
    kind: Kind, payload_bytes: int, placement: Placement, network: Network, convention: Convention, others: bool = False
) -> Ways:
    """Every way by the closed forms of its algorithm, on datasheet rates."""
    if len(placement.parts) > 1 or placement.uneven:
        from commcalc.network.crossing import across

        return across(kind, payload_bytes, placement, network, convention, others)
    index, n = placement.parts[0]
    level = network.levels[index]
    if n == 1:
        return Ways((Priced(_nothing(level, kind), level.name, ()),), ())
    possible = possible_on(level, kind, placement, index)
    wanted = offered_by(level, possible, usual_of(level, kind) or possible)
    if not _priced(wanted, kind, 0, n, placement, index, network, convention):  # what is listed runs for other sizes
        wanted = usual_of(level, kind) or possible
    rest = tuple(one for one in possible if one not in wanted) if others else ()
    return Ways(
        _priced(wanted, kind, payload_bytes, n, placement, index, network, convention),
        _priced(rest, kind, payload_bytes, n, placement, index, network, convention),
    )


def egress_rate(placement: Placement, network: Network, kind: str = "") -> float:
    """Bytes per second, one direction, that bound what a device of the group sends.

    On one level its own; across levels those of a flat ring, on as many ports out of a domain as it has members, so
    that busbw has ``min(W, g W_outer)`` for its ceiling; of an AllToAll, whose data all leave by their own port, the
    outer port's over the share that leaves. Source: stas00/ml-engineering network/README.md.
    """
    index, n = placement.parts[-1]
    level = network.levels[index]
    if (len(placement.parts) > 1 or placement.uneven) and kind not in (Kind.SEND_RECV, Kind.PERMUTE):
        from commcalc.network.crossing import ring_rate

        if kind == Kind.ALL_TO_ALL:
            members = placement.channels if placement.uneven else placement.size // n
            return level.rate * (placement.size - 1) / (placement.size - members)
        return ring_rate(placement, network)
    if level.axes and kind == Kind.ALL_TO_ALL and n > 1:  # what devices between forward shares their links
        found = on_level(Kind.ALL_TO_ALL, _LARGE, n, placement, index, network, Algorithm.AUTO, Convention.EXACT)
        return _LARGE * (n - 1) / n / float(found.bandwidth_s)
    if level.axes:
        return float(added((2 if span.ring else 1) * level.rate / span.hop for span in placement.spans_on(index)))
    if level.topology is Topology.FULL_MESH:
        return level.rate * (n - 1) / ((network.ends(index) or 2) - 1)
    return level.rate


def _nothing(level: Level, kind: Kind) -> Cost:
    """A group of one device sends nothing."""
    first = usual_of(level, kind)
    return Cost(first[0] if first else Algorithm.RING, 0, 0.0, 0.0, 0, level.rate, 0)


def _priced(
    names: tuple[Algorithm, ...],
    kind: Kind,
    payload: int,
    n: int,
    placement: Placement,
    index: int,
    network: Network,
    convention: Convention,
) -> tuple[Priced, ...]:
    level = network.levels[index]
    costs = [_cost(name, kind, payload, n, placement, index, network, convention) for name in names]
    return tuple(Priced(cost, level.name, ()) for cost in costs if cost is not None)


def _cost(
    name: Algorithm,
    kind: Kind,
    payload: int,
    n: int,
    placement: Placement,
    index: int,
    network: Network,
    convention: Convention,
) -> Cost | None:
    level = network.levels[index]
    if level.axes:
        from commcalc.network.torus import cost_on_axes

        return cost_on_axes(name, kind, payload, placement.spans_on(index), level, convention)
    return cost_on(name, kind, payload, n, level, convention, network.ends(index))


def usual_of(level: Level, kind: Kind) -> tuple[Algorithm, ...]:
    """What `auto` may take on ``level``; on axes it depends on the parts that the group holds."""
    return () if level.axes else usual(level, kind)


def possible_on(level: Level, kind: Kind, placement: Placement, index: int) -> tuple[Algorithm, ...]:
    """What could run ``kind`` for the group's part on ``level``."""
    if level.axes:
        from commcalc.network.torus import possible

        return possible(placement.spans_on(index), level)
    return candidates(level, kind)


def offered_by(
    level: Level, possible: tuple[Algorithm, ...], otherwise: tuple[Algorithm, ...]
) -> tuple[Algorithm, ...]:
    """What ``level`` lists of the possible ones; ``otherwise`` where it lists none of them."""
    return tuple(one for one in level.algorithms if one in possible) or otherwise


def on_level(
    kind: Kind,
    payload: int,
    n: int,
    placement: Placement,
    index: int,
    network: Network,
    algorithm: Algorithm,
    convention: Convention,
) -> Cost:
    """The cost of a group's part on one level by ``algorithm``, or as `price` says."""
    level = network.levels[index]
    if n == 1:
        return _nothing(level, kind)
    if algorithm is Algorithm.AUTO:
        taken = _taken(kind, payload, 0, n, n, network, convention) if index == 0 else None
        if taken is not None:
            return taken
    possible = possible_on(level, kind, placement, index)
    wanted = offered_by(level, possible, usual_of(level, kind) or possible)
    if algorithm is Algorithm.AUTO:
        found = _priced(wanted, kind, payload, n, placement, index, network, convention)
        if not found:  # what the level lists does not run for so many: its topology's usual way does
            wanted = usual_of(level, kind) or possible
            found = _priced(wanted, kind, payload, n, placement, index, network, convention)
        return cheapest([one.cost for one in found])
    if algorithm in possible and (algorithm in wanted or not level.algorithms):
        if algorithm is Algorithm.IN_NETWORK and level.in_network is None:
            raise UsageError(
                f"level {level.name} does not reduce in the network",
                where="--algorithm in-network",
                hint="--algorithm ring, or in_network_reduction in the hardware file",
            )
        cost = _cost(algorithm, kind, payload, n, placement, index, network, convention)
        if cost is not None:
            return cost
    elif not _elsewhere(algorithm, level, possible):
        raise not_offered(level, algorithm, wanted)
    taken = _taken(kind, payload, 0, n, n, network, convention) if index == 0 else None
    if taken is not None:
        return taken
    plain = tuple(one for one in (*wanted, *usual_of(level, kind), *possible) if one is not Algorithm.IN_NETWORK)
    costs = (_cost(one, kind, payload, n, placement, index, network, convention) for one in plain)
    return next(cost for cost in costs if cost is not None)


def _elsewhere(algorithm: Algorithm, level: Level, possible: tuple[Algorithm, ...]) -> bool:
    """Whether the algorithm is one for other kinds or groups on this level, so that this kind takes its usual one."""
    if algorithm is Algorithm.HIERARCHICAL:
        return True
    if algorithm in possible or level.axes:
        return False
    return any(algorithm in candidates(level, kind) for kind in Kind) and (
        not level.algorithms or algorithm in level.algorithms
    )


def not_offered(level: Level, algorithm: Algorithm, offered: tuple[Algorithm, ...]) -> UsageError:
    """The error of a named algorithm that a level does not offer."""
    return UsageError(
        f"level {level.name} ({level.topology}) does not offer {algorithm}",
        where=f"--algorithm {algorithm}",
        hint=f"it offers {', '.join(offered)} here; `algorithms:` of the level in the hardware file adds others",
    )
