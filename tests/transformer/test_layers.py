"""Which layers a model has: by lists, by rules, and what each kind is called."""

from __future__ import annotations

import pytest

from commcalc.catalog.models import read_model
from commcalc.catalog.presets import load
from commcalc.transformer.cache import cache_per_token
from commcalc.transformer.layers import Attention, Ffn, Heads, attentions, ffns, layers_of
from commcalc.transformer.layout import kv_counts
from commcalc.transformer.limits import limits
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Parallelism, Workload
from conftest import ask, rows

LATENT = {
    "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 16,
    "intermediate_size": 128, "kv_lora_rank": 32, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
}  # fmt: skip
LINEAR = {
    "linear_num_key_heads": 8, "linear_num_value_heads": 8, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 2,
}  # fmt: skip


def model(name: str) -> Model:
    return read_model(load("model", name))[0]


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("llama-3-70b", {"block": 80}),
        ("gemma-3-27b", {"block": 62}),  # windows change nothing that TP moves
        ("mixtral-8x7b", {"block": 32}),
        ("deepseek-v3", {"dense": 3, "moe": 58}),
        ("llama-4-maverick", {"dense": 24, "moe": 24}),
        ("qwen3-next-80b-a3b", {"linear": 36, "full": 12}),
        ("minimax-text-01", {"linear": 70, "full": 10}),
        ("gemma-4-31b", {"sliding": 50, "full": 10}),
        ("mimo-v2-flash", {"full dense": 1, "sliding moe": 39, "full moe": 8}),
    ],
)
def test_kinds_of_layers(name: str, counts: dict[str, int]) -> None:
    assert layers_of(model(name)).counted() == counts


def test_rules_and_lists_say_the_same() -> None:
    assert [at for at, one in enumerate(attentions(model("gemma-3-27b"))) if one is Attention.FULL] == [
        *range(5, 62, 6)
    ]
    sparse = [at for at, one in enumerate(ffns(model("llama-4-maverick"))) if one is Ffn.SPARSE]
    assert sparse == [*range(1, 48, 2)]
    listed = Model(num_hidden_layers=3, num_experts=2, mlp_layer_types=("dense", "sparse", "dense"))
    assert ffns(listed) == (Ffn.DENSE, Ffn.SPARSE, Ffn.DENSE)


def test_latent_attention_stays_latent_beside_linear_layers() -> None:
    mixed = Model(**LATENT, **LINEAR, full_attention_interval=4)
    assert {kind.heads for kind in layers_of(mixed).kinds} == {Heads.LATENT, Heads.LINEAR}
    cache = cache_per_token(mixed)
    assert cache is not None and cache.kept == 32 + 8  # of the one full layer
    assert not kv_counts(mixed)


def test_rules_hold_only_for_what_a_layer_uses() -> None:
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 8}
    unused = Model(
        **sizes,
        intermediate_size=1024,
        moe_intermediate_size=100,
        sliding_num_key_value_heads=3,
        linear_num_key_heads=3,
    )
    assert {rule.name for rule in limits(unused, Parallelism(tp=8), Workload())} == {"heads", "kv_heads", "ffn"}
    experts = Model(**sizes, intermediate_size=100, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64)
    assert "ffn" not in {rule.name for rule in limits(experts, Parallelism(tp=8), Workload())}


def test_kv_heads_of_several_kinds_are_shared_where_they_divide_one_another() -> None:
    """Gemma 4: 16 KV heads in sliding layers, 4 in full ones; at TP 32 each is held by 2 or by 8 ranks."""
    priced = ask("gemma-4-31b", parallelism__tp=32, parallelism__kv="replicate", workload__sequence_length=64)
    # Copies of KV heads, and the norms of heads that all ranks hold.
    assert {row.group_size for row in rows(priced, direction="update")} == {2, 8, 32}
    assert [part for part, _ in priced.ledger.layout.mesh.axes if part.startswith("tp")] == [
        "tp_kv", "tp_kv16", "tp_replica",
    ]  # fmt: skip
