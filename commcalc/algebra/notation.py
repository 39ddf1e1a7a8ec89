"""Text to shardings and back: ``A[I_X, J_{YZ}]{U_W}``.

    tensor   = name "[" [ dim { "," dim } ] "]" [ "{" "U" "_" axes "}" ]
    dim      = name [ "_" axes ]
    axes     = name | "{" name { "," name } "}"

A subscript that is an axis's whole name means that axis (``I_tp``); otherwise it is read letter by letter
(``I_XY`` is split over X, then Y). Source: How To Scale Your Model, part 3, "A unified notation for sharding".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.sharding import Sharding
from commcalc.errors import NotationError, ShardingError, nearest

_NAME = re.compile(r"[^\W\d_][^\W_]*'?")
_AXES = re.compile(r"\w+")
_LONGEST = 2000


def parse_tensor(text: str, axes: Collection[str]) -> tuple[str, Sharding]:
    """Name and sharding of one tensor over a mesh with ``axes``; `NotationError` marks the character that is wrong.

    >>> parse_tensor("A[I_XY, J]", "XYZ")
    ('A', Sharding(dims=('I', 'J'), split=(('X', 'Y'), ()), unreduced=()))
    """
    if len(text) > _LONGEST:
        raise NotationError(f"a tensor of {len(text)} characters; at most {_LONGEST} are read")
    return _Reader(text, axes).tensor()


def format_tensor(name: str, sharding: Sharding, mesh: Mesh | None = None) -> str:
    """The notation of a tensor; with ``mesh`` a divided axis that is used whole has its own name.

    >>> format_tensor("A", Sharding(("I", "J"), (("X", "Y"), ())))
    'A[I_{XY}, J]'
    """

    def label(axes: Sequence[str]) -> Sequence[str]:
        return mesh.label(axes) if mesh else axes

    dims = [
        dim + (f"_{_subscript(label(axes))}" if axes else "")
        for dim, axes in zip(sharding.dims, sharding.split, strict=True)
    ]
    pending = f"{{U_{_subscript(label(sharding.unreduced))}}}" if sharding.unreduced else ""
    return f"{name}[{', '.join(dims)}]{pending}"


def _subscript(axes: Sequence[str]) -> str:
    if len(axes) == 1 and "_" not in axes[0]:
        return axes[0]
    return "{" + ("" if all(len(axis) == 1 for axis in axes) else ",").join(axes) + "}"


class _Reader:
    """Reads one tensor from left to right."""

    def __init__(self, text: str, axes: Collection[str]) -> None:
        self.text = text
        self.axes = list(axes)
        self.at = 0

    def tensor(self) -> tuple[str, Sharding]:
        start = self.at
        name = self.name("a tensor name")
        self.expect("[")
        dims: list[str] = []
        split: list[tuple[str, ...]] = []
        while not self.accept("]"):
            if dims:
                self.expect(",", "`,` or `]`")
            dims.append(self.name("a dimension"))
            split.append(self.subscript() if self.accept("_") else ())
        pending: tuple[str, ...] = ()
        if self.accept("{"):
            self.expect("U", "the `U` of a pending sum, as in {U_X}")
            self.expect("_")
            pending = self.subscript()
            self.expect("}")
        self.skip()
        if self.at < len(self.text):
            raise self.error("nothing more is expected here", self.at, self.at + 1)
        try:
            return name, Sharding(tuple(dims), tuple(split), pending)
        except ShardingError as problem:
            raise ShardingError(
                problem.message, source=self.text, span=(start, len(self.text.rstrip())), hint=problem.hint
            ) from None

    def subscript(self) -> tuple[str, ...]:
        if not self.accept("{"):
            return self.axes_in(*self.word("an axis after `_`"))
        found: list[str] = []
        while True:
            found += self.axes_in(*self.word("an axis"))
            if self.accept("}"):
                return tuple(found)
            self.expect(",", "`,` or `}`")

    def axes_in(self, word: str, start: int) -> tuple[str, ...]:
        """The axis that ``word`` names, or one axis for each of its letters."""
        if word in self.axes:
            return (word,)
        for offset, letter in enumerate(word):
            if letter not in self.axes:
                unknown = letter if any(other in self.axes for other in word) else word
                place = start + (offset if unknown == letter else 0)
                near = nearest(unknown, self.axes)
                known = "did you mean " + " or ".join(near) + "?" if near else f"mesh axes: {', '.join(self.axes)}"
                raise self.error(f"{unknown!r} is no axis of the mesh", place, place + len(unknown), known)
        return tuple(word)

    def name(self, what: str) -> str:
        return self.match(_NAME, what)[0]

    def word(self, what: str) -> tuple[str, int]:
        return self.match(_AXES, what)

    def match(self, pattern: re.Pattern[str], what: str) -> tuple[str, int]:
        self.skip()
        found = pattern.match(self.text, self.at)
        if found is None:
            raise self.error(f"expected {what}", self.at, self.at + 1)
        self.at = found.end()
        return found.group(), found.start()

    def accept(self, mark: str) -> bool:
        self.skip()
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        return True

    def expect(self, mark: str, what: str | None = None) -> None:
        if not self.accept(mark):
            raise self.error(f"expected {what or f'`{mark}`'}", self.at, self.at + 1)

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def error(self, message: str, start: int, end: int, hint: str | None = None) -> NotationError:
        return NotationError(
            message, source=self.text, span=(start, end), hint=hint or "write it like A[I_X, J_{YZ}]{U_W}"
        )
