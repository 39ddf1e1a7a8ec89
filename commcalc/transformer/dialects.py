"""How each framework runs a model: where inputs are brought, gradients reduced, and what is gathered whole.

A dialect is a set of policies that the programs and the derivation read; none of them names a collective. What a
framework refuses, pads or splits unevenly stands in `transformer.frameworks`.

Sources, read or run: Megatron-LM core 0.20.0, Transformer Engine, torchtitan, transformers 5.24.0 (counts measured on
gloo), vLLM 0.33.0, SGLang 0.5.23.
"""

from typing import NamedTuple

from commcalc.transformer.frameworks import HABITS
from commcalc.transformer.layout import ATTENTION_DIMS, EXPERT_DIMS, LayoutName
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Dispatch, Framework, Parallelism


class Dialect(NamedTuple):
    """The policies of one framework for one model on one layout."""

    framework: Framework = Framework.MEGATRON
    source: str = ""
    # Every linear layer brings its input for itself and reduces that input's gradient for itself.
    apart: bool = False
    # Q, K and V are one linear layer also where others are run apart.
    fused_qkv: bool = True
    # The outputs of Q, K and V are gathered whole, and each rank takes its part of attention's output again; those of
    # gate and up too where these are fused with one another.
    gathers_qkv: bool = False
    gathers_gate_up: bool = False
    gathers_linear_attention: bool = False
    # Projections of linear attention that are one layer each, by the letters of what they make.
    linear_projections: tuple[str, ...] = ("qkv", "z", "b", "a")
    # Dimensions along which weights stay whole on every rank.
    whole: tuple[str, ...] = ()
    # Under sequence parallelism the input of attention and of the experts is gathered before anything reads it.
    whole_inputs: bool = False
    # Queries and keys normalised over all heads: sums of squares are reduced, nothing is gathered.
    reduces_squares: bool = True
    # Routing under sequence parallelism: a probability for every expert is gathered, not one for each choice.
    dense_routing: bool = False
    # The gradient of the routing weights goes back through the router as a pending sum.
    partial_routing: bool = False
    # Routing weights stay in fp32, and so do their gradients.
    routing_fp32: bool = False
    # Every expert works on every token.
    every_expert: bool = False
    # How tokens reach experts that lie on ranks of their own, and whether their routing weights go with them.
    dispatch: Dispatch | None = None
    sends_routing: bool = False
    # Between attention and the end of a layer with experts, the stream is split by tokens over TP.
    splits_tokens: bool = False
    # Every expert gets as many rows from every rank: nobody has to ask how many.
    pads_rows: bool = False
    # What joins the stream and the next token's embedding in a prediction layer is whole on every rank.
    whole_join: bool = False
    # The shared expert is reduced for itself, the routed ones bring their input for themselves.
    shared_apart: bool = False
    # Both branches of a parallel block are added before they are reduced.
    one_reduction: bool = True
    # Gradients of the norms of heads, which ranks share, are reduced in every backward pass, not once per step.
    syncs_head_norms: bool = False
    # Training gathers the logits; without it the loss is computed on split ones.
    gathers_logits: bool = False
    # Recomputing a layer stops before its last collective.
    stops_early: bool = False

    def linear(self, name: str, fused: str, qkv: bool = False) -> tuple[str, str]:
        """Label and module of the linear layer ``name``, which is part of ``fused`` where the framework fuses them."""
        if self.apart and not (qkv and self.fused_qkv):
            return name, name
        return fused, fused if self.apart else ""

    def module(self, name: str) -> str:
        """The module of operations that bring their input for themselves where the shared expert does."""
        return name if self.shared_apart or self.apart else ""


# Families of transformers whose QKV is one linear layer that splits by heads (models/*/configuration_*.py, tp plans).
_HF_FUSED = frozenset({"gpt_neox"})
# Those whose plan names the norms of heads, and those whose router casts its weights back to the activations' type.
_HF_HEAD_NORMS = frozenset({"qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe", "gemma3", "gemma4"})
_HF_ROUTING_CAST = frozenset({"qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5_moe", "olmoe", "flex_olmo", "gpt_oss"})
# What plans leave out: a shared expert, layers of linear attention.
_HF_WHOLE = {("qwen2_moe",): ("S",), ("minimax",): ("NK", "NV")}
_SOURCES = {
    Framework.MEGATRON: "Megatron-LM core 0.20.0 and Transformer Engine",
    Framework.TORCHTITAN: "torchtitan's parallel plans",
    Framework.HF: "the tp_plan of transformers 5.24.0",
    Framework.VLLM: "vLLM 0.33.0",
    Framework.SGLANG: "SGLang 0.5.23, where not examined taken as vLLM",
}
# Families whose parallel block vLLM reduces twice.
_VLLM_TWICE = frozenset({"gptj"})


def dialect_of(model: Model, parallel: Parallelism) -> Dialect:
    """The policies of the framework that was named; of Megatron where none was.

    Where a token goes once to a rank, its results are summed there: the rank must have its routing weights, whatever
    the framework (DeepEP, dispatch with topk_weights: torchtitan distributed/deepep, vLLM deepep_high_throughput).
    """
    found = _dialect_of(model, parallel)
    return found._replace(sends_routing=found.sends_routing or found.dispatch is Dispatch.DEDUPLICATED)


def _dialect_of(model: Model, parallel: Parallelism) -> Dialect:
    framework = parallel.framework or Framework.MEGATRON
    split = parallel.layout is LayoutName.MEGATRON_SP
    found = Dialect(framework, _SOURCES[framework], dispatch=parallel.sends_tokens if parallel.moves_tokens else None)
    if framework is Framework.MEGATRON:
        gathers = found.dispatch is Dispatch.ALL_GATHER
        return found._replace(dense_routing=split or gathers, shared_apart=True, sends_routing=True)
    if framework is Framework.TORCHTITAN:
        return found._replace(whole_inputs=split, partial_routing=True, whole_join=True)
    if framework is Framework.HF:
        return _transformers(found, model)
    # vllm config/parallel.py, use_sequence_parallel_moe: then every rank runs the shared expert whole.
    splits = parallel.ep > 1 and parallel.tp > 1 and parallel.dp > 1
    return found._replace(
        one_reduction=model.family not in _VLLM_TWICE, splits_tokens=splits, shared_apart=splits,
        whole=("S",) if splits else (),
    )  # fmt: skip


def _transformers(found: Dialect, model: Model) -> Dialect:
    """What the tp_plan of a family splits, gathers and leaves whole."""
    habits = HABITS[Framework.HF]
    whole = [dim for families, dims in _HF_WHOLE.items() if model.family in families for dim in dims]
    whole += ATTENTION_DIMS if model.family in habits.whole_attention else ()
    whole += EXPERT_DIMS if model.family in habits.whole_experts else ()
    gathers = model.family in habits.gathered_attention
    return found._replace(
        apart=True,
        fused_qkv=model.family in _HF_FUSED or (gathers and model.family in habits.fused_projections),
        gathers_qkv=gathers,
        gathers_gate_up=model.family in habits.fused_projections,
        gathers_linear_attention=True,
        linear_projections=("qkvz", "ba") if model.family == "qwen3_next" else found.linear_projections,
        whole=tuple(whole),
        reduces_squares=not gathers,
        shared_apart=True,
        one_reduction=False,
        routing_fp32=model.family not in _HF_ROUTING_CAST,
        every_expert=model.family == "llama4",
        syncs_head_norms=model.family in _HF_HEAD_NORMS,
        gathers_logits=True,
        stops_early=True,
    )
