"""What is run by default and with ``--all``: models in small, on layouts and degrees, as frameworks run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import lcm
from typing import NamedTuple

from commcalc.accounting.ledger import Ledger, build
from commcalc.algebra.mesh import Mesh
from commcalc.errors import UsageError
from commcalc.simulate.architectures import Spoken, architectures, spoken
from commcalc.simulate.check import Run
from commcalc.simulate.combinations import Combination, combinations
from commcalc.simulate.memory import ELEMENT_BYTES, MOST_BYTES, check_devices, held, pieces
from commcalc.simulate.own_layouts import at_degrees, own_layouts
from commcalc.simulate.places import Parts, parts_of
from commcalc.simulate.precision import Precision
from commcalc.simulate.shares import devices_of_stage, whole_sizes
from commcalc.simulate.small import HIDDEN, SEQUENCES, deepened, roomy, sized, tokens_for, worked
from commcalc.simulate.trial import run_trial
from commcalc.transformer.frameworks import HABITS
from commcalc.transformer.layers import Ffn, Heads
from commcalc.transformer.layout import TP, KvPolicy, LayoutName, kv_counts
from commcalc.transformer.spec import Model, Phase
from commcalc.transformer.work import Framework, Logits, Parallelism, Recompute, VocabPadding, Workload
from commcalc.units import format_binary

DEGREES = (1, 2, 4, 8)
# The degree at which frameworks' own ways are run, where it is among those asked for and not all of them are.
_USUAL_DEGREE = 4
_WORKS = {
    "train": Workload(),
    "recomputed": Workload(recompute=Recompute.FULL, regather=False),
    "prefill": Workload(phase=Phase.PREFILL),
    "decode": Workload(phase=Phase.DECODE),
}
# What each framework is run at: all of them, and the first of them by default.
_WORKS_OF: Mapping[Framework, tuple[str, ...]] = {
    Framework.MEGATRON: ("train", "recomputed"),
    Framework.TORCHTITAN: ("train", "recomputed"),
    Framework.HF: ("train", "recomputed", "prefill", "decode"),
    Framework.VLLM: ("prefill", "decode"),
    Framework.SGLANG: ("decode", "prefill"),
}
# The columns of a fused projection, by the KV heads that it ends with.
_COLUMNS = {"K": "QKV", "KS": "QKVS", "KG": "QKVG"}


class Case(NamedTuple):
    """A model in small on one layout: what `run_case` runs."""

    name: str
    model: Model
    parallel: Parallelism
    work: Workload
    layout: LayoutName
    # What the ranks of a context group have of each sequence; None: what is usual.
    parts: Parts | None = None


def cases(layouts: Sequence[LayoutName], degrees: Sequence[int], everything: bool) -> list[Case]:
    """Every architecture on every layout and degree, and those that frameworks run in their own way.

    ``everything``: every way of working and of sharing KV heads, frameworks on every degree.
    """
    found = []
    works = _WORKS if everything else {"train": _WORKS["train"]}
    others = [layout for layout in layouts if not layout.own]
    for (name, model), layout, tp in product(architectures(everything).items(), others, degrees):
        full = fitted(model._replace(name=name), tp, name.split()[0])
        for (word, work), kv in product(works.items(), _policies(full, layout, tp)):
            if work.phase is Phase.DECODE and layout is LayoutName.MEGATRON_SP and tp > 1:
                continue  # one token cannot be split
            padding = VocabPadding.MEGATRON if model.tie_word_embeddings else VocabPadding.NONE
            parallel = Parallelism(tp=tp, layout=layout, kv=kv, vocab_padding=padding)
            told = f"{name}, {word}" if everything else name
            found.append(Case(told, full, parallel, worked(work, tp), layout))
    some = [tp for tp in degrees if tp > 1] if everything else _usual(degrees)
    for (name, one), tp in product(spoken().items(), some):
        if one.layout in layouts:
            found += _as_spoken(name, one, tp, everything)
    found += [one for one in in_parallel(everything) if one.layout in layouts and one.parallel.tp in degrees]
    own = [one for one in own_layouts(everything) if one.parallel.layout in layouts and one.parallel.tp in degrees]
    # Where degrees are chosen, each of them has a run.
    own += at_degrees(layouts, degrees, own) if tuple(degrees) != DEGREES else []
    return found + _combined(own, everything)


def in_parallel(everything: bool) -> list[Case]:
    """Models on several data-parallel ranks and pipeline stages, in every ZeRO stage."""
    return _combined(combinations(everything), everything)


def _combined(chosen: Sequence[Combination], everything: bool) -> list[Case]:
    models = architectures(everything=True)
    found = []
    for one in chosen:
        name, parallel, work = one.model, one.parallel, one.work
        padding = VocabPadding.MEGATRON if models[name].tie_word_embeddings else VocabPadding.NONE
        parallel = parallel._replace(kv=KvPolicy.REPLICATE, vocab_padding=padding)
        full = fitted(models[name]._replace(name=name), parallel.tp, name.split()[0])
        full = deepened(full, parallel.pp * parallel.virtual_stages)
        told = f"{name}, {work.phase}" if everything else name
        work = roomy(in_small(work, parallel, many=one.sequences), full, parallel)
        full = full._replace(max_position_embeddings=max(work.sequence_length, full.max_position_embeddings or 0))
        found.append(Case(told, full, parallel, work, parallel.layout, one.parts))
    return found


def in_small(work: Workload, parallel: Parallelism, sequence: int | None = None, many: int | None = None) -> Workload:
    """The work in small for all data-parallel ranks; of interleaved chunks in rounds of all stages."""
    if parallel.layout is LayoutName.WEIGHT_GATHERED:  # one for each TP rank
        many = many or lcm(parallel.tp, SEQUENCES)
    rounds = parallel.pp if parallel.virtual_stages > 1 else 1
    if parallel.cp > 1:  # one sequence or as many as are asked for, which can be cut in early and late parts
        sequence, many = sequence or tokens_for(2 * parallel.tp * parallel.cp), many or 1
    return worked(work, parallel.tp, sequence, many, rounds, parallel.dp)


def _usual(degrees: Sequence[int]) -> list[int]:
    """The one degree at which frameworks are run: none above 1, no framework."""
    above = [tp for tp in degrees if tp > 1]
    return [_USUAL_DEGREE] if _USUAL_DEGREE in above else above[:1]


def _policies(model: Model, layout: LayoutName, tp: int) -> tuple[KvPolicy, ...]:
    """How KV heads are shared: copied, and gathered where the fused projections can be cut evenly."""
    shared = [dim for dim, heads in kv_counts(model).items() if tp > heads] if layout is not LayoutName.NONE else []
    gathers = shared and all(model.dims[_COLUMNS[dim]] % tp == 0 for dim in shared)
    return (KvPolicy.REPLICATE, KvPolicy.GATHER) if gathers else (KvPolicy.REPLICATE,)


def _as_spoken(name: str, one: Spoken, tp: int, everything: bool) -> list[Case]:
    """One model as its framework runs it, at one kind of work or at all of them."""
    full = fitted(one.model._replace(name=name), tp, one.heads)
    full = full._replace(hidden_size=-(-HIDDEN // tp) * tp)  # some are split by the columns of the stream
    habits = HABITS[one.framework]
    by_columns = full.family in habits.gathered_attention | habits.whole_attention
    if habits.kv is KvPolicy.REFUSE and tp > (full.num_key_value_heads or tp) and not by_columns:
        return []
    parallel = Parallelism(
        tp=tp, layout=one.layout, kv=habits.kv, vocab_padding=VocabPadding.NONE, framework=one.framework
    )
    words = _WORKS_OF[one.framework]
    length = lcm(tokens_for(tp), tp * habits.sequence_shares) if habits.sequence_shares else None
    # Inputs are gathered again by Megatron alone; transformers makes logits of a whole prompt.
    regathers = one.framework is Framework.MEGATRON
    logits = Logits.ALL if one.framework is Framework.HF else Logits.SAMPLED
    return [
        Case(
            f"{name}, {word}", full, parallel,
            worked(_WORKS[word]._replace(regather=regathers, logits=logits), tp, length), one.layout,
        )
        for word in (words if everything else words[:1])
    ]  # fmt: skip


def fitted(model: Model, tp: int, heads: str) -> Model:
    """An architecture with small sizes; its heads of linear attention are so many for each device, of at least 8."""
    each = lcm(DEGREES[-1], tp)
    keys, values = model.linear_num_key_heads * each, model.linear_num_value_heads * each
    return sized(model._replace(linear_num_key_heads=keys, linear_num_value_heads=values), tp, heads)


def plan_all(found: Sequence[Case]) -> list[tuple[Case, Ledger]]:
    """The cases with their ledgers; `UsageError` with every degree that would take too much, before any is run."""
    planned = [(case, build(case.model, case.parallel, case.work)) for case in found]
    needed: dict[int, int] = {}
    for case, ledger in planned:
        check_devices(ledger.layout.mesh)
        needed[case.parallel.tp] = max(_elements(ledger) * ELEMENT_BYTES, needed.get(case.parallel.tp, 0))
    over = [tp for tp, size in needed.items() if size > MOST_BYTES]
    if over:
        fits = ",".join(str(tp) for tp in needed if tp not in over)
        first, *others = [f"tp {tp}" for tp in over]
        sizes = [format_binary(needed[tp]) for tp in over]
        told = "".join(f", {size} at {tp}" for size, tp in zip(sizes[1:], others, strict=True))
        raise UsageError(
            f"this would take about {sizes[0]} of memory at {first}{told}; the limit is {format_binary(MOST_BYTES)}",
            where=f"model {found[0].model.name}",
            hint=f"smaller sizes, or --tp {fits}" if fits else "smaller sizes, or a smaller degree",
        )
    return planned


def run_case(case: Case, precision: Precision, seed: int) -> Run:
    """Build the ledger of a case and put it to the test."""
    ((case, ledger),) = plan_all([case])
    return run_planned(case, ledger, precision, seed)


def run_planned(case: Case, ledger: Ledger, precision: Precision, seed: int) -> Run:
    """Put a ledger to the test."""
    try:
        checks = run_trial(ledger, precision, seed, parts=case.parts)
    except MemoryError:
        raise UsageError("the machine has not enough memory for this", where=f"model {case.model.name}") from None
    own, sizes = case.layout.own, ledger.layout.mesh.sizes
    shared = not own and TP in dict(ledger.layout.mesh.parts) and case.parallel.kv
    gathers = shared is KvPolicy.GATHER
    framework = case.parallel.framework
    notes = [f"KV heads {'gathered' if gathers else 'copied'}"] if shared else []
    notes += [f"{part} {sizes[part]}" for part in dict(ledger.layout.mesh.parts).get(TP, ()) if own]
    notes += [f"as {framework} runs it"] if framework and not case.name.startswith(framework) else []
    bounded = case.work.capacity_factor is not None
    full = bounded and case.work != roomy(case.work._replace(capacity_factor=None), case.model, case.parallel)
    notes += _of_parameters(case.parallel, case.work, full=full)
    if case.parallel.cp > 1:
        many = case.work.micro_batch_size
        notes += [f"{parts_of(ledger, case.parts)} of {'a sequence' if many == 1 else f'{many} sequences'}"]
    others = [(axis, getattr(case.parallel, axis)) for axis in ("cp", "dp", "pp")]
    mesh = (("tp", case.parallel.tp), *((axis, size) for axis, size in others if size > 1))
    if case.parallel.moves_tokens:
        mesh += (("ep", case.parallel.ep), ("etp", case.parallel.expert_tp))
    return Run(case.layout, mesh, case.name, tuple(checks), ", ".join(notes))


def _of_parameters(parallel: Parallelism, work: Workload, *, full: bool) -> list[str]:
    """What tells runs apart whose parameters and layers lie otherwise."""
    found = []
    if parallel.dp > 1 and work.phase.training:
        shards = parallel.dp_shard if parallel.zero == 3 and parallel.dp_shard != parallel.dp else None
        found.append(f"ZeRO {parallel.zero}" + (f" on {shards} ranks a copy" if shards else ""))
    if parallel.cp > 1:
        found.append(f"context by {parallel.cp_comm}")
    if parallel.moves_tokens:
        found += _of_rows(parallel, work, full=full)
    if parallel.virtual_stages > 1:
        found.append(f"{parallel.virtual_stages} chunks a stage")
    if work.bucket_bytes:
        found.append(f"buckets of {work.bucket_bytes:,} B")
    return found


def _of_rows(parallel: Parallelism, work: Workload, *, full: bool) -> list[str]:
    """What tells runs apart whose tokens go to experts otherwise; ``full``: some of which find no row."""
    nodes, limit = parallel.ep_nodes, parallel.node_limit
    first = f" over {nodes} nodes" + (f", of which {limit}" if limit else "") if nodes > 1 else ""
    found = [f"tokens to experts by {parallel.sends_tokens}{first}"]
    if full:
        found.append(f"a capacity of {float(work.capacity_factor or 0):g}")
    there, back = work.dispatch_dtype, work.combine_dtype
    if there or back:
        scales = f" in blocks of {work.scale_block}" if work.scale_block else ""
        found.append(f"in {there or work.dtype}{scales}, back in {back or work.dtype}")
    return found


def _elements(ledger: Ledger) -> int:
    """Elements that are held at once, an estimate from above.

    On the devices every tensor of a step in each of its shardings, weights with gradients and steps; on the tape of the
    baseline every tensor some four times, and what no program names (`_unnamed`); half of that once more where rounding
    is looked at; and what the arrays themselves cost.
    """
    sizes = whole_sizes(ledger)
    mesh = devices_of_stage(ledger.layout.mesh)
    alone = Mesh(tuple((name, 1) for name, _ in mesh.axes), mesh.parts)
    layers = ledger.programs.layers.counted()
    total = 0
    for name, derivation in ledger.derivations.items():
        tensors = [state.sharding for state in derivation.states]
        weights = [tensor.sharding for tensor in derivation.program.tensors.values() if tensor.sharding is not None]
        once = held([*tensors, *weights, *weights, *weights], mesh, sizes)
        once += 6 * held([*tensors, *weights], alone, sizes)
        total += layers.get(name, 1) * (once + (_unnamed(ledger, name) if name in layers else 0))
    return total + pieces(mesh.devices, mesh)


def _unnamed(ledger: Ledger, name: str) -> int:
    """What a layer of a kind holds besides its tensors.

    Twelve times the scores of attention, for linear attention by key heads once more for each power of the triangular
    matrix, and its state after every token; and the matrices of the experts that each token goes to, on the tape.
    """
    sizes, mesh = whole_sizes(ledger), devices_of_stage(ledger.layout.mesh)
    kind = next(kind for kind, word in ledger.programs.layers.names.items() if word == name)
    total, each = 0, sizes["T"] // sizes["B"]
    heads = "NV" if kind.heads is Heads.LINEAR else "N"
    copies = mesh.devices // mesh.size(ledger.layout.weights.get(heads, ()))
    scores = sizes[heads] * sizes["T"] * each
    total += scores * (18 + copies)
    if kind.heads is Heads.LINEAR:
        total += 3 * scores * each.bit_length() + copies * sizes["T"] * sizes["NV"] * sizes["HL"] * sizes["HK"]
    if kind.ffn is Ffn.SPARSE:
        total += 12 * sizes["T"] * sizes["C"] * sizes["D"] * sizes["M"]
    return total
