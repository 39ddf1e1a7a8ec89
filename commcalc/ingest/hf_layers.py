"""Which layers of a ``config.json`` attend in which way, and which hold experts.

A list of the file is kept as it is; where it says the same of every layer, or the file has none, a rule says it.
"""

from __future__ import annotations

from collections.abc import Collection

from commcalc.document import Items, Leaf
from commcalc.ingest.hf_reader import Reader
from commcalc.transformer.layers import Attention, Ffn

# Words of single families for layers that attend to all tokens, or to those that an indexer picks among all.
_FULL = ("indexed_attention", "minimax_m3_sparse", "attention")
_INTERVALS = (
    "full_attention_interval", "sliding_window_pattern", "_sliding_window_pattern", "no_rope_layer_interval",
)  # fmt: skip
# The size that says how far a layer looks.
_WINDOWS = {Attention.SLIDING: "sliding_window", Attention.CHUNKED: "attention_chunk_size"}
_WORDS = dict.fromkeys(_FULL, Attention.FULL) | {str(word): word for word in Attention}


def attention_layers(reader: Reader) -> None:
    """How each layer attends: a list, or a rule, and the window where there is one."""
    words, where = _attentions(reader)
    other = Attention(reader.family.other) if reader.family.other else Attention.FULL
    reader.attends = {*words} or {other}
    for kind, key in _WINDOWS.items():
        if kind in reader.attends:
            reader.take(key)
    if len(reader.attends) > 1:
        reader.put_words("layer_types", words, where)
    elif not words and _there(reader, other):
        _rule(reader, other)
    elif not words:
        reader.attends = {Attention.FULL}


def _there(reader: Reader, other: Attention) -> bool:
    """Whether the layers attend in the other way that this family knows: a file may switch the window off."""
    key = _WINDOWS.get(other)
    if key is None:
        return other is not Attention.FULL
    off = key in reader.text.entries and reader.leaf(key) is None
    off = off or (reader.family.window_flag and not reader.flag(("use_sliding_window", False))[0])
    if off or not reader.size(key):
        reader.made.pop(key, None)
    return key in reader.made


def _rule(reader: Reader, other: Attention) -> None:
    """Every n-th layer attends to all tokens, by the file or the class."""
    leaf = reader.leaf(*_INTERVALS)
    every = reader.family.every if leaf is None else reader.step(*_INTERVALS)
    layers = reader.size("num_hidden_layers")
    if every == 1:
        _all_full(reader, other)
    elif every and reader.family.last_full and layers % every:
        words = [Attention.FULL if not (at + 1) % every else other for at in range(layers)]
        reader.put_words("layer_types", [*words[:-1], Attention.FULL])
    elif every:
        reader.put("full_attention_interval", every, leaf.where if leaf is not None else None)
    elif reader.family.full_first:
        _late(reader, layers)


def _all_full(reader: Reader, other: Attention) -> None:
    """No layer attends otherwise: a window says nothing."""
    reader.attends = {Attention.FULL}
    reader.made.pop(_WINDOWS.get(other, ""), None)


def _late(reader: Reader, layers: int) -> None:
    """The first ``max_window_layers`` attend to all tokens, the others slide."""
    leaf = reader.leaf("max_window_layers")
    first = reader.family.full_first if leaf is None else reader.whole(leaf, "max_window_layers")
    if first >= layers:
        _all_full(reader, Attention.SLIDING)
    elif first:
        words = [Attention.FULL] * first + [Attention.SLIDING] * (layers - first)
        reader.put_words("layer_types", words, None if leaf is None else leaf.where)


def _attentions(reader: Reader) -> tuple[list[Attention], str]:
    """The list of the file in our words, and its place; empty where it has none."""
    key, numbers = reader.family.pattern
    named, numbered = reader.each("layer_types"), reader.each(key) if key else []
    words = []
    for leaf in named:
        if leaf.text not in _WORDS:
            hint = f"known: {', '.join(Attention)}"
            reader.tell(f"no field describes layers of {leaf.text[:60]!r}", leaf.where, "layer_types", hint)
            return [], ""
        words.append(_WORDS[leaf.text])
    if words and reader.family.last_full:
        words[-1] = Attention.FULL
    if words:
        return words, reader.text.entries["layer_types"].where
    known = ", ".join(map(str, range(len(numbers))))
    for leaf in numbered:
        if type(leaf.value) is not int or not 0 <= leaf.value < len(numbers):
            reader.tell(f"{leaf.text[:60]!r} is none of {known}", leaf.where, key)
            return [], ""
        words.append(Attention(numbers[leaf.value]))
    return words, reader.text.entries[key].where if words else ""


def expert_layers(reader: Reader) -> int:
    """Note which layers hold experts, by the file's list or the family's rule; how many there are."""
    layers = reader.size("num_hidden_layers")
    words, where = _ffns(reader)
    if words:
        if set(words) != {Ffn.SPARSE}:
            reader.put_words("mlp_layer_types", words, where)
        return words.count(Ffn.SPARSE)
    rule = reader.family.moe
    if rule == "first_dense":
        reader.take("first_k_dense_replace")
        return max(0, layers - reader.size("first_k_dense_replace"))
    step = {"interleaved": "interleave_moe_layer_step", "qwen": "decoder_sparse_step"}.get(rule)
    every = reader.step(step) if step else 0
    if every > 1 and step:
        reader.put("interleave_moe_layer_step", every, reader.text.entries[step].where)
    return layers // max(every, 1)


def _ffns(reader: Reader) -> tuple[list[Ffn], str]:
    """The list of the file in our words, and its place; also of rules that only a list can say."""
    rule = reader.family.moe
    named = reader.each_word("mlp_layer_types", set(Ffn), "neither dense nor sparse")
    if named:
        return [Ffn(word) for word in named], reader.text.entries["mlp_layer_types"].where
    if isinstance(reader.text.entries.get("moe_layer_freq"), Items):
        bits = reader.each_bit("moe_layer_freq")
        return [Ffn.SPARSE if bit else Ffn.DENSE for bit in bits], reader.text.entries["moe_layer_freq"].where
    every = reader.step("moe_layer_freq")
    if every > 1 and rule == "first_dense":
        first = reader.number("first_k_dense_replace")
        layers = range(reader.size("num_hidden_layers"))
        sparse = [at for at in layers if at >= first and at % every == 0]
        return _at(reader, sparse), reader.text.entries["moe_layer_freq"].where
    if rule == "interleaved" and (indices := reader.listed("moe_layers")) is not None:  # empty: no layer has any
        return _at(reader, _indices(reader, indices, "moe_layers")), indices.where
    indices = reader.listed("mlp_only_layers") if rule == "qwen" else None
    if indices is not None and indices.items:
        dense, step = set(_indices(reader, indices, "mlp_only_layers")), reader.step("decoder_sparse_step") or 1
        layers = range(reader.size("num_hidden_layers"))
        return _at(reader, [at for at in layers if at not in dense and (at + 1) % step == 0]), indices.where
    return [], ""


def _at(reader: Reader, sparse: Collection[int]) -> list[Ffn]:
    there = set(sparse)
    return [Ffn.SPARSE if at in there else Ffn.DENSE for at in range(reader.size("num_hidden_layers"))]


def _indices(reader: Reader, items: Items, key: str) -> list[int]:
    """Numbers of layers, from 0 on; one that is none is noted."""
    layers = reader.size("num_hidden_layers")
    found = []
    for item in items.items:
        if not isinstance(item, Leaf) or type(item.value) is not int or not 0 <= item.value < layers:
            shown = item.text[:60] if isinstance(item, Leaf) else "what stands here"
            reader.tell(f"{shown} is no layer of {layers}", item.where, key, "layers count from 0")
        else:
            found.append(item.value)
    return found
