"""CPU time of starting commcalc against a bare Typer program, interleaved, from the interpreter that runs this file.

    python tests/benchmarks/startup.py [--rounds 31]

commcalc must be installed in that interpreter. Prints medians of user plus system time, and their ratio to the bare
program. Budgets: ``ledger --json`` on the default job 2.0, ``--version`` 1.3, ``matmul`` on a 3-axis mesh 3.0.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory

BARE = """\
import typer

app = typer.Typer(add_completion=False)


@app.command()
def main(name: str = "world") -> None:
    print("hello", name)


app()
"""


def cpu_seconds(command: list[str]) -> float:
    """User and system time of one run of ``command``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    rounds = parser.parse_args().rounds
    commcalc = str(Path(sysconfig.get_path("scripts")) / "commcalc")
    with TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.py"
        bare.write_text(BARE)
        programs = {
            "bare Typer program": [sys.executable, str(bare)],
            "commcalc --version": [commcalc, "--version"],
            "commcalc ledger --json": [commcalc, "ledger", "--json"],
            "commcalc degrees --json": [commcalc, "degrees", "--model", "llama-3-70b", "--json"],
            "commcalc ledger (table)": [commcalc, "ledger"],
            "commcalc collective --json": [
                commcalc,
                "collective",
                "all_reduce",
                "--bytes",
                "1GiB",
                "--group-size",
                "8",
                "--hardware",
                "h100",
                "--json",
            ],
            "commcalc busbw --json": [
                commcalc,
                "busbw",
                "all_reduce",
                "--group-size",
                "8",
                "--busbw",
                "1GB/s",
                "--json",
            ],
            "commcalc matmul --json": [
                commcalc,
                "matmul",
                "A[I_X, J_Y] @ B[J_Y, K_Z] -> C[I_X, K]",
                "--mesh",
                "X=4,Y=2,Z=2",
                "--dim",
                "I=1K,J=1K,K=1K",
                "--json",
            ],
        }
        for command in programs.values():  # warm the caches
            cpu_seconds(command)
        times: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(rounds):
            for name, command in programs.items():
                times[name].append(cpu_seconds(command))
    base = statistics.median(times["bare Typer program"])
    for name, samples in times.items():
        median = statistics.median(samples)
        print(f"{name:28} median {1000 * median:7.1f} ms   ratio {median / base:5.2f}")


if __name__ == "__main__":
    main()
