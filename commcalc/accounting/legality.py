"""Whether the degrees of data, context, pipeline and expert parallelism fit a model and its batch.

What a TP degree must divide is for `transformer.limits` to say, and what a framework does not do for
`transformer.frameworks`.
"""

from __future__ import annotations

from commcalc.errors import CommcalcError, IllegalDegree, UsageError
from commcalc.transformer.layers import Heads, layers_of
from commcalc.transformer.layout import KvPolicy, kv_counts
from commcalc.transformer.spec import Model, Phase
from commcalc.transformer.work import CpComm, Dispatch, Framework, Parallelism, Schedule, Workload

MOST_STAGES = 4096


def unfit(model: Model, parallel: Parallelism, work: Workload) -> list[CommcalcError]:
    """Every rule that is broken, those of one group after another."""
    return [
        *_of_devices(parallel),
        *_of_experts(model, parallel, work),
        *_of_rows(model, parallel, work),
        *_of_shards(parallel),
        *_of_context(model, parallel, work),
        *_stages_fit(model, parallel),
        *_predictable(model, work),
        *_scheduled(model, parallel, work),
        *work.uneven_batch(parallel.dp),
    ]


def _of_devices(parallel: Parallelism) -> list[CommcalcError]:
    """The devices of a job, where their number is given: expert groups lie on those of the others."""
    tp, cp, dp, pp = parallel.tp, parallel.cp, parallel.dp, parallel.pp
    if parallel.devices in (None, tp * cp * dp * pp):
        return []
    message = f"tp {tp} x cp {cp} x dp {dp} x pp {pp} = {tp * cp * dp * pp} devices, not {parallel.devices}"
    copies, rest = divmod(parallel.devices or 0, tp * cp * pp)
    near = max(1, copies)
    hint = f"--dp {near}" + ("" if not rest and copies else f" for {near * tp * cp * pp} devices")
    return [IllegalDegree(message, where=f"parallelism.devices (--devices {parallel.devices})", hint=hint)]


def _of_experts(model: Model, parallel: Parallelism, work: Workload) -> list[CommcalcError]:
    """Experts that divide over their ranks, each of them over its own; groups that fit those of the others."""
    where, count = f"parallelism.ep (--ep {parallel.ep})", model.num_experts
    if not parallel.moves_tokens:
        return _of_nodes(model, parallel) if parallel.ep_nodes > 1 or parallel.node_limit else []
    if not count:
        message = f"{model.name} has no experts to deal out"
        if parallel.ep == 1:
            return [IllegalDegree(message, where=f"parallelism.etp (--etp {parallel.etp})", hint="leave etp out")]
        return [IllegalDegree(message, where=where, hint="--ep 1")]
    from commcalc.transformer.folding import unfolded

    found = [*unfolded(parallel), *_of_framework(parallel, work, where)]
    # vLLM and SGLang give some ranks one more; what tokens move is the same.
    uneven = parallel.framework in (Framework.VLLM, Framework.SGLANG)
    if count % parallel.ep and not uneven:
        legal = ", ".join(str(n) for n in range(1, count + 1) if count % n == 0)
        found.append(
            IllegalDegree(
                f"{count} experts mod {parallel.ep} = {count % parallel.ep}", where=where, hint=f"legal: {legal}"
            )
        )
    if parallel.sends_tokens is Dispatch.DEDUPLICATED and parallel.expert_tp > 1:
        message = (
            f"copies for each rank go to ranks that hold whole experts, not to {parallel.expert_tp} that share one"
        )
        found.append(IllegalDegree(message, where="parallelism.dispatch (--dispatch deduplicated)", hint="--etp 1"))
    found += _of_nodes(model, parallel)
    if parallel.sends_tokens is Dispatch.ALL_GATHER and model.expert_bias and parallel.expert_tp > 1:
        message = f"{parallel.expert_tp} ranks that share an expert would each add its bias to their sum"
        found.append(IllegalDegree(message, where=f"parallelism.etp (--etp {parallel.expert_tp})", hint="--etp 1"))
    width, etp = model.moe_intermediate_size, parallel.expert_tp
    if width and width % etp:
        message = f"expert width {width} mod {etp} = {width % etp}"
        found.append(IllegalDegree(message, where=f"parallelism.etp (--etp {etp})", hint="--etp 1"))
    return found


def _of_framework(parallel: Parallelism, work: Workload, where: str) -> list[CommcalcError]:
    """Expert groups that a framework does not have.

    Sources: vLLM 0.33.0 config/parallel.py (expert parallelism is over all TP and DP ranks), transformers 5.24.0
    integrations (experts on the TP ranks, summed at the end).
    """
    framework, every = parallel.framework, parallel.tp * parallel.dp
    if framework in (Framework.VLLM, Framework.SGLANG) and parallel.ep not in (1, every):
        message = f"{framework} deals experts out over all of tp {parallel.tp} x dp {parallel.dp} ranks"
        return [IllegalDegree(message, where=where, hint=f"--ep {every}")]
    copy = (parallel.dp_shard or parallel.dp) * parallel.cp * parallel.tp
    if framework is Framework.TORCHTITAN and copy % parallel.ep:
        message = f"torchtitan: expert_parallel_degree ({parallel.ep}) must divide dp_shard * cp * tp ({copy})"
        return [IllegalDegree(message, where=where, hint="a divisor of the ranks of one copy, or a larger --dp-shard")]
    if framework is Framework.HF and parallel.ep > 1 and (work.phase.training or parallel.ep != parallel.tp):
        message = "transformers was read to deal experts out over its TP ranks, and in inference"
        return [IllegalDegree(message, where=where, hint=f"--ep {parallel.tp} --phase prefill or decode")]
    return []


def _of_nodes(model: Model, parallel: Parallelism) -> list[CommcalcError]:
    """Nodes that expert groups span, and to how many of them a token may go."""
    nodes, limit = parallel.ep_nodes, parallel.node_limit
    where = f"parallelism.ep_nodes (--ep-nodes {nodes})"
    found: list[CommcalcError] = []
    if nodes > 1 and parallel.ep > 1 and parallel.sends_tokens is not Dispatch.DEDUPLICATED:
        message = f"copies for each node are sent by --dispatch deduplicated, not by {parallel.sends_tokens}"
        found.append(IllegalDegree(message, where=where, hint="--dispatch deduplicated"))
    if parallel.ep % nodes:
        found.append(IllegalDegree(f"ep {parallel.ep} mod {nodes} nodes = {parallel.ep % nodes}", where=where))
    if limit is None:
        return found
    where = f"parallelism.node_limit (--node-limit {limit})"
    if limit > nodes:
        found.append(
            IllegalDegree(f"a limit of {limit} nodes where groups span {nodes}", where=where, hint="--ep-nodes N")
        )
    elif (model.num_experts_per_tok or 0) > limit * ((model.num_experts or 0) // nodes):
        message = f"{model.num_experts_per_tok} choices among the experts of {limit} of {nodes} nodes"
        found.append(IllegalDegree(message, where=where, hint="a higher limit"))
    return found


def _of_rows(model: Model, parallel: Parallelism, work: Workload) -> list[CommcalcError]:
    """What bounds the rows of an expert: a capacity, or how uneven choices are; copies where each goes once."""
    found: list[CommcalcError] = []
    where = f"workload.capacity_factor (--capacity-factor {float(work.capacity_factor or 1):g})"
    if work.capacity_factor is not None and work.imbalance != 1:
        message = "with a capacity every rank gets the same number of rows, however uneven choices are"
        found.append(UsageError(message, where=where, hint="leave out one of --capacity-factor and --imbalance"))
    if parallel.moves_tokens and work.imbalance > max(parallel.ep, 1):
        message = f"the busiest of {parallel.ep} ranks gets at most {parallel.ep} times the average"
        place = f"workload.imbalance (--imbalance {float(work.imbalance):g})"
        found.append(IllegalDegree(message, where=place, hint=f"--imbalance {parallel.ep} or less"))
    if work.bucket_bytes == 0:
        found.append(
            UsageError("a bucket of no bytes", where="workload.bucket_bytes (--bucket)", hint="--bucket 25MiB")
        )
    experts, choices = model.num_experts or 0, model.num_experts_per_tok or 0
    if work.capacity_factor is not None and choices and work.capacity_factor * choices > experts > 0:
        message = f"an expert takes at most all tokens of a rank: {experts / choices:g} times the average"
        found.append(IllegalDegree(message, where=where, hint=f"--capacity-factor {experts / choices:g} or less"))
    if work.capacity_factor is not None and parallel.sends_tokens is not Dispatch.ALL_TO_ALL:
        message = f"a capacity bounds the copies of --dispatch all_to_all, not of {parallel.sends_tokens}"
        found.append(UsageError(message, where=where, hint="--dispatch all_to_all"))
    return found


def _of_shards(parallel: Parallelism) -> list[CommcalcError]:
    """What ZeRO shards over: data-parallel ranks, all of them or those of one copy."""
    found: list[CommcalcError] = []
    if parallel.zero and parallel.dp * parallel.cp * parallel.mirrors == 1:
        message = f"zero {parallel.zero} shards over data-parallel ranks, and there is one"
        found.append(IllegalDegree(message, where="parallelism.zero (--zero)", hint="--dp N, or --zero 0"))
    if parallel.dp_shard is None:
        return found
    where = "parallelism.dp_shard (--dp-shard)"
    if parallel.zero != 3:
        message = "dp_shard says over how many ranks ZeRO 3 shards a copy of the parameters"
        found.append(IllegalDegree(message, where=where, hint="--zero 3 --dp-shard N"))
    elif parallel.dp % parallel.dp_shard:
        message = f"dp {parallel.dp} mod dp_shard {parallel.dp_shard} = {parallel.dp % parallel.dp_shard}"
        legal = ", ".join(str(n) for n in range(1, parallel.dp + 1) if parallel.dp % n == 0)
        found.append(IllegalDegree(message, where=where, hint=f"legal: {legal}"))
    return found


def _of_context(model: Model, parallel: Parallelism, work: Workload) -> list[CommcalcError]:
    """What a context-parallel degree must divide, and where sequences cannot be split.

    Sources: Megatron-LM training/arguments.py (seq-length a multiple of 2 cp, so that causal work is even);
    core/transformer/transformer_config.py and Jacobs et al. 2023, arXiv:2309.14509 (heads shared out by Ulysses).
    """
    cp, where = parallel.cp, f"parallelism.cp (--cp {parallel.cp})"
    if cp == 1:
        return []
    found: list[CommcalcError] = []
    if parallel.framework in (Framework.VLLM, Framework.SGLANG, Framework.HF):
        message = f"how {parallel.framework} would split sequences is not described"
        found.append(IllegalDegree(message, where=where, hint="--framework megatron or torchtitan, or none"))
    if work.phase is Phase.DECODE:
        message = "a decoding step has one token of each sequence, which context parallelism cannot split"
        found.append(IllegalDegree(message, where=where, hint="--phase prefill, or --cp 1"))
    else:
        found += _of_sequence(parallel, work, where)
    if any(kind.heads is Heads.LINEAR for kind in layers_of(model).names):
        message = f"{model.name} has layers of linear attention, whose state runs along the whole sequence"
        found.append(UsageError(f"the ledger cannot price this yet: {message}", where=where, hint="--cp 1"))
    if parallel.cp_comm is CpComm.ULYSSES:
        found += _of_exchanged_heads(model, parallel, where)
    return found


def _of_sequence(parallel: Parallelism, work: Workload, where: str) -> list[CommcalcError]:
    """Every rank has an equal run of a sequence, or two of them where causal work is to be even."""
    length, cp = work.sequence_length, parallel.cp
    balanced = work.phase.training and parallel.framework in (Framework.MEGATRON, Framework.TORCHTITAN)
    each = 2 * cp if balanced else cp
    if length % each == 0:
        return []
    rule = f" ({parallel.framework} gives each rank an early and a late part)" if balanced else ""
    message = f"{length} tokens of a sequence mod {each} = {length % each}{rule}"
    legal = ", ".join(str(n) for n in range(1, min(length, 1024) + 1) if length % (n * (each // cp)) == 0)
    return [
        IllegalDegree(message, where=where, hint=f"a sequence length that {each} divides; otherwise legal: {legal}")
    ]


def _of_exchanged_heads(model: Model, parallel: Parallelism, where: str) -> list[CommcalcError]:
    """Heads that Ulysses shares out over the ranks of a context group: whole ones, KV heads repeated where fewer.

    Source: verl models/transformers/monkey_patch.py (KV heads divide the ranks, or the ranks them).
    """
    heads, tp, cp = model.num_attention_heads or 0, parallel.tp, parallel.cp
    counts = sorted(set(kv_counts(model).values()))
    legal = [
        n
        for n in range(1, heads // tp + 1)
        if heads % (n * tp) == 0 and all(kv % (n * tp) == 0 or (kv >= tp and n % (kv // tp) == 0) for kv in counts)
    ]
    hint = f"legal with ulysses: {', '.join(map(str, legal)) or 'none'}; or --cp-comm ring"
    found: list[CommcalcError] = []
    if heads % (tp * cp):
        message = f"{heads} heads mod {tp * cp} (tp {tp} x cp {cp}) = {heads % (tp * cp)}"
        found.append(IllegalDegree(message, where=where, hint=hint))
    for kv in counts:
        if kv % (tp * cp) == 0:
            continue
        if kv < tp or cp % (kv // tp):
            message = f"{kv} KV heads cannot be shared out evenly over {tp * cp} ranks (tp {tp} x cp {cp})"
            found.append(IllegalDegree(message, where=where, hint=hint))
        elif parallel.kv is KvPolicy.REFUSE:
            message = f"{kv} KV heads are fewer than {tp * cp} ranks (tp {tp} x cp {cp}), which share heads out"
            found.append(IllegalDegree(message, where=where, hint=f"--kv replicate repeats them; {hint}"))
    return found


def _stages_fit(model: Model, parallel: Parallelism) -> list[CommcalcError]:
    if parallel.pp > MOST_STAGES:
        where = f"parallelism.pp (--pp {parallel.pp})"
        return [UsageError(f"{parallel.pp} pipeline stages; at most {MOST_STAGES} are counted", where=where)]
    layers = model.num_hidden_layers
    if layers is None or parallel.pp <= layers:
        return []
    return [
        IllegalDegree(
            f"{layers} layers do not fill {parallel.pp} pipeline stages",
            where=f"parallelism.pp (--pp {parallel.pp})",
            hint=f"at most {layers} stages",
        )
    ]


def _scheduled(model: Model, parallel: Parallelism, work: Workload) -> list[CommcalcError]:
    """Chunks that fill every stage, and microbatches in which an interleaved schedule goes round."""
    found: list[CommcalcError] = []
    chunks, stages = parallel.virtual_stages, parallel.pp
    where = f"parallelism.virtual_stages (--virtual-stages {chunks})"
    interleaved = parallel.schedule is Schedule.INTERLEAVED
    if chunks > 1 and not interleaved:
        message = f"schedule {parallel.schedule} has one chunk of layers on a stage, not {chunks}"
        found.append(IllegalDegree(message, where=where, hint="--schedule interleaved"))
    if interleaved and (chunks == 1 or stages == 1):
        message = "an interleaved schedule needs more stages than one, and more chunks than one on each"
        found.append(IllegalDegree(message, where=where, hint="--pp N --virtual-stages N"))
    layers = model.num_hidden_layers
    if chunks > 1 and stages > 1 and layers is not None and layers % (stages * chunks):
        message = (
            f"{layers} layers mod {stages * chunks} ({stages} stages x {chunks} chunks) = {layers % (stages * chunks)}"
        )
        found.append(IllegalDegree(message, where=where, hint="chunks that divide the layers of a stage"))
    if interleaved and stages > 1 and not work.uneven_batch(parallel.dp):
        count = work.microbatches(parallel.dp)
        if count % stages:
            rest = f"{count} mod {stages} = {count % stages}"
            message = f"an interleaved schedule runs microbatches in rounds of {stages}: {rest}"
            hint = f"--global-batch {-(-count // stages) * stages * work.micro_batch_size * parallel.dp}"
            found.append(IllegalDegree(message, where="workload.global_batch_size (--global-batch)", hint=hint))
    if parallel.schedule is Schedule.DUALPIPE and stages % 2:
        message = f"DualPipe feeds a pipeline from both ends: {stages} stages are no even number"
        found.append(IllegalDegree(message, where=f"parallelism.pp (--pp {stages})", hint=f"--pp {stages + 1}"))
    elif parallel.schedule is Schedule.DUALPIPE and not work.uneven_batch(parallel.dp):
        found += _from_both_ends(parallel, work)
    return found


def _from_both_ends(parallel: Parallelism, work: Workload) -> list[CommcalcError]:
    """Microbatches that fill a pipeline from both ends, in training and outside of it.

    Source: deepseek-ai/DualPipe, dualpipe/dualpipe.py, step: num_chunks % 2 == 0 and num_chunks >= num_ranks * 2.
    """
    count, least = work.microbatches(parallel.dp), 2 * parallel.pp
    if count % 2 == 0 and count >= least:
        return []
    broken = f"{count} mod 2 = {count % 2}" if count % 2 else f"{count} are fewer than {least}"
    rule = f"DualPipe runs half of its microbatches from each end, on {parallel.pp} stages at least {least} in all"
    share = work.micro_batch_size * parallel.dp
    hint = f"the nearest that does: --global-batch {max(count + count % 2, least) * share}"
    return [IllegalDegree(f"{rule}: {broken}", where="workload.global_batch_size (--global-batch)", hint=hint)]


def _predictable(model: Model, work: Workload) -> list[CommcalcError]:
    """Prediction layers are those that the model has, and run in training with embedding and head."""
    asked, where = work.predict_layers, f"workload.predict_layers (--predict-layers {work.predict_layers})"
    if not asked:
        return []
    if not work.phase.training:
        message = f"prediction layers are counted in training only, not in {work.phase}"
        return [UsageError(message, where=where, hint="leave it out, or --phase train")]
    if asked > model.num_nextn_predict_layers:
        message = f"{asked} prediction layers, {model.name} has {model.num_nextn_predict_layers}"
        return [UsageError(message, where=where, hint="--set model.num_nextn_predict_layers=N")]
    return []
