"""How long the proof takes: ``python tests/benchmarks/verify.py`` prints seconds, and the ratio to a bare ledger.

All are measured in one run, each as a process of its own, the best of a few rounds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

COMMANDS = {
    "ledger --json": ["ledger", "--json"],
    "verify, one expression": ["verify", "A[I_X, J] @ B[J_X, K] -> C[I, K]", "--mesh", "X=4"],
    "verify, one preset": ["verify", "--model", "deepseek-v3"],
    "verify": ["verify"],
    "verify --all": ["verify", "--all"],
}


def seconds(args: list[str], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-m", "commcalc", *args], check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - begun)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    bare = 0.0
    for name, args in COMMANDS.items():
        took = seconds(args, rounds)
        bare = bare or took
        print(f"{name:24} {took:7.2f} s  {took / bare:6.1f} x ledger")


if __name__ == "__main__":
    main()
