"""Where experts take a bounded number of rows from a rank: how many, and which tokens find none.

An expert takes the first tokens of a rank that chose it, in their order (Megatron-LM --moe-token-drop-policy
position); what its other tokens would have got from it is nothing, and their other choices count as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from commcalc.accounting.ledger import Ledger
from commcalc.simulate.wire import Array


class Room(NamedTuple):
    """The tokens of every rank in their order, and how many of them each expert takes from each rank."""

    ranks: Sequence[Array]
    rows: int


def rows_from_a_rank(tokens: int, choices: int, experts: int, factor: Fraction) -> int:
    """Rows of an expert for the tokens of a rank: ``factor`` times the average, a part of one as a whole one.

    >>> rows_from_a_rank(28, 2, 8, Fraction(5, 4))
    9
    """
    whole, rest = divmod(factor.numerator * tokens * choices, factor.denominator * experts)
    return whole + (rest > 0)


def whole_rows(ledger: Ledger, tokens: int) -> int:
    """Rows of an expert from all ranks together, where ``tokens`` are those of all; one for each without a capacity."""
    factor, sizes = ledger.work.capacity_factor, ledger.sizes
    if factor is None or "E" not in sizes:
        return tokens
    ranks = ranks_of(ledger)
    return ranks * rows_from_a_rank(tokens // ranks, sizes["C"], sizes["E"], factor)


def ranks_of(ledger: Ledger) -> int:
    """How many ranks have tokens of their own on their way to experts."""
    parallel = ledger.parallel
    return parallel.tp * parallel.cp * ledger.layout.mesh.size(ledger.layout.data)


def room_of(ledger: Ledger, order: Array, rows: int) -> Room | None:
    """The room that experts have, where tokens lie in this ``order`` on the ranks; None where it is unbounded."""
    if ledger.work.capacity_factor is None or not ledger.layout.moves_tokens:
        return None
    ranks = ranks_of(ledger)
    return Room(np.split(order, ranks), rows // ranks)


def taken(chosen: Array, experts: int, room: Room) -> Array:
    """Which choices [T, C] find a row: ones, and zeros for those of tokens that come too late.

    >>> taken(np.array([[0], [0], [0], [1]]), 2, Room([np.array([0, 1]), np.array([2, 3])], 1)).ravel().tolist()
    [1.0, 0.0, 1.0, 1.0]
    """
    made = np.zeros(chosen.shape)
    for tokens in room.ranks:
        own = chosen[tokens]
        asked = (own[:, :, None] == np.arange(experts)).any(axis=1).astype(int)
        earlier = np.cumsum(asked, axis=0) - asked
        made[tokens] = np.take_along_axis(earlier, own, axis=1) < room.rows
    return made
