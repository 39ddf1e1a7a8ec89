"""Context parallelism that is wrong in the ways people get it wrong is caught."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from broken import EXACT, SP, failed, whats
from commcalc.accounting.ledger import Ledger, build
from commcalc.algebra.collective import Kind
from commcalc.algebra.schedule import Move
from commcalc.simulate import attention, kernels, shares, training
from commcalc.simulate.architectures import architectures
from commcalc.simulate.cases import fitted, in_small
from commcalc.simulate.execute import Count, Execution
from commcalc.simulate.grid import Block
from commcalc.simulate.kernels import KERNELS
from commcalc.simulate.local import Kernel, Local, Places, Share
from commcalc.simulate.places import Lines, Order, Parts, order_of
from commcalc.simulate.small import deepened
from commcalc.simulate.trial import run_trial
from commcalc.simulate.wire import Array
from commcalc.transformer.layout import KvPolicy
from commcalc.transformer.work import CpComm, Parallelism, VocabPadding, Workload

PLAIN, TIED, LATENTS = "gqa gated sequential", "mha plain, biases, learned positions", "mha latents, experts"
WRONG = {"forward_error", "loss_error", "gradient_error", "sgd_update_error"}


def ledger_of(name: str = PLAIN, way: CpComm = CpComm.RING, sequences: int | None = None, **degrees: Any) -> Ledger:
    parallel = Parallelism(kv=KvPolicy.REPLICATE, vocab_padding=VocabPadding.NONE, cp_comm=way, **degrees)
    model = fitted(architectures(True)[name]._replace(name="drawn"), parallel.tp, name.split()[0])
    work = in_small(Workload(), parallel, many=sequences)
    return build(
        deepened(model, parallel.pp)._replace(max_position_embeddings=work.sequence_length), parallel, work
    )  # fmt: skip


LEDGERS: dict[str, dict[str, Any]] = {
    "two": {"cp": 2},
    "four": {"cp": 4},
    "with TP": {"cp": 2, "tp": 2, "layout": SP},
    "zero 3": {"cp": 2, "dp": 2, "zero": 3},
    "zero 1": {"cp": 2, "dp": 2, "zero": 1, "tp": 2, "layout": SP},
    "stages": {"cp": 2, "pp": 2, "zero": 3},
}


@pytest.mark.parametrize("way", CpComm)
@pytest.mark.parametrize("name", [PLAIN, TIED, LATENTS])
@pytest.mark.parametrize("degrees", LEDGERS.values(), ids=LEDGERS)
def test_nothing_fails_unchanged(degrees: dict[str, Any], name: str, way: CpComm) -> None:
    assert failed(ledger_of(name, way, **degrees)) == []


@pytest.mark.parametrize("way", CpComm)
@pytest.mark.parametrize("parts", Parts)
@pytest.mark.parametrize("sequences", [1, 2, 3])
@pytest.mark.parametrize("degrees", LEDGERS.values(), ids=LEDGERS)
def test_nothing_fails_in_parts_of_several_sequences(
    degrees: dict[str, Any], sequences: int, parts: Parts, way: CpComm
) -> None:
    ledger = ledger_of(TIED, way, sequences, **degrees)
    assert [check for check in run_trial(ledger, EXACT, 0, parts=parts) if not check.passed] == []


@pytest.mark.parametrize("way", CpComm)
@pytest.mark.parametrize("parts", Parts)
def test_sequences_that_see_one_another(parts: Parts, way: CpComm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens are taken for sequence after sequence, where they lie part after part."""
    lines = attention.lines_of

    def as_they_lie(at: Local, block: Block) -> Lines:
        right = lines(at, block)
        rows = np.arange(right.rows.size).reshape(right.rows.shape)
        return right._replace(rows=rows)

    ledger = ledger_of(way=way, sequences=2, cp=2)
    monkeypatch.setattr(attention, "lines_of", as_they_lie)
    assert whats([check for check in run_trial(ledger, EXACT, 0, parts=parts) if not check.passed]) >= WRONG


@pytest.mark.parametrize("way", CpComm)
def test_early_and_late_parts_that_are_taken_for_runs(way: CpComm, monkeypatch: pytest.MonkeyPatch) -> None:
    right = shares.places_of

    def of_runs(order: Order, length: int, rank: int, ranks: int, begins: int) -> Places:
        tokens = len(order.tokens)
        runs = order_of(tokens, tokens // length, ranks, 2, Parts.RUNS)
        return right(runs, length, rank, ranks, begins)

    ledger = ledger_of(way=way, cp=2)
    monkeypatch.setattr(shares, "places_of", of_runs)
    assert whats(failed(ledger)) >= WRONG


def test_late_parts_that_are_given_to_another_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank r takes parts r and n + r of 2n: all is trained on, and lies elsewhere than is said."""

    def shifted(tokens: int, sequences: int, ranks: int, ways: int, parts: Parts) -> Order:
        cut = np.arange(tokens).reshape(sequences, 2, ways, -1)
        return Order(cut.transpose(2, 0, 1, 3).ravel())

    ledger = ledger_of(cp=2)
    assert failed(ledger) == []
    monkeypatch.setattr(shares, "order_of", shifted)
    assert whats(failed(ledger)) == {"forward_error", "input_gradient_error"}


@pytest.mark.parametrize(("ranks", "ways", "sequences"), [(1, 2, 1), (1, 4, 3), (2, 2, 4), (2, 4, 2)])
def test_early_and_late_parts_have_as_much_to_look_at(ranks: int, ways: int, sequences: int) -> None:
    """The earlier tokens of all that a rank has: as many on each, where parts are early and late."""
    length = 8 * ways
    for parts in Parts:
        order = order_of(sequences * length, sequences, ranks, ways, parts)
        assert sorted(order.tokens.tolist()) == list(range(sequences * length))
        held = order.tokens.reshape(ranks, ways, sequences // ranks, -1)
        assert (held // length == np.arange(sequences).reshape(ranks, 1, -1, 1)).all()
        seen = (held % length + 1).sum(axis=(2, 3))
        assert (len(set(seen.ravel().tolist())) == 1) == (parts is Parts.BALANCED)
        back = order.back(order.lie(np.arange(sequences * length)))
        assert back.tolist() == list(range(sequences * length))


@pytest.mark.parametrize("way", [CpComm.RING, CpComm.ALL_GATHER])
def test_queries_that_do_not_know_where_they_are(way: CpComm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank takes its first query for the first of the sequence."""
    seen = attention._hidden

    def from_the_first(queries: Lines, keys: Lines) -> Array:
        return seen(queries._replace(positions=keys.positions[: len(queries.positions)]), keys)

    monkeypatch.setattr(attention, "_hidden", from_the_first)
    found = failed(ledger_of(way=way, cp=2))
    assert whats(found) >= WRONG
    (error,) = [check for check in found if check.what == "forward_error"]
    assert error.where == "block.0, attention: O of attention"


def test_positions_that_begin_anew_on_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    within = kernels.within

    def anew(places: Places, block: Sequence[int]) -> tuple[Array, Array]:
        sequence, position = within(places, block)
        return sequence, np.arange(len(position))

    monkeypatch.setattr(kernels, "within", anew)
    assert whats(failed(ledger_of(TIED, cp=2))) >= WRONG


def test_ranks_that_have_the_parts_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    dealt = training.shares_of

    def turned(*given: Any) -> list[Share]:
        found = dealt(*given)
        return [one._replace(begins=other.begins) for one, other in zip(reversed(found), found, strict=True)]

    monkeypatch.setattr(training, "shares_of", turned)
    assert "forward_error" in whats(failed(ledger_of(cp=2)))


def lossy(monkeypatch: pytest.MonkeyPatch, tensor: str) -> None:
    """A change of sharding of this tensor in which the last tokens do not arrive."""
    move = Execution._move

    def some(self: Execution, action: Move, counts: list[Count]) -> None:
        move(self, action, counts)
        if action.target.name == tensor:
            for block in self.values[action.target]:
                block[len(block) // 2 :] = 0

    monkeypatch.setattr(Execution, "_move", some)


@pytest.mark.parametrize(
    ("tensor", "way"), [("K", CpComm.RING), ("V", CpComm.ALL_GATHER), ("Qx", CpComm.ULYSSES), ("O", CpComm.ULYSSES)]
)
def test_tokens_that_do_not_arrive(tensor: str, way: CpComm, monkeypatch: pytest.MonkeyPatch) -> None:
    lossy(monkeypatch, tensor)
    assert whats(failed(ledger_of(way=way, cp=2))) >= WRONG


def test_gradients_of_keys_that_do_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    lossy(monkeypatch, "dK")
    found = whats(failed(ledger_of(cp=2)))
    assert {"gradient_error", "sgd_update_error"} <= found
    assert "loss_error" not in found


def test_repeated_heads_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    own = KERNELS["repeat_heads"]

    def turned(at: Local, held: Sequence[Array]) -> Array:
        return np.flip(own.forward(at, held), axis=1)

    monkeypatch.setitem(KERNELS, "repeat_heads", Kernel(turned, own.backward))
    assert whats(failed(ledger_of(way=CpComm.ULYSSES, cp=4))) >= WRONG


@pytest.mark.parametrize("calls", [1, 2, 4])
def test_a_ring_of_another_length(calls: int) -> None:
    ledger = ledger_of(cp=4)
    rows = tuple(row._replace(calls=calls) if row.kind is Kind.SEND_RECV else row for row in ledger.rows)
    assert {row.calls for row in ledger.rows if row.kind is Kind.SEND_RECV} == {3}
    assert {"rows", "total_wire_bytes"} <= whats(failed(ledger._replace(rows=rows)))


def test_a_ring_without_values() -> None:
    """Keys alone are counted."""
    ledger = ledger_of(cp=2)
    rows = tuple(
        row._replace(payload_bytes=row.payload_bytes // 2, wire_bytes=row.wire_bytes // 2)
        if row.kind is Kind.SEND_RECV and row.tensor == "K, V" else row
        for row in ledger.rows
    )  # fmt: skip
    assert rows != ledger.rows
    assert whats(failed(ledger._replace(rows=rows))) == {"payload_bytes", "wire_bytes", "total_wire_bytes"}


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_gradients_that_are_summed_over_data_parallel_ranks_alone(zero: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of a context group have parts of the same sequences, and gradients of their own."""
    units = training.units_of
    monkeypatch.setattr(
        training, "units_of", lambda *given: [unit._replace(axes=("dp",)) for unit in units(*given)]
    )  # fmt: skip
    found = failed(ledger_of(cp=2, dp=2, zero=zero))
    assert {"gradient_error", "adam_update_error"} <= whats(found)
