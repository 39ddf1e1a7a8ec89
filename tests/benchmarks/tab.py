"""Time of one TAB in bash, zsh and fish, as far as they are installed, against a TAB that offers one fixed word.

    python tests/benchmarks/tab.py [--rounds 50]

Prints medians of wall-clock time inside the shell, and their ratio to that of the fixed word. Budget: 10 ms.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "completions"
LINES = {
    "fixed": "trivial o",
    "subcommand": "commcalc led",
    "option": "commcalc ledger --rec",
    "model": "commcalc ledger --model llama-3.1-4",
}


def in_bash(line: str, rounds: int, folder: Path) -> list[float]:
    words = " ".join(repr(word) for word in line.split(" "))
    call = "_commcalc" if line.startswith("commcalc") else "_trivial"
    script = f"""
        _trivial() {{ COMPREPLY=($(compgen -W "one" -- "${{COMP_WORDS[COMP_CWORD]}}")); }}
        source {SCRIPTS}/commcalc.bash; COMP_WORDS=({words}); COMP_CWORD={len(line.split(" ")) - 1}
        for ((i = 0; i < {rounds}; i++)); do
            start=$EPOCHREALTIME; {call}; end=$EPOCHREALTIME; echo $((${{end/./}} - ${{start/./}}))
        done"""
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=True)
    return [int(microseconds) / 1e6 for microseconds in done.stdout.split()]


def in_fish(line: str, rounds: int, folder: Path) -> list[float]:
    script = f"""
        complete -c trivial -f -a one; source {SCRIPTS}/commcalc.fish; complete -C '{line}' > /dev/null
        for round in (seq {rounds}); complete -C '{line}' > /dev/null; end"""
    empty = f"source {SCRIPTS}/commcalc.fish; complete -C '{line}' > /dev/null"
    samples = []
    for _ in range(5):  # fish has no clock: the loop against the same without it
        took = []
        for program in (script, empty):
            start = time.perf_counter()
            subprocess.run(["fish", "--no-config", "-c", program], check=True, capture_output=True)
            took.append(time.perf_counter() - start)
        samples.append(max(0.0, took[0] - took[1]) / rounds)
    return samples


def in_zsh(line: str, rounds: int, folder: Path) -> list[float]:
    found = folder / "times"
    found.write_text("")
    (folder / ".zshrc").write_text(
        f"""
        PS1='ready> '; zmodload zsh/datetime; fpath=({SCRIPTS} $fpath); autoload -Uz compinit; compinit -u -D
        _trivial() {{ compadd one }}; compdef _trivial trivial
        timed() {{
            local start=$EPOCHREALTIME; zle complete-word
            print $(( EPOCHREALTIME - start )) >> {found}; BUFFER=''
        }}
        zle -N timed; bindkey '^X' timed
        """
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("zsh", ["zsh", "-i"], {**os.environ, "ZDOTDIR": str(folder), "TERM": "dumb"})
    said = b""
    while b"ready> " not in said:
        said += os.read(terminal, 65536)
    for number in range(1, rounds + 2):  # the first loads the functions
        os.write(terminal, f"{line}\x18".encode())
        until = time.monotonic() + 10
        while len(found.read_text().splitlines()) < number and time.monotonic() < until:
            if select.select([terminal], [], [], 0.005)[0]:
                os.read(terminal, 65536)
    os.close(terminal)
    os.waitpid(pid, 0)
    return [float(seconds) for seconds in found.read_text().split()][1:]


SHELLS = {"bash": in_bash, "zsh": in_zsh, "fish": in_fish}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    rounds = parser.parse_args().rounds
    for shell, measure in SHELLS.items():
        if shutil.which(shell) is None:
            print(f"{shell:6} not installed")
            continue
        with TemporaryDirectory() as folder:
            medians = {name: statistics.median(measure(line, rounds, Path(folder))) for name, line in LINES.items()}
        for name, median in medians.items():
            print(f"{shell:6} {name:12} median {1000 * median:7.2f} ms   ratio {median / medians['fixed']:6.2f}")


if __name__ == "__main__":
    main()
