"""What one device computes: the derivative of every kernel against differences of its values."""

from __future__ import annotations

import numpy as np
import pytest

from commcalc.accounting.ledger import build
from commcalc.algebra.program import Role
from commcalc.algebra.schedule import Placed
from commcalc.simulate.cases import Case, cases, in_parallel
from commcalc.simulate.execute import Execution
from commcalc.simulate.kernels import KERNELS, kernel_of
from commcalc.simulate.precision import Format, precision_of
from commcalc.simulate.training import Training, random_data
from commcalc.simulate.wire import Array
from commcalc.transformer.layout import KvPolicy, LayoutName

EXACT = precision_of(Format.FLOAT64)
# Models that have every operation among them: those on one rank but for TP, and with experts or sequences dealt out.
ALL = {case.name.removesuffix(", train"): case for case in cases([LayoutName.MEGATRON], [2], everything=True)
       if case.work.phase.training and case.parallel.mesh.devices == 2}  # fmt: skip
DEALT_OUT = [case for case in in_parallel(everything=False)
             if case.work.phase.training and (case.parallel.moves_tokens or case.parallel.cp > 1)]  # fmt: skip
SPLIT = cases([LayoutName.MEGATRON_SP], [2], everything=False)
GATHERED = [case for case in cases([LayoutName.MEGATRON], [8], everything=False)
            if case.parallel.kv is KvPolicy.GATHER]  # fmt: skip
GRIDS = cases([LayoutName.TWO_D], [4], everything=False)
NAMES = [
    "gqa gated parallel, two norms, biases", "mha gated, norms after, norms of each head",
    "mha plain, positions behind two rows", "gqa experts and a shared one behind a dense layer", "mha latents, experts",
    "gqa sinks, experts with biases", "gqa norms over all heads", "pairs experts beside an MLP, other heads by layer",
    "mha lightning, experts", "gqa delta rule, experts and a gated shared one",
    "gqa one expert of a token, every other layer", "pairs sinks in sliding layers, narrow values",
    "hf: llama4, every expert", "hf: phi3, fused and gathered", "hf: minimax_m2, heads gathered",
    "hf: qwen3_next, gathered", "hf: qwen3_5, gathered in four",
]  # fmt: skip


def trained(case: Case) -> Training:
    ledger = build(case.model, case.parallel, case.work)
    return Training(ledger, random_data(ledger, 3), EXACT)


def moved(run: Execution, placed: Placed, at: int, by: Array, rank: int) -> Array:
    """The output of one operation on one device with operand number ``at`` moved."""
    held = [run.held(value)[rank] for value in placed.operands]
    held[at] = held[at] + by
    return kernel_of(placed).forward(run._locals(placed)[rank], held)


def check(run: Execution, placed: Placed, rng: np.random.Generator) -> set[str]:
    """Every operand in a random direction, on the last device."""
    rank, seen = run.setting.grid.devices - 1, set()
    held = [run.held(value)[rank] for value in placed.operands]
    for at, value in enumerate(placed.operands):
        tensor = run.derivation.program.tensors[value.name]
        maker = next((op for op in run.derivation.program.ops if op.output == value.name), None)
        constant = maker is not None and not maker.differentiable
        if tensor.role in (Role.INDEX, Role.MASK) or constant:
            continue
        towards = rng.standard_normal(held[at].shape)
        towards /= np.sqrt(np.sum(towards**2))
        step = 1e-4
        near, far = (moved(run, placed, at, s * towards, rank) - moved(run, placed, at, -s * towards, rank)
                     for s in (step, 2 * step))  # fmt: skip
        grad = rng.standard_normal(near.shape)
        back = kernel_of(placed).backward(run._locals(placed)[rank], held, grad, at)
        assert back.shape == held[at].shape, (placed.op.name, value.name)
        found, wanted = float(np.sum(back * towards)), float(np.sum(grad * (8 * near - far)) / (12 * step))
        assert found == pytest.approx(wanted, rel=2e-7, abs=1e-9), (placed.op.name, value.name)
        seen.add(placed.op.function)
    return seen


def test_every_derivative_is_that_of_its_values() -> None:
    """Every kernel that has a derivative, with every operand that it has."""
    rng = np.random.default_rng(1)
    seen: set[str] = set()
    gathered = next(case for case in GATHERED if case.model.attention_output_gate)
    dense = next(case for case in SPLIT if "beside an MLP" in case.name)
    shared = next(case for case in SPLIT if case.name.startswith("torchtitan: gpt_oss"))
    for case in (*(ALL[name] for name in NAMES), gathered, dense, shared, *DEALT_OUT, *GRIDS):
        training = trained(case)
        for part in {part.program: part for part in training.parts}.values():
            run = training.runs[part.name]
            for placed in run.derivation.placed:
                if placed.op.differentiable and placed.op.function != "last_position":
                    seen |= check(run, placed, rng)
    silent = {"count_rows", "max_logit", "sample", "last_position", "choose", "routing_map", "permute_choices"}
    assert KERNELS.keys() - seen == silent


def test_equal_scores_go_to_the_lower_number() -> None:
    from commcalc.simulate.experts import _best

    scores = np.array([[1.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0], [3.0, 1.0, 2.0, 3.0]])
    assert _best(scores, 2).tolist() == [[1, 2], [0, 1], [0, 3]]
    there = np.array([[0, 1, 0, 1]], dtype=np.int8)  # the same from a map
    assert _best(there, 2).tolist() == [[1, 3]]
