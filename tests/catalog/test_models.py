"""A model file: lists of layers, counts of layers, and what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commcalc.catalog.describe import describe
from commcalc.catalog.imports import preset_text
from commcalc.catalog.models import read_model
from commcalc.catalog.presets import load
from commcalc.document import parse_document
from commcalc.errors import CommcalcError, SpecError
from commcalc.transformer.layers import attentions, count_of, ffns
from commcalc.transformer.spec import Model
from conftest import DATA, run_commcalc

PLAIN = "hidden_size: 64\nnum_hidden_layers: 4\nnum_attention_heads: 8\nvocab_size: 100\nintermediate_size: 96\n"
EXPERTS = "num_experts: 8\nnum_experts_per_tok: 2\nmoe_intermediate_size: 32\n"
LATENT = "kv_lora_rank: 16\nqk_nope_head_dim: 8\nqk_rope_head_dim: 4\nv_head_dim: 8\n"
DELTA = (
    "linear_num_key_heads: 2\nlinear_num_value_heads: 4\nlinear_key_head_dim: 8\nlinear_value_head_dim: 8\n"
    "linear_conv_kernel_dim: 4\n"
)


def read(text: str) -> tuple[Model, list[CommcalcError]]:
    model, found = read_model(parse_document(PLAIN + text, "m.yaml"))
    return model, found.problems


def good(text: str) -> Model:
    model, problems = read(text)
    assert problems == []
    return model


def test_a_list_has_a_word_for_each_layer() -> None:
    text = "sliding_window: 16\nlayer_types: [full_attention, sliding_attention, sliding_attention, full_attention]\n"
    model = good(text)
    assert model.layer_types == ("full_attention", "sliding_attention", "sliding_attention", "full_attention")
    assert count_of(model) == 2
    assert good(EXPERTS + "mlp_layer_types: [dense, sparse, sparse, sparse]\n").mlp_layer_types[0] == "dense"


def sparse(text: str) -> list[int]:
    return [at for at, kind in enumerate(ffns(good(text))) if kind == "sparse"]


def test_a_count_of_layers_with_experts_means_the_last() -> None:
    assert sparse(EXPERTS) == [0, 1, 2, 3]
    assert sparse(EXPERTS + "moe_layers: 3\n") == [1, 2, 3]
    assert sparse(EXPERTS + "moe_layers: 4\n") == [0, 1, 2, 3]
    assert sparse(EXPERTS + "moe_layers: 0\n") == []
    assert sparse(EXPERTS + "moe_layers: 2\ninterleave_moe_layer_step: 2\n") == [1, 3]
    assert sparse(EXPERTS + "moe_layers: 3\nfirst_k_dense_replace: 1\n") == [1, 2, 3]
    assert sparse(EXPERTS + "moe_layers: 1\nmlp_layer_types: [dense, sparse, dense, dense]\n") == [1]
    assert sparse("moe_layers: 0\n") == []


def test_latent_heads_are_as_wide_as_both_their_parts() -> None:
    assert good(LATENT).head_dim == 12


# What is added to a plain model of 4 layers and 8 heads, and every error, with its place.
WRONG = {
    "a word for a list": (
        "layer_types: full_attention\n",
        [("one value where a list is expected", "m.yaml:6:14 model.layer_types")],
    ),
    "an empty list": ("layer_types: []\n", [("an empty list", "m.yaml:6:14 model.layer_types")]),
    "nothing": ("layer_types:\n", [("no value", "m.yaml:6:13 model.layer_types")]),
    "a mapping for a list": (
        "layer_types: {a: 1}\n",
        [("a mapping where a list is expected", "m.yaml:6:14 model.layer_types")],
    ),
    "words that are none, each told once": (
        "layer_types: [full_atention, full_attention, full_atention, 3]\n",
        [
            ("unknown attention 'full_atention'", "m.yaml:6:15 model.layer_types"),
            ("unknown attention '3'", "m.yaml:6:61 model.layer_types"),
        ],
    ),
    "lists in a list": (
        "mlp_layer_types: [[dense], dense, null, dense]\n",
        [
            ("a list where one value is expected", "m.yaml:6:19 model.mlp_layer_types"),
            ("no value", "m.yaml:6:35 model.mlp_layer_types"),
        ],
    ),
    "a list for a size": ("head_dim: [8]\n", [("a list where one value is expected", "m.yaml:6:11 model.head_dim")]),
    "a list of another length": (
        "layer_types: [full_attention]\n",
        [("layer_types lists 1 layers, num_hidden_layers is 4", "m.yaml:6:14 model.layer_types")],
    ),
    "layers that slide without a window": (
        "layer_types: [full_attention, full_attention, full_attention, sliding_attention]\n",
        [("layers of sliding_attention without sliding_window", "m.yaml:6:14 model.layer_types")],
    ),
    "more dense layers than layers": (
        EXPERTS + "first_k_dense_replace: 5\n",
        [("first_k_dense_replace 5 is above num_hidden_layers 4", "m.yaml:9:24 model.first_k_dense_replace")],
    ),
    "more layers with experts than layers": (
        EXPERTS + "moe_layers: 5\n",
        [("moe_layers 5 is above num_hidden_layers 4", "m.yaml:9:13 model.moe_layers")],
    ),
    "a count against a rule": (
        EXPERTS + "moe_layers: 3\ninterleave_moe_layer_step: 2\n",
        [("moe_layers is 3, but the other keys put experts in 2 layers", "m.yaml:9:13 model.moe_layers")],
    ),
    "a count against a list": (
        EXPERTS + "moe_layers: 3\nmlp_layer_types: [dense, sparse, dense, dense]\n",
        [("moe_layers is 3, but the other keys put experts in 1 layers", "m.yaml:9:13 model.moe_layers")],
    ),
    "layers with experts, and no experts": (
        "moe_layers: 3\n",
        [("moe_layers 3 without num_experts", "m.yaml:6:13 model.moe_layers")],
    ),
    "top-k above the experts": (
        EXPERTS.replace("tok: 2", "tok: 9"),
        [("num_experts_per_tok 9 is above num_experts 8", "m.yaml:7:22 model.num_experts_per_tok")],
    ),
    "experts alone": (
        "num_experts: 8\n",
        [
            ("num_experts 8 without num_experts_per_tok", "m.yaml:6:14 model.num_experts"),
            ("num_experts 8 without moe_intermediate_size", "m.yaml:6:14 model.num_experts"),
        ],
    ),
    "top-k without experts": (
        "num_experts_per_tok: 2\n",
        [("num_experts_per_tok 2 without num_experts", "m.yaml:6:22 model.num_experts_per_tok")],
    ),
    "a latent without its heads": (
        "kv_lora_rank: 16\nqk_nope_head_dim: 8\n",
        [
            ("kv_lora_rank 16 without qk_rope_head_dim", "m.yaml:6:15 model.kv_lora_rank"),
            ("kv_lora_rank 16 without v_head_dim", "m.yaml:6:15 model.kv_lora_rank"),
        ],
    ),
    "a latent with heads of another width": (
        LATENT + "head_dim: 8\n",
        [("head_dim 8 is not qk_nope_head_dim + qk_rope_head_dim = 12", "m.yaml:10:11 model.head_dim")],
    ),
    "more indexers than layers": (
        LATENT + "index_n_heads: 2\nindex_head_dim: 8\nindex_layers: 5\n",
        [("index_layers 5 is above num_hidden_layers 4", "m.yaml:12:15 model.index_layers")],
    ),
    "value heads that key heads do not divide": (
        DELTA.replace("value_heads: 4", "value_heads: 5"),
        [
            (
                "linear_num_value_heads 5 mod linear_num_key_heads 2 = 1: each key head serves equally many value "
                "heads",
                "m.yaml:7:25 model.linear_num_value_heads",
            )
        ],
    ),
    "a delta net without its convolution": (
        DELTA.replace("linear_conv_kernel_dim: 4\n", ""),
        [("a gated delta net without linear_conv_kernel_dim", "m.yaml:7:25 model.linear_num_value_heads")],
    ),
    "experts of no kind, and layers that hold them": (
        "first_k_dense_replace: 1\ninterleave_moe_layer_step: 2\nmlp_layer_types: [dense, sparse, dense, sparse]\n",
        [
            ("first_k_dense_replace 1 without num_experts", "m.yaml:6:24 model.first_k_dense_replace"),
            ("interleave_moe_layer_step 2 without num_experts", "m.yaml:7:28 model.interleave_moe_layer_step"),
            ("mlp_layer_types has sparse layers, without num_experts", "m.yaml:8:18 model.mlp_layer_types"),
        ],
    ),
    "a list against a rule of layers with experts": (
        EXPERTS + "mlp_layer_types: [dense, sparse, dense, sparse]\nfirst_k_dense_replace: 1\n",
        [
            (
                "mlp_layer_types and first_k_dense_replace 1 differ: layer 2 is dense in the list",
                "m.yaml:9:18 model.mlp_layer_types",
            )
        ],
    ),
    "a list against a rule that says zero": (
        EXPERTS + "mlp_layer_types: [dense, sparse, sparse, sparse]\nfirst_k_dense_replace: 0\n",
        [
            (
                "mlp_layer_types and first_k_dense_replace 0 differ: layer 0 is dense in the list",
                "m.yaml:9:18 model.mlp_layer_types",
            )
        ],
    ),
    "a list against a rule of layers that slide": (
        "sliding_window: 8\nfull_attention_interval: 2\n"
        "layer_types: [full_attention, sliding_attention, full_attention, sliding_attention]\n",
        [
            (
                "layer_types and full_attention_interval 2 differ: layer 0 is of full_attention in the list",
                "m.yaml:8:14 model.layer_types",
            )
        ],
    ),
    "a rule of layers that all attend to all tokens": (
        "full_attention_interval: 2\n",
        [
            (
                "full_attention_interval 2 without sliding_window, attention_chunk_size or linear_num_value_heads: all "
                "layers attend to all tokens",
                "m.yaml:6:26 model.full_attention_interval",
            )
        ],
    ),
    "single keys of an indexer": (
        LATENT + "index_head_dim: 8\n",
        [("index_head_dim 8 without index_n_heads", "m.yaml:10:17 model.index_head_dim")],
    ),
    "KV heads of single layers": (
        "sliding_window: 8\nsliding_num_key_value_heads: 3\nglobal_num_key_value_heads: 5\nglobal_head_dim: 8\n"
        "full_attention_interval: 2\n",
        [
            (
                f"num_attention_heads 8 mod {key} {kv} = {8 % kv}: each KV head serves equally many query heads",
                f"m.yaml:{line}:{column} model.{key}",
            )
            for key, kv, line, column in (
                ("sliding_num_key_value_heads", 3, 7, 30),
                ("global_num_key_value_heads", 5, 8, 29),
            )
        ],
    ),
}


@pytest.mark.parametrize(("text", "errors"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_told_with_its_place(text: str, errors: list[tuple[str, str]]) -> None:
    _, problems = read(text)
    assert [(problem.message, problem.where) for problem in problems] == errors
    assert all(isinstance(problem, SpecError) and problem.status == 2 for problem in problems)


def test_everything_wrong_is_told_together() -> None:
    _, problems = read(
        "num_experts: 2\nnum_experts_per_tok: 3\nlayer_types: [full_attention]\nparallel_norms: 3\nx: 1\n"
    )
    told = [problem.message.split(" ")[0] for problem in problems]
    assert told == ["unknown", "parallel_norms", "num_experts", "num_experts_per_tok", "layer_types"]


def test_nearest_words_are_offered() -> None:
    _, (problem,) = read("layer_types: [full_attention, full_attention, full_attention, sliding_atention]\n")
    assert problem.hint is not None
    assert problem.hint.startswith("did you mean sliding_attention")


def test_each_layer_is_looked_at_so_there_are_not_a_hundred_million() -> None:
    text = PLAIN.replace("layers: 4", "layers: 100000000")
    model, found = read_model(parse_document(text, "m.yaml"))
    assert model.num_hidden_layers is None
    assert [(one.message, one.where) for one in found.problems] == [
        ("100000000 is above 20000 layers", "m.yaml:2:20 model.num_hidden_layers")
    ]
    config = {"model_type": "minimax", "num_hidden_layers": 10**8, "hidden_size": 8}
    with pytest.raises(SpecError, match="100000000 is above 20000 layers"):
        read_model(parse_document(json.dumps(config), "config.json"))


def test_no_dense_width_is_no_error() -> None:
    _, found = read_model(parse_document((PLAIN + EXPERTS).replace("intermediate_size: 96\n", "", 1), "m.yaml"))
    assert found.problems == []


def test_a_list_is_set_and_taken_away_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(PLAIN + "sliding_window: 16\nlayer_types: [full_attention, sliding_attention]\n")

    def ledger(*options: str) -> tuple[int, str, str]:
        ran = run_commcalc("ledger", "--model", str(path), "--tp", "2", *options)
        return ran.status, ran.out, ran.err

    status, _, err = ledger()
    assert (status, "layer_types lists 2 layers, num_hidden_layers is 4" in err) == (2, True)
    assert "--set model.layer_types=null" in err
    assert ledger("--set", "model.layer_types=null")[0] == 0
    words = "[full_attention, sliding_attention, full_attention, sliding_attention]"
    assert ledger("--set", f"model.layer_types={words}")[0] == 0
    status, _, err = ledger("--set", "model.layer_types=full_attention")
    assert (status, "one value where a list is expected" in err) == (2, True)
    status, _, err = ledger("--set", "model.layer_types=[]")
    assert (status, "an empty list" in err) == (2, True)


def test_a_shown_model_has_its_lists_and_counts() -> None:
    mimo = describe("mimo-v2-flash", "model").values
    assert mimo["moe_layers"] == 47
    types = mimo["layer_types"]
    assert isinstance(types, list)
    assert (len(types), types.count("full_attention")) == (48, 9)
    assert describe("llama-3-8b", "model").values["moe_layers"] == 0


@pytest.mark.parametrize("name", ["glm-5.2.json", "gemma-4-26b-a4b.json", "qwen3-next-80b-a3b.json"])
def test_an_imported_file_reads_as_before(name: str) -> None:
    """Lists and rules come through a preset unchanged."""
    before, _ = read_model(load("model", str(DATA / "configs" / name)))
    _, text = preset_text(str(DATA / "configs" / name))
    after, found = read_model(parse_document(text, "preset.yaml"))
    assert found.problems == []
    assert after._replace(name=before.name) == before
    assert attentions(after) == attentions(before)


# A key and its value, and the part without which it means nothing.
ALONE = [
    *(
        (line, "num_experts")
        for line in (
            "moe_intermediate_size 32", "shared_expert_intermediate_size 32", "router_bias true", "router_scales true",
            "expert_bias true", "dense_mlp_beside_moe true", "first_k_dense_replace 1", "interleave_moe_layer_step 2",
        )
    ),
    ("q_lora_rank 8", "kv_lora_rank"),
    ("qk_nope_head_dim 8", "kv_lora_rank"),
    ("qk_rope_head_dim 4", "kv_lora_rank"),
    ("linear_num_key_heads 2", "linear_num_value_heads"),
    ("linear_key_head_dim 8", "linear_num_value_heads"),
    ("linear_value_head_dim 8", "linear_num_value_heads"),
    ("linear_conv_kernel_dim 4", "linear_num_value_heads"),
    ("linear_attention lightning", "linear_num_value_heads"),
    ("global_keys_are_values true", "global_head_dim"),
    ("sinks_in_sliding_only true", "attention_sinks"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "part"), ALONE, ids=[line for line, _ in ALONE])
def test_a_key_that_means_nothing_is_told(line: str, part: str) -> None:
    key, value = line.split(" ")
    _, (problem,) = read(f"{key}: {value}\n")
    assert problem.message == f"{line} without {part}"
    assert problem.where == f"m.yaml:6:{len(key) + 3} model.{key}"
    assert problem.hint == f"add {part}, or leave {key} out"
    off = {"true": "false", "lightning": "gated_delta_net"}.get(value, "1" if key.startswith("interleave") else "0")
    good(f"{key}: {off}\n")


def test_a_gate_of_no_shared_expert_is_told() -> None:
    assert [one.message for one in read(EXPERTS + "shared_expert_gate: true\n")[1]] == [
        "shared_expert_gate true without shared_expert_intermediate_size"
    ]


FULL = "layer_types: [full_attention, full_attention, full_attention, full_attention]\n"
SLIDE = FULL.replace("full", "sliding")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FULL + "sliding_window: 8\n", "sliding_window 8, but no layer slides"),
        (FULL + "attention_chunk_size: 8\n", "attention_chunk_size 8, but no layer looks into chunks"),
        (FULL + "sliding_num_key_value_heads: 4\n", "sliding_num_key_value_heads 4, but no layer slides"),
        ("sliding_num_key_value_heads: 4\n", "sliding_num_key_value_heads 4, but no layer slides"),
        (
            SLIDE + "sliding_window: 8\nglobal_num_key_value_heads: 4\nglobal_head_dim: 8\n",
            "global_head_dim 8, but no layer attends to all tokens",
        ),
        (FULL + DELTA, "linear_num_value_heads 4, but no layer is of linear attention"),
        (DELTA + "full_attention_interval: 1\n", "linear_num_value_heads 4, but no layer is of linear attention"),
        ("sliding_window: 8\n" + DELTA, "sliding_window 8, but no layer slides"),
    ],
)
def test_sizes_of_layers_that_are_not_there_are_told(text: str, message: str) -> None:
    assert message in [one.message for one in read(text)[1]]


def test_a_model_may_be_made_shorter_than_the_period_of_its_rule() -> None:
    good("sliding_window: 8\nglobal_num_key_value_heads: 4\nglobal_head_dim: 8\nfull_attention_interval: 6\n")


@pytest.mark.parametrize(
    "line",
    [
        "attention_bias true", "attention_output_bias true", "qk_norm head_dim", "attention_output_gate true",
        "attention_sinks true",
    ],
)  # fmt: skip
def test_what_latent_attention_has_not_is_told(line: str) -> None:
    key, value = line.split(" ")
    _, (problem,) = read(LATENT + f"{key}: {value}\n")
    assert problem.message == f"{line} with kv_lora_rank 16: latent attention has no such part"
    assert problem.where == f"m.yaml:10:{len(key) + 3} model.{key}"


def test_other_heads_beside_latent_ones_are_told() -> None:
    other = "sliding_window: 8\nfull_attention_interval: 2\nsliding_num_key_value_heads: 4\n"
    other += "global_num_key_value_heads: 4\nglobal_head_dim: 8\nglobal_keys_are_values: true\n"
    told = [one.message for one in read(LATENT + other)[1]]
    assert told == [
        f"{line} with kv_lora_rank 16: latent attention has no such part"
        for line in (
            "sliding_num_key_value_heads 4", "global_num_key_value_heads 4", "global_head_dim 8",
            "global_keys_are_values true",
        )
    ]  # fmt: skip


def test_latent_attention_has_no_kv_heads_to_divide() -> None:
    good(LATENT + "num_key_value_heads: 16\n")
    ran = run_commcalc("ledger", "--model", "deepseek-v3", "--set", "model.num_attention_heads=64", "--json")
    assert (ran.status, ran.json["inputs"]["model"]["num_attention_heads"]) == (0, 64)


def test_nothing_is_said_of_what_cannot_be_read() -> None:
    """A value that cannot be read is told once; what would follow from its absence is not."""
    _, problems = read(
        EXPERTS.replace("num_experts: 8", "num_experts: 1e30")
        + "router_bias: true\nmlp_layer_types: [dense, sparse, sparse, sparse]\nsliding_window: x\n"
        + "layer_types: [full_attention, full_attention, full_attention, sliding_attention]\n"
        + LATENT.replace("kv_lora_rank: 16", "kv_lora_rank: y")
    )
    assert [one.message for one in problems] == [
        "'1e30' is too large",
        "'x' is no whole number",
        "'y' is no whole number",
    ]
    text = PLAIN.replace("layers: 4", "layers: four") + FULL
    assert [one.message for one in read_model(parse_document(text, "m.yaml"))[1].problems] == [
        "'four' is no whole number"
    ]


def test_a_list_without_a_number_of_layers_is_told_and_breaks_no_list(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    path = tmp_path / "models" / "mine.yaml"
    path.write_text(PLAIN.replace("num_hidden_layers: 4\n", "") + FULL)
    listed = run_commcalc("presets", "list", COMMCALC_PRESETS=str(tmp_path))
    assert (listed.status, "llama-3-8b" in listed.out) == (0, True)
    for command in ("show", "validate"):
        ran = run_commcalc("presets", command, str(path))
        assert ran.status in (1, 2)
        assert f"error: layer_types without num_hidden_layers\n  at {path}:5:14 model.layer_types" in ran.err
        assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("num_experts_per_tok: 1.5", "'1.5' is no whole number", "write it like 2"),
        ("index_head_dim: x", "'x' is no whole number", "write it like 128"),
        ("index_head_dim: -1", "'-1' is below zero", "write it like 128"),
        ("q_lora_rank: -0.5", "'-0.5' is below zero", "write it like 1536"),
        ("hidden_size: -1", "'-1' is not above zero", "write it like 8192"),
    ],
)
def test_a_wrong_number_says_what_is_wrong_and_what_it_looks_like(line: str, message: str, hint: str) -> None:
    _, found = read_model(parse_document(f"{line}\n", "m.yaml"))
    assert [(one.message, one.hint) for one in found.problems] == [(message, hint)]


def test_a_model_made_shorter_is_told_what_to_set_as_well() -> None:
    short = ("ledger", "--model", "deepseek-v3", "--set", "model.num_hidden_layers=2")
    ran = run_commcalc(*short)
    hint = "--set model.first_k_dense_replace=1"
    assert (ran.status, f"hint: {hint}\n" in ran.err) == (2, True)
    assert run_commcalc(*short, *hint.split(" ")).status == 0


def test_zero_is_read_however_it_is_written() -> None:
    assert good("q_lora_rank: 0.0\n").q_lora_rank == 0
