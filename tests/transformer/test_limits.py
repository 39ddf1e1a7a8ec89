"""Legal degrees against what the frameworks accept, and the exact reasons."""

from __future__ import annotations

import pytest

from commcalc.catalog.assign import Assignment
from commcalc.catalog.job import Request, resolve_job
from commcalc.errors import CommcalcError
from commcalc.transformer.limits import legal_degrees, limits, listed, violations
from commcalc.transformer.work import VocabPadding, padded_vocab, splittable_vocab
from conftest import fields

TRIED = (2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64)
# Degrees that Megatron-LM (core 0.20.0: heads and KV heads at config, FFN at build, vocabulary padded) accepts, of
# TRIED: heads, KV heads, FFN width, vocabulary.
MEGATRON = {
    "gpt2": ((12, 12, 3072, 50257), (2, 3, 4, 6, 12)),
    "gpt2-xl": ((25, 25, 6400, 50257), (5,)),
    "qwen2.5-0.5b": ((14, 2, 4864, 151936), (2,)),
    "qwen2.5-7b": ((28, 4, 18944, 152064), (2, 4)),
    "falcon-40b": ((128, 8, 32768, 65024), (2, 4, 8, 16, 32, 64)),
    "falcon-180b": ((232, 8, 59392, 65024), (2, 4, 8)),
    "bloom-176b": ((112, 112, 57344, 250880), (2, 4, 7, 8, 16)),
    "phi-4": ((40, 10, 17920, 100352), (2, 5)),
    "yi-34b": ((56, 8, 20480, 64000), (2, 4, 8)),
    "llama2-13b": ((40, 40, 13824, 32000), (2, 4, 8)),
    "gemma3-1b": ((4, 1, 6912, 262144), (2, 4)),
    # 48 query heads and one KV head are (48 + 2) * head_dim columns of QKV, which 3, 6 and 12 do not divide: with fewer
    # KV heads than ranks the fused weight is split evenly (core/transformer/attention.py, ColumnParallelLinear).
    "palm-540b": ((48, 1, 73728, 256000), (2, 4, 8, 16)),
}
# vLLM 0.33.0 replicates KV heads and pads the vocabulary to 64, which must then divide.
VLLM = {
    "gpt2-xl": ((25, 25, 6400, 50257), ()),
    "phi-4": ((40, 10, 17920, 100352), (2,)),
    "palm-540b": ((48, 1, 73728, 256000), (2, 4, 8, 16)),
}


def job(sizes: tuple[int, ...], **values: str):
    keys = ("num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size")
    model = fields(head_dim=64, **dict(zip(keys, sizes, strict=True)))
    return resolve_job(
        Request(model=model, assignments=[Assignment(f"parallelism.{key}", value, "") for key, value in values.items()])
    )


def accepted(sizes: tuple[int, ...], **values: str) -> tuple[int, ...]:
    found = job(sizes, **values)
    legal = legal_degrees(limits(found.model, found.parallel, found.work), max(TRIED))
    return tuple(tp for tp in TRIED if tp in legal)


@pytest.mark.parametrize("name", MEGATRON)
def test_megatron_accepts(name: str) -> None:
    sizes, degrees = MEGATRON[name]
    assert accepted(sizes, kv="gather") == degrees


@pytest.mark.parametrize("name", VLLM)
def test_vllm_accepts(name: str) -> None:
    sizes, degrees = VLLM[name]
    assert accepted(sizes, kv="replicate", vocab_padding="vllm") == degrees


def test_torchtitan_refuses_more_ranks_than_kv_heads() -> None:
    assert accepted((128, 8, 32768, 65024), kv="refuse") == (2, 4, 8)


@pytest.mark.parametrize(
    ("vocab", "tp", "padding", "rows"),
    [
        # Shoeybi et al. 2019, section 5.1: 50,257 to 51,200 for 8-way model parallelism.
        (50257, 8, VocabPadding.MEGATRON, 51200),
        (128256, 8, VocabPadding.MEGATRON, 129024),
        (32000, 2, VocabPadding.MEGATRON, 32000),
        (50257, 8, VocabPadding.VLLM, 50304),
        (129280, 24, VocabPadding.SGLANG, 130560),
        (129280, 16, VocabPadding.SGLANG, 129280),
        (50257, 8, VocabPadding.NONE, 50257),
    ],
)
def test_padded_vocabulary(vocab: int, tp: int, padding: VocabPadding, rows: int) -> None:
    assert padded_vocab(vocab, tp, padding) == rows


def test_smallest_vocabulary_that_would_split() -> None:
    assert splittable_vocab(129280, 24, VocabPadding.VLLM) == 129_408  # 5,392 rows on each of 24 ranks
    assert splittable_vocab(50257, 2, VocabPadding.NONE) == 50_258


def broken(sizes: tuple[int, ...], tp: int, **values: str) -> list[str]:
    found = job(sizes, tp=str(tp), **values)
    return [problem.text() for problem in violations(found.model, found.parallel, found.work)]


def test_every_broken_rule_is_told_with_remainder_legal_list_and_way_out() -> None:
    assert broken((96, 96, 49152, 50257), 7) == [
        "error: tp 7 is not legal for model: num_attention_heads 96 mod 7 = 5\n"
        "  at parallelism.tp (--tp 7)\n"
        "  legal by heads: 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96\n"
        "hint: legal for the whole model: 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96; "
        "or pad num_attention_heads to 98 (+2.08 %)",
        "error: tp 7 is not legal for model: num_key_value_heads 96 mod 7 = 5\n"
        "  at parallelism.tp (--tp 7)\n"
        "  legal by kv_heads: 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96\n"
        "hint: legal for the whole model: 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96; "
        "or pad num_key_value_heads to 98 (+2.08 %)",
        "error: tp 7 is not legal for model: intermediate_size 49152 mod 7 = 5\n"
        "  at parallelism.tp (--tp 7)\n"
        "  legal by ffn: 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96\n"
        "hint: legal for the whole model: 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96; "
        "or pad intermediate_size to 49154 (+0.00 %)",
    ]


def test_fewer_kv_heads_than_ranks_names_both_policies() -> None:
    (text,) = broken((32, 4, 8192, 32000), 8)
    assert "num_key_value_heads 4 mod 8 = 4" in text
    assert "each KV head would be cut (32 rows of K on a rank): --kv replicate keeps 2 copies of each" in text
    assert "--kv gather gathers the QKV activation" in text


def test_ranks_that_no_kv_head_count_serves() -> None:
    found = broken((48, 8, 8192, 32000), 12, kv="replicate")
    assert "error: tp 12 is not legal for model: 12 ranks mod 8 KV heads = 4; 8 KV heads mod 12 = 8" in found[0]


def test_sequence_must_split_under_sequence_parallelism() -> None:
    found = resolve_job(
        Request(
            model=fields(hidden_size=512, num_hidden_layers=2),
            assignments=[
                Assignment("parallelism.tp", "8", ""),
                Assignment("parallelism.sp", "true", ""),
                Assignment("workload.sequence_length", "1001", ""),
            ],
        )
    )
    (problem,) = violations(found.model, found.parallel, found.work)
    assert isinstance(problem, CommcalcError)
    assert problem.message == "tp 8 is not legal for model: sequence_length 1001 mod 8 = 1"


def test_a_long_list_says_what_it_leaves_out() -> None:
    assert listed(list(range(1, 31)), 3) == "1, 2, 3, ... 27 more up to 30"
