"""What rounding excuses: as much as it does on one device, at the default sizes nothing, and no mistake."""

from __future__ import annotations

import numpy as np
import pytest

from commcalc.algebra.collective import Kind
from commcalc.algebra.schedule import Move
from commcalc.simulate.cases import cases, plan_all
from commcalc.simulate.check import Worst
from commcalc.simulate.plain import plain_run
from commcalc.simulate.precision import Format, Precision, precision_of
from commcalc.simulate.rounding import ANY, RUNS, TIMES, Rounding, noise_of
from commcalc.simulate.tape import Noise
from commcalc.simulate.training import random_data
from commcalc.simulate.trial import run_trial
from commcalc.transformer.layout import LayoutName

PLANNED = plan_all(cases([LayoutName.MEGATRON], [2, 8], everything=False))
LEDGERS = [ledger for _, ledger in PLANNED]
# With biases on 2 devices, with many norms on 8, and one of each kind of layer besides.
NAMED = (
    ("mha plain, biases, learned positions", 2), ("gqa gated, sandwich and head norms", 8),
    ("gqa experts and a shared one behind a dense layer", 8), ("mha latents, experts", 8),
    ("pairs delta rule and gated attention", 8), ("pairs experts beside an MLP, other heads by layer", 2),
)  # fmt: skip
CHOSEN = [next(ledger for case, ledger in PLANNED if (case.name, case.parallel.tp) == both) for both in NAMED]


def usual(precision: Precision, what: str) -> float:
    own = {"gradient_error": precision.gradient_tolerance, "adam_update_error": precision.adam_tolerance}
    return own.get(what, precision.tolerance)


@pytest.mark.parametrize("chosen", Format)
def test_at_the_default_sizes_float64_allows_no_more_and_short_formats_little(chosen: Format) -> None:
    """Without tolerances every error asks what rounding excuses: less than they do, and more than what there is."""
    precision = precision_of(chosen)
    bare = precision._replace(tolerance=0.0, gradient_tolerance=0.0, adam_tolerance=0.0)
    for ledger in CHOSEN[:2]:
        checks = [check for check in run_trial(ledger, bare, 0) if check.most and not check.what.endswith("copies")]
        assert {check.what for check in checks} >= {"forward_error", "loss_error", "gradient_error"}
        for check in checks:
            assert check.expected <= (1 if chosen is Format.FLOAT64 else 3) * usual(precision, check.what)
            if check.what in ("forward_error", "gradient_error", "input_gradient_error"):
                assert check.found <= check.expected <= 60 * check.found


@pytest.mark.parametrize("chosen", Format)
def test_a_reduction_that_is_left_out_is_caught_in_every_format(chosen: Format) -> None:
    ledger = LEDGERS[0]
    block = ledger.derivations["block"]

    def unreduced(one: object) -> object:
        if isinstance(one, Move) and (one.event.step.kind, one.event.tensor) == (Kind.ALL_REDUCE, "P"):
            step = one.event.step._replace(kind=Kind.SLICE, axes=())
            return one._replace(event=one.event._replace(step=step))
        return one

    broken = block._replace(forward=tuple(map(unreduced, block.forward)))
    checks = run_trial(ledger, precision_of(chosen), 0, ledger.derivations | {"block": broken})
    failed = {check.what for check in checks if not check.passed}
    assert {"forward_error", "copies", "gradient_error", "input_gradient_error", "rows"} <= failed


@pytest.mark.parametrize("chosen", [Format.FLOAT64, Format.FLOAT32])
def test_experts_and_states_are_excused_for_no_less_than_they_do(chosen: Format) -> None:
    """Noise finds a larger error than a run has; where tokens go it leaves alone."""
    bare = precision_of(chosen)._replace(tolerance=0.0, gradient_tolerance=0.0, adam_tolerance=0.0)
    for ledger in CHOSEN[2:]:
        checks = [check for check in run_trial(ledger, bare, 0) if check.most and not check.what.endswith("copies")]
        assert [check for check in checks if check.found > check.expected] == []
        if chosen is Format.FLOAT64:
            assert all(check.expected <= 2e-12 for check in checks)


def test_nothing_runs_before_an_error_is_too_large() -> None:
    asked: list[int] = []

    def again(noise: Noise) -> float:
        asked.append(1)
        return 0.1 * len(asked)

    more = Rounding(again, {"error": float}, noise_of(precision_of(Format.FLOAT64), 4, 2, 1)).allowed
    worst = Worst("error", 0.5, more)
    worst.met(0.4, "here", "")
    assert (asked, worst.check().passed) == ([], True)
    worst.met(0.9, "there", "wrong")
    assert (len(asked), worst.check().passed, worst.check().expected) == (RUNS, True, ANY)  # 2 * 0.8 > 1
    small = Rounding(lambda noise: 0.12, {"error": float}, noise_of(precision_of(Format.FLOAT64), 4, 2, 1)).allowed
    worst = Worst("error", 0.2, small)
    worst.met(0.3, "there", "wrong")
    assert (worst.check().passed, worst.check().expected, worst.check().where) == (False, TIMES * 0.12, "there")


def test_noise_moves_every_number_by_no_more_than_it_says() -> None:
    noise = Noise(2.0**-10, 2.0**-8, 0.0, lambda array: array, 0)
    given = np.array([1.0, -3.0, 0.0, -np.inf])
    moved = noise.on(given, noise.unit)
    assert np.all(np.abs(moved[:3] - given[:3]) <= 2.0**-10 * np.abs(given[:3]))
    assert moved[3] == -np.inf
    assert moved[0] != 1.0


def test_without_size_noise_changes_nothing() -> None:
    ledger = LEDGERS[0]
    data = random_data(ledger, 0)
    model, sizes, phase = ledger.model, ledger.sizes, ledger.work.phase
    given = model, sizes, data.weights, data.batch.tokens, data.batch.targets, phase
    plain, silent = plain_run(*given), plain_run(*given, noise=Noise(0.0, 0.0, 0.0, lambda array: array, 0))
    assert plain.loss == silent.loss
    for one, other in ((plain.tensors, silent.tensors), (plain.gradients, silent.gradients),
                       (plain.input_gradients, silent.input_gradients)):  # fmt: skip
        assert one.keys() == other.keys()
        assert all(np.allclose(one[name], other[name], rtol=1e-12, atol=1e-15) for name in one)
