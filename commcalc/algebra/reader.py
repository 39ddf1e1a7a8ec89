r"""The reader of tensors: ``A[I_X, J_{YZ}]{U_W}``, and ``A[I, J]: P('X', ('Y', 'Z'))``.

    tensor   = name "[" [ dim { "," dim } ] "]" [ "{" "U" "_" axes "}" ] [ ":" spec ]
             | name ":" spec                       dimensions are then named I, J, K, ... in order
    dim      = name [ "_" axes ]
    axes     = name | "{" name { "," name } "}"
    spec     = "P" "(" [ entry { "," entry } ] [ "unreduced" "=" "{" axis { "," axis } "}" ] ")"
    entry    = "None" | axis | "(" axis { "," axis } ")"

A subscript that is an axis's whole name means that axis (``I_tp``); otherwise it is read letter by letter
(``I_XY`` is split over X, then Y). What people paste is read as what it shows: LaTeX (``\mathbf{A}[I_{X}, J]``,
``\{U_X\}``, ``\cdot``, ``\rightarrow``), Unicode letters of formulas and subscripts (``Iₓ``), ``·`` and ``→``.
Sources: How To Scale Your Model, part 3, "A unified notation for sharding"; jax.sharding.PartitionSpec.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from commcalc.algebra.sharding import Sharding
from commcalc.errors import NotationError, ShardingError, nearest

# Subscripts that Unicode has of its own; they begin a split without an underscore.
_SMALL = "ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓᵦᵧᵨᵩᵪ₀₁₂₃₄₅₆₇₈₉"
_NAME = re.compile(rf"[^\W\d_{_SMALL}][^\W_{_SMALL}]*['′]*")
_AXES = re.compile(rf"[^\W{_SMALL}]+")
_SUBSCRIPT = re.compile(f"[{_SMALL}]+")
_STYLED = re.compile(
    r"\\(?:math(?:bf|it|rm|sf|cal|bb)|text(?:bf|it|rm)?|boldsymbol|bm|operatorname)\s*\{\s*([^{}\s]+)\s*\}"
)
# What stands for nothing: blanks (those without width too), LaTeX spacing, sizes of brackets, dollars.
_NOTHING = re.compile(
    r"(?:[\s\u200b-\u200f\u2060\ufeff$~]|\\(?:left|right|[bB]igg?[lrm]?)(?![a-zA-Z])|\\[,;:! ]|\\q?quad)+"
)
_QUOTED = re.compile(r"(['\"‘’“”])([^'\"‘’“”]*)['\"‘’“”]")
_MARKS = {"{": r"\\?\{", "}": r"\\?\}", "_": r"\\?_"}
_LONGEST = 2000
HINT = "write it like A[I_X, J_{YZ}]{U_W}"
POSITIONS = "IJKLMNOP"


def plain(text: str) -> str:
    """Letters of formulas as letters: bold, italic and subscript ones alike."""
    if text.isascii():
        return text
    from unicodedata import normalize

    return normalize("NFKC", text).replace("′", "'")


class Reader:
    """Reads an expression from left to right; every verb skips what stands for nothing first."""

    def __init__(self, text: str, axes: Collection[str]) -> None:
        if len(text) > _LONGEST:
            raise NotationError(
                f"an expression of {len(text)} characters; at most {_LONGEST} are read", hint="cut it into parts"
            )
        self.text = text
        self.axes = list(axes)
        self.at = 0

    def tensor(self, unnamed: Sequence[str] | None = None) -> tuple[str, Sharding]:
        """One tensor; ``unnamed`` are the dimensions of one that only has a PartitionSpec."""
        self.skip()
        start = self.at
        name = self.name("a tensor name")
        if self.peek(":"):
            self.expect(":")
            split, pending = self.spec()
            dims = list(POSITIONS[: len(split)] if unnamed is None else unnamed)
            if len(dims) != len(split):
                few = f"{len(split)} entries, but {len(dims)} dimensions: {', '.join(dims)}"
                raise self.error(few, start, self.at, "name the dimensions: A[N, I, J]: P('X', None, None)")
        else:
            dims, split = self.dims()
            pending = self.pending()
            if self.accept(":"):
                at = self.at
                split, pending = self.stated(dims, split, pending, at)
        return name, self.sharding(dims, split, pending, start)

    def stated(
        self, dims: list[str], split: list[tuple[str, ...]], pending: tuple[str, ...], at: int
    ) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
        """The PartitionSpec after named dimensions; missing entries at its end are None, as in JAX."""
        if any(split) or pending:
            raise self.error("split twice: by subscripts and by a PartitionSpec", at - 1, at, "write one of them")
        found, pending = self.spec()
        if len(found) > len(dims):
            raise self.error(f"{len(found)} entries for {len(dims)} dimensions", at, self.at)
        return found + [()] * (len(dims) - len(found)), pending

    def sharding(
        self, dims: Sequence[str], split: Sequence[tuple[str, ...]], pending: tuple[str, ...], start: int
    ) -> Sharding:
        """The value, or its own error with the piece of text that it is about."""
        try:
            return Sharding(tuple(dims), tuple(split), pending)
        except ShardingError as problem:
            span = (start, len(self.text[: self.at].rstrip()))
            raise ShardingError(problem.message, source=self.text, span=span, hint=problem.hint) from None

    def dims(self) -> tuple[list[str], list[tuple[str, ...]]]:
        """``[I_X, J]``: the names and what splits them."""
        self.expect("[")
        dims: list[str] = []
        split: list[tuple[str, ...]] = []
        while not self.accept("]"):
            if dims:
                self.expect(",", "`,` or `]`")
            dims.append(self.name("a dimension"))
            split.append(self.subscript() if self.accept("_") else self.small())
        return dims, split

    def pending(self) -> tuple[str, ...]:
        """``{U_X}``, or nothing; also as ``{U X}`` and in two pairs of braces, as LaTeX has it."""
        if not self.accept("{"):
            return ()
        twice = self.accept("{")
        self.expect("U", "the `U` of a pending sum, as in {U_X}")
        found = self.small()
        if not found:
            self.expect("_")
            found = self.subscript()
        for _ in range(1 + twice):
            self.expect("}")
        return found

    def subscript(self) -> tuple[str, ...]:
        """``X``, ``XY`` or ``{X,Y}`` after the underscore."""
        if not self.accept("{"):
            return self.axes_in(*self.word("an axis after `_`"))
        found: list[str] = []
        while True:
            found += self.axes_in(*self.word("an axis"))
            if self.accept("}"):
                return tuple(found)
            self.expect(",", "`,` or `}`")

    def small(self) -> tuple[str, ...]:
        """A subscript in Unicode's small letters, which have no capitals."""
        found = _SUBSCRIPT.match(self.text, self.at)
        if found is None:
            return ()
        self.at = found.end()
        word = plain(found.group())
        capitals = {axis.casefold(): axis for axis in self.axes}
        if word in capitals:
            return (capitals[word],)
        if all(letter in capitals for letter in word):
            return tuple(capitals[letter] for letter in word)
        return self.axes_in(word, found.start())

    def spec(self) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
        """``P('X', None)``: the axes of each dimension, and those of a pending sum."""
        self.word("P or PartitionSpec")
        self.expect("(")
        split: list[tuple[str, ...]] = []
        pending: tuple[str, ...] = ()
        first = True
        while not self.accept(")"):
            if not first:
                self.expect(",", "`,` or `)`")
                if self.accept(")"):
                    break
            first = False
            if self.accept("("):
                split.append(self.listed(")"))
            elif (word := self.quoted()) is not None:
                split.append((word,))
            else:
                name, at = self.word("None, 'X' or ('X', 'Y')")
                if name == "unreduced":
                    self.expect("=")
                    self.expect("{")
                    pending = self.listed("}")
                elif name == "None":
                    split.append(())
                elif name in self.axes:
                    split.append((name,))
                else:
                    raise self.error(f"{name!r} is neither None nor an axis", at, at + len(name), self.known(name))
        return split, pending

    def listed(self, closing: str) -> tuple[str, ...]:
        """``'X', 'Y')``: axes to the closing mark."""
        found: list[str] = []
        while not self.accept(closing):
            if found:
                self.expect(",", f"`,` or `{closing}`")
                if self.accept(closing):
                    break
            word = self.quoted()
            found += [word] if word is not None else self.axes_in(*self.word("an axis"))
        return tuple(found)

    def quoted(self) -> str | None:
        """``'X'``: one axis by its whole name."""
        self.skip()
        found = _QUOTED.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        name = found.group(2)
        if name not in self.axes:
            raise self.error(f"{name!r} is no axis of the mesh", *found.span(2), self.known(name))
        return name

    def axes_in(self, word: str, start: int) -> tuple[str, ...]:
        """The axis that ``word`` names, or one axis for each of its letters."""
        if word in self.axes:
            return (word,)
        for offset, letter in enumerate(word):
            if letter not in self.axes:
                unknown = letter if any(other in self.axes for other in word) else word
                place = start + (offset if unknown == letter else 0)
                raise self.error(
                    f"{unknown!r} is no axis of the mesh", place, place + len(unknown), self.known(unknown)
                )
        return tuple(word)

    def known(self, unknown: str) -> str:
        """The hint for an unknown axis."""
        near = nearest(unknown, self.axes)
        return "did you mean " + " or ".join(near) + "?" if near else f"mesh axes: {', '.join(self.axes) or 'none'}"

    def name(self, what: str) -> str:
        """A name: letters and digits, also in a style of LaTeX."""
        self.skip()
        styled = _STYLED.match(self.text, self.at)
        if styled is not None:
            self.at = styled.end()
            return plain(styled.group(1))
        return self.match(_NAME, what)[0]

    def word(self, what: str) -> tuple[str, int]:
        """Letters, digits and underscores, and where they start."""
        return self.match(_AXES, what)

    def match(self, pattern: re.Pattern[str], what: str) -> tuple[str, int]:
        """What ``pattern`` finds here, and where; the error says that ``what`` was expected."""
        self.skip()
        found = pattern.match(self.text, self.at)
        if found is None:
            raise self.error(f"expected {what}", self.at, self.at + 1)
        self.at = found.end()
        return plain(found.group()), found.start()

    def peek(self, *marks: str) -> bool:
        """Whether one of ``marks`` comes next."""
        at = self.at
        found = any(self.accept(mark) for mark in marks)
        self.at = at
        return found

    def accept(self, mark: str) -> bool:
        """Read ``mark`` if it comes next."""
        self.skip()
        found = re.compile(_MARKS.get(mark) or re.escape(mark)).match(self.text, self.at)
        if found is None:
            return False
        self.at = found.end()
        return True

    def expect(self, mark: str, what: str | None = None) -> None:
        """Read ``mark``, or say that ``what`` was expected."""
        if not self.accept(mark):
            raise self.error(f"expected {what or f'`{mark}`'}", self.at, self.at + 1)

    def skip(self) -> None:
        """Pass over what stands for nothing."""
        found = _NOTHING.match(self.text, self.at)
        if found is not None:
            self.at = found.end()

    def end(self) -> None:
        """Nothing may follow."""
        self.skip()
        if self.at < len(self.text):
            raise self.error("nothing more is expected here", self.at, self.at + 1)

    def error(self, message: str, start: int, end: int, hint: str | None = None) -> NotationError:
        """What is wrong, with the characters from ``start`` to ``end`` marked."""
        return NotationError(message, source=self.text, span=(start, end), hint=hint or HINT)
