"""Gradients, their norm and the optimizers' first steps: as the devices have them, beside those of one device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import numpy as np

from commcalc.simulate.check import Check, Excuse, Worst, at_most, norm, relative
from commcalc.simulate.moves import all_reduce_buffers
from commcalc.simulate.plain import Plain
from commcalc.simulate.precision import Precision
from commcalc.simulate.training import EMBEDDING, Part, Training, stored
from commcalc.simulate.wire import Array

LEARNING_RATE = 0.1
# Of Llama 2 (Touvron et al. 2023, arXiv:2307.09288, section 2.2); the usual 1e-8 would magnify the rounding of a
# gradient that is zero, a key bias', a hundred million times.
ADAM_EPSILON = 1e-5
# A gradient below this share of all of them together is compared with that share instead of itself.
_FLOOR = 1e-3


Step: TypeAlias = Callable[[Array], Array]
Measure: TypeAlias = Callable[[Plain], float]


def measures_of_gradients(training: Training, plain: Plain) -> dict[str, Measure]:
    """How far another plain run is from this one, by what is checked here."""
    if plain.loss is None:
        return {}
    expected = _expected(training, plain)
    total = _total(expected)

    def gradients(other: Plain) -> float:
        found = _expected(training, other)
        return max(relative(found[name], array, _FLOOR * total) for name, array in expected.items())

    def inputs(other: Plain) -> float:
        found, before = other.input_gradients, plain.input_gradients
        return max(relative(found[name], array) for name, array in before.items() if name.endswith(".X"))

    def size(other: Plain) -> float:
        return abs(_total(_expected(training, other)) - total) / (total or 1.0)

    def stepped(step: Step, other: Plain) -> float:
        found = _expected(training, other)
        wrong = _total({name: step(found[name]) - step(array) for name, array in expected.items()})
        return wrong / (_total({name: step(array) for name, array in expected.items()}) or 1.0)

    return {
        "gradient_error": gradients,
        "input_gradient_error": inputs,
        "gradient_norm_error": size,
        "sgd_update_error": partial(stepped, _sgd),
        "adam_update_error": partial(stepped, _adam),
    }


def check_gradients(training: Training, plain: Plain, precision: Precision, more: Excuse) -> Iterator[Check]:
    """Gradients of weights and inputs, and that devices with the same parameter have the same gradient."""
    expected = _expected(training, plain)
    total = _total(expected)
    errors = Worst("gradient_error", precision.gradient_tolerance, more)
    copies = Worst("gradient_copies", precision.copies_tolerance)
    for name, (value, blocks) in training.gradients.items():
        whole = training.setting.grid.assemble(blocks, value.sharding)
        pending = ", ".join(value.sharding.unreduced)
        told = f"it is still a pending sum over {pending}" if pending else "it is another"
        right = expected[training.origin(name)]
        # Terms of a pending sum add up to it; but no device has the sum.
        error = float("inf") if pending else relative(whole.array, right, _FLOOR * total)
        errors.met(error, f"d{name}", told)
        size = max(float(np.max(np.abs(right))), _FLOOR * total / right.size**0.5) or 1.0
        copies.met(whole.drift / size, f"d{name}", "devices that hold the same parameter get different gradients of it")
    for name in sorted(expected.keys() - training.gradients.keys()):
        errors.met(float("inf"), f"d{name}", "it has no gradient")
    yield errors.check()
    yield copies.check()
    yield _inputs(training, plain, precision, more)


def _expected(training: Training, plain: Plain) -> dict[str, Array]:
    """The gradients of the unsharded run under the names of the programs."""
    found = {}
    for part in training.parts:
        for name, array in _named(training, plain, part).items():
            if name != "E" or part.program == EMBEDDING:
                found[f"{part.name}.{name}"] = array
    return found


def _named(training: Training, plain: Plain, part: Part) -> dict[str, Array]:
    return stored(plain.gradients, training.derivations[part.program], part, training.ledger.sizes)


def _total(gradients: dict[str, Array]) -> float:
    return float(np.sqrt(sum(norm(gradient) ** 2 for gradient in gradients.values())))


def _inputs(training: Training, plain: Plain, precision: Precision, more: Excuse) -> Check:
    """The gradients of what goes into every layer and the head."""
    errors = Worst("input_gradient_error", precision.tolerance, more)
    for part in training.parts:
        value = training.derivations[part.program].gradients.get("X")
        if value is not None:
            whole = training.runs[part.name].whole(value)
            told = "the gradient that the layer before gets is another"
            errors.met(relative(whole.array, plain.input_gradients[f"{part.name}.X"]), f"d{part.name}.X", told)
    return errors.check()


def check_updates(training: Training, plain: Plain, precision: Precision, more: Excuse) -> Iterator[Check]:
    """The gradient norm and the first step of SGD and of Adam, each device by what it holds itself."""
    expected = _expected(training, plain)
    total = _total(expected)
    sizes = norms_on_devices(training)
    worst = max(abs(size - total) / (total or 1.0) for size in sizes)
    yield at_most("gradient_norm_error", precision.tolerance, worst, "", "the norm is another", more)
    for what, allowed, step in (
        ("sgd_update_error", precision.tolerance, _sgd),
        ("adam_update_error", precision.adam_tolerance, _adam),
    ):
        yield from _stepped(training, expected, precision, what, allowed, step, more)


def norms_on_devices(training: Training) -> list[float]:
    """The gradient norm as every device gets it: squares of its own blocks, each block once, added over all devices.

    One number of every device goes round; no ledger counts it.
    """
    grid = training.setting.grid
    squares = [np.zeros(1) for _ in range(grid.devices)]
    for name, (value, blocks) in training.gradients.items():
        for rank in [] if training.origin(name) != name else grid.first_holders(value.sharding):
            squares[rank] += np.sum(np.square(blocks[rank], dtype=float))
    axes = [name for name, size in grid.mesh.axes if size > 1]
    done = all_reduce_buffers(axes, squares, grid, 32) if axes else None
    return [float(np.sqrt(one[0])) for one in (done.blocks if done else squares)]


def _stepped(
    training: Training,
    expected: dict[str, Array],
    precision: Precision,
    what: str,
    allowed: float,
    step: Step,
    more: Excuse,
) -> Iterator[Check]:
    """Every device steps its own blocks by its own gradients; what the parameters change by, put together, is compared.

    The norms are those of all parameters together. New parameters that devices hold alike must stay alike.
    """
    grid = training.setting.grid
    wrong = right = 0.0
    copies = Worst(what.replace("error", "copies"), precision.copies_tolerance)
    for name, changes, updated in training.stepped(step):
        sharding, right_step = training.gradients[name][0].sharding, step(expected[training.origin(name)])
        wrong += norm(grid.assemble(changes, sharding).array - right_step) ** 2
        right += norm(right_step) ** 2
        drift = grid.assemble(updated, sharding).drift
        copies.met(drift, name, "devices that hold the same parameter step to different values")
    error = float(np.sqrt(wrong / (right or 1.0)))
    yield at_most(what, allowed, error, "", "a step changes the parameters otherwise", more)
    yield copies.check()


def _sgd(gradient: Array) -> Array:
    return LEARNING_RATE * gradient


def _adam(gradient: Array) -> Array:
    """The first step of Adam: both moments are corrected to the gradient and its square (Kingma and Ba 2015)."""
    made: Array = LEARNING_RATE * gradient / (np.abs(gradient) + gradient.dtype.type(ADAM_EPSILON))
    return made
