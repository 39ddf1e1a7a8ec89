"""Every command that prints data knows every format; what holds of each."""

from __future__ import annotations

import re
import shlex

import pytest

from commcalc.cli.completion_scripts import commands
from commcalc.cli.output import Format
from commcalc.report.table import Column, Table, render_csv, render_markdown
from conftest import DATA, Inside

# They print a script, a preset, and lines alone (which tests of sweep hold).
WITHOUT_FORMAT = {"completions", "presets import", "sweep"}
LOG = DATA / "logs" / "17_per_iteration_2.19_h100x8.txt"
ASKED = {
    "ledger": "ledger",
    "compare": "compare --model llama-3-70b --hardware h100 --tp 4,8",
    "check": f"check {DATA / 'budget.yaml'}",
    "record": f"record compare {DATA / 'records' / 'tp2.yaml'}",
    "matmul": "matmul 'A[I, J_X] @ B[J, K]' --mesh X=4 --dim I=8,J=8,K=8",
    "reshard": "reshard 'A[I_X, J] -> A[I, J_X]' --mesh X=4 --dim I=8,J=8",
    "shard": "shard 'A[I_X, J]' --mesh X=4 --dim I=8,J=8",
    "collective": "collective all_reduce --bytes 8MiB --group-size 8 --hardware h100",
    "busbw": "busbw all_reduce --group-size 8 --busbw 480GB/s",
    "calibrate": f"calibrate {LOG}",
    "degrees": "degrees --model llama-3-70b",
    "solve": "solve tp --model llama-3-70b --hardware h100",
    "verify": "verify 'A[I_X, J] -> A[I, J_X]' --mesh X=4",
    "presets list": "presets list",
    "presets show": "presets show h100",
    "presets validate": "presets validate presets/jobs",
    "schema": "schema",
}


def test_every_command_takes_a_format() -> None:
    tree = {" ".join(command.path): command for command in commands() if not command.group}
    assert tree.keys() == ASKED.keys() | WITHOUT_FORMAT
    for name, command in tree.items():
        spelled = {one for option in command.options for one in option.spellings}
        assert ({"--format", "--json", "--no-color"} <= spelled) == (name not in WITHOUT_FORMAT), name


@pytest.mark.parametrize("name", ASKED)
def test_every_format_is_written(name: str, inside: Inside) -> None:
    asked = shlex.split(ASKED[name])
    texts = {style: inside(*asked, "--format", style).out for style in Format}
    assert all(texts.values())
    assert len(set(texts.values())) == len(Format)
    assert inside(*asked, "--json").out == texts[Format.JSON]
    assert inside(*asked).out == texts[Format.TABLE]


@pytest.mark.parametrize("name", ASKED)
def test_markdown_has_whole_tables(name: str, inside: Inside) -> None:
    text = re.sub(
        r"^```.*?^```$",
        "",
        inside(*shlex.split(ASKED[name]), "--format", "markdown").out,
        flags=re.MULTILINE | re.DOTALL,
    )
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert tables
    for table in tables:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1
        assert re.fullmatch(r"\|( -+:? \|)+", table.splitlines()[1])


@pytest.mark.parametrize("name", ASKED)
def test_formats_that_contradict_or_are_none(name: str, inside: Inside) -> None:
    asked = shlex.split(ASKED[name])
    assert inside(*asked, "--json", "--format", "csv").status == 2
    unknown = inside(*asked, "--format", "jsn")
    assert (unknown.status, unknown.out) == (2, "")
    assert "did you mean json" in unknown.err


def test_csv_has_a_column_for_every_key() -> None:
    assert render_csv([{"a": 1}, {"a": None, "b": [True]}]) == "a,b\n1,\n,[true]\n"


def test_a_cell_of_markdown_is_one_line_that_steers_no_terminal() -> None:
    table = Table("t", (Column("a"), Column("b")), (("x\ny", "\x1b[31m|"),))
    assert render_markdown([table]).splitlines()[-1] == "| x\\ny | \\x1b[31m\\| |"
