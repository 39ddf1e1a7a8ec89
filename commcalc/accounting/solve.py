"""Limits by pricing: up to which degree, or from which batch on, a step is bound by compute.

Nothing here is a rule of thumb. Every candidate is derived and priced like any ledger, and is bound by compute where
its communication takes no longer than its compute, pass by pass. That the answers equal the textbook's formulas
(`F / (C/W)` ways, `C/W` tokens) is a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from commcalc.accounting.choices import Clock, Combine, States
from commcalc.accounting.compute import lacking_sizes
from commcalc.accounting.ledger import build
from commcalc.accounting.memory import fullest, memory_of
from commcalc.accounting.overlap import Window
from commcalc.accounting.pricing import priced_alone
from commcalc.accounting.step import Machine, Timer
from commcalc.algebra.collective import Convention
from commcalc.errors import CommcalcError, IllegalDegree, SpecError
from commcalc.transformer.limits import largest_degree, legal_degrees, limits
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Parallelism, Workload

# Sequences of a microbatch beyond which no batch is looked for.
MOST_SEQUENCES = 1 << 26
# Times that differ by less are equal: floats of the same formula.
_EQUAL = 1 + 1e-9


class Pass(StrEnum):
    """Which passes must be bound by compute."""

    FORWARD = "forward"
    BACKWARD = "backward"
    ALL = "all"


class Question(NamedTuple):
    """What is asked of: everything but what is looked for. ``microbatches`` are run in a step, whatever their size."""

    model: Model
    parallel: Parallelism
    work: Workload
    convention: Convention
    machine: Machine
    states: States
    clock: Clock
    sublayers: tuple[str, ...] = ()
    passes: Pass = Pass.ALL
    microbatches: int = 1


class Point(NamedTuple):
    """One candidate: seconds of compute and communication of each pass, or why it is not legal.

    ``total_bytes`` and ``fits`` are None where some sublayers alone are looked at, or the memory is not known.
    """

    parallel: Parallelism
    micro_batch: int
    passes: tuple[tuple[str, float, float], ...] = ()
    compute_bound: bool = False
    reason: str | None = None
    total_bytes: int | None = None
    fits: bool | None = None

    @property
    def legal(self) -> bool:
        """Whether it can be run at all."""
        return self.reason is None

    @property
    def compute_s(self) -> float:
        """Of all passes that were asked about."""
        return sum(compute for _, compute, _ in self.passes)

    @property
    def comm_s(self) -> float:
        """Of all passes that were asked about."""
        return sum(comm for _, _, comm in self.passes)

    @property
    def ratio(self) -> float | None:
        """Communication over compute, of the pass where it is largest; None where nothing is computed."""
        return max((comm / compute for _, compute, comm in self.passes if compute), default=None)

    def tokens_per_device(self, work: Workload) -> float:
        """Tokens of a microbatch over the devices that share it."""
        parallel = self.parallel
        return self.micro_batch * work.tokens_per_sequence / (parallel.tp * parallel.cp)


def examine(question: Question, parallel: Parallelism, micro_batch: int) -> Point:
    """One candidate, priced; a degree that is not legal is told with its reason."""
    batch = micro_batch * parallel.dp * question.microbatches
    work = question.work._replace(micro_batch_size=micro_batch, global_batch_size=batch)
    try:
        ledger = build(question.model, parallel, work, question.convention, sublayers=question.sublayers)
        lacking = lacking_sizes(ledger)
        if lacking:
            message = f"the model does not give {', '.join(lacking)}, needed for what is computed"
            raise SpecError(message, where=f"model {question.model.name}", hint="--set model.KEY=N")
        priced = priced_alone(ledger, question.machine.network, question.machine.algorithm)
    except CommcalcError as problem:
        if not all(isinstance(one, IllegalDegree) for one in problem.problems):
            raise
        return Point(parallel, micro_batch, reason="; ".join(one.message for one in problem.problems))
    windows = Timer.of(priced, question.machine, question.clock, question.states).windows()
    asked = {name: window for name, window in windows.items() if question.passes in (Pass.ALL, name)}
    taken = tuple((name, window.compute_s, _together(window, question.clock.combine)) for name, window in asked.items())
    total, fits = None, None
    if not question.sublayers:
        held = fullest(memory_of(priced.ledger, question.states, question.machine.chip.hbm_bytes))
        total, fits = held.total, held.fits
    bound = all(comm <= compute * _EQUAL for _, compute, comm in taken)
    return Point(parallel, micro_batch, taken, bound, None, total, fits)


def _together(window: Window, combine: Combine) -> float:
    """Seconds that all groups communicate: one after another, or all at once."""
    if combine is Combine.ADDED:
        return window.total_comm_s
    return max(window.comm_s.values(), default=0.0)


def degrees(question: Question, asked: Sequence[int] | None = None) -> list[Point]:
    """Every legal TP degree, or those asked for, at the micro-batch of the question."""
    rules = limits(question.model, question.parallel, question.work)
    found = legal_degrees(rules, largest_degree(rules)) if asked is None else list(asked)
    batch = question.work.micro_batch_size
    return [examine(question, question.parallel._replace(tp=tp, devices=None), batch) for tp in found]


def answers(points: Sequence[Point], states: States) -> list[Point]:
    """The candidates that are bound by compute, and where that is demanded fit."""
    return [point for point in points if point.compute_bound and (point.fits is not False or not states.must_fit)]


def largest(points: Sequence[Point], states: States) -> Point | None:
    """The largest legal degree that is bound by compute."""
    return max(answers(points, states), key=lambda one: one.parallel.tp, default=None)


def smallest_batch(question: Question, parallel: Parallelism) -> Point:
    """The smallest micro-batch at which the degrees are bound by compute; a micro-batch of one where none is."""

    def at(batch: int) -> Point:
        return examine(question, parallel, batch)

    first = at(1)
    if not first.legal or first.compute_bound:
        return first
    return _bisected(at, first)


def _bisected(at: Callable[[int], Point], first: Point) -> Point:
    low, point = first.micro_batch, first
    high = low
    while not point.compute_bound:
        if high >= MOST_SEQUENCES:
            return first
        low, high = high, high * 4
        point = at(high)
    while high - low > 1:
        middle = (low + high) // 2
        tried = at(middle)
        if tried.compute_bound:
            high, point = middle, tried
        else:
            low = middle
    return point


def mixes(question: Question, devices: int) -> Iterator[Point]:
    """For every split of the devices into dp and a legal tp, the smallest batch that is bound by compute."""
    cp, pp = question.parallel.cp, question.parallel.pp
    if devices % (cp * pp):
        message = f"{devices} devices mod {cp * pp} (cp {cp} x pp {pp}) = {devices % (cp * pp)}"
        raise IllegalDegree(message, where=f"parallelism.devices (--devices {devices})", hint="a multiple of cp x pp")
    rules = limits(question.model, question.parallel, question.work)
    for tp in legal_degrees(rules, devices):
        if devices % (tp * cp * pp) == 0:
            dp = devices // (tp * cp * pp)
            zero = question.parallel.zero if dp * cp > 1 else 0
            yield smallest_batch(question, question.parallel._replace(tp=tp, dp=dp, zero=zero, devices=None))


def best_mix(points: Sequence[Point], work: Workload, states: States) -> Point | None:
    """The split that is bound by compute from the fewest tokens on a device; the smaller TP of equals."""
    return min(answers(points, states), key=lambda one: (one.tokens_per_device(work), one.parallel.tp), default=None)
