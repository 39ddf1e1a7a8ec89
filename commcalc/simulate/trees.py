"""Trees: a binomial tree, and two binary trees at once, each with half of the buffer.

Every function is a program of one group (`commcalc.simulate.wire`); shapes are those of
`commcalc.simulate.algorithms`. A tree is a list: of every member its parent, None for the root.
Sources: MPICH for the binomial tree; Sanders, Speck, Traeff 2009 for two trees; NCCL src/graph/trees.cc for which
member is whose child.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commcalc.simulate.wire import Array, Combine, Node, Rounds, Wire, lock_step

Tree = list[int | None]


def binomial_broadcast(wire: Wire, ranks: Sequence[Node], buffer: Array) -> Rounds[list[Array]]:
    """Those that have it send it on, the farthest first: 1, 2, 4, ... members at a time."""
    n = len(ranks)
    got = {0: buffer}
    for apart in _spans(n):
        for i in range(0, n - apart, 2 * apart):
            got[i + apart] = wire.send(ranks[i], ranks[i + apart], got[i])
        yield
    return [got[i] for i in range(n)]


def binomial_all_reduce(
    wire: Wire, ranks: Sequence[Node], buffers: Sequence[Array], combine: Combine
) -> Rounds[list[Array]]:
    """The same tree up to its root, then down."""
    n = len(ranks)
    held = list(buffers)
    for apart in reversed(_spans(n)):
        for i in range(0, n - apart, 2 * apart):
            held[i] = combine(held[i], wire.send(ranks[i + apart], ranks[i], held[i + apart]))
        yield
    return (yield from binomial_broadcast(wire, ranks, held[0]))


def two_trees_all_reduce(
    wire: Wire, ranks: Sequence[Node], buffers: Sequence[Array], combine: Combine
) -> Rounds[list[Array]]:
    """Half of the buffer up and down either tree, both at once."""
    n = len(ranks)
    halves = list(zip(*(np.array_split(buffer.ravel(), 2) for buffer in buffers), strict=True))
    trees = (first_tree(n), second_tree(n))
    summed = yield from lock_step(
        [_up(wire, ranks, tree, half, combine) for tree, half in zip(trees, halves, strict=True)]
    )
    down = yield from lock_step([_down(wire, ranks, tree, half) for tree, half in zip(trees, summed, strict=True)])
    return [np.concatenate(own).reshape(buffers[0].shape) for own in zip(*down, strict=True)]


def two_trees_broadcast(wire: Wire, ranks: Sequence[Node], buffer: Array) -> Rounds[list[Array]]:
    """Half of the message down either of two trees over the other members, whose roots get it from the first member.

    Between the others the trees are NCCL's, so that none is inside both of them.
    """
    n = len(ranks)
    first = first_tree(n)  # its root has one child
    others = n - 1
    names = [0, *(others + 1 - i if others % 2 == 0 else i % others + 1 for i in range(1, n))]
    trees = (first, _renamed(first, names))
    halves = np.array_split(buffer.ravel(), 2)
    down = yield from lock_step([_down(wire, ranks, tree, half) for tree, half in zip(trees, halves, strict=True)])
    return [np.concatenate(own).reshape(buffer.shape) for own in zip(*down, strict=True)]


def first_tree(n: int) -> Tree:
    """NCCL's binary tree: in order, odd members are leaves, the largest power of two is the only child of member 0.

    A member's parent has the next higher bit in place of the member's lowest, or no bit where there is no such member.

    >>> first_tree(6)
    [None, 2, 4, 2, 0, 4]
    """
    tree: Tree = [None]
    for i in range(1, n):
        lowest = i & -i
        parent = (i ^ lowest) | (2 * lowest)
        tree.append(parent if parent < n else i ^ lowest)
    return tree


def second_tree(n: int) -> Tree:
    """The first one mirrored for an even number of members, shifted by one for an odd number.

    >>> second_tree(6), second_tree(5)
    ([1, 5, 3, 1, 3, None], [1, None, 3, 0, 3])
    """
    return _renamed(first_tree(n), [n - 1 - i if n % 2 == 0 else (i + 1) % n for i in range(n)])


def _renamed(tree: Tree, names: Sequence[int]) -> Tree:
    renamed: Tree = [None] * len(tree)
    for child, parent in enumerate(tree):
        renamed[names[child]] = None if parent is None else names[parent]
    return renamed


def _up(wire: Wire, ranks: Sequence[Node], tree: Tree, values: Sequence[Array], combine: Combine) -> Rounds[Array]:
    """The sum of all at the root: a member sends once all its children have."""
    held = list(values)
    waiting = set(range(len(tree)))
    while len(waiting) > 1:
        inside = {tree[i] for i in waiting}
        ready = [(i, parent) for i, parent in enumerate(tree) if i in waiting - inside and parent is not None]
        for i, parent in ready:
            held[parent] = combine(held[parent], wire.send(ranks[i], ranks[parent], held[i]))
        waiting -= {i for i, _ in ready}
        yield
    return held[waiting.pop()]


def _down(wire: Wire, ranks: Sequence[Node], tree: Tree, value: Array) -> Rounds[list[Array]]:
    """The value of the root at all: a member sends to all its children at once."""
    got = {tree.index(None): value}
    while len(got) < len(tree):
        had = dict(got)
        for i, parent in enumerate(tree):
            if parent is not None and parent in had and i not in had:
                got[i] = wire.send(ranks[parent], ranks[i], had[parent])
        yield
    return [got[i] for i in range(len(tree))]


def _spans(n: int) -> list[int]:
    """Powers of two below ``n``, the largest first."""
    return [1 << k for k in reversed(range((n - 1).bit_length()))]
