"""What is asked of a model: the degrees it is split by, and the work of one step."""

from enum import StrEnum
from math import comb, lcm
from typing import TYPE_CHECKING, NamedTuple

from commcalc.algebra.mesh import Mesh
from commcalc.errors import CommcalcError, IllegalDegree
from commcalc.transformer.layout import KvPolicy, LayoutName, splits
from commcalc.transformer.spec import Model, Phase
from commcalc.units import Dtype

if TYPE_CHECKING:  # a start is spared the import where nobody asks for a fraction
    from fractions import Fraction

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


class AttentionKernel(StrEnum):
    """Whether scores of attention are written to memory: ``flash`` kernels make them again, ``unfused`` ones do."""

    FLASH = "flash"
    UNFUSED = "unfused"


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


class Reshard(StrEnum):
    """Which groups of parameters ZeRO 3 forgets after the forward pass: those of blocks, all, or none."""

    BLOCKS = "blocks"
    ALL = "all"
    NEVER = "never"


class Schedule(StrEnum):
    """In which order a pipeline stage runs its microbatches."""

    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    ZB1P = "zb1p"
    DUALPIPE = "dualpipe"


class CpComm(StrEnum):
    """How ranks of a context group see the others' keys and values.

    ``ring``: passed from rank to rank; ``all_gather``: gathered whole; ``ulysses``: heads are exchanged for tokens.
    """

    RING = "ring"
    ALL_GATHER = "all_gather"
    ULYSSES = "ulysses"


class Dispatch(StrEnum):
    """How tokens reach the ranks that hold their experts.

    ``all_to_all``: a copy for each choice; ``all_gather``: every rank gets all tokens and works on those that chose
    its experts; ``deduplicated``: a copy for each rank that holds chosen experts (DeepEP, HybridEP).
    """

    ALL_TO_ALL = "all_to_all"
    ALL_GATHER = "all_gather"
    DEDUPLICATED = "deduplicated"


class Parallelism(NamedTuple):
    """Degrees, and how they are laid: ``order`` is innermost first."""

    tp: int = 1
    sp: bool = False
    cp: int = 1
    ep: int = 1
    pp: int = 1
    dp: int = 1
    zero: int = 0
    # Ranks that one copy of the parameters is sharded over in ZeRO 3; None: all data-parallel ranks.
    dp_shard: int | None = None
    cp_comm: CpComm = CpComm.RING
    # Ranks that one expert is split over; None: as its framework does.
    etp: int | None = None
    dispatch: Dispatch | None = None
    # Nodes that an expert group spans, which a copy for each node is sent over first; and to how many a token may go.
    ep_nodes: int = 1
    node_limit: int | None = None
    schedule: Schedule = Schedule.ONE_F_ONE_B
    # Chunks of layers that each pipeline stage holds.
    virtual_stages: int = 1
    layout: LayoutName = LayoutName.MEGATRON
    # Ranks along the first axis of layout 2d, over which D is split; None: the nearest to the optimum.
    tp_x: int | None = None
    order: tuple[str, ...] = DEFAULT_ORDER
    kv: KvPolicy = KvPolicy.REFUSE
    vocab_padding: VocabPadding = VocabPadding.MEGATRON
    # How many there are, where that is given: the degrees must come to as many.
    devices: int | None = None
    # None: nobody was named; every dimension must divide, and KV heads follow `kv`.
    framework: Framework | None = None

    @property
    def mesh(self) -> Mesh:
        """The mesh, outermost axis first; expert groups lie on the ranks of the others (`transformer.folding`)."""
        return Mesh.of({axis: 1 if axis == "ep" else getattr(self, axis) for axis in reversed(self.order)})

    @property
    def mirrors(self) -> int:
        """Ranks of a pipeline that hold the same stages: two where it is fed from both ends.

        Source: DeepSeek-V3, arXiv:2412.19437, section 3.2.1 and table 2 (two copies of the parameters).
        """
        return 2 if self.schedule is Schedule.DUALPIPE else 1

    @property
    def moves_tokens(self) -> bool:
        """Whether experts lie on ranks of their own, so that tokens are brought to them."""
        return self.ep > 1 or self.etp is not None

    @property
    def expert_tp(self) -> int:
        """Ranks that one expert is split over: Megatron's default is the TP degree, others split none."""
        if self.etp is not None:
            return self.etp
        return self.tp if self.ep == 1 or self.framework in (None, Framework.MEGATRON) else 1

    @property
    def sends_tokens(self) -> Dispatch:
        """How tokens are brought: a copy for each choice; vLLM, SGLang and transformers by default bring all."""
        gathers = self.framework in (Framework.VLLM, Framework.SGLANG, Framework.HF)
        return self.dispatch or (Dispatch.ALL_GATHER if gathers else Dispatch.ALL_TO_ALL)


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
    # Layers between two inputs that full recomputation keeps.
    recompute_layers: int = 1
    regather: bool = True
    attention: AttentionKernel = AttentionKernel.FLASH
    # Hidden states and attention drop elements, whose masks are kept.
    dropout: bool = False
    logits: Logits = Logits.SAMPLED
    # Prediction layers that are trained beside the model's own (of its num_nextn_predict_layers).
    predict_layers: int = 0
    reshard: Reshard = Reshard.BLOCKS
    # Gradients go in calls of at most so many bytes; None: in one.
    bucket_bytes: int | None = None
    # Copies of shards are summed once a step, not in every microbatch.
    defer_all_reduce: bool = True
    # Rows that each expert takes from a rank, over the average; None: however many choose it.
    capacity_factor: "Fraction | None" = None
    # Rows that the busiest rank gets, over the average.
    imbalance: "Fraction | int" = 1
    # The types in which tokens go to experts and come back; None: that of the work.
    dispatch_dtype: Dtype | None = None
    combine_dtype: Dtype | None = None
    # Elements that share a scale of four bytes where tokens go in such a type; None: no scales are sent.
    scale_block: int | None = None

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
    sizes = model.dims | {"T": work.tokens, "B": work.micro_batch_size, "KR": parallel.tp * parallel.cp}
    if "E" in sizes and "C" in sizes:
        sizes["Q"] = expert_rows(sizes["E"], sizes["C"], work, parallel)
        sizes["W"] = parallel.tp * parallel.cp * parallel.dp
        sizes["imbalance"] = work.imbalance.denominator
        copies = copies_of_a_token(sizes["E"], sizes["C"], parallel)
        sizes |= {name: share.denominator for name, share in copies.items()}
    if "V" in sizes:
        whole = parallel.layout.own and "V" not in splits(parallel.layout)[0]
        sizes["V"] = padded_vocab(sizes["V"], 1 if whole else parallel.tp, parallel.vocab_padding)
    if parallel.framework in (Framework.HF, Framework.TORCHTITAN) and parallel.layout is not LayoutName.NONE:
        sizes |= {dim: -(-sizes[dim] // parallel.tp) * parallel.tp for dim in _DEALT if dim in sizes}
    return sizes


def copies_of_a_token(experts: int, choices: int, parallel: Parallelism) -> "dict[str, Fraction]":
    """Nodes and ranks that hold a chosen expert, on average over all choices that a token may make.

    A token chooses among the experts of ``node_limit`` of the nodes (DeepSeek-V3, arXiv:2412.19437, section 2.1.2).

    >>> float(copies_of_a_token(64, 6, Parallelism(ep=4))["copies"])
    3.3452...
    """
    from fractions import Fraction

    nodes, ranks = parallel.ep_nodes, parallel.ep // parallel.ep_nodes
    limit = min(parallel.node_limit or nodes, nodes)
    open_to = limit * experts // nodes

    def reached(places: int, holds: int) -> Fraction:
        ways = comb(open_to, choices)
        return places * (1 - Fraction(comb(max(open_to - holds, 0), choices), ways)) if ways else Fraction(places)

    return {"node_copies": reached(limit, experts // nodes), "copies": reached(limit * ranks, experts // parallel.ep)}


def expert_rows(experts: int, choices: int, work: Workload, parallel: Parallelism) -> int:
    """Rows for each expert from the ranks that share a microbatch; with a capacity, so many from each of them.

    Source: Megatron-LM core/transformer/moe/moe_utils.py, get_capacity: ceil(tokens * choices / experts * factor).
    """
    ranks = parallel.tp * parallel.cp
    if work.capacity_factor is None:
        return -(-work.tokens * choices // experts)
    return -(-work.tokens * choices * work.capacity_factor // (experts * ranks)).__int__() * ranks


# Columns and rows that some frameworks deal out unevenly.
_DEALT = ("V", "F", "GU", "M", "S", "QKV", "QCOL", "KCOL", "VCOL", "OCOL", "LQKV", "LZ", "LG", "LQKVZ", "LBA", "DO")
