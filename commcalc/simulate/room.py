"""How much memory the strategies of an expression take, and sizes that take less."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from commcalc.accounting.products import Cut, Strategy
from commcalc.accounting.resharding import Route
from commcalc.algebra.mesh import Mesh
from commcalc.algebra.planner import Chain, Moved
from commcalc.algebra.problem import Problem
from commcalc.algebra.sharding import Sharding
from commcalc.simulate.memory import ELEMENT_BYTES, MOST_BYTES, check_memory, held, pieces

# Sizes of about this many elements are enough to see every collective at work.
_SMALL = 16
# How often whole arrays and blocks are held at once: with gradients, and where a tensor is only moved.
_WITH_GRADIENTS, _MOVED = (7, 3), (4, 3)


def check_strategies(problem: Problem, chain: Chain, strategies: Sequence[Strategy]) -> None:
    """`UsageError` where one of the strategies would take too much."""
    plans, group = _plans(problem, chain, strategies)
    _check_memory(problem, lambda sizes: _elements(problem, sizes, plans, group, gradients=True))


def check_routes(problem: Problem, routes: Sequence[Route]) -> None:
    """`UsageError` where one of the routes would take too much."""
    group = max((bill.group_size for route in routes for bill in route.steps), default=1)
    plans = [tuple(_held_by(route, problem)) for route in routes]
    _check_memory(problem, lambda sizes: _elements(problem, sizes, plans, group, gradients=False))


def _elements(
    problem: Problem, sizes: Mapping[str, int], plans: Sequence[tuple[Sharding, ...]], group: int, *, gradients: bool
) -> int:
    """Elements that are held at once at most while one plan of several runs, at these sizes; an estimate from above.

    On the devices every tensor of the plan in each of its shardings and, with ``gradients``, its gradient and a copy on
    the way of each. Of the whole arrays each input and result, its gradient, what is added to that, what the devices
    make of it put together, and two differences.
    """
    products = problem.chain().products if gradients else ()
    made = [tuple(product.out) for product in products for _ in range(1 + product.whole)]
    every = [*(tensor.sharding.dims for tensor in problem.expression.tensors), *made]
    alone = Mesh(tuple((name, 1) for name, _ in problem.mesh.axes), problem.mesh.parts)
    whole = held([Sharding(dims, ((),) * len(dims)) for dims in every], alone, sizes)
    most = max(held(plan, problem.mesh, sizes) for plan in plans)
    of_whole, of_blocks = _WITH_GRADIENTS if gradients else _MOVED
    return of_whole * whole + of_blocks * most + pieces(group, problem.mesh)


def _check_memory(problem: Problem, needed: Callable[[Mapping[str, int]], int]) -> None:
    """`UsageError` where the sizes would take too much, with sizes that do not."""
    sizes = dict(problem.sizes)
    devices = problem.mesh.devices
    small = devices * -(-_SMALL // devices)
    smaller = {}
    while needed(sizes) * ELEMENT_BYTES > MOST_BYTES and max(sizes.values()) > small:
        dim = max(sizes, key=lambda name: sizes[name])
        smaller[dim] = sizes[dim] = small
    hint = ",".join(f"{dim}={size}" for dim, size in smaller.items())
    hint = f"smaller sizes: --dim {hint}" if hint else "a smaller mesh"
    check_memory(needed(problem.sizes), problem.expression.text, hint)


def _plans(problem: Problem, chain: Chain, strategies: Sequence[Strategy]) -> tuple[list[tuple[Sharding, ...]], int]:
    """The shardings in which each strategy holds tensors, and the largest group of any."""
    factors = (chain.first, *(product.right for product in chain.products))
    first = tuple(problem.sharding(factor.dims, factor.state) for factor in factors)
    plans, group = [], 1
    for one in strategies:
        made = []
        for event in one.plan.events:
            if isinstance(event, Moved):
                made.append(problem.sharding(event.dims, event.move.target))
                group = max(group, problem.mesh.size(event.move.axes))
            else:
                made.append(problem.sharding(chain.products[event.at].out, event.out))
        plans.append((*first, *made))
    return list(dict.fromkeys(plans)), group


def _held_by(route: Route, problem: Problem) -> Iterator[Sharding]:
    """The tensor as it lies at first and after each step."""
    first = problem.expression.stations[0]
    yield problem.sharding(first.sharding.dims, problem.state(first))
    for stage in route.stages:
        yield stage.after if isinstance(stage, Cut) else stage.step.after
