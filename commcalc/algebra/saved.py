"""What a forward pass must keep for the backward pass: the tensors that derivatives read, as they lie meanwhile.

By rule, like collectives: the derivative of a product reads both factors, that of a sum reads nothing. A tensor that
is gathered again before its derivative is kept split. Statistics of a token (of norms and softmaxes) are left out:
they are smaller than any tensor by the width of the model. Source: Korthikanti et al. 2022, arXiv:2205.05198,
section 4.1, which these rules add up to.
"""

from __future__ import annotations

from collections.abc import Collection

from commcalc.algebra.program import Rule
from commcalc.algebra.schedule import REGATHER, Derivation, Move, Placed, Value

# Their derivatives read none of their operands.
_LINEAR = (Rule.ADD, Rule.BIAS, Rule.TAKE, Rule.SHARE)
# Element by element, and linear: what only moves, renames or turns its operand.
_MOVES = frozenset({"same", "own_part", "flatten", "rope", "join_rope", "join", "repeat"})
# Experts weigh their rows inside the activation, whose inputs are kept, so that the rows themselves are not.
# Source: Megatron-LM core/fusions/fused_bias_swiglu.py, WeightedSwiGLUFunction.
_WEIGHED_INSIDE = frozenset({"weigh_rows", "combine", "combine_bias"})
# Norms of what no device has whole: beside it they read sums of a token.
_BY_SUMS = frozenset({"rmsnorm_by_sums", "layernorm_by_sums"})
# Their derivatives read what they made.
_READ_OUTPUT = frozenset({"exp"})


def saved(derivation: Derivation, again: Collection[str] = (), discarded: Collection[str] = ()) -> list[Value]:
    """The tensors that are kept, each once.

    ``again`` names operations that run a second time before their derivatives: what they make for one another is not
    kept. Of those in ``discarded`` (of ``again`` too) nothing that they make is, whoever reads it.
    """
    makers = {one.op.output: one.op.name for one in derivation.placed}
    gathered, alike = _gathered_again(derivation), _alike(derivation)
    found: dict[Value, None] = {}
    for placed in derivation.placed:
        reader = placed.op.name
        # An operation that runs again reads all that it read before.
        for value in _inputs(placed) if reader in again else read_by(placed):
            value = alike.get(value, value)
            maker = makers.get(value.name)
            if maker in discarded or (maker in again and reader in again):
                continue
            found.setdefault(gathered.get(value, value))
    return list(found)


def read_by(placed: Placed) -> tuple[Value, ...]:
    """The tensors, beside weights, that the derivative of an operation reads."""
    op = placed.op
    if not op.differentiable or op.rule in _LINEAR:
        return ()
    inputs = _inputs(placed)
    if op.function in _READ_OUTPUT:
        return (placed.made,)
    if op.rule is Rule.ATTEND:  # scores are made again from queries and keys; the output scales their gradient
        return (*inputs, placed.made)
    if op.rule is Rule.POINTWISE:
        if op.function in _BY_SUMS:
            return inputs[:1]
        return () if op.function in _MOVES else inputs
    if op.rule is Rule.REGROUP or op.name in _WEIGHED_INSIDE:  # where to, and by how much
        return inputs[1:]
    if op.rule is Rule.REDUCE:  # a sum of squares; a plain sum reads nothing
        return inputs if op.function in ("squares", "moments") else ()
    return inputs


def _inputs(placed: Placed) -> tuple[Value, ...]:
    """The tensors that an operation is given, save for those that it first makes others of."""
    made_of = placed.op.inputs[1:-1] if placed.op.function == "latent_attention" else ()
    if placed.op.rule is Rule.ROUTE and "C" not in placed.inputs[0].dims:
        made_of = placed.op.inputs[:1]
    return tuple(value for value in placed.operands[: len(placed.op.inputs)] if value.name not in made_of)


def _alike(derivation: Derivation) -> dict[Value, Value]:
    """Tensors under another name: what an operation passes on as it was given."""
    found: dict[Value, Value] = {}
    for placed in derivation.placed:
        if placed.op.function in ("same", "own_part", "flatten") and placed.inputs[0] == placed.output:
            given = placed.operands[0]
            found[placed.made] = found.get(given, given)
    return found


def _gathered_again(derivation: Derivation) -> dict[Value, Value]:
    """Tensors that the backward pass gathers again, with how they lie until then."""
    before: dict[Value, Value] = {}
    for action in derivation.backward:
        if isinstance(action, Move) and action.event.note == REGATHER:
            before[action.target] = before.get(action.source, action.source)
    return before
