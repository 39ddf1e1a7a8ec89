"""``commcalc verify``."""

from __future__ import annotations

from commcalc.schemas import shared as s
from commcalc.schemas.words import Document, Record, flag, keyed, listed, number, text, whole, words

CHECK = Record("check", "One thing that was checked", {
    "layout": text("The layout that was run", null=True),
    "mesh": keyed(whole("Devices", least=1), "Devices along each axis"),
    "case": text("Which model, strategy or algorithm"),
    "note": text("What tells runs of one case apart", null=True),
    "what": text("What was compared, like wire_bytes or forward_error"),
    "where": text("The row or tensor", null=True),
    "expected": number("A count, or the largest relative error allowed", null=True, least=None),
    "at_most": flag("Whether it is the largest error allowed"),
    "found": number("What came out; null where it is no finite number", null=True, least=None),
    "found_is": words(("a bound", "exact"), "Of an error that is allowed, a power of ten that it is below"),
    "passed": flag("Whether it passed"),
    "message": text("What it means that it failed", null=True),
}, {"formula": text("What a count was expected by (--explain)", null=True)})  # fmt: skip
DOCUMENTS = {
    "verify": Document("commcalc/verify/1", "What commcalc verify finds", {
        "passed": flag("Whether every check did"),
        "dtype": text("Format in which elements are computed"),
        "seed": whole("Of the random numbers"),
        "expression": text("The one that was run", null=True),
        "runs": whole("What was run"),
        "failed": whole("Checks that failed"),
        "checks": listed(CHECK, "Every check"),
        "assumptions": s.ASSUMPTIONS,
        "warnings": s.WARNINGS,
    }, lines=[CHECK]),
}  # fmt: skip
