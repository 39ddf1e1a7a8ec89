"""What the values of one model say against each other; each is told with ``model.KEY`` as its place."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterator
from itertools import chain

from commcalc.errors import CommcalcError, SpecError
from commcalc.transformer.layers import Attention, Ffn, attentions, count_of, ffns
from commcalc.transformer.layers import contradictions as of_layers
from commcalc.transformer.spec import LinearAttention, Model, NormPlacement

# A part of a model by the size that says it is there, and the sizes that it cannot be without.
_PARTS = {
    "num_experts": ("num_experts_per_tok", "moe_intermediate_size"),
    "num_experts_per_tok": ("num_experts",),
    "kv_lora_rank": ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    "index_n_heads": ("index_head_dim", "index_layers"),
    "index_head_dim": ("index_n_heads",),
    "index_layers": ("index_n_heads", "index_head_dim"),
    "linear_num_value_heads": ("linear_num_key_heads", "linear_key_head_dim", "linear_value_head_dim"),
    "global_head_dim": ("global_num_key_value_heads",),
    "global_num_key_value_heads": ("global_head_dim",),
}
# A part, and the keys that mean nothing where it is not. ``v_head_dim`` is none of them: heads without a latent may
# have values of another width than their keys.
_MEAN_NOTHING_WITHOUT = {
    "num_experts": (
        "moe_intermediate_size", "shared_expert_intermediate_size", "shared_expert_gate", "router_bias",
        "router_scales", "expert_bias", "dense_mlp_beside_moe", "first_k_dense_replace", "interleave_moe_layer_step",
    ),
    "shared_expert_intermediate_size": ("shared_expert_gate",),
    "kv_lora_rank": ("q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"),
    "linear_num_value_heads": (
        "linear_num_key_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim",
        "linear_attention",
    ),
    "global_head_dim": ("global_keys_are_values",),
    "attention_sinks": ("sinks_in_sliding_only",),
}  # fmt: skip
# Parts of other attention, which the program of latent attention (`transformer.latent`) does not have.
_NOT_LATENT = (
    "attention_bias", "attention_output_bias", "qk_norm", "attention_output_gate", "attention_sinks",
    "sliding_num_key_value_heads", "global_num_key_value_heads", "global_head_dim", "global_keys_are_values",
)  # fmt: skip
# Layers that attend in a way of their own, and the size that says how.
_WINDOWS = {
    Attention.SLIDING: "sliding_window",
    Attention.CHUNKED: "attention_chunk_size",
    Attention.LINEAR: "linear_num_value_heads",
}
_LIMITED = {Attention.SLIDING, Attention.CHUNKED}
# Sizes of layers that attend in one of these ways, and what is said where none does.
_OF_LAYERS = {
    "sliding_window": ({Attention.SLIDING}, "slides"),
    "attention_chunk_size": ({Attention.CHUNKED}, "looks into chunks"),
    "sliding_num_key_value_heads": (_LIMITED, "slides"),
    "global_num_key_value_heads": ({Attention.FULL}, "attends to all tokens"),
    "global_head_dim": ({Attention.FULL}, "attends to all tokens"),
    "linear_num_value_heads": ({Attention.LINEAR}, "is of linear attention"),
}
# What decides which layers there are; where one of these cannot be read, nothing is said of single layers.
_SAY_HOW_LAYERS_ATTEND = {"layer_types", "full_attention_interval", *_WINDOWS.values()}
_RULES = ("first_k_dense_replace", "interleave_moe_layer_step")
_SAY_WHICH_ARE_SPARSE = {"mlp_layer_types", *_RULES}


def contradictions(
    model: Model, moe_layers: int | None = None, given: Container[str] = (), unread: Collection[str] = ()
) -> list[CommcalcError]:
    """Everything that cannot be, found together; ``moe_layers`` is the count that the model's file gives.

    ``given`` are the keys that have a value, ``unread`` those whose value cannot be read: what speaks of one of these
    would only repeat that. Lists of layers hold known words only, as `catalog.fields` reads them.
    """
    told = [_heads(model), _blocks(model), _parts(model), _latent(model), _of_layers(model)]
    if not _SAY_HOW_LAYERS_ATTEND & set(unread):
        told += [_attentions(model), _interval(model)]
    if not _SAY_WHICH_ARE_SPARSE & set(unread):
        told += [_sparse(model, given), _count(model, moe_layers)]
    told.append(_counts(model, moe_layers))
    return [one for one in chain.from_iterable(told) if not set(re.findall(r"\w+", one.message)) & set(unread)]


def says_which_are_sparse(given: Container[str]) -> bool:
    """Whether these keys say which layers hold experts, by a list or a rule."""
    return any(key in given for key in ("mlp_layer_types", *_RULES))


def _heads(model: Model) -> Iterator[CommcalcError]:
    heads, hidden = model.num_attention_heads, model.hidden_size
    latent = bool(model.kv_lora_rank)  # has no KV heads: every head is made from the one latent
    for key in () if latent else ("num_key_value_heads", "sliding_num_key_value_heads", "global_num_key_value_heads"):
        kv = getattr(model, key)
        if heads and kv and heads % kv:
            message = f"num_attention_heads {heads} mod {key} {kv} = {heads % kv}"
            yield _told(key, f"{message}: each KV head serves equally many query heads")
    if model.head_dim is None and heads and hidden is not None:
        message = f"hidden_size {hidden} mod num_attention_heads {heads} = {hidden % heads}"
        yield _told("num_attention_heads", f"{message}, and head_dim is not given", "give head_dim")
    keys, values = model.linear_num_key_heads, model.linear_num_value_heads
    if keys and values % keys:
        message = f"linear_num_value_heads {values} mod linear_num_key_heads {keys} = {values % keys}"
        yield _told("linear_num_value_heads", f"{message}: each key head serves equally many value heads")
    width = model.qk_nope_head_dim + model.qk_rope_head_dim
    if latent and model.head_dim != width:
        message = f"head_dim {model.head_dim} is not qk_nope_head_dim + qk_rope_head_dim = {width}"
        yield _told("head_dim", message, "leave head_dim out: with latent attention it follows")


def _blocks(model: Model) -> Iterator[CommcalcError]:
    if model.parallel_block and model.norm_placement is not NormPlacement.PRE:
        message = f"a parallel block has no {model.norm_placement} norms"
        yield _told("norm_placement", message, "norm_placement: pre")
    if model.parallel_norms == 2 and not model.parallel_block:
        yield _told("parallel_norms", "parallel_norms 2 without parallel_block", "parallel_block: true")
    if model.parallel_norms not in (1, 2):
        yield _told("parallel_norms", f"parallel_norms {model.parallel_norms} is neither 1 nor 2")


def _parts(model: Model) -> Iterator[CommcalcError]:
    """Parts of which a size is missing, keys of parts that are not there, and more experts a token than there are."""
    for part, needed in _PARTS.items():
        for key in needed:
            if _has(model, part) and not _has(model, key):
                yield _told(part, f"{_shown(model, part)} without {key}", f"add {key}")
    for part, keys in _MEAN_NOTHING_WITHOUT.items():
        for key in keys:
            if _has(model, key) and not _has(model, part):
                yield _told(key, f"{_shown(model, key)} without {part}", f"add {part}, or leave {key} out")
    experts, top_k = model.num_experts, model.num_experts_per_tok
    if experts and top_k > experts:
        message = f"num_experts_per_tok {top_k} is above num_experts {experts}"
        yield _told("num_experts_per_tok", message, "a token goes to each of its experts once")
    convolves = model.linear_attention is LinearAttention.GATED_DELTA_NET
    if model.linear_num_value_heads and convolves and not model.linear_conv_kernel_dim:
        message = "a gated delta net without linear_conv_kernel_dim"
        yield _told("linear_num_value_heads", message, "add linear_conv_kernel_dim")


def _latent(model: Model) -> Iterator[CommcalcError]:
    """Parts that latent attention has not."""
    for key in _NOT_LATENT if model.kv_lora_rank else ():
        if _has(model, key):
            message = f"{_shown(model, key)} with kv_lora_rank {model.kv_lora_rank}: latent attention has no such part"
            yield _told(key, message, f"leave {key} out")


def _of_layers(model: Model) -> Iterator[CommcalcError]:
    """What lists and rules say against the number of layers, with the way out for a model that was made shorter."""
    for problem in of_layers(model):
        if problem.where == "model.first_k_dense_replace" and problem.hint is None:
            problem.hint = f"--set model.first_k_dense_replace={max((model.num_hidden_layers or 0) - 1, 0)}"
        yield problem


def _attentions(model: Model) -> Iterator[CommcalcError]:
    """Layers without the size that says how they attend, and sizes of layers that are not there."""
    there = _possible(model)
    for attention, key in _WINDOWS.items():
        if attention in there and not getattr(model, key):
            yield _told("layer_types", f"layers of {attention} without {key}", f"add {key}")
    for key, (kinds, what) in _OF_LAYERS.items():
        if _has(model, key) and not kinds & there:
            yield _told(key, f"{_shown(model, key)}, but no layer {what}", f"leave {key} out")


def _possible(model: Model) -> set[Attention]:
    """How layers attend by the list, or by the rule at any depth: a model may be made shorter than its period."""
    if model.layer_types:
        return {Attention(word) for word in model.layer_types}
    every = min(model.full_attention_interval, 2)
    return set(attentions(model._replace(num_hidden_layers=2, full_attention_interval=every)))


def _interval(model: Model) -> Iterator[CommcalcError]:
    """A rule of full attention against the list, or beside no other attention."""
    every, words = model.full_attention_interval, model.layer_types
    if not every:
        return
    if words and len(words) == model.num_hidden_layers:
        for at, word in enumerate(words):
            if (word == Attention.FULL) != ((at + 1) % every == 0):
                message = f"layer_types and full_attention_interval {every} differ: layer {at} is of {word} in the list"
                yield _told("layer_types", message, "leave one of them out")
                return
    if not words and not any(getattr(model, key) for key in _WINDOWS.values()):
        others = "sliding_window, attention_chunk_size or linear_num_value_heads"
        message = f"full_attention_interval {every} without {others}: all layers attend to all tokens"
        yield _told("full_attention_interval", message, "leave it out")


def _sparse(model: Model, given: Container[str]) -> Iterator[CommcalcError]:
    """A list of layers with experts against the rule, or where there are no experts."""
    words = model.mlp_layer_types
    if Ffn.SPARSE in words and not model.num_experts:
        yield _told("mlp_layer_types", "mlp_layer_types has sparse layers, without num_experts", "add num_experts")
    rules = [key for key in _RULES if key in given]
    if not words or not rules or not model.num_experts or len(words) != model.num_hidden_layers:
        return
    for at, (listed, ruled) in enumerate(zip(words, ffns(model._replace(mlp_layer_types=())), strict=True)):
        if listed != ruled:
            rule = " and ".join(_shown(model, key) for key in rules)
            message = f"mlp_layer_types and {rule} differ: layer {at} is {listed} in the list"
            yield _told("mlp_layer_types", message, "leave the list out, or the rule")
            return


def _counts(model: Model, moe_layers: int | None) -> Iterator[CommcalcError]:
    """Numbers of layers above those there are."""
    layers = model.num_hidden_layers
    for key, count in (("index_layers", model.index_layers), ("moe_layers", moe_layers or 0)):
        if layers is not None and count > layers:
            yield _told(key, f"{key} {count} is above num_hidden_layers {layers}", f"at most {layers}")


def _count(model: Model, moe_layers: int | None) -> Iterator[CommcalcError]:
    """A number of layers with experts against the list or rule."""
    layers = model.num_hidden_layers
    if layers is None or moe_layers is None or moe_layers > layers:
        return
    sparse = count_of(model, sparse=True)
    if not model.num_experts and moe_layers:
        yield _told("moe_layers", f"moe_layers {moe_layers} without num_experts", "add num_experts")
    elif sparse != moe_layers:
        message = f"moe_layers is {moe_layers}, but the other keys put experts in {sparse} layers"
        yield _told("moe_layers", message, "leave moe_layers out, or the list or rule")


def _has(model: Model, key: str) -> bool:
    """Whether a key is other than where nobody gives it."""
    return bool(getattr(model, key) != Model._field_defaults[key])


def _shown(model: Model, key: str) -> str:
    """A key and its value, as files have them."""
    value = getattr(model, key)
    return f"{key} {str(value).lower() if isinstance(value, bool) else value}"


def _told(key: str, message: str, hint: str | None = None) -> SpecError:
    return SpecError(message, where=f"model.{key}", hint=hint)
