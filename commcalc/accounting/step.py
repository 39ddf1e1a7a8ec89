"""The step: compute, what of communication is exposed, the bubble; and from these tokens per second and MFU.

    step = microbatches * (compute + exposed) * (1 + bubble) + exposed once a step

of the slowest stage; without a backward pass, all microbatches on it and one of them on every other. Compute is FLOPs
over peak times efficiency; a pass over weights outside of training takes no less than reading them. MFU: Chowdhery et
al. 2022, arXiv:2204.02311, appendix B (FLOPs of the model over those of the machine, whatever is computed again). The
bubble is that of `accounting.pipeline`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from commcalc.accounting.choices import Chip, Clock, States
from commcalc.accounting.compute import Computed, Flops, computed, layers_held, usual_attention
from commcalc.accounting.holdings import cache_bytes, read_in_decoding
from commcalc.accounting.ledger import Ledger
from commcalc.accounting.overlap import Exposed, Window, expose
from commcalc.accounting.pricing import Entry, PricedLedger, stage_entries
from commcalc.accounting.rows import AXES, GROUPS, Stage
from commcalc.algebra.schedule import BACKWARD, FORWARD
from commcalc.network.cost import Algorithm, added
from commcalc.network.link import Network
from commcalc.transformer.layers import Attention
from commcalc.transformer.spec import Phase

# Windows of a step: one microbatch forward, one backward with what runs again, and once at the end.
_ONCE = "once"


class StageTime(NamedTuple):
    """Seconds of one stage: of one microbatch, and of what it does once a step."""

    stage: int
    forward_s: float
    backward_s: float
    recompute_s: float
    # Communication of a microbatch and of the end of a step, and what is exposed of each; by group too.
    comm_s: float
    exposed_s: float
    once_comm_s: float
    once_exposed_s: float
    comm: Mapping[str, float]
    exposed: Mapping[str, float]
    once_exposed: Mapping[str, float]

    @property
    def exposed_share(self) -> float:
        """What of the time of a microbatch is communication that nothing hides."""
        whole = self.compute_s + self.exposed_s
        return self.exposed_s / whole if whole else 0.0

    @property
    def compute_s(self) -> float:
        """Of one microbatch."""
        return self.forward_s + self.backward_s + self.recompute_s

    def step_s(self, microbatches: int, idle: float) -> float:
        """Seconds of a step in which every stage takes as long."""
        return microbatches * (self.compute_s + self.exposed_s) * (1 + idle) + self.once_exposed_s


class Decode(NamedTuple):
    """One token of each sequence, on all stages one after another: what its time is spent on."""

    weights_s: float
    kv_s: float
    flops_s: float
    fixed_s: float
    bytes_s: float
    calls: int
    # What of the calls runs beside reading and computing.
    hidden_s: float

    @property
    def time_s(self) -> float:
        """Seconds for the token: reading and computing, then every call that nothing hides."""
        return self.weights_s + self.kv_s + self.flops_s + self.fixed_s + self.bytes_s - self.hidden_s


class Step(NamedTuple):
    """A step with what it is made of; ``stages`` in order, ``slowest`` the one that counts."""

    stages: tuple[StageTime, ...]
    slowest: StageTime
    microbatches: int
    idle: float
    time_s: float
    serial_s: float
    overlapped_s: float
    tokens: int
    devices: int
    model_flops: int
    flops: int
    peak: float
    block: StageTime
    block_flops: int
    # FLOPs of the slowest stage for a microbatch, and the rate that compute is taken to reach.
    stage_flops: Flops
    rate: float
    decode: Decode | None
    train_tokens: int | None

    @property
    def bubble_s(self) -> float:
        """Seconds that the slowest stage waits for others."""
        one = self.slowest
        if not self.idle:
            return 0.0
        return self.time_s - self.microbatches * (one.compute_s + one.exposed_s) - one.once_exposed_s

    @property
    def comm_s(self) -> float:
        """Seconds that the slowest stage communicates, hidden or not."""
        return self.microbatches * self.slowest.comm_s + self.slowest.once_comm_s

    @property
    def exposed_s(self) -> float:
        """Seconds of it that nothing hides."""
        return self.microbatches * self.slowest.exposed_s + self.slowest.once_exposed_s

    @property
    def exposed(self) -> dict[str, float]:
        """The same by group."""
        slowest = self.slowest
        return {
            group: self.microbatches * seconds + slowest.once_exposed[group]
            for group, seconds in slowest.exposed.items()
        }

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all devices together."""
        return self.tokens / self.time_s

    @property
    def mfu(self) -> float:
        """FLOPs of the model over those of all devices at their peak."""
        return _share(self.model_flops / (self.time_s * self.devices * self.peak))

    @property
    def hfu(self) -> float:
        """The same with all FLOPs that are made, those that run again too."""
        return _share(self.flops / (self.time_s * self.devices * self.peak))

    @property
    def train_s(self) -> float | None:
        """Seconds of a run of ``train_tokens``."""
        return None if self.train_tokens is None else self.train_tokens / self.tokens_per_s


def _share(found: float) -> float:
    """A share that rounding put above 1 is 1."""
    return 1.0 if 1 < found < 1 + 1e-12 else found


class Machine(NamedTuple):
    """Chip, network and algorithm that a ledger was priced on."""

    chip: Chip
    network: Network
    algorithm: Algorithm


def step_of(priced: PricedLedger, machine: Machine, clock: Clock, states: States) -> Step | None:
    """The step of a priced ledger; None where the chip does not say how fast it is (`can_time`)."""
    return Timer.of(priced, machine, clock, states).step() if can_time(priced, machine.chip) else None


def can_time(priced: PricedLedger, chip: Chip) -> bool:
    """Whether all is known that a step needs."""
    work = priced.ledger.work
    return work.dtype in chip.flops and (work.phase is not Phase.DECODE or chip.hbm_bytes_per_s is not None)


class Timer(NamedTuple):
    """What times a step: the ledger, FLOPs of its programs, and rates."""

    priced: PricedLedger
    machine: Machine
    clock: Clock
    states: States
    found: Computed
    rate: float

    @classmethod
    def of(cls, priced: PricedLedger, machine: Machine, clock: Clock, states: States) -> "Timer":
        """The timer of a ledger on a machine that says how fast it is (`can_time`)."""
        peak = machine.chip.flops[priced.ledger.work.dtype]
        return cls(
            priced, machine, clock, states, computed(priced.ledger, clock.scores), peak * float(clock.efficiency)
        )

    def step(self) -> Step:
        """The step of the slowest stage."""
        ledger = self.priced.ledger
        m, devices = ledger.microbatches, ledger.parallel.mesh.devices
        idle = _idle(ledger) if ledger.parallel.pp > 1 else 0.0
        entries = {stage.number: self._entries(stage) for stage in ledger.stages}
        # Stages that hold the same take equally long.
        keys = [(tuple(stage.times.items()), tuple(layers_held(ledger, stage).items())) for stage in ledger.stages]
        first = dict(reversed(list(zip(keys, ledger.stages, strict=True))))
        alike = {key: self.stage(stage, entries[stage.number], self.clock.overlap) for key, stage in first.items()}
        stages = [alike[key]._replace(stage=at) for at, key in enumerate(keys)]
        bounds = []
        for overlap in ((), AXES):
            each = {key: self.stage(stage, entries[stage.number], overlap) for key, stage in first.items()}
            bounds.append(self._whole([each[key] for key in keys], idle))
        slowest = max(stages, key=lambda one: (one.step_s(m, idle), -one.stage))
        flops = [self.found.stage(ledger, stage) for stage in ledger.stages]
        rounds = m // ledger.stage.ends
        at = next(stage for stage in ledger.stages if stage.number == slowest.stage)
        passes = 3 if ledger.work.phase.training else 1
        shared = devices // ledger.parallel.pp
        return Step(
            stages=tuple(stages), slowest=slowest, microbatches=m, idle=idle, time_s=self._whole(stages, idle),
            serial_s=bounds[0], overlapped_s=bounds[1],
            tokens=ledger.work.global_batch_size * ledger.work.tokens_per_sequence, devices=devices,
            model_flops=passes * rounds * ledger.parallel.dp * sum(one.model for one in flops),
            flops=rounds * shared * sum(one.total for one in flops), peak=self.machine.chip.flops[ledger.work.dtype],
            block=self.block(), block_flops=self.found.block(ledger.usual, usual_attention(ledger)).total,
            stage_flops=Flops(*(count // at.ends for count in self.found.stage(ledger, at))), rate=self.rate,
            decode=self.decode(entries, stages) if ledger.work.phase is Phase.DECODE else None,
            train_tokens=self.clock.train_tokens if ledger.work.phase.training else None,
        )  # fmt: skip

    def _whole(self, stages: Sequence[StageTime], idle: float) -> float:
        """Seconds of a step: of the slowest stage and its bubble; without a backward pass, until all are done."""
        m = self.priced.ledger.microbatches
        if self.priced.ledger.work.phase.training:
            return max(one.step_s(m, idle) for one in stages)
        each = [one.compute_s + one.exposed_s for one in stages]
        seconds: float = (m - 1) * max(each) + added(each)
        return seconds

    def _entries(self, stage: Stage) -> Sequence[Entry]:
        return stage_entries(self.priced, stage, self.machine.network, self.machine.algorithm)

    def stage(self, stage: Stage, entries: Sequence[Entry], overlap: Sequence[str]) -> StageTime:
        """A stage under an overlap."""
        return _stage_time(stage.number, self._seconds(stage), self.comm(stage, entries), overlap, self.clock)

    def comm(self, stage: Stage, entries: Sequence[Entry]) -> dict[str, dict[str, float]]:
        """Seconds of each group in each window: a microbatch forward, backward, and once a step."""
        ledger = self.priced.ledger
        comm: dict[str, dict[str, float]] = {name: dict.fromkeys(GROUPS, 0.0) for name in (FORWARD, BACKWARD, _ONCE)}
        for entry in entries:
            row = entry.row
            times = ledger.times_in_step(row, stage)
            if not times:
                continue
            once = row.per in ("step", "layer")
            window = _ONCE if once else FORWARD if row.direction == FORWARD else BACKWARD
            seconds = entry.time_s * times / (1 if once else ledger.microbatches)
            comm[window][row.group] += seconds
        return comm

    def windows(self) -> dict[str, Window]:
        """Compute and communication of the ledger's stage by pass; what comes once a step is of the backward one."""
        stage = self.priced.ledger.stage
        forward_s, backward_s, again_s = self._seconds(stage)
        comm = self.comm(stage, self.priced.entries)
        late = {group: comm[BACKWARD][group] + comm[_ONCE][group] for group in comm[BACKWARD]}
        return {FORWARD: Window(forward_s, comm[FORWARD]), BACKWARD: Window(backward_s + again_s, late)}

    def block(self) -> StageTime:
        """One layer of the usual kind."""
        ledger = self.priced.ledger
        flops = self.found.block(ledger.usual, usual_attention(ledger))
        comm: dict[str, dict[str, float]] = {name: dict.fromkeys(GROUPS, 0.0) for name in (FORWARD, BACKWARD, _ONCE)}
        for entry in self.priced.entries:
            if entry.row.part == ledger.usual and entry.row.per == "block":
                window = FORWARD if entry.row.direction == FORWARD else BACKWARD
                comm[window][entry.row.group] += entry.time_s * entry.row.calls
        seconds = (flops.forward / self.rate, flops.backward / self.rate, flops.recompute / self.rate)
        if not ledger.work.phase.training:
            one = Stage(0, 1, dict.fromkeys(ledger.stage.times, 0) | {ledger.usual: 1})
            pairs = sum(part.forward for part in self.found.parts[ledger.usual].pairs.values())
            attention = pairs * self.found.pairs[usual_attention(ledger)]
            layers = {(ledger.usual, usual_attention(ledger)): 1}
            seconds = (added(self._inference(one, layers, flops.forward, attention)), 0.0, 0.0)
        return _stage_time(ledger.stage.number, seconds, comm, self.clock.overlap, self.clock)

    def _seconds(self, stage: Stage) -> tuple[float, float, float]:
        """Compute of a microbatch: forward, backward, and what runs again."""
        ledger = self.priced.ledger
        if not ledger.work.phase.training:
            return added(self._reading(stage)), 0.0, 0.0
        flops, rate = self.found.stage(ledger, stage), self.rate * stage.ends
        return flops.forward / rate, flops.backward / rate, flops.recompute / rate

    def _reading(self, stage: Stage) -> tuple[float, float, float]:
        """What inference waits for on a stage: weights, keys and values (in decoding), and compute beyond that."""
        ledger = self.priced.ledger
        whole, attention = self.found.stage(ledger, stage).forward, self.found.attention(ledger, stage).forward
        found = self._inference(stage, layers_held(ledger, stage), whole, attention)
        return found[0] / stage.ends, found[1] / stage.ends, found[2] / stage.ends

    def _inference(
        self, stage: Stage, layers: Mapping[tuple[str, Attention], int], flops: int, attention: int
    ) -> tuple[float, float, float]:
        """The same of some layers: products wait for their weights, attention for keys and values."""
        ledger = self.priced.ledger
        draft = ledger.draft
        rate = (self.machine.chip.hbm_bytes_per_s or float("inf")) * float(self.clock.hbm_efficiency)
        weights, cache = read_in_decoding(draft, stage, self.states) / rate, 0.0
        if ledger.work.phase is Phase.DECODE:
            cache = cache_bytes(draft, dict(layers), self.states) / ledger.microbatches / rate
        beyond = max((flops - attention) / self.rate - weights, 0.0) + max(attention / self.rate - cache, 0.0)
        return weights, cache, beyond

    def decode(self, entries: Mapping[int, Sequence[Entry]], stages: Sequence[StageTime]) -> Decode:
        """One token through all stages."""
        ledger = self.priced.ledger
        read = [0.0, 0.0, 0.0]
        fixed = sent = 0.0
        calls = 0.0
        for stage in ledger.stages:
            for at, seconds in enumerate(self._reading(stage)):
                read[at] += seconds
            for entry in entries[stage.number]:
                times = ledger.times_in_step(entry.row, stage) / ledger.microbatches
                if times and entry.priced is not None:
                    latency, _ = entry.priced.cost.counted
                    fixed += latency * times
                    sent += (entry.time_s - latency) * times
                    calls += times
        hidden = added(one.comm_s - one.exposed_s for one in stages)
        return Decode(read[0], read[1], read[2], fixed, sent, round(calls), hidden)


def _idle(ledger: Ledger) -> float:
    """The bubble, of a pipeline."""
    from commcalc.accounting.pipeline import bubble

    of_one = bubble(ledger.parallel, 1, training=ledger.work.phase.training)
    return of_one.numerator / (of_one.denominator * ledger.microbatches)


def _stage_time(
    number: int,
    seconds: tuple[float, float, float],
    comm: Mapping[str, Mapping[str, float]],
    overlap: Sequence[str],
    clock: Clock,
) -> StageTime:
    """A stage whose passes take so long, with what its groups communicate in each window."""
    forward_s, backward_s, again_s = seconds
    parts: dict[str, Exposed] = {
        FORWARD: expose(Window(forward_s, comm[FORWARD]), overlap, clock.combine),
        BACKWARD: expose(Window(backward_s + again_s, comm[BACKWARD]), overlap, clock.combine),
    }
    # What comes once a step runs beside the passes of the last microbatch, as far as these hide nothing else.
    spent = parts[FORWARD].spent_s + parts[BACKWARD].spent_s
    parts[_ONCE] = expose(Window(forward_s + backward_s + again_s, comm[_ONCE]), overlap, clock.combine, spent)
    each = {name: added(window.values()) for name, window in comm.items()}
    groups = [group for group in GROUPS if any(window[group] for window in comm.values())]
    return StageTime(
        number, forward_s, backward_s, again_s, each[FORWARD] + each[BACKWARD],
        parts[FORWARD].total_s + parts[BACKWARD].total_s, each[_ONCE], parts[_ONCE].total_s,
        {group: comm[FORWARD][group] + comm[BACKWARD][group] for group in groups},
        {group: parts[FORWARD].by_group[group] + parts[BACKWARD].by_group[group] for group in groups},
        {group: parts[_ONCE].by_group[group] for group in groups},
    )  # fmt: skip
