"""The legal degrees of a model as a document and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from commcalc import __version__
from commcalc.report.table import Column, Table
from commcalc.transformer.frameworks import HABITS
from commcalc.transformer.layout import splits
from commcalc.transformer.limits import Limit, largest_degree, legal_degrees, listed, way_out
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Parallelism, padded_vocab

SCHEMA = "commcalc/degrees/1"


class Degree(NamedTuple):
    """One degree: whether it is legal, why not, and what it costs in copies and padding."""

    tp: int
    legal: bool
    reasons: tuple[str, ...]
    kv_replication: int
    padded_vocab_size: int
    # What a dimension that does not divide would have to be padded to, by its key; and the way out of each reason.
    padding: dict[str, int]
    hints: tuple[str, ...]
    # Whether ranks have parts of the vocabulary.
    splits_vocab: bool = True

    def record(self) -> dict[str, object]:
        """The fields of the JSON document."""
        return {
            "tp": self.tp,
            "legal": self.legal,
            "reasons": list(self.reasons),
            "kv_replication": self.kv_replication,
            "padded_vocab_size": self.padded_vocab_size,
            "vocab_rows_per_rank": -(-self.padded_vocab_size // (self.tp if self.splits_vocab else 1)),
            "padding": self.padding,
            "hints": list(self.hints),
        }


def examine_all(asked: Sequence[int], model: Model, rules: Sequence[Limit], parallel: Parallelism) -> list[Degree]:
    """Each degree against the rules."""
    legal = listed(legal_degrees(rules))
    return [_examine(tp, model, rules, parallel, legal) for tp in asked]


def _examine(tp: int, model: Model, rules: Sequence[Limit], parallel: Parallelism, legal: str) -> Degree:
    """One degree against the rules. ``padded_vocab_size`` is 0 where the model gives no vocabulary."""
    broken = [rule for rule in rules if not rule.allows(tp)]
    kv = model.num_key_value_heads
    refused = any(rule.name == "kv_heads" for rule in broken)
    shared = tp // kv if kv is not None and not refused and tp > kv and tp % kv == 0 else 1
    habits = HABITS[parallel.framework] if parallel.framework is not None else None
    if habits is not None and model.family in habits.whole_attention | habits.gathered_attention:
        shared = tp
    split = splits(parallel.layout)[0]
    whole_heads, whole_rows = (parallel.layout.own and dim not in split for dim in "NV")
    shared = 1 if whole_heads else shared
    vocab = next((rule for rule in rules if rule.name == "vocab"), None)
    if vocab is not None:
        rows = vocab.padded(tp)
    else:
        rows = 0 if model.vocab_size is None else padded_vocab(
            model.vocab_size, 1 if whole_rows else tp, parallel.vocab_padding
        )  # fmt: skip
    padding = {rule.key: rule.padded(tp) for rule in broken if rule.name != "sequence" and not rule.refusal}
    hints = tuple(way_out(rule, model, tp, legal) for rule in broken)
    return Degree(
        tp, not broken, tuple(rule.reason(tp) for rule in broken), shared, rows, padding, hints, not whole_rows
    )


def degrees_document(
    model: Model, parallel: Parallelism, rules: Sequence[Limit], degrees: Sequence[Degree]
) -> dict[str, object]:
    """The document of ``commcalc degrees --json``."""
    bound = largest_degree(rules)
    return {
        "schema": SCHEMA,
        "version": __version__,
        "model": model.name,
        "framework": parallel.framework,
        "rules": [
            {"name": rule.name, "key": rule.key, "value": rule.value, "legal": rule.legal(bound)} for rule in rules
        ],
        "legal": legal_degrees(rules, bound),
        "degrees": [degree.record() for degree in degrees],
    }


def degrees_tables(
    model: Model, parallel: Parallelism, rules: Sequence[Limit], degrees: Sequence[Degree]
) -> list[Table]:
    """The rules with what they allow, then each degree asked for."""
    bound = largest_degree(rules)
    whose = f", by {parallel.framework}" if parallel.framework else ""
    by_rule = tuple((rule.name, str(rule.value), listed(rule.legal(bound), 12)) for rule in rules)
    by_rule += (("all", "", listed(legal_degrees(rules, bound), 12)),)
    asked = tuple(
        (
            str(degree.tp),
            "legal" if degree.legal else "no",
            str(degree.kv_replication),
            str(degree.padded_vocab_size) if degree.padded_vocab_size else "",
            "; ".join(degree.reasons),
        )
        for degree in degrees
    )
    return [
        Table(
            f"Rules of {model.name} for tp{whose}", (Column("rule"), Column("value", True), Column("legal")), by_rule
        ),
        Table(
            "Degrees",
            (
                Column("tp", True),
                Column("legal"),
                Column("KV copies", True),
                Column("vocabulary", True),
                Column("why not"),
            ),
            asked,
        ),
    ]
