"""Layouts of their own that are wrong in the ways people get them wrong are caught."""

from __future__ import annotations

from typing import Any

import pytest

from broken import EXACT, backward, failed, forward, left_out, whats
from commcalc.accounting.ledger import Ledger, build
from commcalc.algebra.collective import Kind
from commcalc.algebra.schedule import REGATHER, WEIGHT_AGAIN, Action, Move
from commcalc.errors import ShardingError
from commcalc.simulate.architectures import architectures
from commcalc.simulate.cases import cases, fitted, in_small
from commcalc.simulate.check import Check
from commcalc.simulate.own_layouts import own_layouts
from commcalc.simulate.trial import run_trial
from commcalc.transformer import two_axes
from commcalc.transformer.layout import KvPolicy, Layout, LayoutName
from commcalc.transformer.work import Parallelism, VocabPadding, Workload

PLAIN, TIED = "gqa gated sequential", "mha plain, biases, learned positions"
WRONG = {"forward_error", "loss_error", "gradient_error", "sgd_update_error"}


def ledger_of(layout: LayoutName, name: str = PLAIN, tp: int = 4, **degrees: Any) -> Ledger:
    if layout is LayoutName.TWO_D:
        degrees = {"tp_x": 2} | degrees
    parallel = Parallelism(
        tp=tp, layout=layout, kv=KvPolicy.REPLICATE, vocab_padding=VocabPadding.NONE, **degrees
    )  # fmt: skip
    model = fitted(architectures(True)[name]._replace(name="drawn"), tp, name.split()[0])
    work = in_small(Workload(), parallel)
    return build(model._replace(max_position_embeddings=work.sequence_length), parallel, work)


OWN = [layout for layout in LayoutName if layout.own]


@pytest.mark.parametrize("name", [PLAIN, TIED])
@pytest.mark.parametrize("layout", OWN)
def test_nothing_fails_unchanged(layout: LayoutName, name: str) -> None:
    assert failed(ledger_of(layout, name)) == []


def collectives(layout: LayoutName, name: str = PLAIN) -> list[tuple[str, Kind, str]]:
    """Every collective of a layer, by direction, kind and tensor."""
    block = ledger_of(layout, name).derivations["block"]
    found = [("forward", one.step.kind, one.tensor) for one in block.steps("forward")]
    return found + [
        ("backward", one.step.kind, one.tensor)
        for one in block.steps("backward")
        if one.note not in (REGATHER, WEIGHT_AGAIN)
    ]


@pytest.mark.parametrize(
    ("layout", "direction", "kind", "tensor"),
    [(layout, *one) for layout in OWN for one in dict.fromkeys(collectives(layout)) if one[1] is not Kind.ALL_GATHER],
)
def test_a_sum_that_is_left_out(layout: LayoutName, direction: str, kind: Kind, tensor: str) -> None:
    """Each device takes its own term for the whole."""
    ledger = ledger_of(layout)
    broken = (forward if direction == "forward" else backward)(ledger, left_out(kind, tensor))
    found = whats(failed(ledger, broken))
    assert "rows" in found
    assert found & WRONG
    assert ("forward_error" in found) == (direction == "forward")


@pytest.mark.parametrize("layout", OWN)
def test_a_gather_that_is_left_out(layout: LayoutName) -> None:
    """The operation that needs it cannot run."""
    ledger = ledger_of(layout)
    gathered = [one.tensor for one in ledger.derivations["block"].steps("forward") if one.step.kind is Kind.ALL_GATHER]
    for tensor in dict.fromkeys(gathered):

        def change(one: Action, tensor: str = tensor) -> Action | None:
            gather = isinstance(one, Move) and one.event.step.kind is Kind.ALL_GATHER and one.event.tensor == tensor
            return None if gather else one

        (check,) = failed(ledger, forward(ledger, change))
        assert check.what == "forward_error"
        assert "before any device holds it so" in check.message


@pytest.mark.parametrize("part", ["block", "head"])
def test_a_weight_that_is_not_brought_again(part: str) -> None:
    """It was forgotten after the forward pass: no gradient of an input can be made without it."""
    ledger = ledger_of(LayoutName.WEIGHT_GATHERED)

    def change(one: Action) -> Action | None:
        return None if isinstance(one, Move) and one.event.note == WEIGHT_AGAIN else one

    (check,) = failed(ledger, **{part: backward(ledger, change, part)})
    assert (check.what, check.passed) == ("forward_error", False)
    assert "cannot be computed on a device" in check.message


@pytest.mark.parametrize("layout", [LayoutName.SEQUENCE, LayoutName.WEIGHT_GATHERED])
def test_gradients_of_parameters_that_are_not_summed(layout: LayoutName, monkeypatch: pytest.MonkeyPatch) -> None:
    from commcalc.simulate.reduction import Reduction

    monkeypatch.setattr(Reduction, "_sum_alike", lambda *_: None)
    found = whats(failed(ledger_of(layout)))
    assert {"gradient_error", "rows"} <= found
    assert "forward_error" not in found


@pytest.mark.parametrize("name", [PLAIN, TIED])
def test_columns_in_another_order_than_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads and columns lie over tp_y first: scattered over tp_x first they are none of the weights' rows."""
    usual = two_axes.lay_out_2d

    def other(*given: Any) -> Layout:
        layout = usual(*given)
        assert layout.columns is not None
        return layout._replace(columns={dim: axes[::-1] for dim, axes in layout.columns.items()})

    monkeypatch.setattr(two_axes, "lay_out_2d", other)
    with pytest.raises(ShardingError, match="exchanging the order of axes"):
        ledger_of(LayoutName.TWO_D, name)


def test_every_degree_that_is_asked_for_is_run() -> None:
    """Those of the default set, and where degrees are chosen one model at each of them."""
    for layout in OWN:
        usual = cases([layout], (1, 2, 4, 8), everything=False)
        assert len(usual) == len([one for one in own_layouts(False) if one.parallel.layout is layout])
        chosen = cases([layout], (2, 8), everything=False)
        assert {case.parallel.tp for case in chosen} == {2, 8}
        for case in chosen:
            checks: list[Check] = run_trial(build(case.model, case.parallel, case.work), EXACT, 0)
            assert [check for check in checks if not check.passed] == []
