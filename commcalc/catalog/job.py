"""A job: model, machine, degrees and work, put together from a file, options and defaults, each value with its origin.

Options win over the job file. Without a job and without a model the packaged default job is taken.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from commcalc.accounting.choices import Chip, Clock, States
from commcalc.algebra.collective import Convention
from commcalc.catalog.fields import Field, read_section
from commcalc.catalog.hardware import Hardware, read_hardware, with_link
from commcalc.catalog.models import FIELDS as MODEL_FIELDS
from commcalc.catalog.models import read_model
from commcalc.catalog.provenance import origin
from commcalc.catalog.sections import LINKS, MEMORY, PARALLELISM, SECTIONS, STEP, WORKLOAD, groups
from commcalc.catalog.tree import DEFAULT_JOB as DEFAULT_JOB
from commcalc.catalog.tree import Request as Request
from commcalc.catalog.tree import base_of, filled
from commcalc.document import Leaf, Section
from commcalc.errors import CommcalcError, SpecError, UnknownName, UsageError, raise_all
from commcalc.network.cost import Algorithm
from commcalc.transformer.frameworks import HABITS
from commcalc.transformer.layout import KvPolicy, LayoutName
from commcalc.transformer.spec import Model, Phase
from commcalc.transformer.work import Framework, Logits, Parallelism, Recompute, VocabPadding, Workload
from commcalc.units import parse_rate, parse_seconds

DEFAULT_SEQUENCE = 4096
# Choices of an architecture that change what it communicates.
SHAPES_TRAFFIC = (
    "gated_mlp", "norm", "attention_bias", "attention_output_bias", "mlp_bias", "position_embedding",
    "tie_word_embeddings", "parallel_block",
)  # fmt: skip


class Job(NamedTuple):
    """A resolved question. ``sources`` names the origin of every value by its path."""

    model: Model
    hardware: Hardware | None
    parallel: Parallelism
    work: Workload
    algorithm: Algorithm
    convention: Convention
    states: States
    clock: Clock
    sources: Mapping[str, str]
    assumptions: tuple[str, ...]
    warnings: tuple[tuple[str, str], ...]

    @property
    def chip(self) -> Chip:
        """What the device offers; nothing where none is named."""
        one = self.hardware
        return Chip() if one is None else Chip(one.flops, one.hbm_bytes, one.hbm_bytes_per_s)


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
    broken = filled(root, request, ("hardware",), problems)
    resolver = _Resolver(root, request, problems, broken)
    hardware = resolver.hardware()
    links = resolver.links(hardware)
    raise_all(problems)
    said = [] if hardware is None else resolver.about(hardware)
    return Links(hardware, links["algorithm"], links["convention"], resolver.sources, tuple(said))


def resolve_job(request: Request) -> Job:
    """Everything the request says, read and checked; all that is wrong is raised together."""
    root = base_of(request)
    problems: list[CommcalcError] = []
    for key in root.entries:
        if key not in SECTIONS:
            problems.append(UnknownName("key in the job", key, SECTIONS, where=root.keys[key]))
    broken = filled(root, request, ("model", "hardware"), problems)
    return _Resolver(root, request, problems, broken).job()


def _with_call_latency(hardware: Hardware | None, seconds: float | None) -> Hardware | None:
    if hardware is None or seconds is None:
        return hardware
    return hardware._replace(network=hardware.network._replace(call_latency_s=seconds))


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
        states, clock = self.values("memory", MEMORY), self.values("step", STEP)
        try:
            clock["overlap"] = groups(clock["overlap"])
        except CommcalcError as problem:
            where = f"{self.sources['step.overlap']} step.overlap"
            self.problems.append(SpecError(problem.message, where=where, hint=problem.hint))
        hardware = _with_call_latency(hardware, links["call_latency"])
        layout, sp = self.layout(parallel)
        self.habits(parallel, work)
        if parallel["zero"] > 3:
            where = f"{self.sources['parallelism.zero']} parallelism.zero"
            self.problems.append(SpecError(f"zero {parallel['zero']} is none of 0, 1, 2, 3", where=where))
        self.timed(hardware, work)
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
            states=States(**states),
            clock=Clock(**clock),
            sources=self.sources,
            assumptions=tuple(self.assumptions(model, hardware, work["phase"], work["sequence_length"])),
            warnings=tuple(self.warnings),
        )

    def model(self) -> Model:
        if self.request.known_model is not None:
            return self.request.known_model
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
        if self.request.known_hardware is not None:
            return self.request.known_hardware
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
        asked = {
            "algorithm": ("an algorithm but nothing to run it on", links["algorithm"] is not Algorithm.AUTO),
            "call_latency": ("a cost of calls but nothing that they run on", links["call_latency"] is not None),
        }
        for key, (message, given) in asked.items():
            if given and hardware is None and not self.broken:
                where = f"{self.sources[f'links.{key}']} links.{key}"
                self.problems.append(UsageError(message, where=where, hint="add --hardware or --bandwidth"))
        return links

    def timed(self, hardware: Hardware | None, work: dict[str, Any]) -> None:
        """Where a step is asked to be timed in some way, the machine must say how fast it computes."""
        asked = [key for key in STEP if self.sources[f"step.{key}"] != "default"]
        if (
            not asked
            or self.broken
            or self.request.lenient
            or (hardware is not None and work["dtype"] in hardware.flops)
        ):
            return
        if hardware is None:
            where = f"{self.sources[f'step.{asked[0]}']} step.{asked[0]}"
            message = "no machine whose step could be timed"
            self.problems.append(UsageError(message, where=where, hint="--hardware NAME"))
            return
        where = f"{self.sources['workload.dtype']} workload.dtype"
        known = ", ".join(hardware.flops) or "none"
        message = f"{hardware.name} gives no FLOP/s in {work['dtype']}; it gives {known}"
        hint = f"--set hardware.chip.flops.{work['dtype']}='900 TFLOP/s', or another --dtype"
        self.problems.append(SpecError(message, where=where, hint=hint))

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
