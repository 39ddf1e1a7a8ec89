"""One transformer layer: norms, attention, MLP or experts, and residual adds, sequential or parallel."""

from __future__ import annotations

from commcalc.algebra.program import Builder, Program, Rule
from commcalc.algebra.sharding import Sharding
from commcalc.transformer.attention import attention
from commcalc.transformer.dialects import Dialect
from commcalc.transformer.layers import Ffn, Heads, Kind, layers_of
from commcalc.transformer.layout import Layout
from commcalc.transformer.mlp import Names, mlp
from commcalc.transformer.spec import Model, Norm, NormPlacement
from commcalc.transformer.work import Framework

_TD = ("T", "D")


def block_program(model: Model, layout: Layout, kind: Kind | None = None, dialect: Dialect | None = None) -> Program:
    """The chain of operations of one layer on the residual stream ``X[T, D]``; by default of the first layer."""
    b = Builder("block", data=layout.whole_sequences, gathered=layout.dealt)
    b.input("X", layout.stream_of(*_TD))
    add_block(b, model, layout, kind or layers_of(model).kinds[0], dialect or Dialect())
    return b.program()


def add_block(b: Builder, model: Model, layout: Layout, kind: Kind, dialect: Dialect) -> None:
    """Add one layer on ``X[T, D]``; its output is ``X'[T, D]``."""
    block = _Block(b, model, layout, kind, dialect)
    if model.parallel_block:
        block.parallel()
    else:
        block.sequential()


def norm(b: Builder, model: Model, layout: Layout, name: str, x: str, output: str, kept: Sharding | None = None) -> str:
    """Add a normalisation of ``x[T, D]`` over D with its weights; returns the output's name."""
    if "D" in layout.stream:
        from commcalc.transformer.two_axes import norm_by_sums

        return norm_by_sums(b, model, layout, name, x, output)
    weights = [b.weight(f"g_{name}", layout.vector("D"))]
    if model.norm is Norm.LAYERNORM:
        weights.append(b.weight(f"b_{name}", layout.vector("D")))
    function = "rmsnorm" if model.norm is Norm.RMSNORM else "layernorm"
    return b.op(
        Rule.NORM, f"{name}_norm", (x,), output, _TD,
        weights=tuple(weights), over=("D",), function=function, kept=kept,
    )  # fmt: skip


class _Block:
    """Writes one layer down."""

    def __init__(self, b: Builder, model: Model, layout: Layout, kind: Kind, dialect: Dialect) -> None:
        self.b, self.model, self.layout, self.kind, self.dialect = b, model, layout, kind, dialect
        self.stream = layout.stream_of(*_TD)
        # Where parts that every rank runs whole read the input beside those that are split.
        whole = layout.whole(*_TD) if dialect.whole_inputs else None
        self.whole = {
            "attention": whole if kind.heads is Heads.LATENT else None,
            "mlp": whole if kind.ffn is Ffn.SPARSE else None,
        }

    def sequential(self) -> None:
        """Attention, then the MLP or the experts, each added to the stream."""
        model, b = self.model, self.b
        before = model.norm_placement is not NormPlacement.POST
        after = model.norm_placement is not NormPlacement.PRE
        x, outer = "X", self.stream
        for name, inner, output in (("attention", "A", "R"), ("mlp", "M", "X'")):
            b.sublayer = "moe" if name == "mlp" and self.kind.ffn is Ffn.SPARSE else name
            read = norm(b, model, self.layout, name, x, inner, self.whole[name]) if before else x
            if name == "attention" and self.dialect.splits_tokens and self.kind.ffn is Ffn.SPARSE:
                self.stream = Sharding.of(_TD, {"T": self.layout.all_tokens})
                x = b.op(Rule.POINTWISE, "own_stream", (x,), "Xt", _TD, kept=self.stream, function="own_part")
            made = self.attention(read, self.stream) if name == "attention" else self.ffn(read, x)
            made = self.row_bias(made, name)
            if after:
                made = norm(b, model, self.layout, f"post_{name}", made, f"{made}n")
            kept = outer if name == "mlp" else self.stream
            x = b.op(Rule.ADD, f"{name}_residual", (x, made), output, _TD, label="residual", kept=kept)

    def parallel(self) -> None:
        """Both branches read the same stream; their partial sums are added, then reduced once, or one by one."""
        model, b = self.model, self.b
        kept = None if self.dialect.one_reduction else self.stream
        b.sublayer = "attention"
        read = norm(b, model, self.layout, "attention", "X", "A")
        self.attention(read, kept)
        b.sublayer = "mlp"
        if model.parallel_norms == 2:
            read = norm(b, model, self.layout, "mlp", "X", "M")
        self.dense(read, kept)
        b.sublayer = "attention + mlp"
        made = b.op(Rule.ADD, "branch_sum", ("Y", "P"), "S", _TD, label="out_proj + down_proj", kept=self.stream)
        for name in ("attention", "mlp"):
            made = self.row_bias(made, name)
        b.op(Rule.ADD, "residual", ("X", made), "X'", _TD, kept=self.stream)

    def attention(self, x: str, kept: Sharding | None) -> str:
        """The attention that layers of this kind have."""
        if self.kind.heads is Heads.LATENT:
            from commcalc.transformer.latent import latent_attention

            return latent_attention(self.b, self.model, self.layout, x, kept, self.dialect)
        if self.kind.heads is Heads.LINEAR:
            from commcalc.transformer.linear import linear_attention

            return linear_attention(self.b, self.model, self.layout, x, kept, self.dialect)
        return attention(self.b, self.model, self.layout, x, kept, self.dialect, self.kind)

    def dense(self, x: str, kept: Sharding | None) -> str:
        """The MLP that all tokens go through."""
        names = Names(biased=self.model.mlp_bias)
        return mlp(self.b, self.model, self.layout, x, kept, self.dialect, names)

    def ffn(self, x: str, residual: str) -> str:
        """MLP, or experts with what stands beside them; ``residual`` is the stream before the norm."""
        if self.kind.ffn is Ffn.DENSE:
            return self.dense(x, self.stream)
        from commcalc.transformer.moe import experts, shared_expert

        if self.model.dense_mlp_beside_moe:
            return self.beside(x, residual)
        if not self.model.shared_expert_intermediate_size:
            return experts(self.b, self.model, self.layout, x, x, self.stream, self.dialect)
        kept = self.stream if self.dialect.shared_apart else None
        routed = experts(self.b, self.model, self.layout, x, x, kept, self.dialect)
        shared = shared_expert(self.b, self.model, self.layout, x, kept, self.dialect)
        return self.b.op(
            Rule.ADD, "add_shared", (routed, shared), "P", _TD, label="experts + shared_down_proj", kept=self.stream
        )  # fmt: skip

    def beside(self, x: str, residual: str) -> str:
        """A dense MLP beside the experts, each between norms of its own, the router on the stream itself.

        Source: transformers 5.24.0 models/gemma4/modeling_gemma4.py, Gemma4TextDecoderLayer.
        """
        from commcalc.transformer.moe import experts

        b, model, layout = self.b, self.model, self.layout
        b.sublayer = "mlp"
        dense = norm(b, model, layout, "dense_branch", self.dense(x, self.stream), "Pn")
        b.sublayer = "moe"
        read = norm(b, model, layout, "experts", residual, "Me", self.whole["mlp"])
        routed = experts(b, model, layout, read, residual, self.stream, self.dialect)
        routed = norm(b, model, layout, "expert_branch", routed, "Pen")
        return b.op(Rule.ADD, "branch_sum", (dense, routed), "F", _TD)

    def row_bias(self, x: str, name: str) -> str:
        """The bias of a row-parallel output: a vector every rank holds, added once, after the reduction."""
        if name == "attention":
            biased = self.model.attention_output_bias and self.kind.heads in (Heads.OWN, Heads.GLOBAL, Heads.SLIDING)
        else:
            biased = self.model.mlp_bias and self.kind.ffn is Ffn.DENSE
        if not biased:
            return x
        b = self.b
        op, bias = ("out_proj", "bo") if name == "attention" else ("down_proj", "bdown")
        b.weight(bias, self.layout.vector("D"))
        ranks = self.layout.mesh.size(self.layout.weights.get("F", ()))
        if ranks > 1 and self.dialect.framework in (Framework.VLLM, Framework.SGLANG):
            b.notes.append(f"bias {bias} of {op} is added once, by one rank before {x} is reduced")
        elif ranks > 1:
            b.notes.append(
                f"bias {bias} of {op} is added once, after {x} is reduced; before, it would count {ranks} times"
            )
        return b.op(Rule.BIAS, f"{op}_bias", (x,), f"{x}b", _TD, weights=(bias,), label=op)
