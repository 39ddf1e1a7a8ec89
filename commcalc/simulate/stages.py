"""The parts of a model in the order they run, dealt out to pipeline stages, and what stages send to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from commcalc.accounting.ledger import Ledger
from commcalc.algebra.collective import Kind
from commcalc.network.link import Algorithm
from commcalc.simulate import algorithms
from commcalc.simulate.buffers import Blocks
from commcalc.simulate.moves import Counted
from commcalc.simulate.wire import Combine, Wire

EMBEDDING, BLOCK, HEAD = "embedding", "block", "head"
# As the ledger names what is sent.
TO_NEXT, TO_PREVIOUS, TIED, ROOT, ALL = "to next stage", "to previous stage", "tied table", "root", "all"


class Part(NamedTuple):
    """One program in the chain: which of the ledger's derivations it is, and its name in this model (``block.0``).

    A layer's program is that of its kind.
    """

    program: str
    name: str


class Chunk(NamedTuple):
    """Consecutive parts that one stage runs before it sends the stream on."""

    stage: int
    parts: tuple[Part, ...]


class Exchange(NamedTuple):
    """A collective or message that no program has: of parameters or gradients, or of the stream between stages.

    ``unit`` is whose it is (``block.0``, ``root``), ``part`` what the ledger calls that; ``once`` in a step, or else in
    every microbatch; ``group`` what its ranks are called, where that is not the axis they lie on.
    """

    stage: int
    unit: str
    part: str
    direction: str
    op: str
    tensor: str
    axes: tuple[str, ...]
    bits: int
    counted: Counted
    once: bool = False
    group: str = ""


def chunks_of(ledger: Ledger) -> list[Chunk]:
    """Layers in a row, so many for each stage; interleaved ones in turns, each stage a chunk of every turn."""
    layers, turns = ledger.programs.layers, ledger.parallel.virtual_stages
    blocks = [Part(layers.names[kind], f"{BLOCK}.{at}") for at, kind in enumerate(layers.kinds)]
    found, begin = [], 0
    for turn in range(turns):
        for stage in ledger.stages:
            end = begin + stage.layers // turns
            parts = blocks[begin:end]
            if turn == 0 and stage.number == 0:
                parts = [Part(EMBEDDING, EMBEDDING), *parts]
            if turn == turns - 1 and stage.number == len(ledger.stages) - 1:
                parts = [*parts, Part(HEAD, HEAD)]
            found.append(Chunk(stage.number, tuple(parts)))
            begin = end
    return found


def send(blocks: Sequence[Blocks], source: int, target: int, stages: int, bits: int) -> tuple[list[Blocks], Counted]:
    """Every device sends its own blocks to its like on another stage, in one message: what arrives there."""
    wire, devices = Wire(bits), len(blocks[0])
    moves = [
        (source * devices + rank, target * devices + rank, block)
        for held in blocks
        for rank, block in enumerate(held)
    ]  # fmt: skip
    arrived = algorithms.send(wire, moves)
    found = [arrived[at : at + devices] for at in range(0, len(arrived), devices)]
    payload = sum(held[0].size for held in blocks)
    counted = Counted(
        Kind.SEND_RECV, Algorithm.DIRECT, stages, wire.bytes(payload), wire.bytes(wire.sent_max), wire.steps
    )
    return found, counted


def add_up(one: Blocks, other: Blocks, apart: int, bits: int, combine: Combine) -> tuple[Blocks, Blocks, Counted]:
    """AllReduce between each device of the first stage and its like ``apart`` stages on: what both then have."""
    counts = set()
    first, last = [], []
    for rank, pair in enumerate(zip(one, other, strict=True)):
        wire = Wire(bits)
        nodes = rank, rank + apart * len(one)
        mine, theirs = algorithms.all_reduce(Algorithm.RING, wire, nodes, pair, combine)
        first.append(mine)
        last.append(theirs)
        # Halves of an odd buffer differ by an element: what both send together is even.
        sent = wire.bytes(sum(wire.sent.values())) // 2
        counts.add(Counted(Kind.ALL_REDUCE, Algorithm.RING, 2, wire.bytes(pair[0].size), sent, wire.steps))
    (counted,) = counts
    return first, last, counted
