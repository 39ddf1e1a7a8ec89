"""The feed-forward sublayer, gated (three matrices) or plain (two)."""

from __future__ import annotations

from commcalc.algebra.program import Builder, Rule
from commcalc.algebra.sharding import Sharding
from commcalc.transformer.layout import Layout
from commcalc.transformer.spec import Model


def mlp(b: Builder, model: Model, layout: Layout, x: str, kept: Sharding | None) -> str:
    """Add the MLP on ``x[T, D]``; the output ``P[T, D]`` is left as the projection makes it, or ``kept``."""
    b.sublayer = "mlp"
    parts = {"G": "gate_proj", "U": "up_proj"} if model.gated_mlp else {"U": "up_proj"}
    label = "gate_up_proj" if model.gated_mlp else "up_proj"
    for name, op in parts.items():
        weight = "W" + op.removesuffix("_proj")
        b.weight(weight, layout.weight("D", "F"))
        made = f"{name}w" if model.mlp_bias else name
        b.op(Rule.CONTRACT, op, (x,), made, ("T", "F"), weights=(weight,), label=label)
        if model.mlp_bias:
            bias = "b" + op.removesuffix("_proj")
            b.weight(bias, layout.weight("F"))
            b.op(Rule.BIAS, f"{op}_bias", (made,), name, ("T", "F"), weights=(bias,), label=label)
    function = "gated_activation" if model.gated_mlp else "activation"
    b.op(Rule.POINTWISE, "activation", tuple(parts), "Z", ("T", "F"), function=function)
    b.weight("Wdown", layout.weight("F", "D"))
    return b.op(Rule.CONTRACT, "down_proj", ("Z",), "P", ("T", "D"), weights=("Wdown",), kept=kept)
