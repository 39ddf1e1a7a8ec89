"""From one sharding of a tensor to another: the collectives that each mesh axis needs.

    pending sum -> whole        AllReduce            split -> whole           AllGather
    pending sum -> split        ReduceScatter        whole -> split           a free slice
                                                     split -> another split   AllToAll

Axes that make the same transition go in one collective.
"""

from __future__ import annotations

from commcalc.algebra.collective import Step, all_gather, all_reduce, all_to_all, keep_slice, reduce_scatter
from commcalc.algebra.sharding import Sharding
from commcalc.errors import ShardingError

# Slices first (they shrink what follows), sums next, moves and gathers last.
_PENDING = "pending sum"


def reshard(before: Sharding, after: Sharding) -> tuple[Step, ...]:
    """The steps that turn ``before`` into ``after``; none where they are equal.

    `ShardingError` where ``after`` is a pending sum that ``before`` is not: no device could know its share.

    >>> X = Sharding(("T", "D"), ((), ()), ("tp",))
    >>> [step.kind.value for step in reshard(X, Sharding(("T", "D"), (("tp",), ())))]
    ['reduce_scatter']
    """
    if before.dims != after.dims:
        raise ShardingError(f"[{', '.join(before.dims)}] and [{', '.join(after.dims)}] are not the same tensor")
    new = [axis for axis in after.unreduced if axis not in before.unreduced]
    if new:
        raise ShardingError(f"a tensor that is whole over {', '.join(new)} cannot become a pending sum")
    steps: list[Step] = []
    now = before
    for source, target in _transitions(before, after):
        axes = _moving(before, after, source, target)
        if source is None:
            step = keep_slice(now, str(target), axes)
        elif source == _PENDING:
            step = all_reduce(now, axes) if target is None else reduce_scatter(now, target, axes)
        elif target is None:
            step = all_gather(now, source, axes)
        else:
            step = all_to_all(now, source, target, axes)
        steps.append(step)
        now = step.after
    if now != after:
        raise ShardingError(
            f"[{', '.join(before.dims)}] cannot be brought from {before.split} to {after.split} without "
            "exchanging the order of axes on one dimension"
        )
    return tuple(steps)


def _places(sharding: Sharding) -> dict[str, str]:
    return sharding.placed | dict.fromkeys(sharding.unreduced, _PENDING)


def _transitions(before: Sharding, after: Sharding) -> list[tuple[str | None, str | None]]:
    """(from, to) of every axis that moves, each once, free slices first and gathers last."""
    old, new = _places(before), _places(after)
    axes = dict.fromkeys((*before.varying, *after.varying))
    moves = dict.fromkeys((old.get(axis), new.get(axis)) for axis in axes if old.get(axis) != new.get(axis))
    return sorted(moves, key=lambda move: (move[0] is not None, move[0] != _PENDING, move[1] is None))


def _moving(before: Sharding, after: Sharding, source: str | None, target: str | None) -> tuple[str, ...]:
    old, new = _places(before), _places(after)
    order = after.varying if source is None or (source == _PENDING and target is not None) else before.varying
    return tuple(axis for axis in order if old.get(axis) == source and new.get(axis) == target)
