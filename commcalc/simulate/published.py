"""How many collectives one layer has, as published: what a ledger must not exceed.

That a schedule computes the right thing does not say that it needs all it sends. These counts are typed in, from the
papers and from what Megatron issues, and share nothing with the derivation.

    per layer          forward                 backward
    megatron           2 AllReduce             2 AllReduce
    megatron-sp        2 AG + 2 RS             2 AG + 2 RS, and an AG for each saved input that is gathered again
    parallel block     the same, once          once for each norm that reads the stream
    KV heads gathered  + 1 AG                  + 1 RS

Sources: Shoeybi et al. 2019, arXiv:1909.08053, section 3; Korthikanti et al. 2022, arXiv:2205.05198, section 4.2;
Megatron-LM core/tensor_parallel/layers.py for the re-gather and core/transformer/attention.py for gathered KV heads.
"""

from __future__ import annotations

from collections import Counter

from commcalc.algebra.collective import Kind
from commcalc.algebra.schedule import BACKWARD, FORWARD
from commcalc.transformer.layout import KvPolicy, LayoutName
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Parallelism, Workload


def per_layer(model: Model, parallel: Parallelism, work: Workload) -> dict[str, Counter[Kind]]:
    """Collectives of one layer by direction and kind."""
    forward: Counter[Kind] = Counter()
    backward: Counter[Kind] = Counter()
    if parallel.tp > 1 and parallel.layout is not LayoutName.NONE:
        branches = 1 if model.parallel_block else 2  # outputs that are reduced
        inputs = model.parallel_norms if model.parallel_block else 2  # norms' outputs, or streams, that are read
        if parallel.layout is LayoutName.MEGATRON:
            forward[Kind.ALL_REDUCE], backward[Kind.ALL_REDUCE] = branches, inputs
        else:
            forward[Kind.ALL_GATHER], forward[Kind.REDUCE_SCATTER] = inputs, branches
            backward[Kind.ALL_GATHER] = branches + (inputs if work.regather else 0)
            backward[Kind.REDUCE_SCATTER] = inputs
        if parallel.kv is KvPolicy.GATHER and parallel.tp > (model.num_key_value_heads or parallel.tp):
            forward[Kind.ALL_GATHER] += 1
            backward[Kind.REDUCE_SCATTER] += 1
    return {FORWARD: forward, BACKWARD: backward if work.phase.training else Counter()}
