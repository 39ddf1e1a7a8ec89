"""Errors as documents, and the list of schemas."""

from __future__ import annotations

from commcalc.schemas.words import Document, Record, listed, text, words

VIOLATION = Record("violation", "One thing that is wrong", {
    "kind": text("Which sort: usage, unit, notation, spec, unknown-name, sharding, illegal-degree or error"),
    "message": text("What is wrong"),
    "where": text("File, line, column and key, an option, or a column of an expression", null=True),
    "context": text("What was known, like the mesh and sizes", null=True),
    "hint": text("What to do", null=True),
})  # fmt: skip
ERROR = Record("failure", "What is wrong: the first thing, or all in one line", {
    **VIOLATION.fields,
    "violations": listed(VIOLATION, "Everything that is wrong", minItems=1),
})  # fmt: skip
SCHEMA = Record("schema", "One schema", {
    "name": text("What it is asked for by"),
    "of": words(("file", "output"), "Of a file that commcalc reads, or of what it writes"),
    "schema": text("What a document states in its field schema", null=True),
    "what": text("What it describes"),
})  # fmt: skip
DOCUMENTS = {
    "error": Document(None, "An error, with --format json and jsonl", {"error": ERROR},
                      lines=[Record("error", "An error", {"error": ERROR})]),
    "schemas": Document("commcalc/schemas/1", "The list of schemas", {"schemas": listed(SCHEMA, "All of them")},
                        lines=[SCHEMA]),
}  # fmt: skip
