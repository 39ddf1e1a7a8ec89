"""What is installed: the console script, the presets and the completions, found from any directory."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from conftest import ROOT


def installed(*args: str, cwd: Path) -> str:
    """Output of the installed console script, without this checkout on the path."""
    script = Path(sysconfig.get_path("scripts")) / "commcalc"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([str(script), *args], capture_output=True, text=True, cwd=cwd, env=env, check=True).stdout


def test_the_console_script_finds_presets_and_completions_from_anywhere(tmp_path: Path) -> None:
    version = importlib.metadata.version("commcalc")
    assert installed("--version", cwd=tmp_path) == f"commcalc {version}\n"
    assert installed("-V", cwd=tmp_path) == f"commcalc {version}\n"
    assert "939,524,096" in installed("ledger", cwd=tmp_path)
    assert installed("completions", "zsh", cwd=tmp_path) == (ROOT / "completions" / "_commcalc").read_text()


def test_completions_lie_where_the_shells_read() -> None:
    data = Path(sysconfig.get_path("data")) / "share"
    for path in (
        "bash-completion/completions/commcalc",
        "zsh/site-functions/_commcalc",
        "fish/vendor_completions.d/commcalc.fish",
    ):
        assert (data / path).is_file(), path


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "commcalc", "--version"], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.startswith("commcalc ")


def test_the_package_is_typed_and_licensed() -> None:
    assert (ROOT / "commcalc" / "py.typed").is_file()
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_the_top_level_holds_nothing_else() -> None:
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True).stdout.split()
    top = {path.split("/")[0] for path in tracked if not path.startswith(".")}
    assert top == {"pyproject.toml", "README.md", "LICENSE", "commcalc", "presets", "tests", "completions"}
