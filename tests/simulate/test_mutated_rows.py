"""Rows for experts: copies that go once to a rank, capacities and narrow types, wrong in the ways people get them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from broken import SP, failed, whats
from commcalc.accounting import draft
from commcalc.accounting.draft import Draft
from commcalc.accounting.ledger import Ledger, build
from commcalc.simulate import copies, dispatch, execute, plain_experts, training
from commcalc.simulate.architectures import architectures
from commcalc.simulate.capacity import Room
from commcalc.simulate.cases import fitted, in_small
from commcalc.simulate.choices import every_choice
from commcalc.simulate.copies import Packing
from commcalc.simulate.elements import Elements
from commcalc.simulate.kernels import KERNELS
from commcalc.simulate.local import Kernel, Local
from commcalc.simulate.small import roomy
from commcalc.simulate.wire import Array
from commcalc.transformer import dialects, work
from commcalc.transformer.layout import KvPolicy
from commcalc.transformer.work import Dispatch, Framework, Parallelism, VocabPadding, Workload
from commcalc.units import Dtype

EXPERTS, BIASED = "gqa experts and a shared one behind a dense layer", "gqa sinks, experts with biases"
WRONG = {"forward_error", "loss_error", "gradient_error", "sgd_update_error"}
COUNTED = {"payload_bytes", "wire_bytes", "total_wire_bytes"}
ONCE: dict[str, Any] = {"dispatch": Dispatch.DEDUPLICATED}
LEDGERS: dict[str, dict[str, Any]] = {
    "once": {"dp": 4, "ep": 2, **ONCE},
    "over TP too": {"dp": 2, "tp": 2, "layout": SP, "ep": 4, "etp": 1, **ONCE},
    "to nodes": {"dp": 4, "ep": 4, "ep_nodes": 2, **ONCE},
    "to some nodes": {"dp": 8, "ep": 8, "ep_nodes": 4, "node_limit": 2, **ONCE},
    "torchtitan": {"dp": 4, "ep": 4, "ep_nodes": 2, "framework": Framework.TORCHTITAN, **ONCE},
}
FULL, LESS = Workload(capacity_factor=Fraction(1)), Workload(capacity_factor=Fraction(1, 2))
NARROW = Workload(dispatch_dtype=Dtype.FP8, combine_dtype=Dtype.FP32, scale_block=16)


PLAINLY = Workload()


def ledger_of(asked: Workload = PLAINLY, name: str = EXPERTS, **degrees: Any) -> Ledger:
    parallel = Parallelism(kv=KvPolicy.REPLICATE, vocab_padding=VocabPadding.NONE, **degrees)
    model = fitted(architectures(True)[name]._replace(name="drawn"), parallel.tp, name.split()[0])
    return build(model, parallel, roomy(in_small(asked, parallel), model, parallel))


@pytest.mark.parametrize("name", [EXPERTS, BIASED])
@pytest.mark.parametrize("asked", [Workload(), NARROW], ids=["as they are", "narrow"])
@pytest.mark.parametrize("degrees", LEDGERS.values(), ids=LEDGERS)
def test_nothing_fails_unchanged(degrees: dict[str, Any], asked: Workload, name: str) -> None:
    assert failed(ledger_of(asked, name, **degrees)) == []


@pytest.mark.parametrize("name", [EXPERTS, BIASED])
@pytest.mark.parametrize("asked", [FULL, LESS, NARROW, NARROW._replace(capacity_factor=Fraction(3, 2))], ids=str)
def test_nothing_fails_unchanged_in_rows_that_are_full_or_narrow(asked: Workload, name: str) -> None:
    assert failed(ledger_of(asked, name, dp=4, ep=2)) == []


# Copies: what the ledger may get wrong.


def counted_as(monkeypatch: pytest.MonkeyPatch, **wrong: Fraction) -> None:
    right = work.copies_of_a_token
    for module in (work, draft):
        monkeypatch.setattr(module, "copies_of_a_token", lambda *given: {**right(*given), **wrong})


@pytest.mark.parametrize(
    "wrong",
    [Fraction(2), 2 * (1 - Fraction(1, 2) ** 2), Fraction(2) * (1 - Fraction(4, 8) * Fraction(4, 8))],
    ids=["one for each choice", "choices that may fall on one expert twice", "with replacement"],
)
def test_another_mean_of_copies(wrong: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 of 8 experts, 4 on a rank: 11/7 copies; 3/2 if experts were drawn one by one and put back."""
    assert work.copies_of_a_token(8, 2, Parallelism(ep=2))["copies"] == Fraction(11, 7) != wrong
    counted_as(monkeypatch, copies=wrong)
    assert whats(failed(ledger_of(**LEDGERS["once"]))) == COUNTED


@pytest.mark.parametrize("part", ["copies", "node_copies"])
def test_copies_of_nodes_and_of_ranks_taken_for_one_another(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = work.copies_of_a_token(8, 2, Parallelism(ep=4, ep_nodes=2))
    other = right["copies" if part == "node_copies" else "node_copies"]
    counted_as(monkeypatch, **{part: other})
    assert whats(failed(ledger_of(**LEDGERS["to nodes"]))) == COUNTED


def test_a_limit_of_nodes_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    right = work.copies_of_a_token
    for module in (work, draft):
        monkeypatch.setattr(
            module, "copies_of_a_token", lambda e, c, plan: right(e, c, plan._replace(node_limit=None))
        )  # fmt: skip
    assert whats(failed(ledger_of(**LEDGERS["to some nodes"]))) == COUNTED


@pytest.mark.parametrize("degrees", LEDGERS.values(), ids=LEDGERS)
@pytest.mark.parametrize("tensor", ["X", "I", "R", "O"])
def test_a_row_that_is_missing(tensor: str, degrees: dict[str, Any]) -> None:
    """Of tokens, of the numbers of their experts, of their weights, of results."""
    ledger = ledger_of(**degrees)
    moved = [row for row in ledger.rows if row.group == "ep" and row.tensor.startswith(tensor)]
    rows = tuple(row for row in ledger.rows if row is not moved[-1])
    assert {"rows", "total_wire_bytes"} <= whats(failed(ledger._replace(rows=rows)))


def test_weights_that_stay_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that sums what its experts say cannot leave it to others to weigh it."""
    right = dialects.dialect_of
    monkeypatch.setattr(
        "commcalc.accounting.programs.dialect_of", lambda *given: right(*given)._replace(sends_routing=False)
    )  # fmt: skip
    (check,) = failed(ledger_of(**LEDGERS["torchtitan"]))
    assert check.what == "forward_error"
    assert check.message == "one copy of a token stands for rows that say different things"


# Copies: what goes wrong on the way.


@pytest.mark.parametrize("packing", Packing)
@pytest.mark.parametrize("degrees", [LEDGERS["once"], LEDGERS["to nodes"]], ids=["once", "to nodes"])
def test_what_is_lost_on_the_way(packing: Packing, degrees: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The last token of every message."""
    packed = copies._packed

    def short(part: Any, rows: Array, how: Packing, choices: int) -> Array:
        made = packed(part, rows, how, choices)
        if how is packing and made.dtype.kind == "f":
            made[-1:] = 0
        return made

    monkeypatch.setattr(copies, "_packed", short)
    assert {"gradient_error", "forward_error"} & whats(failed(ledger_of(**degrees)))


def test_sums_that_have_one_term(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = copies._packed

    def first(part: Any, rows: Array, how: Packing, choices: int) -> Array:
        return rows[part.filled][part.first] if how is Packing.SUM else packed(part, rows, how, choices)

    monkeypatch.setattr(copies, "_packed", first)
    assert whats(failed(ledger_of(**LEDGERS["once"]))) >= WRONG


def test_a_copy_for_every_choice_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is right but for the bytes."""
    monkeypatch.setattr(execute, "_packing", lambda event: None)
    assert whats(failed(ledger_of(**LEDGERS["once"]))) == COUNTED


def test_a_rank_that_is_told_of_other_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    own = KERNELS["permute_choices"]

    def next_ones(at: Local, held: Sequence[Array]) -> Array:
        return np.flip(own.forward(at, held), axis=0)

    monkeypatch.setitem(KERNELS, "permute_choices", Kernel(next_ones, own.backward))
    (check,) = failed(ledger_of(**LEDGERS["once"]))
    assert check.what == "forward_error"
    assert "is told of other experts than those that its tokens chose" in check.message


def test_choices_that_are_not_all_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same number of tokens, all of one choice: the mean is another."""
    drawn = training.drawn

    def alike(*given: Any) -> Array | None:
        made = drawn(*given)
        return None if made is None else np.broadcast_to(made[:1], made.shape)

    monkeypatch.setattr(training, "drawn", alike)
    found = failed(ledger_of(**LEDGERS["once"]))
    assert whats(found) >= {"payload_bytes"} or "sent different amounts" in found[0].message


@pytest.mark.parametrize(
    ("experts", "chosen", "nodes", "limit", "ways"), [(8, 2, 1, 1, 28), (8, 2, 4, 2, 36), (4, 3, 2, 2, 4)]
)
def test_every_choice_is_there_once(experts: int, chosen: int, nodes: int, limit: int, ways: int) -> None:
    """With all nodes open each once; where nodes are chosen first, as often as there are nodes to choose it by."""
    found = every_choice(experts, chosen, nodes, limit)
    assert found.shape == (ways, chosen)
    assert (np.diff(found, axis=1) > 0).all()
    assert (np.bincount(found.ravel()) == ways * chosen // experts).all()  # no expert is chosen more than others
    places = {len(set(one)) for one in (found // (experts // nodes)).tolist()}
    assert max(places) <= limit
    if limit == nodes:
        assert len({tuple(one) for one in found.tolist()}) == ways


# Capacity.


@pytest.mark.parametrize("asked", [FULL, LESS], ids=["1", "1/2"])
def test_experts_that_leave_out_one_token_more(asked: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = dispatch._rows
    monkeypatch.setattr(dispatch, "_rows", lambda chosen, low, high, room: rows(chosen, low, high, room - 1))
    assert whats(failed(ledger_of(asked, dp=4, ep=2))) >= WRONG


@pytest.mark.parametrize("asked", [FULL, LESS], ids=["1", "1/2"])
def test_a_baseline_that_leaves_nothing_out(asked: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_experts, "taken", lambda chosen, experts, room: np.ones(chosen.shape))
    assert whats(failed(ledger_of(asked, dp=4, ep=2))) >= WRONG


def test_capacities_of_other_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is bounded is what a rank sends, not what an expert gets from all of them."""
    taken = plain_experts.taken

    def of_all(chosen: Array, experts: int, room: Room) -> Array:
        return taken(chosen, experts, Room([np.concatenate(list(room.ranks))], room.rows * len(room.ranks)))

    monkeypatch.setattr(plain_experts, "taken", of_all)
    assert whats(failed(ledger_of(FULL, dp=4, ep=2))) >= WRONG


@pytest.mark.parametrize("factor", [Fraction(9, 8), Fraction(7, 8)])
def test_a_capacity_that_is_rounded_down(factor: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 tokens of a rank, 2 of 8 experts: 4 rows on average, and 4.5 are 5."""

    def rows(experts: int, choices: int, asked: Workload, parallel: Parallelism) -> int:
        return int(asked.tokens * choices * (asked.capacity_factor or 1) // experts)

    assert failed(ledger_of(Workload(capacity_factor=factor), dp=4, ep=2)) == []
    monkeypatch.setattr(work, "expert_rows", rows)
    assert whats(failed(ledger_of(Workload(capacity_factor=factor), dp=4, ep=2))) >= COUNTED


# Narrow types.


@pytest.mark.parametrize("degrees", [{"dp": 4, "ep": 2}, LEDGERS["once"]], ids=["for each choice", "once"])
def test_scales_that_are_not_counted(degrees: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Draft, "_with_scales", lambda self, event, size: size)
    assert whats(failed(ledger_of(NARROW, **degrees))) == COUNTED


@pytest.mark.parametrize("degrees", [{"dp": 4, "ep": 2}, LEDGERS["once"]], ids=["for each choice", "once"])
def test_scales_that_are_not_sent(degrees: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements that are multiplied by nothing where they arrive."""
    spread, calls = execute.spread, []

    def there_alone(scales: Array, block: int, width: int) -> Array:
        calls.append(scales)
        return spread(scales, block, width) if len(calls) % 8 < 4 else np.ones((*scales.shape[:-1], width))

    assert failed(ledger_of(NARROW, **degrees)) == []
    monkeypatch.setattr(execute, "spread", there_alone)
    assert whats(failed(ledger_of(NARROW, **degrees))) >= WRONG


def test_a_narrow_type_that_gradients_take_too(monkeypatch: pytest.MonkeyPatch) -> None:
    of = Elements.of
    monkeypatch.setattr(Elements, "of", lambda self, event: of(self, event._replace(direction="forward")))
    found = failed(ledger_of(NARROW._replace(scale_block=None), dp=4, ep=2))
    assert whats(found) == {"row", *COUNTED}
    assert {check.message for check in found if check.what == "row"} == {"16 is 8", "16 is 32"}


def test_a_narrow_type_of_the_wrong_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back in the type of what goes there."""
    ledger = ledger_of(NARROW._replace(scale_block=None), dp=4, ep=2)
    rows = tuple(
        row._replace(dtype=Dtype.FP8, payload_bytes=row.payload_bytes // 4, wire_bytes=row.wire_bytes // 4)
        if row.op == "combine" and row.dtype is Dtype.FP32 else row
        for row in ledger.rows
    )  # fmt: skip
    assert rows != ledger.rows
    assert whats(failed(ledger._replace(rows=rows))) == {"row", *COUNTED}
