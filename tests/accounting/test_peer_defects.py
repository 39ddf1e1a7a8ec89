"""Mistakes that calculators of this field have shipped, each with the right answer here."""

from __future__ import annotations

import time

import pytest

from conftest import ask, counts, rows, run_commcalc

GPT3_PAYLOAD = 1 * 2048 * 12288 * 2


def gpt3(**values: object):
    return ask("gpt3-175b", parallelism__tp=8, workload__sequence_length=2048, **values)


def test_backward_communication_is_once_the_forward_not_twice() -> None:
    """llm-analysis multiplies the forward time by three; truth without recomputation is 2 AllReduces each way."""
    found = counts(gpt3(), part="block")
    assert found == {("forward", "all_reduce"): 2, ("backward", "all_reduce"): 2}


def test_the_embedding_under_sequence_parallelism_is_not_a_tp_th() -> None:
    """SimuMax sizes it 1/tp, 11,010,048 wire bytes; a ReduceScatter sends 44,040,192, an AllReduce 88,080,384."""
    rotary = gpt3(parallelism__sp=True, model__position_embedding="rope")
    (scatter,) = rows(rotary, part="embedding", direction="forward")
    assert (scatter.kind.value, scatter.wire_bytes) == ("reduce_scatter", 44_040_192)
    (learned,) = rows(gpt3(parallelism__sp=True), part="embedding", direction="forward")
    assert (learned.kind.value, learned.wire_bytes) == ("all_reduce", 88_080_384)


def test_sequence_parallelism_keeps_its_backward_collectives() -> None:
    """aicb writes NONE for them, with or without measured compute times."""
    assert counts(gpt3(parallelism__sp=True), part="block")["backward", "reduce_scatter"] == 2


def test_the_loss_has_three_allreduces() -> None:
    """SimuMax counts one."""
    assert [row.payload_bytes for row in rows(gpt3(), sublayer="loss")] == [8192] * 3


def test_layouts_are_compared_in_wire_bytes() -> None:
    """calculon sums buffers, where sequence parallelism looks twice as large at equal traffic."""
    plain, split = gpt3(), gpt3(parallelism__sp=True, workload__regather=False)
    assert plain.totals["block"]["tp"].wire_bytes == split.totals["block"]["tp"].wire_bytes
    assert 2 * plain.totals["block"]["tp"].payload_bytes == split.totals["block"]["tp"].payload_bytes


def test_a_gigabyte_per_second_is_ten_to_the_ninth() -> None:
    """GenZ and SimuMax take GB/s for GiB/s: 7.4 % off."""
    priced = gpt3(bandwidth=["300GB/s"])
    block = next(entry for entry in priced.entries if entry.row.per == "block")
    assert block.time_s == pytest.approx(2 * 7 / 8 * GPT3_PAYLOAD / 300e9, rel=1e-12)


def test_a_multi_level_group_is_not_priced_as_if_it_stayed_inside() -> None:
    """llm-analysis keeps any TP on NVLink; another simulator makes it free."""
    inside = ask("gpt3-175b", "h20", parallelism__tp=8)
    across = ask("gpt3-175b", "h20", parallelism__tp=16)
    assert (across.totals["block"]["tp"].time_s or 0) > 2 * (inside.totals["block"]["tp"].time_s or 1)
    assert [warning.code for warning in across.warnings] == ["tp-crosses-level"]


@pytest.mark.parametrize("tp", ["7", "200"])
def test_degrees_that_heads_do_not_divide_by_have_no_answer(tp: str) -> None:
    """Four of six calculators answer for 96 heads on 7 devices."""
    ran = run_commcalc("ledger", "--model", "gpt3-175b", "--tp", tp)
    assert (ran.status, ran.out) == (3, "")
    assert f"num_attention_heads 96 mod {tp} = {96 % int(tp)}" in ran.err
    assert "1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96" in ran.err


@pytest.mark.parametrize("option", ["--tp", "--micro-batch", "--seq", "--dp"])
@pytest.mark.parametrize("value", ["-1", "0"])
def test_negative_and_zero_end_at_once(option: str, value: str) -> None:
    """llm-analysis never returns for them; others divide by zero."""
    start = time.monotonic()
    ran = run_commcalc("ledger", option, value)
    assert (ran.status, f"error: '{value}' is not above zero" in ran.err) == (2, True)
    assert time.monotonic() - start < 10


def test_the_right_llama() -> None:
    """GenZ's llama-3.1-70b has Llama 2's vocabulary."""
    assert ask("llama-3-70b").ledger.model.vocab_size == 128_256
