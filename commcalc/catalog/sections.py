"""The sections of a job and the keys that each may hold."""

from __future__ import annotations

from collections.abc import Mapping

from commcalc.algebra.collective import Convention
from commcalc.catalog.fields import Field, dtype, flag, one_of, order, tokens, whole, whole_or_zero
from commcalc.catalog.models import FIELDS as MODEL_FIELDS
from commcalc.document import Leaf
from commcalc.errors import UnknownName
from commcalc.network.cost import Algorithm
from commcalc.transformer.layout import KvPolicy, LayoutName
from commcalc.transformer.spec import Phase
from commcalc.transformer.work import DEFAULT_ORDER, Framework, Logits, Module, Recompute, VocabPadding
from commcalc.units import Dtype


def modules(leaf: Leaf) -> tuple[Module, ...]:
    """Names of modules, joined by commas."""
    names = [name.strip() for name in leaf.text.split(",")]
    for name in names:
        if name not in Module.__members__.values():
            raise UnknownName("module to recompute", name, [*Module])
    return tuple(Module(name) for name in dict.fromkeys(names))


PARALLELISM = {
    "tp": Field(whole, 1, "8"),
    "sp": Field(flag, None, "true"),
    "cp": Field(whole, 1, "1"),
    "ep": Field(whole, 1, "1"),
    "pp": Field(whole, 1, "4"),
    "dp": Field(whole, 1, "16"),
    "zero": Field(whole_or_zero, 0, "0", ("0", "1", "2", "3")),
    "layout": one_of(LayoutName),
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
    "recompute_modules": Field(modules, (Module.CORE_ATTN,), "core_attn,mlp", tuple(Module), joined=True),
    "regather": Field(flag, None, "true"),
    "logits": one_of(Logits),
    "predict_layers": Field(whole_or_zero, 0, "1"),
}
LINKS = {"algorithm": one_of(Algorithm, Algorithm.AUTO), "convention": one_of(Convention, Convention.EXACT)}
SECTIONS: Mapping[str, Mapping[str, Field]] = {
    "model": MODEL_FIELDS,
    "hardware": {},
    "parallelism": PARALLELISM,
    "workload": WORKLOAD,
    "links": LINKS,
}
