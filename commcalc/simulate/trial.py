"""A layout put to the test: a small model on simulated devices beside the same model in plain numpy on one.

Compared are every tensor of the forward pass, the loss, every gradient, their norm, one step of SGD and of Adam, what
copies of one block differ by, and for every row of the ledger payload, wire bytes and steps. Bytes and steps must be
equal; for errors `precision` says what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from commcalc.accounting.ledger import RECOMPUTE, UPDATE, Ledger
from commcalc.accounting.rows import Row
from commcalc.algebra.program import Op, Rule
from commcalc.algebra.schedule import BACKWARD, FORWARD, Derivation, Move, Placed, Value
from commcalc.simulate.check import Check, at_most, exact, norm, relative
from commcalc.simulate.execute import whole_norm
from commcalc.simulate.moves import Counted, Mismatch
from commcalc.simulate.plain import Plain, plain_run
from commcalc.simulate.precision import Precision
from commcalc.simulate.predicted import Predicted, compared
from commcalc.simulate.training import EMBEDDING, Part, Training, random_data, stored
from commcalc.simulate.wire import Array

LEARNING_RATE = 0.1
# Of Llama 2 (Touvron et al. 2023, arXiv:2307.09288, section 2.2); the usual 1e-8 would magnify the rounding of a
# gradient that is zero, a key bias', a hundred million times.
ADAM_EPSILON = 1e-5
# A gradient below this share of all of them together is compared with that share instead of itself.
_FLOOR = 1e-3
# A difference is so many biases where what is left of it is smaller than this.
_CLEAN = 1e-3


class Fault(NamedTuple):
    """The first tensor that is wrong: the error, where it is, and what that means."""

    where: str
    message: str


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
        checks += _gradients(training, plain, precision)
    return [*checks, *_rows(training)]


def _values(training: Training, plain: Plain, precision: Precision) -> Iterator[Check]:
    """Every tensor of the forward pass, as each operation and each move leaves it."""
    worst, drift = 0.0, 0.0
    fault, apart = Fault("", ""), Fault("", "")
    for part in training.parts:
        run = training.runs[part.name]
        for action in run.derivation.forward:
            value = action.made if isinstance(action, Placed) else action.target if isinstance(action, Move) else None
            expected = None if value is None else plain.tensors.get(f"{part.name}.{value.name}")
            if value is None or expected is None or value not in run.values:  # a part of what frameworks fuse
                continue
            whole = run.whole(value)
            if expected.dtype.kind != "f":  # which token is sampled: near a tie a short format may take the other
                error = 0.0 if precision.short else float(np.mean(whole.array != expected))
            else:
                error = relative(whole.array, expected)
                apart_by = whole.drift / (float(np.max(np.abs(expected))) or 1.0)
                if not apart_by <= precision.tolerance and not apart.where:
                    apart = Fault(_place(part, action), _copies(action, value))
                drift = max(drift, apart_by)
            if not error <= precision.tolerance and not fault.where:
                weights = training.weights(part)
                fault = Fault(_place(part, action), _meaning(action, value, whole.array - expected, weights, training))
            worst = max(worst, error) if error == error else float("nan")
    yield at_most("forward_error", precision.tolerance, worst, *fault)
    yield at_most("copies", precision.tolerance, drift, *apart)
    if plain.loss is not None:
        losses = training.runs["head"].values[training.derivations["head"].output][0]
        error = abs(float(np.mean(losses, dtype=float)) - plain.loss) / abs(plain.loss)
        yield at_most("loss_error", precision.tolerance, error, "head.loss", "the loss is another")


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


def _gradients(training: Training, plain: Plain, precision: Precision) -> Iterator[Check]:
    """Gradients of weights and inputs, their norm, and the steps that optimizers take by them."""
    grid = training.setting.grid
    expected = _expected(training, plain)
    total = float(np.sqrt(sum(norm(gradient) ** 2 for gradient in expected.values())))
    worst, drift = 0.0, 0.0
    fault, apart = Fault("", ""), Fault("", "")
    found: dict[str, Array] = {}
    for name, (value, blocks) in training.gradients.items():
        whole = grid.assemble(blocks, value.sharding)
        found[name] = whole.array
        error = relative(whole.array, expected[name], _FLOOR * total)
        if not error <= precision.gradient_tolerance and not fault.where:
            fault = Fault(f"d{name}", _gradient_meaning(name, value))
        worst = max(worst, error) if error == error else float("nan")
        apart_by = whole.drift / (float(np.max(np.abs(expected[name]))) or 1.0)
        if not apart_by <= precision.tolerance and total * precision.tolerance < whole.drift and not apart.where:
            apart = Fault(f"d{name}", "devices that hold the same parameter get different gradients of it")
            drift = max(drift, apart_by)
    missing = sorted(expected.keys() - found.keys())
    if missing:
        worst, fault = float("inf"), Fault(f"d{missing[0]}", "it has no gradient")
    yield at_most("gradient_error", precision.gradient_tolerance, worst, *fault)
    yield at_most("gradient_copies", precision.tolerance, drift, *apart)
    yield at_most("input_gradient_error", precision.tolerance, *_inputs(training, plain, precision))
    size = whole_norm(grid, training.gradients)
    yield at_most("gradient_norm_error", precision.tolerance, abs(size - total) / total, "", "the norm is another")
    names = [name for name in expected if name in found]
    for what, allowed, step in (
        ("sgd_update_error", precision.tolerance, _sgd),
        ("adam_update_error", precision.adam_tolerance, _adam),
    ):
        wrong = sum(norm(precision.of(step(precision.of(found[name]))) - step(expected[name])) ** 2 for name in names)
        right = sum(norm(step(expected[name])) ** 2 for name in names)
        yield at_most(what, allowed, float(np.sqrt(wrong / right)), "", "a step changes the parameters otherwise")


def _expected(training: Training, plain: Plain) -> dict[str, Array]:
    """The gradients of the unsharded run under the names of the programs."""
    found = {}
    for part in training.parts:
        for name, array in stored(plain.gradients, training.derivations[part.program], part).items():
            if name != "E" or part.program == EMBEDDING:
                found[f"{part.name}.{name}"] = array
    return found


def _gradient_meaning(name: str, value: Value) -> str:
    if value.sharding.unreduced:
        return f"the gradient of {name} is still a pending sum over {', '.join(value.sharding.unreduced)}"
    return f"the gradient of {name} is another"


def _inputs(training: Training, plain: Plain, precision: Precision) -> tuple[float, str, str]:
    """The gradients of what goes into every layer and the head."""
    worst, where = 0.0, ""
    for part in training.parts:
        value = training.derivations[part.program].gradients.get("X")
        if value is None:
            continue
        whole = training.runs[part.name].whole(value)
        error = relative(whole.array, plain.input_gradients[f"{part.name}.X"])
        if not error <= precision.tolerance and not where:
            where = f"d{part.name}.X"
        worst = max(worst, error) if error == error else float("nan")
    return worst, where, "the gradient that the layer before gets is another"


def _sgd(gradient: Array) -> Array:
    return LEARNING_RATE * gradient


def _adam(gradient: Array) -> Array:
    """The first step of Adam: both moments are corrected to the gradient and its square (Kingma and Ba 2015)."""
    made: Array = LEARNING_RATE * gradient / (np.abs(gradient) + gradient.dtype.type(ADAM_EPSILON))
    return made


def _rows(training: Training) -> Iterator[Check]:
    """Every row of the ledger beside what was counted, in the order in which they run."""
    ledger = training.ledger
    order = [(part, FORWARD) for part in training.parts]
    order += [(part, direction) for part in reversed(training.parts) for direction in (RECOMPUTE, BACKWARD)]
    for part, direction in order:
        rows = [row for row in ledger.rows if (row.part, row.direction) == (part.program, direction)]
        counts = [(count.event.label, count.counted) for count in training.counts(part, direction)]
        yield from _beside(rows, counts, part.name, ledger.sizes)
    synced = {one.axes: ("gradient_sync", one.counted) for one in training.synced}
    updates = [row for row in ledger.rows if row.direction == UPDATE]
    ran = [synced[row.axes] for row in updates if row.axes in synced]
    yield from _beside(updates, ran, UPDATE, ledger.sizes)
    if len(synced) > len(updates):
        yield exact("rows", len(updates), len(synced), UPDATE, "gradients are reduced that the ledger has no row for")


def _beside(rows: list[Row], counts: list[tuple[str, Counted]], name: str, sizes: Mapping[str, int]) -> Iterator[Check]:
    """Rows beside what ran; ``counts`` come with the label of the operation that they ran for."""
    if len(rows) != len(counts):  # a row too many or too few puts all after it beside the wrong one
        pairs = zip(rows, counts, strict=False)
        alike = ((row.op, row.kind, row.payload_bytes) == (op, one.kind, one.payload_bytes) for row, (op, one) in pairs)
        first = next((at for at, same in enumerate(alike) if not same), min(len(rows), len(counts)))
        parted = f"at {_row(rows[first])}" if first < len(rows) else "after the last row"
        message = f"the ledger has {len(rows)} collectives here, {len(counts)} ran; they part {parted}"
        yield exact("rows", len(rows), len(counts), name, message)
        return
    for row, (_, counted) in zip(rows, counts, strict=True):
        said = Predicted(row.kind, row.group_size, row.payload, row.payload_bytes, row.wire_bytes, sizes)
        yield from compared(said, counted, f"{name}, {_row(row)}")


def _row(row: Row) -> str:
    return f"{row.direction} {row.op}: {row.kind} of {row.tensor}"
