"""Sweeps that were measured on a level of a hardware file: points, or the constants of a law.

    measured:
    - collective: all_reduce
      ranks: 8
      source: aic_h100_sxm_nccl_2.29.2
      points: 8KiB 16.02us, 16KiB 16.33us, 32KiB 17.15us
    - {collective: all_gather, ranks: 8, t0: 10.6 us, sqrt: 5.1 ns, bandwidth: 366 GB/s}

A point is payload (as nccl-tests counts it) and time of one call; ``sqrt`` the time of one root of a byte on the bus.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from commcalc.algebra.collective import Kind
from commcalc.catalog.fields import Field, flag, one_of, rate, scalar_of, seconds, size, text, whole
from commcalc.catalog.presets import OF_THE_LINK
from commcalc.document import Items, Node, Section
from commcalc.errors import CommcalcError, SpecError, UnknownName
from commcalc.network.law import Law
from commcalc.network.link import KERNELS, Algorithm, Level
from commcalc.network.measured import Sweep
from commcalc.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from commcalc.catalog.levels import Reading

MOST_POINTS = 10_000
_SHORTEST_S = 1e-9
FIELDS = {
    "collective": one_of(Kind),
    "ranks": Field(whole, like="8"),
    "nodes": Field(whole, like="2"),
    "algorithm": Field(text, like="measured"),
    "up_to": Field(size, like="256 KiB"),
    "same_machine": Field(flag, like="true"),
    "rows": Field(whole, like="12"),
    "source": Field(text, like="the log's name"),
    "t0": Field(seconds, like="15 us"),
    "sqrt": Field(seconds, like="7.8 ns"),
    "bandwidth": Field(rate, like="512 GB/s"),
}
POINT = re.compile(
    r"\s*(\d[\d.]*(?:e\+?\d+)?\s*[A-Za-z]*)\s+(\d[\d.]*(?:e[+-]?\d+)?\s*[A-Za-zµ]+)\s*$", re.ASCII | re.IGNORECASE
)
_HINT = "points: 8 KiB 16 us, 64 KiB 19 us, 1 MiB 25 us"


def read_measured(
    node: Node | None, path: str, inside: int, outside: int | None, reading: Reading
) -> tuple[Sweep, ...]:
    """The sweeps of a level that joins domains of ``inside`` devices to one of ``outside``; all wrong is collected."""
    if node is None:
        return ()
    if not isinstance(node, Items):
        reading.problems.append(
            SpecError("a list of sweeps is expected here", where=f"{node.where} {path}", hint=_HINT)
        )
        return ()
    found: list[Sweep] = []
    for index, item in enumerate(node.items):
        try:
            sweep = _sweep(item, f"{path}.{index}", inside, outside, reading)
        except CommcalcError as problem:
            reading.problems += problem.problems
            continue
        if sweep is not None:
            found.append(sweep)
    seen: set[tuple[object, ...]] = set()
    for sweep in found:
        key = (sweep.kind, sweep.ranks, sweep.domains, sweep.algorithm)
        if key in seen:
            told = f"{sweep.kind} over {sweep.ranks} is there twice"
            reading.problems.append(SpecError(told, where=f"{node.where} {path}", hint="keep one of the sweeps"))
        seen.add(key)
    return tuple(found)


def _sweep(item: Node, path: str, inside: int, outside: int | None, reading: Reading) -> Sweep | None:
    before = len(reading.problems)
    values = reading.section(item, FIELDS, path, ("points",))
    if not isinstance(item, Section):
        return None
    for key in ("collective", "ranks"):
        if key not in item.entries:
            raise SpecError(f"{path}.{key} is missing", where=item.where, hint=f"add {key}")
    law = _law(values, item, path)
    points = _points(item.entries.get("points"), f"{path}.points")
    if len(reading.problems) > before:
        return None
    if bool(points) == (law is not None):
        raise SpecError("a sweep has points, or the constants of a law", where=f"{item.where} {path}", hint=_HINT)
    name = values.get("algorithm", Algorithm.MEASURED)
    if name not in KERNELS:
        raise UnknownName("measured algorithm", str(name), KERNELS, where=f"{item.where} {path}.algorithm")
    kind, ranks = values["collective"], values["ranks"]
    if kind in (Kind.SLICE, Kind.PERMUTE):
        raise SpecError(f"{kind} is no call of a library", where=f"{item.where} {path}.collective",
                        hint="all_reduce, all_gather, reduce_scatter, all_to_all, send_recv or broadcast")  # fmt: skip
    domains = values.get("nodes", ranks if inside == 1 else max(ranks // inside, 1))
    wrong = _misplaced(ranks, domains, inside, outside)
    if wrong:
        raise SpecError(wrong, where=f"{item.where} {path}.ranks", hint="nodes: how many domains took part")
    return Sweep(
        kind, ranks, domains, points, law, Algorithm(name), values.get("up_to"),
        values.get("same_machine", False), values.get("rows", 0), values.get("source", ""),
    )  # fmt: skip


def _misplaced(ranks: int, domains: int, inside: int, outside: int | None) -> str:
    """Why no group lies like this on the level, whose domains hold ``outside`` devices; empty where one does."""
    if ranks < 2:
        return "one rank sends nothing"
    if inside == 1 and domains != ranks:
        return f"{domains} nodes of a level whose domains are single devices: {ranks} ranks lie on {ranks}"
    if domains < 2 or ranks % domains or ranks // domains > inside:
        return f"{ranks} ranks do not lie evenly in {domains} domains of {inside} devices, as groups of the level do"
    if outside is not None and domains * inside > outside:
        return f"{ranks} ranks in {domains} domains of {inside} devices do not fit into the {outside} of the level"
    return ""


def _law(values: dict[str, Any], item: Section, path: str) -> Law | None:
    given = [key for key in ("t0", "sqrt", "bandwidth") if key in item.entries]
    if not given:
        return None
    if "bandwidth" not in given or "t0" not in given:
        raise SpecError(
            "a law needs t0 and bandwidth", where=f"{item.where} {path}", hint="t0: 15 us, bandwidth: 512 GB/s"
        )
    if not values.keys() >= {*given}:
        return None  # what is wrong with them is told
    return Law(values["t0"], values.get("sqrt", 0.0), values["bandwidth"])


def _points(node: Node | None, path: str) -> tuple[tuple[int, float], ...]:
    """Payload and time of every point; sizes must grow and times must not fall."""
    if node is None:
        return ()
    where = f"{node.where} {path}"
    if isinstance(node, Items):
        parts = [_pair(item, where) for item in node.items]
    else:
        parts = [_split(part, where) for part in scalar_of(node, where).text.split(",")]
    if not 2 <= len(parts) <= MOST_POINTS:
        told = "one point fixes no line" if len(parts) == 1 else f"{len(parts)} points; 2 to {MOST_POINTS} are read"
        raise SpecError(told, where=where, hint=_HINT)
    points = []
    for bytes_, took in parts:
        try:
            points.append((parse_bytes(bytes_), parse_seconds(took)))
        except CommcalcError as problem:
            raise SpecError(problem.message, where=where, hint=problem.hint or _HINT) from None
    for (low, early), (high, late) in itertools.pairwise(points):
        if high <= low:
            raise SpecError(f"sizes must grow: {high} B follows {low} B", where=where, hint="sort them; one time each")
        if early < _SHORTEST_S:
            raise SpecError(f"{early:.6g} s is no time of a call", where=where, hint="none takes less than 1 ns")
        if late < early:
            told = f"times must not fall: {late:.6g} s at {high} B follows {early:.6g} s"
            raise SpecError(told, where=where, hint="commcalc calibrate evens out what noise there is")
    return tuple(points)


def _pair(item: Node, where: str) -> tuple[str, str]:
    if not isinstance(item, Items) or len(item.items) != 2:
        raise SpecError("a point is [payload, time]", where=where, hint="points: [[8 KiB, 16 us], [64 KiB, 19 us]]")
    one, other = (scalar_of(part, where).text for part in item.items)
    return one, other


def _split(part: str, where: str) -> tuple[str, str]:
    found = POINT.match(part) if len(part) < 100 else None
    if found is None:
        raise SpecError(f"{part.strip()[:60]!r} is no point", where=where, hint=_HINT)
    return found.group(1), found.group(2)


def replaced(item: Section, measured: Node) -> bool:
    """Whether an option changed the link after the sweeps were taken: they say nothing of the new one."""
    changed = [node for key in OF_THE_LINK if (node := item.entries.get(key)) is not None]
    return not measured.where.startswith("--") and any(node.where.startswith("--") for node in changed)


def sweep_values(level: Level, *, points: bool) -> list[dict[str, object]]:
    """The sweeps of a level as plain data in SI units; without ``points`` only how many there are."""
    found: list[dict[str, object]] = []
    for sweep in level.measured:
        values: dict[str, object] = {
            "collective": sweep.kind, "ranks": sweep.ranks, "domains": sweep.domains, "algorithm": sweep.algorithm,
            "up_to_bytes": sweep.most_bytes, "same_machine": sweep.own, "source": sweep.source or None,
            "sizes": len(sweep.points) or sweep.rows or None,
        }  # fmt: skip
        if sweep.law is not None:
            law = sweep.law
            values |= {"t0_s": law.t0_s, "c_s_per_sqrt_byte": law.c, "bandwidth_bytes_per_s": law.bandwidth}
        elif points:
            values["points"] = [{"payload_bytes": size_, "time_s": time} for size_, time in sweep.points]
        found.append(values)
    return found
