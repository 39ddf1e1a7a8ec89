"""``commcalc schema``: the list, one schema, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from commcalc.schemas import FILES, NAMES, OUTPUTS, has_lines, schema
from conftest import ROOT, Inside, environment


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_printed_as_json(name: str, inside: Inside) -> None:
    ran = inside("schema", name)
    assert (ran.status, ran.err) == (0, "")
    assert ran.json == schema(name)
    assert ran.json["$schema"].endswith("2020-12/schema")
    assert inside("schema", name, "--json").out == ran.out
    assert json.loads(inside("schema", name, "--format", "jsonl").out) == ran.json


@pytest.mark.parametrize("name", [name for name in OUTPUTS if has_lines(name)])
def test_of_one_line(name: str, inside: Inside) -> None:
    assert inside("schema", name, "--lines").json == schema(name, lines=True)


def test_the_list_names_all(inside: Inside) -> None:
    told = inside("schema", "--json").json["schemas"]
    assert [one["name"] for one in told] == list(NAMES)
    assert [one["schema"] for one in told if one["of"] == "file"] == [None] * len(FILES)
    for style in ("table", "csv", "markdown", "jsonl"):
        text = inside("schema", "--format", style).out
        assert all(re.search(rf"\b{name}\b", text) for name in NAMES), style


def test_every_number_that_a_report_states_has_a_schema() -> None:
    written = [*(ROOT / "commcalc" / "report").glob("*.py"), ROOT / "commcalc" / "catalog" / "record.py"]
    reports = "".join(path.read_text() for path in written)
    stated = set(re.findall(r'"commcalc/([a-z-]+)/1"', reports))
    assert stated == set(OUTPUTS) - {"error", "sweep"}


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["ledgr"], "did you mean ledger?"),
        (["ledger", "--format", "csv"], "a schema is JSON, not csv"),
        (["ledger", "--format", "markdown"], "a schema is JSON, not markdown"),
        (["record", "--lines"], "record is one whole document"),
        (["job", "--lines"], "job is one whole document"),
        (["--lines"], "--lines of no schema"),
    ],
)
def test_what_makes_no_sense_is_refused(args: list[str], told: str, inside: Inside) -> None:
    ran = inside("schema", *args)
    assert (ran.status, ran.out) == (2, "")
    assert told in ran.err


def test_no_other_command_loads_schemas() -> None:
    program = "from commcalc.cli import run\nimport sys\nrun(['ledger', '--json'])\n"
    program += "print([name for name in sys.modules if name.startswith('commcalc.schemas')], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment())
    assert done.stderr.splitlines()[-1] == "[]"
