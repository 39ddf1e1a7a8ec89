"""Which small models a layout is run with: every choice of an architecture that changes what it communicates.

Sizes are about the smallest at which everything divides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import lcm
from typing import NamedTuple

from commcalc.accounting.ledger import Ledger, build
from commcalc.algebra.mesh import Mesh
from commcalc.errors import UsageError
from commcalc.simulate.check import Run
from commcalc.simulate.memory import ELEMENT_BYTES, MOST_BYTES, check_devices, held, pieces
from commcalc.simulate.precision import Precision
from commcalc.simulate.trial import run_trial
from commcalc.transformer.layout import KvPolicy, LayoutName
from commcalc.transformer.spec import Model, Norm, NormPlacement, Phase, Positions, QkNorm
from commcalc.transformer.work import Parallelism, Recompute, VocabPadding, Workload
from commcalc.units import format_binary

LAYERS = 2
SEQUENCES = 2
# Of a step: one runs, and what the ledger adds up has all of them.
MICROBATCHES = 3
# A norm over a few elements divides by next to nothing now and then, and magnifies what was rounded before.
HEAD_DIM = 16
HIDDEN = 40
DEGREES = (1, 2, 4, 8)
_LEAST_HEADS = 8
_LEAST_TOKENS = 8
# KV heads for so many query heads: all, a quarter, one.
_SHARED = {"mha": 1, "gqa": 4, "mqa": 0}
_WORKS = {
    "train": Workload(),
    "recomputed": Workload(recompute=Recompute.FULL, regather=False),
    "prefill": Workload(phase=Phase.PREFILL),
    "decode": Workload(phase=Phase.DECODE),
}


class Case(NamedTuple):
    """A model in small on one layout: what `run_case` runs."""

    name: str
    model: Model
    parallel: Parallelism
    work: Workload
    layout: LayoutName


def architectures(everything: bool) -> dict[str, Model]:
    """Models without sizes, by name: the names say how KV heads are shared, and what the blocks are made of."""
    biased = Model(
        gated_mlp=False, norm=Norm.LAYERNORM, attention_bias=True, attention_output_bias=True, mlp_bias=True
    )  # fmt: skip
    found = {
        "gqa gated sequential": Model(),
        "mha plain, biases, learned positions": biased._replace(
            position_embedding=Positions.LEARNED, tie_word_embeddings=True
        ),
        "mqa plain parallel, biases": biased._replace(parallel_block=True),
        "gqa gated, sandwich and head norms": Model(
            norm_placement=NormPlacement.SANDWICH, qk_norm=QkNorm.HEAD_DIM, tie_word_embeddings=True
        ),
    }  # fmt: skip
    if not everything:
        return found
    for heads, gated, parallel in product(_SHARED, (True, False), (False, True)):
        name = f"{heads} {'gated' if gated else 'plain'} {'parallel' if parallel else 'sequential'}"
        found[name] = Model(gated_mlp=gated, parallel_block=parallel)
    return found | {
        "gqa gated parallel, two norms, biases": biased._replace(
            gated_mlp=True, norm=Norm.RMSNORM, parallel_block=True, parallel_norms=2
        ),
        "mha gated, norms after, norms of each head": Model(
            norm_placement=NormPlacement.POST, qk_norm=QkNorm.PER_HEAD, norm=Norm.LAYERNORM, lm_head_bias=True
        ),
        "mha plain, biases, embedding norm": biased._replace(embedding_norm=True),
        "mha plain, positions behind two rows": Model(
            gated_mlp=False, position_embedding=Positions.LEARNED, extra_position_rows=2, norm=Norm.LAYERNORM_NO_BIAS
        ),
    }


def cases(layouts: Sequence[LayoutName], degrees: Sequence[int], everything: bool) -> list[Case]:
    """Every architecture on every layout and degree; ``everything``: every way of working and of sharing KV heads."""
    found = []
    works = _WORKS if everything else {"train": _WORKS["train"]}
    for (name, model), layout, tp in product(architectures(everything).items(), layouts, degrees):
        full = sized(model._replace(name=name), tp, name.split()[0])
        shared = tp > (full.num_key_value_heads or tp) and layout is not LayoutName.NONE
        gathers = shared and full.dims["QKV"] % tp == 0  # the fused projection is cut evenly
        policies = (KvPolicy.REPLICATE, KvPolicy.GATHER) if gathers else (KvPolicy.REPLICATE,)
        for (word, work), kv in product(works.items(), policies):
            if work.phase is Phase.DECODE and layout is LayoutName.MEGATRON_SP and tp > 1:
                continue  # one token cannot be split
            padding = VocabPadding.MEGATRON if model.tie_word_embeddings else VocabPadding.NONE
            parallel = Parallelism(tp=tp, layout=layout, kv=kv, vocab_padding=padding)
            told = f"{name}, {word}" if everything else name
            found.append(Case(told, full, parallel, worked(work, tp), layout))
    return found


def sized(model: Model, tp: int, heads: str = "mha", keep: Iterable[str] = ()) -> Model:
    """``model`` with small sizes; heads that it gives, and what ``keep`` names, stay.

    ``heads`` says how KV heads are shared where the model gives no number.
    """
    count = model.num_attention_heads or lcm(_LEAST_HEADS, tp)
    shared = _SHARED[heads]
    small: dict[str, int] = {
        "num_hidden_layers": LAYERS,
        "hidden_size": HIDDEN,
        "num_attention_heads": count,
        "num_key_value_heads": model.num_key_value_heads or (count // shared if shared else 1),
        "head_dim": HEAD_DIM,
        "intermediate_size": 3 * lcm(_LEAST_HEADS, tp),
        "vocab_size": 7 * lcm(_LEAST_HEADS, tp),
        "max_position_embeddings": tokens_for(tp),
    }
    kept = {key: getattr(model, key) for key in keep if key in small and getattr(model, key) is not None}
    return model._replace(**small | kept, quantization_group_size=1)


def tokens_for(tp: int) -> int:
    """Tokens of a sequence that the TP degree splits."""
    return lcm(_LEAST_TOKENS, tp)


def worked(work: Workload, tp: int, sequence: int | None = None, sequences: int | None = None) -> Workload:
    """``work`` in small: two sequences of as few tokens as the degree splits, or as many as are asked for."""
    many = sequences or SEQUENCES
    length = sequence or tokens_for(tp)
    return work._replace(sequence_length=length, micro_batch_size=many, global_batch_size=MICROBATCHES * many)


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
        checks = run_trial(ledger, precision, seed)
    except MemoryError:
        raise UsageError("the machine has not enough memory for this", where=f"model {case.model.name}") from None
    shared = ledger.layout.mesh.parts and case.parallel.kv
    note = f"KV heads {'gathered' if shared is KvPolicy.GATHER else 'copied'}" if shared else ""
    return Run(case.layout, (("tp", case.parallel.tp),), case.name, tuple(checks), note)


def _elements(ledger: Ledger) -> int:
    """Elements that are held at once, an estimate from above.

    On the devices every tensor of a step in each of its shardings, weights with gradients and steps; on the tape of the
    baseline every tensor some four times, and twelve times the scores of attention, which no program names; half of
    that once more where rounding is looked at; and what the arrays themselves cost.
    """
    sizes = dict(ledger.sizes)
    mesh, layers = ledger.layout.mesh, ledger.model.num_hidden_layers or 1
    alone = Mesh(tuple((name, 1) for name, _ in mesh.axes), mesh.parts)
    scores = sizes["N"] * sizes["T"] * (sizes["T"] // sizes["B"])
    total = layers * scores * (18 + mesh.devices // mesh.size(ledger.layout.weights.get("N", ())))
    for name, derivation in ledger.derivations.items():
        tensors = [state.sharding for state in derivation.states]
        weights = [tensor.sharding for tensor in derivation.program.tensors.values() if tensor.sharding is not None]
        once = held([*tensors, *weights, *weights, *weights], mesh, sizes)
        once += 6 * held([*tensors, *weights], alone, sizes)
        total += (layers if name == "block" else 1) * once
    return total + pieces(mesh.devices, mesh)
