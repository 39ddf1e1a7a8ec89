"""What does not go together with the layouts that no framework runs (`LayoutName.own`): refused, not guessed."""

from __future__ import annotations

from collections.abc import Iterator

from commcalc.errors import CommcalcError, IllegalDegree
from commcalc.transformer.layers import Heads, layers_of
from commcalc.transformer.layout import LayoutName
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Parallelism, Workload


def unlaid(model: Model, parallel: Parallelism, work: Workload) -> list[CommcalcError]:
    """Every other choice that the layout cannot be combined with."""
    if not parallel.layout.own:
        return []
    return [*_beside(parallel, work), *_of_model(model, parallel.layout)]


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
