"""Every key of every file with every sort of value: the schema refuses what the reader refuses, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from commcalc.catalog import hardware, levels, measured, models
from commcalc.catalog.about import TEXTS
from commcalc.catalog.fields import Field, read_section
from commcalc.catalog.sections import SECTIONS, groups
from commcalc.document import Section, parse_document, plain
from commcalc.errors import CommcalcError
from commcalc.schemas import meanings
from commcalc.schemas.values import written
from commcalc.schemas.words import assembled

TABLES: Mapping[str, Mapping[str, Field]] = {
    **{name: fields for name, fields in SECTIONS.items() if fields},
    "level": levels.LEVEL,
    "in_network_reduction": levels.IN_NETWORK,
    "sweep": measured.FIELDS,
    "hbm": hardware.HBM,
    "name": hardware.NAME,
    "about": TEXTS,
}
MEANINGS: Mapping[str, Mapping[str, str]] = {
    **meanings.SECTIONS,
    "level": meanings.LEVEL,
    "in_network_reduction": meanings.IN_NETWORK,
    "sweep": meanings.SWEEP,
    "hbm": meanings.HBM,
}
# As they stand behind the key in a file.
VALUES = [
    # numbers
    "8", "1", "2", "3", "4", "0", "-1", "1.5", "1.0", "8.", ".5", "0.5", "1e3", "1_000", "012", "'8'", "'0'", "' 8 '",
    "'-8'", "'1e3'", "'1.5'", "'+8'", "'012'", "9007199254740991", "9007199254740992", "20001", "1e400", ".nan", ".inf",
    "0x10", "99999999999999999999", "2:1", "'2:1'", "1000000000", "1234567", "'1:2'",
    # quantities
    "8K", "8 k", "8M", "8 KiB", "8 GB", "8GB", "8 Gb", "8 bytes", "1.5 GB", "0 GB", "-8 GB", "8 gb", "8 XB", "25MiB",
    "3us", "3 us", "3 µs", "0 s", "3 min", "-3 us", "3 ", "450 GB/s", "400Gbps", "25 GiB/s", "0 GB/s", "-1 GB/s",
    "450 GB/h", "1 GB / s", "989 TFLOP/s", "989 TFLOPS", "1979 TOP/s", "989 TFLOP", "0 TFLOP/s", "15T", "7b", "300e9",
    "012 GB", "1__0 GB", "1_0 GB", ". GB", "GB",
    # words
    "true", "false", "True", "'true'", "no", "nonsense", "''", "' '", "a.b", "a b", "a=b", '"a\\tb"', '"a\\u00e9"',
    "none", "full", "NONE", "bf16", "BF16", "torch.bfloat16", "float8_e4m3fn", "jnp.int8", "np.torch.fp32",
    "tp-cp-ep-dp-pp", "pp-dp-ep-cp-tp", "tp-tp-ep-dp-pp", "tp-cp-ep-dp", "dp,pp", "dp, pp", "dp,,pp", "none,dp",
    "none,none", "core_attn,mlp", "optimizer, weights", "optimizer,nothing",
    # other shapes
    "null", "~", "", "[]", "{}", "[null]", "[8]", "[dp, pp]", "[none]", "[dp, none]", "[core_attn, 'mlp, moe']",
    "[optimizer, weights]", "[[dp]]", "{a: 1}", "[full_attention, sliding_attention]", "[dense, sparse]",
    "[dense, nonsense]", "[dense, null]", "dense",
]  # fmt: skip
# What no schema can know, by the reader: how a number was written, and what follows from arithmetic.
_NOT_WHOLE = {"'1.5'"}
_DIGITS = {
    "1_000", "1234567", "1000000000", "9007199254740991", "9007199254740992", "99999999999999999999",
}  # fmt: skip
UNKNOWABLE = {
    "whole": _NOT_WHOLE, "whole_or_zero": _NOT_WHOLE, "layers": _NOT_WHOLE, "tokens": _NOT_WHOLE, "many": _NOT_WHOLE,
    "share": _DIGITS, "factor": _DIGITS, "efficiency": {"'1e3'"},
    "times": {"1_000", "1e3", "8."},
    "label": {"1.0", "8."},
    "bucket_bytes": {"7b"}, "host_bytes": {"7b"}, "capacity": {"7b"}, "up_to": {"7b"},  # bits that make no byte
}  # fmt: skip


def refused_later(key: str, value: Any) -> bool:
    """What the job says of a value that its own reader takes."""
    if key == "zero":
        return bool(value > 3)
    try:
        return key == "overlap" and groups(value) is None
    except CommcalcError:
        return True


def cases() -> Iterator[tuple[str, str]]:
    for name, table in TABLES.items():
        for key in table:
            yield name, key


def values(field: Field) -> list[str]:
    """What is tried: all of `VALUES`, and what the field itself says that it takes."""
    own = [*field.like.split(" or "), *field.choices, *(choice.upper() for choice in field.choices)]
    return list(dict.fromkeys([*VALUES, *(one for one in own if one)]))


def parsed(text: str) -> Section | None:
    try:
        return parse_document(f"key: {text}", "file")
    except CommcalcError:  # no YAML: nothing that a schema would see
        return None


@pytest.mark.parametrize(("table", "key"), [*cases()])
def test_the_schema_refuses_what_the_reader_refuses(table: str, key: str) -> None:
    field = TABLES[table][key]
    validator = Draft202012Validator(assembled(written(field, "")))
    unknowable = UNKNOWABLE.get(getattr(field.read, "__name__", ""), set()) | UNKNOWABLE.get(key, set())
    wrong: list[str] = []
    for text in values(field):
        section = parsed(text)
        if section is None:
            continue
        read = read_section(section, {"key": field}, table)
        refused = bool(read.problems) or refused_later(key, read.values["key"])
        value = plain(section)
        assert isinstance(value, dict)
        known = validator.is_valid(value["key"])
        if known == refused and not (refused and text in unknowable):
            wrong.append(f"{text}: the reader {'refuses' if refused else 'takes'} it")
    assert wrong == []


@pytest.mark.parametrize("name", MEANINGS)
def test_every_key_has_its_meaning(name: str) -> None:
    assert list(MEANINGS[name]) == list(TABLES[name])


def test_lists_and_texts_have_theirs() -> None:
    assert {*levels.LISTS, *levels.READ_ELSEWHERE} == set(meanings.LEVEL_LISTS)
    assert {*TEXTS, "aliases", "sources", "extends"} == set(meanings.ABOUT)
    assert set(models.FIELDS) == set(meanings.MODEL)
