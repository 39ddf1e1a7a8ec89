"""A mesh laid on a machine: what one collective over some of its axes costs there, or how many bytes it sends.

Ranks are laid on the devices in the order of the mesh, its last axis innermost. Without a network there are bytes only.
"""

from __future__ import annotations

from collections.abc import Sequence

from commcalc.algebra.collective import Convention, Kind, wire_bytes
from commcalc.algebra.mesh import Mesh
from commcalc.errors import CommcalcError, UsageError
from commcalc.network.cost import Algorithm
from commcalc.network.hierarchy import Priced, price
from commcalc.network.link import Network
from commcalc.network.placement import Placement, place_axes


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
        self._refused: dict[tuple[str, ...], CommcalcError | None] = {}
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

    def refuses(self, axes: Sequence[str]) -> CommcalcError | None:
        """Why the groups over ``axes`` cannot be laid on the network; None where they can, and without a network."""
        if self.network is None:
            return None
        chosen = tuple(axes)
        if chosen not in self._refused:
            self._refused[chosen] = None
            try:
                self._placement(axes, self.network)
            except CommcalcError as problem:
                self._refused[chosen] = problem
        return self._refused[chosen]

    def seconds(self, kind: Kind, axes: Sequence[str], payload_bytes: int) -> float:
        """Seconds of one call; `UsageError` without a network."""
        found = self.priced(kind, axes, payload_bytes)
        if found is None:
            raise UsageError("no time without a network", hint="add --hardware or --bandwidth")
        return float(found.cost.time_s)

    def _placement(self, axes: Sequence[str], network: Network) -> Placement:
        chosen = tuple(name for name, _ in self.mesh.axes if name in set(self.mesh.expand(axes)))
        if chosen not in self._placed:
            self._placed[chosen] = place_axes(self.mesh.axes, chosen, network)
        return self._placed[chosen]
