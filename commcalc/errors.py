"""What commcalc says when it cannot answer: what is wrong, where, why, and what to do.

The library raises these; only ``cli.main`` prints them. Texts are lower case and without a full stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WRONG_INPUT = 2
NO_LEGAL_ANSWER = 3
# Violations told on one screen; a document has them all.
MOST_TOLD = 10
# Names listed where none is near.
_MOST_KNOWN = 24


class CommcalcError(ValueError):
    """One thing that is wrong.

    ``where`` names a place (``job.yaml:3:7 parallelism.tp``, ``--tp``); ``source`` and ``span`` instead mark
    characters of a one-line expression. ``context`` is what was known (mesh, sizes), ``hint`` the way out.
    """

    kind = "error"
    status = WRONG_INPUT

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        source: str | None = None,
        span: tuple[int, int] | None = None,
        context: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.source = source
        self.span = span
        self.context = context
        self.hint = hint

    @property
    def problems(self) -> Sequence[CommcalcError]:
        """Every single violation behind this error, in the order found."""
        return (self,)

    def place(self) -> str | None:
        """The place as one line: a file and key, an option, or the marked piece of an expression."""
        if self.where is None and self.source is not None and self.span is not None:
            return f"column {self.span[0] + 1} of {self.source!r}"
        return self.where

    def text(self) -> str:
        """The message as it is printed: what, where, what was known, hint."""
        lines = [f"error: {self.message}"]
        if self.source is not None and self.span is not None:
            start, end = self.span
            lines += [f"    {self.source}", "    " + " " * start + "^" * max(1, end - start)]
        if self.where is not None:
            lines.append(f"  at {self.where}")
        if self.context is not None:
            lines.append(f"  {self.context}")
        if self.hint is not None:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


class UsageError(CommcalcError):
    """The command line asks for something that does not go together."""

    kind = "usage"


class UnitError(CommcalcError):
    """A quantity that cannot be read: no number, no unit, an unknown unit, not finite."""

    kind = "unit"


class NotationError(CommcalcError):
    """Text that is no tensor in the notation ``A[I_X, J]{U_Y}``."""

    kind = "notation"


class SpecError(CommcalcError):
    """A file or option with a wrong, unknown or missing value."""

    kind = "spec"


class UnknownName(CommcalcError):
    """A name that nothing has: a preset, key, axis, dtype or choice."""

    kind = "unknown-name"

    def __init__(
        self, what: str, given: str, known: Iterable[str], *, where: str | None = None, hint: str | None = None
    ) -> None:
        names = sorted(set(known))
        near = nearest(given, names)
        rest = f" and {len(names) - _MOST_KNOWN} more" if len(names) > _MOST_KNOWN else ""
        known = "known: " + (", ".join(names[:_MOST_KNOWN]) + rest or "none")
        advice = f"did you mean {' or '.join(near)}?" if near else known
        super().__init__(f"unknown {what} {given[:80]!r}", where=where, hint=hint or advice)
        self.given = given
        self.matches = near


class ShardingError(CommcalcError):
    """A sharding that cannot exist: an axis used twice, a dimension that does not divide."""

    kind = "sharding"
    status = NO_LEGAL_ANSWER


class IllegalDegree(CommcalcError):
    """A parallel degree that a rule forbids; names the remainder and the legal degrees."""

    kind = "illegal-degree"
    status = NO_LEGAL_ANSWER


class Several(CommcalcError):
    """Several violations of one question, all told at once."""

    def __init__(self, problems: Sequence[CommcalcError]) -> None:
        first = problems[0]
        super().__init__(f"{len(problems)} problems: " + "; ".join(p.message for p in problems))
        self.kind = first.kind
        # What cannot be read comes before what has no answer.
        self.status = min(problem.status for problem in problems)
        self._problems = tuple(problems)

    @property
    def problems(self) -> Sequence[CommcalcError]:
        """All that was found, in order."""
        return self._problems

    def text(self) -> str:
        """The messages one under another, as many as fit a screen."""
        told = [problem.text() for problem in self._problems[:MOST_TOLD]]
        if len(self._problems) > MOST_TOLD:
            told.append(f"error: and {len(self._problems) - MOST_TOLD} more like these; --json lists them all")
        return "\n".join(told)


_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code != 10}


def printable(text: str) -> str:
    """Text without what steers a terminal: names of files and options may bring it along.

    >>> len(printable(chr(27)))
    4
    """
    return text.translate(_CONTROL)


def raise_all(problems: Sequence[CommcalcError]) -> None:
    """Raise what was collected: nothing, the one error, or all of them together."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise Several(problems)


def nearest(given: str, names: Iterable[str]) -> list[str]:
    """Up to three of ``names`` that ``given`` was probably meant to be.

    >>> nearest("hiden_size", ["hidden_size", "head_dim"])
    ['hidden_size']
    """
    from difflib import get_close_matches  # loaded only once something went wrong

    folded = {name.lower(): name for name in names}
    return [folded[match] for match in get_close_matches(given[:80].lower(), folded, n=3, cutoff=0.6)]
