"""Packaged files: readable, sourced, named as people write them."""

from __future__ import annotations

import pytest

from commcalc.accounting.ledger import build
from commcalc.catalog.about import KEYS
from commcalc.catalog.describe import describe
from commcalc.catalog.hardware import read_hardware
from commcalc.catalog.job import Request, resolve_job
from commcalc.catalog.models import FIELDS, read_model
from commcalc.catalog.presets import aliases, load, names, preset_files, resolve
from commcalc.document import Leaf, Section
from commcalc.errors import CommcalcError, SpecError, UnknownName
from commcalc.transformer.layers import Attention, count_of

# What every model file says, whatever its family.
GIVEN = {
    "name", "family", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "gated_mlp", "norm", "attention_bias", "attention_output_bias", "mlp_bias",
    "position_embedding", "tie_word_embeddings", "parallel_block", "confidence", "sources",
}  # fmt: skip


@pytest.mark.parametrize("name", names("model"))
def test_model_gives_every_field_with_a_source(name: str) -> None:
    section = load("model", name)
    model, read = read_model(section)
    assert read.problems == []
    assert model.name == name
    assert set(section.entries) >= GIVEN
    # Where every layer holds experts and no dense MLP stands beside them, there is no other width.
    dense = model.dense_mlp_beside_moe or count_of(model, sparse=True) < (model.num_hidden_layers or 0)
    assert ("intermediate_size" in section.entries) == dense or model.undescribed
    assert set(section.entries) - {*KEYS} <= set(FIELDS)
    sources = section.entries["sources"]
    assert isinstance(sources, Section)
    assert isinstance(sources.entries["*"], Leaf)
    assert set(sources.entries) - {"*"} <= set(section.entries)


# Layers with experts, layers that attend to all tokens, and how the others attend (config.json of each repository).
LAYERS = {
    "deepseek-v3": (58, 61, None),
    "kimi-k2": (60, 61, None),
    "llama-4-scout": (48, 12, Attention.CHUNKED),
    "llama-4-maverick": (24, 12, Attention.CHUNKED),
    "gpt-oss-120b": (36, 18, Attention.SLIDING),
    "gemma-2-9b": (0, 21, Attention.SLIDING),
    "gemma-3-1b": (0, 4, Attention.SLIDING),
    "gemma-3-27b": (0, 10, Attention.SLIDING),
    "gemma-4-26b-a4b": (30, 5, Attention.SLIDING),
    "mimo-v2-flash": (47, 9, Attention.SLIDING),
    "mistral-7b-v0.1": (0, 0, Attention.SLIDING),
    "mistral-7b-v0.3": (0, 32, None),
    "minimax-text-01": (80, 10, Attention.LINEAR),
    "qwen3-next-80b-a3b": (48, 12, Attention.LINEAR),
    "qwen3.5-27b": (0, 16, Attention.LINEAR),
}


@pytest.mark.parametrize("name", LAYERS)
def test_which_layers_a_model_has(name: str) -> None:
    model, _ = read_model(load("model", name))
    sparse, full, other = LAYERS[name]
    assert (count_of(model, sparse=True), count_of(model)) == (sparse, full)
    rest = (model.num_hidden_layers or 0) - full
    assert rest == (0 if other is None else count_of(model, attention=other))


def test_models_that_no_field_describes_say_what_of_them() -> None:
    told = {name: read_model(load("model", name))[0].unpriced() for name in names("model")}
    found = {name: parts for name, parts in told.items() if parts}
    assert sorted(found) == ["deepseek-v4-flash", "deepseek-v4-pro", "kimi-k3", "nemotron-3-nano-30b-a3b"]
    words = {"deepseek-v4-flash": "compressed attention", "kimi-k3": "Kimi delta", "nemotron-3-nano-30b-a3b": "Mamba-2"}
    for name, word in words.items():
        assert word in found[name][0]
        shown = describe(name, "model")
        assert (shown.parameters, shown.size, shown.derived["not_priced_yet"]) == (None, "not counted", found[name])


@pytest.mark.parametrize("name", names("hardware"))
def test_machine_gives_a_source_for_every_value(name: str) -> None:
    section = load("hardware", name)
    hardware, sources, problems = read_hardware(section)
    assert problems == []
    assert hardware.name == name
    told = section.entries["sources"]
    assert isinstance(told, Section)
    values = {key for key in sources if not key.endswith((".name", ".topology"))}
    assert values == set(told.entries)


# Bytes per second one way per device, datasheet: 12 and 18 NVLinks of 25 GB/s; HDR 200 Gb/s and NDR 400 Gb/s ports.
RATES = {
    "a100-80g-sxm": {"nvlink": 12 * 25e9, "infiniband": 200e9 / 8},
    "h100-sxm": {"nvlink": 18 * 25e9, "infiniband": 400e9 / 8},
}


@pytest.mark.parametrize("name", RATES)
def test_rates_are_one_way_per_device(name: str) -> None:
    hardware, _, _ = read_hardware(load("hardware", name))
    assert {level.name: level.bandwidth for level in hardware.network.levels} == RATES[name]


@pytest.mark.parametrize("name", names("job"))
def test_job_has_an_answer(name: str) -> None:
    job = resolve_job(Request(job=name))
    assert build(job.model, job.parallel, job.work).rows


@pytest.mark.parametrize(
    ("kind", "given", "name"),
    [
        ("model", "llama-3-70b", "llama-3-70b"),
        ("model", "Llama3.70B", "llama-3-70b"),
        ("model", "gpt3", "gpt3-175b"),
        ("model", "command_r", "command-r-35b"),
        ("model", "DeepSeek-V3", "deepseek-v3"),
        ("model", "Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("model", "Llama-4-Scout-17B-16E-Instruct", "llama-4-scout"),
        ("model", "glm-4.5-355b-a32b", "glm-4.5"),
        ("model", "gemma4-26b-a4b-text", "gemma-4-26b-a4b"),
        ("hardware", "H100", "h100-sxm"),
        ("hardware", "a100", "a100-80g-sxm"),
        ("job", "default", "llama-3-70b-h100"),
    ],
)
def test_names_match_ignoring_case_and_marks(kind: str, given: str, name: str) -> None:
    assert resolve(kind, given).stem == name


def test_no_two_presets_share_a_name() -> None:
    for kind in ("model", "hardware", "job"):
        spelled = [*names(kind), *(alias for name in names(kind) for alias in aliases(preset_files(kind)[name]))]
        folded = [name.replace("-", "").replace(".", "").lower() for name in spelled]
        assert len({*folded}) >= len(folded) - sum(folded.count(name) - 1 for name in {*folded})
        owners: dict[str, set[str]] = {}
        for name in names(kind):
            for alias in [name, *aliases(preset_files(kind)[name])]:
                owners.setdefault(alias.replace("-", "").replace(".", "").lower(), set()).add(name)
        assert {alias: found for alias, found in owners.items() if len(found) > 1} == {}


def test_an_ambiguous_name_lists_what_it_could_be(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path)) / "models"
    folder.mkdir()
    for name in ("a-1b", "a1-b"):
        (folder / f"{name}.yaml").write_text("hidden_size: 8\n")
    monkeypatch.setattr("commcalc.catalog.presets.ROOT", Path(str(tmp_path)))
    with pytest.raises(SpecError, match="'A1B' could be a-1b or a1-b"):
        resolve("model", "A1B")
    assert resolve("model", "a1-b").stem == "a1-b"


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName) as refused:
        resolve("model", "lama-3-70b")
    assert "llama-3-70b" in refused.value.matches


def test_a_path_never_leaves_the_preset_folder() -> None:
    for given in ("..", "../models/llama-3-70b", ".hidden", "LLAMA\0"):
        with pytest.raises(CommcalcError):
            load("model", given)
