"""YAML text to plain values that know their line: safe for whatever people feed in.

PyYAML's event stream is turned into a `Section` of `Leaf` values without recursion. Scalars follow YAML 1.2: only
``true``/``false`` are truth values (``no`` is text), ``012`` and ``1:30`` are text, ``197e12`` is the number it is.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from commcalc.errors import SpecError

MAX_BYTES = 2**20
MAX_DEPTH = 32
MAX_NODES = 20_000

_INT = re.compile(r"[+-]?(0|[1-9][0-9]*(_[0-9]+)*)$")
_FLOAT = re.compile(r"[+-]?([0-9]+(_[0-9]+)*\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?$")
_SPECIAL = {"": None, "~": None, "null": None, "Null": None, "NULL": None,
            "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}  # fmt: skip


class Leaf(NamedTuple):
    """A scalar and the place it stands at; ``text`` is as it was written."""

    value: str | int | float | bool | None
    text: str
    where: str


class Items:
    """A YAML list."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.items: list[Node] = []


class Section:
    """A YAML mapping with text keys; ``keys`` is where each key itself stands, for messages about the key."""

    def __init__(self, where: str, entries: dict[str, Node] | None = None, keys: dict[str, str] | None = None) -> None:
        self.where = where
        self.entries: dict[str, Node] = {} if entries is None else entries
        self.keys: dict[str, str] = {} if keys is None else keys


Node = Leaf | Items | Section


def read_text(path: str) -> str:
    """The UTF-8 text of a file of at most 1 MiB; `SpecError` says why it cannot be read."""
    return decode(read_bytes(path), path)


def read_bytes(path: str) -> bytes:
    """The first bytes of a file, one more than `decode` allows; `SpecError` says why it cannot be read."""
    if "\0" in path:
        raise SpecError("no path: it holds a character that paths cannot", where=repr(path[:80]))
    if os.path.isdir(path):
        raise SpecError("a folder, not a file", where=path)
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise SpecError(f"cannot be read: {(problem.strerror or str(problem)).lower()}", where=path) from None


def decode(data: bytes, name: str) -> str:
    """Bytes of a file as text; refuses what is too large, binary or not UTF-8."""
    if len(data) > MAX_BYTES:
        raise SpecError(f"larger than {MAX_BYTES} bytes", where=name, hint="a job, model or hardware file is a few kB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise SpecError(
            f"not UTF-8 text: byte {data[problem.start]:#04x} at offset {problem.start}",
            where=name,
            hint="save the file as UTF-8",
        ) from None


def parse_document(text: str, name: str) -> Section:
    """The mapping that a YAML (or JSON) document holds; `SpecError` names line and column of what is wrong."""
    import yaml

    try:
        text.encode()
    except UnicodeEncodeError:  # bytes of a command line that are no UTF-8
        raise SpecError("not UTF-8 text", where=name) from None
    try:
        return _Reader(name).read(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise SpecError(f"not valid YAML: {problem.problem or problem.context}", where=place) from None
    except yaml.YAMLError as problem:
        raise SpecError(f"not valid YAML: {str(problem).splitlines()[0]}", where=name) from None


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes = 0
        self.anchors: dict[str, Node] = {}
        # Open collections, and for mappings the key that waits for its value.
        self.open: list[Section | Items] = []
        self.keys: list[tuple[str, str] | None] = []

    def read(self, events: Iterator[object]) -> Section:
        import yaml

        root: Node | None = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise SpecError(
                        "a second document begins here", where=self.place(event), hint="one document a file"
                    )
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                closed = self.open.pop()
                self.keys.pop()
                if not self.open:
                    root = closed
            elif isinstance(event, yaml.NodeEvent):
                node = self.node(event)
                if not self.open:
                    root = node
                self.attach(node)
                if not isinstance(node, Leaf) and isinstance(event, yaml.CollectionStartEvent):
                    self.descend(node, event)
        if root is None or (isinstance(root, Leaf) and root.value is None):
            raise SpecError("the file is empty", where=self.name, hint="write keys and values, like `tp: 8`")
        if not isinstance(root, Section):
            raise SpecError("no mapping of keys to values", where=self.name, hint="write keys and values, like `tp: 8`")
        return root

    def node(self, event: Any) -> Node:
        import yaml

        where = self.place(event)
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise SpecError(f"more than {MAX_NODES} values", where=where)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(str(event.anchor), where)
        if event.tag is not None and event.tag != "!":
            raise SpecError(f"the tag {event.tag} is not allowed", where=where)
        if isinstance(event, yaml.ScalarEvent):
            text = event.value
            node: Node = Leaf(text if event.style in ("'", '"', "|", ">") else scalar(text), text, where)
        else:
            node = Section(where) if isinstance(event, yaml.MappingStartEvent) else Items(where)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def alias(self, anchor: str, where: str) -> Node:
        if anchor not in self.anchors:
            raise SpecError(f"the alias *{anchor} has no anchor before it", where=where)
        node = self.anchors[anchor]
        if not isinstance(node, Leaf) and any(node is outer for outer in self.open):
            raise SpecError(f"the alias *{anchor} stands inside what it names", where=where)
        self.nodes += _count(node, MAX_NODES)
        if self.nodes > MAX_NODES:
            raise SpecError(f"more than {MAX_NODES} values", where=where)
        return _copy(node)

    def attach(self, node: Node) -> None:
        if not self.open:
            return
        parent = self.open[-1]
        if isinstance(parent, Items):
            parent.items.append(node)
            return
        waiting = self.keys[-1]
        if waiting is None:
            if not isinstance(node, Leaf):
                raise SpecError("a key must be text", where=node.where)
            if node.text in parent.entries:
                raise SpecError(
                    f"the key {node.text[:80]!r} stands twice",
                    where=node.where,
                    hint=f"first at {parent.keys[node.text]}",
                )
            self.keys[-1] = (node.text, node.where)
            return
        key, where = waiting
        parent.entries[key] = node
        parent.keys[key] = where
        self.keys[-1] = None

    def descend(self, node: Section | Items, event: object) -> None:
        if len(self.open) >= MAX_DEPTH:
            raise SpecError(f"nested deeper than {MAX_DEPTH}", where=self.place(event))
        self.open.append(node)
        self.keys.append(None)

    def place(self, event: Any) -> str:
        mark = event.start_mark
        return f"{self.name}:{mark.line + 1}:{mark.column + 1}"


def _copy(node: Node) -> Node:
    """The same values anew, so that a change of one does not change the other; depth is bounded by the reader."""
    if isinstance(node, Section):
        return Section(node.where, {key: _copy(value) for key, value in node.entries.items()}, dict(node.keys))
    if isinstance(node, Items):
        found = Items(node.where)
        found.items = [_copy(item) for item in node.items]
        return found
    return node


def plain(node: Node) -> object:
    """The value alone, without places; what is no finite number is text. Depth is bounded by the reader."""
    if isinstance(node, Section):
        return {key: plain(value) for key, value in node.entries.items()}
    if isinstance(node, Items):
        return [plain(item) for item in node.items]
    return node.text if isinstance(node.value, float) and not math.isfinite(node.value) else node.value


def _count(node: Node, most: int) -> int:
    """Values below ``node``, counted no further than ``most``."""
    count, waiting = 0, [node]
    while waiting and count <= most:
        count += 1
        now = waiting.pop()
        if isinstance(now, Section):
            waiting += now.entries.values()
        elif isinstance(now, Items):
            waiting += now.items
    return count


def scalar(text: str) -> str | int | float | bool | None:
    """An unquoted scalar by the rules of YAML 1.2, with ``197e12`` read as a number.

    >>> scalar("197e12"), scalar("no"), scalar("8"), scalar("012")
    (197000000000000.0, 'no', 8, '012')
    """
    if text in _SPECIAL:
        return _SPECIAL[text]
    if len(text) <= 60:
        if _INT.match(text):
            return int(text.replace("_", ""))
        if _FLOAT.match(text) and not re.match(r"[+-]?0\d", text):
            return float(text.replace("_", ""))
    return text
