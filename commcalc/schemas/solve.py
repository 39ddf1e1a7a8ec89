"""``commcalc solve``: candidates and the best of them, or the bandwidth that a time implies."""

from __future__ import annotations

from commcalc.accounting.rows import GROUPS
from commcalc.accounting.solve import Pass
from commcalc.schemas import shared as s
from commcalc.schemas.words import (
    Document,
    Record,
    either,
    flag,
    keyed,
    listed,
    number,
    rate,
    seconds,
    size,
    text,
    whole,
    words,
)  # fmt: skip

PASS = Record("pass", "One pass of a block", {
    "compute_s": seconds("Compute"),
    "comm_s": seconds("Communication"),
})  # fmt: skip
POINT = Record("candidate", "One candidate; times are null where it is not legal", {
    "tp": whole("Tensor-parallel degree", least=1),
    "cp": whole("Context-parallel degree", least=1),
    "dp": whole("Data-parallel degree", least=1),
    "pp": whole("Pipeline stages", least=1),
    "micro_batch": whole("Sequences of a microbatch"),
    "tokens_per_device": number("Tokens of a microbatch, over the devices that share them"),
    "legal": flag("Whether it is legal"),
    "reason": text("Why it is not", null=True),
    "compute_s": seconds("Compute", null=True),
    "comm_s": seconds("Communication", null=True),
    "ratio": number("Communication over compute, of the pass with most", null=True),
    "passes": keyed(PASS, "The same by pass", ("forward", "backward")),
    "total_bytes": size("What lies on a device", null=True),
    "fits": flag("Whether it fits", null=True),
    "compute_bound": flag("Whether communication takes no longer than compute", null=True),
})  # fmt: skip
BANDWIDTH = Record("implied", "The bandwidth that a measured time implies, of one device", {
    "scope": words(("block", "stage", "step"), "What took the time"),
    "group": words((*GROUPS, "all"), "Whose communication took it"),
    "calls": whole("Collectives"),
    "payload_bytes": size("Their buffers"),
    "wire_bytes": size("What the device sends on rings"),
    "time_s": seconds("The time that was given"),
    "bandwidth_bytes_per_s": rate("Wire bytes over the time"),
})  # fmt: skip
LINKS = Record("links", "How collectives are priced", {"algorithm": s.ALGORITHM, "convention": s.CONVENTION})
INPUTS = Record("inputs", "The question as it was understood", {
    "model": text("Name of the model"),
    "hardware": text("Name of the machine", null=True),
    "parallelism": s.PARALLELISM,
    "workload": Record("workload", "What is run", s.WORKLOAD),
    "links": LINKS,
}, {
    "step": s.STEP_CHOICES,
    "sublayers": listed(text("A sublayer"), "Those that were asked about; all where empty"),
    "pass": words(Pass, "The passes that were asked about"),
    "microbatches": whole("Microbatches of a step", least=1),
})  # fmt: skip
DOCUMENTS = {
    "solve": Document("commcalc/solve/1", "What commcalc solve answers", {
        "what": words(("tp", "batch", "mix", "bandwidth"), "What was looked for"),
        "inputs": INPUTS,
        "assumptions": s.ASSUMPTIONS,
        "answer": either(POINT, BANDWIDTH, {"type": "null"}, tells="The best candidate; null where there is none"),
        "points": listed(POINT, "All candidates"),
    }, lines=[POINT, BANDWIDTH]),
}  # fmt: skip
