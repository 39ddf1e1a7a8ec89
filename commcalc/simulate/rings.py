"""Rings, one way and two ways round, and the open line: data moves between neighbours only.

Every function is a program of one group (`commcalc.simulate.wire`): member i has neighbours i-1 and i+1, on a ring the
last and the first too. Shapes are those of `commcalc.simulate.algorithms`.
Sources: Patarasuk and Yuan 2009 for the ring; the scaling book, part 3, for the ring used both ways and the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from commcalc.simulate.wire import Array, Combine, Node, Rounds, Wire, reduce_in_chunks

FORTH, BACK = 1, -1
# A block that goes half each way round: the first half forth, the second back.
_HALF = {FORTH: 0, BACK: 1}


class _Parcel(NamedTuple):
    """A piece of an AllToAll on its way: where it is, which way it goes, whose and which piece it is."""

    at: int
    way: int
    source: int
    target: int
    piece: int
    data: Array


def all_gather(wire: Wire, ranks: Sequence[Node], blocks: Sequence[Array]) -> Rounds[list[list[Array]]]:
    """Every member hands on the block that it got last."""
    n = len(ranks)
    got = [{i: block} for i, block in enumerate(blocks)]
    for step in range(n - 1):
        for i in range(n):
            to, of = (i + 1) % n, (i - step) % n
            got[to][of] = wire.send(ranks[i], ranks[to], got[i][of])
        yield
    return [[own[j] for j in range(n)] for own in got]


def reduce_scatter(
    wire: Wire, ranks: Sequence[Node], parts: Sequence[Sequence[Array]], combine: Combine
) -> Rounds[list[Array]]:
    """The sum for member j starts at member j+1 and goes all the way round."""
    n = len(ranks)
    held = [parts[i][(i - 1) % n] for i in range(n)]
    for step in range(n - 1):
        arrived = [wire.send(ranks[i - 1], ranks[i], held[i - 1]) for i in range(n)]
        held = [combine(arrived[i], parts[i][(i - 2 - step) % n]) for i in range(n)]
        yield
    return held


def all_reduce(wire: Wire, ranks: Sequence[Node], buffers: Sequence[Array], combine: Combine) -> Rounds[list[Array]]:
    """ReduceScatter, then AllGather."""
    scatter = partial(reduce_scatter, wire, ranks, combine=combine)
    return reduce_in_chunks(buffers, len(ranks), scatter, partial(all_gather, wire, ranks))


def all_to_all(wire: Wire, ranks: Sequence[Node], parts: Sequence[Sequence[Array]]) -> Rounds[list[list[Array]]]:
    """Every part goes one way round until it is there; those between store it and send it on."""
    n = len(ranks)
    parcels = [_Parcel(i, FORTH, i, j, 0, parts[i][j]) for i in range(n) for j in range(n) if j != i]
    return _forwarded(wire, ranks, parts, parcels)


def broadcast(wire: Wire, ranks: Sequence[Node], buffer: Array) -> Rounds[list[Array]]:
    """Down the chain, the whole message at each hop; in pieces that follow one another it would take less time."""
    got = [buffer]
    for i in range(len(ranks) - 1):
        got.append(wire.send(ranks[i], ranks[i + 1], got[i]))
        yield
    return got


def two_way_all_gather(wire: Wire, ranks: Sequence[Node], blocks: Sequence[Array]) -> Rounds[list[list[Array]]]:
    """Half of the blocks come from either side; of an even ring the farthest one comes in halves."""
    n = len(ranks)
    got: list[dict[int, dict[int, Array]]] = [{i: _pieces(block)} for i, block in enumerate(blocks)]
    for step in range(n // 2):
        for i in range(n):
            for way in (FORTH, BACK):
                to, of = (i + way) % n, (i - way * step) % n
                wanted = [_HALF[way]] if 2 * (step + 1) == n else [0, 1]
                arrived = {piece: wire.send(ranks[i], ranks[to], got[i][of][piece]) for piece in wanted}
                got[to].setdefault(of, {}).update(arrived)
        yield
    return [[_whole(own[j], blocks[j]) for j in range(n)] for own in got]


def two_way_reduce_scatter(
    wire: Wire, ranks: Sequence[Node], parts: Sequence[Sequence[Array]], combine: Combine
) -> Rounds[list[Array]]:
    """The gather backwards: two sums come to each member, one from either side; the farthest one gives half to each."""
    n = len(ranks)
    pieces = [[_pieces(part) for part in own] for own in parts]
    # What arrived at a member this way and goes on with the member's own part added.
    carried: dict[tuple[int, int], dict[int, Array]] = {}

    def added(member: int, target: int, *ways: int) -> dict[int, Array]:
        total = dict(pieces[member][target])
        for way in ways:
            for piece, data in carried.get((member, way), {}).items():
                total[piece] = combine(data, total[piece])
        return total

    for hops in range(n // 2, 0, -1):
        arrived = {}
        for i in range(n):
            for way in (FORTH, BACK):
                to, total = (i + way) % n, added(i, (i + way * hops) % n, way)
                wanted = [_HALF[way]] if 2 * hops == n else [0, 1]
                arrived[to, way] = {piece: wire.send(ranks[i], ranks[to], total[piece]) for piece in wanted}
        carried = arrived
        yield
    return [_whole(added(i, i, FORTH, BACK), parts[i][i]) for i in range(n)]


def two_way_all_reduce(
    wire: Wire, ranks: Sequence[Node], buffers: Sequence[Array], combine: Combine
) -> Rounds[list[Array]]:
    """ReduceScatter, then AllGather, both ways round."""
    scatter = partial(two_way_reduce_scatter, wire, ranks, combine=combine)
    return reduce_in_chunks(buffers, len(ranks), scatter, partial(two_way_all_gather, wire, ranks))


def two_way_all_to_all(
    wire: Wire, ranks: Sequence[Node], parts: Sequence[Sequence[Array]]
) -> Rounds[list[list[Array]]]:
    """Every part goes the shortest way round, that for the farthest member of an even ring half each way."""
    n = len(ranks)
    parcels = []
    for i in range(n):
        for hops in range(1, n // 2 + 1):
            for way in (FORTH, BACK):
                j = (i + way * hops) % n
                pieces = _pieces(parts[i][j])
                wanted = [_HALF[way]] if 2 * hops == n else [0, 1]
                parcels += [_Parcel(i, way, i, j, piece, pieces[piece]) for piece in wanted]
    return _forwarded(wire, ranks, parts, parcels)


def two_way_broadcast(wire: Wire, ranks: Sequence[Node], buffer: Array) -> Rounds[list[Array]]:
    """Half of the message each way round, to the last member."""
    n = len(ranks)
    got: list[dict[int, Array]] = [_pieces(buffer), *({} for _ in range(n - 1))]
    for hop in range(n - 1):
        for way in (FORTH, BACK):
            i, to, piece = way * hop % n, way * (hop + 1) % n, _HALF[way]
            got[to][piece] = wire.send(ranks[i], ranks[to], got[i][piece])
        yield
    return [_whole(own, buffer) for own in got]


def line_all_gather(wire: Wire, ranks: Sequence[Node], blocks: Sequence[Array]) -> Rounds[list[list[Array]]]:
    """Every block goes both ways to the ends."""
    n = len(ranks)
    got = [{i: block} for i, block in enumerate(blocks)]
    for step in range(n - 1):
        for i in range(n):
            for way in (FORTH, BACK):
                to, of = i + way, i - way * step
                if 0 <= to < n and 0 <= of < n:
                    got[to][of] = wire.send(ranks[i], ranks[to], got[i][of])
        yield
    return [[own[j] for j in range(n)] for own in got]


def line_reduce_scatter(
    wire: Wire, ranks: Sequence[Node], parts: Sequence[Sequence[Array]], combine: Combine
) -> Rounds[list[Array]]:
    """The gather backwards: the sums for a member start at the two ends, those with the longest way first."""
    n = len(ranks)
    carried: dict[tuple[int, int], Array] = {}

    def added(member: int, target: int, *ways: int) -> Array:
        total = parts[member][target]
        for way in ways:
            if (member, way) in carried:
                total = combine(carried[member, way], total)
        return total

    for hops in range(n - 1, 0, -1):
        arrived = {}
        for i in range(n):
            for way in (FORTH, BACK):
                to, target = i + way, i + way * hops
                if 0 <= target < n:
                    arrived[to, way] = wire.send(ranks[i], ranks[to], added(i, target, way))
        carried = arrived
        yield
    return [added(i, i, FORTH, BACK) for i in range(n)]


def line_all_reduce(
    wire: Wire, ranks: Sequence[Node], buffers: Sequence[Array], combine: Combine
) -> Rounds[list[Array]]:
    """ReduceScatter, then AllGather, along the line."""
    scatter = partial(line_reduce_scatter, wire, ranks, combine=combine)
    return reduce_in_chunks(buffers, len(ranks), scatter, partial(line_all_gather, wire, ranks))


def line_all_to_all(wire: Wire, ranks: Sequence[Node], parts: Sequence[Sequence[Array]]) -> Rounds[list[list[Array]]]:
    """Every part goes along the line; those between store it and send it on at once."""
    n = len(ranks)
    parcels = [_Parcel(i, FORTH if j > i else BACK, i, j, 0, parts[i][j]) for i in range(n) for j in range(n) if j != i]
    return _forwarded(wire, ranks, parts, parcels)


def _forwarded(
    wire: Wire, ranks: Sequence[Node], parts: Sequence[Sequence[Array]], parcels: list[_Parcel]
) -> Rounds[list[list[Array]]]:
    """In every round each parcel moves on to the next neighbour, until all are where they belong."""
    n = len(ranks)
    got: list[dict[int, dict[int, Array]]] = [{i: {0: parts[i][i]}} for i in range(n)]
    while parcels:
        moving = []
        for parcel in parcels:
            to = (parcel.at + parcel.way) % n
            data = wire.send(ranks[parcel.at], ranks[to], parcel.data)
            if to == parcel.target:
                got[to].setdefault(parcel.source, {})[parcel.piece] = data
            else:
                moving.append(parcel._replace(at=to, data=data))
        parcels = moving
        yield
    return [[_whole(got[i][j], parts[j][i]) for j in range(n)] for i in range(n)]


def _pieces(block: Array) -> dict[int, Array]:
    """The two halves of a block, flat, by number."""
    return dict(enumerate(np.array_split(block.ravel(), 2)))


def _whole(pieces: dict[int, Array], like: Array) -> Array:
    """The block that these are all pieces of, in the shape of ``like``."""
    return np.concatenate([pieces[piece].ravel() for piece in sorted(pieces)]).reshape(like.shape)
