"""The sections of a job and the keys that each may hold."""

from __future__ import annotations

from collections.abc import Mapping

from commcalc.accounting.choices import NO_MASTER, Combine, Optimizer, Part, Scores
from commcalc.accounting.rows import AXES
from commcalc.algebra.collective import Convention
from commcalc.catalog.fields import (
    Field,
    dtype,
    efficiency,
    factor,
    flag,
    one_of,
    order,
    seconds,
    share,
    size,
    tokens,
    whole,
    whole_or_zero,
)
from commcalc.catalog.models import FIELDS as MODEL_FIELDS
from commcalc.document import Leaf
from commcalc.errors import UnitError, UnknownName, raise_all
from commcalc.network.cost import Algorithm
from commcalc.transformer.layout import KvPolicy, LayoutName
from commcalc.transformer.spec import Phase
from commcalc.transformer.work import (
    DEFAULT_ORDER,
    AttentionKernel,
    CpComm,
    Dispatch,
    Framework,
    Logits,
    Module,
    Recompute,
    Reshard,
    Schedule,
    VocabPadding,
)
from commcalc.units import Dtype, parse_parameters


def modules(leaf: Leaf) -> tuple[Module, ...]:
    """Names of modules, joined by commas."""
    names = [name.strip() for name in leaf.text.split(",")]
    for name in names:
        if name not in Module.__members__.values():
            raise UnknownName("module to recompute", name, [*Module])
    return tuple(Module(name) for name in dict.fromkeys(names))


def parts(leaf: Leaf) -> tuple[Part, ...]:
    """What lies on the host, joined by commas."""
    names = [name.strip() for name in leaf.text.split(",")]
    raise_all([UnknownName("part of memory", name, [*Part]) for name in names if name not in set(Part)])
    return tuple(Part(name) for name in dict.fromkeys(names))


def overlap(leaf: Leaf) -> tuple[str, ...]:
    """Groups joined by commas; ``none``, or ``full`` for all."""
    names = [name.strip() for name in leaf.text.split(",")]
    raise_all([UnknownName("group", name, _GROUPS) for name in names if name not in _GROUPS])
    return tuple(dict.fromkeys(names))


_GROUPS = (*AXES, "none", "full")


def groups(named: tuple[str, ...]) -> tuple[str, ...]:
    """The groups that words name; `UnitError` where none or full stand beside others."""
    if len(named) > 1 and {"none", "full"} & set(named):
        raise UnitError(f"{','.join(named)} names groups beside none or full", hint="write it like dp,pp")
    if named == ("full",):
        return AXES
    return () if named == ("none",) else named


def master(leaf: Leaf) -> object:
    """An element type, or ``none``."""
    return NO_MASTER if leaf.text == NO_MASTER else dtype(leaf)


def many(leaf: Leaf) -> int:
    """A number as people write large ones: ``300e9``, ``15T``."""
    return whole(leaf, parse_parameters)


PARALLELISM = {
    "tp": Field(whole, 1, "8"),
    "sp": Field(flag, None, "true"),
    "cp": Field(whole, 1, "1"),
    "cp_comm": one_of(CpComm, CpComm.RING),
    "ep": Field(whole, 1, "1"),
    "etp": Field(whole, None, "1"),
    "dispatch": one_of(Dispatch),
    "ep_nodes": Field(whole, 1, "8"),
    "node_limit": Field(whole, None, "4"),
    "pp": Field(whole, 1, "4"),
    "dp": Field(whole, 1, "16"),
    "devices": Field(whole, None, "2048"),
    "zero": Field(whole_or_zero, 0, "0", ("0", "1", "2", "3")),
    "dp_shard": Field(whole, None, "8"),
    "schedule": one_of(Schedule, Schedule.ONE_F_ONE_B),
    "virtual_stages": Field(whole, 1, "2"),
    "layout": one_of(LayoutName),
    "tp_x": Field(whole, None, "4"),
    "framework": one_of(Framework),
    "order": Field(order, DEFAULT_ORDER, "tp-cp-ep-dp-pp"),
    "kv": one_of(KvPolicy),
    "vocab_padding": one_of(VocabPadding),
}
WORKLOAD = {
    "phase": one_of(Phase, Phase.TRAIN),
    "sequence_length": Field(tokens, None, "8192 or 8K"),
    "micro_batch_size": Field(whole, 1, "1"),
    "global_batch_size": Field(whole, None, "512"),
    "dtype": Field(dtype, Dtype.BF16, "bf16", tuple(Dtype)),
    "grad_dtype": Field(dtype, Dtype.FP32, "fp32", tuple(Dtype)),
    "recompute": one_of(Recompute, Recompute.NONE),
    "recompute_layers": Field(whole, 1, "4"),
    "attention": one_of(AttentionKernel, AttentionKernel.FLASH),
    "dropout": Field(flag, False, "true"),
    "recompute_modules": Field(modules, (Module.CORE_ATTN,), "core_attn,mlp", tuple(Module), joined=True),
    "regather": Field(flag, None, "true"),
    "logits": one_of(Logits),
    "reshard": one_of(Reshard, Reshard.BLOCKS),
    "bucket_bytes": Field(size, None, "25MiB"),
    "defer_all_reduce": Field(flag, True, "true"),
    "capacity_factor": Field(share, None, "1.25"),
    "imbalance": Field(factor, 1, "1.25"),
    "dispatch_dtype": Field(dtype, None, "fp8", tuple(Dtype)),
    "scale_block": Field(whole, None, "128"),
    "combine_dtype": Field(dtype, None, "bf16", tuple(Dtype)),
    "predict_layers": Field(whole_or_zero, 0, "1"),
}
MEMORY = {
    "param_dtype": Field(dtype, None, "fp32", tuple(Dtype)),
    "optimizer": one_of(Optimizer, Optimizer.ADAM),
    "moment_dtype": Field(dtype, Dtype.FP32, "fp32", tuple(Dtype)),
    "master_dtype": Field(master, None, "fp32 or none", (*Dtype, NO_MASTER)),
    "main_grad_dtype": Field(dtype, None, "fp32", tuple(Dtype)),
    "kv_dtype": Field(dtype, None, "fp8", tuple(Dtype)),
    "offload": Field(parts, (), "optimizer,activations", tuple(Part), joined=True),
    "host_bytes": Field(size, None, "256 GB"),
    "must_fit": Field(flag, False, "true"),
}
STEP = {
    "efficiency": Field(efficiency, 1, "0.6"),
    "hbm_efficiency": Field(efficiency, 1, "0.8"),
    "overlap": Field(overlap, (), "dp,pp", _GROUPS, joined=True),
    "combine": one_of(Combine, Combine.ADDED),
    "scores": one_of(Scores, Scores.FULL),
    "train_tokens": Field(many, None, "300e9 or 15T"),
}
LINKS = {
    "algorithm": one_of(Algorithm, Algorithm.AUTO),
    "convention": one_of(Convention, Convention.EXACT),
    "call_latency": Field(seconds, None, "90us"),
}
SECTIONS: Mapping[str, Mapping[str, Field]] = {
    "model": MODEL_FIELDS,
    "hardware": {},
    "parallelism": PARALLELISM,
    "workload": WORKLOAD,
    "memory": MEMORY,
    "step": STEP,
    "links": LINKS,
}
