"""What one device knows while it computes: its blocks, where they begin, and the batch; and what a kernel is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from commcalc.algebra.schedule import Placed
from commcalc.errors import SpecError
from commcalc.simulate.grid import Block
from commcalc.simulate.wire import Array


class Places(NamedTuple):
    """Sequence and position of all tokens of a data-parallel rank, and which of them is a device's first."""

    sequence: Array
    position: Array
    begins: int = 0


class Batch(NamedTuple):
    """What a model is run on: token and target of every row, sequences, rows of a position table before the first.

    ``choices`` [T, C] are the experts that every token goes to, where the router is not to choose.
    """

    tokens: Array
    targets: Array
    sequences: int
    offset: int = 0
    choices: Array | None = None
    places: Places | None = None

    @property
    def known_places(self) -> Places:
        """Where the tokens are in their sequences, one after another where nothing else is said."""
        if self.places is not None:
            return self.places
        tokens = np.arange(len(self.tokens))
        length = len(tokens) // self.sequences
        return Places(tokens // length, tokens % length)


class Share(NamedTuple):
    """The part of a batch that one data-parallel rank has, and the first index of it by dimension."""

    batch: Batch
    begins: Mapping[str, int]


class Local(NamedTuple):
    """One operation on one device: its blocks of inputs and weights, and of the output, and the sizes of dimensions.

    Tokens are those of its data-parallel rank, counted from the first of them.
    """

    placed: Placed
    inputs: tuple[Block, ...]
    output: Block
    dims: tuple[tuple[str, ...], ...]
    out_dims: tuple[str, ...]
    sizes: Mapping[str, int]
    batch: Batch


Forward = Callable[[Local, Sequence[Array]], Array]
Backward = Callable[[Local, Sequence[Array], Array, int], Array]


class Kernel(NamedTuple):
    """An operation: its value, and the gradient of operand ``which`` from that of its output."""

    forward: Forward
    backward: Backward


def no_gradient(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
    """The derivative of what has none."""
    raise SpecError(f"{at.placed.op.name} has no gradient")
