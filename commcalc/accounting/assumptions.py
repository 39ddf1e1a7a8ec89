"""What the numbers of a ledger rest on, and what its reader should know."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from commcalc.accounting.architecture import architecture_notes
from commcalc.accounting.programs import Programs
from commcalc.accounting.rows import Stage, Warn
from commcalc.algebra.collective import Convention
from commcalc.transformer.dialects import Dialect
from commcalc.transformer.layers import Ffn
from commcalc.transformer.layout import TP, TP_REPLICA, KvPolicy, LayoutName, kv_counts
from commcalc.transformer.spec import Model, Phase
from commcalc.transformer.work import (
    CpComm,
    Dispatch,
    Framework,
    Logits,
    Module,
    Parallelism,
    Recompute,
    Reshard,
    Schedule,
    Workload,
    program_sizes,
)

# Modules that recomputation may name, by what a model must have for them.
_PARTS: Mapping[Module, Callable[[Model], object]] = {
    Module.MOE: lambda model: model.num_experts,
    Module.MOE_ACT: lambda model: model.num_experts,
    Module.SHARED_EXPERTS: lambda model: model.shared_expert_intermediate_size,
    Module.MLA_UP_PROJ: lambda model: model.kv_lora_rank,
    Module.MLP: lambda model: not model.num_experts or model.first_k_dense_replace or model.intermediate_size,
}


def warnings_of(model: Model, parallel: Parallelism, work: Workload, programs: Programs) -> list[Warn]:
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
    if parallel.layout is LayoutName.NONE and parallel.tp > 1:
        found.append(
            Warn(
                "nothing-split",
                f"layout none: all {parallel.tp} tp ranks do the same whole work; communication time is zero",
            )
        )
    elif parallel.tp > 1:
        found += _of_architecture(model, parallel, work, programs)
    found += _without_effect(parallel, work)
    rest = (model.num_hidden_layers or 0) % parallel.pp
    if rest:
        found.append(
            Warn(
                "uneven-stages",
                f"{model.num_hidden_layers} layers on {parallel.pp} stages: the first {rest} hold one more",
            )
        )
    return found


def _without_effect(parallel: Parallelism, work: Workload) -> list[Warn]:
    """Options of expert parallelism that change nothing here."""
    sends = parallel.moves_tokens and parallel.sends_tokens is not Dispatch.ALL_GATHER
    narrow = work.dispatch_dtype is not None and work.dispatch_dtype.bits <= 8
    idle = {
        "--dispatch": parallel.dispatch is not None and not parallel.moves_tokens,
        "--capacity-factor": work.capacity_factor is not None and not sends,
        "--imbalance": work.imbalance != 1 and not sends,
        "--dispatch-dtype": work.dispatch_dtype is not None and not parallel.moves_tokens,
        "--combine-dtype": work.combine_dtype is not None and not parallel.moves_tokens,
        "--scale-block": work.scale_block is not None and not (parallel.moves_tokens and narrow),
    }
    training, zero = work.phase.training, parallel.zero
    copied = parallel.dp * parallel.cp * parallel.mirrors > 1 and training
    others = {
        "--zero": ("no gradients are summed outside of training", zero > 0 and not training),
        "--bucket": (
            "it is for gradients of ZeRO 0 to 2",
            bool(work.bucket_bytes) and (not copied or parallel.zero == 3),
        ),
        "--reshard": (
            "it is for ZeRO 3 in training",
            work.reshard is not Reshard.BLOCKS and not (copied and parallel.zero == 3),
        ),
        "--no-defer-all-reduce": (
            "there are no copies of shards",
            not work.defer_all_reduce and parallel.dp_shard is None,
        ),
        "--schedule": (
            "there is one pipeline stage" if parallel.pp == 1 else "there is no backward pass to fill in with",
            (parallel.schedule is not Schedule.ONE_F_ONE_B and parallel.pp == 1)
            or (parallel.schedule is Schedule.ZB1P and not training),
        ),
        "--cp-comm": ("no sequence is split", parallel.cp_comm is not CpComm.RING and parallel.cp == 1),
    }
    found = [Warn("option-without-effect", f"{name}: {why}") for name, (why, there) in others.items() if there]
    named = [option for option, there in idle.items() if there]
    if not named:
        return found
    why = "no tokens are sent to experts" if not parallel.moves_tokens else "nothing that is sent depends on it"
    return [*found, Warn("option-without-effect", f"{', '.join(named)}: {why}")]


def _of_architecture(model: Model, parallel: Parallelism, work: Workload, programs: Programs) -> list[Warn]:
    """What the split of this model costs beside traffic, and what the framework does not do by itself."""
    found = []
    of = {"K": "", "KS": " of sliding layers", "KG": " of global layers"}
    if {"N", "M"} <= set(programs.dialect.whole):
        message = (
            f"the tp_plan of {model.family} splits nothing of a layer: all {parallel.tp} tp ranks do the same work"
        )
        found.append(Warn("nothing-split", message))
    shared = kv_counts(model) if programs.layout.mesh.parts and not parallel.layout.own else {}
    for dim, kv in shared.items():
        if parallel.tp > kv:
            gathers = parallel.kv is KvPolicy.GATHER
            how = "the QKV activation is gathered for them" if gathers else "each holds a copy of its weights and cache"
            message = f"{kv} KV heads{of[dim]} on {parallel.tp} ranks: {parallel.tp // kv} ranks share each KV head"
            found.append(Warn("kv-gathered" if gathers else "kv-replicated", f"{message}, {how}"))
    sp = parallel.layout is LayoutName.MEGATRON_SP
    sparse = any(kind.ffn is Ffn.SPARSE for kind in programs.layers.names)
    if parallel.framework is None and sparse and work.phase.training and not sp and not parallel.layout.own:
        message = "Megatron-LM trains experts on more than one TP rank only with sequence parallelism: --sp"
        found.append(Warn("experts-without-sp", message))
    if parallel.framework is Framework.HF and sp:
        message = (
            "transformers has no plan that splits the sequence: counted as if each linear layer gathered for itself"
        )
        found.append(Warn("plan-of-ones-own", message))
    absent = [str(module) for module, there in _PARTS.items() if module in work.recompute_modules and not there(model)]
    if work.recompute is Recompute.SELECTIVE and absent:
        message = f"--recompute-modules names what {model.name} has not: {', '.join(absent)}"
        found.append(Warn("nothing-to-recompute", message))
    if model.index_layers and work.phase.training:
        message = "every rank runs the indexer of sparse attention whole; what its training moves is not known"
        found.append(Warn("indexer-not-priced", message))
    return found


def assumptions_of(
    model: Model,
    parallel: Parallelism,
    work: Workload,
    convention: Convention,
    busiest: Stage,
    stages: tuple[Stage, ...],
    programs: Programs,
) -> list[str]:
    """What the numbers rest on, in plain sentences."""
    said = [
        _whose(parallel, programs.dialect),
        "wire bytes are what one device sends on a ring: 2(n-1)/n of an AllReduce's payload, (n-1)/n of the others'"
        if convention is Convention.EXACT
        else "textbook convention: wire bytes drop the (n-1)/n of the ring",
    ]
    if work.phase.training:
        said.append(
            f"activations and their gradients move in {work.dtype}, gradients of parameters in "
            + (f"{work.grad_dtype}" if not programs.dialect.syncs_head_norms else f"theirs, {work.dtype}")
        )
        if parallel.layout is LayoutName.MEGATRON_SP:
            said.append(
                "gathered inputs of column-parallel layers are saved split and gathered again for the weight gradients"
                if work.regather
                else "gathered inputs of column-parallel layers are kept for the weight gradients (no re-gather)"
            )
        said.append(_recomputed(work, programs.dialect))
    elif work.phase is Phase.DECODE:
        said.append(f"decode: one token for each of {work.micro_batch_size} sequences; logits are gathered whole")
    else:
        which = "the last position of each sequence" if work.logits is Logits.SAMPLED else "every position"
        said.append(f"prefill: logits are made for {which} and gathered whole")
    if work.dtype.bits < 16:
        said.append(
            f"every activation collective is counted in {work.dtype}; frameworks may keep reductions in 16 bits"
        )
    said += architecture_notes(model, parallel, work, programs)
    if model.vocab_size is None:
        said.append("vocab_size is not given: embedding, final norm, head and loss are left out")
    else:
        rows = program_sizes(model, work, parallel)["V"]
        padded = f"padded from {model.vocab_size} to {rows} rows" if rows != model.vocab_size else "needs no padding"
        said.append(f"vocabulary {padded} (rule {parallel.vocab_padding})")
    keys = {"heads": model.num_attention_heads, "kv_heads": model.num_key_value_heads, "ffn": model.intermediate_size}
    dense = any(kind.ffn is Ffn.DENSE for kind in programs.layers.names)
    unchecked = [name for name, size in keys.items() if size is None and (name != "ffn" or dense)]
    unchecked = [] if parallel.layout is LayoutName.NONE else unchecked
    if unchecked and parallel.tp > 1:
        said.append(f"not given, so not checked for divisibility: {', '.join(unchecked)}")
    parts = dict(programs.layout.mesh.parts).get(TP, ())
    if parts and not parallel.layout.own:
        sizes = programs.layout.mesh.sizes
        shared = f"{TP} {parallel.tp} is seen as {' x '.join(f'{part} {sizes[part]}' for part in parts)}"
        alike = f"ranks that differ only in {TP_REPLICA} hold the same KV head"
        said.append(
            f"{shared}: {alike if len(parts) == 2 else 'KV heads are split over as many of these as there are'}"
        )
    if len(stages) > 1:
        rest = (model.num_hidden_layers or 0) % len(stages)
        if rest:
            said.append(f"layers that do not divide over the stages go to the first {rest}, one each")
        told = f"the busiest of {len(stages)} stages is stage {busiest.number} with {busiest.layers} layers"
        if busiest.ends > 1:
            mirror = stages[len(stages) - 1 - busiest.number]
            told = (
                f"the busiest of {len(stages)} places in the pipeline is {busiest.number}, with the {busiest.layers} "
                f"layers of its own stage and the {mirror.layers} of stage {mirror.number}"
            )
        said.append(told)
    said += _of_data(model, parallel, work, programs)
    if parallel.pp > 1:
        said.append(_of_schedule(parallel, work))
    if work.predict_layers:
        count = work.predict_layers
        said.append(f"prediction layers on the last stage: {count}, each with embedding, head and loss again")
    elif model.num_nextn_predict_layers and work.phase.training:
        count = model.num_nextn_predict_layers
        said.append(f"prediction layers ({count}) are not counted: --predict-layers {count} counts them")
    return said + [note for derivation in programs.derivations.values() for note in derivation.program.notes]


def _of_data(model: Model, parallel: Parallelism, work: Workload, programs: Programs) -> list[str]:
    """What data-parallel ranks exchange, and when."""
    if not work.phase.training or not (programs.layout.data or programs.mirrors > 1):
        return []
    when = {
        0: "gradients are summed whole over dp once a step, those of all microbatches together",
        1: "optimizer states are sharded over dp: once a step gradients are scattered and parameters gathered",
        2: "gradients are sharded over dp: scattered in every microbatch, parameters are gathered once a step",
        3: "parameters are sharded over dp: gathered before they are used, their gradients scattered, every microbatch",
    }
    said = [f"zero {parallel.zero}: {when[parallel.zero]}"]
    if programs.mirrors > 1:
        said += _of_mirrors(parallel, tied=model.tie_word_embeddings or work.predict_layers > 0)
    if parallel.zero == 3:
        kept = {
            Reshard.BLOCKS: "those of blocks are resharded after the forward pass, embedding, head and final norm stay",
            Reshard.ALL: "all are resharded after the forward pass",
            Reshard.NEVER: "none is resharded after the forward pass",
        }
        said.append(f"a gather has a block, or all that lies outside of blocks: {kept[work.reshard]}")
        said.append("every parameter is padded to equal shards of its first dimension; prefetching moves no more")
        if parallel.dp_shard is not None and parallel.dp_shard < parallel.dp:
            often = "once a step" if work.defer_all_reduce else "in every microbatch"
            copies = parallel.dp // parallel.dp_shard
            said.append(f"shards of {parallel.dp_shard} ranks in {copies} copies, summed {often}")
    elif work.bucket_bytes:
        said.append(f"gradients and parameters go in calls of at most {work.bucket_bytes:,} B, which moves no more")
    return said


def _of_mirrors(parallel: Parallelism, *, tied: bool) -> list[str]:
    """What the two ranks exchange that hold the same stages of a pipeline."""
    degrees = {"dp": parallel.dp, "cp": parallel.cp}
    ranks = " x ".join(["2", *(f"{axis} {degree}" for axis, degree in degrees.items() if degree > 1)])
    shards = "shards lie over as many" if parallel.zero else "both keep the sum"
    if parallel.zero == 3 and parallel.dp_shard is not None:
        shards = "a mirror is one more copy of the shards"
    said = [
        f"dualpipe: a rank and its mirror hold the same two stages, each for half of the microbatches; gradients are "
        f"summed over both as over more data-parallel ranks (groups dp and edp): {ranks} ranks, {shards}",
        "mirrored ranks are priced as those of the first and the last stage, which lie farthest apart",
    ]
    if tied:
        said.append("first and last stage lie on one rank, and so does their table: no sum between stages is needed")
    if parallel.zero == 2:
        said.append("gradients leave once for every two microbatches, one from each end")
    return said


def _of_schedule(parallel: Parallelism, work: Workload) -> str:
    """The schedule of the pipeline, and the share of a step in which a stage waits."""
    from commcalc.accounting.pipeline import bubble

    idle = bubble(parallel, work.microbatches(parallel.dp), training=work.phase.training)
    chunks = f" of {parallel.virtual_stages} chunks a stage" if parallel.virtual_stages > 1 else ""
    back = " and the gradient back" if work.phase.training else ""
    return (
        f"schedule {parallel.schedule}{chunks}: a stage is idle for {float(idle):.4g} of the time of its work; "
        f"it sends its activation on{back} for every microbatch and chunk"
    )


def _whose(parallel: Parallelism, dialect: Dialect) -> str:
    """Whose code runs the model, and where that was read."""
    if parallel.layout.own:
        return f"layout {parallel.layout} is run by no framework: as its paper has it, all else as in {dialect.source}"
    if parallel.framework is None:
        return f"no framework is named: run as in {dialect.source}, without its refusals"
    return f"framework {dialect.framework}: as in {dialect.source}"


def _recomputed(work: Workload, dialect: Dialect) -> str:
    """What the backward pass runs again."""
    if work.recompute is Recompute.NONE:
        return "nothing is recomputed"
    if work.recompute is Recompute.FULL:
        last = ", save the last of each layer, before which it stops" if dialect.stops_early else ""
        return f"every layer is recomputed whole, which repeats its forward collectives{last}"
    if dialect.framework is Framework.TORCHTITAN:
        return "selective recomputation saves what was scattered and gathers again what was gathered"
    quiet = {Module.CORE_ATTN: "the inside of attention", Module.LAYERNORM: "norms", Module.MOE_ACT: "activations"}
    if set(work.recompute_modules) <= quiet.keys():
        what = " and ".join(quiet[module] for module in work.recompute_modules)
        return f"{what} {'is' if what.startswith('the') else 'are'} recomputed, which repeats no collective"
    return f"recomputed: {', '.join(work.recompute_modules)}, with their forward collectives"
