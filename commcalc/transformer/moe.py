"""A mixture of experts: a router, experts among which every token chooses some, and one that all tokens share.

Without expert parallelism every rank holds a part of each expert's width (Megatron-LM core/transformer/moe with
expert tensor parallelism, vLLM fused_moe without expert parallelism): tokens are brought as to an MLP, and what the
chosen experts say is weighed and summed before it is reduced, whatever the number of choices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from commcalc.algebra.program import Builder, Role, Rule
from commcalc.algebra.sharding import Sharding
from commcalc.transformer.dialects import Dialect
from commcalc.transformer.layout import Layout
from commcalc.transformer.mlp import Names, mlp
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Dispatch, Framework

_TD, _CHOICES = ("T", "D"), ("T", "C")


def experts(
    b: Builder, model: Model, layout: Layout, x: str, routed_by: str, kept: Sharding | None, dialect: Dialect
) -> str:
    """Add router and experts on ``x[T, D]``, routed by the tensor ``routed_by``; the output ``Pe[T, D]``."""
    if layout.moves_tokens:
        return _elsewhere(b, model, layout, x, routed_by, kept, dialect)
    _router(b, model, layout, routed_by, dialect, layout.whole)
    if dialect.every_expert:
        return _every_expert(b, layout, x, kept, dialect)
    module = dialect.module("experts")
    parts = ("G", "U") if model.gated_mlp else ("U",)
    for name in parts:
        low = {"G": "gate", "U": "up"}[name]
        weights = [b.weight(f"We_{low}", layout.expert_weight("E", "D", "M"))]
        if model.expert_bias:
            weights.append(b.weight(f"be_{low}", layout.expert_weight("E", "M")))
        b.op(
            Rule.ROUTE, f"expert_{low}_proj", (x, "chosen"), f"{name}e", ("T", "C", "M"),
            weights=tuple(weights), label="experts", module=module, function="expert",
        )  # fmt: skip
    function = "gated_activation" if model.gated_mlp else "activation"
    inner = tuple(f"{name}e" for name in parts)
    b.op(Rule.POINTWISE, "expert_activation", inner, "Ze", ("T", "C", "M"), function=function, label="experts")
    b.weight("We_down", layout.expert_weight("E", "M", "D"))
    b.op(
        Rule.ROUTE, "expert_down_proj", ("Ze", "chosen"), "Oe", ("T", "C", "D"),
        weights=("We_down",), label="experts", function="expert",
    )  # fmt: skip
    # Where others are added before the reduction, the biases are too, a part of them by each rank.
    shares = model.expert_bias and (dialect.partial_routing or kept is None)
    made = b.op(
        Rule.WEIGH, "combine", ("Oe", "routing"), "Pe", _TD, over=("C",), kept=None if shares else kept,
        label="experts", function="weigh",
    )  # fmt: skip
    return _with_bias(b, layout, made, kept, shares=shares) if model.expert_bias else made


def _every_expert(b: Builder, layout: Layout, x: str, kept: Sharding | None, dialect: Dialect) -> str:
    """Every expert on every token: what is brought and reduced has a row for each pair of them.

    Source: transformers 5.24.0 models/llama4/modeling_llama4.py, Llama4TextMoe.forward, under moe_tp_experts.
    """
    every, wide = ("T", "E", "D"), ("T", "E", "M")
    module = dialect.module("experts")
    b.op(Rule.POINTWISE, "repeat", (x,), "Ae", every, label="experts")
    for name, low in (("G", "gate"), ("U", "up")):
        weight = b.weight(f"We_{low}", layout.expert_weight("E", "D", "M"))
        b.op(
            Rule.CONTRACT, f"expert_{low}_proj", ("Ae",), f"{name}e", wide, weights=(weight,), label="experts",
            module=module,
        )  # fmt: skip
    b.op(Rule.POINTWISE, "expert_activation", ("Ge", "Ue"), "Ze", wide, function="gated_activation", label="experts")
    b.weight("We_down", layout.expert_weight("E", "M", "D"))
    b.op(
        Rule.CONTRACT, "expert_down_proj", ("Ze",), "Oe", every, weights=("We_down",), label="experts",
        kept=layout.whole(*every),
    )  # fmt: skip
    return b.op(
        Rule.WEIGH, "combine", ("Oe", "probs"), "Pe", _TD, over=("E",), label="experts", function="weigh", kept=kept
    )  # fmt: skip


def _with_bias(b: Builder, layout: Layout, made: str, kept: Sharding | None, *, shares: bool) -> str:
    """The down biases of the chosen experts, weighed: after the reduction, or a part of them on each rank before."""
    chosen, routing = ("chosen", "routing") if shares else ("own_chosen", "own_routing")
    b.weight("be_down", layout.weight("E", "D"))
    b.op(
        Rule.LOOKUP, "expert_bias", (chosen,), "Be", ("T", "C", "D"), weights=("be_down",), over=("E",),
        label="experts",
    )  # fmt: skip
    added = b.op(Rule.WEIGH, "combine_bias", ("Be", routing), "Pb", _TD, over=("C",), label="experts", function="weigh")
    if shares:
        pending = layout.whole(*_TD, pending=layout.weights.get("M", ()))
        added = b.op(Rule.SHARE, "share_bias", ("Pb",), "Pbs", _TD, kept=pending, label="experts", function="share")
    return b.op(Rule.ADD, "add_expert_bias", (made, added), "Peb", _TD, label="experts", kept=kept)


def _elsewhere(
    b: Builder, model: Model, layout: Layout, x: str, routed_by: str, kept: Sharding | None, dialect: Dialect
) -> str:
    """Experts on ranks of their own: tokens are brought to them, or all tokens to all of them."""
    from commcalc.transformer import expert_parallel as ep

    if dialect.dispatch is Dispatch.ALL_GATHER:
        _router(b, model, layout, routed_by, dialect, partial(ep.gathered_tokens, layout))
        return ep.gathered(b, model, layout, x, kept)
    x, routed_by = ep.own_tokens(b, layout, (x, routed_by), dialect)
    _router(b, model, layout, routed_by, dialect._replace(dense_routing=False))
    counts = None
    if not dialect.pads_rows:
        counts = ep.Counts.ALL_GATHER if dialect.framework is Framework.MEGATRON else ep.Counts.ALL_TO_ALL
    return ep.dispatched(b, model, layout, x, dialect, counts)


def _router(
    b: Builder, model: Model, layout: Layout, x: str, dialect: Dialect, brought: Callable[..., Sharding] | None = None
) -> None:
    """Logits, the choices of each token, and how much each choice counts: ``chosen`` and ``routing`` [T, C].

    Megatron gathers a probability for every expert and a mask of them (core/transformer/moe/token_dispatcher.py,
    MoEAllGatherTokenDispatcher).
    """
    gain: tuple[str, ...] = ()
    if model.router_scales:
        scale = b.weight("g_router", layout.weight("D"))
        x = b.op(
            Rule.NORM, "router_norm", (x,), "Ar", _TD, weights=(scale,), over=("D",), function="rmsnorm", label="router"
        )  # fmt: skip
        gain = (b.weight("g_each_expert", layout.weight("E")),)
    b.weight("Wr", layout.weight("D", "E"))
    made = "scores_w" if model.router_bias else "scores"
    b.op(Rule.CONTRACT, "router", (x,), made, ("T", "E"), weights=("Wr",))
    if model.router_bias:
        b.weight("br", layout.weight("E"))
        b.op(Rule.BIAS, "router_bias", (made,), "scores", ("T", "E"), weights=("br",), label="router")

    def choose(source: str, output: str) -> None:
        b.op(
            Rule.NORM, output, (source,), output, _CHOICES, over=("E",), role=Role.INDEX, differentiable=False,
            function="choose", label="router",
        )  # fmt: skip

    def weigh(output: str) -> None:
        b.op(
            Rule.NORM, output, ("scores", output.replace("routing", "chosen")), output, _CHOICES, weights=gain,
            over=("E",), function="routing", label="router", partial_gradient=dialect.partial_routing,
            role=Role.FP32 if dialect.routing_fp32 else Role.ACTIVATION,
        )  # fmt: skip

    if dialect.every_expert:
        choose("scores", "chosen")
        b.op(
            Rule.NORM, "probabilities", ("scores", "chosen"), "probs", ("T", "E"), weights=gain, over=("E",),
            label="router",
        )  # fmt: skip
        return
    if not dialect.dense_routing and layout.moves_tokens and brought is not None:
        choose("scores", "own_chosen")
        weigh("own_routing")
        b.op(
            Rule.POINTWISE, "gather_chosen", ("own_chosen",), "chosen", _CHOICES, kept=brought(*_CHOICES),
            role=Role.INDEX, differentiable=False, function="same", label="router",
        )  # fmt: skip
        b.op(
            Rule.POINTWISE, "gather_routing", ("own_routing",), "routing", _CHOICES, kept=brought(*_CHOICES),
            function="same", label="router", role=Role.FP32,
        )  # fmt: skip
        return
    if not dialect.dense_routing:
        choose("scores", "chosen")
        weigh("routing")
        if model.expert_bias and not dialect.partial_routing:
            choose("scores", "own_chosen")
            weigh("own_routing")
        return
    choose("scores", "own_chosen")
    if model.expert_bias:
        weigh("own_routing")
    whole = layout.whole("T", "E") if brought is None else brought("T", "E")
    b.op(
        Rule.NORM, "routing_map", ("scores",), "map", ("T", "E"), over=("E",), role=Role.MASK, kept=whole,
        differentiable=False, label="router",
    )  # fmt: skip
    b.op(
        Rule.NORM, "probabilities", ("scores", "own_chosen"), "probs", ("T", "E"),
        weights=gain, over=("E",), kept=whole, label="router",
    )  # fmt: skip
    choose("map", "chosen")
    b.op(
        Rule.NORM, "pick", ("probs", "chosen"), "routing", _CHOICES, over=("E",), label="router",
        partial_gradient=True,
    )  # fmt: skip


def shared_expert(b: Builder, model: Model, layout: Layout, x: str, kept: Sharding | None, dialect: Dialect) -> str:
    """Add the MLP that every token goes through, and its gate where there is one; the output ``Ps[T, D]``."""
    names = Names("s", "shared_", "S", module=dialect.module("shared_expert"))
    made = mlp(b, model, layout, x, kept, dialect, names)
    if not model.shared_expert_gate:
        return made
    b.weight("Wshare", layout.weight("D"))
    b.op(Rule.CONTRACT, "shared_gate", (x,), "share_w", ("T",), weights=("Wshare",))
    b.op(Rule.POINTWISE, "shared_gate_sigmoid", ("share_w",), "share", ("T",), function="sigmoid", label="shared_gate")
    return b.op(
        Rule.WEIGH, "shared_gating", (made, "share"), "Pg", _TD, label="shared_down_proj", function="weigh"
    )  # fmt: skip
