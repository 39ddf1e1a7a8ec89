"""How many collectives one layer has, as published: what a ledger must not exceed.

That a schedule computes the right thing does not say that it needs all it sends. These counts are typed in, from the
papers and from what frameworks issue, and share nothing with the derivation.

    per layer, softmax attention and an MLP
                       forward                 backward
    megatron           2 AllReduce             2 AllReduce
    megatron-sp        2 AG + 2 RS             2 AG + 2 RS, and an AG for each saved input that is gathered again
    parallel block     the same, once          once for each norm that reads the stream
    KV heads gathered  + 1 AG                  + 1 RS
    norm over heads    + 1 AllReduce           not published
    sequence           AG of keys and values   AG of both again, RS of their gradients
    weight-gathered    an AG of every matrix   an AG and an RS of every matrix
    2d                 an AG in front of and an RS behind every product, an AllReduce for every norm; transposed
    transformers       as megatron             an AllReduce for each of q, k, v, gate and up
                       parallel block: 2       parallel block: as many as linear layers that read a norm

    forward of any other layer (experts, latents, linear attention) on the layout megatron
    vLLM, SGLang       2 AllReduce: behind the projection back, and behind what the experts say together;
                       one more for an MLP beside experts, and for a norm over all heads

Sources: Shoeybi et al. 2019, arXiv:1909.08053, section 3; Korthikanti et al. 2022, arXiv:2205.05198, section 4.2;
Llama 3, arXiv:2407.21783, section 3.3.2 (sequence: all-gathered keys and values);
Pope et al. 2022, arXiv:2211.05102, section 3.2.2 and figure 2b (2d), section 3.2.3 (weight-gathered);
Megatron-LM core/tensor_parallel/layers.py for the re-gather and core/transformer/attention.py for gathered KV heads;
transformers integrations/tensor_parallel.py (ColwiseParallel reduces the gradient of its own input); vLLM
model_executor/layers/linear.py (RowParallelLinear), fused_moe/layer.py and minimax_rms_norm.
"""

from __future__ import annotations

from collections import Counter

from commcalc.algebra.collective import Kind
from commcalc.algebra.schedule import BACKWARD, FORWARD
from commcalc.transformer.frameworks import HABITS
from commcalc.transformer.layers import Ffn, Heads
from commcalc.transformer.layers import Kind as LayerKind
from commcalc.transformer.layout import KvPolicy, LayoutName
from commcalc.transformer.spec import Model, NormPlacement, QkNorm
from commcalc.transformer.work import Framework, Parallelism, Recompute, Workload

_SERVING = (Framework.VLLM, Framework.SGLANG)


def per_layer(model: Model, kind: LayerKind, parallel: Parallelism, work: Workload) -> dict[str, Counter[Kind]]:
    """Collectives of a layer of one kind by direction and kind of collective; no direction that nobody published."""
    if parallel.cp > 1 or (parallel.moves_tokens and kind.ffn is Ffn.SPARSE):
        return {}
    if parallel.tp == 1 or parallel.layout is LayoutName.NONE:
        return {FORWARD: Counter(), BACKWARD: Counter()}
    if parallel.layout is LayoutName.SEQUENCE:
        return {} if kind.heads in (Heads.LATENT, Heads.LINEAR) else _of_sequence(model, kind, work)
    if parallel.layout is LayoutName.WEIGHT_GATHERED:
        return _of_gathered(model, work)
    if parallel.layout is LayoutName.TWO_D:
        return _of_grid(model, kind, parallel, work)
    if parallel.framework in _SERVING and not model.parallel_block:
        beside = model.dense_mlp_beside_moe and kind.ffn is Ffn.SPARSE  # both behind a norm of their own
        return {FORWARD: Counter({Kind.ALL_REDUCE: 2 + beside + _sums_of_squares(model, kind)})}
    if kind.ffn is Ffn.SPARSE or kind.heads in (Heads.LATENT, Heads.LINEAR):
        return {}
    if parallel.framework is Framework.HF:
        return _of_transformers(model, work) if parallel.layout is LayoutName.MEGATRON else {}
    return _of_megatron(model, kind, parallel, work) if parallel.framework not in _SERVING else {}


def _sums_of_squares(model: Model, kind: LayerKind) -> int:
    """AllReduces of norms over heads that ranks share: of queries and keys in one call, of lightning attention."""
    softmax = kind.heads not in (Heads.LATENT, Heads.LINEAR)
    lightning = kind.heads is Heads.LINEAR and model.linear_attention == "lightning"
    return int((softmax and model.qk_norm is QkNorm.FULL_WIDTH) or lightning)


def _of_megatron(model: Model, kind: LayerKind, parallel: Parallelism, work: Workload) -> dict[str, Counter[Kind]]:
    forward: Counter[Kind] = Counter()
    backward: Counter[Kind] = Counter()
    branches = 1 if model.parallel_block else 2  # outputs that are reduced
    inputs = model.parallel_norms if model.parallel_block else 2  # norms' outputs, or streams, that are read
    if parallel.layout is LayoutName.MEGATRON:
        forward[Kind.ALL_REDUCE], backward[Kind.ALL_REDUCE] = branches, inputs
    else:
        forward[Kind.ALL_GATHER], forward[Kind.REDUCE_SCATTER] = inputs, branches
        backward[Kind.ALL_GATHER] = branches + (inputs if work.regather else 0)
        backward[Kind.REDUCE_SCATTER] = inputs
    if parallel.kv is KvPolicy.GATHER and parallel.tp > (_kv_heads(model, kind) or parallel.tp):
        forward[Kind.ALL_GATHER] += 1
        backward[Kind.REDUCE_SCATTER] += 1
    if squares := _sums_of_squares(model, kind):
        forward[Kind.ALL_REDUCE] += squares
        return {FORWARD: forward}
    return {FORWARD: forward, BACKWARD: backward if work.phase.training else Counter()}


def _of_sequence(model: Model, kind: LayerKind, work: Workload) -> dict[str, Counter[Kind]]:
    """Keys and values, or one where they are the same: all else is of tokens that a rank has."""
    same = kind.heads is Heads.GLOBAL and model.global_head_dim and model.global_keys_are_values
    each = 1 if same and model.qk_norm is QkNorm.NONE else 2
    backward = Counter({Kind.ALL_GATHER: each, Kind.REDUCE_SCATTER: each}) if work.phase.training else Counter()
    return {FORWARD: Counter({Kind.ALL_GATHER: each}), BACKWARD: backward}


def _of_gathered(model: Model, work: Workload) -> dict[str, Counter[Kind]]:
    """Every matrix before it is used, once more before its backward pass, and the scatter of its gradient."""
    matrices = 4 + (3 if model.gated_mlp else 2)
    backward = Counter({Kind.REDUCE_SCATTER: matrices}) if work.phase.training else Counter[Kind]()
    # A layer that runs again has them from then.
    backward[Kind.ALL_GATHER] += matrices if work.phase.training and work.recompute is not Recompute.FULL else 0
    return {FORWARD: Counter({Kind.ALL_GATHER: matrices}), BACKWARD: +backward}


def _of_grid(model: Model, kind: LayerKind, parallel: Parallelism, work: Workload) -> dict[str, Counter[Kind]]:
    """Of grids of more than one rank either way, whose heads go into all ranks.

    A gather in front of a product and a scatter behind it, the four of an MLP in the paper's figure, and the same of
    attention; of every norm a sum of its statistics; backward the transposes, and what is gathered again.
    """
    x = parallel.tp_x or 0
    if not 1 < x < parallel.tp or (_kv_heads(model, kind) or 0) % parallel.tp or model.qk_norm is QkNorm.FULL_WIDTH:
        return {}
    inputs = model.parallel_norms if model.parallel_block else 2
    outputs = 1 if model.parallel_block else 2
    norms = inputs * (2 if model.norm_placement is NormPlacement.SANDWICH else 1)
    gathers, scatters = inputs + 2, outputs + 3 + (2 if model.gated_mlp else 1)  # behind Q, K and V, gate and up
    forward = Counter({Kind.ALL_GATHER: gathers, Kind.REDUCE_SCATTER: scatters, Kind.ALL_REDUCE: norms})
    again = gathers if work.regather else 0
    backward = Counter({Kind.ALL_GATHER: scatters + again, Kind.REDUCE_SCATTER: gathers, Kind.ALL_REDUCE: norms})
    return {FORWARD: forward, BACKWARD: backward if work.phase.training else Counter()}


def _kv_heads(model: Model, kind: LayerKind) -> int | None:
    if kind.heads is Heads.GLOBAL and model.global_head_dim:
        return model.global_num_key_value_heads
    sliding = kind.heads is Heads.SLIDING and model.sliding_num_key_value_heads
    return sliding or model.num_key_value_heads


def _of_transformers(model: Model, work: Workload) -> dict[str, Counter[Kind]]:
    """Of families whose heads are split; those that gather them, or leave them whole, are published nowhere."""
    habits = HABITS[Framework.HF]
    if model.family in habits.whole_attention | habits.gathered_attention:
        return {}
    forward = Counter({Kind.ALL_REDUCE: 2})
    if model.qk_norm is not QkNorm.NONE:  # some families reduce the gradients of these as well
        return {FORWARD: forward}
    fused = model.family == "gpt_neox"
    linears = (1 if fused else 3) + (2 if model.gated_mlp else 1)
    backward = Counter({Kind.ALL_REDUCE: linears}) if work.phase.training else Counter()
    return {FORWARD: forward, BACKWARD: backward}
