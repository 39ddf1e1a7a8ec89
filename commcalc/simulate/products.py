"""Sharded products and changes of sharding on simulated devices: every strategy that the planner lists, run for real.

The result, and the gradient of every input, are compared with numpy on whole arrays; every collective's payload, wire
bytes and steps with the strategy's bill. A function in the expression is run as tanh, whatever its name: it stands for
any that is not linear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from commcalc.accounting.products import Answer, Bill, Cut, Strategy, moved
from commcalc.accounting.resharding import Resharding, Route
from commcalc.algebra.collective import Kind
from commcalc.algebra.gradient import gradient
from commcalc.algebra.planner import Chain, Moved, Multiply
from commcalc.algebra.problem import Problem
from commcalc.algebra.sharding import Sharding
from commcalc.algebra.states import State
from commcalc.errors import ShardingError
from commcalc.simulate import tape
from commcalc.simulate.check import Check, Excuse, Run, at_most, exact, relative
from commcalc.simulate.grid import Grid
from commcalc.simulate.kernels import subscripts
from commcalc.simulate.memory import check_devices
from commcalc.simulate.moves import Counted, Mismatch, move
from commcalc.simulate.precision import Precision
from commcalc.simulate.predicted import Predicted, compared
from commcalc.simulate.room import check_routes, check_strategies
from commcalc.simulate.rounding import Rounding, noise_of
from commcalc.simulate.tape import Noise
from commcalc.simulate.wire import Array

Blocks = list[Array]


class _Whole(NamedTuple):
    """The same computation on whole arrays: the inputs in order, the result, and what the gradients are."""

    inputs: list[Array]
    result: Array
    seed: Array
    gradients: list[Array]


def _nothing(_: int) -> None:
    """Nobody wants to know how far it is."""


def run_strategies(
    answer: Answer, precision: Precision, seed: int, done: Callable[[int], None] = _nothing
) -> list[Run]:
    """Every strategy of a product (or chain) on the same random inputs; ``done`` hears how many were run."""
    problem = answer.problem
    check_devices(problem.mesh)
    chain = problem.chain()
    check_strategies(problem, chain, answer.strategies)
    reference = _on_one_device(problem, chain, np.random.default_rng(seed))
    more = _rounding(problem, chain, reference, precision, seed).allowed
    runs = []
    for one in answer.strategies:
        checks = _checked(one, answer, reference, precision, seed, more)
        runs.append(Run("", problem.given.axes, one.name, tuple(checks)))
        done(len(runs))
    return runs


def _rounding(problem: Problem, chain: Chain, reference: _Whole, precision: Precision, seed: int) -> Rounding[_Whole]:
    """What rounding does to the result and to the gradients; any product may be a sum over all devices."""

    def gradients(other: _Whole) -> float:
        return max(relative(*pair) for pair in zip(other.gradients, reference.gradients, strict=True))

    longest = max(array.size for array in (*reference.inputs, reference.result))
    return Rounding(
        lambda noise: _on_one_device(problem, chain, np.random.default_rng(seed), noise),
        {"forward_error": lambda other: relative(other.result, reference.result), "gradient_error": gradients},
        noise_of(precision, longest, problem.mesh.devices, share=1),
    )


def _on_one_device(problem: Problem, chain: Chain, rng: np.random.Generator, noise: Noise | None = None) -> _Whole:
    """The chain in plain numpy, at the sizes that were asked for; gradients by a tape."""

    def shape(dims: Sequence[str]) -> tuple[int, ...]:
        return tuple(problem.padding.get(dim, (problem.sizes[dim], 0))[0] for dim in dims)

    made: dict[str, Array] = {}
    inputs = []
    for factor in (chain.first, *(product.right for product in chain.products)):
        array = made.setdefault(factor.name, rng.standard_normal(shape(factor.dims)))
        inputs.append(tape.leaf(array, noise))
    now = _bent(inputs[0]) if chain.first.whole else inputs[0]
    for product, right in zip(chain.products, inputs[1:], strict=True):
        other = _bent(right) if product.right.whole else right
        now = tape.kept(_multiplied(now, product.left, other, product.right.dims, product.out))
        now = _bent(now) if product.whole else now
    back = rng.standard_normal(now.value.shape)
    tape.backward(now, back)
    return _Whole([one.value for one in inputs], now.value, back, [_gradient(one) for one in inputs])


def _bent(one: tape.Variable) -> tape.Variable:
    """A function of a tensor."""
    return tape.kept(tape.tanh(one))


def _gradient(one: tape.Variable) -> Array:
    return np.zeros_like(one.value) if one.grad is None else one.grad


def _multiplied(
    left: tape.Variable, mine: Sequence[str], right: tape.Variable, theirs: Sequence[str], out: Sequence[str]
) -> tape.Variable:
    """One product; a dimension that only one operand has, and the result has not, is summed first."""
    operands = []
    for operand, dims, others in ((left, mine, (*theirs, *out)), (right, theirs, (*mine, *out))):
        alone = tuple(at for at, dim in enumerate(dims) if dim not in others)
        kept = tuple(dim for dim in dims if dim in others)
        if alone:
            summed = tape.total(operand, alone)
            operand = tape.reshape(summed, [size for at, size in enumerate(operand.value.shape) if at not in alone])
        operands.append((operand, kept))
    (one, first), (other, second) = operands
    return tape.einsum(subscripts(first, second, tuple(out)), one, other)


class _Devices:
    """The devices while one strategy runs: what they hold of each tensor, in each sharding, and what was sent."""

    def __init__(self, problem: Problem, precision: Precision) -> None:
        self.problem = problem
        self.precision = precision
        self.grid = Grid(problem.mesh, problem.sizes)
        self.held: dict[tuple[str, State], Blocks] = {}
        self.counts: list[Counted] = []

    def put(self, name: str, dims: Sequence[str], state: State, array: Array, rng: np.random.Generator) -> None:
        blocks = self.grid.lay_out(array, self.problem.sharding(dims, state), rng)
        self.held[name, state] = [self.precision.of(block) for block in blocks]

    def get(self, name: str, state: State) -> Blocks:
        found = self.held.get((name, state))
        if found is None:
            raise Mismatch(f"{name} is used as {state.split} before any device holds it so")
        return found

    def move(self, event: Moved, blocks: Blocks) -> Blocks:
        before, after = (self.problem.sharding(event.dims, state) for state in (event.move.start, event.move.target))
        add = self.precision.add
        done = move(event.move.kind, event.move.axes, before, after, blocks, self.grid, self.problem.bits, add)
        if done.counted is not None:
            self.counts.append(done.counted)
        return done.blocks

    def whole(self, dims: Sequence[str], state: State, blocks: Blocks, like: Array) -> tuple[Array, float]:
        """A tensor put together, without its padding, and by how much copies differ."""
        found = self.grid.assemble(blocks, self.problem.sharding(dims, state))
        return found.array[tuple(slice(size) for size in like.shape)], found.drift


def _checked(
    one: Strategy, answer: Answer, reference: _Whole, precision: Precision, seed: int, more: Excuse
) -> list[Check]:
    devices = _Devices(answer.problem, precision)
    try:
        checks = [*_forward(one, devices, answer, reference, seed, more)]
        checks += _bills(one.steps, devices.counts, devices.problem, one.name)
        devices.counts = []
        return [*checks, *_backward(one, devices, answer, reference, more)]
    except Mismatch as problem:
        return [Check("forward_error", precision.tolerance, float("inf"), False, one.name, problem.message, most=True)]


def _forward(
    one: Strategy, devices: _Devices, answer: Answer, reference: _Whole, seed: int, more: Excuse
) -> Iterator[Check]:
    chain, rng = answer.problem.chain(), np.random.default_rng(seed)
    factors = (chain.first, *(product.right for product in chain.products))
    for factor, array in zip(factors, reference.inputs, strict=True):
        devices.put(factor.name, factor.dims, factor.state, array, rng)
    for event in one.plan.events:
        if isinstance(event, Moved):
            start = devices.get(event.name, event.move.start)
            devices.held[event.name, event.move.target] = devices.move(event, start)
            continue
        product = chain.products[event.at]
        left, right = (_used(devices, chain, event, which) for which in (0, 1))
        names = subscripts(tuple(product.left), tuple(product.right.dims), tuple(product.out))
        devices.held[product.name, event.out] = [
            devices.precision.of(np.einsum(names, *pair)) for pair in zip(left, right, strict=True)
        ]
    last = chain.products[-1]
    blocks = devices.get(last.name, one.plan.final)
    if last.whole:
        blocks = [devices.precision.of(np.tanh(block)) for block in blocks]
    found, drift = devices.whole(last.out, one.plan.final, blocks, reference.result)
    tolerance, error = devices.precision.tolerance, relative(found, reference.result)
    yield at_most("forward_error", tolerance, error, one.name, "the result is another", more)
    yield at_most("copies", tolerance, drift / _size(reference.result), one.name, "copies of the result differ")


def _used(devices: _Devices, chain: Chain, event: Multiply, which: int) -> Blocks:
    """An operand as a product uses it, a function of it where there is one."""
    name, state, function = _operand(chain, event, which)
    blocks = devices.get(name, state)
    return [devices.precision.of(np.tanh(block)) for block in blocks] if function else blocks


def _operand(chain: Chain, event: Multiply, which: int) -> tuple[str, State, bool]:
    """Name, state and whether a function is applied: of the left operand (0) or the right one (1)."""
    product = chain.products[event.at]
    if which == 1:
        return product.right.name, event.right, product.right.whole
    if event.at == 0:
        return chain.first.name, event.left, chain.first.whole
    before = chain.products[event.at - 1]
    return before.name, event.left, before.whole


def _backward(one: Strategy, devices: _Devices, answer: Answer, reference: _Whole, more: Excuse) -> Iterator[Check]:
    """The gradients of all inputs by the backward pass that ``commcalc matmul --grad`` prints for this strategy."""
    chain, problem, precision = answer.problem.chain(), answer.problem, devices.precision
    try:
        moves = list(gradient(chain, one.plan, answer.pricing.cost).moves)
    except ShardingError as wrong:
        yield Check("gradient_error", precision.tolerance, float("inf"), False, one.name, wrong.message, most=True)
        return
    bills = [bill for event in moves for bill in moved(problem, answer.pricing.fabric, event) if isinstance(bill, Bill)]
    waiting = iter(moves)
    upcoming = next(waiting, None)

    def bring(name: str, now: State, blocks: Blocks, wanted: State) -> Blocks:
        nonlocal upcoming
        while now != wanted and upcoming is not None and (upcoming.name, upcoming.move.start) == (name, now):
            blocks, now = devices.move(upcoming, blocks), upcoming.move.target
            upcoming = next(waiting, None)
        if now != wanted:
            raise Mismatch(f"{name} does not reach {wanted.split}")
        return blocks

    def compare(at: int, name: str, dims: Sequence[str], state: State, blocks: Blocks) -> Check:
        expected = reference.gradients[at]
        found, drift = devices.whole(dims, state, blocks, expected)
        error = max(relative(found, expected), drift / _size(expected))
        where, told = f"{one.name}: {name}", "the gradient is another"
        return at_most("gradient_error", precision.gradient_tolerance, error, where, told, more)

    last = chain.products[-1]
    now = State(one.plan.final.split)
    sharding = problem.sharding(last.out, now)
    grad = [precision.of(block) for block in devices.grid.lay_out(reference.seed, sharding)]
    if last.whole:
        grad = _through(grad, devices.get(last.name, one.plan.final), precision)
    for event in reversed([event for event in one.plan.events if isinstance(event, Multiply)]):
        product = chain.products[event.at]
        grad = bring(f"d{product.name}", now, grad, State(event.out.split))
        dims = (tuple(product.left), tuple(product.right.dims))
        operands = [_used(devices, chain, event, which) for which in (0, 1)]
        made = []
        for which in (0, 1):
            name, state, function = _operand(chain, event, which)
            pairs = zip(grad, operands[1 - which], operands[which], strict=True)
            blocks = [
                precision.of(_back(part, product.out, other, dims[1 - which], mine, dims[which]))
                for part, other, mine in pairs
            ]
            made.append(_through(blocks, devices.get(name, state), precision) if function else blocks)
        right = product.right
        theirs = State(event.right.split, _pending(event.left, event.right))
        kept = State(right.state.split)
        blocks = bring(f"d{right.name}", theirs, made[1], kept)
        yield compare(event.at + 1, f"d{right.name}", right.dims, kept, blocks)
        now, grad = State(event.left.split, _pending(event.right, event.left)), made[0]
    first = chain.first
    kept = State(first.state.split)
    yield compare(0, f"d{first.name}", first.dims, kept, bring(f"d{first.name}", now, grad, kept))
    yield from _bills(bills, devices.counts, problem, f"{one.name}, backward")


def _pending(other: State, mine: State) -> tuple[str, ...]:
    """Over which axes a gradient is a sum: those along which the other operand's blocks differ and its own do not."""
    theirs = {axis for axes in (*other.split, other.pending) for axis in axes}
    own = {axis for axes in (*mine.split, mine.pending) for axis in axes}
    return tuple(sorted(theirs - own))


def _back(
    grad: Array, out: Sequence[str], other: Array, theirs: Sequence[str], mine: Array, dims: Sequence[str]
) -> Array:
    """The gradient of one operand; a dimension that nothing else has was summed, so all along it get the same."""
    kept = tuple(dim for dim in dims if dim in (*out, *theirs))
    found = np.einsum(subscripts(tuple(out), tuple(theirs), kept), grad, other)
    shape = [size if dim in kept else 1 for dim, size in zip(dims, mine.shape, strict=True)]
    return np.broadcast_to(found.reshape(shape), mine.shape)


def _through(grad: Blocks, values: Blocks, precision: Precision) -> Blocks:
    """The gradient behind a tanh of ``values``."""
    return [precision.of(one * (1 - np.tanh(x) ** 2)) for one, x in zip(grad, values, strict=True)]


def _bills(bills: Sequence[Bill], counts: Sequence[Counted], problem: Problem, where: str) -> Iterator[Check]:
    """Every collective beside its bill."""
    if len(bills) != len(counts):
        told = f"{len(bills)} collectives are billed, {len(counts)} ran"
        yield exact("rows", len(bills), len(counts), where, told)
    for bill, counted in zip(bills, counts, strict=False):
        step = bill.step
        said = Predicted(
            step.kind, bill.group_size, bill.payload, bill.payload_bytes, bill.wire_bytes, problem.values()
        )
        yield from compared(said, counted, f"{where}: {step.kind} of {bill.tensor} over {','.join(step.axes)}")


def _size(array: Array) -> float:
    return float(np.max(np.abs(array), initial=0.0)) or 1.0


def run_routes(found: Resharding, precision: Precision, seed: int, done: Callable[[int], None] = _nothing) -> list[Run]:
    """The cheapest route of a change of sharding and the others, on the same random tensor."""
    problem = found.problem
    check_devices(problem.mesh)
    first = problem.expression.first
    dims = first.sharding.dims
    routes = (found.best, *found.alternatives)
    check_routes(problem, routes)
    rng = np.random.default_rng(seed)
    array = rng.standard_normal([problem.padding.get(dim, (problem.sizes[dim], 0))[0] for dim in dims])
    runs = []
    for route in routes:
        runs.append(Run("", problem.given.axes, route.name, tuple(_route(route, problem, array, precision, seed))))
        done(len(runs))
    return runs


def _route(route: Route, problem: Problem, array: Array, precision: Precision, seed: int) -> Iterator[Check]:
    devices = _Devices(problem, precision)
    first, last = problem.expression.stations[0], problem.expression.stations[-1]
    dims = first.sharding.dims
    devices.put(first.name, dims, problem.state(first), array, np.random.default_rng(seed))
    blocks = devices.get(first.name, problem.state(first))
    start: Sharding | None = None  # where a strided slice began: it happens inside the collective that follows
    try:
        for stage in route.stages:
            if isinstance(stage, Cut) and stage.strided:
                start = stage.before
                continue
            kind, axes, before, after = (
                (Kind.SLICE, (), stage.before, stage.after) if isinstance(stage, Cut) else stage.step
            )
            add = precision.add
            done = move(kind, axes, start or before, after, blocks, devices.grid, problem.bits, add)
            blocks, start = done.blocks, None
            devices.counts += [done.counted] if done.counted is not None else []
    except Mismatch as wrong:
        yield Check("forward_error", precision.tolerance, float("inf"), False, route.name, wrong.message, most=True)
        return
    found, drift = devices.whole(dims, problem.state(last), blocks, array)
    error = max(relative(found, array), drift / _size(array))
    yield at_most("forward_error", precision.tolerance, error, route.name, "it does not end in the same tensor")
    yield from _bills(route.steps, devices.counts, problem, route.name)
