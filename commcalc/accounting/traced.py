"""Numbers that record what is done with them, so that one run of the scalar code answers for many points.

A `Traced` stands for an input that differs from point to point (tokens of a sequence, the width of a layer). It holds
its value at one point, the representative, and the ledger is built for that point by the very code that builds any
other. Each operation is written on the tape; each decision that depends on such a number is a guard: the tape answers
for all points at which every guard comes out the same. What cannot be written down (a number that becomes an index, a
key or a text) narrows the tape to points where the number is equal. So a tape is never wrong, at worst it serves few
points. `replay` runs tapes on arrays.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

# What stands for a constant operand, and one that is a node.
CONSTANT, NODE = 0, 1
Operand = tuple[int, Any]
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}
DIVIDES = ("div", "floordiv", "mod")


class Node(NamedTuple):
    """One operation on earlier nodes and constants; a variable has its name, a call the function it calls."""

    op: str
    operands: tuple[Operand, ...]
    name: str = ""
    function: Callable[..., Any] | None = None


class Tape:
    """The operations of one run, each once, and the guards: nodes with the truth that they had."""

    def __init__(self, *, texts: bool = False) -> None:
        self.nodes: list[Node] = []
        self.guards: dict[int, bool] = {}
        # Whether numbers that were put into texts must be equal too.
        self.texts = texts
        self._known: dict[object, int] = {}

    def variable(self, name: str, value: float) -> Any:
        """An input with its value at the representative."""
        return Traced(self, value, self._node(("variable", name), Node("variable", (), name)))

    def called(self, function: Callable[..., Any], constant: object, number: Traced) -> Any:
        """``function(constant, number)``, which must do the same to arrays."""
        key = ("call", function, constant, number.node)
        node = Node("call", ((CONSTANT, constant), (NODE, number.node)), function=function)
        return Traced(self, function(constant, number.value), self._node(key, node))

    def applied(self, op: str, one: object, other: object) -> Any:
        """The result of an operation on two numbers of which one is traced at least."""
        value = ARITHMETIC[op](_value(one), _value(other))
        if type(other) is int and isinstance(one, Traced) and type(one.value) is int:
            shorter = self._shortened(op, one, other, value)
            if shorter is not None:
                return shorter
        if op in DIVIDES and isinstance(other, Traced):
            self.guard(other, bool(other.value))
        operands = (_operand(one), _operand(other))
        key = (op, *((kind, type(what), what) for kind, what in operands))
        return Traced(self, value, self._node(key, Node(op, operands)))

    def _shortened(self, op: str, one: Traced, other: int, value: int) -> Traced | None:
        """The same in fewer steps: whole numbers times a constant, times or divided by another."""
        if op == "mul" and other == 1:
            return one
        before = self.nodes[one.node]
        if before.op != "mul" or op not in ("mul", "floordiv"):
            return None
        (kind, inner), (also, by) = before.operands
        if kind != NODE or also != CONSTANT or type(by) is not int:
            return None
        if op == "floordiv" and (other == 0 or by % other):
            return None
        by = by * other if op == "mul" else by // other
        if by == 1:
            return Traced(self, value, inner)
        key = ("mul", (NODE, int, inner), (CONSTANT, int, by))
        return Traced(self, value, self._node(key, Node("mul", ((NODE, inner), (CONSTANT, by)))))

    def rounded(self, number: Traced) -> Any:
        """To the nearest whole number, halves to the even one."""
        node = self._node(("round", number.node), Node("round", ((NODE, number.node),)))
        return Traced(self, round(number.value), node)

    def guard(self, number: Traced, truth: bool) -> bool:
        """Keep to the points where ``number`` is as true as here."""
        self.guards[number.node] = truth
        return truth

    def fixed(self, number: Traced) -> Any:
        """Keep to the points where ``number`` is what it is here; its value."""
        self.guard(self.applied("eq", number, number.value), True)
        return number.value

    def _node(self, key: object, node: Node) -> int:
        at = self._known.get(key)
        if at is None:
            at = self._known[key] = len(self.nodes)
            self.nodes.append(node)
        return at


class Traced:
    """A number on a tape; behaves as its value does."""

    __slots__ = ("node", "tape", "value")

    def __init__(self, tape: Tape, value: Any, node: int) -> None:
        self.tape = tape
        self.value = value
        self.node = node

    def _with(self, op: str, other: object) -> Any:
        if isinstance(other, (Traced, int, float)):
            return self.tape.applied(op, self, other)
        if op in ("eq", "ne") and not hasattr(other, "numerator"):  # None, a text
            return ARITHMETIC[op](self.value, other)
        return ARITHMETIC[op](self.tape.fixed(self), other)

    def _under(self, op: str, other: object) -> Any:
        if isinstance(other, (int, float)):
            return self.tape.applied(op, other, self)
        return ARITHMETIC[op](other, self.tape.fixed(self))

    def __add__(self, other: object) -> Any:
        return self if _is(other, 0) else self._with("add", other)

    def __radd__(self, other: object) -> Any:
        return self if _is(other, 0) else self._under("add", other)

    def __sub__(self, other: object) -> Any:
        return self._with("sub", other)

    def __rsub__(self, other: object) -> Any:
        return self._under("sub", other)

    def __mul__(self, other: object) -> Any:
        return self._with("mul", other)

    def __rmul__(self, other: object) -> Any:  # in one order, so that equal products are one
        return self._with("mul", other) if isinstance(other, (int, float)) else self._under("mul", other)

    def __truediv__(self, other: object) -> Any:
        return self._with("div", other)

    def __rtruediv__(self, other: object) -> Any:
        return self._under("div", other)

    def __floordiv__(self, other: object) -> Any:
        return self if _is(other, 1) and isinstance(self.value, int) else self._with("floordiv", other)

    def __rfloordiv__(self, other: object) -> Any:
        return self._under("floordiv", other)

    def __mod__(self, other: object) -> Any:
        return self._with("mod", other)

    def __rmod__(self, other: object) -> Any:
        return self._under("mod", other)

    def __divmod__(self, other: object) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> Any:
        return other // self, other % self

    def __pow__(self, other: object) -> Any:
        return self._with("pow", other)

    def __rpow__(self, other: object) -> Any:
        return self._under("pow", other)

    def __neg__(self) -> Any:
        return self._with("mul", -1)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __round__(self, digits: int | None = None) -> Any:
        return self.tape.rounded(self) if digits is None else round(self.tape.fixed(self), digits)

    def __lt__(self, other: object) -> Any:
        return self._with("lt", other)

    def __le__(self, other: object) -> Any:
        return self._with("le", other)

    def __gt__(self, other: object) -> Any:
        return self._with("gt", other)

    def __ge__(self, other: object) -> Any:
        return self._with("ge", other)

    def __eq__(self, other: object) -> Any:
        return self._with("eq", other)

    def __ne__(self, other: object) -> Any:
        return self._with("ne", other)

    def __bool__(self) -> bool:
        return self.tape.guard(self, bool(self.value))

    def __int__(self) -> int:
        return int(self.tape.fixed(self))

    def __index__(self) -> int:
        return operator.index(self.tape.fixed(self))

    def __float__(self) -> float:
        return float(self.tape.fixed(self))

    def __ceil__(self) -> int:
        found: int = math.ceil(self.tape.fixed(self))
        return found

    def __floor__(self) -> int:
        found: int = math.floor(self.tape.fixed(self))
        return found

    def __hash__(self) -> int:
        return hash(self.tape.fixed(self))

    def __str__(self) -> str:
        return str(self._told())

    def __repr__(self) -> str:
        return repr(self._told())

    def __format__(self, spec: str) -> str:
        return format(self._told(), spec)

    def _told(self) -> Any:
        return self.tape.fixed(self) if self.tape.texts else self.value


def _is(number: object, unit: int) -> bool:
    """Whether an operand changes nothing; of whole numbers alone, as a sum with 0.0 is no whole number."""
    return type(number) is int and number == unit


def _value(number: object) -> Any:
    return number.value if isinstance(number, Traced) else number


def _operand(number: object) -> Operand:
    return (NODE, number.node) if isinstance(number, Traced) else (CONSTANT, number)
