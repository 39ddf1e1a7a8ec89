"""``commcalc presets list``, ``show`` and ``validate``."""

from __future__ import annotations

from commcalc.algebra.collective import Kind
from commcalc.catalog.about import TEXTS
from commcalc.catalog.describe import KINDS
from commcalc.catalog.models import FIELDS
from commcalc.network.link import Algorithm
from commcalc.network.measured import Confidence
from commcalc.schemas import meanings as m
from commcalc.schemas import shared as s
from commcalc.schemas.common import VIOLATION
from commcalc.schemas.values import resolved
from commcalc.schemas.words import (
    Document,
    Record,
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
from commcalc.units import Dtype

_ALWAYS, _SOME = s.model_values()
MODEL = Record("model_values", "A model; parts that it has not are left out", {
    **{key: node for key, node in _ALWAYS.items() if key != "name"},
    **{key: _SOME[key] for key in ("num_experts", "num_experts_per_tok", "moe_intermediate_size")},
    "moe_layers": resolved(FIELDS["moe_layers"], "Layers that hold experts", null=False),
}, {key: node for key, node in _SOME.items()
    if key not in ("num_experts", "num_experts_per_tok", "moe_intermediate_size")})  # fmt: skip
OF_MODEL = Record("of_model", "What follows from a model", {
    "parameters": whole("All parameters; null where a size is missing", null=True),
    "active_parameters": whole("Those that a token passes", null=True),
    "prediction_parameters": whole("Those of prediction layers", null=True),
    "parameter_bytes": keyed(size("All parameters"), "By element type"),
    "layers": keyed(whole("Layers"), "By kind of block"),
    "legal_tp": listed(whole("A degree", least=1), "Legal TP degrees"),
    "not_priced_yet": listed(text("A part"), "Parts that no program derives"),
}, {
    "kv_cache_bytes_per_token": size("A token's keys and values in all layers, in bf16"),
    "kv_cache_bytes_per_token_in_window": size("Those of layers with a window"),
})  # fmt: skip
MACHINE = Record("machine_values", "A machine in SI units", s.MACHINE)
CONSTANTS = Record("constants", "The law of a sweep: t = t0 + c sqrt(x) + x/B on bus bytes x", {
    "level": text("The level"),
    "collective": words(Kind, "What was run"),
    "ranks": whole("Devices that took part", least=2),
    "nodes": whole("Domains that they lay in", least=1),
    "algorithm": words(Algorithm, "A kernel, or measured: the library"),
    "t0_s": seconds("Fixed cost of a call"),
    "c_s_per_sqrt_byte": number("Time of one root of a bus byte, in seconds per root of a byte"),
    "bandwidth_bytes_per_s": rate("Bus bandwidth that large payloads come to"),
    "half_bandwidth_payload_bytes": size("Payload at which half of it is reached"),
    "sizes": whole("Sizes that were taken", null=True),
    "source": text("Where the times come from", null=True),
})  # fmt: skip
TIMES = Record("times", "Times of one collective by payload", {
    "level": text("The level"),
    "collective": s.COLLECTIVE,
    "ranks": whole("Devices that take part", least=1),
    "confidence": words(Confidence, "What the times rest on"),
    "lower_bound": flag("Whether they are only what the datasheet's rates allow"),
    "times": listed(s.POINT, "Each size"),
})  # fmt: skip
_INTENSITY = keyed(number("FLOP per byte", null=True), "By element type", Dtype)
OF_MACHINE = Record("of_machine", "What follows from a machine", {
    "flops_per_hbm_byte": {**_INTENSITY, "description": "FLOP in the time of one byte of memory"},
    "flops_per_network_byte": keyed(_INTENSITY, "FLOP in the time of one byte through each level"),
    "constants": listed(CONSTANTS, "The law of every sweep"),
    "times": listed(TIMES, "Times of the usual collectives"),
})  # fmt: skip
JOB = Record("job_values", "A job as it is written", {}, {
    key: {"description": f"The section {key} as the job has it"}
    for key in ("model", "hardware", "parallelism", "workload", "memory", "step", "links")
})  # fmt: skip
OF_JOB = Record("of_job", "What follows from a job", {
    "devices": whole("Devices", least=1),
    "tokens_per_microbatch": whole("Tokens of a microbatch"),
})  # fmt: skip
_KEYED = {"model": (MODEL, OF_MODEL), "hardware": (MACHINE, OF_MACHINE), "job": (JOB, OF_JOB)}
VALUE = Record("value", "One value", {
    "path": text("Its keys, joined by dots; things in a list go by their name"),
    "value": {"description": "A number, text, truth value or list"},
    "source": text("Where it comes from; empty where nobody says"),
})  # fmt: skip
LISTED = Record("preset_line", "One preset", {
    "kind": words(KINDS, "What it is"),
    "name": text("Its name"),
    "aliases": listed(text("A name"), "Other names it goes by"),
    "family": text("Of a model: whose code runs it; else empty"),
    "size": text("For people: parameters, links, or what a job joins"),
    "parameters": whole("All parameters of a model", null=True),
    "confidence": text("How sure its values are; empty where it does not say"),
    "origin": text("packaged, or the file of a user's own"),
})  # fmt: skip
FILE = Record("file", "One file", {
    "path": text("Its path"),
    "kind": words(KINDS, "What it is", null=True),
    "name": text("Its name", null=True),
    "valid": flag("Whether nothing is wrong with it"),
    "violations": listed(VIOLATION, "Everything that is wrong"),
})  # fmt: skip
ABOUT = Record("about", "What the file says about itself", {}, {
    "aliases": listed(text("A name"), m.ABOUT["aliases"]),
    **{key: text(m.ABOUT[key]) for key in TEXTS},
})  # fmt: skip
DOCUMENTS = {
    "preset": Document("commcalc/preset/1", "What commcalc presets show prints", {
        "name": text("Its name"),
        "sources": s.SOURCES,
        "about": ABOUT,
    }, lines=[VALUE], forms=[
        {"kind": {"const": kind, "description": "What it is"}, "values": values, "derived": derived}
        for kind, (values, derived) in _KEYED.items()
    ]),
    "presets": Document("commcalc/presets/1", "What commcalc presets list prints", {
        "presets": listed(LISTED, "Each preset"),
    }, lines=[LISTED]),
    "validation": Document("commcalc/validation/1", "What commcalc presets validate finds", {
        "files": listed(FILE, "Each file"),
    }, lines=[FILE]),
}  # fmt: skip
