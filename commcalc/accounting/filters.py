"""Conditions on columns: ``tp <= 8 and step_comm_s < 2``, read by Python's grammar and run on arrays.

Numbers, texts in quotes, true and false, names of columns; comparisons, ``and``, ``or``, ``not``, ``in (...)`` and
``+ - * / // %``. What is not known (null) makes a comparison unknown, and a point whose condition is unknown is left
out.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from commcalc.errors import CommcalcError, UnknownName, UsageError, nearest, raise_all

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_CHARACTERS = 1000
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_WORDS = {"true": True, "false": False, "null": None}
_ALLOWED = "comparisons, and, or, not, in (...), + - * / // %, numbers, texts in quotes and names of columns"
_MOST_WHOLE = 2**31


class Known(NamedTuple):
    """Values, and where they are known."""

    values: Any
    known: Any


class Condition:
    """A condition that was read; ``names`` are the columns it looks at."""

    def __init__(self, text: str, names: Collection[str], option: str = "--where") -> None:
        self.text = text
        self.option = option
        self.known = names
        self.names: set[str] = set()
        self.problems: list[CommcalcError] = []
        self.tree = self._parsed()
        self._check(self.tree)
        raise_all(self.problems)

    def __call__(self, columns: Mapping[str, Any], count: int) -> NDArray[np.bool_]:
        """Which of ``count`` points meet it."""
        import numpy as np

        with np.errstate(all="ignore"):
            found = _truth(self._value(self.tree, columns))
        return np.broadcast_to(found.values & found.known, count).astype(bool)

    def _parsed(self) -> ast.expr:
        if len(self.text) > MOST_CHARACTERS:
            raise UsageError(f"longer than {MOST_CHARACTERS} characters", where=self.option)
        try:
            return ast.parse(self.text.replace("\n", " "), mode="eval").body
        except SyntaxError as problem:
            at = min(problem.offset - 1, len(self.text)) if problem.offset else len(self.text)
            raise self._wrong(f"this is no condition: {(problem.msg or '').lower()}", at, at + 1) from None
        except (ValueError, RecursionError, MemoryError):
            raise UsageError("this is no condition", where=self.option) from None

    def _wrong(self, message: str, start: int, end: int, hint: str | None = None) -> UsageError:
        source = self.text.replace("\n", " ")
        hint = hint or f"{self.option} 'tp <= 8 and step_comm_s < 2'"
        if not source.isprintable():
            return UsageError(message, where=self.option, hint=hint)
        # Python counts bytes.
        before, upto = (len(source.encode()[:at].decode(errors="ignore")) for at in (start, end))
        return UsageError(message, where=self.option, source=source, span=(before, upto), hint=hint)

    def _check(self, node: ast.expr) -> None:
        """Refuse all that is not on the list."""
        name = _name(node)
        if name is not None:
            if name in _WORDS or name in ("True", "False", "None"):
                return
            if name not in self.known:
                near = nearest(name, self.known)
                hint = f"did you mean {' or '.join(near)}?" if near else f"columns: {', '.join(self.known)}"
                self._refuse(node, f"there is no column {name[:60]!r}", hint)
            self.names.add(name)
        elif isinstance(node, ast.Constant):
            value = node.value
            if isinstance(value, bool) or value is None or isinstance(value, str):
                return
            if not isinstance(value, (int, float)) or not math.isfinite(value) or abs(value) > 2**62:
                self._refuse(node, "this is no number that a column could have")
        elif isinstance(node, ast.BoolOp):
            for one in node.values:
                self._check(one)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub, ast.UAdd)):
            self._check(node.operand)
        elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            self._check(node.left)
            self._check(node.right)
        elif isinstance(node, ast.Compare):
            self._check(node.left)
            for op, one in zip(node.ops, node.comparators, strict=True):
                if isinstance(op, (ast.In, ast.NotIn)) and isinstance(one, (ast.Tuple, ast.List)):
                    for item in one.elts:
                        self._check(item)
                elif type(op) in _COMPARISONS:
                    self._check(one)
                else:
                    self._refuse(one, f"not allowed in a condition; allowed: {_ALLOWED}")
        else:
            self._refuse(node, f"not allowed in a condition; allowed: {_ALLOWED}")

    def _refuse(self, node: ast.expr, message: str, hint: str | None = None) -> None:
        self.problems.append(self._wrong(message, node.col_offset, node.end_col_offset or node.col_offset + 1, hint))

    def _value(self, node: ast.expr, columns: Mapping[str, Any]) -> Known:
        name = _name(node)
        if name is not None:
            return _known({"True": True, "False": False, "None": None}.get(name, _WORDS.get(name))
                          if name not in self.names else columns[name])  # fmt: skip
        if isinstance(node, ast.Constant):
            return _known(node.value)
        if isinstance(node, ast.BoolOp):
            return self._combined(node, columns)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node, columns)
        if isinstance(node, ast.BinOp):
            one, other = self._value(node.left, columns), self._value(node.right, columns)
            return self._arithmetic(node, one, other)
        return self._comparison(node, columns)

    def _comparison(self, node: Any, columns: Mapping[str, Any]) -> Known:
        """One or more comparisons in a row."""
        found, left = Known(True, True), self._value(node.left, columns)
        for op, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(right, (ast.Tuple, ast.List)):
                here = Known(False, True)
                for item in right.elts:
                    here = _either(here, self._compared(ast.Eq(), left, self._value(item, columns), node))
                here = here if isinstance(op, ast.In) else Known(_not(here.values), here.known)
            else:
                value = self._value(right, columns)
                here, left = self._compared(op, left, value, node), value
            found = _both(found, here)
        return found

    def _combined(self, node: ast.BoolOp, columns: Mapping[str, Any]) -> Known:
        parts = [_truth(self._value(one, columns)) for one in node.values]
        found = parts[0]
        for one in parts[1:]:
            found = _both(found, one) if isinstance(node.op, ast.And) else _either(found, one)
        return found

    def _unary(self, node: ast.UnaryOp, columns: Mapping[str, Any]) -> Known:
        found = self._value(node.operand, columns)
        if isinstance(node.op, ast.Not):
            found = _truth(found)
            return Known(_not(found.values), found.known)
        self._numbers(node, found)
        return Known(-found.values, found.known) if isinstance(node.op, ast.USub) else found

    def _arithmetic(self, node: ast.BinOp, one: Known, other: Known) -> Known:
        import numpy as np

        self._numbers(node, one, other)
        left, right = np.asarray(one.values), np.asarray(other.values)
        known = np.logical_and(one.known, other.known)
        if {left.dtype.kind, right.dtype.kind} <= {"i", "b"}:  # whole numbers stay exact
            left, right = left.astype(np.int64), right.astype(np.int64)
            if not isinstance(node.op, ast.Div) and max(_largest(left), _largest(right)) >= _MOST_WHOLE:
                left, right = left.astype(object), right.astype(object)
        if isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod)):
            known = np.logical_and(known, right != 0)
            right = np.where(right == 0, 1, right)
        return Known(_ARITHMETIC[type(node.op)](left, right), known)

    def _compared(self, op: ast.cmpop, one: Known, other: Known, node: ast.expr) -> Known:
        import numpy as np

        known = np.logical_and(one.known, other.known)
        texts = [_is_text(side.values) for side in (one, other)]
        if texts[0] != texts[1] and np.any(known):
            raise self._wrong("a text is compared with a number", node.col_offset, node.end_col_offset or 1)
        return Known(np.asarray(_COMPARISONS[type(op)](one.values, other.values), dtype=bool), known)

    def _numbers(self, node: ast.expr, *sides: Known) -> None:
        import numpy as np

        if any(_is_text(side.values) and np.any(side.known) for side in sides):
            raise self._wrong("a text is no number", node.col_offset, node.end_col_offset or 1)


def _name(node: ast.expr) -> str | None:
    """A column's name: ``tp``, or a path like ``totals.step.tp.time_s``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _name(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return None


def _known(column: Any) -> Known:
    """A column, or one value of all, with where it is known; numbers among None as numbers."""
    import numpy as np

    if not hasattr(column, "dtype"):
        return Known(0 if column is None else column, column is not None)
    if column.dtype != object:
        return Known(np.ma.getdata(column), ~np.ma.getmaskarray(column) if np.ma.isMaskedArray(column) else True)
    known = np.array([value is not None for value in column.tolist()], dtype=bool)
    if any(isinstance(value, str) for value in column.tolist()):
        return Known(np.array(["" if value is None else str(value) for value in column.tolist()]), known)
    return Known(np.where(known, column, 0), known)


def _is_text(values: Any) -> bool:
    return isinstance(values, str) or getattr(getattr(values, "dtype", None), "kind", "") == "U"


def _largest(values: Any) -> int:
    return max(abs(int(values.min())), abs(int(values.max()))) if values.size else 0


def _truth(found: Known) -> Known:
    import numpy as np

    return Known(np.asarray(found.values, dtype=bool), found.known)


def _not(values: Any) -> Any:
    import numpy as np

    return np.logical_not(values)


def _both(one: Known, other: Known) -> Known:
    """And: known too where one side is known to be false."""
    import numpy as np

    false = np.logical_or(one.known & _not(one.values), other.known & _not(other.values))
    return Known(np.logical_and(one.values, other.values) & _not(false), np.logical_or(one.known & other.known, false))


def _either(one: Known, other: Known) -> Known:
    """Or: known too where one side is known to be true."""
    import numpy as np

    true = np.logical_or(np.logical_and(one.known, one.values), np.logical_and(other.known, other.values))
    return Known(true, np.logical_or(np.logical_and(one.known, other.known), true))


def column_named(name: str, known: Collection[str], option: str) -> str:
    """The name itself; `UnknownName` where there is no such column."""
    if name not in known:
        raise UnknownName("column", name, known, where=option)
    return name
