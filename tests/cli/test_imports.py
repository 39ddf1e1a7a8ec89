"""What a start must not load: arrays, tables and validation libraries that the command does not use."""

from __future__ import annotations

import subprocess
import sys

import pytest

from commcalc.cli import COMMANDS
from conftest import Inside, environment

HEAVY = ["numpy", "rich.table", "rich.console", "pydantic", "asyncio", "pytest", "hypothesis", "commcalc.simulate"]


def loaded(code: str, watched: list[str]) -> list[str]:
    """Which of ``watched`` are in sys.modules after ``code`` ran in a fresh interpreter."""
    program = f"{code}\nimport sys\nprint('LOADED', *[name for name in {watched!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), check=True
    )
    return done.stdout.splitlines()[-1].split()[1:]


def command(*args: str) -> str:
    return f"from commcalc.cli import run\nassert run({list(args)!r}) == 0"


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    assert loaded("import commcalc.cli", [*HEAVY, "typer", "yaml"]) == []


def test_version_is_answered_before_typer_is_loaded() -> None:
    assert loaded(command("--version"), [*HEAVY, "typer", "yaml"]) == []


@pytest.mark.parametrize(
    "args", [["ledger"], ["ledger", "--json"], ["degrees"], ["degrees", "--json"], ["ledger", "--json", "--tensors"]]
)
def test_an_answer_loads_neither_arrays_nor_rich(args: list[str]) -> None:
    assert loaded(command(*args), HEAVY) == []


LINKS = [
    ["collective", "all_reduce", "--bytes", "1GiB", "--group-size", "16", "--hardware", "h100", "--json"],
    ["collective", "all_reduce", "--bytes", "1GiB", "--group-size", "16", "--hardware", "tpu-v5e"],
    ["busbw", "all_reduce", "--group-size", "8", "--busbw", "370GB/s", "--json"],
    ["shard", "A[I_X, J]", "--mesh", "X=4", "--dim", "I=8,J=8", "--json"],
    ["matmul", "A[I, J_X] @ B[J, K]", "--mesh", "X=4", "--dim", "I=8,J=8,K=8", "--hardware", "h100"],
    ["reshard", "A[I_X, J] -> A[I, J_X]", "--mesh", "X=4", "--dim", "I=8,J=8", "--json"],
]


@pytest.mark.parametrize("args", LINKS, ids=lambda args: " ".join(args[:2]))
def test_collectives_and_products_load_no_ledger(args: list[str]) -> None:
    heavy = [*HEAVY, "commcalc.accounting.ledger", "commcalc.algebra.derive", "commcalc.transformer.block"]
    assert loaded(command(*args), heavy) == []


def test_verify_loads_arrays_only_to_run() -> None:
    assert loaded("from commcalc.cli import run\nrun(['verify', '--seed', 'x'])", HEAVY) == []
    assert "numpy" in loaded(command("verify", "A[I_X] -> A[I]", "--mesh", "X=2"), HEAVY)


def test_help_of_one_command_loads_only_that_command() -> None:
    watched = ["commcalc.cli.ledger", "commcalc.cli.degrees", "commcalc.accounting.ledger"]
    assert loaded(command("completions", "bash"), watched) == []


def test_what_is_loaded_is_seen() -> None:
    assert loaded("import numpy", HEAVY)[0] == "numpy"


def test_help_loads_no_command() -> None:
    modules = [f"commcalc.cli.{name}" for name in COMMANDS]
    assert loaded(command("--help"), [*HEAVY, *modules, "commcalc.accounting.ledger", "yaml"]) == []


def test_help_tells_of_each_command_what_its_own_help_begins_with(inside: Inside) -> None:
    for name, told in COMMANDS.items():
        assert " ".join(inside(name, "--help").out.split("\n\n")[1].split()) == told, name
