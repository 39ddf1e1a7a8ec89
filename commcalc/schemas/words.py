"""The words in which schemas are written: fields with their meaning and unit, records of fields, documents.

    PHASE = Record("phase", "One phase of a collective over several levels", {
        "level": text("Level of the network"),
        "time_s": seconds("Time of it"),
    })

A record that stands in several places is written once there, under ``$defs``. All fields of a record are required but
those in ``may``, and no others are allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

# A JSON Schema in which a Record may stand wherever a schema may.
Node: TypeAlias = "Mapping[str, Any] | Record | Named"


class Record(NamedTuple):
    """An object with fixed fields: all of ``fields`` are there, of ``may`` some, besides them only ``others``."""

    name: str
    tells: str
    fields: Mapping[str, Node]
    may: Mapping[str, Node] = {}
    others: Node | None = None


class Named(NamedTuple):
    """A value that stands in many places, like a size with its unit."""

    name: str
    node: Mapping[str, Any]


class Document(NamedTuple):
    """What a command writes: ``fields`` after ``schema`` and ``version``, and the records of its lines.

    ``forms`` are the fields that differ where a command has answers of several forms; each has those of ``fields`` too.
    """

    number: str | None
    tells: str
    fields: Mapping[str, Node]
    may: Mapping[str, Node] = {}
    lines: Sequence[Record] = ()
    forms: Sequence[Mapping[str, Node]] = ()
    others: Node | None = None

    def node(self) -> dict[str, Any]:
        """The schema, records still in it."""
        head: dict[str, Node] = {}
        if self.number is not None:
            head = {
                "schema": {"const": self.number, "description": "Raised when a field changes its name or meaning"},
                "version": text("Of commcalc"),
            }
        bodies = [_object({**head, **form, **self.fields}, self.may, self.others) for form in self.forms or ({},)]
        return {
            "title": self.number or self.tells,
            "description": self.tells,
            **(bodies[0] if len(bodies) == 1 else {"anyOf": bodies}),
        }

    def line(self) -> dict[str, Any]:
        """The schema of one line of ``jsonl``."""
        what = f"One line of jsonl: {self.tells}"
        return {"description": what, **({"anyOf": [*self.lines]} if len(self.lines) > 1 else _whole(self.lines[0]))}


def _whole(record: Record) -> dict[str, Any]:
    return {"title": record.name, **_object(record.fields, record.may, record.others)}


def _object(fields: Mapping[str, Node], may: Mapping[str, Node], others: Node | None) -> dict[str, Any]:
    more = False if others is None else others
    return {"type": "object", "properties": {**fields, **may}, "required": list(fields), "additionalProperties": more}


def assembled(node: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with every record under ``$defs`` and a ``$ref`` where it stood."""
    defs: dict[str, Any] = {}
    seen: dict[str, Record | Named] = {}

    def placed(value: Any) -> Any:
        if isinstance(value, (Record, Named)):
            if seen.setdefault(value.name, value) is not value:
                raise ValueError(f"two things are called {value.name}")
            if value.name not in defs:
                defs[value.name] = {}  # holds its place in the order
                defs[value.name] = placed(
                    value.node
                    if isinstance(value, Named)
                    else {"description": value.tells, **_object(value.fields, value.may, value.others)}
                )
            return {"$ref": f"#/$defs/{value.name}"}
        if isinstance(value, Mapping):
            return {key: placed(inner) for key, inner in value.items()}
        return [placed(inner) for inner in value] if isinstance(value, (list, tuple)) else value

    found: dict[str, Any] = placed(node)
    return found | ({"$defs": defs} if defs else {})


def _typed(kind: str, tells: str, *, null: bool, **more: Any) -> dict[str, Any]:
    return {"type": [kind, "null"] if null else kind, "description": tells, **more}


def text(tells: str, *, null: bool = False) -> dict[str, Any]:
    """Any text."""
    return _typed("string", tells, null=null)


def flag(tells: str, *, null: bool = False) -> dict[str, Any]:
    """True or false."""
    return _typed("boolean", tells, null=null)


def whole(tells: str, *, null: bool = False, least: int | None = 0) -> dict[str, Any]:
    """A whole number."""
    return _typed("integer", tells, null=null, **({} if least is None else {"minimum": least}))


def number(tells: str, *, null: bool = False, least: float | None = 0) -> dict[str, Any]:
    """A number without unit."""
    return _typed("number", tells, null=null, **({} if least is None else {"minimum": least}))


def size(tells: str, *, null: bool = False, least: int | None = 0) -> dict[str, Any]:
    """A whole number of bytes."""
    return whole(f"{tells}, in bytes", null=null, least=least)


def seconds(tells: str, *, null: bool = False, least: float | None = 0) -> dict[str, Any]:
    """A time."""
    return number(f"{tells}, in seconds", null=null, least=least)


def rate(tells: str, *, null: bool = False) -> dict[str, Any]:
    """Bytes per second, one direction."""
    return number(f"{tells}, in bytes per second, one direction", null=null)


def words(known: Iterable[str], tells: str, *, null: bool = False) -> dict[str, Any]:
    """One of these words."""
    return {"enum": [*(str(word) for word in known), *([None] if null else [])], "description": tells}


def listed(of: Node, tells: str, *, null: bool = False, **more: Any) -> dict[str, Any]:
    """A list."""
    return _typed("array", tells, null=null, items=of, **more)


def keyed(of: Node, tells: str, names: Iterable[str] = (), *, null: bool = False) -> dict[str, Any]:
    """A mapping whose keys are data; with ``names`` some of these."""
    known = [str(name) for name in names]
    return _typed(
        "object", tells, null=null, additionalProperties=of, **({"propertyNames": {"enum": known}} if known else {})
    )


def either(*nodes: Node, tells: str = "") -> dict[str, Any]:
    """One of several."""
    return {**({"description": tells} if tells else {}), "anyOf": [*nodes]}


def maybe(node: Node, tells: str = "") -> dict[str, Any]:
    """The same, or null."""
    return either(node, {"type": "null"}, tells=tells)
