"""The ledger: one row per collective of a model under a layout, and what a block, a stage and a step add up to.

Rows are derived (`algebra.derive`) from three programs: the embedding, one block, the head with its loss. A row's
payload is of one call; ``calls`` is how often it happens ``per`` block, microbatch or step.
"""

from collections.abc import Iterable
from typing import NamedTuple

from commcalc.accounting.assumptions import assumptions_of, warnings_of
from commcalc.accounting.rows import Row, Stage, Warn
from commcalc.algebra.collective import Convention, Kind, wire_bytes
from commcalc.algebra.derive import derive
from commcalc.algebra.notation import format_tensor
from commcalc.algebra.program import Role
from commcalc.algebra.schedule import BACKWARD, FORWARD, Derivation, Event
from commcalc.algebra.sharding import Sharding
from commcalc.algebra.size import Product, Size, total
from commcalc.errors import CommcalcError, IllegalDegree, SpecError, UsageError, raise_all
from commcalc.transformer.block import block_program
from commcalc.transformer.embedding import embedding_program, head_program
from commcalc.transformer.layout import Layout, LayoutName, lay_out
from commcalc.transformer.limits import violations
from commcalc.transformer.spec import KEY_OF_DIM, Model
from commcalc.transformer.work import Framework, Parallelism, Recompute, Workload, program_sizes
from commcalc.units import Dtype

GROUPS = ("tp", "cp", "ep", "dp", "pp")
RECOMPUTE, UPDATE = "recompute", "update"
MOST_STAGES = 4096


class Ledger(NamedTuple):
    """All rows, with what they were derived from.

    ``rows`` holds each block row once, the embedding's and head's rows, and the update rows of ``stage``, whose step is
    counted: the busiest. ``sizes`` maps every name in the formulas to its number.
    """

    model: Model
    parallel: Parallelism
    work: Workload
    convention: Convention
    layout: Layout
    sizes: dict[str, int]
    derivations: dict[str, Derivation]
    rows: tuple[Row, ...]
    stage: Stage
    stages: tuple[Stage, ...]
    microbatches: int
    assumptions: tuple[str, ...]
    warnings: tuple[Warn, ...]

    @property
    def sublayers(self) -> tuple[str, ...]:
        """The sublayers of the rows, in the order the forward pass meets them."""
        order = [name for name in ("embedding", "block", "head") if name in self.derivations]
        met = [op.sublayer for name in order for op in self.derivations[name].program.ops]
        known = list(dict.fromkeys([*met, *(row.sublayer for row in self.rows)]))
        return tuple(name for name in known if any(row.sublayer == name for row in self.rows))

    @property
    def dtypes(self) -> dict[Role, Dtype]:
        """The element type in which tensors of each role are sent."""
        return _dtypes(self.work)

    def times_in_step(self, row: Row, stage: Stage | None = None) -> int:
        """How often ``row`` happens in a step on one device of ``stage`` (the busiest by default)."""
        at = self.stage if stage is None else stage
        if row.per == "step":
            return row.calls
        each = {"block": at.layers, "embedding": int(at.first), "head": int(at.last)}[row.part]
        return row.calls * each * self.microbatches


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
            *violations(model, parallel, work),
            *_stages_fit(model, parallel),
            *work.uneven_batch(parallel.dp),
        ]
    )
    raise_all(_missing(model))  # of a question that has an answer
    microbatches = work.microbatches(parallel.dp)
    layout = lay_out(parallel.layout, parallel.mesh, model.num_key_value_heads, parallel.kv)
    sizes = program_sizes(model, work, parallel) | layout.mesh.sizes

    programs = {"block": block_program(model, layout)}
    if model.vocab_size is not None:
        programs["embedding"] = embedding_program(model, layout)
        programs["head"] = head_program(model, layout, work.phase)
    derivations = {
        name: derive(program, backward=work.phase.training, regather=work.regather)
        for name, program in programs.items()
    }
    raise_all(_missing_sizes(derivations, sizes))
    draft = _Draft(work, convention, layout, sizes)
    rows = draft.rows(derivations)
    stages = _stages(model, parallel)
    most_bytes = max(stages, key=lambda one: (draft.sent(rows, one, microbatches), -one.number))
    busiest = most_bytes if stage is None else stages[stage]
    rows += draft.updates(derivations, busiest)
    warnings += warnings_of(model, parallel, work)
    return Ledger(
        model, parallel, work, convention, layout, sizes, derivations, tuple(rows), busiest, stages, microbatches,
        tuple(assumptions_of(model, parallel, work, convention, busiest, stages, derivations)), tuple(warnings),
    )  # fmt: skip


class _Draft:
    """Turns events into rows."""

    def __init__(self, work: Workload, convention: Convention, layout: Layout, sizes: dict[str, int]) -> None:
        self.work = work
        self.convention = convention
        self.layout = layout
        self.sizes = sizes
        self.dtypes = _dtypes(work)

    def rows(self, derivations: dict[str, Derivation]) -> list[Row]:
        """The rows of every program in the order they run: embedding, block, head forward; then backward."""
        order = [name for name in ("embedding", "block", "head") if name in derivations]
        rows = [self._event(name, FORWARD, e) for name in order for e in derivations[name].steps(FORWARD)]
        for name in reversed(order):
            if name == "block" and self.work.phase.training and self.work.recompute is Recompute.FULL:
                again = derivations[name].steps(FORWARD)
                rows += [self._event(name, RECOMPUTE, event, "repeated by full recomputation") for event in again]
            rows += [self._event(name, BACKWARD, event) for event in derivations[name].steps(BACKWARD)]
        return [row for row in rows if row.group_size > 1]

    def updates(self, derivations: dict[str, Derivation], stage: Stage) -> list[Row]:
        """One coalesced AllReduce per group for the gradients of replicated parameters, once per step.

        Source: Megatron-LM core/distributed/finalize_model_grads.py, _allreduce_non_tensor_model_parallel_grads.
        """
        layers = {"embedding": int(stage.first), "block": stage.layers, "head": int(stage.last)}
        groups: dict[tuple[str, ...], list[tuple[str, Size]]] = {}
        bits = self.work.grad_dtype.bits
        for name, derivation in derivations.items():
            for weight, grad in derivation.pending:
                if layers[name]:
                    held = grad.local_elements()
                    size = Size((Product(layers[name], held.dims, held.axes),), bits)
                    groups.setdefault(grad.unreduced, []).append((weight, size))
        rows = []
        for axes, members in groups.items():
            names = ", ".join(sorted({f"d{weight}" for weight, _ in members}))
            payload = total(size for _, size in members)
            note = "gradients of parameters that the ranks of the group hold alike, in one call"
            row = self._row(
                "all", UPDATE, "replicated parameters", "gradient_sync", Kind.ALL_REDUCE, axes, names,
                self.work.grad_dtype, payload, "step", note,
            )  # fmt: skip
            rows.append(row)
        return [row for row in rows if row.group_size > 1]

    def sent(self, rows: Iterable[Row], stage: Stage, microbatches: int) -> int:
        """Wire bytes of a stage's microbatches, to find the busiest."""
        each = {"block": stage.layers, "embedding": int(stage.first), "head": int(stage.last)}
        return sum(row.wire_bytes * row.calls * each[row.part] for row in rows) * microbatches

    def _event(self, part: str, direction: str, event: Event, note: str = "") -> Row:
        step = event.step
        dtype = self.dtypes[event.role]
        per = "block" if part == "block" else "microbatch"
        return self._row(
            part, direction, event.sublayer, event.label, step.kind, step.axes,
            self.notation(event.tensor, step.before), dtype, step.payload(dtype.bits), per, note or event.note,
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
        dtype: Dtype,
        payload: Size,
        per: str,
        note: str,
    ) -> Row:
        mesh = self.layout.mesh
        n = mesh.size(axes)
        count = payload.value(self.sizes)
        return Row(
            part, direction, sublayer, op, kind, mesh.owner(axes[0]), n, axes, tensor, dtype, payload, count,
            wire_bytes(kind, count, n, self.convention), 1, per, note,
        )  # fmt: skip

    def notation(self, name: str, sharding: Sharding) -> str:
        return format_tensor(name, sharding, self.layout.mesh)


def _dtypes(work: Workload) -> dict[Role, Dtype]:
    return {Role.ACTIVATION: work.dtype, Role.WEIGHT: work.dtype, Role.GRADIENT: work.grad_dtype, Role.FP32: Dtype.FP32}


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
    if parallel.framework not in (None, Framework.MEGATRON):
        message = f"the ledger follows megatron only so far, not {parallel.framework}"
        where = f"parallelism.framework (--framework {parallel.framework})"
        hint = f"commcalc degrees --framework {parallel.framework} knows its rules"
        found.append(UsageError(message, where=where, hint=hint))
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
            f"the model does not give {KEY_OF_DIM[dim]}, needed for the sizes of the rows",
            where=f"model.{KEY_OF_DIM[dim]}",
            hint=f"add {KEY_OF_DIM[dim]} to the model, or --set model.{KEY_OF_DIM[dim]}=N",
        )
        for dim in sorted(missing)
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


def _stages(model: Model, parallel: Parallelism) -> tuple[Stage, ...]:
    layers = model.num_hidden_layers or 0
    each, more = divmod(layers, parallel.pp)
    return tuple(
        Stage(index, each + (index < more), index == 0, index == parallel.pp - 1) for index in range(parallel.pp)
    )
