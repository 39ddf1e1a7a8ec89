"""Published step times beside predicted ones, with the error of each.

    python tests/benchmarks/step_times.py

Korthikanti et al. 2022, arXiv:2205.05198, table 5: four models on A100s (Selene), with full recomputation and with
sequence parallelism and selective recomputation; the layouts are those of table 3. One number is taken from the
measurements: the share of peak that kernels reach, so that the 175B model with selective recomputation comes out as
measured. It stands for all that is not counted (norms, activations, dropout, launches);
products of larger models reach more of the peak than those of smaller ones, which one number cannot say. The other
seven are predictions, and so are three of an older program: Smith et al. 2022, arXiv:2201.11990, section 3: MT-NLG
530B, TP 8, 35 stages, 1,920 sequences, on 280, 350 and 420 DGX A100.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conftest import fields, step


class Run(NamedTuple):
    """A model of table 3, and its seconds a step in table 5: all recomputed, and scores alone with SP."""

    hidden: int
    heads: int
    layers: int
    stages: int
    chunks: int
    micro_batch: int
    batch: int
    full_s: float
    selective_s: float


RUNS = {
    "22B": Run(6144, 64, 48, 1, 1, 4, 4, 1.42, 1.10),
    "175B": Run(12288, 96, 96, 8, 3, 1, 64, 18.13, 13.75),
    "530B": Run(20480, 128, 105, 35, 3, 1, 280, 49.05, 37.83),
    "1T": Run(25600, 160, 128, 64, 1, 1, 512, 94.42, 71.49),
}
# DGX A100 of eight GPUs, and seconds of a step.
OLDER = {280: 60.1, 350: 50.2, 420: 44.4}
FITTED = ("175B", "selective")


def predicted(run: Run, mode: str, efficiency: float) -> float:
    """Seconds of a step at an efficiency."""
    model = fields(
        name="gpt", hidden_size=run.hidden, num_attention_heads=run.heads, num_key_value_heads=run.heads,
        head_dim=run.hidden // run.heads, intermediate_size=4 * run.hidden, num_hidden_layers=run.layers,
        vocab_size=51200, max_position_embeddings=2048, gated_mlp=False, norm="layernorm",
        position_embedding="learned", tie_word_embeddings=True,
    )  # fmt: skip
    asked: dict[str, object] = {
        "workload__sequence_length": 2048, "workload__micro_batch_size": run.micro_batch,
        "workload__global_batch_size": run.batch, "workload__attention": "unfused", "workload__dropout": True,
        "workload__recompute": mode, "parallelism__tp": 8, "parallelism__pp": run.stages,
        "parallelism__sp": mode == "selective", "step__efficiency": f"{efficiency:.9f}",
    }  # fmt: skip
    if run.chunks > 1:
        asked |= {"parallelism__schedule": "interleaved", "parallelism__virtual_stages": run.chunks}
    return step(model, "a100-80g-sxm", **asked).time_s


def predicted_of_nodes(nodes: int, efficiency: float) -> float:
    """Seconds of a step of MT-NLG on so many nodes."""
    return step(
        "mt-nlg-530b", "a100-80g-sxm", workload__sequence_length=2048, workload__global_batch_size=1920,
        workload__attention="unfused", workload__dropout=True, workload__recompute="full", parallelism__tp=8,
        parallelism__pp=35, parallelism__dp=nodes * 8 // (8 * 35), step__efficiency=f"{efficiency:.9f}",
    ).time_s  # fmt: skip


def fitted() -> float:
    """The efficiency at which one run comes out as measured; by halving."""
    name, mode = FITTED
    low, high = 0.1, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if predicted(RUNS[name], mode, middle) > RUNS[name].selective_s:
            low = middle
        else:
            high = middle
    return low


def main() -> None:
    efficiency = fitted()
    print(f"efficiency {efficiency:.4f}, from {' '.join(FITTED)}")
    print(f"{'model':6}{'recompute':12}{'published':>10}{'predicted':>11}{'error':>9}")
    errors = []
    for name, run in RUNS.items():
        for mode, published in (("full", run.full_s), ("selective", run.selective_s)):
            found = predicted(run, mode, efficiency)
            error = found / published - 1
            if (name, mode) != FITTED:
                errors.append(abs(error))
            print(f"{name:6}{mode:12}{published:10.2f}{found:11.2f}{100 * error:8.1f} %")
    summary(errors)
    print("MT-NLG 530B, an older program")
    errors = []
    for nodes, published in OLDER.items():
        found = predicted_of_nodes(nodes, efficiency)
        errors.append(abs(found / published - 1))
        print(f"{nodes:<6}{'full':12}{published:10.2f}{found:11.2f}{100 * (found / published - 1):8.1f} %")
    summary(errors)


def summary(errors: list[float]) -> None:
    """The error of predictions."""
    mean, most = 100 * statistics.mean(errors), 100 * max(errors)
    print(f"error of the {len(errors)} predictions: mean {mean:.1f} %, most {most:.1f} %")


if __name__ == "__main__":
    main()
