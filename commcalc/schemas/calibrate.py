"""``commcalc calibrate``: fitted sweeps, a machine held against them, and what to measure for a job."""

from __future__ import annotations

from commcalc.accounting.rows import AXES
from commcalc.network.link import Algorithm
from commcalc.network.measured import Confidence
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
from commcalc.transformer.layout import LayoutName
from commcalc.transformer.spec import Phase
from commcalc.units import Dtype

DROPPED = Record("dropped", "A row of the log that is not fitted", {
    "payload_bytes": size("Buffer of one call"),
    "time_s": seconds("Time of one call"),
    "reason": text("Why"),
})  # fmt: skip
POINT = Record("fitted_point", "One size", {
    **s.POINT.fields,
    "busbw_bytes_per_s": rate("As nccl-tests prints it"),
})  # fmt: skip
ERRORS = Record("errors", "Relative errors", {
    "median_rel_error": number("Half of the sizes are nearer, as a share of the time"),
    "p90_rel_error": number("Nine of ten are nearer, as a share of the time"),
})  # fmt: skip
SWEEP = Record("fitted_sweep", "One sweep of a log and its law: t = t0 + c sqrt(x) + x/B on bus bytes x", {
    "source": text("The log"),
    "tool": text("What wrote it"),
    "collective": s.COLLECTIVE,
    "ranks": whole("Devices that took part", least=1),
    "nodes": whole("Nodes that took part", least=1),
    "dtype": text("Element type as the log has it", null=True),
    "rows": whole("Rows of the log"),
    "dropped": listed(DROPPED, "Rows that are not fitted"),
    "torn_rows": whole("Rows that were cut short"),
    "zero_rows": whole("Rows without bytes or without time"),
    "failed_size": size("The size at which the run ended early; 0 or null: none", null=True),
    "t0_s": seconds("Fixed cost of a call"),
    "c_s_per_sqrt_byte": number("Time of one root of a bus byte, in seconds per root of a byte"),
    "bandwidth_bytes_per_s": rate("Bus bandwidth that large payloads come to"),
    "bandwidth_capped": flag("Whether the sizes set no bandwidth, so that it is held"),
    "half_bandwidth_payload_bytes": number("Payload at which half of it is reached, in bytes"),
    "best_busbw_bytes_per_s": rate("The largest busbw of the sweep"),
    "share_of_datasheet": number("The same over the datasheet's rate", null=True),
    "points": listed(POINT, "Sizes that are fitted"),
    "fit": ERRORS,
    "left_out": maybe(ERRORS, "Of sizes that the fit had not seen"),
    "left_out_lines": maybe(ERRORS, "The same of lines between the neighbours"),
    "notes": listed(text("One note"), "What was seen in the log or deduced from it"),
})  # fmt: skip
SIZE = Record("compared_size", "One size, measured and predicted", {
    "source": text("The log"),
    "collective": s.COLLECTIVE,
    "ranks": whole("Devices that took part", least=1),
    "payload_bytes": size("Buffer of one call"),
    "measured_s": seconds("Time in the log"),
    "predicted_s": seconds("Time by the machine"),
    "rel_error": number("How much longer it is predicted, as a share of the measured time", least=None),
    "algorithm": words(Algorithm, "How it is priced"),
    **s.EVIDENCE,
    "passed": flag("Whether it is within the tolerance"),
})  # fmt: skip
INPUTS = Record("inputs", "The job", {
    "model": text("Name of the model"),
    "hardware": text("Name of the machine", null=True),
    "phase": words(Phase, "What is run"),
    "layout": words(LayoutName, "How dimensions are laid on the TP axis"),
    **{axis: whole(f"Degree of {axis}", least=1) for axis in AXES},
    "order": text("Axes, innermost first"),
    "tokens": whole("Tokens of a microbatch"),
    "hidden_size": whole("Width of the residual stream"),
    "dtype": s.DTYPE,
})  # fmt: skip
PASS = Record("pass_needs", "What one pass of a block needs to stay hidden", {
    "pass": text("forward or backward, and where layers differ of which blocks"),
    "dtype": words(Dtype, "Element type of its buffers"),
    "gemm_flops": whole("FLOPs of its matrix products on one device"),
    "gemm_s": seconds("Time of them", null=True),
    "calls": whole("Collectives"),
    "bus_bytes": number("Payloads times factors, in bytes"),
    "required_busbw_bytes_per_s": rate("At which collectives take as long as the products", null=True),
    "least_time_s": seconds("Collectives at what the datasheet allows", null=True),
    "expected_time_s": seconds("Collectives by the preset", null=True),
    "verdict": words(("hidden", "exposed", "cannot be hidden"), "What follows", null=True),
})  # fmt: skip
_FILL_IN: dict[str, Node] = {
    "startup_latency_s": seconds("To fill in: time of the smallest sizes", null=True),
    "measured_busbw_bytes_per_s": rate("To fill in: busbw of the command", null=True),
    "async_progress": flag("To fill in: whether it goes on while kernels run", null=True),
    "gemm_overlap": number("To fill in: share that runs beside a product", null=True),
}
MEASUREMENT = Record("measurement", "One thing to measure", {
    "number": whole("Its number", least=1),
    "collective": s.COLLECTIVE,
    "group": text("The parallel dimension, several joined by commas"),
    "group_size": whole("Devices that take part", least=1),
    "group_stride": whole("Distance of neighbouring ranks", least=1),
    "level": text("Outermost level that the group crosses", null=True),
    "dtype": s.DTYPE,
    "nccl_type": text("The type to ask nccl-tests for"),
    "payload_bytes": size("Buffer of one call"),
    "operations": listed(text("An operation"), "What needs it"),
    "calls_forward": whole("Calls in the forward pass of a block"),
    "calls_backward": whole("Calls in its backward pass"),
    "calls_microbatch": whole("Calls in a microbatch outside of blocks"),
    "calls_step": whole("Calls once per step"),
    "required_busbw_forward_bytes_per_s": rate("To stay hidden in the forward pass", null=True),
    "required_busbw_backward_bytes_per_s": rate("To stay hidden in the backward pass", null=True),
    "required_busbw_bytes_per_s": rate("The larger of both", null=True),
    "datasheet_bytes_per_s": rate("Of the links", null=True),
    "bound_busbw_bytes_per_s": rate("Busbw that the links allow", null=True),
    "share_of_datasheet": number("What is required over what the links allow", null=True),
    "reachable": flag("Whether it is", null=True),
    "expected_time_s": seconds("Time of one call by the preset", null=True),
    "expected_busbw_bytes_per_s": rate("The same as busbw", null=True),
    "algorithm": s.ALGORITHM,
    "confidence": words(Confidence, "What the expected time rests on", null=True),
    **{key: node for key, node in s.EVIDENCE.items() if key != "confidence"},
    "command": text("A command line of nccl-tests at the payload"),
    "startup_command": text("A command line over the smallest sizes"),
    **_FILL_IN,
})  # fmt: skip
DOCUMENTS = {
    "calibrate": Document("commcalc/calibrate/1", "What commcalc calibrate reads from logs", {
        "sweeps": listed(SWEEP, "Each sweep"),
        "warnings": s.WARNINGS,
    }, lines=[SWEEP]),
    "calibrate-compare": Document("commcalc/calibrate-compare/1", "What commcalc calibrate --compare finds", {
        "hardware": text("Name of the machine"),
        "tolerance": number("Error allowed at every size, as a share of the time"),
        "passed": flag("Whether every size is within it"),
        "sizes": listed(SIZE, "Each size of each log"),
    }, lines=[SIZE]),
    "acceptance": Document("commcalc/acceptance/1", "What commcalc calibrate --plan asks to be measured", {
        "inputs": INPUTS,
        "passes": listed(PASS, "What each pass needs to stay hidden"),
        "measurements": listed(MEASUREMENT, "What to measure"),
        "note": text("Where nothing is to be measured, why", null=True),
        "assumptions": s.ASSUMPTIONS,
        "warnings": s.WARNINGS,
    }, lines=[MEASUREMENT]),
}  # fmt: skip
