"""Bars of a comparison as a picture: SVG or PNG, the same bytes for the same input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from commcalc.errors import SpecError, UsageError

KINDS = (".svg", ".png")


def draw(records: Sequence[Mapping[str, Any]], labels: Sequence[Mapping[str, str]], path: str) -> None:
    """Write compute and exposed communication of a block as bars into ``path``; `UsageError` without matplotlib."""
    if Path(path).suffix.lower() not in KINDS:
        raise UsageError("a picture is an .svg or a .png", where=f"--plot {path[:60]}", hint="--plot bars.svg")
    try:
        import matplotlib as mpl
    except ImportError:
        message = "pictures need matplotlib, which is not installed"
        raise UsageError(message, where=f"--plot {path[:60]}", hint="pip install 'commcalc[plot]'") from None
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "commcalc"
    from matplotlib import pyplot as plt

    timed = [
        (" ".join(f"{name} {value}" for name, value in label.items()) or "1", record["block"])
        for record, label in zip(records, labels, strict=True)
        if record["block"]["compute_s"] is not None
    ]
    if not timed:
        raise UsageError("no combination is timed, so there is nothing to draw", where=f"--plot {path[:60]}")
    names = [name for name, _ in timed]
    compute = [block["compute_s"] * 1e3 for _, block in timed]
    exposed = [block["exposed_s"] * 1e3 for _, block in timed]
    figure, axes = plt.subplots(figsize=(8, 0.6 + 0.4 * max(len(timed), 1)), layout="constrained")
    axes.barh(names, compute, label="compute")
    axes.barh(names, exposed, left=compute, label="exposed communication")
    axes.invert_yaxis()
    axes.set_xlabel("ms of a block")
    axes.set_title("A block")
    for at, whole in enumerate(one + more for one, more in zip(compute, exposed, strict=True)):
        axes.text(whole, at, f" {whole:.3g}", va="center")
    axes.margins(x=0.12)
    figure.legend(loc="outside lower center", ncols=2)
    metadata = {"Date": None} if path.lower().endswith(".svg") else {"Software": None}
    try:
        figure.savefig(path, metadata=metadata)
    except OSError as problem:
        raise SpecError(f"cannot write: {(problem.strerror or str(problem)).lower()}", where=path) from None
    finally:
        plt.close(figure)
