"""What tests share: the program as a process, and the ledger of a question in one call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from commcalc.accounting.ledger import build
from commcalc.accounting.memory import Memory, fullest
from commcalc.accounting.outlook import Outlook, outlook_of
from commcalc.accounting.pricing import PricedLedger, price_ledger
from commcalc.accounting.rows import Row
from commcalc.accounting.step import Step
from commcalc.catalog.assign import Assignment
from commcalc.catalog.job import Job, Request, resolve_job
from commcalc.catalog.presets import VARIABLE
from commcalc.cli import run

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(__file__).resolve().parent / "data"
# Mutated files of one test.
FUZZ_CHUNK = 50


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-golden", action="store_true", help="write the outputs that golden tests compare with")
    parser.addoption("--fuzz", type=int, default=1000, help="how many mutated files are tried")
    parser.addoption("--fuzz-first", type=int, default=0, help="the number of the first of them")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fuzz_cases" in metafunc.fixturenames:
        first = metafunc.config.getoption("--fuzz-first")
        last = first + metafunc.config.getoption("--fuzz")
        chunks = [range(at, min(at + FUZZ_CHUNK, last)) for at in range(first, last, FUZZ_CHUNK)]
        metafunc.parametrize("fuzz_cases", chunks, ids=lambda chunk: f"{chunk.start}-{chunk.stop - 1}")


class Ran(NamedTuple):
    """A finished process."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


# Presets of whoever runs the tests are not what is tested.
os.environ.pop(VARIABLE, None)


def environment(**extra: str) -> dict[str, str]:
    """The process environment with this checkout importable, without what would change output."""
    keep = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    return keep | {"PYTHONPATH": str(ROOT)} | extra


def run_commcalc(*args: str, stdin: str | bytes = "", cwd: Path | None = None, **env: str) -> Ran:
    """``commcalc args`` as a process of this interpreter, from any directory."""
    done = subprocess.run(
        [sys.executable, "-m", "commcalc", *args],
        input=stdin if isinstance(stdin, bytes) else stdin.encode(),
        capture_output=True,
        cwd=cwd,
        env=environment(**env),
        timeout=60,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


Inside = Callable[..., Ran]


@pytest.fixture
def inside(capfdbinary: pytest.CaptureFixture[bytes]) -> Inside:
    """``commcalc args`` in this process: for tables of inputs, where a process each would take minutes."""

    def run_inside(*args: str) -> Ran:
        status = run(list(args))
        captured = capfdbinary.readouterr()
        return Ran(status, captured.out.decode(), captured.err.decode())

    return run_inside


def question(
    model: str | None = None,
    hardware: str | None = None,
    *,
    job: str | None = None,
    bandwidth: Iterable[str] = (),
    latency: Iterable[str] = (),
    **values: object,
) -> Job:
    """A resolved job; values are named ``parallelism__tp=8``, ``workload__phase="decode"``."""
    assignments = [
        Assignment(path.replace("__", "."), str(value).lower() if isinstance(value, bool) else str(value), f"--{path}")
        for path, value in values.items()
    ]
    return resolve_job(
        Request(
            job=job, model=model, hardware=hardware, assignments=assignments,
            bandwidths=tuple(bandwidth), latencies=tuple(latency),
        )
    )  # fmt: skip


def ask(model: str | None = None, hardware: str | None = None, **asked: Any) -> PricedLedger:
    """The priced ledger of a `question`."""
    return _priced(question(model, hardware, **asked))


def _priced(found: Job) -> PricedLedger:
    book = build(found.model, found.parallel, found.work, found.convention)
    return price_ledger(book, found.hardware.network if found.hardware else None, found.algorithm)


def look(model: str | None = None, hardware: str | None = None, **asked: Any) -> Outlook:
    """Memory and the step of a `question`."""
    found = question(model, hardware, **asked)
    network = found.hardware.network if found.hardware else None
    return outlook_of(_priced(found), found.chip, network, found.algorithm, found.states, found.clock)


def memory(model: str | None = None, hardware: str | None = None, **asked: Any) -> Memory:
    """Memory of the fullest stage of a `question`."""
    found = look(model, hardware, **asked).memory
    assert found is not None
    return fullest(found)


def step(model: str | None = None, hardware: str | None = None, **asked: Any) -> Step:
    """The step of a `question`."""
    found = look(model, hardware, **asked).step
    assert found is not None
    return found


def fields(**values: object) -> str:
    """A model or machine written as its fields, for ``ask`` and ``--model``."""
    return json.dumps(values)


def rows(priced: PricedLedger, **wanted: object) -> list[Row]:
    """The rows whose fields have these values (``direction="forward"``, ``part="block"``, ``kind="all_reduce"``)."""
    return [
        entry.row
        for entry in priced.entries
        if all(getattr(entry.row, name) == value for name, value in wanted.items())
    ]


def counts(priced: PricedLedger, **wanted: object) -> dict[tuple[str, str], int]:
    """How many rows of each (pass, collective)."""
    found: dict[tuple[str, str], int] = {}
    for row in rows(priced, **wanted):
        key = (row.direction, row.kind.value)
        found[key] = found.get(key, 0) + row.calls
    return found
