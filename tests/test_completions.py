"""The shipped completion scripts: equal to what the generator writes, and they complete."""

from __future__ import annotations

import subprocess

import pytest

from commcalc.cli.completion_scripts import WRITERS, commands
from commcalc.cli.completions import FILES, Shell
from conftest import ROOT, run_commcalc


@pytest.mark.parametrize("shell", Shell)
def test_shipped_script_is_what_the_command_tree_gives(shell: Shell) -> None:
    shipped = (ROOT / "completions" / FILES[shell]).read_text()
    assert shipped == WRITERS[shell](commands()), "run: python -m commcalc.cli.completion_scripts"
    assert run_commcalc("completions", shell).out == shipped


def test_an_unknown_shell_is_refused() -> None:
    ran = run_commcalc("completions", "csh")
    assert (ran.status, ran.err) == (2, "error: unknown shell 'csh'\n  at SHELL\nhint: did you mean zsh?\n")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["commcalc", "led"], {"ledger"}),
        (["commcalc", "ledger", "--model", "llama-3-"], {"llama-3-70b", "llama-3-8b"}),
        (["commcalc", "ledger", "--hardware", "h1"], {"h100-pcie", "h100-sxm"}),
        (["commcalc", "ledger", "--phase", ""], {"train", "prefill", "decode"}),
        (["commcalc", "ledger", "--rec"], {"--recompute"}),
        (["commcalc", "ledger", "gpt3"], {"gpt3-175b-a100"}),
        (["commcalc", "degrees", "--kv", "re"], {"refuse", "replicate"}),
        (["commcalc", "completions", ""], {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes(words: list[str], wanted: set[str], tmp_path: object) -> None:
    script = (
        f"source {ROOT}/completions/commcalc.bash; COMP_WORDS=({' '.join(repr(word) for word in words)}); "
        f'COMP_CWORD={len(words) - 1}; _commcalc; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=str(tmp_path), check=True)
    assert set(done.stdout.split()) == wanted
