"""JSON Schemas (draft 2020-12) of what commcalc writes and of the files it reads, made when they are asked for.

A document of a command is a `words.Document` in a module here, under its name in ``DOCUMENTS``; a record that several
documents share is defined once, in `shared`. The schemas of files are made from the tables by which they are read.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from commcalc.schemas.words import Document

# What commands write: the name of the schema, and the module whose DOCUMENTS has it.
OUTPUTS = {
    "ledger": "ledger",
    "compare": "compare",
    "sweep": "sweep",
    "check": "check",
    "record": "record",
    "record-compare": "record",
    "solve": "solve",
    "matmul": "products",
    "shard": "products",
    "reshard": "products",
    "collective": "collectives",
    "busbw": "collectives",
    "calibrate": "calibrate",
    "calibrate-compare": "calibrate",
    "acceptance": "calibrate",
    "degrees": "degrees",
    "verify": "verify",
    "preset": "presets",
    "presets": "presets",
    "validation": "presets",
    "schemas": "common",
    "error": "common",
}
# Files that commands read.
FILES = ("job", "model", "hardware", "budget")
NAMES = (*FILES, *OUTPUTS)
DRAFT = "https://json-schema.org/draft/2020-12/schema"


class Listed(NamedTuple):
    """One schema in the list: ``of`` is ``file`` or ``output``, ``number`` the ``schema`` that a document states."""

    name: str
    of: str
    number: str | None
    tells: str

    def record(self) -> dict[str, object]:
        """The fields of the JSON document."""
        return {"name": self.name, "of": self.of, "schema": self.number, "what": self.tells}


def document(name: str) -> Document:
    """What a command writes, by the name of its schema."""
    found: Document = import_module(f"commcalc.schemas.{OUTPUTS[name]}").DOCUMENTS[name]
    return found


def schema(name: str, *, lines: bool = False) -> dict[str, Any]:
    """The schema of that name; with ``lines`` that of one line of ``jsonl``, whose keys are the columns of ``csv``."""
    if name in FILES:
        from commcalc.schemas.files import file_schema

        return {"$schema": DRAFT, **file_schema(name)}
    from commcalc.schemas.words import assembled

    found = document(name)
    return {"$schema": DRAFT, **assembled(found.line() if lines else found.node())}


def listing() -> list[Listed]:
    """All schemas, those of files first."""
    from commcalc.schemas.files import TELLS

    return [Listed(name, "file", None, told) for name, told in TELLS.items()] + [
        Listed(name, "output", found.number, found.tells) for name in OUTPUTS for found in [document(name)]
    ]


def has_lines(name: str) -> bool:
    """Whether a schema is of an output that ``jsonl`` has too."""
    return name in OUTPUTS and bool(document(name).lines)
