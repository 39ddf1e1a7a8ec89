"""The list of JSON Schemas as a document and as a table."""

from __future__ import annotations

from collections.abc import Sequence

from commcalc import __version__
from commcalc.report.table import Column, Table
from commcalc.schemas import Listed

SCHEMA = "commcalc/schemas/1"


def schemas_document(found: Sequence[Listed]) -> dict[str, object]:
    """The document of ``commcalc schema --json``."""
    return {"schema": SCHEMA, "version": __version__, "schemas": [one.record() for one in found]}


def schemas_table(found: Sequence[Listed]) -> Table:
    """One line a schema."""
    columns = (Column("name"), Column("of"), Column("schema"), Column("what"))
    return Table("Schemas", columns, tuple((one.name, one.of, one.number or "", one.tells) for one in found))
