"""Experts, latents, states and shared norms: schedules that are wrong as frameworks have had them wrong are caught."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broken import EXACT, MEGATRON, SP, backward, failed, forward, left_out, whats
from commcalc.accounting.ledger import Ledger
from commcalc.accounting.rows import RECOMPUTE
from commcalc.algebra.collective import Kind, keep_slice
from commcalc.algebra.derive import derive
from commcalc.algebra.schedule import FORWARD, REGATHER, Action, Derivation, Differentiate, Event, Move, Placed, Value
from commcalc.algebra.sharding import Sharding
from commcalc.errors import ShardingError
from commcalc.simulate import squares
from commcalc.simulate.cases import cases, plan_all
from commcalc.simulate.check import Check
from commcalc.simulate.experts import _best
from commcalc.simulate.kernels import KERNELS
from commcalc.simulate.local import Kernel, no_gradient
from commcalc.simulate.training import Training, random_data
from commcalc.simulate.trial import run_trial
from commcalc.transformer.layout import LayoutName
from commcalc.transformer.spec import Phase

EXPERTS, LATENTS = "gqa experts and a shared one behind a dense layer", "mha latents, experts"
SINKS, SQUARES = "gqa sinks, experts with biases", "gqa norms over all heads"


def ledger_of(name: str, layout: LayoutName = MEGATRON, tp: int = 4, phase: Phase | None = None) -> Ledger:
    """The ledger of a case that is run by name; of another phase where that is given."""
    found = next(
        case for case in cases([layout], [tp], everything=phase is not None)
        if case.name == name + (f", {phase}" if phase else "")
    )  # fmt: skip
    ((_, ledger),) = plan_all([found])
    return ledger


def of(checks: list[Check], what: str) -> Check:
    (found,) = [check for check in checks if check.what == what]
    return found


# Reductions that are left out


BACKWARD: list[tuple[str, LayoutName, str, Kind, str]] = [
    (EXPERTS, MEGATRON, "moe", Kind.ALL_REDUCE, "drouting"),
    (EXPERTS, SP, "moe", Kind.REDUCE_SCATTER, "dprobs"),
    (LATENTS, MEGATRON, "moe", Kind.ALL_REDUCE, "dKr"),
    (LATENTS, MEGATRON, "dense", Kind.ALL_REDUCE, "dCkvn"),
    (LATENTS, SP, "dense", Kind.REDUCE_SCATTER, "dCqn"),
    (SQUARES, MEGATRON, "block", Kind.ALL_REDUCE, "dsquares"),
]


@pytest.mark.parametrize(("name", "layout", "part", "kind", "tensor"), BACKWARD, ids=str)
def test_a_gradient_that_is_not_reduced(name: str, layout: LayoutName, part: str, kind: Kind, tensor: str) -> None:
    """Each device goes on with what its own columns, heads or choices say; all that lies before it is wrong."""
    ledger = ledger_of(name, layout)
    assert any(e.tensor == tensor and e.step.kind is kind for e in ledger.derivations[part].steps("backward"))
    found = failed(ledger, **{part: backward(ledger, left_out(kind, tensor), part)})
    assert "forward_error" not in whats(found)
    assert {"gradient_error", "gradient_norm_error", "sgd_update_error", "rows"} <= whats(found)


FORWARDS: list[tuple[str, LayoutName, str, Kind, str]] = [
    (EXPERTS, MEGATRON, "moe", Kind.ALL_REDUCE, "Pe"),
    (SINKS, SP, "block", Kind.REDUCE_SCATTER, "Pe"),
    (SQUARES, MEGATRON, "block", Kind.ALL_REDUCE, "squares"),
    ("pairs delta rule and gated attention", MEGATRON, "linear", Kind.ALL_REDUCE, "Y"),
    ("pairs experts beside an MLP, other heads by layer", MEGATRON, "sliding", Kind.ALL_REDUCE, "P"),
]


@pytest.mark.parametrize(("name", "layout", "part", "kind", "tensor"), FORWARDS, ids=str)
def test_a_sum_that_is_not_reduced(name: str, layout: LayoutName, part: str, kind: Kind, tensor: str) -> None:
    ledger = ledger_of(name, layout)
    assert any(e.tensor == tensor and e.step.kind is kind for e in ledger.derivations[part].steps(FORWARD))
    found = failed(ledger, **{part: forward(ledger, left_out(kind, tensor), part)})
    assert {"forward_error", "loss_error", "gradient_error", "rows"} <= whats(found)
    assert f": {tensor} after slice over " in of(found, "forward_error").where


def test_a_shared_gradient_that_transformers_does_not_reduce() -> None:
    """The weight of a norm of each head, which every rank holds: its gradient is one head group's alone."""
    ledger = ledger_of("hf: qwen3, norms of heads, train")
    part = ledger.usual
    found = failed(ledger, **{part: backward(ledger, left_out(Kind.ALL_REDUCE, "dgq"), part)})
    assert {"gradient_error", "gradient_copies", "rows"} <= whats(found)
    assert of(found, "gradient_copies").where.endswith(".gq")


# What is added too early, or too often


def edited(ledger: Ledger, part: str, change: Callable[[Action], list[Action]]) -> Derivation:
    """A derivation with each forward action replaced by others."""
    derivation = ledger.derivations[part]
    return derivation._replace(forward=tuple(made for one in derivation.forward for made in change(one)))


def reduction_of(ledger: Ledger, part: str, tensor: str) -> Move:
    return next(
        one for one in ledger.derivations[part].forward if isinstance(one, Move) and one.event.tensor == tensor
    )  # fmt: skip


def renamed(move: Move, name: str) -> Move:
    """The same collective of another tensor."""
    return Move(move.event._replace(tensor=name), Value(name, move.source.sharding), Value(name, move.target.sharding))


def test_a_shared_expert_that_counts_t_times() -> None:
    """Its output is reduced, and then added to the experts' pending sum, which is reduced after."""
    ledger = ledger_of("vllm: deepseek_v3", tp=4, phase=Phase.PREFILL)
    both = reduction_of(ledger, "moe", "P")

    def early(one: Action) -> list[Action]:
        if not isinstance(one, Placed) or one.op.name != "add_shared":
            return [one]
        shared = renamed(both, "Ps")
        return [shared, one._replace(inputs=(one.inputs[0], shared.target.sharding))]

    found = failed(ledger, moe=edited(ledger, "moe", early))
    error = of(found, "forward_error")
    assert (error.where.split(":")[0], error.message) == ("block.1, moe", "P is wrong from here on")


@pytest.mark.parametrize("tp", [2, 4])
def test_an_expert_bias_that_is_added_before_the_reduction(tp: int) -> None:
    """Every rank has the whole bias: each adds it to its own term."""
    ledger = ledger_of(SINKS, tp=tp, phase=Phase.PREFILL)
    whole = reduction_of(ledger, "block", "Pe")

    def early(one: Action) -> list[Action]:
        if one == whole:
            return []
        if isinstance(one, Placed) and one.op.name == "add_expert_bias":
            pending = whole.source.sharding
            return [one._replace(inputs=(pending, one.inputs[1]), output=pending), renamed(whole, "Peb")]
        return [one]

    found = failed(ledger, edited(ledger, "block", early))
    error = of(found, "forward_error")
    assert (error.where, error.message) == ("block.0, moe: Peb of add_expert_bias", "Peb is wrong from here on")


def test_a_latent_that_is_normed_while_it_is_a_pending_sum() -> None:
    """The projection down to it split by rows: the derivation refuses it; by hand each device norms its own term."""
    ledger = ledger_of("vllm: deepseek_v3", tp=4, phase=Phase.PREFILL)
    derivation, tp = ledger.derivations["dense"], ledger.layout.mesh.expand(["tp"])
    program = derivation.program
    rows = Sharding(("D", "LKV"), (tp, ()))
    tensors = {**program.tensors, "Wkv_down": program.tensors["Wkv_down"]._replace(sharding=rows)}
    with pytest.raises(ShardingError, match="on a dimension that the activation holds whole"):
        derive(program._replace(tensors=tensors), backward=False)
    pending = Sharding(("T", "LKV"), ((), ()), tp)

    def split(one: Action) -> list[Action]:
        if not isinstance(one, Placed) or one.op.name not in ("kv_a_proj", "kv_a_norm"):
            return [one]
        if one.op.name == "kv_a_norm":
            return [one._replace(inputs=(pending,))]
        step = keep_slice(one.inputs[0], "D", tp)
        event = Event(FORWARD, step, "A", tensors["A"].role, one.op.label, one.op.sublayer)
        part = Move(event, Value("A", step.before), Value("A", step.after))
        return [part, one._replace(inputs=(step.after,), weights=(rows,), output=pending)]

    broken = edited(ledger, "dense", split)._replace(program=program._replace(tensors=tensors))
    error = of(failed(ledger, dense=broken), "forward_error")
    assert (error.where, error.message) == ("block.0, attention: Ckvn of kv_a_norm", "Ckvn is wrong from here on")


def test_heads_on_several_devices_that_count_several_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two KV heads on eight devices: four copies of each in the sum of squares of the keys."""
    monkeypatch.setattr(squares, "_copies", lambda at, which: 1)
    found = failed(ledger_of(SQUARES, tp=8))
    assert of(found, "forward_error").where == "block.0, attention: squares of squares"


def test_tokens_that_go_to_other_experts() -> None:
    """A map that another rank's tokens are read from: choices of the wrong tokens."""
    ledger = ledger_of(EXPERTS, SP)
    derivation = ledger.derivations["moe"]

    def shifted(one: Action) -> Action:
        if isinstance(one, Move) and one.event.tensor == "map":
            return one._replace(source=Value("probs", one.source.sharding))
        return one

    found = failed(ledger, moe=derivation._replace(forward=tuple(map(shifted, derivation.forward))))
    assert "forward_error" in whats(found)


# Layers of several kinds


def test_a_stage_that_takes_one_kind_of_layer_for_another() -> None:
    """One dense layer and one with experts: a sum of two dense ones is another."""
    ledger = ledger_of(EXPERTS)
    times = {**ledger.stage.times, "dense": 2, "moe": 0}
    found = [check for check in run_trial(ledger._replace(stage=ledger.stage._replace(times=times)), EXACT, 0)
             if not check.passed]  # fmt: skip
    assert {check.where for check in found} == {
        "totals.stage.tp", "totals.stage.all", "totals.step.tp", "totals.step.all"
    }  # fmt: skip


def test_rows_of_one_kind_are_not_taken_for_those_of_another() -> None:
    ledger = ledger_of(EXPERTS)
    rows = tuple(row._replace(part="moe") if row.part == "dense" else row for row in ledger.rows)
    found = [check for check in run_trial(ledger._replace(rows=rows), EXACT, 0) if not check.passed]
    assert {check.where for check in found if check.what == "rows"} == {"block.0", "block.1"}


def test_experts_keep_what_they_gathered_and_a_shared_one_does_not() -> None:
    """The shared expert's linear layers gather their input again; the experts' own copy is no help to them."""
    ledger = ledger_of(EXPERTS, SP)
    derivation = ledger.derivations["moe"]
    late = [one for one in derivation.backward if isinstance(one, Move) and one.event.note == REGATHER]
    assert {one.event.label for one in late if one.event.tensor == "M"} == {"shared_gate_up_proj"}
    rest = [one for one in derivation.backward if one not in late]
    error = of(failed(ledger, moe=derivation._replace(backward=(*rest, *late))), "forward_error")
    assert error.message.startswith("the gradient of shared_up_proj cannot be computed on a device")


def test_every_weight_of_every_layer_has_a_gradient() -> None:
    """What the mutations rely on."""
    for name in (EXPERTS, LATENTS, SINKS, SQUARES):
        for part, one in ledger_of(name, SP).derivations.items():
            made = {action.made.name for action in one.backward if isinstance(action, Differentiate)}
            weights = {f"d{name}" for name, tensor in one.program.tensors.items() if tensor.role == "weight"}
            assert weights <= made, part


def test_the_experts_with_the_lowest_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KERNELS, "choose", Kernel(lambda at, held: _best(-held[0], at.sizes["C"]), no_gradient))
    error = of(failed(ledger_of(EXPERTS)), "forward_error")
    assert error.where == "block.1, moe: chosen of chosen"
    assert error.message == "tokens are sent to other experts"


@pytest.mark.parametrize(("name", "again"), [("hf: llama", 1), ("hf: deepseek_v2", 2), ("torchtitan: llama", 4)])
def test_recomputation_ends_where_the_last_saved_tensor_is(name: str, again: int) -> None:
    """PyTorch's checkpoint runs all but the last collective of a layer that ends with a sum; torchtitan's all."""
    layout = SP if name.startswith("torchtitan") else MEGATRON
    found = next(case for case in cases([layout], [2], everything=True) if case.name == f"{name}, recomputed")
    ((_, ledger),) = plan_all([found])
    training = Training(ledger, random_data(ledger, 0), EXACT)
    last = training.parts[-2]
    assert len(training.counts(last, RECOMPUTE)) == again
