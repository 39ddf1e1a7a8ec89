"""``commcalc ledger``: rows, totals, memory, the step; tensors and groups of ranks where they are asked for."""

from __future__ import annotations

from commcalc.accounting.rows import GROUPS
from commcalc.schemas import shared as s
from commcalc.schemas.words import (
    Document,
    Record,
    either,
    flag,
    keyed,
    listed,
    maybe,
    number,
    seconds,
    size,
    text,
    whole,
    words,
)  # fmt: skip
from commcalc.transformer.two_axes import TP_X, TP_Y
from commcalc.transformer.work import Schedule

ALL = (*GROUPS, "all")
PASSES = ("forward", "backward", "recompute", "update")
RUNNER_UP = Record("runner_up", "The second fastest algorithm", {
    "algorithm": s.ALGORITHM,
    "time_s": seconds("Time of one call by it"),
})  # fmt: skip
ROW = Record("row", "One collective; bytes and times are of one call on one device", {
    "pass": words(PASSES, "When it happens; update is once per step"),
    "part": text("The program it belongs to: embedding, a kind of block, head, or all for updates"),
    "sublayer": text("Part of the block, like attention or mlp"),
    "op": text("The operation that needs it"),
    "collective": s.COLLECTIVE,
    "group": words(GROUPS, "The parallel dimension whose ranks take part"),
    "group_size": whole("Ranks that take part", least=1),
    "tensor": text("What is moved, with its sharding"),
    "dtype": s.DTYPE,
    "payload_bytes": size("Buffer on one device, as nccl-tests counts it"),
    "wire_bytes": size("What one device sends on a ring"),
    "egress_bytes": size("What one device sends under the algorithm that is priced", null=True),
    "count": whole("Calls in each `per`"),
    "per": words(("block", "layer", "microbatch", "step"), "What has so many calls"),
    "count_in_step": whole("Calls in a step of the busiest stage"),
    "wire_share": number("Share of the step's wire bytes, 0 to 1"),
    "time_share": number("Share of the time that the step communicates, 0 to 1", null=True),
    "algorithm": s.ALGORITHM,
    "level": text("Outermost level of the network that the group crosses", null=True),
    "phases": s.PHASES,
    "time_s": seconds("Time of one call: latency_s + ramp_s + bandwidth_s", null=True),
    "latency_s": seconds("Fixed part of the time", null=True),
    "ramp_s": seconds("Part that grows with the root of the payload, on measured links", null=True),
    "bandwidth_s": seconds("Part that grows with the payload", null=True),
    "bound": words(s.BOUNDS, "What limits it", null=True),
    **s.EVIDENCE,
    "crossover_payload_bytes": size("Payload at which latency and bandwidth take equally long", null=True),
    "formula": text("The payload as a product of named sizes"),
    "note": text("Why it is there", null=True),
    "runner_up": maybe(RUNNER_UP, "The second fastest algorithm, where there is a choice"),
}, {"explain": s.EXPLAIN})  # fmt: skip
TENSOR = Record("tensor", "One tensor as one device holds it", {
    "part": text("The program it belongs to"),
    "pass": words(("weight", "forward", "backward"), "When it is there"),
    "sublayer": text("Part of the block"),
    "tensor": text("Its name and sharding"),
    "state": words(("replicated", "sharded", "partial"), "How it lies"),
    "split": words(("column", "row"), "How a weight is split", null=True),
    "global_shape": listed(whole("Elements"), "Its sizes as a whole"),
    "local_shape": listed(whole("Elements"), "Its sizes on one device"),
    "global_bytes": size("The whole tensor"),
    "local_bytes": size("What one device holds"),
    "dtype": s.DTYPE,
    "local_heads": whole("Heads on one device", null=True),
})  # fmt: skip
_RANK = whole("A rank")
RANKS = Record("rank_group", "One group of ranks", {
    "group": words((*GROUPS, TP_X, TP_Y), "The parallel dimension, or one of the two that layout 2d splits tp in"),
    "index": whole("Which of its groups"),
    "ranks": listed(_RANK, "Its ranks, in the order of the ring"),
    "level": text("The innermost level that joins all of them", null=True),
    "domains": listed(listed(_RANK, "Ranks of one domain"), "Its ranks by domain of the innermost level"),
    "crossings": listed(
        listed(_RANK, "Two neighbours", minItems=2, maxItems=2), "Neighbours on the ring in different domains"
    ),
    "nodes": whole("Domains of the innermost level that it spans", null=True),
    "levels": listed(text("A level"), "Levels on which some of its ranks meet", null=True),
})  # fmt: skip
MEMORY = Record("memory", "Bytes on one device of the stage that needs most", {
    "stage": whole("That stage, from 0"),
    "weights_bytes": size("Parameters"),
    "gradients_bytes": size("Gradients of parameters"),
    "optimizer_bytes": size("Moments and copies of the optimizer"),
    "activations_bytes": size("What derivatives read, of all layers under way"),
    "kv_cache_bytes": size("Cached keys and values"),
    "buffers_bytes": size("Buffers of gathered parameters and of collectives"),
    "offloaded_bytes": size("What lies on the host"),
    "total_bytes": size("All that lies on the device"),
    "capacity_bytes": size("Memory of the device", null=True),
    "margin_bytes": size("What is left; below zero what is missing", null=True, least=None),
    "fits": flag("Whether it fits", null=True),
    "block_activations_bytes": size("Activations of one layer and microbatch"),
    "working_bytes": size("What one layer needs while it runs"),
    "layers_in_flight": whole("Layers whose activations are held at once"),
})  # fmt: skip
MICROBATCH = Record("microbatch", "One microbatch on the slowest stage", {
    "count": whole("Microbatches of a step"),
    "forward_s": seconds("Compute of the forward pass"),
    "backward_s": seconds("Compute of the backward pass"),
    "recompute_s": seconds("Compute that is repeated"),
    "comm_s": seconds("Communication"),
    "exposed_s": seconds("Communication that compute does not hide"),
})  # fmt: skip
DECODE = Record("decode", "A token of each sequence", {
    "time_s": seconds("Time of a token"),
    "weights_s": seconds("Reading weights from memory"),
    "kv_s": seconds("Reading cached keys and values"),
    "flops_s": seconds("Compute beyond that"),
    "calls": whole("Collectives of a token"),
    "fixed_s": seconds("Their fixed cost"),
    "bytes_s": seconds("The time of their bytes"),
    "hidden_s": seconds("What of that runs beside the rest"),
})  # fmt: skip
STEP = Record("step", "One step, or one token of each sequence where decoding", {
    "stage": whole("The slowest stage, from 0"),
    "time_s": seconds("Time of the step"),
    "serial_s": seconds("The same with nothing hidden"),
    "overlapped_s": seconds("The same with all communication hidden that compute can hide"),
    "compute_s": seconds("Compute of the slowest stage"),
    "comm_s": seconds("Communication of the slowest stage"),
    "exposed_s": seconds("Communication that compute does not hide"),
    "bubble_s": seconds("Waiting of a pipeline"),
    "exposed": keyed(seconds("Exposed communication"), "The same by group", ALL),
    "microbatch": MICROBATCH,
    "tokens": whole("Tokens of the step"),
    "tokens_per_s": number("Tokens per second"),
    "tokens_per_s_per_device": number("Tokens per second and device"),
    "model_flops": number("FLOPs of the model, without what is repeated"),
    "flops": number("FLOPs that are run"),
    "mfu": number("Share of the peak that model FLOPs come to, 0 to 1"),
    "hfu": number("Share of the peak that all FLOPs come to, 0 to 1"),
    "train_days": number("Time of the run of --train-tokens, in days", null=True),
    "decode": maybe(DECODE, "What a token waits for, where decoding"),
})  # fmt: skip
BLOCK = Record("block", "One layer and microbatch on one device", {
    "flops": number("FLOPs"),
    "compute_s": seconds("Compute"),
    "comm_s": seconds("Communication"),
    "exposed_s": seconds("Communication that compute does not hide"),
    "exposed_share": number("Exposed share of compute and exposed communication, 0 to 1"),
})  # fmt: skip
_TOTALS = keyed(s.TOTAL, "By group; all is their sum", ALL)
STAGE = Record("stage", "One pipeline stage", {
    "stage": whole("Its number, from 0"),
    "layers": whole("Its layers"),
    "memory_bytes": size("What lies on its devices", null=True),
    "compute_s": seconds("Compute of a microbatch", null=True),
    "comm_s": seconds("Communication of a microbatch", null=True),
    "exposed_s": seconds("Exposed communication of a microbatch", null=True),
    "once_exposed_s": seconds("Exposed communication once per step", null=True),
    "totals": _TOTALS,
})  # fmt: skip
STAGE_LAYERS = Record("stage_layers", "The layers of one stage", {
    "layers": whole("All of them"),
    "blocks": keyed(whole("Layers"), "The same by kind of block"),
}, {"mirror": whole("The other stage that its ranks hold (DualPipe)")})  # fmt: skip
PIPELINE = Record("pipeline", "The schedule of the stages", {
    "schedule": words(Schedule, "Its name"),
    "bubble_fraction": number("Waiting as a share of the work"),
})  # fmt: skip
LINKS = Record("links", "How collectives are priced", {
    "algorithm": s.ALGORITHM,
    "convention": s.CONVENTION,
    "call_latency_s": seconds("Fixed cost of a call, in place of the links' latencies", null=True),
})  # fmt: skip
MODEL = Record("model", "The model; parts that it has not are left out", *s.model_values())
INPUTS = Record("inputs", "The question as it was understood", {
    "model": MODEL,
    "hardware": either(s.HARDWARE, {"type": "object", "maxProperties": 0}, tells="Empty where none is given"),
    "parallelism": s.PARALLELISM,
    "workload": Record("workload", "What is run", {
        **s.WORKLOAD, "microbatches": whole("Microbatches of a step", least=1),
    }),
    "memory": s.MEMORY_CHOICES,
    "step": s.STEP_CHOICES,
    "links": LINKS,
    "sizes": keyed(whole("Elements"), "The named sizes of the formulas"),
    "stages": listed(STAGE_LAYERS, "Pipeline stages, the first first"),
    "pipeline": maybe(PIPELINE, "The schedule, where there are stages"),
    "busiest_stage": whole("The stage that totals.step is of, from 0"),
    "sources": s.SOURCES,
})  # fmt: skip
TOTALS = Record("totals", "Sums by group, on one device", {
    "block": _TOTALS,
    "stage": _TOTALS,
    "step": _TOTALS,
}, {"blocks": keyed(_TOTALS, "By kind of block, where layers differ")})  # fmt: skip
DOCUMENTS = {
    "ledger": Document("commcalc/ledger/1", "What commcalc ledger answers", {
        "inputs": INPUTS,
        "assumptions": s.ASSUMPTIONS,
        "warnings": s.WARNINGS,
        "rows": listed(ROW, "One collective each"),
        "totals": TOTALS,
        "memory": maybe(MEMORY, "Of the stage that needs most; null where sizes are missing"),
        "step": maybe(STEP, "Null where the machine gives no FLOP/s"),
        "block": maybe(BLOCK, "Null where the machine gives no FLOP/s"),
        "stages": listed(STAGE, "Each stage"),
    }, {
        "tensors": listed(TENSOR, "With --tensors"),
        "ranks": listed(RANKS, "With --ranks"),
    }, lines=[ROW, TENSOR, RANKS]),
}  # fmt: skip
