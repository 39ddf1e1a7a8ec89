"""Quantities: bits and bytes, decimal and binary, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.errors import CommcalcError
from commcalc.ranges import parse_range
from commcalc.units import (
    Dtype,
    format_binary,
    format_rate,
    format_seconds,
    parse_bytes,
    parse_count,
    parse_dtype,
    parse_flops,
    parse_rate,
    parse_seconds,
    parse_tokens,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("128MiB", 134_217_728),
        ("1 GB", 10**9),
        ("1GiB", 2**30),
        ("1 Gb", 125_000_000),
        ("0.5 kB", 500),
        ("1.5 GiB", 1_610_612_736),
        ("1e3 bytes", 1000),
        ("8 bits", 1),
        ("0B", 0),
    ],
)
def test_bytes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("450GB/s", 450e9),
        ("450 GB/s", 450e9),
        ("400Gb/s", 50e9),
        ("400Gbps", 50e9),
        ("400 Gbit/s", 50e9),
        ("25 GiB/s", 25 * 2**30),
        ("3.35 TB/s", 3.35e12),
    ],
)
def test_rates(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "s"), [("3us", 3e-6), ("1.5 ms", 1.5e-3), ("2s", 2.0), ("25 µs", 25e-6), ("7ns", 7e-9)]
)
def test_seconds(text: str, s: float) -> None:
    assert parse_seconds(text) == s


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_bytes, "450", "has no unit"),
        (parse_bytes, "1 GBB", "unknown unit 'GBB'"),
        (parse_bytes, "1 gb", "unknown unit 'gb'"),
        (parse_bytes, "-1GB", "is negative"),
        (parse_bytes, "1 bit", "is 0.125 bytes, not a whole number of bytes"),
        (parse_bytes, "GB", "is no size"),
        (parse_bytes, "1e999999999GB", "unknown unit"),
        (parse_bytes, "1e999GB", "is too large"),
        (parse_bytes, "nanGB", "is no size"),
        (parse_rate, "450", "has no unit"),
        (parse_rate, "450GB", "unknown unit 'GB'"),
        (parse_rate, "450 GB/h", "unknown unit 'GB/h'"),
        (parse_rate, "0 GB/s", "is not above zero"),
        (parse_rate, "1e999 GB/s", "is too large"),
        (parse_seconds, "3", "has no unit"),
        (parse_seconds, "3 min", "unknown unit 'min'"),
        (parse_flops, "989 T", "unknown unit 'T'"),
        (parse_flops, "0 TFLOP/s", "is not above zero"),
        (parse_count, "8.5", "is no whole number"),
        (parse_count, "4503599627370497.5", "is no whole number"),
        (parse_count, "8K", "is no whole number"),
        (parse_count, "8_", "is no whole number"),
        (parse_count, "\u0668", "is no whole number"),
        (parse_tokens, "0.3K", "is no whole number"),
        (parse_seconds, "1e300s", "is too large"),
        (parse_seconds, "-1e-400s", "is negative"),
        (parse_rate, "1e-300B/s", "is no rate of a link"),
        (parse_count, "0", "is not above zero"),
        (parse_count, "010", "begins with 0"),
        (parse_count, "9" * 20, "is too large"),
        (parse_count, "1" * 5000, "is no whole number"),
        (parse_dtype, "bfloat61", "unknown dtype"),
        (parse_range, "4..2", "is an empty range"),
        (parse_range, "1..8:x1", "never ends"),
        (parse_range, "8:2", "has a step but no range"),
        (parse_range, "1..1000000000", "is more than 100000 values"),
        (parse_range, "1,,2", "is no whole number"),
        (parse_range, "", "is no whole number"),
    ],
)
def test_refusals(parse: Callable[[str], object], text: str, message: str) -> None:
    with pytest.raises(CommcalcError, match=message) as refused:
        parse(text)
    assert refused.value.status == 2


def test_counts_and_ranges() -> None:
    counts = {"1": 1, "1_000": 1000, "1e3": 1000, "9007199254740991": 2**53 - 1}
    assert {text: parse_count(text) for text in counts} == counts
    tokens = {"1": 1, "8K": 8192, "128k": 131072, "1M": 2**20, "0.5K": 512}
    assert {text: parse_tokens(text) for text in tokens} == tokens
    assert parse_range("4096..8192:1024") == [4096, 5120, 6144, 7168, 8192]
    assert parse_range("1..64:x2") == [1, 2, 4, 8, 16, 32, 64]
    assert parse_range("4K..16K:x2,8K,1") == [4096, 8192, 16384, 1]


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("bf16", "bf16"),
        ("torch.bfloat16", "bf16"),
        ("float8_e4m3fn", "fp8"),
        ("F32", "fp32"),
        ("half", "fp16"),
        ("double", "fp64"),
    ],
)
def test_dtypes(text: str, dtype: str) -> None:
    assert parse_dtype(text) is Dtype(dtype)


def test_bits() -> None:
    assert {str(dtype): dtype.bits for dtype in Dtype} == {
        "fp64": 64, "fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp4": 4, "int4": 4,
        "int32": 32, "int64": 64,
    }  # fmt: skip


def test_formats() -> None:
    assert [format_seconds(s) for s in (0.0, 3e-9, 25e-6, 0.0041756, 1.0)] == [
        "0 s",
        "3 ns",
        "25 us",
        "4.176 ms",
        "1 s",
    ]
    assert [format_rate(rate) for rate in (450e9, 6.25e9, 3.35e12, 1e6, 10.0)] == [
        "450 GB/s", "6.25 GB/s", "3.35 TB/s", "1 MB/s", "10 B/s",
    ]  # fmt: skip
    assert [format_binary(count) for count in (0, 5760, 2**30)] == ["0 B", "5.625 KiB", "1 GiB"]


UNITS = {"B": 1, "kB": 10**3, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}


@given(st.integers(0, 10**15), st.sampled_from(sorted(UNITS)))
def test_whole_amounts_are_exact(amount: int, unit: str) -> None:
    assert parse_bytes(f"{amount} {unit}") == amount * UNITS[unit]


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_bytes, parse_rate, parse_seconds, parse_flops, parse_count, parse_dtype, parse_range):
        try:
            parse(text)
        except CommcalcError as problem:
            assert problem.status == 2
