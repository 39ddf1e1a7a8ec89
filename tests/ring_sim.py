"""The counts of an independent simulator that moved real blocks (tests/data/ring_sim.json), by the names used here."""

from __future__ import annotations

import json

from commcalc.algebra.collective import Kind
from commcalc.network.link import Algorithm
from conftest import DATA

ROWS = json.loads((DATA / "ring_sim.json").read_text())["rows"]
KINDS = {"all-gather": Kind.ALL_GATHER, "reduce-scatter": Kind.REDUCE_SCATTER, "all-reduce": Kind.ALL_REDUCE,
         "all-to-all": Kind.ALL_TO_ALL}  # fmt: skip
# The simulator's names, which it uses for several collectives.
NAMES = {
    "ring (one direction)": Algorithm.RING,
    "ring (RS+AG, one direction)": Algorithm.RING,
    "ring (one direction, store and forward)": Algorithm.RING,
    "ring (bidirectional)": Algorithm.RING_TWO_WAY,
    "ring (RS+AG, bidirectional)": Algorithm.RING_TWO_WAY,
    "ring (bidirectional, shortest way)": Algorithm.RING_TWO_WAY,
    "open line (bidirectional links)": Algorithm.LINE,
    "open line (RS+AG)": Algorithm.LINE,
    "open line (store and forward)": Algorithm.LINE,
    "recursive doubling": Algorithm.RECURSIVE_DOUBLING,
    "recursive doubling (full buffer)": Algorithm.RECURSIVE_DOUBLING,
    "recursive halving": Algorithm.RECURSIVE_HALVING,
    "recursive halving+doubling": Algorithm.RABENSEIFNER,
    "Bruck": Algorithm.BRUCK,
    "binomial tree reduce + broadcast": Algorithm.BINOMIAL_TREE,
    "gather everything, reduce locally": Algorithm.ONE_SHOT,
    "pairwise (fully connected)": Algorithm.PAIRWISE,
}
