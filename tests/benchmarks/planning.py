"""Seconds of planning products of growing size, and their ratio to the smallest; each in a process of its own.

    python tests/benchmarks/planning.py [--rounds 5]

commcalc must be importable. Budget: four axes and tensors of four dimensions, whole axes, under 2 s.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

QUESTIONS = {
    "1 axis, matrices": ("A[I, J_X] @ B[J, K] -> C[I, K]", "X=4", "I=1K,J=1K,K=1K"),
    "2 axes, matrices": ("A[I_X, J_Y] @ B[J_Y, K_X] -> C[I_X, K_Y]", "X=4,Y=2", "I=1K,J=1K,K=1K"),
    "3 axes, matrices": ("A[I_X, J_Y] @ B[J_Y, K_Z] -> C[I_X, K]", "X=4,Y=2,Z=2", "I=1K,J=1K,K=1K"),
    "3 axes, an MLP": (
        "relu(In[B_X, D] @ Win[D, F_Y]) @ Wout[F_Y, D] -> Out[B_X, D]", "X=4,Y=2,Z=2", "B=4K,D=8K,F=32K",
    ),
    "4 axes, 4 dimensions": (
        "Q[N_W, H_X, S_Y, D] @ K[N_W, H_X, T, D_Z] -> P[N_W, H_X, S_Y, T_Z]", "W=2,X=4,Y=2,Z=2",
        "N=16,H=32,S=4K,T=4K,D=128",
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    medians: dict[str, float] = {}
    for name, (expression, mesh, dims) in QUESTIONS.items():
        command = [sys.executable, "-m", "commcalc", "matmul", expression, "--mesh", mesh, "--dim", dims, "--json"]
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - start)
        medians[name] = statistics.median(times)
    smallest = min(medians.values())
    for name, seconds in medians.items():
        print(f"{name:24}{seconds:8.3f} s{seconds / smallest:8.2f}x")


if __name__ == "__main__":
    main()
