"""The ledger against what PyTorch really issued: kinds, counts, payloads and group sizes of every recorded program."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from commcalc.accounting.pricing import PricedLedger
from conftest import DATA, ask, fields, rows

CASES: list[dict[str, Any]] = json.loads((DATA / "torch_collectives.json").read_text())["cases"]
PHASES = {"forward": "fwd", "backward": "bwd", "update": "grad_sync"}


def ledger_of(case: dict[str, Any]) -> PricedLedger:
    config = case["config"]
    ends = case["impl"] == "vocab"
    gpt = config["model"] == "gpt"
    model: dict[str, object] = {
        "hidden_size": config["D"],
        "num_hidden_layers": 1,
        "gated_mlp": not gpt,
        "norm": "layernorm" if gpt else "rmsnorm",
        "attention_bias": gpt,
        "attention_output_bias": gpt,
        "mlp_bias": gpt,
    }
    if ends:
        model |= {"vocab_size": config["V"], "tie_word_embeddings": True}
    else:
        model |= {
            "num_attention_heads": config["H"],
            "num_key_value_heads": config["G"],
            "head_dim": config["hd"],
            "intermediate_size": config["F"],
        }
    alone = {"parallelism__framework": "hf"} if config["variant"] == "per_linear" else {}
    return ask(
        fields(**model),
        **alone,
        parallelism__tp=config["tp"],
        parallelism__sp=config["sp"],
        workload__sequence_length=config["S"],
        workload__micro_batch_size=config["B"],
        workload__dtype=config["dtype"],
        workload__regather=config["variant"] == "regather" or ends,
        parallelism__vocab_padding="none",
    )


def issued(case: dict[str, Any]) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    for call in case["collectives"]:
        found[call["phase"], call["collective"], call["group_size"], call["payload_bytes"]] += call["count"]
    return found


def predicted(case: dict[str, Any]) -> Counter[tuple[object, ...]]:
    parts = ("embedding", "head") if case["impl"] == "vocab" else ("block", "all")
    # Programs without a backward pass were recorded too, and DTensor leaves the gradients of norms pending for later.
    phases = {call["phase"] for call in case["collectives"]}
    found: Counter[tuple[object, ...]] = Counter()
    for row in rows(ledger_of(case)):
        phase = PHASES[row.direction]
        if row.part in parts and phase in phases:
            found[phase, row.kind.value, row.group_size, row.payload_bytes] += row.calls
    return found


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_agrees_with_pytorch(case: dict[str, Any]) -> None:
    assert predicted(case) == issued(case)


def test_every_kind_of_program_is_there() -> None:
    seen = Counter((case["impl"], case["config"]["variant"]) for case in CASES)
    assert seen == {
        ("megatron", "plain"): 14,
        ("megatron", "regather"): 9,
        ("dtensor", "prepared"): 20,
        ("dtensor", "per_linear"): 17,
        ("vocab", "megatron"): 3,
    }
