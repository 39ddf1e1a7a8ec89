"""Whole outputs, byte for byte: rewritten only by ``pytest tests/cli/test_golden.py --rewrite-golden``."""

from __future__ import annotations

import pytest

from conftest import DATA, run_commcalc

OUTPUTS = {
    "ledger-default.json": "ledger --json",
    "ledger-gpt3-sp-explain.txt": "ledger gpt3-175b-a100 --sp --explain",
    "ledger-llama-tensors.txt": "ledger --tensors --phase decode",
    "ledger-crossing.txt": "ledger --model gpt3-175b --hardware h100 --tp 16 --ranks --explain",
    "ledger-kv-replicate.txt": "ledger --tp 16 --kv replicate --tensors",
    "ledger-kv-gather.md": "ledger --tp 16 --kv gather --format markdown",
    "ledger-parallel-block.csv": "ledger --model falcon-40b --hardware a100 --tp 8 --format csv",
    "ledger-decode.jsonl": "ledger --phase decode --format jsonl",
    "degrees-llama-2-13b.txt": "degrees --model llama-2-13b --tp 1..8",
    "degrees-phi-3-medium.json": "degrees --model phi-3-medium --phase decode --tp 2,4,8 --json",
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_output(name: str, request: pytest.FixtureRequest) -> None:
    ran = run_commcalc(*OUTPUTS[name].split())
    assert ran.status == 0
    path = DATA / "golden" / name
    if request.config.getoption("--rewrite-golden"):
        path.write_text(ran.out)
    assert ran.out == path.read_text()


def test_no_output_is_kept_for_nothing() -> None:
    assert {path.name for path in (DATA / "golden").iterdir()} == set(OUTPUTS)
