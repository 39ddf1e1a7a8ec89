"""The schedule of a program under a layout: every local operation and every collective, in the order they run.

The ledger counts the collectives of a schedule; the simulator runs all of it. Both read the same list.
"""

from collections.abc import Mapping
from typing import NamedTuple

from commcalc.algebra.collective import Kind, Step
from commcalc.algebra.program import Op, Program, Role
from commcalc.algebra.sharding import Sharding

FORWARD = "forward"
BACKWARD = "backward"
REGATHER = "re-gather of the saved input for the weight gradient"
WEIGHT_AGAIN = "the weight again, for the gradient of the input"


class Event(NamedTuple):
    """One step of a reshard where it happens: of which tensor, and for which operations."""

    direction: str
    step: Step
    tensor: str
    role: Role
    label: str
    sublayer: str
    note: str = ""


class Value(NamedTuple):
    """What the devices hold of one tensor at one moment; ``number`` tells gradients of one tensor apart."""

    name: str
    sharding: Sharding
    number: int = 0


class Placed(NamedTuple):
    """An operation with the shardings it really runs on."""

    op: Op
    inputs: tuple[Sharding, ...]
    weights: tuple[Sharding, ...]
    output: Sharding

    @property
    def operands(self) -> tuple[Value, ...]:
        """Inputs, then weights."""
        names = (*self.op.inputs, *self.op.weights)
        return tuple(Value(*one) for one in zip(names, (*self.inputs, *self.weights), strict=True))

    @property
    def made(self) -> Value:
        """The output as the operation leaves it."""
        return Value(self.op.output, self.output)


class Move(NamedTuple):
    """One collective, or a free slice: ``source`` becomes ``target``."""

    event: Event
    source: Value
    target: Value


class Differentiate(NamedTuple):
    """The gradient of operand number ``at`` of an operation, from that of its output; each device does its part."""

    placed: Placed
    at: int
    gradient: Value
    made: Value


class Add(NamedTuple):
    """The sum of gradients of one tensor that lie alike."""

    terms: tuple[Value, ...]
    made: Value


Action = Placed | Move | Differentiate | Add


class State(NamedTuple):
    """One tensor as it lies at one moment."""

    direction: str
    tensor: str
    sharding: Sharding
    role: Role
    sublayer: str


class Derivation(NamedTuple):
    """All that follows from a program under a layout.

    ``seed`` is the gradient of the output, which the backward pass begins with; ``gradients`` are those that it leaves,
    of inputs and of weights. Weight gradients that are still pending sums then are reduced once per step.
    """

    program: Program
    forward: tuple[Action, ...]
    backward: tuple[Action, ...]
    output: Value
    seed: Value | None
    gradients: Mapping[str, Value]
    states: tuple[State, ...]

    @property
    def placed(self) -> tuple[Placed, ...]:
        """The operations of the forward pass."""
        return tuple(action for action in self.forward if isinstance(action, Placed))

    def events(self, direction: str) -> tuple[Event, ...]:
        """The steps of all reshards of one direction."""
        actions = self.forward if direction == FORWARD else self.backward
        return tuple(action.event for action in actions if isinstance(action, Move))

    def steps(self, direction: str) -> tuple[Event, ...]:
        """The collectives of one direction, without the free slices."""
        return tuple(event for event in self.events(direction) if event.step.kind is not Kind.SLICE)

    @property
    def pending(self) -> tuple[tuple[str, Sharding], ...]:
        """The weight gradients that are still pending sums when the backward pass is over."""
        return tuple(
            (name, grad.sharding)
            for name, grad in self.gradients.items()
            if self.program.tensors[name].role is Role.WEIGHT and grad.sharding.unreduced
        )
