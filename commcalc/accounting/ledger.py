"""The ledger: one row per collective of a model under a layout, and what a block, a stage and a step add up to.

Rows are derived (`algebra.derive`) from programs: the embedding, one block of each kind, the head with its loss. A
row's payload is of one call; ``calls`` is how often it happens ``per`` block, microbatch or step.
"""

from collections.abc import Iterable
from typing import NamedTuple

from commcalc.accounting.assumptions import assumptions_of, warnings_of
from commcalc.accounting.programs import EMBEDDING, HEAD, Programs, programs_of, repeated, stages_of
from commcalc.accounting.rows import Row, Stage, Warn
from commcalc.algebra.collective import Convention, Kind, wire_bytes
from commcalc.algebra.notation import format_tensor
from commcalc.algebra.program import Role
from commcalc.algebra.schedule import BACKWARD, FORWARD, Derivation, Event
from commcalc.algebra.sharding import Sharding
from commcalc.algebra.size import Product, Size, total
from commcalc.errors import CommcalcError, IllegalDegree, SpecError, UsageError, raise_all
from commcalc.transformer.frameworks import refusals
from commcalc.transformer.layout import Layout, LayoutName
from commcalc.transformer.limits import violations
from commcalc.transformer.spec import Model, key_of
from commcalc.transformer.work import Parallelism, Workload, program_sizes
from commcalc.units import Dtype

GROUPS = ("tp", "cp", "ep", "dp", "pp")
RECOMPUTE, UPDATE = "recompute", "update"
MOST_STAGES = 4096


class Ledger(NamedTuple):
    """All rows, with what they were derived from.

    ``rows`` holds the rows of each kind of block once, those of embedding and head, and the update rows of ``stage``,
    whose step is counted: the busiest. ``sizes`` maps every name in the formulas to its number.
    """

    model: Model
    parallel: Parallelism
    work: Workload
    convention: Convention
    programs: Programs
    sizes: dict[str, int]
    rows: tuple[Row, ...]
    stage: Stage
    stages: tuple[Stage, ...]
    microbatches: int
    assumptions: tuple[str, ...]
    warnings: tuple[Warn, ...]

    @property
    def layout(self) -> Layout:
        """How dimensions lie on the mesh."""
        return self.programs.layout

    @property
    def derivations(self) -> dict[str, Derivation]:
        """The schedule of every program."""
        return self.programs.derivations

    @property
    def sections(self) -> tuple[tuple[str, str], ...]:
        """Program and sublayer of the rows, in the order the forward pass meets them."""
        met = [(name, op.sublayer) for name, one in self.derivations.items() for op in one.program.ops]
        known = dict.fromkeys([*met, *((row.part, row.sublayer) for row in self.rows)])
        there = {(row.part, row.sublayer) for row in self.rows}
        return tuple(section for section in known if section in there)

    @property
    def dtypes(self) -> dict[Role, Dtype]:
        """The element type in which tensors of each role are sent."""
        return _dtypes(self.work)

    @property
    def usual(self) -> str:
        """The kind of block that most layers are of."""
        return self.programs.layers.usual

    def times_in_step(self, row: Row, stage: Stage | None = None) -> int:
        """How often ``row`` happens in a step on one device of ``stage`` (the busiest by default)."""
        at = self.stage if stage is None else stage
        if row.per == "step":
            return row.calls
        return row.calls * at.times[row.part] * self.microbatches


def build(
    model: Model,
    parallel: Parallelism,
    work: Workload,
    convention: Convention = Convention.EXACT,
    stage: int | None = None,
) -> Ledger:
    """Derive the ledger; its step is that of ``stage``, by default the one that sends most bytes.

    Raises `IllegalDegree` (all violations together) where a degree does not divide, `SpecError` where a size that is
    needed was not given, `UsageError` for groups that have no ledger yet.
    """
    warnings: list[Warn] = []
    parallel = _without_idle_sp(parallel, warnings)
    raise_all(
        [
            *_unpriced(model),
            *_not_priced(parallel),
            *refusals(model, parallel, work),
            *violations(model, parallel, work),
            *_stages_fit(model, parallel),
            *_predictable(model, work),
            *work.uneven_batch(parallel.dp),
        ]
    )
    raise_all(_missing(model))  # of a question that has an answer
    microbatches = work.microbatches(parallel.dp)
    programs = programs_of(model, parallel, work)
    sizes = program_sizes(model, work, parallel) | programs.layout.mesh.sizes
    raise_all(_missing_sizes(programs.derivations, sizes))
    draft = _Draft(work, convention, programs, sizes)
    rows = draft.rows()
    stages = stages_of(model, parallel, programs, work.predict_layers)
    most_bytes = max(stages, key=lambda one: (draft.sent(rows, one, microbatches), -one.number))
    busiest = most_bytes if stage is None else stages[stage]
    rows += draft.updates(busiest)
    warnings += warnings_of(model, parallel, work, programs)
    said = tuple(assumptions_of(model, parallel, work, convention, busiest, stages, programs))
    return Ledger(
        model, parallel, work, convention, programs, sizes, tuple(rows), busiest, stages, microbatches, said,
        tuple(warnings),
    )  # fmt: skip


def update_rows(ledger: Ledger, stage: Stage) -> list[Row]:
    """The rows that another stage has once per step."""
    if not ledger.work.phase.training:
        return []
    return _Draft(ledger.work, ledger.convention, ledger.programs, ledger.sizes).updates(stage)


class _Draft:
    """Turns events into rows."""

    def __init__(self, work: Workload, convention: Convention, programs: Programs, sizes: dict[str, int]) -> None:
        self.work = work
        self.convention = convention
        self.programs = programs
        self.sizes = sizes
        self.dtypes = _dtypes(work)

    def rows(self) -> list[Row]:
        """The rows of every program in the order they run: embedding, blocks, head forward; then backward."""
        derivations = self.programs.derivations
        rows = [self._event(name, FORWARD, e) for name, one in derivations.items() for e in one.steps(FORWARD)]
        for name in reversed(derivations):
            again, why = repeated(name, derivations[name], self.programs.dialect, self.work)
            rows += [self._event(name, RECOMPUTE, event, why) for event in again]
            rows += [self._event(name, BACKWARD, event) for event in derivations[name].steps(BACKWARD)]
        return [row for row in rows if row.group_size > 1]

    def updates(self, stage: Stage) -> list[Row]:
        """One coalesced AllReduce per group for the gradients of replicated parameters, once per step.

        Source: Megatron-LM core/distributed/finalize_model_grads.py, _allreduce_non_tensor_model_parallel_grads.
        """
        groups: dict[tuple[str, ...], list[tuple[str, Size]]] = {}
        bits = self.work.grad_dtype.bits
        for name, derivation in self.programs.derivations.items():
            # Embedding and head hold their weights once, however often they run.
            times = min(stage.times[name], 1) if name in (EMBEDDING, HEAD) else stage.times[name]
            for weight, grad in derivation.pending:
                if times:
                    held = grad.local_elements()
                    size = Size((Product(times, held.dims, held.axes),), bits)
                    groups.setdefault(grad.unreduced, []).append((weight, size))
        rows = []
        for axes, members in groups.items():
            names = ", ".join(sorted({f"d{weight}" for weight, _ in members}))
            payload = total(size for _, size in members)
            note = "gradients of parameters that the ranks of the group hold alike, in one call"
            row = self._row(
                "all", UPDATE, "replicated parameters", "gradient_sync", Kind.ALL_REDUCE, axes, names,
                Role.GRADIENT, payload, "step", note,
            )  # fmt: skip
            rows.append(row)
        return [row for row in rows if row.group_size > 1]

    def sent(self, rows: Iterable[Row], stage: Stage, microbatches: int) -> int:
        """Wire bytes of a stage in a step, to find the busiest."""
        once = sum(row.wire_bytes * row.calls for row in self.updates(stage)) if self.work.phase.training else 0
        return sum(row.wire_bytes * row.calls * stage.times[row.part] for row in rows) * microbatches + once

    def _event(self, part: str, direction: str, event: Event, note: str = "") -> Row:
        step = event.step
        payload = step.payload(self.dtypes[event.role].bits)
        per = "block" if part in self.programs.blocks else "microbatch"
        return self._row(
            part, direction, event.sublayer, event.label, step.kind, step.axes,
            self.notation(event.tensor, step.before), event.role, payload, per, note or event.note,
        )  # fmt: skip

    def _row(
        self,
        part: str,
        direction: str,
        sublayer: str,
        op: str,
        kind: Kind,
        axes: tuple[str, ...],
        tensor: str,
        role: Role,
        payload: Size,
        per: str,
        note: str,
    ) -> Row:
        mesh = self.programs.layout.mesh
        n = mesh.size(axes)
        count = payload.value(self.sizes)
        return Row(
            part, direction, sublayer, op, kind, mesh.owner(axes[0]), n, axes, tensor, role, self.dtypes[role],
            payload, count, wire_bytes(kind, count, n, self.convention), 1, per, note,
        )  # fmt: skip

    def notation(self, name: str, sharding: Sharding) -> str:
        return format_tensor(name, sharding, self.programs.layout.mesh)


def _dtypes(work: Workload) -> dict[Role, Dtype]:
    narrow = {Role.MASK: Dtype.INT8, Role.INDEX: Dtype.INT64}
    activations = {Role.ACTIVATION: work.dtype, Role.WEIGHT: work.dtype}
    return narrow | activations | {Role.GRADIENT: work.grad_dtype, Role.FP32: Dtype.FP32}


def _without_idle_sp(parallel: Parallelism, warnings: list[Warn]) -> Parallelism:
    wants = parallel.sp or parallel.layout is LayoutName.MEGATRON_SP
    if wants and parallel.tp == 1:
        message = "sequence parallelism needs tp above 1: switched off"
        warnings.append(Warn("sp-without-tp", message))
        return parallel._replace(sp=False, layout=LayoutName.MEGATRON)
    if parallel.sp and parallel.layout is LayoutName.MEGATRON:
        return parallel._replace(layout=LayoutName.MEGATRON_SP)
    if parallel.sp and parallel.layout is LayoutName.NONE:
        raise UsageError("layout none splits nothing, so it has no sequence parallelism", where="--layout none --sp")
    return parallel._replace(sp=wants)


def _not_priced(parallel: Parallelism) -> list[CommcalcError]:
    """Degrees that would add groups which have no ledger: refused, since an answer without them would be wrong."""
    found: list[CommcalcError] = []
    for name, title in (("cp", "context"), ("ep", "expert")):
        value = getattr(parallel, name)
        if value > 1:
            message = f"{title} parallelism has no ledger yet: {name} {value}"
            found.append(UsageError(message, where=f"parallelism.{name} (--{name})", hint=f"leave {name} at 1"))
    if parallel.zero:
        where, hint = "parallelism.zero (--zero)", "leave zero at 0"
        found.append(
            UsageError(f"sharded optimizer states have no ledger yet: zero {parallel.zero}", where=where, hint=hint)
        )
    return found


def _unpriced(model: Model) -> list[CommcalcError]:
    """Parts of the architecture without which the answer would be wrong: read and counted, but not derived yet."""
    where = f"model {model.name}"
    hint = "commcalc presets show prints what was read of it"
    return [
        UsageError(f"the ledger cannot price this yet: {part}", where=where, hint=hint) for part in model.unpriced()
    ]


def _missing(model: Model) -> list[CommcalcError]:
    """The sizes without which nothing can be counted."""
    found: list[CommcalcError] = []
    for key, purpose in (("hidden_size", "every payload"), ("num_hidden_layers", "a stage and a step")):
        try:
            model.need(key, purpose)
        except CommcalcError as problem:
            found.append(problem)
    return found


def _missing_sizes(derivations: dict[str, Derivation], sizes: dict[str, int]) -> list[CommcalcError]:
    """The model's sizes that the payload of some row depends on, and that it does not give."""
    held = [grad for derivation in derivations.values() for _, grad in derivation.pending]
    for derivation in derivations.values():
        held += [event.step.before for direction in (FORWARD, BACKWARD) for event in derivation.steps(direction)]
    missing = {dim for sharding in held for dim in sharding.dims} - sizes.keys()
    return [
        SpecError(
            f"the model does not give {key}, needed for the sizes of the rows",
            where=f"model.{key}",
            hint=f"add {key} to the model, or --set model.{key}=N",
        )
        for key in dict.fromkeys(key_of(dim) for dim in sorted(missing))
    ]


def _stages_fit(model: Model, parallel: Parallelism) -> list[CommcalcError]:
    if parallel.pp > MOST_STAGES:
        where = f"parallelism.pp (--pp {parallel.pp})"
        return [UsageError(f"{parallel.pp} pipeline stages; at most {MOST_STAGES} are counted", where=where)]
    layers = model.num_hidden_layers
    if layers is None or parallel.pp <= layers:
        return []
    return [
        IllegalDegree(
            f"{layers} layers do not fill {parallel.pp} pipeline stages",
            where=f"parallelism.pp (--pp {parallel.pp})",
            hint=f"at most {layers} stages",
        )
    ]


def _predictable(model: Model, work: Workload) -> list[CommcalcError]:
    """Prediction layers are those that the model has, and run in training with embedding and head."""
    asked, where = work.predict_layers, f"workload.predict_layers (--predict-layers {work.predict_layers})"
    if not asked:
        return []
    if not work.phase.training:
        message = f"prediction layers are counted in training only, not in {work.phase}"
        return [UsageError(message, where=where, hint="leave it out, or --phase train")]
    if asked > model.num_nextn_predict_layers:
        message = f"{asked} prediction layers, {model.name} has {model.num_nextn_predict_layers}"
        return [UsageError(message, where=where, hint="--set model.num_nextn_predict_layers=N")]
    return []
