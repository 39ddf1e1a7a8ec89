"""Activations: what one microbatch leaves behind in a block for its backward pass, under every mode of recomputation.

What is kept follows from the program (`algebra.saved`). The parts that no program has are the scores of attention
that is not fused, and masks of dropout. Sources: Korthikanti et al. 2022, arXiv:2205.05198, sections 4 and 5;
modules as in Megatron-LM's ``--recompute-modules`` (core/transformer/transformer_config.py: layernorm, moe_act and
mla_up_proj give up what they made, the others keep their output).
"""

from collections.abc import Collection
from typing import NamedTuple

from commcalc.accounting.draft import Draft, dtypes
from commcalc.accounting.programs import EMBEDDING, HEAD
from commcalc.algebra.collective import Kind
from commcalc.algebra.program import Op, Rule
from commcalc.algebra.saved import saved
from commcalc.algebra.schedule import FORWARD, Derivation, Placed, Value
from commcalc.algebra.sharding import Sharding
from commcalc.algebra.size import Product, Size
from commcalc.transformer.work import AttentionKernel, Dispatch, Framework, Module, Recompute

# They give up their output too, which is made again before it is read.
_DISCARD = (Module.LAYERNORM, Module.MOE_ACT, Module.MLA_UP_PROJ)


class Kept(NamedTuple):
    """Bytes of one program for one microbatch: kept until its backward pass, and all that derivatives read."""

    stored: int
    whole: int = 0
    # The tensors behind `stored`, for explanations.
    tensors: tuple[tuple[str, int], ...] = ()


def rows_as_chosen(draft: Draft) -> Draft:
    """The same with a row for each choice: however tokens travel, experts work on every choice."""
    if not draft.parallel.moves_tokens or draft.parallel.sends_tokens is not Dispatch.DEDUPLICATED:
        return draft
    return draft._replace(parallel=draft.parallel._replace(dispatch=Dispatch.ALL_TO_ALL))


def kept_by(draft: Draft) -> dict[str, Kept]:
    """What every program keeps; nothing outside of training."""
    draft = rows_as_chosen(draft)
    derivations = draft.programs.derivations
    if not draft.work.phase.training:
        return dict.fromkeys(derivations, Kept(0))
    return {name: _kept(draft, name, derivation) for name, derivation in derivations.items()}


def _kept(draft: Draft, name: str, derivation: Derivation) -> Kept:
    work = draft.work
    whole = _listed(draft, derivation, saved(derivation)) + _unnamed(draft, derivation)
    if name in (EMBEDDING, HEAD) or work.recompute is Recompute.NONE:
        return _sum(whole, whole)
    if work.recompute is Recompute.FULL:
        read = [Value(one, sharding) for one in derivation.program.inputs
                if (sharding := derivation.program.tensors[one].sharding) is not None]  # fmt: skip
        return _sum(_listed(draft, derivation, read), whole)
    again, discarded = run_again(draft, derivation)
    listed = _listed(draft, derivation, saved(derivation, again, discarded)) + _unnamed(draft, derivation, again)
    return _sum(listed, whole)


def run_again(draft: Draft, derivation: Derivation) -> tuple[set[str], set[str]]:
    """Operations of a block that run a second time, and those of them that keep nothing they make."""
    work = draft.work
    every = [placed.op for placed in derivation.placed if placed.op.differentiable]
    if work.recompute is Recompute.NONE or not work.phase.training:
        return set(), set()
    if work.recompute is Recompute.FULL:
        names = {op.name for op in every}
        if draft.programs.dialect.stops_early:  # its last product is not needed again
            last = next((op.name for op in reversed(every) if op.rule in (Rule.CONTRACT, Rule.ROUTE)), None)
            names -= {last} if last else set()
        return names, names
    if draft.programs.dialect.framework is Framework.TORCHTITAN:
        names = {op.name for op in every} - _saved_by_torchtitan(derivation)
        return names, names
    modules = work.recompute_modules
    latent = bool(draft.model.kv_lora_rank)
    again = {op.name for op in every for module in modules if of_module(module, op, latent=latent)}
    discarded = {
        op.name for op in every for module in modules if module in _DISCARD and of_module(module, op, latent=latent)
    }
    return again, discarded


def _saved_by_torchtitan(derivation: Derivation) -> set[str]:
    """Every second product, attention, and what was scattered.

    Source: torchtitan distributed/activation_checkpoint.py, selective "op": mm, attention and reduce_scatter_tensor are
    saved, save for every second mm.
    """
    products = [one.op.name for one in derivation.placed if one.op.rule is Rule.CONTRACT]
    scattered = {event.tensor for event in derivation.steps(FORWARD) if event.step.kind is Kind.REDUCE_SCATTER}
    makers = {one.op.name for one in derivation.placed if one.op.output in scattered}
    return {*products[::2], *makers, *(one.op.name for one in derivation.placed if one.op.rule is Rule.ATTEND)}


def of_module(module: Module, op: Op, *, latent: bool) -> bool:
    """Whether an operation belongs to a module that can be recomputed; ``latent``: attention has latents.

    The norm before a linear layer is one kernel with it, save for those before experts and latents. Source: Megatron-LM
    core/models/gpt/gpt_layer_specs.py, get_gpt_layer_with_transformer_engine_spec.
    """
    inner = op.label != "residual"
    return {
        Module.CORE_ATTN: op.rule in (Rule.ATTEND, Rule.SCAN),
        Module.LAYERNORM: (op.name == "mlp_norm" and op.sublayer == "moe") or (op.name == "attention_norm" and latent),
        Module.MOE_ACT: op.name == "expert_activation" or (op.name == "weigh_rows" and op.inputs[0] == "Ze"),
        Module.MLP: op.sublayer == "mlp" and inner,
        Module.MOE: op.sublayer == "moe" and inner and op.name != "mlp_norm",
        Module.SHARED_EXPERTS: op.label.startswith("shared_"),
        Module.MLA_UP_PROJ: op.label in ("q_b_proj", "kv_b_proj", "q_a_norm", "kv_a_norm"),
    }[module]


def _sum(listed: list[tuple[str, int]], whole: list[tuple[str, int]]) -> Kept:
    return Kept(sum(size for _, size in listed), sum(size for _, size in whole), tuple(listed))


def _listed(draft: Draft, derivation: Derivation, values: Collection[Value]) -> list[tuple[str, int]]:
    """Tensors with the bytes that one device keeps of each."""
    types, tensors = dtypes(draft.work), derivation.program.tensors
    return [
        (value.name, draft.own(value.sharding.local_size(types[tensors[value.name].role].bits)).value(draft.sizes))
        for value in values
    ]


def _unnamed(draft: Draft, derivation: Derivation, again: Collection[str] = ()) -> list[tuple[str, int]]:
    """What no tensor of the program is: scores that are not fused away, masks of dropout (a byte an element), copies.

    Tokens are copied for each of their choices, and a rotary key for each head (Megatron-LM
    core/transformer/moe/token_dispatcher.py and multi_latent_attention.py).
    """
    work, sizes, found = draft.work, draft.sizes, list[tuple[str, int]]()
    modules = set(work.recompute_modules)
    for placed in derivation.placed:
        copied = _copied(placed)
        if copied is not None and not set(_COPIERS.get(placed.op.function, ())) & (modules if again else set()):
            found.append((copied[0], draft.own(copied[1].local_size(work.dtype.bits)).value(sizes)))
    for placed in derivation.placed if work.attention is AttentionKernel.UNFUSED else ():
        if placed.op.rule is not Rule.ATTEND or placed.op.name in again:
            continue
        queries = placed.inputs[0]
        axes = tuple(axis for split in queries.split for axis in split)
        pairs = Size((Product(work.sequence_length, queries.dims[:2], axes),), work.dtype.bits)
        scores = draft.own(pairs).value(sizes)
        found.append(("softmax", scores))
        if work.dropout:
            mask = draft.own(pairs._replace(bits=8)).value(sizes)
            found += [("softmax_mask", mask), ("softmax_dropped", scores)]
    if work.dropout:
        stream = draft.programs.layout.stream_of("T", "D")
        mask = draft.own(stream.local_size(8)).value(sizes)
        found += [("dropout_mask", mask) for one in derivation.placed if one.op.label == "residual"
                  or (one.op.rule is Rule.LOOKUP and one.op.sublayer == "embedding")]  # fmt: skip
    return found


# Modules that make the copies again.
_COPIERS = {"latent_attention": (Module.MLA_UP_PROJ,), "expert": (Module.MOE,)}


def _copied(placed: Placed) -> tuple[str, Sharding] | None:
    """A tensor that an operation first makes of what it is given: rows by choice, keys with their rotary part."""
    op, dims = placed.op, placed.inputs[0].dims
    if op.function == "latent_attention":
        return "K", placed.inputs[0]
    if op.rule is Rule.ROUTE and "C" not in dims and op.name == "expert_up_proj":
        rows = (dims[0], "C", dims[1])
        return "Xe", Sharding.of(rows, {dim: placed.inputs[0].axes_of(dim) for dim in rows})
    return None
