"""The collectives: what each does to a sharding, its payload, its wire bytes, its transpose.

Payload is the logical buffer of one call on one device by the convention of nccl-tests: the buffer of an AllReduce,
the gathered result of an AllGather, the unreduced input of a ReduceScatter, what one device holds for an AllToAll,
the message of a send. Wire bytes are what one device sends on a ring.
Source: nccl-tests doc/PERFORMANCE.md, "Bus bandwidth".
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from commcalc.algebra.sharding import Sharding
from commcalc.algebra.size import Size, Whole
from commcalc.errors import ShardingError

if TYPE_CHECKING:
    from fractions import Fraction


class Kind(StrEnum):
    """Every kind of move; ``SLICE`` is the free one: each device keeps its part of what it has."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    SEND_RECV = "send_recv"
    PERMUTE = "permute"
    BROADCAST = "broadcast"
    SLICE = "slice"


class Convention(StrEnum):
    """``exact`` keeps the ring's ``(n-1)/n``; ``textbook`` drops it, as the scaling book's large-n limit does."""

    EXACT = "exact"
    TEXTBOOK = "textbook"


def wire_ratio(kind: Kind, n: Whole, convention: Convention = Convention.EXACT) -> tuple[Whole, Whole]:
    """Numerator and denominator of wire bytes per payload byte, for ints or integer arrays ``n``.

        all_gather, reduce_scatter, all_to_all    (n - 1) / n
        all_reduce                               2 (n - 1) / n
        send_recv, permute, broadcast             1

    Source: nccl-tests doc/PERFORMANCE.md; Patarasuk and Yuan 2009. A group of one device sends nothing.
    """
    if kind is Kind.SLICE:
        return 0, 1
    alone = (n > 1) * 1  # 0 for one device, elementwise for arrays
    if kind in (Kind.SEND_RECV, Kind.PERMUTE, Kind.BROADCAST):
        return alone, 1
    passes = 2 if kind is Kind.ALL_REDUCE else 1
    if convention is Convention.TEXTBOOK:
        return passes * alone, 1
    return passes * (n - 1), n


def factor(kind: Kind, n: int, convention: Convention = Convention.EXACT) -> Fraction:
    """Wire bytes per payload byte, exact.

    >>> factor(Kind.ALL_REDUCE, 8)
    Fraction(7, 4)
    """
    from fractions import Fraction

    return Fraction(*wire_ratio(kind, n, convention))


def wire_bytes(kind: Kind, payload_bytes: Whole, n: Whole, convention: Convention = Convention.EXACT) -> Whole:
    """Bytes that one of ``n`` devices sends on a ring; rounded up once where they do not come out whole.

    >>> wire_bytes(Kind.ALL_REDUCE, 134217728, 8)
    234881024
    """
    over, under = wire_ratio(kind, n, convention)
    return -(-payload_bytes * over // under)


class Step(NamedTuple):
    """One collective as a transition: ``before`` becomes ``after`` over ``axes``."""

    kind: Kind
    axes: tuple[str, ...]
    before: Sharding
    after: Sharding

    def payload(self, bits: int) -> Size:
        """Bytes of the logical buffer on one device, as a formula."""
        held = self.after if self.kind is Kind.ALL_GATHER else self.before
        return held.local_size(bits)


def all_reduce(before: Sharding, axes: tuple[str, ...]) -> Step:
    """Finish the pending sum over ``axes``; every device gets the whole: ``C[I]{U_X} -> C[I]``."""
    return Step(Kind.ALL_REDUCE, axes, before, before.reduced(_without(before.unreduced, axes, "unreduced over")))


def all_gather(before: Sharding, dim: str, axes: tuple[str, ...]) -> Step:
    """Complete ``dim``, which ``axes`` split last: ``A[I_X] -> A[I]``."""
    return Step(Kind.ALL_GATHER, axes, before, before.with_dim(dim, _without_last(before, dim, axes)))


def reduce_scatter(before: Sharding, dim: str, axes: tuple[str, ...]) -> Step:
    """Finish the pending sum and keep a part of ``dim``: ``C[I]{U_X} -> C[I_X]``."""
    rest = before.reduced(_without(before.unreduced, axes, "unreduced over"))
    return Step(Kind.REDUCE_SCATTER, axes, before, rest.with_dim(dim, (*rest.axes_of(dim), *axes)))


def all_to_all(before: Sharding, source: str, target: str, axes: tuple[str, ...]) -> Step:
    """Move the split from ``source`` to ``target``: ``A[I_X, J] -> A[I, J_X]``."""
    rest = before.with_dim(source, _without_last(before, source, axes))
    return Step(Kind.ALL_TO_ALL, axes, before, rest.with_dim(target, (*rest.axes_of(target), *axes)))


def keep_slice(before: Sharding, dim: str, axes: tuple[str, ...]) -> Step:
    """Keep a part of ``dim``, free of communication: ``A[I] -> A[I_X]``."""
    return Step(Kind.SLICE, axes, before, before.with_dim(dim, (*before.axes_of(dim), *axes)))


def transpose(step: Step) -> Step | None:
    """The step that carries the gradient back through ``step``; none where nothing moves.

    The gradient of a tensor is whole where the tensor was a partial sum, and a partial sum where a whole tensor was
    used by every device for its own part. So AllGather and ReduceScatter are transposes, an AllReduce needs nothing
    (its output's gradient is already what each term gets), AllToAll goes back, and a slice is gathered again.
    Source: Megatron-LM core/tensor_parallel/mappings.py, the autograd pairs.
    """
    if step.kind is Kind.ALL_REDUCE:
        return None
    if step.kind is Kind.ALL_GATHER:
        (dim,) = _changed(step)
        return reduce_scatter(step.after.reduced((*step.after.unreduced, *step.axes)), dim, step.axes)
    if step.kind is Kind.REDUCE_SCATTER:
        (dim,) = _changed(step)
        return all_gather(step.after, dim, step.axes)
    if step.kind is Kind.SLICE:
        (dim,) = _changed(step)
        return all_gather(step.after, dim, step.axes)
    if step.kind is Kind.ALL_TO_ALL:
        placed = step.after.placed[step.axes[0]], step.before.placed[step.axes[0]]
        return all_to_all(step.after, *placed, step.axes)
    raise ShardingError(f"{step.kind} is no change of sharding")


def _changed(step: Step) -> list[str]:
    pairs = zip(step.before.dims, step.before.split, step.after.split, strict=True)
    return [dim for dim, old, new in pairs if old != new]


def _without(axes: tuple[str, ...], gone: tuple[str, ...], what: str) -> tuple[str, ...]:
    missing = [axis for axis in gone if axis not in axes]
    if missing:
        raise ShardingError(f"the tensor is not {what} {', '.join(missing)}")
    return tuple(axis for axis in axes if axis not in gone)


def _without_last(sharding: Sharding, dim: str, axes: tuple[str, ...]) -> tuple[str, ...]:
    held = sharding.axes_of(dim)
    if held[len(held) - len(axes) :] != axes:
        raise ShardingError(f"dimension {dim} is not split last over {', '.join(axes)}")
    return held[: len(held) - len(axes)]
