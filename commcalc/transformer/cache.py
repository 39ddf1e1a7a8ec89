"""How much of a KV cache a token takes, in elements over all layers, before any split."""

from __future__ import annotations

from typing import NamedTuple

from commcalc.transformer.layers import Attention, Heads, attentions, layers_of
from commcalc.transformer.spec import Model


class CachePerToken(NamedTuple):
    """Elements of one token: in the layers that keep every token, and in those that keep a window or chunk of them.

    Linear layers keep a state of fixed size and none of a token.
    """

    kept: int = 0
    in_window: int = 0


def cache_per_token(model: Model) -> CachePerToken | None:
    """Keys and values of every KV head, or the latent and the rotary key; None where a size is not given.

    Sources: grouped heads, Ainslie et al. 2023, arXiv:2305.13245; latents, DeepSeek-V2, arXiv:2405.04434, section
    2.1.4 (576 elements a token and layer, one copy, whatever num_key_value_heads says).
    """
    heads, width = model.num_key_value_heads, model.head_dim
    if heads is None or width is None or model.num_hidden_layers is None or model.undescribed:
        return None
    value = width if model.kv_lora_rank or not model.v_head_dim else model.v_head_dim
    sizes = {
        Heads.OWN: heads * (width + value),
        Heads.LATENT: model.kv_lora_rank + model.qk_rope_head_dim,
        Heads.SLIDING: (model.sliding_num_key_value_heads or heads) * (width + value),
        Heads.GLOBAL: 2 * model.global_num_key_value_heads * model.global_head_dim or heads * (width + value),
        Heads.LINEAR: 0,
    }
    found = {False: 0, True: 0}
    for attention, kind in zip(attentions(model), layers_of(model).kinds, strict=True):
        found[attention in (Attention.SLIDING, Attention.CHUNKED)] += sizes[kind.heads]
    return CachePerToken(found[False], found[True])
