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
from commcalc.transformer.layout import KvPolicy, LayoutName, lay_out
from commcalc.transformer.parameters import active_parameters, parameters
from commcalc.transformer.spec import Model, NormPlacement, Positions, QkNorm
from conftest import DATA

DATA_OF = yaml.safe_load((DATA / "parameters.yaml").read_text())["models"]
EXACT = {name: counts["transformers"] for name, counts in DATA_OF.items() if counts["transformers"]}
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
    assert parameters(model(name)) == active_parameters(model(name)) == EXACT[name]


@pytest.mark.parametrize("name", [name for name, counts in DATA_OF.items() if counts["published"]])
def test_published_totals_differ_only_by_what_is_known(name: str) -> None:
    assert DATA_OF[name]["published"] - parameters(model(name)) == BESIDES.get(name, 0)


@pytest.mark.parametrize("name", ANNOUNCED)
def test_models_of_papers(name: str) -> None:
    assert parameters(model(name)) == pytest.approx(ANNOUNCED[name], rel=1e-3)


def test_every_packaged_model_is_counted() -> None:
    assert names("model") == sorted({*EXACT, *ANNOUNCED})


def test_the_fused_projection_has_the_same_parameters() -> None:
    spec = model("llama-3-70b")
    layout = lay_out(LayoutName.MEGATRON, Mesh.of({"tp": 16}), spec.num_key_value_heads, KvPolicy.GATHER)
    fused = weights(block_program(spec, layout), spec.dims)
    plain = lay_out(LayoutName.MEGATRON, Mesh.of({"tp": 8}), spec.num_key_value_heads, KvPolicy.REFUSE)
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
