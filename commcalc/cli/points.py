"""The points of a grid, chunk by chunk, with what the ledger says at each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from commcalc.accounting.sweep import SIZES, Found, Question, Structure, put
from commcalc.catalog.hardware import Hardware
from commcalc.catalog.job import Job, resolve_job
from commcalc.cli.grid import Axis, Grid
from commcalc.errors import CommcalcError
from commcalc.report.sweep import REASON, RESULTS, at_path, document_of, needs_step, needs_whole_document
from commcalc.transformer.spec import Model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Points that are held at once: as many as are answered in about a second, so that lines come as they are found.
LEAST, MOST = 2**6, 2**17


# How many points in a row, and for each column an array with a value of each point, or one value of all.
Chunk = tuple[int, dict[str, Any]]


class Points:
    """The grid's points with the columns that were asked for beside the usual ones."""

    def __init__(self, grid: Grid, extra: Sequence[str]) -> None:
        self.grid = grid
        more = tuple(dict.fromkeys(path for path in extra if path != REASON))
        self.paths = (*RESULTS.values(), *more)
        self.names = ("legal", *RESULTS, *more)
        self.reasons = REASON in extra
        self.documents = needs_whole_document(self.paths)
        self.step = needs_step(self.paths)
        self.chunk = 2**10
        # The models and machines that were resolved, by the values that they depend on.
        self.models: dict[tuple[int, ...], Model] = {}
        self.machines: dict[tuple[int, ...], Hardware] = {}

    def job(self, chosen: Sequence[int]) -> Job:
        """The job of one combination; models and machines are read once."""
        model, machine = self._key(chosen, ("model",)), self._key(chosen, ("hardware", "bandwidth", "latency"))
        request = self.grid.request(chosen)
        found = resolve_job(
            request._replace(known_model=self.models.get(model), known_hardware=self.machines.get(machine))
        )
        self.models[model] = found.model
        if found.hardware is not None:  # what calls cost is laid over it every time
            network = found.hardware.network._replace(call_latency_s=None)
            self.machines[machine] = found.hardware._replace(network=network)
        return found

    def _key(self, chosen: Sequence[int], sections: Sequence[str]) -> tuple[int, ...]:
        """The values that a part of the job depends on."""
        axes = zip(self.grid.axes, chosen, strict=True)
        return tuple(at for axis, at in axes if axis.path.partition(".")[0] in sections)

    def chunks(self) -> Iterator[Chunk]:
        """All points in order; the last option varies fastest."""
        axes = self.grid.axes
        inner = self.grid.inner()
        for chosen in product(*(range(len(axis.texts)) for axis in axes[:inner])):
            yield from self._inside(chosen, inner)

    def _inside(self, chosen: tuple[int, ...], inner: int) -> Iterator[Chunk]:
        """The points of one choice of all that is no mere size."""
        axes = self.grid.axes[inner:]
        fixed = {axis.name: axis.shown[at] for axis, at in zip(self.grid.axes, chosen, strict=False)}
        fixed |= {axis.name: axis.shown[0] for axis in axes if not axis.varies}
        sized = _Sized(self, chosen, inner)
        total = prod(len(axis.texts) for axis in axes)
        start = 0
        while start < total:
            count = min(self.chunk, total - start)
            begun = monotonic()
            places = _places(start, count, [len(axis.texts) for axis in axes])
            shown = {axis.name: _shown(axis)[at] for axis, at in zip(axes, places, strict=True) if axis.varies}
            found = fixed | shown | _legal_alone(sized.columns(places, count))
            took = monotonic() - begun
            if took < 0.5:
                self.chunk = min(2 * self.chunk, MOST)
            elif took > 1:
                self.chunk = max(self.chunk // 2, LEAST)
            start += count
            yield count, found

    def alone(self, chosen: Sequence[int]) -> tuple[list[Any] | None, str | None]:
        """The numbers of one point out of its whole document; or why it is not legal."""
        from commcalc.report.sweep import whole_document

        try:
            document = whole_document(self.grid.job(chosen) if self.documents else self.job(chosen))
        except CommcalcError as problem:
            return None, "; ".join(one.message for one in problem.problems)
        return [at_path(document, path) for path in self.paths], None

    def read(self, found: Found) -> list[Any]:
        """The columns of one point."""
        document = document_of(found)
        return [at_path(document, path) for path in self.paths]


class _Group(NamedTuple):
    """Variants of a model that are one structure: which they are, and those of their sizes that vary."""

    members: NDArray[np.int64]
    structure: Structure
    # By the number of a variant.
    sizes: dict[str, NDArray[np.int64]]


class _Sized:
    """The points of one choice of all that is no mere size; ``variants`` are the models that sizes make of it."""

    def __init__(self, points: Points, chosen: tuple[int, ...], inner: int) -> None:
        self.points = points
        self.chosen = chosen
        self.inner = inner
        self.axes = points.grid.axes[inner:]
        self.of_model = [at for at, axis in enumerate(self.axes) if axis.path.startswith("model.")]
        self.groups: list[_Group] = [] if points.documents else self._grouped()

    def _grouped(self) -> list[_Group]:
        """The structures, each with its variants."""
        import numpy as np

        job: Job | None = None
        models: dict[int, Model] = {}
        lengths = [len(self.axes[at].texts) for at in self.of_model]
        for number, variant in enumerate(product(*map(range, lengths))):
            places = [0] * len(self.axes)
            for at, place in zip(self.of_model, variant, strict=True):
                places[at] = place
            try:
                found = self.points.job((*self.chosen, *places))
            except CommcalcError:
                continue
            job = job or found
            models[number] = found.model
        if job is None:
            return []
        alike: dict[Model, list[int]] = {}
        for number, model in models.items():
            alike.setdefault(_without_sizes(model), []).append(number)
        groups = []
        for members in alike.values():
            differ = [name for name in SIZES if len({getattr(models[one], name) for one in members}) > 1]
            sizes = {name: np.zeros(prod(lengths), dtype=np.int64) for name in differ}
            for name, array in sizes.items():
                array[members] = [getattr(models[one], name) for one in members]
            groups.append(_Group(np.array(members), self._structure(job, models[members[0]]), sizes))
        return groups

    def _structure(self, job: Job, model: Model) -> Structure:
        asked = Question(
            model, job.parallel, job.work, job.convention, job.algorithm,
            job.hardware.network if job.hardware else None, job.chip, job.states, job.clock,
        )  # fmt: skip
        points = self.points
        return Structure(
            asked, points.read, len(points.paths), whole=points.step,
            default_batch=job.sources["workload.global_batch_size"] == "default",
        )  # fmt: skip

    def columns(self, places: Sequence[NDArray[np.int64]], count: int) -> dict[str, Any]:
        """The columns of some points, each given by its place on every axis of sizes."""
        import numpy as np

        points = self.points
        if points.documents:
            return self._one_by_one(places, count)
        legal = np.zeros(count, dtype=bool)
        columns: list[Any] = [None] * len(points.paths)
        which = np.zeros(count, dtype=np.int64)
        for at in self.of_model:
            which = which * len(self.axes[at].texts) + places[at]
        work = {
            axis.size: np.array(axis.shown, dtype=np.int64)[at]
            for axis, at in zip(self.axes, places, strict=True) if axis.varies and not axis.path.startswith("model.")
        }  # fmt: skip
        for group in self.groups:
            every = len(self.groups) == 1 and group.members.size == _count(self.axes, self.of_model)
            mine = np.arange(count) if every else np.flatnonzero(np.isin(which, group.members))
            inputs = {name: array[mine] for name, array in work.items()}
            inputs |= {name: array[which[mine]] for name, array in group.sizes.items()}
            if not mine.size:
                continue
            here, answers = group.structure.answer(inputs, mine.size)
            legal[mine] = here
            for at, found in enumerate(answers):
                columns[at] = found if every else put(columns[at], mine, found, count)
        found = dict(zip(points.names, [legal, *columns], strict=True))
        if points.reasons:
            found[REASON] = _reasons(self, places, legal)
        return found

    def _one_by_one(self, places: Sequence[NDArray[np.int64]], count: int) -> dict[str, Any]:
        """The same from whole documents."""
        import numpy as np

        rows, why = [], []
        for at in range(count):
            row, reason = self.points.alone(self.whole(places, at))
            rows.append([row is not None, *(row or [None] * len(self.points.paths))])
            why.append(reason)
        columns = {
            name: _objects([row[at] for row in rows]) for at, name in enumerate(self.points.names) if name != "legal"
        }
        found = {"legal": np.array([row[0] for row in rows], dtype=bool)} | columns
        return found | ({REASON: _objects(why)} if self.points.reasons else {})

    def whole(self, places: Sequence[NDArray[np.int64]], at: int) -> tuple[int, ...]:
        """The place of one point on every axis of the grid."""
        return (*self.chosen, *(int(place[at]) for place in places))


def _reasons(sized: _Sized, places: Sequence[NDArray[np.int64]], legal: NDArray[np.bool_]) -> Any:
    """Why points are not legal, each told as the ledger tells it."""
    found: list[str | None] = [None] * legal.size
    for at, good in enumerate(legal.tolist()):
        if not good:
            found[at] = sized.points.alone(sized.whole(places, at))[1]
    return _objects(found)


def _without_sizes(model: Model) -> Model:
    """What variants of one structure have in common."""
    sizes: dict[str, Any] = {name: None if getattr(model, name) is None else 0 for name in SIZES}
    return model._replace(**sizes)


def _count(axes: Sequence[Any], of_model: Sequence[int]) -> int:
    return prod(len(axes[at].texts) for at in of_model)


def _places(start: int, count: int, lengths: Sequence[int]) -> list[NDArray[np.int64]]:
    """For each axis the places of points ``start`` to ``start + count``, the last axis fastest."""
    import numpy as np

    found = []
    rest = np.arange(start, start + count)
    for length in reversed(lengths):
        if length == 1:
            found.append(np.zeros(1, dtype=np.int64).repeat(count))
        else:
            found.append(rest % length)
            rest = rest // length
    return found[::-1]


def _legal_alone(columns: dict[str, Any]) -> dict[str, Any]:
    """The same with None for the results of points that are not legal; where all are not, of all."""
    legal = columns["legal"]
    if legal.all():
        return columns
    return {
        name: column if name in ("legal", REASON) or not hasattr(column, "dtype") else _unknown(column, legal)
        for name, column in columns.items()
    }


def _unknown(column: Any, legal: NDArray[np.bool_]) -> Any:
    import numpy as np

    if column.dtype != object:
        return np.ma.array(column, mask=~legal)
    known = column.copy()
    known[~legal] = None  # what was numbers until a value of another type came has zeros there
    return known


def _shown(axis: Axis) -> NDArray[Any]:
    """The values of an axis as lines show them."""
    import numpy as np

    whole = all(type(value) is int and abs(value) < 2**62 for value in axis.shown)
    return np.array(axis.shown, dtype=np.int64) if whole else _objects(axis.shown)


def _objects(values: Sequence[object]) -> NDArray[Any]:
    import numpy as np

    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found
