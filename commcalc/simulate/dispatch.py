"""Rows for experts: put together where tokens are, and taken apart again where their results come back.

Every rank keeps as many rows for each expert as it has tokens, so that none is ever left out, or as few as the capacity
says: then those tokens find none that come last. Rows that no token fills are zeros. Within an expert, rows stand in
the order of the tokens.
"""

# Kernels of devices share one signature.
# ruff: noqa: ARG001

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commcalc.simulate.local import Kernel, Local, no_gradient
from commcalc.simulate.wire import Array

Rows = tuple[Array, Array, Array, Array]


def _rows(chosen: Array, low: int, high: int, room: int) -> Rows:
    """Token and number of every choice of the experts from ``low`` up to ``high``; that expert here, and its row.

    Of each expert there are ``room`` rows at most.
    """
    found = []
    for expert in range(low, high):
        token, number = (one[:room] for one in np.nonzero(chosen == expert))
        found.append((token, number, np.full(len(token), expert - low), np.arange(len(token))))
    token, number, expert_here, row = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return token, number, expert_here, row


def _experts(at: Local, block: Sequence[tuple[int, int]], dims: Sequence[str]) -> tuple[int, int, int]:
    """The experts whose rows are in the block, the one after the last, and how many rows each has."""
    first, end = block[dims.index("Q")]
    return (*block[dims.index("E")], end - first)


def _permute(at: Local, held: Sequence[Array]) -> Array:
    """Tokens [T, D], or what their choices count [T, C], as rows [E, Q, D] or [E, Q]."""
    x, chosen = held
    shape = [high - low for low, high in at.output]
    made = np.zeros(shape, dtype=x.dtype)
    token, number, expert, row = _rows(chosen, *_experts(at, at.output, at.out_dims))
    made[expert, row] = x[token, number] if "C" in at.dims[0] else x[token]
    return made


def _permute_choices(at: Local, held: Sequence[Array]) -> Array:
    """The number of the expert in each of its rows that a token fills, counted from 1: [E, Q]."""
    (chosen,) = held
    made = np.zeros([high - low for low, high in at.output], dtype=chosen.dtype)
    token, number, expert, row = _rows(chosen, *_experts(at, at.output, at.out_dims))
    made[expert, row] = chosen[token, number] + 1
    return made


def _permute_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    x, chosen = held
    made = np.zeros_like(x)
    token, number, expert, row = _rows(chosen, *_experts(at, at.output, at.out_dims))
    np.add.at(made, (token, number) if "C" in at.dims[0] else token, grad[expert, row])
    return made


def _unpermute(at: Local, held: Sequence[Array]) -> Array:
    """Rows [E, Q, D] as sums for each token, [T, D], times what each choice counts where that is given."""
    rows, chosen, *routing = held
    made = np.zeros((len(chosen), rows.shape[-1]), dtype=rows.dtype)
    token, number, expert, row = _rows(chosen, *_experts(at, at.inputs[0], at.dims[0]))
    parts = rows[expert, row]
    np.add.at(made, token, parts * routing[0][token, number][:, None] if routing else parts)
    return made


def _unpermute_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    rows, chosen, *routing = held
    made = np.zeros_like(held[which])
    token, number, expert, row = _rows(chosen, *_experts(at, at.inputs[0], at.dims[0]))
    if which == 0:
        made[expert, row] = grad[token] * routing[0][token, number][:, None] if routing else grad[token]
    else:
        made[token, number] = (rows[expert, row] * grad[token]).sum(axis=1)
    return made


def _count_rows(at: Local, held: Sequence[Array]) -> Array:
    """How many rows there are for each expert: [E, 1]."""
    made: Array = np.bincount(held[0].ravel(), minlength=at.sizes["E"])[:, None]
    return made


def _part(at: Local) -> slice:
    """The tokens that the device goes on with, of those that it has."""
    (first, _), *_ = at.inputs[0]
    (low, high), *_ = at.output
    return slice(low - first, high - first)


def _own_part(at: Local, held: Sequence[Array]) -> Array:
    return held[0][_part(at)]


def _own_part_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    made = np.zeros_like(held[0])
    made[_part(at)] = grad
    return made


def _same(at: Local, held: Sequence[Array]) -> Array:
    return held[0]


def _same_back(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    return grad


DISPATCH = {
    "permute": Kernel(_permute, _permute_back),
    "permute_choices": Kernel(_permute_choices, no_gradient),
    "permute_routing": Kernel(_permute, _permute_back),
    "unpermute": Kernel(_unpermute, _unpermute_back),
    "unpermute_weighed": Kernel(_unpermute, _unpermute_back),
    "count_rows": Kernel(_count_rows, no_gradient),
    "own_part": Kernel(_own_part, _own_part_back),
    "same": Kernel(_same, _same_back),
}
