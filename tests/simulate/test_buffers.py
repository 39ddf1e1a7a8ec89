"""Shards and buckets: cut as torch stores parameters, padded, and put together again."""

from __future__ import annotations

import numpy as np
import pytest

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.program import Op, Rule
from commcalc.simulate.buffers import Runs, Shards, Stored, first_dims
from commcalc.simulate.grid import Grid
from commcalc.simulate.local import Batch
from commcalc.simulate.shares import shares_of, within_share

GRID = Grid(Mesh.of({"dp": 3, "tp": 2}), {})
STORED = {"W": Stored((4, 5), (1,)), "b": Stored((2, 2), (0, 1)), "gate": Stored((4,), ())}


def blocks(seed: int) -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return {name: [rng.integers(0, 9, one.shape).astype(float) for _ in range(6)] for name, one in STORED.items()}


@pytest.mark.parametrize("shards", [Shards(STORED, GRID, ("dp",)), Runs(STORED, GRID, ("dp",), None),
                                    Runs(STORED, GRID, ("dp",), 7)])  # fmt: skip
def test_the_sum_of_a_group_in_shards_and_whole_again(shards: Shards) -> None:
    held = blocks(0)
    pieces, sent = shards.scatter(held, 32, np.add)
    whole, _ = shards.gather(pieces, 32)
    for name, of in held.items():
        for rank in range(6):
            assert whole[name][rank].tolist() == sum(of[other] for other in range(rank % 2, 6, 2)).tolist()
    assert {one.group_size for one in sent} == {3}
    own, _ = shards.gather(shards.own({name: of[:1] * 6 for name, of in held.items()}), 32)
    assert all((own[name][3] == of[0]).all() for name, of in held.items())


def test_padding() -> None:
    """By rows each parameter by itself: 5 columns become 6 rows, 4 elements 6, one row 3; in a row 28 become 30."""
    by_rows = Shards(STORED, GRID, ("dp",)).scatter(blocks(1), 32, np.add)[1]
    assert [one.payload_bytes for one in by_rows] == [4 * (6 * 4 + 6 + 3 * 4)]
    in_one = Runs(STORED, GRID, ("dp",), None).scatter(blocks(1), 32, np.add)[1]
    assert [one.payload_bytes for one in in_one] == [4 * 30]
    buckets = Runs(STORED, GRID, ("dp",), 10).scatter(blocks(1), 32, np.add)[1]
    assert [one.payload_bytes // 4 for one in buckets] == [9, 9, 9, 3]


def op_of(rule: Rule, over: tuple[str, ...] = (), function: str = "") -> Op:
    return Op("op", "op", "", rule, ("X",), ("W",), "Y", over, function)


@pytest.mark.parametrize(
    ("op", "dims", "made", "first"),
    [
        (op_of(Rule.CONTRACT), "D N H", "T N H", (1, 2)),  # torch.nn.Linear(D, N * H): [out, in]
        (op_of(Rule.CONTRACT), "N H D", "T D", (2,)),
        (op_of(Rule.CONTRACT), "D E", "T E", (1,)),  # a router
        (op_of(Rule.CONTRACT), "D", "T", ()),  # a gate with one output
        (op_of(Rule.ROUTE), "E D M", "T C M", (0,)),
        (op_of(Rule.LOOKUP), "V D", "T D", (0,)),
        (op_of(Rule.BIAS, function="positions"), "P D", "T D", (0,)),
        (op_of(Rule.BIAS), "N H", "T N H", (0, 1)),  # one vector
        (op_of(Rule.NORM, ("N", "H")), "N H", "T N H", (0, 1)),
        (op_of(Rule.NORM, ("H",)), "N H", "T N H", (0,)),  # of each head its own, [heads, width]
        (op_of(Rule.ATTEND, ("T",), "convolution"), "NK HK CONV", "T NK HK", (0, 1)),  # Conv1d: by channel
    ],
)
def test_what_is_stored_first(op: Op, dims: str, made: str, first: tuple[int, ...]) -> None:
    assert first_dims(op, "W", dims.split(), made.split()) == first


def test_shares_of_a_batch() -> None:
    """Sequences are dealt out over the data axes alone, and count from the first of each share."""
    batch = Batch(np.arange(8), np.arange(8), 4)
    shares = shares_of(batch, Grid(Mesh.of({"dp": 2, "tp": 2}), {}), ("dp",))
    assert [share.batch.tokens.tolist() for share in shares] == [[0, 1, 2, 3]] * 2 + [[4, 5, 6, 7]] * 2
    assert [share.batch.sequences for share in shares] == [2] * 4
    assert within_share(((4, 8), (1, 3)), ("T", "N"), shares[3]) == ((0, 4), (1, 3))
