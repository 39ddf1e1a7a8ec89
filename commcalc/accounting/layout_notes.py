"""What is to be said of the layouts that no framework runs (`LayoutName.own`), in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator

from commcalc.transformer.layout import LayoutName, kv_counts
from commcalc.transformer.spec import Model, Norm, Phase
from commcalc.transformer.two_axes import grid_of
from commcalc.transformer.work import Logits, Parallelism, Recompute, Workload


def layout_notes(model: Model, parallel: Parallelism, work: Workload) -> list[str]:
    """How parameters and tokens lie, what is moved for that, and when."""
    if not parallel.layout.own or parallel.tp == 1:
        return []
    if parallel.layout is LayoutName.TWO_D:
        return list(_of_grid(model, parallel, work))
    return list((_of_sequence if parallel.layout is LayoutName.SEQUENCE else _of_gathered)(parallel, work))


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


def _of_gathered(parallel: Parallelism, work: Workload) -> Iterator[str]:
    yield (
        f"layout weight-gathered: each of {parallel.tp} tp ranks stores every matrix and table split by D, and has as "
        "many whole sequences as others; each matrix is gathered before it is used, and forgotten after"
    )
    yield "norms and biases, which are small, and learned positions lie whole on every rank"
    if work.phase.training:
        again = "had from where a layer runs again" if work.recompute is Recompute.FULL else "gathered once more"
        yield (
            f"for the backward pass matrices are {again}; their gradients are scattered in every microbatch, those of "
            "what lies whole are summed once a step"
        )


def _of_grid(model: Model, parallel: Parallelism, work: Workload) -> Iterator[str]:
    x, y = grid_of(model, parallel)
    asked = "as asked for" if parallel.tp_x else "the factors nearest to x = sqrt(n D / F): --tp-x chooses others"
    yield (
        f"layout 2d: {parallel.tp} tp ranks are a grid of tp_x {x} x tp_y {y}, {asked}; weights are split by D over "
        "tp_x and by heads and columns over tp_y, the stream by D over both"
    )
    yield (
        "inputs are gathered over one axis and outputs scattered over the other; norms sum "
        f"{'one number' if model.norm is Norm.RMSNORM else 'two numbers'} of each token over all ranks, in fp32"
    )
    if work.phase.training:
        yield (
            "gathered inputs are saved split and gathered again for the weight gradients"
            if work.regather
            else "gathered inputs are kept for the weight gradients (no re-gather)"
        )
    for dim, heads in kv_counts(model).items():
        of = {"KS": " of sliding layers", "KG": " of global layers"}.get(dim, "")
        if heads < parallel.tp:
            copies = f"{parallel.tp // heads} ranks share each of {heads} KV heads{of}, and each has a cache of it"
            weights = f"; {y // heads} hold the same weights of it" if heads < y else "; none of its weights is copied"
            yield copies + weights
