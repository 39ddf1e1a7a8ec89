"""One change of sharding on the devices: what every device sends, who gets it, and where it is put.

The parts are cut by the indices that devices hold before and after, so a move whose payload or target is wrong finds
nothing to send, or something missing. The algorithm then really moves them, step by step (`algorithms`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from commcalc.algebra.collective import Kind
from commcalc.algebra.sharding import Sharding
from commcalc.errors import CommcalcError
from commcalc.network.link import Algorithm
from commcalc.simulate import algorithms
from commcalc.simulate.grid import Block, Grid, cut, elements, overlap, shape_of, within
from commcalc.simulate.wire import Array, Combine, Wire

# What runs a kind where no other algorithm is named: what the ring count of wire bytes stands for.
USUAL = {
    Kind.ALL_REDUCE: Algorithm.RING,
    Kind.ALL_GATHER: Algorithm.RING,
    Kind.REDUCE_SCATTER: Algorithm.RING,
    Kind.ALL_TO_ALL: Algorithm.PAIRWISE,
    Kind.PERMUTE: Algorithm.DIRECT,
}


# Elements by which members may differ where a buffer does not divide: one in each of two passes round the ring.
_UNEVEN = 2


class Mismatch(CommcalcError):
    """The devices do not hold what the program says they hold: the program, not the user, is wrong."""

    status = 1
    kind = "mismatch"


class Counted(NamedTuple):
    """What went over the wires in one collective: of one group, where every group sent the same."""

    kind: Kind
    algorithm: Algorithm
    group_size: int
    payload_bytes: int
    sent_bytes: int
    steps: int


class Done(NamedTuple):
    """The blocks after a move, and what was counted; None for a slice."""

    blocks: list[Array]
    counted: Counted | None


def move(
    kind: Kind,
    axes: Sequence[str],
    before: Sharding,
    after: Sharding,
    blocks: Sequence[Array],
    grid: Grid,
    bits: int,
    combine: Combine = np.add,
) -> Done:
    """Run one collective (or slice) on all groups over ``axes``; elements count ``bits`` on the wire.

    `Mismatch` where the groups hold less than the target needs.
    """
    held, wanted = grid.blocks(before), grid.blocks(after)
    if kind is Kind.SLICE:
        return Done([_part(blocks[rank], held[rank], wanted[rank]) for rank in range(grid.devices)], None)
    made: list[Array | None] = [None] * grid.devices
    counts = []
    for group in grid.mesh.groups(axes):
        wire = Wire(bits)
        mine = [blocks[rank] for rank in group]
        have, need = [held[rank] for rank in group], [wanted[rank] for rank in group]
        if kind is Kind.PERMUTE:
            terms = [(grid.term(before.unreduced, rank), grid.term(after.unreduced, rank)) for rank in group]
            found, payload = _permuted(group, mine, have, need, terms, wire), mine[0].size
        else:
            found, payload = _collected(kind, group, mine, have, need, wire, combine)
        for rank, array in zip(group, found, strict=True):
            made[rank] = array
        counts.append(_counted(kind, group, payload, wire))
    different = set(counts)
    if len(different) > 1:
        raise Mismatch(f"groups of one {kind} over {', '.join(axes)} sent different amounts")
    return Done([array for array in made if array is not None], different.pop())


def all_reduce_buffers(
    axes: Sequence[str], buffers: Sequence[Array], grid: Grid, bits: int, combine: Combine = np.add
) -> Done:
    """AllReduce one flat buffer of every device on all groups over ``axes``."""
    dims = Sharding(("elements",), ((),), tuple(axes))
    flat = Grid(grid.mesh, {"elements": buffers[0].size})
    return move(Kind.ALL_REDUCE, axes, dims, dims.reduced(), buffers, flat, bits, combine)


def _collected(
    kind: Kind, group: Sequence[int], mine: list[Array], have: list[Block], need: list[Block], wire: Wire,
    combine: Combine,
) -> tuple[list[Array], int]:  # fmt: skip
    """The blocks that the members of one group end with, and the payload in elements."""
    usual = USUAL[kind]
    if kind is Kind.ALL_REDUCE:
        return algorithms.all_reduce(usual, wire, group, mine, combine), mine[0].size
    if kind is Kind.ALL_GATHER:
        arrived = algorithms.all_gather(usual, wire, group, mine)
        return [_put(pieces, have, target) for pieces, target in zip(arrived, need, strict=True)], elements(need[0])
    parts = [[_part(array, at, overlap(at, target)) for target in need] for array, at in zip(mine, have, strict=True)]
    payload = sum(part.size for part in parts[0])
    if kind is Kind.REDUCE_SCATTER:
        for at, target in zip(have, need, strict=True):
            if overlap(at, target) != target:
                raise Mismatch("a member of a reduce_scatter has no term of a part that it must give")
        return algorithms.reduce_scatter(usual, wire, group, parts, combine), payload
    arrived = algorithms.all_to_all(usual, wire, group, parts)
    return [
        _put(pieces, [overlap(at, target) for at in have], target) for pieces, target in zip(arrived, need, strict=True)
    ], payload


def _permuted(
    group: Sequence[int], mine: list[Array], have: list[Block], need: list[Block], terms: list[tuple[int, int]],
    wire: Wire,
) -> list[Array]:  # fmt: skip
    """Whole blocks change place: every member sends its own to one that needs it, none sends twice."""
    owners: dict[tuple[Block, int], list[int]] = {}
    for at, block in enumerate(have):
        owners.setdefault((block, terms[at][0]), []).append(at)
    sources = []
    for at, block in enumerate(need):
        there = owners.get((block, terms[at][1]), [])
        if not there:
            raise Mismatch("a permute asks for a block that no member of its group holds")
        sources.append(there.pop(there.index(at) if at in there else 0))
    moves = [(group[source], group[at], mine[source]) for at, source in enumerate(sources) if source != at]
    arrived = iter(algorithms.send(wire, moves))
    return [mine[at] if source == at else next(arrived) for at, source in enumerate(sources)]


def _put(pieces: Sequence[Array], places: Sequence[Block], target: Block) -> Array:
    """One block from its pieces; `Mismatch` where they do not fill it exactly."""
    made = np.empty(shape_of(target), dtype=pieces[0].dtype)
    filled = np.zeros(made.shape, dtype=bool)
    for piece, place in zip(pieces, places, strict=True):
        at = within(target, place)
        if overlap(place, target) != place or filled[at].any():
            raise Mismatch("a piece arrived that does not belong to the block, or is there already")
        made[at], filled[at] = piece, True
    if not filled.all():
        raise Mismatch(f"{made.size} elements are wanted, {np.count_nonzero(filled)} arrived")
    return made


def _part(array: Array, held: Block, wanted: Block) -> Array:
    if overlap(held, wanted) != wanted:
        raise Mismatch("a device must cut a part out of what it does not hold")
    return cut(array, held, wanted).copy()


def _counted(kind: Kind, group: Sequence[int], payload: int, wire: Wire) -> Counted:
    """Bytes that one member sent: the most that any did, where all can send alike; else the mean, rounded up once.

    A buffer that does not divide by n is cut into chunks that differ by one element, so that members send up to two
    elements more or less than each other; `Mismatch` where they differ by more.
    """
    n, sent = len(group), wire.bytes(wire.sent_max)
    if kind is not Kind.PERMUTE and payload % n:
        counts = [wire.sent.get(node, 0) for node in group]
        if max(counts) - min(counts) > _UNEVEN:
            raise Mismatch(f"members of one {kind} sent between {min(counts)} and {max(counts)} elements")
        sent = -(-sum(counts) * wire.bits // (8 * n))
    return Counted(kind, USUAL[kind], n, wire.bytes(payload), sent, wire.steps)
