"""What single families do beyond what their keys and defaults say, by the name of the family."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from commcalc.document import Leaf
from commcalc.ingest.families import ALIASES
from commcalc.ingest.hf_reader import Reader
from commcalc.transformer.layers import Attention
from commcalc.transformer.spec import LinearAttention

_GATED_DELTA_NET = (
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
    "linear_conv_kernel_dim",
)  # fmt: skip


def _opt(reader: Reader) -> None:
    reader.put("extra_position_rows", 2)
    if not reader.flag(("do_layer_norm_before", True))[0]:
        reader.refuse("do_layer_norm_before false")
    if reader.number("word_embed_proj_dim") not in (0, reader.size("hidden_size")):
        reader.refuse("word_embed_proj_dim other than hidden_size")


def _bloom(reader: Reader) -> None:
    reader.put("embedding_norm", True)


def _gpt_bigcode(reader: Reader) -> None:
    many, where = reader.flag(("multi_query", True))
    if many:
        reader.put("num_key_value_heads", 1, where)


def _falcon(reader: Reader) -> None:
    """KV heads, parallel block and norms as FalconConfig and FalconDecoderLayer decide."""
    new, where = reader.flag(("new_decoder_architecture", False))
    single, told = reader.flag(("multi_query", True))
    if not new:
        reader.put("num_key_value_heads", 1 if single else reader.size("num_attention_heads"), told)
    elif "num_key_value_heads" not in reader.made:
        reader.put("num_key_value_heads", reader.size("num_attention_heads"))
    parallel, place = reader.flag(("parallel_attn", True))
    reader.put("parallel_block", parallel or new, where if new else place)
    norms = reader.number("num_ln_in_parallel_attn") or (2 if new else 1)
    reader.put("parallel_norms", norms, where)
    if reader.flag(("alibi", False))[0]:
        reader.put("position_embedding", "alibi", where)


def _mpt(reader: Reader) -> None:
    """MptConfig reads more than MptModel builds; what it does not build is refused."""
    if not reader.flag(("no_bias", True))[0]:
        reader.refuse("no_bias false")
    if reader.number("expansion_ratio") not in (0, 4):
        reader.refuse("expansion_ratio other than 4")
    attention = reader.mapping("attn_config")
    inner = {} if attention is None else attention.entries
    for key, usual in (("alibi", True), ("qk_ln", False), ("attn_type", "multihead_attention")):
        node = inner.get(key)
        if isinstance(node, Leaf) and node.value is not None and node.value != usual:
            reader.refuse(f"{key} {node.text[:40]}", node.where)


def _stablelm(reader: Reader) -> None:
    if reader.flag(("qk_layernorm", False))[0]:
        reader.refuse("qk_layernorm, a norm for each head without a bias beside norms with one,")


def _chatglm(reader: Reader) -> None:
    """The second and third generation; the first had keys of its own."""
    if not reader.flag(("multi_query_attention", False))[0]:
        reader.put("num_key_value_heads", reader.size("num_attention_heads"))
    if reader.leaf("inner_hidden_size") is not None:
        reader.refuse("the first ChatGLM (inner_hidden_size)")


def _llama4(reader: Reader) -> None:
    width = reader.made.get("moe_intermediate_size")
    if isinstance(width, Leaf):  # one shared expert as wide as the others, and no key that says so
        reader.put("shared_expert_intermediate_size", width.value)


def _gpt_oss(reader: Reader) -> None:
    reader.put("attention_sinks", True)
    if "num_experts" in reader.made:
        reader.put("router_bias", True)
        reader.put("expert_bias", True)


def _qwen2_moe(reader: Reader) -> None:
    if "num_experts" in reader.made:
        reader.put("shared_expert_gate", bool(reader.size("shared_expert_intermediate_size")))
    _no_window(reader)


def _no_window(reader: Reader) -> None:
    if reader.flag(("use_sliding_window", False))[0]:
        reader.refuse("use_sliding_window true")


def _qwen3_next(reader: Reader) -> None:
    """Most layers are gated delta nets, the others have an output gate beside the queries."""
    for key in _GATED_DELTA_NET if Attention.LINEAR in reader.attends else ():
        reader.take(key, needed=True)
    reader.put("attention_output_gate", True)
    if "num_experts" in reader.made:
        reader.put("shared_expert_gate", bool(reader.size("shared_expert_intermediate_size")))


def _gemma4(reader: Reader) -> None:
    """Full layers have heads of their own; in the mixture a dense MLP stands beside the experts."""
    reader.take("global_head_dim")
    same, where = reader.flag(("attention_k_eq_v", False))
    keys = ("num_global_key_value_heads",) if same else ()
    reader.take("global_num_key_value_heads", *keys, *ALIASES["num_key_value_heads"])
    if "num_key_value_heads" in reader.made:  # that of the class
        reader.made.setdefault("global_num_key_value_heads", reader.made["num_key_value_heads"])
    reader.put("global_keys_are_values", same, where)
    if reader.leaf("hidden_size_per_layer_input") is None or reader.number("hidden_size_per_layer_input"):
        reader.refuse("hidden_size_per_layer_input above 0 (where the key is absent it is 256)")
    if reader.number("num_kv_shared_layers"):
        reader.refuse("num_kv_shared_layers above 0")
    if "num_experts" in reader.made:
        reader.put("dense_mlp_beside_moe", True)
        reader.put("router_scales", True)
        reader.take("intermediate_size", "intermediate_size")


def _minimax(reader: Reader) -> None:
    """Lightning attention has as many heads for queries, keys and values, and no convolution."""
    layers, heads = reader.size("num_hidden_layers"), reader.size("num_attention_heads")
    if Attention.LINEAR not in reader.attends:
        return
    if reader.listed("layer_types") is None and reader.listed("attn_type_list") is None:
        kinds = (Attention.FULL, Attention.LINEAR)
        reader.put_words("layer_types", [kinds[at % 2] for at in range(layers)])
    width = reader.size("head_dim") or (reader.size("hidden_size") // heads if heads else 0)
    where = "heads and head_dim of the other layers"
    reader.put("linear_attention", str(LinearAttention.LIGHTNING))
    for key in ("linear_num_key_heads", "linear_num_value_heads"):
        reader.put(key, heads, where)
    for key in ("linear_key_head_dim", "linear_value_head_dim"):
        reader.put(key, width, where)


def _minimax_m2(reader: Reader) -> None:
    kind = reader.leaf("qk_norm_type")
    if kind is not None and kind.text != "per_layer":
        reader.refuse(f"qk_norm_type {kind.text[:40]}", kind.where)


def _minimax_m3(reader: Reader) -> None:
    """An indexer with keys of its own in the layers that attend sparsely."""
    kind = reader.leaf("qk_norm_type")
    if kind is not None and kind.text != "per_head":
        reader.refuse(f"qk_norm_type {kind.text[:40]}", kind.where)
    if reader.flag(("attention_output_gate", False))[0]:
        reader.refuse("attention_output_gate true")
    sparse = reader.mapping("sparse_attention_config")
    types = reader.each("layer_types")
    bits = reader.each_bit("sparse_attention_freq", sparse) if sparse is not None else []
    layers = sum(leaf.text == "minimax_m3_sparse" for leaf in types) if types else sum(bits)
    if not layers:
        return
    for key, old in (("index_n_heads", "sparse_num_index_heads"), ("index_head_dim", "sparse_index_dim")):
        node = None if sparse is None else sparse.entries.get(old)
        if reader.leaf(key) is None and isinstance(node, Leaf) and node.value is not None:
            reader.put(key, reader.whole(node, old), node.where)
        else:
            reader.take(key)
    place = reader.text.entries["layer_types"] if types or sparse is None else sparse.entries["sparse_attention_freq"]
    reader.put("index_layers", layers, place.where)


def _mimo(reader: Reader) -> None:
    """Layers that slide have KV heads of their own; values are narrower than keys."""
    reader.take("v_head_dim")
    slides = Attention.SLIDING in reader.attends
    if slides and reader.leaf("swa_num_key_value_heads") is not None:
        reader.take("sliding_num_key_value_heads", "swa_num_key_value_heads")
    elif slides:
        reader.put("sliding_num_key_value_heads", 2 * reader.size("num_key_value_heads"))
    for own, other in (
        ("swa_num_attention_heads", "num_attention_heads"),
        ("swa_head_dim", "head_dim"),
        ("swa_v_head_dim", "v_head_dim"),
    ):
        if reader.number(own) not in (0, reader.size(other)):
            reader.refuse(f"{own} other than {other}")
    sliding, where = reader.flag(("add_swa_attention_sink_bias", True))
    full, _ = reader.flag(("add_full_attention_sink_bias", False))
    if full and not sliding:
        reader.refuse("attention sinks in full layers alone")
    reader.put("attention_sinks", sliding and (slides or full), where)
    reader.put("sinks_in_sliding_only", sliding and slides and not full, where)
    if reader.listed("layer_types") is None and reader.listed("hybrid_layer_pattern") is None:
        _first_full(reader)


def _first_full(reader: Reader) -> None:
    """Without a list, the class makes the first layer and every sixth attend to all tokens."""
    layers = range(reader.size("num_hidden_layers"))
    words = [Attention.FULL if not at or not (at + 1) % 6 else Attention.SLIDING for at in layers]
    reader.made.pop("full_attention_interval", None)
    reader.put_words("layer_types", words)


def _sparse(reader: Reader, layers: int, where: str) -> None:
    """An indexer in so many layers; where the file says null, there is none."""
    if layers and (reader.leaf("index_n_heads") is not None or not reader.names("index_n_heads")):
        reader.take("index_n_heads")
        reader.take("index_head_dim", needed=True)
        reader.put("index_layers", layers, where)


def _deepseek_v32(reader: Reader) -> None:
    _sparse(reader, reader.size("num_hidden_layers"), "every layer")


def _glm_moe_dsa(reader: Reader) -> None:
    """Layers that share the choice of another have no indexer of their own: a list, or every n-th (GlmMoeDsaConfig)."""
    layers = reader.size("num_hidden_layers")
    types = reader.each_word("indexer_types", ("full", "shared"), "neither full nor shared")
    if reader.listed("indexer_types") is not None:
        _sparse(reader, types.count("full"), reader.text.entries["indexer_types"].where)
        return
    pattern = reader.leaf("index_topk_pattern")
    if pattern is not None:  # a letter a layer: F full, S shared
        _sparse(reader, _full_by_letters(reader, pattern, layers), pattern.where)
        return
    every = max(reader.number("index_topk_freq"), 1)
    offset = reader.number("index_skip_topk_offset") if reader.leaf("index_skip_topk_offset") is not None else 2
    full = sum(max(at - offset + 1, 0) % every == 0 for at in range(layers))
    _sparse(reader, full, "every layer" if full == layers else "index_topk_freq and index_skip_topk_offset")


def _full_by_letters(reader: Reader, pattern: Leaf, layers: int) -> int:
    key = "index_topk_pattern"
    wrong = next((letter for letter in pattern.text if letter not in "FS"), None)
    if wrong is not None:
        reader.tell(f"{wrong!r} is neither F (full) nor S (shared)", pattern.where, key)
    elif layers and len(pattern.text) != layers:
        reader.tell(f"{key} has {len(pattern.text)} letters for {layers} layers", pattern.where, key)
    return pattern.text.count("F")


HABITS: Mapping[str, Callable[[Reader], None]] = {
    "opt": _opt,
    "bloom": _bloom,
    "gpt_bigcode": _gpt_bigcode,
    "falcon": _falcon,
    "mpt": _mpt,
    "stablelm": _stablelm,
    "chatglm": _chatglm,
    "llama4": _llama4,
    "gpt_oss": _gpt_oss,
    "qwen2_moe": _qwen2_moe,
    "qwen3_next": _qwen3_next,
    "qwen3_5": _qwen3_next,
    "qwen3_5_moe": _qwen3_next,
    "gemma4": _gemma4,
    "minimax": _minimax,
    "minimax_m2": _minimax_m2,
    "minimax_m3": _minimax_m3,
    "smollm3": _no_window,
    "mimo_v2_flash": _mimo,
    "deepseek_v32": _deepseek_v32,
    "glm_moe_dsa": _glm_moe_dsa,
}
