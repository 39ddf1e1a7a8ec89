"""The sharding of one tensor: which mesh axes split which dimension, and over which it is still a partial sum."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple, Self

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.size import Product, Size, size_of
from commcalc.errors import ShardingError


class _Split(NamedTuple):
    """The parts of a `Sharding`, unchecked."""

    dims: tuple[str, ...]
    split: tuple[tuple[str, ...], ...]
    unreduced: tuple[str, ...] = ()


class Sharding(_Split):
    """``A[I_X, J_{YZ}]{U_W}``: ``dims`` ``(I, J)``, ``split`` ``((X,), (Y, Z))``, ``unreduced`` ``(W,)``.

    A mesh axis may be spent once: on one dimension or on the pending sum. `ShardingError` otherwise. The axes of the
    pending sum have no order and are kept sorted, so that equal shardings compare equal.
    """

    __slots__ = ()

    def __new__(
        cls, dims: tuple[str, ...], split: tuple[tuple[str, ...], ...], unreduced: tuple[str, ...] = ()
    ) -> Self:
        """Check it, and put the pending sum in order."""
        if len(dims) != len(split):
            raise ShardingError(f"{len(dims)} dimensions but {len(split)} splits")
        if len(set(dims)) != len(dims):
            raise ShardingError(f"a dimension is named twice in [{', '.join(dims)}]")
        spent: dict[str, str] = {}
        uses = [(dim, axis) for dim, axes in zip(dims, split, strict=True) for axis in axes]
        for place, axis in [*uses, *(("the pending sum", axis) for axis in unreduced)]:
            if axis in spent:
                raise ShardingError(
                    f"axis {axis} is used twice in one tensor: on {spent[axis]} and on {place}",
                    hint="a device has one position on an axis, so only the diagonal blocks could be held; "
                    f"split {place} over another axis or leave it whole",
                )
            spent[axis] = place
        return super().__new__(cls, dims, split, tuple(sorted(unreduced)))

    @classmethod
    def of(cls, dims: Sequence[str], axes: Mapping[str, tuple[str, ...]], unreduced: Sequence[str] = ()) -> "Sharding":
        """The sharding of a tensor with ``dims``, each split over ``axes[dim]`` where that is given."""
        return cls(tuple(dims), tuple(axes.get(dim, ()) for dim in dims), tuple(unreduced))

    def axes_of(self, dim: str) -> tuple[str, ...]:
        """The axes that split ``dim``; none where the tensor has no such dimension."""
        return next((axes for name, axes in zip(self.dims, self.split, strict=True) if name == dim), ())

    @property
    def placed(self) -> dict[str, str]:
        """Every axis that splits a dimension, with that dimension."""
        return {axis: dim for dim, axes in zip(self.dims, self.split, strict=True) for axis in axes}

    @property
    def varying(self) -> tuple[str, ...]:
        """The axes along which devices hold different data: those that split it, and those of the pending sum."""
        return (*(axis for axes in self.split for axis in axes), *self.unreduced)

    def with_dim(self, dim: str, axes: Sequence[str]) -> "Sharding":
        """The same with ``dim`` split over ``axes`` instead."""
        split = tuple(tuple(axes) if name == dim else old for name, old in zip(self.dims, self.split, strict=True))
        return Sharding(self.dims, split, self.unreduced)

    def reduced(self, unreduced: Sequence[str] = ()) -> "Sharding":
        """The same with only ``unreduced`` as its pending sum."""
        return Sharding(self.dims, self.split, tuple(unreduced))

    def local_elements(self) -> Product:
        """Elements that one device holds, as a formula."""
        return Product(1, self.dims, tuple(axis for axes in self.split for axis in axes))

    def local_size(self, bits: int) -> Size:
        """Bytes that one device holds, as a formula."""
        return Size((self.local_elements(),), bits)

    def state(self) -> str:
        """``partial``, ``sharded`` or ``replicated``: the three kinds of data a device can hold."""
        if self.unreduced:
            return "partial"
        return "sharded" if any(self.split) else "replicated"


def local_shape(sharding: Sharding, sizes: Mapping[str, int], mesh: Mesh) -> tuple[int, ...]:
    """Shape of the block that one device holds; `ShardingError` naming the remainder where a size does not divide.

    >>> A = Sharding(("I", "J"), (("X", "Y"), ()))
    >>> local_shape(A, {"I": 128, "J": 2048}, Mesh.of({"X": 2, "Y": 8, "Z": 2}))
    (8, 2048)
    """
    shape = []
    for dim, axes in zip(sharding.dims, sharding.split, strict=True):
        size, ways = size_of(dim, sizes), mesh.size(axes)
        if size % ways:
            over = ", ".join(f"{name}={mesh.size([name])}" for name in axes)
            raise ShardingError(
                f"dimension {dim} of size {size} does not split {ways} ways: {size} mod {ways} = {size % ways}",
                context=f"mesh: {over}",
                hint=f"the {nearest(size, ways)}",
            )
        shape.append(size // ways)
    return tuple(shape)


def nearest(size: int, ways: int) -> str:
    """The sizes around ``size`` that split ``ways`` ways, in words.

    >>> nearest(10, 4), nearest(8, 16)
    ('nearest sizes that divide are 8 and 12', 'smallest size that divides is 16')
    """
    below = size - size % ways
    if not below:
        return f"smallest size that divides is {ways}"
    return f"nearest sizes that divide are {below} and {below + ways}"


def bytes_per_device(sharding: Sharding, sizes: Mapping[str, int], mesh: Mesh, bits: int) -> int:
    """Bytes that one device holds; a fraction of a byte at the end is rounded up."""
    return -(-prod(local_shape(sharding, sizes, mesh)) * bits // 8)


def shards(sharding: Sharding, mesh: Mesh) -> int:
    """Into how many different blocks the tensor is cut."""
    return mesh.size([axis for axes in sharding.split for axis in axes])


def replicas(sharding: Sharding, mesh: Mesh) -> int:
    """How many devices hold each block (each term of the sum, where one is pending)."""
    return mesh.devices // (shards(sharding, mesh) * mesh.size(sharding.unreduced))
