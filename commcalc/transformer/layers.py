"""Which layers a model has: of each how it attends, and whether it holds experts.

A model says so by lists (``layer_types``, ``mlp_layer_types``: a word for each layer, as in config.json) or by rules
(every n-th layer attends to all tokens, the first k are dense). Layers that run the same program are of one *kind*.
"""

from collections import Counter
from enum import StrEnum
from typing import NamedTuple

from commcalc.errors import CommcalcError, SpecError
from commcalc.transformer.spec import Model


class Attention(StrEnum):
    """How a layer attends: to all tokens before, to a window or chunk of them, or through a state of fixed size."""

    FULL = "full_attention"
    SLIDING = "sliding_attention"
    CHUNKED = "chunked_attention"
    LINEAR = "linear_attention"


class Ffn(StrEnum):
    """What follows attention: one MLP for all tokens, or experts among which each token chooses."""

    DENSE = "dense"
    SPARSE = "sparse"


class Heads(StrEnum):
    """Which of a model's attentions a layer has, as far as weights and traffic go: windows change neither."""

    OWN = "attention"
    LATENT = "latent"
    GLOBAL = "full"
    SLIDING = "sliding"
    LINEAR = "linear"


class Kind(NamedTuple):
    """Layers that run one program."""

    heads: Heads = Heads.OWN
    ffn: Ffn = Ffn.DENSE
    sinks: bool = False


class Layers(NamedTuple):
    """The kind of every layer, in order, and a name for each kind: ``dense`` and ``moe``, say."""

    kinds: tuple[Kind, ...]
    names: dict[Kind, str]

    def counted(self, first: int = 0, last: int | None = None) -> dict[str, int]:
        """How many of the layers from ``first`` up to ``last`` are of each kind; every kind is there."""
        found = Counter(self.names[kind] for kind in self.kinds[first:last])
        return {name: found[name] for name in self.names.values()}

    @property
    def usual(self) -> str:
        """The name of the kind that most layers are of; of equals the one that comes last."""
        counts = self.counted()
        return max(reversed(list(counts)), key=lambda name: counts[name])


def attentions(model: Model) -> tuple[Attention, ...]:
    """How each layer attends."""
    layers = _depth(model)
    if model.layer_types:
        return tuple(Attention(word) for word in model.layer_types)
    every, other = model.full_attention_interval, _other(model)
    return tuple(Attention.FULL if every and (at + 1) % every == 0 else other for at in range(layers))


def _other(model: Model) -> Attention:
    """How the layers attend that no rule makes full."""
    if model.linear_num_value_heads:
        return Attention.LINEAR
    if model.sliding_window:
        return Attention.SLIDING
    return Attention.CHUNKED if model.attention_chunk_size else Attention.FULL


def ffns(model: Model) -> tuple[Ffn, ...]:
    """Which layers hold experts."""
    layers, first, step = _depth(model), model.first_k_dense_replace, model.interleave_moe_layer_step
    if not model.num_experts:
        return (Ffn.DENSE,) * layers
    if model.mlp_layer_types:
        return tuple(Ffn(word) for word in model.mlp_layer_types)
    return tuple(Ffn.SPARSE if at >= first and (at + 1) % step == 0 else Ffn.DENSE for at in range(layers))


def layers_of(model: Model) -> Layers:
    """The kinds of a model's layers; a kind is named by what sets it apart from the model's others."""
    # Lists of different lengths are told by `contradictions`.
    both = list(zip(attentions(model), ffns(model), strict=False))
    known = {one: _kind(model, *one) for one in set(both)}
    kinds = tuple(known[one] for one in both)
    kinds = kinds or (_kind(model, _other(model), Ffn.SPARSE if model.num_experts else Ffn.DENSE),)
    met = list(dict.fromkeys(kinds))
    heads, ffn, sinks = (len({kind[at] for kind in met}) > 1 for at in range(3))
    names = {}
    for kind in met:
        words = [str(kind.heads)] if heads or (sinks and not ffn) else []
        words += ["moe" if kind.ffn is Ffn.SPARSE else "dense"] if ffn else []
        words += ["sinks"] if sinks and not heads and kind.sinks else []
        names[kind] = " ".join(words) or "block"
    return Layers(kinds, names)


def _depth(model: Model) -> int:
    """How many layers there are, by their number or else by their lists."""
    return model.num_hidden_layers or max(len(model.layer_types), len(model.mlp_layer_types))


def _kind(model: Model, attention: Attention, ffn: Ffn) -> Kind:
    heads = Heads.OWN
    if attention is Attention.LINEAR:
        return Kind(Heads.LINEAR, ffn)
    if model.kv_lora_rank:
        return Kind(Heads.LATENT, ffn)
    apart = bool(model.global_head_dim or model.sliding_num_key_value_heads)
    if attention is Attention.FULL and (apart or Attention.LINEAR in _words(model)):
        heads = Heads.GLOBAL
    elif apart:
        heads = Heads.SLIDING
    sliding = attention in (Attention.SLIDING, Attention.CHUNKED)
    return Kind(heads, ffn, model.attention_sinks and (sliding or not model.sinks_in_sliding_only))


def _words(model: Model) -> set[Attention]:
    return {Attention(word) for word in model.layer_types} if model.layer_types else {_other(model)}


def count_of(model: Model, *, sparse: bool = False, attention: Attention | None = None) -> int:
    """Layers with experts, or layers that attend so."""
    return ffns(model).count(Ffn.SPARSE) if sparse else attentions(model).count(attention or Attention.FULL)


def contradictions(model: Model) -> list[CommcalcError]:
    """What lists and rules of layers say against the number of layers, or in words that are none."""
    found: list[CommcalcError] = []
    layers = model.num_hidden_layers
    for key, kind in (("layer_types", Attention), ("mlp_layer_types", Ffn)):
        words = getattr(model, key)
        unknown = sorted({word for word in words if word not in list(kind)})
        if unknown:
            message = f"{key} has no word {', '.join(unknown)}"
            found.append(SpecError(message, where=f"model.{key}", hint=f"words: {', '.join(kind)}"))
        if words and layers is not None and len(words) != layers:
            message = f"{key} lists {len(words)} layers, num_hidden_layers is {layers}"
            hint = f"a word for each layer, or --set model.{key}=null and a rule"
            found.append(SpecError(message, where=f"model.{key}", hint=hint))
    if layers is None and (model.layer_types or model.mlp_layer_types):
        key = "layer_types" if model.layer_types else "mlp_layer_types"
        found.append(SpecError(f"{key} without num_hidden_layers", where=f"model.{key}", hint="add num_hidden_layers"))
    if layers is not None and model.num_experts and model.first_k_dense_replace > layers:
        message = f"first_k_dense_replace {model.first_k_dense_replace} is above num_hidden_layers {layers}"
        found.append(SpecError(message, where="model.first_k_dense_replace"))
    return found
