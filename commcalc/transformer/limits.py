"""Which degrees are legal, and the rule that forbids the others: every dimension a layout splits must divide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from commcalc.errors import CommcalcError, IllegalDegree
from commcalc.transformer.layout import KvPolicy, splits
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Parallelism, Workload, padded_vocab, splittable_vocab

# Degrees beyond this are answered, but no list of legal ones goes further.
LISTED = 4096


class Limit(NamedTuple):
    """One dimension that TP splits: ``value`` things (heads, columns, tokens) over the ranks.

    ``group`` columns share one quantisation scale and stay together. ``kv`` is set for KV heads, of which there may
    be fewer than ranks.
    """

    name: str
    key: str
    noun: str
    value: int
    group: int = 1
    kv: KvPolicy | None = None
    vocab: Parallelism | None = None
    # The rule holds only for more ranks than these.
    above: int = 0

    def allows(self, tp: int) -> bool:
        """Whether this dimension can be split (or shared) by ``tp`` ranks."""
        if tp <= self.above:
            return True
        if self.vocab is not None:
            return padded_vocab(self.value, tp, self.vocab.vocab_padding) % tp == 0
        if self.kv is not None and tp > self.value:
            return self.kv is not KvPolicy.REFUSE and tp % self.value == 0
        return self.value % (tp * self.group) == 0

    def reason(self, tp: int) -> str:
        """Why ``tp`` is not allowed, with the remainder."""
        if self.group > 1:
            groups, rest = divmod(self.value, self.group)
            if rest:
                return f"{self.value} {self.noun} mod {self.group} = {rest}, no whole quantisation groups"
            shard = self.value / tp
            return (
                f"{self.value} {self.noun} are {groups} groups of {self.group}: {groups} mod {tp} = {groups % tp}; "
                f"{shard:g} columns on a rank are {shard / self.group:g} groups"
            )
        if self.kv is not None and tp > self.value and self.kv is not KvPolicy.REFUSE:
            return f"{tp} ranks mod {self.value} {self.noun} = {tp % self.value}; {self._short(tp)}"
        return self._short(tp)

    def _short(self, tp: int) -> str:
        value = self.value if self.vocab is None else padded_vocab(self.value, tp, self.vocab.vocab_padding)
        return f"{value} {self.noun} mod {tp} = {value % tp}"

    def arithmetic(self, tp: int) -> str:
        """The rule by its key, ``num_attention_heads 40 mod 3 = 1``, or its reason where that is not all of it."""
        reason, short = self.reason(tp), self._short(tp)
        return reason if reason != short else f"{self.key} {short.replace(f' {self.noun}', '')}"

    def legal(self, up_to: int) -> list[int]:
        """The degrees from 1 to ``up_to`` that this rule allows."""
        return [tp for tp in range(1, up_to + 1) if self.allows(tp)]

    def padded(self, tp: int) -> int:
        """The smallest value not below this one that ``tp`` ranks could split."""
        if self.vocab is not None:
            return splittable_vocab(self.value, tp, self.vocab.vocab_padding)
        step = tp * self.group
        return -(-self.value // step) * step


def limits(model: Model, parallel: Parallelism, work: Workload) -> list[Limit]:
    """The rules that the model and the layout put on TP; dimensions that the model does not give have none."""
    weights, stream = splits(parallel.layout)
    found = []
    if "N" in weights and model.num_attention_heads is not None:
        found.append(Limit(name="heads", key="num_attention_heads", noun="heads", value=model.num_attention_heads))
    if "K" in weights and model.num_key_value_heads is not None:
        found.append(
            Limit(
                name="kv_heads", key="num_key_value_heads", noun="KV heads",
                value=model.num_key_value_heads, kv=parallel.kv,
            )
        )  # fmt: skip
    width = model.dims.get("QKV")
    if "K" in weights and parallel.kv is KvPolicy.GATHER and width is not None:
        found.append(
            Limit(
                name="qkv", key="num_attention_heads", noun="QKV columns", value=width,
                above=model.num_key_value_heads or 0,
            )
        )  # fmt: skip
    if "F" in weights and model.intermediate_size is not None:
        found.append(
            Limit(
                name="ffn", key="intermediate_size", noun="FFN columns",
                value=model.intermediate_size, group=model.quantization_group_size,
            )
        )  # fmt: skip
    if "V" in weights and model.vocab_size is not None:
        found.append(
            Limit(name="vocab", key="vocab_size", noun="vocabulary rows", value=model.vocab_size, vocab=parallel)
        )
    if "T" in stream:
        found.append(
            Limit(name="sequence", key="sequence_length", noun="tokens of a sequence", value=work.tokens_per_sequence)
        )
    return found


def largest_degree(rules: Sequence[Limit]) -> int:
    """The largest degree worth listing: no rank without a head, or else without a column, and at most `LISTED`."""
    values = {rule.name: rule.value for rule in rules}
    for name in ("heads", "kv_heads", "ffn"):
        if name in values:
            return min(values[name], LISTED)
    return 64


def legal_degrees(rules: Sequence[Limit], up_to: int | None = None) -> list[int]:
    """The degrees that every rule allows, up to ``up_to`` or the largest worth listing."""
    bound = largest_degree(rules) if up_to is None else min(up_to, LISTED)
    return [tp for tp in range(1, bound + 1) if all(rule.allows(tp) for rule in rules)]


def violations(model: Model, parallel: Parallelism, work: Workload) -> list[CommcalcError]:
    """Every rule that the chosen degree breaks, each with its remainder and the legal lists."""
    rules = limits(model, parallel, work)
    tp = parallel.tp
    broken = [rule for rule in rules if not rule.allows(tp)]
    if not broken:
        return []
    bound = largest_degree(rules)
    legal = listed(legal_degrees(rules, bound))
    found: list[CommcalcError] = []
    for rule in broken:
        found.append(
            IllegalDegree(
                f"tp {tp} is not legal for {model.name}: {rule.arithmetic(tp)}",
                where=f"parallelism.tp (--tp {tp})",
                context=f"legal by {rule.name}: {listed(rule.legal(bound))}",
                hint=way_out(rule, model, tp, legal),
            )
        )
    return found


def listed(degrees: Sequence[int], most: int = 24) -> str:
    """Degrees as text; a long list is cut at its end and says so.

    >>> listed([1, 2, 4])
    '1, 2, 4'
    """
    shown = ", ".join(str(degree) for degree in degrees[:most]) or "none"
    return shown + (f", ... {len(degrees) - most} more up to {degrees[-1]}" if len(degrees) > most else "")


def way_out(rule: Limit, model: Model, tp: int, legal: str) -> str:
    """What to do about a rule that ``tp`` breaks; ``legal`` are the degrees that break none."""
    if rule.kv is KvPolicy.REFUSE and tp > rule.value and tp % rule.value == 0:
        rows = "" if model.head_dim is None else f" ({rule.value * model.head_dim / tp:g} rows of K on a rank)"
        return (
            f"each KV head would be cut{rows}: --kv replicate keeps {tp // rule.value} copies of each, "
            f"--kv gather gathers the QKV activation; otherwise legal: {legal}"
        )
    if rule.name == "sequence":
        return f"--no-sp, or a sequence length that {tp} divides; otherwise legal: {legal}"
    padded = rule.padded(tp)
    extra = 100 * (padded / rule.value - 1)
    return f"legal for the whole model: {legal}; or pad {rule.key} to {padded} (+{extra:.2f} %)"
