"""Presets of one's own: folders in ``COMMCALC_PRESETS``, and files that extend others."""

from __future__ import annotations

from pathlib import Path

import pytest

from commcalc.catalog.hardware import Hardware, read_hardware
from commcalc.catalog.models import read_model
from commcalc.catalog.presets import VARIABLE, load, names
from commcalc.errors import CommcalcError, SpecError
from commcalc.transformer.parameters import parameters
from conftest import run_commcalc

FILES = {
    "models/mine.yaml": "extends: llama-3-70b\nnum_hidden_layers: 4\n",
    "hardware/ours.yaml": (
        "extends: h100-sxm\nnetwork:\n- {name: nvlink, bandwidth: 370 GB/s}\n"
        "- {name: infiniband, devices: 256}\n- {name: spine, bandwidth: 12.5 GB/s, latency: 10 us}\n"
    ),
    "jobs/nightly.yaml": "extends: llama-3-70b-h100\nmodel: mine\nhardware: ours\nparallelism: {sp: true}\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        write(tmp_path, name, text)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def machine(given: str) -> Hardware:
    hardware, _, problems = read_hardware(load("hardware", given))
    assert problems == []
    return hardware


def test_a_model_that_extends_differs_only_where_it_says(folder: Path) -> None:
    mine, base = (read_model(load("model", name))[0] for name in ("mine", "llama-3-70b"))
    assert mine == base._replace(name="mine", num_hidden_layers=4)
    # 76 of the 80 layers of 855,654,400 parameters are gone (8192*(8192*2 + 2*1024) + 3*8192*28672 + 2*8192).
    assert parameters(base) - parameters(mine) == 76 * 855_654_400


def test_levels_are_laid_over_each_other_by_name(folder: Path) -> None:
    ours, base = machine("ours"), machine("h100-sxm")
    assert [level.name for level in ours.network.levels] == ["nvlink", "infiniband", "spine"]
    nvlink, infiniband, spine = ours.network.levels
    assert nvlink == base.network.levels[0]._replace(bandwidth=370e9)
    assert infiniband == base.network.levels[1]._replace(devices=256)
    assert (spine.bandwidth, spine.latency_s) == (12.5e9, 10e-6)
    assert (ours.flops, ours.hbm_bytes) == (base.flops, base.hbm_bytes)


def test_null_takes_a_value_away(folder: Path) -> None:
    write(folder, "hardware/bare.yaml", "extends: h100-sxm\nchip: null\n")
    assert machine("bare").flops == {}


def test_a_job_is_extended_and_priced(folder: Path) -> None:
    ran = run_commcalc("ledger", "nightly", "--json")
    inputs = ran.json["inputs"]
    assert (ran.status, inputs["model"]["num_hidden_layers"], inputs["hardware"]["name"]) == (0, 4, "ours")
    assert (inputs["parallelism"]["tp"], inputs["parallelism"]["sp"]) == (8, True)
    # The overlaid value names the user's file and not the source of the value it covers.
    assert inputs["sources"]["model.num_hidden_layers"] == f"{folder}/models/mine.yaml:2:20"
    assert inputs["sources"]["hardware.network.nvlink.bandwidth"] == f"{folder}/hardware/ours.yaml:3:29"
    assert "litgpt" in inputs["sources"]["model.hidden_size"]


def test_a_file_extends_a_file_beside_it(folder: Path) -> None:
    write(folder, "a/base.yaml", "{hidden_size: 64, num_attention_heads: 4}")
    write(folder, "a/top.yaml", "{extends: ./base.yaml, num_attention_heads: 8}")
    model, _ = read_model(load("model", str(folder / "a" / "top.yaml")))
    assert (model.name, model.hidden_size, model.num_attention_heads) == ("top", 64, 8)


def test_fields_on_the_command_line_extend_too() -> None:
    ran = run_commcalc("ledger", "--model", "{extends: llama-3-8b, num_hidden_layers: 2}", "--tp", "2", "--json")
    assert (ran.status, ran.json["inputs"]["model"]["num_hidden_layers"]) == (0, 2)


def test_ones_own_come_first_and_keep_the_aliases_of_what_they_cover(folder: Path) -> None:
    write(folder, "hardware/h100-sxm.yaml", "extends: h100-sxm\nnetwork: [{name: nvlink, bandwidth: 370 GB/s}]\n")
    for spelled in ("h100-sxm", "h100", "H100_SXM"):
        assert machine(spelled).network.levels[0].bandwidth == 370e9
    assert names("hardware").count("h100-sxm") == 1


def test_an_earlier_folder_wins(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "first", "models/mine.yaml", "{hidden_size: 7}")
    monkeypatch.setenv(VARIABLE, f"{tmp_path / 'first'}:{folder}")
    assert read_model(load("model", "mine"))[0].hidden_size == 7


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"models/a.yaml": "extends: b", "models/b.yaml": "extends: a"}, "extends itself: a -> b -> a"),
        ({"models/a.yaml": "extends: a"}, "extends itself: a -> a"),
        ({"models/a.yaml": "extends: lama-3-70b"}, "unknown model preset 'lama-3-70b'"),
        ({"models/a.yaml": "extends: [llama-3-70b]"}, "extends names one preset or file"),
        ({"models/a.yaml": "extends:"}, "extends names one preset or file"),
        ({"models/a.yaml": "extends: ./nowhere.yaml"}, "cannot be read: no such file or directory"),
    ],
)
def test_what_cannot_be_extended(files: dict[str, str], message: str, folder: Path) -> None:
    for name, text in files.items():
        write(folder, name, text)
    with pytest.raises(CommcalcError) as refused:
        load("model", "a")
    assert refused.value.message == message
    assert str(folder) in str(refused.value.where)


def test_a_folder_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/nowhere")
    with pytest.raises(SpecError, match="no folder: /nowhere"):
        load("model", "llama-3-70b")
