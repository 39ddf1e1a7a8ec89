"""The outside world: where data and messages go, how wide and in what colour, and what a closed pipe means."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from time import monotonic
from typing import TYPE_CHECKING

from commcalc.errors import CommcalcError, SpecError, printable

if TYPE_CHECKING:
    from commcalc.cli.destination import Destination


class Format(StrEnum):
    """How data is written."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    MARKDOWN = "markdown"


class ClosedPipe(Exception):
    """The reader of stdout has gone: not an error, it has seen enough."""


class CannotWrite(SpecError):
    """Stdout takes nothing more: a full disk. Told on stderr, whatever format was asked for."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(f"cannot write: {(problem.strerror or str(problem)).lower()}", where="stdout")


class _Sent:
    """Where data goes instead of stdout, while a command runs that was told so."""

    to: Destination | None = None


def send_to(path: str | None) -> None:
    """Data of this command goes to a file from now on; None and ``-`` are stdout."""
    if path is None or path == "-":
        return
    from commcalc.cli.destination import Destination

    destination = Destination(path)
    destination.check()
    _Sent.to = destination


def is_sent() -> bool:
    """Whether data goes to a file that was named."""
    return _Sent.to is not None


def finish() -> None:
    """All data has been written: the file takes its name."""
    if _Sent.to is not None:
        try:
            _Sent.to.commit()
        except OSError as problem:
            raise _Sent.to.told(problem) from None


def give_up() -> None:
    """Data goes to stdout again; of a file that is not finished nothing is left."""
    if _Sent.to is not None:
        _Sent.to.discard()
        _Sent.to = None


def write(text: str) -> None:
    """Data to stdout or to the file that was asked for, as UTF-8 in any locale.

    A closed pipe is `ClosedPipe`, a full disk `CannotWrite`, or for a file a `CommcalcError` that names it.
    """
    data = memoryview(text.encode("utf-8", "backslashreplace"))
    if _Sent.to is not None:
        try:
            _Sent.to.write(data)
        except BrokenPipeError:
            raise ClosedPipe from None
        except OSError as problem:
            raise _Sent.to.told(problem) from None
        return
    try:
        if sys.stdout is None:
            raise OSError("stdout is closed")
        sys.stdout.flush()
        os.set_blocking(sys.stdout.fileno(), True)
        while data:  # an unbuffered stream may take a part only
            data = data[sys.stdout.buffer.write(data) or 0 :]
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        give_up_stdout()
        raise ClosedPipe from None
    except OSError as problem:
        give_up_stdout()
        raise CannotWrite(problem) from None


def give_up_stdout() -> None:
    """Python flushes once more at exit; give it somewhere to flush to."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def say(text: str) -> None:
    """A message to stderr; a stderr that cannot be written to is not worth a failure."""
    try:
        sys.stderr.buffer.write((printable(text) + "\n").encode("utf-8", "backslashreplace"))
        sys.stderr.buffer.flush()
    except (OSError, ValueError, AttributeError):
        pass


def warn(warnings: Sequence[tuple[str, str]]) -> None:
    """Warnings, each with its code."""
    for code, message in warnings:
        say(f"warning: {message} [{code}]")


class Progress:
    """How far a long command is: after a second, on a terminal's stderr, on one line that is wiped in the end."""

    def __init__(self, total: int, what: str, *, beside: bool = True) -> None:
        """``beside``: whether it may stand beside what stdout says; a stream on the same terminal tells by itself."""
        self.total = total
        self.what = what
        self.shown = sys.stderr is not None and sys.stderr.isatty() and (beside or not is_terminal())
        self.begun = monotonic()

    def at(self, done: int) -> None:
        """Tell that so many are done."""
        if self.shown and monotonic() - self.begun > 1:
            text = f"{done} of {self.total} {self.what}" if done < self.total else ""
            try:
                sys.stderr.write(f"\r\x1b[K{text}")
                sys.stderr.flush()
            except OSError:
                self.shown = False


def report_error(error: CommcalcError, style: Format = Format.TABLE) -> None:
    """The error on stderr, or as a document on stdout where JSON was asked for."""
    if style in (Format.JSON, Format.JSONL):
        from commcalc.report.json import error_document, render_json, render_jsonl

        document = error_document(error)
        write(render_json(document) if style is Format.JSON else render_jsonl([document]))
    else:
        say(error.text())


def style_of(args: Sequence[str]) -> Format:
    """The format that a command line asks for, known before it is parsed."""
    for given, after in zip(args, [*args[1:], ""], strict=True):
        if given == "--json":
            return Format.JSON
        name = after if given == "--format" else given.removeprefix("--format=")
        if given.startswith("--format") and name in Format.__members__.values():
            return Format(name)
    return Format.TABLE


def is_terminal() -> bool:
    """Whether a person reads the data."""
    return _Sent.to is None and sys.stdout is not None and sys.stdout.isatty()


def width_of_terminal(environ: Mapping[str, str]) -> int | None:
    """Columns of the terminal, ``COLUMNS`` first; None in a pipe."""
    if not is_terminal():
        return None
    columns = environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and 0 < int(columns) < 10_000:
        return int(columns)
    try:
        return os.get_terminal_size(1).columns or None
    except OSError:
        return None


def colour_of_terminal(environ: Mapping[str, str], no_color: bool) -> bool:
    """Whether to colour: a terminal that can, and nobody who minds."""
    return (
        is_terminal() and not no_color and not environ.get("NO_COLOR") and environ.get("TERM", "") not in ("dumb", "")
    )
