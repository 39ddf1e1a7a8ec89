"""What is to be said of the layouts that no framework runs (`LayoutName.own`), in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator

from commcalc.transformer.layout import LayoutName
from commcalc.transformer.spec import Phase
from commcalc.transformer.work import Logits, Parallelism, Workload


def layout_notes(parallel: Parallelism, work: Workload) -> list[str]:
    """How parameters and tokens lie, what is moved for that, and when."""
    if not parallel.layout.own or parallel.tp == 1:
        return []
    return list(_SAID[parallel.layout](parallel, work))


def _of_sequence(parallel: Parallelism, work: Workload) -> Iterator[str]:
    yield (
        f"layout sequence: each of {parallel.tp} tp ranks holds all parameters and has an equal run of every sequence; "
        "keys and values are gathered whole for attention"
    )
    if work.phase.training:
        yield "gathered keys and values are not saved, but gathered again; their gradients are scattered"
        yield "gradients of all parameters are pending sums over the tp ranks, summed in one call once a step"
    if work.phase is Phase.PREFILL and work.logits is Logits.SAMPLED:
        yield "the last positions are taken out of the gathered stream, and every rank makes their logits"


_SAID = {LayoutName.SEQUENCE: _of_sequence}
