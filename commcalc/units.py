"""Bytes, seconds, rates, counts and dtypes: read them from text, write them for people.

Bytes are ints, exact. Seconds and rates are floats. ``GB`` is 10^9 bytes, ``GiB`` 2^30, ``Gb`` 10^9 bits. A bare
number is refused where a unit is needed: most published mistakes in this field are a factor of 8, 2 or 1.07.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum
from typing import TYPE_CHECKING

from commcalc.errors import UnitError, UnknownName

if TYPE_CHECKING:
    from fractions import Fraction

# Prefixes and units by what they mean: powers of ten, powers of two, powers of ten of a second.
DECIMAL = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50}
SECONDS = {"s": 0, "ms": -3, "us": -6, "µs": -6, "μs": -6, "ns": -9}
_DIGITS = r"\d+(?:_\d+)*"
_NUMBER = re.compile(
    rf"\s*([+-]?(?:{_DIGITS}(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{{1,3}})?)\s*(.*?)\s*$", re.DOTALL | re.ASCII
)
_LEADING_ZERO = re.compile(r"\s*[+-]?0[\d_]", re.ASCII)
_NEGATIVE = re.compile(r"-[0._]*[1-9]")
_LONGEST_S = 1e9
_FASTEST_FLOPS = 1e24
_SLOWEST_BYTES_PER_S, _FASTEST_BYTES_PER_S = 1.0, 1e18
# What letters after a number of tokens mean, and after one of parameters (as powers of ten, in either case).
TOKENS = {"": 1, "K": 2**10, "k": 2**10, "M": 2**20, "G": 2**30}
PARAMETERS = {"": 0, "k": 3, "m": 6, "b": 9, "t": 12}
MAX_TEXT = 60


class Dtype(StrEnum):
    """Element types by their canonical name; ``bits`` is what one element takes on the wire."""

    FP64 = "fp64"
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    INT8 = "int8"
    FP4 = "fp4"
    INT4 = "int4"
    INT32 = "int32"
    INT64 = "int64"

    @property
    def bits(self) -> int:
        """Bits of one element.

        >>> Dtype.BF16.bits, Dtype.FP4.bits
        (16, 4)
        """
        known = {"fp64": 64, "fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "fp4": 4}
        return (known | {"int64": 64, "int32": 32, "int8": 8, "int4": 4})[self]


DTYPE_SPELLINGS = {
    "f64": "fp64", "float64": "fp64", "double": "fp64",
    "f32": "fp32", "float32": "fp32", "float": "fp32", "tf32": "fp32",
    "bfloat16": "bf16", "f16": "fp16", "float16": "fp16", "half": "fp16",
    "f8": "fp8", "float8": "fp8", "float8_e4m3": "fp8", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
    "f8e4m3fn": "fp8", "f8e5m2": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "e4m3": "fp8", "e5m2": "fp8",
    "i32": "int32", "s32": "int32",
    "i64": "int64", "s64": "int64", "long": "int64",
    "i8": "int8", "s8": "int8", "u8": "int8", "uint8": "int8",
    "f4": "fp4", "float4": "fp4", "mxfp4": "fp4", "nvfp4": "fp4", "float4_e2m1fn": "fp4",
    "i4": "int4", "s4": "int4", "u4": "int4", "uint4": "int4",
}  # fmt: skip


def parse_dtype(text: str) -> Dtype:
    """The dtype of a common spelling; `UnknownName` otherwise.

    >>> parse_dtype("float8_e4m3fn"), parse_dtype("BFloat16")
    (<Dtype.FP8: 'fp8'>, <Dtype.BF16: 'bf16'>)
    """
    name = text.strip().lower().removeprefix("torch.").removeprefix("jnp.").removeprefix("np.")
    name = DTYPE_SPELLINGS.get(name, name)
    if name not in Dtype.__members__.values():
        raise UnknownName("dtype", text, [*Dtype, *DTYPE_SPELLINGS])
    return Dtype(name)


def _split(text: str, what: str, example: str) -> tuple[str, str]:
    match = _NUMBER.match(text) if len(text) <= MAX_TEXT else None
    if match is None:
        raise UnitError(f"{text[:MAX_TEXT]!r} is no {what}", hint=f"write it like {example}")
    if _LEADING_ZERO.match(text):
        raise UnitError(f"{text!r} begins with 0: octal or decimal?", hint="write it without the 0")
    return match.group(1).replace("_", ""), match.group(2)


def _scaled(number: str, power: int) -> float:
    """The float nearest to ``number * 10**power``, through the decimal text so that 3us is 3e-06."""
    if _NEGATIVE.match(number):
        raise UnitError(f"{number} is negative")
    mantissa, _, exponent = number.lower().partition("e")
    value = float(f"{mantissa}e{int(exponent or 0) + power}") + 0.0  # no negative zero
    if not math.isfinite(value):
        raise UnitError(f"{number} is too large")
    return value


def _exact(number: str) -> int | Fraction:
    """The number itself; digits alone are spared the import of fractions, which a start would pay for."""
    if number.isdigit():
        return int(number)
    from fractions import Fraction

    return Fraction(number)


def _refuse(text: str, unit: str, what: str, known: str) -> UnitError:
    if unit == "":
        return UnitError(f"{text!r} has no unit", hint=f"a {what} needs one, like {known}")
    return UnitError(f"unknown unit {unit!r} in {text!r}", hint=f"a {what} looks like {known}")


def _amount_unit(unit: str) -> tuple[int, int, int] | None:
    """(power of ten, power of two, bits of one) of a unit of data such as ``GiB`` or ``Gb``."""
    for ending, bits in (("Bytes", 8), ("bytes", 8), ("byte", 8), ("bits", 1), ("bit", 1), ("B", 8), ("b", 1)):
        if unit.endswith(ending):
            prefix = unit.removesuffix(ending)
            if prefix in BINARY:
                return 0, BINARY[prefix], bits
            if prefix in DECIMAL:
                return DECIMAL[prefix], 0, bits
            return None
    return None


def parse_bytes(text: str) -> int:
    """Bytes as an exact int; refuses a bare number and a fraction of a byte.

    >>> parse_bytes("128MiB"), parse_bytes("1 GB"), parse_bytes("8 Gb")
    (134217728, 1000000000, 1000000000)
    """
    number, unit = _split(text, "size", "128MiB")
    found = _amount_unit(unit)
    if found is None:
        raise _refuse(text, unit, "size", "128MiB, 1GB or 8Gb")
    ten, two, bits = found
    _scaled(number, ten + two)
    count = _exact(number) * (10**ten * 2**two * bits)
    if count % 8:
        raise UnitError(f"{text!r} is {float(count) / 8} bytes, not a whole number of bytes")
    return int(count) // 8


def parse_payload(text: str) -> int:
    """A number of bytes where that is what is asked for: a bare whole number is bytes.

    >>> parse_payload("1GiB"), parse_payload("33554432"), parse_payload("16e9")
    (1073741824, 33554432, 16000000000)
    """
    number, unit = _split(text, "size", "128MiB")
    return parse_bytes(text if unit else f"{number}B")


def parse_seconds(text: str) -> float:
    """Seconds as a float.

    >>> parse_seconds("3us"), parse_seconds("0 s")
    (3e-06, 0.0)
    """
    number, unit = _split(text, "time", "3us")
    if unit not in SECONDS:
        raise _refuse(text, unit, "time", "3us, 1.5ms or 2s")
    value = _scaled(number, SECONDS[unit])
    if value > _LONGEST_S:
        raise UnitError(f"{text!r} is too large")
    return value


def parse_rate(text: str) -> float:
    """Bytes per second, as a float, from ``450GB/s``, ``400 Gb/s``, ``400Gbps`` or ``25 GiB/s``.

    >>> parse_rate("450GB/s"), parse_rate("400Gb/s")
    (450000000000.0, 50000000000.0)
    """
    number, unit = _split(text, "rate", "450GB/s")
    amount = unit.removesuffix("/s") if unit.endswith("/s") else unit.removesuffix("ps")
    found = _amount_unit(amount) if amount != unit else None
    if found is None:
        raise _refuse(text, unit, "rate", "450GB/s or 400Gb/s")
    ten, two, bits = found
    value = _scaled(number, ten) * float(2**two) * bits / 8
    if value == 0:
        raise UnitError(f"{text!r} is not above zero")
    if not _SLOWEST_BYTES_PER_S <= value <= _FASTEST_BYTES_PER_S:
        raise UnitError(f"{text!r} is no rate of a link: below 1 B/s or above 10^18 B/s")
    return value


def parse_flops(text: str) -> float:
    """Floating-point operations per second, from ``989.4 TFLOP/s``.

    >>> parse_flops("989 TFLOP/s")
    989000000000000.0
    """
    number, unit = _split(text, "FLOP rate", "989 TFLOP/s")
    prefix = unit.removesuffix("FLOP/s").removesuffix("FLOPS").removesuffix("OP/s")
    if prefix == unit or prefix not in DECIMAL:
        raise _refuse(text, unit, "FLOP rate", "989 TFLOP/s")
    value = _scaled(number, DECIMAL[prefix])
    if value <= 0:
        raise UnitError(f"{text!r} is not above zero")
    if not 1 <= value <= _FASTEST_FLOPS:
        raise UnitError(f"{text!r} is no rate of a chip: below 1 FLOP/s or above 10^24 FLOP/s")
    return value


def parse_count(text: str) -> int:
    """A whole number above zero, exact.

    >>> parse_count("4096"), parse_count("1_000")
    (4096, 1000)
    """
    number, unit = _split(text, "whole number", "4096")
    if unit:
        raise UnitError(f"{text!r} is no whole number", hint="write it like 4096")
    return _whole_number(text, number, 1)


def parse_tokens(text: str) -> int:
    """A number of tokens, in which ``8K`` is 8192, as sequence lengths are named.

    >>> parse_tokens("8K"), parse_tokens("4096")
    (8192, 4096)
    """
    number, unit = _split(text, "whole number", "4096 or 8K")
    if unit not in TOKENS:
        raise UnitError(f"{text!r} is no whole number", hint="write it like 4096 or 8K (= 8192)")
    return _whole_number(text, number, TOKENS[unit])


def parse_parameters(text: str) -> int:
    """A number of parameters, in which ``7B`` is 7 * 10^9, as models are named.

    >>> parse_parameters("7B"), parse_parameters("1.5 M")
    (7000000000, 1500000)
    """
    number, unit = _split(text, "whole number", "7B")
    if unit.lower() not in PARAMETERS:
        raise UnitError(f"{text!r} is no number of parameters", hint="write it like 7B, 350M or 1T")
    return _whole_number(text, number, 10 ** PARAMETERS[unit.lower()])


def _whole_number(text: str, number: str, times: int) -> int:
    value = _exact(number) * times
    if value % 1:
        raise UnitError(f"{text!r} is no whole number", hint="write it like 4096")
    if value < 1:
        raise UnitError(f"{text!r} is not above zero")
    if value >= 2**53:
        raise UnitError(f"{text!r} is too large")
    return int(value)


def format_bytes(count: int) -> str:
    """All digits, in groups of three: a digit is never cut.

    >>> format_bytes(234881024)
    '234,881,024'
    """
    return f"{count:,}"


def format_binary(count: int) -> str:
    """A byte count in the largest binary unit, four significant digits; always shown beside the exact one.

    >>> format_binary(134217728), format_binary(5760)
    ('128 MiB', '5.625 KiB')
    """
    for unit, power in (("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 2**power:
            return f"{count / 2**power:.4g} {unit}"
    return f"{count} B"


def format_parameters(count: int) -> str:
    """Parameters as models are named, four significant digits; the exact count stands elsewhere.

    >>> format_parameters(70553706496), format_parameters(124439808)
    ('70.55B', '124.4M')
    """
    for unit, power in (("T", 12), ("B", 9), ("M", 6), ("K", 3)):
        if count >= 10**power:
            return f"{count / 10**power:.4g}{unit}"
    return str(count)


def format_seconds(seconds: float) -> str:
    """Four significant digits in ns, us, ms or s.

    >>> format_seconds(0.000602), format_seconds(0.0)
    ('602 us', '0 s')
    """
    if seconds == 0:
        return "0 s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns"


def format_rate(bytes_per_s: float) -> str:
    """A rate in decimal units, as vendors print it.

    >>> format_rate(4.5e11)
    '450 GB/s'
    """
    for unit, scale in (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6)):
        if bytes_per_s >= scale:
            return f"{bytes_per_s / scale:.6g} {unit}"
    return f"{bytes_per_s:.6g} B/s"


def format_flops(flops_per_s: float) -> str:
    """A peak in TFLOP/s, as vendors print it.

    >>> format_flops(9.89e14)
    '989 TFLOP/s'
    """
    return f"{flops_per_s / 1e12:.6g} TFLOP/s"
