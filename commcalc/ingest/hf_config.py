"""A Hugging Face ``config.json`` as the fields of a model.

The language part of a multimodal file is chosen, the family by ``model_type`` or ``architectures``, each field through
its aliases (null is absent), the rest from the family (`ingest.families`). Every value keeps the place it stood at, or
says which default it is. What a family does that no field describes is refused by name, never guessed.
"""

from __future__ import annotations

from commcalc.document import MAX_NODES, Items, Leaf, Node, Section
from commcalc.errors import SpecError, UnknownName, raise_all
from commcalc.ingest.families import ALIASES, FAMILIES, HEADS, SPELLINGS, UNDESCRIBED, Family
from commcalc.ingest.hf_habits import HABITS
from commcalc.ingest.hf_layers import attention_layers, expert_layers
from commcalc.ingest.hf_reader import Reader
from commcalc.ingest.quantization import group_size
from commcalc.transformer.layers import Ffn

_LANGUAGE = ("text_config", "decoder", "generator", "text_encoder", "language_config", "llm_config")
# Keys of the sizes that dbrx nests one level deeper.
_NESTED = {"attn_config": ("kv_n_heads",), "ffn_config": ("ffn_hidden_size", "moe_num_experts", "moe_top_k")}
_FROM_TOP = ("tie_word_embeddings", "architectures", "quantization_config", "compression_config")


def read_config(section: Section) -> Section:
    """The model fields of a ``config.json``; raises all that is missing or cannot be described, together."""
    text = _unnested(language_part(section))
    return _fields(Reader(text, *family_of(text, section)))


def language_part(section: Section) -> Section:
    """The mapping of the language model; keys that only stand at the top are brought along."""
    thinker = section.entries.get("thinker_config")
    outer = thinker if isinstance(thinker, Section) else section
    found = {key: part for key in _LANGUAGE if isinstance(part := outer.entries.get(key), Section)}
    if len(found) > 1:
        raise SpecError(f"two language parts: {' and '.join(found)}", where=section.where, hint="keep one of them")
    if not found:
        return outer
    (part,) = found.values()
    brought = {key: section.entries[key] for key in _FROM_TOP if key in section.entries and key not in part.entries}
    brought |= {key: node for key, node in section.entries.items() if node.where.startswith("--set ")}
    return Section(part.where, part.entries | brought, part.keys)


def _unnested(text: Section) -> Section:
    """The mapping, with the sizes that stand in a mapping of their own beside the others."""
    found: dict[str, Node] = {}
    for name, keys in _NESTED.items():
        inner = text.entries.get(name)
        if isinstance(inner, Section):
            found |= {key: inner.entries[key] for key in keys if key in inner.entries}
    return Section(text.where, found | text.entries, text.keys) if found else text


def family_of(text: Section, top: Section) -> tuple[str, Family]:
    """The family, by ``model_type`` or by the class; `UnknownName` lists the keys found."""
    kinds = [one.entries.get("model_type") for one in (top, text)]
    told = [kind for kind in kinds if isinstance(kind, Leaf) and kind.text and kind.value is not None]
    if not told:
        classes = text.entries.get("architectures")
        told = [one for one in classes.items[:1] if isinstance(one, Leaf)] if isinstance(classes, Items) else []
    if not told:
        raise SpecError("neither model_type nor architectures says which family this is", where=text.where)
    for given in told:  # the whole file may be known as what its language part alone is not
        name = _family_name(given)
        if name in UNDESCRIBED:
            hint = "a model file of your own can give the sizes, and name the rest under `undescribed`"
            message = f"{given.text[:60]} cannot be described: {UNDESCRIBED[name]}"
            raise SpecError(message, where=given.where, hint=hint)
    if name not in FAMILIES:
        keys = ", ".join(sorted(text.entries)[:40])
        raise UnknownName("model family", given.text, FAMILIES, where=given.where, hint=f"keys found: {keys}")
    return name, FAMILIES[name]


def _family_name(given: Leaf) -> str:
    """A ``model_type`` or a class by our name of its family."""
    name = given.text.lower()
    for ending in ("forcausallm", "forconditionalgeneration", "lmheadmodel", "model"):
        name = name.removesuffix(ending)
    return SPELLINGS.get(given.text.lower(), SPELLINGS.get(name, name))


def _fields(reader: Reader) -> Section:
    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
        reader.take(key, needed=True)
    if reader.size("num_hidden_layers") > MAX_NODES:  # each is looked at
        message = f"{reader.size('num_hidden_layers')} is above {MAX_NODES} layers"
        raise SpecError(message, where=reader.made["num_hidden_layers"].where)
    reader.take("max_position_embeddings")
    for key in _NESTED:
        reader.mapping(key)
    reader.put("family", reader.name, "model_type")
    _heads(reader)
    if reader.family.latent or reader.number("kv_lora_rank"):
        _latent(reader)
    _mlp(reader)
    _choices(reader)
    _experts(reader)
    attention_layers(reader)
    _predicted(reader)
    group = group_size(reader)
    if group is not None:
        reader.made["quantization_group_size"] = group
    habit = HABITS.get(reader.name)
    if habit is not None:
        habit(reader)
    raise_all(reader.problems)
    keys = {key: node.where for key, node in reader.made.items()}
    return Section(reader.text.where, reader.made, keys)


def _heads(reader: Reader) -> None:
    family, heads = reader.family, reader.size("num_attention_heads")
    null = reader.names("num_key_value_heads")
    if reader.leaf(*ALIASES["num_key_value_heads"]) is not None:
        reader.take("num_key_value_heads")
    elif null and not family.kv_null:
        where = reader.text.entries[null[0]].where
        reader.tell(f"{null[0]} is null, which {reader.name} does not allow", where, null[0])
    elif null or family.kv == HEADS:
        reader.put("num_key_value_heads", heads, "as many as num_attention_heads")
    elif family.kv is not None:
        reader.put("num_key_value_heads", family.kv)
    elif reader.name != "falcon":
        reader.problems.append(SpecError("num_key_value_heads is missing", where=reader.text.where))
    if reader.leaf(*ALIASES["head_dim"]) is not None and reader.name != "falcon":
        reader.take("head_dim")
    elif family.head_dim is not None:
        reader.put("head_dim", family.head_dim)
    # Otherwise hidden_size / num_attention_heads, which the model's own reader derives and checks.


def _mlp(reader: Reader) -> None:
    if reader.leaf(*ALIASES["intermediate_size"]) is not None:
        reader.take("intermediate_size")
    elif reader.family.ffn_multiple:
        where = f"{reader.family.ffn_multiple} * hidden_size, {reader.default()}"
        reader.put("intermediate_size", reader.family.ffn_multiple * reader.size("hidden_size"), where)
    elif not reader.family.moe:
        reader.problems.append(SpecError("intermediate_size is missing", where=reader.text.where))
    reader.put("gated_mlp", reader.family.gated)


def _choices(reader: Reader) -> None:
    family = reader.family
    reader.put("norm", family.norm)
    reader.put("norm_placement", family.placement)
    if isinstance(family.qk_norm, str):
        reader.put("qk_norm", family.qk_norm)
    else:
        key, kind, absent = family.qk_norm
        there, where = reader.flag((key, absent))
        reader.put("qk_norm", kind if there else "none", where)
    for key, told in (
        ("attention_bias", family.qkv_bias),
        ("attention_output_bias", family.out_bias),
        ("mlp_bias", family.mlp_bias),
        ("lm_head_bias", family.head_bias),
        ("tie_word_embeddings", ("tie_word_embeddings", family.tie)),
        ("parallel_block", family.parallel),
    ):
        value, where = reader.flag(told)
        reader.put(key, value, where)
    reader.put("parallel_norms", family.norms)
    reader.put("position_embedding", family.position)


def _latent(reader: Reader) -> None:
    """Latent attention: ``head_dim`` is the width of queries and keys, whatever the file writes there."""
    keys = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    for key in keys:
        reader.take(key, needed=True)
    if reader.leaf("q_lora_rank") is not None or not reader.names("q_lora_rank"):  # null: straight from the stream
        reader.take("q_lora_rank")
    width = reader.size("qk_nope_head_dim") + reader.size("qk_rope_head_dim")
    reader.put("head_dim", width, "qk_nope_head_dim + qk_rope_head_dim")
    if reader.flag(("attention_bias", False))[0]:
        reader.refuse("attention_bias with latent attention")


def _experts(reader: Reader) -> None:
    """Experts, their shared ones, and which layers hold them."""
    if reader.name == "gemma4" and not reader.flag(("enable_moe_block", False))[0]:
        return
    told = reader.names("num_experts")
    if not reader.family.moe or (told and reader.leaf(*told) is None):
        _no_experts(reader)
        return
    reader.take("num_experts", needed=reader.name == "gemma4")
    if not reader.size("num_experts"):
        reader.made.pop("num_experts", None)
        _no_experts(reader)
        return
    reader.take("num_experts_per_tok", needed=True)
    reader.take("moe_intermediate_size", reader.family.expert_key, needed=True)
    if expert_layers(reader) == reader.size("num_hidden_layers"):
        reader.made.pop("intermediate_size", None)  # no dense layer: the key, if there, means something else
    reader.take("shared_expert_intermediate_size")
    count = reader.number("shared_experts")
    if "shared_expert_intermediate_size" not in reader.made and count:
        where = f"{count} shared experts * expert width"
        reader.put("shared_expert_intermediate_size", count * reader.size("moe_intermediate_size"), where)


def _no_experts(reader: Reader) -> None:
    """Note what speaks of experts where the family has none, or the file says that there are none."""
    told = reader.found(*ALIASES["num_experts"])
    if told is not None and not reader.family.moe and reader.whole(told[1], told[0]):
        hint = "take the model_type of a mixture, or leave the key out"
        reader.tell(f"{reader.name} has no experts, and here are {told[1].text[:60]}", told[1].where, told[0], hint)
    sparse = next((leaf for leaf in reader.each("mlp_layer_types") if leaf.text == Ffn.SPARSE), None)
    if sparse is not None and (told is None or told[1].value == 0 or not reader.family.moe):
        who = "the file" if reader.family.moe else reader.name
        reader.tell(f"a layer is sparse, and {who} has no experts", sparse.where, "mlp_layer_types")


def _predicted(reader: Reader) -> None:
    """Layers that predict further tokens: modules of so many layers each."""
    leaf = reader.leaf(*ALIASES["num_nextn_predict_layers"])
    if leaf is None or not reader.flag(("use_mtp", True))[0]:
        return
    modules, layers = reader.number("num_nextn_predict_layers"), reader.number("mtp_transformer_layers") or 1
    if modules:
        reader.put("num_nextn_predict_layers", modules * layers, leaf.where)
