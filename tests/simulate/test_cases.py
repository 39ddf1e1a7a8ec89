"""Layouts, degrees and architectures: not a byte or step differs from the ledger, and errors are those of rounding."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from commcalc.accounting.ledger import build
from commcalc.errors import UsageError
from commcalc.simulate.cases import DEGREES, Case, cases, run_case
from commcalc.simulate.check import at_most, exact, relative
from commcalc.simulate.collectives import check_collectives
from commcalc.simulate.precision import Format, precision_of, rounded_to_bfloat16
from commcalc.simulate.small import sized, tokens_for, worked
from commcalc.transformer.layers import Attention, Ffn, Heads, layers_of
from commcalc.transformer.layout import KvPolicy, LayoutName
from commcalc.transformer.spec import LinearAttention, Model, NormPlacement, Phase, Positions, QkNorm
from commcalc.transformer.work import Framework, Parallelism, VocabPadding, Workload

EXACT = precision_of(Format.FLOAT64)
DEFAULT = cases([*LayoutName], DEGREES, everything=False)


@pytest.mark.parametrize(
    "case", DEFAULT, ids=lambda case: f"{case.name}, {case.layout}, {case.parallel.tp}, {case.parallel.kv}"
)
def test_the_default_set(case: Case) -> None:
    run = run_case(case, EXACT, 0)
    assert [check for check in run.checks if not check.passed] == []
    allowed = {check.expected for check in run.checks if check.most}
    assert allowed <= {1e-12, 4 * 2.0**-53}  # of errors, and of copies
    counts = [check for check in run.checks if check.what in ("wire_bytes", "steps")]
    assert (len(counts) > 0) == (run.layout != "none" and run.mesh != (("tp", 1),))


ALL = cases([*LayoutName], DEGREES, everything=True)


@pytest.mark.parametrize("first", range(20))
def test_a_part_of_the_full_set(first: int) -> None:
    """A twelfth of all cases, dealt out to twenty tests: `commcalc verify --all` in continuous integration runs all."""
    for case in ALL[first :: 20 * 12]:
        run = run_case(case, EXACT, first)
        assert [(run.layout, run.mesh, run.case, check) for check in run.checks if not check.passed] == []


def test_the_full_set_is_what_is_asked_for() -> None:
    """Layouts x TP 1, 2, 4, 8 x MHA, GQA, MQA x gated or plain x sequential or parallel, trained; own ones on fewer."""
    told = {(case.layout, case.parallel.tp, case.name) for case in ALL}
    for layout in LayoutName:
        for tp in (2, 4) if layout.own else (1, 2, 4, 8):
            for heads in ("mha", "gqa", "mqa"):
                for kind in ("gated", "plain"):
                    for order in ("sequential", "parallel"):
                        assert (layout, tp, f"{heads} {kind} {order}, train") in told
    models = [case.model for case in ALL]
    for field, choices in (("qk_norm", set(QkNorm)), ("norm_placement", set(NormPlacement)),
                           ("position_embedding", {Positions.ROPE, Positions.LEARNED}), ("parallel_norms", {1, 2}),
                           ("tie_word_embeddings", {True, False}), ("attention_bias", {True, False}),
                           ("embedding_norm", {True, False}), ("lm_head_bias", {True, False}),
                           ("extra_position_rows", {0, 2})):  # fmt: skip
        assert {getattr(model, field) for model in models} == choices, field
    assert {case.work.phase for case in ALL} == set(Phase)
    assert {case.parallel.kv for case in ALL} == set(KvPolicy)
    heads = {(case.model.num_attention_heads, case.model.num_key_value_heads) for case in ALL}
    assert heads == {(8, 8), (8, 4), (8, 2), (8, 1)}


def test_every_kind_of_layer_and_every_framework_is_run() -> None:
    """What a program can be made of is there, by default already but for what is rare."""
    for found, rare in ((DEFAULT, True), (ALL, False)):
        models = [case.model for case in found]
        kinds = {kind for model in models for kind in layers_of(model).kinds}
        assert {kind.heads for kind in kinds} == set(Heads)
        assert {kind.ffn for kind in kinds} == set(Ffn)
        assert {kind.sinks for kind in kinds} == {True, False}
        assert {case.parallel.framework for case in found} == {None, *Framework}
        for field in ("attention_output_gate", "shared_expert_gate", "router_bias", "expert_bias", "router_scales",
                      "dense_mlp_beside_moe", "q_lora_rank", "global_keys_are_values"):  # fmt: skip
            assert {bool(getattr(model, field)) for model in models} == {True, False}, field
        if not rare:
            assert {model.linear_attention for model in models} == set(LinearAttention)
            assert {model.num_experts_per_tok for model in models} == {0, 1, 2}


@pytest.mark.parametrize("tp", [3, 5, 6, 7, 12, 16, 24])
def test_degrees_that_are_no_powers_of_two(tp: int) -> None:
    """Buffers that do not divide go round in unequal chunks: the mean is what the ledger says."""
    found = cases([LayoutName.MEGATRON, LayoutName.MEGATRON_SP], [tp], everything=False)
    for case in found if tp in (3, 6) else found[:8]:
        run = run_case(case, EXACT, tp)
        assert [(run.layout, run.case, check) for check in run.checks if not check.passed] == []


@pytest.mark.parametrize("chosen", [Format.FLOAT32, Format.BFLOAT16])
@pytest.mark.parametrize("seed", range(3))
def test_short_formats(chosen: Format, seed: int) -> None:
    for case in cases([LayoutName.MEGATRON_SP], [4], everything=False):
        run = run_case(case, precision_of(chosen), seed)
        assert [(run.case, check) for check in run.checks if not check.passed] == []
        worst = max(check.found for check in run.checks if check.what == "forward_error")
        assert worst > {Format.FLOAT32: 1e-8, Format.BFLOAT16: 1e-3}[chosen]  # it really was run in that format


def test_the_seed_gives_the_data() -> None:
    case = DEFAULT[-1]
    one, again, other = (run_case(case, EXACT, seed) for seed in (1, 1, 2))
    assert one == again
    assert [check.found for check in one.checks if check.most] != [check.found for check in other.checks if check.most]


def test_collectives_agree_with_their_closed_forms() -> None:
    runs = check_collectives(12, 0)
    assert [(run.case, check) for run in runs for check in run.checks if not check.passed] == []
    told = {run.case for run in runs}
    for name in ("all_reduce by double-binary-tree", "all_reduce by in-network", "all_to_all by line",
                 "all_gather by recursive-doubling", "reduce_scatter by recursive-halving", "permute by direct",
                 "all_reduce by in-network, the switch keeps the sum", "reduce_scatter by ring-two-way"):  # fmt: skip
        assert name in told
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"):
        meshes = [dict(run.mesh) for run in runs if run.case == f"{kind} by hierarchical"]
        assert {"across": 3, "inside": 4} in meshes


def test_small_sizes_keep_what_matters() -> None:
    """Llama-3-70B: 64 query heads, 8 KV heads, everything else small; what is named stays as given."""
    llama = Model(
        name="llama-3-70b", hidden_size=8192, num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8,
        head_dim=128, intermediate_size=28672, vocab_size=128256, max_position_embeddings=8192,
    )  # fmt: skip
    small = sized(llama, 8, keep=["intermediate_size"])
    assert (small.num_attention_heads, small.num_key_value_heads, small.intermediate_size) == (64, 8, 28672)
    assert (small.hidden_size, small.num_hidden_layers, small.head_dim, small.vocab_size) == (40, 2, 16, 56)
    assert (tokens_for(8), tokens_for(12)) == (8, 24)


def test_a_model_in_small_shows_every_kind_of_layer() -> None:
    """61 layers of which 3 are dense become one of each and one more of the usual, by lists instead of rules."""
    given = Model(
        num_hidden_layers=61, num_attention_heads=128, num_key_value_heads=128, head_dim=192, num_experts=256,
        num_experts_per_tok=8, moe_intermediate_size=2048, first_k_dense_replace=3, q_lora_rank=1536, kv_lora_rank=512,
        qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, shared_expert_intermediate_size=2048,
    )  # fmt: skip
    small = sized(given, 4)
    assert small.mlp_layer_types == ("dense", "sparse", "sparse")
    assert (layers_of(small).names, layers_of(small).usual) == (layers_of(given).names, layers_of(given).usual)
    assert (small.num_experts, small.num_experts_per_tok, small.moe_intermediate_size) == (8, 2, 16)
    assert small.head_dim == small.qk_nope_head_dim + small.qk_rope_head_dim == 24
    assert sized(given._replace(num_experts_per_tok=1), 4).num_experts_per_tok == 1
    kept = sized(given._replace(num_hidden_layers=5), 4, keep=["num_hidden_layers", "kv_lora_rank"])
    assert (kept.num_hidden_layers, kept.first_k_dense_replace, kept.kv_lora_rank) == (5, 3, 512)
    words = [Attention.FULL, *[Attention.SLIDING] * 3] * 3
    listed = sized(Model(num_hidden_layers=12, layer_types=tuple(words), global_head_dim=64), 2)
    assert listed.layer_types == ("full_attention", "sliding_attention", "sliding_attention")


@pytest.mark.parametrize(
    "name", ["gqa experts and a shared one behind a dense layer", "hf: qwen3_next, gathered, train"]
)
def test_the_estimate_covers_experts_and_states(name: str) -> None:
    from commcalc.simulate import cases as module

    case = next(case for case in DEFAULT if case.name == name and case.parallel.tp > 1 and case.layout != "none")
    case = case._replace(work=worked(Workload(), case.parallel.tp, 96, 2))
    tracemalloc.start()
    run_case(case, EXACT, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.5 * peak <= 8 * module._elements(build(case.model, case.parallel, case.work)) <= 5 * peak


def test_memory_is_estimated_before_anything_is_allocated() -> None:
    model = sized(Model(name="wide"), 2)._replace(hidden_size=2**21, intermediate_size=2**21)
    parallel = Parallelism(tp=2, vocab_padding=VocabPadding.NONE)
    case = DEFAULT[0]._replace(model=model, parallel=parallel, work=worked(Workload(), 2))
    with pytest.raises(UsageError, match=r"would take about [\d.]+ PiB of memory at tp 2; the limit is 2 GiB"):
        run_case(case, EXACT, 0)


def test_the_estimate_is_no_less_than_what_is_held() -> None:
    """Blocks that the devices hold after a run, counted by their own sizes."""
    from commcalc.simulate import cases as module
    from commcalc.simulate.training import Training, random_data

    case = next(case for case in DEFAULT if case.layout is LayoutName.MEGATRON_SP and case.parallel.tp == 4)
    ledger = build(case.model, case.parallel, case.work)
    training = Training(ledger, random_data(ledger, 0), EXACT)
    blocks = {id(block): block.size for run in training.runs.values() for held in run.values.values() for block in held}
    estimate = module._elements(ledger)
    assert sum(blocks.values()) <= estimate <= 8 * sum(blocks.values())


@pytest.mark.parametrize("tokens", [256, 512])
def test_the_estimate_covers_the_whole_run(tokens: int) -> None:
    """Scores of attention, which no program names, and the tape of the baseline are most of a long sequence."""
    from commcalc.simulate import cases as module

    case = DEFAULT[5]._replace(work=worked(Workload(), 2, tokens, 1))
    tracemalloc.start()
    run_case(case, EXACT, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    estimate = 8 * module._elements(build(case.model, case.parallel, case.work))
    assert 0.5 * peak <= estimate <= 4 * peak


def test_bfloat16_is_rounded_to_nearest_even() -> None:
    """1 + 2^-8 lies between 1 and 1 + 2^-7 and goes to the even one; 1 + 3 * 2^-8 goes up; infinity stays."""
    given = np.array([1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8), 2**-126, np.inf, 3.4e38], dtype=np.float32)
    expected = [1.0, 1 + 2**-6, -1.0, 2**-126, np.inf, np.inf]
    assert rounded_to_bfloat16(given).tolist() == expected
    rng = np.random.default_rng(0)
    values = rng.standard_normal(1000).astype(np.float32)
    errors = np.abs(rounded_to_bfloat16(values) / values - 1)
    assert 0.8 * 2**-8 < errors.max() <= 2**-8


def test_errors_that_are_no_numbers_fail() -> None:
    assert not at_most("error", 1e-12, float("nan")).passed
    assert not at_most("error", 1e-12, float("inf")).passed
    assert at_most("error", 1e-12, 0.0).passed
    assert exact("bytes", 3, 3, "here", "told").message == ""
    assert relative(np.zeros(2), np.zeros(3)) == float("inf")
    assert relative(np.array([3.0, 4.5]), np.array([3.0, 4.0])) == pytest.approx(0.1)
    assert relative(np.array([0.5]), np.array([0.0]), floor=2.0) == 0.25
