"""The accuracy that is promised, held to published measurements; tests/benchmarks/accuracy.py tells it in full."""

from __future__ import annotations

import pytest

from accuracy import GOALS, Found, Goal, calibrated_errors, cell, independent, reason_apart, shipped_errors

# Of calibrations one sweep in so many is tried: all of them take ten seconds.
STEP = 12


@pytest.fixture(scope="module")
def found() -> list[Found]:
    """The errors of sweeps that can count for a goal."""
    libraries = [sweep for sweep in independent() if not (sweep.int8 or sweep.kernel)]
    counted = [sweep for sweep in libraries if not reason_apart(sweep)]
    return [*shipped_errors(counted), *calibrated_errors(libraries[::STEP])]


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: f"{goal.mode}, {goal.payload}")
def test_goal(found: list[Found], goal: Goal) -> None:
    total = cell([one for one in found if one.goal is goal])
    assert total.meets(goal), total
    assert total.points > 30
