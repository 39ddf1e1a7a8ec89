"""A sharded computation with its bills: each strategy's collectives, FLOPs, memory; times where a machine is given."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from commcalc.algebra.collective import Kind, Step
from commcalc.algebra.planner import Moved, Multiply, Plan
from commcalc.algebra.problem import Problem
from commcalc.algebra.search import IMPOSSIBLE, objective
from commcalc.algebra.sharding import Sharding
from commcalc.algebra.size import Size
from commcalc.algebra.strategies import Found, Named, strategies
from commcalc.errors import CommcalcError, ShardingError
from commcalc.network.cost import added
from commcalc.network.fabric import Fabric
from commcalc.network.hierarchy import Priced

# The planner counts in whole numbers: bytes, or ticks of a second. Ticks are
# a power of two, so that no bit of a float is lost and equal sums stay equal.
_TICKS = 2.0**100


class Objective(StrEnum):
    """What the best plan has least of."""

    TIME = "time"
    BYTES = "bytes"


class Overlap(StrEnum):
    """What runs at the same time.

    ``none``               compute, then communication: their sum
    ``full``               all of it at once: the larger of the two
    ``collective-matmul``  a gathered operand (or a scattered result) block by block: while one block is multiplied the
                           next one is on its way; everything else one after the other
    """

    NONE = "none"
    FULL = "full"
    COLLECTIVE_MATMUL = "collective-matmul"


class Bill(NamedTuple):
    """One collective of a plan: the tensor before and after, payload as a formula and in bytes, wire bytes, price.

    ``strided`` are the axes over which each device first keeps every n-th part of what it holds.
    """

    tensor: str
    step: Step
    group_size: int
    payload: Size
    payload_bytes: int
    wire_bytes: int
    priced: Priced | None
    strided: tuple[str, ...] = ()

    @property
    def time_s(self) -> float | None:
        """Seconds of the call; None where nothing is priced."""
        return float(self.priced.cost.time_s) if self.priced else None

    @property
    def bound(self) -> str | None:
        """``latency`` or ``bandwidth``: the larger part of the time."""
        if self.priced is None:
            return None
        return "latency" if self.priced.cost.latency_s > self.priced.cost.bandwidth_s else "bandwidth"


class Cut(NamedTuple):
    """A free slice: each device keeps its part; ``strided``: every n-th piece of what it holds."""

    tensor: str
    before: Sharding
    after: Sharding
    strided: bool = False


class Local(NamedTuple):
    """A local product: both operands as they lie then, and the result as it comes out."""

    left: tuple[str, Sharding]
    right: tuple[str, Sharding]
    out: tuple[str, Sharding]


Stage = Bill | Cut | Local


class Times(NamedTuple):
    """Seconds of a strategy: communication, compute, and both under each overlap."""

    comm_s: float
    compute_s: float | None
    blockwise_s: float | None

    @property
    def overlapped_s(self) -> float | None:
        """All at once: the larger of the two."""
        return None if self.compute_s is None else max(self.comm_s, self.compute_s)

    @property
    def serial_s(self) -> float | None:
        """One after the other."""
        return None if self.compute_s is None else self.comm_s + self.compute_s

    def under(self, overlap: Overlap) -> float:
        """Seconds under an overlap; communication alone where compute is unknown."""
        chosen = {Overlap.FULL: self.overlapped_s, Overlap.COLLECTIVE_MATMUL: self.blockwise_s}
        found = chosen.get(overlap, self.serial_s)
        return self.comm_s if found is None else found


class Strategy(NamedTuple):
    """One way to compute the expression, with everything that it costs one device; ``stages`` in the order they run."""

    name: str
    plan: Plan
    stages: tuple[Stage, ...]
    output: Sharding
    flops: int
    peak_bytes: int
    times: Times | None

    @property
    def steps(self) -> tuple[Bill, ...]:
        """The collectives."""
        return tuple(stage for stage in self.stages if isinstance(stage, Bill))

    @property
    def slices(self) -> tuple[Cut, ...]:
        """The free slices."""
        return tuple(stage for stage in self.stages if isinstance(stage, Cut))

    @property
    def wire_bytes(self) -> int:
        """Bytes one device sends."""
        return sum(step.wire_bytes for step in self.steps)


class Pricing(NamedTuple):
    """How plans are compared: prices, the peak in FLOP/s (None where unknown), and what is least in the best."""

    fabric: Fabric
    peak: float | None
    objective: Objective
    overlap: Overlap = Overlap.NONE

    def cost(self, kind: Kind, axes: tuple[str, ...], payload_bytes: int) -> int:
        """The objective of one collective, for the planner; impossible where its group cannot be laid out."""
        if self.fabric.refuses(axes) is not None:
            return IMPOSSIBLE
        if self.objective is Objective.BYTES:
            return self.fabric.wire_bytes(kind, axes, payload_bytes)
        return int(self.fabric.seconds(kind, axes, payload_bytes) * _TICKS)

    def compute(self, flops: int) -> int:
        """The objective of FLOPs on one device, for the planner."""
        if self.objective is Objective.BYTES or self.peak is None:
            return 0
        return int(flops / self.peak * _TICKS)


class Answer(NamedTuple):
    """All strategies, best first under the objective; ``untold`` more were found that others beat."""

    problem: Problem
    pricing: Pricing
    found: Found
    strategies: tuple[Strategy, ...]
    untold: int
    extra_flops: bool = True
    # Whether plans were chosen freely, and not only those without communication.
    free: bool = True

    @property
    def best(self) -> Strategy:
        """The strategy with the least of the objective."""
        return self.strategies[0]


def answer(
    problem: Problem,
    pricing: Pricing,
    *,
    extra_flops: bool = True,
    communication: bool = True,
    everything: bool = False,
) -> Answer:
    """Every strategy with its bill; `ShardingError` where none is left under the restrictions."""
    _check_functions(problem)

    def weigh(plan: Plan) -> float:
        events = [event for event in plan.events if isinstance(event, Moved)]
        if objective(plan.key) >= IMPOSSIBLE:
            return float("inf")
        steps = [bill(problem, pricing.fabric, event) for event in events if event.move.kind is not Kind.SLICE]
        times = _times(plan, steps, pricing)
        return 0.0 if times is None else times.under(pricing.overlap)

    whole = pricing.overlap is not Overlap.NONE and pricing.objective is Objective.TIME
    found = strategies(
        problem, pricing.cost, pricing.compute,
        extra_flops=extra_flops, everything=everything, weigh=weigh if whole else None,
    )  # fmt: skip
    possible = [named for named in found.plans if objective(named.plan.key) < IMPOSSIBLE]
    if found.plans and not possible:
        raise _refusal(pricing, found.plans[0].collectives)
    billed = [strategy(problem, pricing, named) for named in possible]
    if not communication:
        silent = [one for one in billed if not one.steps]
        if not silent:
            raise _not_without(problem, found, billed)
        billed = silent
    if not billed:
        raise ShardingError(
            "no plan reaches the wanted sharding",
            hint="a whole tensor cannot become a pending sum, and sizes must divide",
        )
    billed.sort(key=lambda one: _rank(one, pricing))
    untold = found.untold if communication else 0
    return Answer(problem, pricing, found, tuple(billed), untold, extra_flops, communication)


def _rank(one: Strategy, pricing: Pricing) -> tuple[float, int, int, int, str]:
    """The planner's own order, or the time under an overlap with the same tie-breaks: steps, kinds, name."""
    if pricing.objective is Objective.TIME and pricing.overlap is not Overlap.NONE and one.times is not None:
        return evened(one.times.under(pricing.overlap)), 0, *tie(one)
    return 0.0, one.plan.key, *tie(one)


def evened(seconds: float) -> float:
    """Seconds without the last digits, in which sums of the same parts differ by their order."""
    return float(f"{seconds:.12e}")


def tie(one: Strategy) -> tuple[int, int, str]:
    """What decides between equals: steps, then how many are AllGathers or ReduceScatters, then the name."""
    scatters = sum(step.step.kind in (Kind.ALL_GATHER, Kind.REDUCE_SCATTER) for step in one.steps)
    return len(one.steps), scatters, one.name


def _refusal(pricing: Pricing, moved: Sequence[Moved]) -> CommcalcError:
    """Why the first of the moves that cannot be made cannot."""
    refused = (pricing.fabric.refuses(event.move.axes) for event in moved)
    return next(problem for problem in refused if problem is not None)


def _check_functions(problem: Problem) -> None:
    """Refuse a pending sum that is wanted right after a function: no device could have its term."""
    products = problem.expression.products
    for at, times in enumerate(products):
        after = times.kept or (problem.expression.output if at == len(products) - 1 else None)
        if times.function and after is not None and problem.state(after).pending:
            raise ShardingError(
                f"{after.name} is wanted as a pending sum after {times.function}",
                source=problem.expression.text,
                span=after.span,
                hint="a function of a sum is not the sum of the function: reduce before it",
            )


def _not_without(problem: Problem, found: Found, billed: Sequence[Strategy]) -> ShardingError:
    expression = problem.expression
    bad = [case for cases in found.cases for case in cases if case.case != 1]
    why = "; ".join(f"axis {case.axis}: {case.why}" for case in bad) or "the output is wanted in another sharding"
    ways = [f"{one.name} ({one.wire_bytes:,} B)" for one in billed[:3]]
    last = expression.output or (expression.products[-1].right if expression.products else expression.first)
    return ShardingError(
        "this cannot be computed without communication",
        source=expression.text,
        span=(expression.first.span[0], last.span[1]),
        context=why,
        hint="ways out: " + ", ".join(ways) if ways else None,
    )


def strategy(problem: Problem, pricing: Pricing, named: Named) -> Strategy:
    """The bill of one plan."""
    stages = tuple(stage for event in named.plan.events for stage in _stages(problem, pricing.fabric, event))
    steps = [stage for stage in stages if isinstance(stage, Bill)]
    return Strategy(
        named.name,
        named.plan,
        stages,
        problem.sharding(problem.expression.products[-1].dims, named.plan.final),
        named.flops,
        -(-named.peak_elements * problem.bits // 8),
        _times(named.plan, steps, pricing),
    )


def _stages(problem: Problem, fabric: Fabric, event: Moved | Multiply) -> Sequence[Stage]:
    if isinstance(event, Moved):
        return moved(problem, fabric, event)
    chain = problem.chain()
    product = chain.products[event.at]
    left = chain.first.name if event.at == 0 else chain.products[event.at - 1].name
    done = Local(
        (left, problem.sharding(product.left, event.left)),
        (product.right.name, problem.sharding(product.right.dims, event.right)),
        (product.name, problem.sharding(product.out, event.out)),
    )
    return [done]


def moved(problem: Problem, fabric: Fabric, event: Moved) -> list[Bill | Cut]:
    """A move with its bill, after its strided slice; a slice has no bill."""
    move = event.move
    start, source, target = (problem.sharding(event.dims, state) for state in (move.start, move.source, move.target))
    if move.kind is Kind.SLICE:
        return [Cut(event.name, source, target)]
    strided = [Cut(event.name, start, source, strided=True)] if move.sliced else []
    return [*strided, bill(problem, fabric, event)]


def bill(problem: Problem, fabric: Fabric, event: Moved) -> Bill:
    """One collective with its sharding before and after, its payload and its price."""
    move = event.move
    before, after = problem.sharding(event.dims, move.source), problem.sharding(event.dims, move.target)
    step = Step(move.kind, move.axes, before, after)
    payload = step.payload(problem.bits)
    payload_bytes = int(payload.value(problem.values()))
    return Bill(
        event.name,
        step,
        problem.mesh.size(move.axes),
        payload,
        payload_bytes,
        fabric.wire_bytes(move.kind, move.axes, payload_bytes),
        fabric.priced(move.kind, move.axes, payload_bytes),
        move.sliced,
    )


def _times(plan: Plan, steps: Sequence[Bill], pricing: Pricing) -> Times | None:
    seconds = [step.time_s for step in steps]
    if pricing.fabric.network is None:
        return None
    comm = added(time for time in seconds if time is not None)
    if pricing.peak is None:
        return Times(comm, None, None)
    compute = sum(event.flops for event in plan.events if isinstance(event, Multiply)) / pricing.peak
    return Times(comm, compute, blockwise(plan, steps, pricing.peak))


def blockwise(plan: Plan, steps: Sequence[Bill], peak: float) -> float:
    """Seconds when one gather before each product, or one scatter after it, runs block by block beside it.

    With n blocks a device multiplies one while the next arrives: (n - 1) max(hop, block) and one block more that
    nothing hides. Of several candidates the longest is hidden. Source: Wang et al. 2023, "Overlap Communication with
    Dependent Computation via Decomposition" (collective matmul), section 3.
    """
    total, at = 0.0, 0
    waiting: list[Bill] = []  # gathers since the last product
    events = plan.events
    for index, event in enumerate(events):
        if isinstance(event, Moved):
            if event.move.kind is Kind.SLICE:
                continue
            if event.move.kind is Kind.ALL_GATHER:
                waiting.append(steps[at])
            else:
                total += steps[at].time_s or 0.0
            at += 1
            continue
        after = events[index + 1] if index + 1 < len(events) else None
        scatter = isinstance(after, Moved) and after.move.kind is Kind.REDUCE_SCATTER
        hidden = max([*waiting, *([steps[at]] if scatter else [])], key=lambda step: step.time_s or 0.0, default=None)
        total += sum(step.time_s or 0.0 for step in waiting if step is not hidden)
        compute = event.flops / peak
        if hidden is not None:
            n, comm = hidden.group_size, hidden.time_s or 0.0
            compute = (n - 1) * max(comm / (n - 1), compute / n) + compute / n
            if hidden not in waiting:  # the scatter is counted when its turn comes
                compute -= comm
        total += compute
        waiting = []
    return total + sum(step.time_s or 0.0 for step in waiting)
