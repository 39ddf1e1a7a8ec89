"""Rows for experts of which a rank sends a token once, however many experts of its target the token chose.

Rows for experts are ``[E, Q, ...]`` as everywhere (`dispatch`): one for each choice. What goes over a wire from one
device to another is made of those rows that the second needs of the first: for each token that has any among them, in
the order of the tokens,

    a copy    ``[n, D]``, where all its rows say the same, as tokens do on their way to experts
    a sum     ``[n, D]`` of what its rows say, as results are brought back; it arrives in the first of the rows
    choices   ``[n, C]``, a place for each choice of the token: those that go elsewhere are zeros

Elements that arrive are counted, never those of rows. Every device must send as much as all others, or else no single
number of bytes is right: `Mismatch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from commcalc.algebra.collective import Kind
from commcalc.algebra.sharding import Sharding
from commcalc.simulate import algorithms
from commcalc.simulate.grid import Block, Grid, cut, overlap, shape_of, slices, within
from commcalc.simulate.moves import USUAL, Counted, Done, Mismatch
from commcalc.simulate.wire import Array, Wire

_EMPTY = -1


class Packing(StrEnum):
    """What is sent for a token: see above."""

    COPY = "copy"
    SUM = "sum"
    CHOICES = "choices"


class Owners(NamedTuple):
    """Of every row ``[E, Q]`` the token that it belongs to, -1 where it is empty; and which choice of it, of so many.

    Tokens are counted over all devices.
    """

    token: Array
    number: Array
    choices: int


def owners_of(chosen: Sequence[Array], rows: Sequence[Block], shape: tuple[int, int]) -> Owners:
    """Who owns the rows that every device fills, from the choices [T, C] of the tokens that it has itself.

    Row after row in the order of the tokens; ``rows`` are the blocks of all devices before anything is sent.
    """
    token, number = np.full(shape, _EMPTY), np.zeros(shape, dtype=int)
    for device, (own, ((low, _), (first, end), *_)) in enumerate(zip(chosen, rows, strict=True)):
        filled = np.full(shape[0], first)
        for at, experts in enumerate(own):
            for place, expert in enumerate(experts):
                if filled[expert - low] == end:
                    raise Mismatch(f"device {device} has more tokens for an expert than rows")
                token[expert, filled[expert]] = device * len(own) + at
                number[expert, filled[expert]] = place
                filled[expert] += 1
    return Owners(token, number, chosen[0].shape[1])


class _Part(NamedTuple):
    """Rows that go from one device to another: which message each belongs to, and which choice it is."""

    filled: tuple[Array, ...]
    message: Array
    first: Array
    number: Array


def _part(owners: Owners, block: Block) -> _Part:
    rows = slices(block[:2])
    token = owners.token[rows]
    filled = np.nonzero(token != _EMPTY)
    _, first, message = np.unique(token[filled], return_index=True, return_inverse=True)
    return _Part(filled, message, first, owners.number[rows][filled])


def _packed(part: _Part, rows: Array, packing: Packing, choices: int) -> Array:
    held = rows[part.filled]
    if packing is Packing.COPY:
        if not np.array_equal(held, held[part.first][part.message]):
            raise Mismatch("one copy of a token stands for rows that say different things")
        return held[part.first]
    if packing is Packing.SUM:
        made = np.zeros((len(part.first), *held.shape[1:]), dtype=held.dtype)
        np.add.at(made, part.message, held)
        return made
    made = np.zeros((len(part.first), choices), dtype=held.dtype)
    made[part.message, part.number] = held
    return made


def _unpacked(part: _Part, sent: Array, packing: Packing, shape: tuple[int, ...]) -> Array:
    made = np.zeros(shape, dtype=sent.dtype)
    if packing is Packing.COPY:
        made[part.filled] = sent[part.message]
    elif packing is Packing.SUM:
        made[part.filled[0][part.first], part.filled[1][part.first]] = sent
    else:
        made[part.filled] = sent[part.message, part.number]
    return made


def check_told(owners: Owners, blocks: Sequence[Array], places: Sequence[Block]) -> None:
    """`Mismatch` where devices were sent other experts' numbers (from 1) than those of the rows that they have."""
    experts = np.arange(1, len(owners.token) + 1)[:, None]
    expected = np.where(owners.token != _EMPTY, experts, 0)
    for device, (told, place) in enumerate(zip(blocks, places, strict=True)):
        if not np.array_equal(told, expected[slices(place)]):
            raise Mismatch(f"device {device} is told of other experts than those that its tokens chose")


def move_copies(
    axes: Sequence[str],
    before: Sharding,
    after: Sharding,
    blocks: Sequence[Array],
    grid: Grid,
    bits: int,
    owners: Owners,
    packing: Packing,
) -> Done:
    """An AllToAll of rows on all groups over ``axes``, in which every token goes once from one device to another."""
    held, wanted = grid.blocks(before), grid.blocks(after)
    made: list[Array] = list(blocks)
    counts = set()
    for group in grid.mesh.groups(axes):
        places = {(one, to): overlap(held[one], wanted[to]) for one in group for to in group}
        parts = {pair: _part(owners, place) for pair, place in places.items()}
        sent = [
            [
                _packed(parts[one, to], cut(blocks[one], held[one], places[one, to]), packing, owners.choices)
                for to in group
            ]
            for one in group
        ]  # fmt: skip
        wire = Wire(bits)
        arrived = algorithms.all_to_all(USUAL[Kind.ALL_TO_ALL], wire, group, sent)
        for to, messages in zip(group, arrived, strict=True):
            made[to] = np.zeros(shape_of(wanted[to]), dtype=blocks[to].dtype)
            for one, message in zip(group, messages, strict=True):
                place = places[one, to]
                made[to][within(wanted[to], place)] = _unpacked(parts[one, to], message, packing, shape_of(place))
        counts |= {_counted(group, one, sent[at], wire) for at, one in enumerate(group)}
    if len(counts) > 1:
        raise Mismatch(f"devices sent different amounts of copies over {', '.join(axes)}")
    return Done(made, counts.pop())


def _counted(group: Sequence[int], device: int, sent: Sequence[Array], wire: Wire) -> Counted:
    payload, left = sum(one.size for one in sent), wire.sent.get(device, 0)
    algorithm = USUAL[Kind.ALL_TO_ALL]
    return Counted(Kind.ALL_TO_ALL, algorithm, len(group), wire.bytes(payload), wire.bytes(left), wire.steps)
