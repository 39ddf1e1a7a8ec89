"""Exchanges between any two members: recursive doubling and halving, Rabenseifner, Bruck, pairwise, all peers at once.

Every function is a program of one group (`commcalc.simulate.wire`); shapes are those of
`commcalc.simulate.algorithms`.
Sources: Thakur, Rabenseifner, Gropp 2005 and MPICH for all that talk to one peer at a time; one- and two-shot as in
TensorRT-LLM and XLA.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

import numpy as np

from commcalc.simulate.wire import Array, Combine, Node, Rounds, Wire, reduce_in_chunks


def doubling_all_gather(wire: Wire, ranks: Sequence[Node], blocks: Sequence[Array]) -> Rounds[list[list[Array]]]:
    """Partners 1, 2, 4, ... apart give each other all that they have. A power of two of members."""
    n = len(ranks)
    got = [{i: block} for i, block in enumerate(blocks)]
    apart = 1
    while apart < n:
        had = [dict(own) for own in got]
        for i in range(n):
            for j, block in had[i].items():
                got[i ^ apart][j] = wire.send(ranks[i], ranks[i ^ apart], block)
        yield
        apart *= 2
    return [[own[j] for j in range(n)] for own in got]


def doubling_all_reduce(
    wire: Wire, ranks: Sequence[Node], buffers: Sequence[Array], combine: Combine
) -> Rounds[list[Array]]:
    """Partners 1, 2, 4, ... apart give each other their whole sums. A power of two of members."""
    n = len(ranks)
    held = list(buffers)
    apart = 1
    while apart < n:
        arrived = [wire.send(ranks[i ^ apart], ranks[i], held[i ^ apart]) for i in range(n)]
        held = [combine(own, other) for own, other in zip(held, arrived, strict=True)]
        yield
        apart *= 2
    return held


def halving_reduce_scatter(
    wire: Wire, ranks: Sequence[Node], parts: Sequence[Sequence[Array]], combine: Combine
) -> Rounds[list[Array]]:
    """Partners n/2, n/4, ... apart give each other the sums for the other's side. A power of two of members."""
    n = len(ranks)
    held = [dict(enumerate(own)) for own in parts]
    apart = n // 2
    while apart:
        had, held = held, [{j: part for j, part in own.items() if not (i ^ j) & apart} for i, own in enumerate(held)]
        for i in range(n):
            partner = i ^ apart
            for j in held[partner]:
                arrived = wire.send(ranks[i], ranks[partner], had[i][j])
                held[partner][j] = combine(arrived, held[partner][j])
        yield
        apart //= 2
    return [own[i] for i, own in enumerate(held)]


def rabenseifner_all_reduce(
    wire: Wire, ranks: Sequence[Node], buffers: Sequence[Array], combine: Combine
) -> Rounds[list[Array]]:
    """Recursive halving, then recursive doubling, between a power of two of members.

    Of the first 2r members, r being those too many, each even one hands its buffer to the next before and gets the sum
    back after.
    """
    n = len(ranks)
    core = 1 << (n.bit_length() - 1)
    away = range(0, 2 * (n - core), 2)
    held = list(buffers)
    if away:
        for i in away:
            held[i + 1] = combine(wire.send(ranks[i], ranks[i + 1], held[i]), held[i + 1])
        yield
    stay = [i for i in range(n) if i not in away]
    members = [ranks[i] for i in stay]
    scatter = partial(halving_reduce_scatter, wire, members, combine=combine)
    gather = partial(doubling_all_gather, wire, members)
    sums = yield from reduce_in_chunks([held[i] for i in stay], core, scatter, gather)
    for i, total in zip(stay, sums, strict=True):
        held[i] = total
    if away:
        for i in away:
            held[i] = wire.send(ranks[i + 1], ranks[i], held[i + 1])
        yield
    return held


def bruck_all_gather(wire: Wire, ranks: Sequence[Node], blocks: Sequence[Array]) -> Rounds[list[list[Array]]]:
    """Member i gives its first 1, 2, 4, ... blocks (at last: what is missing) to the member that far before it."""
    n = len(ranks)
    got = [[block] for block in blocks]  # of members i, i+1, i+2, ...
    apart = 1
    while apart < n:
        arrived = []
        for i in range(n):
            source = (i + apart) % n
            arrived.append([wire.send(ranks[source], ranks[i], block) for block in got[source][: n - apart]])
        got = [[*own, *more] for own, more in zip(got, arrived, strict=True)]
        yield
        apart *= 2
    return [[got[i][(j - i) % n] for j in range(n)] for i in range(n)]


def bruck_all_to_all(wire: Wire, ranks: Sequence[Node], parts: Sequence[Sequence[Array]]) -> Rounds[list[list[Array]]]:
    """A part for the member d ahead goes 2^k ahead in round k where bit k of d is set."""
    n = len(ranks)
    held = [[parts[i][(i + ahead) % n] for ahead in range(n)] for i in range(n)]
    apart = 1
    while apart < n:
        moved = [list(own) for own in held]
        for i in range(n):
            to = (i + apart) % n
            for ahead in range(n):
                if ahead & apart:
                    moved[to][ahead] = wire.send(ranks[i], ranks[to], held[i][ahead])
        held = moved
        yield
        apart *= 2
    return [[held[i][(i - j) % n] for j in range(n)] for i in range(n)]


def pairwise_all_to_all(
    wire: Wire, ranks: Sequence[Node], parts: Sequence[Sequence[Array]]
) -> Rounds[list[list[Array]]]:
    """In round k every member sends to the one k ahead."""
    n = len(ranks)
    got = [{i: parts[i][i]} for i in range(n)]
    for ahead in range(1, n):
        for i in range(n):
            to = (i + ahead) % n
            got[to][i] = wire.send(ranks[i], ranks[to], parts[i][to])
        yield
    return [[own[j] for j in range(n)] for own in got]


def pairwise_reduce_scatter(
    wire: Wire, ranks: Sequence[Node], parts: Sequence[Sequence[Array]], combine: Combine
) -> Rounds[list[Array]]:
    """In round k every member sends to the one k ahead, which adds it up."""
    n = len(ranks)
    held = [parts[i][i] for i in range(n)]
    for ahead in range(1, n):
        for i in range(n):
            to = (i + ahead) % n
            held[to] = combine(wire.send(ranks[i], ranks[to], parts[i][to]), held[to])
        yield
    return held


def direct_all_to_all(wire: Wire, ranks: Sequence[Node], parts: Sequence[Sequence[Array]]) -> Rounds[list[list[Array]]]:
    """To all peers at once."""
    got = [
        [parts[i][i] if j == i else wire.send(source, target, parts[j][i]) for j, source in enumerate(ranks)]
        for i, target in enumerate(ranks)
    ]
    yield
    return got


def direct_all_gather(wire: Wire, ranks: Sequence[Node], blocks: Sequence[Array]) -> Rounds[list[list[Array]]]:
    """Its block to all peers at once."""
    return direct_all_to_all(wire, ranks, [[block] * len(ranks) for block in blocks])


def direct_reduce_scatter(
    wire: Wire, ranks: Sequence[Node], parts: Sequence[Sequence[Array]], combine: Combine
) -> Rounds[list[Array]]:
    """To each peer what it sums, all at once."""
    got = yield from direct_all_to_all(wire, ranks, parts)
    return [reduce(combine, own) for own in got]


def direct_broadcast(wire: Wire, ranks: Sequence[Node], buffer: Array) -> Rounds[list[Array]]:
    """The root sends to all peers at once."""
    got = [buffer, *(wire.send(ranks[0], target, buffer) for target in ranks[1:])]
    yield
    return got


def one_shot_all_reduce(
    wire: Wire, ranks: Sequence[Node], buffers: Sequence[Array], combine: Combine
) -> Rounds[list[Array]]:
    """Every member gets all buffers and sums them itself."""
    got = yield from direct_all_gather(wire, ranks, buffers)
    return [reduce(combine, own) for own in got]


def two_shot_all_reduce(
    wire: Wire, ranks: Sequence[Node], buffers: Sequence[Array], combine: Combine
) -> Rounds[list[Array]]:
    """Every member sums its own n-th, then sends that to all."""
    scatter = partial(direct_reduce_scatter, wire, ranks, combine=combine)
    return reduce_in_chunks(buffers, len(ranks), scatter, partial(direct_all_gather, wire, ranks))


def two_shot_broadcast(wire: Wire, ranks: Sequence[Node], buffer: Array) -> Rounds[list[Array]]:
    """The root gives each member an n-th, and every member sends its own to all."""
    first, *rest = np.array_split(buffer.ravel(), len(ranks))
    shares = [first, *(wire.send(ranks[0], to, share) for to, share in zip(ranks[1:], rest, strict=True))]
    yield
    gathered = yield from direct_all_gather(wire, ranks, shares)
    return [np.concatenate(own).reshape(buffer.shape) for own in gathered]
