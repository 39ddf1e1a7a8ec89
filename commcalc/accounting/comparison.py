"""Layouts and degrees side by side: one candidate priced as any ledger, with what a reviewer compares."""

from typing import NamedTuple

from commcalc.accounting.choices import Chip, Clock, States
from commcalc.accounting.ledger import Ledger, build
from commcalc.accounting.memory import Memory, fullest
from commcalc.accounting.outlook import Outlook, outlook_of
from commcalc.accounting.pricing import PricedLedger, price_ledger
from commcalc.accounting.rows import Warn
from commcalc.algebra.collective import Convention
from commcalc.errors import CommcalcError
from commcalc.network.cost import Algorithm
from commcalc.network.link import Network
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Parallelism, Workload


class Candidate(NamedTuple):
    """One combination: the question, and the names of model and machine in it."""

    model: Model
    hardware: str | None
    parallel: Parallelism
    work: Workload
    convention: Convention
    network: Network | None
    chip: Chip
    algorithm: Algorithm
    states: States
    clock: Clock


class Compared(NamedTuple):
    """A candidate with its answer; ``problem`` is why there is none."""

    candidate: Candidate
    priced: PricedLedger | None = None
    outlook: Outlook | None = None
    stream_bytes: int | None = None
    problem: CommcalcError | None = None
    # What the question itself takes for granted, and warns of.
    assumptions: tuple[str, ...] = ()
    warnings: tuple[Warn, ...] = ()

    @property
    def reason(self) -> str | None:
        """All that stands against it, in words."""
        if self.problem is None:
            return None
        return "; ".join(dict.fromkeys(found.message for found in self.problem.problems))

    @property
    def memory(self) -> Memory | None:
        """Of the stage that needs most."""
        return fullest(self.outlook.memory) if self.outlook and self.outlook.memory else None

    @property
    def levels(self) -> dict[str, list[str]]:
        """The levels that each group rides on, innermost first; none where nothing is priced."""
        found: dict[str, list[str]] = {}
        if self.priced is None or self.candidate.network is None:
            return found
        order = [level.name for level in self.candidate.network.levels]
        for entry in self.priced.entries:
            if entry.priced is None or not self.priced.ledger.times_in_step(entry.row):
                continue
            ridden = found.setdefault(entry.row.group, [])
            ridden += [phase.level for phase in entry.priced.phases] or [entry.priced.level]
        return {group: [name for name in order if name in ridden] for group, ridden in found.items()}

    @property
    def crossing_bytes(self) -> dict[str, int]:
        """Wire bytes of a step, by group, of calls that leave the innermost level."""
        found: dict[str, int] = {}
        if self.priced is None or self.candidate.network is None:
            return found
        inner = self.candidate.network.levels[0].name
        for entry in self.priced.entries:
            times = self.priced.ledger.times_in_step(entry.row)
            if entry.priced is None or not times:
                continue
            ridden = {phase.level for phase in entry.priced.phases} or {entry.priced.level}
            if ridden != {inner}:
                found[entry.row.group] = found.get(entry.row.group, 0) + entry.row.wire_bytes * times
        return found


def compare(candidate: Candidate) -> Compared:
    """Price one combination; one that has no answer is told with all that stands against it."""
    one = candidate
    try:
        ledger = build(one.model, one.parallel, one.work, one.convention)
        priced = price_ledger(ledger, one.network, one.algorithm)
        outlook = outlook_of(priced, one.chip, one.network, one.algorithm, one.states, one.clock)
    except CommcalcError as problem:
        return Compared(one, problem=problem)
    return Compared(one, priced, outlook, stream_bytes(ledger))


def stream_bytes(ledger: Ledger) -> int:
    """The hidden state between blocks that one device holds of a microbatch."""
    stream = ledger.layout.stream_of("T", "D")
    return int(ledger.draft.own(stream.local_size(ledger.work.dtype.bits)).value(ledger.sizes))
