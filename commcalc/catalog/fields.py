"""The fields of model, parallelism, workload and links: how each is read, and what it is when nobody says.

A field reads the same from a file, from ``--set`` and from its own option; every wrong value is told with its place.
"""

import math
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from commcalc.document import MAX_NODES, Items, Leaf, Node, Section
from commcalc.errors import CommcalcError, SpecError, UnitError, UnknownName, raise_all
from commcalc.units import parse_bytes, parse_count, parse_dtype, parse_flops, parse_rate, parse_seconds, parse_tokens

if TYPE_CHECKING:  # a start is spared the import where nobody asks for a fraction
    from fractions import Fraction

Reader = Callable[[Leaf], object]


class Field(NamedTuple):
    """One key: how its value is read, and its default (`None`: it stays ungiven)."""

    read: Reader
    default: object = None
    # For messages: what the value should look like.
    like: str = ""
    # All values there are, where they are few and named.
    choices: tuple[str, ...] = ()
    # The value is a list, and ``read`` reads each item of it.
    many: bool = False
    # One value may name several, and a list of such values names them all.
    joined: bool = False


def whole(leaf: Leaf, parse: Callable[[str], int] = parse_count) -> int:
    """A whole number of at least 1."""
    value = leaf.value
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise UnitError(f"{_shown(leaf)} is no whole number")
    if isinstance(value, float) and not math.isfinite(value):
        raise UnitError(f"{_shown(leaf)} is not finite")
    return parse(leaf.text)


def tokens(leaf: Leaf) -> int:
    """A number of tokens of at least 1; ``8K`` is 8192."""
    return whole(leaf, parse_tokens)


def whole_or_zero(leaf: Leaf) -> int:
    """A whole number of at least 0."""
    if isinstance(leaf.value, (int, float)) and not isinstance(leaf.value, bool):
        if not leaf.text.strip("+-0."):
            return 0
        if leaf.value < 0:
            raise UnitError(f"{_shown(leaf)} is below zero")
    return whole(leaf)


def factor(leaf: Leaf) -> "Fraction":
    """A number of at least 1, exact as it is written."""
    found = share(leaf)
    if found < 1:
        raise UnitError(f"{_shown(leaf)} is below 1")
    return found


def share(leaf: Leaf) -> "Fraction":
    """A number above 0, exact as it is written."""
    value = leaf.value
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise UnitError(f"{_shown(leaf)} is no number")
    if not re.fullmatch(r"(\d{1,6}(\.\d{0,18})?|\.\d{1,18})(e[-+]?\d{1,2})?", leaf.text, re.IGNORECASE | re.ASCII):
        raise UnitError(f"{_shown(leaf)} is no such number", hint="write it like 1.25")
    from fractions import Fraction

    found = Fraction(leaf.text)
    if found <= 0:
        raise UnitError(f"{_shown(leaf)} is not above 0")
    return found


def efficiency(leaf: Leaf) -> "Fraction":
    """A share of what is possible: above 0, and at most 1."""
    found = share(leaf)
    if found > 1:
        raise UnitError(f"{_shown(leaf)} is above 1", hint="a share of the peak, like 0.6")
    return found


def layers(leaf: Leaf) -> int:
    """A number of layers, of which each is looked at: at least 1, and no more than a file could list."""
    found = whole(leaf)
    if found > MAX_NODES:
        raise UnitError(f"{found} is above {MAX_NODES} layers", hint="a decoder has some hundred at most")
    return found


def many_whole(field: Field) -> bool:
    """Whether the values of a field are whole numbers, so that a range can list them."""
    return field.read in (whole, tokens, whole_or_zero, layers)


def flag(leaf: Leaf) -> bool:
    """``true`` or ``false``, and nothing that merely looks like it."""
    if not isinstance(leaf.value, bool):
        raise UnitError(f"{_shown(leaf)} is neither true nor false")
    return leaf.value


def text(leaf: Leaf) -> str:
    """Any text that is not empty."""
    if not leaf.text:
        raise UnitError("an empty text")
    if not leaf.text.isprintable():
        raise UnitError(f"{leaf.text[:60]!r} holds control characters")
    return leaf.text


def label(leaf: Leaf) -> str:
    """A text that options and paths can name: no ``.``, ``=`` or space."""
    found = text(leaf)
    if re.search(r"[.=\s]", found):
        raise UnitError(f"{found[:60]!r} is no name: it holds one of . = or a space")
    return found


def one_of(kind: type[StrEnum], default: StrEnum | None = None) -> Field:
    """A field with one of the values of ``kind``."""
    return Field(choice(kind), default, next(iter(kind)), tuple(kind))


def list_of(kind: type[StrEnum]) -> Field:
    """A field with a list of values of ``kind``, one for each layer."""
    words = tuple(kind)
    return Field(choice(kind), (), f"[{words[0]}, {words[1]}, ...]", words, many=True)


def choice(kind: type[StrEnum]) -> Reader:
    """One of the values of ``kind``."""

    def read(leaf: Leaf) -> object:
        if leaf.text not in kind.__members__.values():
            what = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower().removesuffix(" name")
            raise UnknownName(what, leaf.text, [*kind])
        return kind(leaf.text)

    return read


def order(leaf: Leaf) -> tuple[str, ...]:
    """All five axes, innermost first, joined by ``-``."""
    axes = tuple(leaf.text.split("-"))
    if sorted(axes) != sorted(("tp", "cp", "ep", "dp", "pp")):
        raise UnitError(
            f"{leaf.text!r} is no order of the axes", hint="name each once, innermost first: tp-cp-ep-dp-pp"
        )
    return axes


def dtype(leaf: Leaf) -> object:
    """An element type."""
    return parse_dtype(leaf.text)


def quantity(parse: Callable[[str], object]) -> Reader:
    """A number with its unit."""

    def read(leaf: Leaf) -> object:
        if isinstance(leaf.value, bool) or leaf.value is None:
            raise UnitError(f"{_shown(leaf)} is no quantity")
        return parse(leaf.text)

    return read


seconds = quantity(parse_seconds)
rate = quantity(parse_rate)
size = quantity(parse_bytes)
flops = quantity(parse_flops)


def _shown(leaf: Leaf) -> str:
    return "null" if leaf.value is None else repr(leaf.text[:60])


class Read(NamedTuple):
    """The values of a section, where each came from, and what was wrong with others."""

    values: dict[str, object]
    sources: dict[str, str]
    problems: list[CommcalcError]


def read_section(section: Section, fields: Mapping[str, Field], path: str) -> Read:
    """Read every entry of ``section`` by its field; unknown keys, wrong types and values are all collected."""
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    problems: list[CommcalcError] = []
    for key, node in section.entries.items():
        if key not in fields:
            problems.append(UnknownName(f"key in {path}", key, fields, where=section.keys[key]))
            continue
        field = fields[key]
        where = f"{node.where} {path}.{key}"
        try:
            values[key] = _value_of(field, node, where)
            sources[key] = node.where
        except CommcalcError as problem:
            for one in problem.problems:
                hint = one.hint
                if field.like and (hint is None or hint.startswith("write it like ")):
                    hint = f"write it like {field.like}"
                problems.append(SpecError(one.message, where=one.where or where, hint=hint))
    return Read(values, sources, problems)


def _value_of(field: Field, node: Node, where: str) -> object:
    if field.joined and isinstance(node, Items):
        return tuple(dict.fromkeys(chain.from_iterable(_values_of(field, node, where))))
    return _values_of(field, node, where) if field.many else field.read(scalar_of(node, where))


def _values_of(field: Field, node: Node, where: str) -> tuple[Any, ...]:
    """The items of a list; every one that is wrong is told."""
    if isinstance(node, Leaf) and node.value is None:
        raise SpecError("no value", where=where)
    if not isinstance(node, Items):
        kind = "a mapping" if isinstance(node, Section) else "one value"
        raise SpecError(f"{kind} where a list is expected", where=where)
    if not node.items:
        raise SpecError("an empty list", where=where)
    path = where.removeprefix(node.where).strip()
    values: list[Any] = []
    wrong: dict[str, CommcalcError] = {}
    for item in node.items:
        place = f"{item.where} {path}"
        try:
            values.append(field.read(scalar_of(item, place)))
        except CommcalcError as problem:  # a word that stands in many layers is told once
            wrong.setdefault(problem.message, SpecError(problem.message, where=place, hint=problem.hint))
    raise_all(list(wrong.values()))
    return tuple(values)


def scalar_of(node: Node, where: str) -> Leaf:
    """The scalar that stands at ``node``; `SpecError` for a list, a mapping or nothing."""
    if isinstance(node, (Section, Items)):
        kind = "a mapping" if isinstance(node, Section) else "a list"
        raise SpecError(f"{kind} where one value is expected", where=where)
    if node.value is None:
        raise SpecError("no value", where=where)
    return node
