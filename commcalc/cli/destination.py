"""A file that is written whole or not at all.

Data goes into a temporary file in the same folder, which takes the name in the end; until then what was there stays,
and after an error or Ctrl-C nothing is left behind. What is no file (a pipe, a device) is written as it comes.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from commcalc.errors import CommcalcError, SpecError, UsageError

# Whatever these lead to, it is open already or no file.
_LIVE = ("/dev/", "/proc/")


class Destination:
    """Where the data of one command goes. ``new``: a file that is there already is not replaced."""

    def __init__(self, given: str, *, new: bool = False) -> None:
        self.given = given
        self.new = new
        self._target = ""
        self._temporary = ""
        self._file = -1

    def check(self) -> None:
        """Tell before anything is computed what cannot be a file; `CommcalcError` says why."""
        if not self.given:
            raise UsageError("an empty name", where="--output", hint="--output FILE, or - for stdout")
        try:
            if self.new and os.path.lexists(self.given):
                raise FileExistsError
            there = _stat_of(self.given)
            if there is not None and stat.S_ISDIR(there.st_mode):
                raise self._wrong("a folder, not a file", f"a name in it: {self._shown().rstrip('/')}/FILE")
            folder = os.path.dirname(os.path.realpath(self.given))
            if there is None and not os.path.isdir(folder):
                raise self._wrong("cannot be written: no such file or directory", "make the folder first")
            if there is None or stat.S_ISREG(there.st_mode):
                for place in (folder, self.given) if there is not None else (folder,):
                    if not self._live() and not os.access(place, os.W_OK):
                        what = "its folder takes no new files" if place == folder else "permission denied"
                        raise self._wrong(f"cannot be written: {what}", None)
        except (OSError, ValueError) as problem:
            raise problem if isinstance(problem, CommcalcError) else self.told(problem) from None

    def write(self, data: bytes | memoryview) -> None:
        """Add to it; `OSError` where that cannot be."""
        if self._file < 0:
            self._open()
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def commit(self) -> None:
        """Give it its name; what was there until now is replaced. Without any data it is empty."""
        if self._file < 0:
            self._open()
        if self._temporary:
            os.fsync(self._file)
        file, self._file = self._file, -1
        os.close(file)
        if self._temporary:
            if self.new:
                os.link(self._temporary, self._target)
                os.unlink(self._temporary)
            else:
                os.replace(self._temporary, self._target)
            self._temporary = ""

    def discard(self) -> None:
        """Leave nothing behind; what was committed stays."""
        file, self._file = self._file, -1
        temporary, self._temporary = self._temporary, ""
        with suppress(OSError):
            if file >= 0:
                os.close(file)
        with suppress(OSError):
            if temporary:
                os.unlink(temporary)

    def told(self, problem: OSError | ValueError) -> CommcalcError:
        """The problem in words."""
        if isinstance(problem, FileExistsError):
            return UsageError("the file is there already", where=self._where(), hint="--force replaces it")
        reason = getattr(problem, "strerror", None) or str(problem)
        return self._wrong(f"cannot be written: {reason.lower()}", None)

    def _open(self) -> None:
        there = _stat_of(self.given)
        if self._live() or (there is not None and not stat.S_ISREG(there.st_mode)):
            # A pipe that nobody reads is an error, not a wait.
            self._file = os.open(self.given, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK)
            os.set_blocking(self._file, True)
            return
        self._target = os.path.realpath(self.given)  # a link stays one
        name = f".commcalc-{os.getpid()}-{os.urandom(4).hex()}"
        temporary = os.path.join(os.path.dirname(self._target), name)
        self._file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        self._temporary = temporary
        if there is not None:  # as it was, as far as that is ours to say
            with suppress(OSError):
                os.fchown(self._file, there.st_uid, there.st_gid)
            os.fchmod(self._file, stat.S_IMODE(there.st_mode))

    def _live(self) -> bool:
        return os.path.abspath(self.given).startswith(_LIVE)

    def _shown(self) -> str:
        return self.given if self.given.isprintable() else ascii(self.given)

    def _where(self) -> str:
        return f"--output {self._shown()[:200]}"

    def _wrong(self, message: str, hint: str | None) -> SpecError:
        return SpecError(message, where=self._where(), hint=hint)


def _stat_of(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def put(path: str, text: str, *, new: bool = False) -> None:
    """A whole text into a file, whole or not at all; `CommcalcError` says why it cannot be."""
    there = Destination(path, new=new)
    there.check()
    try:
        there.write(text.encode())
        there.commit()
    except (OSError, ValueError) as problem:
        raise there.told(problem) from None
    finally:
        there.discard()
