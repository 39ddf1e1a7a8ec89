r"""Expressions of several tensors: ``relu(In[B, D] @ Win[D, F_X]) @ Wout[F_X, D] -> Out[B, D]``.

    expression = chain [ arrow tensor ]
    chain      = term { "@" operand | arrow function | arrow tensor }
    term       = function "(" chain ")" | "(" chain ")" | tensor
    operand    = function "(" operand ")" | "(" operand ")" | tensor

An arrow before the last one names what is in between. ``@`` is also ``·``, ``⋅``, ``\cdot`` (with the contracted
dimension under it, as the book writes); the arrow is ``->``, ``→``, ``\to`` or ``\rightarrow``. Dimensions that two
operands share are summed over, unless they are kept:

    the last product, with an output   those that the output has
    any other product                  those that begin both operands: A[N, I, J] @ B[N, J, K] is batched over N

Sources: How To Scale Your Model, part 3; numpy.einsum and numpy.matmul for shared dimensions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from commcalc.algebra.reader import POSITIONS, Reader
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
POSITIONS_OF_TENSORS = "ABCDEFGH"


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
    def stations(self) -> tuple[Operand, ...]:
        """The shardings of a single tensor, one after the other."""
        return (self.first, *self.stops, *((self.output,) if self.output else ()))

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
    read = reader.chain(0)
    reader.end()
    return _assembled(text, read)


class _Multiplied(NamedTuple):
    operand: Operand


class _Applied(NamedTuple):
    function: str


class _Arrow(NamedTuple):
    operand: Operand


_Link = _Multiplied | _Applied | _Arrow


class _Read(NamedTuple):
    """A chain as it was read: its first tensor, and what follows."""

    first: Operand
    links: list[_Link]


class _Reader(Reader):
    """Reads chains of products."""

    made: tuple[str, ...] | None = None  # dimensions of what was read so far: tensors without names go on from there
    nameless = 0
    times = 0

    def chain(self, depth: int) -> _Read:
        first, links = self.term(depth)
        while True:
            self.skip()
            start = self.at
            if self.sign(_TIMES):
                under = _UNDER_TIMES.match(self.text, self.at)
                self.at = under.end() if under else self.at
                self.times += 1
                operand = self.operand(depth)
                self.made = _out(self.text, self.made or (), operand, None)
                links.append(_Multiplied(operand))
            elif self.sign(_ARROW):
                self.skip()
                if _TIMES.match(self.text, self.at):  # `-> relu -> @ W`
                    continue
                alone = _ALONE.match(self.text, self.at)
                if alone and not _SPEC.match(self.text, self.at):
                    self.at = alone.end(1)
                    links.append(_Applied(alone.group(1)))
                else:
                    links.append(_Arrow(self.one_tensor(wanted=True)))
            elif self.at < len(self.text) and self.text[self.at] in "*+/":
                sign = self.text[self.at]
                what = {"*": "`*` multiplies element by element", "+": "`+` adds"}.get(sign, f"`{sign}` divides")
                raise self.error(f"{what}, which moves nothing: only products are read", start, start + 1, HINT)
            else:
                return _Read(first, links)

    def term(self, depth: int) -> _Read:
        self.skip()
        start = self.at
        if depth > _DEEPEST:
            raise self.error("brackets are nested too deep", start, start + 1, HINT)
        function = self.function()
        if function is None and not self.accept("("):
            operand = self.one_tensor()
            if self.made is None:
                self.made = operand.sharding.dims
            return _Read(operand, [])
        first, links = self.chain(depth + 1)
        self.expect(")", "`)` or `@`")
        return _Read(first, [*links, _Applied(function)] if function else links)

    def operand(self, depth: int) -> Operand:
        self.skip()
        start = self.at
        first, links = self.term(depth)
        if any(not isinstance(link, _Applied) for link in links):
            raise self.error(
                "a product on the right side of a product", start, self.at,
                "products are taken from left to right; write the inner one first, or ask for it on its own",
            )  # fmt: skip
        return first._replace(function=next((link.function for link in links if isinstance(link, _Applied)), ""))

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
            name = "A" if wanted and not self.times else POSITIONS_OF_TENSORS[self.nameless]
            self.nameless = (self.nameless + 1) % len(POSITIONS_OF_TENSORS)
            sharding = self.sharding(self.unnamed(len(split), wanted), split, pending, start)
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


def _assembled(text: str, read: _Read) -> Expression:
    """The chain of what was read; every rule about names and dimensions is checked here."""
    first, links = read.first, list(read.links)
    wanted = None
    if links and isinstance(last := links[-1], _Arrow):
        wanted = last.operand
        links.pop()
    products: list[Times] = []
    stops: list[Operand] = []
    for at, link in enumerate(links):
        later = links[at + 1 :]
        if isinstance(link, _Multiplied):
            left = products[-1].dims if products else first.sharding.dims
            stop = later[0].operand if later and isinstance(later[0], _Arrow) else None
            more = any(isinstance(one, _Multiplied) for one in later)
            shape = stop or (None if more else wanted)
            products.append(Times(link.operand, _out(text, left, link.operand, shape)))
        elif isinstance(link, _Applied) and products:
            products[-1] = products[-1]._replace(function=link.function)
        elif isinstance(link, _Applied):
            first = first._replace(function=link.function)
        elif products:
            products[-1] = products[-1]._replace(kept=link.operand)
        else:
            stops.append(link.operand)
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
