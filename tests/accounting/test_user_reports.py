"""Questions and faults that people reported in public (tests/data/user_reports.yaml), each asked of commcalc."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
import yaml

from commcalc.accounting.pricing import PricedLedger
from commcalc.accounting.products import Objective, Pricing
from commcalc.accounting.resharding import reshardings
from commcalc.accounting.tensors import TensorLine, tensor_lines
from commcalc.algebra.collective import Kind
from commcalc.algebra.expression import parse_expression
from commcalc.algebra.mesh import Mesh
from commcalc.algebra.problem import bind
from commcalc.network.fabric import Fabric
from commcalc.units import format_binary
from conftest import DATA, Ran, ask, fields, rows, run_commcalc


class Entry(NamedTuple):
    """An entry of the data file: what was given, the values that are right, and how near a decimal must come."""

    given: dict[str, Any]
    want: dict[str, Any]
    tolerance: float


# What commcalc does not answer yet, by entry. All other values are asked for.
LATER = {
    # dispatch and combine of routed tokens: no ledger of expert parallelism
    "UR-053": ("all_to_all", "total", "naive_total"),
    # a limit that a measured rate must keep, with an exit status of its own: no assertions on times
    "UR-071": ("exit",),
    # the switch from one-shot to two-shot at a size that a library was given: commcalc takes the least time
    "UR-073": ("algo", "one_shot_below"),
    # one-shot between two devices alone: a level offers an algorithm to groups of any size
    "UR-135": ("at_n2",),
}
# Values in words: the tests of these entries assert what the words describe.
IN_WORDS = {"UR-126": ("warn",), "UR-137": ("stdout",)}


def _read() -> dict[str, Entry]:
    entries = yaml.safe_load((DATA / "user_reports.yaml").read_text(encoding="utf-8"))["entries"]
    return {
        entry["id"]: Entry(
            entry["inputs"],
            {name: value for name, value in entry["expect"].items() if name != "tol_pct"},
            entry["expect"].get("tol_pct", 1) / 100,
        )
        for entry in entries
    }


ENTRIES = _read()
COVERED: set[str] = set()

LLAMA_70B = {
    "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
    "intermediate_size": 28672,
}  # fmt: skip


def report(ident: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Hand the test the entry ``ident``, with only the values that commcalc can answer."""

    def give(test: Callable[..., None]) -> Callable[..., None]:
        COVERED.add(ident)
        apart = (*LATER.get(ident, ()), *IN_WORDS.get(ident, ()))
        entry = ENTRIES[ident]
        entry = entry._replace(want={name: value for name, value in entry.want.items() if name not in apart})
        return pytest.mark.parametrize("entry", [entry], ids=[ident])(test)

    return give


def agree(entry: Entry, **got: object) -> None:
    """Every value of the entry was asked for and came out: decimals within its tolerance, all else exactly."""
    _compare(entry.want, got, entry.tolerance)


def _compare(want: Mapping[str, Any], got: Mapping[str, Any], tolerance: float) -> None:
    assert got.keys() == want.keys()
    for name, right in want.items():
        if isinstance(right, dict):
            _compare(right, got[name], tolerance)
        elif isinstance(right, float):
            assert math.isclose(got[name], right, rel_tol=tolerance), f"{name}: {got[name]} is not near {right}"
        else:
            assert got[name] == right, f"{name}: {got[name]!r} is not {right!r}"


class Sum(NamedTuple):
    """What some rows add up to in a step of one device."""

    calls: int
    payload_bytes: int
    wire_bytes: int
    time_s: float
    latency_s: float
    bandwidth_s: float


def in_step(priced: PricedLedger, **wanted: object) -> Sum:
    """The sum over the rows whose fields have these values."""
    chosen = [
        (entry, priced.ledger.times_in_step(entry.row))
        for entry in priced.entries
        if all(getattr(entry.row, name) == value for name, value in wanted.items())
    ]
    costs = [(entry.priced.cost, times) for entry, times in chosen if entry.priced]
    return Sum(
        sum(times for _, times in chosen),
        sum(entry.row.payload_bytes * times for entry, times in chosen),
        sum(entry.row.wire_bytes * times for entry, times in chosen),
        sum(cost.time_s * times for cost, times in costs),
        sum(cost.latency_s * times for cost, times in costs),
        sum(cost.bandwidth_s * times for cost, times in costs),
    )


def dense(hidden: int, layers: int, **more: object) -> str:
    """A model of which only the size of a token and the number of layers matter."""
    return fields(hidden_size=hidden, num_hidden_layers=layers, **more)


def decode(model: str, tp: int, tokens: int = 1, **more: Any) -> PricedLedger:
    """One token for each of ``tokens`` sequences."""
    return ask(model, parallelism__tp=tp, workload__phase="decode", workload__micro_batch_size=tokens, **more)


def prefill(model: str, tp: int, tokens: int, **more: Any) -> PricedLedger:
    """A prompt of ``tokens``."""
    return ask(model, parallelism__tp=tp, workload__phase="prefill", workload__sequence_length=tokens, **more)


def train(model: str, tp: int, tokens: int, **more: Any) -> PricedLedger:
    """A training step; a microbatch is one sequence of ``tokens``."""
    return ask(model, parallelism__tp=tp, workload__sequence_length=tokens, **more)


def message(priced: PricedLedger) -> int:
    """The payload that all collectives of a block share."""
    (payload,) = {row.payload_bytes for row in rows(priced, part="block")}
    return payload


def logits(vocab: int, tp: int, tokens: int, dtype: str) -> Sum:
    """The gather of whole logits for ``tokens`` positions."""
    priced = decode(
        dense(4096, 1, vocab_size=vocab), tp, tokens, parallelism__vocab_padding="none", workload__dtype=dtype
    )
    return in_step(priced, op="logits", kind="all_gather")


def tensor(priced: PricedLedger, name: str) -> TensorLine:
    """The activation ``name`` as it is made."""
    lines = tensor_lines(priced.ledger)
    return next(line for line in lines if line.direction == "forward" and line.tensor.startswith(f"{name}["))


def per_step(seconds: float, n: int) -> list[str]:
    """A fixed cost of an AllReduce as the latency of each of its steps on a ring of ``n``."""
    return [f"{seconds / (2 * (n - 1)):.12g}s"]


def degrees(model: Mapping[str, object], tp: object, *options: str) -> Ran:
    """The verdict on one degree, or on several, separated by commas."""
    return run_commcalc("degrees", "--model", fields(**model), "--tp", str(tp), *options, "--json")


def ledger(model: str, tp: int, *options: str) -> Ran:
    """The ledger as a person asks for it."""
    return run_commcalc("ledger", "--model", model, "--tp", str(tp), *options)


def refused(model: str, tp: int, *options: str) -> Ran:
    """The same where there is no legal answer: status 3 and nothing on stdout."""
    ran = ledger(model, tp, *options)
    assert (ran.status, ran.out) == (3, "")
    return ran


def verdict(ran: Ran) -> dict[str, object]:
    """Outcome and exit status of a question about degrees."""
    legal = any(degree["legal"] for degree in ran.json["degrees"])
    return {"outcome": "ok" if legal else "refuse", "exit": ran.status}


def legal_by(text: str, rule: str) -> list[int]:
    """The degrees that an error lists as legal by one rule."""
    (listed,) = re.findall(rf"^  legal by {rule}: (.*)$", text, re.MULTILINE)
    return [int(degree) for degree in listed.split(", ")]


@report("UR-001")
def test_40_heads_on_3_devices(entry: Entry) -> None:
    heads, tp = entry.given["heads"], entry.given["tp"]
    ran = refused("llama-2-13b", tp)
    said = re.findall(r"\d+", ran.err.partition("\n")[0])
    agree(
        entry,
        **verdict(degrees({"num_attention_heads": heads}, tp)),
        must_say=[word for word in (str(heads), str(tp)) if word in said],
        must_list_valid_tp=legal_by(ran.err, "heads"),
    )


@report("UR-002")
def test_52_heads_padded_for_3_devices(entry: Entry) -> None:
    heads, tp = entry.given["heads"], entry.given["tp"]
    ran = refused(fields(num_attention_heads=heads, num_hidden_layers=60), tp)
    padded, extra = re.findall(r"pad num_attention_heads to (\d+) \(\+([\d.]+) %\)", ran.err)[0]
    agree(
        entry,
        **verdict(degrees({"num_attention_heads": heads}, tp)),
        valid_tp=legal_by(ran.err, "heads"),
        padded_heads=int(padded),
        pad_overhead_pct=float(extra),
    )


@report("UR-003")
def test_52_heads_on_a_node_of_8(entry: Entry) -> None:
    tp = entry.given["tp"]
    ran = degrees({"num_attention_heads": entry.given["heads"]}, tp)
    agree(entry, **verdict(ran), valid_tp_le_8=[degree for degree in ran.json["legal"] if degree <= tp])


@report("UR-007")
def test_a_vocabulary_that_splits_on_8_and_16_but_not_on_24(entry: Entry) -> None:
    def asked(tp: int) -> Ran:
        return degrees({"vocab_size": entry.given["vocab"]}, tp, "--vocab-padding", "vllm")

    ran = asked(entry.given["tp"])
    (degree,) = ran.json["degrees"]
    agree(
        entry,
        **verdict(ran),
        padded_vocab=degree["padded_vocab_size"],
        rows_per_rank=degree["vocab_rows_per_rank"],
        tp8=verdict(asked(8))["outcome"],
        tp16=verdict(asked(16))["outcome"],
    )


@report("UR-008")
def test_8_kv_heads_on_16_devices(entry: Entry) -> None:
    heads = {"num_attention_heads": entry.given["heads"], "num_key_value_heads": entry.given["kv_heads"]}
    tp = entry.given["tp"]
    ran = degrees(heads, tp, "--phase", "decode")
    (degree,) = ran.json["degrees"]
    priced = decode(fields(**LLAMA_70B | heads), tp)
    (warning,) = priced.warnings
    agree(
        entry,
        outcome=verdict(ran)["outcome"],
        kv_replication=degree["kv_replication"],
        kv_heads_per_rank=tensor(priced, "K").local_heads,
        allreduce_bytes=message(priced),
        allreduces=in_step(priced, kind="all_reduce").calls,
        warn=warning.code.replace("-", " "),
    )


@report("UR-009")
def test_half_a_kv_head_is_refused_before_anything_runs(entry: Entry) -> None:
    sizes = {
        "num_attention_heads": 32, "num_key_value_heads": entry.given["kv_heads"],
        "head_dim": entry.given["head_dim"], "num_hidden_layers": 48,
    }  # fmt: skip
    tp = entry.given["tp"]
    ran = refused(fields(**sizes), tp, "--phase", "decode", "--kv", "refuse")
    (rows_of_k,) = re.findall(r"\((\d+) rows of K on a rank\)", ran.err)
    (copies,) = re.findall(r"--kv replicate keeps (\d+) copies of each", ran.err)
    agree(
        entry,
        **verdict(degrees(sizes, tp, "--kv", "refuse")),
        k_rows_per_rank=int(rows_of_k),
        hint=f"replicate x{copies}",
    )
    assert degrees(sizes, entry.given["kv_heads"], "--kv", "refuse").status == 0


@report("UR-010")
def test_a_shard_narrower_than_its_scale_block(entry: Entry) -> None:
    given = entry.given
    columns = given["shard"] * given["tp"]
    ran = degrees({"intermediate_size": columns, "quantization_group_size": given["block_n"]}, given["tp"])
    (reason,) = ran.json["degrees"][0]["reasons"]
    (shard,) = re.findall(r"(\d+) columns on a rank", reason)
    agree(entry, **verdict(ran), shard=int(shard), valid_tp=ran.json["legal"])


@report("UR-011")
def test_an_odd_number_of_quantisation_groups(entry: Entry) -> None:
    given = entry.given

    def asked(columns: int) -> Ran:
        sizes = {"intermediate_size": columns, "quantization_group_size": given["group"]}
        return degrees(sizes, ",".join(map(str, given["tp"])))

    ran = asked(given["ffn"])
    found = ran.json["degrees"]
    (groups,) = {re.search(r"are (\d+) groups of", degree["reasons"][0])[1] for degree in found}
    (padded,) = {degree["padding"]["intermediate_size"] for degree in found}
    agree(entry, **verdict(ran), groups=int(groups), padded_ffn=padded)
    assert set(given["tp"]) <= set(asked(padded).json["legal"])


@report("UR-012")
def test_half_a_quantisation_group(entry: Entry) -> None:
    given = entry.given
    ran = degrees({"intermediate_size": given["ffn"], "quantization_group_size": given["group"]}, given["tp"])
    (reason,) = ran.json["degrees"][0]["reasons"]
    (groups,) = re.findall(r"columns on a rank are ([\d.]+) groups", reason)
    agree(entry, **verdict(ran), groups_per_rank=float(groups), valid_tp=ran.json["legal"])


@report("UR-016")
def test_12_heads_on_4_and_on_8_devices(entry: Entry) -> None:
    four, eight = entry.given["tp"]
    heads = 12
    priced = train(dense(768, 12, num_attention_heads=heads), four, 197)
    agree(
        entry,
        **verdict(degrees({"num_attention_heads": heads}, eight)),
        at_tp4={"layer_allreduces": in_step(priced, kind="all_reduce").calls},
    )
    wider = train(dense(768, 12, num_attention_heads=16), eight, 197)
    assert in_step(wider, kind="all_reduce").calls == in_step(priced, kind="all_reduce").calls


@report("UR-044")
def test_collectives_of_an_iteration(entry: Entry) -> None:
    given = entry.given

    def iteration(sp: bool) -> PricedLedger:
        return train(
            dense(given["hidden"], given["layers"]), given["tp"], given["seq"],
            parallelism__sp=sp, parallelism__dp=given["dp"],
            workload__global_batch_size=given["gbs"], workload__micro_batch_size=given["mbs"],
        )  # fmt: skip

    split = iteration(sp=True)
    agree(
        entry,
        all_gather=in_step(split, part="block", kind="all_gather").calls,
        reduce_scatter=in_step(split, part="block", kind="reduce_scatter").calls,
        without_sp={"all_reduce": in_step(iteration(sp=False), kind="all_reduce").calls},
    )


@report("UR-045")
def test_inputs_saved_split_are_gathered_again(entry: Entry) -> None:
    """Bytes of one layer with 4096 tokens of 8192 bf16 values."""

    def layer(regather: bool) -> Sum:
        priced = train(dense(8192, 1), entry.given["tp"], 4096, parallelism__sp=True, workload__regather=regather)
        return in_step(priced, part="block")

    again, kept = layer(regather=True), layer(regather=False)
    agree(entry, half_ops=again.calls, wire_bytes_per_gpu=again.wire_bytes, without_regather=kept.wire_bytes)


@report("UR-046")
def test_full_recomputation_repeats_the_forward_pair(entry: Entry) -> None:
    plain, full = (
        in_step(train(dense(8192, 1), 8, 4096, workload__recompute=mode), kind="all_reduce").calls
        for mode in ("none", "full")
    )
    agree(entry, all_reduce=full, plain=plain)
    assert entry.given["per_block"] == {"plain": plain, "full_recompute": full}


@report("UR-048")
def test_tensor_parallelism_against_a_measured_step(entry: Entry) -> None:
    """Compute is taken from the run without TP, at the same tokens."""
    given, tp, dp = entry.given, 4, 2
    batch, tokens = given["tp4"]["gbs"], given["seq"]
    priced = train(
        dense(4096, 32), tp, tokens, parallelism__dp=dp, workload__global_batch_size=batch,
        bandwidth=["160GB/s"], latency=["0s"],
    )  # fmt: skip
    step = in_step(priced)
    compute_s = batch * tokens / (tp * dp * given["tp1"]["tok_s_gpu"])
    agree(
        entry,
        wire_bytes_per_gpu=step.wire_bytes,
        time_s=step.time_s,
        plus_compute_s=step.time_s + compute_s,
        measured_s=step.time_s + compute_s,
    )


@report("UR-049")
def test_backward_reductions_are_not_forgotten(entry: Entry) -> None:
    given = entry.given
    priced = train(
        dense(4096, 32), given["tp"], given["seq"], parallelism__dp=given["world"] // given["tp"],
        workload__global_batch_size=given["gbs"], workload__micro_batch_size=given["mbs"],
    )  # fmt: skip
    agree(
        entry,
        all_reduce=in_step(priced, kind="all_reduce").calls,
        forward_only=in_step(priced, kind="all_reduce", direction="forward").calls,
    )


@report("UR-052")
def test_a_merged_sum_costs_as_much_as_a_dense_layer(entry: Entry) -> None:
    """Partial sums of routed and shared experts added first (vLLM) are reduced once, those of Megatron each."""

    def reductions(framework: str) -> int:
        priced = decode("qwen3.5-35b-a3b", 2, parallelism__framework=framework)
        assert priced.ledger.stage.layers == entry.given["layers"]
        return priced.totals["stage"]["tp"].calls

    agree(entry, all_reduce=reductions("megatron"), merged=reductions("vllm"))


@report("UR-053")
def test_the_reduction_that_attention_keeps(entry: Entry) -> None:
    priced = decode(dense(4096, entry.given["layers"]), entry.given["tp"])
    agree(entry, all_reduce=in_step(priced, sublayer="attention", kind="all_reduce").calls)


@report("UR-054")
def test_an_mlp_has_one_reduction_each_way(entry: Entry) -> None:
    """The backward one belongs to the gradient of the input."""
    model = dense(4096, 1, gated_mlp=False)
    priced = train(model, 8, 4096)
    agree(
        entry,
        all_reduce=in_step(priced, sublayer="mlp", direction="forward").calls,
        with_input_grad=in_step(priced, sublayer="mlp").calls,
    )
    split = train(model, 8, 4096, parallelism__sp=True)
    assert [row.kind for row in rows(split, sublayer="mlp", direction="forward")] == ["all_gather", "reduce_scatter"]


@report("UR-056")
def test_what_a_ring_would_send(entry: Entry) -> None:
    """One vector of 272 KiB."""
    priced = decode(dense(272 * 1024, 1), entry.given["devices"], workload__dtype="int8")
    (sent,) = {row.wire_bytes for row in rows(priced)}
    at_once = decode(
        dense(272 * 1024, 1), entry.given["devices"], workload__dtype="int8", links__algorithm="one-shot",
        bandwidth=["1GB/s"],
    )  # fmt: skip
    (each,) = {found.egress_bytes for found in at_once.entries}
    assert {found.row.wire_bytes for found in at_once.entries} == {sent}
    agree(entry, ring_send_kib=sent / 1024, send_kib=each / 1024, send_plus_recv_kib=2 * each / 1024)


@report("UR-058")
def test_prefill_over_links_as_measured(entry: Entry) -> None:
    given = entry.given

    def over(rate: str) -> PricedLedger:
        return prefill(dense(8192, 80), given["tp"], given["tokens"], bandwidth=[rate], latency=["0s"])

    pcie, nvlink = over("8.85GB/s"), over("166.9GB/s")
    (sent,) = {row.wire_bytes for row in rows(pcie)}
    agree(
        entry,
        message_bytes=message(pcie),
        time_ms=1e3 * in_step(pcie).time_s,
        at_166_9=1e3 * in_step(nvlink).time_s,
        total_all_gpus_bytes=given["tp"] * sent,
    )


@report("UR-059")
def test_bytes_of_decoding(entry: Entry) -> None:
    given = entry.given
    priced = decode(dense(given["hidden"], given["layers"]), 8)
    step = in_step(priced)
    agree(
        entry,
        message_bytes=message(priced),
        payload_mb_s=step.payload_bytes * given["tok_s"] / 1e6,
        wire_mb_s_per_gpu=step.wire_bytes * given["tok_s"] / 1e6,
    )


@pytest.mark.parametrize("tp", [2, 4, 8])
@report("UR-068")
def test_the_fixed_cost_of_decoding_does_not_shrink_with_the_degree(entry: Entry, tp: int) -> None:
    """92.5 us a call, as measured."""
    assert str(tp) in entry.given["s_per_200"]
    model = dense(entry.given["hidden"], entry.given["layers"])
    priced = decode(model, tp, bandwidth=["300GB/s"], latency=per_step(92.5e-6, tp))
    step = in_step(priced)
    assert {found.bound for found in priced.entries} == {"latency"}
    agree(entry, message_bytes=message(priced), all_reduce=step.calls, latency_ms=1e3 * step.latency_s)


@report("UR-069")
def test_a_kv_cache_of_8_heads_or_of_all(entry: Entry) -> None:
    given = entry.given

    def cache(kv_heads: int) -> int:
        sizes = {"num_key_value_heads": kv_heads, "head_dim": given["head_dim"]}
        priced = prefill(fields(**LLAMA_70B | sizes), 8, given["tokens"])
        held = sum(tensor(priced, name).local_bytes for name in "KV")
        return held * priced.ledger.parallel.tp * priced.ledger.stage.layers

    agree(entry, bytes=cache(given["kv_heads"]), mha_bytes=cache(64))
    shown = run_commcalc("presets", "show", "llama-3-70b", "--json").json["derived"]["kv_cache_bytes_per_token"]
    assert shown * given["tokens"] == entry.want["bytes"]


@report("UR-070")
def test_a_pair_of_boxes_is_not_held_up_by_its_link(entry: Entry) -> None:
    """24 GB/s of the 25 negotiated, 50 us a call."""
    tp = entry.given["tp"]
    step = in_step(decode(dense(8192, 80), tp, bandwidth=["24GB/s"], latency=per_step(50e-6, tp)))
    agree(entry, wire_bytes=step.wire_bytes, bandwidth_ms=1e3 * step.bandwidth_s, latency_ms=1e3 * step.latency_s)


@report("UR-071")
def test_a_link_that_is_slower_than_negotiated(entry: Entry) -> None:
    def over(rate: str) -> float:
        return 1e3 * in_step(prefill(dense(8192, 80), 2, 2048, bandwidth=[rate], latency=["0s"])).time_s

    agree(entry, time_ms=over(f"{entry.given['measured_gbit']}Gb/s"), healthy_ms=over("24GB/s"))


@report("UR-073")
def test_message_sizes_about_a_switch_of_algorithms(entry: Entry) -> None:
    model, tp = dense(entry.given["hidden"], 1), entry.given["tp"]
    agree(entry, message_bytes=message(decode(model, tp, 96)))
    assert message(decode(model, tp, 64)) == entry.given["threshold"]


@report("UR-078")
def test_the_most_that_overlap_can_save(entry: Entry) -> None:
    given = entry.given

    def step(recompute: str) -> Sum:
        priced = train(
            dense(given["hidden"], given["layers"]), given["tp"], given["seq"],
            parallelism__sp=True, workload__global_batch_size=given["gbs"], workload__recompute=recompute,
            bandwidth=["360GB/s"], latency=["0s"],
        )  # fmt: skip
        return in_step(priced, part="block")

    plain, full = step("none"), step("full")
    agree(entry, wire_bytes_per_gpu=plain.wire_bytes, time_s=plain.time_s, with_full_recompute_s=full.time_s)


@report("UR-079")
def test_whole_logits_are_gathered(entry: Entry) -> None:
    given = entry.given
    gather = logits(given["vocab"], given["tp"], given["batch"], given["dtype"])
    agree(entry, gathered_bytes=gather.payload_bytes, wire_bytes_per_gpu=gather.wire_bytes)


@report("UR-080")
def test_logits_of_a_prefix_or_of_its_last_token(entry: Entry) -> None:
    given = entry.given
    prefix = logits(given["vocab"], given["tp"], given["seq"], given["dtype"])
    last = prefill(
        dense(4096, 1, vocab_size=given["vocab"]), given["tp"], given["seq"],
        parallelism__vocab_padding="none", workload__dtype=given["dtype"],
    )  # fmt: skip
    agree(entry, gathered_bytes=prefix.payload_bytes, last_token_bytes=in_step(last, op="logits").payload_bytes)


@report("UR-081")
def test_a_shard_of_logits(entry: Entry) -> None:
    priced = decode(
        fields(**LLAMA_70B, vocab_size=entry.given["vocab"]), entry.given["tp"],
        parallelism__vocab_padding="none", workload__dtype="fp32",
    )  # fmt: skip
    held = tensor(priced, "logits").local_bytes
    agree(entry, shard_bytes=held, shard_kib=float(format_binary(held).removesuffix(" KiB")))


@report("UR-082")
def test_what_each_rank_receives_of_gathered_logits(entry: Entry) -> None:
    given = entry.given
    gather = logits(given["vocab"], given["tp"], given["tokens"], "bf16")
    agree(
        entry,
        root_recv_bytes=gather.wire_bytes,
        all_gather_total_bytes=given["tp"] * gather.wire_bytes,
        # Of a gather to one rank, what that rank receives is all that is sent.
        gather_total_bytes=gather.wire_bytes,
    )


@report("UR-083")
def test_the_loss_reduces_three_numbers_per_token(entry: Entry) -> None:
    given = entry.given

    def loss(tp: int) -> Sum:
        priced = train(
            dense(4096, 1, vocab_size=given["vocab"]), tp, given["seq"], workload__micro_batch_size=given["batch"]
        )
        return in_step(priced, sublayer="loss")

    agree(
        entry,
        reductions=loss(given["tp"]).calls,
        payload_bytes=loss(given["tp"]).payload_bytes,
        gather_instead_bytes=logits(given["vocab"], given["tp"], given["batch"] * given["seq"], "bf16").payload_bytes,
        at_tp1=loss(1).payload_bytes,
    )


@report("UR-107")
def test_replicated_tokens_are_reduced_as_under_plain_tp(entry: Entry) -> None:
    priced = decode("mixtral-8x7b", entry.given["tp"], parallelism__framework="vllm")
    blocks = in_step(priced, part="block", kind="all_reduce"), in_step(priced, kind="all_to_all")
    agree(entry, all_reduce=blocks[0].calls, all_to_all=blocks[1].calls)


@report("UR-115")
def test_replicated_kv_heads_add_no_collective(entry: Entry) -> None:
    heads = {"num_attention_heads": entry.given["heads"], "num_key_value_heads": entry.given["kv_heads"]}
    tp = entry.given["tp"]
    priced = decode(dense(2048, 36, **heads), tp, parallelism__kv="replicate")
    (degree,) = degrees(heads, tp, "--kv", "replicate").json["degrees"]
    agree(
        entry,
        all_reduce=in_step(priced, kind="all_reduce").calls,
        all_to_all=in_step(priced, kind="all_to_all").calls,
        kv_replication=degree["kv_replication"],
    )
    assert {row.kind for row in rows(priced)} == {"all_reduce"}


@report("UR-120")
def test_a_group_over_two_nodes_goes_at_the_rate_of_the_network(entry: Entry) -> None:
    """A prompt of 4096 tokens on nodes that share one NIC of 50 GB/s among their devices."""
    each = entry.given["gpus_per_node"]
    nodes = fields(
        name="nodes",
        network=[
            {"name": "nvlink", "devices": each, "bandwidth": "450 GB/s"},
            {"name": "nic", "bandwidth": f"{50 / each} GB/s"},
        ],
    )
    priced = prefill(dense(8192, 80), entry.given["tp"], 4096, hardware=nodes, links__algorithm="ring")
    step = in_step(priced, part="block")
    (level,) = {found.priced.level for found in priced.entries if found.priced}
    agree(entry, bottleneck=level, wire_bytes_per_gpu=step.wire_bytes, time_s=step.time_s)


@report("UR-126")
def test_no_degree_is_free_in_silence(entry: Entry) -> None:
    """A split takes time; without a network there is no time, not zero; where the time is zero a warning says why."""
    tp, model = entry.given["tp"], dense(8192, 80)
    split = ask(model, "h100-sxm", parallelism__tp=tp)
    assert in_step(split).time_s > 0
    assert [warning.code for warning in split.warnings] == ["tp-crosses-level"]
    untimed = ask(model, parallelism__tp=tp)
    assert untimed.totals["step"]["all"].time_s is None
    assert any("nothing is timed" in said for said in untimed.assumptions)
    free = ask(model, "h100-sxm", parallelism__tp=tp, parallelism__layout="none")
    assert free.totals["step"]["all"].time_s == 0
    assert [warning.code for warning in free.warnings] == ["nothing-split"]
    agree(entry)


@report("UR-129")
def test_decoding_reduces_twice_per_layer_and_once_for_the_embedding(entry: Entry) -> None:
    """64 layers of 5120; only AllReduces cost what was measured."""
    given, tp = entry.given, entry.given["tp"]
    first, second = given["per_call_ms"][2], given["per_call_ms"][1]

    def step(call_ms: float) -> Sum:
        model = dense(5120, 64, vocab_size=151936)
        priced = decode(model, tp, bandwidth=["300GB/s"], latency=per_step(call_ms / 1e3, tp))
        return in_step(priced, kind="all_reduce")

    latency_ms = 1e3 * step(first).latency_s
    agree(
        entry,
        all_reduce=step(first).calls,
        message_bytes=step(first).payload_bytes // step(first).calls,
        latency_ms=latency_ms,
        at_392_3_us=1e3 * step(second).latency_s,
        ceiling_tok_s=1e3 / (given["step_ms"] - latency_ms),
    )


@report("UR-135")
def test_a_ring_on_pcie(entry: Entry) -> None:
    """One token of 2048 values, on more than two devices."""
    box = fields(name="box", network=[{"name": entry.given["link"], "devices": 8, "bandwidth": "32 GB/s"}])
    asked = [decode(dense(2048, 1), n, hardware=box) for n in entry.given["n"] if n > 2]
    (payload,) = {message(priced) for priced in asked}
    (algorithm,) = {found.priced.cost.algorithm for priced in asked for found in priced.entries if found.priced}
    agree(entry, algo=algorithm, message_bytes=payload)


@report("UR-136")
def test_sizes_are_printed_to_the_byte(entry: Entry) -> None:
    given = entry.given
    model = dense(given["hidden"], 1)
    size = message(decode(model, 2, given["tokens"]))
    agree(
        entry,
        message_bytes=size,
        kib=float(format_binary(size).removesuffix(" KiB")),
        at_16_tokens=message(decode(model, 2, 16)),
    )
    printed = ledger(model, 2, "--phase", "decode", "--micro-batch", str(given["tokens"])).out
    assert f" {size:,} " in printed


@report("UR-137")
def test_json_output_is_one_document(entry: Entry) -> None:
    ran = ledger("llama-3-70b", 16, "--kv", "replicate", "--hardware", "h100-sxm", "--json")
    document, end = json.JSONDecoder().raw_decode(ran.out)
    assert ran.out[end:] == "\n"
    assert {"rows", "totals", "warnings"} <= document.keys()
    assert document["warnings"]
    agree(entry, exit=ran.status)


@report("UR-112")
def test_a_direct_exchange_against_replicating_and_cutting(entry: Entry) -> None:
    """16x16x16 fp32 over 8 devices from one dimension to another."""
    problem = bind(
        parse_expression("A[I_X, J, K] -> A[I, J_X, K]", "X"),
        Mesh.of({"X": entry.given["n"]}),
        dict.fromkeys("IJK", 16),
        32,
    )
    found = reshardings(problem, Pricing(Fabric(problem.mesh), None, Objective.BYTES))
    assert entry.given["bytes"] == 16**3 * 4
    (whole,) = [route for route in found.alternatives if [step.step.kind for step in route.steps] == [Kind.ALL_GATHER]]
    direct = found.best.wire_bytes
    agree(entry, replicate_bytes=whole.wire_bytes, all_to_all_bytes=direct, ratio=whole.wire_bytes / direct)


def test_every_entry_has_a_test() -> None:
    assert ENTRIES.keys() == COVERED


def test_what_is_left_to_later_is_in_the_data() -> None:
    for apart in (LATER, IN_WORDS):
        for ident, names in apart.items():
            assert names
            assert set(names) <= ENTRIES[ident].want.keys(), ident
