"""Where a value came from: its place, and what its file says of the source."""

from __future__ import annotations

from commcalc.document import Leaf, Node, Section


def origin(where: str, key: str, told: Node | None) -> str:
    """The place of a value, with its source in brackets where the file has one."""
    said = cited(where, key, told)
    return f"{where} ({said})" if said else where


def cited(where: str, key: str, told: Node | None) -> str:
    """What ``told``, the ``sources`` of a file, says of ``key``; ``*`` speaks for all values of its own file only.

    A value laid over an extended preset does not inherit the source of the one it replaces.
    """
    if not isinstance(told, Section):
        return ""
    for name in (key, "*"):
        said = told.entries.get(name)
        if isinstance(said, Leaf) and said.value is not None and file_of(said.where) == file_of(where):
            return said.text
    return ""


def file_of(where: str) -> str:
    """The file of a place ``FILE:LINE:COLUMN``."""
    return where.rsplit(":", 2)[0]
