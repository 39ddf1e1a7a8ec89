"""What a ``config.json`` says of quantised weights that matters to a layout: how many columns share one scale.

The wire carries activations, which keep their dtype; but a group of columns with one scale stays on one rank.
"""

from __future__ import annotations

from commcalc.document import Items, Leaf, Node, Section

_CONFIGS = ("quantization_config", "compression_config")
# Where GPTQ, AWQ and block-wise FP8 write the size of a group.
_KEYS = ("group_size", "q_group_size", "weight_block_size")


def group_size(config: Section) -> Leaf | None:
    """The largest group of a quantised model; None where scales bind nothing (one a column, or none)."""
    for key in _CONFIGS:
        node = config.entries.get(key)
        if isinstance(node, Section):
            groups = node.entries.get("config_groups")  # compressed-tensors nests a mapping for each group of layers
            nested = groups.entries.values() if isinstance(groups, Section) else ()
            weights = [one.entries.get("weights") for one in nested if isinstance(one, Section)]
            sizes = [size for part in (node, *weights) if isinstance(part, Section) for size in _sizes(part)]
            if sizes:
                return max(sizes, key=lambda leaf: int(leaf.text))
    return None


def _sizes(section: Section) -> list[Leaf]:
    """The whole numbers above zero that a mapping gives; -1 and null mean a scale for each column."""
    nodes: list[Node] = []
    for key in _KEYS:
        node = section.entries.get(key)
        nodes += node.items if isinstance(node, Items) else [] if node is None else [node]
    return [node for node in nodes if isinstance(node, Leaf) and type(node.value) is int and node.value > 0]
