"""``commcalc matmul``, ``reshard`` and ``shard``."""

from __future__ import annotations

from collections.abc import Mapping

from commcalc.accounting.products import Objective, Overlap
from commcalc.schemas import shared as s
from commcalc.schemas.words import (
    Document,
    Node,
    Record,
    flag,
    keyed,
    listed,
    number,
    seconds,
    size,
    text,
    whole,
    words,
)  # fmt: skip

PADDING = Record("padding", "A dimension that was made to divide", {
    "from": whole("Its size as given"),
    "to": whole("Its size as computed with"),
})  # fmt: skip
QUESTION: Mapping[str, Node] = {
    "expression": text("What was asked, as it was written"),
    "mesh": keyed(whole("Devices", least=1), "Devices along each axis of the mesh"),
    "dims": keyed(whole("Elements"), "Elements along each dimension"),
    "dtype": s.DTYPE,
    "padding": keyed(PADDING, "Dimensions that were padded (--pad)"),
    "sub_axes": keyed(listed(text("A factor"), "Its factors, the slowest first"), "With --sub-axes", null=True),
    "notes": listed(text("One note"), "What was done to the question"),
}
STEP = Record("step", "One collective of a plan; bytes and times are of one device", {
    "collective": s.COLLECTIVE,
    "axes": listed(text("An axis"), "Axes of the mesh that it runs over"),
    "group_size": whole("Devices that take part", least=1),
    "tensor": text("Its name"),
    "before": text("The tensor with its sharding before"),
    "after": text("The same after"),
    "strided_over": listed(text("An axis"), "Axes over which the blocks of a device do not lie side by side"),
    "payload_bytes": size("Buffer on one device, as nccl-tests counts it"),
    "wire_bytes": size("What one device sends on a ring"),
    "time_s": seconds("Time of the call", null=True),
    "algorithm": s.ALGORITHM,
    "level": text("Outermost level of the network that the group crosses", null=True),
    "bound": words(s.BOUNDS, "What limits it", null=True),
    **s.EVIDENCE,
    "formula": text("The payload as a product of named sizes"),
}, {"explain": s.EXPLAIN})  # fmt: skip
BACKWARD = Record("backward_step", "One collective of the backward pass", {
    **STEP.fields,
    "transpose_of": text("What of the forward pass it carries back", null=True),
})  # fmt: skip
SLICE = Record("slice", "A part that each device keeps, which is free", {
    "tensor": text("Its name"),
    "before": text("The tensor with its sharding before"),
    "after": text("The same after"),
    "strided": flag("Whether the part is in several pieces"),
})  # fmt: skip
_MOVES: Mapping[str, Node] = {
    "steps": listed(STEP, "Collectives in their order"),
    "slices": listed(SLICE, "Free slices"),
    "wire_bytes": size("What one device sends"),
    "comm_s": seconds("Time of all steps", null=True),
}
STRATEGY = Record("strategy", "One way to run the product; bytes, FLOPs and times are of one device", {
    "name": text("Its steps in words"),
    "legal": flag("Whether it is legal"),
    "output": text("The result with its sharding"),
    **_MOVES,
    "flops": whole("FLOPs"),
    "compute_s": seconds("Compute", null=True),
    "time_overlapped_s": seconds("The larger of compute and communication", null=True),
    "time_serial_s": seconds("Compute and then communication", null=True),
    "time_collective_matmul_s": seconds("Block by block", null=True),
    "peak_bytes": size("Inputs as stored and what is in use beside them"),
}, {"explain": s.EXPLAIN})  # fmt: skip
CASE = Record("case", "What one axis asks for", {
    "axis": text("An axis of the mesh"),
    "case": whole("1 to 4", least=1),
    "why": text("In words"),
})  # fmt: skip
CROSSOVER = Record("crossover", "A size at which another strategy becomes the best", {
    "dim": text("The dimension that grows"),
    "at": number("The size, in elements"),
    "below": text("Best below"),
    "above": text("Best from there on"),
    "below_steps": listed(text("A collective"), "Its steps"),
    "above_steps": listed(text("A collective"), "Its steps"),
    "among": text("all, or the strategies that were compared"),
})  # fmt: skip
ADVICE = Record("advice", "How the question could be better", {
    "code": text("A fixed word to search for"),
    "message": text("The same in words"),
})  # fmt: skip
PRIMITIVE = Record("primitive", "What one collective would cost on the result", {
    "collective": s.COLLECTIVE,
    "payload_bytes": size("Buffer on one device"),
    "wire_bytes": size("What one device sends on a ring"),
    "time_s": seconds("Time of the call", null=True),
})  # fmt: skip
GRADIENT = Record("gradient", "The backward pass of the best, on one device", {
    "wire_bytes": size("What it sends"),
    "comm_s": seconds("Communication", null=True),
    "flops": whole("FLOPs"),
})  # fmt: skip
ROUTE = Record("route", "One way from a sharding to the other", {
    "name": text("Its steps in words"),
    **_MOVES,
    "lost_because": text("Why it is not the best; null of the best", null=True),
})  # fmt: skip
TENSOR: Mapping[str, Node] = {
    "tensor": text("Its name and sharding"),
    "partition_spec": text("The sharding as JAX writes it"),
    "state": words(("replicated", "sharded", "partial"), "How it lies"),
    "global_shape": listed(whole("Elements"), "Its sizes as a whole"),
    "local_shape": listed(whole("Elements"), "Its sizes on one device"),
    "bytes_per_device": size("What one device holds"),
    "shards": whole("Different shards", least=1),
    "replicas": whole("Devices that hold the same shard", least=1),
    "total_bytes": size("What all devices hold together"),
}
_MINIMIZE = words(Objective, "What the best has least of")
_NO_WARNINGS = listed(s.WARNING, "What may be mistakes")
DOCUMENTS = {
    "matmul": Document("commcalc/matmul/1", "What commcalc matmul answers", {
        **QUESTION,
        "case": whole("1 to 4: the largest of all axes", least=1),
        "cases": listed(keyed(whole("1 to 4", least=1), "By axis"), "Of each product of the chain"),
        "case_reasons": listed(CASE, "Each with its reason"),
        "minimize": _MINIMIZE,
        "overlap": words(Overlap, "What runs at the same time"),
        "strategies": listed(STRATEGY, "Best first", minItems=1),
        "more_strategies": whole("Others that are beaten in bytes, FLOPs and memory (--all)"),
        "best": text("Name of the best strategy"),
        "why": text("What it has least of"),
        "crossovers": listed(CROSSOVER, "Where another becomes the best"),
        "compute_bound_above": keyed(number("Size, in elements"), "Bound by compute above, by dimension"),
        "advice": listed(ADVICE, "How the question could be better"),
        "primitives": listed(PRIMITIVE, "What each would cost on the result"),
        "backward": listed(BACKWARD, "Collectives of the backward pass (--grad)"),
        "assumptions": s.ASSUMPTIONS,
        "warnings": _NO_WARNINGS,
    }, {"gradient": GRADIENT}, lines=[STRATEGY]),
    "reshard": Document("commcalc/reshard/1", "What commcalc reshard answers", {
        **QUESTION,
        "minimize": _MINIMIZE,
        **_MOVES,
        "alternatives": listed(ROUTE, "Other ways, cheapest first"),
        "assumptions": s.ASSUMPTIONS,
        "warnings": _NO_WARNINGS,
    }, lines=[ROUTE]),
    "shard": Document("commcalc/shard/1", "What commcalc shard answers", {**QUESTION, **TENSOR},
                      {"explain": s.EXPLAIN}, lines=[Record("shard", "A tensor on its mesh", TENSOR)]),
}  # fmt: skip
