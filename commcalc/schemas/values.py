"""How each value of a file may be written, and what it is once read: by the function that reads it.

A schema refuses what the reader refuses as far as a pattern can say: unknown words, wrong types, missing or unknown
units, negative and zero numbers. It never refuses what the reader takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from commcalc.accounting.choices import NO_MASTER, Part
from commcalc.accounting.rows import AXES
from commcalc.catalog import fields as f
from commcalc.catalog import sections as s
from commcalc.catalog.fields import Field, Reader
from commcalc.catalog.levels import times
from commcalc.document import MAX_NODES
from commcalc.schemas import words as w
from commcalc.transformer.work import Module
from commcalc.units import BINARY, DECIMAL, DTYPE_SPELLINGS, MAX_TEXT, PARAMETERS, SECONDS, TOKENS, Dtype

LARGEST = 2**53 - 1
_NUMBER = r"(?!0[0-9_])([0-9]+(_[0-9]+)*(\.[0-9]*)?|\.[0-9]+)([eE][+-]?0*[0-9]{1,2})?"
_ABOVE_ZERO = r"(?=[0-9_.]*[1-9])"


class Value(NamedTuple):
    """What stands in a file, and what it is once it is read."""

    written: w.Node
    read: Mapping[str, Any]


def _any(parts: Iterable[str]) -> str:
    return "(" + "|".join(re.escape(part).replace(r"\-", "-") for part in parts) + ")"


def _either_case(text: str) -> str:
    return "".join(f"[{one.lower()}{one.upper()}]" if one.isalpha() else re.escape(one) for one in text)


def _quantity(units: str, *, zero: bool) -> dict[str, Any]:
    """Text of a number and a unit."""
    above = "" if zero else _ABOVE_ZERO
    return {"type": "string", "maxLength": MAX_TEXT, "pattern": rf"^\s*\+?{above}{_NUMBER}\s*{units}\s*$"}


def _whole(*, least: int = 1, most: int = LARGEST, units: str = "") -> dict[str, Any]:
    return {"anyOf": [{"type": "integer", "minimum": least, "maximum": most}, _quantity(units, zero=False)]}


def _share(text: str, **bounds: float) -> dict[str, Any]:
    """A number, or its digits; ``text`` is what they look like without an exponent, and with one anything may be."""
    digits = r"([0-9]{1,6}(\.[0-9]{0,18})?|\.[0-9]{1,18})"
    pattern = rf"^(?=[0-9.]*[1-9])((?={text}$){digits}|{digits}[eE][-+]?[0-9]{{1,2}})$"
    return {"anyOf": [{"type": "number", **bounds}, {"type": "string", "pattern": pattern}]}


def _listed(known: Iterable[str], alone: Iterable[str] = ()) -> dict[str, Any]:
    """Words joined by commas, or a list of such; those ``alone`` stand beside no others."""
    known, alone = [str(word) for word in known], [str(word) for word in alone]
    several = {"type": "string", "pattern": rf"^\s*{_any(known)}\s*(,\s*{_any(known)}\s*)*$"}
    lists = [{"type": "array", "minItems": 1, "items": {"anyOf": [{"enum": known}, several]}}]
    lists += [{"type": "array", "minItems": 1, "items": {"const": word}} for word in alone]
    single = [{"type": "string", "pattern": rf"^\s*{word}\s*(,\s*{word}\s*)*$"} for word in alone]
    return {"anyOf": [{"enum": [*known, *alone]}, several, *single, *lists]}


_SCALAR = {"type": ["string", "number", "boolean"]}
_DATA = (
    "(" + _any(prefix for prefix in DECIMAL if prefix) + "|" + _any(BINARY) + ")?(Bytes|bytes|byte|bits|bit|B|b)"
)  # fmt: skip
_DTYPES = "|".join(_either_case(name) for name in (*Dtype, *DTYPE_SPELLINGS))
_ORDER = "".join(f"(?=.*{axis})" for axis in AXES) + rf"{_any(AXES)}(-{_any(AXES)}){{{len(AXES) - 1}}}"

TEXT = w.Named("text", {**_SCALAR, "minLength": 1, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$"})
LABEL = w.Named(
    "label",
    {"anyOf": [{"type": "string", "pattern": r"^[^.=\s]+$"}, {"type": ["integer", "boolean"]}]},
)  # fmt: skip
WHOLE = w.Named("whole", _whole())
WHOLE_OR_ZERO = w.Named("whole_or_zero", _whole(least=0))
SIZE = w.Named("size", _quantity(_DATA, zero=True))
TIME = w.Named("time", _quantity(_any(SECONDS), zero=True))
RATE = w.Named("rate", _quantity(rf"{_DATA}(/s|ps)", zero=False))
FLOPS = w.Named("flops", _quantity(_any(one for one in DECIMAL if one) + "?(FLOP/s|FLOPS|OP/s)", zero=False))
# Any spelling of an element type, and those of mapping keys that are no canonical one.
DTYPE_PATTERN = rf"^\s*([tT][oO][rR][cC][hH]\.)?([jJ][nN][pP]\.)?([nN][pP]\.)?({_DTYPES})\s*$"
DTYPE = w.Named("dtype", {"anyOf": [{"enum": [*map(str, Dtype)]}, {"type": "string", "pattern": DTYPE_PATTERN}]})

_DTYPE_READ = w.words(Dtype, "")
_WHOLE_READ: Mapping[str, Any] = {"type": "integer", "minimum": 0}
_NUMBER_READ: Mapping[str, Any] = {"type": "number", "minimum": 0}
_TEXT_READ: Mapping[str, Any] = {"type": "string"}
# By the reader of a field; one that reads a choice is known by the field's words.
READERS: Mapping[Reader, Value] = {
    f.whole: Value(WHOLE, _WHOLE_READ),
    f.whole_or_zero: Value(WHOLE_OR_ZERO, _WHOLE_READ),
    f.layers: Value(w.Named("layers", _whole(most=MAX_NODES)), _WHOLE_READ),
    f.tokens: Value(w.Named("tokens", _whole(units=_any(unit for unit in TOKENS if unit) + "?")), _WHOLE_READ),
    s.many: Value(
        w.Named("many", _whole(units="(" + "|".join(_either_case(unit) for unit in PARAMETERS if unit) + ")?")),
        _WHOLE_READ,
    ),
    f.flag: Value({"type": "boolean"}, {"type": "boolean"}),
    f.text: Value(TEXT, _TEXT_READ),
    f.label: Value(LABEL, _TEXT_READ),
    f.share: Value(w.Named("share", _share(r"[0-9.]+", exclusiveMinimum=0)), _NUMBER_READ),
    f.factor: Value(w.Named("factor", _share(r"0*[1-9][0-9.]*", minimum=1)), _NUMBER_READ),
    f.efficiency: Value(
        w.Named("efficiency", _share(r"0*(1(\.0*)?|\.[0-9]+)", exclusiveMinimum=0, maximum=1)), _NUMBER_READ
    ),
    f.seconds: Value(TIME, _NUMBER_READ),
    f.rate: Value(RATE, _NUMBER_READ),
    f.size: Value(SIZE, _WHOLE_READ),
    f.flops: Value(FLOPS, _NUMBER_READ),
    f.dtype: Value(DTYPE, {"enum": _DTYPE_READ["enum"]}),
    s.master: Value({"anyOf": [DTYPE, {"const": NO_MASTER}]}, {"enum": [*_DTYPE_READ["enum"], NO_MASTER]}),
    f.order: Value({"type": "string", "pattern": f"^{_ORDER}$"}, {"type": "string", "pattern": f"^{_ORDER}$"}),
    s.modules: Value(_listed(Module), {"type": "array", "items": {"enum": [*map(str, Module)]}}),
    s.parts: Value(_listed(Part), {"type": "array", "items": {"enum": [*map(str, Part)]}}),
    s.overlap: Value(_listed(AXES, ("none", "full")), {"type": "array", "items": {"enum": [*AXES]}}),
    times: Value(
        {"anyOf": [
            {"type": "number", "minimum": 1, "exclusiveMaximum": 1e9},
            {"type": "string", "pattern": r"^(?=0*[1-9])[0-9]{1,9}(\.[0-9]{1,9})?(:1)?$"},
        ]},
        {"type": "number", "minimum": 1},
    ),
}  # fmt: skip


def value_of(field: Field) -> Value:
    """How the value of a field is written, and what it is once read."""
    if field.read is f.whole_or_zero and field.choices:
        numbers = [int(choice) for choice in field.choices]
        written = {"anyOf": [{"enum": numbers}, {"enum": [str(number) for number in numbers if number]}]}
        return Value(written, {"enum": numbers})
    if field.read in READERS:
        return READERS[field.read]
    if not field.choices:
        raise KeyError(f"no schema for what {field.read} reads")
    one = {"enum": [str(choice) for choice in field.choices]}
    if field.many:
        return Value({"type": "array", "minItems": 1, "items": one}, {"type": "array", "items": one})
    return Value(one, one)


def written(field: Field, tells: str) -> dict[str, Any]:
    """The schema of a field in a file, with its meaning and default."""
    node = value_of(field).written
    like = f", like {field.like}" if field.like and not field.choices else ""
    found: dict[str, Any] = {"description": f"{tells}{like}"}
    if isinstance(field.default, (bool, int, str)) and field.default != "":
        found["default"] = str(field.default) if isinstance(field.default, str) else field.default
    return {**found, **node} if isinstance(node, Mapping) else {**found, "allOf": [node]}


def resolved(field: Field, tells: str, *, null: bool) -> dict[str, Any]:
    """The schema of a field once it is read, as documents have it."""
    node = dict(value_of(field).read)
    if null:
        if "enum" in node:
            node["enum"] = [*node["enum"], None]
        else:
            node["type"] = [node["type"], "null"]
    return {**node, "description": tells + _UNITS.get(field.read, "")}


_UNITS: Mapping[Reader, str] = {
    f.size: ", in bytes", f.seconds: ", in seconds", f.rate: ", in bytes per second", f.flops: ", in FLOP/s",
}  # fmt: skip
