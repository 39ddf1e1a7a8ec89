"""Expert parallelism that is wrong in the ways people get it wrong is caught."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from broken import SP, backward, failed, forward, left_out, whats
from commcalc.accounting import data_parallel
from commcalc.accounting.ledger import Ledger, build
from commcalc.algebra.collective import Kind
from commcalc.algebra.schedule import Differentiate, Move
from commcalc.simulate import dispatch, parameters
from commcalc.simulate.architectures import architectures
from commcalc.simulate.cases import fitted, in_small
from commcalc.simulate.execute import Count, Execution
from commcalc.simulate.kernels import KERNELS
from commcalc.simulate.local import Kernel, Local
from commcalc.simulate.small import deepened, roomy
from commcalc.simulate.wire import Array
from commcalc.transformer.layout import KvPolicy
from commcalc.transformer.work import Dispatch, Framework, Parallelism, VocabPadding, Workload

EXPERTS, BIASED = "gqa experts and a shared one behind a dense layer", "gqa sinks, experts with biases"
ALL_CHOSEN = "mha two experts, both chosen"
WRONG = {"forward_error", "loss_error", "gradient_error", "sgd_update_error"}
COUNTED = {"payload_bytes", "wire_bytes", "total_wire_bytes"}


def ledger_of(name: str = EXPERTS, **degrees: Any) -> Ledger:
    parallel = Parallelism(kv=KvPolicy.REPLICATE, vocab_padding=VocabPadding.NONE, **degrees)
    model = fitted(architectures(True)[name]._replace(name="drawn"), parallel.tp, name.split()[0])
    model = deepened(model, parallel.pp)
    return build(model, parallel, roomy(in_small(Workload(), parallel), model, parallel))


LEDGERS: dict[str, dict[str, Any]] = {
    "in data parallelism": {"dp": 4, "ep": 2},
    "over TP too": {"dp": 2, "tp": 2, "layout": SP, "ep": 4, "etp": 1},
    "split experts": {"dp": 4, "tp": 2, "layout": SP, "ep": 2, "etp": 2},
    "gathered": {"dp": 4, "ep": 2, "dispatch": Dispatch.ALL_GATHER},
    "zero 1": {"dp": 4, "ep": 2, "zero": 1},
    "zero 3": {"dp": 4, "ep": 2, "zero": 3},
    "zero 3 in copies": {"dp": 8, "ep": 2, "zero": 3, "dp_shard": 4},
    "megatron": {"dp": 2, "tp": 2, "layout": SP, "ep": 2, "etp": 1, "framework": Framework.MEGATRON},
    "torchtitan": {"dp": 4, "ep": 2, "framework": Framework.TORCHTITAN},
    "stages": {"dp": 2, "ep": 2, "pp": 2},
}


@pytest.mark.parametrize("name", [EXPERTS, BIASED])
@pytest.mark.parametrize("degrees", LEDGERS.values(), ids=LEDGERS)
def test_nothing_fails_unchanged(degrees: dict[str, Any], name: str) -> None:
    assert failed(ledger_of(name, **degrees)) == []


def sparse(ledger: Ledger) -> str:
    """The program of the layers with experts."""
    return next(name for name, one in ledger.derivations.items() if "We_down" in one.gradients)


@pytest.mark.parametrize("zero", range(4))
def test_an_expert_gradient_that_is_not_summed_over_its_copies(zero: int) -> None:
    ledger = ledger_of(dp=4, ep=2, zero=zero)
    part = sparse(ledger)
    derivation = ledger.derivations[part]
    value = derivation.gradients["We_down"]
    assert value.sharding.unreduced == ledger.layout.expert_data
    alone = value._replace(sharding=value.sharding.reduced())
    broken = backward(
        ledger,
        lambda one: one._replace(made=alone) if isinstance(one, Differentiate) and one.made == value else one,
        part,
    )
    found = failed(
        ledger, **{part: broken._replace(gradients={**derivation.gradients, "We_down": alone})}
    )  # fmt: skip
    assert {"gradient_error", "gradient_copies", "gradient_norm_error", "sgd_update_error"} <= whats(found)
    assert whats(found) >= COUNTED  # of what was not sent


@pytest.mark.parametrize("zero", [0, 1])
def test_experts_that_are_summed_like_everything_else(zero: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all data-parallel ranks, which hold other experts."""
    monkeypatch.setattr(parameters, "_alike", lambda ledger, part, weight: ledger.layout.replicas)
    found = failed(ledger_of(dp=4, ep=2, zero=zero))
    assert {"gradient_error", "gradient_norm_error", "sgd_update_error", "rows"} <= whats(found)


def test_a_ledger_that_has_no_group_of_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their gradients are counted with all others, over all data-parallel ranks."""
    every = data_parallel._of
    monkeypatch.setattr(
        data_parallel, "_of",
        lambda programs, name: [one._replace(copies=programs.layout.replicas) for one in every(programs, name)],
    )  # fmt: skip
    assert {"rows", "total_wire_bytes"} <= whats(failed(ledger_of(dp=4, ep=2, zero=1)))


def forgetful(monkeypatch: pytest.MonkeyPatch, tensor: str) -> None:
    """Every change of sharding of this tensor loses what came first: the rows of one rank."""
    move = Execution._move

    def lossy(self: Execution, action: Move, counts: list[Count]) -> None:
        move(self, action, counts)
        if action.target.name == tensor:
            for block in self.values[action.target]:
                block[:, : block.shape[1] // 2] = 0

    monkeypatch.setattr(Execution, "_move", lossy)


@pytest.mark.parametrize("degrees", [LEDGERS["in data parallelism"], LEDGERS["over TP too"]])
def test_a_dispatch_that_forgets_the_rows_of_a_rank(degrees: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful(monkeypatch, "Xe")
    found = failed(ledger_of(**degrees))
    assert whats(found) >= WRONG
    (error,) = [check for check in found if check.what == "forward_error"]
    assert "unpermute" in error.where


def test_a_combine_that_brings_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful(monkeypatch, "Od")
    assert whats(failed(ledger_of(dp=4, ep=2))) >= WRONG


def replaced(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[Local, list[Array], Kernel], Array]) -> None:
    """The forward pass of a kernel computed otherwise."""
    own = KERNELS[name]

    def other(at: Local, held: Sequence[Array]) -> Array:
        return change(at, list(held), own)

    monkeypatch.setitem(KERNELS, name, Kernel(other, own.backward))


def test_a_combine_that_weighs_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, "unpermute_weighed", lambda at, held, own: own.forward(at, [*held[:2], held[2] * held[2]]))
    found = failed(ledger_of(**LEDGERS["torchtitan"]))
    assert whats(found) >= WRONG
    (error,) = [check for check in found if check.what == "forward_error"]
    assert error.message == "Pt is wrong from here on"


def test_rows_that_are_not_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where how much a row counts goes with it, and is forgotten there."""
    replaced(monkeypatch, "permute_routing", lambda at, held, own: np.ones_like(own.forward(at, held)))
    degrees = {"dp": 2, "tp": 2, "layout": SP, "ep": 2, "etp": 1, "framework": Framework.MEGATRON}
    assert whats(failed(ledger_of(**degrees))) >= WRONG


def test_rows_in_another_order_on_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, "unpermute_weighed", lambda at, held, own: own.forward(at, [held[0][:, ::-1], *held[1:]]))
    assert whats(failed(ledger_of(**LEDGERS["torchtitan"]))) >= WRONG


def test_tokens_that_go_to_the_next_expert(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = dispatch._rows

    def turned(chosen: Array, low: int, high: int, room: int) -> Any:
        token, number, expert, row = rows(chosen, low, high, room)
        return token, number, (expert + 1) % (high - low), row

    own = KERNELS["permute"]

    def forward_(at: Local, held: Sequence[Array]) -> Array:
        with monkeypatch.context() as inside:
            inside.setattr(dispatch, "_rows", turned)
            return own.forward(at, held)

    monkeypatch.setitem(KERNELS, "permute", Kernel(forward_, own.backward))
    assert whats(failed(ledger_of(dp=4, ep=2))) >= WRONG


def test_sums_of_split_experts_that_are_not_brought_together() -> None:
    ledger = ledger_of(**LEDGERS["split experts"])
    part = sparse(ledger)
    names = {
        one.event.tensor for one in ledger.derivations[part].forward
        if isinstance(one, Move) and one.event.step.kind is Kind.REDUCE_SCATTER and one.event.label == "experts"
    }  # fmt: skip
    assert names
    broken = forward(ledger, left_out(Kind.REDUCE_SCATTER, names.pop()), part)
    found = failed(ledger, **{part: broken})
    assert "forward_error" in whats(found)


@pytest.mark.parametrize("degrees", LEDGERS.values(), ids=LEDGERS)
@pytest.mark.parametrize("op", ["dispatch", "combine"])
def test_a_row_that_is_missing(op: str, degrees: dict[str, Any]) -> None:
    ledger = ledger_of(**degrees)
    at = next(at for at, row in enumerate(ledger.rows) if row.op == op)
    rows = (*ledger.rows[:at], *ledger.rows[at + 1 :])
    assert {"rows", "total_wire_bytes"} <= whats(failed(ledger._replace(rows=rows)))


def test_counts_that_go_before_the_rows() -> None:
    """Where no row is left out and none is empty, every rank tells how many it sends."""
    ledger = ledger_of(ALL_CHOSEN, dp=2, ep=2)
    assert failed(ledger) == []
    rows = [row for row in ledger.rows if row.tensor.startswith("counts") or row.tensor.startswith("counted")]
    assert [(row.op, row.kind, row.group) for row in rows] == [("dispatch", Kind.ALL_GATHER, "ep")]
    ledger = ledger_of(ALL_CHOSEN, dp=2, ep=2, framework=Framework.TORCHTITAN)
    assert failed(ledger) == []
    assert (Kind.ALL_TO_ALL, "counted[E, W]") in {(row.kind, row.tensor) for row in ledger.rows}


def test_the_group_that_rows_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = ledger_of(dp=4, ep=2)
    rows = tuple(row._replace(group="dp") if row.op == "dispatch" else row for row in ledger.rows)
    found = failed(ledger._replace(rows=rows))
    assert {"row", "total_wire_bytes"} <= whats(found)
    assert {check.message for check in found if check.what == "row"} == {"'dp' is 'ep'"}
