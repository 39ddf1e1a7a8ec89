"""Every command in the README runs, and prints what the README says."""

from __future__ import annotations

import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from commcalc.cli import COMMANDS
from commcalc.cli.completion_scripts import commands as command_tree
from conftest import DATA, ROOT, Inside, environment, run_commcalc

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
JQ = """\
#!{python}
# jq by its library, for the options that the README uses.
import json, sys
import jq
options = [arg for arg in sys.argv[1:] if arg.startswith("-")]
(program, *files) = [arg for arg in sys.argv[1:] if not arg.startswith("-")]
text = open(files[0]).read() if files else sys.stdin.read()
found = jq.compile(program).input_text(text).all()
for value in found:
    print(value if "-r" in options and isinstance(value, str) else json.dumps(value, separators=(",", ":")))
sys.exit(0 if "-e" not in options or (found and found[-1] not in (None, False)) else 1)
"""
JOB, LOG, BUDGET = "job.yaml", "nccl.log", "budget.yaml"


def made_place(folder: Path) -> Path:
    """The README's job and budget files in ``folder``, and `commcalc` and `jq` for its path."""
    (jobs,) = [body for kind, body in BLOCKS if kind == "yaml" and body.startswith("model:")]
    (folder / JOB).write_text(jobs)
    (folder / BUDGET).write_text(budget())
    (folder / LOG).write_bytes((DATA / "logs" / "17_per_iteration_2.19_h100x8.txt").read_bytes())
    tools = folder / "bin"
    tools.mkdir()
    scripts = {
        "commcalc": f'#!/bin/sh\nexec {sys.executable} -m commcalc "$@"\n',
        "jq": JQ.format(python=sys.executable),
    }
    for name, text in scripts.items():
        path = tools / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


def budget() -> str:
    """The README's budget file."""
    (found,) = [body for kind, body in BLOCKS if kind == "yaml" and body.startswith("job:")]
    return found


def sessions() -> list[tuple[str, str]]:
    """(command, printed) of every `$` line in the console blocks."""
    found = []
    for kind, body in BLOCKS:
        if kind == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, printed = part.partition("\n")
                found.append((command, printed))
    return found


def commands() -> list[str]:
    """Every `commcalc` line of the shell blocks, without its comment."""
    lines = [line for kind, body in BLOCKS if kind == "sh" for line in body.splitlines()]
    return [line.split("  #")[0].strip() for line in lines if line.startswith("commcalc ")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_place(tmp_path_factory.mktemp("readme"))


def shell(command: str, place: Path) -> subprocess.CompletedProcess[str]:
    env = environment()
    env["PATH"] = f"{place / 'bin'}:{env['PATH']}"
    return subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        cwd=place,
        env=env,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


def printed_by(command: str, place: Path) -> str:
    return shell(f"{{ {command}; }} 2>&1", place).stdout.rstrip("\n")


@pytest.mark.parametrize(("command", "printed"), sessions(), ids=[command for command, _ in sessions()])
def test_console_session(command: str, printed: str, place: Path) -> None:
    assert printed_by(command, place) == printed.rstrip("\n")


def plain(command: str) -> list[str] | None:
    """The arguments of a command that needs no shell; None where it has a pipe, a redirection or several words."""
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    found = list(words)
    simple = found[:1] == ["commcalc"] and not {"|", ">", "<", "&&", ";", "2>", "$("} & set(found)
    return shlex.split(command)[1:] if simple and "$" not in command and "~" not in command else None


@pytest.mark.parametrize("command", commands())
def test_command_runs(command: str, place: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = plain(command)
    if arguments is None:
        done = shell(command, place)
        assert (done.returncode, "error" in done.stderr) == (0, False), done.stderr
        assert done.stdout
        return
    monkeypatch.chdir(place)
    ran = inside(*arguments)
    assert (ran.status, "error" in ran.err) == (0, False), ran.err
    assert ran.out


def test_the_job_file_runs(place: Path) -> None:
    assert shell(f"commcalc ledger {JOB} --json", place).returncode == 0
    assert shell(f"commcalc ledger - < {JOB}", place).returncode == 0


def test_the_ci_steps_run_and_fail_where_a_group_leaves_its_node(place: Path) -> None:
    (steps,) = [yaml.safe_load(body) for kind, body in BLOCKS if kind == "yaml" and body.startswith("- run:")]
    lines = [step["run"] for step in steps if not step["run"].startswith("pip")]
    assert len(lines) == 2
    assert shell("set -e; " + "; ".join(lines), place).returncode == 0
    crossing = [line.replace(JOB, "--model gpt3-175b --hardware h100 --tp 16") for line in lines]
    assert shell("set -e; " + "; ".join(crossing), place).returncode == 1


def test_the_workflow_passes_and_marks_the_lines_where_a_group_leaves_its_node(place: Path) -> None:
    (workflow,) = [yaml.safe_load(body) for kind, body in BLOCKS if kind == "yaml" and body.startswith("name: budget")]
    (job,) = workflow["jobs"].values()
    (line,) = [step["run"] for step in job["steps"] if "run" in step and not step["run"].startswith("pip")]
    done = shell(line, place)
    assert (done.returncode, "::error" in done.stdout) == (0, False), done.stderr
    changed = place / BUDGET
    changed.write_text(budget().replace("tp: 8", "tp: 16"))
    try:
        broken = shell(line, place)
    finally:
        changed.write_text(budget())
    assert broken.returncode == 1
    lines = budget().splitlines()
    marked = re.findall(rf"^::error file={BUDGET},line=(\d+),col=\d+,", broken.stdout, re.MULTILINE)
    assert [lines[int(number) - 1].split(":")[0].strip() for number in marked] == [
        "block.exposed_share",
        "levels.tp",
        "warnings",
    ]


def test_the_first_screen_sets_up_runs_and_tests() -> None:
    """The set-up commands are what the CI script runs, as written."""
    script = (ROOT / ".ci" / "run").read_text()
    setup = [body.strip() for kind, body in BLOCKS if kind == "sh"][:2]
    assert [line.split(" && ")[-1] for line in setup] == [
        ".venv/bin/commcalc ledger",
        ".venv/bin/python -m pytest -q -n 2",
    ]
    for line in setup:
        assert line in script
        assert README.index(line) < README.index("```console")


def test_every_subcommand_and_module_is_named() -> None:
    for command in COMMANDS:
        assert f"commcalc {command}" in README
    for path in re.findall(r"`(commcalc/[\w/]+(?:\.py)?|presets/)", README):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("path", [command.path for command in command_tree()], ids=" ".join)
def test_help_opens_with_examples_and_they_run(
    path: tuple[str, ...], tmp_path: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = run_commcalc(*path, "--help").out
    assert run_commcalc(*path, "-h").out == text
    assert max(len(line) for line in text.splitlines()) <= 79
    assert 0 < text.index("Examples:") < text.index("Options:")
    (tmp_path / "config.json").write_text((DATA / "configs" / "phi-4.json").read_text())
    if path[-1] == "validate":
        (tmp_path / "my-model.yaml").write_text("{hidden_size: 64, num_attention_heads: 4}")
    (tmp_path / BUDGET).write_text(budget())
    if path[-1] == "record":
        made = run_commcalc("record", "gpt3-175b-a100").out
        (tmp_path / "filled.yaml").write_text(re.sub(r"(predicted: (\S+)\n +measured:)\n", r"\1 \2\n", made))
    (tmp_path / "presets").symlink_to(ROOT / "presets")
    (tmp_path / LOG).write_bytes((DATA / "logs" / "17_per_iteration_2.19_h100x8.txt").read_bytes())
    examples = text.split("Examples:\n")[1].split("\n\n")[0].splitlines()
    assert examples
    for line in map(str.strip, examples):
        if f"\n{line}\n" in README or f"$ {line} " in README:  # it is run there
            continue
        arguments = plain(line)
        if arguments is not None:
            monkeypatch.chdir(tmp_path)
            ran = inside(*arguments)
            assert ran.status == (3 if line.endswith("--tp 3") else 0), (line, ran.err)
            continue
        script = f'commcalc() {{ "{sys.executable}" -m commcalc "$@"; }}; mkdir -p ~/.config/fish/completions; {line}'
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, cwd=tmp_path, env=environment(HOME=str(tmp_path)), text=True,
        )  # fmt: skip
        # The legality question of one degree is answered with 3: no.
        assert done.returncode == (3 if line.endswith("--tp 3") else 0), (line, done.stderr)


def test_help_without_arguments() -> None:
    ran = run_commcalc()
    assert (ran.status, ran.out) == (2, "")
    for command in COMMANDS:
        assert f"  {command}" in ran.err
    assert run_commcalc("-h").out == run_commcalc("--help").out


def rewrite() -> None:
    """Put what the commands print now into the README: ``python tests/test_readme.py``."""
    text = README
    with TemporaryDirectory() as folder:
        place = made_place(Path(folder))
        for command, printed in sessions():
            text = text.replace(f"$ {command}\n{printed}", f"$ {command}\n{printed_by(command, place)}\n")
    (ROOT / "README.md").write_text(text)


if __name__ == "__main__":
    rewrite()
