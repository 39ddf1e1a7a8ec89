"""The proof can fail: programs, kernels and ledgers that are wrong in the ways people get them wrong are caught."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from broken import EXACT, GPT, LLAMA, MEGATRON, SP, backward, failed, forward, ledger_of, left_out, whats
from commcalc.accounting.ledger import Ledger
from commcalc.algebra.collective import Kind
from commcalc.algebra.derive import derive
from commcalc.algebra.needs import NEEDS
from commcalc.algebra.program import Op, Role, Rule
from commcalc.algebra.schedule import REGATHER, Action, Add, Derivation, Differentiate, Move, Placed, Value
from commcalc.algebra.sharding import Sharding
from commcalc.simulate import kernels
from commcalc.simulate.check import Check
from commcalc.simulate.local import Kernel, Local
from commcalc.simulate.trial import run_trial
from commcalc.simulate.wire import Array
from commcalc.transformer.block import block_program
from commcalc.transformer.layout import LayoutName
from commcalc.transformer.spec import Model
from commcalc.units import Dtype


@pytest.mark.parametrize("model", [LLAMA, GPT])
@pytest.mark.parametrize("layout", [MEGATRON, SP])
def test_nothing_fails_unchanged(model: Model, layout: LayoutName) -> None:
    assert failed(ledger_of(model, layout)) == []


@pytest.mark.parametrize(
    ("layout", "kind", "tensor"),
    [(MEGATRON, Kind.ALL_REDUCE, "Y"), (MEGATRON, Kind.ALL_REDUCE, "P"), (SP, Kind.REDUCE_SCATTER, "Y")],
)
def test_a_reduction_that_is_left_out(layout: LayoutName, kind: Kind, tensor: str) -> None:
    """The output of a row-parallel layer is taken for the whole sum: wrong, and another on every device."""
    ledger = ledger_of(layout=layout)
    found = failed(ledger, forward(ledger, left_out(kind, tensor)))
    assert {"forward_error", "loss_error", "gradient_error", "rows"} <= whats(found)
    (error,) = [check for check in found if check.what == "forward_error"]
    assert error.where == f"block.0, {'attention' if tensor == 'Y' else 'mlp'}: {tensor} after slice over "
    assert error.message == f"a change of sharding must not change {tensor}: it is not what it was before"
    if layout is MEGATRON:
        (copies,) = [check for check in found if check.what == "copies"]
        assert copies.message == f"it leaves {tensor} different on devices that must hold the same"


def test_a_reduction_that_is_left_out_of_the_backward_pass() -> None:
    """Without the AllReduce of dA each device has the gradient through its own columns only."""
    ledger = ledger_of()
    found = failed(ledger, backward(ledger, left_out(Kind.ALL_REDUCE, "dA")))
    assert "forward_error" not in whats(found)
    assert {"gradient_error", "input_gradient_error", "gradient_norm_error", "sgd_update_error", "rows"} <= whats(found)
    rows = {(check.where, check.expected, check.found) for check in found if check.what == "rows"}
    assert rows == {("block.0", 2, 1), ("block.1", 2, 1)}


def biased_early(ledger: Ledger, output: str, biased: str) -> Derivation:
    """The bias of a row-parallel layer on each rank's own term, and the reduction after it."""
    derivation = ledger.derivations["block"]
    actions: list[Action] = []
    for one in derivation.forward:
        if isinstance(one, Move) and one.event.tensor == output:
            partial, step = one.source.sharding, one.event.step
            late = Move(one.event._replace(tensor=biased), Value(biased, partial), Value(biased, step.after))
        elif isinstance(one, Placed) and one.op.output == biased:
            actions += [one._replace(inputs=(partial,), output=partial), late]
        else:
            actions.append(one)
    return derivation._replace(forward=tuple(actions))


@pytest.mark.parametrize("tp", [2, 4, 8])
@pytest.mark.parametrize(
    ("output", "biased", "bias", "op"), [("Y", "Yb", "bo", "out_proj"), ("P", "Pb", "bdown", "down_proj")]
)
def test_a_row_parallel_bias_that_counts_t_times(tp: int, output: str, biased: str, bias: str, op: str) -> None:
    """vLLM and others add the bias on rank 0 alone for this reason (vllm linear.py, RowParallelLinear.forward)."""
    ledger = ledger_of(GPT, tp=tp)
    found = failed(ledger, biased_early(ledger, output, biased))
    (error,) = [check for check in found if check.what == "forward_error"]
    assert error.where.startswith("block.0, ")
    assert error.message == (
        f"bias {bias} of {op} counts {tp} times: it is added on each of {tp} ranks before {output} is reduced; "
        "it must be added once, after"
    )


def test_columns_and_rows_swapped() -> None:
    """The first matrix of the MLP split by rows and the second by columns: right values, other collectives."""
    ledger = ledger_of(GPT)
    program = block_program(ledger.model, ledger.layout)
    tp = ledger.layout.mesh.expand(["tp"])
    swapped = {
        "Wup": Sharding(("D", "F"), (tp, ())), "bup": Sharding(("F",), ((),)), "Wdown": Sharding(("F", "D"), ((), tp)),
    }  # fmt: skip
    tensors = {
        name: tensor._replace(sharding=swapped.get(name, tensor.sharding)) for name, tensor in program.tensors.items()
    }
    with pytest.raises(ValueError, match="a weight is split over tp on a dimension that the activation holds whole"):
        derive(program._replace(tensors=tensors))
    # Laid out so by hand, on the schedule of the right layout: blocks of the wrong shape.
    found = failed(ledger, ledger.derivations["block"]._replace(program=program._replace(tensors=tensors)))
    assert whats(found) == {"forward_error"}
    assert found[0].message.startswith("up_proj cannot be computed on a device: operands could not be broadcast")


def test_columns_taken_for_rows_is_caught_by_the_rows() -> None:
    """Attention left whole on every rank: right values again, but not the collectives that the ledger has."""
    ledger = ledger_of(GPT)
    whole = ledger.layout._replace(weights={**ledger.layout.weights, "N": (), "K": ()})
    found = failed(ledger, derive(block_program(ledger.model, whole)))
    assert whats(found) == {"rows", "collectives", "total_wire_bytes"}
    told = "the ledger has 2 collectives here, 1 ran; they part at forward out_proj: all_reduce of Y[T, D]{U_tp}"
    assert found[0].message == told


def test_global_head_counts_instead_of_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """KV heads shared out by the counts of the whole model: later heads of a device read the wrong keys."""
    ledger = ledger_of(Model(name="sixteen", num_attention_heads=16, num_key_value_heads=4), tp=2)

    def shared(array: Array, queries: int) -> Array:  # 16 query heads over the device's 2 KV heads, where it has 8
        return np.repeat(array, ledger.sizes["N"] // array.shape[2], axis=2)[:, :, :queries]

    monkeypatch.setattr("commcalc.simulate.attention.shared", shared)
    found = failed(ledger)
    (error,) = [check for check in found if check.what == "forward_error"]
    assert (error.where, error.message) == ("block.0, attention: O of attention", "O is wrong from here on")


def test_a_view_with_global_head_counts() -> None:
    """Queries viewed as all heads of the model on a device that has a quarter of them."""
    ledger = ledger_of()

    def viewed(one: Action) -> Action:
        if isinstance(one, Placed) and one.op.output == "Q":
            return one._replace(output=Sharding(("T", "N", "H"), ((), (), ())))
        return one

    ((what, message),) = {(check.what, check.message) for check in failed(ledger, forward(ledger, viewed))}
    assert what == "forward_error"
    assert message == "device 0 has Q[T, N, H] of shape (16, 2, 16), by its sharding (16, 8, 16)"


@pytest.mark.parametrize(("model", "weight"), [(LLAMA, "g_attention"), (LLAMA, "g_mlp"), (GPT, "b_mlp"), (GPT, "bo")])
def test_a_norm_gradient_that_is_not_synced_under_sequence_parallelism(model: Model, weight: str) -> None:
    """Each rank saw its own tokens only; without the sync every rank steps another way."""
    ledger = ledger_of(model, SP)
    derivation = ledger.derivations["block"]
    value = derivation.gradients[weight]
    alone = value._replace(sharding=value.sharding.reduced())

    def own(one: Action) -> Action:
        return one._replace(made=alone) if isinstance(one, Differentiate) and one.made == value else one

    broken = backward(ledger, own)._replace(gradients={**derivation.gradients, weight: alone})
    found = failed(ledger, broken)
    assert {"gradient_error", "gradient_copies", "adam_update_error", "payload_bytes", "wire_bytes"} <= whats(found)
    (error,) = [check for check in found if check.what == "gradient_error"]
    assert error.where == f"dblock.1.{weight}"
    (copies,) = [check for check in found if check.what == "gradient_copies"]
    assert copies.message == "devices that hold the same parameter get different gradients of it"


def test_a_replicated_kv_head_whose_gradient_is_not_synced() -> None:
    ledger = ledger_of(tp=8, heads="gqa")
    derivation = ledger.derivations["block"]
    value = derivation.gradients["Wk"]
    assert value.sharding.unreduced == ("tp_replica",)
    alone = value._replace(sharding=value.sharding.reduced())
    broken = backward(
        ledger, lambda one: one._replace(made=alone) if isinstance(one, Differentiate) and one.made == value else one
    )
    found = failed(ledger, broken._replace(gradients={**derivation.gradients, "Wk": alone}))
    assert {"gradient_error", "gradient_copies"} <= whats(found)


def test_a_saved_input_that_is_not_gathered_again() -> None:
    ledger = ledger_of(layout=SP)
    broken = backward(ledger, lambda one: None if isinstance(one, Move) and one.event.note == REGATHER else one)
    found = failed(ledger, broken)
    assert whats(found) == {"rows", "collectives", "total_wire_bytes"}
    assert {check.message for check in found if check.what == "rows"} == {
        "the ledger has 6 collectives here, 4 ran; they part at backward gate_up_proj: all_gather of M[T_tp, D]"
    }


def test_a_saved_input_that_is_gathered_too_late() -> None:
    """The weight gradients of gate and up need it; what was gathered in the forward pass is forgotten by then."""
    ledger = ledger_of(layout=SP)
    derivation = ledger.derivations["block"]
    late = [one for one in derivation.backward if isinstance(one, Move) and one.event.note == REGATHER]
    rest = [one for one in derivation.backward if one not in late]
    ((what, message),) = {
        (check.what, check.message) for check in failed(ledger, derivation._replace(backward=(*rest, *late)))
    }
    assert what == "forward_error"
    assert message.startswith("the gradient of up_proj cannot be computed on a device")


def test_a_gradient_that_is_added_twice() -> None:
    ledger = ledger_of()

    def doubled(one: Action) -> Action:
        return one._replace(terms=(*one.terms, one.terms[0])) if isinstance(one, Add) else one

    found = failed(ledger, backward(ledger, doubled))
    assert {"gradient_error", "input_gradient_error"} <= whats(found)


def test_a_maximum_that_is_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logits' maximum reduced by a sum: no overflow here, and the loss is the same; the tensor is not."""
    monkeypatch.setattr("commcalc.simulate.execute.COMBINES", {})
    ledger = ledger_of()
    found = failed(ledger)
    (error,) = [check for check in found if check.what == "forward_error"]
    assert error.where.startswith("head, loss: top")


def test_attention_without_its_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = kernels.KERNELS["attention"]

    def unscaled(at: Local, held: Sequence[Array]) -> Array:
        return plain.forward(at, [held[0] * np.sqrt(held[0].shape[2]), *held[1:]])

    monkeypatch.setitem(kernels.KERNELS, "attention", Kernel(unscaled, plain.backward))
    assert {"forward_error", "loss_error"} <= whats(failed(ledger_of()))


def test_a_backward_kernel_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = kernels.KERNELS["rmsnorm"]

    def careless(at: Local, held: Sequence[Array], grad: Array, which: int) -> Array:
        return grad * held[1] if which == 0 else plain.backward(at, held, grad, which)

    monkeypatch.setitem(kernels.KERNELS, "rmsnorm", Kernel(plain.forward, careless))
    found = failed(ledger_of())
    assert "forward_error" not in whats(found)
    assert "gradient_error" in whats(found)


def miscounted(ledger: Ledger, change: Callable[[Any], Mapping[str, Any]]) -> list[Check]:
    rows = tuple(row._replace(**change(row)) for row in ledger.rows)
    return [check for check in run_trial(ledger._replace(rows=rows), EXACT, 0) if not check.passed]


@pytest.mark.parametrize(
    ("over", "told"), [((4, 3), "(n-1)/n is missing"), ((3, 4), "(n-1)/n is there twice"), ((2, 1), None)]
)
def test_wire_bytes_that_are_miscounted(over: tuple[int, int], told: str | None) -> None:
    """Every row of the ledger, and the first of them is named."""
    ledger = ledger_of()
    found = miscounted(ledger, lambda row: {"wire_bytes": row.wire_bytes * over[0] // over[1]})
    assert whats(found) == {"wire_bytes", "total_wire_bytes"}
    found = [check for check in found if check.what == "wire_bytes"]
    counted = {(check.where.split(", ")[0].split(".")[0]) for check in found}
    assert counted == {"embedding", "block", "head"}
    assert len(found) == 1 + 2 * 4 + 4  # the embedding, two layers of 4, three of the loss and one behind the head
    first = found[0]
    assert first.where == "embedding, forward embedding: all_reduce of X[T, D]{U_tp}"
    said, sent = f"{1920 * over[0] // over[1]:,}", "1,920"
    assert first.message == f"predicted are {said} B, a device sent {sent} B" + (f": {told}" if told else "")


def test_a_payload_that_is_miscounted() -> None:
    """A gather counted by what one device holds instead of by its result."""
    ledger = ledger_of(layout=SP)
    found = miscounted(
        ledger, lambda row: {"payload_bytes": row.payload_bytes // 4} if row.kind is Kind.ALL_GATHER else {}
    )
    assert whats(found) == {"payload_bytes"}
    assert all("all_gather" in check.where for check in found)


def test_a_row_that_is_missing() -> None:
    ledger = ledger_of()
    rows = tuple(row for row in ledger.rows if row.op != "down_proj")
    found = [check for check in run_trial(ledger._replace(rows=rows), EXACT, 0) if not check.passed]
    told = "the ledger has 1 collectives here, 2 ran; they part after the last row"
    assert [(check.where, check.message) for check in found if check.what == "rows"] == [
        ("block.0", told), ("block.1", told)
    ]  # fmt: skip
    totals = [check.where for check in found if check.what == "total_wire_bytes"]
    assert {"totals.block.tp", "totals.stage.tp", "totals.step.tp"} <= set(totals)


def test_an_update_row_that_is_missing() -> None:
    ledger = ledger_of(layout=SP)
    rows = tuple(row for row in ledger.rows if row.direction != "update")
    found = [check for check in run_trial(ledger._replace(rows=rows), EXACT, 0) if not check.passed]
    assert [(check.what, check.where, check.message) for check in found][:1] == [
        ("rows", "update", "the ledger has 0 collectives here, 1 ran; they part after the last row")
    ]
    assert {check.where for check in found if check.what == "total_wire_bytes"} == {
        "totals.step.tp", "totals.step.all"
    }  # fmt: skip


def test_a_row_of_a_pass_that_does_not_run() -> None:
    ledger = ledger_of()
    rows = (*ledger.rows, ledger.rows[0]._replace(direction="sideways"))
    found = [check for check in run_trial(ledger._replace(rows=rows), EXACT, 0) if not check.passed]
    assert ("rows", "the ledger has rows of a pass that does not run") in {
        (check.what, check.message) for check in found
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [("op", "proj"), ("tensor", "Z[T, D]"), ("axes", ("dp",)), ("dtype", Dtype.FP32), ("group_size", 8)],
)
def test_a_row_that_says_something_else(field: str, value: object) -> None:
    """What runs is of another operation, tensor, group or element type than the row says."""
    ledger = ledger_of()
    found = miscounted(ledger, lambda row: {field: value} if row.op == "down_proj" else {})
    assert "row" in whats(found)
    assert all(row.endswith("P[T, D]{U_tp}") or field == "tensor" for row in (check.where for check in found))


@pytest.mark.parametrize("calls", [0, 2])
def test_a_row_that_is_called_too_often(calls: int) -> None:
    found = miscounted(ledger_of(), lambda row: {"calls": calls} if row.op == "down_proj" else {})
    assert whats(found) == {"rows", "total_wire_bytes"}


def test_a_step_that_forgets_its_microbatches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "times_in_step", lambda ledger, row, stage=None: row.calls)
    ledger = ledger_of()
    found = [check for check in run_trial(ledger, EXACT, 0) if not check.passed]
    assert {check.where for check in found} == {"totals.step.tp", "totals.step.all"}
    assert ledger.microbatches == 3


def test_a_loss_that_is_reduced_in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger's rows of the loss in the activations' type: the devices reduce it in fp32."""
    monkeypatch.setattr("commcalc.accounting.draft.dtypes", lambda work: dict.fromkeys(Role, work.dtype))
    found = [check for check in run_trial(ledger_of(), EXACT, 0) if not check.passed]
    assert {"max_logit", "target_logit", "sum_exp"} == {
        check.where.split(" ")[2].rstrip(":") for check in found if check.what == "wire_bytes"
    }


# Schedules that compute the right thing and send too much: only the published counts know.

PARALLEL = LLAMA._replace(name="parallel", parallel_block=True)


def test_branches_that_are_reduced_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parallel block reduces both branches in one AllReduce; each by itself is right, and twice the bytes."""

    def apart(op: Op, inputs: list[Sharding], weights: tuple[Sharding, ...]) -> list[Sharding]:
        return [sharding.reduced() for sharding in inputs]

    monkeypatch.setitem(NEEDS, Rule.ADD, apart)
    found = failed(ledger_of(PARALLEL))
    assert {(check.where, check.expected, check.found) for check in found if check.what == "collectives"} == {
        ("block.0, forward: all_reduce", 1, 2)
    }
    assert whats(found) == {"collectives"}


def test_partial_gradients_that_are_reduced_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hugging Face does: an AllReduce for each of q, k, v, gate and up; Megatron has one for three and one for two."""
    monkeypatch.setattr("commcalc.algebra.derive._Backward._sum", one_by_one)
    found = failed(ledger_of())
    assert {(check.where, check.expected, check.found) for check in found if check.what == "collectives"} == {
        ("block.0, backward: all_reduce", 2, 5)
    }


def one_by_one(self: Any, name: str, gradients: Sequence[Any]) -> Value:
    whole = gradients[0].value.sharding.reduced()
    brought = [self._bring(name, one.value, whole, self._users([one])) for one in gradients]
    made: Value = self._added(name, brought)
    return made


def test_weights_in_roles() -> None:
    """What the mutations rely on: the block's weights have gradients, all of them."""
    block = ledger_of(GPT).derivations["block"]
    weights = {name for name, tensor in block.program.tensors.items() if tensor.role is Role.WEIGHT}
    assert weights | {"X"} == block.gradients.keys()
