"""What is asked of a model: the degrees it is split by, and the work of one step."""

from enum import StrEnum
from math import lcm
from typing import NamedTuple

from commcalc.algebra.mesh import Mesh
from commcalc.errors import CommcalcError, IllegalDegree
from commcalc.transformer.layout import KvPolicy, LayoutName
from commcalc.transformer.spec import Model, Phase
from commcalc.units import Dtype

# Innermost first: TP ranks are neighbours, pipeline stages lie farthest apart.
DEFAULT_ORDER = ("tp", "cp", "ep", "dp", "pp")


class Recompute(StrEnum):
    """What the backward pass computes again: nothing, the inside of attention, or whole layers."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Module(StrEnum):
    """What selective recomputation runs again, by the names of Megatron-LM's ``--recompute-modules``."""

    CORE_ATTN = "core_attn"
    LAYERNORM = "layernorm"
    MOE_ACT = "moe_act"
    MLP = "mlp"
    MOE = "moe"
    SHARED_EXPERTS = "shared_experts"
    MLA_UP_PROJ = "mla_up_proj"


class Logits(StrEnum):
    """Of which positions prefill makes logits: of the last of each sequence, which is sampled, or of all."""

    SAMPLED = "sampled"
    ALL = "all"


class Framework(StrEnum):
    """Whose rules say what is legal (`transformer.frameworks`) and how it is run (`transformer.dialects`).

    ``hf`` is the ``tp_plan`` of transformers itself.
    """

    MEGATRON = "megatron"
    VLLM = "vllm"
    SGLANG = "sglang"
    HF = "hf"
    TORCHTITAN = "torchtitan"


class VocabPadding(StrEnum):
    """To what the vocabulary is padded before it is split.

    ``megatron`` to 128*tp (training/vocab_utils.py); ``vllm`` to 64 (vocab_parallel_embedding.py); ``sglang`` to 64,
    or 64*tp where that does not divide; ``none`` not at all.
    """

    MEGATRON = "megatron"
    VLLM = "vllm"
    SGLANG = "sglang"
    NONE = "none"


def padded_vocab(vocab_size: int, tp: int, padding: VocabPadding) -> int:
    """Rows of the embedding table after padding; it may still not divide by ``tp`` (vllm, none).

    >>> padded_vocab(50257, 8, VocabPadding.MEGATRON)
    51200
    """
    multiple = {
        VocabPadding.MEGATRON: 128 * tp,
        VocabPadding.VLLM: 64,
        VocabPadding.SGLANG: 64 if -(-vocab_size // 64) * 64 % tp == 0 else 64 * tp,
        VocabPadding.NONE: 1,
    }[padding]
    return -(-vocab_size // multiple) * multiple


def splittable_vocab(vocab_size: int, tp: int, padding: VocabPadding) -> int:
    """The smallest padded vocabulary that splits ``tp`` ways and keeps the padding's own multiple.

    >>> splittable_vocab(129280, 24, VocabPadding.VLLM)
    129408
    """
    padded = padded_vocab(vocab_size, tp, padding)
    multiple = lcm({VocabPadding.NONE: 1}.get(padding, 64), tp)
    return padded if padded % tp == 0 else -(-vocab_size // multiple) * multiple


class Parallelism(NamedTuple):
    """Degrees, and how they are laid: ``order`` is innermost first."""

    tp: int = 1
    sp: bool = False
    cp: int = 1
    ep: int = 1
    pp: int = 1
    dp: int = 1
    zero: int = 0
    layout: LayoutName = LayoutName.MEGATRON
    order: tuple[str, ...] = DEFAULT_ORDER
    kv: KvPolicy = KvPolicy.REFUSE
    vocab_padding: VocabPadding = VocabPadding.MEGATRON
    # None: nobody was named; every dimension must divide, and KV heads follow `kv`.
    framework: Framework | None = None

    @property
    def mesh(self) -> Mesh:
        """The mesh, outermost axis first."""
        return Mesh.of({axis: getattr(self, axis) for axis in reversed(self.order)})


class Workload(NamedTuple):
    """The work of one step; a microbatch is ``micro_batch_size`` sequences of ``sequence_length`` tokens."""

    phase: Phase = Phase.TRAIN
    sequence_length: int = 4096
    micro_batch_size: int = 1
    global_batch_size: int = 1
    dtype: Dtype = Dtype.BF16
    grad_dtype: Dtype = Dtype.FP32
    recompute: Recompute = Recompute.NONE
    recompute_modules: tuple[Module, ...] = (Module.CORE_ATTN,)
    regather: bool = True
    logits: Logits = Logits.SAMPLED
    # Prediction layers that are trained beside the model's own (of its num_nextn_predict_layers).
    predict_layers: int = 0

    @property
    def tokens_per_sequence(self) -> int:
        """Tokens of each sequence that go through the layers at once: one in decoding."""
        return 1 if self.phase is Phase.DECODE else self.sequence_length

    @property
    def tokens(self) -> int:
        """Tokens of one microbatch, T."""
        return self.micro_batch_size * self.tokens_per_sequence

    def microbatches(self, dp: int) -> int:
        """Microbatches that one data-parallel rank runs in a step, where the global batch is not `uneven_batch`."""
        return self.global_batch_size // (self.micro_batch_size * dp)

    def uneven_batch(self, dp: int) -> list[CommcalcError]:
        """What is wrong where the global batch is no whole number of microbatches on ``dp`` ranks."""
        share = self.micro_batch_size * dp
        if self.global_batch_size % share == 0:
            return []
        return [
            IllegalDegree(
                f"global batch {self.global_batch_size} does not split into micro-batches of {self.micro_batch_size} "
                f"on {dp} data-parallel ranks: {self.global_batch_size} mod {share} = {self.global_batch_size % share}",
                where="workload.global_batch_size (--global-batch)",
                hint=f"the nearest that does: {max(1, round(self.global_batch_size / share)) * share}",
            )
        ]


def program_sizes(model: Model, work: Workload, parallel: Parallelism) -> dict[str, int]:
    """The size of every named dimension of the programs, V padded; those the model does not give are absent.

    What transformers and torchtitan deal out in unequal parts counts as if padded to equal ones, as their gathers do.
    """
    sizes = model.dims | {"T": work.tokens, "B": work.micro_batch_size}
    if "V" in sizes:
        sizes["V"] = padded_vocab(sizes["V"], parallel.tp, parallel.vocab_padding)
    if parallel.framework in (Framework.HF, Framework.TORCHTITAN) and parallel.layout is not LayoutName.NONE:
        sizes |= {dim: -(-sizes[dim] // parallel.tp) * parallel.tp for dim in _DEALT if dim in sizes}
    return sizes


# Columns and rows that some frameworks deal out unevenly.
_DEALT = ("V", "F", "GU", "M", "S", "QKV", "QCOL", "KCOL", "VCOL", "OCOL", "LQKV", "LZ", "LG", "LQKVZ", "LBA", "DO")
