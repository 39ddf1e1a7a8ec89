"""Exact values of well-known cases, from published formulas and hand arithmetic with integers.

Sources: Shoeybi et al. 2019 (arXiv:1909.08053) and Narayanan et al. 2021 (arXiv:2104.04473) for a block's AllReduces;
Korthikanti et al. 2022 (arXiv:2205.05198) for sequence parallelism; Megatron-LM core/tensor_parallel/layers.py for the
re-gather of the saved input; Megatron-LM core/tensor_parallel/cross_entropy.py for the loss.
"""

from __future__ import annotations

import pytest

from commcalc.errors import CommcalcError
from conftest import ask, counts, rows

GPT3 = {"b": 1, "s": 2048, "h": 12288}
GPT3_PAYLOAD = 50_331_648  # b*s*h*2
LLAMA_PAYLOAD = 134_217_728  # 1*8192*8192*2


def gpt3(**values: object):
    return ask("gpt3-175b", "a100", parallelism__tp=8, workload__sequence_length=2048, **values)


def llama(**values: object):
    return ask("llama-3-70b", "h100", workload__sequence_length=8192, **{"parallelism__tp": 8} | values)


def test_gpt3_block_has_four_allreduces_of_the_activation() -> None:
    block = rows(gpt3(), part="block")
    assert [row.kind for row in block] == ["all_reduce"] * 4
    assert {row.payload_bytes for row in block} == {GPT3_PAYLOAD} == {GPT3["b"] * GPT3["s"] * GPT3["h"] * 2}
    assert {row.wire_bytes for row in block} == {88_080_384}


@pytest.mark.parametrize(
    ("b", "s", "h", "t"), [(1, 2048, 12288, 8), (2, 4096, 8192, 8), (3, 1024, 5120, 4), (1, 131072, 8192, 2)]
)
def test_block_bytes_are_eight_t_minus_one_over_t_bsh(b: int, s: int, h: int, t: int) -> None:
    """8(t-1)/t * b*s*h elements: Narayanan et al. 2021, section 3.2."""
    priced = ask(
        f"{{hidden_size: {h}, num_hidden_layers: 3}}",
        parallelism__tp=t, workload__sequence_length=s, workload__micro_batch_size=b,
    )  # fmt: skip
    assert priced.totals["block"]["tp"].wire_bytes == 8 * (t - 1) * b * s * h * 2 // t
    assert priced.totals["stage"]["tp"].wire_bytes == 3 * 8 * (t - 1) * b * s * h * 2 // t


def test_gpt3_block_wire_bytes() -> None:
    assert gpt3().totals["block"]["tp"].wire_bytes == 352_321_536


def test_sequence_parallelism_with_the_re_gather_is_a_quarter_more() -> None:
    priced = gpt3(parallelism__sp=True)
    assert counts(priced, part="block") == {
        ("forward", "all_gather"): 2,
        ("forward", "reduce_scatter"): 2,
        ("backward", "all_gather"): 4,
        ("backward", "reduce_scatter"): 2,
    }
    assert priced.totals["block"]["tp"].wire_bytes == 440_401_920
    assert 440_401_920 * 4 == 352_321_536 * 5
    assert len([row for row in rows(priced, part="block") if row.note.startswith("re-gather")]) == 2


def test_sequence_parallelism_without_the_re_gather_moves_what_tensor_parallelism_moves() -> None:
    priced = gpt3(parallelism__sp=True, workload__regather=False)
    assert priced.totals["block"]["tp"].wire_bytes == 352_321_536
    assert counts(priced, part="block")["backward", "all_gather"] == 2


def test_llama_block_bytes() -> None:
    assert llama().totals["block"]["tp"].wire_bytes == 939_524_096
    assert llama(parallelism__sp=True).totals["block"]["tp"].wire_bytes == 1_174_405_120


def test_embedding_head_and_loss_of_gpt3_are_rows_of_their_own() -> None:
    priced = gpt3()
    (embedding,) = rows(priced, part="embedding")
    assert (embedding.direction, embedding.kind, embedding.payload_bytes) == ("forward", "all_reduce", GPT3_PAYLOAD)
    (dgrad,) = rows(priced, part="head", sublayer="head")
    assert (dgrad.direction, dgrad.kind, dgrad.payload_bytes) == ("backward", "all_reduce", GPT3_PAYLOAD)
    loss = rows(priced, sublayer="loss")
    assert [(row.op, row.kind, row.dtype, row.payload_bytes) for row in loss] == [
        ("max_logit", "all_reduce", "fp32", 8192),
        ("target_logit", "all_reduce", "fp32", 8192),
        ("sum_exp", "all_reduce", "fp32", 8192),
    ]


def test_learned_positions_keep_the_embedding_allreduce_under_sequence_parallelism() -> None:
    priced = gpt3(parallelism__sp=True)
    assert counts(priced, part="embedding") == {("forward", "all_reduce"): 1, ("backward", "all_gather"): 1}
    assert {row.payload_bytes for row in rows(priced, part="embedding")} == {GPT3_PAYLOAD}


def test_rotary_positions_scatter_the_embedding_under_sequence_parallelism() -> None:
    """The payload is the whole [T, D]: not 1/tp of it, as one simulator has it."""
    priced = llama(parallelism__sp=True)
    assert counts(priced, part="embedding") == {("forward", "reduce_scatter"): 1, ("backward", "all_gather"): 1}
    assert {row.payload_bytes for row in rows(priced, part="embedding")} == {LLAMA_PAYLOAD}


def test_head_under_sequence_parallelism_gathers_scatters_and_gathers_again() -> None:
    priced = llama(parallelism__sp=True)
    assert counts(priced, part="head", sublayer="head") == {
        ("forward", "all_gather"): 1,
        ("backward", "reduce_scatter"): 1,
        ("backward", "all_gather"): 1,
    }


def test_step_of_llama_is_322_activation_allreduces_and_three_for_the_loss() -> None:
    step = llama().totals["step"]["tp"]
    assert step.calls == 4 * 80 + 2 + 3
    assert step.wire_bytes == 322 * 234_881_024 + 3 * 57_344


@pytest.mark.parametrize(("mode", "calls"), [("none", 4), ("selective", 4), ("full", 6)])
def test_full_recomputation_repeats_the_forward_collectives(mode: str, calls: int) -> None:
    priced = gpt3(workload__recompute=mode)
    assert priced.totals["block"]["tp"].calls == calls
    assert len(rows(priced, direction="recompute")) == calls - 4


def test_full_recomputation_under_sequence_parallelism() -> None:
    """Megatron: 2 AG + 2 RS again, and the re-gathers stay."""
    priced = gpt3(parallelism__sp=True, workload__recompute="full")
    assert counts(priced, part="block", direction="recompute") == {
        ("recompute", "all_gather"): 2,
        ("recompute", "reduce_scatter"): 2,
    }
    assert counts(priced, part="block", direction="backward")["backward", "all_gather"] == 4


def test_worked_example_of_ten_layers() -> None:
    priced = ask(job="example-h8192")
    block = rows(priced, part="block")
    assert {row.payload_bytes for row in block} == {134_217_728}
    assert {row.wire_bytes for row in block} == {234_881_024}
    assert priced.totals["block"]["tp"].wire_bytes == 939_524_096
    assert priced.totals["stage"]["tp"].wire_bytes == 9_395_240_960


@pytest.mark.parametrize("kv", [8, 16, 32, 64])
def test_allreduce_payload_does_not_depend_on_kv_heads(kv: int) -> None:
    block = rows(llama(model__num_key_value_heads=kv), part="block")
    assert [row.payload_bytes for row in block] == [LLAMA_PAYLOAD] * 4


def test_one_decoded_token_of_llama() -> None:
    priced = ask("llama-3-70b", "h100", parallelism__tp=8, workload__phase="decode")
    block = rows(priced, part="block")
    assert [(row.kind, row.payload_bytes) for row in block] == [("all_reduce", 16_384)] * 2
    assert priced.totals["stage"]["tp"].calls == 2 * 80
    (embedding,) = rows(priced, part="embedding")
    assert (embedding.kind, embedding.payload_bytes) == ("all_reduce", 16_384)
    (logits,) = rows(priced, part="head")
    assert (logits.kind, logits.payload_bytes) == ("all_gather", 258_048)
    assert 258_048 == 129_024 * 2
    assert priced.totals["step"]["tp"].calls == 162


def test_prefill_gathers_the_logits_of_one_position_a_sequence() -> None:
    priced = ask("llama-3-70b", parallelism__tp=8, workload__phase="prefill", workload__micro_batch_size=4)
    (logits,) = rows(priced, part="head")
    assert (logits.kind, logits.payload_bytes) == ("all_gather", 4 * 129_024 * 2)
    assert {row.direction for row in rows(priced)} == {"forward"}


@pytest.mark.parametrize(("model", "backward"), [("command-r-35b", 1), ("falcon-40b", 2)])
def test_parallel_block_reduces_once_forward_and_once_a_norm_backward(model: str, backward: int) -> None:
    priced = ask(model, parallelism__tp=8)
    assert counts(priced, part="block") == {("forward", "all_reduce"): 1, ("backward", "all_reduce"): backward}


def test_more_ranks_than_kv_heads_is_refused_in_training() -> None:
    with pytest.raises(CommcalcError, match="num_key_value_heads 8 mod 16 = 8") as refused:
        llama(parallelism__tp=16)
    assert refused.value.status == 3


def test_kv_gather_gathers_queries_keys_and_values_and_scatters_their_gradient() -> None:
    """T*(q + 2kv): Megatron-LM core/transformer/attention.py, num_query_groups < world_size."""
    priced = llama(parallelism__tp=16, parallelism__kv="gather")
    width = 64 * 128 + 2 * 8 * 128
    extra = rows(priced, part="block", op="kv_heads")
    assert [(row.direction, row.kind, row.payload_bytes) for row in extra] == [
        ("forward", "all_gather", 8192 * width * 2),
        ("backward", "reduce_scatter", 8192 * width * 2),
    ]
    assert counts(priced, part="block", kind="all_reduce") == {
        ("forward", "all_reduce"): 2,
        ("backward", "all_reduce"): 2,
    }


def test_kv_replication_syncs_the_gradients_of_the_copies_once_a_step() -> None:
    priced = llama(parallelism__tp=16, parallelism__kv="replicate")
    (sync,) = rows(priced, direction="update")
    # 80 layers of Wk and Wv, one head of 128 columns each on a rank, in fp32, over the two ranks that share it.
    assert (sync.kind, sync.group, sync.group_size) == ("all_reduce", "tp", 2)
    assert sync.payload_bytes == 80 * 2 * 8192 * 128 * 4
    assert counts(priced, part="block") == {("forward", "all_reduce"): 2, ("backward", "all_reduce"): 2}


def test_norm_and_bias_gradients_are_synced_once_a_step_under_sequence_parallelism() -> None:
    """Llama 2h a layer and h at the end; GPT 6h (two LayerNorms, two row biases) and 2h."""
    (sync,) = rows(llama(parallelism__sp=True), direction="update")
    assert (sync.group_size, sync.per, sync.payload_bytes) == (8, "step", (80 * 2 + 1) * 8192 * 4)
    (sync,) = rows(gpt3(parallelism__sp=True), direction="update")
    assert sync.payload_bytes == (96 * 6 + 2) * 12288 * 4


def test_query_and_key_norms_are_synced_without_sequence_parallelism_too() -> None:
    (sync,) = rows(ask("qwen3-32b", parallelism__tp=8), direction="update")
    assert sync.payload_bytes == 64 * 2 * 128 * 4


def test_shared_key_norm_reduces_nothing_in_the_backward_pass() -> None:
    """Each replica's autograd runs the norm on its own part of the gradient: only the gather's transpose reduces."""
    priced = ask("qwen3-32b", parallelism__tp=16, parallelism__kv="gather")
    assert counts(priced, part="block", direction="backward") == {
        ("backward", "all_reduce"): 2,
        ("backward", "reduce_scatter"): 1,
    }


def test_sandwich_norms_change_no_volume_and_add_two_weights_to_the_sync() -> None:
    plain = llama(parallelism__sp=True)
    sandwich = llama(parallelism__sp=True, model__norm_placement="sandwich")
    assert sandwich.totals["block"] == plain.totals["block"]
    (sync,) = rows(sandwich, direction="update")
    assert sync.payload_bytes == (80 * 4 + 1) * 8192 * 4


def test_post_norms_reduce_the_branch_gradient_before_the_residual_joins_it() -> None:
    priced = llama(model__norm_placement="post")
    assert counts(priced, part="block") == {("forward", "all_reduce"): 2, ("backward", "all_reduce"): 2}


def test_replicated_kv_heads_add_no_activation_traffic_under_sequence_parallelism() -> None:
    replicated = llama(parallelism__tp=16, parallelism__kv="replicate", parallelism__sp=True)
    plain = llama(parallelism__tp=16, model__num_key_value_heads=16, parallelism__sp=True)
    assert replicated.totals["block"]["tp"].wire_bytes == plain.totals["block"]["tp"].wire_bytes
    sizes = {row.group_size: row.payload_bytes for row in rows(replicated, direction="update")}
    assert sizes == {16: (80 * 2 + 1) * 8192 * 4, 2: 80 * 2 * 8192 * 128 * 4}


def test_inference_with_replicated_kv_heads_under_sequence_parallelism() -> None:
    priced = ask("llama-3-70b", parallelism__tp=16, parallelism__sp=True, workload__phase="prefill")
    assert counts(priced, part="block") == {("forward", "all_gather"): 2, ("forward", "reduce_scatter"): 2}


def test_the_busiest_stage_is_the_slowest_where_times_are_known() -> None:
    """The last stage sends fewer bytes and more messages: short sequences make it the slower one."""
    by_bytes = ask("gpt3-175b", **SHORT)
    by_time = ask("gpt3-175b", "h100", **SHORT)
    assert by_bytes.ledger.stage.number == 0
    assert by_time.ledger.stage.number == 3
    assert [row.op for row in rows(by_time, direction="update")] == ["gradient_sync", "tied_embedding"]


SHORT = {
    "parallelism__tp": 8,
    "parallelism__sp": True,
    "parallelism__pp": 4,
    "workload__regather": False,
    "workload__sequence_length": 96,
}


def test_query_and_key_layer_norms_have_biases_too() -> None:
    (sync,) = rows(gpt3(model__qk_norm="head_dim"), direction="update")
    assert sync.payload_bytes == 96 * 4 * 128 * 4


def test_microbatches_multiply_the_step_and_not_the_stage() -> None:
    one = llama()
    four = llama(parallelism__dp=2, workload__global_batch_size=8)
    assert four.totals["stage"] == one.totals["stage"]
    assert four.totals["step"]["tp"].wire_bytes == 4 * one.totals["step"]["tp"].wire_bytes


def test_pipeline_stage_holds_its_share_of_the_layers() -> None:
    priced = llama(parallelism__pp=4)
    assert priced.totals["stage"]["tp"].wire_bytes == 20 * 939_524_096
    # A stage in the middle is the busiest: it sends activations and gradients on, which the others do once.
    assert priced.ledger.stage.number == 1
    assert priced.totals["step"]["tp"].wire_bytes == 20 * 4 * 234_881_024
    assert priced.totals["step"]["pp"].wire_bytes == 2 * 8192 * 8192 * 2


def test_layers_that_do_not_divide_give_the_first_stages_one_more() -> None:
    priced = llama(parallelism__pp=3)
    assert [stage.layers for stage in priced.ledger.stages] == [27, 27, 26]
    (warning,) = [warning for warning in priced.warnings if warning.code == "uneven-stages"]
    assert warning.message == "80 layers on 3 stages: the first 2 hold one more"


def test_one_device_communicates_nothing() -> None:
    priced = ask("llama-3-70b", "h100")
    assert rows(priced) == []
    assert priced.totals["step"]["all"] == (0, 0, 0, 0.0)


def test_layout_none_communicates_nothing_and_says_so() -> None:
    priced = ask("llama-3-70b", "h100", parallelism__tp=8, parallelism__layout="none")
    assert rows(priced) == []
    assert [warning.code for warning in priced.warnings] == ["nothing-split"]


def test_textbook_convention_changes_wire_bytes_and_times_and_no_payload() -> None:
    exact, textbook = llama(), llama(links__convention="textbook")
    assert [row.payload_bytes for row in rows(exact)] == [row.payload_bytes for row in rows(textbook)]
    assert {row.wire_bytes for row in rows(textbook, part="block")} == {2 * LLAMA_PAYLOAD}


def test_fp8_and_fp32_scale_the_payload() -> None:
    assert {row.payload_bytes for row in rows(llama(workload__dtype="fp8"), part="block")} == {LLAMA_PAYLOAD // 2}
    assert {row.payload_bytes for row in rows(llama(workload__dtype="fp32"), part="block")} == {LLAMA_PAYLOAD * 2}
