"""The baseline that sharded runs are compared with: a whole decoder on one device, in plain numpy and float64.

It is written from the architecture and shares no code with what it is to check: no program, no derivation, no kernel
of a simulated device. Only the names of weights and tensors are those of the programs, each behind its part:
``block.0.Wq``, ``head.logits``.

Two things are left out, because they happen inside one head and no sharding of heads or tokens here touches them:
rotary positions turn queries and keys by constants, ALiBi adds constants to the scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import pi, sqrt
from typing import NamedTuple

import numpy as np

from commcalc.errors import SpecError
from commcalc.simulate import tape
from commcalc.simulate.tape import Noise, Variable, add, einsum, multiply, reshape, scale
from commcalc.simulate.wire import Array
from commcalc.transformer.spec import Model, Norm, NormPlacement, Phase, Positions, QkNorm

EPSILON = 1e-5


class Plain(NamedTuple):
    """What one run leaves.

    ``tensors`` has every tensor of the forward pass; ``gradients`` those of the weights and ``input_gradients`` those
    of the float tensors, of the mean loss, under the same names. Without training there are none, and no loss.
    """

    loss: float | None
    tensors: dict[str, Array]
    gradients: dict[str, Array]
    input_gradients: dict[str, Array]


def weight_shapes(model: Model, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shape of every weight of ``model`` with all its layers, by part and name: ``block.0.Wq`` is [D, N, H].

    ``sizes`` has a size for each of D, N, K, H, F, V, and P (rows of the table, extra rows included) where positions
    are learned. A tied head has no weight of its own: ``embedding.E`` [V, D] serves both.
    """
    _check(model)
    parts = {
        "embedding": {"E": "VD"}
        | (_norms(model, "embedding") if model.embedding_norm else {})
        | ({"Wpos": "PD"} if model.position_embedding is Positions.LEARNED else {})
    }
    for at in range(model.need("num_hidden_layers", "the weights of all layers")):
        parts[f"block.{at}"] = _attention_weights(model) | _mlp_weights(model) | _block_norms(model)
    parts["head"] = (
        _norms(model, "final")
        | ({} if model.tie_word_embeddings else {"Wlm": "VD"})
        | ({"blm": "V"} if model.lm_head_bias else {})
    )
    return {
        f"{part}.{name}": tuple(sizes[dim] for dim in dims)
        for part, weights in parts.items()
        for name, dims in weights.items()
    }


def plain_run(
    model: Model,
    sizes: Mapping[str, int],
    weights: Mapping[str, Array],
    tokens: Array,
    targets: Array,
    phase: Phase,
    noise: Noise | None = None,
) -> Plain:
    """One step of ``model`` on ``tokens[T]``: B sequences of T / B tokens, one after another.

    Training: the loss of a token is logsumexp(logits) - logits[target], ``loss`` their mean, and every gradient is of
    that mean. Inference reads no ``targets``; prefill samples the last position of each sequence, and decoding has
    one token a sequence, which attends to itself alone (a cache would hold the rest, and moves nothing).

    With ``noise`` all is as wrong as rounding would have made it, the weights too.
    """
    run = _Run(model, sizes, weights, phase, noise)
    losses = run.forward(tokens, targets)
    tensors = {name: made.value for name, made in run.made.items()} | run.indices
    if losses is None:
        return Plain(None, tensors, {}, {})
    tape.backward(losses, np.full(losses.value.shape, 1 / losses.value.size))
    return Plain(float(losses.value.mean()), tensors, _gradients(run.weights), _gradients(run.made))


def _gradients(variables: Mapping[str, Variable]) -> dict[str, Array]:
    # Copies: the tape's own may be views of one another.
    return {name: np.array(variable.grad) for name, variable in variables.items() if variable.grad is not None}


def _check(model: Model) -> None:
    """`SpecError` for what is not written here. A norm over all heads is: it has no program, but a plain meaning."""
    unknown = model._replace(qk_norm=QkNorm.NONE).unpriced()
    if model.embedding_norm and model.position_embedding is Positions.LEARNED:
        unknown.append("a norm of the embedding beside learned positions (which of them comes first is not given)")
    if unknown:
        raise SpecError(f"the plain decoder does not have {', '.join(unknown)}", where="model")


def _norms(model: Model, *names: str) -> dict[str, str]:
    return {f"{of}_{name}": "D" for name in names for of in ("gb" if model.norm is Norm.LAYERNORM else "g")}


def _attention_weights(model: Model) -> dict[str, str]:
    found = {"Wq": "DNH", "Wk": "DKH", "Wv": "DKH", "Wo": "NHD"}
    if model.attention_bias:
        found |= {"bq": "NH", "bk": "KH", "bv": "KH"}
    if model.attention_output_bias:
        found["bo"] = "D"
    if model.qk_norm is not QkNorm.NONE:
        query, key = ("H", "H") if model.qk_norm is QkNorm.HEAD_DIM else ("NH", "KH")
        found |= {"gq": query, "gk": key}
        if model.norm is Norm.LAYERNORM:
            found |= {"bq_norm": query, "bk_norm": key}
    return found


def _mlp_weights(model: Model) -> dict[str, str]:
    names = ("gate", "up") if model.gated_mlp else ("up",)
    found = {f"W{name}": "DF" for name in names} | {"Wdown": "FD"}
    return found | ({f"b{name}": "F" for name in names} | {"bdown": "D"} if model.mlp_bias else {})


def _block_norms(model: Model) -> dict[str, str]:
    if model.parallel_block:
        return _norms(model, *(("attention", "mlp") if model.parallel_norms == 2 else ("attention",)))
    before = _norms(model, "attention", "mlp") if model.norm_placement is not NormPlacement.POST else {}
    after = _norms(model, "post_attention", "post_mlp") if model.norm_placement is not NormPlacement.PRE else {}
    return before | after


class _Run:
    """A forward pass on the tape: the weights, and every tensor as it was made."""

    def __init__(
        self,
        model: Model,
        sizes: Mapping[str, int],
        weights: Mapping[str, Array],
        phase: Phase,
        noise: Noise | None = None,
    ) -> None:
        shapes = weight_shapes(model, sizes)
        given = {name: np.shape(weight) for name, weight in weights.items()}
        wrong = sorted(name for name in shapes.keys() | given.keys() if shapes.get(name) != given.get(name))
        if wrong:
            raise SpecError(f"weights of other names or shapes than the model's: {', '.join(wrong)}")
        tokens, sequences = sizes["T"], sizes["B"]
        if tokens % sequences or (phase is Phase.DECODE and tokens != sequences):
            raise SpecError(f"{tokens} tokens are no {sequences} sequences of one length (in decoding, of one token)")
        if sizes["N"] % sizes["K"]:
            raise SpecError(f"{sizes['N']} query heads do not share {sizes['K']} KV heads evenly")
        self.model, self.sizes, self.phase = model, sizes, phase
        self.length = tokens // sequences
        self.weights = {name: tape.leaf(np.asarray(weights[name], np.float64), noise) for name in shapes}
        self.made: dict[str, Variable] = {}
        self.indices: dict[str, Array] = {}
        self.part = ""

    def keep(self, name: str, x: Variable) -> Variable:
        """Record a tensor of the current part."""
        x = self.made[f"{self.part}.{name}"] = tape.kept(x)
        return x

    def weight(self, name: str) -> Variable:
        return self.weights[f"{self.part}.{name}"]

    def forward(self, tokens: Array, targets: Array) -> Variable | None:
        """The losses [T]; None in inference."""
        self.part = "embedding"
        x = self.embedding(tokens)
        for at in range(self.model.need("num_hidden_layers", "the layers of a run")):
            self.part = f"block.{at}"
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
        """Attention, then the MLP, each added to the stream: [T, D] to [T, D]."""
        placement = self.model.norm_placement
        sublayers = ("attention", "A", self.attention, "Y", "bo"), ("mlp", "M", self.mlp, "P", "bdown")
        for name, inner, branch, made, bias in sublayers:
            read = x
            if placement is not NormPlacement.POST:
                read = self.keep(inner, self.norm(x, f"g_{name}", f"b_{name}"))
            y = branch(read)
            if f"{self.part}.{bias}" in self.weights:
                made += "b"
                y = self.keep(made, add(y, self.weight(bias)))
            if placement is not NormPlacement.PRE:
                y = self.keep(f"{made}n", self.norm(y, f"g_post_{name}", f"b_post_{name}"))
            x = add(x, y)
            if name == "attention":
                x = self.keep("R", x)
        return x

    def parallel(self, x: Variable) -> Variable:
        """Attention and the MLP of the same stream, under one norm or one each: [T, D] to [T, D]."""
        read = self.keep("A", self.norm(x, "g_attention", "b_attention"))
        y = self.attention(read)
        if self.model.parallel_norms == 2:
            read = self.keep("M", self.norm(x, "g_mlp", "b_mlp"))
        made = "S"
        s = self.keep(made, add(y, self.mlp(read)))
        for bias in ("bo", "bdown"):
            if f"{self.part}.{bias}" in self.weights:
                made += "b"
                s = self.keep(made, add(s, self.weight(bias)))
        return add(x, s)

    def attention(self, x: Variable) -> Variable:
        """Projections by heads, norms of queries and keys, attention, projection back: ``Y``, without its bias."""
        heads = {}
        for name, low in (("Q", "q"), ("K", "k"), ("V", "v")):
            made = einsum("td,dnh->tnh", x, self.weight(f"W{low}"))
            if self.model.attention_bias:
                made = add(self.keep(f"{name}w", made), self.weight(f"b{low}"))
            heads[name] = self.keep(name, made)
        if self.model.qk_norm is not QkNorm.NONE:
            axes = (1, 2) if self.model.qk_norm is QkNorm.FULL_WIDTH else (2,)
            for name, low in (("Q", "q"), ("K", "k")):
                heads[name] = self.keep(f"{name}n", self.norm(heads[name], f"g{low}", f"b{low}_norm", axes))
        o = self.keep("O", self.attend(heads["Q"], heads["K"], heads["V"]))
        return self.keep("Y", einsum("tnh,nhd->td", o, self.weight("Wo")))

    def attend(self, q: Variable, k: Variable, v: Variable) -> Variable:
        """softmax(q k^T / sqrt(H)) v over each token's past: q [T, N, H], k and v [T, K, H] to [T, N, H].

        Query head i reads KV head i // (N / K): Ainslie et al. 2023, arXiv:2305.13245, section 2.2.
        """
        b, s, n, kv, h = self.sizes["B"], self.length, self.sizes["N"], self.sizes["K"], self.sizes["H"]
        q = reshape(q, (b, s, kv, n // kv, h))
        k, v = reshape(k, (b, s, kv, h)), reshape(v, (b, s, kv, h))
        future = Variable(np.triu(np.full((s, s), -np.inf), 1))
        scores = add(scale(einsum("bikgh,bjkh->bkgij", q, k), 1 / sqrt(h)), future)
        # The maximum steadies the exponentials and cancels in the quotient.
        exps = tape.exp(add(scores, scale(tape.maximum(scores, -1), -1.0)))
        shares = multiply(exps, tape.power(tape.total(exps, -1), -1.0))
        return reshape(einsum("bkgij,bjkh->bikgh", shares, v), (b * s, n, h))

    def mlp(self, x: Variable) -> Variable:
        """G sigmoid(G) * U, or gelu(U), between two projections: [T, D] to ``P`` [T, D], without its bias."""
        wide = {}
        for name, low in (("G", "gate"), ("U", "up")) if self.model.gated_mlp else (("U", "up"),):
            made = einsum("td,df->tf", x, self.weight(f"W{low}"))
            if self.model.mlp_bias:
                made = add(self.keep(f"{name}w", made), self.weight(f"b{low}"))
            wide[name] = self.keep(name, made)
        u = wide["U"]
        z = self.keep("Z", multiply(multiply(wide["G"], tape.sigmoid(wide["G"])), u) if "G" in wide else gelu(u))
        return self.keep("P", einsum("tf,fd->td", z, self.weight("Wdown")))

    def norm(self, x: Variable, gain: str, bias: str, axes: tuple[int, ...] = (1,)) -> Variable:
        """The norm x / sqrt(mean(x^2) + eps) * gain over ``axes``; a layer norm first takes the mean off."""
        if self.model.norm is not Norm.RMSNORM:
            x = add(x, scale(tape.mean(x, axes), -1.0))
        variance = add(tape.mean(multiply(x, x), axes), Variable(np.array(EPSILON)))
        y = multiply(multiply(x, tape.power(variance, -0.5)), self.weight(gain))
        return add(y, self.weight(bias)) if self.model.norm is Norm.LAYERNORM else y

    def head(self, x: Variable) -> Variable:
        """The final norm and the logits: [T, D] to [T, V]; in prefill [B, V], of the last positions alone."""
        read = self.keep("A", self.norm(x, "g_final", "b_final"))
        if self.phase is Phase.PREFILL:
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


def gelu(x: Variable) -> Variable:
    """``0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))``: Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2."""
    cubic = add(x, scale(multiply(x, multiply(x, x)), 0.044715))
    return scale(multiply(x, add(tape.tanh(scale(cubic, sqrt(2 / pi))), Variable(np.array(1.0)))), 0.5)
