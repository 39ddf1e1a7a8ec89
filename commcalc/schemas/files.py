"""The schemas of the files that commcalc reads, made of the tables by which it reads them.

Where a file extends another, null takes a value away and what is required may stand in the other; elsewhere null is no
value. A mapping in a list (a level, a sweep) needs its name in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from commcalc.algebra.collective import Kind
from commcalc.catalog import budget, measured, models
from commcalc.catalog import hardware as h
from commcalc.catalog import levels as lv
from commcalc.catalog.about import TEXTS
from commcalc.catalog.fields import Field
from commcalc.catalog.sections import SECTIONS
from commcalc.network.link import KERNELS, Algorithm, Topology, Wraparound
from commcalc.schemas import meanings as m
from commcalc.schemas import values as v
from commcalc.schemas.words import Named, Node, assembled
from commcalc.units import Dtype

TELLS = {
    "job": "A job file: model, hardware, degrees and work",
    "model": "A model file, by the key names of Hugging Face",
    "hardware": "A hardware file: chip and network",
    "budget": "A budget of commcalc check: jobs, and limits on what their ledgers say",
}
# A file with one of these is a config.json of the Hub, which is read as it is.
_CONFIG = ("model_type", "architectures", "text_config", "thinker_config")
_NULL: Mapping[str, Any] = {"type": "null"}


class _Made(NamedTuple):
    """A file: its keys, any of which may be null, and what holds where it extends no other."""

    keys: Mapping[str, Any]
    whole: Mapping[str, Any]

    def schema(self) -> dict[str, Any]:
        """Both together."""
        return {**self.keys, "allOf": [self.whole]}


def file_schema(kind: str) -> dict[str, Any]:
    """The schema of a job, model, hardware or budget file."""
    head = {"title": f"commcalc {kind}", "description": TELLS[kind]}
    if kind == "budget":
        return assembled({**head, **_budget()})
    made = {"job": _job, "model": _model, "hardware": _hardware}[kind]()
    return assembled({**head, **made.schema()})


def _mapping(properties: Mapping[str, Node], required: Iterable[str] = (), **more: Any) -> dict[str, Any]:
    """A mapping of these keys; each may be null, which `_unless` refuses where nothing is extended."""
    keys = {key: _nullable(node) for key, node in properties.items()}
    found = {"type": "object", "properties": keys, "additionalProperties": False, **more}
    return found | ({"required": [*required]} if required else {})


def _nullable(node: Node) -> dict[str, Any]:
    """The same or null, with its description and default where an editor looks for them."""
    if not isinstance(node, Mapping):
        return {"anyOf": [node, _NULL]}
    told = {key: node[key] for key in ("description", "default") if key in node}
    rest = {key: value for key, value in node.items() if key not in told}
    return {**told, "anyOf": [rest, _NULL]}


# No null anywhere below, which only a file that extends another may have.
_GIVEN: dict[str, Any] = {"not": {"type": "null"}}
GIVEN = Named("given", _GIVEN)
_GIVEN |= {"patternProperties": {"": GIVEN}, "items": GIVEN}


def _unless(excused: Iterable[str], **whole: Any) -> dict[str, Any]:
    """What holds where none of the keys ``excused`` is there: no null in any value, and ``whole``."""
    sources = {"sources": {"type": "object"}}
    given = {"patternProperties": {"^(?!sources$)": GIVEN}, **whole}
    given["properties"] = {**sources, **whole.get("properties", {})}
    return {"if": {"anyOf": [{"required": [key]} for key in excused]}, "else": given}


def _fields(table: Mapping[str, Field], tells: Mapping[str, str]) -> dict[str, Node]:
    return {key: v.written(field, tells[key]) for key, field in table.items()}


def _about(*keys: str) -> dict[str, Node]:
    """What a file says about itself."""
    scalar = {"type": ["string", "number", "boolean", "null"]}
    name = {"type": ["string", "number", "boolean"], "minLength": 1}
    known: dict[str, Mapping[str, Any]] = {
        "aliases": {"type": "array", "items": name},
        "sources": {"type": "object", "additionalProperties": scalar},
        "extends": {"type": "string", "minLength": 1},
        **{key: {"allOf": [v.TEXT]} for key in TEXTS},
    }
    return {key: {"description": m.ABOUT[key], **known[key]} for key in keys}


def _model() -> _Made:
    own = _fields(models.FIELDS, m.MODEL) | _about("aliases", "sources", *TEXTS, "extends")
    config = {"anyOf": [{"required": [key]} for key in _CONFIG]}
    told = {"description": "A config.json of the Hugging Face Hub, read as it is"}
    return _Made({"type": "object", "if": config, "then": told, "else": _mapping(own)}, _unless(("extends", *_CONFIG)))


def _job() -> _Made:
    model, hardware = _model(), _hardware()
    name = {"type": "string", "minLength": 1}
    sections = {
        key: {"description": told, **_mapping(_fields(SECTIONS[key], m.SECTIONS[key]))}
        for key, told in _SECTIONS.items()
    }
    keys: dict[str, Node] = {
        "name": {"description": "What the job is called", **v.TEXT.node},
        "model": {
            "description": "A preset's name, a YAML file, a config.json, or the fields themselves",
            "anyOf": [name, Named("model", model.keys)],
        },
        "hardware": {
            "description": "A preset's name, a YAML file, or the fields themselves",
            "anyOf": [name, Named("hardware", hardware.keys)],
        },
        **sections,
        **_about("aliases", "sources", "notes", "extends"),
    }
    # A section may be empty: nothing under its name.
    whole = {key: {"anyOf": [_NULL, GIVEN]} for key in _SECTIONS} | {
        key: {"not": _NULL, "if": {"type": "object"}, "then": made.whole}
        for key, made in (("model", model), ("hardware", hardware))
    }
    others = {f"^(?!({'|'.join(('sources', *whole))})$)": GIVEN}
    return _Made(_mapping(keys), _unless(["extends"], properties=whole, patternProperties=others))


def _budget() -> dict[str, Any]:
    name = {"type": "string", "minLength": 1}
    job = Named("job", {"anyOf": [name, _job().schema()]})
    several = {"anyOf": [
        {"type": "array", "minItems": 1, "items": job},
        {"type": "object", "minProperties": 1, "additionalProperties": job},
    ]}  # fmt: skip
    keys = {
        "schema": {"description": "Of budgets", "const": budget.SCHEMA},
        "name": {"description": "What the budget is called"},
        "notes": {"description": "Anything"},
        "job": {"description": "A preset's name, a YAML file beside the budget, or the fields", "allOf": [job]},
        "jobs": {"description": "Several of them, in a list or by name", **several},
        "limits": {
            "description": "By the path of a field of ledger --json, or of a row of compare --json",
            "type": "object", "minProperties": 1, "additionalProperties": _limit(),
        },
    }  # fmt: skip
    return {
        "type": "object", "properties": keys, "additionalProperties": False, "required": ["limits"],
        "oneOf": [{"required": ["job"]}, {"required": ["jobs"]}],
    }  # fmt: skip


def _limit() -> Named:
    number = {"anyOf": [{"type": "number"}, {"type": "string", "minLength": 1}]}
    word = {"type": ["string", "number", "boolean"]}
    keys = {
        "min": {"description": "The least that is allowed, like 1 GB, 0.3 or 30%", **number},
        "max": {"description": "The most that is allowed, like 1 GB, 0.3 or 30%", **number},
        "measured": {"description": "What was measured; it takes the place of the prediction", **number},
        "tolerance": {"description": "How far measured may be from the prediction, like 10%", **number},
        "only": {"description": "Names that are allowed", "anyOf": [word, {"type": "array", "items": word}]},
        "none": {
            "description": "Names that are not allowed",
            "anyOf": [word, {"type": "array", "minItems": 1, "items": word}],
        },
    }
    bounds = [{"required": [key]} for key in ("tolerance", "min", "max")]
    return Named("limit", {
        "type": "object", "properties": keys, "additionalProperties": False, "minProperties": 1,
        "dependentRequired": {"tolerance": ["measured"]}, "dependentSchemas": {"measured": {"anyOf": bounds}},
    })  # fmt: skip


_SECTIONS = {
    "parallelism": "Degrees, and how each is laid out",
    "workload": "What is run",
    "memory": "What lies in memory, in which types",
    "step": "How fast kernels run, and what runs beside them",
    "links": "How collectives are priced",
}


def _hardware() -> _Made:
    flops: dict[str, Node] = {str(one): {"allOf": [v.FLOPS]} for one in Dtype}
    spelled = {v.DTYPE_PATTERN: {"anyOf": [v.FLOPS, _NULL]}}
    chip: dict[str, Node] = {
        "flops": {
            "description": "Peak FLOP/s by element type, dense", **_mapping(flops, patternProperties=spelled),
        },
        "hbm": {"description": "Memory of the device", **_mapping(_fields(h.HBM, m.HBM))},
    }  # fmt: skip
    keys: dict[str, Node] = {
        **_fields(h.NAME, {"name": "What the machine is called"}),
        "chip": {"description": "What one device offers", **_mapping({key: chip[key] for key in h.CHIP})},
        "network": {"description": "Levels, innermost first", "type": "array", "items": _level()},
    }
    keys |= _about(*(key for key in h.KEYS if key not in keys), "extends")
    whole = {"network": {"minItems": 1, "items": _whole_level()}}
    return _Made(_mapping(keys), _unless(["extends"], required=["network"], properties=whole))


def _level() -> Named:
    sums = _mapping(_fields(lv.IN_NETWORK, m.IN_NETWORK))
    lists: dict[str, dict[str, Any]] = {
        "shape": _shape(),
        "pod": _shape(),
        "algorithms": _algorithms(),
        "wraparound": {
            "anyOf": [
                {"type": "boolean"},
                {"enum": [*map(str, Wraparound)]},
                {"type": "array", "items": {"type": "boolean"}},
            ]
        },
        "in_network_reduction": {"anyOf": [{"type": "boolean"}, sums]},
        "measured": {"type": "array", "items": _sweep()},
    }
    keys = _fields(lv.LEVEL, m.LEVEL) | {
        key: {"description": m.LEVEL_LISTS[key], **lists[key]} for key in (*lv.LISTS, *lv.READ_ELSEWHERE)
    }
    return Named("level", _mapping(keys, required=["name"], description="One level of the network"))


def _whole_level() -> dict[str, Any]:
    """What a level needs that extends nothing: its bandwidth, and what its topology asks for."""
    torus = {"required": ["topology"], "properties": {"topology": {"const": str(Topology.TORUS)}}}
    mesh = {"required": ["topology"], "properties": {"topology": {"const": str(Topology.FULL_MESH)}}}
    ring = {"required": ["topology"], "properties": {"topology": {"const": str(Topology.RING)}}}
    no_torus = {"properties": dict.fromkeys(("shape", "pod", "wraparound"), False)}
    return {
        "required": ["name", "bandwidth"],
        "allOf": [
            {"if": torus, "then": {"required": ["shape"]}, "else": no_torus},
            {"if": mesh, "then": {"required": ["devices"]}},
            {"if": ring, "else": {"properties": {"two_way": False}}},
        ],
    }


def _shape() -> dict[str, Any]:
    size = r"\s*\+?(?=[0-9_.]*[1-9])[0-9.][0-9_.]*([eE][+-]?[0-9]{1,3})?\s*"
    text = {"type": "string", "pattern": rf"^\s*\[?{size}([x,]{size}){{0,{lv.MOST_AXES - 1}}}\]?\s*$"}
    items = {"type": "array", "minItems": 1, "maxItems": lv.MOST_AXES, "items": v.WHOLE}
    return {"anyOf": [items, {"type": "integer", "minimum": 1}, text]}


def _algorithms() -> dict[str, Any]:
    known = [str(one) for one in Algorithm if one is not Algorithm.AUTO]
    word = f"({'|'.join(known)})"
    text = {"type": "string", "pattern": rf"^\[*\s*{word}\s*(,\s*{word}\s*)*\]*$"}
    return {"anyOf": [{"type": "array", "items": {"enum": known}}, {"enum": known}, text]}


def _sweep() -> Named:
    keys = _fields(measured.FIELDS, m.SWEEP)
    calls = [str(kind) for kind in Kind if kind not in (Kind.SLICE, Kind.PERMUTE)]
    keys["collective"] = {"description": m.SWEEP["collective"], "enum": calls}
    keys["algorithm"] = {"description": m.SWEEP["algorithm"], "enum": [*map(str, KERNELS)]}
    number = r"[0-9][0-9.]*([eE][+-]?[0-9]+)?\s*"
    point = rf"\s*{number}[A-Za-z]*\s+{number}[A-Za-z\u00b5\u03bc]+\s*"
    pair = {"type": "array", "prefixItems": [v.SIZE, v.TIME], "items": False, "minItems": 2}
    keys["points"] = {
        "description": "Payload and time of one call, growing: 8 KiB 16 us, 64 KiB 19 us",
        "anyOf": [
            {"type": "string", "pattern": f"^{point}(,{point})+$"},
            {"type": "array", "minItems": 2, "maxItems": measured.MOST_POINTS, "items": pair},
        ],
    }
    law = ("t0", "sqrt", "bandwidth")
    either = [
        {"required": ["points"], "properties": dict.fromkeys(law, False)},
        {"required": ["t0", "bandwidth"], "properties": {"points": False}},
    ]
    return Named("sweep", _mapping(keys, required=("collective", "ranks"), anyOf=either))
