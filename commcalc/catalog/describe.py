"""What a preset or a file is, as data: its values, what follows from them, and where each came from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from commcalc.catalog import presets
from commcalc.catalog.about import read_about
from commcalc.catalog.hardware import Hardware, hardware_values, read_hardware
from commcalc.catalog.job import Request, resolve_job
from commcalc.catalog.models import FIELDS, read_model
from commcalc.catalog.provenance import cited
from commcalc.catalog.sections import SECTIONS
from commcalc.document import Leaf, Section, parse_document, plain, read_text
from commcalc.errors import CommcalcError, SpecError, UnknownName, nearest, raise_all
from commcalc.transformer.cache import cache_per_token
from commcalc.transformer.layers import count_of, layers_of
from commcalc.transformer.limits import legal_degrees, limits
from commcalc.transformer.parameters import active_parameters, missing, parameters, prediction_parameters
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Parallelism, Workload
from commcalc.units import format_parameters, format_rate

KINDS = tuple(presets.FOLDERS)
# Keys by which a file that stands in no folder of a kind is told from the others.
_JOB_KEYS = {"parallelism", "workload", "links"}
_HARDWARE_KEYS = {"chip", "network"}
# Fields of experts, shown of every model so that a reader need not ask whether they are there.
_ALWAYS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")


class Described(NamedTuple):
    """A preset: ``values`` in SI units, ``derived`` what follows, ``sources`` the origin of each value by its path."""

    kind: str
    name: str
    values: Mapping[str, object]
    derived: Mapping[str, object]
    sources: Mapping[str, str]
    about: Mapping[str, object]
    # For people: parameters, links, or what a job joins.
    size: str
    parameters: int | None = None


def describe(given: str, kind: str | None = None, *, full: bool = False) -> Described:
    """The preset, YAML file or ``config.json`` that ``given`` names; all that is wrong with it is raised together.

    ``full``: of a machine also what its links come to, which takes fits and prices.
    """
    if kind is None:
        kind = kind_of(given) if presets.is_path(given) else kind_with(given)
    section = presets.load(kind, given)
    if kind == "model":
        return _model(section)
    return _hardware(section, full=full) if kind == "hardware" else _job(section, given)


def kind_with(name: str) -> str:
    """The kind that has a preset of this name: models are asked first, then hardware, then jobs."""
    for kind in KINDS:
        try:
            presets.resolve(kind, name)
            return kind
        except UnknownName:
            continue
    known = [one for kind in KINDS for one in presets.spellings(kind)]
    hint = None if nearest(name, known) else "commcalc presets list"
    raise UnknownName("preset", name, known, where=name[:80], hint=hint)


def kind_of(path: str) -> str:
    """The kind of a file: by the folder it stands in, or by its keys."""
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    for kind, name in presets.FOLDERS.items():
        if folder == name:
            return kind
    entries = parse_document(read_text(path), path).entries
    if entries.keys() & _HARDWARE_KEYS:
        return "hardware"
    if entries.keys() & _JOB_KEYS or {"model", "hardware"} & entries.keys():
        return "job"
    base = entries.get("extends")
    if isinstance(base, Leaf) and not presets.is_path(base.text) and base.text:
        return kind_with(base.text)
    return "model"


class Listed(NamedTuple):
    """One line of the list. ``size`` is for people: parameters, memory and network, or what a job joins."""

    kind: str
    name: str
    aliases: tuple[str, ...]
    family: str
    size: str
    parameters: int | None
    confidence: str
    # ``packaged``, or the file of a user's own.
    origin: str

    def record(self) -> dict[str, object]:
        """The fields of the JSON document."""
        return self._asdict() | {"aliases": list(self.aliases)}


def listing(kinds: Sequence[str] = KINDS) -> tuple[list[Listed], list[tuple[str, CommcalcError]]]:
    """Every preset of these kinds, by kind and name, and the files that cannot be read."""
    found: list[Listed] = []
    broken: list[tuple[str, CommcalcError]] = []
    for kind in kinds:
        for name, path in presets.preset_files(kind).items():
            try:
                one = describe(name, kind)
            except CommcalcError as problem:
                broken.append((str(path), problem))
                continue
            found.append(
                Listed(
                    kind,
                    name,
                    tuple(presets.aliases(path)),
                    str(one.values.get("family", "")),
                    one.size,
                    one.parameters,
                    str(one.about.get("confidence", "")),
                    "packaged" if presets.is_packaged(path) else str(path),
                )
            )
    return found, broken


def _model(section: Section) -> Described:
    model, read = read_model(section)
    raise_all(read.problems)
    told = section.entries.get("sources")
    values = _model_values(model)
    sources = {
        key: cited(read.sources[key], key, told) or read.sources[key]
        for key in FIELDS
        if key in read.sources and key in values
    }
    about, _ = read_about(section, "model")  # what is wrong there, the reader has told
    total, active = (None, None) if missing(model) else (parameters(model), active_parameters(model))
    derived = _derived(model, total, active)
    size = "not counted" if model.undescribed else "sizes missing"
    if total is not None and active is not None:
        size = format_parameters(total) + ("" if active == total else f", {format_parameters(active)} active")
    return Described("model", model.name, values, derived, sources, about, size, total)


def _model_values(model: Model) -> dict[str, object]:
    """Every value but the name, lists as lists; those of parts that a model has not are left out."""
    counted: dict[str, object] = {"moe_layers": count_of(model, sparse=True)}
    found = model.described() | {key: getattr(model, key) for key in _ALWAYS} | counted
    return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items() if key != "name"}


def _derived(model: Model, total: int | None, active: int | None) -> dict[str, object]:
    """Parameters (None where a size is not given), their bytes by element type, and the legal TP degrees."""
    rules = limits(model, Parallelism(), Workload())
    return {
        "parameters": total,
        "active_parameters": active,
        "prediction_parameters": None if total is None else prediction_parameters(model),
        "parameter_bytes": {} if total is None else {"fp32": 4 * total, "bf16": 2 * total, "fp8": total},
        "layers": {} if model.undescribed else layers_of(model).counted(),
        **_cache(model),
        "legal_tp": legal_degrees(rules) if rules else [],
        "not_priced_yet": model.unpriced(),
    }


def _cache(model: Model) -> dict[str, object]:
    """Bytes of KV cache that a token takes in all layers together, in bf16."""
    found = cache_per_token(model)
    if found is None:
        return {}
    kept: dict[str, object] = {"kv_cache_bytes_per_token": 2 * found.kept}
    return kept | ({"kv_cache_bytes_per_token_in_window": 2 * found.in_window} if found.in_window else {})


def _hardware(section: Section, *, full: bool) -> Described:
    hardware, places, problems = read_hardware(section)
    raise_all(problems)
    told = section.entries.get("sources")
    sources = {_value_path(key): cited(where, key, told) or where for key, where in places.items()}
    values = hardware_values(hardware, points=full)
    about, _ = read_about(section, "hardware")
    size = "; ".join(
        f"{level.name} {format_rate(level.bandwidth)}" + (f" x {level.devices}" if level.devices else "")
        for level in hardware.network.levels
    )
    return Described("hardware", hardware.name, values, _of_machine(hardware, full=full), sources, about, size)


def _value_path(key: str) -> str:
    """The path among the values of what a file calls ``key``: ``network.nvlink.latency_s`` for ``...latency``."""
    whole = {"chip.hbm.capacity": "chip.hbm_bytes", "chip.hbm.bandwidth": "chip.hbm_bytes_per_s"}
    start, dot, last = key.rpartition(".")
    return whole.get(key, start + dot + {"bandwidth": "bandwidth_bytes_per_s", "latency": "latency_s"}.get(last, last))


def _of_machine(hardware: Hardware, *, full: bool) -> dict[str, object]:
    """How many FLOP a chip makes in the time one byte takes; with ``full`` also the links' constants and times."""
    found = _intensities(hardware)
    if full:
        from commcalc.catalog.timetable import constants, times

        found |= {"constants": constants(hardware.network), "times": times(hardware.network)}
    return found


def _intensities(hardware: Hardware) -> dict[str, object]:
    """FLOP of a chip in the time of one byte: from its memory, and through each level."""
    memory = hardware.hbm_bytes_per_s

    def at(rate: float) -> dict[str, object]:
        ratios = {str(dtype): peak / rate for dtype, peak in hardware.flops.items()}
        return {dtype: ratio if isfinite(ratio) else None for dtype, ratio in ratios.items()}

    return {
        "flops_per_hbm_byte": {} if memory is None else at(memory),
        "flops_per_network_byte": {level.name: at(level.bandwidth) for level in hardware.network.levels},
    }


def _job(section: Section, given: str) -> Described:
    job = resolve_job(Request(job=given))
    degrees = job.parallel
    values = {key: plain(node) for key, node in section.entries.items() if key in SECTIONS}
    devices = degrees.tp * degrees.cp * degrees.pp * degrees.dp
    derived = {"devices": devices, "tokens_per_microbatch": job.work.micro_batch_size * job.work.tokens_per_sequence}
    told = section.entries.get("sources")
    sources = {path: cited(where, path, told) or where for path, where in _places(section, values)}
    size = " on ".join(str(values[key]) for key in ("model", "hardware") if isinstance(values.get(key), str))
    named = section.entries.get("name")  # null takes it away
    name = named.text if isinstance(named, Leaf) else "job"
    return Described("job", name, values, derived, sources, read_about(section, "job")[0], size or "its own fields")


def _places(section: Section, keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Path and place of the values of a job, two levels deep."""
    for key in keys:
        node = section.entries[key]
        under = node.entries if isinstance(node, Section) else {}
        yield from [(f"{key}.{name}", inner.where) for name, inner in under.items()] or [(key, node.where)]


def check_file(path: str, kind: str | None = None) -> tuple[str, str, list[CommcalcError]]:
    """Kind and name of a file, and all that is wrong with it."""
    try:
        kind = kind_of(path) if kind is None else kind
        found = describe(path, kind)
    except CommcalcError as problem:
        return kind or "", "", list(problem.problems)
    if found.kind == "model" and not any(found.values[key] for key in ("hidden_size", "num_attention_heads")):
        return kind, found.name, [SpecError("gives no size of a model", where=path, hint="add hidden_size")]
    return kind, found.name, []
