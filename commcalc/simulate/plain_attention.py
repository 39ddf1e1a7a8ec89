"""Attention of the plain decoder: heads that share keys, latents, and linear attention of two kinds.

Everything here is of whole sequences at once: linear attention, which devices run token by token, is a product of
matrices with a causal mask.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from commcalc.simulate import tape
from commcalc.simulate.plain_state import EPSILON, State
from commcalc.simulate.tape import Variable, add, einsum, multiply, reshape, scale
from commcalc.simulate.wire import Array
from commcalc.transformer.spec import LinearAttention, Norm, QkNorm

# Of the length that the delta rule's queries and keys are divided by.
_LENGTH_EPSILON = 1e-6


def attention(run: State, x: Variable) -> Variable:
    """The attention of the current layer: [T, D] to ``Y`` [T, D], without its bias."""
    way = _linear if run.layer.linear else _latent if run.layer.latent else _by_heads
    made = way(run, x)
    return run.keep("Y", einsum("tnh,nhd->td", run.keep("O", made), run.weight("Wo")))


def _by_heads(run: State, x: Variable) -> Variable:
    """Projections by heads, norms of queries and keys, attention, a gate: [T, D] to [T, N, HV]."""
    heads = {}
    for name in ("Q", "K", "V", "Qgate"):
        low = name.lower()
        if run.has(f"W{low}"):
            made = einsum("td,dnh->tnh", x, run.weight(f"W{low}"))
            if run.has(f"b{low}"):
                made = add(run.keep(f"{name}w", made), run.weight(f"b{low}"))
            heads[name] = run.keep(name, made)
    if run.layer.keys_are_values:  # as they are before their norm (transformers models/gemma4)
        heads["V"] = heads["K"]
    if run.model.qk_norm is QkNorm.FULL_WIDTH:
        _norm_over_all_heads(run, heads)
    elif run.model.qk_norm is not QkNorm.NONE:
        for name, low in (("Q", "q"), ("K", "k")):
            heads[name] = run.keep(f"{name}n", run.norm(heads[name], f"g{low}", f"b{low}_norm", (2,)))
    sinks = run.weight("sinks") if run.layer.sinks else None
    made = attend(run, heads["Q"], heads["K"], heads["V"], sinks)
    return multiply(run.keep("Oa", made), tape.sigmoid(heads["Qgate"])) if "Qgate" in heads else made


def _norm_over_all_heads(run: State, heads: dict[str, Variable]) -> None:
    """One mean of squares over all heads of the queries, and one over those of the keys; both sums are kept."""
    t = run.sizes["T"]
    sums = [reshape(tape.total(multiply(heads[name], heads[name]), (1, 2)), (t, 1)) for name in "QK"]
    places = [Variable(np.array([row])) for row in ([1.0, 0.0], [0.0, 1.0])]
    both = add(*(einsum("ta,ab->tb", one, place) for one, place in zip(sums, places, strict=True)))
    both = run.keep("squares", both)
    for at, name in enumerate("QK"):
        _, n, h = heads[name].value.shape
        made = _over_root(heads[name], reshape(tape.part(both, at, at + 1), (t, 1, 1)), n * h)
        heads[name] = run.keep(f"{name}n", multiply(made, run.weight(f"g{name.lower()}")))


def _over_root(x: Variable, squares: Variable, count: int) -> Variable:
    """``x / sqrt(squares / count + eps)``."""
    return multiply(x, tape.power(add(scale(squares, 1 / count), Variable(np.array(EPSILON))), -0.5))


def attend(run: State, q: Variable, k: Variable, v: Variable, sinks: Variable | None = None) -> Variable:
    """softmax(q k^T / sqrt(H)) v over each token's past: q [T, N, H], k [T, K, H], v [T, K, HV] to [T, N, HV].

    Query head i reads KV head i // (N / K): Ainslie et al. 2023, arXiv:2305.13245, section 2.2. A sink is a logit
    without a value: Xiao et al. 2023, arXiv:2309.17453, as gpt-oss learns it.
    """
    n, h = q.value.shape[1:]
    kv, shared = k.value.shape[1], n // k.value.shape[1]
    q = run.by_sequence(reshape(q, (run.sizes["T"], kv, shared, h)))
    k, v = run.by_sequence(k), run.by_sequence(v)
    logits = None if sinks is None else reshape(sinks, (kv, shared, 1, 1))
    shares = _softmax(scale(einsum("bikgh,bjkh->bkgij", q, k), 1 / sqrt(h)), logits)
    made = run.by_token(einsum("bkgij,bjkh->bikgh", shares, v))
    return reshape(made, (run.sizes["T"], n, v.value.shape[-1]))


def _softmax(scores: Variable, sinks: Variable | None = None) -> Variable:
    """Shares of the scores [..., s, s] of no later token; a sink takes one as well."""
    s = scores.value.shape[-1]
    scores = add(scores, Variable(np.triu(np.full((s, s), -np.inf), 1)))
    # The maximum steadies the exponentials and cancels in the quotient.
    top = tape.maximum(scores, -1)
    if sinks is not None:
        top = Variable(np.maximum(top.value, sinks.value))
    exps = tape.exp(add(scores, scale(top, -1.0)))
    total = tape.total(exps, -1)
    if sinks is not None:
        total = add(total, tape.exp(add(sinks, scale(top, -1.0))))
    return multiply(exps, tape.power(total, -1.0))


def _latent(run: State, x: Variable) -> Variable:
    """Multi-head latent attention, DeepSeek-V2, arXiv:2405.04434, section 2.1: [T, D] to [T, N, HV].

    The last R elements of a query meet one rotary key of all heads; the turn itself is left out.
    """
    read, content = x, run.sizes["HC"]
    if run.model.q_lora_rank:
        read = run.keep("Cq", einsum("td,dl->tl", x, run.weight("Wq_down")))
        read = run.keep("Cqn", run.norm(read, "g_q_down", kind=Norm.RMSNORM))
    q = run.keep("Q", einsum("tl,lnh->tnh", read, run.weight("Wq")))
    latent = run.keep("Ckv", einsum("td,dl->tl", x, run.weight("Wkv_down")))
    latent = run.keep("Ckvn", run.norm(latent, "g_kv_down", kind=Norm.RMSNORM))
    k = run.keep("K", einsum("tl,lnh->tnh", latent, run.weight("Wk_up")))
    v = run.keep("V", einsum("tl,lnh->tnh", latent, run.weight("Wv_up")))
    rotary = run.keep("Kr", run.keep("Krw", einsum("td,dr->tr", x, run.weight("Wk_rope"))))
    own = run.by_sequence(tape.part(q, 0, content)), run.by_sequence(k)
    turned = run.by_sequence(tape.part(q, content, q.value.shape[2])), run.by_sequence(rotary)
    scores = add(einsum("binh,bjnh->bnij", *own), einsum("binr,bjr->bnij", *turned))
    shares = _softmax(scale(scores, 1 / sqrt(q.value.shape[2])))
    return run.by_token(einsum("bnij,bjnh->binh", shares, run.by_sequence(v)))


def _linear(run: State, x: Variable) -> Variable:
    """Projections, the linear attention of the model, a norm and a gate: [T, D] to [T, NV, HL]."""
    made = {}
    for low in "qkvz":
        made[low] = run.keep(f"L{low}", einsum("td,dnh->tnh", x, run.weight(f"Wl{low}")))
    if run.model.linear_attention is LinearAttention.GATED_DELTA_NET:
        for low in "ba":
            made[low] = run.keep(f"L{low}", einsum("td,dn->tn", x, run.weight(f"Wl{low}")))
        out = run.keep("LO", _delta_net(run, made))
        out = run.keep("LOn", run.norm(out, "g_heads", axes=(2,), kind=Norm.RMSNORM))
        return multiply(out, tape.silu(made["z"]))
    out = run.keep("LO", _lightning(run, made["q"], made["k"], made["v"]))
    squares = run.keep("squares", reshape(tape.total(multiply(out, out), (1, 2)), (run.sizes["T"],)))
    _, n, h = out.value.shape
    out = multiply(_over_root(out, reshape(squares, (run.sizes["T"], 1, 1)), n * h), run.weight("g_heads"))
    return multiply(run.keep("LOn", out), tape.sigmoid(made["z"]))


def _causal(length: int) -> Array:
    """Ones for a token and those before it, zeros for later ones."""
    return np.tril(np.ones((length, length)))


def _by_key_head(run: State, x: Variable, keys: int) -> Variable:
    """Value heads under the key head that they share: [T, NV, ...] to [B, s, NK, NV/NK, ...]."""
    _, n, *rest = x.value.shape
    return run.by_sequence(reshape(x, (run.sizes["T"], keys, n // keys, *rest)))


def _lightning(run: State, q: Variable, k: Variable, v: Variable) -> Variable:
    """(q k^T, no later tokens) v: MiniMax-01, arXiv:2501.08313, section 2.2; its constant decay is left out."""
    keys, (_, n, h) = q.value.shape[1], v.value.shape
    scores = einsum("bikh,bjkh->bkij", run.by_sequence(q), run.by_sequence(k))
    scores = multiply(scores, Variable(_causal(run.length)))
    return reshape(einsum("bkij,bjkgh->bikgh", scores, _by_key_head(run, v, keys)), (run.sizes["T"], n, h))


def _delta_net(run: State, made: dict[str, Variable]) -> Variable:
    """The gated delta rule of whole sequences: Yang et al. 2024, arXiv:2412.06464, section 3.3.

    What is written at token t is u_t = beta_t (v_t - sum over s < t of decay(s..t) (k_s . k_t) u_s): a triangular
    system (1 + M) U = beta V, whose inverse is (1 - M)(1 + M^2)(1 + M^4)... since M is zero after s powers.
    """
    s, keys, (t, n, h) = run.length, made["k"].value.shape[1], made["v"].value.shape
    q, k, v = (_convolved(run, low, made[low]) for low in "qkv")
    q, k = (run.by_sequence(_direction(one)) for one in (q, k))
    shift, log = run.weight("dt_bias"), run.weight("A_log")
    slow = tape.log(add(tape.exp(add(made["a"], shift)), Variable(np.array(1.0))))
    decay = run.keep("decay", tape.exp(scale(multiply(tape.exp(log), slow), -1.0)))
    # Of the logarithms the sum from one token to another, [B, NK, NV/NK, s, s].
    summed = einsum("ij,bjkg->bkgi", Variable(_causal(s)), _by_key_head(run, tape.log(decay), keys))
    ends, starts = (reshape(summed, (*summed.value.shape[:3], *shape)) for shape in ((s, 1), (1, s)))
    later = Variable(np.triu(np.full((s, s), -np.inf), 1))
    left = tape.exp(add(add(ends, scale(starts, -1.0)), later))
    beta = _by_key_head(run, tape.sigmoid(made["b"]), keys)
    rows = reshape(einsum("ij,bjkg->bkgi", Variable(np.eye(s)), beta), (*summed.value.shape, 1))
    pairs = reshape(einsum("bikh,bjkh->bkij", k, k), (run.sizes["B"], keys, 1, s, s))
    matrix = multiply(multiply(multiply(rows, left), pairs), Variable(_causal(s) - np.eye(s)))
    written = multiply(reshape(beta, (*beta.value.shape, 1)), _by_key_head(run, v, keys))
    power, reach = scale(matrix, -1.0), 1
    while reach < s:
        written = add(written, einsum("bkgij,bjkgh->bikgh", power, written))
        power, reach = einsum("bkgij,bkgjl->bkgil", power, power), 2 * reach
    reads = multiply(reshape(einsum("bikh,bjkh->bkij", q, k), (run.sizes["B"], keys, 1, s, s)), left)
    out = einsum("bkgij,bjkgh->bikgh", reads, written)
    return scale(reshape(out, (t, n, h)), 1 / sqrt(run.sizes["HK"]))


def _direction(x: Variable) -> Variable:
    """``x`` of length 1."""
    return multiply(x, tape.power(add(tape.total(multiply(x, x), -1), Variable(np.array(_LENGTH_EPSILON))), -0.5))


def _convolved(run: State, low: str, x: Variable) -> Variable:
    """A short causal convolution of every channel [T, n, h], then SiLU; as it is where there is none."""
    if not run.has(f"Wconv_{low}"):
        return x
    taps, s = run.sizes["CONV"], run.length
    shifts = np.stack([np.eye(s, k=at - taps + 1) for at in range(taps)])
    moved = einsum("cij,bjnh->cbinh", Variable(shifts), run.by_sequence(x))
    made = run.by_token(einsum("cbinh,nhc->binh", moved, run.weight(f"Wconv_{low}")))
    return run.keep(f"L{low}c", tape.silu(made))
