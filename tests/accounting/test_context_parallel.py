"""Context parallelism: what attention moves in a block by ring, gather and exchange of heads, by hand arithmetic.

Sources: Ring Attention, Liu et al. 2023, arXiv:2310.01889, section 3 (keys and values go round, n - 1 hops);
DeepSpeed-Ulysses, Jacobs et al. 2023, arXiv:2309.14509, section 3.2 (N h / P of each of Q, K, V and the output);
Llama 3, arXiv:2407.21783, section 3.3.2 (keys and values gathered); Transformer Engine
attention/dot_product_attention/context_parallel.py (backward: keys and values again, and their gradients; latent
attention sends keys with the rotary part joined to every head); tests/data/goldens_groups.yaml,
user_reports_groups.yaml.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from commcalc.accounting.pricing import PricedLedger
from commcalc.accounting.rows import Row
from commcalc.errors import CommcalcError, IllegalDegree
from conftest import DATA, Inside, ask, fields, rows

GOLDENS = {case["id"]: case for case in yaml.safe_load((DATA / "goldens_groups.yaml").read_text())["cases"]}
REPORTS = {entry["id"]: entry for entry in yaml.safe_load((DATA / "user_reports_groups.yaml").read_text())["entries"]}
METHODS = ("ring", "all_gather", "ulysses")


def golden(ident: str) -> dict[str, Any]:
    return {value["name"]: value["recomputed"] for value in GOLDENS[ident]["expected"]}


def split(model: str, how: str, cp: int, tokens: int, **more: object) -> PricedLedger:
    return ask(
        model, parallelism__cp=cp, parallelism__cp_comm=how, workload__sequence_length=tokens,
        parallelism__vocab_padding="none", **more,
    )  # fmt: skip


def of_attention(priced: PricedLedger, **wanted: object) -> list[Row]:
    """What the context group exchanges inside of blocks."""
    return [row for row in rows(priced, group="cp", **wanted) if row.per == "block"]


def calls(priced: PricedLedger, part: str) -> dict[str, Counter[tuple[str, int]]]:
    """Of one block and pass: how many calls of each kind and payload."""
    found: dict[str, Counter[tuple[str, int]]] = {"forward": Counter(), "backward": Counter()}
    for row in of_attention(priced, part=part):
        found[row.direction][row.kind.value, row.payload_bytes] += row.calls
    return found


def wire(priced: PricedLedger, direction: str) -> int:
    return sum(row.wire_bytes * row.calls for row in of_attention(priced, direction=direction))


# Heads and widths of keys, values and queries: GQA 8 of 128, 32 query heads; MLA 128 heads, keys 128 + 64 wide.
GQA = ("llama-3-8b", "block", {"kv": 8, "k": 128, "v": 128, "q": 32})
MLA = ("deepseek-v3", "moe", {"kv": 128, "k": 192, "v": 128, "q": 128})
MLA_DENSE = ("deepseek-v3", "dense", MLA[2])
MODELS = pytest.mark.parametrize(("model", "part", "width"), [GQA, MLA, MLA_DENSE], ids=["gqa", "mla", "mla-dense"])


@MODELS
@pytest.mark.parametrize("cp", [2, 8])
def test_a_ring_passes_keys_with_values_on(model: str, part: str, width: dict[str, int], cp: int) -> None:
    """n - 1 hops of one rank's keys and values in bf16; backward once more, and as many of their gradients."""
    tokens = 16384
    hop = tokens // cp * width["kv"] * (width["k"] + width["v"]) * 2
    assert calls(split(model, "ring", cp, tokens), part) == {
        "forward": Counter({("send_recv", hop): cp - 1}),
        "backward": Counter({("send_recv", hop): 2 * (cp - 1)}),
    }


@MODELS
@pytest.mark.parametrize("cp", [2, 8])
def test_keys_and_values_are_gathered_and_their_gradients_scattered(
    model: str, part: str, width: dict[str, int], cp: int
) -> None:
    """The payload is that of all tokens; what was gathered is not kept, so the backward pass gathers it again."""
    tokens = 16384
    keys, values = (tokens * width["kv"] * width[which] * 2 for which in "kv")
    want = {"forward": Counter[tuple[str, int]](), "backward": Counter[tuple[str, int]]()}
    for payload in (keys, values):
        want["forward"]["all_gather", payload] += 1
        want["backward"]["all_gather", payload] += 1
        want["backward"]["reduce_scatter", payload] += 1
    assert calls(split(model, "all_gather", cp, tokens), part) == want


@MODELS
@pytest.mark.parametrize("cp", [2, 8])
def test_heads_are_exchanged_for_tokens(model: str, part: str, width: dict[str, int], cp: int) -> None:
    """Four AllToAlls forward of what one rank holds: Q and K are as wide as keys, V and the output as values; their
    gradients take the same way back."""
    tokens = 16384
    each: Counter[tuple[str, int]] = Counter()
    for heads, one in (("q", "k"), ("kv", "k"), ("kv", "v"), ("q", "v")):
        each["all_to_all", tokens // cp * width[heads] * width[one] * 2] += 1
    assert each.total() == 4
    assert calls(split(model, "ulysses", cp, tokens), part) == {"forward": each, "backward": each}


def test_one_block_of_llama_by_numbers() -> None:
    """128 Ki tokens on 8 ranks, 16384 x 8 heads x 128 x 2 bytes = 32 MiB of keys each."""
    mib = 2**20
    ring = split("llama-3-8b", "ring", 8, 131072)
    gathered = split("llama-3-8b", "all_gather", 8, 131072)
    exchanged = split("llama-3-8b", "ulysses", 8, 131072)
    assert (wire(ring, "forward"), wire(ring, "backward")) == (7 * 64 * mib, 14 * 64 * mib)
    assert (wire(gathered, "forward"), wire(gathered, "backward")) == (2 * 7 * 32 * mib, 4 * 7 * 32 * mib)
    # Q and O are 128 MiB, K and V 32 MiB; 7 of 8 parts leave the rank.
    assert wire(exchanged, "forward") == wire(exchanged, "backward") == 2 * (128 + 32) * mib * 7 // 8


def test_full_recomputation_looks_at_the_others_keys_again() -> None:
    for how in METHODS:
        priced = split("llama-3-8b", how, 4, 8192, workload__recompute="full")
        again = [(row.kind, row.payload_bytes, row.calls) for row in of_attention(priced, direction="recompute")]
        assert again == [(row.kind, row.payload_bytes, row.calls) for row in of_attention(priced, direction="forward")]
        assert again


@pytest.mark.parametrize("model", ["llama-3-8b", "deepseek-v3"])
def test_nothing_but_keys_and_values_goes_round_a_ring(model: str) -> None:
    """Ring Attention, section 3. A prompt of 8192 tokens: the state of which logits are made is no part of a ring."""
    priced = split(model, "ring", 4, 8192, workload__phase="prefill")
    sent = rows(priced, group="cp", kind="send_recv")
    assert sent
    assert {row.sublayer for row in sent} == {"attention"}
    assert {row.direction for row in sent} == {"forward"}


def test_sequences_that_cannot_be_split() -> None:
    """Megatron-LM training/arguments.py: "seq-length should be a multiple of 2 * context-parallel-size"; a decoding
    step has one token."""
    with pytest.raises(IllegalDegree, match="4092 tokens of a sequence mod 8 = 4"):
        split("llama-3-8b", "ring", 4, 4092, parallelism__framework="megatron")
    assert split("llama-3-8b", "ring", 4, 4096, parallelism__framework="megatron")
    assert split("llama-3-8b", "ring", 4, 4092)
    with pytest.raises(IllegalDegree, match="4091 tokens of a sequence mod 4 = 3"):
        split("llama-3-8b", "ring", 4, 4091)
    with pytest.raises(IllegalDegree, match="one token"):
        split("llama-3-8b", "ring", 4, 4096, workload__phase="decode")


# Published answers


def test_exchanged_heads_against_megatrons_sequence_parallelism() -> None:
    """CP-01, DeepSpeed-Ulysses: 4 N h / P elements against 4 N h; N = 131072, h = 8192, P = 8."""
    want = golden("CP-01")
    model = fields(hidden_size=8192, num_hidden_layers=1, num_attention_heads=64, intermediate_size=28672)
    sent = [row.payload_bytes // 2 for row in of_attention(split(model, "ulysses", 8, 131072), direction="forward")]
    assert (sum(sent[:3]), sent[3]) == (want["qkv"], want["out"])
    assert sum(sent) == want["ulysses"]
    megatron = ask(model, parallelism__tp=8, parallelism__sp=True, workload__sequence_length=131072)
    gathered = sum(row.payload_bytes // 2 for row in rows(megatron, part="block", direction="forward"))
    assert gathered == want["megatron_sp"]
    assert gathered == want["ratio"] * sum(sent)


def test_tokens_of_a_rank_and_ranks_of_a_job() -> None:
    """CP-06, Megatron-LM docs/user-guide/features/context_parallel.md: 8 Ki tokens at cp 2; tp 2, cp 2, pp 4, dp 8."""
    want = golden("CP-06")
    priced = split("llama-3-8b", "ring", 2, 8192, parallelism__tp=2, parallelism__pp=4, parallelism__dp=8)
    assert priced.ledger.layout.mesh.devices == want["gpus"]
    # 4 of 8 KV heads on each of 2 TP ranks.
    assert {row.payload_bytes for row in of_attention(priced)} == {want["tokens"] * 4 * (128 + 128) * 2}
    # Without sequence parallelism every TP rank sends and reduces all of its tokens.
    assert {row.payload_bytes for row in rows(priced, group="pp")} == {want["tokens"] * 4096 * 2}
    assert {row.payload_bytes for row in rows(priced, group="tp", part="block")} == {want["tokens"] * 4096 * 2}


# What people reported


def test_only_the_models_own_kv_heads_go_round() -> None:
    """UR-096: 2 x 16384 x 8 x 128 x 2 bytes a hop, 7 hops; repeated to 32 heads it would be 4 times as much."""
    want = REPORTS["UR-096"]["expect"]
    (row,) = of_attention(split("llama-3-8b", "ring", 8, 131072), direction="forward")
    assert (row.payload_bytes, row.wire_bytes * row.calls) == (want["bytes_per_hop"], want["send_bytes_per_rank"])
    repeated = split("llama-3-8b", "ring", 8, 131072, model__num_key_value_heads=32)
    assert wire(repeated, "forward") == want["if_repeated"]


def test_exchanged_heads_send_p_times_less_than_tensor_parallelism() -> None:
    """UR-097: N = 65536, h = 8192, P = 8."""
    want = REPORTS["UR-097"]["expect"]
    model = fields(hidden_size=8192, num_hidden_layers=1, num_attention_heads=64, head_dim=128, intermediate_size=8192)
    sent = wire(split(model, "ulysses", 8, 65536), "forward")
    tensor = ask(model, parallelism__tp=8, parallelism__sp=True, workload__sequence_length=65536)
    moved = sum(row.wire_bytes * row.calls for row in rows(tensor, part="block", direction="forward"))
    assert {"send_bytes_per_rank": sent, "tp_sp_bytes": moved, "ratio": moved / sent} == want


def legal(model: str, degrees: range, **more: object) -> list[int]:
    found = []
    for cp in degrees:
        try:
            split(model, "ulysses", cp, 2**6 * 3**2 * 5 * 7 * cp, **more)
        except CommcalcError:
            continue
        found.append(cp)
    return found


def test_degrees_at_which_heads_can_be_exchanged() -> None:
    """UR-014, verl: heads mod cp = 0, and KV heads mod cp = 0 or cp mod KV heads = 0; 5, 10 and 20 divide 40 query
    heads but share 8 KV heads out unevenly."""
    model = fields(
        hidden_size=5120, num_hidden_layers=1, num_attention_heads=40, num_key_value_heads=8, head_dim=128,
        intermediate_size=13824,
    )  # fmt: skip
    assert legal(model, range(1, 41), parallelism__kv="replicate") == REPORTS["UR-014"]["expect"]["valid_degree"]
    # At 40 each of the 8 KV heads goes to 5 ranks: as many bytes as 40 KV heads.
    tokens = 40 * 1024
    sent = [
        row.payload_bytes
        for row in of_attention(split(model, "ulysses", 40, tokens, parallelism__kv="replicate"), direction="forward")
    ]
    assert sent == [tokens // 40 * 40 * 128 * 2] * 4


def test_fewer_kv_heads_than_ranks_are_refused_or_repeated(inside: Inside) -> None:
    """UR-015: 2 KV heads at cp 4 leave two ranks without any, unless each is repeated twice before the exchange."""
    want = REPORTS["UR-015"]["expect"]
    sizes = {"hidden_size": 2048, "num_hidden_layers": 1, "num_attention_heads": 16, "intermediate_size": 8192}
    model = fields(**sizes, num_key_value_heads=2)
    repeated = split(model, "ulysses", 4, 4096, parallelism__kv="replicate")
    queries, keys, values, out = [row.payload_bytes for row in of_attention(repeated, direction="forward")]
    assert queries == out == 1024 * 16 * 128 * 2
    assert keys == values == want["with_repeat"]["kv_repeat"] * 1024 * 2 * 128 * 2
    assert of_attention(repeated, direction="backward") != []
    command = ["ledger", "--model", model, "--cp", "4", "--cp-comm", "ulysses", "--seq", "4096"]
    assert inside(*command, "--kv", "replicate").status == 0
    refused = inside(*command, "--kv", "refuse")
    assert refused.status == want["exit"]
    assert "2 KV heads" in refused.err


def test_ninety_six_heads() -> None:
    """UR-099: 96 heads and 8 KV heads go at 4 ranks; at 16 only with KV heads repeated."""
    assert REPORTS["UR-099"]["expect"] == {"outcome": "ok", "degree_16": "refuse unless kv repeat"}
    model = fields(
        hidden_size=12288, num_hidden_layers=1, num_attention_heads=96, num_key_value_heads=8, head_dim=128,
        intermediate_size=1024,
    )  # fmt: skip
    exchanged = split(model, "ulysses", 4, 65536)
    # Bytes are shown: (96 + 8 + 8 + 96) heads of 16384 tokens, 3 of 4 parts leave.
    assert wire(exchanged, "forward") == 208 * 128 * 2 * 16384 * 3 // 4
    assert split(model, "ulysses", 16, 65536, parallelism__kv="replicate")
    with pytest.raises(IllegalDegree, match="8 KV heads"):
        split(model, "ulysses", 16, 65536)


# Laws


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    cp, tp = draw(st.integers(2, 5)), draw(st.sampled_from([1, 2]))
    kv = cp * tp * draw(st.integers(1, 2))
    return {
        "model": fields(
            hidden_size=draw(st.integers(1, 30)), num_hidden_layers=draw(st.integers(1, 3)),
            num_attention_heads=kv * draw(st.integers(1, 3)), num_key_value_heads=kv,
            head_dim=draw(st.integers(1, 9)), intermediate_size=2 * draw(st.integers(1, 9)),
            vocab_size=2 * draw(st.integers(1, 50)),
        ),
        "cp": cp,
        "tokens": cp * tp * draw(st.integers(1, 9)),
        "parallelism__tp": tp,
        "parallelism__sp": tp > 1 and draw(st.booleans()),
    }  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(questions())
def test_a_ring_moves_what_a_gather_moves(question: dict[str, Any]) -> None:
    """n - 1 hops of a shard are (n - 1)/n of the whole, forward; backward twice as much as forward."""
    ring, gathered = split(**question, how="ring"), split(**question, how="all_gather")
    assert wire(ring, "forward") > 0
    for direction in ("forward", "backward"):
        assert wire(ring, direction) == wire(gathered, direction)
    assert wire(ring, "backward") == 2 * wire(ring, "forward")


@settings(max_examples=60, deadline=None)
@given(questions(), st.sampled_from(METHODS))
def test_ranks_of_a_context_group_hold_the_same_parameters(question: dict[str, Any], how: str) -> None:
    """Their gradients are summed over data and context ranks at once; what TP moves is 1/cp of it."""
    cp = question["cp"]
    alone = ask(
        question["model"], parallelism__tp=question["parallelism__tp"], parallelism__sp=question["parallelism__sp"],
        parallelism__dp=2, parallelism__vocab_padding="none", workload__sequence_length=question["tokens"],
        workload__global_batch_size=2,
    )  # fmt: skip
    both = split(**question, how=how, parallelism__dp=2, workload__global_batch_size=2)
    (before,), (after,) = rows(alone, op="gradients"), rows(both, op="gradients")
    assert (before.payload_bytes, before.group_size, after.group_size) == (after.payload_bytes, 2, 2 * cp)

    def tensor(priced: PricedLedger) -> list[tuple[object, ...]]:
        return [
            (row.part, row.direction, row.op, row.kind, row.payload_bytes)
            for row in rows(priced, group="tp")
            if row.per != "step"
        ]

    assert tensor(alone) == [(*row[:4], cp * row[4]) for row in tensor(both)]
    sharded = split(**question, how=how, parallelism__dp=2, parallelism__zero=3, workload__global_batch_size=2)
    # FSDP shards over both too (torchtitan parallel_dims.py, dp_shard_cp).
    assert {row.group_size for row in rows(sharded, op="gradients")} == {2 * cp}


@settings(max_examples=40, deadline=None)
@given(questions(), st.sampled_from(METHODS))
def test_one_rank_exchanges_nothing(question: dict[str, Any], how: str) -> None:
    assert rows(split(**{**question, "cp": 1}, how=how), group="cp") == []
