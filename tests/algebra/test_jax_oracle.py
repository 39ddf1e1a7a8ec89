"""The planner against real programs: what XLA and Shardy issue, and a brute-force search (tests/data/jax_*.json).

Every einsum and reshard case, over whole axes and over sub-axes; the explicit shard_map programs, forward and backward.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from commcalc.algebra.collective import (
    Kind,
    Step,
    all_gather,
    all_reduce,
    all_to_all,
    keep_slice,
    reduce_scatter,
    transpose,
    wire_bytes,
)
from commcalc.algebra.contraction import product_sharding
from commcalc.algebra.expression import parse_expression
from commcalc.algebra.gradient import gradient
from commcalc.algebra.mesh import Mesh
from commcalc.algebra.planner import Moved, Plan
from commcalc.algebra.problem import Problem, bind
from commcalc.algebra.search import Prices, forward, objective
from commcalc.algebra.states import CostOf, Move, graph_of
from commcalc.algebra.strategies import strategies
from commcalc.units import parse_dtype
from conftest import DATA

Collective = tuple[str, int | None, int, int]


def _load(name: str) -> list[dict[str, Any]]:
    read = json.loads((DATA / name).read_text(encoding="utf-8"))
    common = {key: read["meta"][key] for key in ("mesh", "sizes", "dtype") if key in read["meta"]}
    return [common | case for case in read["cases"]]


CASES = _load("jax_cases.json")
IMPLICIT = [case for case in CASES if "cheapest" in case]
EXHAUSTIVE = _load("jax_exhaustive.json")
EXPLICIT = {case["kind"]: case for case in CASES if "kind" in case}
PARTS = 6


def _problem(case: dict[str, Any], sub_axes: bool = False) -> Problem:
    text = case["notation"]
    if text.endswith("?"):  # the output is left to the compiler
        text = text.partition("->")[0]
    text = text.partition(";")[0]
    mesh = Mesh.of(case["mesh"])
    bits = parse_dtype(case["dtype"]).bits
    return bind(parse_expression(text, mesh.sizes), mesh, case["sizes"], bits, sub_axes=sub_axes)


def _ring(problem: Problem) -> CostOf:
    def cost(kind: Kind, axes: tuple[str, ...], payload: int) -> int:
        return int(wire_bytes(kind, payload, problem.mesh.size(axes)))

    return cost


def _moves(problem: Problem, extra_flops: bool = True) -> tuple[int, list[Move]]:
    """Bytes and moves of the best plan."""
    cost = _ring(problem)
    if problem.expression.products:
        best = strategies(problem, cost, lambda _: 0, extra_flops=extra_flops).plans[0]
        return objective(best.plan.key), [moved.move for moved in best.collectives]
    first, output = problem.expression.first, problem.expression.output
    assert output is not None
    graph = graph_of(tuple(problem.sizes[dim] for dim in first.sharding.dims), tuple(problem.axes.items()))
    table = forward(graph, {problem.state(first): 0}, Prices(problem.bits, cost))
    wanted = problem.state(output)
    return objective(table.keys[wanted]), [move for move in table.path(wanted) if move.kind is not Kind.SLICE]


def _collective(problem: Problem, move: Move) -> Collective:
    """Kind, group size (none for a permute), bytes in and out on one device."""
    payload, n = move.elements * problem.bits // 8, problem.mesh.size(move.axes)
    inside, outside = payload, payload
    if move.kind is Kind.ALL_GATHER:
        inside = payload // n
    elif move.kind is Kind.REDUCE_SCATTER:
        outside = payload // n
    return move.kind.value, None if move.kind is Kind.PERMUTE else n, inside, outside


@pytest.mark.parametrize("part", range(PARTS))
def test_whole_axes_move_no_more_than_the_brute_force(part: int) -> None:
    for case in (*IMPLICIT, *EXHAUSTIVE)[part::PARTS]:
        sent, _ = _moves(_problem(case))
        assert sent <= case["cheapest"], case["id"]


@pytest.mark.parametrize("part", range(PARTS))
def test_nor_without_extra_flops(part: int) -> None:
    for case in (*IMPLICIT, *EXHAUSTIVE)[part::PARTS]:
        if case["cheapest_without_extra_flops"] is not None and "@" in case["notation"]:
            sent, _ = _moves(_problem(case), extra_flops=False)
            assert sent <= case["cheapest_without_extra_flops"], case["id"]


@pytest.mark.parametrize("part", range(PARTS))
def test_sub_axes_move_no_more_than_xla_shardy_and_the_brute_force(part: int) -> None:
    for case in (*IMPLICIT, *EXHAUSTIVE)[part::PARTS]:
        problem = _problem(case, sub_axes=True)
        sent, _ = _moves(problem)
        whole = problem.mesh.parts == () and any(size not in (2, 3, 5, 7) for size in case["mesh"].values())
        allowed = case["cheapest"] if whole else min(case["cheapest"], case["xla"], case["shardy"])
        assert sent <= allowed, case["id"]


def test_where_all_agree_the_best_has_those_very_collectives() -> None:
    agreed = [case for case in IMPLICIT if case["consensus"] is not None]
    assert len(agreed) == 83
    for case in agreed:
        problem = _problem(case)
        sent, moves = _moves(problem)
        assert sent == case["cheapest"], case["id"]
        issued = sorted((kind, n, into, out) for kind, n, into, out, count in case["consensus"] for _ in range(count))
        assert sorted((_collective(problem, move) for move in moves), key=str) == sorted(issued, key=str), case["id"]


# The explicit programs, written with the constructors of `algebra.collective`: steps on A, on B and on C.
Makers = dict[str, list[Any]]
PROGRAMS: dict[str, Makers] = {
    "sm_case1": {},
    "sm_case2_ag": {"A": [partial(all_gather, dim="J", axes=("X",))]},
    "sm_case2_slice_ar": {"B": [partial(keep_slice, dim="J", axes=("X",))], "C": [partial(all_reduce, axes=("X",))]},
    "sm_case2_slice_rs": {
        "B": [partial(keep_slice, dim="J", axes=("X",))],
        "C": [partial(reduce_scatter, dim="K", axes=("X",))],
    },
    "sm_case3_ar": {"C": [partial(all_reduce, axes=("X",))]},
    "sm_case3_rs_k": {"C": [partial(reduce_scatter, dim="K", axes=("X",))]},
    "sm_case3_rs_ag": {"C": [partial(reduce_scatter, dim="K", axes=("X",)), partial(all_gather, dim="K", axes=("X",))]},
    "sm_case3_ar_xy": {"C": [partial(all_reduce, axes=("X", "Y"))]},
    "sm_case3_ar_x_then_y": {"C": [partial(all_reduce, axes=("X",)), partial(all_reduce, axes=("Y",))]},
    "sm_case4_ag_a": {"A": [partial(all_gather, dim="I", axes=("X",))]},
    "sm_ag_xy": {"A": [partial(all_gather, dim="J", axes=("X", "Y"))]},
    "sm_a2a": {"A": [partial(all_to_all, source="I", target="J", axes=("X",))]},
    "sm_a2a_xy": {"A": [partial(all_to_all, source="I", target="J", axes=("X", "Y"))]},
    "sm_fsdp_tp": {"B": [partial(all_gather, dim="J", axes=("X",))]},
    "sm_2d": {"A": [partial(all_gather, dim="J", axes=("Y",))], "B": [partial(all_gather, dim="J", axes=("X",))]},
}
# A collective matmul is the gather as n-1 permutes of one block each; the gather's wire bytes are theirs.
AS_PERMUTES = "sm_collective_matmul"


def _issued(case: dict[str, Any]) -> list[tuple[str, int, int, int, tuple[str, ...]]]:
    return sorted(
        (kind, n, into, out, tuple(axes))
        for kind, n, into, out, count, axes in case["collectives"]
        for _ in range(count)
    )


def _step(problem: Problem, step: Step) -> tuple[str, int, int, int, tuple[str, ...]]:
    values, n = problem.values(), problem.mesh.size(step.axes)
    into, out = (sharding.local_size(problem.bits).value(values) for sharding in (step.before, step.after))
    assert step.payload(problem.bits).value(values) == (out if step.kind is Kind.ALL_GATHER else into)
    return step.kind.value, n, into, out, step.axes


@pytest.mark.parametrize("kind", PROGRAMS)
def test_explicit_collectives(kind: str) -> None:
    """Same kinds, payloads and groups as the shard_map program, and a strategy of the planner has them."""
    case, made = EXPLICIT[kind], PROGRAMS[kind]
    problem = _problem(case)
    expression = problem.expression
    inputs = {"A": expression.first.sharding}
    if expression.products:
        inputs["B"] = expression.products[0].right.sharding
    steps: list[Step] = []
    for name in ("A", "B"):
        for make in made.get(name, []):
            step = make(inputs[name])
            inputs[name] = step.after
            steps.append(step)
    if expression.products:
        now = product_sharding(inputs["A"], inputs["B"], expression.products[0].dims)
        for make in made.get("C", []):
            step = make(now)
            now = step.after
            steps.append(step)
        assert expression.output is not None
        assert now == expression.output.sharding
    found = sorted(_step(problem, step) for step in steps if step.kind is not Kind.SLICE)
    assert found == _issued(case)
    if expression.products and kind != "sm_case3_ar_x_then_y":  # which no plan is: it moves more than both at once
        told = strategies(problem, _ring(problem), lambda _: 0, everything=True).plans
        plans = [sorted(_collective(problem, moved.move) for moved in one.collectives) for one in told]
        assert [row[:4] for row in found] in plans


def test_a_collective_matmul_moves_what_its_gather_moves() -> None:
    case = EXPLICIT[AS_PERMUTES]
    ((kind, _, block, _, count, _),) = case["collectives"]
    problem = _problem(case)
    sent, moves = _moves(problem)
    assert (kind, [move.kind for move in moves]) == ("permute", [Kind.ALL_GATHER])
    assert sent == block * count


BACKWARD = {"sm_fsdp_tp:vjp": "sm_fsdp_tp", "sm_case3_ar:vjp": "sm_case3_ar", "sm_2d:vjp": "sm_2d"}


def _plan(problem: Problem, wanted: list[tuple[str, int, int, int]]) -> Plan:
    told = strategies(problem, _ring(problem), lambda _: 0, everything=True).plans
    for one in told:
        if sorted(_collective(problem, moved.move) for moved in one.collectives) == sorted(wanted):
            return one.plan
    raise AssertionError("no strategy has the collectives of the program")


@pytest.mark.parametrize("kind", BACKWARD)
def test_explicit_collectives_and_their_backward_pass(kind: str) -> None:
    case = EXPLICIT[kind]
    problem = _problem(case)
    forward_rows = [row[:4] for row in _issued(EXPLICIT[BACKWARD[kind]])]
    plan = _plan(problem, forward_rows)
    back = gradient(problem.chain(), plan, _ring(problem))
    moved = [event for event in (*plan.events, *back.moves) if isinstance(event, Moved)]
    found = sorted(
        (*_collective(problem, event.move), event.move.axes) for event in moved if event.move.kind is not Kind.SLICE
    )
    assert found == _issued(case)
    flops = sum(event.flops for event in plan.events if not isinstance(event, Moved))
    assert flops + back.flops == case["flops"]


def test_transposes_go_back() -> None:
    """AllGather and ReduceScatter are each other's transposes, and a slice comes back as an AllGather."""
    problem = _problem(EXPLICIT["sm_fsdp_tp"])
    b = problem.expression.products[0].right.sharding
    gather = all_gather(b, "J", ("X",))
    back = transpose(gather)
    assert back is not None
    assert (back.kind, back.after) == (Kind.REDUCE_SCATTER, b)
    again = transpose(back)
    assert again is not None
    assert (again.kind, again.before, again.after) == (Kind.ALL_GATHER, b, gather.after)
