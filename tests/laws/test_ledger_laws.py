"""Laws that every ledger keeps, whatever the model, the degree and the work."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from commcalc.accounting.pricing import PricedLedger
from conftest import ask, fields, rows


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes that any drawn degree divides, and every choice of an architecture."""
    tp = draw(st.sampled_from([2, 3, 4, 8]))
    parallel = draw(st.booleans())
    position = draw(st.sampled_from(["rope", "learned", "alibi", "none"]))
    heads = tp * draw(st.integers(1, 3))
    model = fields(
        hidden_size=draw(st.integers(1, 40)),
        num_hidden_layers=draw(st.integers(1, 4)),
        num_attention_heads=heads,
        num_key_value_heads=draw(st.sampled_from(sorted({tp, heads}))) if heads % tp == 0 else heads,
        head_dim=draw(st.integers(1, 16)),
        intermediate_size=tp * draw(st.integers(1, 9)),
        vocab_size=draw(st.integers(1, 500)),
        gated_mlp=draw(st.booleans()),
        norm=draw(st.sampled_from(["rmsnorm", "layernorm", "layernorm_no_bias"])),
        norm_placement="pre" if parallel else draw(st.sampled_from(["pre", "sandwich", "post"])),
        qk_norm=draw(st.sampled_from(["none", "head_dim", "per_head"])),
        attention_bias=draw(st.booleans()),
        attention_output_bias=draw(st.booleans()),
        mlp_bias=draw(st.booleans()),
        lm_head_bias=draw(st.booleans()),
        position_embedding=position,
        tie_word_embeddings=draw(st.booleans()),
        parallel_block=parallel,
        parallel_norms=draw(st.sampled_from([1, 2])) if parallel else 1,
        embedding_norm=position != "learned" and draw(st.booleans()),
    )
    return {
        "model": model,
        "parallelism__tp": tp,
        "workload__sequence_length": tp * draw(st.integers(1, 9)),
        "workload__micro_batch_size": draw(st.integers(1, 3)),
        "workload__dtype": draw(st.sampled_from(["bf16", "fp32", "fp8"])),
    }


def asked(question: dict[str, Any], **more: Any) -> PricedLedger:
    values = {**question, **more}
    return ask(values.pop("model"), "h100", **values)


@settings(max_examples=60, deadline=None)
@given(questions())
def test_sequence_parallelism_moves_the_same_bytes_in_a_block_but_for_the_re_gathers(
    question: dict[str, object],
) -> None:
    plain = asked(question)
    split = asked(question, parallelism__sp=True, workload__regather=False)
    again = asked(question, parallelism__sp=True)
    half = sum(row.wire_bytes for row in rows(again, part="block") if row.note.startswith("re-gather"))
    block = [found.totals["block"]["tp"].wire_bytes for found in (plain, split, again)]
    # One norm for both branches saves nothing in bytes; two norms gather twice forward and scatter twice backward.
    gathers = [row for row in rows(split, part="block", direction="forward") if row.kind == "all_gather"]
    reduces = rows(plain, part="block", direction="backward")
    assert sum(row.wire_bytes for row in gathers) * 2 == sum(row.wire_bytes for row in reduces)
    assert block[2] - block[1] == half
    forward = sum(row.wire_bytes for row in rows(plain, part="block", direction="forward"))
    scattered = [row for row in rows(split, part="block", direction="forward") if row.kind == "reduce_scatter"]
    assert forward == 2 * sum(row.wire_bytes for row in scattered)


@settings(max_examples=60, deadline=None)
@given(questions(), st.booleans())
def test_totals_are_sums_of_rows(question: dict[str, object], sp: bool) -> None:
    found = asked(question, parallelism__sp=sp)
    step = found.totals["step"]
    times = {id(row): found.ledger.times_in_step(row) for row in rows(found)}
    assert step["tp"].wire_bytes == sum(row.wire_bytes * times[id(row)] for row in rows(found))
    assert step["all"] == step["tp"]
    for entry in found.entries:
        assert entry.priced is not None
        assert entry.time_s >= max(entry.priced.cost.latency_s, entry.priced.cost.bandwidth_s)
        assert entry.row.wire_bytes <= 2 * entry.row.payload_bytes
        assert entry.row.payload_bytes == entry.row.payload.value(found.ledger.sizes)


@settings(max_examples=40, deadline=None)
@given(questions(), st.integers(2, 5))
def test_activation_payloads_are_linear_in_the_batch(question: dict[str, object], times: int) -> None:
    one = asked(question)
    size = int(str(question["workload__micro_batch_size"]))
    many = asked(question, workload__micro_batch_size=size * times)
    for row, larger in zip(rows(one), rows(many), strict=True):
        assert larger.payload_bytes == row.payload_bytes * (1 if row.per == "step" else times)


@settings(max_examples=40, deadline=None)
@given(questions())
def test_inference_is_the_forward_pass_alone(question: dict[str, object]) -> None:
    trained = [row.payload_bytes for row in rows(asked(question), part="block", direction="forward")]
    prefilled = asked(question, workload__phase="prefill")
    assert [row.payload_bytes for row in rows(prefilled, part="block")] == trained
    assert {row.direction for row in rows(prefilled)} == {"forward"}


@settings(max_examples=40, deadline=None)
@given(questions())
def test_full_recomputation_adds_the_forward_pass_again(question: dict[str, object]) -> None:
    plain, again = asked(question), asked(question, workload__recompute="full")
    forward = sum(row.wire_bytes for row in rows(plain, part="block", direction="forward"))
    assert again.totals["block"]["tp"].wire_bytes == plain.totals["block"]["tp"].wire_bytes + forward


@settings(max_examples=40, deadline=None)
@given(questions())
def test_a_faster_link_is_never_slower(question: dict[str, object]) -> None:
    slow = asked(question, bandwidth=["400GB/s"])  # both by formula
    fast = asked(question, bandwidth=["900GB/s"])
    assert fast.totals["step"]["tp"].time_s is not None
    assert slow.totals["step"]["tp"].time_s is not None
    assert fast.totals["step"]["tp"].time_s <= slow.totals["step"]["tp"].time_s * (1 + 1e-12)
    assert math.isclose(
        sum(e.time_s for e in fast.entries if e.row.per == "block"), fast.totals["block"]["tp"].time_s or 0
    )
