"""Random products, chains and changes of sharding: every strategy computes the right array and sends what it says."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from commcalc.accounting.products import Answer, Bill, Objective, Pricing, Strategy, answer
from commcalc.accounting.resharding import reshardings
from commcalc.algebra.expression import parse_expression
from commcalc.algebra.mesh import Mesh
from commcalc.algebra.notation import format_tensor
from commcalc.algebra.planner import Moved
from commcalc.algebra.problem import Problem, bind
from commcalc.algebra.sharding import Sharding
from commcalc.algebra.states import arrangements
from commcalc.errors import ShardingError, UsageError
from commcalc.network.fabric import Fabric
from commcalc.simulate.check import Check, Run
from commcalc.simulate.precision import Format, precision_of
from commcalc.simulate.products import run_routes, run_strategies

EXACT = precision_of(Format.FLOAT64)
MESHES = [{"X": 2}, {"X": 4}, {"X": 3}, {"X": 2, "Y": 2}, {"X": 4, "Y": 2}, {"X": 2, "Y": 3}, {"X": 2, "Y": 2, "Z": 2}]
SIZE = 24


def asked(text: str, mesh: dict[str, int], size: int = SIZE, **how: bool) -> Problem:
    expression = parse_expression(text, mesh)
    dims = {dim for operand in expression.tensors for dim in operand.sharding.dims}
    return bind(expression, Mesh.of(mesh), dict.fromkeys(sorted(dims), size), 16, **how)


def answered(problem: Problem, everything: bool = True) -> Answer:
    return answer(problem, Pricing(Fabric(problem.mesh), None, Objective.BYTES), everything=everything)


def wrong(runs: list[Run]) -> list[tuple[str, Check]]:
    return [(run.case, check) for run in runs for check in run.checks if not check.passed]


@st.composite
def tensor(draw: st.DrawFn, name: str, dims: tuple[str, ...], mesh: dict[str, int], pending: bool = False) -> str:
    options = arrangements(mesh, len(dims), lambda *_: True, [list(mesh)] if pending else [])
    split, held = draw(st.sampled_from(options))
    return format_tensor(name, Sharding(dims, split, tuple(held[0]) if held else ()))


@given(st.sampled_from(MESHES), st.integers(0, 2**32), st.data())
@settings(max_examples=30, deadline=None)
def test_every_strategy_of_a_random_product(mesh: dict[str, int], seed: int, data: st.DataObject) -> None:
    """Forward and back, any shardings, with or without a pending sum, a function, and a wanted result."""
    left = data.draw(tensor("A", ("I", "J"), mesh, pending=True))
    right = data.draw(tensor("B", ("J", "K"), mesh))
    left = f"f({left})" if data.draw(st.booleans()) else left
    out = f" -> {data.draw(tensor('C', ('I', 'K'), mesh))}" if data.draw(st.booleans()) else ""
    found = answered(asked(f"{left} @ {right}{out}", mesh), everything=data.draw(st.booleans()))
    runs = run_strategies(found, EXACT, seed)
    assert [run.case for run in runs] == [one.name for one in found.strategies]
    assert wrong(runs) == []
    for run, one in zip(runs, found.strategies, strict=True):
        counted = [check.found for check in run.checks if check.what == "wire_bytes" and "backward" not in check.where]
        assert sum(counted) == one.wire_bytes


EINSUMS = [
    "A[N, I, J] @ B[N, J, K] -> C[N, I, K]",
    "A[I, J, K] @ B[K, L] -> C[I, J, L]",
    "A[N, H, S] @ B[N, H, T] -> C[N, S, T]",
    "A[I, J] @ B[I, J] -> C[I]",
    "A[I, J] @ B[J, K] -> C[K, I]",
    "A[I, J] @ B[K, L] -> C[I, K]",
]


@given(st.sampled_from(EINSUMS), st.sampled_from(MESHES[:6]), st.integers(0, 2**32), st.data())
@settings(max_examples=30, deadline=None)
def test_every_strategy_of_a_random_einsum(text: str, mesh: dict[str, int], seed: int, data: st.DataObject) -> None:
    """Batch dimensions, sums over several and over dimensions of one operand alone, transposed results."""
    written = []
    for part in text.replace("->", "@").split("@"):
        name, dims = part.strip()[0], tuple(part.strip()[2:-1].split(", "))
        written.append(data.draw(tensor(name, dims, mesh)))
    problem = asked(f"{written[0]} @ {written[1]} -> {written[2]}", mesh)
    assert wrong(run_strategies(answered(problem, everything=False), EXACT, seed)) == []


@given(st.sampled_from(MESHES[:5]), st.integers(0, 2**32), st.data())
@settings(max_examples=20, deadline=None)
def test_every_strategy_of_a_random_chain(mesh: dict[str, int], seed: int, data: st.DataObject) -> None:
    first, second, third = (
        data.draw(tensor(*one, mesh)) for one in (("A", ("I", "J")), ("B", ("J", "K")), ("C", ("K", "L")))
    )
    function = data.draw(st.sampled_from(["", "f"]))
    stop = f" -> {data.draw(tensor('T', ('I', 'K'), mesh))}" if not function and data.draw(st.booleans()) else ""
    inner = f"{function}({first} @ {second})" if function else f"{first} @ {second}{stop}"
    problem = asked(f"{inner} @ {third}", mesh)
    assert wrong(run_strategies(answered(problem, everything=False), EXACT, seed)) == []


@given(st.sampled_from(MESHES), st.integers(0, 2**32), st.data())
@settings(max_examples=60, deadline=None)
def test_every_route_reaches_its_target(mesh: dict[str, int], seed: int, data: st.DataObject) -> None:
    start = data.draw(tensor("A", ("I", "J"), mesh, pending=True))
    end = data.draw(tensor("A", ("I", "J"), mesh))
    problem = asked(f"{start} -> {end}", mesh)
    assume(problem.state(problem.expression.first) != problem.state(problem.expression.stations[-1]))
    runs = run_routes(reshardings(problem, Pricing(Fabric(problem.mesh), None, Objective.BYTES)), EXACT, seed)
    assert wrong(runs) == []


def test_sizes_that_are_padded() -> None:
    """10 rows on 4 devices: blocks of 3, the last with one row of the tensor; the result is that of 10."""
    problem = asked("f(A[I_X, J_Y]) @ B[J_Y, K] -> C[I_X, K]", {"X": 4, "Y": 2}, 9, pad=True)
    assert problem.padding == {"I": (9, 12), "J": (9, 10)}
    runs = run_strategies(answered(problem), EXACT, 0)
    assert wrong(runs) == []
    bytes_alone = Pricing(Fabric(Mesh.of({"X": 4})), None, Objective.BYTES)
    found = reshardings(asked("A[I_X, J] -> A[I, J_X]", {"X": 4}, 9, pad=True), bytes_alone)
    assert wrong(run_routes(found, EXACT, 0)) == []


def test_parts_of_an_axis() -> None:
    problem = asked("A[I_X, J] @ B[J_X, K] -> C[I, K]", {"X": 4}, 16, sub_axes=True)
    runs = run_strategies(answered(problem), EXACT, 3)
    assert any("X2" in run.case for run in runs)
    assert wrong(runs) == []


@pytest.mark.parametrize("chosen", [Format.FLOAT32, Format.BFLOAT16])
@pytest.mark.parametrize("seed", range(5))
def test_short_formats_stay_within_their_tolerance(chosen: Format, seed: int) -> None:
    problem = asked("f(A[I_X, J] @ B[J_X, K]) @ D[K, L_X] -> C[I, L]", {"X": 4}, 32)
    assert wrong(run_strategies(answered(problem), precision_of(chosen), seed)) == []


# It can fail.


def changed(found: Answer, **fields: object) -> Answer:
    one = found.strategies[0]
    return found._replace(strategies=(one._replace(**fields),))


def without_a_move(one: Strategy) -> tuple[object, ...]:
    at = next(at for at, event in enumerate(one.plan.events) if isinstance(event, Moved))
    return one.plan.events[:at] + one.plan.events[at + 1 :]


def test_a_strategy_that_leaves_out_a_collective_is_caught() -> None:
    found = answered(asked("A[I, J_X] @ B[J_X, K] -> C[I, K]", {"X": 4}))
    one = found.strategies[0]
    assert one.name == "multiply-then-all-reduce"
    broken = changed(found, plan=one.plan._replace(events=without_a_move(one)))
    ((_, check),) = wrong(run_strategies(broken, EXACT, 0))
    assert check.what == "forward_error"
    assert check.message == "C is used as ((), ()) before any device holds it so"


def test_a_bill_that_is_wrong_is_caught() -> None:
    found = answered(asked("A[I, J_X] @ B[J, K] -> C[I, K]", {"X": 4}))
    one = found.strategies[0]
    stages = tuple(
        stage._replace(wire_bytes=stage.payload_bytes) if isinstance(stage, Bill) else stage for stage in one.stages
    )
    ((name, check),) = wrong(run_strategies(changed(found, stages=stages), EXACT, 0))
    assert (name, check.what, check.expected, check.found) == ("gather-then-multiply", "wire_bytes", 1152, 864)
    assert check.where == "gather-then-multiply: all_gather of A over X"
    assert check.message == "predicted are 1,152 B, a device sent 864 B: (n-1)/n is missing"


def test_a_plan_for_another_expression_is_caught() -> None:
    """The plan multiplies A by B as if J were split alike; B lies otherwise, so its blocks are others."""
    right = answered(asked("A[I, J_{XY}] @ B[J_{XY}, K] -> C[I, K]", {"X": 2, "Y": 2}))
    problem = asked("A[I, J_{XY}] @ B[J_{YX}, K] -> C[I, K]", {"X": 2, "Y": 2})
    ((_, check),) = wrong(run_strategies(changed(right)._replace(problem=problem), EXACT, 0))
    assert check.message.startswith("B is used as")


def test_limits() -> None:
    problem = asked("A[I_X, J] @ B[J, K]", {"X": 4})
    huge = bind(problem.expression, Mesh.of({"X": 4}), {"I": 2**20, "J": 2**20, "K": 2**20}, 16)
    with pytest.raises(UsageError, match=r"would take about [\d.]+ TiB of memory; the limit is 2 GiB"):
        run_strategies(answered(huge), EXACT, 0)
    wide = asked("A[I_X, J] @ B[J, K]", {"X": 8192}, 8192)
    with pytest.raises(UsageError, match="a mesh of 8192 devices is too large to simulate; at most 4096"):
        run_strategies(answered(wide), EXACT, 0)
    with pytest.raises(ShardingError, match="of size 2, does not split 4 ways"):
        asked("A[I_X, J] @ B[J, K]", {"X": 4}, 2)


@pytest.mark.parametrize(
    ("text", "mesh", "dims"),
    [
        ("A[I, J, K] @ B[J, K, L] -> C[I, L]", {"X": 1}, {"I": 4, "J": 200, "K": 200, "L": 1}),
        ("A[I, J_X] @ B[J_X, K] -> C[I, K]", {"X": 4}, {"I": 200, "J": 200, "K": 200}),
        ("f(A[I, J] @ B[J, K_X]) @ D[K_X, L]", {"X": 4}, {"I": 300, "J": 4, "K": 300, "L": 4}),
        ("A[I_X, J] -> A[I, J]", {"X": 8}, {"I": 200, "J": 200}),
    ],
)
@pytest.mark.parametrize("tolerance", [1e-12, 1e-22])  # the smaller one asks what rounding does
def test_the_estimate_covers_the_whole_run(
    text: str, mesh: dict[str, int], dims: dict[str, int], tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed: list[int] = []
    monkeypatch.setattr("commcalc.simulate.room.check_memory", lambda elements, *_: needed.append(8 * elements))
    problem = bind(parse_expression(text, mesh), Mesh.of(mesh), dims, 16)
    precision = EXACT._replace(tolerance=tolerance, gradient_tolerance=tolerance)
    found = answered(problem) if problem.expression.products else None
    routes = reshardings(problem, Pricing(Fabric(problem.mesh), None, Objective.BYTES)) if found is None else None
    tracemalloc.start()
    if found is not None:
        run_strategies(found, precision, 0)
    elif routes is not None:
        run_routes(routes, precision, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= needed[0] <= 3 * peak


@pytest.mark.parametrize("seed", [0, 11, 44])
def test_a_sum_that_cancels_is_judged_by_its_terms(seed: int) -> None:
    """Four products that nearly add up to nothing: in bfloat16 little of their sum is right, on one device too."""
    problem = asked("A[I_X] @ B[I_X] -> C[]", {"X": 2}, 4)
    runs = run_strategies(answered(problem), precision_of(Format.BFLOAT16), seed)
    assert wrong(runs) == []
    worst = max(check.found for run in runs for check in run.checks if check.what == "forward_error")
    assert (worst > 0.15) == (seed > 0)


def test_the_reference_is_plain_numpy() -> None:
    """One strategy by hand: relu is run as tanh, and its derivative goes through the gradient."""
    problem = asked("relu(A[I, J] @ B[J, K]) @ D[K, L]", {"X": 2}, 4)
    rng = np.random.default_rng(7)
    a, b, d = (rng.standard_normal((4, 4)) for _ in range(3))
    from commcalc.simulate.products import _on_one_device

    found = _on_one_device(problem, problem.chain(), np.random.default_rng(7))
    assert np.allclose(found.result, np.tanh(a @ b) @ d, rtol=1e-14)
    slope = (found.seed @ d.T) * (1 - np.tanh(a @ b) ** 2)
    expected = [slope @ b.T, a.T @ slope, np.tanh(a @ b).T @ found.seed]
    for one, other in zip(found.gradients, expected, strict=True):
        assert np.allclose(one, other, rtol=1e-12)
