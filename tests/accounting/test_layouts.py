"""Layouts of the TP axis beside Megatron's, by hand arithmetic and as their papers have them.

Sources: Li et al. 2021, arXiv:2105.13120, section 3 (sequences split in all of a layer, weights whole); Llama 3,
arXiv:2407.21783, section 3.3.2 (keys and values gathered for attention).
"""

from __future__ import annotations

from typing import Any

import pytest

from commcalc.accounting.compute import Flops, computed
from commcalc.accounting.pricing import PricedLedger
from commcalc.errors import CommcalcError
from conftest import ask, fields, memory, rows

# T = 2 * 512 = 1024 tokens, D = 256, N = 16 heads of H = 16, F = 4 D, V = 4096; bf16, gradients fp32.
SIZES: dict[str, Any] = {
    "name": "small", "hidden_size": 256, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 16,
    "intermediate_size": 1024, "num_hidden_layers": 3, "vocab_size": 4096, "max_position_embeddings": 4096,
}  # fmt: skip
WORK = {
    "workload__sequence_length": 512, "workload__micro_batch_size": 2, "workload__global_batch_size": 4,
    "parallelism__vocab_padding": "none",
}  # fmt: skip
# Of one layer: Wq, Wk, Wv, Wo of 256 x 256; up and down of 256 x 1024, gated one more; two norms.
ATTENTION, GATED, PLAIN, NORMS = 4 * 256 * 256, 3 * 256 * 1024, 2 * 256 * 1024, 2 * 256
TABLES = 2 * 4096 * 256  # embedding and head
PARAMETERS = 3 * (ATTENTION + GATED + NORMS) + TABLES + 256


def laid(layout: str, tp: int = 4, model: dict[str, Any] | None = None, **more: object) -> PricedLedger:
    return ask(fields(**(SIZES | (model or {}))), parallelism__layout=layout, parallelism__tp=tp, **(WORK | more))


def held(layout: str, tp: int = 4, model: dict[str, Any] | None = None, **more: object) -> Any:
    asked = WORK | more
    return memory(fields(**(SIZES | (model or {}))), parallelism__layout=layout, parallelism__tp=tp, **asked)


def flops(priced: PricedLedger) -> Flops:
    """Of the whole stage, for one microbatch."""
    return computed(priced.ledger).stage(priced.ledger, priced.ledger.stage)


def refused(status: int, **asked: Any) -> str:
    with pytest.raises(CommcalcError) as told:
        laid(**asked)
    assert told.value.status == status
    return "\n".join(one.text() for one in told.value.problems)


def bytes_of(priced: PricedLedger, **wanted: object) -> list[tuple[str, str, int, int]]:
    """Pass, kind, ranks and payload of rows."""
    return [(one.direction, one.kind.value, one.group_size, one.payload_bytes) for one in rows(priced, **wanted)]


# Weights whole, sequences split.


def test_sequence_gathers_keys_and_values_alone() -> None:
    # K and V: T * N * H elements of 2 B = 1024 * 16 * 16 * 2 = 524,288 B.
    assert bytes_of(laid("sequence"), part="block") == [
        ("forward", "all_gather", 4, 524288), ("forward", "all_gather", 4, 524288),
        ("backward", "all_gather", 4, 524288), ("backward", "all_gather", 4, 524288),
        ("backward", "reduce_scatter", 4, 524288), ("backward", "reduce_scatter", 4, 524288),
    ]  # fmt: skip
    # With 4 KV heads a quarter of it, and nothing else moves with the width of the model.
    shared = rows(laid("sequence", model={"num_key_value_heads": 4}), part="block")
    assert {one.payload_bytes for one in shared} == {131072}


@pytest.mark.parametrize("tied", [False, True])
def test_sequence_sums_gradients_of_all_parameters_once_a_step(tied: bool) -> None:
    priced = laid("sequence", model={"tie_word_embeddings": tied})
    (row,) = rows(priced, direction="update")
    # A tied table has one gradient.
    elements = PARAMETERS - tied * 4096 * 256
    assert (row.kind, row.group_size, row.payload_bytes) == ("all_reduce", 4, 4 * elements)
    assert priced.ledger.times_in_step(row) == 1
    assert row.wire_bytes == 2 * 3 * elements * 4 // 4


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_sequence_shares_out_work_and_activations_and_no_parameters(tp: int) -> None:
    assert flops(laid("sequence", tp)).total * tp == flops(laid("none", 1)).total
    one, all_of_it = held("sequence", tp), held("none", 1)
    assert one.activations * tp == all_of_it.activations
    assert one.weights == all_of_it.weights == 2 * PARAMETERS
    assert one.optimizer == all_of_it.optimizer


def test_sequence_caches_the_tokens_it_has() -> None:
    prefill = {"workload__phase": "prefill"}
    # Keys and values of 4 sequences of 128 tokens in 3 layers: 2 * 4 * 128 * 3 * 256 * 2 B.
    assert held("sequence", **prefill).kv_cache == 1572864 == held("none", 1, **prefill).kv_cache // 4
    # The stream is gathered for the last positions alone: T * D * 2 B.
    assert bytes_of(laid("sequence", **prefill), part="head") == [("forward", "all_gather", 4, 524288)]


def test_sequence_says_what_it_is() -> None:
    said = "\n".join(laid("sequence").ledger.assumptions)
    assert "each of 4 tp ranks holds all parameters and has an equal run of every sequence" in said
    assert "summed in one call once a step" in said
    assert laid("sequence", 1).ledger.rows == ()


@pytest.mark.parametrize(
    ("asked", "status", "told"),
    [
        ({"tp": 3}, 3, "sequence_length 512 mod 3 = 2"),
        ({"workload__phase": "decode"}, 3, "sequence_length 1 mod 4 = 1"),
        ({"parallelism__sp": True}, 2, "contradict each other"),
        ({"parallelism__framework": "megatron"}, 3, "how megatron would run it is not described"),
        ({"parallelism__cp": 2}, 3, "layout sequence is not described with context parallelism"),
        ({"parallelism__predict_layers": 1}, 2, "predict_layers"),
    ],
)
def test_sequence_refuses(asked: dict[str, Any], status: int, told: str) -> None:
    assert told in refused(status, layout="sequence", **asked)
