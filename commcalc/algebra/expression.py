"""Expressions of several tensors: ``relu(In[B, D] @ Win[D, F_X]) @ Wout[F_X, D] -> Out[B, D]``.

    expression = chain [ arrow tensor ]
    chain      = term { "@" operand | arrow function | arrow tensor }      an arrow before the last names what is between
    term       = function "(" chain ")" | "(" chain ")" | tensor
    operand    = function "(" operand ")" | "(" operand ")" | tensor

``@`` is also ``·``, ``⋅``, ``\\cdot`` (with the contracted dimension under it, as the book writes); the arrow is ``->``,
``→``, ``\\to`` or ``\\rightarrow``. Dimensions that two operands share are summed over, unless they are kept:

    the last product of a chain with an output   those that the output has
    any other product                            those that begin both operands: A[N, I, J] @ B[N, J, K] is batched over N

Sources: How To Scale Your Model, part 3; numpy.einsum and numpy.matmul for shared dimensions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from commcalc.algebra.notation import POSITIONS, Reader
from commcalc.algebra.sharding import Sharding
from commcalc.errors import NotationError, ShardingError

_TIMES = re.compile(r"@|[·⋅∙•×]|\\(?:cdot|times)(?![a-zA-Z])")
_UNDER_TIMES = re.compile(r"\s*_\s*(?:\{[^{}]*\}|[^\W_])")
_ARROW = re.compile(r"-+>|=+>|[→⟶⇒⟹➝➔]|\\(?:long)?(?:to|[rR]ightarrow)(?![a-zA-Z])")
_FUNCTION = re.compile(r"([^\W\d]\w*)\s*\(")
_SPEC = re.compile(r"(?:P|PartitionSpec)\s*\(")
_ALONE = re.compile(r"([^\W\d]\w*)\s*(?=@|[·⋅∙•×]|\\|-+>|=+>|[→⟶⇒⟹➝➔]|$)")
HINT = "write it like A[I, J_X] @ B[J_X, K] -> C[I, K]"
_DEEPEST = 50


class Operand(NamedTuple):
    """A tensor as it is written; ``function`` is applied to it before it is used ('' for none)."""

    name: str
    sharding: Sharding
    span: tuple[int, int]
    function: str = ""


class Times(NamedTuple):
    """``@ right`` in a chain, what is applied to the result, how it must lie in between, and its dimensions."""

    right: Operand
    dims: tuple[str, ...]
    function: str = ""
    kept: Operand | None = None


class Expression(NamedTuple):
    """A chain of products (or one tensor), and how the result is wanted."""

    text: str
    first: Operand
    products: tuple[Times, ...]
    output: Operand | None
    # Shardings on the way of a single tensor: ``A[I_X] -> A[I] -> A[I_Y]``.
    stops: tuple[Operand, ...] = ()

    @property
    def tensors(self) -> tuple[Operand, ...]:
        """Every tensor as written, in order."""
        between = [tensor for times in self.products for tensor in (times.right, times.kept) if tensor is not None]
        return (self.first, *between, *self.stops, *((self.output,) if self.output else ()))


def parse_expression(text: str, axes: Collection[str]) -> Expression:
    """The expression of ``text`` over a mesh with ``axes``; `NotationError` or `ShardingError` mark what is wrong.

    >>> parse_expression("A[I, J_X] @ B[J_X, K]", "X").products[0].dims
    ('I', 'K')
    """
    if not text.strip():
        raise NotationError("the expression is empty", hint=HINT)
    reader = _Reader(text, axes)
    items = reader.chain(0)
    reader.end()
    return _assembled(text, items)


class _Item(NamedTuple):
    """One thing read: ``kind`` is tensor, times, function or arrow."""

    kind: str
    operand: Operand | None
    function: str
    span: tuple[int, int]


class _Reader(Reader):
    """Reads chains of products."""

    made: tuple[str, ...] | None = None  # dimensions of what was read so far: tensors without names go on from there

    def chain(self, depth: int) -> list[_Item]:
        items = self.term(depth)
        while True:
            self.skip()
            start = self.at
            if self.sign(_TIMES):
                under = _UNDER_TIMES.match(self.text, self.at)
                self.at = under.end() if under else self.at
                operand = self.operand(depth)
                self.made = _out(self.text, self.made or (), operand, None)
                items.append(_Item("times", operand, "", operand.span))
            elif self.sign(_ARROW):
                self.skip()
                if _TIMES.match(self.text, self.at):  # `-> relu -> @ W`
                    continue
                alone = _ALONE.match(self.text, self.at)
                if alone and not _SPEC.match(self.text, self.at):
                    self.at = alone.end(1)
                    items.append(_Item("function", None, alone.group(1), alone.span(1)))
                    self.skip()
                    continue
                operand = self.one_tensor(wanted=True)
                items.append(_Item("arrow", operand, "", operand.span))
            elif self.at < len(self.text) and self.text[self.at] in "*+/":
                sign = self.text[self.at]
                what = {"*": "`*` multiplies element by element", "+": "`+` adds"}.get(sign, f"`{sign}` divides")
                raise self.error(f"{what}, which moves nothing: only products are read", start, start + 1, HINT)
            else:
                return items

    def term(self, depth: int) -> list[_Item]:
        self.skip()
        start = self.at
        if depth > _DEEPEST:
            raise self.error("brackets are nested too deep", start, start + 1, HINT)
        function = self.function()
        if function is None and not self.accept("("):
            operand = self.one_tensor()
            if self.made is None:
                self.made = operand.sharding.dims
            return [_Item("tensor", operand, "", operand.span)]
        items = self.chain(depth + 1)
        self.expect(")", "`)` or `@`")
        if function:
            items.append(_Item("function", None, function, (start, start + len(function))))
        return items

    def operand(self, depth: int) -> Operand:
        self.skip()
        start = self.at
        inner = self.term(depth)
        if any(item.kind == "times" for item in inner):
            raise self.error(
                "a product on the right side of a product", start, self.at,
                "products are taken from left to right; write the inner one first, or ask for it on its own",
            )  # fmt: skip
        first = inner[0].operand
        assert first is not None  # a term begins with a tensor
        function = next((item.function for item in inner if item.kind == "function"), "")
        return first._replace(function=function)

    def function(self) -> str | None:
        if _SPEC.match(self.text, self.at):
            return None
        found = _FUNCTION.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found.group(1)

    def one_tensor(self, *, wanted: bool = False) -> Operand:
        self.skip()
        start = self.at
        if _SPEC.match(self.text, self.at):  # a PartitionSpec alone
            split, pending = self.spec()
            name, sharding = "A", self.sharding(self.unnamed(len(split), wanted), split, pending, start)
        else:
            self.name("a tensor")
            unnamed = None
            if self.accept(":"):
                unnamed = self.unnamed(len(self.spec()[0]), wanted)
            self.at = start
            name, sharding = self.tensor(unnamed)
        return Operand(name, sharding, (start, len(self.text[: self.at].rstrip())))

    def unnamed(self, rank: int, wanted: bool) -> list[str]:
        """Names for the dimensions of a tensor that has none: a matrix goes on where the last one ended."""
        made = self.made
        if wanted and made is not None and len(made) == rank:
            return list(made)
        if not wanted and made is not None and len(made) == rank == 2:
            return [made[-1], next((letter for letter in POSITIONS if letter > made[-1]), "Z")]
        return list(POSITIONS[:rank])

    def sign(self, pattern: re.Pattern[str]) -> bool:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found is not None


def _assembled(text: str, items: list[_Item]) -> Expression:
    """The chain of what was read; every rule about names and dimensions is checked here."""
    first, rest = items[0].operand, items[1:]
    assert first is not None  # a chain begins with a tensor
    wanted = rest.pop().operand if rest and rest[-1].kind == "arrow" else None
    products: list[Times] = []
    stops: list[Operand] = []
    for at, item in enumerate(rest):
        if item.kind == "times":
            assert item.operand is not None
            left = products[-1].dims if products else first.sharding.dims
            more = any(later.kind == "times" for later in rest[at + 1 :])
            stop = rest[at + 1].operand if at + 1 < len(rest) and rest[at + 1].kind == "arrow" else None
            shape = stop or (wanted if not more else None)
            products.append(Times(item.operand, _out(text, left, item.operand, shape)))
        elif item.kind == "function" and products:
            products[-1] = products[-1]._replace(function=item.function)
        elif item.kind == "function":
            first = first._replace(function=item.function)
        elif products and item.operand is not None:
            products[-1] = products[-1]._replace(kept=item.operand)
        elif item.operand is not None:
            stops.append(item.operand)
    expression = Expression(text, first, tuple(products), wanted, tuple(stops))
    _check_names(expression)
    return expression


def _out(text: str, left: Sequence[str], right: Operand, shape: Operand | None) -> tuple[str, ...]:
    """The dimensions of a product: as ``shape`` has them, or those that matmul would give."""
    theirs = right.sharding.dims
    if shape is not None:
        missing = [dim for dim in shape.sharding.dims if dim not in (*left, *theirs)]
        if missing:
            raise NotationError(
                f"dimension {missing[0]} of {shape.name} is in none of its inputs", source=text, span=shape.span,
                hint=f"the inputs have {', '.join(dict.fromkeys((*left, *theirs)))}",
            )  # fmt: skip
        return shape.sharding.dims
    batch = []
    for mine, yours in zip(left, theirs, strict=False):
        if mine != yours:
            break
        batch.append(mine)
    shared = [dim for dim in left if dim in theirs and dim not in batch]
    if batch and not shared:  # nothing else to sum over
        shared = [batch.pop()]
    return tuple(dim for dim in dict.fromkeys((*left, *theirs)) if dim not in shared)


def _check_names(expression: Expression) -> None:
    """One name is one tensor: with the same dimensions everywhere, and one sharding among the inputs."""
    inputs = (expression.first, *(times.right for times in expression.products))
    seen: dict[str, Operand] = {}
    for operand in expression.tensors:
        other = seen.setdefault(operand.name, operand)
        if other.sharding.dims != operand.sharding.dims:
            raise NotationError(
                f"{operand.name} has dimensions [{', '.join(other.sharding.dims)}] before and "
                f"[{', '.join(operand.sharding.dims)}] here",
                source=expression.text, span=operand.span, hint="give the second tensor another name",
            )  # fmt: skip
        if operand in inputs and other in inputs and other.sharding != operand.sharding:
            raise ShardingError(
                f"{operand.name} lies in two ways", source=expression.text, span=operand.span,
                hint="one tensor has one sharding; give the second another name",
            )  # fmt: skip
