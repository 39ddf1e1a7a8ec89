"""Whole outputs, byte for byte: rewritten only by ``pytest tests/cli/test_golden.py --rewrite-golden``."""

from __future__ import annotations

import pytest

from conftest import DATA, run_commcalc

OUTPUTS = {
    "matmul-case-2-explain.txt": "matmul A[I,J_X]@B[J,K]->C[I,K] --mesh X=4 --dim I=1K,J=4K,K=8K --explain --grad",
    "matmul-mixture.json": "matmul A[I_X,J_Y]@B[J_Y,K_X]->C[I_X,K_Y] --mesh X=4,Y=2 --dim I=96,J=160,K=224 --json",
    "matmul-ffn-h100.txt": (
        "matmul relu(In[B_X,D]@Win[D,F_Y])@Wout[F_Y,D]->Out[B_X,D] --mesh X=2,Y=4 --dim B=8K,D=8K,F=28K "
        "--hardware h100 --overlap collective-matmul --grad"
    ),
    "reshard-sub-axes.txt": "reshard A[I_XY,J]->A[I_Y,J_X] --mesh X=4,Y=2 --dim I=96,J=160 --dtype f32 --sub-axes",
    "reshard-h100.csv": "reshard C[I,K]{U_X}->C[I_X,K] --mesh X=8 --dim I=8K,K=8K --hardware h100 --format csv",
    "shard-explain.md": "shard A[I_XY,J]{U_Z} --mesh X=2,Y=8,Z=2 --dim I=128,J=2K --format markdown",
    "verify-product-explain.txt": "verify A[I,J_X]@B[J,K]->C[I,K] --mesh X=4 --explain",
    "verify-reshard.json": "verify A[I_XY,J]->A[I_Y,J_X] --mesh X=4,Y=2 --json",
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
