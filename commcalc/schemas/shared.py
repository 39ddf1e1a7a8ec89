"""Records that several documents have, each defined here and nowhere else."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from commcalc.algebra.collective import Convention, Kind
from commcalc.catalog.fields import Field
from commcalc.catalog.models import FIELDS
from commcalc.catalog.sections import SECTIONS
from commcalc.network.link import Algorithm, Topology, Wraparound
from commcalc.network.measured import Confidence
from commcalc.schemas import meanings as m
from commcalc.schemas.values import resolved
from commcalc.schemas.words import (
    Node,
    Record,
    either,
    flag,
    keyed,
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
from commcalc.transformer.spec import Model
from commcalc.units import Dtype

CALLS = [kind for kind in Kind if kind is not Kind.SLICE]
BOUNDS = ("latency", "bandwidth")
COLLECTIVE = words(CALLS, "What is run")
DTYPE = words(Dtype, "Element type on the wire")
ASSUMPTIONS = listed(text("One assumption"), "What was taken for granted, in words")
SOURCES = keyed(text("A place, a file's own words on its source, or default"), "Where each value comes from, by path")
WARNING = Record("warning", "What may be a mistake", {
    "code": text("A fixed word to search for, like tp-crosses-level"),
    "message": text("The same in words, with its numbers"),
})  # fmt: skip
WARNINGS = listed(WARNING, "What may be mistakes")
EXPLAIN = listed(text("One line"), "Numbers with their formulas and values (--explain)")
BAND = Record("error_band", "The relative error to expect of a time", {
    "median": number("Half of the times are nearer than this, as a share of the time"),
    "p90": number("Nine of ten are nearer, as a share of the time"),
})  # fmt: skip
# How sure a time is; null where nothing is timed.
EVIDENCE: Mapping[str, Node] = {
    "confidence": words(Confidence, "What the time rests on", null=True),
    "lower_bound": flag("Whether the time is only what the datasheet's rates allow"),
    "error_band": maybe(BAND, "Relative error to expect, where it is known"),
    "measured_in": text("The sweep that the time rests on", null=True),
}
PHASE = Record("phase", "One phase of a collective over several levels", {
    "level": text("Level of the network"),
    "collective": COLLECTIVE,
    "group_size": whole("Devices that take part", least=1),
    "payload_bytes": size("Buffer of the phase on one device"),
    "time_s": seconds("Time of the phase"),
    "algorithm": words(Algorithm, "How it is run"),
})  # fmt: skip
PHASES = listed(PHASE, "Phases of a group that crosses levels, one after another")
TOTAL = Record("total", "What the calls of a group add up to, on one device", {
    "count": whole("Calls"),
    "payload_bytes": size("Buffers of all calls"),
    "wire_bytes": size("What the device sends on rings"),
    "time_s": seconds("Time of all calls", null=True),
})  # fmt: skip
POINT = Record("point", "One size of a sweep", {
    "payload_bytes": size("Buffer of one call"),
    "time_s": seconds("Time of one call"),
})  # fmt: skip

SWEEP = Record("sweep", "Times that were taken on a level", {
    "collective": words(Kind, "What was run"),
    "ranks": whole("Devices that took part", least=2),
    "domains": whole("Domains of the level inside that they lay in", least=1),
    "algorithm": words(Algorithm, "A kernel, or measured: the library"),
    "up_to_bytes": size("The largest payload that the kernel serves", null=True),
    "same_machine": flag(m.SWEEP["same_machine"]),
    "source": text(m.SWEEP["source"], null=True),
    "sizes": whole("Sizes that were taken", null=True),
}, {
    "t0_s": seconds("Fixed cost of a call"),
    "c_s_per_sqrt_byte": number("Time of one root of a byte on the bus, in seconds per root of a byte"),
    "bandwidth_bytes_per_s": rate("Bus bandwidth that large payloads come to"),
    "points": listed(POINT, "Payload and time of each size"),
})  # fmt: skip
SUMS = Record("in_network_reduction", "A switch that sums", {
    "latency_s": seconds(m.IN_NETWORK["latency"]),
    "min_ranks": whole(m.IN_NETWORK["min_ranks"]),
}, {"own_copy": flag(m.IN_NETWORK["own_copy"])})  # fmt: skip
LEVEL = Record("level", "One level of the network", {
    "name": text("Its name"),
    "topology": words(Topology, m.LEVEL["topology"]),
    "devices": whole("All devices inside one domain; null: any number", null=True),
    "bandwidth_bytes_per_s": rate("Per device; of a ring, line or torus per link"),
    "latency_s": seconds("Fixed cost of one step"),
    "in_network_reduction": maybe(SUMS, "The switch's own reduction, where it has one"),
}, {
    "shape": listed(whole("Devices", least=1), m.LEVEL_LISTS["shape"]),
    "wraparound": either(
        words(Wraparound, "By a rule"),
        listed(flag("Whether it closes"), "Of each axis"),
        tells="Which axes of the torus are asked to close",
    ),
    "wraps": listed(flag("Whether it closes"), "Which axes of the torus close"),
    "pod": listed(whole("Devices", least=1), m.LEVEL_LISTS["pod"]),
    "two_way": flag(m.LEVEL["two_way"]),
    "shared_by": whole(m.LEVEL["shared_by"], least=2),
    "oversubscription": number(m.LEVEL["oversubscription"], least=1),
    "algorithms": listed(words(Algorithm, "One of them"), m.LEVEL_LISTS["algorithms"]),
    "measured": listed(SWEEP, "Times that were taken on it"),
})  # fmt: skip
CHIP = Record("chip", "What one device offers; null where not given", {
    "flops": keyed(number("FLOP/s, dense"), "Peak FLOP/s by element type", Dtype),
    "hbm_bytes": size("Its memory", null=True),
    "hbm_bytes_per_s": number("Rate of its memory, in bytes per second", null=True),
})  # fmt: skip
MACHINE: Mapping[str, Node] = {"chip": CHIP, "network": listed(LEVEL, "Levels, innermost first")}
HARDWARE = Record("hardware", "A machine in SI units", {"name": text("Its name"), **MACHINE})


def section(name: str, filled: Collection[str] = ()) -> dict[str, Node]:
    """The keys of a section of a job once it is read; those ``filled`` have no default, but are never null."""
    return {
        key: resolved(field, m.SECTIONS[name][key], null=field.default is None and key not in filled)
        for key, field in SECTIONS[name].items()
    }


def model_values() -> tuple[dict[str, Node], dict[str, Node]]:
    """The keys of a model once it is read: those that are always there, and those of parts that not all have."""
    known: dict[str, Node] = {key: _of_model(key, field) for key, field in FIELDS.items() if key in Model._fields}
    always = Model._fields[: Model._fields.index("embedding_norm")]
    return {key: known[key] for key in always}, {key: known[key] for key in known if key not in always}


def _of_model(key: str, field: Field) -> dict[str, object]:
    return resolved(field, m.MODEL[key], null=Model._field_defaults.get(key) is None)


PARALLELISM = Record("parallelism", "Degrees, and how each is laid out", section(
    "parallelism", ("sp", "layout", "kv", "vocab_padding")
))  # fmt: skip
WORKLOAD = section("workload", ("sequence_length", "global_batch_size", "regather", "logits"))
STEP_CHOICES = Record("step_choices", "How fast kernels run, and what runs beside them", section("step"))
MEMORY_CHOICES = Record("memory_choices", "What lies in memory, in which types", section("memory"))
CONVENTION = words(Convention, "exact, or textbook, which drops (n-1)/n")
ALGORITHM = words(Algorithm, "How it is run; null where nothing is timed", null=True)
