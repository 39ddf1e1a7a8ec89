"""From logs to a calibrated machine: what is fitted, what is written, and that it is what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.algebra.collective import Kind
from commcalc.catalog.calibrate import (
    Calibrated,
    calibrated,
    compare,
    contradictions,
    even,
    hardware_text,
    merged,
    nodes_of,
)
from commcalc.catalog.hardware import Hardware, read_hardware
from commcalc.catalog.job import resolve_links
from commcalc.cli.options import request_from
from commcalc.document import parse_document
from commcalc.errors import CommcalcError, SpecError, UsageError
from commcalc.ingest.nccl_tests import read_log
from commcalc.ingest.sweeps import LogSweep, Row
from commcalc.network.measured import Band
from conftest import DATA

LOGS = DATA / "logs"
MIB = 2**20


def sweep(times: dict[int, float], kind: Kind | None = Kind.ALL_REDUCE, ranks: int | None = 8) -> LogSweep:
    rows = tuple(Row(size, seconds, None, line) for line, (size, seconds) in enumerate(times.items(), 1))
    return LogSweep("log.txt", "nccl-tests", kind, ranks, "float", rows)


def by_law(t0: float, c: float, bandwidth: float, sizes: list[int]) -> LogSweep:
    """AllReduce over 8: 14/8 of the payload on the bus."""
    return sweep({size: t0 + c * (1.75 * size) ** 0.5 + 1.75 * size / bandwidth for size in sizes})


def read_back(text: str, folder: Path) -> Hardware:
    (folder / "mine.yaml").write_text(text)
    hardware = resolve_links(request_from({"hardware": str(folder / "mine.yaml")})).hardware
    assert hardware is not None
    return hardware


def packaged(name: str) -> Hardware:
    hardware = resolve_links(request_from({"hardware": name})).hardware
    assert hardware is not None
    return hardware


# Constants of 8 H100s (tests/data/measured/fits.txt): 15 us, 7.8 ns, 512 GB/s.
def test_a_law_is_found_again() -> None:
    found = calibrated(by_law(15e-6, 7.8e-9, 512e9, [2**k for k in range(13, 31)]))
    law = found.fit.law
    assert (law.t0_s, law.c, law.bandwidth) == pytest.approx((15e-6, 7.8e-9, 512e9), rel=1e-6)
    assert found.fit.p90 < 1e-9
    assert found.factor == 1.75
    # 1 GiB: 15 us + 7.8 ns * 43347 + 1.879e9 B / 512 GB/s = 4023 us, so busbw 467 GB/s.
    assert found.best_busbw == pytest.approx(467.1e9, rel=1e-3)


def test_of_in_and_out_of_place_the_less_counts() -> None:
    rows = (Row(8192, 20e-6, 18e-6, 1), Row(2 * 8192, 21e-6, None, 2), Row(4 * 8192, None, 22e-6, 3))
    found = calibrated(LogSweep("log.txt", "nccl-tests", Kind.ALL_REDUCE, 8, "float", rows))
    assert found.points == ((8192, 18e-6), (16384, 21e-6), (32768, 22e-6))


def test_cold_and_slow_rows_are_dropped_and_named() -> None:
    found = calibrated(sweep({8: 90e-6, 16: 9e-6, 32: 9.1e-6, 64: 30e-6, 128: 10e-6, 0: 5e-6, 256: 11e-6}))
    assert [size for size, _ in found.points] == [16, 32, 128, 256]
    assert {size: reason.split(":")[0].split(" (")[0] for (size, _), reason in found.dropped} == {
        0: "size 0", 8: "cold", 64: "slower than a larger size",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("log", "said", "error", "told"),
    [
        (sweep({8: 1e-5, 16: 2e-5}), {"kind": Kind.ALL_GATHER}, UsageError, "is of all_reduce, not of all_gather"),
        (sweep({8: 1e-5, 16: 2e-5}), {"ranks": 4}, UsageError, "the log is of 8 ranks, not of 4"),
        (sweep({8: 1e-5, 16: 2e-5}, None), {}, UsageError, "which collective is this?"),
        (sweep({8: 1e-5, 16: 2e-5}, ranks=None), {}, UsageError, "how many ranks took part?"),
        (sweep({8: 1e-5, 16: 2e-5}, ranks=1), {}, SpecError, "one rank alone sends nothing"),
        (sweep({8: 1e-5, 16: 2e-5}), {"nodes": 3}, UsageError, "8 ranks do not lie evenly on 3 nodes"),
        (sweep({8192: 1e-5}), {}, SpecError, "a single size fixes no law"),
        (sweep({8: 0.0, 16: 0.0}), {}, SpecError, "every time is 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_is_refused(
    log: LogSweep, said: dict[str, object], error: type[CommcalcError], told: str
) -> None:
    with pytest.raises(error, match=told.replace("?", "\\?")) as refused:
        calibrated(log, **said)
    assert refused.value.where


def test_logs_of_one_group_that_differ_twofold_contradict_each_other() -> None:
    sizes = [2**k for k in range(13, 25)]
    one = calibrated(by_law(15e-6, 0, 500e9, sizes))
    close = calibrated(by_law(18e-6, 0, 450e9, sizes))
    far = calibrated(by_law(40e-6, 0, 200e9, sizes))
    assert contradictions([one, close]) == []
    (problem,) = contradictions([one, far])
    assert "two sweeps of all_reduce over 8 ranks contradict each other" in problem.message


def test_of_several_runs_the_least_time_of_each_size_counts() -> None:
    one, other = calibrated(sweep({8192: 2e-5, 16384: 2.2e-5})), calibrated(sweep({8192: 1.9e-5, 16384: 2.3e-5}))
    (found,) = merged([one, other])
    assert found.points == ((8192, 1.9e-5), (16384, 2.2e-5))


@given(st.lists(st.floats(1e-6, 1e-3), min_size=1, max_size=30))
def test_evened_times_never_fall_and_keep_their_sum(times: list[float]) -> None:
    found = [time for _, time in even(list(enumerate(times)))]
    assert found == sorted(found)
    assert sum(found) == pytest.approx(sum(times))
    assert even(list(enumerate(sorted(times)))) == list(enumerate(sorted(times)))


def test_six_sizes_are_written_as_points_and_fewer_as_their_law(tmp_path: Path) -> None:
    many = calibrated(by_law(15e-6, 7.8e-9, 512e9, [2**k for k in range(13, 19)]))
    few = calibrated(by_law(15e-6, 7.8e-9, 512e9, [2**13, 2**16, 2**20, 2**24, 2**28]))
    (points,) = (
        read_back(hardware_text("mine", [many], packaged("h100"), "h100"), tmp_path).network.levels[0].measured[2:3]
    )
    assert (points.ranks, len(points.points), points.own, points.law) == (8, 6, True, None)
    mine = read_back(hardware_text("mine", [few], None, None), tmp_path)
    (law,) = mine.network.levels[0].measured
    assert law.law is not None
    assert (law.law.t0_s, law.law.c, law.law.bandwidth) == pytest.approx((15e-6, 7.8e-9, 512e9), rel=1e-5)
    assert (law.rows, law.own) == (5, True)
    (of_eight, of_five) = (compare(many, read_back(hardware_text("m", [many], None, None), tmp_path).network),
                           compare(few, mine.network))  # fmt: skip
    assert {one.predicted.cost.evidence.band for one in of_five if one.predicted.cost.evidence} == {Band(0.08, 0.25)}
    assert max(abs(one.error) for one in (*of_eight, *of_five)) < 1e-5


SAMPLES = sorted(path.name for path in LOGS.iterdir() if path.suffix == ".txt" and path.name[:2] not in ("14", "15"))


@pytest.mark.parametrize("name", [*SAMPLES, "13_json_h100x8.json"])
@pytest.mark.parametrize("over", [None, "h100"])
def test_a_log_is_what_the_machine_made_of_it_says(name: str, over: str | None, tmp_path: Path) -> None:
    """Within 25 %: points that fall are evened out, and what is left of five sizes is a law."""
    base = packaged(over) if over else None
    logs = read_log(str(LOGS / name))
    found = [calibrated(one, nodes=nodes_of(one.ranks or 0, base and base.network, name)) for one in logs]
    machine = read_back(hardware_text("mine", found, base, over), tmp_path)
    for one in found:
        compared = compare(one, machine.network)
        assert {each.predicted.cost.confidence for each in compared} <= {"measured", "calibrated"}
        errors = sorted(abs(each.error) for each in compared)
        assert errors[len(errors) // 2] < (0.02 if len(one.points) > 5 else 0.2)
        assert errors[-1] < 0.25


def test_a_group_over_nodes_is_written_to_the_level_that_joins_them(tmp_path: Path) -> None:
    found = [calibrated(one, nodes=2) for one in read_log(str(LOGS / "04_interleaved_nccl_info_a100x16.txt"))]
    machine = read_back(hardware_text("mine", found, packaged("a100"), "a100"), tmp_path)
    assert machine.network.levels[0].measured == packaged("a100").network.levels[0].measured
    (sweep_,) = machine.network.levels[1].measured
    assert (sweep_.ranks, sweep_.domains, sweep_.own) == (16, 2, True)


def test_the_file_is_read_without_a_problem(tmp_path: Path) -> None:
    found: list[Calibrated] = []
    for name in ("08_new_2.18_b200x8_five_collectives.txt", "07_rccl_mi300x16.txt"):
        found += [calibrated(one, nodes=2 if "x16" in name else 1) for one in read_log(str(LOGS / name))]
    text = hardware_text("mine", found, None, None)
    _, _, problems = read_hardware(parse_document(text, "mine.yaml"))
    assert problems == []
    assert text == hardware_text("mine", found, None, None)
