"""Bills of sharded products by hand arithmetic: bytes, FLOPs, memory, times, turning points, advice, gradients."""

from __future__ import annotations

import pytest

from commcalc.accounting.advice import advice, primitives
from commcalc.accounting.products import Answer, Objective, Overlap, Pricing, Strategy, answer
from commcalc.accounting.turning_points import balances, flips
from commcalc.algebra.collective import Convention, Kind
from commcalc.algebra.expression import parse_expression
from commcalc.algebra.gradient import gradient
from commcalc.algebra.mesh import Mesh
from commcalc.algebra.notation import format_tensor
from commcalc.algebra.planner import Moved, Plan
from commcalc.algebra.problem import bind, forms
from commcalc.errors import CommcalcError, ShardingError, SpecError, UsageError
from commcalc.network.cost import Algorithm
from commcalc.network.fabric import Fabric
from commcalc.network.link import Level, Network

LINK = 100e9  # bytes per second, one way
PEAK = 1e15


def network(bandwidth: float = LINK, latency: float = 0.0) -> Network:
    return Network((Level(name="link", bandwidth=bandwidth, latency_s=latency),))


def ask(
    text: str,
    mesh: dict[str, int],
    sizes: dict[str, int],
    *,
    bits: int = 16,
    links: Network | None = None,
    objective: Objective | None = None,
    overlap: Overlap = Overlap.NONE,
    convention: Convention = Convention.EXACT,
    peak: float | None = PEAK,
    **options: bool,
) -> Answer:
    problem = bind(
        parse_expression(text, mesh), Mesh.of(mesh), sizes, bits,
        pad=options.pop("pad", False), sub_axes=options.pop("sub_axes", False),
    )  # fmt: skip
    fabric = Fabric(problem.mesh, links, Algorithm.RING if links else Algorithm.AUTO, convention)
    chosen = objective or (Objective.TIME if links else Objective.BYTES)
    return answer(problem, Pricing(fabric, peak if links else None, chosen, overlap), **options)


def named(found: Answer, name: str) -> Strategy:
    (one,) = [strategy for strategy in found.strategies if strategy.name == name]
    return one


def kinds(one: Strategy) -> list[str]:
    return [step.step.kind.value for step in one.steps]


SIZES = {"I": 64, "J": 256, "K": 128}


def test_case_2_in_bytes() -> None:
    """X = 4: gather A (I*J) sends 3/4 of 32 KiB; slicing B and summing C sends 2*3/4 of I*K = 16 KiB."""
    found = ask("A[I, J_X] @ B[J, K] -> C[I, K]", {"X": 4}, SIZES)
    assert [(case.axis, case.case) for case in found.found.cases[0]] == [("X", 2)]
    gather, reduce = named(found, "gather-then-multiply"), named(found, "slice-then-multiply-then-all-reduce")
    assert (gather.wire_bytes, gather.flops) == (64 * 256 * 2 * 3 // 4, 2 * 64 * 256 * 128)
    assert (reduce.wire_bytes, reduce.flops) == (64 * 128 * 2 * 2 * 3 // 4, 2 * 64 * 256 * 128 // 4)
    # equal bytes: the AllReduce is as cheap here (J = 2 K), in one step each; AllReduce goes first
    assert gather.wire_bytes == reduce.wire_bytes
    assert found.strategies.index(reduce) < found.strategies.index(gather)
    assert [step.step.kind for step in reduce.steps] == [Kind.ALL_REDUCE]


def test_peak_bytes_of_case_2() -> None:
    """Gather: A/4 and B as stored, the gathered A and C beside them. Reduce: B is a view, C is summed in place."""
    found = ask("A[I, J_X] @ B[J, K] -> C[I, K]", {"X": 4}, SIZES)
    a, b, c = 64 * 256 * 2, 256 * 128 * 2, 64 * 128 * 2
    assert named(found, "gather-then-multiply").peak_bytes == a // 4 + b + a + c
    assert named(found, "slice-then-multiply-then-all-reduce").peak_bytes == a // 4 + b + c
    two = named(found, "slice-then-multiply-then-reduce-scatter-then-gather")
    assert two.peak_bytes == a // 4 + b + c + c // 4
    assert two.wire_bytes == named(found, "slice-then-multiply-then-all-reduce").wire_bytes


def test_case_3_ends_in_either_sum() -> None:
    """Gather: A/4 and B as stored, the gathered A and C beside them. Reduce: B is a view, C is summed in place."""
    whole = ask("A[I, J_X] @ B[J_X, K] -> C[I, K]", {"X": 4}, SIZES)
    kept = ask("A[I, J_X] @ B[J_X, K] -> C[I, K_X]", {"X": 4}, SIZES)
    c = 64 * 128 * 2
    assert (kinds(whole.best), whole.best.wire_bytes) == (["all_reduce"], 2 * c * 3 // 4)
    assert (kinds(kept.best), kept.best.wire_bytes) == (["reduce_scatter"], c * 3 // 4)
    either = ask("A[I, J_X] @ B[J_X, K]", {"X": 4}, SIZES)
    outputs = {(one.name, format_tensor("C", one.output)) for one in either.strategies}
    assert {
        ("multiply-then-reduce-scatter-onto-I", "C[I_X, K]"),
        ("multiply-then-reduce-scatter-onto-K", "C[I, K_X]"),
        ("multiply-then-all-reduce", "C[I, K]"),
    } <= outputs


def test_case_4_has_two_ways_out() -> None:
    found = ask("A[I_X, J] @ B[J, K_X]", {"X": 4}, SIZES)
    assert [(case.axis, case.case) for case in found.found.cases[0]] == [("X", 4)]
    left, right = named(found, "gather-A-then-multiply"), named(found, "gather-B-then-multiply")
    assert (left.wire_bytes, format_tensor("C", left.output)) == (64 * 256 * 2 * 3 // 4, "C[I, K_X]")
    assert (right.wire_bytes, format_tensor("C", right.output)) == (256 * 128 * 2 * 3 // 4, "C[I_X, K]")
    assert found.best is left


def test_case_4_without_communication_has_no_answer() -> None:
    with pytest.raises(ShardingError) as refused:
        ask("A[I_X, J] @ B[J, K_X]", {"X": 4}, SIZES, communication=False)
    assert refused.value.status == 3
    text = refused.value.text()
    assert "axis X: splits I on the left and K of B: only the diagonal blocks could be multiplied" in text
    assert "gather-A-then-multiply (24,576 B)" in text


def test_case_1_needs_none() -> None:
    found = ask("A[I_X, J] @ B[J, K_Y] -> C[I_X, K_Y]", {"X": 4, "Y": 2}, SIZES, communication=False)
    assert (found.best.name, found.best.steps) == ("multiply", ())
    assert [(case.axis, case.case) for case in found.found.cases[0]] == [("X", 1), ("Y", 1)]


def test_the_einsum_of_the_jax_example_hides_a_gather() -> None:
    """einsum('BD,DF->BF') of P('X','Y') and P(None,'Y') into P('X','Y'): Y splits the contracted D of A alone.

    Source: How To Scale Your Model, part 3, the JAX example of the notation; local shapes [2, 1024] and [2048, 4096].
    """
    text = "A[B, D]: P('X', 'Y') @ W[D, F]: P(None, 'Y') -> C[B, F]: P('X', 'Y')"
    found = ask(text, {"X": 4, "Y": 2}, {"B": 8, "D": 2048, "F": 8192})
    (step,) = found.best.steps
    assert (step.step.kind, step.step.axes, step.tensor) == (Kind.ALL_GATHER, ("Y",), "A")
    assert (step.payload_bytes, step.wire_bytes) == (2 * 2048 * 2, 2 * 1024 * 2)
    assert step.payload.text() == "B*D/X*2 B"


def test_tensor_parallel_ffn_needs_one_sum_and_with_split_rows_a_gather_and_a_scatter() -> None:
    """F split over the mesh needs one AllGather and one ReduceScatter where D is kept split, else one AllReduce."""
    sizes = {"B": 512, "D": 1024, "F": 4096}
    summed = ask("relu(In[B, D] @ Win[D, F_X]) @ Wout[F_X, D] -> Out[B, D]", {"X": 4}, sizes)
    assert kinds(summed.best) == ["all_reduce"]
    split = ask("relu(In[B, D_X] @ Win[D, F_X]) @ Wout[F_X, D] -> Out[B, D_X]", {"X": 4}, sizes)
    assert kinds(split.best) == ["all_gather", "reduce_scatter"]
    assert split.best.wire_bytes == summed.best.wire_bytes == 2 * 512 * 1024 * 2 * 3 // 4


def test_a_function_wants_the_sum_first() -> None:
    """relu of a sum is not the sum of relus, so the sum is finished in between; without relu it waits."""
    sizes = {"B": 512, "D": 65536, "F": 64, "H": 32}
    text = "{}(In[B, D_X] @ Win[D_X, F]) @ Wout[F, H] -> Out[B, H]"
    reduced = ask(text.format("relu"), {"X": 4}, sizes)
    assert [step.step.kind for step in reduced.best.steps if step.tensor == "T1"][:1] == [Kind.REDUCE_SCATTER]
    waits = ask(text.format(""), {"X": 4}, sizes).best
    assert [(step.tensor, step.step.kind) for step in waits.steps] == [("Out", Kind.ALL_REDUCE)]
    assert waits.wire_bytes == 2 * 512 * 32 * 2 * 3 // 4


def test_times_and_both_bounds() -> None:
    """X = 2, 100 GB/s: gathering A = [4096, 8192] bf16 takes 32 MiB / 100 GB/s; 2IJK FLOPs at 1 PFLOP/s."""
    found = ask("A[I, J_X] @ B[J, K] -> C[I, K]", {"X": 2}, {"I": 4096, "J": 8192, "K": 1024}, links=network())
    one = named(found, "gather-then-multiply")
    comm, compute = 4096 * 8192 * 2 / 2 / LINK, 2 * 4096 * 8192 * 1024 / PEAK
    assert one.times is not None
    assert one.times.comm_s == pytest.approx(comm, rel=1e-12)
    assert one.times.compute_s == pytest.approx(compute, rel=1e-12)
    assert one.times.serial_s == pytest.approx(comm + compute, rel=1e-12)
    assert one.times.overlapped_s == pytest.approx(max(comm, compute), rel=1e-12)
    # two blocks: one is multiplied while the other arrives, then the other: max(comm, compute/2) + compute/2
    assert one.times.blockwise_s == pytest.approx(max(comm, compute / 2) + compute / 2, rel=1e-12)


@pytest.mark.parametrize("overlap", list(Overlap))
def test_the_best_has_the_least_of_what_was_asked_for(overlap: Overlap) -> None:
    sizes = {"I": 8192, "J": 8192, "K": 8192}
    found = ask("A[I, J_X] @ B[J, K_Y] -> C[I, K_Y]", {"X": 4, "Y": 2}, sizes, links=network(), overlap=overlap)
    seconds = [one.times.under(overlap) for one in found.strategies if one.times is not None]
    assert seconds == sorted(seconds)


def test_a_scatter_is_overlapped_too() -> None:
    found = ask(
        "A[I, J_X] @ B[J_X, K] -> C[I, K_X]", {"X": 4}, {"I": 4096, "J": 8192, "K": 4096},
        links=network(), overlap=Overlap.COLLECTIVE_MATMUL,
    )  # fmt: skip
    one = named(found, "multiply-then-reduce-scatter")
    comm, compute = 4096 * 4096 * 2 * 3 / 4 / LINK, 2 * 4096 * 8192 * 4096 / 4 / PEAK
    assert one.times is not None
    assert one.times.blockwise_s == pytest.approx(3 * max(comm / 3, compute / 4) + compute / 4, rel=1e-12)


def test_small_batches_sum_and_large_ones_gather() -> None:
    """The scaling book's advice: with few rows, multiply what lies there and AllReduce; with many, gather.

    Time of gathering the weights W[D, F] over X = 4: D*F*2*3/4/link, whatever the rows. Time of the sum:
    2*3/4*R*F*2/link and a quarter of the FLOPs. They are equal where
    D*F*1.5 + 2*R*D*F*link/peak = 3*R*F + 2*R*D*F/4*link/peak, that is
    R = 1.5*D / (3 - 1.5*D*link/peak).
    """
    sizes = {"R": 64, "D": 2048, "F": 8192}
    found = ask("A[R, D] @ W[D_X, F] -> C[R, F]", {"X": 4}, sizes, links=network())
    turn = 1.5 * 2048 / (3 - 1.5 * 2048 * LINK / PEAK)
    pair = {"slice-then-multiply-then-all-reduce", "gather-then-multiply"}
    problem, pricing = found.problem, found.pricing
    pair_only = tuple(one for one in found.strategies if one.name in pair)
    only = Answer(problem, pricing, found.found, pair_only, 0, free=False)
    (flip,) = [flip for flip in flips(only) if flip.dim == "R"]
    assert (flip.below, flip.above) == ("slice-then-multiply-then-all-reduce", "gather-then-multiply")
    assert flip.at - 4 < turn <= flip.at  # the first multiple of 4 from there on


def test_the_turning_points_are_those_of_planning_again() -> None:
    """On either side of a flip the planner itself, asked with that size, finds what the flip says."""
    text, mesh, sizes = "A[I, J_X] @ B[J, K] -> C[I, K]", {"X": 4}, {"I": 1024, "J": 4096, "K": 8192}
    found = flips(ask(text, mesh, sizes))
    assert {flip.dim for flip in found} == {"J", "K"}
    for flip in found:
        below = ask(text, mesh, sizes | {flip.dim: flip.at - 4}).best
        above = ask(text, mesh, sizes | {flip.dim: flip.at}).best
        assert (below.name, above.name) == (flip.below, flip.above)


def moves(plan: Plan) -> list[tuple[Kind, tuple[str, ...]]]:
    return [(event.move.kind, event.move.axes) for event in plan.events if isinstance(event, Moved)]


def test_no_plan_beats_a_flip_at_its_ends() -> None:
    """What is best at a flip is what planning there finds, also where it was not among the strategies listed before."""
    text, mesh, sizes = "A[I_{YZ}, J] @ B[J_{YZ}, K] -> C[I, K_Y]", {"Z": 2, "Y": 4}, {"I": 16, "J": 144, "K": 96}
    found = flips(ask(text, mesh, sizes))
    assert found
    for flip in found:
        assert flip.among == "all"
        for at, plan in ((flip.at - 8, flip.below_plan), (flip.at, flip.above_plan)):
            if at > 0:
                assert moves(ask(text, mesh, sizes | {flip.dim: at}).best.plan) == moves(plan), (flip.dim, at)


def test_under_an_overlap_the_best_is_of_all_plans() -> None:
    text, mesh = "A[I, J, L] @ B[J_Y, L_X, K]", {"Y": 2, "X": 2}
    sizes = {"I": 9216, "J": 144, "L": 3072, "K": 384}
    overlap = Overlap.COLLECTIVE_MATMUL
    told = ask(text, mesh, sizes, links=network(450e9), overlap=overlap).best.times
    every = ask(text, mesh, sizes, links=network(450e9), overlap=overlap, everything=True)
    assert told is not None
    assert told.under(overlap) == min(one.times.under(overlap) for one in every.strategies if one.times is not None)


@pytest.mark.parametrize(
    ("text", "cases"),
    [
        ("A[N_X, I, J] @ B[N, J, K_X] -> C[N, I, K]", {"X": 4}),
        ("A[N_X, I, J] @ B[N, J_X, K] -> C[N, I, K]", {"X": 2}),
        ("A[N_X, I, J] @ B[N, J, K] -> C[N, I, K]", {"X": 1}),
        ("A[N_X, I, J] @ B[N_X, J, K] -> C[N, I, K]", {"X": 1}),
        ("A[N, I, J_X] @ B[N, J_X, K] -> C[N, I, K]", {"X": 3}),
    ],
)
def test_cases_of_batched_products(text: str, cases: dict[str, int]) -> None:
    found = ask(text, {"X": 4}, dict.fromkeys("NIJK", 8))
    assert {case.axis: case.case for case in found.found.cases[0]} == cases


def test_primitives_keep_the_split_of_other_axes() -> None:
    found = ask("A[I_Y, J_X] @ B[J_X, K] -> C[I_Y, K]", {"X": 4, "Y": 2}, dict.fromkeys("IJK", 1024))
    (step,) = found.best.steps
    assert (step.step.kind, step.payload_bytes) == (Kind.ALL_REDUCE, 1024 * 1024 * 2 // 2)
    assert {one.kind: one.payload_bytes for one in primitives(found)}[Kind.ALL_REDUCE] == step.payload_bytes


def test_where_compute_takes_as_long() -> None:
    """Published: B > C/W for the gather of weights, in the textbook convention; 4.59e14/1.8e11 = 2550 on TPU v5p.

    Source: How To Scale Your Model, part 3, question 4 (tests/data/goldens.yaml, MM-08: the variable is B).
    """
    found = ask(
        "X[B, D] @ W[D_X, F] -> Z[B, F]", {"X": 4}, {"B": 8192, "D": 4096, "F": 8192},
        links=network(1.8e11), convention=Convention.TEXTBOOK, peak=4.59e14,
    )  # fmt: skip
    gather = named(found, "gather-then-multiply")
    only = Answer(found.problem, found.pricing, found.found, (gather,), 0)
    assert {balance.dim: balance.at for balance in balances(only)} == {"B": pytest.approx(2550, rel=1e-9)}


def test_what_would_need_no_communication() -> None:
    found = ask("A[I, J_X] @ B[J_X, K] -> C[I, K_X]", {"X": 4}, SIZES)
    told = {one.code: one.message for one in advice(found)}
    assert told["no-communication"].startswith("stored as A[I, J] and B[J, K_X] this product needs no communication")
    again = ask("A[I, J] @ B[J, K_X] -> C[I, K_X]", {"X": 4}, SIZES)
    assert again.best.steps == ()
    assert advice(again) == []


def test_a_sum_that_may_stay_scattered() -> None:
    found = ask("A[I, J_X] @ B[J_X, K] -> C[I, K]", {"X": 4}, SIZES)
    told = {one.code: one.message for one in advice(found)}
    c = 64 * 128 * 2
    assert told["keep-scattered"] == (
        f"where the next use takes it scattered, as C[I_X, K] or C[I, K_X], a ReduceScatter ends the sum with "
        f"{c * 3 // 4:,} B less than the AllReduce, and each device keeps 1/4"
    )


def test_primitives_are_ranked_by_cost() -> None:
    """AllToAll before ReduceScatter and AllGather before AllReduce. C is 16 KiB over 4 devices."""
    found = ask("A[I, J_X] @ B[J_X, K] -> C[I, K]", {"X": 4}, SIZES)
    c = 64 * 128 * 2
    assert [(one.kind.value, one.wire_bytes) for one in primitives(found)] == [
        ("all_to_all", c // 4 * 3 // 4),
        ("reduce_scatter", c * 3 // 4),
        ("all_gather", c * 3 // 4),
        ("all_reduce", 2 * c * 3 // 4),
    ]


def test_gradients_of_a_data_parallel_product() -> None:
    """Rows split, weights whole: the gradient of the weights is summed over the rows' devices, that of A is local."""
    found = ask("A[I_X, J] @ B[J, K] -> C[I_X, K]", {"X": 4}, SIZES)
    back = gradient(found.found.planner.chain, found.best.plan, found.pricing.cost)
    assert [(one.name, one.move.kind, one.move.elements) for one in back.moves] == [("dB", Kind.ALL_REDUCE, 256 * 128)]
    assert back.flops == 2 * found.best.flops


def test_gradients_of_fully_sharded_weights() -> None:
    """FSDP: the gather of the weights comes back as a ReduceScatter of their gradient."""
    found = ask("A[I_X, J] @ B[J_X, K] -> C[I_X, K]", {"X": 4}, SIZES | {"I": 4096})
    assert kinds(found.best) == ["all_gather"]
    back = gradient(found.found.planner.chain, found.best.plan, found.pricing.cost)
    assert [(one.name, one.move.kind, one.move.elements) for one in back.moves] == [
        ("dB", Kind.REDUCE_SCATTER, 256 * 128)
    ]


def test_gradients_of_megatrons_mlp() -> None:
    """Column then row: one AllReduce forward, at the output, and one backward, at the input. Source: Megatron-LM."""
    sizes = {"B": 512, "D": 1024, "F": 4096}
    found = ask("relu(In[B, D] @ Win[D, F_X]) @ Wout[F_X, D] -> Out[B, D]", {"X": 4}, sizes)
    back = gradient(found.found.planner.chain, found.best.plan, found.pricing.cost)
    assert [(one.name, one.move.kind, one.move.elements) for one in back.moves if one.move.kind is not Kind.SLICE] == [
        ("dIn", Kind.ALL_REDUCE, 512 * 1024)
    ]


def test_padding_is_told_and_priced() -> None:
    found = ask("A[I, J_X] @ B[J_X, K] -> C[I, K]", {"X": 3}, {"I": 10, "J": 100, "K": 9}, pad=True)
    assert found.problem.padding == {"J": (100, 102)}
    assert found.best.flops == 2 * 10 * 102 * 9 // 3
    with pytest.raises(CommcalcError) as refused:
        ask("A[I, J_X] @ B[J_X, K] -> C[I, K]", {"X": 3}, {"I": 10, "J": 100, "K": 9})
    assert refused.value.status == 3
    assert [problem.message for problem in refused.value.problems] == [
        "dimension J of A, of size 100, does not split 3 ways: 100 mod 3 = 1",
        "dimension J of B, of size 100, does not split 3 ways: 100 mod 3 = 1",
    ]


def test_a_size_is_asked_for_by_name() -> None:
    with pytest.raises(SpecError, match="dimension K has no size"):
        ask("A[I, J] @ B[J, K]", {}, {"I": 8, "J": 8})


def test_axes_of_one_device_move_nothing() -> None:
    found = ask("A[I, J_X] @ B[J_X, K] -> C[I, K]", {"X": 1}, SIZES)
    assert found.best.steps == ()
    assert found.problem.notes == ("axis X has size 1: nothing moves over it",)


def test_sub_axes_have_names_and_a_limit() -> None:
    """8 = 2*2*2 and 2: four factors; 16 would be five with the other axis, and then axes stay whole."""
    text = "A[I_X, J] @ B[J, K_Y] -> C[I_Y, K_X]"
    found = ask(text, {"X": 8, "Y": 2}, SIZES, sub_axes=True)
    assert found.problem.mesh.parts == (("X", ("X1", "X2", "X3")),)
    plain = ask(text, {"X": 8, "Y": 2}, SIZES)
    assert found.best.wire_bytes <= plain.best.wire_bytes
    many = ask(text, {"X": 16, "Y": 2}, SIZES, sub_axes=True)
    assert not many.problem.sub_axes
    assert many.problem.notes == ("the axes have 5 prime factors; above 4 only whole axes are planned with",)


def test_arrangements_are_counted_and_bounded() -> None:
    """k axes on d places: sum over j of C(k, j) j! C(d-1+j, j); three on two are 1 + 3*2 + 3*2*3 + 6*4 = 49."""
    assert [forms(3, 2), forms(1, 4), forms(2, 3), forms(4, 5)] == [49, 5, 19, 2721]
    mesh = dict.fromkeys("UVWXYZ", 2)
    with pytest.raises(UsageError, match="6 axes on 3 dimensions have"):
        ask("A[I_{UV}, J_{WX}] @ B[J_{WX}, K_{YZ}] -> C[I, K]", mesh, dict.fromkeys("IJK", 64))
    found = ask("A[I_U, J_W] @ B[J_W, K_Y] -> C[I, K]", mesh, dict.fromkeys("IJK", 64))
    assert "axis V splits no tensor here and is left out, to keep the plans countable" in found.problem.notes


def test_what_cannot_be_reached_is_refused() -> None:
    with pytest.raises(ShardingError, match="no plan reaches the wanted sharding"):
        ask("A[I, J] @ B[J, K] -> C[I, K]{U_X}", {"X": 4}, SIZES | {"J": 5})
