"""A machine alone, as the commands that price one collective ask for it: a hardware file and what options change."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from commcalc.catalog.hardware import Hardware
from commcalc.catalog.job import Links, Request, resolve_links
from commcalc.catalog.levels import joined_problem, nesting_problem, shape_of
from commcalc.errors import SpecError, UsageError, raise_all
from commcalc.network.link import Network, Topology
from commcalc.network.torus import slice_problem


class Machine(NamedTuple):
    """The machine, and the links that its values were resolved in."""

    hardware: Hardware
    links: Links


def machine(request: Request, shape: str | None = None) -> Machine:
    """The machine of a request, with the slice of its torus replaced by ``shape``.

    Raises `UsageError` where nothing names a link, and all that is wrong with the file and the values.
    """
    foreign = [one for one in request.assignments if one.path.partition(".")[0] not in ("hardware", "links")]
    raise_all([UsageError(f"one collective does not depend on {one.path[:60]}", where=one.origin) for one in foreign])
    if request.hardware is None and not request.bandwidths:
        raise UsageError(
            "no links are given", where="the command line", hint="--hardware h100-sxm, or --bandwidth 450GB/s"
        )
    links = resolve_links(request)
    found = links.hardware
    if found is None:  # nothing but an empty file says so, and its reader has told
        raise UsageError("no links are given", where=f"--hardware {request.hardware}")
    return Machine(found if shape is None else sliced(found, shape), links)


def sliced(hardware: Hardware, text: str) -> Hardware:
    """The machine with another slice of its torus."""
    where = f"--shape {text[:60]}"
    levels = list(hardware.network.levels)
    at = next((index for index, level in enumerate(levels) if level.topology is Topology.TORUS), None)
    if at is None:
        names = ", ".join(f"{level.name} ({level.topology})" for level in levels)
        raise UsageError(f"{hardware.name} has no torus: {names}", where=where, hint="leave --shape out")
    level = levels[at]._replace(shape=shape_of(text, where))
    devices = hardware.network.inside(at)
    for size in level.shape:
        devices *= size
    told = joined_problem(level)
    if told is not None:
        raise SpecError(told, where=where, hint=f"a shape of {len(level.joined)} axes, as the hardware file has")
    problem = slice_problem(level)
    if problem is not None:
        raise SpecError(problem[0], where=where, hint=problem[1])
    levels[at] = level._replace(devices=devices)
    raise_all(
        [
            SpecError(told, where=where, hint="a smaller slice, or one that divides it")
            for inner, outer in pairwise(levels)
            if (told := nesting_problem(inner, outer)) is not None
        ]
    )
    return hardware._replace(network=Network(tuple(levels)))
