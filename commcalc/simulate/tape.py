"""A minimal reverse-mode tape over numpy arrays in float64.

Every primitive computes its value at once and remembers, for each operand, how a gradient of the result becomes one
of the operand (a vector-Jacobian product); `backward` runs these from the last result to the first operand.

A variable may carry `Noise`: then all that is made from it, and all its gradients, are wrong by as much as rounding
would have made them, at random (Parker, Monte Carlo Arithmetic, UCLA CSD-970002, 1997).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from commcalc.simulate.wire import Array

Pull: TypeAlias = Callable[[Array], Array]


class Noise:
    """Random relative errors, evenly spread: of an operation up to ``unit``, of a sum or product up to ``of_sums``.

    What is kept in a format of its own errs by up to ``kept`` and is ``rounded`` to it then: numbers that are near may
    become one.
    """

    def __init__(self, unit: float, of_sums: float, kept: float, rounded: Callable[[Array], Array], seed: int) -> None:
        self.unit = unit
        self.of_sums = of_sums
        self.kept = kept
        self.rounded = rounded
        self._rng = np.random.default_rng(seed)

    def on(self, array: Array, unit: float) -> Array:
        """``array`` with such an error in every element that is finite (a mask is -inf)."""
        error = np.where(np.isfinite(array), array, 0) * (unit * self._rng.uniform(-1, 1, array.shape))
        return array + error

    def on_kept(self, array: Array) -> Array:
        """``array`` as it is kept."""
        return self.rounded(self.on(array, self.kept))


@dataclass(slots=True, eq=False)
class Variable:
    """A value, the operands it was made from with the way back to each, and its gradient after `backward`.

    A variable without parents is a leaf: a weight, or a constant whose gradient nobody reads.
    """

    value: Array
    parents: tuple[tuple[Variable, Pull], ...] = ()
    grad: Array | None = None
    noise: Noise | None = None
    sums: bool = False


def backward(output: Variable, seed: Array) -> None:
    """Set ``grad`` of everything ``output`` was made from, given ``seed``, the gradient of ``output`` itself."""
    order: list[Variable] = []  # operands before results
    seen: set[int] = set()
    path = [(output, False)]
    while path:
        variable, done = path.pop()
        if done:
            order.append(variable)
        elif id(variable) not in seen:
            seen.add(id(variable))
            path += [(variable, True), *((parent, False) for parent, _ in variable.parents)]
    grads = {id(output): seed}
    for variable in reversed(order):
        variable.grad = grads[id(variable)]
        for parent, pull in variable.parents:
            passed, known = pull(variable.grad), grads.get(id(parent))
            if parent.noise is not None:
                passed = parent.noise.on(passed, parent.noise.of_sums if variable.sums else parent.noise.unit)
            # A new array, never += : what a pull returns may be a view of another variable's gradient.
            grads[id(parent)] = passed if known is None else known + passed


def leaf(value: Array, noise: Noise | None = None) -> Variable:
    """An input of its own, with the error of being kept."""
    return Variable(value if noise is None else noise.on_kept(value), noise=noise)


def kept(a: Variable) -> Variable:
    """``a`` as it is kept, and so its gradient: the same but for noise."""
    noise = a.noise
    if noise is None:
        return a
    return Variable(noise.on_kept(a.value), ((a, noise.on_kept),), noise=noise)


def _made(value: Array, *parents: tuple[Variable, Pull], exact: bool = False, sums: bool = False) -> Variable:
    """A result, with the noise of its operands; none is added where it is ``exact``."""
    noise = next((parent.noise for parent, _ in parents if parent.noise is not None), None)
    if noise is not None and not exact:
        value = noise.on(value, noise.of_sums if sums else noise.unit)
    return Variable(value, parents, noise=noise, sums=sums)


def add(a: Variable, b: Variable) -> Variable:
    """``a + b``, broadcast."""
    return _made(a.value + b.value, (a, lambda g: _fit(g, a.value.shape)), (b, lambda g: _fit(g, b.value.shape)))


def multiply(a: Variable, b: Variable) -> Variable:
    """``a * b`` element by element, broadcast."""
    x, y = a.value, b.value
    return _made(x * y, (a, lambda g: _fit(g * y, x.shape)), (b, lambda g: _fit(g * x, y.shape)))


def scale(a: Variable, by: float) -> Variable:
    """``a * by`` with a constant."""
    return _made(a.value * by, (a, lambda g: g * by))


def einsum(spec: str, a: Variable, b: Variable) -> Variable:
    """``np.einsum(spec, a, b)``, explicit (``"td,df->tf"``).

    No index twice in one operand, and none in one operand alone: so each gradient is an einsum of the other two.
    """
    left, right, out = spec.replace("->", ",").split(",")
    for own, others in ((left, right + out), (right, left + out), (out, left + right)):
        if len(set(own)) < len(own) or not set(own) <= set(others):
            raise ValueError(f"einsum {spec!r}: an index stands twice in {own!r}, or nowhere else")
    x, y, to_left, to_right = a.value, b.value, f"{out},{right}->{left}", f"{left},{out}->{right}"
    made = np.einsum(spec, x, y)
    pulls = (a, lambda g: np.einsum(to_left, g, y)), (b, lambda g: np.einsum(to_right, x, g))
    return _made(made, *pulls, sums=True)


def exp(a: Variable) -> Variable:
    """The exponential."""
    value = np.exp(a.value)
    return _made(value, (a, lambda g: g * value))


def log(a: Variable) -> Variable:
    """The natural logarithm."""
    return _made(np.log(a.value), (a, lambda g: g / a.value))


def power(a: Variable, exponent: float) -> Variable:
    """``a`` to a constant exponent: -1 is the reciprocal, -0.5 that of the root."""
    return _made(a.value**exponent, (a, lambda g: g * exponent * a.value ** (exponent - 1)))


def tanh(a: Variable) -> Variable:
    """The hyperbolic tangent."""
    value = np.tanh(a.value)
    return _made(value, (a, lambda g: g * (1 - value * value)))


def sigmoid(a: Variable) -> Variable:
    """``1 / (1 + exp(-a))``, without overflow where ``a`` is far below zero."""
    value = np.exp(-np.logaddexp(0.0, -a.value))
    return _made(value, (a, lambda g: g * value * (1 - value)))


def total(a: Variable, axes: int | tuple[int, ...]) -> Variable:
    """The sum over ``axes``, which stay with size 1."""
    return _made(a.value.sum(axes, keepdims=True), (a, lambda g: np.broadcast_to(g, a.value.shape)), sums=True)


def mean(a: Variable, axes: int | tuple[int, ...]) -> Variable:
    """The mean over ``axes``, which stay with size 1."""
    summed = total(a, axes)
    return scale(summed, summed.value.size / a.value.size)


def maximum(a: Variable, axes: int | tuple[int, ...]) -> Variable:
    """The maximum over ``axes``, which stay with size 1: a constant, which passes no gradient on."""
    return Variable(a.value.max(axes, keepdims=True))


def reshape(a: Variable, shape: Sequence[int]) -> Variable:
    """The same elements in the same order under another shape."""
    return _made(a.value.reshape(shape), (a, lambda g: g.reshape(a.value.shape)), exact=True)


def rows(table: Variable, index: Array) -> Variable:
    """``table[index]``: a row for each index; the gradients of one row's readers are added up."""

    def pull(g: Array) -> Array:
        found = np.zeros_like(table.value)
        np.add.at(found, index, g)
        return found

    return _made(table.value[index], (table, pull), exact=True)


def part(a: Variable, start: int, stop: int) -> Variable:
    """The elements from ``start`` up to ``stop`` of the last axis."""

    def pull(g: Array) -> Array:
        found = np.zeros_like(a.value)
        found[..., start:stop] = g
        return found

    return _made(a.value[..., start:stop], (a, pull), exact=True)


def along(a: Variable, index: Array) -> Variable:
    """The elements ``index`` of the last axis, row by row: [T, E] and [T, C] to [T, C]; none twice in a row."""

    def pull(g: Array) -> Array:
        found = np.zeros_like(a.value)
        np.put_along_axis(found, index, g, axis=-1)
        return found

    return _made(np.take_along_axis(a.value, index, axis=-1), (a, pull), exact=True)


def silu(a: Variable) -> Variable:
    """``a sigmoid(a)``."""
    return multiply(a, sigmoid(a))


def _fit(g: Array, shape: tuple[int, ...]) -> Array:
    """A gradient summed over the axes that broadcasting had added or stretched."""
    if g.shape == shape:
        return g
    padded = (1,) * (g.ndim - len(shape)) + shape
    summed: Array = g.sum(tuple(at for at, size in enumerate(padded) if size == 1))
    return summed.reshape(shape)
