"""``commcalc compare``: a row for every combination, the best of each measure, ratios to a row."""

from __future__ import annotations

from commcalc.accounting.rows import GROUPS
from commcalc.schemas import shared as s
from commcalc.schemas.words import (
    Document,
    Record,
    flag,
    keyed,
    listed,
    number,
    seconds,
    size,
    text,
    whole,
)  # fmt: skip

_RATIO = number("Value over that of the baseline", null=True, least=None)
_MOVED = {
    "payload_bytes": size("Buffers of all calls", null=True),
    "wire_bytes": size("What a device sends on rings", null=True),
    "comm_s": seconds("Communication", null=True),
}
_EXPOSED = {
    "exposed_s": seconds("Communication that compute does not hide", null=True),
    "exposed_share": number("Exposed share of all the time, 0 to 1", null=True),
}
BLOCK = Record("block", "One layer and microbatch on one device; null where not legal, or not known", {
    **_MOVED,
    "compute_s": seconds("Compute", null=True),
    **_EXPOSED,
    "share": number("Share of communication in compute and communication together, 0 to 1", null=True),
})  # fmt: skip
STEP = Record("step", "One step of the slowest stage; null where not legal, or not known", {
    **_MOVED,
    "stage": whole("That stage, from 0", null=True),
    "compute_s": seconds("Compute", null=True),
    **_EXPOSED,
    "time_s": seconds("The whole step", null=True),
    "tokens_per_s": number("Tokens per second", null=True),
    "tokens_per_s_per_device": number("Tokens per second and device", null=True),
    "mfu": number("Share of the peak that model FLOPs come to, 0 to 1", null=True),
})  # fmt: skip
MEMORY = Record("memory", "Bytes on one device of the fullest stage; null where not legal, or not known", {
    "stage": whole("That stage, from 0", null=True),
    "weights_bytes": size("Parameters", null=True),
    "stream_bytes": size("The residual stream between two blocks", null=True),
    "activations_bytes": size("What derivatives read, of all layers under way", null=True),
    "total_bytes": size("All that lies on the device", null=True),
    "fits": flag("Whether it fits", null=True),
})  # fmt: skip
# Fields that may be compared, by their paths in a row.
_PATHS = ["devices", *(f"{one.name}.{key}" for one in (BLOCK, STEP, MEMORY) for key in one.fields)]
WORKLOAD = Record("workload", "What is run", s.WORKLOAD)
ROW = Record("row", "One combination", {
    "combination": keyed(text("As it was written"), "The values of the options that vary"),
    "model": text("Name of the model"),
    "hardware": text("Name of the machine", null=True),
    "layout": s.PARALLELISM.fields["layout"],
    "parallelism": s.PARALLELISM,
    "workload": WORKLOAD,
    "devices": whole("Devices in all", least=1),
    "legal": flag("Whether it is legal"),
    "reason": text("Why it is not", null=True),
    "block": BLOCK,
    "step": STEP,
    "memory": MEMORY,
    "levels": keyed(listed(text("A level"), "Innermost first"), "Levels of the network by group", GROUPS),
    "crossing_bytes": keyed(
        size("What a device sends in a step"), "Groups that leave the innermost level, with their wire bytes", GROUPS
    ),
    "warnings": listed(text("A code, as ledger has it"), "What may be mistakes"),
}, {"ratios": keyed(_RATIO, "Every measure over that of the baseline (--baseline)", _PATHS)})  # fmt: skip
DOCUMENTS = {
    "compare": Document("commcalc/compare/1", "What commcalc compare answers", {
        "varying": listed(text("An option without its dashes"), "Options with several values"),
        "assumptions": s.ASSUMPTIONS,
        "warnings": s.WARNINGS,
        "rows": listed(ROW, "All combinations, the last option varying fastest", minItems=1),
        "best": keyed(listed(whole("Number of a row"), "From 0"), "Rows that are best, by measure", _PATHS),
        "baseline": whole("The row that ratios are to, from 0", null=True),
    }, lines=[ROW]),
}  # fmt: skip
