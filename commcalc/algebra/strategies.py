"""The strategies of an expression: which plans are worth telling, what they are called, what each device does.

Told are the plans that no other beats in everything (objective, FLOPs, peak bytes); those that leave every axis where
some tensor of the expression has it, or gather it, so that both choices of case 4 are there and the slice that is
reduced; and on one axis all others too, such as the AllToAll that comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from commcalc.algebra.cases import AxisCase, axis_cases, divided
from commcalc.algebra.collective import Kind
from commcalc.algebra.planner import Allowed, Chain, Moved, Multiply, Plan, Planner
from commcalc.algebra.problem import Problem
from commcalc.algebra.states import CostOf, State, graph_of

# Plans looked at one by one, cheapest first; those that `everything` lists, and those told.
MOST_LOOKED_AT = 400
MOST_LISTED = 1000
MOST_TOLD = 16
# Details of a name: tensors, dimensions and axes of every move.
_FULL = 4
_VERBS = {
    Kind.ALL_GATHER: "gather",
    Kind.ALL_REDUCE: "all-reduce",
    Kind.REDUCE_SCATTER: "reduce-scatter",
    Kind.ALL_TO_ALL: "all-to-all",
    Kind.PERMUTE: "permute",
    Kind.SLICE: "slice",
}


class Named(NamedTuple):
    """A plan with its name; ``flops`` and ``peak_elements`` are of one device."""

    name: str
    plan: Plan
    flops: int
    peak_elements: int

    @property
    def collectives(self) -> list[Moved]:
        """The moves that cost something."""
        return [event for event in self.plan.events if isinstance(event, Moved) and event.move.kind is not Kind.SLICE]


class Found(NamedTuple):
    """Plans worth telling, cheapest first, how many more there are, and the cases of each product."""

    plans: tuple[Named, ...]
    untold: int
    cases: tuple[tuple[AxisCase, ...], ...]
    planner: Planner


def strategies(
    problem: Problem,
    cost: CostOf,
    compute: Callable[[int], int],
    *,
    extra_flops: bool = True,
    everything: bool = False,
    weigh: Callable[[Plan], float] | None = None,
) -> Found:
    """All strategies of the products in ``problem``; ``extra_flops`` False keeps the work as divided as it lies.

    ``weigh`` is the objective of a whole plan where it is not the sum of its parts (an overlap).
    """
    chain = problem.chain()
    wanted = wanted_of(problem)
    allowed = allowance(problem, extra_flops=extra_flops)
    looked_at = MOST_LISTED if everything or weigh is not None else MOST_LOOKED_AT

    def plan(over: Mapping[str, int]) -> tuple[Planner, list[Plan]]:
        planner = Planner(chain._replace(axes=over), cost, compute, allowed)
        plans = planner.plans(wanted, looked_at)
        if wanted is None:
            ends = [plan for state in _natural(planner, plans) for plan in planner.plans(state, MOST_TOLD)]
            plans = [plan for plan in _also(plans, ends) if _ends_naturally(plan)]
        return planner, _also(plans, _in_two(planner, plans))

    planner, plans = plan(chain.axes)
    used = _used(problem)
    if len(used) < len(chain.axes):  # an axis that splits nothing can make a plan cheaper, and hide the plain one
        plans = _also(plans, plan({axis: size for axis, size in chain.axes.items() if axis in used})[1])
    if weigh is not None:
        plans = sorted(plans, key=weigh)
    measured = [(plan, _flops(plan), _peak(chain, plan)) for plan in plans]
    chosen = measured
    if not everything:
        best = _undominated(measured)
        chosen = [
            entry for entry in measured if len(chain.axes) < 2 or entry in best or _plain(chain, wanted, entry[0])
        ][:MOST_TOLD]
    named = [Named(name, *entry) for name, entry in zip(_names(chain, [e[0] for e in chosen]), chosen, strict=True)]
    if weigh is None:
        named.sort(key=lambda one: (one.plan.key, one.name))
    return Found(tuple(named), len(measured) - len(named), _cases(planner, named), planner)


def wanted_of(problem: Problem) -> State | None:
    """How the result is wanted; None where that is left open."""
    return problem.state(problem.expression.output) if problem.expression.output is not None else None


def allowance(problem: Problem, *, extra_flops: bool) -> Allowed:
    """Whether a product may take so many FLOPs on one device."""
    if extra_flops:
        return lambda _at, _flops: True
    most = _limits(problem.chain(), wanted_of(problem))
    return lambda at, flops: flops <= most[at]


def _used(problem: Problem) -> set[str]:
    """The axes that the expression names."""
    states = [problem.state(operand) for operand in problem.expression.tensors]
    return {axis for state in states for axes in (*state.split, state.pending) for axis in axes}


def _limits(chain: Chain, wanted: State | None) -> list[int]:
    """FLOPs of one device for each product when its work stays as divided as it lies.

    How a result in between lies is not known before planning, so there its axes of the last product are kept.
    """
    limits = []
    left = chain.first.state
    for at, product in enumerate(chain.products):
        last = at == len(chain.products) - 1
        axes = divided(left, product, wanted if last else product.kept, chain.axes)
        total = 2 * prod(chain.sizes[dim] for dim in chain.dims(at))
        limits.append(total // prod(chain.axes[axis] for axis in axes))
        placed = {axis: dim for dim, split in zip(product.left, left.split, strict=True) for axis in split}
        placed |= {
            axis: dim
            for dim, split in zip(product.right.dims, product.right.state.split, strict=True)
            for axis in split
        }
        left = product.kept or State(
            tuple(tuple(axis for axis in chain.axes if axis in axes and placed[axis] == dim) for dim in product.out)
        )
    return limits


def _natural(planner: Planner, plans: Sequence[Plan]) -> list[State]:
    """How the result comes out of the cheapest plans by itself, or after one reduction."""
    graph = planner.tensors[-1][2]
    states: dict[State, None] = {}
    for plan in plans[:MOST_TOLD]:
        made = [event for event in plan.events if isinstance(event, Multiply)][-1].out
        if not made.pending:
            states[made] = None
            continue
        states[State(made.split)] = None
        for move in graph.moves(made):
            ordered = move.axes == tuple(axis for axis in planner.chain.axes if axis in move.axes)
            if move.kind is Kind.REDUCE_SCATTER and ordered and not move.target.pending and not move.sliced:
                states[move.target] = None
    return list(states)[:MOST_TOLD]


def _ends_naturally(plan: Plan) -> bool:
    """Whether nothing follows the last product but one reduction."""
    last = max(at for at, event in enumerate(plan.events) if isinstance(event, Multiply))
    after = [event for event in plan.events[last + 1 :] if isinstance(event, Moved)]
    return len(after) < 2 and all(event.move.kind in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER) for event in after)


def _plain(chain: Chain, wanted: State | None, plan: Plan) -> bool:
    """Whether every axis stays where a tensor has it (an operand, the result, the last product), or is gathered."""
    before: dict[str, str] = {}
    for event in plan.events:
        if not isinstance(event, Multiply):
            continue
        product = chain.products[event.at]
        there = [_placed(product.right.dims, product.right.state), before]
        if event.at == 0:
            there.append(_placed(product.left, chain.first.state))
        if event.at == len(chain.products) - 1 and wanted is not None:
            there.append(_placed(product.out, wanted))
        now = _placed(product.left, event.left) | _placed(product.right.dims, event.right)
        if any(all(places.get(axis) != dim for places in there) for axis, dim in now.items()):
            return False
        before = now
    return True


def _placed(dims: Sequence[str], state: State) -> dict[str, str]:
    placed = {axis: dim for dim, axes in zip(dims, state.split, strict=True) for axis in axes}
    return placed | dict.fromkeys(state.pending, "")


def _also(plans: Sequence[Plan], more: Iterable[Plan]) -> list[Plan]:
    found = {plan.events: plan for plan in (*plans, *more)}
    return sorted(found.values(), key=lambda plan: plan.key)


def _in_two(planner: Planner, plans: Sequence[Plan]) -> list[Plan]:
    """The cheapest plan that ends in an AllReduce, as its ReduceScatter and AllGather: the same bytes in two steps."""
    for plan in plans:
        end = plan.events[-1]
        if not (isinstance(end, Moved) and end.move.kind is Kind.ALL_REDUCE):
            continue
        graph = planner.tensors[-1][2]
        for to in reversed(range(len(end.dims))):
            for scatter in graph.moves(end.move.source):
                if scatter.kind is not Kind.REDUCE_SCATTER or scatter.sliced or scatter.axes != end.move.axes:
                    continue
                if scatter.target.split[to] == end.move.source.split[to]:
                    continue
                for gather in graph.moves(scatter.target):
                    if gather.kind is Kind.ALL_GATHER and gather.target == end.move.target:
                        both = [planner.prices(end.dims).key(move) for move in (scatter, gather)]
                        key = plan.key - planner.prices(end.dims).key(end.move) + sum(both)
                        events = (*plan.events[:-1], end._replace(move=scatter), end._replace(move=gather))
                        return [Plan(key, events, plan.final)]
    return []


def _flops(plan: Plan) -> int:
    return sum(event.flops for event in plan.events if isinstance(event, Multiply))


def _undominated(measured: Sequence[tuple[Plan, int, int]]) -> list[tuple[Plan, int, int]]:
    """Those that no cheaper plan equals or beats in FLOPs and peak; ``measured`` is sorted by cost."""
    kept: list[tuple[Plan, int, int]] = []
    for entry in measured:
        if not any(other[1] <= entry[1] and other[2] <= entry[2] for other in kept):
            kept.append(entry)
    return kept


def _peak(chain: Chain, plan: Plan) -> int:
    """Most elements that one device holds at once.

    Inputs stay as they are stored. While a move runs, a tensor is there before and after it; an AllReduce runs in
    place. A slice of an input is a view, and a slice of anything else lets go of what it cuts off. A form that nothing
    uses any more is gone.
    """

    def held(dims: Sequence[str], state: State) -> int:
        sizes = tuple(chain.sizes[dim] for dim in dims)
        return graph_of(sizes, tuple(chain.axes.items())).elements(state)

    inputs = (chain.first, *(product.right for product in chain.products))
    stored = sum(held(factor.dims, factor.state) for factor in inputs)
    now: dict[str, tuple[bool, int]] = {factor.name: (True, held(factor.dims, factor.state)) for factor in inputs}
    peak = stored
    left = chain.first.name
    for event in plan.events:
        beside = stored + sum(extra for is_view, extra in now.values() if not is_view)
        if isinstance(event, Moved):
            view, _ = now[event.name]
            after = held(event.dims, event.move.target)
            if event.move.kind is Kind.SLICE:
                now[event.name] = (view, after)
                continue
            in_place = event.move.kind is Kind.ALL_REDUCE and not view
            peak = max(peak, beside + (0 if in_place else after))
            now[event.name] = (False, after)
        else:
            product = chain.products[event.at]
            made = held(product.out, event.out)
            peak = max(peak, beside + made)
            now.pop(left, None)
            now.pop(product.right.name, None)
            left = product.name
            now[left] = (False, made)
    return peak


def _names(chain: Chain, plans: Sequence[Plan]) -> list[str]:
    """One name a plan, as short as tells it from the others; in case 4 it says which side is gathered."""
    names = ["" for _ in plans]
    cases = axis_cases(chain.first.state, chain.products[0], list(chain.axes))
    clash = any(case.case == 4 for case in cases)
    for detail in range(_FULL + 1):
        often = Counter(names)
        again = [at for at, name in enumerate(names) if detail == 0 or often[name] > 1]
        for at, name in {at: _name(chain, plans[at], detail, clash) for at in again}.items():
            names[at] = name
    seen: dict[str, int] = {}
    for at, name in enumerate(names):
        seen[name] = seen.get(name, 0) + 1
        names[at] = name if seen[name] == 1 else f"{name}-{seen[name]}"
    return names


def name_beside(chain: Chain, plan: Plan, others: Collection[str]) -> str:
    """A name for one more plan that none of ``others`` has."""
    names = [_name(chain, plan, detail, clash=False) for detail in range(_FULL + 1)]
    return next((name for name in names if name not in others), f"{names[-1]}-{len(others) + 1}")


def _name(chain: Chain, plan: Plan, detail: int, clash: bool) -> str:
    """``gather-then-multiply``; more ``detail`` tells dimensions, then slices, tensors and axes too."""
    words: list[str] = []
    for event in plan.events:
        if isinstance(event, Multiply):
            words.append("multiply")
            continue
        move = event.move
        if move.kind is Kind.SLICE and detail < 2 and not _summed(chain, event):
            continue
        word = _VERBS[move.kind]
        if detail >= 3 or (clash and move.kind is Kind.ALL_GATHER and "multiply" not in words):
            word += f"-{event.name}"
        if detail >= 1 and move.kind in (Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL, Kind.SLICE):
            word += f"-onto-{_grown(event)}"
        if detail >= _FULL:
            word += f"-over-{''.join(move.axes)}"
        if not words or words[-1] != word:
            words.append(word)
    return "-then-".join(words)


def _grown(event: Moved) -> str:
    """The dimension that a move splits further."""
    splits = zip(event.dims, event.move.start.split, event.move.target.split, strict=True)
    return next(dim for dim, old, new in splits if len(new) > len(old))


def _summed(chain: Chain, event: Moved) -> bool:
    """Whether a slice is of a dimension that the product sums over: then it is half of the strategy."""
    dim = _grown(event)
    return any(
        (event.name == product.right.name and dim in product.left and dim not in product.out)
        or (event.dims == product.left and dim in product.right.dims and dim not in product.out)
        for product in chain.products
    )


def _cases(planner: Planner, named: Sequence[Named]) -> tuple[tuple[AxisCase, ...], ...]:
    """The cases of each product as it lies; a result in between lies as the best plan makes it."""
    chain = planner.chain
    made: dict[int, State] = {}
    if named:
        made = {event.at: event.out for event in named[0].plan.events if isinstance(event, Multiply)}
    cases = []
    for at, product in enumerate(chain.products):
        before = chain.products[at - 1] if at else None
        left = (
            chain.first.state if before is None else before.kept or made.get(at - 1, State(((),) * len(product.left)))
        )
        cases.append(tuple(axis_cases(left, product, list(chain.axes))))
    return tuple(cases)
