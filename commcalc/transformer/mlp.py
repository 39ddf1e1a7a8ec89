"""The feed-forward sublayer, gated (three matrices) or plain (two)."""

from typing import NamedTuple

from commcalc.algebra.program import Builder, Rule
from commcalc.algebra.sharding import Sharding
from commcalc.transformer.dialects import Dialect
from commcalc.transformer.layout import Layout
from commcalc.transformer.spec import Model


class Names(NamedTuple):
    """What tells two MLPs of one layer apart: the end of weights and tensors, the start of labels, the width."""

    end: str = ""
    start: str = ""
    width: str = "F"
    biased: bool = False
    module: str = ""


def mlp(b: Builder, model: Model, layout: Layout, x: str, kept: Sharding | None, dialect: Dialect, names: Names) -> str:
    """Add the MLP on ``x[T, D]``; the output ``P[T, D]`` is left as the projection makes it, or ``kept``."""
    end, start, width = names.end, names.start, ("T", names.width)
    parts = {f"G{end}": "gate_proj", f"U{end}": "up_proj"} if model.gated_mlp else {f"U{end}": "up_proj"}
    fused = start + ("gate_up_proj" if model.gated_mlp else "up_proj")
    whole = dialect.gathers_gate_up and model.gated_mlp
    if whole:
        _gathered(b, layout, x, dialect, parts)
    for name, op in {} if whole else parts.items():
        weight = b.weight("W" + op.removesuffix("_proj") + end, layout.weight("D", names.width))
        label, module = dialect.linear(start + op, fused)
        made = f"{name}w" if names.biased else name
        b.op(
            Rule.CONTRACT, start + op, (x,), made, width, weights=(weight,), label=label,
            module=module or names.module, kept=layout.scattered(*width),
        )  # fmt: skip
        if names.biased:
            bias = b.weight("b" + op.removesuffix("_proj") + end, layout.vector(names.width))
            b.op(Rule.BIAS, f"{start}{op}_bias", (made,), name, width, weights=(bias,), label=label)
    function = "gated_activation" if model.gated_mlp else "activation"
    part = layout.split(*width) if whole else None
    b.op(Rule.POINTWISE, f"{start}activation", tuple(parts), f"Z{end}", width, function=function, kept=part)
    down = b.weight(f"Wdown{end}", layout.weight(names.width, "D"))
    label, module = dialect.linear(f"{start}down_proj", f"{start}down_proj")
    return b.op(
        Rule.CONTRACT, f"{start}down_proj", (f"Z{end}",), f"P{end}", ("T", "D"), weights=(down,), kept=kept,
        label=label, module=module,
    )  # fmt: skip


def _gathered(b: Builder, layout: Layout, x: str, dialect: Dialect, parts: dict[str, str]) -> None:
    """Gate and up as one linear layer whose output is gathered. Source: transformers 5.24.0 configuration_phi3.py."""
    weight = b.weight("Wgate_up", layout.weight("D", "GU"))
    label = "gate_up_proj"
    b.op(
        Rule.CONTRACT, label, (x,), "GU", ("T", "GU"), weights=(weight,), label=label,
        module=label if dialect.apart else "", kept=layout.whole("T", "GU"),
    )  # fmt: skip
    for name in parts:
        b.op(
            Rule.TAKE, f"take_{name.lower()}", ("GU",), name, ("T", "F"), over=("GU",),
            kept=layout.whole("T", "F"), label=label,
        )  # fmt: skip
