"""The ledger: one row per collective of a model under a layout, and what a block, a stage and a step add up to.

Rows are derived (`algebra.derive`) from three programs: the embedding, one block, the head with its loss. A row's
payload is of one call; ``calls`` is how often it happens ``per`` block, microbatch or step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from commcalc.algebra.collective import Convention, Kind, wire_bytes
from commcalc.algebra.derive import BACKWARD, FORWARD, Derivation, Event, derive
from commcalc.algebra.notation import format_tensor
from commcalc.algebra.program import Role
from commcalc.algebra.sharding import Sharding
from commcalc.algebra.size import Product, Size, total
from commcalc.errors import CommcalcError, IllegalDegree, UsageError, raise_all
from commcalc.transformer.block import block_program
from commcalc.transformer.embedding import embedding_program, head_program
from commcalc.transformer.layout import TP, TP_KV, TP_REPLICA, Layout, LayoutName, lay_out
from commcalc.transformer.limits import limits, violations
from commcalc.transformer.spec import Model, Phase
from commcalc.transformer.work import Parallelism, Recompute, Workload, program_sizes
from commcalc.units import Dtype

GROUPS = ("tp", "cp", "ep", "dp", "pp")
RECOMPUTE, UPDATE = "recompute", "update"
MOST_STAGES = 4096


class Row(NamedTuple):
    """One collective. ``part`` is the program it comes from: embedding, block, head, or all for updates."""

    part: str
    direction: str
    sublayer: str
    op: str
    kind: Kind
    group: str
    group_size: int
    axes: tuple[str, ...]
    tensor: str
    dtype: Dtype
    payload: Size
    payload_bytes: int
    wire_bytes: int
    calls: int
    per: str
    note: str


class Stage(NamedTuple):
    """What one pipeline rank holds: whether the embedding, how many layers, whether the head."""

    number: int
    layers: int
    first: bool
    last: bool


class Warn(NamedTuple):
    """Something the user should know that does not stop the answer."""

    code: str
    message: str


class Ledger(NamedTuple):
    """All rows, with what they were derived from.

    ``rows`` holds each block row once, the embedding's and head's rows, and the update rows of ``stage``, the busiest
    stage. ``sizes`` maps every name in the formulas to its number.
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

    def times_in_step(self, row: Row, stage: Stage | None = None) -> int:
        """How often ``row`` happens in a step on one device of ``stage`` (the busiest by default)."""
        at = self.stage if stage is None else stage
        if row.per == "step":
            return row.calls
        each = {"block": at.layers, "embedding": int(at.first), "head": int(at.last)}[row.part]
        return row.calls * each * self.microbatches


def build(model: Model, parallel: Parallelism, work: Workload, convention: Convention = Convention.EXACT) -> Ledger:
    """Derive the ledger.

    Raises `IllegalDegree` (all violations together) where a degree does not divide, `SpecError` where a size that is
    needed was not given, `UsageError` for groups that have no ledger yet.
    """
    warnings: list[Warn] = []
    parallel = _without_idle_sp(parallel, warnings)
    raise_all(
        [
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
    draft = _Draft(work, convention, layout, sizes)
    rows = draft.rows(derivations)
    stages = _stages(model, parallel)
    # The busiest stage: most bytes sent in a step, the first of equals.
    busiest = max(stages, key=lambda stage: (draft.sent(rows, stage, microbatches), -stage.number))
    rows += draft.updates(derivations, busiest)
    warnings += _warnings(model, parallel, work)
    return Ledger(
        model, parallel, work, convention, layout, sizes, derivations, tuple(rows), busiest, stages, microbatches,
        tuple(_assumptions(model, parallel, work, convention, busiest, stages, derivations)), tuple(warnings),
    )  # fmt: skip


class _Draft:
    """Turns events into rows."""

    def __init__(self, work: Workload, convention: Convention, layout: Layout, sizes: dict[str, int]) -> None:
        self.work = work
        self.convention = convention
        self.layout = layout
        self.sizes = sizes
        self.dtypes = {
            Role.ACTIVATION: work.dtype,
            Role.WEIGHT: work.dtype,
            Role.GRADIENT: work.grad_dtype,
            Role.FP32: Dtype.FP32,
        }

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


def _missing(model: Model) -> list[CommcalcError]:
    """The sizes without which nothing can be counted."""
    found: list[CommcalcError] = []
    for key, purpose in (("hidden_size", "every payload"), ("num_hidden_layers", "a stage and a step")):
        try:
            model.need(key, purpose)
        except CommcalcError as problem:
            found.append(problem)
    return found


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


def _warnings(model: Model, parallel: Parallelism, work: Workload) -> list[Warn]:
    found = []
    longest = model.max_position_embeddings
    if longest is not None and work.sequence_length > longest:
        found.append(
            Warn(
                "sequence-beyond-model",
                f"sequence length {work.sequence_length} is beyond the {longest} positions of {model.name}",
            )
        )
    for axis, what in (("dp", "the gradient reduction over data-parallel ranks"), ("pp", "sends between stages")):
        degree = getattr(parallel, axis)
        if degree > 1 and (axis == "pp" or work.phase.training):
            tied = " and the gradient sync of the tied embedding" if axis == "pp" and model.tie_word_embeddings else ""
            found.append(Warn("group-not-priced", f"{axis} {degree}: not in this ledger yet: {what}{tied}"))
    if parallel.layout is LayoutName.NONE and parallel.tp > 1:
        found.append(
            Warn(
                "nothing-split",
                f"layout none: all {parallel.tp} tp ranks do the same whole work; communication time is zero",
            )
        )
    kv = model.num_key_value_heads
    if kv is not None and parallel.tp > kv and parallel.layout is not LayoutName.NONE:
        found.append(
            Warn("kv-replicated", f"{kv} KV heads on {parallel.tp} ranks: {parallel.tp // kv} ranks share each KV head")
        )
    return found


def _assumptions(
    model: Model,
    parallel: Parallelism,
    work: Workload,
    convention: Convention,
    busiest: Stage,
    stages: tuple[Stage, ...],
    derivations: dict[str, Derivation],
) -> list[str]:
    """What the numbers rest on, in plain sentences."""
    said = [
        "wire bytes are what one device sends on a ring: 2(n-1)/n of an AllReduce's payload, (n-1)/n of the others'"
        if convention is Convention.EXACT
        else "textbook convention: wire bytes drop the (n-1)/n of the ring",
        "no communication is hidden behind compute",
    ]
    if work.phase.training:
        said.append(
            f"activations and their gradients move in {work.dtype}, gradients of parameters in {work.grad_dtype}"
        )
        if parallel.layout is LayoutName.MEGATRON_SP:
            said.append(
                "gathered inputs of column-parallel layers are saved split and gathered again for the weight gradients"
                if work.regather
                else "gathered inputs of column-parallel layers are kept for the weight gradients (no re-gather)"
            )
        repeats = {
            Recompute.NONE: "nothing is recomputed",
            Recompute.SELECTIVE: "the inside of attention is recomputed, which repeats no collective",
            Recompute.FULL: "every layer is recomputed whole, which repeats its forward collectives",
        }
        said.append(repeats[work.recompute])
    elif work.phase is Phase.DECODE:
        said.append(f"decode: one token for each of {work.micro_batch_size} sequences; logits are gathered whole")
    else:
        said.append("prefill: logits are made for the last position of each sequence and gathered whole")
    if model.vocab_size is None:
        said.append("vocab_size is not given: embedding, head and loss are left out")
    else:
        rows = program_sizes(model, work, parallel)["V"]
        padded = f"padded from {model.vocab_size} to {rows} rows" if rows != model.vocab_size else "needs no padding"
        said.append(f"vocabulary {padded} (rule {parallel.vocab_padding})")
    known = {rule.name for rule in limits(model, parallel, work)}
    wanted = () if parallel.layout is LayoutName.NONE else ("heads", "kv_heads", "ffn")
    unchecked = [name for name in wanted if name not in known]
    if unchecked and parallel.tp > 1:
        said.append(f"not given, so not checked for divisibility: {', '.join(unchecked)}")
    kv = model.num_key_value_heads
    if kv is not None and parallel.tp > kv and parallel.layout is not LayoutName.NONE:
        shared = f"{TP} {parallel.tp} is seen as {TP_KV} {kv} x {TP_REPLICA} {parallel.tp // kv}"
        said.append(f"{shared}: ranks that differ only in {TP_REPLICA} hold the same KV head")
    if len(stages) > 1:
        rest = (model.num_hidden_layers or 0) % len(stages)
        if rest:
            said.append(f"layers do not divide over {len(stages)} stages: the first {rest} hold one more")
        said.append(f"the busiest of {len(stages)} stages is stage {busiest.number} with {busiest.layers} layers")
    return said + [note for derivation in derivations.values() for note in derivation.program.notes]
