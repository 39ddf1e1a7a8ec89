"""The baseline that sharded runs are compared with: a whole decoder on one device, in plain numpy and float64.

It is written from the architecture and shares no code with what it is to check: no program, no derivation, no kernel
of a simulated device. Only the names of weights and tensors are those of the programs, each behind its part:
``block.0.Wq``, ``head.logits``.

Left out is what happens inside one head or one token, since no sharding of heads or tokens here touches it: rotary
positions turn queries and keys by constants, ALiBi adds constants to the scores, windows and chunks hide tokens from a
head, lightning attention forgets at a constant rate, and routers bend a token's logits before or after their softmax.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from commcalc.errors import SpecError
from commcalc.simulate import tape
from commcalc.simulate.plain_attention import attention
from commcalc.simulate.plain_experts import feed_forward, mlp
from commcalc.simulate.plain_layers import layer
from commcalc.simulate.plain_state import Choices, State
from commcalc.simulate.tape import Noise, Variable, add, einsum, reshape, scale
from commcalc.simulate.wire import Array
from commcalc.transformer.spec import Model, NormPlacement, Phase, Positions


class Plain(NamedTuple):
    """What one run leaves.

    ``tensors`` has every tensor of the forward pass; ``gradients`` those of the weights and ``input_gradients`` those
    of the float tensors, of the mean loss, under the same names. Without training there are none, and no loss.
    """

    loss: float | None
    tensors: dict[str, Array]
    gradients: dict[str, Array]
    input_gradients: dict[str, Array]


def plain_run(
    model: Model,
    sizes: Mapping[str, int],
    weights: Mapping[str, Array],
    tokens: Array,
    targets: Array,
    phase: Phase,
    noise: Noise | None = None,
    choices: Choices | None = None,
    every_logit: bool = False,
) -> Plain:
    """One step of ``model`` on ``tokens[T]``: B sequences of T / B tokens, one after another.

    Training: the loss of a token is logsumexp(logits) - logits[target], ``loss`` their mean, and every gradient is of
    that mean. Inference reads no ``targets``; prefill samples the last position of each sequence (or ``every_logit``),
    and decoding has one token a sequence, which attends to itself alone (a cache would hold the rest, and moves
    nothing).

    With ``noise`` all is as wrong as rounding would have made it, the weights too. ``choices`` of experts are those of
    another run where both are as good.
    """
    run = _Run(model, sizes, weights, phase, noise, choices)
    run.sampled_alone = phase is Phase.PREFILL and not every_logit
    losses = run.forward(tokens, targets)
    tensors = {name: made.value for name, made in run.made.items()} | run.indices
    if losses is None:
        return Plain(None, tensors, {}, {})
    tape.backward(losses, np.full(losses.value.shape, 1 / losses.value.size))
    return Plain(float(losses.value.mean()), tensors, _gradients(run.weights), _gradients(run.made))


def _gradients(variables: Mapping[str, Variable]) -> dict[str, Array]:
    # Copies: the tape's own may be views of one another.
    return {name: np.array(variable.grad) for name, variable in variables.items() if variable.grad is not None}


class _Run(State):
    """A forward pass on the tape: the weights, and every tensor as it was made."""

    sampled_alone = False

    def forward(self, tokens: Array, targets: Array) -> Variable | None:
        """The losses [T]; None in inference."""
        self.part = "embedding"
        x = self.embedding(tokens)
        for at in range(self.model.need("num_hidden_layers", "the layers of a run")):
            self.part, self.layer = f"block.{at}", layer(self.model, at)
            x = self.keep("X'", (self.parallel if self.model.parallel_block else self.sequential)(self.keep("X", x)))
        self.part = "head"
        logits = self.head(self.keep("X", x))
        if self.phase.training:
            return self.loss(logits, targets)
        self.indices["head.next"] = logits.value.argmax(1)
        return None

    def embedding(self, tokens: Array) -> Variable:
        """Rows of the table, then their norm or their positions: [T] to [T, D]."""
        self.indices["embedding.tokens"] = tokens
        x = tape.rows(self.weight("E"), tokens)
        if self.model.embedding_norm:
            x = self.norm(self.keep("words", x), "g_embedding", "b_embedding")
        if self.model.position_embedding is Positions.LEARNED:
            positions = np.arange(self.sizes["T"]) % self.length + self.model.extra_position_rows
            if positions.max() >= self.sizes["P"]:
                raise SpecError(f"position {positions.max()} lies outside of a table of {self.sizes['P']} positions")
            x = add(self.keep("words", x), tape.rows(self.weight("Wpos"), positions))
        return self.keep("X", x)

    def sequential(self, x: Variable) -> Variable:
        """Attention, then the MLP or the experts, each added to the stream: [T, D] to [T, D]."""
        placement = self.model.norm_placement
        for name, inner, bias in (("attention", "A", "bo"), ("mlp", "M", "bdown")):
            read = x
            if placement is not NormPlacement.POST:
                read = self.keep(inner, self.norm(x, f"g_{name}", f"b_{name}"))
            y, made = (attention(self, read), "Y") if name == "attention" else feed_forward(self, read, x)
            if self.has(bias):
                made += "b"
                y = self.keep(made, add(y, self.weight(bias)))
            if placement is not NormPlacement.PRE:
                made += "n"
                y = self.keep(made, self.norm(y, f"g_post_{name}", f"b_post_{name}"))
            x = add(x, y)
            if name == "attention":
                x = self.keep("R", x)
        return x

    def parallel(self, x: Variable) -> Variable:
        """Attention and the MLP of the same stream, under one norm or one each: [T, D] to [T, D]."""
        read = self.keep("A", self.norm(x, "g_attention", "b_attention"))
        y = attention(self, read)
        if self.model.parallel_norms == 2:
            read = self.keep("M", self.norm(x, "g_mlp", "b_mlp"))
        made = "S"
        s = self.keep(made, add(y, mlp(self, read)))
        for bias in ("bo", "bdown"):
            if self.has(bias):
                made += "b"
                s = self.keep(made, add(s, self.weight(bias)))
        return add(x, s)

    def head(self, x: Variable) -> Variable:
        """The final norm and the logits: [T, D] to [T, V]; in prefill [B, V], of the last positions alone."""
        read = self.keep("A", self.norm(x, "g_final", "b_final"))
        if self.sampled_alone:
            last = np.arange(self.sizes["B"]) * self.length + self.length - 1
            read = self.keep("last", tape.rows(read, last))
        table = self.weights["embedding.E"] if self.model.tie_word_embeddings else self.weight("Wlm")
        logits = einsum("td,vd->tv", read, table)
        if self.model.lm_head_bias:
            logits = add(self.keep("logits_w", logits), self.weight("blm"))
        return self.keep("logits", logits)

    def loss(self, logits: Variable, targets: Array) -> Variable:
        """logsumexp(logits) - logits[target] for each token, [T, V] to [T].

        The gradient of ``top`` is zero but for rounding: the loss does not depend on what is taken off.
        """
        t, v = logits.value.shape
        top = self.keep("top", reshape(tape.maximum(logits, 1), (t,)))
        target = self.keep("target", tape.rows(reshape(logits, (t * v,)), np.arange(t) * v + targets))
        exps = self.keep("exps", tape.exp(add(logits, scale(reshape(top, (t, 1)), -1.0))))
        summed = self.keep("total", reshape(tape.total(exps, 1), (t,)))
        return self.keep("loss", add(add(tape.log(summed), top), scale(target, -1.0)))
