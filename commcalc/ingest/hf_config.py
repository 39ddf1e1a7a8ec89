"""A Hugging Face ``config.json`` as the fields of a model.

The language part of a multimodal file is chosen, the family by ``model_type`` or ``architectures``, each field through
its aliases (null is absent), the rest from the family (`ingest.families`). Every value keeps the place it stood at, or
says which default it is. What a family does that no field describes is refused by name, never guessed.
"""

from __future__ import annotations

from commcalc.document import Items, Leaf, Node, Section
from commcalc.errors import CommcalcError, SpecError, UnknownName, raise_all
from commcalc.ingest.families import ALIASES, FAMILIES, HEADS, SPELLINGS, Family, Told
from commcalc.ingest.quantization import group_size

_LANGUAGE = ("text_config", "decoder", "generator", "text_encoder", "language_config", "llm_config")
_FROM_TOP = ("tie_word_embeddings", "architectures", "quantization_config", "compression_config")


def read_config(section: Section) -> Section:
    """The model fields of a ``config.json``; raises all that is missing or cannot be described, together."""
    text = language_part(section)
    return _Reader(text, *family_of(text, section)).fields()


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


def family_of(text: Section, top: Section) -> tuple[str, Family]:
    """The family, by ``model_type`` or by the class; `UnknownName` lists the keys found."""
    given = None
    for section in (text, top):
        kind = section.entries.get("model_type")
        if isinstance(kind, Leaf) and kind.text and kind.value is not None:
            given = kind
            break
    if given is None:
        classes = text.entries.get("architectures")
        if isinstance(classes, Items) and classes.items and isinstance(classes.items[0], Leaf):
            given = classes.items[0]
    if given is None:
        raise SpecError("neither model_type nor architectures says which family this is", where=text.where)
    name = given.text.lower()
    for ending in ("forcausallm", "forconditionalgeneration", "lmheadmodel", "model"):
        name = name.removesuffix(ending)
    name = SPELLINGS.get(given.text.lower(), SPELLINGS.get(name, name))
    if name not in FAMILIES:
        keys = ", ".join(sorted(text.entries)[:40])
        raise UnknownName("model family", given.text, FAMILIES, where=given.where, hint=f"keys found: {keys}")
    return name, FAMILIES[name]


class _Reader:
    """Fills the model fields of one file."""

    def __init__(self, text: Section, name: str, family: Family) -> None:
        self.text = text
        self.name = name
        self.family = family
        self.made: dict[str, Node] = {}
        self.problems: list[CommcalcError] = []

    def fields(self) -> Section:
        for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
            self.take(key, needed=True)
        self.take("max_position_embeddings")
        self.put("family", self.name, "model_type")
        self.heads()
        if self.family.latent or self.number("kv_lora_rank"):
            self.latent()
        self.mlp()
        self.choices()
        self.experts()
        group = group_size(self.text)
        if group is not None:
            self.made["quantization_group_size"] = group
        special = getattr(self, f"_{self.name}", None)
        if special is not None:
            special()
        raise_all(self.problems)
        keys = {key: node.where for key, node in self.made.items()}
        return Section(self.text.where, self.made, keys)

    # Reading the file.

    def leaf(self, *keys: str) -> Leaf | None:
        """The first of ``keys`` that is there and not null."""
        for key in keys:
            node = self.text.entries.get(key)
            if isinstance(node, Leaf) and node.value is not None:
                return node
        return None

    def number(self, key: str) -> int:
        """A whole number, through its aliases; 0 where it is absent."""
        leaf = self.leaf(*ALIASES.get(key, (key,)))
        if leaf is None:
            return 0
        if isinstance(leaf.value, bool) or not isinstance(leaf.value, int) or leaf.value < 0:
            self.problems.append(SpecError(f"{leaf.text[:60]!r} is no whole number", where=f"{leaf.where} {key}"))
            return 0
        return leaf.value

    def flag(self, told: Told) -> tuple[bool, str]:
        """A fixed or named truth value, and its place."""
        if isinstance(told, bool):
            return told, self.default()
        key, absent = told
        leaf = self.leaf(key)
        if leaf is None:
            return absent, self.default()
        if not isinstance(leaf.value, bool):
            self.problems.append(
                SpecError(f"{leaf.text[:60]!r} is neither true nor false", where=f"{leaf.where} {key}")
            )
            return absent, leaf.where
        return leaf.value, leaf.where

    def names(self, key: str) -> list[str]:
        """A list of words, such as ``layer_types``."""
        node = self.text.entries.get(key)
        if not isinstance(node, Items):
            return []
        layers = self.number("num_hidden_layers")
        found = [item.text for item in node.items if isinstance(item, Leaf)]
        if len(found) != layers:
            message = f"{key} lists {len(found)} layers of {layers}"
            self.problems.append(SpecError(message, where=f"{node.where} {key}"))
        return found

    def default(self) -> str:
        return f"default of {self.name} in transformers 5.24.0"

    # Writing the model.

    def put(self, key: str, value: object, where: str | None = None) -> None:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        shown = value if isinstance(value, (bool, int, str)) else text
        self.made[key] = Leaf(shown, text, where or self.default())

    def take(self, key: str, *, needed: bool = False) -> None:
        leaf = self.leaf(*ALIASES.get(key, (key,)))
        sizes = dict(self.family.sizes)
        if leaf is not None:
            self.made[key] = leaf
        elif key in sizes:
            self.put(key, sizes[key])
        elif needed:
            names = " or ".join(ALIASES.get(key, (key,)))
            self.problems.append(SpecError(f"{key} is missing (looked for {names})", where=self.text.where))

    def size(self, key: str) -> int:
        """A number already put into the model."""
        node = self.made.get(key)
        return node.value if isinstance(node, Leaf) and isinstance(node.value, int) else 0

    def refuse(self, what: str, where: str | None = None) -> None:
        self.problems.append(SpecError(f"{self.name}: {what} is not described yet", where=where or self.text.where))

    # The parts of a model.

    def heads(self) -> None:
        family, heads = self.family, self.size("num_attention_heads")
        keys = ALIASES["num_key_value_heads"]
        leaf = self.leaf(*keys)
        null = [key for key in keys if key in self.text.entries]
        if leaf is not None:
            self.made["num_key_value_heads"] = leaf
        elif null and not family.kv_null:
            where = f"{self.text.entries[null[0]].where} {null[0]}"
            self.problems.append(SpecError(f"{null[0]} is null, which {self.name} does not allow", where=where))
        elif null or family.kv == HEADS:
            self.put("num_key_value_heads", heads, "as many as num_attention_heads")
        elif family.kv is not None:
            self.put("num_key_value_heads", family.kv)
        elif self.name != "falcon":
            self.problems.append(SpecError("num_key_value_heads is missing", where=self.text.where))
        width = self.leaf(*ALIASES["head_dim"])
        if width is not None and self.name != "falcon":
            self.made["head_dim"] = width
        elif family.head_dim is not None:
            self.put("head_dim", family.head_dim)
        # Otherwise hidden_size / num_attention_heads, which the model's own reader derives and checks.

    def mlp(self) -> None:
        leaf = self.leaf(*ALIASES["intermediate_size"])
        if leaf is not None:
            self.made["intermediate_size"] = leaf
        elif self.family.ffn_multiple:
            where = f"{self.family.ffn_multiple} * hidden_size, {self.default()}"
            self.put("intermediate_size", self.family.ffn_multiple * self.size("hidden_size"), where)
        elif not self.family.moe:
            self.problems.append(SpecError("intermediate_size is missing", where=self.text.where))
        self.put("gated_mlp", self.family.gated)

    def choices(self) -> None:
        family = self.family
        self.put("norm", family.norm)
        self.put("norm_placement", family.placement)
        if isinstance(family.qk_norm, str):
            self.put("qk_norm", family.qk_norm)
        else:
            there, where = self.flag((family.qk_norm[0], False))
            self.put("qk_norm", family.qk_norm[1] if there else "none", where)
        for key, told in (
            ("attention_bias", family.qkv_bias),
            ("attention_output_bias", family.out_bias),
            ("mlp_bias", family.mlp_bias),
            ("lm_head_bias", family.head_bias),
            ("tie_word_embeddings", ("tie_word_embeddings", family.tie)),
            ("parallel_block", family.parallel),
        ):
            value, where = self.flag(told)
            self.put(key, value, where)
        self.put("parallel_norms", family.norms)
        self.put("position_embedding", family.position)

    def latent(self) -> None:
        """Latent attention: ``head_dim`` is the width of queries and keys, whatever the file writes there."""
        keys = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        for key in keys:
            self.take(key, needed=True)
        if self.leaf("q_lora_rank") is not None:
            self.take("q_lora_rank")
        width = self.size("qk_nope_head_dim") + self.size("qk_rope_head_dim")
        self.put("head_dim", width, "qk_nope_head_dim + qk_rope_head_dim")
        if self.flag(("attention_bias", False))[0]:
            self.refuse("attention_bias with latent attention")

    def experts(self) -> None:
        experts = self.leaf(*ALIASES["num_experts"])
        if not self.family.moe or experts is None or not self.number("num_experts"):
            return
        self.made["num_experts"] = experts
        self.take("num_experts_per_tok", needed=True)
        width = self.leaf(self.family.expert_key)
        if width is None:
            self.problems.append(SpecError(f"{self.family.expert_key} is missing", where=self.text.where))
        else:
            self.made["moe_intermediate_size"] = width
        layers = self.moe_layers()
        self.put("moe_layers", layers, f"layer rule of {self.name}")
        if layers == self.size("num_hidden_layers"):
            self.made.pop("intermediate_size", None)  # no dense layer: the key, if there, means something else
        shared = self.leaf(*ALIASES["shared_expert_intermediate_size"])
        count = self.number("shared_experts")
        if shared is not None:
            self.made["shared_expert_intermediate_size"] = shared
        elif count and width is not None and isinstance(width.value, int):
            self.put("shared_expert_intermediate_size", count * width.value, f"{count} shared experts * expert width")
        if self.size("num_experts_per_tok") > self.size("num_experts"):
            message = f"num_experts_per_tok {self.size('num_experts_per_tok')} is above num_experts"
            self.problems.append(SpecError(message, where=experts.where))

    def moe_layers(self) -> int:
        """How many layers hold experts, by the family's rule."""
        layers, rule = self.size("num_hidden_layers"), self.family.moe
        if rule == "first_dense":
            first, every = self.number("first_k_dense_replace"), self.number("moe_layer_freq") or 1
            return len(range(-(-first // every) * every, layers, every))
        if rule == "interleaved":
            step = self.number("interleave_moe_layer_step") or 1
            listed = self.text.entries.get("moe_layers")
            return len(listed.items) if isinstance(listed, Items) else len(range(step - 1, layers, step))
        if rule == "qwen":
            step = self.number("decoder_sparse_step") or 1
            only = self.text.entries.get("mlp_only_layers")
            dense = {item.value for item in only.items if isinstance(item, Leaf)} if isinstance(only, Items) else set()
            sparse = range(step - 1, layers, step)
            return len(sparse) - sum(layer in sparse for layer in dense)
        return layers

    # Habits of single families.

    def _opt(self) -> None:
        self.put("extra_position_rows", 2)
        if not self.flag(("do_layer_norm_before", True))[0]:
            self.refuse("do_layer_norm_before false")
        if self.number("word_embed_proj_dim") not in (0, self.size("hidden_size")):
            self.refuse("word_embed_proj_dim other than hidden_size")

    def _bloom(self) -> None:
        self.put("embedding_norm", True)

    def _gpt_bigcode(self) -> None:
        many, where = self.flag(("multi_query", True))
        if many:
            self.put("num_key_value_heads", 1, where)

    def _falcon(self) -> None:
        """KV heads, parallel block and norms as FalconConfig and FalconDecoderLayer decide."""
        new, where = self.flag(("new_decoder_architecture", False))
        single, told = self.flag(("multi_query", True))
        if not new:
            self.put("num_key_value_heads", 1 if single else self.size("num_attention_heads"), told)
        elif "num_key_value_heads" not in self.made:
            self.put("num_key_value_heads", self.size("num_attention_heads"))
        parallel, place = self.flag(("parallel_attn", True))
        self.put("parallel_block", parallel or new, where if new else place)
        norms = self.number("num_ln_in_parallel_attn") or (2 if new else 1)
        self.put("parallel_norms", norms, where)
        if self.flag(("alibi", False))[0]:
            self.put("position_embedding", "alibi", where)

    def _llama4(self) -> None:
        width = self.made.get("moe_intermediate_size")
        if isinstance(width, Leaf):  # one shared expert as wide as the others, and no key that says so
            self.put("shared_expert_intermediate_size", width.value)

    def _gpt_oss(self) -> None:
        for key in ("attention_sinks", "router_bias", "expert_bias"):
            self.put(key, True)

    def _qwen2_moe(self) -> None:
        self.put("shared_expert_gate", True)

    def _qwen3_next(self) -> None:
        """Three of four layers are gated delta nets, the others have an output gate beside the queries."""
        layers, types = self.size("num_hidden_layers"), self.names("layer_types")
        interval = self.number("full_attention_interval") or 4
        full = types.count("full_attention") if types else layers // interval
        self.put("linear_layers", layers - full, "layer_types" if types else "full_attention_interval")
        for key in (
            "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
            "linear_conv_kernel_dim",
        ):  # fmt: skip
            self.take(key, needed=True)
        self.put("attention_output_gate", True)
        if "num_experts" in self.made:
            self.put("shared_expert_gate", "shared_expert_intermediate_size" in self.made)

    _qwen3_5 = _qwen3_next
    _qwen3_5_moe = _qwen3_next

    def _gemma4(self) -> None:
        """Full layers have heads of their own; in the mixture a dense MLP stands beside the experts."""
        full = self.names("layer_types").count("full_attention")
        width = self.leaf("global_head_dim")
        if full and width is not None:
            self.put("global_layers", full, "layer_types")
            self.made["global_head_dim"] = width
            kv = self.leaf("num_global_key_value_heads")
            self.made["global_num_key_value_heads"] = kv if kv is not None else self.made["num_key_value_heads"]
            same, where = self.flag(("attention_k_eq_v", False))
            self.put("global_keys_are_values", same, where)
        if self.number("hidden_size_per_layer_input"):
            self.refuse("hidden_size_per_layer_input above 0")
        if "num_experts" in self.made:
            self.put("dense_mlp_beside_moe", True)
            self.put("moe_branch_norms", 3)
            self.put("router_scales", True)
            dense = self.leaf("intermediate_size")
            if dense is not None:
                self.made["intermediate_size"] = dense

    def _sparse(self, layers: int, where: str) -> None:
        if self.leaf("index_n_heads") is not None:
            self.take("index_n_heads")
            self.take("index_head_dim", needed=True)
            self.put("index_layers", layers, where)

    def _deepseek_v32(self) -> None:
        self._sparse(self.size("num_hidden_layers"), "every layer")

    def _glm_moe_dsa(self) -> None:
        types = self.names("indexer_types")
        self._sparse(types.count("full") if types else self.size("num_hidden_layers"), "indexer_types")
