"""``commcalc compare``: every combination as a row, equal to the ledger's, and what the published figures show.

Sources: Narayanan et al. 2021, arXiv:2104.04473 (MT-NLG's shape); the scaling book, part 5 (F / 2550 ways on a TPU v5p
axis); peers: 2(n-1)/n of an AllReduce on a ring.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from commcalc.report.compare import bars as draw_bars
from conftest import Inside, fields, run_commcalc

LLAMA = ("--model", "llama-3-8b", "--hardware", "h100")


def rows(inside: Inside, *arguments: str) -> list[dict[str, Any]]:
    ran = inside("compare", *arguments, "--json")
    assert ran.status == 0, ran.err
    return list(ran.json["rows"])


# Equal to the ledger


def test_rows_are_those_of_the_ledger(inside: Inside) -> None:
    given = ("--seq", "2K", "--global-batch", "8", "--efficiency", "0.5", "--overlap", "dp")
    found = rows(inside, *LLAMA, *given, "--tp", "1,2", "--dp", "1,4", "--zero", "0")
    order = [(row["parallelism"]["tp"], row["parallelism"]["dp"]) for row in found]
    assert order == [(1, 1), (1, 4), (2, 1), (2, 4)]
    for row in found:
        tp, dp = row["parallelism"]["tp"], row["parallelism"]["dp"]
        ledger = inside("ledger", *LLAMA, *given, "--tp", str(tp), "--dp", str(dp), "--json").json
        for scope in ("block", "step"):
            total = ledger["totals"][scope]["all"]
            for name, key in (("payload_bytes", "payload_bytes"), ("wire_bytes", "wire_bytes"), ("comm_s", "time_s")):
                assert row[scope][name] == total[key]
        assert row["block"]["compute_s"] == ledger["block"]["compute_s"]
        assert row["block"]["exposed_share"] == ledger["block"]["exposed_share"]
        assert row["step"]["tokens_per_s"] == ledger["step"]["tokens_per_s"]
        assert row["step"]["mfu"] == ledger["step"]["mfu"]
        assert row["memory"]["total_bytes"] == ledger["memory"]["total_bytes"]
        assert row["memory"]["fits"] == ledger["memory"]["fits"]
        assert row["parallelism"] | {"framework": "megatron"} == ledger["inputs"]["parallelism"]


def test_a_file_and_lists_over_it(inside: Inside, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: llama-3-8b\nhardware: h100\nparallelism: {tp: 2}\nworkload: {sequence_length: 2048}\n")
    found = rows(inside, str(path), "--micro-batch", "1,2")
    assert [row["workload"]["micro_batch_size"] for row in found] == [1, 2]
    assert {row["parallelism"]["tp"] for row in found} == {2}
    assert found[1]["block"]["payload_bytes"] == 2 * found[0]["block"]["payload_bytes"]


# What it must show


@pytest.mark.parametrize("machine", ["h100", "slow"])
def test_degrees_of_a_wide_model(inside: Inside, tmp_path: Path, machine: str) -> None:
    """MT-NLG 530B: payload constant in t, 2(t-1)/t on the wire, weights as 1/t, and a jump where the group leaves."""
    if machine == "slow":
        path = tmp_path / "slow.yaml"
        path.write_text(json.dumps({
            "name": "slow", "chip": {"flops": {"bf16": "312 TFLOP/s"}, "hbm": {"capacity": "80 GB", "bandwidth": "2 TB/s"}},
            "network": [
                {"name": "inside", "topology": "switch", "devices": 8, "bandwidth": "300 GB/s", "latency": "3 us"},
                {"name": "boxes", "topology": "switch", "bandwidth": "12.5 GB/s", "latency": "10 us"},
            ],
        }))  # fmt: skip
        machine = str(path)
    found = rows(inside, "--model", "mt-nlg-530b", "--hardware", machine, "--tp", "1..64:x2", "--seq", "2K")
    degrees = [row["parallelism"]["tp"] for row in found]
    assert degrees == [1, 2, 4, 8, 16, 32, 64]
    payload = 4 * 2048 * 20480 * 2
    for tp, row in zip(degrees, found, strict=True):
        assert row["block"]["payload_bytes"] == (payload if tp > 1 else 0)
        assert row["block"]["wire_bytes"] == Fraction(2 * (tp - 1), tp) * payload
        assert row["memory"]["stream_bytes"] == 2048 * 20480 * 2
        if tp > 1:
            ratio = found[0]["memory"]["weights_bytes"] / row["memory"]["weights_bytes"]
            assert ratio == pytest.approx(tp, rel=2e-2)
        assert (row["crossing_bytes"] != {}) == (tp > 8)
    per_byte = [row["block"]["comm_s"] / row["block"]["wire_bytes"] for row in found[1:]]
    assert per_byte[3] > 1.2 * per_byte[2]  # 16 ranks leave their node of 8
    assert found[3]["levels"]["tp"] == [found[1]["levels"]["tp"][0]]
    assert found[4]["levels"]["tp"][-1] != found[3]["levels"]["tp"][0]


def test_sixteen_times_the_context_is_sixteen_times_the_traffic(inside: Inside) -> None:
    short, long = rows(inside, "--model", "llama-3.1-405b", "--tp", "8", "--seq", "8K,128K")
    for scope in ("block", "step"):
        for key in ("payload_bytes", "wire_bytes"):
            if scope == "block":
                assert long[scope][key] == 16 * short[scope][key]
    assert long["step"]["wire_bytes"] == 16 * short["step"]["wire_bytes"]


def test_the_textbook_limit_is_where_time_is_exposed(inside: Inside, tmp_path: Path) -> None:
    """Scaling book, part 5: F / 2550 ways on an axis of 1.8e11 B/s; with everything hidden, exposed beyond that alone.

    A block whose attention has no width has the MLP's two products; it reduces twice all the same, so half as many.
    """
    path = tmp_path / "axis.yaml"
    path.write_text(json.dumps({
        "name": "axis", "chip": {"flops": {"bf16": "459 TFLOP/s"}},
        "network": [{"name": "axis", "topology": "switch", "bandwidth": "180 GB/s", "latency": "0 s"}],
    }))  # fmt: skip
    model = fields(hidden_size=8192, intermediate_size=16 * 2550, gated_mlp=False, num_hidden_layers=1,
                   num_attention_heads=96, num_key_value_heads=96, head_dim=1)  # fmt: skip
    found = rows(inside, "--model", model, "--hardware", str(path), "--tp", "2,4,6,8,12,16", "--seq", "2K",
                 "--convention", "textbook", "--overlap", "full", "--phase", "prefill")  # fmt: skip
    exposed = {row["parallelism"]["tp"]: row["block"]["exposed_s"] for row in found}
    # 16 ways of F for one reduction, 8 for two; attention's own few FLOPs move that by less than a part in a hundred.
    assert [tp for tp, seconds in exposed.items() if seconds > 0] == [12, 16]


def test_split_sequences_send_as_much_and_take_longer(inside: Inside) -> None:
    """On one H100 node, without the re-gather: equal wire bytes of a block, another time (NVLS sums AllReduces only)."""
    whole, split = rows(inside, "--model", "llama-3-70b", "--hardware", "h100", "--tp", "8", "--layout",
                        "megatron,megatron-sp", "--no-regather", "--seq", "8K")  # fmt: skip
    assert split["block"]["wire_bytes"] == whole["block"]["wire_bytes"]
    assert split["block"]["comm_s"] > 1.2 * whole["block"]["comm_s"]
    assert split["memory"]["stream_bytes"] * 8 == whole["memory"]["stream_bytes"]


def test_what_is_not_legal_is_a_row_that_says_so(inside: Inside) -> None:
    ran = inside("compare", "--model", "llama-3-70b", "--hardware", "h100", "--tp", "8,16,32,64", "--json")
    assert ran.status == 0
    found = ran.json["rows"]
    assert [row["legal"] for row in found] == [True, False, False, False]
    for row, tp in zip(found[1:], (16, 32, 64), strict=True):
        assert f"num_key_value_heads 8 mod {tp} = 8" in row["reason"]
        assert row["block"]["wire_bytes"] is None
    none = inside("compare", "--model", "llama-3-70b", "--tp", "16,32", "--json")
    assert none.status == 3
    assert "none of 2 combinations is legal" in none.err


def test_small_and_large_batches_differ_in_their_share(inside: Inside) -> None:
    """Fixed costs weigh on little work: the share of communication falls with the batch."""
    shares = [row["block"]["share"] for row in rows(inside, *LLAMA, "--tp", "8", "--seq", "64,1024,8192")]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 1.5 * shares[-1]


# Formats


def test_best_values_are_marked(inside: Inside) -> None:
    prefill = (*LLAMA, "--tp", "2,4,8", "--phase", "prefill")
    document = inside("compare", *prefill, "--json").json
    best = document["best"]
    assert best["block.wire_bytes"] == [0]
    assert best["memory.weights_bytes"] == best["step.tokens_per_s"] == [2]
    assert "block.payload_bytes" not in best  # alike
    table = inside("compare", *prefill).out
    (line,) = [line for line in table.splitlines() if line.startswith((" 2", "2 "))]
    assert f"{document['rows'][0]['block']['wire_bytes']:,}*" in line


def test_rows_that_fit_and_do_the_same_work_stand_against_one_another(inside: Inside) -> None:
    """Training Llama-3-8B at TP 1 does not fit 80 GB; a longer sequence is other work."""
    document = inside("compare", *LLAMA, "--tp", "1,2,4,8", "--recompute", "full", "--json").json
    fitting = [at for at, row in enumerate(document["rows"]) if row["memory"]["fits"]]
    assert fitting == [1, 2, 3]
    assert document["best"]["block.wire_bytes"] == [1]
    lengths = inside("compare", *LLAMA, "--tp", "4,8", "--seq", "2K,4K", "--recompute", "full", "--json").json
    assert lengths["best"]["memory.weights_bytes"] == [2, 3]  # tp 8, of either length
    assert [row["combination"] for row in lengths["rows"]][2:] == [
        {"tp": "8", "seq": "2048"},
        {"tp": "8", "seq": "4096"},
    ]


def test_one_that_cannot_be_timed_or_priced_does_not_end_the_command(inside: Inside) -> None:
    ran = inside("compare", "--tp", "8", "--dtype", "bf16,fp32", "--efficiency", "0.6", "--json")
    assert ran.status == 0
    timed, untimed = ran.json["rows"]
    assert timed["step"]["time_s"] > 0
    assert (untimed["step"]["time_s"], untimed["block"]["comm_s"] > 0) == (None, True)
    assert "step-not-timed" in untimed["warnings"]
    other = inside(
        "compare", "--model", "llama-3-8b", "--hardware", "h100,tpu-v5e", "--tp", "8", "--algorithm", "ring", "--json"
    )
    assert [row["legal"] for row in other.json["rows"]] == [True, False]
    assert "does not offer ring" in other.json["rows"][1]["reason"]
    all_wrong = inside(
        "compare", "--model", "llama-3-8b", "--hardware", "tpu-v5e", "--tp", "4,8", "--algorithm", "ring"
    )
    assert (all_wrong.status, all_wrong.out) == (2, "")


def test_every_field_of_a_step_is_of_one_stage(inside: Inside) -> None:
    """That of the slowest: with the head, the last."""
    given = ("--model", "mixtral-8x7b", "--hardware", "h200", "--tp", "2", "--pp", "8", "--global-batch", "16")
    (row,) = rows(inside, *given)
    ledger = inside("ledger", *given, "--json").json
    stage = ledger["stages"][row["step"]["stage"]]
    assert row["step"]["wire_bytes"] == stage["totals"]["all"]["wire_bytes"]
    assert row["step"]["comm_s"] == pytest.approx(ledger["step"]["comm_s"]) == pytest.approx(row["step"]["exposed_s"])
    assert row["memory"]["stage"] == ledger["memory"]["stage"]
    assert row["devices"] == 16
    assert row["step"]["tokens_per_s_per_device"] == ledger["step"]["tokens_per_s_per_device"]


def test_what_was_compared_and_what_it_rests_on_is_told(inside: Inside) -> None:
    out = inside("compare", *LLAMA, "--tp", "2,8", "--bandwidth", "400GB/s").out
    assert out.startswith(
        "llama-3-8b, on h100-sxm, train, megatron, bf16, 4,096 tokens, microbatch 1, recompute none\n"
    )
    assert "- no sequence length is given, so 4096 tokens\n" in out
    assert "- nvlink.bandwidth is that of --bandwidth 400GB/s\n" in out
    ran = inside("compare", *LLAMA, "--tp", "2,8", "--phase", "prefill", "--recompute", "full", "--json")
    assert "prefill has no backward pass: nothing is recomputed (and 1 more like it)" in ran.err
    assert [row["warnings"] for row in ran.json["rows"]] == [["recompute-without-backward"]] * 2


def test_ratios_to_a_baseline(inside: Inside) -> None:
    given = (*LLAMA, "--tp", "2,4,8", "--layout", "megatron,megatron-sp")
    document = inside("compare", *given, "--baseline", "tp=8,layout=megatron", "--json").json
    base = document["rows"][document["baseline"]]
    assert (base["parallelism"]["tp"], base["layout"]) == (8, "megatron")
    for row in document["rows"]:
        assert row["ratios"]["block.wire_bytes"] == row["block"]["wire_bytes"] / base["block"]["wire_bytes"]
    assert "(0.571x)" in inside("compare", *LLAMA, "--tp", "2,8", "--baseline", "tp=8").out
    assert inside("compare", *given, "--baseline", "first", "--json").json["baseline"] == 0
    table = list(csv.DictReader(io.StringIO(inside("compare", *given, "--baseline", "first", "--format", "csv").out)))
    assert table[0]["ratios.block.wire_bytes"] == "1.0"
    assert "(0.571x)" in inside("compare", *LLAMA, "--tp", "2,8", "--baseline", "tp=8", "--pivot", "tp").out


def test_degrees_as_columns(inside: Inside) -> None:
    out = inside("compare", "--model", "gpt3-175b", "--hardware", "h100,a100", "--tp", "4,8,16", "--pivot", "tp").out
    head, *tables = out.split("\n\n")
    assert head.startswith("gpt3-175b, train, megatron, bf16, 2,048 tokens")
    assert tables[0].splitlines()[0] == "hardware h100 (* best of those that fit)"
    assert tables[1].splitlines()[0] == "hardware a100 (* best of those that fit)"
    head = tables[0].splitlines()[1].split()
    assert head == ["tp", "4", "8", "16"]
    assert any(line.startswith("leaves its level") and line.rstrip().endswith("tp") for line in tables[0].splitlines())


def test_bars(inside: Inside) -> None:
    out = inside("compare", *LLAMA, "--tp", "1,2,4,8,16", "--seq", "8K", "--plot").out
    bars = out[out.index("A block: compute") :].split("\n\n")[0].splitlines()[1:]
    assert bars[0].split()[2] == "#" * 60
    lengths = [(line.count("#"), line.count("=") - (" = " in line)) for line in bars[:4]]
    assert [first for first, _ in lengths] == [60, 30, 15, 8]
    assert bars[4].endswith("not legal")
    records = inside("compare", *LLAMA, "--tp", "1,2", "--json").json["rows"]
    narrow = draw_bars(records, [record["combination"] for record in records], 40)
    assert max(map(len, narrow.splitlines()[1:])) <= 40
    assert all(ord(char) < 128 for char in out)


def test_pictures(inside: Inside, tmp_path: Path) -> None:
    for name in ("bars.svg", "bars.png"):
        path = tmp_path / name
        ran = inside("compare", *LLAMA, "--tp", "1,2", "--plot", str(path))
        assert (ran.status, "Side by side" in ran.out) == (0, True)
        first = path.read_bytes()
        inside("compare", *LLAMA, "--tp", "1,2", "--plot", str(path))
        assert path.read_bytes() == first
        assert len(first) > 5000


def test_pictures_name_their_extra_where_it_is_missing(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = inside("compare", *LLAMA, "--tp", "1,2", "--plot", "bars.svg")
    assert (ran.status, ran.out) == (2, "")
    assert "pictures need matplotlib" in ran.err
    assert "hint: pip install 'commcalc[plot]'" in ran.err


def test_every_format_holds_the_same(inside: Inside) -> None:
    given = ("compare", *LLAMA, "--tp", "2,16", "--seq", "2K")
    document = inside(*given, "--json").json
    lines = [json.loads(line) for line in inside(*given, "--format", "jsonl").out.splitlines()]
    assert lines == document["rows"]
    table = list(csv.DictReader(io.StringIO(inside(*given, "--format", "csv").out)))
    assert [row["block.wire_bytes"] for row in table] == [str(document["rows"][0]["block"]["wire_bytes"]), ""]
    assert table[0]["levels.tp"] == "nvlink"
    mixed = list(csv.DictReader(io.StringIO(inside("compare", *LLAMA, "--tp", "1,2", "--format", "csv").out)))
    assert [row["levels.tp"] for row in mixed] == ["", "nvlink"]
    assert "| tp | block payload |" in inside(*given, "--format", "markdown").out


def test_narrow_terminals_cut_no_digit() -> None:
    ran = run_commcalc("compare", *LLAMA, "--tp", "2,4", COLUMNS="60")
    assert ran.status == 0
    assert "134,217,728" in ran.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--tp", "1,x"], "error: 'x' is no whole number"),
        (["--tp", "8..1"], "error: '8..1' is an empty range: 1 is below 8\n  at --tp 8..1"),
        (["--tp", "1..8:x1"], "never ends"),
        (["--layout", "megatron,"], "error: an empty value in a list\n  at --layout megatron,"),
        (["--layout", "megatron,megatorn"], "error: unknown layout 'megatorn'"),
        (["--hardware", "h100,h1000"], "error: unknown hardware preset 'h1000'"),
        (
            ["--tp", "1..1001"],
            "error: 1,001 combinations; at most 1,000 are compared\n  at compare\nhint: commcalc sweep takes more",
        ),
        (["--tp", "1,2", "--pivot", "dp"], "error: unknown field that varies 'dp'"),
        (["--tp", "2", "--pivot", "tp"], "error: unknown field that varies 'tp'"),
        (["--tp", "1,2", "--baseline", "tp=4"], "error: no combination has these values"),
        (
            ["--tp", "1,2", "--set", "parallelism.tp=8"],
            "error: parallelism.tp is set twice\n  at --set parallelism.tp=8\nhint: --tp names its values",
        ),
        (
            ["--tp", "1,2", "--baseline", "tp"],
            "error: 'tp' says no value\n  at --baseline tp\nhint: --baseline first, or KEY=VALUE",
        ),
        (["--tp", "1,2", "--baseline", "tp=1,tp=2"], "error: tp is given twice"),
        (["--tp", "1,2", "--pivot", "tp", "--format", "csv"], "error: --pivot has no place in csv"),
        (["--tp", "16,32", "--plot", "x.svg"], "error: no combination is timed, so there is nothing to draw"),
        (["--tp", "1,2", "--baseline", "pp=4"], "error: unknown field that varies 'pp'"),
        (["--tp", "1,2", "--plot", "bars.gif"], "error: a picture is an .svg or a .png"),
        (["--tp", "1,2", "--plot", "/nosuch/folder/bars.svg"], "error: cannot write: no such file or directory"),
        (["--tp", "1,2", "--efficiency", "2"], "error: '2' is above 1"),
        (["--zero", "1,4", "--dp", "2"], "zero 4 is none of 0, 1, 2, 3"),
    ],
)
def test_wrong_lists(inside: Inside, arguments: list[str], told: str) -> None:
    ran = inside("compare", *LLAMA, *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert told in ran.err


def test_everything_that_is_wrong_with_the_lists_is_told_at_once(inside: Inside) -> None:
    ran = inside(
        "compare",
        "--model",
        "llama-3-8b",
        "--tp",
        "2,x",
        "--pp",
        "1,,2",
        "--layout",
        "megatron,megatronn",
        "--zero",
        "1,7",
    )
    assert (ran.status, ran.out) == (2, "")
    for told in (
        "'x' is no whole number",
        "at --tp 2,x",
        "at --pp 1,,2",
        "did you mean megatron or",
        "zero 7 is none of",
    ):
        assert told in ran.err
    ran = inside("compare", "--model", "llama-3-8b", "--layout", "megatron,megatronn,two", "--dtype", "bf16,bf17")
    assert ran.status == 2
    assert all(told in ran.err for told in ("'megatronn'", "'two'", "'bf17'"))
    assert ran.err.count("'megatronn'") == 1
