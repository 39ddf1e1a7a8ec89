"""Which combinations of data, ZeRO, tensor, context, expert and pipeline parallelism are run, and on which models."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

from commcalc.simulate.architectures import architectures
from commcalc.simulate.places import Parts
from commcalc.transformer.layout import LayoutName
from commcalc.transformer.spec import Phase
from commcalc.transformer.work import CpComm, Dispatch, Framework, Parallelism, Recompute, Reshard, Schedule, Workload
from commcalc.units import Dtype

_SPLIT = LayoutName.MEGATRON_SP
PLAIN, TIED = "gqa gated sequential", "mha plain, biases, learned positions"
EXPERTS, LATENTS = "gqa experts and a shared one behind a dense layer", "mha latents, experts"
GEMMA = "gqa gated, sandwich and head norms"
BIASED, ALL_CHOSEN = "gqa sinks, experts with biases", "mha two experts, both chosen"
BESIDE = "pairs experts beside an MLP, other heads by layer"
_WAYS = (Dispatch.ALL_TO_ALL, Dispatch.ALL_GATHER)
_TRAIN = Workload()
# Tokens on their way to experts with a scale for so many elements, the last of which are fewer.
_NARROW = Workload(dispatch_dtype=Dtype.FP8, combine_dtype=Dtype.FP8, scale_block=16)
_FULL = Workload(recompute=Recompute.FULL, regather=False)


class Combination(NamedTuple):
    """A model by the name of its architecture, how it is split, and its work.

    ``sequences`` of a microbatch are those of a rank, as many as usual where none are given; ``parts`` of them are
    those of a context rank.
    """

    model: str
    parallel: Parallelism
    work: Workload = _TRAIN
    sequences: int | None = None
    parts: Parts | None = None


def _of(
    model: str, work: Workload = _TRAIN, sequences: int | None = None, parts: Parts | None = None, **degrees: Any
) -> Combination:
    return Combination(model, Parallelism(**degrees), work, sequences, parts)


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
        *_of_rows(),
        *_of_context(),
    ]
    if not everything:
        return found
    return found + _more() + _more_of_experts() + _more_of_rows() + _more_of_context() + _more_of_sequences()


def _of_context() -> list[Combination]:
    """Sequences that are split, in each of the ways to see all keys."""
    return [
        _of(PLAIN, cp=2, tp=2, layout=_SPLIT, cp_comm=CpComm.RING),
        _of(TIED, sequences=2, cp=2, dp=2, zero=1, cp_comm=CpComm.ALL_GATHER),
        _of(PLAIN, sequences=3, cp=4, cp_comm=CpComm.ULYSSES),
        _of(LATENTS, sequences=2, cp=2, dp=2, zero=3, cp_comm=CpComm.RING),
        _of(EXPERTS, parts=Parts.RUNS, cp=2, dp=2, ep=4, tp=2, layout=_SPLIT, cp_comm=CpComm.ULYSSES),
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


def _more_of_sequences() -> list[Combination]:
    """Several sequences of a microbatch, and of each a run or an early and a late part."""
    found = []
    lies: list[dict[str, Any]] = [
        {"cp": 2}, {"cp": 4, "tp": 2, "layout": _SPLIT}, {"cp": 2, "dp": 2, "zero": 3},
        {"cp": 2, "tp": 2, "pp": 2, "work": _FULL}, {"cp": 2, "tp": 2, "work": Workload(phase=Phase.PREFILL)},
    ]  # fmt: skip
    for name, lie, way, many, parts in product((PLAIN, TIED, LATENTS, BIASED), lies, CpComm, (1, 2, 3), Parts):
        if many > 1 or parts is Parts.RUNS:  # one sequence in early and late parts is what others are run on
            found.append(_of(name, sequences=many, parts=parts, cp_comm=way, **lie))
    for way, dispatch, many, parts in product(CpComm, Dispatch, (1, 2), Parts):
        lie = {"cp": 2, "dp": 2, "tp": 2, "layout": _SPLIT, "ep": 4, "etp": 1, "dispatch": dispatch}
        found.append(_of(EXPERTS, sequences=many, parts=parts, cp_comm=way, **lie))
    return found


def _of_rows() -> list[Combination]:
    """Tokens that go once to a rank, or to a node first; experts that are full; narrow types on the way."""
    once = Dispatch.DEDUPLICATED
    full = Workload(capacity_factor=Fraction(1), dispatch_dtype=Dtype.FP8, combine_dtype=Dtype.FP8)
    return [
        _of(EXPERTS, dp=4, ep=2, dispatch=once),
        _of(LATENTS, _NARROW, dp=4, ep=4, ep_nodes=2, dispatch=once, framework=Framework.TORCHTITAN),
        _of(BIASED, Workload(capacity_factor=Fraction(1)), dp=2, tp=2, layout=_SPLIT, ep=2, etp=1),
        _of(EXPERTS, full._replace(scale_block=16), dp=4, ep=2),
    ]


def _more_of_rows() -> list[Combination]:
    found = []
    once: dict[str, Any] = {"dispatch": Dispatch.DEDUPLICATED}
    lies: list[dict[str, Any]] = [
        {"dp": 2, "ep": 2}, {"dp": 4, "ep": 4}, {"dp": 8, "ep": 4}, {"dp": 2, "tp": 2, "layout": _SPLIT, "ep": 4},
        {"dp": 4, "tp": 2, "layout": _SPLIT, "ep": 2, "zero": 3}, {"dp": 4, "ep": 2, "pp": 2, "zero": 1},
    ]  # fmt: skip
    nodes: list[dict[str, Any]] = [
        {"dp": 4, "ep": 4, "ep_nodes": 2}, {"dp": 4, "ep": 4, "ep_nodes": 2, "node_limit": 1},
        {"dp": 8, "ep": 8, "ep_nodes": 4, "node_limit": 2}, {"dp": 8, "ep": 8, "ep_nodes": 2},
        {"dp": 4, "ep": 4, "ep_nodes": 4, "node_limit": 3},
        {"dp": 4, "tp": 2, "layout": _SPLIT, "ep": 8, "ep_nodes": 4},
    ]  # fmt: skip
    frameworks = (None, Framework.MEGATRON, Framework.TORCHTITAN)
    for name, lie, framework in product((EXPERTS, LATENTS, BIASED), [*lies, *nodes], frameworks):
        found.append(_of(name, framework=framework, etp=1, **once, **lie))
    for lie, work in product([lies[0], lies[3], *nodes[:3]], (_NARROW, _NARROW._replace(scale_block=None), _FULL)):
        found.append(_of(EXPERTS, work, etp=1, **once, **lie))
    for framework, phase in product((Framework.VLLM, Framework.SGLANG), (Phase.PREFILL, Phase.DECODE)):
        found += [
            _of(EXPERTS, Workload(phase=phase), dp=4, ep=4, framework=framework, **once),
            _of(EXPERTS, Workload(phase=phase), dp=4, tp=2, ep=8, framework=framework, **once),
            _of(LATENTS, _NARROW._replace(phase=phase), dp=8, ep=8, ep_nodes=2, framework=framework, **once),
        ]
    split: list[dict[str, Any]] = [*lies, {"dp": 4, "tp": 2, "layout": _SPLIT, "ep": 2, "etp": 2, "zero": 3}]
    factors = [Fraction(*one) for one in ((1, 4), (1, 1), (5, 4), (2, 1), (3, 1))]
    for name, lie, factor in product((EXPERTS, BIASED), split, factors):
        found.append(_of(name, Workload(capacity_factor=factor), **({"etp": 1} | lie)))
    for lie, framework in product(split, (Framework.MEGATRON, Framework.TORCHTITAN)):
        found.append(_of(LATENTS, Workload(capacity_factor=Fraction(1)), framework=framework, **({"etp": 1} | lie)))
    narrow = [
        _NARROW, _NARROW._replace(dispatch_dtype=Dtype.FP4), Workload(combine_dtype=Dtype.FP32),
        _NARROW._replace(dtype=Dtype.FP32, recompute=Recompute.FULL, regather=False),
    ]  # fmt: skip
    for name, lie, work, dispatch in product((EXPERTS, BIASED), split, narrow, _WAYS):
        if name != BIASED or dispatch is Dispatch.ALL_TO_ALL or lie.get("etp", 1) == 1:
            found.append(_of(name, work, dispatch=dispatch, **({"etp": 1} | lie)))
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
