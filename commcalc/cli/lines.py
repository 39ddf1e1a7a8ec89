"""Lines to stdout that are whole whatever ends the writing: Ctrl-C, a closed pipe, a full disk."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable

from commcalc.cli.output import CannotWrite, ClosedPipe, give_up_stdout, is_sent, write

# What a pipe takes in one piece or not at all, by POSIX at least.
_ATOMIC = 4096
_LARGE = 1 << 20


def line_writer() -> Callable[[str], None]:
    """What writes whole lines: to stdout, or to the file of ``--output``, which has its name when all are there."""
    return write if is_sent() else LineWriter().write


class LineWriter:
    """Writes whole lines; what was begun and cannot be ended is taken back where stdout is a file."""

    def __init__(self) -> None:
        try:
            if sys.stdout is None:
                raise OSError("stdout is closed")
            sys.stdout.flush()
            self.out = sys.stdout.fileno()
            self.file = stat.S_ISREG(os.fstat(self.out).st_mode)
            os.set_blocking(self.out, True)
        except OSError as problem:
            raise CannotWrite(problem) from None

    def write(self, text: str) -> None:
        """Some whole lines; a closed pipe is `ClosedPipe`, a full disk `CannotWrite`."""
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        most = _LARGE if self.file else _ATOMIC
        while data:
            self._piece(data[: _whole_lines(data, most)])
            data = data[_whole_lines(data, most) :]

    def _piece(self, piece: memoryview) -> None:
        done = 0
        try:
            while done < len(piece):
                done += os.write(self.out, piece[done:])
        except BrokenPipeError:
            give_up_stdout()
            raise ClosedPipe from None
        except OSError as problem:
            self._take_back(piece, done)
            give_up_stdout()
            raise CannotWrite(problem) from None
        except KeyboardInterrupt:
            self._take_back(piece, done)
            raise

    def _take_back(self, piece: memoryview, done: int) -> None:
        """Cut a file after the last line that is whole."""
        rest = done - (bytes(piece[:done]).rfind(b"\n") + 1)
        if self.file and rest > 0:
            try:
                end = os.lseek(self.out, 0, os.SEEK_CUR) - rest
                os.ftruncate(self.out, end)
                os.lseek(self.out, end, os.SEEK_SET)
            except OSError:
                pass


def _whole_lines(data: memoryview, most: int) -> int:
    """How many bytes of the next lines are at most so many; of one line, where that is longer."""
    if len(data) <= most:
        return len(data)
    end = bytes(data[:most]).rfind(b"\n") + 1
    while not end:
        more = bytes(data[most : most + _LARGE]).find(b"\n") + 1
        end = most + more if more else 0
        most += _LARGE
        if most >= len(data):
            return end or len(data)
    return end
