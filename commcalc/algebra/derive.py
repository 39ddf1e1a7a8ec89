"""From a program under a layout to its collectives, forward and backward, by rule alone.

Forward: every operation states what it needs of its operands' shardings (`program.Rule`); where a tensor lies
otherwise, a reshard is due, shared by all who need the same. Backward rests on one sentence:

    The gradient of an operand is split as the operand was, and is a pending sum over every mesh axis along which
    the operation's other operands differ and this one does not.

(each device did another part of the work with the same operand). The gradient of a reshard then goes back to how the
tensor lay before, whole where that was a pending sum. Gradients of one tensor are added first and reduced once;
linear operations pass a pending sum on, the others need it whole (DESIGN rules 4 and 5).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from commcalc.algebra.collective import Kind, Step
from commcalc.algebra.contraction import conflicts, product_sharding
from commcalc.algebra.program import Op, Program, Role, Rule
from commcalc.algebra.reshard import reshard
from commcalc.algebra.sharding import Sharding
from commcalc.errors import ShardingError

FORWARD = "forward"
BACKWARD = "backward"

# These pass a pending sum of their output's gradient on to their operands: they are linear.
_LINEAR = (Rule.CONTRACT, Rule.LOOKUP, Rule.ADD, Rule.BIAS, Rule.TAKE)

REGATHER = "re-gather of the saved input for the weight gradient"


class Event(NamedTuple):
    """One step of a reshard where it happens: of which tensor, and for which operations."""

    direction: str
    step: Step
    tensor: str
    role: Role
    label: str
    sublayer: str
    note: str = ""


class Placed(NamedTuple):
    """An operation with the shardings it really ran on."""

    op: Op
    inputs: tuple[Sharding, ...]
    weights: tuple[Sharding, ...]
    output: Sharding


class State(NamedTuple):
    """One tensor as it lies at one moment."""

    direction: str
    tensor: str
    sharding: Sharding
    role: Role
    sublayer: str


class Derivation(NamedTuple):
    """All that follows from a program under a layout.

    ``pending`` are the weight gradients that are still pending sums when the backward pass is over: they are reduced
    once per step.
    """

    program: Program
    placed: tuple[Placed, ...]
    forward: tuple[Event, ...]
    backward: tuple[Event, ...]
    pending: tuple[tuple[str, Sharding], ...]
    states: tuple[State, ...]

    def steps(self, direction: str) -> tuple[Event, ...]:
        """The collectives of one direction, without the free slices."""
        events = self.forward if direction == FORWARD else self.backward
        return tuple(event for event in events if event.step.kind is not Kind.SLICE)


def derive(program: Program, *, backward: bool = True, regather: bool = True) -> Derivation:
    """The collectives of ``program``; ``regather`` saves a gathered input split and gathers it again.

    `ShardingError` where an operation cannot be formed from what the layout stores.
    Source of the re-gather: Megatron-LM core/tensor_parallel/layers.py,
    LinearWithGradAccumulationAndAsyncCommunication.backward.
    """
    run = _Forward(program)
    for op in program.ops:
        run.apply(op)
    if not backward:
        return Derivation(program, tuple(run.placed), tuple(run.events), (), (), tuple(run.states))
    back = _Backward(run, regather)
    for placed in reversed(run.placed):
        back.apply(placed)
    for name in program.inputs:
        back.arrive(name, whole=False)
    return Derivation(
        program,
        tuple(run.placed),
        tuple(run.events),
        tuple(back.events),
        tuple((name, grad) for name, grad in back.weights.items() if grad.unreduced),
        (*run.states, *back.states),
    )


class _Move(NamedTuple):
    """A reshard on the way from a tensor to some of its users."""

    steps: tuple[Step, ...]
    users: list[Op]


class _Forward:
    """Walks the operations in order; remembers how each tensor lies and lay."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.natural: dict[str, Sharding] = {}
        self.kept: dict[str, Sharding] = {}
        self.makers: dict[str, Op] = {}
        # Reshards of a kept tensor by the sharding that the users asked for.
        self.moves: dict[tuple[str, Sharding], _Move] = {}
        self.events: list[Event] = []
        self.placed: list[Placed] = []
        self.states: list[State] = []
        for name in program.inputs:
            stored = _stored(program, name)
            self.natural[name] = self.kept[name] = stored
            self._note(name, stored, program.ops[0].sublayer if program.ops else "")

    def apply(self, op: Op) -> None:
        weights = tuple(_stored(self.program, name) for name in op.weights)
        kept = [self.kept[name] for name in op.inputs]
        needs = _NEEDS[op.rule](op, kept, weights)
        for name, need in zip(op.inputs, needs, strict=True):
            self._bring(name, need, op)
        tensor = self.program.tensors[op.output]
        made = _output(op, tensor.dims, needs, weights, tensor.sharding)
        self.placed.append(Placed(op, tuple(needs), weights, made))
        self.natural[op.output] = self.kept[op.output] = made
        self.makers[op.output] = op
        self._note(op.output, made, op.sublayer)
        if tensor.sharding is not None and tensor.sharding != made:
            steps = reshard(made, tensor.sharding)
            self._emit(steps, op.output, op.label, op.sublayer)
            self.kept[op.output] = tensor.sharding

    def _bring(self, name: str, need: Sharding, op: Op) -> None:
        if need == self.kept[name]:
            return
        key = (name, need)
        if key in self.moves:
            self.moves[key].users.append(op)
            return
        move = self.moves[key] = _Move(reshard(self.kept[name], need), [op])
        sharers = [user for user in self.program.ops if name in user.inputs and user.rule is op.rule]
        self._emit(move.steps, name, *_who(sharers))

    def _emit(self, steps: tuple[Step, ...], name: str, label: str, sublayer: str) -> None:
        role = self.program.tensors[name].role
        for step in steps:
            self.events.append(Event(FORWARD, step, name, role, label, sublayer))
            self._note(name, step.after, sublayer)

    def _note(self, name: str, sharding: Sharding, sublayer: str) -> None:
        self.states.append(State(FORWARD, name, sharding, self.program.tensors[name].role, sublayer))


class _Gradient(NamedTuple):
    sharding: Sharding
    user: Op


class _Backward:
    """Walks the operations in reverse; gathers the gradients of each tensor as each user leaves them."""

    def __init__(self, run: _Forward, regather: bool) -> None:
        self.run = run
        self.regather = regather
        self.events: list[Event] = []
        self.states: list[State] = []
        # Gradients by tensor and by the sharding in which it was used.
        self.grads: dict[str, dict[Sharding, list[_Gradient]]] = {}
        self.weights: dict[str, Sharding] = {}
        last = run.placed[-1].op
        out = run.kept[last.output]
        self._give(last.output, out, _Gradient(out.reduced(), last))

    def apply(self, placed: Placed) -> None:
        op = placed.op
        if not op.differentiable or op.output not in self.grads:
            return
        grad = self.arrive(op.output, whole=op.rule not in _LINEAR and not op.partial_gradient)
        operands = (*placed.inputs, *placed.weights)
        for at, used in enumerate(operands):
            others = [axis for i, other in enumerate(operands) if i != at for axis in other.varying]
            others += [axis for axis in placed.output.varying if op.rule is Rule.TAKE]
            pending = [*grad.unreduced, *(axis for axis in others if axis not in used.varying)]
            made = used.reduced(tuple(dict.fromkeys(pending)))
            if at >= len(placed.inputs):
                self._weight(op.weights[at - len(placed.inputs)], made, op)
            elif self.run.program.tensors[op.inputs[at]].role is not Role.INDEX:
                self._give(op.inputs[at], used, _Gradient(made, op))

    def arrive(self, name: str, *, whole: bool) -> Sharding:
        """Bring all gradients of ``name`` to where its maker needs them: one sum, whole where demanded."""
        kept, natural = self.run.kept[name], self.run.natural[name]
        uses = self.grads.pop(name, {})
        at_kept = uses.pop(kept, [])
        for used, gradients in uses.items():
            self._regather(name, used)
            who = self._users(gradients)
            back = self._bring(name, self._sum(name, gradients), kept.reduced(), who)
            at_kept = [*at_kept, _Gradient(back, gradients[0].user)]
        if not at_kept:
            return natural.reduced()
        grad = self._sum(name, at_kept)
        users = self._users(at_kept)
        if kept != natural:  # the reshard behind the maker, back again
            maker = self.run.makers[name]
            who = users if grad.unreduced else (maker.label, maker.sublayer)
            return self._bring(name, grad, natural.reduced(), who)
        if whole:
            return self._bring(name, grad, grad.reduced(), users)
        self._state(name, grad, users[1])
        return grad

    def _sum(self, name: str, gradients: list[_Gradient]) -> Sharding:
        """Add gradients that lie alike; pending sums first, reduced only where something else joins them."""
        pending = dict.fromkeys(gradient.sharding.unreduced for gradient in gradients)
        whole = gradients[0].sharding.reduced()
        if len(pending) == 1:
            return gradients[0].sharding
        for axes in pending:
            users = self._users([gradient for gradient in gradients if gradient.sharding.unreduced == axes])
            self._bring(name, whole.reduced(axes), whole, users)
        return whole

    def _users(self, gradients: list[_Gradient]) -> tuple[str, str]:
        """Label and sublayer of the operations these gradients come from, in the program's order."""
        users = {gradient.user.name for gradient in gradients}
        return _who([op for op in self.run.program.ops if op.name in users])

    def _bring(self, name: str, start: Sharding, target: Sharding, who: tuple[str, str]) -> Sharding:
        """Reshard a gradient, listed under the label and sublayer ``who``."""
        role = self.run.program.tensors[name].role
        self._state(name, start, who[1])
        for step in reshard(start, target):
            self.events.append(Event(BACKWARD, step, f"d{name}", role, *who))
            self._state(name, step.after, who[1])
        return target

    def _regather(self, name: str, used: Sharding) -> None:
        """The saved tensor was kept split; the weight gradients of its users need it whole again."""
        move = self.run.moves[name, used]
        if not self.regather or not any(user.weights for user in move.users):
            return
        role = self.run.program.tensors[name].role
        label, sublayer = _who(move.users)
        for step in move.steps:
            if step.kind is Kind.ALL_GATHER:
                self.events.append(Event(BACKWARD, step, name, role, label, sublayer, REGATHER))

    def _give(self, name: str, used: Sharding, gradient: _Gradient) -> None:
        self.grads.setdefault(name, {}).setdefault(used, []).append(gradient)

    def _weight(self, name: str, grad: Sharding, op: Op) -> None:
        held = self.weights.get(name)
        if held is None or not held.unreduced:
            self.weights[name] = grad
        self.states.append(State(BACKWARD, f"d{name}", grad, Role.GRADIENT, op.sublayer))

    def _state(self, name: str, sharding: Sharding, sublayer: str) -> None:
        role = self.run.program.tensors[name].role
        self.states.append(State(BACKWARD, f"d{name}", sharding, role, sublayer))


def _stored(program: Program, name: str) -> Sharding:
    sharding = program.tensors[name].sharding
    if sharding is None:
        raise ShardingError(f"the layout does not say how {name} is stored")
    return sharding


def _who(ops: list[Op]) -> tuple[str, str]:
    """The label and sublayer under which a reshard for ``ops`` is listed."""
    labels = list(dict.fromkeys(op.label for op in ops))
    sublayers = list(dict.fromkeys(op.sublayer for op in ops))
    return " + ".join(labels), " + ".join(sublayers)


_Needs = Callable[[Op, list[Sharding], tuple[Sharding, ...]], list[Sharding]]


def _need_product(op: Op, inputs: list[Sharding], weights: tuple[Sharding, ...]) -> list[Sharding]:
    """Activations are brought to the weights: what conflicts with a weight is gathered, or reduced."""
    needs = list(inputs)
    for weight in weights:
        while found := conflicts(needs[0], weight):
            needs[0] = _freed(op, needs[0], found[0].axis)
    return needs


def _freed(op: Op, sharding: Sharding, axis: str) -> Sharding:
    """``sharding`` without ``axis``: reduced, or gathered together with the axes that split the dimension further."""
    if axis in sharding.unreduced:
        return sharding.reduced([name for name in sharding.unreduced if name != axis])
    if axis not in sharding.placed:
        raise ShardingError(
            f"{op.name}: a weight is split over {axis} on a dimension that the activation holds whole",
            hint="store the weight whole over that axis, or split the activation as well",
        )
    dim = sharding.placed[axis]
    held = sharding.axes_of(dim)
    return sharding.with_dim(dim, held[: held.index(axis)])


def _need_same(op: Op, inputs: list[Sharding], weights: tuple[Sharding, ...]) -> list[Sharding]:
    """Terms of a sum lie alike; the sum stays pending only where every term is."""
    pending = {sharding.unreduced for sharding in inputs}
    if len(pending) == 1 and len({sharding.split for sharding in inputs}) == 1:
        return inputs
    target = next((sharding for sharding in inputs if not sharding.unreduced), inputs[0].reduced())
    return [target] * len(inputs)


def _need_whole(op: Op, inputs: list[Sharding], weights: tuple[Sharding, ...]) -> list[Sharding]:
    """No pending sum, and the dimensions ``over`` whole."""
    needs = []
    for sharding in inputs:
        need = sharding.reduced()
        for dim in op.over:
            need = need.with_dim(dim, ())
        needs.append(need)
    return needs


def _need_unpended(op: Op, inputs: list[Sharding], weights: tuple[Sharding, ...]) -> list[Sharding]:
    """No pending sum; dimensions stay split."""
    return [sharding.reduced() for sharding in inputs]


_NEEDS: Mapping[Rule, _Needs] = {
    Rule.CONTRACT: _need_product,
    Rule.LOOKUP: _need_unpended,
    Rule.ADD: _need_same,
    Rule.BIAS: _need_unpended,
    Rule.NORM: _need_whole,
    Rule.POINTWISE: _need_unpended,
    Rule.ATTEND: _need_whole,
    Rule.REDUCE: _need_unpended,
    Rule.TAKE: _need_whole,
}


def _output(
    op: Op, dims: tuple[str, ...], inputs: list[Sharding], weights: tuple[Sharding, ...], kept: Sharding | None
) -> Sharding:
    """How the output lies before any reshard."""
    if op.rule is Rule.CONTRACT:
        return product_sharding(inputs[0], weights[0], dims)
    if op.rule is Rule.LOOKUP:  # each device finds the rows it has, as if its one-hot columns were split alike
        table = {dim: weights[0].axes_of(dim) for dim in op.over}
        rows = Sharding.of((*inputs[0].dims, *op.over), table | {d: inputs[0].axes_of(d) for d in inputs[0].dims})
        return product_sharding(rows, weights[0], dims)
    if op.rule is Rule.TAKE:
        if kept is None:
            raise ShardingError(f"{op.name}: the layout does not say which part of {op.output} a device takes")
        return kept
    first = inputs[0]
    if op.rule is Rule.REDUCE:
        gone = [axis for dim in op.over for axis in first.axes_of(dim)]
        return Sharding.of(dims, {dim: first.axes_of(dim) for dim in dims}, gone)
    widest = max(inputs, key=lambda sharding: len(sharding.dims))
    return Sharding.of(dims, {dim: widest.axes_of(dim) for dim in dims}, first.unreduced)
