"""``--output FILE``: the data whole in a file, or an error and nothing left behind."""

from __future__ import annotations

import os
import shlex
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from commcalc.cli import COMMANDS, run
from commcalc.cli.completion_scripts import commands
from commcalc.cli.destination import Destination
from conftest import Inside, environment, run_commcalc

# Every command that prints data; `calibrate` and `presets import` have an --output of their own meaning.
PRINTING = [
    "ledger",
    "ledger --json",
    "ledger --format csv",
    "ledger --format jsonl",
    "ledger --format markdown",
    "matmul 'A[I, J_X] @ B[J, K]' --mesh X=4 --dim I=8,J=8,K=8",
    "reshard 'A[I_X, J] -> A[I, J_X]' --mesh X=4 --dim I=8,J=8",
    "shard 'A[I_X, J]' --mesh X=4 --dim I=8,J=8 --json",
    "collective all_reduce --bytes 8MiB --group-size 8 --hardware h100",
    "collective --bytes 8MiB --group-size 8 --hardware h100 --json",
    "busbw all_reduce --group-size 8 --busbw 480GB/s",
    "degrees --model llama-3-70b",
    "solve tp --model llama-3-70b --hardware h100",
    "solve bandwidth --model llama-2-70b --tp 2 --seq 2K --time 13.3s",
    "compare --model llama-3-70b --hardware h100 --tp 4,8",
    "compare --model llama-3-70b --hardware h100 --tp 4,8 --format csv",
    "sweep --model llama-3-8b --hardware h100 --tp 2,3,4 --seq 1K,2K",
    "sweep --model llama-3-8b --hardware h100 --tp 1..8 --top 2 --by memory_bytes --format csv",
    "check tests/data/budget.yaml",
    "check tests/data/budget.yaml --format junit",
    "record llama-3-70b-h100",
    "record compare tests/data/records/tp2.yaml",
    "verify 'A[I_X, J] -> A[I, J_X]' --mesh X=4",
    "presets list",
    "presets show h100 --json",
    "presets validate presets/jobs",
    "schema",
    "schema job",
    "completions bash",
]
SHORT = "busbw all_reduce --group-size 8 --busbw 480GB/s"
OWN_MEANING = {"calibrate", "presets import"}


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_every_command_has_it() -> None:
    tree = [command for command in commands() if not command.group]
    assert {command.path[0] for command in tree} == set(COMMANDS)
    for command in tree:
        (option,) = [option for option in command.options if "--output" in option.spellings]
        name = " ".join(command.path)
        assert "-o" in option.spellings, name
        assert option.help.startswith("Write there, all or nothing") == (name not in OWN_MEANING), name
        assert name in OWN_MEANING or any(one.startswith(name) for one in PRINTING), name


@pytest.mark.parametrize("command", PRINTING)
def test_the_file_has_what_stdout_had(command: str, inside: Inside, tmp_path: Path) -> None:
    told = inside(*shlex.split(command))
    ran = inside(*shlex.split(command), "--output", str(tmp_path / "out"))
    assert (ran.status, ran.out, ran.err) == (told.status, "", told.err)
    assert (tmp_path / "out").read_text() == told.out
    assert left_in(tmp_path) == ["out"]


def test_a_dash_is_stdout(inside: Inside) -> None:
    assert inside(*shlex.split(SHORT), "-o", "-").out == inside(*shlex.split(SHORT)).out


def test_stdout_is_back_for_the_next_command(inside: Inside, tmp_path: Path) -> None:
    inside(*shlex.split(SHORT), "-o", str(tmp_path / "out"))
    assert inside(*shlex.split(SHORT)).out == (tmp_path / "out").read_text()


def test_a_check_that_fails_is_written_and_told_by_the_status(inside: Inside, tmp_path: Path) -> None:
    ran = inside("degrees", "--model", "llama-3-8b", "--tp", "3", "--json", "-o", str(tmp_path / "out"))
    assert (ran.status, ran.out) == (3, "")
    assert '"legal": false' in (tmp_path / "out").read_text()
    ran = inside("presets", "validate", "README.md", "--json", "-o", str(tmp_path / "files"))
    assert (ran.status, ran.out) == (2, "")
    assert '"valid": false' in (tmp_path / "files").read_text()


def test_nothing_to_print_is_an_empty_file(inside: Inside, tmp_path: Path) -> None:
    assert inside("presets", "list", "nothing-like-it", "-o", str(tmp_path / "out")).status == 0
    assert (tmp_path / "out").read_text() == ""


@pytest.mark.parametrize("style", [[], ["--json"]])
def test_an_error_leaves_what_was_there(style: list[str], inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before")
    ran = inside("ledger", "--tp", "3", *style, "-o", str(tmp_path / "out"))
    assert ran.status == 3
    assert ("error" in ran.out) == bool(style)
    assert (tmp_path / "out").read_text() == "before"
    assert inside("ledger", "--tp", "3", *style, "-o", str(tmp_path / "new")).status == 3
    assert left_in(tmp_path) == ["out"]


def test_modes_are_those_of_open(inside: Inside, tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_text("before")
    old.chmod(0o640)
    before = os.umask(0o027)
    try:
        for path in (new, old):
            assert inside(*shlex.split(SHORT), "-o", str(path)).status == 0
        with open(tmp_path / "opened", "w"):
            pass
    finally:
        os.umask(before)
    assert new.stat().st_mode == (tmp_path / "opened").stat().st_mode
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert old.read_text() == new.read_text()


def test_a_link_stays_one(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert inside(*shlex.split(SHORT), "-o", str(tmp_path / "link")).status == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text().startswith("all_reduce")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (".", "a folder, not a file"),
        ("no/such/folder", "no such file or directory"),
        ("", "an empty name"),
        ("a\0b", "embedded null byte"),
        ("/dev/full", "no space left on device"),
        ("x" * 300, "file name too long"),
        ("loop", "too many levels of symbolic links"),
    ],
)
def test_what_cannot_be_written_is_told(
    path: str, told: str, inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    ran = inside(*shlex.split(SHORT), f"--output={path}")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert told in ran.err
    assert "at --output" in ran.err
    assert "error" in inside(*shlex.split(SHORT), "--json", f"--output={path}").json
    assert left_in(tmp_path) == ["loop"]


@pytest.mark.parametrize("denied", ["folder", "file"])
def test_no_permission_is_told_before_anything_is_computed(
    denied: str, inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out"
    path.write_text("before")
    path.chmod(0o444)
    place = str(path if denied == "file" else tmp_path)
    monkeypatch.setattr("os.access", lambda asked, _: str(asked) != place)
    ran = inside("ledger", "--tp", "3", "-o", str(path))
    assert (ran.status, ran.out) == (2, "")
    assert ("permission denied" if denied == "file" else "its folder takes no new files") in ran.err
    assert path.read_text() == "before"


def test_a_file_that_grows_too_large_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before")
    script = f'ulimit -f 1; exec "{sys.executable}" -m commcalc schema ledger --output out'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path, env=environment(), timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "file too large" in done.stderr
    assert left_in(tmp_path) == ["out"]
    assert (tmp_path / "out").read_text() == "before"


@pytest.mark.parametrize("when", ["write", "commit"])
def test_an_interrupt_leaves_nothing(when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = getattr(Destination, when)

    def interrupted(self: Destination, *args: bytes) -> None:
        if when == "write":
            done(self, *args)
        raise KeyboardInterrupt

    monkeypatch.setattr(Destination, when, interrupted)
    (tmp_path / "out").write_text("before")
    assert run([*shlex.split(SHORT), "-o", str(tmp_path / "out")]) == 130
    assert left_in(tmp_path) == ["out"]
    assert (tmp_path / "out").read_text() == "before"


def test_a_pipe_is_written_as_it_is(tmp_path: Path) -> None:
    script = f'"{sys.executable}" -m commcalc {SHORT} --output >(cat > read); wait; sleep 0.2; cat read'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path, env=environment(), timeout=60
    )
    assert done.stdout == run_commcalc(*shlex.split(SHORT)).out
    os.mkfifo(tmp_path / "pipe")
    ran = run_commcalc(*shlex.split(SHORT), "--output", str(tmp_path / "pipe"))
    assert (ran.status, ran.out) == (2, "")
    assert "no such device or address" in ran.err
    assert (tmp_path / "pipe").is_fifo()


def test_no_colour_in_a_file(monkeypatch: pytest.MonkeyPatch, inside: Inside, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    told = run_commcalc("ledger")
    assert inside("ledger", "-o", str(tmp_path / "out")).status == 0
    assert (tmp_path / "out").read_text() == told.out


def test_ctrl_c_while_it_computes_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before")
    process = subprocess.Popen(
        [sys.executable, "-m", "commcalc", "verify", "--all", "-o", "out"], cwd=tmp_path, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(4)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, b"")
    assert left_in(tmp_path) == ["out"]
    assert (tmp_path / "out").read_text() == "before"
