"""What each device works on: the tokens and sequences of its data-parallel rank, on the devices of one pipeline stage.

Of sequences that are split a rank has its parts (`places`). Kernels know one rank's batch. Blocks of tensors are
counted over all ranks, so that whole tensors are those of the baseline, which trains on all sequences at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from commcalc.accounting.ledger import Ledger
from commcalc.algebra.mesh import Mesh
from commcalc.simulate.capacity import whole_rows
from commcalc.simulate.grid import Block, Grid
from commcalc.simulate.local import Batch, Share
from commcalc.simulate.places import Parts, order_of, places_of

# Dimensions that are dealt out to data-parallel ranks, and the axis of pipeline stages.
DEALT = ("T", "B")
STAGE_AXIS = "pp"


def whole_sizes(ledger: Ledger) -> dict[str, int]:
    """The ledger's sizes, with the tokens and sequences of all data-parallel ranks together.

    Every expert has a row for each token, so that none is ever left out, or as many as its capacity says.
    """
    ranks = ledger.layout.mesh.size(ledger.layout.data)
    dealt = {dim: ledger.sizes[dim] * ranks for dim in DEALT}
    return ledger.sizes | dealt | {"Q": whole_rows(ledger, dealt["T"])}


def devices_of_stage(mesh: Mesh) -> Mesh:
    """The mesh of one pipeline stage: every stage has as many devices, and they lie alike."""
    return Mesh(tuple((name, 1 if name == STAGE_AXIS else size) for name, size in mesh.axes), mesh.parts)


def shares_of(
    batch: Batch, grid: Grid, data: Sequence[str], context: Sequence[str] = (), parts: Parts = Parts.RUNS
) -> list[Share]:
    """The share of every device: equal runs of sequences, dealt out in the order of the axes ``data``.

    Ranks over ``context`` have ``parts`` of each of these sequences.
    """
    ranks, ways = grid.mesh.size(data), grid.mesh.size(context)
    tokens, sequences = len(batch.tokens) // (ranks * ways), batch.sequences // ranks
    order, length = order_of(len(batch.tokens), batch.sequences, ranks, ways, parts), tokens * ways // sequences
    found = []
    for rank in range(ranks * ways):
        own = order.tokens[rank * tokens : (rank + 1) * tokens]
        begins = {"T": rank * tokens, "B": rank // ways * sequences}
        places = places_of(order, length, rank // ways, ranks, rank % ways * tokens)
        choices = None if batch.choices is None else batch.choices[own]
        mine = Batch(batch.tokens[own], batch.targets[own], sequences, batch.offset, choices, places)
        found.append(Share(mine, begins))
    return [found[grid.term((*data, *context), device)] for device in range(grid.devices)]


def within_share(block: Block, dims: Sequence[str], share: Share) -> Block:
    """A block with its tokens counted from where the share begins."""
    return tuple(
        (low - share.begins.get(dim, 0), high - share.begins.get(dim, 0))
        for (low, high), dim in zip(block, dims, strict=True)
    )
