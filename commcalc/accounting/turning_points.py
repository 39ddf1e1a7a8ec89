"""Where a choice turns: the size at which another strategy is best, or compute takes as long as communication."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from commcalc.accounting.products import Answer, Objective, Overlap, Pricing, Strategy, blockwise, evened, tie
from commcalc.algebra.planner import Chain, Grown, Moved, Multiply, Plan, Planner
from commcalc.algebra.problem import Problem
from commcalc.algebra.search import Prices, key_of
from commcalc.algebra.strategies import allowance, name_beside, wanted_of

# Sizes looked at: doublings of the smallest that every strategy divides, up to this.
LARGEST = 2**40


class Flip(NamedTuple):
    """With ``dim`` below ``at`` the strategy ``below`` is best, from there on ``above`` is; all else as given.

    ``among`` is ``all`` where planning again at both sizes found nothing better, else ``listed``.
    """

    dim: str
    at: int
    below: str
    above: str
    below_plan: Plan
    above_plan: Plan
    among: str = "all"


class Balance(NamedTuple):
    """With ``dim`` at ``at`` the best strategy computes as long as it communicates, and longer above."""

    dim: str
    at: float


Cost = Callable[[int], float]
# Arrangements up to which planning again is quick enough, and how often better plans are looked for.
_QUICK = 400
_ROUNDS = 12


def flips(answer: Answer) -> list[Flip]:
    """Every size of every dimension at which the best strategy changes, from the smallest that all devices divide on.

    A plan's cost is a line in the size of a dimension, so the best of the listed plans changes where two lines cross.
    There it is planned again: what beats both joins them, until nothing does (Eisner and Severance 1976). Under an
    overlap, with too many arrangements to plan again, or with measured times, which are no lines, the flips are those
    among the listed strategies.
    """
    if len(answer.strategies) < 2:
        return []
    if answer.pricing.overlap is Overlap.NONE or answer.pricing.objective is Objective.BYTES:
        again = answer.free and sum(len(links) for links in answer.found.planner.joints) <= _QUICK
        again = again and not _bent(answer.pricing)
        return [flip for dim in answer.problem.sizes for flip in _by_lines(answer, dim, again=again)]
    found = []
    ranked = sorted(answer.strategies, key=tie)
    for dim in answer.problem.sizes:
        costs = [(one.name, one.plan, _objective(one, answer, dim)) for one in ranked]
        found += [flip._replace(among="listed") for flip in _changes(dim, costs, answer.problem.mesh.devices)]
    return found


def _bent(pricing: Pricing) -> bool:
    """Whether times are no lines in the size, as those between measured points are not."""
    network = pricing.fabric.network
    return pricing.objective is Objective.TIME and network is not None and any(one.measured for one in network.levels)


def _by_lines(answer: Answer, dim: str, *, again: bool) -> list[Flip]:
    """The flips of one dimension; with ``again`` each is found again by the planner on both sides."""
    problem, pricing = answer.problem, answer.pricing
    chain = problem.chain()
    unit, given = problem.mesh.devices, problem.sizes[dim]
    allowed = allowance(problem, extra_flops=answer.extra_flops)
    base = given if given % unit == 0 else unit
    whole, wanted = chain._replace(sizes={**chain.sizes, dim: base}), wanted_of(problem)
    planned: dict[int, Plan] = {}

    def best_at(size: int) -> Plan:
        if size not in planned:
            planner = Planner(whole, pricing.cost, pricing.compute, allowed, Grown(dim, size, base))
            planned[size] = planner.plans(wanted, 1)[0]
        return planned[size]

    lines = {one.name: (one.plan, _line(answer, chain, one.plan, dim, given)) for one in answer.strategies}
    for _ in range(_ROUNDS):
        costs = [(name, *lines[name]) for name in sorted(lines)]
        found = _changes(dim, costs, unit)
        if not again:
            break
        sizes = sorted({size for flip in found for size in (flip.at - unit, flip.at) if size > 0})
        least = {size: min(cost(size) for _, _, cost in costs) for size in sizes}
        better = {plan.events: plan for size in sizes if (plan := best_at(size)).key < least[size]}
        if not better:
            return found
        for plan in better.values():
            lines[name_beside(chain, plan, lines)] = (plan, _line(answer, chain, plan, dim, base))
    return [flip._replace(among="listed") for flip in found]


def _line(answer: Answer, chain: Chain, plan: Plan, dim: str, old: int) -> Cost:
    """The key of a plan, made for size ``old`` of ``dim``, at another size."""
    pricing = answer.pricing
    prices = Prices(chain.bits, pricing.cost)
    moves = [event.move for event in plan.events if isinstance(event, Moved) and dim in event.dims]
    fixed = sum(prices.key(event.move) for event in plan.events if isinstance(event, Moved) and dim not in event.dims)
    flops = 0
    for event in plan.events:
        if isinstance(event, Multiply):
            if dim in chain.dims(event.at):
                flops += event.flops
            else:
                fixed += key_of(pricing.compute(event.flops))
    known: dict[int, int] = {}

    def key(size: int) -> int:
        if size not in known:
            moved = sum(prices.priced(move.kind, move.axes, move.elements * size // old) for move in moves)
            known[size] = fixed + moved + key_of(pricing.compute(flops * size // old))
        return known[size]

    return key


def balances(answer: Answer) -> list[Balance]:
    """For each dimension the size above which the best strategy is bound by compute; those without one are left out."""
    problem, pricing, best = answer.problem, answer.pricing, answer.best
    if best.times is None or best.times.compute_s is None or not best.steps:
        return []
    found = []
    for dim in problem.sizes:
        at = _crossing(_comm(best, problem, pricing, dim), _compute(best, problem, pricing, dim), problem.mesh.devices)
        if at is not None:
            found.append(Balance(dim, at))
    return found


def _comm(one: Strategy, problem: Problem, pricing: Pricing, dim: str) -> Cost:
    values = problem.values()

    def seconds(size: int) -> float:
        at = values | {dim: size}
        return sum(
            pricing.fabric.seconds(step.step.kind, step.step.axes, int(step.payload.value(at))) for step in one.steps
        )

    return seconds


def _compute(one: Strategy, problem: Problem, pricing: Pricing, dim: str) -> Cost:
    peak = pricing.peak or float("inf")
    chain = problem.chain()
    given = problem.sizes[dim]
    with_dim = sum(
        event.flops for event in one.plan.events if isinstance(event, Multiply) and dim in chain.dims(event.at)
    )
    fixed = one.flops - with_dim

    def seconds(size: int) -> float:
        return (fixed + with_dim * size / given) / peak

    return seconds


def _objective(one: Strategy, answer: Answer, dim: str) -> Cost:
    """Seconds of a strategy whose compute hides communication."""
    problem, pricing = answer.problem, answer.pricing
    comm, compute = _comm(one, problem, pricing, dim), _compute(one, problem, pricing, dim)
    if pricing.peak is None:
        return lambda size: evened(comm(size))
    if pricing.overlap is Overlap.FULL:
        return lambda size: evened(max(comm(size), compute(size)))
    by_blocks = _by_blocks(one, problem, pricing, dim)
    return lambda size: evened(by_blocks(size))


def _by_blocks(one: Strategy, problem: Problem, pricing: Pricing, dim: str) -> Cost:
    peak = pricing.peak or float("inf")
    chain, values, given = problem.chain(), problem.values(), problem.sizes[dim]

    def seconds(size: int) -> float:
        at = values | {dim: size}
        steps = [
            step._replace(priced=pricing.fabric.priced(step.step.kind, step.step.axes, int(step.payload.value(at))))
            for step in one.steps
        ]
        events = tuple(
            event._replace(flops=event.flops * size // given)
            if isinstance(event, Multiply) and dim in chain.dims(event.at)
            else event
            for event in one.plan.events
        )
        return blockwise(one.plan._replace(events=events), steps, peak)

    return seconds


def _changes(dim: str, costs: Sequence[tuple[str, Plan, Cost]], unit: int) -> list[Flip]:
    """Walk through doublings of ``unit``; between two with different winners find where each takes over.

    Of equals the first in ``costs`` wins.
    """

    def winner(times: int) -> int:
        return min(range(len(costs)), key=lambda at: (costs[at][2](times * unit), at))

    found = []
    low, best = 1, winner(1)
    while low * 2 * unit <= LARGEST:
        high = low * 2
        while (other := winner(high)) != best:
            last, first = low, high  # the winner changes between them
            while first - last > 1:
                middle = (last + first) // 2
                last, first = (middle, first) if winner(middle) == best else (last, middle)
            other = winner(first)
            below, above = costs[best], costs[other]
            found.append(Flip(dim, first * unit, below[0], above[0], below[1], above[1]))
            best, low = other, first
        low = high
    return found


def _crossing(comm: Cost, compute: Cost, unit: int) -> float | None:
    """Where ``compute`` overtakes ``comm``, which grows more slowly; between two multiples of ``unit`` on a line."""
    if compute(unit) >= comm(unit):
        return None
    low, high = 1, 2
    while compute(high * unit) < comm(high * unit):
        low, high = high, high * 2
        if high * unit > LARGEST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if compute(middle * unit) < comm(middle * unit) else (low, middle)
    below, above = (comm(at * unit) - compute(at * unit) for at in (low, high))
    return unit * (low + (high - low) * below / (below - above))
