"""A job: model, machine, degrees and work, put together from a file, options and defaults, each value with its origin.

Options win over the job file. Without a job and without a model the packaged default job is taken.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from commcalc.algebra.collective import Convention
from commcalc.catalog.about import read_about
from commcalc.catalog.assign import Assignment, assign
from commcalc.catalog.fields import Field, read_section
from commcalc.catalog.hardware import Hardware, read_hardware, with_link
from commcalc.catalog.models import FIELDS as MODEL_FIELDS
from commcalc.catalog.models import read_model
from commcalc.catalog.presets import extended, is_path, load, names
from commcalc.catalog.provenance import origin
from commcalc.catalog.sections import LINKS, PARALLELISM, SECTIONS, WORKLOAD
from commcalc.document import Items, Leaf, Section, parse_document
from commcalc.errors import CommcalcError, SpecError, UnknownName, UsageError, raise_all
from commcalc.network.cost import Algorithm
from commcalc.transformer.frameworks import HABITS
from commcalc.transformer.layout import KvPolicy, LayoutName
from commcalc.transformer.spec import Model, Phase
from commcalc.transformer.work import Framework, Logits, Parallelism, Recompute, VocabPadding, Workload
from commcalc.units import parse_rate, parse_seconds

DEFAULT_JOB = "llama-3-70b-h100"
DEFAULT_SEQUENCE = 4096
# Choices of an architecture that change what it communicates.
SHAPES_TRAFFIC = (
    "gated_mlp", "norm", "attention_bias", "attention_output_bias", "mlp_bias", "position_embedding",
    "tie_word_embeddings", "parallel_block",
)  # fmt: skip


class Request(NamedTuple):
    """What the command line asks: a job (name, file or YAML text), its replacements, and single values."""

    job: str | None = None
    job_text: str | None = None
    model: str | None = None
    hardware: str | None = None
    assignments: Sequence[Assignment] = ()
    bandwidths: Sequence[str] = ()
    latencies: Sequence[str] = ()


class Job(NamedTuple):
    """A resolved question. ``sources`` names the origin of every value by its path."""

    model: Model
    hardware: Hardware | None
    parallel: Parallelism
    work: Workload
    algorithm: Algorithm
    convention: Convention
    sources: Mapping[str, str]
    assumptions: tuple[str, ...]
    warnings: tuple[tuple[str, str], ...]


class Links(NamedTuple):
    """The machine alone, for questions about no model; ``sources`` names the origin of every value by its path."""

    hardware: Hardware | None
    algorithm: Algorithm
    convention: Convention
    sources: Mapping[str, str]
    assumptions: tuple[str, ...]


def resolve_links(request: Request) -> Links:
    """The machine that the request names or describes; all that is wrong is raised together."""
    root = Section("the command line")
    if request.hardware is not None:
        root.entries["hardware"] = Leaf(request.hardware, request.hardware, f"--hardware {request.hardware}")
        root.keys["hardware"] = "--hardware"
    problems: list[CommcalcError] = []
    broken = _filled(root, request, ("hardware",), problems)
    resolver = _Resolver(root, request, problems, broken)
    hardware = resolver.hardware()
    links = resolver.links(hardware)
    raise_all(problems)
    said = [] if hardware is None else resolver.about(hardware)
    return Links(hardware, links["algorithm"], links["convention"], resolver.sources, tuple(said))


def resolve_job(request: Request) -> Job:
    """Everything the request says, read and checked; all that is wrong is raised together."""
    root = _base(request)
    problems: list[CommcalcError] = []
    for key in root.entries:
        if key not in SECTIONS:
            problems.append(UnknownName("key in the job", key, SECTIONS, where=root.keys[key]))
    broken = _filled(root, request, ("model", "hardware"), problems)
    return _Resolver(root, request, problems, broken).job()


def _filled(root: Section, request: Request, kinds: Sequence[str], problems: list[CommcalcError]) -> list[str]:
    """Put presets and single values into the tree; the kinds that could not be read."""
    broken: list[str] = []
    for kind in kinds:
        try:
            _expand(root, kind)
        except CommcalcError as problem:
            problems += problem.problems
            broken.append(kind)
            root.entries.pop(kind)
    for assignment in request.assignments:
        if assignment.path.partition(".")[0] in broken:
            continue
        try:
            assign(root, assignment)
        except CommcalcError as problem:
            problems.append(problem)
    return broken


def _base(request: Request) -> Section:
    """The tree that options are laid over: the job, the default job, or nothing."""
    if request.job_text is not None:
        root = parse_document(request.job_text, "stdin")
        root.entries.pop("name", None)
    elif request.job is not None:
        root = _job_named(request.job)
        root.entries.pop("name", None)
    elif request.model is None:
        root = load("job", DEFAULT_JOB)
        root.entries.pop("name", None)
    else:
        root = Section("the command line")
    raise_all(read_about(root, "job")[1])
    for key in ("sources", "notes", "aliases"):
        root.entries.pop(key, None)
    for kind, given in (("model", request.model), ("hardware", request.hardware)):
        if given is not None:
            root.entries[kind] = Leaf(given, given, f"--{kind} {given}")
            root.keys[kind] = f"--{kind}"
    return root


def _job_named(given: str) -> Section:
    """The job of a name or path; a name that is a model's is told apart."""
    try:
        return load("job", given)
    except UnknownName as problem:
        if not is_path(given) and any(given.casefold() == name for name in names("model")):
            problem.hint = f"{given} is a model: --model {given}"
        raise


def _expand(root: Section, kind: str) -> None:
    """Put the fields of a named model or machine in the place of its name."""
    node = root.entries.get(kind)
    if isinstance(node, Leaf):
        if node.value is None:
            raise SpecError(f"{kind} has no value", where=node.where)
        try:
            root.entries[kind] = load(kind, node.text)
        except UnknownName as problem:
            if not node.where.startswith("--"):
                problem.where = f"{node.where} {kind}"
            raise
    elif isinstance(node, Items):
        raise SpecError(f"a list where one {kind} is expected", where=node.where)
    elif isinstance(node, Section):
        root.entries[kind] = extended(kind, node)


class _Resolver:
    """Reads the sections of the finished tree and fills in defaults."""

    def __init__(self, root: Section, request: Request, problems: list[CommcalcError], broken: list[str]) -> None:
        self.root = root
        self.broken = broken
        self.request = request
        self.problems = problems
        self.sources: dict[str, str] = {}
        self.warnings: list[tuple[str, str]] = []

    def job(self) -> Job:
        model = self.model()
        hardware = self.hardware()
        parallel = self.values("parallelism", PARALLELISM)
        work = self.values("workload", WORKLOAD)
        links = self.links(hardware)
        layout, sp = self.layout(parallel)
        self.habits(parallel, work)
        if parallel["zero"] > 3:
            where = f"{self.sources['parallelism.zero']} parallelism.zero"
            self.problems.append(SpecError(f"zero {parallel['zero']} is none of 0, 1, 2, 3", where=where))
        raise_all(self.problems)
        if work["recompute"] is not Recompute.NONE and not work["phase"].training:
            self.warnings.append(
                ("recompute-without-backward", f"{work['phase']} has no backward pass: nothing is recomputed")
            )
        given = self.sources["workload.recompute_modules"] != "default"
        if given and work["recompute"] is not Recompute.SELECTIVE:
            message = "recompute_modules names what selective recomputation repeats: without it nothing changes"
            self.warnings.append(("modules-without-selective", message))
        if self.sources["workload.logits"] != "default" and work["phase"] is not Phase.PREFILL:
            message = f"logits says of which positions prefill makes logits: in {work['phase']} nothing changes"
            if not self.sources["workload.logits"].startswith("habit"):
                self.warnings.append(("logits-without-prefill", message))
        longest = model.max_position_embeddings
        if work["sequence_length"] is None:
            work["sequence_length"] = min(DEFAULT_SEQUENCE, longest or DEFAULT_SEQUENCE)
        if work["global_batch_size"] is None:
            work["global_batch_size"] = work["micro_batch_size"] * parallel["dp"]
        return Job(
            model=model,
            hardware=hardware,
            parallel=Parallelism(**parallel | {"layout": layout, "sp": sp}),
            work=Workload(**work),
            algorithm=links["algorithm"],
            convention=links["convention"],
            sources=self.sources,
            assumptions=tuple(self.assumptions(model, hardware, work["phase"], work["sequence_length"])),
            warnings=tuple(self.warnings),
        )

    def model(self) -> Model:
        node = self.root.entries.get("model")
        if "model" in self.broken:
            return Model()
        if not isinstance(node, Section):
            self.problems.append(
                SpecError(
                    "no model is given", where=self.root.where, hint="--model llama-3-70b, or `model:` in the job"
                )
            )
            return Model()
        try:
            model, read = read_model(node)
        except CommcalcError as problem:
            self.problems += problem.problems
            return Model()
        self.problems += read.problems
        told = node.entries.get("sources")
        for key in MODEL_FIELDS:
            self.sources[f"model.{key}"] = origin(read.sources.get(key, "default"), key, told)
        return model

    def hardware(self) -> Hardware | None:
        node = self.root.entries.get("hardware")
        hardware: Hardware | None = None
        if isinstance(node, Section):
            hardware, sources, problems = read_hardware(node)
            self.problems += problems
            told = node.entries.get("sources")
            self.sources |= {f"hardware.{key}": origin(where, key, told) for key, where in sources.items()}
            if problems:
                return None
        changes = [("bandwidth", given, parse_rate) for given in self.request.bandwidths]
        changes += [("latency", given, parse_seconds) for given in self.request.latencies]
        for key, given, read in changes:
            try:
                hardware, level_name = with_link(hardware, key, given, read, f"--{key}")
                self.sources[f"hardware.network.{level_name}.{key}"] = f"--{key} {given[:60]}"
            except CommcalcError as problem:
                where = problem.where or f"--{key} {given}"
                self.problems.append(type(problem)(problem.message, where=where, hint=problem.hint)
                                     if not isinstance(problem, UnknownName) else problem)  # fmt: skip
        for level in hardware.network.levels if hardware else ():
            if not level.measured:  # an option took them away
                self.sources.pop(f"hardware.network.{level.name}.measured", None)
            if math.isnan(level.bandwidth):
                self.problems.append(
                    UsageError(
                        "a latency but no bandwidth", where="--latency", hint="add --hardware or --bandwidth 450GB/s"
                    )
                )
        return hardware

    def links(self, hardware: Hardware | None) -> dict[str, Any]:
        """Algorithm and convention; an algorithm needs a machine."""
        links = self.values("links", LINKS)
        if links["algorithm"] is not Algorithm.AUTO and hardware is None and not self.broken:
            where = f"{self.sources['links.algorithm']} links.algorithm"
            hint = "add --hardware or --bandwidth"
            self.problems.append(UsageError("an algorithm but nothing to run it on", where=where, hint=hint))
        return links

    def assumptions(self, model: Model, hardware: Hardware | None, phase: Phase, length: int) -> list[str]:
        """What was taken for granted before anything was derived."""
        said = []
        taken = [key for key in SHAPES_TRAFFIC if self.sources.get(f"model.{key}") == "default"]
        if taken:
            values = ", ".join(f"{key} {str(getattr(model, key)).lower()}" for key in taken)
            said.append(f"the model does not say, so taken as in Llama: {values}")
        if self.sources.get("workload.sequence_length") == "default" and phase is not Phase.DECODE:
            said.append(f"no sequence length is given, so {length} tokens")
        return said if hardware is None else [*said, *self.about(hardware)]

    def about(self, hardware: Hardware) -> list[str]:
        """What is to be said of the machine: its notes, and which of its links were replaced."""
        said = [f"{hardware.name}: {hardware.notes}"] if hardware.notes else []
        for key in ("bandwidth", "latency"):
            for path, where in self.sources.items():
                if path.endswith(f".{key}") and where.startswith(f"--{key} "):
                    said.append(f"{path.removeprefix('hardware.network.')} is that of {where}")
        return said

    def values(self, name: str, fields: Mapping[str, Field]) -> dict[str, Any]:
        """The values of a section with defaults for what nobody gave."""
        node = self.root.entries.get(name)
        found: dict[str, Any] = {key: field.default for key, field in fields.items()}
        self.sources |= {f"{name}.{key}": "default" for key in fields}
        if isinstance(node, Section):
            read = read_section(node, fields, name)
            self.problems += read.problems
            found |= read.values
            self.sources |= {f"{name}.{key}": where for key, where in read.sources.items()}
        elif node is not None and not (isinstance(node, Leaf) and node.value is None):
            self.problems.append(SpecError("a mapping is expected here", where=f"{node.where} {name}"))
        return found

    def habits(self, parallel: dict[str, Any], work: dict[str, Any]) -> None:
        """What nobody said, as the framework does it where one is named."""
        framework, phase = parallel["framework"], work["phase"]
        regathers = framework in (None, Framework.MEGATRON)
        logits = Logits.ALL if framework is Framework.HF else Logits.SAMPLED
        for key, habit in (("regather", regathers), ("logits", logits)):
            if work[key] is None:
                work[key] = habit
                if framework is not None:
                    self.sources[f"workload.{key}"] = f"habit of {framework}"
        if framework is not None:
            policies = {"kv": HABITS[framework].kv, "vocab_padding": HABITS[framework].vocab_padding}
        else:
            refuse = KvPolicy.REFUSE if phase.training else KvPolicy.REPLICATE
            policies = {"kv": refuse, "vocab_padding": VocabPadding.MEGATRON}
        for key, policy in policies.items():
            if parallel[key] is None:
                parallel[key] = policy
                if framework is not None:
                    self.sources[f"parallelism.{key}"] = f"habit of {framework}"

    def layout(self, parallel: dict[str, Any]) -> tuple[LayoutName, bool]:
        """Layout and sequence parallelism, which name the same thing twice; an option beats a file."""
        layout, sp = parallel["layout"], parallel["sp"]
        if layout is None:
            if sp is not None:
                self.sources["parallelism.layout"] = self.sources["parallelism.sp"]
            return (LayoutName.MEGATRON_SP if sp else LayoutName.MEGATRON), bool(sp)
        split = layout is LayoutName.MEGATRON_SP
        if sp is None or sp == split:
            if sp is None:
                self.sources["parallelism.sp"] = self.sources["parallelism.layout"]
            return layout, split
        given = {assignment.path for assignment in self.request.assignments}
        by_option = {key: f"parallelism.{key}" in given for key in ("layout", "sp")}
        if by_option["sp"] and not by_option["layout"] and layout is not LayoutName.NONE:
            return (LayoutName.MEGATRON_SP if sp else LayoutName.MEGATRON), sp
        if by_option["layout"] and not by_option["sp"]:
            return layout, split
        self.problems.append(
            UsageError(
                f"layout {layout} and sp {str(sp).lower()} contradict each other",
                where="parallelism.layout, parallelism.sp",
                hint="give one of them: --layout megatron-sp is --sp",
            )
        )
        return layout, split
