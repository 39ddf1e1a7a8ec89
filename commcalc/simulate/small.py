"""Models in small: about the smallest sizes at which everything divides, and as few layers as show every kind."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import lcm
from typing import Any

from commcalc.simulate.choices import sends_copies, with_every_choice
from commcalc.transformer.layers import attentions, ffns, layers_of
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Dispatch, Parallelism, Workload

LAYERS = 2
SEQUENCES = 2
# Of a step: one runs, and what the ledger adds up has all of them.
MICROBATCHES = 3
# A norm over a few elements divides by next to nothing now and then, and magnifies what was rounded before.
HEAD_DIM = 16
HIDDEN = 40
_LEAST_HEADS = 8
_LEAST_TOKENS = 8
_EXPERTS, _CHOICES = 8, 2
# KV heads for so many query heads: all, a half, a quarter, one.
_SHARED = {"mha": 1, "pairs": 2, "gqa": 4, "mqa": 0}


def sized(model: Model, tp: int, heads: str = "mha", keep: Iterable[str] = ()) -> Model:
    """``model`` with small sizes; heads that it gives, and what ``keep`` names, stay.

    ``heads`` says how KV heads are shared where the model gives no number. Of layers there is one of each kind, and
    one more of the kind that most are of, so that a sum that takes one kind for another shows.
    """
    kept = set(keep)
    count = model.num_attention_heads or lcm(_LEAST_HEADS, tp)
    shared = _SHARED[heads]
    small: dict[str, Any] = {
        "hidden_size": HIDDEN,
        "num_attention_heads": count,
        "num_key_value_heads": model.num_key_value_heads or (count // shared if shared else 1),
        "head_dim": HEAD_DIM,
        "intermediate_size": 3 * lcm(_LEAST_HEADS, tp),
        "vocab_size": 7 * lcm(_LEAST_HEADS, tp),
        "max_position_embeddings": tokens_for(tp),
    }
    small |= _of_experts(model, tp) | _of_heads(model)
    small = {key: size for key, size in small.items() if key not in kept or getattr(model, key) is None}
    made = model._replace(**small, quantization_group_size=1)
    if made.kv_lora_rank and "head_dim" not in kept:
        made = made._replace(head_dim=made.qk_nope_head_dim + made.qk_rope_head_dim)
    return made if "num_hidden_layers" in kept else _with_few_layers(made)


def _of_experts(model: Model, tp: int) -> dict[str, Any]:
    """Sizes of experts, where there are any; a token that goes to one of them still does."""
    if not model.num_experts:
        return {}
    columns = lcm(_LEAST_HEADS, tp)
    found = {
        "num_experts": min(model.num_experts, _EXPERTS),
        "num_experts_per_tok": min(model.num_experts_per_tok or 1, _CHOICES),
        "moe_intermediate_size": 2 * columns,
    }
    return found | ({"shared_expert_intermediate_size": columns} if model.shared_expert_intermediate_size else {})


def _of_heads(model: Model) -> dict[str, Any]:
    """Widths of latents and of the heads that some layers have; how many heads there are stays."""
    widths = {
        "q_lora_rank": 12,
        "kv_lora_rank": 10,
        "qk_nope_head_dim": HEAD_DIM,
        "qk_rope_head_dim": 8,
        "v_head_dim": 12,
        "global_head_dim": 20,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 12,
        "linear_conv_kernel_dim": 3,
    }
    return {key: size for key, size in widths.items() if getattr(model, key)}


def _with_few_layers(model: Model) -> Model:
    """One layer of each kind in the order in which they come, and one more of the usual; lists say which they are."""
    if model.num_hidden_layers is None:
        return model._replace(num_hidden_layers=LAYERS)
    layers = layers_of(model)
    chosen = [layers.kinds.index(kind) for kind in layers.names]
    usual = next(at for at, kind in enumerate(layers.kinds) if layers.names[kind] == layers.usual)
    chosen.append(usual)
    if len(layers.names) > 1 or model.layer_types or model.mlp_layer_types:
        model = model._replace(**_lists(model, chosen))
    return model._replace(num_hidden_layers=len(chosen))


def _lists(model: Model, chosen: list[int]) -> dict[str, Any]:
    """The words for the layers that were chosen, instead of rules; lists that say nothing stay empty."""
    words, kinds = attentions(model), ffns(model)
    found: dict[str, Any] = {"layer_types": tuple(str(words[at]) for at in chosen)}
    return found | ({"mlp_layer_types": tuple(str(kinds[at]) for at in chosen)} if model.num_experts else {})


def deepened(model: Model, layers: int) -> Model:
    """The model with at least so many layers, the last ones of the usual kind."""
    found = layers_of(model)
    more = layers - len(found.kinds)
    if more <= 0:
        return model
    usual = next(at for at, kind in enumerate(found.kinds) if found.names[kind] == found.usual)
    if len(found.names) > 1 or model.layer_types or model.mlp_layer_types:
        model = model._replace(**_lists(model, [*range(len(found.kinds)), *[usual] * more]))
    return model._replace(num_hidden_layers=layers)


def tokens_for(tp: int) -> int:
    """Tokens of a sequence that the TP degree splits."""
    return lcm(_LEAST_TOKENS, tp)


def roomy(work: Workload, model: Model, parallel: Parallelism) -> Workload:
    """``work`` with as many rows for each expert as there are tokens, so that none is left out.

    With a capacity of its own it stays as it is. Where every token goes to every expert these are all that there are;
    where tokens are sent once to a rank, there is one for each choice.
    """
    experts, chosen = model.num_experts or 1, model.num_experts_per_tok or 1
    if work.capacity_factor is not None:
        return work
    if sends_copies(parallel):
        return with_every_choice(work, model, parallel)
    if not parallel.moves_tokens or parallel.sends_tokens is not Dispatch.ALL_TO_ALL or experts == chosen:
        return work
    return work._replace(capacity_factor=Fraction(experts, chosen))


def worked(
    work: Workload, tp: int, sequence: int | None = None, sequences: int | None = None, rounds: int = 1, dp: int = 1
) -> Workload:
    """``work`` in small: two sequences of as few tokens as the degree splits, or as many as are asked for.

    A step has three microbatches on each of ``dp`` ranks, or three times ``rounds``.
    """
    many = sequences or SEQUENCES
    length = sequence or tokens_for(tp)
    step = MICROBATCHES * many * rounds * dp
    return work._replace(sequence_length=length, micro_batch_size=many, global_batch_size=step)
