"""Points a second that a sweep evaluates and writes, its memory, and what one point at a time takes.

    python tests/benchmarks/sweep.py [--points 1000000] [--hardware h100,a100]

commcalc must be importable. Seconds are of the processor. Goals on one core: 1,000,000 points/s evaluated and
200,000 lines/s written.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice, product
from typing import Any

ORDER = ["tp", "sp", "dp", "pp", "seq", "micro_batch", "global_batch"]
ALONE = 40


def grid(points: int, hardware: str) -> dict[str, Any]:
    """About so many points over machines, degrees, widths, lengths and micro-batches."""
    machines = len(hardware.split(","))
    lengths = max(1, points // (machines * 4 * 13 * 32))
    return {
        "model": "llama-3-70b", "hardware": hardware, "tp": "1..8:x2", "set_": ["model.hidden_size=4096..16384:1024"],
        "seq": f"1024..{1024 * lengths}:1024", "micro_batch": "1..32",
    }  # fmt: skip


def seconds(run: Callable[[], Any]) -> float:
    """Of the processor, which others may share."""
    start = time.process_time()
    run()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--hardware", default="h100,a100")
    asked = parser.parse_args()
    from commcalc.cli.grid import grid_from
    from commcalc.cli.points import Points
    from commcalc.report.sweep import whole_document

    params = grid(asked.points, asked.hardware)
    found = grid_from(params, ORDER)

    def evaluate() -> None:
        for _ in Points(found, []).chunks():
            pass

    took = seconds(evaluate)
    print(f"evaluated   {found.points:>10,} points {took:8.2f} s {found.points / took:>12,.0f} points/s")
    chosen = list(islice(product(*(range(0, len(axis.texts), 3) for axis in found.axes)), ALONE))
    alone = seconds(lambda: [whole_document(found.job(one)) for one in chosen])
    print(f"one by one  {ALONE:>10,} points {alone:8.2f} s {ALONE / alone:>12,.0f} points/s")
    print(f"ratio {found.points / took / (ALONE / alone):,.0f}")
    for more in ([], ["--format", "csv"], ["--top", "10", "--by", "exposed_share"]):
        with tempfile.TemporaryFile() as file:
            command = [
                sys.executable, "-m", "commcalc", "sweep", "--model", params["model"], "--hardware", asked.hardware,
                "--tp", params["tp"], "--set", params["set_"][0], "--seq", params["seq"],
                "--micro-batch", params["micro_batch"], *more,
            ]  # fmt: skip
            process = subprocess.Popen(command, stdout=file)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            took = usage.ru_utime + usage.ru_stime
            peak = usage.ru_maxrss / 1024
            size = file.seek(0, os.SEEK_END) / 1e6
        name = " ".join(more) or "jsonl"
        print(f"{name:32}{took:8.2f} s {found.points / took:>12,.0f} lines/s {size:8.1f} MB, peak {peak:.0f} MiB")


if __name__ == "__main__":
    main()
