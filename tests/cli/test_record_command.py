"""``commcalc record``: what is noted down, and measured values beside predicted ones.

Sources: user reports UR-038, UR-048, UR-058, UR-075 (tests/data/user_reports_records.yaml, each with its address): times
that users measured, and the ratios and rates that follow from them.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import DATA, Inside, Ran, run_commcalc

REPORTS = {one["id"]: one for one in yaml.safe_load((DATA / "user_reports_records.yaml").read_text())["entries"]}
SLOW = ("--model", "llama-3-70b", "--tp", "4", "--phase", "prefill", "--seq", "4096", "--bandwidth", "166.9GB/s")
BLOCK = "block forward out_proj all_reduce tp"


@pytest.fixture
def compared(inside: Inside, tmp_path: Path) -> Any:
    """``compared([(arguments of record), ...], *options)``: records made, filled in by --measured, and compared."""

    def make_and_compare(made: list[tuple[str, ...]], *options: str) -> Ran:
        files = []
        for at, arguments in enumerate(made):
            ran = inside("record", *arguments)
            assert ran.status == 0, ran.err
            path = tmp_path / f"{at}.yaml"
            path.write_text(ran.out)
            files.append(str(path))
        return inside("record", "compare", *files, *options)

    return make_and_compare


def row(ran: Ran, name: str, at: int = 0) -> dict[str, Any]:
    (found,) = [one for one in ran.json["records"][at]["rows"] if one["name"] == name]
    return dict(found)


# What is noted down


def test_a_record_has_every_field_an_experiment_should_note(inside: Inside) -> None:
    ran = inside("record", "--model", "llama-3-70b", "--hardware", "h100", "--tp", "4", "--dp", "2", "--seq", "8K")
    assert ran.status == 0
    found = yaml.safe_load(ran.out)
    assert found["schema"] == "commcalc/record/1"
    assert found["tensor_parallel"] == {"degree": 4, "groups": ["0-3", "4-7"], "groups_in_all": 2}
    assert found["microbatch"]["tokens"] == 8192
    assert found["model"] == {
        "num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
    }  # fmt: skip
    splits = {line["weight"].partition("[")[0]: line["split"] for line in found["linear_layers"]}
    assert splits == {
        "E": "row", "Wq": "column", "Wk": "column", "Wv": "column", "Wo": "row", "Wgate": "column", "Wup": "column",
        "Wdown": "row", "Wlm": "column",
    }  # fmt: skip
    (down,) = [line for line in found["linear_layers"] if line["weight"].startswith("Wdown")]
    assert (down["global_shape"], down["local_shape"]) == ([28672, 8192], [7168, 8192])
    block = [one for one in found["collectives"] if one["part"] == "block" and one["group"] == "tp"]
    # Two AllReduces forward and two backward, of T x D in bf16, 3/2 of which a rank of four sends.
    assert [(one["pass"], one["collective"]) for one in block] == [
        ("forward", "all_reduce"), ("forward", "all_reduce"), ("backward", "all_reduce"), ("backward", "all_reduce"),
    ]  # fmt: skip
    for one in block:
        assert (one["payload_bytes"], one["wire_bytes"], one["dtype"]) == (2 * 8192 * 8192, 3 * 8192 * 8192, "bf16")
        assert one["count"] == {"predicted": 1, "measured": None}
        assert one["mean_s"]["predicted"] > 0
        assert one["mean_s"]["measured"] is one["p95_s"]["measured"] is one["exposed_tail_s"]["measured"] is None
    assert set(found["correctness"]) == {"loss", "gradient_norm", "parameter_update_error"}
    assert found["correctness"]["loss"] == {"baseline": None, "measured": None}
    assert found["step"]["time_s"]["predicted"] > 0
    assert "measured: null" not in ran.out
    assert ran.out.startswith("# Fill in what is empty")


def test_predictions_are_those_of_the_ledger(inside: Inside) -> None:
    found = inside("record", "llama-3-70b-h100", "--json").json
    ledger = inside("ledger", "llama-3-70b-h100", "--json").json
    assert [one["mean_s"]["predicted"] for one in found["collectives"]] == [one["time_s"] for one in ledger["rows"]]
    assert found["step"]["comm_s"]["predicted"] == ledger["totals"]["step"]["all"]["time_s"]
    for key in ("time_s", "compute_s", "exposed_s", "bubble_s"):
        assert found["step"][key]["predicted"] == ledger["step"][key]


@pytest.mark.parametrize("job", ["deepseek-v3-h800", "mixtral-8x7b-h100", "llama-3.1-405b-16k-gpus"])
def test_every_kind_of_job_has_a_record_that_is_read_again(job: str, inside: Inside, tmp_path: Path) -> None:
    ran = inside("record", job, "--measured", "step.time_s=1s")
    assert ran.status == 0
    (tmp_path / "r.yaml").write_text(ran.out)
    assert inside("record", "compare", str(tmp_path / "r.yaml")).status in (0, 1)


# Compared with what users measured


def test_a_record_of_measured_calls_gives_the_ratios_of_the_report(compared: Any) -> None:
    """UR-058: 603 us a call over NVLink, 11,369 us over PCIe: 166.9 and 8.85 GB/s, and a gap end to end of +8 %."""
    report = REPORTS["UR-058"]
    inputs = report["inputs"]
    # What is no collective: the faster run without its 160 calls.
    compute = inputs["e2e_ms"][0] - 160 * inputs["nvlink_us"] / 1e3
    made = [
        (*SLOW, "--measured", f"collectives.block.mean_s={call}us", "--measured", f"step.time_s={whole}ms",
         "--measured", f"step.compute_s={compute}ms")
        for call, whole in zip((inputs["nvlink_us"], inputs["pcie_us"]), inputs["e2e_ms"], strict=True)
    ]  # fmt: skip
    ran = compared(made, "--json")
    assert ran.status == 1
    fast, slow = row(ran, BLOCK, 0), row(ran, BLOCK, 1)
    assert fast["payload_bytes"] == report["expect"]["message_bytes"]
    assert 4 * fast["wire_bytes"] == report["expect"]["total_all_gpus_bytes"]
    assert fast["busbw_bytes_per_s"] == pytest.approx(166.9e9, rel=1e-3)
    assert slow["busbw_bytes_per_s"] == pytest.approx(8.854e9, rel=1e-3)
    assert fast["ratio"] == pytest.approx(1, rel=1e-3)
    assert slow["ratio"] == pytest.approx(11369 / 603.1, rel=1e-3)
    assert (fast["off"], slow["off"]) == (False, True)
    times = [one["groups"][0]["measured"] for one in ran.json["records"]]
    assert [1e3 * time for time in times] == pytest.approx(
        [report["expect"]["at_166_9"], report["expect"]["time_ms"]], rel=1e-3
    )
    implied = [one["implied"]["comm_s"] for one in ran.json["records"]]
    assert (implied[1] - implied[0]) / (times[1] - times[0]) == pytest.approx(1.08, abs=0.005)
    first, second = ran.json["records"]
    assert first["passed"]
    assert first["said"][0] == "tp is as predicted: 0.9998 times the time, 166.9 GB/s busbw"
    assert second["said"][0] == "tp is off: 18.85 times the predicted time, 8.854 GB/s busbw against 166.9 GB/s"


def test_a_step_that_compute_and_predicted_communication_explain(compared: Any) -> None:
    """UR-048: 206 GB at 160 GB/s are 1.288 s beside 3.763 s of compute; 5.245 s were measured, 4 % more."""
    report = REPORTS["UR-048"]
    tp1, tp4 = report["inputs"]["tp1"], report["inputs"]["tp4"]
    tokens = tp4["gbs"] * report["inputs"]["seq"]
    compute = tokens / (8 * tp1["tok_s_gpu"])
    run = (
        "--model",
        "llama-2-7b",
        "--tp",
        "4",
        "--dp",
        "2",
        "--seq",
        "4096",
        "--global-batch",
        "64",
        "--bandwidth",
        "160GB/s",
    )
    ran = compared(
        [(*run, "--measured", f"step.time_s={tp4['iter_ms']}ms", "--measured", f"step.compute_s={compute}s")], "--json"
    )
    assert ran.status == 0
    rows = ran.json["records"][0]["rows"]
    block = [one for one in rows if one["group"] == "tp" and one["name"].startswith("block")]
    assert sum(one["wire_bytes"] * one["count_in_step"] for one in block) == report["expect"]["wire_bytes_per_gpu"]
    predicted = sum(one["predicted_s"] * one["count_in_step"] for one in block)
    assert predicted == pytest.approx(report["expect"]["time_s"], rel=0.01)
    implied = ran.json["records"][0]["implied"]
    assert implied["explained_s"] == pytest.approx(report["expect"]["plus_compute_s"], rel=0.05)
    assert implied["step_ratio"] == pytest.approx(5.245 / 5.05, abs=0.03)


def test_backwards_from_a_step_alone(compared: Any, inside: Inside) -> None:
    """UR-075: what TP adds to a chunk of 2048 tokens came over a link of 1.2 GB/s."""
    report = REPORTS["UR-075"]
    fast, slow = report["inputs"]["tok_s"]
    chunk = report["inputs"]["chunk"]
    run = ("--model", "llama-2-70b", "--tp", "2", "--phase", "prefill", "--seq", str(chunk))
    ran = compared(
        [(*run, "--measured", f"step.time_s={chunk / slow}s", "--measured", f"step.compute_s={chunk / fast / 2}s")],
        "--json",
    )
    assert ran.status == 0
    # The embedding's AllReduce is counted beside the 160 of the report.
    gbs = ran.json["records"][0]["implied"]["busbw_bytes_per_s"] / 1e9
    assert gbs * 160 / 161 == pytest.approx(report["expect"]["effective_gbs"], rel=2e-3)
    each = row(ran, BLOCK)["implied_s"]
    assert each == pytest.approx(33554432 / gbs / 1e9, rel=1e-3)
    solved = inside("solve", "bandwidth", *run, "--time", "4.43s", "--scope", "stage", "--json")
    assert f"{report['expect']['effective_gbs']:.2f}" in f"{json.dumps(solved.json)}"


def test_one_payload_over_one_two_and_four_nodes(inside: Inside) -> None:
    """UR-038: 1.6 GB on 8 ranks in 363, 173, 132 ms."""
    report = REPORTS["UR-038"]
    expected = {"363ms": report["expect"]["busbw_gbs"]} | {
        f"{ms}ms": gbs for ms, gbs in report["expect"]["others"].items()
    }
    for time, gbs in expected.items():
        ran = inside("busbw", "all_reduce", "--group-size", "8", "--bytes", "1.6GB", "--time", time, "--json")
        assert ran.json["busbw_bytes_per_s"] / 1e9 == pytest.approx(gbs, abs=0.01)


# Whether it is the network


JOB = ("--model", "llama-3-8b", "--hardware", "h100", "--tp", "8")


def predicted(inside: Inside) -> dict[str, Any]:
    return dict(inside("record", *JOB, "--json").json)


def test_a_slow_step_with_calls_as_predicted_is_not_the_network(compared: Any, inside: Inside) -> None:
    found = predicted(inside)
    measured = [
        option
        for one in found["collectives"]
        for option in ("--measured", f"collectives.{one['name']}.mean_s={one['mean_s']['predicted']}")
    ]
    whole = 1.5 * found["step"]["time_s"]["predicted"]
    ran = compared([(*JOB, *measured, "--measured", f"step.time_s={whole}s")], "--json")
    assert ran.status == 1
    (record,) = ran.json["records"]
    assert record["off"] == ["step.time_s"]
    assert any(said.startswith("not the network: what was measured of it is as predicted") for said in record["said"])
    compute = 1.5 * found["step"]["compute_s"]["predicted"]
    ran = compared([(*JOB, "--measured", f"step.time_s={whole}", "--measured", f"step.compute_s={compute}")], "--json")
    assert "compute takes 1.5 times what is predicted: that is not the network" in ran.json["records"][0]["said"]


def test_the_group_that_is_off_is_named(compared: Any, inside: Inside) -> None:
    run = ("--model", "llama-3-8b", "--hardware", "h100", "--tp", "4", "--dp", "4")
    found = inside("record", *run, "--json").json
    measured: list[str] = []
    for one in found["collectives"]:
        time = one["mean_s"]["predicted"] * (3 if one["group"] == "dp" else 1)
        measured += ["--measured", f"collectives.{one['name']}.mean_s={time}"]
    ran = compared([(*run, *measured)], "--json")
    said = {line.split(" ")[0]: line for line in ran.json["records"][0]["said"]}
    assert (ran.status, said["dp"].startswith("dp is off: 3 times"), "as predicted" in said["tp"]) == (1, True, True)
    assert compared([(*run, *measured)], "--tolerance", "200%").status == 0
    assert compared([(*run, *measured)], "--tolerance", "199%").status == 1


def test_another_count_and_other_results_are_off(compared: Any) -> None:
    ran = compared([(*JOB, "--measured", f"collectives.{BLOCK}.count=2")], "--json")
    assert (ran.status, ran.json["records"][0]["off"]) == (1, [f"count of {BLOCK}"])
    ran = compared([(*JOB, "--measured", "correctness.parameter_update_error=0.2")], "--json")
    assert ran.json["records"][0]["off"] == ["correctness.parameter_update_error"]


def test_loss_beside_its_baseline(inside: Inside, tmp_path: Path) -> None:
    text = inside("record", *JOB).out.replace(
        "loss:\n    baseline:\n    measured:", "loss:\n    baseline: 2.0\n    measured: 2.5"
    )
    (tmp_path / "r.yaml").write_text(text)
    ran = inside("record", "compare", str(tmp_path / "r.yaml"), "--json")
    assert ran.json["records"][0]["correctness"]["loss"] == {"baseline": 2.0, "measured": 2.5, "ratio": 1.25}
    assert ran.status == 1
    assert inside("record", "compare", str(tmp_path / "r.yaml"), "--tolerance", "25%").status == 0


def test_several_degrees_side_by_side(compared: Any) -> None:
    runs = [("--model", "llama-3-8b", "--hardware", "h100", "--tp", str(tp), "--measured", f"step.time_s={time}s")
            for tp, time in ((2, 0.8), (4, 0.5))]  # fmt: skip
    ran = compared(runs, "--json", "--tolerance", "999%")
    assert [line["degree"] for line in ran.json["degrees"]] == [2, 4]
    assert [line["measured_speedup"] for line in ran.json["degrees"]] == [1.0, 1.6]
    first, second = (line["predicted_s"] for line in ran.json["degrees"])
    assert ran.json["degrees"][1]["predicted_speedup"] == first / second
    assert "Steps side by side" in compared(runs).out


def test_what_is_missing_is_listed(compared: Any) -> None:
    ran = compared([(*JOB, "--measured", f"collectives.{BLOCK}.mean_s=1ms")], "--json")
    missing = ran.json["records"][0]["missing"]
    assert f"collectives.{BLOCK}.p95_s.measured" in missing
    assert f"collectives.{BLOCK}.mean_s.measured" not in missing
    assert "step.time_s.measured" in missing
    table = compared([(*JOB, "--measured", f"collectives.{BLOCK}.mean_s=1ms")]).out
    assert "not measured: count of 9 of 9 collectives, mean_s of 8 of 9 collectives" in table


def test_formats(compared: Any) -> None:
    run = [(*JOB, "--measured", f"collectives.{BLOCK}.mean_s=1ms")]
    records = list(csv.DictReader(io.StringIO(compared(run, "--format", "csv").out)))
    assert {one["name"]: one["measured_s"] for one in records}[BLOCK] == "0.001"
    assert len(compared(run, "--format", "jsonl").out.splitlines()) == len(records) == 9
    assert f"| {BLOCK} |" in compared(run, "--format", "markdown").out


def test_a_pipe_from_one_to_the_other(tmp_path: Path) -> None:
    made = run_commcalc("record", *JOB, "--measured", "step.time_s=1s", "--json", cwd=tmp_path)
    ran = run_commcalc("record", "compare", "-", "--json", stdin=made.out, cwd=tmp_path)
    assert (ran.status, ran.json["records"][0]["file"]) == (1, "stdin")


# Errors


def changed(inside: Inside, path: Path, *replaced: tuple[str, str]) -> Ran:
    text = inside("record", *JOB, "--measured", "step.time_s=1s").out
    for old, new in replaced:
        assert old in text, old
        text = text.replace(old, new, 1)
    path.write_text(text)
    return inside("record", "compare", path.name)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("record/1", "record/2", "schema 'commcalc/record/2': this reads commcalc/record/1"),
        ("schema: commcalc/record/1\n", "", "no schema: this reads commcalc/record/1"),
        ("measured: 1s", "measured: .nan", "'.nan' is no time"),
        ("measured: 1s", "measured: inf", "'inf' is no time"),
        ("measured: 1s", "measured: -1", "-1 is negative"),
        ("measured: 1s", "measured: 0", "a measured time of zero"),
        ("measured: 1s", "measured: 5 GB", "unknown unit 'GB' in '5 GB': the field is in seconds"),
        ("measured: 1s", "measured: [1]", "one number is expected here"),
        ("measured: 1s", "meassured: 1s", "unknown key in step.time_s 'meassured'"),
        ("measured: 1s", "measured:", "nothing in this record is measured"),
        ("  loss:", "  los:", "unknown key in correctness 'los'"),
        ("  compute_s:", "  comput_s:", "unknown key in step 'comput_s'"),
        ("  mean_s:", "  men_s:", "unknown key in a collective 'men_s'"),
        ("  payload_bytes:", "  payload_byte:", "no payload_bytes"),
        ("step:\n", "stp:\n", "unknown key in the record 'stp'"),
        ("step:\n", "stp:\n", "no section step"),
        ("collectives:\n", "collectives: 4\nnotes:\n", "no list of collectives"),
        ("- name: block forward down_proj all_reduce tp", f"- name: {BLOCK}", f"two collectives are called '{BLOCK}'"),
        ("  degree: 8", "  degree: x", "'x' is no whole number"),
    ],
)
def test_a_record_that_cannot_be_read(
    old: str, new: str, message: str, inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = changed(inside, tmp_path / "r.yaml", (old, new))
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
    assert "  at r.yaml" in ran.err


def test_all_that_is_wrong_is_told_at_once(inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = changed(
        inside, tmp_path / "r.yaml", ("measured: 1s", "measured: nan"), ("  loss:", "  los:"), ("  mean_s:", "  men_s:")
    )
    assert ran.err.count("error: ") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare",), "no records to compare"),
        (("compare", "nosuch.yaml"), "cannot be read"),
        (("compare", "nosuch.yaml", "--tolerance", "10"), "'10' is above 1 and has no %"),
        (("compare", "nosuch.yaml", "--tolerance", "nan%"), "'nan%' is no share"),
        (("compare", "nosuch.yaml", "--tp", "8"), "--tp is for making a record"),
        (("gpt3-175b-a100", "--tolerance", "10%"), "a tolerance is for comparing"),
        (("gpt3-175b-a100", "other"), "one record is of one job"),
        (("gpt3-175b-a100", "--format", "csv"), "a record is YAML or JSON"),
        (("gpt3-175b-a100", "--measured", "step.tim_s=1s"), "did you mean step.time_s"),
        (("gpt3-175b-a100", "--measured", "step.time_s=1GB"), "unknown unit 'GB'"),
        (("gpt3-175b-a100", "--measured", "step.time_s=nan"), "'nan' is no time"),
        (("gpt3-175b-a100", "--measured", "collectives.blok.mean_s=1s"), "unknown measured field"),
        (("gpt3-175b-a100", "--measured", "model.hidden_size=1"), "unknown measured field"),
        (("nosuch",), "unknown job preset 'nosuch'"),
    ],
)
def test_arguments_that_do_not_go_together(arguments: tuple[str, ...], message: str, inside: Inside) -> None:
    ran = inside("record", *arguments)
    assert ran.status == 2
    assert message in ran.err


def test_a_job_that_is_not_legal(inside: Inside) -> None:
    assert inside("record", "--model", "llama-2-13b", "--tp", "3").status == 3
