"""What a ``config.json`` says of quantised weights that matters to a layout: how many columns share one scale.

The wire carries activations, which keep their dtype; but a group of columns with one scale stays on one rank.
"""

from __future__ import annotations

from commcalc.document import Items, Leaf, Node, Section
from commcalc.ingest.hf_reader import Reader

_CONFIGS = ("quantization_config", "compression_config")
# Where GPTQ, AWQ and block-wise FP8 write the size of a group.
_KEYS = ("group_size", "q_group_size", "weight_block_size")


def group_size(reader: Reader) -> Leaf | None:
    """The largest group of a quantised model; None where scales bind nothing (one a column, or none)."""
    for key in _CONFIGS:
        config = reader.mapping(key)
        if config is None:
            continue
        groups = reader.mapping("config_groups", config)  # compressed-tensors nests one for each group of layers
        nested = [one for one in groups.entries.values() if isinstance(one, Section)] if groups else []
        weights = [reader.mapping("weights", one) for one in nested]
        sizes = [size for part in (config, *weights) if part is not None for size in _sizes(reader, part)]
        if sizes:
            return max(sizes, key=lambda leaf: int(leaf.value or 0))
    return None


def _sizes(reader: Reader, section: Section) -> list[Leaf]:
    """The whole numbers above zero that a mapping gives; -1 and null mean a scale for each column."""
    found: list[Leaf] = []
    for key in _KEYS:
        node = section.entries.get(key)
        nodes: list[Node] = node.items if isinstance(node, Items) else [] if node is None else [node]
        for one in nodes:
            if not isinstance(one, Leaf) or (one.value is not None and (type(one.value) is not int or one.value < -1)):
                shown = repr(one.text[:60]) if isinstance(one, Leaf) else "what stands here"
                hint = "a whole number of columns, or -1 for a scale for each"
                reader.tell(f"{shown} is no size of a group", one.where, key, hint)
            elif one.value is not None and int(one.value) > 0:
                found.append(one)
    return found
