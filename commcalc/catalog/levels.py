"""The levels of a hardware file's network: their fields, what must go together, and what does not."""

import itertools
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from commcalc.catalog.fields import Field, flag, label, one_of, rate, read_section, scalar_of, seconds, whole
from commcalc.document import Items, Leaf, Node, Section
from commcalc.errors import CommcalcError, SpecError, UnitError, UnknownName
from commcalc.network.link import Algorithm, InNetworkReduction, Level, Topology, Wraparound

if TYPE_CHECKING:
    from commcalc.network.measured import Sweep

MOST_AXES = 8
_HINT = "list levels innermost first: - {name: nvlink, devices: 8, bandwidth: 450 GB/s, latency: 3 us}"


def times(leaf: Leaf) -> float:
    """A ratio of at least 1: ``2``, ``1.5`` or ``2:1``."""
    text = leaf.text.removesuffix(":1")
    value = float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII) else math.nan
    if isinstance(leaf.value, bool) or not value >= 1:
        raise UnitError(f"{leaf.text[:60]!r} is no ratio of at least 1", hint="write it like 2 or 2:1")
    return value


LEVEL = {
    "name": Field(label, like="nvlink"),
    "topology": one_of(Topology),
    "devices": Field(whole, like="8"),
    "bandwidth": Field(rate, like="450 GB/s"),
    "latency": Field(seconds, like="3 us"),
    "two_way": Field(flag, like="true"),
    "shared_by": Field(whole, like="8"),
    "oversubscription": Field(times, like="2 or 2:1"),
}
IN_NETWORK = {
    "latency": Field(seconds, like="25 us"),
    "min_ranks": Field(whole, like="5"),
    "own_copy": Field(flag, like="true"),
}
LISTS = ("shape", "pod", "algorithms", "wraparound")
READ_ELSEWHERE = ("in_network_reduction", "measured")


def level_values(level: Level, *, points: bool = False) -> dict[str, object]:
    """A level as plain data in SI units; what only some levels have stands there where it is set."""
    sums = level.in_network
    found: dict[str, object] = {
        "name": level.name,
        "topology": level.topology,
        "devices": level.devices,
        "bandwidth_bytes_per_s": level.bandwidth,
        "latency_s": level.latency_s,
        "in_network_reduction": None
        if sums is None
        else {"latency_s": sums.latency_s, "min_ranks": sums.min_ranks}
        | ({} if sums.own_copy else {"own_copy": False}),
    }
    if level.topology is Topology.TORUS:
        from commcalc.network.torus import wraps

        found |= {
            "shape": list(level.shape),
            "wraparound": list(level.joined) or level.wraparound,
            "wraps": list(wraps(level)),
        }
    if level.pod:
        found["pod"] = list(level.pod)
    if level.topology is Topology.RING:
        found["two_way"] = level.two_way
    if level.shared_by > 1:
        found["shared_by"] = level.shared_by
    if level.oversubscription > 1:
        found["oversubscription"] = level.oversubscription
    if level.algorithms:
        found["algorithms"] = list(level.algorithms)
    if level.measured:
        from commcalc.catalog.measured import sweep_values

        found["measured"] = sweep_values(level, points=points)
    return found


class Reading:
    """Collects values, sources and problems of one hardware mapping."""

    def __init__(self) -> None:
        self.sources: dict[str, str] = {}
        self.problems: list[CommcalcError] = []

    def section(
        self, node: Node, fields: Mapping[str, Field], path: str, others: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """The values of a mapping; ``others`` are known keys that are read elsewhere."""
        if not isinstance(node, Section):
            self.problems.append(SpecError("a mapping is expected here", where=f"{node.where} {path}"))
            return {}
        known = {**fields, **dict.fromkeys(others, Field(label))}
        for key in [key for key in node.entries if key not in known]:
            self.problems.append(UnknownName(f"key in {path}", key, known, where=node.keys[key]))
        rest = {key: one for key, one in node.entries.items() if key in fields}
        read = read_section(Section(node.where, rest, node.keys), fields, path)
        self.sources |= {f"{path.removeprefix('hardware.')}.{key}": where for key, where in read.sources.items()}
        self.problems += read.problems
        return read.values


def read_levels(section: Section, reading: Reading) -> list[Level]:
    """The levels of a hardware mapping, innermost first; what is wrong is collected."""
    node = section.entries.get("network")
    if not isinstance(node, Items) or not node.items:
        place = section.where if node is None else node.where
        told = "hardware.network is missing" if node is None else "hardware.network is no list with a level in it"
        reading.problems.append(SpecError(told, where=place, hint=_HINT))
        return []
    levels: list[Level] = []
    for index, item in enumerate(node.items):
        level = _level(item, index, reading, levels[-1] if levels else None)
        if level is not None:
            levels.append(level)
    for inner, outer in itertools.pairwise(levels):
        loose = nesting_problem(inner, outer)
        if loose is not None:
            reading.problems.append(
                SpecError(
                    loose,
                    where=f"{node.where} hardware.network",
                    hint="list levels innermost first; `devices` counts all devices inside one domain of the level",
                )
            )
    seen = [level.name for level in levels]
    for name in sorted({name for name in seen if seen.count(name) > 1}):
        reading.problems.append(SpecError(f"two levels are called {name!r}", where=f"{node.where} hardware.network"))
    return levels


def nesting_problem(inner: Level, outer: Level) -> str | None:
    """Why ``outer`` does not hold whole domains of ``inner``; None where it does."""
    inside, outside = inner.devices, outer.devices
    if inside is not None and (outside is None or (outside > inside and outside % inside == 0)):
        return None
    return (
        f"level {outer.name} ({outside or 'all'} devices) does not hold whole domains of level "
        f"{inner.name} ({inside or 'all'} devices)"
    )


def joined_problem(level: Level) -> str | None:
    """Why a torus's list of joined axes does not fit its shape; None where it does, or where a rule says."""
    if not level.joined or len(level.joined) == len(level.shape):
        return None
    return f"{len(level.joined)} of {len(level.shape)} axes of the shape have a wraparound"


def _level(item: Node, index: int, reading: Reading, inner: Level | None) -> Level | None:
    if not isinstance(item, Section):
        reading.problems.append(SpecError("a level is a mapping", where=f"{item.where} hardware.network"))
        return None
    named = item.entries.get("name")
    path = f"hardware.network.{named.text if isinstance(named, Leaf) else index}"
    values = reading.section(item, LEVEL, path, (*READ_ELSEWHERE, *LISTS))
    for key in ("name", "bandwidth"):
        if key not in item.entries:
            reading.problems.append(SpecError(f"{path}.{key} is missing", where=item.where, hint=f"add {key}"))
    sums = _in_network(item.entries.get("in_network_reduction"), path, values.get("latency", 0.0), reading)
    shape = _axes(item, "shape", path, reading)
    pod = _axes(item, "pod", path, reading)
    algorithms = _algorithms(item, path, reading)
    rule, joined = _wraparound(item, path, reading)
    if "name" not in values or "bandwidth" not in values:
        return None
    level = Level(
        name=values["name"],
        topology=values.get("topology", Topology.SWITCH),
        devices=values.get("devices"),
        bandwidth=values["bandwidth"],
        latency_s=values.get("latency", 0.0),
        in_network=sums,
        shape=shape,
        wraparound=rule,
        joined=joined,
        pod=pod,
        two_way=values.get("two_way", False),
        shared_by=values.get("shared_by", 1),
        oversubscription=values.get("oversubscription", 1.0),
        algorithms=algorithms,
        measured=_measured(item, path, inner, values.get("devices"), reading),
    )
    return _together(level, item, path, reading, inner)


def _measured(
    item: Section, path: str, inner: Level | None, outside: int | None, reading: Reading
) -> "tuple[Sweep, ...]":
    """What was measured on the level, unless the link was replaced since."""
    node = item.entries.get("measured")
    if node is None:
        return ()
    from commcalc.catalog.measured import read_measured, replaced

    found = read_measured(node, f"{path}.measured", (inner.devices or 1) if inner else 1, outside, reading)
    return () if replaced(item, node) else found


def _together(level: Level, item: Section, path: str, reading: Reading, inner: Level | None) -> Level:
    """The level with what its topology needs and follows from it; what does not go together is told."""

    def wrong(message: str, key: str, hint: str | None = None) -> None:
        node = item.entries.get(key, item)
        reading.problems.append(SpecError(message, where=f"{node.where} {path}.{key}", hint=hint))

    kind = level.topology
    if level.devices is not None and level.shared_by > level.devices:
        wrong(f"{level.shared_by} devices share a port, of {level.devices}", "shared_by", "at most all of the level's")
    if level.wraparound is Wraparound.FULL_POD and not level.pod and kind is Topology.TORUS:
        wrong("full-pod without the pod", "wraparound", "pod: [16, 16], the shape whose axes close")
    if level.in_network is not None and kind is not Topology.SWITCH:
        wrong(f"a {kind} has no switch that could sum", "in_network_reduction")
    for key, owner in (("shape", Topology.TORUS), ("wraparound", Topology.TORUS), ("pod", Topology.TORUS),
                       ("two_way", Topology.RING)):  # fmt: skip
        if key in item.entries and kind is not owner:
            wrong(f"{key} belongs to a {owner}, not to a {kind}", key, f"topology: {owner}, or leave {key} out")
    if kind is Topology.FULL_MESH and level.devices is None:
        wrong("a full mesh needs the number of its devices", "devices", "devices: 8; each then has 7 links")
    if level.measured and kind not in (Topology.SWITCH, Topology.FULL_MESH):
        wrong(f"sweeps on a {kind} are not read: it matters which devices took part", "measured", "leave measured out")
        level = level._replace(measured=())
    for one in level.algorithms:
        if one not in _RUNS[kind]:
            wrong(f"a {kind} cannot run {one}", "algorithms", f"a {kind} runs {', '.join(_RUNS[kind])}")
    if kind is Topology.TORUS:
        if not level.shape:
            if "shape" not in item.entries:
                wrong("a torus needs its shape", "shape", "shape: [16, 16], the devices along each axis")
            return level
        from commcalc.network.torus import slice_problem

        inside = inner.devices or 1 if inner else 1
        count = math.prod(level.shape) * inside
        if level.devices not in (None, count):
            text = "x".join(map(str, level.shape))
            wrong(f"a shape of {text} holds {count} devices, not {level.devices}", "devices", "leave devices out")
        level = level._replace(devices=count)
        told = joined_problem(level)
        if told is not None:
            wrong(told, "wraparound", "one true or false for each axis")
            level = level._replace(joined=())
        problem = slice_problem(level)
        if problem is not None:
            wrong(problem[0], "shape", problem[1])
    return level


_A = Algorithm
_PORTS = (
    _A.RING, _A.PAIRWISE, _A.DIRECT, _A.ONE_SHOT, _A.TWO_SHOT, _A.RECURSIVE_DOUBLING, _A.RECURSIVE_HALVING,
    _A.RABENSEIFNER, _A.BINOMIAL_TREE, _A.DOUBLE_BINARY_TREE, _A.BRUCK, _A.HIERARCHICAL, _A.MEASURED,
)  # fmt: skip
# What a level of each topology may list: what runs on it, and what runs across its domains.
_RUNS: dict[Topology, tuple[Algorithm, ...]] = {
    Topology.SWITCH: (*_PORTS, _A.IN_NETWORK),
    Topology.FULL_MESH: _PORTS,
    Topology.RING: (_A.RING, _A.RING_TWO_WAY, _A.LINE, _A.HIERARCHICAL),
    Topology.LINE: (_A.LINE, _A.HIERARCHICAL),
    Topology.TORUS: (_A.TORUS, _A.RING_TWO_WAY, _A.RING, _A.LINE, _A.HIERARCHICAL),
}


def _axes(item: Section, key: str, path: str, reading: Reading) -> tuple[int, ...]:
    """``[16, 16]`` or ``16x16``."""
    node = item.entries.get(key)
    if node is None:
        return ()
    where = f"{node.where} {path}.{key}"
    try:
        if isinstance(node, Items):
            sizes = _sizes(list(node.items), where)
        else:
            sizes = shape_of(scalar_of(node, where).text, where)
    except CommcalcError as problem:
        reading.problems.append(problem)
        return ()
    reading.sources[f"{path.removeprefix('hardware.')}.{key}"] = node.where
    return sizes


def shape_of(text: str, where: str) -> tuple[int, ...]:
    """The sizes of ``16x16`` or ``[16, 16]``; `SpecError` otherwise."""
    parts = re.split(r"[x,]", text.strip().strip("[]")) if len(text) <= 100 else [text]
    return _sizes([Leaf(part.strip(), part.strip(), where) for part in parts], where)


def _sizes(leaves: list[Node], where: str) -> tuple[int, ...]:
    try:
        sizes = tuple(whole(scalar_of(leaf, where)) for leaf in leaves)
        if not 1 <= len(sizes) <= MOST_AXES:
            raise UnitError(f"{len(sizes)} axes; a torus has 1 to {MOST_AXES}")
        if math.prod(sizes) > 2**40:
            raise UnitError(f"{math.prod(sizes)} devices are more than there are")
    except CommcalcError as problem:
        raise SpecError(problem.message, where=where, hint="write it like [16, 16] or 16x16") from None
    return sizes


def _wraparound(item: Section, path: str, reading: Reading) -> tuple[Wraparound, tuple[bool, ...]]:
    """A rule by name, ``true`` or ``false`` for all axes, or one of them for each axis."""
    node = item.entries.get("wraparound")
    if node is None:
        return Wraparound.ALL, ()
    where = f"{node.where} {path}.wraparound"
    reading.sources[f"{path.removeprefix('hardware.')}.wraparound"] = node.where
    try:
        if isinstance(node, Items):
            return Wraparound.ALL, tuple(flag(scalar_of(one, where)) for one in node.items)
        leaf = scalar_of(node, where)
        if isinstance(leaf.value, bool):
            return (Wraparound.ALL if leaf.value else Wraparound.NONE), ()
        if leaf.text not in Wraparound.__members__.values():
            raise UnknownName("wraparound", leaf.text, [*Wraparound], where=where)
        return Wraparound(leaf.text), ()
    except CommcalcError as problem:
        hint = problem.hint or "true, false, one of them for each axis, or axis-of-16, cubes-of-4, full-pod"
        reading.problems.append(SpecError(problem.message, where=where, hint=hint))
        return Wraparound.ALL, ()


def _algorithms(item: Section, path: str, reading: Reading) -> tuple[Algorithm, ...]:
    """A list of names, or one text with commas between them, as ``--set`` gives it."""
    node = item.entries.get("algorithms")
    if node is None:
        return ()
    found: list[Algorithm] = []
    names: list[Node] = list(node.items) if isinstance(node, Items) else [node]
    if isinstance(node, Leaf) and node.value is not None and len(node.text) <= 400:
        parts = [part.strip() for part in node.text.strip("[]").split(",")]
        names = [Leaf(part, part, node.where) for part in parts]
    for one in names:
        where = f"{one.where} {path}.algorithms"
        try:
            name = scalar_of(one, where).text
            if name not in Algorithm.__members__.values() or name == Algorithm.AUTO:
                raise UnknownName("algorithm", name, [a for a in Algorithm if a is not Algorithm.AUTO], where=where)
            found.append(Algorithm(name))
        except CommcalcError as problem:
            reading.problems.append(problem)
    reading.sources[f"{path.removeprefix('hardware.')}.algorithms"] = node.where
    return tuple(dict.fromkeys(found))


def _in_network(node: Node | None, path: str, latency: float, reading: Reading) -> InNetworkReduction | None:
    """``true``: two steps of the level's latency, up and down; or its own ``{latency, min_ranks, own_copy}``."""
    if node is None:
        return None
    if isinstance(node, Section):
        values = reading.section(node, IN_NETWORK, f"{path}.in_network_reduction")
        return InNetworkReduction(
            latency_s=values.get("latency", 2 * latency),
            min_ranks=values.get("min_ranks", 2),
            own_copy=values.get("own_copy", True),
        )
    where = f"{node.where} {path}.in_network_reduction"
    try:
        given = flag(scalar_of(node, where))
    except CommcalcError as problem:
        reading.problems.append(
            SpecError(problem.message, where=where, hint="true, false or {latency: 25 us, min_ranks: 5}")
        )
        return None
    reading.sources[f"{path.removeprefix('hardware.')}.in_network_reduction"] = node.where
    return InNetworkReduction(latency_s=2 * latency) if given else None
