"""What of communication compute can hide: groups that may run beside it, and what is left exposed of each.

A group can run beside compute only where the next computation does not wait for it. Sources: an AllReduce of tensor
parallelism stands before a residual add (Shoeybi et al. 2019, arXiv:1909.08053, figure 3), with sequence parallelism
its halves run tile by tile beside the products (Transformer Engine, tp_comm_overlap, which needs it); ring attention
computes on one block while the next travels (Liu et al. 2023, arXiv:2310.01889, section 3); Megatron-LM
core/pipeline_parallel (overlap_p2p_comm needs the interleaved schedule), core/distributed (overlap_grad_reduce,
overlap_param_gather); DeepSeek-V3, arXiv:2412.19437, section 3.2.1 (experts of one microbatch travel while another
computes).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from commcalc.accounting.choices import Combine
from commcalc.accounting.rows import AXES
from commcalc.errors import CommcalcError, IllegalDegree
from commcalc.network.cost import added
from commcalc.transformer.layout import LayoutName
from commcalc.transformer.spec import Phase
from commcalc.transformer.work import CpComm, Parallelism, Schedule, Workload

# The groups of rows that belong to an axis by its name in `--overlap`.
_AXIS = {"etp": "ep", "edp": "dp", "dp_shard": "dp", "dp_replica": "dp"}


def axis_of(group: str) -> str:
    """The axis under whose name a group of rows may overlap."""
    return _AXIS.get(group, group)


class Window(NamedTuple):
    """Compute that runs at a time, and the seconds that each group communicates meanwhile."""

    compute_s: float
    comm_s: Mapping[str, float]

    @property
    def total_comm_s(self) -> float:
        """All groups, one after another."""
        seconds: float = added(self.comm_s.values())
        return seconds


class Exposed(NamedTuple):
    """What is left of each group, in all, and how much compute was spent on hiding."""

    by_group: dict[str, float]
    total_s: float
    spent_s: float


def expose(window: Window, overlap: Sequence[str], combine: Combine, spent_s: float = 0.0) -> Exposed:
    """What compute does not hide. Added: groups hide one after another, frequent ones first. Largest: all at once."""
    left = max(window.compute_s - spent_s, 0.0)
    budget, found, hidden = left, dict[str, float](), []
    for group, seconds in window.comm_s.items():
        if axis_of(group) not in overlap:
            found[group] = seconds
            continue
        found[group] = max(seconds - budget, 0.0)
        hidden.append(group)
        if combine is Combine.ADDED:
            budget = max(budget - seconds, 0.0)
    plain = added(seconds for group, seconds in found.items() if group not in hidden)
    rest = [found[group] for group in hidden]
    if combine is Combine.LARGEST:
        used = min(max((window.comm_s[group] for group in hidden), default=0.0), left)
        return Exposed(found, plain + max(rest, default=0.0), spent_s + used)
    return Exposed(found, plain + added(rest), spent_s + left - budget)


# Whose gathers and scatters run beside products, tile by tile (of 2d: Pope et al. 2022, arXiv:2211.05102, section 3.5).
_BESIDE_PRODUCTS = (LayoutName.MEGATRON_SP, LayoutName.TWO_D)


def cannot_overlap(overlap: Sequence[str], parallel: Parallelism, work: Workload) -> dict[str, str]:
    """The groups of ``overlap`` that wait for nothing but their own communication, each with the reason."""
    microbatches = 1 if work.uneven_batch(parallel.dp) else work.microbatches(parallel.dp)
    waits = {
        # Weights are gathered before they are asked for.
        "tp": parallel.layout is not LayoutName.WEIGHT_GATHERED
        and (work.phase is Phase.DECODE or parallel.layout not in _BESIDE_PRODUCTS),
        "cp": parallel.cp_comm is not CpComm.RING,
        "ep": not work.phase.training or microbatches < 2,
        "dp": not work.phase.training,
        "pp": work.phase.training and parallel.schedule is Schedule.ONE_F_ONE_B,
    }
    return {axis: _WHY[axis][0] for axis in overlap if waits[axis] and getattr(parallel, axis) > 1}


_WHY = {
    "tp": (
        "an AllReduce stands before the next computation, which needs all of it",
        "--sp, whose gathers and scatters run beside the products",
    ),
    "cp": ("attention waits for all that is brought", "--cp-comm ring"),
    "ep": (
        "tokens travel beside the compute of another microbatch, and there is none",
        "a --global-batch of at least two microbatches, in training",
    ),
    "dp": ("there are no gradients or shards outside of training", "leave it out"),
    "pp": ("under 1f1b a stage waits for what the one before it sends", "--schedule interleaved, zb1p or dualpipe"),
}


def refused(overlap: Sequence[str], parallel: Parallelism, work: Workload) -> list[CommcalcError]:
    """Groups that were named and cannot overlap; not where all were asked for, which is a bound."""
    if set(overlap) >= set(AXES):
        return []
    return [
        IllegalDegree(f"{axis} cannot overlap: {why}", where="step.overlap (--overlap)", hint=_WHY[axis][1])
        for axis, why in cannot_overlap(overlap, parallel, work).items()
    ]
