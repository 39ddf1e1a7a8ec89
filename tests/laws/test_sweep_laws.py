"""Every line of a sweep is what the ledger says of its point, to the last digit."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commcalc.cli.grid import grid_from
from commcalc.cli.points import Points
from commcalc.errors import CommcalcError
from commcalc.report.sweep import RESULTS, Lines, at_path, whole_document
from conftest import fields

# What a parameter of the command may be listed with.
MODELS = ["llama-3-8b", "gpt3-175b", "mixtral-8x7b", "gemma-3-27b", "deepseek-v3", "qwen3-235b-a22b", "falcon-7b"]
HARDWARE = ["h100", "a100", "gb200-nvl72", "tpu-v5e", "mi300x", "b200-sxm", "v100-32g-dgx2"]
ORDER = ["sp", "tp", "cp", "ep", "pp", "dp", "zero", "schedule", "virtual_stages", "layout", "tp_x", "framework", "seq",
         "micro_batch", "global_batch", "dtype", "grad_dtype", "phase", "recompute", "attention", "dropout",
         "optimizer", "efficiency", "overlap_groups", "algorithm", "convention", "logits", "cp_comm", "bucket",
         "must_fit", "dp_shard", "imbalance", "capacity_factor", "dispatch"]  # fmt: skip


def several(*values: object) -> st.SearchStrategy[str]:
    texts = [str(value) for value in values]
    return st.lists(st.sampled_from(texts), min_size=1, max_size=3, unique=True).map(",".join)


@st.composite
def grids(draw: st.DrawFn) -> dict[str, Any]:
    """Parameters of the command, with lists in some of them."""
    params: dict[str, Any] = {"model": draw(st.sampled_from(MODELS)), "set_": []}
    if draw(st.integers(0, 5)):
        params["hardware"] = draw(several(*HARDWARE)).split(",")[0]
    lists = {
        "tp": several(1, 2, 3, 4, 8), "pp": several(1, 2, 4), "dp": several(1, 2, 3, 4, 8, 24, 32),
        "zero": several(0, 1, 2, 3),
        "cp": several(1, 2), "dp_shard": several(2, 8), "ep": several(1, 2, 4),
        "dtype": several("bf16", "fp8", "fp32"), "phase": several("train", "prefill", "decode"),
        "recompute": several("none", "selective", "full"), "attention": several("flash", "unfused"),
        "optimizer": several("adam", "sgd"), "efficiency": several(1, 0.6), "algorithm": several("auto", "ring"),
        "convention": several("exact", "textbook"), "overlap_groups": st.sampled_from(["dp,pp", "full", "none"]),
        "schedule": several("1f1b", "zb1p", "interleaved", "dualpipe"), "framework": several("megatron", "vllm", "hf"),
        "layout": several("none", "megatron", "megatron-sp", "sequence", "2d", "weight-gathered"),
        "tp_x": several(1, 2),
        "bucket": several("25MiB", "1MiB"), "imbalance": several(1, 1.5), "capacity_factor": several(1, 1.25),
        "dispatch": several("all_to_all", "deduplicated", "all_gather"), "cp_comm": several("ring", "ulysses"),
        "must_fit": st.just(True), "sp": st.booleans(), "dropout": st.booleans(),
    }  # fmt: skip
    for name in draw(st.lists(st.sampled_from(sorted(lists)), max_size=6, unique=True)):
        params[name] = draw(lists[name])
    sizes = {
        "seq": several(1, 7, 64, 1000, 1024, 4096, 8192, 131072), "micro_batch": several(1, 2, 3, 4, 16, 64),
        "global_batch": several(8, 12, 48, 64, 768, 1024),
    }  # fmt: skip
    for name in draw(st.lists(st.sampled_from(sorted(sizes)), min_size=1, max_size=3, unique=True)):
        params[name] = draw(sizes[name])
    if draw(st.booleans()):
        params["set_"].append(f"model.hidden_size={draw(several(1024, 4096, 5120, 7168, 8192))}")
    if not draw(st.integers(0, 3)):
        params["set_"].append(f"model.vocab_size={draw(several(32000, 50257, 128256))}")
    return params


EXTRA = {
    "usual": [],
    "step": ["step.time_s", "step.mfu", "stages.0.memory_bytes", "totals.step.tp.time_s", "step.bubble_s",
             "memory.fits", "step.overlapped_s", "block.flops", "step.decode.time_s", "step.tokens_per_s"],
    "memory": ["memory.activations_bytes", "totals.block.tp.payload_bytes", "totals.stage.all.count"],
}  # fmt: skip


@pytest.mark.parametrize("extra", EXTRA)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(grids())
def test_every_line_is_the_ledger_of_its_point(extra: str, params: dict[str, Any]) -> None:
    grid = grid_from(params, ORDER)
    paths = [*RESULTS.values(), *EXTRA[extra]]
    names = [*(axis.name for axis in grid.varying), "legal", *RESULTS, *EXTRA[extra]]
    text = "".join(Lines(names, False).text(columns, count) for count, columns in Points(grid, EXTRA[extra]).chunks())
    lines = [json.loads(line) for line in text.splitlines()]
    assert len(lines) == grid.points
    for chosen, line in zip(product(*(range(len(axis.texts)) for axis in grid.axes)), lines, strict=True):
        shown = [axis.shown[at] for axis, at in zip(grid.axes, chosen, strict=True) if axis.varies]
        try:
            document = whole_document(grid.job(chosen))
            expected = [*shown, True, *(at_path(document, path) for path in paths)]
        except CommcalcError:
            expected = [*shown, False, *(None for _ in paths)]
        assert list(line.values()) == expected, (grid.request(chosen), line)


def test_a_model_of_odd_sizes_is_exact_beyond_what_arrays_hold() -> None:
    model = fields(
        hidden_size=4096, num_hidden_layers=4, num_attention_heads=32, intermediate_size=11008, vocab_size=99
    )
    params = {"model": model, "tp": "1,2", "seq": "4096,8192", "micro_batch": "1,1000000007,1000000000000"}
    grid = grid_from(params, ["tp", "seq", "micro_batch"])
    found = [columns for _, columns in Points(grid, []).chunks()]
    for at, chosen in enumerate(product(range(2), range(2), range(3))):
        columns = found[at // 6]
        values = [columns[name] for name in RESULTS]
        document = whole_document(grid.job((0, *chosen)))
        assert [value[at % 6] if hasattr(value, "dtype") else value for value in values] == [
            at_path(document, path) for path in RESULTS.values()
        ]
