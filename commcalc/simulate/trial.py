"""A layout put to the test: a small model on simulated devices beside the same model in plain numpy on one.

Compared are every tensor of the forward pass that is not fused, the loss, every gradient, their norm, one step of SGD
and of Adam, what copies of one block differ by; for every row of the ledger payload, wire bytes and steps; what rows
add up to; and how many collectives a layer has beside what was published. Counts must be equal; for errors `precision`
says what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from commcalc.accounting.ledger import Ledger
from commcalc.algebra.program import Op, Role, Rule
from commcalc.algebra.schedule import Derivation, Move, Placed, Value
from commcalc.simulate.billing import check_published, check_rows, check_totals
from commcalc.simulate.check import Check, Excuse, Worst, at_most, norm, relative
from commcalc.simulate.counterparts import counterpart, has_no_counterpart
from commcalc.simulate.moves import Mismatch
from commcalc.simulate.places import Parts
from commcalc.simulate.plain import Plain, plain_run
from commcalc.simulate.plain_state import Choices
from commcalc.simulate.precision import Precision
from commcalc.simulate.rounding import Rounding, noise_of
from commcalc.simulate.shares import whole_sizes
from commcalc.simulate.tape import Noise
from commcalc.simulate.training import HEAD, Part, Training, random_data
from commcalc.simulate.updates import Measure, check_gradients, check_updates, measures_of_gradients
from commcalc.simulate.wire import Array
from commcalc.transformer.work import Logits

# A difference is so many biases where what is left of it is smaller than this.
_CLEAN = 1e-3
# Of the tensors of a layer one in eight is a sum over devices.
_REDUCED = 1 / 8


def run_trial(
    ledger: Ledger,
    precision: Precision,
    seed: int,
    derivations: Mapping[str, Derivation] | None = None,
    parts: Parts | None = None,
) -> list[Check]:
    """All checks of one ledger; ``derivations`` replace its own, to see that a wrong program is caught.

    ``parts`` of sequences are those of the ranks that share them out.
    """
    data = random_data(ledger, seed, parts)
    try:
        training = Training(ledger, data, precision, derivations)
    except Mismatch as problem:
        return [Check("forward_error", precision.tolerance, float("inf"), False, "", problem.message, most=True)]
    run = partial(_plain, training)
    plain = run(choices=_choices(training, 2 * precision.tolerance))
    # With noise tokens go where they went: another way would be another computation.
    again = partial(run, choices=Choices(plain.tensors, room=training.room))
    measures: dict[str, Measure] = {"forward_error": partial(_moved, plain), "loss_error": partial(_loss, plain)}
    measures |= measures_of_gradients(training, plain)
    noise = noise_of(precision, max(whole_sizes(ledger).values()), ledger.layout.mesh.devices, _REDUCED)
    more = Rounding(again, measures, noise).allowed
    checks = [*_values(training, plain, precision, more)]
    if ledger.work.phase.training:
        checks += [*check_gradients(training, plain, precision, more), *check_updates(training, plain, precision, more)]
    return [*checks, *check_rows(training), *check_totals(training), *check_published(training)]


def _plain(training: Training, noise: Noise | None = None, *, choices: Choices) -> Plain:
    """The baseline, with its tokens in the order in which they lie on the devices; so are those of ``choices``."""
    ledger, batch, order = training.ledger, training.data.batch, training.order
    there = {name: order.back(array) for name, array in choices.chosen.items() if order.of(array)}
    found = plain_run(
        ledger.model, whole_sizes(ledger), training.data.weights, batch.tokens, batch.targets, ledger.work.phase,
        noise, choices._replace(chosen=there), ledger.work.logits is Logits.ALL,
    )  # fmt: skip

    def laid(arrays: Mapping[str, Array]) -> dict[str, Array]:
        return {name: order.lie(array) if order.of(array) else array for name, array in arrays.items()}

    return found._replace(tensors=laid(found.tensors), input_gradients=laid(found.input_gradients))


def _choices(training: Training, slack: float) -> Choices:
    """The experts that the plain model takes over: those that were drawn, or of those as good the devices' own."""
    drawn = training.data.batch.choices
    if drawn is not None:
        own = training.order.lie(drawn)
        return Choices({f"{part.name}.chosen": own for part in training.parts}, room=training.room)
    return Choices(_chosen(training), slack, training.room)


def _chosen(training: Training) -> dict[str, Array]:
    """The experts that tokens were sent to, by part and name."""
    found = {}
    for part in training.parts:
        run = training.runs[part.name]
        for placed in run.derivation.placed:
            if placed.op.output == "chosen":
                found[f"{part.name}.chosen"] = run.whole(placed.made).array
    return found


def _of_chosen(found: Array, expected: Array, value: Value, chosen: Array | None) -> Array:
    """Of a tensor that has a row for every expert those of the chosen; what the others say counts for nothing."""
    every = len(value.sharding.dims) == 3 and value.sharding.dims[1] == "E"
    if not every or chosen is None or found.shape == expected.shape:
        return found
    return np.take_along_axis(found, chosen[:, :, None], axis=1)


def _moved(plain: Plain, other: Plain) -> float:
    """The largest error of a tensor of the forward pass in another plain run."""
    floats = {name: array for name, array in plain.tensors.items() if array.dtype.kind == "f"}
    return max(relative(other.tensors[name], array) for name, array in floats.items())


def _loss(plain: Plain, other: Plain) -> float:
    return _apart(other.loss or 0.0, plain.loss or 0.0)


def _apart(found: float, loss: float) -> float:
    """A loss of zero (a vocabulary of one token) has no relative error."""
    return abs(found - loss) / (abs(loss) or 1.0)


def _values(training: Training, plain: Plain, precision: Precision, more: Excuse) -> Iterator[Check]:
    """Every tensor of the forward pass, as each operation and each move leaves it."""
    errors = Worst("forward_error", precision.tolerance, more)
    copies = Worst("copies", precision.copies_tolerance)
    for part in training.parts:
        run = training.runs[part.name]
        for action in run.derivation.forward:
            if not isinstance(action, Placed | Move):
                continue
            value = action.made if isinstance(action, Placed) else action.target
            if has_no_counterpart(value):
                continue
            weight = run.derivation.program.tensors[value.name].role is Role.WEIGHT
            if weight and value not in run.values:  # forgotten, and not asked for again
                continue
            expected = training.weights(part)[value.name] if weight else counterpart(training, plain, part, value)
            if expected is None:
                errors.met(float("inf"), _place(part, action), f"the plain model has no {value.name}")
                continue
            whole = run.whole(value)
            if expected.dtype.kind != "f":  # which token is read or sampled, which experts are chosen
                copies.met(whole.drift, _place(part, action), _copies(action, value))
                errors.met(*_otherwise(part, action, expected, whole.array, plain, errors.allowed))
                continue
            found = _of_chosen(whole.array, expected, value, plain.tensors.get(f"{part.name}.chosen"))
            size = float(np.max(np.abs(expected))) or 1.0
            copies.met(whole.drift / size, _place(part, action), _copies(action, value))
            error = relative(found, expected)
            told = ""
            if errors.first(error):
                told = _meaning(action, value, found - expected, training.weights(part), training)
            errors.met(error, _place(part, action), told)
    yield errors.check()
    yield copies.check()
    if plain.loss is not None:
        whole = training.runs[HEAD].whole(training.derivations[HEAD].output)
        error = max(_apart(float(np.mean(whole.array, dtype=float)), plain.loss), whole.drift)
        yield at_most("loss_error", precision.tolerance, error, "head.loss", "the loss is another", more)


def _otherwise(
    part: Part, action: object, expected: Array, found: Array, plain: Plain, allowed: float
) -> tuple[float, str, str]:
    """How many choices are others, where, and what that means."""
    if part.program == HEAD:
        missed = _missed(found, expected, plain.tensors.get(f"{part.name}.logits"), allowed)
        return missed, _place(part, action), "another token is sampled"
    missed = float(np.mean(found != expected)) if found.shape == expected.shape else float("inf")
    return missed, _place(part, action), "tokens are sent to other experts"


def _missed(found: Array, expected: Array, logits: Array | None, allowed: float) -> float:
    """The share of tokens that are others; of two whose logits are as near as their errors either may be sampled."""
    other = found != expected
    if logits is not None and found.shape == expected.shape and found.max(initial=0) < logits.shape[1]:
        rows = np.arange(len(expected))
        other &= logits[rows, expected] - logits[rows, found] > 2 * allowed * norm(logits)
    return float(np.mean(other))


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
