"""``commcalc sweep``: a line, whose first columns are the options that vary."""

from __future__ import annotations

from commcalc.schemas.words import Document, Record, flag, number, seconds, size, text

LINE = Record("line", "One point of the grid; null where not legal, or not known", {
    "legal": flag("Whether the combination is legal"),
    "block_wire_bytes": size("What a device sends on rings in a block", null=True),
    "block_comm_s": seconds("Communication of a block", null=True),
    "step_wire_bytes": size("What a device sends on rings in a step", null=True),
    "step_comm_s": seconds("Communication of a step", null=True),
    "exposed_share": number("Exposed share of a block's compute and exposed communication, 0 to 1", null=True),
    "memory_bytes": size("All that lies on a device of the fullest stage", null=True),
}, {"reason": text("Why it is not legal (--columns reason)", null=True)}, {
    "type": ["string", "number", "boolean", "null"],
    "description": "The value of an option that varies, or of a path of --columns",
})  # fmt: skip
DOCUMENTS = {
    "sweep": Document(
        None, "A line of commcalc sweep, which writes nothing else", LINE.fields, LINE.may, [LINE], others=LINE.others
    )
}
