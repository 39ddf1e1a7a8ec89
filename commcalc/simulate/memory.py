"""What a simulation may take: refused before anything is allocated, with the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.sharding import Sharding
from commcalc.errors import UsageError
from commcalc.units import format_binary

# Devices that one process plays in turn: rings take as many rounds as they have members, each of as many messages.
MOST_DEVICES = 4096
# Bytes that all simulated devices may hold together.
MOST_BYTES = 2 * 2**30
# Every element is held in 8 bytes, whatever format it is rounded to in between.
ELEMENT_BYTES = 8
# Of one numpy array beside its elements, and of its place in a list (measured: 112 and up to 100 bytes).
_PIECE_BYTES = 200


def check_devices(mesh: Mesh) -> None:
    """`UsageError` where a mesh has more devices than are simulated."""
    if mesh.devices > MOST_DEVICES:
        raise UsageError(
            f"a mesh of {mesh.devices} devices is too large to simulate; at most {MOST_DEVICES}",
            where=", ".join(f"{name}={size}" for name, size in mesh.axes),
            hint="a smaller mesh of the same axes goes through the same steps",
        )


def check_memory(elements: int, where: str, hint: str) -> None:
    """`UsageError` where all devices together would hold more than the limit; ``elements`` is an estimate."""
    needed = elements * ELEMENT_BYTES
    if needed > MOST_BYTES:
        raise UsageError(
            f"this would take about {format_binary(needed)} of memory; the limit is {format_binary(MOST_BYTES)}",
            where=where,
            hint=hint,
        )


def held(shardings: Iterable[Sharding], mesh: Mesh, sizes: Mapping[str, int]) -> int:
    """Elements that all devices hold of these tensors together."""
    local = 0
    for sharding in shardings:
        ways = mesh.size([axis for axes in sharding.split for axis in axes])
        local += -(-prod(sizes[dim] for dim in sharding.dims) // ways)
    return local * mesh.devices


def pieces(group: int, mesh: Mesh) -> int:
    """What arrays cost beside their elements, in elements: every member of a group holds a piece for every other."""
    return group * mesh.devices * _PIECE_BYTES // ELEMENT_BYTES
