"""Which tensor of the plain model is the same as one of a sharded program."""

from __future__ import annotations

import numpy as np

from commcalc.algebra.schedule import Value
from commcalc.simulate.plain import Plain
from commcalc.simulate.training import Part, Training, in_a_row
from commcalc.simulate.wire import Array

# Tensors that frameworks fuse, gather by columns or make twice: those of the plain model that they are, in a row.
_FUSED = {
    "QKV": ("Q", "K", "V", "Qgate"),
    "QKVw": ("Qw", "Kw", "Vw", "Qgate"),
    "GU": ("G", "U"),
    "Lqkvw": ("Lq", "Lk", "Lv"),
    "Lqkvzw": ("Lq", "Lk", "Lv", "Lz"),
    "Lbaw": ("Lb", "La"),
    "Lzw": ("Lz",),
    "Lbw": ("Lb",),
    "Law": ("La",),
    "Yw": ("Y",),
    "Of": ("O",),
    "Qc": ("Q",),
    "Kc": ("K",),
    "Vc": ("V",),
    "Qgatec": ("Qgate",),
    "own_chosen": ("chosen",),
    "own_routing": ("routing",),
    "Pbs": ("Pb",),
    "Ox": ("O",),
    "Oax": ("Oa",),
    "Pw": ("Pe",),
    "Pt": ("Pe",),
    "Ptn": ("Pen",),
}
# Of experts elsewhere sums are with their biases, where there are any.
_WITH_BIASES = {"Pw": "Peb", "Pt": "Peb", "Pe": "Peb", "Ptn": "Pebn", "Pen": "Pebn"}
# What only changes the devices of a tensor, or leaves them some of its tokens.
_UNCHANGED = ("same", "own_part")


def has_no_counterpart(value: Value) -> bool:
    """Rows in the order of experts, and sums of a norm: the plain model has tokens in their own order, norms whole."""
    return value.sharding.dims[0] == "E" or value.name.endswith("_sums")


def counterpart(training: Training, plain: Plain, part: Part, value: Value) -> Array | None:
    """A tensor of the plain run with the dimensions of the program; of one that is fused its parts in a row."""
    made = {one.op.output: one.op for one in training.derivations[part.program].placed}
    name, there = value.name, plain.tensors
    if name in made and f"{part.name}.{name}" not in there:
        op = made[name]
        if op.function == "join_rope":
            keys, rotary = (there[f"{part.name}.{one}"] for one in op.inputs)
            return np.concatenate([keys, np.broadcast_to(rotary[:, None], (*keys.shape[:2], rotary.shape[1]))], axis=2)
        if op.function in (*_UNCHANGED, "repeat_heads"):
            found = counterpart(training, plain, part, value._replace(name=op.inputs[0]))
            if found is None or op.function in _UNCHANGED:
                return found
            return np.repeat(found, training.ledger.sizes["KR"] // found.shape[1], axis=1)
    names: tuple[str, ...] = (name,)
    if training.ledger.layout.moves_tokens and name in _WITH_BIASES and f"{part.name}.{_WITH_BIASES[name]}" in there:
        names = (_WITH_BIASES[name],)
    elif f"{part.name}.{name}" not in there:
        names = _FUSED.get(name, ())
    parts = [there[full] for one in names if (full := f"{part.name}.{one}") in there]
    dims = len(value.sharding.dims)
    if len(parts) == 1 and parts[0].ndim == dims:
        return parts[0]
    return in_a_row(parts, dims - 1) if parts else None
