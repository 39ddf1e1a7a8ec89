"""``commcalc collective`` and ``busbw``."""

from __future__ import annotations

from collections.abc import Mapping

from commcalc.network.busbw import KINDS
from commcalc.network.link import Algorithm, Topology
from commcalc.schemas import shared as s
from commcalc.schemas.words import Document, Node, Record, flag, listed, number, rate, seconds, size, text, whole, words

_WAY: Mapping[str, Node] = {
    "name": words(Algorithm, "The algorithm"),
    "steps": whole("Steps, each with the level's latency; 0 where the time was measured"),
    "egress_bytes": size("What one device sends under this algorithm"),
    "busiest_link_bytes": size("What the busiest link carries", null=True),
    "time_s": seconds("Time of one call"),
    "time_overlapped_s": seconds("The same with phases of different levels at once"),
    "latency_s": seconds("Fixed part of the time"),
    "ramp_s": seconds("Part that grows with the root of the payload, on measured links"),
    "bandwidth_s": seconds("Part that grows with the payload"),
    "algbw_bytes_per_s": rate("Payload over time", null=True),
    "busbw_bytes_per_s": rate("algbw times the factor", null=True),
    "bound": words(s.BOUNDS, "What limits it"),
    **s.EVIDENCE,
    "level": text("Outermost level that the group crosses"),
    "crossover_payload_bytes": size("Payload at which latency and bandwidth take equally long", null=True),
    "phases": s.PHASES,
}
WAY = Record("way", "One algorithm", _WAY)
WAY_LINE = Record("way_line", "One algorithm of a collective", {
    "collective": s.COLLECTIVE,
    **_WAY,
    "offered": flag("Whether the level offers it; others could run there"),
})  # fmt: skip
COMPARED = Record("compared", "One collective on an array, by its best algorithm", {
    "collective": s.COLLECTIVE,
    "payload_bytes": size("Buffer on one device"),
    **_WAY,
    "reason": text("Why it costs so much"),
})  # fmt: skip
SPAN = Record("span", "The part of a group on one axis of a torus", {
    "members": whole("Devices along it", least=1),
    "hop": whole("Links from one to the next", least=1),
    "closed": flag("Whether its ends are joined"),
})  # fmt: skip
PART = Record("part", "The part of a group on one level", {
    "level": text("The level"),
    "topology": words(Topology, "How its devices are joined"),
    "members": whole("Domains of the level inside, or devices, that take part", least=1),
}, {
    "axes": listed(SPAN, "Its axes, on a torus"),
    "uneven": flag("Whether the group lies in unequal parts"),
    "links_across": whole("Links that then join the parts", least=1),
})  # fmt: skip
_ABOUT: Mapping[str, Node] = {
    "placement": listed(PART, "Where the group lies, innermost level first"),
    "hardware": s.HARDWARE,
    "assumptions": s.ASSUMPTIONS,
    "warnings": s.WARNINGS,
    "sources": s.SOURCES,
    "payload_bytes": size("Buffer on one device as nccl-tests counts it, or the array where primitives are compared"),
    "group_size": whole("Devices that take part", least=1),
}
_ONE: Mapping[str, Node] = {
    "collective": s.COLLECTIVE,
    "wire_bytes": size("What one device sends on a ring"),
    "factor": number("busbw / algbw"),
    "algorithms": listed(WAY, "Those that the level offers, fastest first", minItems=1),
    "not_offered": listed(WAY, "Those that could run there"),
    "best": words(Algorithm, "The one that is priced"),
    "runner_up": words(Algorithm, "The second fastest", null=True),
    "crossover_payload_bytes": size("Payload at which latency and bandwidth take equally long", null=True),
}
_SEVERAL: Mapping[str, Node] = {
    "collective": {"type": "null", "description": "Several are compared"},
    "primitives": listed(COMPARED, "Cheapest first", minItems=1),
    "best": s.COLLECTIVE,
}
_BUSBW: Mapping[str, Node] = {
    "collective": words(KINDS, "What was run"),
    "group_size": whole("Devices that take part", least=1),
    "payload_bytes": size("Buffer on one device as nccl-tests counts it", null=True),
    "factor": number("busbw / algbw"),
    "factor_formula": text("The same in n"),
    "time_s": seconds("Time of one call", null=True),
    "algbw_bytes_per_s": rate("Payload over time"),
    "busbw_bytes_per_s": rate("algbw times the factor"),
    "in_network": flag("Whether the switch reduces"),
    "wire_bytes": size("What one device sends on a ring", null=True),
    "egress_bytes": size("What one device sends as it was run", null=True),
    "wire_bytes_per_s": rate("At which one device sends"),
    "link_bytes_per_s": rate("Of a device's link", null=True),
    "link_ps_per_byte": number("Time of one byte on the link, in picoseconds", null=True),
    "share_of_link": number("Rate on the wire over that of the link", null=True),
}
DOCUMENTS = {
    "collective": Document("commcalc/collective/1", "What commcalc collective answers", _ABOUT,
                           {"explain": s.EXPLAIN}, lines=[WAY_LINE, COMPARED], forms=[_ONE, _SEVERAL]),
    "busbw": Document("commcalc/busbw/1", "What commcalc busbw answers", {
        **_BUSBW,
        "formulas": listed(text("One line"), "Each number with its formula and values"),
        "notes": listed(text("One note"), "What is to be known of the numbers"),
        "warnings": s.WARNINGS,
    }, lines=[Record("rates", "One measurement", _BUSBW)]),
}  # fmt: skip
