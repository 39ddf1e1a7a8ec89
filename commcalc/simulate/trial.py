"""A layout put to the test: a small model on simulated devices beside the same model in plain numpy on one.

Compared are every tensor of the forward pass that is not fused, the loss, every gradient, their norm, one step of SGD
and of Adam, what copies of one block differ by; for every row of the ledger payload, wire bytes and steps; what rows
add up to; and how many collectives a layer has beside what was published. Counts must be equal; for errors `precision`
says what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from commcalc.accounting.ledger import Ledger
from commcalc.algebra.program import Op, Rule
from commcalc.algebra.schedule import Derivation, Move, Placed, Value
from commcalc.simulate.billing import check_published, check_rows, check_totals
from commcalc.simulate.check import Check, Worst, at_most, norm, relative
from commcalc.simulate.moves import Mismatch
from commcalc.simulate.plain import Plain, plain_run
from commcalc.simulate.precision import Precision
from commcalc.simulate.training import HEAD, Part, Training, random_data
from commcalc.simulate.updates import check_gradients, check_updates
from commcalc.simulate.wire import Array

# Tensors that frameworks fuse: the plain model has their parts.
_FUSED = ("QKV", "QKVw")
# A difference is so many biases where what is left of it is smaller than this.
_CLEAN = 1e-3


def run_trial(
    ledger: Ledger, precision: Precision, seed: int, derivations: Mapping[str, Derivation] | None = None
) -> list[Check]:
    """All checks of one ledger; ``derivations`` replace its own, to see that a wrong program is caught."""
    data = random_data(ledger, seed)
    plain = plain_run(
        ledger.model, ledger.sizes, data.weights, data.batch.tokens, data.batch.targets, ledger.work.phase
    )
    try:
        training = Training(ledger, data, precision, derivations)
    except Mismatch as problem:
        return [Check("forward_error", precision.tolerance, float("inf"), False, "", problem.message, most=True)]
    checks = [*_values(training, plain, precision)]
    if ledger.work.phase.training:
        checks += [*check_gradients(training, plain, precision), *check_updates(training, plain, precision)]
    return [*checks, *check_rows(training), *check_totals(training), *check_published(training)]


def _values(training: Training, plain: Plain, precision: Precision) -> Iterator[Check]:
    """Every tensor of the forward pass, as each operation and each move leaves it."""
    errors, copies = Worst(precision.tolerance), Worst(precision.copies_tolerance)
    for part in training.parts:
        run = training.runs[part.name]
        for action in run.derivation.forward:
            if not isinstance(action, Placed | Move):
                continue
            value = action.made if isinstance(action, Placed) else action.target
            expected = plain.tensors.get(f"{part.name}.{value.name}")
            if expected is None:
                if value.name not in _FUSED:
                    errors.met(float("inf"), _place(part, action), f"the plain model has no {value.name}")
                continue
            whole = run.whole(value)
            if expected.dtype.kind != "f":  # which token is sampled: near a tie a short format may take the other
                missed = 0.0 if precision.short else float(np.mean(whole.array != expected))
                errors.met(missed, _place(part, action), "another token is sampled")
                continue
            size = float(np.max(np.abs(expected))) or 1.0
            copies.met(whole.drift / size, _place(part, action), _copies(action, value))
            error = relative(whole.array, expected)
            told = ""
            if errors.first(error):
                told = _meaning(action, value, whole.array - expected, training.weights(part), training)
            errors.met(error, _place(part, action), told)
    yield errors.check("forward_error")
    yield copies.check("copies")
    if plain.loss is not None:
        whole = training.runs[HEAD].whole(training.derivations[HEAD].output)
        error = abs(float(np.mean(whole.array, dtype=float)) - plain.loss) / abs(plain.loss)
        yield at_most("loss_error", precision.tolerance, max(error, whole.drift), "head.loss", "the loss is another")


def _place(part: Part, action: object) -> str:
    if isinstance(action, Placed):
        return f"{part.name}, {action.op.sublayer}: {action.op.output} of {action.op.name}"
    if isinstance(action, Move):
        step = action.event.step
        return (
            f"{part.name}, {action.event.sublayer}: {action.event.tensor} after {step.kind} over {','.join(step.axes)}"
        )
    return part.name


def _copies(action: object, value: Value) -> str:
    made = "leaves" if isinstance(action, Move) else "makes"
    return f"it {made} {value.name} different on devices that must hold the same"


def _meaning(action: object, value: Value, wrong: Array, weights: Mapping[str, Array], training: Training) -> str:
    """What a wrong tensor means, as far as it can be told from by how much it is wrong."""
    if isinstance(action, Placed) and action.op.rule is Rule.BIAS:
        return _bias_counted(action.op, value, wrong, weights, training) or f"{value.name} is wrong from here on"
    if isinstance(action, Move):
        return f"a change of sharding must not change {value.name}: it is not what it was before"
    return f"{value.name} is wrong from here on"


def _bias_counted(op: Op, value: Value, wrong: Array, weights: Mapping[str, Array], training: Training) -> str | None:
    """A bias that is there several times: the difference is a whole number of biases and nothing else."""
    bias = np.broadcast_to(weights[op.weights[0]], wrong.shape)
    times = float(np.sum(wrong * bias) / np.sum(bias * bias))
    if round(times) == 0 or norm(wrong - round(times) * bias) > _CLEAN * norm(wrong):
        return None
    ranks = training.setting.grid.mesh.size(value.sharding.unreduced)
    early = f": it is added on each of {ranks} ranks before {op.inputs[0]} is reduced" if ranks > 1 else ""
    return f"bias {op.weights[0]} of {op.label} counts {1 + round(times)} times{early}; it must be added once, after"
