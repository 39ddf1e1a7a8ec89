"""Which combinations of data, ZeRO, tensor, context, expert and pipeline parallelism are run, and on which models."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

from commcalc.simulate.architectures import architectures
from commcalc.transformer.layout import LayoutName
from commcalc.transformer.spec import Phase
from commcalc.transformer.work import CpComm, Dispatch, Framework, Parallelism, Recompute, Reshard, Schedule, Workload

_SPLIT = LayoutName.MEGATRON_SP
PLAIN, TIED = "gqa gated sequential", "mha plain, biases, learned positions"
EXPERTS, LATENTS = "gqa experts and a shared one behind a dense layer", "mha latents, experts"
GEMMA = "gqa gated, sandwich and head norms"
BIASED, ALL_CHOSEN = "gqa sinks, experts with biases", "mha two experts, both chosen"
BESIDE = "pairs experts beside an MLP, other heads by layer"
_WAYS = (Dispatch.ALL_TO_ALL, Dispatch.ALL_GATHER)
_TRAIN = Workload()
_FULL = Workload(recompute=Recompute.FULL, regather=False)


class Combination(NamedTuple):
    """A model by the name of its architecture, how it is split, and its work."""

    model: str
    parallel: Parallelism
    work: Workload = _TRAIN


def _of(model: str, work: Workload = _TRAIN, **degrees: Any) -> Combination:
    return Combination(model, Parallelism(**degrees), work)


def combinations(everything: bool) -> list[Combination]:
    """A handful, or every ZeRO stage with and without tensor parallelism, and every architecture in two of them."""
    found = [
        _of(PLAIN, dp=2, zero=0),
        _of(PLAIN, dp=4, zero=1),
        _of(PLAIN, dp=4, zero=3),
        _of(TIED, dp=4, zero=3, dp_shard=2, tp=2, layout=_SPLIT),
        _of(TIED, dp=2, zero=2, tp=2, layout=_SPLIT),
        _of(TIED, dp=2, zero=1, tp=2, pp=2, layout=_SPLIT),
        _of(GEMMA, dp=2, zero=3, pp=2, tp=2),
        _of(EXPERTS, dp=2, zero=3, tp=2, layout=_SPLIT),
        _of(LATENTS, dp=2, zero=3, tp=2),
        _of(PLAIN, pp=2, tp=2, layout=_SPLIT),
        *_of_experts(),
        *_of_context(),
    ]
    return found + _more() + _more_of_experts() + _more_of_context() if everything else found


def _of_context() -> list[Combination]:
    """Sequences that are split, in each of the ways to see all keys."""
    return [
        _of(PLAIN, cp=2, tp=2, layout=_SPLIT, cp_comm=CpComm.RING),
        _of(TIED, cp=2, dp=2, zero=1, cp_comm=CpComm.ALL_GATHER),
        _of(PLAIN, cp=4, cp_comm=CpComm.ULYSSES),
        _of(LATENTS, cp=2, dp=2, zero=3, cp_comm=CpComm.RING),
        _of(EXPERTS, cp=2, dp=2, ep=4, tp=2, layout=_SPLIT, cp_comm=CpComm.ULYSSES),
    ]


def _more_of_context() -> list[Combination]:
    found = []
    lies: list[dict[str, Any]] = [
        {"cp": 2}, {"cp": 4}, {"cp": 2, "tp": 2}, {"cp": 4, "tp": 2, "layout": _SPLIT},
        {"cp": 2, "dp": 2, "zero": 1, "tp": 2, "layout": _SPLIT}, {"cp": 2, "dp": 2, "zero": 3},
        {"cp": 2, "dp": 4, "zero": 3, "dp_shard": 2}, {"cp": 2, "dp": 2, "zero": 2, "pp": 2},
        {"cp": 2, "zero": 3, "pp": 2, "tp": 2, "layout": _SPLIT, "work": _FULL},
    ]  # fmt: skip
    models = (PLAIN, TIED, LATENTS, BIASED, GEMMA, BESIDE, EXPERTS)
    for name, lie, way in product(models, lies, CpComm):
        # One KV head cannot be shared out over the ranks of TP and of a context group.
        if name != BESIDE or way is not CpComm.ULYSSES or "tp" not in lie:
            found.append(_of(name, cp_comm=way, **lie))
    for way, framework in product(CpComm, (Framework.MEGATRON, Framework.TORCHTITAN)):
        found.append(_of(PLAIN, cp=2, tp=2, dp=2, layout=_SPLIT, cp_comm=way, framework=framework))
    for way, ep, dispatch in product(CpComm, (2, 4, 8), _WAYS):
        found.append(_of(EXPERTS, cp=2, dp=2, tp=2, layout=_SPLIT, ep=ep, etp=1, cp_comm=way, dispatch=dispatch))
    for way, tp in product(CpComm, (1, 2)):
        found.append(_of(PLAIN, cp=2, tp=tp, cp_comm=way, work=Workload(phase=Phase.PREFILL)))
    return found


def _of_experts() -> list[Combination]:
    """Experts on ranks of their own: those of data parallelism, of TP too, and some that share an expert."""
    return [
        _of(EXPERTS, dp=4, ep=2, zero=1),
        _of(EXPERTS, dp=2, tp=2, layout=_SPLIT, ep=4, etp=1, framework=Framework.MEGATRON),
        _of(EXPERTS, dp=4, tp=2, layout=_SPLIT, ep=2, etp=2, zero=3),
        _of(BIASED, dp=2, tp=2, layout=_SPLIT, ep=2, etp=1, pp=2),
        _of(LATENTS, dp=2, tp=2, layout=_SPLIT, ep=2, etp=1, zero=3, framework=Framework.TORCHTITAN),
        _of(EXPERTS, dp=2, tp=2, ep=4, framework=Framework.VLLM, work=Workload(phase=Phase.PREFILL)),
        _of(ALL_CHOSEN, dp=2, ep=2, framework=Framework.TORCHTITAN),
    ]


def _more_of_experts() -> list[Combination]:
    found = []
    lies: list[dict[str, Any]] = [
        {"dp": 4, "ep": 4}, {"dp": 4, "ep": 2}, {"dp": 4, "etp": 1},
        {"dp": 2, "tp": 2, "ep": 2, "etp": 2}, {"dp": 2, "tp": 2, "ep": 2, "etp": 1},
        {"dp": 2, "tp": 2, "ep": 4, "etp": 1},
        {"dp": 4, "tp": 2, "ep": 4, "etp": 2}, {"dp": 4, "tp": 2, "ep": 2, "etp": 1}, {"dp": 2, "tp": 2, "etp": 1},
    ]  # fmt: skip
    models = (EXPERTS, LATENTS, BIASED, BESIDE)
    for name, lie, layout, dispatch in product(models, lies, (LayoutName.MEGATRON, _SPLIT), _WAYS):
        # Biases of experts that ranks share are added to rows that are brought back, not to sums of all tokens.
        if name != BIASED or dispatch is Dispatch.ALL_TO_ALL or lie.get("etp", 1) == 1:
            found.append(_of(name, layout=layout, dispatch=dispatch, **lie))
    for name, lie, zero in product((EXPERTS, BIASED), lies, range(1, 4)):
        found.append(_of(name, layout=_SPLIT, zero=zero, **lie))
    for lie, framework in product(lies, (Framework.MEGATRON, Framework.TORCHTITAN)):
        names = (EXPERTS, LATENTS, BIASED, *((ALL_CHOSEN,) if lie.get("ep", 1) <= 2 else ()))
        found += [_of(name, layout=_SPLIT, framework=framework, **lie) for name in names]
    serving: list[dict[str, Any]] = [{"dp": 4, "ep": 4}, {"dp": 2, "tp": 2, "ep": 4}, {"dp": 4, "tp": 2, "ep": 8}]
    frameworks, phases = (Framework.VLLM, Framework.SGLANG), (Phase.PREFILL, Phase.DECODE)
    for lie, framework, phase in product(serving, frameworks, phases):
        found.append(_of(EXPERTS, framework=framework, work=Workload(phase=phase), **lie))
    for shards, ep in ((2, 2), (4, 2), (2, 4), (4, 4), (1, 2)):
        found.append(_of(EXPERTS, dp=8, zero=3, dp_shard=shards, ep=ep))
    for lie, zero in product(lies[:6], range(4)):
        found.append(_of(EXPERTS, pp=2, zero=zero, work=_FULL if zero == 3 else Workload(), **lie))
    return [*found, _of(ALL_CHOSEN, dp=4, tp=2, layout=_SPLIT, ep=2, etp=2, zero=1)]


def _more() -> list[Combination]:
    found = []
    splits: list[dict[str, Any]] = [{}, {"tp": 2}, {"tp": 4, "layout": _SPLIT}]
    for name, zero, dp, split in product((PLAIN, TIED, EXPERTS), range(4), (2, 3, 4), splits):
        found.append(_of(name, dp=dp, zero=zero, **split))
    for name in architectures(everything=True):
        found += [
            _of(name, dp=3, zero=3, tp=4),
            _of(name, dp=4, zero=3, dp_shard=2, tp=2, layout=_SPLIT),
            _of(name, dp=2, zero=3, tp=2, layout=_SPLIT, work=_FULL),
            _of(name, dp=3, zero=1, tp=2, layout=_SPLIT),
            _of(name, pp=2, tp=2, layout=_SPLIT),
            _of(name, pp=2, tp=2, dp=2, zero=3, layout=LayoutName.NONE, work=Workload(reshard=Reshard.ALL)),
        ]
    for name, zero, pp in product((PLAIN, TIED, EXPERTS), range(4), (2, 3)):
        found.append(_of(name, pp=pp, dp=2 if zero else 1, zero=zero, tp=2, layout=_SPLIT))
    for zero, bucket in product(range(3), (4000, 10007)):
        found.append(_of(PLAIN, dp=3, zero=zero, work=Workload(bucket_bytes=bucket)))
    for name, chunks in product((PLAIN, TIED), (2, 3)):
        turns: dict[str, Any] = {"pp": 2, "virtual_stages": chunks, "schedule": Schedule.INTERLEAVED}
        found += [_of(name, tp=2, **turns), _of(name, dp=2, zero=3, tp=2, layout=_SPLIT, **turns)]
    return [
        *found,
        _of(TIED, dp=4, zero=3, dp_shard=2, work=Workload(defer_all_reduce=False)),
        _of(TIED, dp=4, zero=3, dp_shard=1),
        _of(TIED, dp=2, zero=3, work=Workload(reshard=Reshard.NEVER)),
        _of(TIED, dp=2, zero=3, work=Workload(reshard=Reshard.ALL)),
    ]
