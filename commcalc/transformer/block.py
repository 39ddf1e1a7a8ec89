"""One transformer layer: norms, attention, MLP and residual adds, sequential or parallel."""

from __future__ import annotations

from commcalc.algebra.program import Builder, Program, Rule
from commcalc.transformer.attention import attention
from commcalc.transformer.layout import Layout
from commcalc.transformer.mlp import mlp
from commcalc.transformer.spec import Model, Norm, NormPlacement

_TD = ("T", "D")


def block_program(model: Model, layout: Layout) -> Program:
    """The chain of operations of one layer on the residual stream ``X[T, D]``."""
    b = Builder("block")
    b.input("X", layout.stream_of(*_TD))
    (_parallel if model.parallel_block else _sequential)(b, model, layout)
    return b.program()


def norm(b: Builder, model: Model, layout: Layout, name: str, x: str, output: str) -> str:
    """Add a normalisation of ``x[T, D]`` over D with its weights; returns the output's name."""
    weights = [b.weight(f"g_{name}", layout.weight("D"))]
    if model.norm is Norm.LAYERNORM:
        weights.append(b.weight(f"b_{name}", layout.weight("D")))
    function = "rmsnorm" if model.norm is Norm.RMSNORM else "layernorm"
    return b.op(
        Rule.NORM, f"{name}_norm", (x,), output, _TD, weights=tuple(weights), over=("D",), function=function
    )  # fmt: skip


def _sequential(b: Builder, model: Model, layout: Layout) -> None:
    stream = layout.stream_of(*_TD)
    before = model.norm_placement is not NormPlacement.POST
    after = model.norm_placement is not NormPlacement.PRE
    x = "X"
    for name, inner, output in (("attention", "A", "R"), ("mlp", "M", "X'")):
        b.sublayer = name
        read = norm(b, model, layout, name, x, inner) if before else x
        branch = attention if name == "attention" else mlp
        made = branch(b, model, layout, read, stream)
        made = _row_bias(b, model, layout, made, name)
        if after:
            made = norm(b, model, layout, f"post_{name}", made, f"{made}n")
        x = b.op(Rule.ADD, f"{name}_residual", (x, made), output, _TD, label="residual", kept=stream)


def _parallel(b: Builder, model: Model, layout: Layout) -> None:
    """Both branches read the same stream; their partial sums are added, then reduced once."""
    stream = layout.stream_of(*_TD)
    b.sublayer = "attention"
    read = norm(b, model, layout, "attention", "X", "A")
    attention(b, model, layout, read, None)
    b.sublayer = "mlp"
    if model.parallel_norms == 2:
        read = norm(b, model, layout, "mlp", "X", "M")
    mlp(b, model, layout, read, None)
    b.sublayer = "attention + mlp"
    made = b.op(Rule.ADD, "branch_sum", ("Y", "P"), "S", _TD, label="out_proj + down_proj", kept=stream)
    for name in ("attention", "mlp"):
        made = _row_bias(b, model, layout, made, name)
    b.op(Rule.ADD, "residual", ("X", made), "X'", _TD, kept=stream)


def _row_bias(b: Builder, model: Model, layout: Layout, x: str, name: str) -> str:
    """The bias of a row-parallel output: a vector every rank holds, added once, after the reduction."""
    if not (model.attention_output_bias if name == "attention" else model.mlp_bias):
        return x
    op, bias = ("out_proj", "bo") if name == "attention" else ("down_proj", "bdown")
    b.weight(bias, layout.weight("D"))
    ranks = layout.mesh.size(layout.weights.get("F", ()))
    if ranks > 1:
        b.notes.append(f"bias {bias} of {op} is added once, after {x} is reduced; before, it would count {ranks} times")
    return b.op(Rule.BIAS, f"{op}_bias", (x,), f"{x}b", _TD, weights=(bias,), label=op)
