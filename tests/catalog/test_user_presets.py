"""Presets of one's own: folders in ``COMMCALC_PRESETS``, and files that extend others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from commcalc.catalog.hardware import Hardware, read_hardware
from commcalc.catalog.models import read_model
from commcalc.catalog.presets import VARIABLE, load, names, resolve
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
    assert nvlink == base.network.levels[0]._replace(bandwidth=370e9, measured=())  # which were of the other rate
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


def test_a_pipe_in_a_folder_is_no_preset(folder: Path) -> None:
    os.mkfifo(folder / "models" / "pipe.yaml")
    assert "pipe" not in names("model")
    assert run_commcalc("degrees", "--model", "Llama-3-70B").status == 0  # asks every file for its aliases


def test_a_long_chain_is_refused(folder: Path) -> None:
    for number in range(500):
        write(folder, f"models/m{number}.yaml", f"extends: m{number + 1}")
    write(folder, "models/m500.yaml", "extends: llama-3-8b")
    ran = run_commcalc("degrees", "--model", "m0")
    assert (ran.status, len(ran.err.splitlines())) == (2, 2)
    assert "a chain of more than 16 files that extend each other" in ran.err
    assert run_commcalc("degrees", "--model", "m486").status == 0


def test_the_same_level_twice_is_refused(folder: Path) -> None:
    levels = "[{name: nvlink, bandwidth: 1 GB/s}, {name: nvlink, bandwidth: 2 GB/s}]"
    write(folder, "hardware/twice.yaml", f"extends: h100-sxm\nnetwork: {levels}\n")
    with pytest.raises(SpecError, match="two items are called 'nvlink'"):
        load("hardware", "twice")


@pytest.mark.parametrize(
    "written", ["aliases: [\"quoted\", 'q2']", "aliases:\n- quoted\n- q2", "aliases: [quoted,\n  q2]"]
)
def test_aliases_are_read_however_they_are_written(written: str, folder: Path) -> None:
    write(folder, "models/al.yaml", f"extends: llama-3-8b\n{written}\n")
    assert [resolve("model", name).stem for name in ("quoted", "q2")] == ["al", "al"]


def test_the_notes_of_what_is_extended_say_whose_they_are(folder: Path) -> None:
    """H100's datasheet rates are not those of a file that replaces them."""
    assert machine("ours").notes.startswith("of h100-sxm: rates are the datasheet's")
