"""What a run of the plain decoder has at hand: sizes, weights, the part it is in, and every tensor as it was made."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

import numpy as np

from commcalc.errors import SpecError
from commcalc.simulate import tape
from commcalc.simulate.capacity import Room
from commcalc.simulate.plain_layers import Layer, weight_shapes
from commcalc.simulate.tape import Noise, Variable, add, multiply, scale
from commcalc.simulate.wire import Array
from commcalc.transformer.spec import Model, Norm, Phase

EPSILON = 1e-5


class Choices(NamedTuple):
    """Which experts another run sent tokens to, by tensor; taken over where scores are nearer than ``slack``.

    Of two experts whose scores differ by less than rounding either may be chosen, and all that follows is another
    computation. ``slack`` is relative to the largest score. ``room`` says how many tokens an expert takes.
    """

    chosen: Mapping[str, Array]
    slack: float = inf
    room: Room | None = None


class State:
    """The weights, and every tensor of a forward pass on the tape."""

    def __init__(
        self,
        model: Model,
        sizes: Mapping[str, int],
        weights: Mapping[str, Array],
        phase: Phase,
        noise: Noise | None = None,
        choices: Choices | None = None,
    ) -> None:
        shapes = weight_shapes(model, sizes)
        given = {name: np.shape(weight) for name, weight in weights.items()}
        wrong = sorted(name for name in shapes.keys() | given.keys() if shapes.get(name) != given.get(name))
        if wrong:
            raise SpecError(f"weights of other names or shapes than the model's: {', '.join(wrong)}")
        tokens, sequences = sizes["T"], sizes["B"]
        if tokens % sequences or (phase is Phase.DECODE and tokens != sequences):
            raise SpecError(f"{tokens} tokens are no {sequences} sequences of one length (in decoding, of one token)")
        for heads, kv in (("N", "K"), ("N", "KS"), ("N", "KG"), ("NV", "NK")):
            if kv in sizes and sizes[heads] % sizes[kv] and not (kv == "K" and model.kv_lora_rank):
                raise SpecError(f"{sizes[heads]} query heads do not share {sizes[kv]} KV heads evenly")
        self.model, self.sizes, self.phase = model, sizes, phase
        self.length = tokens // sequences
        self.weights = {name: tape.leaf(np.asarray(weights[name], np.float64), noise) for name in shapes}
        self.choices = choices or Choices({})
        self.made: dict[str, Variable] = {}
        self.indices: dict[str, Array] = {}
        self.part = ""
        self.layer = Layer()

    def keep(self, name: str, x: Variable) -> Variable:
        """Record a tensor of the current part."""
        x = self.made[f"{self.part}.{name}"] = tape.kept(x)
        return x

    def has(self, name: str) -> bool:
        """Whether the current part has a weight of that name."""
        return f"{self.part}.{name}" in self.weights

    def weight(self, name: str) -> Variable:
        """A weight of the current part."""
        return self.weights[f"{self.part}.{name}"]

    def norm(
        self, x: Variable, gain: str, bias: str = "", axes: tuple[int, ...] = (1,), kind: Norm | None = None
    ) -> Variable:
        """The norm x / sqrt(mean(x^2) + eps) * gain over ``axes``; a layer norm first takes the mean off.

        A norm without weights has none of these names.
        """
        kind = kind or self.model.norm
        if kind is not Norm.RMSNORM:
            x = add(x, scale(tape.mean(x, axes), -1.0))
        variance = add(tape.mean(multiply(x, x), axes), Variable(np.array(EPSILON)))
        y = multiply(x, tape.power(variance, -0.5))
        if self.has(gain):
            y = multiply(y, self.weight(gain))
        return add(y, self.weight(bias)) if kind is Norm.LAYERNORM and self.has(bias) else y

    def by_sequence(self, x: Variable) -> Variable:
        """[T, ...] as [B, s, ...]."""
        return tape.reshape(x, (self.sizes["B"], self.length, *x.value.shape[1:]))

    def by_token(self, x: Variable) -> Variable:
        """[B, s, ...] as [T, ...]."""
        return tape.reshape(x, (self.sizes["T"], *x.value.shape[2:]))
