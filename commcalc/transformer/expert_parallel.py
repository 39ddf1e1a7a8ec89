"""Experts on ranks of their own: tokens are brought to them and back.

Rows for an expert stand together: ``[E, Q, D]``, Q rows for each of E experts. A rank has rows for all experts before
they are dispatched, and rows of all its group for its own experts after, so dispatch and combine are changes of
sharding like any other: from E whole, Q split, to E split over the expert axes and back (AllToAll). Sources:
Lepikhin et al. 2020, arXiv:2006.16668, section 3.2; Megatron-LM core/transformer/moe/token_dispatcher.py
(MoEAlltoAllTokenDispatcher, MoEAllGatherTokenDispatcher); torchtitan distributed/expert_parallel.py; vLLM
all2all_backend allgather_reducescatter.
"""

from __future__ import annotations

from enum import StrEnum

from commcalc.algebra.program import Builder, Role, Rule
from commcalc.algebra.sharding import Sharding
from commcalc.transformer.dialects import Dialect
from commcalc.transformer.layout import CHOICES, COMBINE, DISPATCH, Layout
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Dispatch

_TD, _ROWS = ("T", "D"), ("E", "Q", "D")


class Counts(StrEnum):
    """How ranks learn how many rows others send: every count goes where it is needed, or all of them everywhere."""

    ALL_TO_ALL = "all_to_all"
    ALL_GATHER = "all_gather"


def own_tokens(b: Builder, layout: Layout, names: tuple[str, ...], dialect: Dialect) -> tuple[str, ...]:
    """Where ranks have the same tokens, each goes on with some of them."""
    own = Sharding.of(_TD, {"T": layout.all_tokens})
    if own == layout.stream_of(*_TD) and not dialect.whole_inputs:
        return names
    # Where the whole input was brought for all that reads it, the gradients of its parts are added as one sum.
    rule = Rule.REGROUP if dialect.whole_inputs else Rule.POINTWISE
    found = {
        name: b.op(rule, f"own_{name}", (name,), f"{name}t", _TD, kept=own, function="own_part", label="experts")
        for name in dict.fromkeys(names)
    }
    return tuple(found[name] for name in names)


def dispatched(b: Builder, model: Model, layout: Layout, x: str, dialect: Dialect, counts: Counts | None) -> str:
    """Experts on the tokens ``x[T, D]``, with ``chosen`` and ``routing`` of the same; the output as the stream."""
    whole, mine = _lie(layout, layout.experts), _lie(layout)
    if counts:
        _counts(b, layout, counts)
    b.op(
        Rule.REGROUP, "permute", (x, "chosen"), "Xd", _ROWS, kept=Sharding.of(_ROWS, whole), label=DISPATCH,
        function="permute",
    )  # fmt: skip
    _send(b, layout, "Xd", "Xe", _ROWS, "dispatch")
    if dialect.dispatch is Dispatch.DEDUPLICATED:
        _sent_choices(b, layout)
    weighed = _sent_routing(b, model, layout) if dialect.sends_routing else None
    rows = "Xe"
    if layout.expert_tp:  # as a step of its own, whose result is saved
        kept = Sharding.of(_ROWS, mine | {"Q": layout.expert_data})
        rows = b.op(Rule.POINTWISE, "gather_rows", ("Xe",), "Xg", _ROWS, kept=kept, function="same", label="experts")
    made = _work(b, model, layout, rows, weighed, Sharding.of(_ROWS, mine))
    if layout.expert_nodes:
        local = tuple(axis for axis in layout.experts if axis not in layout.expert_nodes)
        between = Sharding.of(_ROWS, _lie(layout, local))
        made = b.op(
            Rule.POINTWISE, "combine_in_node", (made,), "On", _ROWS, kept=between, label=COMBINE, function="same"
        )  # fmt: skip
    b.op(
        Rule.POINTWISE, "combine", (made,), "Od", _ROWS, kept=Sharding.of(_ROWS, whole), label=COMBINE,
        function="same",
    )  # fmt: skip
    own = Sharding.of(_TD, {"T": layout.all_tokens})
    stream = layout.stream_of(*_TD)
    back, function = (("Od", "chosen"), "unpermute") if weighed else (("Od", "chosen", "routing"), "unpermute_weighed")
    made = b.op(
        Rule.REGROUP, "unpermute", back, "Pt", _TD, kept=own, label=COMBINE, function=function
    )  # fmt: skip
    if own == stream:
        return made
    return b.op(Rule.POINTWISE, "all_tokens", (made,), "Pe", _TD, kept=stream, function="same", label="experts")


def gathered(b: Builder, model: Model, layout: Layout, x: str, kept: Sharding | None) -> str:
    """Experts on all tokens of their group, each on those that chose it; the output ``Pe[T, D]``, summed over it."""
    tokens = {"T": _those(layout)}
    b.op(
        Rule.POINTWISE, "dispatch", (x,), "Ag", _TD, kept=Sharding.of(_TD, tokens), label=DISPATCH, function="same"
    )  # fmt: skip
    rows = {"E": layout.experts, "Q": _those(layout)}
    b.op(
        Rule.REGROUP, "permute", ("Ag", "chosen"), "Xe", _ROWS, kept=Sharding.of(_ROWS, rows), label=DISPATCH,
        function="permute",
    )  # fmt: skip
    made = _work(b, model, layout, "Xe", None, None)
    pending = (*layout.experts, *layout.expert_tp)
    made = b.op(
        Rule.REGROUP, "unpermute", (made, "chosen", "routing"), "Pw", _TD, label=COMBINE,
        kept=Sharding.of(_TD, tokens, pending), function="unpermute_weighed",
    )  # fmt: skip
    if kept is None and set(pending) == set(layout.weights.get("S", ())):
        return made  # the shared expert is added before both are reduced
    return b.op(Rule.ADD, "combine", (made,), "Pe", _TD, kept=kept or layout.stream_of(*_TD), label=COMBINE)


def gathered_tokens(layout: Layout, *dims: str) -> Sharding:
    """What belongs to tokens where every rank of an expert group has all of them."""
    return Sharding.of(dims, {"T": _those(layout)})


def _those(layout: Layout) -> tuple[str, ...]:
    """The axes that deal out tokens beyond an expert group."""
    group = {*layout.experts, *layout.expert_tp}
    return tuple(axis for axis in layout.stream.get("T", ()) if axis not in group)


def _lie(layout: Layout, whole: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """Rows on their way: every rank has those for the experts of all ranks that differ in the axes ``whole`` alone."""
    copies = (*layout.expert_data, *layout.expert_tp)
    local = tuple(axis for axis in layout.experts if axis not in layout.expert_nodes)
    there = tuple(axis for axis in layout.experts if axis not in whole)
    back = tuple(axis for axis in (*local, *layout.expert_nodes) if axis in whole)
    return {"Q": (*copies, *back), "W": (*copies, *back), "E": there}


def _send(
    b: Builder, layout: Layout, made: str, output: str, dims: tuple[str, ...], name: str, role: Role = Role.ACTIVATION
) -> None:
    """Rows to the ranks that hold their experts: where nodes are told apart, to a rank of the node first."""
    if layout.expert_nodes:
        local = tuple(axis for axis in layout.experts if axis not in layout.expert_nodes)
        made = b.op(
            Rule.POINTWISE, f"{name}_to_node", (made,), f"{output}n", dims, label=DISPATCH, function="same", role=role,
            kept=Sharding.of(dims, _lie(layout, local)), differentiable=role is not Role.INDEX,
        )  # fmt: skip
    b.op(
        Rule.POINTWISE, name, (made,), output, dims, kept=Sharding.of(dims, _lie(layout)), label=DISPATCH,
        function="same", role=role, differentiable=role is not Role.INDEX,
    )  # fmt: skip


def _counts(b: Builder, layout: Layout, how: Counts) -> None:
    """How many rows every rank has for each expert, ``[E, W]``, before the rows themselves can be sent."""
    counts = ("E", "W")
    whole = Sharding.of(counts, _lie(layout, layout.experts))
    b.op(
        Rule.REGROUP, "count_rows", ("chosen",), "counts", counts, kept=whole, label=DISPATCH, role=Role.INDEX,
        differentiable=False, function="count_rows",
    )  # fmt: skip
    if how is Counts.ALL_TO_ALL:
        _send(b, layout, "counts", "counted", counts, "dispatch_counts", Role.INDEX)
        return
    every = Sharding.of(counts, {"W": layout.expert_data})  # on all ranks that an expert's rows may come from
    b.op(
        Rule.POINTWISE, "dispatch_counts", ("counts",), "counted", counts, kept=every, label=DISPATCH,
        role=Role.INDEX, differentiable=False, function="same",
    )  # fmt: skip


def _sent_choices(b: Builder, layout: Layout) -> None:
    """Which experts a token chose goes with every copy of it: a rank that has several cannot tell otherwise.

    Source: DeepEP csrc/kernels/intranode.cu (channel_topk_idx_buffers), internode.cu (get_num_bytes_per_token).
    """
    rows = ("E", "Q")
    b.op(
        Rule.REGROUP, "permute_choices", ("chosen",), "Id", rows, label=DISPATCH, role=Role.INDEX,
        kept=Sharding.of(rows, _lie(layout, layout.experts)), differentiable=False, function="permute_choices",
    )  # fmt: skip
    _send(b, layout, "Id", CHOICES[0], rows, "dispatch_choices", Role.INDEX)


def _sent_routing(b: Builder, model: Model, layout: Layout) -> str:
    """How much every row counts goes with it, and is whole where its expert is split."""
    rows = ("E", "Q")
    b.op(
        Rule.REGROUP, "permute_routing", ("routing", "chosen"), "Rd", rows, label=DISPATCH, role=Role.FP32,
        kept=Sharding.of(rows, _lie(layout, layout.experts)), function="permute_routing",
    )  # fmt: skip
    _send(b, layout, "Rd", "Re", rows, "dispatch_routing", Role.FP32)
    if not layout.expert_tp or model.expert_bias:
        return "Re"
    last = Sharding.of(rows, {"E": layout.experts, "Q": layout.expert_data})
    return b.op(
        Rule.POINTWISE, "gather_row_routing", ("Re",), "Rg", rows, kept=last, label="experts", function="same",
        role=Role.FP32,
    )  # fmt: skip


def _work(b: Builder, model: Model, layout: Layout, x: str, weighed: str | None, kept: Sharding | None) -> str:
    """What each expert makes of its rows ``x``, as any MLP, and where ``weighed`` times what each counts."""
    wide, biased = ("E", "Q", "M"), model.expert_bias
    parts = {"Ge": "gate", "Ue": "up"} if model.gated_mlp else {"Ue": "up"}
    for made, low in parts.items():
        weight = b.weight(f"We_{low}", layout.expert_weight("E", "D", "M"))
        output = f"{made}w" if biased else made
        b.op(Rule.CONTRACT, f"expert_{low}_proj", (x,), output, wide, weights=(weight,), label="experts")
        if biased:
            bias = b.weight(f"be_{low}", layout.expert_weight("E", "M"))
            b.op(Rule.BIAS, f"expert_{low}_bias", (output,), made, wide, weights=(bias,), label="experts")
    function = "gated_activation" if model.gated_mlp else "activation"
    made = b.op(Rule.POINTWISE, "expert_activation", tuple(parts), "Ze", wide, function=function, label="experts")
    if weighed and not biased:
        made = b.op(Rule.WEIGH, "weigh_rows", (made, weighed), "Zw", wide, label="experts", function="weigh")
    down = b.weight("We_down", layout.expert_weight("E", "M", "D"))
    made = b.op(Rule.CONTRACT, "expert_down_proj", (made,), "Oe", _ROWS, weights=(down,), label="experts", kept=kept)
    if biased:
        bias = b.weight("be_down", layout.expert_weight("E", "D"))
        made = b.op(Rule.BIAS, "expert_down_bias", (made,), "Ob", _ROWS, weights=(bias,), label="experts")
        if weighed:
            made = b.op(Rule.WEIGH, "weigh_rows", (made, weighed), "Ow", _ROWS, label="experts", function="weigh")
    return made
