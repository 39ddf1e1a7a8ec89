"""The named layouts: how dimensions are laid on the tensor-parallel axis. None of them names a collective.

A layout says over which axes each dimension of a *weight* is split, and how the *residual stream* lies between the
sublayers. What must be gathered and reduced follows (`algebra.derive`).

    none          nothing is split: every rank does the whole work
    megatron      heads, FFN width and vocabulary over TP; the stream whole on every rank
                  (Shoeybi et al. 2019, arXiv:1909.08053, section 3)
    megatron-sp   the same weights; the stream split by tokens over TP
                  (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2)
    weight-gathered  weights stored in shards over TP and gathered before they are used; whole sequences dealt out
                  over TP (Pope et al. 2022, arXiv:2211.05102, section 3.2.3, XYZ)
    sequence      weights whole on every rank; every sequence split over TP, in all of a layer
                  (Li et al. 2021, arXiv:2105.13120, section 3; keys and values gathered whole as in Llama 3,
                  arXiv:2407.21783, section 3.3.2)
    2d            D over one part of TP, heads, FFN width and vocabulary over the other; the stream's D over both
                  (Pope et al. 2022, arXiv:2211.05102, section 3.2.2; `transformer.two_axes`)
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.sharding import Sharding
from commcalc.errors import ShardingError
from commcalc.transformer.layers import Heads, layers_of
from commcalc.transformer.spec import Model

TP = "tp"
# The parts of the TP axis where it is larger than the number of KV heads: one part counts the KV heads, ranks that
# differ only in the other hold the same KV head.
TP_KV, TP_REPLICA = "tp_kv", "tp_replica"


# Ranks that hold different experts, that share each of them, and that hold copies; of the first, a rank of each node
# and the ranks of one.
EP, ETP, EDP = "ep", "etp", "edp"
EP_NODES, EP_LOCAL = "ep_nodes", "ep_local"
# Labels of what brings tokens to experts and back.
DISPATCH, COMBINE = "dispatch", "combine"
# The choices of experts that go with copies of tokens: where they end, and on the nodes that they are sent over.
CHOICES = ("Ie", "Ien")


class LayoutName(StrEnum):
    """How dimensions are laid on the TP axis."""

    NONE = "none"
    MEGATRON = "megatron"
    MEGATRON_SP = "megatron-sp"
    SEQUENCE = "sequence"
    TWO_D = "2d"
    WEIGHT_GATHERED = "weight-gathered"

    @property
    def own(self) -> bool:
        """Whether no framework's code was read for it: it follows its paper."""
        return self not in (LayoutName.NONE, LayoutName.MEGATRON, LayoutName.MEGATRON_SP)


class KvPolicy(StrEnum):
    """What happens where the TP degree exceeds the KV heads.

    ``refuse`` it; ``replicate`` each KV head on several ranks (vLLM QKVParallelLinear); or split the fused QKV weight
    evenly and ``gather`` its output (Megatron-LM core/transformer/attention.py).
    """

    REFUSE = "refuse"
    REPLICATE = "replicate"
    GATHER = "gather"


# Heads of every kind of attention, columns of MLPs and experts, rows of the vocabulary.
HEADS = ("N", "K", "KG", "KS", "KR", "NK", "NV")
_COLUMNS = ("QKV", "QKVG", "QKVS", "QCOL", "KCOL", "VCOL", "OCOL", "LQKV", "LZ", "LG", "LQKVZ", "LBA", "DO")
ATTENTION_DIMS = (*HEADS, *_COLUMNS)
EXPERT_DIMS = ("M", "S", "F", "GU")
_WEIGHTS = (*ATTENTION_DIMS, *EXPERT_DIMS, "V")
_SPLITS: Mapping[LayoutName, tuple[tuple[str, ...], tuple[str, ...]]] = {
    LayoutName.NONE: ((), ()),
    LayoutName.MEGATRON: (_WEIGHTS, ()),
    LayoutName.MEGATRON_SP: (_WEIGHTS, ("T",)),
    LayoutName.SEQUENCE: ((), ("T",)),
    LayoutName.TWO_D: (("D", *_WEIGHTS), ("D",)),
    LayoutName.WEIGHT_GATHERED: (("D",), ("T", "B")),
}


class Layout(NamedTuple):
    """A layout on a mesh: the axes of each dimension in weights, and in the residual stream.

    ``data`` are the axes over which sequences are dealt out, ``context`` those over which each of them is split (TP
    among them where a layout splits nothing else);
    ``exchanges``: attention has heads split over them instead, and whole sequences.

    ``gathers`` names the KV heads (by dimension) of which there are fewer than ranks and whose QKV activation is
    gathered.
    """

    name: LayoutName
    mesh: Mesh
    weights: Mapping[str, tuple[str, ...]]
    stream: Mapping[str, tuple[str, ...]]
    gathers: frozenset[str] = frozenset()
    data: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    exchanges: bool = False
    # KV heads, by dimension, that are repeated before they are exchanged.
    repeated: frozenset[str] = frozenset()
    # Axes over which experts are dealt out, each of them is split, and copies of them work on other tokens.
    experts: tuple[str, ...] = ()
    expert_tp: tuple[str, ...] = ()
    expert_data: tuple[str, ...] = ()
    # The part of `experts` that counts nodes, where tokens go from node to node first.
    expert_nodes: tuple[str, ...] = ()
    # The axes of heads and columns in activations, where they are others than those of weights.
    columns: Mapping[str, tuple[str, ...]] | None = None
    # The TP axes where they deal out whole sequences of a data-parallel rank, and weights are gathered over them.
    dealt: tuple[str, ...] = ()

    def repeats(self, dim: str) -> bool:
        """Whether KV heads are fewer than the ranks that share them out."""
        return dim in self.repeated

    @property
    def replicas(self) -> tuple[str, ...]:
        """The axes whose ranks hold the same parameters and work on other tokens."""
        return (*self.data, *(axis for axis in self.context if self.mesh.owner(axis) != TP))

    @property
    def copies(self) -> bool:
        """Whether there are ranks that hold the same parameters and work on other tokens."""
        return bool(self.replicas or self.expert_data)

    @property
    def _tokens(self) -> dict[str, tuple[str, ...]]:
        return {"T": (*self.whole_sequences, *self.context), "B": self.whole_sequences}

    @property
    def whole_sequences(self) -> tuple[str, ...]:
        """The axes over which whole sequences are dealt out."""
        return (*self.data, *self.dealt)

    def weight(self, *dims: str) -> Sharding:
        """How a weight with these dimensions is stored."""
        return Sharding.of(dims, self.weights)

    def vector(self, *dims: str) -> Sharding:
        """How a weight is stored that meets activations element by element: as they lie."""
        if self.columns is None:
            return self.weight(*dims)
        return Sharding.of(dims, {"D": self.stream.get("D", ()), **self.columns})

    def scattered(self, *dims: str) -> Sharding | None:
        """Where a product by heads or columns is brought at once; None where it stays as it is made."""
        return None if self.columns is None else self.split(*dims)

    def expert_weight(self, *dims: str) -> Sharding:
        """How a weight of the experts is stored."""
        if not self.moves_tokens:
            return Sharding.of(dims, self.weights)
        return Sharding.of(dims, {"E": self.experts, "M": self.expert_tp})

    @property
    def moves_tokens(self) -> bool:
        """Whether tokens are brought to ranks that hold their experts."""
        return bool(self.experts or self.expert_data)

    @property
    def all_tokens(self) -> tuple[str, ...]:
        """The axes over which tokens are dealt out where no two ranks have the same."""
        return (*self.replicas, *self.mesh.expand([TP]))

    def stream_of(self, *dims: str) -> Sharding:
        """How a tensor of the residual stream lies."""
        return Sharding.of(dims, self.stream)

    def whole(self, *dims: str, pending: tuple[str, ...] = ()) -> Sharding:
        """A tensor that every rank of a TP group holds alike."""
        return Sharding.of(dims, self._tokens, pending)

    def split(self, *dims: str) -> Sharding:
        """A tensor that is split as weights are, by heads or columns."""
        return Sharding.of(dims, {**(self.weights if self.columns is None else self.columns), **self._tokens})

    def exchanged(self, *dims: str) -> Sharding:
        """Heads of whole sequences, split over the context axes as well."""
        heads = {dim: (*self.weights.get(dim, ()), *self.context) for dim in dims if dim in HEADS}
        return Sharding.of(dims, {**heads, "T": self.data})


def splits(name: LayoutName) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The dimensions that a layout splits over TP: those of weights, those of the residual stream."""
    return _SPLITS[name]


def kv_counts(model: Model) -> dict[str, int]:
    """KV heads of the layers that there are, by their dimension; latent and linear attention have none."""
    heads = {kind.heads for kind in layers_of(model).names}
    own = heads & {Heads.OWN, Heads.GLOBAL, Heads.SLIDING}
    counts = {}
    if model.sliding_num_key_value_heads and Heads.SLIDING in own:
        counts["KS"] = model.sliding_num_key_value_heads
        own -= {Heads.SLIDING}
    if model.global_head_dim and Heads.GLOBAL in own:
        counts["KG"] = model.global_num_key_value_heads
        own -= {Heads.GLOBAL}
    if own and model.num_key_value_heads:
        counts["K"] = model.num_key_value_heads
    return counts


def lay_out(
    name: LayoutName,
    mesh: Mesh,
    kv_heads: Mapping[str, int],
    kv: KvPolicy,
    whole: Collection[str] = (),
    data: tuple[str, ...] = (),
    context: tuple[str, ...] = (),
    cuts: Collection[int] = (),
) -> Layout:
    """The layout ``name`` on ``mesh``; the TP axis is seen as several where it exceeds the KV heads.

    ``kv_heads`` counts them by dimension (models may have several kinds); weights stay unsplit along ``whole``; the
    axes ``data`` deal out tokens; expert groups divide TP at ``cuts``, in places from its fastest end. Whether the
    degree is legal is for `transformer.limits` to say.
    """
    tp = mesh.size([TP])
    weights, stream = _SPLITS[name]
    if name is LayoutName.SEQUENCE:
        context = (*context, TP)
        return Layout(name, mesh, {}, {"T": (*data, *context), "B": data}, data=data, context=context)
    weights = tuple(dim for dim in weights if dim not in whole)
    shared = {dim: heads for dim, heads in kv_heads.items() if dim in weights and tp > heads and tp % heads == 0}
    if shared or cuts:
        mesh = mesh.divide(TP, _parts(tp, sorted(set(shared.values())), {tp // cut for cut in cuts}))
    axes = dict.fromkeys(weights, mesh.expand([TP]))
    for dim, heads in shared.items():
        parts = mesh.expand([TP])
        axes[dim] = next(parts[:count] for count in range(1, len(parts) + 1) if mesh.size(parts[:count]) == heads)
    if name is LayoutName.WEIGHT_GATHERED:
        sequences = (*data, TP)
        return Layout(
            name, mesh, {"D": (TP,)}, {"T": sequences, "B": sequences}, data=data, columns={}, dealt=(TP,)
        )  # fmt: skip
    gathers = frozenset(shared) if kv is KvPolicy.GATHER else frozenset()
    tokens = (*data, *context, *mesh.expand([TP])) if stream else (*data, *context)
    return Layout(name, mesh, axes, {"T": tokens, "B": data}, gathers, data, context)


def _parts(tp: int, counts: Sequence[int], cuts: Collection[int] = ()) -> dict[str, int]:
    """The axes that TP is seen as: the first ones together count each kind of KV heads, the last the copies.

    >>> _parts(16, [2, 8])
    {'tp_kv': 2, 'tp_kv8': 4, 'tp_replica': 2}
    """
    found: dict[str, int] = {}
    before = 1
    for heads in sorted({*counts, *cuts}):
        if heads not in counts:
            if heads % before:
                raise ShardingError(f"groups of expert ranks cut through the {before} KV heads that {tp} ranks share")
            found[f"tp_{tp // heads}"] = heads // before
            before = heads
            continue
        if heads % before:
            raise ShardingError(
                f"{heads} KV heads in some layers and {before} in others cannot both be shared by {tp} ranks",
                hint="a TP degree that is no larger than the KV heads",
            )
        found[TP_KV if before == 1 and not found else f"{TP_KV}{heads}"] = heads // before
        before = heads
    return found | {TP_REPLICA if counts else f"{TP}_1": tp // before}
