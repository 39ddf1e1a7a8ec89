"""A layer that predicts a further token: the stream and the next token's embedding, joined, through one more block.

Source: DeepSeek-V3, arXiv:2412.19437, section 2.2; split as in Megatron-LM
core/transformer/multi_token_prediction.py: the joining projection is column-parallel, its output gathered and, under
sequence parallelism, split again. Embedding and head are those of the model, run once more.
"""

from __future__ import annotations

from commcalc.algebra.program import Builder, Program, Rule
from commcalc.transformer.block import add_block, norm
from commcalc.transformer.dialects import Dialect
from commcalc.transformer.layers import Kind
from commcalc.transformer.layout import Layout
from commcalc.transformer.spec import Model

_TD = ("T", "D")


def prediction_program(model: Model, layout: Layout, kind: Kind, dialect: Dialect) -> Program:
    """Norms of both inputs, the projection of both together, a block on its result, and a last norm of its own."""
    b = Builder("prediction", "prediction", layout.data)
    stream = layout.stream_of(*_TD)
    for name in ("X0", "next"):
        b.input(name, stream)
    reads = tuple(norm(b, model, layout, low, name, f"A_{low}") for low, name in (("stream", "X0"), ("token", "next")))
    b.op(Rule.POINTWISE, "join", reads, "both", ("T", "D2"), label="eh_proj")
    if dialect.whole_join:  # on the tokens that a rank has
        b.weight("Wjoin", layout.weight("D2", "D"))
        b.op(Rule.CONTRACT, "eh_proj", ("both",), "X", _TD, weights=("Wjoin",), kept=stream)
    else:
        columns = ("T", "DO")
        b.weight("Wjoin", layout.weight("D2", "DO"))
        b.op(Rule.CONTRACT, "eh_proj", ("both",), "J", columns, weights=("Wjoin",), kept=layout.whole(*columns))
        b.op(Rule.POINTWISE, "rename", ("J",), "X", _TD, label="eh_proj", function="flatten", kept=stream)
    add_block(b, model, layout, kind, dialect)
    b.sublayer = "prediction"
    norm(b, model, layout, "prediction", "X'", "predicted")
    return b.program()
