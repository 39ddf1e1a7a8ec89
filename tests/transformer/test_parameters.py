"""Exact parameter counts of the packaged models, added up from the weights of the derived programs."""

from __future__ import annotations

from math import prod

import pytest
import yaml

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.program import Program, Role
from commcalc.catalog.models import read_model
from commcalc.catalog.presets import load, names
from commcalc.errors import CommcalcError
from commcalc.transformer.block import block_program
from commcalc.transformer.layout import KvPolicy, LayoutName, kv_counts, lay_out
from commcalc.transformer.parameters import active_parameters, parameters, prediction_parameters
from commcalc.transformer.spec import Model, NormPlacement, Positions, QkNorm
from conftest import DATA

DATA_OF = yaml.safe_load((DATA / "parameters.yaml").read_text())["models"]
# Parts that no field describes.
UNCOUNTED = ("deepseek-v4-flash", "deepseek-v4-pro", "kimi-k3", "nemotron-3-nano-30b-a3b")
EXACT = {
    name: counts["transformers"] for name, counts in DATA_OF.items() if counts["transformers"] and name not in UNCOUNTED
}
# What a published total holds besides the model's parameters.
BESIDES = {
    "gpt-j-6b": 2_498_560,  # the model card counts 610 * 4096 more than the class has; why is not known
    "falcon-7b": 65_024 * 4_544,  # an lm_head stored beside the tied table
    "falcon-40b": 65_024 * 8_192,
    "falcon-180b": 65_024 * 14_848,
    "llama-2-7b": 32 * 64,  # rotary buffers
    "llama-2-13b": 40 * 64,
    "qwen3-0.6b": 151_936 * 1_024,  # the tied head stored twice
    "gemma-3-4b": 419_816_304,  # the vision tower and its projector
    "gemma-3-12b": 421_290_864,
    "gemma-3-27b": 423_060_336,
    "llama-4-scout": 871_932_416,
    "llama-4-maverick": 871_932_416,
    # Score corrections of every expert, which are buffers.
    "deepseek-v3": 58 * 256,
    "deepseek-r1": 58 * 256,
    "kimi-k2": 60 * 384 + 3_416,  # and 61 * 56 more, which are not known
    "minimax-m2.5": 62 * 256 + 13_880_064,  # and the scales of FP8 blocks
}
# Totals that hold the prediction layer too: its score corrections, and copies of embedding and head.
PREDICTING = {
    "glm-4.5": 90 * 160 + 2 * 151_552 * 5_120,
    "glm-4.5-air": 46 * 128 + 2 * 151_552 * 4_096,
    "glm-5": 76 * 256,
    "glm-5.2": 76 * 256,
    "deepseek-v3.2": 59 * 256 + 2 * 129_280 * 7_168,
    "qwen3-next-80b-a3b": 0,
}
# Papers that announce a rounded number only.
ANNOUNCED = {"megatron-145b": 145.6e9, "megatron-1t": 1008.0e9, "mt-nlg-530b": 529.6e9, "palm-540b": 540.35e9}


def model(name: str) -> Model:
    found, read = read_model(load("model", name))
    assert not read.problems
    return found


def weights(program: Program, sizes: dict[str, int]) -> dict[str, int]:
    return {
        tensor.name: prod(sizes[dim] for dim in tensor.dims)
        for tensor in program.tensors.values()
        if tensor.role is Role.WEIGHT
    }


@pytest.mark.parametrize("name", EXACT)
def test_packaged_model_has_the_parameters_of_its_class(name: str) -> None:
    assert parameters(model(name)) == EXACT[name]


@pytest.mark.parametrize("name", [name for name in DATA_OF if name not in UNCOUNTED])
def test_a_token_meets_so_many_parameters(name: str) -> None:
    found = model(name)
    assert active_parameters(found) == DATA_OF[name].get("active", parameters(found))
    assert bool(found.num_experts) == ("active" in DATA_OF[name])


@pytest.mark.parametrize("name", [name for name, counts in DATA_OF.items() if counts["published"]])
def test_published_totals_differ_only_by_what_is_known(name: str) -> None:
    if name in UNCOUNTED:
        return
    found = model(name)
    more = prediction_parameters(found) + PREDICTING[name] if name in PREDICTING else BESIDES.get(name, 0)
    assert DATA_OF[name]["published"] - parameters(found) == more


@pytest.mark.parametrize("name", ANNOUNCED)
def test_models_of_papers(name: str) -> None:
    assert parameters(model(name)) == pytest.approx(ANNOUNCED[name], rel=1e-3)


def test_every_packaged_model_is_counted_or_says_why_not() -> None:
    assert names("model") == sorted({*DATA_OF, *ANNOUNCED, *UNCOUNTED})
    assert len(EXACT) >= 74
    for name in UNCOUNTED:
        with pytest.raises(CommcalcError, match="cannot be counted"):
            parameters(model(name))


def test_the_fused_projection_has_the_same_parameters() -> None:
    spec = model("llama-3-70b")
    layout = lay_out(LayoutName.MEGATRON, Mesh.of({"tp": 16}), kv_counts(spec), KvPolicy.GATHER)
    fused = weights(block_program(spec, layout), spec.dims)
    plain = lay_out(LayoutName.MEGATRON, Mesh.of({"tp": 8}), kv_counts(spec), KvPolicy.REFUSE)
    assert sum(fused.values()) == sum(weights(block_program(spec, plain), spec.dims).values())


def test_sandwich_norms_and_per_head_norms_add_their_weights() -> None:
    spec = model("llama-3-8b")
    plain = parameters(spec)
    assert parameters(spec._replace(norm_placement=NormPlacement.SANDWICH)) - plain == 32 * 2 * 4096
    assert parameters(spec._replace(norm_placement=NormPlacement.POST)) == plain
    assert parameters(spec._replace(qk_norm=QkNorm.PER_HEAD)) - plain == 32 * (32 + 8) * 128
    assert parameters(spec._replace(lm_head_bias=True)) - plain == 128_256


def test_sizes_that_are_missing_are_asked_for_together() -> None:
    with pytest.raises(CommcalcError) as refused:
        parameters(Model(hidden_size=8, num_hidden_layers=2, position_embedding=Positions.LEARNED))
    assert [problem.where for problem in refused.value.problems] == [
        "model.num_attention_heads", "model.num_key_value_heads", "model.head_dim", "model.vocab_size",
        "model.intermediate_size", "model.max_position_embeddings",
    ]  # fmt: skip
