"""Both ends of the model: the vocabulary-parallel embedding, and the head with its loss or its logits."""

from __future__ import annotations

from commcalc.algebra.program import Builder, Program, Role, Rule
from commcalc.transformer.block import norm
from commcalc.transformer.dialects import Dialect
from commcalc.transformer.layout import Layout
from commcalc.transformer.spec import Model, Phase, Positions
from commcalc.transformer.work import Logits


def embedding_program(model: Model, layout: Layout) -> Program:
    """Token rows of the table ``E[V, D]``, learned positions added where the model has them.

    Rotary positions leave the rows to be reduced straight into the stream. Learned ones are added to whole rows, so
    under sequence parallelism the rows are reduced whole first and split after.
    Source: Megatron-LM models/common/embeddings/language_model_embedding.py, reduce_scatter_embeddings.
    """
    b = Builder("embedding", "embedding", layout.whole_sequences, layout.dealt)
    stream = layout.stream_of("T", "D")
    b.input("tokens", layout.whole("T"), Role.INDEX)
    b.weight("E", layout.weight("V", "D"))
    learned = model.position_embedding is Positions.LEARNED
    scattered = "D" in layout.stream  # whole rows are on no rank
    b.op(
        Rule.LOOKUP, "embedding", ("tokens",), "words" if learned or model.embedding_norm else "X", ("T", "D"),
        weights=("E",), over=("V",), kept=None if learned and not scattered else stream,
    )  # fmt: skip
    if model.embedding_norm:
        norm(b, model, layout, "embedding", "words", "X")
    if learned:
        b.weight("Wpos", layout.vector("P", "D"))
        b.op(Rule.BIAS, "positions", ("words",), "X", ("T", "D"), weights=("Wpos",), kept=stream, label="embedding")
    return b.program()


def head_program(
    model: Model, layout: Layout, phase: Phase, dialect: Dialect | None = None, logits_of: Logits = Logits.SAMPLED
) -> Program:
    """The final norm, the head, and then the loss (training) or whole logits to sample from (inference)."""
    dialect = dialect or Dialect()
    b = Builder("head", "head", layout.whole_sequences, layout.dealt)
    b.input("X", layout.stream_of("T", "D"))
    read = norm(b, model, layout, "final", "X", "A")
    rows = "T"
    if phase is Phase.PREFILL and logits_of is Logits.SAMPLED:  # only the last position of each sequence is sampled
        rows = "B"
        read = b.op(
            Rule.TAKE, "last_position", (read,), "last", ("B", "D"),
            label="lm_head", over=("T",), kept=layout.stream_of("B", "D"),
        )  # fmt: skip
    table = "E" if model.tie_word_embeddings else "Wlm"
    b.weight(table, layout.weight("V", "D"))
    logits = "logits_w" if model.lm_head_bias else "logits"
    whole = layout.whole(rows, "V") if dialect.gathers_logits else layout.scattered(rows, "V")
    kept = None if model.lm_head_bias and dialect.gathers_logits else whole
    b.op(Rule.CONTRACT, "lm_head", (read,), logits, (rows, "V"), weights=(table,), kept=kept)
    if model.lm_head_bias:
        b.weight("blm", layout.vector("V"))
        b.op(Rule.BIAS, "lm_head_bias", (logits,), "logits", (rows, "V"), weights=("blm",), label="lm_head", kept=whole)
    if phase.training:
        _loss(b, layout)
    else:
        b.op(Rule.NORM, "sample", ("logits",), "next", (rows,), label="logits", over=("V",))
    return b.program()


def _loss(b: Builder, layout: Layout) -> None:
    """Cross-entropy over split logits: three per-token reductions in fp32, the logits are never gathered.

    Source: Megatron-LM core/tensor_parallel/cross_entropy.py.
    """
    b.sublayer = "loss"
    t, tv = ("T",), ("T", "V")

    def reduce(name: str, source: str, output: str, differentiable: bool = True) -> None:
        b.op(
            Rule.REDUCE, name, (source,), output, t,
            role=Role.FP32, over=("V",), kept=layout.whole(*t), differentiable=differentiable,
        )  # fmt: skip

    reduce("max_logit", "logits", "top", differentiable=False)
    reduce("target_logit", "logits", "target")
    b.op(Rule.POINTWISE, "exp", ("logits", "top"), "exps", tv, role=Role.FP32)
    reduce("sum_exp", "exps", "total")
    b.op(Rule.POINTWISE, "cross_entropy", ("total", "target", "top"), "loss", t, role=Role.FP32)
