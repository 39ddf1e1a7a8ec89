"""The ledger: one row per collective of a model under a layout, and what a block, a stage and a step add up to.

Rows are derived (`algebra.derive`) from programs: the embedding, one block of each kind, the head with its loss. A
row's payload is of one call; ``calls`` is how often it happens ``per`` block, microbatch or step.
"""

from typing import NamedTuple

from commcalc.accounting.assumptions import assumptions_of, warnings_of
from commcalc.accounting.draft import Draft, dtypes, times_in_step
from commcalc.accounting.layout_rules import unlaid
from commcalc.accounting.legality import unfit
from commcalc.accounting.programs import Programs, copies_of, only, programs_of, stages_of
from commcalc.accounting.rows import MIRROR, Row, Stage, Warn
from commcalc.algebra.collective import Convention
from commcalc.algebra.program import Role
from commcalc.algebra.schedule import BACKWARD, FORWARD, Derivation
from commcalc.errors import CommcalcError, ShardingError, SpecError, UsageError, raise_all
from commcalc.transformer.frameworks import refusals
from commcalc.transformer.layout import Layout, LayoutName
from commcalc.transformer.limits import violations
from commcalc.transformer.spec import Model, key_of
from commcalc.transformer.work import Parallelism, Workload, program_sizes
from commcalc.units import Dtype


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
    # How many of the rows, the first ones, are of programs; the others are of the stage.
    of_programs: int
    # The sublayers that are looked at alone; none: all.
    sublayers: tuple[str, ...] = ()

    @property
    def draft(self) -> Draft:
        """The question with its programs, of which further things can be counted."""
        return Draft(self.model, self.parallel, self.work, self.convention, self.programs, self.sizes)

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
        return dtypes(self.work)

    @property
    def usual(self) -> str:
        """The kind of block that most layers are of."""
        return self.programs.layers.usual

    def times_in_step(self, row: Row, stage: Stage | None = None) -> int:
        """How often ``row`` happens in a step on one device of ``stage`` (the busiest by default)."""
        return times_in_step(row, self.stage if stage is None else stage, self.microbatches)


def build(
    model: Model,
    parallel: Parallelism,
    work: Workload,
    convention: Convention = Convention.EXACT,
    stage: int | None = None,
    sublayers: tuple[str, ...] = (),
    *,
    told: bool = True,
) -> Ledger:
    """Derive the ledger; its step is that of ``stage``, by default the one that sends most bytes.

    ``sublayers`` looks at some of them alone; not ``told``: without a word of what is assumed or warned of.

    Raises `IllegalDegree` (all violations together) where a degree does not divide, `SpecError` where a size that is
    needed was not given, `UsageError` for groups that have no ledger yet.
    """
    warnings: list[Warn] = []
    parallel = _without_idle_sp(parallel, warnings)
    raise_all(
        [
            *_unpriced(model),
            *unfit(model, parallel, work),
            *unlaid(model, parallel, work),
            *refusals(model, parallel, work),
            *violations(model, parallel, work),
        ]
    )
    raise_all(_missing(model))  # of a question that has an answer
    microbatches = work.microbatches(parallel.dp)
    programs = _programs(model, parallel, work)
    if sublayers:
        programs = only(programs, sublayers)
    sizes = program_sizes(model, work, parallel) | programs.layout.mesh.sizes
    sizes |= {MIRROR: programs.mirrors} if programs.mirrors > 1 else {}
    raise_all(_missing_sizes(programs, sizes))
    if told and programs.summed and work.phase.training:
        warnings += _unknown_parameters(programs, parallel, sizes)
    draft = Draft(model, parallel, work, convention, programs, sizes)
    rows = draft.rows()
    stages = stages_of(model, parallel, programs, work.predict_layers)
    most_bytes = max(stages, key=lambda one: (draft.sent(rows, one, microbatches), -one.number))
    busiest = most_bytes if stage is None else stages[stage]
    of_programs = len(rows)
    rows += draft.of_stage(busiest)
    said: tuple[str, ...] = ()
    if told:
        warnings += warnings_of(model, parallel, work, programs)
        said = tuple(assumptions_of(model, parallel, work, convention, busiest, stages, programs))
    return Ledger(
        model, parallel, work, convention, programs, sizes, tuple(rows), busiest, stages, microbatches, said,
        tuple(warnings), of_programs, sublayers,
    )  # fmt: skip


def _programs(model: Model, parallel: Parallelism, work: Workload) -> Programs:
    """The programs; expert groups that lie on ranks in an order that no collective brings about are told as such."""
    try:
        return programs_of(model, parallel, work)
    except ShardingError as problem:
        if not parallel.moves_tokens:
            raise
        message = f"the ledger cannot price expert groups in this order yet: {problem.message}"
        where = f"parallelism.order (--order {'-'.join(parallel.order)})"
        raise UsageError(message, where=where, hint="--order tp-cp-ep-dp-pp") from None


def rows_of_stage(ledger: Ledger, stage: Stage) -> list[Row]:
    """The rows of another stage that no program has."""
    return ledger.draft.of_stage(stage)


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
    if parallel.sp and parallel.layout.own:
        message = f"layout {parallel.layout} says itself how the stream lies: it goes without sequence parallelism"
        raise UsageError(message, where=f"--layout {parallel.layout} --sp", hint="--no-sp, or --layout megatron-sp")
    return parallel._replace(sp=wants)


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


def _unknown_parameters(programs: Programs, parallel: Parallelism, sizes: dict[str, int]) -> list[Warn]:
    """What cannot be said of gradients where a model does not give the sizes of all its parameters."""
    from commcalc.accounting.data_parallel import knows_parameters

    if knows_parameters(programs, sizes):
        return []
    ranks = f"dp {parallel.dp}" + (f", cp {parallel.cp}" if parallel.cp > 1 else "")
    message = f"{ranks}: a step still lacks gradients and parameters, whose sizes the model does not give"
    return [Warn("group-not-priced", message)]


def _missing_sizes(programs: Programs, sizes: dict[str, int]) -> list[CommcalcError]:
    """The model's sizes that the payload of some row depends on, and that it does not give."""
    derivations = programs.derivations
    held = [
        grad
        for derivation in derivations.values()
        for weight, grad in derivation.pending
        if set(grad.unreduced) - set(copies_of(weight, programs.layout))
    ]
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
