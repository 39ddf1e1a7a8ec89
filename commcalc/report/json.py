"""JSON text: keys in the order given, numbers in full, the same bytes everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from commcalc.errors import CommcalcError


def render_json(document: Mapping[str, object]) -> str:
    """One indented document."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def render_jsonl(records: Iterable[Mapping[str, object]]) -> str:
    """One record a line."""
    return "".join(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records)


def error_document(error: CommcalcError) -> dict[str, object]:
    """An error as a document; every single violation is listed."""
    return {"error": violation(error) | {"violations": [violation(problem) for problem in error.problems]}}


def violation(problem: CommcalcError) -> dict[str, object]:
    """One thing that is wrong, as a record."""
    return {
        "kind": problem.kind,
        "message": problem.message,
        "where": problem.place(),
        "context": problem.context,
        "hint": problem.hint,
    }
