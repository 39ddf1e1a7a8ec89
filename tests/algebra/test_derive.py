"""Derivation of forward and backward collectives from small programs, against textbook results."""

from __future__ import annotations

import pytest

from commcalc.algebra.collective import transpose
from commcalc.algebra.derive import derive
from commcalc.algebra.mesh import Mesh
from commcalc.algebra.notation import format_tensor
from commcalc.algebra.program import Builder, Rule
from commcalc.algebra.schedule import BACKWARD, FORWARD, Derivation
from commcalc.algebra.sharding import Sharding
from commcalc.errors import ShardingError
from commcalc.transformer.block import block_program
from commcalc.transformer.layout import KvPolicy, LayoutName, lay_out
from commcalc.transformer.spec import Model

TD, TF = ("T", "D"), ("T", "F")
X = ("tp",)


def of(dims: tuple[str, ...], **axes: tuple[str, ...]) -> Sharding:
    return Sharding.of(dims, axes)


def moves(derivation: Derivation, direction: str) -> list[str]:
    return [
        f"{event.step.kind} {format_tensor(event.tensor, event.step.before)}" for event in derivation.steps(direction)
    ]


def linear(weight: Sharding, x: Sharding, kept: Sharding | None = None) -> Derivation:
    b = Builder("linear")
    b.input("X", x)
    b.weight("W", weight)
    b.op(Rule.CONTRACT, "linear", ("X",), "Y", TF, weights=("W",), kept=kept)
    b.op(Rule.POINTWISE, "use", ("Y",), "Z", TF)
    return derive(b.program())


def test_column_parallel_layer_is_free_forward() -> None:
    """Y_i = X W_i; the gradient of X is a sum over ranks that whoever made X must reduce."""
    found = linear(of(("D", "F"), F=X), of(TD))
    assert moves(found, FORWARD) == []
    assert found.placed[0].output == of(TF, F=X)
    assert [state.sharding.state() for state in found.states if state.tensor == "dX"] == ["partial"]


def test_row_parallel_layer_reduces_forward_and_nothing_backward() -> None:
    """Y = sum_i X_i W_i; dX_i = dY W_i^T is local."""
    found = linear(of(("D", "F"), D=X), of(TD, D=X))
    assert moves(found, FORWARD) == ["all_reduce Y[T, F]{U_tp}"]
    assert moves(found, BACKWARD) == []


def test_column_parallel_layer_behind_split_tokens_gathers_them() -> None:
    found = linear(of(("D", "F"), F=X), of(TD, T=X))
    assert moves(found, FORWARD) == ["all_gather X[T_tp, D]"]
    assert moves(found, BACKWARD) == ["all_gather X[T_tp, D]", "reduce_scatter dX[T, D]{U_tp}"]
    assert found.events(BACKWARD)[0].note.startswith("re-gather")


def test_data_parallel_weight_gradient_stays_pending() -> None:
    found = linear(of(("D", "F")), of(TD, T=("dp",)))
    assert moves(found, FORWARD) == moves(found, BACKWARD) == []
    assert found.pending == (("W", Sharding(("D", "F"), ((), ()), ("dp",))),)


def two_layers(first: tuple[str, ...], second: tuple[str, ...], *, bias: bool = False) -> Derivation:
    b = Builder("mlp")
    b.input("X", of(TD))
    b.weight("g", of(("D",)))
    b.op(Rule.NORM, "norm", ("X",), "A", TD, weights=("g",), over=("D",))
    b.weight("W1", of(("D", "F"), **({"F": X} if first == ("F",) else {"D": X})))
    b.op(Rule.CONTRACT, "up", ("A",), "U", TF, weights=("W1",))
    b.op(Rule.POINTWISE, "gelu", ("U",), "Z", TF)
    b.weight("W2", of(("F", "D"), **({"F": X} if second == ("F",) else {"D": X})))
    b.op(Rule.CONTRACT, "down", ("Z",), "P", TD, weights=("W2",), kept=None if bias else of(TD))
    if bias:
        b.weight("b", of(("D",)))
        b.op(Rule.BIAS, "bias", ("P",), "Pb", TD, weights=("b",))
    return derive(b.program())


def test_column_then_row_needs_one_allreduce_each_way() -> None:
    found = two_layers(("F",), ("F",))
    assert moves(found, FORWARD) == ["all_reduce P[T, D]{U_tp}"]
    assert moves(found, BACKWARD) == ["all_reduce dA[T, D]{U_tp}"]


def test_a_bias_forces_the_reduction_before_it() -> None:
    """Added to the partial sums it would count tp times."""
    found = two_layers(("F",), ("F",), bias=True)
    assert moves(found, FORWARD) == ["all_reduce P[T, D]{U_tp}"]
    assert not found.pending


def test_a_weight_split_where_its_input_is_whole_is_refused() -> None:
    with pytest.raises(
        ShardingError, match="up: a weight is split over tp on a dimension that the activation holds whole"
    ):
        two_layers(("D",), ("F",))


def shared_input(labels: list[str], norms: int) -> Derivation:
    """``labels`` column-parallel products on one stream through one norm each, or all through one."""
    b = Builder("fan")
    b.input("X", of(TD))
    outputs = []
    for at, label in enumerate(labels):
        if at < norms:
            b.weight(f"g{at}", of(("D",)))
            read = b.op(Rule.NORM, f"norm{at}", ("X",), f"A{at}", TD, weights=(f"g{at}",), over=("D",))
        b.weight(f"W{at}", of(("D", "F"), F=X))
        outputs.append(b.op(Rule.CONTRACT, label, (read,), f"Y{at}", TF, weights=(f"W{at}",)))
    b.op(Rule.POINTWISE, "use", tuple(outputs), "Z", TF)
    return derive(b.program())


def test_partial_gradients_of_one_tensor_are_added_and_reduced_once() -> None:
    assert moves(shared_input(["q", "k", "v"], 1), BACKWARD) == ["all_reduce dA0[T, D]{U_tp}"]


def test_two_norms_on_one_input_mean_two_reductions() -> None:
    assert moves(shared_input(["attention", "mlp"], 2), BACKWARD) == [
        "all_reduce dA1[T, D]{U_tp}",
        "all_reduce dA0[T, D]{U_tp}",
    ]


def test_partial_and_whole_gradients_are_joined_after_the_reduction() -> None:
    b = Builder("post-norm")
    b.input("X0", of(TD))
    b.weight("g", of(("D",)))
    b.op(Rule.NORM, "norm", ("X0",), "X", TD, weights=("g",), over=("D",))
    b.weight("W1", of(("D", "F"), F=X))
    b.op(Rule.CONTRACT, "up", ("X",), "U", TF, weights=("W1",))
    b.weight("W2", of(("F", "D"), F=X))
    b.op(Rule.CONTRACT, "down", ("U",), "P", TD, weights=("W2",), kept=of(TD))
    b.op(Rule.ADD, "residual", ("X", "P"), "X'", TD)
    found = derive(b.program())
    assert moves(found, FORWARD) == ["all_reduce P[T, D]{U_tp}"]
    assert moves(found, BACKWARD) == ["all_reduce dX[T, D]{U_tp}"]


def test_a_sum_of_partial_sums_stays_partial_until_it_is_used() -> None:
    b = Builder("branches")
    for name in ("A", "B"):
        b.input(name, of(TF, F=X))
        b.weight(f"W{name}", of(("F", "D"), F=X))
        b.op(Rule.CONTRACT, f"row{name}", (name,), f"Y{name}", TD, weights=(f"W{name}",))
    b.op(Rule.ADD, "sum", ("YA", "YB"), "S", TD)
    b.weight("g", of(("D",)))
    b.op(Rule.NORM, "norm", ("S",), "N", TD, weights=("g",), over=("D",))
    assert moves(derive(b.program()), FORWARD) == ["all_reduce S[T, D]{U_tp}"]


def test_a_stored_tensor_without_a_sharding_is_asked_for() -> None:
    b = Builder("empty")
    b.op(Rule.POINTWISE, "use", ("X",), "Y", TD)
    b.tensors["X"] = b.tensors["Y"]
    b.inputs.append("X")
    with pytest.raises(ShardingError, match="the layout does not say how X is stored"):
        derive(b.program())


@pytest.mark.parametrize("layout", [LayoutName.MEGATRON, LayoutName.MEGATRON_SP])
@pytest.mark.parametrize("kv", [KvPolicy.REFUSE, KvPolicy.GATHER])
@pytest.mark.parametrize("parallel", [False, True])
def test_backward_is_the_transpose_of_forward_and_of_the_products(
    layout: LayoutName, kv: KvPolicy, parallel: bool
) -> None:
    """Each forward reshard but an AllReduce comes back transposed; what is left are the input gradients' AllReduces."""
    model = Model(num_key_value_heads=2, parallel_block=parallel)
    placed = lay_out(layout, Mesh.of({"tp": 4 if kv is KvPolicy.GATHER else 2}), {"K": 2}, kv)
    found = derive(block_program(model, placed), regather=False)
    back = [event.step for event in found.steps(BACKWARD)]
    for event in found.steps(FORWARD):
        expected = transpose(event.step)
        if expected is not None:
            assert expected in back
            back.remove(expected)
    assert {step.kind for step in back} <= {"all_reduce"}
