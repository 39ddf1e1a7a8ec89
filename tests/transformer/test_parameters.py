"""Exact parameter counts of the packaged models, added up from the weights of the derived programs."""

from __future__ import annotations

from math import prod

import pytest

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.program import Program, Role
from commcalc.catalog.models import read_model
from commcalc.catalog.presets import load, names
from commcalc.transformer.block import block_program
from commcalc.transformer.embedding import embedding_program, head_program
from commcalc.transformer.layout import KvPolicy, LayoutName, lay_out
from commcalc.transformer.spec import Model, NormPlacement, Phase, QkNorm

# Parameters of the transformers 5.24.0 class instantiated on the meta device with these values. They equal the Hub's
# safetensors totals, but for llama-2-13b (rotary buffers: 2,560 more there) and falcon-40b (a separate lm_head besides
# the tied one: 532,676,608 more there). gpt3-175b has no public checkpoint; its paper says 174,600M.
PARAMETERS = {
    "command-r-35b": 34_980_831_232,
    "falcon-40b": 41_303_293_952,
    "gpt3-175b": 174_604_259_328,
    "llama-2-13b": 13_015_864_320,
    "llama-3-70b": 70_553_706_496,
    "llama-3-8b": 8_030_261_248,
    "phi-3-medium": 13_960_238_080,
    "qwen3-32b": 32_762_123_264,
}


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


def parameters(spec: Model, **changes: object) -> int:
    spec = spec._replace(**changes)
    layout = lay_out(LayoutName.NONE, Mesh.of({"tp": 1}), spec.num_key_value_heads, KvPolicy.REFUSE)
    ends = weights(embedding_program(spec, layout), spec.dims) | weights(
        head_program(spec, layout, Phase.TRAIN), spec.dims
    )  # a tied table has one name and counts once
    block = weights(block_program(spec, layout), spec.dims)
    return sum(ends.values()) + spec.need("num_hidden_layers", "the count") * sum(block.values())


@pytest.mark.parametrize("name", PARAMETERS)
def test_packaged_model_has_its_published_parameters(name: str) -> None:
    assert parameters(model(name)) == PARAMETERS[name]


def test_every_packaged_model_is_counted() -> None:
    assert names("model") == sorted(PARAMETERS)


def test_the_fused_projection_has_the_same_parameters() -> None:
    spec = model("llama-3-70b")
    layout = lay_out(LayoutName.MEGATRON, Mesh.of({"tp": 16}), spec.num_key_value_heads, KvPolicy.GATHER)
    fused = weights(block_program(spec, layout), spec.dims)
    plain = lay_out(LayoutName.MEGATRON, Mesh.of({"tp": 8}), spec.num_key_value_heads, KvPolicy.REFUSE)
    assert sum(fused.values()) == sum(weights(block_program(spec, plain), spec.dims).values())


def test_sandwich_norms_and_per_head_norms_add_their_weights() -> None:
    spec = model("llama-3-8b")
    assert parameters(spec, norm_placement=NormPlacement.SANDWICH) - parameters(spec) == 32 * 2 * 4096
    assert parameters(spec, norm_placement=NormPlacement.POST) == parameters(spec)
    assert parameters(spec, qk_norm=QkNorm.PER_HEAD) - parameters(spec) == 32 * (32 + 8) * 128
    assert parameters(spec, lm_head_bias=True) - parameters(spec) == 128_256
