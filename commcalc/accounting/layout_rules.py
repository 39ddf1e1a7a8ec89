"""What does not go together with the layouts that no framework runs (`LayoutName.own`): refused, not guessed."""

from __future__ import annotations

from collections.abc import Iterator

from commcalc.errors import CommcalcError, IllegalDegree, UsageError
from commcalc.transformer.layers import Ffn, Heads, layers_of
from commcalc.transformer.layout import KvPolicy, LayoutName, kv_counts
from commcalc.transformer.limits import listed, violations
from commcalc.transformer.spec import Model
from commcalc.transformer.two_axes import factors, grid_of, shared
from commcalc.transformer.work import Parallelism, Workload


def unlaid(model: Model, parallel: Parallelism, work: Workload) -> list[CommcalcError]:
    """Every other choice that the layout cannot be combined with."""
    found = list(_of_tp_x(parallel))
    if not parallel.layout.own:
        return found
    found += [*_beside(parallel, work), *_of_model(model, parallel.layout)]
    # A degree that no model has is for `transformer.limits` to refuse.
    if parallel.layout is LayoutName.TWO_D and not found and not violations(model, parallel, work):
        found += _of_grid(model, parallel)
    return found


def _of_tp_x(parallel: Parallelism) -> Iterator[CommcalcError]:
    """The first axis of a grid: a factor of the degree, on the layout that has a grid."""
    x, tp = parallel.tp_x, parallel.tp
    if x is None:
        return
    where = f"parallelism.tp_x (--tp-x {x})"
    if parallel.layout is not LayoutName.TWO_D:
        message = f"tp_x is an axis of layout 2d: layout {parallel.layout} splits nothing over it"
        yield UsageError(message, where=where, hint="--layout 2d, or leave it out")
    elif tp % x:
        legal = listed(factors(tp))
        yield IllegalDegree(f"tp {tp} mod tp_x {x} = {tp % x}", where=where, hint=f"legal: {legal}")


def _of_grid(model: Model, parallel: Parallelism) -> Iterator[CommcalcError]:
    """KV heads that do not go into a grid, or that are to be gathered."""
    tp, (x, y) = parallel.tp, grid_of(model, parallel)
    fewer = sorted({count for count in kv_counts(model).values() if count % tp})
    if not fewer:
        return
    counts = " and ".join(map(str, fewer))
    if parallel.kv is KvPolicy.GATHER:
        message = f"layout 2d shares {counts} KV heads by copies: what would be gathered of them is not described"
        yield IllegalDegree(message, where="parallelism.kv (--kv gather)", hint="--kv replicate")
    if len(fewer) > 1:
        message = f"{counts} KV heads in layers of different kinds cannot all be shared by a grid of {tp} ranks"
        hint = "a TP degree that is no larger than the KV heads, or --layout megatron"
        yield IllegalDegree(message, where=f"parallelism.tp (--tp {tp})", hint=hint)
    elif tp % fewer[0] == 0 and not shared(fewer[0], x, y):
        good = [n for n in factors(tp) if shared(fewer[0], n, tp // n)]
        message = f"{counts} KV heads cannot be shared by tp_x {x} x tp_y {y} ranks: along tp_y come {y}"
        hint = f"legal: {listed(good)}"
        yield IllegalDegree(message, where=f"parallelism.tp_x (--tp-x {x})", hint=hint)


def _beside(parallel: Parallelism, work: Workload) -> Iterator[CommcalcError]:
    """Frameworks, and groups that share out what the layout shares out itself."""
    layout = parallel.layout
    if parallel.framework is not None:
        message = f"layout {layout} is that of its paper: how {parallel.framework} would run it is not described"
        where = f"parallelism.framework (--framework {parallel.framework})"
        yield IllegalDegree(message, where=where, hint="leave the framework out, or --layout megatron")
    if parallel.cp > 1:
        message = f"layout {layout} is not described with context parallelism"
        hint = "--cp 1 with a higher --tp, or --layout megatron"
        yield IllegalDegree(message, where=f"parallelism.cp (--cp {parallel.cp})", hint=hint)
    if parallel.moves_tokens:
        key = "ep" if parallel.ep > 1 else "etp"
        message = f"layout {layout} is not described with experts on ranks of their own"
        where = f"parallelism.{key} (--{key} {getattr(parallel, key)})"
        yield IllegalDegree(message, where=where, hint="--ep 1 without --etp, or --layout megatron")
    if work.predict_layers:
        message = f"layout {layout} is not described for prediction layers"
        where = f"workload.predict_layers (--predict-layers {work.predict_layers})"
        yield IllegalDegree(message, where=where, hint="leave it out, or --layout megatron")


# Kinds of layers by layout that nobody has described for it, by what a model calls them.
_KINDS = {Heads.LATENT: "latent attention", Heads.LINEAR: "linear attention"}


def _of_model(model: Model, layout: LayoutName) -> Iterator[CommcalcError]:
    """Layers whose parts the layout does not say how to split."""
    kinds = layers_of(model).names
    for heads, what in _KINDS.items():
        if any(kind.heads is heads for kind in kinds) and (heads is Heads.LINEAR or layout is not LayoutName.SEQUENCE):
            message = f"the ledger cannot price this yet: {what} of {model.name} on layout {layout}"
            yield IllegalDegree(message, where=f"parallelism.layout (--layout {layout})", hint="--layout megatron")
    if layout is not LayoutName.SEQUENCE and any(kind.ffn is Ffn.SPARSE for kind in kinds):
        message = f"the ledger cannot price this yet: experts of {model.name} on layout {layout}"
        yield IllegalDegree(message, where=f"parallelism.layout (--layout {layout})", hint="--layout megatron")
