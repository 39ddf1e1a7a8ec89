"""The mesh: a named logical grid of devices, and the rank groups of its axes."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from commcalc.errors import ShardingError, UnknownName


class Mesh(NamedTuple):
    """Axes with their sizes, slowest-varying rank first: ``Mesh.of({"dp": 4, "tp": 8})`` keeps TP ranks adjacent.

    ``parts`` records axes that were split in two: ``("tp", ("tp_kv", "tp_rep"))``.
    """

    axes: tuple[tuple[str, int], ...]
    parts: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, sizes: Mapping[str, int]) -> "Mesh":
        """The mesh with these axes; `ShardingError` where a size is below 1."""
        for name, size in sizes.items():
            if size < 1:
                raise ShardingError(f"axis {name} has size {size}; a mesh axis holds at least one device")
        return cls(tuple(sizes.items()))

    @property
    def sizes(self) -> dict[str, int]:
        """Axis name to size, the undivided axes included."""
        own = dict(self.axes)
        return own | {whole: prod(own[part] for part in parts) for whole, parts in self.parts}

    @property
    def devices(self) -> int:
        """How many devices the mesh has.

        >>> Mesh.of({"dp": 4, "tp": 8}).devices
        32
        """
        return prod(size for _, size in self.axes)

    def size(self, axes: Sequence[str]) -> int:
        """Devices in one group over ``axes``; 1 for no axis."""
        sizes = self.sizes
        for name in axes:
            if name not in sizes:
                raise UnknownName("mesh axis", name, sizes)
        return prod(sizes[name] for name in axes)

    def divide(self, axis: str, parts: Mapping[str, int]) -> "Mesh":
        """The same devices with ``axis`` seen as several axes, slowest first.

        >>> Mesh.of({"tp": 16}).divide("tp", {"tp_kv": 8, "tp_rep": 2}).axes
        (('tp_kv', 8), ('tp_rep', 2))
        """
        if prod(parts.values()) != self.size([axis]):
            raise ShardingError(f"axis {axis} of size {self.size([axis])} is no product of {dict(parts)}")
        axes: list[tuple[str, int]] = []
        for name, size in self.axes:
            axes += parts.items() if name == axis else [(name, size)]
        return Mesh(tuple(axes), (*self.parts, (axis, tuple(parts))))

    def label(self, axes: Sequence[str]) -> tuple[str, ...]:
        """``axes`` with complete divided axes under their own name: ``(tp_kv, tp_rep)`` is ``(tp,)``.

        The parts must stand together and in their order: a dimension split over ``(tp_rep, tp_kv)`` is another split.
        """
        shown = list(axes)
        for whole, parts in self.parts:
            for at in range(len(shown) - len(parts) + 1):
                if tuple(shown[at : at + len(parts)]) == parts:
                    shown[at : at + len(parts)] = [whole]
        return tuple(shown)

    def owner(self, axis: str) -> str:
        """The undivided axis that ``axis`` is, or is a part of."""
        return next((whole for whole, parts in self.parts if axis in parts), axis)

    def expand(self, axes: Sequence[str]) -> tuple[str, ...]:
        """``axes`` with divided axes replaced by their parts."""
        divided = dict(self.parts)
        return tuple(part for name in axes for part in divided.get(name, (name,)))

    def groups(self, axes: Sequence[str]) -> list[tuple[int, ...]]:
        """Ranks of every group over ``axes``, groups and members in rank order.

        >>> Mesh.of({"dp": 2, "tp": 4}).groups(["dp"])
        [(0, 4), (1, 5), (2, 6), (3, 7)]
        """
        self.size(axes)
        chosen = set(self.expand(axes))
        found: dict[tuple[int, ...], list[int]] = {}
        for rank, place in enumerate(product(*(range(size) for _, size in self.axes))):
            rest = tuple(at for at, (name, _) in zip(place, self.axes, strict=True) if name not in chosen)
            found.setdefault(rest, []).append(rank)
        return [tuple(group) for group in found.values()]

    def stride(self, axis: str) -> int:
        """Distance in ranks between neighbours on ``axis`` (for a divided axis: on its fastest part)."""
        fastest = self.expand([axis])[-1]
        names = [name for name, _ in self.axes]
        return prod(size for _, size in self.axes[names.index(fastest) + 1 :])
