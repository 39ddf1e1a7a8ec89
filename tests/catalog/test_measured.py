"""``measured:`` in hardware files: what is read, laid over, taken away and refused, every violation at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from commcalc.algebra.collective import Kind
from commcalc.catalog.hardware import Hardware, read_hardware
from commcalc.catalog.job import resolve_links
from commcalc.cli.options import request_from
from commcalc.document import parse_document
from commcalc.errors import CommcalcError
from commcalc.network.law import Law
from commcalc.network.link import Algorithm
from commcalc.network.measured import Sweep

LEVEL = "network: [{{name: nvlink, devices: 8, bandwidth: 450 GB/s, measured: [{sweep}]}}]"
GOOD = "{collective: all_reduce, ranks: 8, points: '8KiB 16us, 1 MiB 25.4 us'}"


def read(text: str) -> tuple[Hardware, list[CommcalcError]]:
    hardware, _, problems = read_hardware(parse_document(text, "machine.yaml"))
    return hardware, problems


def sweeps(*items: str) -> tuple[Sweep, ...]:
    hardware, problems = read(LEVEL.format(sweep=", ".join(items)))
    assert problems == []
    return hardware.network.levels[0].measured


def refused(*items: str) -> list[str]:
    """Every violation, with its place."""
    _, problems = read(LEVEL.format(sweep=", ".join(items)))
    return [f"{problem.where}: {problem.message}" for problem in problems]


def test_points_as_text_and_as_pairs() -> None:
    points = ((8192, 16e-6), (2**20, 25.4e-6))
    (text,) = sweeps(GOOD)
    assert (text.kind, text.ranks, text.domains, text.points) == (Kind.ALL_REDUCE, 8, 8, points)
    (pairs,) = sweeps("{collective: all_reduce, ranks: 8, points: [[8 KiB, 16 us], [1 MiB, 25.4 us]]}")
    assert pairs == text


def test_a_law_a_kernel_and_what_else_a_sweep_says() -> None:
    (law,) = sweeps(
        "{collective: all_gather, ranks: 4, t0: 10 us, sqrt: 5.1 ns, bandwidth: 366 GB/s, rows: 12, same_machine: true}"
    )
    assert (law.law, law.rows, law.own) == (Law(10e-6, 5.1e-9, 366e9), 12, True)
    (kernel,) = sweeps(
        "{collective: all_reduce, ranks: 8, algorithm: one-shot, up_to: 256 KiB, source: log,"
        " points: '8KiB 5us, 128KiB 8us'}"
    )
    assert (kernel.algorithm, kernel.most_bytes, kernel.source) == (Algorithm.ONE_SHOT, 262144, "log")


def test_ranks_over_nodes_follow_from_the_level_inside() -> None:
    text = "network: [{name: a, devices: 8, bandwidth: 1 GB/s}, {name: b, bandwidth: 1 GB/s, measured: [%s]}]"
    hardware, problems = read(text % "{collective: all_reduce, ranks: 16, points: '1KiB 1us, 2KiB 2us'}")
    assert problems == []
    assert hardware.network.levels[1].measured[0].domains == 2
    each = "{collective: all_reduce, ranks: 2, nodes: 2, points: '1KiB 1us, 2KiB 2us'}"
    assert read(text % each)[0].network.levels[1].measured[0].domains == 2


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ("ranks: 8", "8 ranks do not lie evenly in 1 domains of 8 devices"),
        ("ranks: 12", "12 ranks do not lie evenly in 1 domains of 8 devices"),
        ("ranks: 32, nodes: 2", "32 ranks do not lie evenly in 2 domains of 8 devices"),
        ("ranks: 64", "64 ranks in 8 domains of 8 devices do not fit into the 32 of the level"),
    ],
)
def test_a_group_that_no_level_joins_is_refused(ranks: str, told: str) -> None:
    outer = f"measured: [{{collective: all_reduce, {ranks}, points: '1KiB 1us, 2KiB 2us'}}]"
    inner = "{name: a, devices: 8, bandwidth: 1 GB/s}"
    (problem,) = read(f"network: [{inner}, {{name: b, devices: 32, bandwidth: 1 GB/s, {outer}}}]")[1]
    assert told in problem.message


@pytest.mark.parametrize(
    ("sweep", "told"),
    [
        ("{ranks: 8, points: '1KiB 1us, 2KiB 2us'}", "collective is missing"),
        ("{collective: all_reduce, points: '1KiB 1us, 2KiB 2us'}", "ranks is missing"),
        ("{collective: all_reduce, ranks: 8}", "a sweep has points, or the constants of a law"),
        ("{collective: all_reduce, ranks: 8, t0: 1 us}", "a law needs t0 and bandwidth"),
        ("{collective: all_reduce, ranks: 8, t0: -1 us, bandwidth: 1 GB/s}", "-1 is negative"),
        ("{collective: all_reduce, ranks: 8, t0: 1 us, bandwidth: 0 GB/s}", "0 GB/s"),
        ("{collective: all_reduce, ranks: 8, t0: .nan, bandwidth: 1 GB/s}", "nan"),
        ("{collective: all_reduce, ranks: 1, points: '1KiB 1us, 2KiB 2us'}", "one rank sends nothing"),
        ("{collective: all_reduce, ranks: 0, points: '1KiB 1us, 2KiB 2us'}", "0"),
        ("{collective: all_reduce, ranks: 8, points: '1KiB 1us'}", "one point fixes no line"),
        ("{collective: all_reduce, ranks: 8, points: '2KiB 1us, 1KiB 2us'}", "sizes must grow: 1024 B follows 2048 B"),
        ("{collective: all_reduce, ranks: 8, points: '1KiB 1us, 1KiB 1us'}", "sizes must grow"),
        ("{collective: all_reduce, ranks: 8, points: '1KiB 2us, 2KiB 1us'}", "times must not fall"),
        ("{collective: all_reduce, ranks: 8, points: '1KiB 0us, 2KiB 1us'}", "0 s is no time of a call"),
        ("{collective: permute, ranks: 8, points: '1KiB 1us, 2KiB 2us'}", "permute is no call of a library"),
        ("{collective: all_reduce, ranks: 16, points: '1KiB 1us, 2KiB 2us'}", "do not fit into the 8 of the level"),
        ("{collective: all_reduce, ranks: 8, nodes: 2, points: '1KiB 1us, 2KiB 2us'}", "domains are single devices"),
        ("{collective: all_reduce, ranks: 8, points: 'fast'}", "'fast' is no point"),
        ("{collective: all_reduce, ranks: 8, points: [[1 KiB], [2 KiB, 1 us]]}", "a point is [payload, time]"),
        ("{collective: all_reduce, ranks: 8, points: '1KiB 1 parsec, 2KiB 2us'}", "parsec"),
        ("{collective: all_sum, ranks: 8, points: '1KiB 1us, 2KiB 2us'}", "all_sum"),
        ("{collective: all_reduce, ranks: 8, algorithm: ring, points: '1KiB 1us, 2KiB 2us'}", "ring"),
        ("{collective: all_reduce, ranks: 8, speed: 1, points: '1KiB 1us, 2KiB 2us'}", "speed"),
        ("fast", "a mapping is expected here"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(sweep: str, told: str) -> None:
    (problem,) = refused(sweep)
    assert told in problem
    assert problem.startswith("machine.yaml:1:")


def test_everything_wrong_is_told_at_once() -> None:
    assert len(refused("{ranks: 8}", "{collective: all_reduce, ranks: 8, points: fast}", GOOD)) == 2
    (twice,) = refused(GOOD, GOOD)
    assert "all_reduce over 8 is there twice" in twice
    _, problems = read("network: [{name: a, devices: 8, bandwidth: 1 GB/s, measured: 5}]")
    assert [problem.message for problem in problems] == ["a list of sweeps is expected here"]


def test_more_points_than_anyone_measured_are_refused() -> None:
    many = ", ".join(f"{size}B {size}us" for size in range(1, 10_002))
    (problem,) = refused(f"{{collective: all_reduce, ranks: 8, points: '{many}'}}")
    assert "10001 points; 2 to 10000 are read" in problem


def test_sweeps_on_a_torus_are_refused() -> None:
    _, problems = read(
        f"network: [{{name: ici, topology: torus, shape: [4, 4], bandwidth: 45 GB/s, measured: [{GOOD}]}}]"
    )
    assert [one.message for one in problems] == ["sweeps on a torus are not read: it matters which devices took part"]


def machine(folder: Path, text: str) -> Hardware:
    path = folder / "mine.yaml"
    path.write_text(text)
    hardware = resolve_links(request_from({"hardware": str(path)})).hardware
    assert hardware is not None
    return hardware


def test_sweeps_are_laid_over_those_of_the_same_group(tmp_path: Path) -> None:
    base = resolve_links(request_from({"hardware": "h100"})).hardware
    assert base is not None
    found = machine(tmp_path, f"extends: h100\nnetwork:\n- {{name: nvlink, measured: [{GOOD}]}}\n")
    theirs, mine = (one.network.levels[0].measured for one in (base, found))
    assert len(mine) == len(theirs)
    changed = [new for old, new in zip(theirs, mine, strict=True) if old != new]
    assert [(one.kind, one.ranks, len(one.points)) for one in changed] == [(Kind.ALL_REDUCE, 8, 2)]


def test_a_sweep_is_taken_whole(tmp_path: Path) -> None:
    """No constants of the law it replaces, nor its threshold, are left beside its points."""
    base = (
        "extends: h200\nnetwork:\n- {name: nvlink, measured: [{collective: all_reduce, ranks: 8, t0: 9 us,"
        " bandwidth: 1 GB/s, up_to: 64 KiB}]}\n"
    )
    (tmp_path / "base.yaml").write_text(base)
    found = machine(tmp_path, f"extends: ./base.yaml\nnetwork:\n- {{name: nvlink, measured: [{GOOD}]}}\n")
    (one,) = [one for one in found.network.levels[0].measured if (one.kind, one.ranks) == (Kind.ALL_REDUCE, 8)]
    assert (len(one.points), one.law, one.most_bytes) == (2, None, None)


def test_times_go_with_the_link_they_were_measured_on(tmp_path: Path) -> None:
    slower = machine(tmp_path, "extends: h100\nnetwork:\n- {name: nvlink, bandwidth: 200 GB/s}\n")
    assert slower.network.levels[0].measured == ()
    assert slower.network.levels[1].measured != ()
    anew = machine(tmp_path, f"extends: h100\nnetwork:\n- {{name: nvlink, bandwidth: 1 TB/s, measured: [{GOOD}]}}\n")
    assert len(anew.network.levels[0].measured) == 1
    larger = machine(tmp_path, "extends: h100\nnetwork:\n- {name: infiniband, devices: 64}\n")
    assert larger.network.levels[1].measured != ()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"bandwidth": ["300 GB/s"]}, False),
        ({"latency": ["1 us"]}, False),
        ({"set_": ["hardware.network.nvlink.bandwidth=300GB/s"]}, False),
        ({"latency": ["1.9 us"]}, True),  # what it is anyway
        ({"latency": ["infiniband=1 us"]}, True),
    ],
)
def test_an_option_that_changes_the_link_takes_its_times_away(given: dict[str, list[str]], kept: bool) -> None:
    hardware = resolve_links(request_from({"hardware": "h100", **given})).hardware
    assert hardware is not None
    assert bool(hardware.network.levels[0].measured) == kept
