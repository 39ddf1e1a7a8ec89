"""How far the program is from published measurements: ``python tests/benchmarks/accuracy.py [--sources]``.

Prints median and 90th percentile of the relative error by system and payload, with the presets as shipped and after
calibration on a part of each sweep, and holds them to the goals. What is listed apart counts for no goal. The exit
status is 1 where a goal is missed over all that counts for it. commcalc must be importable.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # before this folder: the name is there once more

import accuracy
from accuracy import ENDLESS, GIB, GOALS, MIB, Cell, Found, Goal, cell
from measured import sweeps

WIDTH = 56
APART_RANGES = (0, 16 * MIB, ENDLESS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", action="store_true", help="each source on lines of its own")
    by_source = parser.parse_args().sources
    taken = accuracy.independent()
    found = [*accuracy.shipped_errors(taken), *accuracy.calibrated_errors(taken)]
    for mode in dict.fromkeys(goal.mode for goal in GOALS):
        print_mode(mode, [one for one in found if one.mode == mode], by_source)
    without = sorted({device.label for device in accuracy.DEVICES.values() if not device.preset})
    print(f"no preset: {', '.join(without)}")
    print(f"{len(sweeps())} sweeps; {len(sweeps()) - len(taken)} are copies of another under another name: left out\n")
    print(head("in total"))
    cells = accuracy.totals(found)
    for goal, one in cells.items():
        print(f"{line(goal.mode, goal.payload, one)}   {verdict(one, goal)}")
    return int(not all(one.meets(goal) for goal, one in cells.items()))


def print_mode(mode: str, found: list[Found], by_source: bool) -> None:
    def named(one: Found) -> str:
        return f"{one.system}: {one.sweep.source}" if by_source else one.system

    print(head(mode))
    for name, payload, ones in grouped((one for one in found if not one.apart), named, accuracy.RANGES):
        goal = ones[0].goal
        print(line(name, payload, cell(ones)) + "   " + (verdict(cell(ones), goal) if goal else "none"))
    apart = [one for one in found if one.apart]
    for reason in sorted({one.apart for one in apart}):
        print(f"apart, {reason}")
        mine = [one for one in apart if one.apart == reason]
        for name, payload, ones in grouped(mine, named, APART_RANGES):
            sources = sorted({one.sweep.source for one in ones})
            told = f"  {name} ({', '.join(sources)})"
            if by_source or len(told) > WIDTH:
                told = f"  {name}"
            print(line(told, payload, cell(ones)))
    print()


def grouped(
    found: Iterable[Found], named: Callable[[Found], str], ranges: tuple[int, ...]
) -> list[tuple[str, str, list[Found]]]:
    """The errors of each name and range of payloads, in order."""
    groups: dict[tuple[str, int], list[Found]] = {}
    for one in found:
        at = next(at for at, end in enumerate(ranges[1:]) if one.payload_bytes < end)
        groups.setdefault((named(one), at), []).append(one)
    payloads = [payload_range(low, high) for low, high in pairwise(ranges)]
    return [(name, payloads[at], ones) for (name, at), ones in sorted(groups.items(), key=lambda item: item[0])]


def payload_range(low: int, high: int) -> str:
    """A range in words.

    >>> payload_range(0, 8192), payload_range(8192, 2**20), payload_range(2**30 + 1, 2**60)
    ('below 8 KiB', '8 KiB to 1 MiB', 'above 1 GiB')
    """
    if high == ENDLESS:
        return f"above {size(low - 1)}" if low % 2 else f"{size(low)} and more"
    return f"{size(low)} to {size(high)}" if low else f"below {size(high)}"


def size(count: int) -> str:
    return f"{count >> 10} KiB" if count < MIB else f"{count >> 20} MiB" if count < GIB else f"{count >> 30} GiB"


def head(name: str) -> str:
    return f"{name:{WIDTH}} {'payload':18} {'sweeps':>6} {'points':>6} {'median':>7} {'p90':>7}   goal"


def line(name: str, payload: str, one: Cell) -> str:
    return f"{name:{WIDTH}} {payload:18} {one.sweeps:6} {one.points:6} {one.median:7.1%} {one.p90:7.1%}"


def verdict(one: Cell, goal: Goal) -> str:
    told = "ok" if one.meets(goal) else "BEYOND"
    return f"{goal.median:.0%} / {goal.p90:.0%} {told}"


if __name__ == "__main__":
    sys.exit(main())
