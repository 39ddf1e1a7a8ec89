"""A mesh laid on a machine: what one collective over some of its axes costs there, or how many bytes it sends.

Ranks are laid on the devices in the order of the mesh, its last axis innermost. Without a network there are bytes only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import prod

from commcalc.algebra.collective import Convention, Kind, wire_bytes
from commcalc.algebra.mesh import Mesh
from commcalc.errors import UsageError
from commcalc.network.cost import Algorithm
from commcalc.network.hierarchy import Priced, price
from commcalc.network.link import Network
from commcalc.network.placement import MOST_LAID_OUT, Placement, place, place_axes


class Fabric:
    """Prices of collectives over the axes of ``mesh`` on ``network``."""

    def __init__(
        self,
        mesh: Mesh,
        network: Network | None = None,
        algorithm: Algorithm = Algorithm.AUTO,
        convention: Convention = Convention.EXACT,
    ) -> None:
        self.mesh = mesh
        self.network = network
        self.algorithm = algorithm
        self.convention = convention
        self._placed: dict[tuple[str, ...], Placement] = {}

    def wire_bytes(self, kind: Kind, axes: Sequence[str], payload_bytes: int) -> int:
        """Bytes that one device sends on a ring."""
        return int(wire_bytes(kind, payload_bytes, self.mesh.size(axes), self.convention))

    def priced(self, kind: Kind, axes: Sequence[str], payload_bytes: int) -> Priced | None:
        """One call with its time; None without a network."""
        if self.network is None:
            return None
        at = self._placement(axes, self.network)
        return price(kind, payload_bytes, at, self.network, self.algorithm, self.convention)

    def seconds(self, kind: Kind, axes: Sequence[str], payload_bytes: int) -> float:
        """Seconds of one call; `UsageError` without a network."""
        found = self.priced(kind, axes, payload_bytes)
        if found is None:
            raise UsageError("no time without a network", hint="add --hardware or --bandwidth")
        return float(found.cost.time_s)

    def _placement(self, axes: Sequence[str], network: Network) -> Placement:
        chosen = tuple(name for name, _ in self.mesh.axes if name in set(self.mesh.expand(axes)))
        if chosen not in self._placed:
            self._placed[chosen] = self._lay(chosen, network)
        return self._placed[chosen]

    def _lay(self, axes: tuple[str, ...], network: Network) -> Placement:
        if any(level.axes for level in network.levels):  # it matters which axes of the machine they lie on
            return place_axes(self.mesh.axes, axes, network)
        names = [name for name, _ in self.mesh.axes]
        size = self.mesh.size(axes)
        first = names.index(axes[0])
        if tuple(names[first : first + len(axes)]) == axes:  # one regular stride
            return place(size, self.mesh.stride(axes[-1]), network, self.mesh.devices)
        return _scattered(self.mesh, axes, network)


def _scattered(mesh: Mesh, axes: tuple[str, ...], network: Network) -> Placement:
    """Where a group over axes that are not neighbours lies; its members by domain of each level, the worst group's."""
    if mesh.devices > MOST_LAID_OUT:
        raise UsageError(f"{mesh.devices} devices are too many to lay out groups over {', '.join(axes)}")
    strides = {name: mesh.stride(name) for name, _ in mesh.axes}
    sizes = dict(mesh.axes)
    offsets = [
        sum(at * strides[name] for at, name in zip(place, axes, strict=True))
        for place in product(*(range(sizes[name]) for name in axes))
    ]
    others = [name for name, _ in mesh.axes if name not in axes]
    starts = [
        sum(at * strides[name] for at, name in zip(place, others, strict=True))
        for place in product(*(range(sizes[name]) for name in others))
    ]
    parts: list[tuple[int, int]] = []
    joined, size = 1, prod(sizes[name] for name in axes)
    for index, level in enumerate(network.levels):
        worst = [size]
        if level.devices is not None:
            spreads = (list(Counter((start + at) // level.devices for at in offsets).values()) for start in starts)
            worst = max(spreads, key=lambda members: (len(members), -min(members)))
        if min(worst) != max(worst):
            outer = index + 1
            while outer < len(network.levels) and (network.levels[outer].devices or mesh.devices) < mesh.devices:
                outer += 1
            if outer == len(network.levels):
                break
            return Placement(size, ((outer, size),), uneven=True, channels=min(worst))
        if worst[0] > joined:
            parts.append((index, worst[0] // joined))
            joined = worst[0]
        if joined == size:
            return Placement(size, tuple(parts))
    return place(mesh.devices, 1, network, mesh.devices)  # raises: the mesh does not fit
