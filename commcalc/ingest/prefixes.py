"""What launchers, collectors and mail put before the lines of a log, and how lines are made clean."""

from __future__ import annotations

import re

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*(?:\x07|$)|[()][A-Z0-9])")
_ODD = str.maketrans({"\u200b": None, "\ufeff": None, "\u2060": None, "\u2212": "-", "\u2013": "-", "\r": " "})
_PREFIX = re.compile(
    r"""\s*(?:
      (?:>|&gt;)\s?                                                       # quoted in mail
    | \[\d+,\s*\d+\]<\w+>:                                                # mpirun --tag-output
    | \[(?:prterun|prte|mpirun)[^\]]*\](?:<\w+>:)?                        # Open MPI 5
    | \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?(?=\s|$)
    | \[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?(?=\s|$)
    | \d{1,6}:(?=\s|$)                                                    # srun -l
    | \[\d{1,6}\](?=\s|$)                                                 # mpiexec -l
    | \[?(?:pod|job|container)/[\w./-]+\]?:?(?=\s|$)                      # kubectl logs --prefix
    | \(\w+\ pid=\d+[^)]*\)(?=\s|$)                                       # ray
    | [A-Za-z][\w.-]*-\d+[\w.-]*\s{0,3}[:|](?=\s|$)                       # worker-0:
    | (?:stdout|stderr)\ [FP](?=\s|$)                                     # container runtimes
    )""",
    re.VERBOSE,
)
_MOST_PREFIXES = 6


def clean(line: str) -> str:
    """A line without colour codes, odd blanks and its end."""
    if "\x1b" in line:
        line = _ESCAPES.sub("", line)
    if not line.isascii() or "\r" in line:
        line = line.translate(_ODD)
    return line.rstrip()


def strip_prefix(line: str) -> str:
    """The line without labels and time stamps before it.

    >>> strip_prefix("2025-06-01T00:00:00.000Z pod/worker-0 [1,0]<stdout>: -1  36.33").strip()
    '-1  36.33'
    """
    for _ in range(_MOST_PREFIXES):
        match = _PREFIX.match(line)
        if match is None:
            break
        line = line[match.end() :]
    return line
