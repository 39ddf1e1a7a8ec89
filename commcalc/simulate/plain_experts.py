"""The feed-forward part of the plain decoder: an MLP, experts among which tokens choose, and one that all share."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np

from commcalc.simulate import tape
from commcalc.simulate.capacity import taken
from commcalc.simulate.plain_state import State
from commcalc.simulate.tape import Variable, add, einsum, multiply, reshape, scale
from commcalc.simulate.wire import Array
from commcalc.transformer.spec import Norm


def gelu(x: Variable) -> Variable:
    """``0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))``: Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2."""
    cubic = add(x, scale(multiply(x, multiply(x, x)), 0.044715))
    return scale(multiply(x, add(tape.tanh(scale(cubic, sqrt(2 / pi))), Variable(np.array(1.0)))), 0.5)


def feed_forward(run: State, x: Variable, residual: Variable) -> tuple[Variable, str]:
    """What follows the second norm, and its name; ``residual`` [T, D] is the stream before that norm."""
    if not run.layer.sparse:
        return mlp(run, x), "P"
    if run.model.dense_mlp_beside_moe:
        return _beside(run, x, residual), "F"
    made, name = _experts(run, x, x)
    if not run.model.shared_expert_intermediate_size:
        return made, name
    return run.keep("P", add(made, _shared(run, x))), "P"


def mlp(run: State, x: Variable, end: str = "") -> Variable:
    """G sigmoid(G) * U, or gelu(U), between two projections: [T, D] to ``P`` [T, D], without its last bias."""
    wide = {}
    for name, low in (("G", "gate"), ("U", "up")) if run.model.gated_mlp else (("U", "up"),):
        made = einsum("td,df->tf", x, run.weight(f"W{low}{end}"))
        if run.has(f"b{low}{end}"):
            made = add(run.keep(f"{name}{end}w", made), run.weight(f"b{low}{end}"))
        wide[name] = run.keep(f"{name}{end}", made)
    z = run.keep(f"Z{end}", _activation(wide))
    return run.keep(f"P{end}", einsum("tf,fd->td", z, run.weight(f"Wdown{end}")))


def _activation(wide: dict[str, Variable]) -> Variable:
    return multiply(tape.silu(wide["G"]), wide["U"]) if "G" in wide else gelu(wide["U"])


def _shared(run: State, x: Variable) -> Variable:
    """The expert that every token goes through; its gate is one number a token (Qwen2-MoE)."""
    made = mlp(run, x, "s")
    if not run.has("Wshare"):
        return made
    share = run.keep("share_w", reshape(einsum("td,do->to", x, _column(run.weight("Wshare"))), (run.sizes["T"],)))
    share = run.keep("share", tape.sigmoid(share))
    return run.keep("Pg", multiply(made, reshape(share, (run.sizes["T"], 1))))


def _column(x: Variable) -> Variable:
    return reshape(x, (*x.value.shape, 1))


def _beside(run: State, x: Variable, residual: Variable) -> Variable:
    """An MLP of the norm and experts of the stream itself, each behind a norm of its own, added: Gemma 4."""
    dense = run.keep("Pn", run.norm(mlp(run, x), "g_dense_branch", "b_dense_branch"))
    read = run.keep("Me", run.norm(residual, "g_experts", "b_experts"))
    made, _ = _experts(run, read, residual)
    routed = run.keep("Pen", run.norm(made, "g_expert_branch", "b_expert_branch"))
    return run.keep("F", add(dense, routed))


def _experts(run: State, x: Variable, routed_by: Variable) -> tuple[Variable, str]:
    """The chosen experts of each token, weighed: [T, D] to [T, D], and its name.

    ``sum over chosen e of p_e(x) f_e(x)``: Shazeer et al. 2017, arXiv:1701.06538, section 2; p is a softmax over the
    chosen logits (Mixtral, arXiv:2401.04088, section 2.1), of a single one its sigmoid (Llama 4). An expert that has no
    room left says nothing; the others count as much as before.
    """
    routing, chosen = _routed(run, routed_by)
    if run.choices.room is not None:
        routing = multiply(routing, Variable(taken(chosen, run.sizes["E"], run.choices.room)))
    inner = {}
    sent = run.keep("Ae", tape.rows(x, np.arange(len(chosen))[:, None] + 0 * chosen))  # a token for each choice
    for name, low in (("G", "gate"), ("U", "up")) if run.model.gated_mlp else (("U", "up"),):
        made = einsum("tcd,tcdm->tcm", sent, tape.rows(run.weight(f"We_{low}"), chosen))
        if run.has(f"be_{low}"):
            made = add(made, tape.rows(run.weight(f"be_{low}"), chosen))
        inner[name] = run.keep(f"{name}e", made)
    z = run.keep("Ze", _activation(inner))
    out = run.keep("Oe", einsum("tcm,tcmd->tcd", z, tape.rows(run.weight("We_down"), chosen)))
    made = run.keep("Pe", einsum("tcd,tc->td", out, routing))
    if not run.has("be_down"):
        return made, "Pe"
    biases = run.keep("Be", tape.rows(run.weight("be_down"), chosen))
    return run.keep("Peb", add(made, run.keep("Pb", einsum("tcd,tc->td", biases, routing)))), "Peb"


def _routed(run: State, x: Variable) -> tuple[Variable, Array]:
    """How much each choice of a token counts, and the choices: two [T, C]."""
    if run.has("g_router"):
        x = run.keep("Ar", run.norm(x, "g_router", kind=Norm.RMSNORM))
    scores = einsum("td,de->te", x, run.weight("Wr"))
    if run.has("br"):
        scores = add(run.keep("scores_w", scores), run.weight("br"))
    scores = run.keep("scores", scores)
    chosen = _chosen(run, scores.value)
    there = np.zeros(scores.value.shape, dtype=np.int8)
    there[np.arange(len(there))[:, None], chosen] = 1
    run.indices |= {f"{run.part}.chosen": chosen, f"{run.part}.map": there}
    if run.sizes["C"] == 1:
        shares = multiply(tape.sigmoid(scores), Variable(there.astype(float)))
    else:
        masked = add(scores, Variable(np.where(there, 0.0, -np.inf)))
        exps = tape.exp(add(masked, scale(tape.maximum(masked, 1), -1.0)))
        shares = multiply(exps, tape.power(tape.total(exps, 1), -1.0))
    if run.has("g_each_expert"):
        shares = multiply(shares, run.weight("g_each_expert"))
    return run.keep("routing", tape.along(run.keep("probs", shares), chosen)), chosen


def _chosen(run: State, scores: Array) -> Array:
    """The experts with the highest scores [T, C], by number; of equals the lower one, or what another run chose."""
    tokens, experts = scores.shape
    numbers = np.broadcast_to(np.arange(experts), scores.shape)
    ranked = np.lexsort((numbers, -scores), axis=1)
    own: Array = np.sort(ranked[:, : run.sizes["C"]], axis=1)
    other = run.choices.chosen.get(f"{run.part}.chosen")
    if other is None or other.shape != own.shape or not _numbers(other, experts):
        return own
    there = np.zeros(scores.shape, dtype=bool)
    there[np.arange(tokens)[:, None], other] = True
    worst = np.where(there, scores, np.inf).min(axis=1)
    best = np.where(there, -np.inf, scores).max(axis=1)
    near = best - worst <= run.choices.slack * np.abs(scores).max()
    return np.where(near[:, None], other, own)


def _numbers(chosen: Array, experts: int) -> bool:
    """Whether these are different experts of each token, in rising order."""
    rising = bool((np.diff(chosen, axis=1) > 0).all())
    return rising and bool(((chosen >= 0) & (chosen < experts)).all())
