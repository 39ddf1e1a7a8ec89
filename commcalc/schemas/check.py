"""``commcalc check``: what each limit of a budget says."""

from __future__ import annotations

from commcalc.schemas.words import Document, Record, either, flag, listed, number, text

_NAMES = {"type": "array", "items": {"type": "string"}}
_VALUE = either({"type": ["number", "string", "boolean"]}, _NAMES, {"type": "null"}, tells="What was looked at")
LIMIT = Record("limit", "One limit on one job; what it does not have is null", {
    "job": text("Name of the job"),
    "field": text("The path of the field, as in the JSON of ledger and compare"),
    "value": _VALUE,
    "min": number("The least that is allowed, in the field's unit", null=True, least=None),
    "max": number("The most that is allowed, in the field's unit", null=True, least=None),
    "margin": number("What is left to the nearest bound, as a share of it; below zero where broken",
                     null=True, least=None),
    "passed": flag("Whether it holds"),
    "unit": text("The field's unit"),
    "headroom": number("What is left to the nearest bound, in the field's unit", null=True, least=None),
    "predicted": {**_VALUE, "description": "The prediction, where a measured value is looked at"},
    "measured": number("The measured value", null=True, least=None),
    "tolerance": number("How far it may be from the prediction, as a share of that", null=True),
    "only": listed(text("A name"), "Names that are allowed", null=True),
    "none": listed(text("A name"), "Names that are not allowed", null=True),
    "where": text("File, line and column of the limit"),
    "reason": text("Why it does not hold", null=True),
})  # fmt: skip
DOCUMENTS = {
    "check": Document("commcalc/check/1", "What commcalc check answers", {
        "passed": flag("Whether all hold"),
        "limits": listed(LIMIT, "Each limit on each job", minItems=1),
    }, lines=[LIMIT]),
}  # fmt: skip
