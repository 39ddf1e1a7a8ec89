"""``commcalc presets``: the list, one in full, checking files, importing."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from pathlib import Path

import pytest
import yaml

from commcalc.catalog.imports import preset_text
from commcalc.catalog.models import read_model
from commcalc.catalog.presets import load
from commcalc.transformer.parameters import active_parameters, parameters
from conftest import DATA, run_commcalc

CONFIGS = sorted((DATA / "configs").glob("*.json"))
PUBLISHED = yaml.safe_load((DATA / "parameters.yaml").read_text())

LARGEST = {
    "megatron-1t", "mt-nlg-530b", "palm-540b", "deepseek-r1", "deepseek-v3", "deepseek-v3.2", "glm-5", "glm-5.2",
    "kimi-k2", "kimi-k2.5",
}  # fmt: skip


def test_list_names_every_file_with_size_family_and_source() -> None:
    found = run_commcalc("presets", "list", "--json").json["presets"]
    by_name = {(one["kind"], one["name"]): one for one in found}
    assert len(by_name) == len(found) == 83 + 38 + 10
    assert by_name["model", "llama-3-70b"] == {
        "kind": "model", "name": "llama-3-70b", "aliases": ["meta-llama-3-70b"], "family": "llama", "size": "70.55B",
        "parameters": 70_553_706_496, "confidence": "high", "origin": "packaged",
    }  # fmt: skip
    assert by_name["hardware", "h100-sxm"]["size"] == "nvlink 450 GB/s x 8; infiniband 50 GB/s"
    assert by_name["job", "gpt3-175b-a100"]["size"] == "gpt3-175b on a100-80g-sxm"


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (["gpt2"], {"gpt2", "gpt2-xl"}),
        (["GPT2*"], {"gpt2", "gpt2-xl"}),
        (["h100-sxm5"], {"h100-sxm"}),
        (["--family", "falcon"], {"falcon-7b", "falcon-40b", "falcon-180b"}),
        (
            ["--kind", "job"],
            {
                "deepseek-v3-h800",
                "example-h8192",
                "gpt-oss-120b-h100",
                "gpt3-175b-a100",
                "llama-3-70b-h100",
                "llama-3.1-405b-128k-context",
                "llama-3.1-405b-16k-gpus",
                "llama-3.1-405b-8k-gpus",
                "mixtral-8x7b-h100",
                "qwen3-235b-a22b-h100",
            },
        ),
        (
            ["--min-size", "500B"],
            {
                "megatron-1t",
                "mt-nlg-530b",
                "palm-540b",
                "deepseek-r1",
                "deepseek-v3",
                "deepseek-v3.2",
                "glm-5",
                "glm-5.2",
                "kimi-k2",
                "kimi-k2.5",
            },
        ),
        (["--max-size", "600M"], {"gpt2", "qwen2.5-0.5b", "qwen3-0.6b"}),
        (["--source", "user"], set()),
    ],
)
def test_list_is_filtered(args: list[str], wanted: set[str]) -> None:
    ran = run_commcalc("presets", "list", *args, "--json")
    assert (ran.status, {one["name"] for one in ran.json["presets"]}) == (0, wanted)


def test_list_in_every_format() -> None:
    formats = {style: run_commcalc("presets", "list", "h100", "--format", style).out for style in
               ("table", "json", "jsonl", "csv", "markdown")}  # fmt: skip
    names = [one["name"] for one in json.loads(formats["json"])["presets"]]
    assert names == [
        "h100-pcie", "h100-sxm", "gpt-oss-120b-h100", "llama-3-70b-h100", "mixtral-8x7b-h100", "qwen3-235b-a22b-h100"
    ]  # fmt: skip
    assert [json.loads(line)["name"] for line in formats["jsonl"].splitlines()] == names
    assert [row["name"] for row in csv.DictReader(io.StringIO(formats["csv"]))] == names
    assert all(f"| {name} |" in formats["markdown"] and f"\n{name} " in formats["table"] for name in names)


def test_nothing_found_is_an_empty_list_and_a_word() -> None:
    ran = run_commcalc("presets", "list", "zzz")
    assert ran == (0, "", "no preset matches\n")


def test_show_has_the_values_and_what_follows_from_them() -> None:
    shown = run_commcalc("presets", "show", "Llama3 70B", "--json").json
    assert (shown["schema"], shown["kind"], shown["name"]) == ("commcalc/preset/1", "model", "llama-3-70b")
    values = {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
              "head_dim": 128, "intermediate_size": 28672, "gated_mlp": True, "vocab_size": 128256,
              "tie_word_embeddings": False, "parallel_block": False, "num_experts": 0, "num_experts_per_tok": 0,
              "moe_intermediate_size": 0, "moe_layers": 0}  # fmt: skip
    assert values.items() <= shown["values"].items()
    assert shown["derived"] == {
        "parameters": 70_553_706_496, "active_parameters": 70_553_706_496,
        "parameter_bytes": {"fp32": 282_214_825_984, "bf16": 141_107_412_992, "fp8": 70_553_706_496},
        "legal_tp": [1, 2, 4, 8], "not_priced_yet": [], "prediction_parameters": 0, "layers": {"block": 80},
        "kv_cache_bytes_per_token": 2 * 80 * 8 * 128 * 2,
    }  # fmt: skip
    assert "litgpt" in shown["sources"]["hidden_size"]


def test_show_of_hardware_is_in_si_units_with_a_source_for_every_value() -> None:
    shown = run_commcalc("presets", "show", "h100", "--json").json
    assert shown["values"]["network"][0]["bandwidth_bytes_per_s"] == 450e9
    assert shown["values"]["chip"]["hbm_bytes"] == 80_000_000_000
    # 989 TFLOP/s over 3.35 TB/s and over 450 GB/s.
    assert shown["derived"]["flops_per_hbm_byte"]["bf16"] == pytest.approx(295.22, abs=0.01)
    assert shown["derived"]["flops_per_network_byte"]["nvlink"]["bf16"] == pytest.approx(2197.8, abs=0.1)
    assert "18 links of 25 GB/s" in shown["sources"]["network.nvlink.bandwidth_bytes_per_s"]


def test_show_of_a_job() -> None:
    shown = run_commcalc("presets", "show", "gpt3-175b-a100", "--json").json
    assert (shown["kind"], shown["derived"]["devices"], shown["derived"]["tokens_per_microbatch"]) == ("job", 8, 2048)
    assert shown["values"]["parallelism"] == {"tp": 8}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_show_reads_what_the_ledger_cannot_price(path: Path) -> None:
    shown = run_commcalc("presets", "show", str(path), "--json")
    model, _ = read_model(load("model", str(path)))
    derived = shown.json["derived"]
    assert shown.status == 0
    assert (derived["parameters"], derived["active_parameters"]) == (parameters(model), active_parameters(model))
    priced = run_commcalc("ledger", "--model", str(path), "--seq", "1024")
    assert (priced.status == 2) == bool(derived["not_priced_yet"])
    for part in derived["not_priced_yet"]:
        assert f"error: the ledger cannot price this yet: {part}" in priced.err


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_an_imported_preset_is_the_same_model(path: Path, tmp_path: Path) -> None:
    written = tmp_path / "imported.yaml"
    ran = run_commcalc("presets", "import", str(path), "--name", "imported", "--output", str(written))
    assert (ran.status, ran.out, ran.err) == (0, "", f"wrote imported to {written}\n")
    model, read = read_model(load("model", str(written)))
    original, _ = read_model(load("model", str(path)))
    assert (read.problems, model) == ([], original._replace(name="imported"))
    assert parameters(model) == parameters(original)
    assert yaml.safe_load(written.read_text())["sources"]["hidden_size"].startswith(f"{path.name}:")


def test_import_prints_provenance_and_replaces_only_by_force(tmp_path: Path) -> None:
    path = DATA / "configs" / "phi-4.json"
    ran = run_commcalc("presets", "import", str(path))
    assert ran.out.startswith("name: phi-4\n")
    assert hashlib.sha256(path.read_bytes()).hexdigest() in ran.out
    there = tmp_path / "x.yaml"
    there.write_text("mine")
    refused = run_commcalc("presets", "import", str(path), "--output", str(there))
    assert (refused.status, there.read_text()) == (2, "mine")
    assert refused.err == f"error: the file is there already\n  at --output {there}\nhint: --force replaces it\n"
    assert run_commcalc("presets", "import", str(path), "-o", str(there), "--force").status == 0
    assert there.read_text() == ran.out
    nowhere = run_commcalc("presets", "import", str(path), "-o", str(tmp_path / "no" / "x.yaml"))
    assert (nowhere.status, "error: cannot be written: no such file or directory" in nowhere.err) == (2, True)


def test_import_names_the_repository_the_folder_or_the_file(tmp_path: Path) -> None:
    config = json.loads((DATA / "configs" / "phi-4.json").read_text())
    config.pop("_name_or_path", None)
    folder = tmp_path / "My_Model v2"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    assert preset_text(str(folder / "config.json"))[0] == "my-model-v2"
    (folder / "config.json").write_text(json.dumps(config | {"_name_or_path": "org/Phi-4-Mini"}))
    assert preset_text(str(folder / "config.json"))[0] == "phi-4-mini"


def test_validate_tells_every_violation_of_every_file(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "good.yaml").write_text("{hidden_size: 64, num_attention_heads: 4}")
    (tmp_path / "models" / "bad.yaml").write_text("{hiden_size: 64, num_attention_heads: -4}")
    (tmp_path / "hw.yaml").write_text("network: [{name: x, bandwidth: 450}]")
    (tmp_path / "job.yaml").write_text("{model: llama-3-70b, parallelism: {tpp: 8}}")
    ran = run_commcalc("presets", "validate", str(tmp_path), "--json")
    files = {Path(one["path"]).name: one for one in ran.json["files"]}
    assert ran.status == 2
    assert {name: (one["kind"], one["valid"]) for name, one in files.items()} == {
        "good.yaml": ("model", True), "bad.yaml": ("model", False), "hw.yaml": ("hardware", False),
        "job.yaml": ("job", False),
    }  # fmt: skip
    assert [one["message"] for one in files["bad.yaml"]["violations"]] == [
        "unknown key in model 'hiden_size'", "'-4' is not above zero",
    ]  # fmt: skip
    assert files["bad.yaml"]["violations"][0]["hint"] == "did you mean hidden_size?"
    table = run_commcalc("presets", "validate", str(tmp_path))
    assert table.status == 2
    assert "error: unknown key in parallelism 'tpp'" in table.err


def test_every_packaged_file_is_valid() -> None:
    from commcalc.catalog.presets import ROOT

    ran = run_commcalc("presets", "validate", str(ROOT), "--json")
    assert (ran.status, len(ran.json["files"])) == (0, 131)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["show", "lama-3-70b"], "error: unknown preset 'lama-3-70b'\n  at lama-3-70b\nhint: did you mean llama-3-70b"),
        (["show", "h10O"], "error: unknown preset 'h10O'\n  at h10O\nhint: did you mean h100"),
        (["show", "h100", "--kind", "model"], "error: unknown model preset 'h100'"),
        (
            ["show", "h100", "--kind", "modle"],
            "error: unknown kind 'modle'\n  at --kind modle\nhint: did you mean model?",
        ),
        (["show", ""], "error: unknown preset ''"),
        (["show", "nope.yaml"], "error: cannot be read: no such file or directory\n  at nope.yaml\n"),
        (["show"], "error: missing argument 'PRESET'"),
        (["list", "--family", "lama"], "error: unknown family 'lama'\n  at --family lama\nhint: did you mean llama"),
        (["list", "--source", "mine"], "error: unknown source 'mine'"),
        (["list", "--min-size", "7X"], "error: '7X' is no number of parameters\n  at --min-size 7X\n"),
        (
            ["list", "--max-size", "nan"],
            "error: 'nan' is no whole number\n  at --max-size nan\nhint: write it like 7B\n",
        ),
        (["validate"], "error: missing argument 'FILE...'"),
        (["validate", "nope.yaml"], "error: cannot be read: no such file or directory\n  at nope.yaml\n"),
        (["import", "nope.json"], "error: cannot be read: no such file or directory\n  at nope.json\n"),
        (["import", "nope.json", "--nam", "x"], "error: no such option: --nam"),
        (["lst"], "error: no such command 'lst'"),
    ],
)
def test_wrong_input(args: list[str], message: str) -> None:
    ran = run_commcalc("presets", *args)
    assert ran.status == 2
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_import_refuses_what_is_no_config(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"hidden_size": 4}')
    ran = run_commcalc("presets", "import", str(path))
    assert (ran.status, ran.out) == (2, "")
    assert "error: no config.json of Hugging Face: neither model_type nor architectures" in ran.err
    bad = run_commcalc("presets", "import", str(DATA / "configs" / "phi-4.json"), "--name", "Über")
    assert (bad.status, "is no name of a preset" in bad.err) == (2, True)


def test_an_empty_folder_is_told(tmp_path: Path) -> None:
    ran = run_commcalc("presets", "validate", str(tmp_path))
    assert ran == (2, "", f"error: no .yaml, .yml or .json file in this folder\n  at {tmp_path}\n")


def test_import_hashes_the_bytes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bom.json"
    path.write_bytes(b"\xef\xbb\xbf" + (DATA / "configs" / "phi-4.json").read_bytes())
    assert hashlib.sha256(path.read_bytes()).hexdigest() in run_commcalc("presets", "import", str(path)).out


def test_import_into_a_pipe_that_nobody_reads_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    config = str(DATA / "configs" / "phi-4.json")
    ran = run_commcalc("presets", "import", config, "--force", "-o", str(tmp_path / "pipe"))
    assert (ran.status, "error: cannot be written: no such device or address" in ran.err) == (2, True)


@pytest.mark.parametrize("name", ["glm-4.5-air", "glm-5.2", "qwen3-32b"])
def test_a_hundred_million_layers_take_no_time(name: str, tmp_path: Path) -> None:
    config = json.loads((DATA / "configs" / f"{name}.json").read_text()) | {"num_hidden_layers": 100_000_000}
    config.pop("layer_types", None)
    (tmp_path / "x.json").write_text(json.dumps(config))
    ran = run_commcalc("presets", "show", str(tmp_path / "x.json"), "--json")
    assert ran.status in (0, 2)


def test_a_file_that_only_extends_is_of_the_kind_it_extends(tmp_path: Path) -> None:
    for name, base, kind in (
        ("m", "llama-3-8b", "model"),
        ("h", "h100-sxm", "hardware"),
        ("j", "example-h8192", "job"),
    ):
        (tmp_path / f"{name}.yaml").write_text(f"extends: {base}")
        assert run_commcalc("presets", "show", str(tmp_path / f"{name}.yaml"), "--json").json["kind"] == kind


def test_wrong_files_fit_a_screen(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"m{number}.yaml").write_text("bad: 1")
    ran = run_commcalc("presets", "validate", str(tmp_path))
    assert (ran.status, len(ran.err.splitlines()) < 40) == (2, True)
    assert ran.err.endswith("error: and 50 more like these; --json lists them all\n")
    listed = run_commcalc("presets", "validate", str(tmp_path), "--json").json
    assert len([one for one in listed["files"] if one["violations"]]) == 60


def test_names_of_files_steer_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "esc\x1b[31m.yaml").write_text("bad: 1")
    ran = run_commcalc("presets", "validate", str(tmp_path))
    assert "\x1b" not in ran.out + ran.err
    assert "esc\\x1b[31m.yaml" in ran.out
    assert "esc\\x1b[31m.yaml" in ran.err


def test_a_machine_shows_times_by_payload_and_how_sure_they_are() -> None:
    """H100, AllReduce of 128 MiB over 8: 578.74 us measured; over two nodes an AllGather goes in phases, no bound."""
    found = run_commcalc("presets", "show", "h100", "--json").json["derived"]["times"]
    rows = {(one["level"], one["collective"], one["ranks"]): one for one in found}
    inside, over = rows["nvlink", "all_reduce", 8], rows["infiniband", "all_gather", 16]
    assert {one["payload_bytes"]: one["time_s"] for one in inside["times"]}[2**27] == pytest.approx(578.74e-6)
    assert [(one["confidence"], one["lower_bound"]) for one in (inside, over)] == [
        ("measured", False), ("datasheet", False),
    ]  # fmt: skip
    assert "datasheet, lower bound" in run_commcalc("presets", "show", "h20").out
