"""Tapes run on arrays: the points that a tape answers for, and what it answers there.

Whole numbers are int64 as long as no step can pass 2^62, nor a quotient of whole numbers 2^53; where one could, the
same steps run on Python's own integers, as exact and slower. So every number is to the last digit what the scalar code
gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from commcalc.accounting.traced import ARITHMETIC, CONSTANT, DIVIDES, NODE, Node, Tape, Traced

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Array = Any
# Points that run through a tape at once: arrays of so many stay in the processor's cache.
BATCH = 8192
MOST_WHOLE, MOST_EXACT = 2**62, 2**53
_TRUTHS = ("lt", "le", "gt", "ge", "eq", "ne")
_Range = tuple[Any, Any]


class Script:
    """A finished tape with its answers: numbers on the tape, and constants."""

    def __init__(self, tape: Tape, answers: Sequence[object]) -> None:
        self.nodes = tape.nodes
        self.guards = sorted(tape.guards.items())
        self.answers = tuple(answers)
        wanted = [answer.node for answer in answers if isinstance(answer, Traced)]
        self.checks = _needed(self.nodes, [node for node, _ in self.guards])
        self.steps = _needed(self.nodes, wanted)
        self.rest = sorted(set(self.steps) - set(self.checks))
        # Arrays that are needed no more make room: of a whole run, and of what remains after the guards.
        self.spent = _last_uses(self.nodes, self.steps, set(wanted))
        self.spent_of_rest = _last_uses(self.nodes, self.rest, {*wanted, *self.checks})

    def run(self, inputs: Mapping[str, NDArray[np.int64]], count: int) -> tuple[NDArray[np.bool_], list[Any]]:
        """At which points every guard comes out as it did, and each answer there: an array, or a constant."""
        import numpy as np

        served = np.ones(count, dtype=bool)
        parts: list[list[Array]] = [[] for _ in self.answers]
        exact = self._overflows(inputs)
        for start in range(0, count, BATCH):
            here = slice(start, min(start + BATCH, count))
            part = {name: array[here] for name, array in inputs.items()}
            arrays: dict[int, Array] = {}
            _run(self.nodes, self.checks, part, arrays, {}, exact=exact)
            mine = served[here]
            for node, truth in self.guards:
                mine &= np.asarray(arrays[node], dtype=bool) == truth
            if mine.all():
                _run(self.nodes, self.rest, part, arrays, self.spent_of_rest, exact=exact)
            elif mine.any():
                part, arrays = {name: array[mine] for name, array in part.items()}, {}
                _run(self.nodes, self.steps, part, arrays, self.spent, exact=exact)
            else:
                continue
            for at, answer in enumerate(self.answers):
                if isinstance(answer, Traced):
                    parts[at].append(arrays[answer.node])
        joined = [_joined(several) for several in parts]
        return served, [
            array if isinstance(answer, Traced) else answer for answer, array in zip(self.answers, joined, strict=True)
        ]

    def _overflows(self, inputs: Mapping[str, NDArray[np.int64]]) -> bool:
        """Whether some whole number could be too large for an array of them, by the ranges of the inputs."""
        ranges: dict[int, _Range] = {}
        for at in sorted({*self.steps, *self.checks}):
            node = self.nodes[at]
            if node.op == "variable":
                array = inputs[node.name]
                ranges[at] = int(array.min()), int(array.max())
                continue
            found = _range_of(node, ranges)
            if found is None:
                return True
            ranges[at] = found
        return False


def _joined(parts: list[Array]) -> Array:
    import numpy as np

    return None if not parts else parts[0] if len(parts) == 1 else np.concatenate(parts)


def _needed(nodes: Sequence[Node], wanted: Sequence[int]) -> list[int]:
    """The nodes that others are computed from, in order."""
    found: set[int] = set()
    waiting = list(wanted)
    while waiting:
        at = waiting.pop()
        if at not in found:
            found.add(at)
            waiting += [what for kind, what in nodes[at].operands if kind == NODE]
    return sorted(found)


def _last_uses(nodes: Sequence[Node], steps: Sequence[int], kept: set[int]) -> dict[int, list[int]]:
    """After which step arrays are needed no more, so that the next ones take their place."""
    last: dict[int, int] = {}
    for at in steps:
        for kind, what in nodes[at].operands:
            if kind == NODE and what not in kept:
                last[what] = at
    found: dict[int, list[int]] = {}
    for what, at in last.items():
        found.setdefault(at, []).append(what)
    return found


def _run(
    nodes: Sequence[Node],
    steps: Sequence[int],
    inputs: Mapping[str, Array],
    arrays: dict[int, Array],
    spent: Mapping[int, list[int]],
    *,
    exact: bool,
) -> None:
    """Compute ``steps`` into ``arrays``."""
    import numpy as np

    with np.errstate(all="ignore"):
        for at in steps:
            node = nodes[at]
            if node.op == "variable":
                array = inputs[node.name]
                arrays[at] = array.astype(object) if exact else array
                continue
            operands = [what if kind == CONSTANT else arrays[what] for kind, what in node.operands]
            arrays[at] = _applied(node, operands)
            for what in spent.get(at, ()):
                del arrays[what]


def _applied(node: Node, operands: list[Any]) -> Array:
    import numpy as np

    if node.function is not None:
        return node.function(*operands)
    if node.op == "pow":  # as the C library does it, which no vector instruction promises
        return np.frompyfunc(pow, 2, 1)(*operands).astype(object if _objects(operands) else float)
    if node.op == "round":
        if _objects(operands):
            return np.frompyfunc(round, 1, 1)(operands[0])
        return np.rint(operands[0]).astype(np.int64)
    if node.op not in _TRUTHS:  # truths are numbers to Python, and to arrays something else
        operands = [one.astype(np.int64) if _kind(one) == "b" else one for one in operands]
    if node.op in DIVIDES and _objects(operands[1:]):  # where it is zero a guard lets no point through
        operands[1] = np.where(operands[1] == 0, 1, operands[1])
    return ARITHMETIC[node.op](*operands)


def _objects(operands: Sequence[Any]) -> bool:
    return any(_kind(one) == "O" for one in operands)


def _kind(one: Any) -> str:
    return str(getattr(getattr(one, "dtype", None), "kind", ""))


def _range_of(node: Node, ranges: Mapping[int, _Range]) -> _Range | None:
    """The least and the largest that a node can be; None where whole numbers could leave what arrays hold exactly."""
    if node.op == "call":
        return -1.0, 1.0  # some float: no float overflows a whole number
    sides = [(what, what) if kind == CONSTANT else ranges[what] for kind, what in node.operands]
    if node.op == "round":
        return None if isinstance(sides[0][0], float) and node.operands[0][0] == NODE else sides[0]
    whole = all(isinstance(end, int) for side in sides for end in side)
    if node.op in _TRUTHS:
        return (0, 1) if whole or _within(sides, MOST_EXACT) else None
    if not whole:
        return -1.0, 1.0
    if node.op == "div":
        return (-1.0, 1.0) if _within(sides, MOST_EXACT) else None
    (low, high), (least, most) = sides
    if node.op == "pow":
        return None
    if node.op == "add":
        ends = [low + least, high + most]
    elif node.op == "sub":
        ends = [low - most, high - least]
    elif node.op == "mul":
        ends = [low * least, low * most, high * least, high * most]
    elif least <= 0 <= most:
        ends = [-max(abs(low), abs(high)), max(abs(low), abs(high))] if node.op == "floordiv" else [least, most]
    elif node.op == "floordiv":
        ends = [low // least, low // most, high // least, high // most]
    else:
        ends = [min(least, 0), max(most, 0)]
    found = min(ends), max(ends)
    return found if found[0] > -MOST_WHOLE and found[1] < MOST_WHOLE else None


def _within(sides: Sequence[_Range], most: int) -> bool:
    """Whether whole numbers among these are exact as floats."""
    return all(-most <= end <= most for side in sides for end in side if isinstance(end, int))
