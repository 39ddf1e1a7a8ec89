"""Where in which sequence the tokens of a device are, and how tokens lie on the ranks that share sequences out.

The baseline has sequence after sequence, each from its first token to its last. Of data-parallel ranks each has some
sequences; of a context group each has the same part of every one of them, a run, or an early and a late one so that all
have as many earlier tokens to look at: rank r of n has parts r and 2n-1-r of 2n (Megatron-LM core/utils.py,
get_batch_on_this_cp_rank; torch.distributed.tensor.experimental, context_parallel). A rank has them sequence after
sequence too.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from commcalc.accounting.ledger import Ledger
from commcalc.simulate.grid import Block
from commcalc.simulate.local import Local, Places
from commcalc.simulate.moves import Mismatch
from commcalc.simulate.wire import Array


class Parts(StrEnum):
    """Which tokens of a sequence the ranks of a context group have."""

    RUNS = "runs"
    BALANCED = "early and late parts"


class Order(NamedTuple):
    """For every token, in the order in which they lie on the devices, its number in the baseline."""

    tokens: Array

    def lie(self, array: Array) -> Array:
        """What belongs to tokens of the baseline as it lies on the devices."""
        return array[self.tokens]

    def back(self, array: Array) -> Array:
        """The other way round."""
        made = np.empty_like(array)
        made[self.tokens] = array
        return made

    def of(self, array: Array) -> bool:
        """Whether it belongs to tokens, one by one."""
        return array.ndim > 0 and len(array) == len(self.tokens)


def parts_of(ledger: Ledger, asked: Parts | None) -> Parts:
    """Those that are asked for; else early and late ones, where sequences can be cut so."""
    ways = ledger.layout.mesh.size(ledger.layout.context)
    even = ledger.work.tokens_per_sequence % (2 * ways) == 0
    return asked or (Parts.BALANCED if ways > 1 and even else Parts.RUNS)


def order_of(tokens: int, sequences: int, ranks: int, ways: int, parts: Parts) -> Order:
    """The order on ``ranks`` times ``ways`` devices of ``sequences`` equally long sequences.

    >>> order_of(16, 2, 1, 2, Parts.BALANCED).tokens.tolist()
    [0, 1, 6, 7, 8, 9, 14, 15, 2, 3, 4, 5, 10, 11, 12, 13]
    """
    length, each = tokens // sequences, sequences // ranks
    cuts = np.split(np.arange(length), ways if parts is Parts.RUNS else 2 * ways)
    held = [[rank] if parts is Parts.RUNS else [rank, 2 * ways - 1 - rank] for rank in range(ways)]
    found = [
        (rank * each + sequence) * length + np.concatenate([cuts[part] for part in mine])
        for rank in range(ranks)
        for mine in held
        for sequence in range(each)
    ]
    return Order(np.concatenate(found))


def places_of(order: Order, length: int, rank: int, ranks: int, begins: int) -> Places:
    """The places of all tokens of data-parallel rank ``rank``; its device's own begin at number ``begins`` of them."""
    own = np.split(order.tokens, ranks)[rank]
    return Places(own // length, own % length, begins)


def within(places: Places, block: Sequence[int]) -> tuple[Array, Array]:
    """Sequence and position of the tokens of a block, which are counted from the first of the device's own."""
    rows = slice(block[0] + places.begins, block[1] + places.begins)
    return places.sequence[rows], places.position[rows]


class Lines(NamedTuple):
    """Tokens of a block by sequence: ``rows`` [B, s] is where each is in the block, ``positions`` [s] those of all."""

    rows: Array
    positions: Array

    def by_sequence(self, array: Array) -> Array:
        """[T, ...] as [B, s, ...], every sequence in order."""
        return array[self.rows]

    def by_token(self, array: Array) -> Array:
        """[B, s, ...] as [T, ...]."""
        made = np.empty((self.rows.size, *array.shape[2:]), dtype=array.dtype)
        made[self.rows] = array
        return made


def lines_of(at: Local, block: Block) -> Lines:
    """The tokens of a block [T, ...] of an operation by sequence; a device has the same part of each."""
    sequence, position = within(at.batch.known_places, block[0])
    rows = np.lexsort((position, sequence)).reshape(at.batch.sequences, -1)
    positions = position[rows]
    if (positions != positions[0]).any():
        raise Mismatch("a device has other parts of one sequence than of another")
    return Lines(rows, positions[0])
