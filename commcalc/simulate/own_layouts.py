"""Which models are run on the layouts that no framework has, and at which degrees and work."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

from commcalc.simulate.architectures import architectures
from commcalc.simulate.combinations import BIASED, EXPERTS, GEMMA, LATENTS, PLAIN, TIED
from commcalc.transformer.layout import KvPolicy, LayoutName
from commcalc.transformer.spec import Phase
from commcalc.transformer.work import Parallelism, Recompute, Reshard, Workload

_TRAIN, _PREFILL = Workload(), Workload(phase=Phase.PREFILL)
_FULL = Workload(recompute=Recompute.FULL, regather=False)
_PARALLEL, _HEAD_NORMS = "mqa plain parallel, biases", "gqa norms over all heads"
_BEYOND: dict[str, Any] = {"dp": 2, "zero": 3, "pp": 2}


class Laid(NamedTuple):
    """A model by the name of its architecture on a layout of its own kind, and its work."""

    model: str
    parallel: Parallelism
    work: Workload = _TRAIN


def _of(model: str, layout: LayoutName, work: Workload = _TRAIN, **degrees: Any) -> Laid:
    return Laid(model, Parallelism(layout=layout, kv=KvPolicy.REPLICATE, **degrees), work)


def laid(everything: bool) -> list[Laid]:
    """A handful, or every architecture that a layout takes in all ways of working, alone and with other groups."""
    found = [_of(PLAIN, LayoutName.SEQUENCE, tp=4), _of(TIED, LayoutName.SEQUENCE, tp=2, dp=2, zero=1)]
    return found + _more() if everything else found


def _more() -> list[Laid]:
    found = []
    every = [name for name, model in architectures(everything=True).items() if not model.linear_num_key_heads]
    works = (_TRAIN, _FULL, _PREFILL)
    for name, tp, work in product(every, (2, 4), works):
        found.append(_of(name, LayoutName.SEQUENCE, work, tp=tp))
    for name, zero in product((PLAIN, TIED, EXPERTS), range(4)):
        found.append(_of(name, LayoutName.SEQUENCE, tp=2, dp=2, zero=zero))
    for name in (PLAIN, TIED, GEMMA, LATENTS, BIASED):
        found.append(_of(name, LayoutName.SEQUENCE, tp=2, **_BEYOND))
        found.append(_of(name, LayoutName.SEQUENCE, _FULL._replace(reshard=Reshard.ALL), tp=2, **_BEYOND))
    return found
