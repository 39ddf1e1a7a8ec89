"""Which models are run on the layouts that no framework has, and at which degrees and work."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from commcalc.simulate.architectures import architectures
from commcalc.simulate.combinations import BIASED, EXPERTS, GEMMA, LATENTS, PLAIN, TIED, Combination
from commcalc.transformer.layout import LayoutName
from commcalc.transformer.spec import Phase
from commcalc.transformer.work import Parallelism, Recompute, Reshard, Workload

_TRAIN, _PREFILL, _DECODE = Workload(), Workload(phase=Phase.PREFILL), Workload(phase=Phase.DECODE)
_FULL = Workload(recompute=Recompute.FULL, regather=False)
_PARALLEL = "mqa plain parallel, biases"
_BEYOND: dict[str, Any] = {"dp": 2, "zero": 3, "pp": 2}


def _of(model: str, layout: LayoutName, work: Workload = _TRAIN, **degrees: Any) -> Combination:
    return Combination(model, Parallelism(layout=layout, **degrees), work)


def own_layouts(everything: bool) -> list[Combination]:
    """A handful, or every architecture that a layout takes in all ways of working, alone and with other groups."""
    found = [
        _of(PLAIN, LayoutName.SEQUENCE, tp=4),
        _of(TIED, LayoutName.SEQUENCE, tp=2, dp=2, zero=1),
        _of(PLAIN, LayoutName.TWO_D, tp=4),
        _of(TIED, LayoutName.TWO_D, tp=4, tp_x=2, dp=2, zero=3),
        _of(PLAIN, LayoutName.WEIGHT_GATHERED, tp=4),
        _of(TIED, LayoutName.WEIGHT_GATHERED, tp=2, dp=2, zero=1),
    ]
    return [*found, *_sequences(), *_grids(), *_gathered()] if everything else found


def at_degrees(
    layouts: Sequence[LayoutName], degrees: Sequence[int], found: Sequence[Combination]
) -> list[Combination]:
    """One model at every degree that was asked for and at which none of ``found`` is."""
    there = {(one.parallel.layout, one.parallel.tp) for one in found}
    asked = [(layout, tp) for layout, tp in product(layouts, degrees) if layout.own and (layout, tp) not in there]
    return [_of(PLAIN, layout, tp=tp) for layout, tp in asked]


def _sequences() -> list[Combination]:
    found = []
    every = [name for name, model in architectures(everything=True).items() if not model.linear_num_key_heads]
    for name, tp, work in product(every, (2, 4), (_TRAIN, _FULL, _PREFILL)):
        found.append(_of(name, LayoutName.SEQUENCE, work, tp=tp))
    for name, zero in product((PLAIN, TIED, EXPERTS), range(4)):
        found.append(_of(name, LayoutName.SEQUENCE, tp=2, dp=2, zero=zero))
    for name in (PLAIN, TIED, GEMMA, LATENTS, BIASED):
        found.append(_of(name, LayoutName.SEQUENCE, tp=2, **_BEYOND))
        found.append(_of(name, LayoutName.SEQUENCE, _FULL._replace(reshard=Reshard.ALL), tp=2, **_BEYOND))
    return found


def _dense() -> list[str]:
    """The architectures without experts, latents and linear attention."""
    models = architectures(everything=True)
    return [name for name, one in models.items()
            if not (one.linear_num_key_heads or one.num_experts or one.kv_lora_rank)]  # fmt: skip


def _gathered() -> list[Combination]:
    found = []
    layout = LayoutName.WEIGHT_GATHERED
    for name, tp, work in product(_dense(), (2, 4), (_TRAIN, _FULL, _PREFILL, _DECODE)):
        found.append(_of(name, layout, work, tp=tp))
    for name, zero in product((PLAIN, TIED, _PARALLEL), range(4)):
        found.append(_of(name, layout, tp=2, dp=2, zero=zero))
    for name in (PLAIN, TIED, GEMMA, _PARALLEL):
        found.append(_of(name, layout, tp=2, **_BEYOND))
        found.append(_of(name, layout, _FULL._replace(reshard=Reshard.ALL), tp=2, **_BEYOND))
    return found


def _grids() -> list[Combination]:
    found = []
    works = (_TRAIN, _FULL, _TRAIN._replace(regather=False), _PREFILL, _DECODE)
    for name, work in product(_dense(), works):
        found.append(_of(name, LayoutName.TWO_D, work, tp=4, tp_x=2))
    for name, (tp, x) in product(_dense(), ((2, 1), (2, 2), (8, 2), (8, 4))):
        found.append(_of(name, LayoutName.TWO_D, tp=tp, tp_x=x))
    for name, x in product((PLAIN, TIED, _PARALLEL), (1, 4, 8)):
        found.append(_of(name, LayoutName.TWO_D, tp=8, tp_x=x))
    for name, zero in product((PLAIN, TIED, _PARALLEL), range(4)):
        found.append(_of(name, LayoutName.TWO_D, tp=4, dp=2, zero=zero))
    for name in (PLAIN, TIED, GEMMA, _PARALLEL):
        found.append(_of(name, LayoutName.TWO_D, tp=4, **_BEYOND))
    return found
