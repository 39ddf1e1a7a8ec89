"""``commcalc ledger`` as a process: fields, formats, streams, exit statuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from conftest import run_commcalc

ROW_FIELDS = [
    "pass", "part", "sublayer", "op", "collective", "group", "group_size", "tensor", "dtype", "payload_bytes",
    "wire_bytes", "egress_bytes", "count", "per", "count_in_step", "wire_share",
    "time_share", "algorithm", "level", "phases", "time_s", "latency_s", "ramp_s", "bandwidth_s",
    "bound", "confidence", "lower_bound", "error_band", "measured_in",
    "crossover_payload_bytes", "formula", "note", "runner_up",
]  # fmt: skip
JOB = """\
model: llama-3-70b
hardware: h100-sxm
parallelism: {tp: 8, sp: true, pp: 4, dp: 16}
workload: {phase: train, sequence_length: 8192, micro_batch_size: 1, global_batch_size: 512, dtype: bf16}
"""


def test_without_arguments_the_default_job_is_answered() -> None:
    ran = run_commcalc("ledger")
    assert ran.status == 0
    assert "939,524,096" in ran.out
    # 8.82 billion parameters a device at 18 bytes, and 80 layers of activations.
    assert ran.err.startswith("warning: the model does not fit: 219,788,656,640 B of 80,000,000,000 B, ")
    assert ran.err.count("\n") == 1


def test_json_has_the_fields_of_the_contract() -> None:
    ran = run_commcalc("ledger", "--json")
    assert ran.status == 0
    document = ran.json
    assert list(document) == [
        "schema", "version", "inputs", "assumptions", "warnings", "rows", "totals", "memory", "step", "block", "stages",
    ]  # fmt: skip
    assert document["schema"] == "commcalc/ledger/1"
    assert set(document["inputs"]) >= {"model", "hardware", "parallelism", "workload", "sources"}
    for row in document["rows"]:
        assert list(row) == ROW_FIELDS
        assert row["time_s"] == pytest.approx(row["latency_s"] + row["ramp_s"] + row["bandwidth_s"], rel=1e-12)
    assert list(document["totals"]) == ["block", "stage", "step"]
    for scope in document["totals"].values():
        assert list(scope) == ["tp", "cp", "ep", "dp", "pp", "all"]
        for total in scope.values():
            assert list(total) == ["count", "payload_bytes", "wire_bytes", "time_s"]
    assert document["totals"]["block"]["dp"] == {"count": 0, "payload_bytes": 0, "wire_bytes": 0, "time_s": 0}


def test_totals_multiply_the_rows() -> None:
    document = run_commcalc("ledger", "--sp", "--json").json
    block = [row for row in document["rows"] if row["per"] == "block"]
    for key in ("payload_bytes", "wire_bytes", "time_s"):
        total = sum(row[key] * row["count"] for row in block)
        assert document["totals"]["block"]["tp"][key] == pytest.approx(total, rel=1e-12)
        assert document["totals"]["stage"]["tp"][key] == pytest.approx(80 * total, rel=1e-12)


def test_every_value_names_its_origin() -> None:
    sources = run_commcalc("ledger", "--tp", "4", "--set", "model.num_hidden_layers=4", "--json").json["inputs"][
        "sources"
    ]
    assert sources["parallelism.tp"] == "--tp 4"
    assert sources["model.num_hidden_layers"] == "--set model.num_hidden_layers=4"
    assert sources["workload.sequence_length"].startswith("preset llama-3-70b-h100:")
    assert sources["workload.grad_dtype"] == "default"
    assert sources["model.hidden_size"].startswith("preset llama-3-70b:")
    assert "litgpt" in sources["model.hidden_size"]
    assert "25 GB/s one way" in sources["hardware.network.nvlink.bandwidth"]


def test_a_model_on_the_command_line_inherits_nothing_from_the_default_job() -> None:
    inputs = run_commcalc("ledger", "--model", "llama-3-70b", "--json").json["inputs"]
    assert inputs["parallelism"]["tp"] == 1
    assert inputs["workload"]["sequence_length"] == 4096
    assert inputs["hardware"] == {}


def test_defaults() -> None:
    inputs = run_commcalc("ledger", "--model", "gpt3-175b", "--dp", "4", "--json").json["inputs"]
    work, parallel = inputs["workload"], inputs["parallelism"]
    assert (work["phase"], work["dtype"], work["grad_dtype"], work["recompute"]) == ("train", "bf16", "fp32", "none")
    assert (work["sequence_length"], work["micro_batch_size"], work["global_batch_size"]) == (2048, 1, 4)
    assert (work["regather"], parallel["sp"], parallel["zero"], parallel["framework"]) == (True, False, 0, "megatron")
    assert parallel["kv"] == "refuse"
    assert (
        run_commcalc("ledger", "--model", "gpt3-175b", "--phase", "decode", "--json").json["inputs"]["parallelism"][
            "kv"
        ]
        == "replicate"
    )


def test_a_job_from_a_file_and_from_stdin_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    from_file = run_commcalc("ledger", str(path), "--json").json
    from_stdin = run_commcalc("ledger", "-", "--json", stdin=JOB).json
    for document in (from_file, from_stdin):
        del document["inputs"]["sources"]
    assert from_file == from_stdin
    assert from_file["inputs"]["workload"]["microbatches"] == 32
    assert from_file["inputs"]["parallelism"]["layout"] == "megatron-sp"


def test_options_win_over_the_job(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    document = run_commcalc("ledger", str(path), "--no-sp", "--tp", "4", "--json").json
    assert document["inputs"]["parallelism"]["layout"] == "megatron"
    assert document["totals"]["block"]["tp"]["wire_bytes"] == 4 * 2 * 3 * 134_217_728 // 4


def test_gradients_of_parameters_whose_sizes_are_not_given_are_warned_of() -> None:
    question = ("ledger", "--model", "{hidden_size: 64, num_hidden_layers: 2}", "--tp", "2", "--dp", "2")
    ran = run_commcalc(*question)
    assert "warning: dp 2: a step still lacks gradients and parameters, whose sizes the model does not give" in ran.err
    assert "[group-not-priced]" in ran.err
    codes = [warning["code"] for warning in run_commcalc(*question, "--json").json["warnings"]]
    assert codes == ["group-not-priced"]


def test_a_group_that_leaves_its_node_is_one_row_with_phases_a_warning_and_the_price_of_staying() -> None:
    document = run_commcalc("ledger", "--model", "gpt3-175b", "--hardware", "h20", "--tp", "16", "--json").json
    row = next(row for row in document["rows"] if row["op"] == "out_proj")
    assert [(phase["level"], phase["collective"], phase["group_size"]) for phase in row["phases"]] == [
        ("nvlink", "reduce_scatter", 8),
        ("infiniband", "all_reduce", 2),
        ("nvlink", "all_gather", 8),
    ]
    assert row["payload_bytes"] == 50_331_648
    assert row["time_s"] == pytest.approx(sum(phase["time_s"] for phase in row["phases"]), rel=1e-12)
    warning, fits = document["warnings"]
    assert (warning["code"], fits["code"]) == ("tp-crosses-level", "does-not-fit")
    inside = run_commcalc("ledger", "--model", "gpt3-175b", "--hardware", "h20", "--tp", "8", "--json").json
    # The block's time at tp 8, as the warning puts it beside.
    assert f"{inside['totals']['block']['tp']['time_s'] * 1e6:.4g} us at tp 8" in warning["message"]


def test_sequence_parallelism_on_one_device_is_switched_off_with_a_warning() -> None:
    ran = run_commcalc("ledger", "--tp", "1", "--sp", "--json")
    assert [warning["code"] for warning in ran.json["warnings"]] == ["sp-without-tp", "does-not-fit"]
    assert ran.json["inputs"]["parallelism"]["sp"] is False


def test_a_sequence_beyond_the_model_is_a_warning() -> None:
    document = run_commcalc("ledger", "--seq", "128K", "--json").json
    assert document["warnings"][0] == {
        "code": "sequence-beyond-model",
        "message": "sequence length 131072 is beyond the 8192 positions of llama-3-70b",
    }


def test_traffic_grows_with_the_sequence_exactly() -> None:
    short = run_commcalc("ledger", "--json").json["totals"]["block"]["tp"]["wire_bytes"]
    long = run_commcalc("ledger", "--seq", "128K", "--json").json["totals"]["block"]["tp"]["wire_bytes"]
    assert long == 16 * short


def test_without_hardware_bytes_are_counted_and_nothing_is_timed() -> None:
    document = run_commcalc("ledger", "--model", "llama-3-70b", "--tp", "8", "--json").json
    assert {row["time_s"] for row in document["rows"]} == {None}
    assert document["totals"]["block"]["tp"]["time_s"] is None
    assert "no hardware is given: bytes are counted, nothing is timed" in document["assumptions"]


def test_a_bare_bandwidth_is_a_machine_of_one_link() -> None:
    args = ["ledger", "--model", "llama-3-70b", "--tp", "8", "--seq", "8192", "--bandwidth", "450GB/s", "--json"]
    row = next(row for row in run_commcalc(*args).json["rows"] if row["per"] == "block")
    assert (row["level"], row["time_s"]) == ("link", pytest.approx(234_881_024 / 450e9, rel=1e-12))


def test_in_network_reduction_of_a_gibibyte_from_the_command_line() -> None:
    """9/8 * 2^30 / 450e9 s; the ring takes 2*7/8 * 2^30 / 450e9 s."""
    base = ["ledger", "--seq", "64K", "--latency", "0s", "--json", "--algorithm"]
    for algorithm, us in (("ring", 4175.663), ("in-network", 2684.355)):
        row = next(row for row in run_commcalc(*base, algorithm).json["rows"] if row["per"] == "block")
        assert row["payload_bytes"] == 2**30
        assert row["time_s"] * 1e6 == pytest.approx(us, abs=5e-4)
        assert row["wire_bytes"] == 2 * 7 * 2**30 // 8
        assert row["egress_bytes"] == {"ring": 2 * 7 * 2**30 // 8, "in-network": 2**30 + 2**27}[algorithm]


def test_bound_and_crossover() -> None:
    document = run_commcalc("ledger", "--algorithm", "ring", "--json").json
    for row in document["rows"]:
        assert row["bound"] == ("latency" if row["latency_s"] > row["bandwidth_s"] else "bandwidth")
        # n * alpha * W for a ring AllReduce: 8 * 1.9 us * 450 GB/s.
        assert row["crossover_payload_bytes"] == 6_840_000


def test_order_of_axes_moves_the_group_off_its_node() -> None:
    document = run_commcalc("ledger", "--dp", "8", "--order", "dp-tp-cp-ep-pp", "--ranks", "--json").json
    assert document["ranks"][0]["ranks"] == [0, 8, 16, 24, 32, 40, 48, 56]
    assert {(row["group"], row["level"]) for row in document["rows"]} == {("tp", "infiniband"), ("dp", "nvlink")}
    assert "tp-crosses-level" in [warning["code"] for warning in document["warnings"]]
    inside = run_commcalc("ledger", "--dp", "8", "--ranks", "--json").json
    groups = [group for group in inside["ranks"] if group["group"] == "tp"]
    assert [group["ranks"] for group in groups] == [list(range(i, i + 8)) for i in range(0, 64, 8)]
    assert {group["level"] for group in groups} == {"nvlink"}
    assert {len(group["crossings"]) for group in groups} == {0}


def test_ranks_show_where_a_group_crosses() -> None:
    document = run_commcalc(
        "ledger", "--model", "gpt3-175b", "--hardware", "h100", "--tp", "16", "--ranks", "--json"
    ).json
    (group,) = document["ranks"]
    assert group["domains"] == [list(range(8)), list(range(8, 16))]
    assert (group["level"], group["crossings"]) == ("infiniband", [[7, 8], [15, 0]])


def test_tensors_hold_what_a_developer_writes_in_view() -> None:
    document = run_commcalc("ledger", "--sp", "--tensors", "--json").json
    by_name = {(line["part"], line["pass"], line["tensor"]): line for line in document["tensors"]}
    query = by_name["block", "forward", "Q[T, N_tp, H]"]
    assert (query["local_shape"], query["local_heads"], query["state"]) == ([8192, 8, 128], 8, "sharded")
    key = by_name["block", "forward", "K[T, K_tp, H]"]
    assert (key["local_shape"], key["local_heads"]) == ([8192, 1, 128], 1)
    assert by_name["block", "weight", "Wq[D, N_tp, H]"]["split"] == "column"
    assert by_name["block", "weight", "Wo[N_tp, H, D]"]["split"] == "row"
    assert by_name["block", "forward", "Y[T, D]{U_tp}"]["state"] == "partial"
    assert by_name["block", "forward", "X[T_tp, D]"]["local_shape"] == [1024, 8192]
    assert by_name["block", "backward", "dWgate[D, F_tp]"]["local_bytes"] == 8192 * 28672 // 8 * 4
    text = run_commcalc("ledger", "--tensors").out
    assert "Tensors as one device holds them (8 query heads, 1 KV heads)" in text


def test_jsonl_and_csv_hold_the_rows() -> None:
    document = run_commcalc("ledger", "--json").json
    lines = [json.loads(line) for line in run_commcalc("ledger", "--format", "jsonl").out.splitlines()]
    assert lines == document["rows"]
    table = list(csv.DictReader(io.StringIO(run_commcalc("ledger", "--format", "csv").out)))
    assert [int(row["wire_bytes"]) for row in table] == [row["wire_bytes"] for row in document["rows"]]
    assert list(table[0]) == ROW_FIELDS


def test_markdown_is_tables() -> None:
    out = run_commcalc("ledger", "--format", "markdown").out
    assert "| pass, operation | collective | group | payload bytes | wire bytes |" in out
    assert "| --- | --- | --- | ---: | ---: |" in out


def test_output_is_the_same_in_any_locale_and_from_any_directory(tmp_path: Path) -> None:
    usual = run_commcalc("ledger", "--explain")
    other = run_commcalc(
        "ledger", "--explain", cwd=tmp_path, LC_ALL="C", PYTHONIOENCODING="latin-1", COLUMNS="40", PYTHONHASHSEED="7"
    )
    assert usual == other
    assert usual.out.isascii()


def test_model_names_match_ignoring_case_and_marks() -> None:
    for name in ("llama-3-70b", "Llama_3.70B", "llama370b", "META-LLAMA-3-70B"):
        assert run_commcalc("ledger", "--model", name, "--json").json["inputs"]["model"]["name"] == "llama-3-70b"
    assert run_commcalc("ledger", "--hardware", "A100", "--json").json["inputs"]["hardware"]["name"] == "a100-80g-sxm"


def test_few_fields_are_enough_and_what_is_missing_is_asked_for_by_name() -> None:
    assert run_commcalc("ledger", "--model", "{hidden_size: 64, num_hidden_layers: 2}", "--tp", "2").status == 0
    ran = run_commcalc("ledger", "--model", "{hidden_size: 64}", "--tp", "2")
    assert (ran.status, ran.err.splitlines()[0]) == (
        2,
        "error: the model does not give num_hidden_layers, needed for a stage and a step",
    )
    ran = run_commcalc("ledger", "--model", "{num_hidden_layers: 2}", "--tp", "2")
    assert "does not give hidden_size" in ran.err
    ran = run_commcalc("ledger", "--model", "{hidden_size: 64, num_hidden_layers: 2}", "--tensors")
    assert ran.status == 2
    for key in ("intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"):
        assert f"the model does not give {key}, needed for the list of tensors" in ran.err


def test_what_a_sparse_model_was_taken_for_is_said() -> None:
    document = run_commcalc("ledger", "--model", "{hidden_size: 64, num_hidden_layers: 2}", "--tp", "2", "--json").json
    said = "\n".join(document["assumptions"])
    assert "the model does not say, so taken as in Llama: gated_mlp true, norm rmsnorm" in said
    assert "not given, so not checked for divisibility: heads, kv_heads, ffn" in said
    assert "vocab_size is not given: embedding, final norm, head and loss are left out" in said


def test_row_parallel_biases_are_noted() -> None:
    said = "\n".join(run_commcalc("ledger", "gpt3-175b-a100", "--json").json["assumptions"])
    assert "bias bo of out_proj is added once, after Y is reduced; before, it would count 8 times" in said
    assert "bias bdown of down_proj is added once, after P is reduced; before, it would count 8 times" in said
    assert "bias" not in "\n".join(run_commcalc("ledger", "--json").json["assumptions"])


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--zero", "3", "--dp", "2", "--phase", "prefill"), "--zero: no gradients are summed outside of training"),
        (("--bucket", "1MiB"), "--bucket: it is for gradients of ZeRO 0 to 2"),
        (("--dp", "2", "--zero", "1", "--no-reshard"), "--reshard: it is for ZeRO 3 in training"),
        (("--dp", "2", "--no-defer-all-reduce"), "--no-defer-all-reduce: there are no copies of shards"),
        (("--schedule", "zb1p"), "--schedule: there is one pipeline stage"),
        (("--cp-comm", "ulysses"), "--cp-comm: no sequence is split"),
        (("--dispatch", "all_gather", "--imbalance", "1"), "--dispatch: no tokens are sent to experts"),
    ],
)
def test_options_that_change_nothing_are_told(args: tuple[str, ...], told: str) -> None:
    ran = run_commcalc("ledger", "--model", "llama-3-8b", *args)
    assert ran.status == 0
    assert f"warning: {told}" in ran.err
    assert "[option-without-effect]" in ran.err


def test_a_data_parallel_rank_holds_a_whole_microbatch() -> None:
    """4096 tokens of 4096 in bf16 whatever dp is; dp deals out sequences, not tokens of a microbatch."""
    for degrees in ((), ("--dp", "2"), ("--dp", "3")):
        lines = run_commcalc("ledger", "--model", "llama-3-8b", *degrees, "--tensors", "--json").json["tensors"]
        shape = next(one["local_shape"] for one in lines if one["tensor"] == "X[T, D]")
        assert shape == [4096, 4096]


def test_stages_that_do_not_lie_along_a_ring_are_priced_as_neighbours() -> None:
    """Three stages on a ring of 8: 4096 x 4096 x 2 bytes. The first two share a package
    of two, so the second sends over xgmi, and that is the slower."""
    question = ("ledger", "--model", "llama-3-8b", "--hardware", "mi250x", "--pp", "3", "--json")
    sends = [row for row in run_commcalc(*question).json["rows"] if row["group"] == "pp"]
    assert [(row["op"], row["payload_bytes"], row["level"]) for row in sends] == [
        ("send activation", 4096 * 4096 * 2, "xgmi"), ("send gradient", 4096 * 4096 * 2, "xgmi"),
    ]  # fmt: skip
