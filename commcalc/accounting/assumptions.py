"""What the numbers of a ledger rest on, and what its reader should know."""

from __future__ import annotations

from commcalc.accounting.rows import Stage, Warn
from commcalc.algebra.collective import Convention
from commcalc.algebra.schedule import Derivation
from commcalc.transformer.layout import TP, TP_KV, TP_REPLICA, KvPolicy, LayoutName
from commcalc.transformer.limits import limits
from commcalc.transformer.spec import Model, Phase
from commcalc.transformer.work import Parallelism, Recompute, Workload, program_sizes


def warnings_of(model: Model, parallel: Parallelism, work: Workload) -> list[Warn]:
    """What does not stop the answer, but should be known."""
    found = []
    longest = model.max_position_embeddings
    if longest is not None and work.sequence_length > longest:
        found.append(
            Warn(
                "sequence-beyond-model",
                f"sequence length {work.sequence_length} is beyond the {longest} positions of {model.name}",
            )
        )
    for axis, what in (("dp", "the gradient reduction over data-parallel ranks"), ("pp", "sends between stages")):
        degree = getattr(parallel, axis)
        if degree > 1 and (axis == "pp" or work.phase.training):
            tied = " and the gradient sync of the tied embedding" if axis == "pp" and model.tie_word_embeddings else ""
            found.append(Warn("group-not-priced", f"{axis} {degree}: a step still lacks {what}{tied}"))
    if parallel.layout is LayoutName.NONE and parallel.tp > 1:
        found.append(
            Warn(
                "nothing-split",
                f"layout none: all {parallel.tp} tp ranks do the same whole work; communication time is zero",
            )
        )
    kv = model.num_key_value_heads
    if kv is not None and parallel.tp > kv and parallel.layout is not LayoutName.NONE:
        gathers = parallel.kv is KvPolicy.GATHER
        how = "the QKV activation is gathered for them" if gathers else "each holds a copy of its weights and cache"
        message = f"{kv} KV heads on {parallel.tp} ranks: {parallel.tp // kv} ranks share each KV head, {how}"
        found.append(Warn("kv-gathered" if gathers else "kv-replicated", message))
    rest = (model.num_hidden_layers or 0) % parallel.pp
    if rest:
        found.append(
            Warn(
                "uneven-stages",
                f"{model.num_hidden_layers} layers on {parallel.pp} stages: the first {rest} hold one more",
            )
        )
    return found


def assumptions_of(
    model: Model,
    parallel: Parallelism,
    work: Workload,
    convention: Convention,
    busiest: Stage,
    stages: tuple[Stage, ...],
    derivations: dict[str, Derivation],
) -> list[str]:
    """What the numbers rest on, in plain sentences."""
    said = [
        "wire bytes are what one device sends on a ring: 2(n-1)/n of an AllReduce's payload, (n-1)/n of the others'"
        if convention is Convention.EXACT
        else "textbook convention: wire bytes drop the (n-1)/n of the ring",
        "no communication is hidden behind compute",
    ]
    if work.phase.training:
        said.append(
            f"activations and their gradients move in {work.dtype}, gradients of parameters in {work.grad_dtype}"
        )
        if parallel.layout is LayoutName.MEGATRON_SP:
            said.append(
                "gathered inputs of column-parallel layers are saved split and gathered again for the weight gradients"
                if work.regather
                else "gathered inputs of column-parallel layers are kept for the weight gradients (no re-gather)"
            )
        repeats = {
            Recompute.NONE: "nothing is recomputed",
            Recompute.SELECTIVE: "the inside of attention is recomputed, which repeats no collective",
            Recompute.FULL: "every layer is recomputed whole, which repeats its forward collectives",
        }
        said.append(repeats[work.recompute])
    elif work.phase is Phase.DECODE:
        said.append(f"decode: one token for each of {work.micro_batch_size} sequences; logits are gathered whole")
    else:
        said.append("prefill: logits are made for the last position of each sequence and gathered whole")
    if work.dtype.bits < 16:
        said.append(
            f"every activation collective is counted in {work.dtype}; frameworks may keep reductions in 16 bits"
        )
    if model.parallel_block:
        said.append(
            "parallel block: both branches' partial sums are added and reduced once, as vLLM and PaLM do "
            "(Megatron core has no parallel block)"
        )
    if model.vocab_size is None:
        said.append("vocab_size is not given: embedding, final norm, head and loss are left out")
    else:
        rows = program_sizes(model, work, parallel)["V"]
        padded = f"padded from {model.vocab_size} to {rows} rows" if rows != model.vocab_size else "needs no padding"
        said.append(f"vocabulary {padded} (rule {parallel.vocab_padding})")
    known = {rule.name for rule in limits(model, parallel, work)}
    wanted = () if parallel.layout is LayoutName.NONE else ("heads", "kv_heads", "ffn")
    unchecked = [name for name in wanted if name not in known]
    if unchecked and parallel.tp > 1:
        said.append(f"not given, so not checked for divisibility: {', '.join(unchecked)}")
    kv = model.num_key_value_heads
    if kv is not None and parallel.tp > kv and parallel.layout is not LayoutName.NONE:
        shared = f"{TP} {parallel.tp} is seen as {TP_KV} {kv} x {TP_REPLICA} {parallel.tp // kv}"
        said.append(f"{shared}: ranks that differ only in {TP_REPLICA} hold the same KV head")
    if len(stages) > 1:
        rest = (model.num_hidden_layers or 0) % len(stages)
        if rest:
            said.append(f"layers that do not divide over the stages go to the first {rest}, one each")
        said.append(f"the busiest of {len(stages)} stages is stage {busiest.number} with {busiest.layers} layers")
    return said + [note for derivation in derivations.values() for note in derivation.program.notes]
