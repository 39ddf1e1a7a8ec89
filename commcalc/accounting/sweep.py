"""Many points of a grid at once: those that differ in sizes alone share one run of the ledger.

A `Structure` is a question in which some whole numbers vary from point to point. For a point that no tape serves yet
the ledger is built with these numbers `traced`; the tape then answers for every point that takes the same decisions.
Where a number cannot be traced, the point is answered alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from commcalc.accounting.choices import Chip, Clock, States
from commcalc.accounting.compute import lacking_sizes
from commcalc.accounting.ledger import build
from commcalc.accounting.legality import unfit
from commcalc.accounting.memory import Memory, memory_of, misfits
from commcalc.accounting.overlap import refused
from commcalc.accounting.pricing import PricedLedger, priced_alone, totals_of_stages
from commcalc.accounting.replay import Script
from commcalc.accounting.step import Machine, StageTime, Step, Timer, can_time, step_of
from commcalc.accounting.traced import Tape
from commcalc.algebra.collective import Convention
from commcalc.errors import CommcalcError, IllegalDegree, SpecError, raise_all
from commcalc.network.cost import Algorithm
from commcalc.network.link import Network
from commcalc.transformer.limits import limits
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Parallelism, Workload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Sizes of a model that no rule turns into a number of things: they may vary from point to point of one structure.
SIZES = (
    "hidden_size", "head_dim", "intermediate_size", "vocab_size", "moe_intermediate_size",
    "shared_expert_intermediate_size",
)  # fmt: skip
DEGREES = ("dp",)
WORK = ("sequence_length", "micro_batch_size", "global_batch_size")


class Question(NamedTuple):
    """All that a point is asked with."""

    model: Model
    parallel: Parallelism
    work: Workload
    convention: Convention
    algorithm: Algorithm
    network: Network | None
    chip: Chip
    states: States
    clock: Clock


class Found(NamedTuple):
    """What a point comes to. ``step`` and ``stages`` are there only where they were asked for."""

    priced: PricedLedger
    memory: tuple[Memory, ...] | None
    block: StageTime | None
    step: Step | None
    stages: tuple[dict[str, Any], ...] | None


def found_at(asked: Question, *, whole: bool = False) -> Found:
    """The numbers of one point, as `ledger` has them; raises what it raises. ``whole``: the step and its stages too."""
    raise_all(_illegal(asked))
    ledger = build(asked.model, asked.parallel, asked.work, asked.convention, told=False)
    raise_all(refused(asked.clock.overlap, ledger.parallel, ledger.work))
    priced = priced_alone(ledger, asked.network, asked.algorithm, told=False)
    ledger = priced.ledger
    lacking = lacking_sizes(ledger)
    if lacking:
        if asked.states != States() or asked.clock != Clock():
            raise SpecError(f"memory and step are not counted: the model does not give {', '.join(lacking)}")
        return Found(priced, None, None, None, None)
    memory = memory_of(ledger, asked.states, asked.chip.hbm_bytes)
    raise_all(misfits(memory, asked.states))
    block = step = None
    if asked.network is not None and can_time(priced, asked.chip):
        machine = Machine(asked.chip, asked.network, asked.algorithm)
        if whole:
            step = step_of(priced, machine, asked.clock, asked.states)
        block = step.block if step else Timer.of(priced, machine, asked.clock, asked.states).block()
    stages = totals_of_stages(priced, asked.network, asked.algorithm) if whole else None
    return Found(priced, memory, block, step, stages)


def _illegal(asked: Question) -> Sequence[CommcalcError]:
    """Whether a frequent rule is broken, told shortly: the full account costs more than the answer."""
    model, parallel, work = asked.model, asked.parallel, asked.work
    if work.global_batch_size % (work.micro_batch_size * parallel.dp):
        return [IllegalDegree("the global batch does not split into micro-batches")]
    try:
        rules = limits(model, parallel, work)
    except CommcalcError:
        return []  # `build` says it better
    if any(not rule.allows(parallel.tp) for rule in rules if rule.name != "sequence"):
        return [IllegalDegree(f"tp {parallel.tp} is not legal")]
    return unfit(model, parallel, work)


# Kinds of decisions that are remembered of one structure; points that decide otherwise are answered one by one.
MOST_SCRIPTS = 256
Reader = Callable[[Found], Sequence[object]]


class Structure:
    """A question whose sizes vary; ``read`` takes the wanted numbers out of what is found.

    ``default_batch``: the global batch is what the micro-batch comes to on all data-parallel ranks.
    """

    def __init__(self, asked: Question, read: Reader, columns: int, *, whole: bool, default_batch: bool) -> None:
        self.asked = asked
        self.read = read
        self.columns = columns
        self.whole = whole
        self.default_batch = default_batch
        self.scripts: list[Script] = []
        self.legal: list[bool] = []
        # Points that no script serves are answered one by one.
        self.plain = False

    def answer(self, inputs: Mapping[str, NDArray[np.int64]], count: int) -> tuple[NDArray[np.bool_], list[Any]]:
        """Whether each of ``count`` points is legal, and the columns: an array of each, or one value for all."""
        import numpy as np

        legal = np.zeros(count, dtype=bool)
        columns: list[Any] = [None] * self.columns
        self.plain = False
        left = np.arange(count)
        turn = 0
        while left.size:
            here = inputs if left.size == count else {name: array[left] for name, array in inputs.items()}
            if left.size == 1 or self.plain:
                for place, at in enumerate(left.tolist()):
                    self._alone({name: int(array[place]) for name, array in here.items()}, at, legal, columns)
                break
            fresh = turn == len(self.scripts)
            if fresh:
                self.plain = not (turn < MOST_SCRIPTS and self._record({name: int(at[0]) for name, at in here.items()}))
                if self.plain:
                    continue
            script = self.scripts[turn]
            turn += 1
            served, answers = script.run(here, left.size)
            if not served.any():
                self.plain = fresh  # it does not even answer for its own point
                continue
            chosen = left[served]
            legal[chosen] = self.legal[turn - 1]
            if not self.legal[turn - 1]:
                pass
            elif chosen.size == count:
                columns = answers
            else:
                for at, values in enumerate(answers):
                    columns[at] = put(columns[at], chosen, values, count)
            left = left[~served]
        return legal, columns

    def _alone(self, point: Mapping[str, int], at: int, legal: NDArray[np.bool_], columns: list[Any]) -> None:
        """One point without a tape: for no other it would be of use."""
        import numpy as np

        try:
            answers = self.read(found_at(self.at(point), whole=self.whole))
        except CommcalcError:
            return
        legal[at] = True
        for place, value in enumerate(answers):
            columns[place] = put(columns[place], np.array([at]), value, legal.size)

    def _record(self, point: Mapping[str, int]) -> bool:
        """Whether there is a script now for the points like this one."""
        tape = Tape()
        numbers = {name: tape.variable(name, value) for name, value in point.items()}
        try:
            answers = self.read(found_at(self.at(numbers), whole=self.whole))
            legal = True
        except CommcalcError:
            answers, legal = [None] * self.columns, False
        except (TypeError, AttributeError):  # code that takes plain numbers alone
            return False
        self.scripts.append(Script(tape, answers))
        self.legal.append(legal)
        return True

    def at(self, numbers: Mapping[str, Any]) -> Question:
        """The question with these sizes."""
        sizes = {name: value for name, value in numbers.items() if name in SIZES}
        degrees = {name: value for name, value in numbers.items() if name in DEGREES}
        work = {name: value for name, value in numbers.items() if name in WORK}
        found = self.asked._replace(
            model=self.asked.model._replace(**sizes) if sizes else self.asked.model,
            work=self.asked.work._replace(**work),
            parallel=self.asked.parallel._replace(**degrees) if degrees else self.asked.parallel,
        )
        if self.default_batch:
            batch = found.work.micro_batch_size * found.parallel.dp
            found = found._replace(work=found.work._replace(global_batch_size=batch))
        return found


def put(column: Any, chosen: NDArray[np.int64], values: Any, count: int) -> Any:
    """``values`` (an array or one for all) at the ``chosen`` of ``count`` places of a column.

    A column of numbers has zeros where nothing was put; one that holds None somewhere is of objects.
    """
    import numpy as np

    kinds = {bool: np.dtype(bool), int: np.dtype(np.int64), float: np.dtype(float)}
    kind = getattr(values, "dtype", None) or kinds.get(type(values), np.dtype(object))
    if column is None:
        column = np.zeros(count, dtype=kind) if kind.kind != "O" else np.full(count, None, dtype=object)
    elif column.dtype not in (kind, object):
        column = column.astype(object)
    column[chosen] = values
    return column
