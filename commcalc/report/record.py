"""The record of an experiment to be filled in: predictions, and empty fields for what is measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from commcalc import __version__
from commcalc.accounting.pricing import Entry
from commcalc.accounting.quantities import NUMBER, bound_of, quantity_of
from commcalc.accounting.ranks import groups_of
from commcalc.accounting.tensors import tensor_lines
from commcalc.catalog.answer import Answer
from commcalc.catalog.record import PAIRS, SCHEMA
from commcalc.document import Leaf
from commcalc.errors import UnitError, UnknownName

# Groups listed; beyond them their number is told.
MOST_GROUPS = 64
_HEAD = """\
# Fill in what is empty behind `measured:` (and `baseline:`), then: commcalc record compare FILE
# A bare number is in the unit its key ends in (_s seconds, _bytes bytes); 603 us or 5.2 ms are read as well.
# mean_s, p95_s, exposed_tail_s: of one call; the tail is what of a call the critical path waits for.
# step: of one device, of the whole step. count: calls in one layer (`per: block`), microbatch or step.
"""


def record_document(answer: Answer) -> dict[str, Any]:
    """The record with its predictions."""
    priced, job, outlook = answer.priced, answer.job, answer.outlook
    ledger = priced.ledger
    model, parallel, work = ledger.model, ledger.parallel, ledger.work
    step = outlook.step
    compute = step.microbatches * step.slowest.compute_s if step else None
    return {
        "schema": SCHEMA,
        "version": __version__,
        "name": f"{model.name} tp {parallel.tp}",
        "job": {
            "model": model.name,
            "hardware": job.hardware.name if job.hardware else None,
            "phase": work.phase,
            "layout": parallel.layout,
            "parallelism": {axis: getattr(parallel, axis) for axis in parallel.order},
            "zero": parallel.zero,
        },
        "tensor_parallel": _tensor_parallel(answer),
        "model": {
            key: getattr(model, key)
            for key in ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
                        "num_key_value_heads", "head_dim", "vocab_size")
        },
        "microbatch": {
            "sequences": work.micro_batch_size,
            "sequence_length": work.sequence_length,
            "tokens": work.micro_batch_size * work.tokens_per_sequence,
            "microbatches_in_step": ledger.microbatches,
            "dtype": work.dtype,
        },
        "linear_layers": [
            {"part": line.part, "weight": line.tensor, "split": line.split or line.state,
             "global_shape": list(line.global_shape), "local_shape": list(line.local_shape)}
            for line in tensor_lines(ledger)
            if line.direction == "weight" and len(line.global_shape) > 1
        ],
        "collectives": _collectives(answer),
        "step": {
            "time_s": _pair(step.time_s if step else None),
            "compute_s": _pair(compute),
            "comm_s": _pair(priced.totals["step"]["all"].time_s),
            "exposed_s": _pair(step.exposed_s if step else None),
            "bubble_s": _pair(step.bubble_s if step else None),
        },
        "correctness": {
            "loss": {"baseline": None, "measured": None},
            "gradient_norm": {"baseline": None, "measured": None},
            "parameter_update_error": {"measured": None},
        },
    }  # fmt: skip


def _pair(predicted: float | None) -> dict[str, Any]:
    return {"predicted": predicted, "measured": None}


def _tensor_parallel(answer: Answer) -> dict[str, Any]:
    ledger = answer.priced.ledger
    group = groups_of(ledger).get("tp")
    ranks = group.ranks(ledger.layout.mesh) if group else []
    found: dict[str, Any] = {
        "degree": ledger.parallel.tp,
        "groups": [_spelled(one) for one in ranks[:MOST_GROUPS]],
        "groups_in_all": len(ranks),
    }
    return found


def _spelled(ranks: Sequence[int]) -> str:
    """Ranks as people write them.

    >>> _spelled((0, 1, 2, 3)), _spelled((0, 4, 8))
    ('0-3', '0,4,8')
    """
    if len(ranks) > 1 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}-{ranks[-1]}"
    return ",".join(map(str, ranks))


def _collectives(answer: Answer) -> list[dict[str, Any]]:
    ledger = answer.priced.ledger
    found = []
    for name, entry in _named(answer.priced.entries):
        row = entry.row
        found.append(
            {
                "name": name, "part": row.part, "pass": row.direction, "op": row.op, "collective": row.kind,
                "group": row.group, "group_size": row.group_size, "dtype": row.dtype,
                "payload_bytes": row.payload_bytes, "wire_bytes": row.wire_bytes, "per": row.per,
                "count": _pair(row.calls), "count_in_step": ledger.times_in_step(row),
                "mean_s": _pair(entry.priced.cost.time_s if entry.priced else None),
                "p95_s": {"measured": None}, "exposed_tail_s": {"measured": None},
            }
        )  # fmt: skip
    return found


def _named(entries: Iterable[Entry]) -> Iterable[tuple[str, Entry]]:
    """Each collective with a name of its own."""
    seen: dict[str, int] = {}
    for entry in entries:
        row = entry.row
        name = f"{row.part} {row.direction} {row.op} {row.kind} {row.group}"
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name} {seen[name]}"), entry


def fill_in(document: Mapping[str, Any], path: str, value: Leaf) -> None:
    """Put a measured value into a record: ``step.time_s``, or ``collectives.WORDS.mean_s`` of all that have the words.

    `UnknownName` for a path that nothing measured has, `UnitError` for a value of another unit.
    """
    start, _, rest = path.partition(".")
    words, _, key = rest.rpartition(".")
    found = document.get(start)
    if start == "collectives":
        keys: Sequence[str] = PAIRS if words else ()
        places = [one for one in document[start] if words in one["name"]]
        known = [f"collectives.{one['name']}.{field}" for one in document[start] for field in PAIRS]
        known += [f"collectives.{one['part']}.{field}" for one in document[start] for field in PAIRS]
    else:
        key = rest
        keys, places = list(found) if start in ("step", "correctness") and found else [], [found]
        known = [f"{name}.{field}" for name in ("step", "correctness") for field in document[name]]
    if key not in keys or not places:
        raise UnknownName("measured field", path, known, where=value.where)
    try:
        bound_of(value, NUMBER if start == "correctness" else quantity_of(key, 0))
    except UnitError as problem:
        raise UnitError(problem.message, where=value.where, hint=problem.hint) from None
    for one in places:
        one[key]["measured"] = value.value


def render_record(document: Mapping[str, Any]) -> str:
    """The record as YAML, with what its fields mean."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Nothing is written where nothing is known; lists of plain values stand on one line."""

    def flow(dumper: Dumper, data: list[Any]) -> Any:
        plain = not any(isinstance(item, (dict, list)) for item in data)
        return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=plain)

    Dumper.add_representer(type(None), lambda dumper, _: dumper.represent_scalar("tag:yaml.org,2002:null", ""))
    Dumper.add_representer(list, flow)
    Dumper.add_multi_representer(str, lambda dumper, data: dumper.represent_str(str(data)))
    text = yaml.dump(spec_plain(document), Dumper=Dumper, sort_keys=False, width=110, allow_unicode=True)
    return _HEAD + text


def spec_plain(value: Any) -> Any:
    """Mappings and lists alone, as YAML and JSON have them."""
    if isinstance(value, Mapping):
        return {key: spec_plain(one) for key, one in value.items()}
    return [spec_plain(one) for one in value] if isinstance(value, (list, tuple)) else value
