"""``commcalc record``: an experiment's record, and what comparing records tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commcalc.accounting.rows import AXES, GROUPS
from commcalc.catalog.record import CORRECTNESS, STEP
from commcalc.schemas import shared as s
from commcalc.schemas.words import (
    Document,
    Node,
    Record,
    flag,
    listed,
    maybe,
    number,
    rate,
    seconds,
    size,
    text,
    whole,
    words,
)  # fmt: skip
from commcalc.transformer.spec import Phase

_RATIO = number("Measured over predicted", null=True, least=None)
# A number in the unit of its key, or with its unit.
_MEASURED: Mapping[str, Any] = {
    "type": ["number", "string", "null"], "description": "What was measured, in the key's unit or with one",
}  # fmt: skip
TO_MEASURE = Record("to_measure", "To be filled in", {"measured": _MEASURED})
PREDICTED = Record("predicted", "A prediction, and a place for what is measured", {
    "predicted": number("The prediction, in the unit of its key", null=True),
    "measured": _MEASURED,
})  # fmt: skip
BESIDE = Record("beside", "A value of the run, and that of one to compare with", {
    "baseline": {**_MEASURED, "description": "Of the run to compare with"},
    "measured": _MEASURED,
})  # fmt: skip
JOB = Record("job", "What is run", {
    "model": text("Name of the model"),
    "hardware": text("Name of the machine", null=True),
    "phase": words(Phase, "Training, prefill or decode"),
    "layout": s.PARALLELISM.fields["layout"],
    "parallelism": Record("degrees", "By axis", dict.fromkeys(AXES, whole("Degree of it", least=1))),
    "zero": whole("Stage of ZeRO"),
})  # fmt: skip
GROUPS_OF_TP = Record("tensor_parallel", "The tensor-parallel groups", {
    "degree": whole("Ranks of a group", least=1),
    "groups": listed(text("Ranks of one, like 0-7 or 0,4,8"), "The first of them"),
    "groups_in_all": whole("How many there are"),
})  # fmt: skip
MODEL = Record("model", "Sizes of the model; null where layers differ or have no such part", {
    key: whole(told, null=True, least=1)
    for key, told in (
        ("num_hidden_layers", "Layers"), ("hidden_size", "Width of the residual stream"),
        ("intermediate_size", "Width of the MLP"), ("num_attention_heads", "Query heads"),
        ("num_key_value_heads", "Heads of keys and values"), ("head_dim", "Width of a head"),
        ("vocab_size", "Entries of the vocabulary"),
    )
})  # fmt: skip
MICROBATCH = Record("microbatch", "What one microbatch is", {
    "sequences": whole("Sequences", least=1),
    "sequence_length": whole("Tokens of a sequence", least=1),
    "tokens": whole("Tokens", least=1),
    "microbatches_in_step": whole("Microbatches of a step", least=1),
    "dtype": s.DTYPE,
})  # fmt: skip
WEIGHT = Record("weight", "One matrix", {
    "part": text("The program it belongs to"),
    "weight": text("Its name and sharding"),
    "split": text("column, row, or how it lies otherwise"),
    "global_shape": listed(whole("Elements"), "Its sizes as a whole"),
    "local_shape": listed(whole("Elements"), "Its sizes on one device"),
})  # fmt: skip
CALL = Record("call", "One collective; bytes and times are of one call on one device", {
    "name": text("What it is called in this record"),
    "part": text("The program it belongs to"),
    "pass": text("forward, backward, recompute or update"),
    "op": text("The operation that needs it"),
    "collective": s.COLLECTIVE,
    "group": words(GROUPS, "The parallel dimension whose ranks take part"),
    "group_size": whole("Ranks that take part", least=1),
    "dtype": s.DTYPE,
    "payload_bytes": size("Buffer on one device, as nccl-tests counts it"),
    "wire_bytes": size("What one device sends on a ring"),
    "per": words(("block", "layer", "microbatch", "step"), "What `count` is of"),
    "count": PREDICTED,
    "count_in_step": whole("Calls in a step of the busiest stage"),
    "mean_s": PREDICTED,
    "p95_s": TO_MEASURE,
    "exposed_tail_s": TO_MEASURE,
})  # fmt: skip
_STEP: Mapping[str, Node] = dict.fromkeys(STEP, PREDICTED)
_CORRECTNESS: Mapping[str, Node] = {
    key: TO_MEASURE if key == "parameter_update_error" else BESIDE for key in CORRECTNESS
}  # fmt: skip

PAIR = Record("pair", "Measured beside predicted, in the unit of its key", {
    "predicted": number("The prediction", null=True),
    "measured": number("What was measured", null=True),
    "ratio": _RATIO,
})  # fmt: skip
COMPARED = Record("collective", "One collective; times are of one call", {
    "record": text("Name of the record"),
    "name": text("What the collective is called in the record"),
    "group": text("The parallel dimension whose ranks take part"),
    "collective": text("What is run"),
    "payload_bytes": size("Buffer on one device"),
    "wire_bytes": size("What one device sends on a ring"),
    "count_in_step": whole("Calls in a step"),
    "predicted_s": seconds("The prediction", null=True),
    "measured_s": seconds("What was measured", null=True),
    "ratio": _RATIO,
    "busbw_bytes_per_s": rate("Bus bandwidth of the measured time", null=True),
    "p95_s": seconds("Measured 95th percentile", null=True),
    "exposed_tail_s": seconds("Measured time of a call that the critical path waits for", null=True),
    "implied_s": seconds("What the step's time leaves for it", null=True, least=None),
    "off": flag("Whether it is further off than the tolerance"),
})  # fmt: skip
GROUP = Record("group", "The measured collectives of a group in a step", {
    "group": text("The parallel dimension"),
    "predicted": seconds("The prediction", null=True),
    "measured": seconds("What was measured", null=True),
    "ratio": _RATIO,
    "wire_bytes": size("What a device sends in a step"),
})  # fmt: skip
IMPLIED = Record("implied", "What communication must have cost, from the step's time alone", {
    "compute_s": seconds("Compute and bubble"),
    "comm_s": seconds("What is left to communication", least=None),
    "busbw_bytes_per_s": {**rate("Wire bytes of the step over that", null=True), "minimum": 0},
    "ratio": number("What is left over the prediction", null=True, least=None),
    "explained_s": seconds("Compute, bubble and predicted communication", null=True),
    "step_ratio": number("The measured step over that", null=True, least=None),
})  # fmt: skip
CORRECT = Record("correct", "A value of the run beside the baseline's", {
    "baseline": number("Of the run to compare with", null=True, least=None),
    "measured": number("Of this run", null=True, least=None),
    "ratio": number("Measured over baseline", null=True, least=None),
})  # fmt: skip
OUTCOME = Record("outcome", "One record compared", {
    "file": text("Where it was read from"),
    "name": text("Its name"),
    "degree": whole("Tensor-parallel degree"),
    "passed": flag("Whether nothing is further off than the tolerance"),
    "rows": listed(COMPARED, "Each collective"),
    "groups": listed(GROUP, "By group"),
    "step": Record("step", "Parts of the step's time, in seconds", dict.fromkeys(STEP, PAIR)),
    "implied": maybe(IMPLIED, "Null where the step was not measured"),
    "correctness": Record("correctness", "Results beside the baseline's", dict.fromkeys(CORRECTNESS, CORRECT)),
    "off": listed(text("A field"), "What is further off than the tolerance"),
    "said": listed(text("A sentence"), "What follows from the numbers"),
    "missing": listed(text("A field"), "What nobody has measured"),
})  # fmt: skip
DEGREE = Record("degree", "A record's step beside the others'", {
    "file": text("Where it was read from"),
    "name": text("Its name"),
    "degree": whole("Tensor-parallel degree"),
    "predicted_s": seconds("Predicted time of the step", null=True),
    "measured_s": seconds("Measured time of the step", null=True),
    "ratio": _RATIO,
    "predicted_speedup": number("Predicted time of the first record over this one's", null=True),
    "measured_speedup": number("Measured time of the first record over this one's", null=True),
    "implied_comm_s": seconds("What the step's time leaves to communication", null=True, least=None),
    "implied_busbw_bytes_per_s": rate("Wire bytes of the step over that", null=True),
})  # fmt: skip
DOCUMENTS = {
    "record": Document("commcalc/record/1", "An experiment's record: predictions, and places for what is measured", {
        "name": text("What the experiment is called"),
        "job": JOB,
        "tensor_parallel": GROUPS_OF_TP,
        "model": MODEL,
        "microbatch": MICROBATCH,
        "linear_layers": listed(WEIGHT, "Matrices, with their shapes on one device"),
        "collectives": listed(CALL, "Every collective of a step"),
        "step": Record("step", "The step on one device", _STEP),
        "correctness": Record("correctness", "What must equal a run without the sharding", _CORRECTNESS),
    }),
    "record-compare": Document("commcalc/record-compare/1", "What commcalc record compare answers", {
        "passed": flag("Whether nothing is further off than the tolerance"),
        "tolerance": number("How far measured may be from predicted, as a share of that"),
        "records": listed(OUTCOME, "Each record", minItems=1),
        "degrees": listed(DEGREE, "Steps side by side; speed-ups are to the first record"),
    }, lines=[COMPARED]),
}  # fmt: skip
