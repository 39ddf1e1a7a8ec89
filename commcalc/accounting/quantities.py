"""What a number of a document is measured in, by the name of its field: how it is read, and how it is shown."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

from commcalc.accounting.rows import GROUPS
from commcalc.document import Leaf
from commcalc.errors import UnitError
from commcalc.units import (
    format_bytes,
    format_flops,
    format_rate,
    format_seconds,
    parse_count,
    parse_flops,
    parse_payload,
    parse_rate,
    parse_seconds,
)

_SHARES = ("share", "mfu", "hfu", "bubble_fraction", "efficiency", "hbm_efficiency")
_BARE_UNITS = ("share", "count", "number")
# Bytes beyond which no bound is meant: a yottabyte.
_MOST_BYTES = 10**24
_PERCENT = re.compile(r"(\d{1,6}(?:\.\d{0,12})?|\.\d{1,12})(?:\s*(%))?", re.ASCII)
_BARE = re.compile(r"[+-]?[\d._]+([eE][+-]?\d+)?", re.ASCII)


class Quantity(NamedTuple):
    """A unit: its name, how a bound in it is read from text, how a value of it is shown, and an example."""

    unit: str
    parse: Callable[[str], float]
    shown: Callable[[float], str]
    like: str


def quantity_of(path: str, value: object) -> Quantity:
    """What the field of ``path`` is measured in; ``value`` tells a count from another number.

    >>> quantity_of("totals.block.tp.wire_bytes", 0).unit, quantity_of("step.exposed.tp", 0.0).unit
    ('bytes', 'seconds')
    """
    keys = path.split(".")
    name = keys[-1]
    if len(keys) > 1 and (name in GROUPS or "flops" in keys[:-1]):  # of a group, or of a type
        name = keys[-2]
    if name.endswith("bytes_per_s"):
        return RATE
    if name.endswith("bytes"):
        return SIGNED_BYTES if name.startswith("margin") else BYTES
    if name == "exposed" or (name.endswith("_s") and not name.endswith("per_s")):
        return SECONDS
    if name in _SHARES or name.endswith("_share"):
        return SHARE
    if name == "flops" and name != keys[-1]:
        return FLOPS
    return COUNT if isinstance(value, int) and "flops" not in name else NUMBER


def bound_of(leaf: Leaf, quantity: Quantity) -> float:
    """The number that a bound writes; `UnitError` where it is none of this unit, or not finite."""
    if isinstance(leaf.value, bool) or leaf.value is None:
        shown = repr(leaf.text) if leaf.text else "nothing"
        raise UnitError(f"{shown} is no number", hint=f"write it like {quantity.like}")
    if isinstance(leaf.value, float) and not math.isfinite(leaf.value):
        raise UnitError(f"{leaf.text[:60]!r} is not finite", hint=f"write it like {quantity.like}")
    try:
        return quantity.parse(leaf.text.strip())
    except UnitError as problem:
        message = problem.message
        if quantity.unit not in message:
            message += f": the field is {'a' if quantity.unit in _BARE_UNITS else 'in'} {quantity.unit}"
        raise UnitError(message, hint=f"write it like {quantity.like}") from None


def share_of(text: str, most: float = 1.0) -> float:
    """A share as it is or in percent.

    >>> share_of("25%"), share_of("0.25")
    (0.25, 0.25)
    """
    found = _PERCENT.fullmatch(text)
    if found is None:
        raise UnitError(f"{text[:60]!r} is no share")
    value = float(found.group(1)) / 100 if found.group(2) else float(found.group(1))
    if not found.group(2) and value > 1:
        raise UnitError(f"{text[:60]!r} is above 1 and has no %: a share is at most 1")
    if value > most:
        raise UnitError(f"{text[:60]!r} is above {100 * most:g}%")
    return value


def tolerance_of(text: str) -> float:
    """How far a measured value may be off, as a share of the predicted one; more than 100 % is possible."""
    return share_of(text, math.inf)


def _bytes(text: str) -> float:
    value = 0 if _is_zero(text) else parse_payload(text)
    if value > _MOST_BYTES:
        raise UnitError(f"{text[:60]!r} is too large")
    return value


def _signed(text: str) -> float:
    return -_bytes(text[1:].strip()) if text.startswith("-") else _bytes(text)


def _with_unit(parse: Callable[[str], float], unit: str) -> Callable[[str], float]:
    """Bare numbers are in the unit that the field's name ends in, as the document prints them."""
    return lambda text: parse(f"{text}{unit}" if _BARE.fullmatch(text) else text)


def _rate(text: str) -> float:
    return 0.0 if _is_zero(text) else parse_rate(text)


def _count(text: str) -> float:
    return 0 if _is_zero(text) else parse_count(text)


def _is_zero(text: str) -> bool:
    return not text.strip("0.") and "0" in text


def _number(text: str) -> float:
    if not _BARE.fullmatch(text):
        raise UnitError(f"{text[:60]!r} is no number without a unit")
    try:
        value = float(text)
    except ValueError:
        raise UnitError(f"{text[:60]!r} is no number") from None
    if not math.isfinite(value):
        raise UnitError(f"{text[:60]!r} is not finite")
    return value


BYTES = Quantity("bytes", _bytes, lambda value: f"{format_bytes(round(value))} B", "1 GB")
SIGNED_BYTES = Quantity("bytes", _signed, BYTES.shown, "8 GB")
SECONDS = Quantity(
    "seconds", _with_unit(parse_seconds, "s"),
    lambda value: f"{'-' if value < 0 else ''}{format_seconds(abs(value))}", "5.2 ms",
)  # fmt: skip
RATE = Quantity("bytes per second", _with_unit(_rate, "B/s"), format_rate, "450 GB/s")
FLOPS = Quantity("FLOP/s", _with_unit(parse_flops, "FLOP/s"), format_flops, "989 TFLOP/s")
SHARE = Quantity("share", share_of, lambda value: f"{100 * value:.4g} %", "0.25 or 25%")
COUNT = Quantity("count", _count, lambda value: f"{value:,}", "196")
NUMBER = Quantity("number", _number, lambda value: f"{value:,}", "1.5")
