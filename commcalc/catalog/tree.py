"""The tree of a job before it is read: a file or preset, its named parts put in place, single values laid over it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from commcalc.catalog.about import read_about
from commcalc.catalog.assign import Assignment, assign
from commcalc.catalog.fields import Field, read_section, text
from commcalc.catalog.presets import extended, is_path, load, names
from commcalc.document import Items, Leaf, Section, parse_document
from commcalc.errors import CommcalcError, SpecError, UnknownName, raise_all

if TYPE_CHECKING:
    from commcalc.catalog.hardware import Hardware
    from commcalc.transformer.spec import Model

DEFAULT_JOB = "llama-3-70b-h100"


class Request(NamedTuple):
    """What the command line asks: a job (name, file, YAML text or its tree), its replacements, and single values."""

    job: str | None = None
    job_text: str | None = None
    model: str | None = None
    hardware: str | None = None
    assignments: Sequence[Assignment] = ()
    bandwidths: Sequence[str] = ()
    latencies: Sequence[str] = ()
    # Whether a machine may lack what a step would be timed by: one of several.
    lenient: bool = False
    section: Section | None = None
    # What was resolved before, of a question that differs in other parts alone.
    known_model: "Model | None" = None
    known_hardware: "Hardware | None" = None

    @property
    def known(self) -> tuple[str, ...]:
        """The parts that need not be read again."""
        there = {"model": self.known_model, "hardware": self.known_hardware}
        return tuple(kind for kind, value in there.items() if value is not None)


def filled(root: Section, request: Request, kinds: Sequence[str], problems: list[CommcalcError]) -> list[str]:
    """Put presets and single values into the tree; the kinds that could not be read."""
    broken: list[str] = []
    for kind in request.known:
        root.entries.pop(kind, None)
    for kind in kinds:
        try:
            _expand(root, kind)
        except CommcalcError as problem:
            problems += problem.problems
            broken.append(kind)
            root.entries.pop(kind)
    for assignment in request.assignments:
        if assignment.path.partition(".")[0] in (*broken, *request.known):
            continue
        try:
            assign(root, assignment)
        except CommcalcError as problem:
            problems.append(problem)
    return broken


def base_of(request: Request) -> Section:
    """The tree that options are laid over: the job, the default job, or nothing."""
    if request.job_text is not None:
        root = parse_document(request.job_text, "stdin")
    elif request.section is not None:
        root = request.section
    elif request.job is not None:
        root = _job_named(request.job)
    elif request.model is None:
        root = load("job", DEFAULT_JOB)
    else:
        root = Section("the command line")
    named = Section(root.where, {"name": name} if (name := root.entries.pop("name", None)) else {}, root.keys)
    raise_all([*read_section(named, {"name": Field(text)}, "job").problems, *read_about(root, "job")[1]])
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
