"""Completion scripts: in step with the command tree, and driven in the shells themselves.

bash is everywhere. zsh and fish are driven where they are installed; where ``COMMCALC_TEST_SHELLS`` names them (as in
continuous integration) they have to be.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from commcalc.catalog.presets import VARIABLE
from commcalc.cli import run
from commcalc.cli.completion_scripts import WRITERS, commands
from commcalc.cli.completions import FILES, Shell
from conftest import ROOT, environment, run_commcalc

DEMANDED = os.environ.get("COMMCALC_TEST_SHELLS", "bash").split()
SHELLS = [shell for shell in Shell if shell in DEMANDED or shutil.which(shell)]

# A line up to the cursor, and what must then be offered; where one thing is offered, zsh writes it out.
LINES = [
    ("commcalc led", {"ledger"}),
    ("commcalc presets sh", {"show"}),
    ("commcalc ledger --rec", {"--recompute", "--recompute-layers", "--recompute-modules"}),
    ("commcalc presets list --fam", {"--family"}),
    ("commcalc ledger --recompute sel", {"selective"}),
    ("commcalc solve ba", {"batch", "bandwidth"}),
    ("commcalc ledger --overlap d", {"dp"}),
    ("commcalc degrees --kv rep", {"replicate"}),
    ("commcalc degrees --framework torch", {"torchtitan"}),
    ("commcalc ledger gpt3", {"gpt3-175b-a100"}),
    ("commcalc ledger --model llama-3.1-4", {"llama-3.1-405b"}),
    ("commcalc ledger --model zz-", {"zz-mine"}),
    ("commcalc ledger --hardware zz-", {"zz-box"}),
    ("commcalc presets show zz-m", {"zz-mine"}),
    ("commcalc presets list --source u", {"user"}),
    ("commcalc completions z", {"zsh"}),
    ("commcalc collective all_g", {"all_gather"}),
    ("commcalc collective all_gather --algorithm rab", {"rabenseifner"}),
    ("commcalc busbw broad", {"broadcast"}),
    ("commcalc ledger --format mark", {"markdown"}),
    ("commcalc ledger --model some_f", {"some_file.yaml"}),
]
# Lines where several things are offered.
LISTS = [
    ("commcalc ledger --phase ", {"train", "prefill", "decode"}),
    ("commcalc ledger --hardware h1", {"h100-pcie", "h100-sxm"}),
    ("commcalc degrees --kv re", {"refuse", "replicate"}),
    ("commcalc presets ", {"list", "show", "validate", "import"}),
    ("commcalc completions ", {"bash", "zsh", "fish"}),
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a file, and presets of one's own in a folder with a space in its name."""
    own = tmp_path / "my presets"
    for name in ("models/zz-mine.yaml", "hardware/zz-box.yaml"):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text("")
    work = tmp_path / "work"
    work.mkdir()
    (work / "some_file.yaml").write_text("")
    return tmp_path


def shell_environment(home: Path) -> dict[str, str]:
    return environment(HOME=str(home), TERM="dumb", **{VARIABLE: f"{home / 'nothing'}:{home / 'my presets'}"})


@pytest.mark.parametrize("shell", Shell)
def test_the_file_is_what_the_command_tree_says(shell: Shell) -> None:
    assert (ROOT / "completions" / FILES[shell]).read_text() == WRITERS[shell](commands())


@pytest.mark.parametrize("shell", Shell)
def test_it_is_printed(shell: Shell, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["completions", shell]) == 0
    assert capfdbinary.readouterr().out.decode() == (ROOT / "completions" / FILES[shell]).read_text()


def test_an_unknown_shell_is_told() -> None:
    ran = run_commcalc("completions", "tcsh")
    assert (ran.status, ran.err.splitlines()[0]) == (2, "error: unknown shell 'tcsh'")


def test_every_command_and_option_is_there() -> None:
    for command in commands():
        for option in command.options:
            assert option.help
    paths = [" ".join(command.path) for command in commands()]
    assert sorted(paths) == [
        "busbw", "calibrate", "check", "collective", "compare", "completions", "degrees", "ledger", "matmul",
        "presets", "presets import", "presets list", "presets show", "presets validate", "record", "reshard",
        "schema", "shard", "solve", "sweep", "verify",
    ]  # fmt: skip


def in_bash(line: str, home: Path) -> set[str]:
    """What bash offers, with nothing on the PATH: no process is started."""
    words = line.split(" ")
    script = (
        f"source {ROOT}/completions/commcalc.bash; COMP_WORDS=({' '.join(repr(word) for word in words)}); "
        f'COMP_CWORD={len(words) - 1}; PATH=/nowhere; _commcalc; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, cwd=home / "work",
        env=shell_environment(home), check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return set(done.stdout.split())


def in_fish(line: str, home: Path) -> set[str]:
    """What fish offers. An option's own help follows a tab."""
    script = f"source {ROOT}/completions/commcalc.fish; complete -C '{line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script], capture_output=True, text=True, cwd=home / "work",
        env=shell_environment(home), check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return {offered.split("\t")[0] for offered in done.stdout.splitlines()}


def in_zsh(line: str, home: Path) -> set[str]:
    """What zsh writes out or lists at a TAB, in an interactive zsh on a terminal.

    ``compadd`` is wrapped: it is asked for the matches it would add, which go to a file.
    """
    found = home / "found"
    found.write_text("")
    (home / ".zshrc").write_text(
        f"""
        PS1='ready> '; fpath=({ROOT}/completions $fpath); autoload -Uz compinit; compinit -u -D
        compadd() {{
            local -a __hits
            builtin compadd -O __hits "$@"; (( $#__hits )) && print -rl -- $__hits >> {found}
            builtin compadd "$@"
        }}
        after() {{ print -r -- "END" >> {found} }}; zle -N after; bindkey '^X' after
        """
    )
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.chdir(home / "work")
            os.execvpe("zsh", ["zsh", "-i"], shell_environment(home) | {"ZDOTDIR": str(home)})
        finally:
            os._exit(127)  # where there is no zsh, no second copy of the tests goes on
    try:
        wait_for(terminal, lambda said: "ready> " in said)
        os.write(terminal, f"{line}\t\x18".encode())
        wait_for(terminal, lambda said: "END" in found.read_text())
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    return {word for word in found.read_text().split("\n") if word and word != "END"}


def wait_for(terminal: int, done: Callable[[str], bool]) -> None:
    """Read the terminal until ``done`` of all it said; fails after 20 seconds."""
    said = ""
    until = time.monotonic() + 20
    while not done(said):
        assert time.monotonic() < until, said
        if select.select([terminal], [], [], 0.05)[0]:
            said += os.read(terminal, 65536).decode(errors="replace")


DRIVERS = {Shell.BASH: in_bash, Shell.ZSH: in_zsh, Shell.FISH: in_fish}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("line", "wanted"), LINES + LISTS, ids=[line for line, _ in LINES + LISTS])
def test_offers(shell: Shell, line: str, wanted: set[str], home: Path) -> None:
    assert DRIVERS[shell](line, home) - {"some_file.yaml"} == wanted - {"some_file.yaml"}


@pytest.mark.parametrize("shell", SHELLS)
def test_offers_files_too(shell: Shell, home: Path) -> None:
    for line in ("commcalc ledger some", "commcalc presets validate some", "commcalc presets import some"):
        assert DRIVERS[shell](line, home) == {"some_file.yaml"}


def test_the_shells_that_were_demanded_are_driven() -> None:
    assert set(DEMANDED) <= {*SHELLS}
    assert Shell.BASH in SHELLS
