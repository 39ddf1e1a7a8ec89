"""Which degrees are legal, and the rule that forbids the others: every dimension a layout splits must divide."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from commcalc.errors import CommcalcError, IllegalDegree
from commcalc.transformer.frameworks import HABITS, Habits
from commcalc.transformer.layers import Ffn, Heads, layers_of
from commcalc.transformer.layout import KvPolicy, kv_counts, splits
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Parallelism, Workload, padded_vocab, splittable_vocab

# Degrees beyond this are answered, but no list of legal ones goes further.
LISTED = 4096


class Limit(NamedTuple):
    """One dimension that TP splits: ``value`` things (heads, columns, tokens) over the ranks.

    ``group`` columns share one quantisation scale and stay together. ``kv`` is set for KV heads, of which there may
    be fewer than ranks. ``refusal`` forbids every degree above 1, and says why.
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
    # KV heads of several kinds of layers: those below the degree must divide one another to be shared.
    nests: tuple[int, ...] = ()
    refusal: str = ""
    # The choice without which this dimension is not split, and whether KV heads may be gathered.
    way: str = "--no-sp"
    gathers: bool = True

    def allows(self, tp: int) -> bool:
        """Whether this dimension can be split (or shared) by ``tp`` ranks."""
        if tp <= self.above:
            return True
        if self.refusal:
            return tp == 1
        if self.nests:
            shared = [count for count in self.nests if count < tp]
            return all(more % fewer == 0 for fewer, more in pairwise(shared))
        if self.vocab is not None:
            return padded_vocab(self.value, tp, self.vocab.vocab_padding) % tp == 0
        if self.kv is not None and tp > self.value:
            return self.kv is not KvPolicy.REFUSE and tp % self.value == 0
        return self.value % (tp * self.group) == 0

    def reason(self, tp: int) -> str:
        """Why ``tp`` is not allowed, with the remainder."""
        if self.refusal:
            return self.refusal
        if self.nests:
            counts = " and ".join(str(count) for count in self.nests if count < tp)
            return f"{counts} KV heads in layers of different kinds cannot all be shared by {tp} ranks"
        if self.name == "sequence" and self.group > 1:
            each = tp * self.group
            return f"{self.value} {self.noun} mod {each} ({tp} ranks x {self.group}) = {self.value % each}"
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
    """The rules that model, layout and framework put on TP; dimensions that no layer uses, or not given, have none."""
    weights, stream = splits(parallel.layout)
    kinds = layers_of(model).names
    found = []
    if "D" in weights and model.hidden_size is not None:
        found.append(Limit(name="hidden", key="hidden_size", noun="columns of the stream", value=model.hidden_size))
    if "N" in weights:
        found += _of_attention(model, parallel, {kind.heads for kind in kinds})
    if "F" in weights:
        found += _of_columns(model, {kind.ffn for kind in kinds}, whole_experts=parallel.moves_tokens)
    if "V" in weights and model.vocab_size is not None:
        found.append(
            Limit(name="vocab", key="vocab_size", noun="vocabulary rows", value=model.vocab_size, vocab=parallel)
        )
    habits = HABITS[parallel.framework] if parallel.framework is not None else None
    shares = habits.sequence_shares if habits is not None and weights and work.phase.training else 0
    if "B" in stream:
        found.append(
            Limit(
                name="batch", key="micro_batch_size", noun="sequences of a microbatch", value=work.micro_batch_size,
                way="--layout megatron",
            )
        )  # fmt: skip
    elif "T" in stream or shares:
        found.append(
            Limit(
                name="sequence", key="sequence_length", noun="tokens of a sequence",
                value=work.tokens_per_sequence, group=(shares or 1) * parallel.cp,
                way="--layout megatron" if parallel.layout.own else "--no-sp",
            )
        )  # fmt: skip
    sparse = any(kind.ffn is Ffn.SPARSE for kind in kinds)
    needs_sp = habits is not None and habits.experts_need_sp and sparse and work.phase.training
    if needs_sp and weights and "T" not in stream:
        refusal = f"{parallel.framework} trains experts on more than one TP rank only with sequence parallelism"
        found.append(Limit(name="experts", key="num_experts", noun="experts", value=model.num_experts, refusal=refusal))
    return found if habits is None else _relaxed(found, habits, model)


def _of_attention(model: Model, parallel: Parallelism, kinds: set[Heads]) -> list[Limit]:
    """Heads, of every kind of attention that a layer has. Latent attention has one KV, held by every rank."""
    found = []
    heads, counts = model.num_attention_heads, kv_counts(model)
    if heads is not None and kinds != {Heads.LINEAR}:
        found.append(Limit(name="heads", key="num_attention_heads", noun="heads", value=heads))
    gathers = parallel.kv is KvPolicy.GATHER
    for dim, prefix, columns in (("K", "", "QKV"), ("KG", "global_", "QKVG"), ("KS", "sliding_", "QKVS")):
        count = counts.get(dim)
        if count is None:
            continue
        of = f" of {prefix.removesuffix('_')} layers" if prefix else ""
        key = f"{prefix}num_key_value_heads"
        found.append(
            Limit(
                name=f"{prefix}kv_heads",
                key=key,
                noun=f"KV heads{of}",
                value=count,
                kv=parallel.kv,
                gathers=not parallel.layout.own,
            )
        )
        width = model.dims.get(columns)
        if gathers and width is not None:
            noun = f"QKV columns{of}"
            found.append(Limit(name=f"{prefix}qkv", key=f"{prefix}qkv_columns", noun=noun, value=width, above=count))
    if len(set(counts.values())) > 1 and parallel.kv is not KvPolicy.REFUSE:
        found.append(
            Limit(
                name="kv_sharing", key="num_key_value_heads", noun="KV heads", value=max(counts.values()),
                nests=tuple(sorted(set(counts.values()))),
            )
        )  # fmt: skip
    grouped = model.quantization_group_size > 1 and not model.kv_lora_rank
    if heads is not None and model.head_dim is not None and grouped:
        found.append(
            Limit(
                name="attention", key="num_attention_heads * head_dim", noun="attention columns",
                value=heads * model.head_dim, group=model.quantization_group_size,
            )
        )  # fmt: skip
    for side in ("key", "value") if Heads.LINEAR in kinds else ():
        count = getattr(model, f"linear_num_{side}_heads")
        if count:
            key = f"linear_num_{side}_heads"
            found.append(Limit(name=f"linear_{side}_heads", key=key, noun=f"linear {side} heads", value=count))
    return found


def _of_columns(model: Model, kinds: set[Ffn], *, whole_experts: bool) -> list[Limit]:
    """Columns of the dense MLP, of each expert, and of the expert that all tokens share."""
    sparse = Ffn.SPARSE in kinds
    dense = Ffn.DENSE in kinds or model.dense_mlp_beside_moe
    columns = (
        ("ffn", "intermediate_size", "FFN columns", dense and model.intermediate_size),
        ("expert_ffn", "moe_intermediate_size", "columns of an expert",
         sparse and not whole_experts and model.moe_intermediate_size),
        ("shared_ffn", "shared_expert_intermediate_size", "columns of the shared expert",
         sparse and model.shared_expert_intermediate_size),
    )  # fmt: skip
    return [
        Limit(name=name, key=key, noun=noun, value=value, group=model.quantization_group_size)
        for name, key, noun, value in columns
        if value
    ]


def _relaxed(found: Sequence[Limit], habits: Habits, model: Model) -> list[Limit]:
    """The rules that a framework keeps: what it splits unevenly or leaves whole has none."""
    if model.family in habits.without_plan:
        refusal = f"transformers has no tp_plan for family {model.family}"
        return [Limit(name="plan", key="family", noun="", value=1, refusal=refusal)]
    free = set(habits.uneven)
    if model.family in habits.whole_attention | habits.gathered_attention:
        free |= {"heads", "kv_heads", "attention"}
    if model.family in habits.whole_experts:
        free |= {"expert_ffn", "shared_ffn"}
    kept = [rule for rule in found if rule.name not in free]
    if habits.kv is KvPolicy.REFUSE:  # it knows no way with fewer KV heads than ranks; unless told, offer none
        kept = [rule._replace(kv=None) if rule.kv is KvPolicy.REFUSE else rule for rule in kept]
    return kept


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
        width = None if rule.name != "kv_heads" else model.head_dim
        rows = "" if width is None else f" ({rule.value * width / tp:g} rows of K on a rank)"
        return (
            f"each KV head would be cut{rows}: --kv replicate keeps {tp // rule.value} copies of each"
            f"{', --kv gather gathers the QKV activation' if rule.gathers else ''}; otherwise legal: {legal}"
        )
    if rule.name == "experts":
        return "--sp"
    if rule.nests:
        return f"otherwise legal: {legal}"
    if rule.refusal:
        return "another --framework may split it"
    if rule.name == "batch":
        return f"{rule.way}, or a --micro-batch that {tp} divides; otherwise legal: {legal}"
    if rule.name == "sequence" and rule.way == "--no-sp" and rule.group > 1:
        return f"a sequence length that {tp * rule.group} divides; otherwise legal: {legal}"
    if rule.name == "sequence":
        return f"{rule.way}, or a sequence length that {tp} divides; otherwise legal: {legal}"
    padded = rule.padded(tp)
    extra = 100 * (padded / rule.value - 1)
    return f"legal for the whole model: {legal}; or pad {rule.key} to {padded} (+{extra:.2f} %)"
