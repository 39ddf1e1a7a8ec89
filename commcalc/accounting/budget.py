"""Limits on fields of a ledger: what each says of one job, and when it says nothing.

A limit that cannot be broken checks nothing, so it is an error: of a field that is not there or not known, of traffic
that is zero where a degree is above 1, of a warning that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from commcalc.accounting.quantities import SHARE, Quantity, bound_of, quantity_of, tolerance_of
from commcalc.accounting.rows import AXES, GROUPS
from commcalc.algebra.collective import Kind
from commcalc.document import Leaf
from commcalc.errors import CommcalcError, SpecError, UnknownName, nearest, raise_all

# Every code that a warning of a ledger may have.
WARNINGS = (
    "beyond-measured", "does-not-fit", "experts-without-sp", "frequent-group-on-slow-level", "group-not-priced",
    "indexer-not-counted", "indexer-not-priced", "kv-gathered", "kv-replicated", "logits-without-prefill",
    "modules-without-selective", "nothing-split", "nothing-to-recompute", "offload-not-timed", "option-without-effect",
    "overlap-is-a-bound", "plan-of-ones-own", "recompute-without-backward", "sequence-beyond-model", "sp-without-tp",
    "step-not-timed", "tp-crosses-level", "uneven-stages",
)  # fmt: skip
NUMBERS, NAMES = ("min", "max", "measured", "tolerance"), ("only", "none")
_TRAFFIC = ("count", "payload_bytes", "wire_bytes", "time_s", "comm_s")


class Limit(NamedTuple):
    """One limit as it is written: the field, the place of its key, bounds, and names it may or may not have."""

    path: str
    where: str
    bounds: Mapping[str, Leaf]
    names: Mapping[str, tuple[Leaf, ...]]
    # Where the key of each bound stands.
    keys: Mapping[str, str]


class Verdict(NamedTuple):
    """What a limit says of one job. ``value`` is what is held against the bounds: the measured one where there is one.

    ``headroom`` is what is left to the nearest bound, in the field's unit, and ``margin`` the same as a share of that
    bound (of the value where the bound is 0); both negative where it is broken, None where there are only names.
    """

    path: str
    value: Any
    passed: bool
    where: str
    unit: str
    shown: str
    asked: str
    reason: str | None
    low: float | None = None
    high: float | None = None
    headroom: float | None = None
    headroom_shown: str = ""
    margin: float | None = None
    predicted: Any = None
    measured: float | None = None
    tolerance: float | None = None
    only: tuple[str, ...] | None = None
    none: tuple[str, ...] | None = None


def judge(limit: Limit, documents: Sequence[Mapping[str, Any]]) -> Verdict:
    """What the limit says; the field is looked for in the documents in turn. All that is wrong is raised together."""
    value = field(documents, limit)
    document = documents[0]
    if isinstance(value, list) and value and isinstance(value[0], Mapping) and "code" in value[0]:
        value = [warning["code"] for warning in value]
    many = isinstance(value, (list, tuple))
    if isinstance(value, Mapping) or (many and any(isinstance(item, (Mapping, list)) for item in value)):
        below = value if isinstance(value, Mapping) else range(len(value))
        hint = f"name one of its fields: {limit.path}.{next(iter(below), '...')}"
        raise SpecError(f"{limit.path} is no single value", where=_place(limit), hint=hint)
    if many or isinstance(value, (str, bool)):
        return _names(limit, value, document)
    return _numbers(limit, value, document)


def field(documents: Sequence[Mapping[str, Any]], limit: Limit) -> Any:
    """The value of a path; `UnknownName` with the nearest paths there are."""
    keys = limit.path.split(".")
    for document in documents:
        try:
            return _at(document, keys)
        except LookupError:
            continue
    if len(keys) == 2 and keys[1] in GROUPS and keys[0] in ("levels", "crossing_bytes"):
        if not documents[0]["inputs"]["hardware"]:
            raise _not_known(limit)
        return [] if keys[0] == "levels" else 0
    known = dict.fromkeys(path for document in documents for path in paths(document))
    alike = [path for path in known if path.rpartition(".")[0] == limit.path.rpartition(".")[0]]
    alike += [path for path in known if path.rpartition(".")[2] == keys[-1]]
    near = nearest(limit.path, known) or nearest(limit.path, alike)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    else:
        hint = "a path of `commcalc ledger --json` or of a row of `commcalc compare --json`"
    raise UnknownName("field", limit.path, known, where=_place(limit), hint=hint)


def _at(document: Any, keys: Sequence[str]) -> Any:
    found = document
    for key in keys:
        if isinstance(found, Mapping):
            found = found[key]
        elif isinstance(found, (list, tuple)):
            named = [item for item in found if isinstance(item, Mapping) and item.get("name") == key]
            plain = key.isascii() and key.isdigit() and str(int(key[:9])) == key
            found = named[0] if named else found[int(key)] if plain else _missing(key)
        else:
            _missing(key)
    return found


def _missing(key: str) -> Any:
    raise KeyError(key)


def paths(document: Mapping[str, Any]) -> Iterable[str]:
    """Every path that a limit may name."""
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:
        prefix, node = waiting.pop()
        for key, value in node.items():
            path = f"{prefix}{key}"
            if isinstance(value, Mapping) and value and key != "sources":
                waiting.append((f"{path}.", value))
            elif isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping) and key != "warnings":
                waiting.append((f"{path}.", {str(at): item for at, item in enumerate(value)}))
            else:
                yield path


def _place(limit: Limit, key: str = "") -> str:
    """Where a limit, or one of its bounds, stands."""
    return f"{limit.keys.get(key, limit.where)} limits.{limit.path}{f'.{key}' if key else ''}"


def _not_known(limit: Limit) -> SpecError:
    message = f"{limit.path} is not known for this job, so a limit on it checks nothing"
    return SpecError(message, where=_place(limit), hint="times, levels and memory need `hardware:` in the job")


def _numbers(limit: Limit, predicted: Any, document: Mapping[str, Any]) -> Verdict:
    problems: list[CommcalcError] = []
    for key in limit.names:
        hint = "max: or min:"
        problems.append(SpecError(f"{limit.path} is a number, not a name", where=_place(limit, key), hint=hint))
    quantity = quantity_of(limit.path, predicted)
    read: dict[str, float] = {}
    for key, leaf in limit.bounds.items():
        rule = SHARE._replace(parse=tolerance_of, like="10%") if key == "tolerance" else quantity
        try:
            read[key] = bound_of(leaf, rule)
        except CommcalcError as problem:
            problems.append(SpecError(problem.message, where=_place(limit, key), hint=problem.hint))
    raise_all(problems)
    low, high = read.get("min"), read.get("max")
    if low is not None and high is not None and low > high:
        message = f"min {quantity.shown(low)} is above max {quantity.shown(high)}: nothing passes"
        raise SpecError(message, where=_place(limit, "min"))
    measured, tolerance = read.get("measured"), read.get("tolerance")
    if predicted is None and (measured is None or tolerance is not None):
        raise _not_known(limit)
    _refuse_zero(limit, predicted, measured, document)
    if tolerance is not None:
        low = max(predicted * (1 - tolerance), low if low is not None else 0)
        high = min(predicted * (1 + tolerance), high if high is not None else predicted * (1 + tolerance))
    value = predicted if measured is None else measured
    return _verdict(limit, quantity, value, low, high)._replace(
        predicted=predicted, measured=measured, tolerance=tolerance
    )


def _verdict(limit: Limit, quantity: Quantity, value: float, low: float | None, high: float | None) -> Verdict:
    left = [(high - value, high, "above", "max")] if high is not None else []
    left += [(value - low, low, "below", "min")] if low is not None else []
    headroom, bound, side, key = min(left, key=lambda one: one[0])
    passed = headroom >= 0
    whole = bound or value
    asked = [f"min {quantity.shown(low)}"] if low is not None else []
    asked += [f"max {quantity.shown(high)}"] if high is not None else []
    what = "measured " if "measured" in limit.bounds else ""
    reason = f"{what}{quantity.shown(value)} is {side} {quantity.shown(bound)} by {quantity.shown(-headroom)}"
    if "tolerance" in limit.bounds:
        key = "tolerance" if key not in limit.bounds else key
    return Verdict(
        path=limit.path, value=value, passed=passed, where=limit.keys.get(key, limit.where), unit=quantity.unit,
        shown=f"{what}{quantity.shown(value)}", asked=", ".join(asked), reason=None if passed else reason, low=low,
        high=high, headroom=headroom, headroom_shown=quantity.shown(headroom),
        margin=headroom / abs(whole) if whole else 0.0,
    )  # fmt: skip


def _refuse_zero(limit: Limit, predicted: Any, measured: float | None, document: Mapping[str, Any]) -> None:
    """No traffic where a degree is above 1: the limit looks in the wrong place, or nothing was counted."""
    group = watched_group(limit.path)
    split = split_over(group, document) if group else ""
    if not split:
        return
    if predicted is not None and not predicted:
        message = f"{limit.path} is 0 although {split}: a limit on it checks nothing"
        raise SpecError(message, where=_place(limit), hint=_where_traffic_is(limit.path, group, document))
    if measured is not None and not measured:
        message = f"the measured {limit.path} is 0 although {split}: nothing was counted"
        hint = "a count of zero means that the counter saw no collectives, not that there are none"
        raise SpecError(message, where=_place(limit, "measured"), hint=hint)


def watched_group(path: str) -> str:
    """The group whose traffic a field is; empty for a field of something else."""
    keys = path.split(".")
    if "totals" in (keys[0], *keys[2:3]) and len(keys) >= 4 and keys[-1] in _TRAFFIC:
        return keys[-2]
    if keys[0] == "calls" and len(keys) == 4:
        return keys[2]
    if keys[0] in ("collectives", "levels") and len(keys) == 2:
        return keys[1]
    return "all" if keys[0] in ("block", "step") and len(keys) == 2 and keys[1] in _TRAFFIC else ""


def split_over(group: str, document: Mapping[str, Any]) -> str:
    """The degrees above 1 of a group, as words; empty where it has one rank."""
    degrees = document["inputs"]["parallelism"]
    found = [f"{axis} is {degrees[axis]}" for axis in (AXES if group == "all" else (group,)) if degrees.get(axis)]
    return " and ".join(text for text in found if not text.endswith(" is 1"))


def _where_traffic_is(path: str, group: str, document: Mapping[str, Any]) -> str:
    step = document["totals"]["step"].get(group, {"wire_bytes": 0, "count": 0})
    if not step["wire_bytes"]:
        return f"{group} moves nothing in this job at all: is it the job that was meant?"
    kinds = sorted({row["collective"] for row in document["rows"] if group in ("all", row["group"])})
    sends = f"totals.step.{group}.wire_bytes is {step['wire_bytes']:,}, in {step['count']:,} calls of"
    hint = f"{sends} {', '.join(kinds)}"
    return f"{hint}; to rule out others: collectives.{group}: {{only: [...]}}" if path.startswith("calls") else hint


def _names(limit: Limit, value: Any, document: Mapping[str, Any]) -> Verdict:
    problems: list[CommcalcError] = []
    for key in limit.bounds:
        message = f"{limit.path} is no number, so it has no {key}"
        problems.append(SpecError(message, where=_place(limit, key), hint="only: [NAME, ...] or none: [NAME, ...]"))
    known = _known_names(limit.path, value, document)
    for key, leaves in limit.names.items():
        for leaf in leaves:
            if known is not None and leaf.text not in known:
                what = "warning" if limit.path == "warnings" else f"name in {limit.path}"
                problems.append(UnknownName(what, leaf.text, known, where=f"{leaf.where} limits.{limit.path}.{key}"))
    raise_all(problems)
    group = watched_group(limit.path)
    if isinstance(value, (list, tuple)) and not value and group and (split := split_over(group, document)):
        message = f"{limit.path} is empty although {split}: a limit on it checks nothing"
        raise SpecError(message, where=_place(limit), hint=_where_traffic_is(limit.path, group, document))
    there = [_word(item) for item in (value if isinstance(value, (list, tuple)) else [value])]
    there = list(dict.fromkeys(there))
    wanted = {key: tuple(leaf.text for leaf in leaves) for key, leaves in limit.names.items()}
    reasons: list[str] = []
    place = limit.where
    for key, wrong, why in (
        ("only", [name for name in there if name not in wanted.get("only", there)], "is not among"),
        ("none", [name for name in there if name in wanted.get("none", ())], "is ruled out by"),
    ):
        if wrong:
            place = limit.keys.get(key, limit.where) if not reasons else place
            reasons.append(f"{', '.join(wrong)} {why} {key} [{', '.join(wanted[key])}]")
    return Verdict(
        path=limit.path, value=value, passed=not reasons, where=place, unit="name", shown=", ".join(there) or "none",
        asked="; ".join(f"{key} {', '.join(names) or 'nothing'}" for key, names in wanted.items()),
        reason="; ".join(reasons) or None, predicted=value, only=wanted.get("only"), none=wanted.get("none"),
    )  # fmt: skip


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _known_names(path: str, value: object, document: Mapping[str, Any]) -> Sequence[str] | None:
    """All names that a field may have; None where they are not listed."""
    start = path.partition(".")[0]
    if path == "warnings":
        return WARNINGS
    if start == "levels":
        return [level["name"] for level in document["inputs"]["hardware"].get("network", ())]
    if start == "collectives":
        return [kind.value for kind in Kind]
    return ("true", "false") if isinstance(value, bool) else None
