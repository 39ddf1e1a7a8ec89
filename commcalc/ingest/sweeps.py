"""Sweeps of collective benchmarks as read from a log, and the words and numbers that such logs are made of."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from commcalc.algebra.collective import Kind

# OSU's size of these is what one rank gives or gets from one peer.
_SHARED_OUT = (Kind.ALL_GATHER, Kind.ALL_TO_ALL)


class Row(NamedTuple):
    """One size of a sweep: seconds of the mean call, out of place and in place."""

    size_bytes: int
    out_s: float | None
    in_s: float | None
    line: int

    @property
    def best_s(self) -> float:
        """The smaller of the two times that are there.

        >>> Row(8, 2e-5, 1e-5, 1).best_s, Row(8, None, 3e-5, 1).best_s
        (1e-05, 3e-05)
        """
        return min(time for time in (self.out_s, self.in_s) if time is not None)


class LogSweep(NamedTuple):
    """One sweep over sizes: a collective, a type, a number of ranks.

    ``size_bytes`` of a row is the payload by the convention of nccl-tests. OSU prints one rank's share of
    an AllGather or AllToAll; it is multiplied where the number of ranks is known and left (with a note) where ``ranks``
    is None: `with_ranks` multiplies it.
    """

    source: str
    tool: str
    collective: Kind | None
    ranks: int | None
    dtype: str
    rows: tuple[Row, ...]
    zero_rows: int = 0
    torn_rows: int = 0
    failed_size: int | None = None
    graph: bool = False
    gpus_per_process: int = 1
    out_of_bounds: int = 0
    average_busbw: float | None = None
    printed_busbw: float | None = None
    notes: tuple[str, ...] = ()

    def with_ranks(self, ranks: int) -> LogSweep:
        """The sweep over a number of ranks that the log does not tell; OSU's shares become payloads."""
        rows = self.rows
        if self.ranks is None and self.tool == "osu" and self.collective in _SHARED_OUT:
            rows = tuple(row._replace(size_bytes=row.size_bytes * ranks) for row in rows)
        return self._replace(ranks=ranks, rows=rows)


class Block(NamedTuple):
    """Time and bandwidths of one call as printed; ``None`` where the log shows none. ``*_half`` is half a unit of the
    last printed place.
    """

    seconds: float | None
    algbw: float | None = None
    busbw: float | None = None
    algbw_half: float = 0.0
    busbw_half: float = 0.0
    wrong: int = 0


class Point(NamedTuple):
    """A row as printed; ``elements`` is None where missing or rounded, ``redop`` and ``root`` where not printed."""

    size: int
    elements: int | None
    dtype: str
    redop: str | None
    root: int | None
    out: Block | None
    inside: Block | None
    line: int
    torn: bool = False


# Bytes of an element by its name in nccl-tests, rccl-tests, nccom-test and PARAM.
ELEMENT_BYTES = {
    "int8": 1, "uint8": 1, "char": 1, "int32": 4, "uint32": 4, "int": 4, "int64": 8, "uint64": 8, "half": 2, "float": 4,
    "double": 8, "bfloat16": 2, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp16": 2, "fp32": 4, "bf16": 2,
    "float16": 2, "float32": 4, "float64": 8, "int16": 2, "uint16": 2, "fp8": 1, "fp64": 8,
}  # fmt: skip
REDUCTIONS = frozenset(("sum", "prod", "max", "min", "avg", "mulsum", "all", "none"))
# The kinds by the names that `collective_names` gives; the others have no kind here.
KINDS = {
    "all_reduce": Kind.ALL_REDUCE, "all_gather": Kind.ALL_GATHER, "reduce_scatter": Kind.REDUCE_SCATTER,
    "alltoall": Kind.ALL_TO_ALL, "sendrecv": Kind.SEND_RECV, "broadcast": Kind.BROADCAST,
}  # fmt: skip

_NAMES = re.compile(
    r"(?P<all_reduce>all[_\- ]?reduce)|(?P<all_gather>all[_\- ]?gather)|(?P<reduce_scatter>reduce[_\- ]?scatter)"
    r"|(?P<alltoallv>all[_\- ]?to[_\- ]?all[_\- ]?v(?![a-z]))|(?P<alltoall>all[_\- ]?to[_\- ]?all)"
    r"|(?P<sendrecv>send[_\- ]?recv)|(?P<broadcast>broadcast|bcast)|(?P<hypercube>hypercube)"
    r"|(?P<reduce>(?<![a-z])reduce(?![a-z]))|(?P<gather>(?<![a-z])gather(?![a-z]))"
    r"|(?P<scatter>(?<![a-z])scatter(?![a-z]))",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[+-]?(?:\d[\d_,]*\.?(\d*)|\.(\d+))(?:[eE]([+-]?\d{1,3}))?\*?", re.ASCII)
_ABSENT = re.compile(r"N/?A|-?nan(?:\([^)]*\))?|[+-]?inf(?:inity)?|X+(?:\.X+)?", re.IGNORECASE)
_SIZE = re.compile(
    r"(\d[\d_,]*(?:\.\d+)?)(?:[eE]\+?(\d{1,2}))?\s*(?:([KMGT])(i)?)?(?:B|Bytes?)?", re.ASCII | re.IGNORECASE
)
_LONGEST_NUMBER = 40
_LARGEST_SIZE = 2**60


def collective_names(text: str) -> list[str]:
    """The collectives a text names, each once, in the spelling of nccl-tests.

    >>> collective_names("./build/alltoall_perf"), collective_names("reduce_scatter, then AllReduce")
    (['alltoall'], ['reduce_scatter', 'all_reduce'])
    """
    return list(dict.fromkeys(str(match.lastgroup) for match in _NAMES.finditer(text)))


def starts_with_name(text: str) -> bool:
    """Whether a text begins with the name of a collective.

    >>> starts_with_name("AllGather over 8 GPUs"), starts_with_name("the AllGather")
    (True, False)
    """
    return _NAMES.match(text) is not None


def is_value(text: str) -> bool:
    """Whether a field is a number or stands for one that is not there (``N/A``, ``nan``, redacted ``XX.X``)."""
    return len(text) <= _LONGEST_NUMBER and (_NUMBER.fullmatch(text) or _ABSENT.fullmatch(text)) is not None


def number(text: str) -> float | None:
    """A printed number; None where none is there or it is not finite.

    >>> number("1.2e+06"), number("1,626.5"), number("N/A"), number("inf")
    (1200000.0, 1626.5, None, None)
    """
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return None
    value = float(text.rstrip("*").replace(",", "").replace("_", ""))
    return value if math.isfinite(value) else None


def half_unit(text: str) -> float:
    """Half a unit in the last printed place.

    >>> half_unit("35.15"), half_unit("324082"), half_unit("1.2e+06")
    (0.005, 0.5, 50000.0)
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        return 0.0
    decimals = len(match[1] or match[2] or "")
    return 0.5 * 10.0 ** (int(match[3] or 0) - decimals)


def whole_size(text: str) -> int | None:
    """A size in bytes; ``K``, ``M`` and ``G`` are binary, as benchmarks read them.

    >>> whole_size("1_048_576"), whole_size("1,024"), whole_size("16.0 MB"), whole_size("2M"), whole_size("x")
    (1048576, 1024, 16777216, 2097152, None)
    """
    match = _SIZE.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
    if match is None:
        return None
    power = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[(match[3] or "").upper()]
    size = float(match[1].replace("_", "").replace(",", "")) * 10.0 ** int(match[2] or 0) * 2.0**power
    if size >= _LARGEST_SIZE:
        return None
    digits = match[1].replace("_", "").replace(",", "")
    if "." not in digits and match[2] is None:
        return int(digits) << power
    return round(size)
