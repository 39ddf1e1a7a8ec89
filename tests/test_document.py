"""YAML to values that know their place, by the rules of YAML 1.2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.document import Items, Leaf, Section, parse_document, scalar
from commcalc.errors import CommcalcError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("-3", -3),
        ("+8", 8),
        ("1_000", 1000),
        ("197e12", 1.97e14),
        ("1.97e+14", 1.97e14),
        (".5", 0.5),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        # What YAML 1.1 turns into something else stays text.
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("012", "012"),
        ("0o12", "0o12"),
        ("0x10", "0x10"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("450 GB/s", "450 GB/s"),
    ],
)
def test_scalar(text: str, value: object) -> None:
    found = scalar(text)
    assert (found, type(found)) == (value, type(value))


def test_every_value_knows_its_line_and_column() -> None:
    root = parse_document("model:\n  hidden_size: 8192\n  tags: [a, 'no']\n", "m.yaml")
    model = root.entries["model"]
    assert isinstance(model, Section)
    assert model.entries["hidden_size"] == Leaf(8192, "8192", "m.yaml:2:16")
    tags = model.entries["tags"]
    assert isinstance(tags, Items)
    assert tags.items == [Leaf("a", "a", "m.yaml:3:10"), Leaf("no", "no", "m.yaml:3:13")]
    assert model.keys == {"hidden_size": "m.yaml:2:3", "tags": "m.yaml:3:3"}


def test_json_is_read_as_well() -> None:
    root = parse_document('{"hidden_size": 8192, "tie": false, "none": null}', "config.json")
    assert [leaf.value for leaf in root.entries.values() if isinstance(leaf, Leaf)] == [8192, False, None]


def test_quoted_numbers_are_text() -> None:
    root = parse_document("a: '8'", "x")
    assert root.entries["a"] == Leaf("8", "8", "x:1:4")


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert isinstance(parse_document(text, "x"), Section)
    except CommcalcError as problem:
        assert problem.status == 2
