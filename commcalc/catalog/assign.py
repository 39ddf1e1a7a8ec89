"""Single values laid over a job: ``--tp 8`` and ``--set model.num_hidden_layers=4``."""

from typing import NamedTuple

from commcalc.catalog.sections import SECTIONS
from commcalc.document import Items, Leaf, Node, Section, parse_document, scalar
from commcalc.errors import UnknownName, UsageError


class Assignment(NamedTuple):
    """One value from the command line: ``parallelism.tp`` from ``--tp 8``."""

    path: str
    text: str
    origin: str


def assign(root: Section, assignment: Assignment) -> None:
    """Set one value of the tree; `UnknownName` with the nearest known keys where the path leads nowhere."""
    parts = assignment.path.split(".")
    place = assignment.origin
    if parts[0] not in SECTIONS:
        raise UnknownName("section", parts[0], SECTIONS, where=place)
    if len(parts) < 2:
        raise UsageError(f"{assignment.path} is a section; name a key in it", where=place)
    fields = SECTIONS[parts[0]]
    if fields and (len(parts) > 2 or parts[1] not in fields):
        raise UnknownName(f"key in {parts[0]}", ".".join(parts[1:]), fields, where=place)
    node: Node = root
    for part in parts[:-1]:
        node = _child(node, part, place)
    if not isinstance(node, Section):
        raise UsageError(f"{assignment.path} names no single value", where=place, hint="name a key of a level")
    value = _value(assignment)
    if isinstance(value, Leaf) and value.value is None and value.text:  # null takes a value away
        node.entries.pop(parts[-1], None)
        return
    node.entries[parts[-1]] = value
    node.keys[parts[-1]] = place


def _value(assignment: Assignment) -> Node:
    """A scalar, the mapping that ``{...}`` writes, or the list that ``[...]`` writes."""
    if assignment.text.lstrip().startswith("{"):
        return parse_document(assignment.text, assignment.origin)
    if assignment.text.lstrip().startswith("["):
        return parse_document(f"list: {' '.join(assignment.text.split())}", assignment.origin).entries["list"]
    return Leaf(scalar(assignment.text), assignment.text, assignment.origin)


def _child(node: Node, part: str, place: str) -> Node:
    """What lies under ``part``; an empty section where nothing did, for the reader to judge its keys."""
    if isinstance(node, Items):  # the levels of a network go by their names
        named = {
            leaf.text: item
            for item in node.items
            if isinstance(item, Section) and isinstance(leaf := item.entries.get("name"), Leaf)
        }
        if part not in named:
            raise UnknownName("level", part, named, where=place)
        return named[part]
    if not isinstance(node, Section):
        raise UsageError(f"nothing lies below a single value: {part}", where=place)
    if not isinstance(node.entries.get(part), (Section, Items)):
        node.entries[part] = Section(place)
        node.keys.setdefault(part, place)
    return node.entries[part]
