"""The programs that a model is made of under a layout, and how often each stage runs every one of them.

A model is an embedding, blocks of one or more kinds, and a head; a layer that predicts a further token is one more
program. Each is derived once, however many layers run it.
"""

from collections.abc import Collection
from typing import NamedTuple

from commcalc.accounting.rows import ROOT, TIED, TO_NEXT, TO_PREVIOUS, Stage
from commcalc.algebra.collective import Kind
from commcalc.algebra.derive import derive
from commcalc.algebra.mesh import Mesh
from commcalc.algebra.program import Program, Role, Rule
from commcalc.algebra.schedule import FORWARD, Action, Derivation, Differentiate, Event, Move, Placed
from commcalc.errors import UnknownName
from commcalc.transformer.block import block_program
from commcalc.transformer.dialects import Dialect, dialect_of
from commcalc.transformer.embedding import embedding_program, head_program
from commcalc.transformer.layers import Ffn, Layers, layers_of
from commcalc.transformer.layout import EDP, EP, EP_NODES, ETP, Layout, LayoutName, kv_counts, lay_out
from commcalc.transformer.spec import Model
from commcalc.transformer.work import CpComm, Framework, Module, Parallelism, Recompute, Workload

EMBEDDING, HEAD, PREDICTION = "embedding", "head", "prediction"
DP_SHARD, DP_REPLICA = "dp_shard", "dp_replica"


class Programs(NamedTuple):
    """What is derived of a model: its layout and dialect, the kinds of its layers, a derivation for each program.

    ``derivations`` are in the order the forward pass meets them.
    """

    layout: Layout
    dialect: Dialect
    layers: Layers
    derivations: dict[str, Derivation]
    # Ranks of a pipeline that sum the gradients of the same stages.
    mirrors: int = 1

    @property
    def summed(self) -> bool:
        """Whether ranks hold the same parameters and work on other tokens."""
        return self.layout.copies or self.mirrors > 1

    @property
    def blocks(self) -> tuple[str, ...]:
        """The programs that are layers of the model."""
        return tuple(name for name in self.layers.names.values() if name in self.derivations)


def programs_of(model: Model, parallel: Parallelism, work: Workload) -> Programs:
    """Write every program down and derive its schedule."""
    dialect = dialect_of(model, parallel)._replace(pads_rows=work.capacity_factor is not None)
    layers = layers_of(model)
    layout = _layout_of(model, parallel, dialect, layers)
    found: dict[str, Program] = {}
    if model.vocab_size is not None:
        found[EMBEDDING] = embedding_program(model, layout)
    for kind, name in layers.names.items():
        found[name] = block_program(model, layout, kind, dialect)
    if work.predict_layers:
        from commcalc.transformer.prediction import prediction_program

        found[PREDICTION] = prediction_program(model, layout, layers.kinds[-1], dialect)
    if model.vocab_size is not None:
        found[HEAD] = head_program(model, layout, work.phase, dialect, work.logits)
    return Programs(
        layout,
        dialect,
        layers,
        {
            name: derive(
                program,
                backward=work.phase.training,
                regather=work.regather,
                # What runs again has its weights from then.
                forgets_weights=work.recompute is not Recompute.FULL or name in (EMBEDDING, HEAD),
            )
            for name, program in found.items()
        },
        parallel.mirrors if work.phase.training else 1,
    )


def only(programs: Programs, sublayers: Collection[str]) -> Programs:
    """The same programs cut down to some sublayers; those that have none of them go. `UnknownName` for others."""
    known = {op.sublayer for one in programs.derivations.values() for op in one.program.ops}
    for name in sublayers:
        if name not in known:
            raise UnknownName("sublayer", name, sorted(known), where=f"--sublayer {name[:60]}")
    found = {}
    for name, one in programs.derivations.items():
        ops = tuple(op for op in one.program.ops if op.sublayer in sublayers)
        if not ops:
            continue
        met = {tensor for op in ops for tensor in (*op.inputs, *op.weights, op.output)}
        tensors = {tensor: kept for tensor, kept in one.program.tensors.items() if tensor in met}
        found[name] = one._replace(
            program=one.program._replace(ops=ops, tensors=tensors),
            forward=tuple(action for action in one.forward if _lies_in(action, sublayers)),
            backward=tuple(action for action in one.backward if _lies_in(action, sublayers)),
            gradients={tensor: value for tensor, value in one.gradients.items() if tensor in met},
        )
    return programs._replace(derivations=found)


def _lies_in(action: Action, sublayers: Collection[str]) -> bool:
    if isinstance(action, Placed):
        return action.op.sublayer in sublayers
    if isinstance(action, Differentiate):
        return action.placed.op.sublayer in sublayers
    return isinstance(action, Move) and bool(set(action.event.sublayer.split(" + ")) & set(sublayers))


def copies_of(weight: str, layout: Layout) -> tuple[str, ...]:
    """The axes whose ranks hold the same part of a weight and work on other tokens."""
    of_experts = weight.startswith(("We_", "be_"))
    return layout.expert_data if layout.moves_tokens and of_experts else layout.replicas


def replicating(parallel: Parallelism, layout: Layout) -> tuple[str, ...]:
    """The data axes that hold whole copies of what the others shard (HSDP)."""
    shard = parallel.dp_shard or parallel.dp
    if parallel.zero != 3 or shard == parallel.dp:
        return ()
    from commcalc.transformer.folding import Run

    return Run("dp", shard, parallel.dp).axes(layout.mesh)


def _layout_of(model: Model, parallel: Parallelism, dialect: Dialect, layers: Layers) -> Layout:
    """The layout on a mesh whose axes are divided where copies of shards, KV heads or expert groups end."""
    sparse = parallel.moves_tokens and any(kind.ffn is Ffn.SPARSE for kind in layers.names)
    mesh, cuts = parallel.mesh, set[int]()
    if sparse or parallel.dp_shard is not None:
        mesh, cuts = _divided(parallel, sparse=sparse)
    data = mesh.expand(["dp"]) if parallel.dp > 1 else ()
    context = mesh.expand(["cp"]) if parallel.cp > 1 else ()
    # Where projections are gathered they are split by columns, whatever KV heads there are.
    kv_heads = {} if dialect.gathers_qkv else kv_counts(model)
    if parallel.layout is LayoutName.TWO_D:
        from commcalc.transformer.two_axes import grid_of, lay_out_2d

        return lay_out_2d(mesh, kv_heads, grid_of(model, parallel), data)
    layout = lay_out(parallel.layout, mesh, kv_heads, parallel.kv, dialect.whole, data, context, cuts)
    if sparse:
        from commcalc.transformer.folding import fold

        found = (fold(parallel).axes(one, layout.mesh) for one in (EP, ETP, EDP, EP_NODES))
        experts, expert_tp, expert_data, nodes = found
        layout = layout._replace(experts=experts, expert_tp=expert_tp, expert_data=expert_data, expert_nodes=nodes)
    if context and parallel.cp_comm is CpComm.ULYSSES:
        fewer = {dim for dim, heads in kv_counts(model).items() if heads % (parallel.tp * parallel.cp)}
        layout = layout._replace(exchanges=True, repeated=frozenset(fewer))
    return layout


def _divided(parallel: Parallelism, *, sparse: bool) -> tuple[Mesh, set[int]]:
    """The mesh with dp and cp divided where other groups end, and where tp is to be."""
    from commcalc.transformer.folding import Folding, divided, fold

    folding = fold(parallel) if sparse else Folding({})
    shard = parallel.dp_shard or parallel.dp
    copies = {shard} if parallel.zero == 3 else set()
    names = {shard: DP_REPLICA, 1: DP_SHARD} if shard < parallel.dp else {}
    mesh = divided(parallel.mesh, "dp", copies | folding.cuts("dp"), names)
    return divided(mesh, "cp", folding.cuts("cp")), {cut for cut in folding.cuts("tp") if 1 < cut < parallel.tp}


def sends_of(stage: int, parallel: Parallelism, *, tied: bool) -> dict[str, int]:
    """How often a stage sends on and back for a microbatch, and whether it holds a table that another stage has too."""
    first, last, chunks = stage == 0, stage == parallel.pp - 1, parallel.virtual_stages
    if parallel.pp == 1:
        return {TO_NEXT: 0, TO_PREVIOUS: 0, TIED: 0}
    # Where a rank holds the first and the last stage, its table gets the gradients of both.
    apart = tied and parallel.mirrors == 1
    return {TO_NEXT: chunks - last, TO_PREVIOUS: chunks - first, TIED: int(apart and (first or last))}


def stages_of(model: Model, parallel: Parallelism, programs: Programs, predict_layers: int) -> tuple[Stage, ...]:
    """Layers in equal shares, some stages one more where they do not divide; the ends on the ends.

    Which stages hold one more: the first (transformers PP, divmod), those before the last from the last but one
    backwards (vLLM distributed/utils.py, get_pp_indices), or the last (SGLang). Prediction layers stand behind the
    last layer, with an embedding and a head for each (Megatron-LM core/transformer/multi_token_prediction.py).
    """
    each, more = divmod(model.num_hidden_layers or 0, parallel.pp)
    fuller = set(range(more))
    if parallel.framework is Framework.VLLM:
        fuller = {parallel.pp - 2 - index for index in range(more)}
    elif parallel.framework is Framework.SGLANG:
        fuller = {parallel.pp - 1 - index for index in range(more)}
    found, start = [], 0
    for index in range(parallel.pp):
        count = each + (index in fuller)
        first, last = index == 0, index == parallel.pp - 1
        extra = predict_layers if last else 0
        times = _layers_of_stage(programs.layers, index, start, count, parallel)
        times |= {EMBEDDING: int(first) + extra, PREDICTION: extra, HEAD: int(last) + extra}
        times |= {ROOT: int(first or last), "all": 1}
        times |= sends_of(index, parallel, tied=model.tie_word_embeddings or predict_layers > 0)
        found.append(Stage(index, count, times))
        start += count
    if parallel.mirrors == 1:
        return tuple(found)
    return tuple(_with_mirror(one, mirror) for one, mirror in zip(found, reversed(found), strict=True))


def _with_mirror(one: Stage, mirror: Stage) -> Stage:
    """A rank that holds stage i and the i-th from the end, for a microbatch from either end through each.

    Source: deepseek-ai/DualPipe, examples/example_dualpipe.py: full_modules[rank], full_modules[pp_size - 1 - rank].
    """
    times = {name: count + mirror.times[name] for name, count in one.times.items()}
    # What lies outside of blocks is gathered for a microbatch from that end which it belongs to.
    times |= {ROOT: max(one.times[ROOT], mirror.times[ROOT]), "all": 1}
    return one._replace(times=times, ends=2, mirrored=mirror.times)


def _layers_of_stage(layers: Layers, stage: int, start: int, count: int, parallel: Parallelism) -> dict[str, int]:
    """Layers of a stage by kind: those in a row, or where stages have chunks, a chunk from every turn."""
    chunks = parallel.virtual_stages
    if chunks == 1:
        return layers.counted(start, start + count)
    each = count // chunks
    starts = [(turn * parallel.pp + stage) * each for turn in range(chunks)]
    found = [layers.counted(first, first + each) for first in starts]
    return {name: sum(one[name] for one in found) for name in found[0]}


def repeated(name: str, derivation: Derivation, dialect: Dialect, work: Workload) -> tuple[list[Event], str]:
    """The forward collectives of a block that its backward pass runs again, and why; none of ends and embeddings.

    Sources: Megatron-LM core/tensor_parallel/random.py (CheckpointFunction runs the whole layer again), torchtitan
    (early_stop=False; selective saves what ReduceScatters made, not what AllGathers did), torch.utils.checkpoint
    (early_stop, the default, ends where the last saved tensor is there again).
    """
    steps = list(derivation.steps(FORWARD))
    if name in (EMBEDDING, HEAD) or not work.phase.training or work.recompute is Recompute.NONE:
        return [], ""
    if work.recompute is Recompute.FULL:
        if dialect.stops_early:
            return _until_saved(derivation), "repeated by recomputation, which stops where all that is saved is there"
        return steps, "repeated by full recomputation"
    if dialect.framework is Framework.TORCHTITAN:
        return [event for event in steps if event.step.kind == "all_gather"], "repeated: gathered inputs are not saved"
    # Weights are gathered again for the backward pass anyway.
    chosen = [
        event
        for event in steps
        if event.role is not Role.WEIGHT and any(_of(module, event) for module in work.recompute_modules)
    ]
    return chosen, f"repeated by recomputation of {', '.join(work.recompute_modules)}"


# Operations whose backward pass reads none of their operands.
_SAVE_NOTHING = (Rule.ADD, Rule.BIAS, Rule.TAKE, Rule.SHARE)


def _until_saved(derivation: Derivation) -> list[Event]:
    """The collectives of a forward pass up to the last tensor that the backward pass reads."""
    read = {value for one in derivation.placed if one.op.rule not in _SAVE_NOTHING for value in one.operands}
    made = [
        action.target if isinstance(action, Move) else getattr(action, "made", None) for action in derivation.forward
    ]
    last = max((at for at, value in enumerate(made) if value in read), default=-1)
    moves = [action for action in derivation.forward[: last + 1] if isinstance(action, Move)]
    return [move.event for move in moves if move.event.step.kind is not Kind.SLICE]


def _of(module: Module, event: Event) -> bool:
    """Whether a forward collective belongs to a module that can be recomputed."""
    if module is Module.MLP:
        return event.sublayer == "mlp"
    if module is Module.MOE:
        return event.sublayer == "moe"
    if module is Module.SHARED_EXPERTS:
        return event.label.startswith("shared_")
    return module is Module.MLA_UP_PROJ and event.label in ("q_b_proj", "kv_b_proj")
