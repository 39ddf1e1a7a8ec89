"""The published measurements of ``tests/data/measured``, for tests and benchmarks; its README says what they are.

A line of the data is one run of one collective in one placement; a sweep is all of its lines that only a repeated run
or the placement tells apart, with one time per size.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from commcalc.algebra.collective import Kind, wire_ratio

Point = tuple[int, float]
FOLDER = Path(__file__).resolve().parent / "data" / "measured"
FILES = ("libraries", "kernels", "one_node", "several_nodes")
KINDS = {"alltoall": Kind.ALL_TO_ALL, "sendrecv": Kind.SEND_RECV}
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
# Launched or timed otherwise than one process or thread a device in a loop of nccl-tests, or not in order.
APART = frozenset({"one-process", "pytorch", "virtual", "noisy", "faulty"})


class Line(NamedTuple):
    """One line of the data: sizes in bytes, times in seconds."""

    source: str
    system: str
    gpus: int
    nodes: int
    interconnect: str
    kind: Kind
    dtype: str
    in_place: bool
    flags: frozenset[str]
    notes: str
    points: tuple[Point, ...]

    @property
    def kernel(self) -> str:
        """The all-reduce kernel of an inference server; empty for a library of collectives."""
        return self.notes if "kernel" in self.flags else ""


class Measured(NamedTuple):
    """One sweep. ``points`` are (bytes, seconds) by size: out of place where there is that, else in place; the least
    of repeated runs. ``flags`` are explained in the README of the data."""

    source: str
    system: str
    gpus: int
    nodes: int
    interconnect: str
    kind: Kind
    dtype: str
    kernel: str
    flags: frozenset[str]
    notes: str
    points: tuple[Point, ...]

    @property
    def factor(self) -> float:
        """Bytes on the bus per byte of payload."""
        over, under = wire_ratio(self.kind, self.gpus)
        return float(over / under)

    @property
    def int8(self) -> bool:
        """A repetition of a sweep in half precision with bytes: the same payloads."""
        return self.dtype == "int8"

    @property
    def clean(self) -> bool:
        """Nothing in its flags sets it apart."""
        return not self.flags & APART

    def between(self, least: int, most: int) -> tuple[Point, ...]:
        """The points of ``least`` to ``most`` bytes, both included."""
        return tuple(point for point in self.points if least <= point[0] <= most)


@cache
def lines() -> tuple[Line, ...]:
    """Every line of the data, in its order."""
    found = []
    for name in FILES:
        for text in (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines():
            if not text.startswith("#"):
                found.append(_line(text))
    return tuple(found)


@cache
def _sweeps() -> tuple[Measured, ...]:
    groups: dict[tuple[object, ...], list[Line]] = {}
    for line in lines():
        key = (line.source, line.system, line.gpus, line.nodes, line.interconnect, line.kind, line.dtype, line.kernel)
        groups.setdefault(key, []).append(line)
    return tuple(_merged(group) for group in groups.values())


def sweeps() -> list[Measured]:
    """Every sweep of the data."""
    return list(_sweeps())


def _merged(group: list[Line]) -> Measured:
    chosen = [line for line in group if not line.in_place] or group
    least: dict[int, float] = {}
    for line in chosen:
        for size, seconds in line.points:
            least[size] = min(seconds, least.get(size, seconds))
    notes = dict.fromkeys(line.notes.partition("; run ")[0] for line in group if line.notes)
    first = group[0]
    flags = frozenset().union(*(line.flags for line in group))
    return Measured(
        first.source, first.system, first.gpus, first.nodes, first.interconnect, first.kind, first.dtype,
        first.kernel, flags, "; ".join(notes), tuple(sorted(least.items())),
    )  # fmt: skip


def _line(text: str) -> Line:
    source, system, gpus, nodes, interconnect, collective, dtype, place, flags, notes, points = text.split("|")
    return Line(
        source,
        system,
        int(gpus),
        int(nodes),
        interconnect,
        KINDS[collective] if collective in KINDS else Kind(collective),
        dtype,
        place == "in",
        frozenset(flags.split(",")) - {""},
        notes,
        tuple(_point(point) for point in points.split()),
    )


def _point(text: str) -> Point:
    size, _, microseconds = text.partition(":")
    scale = _UNITS.get(size[-1], 1)
    return int(size.rstrip("KMG")) * scale, float(microseconds) * 1e-6
