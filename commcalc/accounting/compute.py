"""Compute: FLOPs of every program, forward, backward and again, and the seconds they take at a stated efficiency.

Two for each multiply-add of products with weights, of attention, and of states that run along a sequence; norms,
activations and look-ups are left out, as in published counts (Narayanan et al. 2021, arXiv:2104.04473, appendix). The
derivative of a product is two products of its size; a fused attention kernel makes its scores once more (Dao 2023,
arXiv:2307.08691, section 4.1: 2.5 times the forward pass).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from commcalc.accounting.activations import rows_as_chosen, run_again
from commcalc.accounting.choices import Scores
from commcalc.accounting.draft import Draft
from commcalc.accounting.ledger import Ledger
from commcalc.accounting.programs import EMBEDDING, HEAD, PREDICTION
from commcalc.accounting.rows import Stage
from commcalc.algebra.program import Rule
from commcalc.algebra.schedule import Placed
from commcalc.algebra.size import Product, Size
from commcalc.transformer.layers import Attention, attentions
from commcalc.transformer.spec import Model, Phase, key_of
from commcalc.transformer.work import AttentionKernel, Workload

# Multiplications with the state of a linear attention head for each token: decay aside, it is read, written, and
# under the delta rule corrected by what it held (Yang et al. 2024, arXiv:2412.06464, equation 10).
_STATE_USES = {"delta_rule": 3, "lightning": 2}


class Flops(NamedTuple):
    """FLOPs of one microbatch on one device: forward, backward, and forward again; ``model``: forward, undivided."""

    forward: int = 0
    backward: int = 0
    recompute: int = 0
    model: int = 0

    def times(self, count: int) -> "Flops":
        """So many of them."""
        return Flops(self.forward * count, self.backward * count, self.recompute * count, self.model * count)

    def plus(self, other: "Flops") -> "Flops":
        """Both together."""
        return Flops(
            self.forward + other.forward, self.backward + other.backward, self.recompute + other.recompute,
            self.model + other.model,
        )  # fmt: skip

    @property
    def total(self) -> int:
        """What the device really does."""
        return self.forward + self.backward + self.recompute


class Parts(NamedTuple):
    """FLOPs of a program: of products with weights by sublayer, and of attention for a pair of tokens."""

    products: Mapping[str, Flops]
    # For one pair of tokens that attend, in each sequence of the microbatch.
    pairs: Mapping[str, Flops]


def parts_of(draft: Draft, name: str) -> Parts:
    """FLOPs of the program ``name`` for one microbatch, by sublayer."""
    draft = rows_as_chosen(draft)
    derivation = draft.programs.derivations[name]
    again = run_again(draft, derivation)[0] if name not in (EMBEDDING, HEAD) else set()
    fused = draft.work.attention is AttentionKernel.FLASH
    training = draft.work.phase.training
    products: dict[str, Flops] = {}
    pairs: dict[str, Flops] = {}
    for placed in derivation.placed:
        found = counted(draft, placed)
        if found is None:
            continue
        own, whole = found
        attends = placed.op.rule is Rule.ATTEND
        backward = (2 * own + (own // 2 if attends and fused else 0)) if training else 0
        flops = Flops(own, backward, own if placed.op.name in again and training else 0, whole)
        into, sublayer = (pairs if attends else products), placed.op.sublayer
        into[sublayer] = into.get(sublayer, Flops()).plus(flops)
    return Parts(products, pairs)


def counted(draft: Draft, placed: Placed) -> tuple[int, int] | None:
    """FLOPs of one operation on one device, and undivided; None where it has none. Attention: for one pair."""
    op, sizes = placed.op, draft.sizes
    used = (*placed.inputs[:1], *placed.weights[:1])
    split = tuple(dict.fromkeys(axis for one in used for axes in one.split for axis in axes))
    if op.rule in (Rule.CONTRACT, Rule.ROUTE):
        chosen = ("E",) if op.rule is Rule.ROUTE else ()
        dims = dict.fromkeys(dim for one in used for dim in one.dims if dim not in chosen)
        if op.rule is Rule.ROUTE:
            dims |= dict.fromkeys(placed.output.dims)
        made = Product(2, tuple(dims), split)
    elif op.rule is Rule.ATTEND:
        width = _width(draft, placed)
        heads = placed.inputs[0].dims[1]
        data = draft.programs.layout.data
        over = tuple(axis for axis in split if axis not in data)
        made = Product(2 * width * draft.work.micro_batch_size, (heads,), over)
    elif op.rule is Rule.SCAN and op.function in _STATE_USES:
        key, value = placed.inputs[0].dims[-1], placed.output.dims
        made = Product(2 * _STATE_USES[op.function], (*value, key), split)
    elif op.rule is Rule.SCAN and placed.weights:
        made = Product(2, (*placed.output.dims, "CONV"), split)
    else:
        return None
    own = draft.own(Size((made,), 8)).value(sizes)
    whole = _undivided(made).value(sizes)
    capacity = draft.work.capacity_factor
    if capacity is not None and capacity < 1 and "Q" in made.dims:  # of the choices, those that are not dropped
        whole = whole * capacity.numerator // capacity.denominator
    return own, whole


def _width(draft: Draft, placed: Placed) -> int:
    """Elements of a head that a pair multiplies: of query and key, and of the value.

    Decoding works on the cached latents, into which the projections up from them are absorbed (DeepSeek-V2,
    arXiv:2405.04434, section 2.1.2).
    """
    sizes = draft.sizes
    if draft.model.kv_lora_rank and draft.work.phase is Phase.DECODE:
        return 2 * sizes["LKV"] + sizes["R"]
    return sizes[placed.inputs[0].dims[2]] + sizes[placed.inputs[-1].dims[2]]


def _undivided(made: Product) -> Size:
    """What one device would do alone for a microbatch, each expert on the tokens that chose it."""
    dims = made.dims
    if "Q" in dims:
        dims = ("T", "C", *(dim for dim in dims if dim not in ("E", "Q")))
    elif "E" in dims and "M" in dims:  # every expert on every token
        dims = tuple("C" if dim == "E" else dim for dim in dims)
    return Size((made._replace(dims=dims, axes=()),), 8)


def pairs_of(model: Model, work: Workload, scores: Scores) -> dict[Attention, int]:
    """Pairs of a query and a key in one sequence, for each way to attend."""
    context = work.sequence_length
    window = min(model.sliding_window or context, context)
    chunk = min(model.attention_chunk_size or context, context)
    if work.tokens_per_sequence == 1:  # the new token alone
        last = context % chunk or chunk
        return {Attention.FULL: context, Attention.SLIDING: window, Attention.CHUNKED: last, Attention.LINEAR: 0}
    full, rest = divmod(context, chunk)
    if scores is Scores.FULL:
        return {
            Attention.FULL: context * context,
            Attention.SLIDING: context * window,
            Attention.CHUNKED: full * chunk * chunk + rest * rest,
            Attention.LINEAR: 0,
        }
    return {
        Attention.FULL: context * (context + 1) // 2,
        Attention.SLIDING: window * (window + 1) // 2 + (context - window) * window,
        Attention.CHUNKED: full * (chunk * (chunk + 1) // 2) + rest * (rest + 1) // 2,
        Attention.LINEAR: 0,
    }


def layers_held(ledger: Ledger, stage: Stage) -> Counter[tuple[str, Attention]]:
    """The layers that a stage holds by program and by how they attend."""
    found: Counter[tuple[str, Attention]] = Counter()
    how, layers = attentions(ledger.model), ledger.programs.layers
    for chunk in chunks_of(ledger, stage):
        found.update((layers.names[layers.kinds[at]], how[at]) for at in chunk)
    return found


def chunks_of(ledger: Ledger, stage: Stage) -> Iterator[range]:
    """The numbers of the layers of a stage, chunk by chunk; where it holds the stage of its mirror too, that last."""
    chunks, stages = ledger.parallel.virtual_stages, ledger.parallel.pp
    if chunks > 1:
        each = stage.layers // chunks
        for turn in range(chunks):
            first = (turn * stages + stage.number) * each
            yield range(first, first + each)
        return
    for number in (stage.number, stages - 1 - stage.number)[: stage.ends]:
        first = sum(one.layers for one in ledger.stages[:number])
        yield range(first, first + ledger.stages[number].layers)


class Computed(NamedTuple):
    """FLOPs of a ledger's programs, with how many pairs attend in each kind of layer."""

    parts: Mapping[str, Parts]
    pairs: Mapping[Attention, int]

    def block(self, name: str, attention: Attention, sublayers: tuple[str, ...] = ()) -> Flops:
        """One layer; of some of its sublayers alone where they are named."""
        found, parts = Flops(), self.parts.get(name, Parts({}, {}))
        for sublayer, flops in parts.products.items():
            if not sublayers or sublayer in sublayers:
                found = found.plus(flops)
        for sublayer, flops in parts.pairs.items():
            if not sublayers or sublayer in sublayers:
                found = found.plus(flops.times(self.pairs[attention]))
        return found

    def attention(self, ledger: Ledger, stage: Stage) -> Flops:
        """What of `stage` is attention."""
        found = Flops()
        for (name, attention), count in layers_held(ledger, stage).items():
            for flops in self.parts.get(name, Parts({}, {})).pairs.values():
                found = found.plus(flops.times(count * self.pairs[attention]))
        return found

    def stage(self, ledger: Ledger, stage: Stage) -> Flops:
        """All that a stage does for one microbatch from every end, embedding and head with it."""
        found = Flops()
        for (name, attention), count in layers_held(ledger, stage).items():
            found = found.plus(self.block(name, attention).times(count))
        for name in (EMBEDDING, PREDICTION, HEAD):
            if name in self.parts and stage.times[name]:
                found = found.plus(self.block(name, Attention.FULL).times(stage.times[name]))
        return found


def computed(ledger: Ledger, scores: Scores = Scores.FULL) -> Computed:
    """FLOPs of all programs of a ledger."""
    draft = ledger.draft
    return Computed(
        {name: parts_of(draft, name) for name in ledger.programs.derivations},
        pairs_of(ledger.model, ledger.work, scores),
    )


def usual_attention(ledger: Ledger) -> Attention:
    """How most layers of the usual kind attend."""
    kinds, how, usual = ledger.programs.layers, attentions(ledger.model), ledger.usual
    same = [one for one, kind in zip(how, kinds.kinds, strict=True) if kinds.names[kind] == usual]
    return Counter(same).most_common(1)[0][0]


def lacking_sizes(ledger: Ledger) -> list[str]:
    """Sizes of weights and tensors that the model does not give, by its keys."""
    tensors = (tensor for one in ledger.derivations.values() for tensor in one.program.tensors.values())
    return sorted({key_of(dim) for tensor in tensors for dim in tensor.dims if dim not in ledger.sizes})
