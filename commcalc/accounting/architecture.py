"""What is to be said of a model's parts and of how its framework runs them, in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator

from commcalc.accounting.programs import Programs
from commcalc.transformer.dialects import Dialect
from commcalc.transformer.layers import Attention, Ffn, Heads, attentions
from commcalc.transformer.layout import LayoutName
from commcalc.transformer.spec import LinearAttention, Model, QkNorm
from commcalc.transformer.work import Dispatch, Framework, Parallelism, Workload, copies_of_a_token


def architecture_notes(model: Model, parallel: Parallelism, work: Workload, programs: Programs) -> list[str]:
    """The layers by kind, and how each part is split."""
    said = [*_of_layers(model, programs)]
    if programs.layout.moves_tokens:
        said += _of_dispatch(model, parallel, work, programs.dialect)
    if parallel.tp == 1 or parallel.layout is LayoutName.NONE:
        return said
    if parallel.layout.own:
        from commcalc.accounting.layout_notes import layout_notes

        return [*said, *layout_notes(model, parallel, work)]
    return [*said, *_of_dialect(model, work, programs), *_of_parts(model, parallel, work, programs)]


def _of_layers(model: Model, programs: Programs) -> Iterator[str]:
    layers = programs.layers
    if len(layers.names) > 1:
        counts = ", ".join(f"{count} {name}" for name, count in layers.counted().items())
        yield f"layers differ: {counts}; a block without a kind is the {layers.usual} one"
    near = [one for one in attentions(model) if one in (Attention.SLIDING, Attention.CHUNKED)]
    if near:
        what = (
            f"a window of {model.sliding_window}" if model.sliding_window else f"chunks of {model.attention_chunk_size}"
        )
        yield (
            f"{len(near)} of {model.num_hidden_layers} layers attend within {what} tokens; "
            "what TP moves does not depend on it"
        )


def _of_dialect(model: Model, work: Workload, programs: Programs) -> Iterator[str]:
    """Policies that change how often something is moved."""
    dialect = programs.dialect
    if dialect.apart and work.phase.training:
        yield "every column-parallel linear layer reduces the gradient of its input for itself"
    if dialect.gathers_qkv:
        yield "queries, keys and values are gathered whole, and attention runs on all heads on every rank"
    if dialect.gathers_logits:
        yield "logits are gathered whole" + (", and the loss is computed on them" if work.phase.training else "")
    if dialect.whole:
        parts = [part for part, dim in (("attention", "N"), ("experts", "M")) if dim in dialect.whole]
        yield f"the tp_plan of {model.family} leaves {' and '.join(parts)} whole on every rank"
    if dialect.syncs_head_norms and model.qk_norm is QkNorm.HEAD_DIM and work.phase.training:
        yield "gradients of the norms of heads, which ranks share, are reduced in every backward pass"
    if model.parallel_block:
        once = "both branches' partial sums are added and reduced once, as vLLM and PaLM do"
        core = " (Megatron core has no parallel block)" if dialect.framework is Framework.MEGATRON else ""
        yield f"parallel block: {once + core if dialect.one_reduction else 'each branch is reduced for itself'}"


def _of_parts(model: Model, parallel: Parallelism, work: Workload, programs: Programs) -> Iterator[str]:
    dialect, split = programs.dialect, parallel.layout is LayoutName.MEGATRON_SP
    kinds = {kind.heads for kind in programs.layers.names}
    sparse = any(kind.ffn is Ffn.SPARSE for kind in programs.layers.names)
    if dialect.every_expert and sparse:
        yield "every expert works on every token, so what is reduced has a row for each pair (Llama4TextMoe)"
    elif sparse and "M" not in dialect.whole and not parallel.moves_tokens:
        yield (
            f"experts are split by their width over {parallel.tp} TP ranks, without expert parallelism; what the "
            "chosen ones say is summed before it is reduced, so bytes do not grow with the number of choices"
        )
        if dialect.dense_routing:
            yield (
                "tokens reach the experts by Megatron's default dispatcher (allgather): probabilities of all experts "
                "are gathered in the activations' type, a map of them at one byte each"
            )
        if dialect.framework is Framework.MEGATRON and work.phase.training:
            yield "not counted: tokens of each expert and auxiliary losses, a few values a layer"
        if model.shared_expert_intermediate_size:
            apart = "for itself" if dialect.shared_apart else "together with the routed ones"
            yield f"the shared expert is reduced {apart}"
    if Heads.LATENT in kinds and "N" not in dialect.whole:
        where = "on the whole gathered input" if dialect.whole_inputs else "on the tokens that it has"
        yield f"latent attention: every rank runs the down projections and the latents' norms {where}"
        if dialect.whole_inputs and work.phase.training:
            yield "gradients of latents are reduced before their norms, as DTensor does with pending sums"
        if work.phase.training and not split and dialect.framework is Framework.MEGATRON:
            yield "the gradient of the rotary key is summed over ranks; Megatron-LM without SP was not seen to do so"
    if Heads.LINEAR in kinds:
        if dialect.gathers_linear_attention and model.linear_attention is LinearAttention.GATED_DELTA_NET:
            yield "linear attention: projections are split by columns and gathered, every rank runs all heads"
        else:
            yield "linear attention is split by heads, with one reduction behind it"
    if model.qk_norm is QkNorm.FULL_WIDTH and dialect.reduces_squares:
        yield "norms over all heads: sums of squares of queries and keys are reduced in one call in fp32 (vLLM)"
    if parallel.framework in (Framework.HF, Framework.TORCHTITAN):
        yield "columns and rows that do not divide are dealt out as ceil(n/t); gathers count the padded size"


def _of_dispatch(model: Model, parallel: Parallelism, work: Workload, dialect: Dialect) -> Iterator[str]:
    """How tokens reach experts on ranks of their own, and how many rows that makes."""
    experts, ep, etp = model.num_experts or 0, parallel.ep, parallel.expert_tp
    edp = parallel.tp * parallel.cp * parallel.dp // (ep * etp)
    each = "each on one rank" if etp == 1 else f"each split over {etp} ranks (etp)"
    yield f"{experts // ep} of {experts} experts on a rank, {each}, in {edp} {'copy' if edp == 1 else 'copies'} (edp)"
    if dialect.dispatch is Dispatch.ALL_GATHER:
        yield "every rank of an expert group gets all its tokens; what experts say is summed over the group"
        if not dialect.dense_routing:
            width = 4 if parallel.framework in (Framework.VLLM, Framework.SGLANG) else 8
            yield f"with every token go the numbers of its choices, {width} bytes each, and what each counts in fp32"
    elif dialect.dispatch is Dispatch.DEDUPLICATED:
        copies = copies_of_a_token(experts, model.num_experts_per_tok or 1, parallel)
        ranks, nodes = float(copies["copies"]), float(copies["node_copies"])
        width = 4 if parallel.ep_nodes > 1 else 8
        yield f"a token goes once to each rank that holds a chosen expert: {ranks:.4g} on average over all choices"
        yield f"with every copy go the numbers of its choices, {width} bytes each, and what each counts in fp32"
        if parallel.ep_nodes > 1:
            limit = parallel.node_limit or parallel.ep_nodes
            where = f"of at most {limit} of {parallel.ep_nodes} nodes"
            yield f"it goes to nodes first, {nodes:.4g} {where}, and from there to the ranks of the node"
    else:
        yield "a token goes once for each choice; a rank's own copies count in the payload and are not on the wire"
    if work.capacity_factor is not None:
        rows = f"{float(work.capacity_factor):g} times the average"
        yield f"every expert takes the same number of rows from every rank, {rows}; what is beyond is dropped"
    elif dialect.dispatch is not Dispatch.ALL_GATHER:
        even = f"the busiest rank gets {float(work.imbalance):g} times the average" if work.imbalance != 1 else "even"
        yield f"choices of experts: {even}"
    if dialect.framework is Framework.MEGATRON and work.phase.training:
        yield "not counted: auxiliary losses and the bias of the router, a few values a layer"
