"""Layouts of the TP axis beside Megatron's, by hand arithmetic and as their papers have them.

Sources: Li et al. 2021, arXiv:2105.13120, section 3 (sequences split in all of a layer, weights whole); Llama 3,
arXiv:2407.21783, section 3.3.2 (keys and values gathered for attention); Pope et al. 2022, arXiv:2211.05102, section
3.2.1 (1D), 3.2.2 (2D weight-stationary) and 3.2.3 (weight-gathered), whose B L are the tokens T, E the width D.
"""

from __future__ import annotations

from typing import Any

import pytest

from commcalc.accounting.compute import Flops, computed
from commcalc.accounting.pricing import PricedLedger
from commcalc.errors import CommcalcError
from conftest import Inside, ask, counts, fields, look, memory, rows

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


# Weights split over two axes.

# 64 heads of 4, so that they go into every grid here; F = 4 D, as in section 3 of Pope et al.
GRID = {"num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 4, "gated_mlp": False}


def moved(priced: PricedLedger, sublayer: str = "mlp") -> list[tuple[str, int, int]]:
    """Kind, ranks and payload of the gathers and scatters of a forward pass."""
    found = bytes_of(priced, part="block", sublayer=sublayer, direction="forward")
    return [one[1:] for one in found if one[1] != "all_reduce"]


@pytest.mark.parametrize(
    ("tp", "x", "y", "each"),
    [(16, 2, 8, 262144), (64, 4, 16, 131072)],  # T * D / x = 1024 * 256 / 2 elements of 2 B, F / y as many
)
def test_grid_moves_8_ble_over_root_n(tp: int, x: int, y: int, each: int) -> None:
    found = moved(laid("2d", tp, GRID))
    assert found == [
        ("all_gather", y, each), ("reduce_scatter", x, each), ("all_gather", x, each), ("reduce_scatter", y, each),
    ]  # fmt: skip
    # Pope et al., section 3.2.2: 8 B L E / sqrt(n); 1D, section 3.2.1: 2 B L E whatever n.
    root = {16: 4, 64: 8}[tp]
    assert sum(one[2] for one in found) == 8 * 1024 * 256 * 2 // root
    one_axis = moved(laid("megatron-sp", tp, GRID))
    assert sum(one[2] for one in one_axis) == 2 * 1024 * 256 * 2


@pytest.mark.parametrize(
    ("x", "payloads"),  # T * D / x and T * F / y elements of 2 B: 2 B L (E / X + F / YZ) in all
    [(1, [524288, 131072]), (2, [262144, 262144]), (4, [131072, 524288]), (8, [65536, 1048576])],
)
def test_grid_as_asked_for(x: int, payloads: list[int]) -> None:
    found = moved(laid("2d", 16, GRID, parallelism__tp_x=x))
    assert [one[2] for one in found] == (
        [payloads[0], payloads[0]] if x == 1 else [payloads[0], payloads[1], payloads[1], payloads[0]]
    )
    default = sum(one[2] for one in moved(laid("2d", 16, GRID)))
    assert default <= sum(one[2] for one in found) or x == 1  # a group of one moves nothing


def test_grid_of_palm_is_that_of_the_paper() -> None:
    # Section 3.2.2: X = sqrt(n) / 2, YZ = 2 sqrt(n); on 64 chips 4 and 16.
    palm = fields(
        name="palm", hidden_size=18432, intermediate_size=73728, num_attention_heads=64, num_key_value_heads=64,
        head_dim=256, num_hidden_layers=118, gated_mlp=False, vocab_size=256000, parallel_block=True,
    )  # fmt: skip
    sizes = ask(palm, parallelism__layout="2d", parallelism__tp=64).ledger.layout.mesh.sizes
    assert (sizes["tp_x"], sizes["tp_y"]) == (4, 16)


def test_grid_in_attention_and_norms() -> None:
    # 8 ranks: x 2, y 4. A: T * D / 2; Q, K, V and O: T * N * H / 4; Y: T * D / 2; all of 2 B. Norms: T of 4 B.
    found = bytes_of(laid("2d", 8, parallelism__tp_x=2), part="block", sublayer="attention", direction="forward")
    assert found == [
        ("forward", "all_reduce", 8, 4096), ("forward", "all_gather", 4, 262144),
        ("forward", "reduce_scatter", 2, 131072), ("forward", "reduce_scatter", 2, 131072),
        ("forward", "reduce_scatter", 2, 131072),
        ("forward", "all_gather", 2, 131072), ("forward", "reduce_scatter", 4, 262144),
    ]  # fmt: skip
    # A layer norm has two sums of a token.
    layered = rows(laid("2d", 8, {"norm": "layernorm"}), part="block", kind="all_reduce")
    assert {one.payload_bytes for one in layered} == {8192}


def test_grid_backward_is_the_transpose() -> None:
    back = counts(laid("2d", 8, parallelism__tp_x=2), part="block")
    # 4 inputs gathered and 7 outputs scattered: the other way round, and the inputs once more.
    assert back == {
        ("forward", "all_reduce"): 2, ("forward", "all_gather"): 4, ("forward", "reduce_scatter"): 7,
        ("backward", "all_reduce"): 2, ("backward", "all_gather"): 7 + 4, ("backward", "reduce_scatter"): 4,
    }  # fmt: skip
    kept = counts(laid("2d", 8, parallelism__tp_x=2, workload__regather=False), part="block", direction="backward")
    assert kept == {("backward", "all_reduce"): 2, ("backward", "all_gather"): 7, ("backward", "reduce_scatter"): 4}
    assert rows(laid("2d", 8), direction="update") == []  # no rank shares a parameter with another


@pytest.mark.parametrize(("tp", "x"), [(2, 1), (4, 2), (8, 2), (16, 4)])
def test_grid_shares_out_everything(tp: int, x: int) -> None:
    asked = {"parallelism__tp_x": x}
    assert flops(laid("2d", tp, **asked)).total * tp == flops(laid("none", 1)).total
    one, all_of_it = held("2d", tp, **asked), held("none", 1)
    assert one.weights * tp == all_of_it.weights == 2 * PARAMETERS
    assert one.optimizer * tp == all_of_it.optimizer
    assert one.block_activations * tp == all_of_it.block_activations


@pytest.mark.parametrize(
    ("kv", "x", "reduced", "weights"),
    [
        # 16 ranks and 4 KV heads. x 4, y 4: a KV head for each place along y, its sum whole on all of x.
        (4, 4, [("all_reduce", 4, 32768)] * 2, 4),
        # x 8, y 2: a KV head for each place along y and each second one along x.
        (4, 8, [("reduce_scatter", 2, 65536), ("all_reduce", 4, 32768)] * 2, 2),
        # x 2, y 8: two places along y hold the same weights.
        (4, 2, [("all_reduce", 2, 32768)] * 2, 4),
        (1, 4, [("all_reduce", 4, 32768)] * 2, 1),
    ],
)  # fmt: skip
def test_grid_shares_kv_heads(kv: int, x: int, reduced: list[tuple[str, int, int]], weights: int) -> None:
    model = {"num_key_value_heads": kv}
    asked: dict[str, Any] = {"parallelism__tp_x": x, "parallelism__kv": "replicate"}
    found = moved_of_keys(laid("2d", 16, model, **asked))
    assert found == reduced
    # Wk and Wv, 256 x kv * 16 each, lie split over x and over so many places along y.
    copied = held("2d", 16, model, **asked).weights - 2 * (PARAMETERS - 3 * 2 * 256 * (16 - kv) * 16) // 16
    assert copied == 2 * 3 * 2 * 256 * kv * 16 // (x * weights) - 2 * 3 * 2 * 256 * kv * 16 // 16
    # One KV head of each kind for every token of 4 sequences in 3 layers on each rank.
    cache = held("2d", 16, model, **asked | {"workload__phase": "prefill"}).kv_cache
    assert cache == 2 * 4 * 512 * 3 * 16 * 2


def moved_of_keys(priced: PricedLedger) -> list[tuple[str, int, int]]:
    found = rows(priced, part="block", direction="forward", op="qkv_proj")
    return [(one.kind.value, one.group_size, one.payload_bytes) for one in found if one.tensor[0] in "KV"]


def test_grid_in_decoding() -> None:
    priced = laid("2d", 8, parallelism__tp_x=2, workload__phase="decode")
    # Two tokens: T * D / 2 * 2 B = 512, T * F / 4 * 2 B = 1024.
    assert moved(priced) == [
        ("all_gather", 4, 512), ("reduce_scatter", 2, 1024), ("reduce_scatter", 2, 1024),
        ("all_gather", 2, 1024), ("reduce_scatter", 4, 512),
    ]  # fmt: skip
    # The vocabulary lies over all ranks, and is gathered to sample: 2 * 4096 * 2 B.
    assert bytes_of(priced, part="head", op="logits") == [("forward", "all_gather", 8, 16384)]


@pytest.mark.parametrize(
    ("asked", "status", "told"),
    [
        ({"tp": 3}, 3, "hidden_size 256 mod 3 = 1"),
        ({"tp": 32}, 3, "num_attention_heads 16 mod 32 = 16"),
        ({"tp": 8, "parallelism__tp_x": 3}, 3, "tp 8 mod tp_x 3 = 2"),
        ({"tp": 8, "model": {"num_key_value_heads": 4}}, 3, "keeps 2 copies of each; otherwise legal: 1, 2, 4"),
        ({"tp": 8, "model": {"num_key_value_heads": 4}, "parallelism__kv": "gather"}, 3, "by copies"),
        ({"tp": 16, "parallelism__kv": "replicate", "parallelism__tp_x": 2,
          "model": {"num_attention_heads": 48, "num_key_value_heads": 12}}, 3, "12 KV heads mod"),
        ({"model": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}}, 3,
         "experts of small on layout 2d"),
        ({"parallelism__framework": "vllm", "workload__phase": "prefill"}, 3, "how vllm would run it is not described"),
        ({"parallelism__cp": 2}, 3, "layout 2d is not described with context parallelism"),
        ({"layout": "megatron", "parallelism__tp_x": 2}, 2, "tp_x is an axis of layout 2d"),
    ],
)  # fmt: skip
def test_grid_refuses(asked: dict[str, Any], status: int, told: str) -> None:
    assert told in refused(status, **({"layout": "2d"} | asked))


# Weights stored in shards and gathered, sequences dealt out.

FOUR = {"workload__micro_batch_size": 4, "workload__sequence_length": 256}  # T = 1024 as before


def test_gathered_moves_matrices_and_no_token() -> None:
    found = bytes_of(laid("weight-gathered", **FOUR), part="block")
    # Wq, Wk, Wv, Wo of 256 * 256 elements, gate, up and down of 256 * 1024; of 2 B, gradients of 4 B.
    forward = [131072] * 4 + [524288] * 3
    assert [one[3] for one in found if one[0] == "forward"] == forward
    assert {one[:3] for one in found if one[0] == "forward"} == {("forward", "all_gather", 4)}
    back = [one for one in found if one[0] == "backward"]
    assert sorted(one[3] for one in back if one[1] == "all_gather") == forward
    assert sorted(one[3] for one in back if one[1] == "reduce_scatter") == [2 * one for one in forward]
    assert len(back) == 14
    # Four times the tokens: the same.
    more = bytes_of(laid("weight-gathered", **FOUR | {"workload__sequence_length": 1024}), part="block")
    assert more == found


def test_gathered_is_ahead_beyond_f_tokens() -> None:
    """Section 3.2.3: 2 E F elements of an MLP are gathered, where 1D moves 2 B L E: equal at B L = F tokens."""
    model = {"gated_mlp": False}
    for tokens, ahead in ((512, False), (1024, None), (2048, True)):
        asked = {"workload__micro_batch_size": 4, "workload__sequence_length": tokens // 4}
        gathered, one_axis = (
            sum(one[2] for one in moved(laid(layout, 4, model, **asked)))
            for layout in ("weight-gathered", "megatron-sp")
        )
        assert gathered == 2 * 256 * 1024 * 2
        assert one_axis == 2 * tokens * 256 * 2
        assert (gathered < one_axis, gathered == one_axis) == (ahead is True, ahead is None)


def test_gathered_ends_and_what_lies_whole() -> None:
    priced = laid("weight-gathered", **FOUR)
    table = 4096 * 256
    # The table is not read by its own gradient, the head's matrix is by that of the stream.
    assert bytes_of(priced, part="embedding") == [
        ("forward", "all_gather", 4, 2 * table), ("backward", "reduce_scatter", 4, 4 * table),
    ]  # fmt: skip
    assert bytes_of(priced, part="head") == [
        ("forward", "all_gather", 4, 2 * table), ("backward", "all_gather", 4, 2 * table),
        ("backward", "reduce_scatter", 4, 4 * table),
    ]  # fmt: skip
    # Seven norms of 256: 3 layers of 2, and the last.
    assert bytes_of(priced, direction="update") == [("update", "all_reduce", 4, 7 * 256 * 4)]


def test_gathered_with_full_recomputation() -> None:
    asked = FOUR | {"workload__recompute": "full"}
    assert counts(laid("weight-gathered", **asked), part="block") == {
        ("forward", "all_gather"): 7, ("recompute", "all_gather"): 7, ("backward", "reduce_scatter"): 7,
    }  # fmt: skip
    # Of a part alone nothing more: its matrices come again anyway.
    part = FOUR | {"workload__recompute": "selective", "workload__recompute_modules": "mlp"}
    assert counts(laid("weight-gathered", **part)) == counts(laid("weight-gathered", **FOUR))


@pytest.mark.parametrize("tp", [2, 4])
def test_gathered_shares_out_work_activations_and_matrices(tp: int) -> None:
    assert flops(laid("weight-gathered", tp, **FOUR)).total * tp == flops(laid("none", 1, **FOUR)).total
    one, all_of_it = held("weight-gathered", tp, **FOUR), held("none", 1, **FOUR)
    assert one.activations * tp == all_of_it.activations
    norms = 7 * 256
    assert one.weights == 2 * ((PARAMETERS - norms) // tp + norms)
    assert one.optimizer == 12 * ((PARAMETERS - norms) // tp + norms)
    # The largest matrix in use, 4096 * 256 of 2 B, beside its gradient whole, of 4 B.
    assert one.buffers == 4096 * 256 * (2 + 4)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_gathered_in_inference(phase: str) -> None:
    asked = FOUR | {"workload__phase": phase}
    priced = laid("weight-gathered", **asked)
    assert counts(priced) == {("forward", "all_gather"): 7 + 2}  # each rank samples its own sequences
    # Keys and values of one of four sequences with all of its heads: 2 * 256 tokens * 3 layers * 256 * 2 B.
    one = held("weight-gathered", **asked)
    assert one.kv_cache == 786432 == held("none", 1, **asked).kv_cache // 4
    # A matrix in use and another on its way.
    assert one.buffers == 2 * 4096 * 256 * 2


def test_gathered_reads_matrices_whole_in_decoding() -> None:
    asked = FOUR | {"workload__phase": "decode", "parallelism__tp": 4}
    gathered, alone = (
        look(fields(**SIZES), "h100-sxm", **(WORK | asked | {"parallelism__layout": layout})).step
        for layout in ("weight-gathered", "none")
    )
    assert gathered is not None
    assert alone is not None
    assert gathered.decode is not None
    assert alone.decode is not None
    assert gathered.decode.weights_s == pytest.approx(alone.decode.weights_s)


@pytest.mark.parametrize(
    ("asked", "status", "told"),
    [
        ({}, 3, "micro_batch_size 2 mod 4 = 2"),
        ({"tp": 3, "workload__micro_batch_size": 3, "workload__global_batch_size": 3}, 3, "hidden_size 256 mod 3 = 1"),
        (FOUR | {"parallelism__framework": "torchtitan"}, 3, "how torchtitan would run it is not described"),
        (FOUR | {"parallelism__cp": 2}, 3, "layout weight-gathered is not described with context parallelism"),
        (FOUR | {"model": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}}, 3,
         "experts of small"),
        (FOUR | {"parallelism__tp_x": 2}, 2, "tp_x is an axis of layout 2d"),
    ],
)  # fmt: skip
def test_gathered_refuses(asked: dict[str, Any], status: int, told: str) -> None:
    assert told in refused(status, **({"layout": "weight-gathered"} | asked))


@pytest.mark.parametrize("layout", ["sequence", "2d", "weight-gathered"])
def test_one_rank_moves_nothing(layout: str) -> None:
    priced = laid(layout, 1)
    assert priced.ledger.rows == ()
    assert flops(priced) == flops(laid("none", 1))
    assert held(layout, 1) == held("none", 1)


@pytest.mark.parametrize("layout", ["sequence", "weight-gathered"])
def test_degrees_of_layouts_that_split_no_head(inside: Inside, layout: str) -> None:
    asked = ("--layout", layout, "--seq", "4096", "--set", "workload.micro_batch_size=64", "--tp", "16", "--json")
    found = inside("degrees", "--model", "llama-3-8b", *asked).json["degrees"][0]
    assert found["legal"]
    assert found["kv_replication"] == 1
    assert found["vocab_rows_per_rank"] == found["padded_vocab_size"] == 128256
