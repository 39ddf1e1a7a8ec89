"""What one device keeps of parameters, their gradients and the optimizer's states, and of the cache of keys and values.

    stored in      ZeRO 0   ZeRO 1      ZeRO 2      ZeRO 3
    weights        whole    whole       whole       shards
    gradients      whole    whole       shards      shards
    optimizer      whole    shards      shards      shards

Sources: Rajbhandari et al. 2019, arXiv:1910.02054, figure 1 and table 1; Megatron-LM docs, dist_optimizer (bytes a
parameter by types of parameters and gradients).
"""

from collections.abc import Iterator
from typing import NamedTuple

from commcalc.accounting.choices import States
from commcalc.accounting.data_parallel import shards
from commcalc.accounting.draft import Draft
from commcalc.accounting.programs import EMBEDDING, HEAD, copies_of, replicating
from commcalc.accounting.rows import ROOT, Stage
from commcalc.algebra.program import Role, Rule
from commcalc.algebra.sharding import Sharding
from commcalc.algebra.size import Size
from commcalc.transformer.layers import Attention
from commcalc.transformer.work import Framework, Reshard
from commcalc.units import Dtype


class Holdings(NamedTuple):
    """Bytes of parameters as stored, of their gradients, and of what the optimizer keeps; ``elements`` as used."""

    elements: int
    weights: int
    gradients: int
    optimizer: int


class _Weight(NamedTuple):
    program: str
    name: str
    sharding: Sharding
    times: int
    # As operations use it, where that is not as it is stored.
    used: Sharding


def holdings(draft: Draft, stage: Stage, states: States) -> Holdings:
    """Parameters of a stage with all that belongs to them; without gradients and optimizer outside of training."""
    parallel, work, sizes = draft.parallel, draft.work, draft.sizes
    used, stored = 0, 0
    # Ranks that share, and what they share out.
    groups: list[tuple[int, int]] = []
    ways_of_all = _ways(draft, "")
    for one in _weights(draft, stage):
        elements: int = Size((one.sharding.local_elements(),), 8).value(sizes)
        used += one.times * elements
        ways = _ways(draft, one.name)
        held = shards(draft.programs, parallel, one.program, one.name, sizes) if parallel.zero == 3 else []
        stored += one.times * (Size(tuple(held), 8).value(sizes) if held else elements)
        groups = _with_group(groups, ways, one.times * elements)
    if draft.model.index_layers:
        indexers = _indexers(draft, stage)
        used, stored = used + indexers, stored + (-(-indexers // ways_of_all) if parallel.zero == 3 else indexers)
        groups = _with_group(groups, ways_of_all, indexers)
    sharded = sum(-(-elements // ways) for ways, elements in groups)
    types = stored_as(draft, states)
    zero = parallel.zero if work.phase.training else 0
    weights = _bytes(stored if zero == 3 else used, types)
    if not work.phase.training:
        return Holdings(used, weights, 0, 0)
    of_optimizer = {0: used, 1: sharded, 2: sharded, 3: stored}[zero]
    gradients = _bytes({0: used, 1: used, 2: sharded, 3: stored}[zero], work.grad_dtype)
    optimizer = states.optimizer.moments * _bytes(of_optimizer, states.moment_dtype)
    for copy in (states.master(types), states.main_grad_dtype):
        optimizer += _bytes(of_optimizer, copy) if copy else 0
    return Holdings(used, weights, gradients, optimizer)


def _with_group(groups: list[tuple[int, int]], ways: int, elements: int) -> list[tuple[int, int]]:
    """Elements added to those that equally many ranks share."""
    known = next((at for at, (count, _) in enumerate(groups) if count == ways), None)
    if known is None:
        return [*groups, (ways, elements)]
    return [(count, held + elements * (at == known)) for at, (count, held) in enumerate(groups)]


def _indexers(draft: Draft, stage: Stage) -> int:
    """Parameters of the indexers of sparse attention, which every rank holds whole; shared out evenly over layers.

    No program has them: what they communicate in training is not known.
    """
    from commcalc.transformer.parameters import indexer

    layers = sum(stage.times[name] for name in draft.programs.blocks)
    model = draft.model
    return -(-model.index_layers * layers // (model.num_hidden_layers or 1)) * indexer(model)


def stored_as(draft: Draft, states: States) -> Dtype:
    """The type in which parameters lie: torchtitan trains in fp32 and casts what it gathers."""
    if states.param_dtype is not None:
        return states.param_dtype
    training = draft.work.phase.training
    return Dtype.FP32 if training and draft.parallel.framework is Framework.TORCHTITAN else draft.work.dtype


def _bytes(elements: int, dtype: Dtype) -> int:
    return -(-elements * dtype.bits // 8)


def _weights(draft: Draft, stage: Stage) -> Iterator[_Weight]:
    """Every weight of a stage with how many layers have one; embedding and head once, a tied table once."""
    seen: set[str] = set()
    for name, derivation in draft.programs.derivations.items():
        ends = name in (EMBEDDING, HEAD)
        times = min(stage.times[name], 1) if ends else stage.times[name]
        for tensor in derivation.program.tensors.values() if times else ():
            if tensor.role is not Role.WEIGHT or tensor.sharding is None or (ends and tensor.name in seen):
                continue
            seen.add(tensor.name)
            yield _Weight(name, tensor.name, tensor.sharding, times, tensor.used or tensor.sharding)


def _ways(draft: Draft, weight: str) -> int:
    """Ranks over which what belongs to a weight is sharded."""
    layout, parallel = draft.programs.layout, draft.parallel
    replicas = replicating(parallel, layout)
    mirrors = draft.programs.mirrors if parallel.dp_shard is None else 1
    return mirrors * layout.mesh.size([axis for axis in copies_of(weight, layout) if axis not in replicas])


def gathered(draft: Draft, stage: Stage) -> int:
    """Bytes of parameters that are held whole beside their shards, and of gradients before they are scattered.

    A layout that gathers weights has one in use, the largest at most, while another is on its way (a buffer of calls).
    ZeRO 3 has a block and the next one, prefetched; what is not resharded stays. Source: PyTorch FSDP2, which gathers
    the next group while one computes (torch/distributed/fsdp, FSDPParamGroup).
    """
    layout = draft.programs.layout
    weights = _weights(draft, stage) if layout.mesh.size(layout.dealt) > 1 else ()
    brought = [one.used for one in weights if one.used != one.sharding]
    in_use = max((int(Size((one.local_elements(),), 8).value(draft.sizes)) for one in brought), default=0)
    return _bytes(in_use, draft.work.dtype) + _gathered_by_zero(draft, stage)


def _gathered_by_zero(draft: Draft, stage: Stage) -> int:
    if draft.parallel.zero != 3 or not draft.work.phase.training:
        return 0
    groups: dict[str, int] = {}
    for one in _weights(draft, stage):
        if _ways(draft, one.name) == 1:
            continue
        part = ROOT if one.program in (EMBEDDING, HEAD) else one.program
        groups[part] = groups.get(part, 0) + Size((one.sharding.local_elements(),), 8).value(draft.sizes)
    blocks = {part: size for part, size in groups.items() if part != ROOT}
    root, largest = groups.get(ROOT, 0), max(blocks.values(), default=0)
    count = sum(stage.times[part] for part in blocks)
    kept = {
        Reshard.BLOCKS: root + min(count, 2) * largest,
        Reshard.ALL: max(root, min(count, 2) * largest),
        Reshard.NEVER: root + sum(stage.times[part] * size for part, size in blocks.items()),
    }[draft.work.reshard]
    return _bytes(kept, draft.work.dtype) + _bytes(max(largest, root), draft.work.grad_dtype)


def cache_bytes(draft: Draft, layers: dict[tuple[str, Attention], int], states: States) -> int:
    """Bytes of keys and values that one device keeps for all its sequences; a window or chunk of them where so.

    Latent attention keeps its latent and rotary key, whole on every rank; linear attention a state for each head
    (`transformer.cache` has the same undivided).
    """
    work, parallel, layout = draft.work, draft.parallel, draft.programs.layout
    if work.phase.training:
        return 0
    ways = layout.mesh.size(layout.context)
    sequences = work.global_batch_size // (parallel.dp * layout.mesh.size(layout.dealt))
    bits = (states.kv_dtype or work.dtype).bits
    context, model = work.sequence_length, draft.model
    looks = {Attention.SLIDING: model.sliding_window, Attention.CHUNKED: model.attention_chunk_size}
    held = 0
    for (name, attention), count in layers.items():
        tokens = min(looks.get(attention) or context, context)
        held += count * sequences * _cached(draft, name, -(-tokens // ways), bits)
        held += count * sequences * _state(draft, name)
    return held


def _cached(draft: Draft, name: str, tokens: int, bits: int) -> int:
    """Bytes that a layer keeps for one sequence."""
    sizes, layout = draft.sizes, draft.programs.layout
    elements = 0
    for placed in draft.programs.derivations[name].placed:
        op = placed.op
        if op.rule is Rule.ATTEND and "LKV" in sizes and draft.model.kv_lora_rank:
            elements += tokens * (sizes["LKV"] + sizes["R"])
        elif op.rule is Rule.ATTEND:
            for value in dict(zip(op.inputs[1:], placed.inputs[1:], strict=True)).values():
                heads = [
                    axis
                    for axes in value.split
                    for axis in axes
                    if axis not in (*layout.whole_sequences, *layout.context)
                ]
                each = Sharding.of(value.dims[1:], {value.dims[1]: tuple(heads)})
                elements += tokens * Size((each.local_elements(),), 8).value(sizes)
    if draft.model.index_layers:  # one key a token and layer, for all heads of the indexer
        elements += tokens * draft.model.index_head_dim
    return -(-elements * bits // 8)


def _state(draft: Draft, name: str) -> int:
    """Bytes of the states that a layer of linear attention keeps for one sequence, in the type of the work."""
    sizes, elements = draft.sizes, 0
    for placed in draft.programs.derivations[name].placed:
        if placed.op.rule is not Rule.SCAN:
            continue
        values, keys = placed.output, placed.inputs[0]
        if placed.weights:  # the last tokens that a convolution looks back on
            row = Sharding.of(values.dims[1:], {dim: values.axes_of(dim) for dim in values.dims[1:]})
            elements += (sizes["CONV"] - 1) * Size((row.local_elements(),), 8).value(sizes)
        else:
            state = Sharding.of((*values.dims[1:], keys.dims[-1]), {values.dims[1]: values.axes_of(values.dims[1])})
            elements += Size((state.local_elements(),), 8).value(sizes)
    return _bytes(elements, draft.work.dtype)


def read_in_decoding(draft: Draft, stage: Stage, states: States) -> int:
    """Bytes of weights that one device reads for one token of each sequence; rows of a table that is looked up apart.

    Of experts those that some token chose, on average where choices are even: E(1 - (1 - C/E)^tokens) of E.
    """
    sizes, read = draft.sizes, 0
    tied = draft.model.tie_word_embeddings
    for one in _weights(draft, stage):
        elements = one.times * Size((one.used.local_elements(),), 8).value(sizes)
        if one.program == EMBEDDING and not (tied and stage.times[HEAD]):
            continue
        if one.name.startswith("We_"):
            tokens = draft.work.tokens * (draft.parallel.dp if draft.parallel.moves_tokens else 1)
            share = 1 - (1 - sizes["C"] / sizes["E"]) ** tokens
            elements = -(-int(elements * share * 1024) // 1024)
        read += elements
    read += _indexers(draft, stage) if draft.model.index_layers else 0
    return _bytes(read, stored_as(draft, states))
