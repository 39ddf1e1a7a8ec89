"""From a program under a layout to its schedule, forward and backward, by rule alone.

Forward: every operation states what it needs of its operands' shardings (`needs`); where a tensor lies otherwise, a
reshard is due, shared by all who need the same. Backward rests on one sentence:

    The gradient of an operand is split as the operand was, and is a pending sum over every mesh axis along which
    the operation's other operands differ and this one does not.

(each device did another part of the work with the same operand). The gradient of a reshard then goes back to how the
tensor lay before, whole where that was a pending sum. Gradients of one tensor are added first and reduced once;
linear operations pass a pending sum on, the others need it whole (DESIGN rules 4 and 5).
"""

from typing import NamedTuple

from commcalc.algebra.collective import Kind, Step
from commcalc.algebra.needs import NEEDS, output
from commcalc.algebra.program import Op, Program, Role, Rule
from commcalc.algebra.reshard import reshard
from commcalc.algebra.schedule import (
    BACKWARD,
    FORWARD,
    REGATHER,
    WEIGHT_AGAIN,
    Action,
    Add,
    Derivation,
    Differentiate,
    Event,
    Move,
    Placed,
    State,
    Value,
)
from commcalc.algebra.sharding import Sharding
from commcalc.errors import ShardingError

# These pass a pending sum of their output's gradient on to their operands: they are linear.
_LINEAR = (Rule.CONTRACT, Rule.LOOKUP, Rule.ADD, Rule.BIAS, Rule.TAKE, Rule.ROUTE, Rule.REGROUP, Rule.SHARE, Rule.WEIGH)

# The gradients of their inputs read their weights.
_READ_WEIGHTS = (Rule.CONTRACT, Rule.ROUTE)


def derive(
    program: Program, *, backward: bool = True, regather: bool = True, forgets_weights: bool = True
) -> Derivation:
    """The schedule of ``program``; ``regather`` saves a gathered input split and gathers it again.

    A weight that is used otherwise than it is stored is brought before its operation, and where the program
    ``forgets_weights`` once more before the gradient that reads it; its own gradient goes back to where it is stored
    (DESIGN rule 7).
    `ShardingError` where an operation cannot be formed from what the layout stores.
    Source of the re-gather: Megatron-LM core/tensor_parallel/layers.py,
    LinearWithGradAccumulationAndAsyncCommunication.backward.
    """
    run = _Forward(program)
    for op in program.ops:
        run.apply(op)
    out = Value(program.output, run.kept[program.output])
    if not backward:
        return Derivation(program, tuple(run.actions), (), out, None, {}, tuple(run.states))
    back = _Backward(run, regather, forgets_weights)
    for placed in reversed(run.placed):
        back.apply(placed)
    for name in program.inputs:
        back.finish(name)
    states = (*run.states, *back.states)
    return Derivation(program, tuple(run.actions), tuple(back.actions), out, back.seed, back.found, states)


class _Reshard(NamedTuple):
    """A reshard on the way from a tensor to some of its users."""

    steps: tuple[Step, ...]
    users: list[Op]

    @property
    def gathers(self) -> tuple[Step, ...]:
        """The steps that a saved tensor must go through again to be whole."""
        return tuple(step for step in self.steps if step.kind is Kind.ALL_GATHER)


class _Forward:
    """Walks the operations in order; remembers how each tensor lies and lay."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.natural: dict[str, Sharding] = {}
        self.kept: dict[str, Sharding] = {}
        self.makers: dict[str, Op] = {}
        # Reshards of a kept tensor by the sharding that the users asked for, and their module.
        self.reshards: dict[tuple[str, Sharding, str], _Reshard] = {}
        self.actions: list[Action] = []
        self.placed: list[Placed] = []
        self.states: list[State] = []
        for name in program.inputs:
            stored = _stored(program, name)
            self.natural[name] = self.kept[name] = stored
            self._note(name, stored, program.ops[0].sublayer if program.ops else "")

    def apply(self, op: Op) -> None:
        weights = tuple(_used(self.program, name) for name in op.weights)
        kept = [self.kept[name] for name in op.inputs]
        needs = NEEDS[op.rule](op, kept, weights)
        for name, need in zip(op.inputs, needs, strict=True):
            self._bring(name, need, op)
        for name, used in zip(op.weights, weights, strict=True):
            self._emit(reshard(_stored(self.program, name), used), name, op.label, op.sublayer)
        tensor = self.program.tensors[op.output]
        made = output(op, tensor.dims, needs, weights, tensor.sharding)
        placed = Placed(op, tuple(needs), weights, made)
        self.placed.append(placed)
        self.actions.append(placed)
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
        key = (name, need, op.module)
        if key in self.reshards:
            self.reshards[key].users.append(op)
            return
        due = self.reshards[key] = _Reshard(reshard(self.kept[name], need), [op])
        sharers = [
            user
            for user in self.program.ops
            if name in user.inputs and user.rule is op.rule and user.module == op.module
            and self._needs_too(user, name, need)
        ]  # fmt: skip
        self._emit(due.steps, name, *_who(sharers))

    def _needs_too(self, user: Op, name: str, need: Sharding) -> bool:
        """Whether ``user``, which may come later, asks for ``name`` in the same sharding."""
        if any(one not in self.kept for one in user.inputs):
            return True
        weights = tuple(_used(self.program, one) for one in user.weights)
        needs = NEEDS[user.rule](user, [self.kept[one] for one in user.inputs], weights)
        return needs[user.inputs.index(name)] == need

    def _emit(self, steps: tuple[Step, ...], name: str, label: str, sublayer: str) -> None:
        role = self.program.tensors[name].role
        for step in steps:
            event = Event(FORWARD, step, name, role, label, sublayer)
            self.actions.append(Move(event, Value(name, step.before), Value(name, step.after)))
            self._note(name, step.after, sublayer)

    def _note(self, name: str, sharding: Sharding, sublayer: str) -> None:
        self.states.append(State(FORWARD, name, sharding, self.program.tensors[name].role, sublayer))


class _Gradient(NamedTuple):
    value: Value
    user: Op


class _Backward:
    """Walks the operations in reverse; gathers the gradients of each tensor as each user leaves them."""

    def __init__(self, run: _Forward, regather: bool, forgets_weights: bool) -> None:
        self.run = run
        self.regather = regather
        self.forgets_weights = forgets_weights
        self.actions: list[Action] = []
        self.states: list[State] = []
        # Gradients by tensor, by the sharding in which it was used and the module that did.
        self.grads: dict[str, dict[tuple[Sharding, str], list[_Gradient]]] = {}
        # What was gathered again for the gradients of operations that forget it.
        self.regathered: set[tuple[str, Sharding, str]] = set()
        # Weight gradients that wait until the input they need is gathered again, by that input as a module uses it.
        self.waiting: dict[tuple[str, Sharding, str], list[Differentiate]] = {}
        # What is left in the end: the gradients of weights and inputs.
        self.found: dict[str, Value] = {}
        self._count = 0
        last = run.placed[-1].op
        out = run.kept[last.output]
        self.seed = self._value(last.output, out.reduced())
        self._give(last.output, out, _Gradient(self.seed, last))

    def apply(self, placed: Placed) -> None:
        op = placed.op
        if not op.differentiable or op.output not in self.grads:
            return
        grad = self._arrive(op.output, whole=op.rule not in _LINEAR and not op.partial_gradient)
        if op.forgets:
            for name, used in zip(op.inputs, placed.inputs, strict=True):
                if used != self.run.kept[name]:
                    self._gather_again(name, used, op.module)
        if op.rule in _READ_WEIGHTS and any(self._asked(name) for name in op.inputs):
            self._weights_again(placed)
        operands = (*placed.inputs, *placed.weights)
        for at, used in enumerate(operands):
            others = [axis for i, other in enumerate(operands) if i != at for axis in other.varying]
            others += [axis for axis in placed.output.varying if op.rule in (Rule.TAKE, Rule.REGROUP, Rule.SHARE)]
            pending = [*grad.sharding.unreduced, *(axis for axis in others if axis not in used.varying)]
            made = used.reduced(tuple(dict.fromkeys(pending)))
            if at >= len(placed.inputs):
                self._weight(placed, at, grad, made)
            elif self._asked(op.inputs[at]):
                value = self._value(op.inputs[at], made)
                self.actions.append(Differentiate(placed, at, grad, value))
                self._give(op.inputs[at], used, _Gradient(value, op))

    def _weights_again(self, placed: Placed) -> None:
        """Bring weights that were forgotten after the forward pass, as they are used."""
        for name, used in zip(placed.op.weights, placed.weights, strict=True):
            for step in reshard(_stored(self.run.program, name), used) if self.forgets_weights else ():
                event = Event(BACKWARD, step, name, Role.WEIGHT, placed.op.label, placed.op.sublayer, WEIGHT_AGAIN)
                self.actions.append(Move(event, Value(name, step.before), Value(name, step.after)))

    def _asked(self, name: str) -> bool:
        """Whether anyone asks for the gradient of a tensor: not of an index, nor of what has no derivative."""
        maker = self.run.makers.get(name)
        role = self.run.program.tensors[name].role
        return role not in (Role.INDEX, Role.MASK) and (maker is None or maker.differentiable)

    def finish(self, name: str) -> None:
        """Leave the gradient of an input, where it has one."""
        if name in self.grads:
            self.found[name] = self._arrive(name, whole=False)

    def _arrive(self, name: str, *, whole: bool) -> Value:
        """Bring all gradients of ``name`` to where its maker needs them: one sum, whole where demanded."""
        kept, natural = self.run.kept[name], self.run.natural[name]
        uses = self.grads.pop(name)
        at_kept = uses.pop((kept, ""), [])
        for (used, module), gradients in uses.items():
            if used != kept:
                self._gather_again(name, used, module)
            who = self._users(gradients)
            back = self._bring(name, self._sum(name, gradients), kept.reduced(), who)
            at_kept = [*at_kept, _Gradient(back, gradients[0].user)]
        grad = self._sum(name, at_kept)
        users = self._users(at_kept)
        if kept != natural:  # the reshard behind the maker, back again
            maker = self.run.makers[name]
            who = users if grad.sharding.unreduced else (maker.label, maker.sublayer)
            return self._bring(name, grad, natural.reduced(), who)
        if whole:
            return self._bring(name, grad, grad.sharding.reduced(), users)
        self._state(name, grad.sharding, users[1])
        return grad

    def _sum(self, name: str, gradients: list[_Gradient]) -> Value:
        """Add gradients that lie alike; pending sums first, reduced only where something else joins them."""
        pending = dict.fromkeys(gradient.value.sharding.unreduced for gradient in gradients)
        whole = gradients[0].value.sharding.reduced()
        sums = []
        for axes in pending:
            alike = [gradient for gradient in gradients if gradient.value.sharding.unreduced == axes]
            one = self._added(name, [gradient.value for gradient in alike])
            sums.append(one if len(pending) == 1 else self._bring(name, one, whole, self._users(alike)))
        return self._added(name, sums)

    def _added(self, name: str, terms: list[Value]) -> Value:
        if len(terms) == 1:
            return terms[0]
        made = self._value(name, terms[0].sharding)
        self.actions.append(Add(tuple(terms), made))
        return made

    def _users(self, gradients: list[_Gradient]) -> tuple[str, str]:
        """Label and sublayer of the operations these gradients come from, in the program's order."""
        users = {gradient.user.name for gradient in gradients}
        return _who([op for op in self.run.program.ops if op.name in users])

    def _bring(
        self, name: str, start: Value, target: Sharding, who: tuple[str, str], role: Role | None = None
    ) -> Value:
        """Reshard a gradient, listed under the label and sublayer ``who``."""
        role = role or self.run.program.tensors[name].role
        self._state(name, start.sharding, who[1], role)
        now = start
        for step in reshard(start.sharding, target):
            after = self._value(name, step.after)
            self.actions.append(Move(Event(BACKWARD, step, f"d{name}", role, *who), now, after))
            self._state(name, step.after, who[1], role)
            now = after
        return now

    def _gather_again(self, name: str, used: Sharding, module: str) -> None:
        """The saved tensor was kept split; the weight gradients of its users need it whole again."""
        due = self.run.reshards[name, used, module]
        if self._saved_split(name, used, module) and (name, used, module) not in self.regathered:
            self.regathered.add((name, used, module))
            role = self.run.program.tensors[name].role
            for step in due.gathers:
                event = Event(BACKWARD, step, name, role, *_who(due.users), REGATHER)
                self.actions.append(Move(event, Value(name, step.before), Value(name, step.after)))
        self.actions += self.waiting.pop((name, used, module), [])

    def _saved_split(self, name: str, used: Sharding, module: str) -> bool:
        """Whether a gathered input is forgotten: keys, values, that of linear layers; not of experts nor norms."""
        due = self.run.reshards.get((name, used, module))
        if due is None or not due.gathers:
            return False
        if all(user.forgets for user in due.users):
            return True
        return self.regather and any(user.weights and user.rule is Rule.CONTRACT for user in due.users)

    def _give(self, name: str, used: Sharding, gradient: _Gradient) -> None:
        self.grads.setdefault(name, {}).setdefault((used, gradient.user.module), []).append(gradient)

    def _weight(self, placed: Placed, at: int, grad: Value, made: Sharding) -> None:
        name = placed.op.weights[at - len(placed.inputs)]
        if name in self.found:
            raise ShardingError(f"weight {name} is used twice in one program", hint="give each use a name of its own")
        value = self.found[name] = self._value(name, made)
        work = Differentiate(placed, at, grad, value)
        inputs = [(one.name, one.sharding, placed.op.module) for one in placed.operands[: len(placed.inputs)]]
        late = [one for one in inputs if self._saved_split(*one)]
        if late:
            self.waiting.setdefault(late[0], []).append(work)
        else:
            self.actions.append(work)
        if placed.op.syncs_at_once and set(made.unreduced) - set(placed.op.data) and not late:
            rest = [axis for axis in made.unreduced if axis in placed.op.data]
            self.found[name] = self._bring(name, value, made.reduced(rest), (placed.op.label, placed.op.sublayer))
        stored = _stored(self.run.program, name)
        if stored != placed.weights[at - len(placed.inputs)]:
            if late:
                raise ShardingError(f"{placed.op.name}: both its weight and its saved input are gathered")
            rest = [axis for axis in made.unreduced if axis not in stored.varying]
            who = (placed.op.label, placed.op.sublayer)
            self.found[name] = self._bring(name, value, stored.reduced(rest), who, Role.GRADIENT)
        self.states.append(State(BACKWARD, f"d{name}", made, Role.GRADIENT, placed.op.sublayer))

    def _value(self, name: str, sharding: Sharding) -> Value:
        self._count += 1
        return Value(f"d{name}", sharding, self._count)

    def _state(self, name: str, sharding: Sharding, sublayer: str, role: Role | None = None) -> None:
        role = role or self.run.program.tensors[name].role
        self.states.append(State(BACKWARD, f"d{name}", sharding, role, sublayer))


def _stored(program: Program, name: str) -> Sharding:
    sharding = program.tensors[name].sharding
    if sharding is None:
        raise ShardingError(f"the layout does not say how {name} is stored")
    return sharding


def _used(program: Program, name: str) -> Sharding:
    return program.tensors[name].used or _stored(program, name)


def _who(ops: list[Op]) -> tuple[str, str]:
    """The label and sublayer under which a reshard for ``ops`` is listed."""
    labels = list(dict.fromkeys(op.label for op in ops))
    sublayers = list(dict.fromkeys(op.sublayer for op in ops))
    return " + ".join(labels), " + ".join(sublayers)
