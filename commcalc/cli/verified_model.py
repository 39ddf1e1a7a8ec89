"""The model of ``commcalc verify`` as the options describe it, in small, on the layouts and degrees that are legal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from commcalc.cli import options as o
from commcalc.errors import NO_LEGAL_ANSWER, CommcalcError, UsageError, raise_all
from commcalc.transformer.layout import LayoutName

if TYPE_CHECKING:
    from commcalc.catalog.job import Job
    from commcalc.simulate.cases import Case
    from commcalc.transformer.spec import Model
    from commcalc.transformer.work import Parallelism, Workload

# Values that other options say here, and what verify has none of.
_SAID_OTHERWISE = {
    "parallelism.layout": ("--layout says which layouts are run", "--layout megatron"),
    "parallelism.sp": ("--layout says whether the stream is split", "--layout megatron-sp"),
    "parallelism.tp": ("--tp says which degrees are run", "--tp 4"),
    "parallelism.order": ("bytes and steps are the same in any order", "leave it out"),
    "workload.global_batch_size": ("one microbatch is run, and a step is three of them", "--micro-batch 4"),
}
_SECTIONS_UNUSED = ("hardware", "links")


def of_model(
    params: Mapping[str, Any], layouts: list[LayoutName], degrees: list[int], *, chosen: bool
) -> tuple[list[Case], list[str]]:
    """A model as the options describe it, in small, on every layout and degree that is legal for it.

    What is not legal is left out and told. It is an error where nothing is left, or, of degrees that were ``chosen``,
    nothing that is split.
    """
    from commcalc.accounting.ledger import build
    from commcalc.catalog.job import resolve_job
    from commcalc.transformer.dialects import dialect_of

    _check_settings(params)
    shared = {key: value for key, value in params.items() if key not in ("layout", "tp", "dtype")}
    if shared.get("model") is None:
        shared["model"] = "{}"
    found: list[Case] = []
    illegal: dict[str, tuple[CommcalcError, list[LayoutName]]] = {}
    for layout in layouts:
        for tp in degrees:
            case = _case(resolve_job(o.request_from({**shared, "layout": layout.value, "tp": str(tp)})), layout)
            try:
                build(case.model, case.parallel, case.work)
            except CommcalcError as problem:
                if problem.status != NO_LEGAL_ANSWER:
                    raise
                for one in problem.problems:
                    one.hint = one.hint and one.hint.replace("--no-sp", "--layout none,megatron")
                    illegal.setdefault(one.message, (one, []))[1].append(layout)
                continue
            found.append(case)
    splits = [layout for layout in layouts if layout is not LayoutName.NONE]
    if illegal and (not found or (chosen and splits and all(case.layout is LayoutName.NONE for case in found))):
        raise_all([problem for problem, _ in illegal.values()])
    said = [
        "left out: " + ("" if set(splits) <= set(of) else f"{', '.join(of)}: ") + message
        for message, (_, of) in illegal.items()
    ]
    last = found[-1]
    if last.parallel.framework is not None:
        said.insert(0, f"run as {last.parallel.framework} runs it: {dialect_of(last.model, last.parallel).source}")
    return found, [f"sizes made small ({_shown(last.model)}); --set model.KEY=N keeps one", *said]


def _shown(model: Model) -> str:
    """The sizes that a model gives, and its layers where they are not all alike."""
    from commcalc.transformer.layers import layers_of
    from commcalc.transformer.spec import KEY_OF_DIM

    shown = ", ".join(f"{dim} {size}" for dim, size in model.dims.items() if dim in KEY_OF_DIM)
    layers = layers_of(model)
    if len(layers.names) == 1:
        return shown
    return f"{shown}; layers {', '.join(layers.names[kind] for kind in layers.kinds)}"


def _check_settings(params: Mapping[str, Any]) -> None:
    """`UsageError` for every value of ``--set`` that would change nothing, or what another option says."""
    problems: list[CommcalcError] = []
    for one in o.request_from({"set_": params.get("set_")}).assignments:
        if one.path in _SAID_OTHERWISE:
            why, hint = _SAID_OTHERWISE[one.path]
            problems.append(UsageError(f"{one.path} cannot be set: {why}", where=one.origin, hint=hint))
        elif one.path.partition(".")[0] in _SECTIONS_UNUSED:
            why = "nothing is timed, so that no machine is asked for"
            problems.append(UsageError(f"{one.path} cannot be set: {why}", where=one.origin, hint="leave it out"))
    raise_all(problems)


def _case(job: Job, layout: LayoutName) -> Case:
    """The job in small; `UsageError` for what is counted but not run here."""
    from commcalc.simulate.cases import Case, in_small
    from commcalc.simulate.choices import check_choices, sends_copies
    from commcalc.simulate.small import deepened, roomy, sized
    from commcalc.transformer.spec import Phase, Positions
    from commcalc.transformer.work import VocabPadding

    def given(path: str) -> bool:
        return job.sources[path] != "default"

    parallel, work, tp = job.parallel, job.work, job.parallel.tp
    _check_parallel(job)
    _check_work(job)
    small = sized(
        job.model, tp,
        keep=[path.removeprefix("model.") for path, origin in job.sources.items() if origin.startswith("--set ")],
    )  # fmt: skip
    if not given("model.num_hidden_layers") or not job.sources["model.num_hidden_layers"].startswith("--set "):
        small = deepened(small, parallel.pp * parallel.virtual_stages)
    length = work.sequence_length if given("workload.sequence_length") else None
    many = work.micro_batch_size if given("workload.micro_batch_size") else None
    work = in_small(work, parallel, length, many)
    if sends_copies(parallel) and (length or (many and work.phase is Phase.DECODE)):
        check_choices(
            work, small, parallel, job.sources[f"workload.{'sequence_length' if length else 'micro_batch_size'}"]
        )
    else:
        work = roomy(work, small, parallel)
    longest = job.model.max_position_embeddings
    if job.model.position_embedding is Positions.LEARNED and longest and work.tokens_per_sequence > longest:
        told = f"a sequence of {work.tokens_per_sequence} tokens is beyond the {longest} learned positions"
        where = job.sources["workload.sequence_length" if length else "model.max_position_embeddings"]
        raise UsageError(
            told,
            where=where,
            hint=f"--seq {longest}, or --set model.max_position_embeddings={work.tokens_per_sequence}",
        )
    if small.max_position_embeddings is not None:
        small = small._replace(max_position_embeddings=max(work.sequence_length, small.max_position_embeddings))
    padding = parallel.vocab_padding if given("parallelism.vocab_padding") else VocabPadding.NONE
    parallel = parallel._replace(vocab_padding=padding)
    _check_even(small, work, parallel)
    return Case(job.model.name, small, parallel, work, layout)


def _check_parallel(job: Job) -> None:
    """`UsageError` for schedules that are counted but not run here."""
    from commcalc.transformer.work import Schedule

    parallel = job.parallel
    if parallel.schedule is Schedule.DUALPIPE:
        told = "verify runs a pipeline from one end: dualpipe feeds it from both, and holds every layer twice"
        raise UsageError(told, where=job.sources["parallelism.schedule"], hint="another schedule")


def _check_work(job: Job) -> None:
    """`UsageError` for work that is counted but not run here."""
    from commcalc.transformer.work import Framework, Module, Recompute

    work, where = job.work, job.sources["workload.recompute"]
    if job.sources["workload.imbalance"] != "default":
        told = "verify has as many rows for each rank: what the busiest gets beyond them is not run"
        raise UsageError(told, where=job.sources["workload.imbalance"], hint="leave it out")
    if work.predict_layers:
        told = f"verify runs a model's own layers, and none that predict further tokens: {work.predict_layers}"
        raise UsageError(told, where=job.sources["workload.predict_layers"], hint="leave predict_layers at 0")
    if work.recompute is not Recompute.NONE and not work.phase.training:
        told = f"{work.phase} has no backward pass: nothing is recomputed"
        raise UsageError(told, where=where, hint="leave it out, or --phase train")
    silent = work.recompute_modules == (Module.CORE_ATTN,) and job.parallel.framework is not Framework.TORCHTITAN
    if work.recompute is Recompute.SELECTIVE and not silent:
        told = "verify recomputes whole layers, or the inside of attention: parts that repeat collectives are not run"
        raise UsageError(told, where=where, hint="--recompute full")


def _check_even(model: Model, work: Workload, parallel: Parallelism) -> None:
    """`UsageError` where a framework deals columns out in unequal parts: what is run here has equal ones."""
    from commcalc.transformer.spec import key_of
    from commcalc.transformer.work import program_sizes

    own = model.dims
    for dim, size in program_sizes(model, work, parallel).items():
        if dim != "V" and size != own.get(dim, size):
            key = key_of(dim)
            told = f"{own[dim]} columns in unequal parts on {parallel.tp} ranks: verify runs equal ones"
            hint = f"a {key} that {parallel.tp} divides, or another --tp"
            raise UsageError(told, where=f"model.{key}", hint=hint)
