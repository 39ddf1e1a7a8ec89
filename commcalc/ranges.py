"""Lists and ranges of degrees and sizes: ``1,2,4``, ``1..16``, ``1..64:x2``, ``4096..8192:1024``."""

from __future__ import annotations

from commcalc.errors import UnitError
from commcalc.units import parse_tokens as parse_count

MOST = 100_000


def parse_range(text: str) -> list[int]:
    """The values in the order given; ``a..b:xN`` multiplies, ``a..b:N`` adds, both ends included.

    >>> parse_range("1,2,4"), parse_range("1..8:x2"), parse_range("1..4")
    ([1, 2, 4], [1, 2, 4, 8], [1, 2, 3, 4])
    """
    values: list[int] = []
    for part in text.split(","):
        values += _part(part.strip())
        if len(values) > MOST:
            raise UnitError(f"{text[:60]!r} is more than {MOST} values")
    return list(dict.fromkeys(values))


def _part(text: str) -> list[int]:
    span, colon, step = text.partition(":")
    first, dots, last = span.partition("..")
    if not dots:
        if colon:
            raise UnitError(f"{text[:60]!r} has a step but no range", hint="write a range like 1..64:x2")
        return [parse_count(first)]
    start, end = parse_count(first), parse_count(last)
    if end < start:
        raise UnitError(f"{text[:60]!r} is an empty range: {end} is below {start}")
    times = step.startswith("x")
    by = parse_count(step.removeprefix("x")) if colon else 1
    if times and by == 1:
        raise UnitError(f"{text[:60]!r} never ends: a range multiplied by 1", hint="write a range like 1..64:x2")
    if not times:
        if (end - start) // by >= MOST:
            raise UnitError(f"{text[:60]!r} is more than {MOST} values")
        return list(range(start, end + 1, by))
    found = []
    while start <= end:
        found.append(start)
        start *= by
    return found
