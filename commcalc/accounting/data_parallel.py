"""What data-parallel ranks exchange: the gradients of parameters, and parameters that are stored in shards.

Every rank works on sequences of its own, so that by the rule of `algebra.derive` the gradient of every parameter is a
pending sum over the data axes. What brings it to where the optimizer wants it, and a parameter from where it is
stored to where it is used, are reshards like any other:

    ZeRO 0   stored whole                     gradients: pending -> whole, once a step
    ZeRO 1   optimizer states in shards       gradients: pending -> shards, parameters: shards -> whole, once a step
    ZeRO 2   gradients in shards too          the same, gradients in every microbatch
    ZeRO 3   parameters in shards too (FSDP)  parameters: shards -> whole before they are used, forward and backward;
                                              gradients: pending -> shards, in every microbatch

Calls of a group of parameters are one: of all of a stage, or in ZeRO 3 of a block, of which every parameter is padded
to equal shards of its first dimension. Sources: Rajbhandari et al. 2019, arXiv:1910.02054, section 7; PyTorch FSDP2
(torch/distributed/fsdp, fully_shard), whose calls tests/data/fsdp2_collectives.json records.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from commcalc.accounting.programs import EMBEDDING, HEAD, PREDICTION, Programs, copies_of, replicating
from commcalc.accounting.rows import MIRROR, ROOT, UPDATE, Call, Stage
from commcalc.algebra.collective import Kind
from commcalc.algebra.program import Op, Program, Role, Rule
from commcalc.algebra.reshard import reshard
from commcalc.algebra.schedule import BACKWARD, FORWARD
from commcalc.algebra.sharding import Sharding
from commcalc.algebra.size import Product, Size, total
from commcalc.transformer.layout import EDP
from commcalc.transformer.work import Parallelism, Reshard, Workload


class _Parameter(NamedTuple):
    """A weight as it is used, the dimensions of it that are stored first, and the axes its gradient is pending over."""

    name: str
    used: Sharding
    first: tuple[str, ...]
    copies: tuple[str, ...]

    def stored(self, shard: tuple[str, ...]) -> Sharding:
        """As ZeRO 3 keeps it: its first dimension split over ``shard`` too."""
        dim = (self.first or self.used.dims)[0]
        return self.used.with_dim(dim, (*self.used.axes_of(dim), *shard))


def calls(
    programs: Programs, parallel: Parallelism, work: Workload, sizes: Mapping[str, int], stage: Stage
) -> Iterator[Call]:
    """Every exchange over the data axes on one stage; none where there is one rank, or no gradient."""
    if not work.phase.training or not knows_parameters(programs, sizes):
        return
    if parallel.zero == 3:
        yield from _sharded(programs, parallel, work, sizes, stage)
        return
    mirrored = programs.mirrors > 1
    groups: dict[tuple[str, ...], list[Product]] = {}
    for one, times in _of_stage(programs, stage):
        groups.setdefault(one.copies, []).append(Product(times, one.used.dims, _split(one.used)))
    for copies, held in groups.items():
        group = EDP if copies == programs.layout.expert_data and copies != programs.layout.replicas else "dp"
        what = " of experts" if group == EDP else ""
        elements = Size(tuple(held), 8).value(sizes)
        # Parameters go in the same buckets as their gradients: a rank has a shard of each.
        each = max(work.bucket_bytes * 8 // work.grad_dtype.bits, 1) if work.bucket_bytes else elements
        n = programs.layout.mesh.size(copies) * programs.mirrors if parallel.zero else 1
        kind = Kind.REDUCE_SCATTER if parallel.zero else Kind.ALL_REDUCE
        per = "microbatch" if parallel.zero == 2 else "step"
        for payload, count in _buckets(held, elements, work.grad_dtype.bits, each, n):
            yield Call(
                "all", UPDATE, "gradients", kind, copies, f"gradients{what}", Role.GRADIENT, payload, per, count,
                group=group, mirrored=mirrored,
            )  # fmt: skip
        if parallel.zero:
            for payload, count in _buckets(held, elements, work.dtype.bits, each, n):
                yield Call(
                    "all", UPDATE, "parameters", Kind.ALL_GATHER, copies, f"parameters{what}", Role.WEIGHT, payload,
                    "step", count, group=group, mirrored=mirrored,
                )  # fmt: skip


def knows_parameters(programs: Programs, sizes: Mapping[str, int]) -> bool:
    """Whether the sizes of all parameters that have copies are given."""
    every = (one for name in programs.derivations for one in _of(programs, name))
    return all(dim in sizes for one in every for dim in one.used.dims)


def _buckets(held: Sequence[Product], elements: int, bits: int, each: int, n: int) -> list[tuple[Size, int]]:
    """Payloads and how many calls have them: all in one, or in buckets of so many elements and what is left.

    All are padded to ``n`` equal shards.
    """
    if each >= elements:
        padding = [Product(-elements % n, ())] if elements % n else []
        return [(total([Size((product,), bits) for product in (*held, *padding)]), 1)]
    each = max(each // n, 1) * n
    full, rest = divmod(elements, each)
    found = [(Size((Product(each, ()),), bits), full)] if full else []
    return found + ([(Size((Product(rest + -rest % n, ()),), bits), 1)] if rest else [])


def _sharded(
    programs: Programs, parallel: Parallelism, work: Workload, sizes: Mapping[str, int], stage: Stage
) -> Iterator[Call]:
    """ZeRO 3: a group for each block, and one for what lies outside of blocks (FSDP2's root); experts by themselves."""
    groups = [(name, list(_of(programs, name))) for name in programs.blocks]
    # A rank that holds two stages has a module of each, and microbatches of either run through one of them.
    for times in (stage.own, stage.mirrored) if stage.ends > 1 else (stage.times,):
        ends = [name for name in (EMBEDDING, HEAD) if name in programs.derivations and times[name]]
        outside = [one for name in ends for one in _of(programs, name)]
        # A tied table is one parameter.
        groups.append((ROOT, list({(one.used, one.name): one for one in outside}.values())))
    if stage.times[PREDICTION]:
        groups.append((PREDICTION, list(_of(programs, PREDICTION))))
    for part, every in groups:
        if not stage.times[part]:
            continue
        for copies in dict.fromkeys(one.copies for one in every):
            members = [one for one in every if one.copies == copies]
            yield from _group(part, members, _Ranks.of(programs, parallel, copies), sizes, work)


class _Ranks(NamedTuple):
    """The ranks that share one group of parameters: those that shard a copy, and those that hold its shards alike.

    Mirrored ranks shard it too, or where it is said how many ranks do, hold one more copy.
    """

    shard: tuple[str, ...]
    replicas: tuple[str, ...]
    ways: int
    names: tuple[str, str]
    what: str
    shards_mirrored: bool
    copies_mirrored: bool

    @property
    def split(self) -> tuple[str, ...]:
        """Names of what a parameter is divided by."""
        return (*self.shard, MIRROR) if self.shards_mirrored else self.shard

    @classmethod
    def of(cls, programs: Programs, parallel: Parallelism, copies: tuple[str, ...]) -> "_Ranks":
        layout = programs.layout
        expert = copies == layout.expert_data and copies != layout.replicas
        replicas = replicating(parallel, layout)
        shard = tuple(axis for axis in copies if axis not in replicas)
        held = tuple(axis for axis in copies if axis in replicas)
        sharding = programs.mirrors > 1 and parallel.dp_shard is None
        copying = programs.mirrors > 1 and not sharding
        names = ("dp_shard" if replicas else "dp", "dp_replica")
        if expert:
            names = (EDP, names[1])
        ways = layout.mesh.size(shard) * (programs.mirrors if sharding else 1)
        return cls(shard, held, ways, names, " of experts" if expert else "", sharding, copying)


def _group(
    part: str, members: Sequence[_Parameter], ranks: _Ranks, sizes: Mapping[str, int], work: Workload
) -> Iterator[Call]:
    """The gathers of one group and the scatter of its gradients, as the reshards of its parameters say."""
    shard, per = ranks.shard, _per(part)
    held = list(_padded(members, ranks.ways, sizes))
    weights = total([Size((product,), work.dtype.bits) for product in held])
    gradients = total([Size((product,), work.grad_dtype.bits) for product in held])
    names, group = (f"parameters{ranks.what}", f"gradients{ranks.what}"), ranks.names[0]
    kept = work.reshard is Reshard.NEVER or (work.reshard is Reshard.BLOCKS and part == ROOT)
    if ranks.split:
        split = ranks.split
        (gather,) = {step.kind for one in members for step in reshard(one.stored(split), one.used)}
        (scatter,) = {step.kind for one in members for step in reshard(one.used.reduced(split), one.stored(split))}
        gathered = Call(
            part, FORWARD, "parameters", gather, shard, names[0], Role.WEIGHT, weights, per, group=group,
            mirrored=ranks.shards_mirrored,
        )  # fmt: skip
        yield gathered
        if not kept:
            yield gathered._replace(direction=BACKWARD, note="resharded after the forward pass")
        yield Call(
            part, BACKWARD, "gradients", scatter, shard, names[1], Role.GRADIENT, gradients, per, group=group,
            mirrored=ranks.shards_mirrored,
        )  # fmt: skip
    if ranks.replicas or ranks.copies_mirrored:
        pieces = [product._replace(axes=(*product.axes, *shard)) for product in held]
        payload = total([Size((product,), work.grad_dtype.bits) for product in pieces])
        once = work.defer_all_reduce
        yield Call(
            part, UPDATE if once else BACKWARD, "gradients", Kind.ALL_REDUCE, ranks.replicas,
            f"gradient shards{ranks.what}", Role.GRADIENT, payload,
            ("layer" if part not in (ROOT, PREDICTION) else "step") if once else per, group=ranks.names[1],
            mirrored=ranks.copies_mirrored,
        )  # fmt: skip


def shards(
    programs: Programs, parallel: Parallelism, name: str, weight: str, sizes: Mapping[str, int]
) -> list[Product]:
    """Elements that one rank keeps of a parameter of a program under ZeRO 3: padded; none without copies."""
    members = [one for one in _of(programs, name) if one.name == weight]
    if not members:
        return []
    ranks = _Ranks.of(programs, parallel, members[0].copies)
    return [product._replace(axes=(*product.axes, *ranks.split)) for product in _padded(members, ranks.ways, sizes)]


def _per(part: str) -> str:
    return "microbatch" if part in (ROOT, PREDICTION) else "block"


def _padded(members: Sequence[_Parameter], n: int, sizes: Mapping[str, int]) -> Iterator[Product]:
    """Elements of each parameter on one rank of its other groups, and what pads its first dimension to ``n`` shards."""
    for one in members:
        split = {axis: dim for dim, axes in zip(one.used.dims, one.used.split, strict=True) for axis in axes}
        yield Product(1, one.used.dims, tuple(split))
        first = prod(sizes[dim] for dim in one.first)
        first //= prod(sizes[axis] for axis, dim in split.items() if dim in one.first)
        rest = prod(sizes[dim] for dim in one.used.dims if dim not in one.first)
        rest //= prod(sizes[axis] for axis, dim in split.items() if dim not in one.first)
        if first % n:
            yield Product((-first % n) * rest, ())


def _of_stage(programs: Programs, stage: Stage) -> Iterator[tuple[_Parameter, int]]:
    """The parameters of a stage, each with how many layers have one; a tied table once."""
    seen = set()
    for name in programs.derivations:
        times = min(stage.times[name], 1) if name in (EMBEDDING, HEAD) else stage.times[name]
        for one in _of(programs, name) if times else ():
            if name in (EMBEDDING, HEAD) and one.name in seen:
                continue
            seen.add(one.name)
            yield one, times


def _of(programs: Programs, name: str) -> Iterator[_Parameter]:
    """The parameters of a program whose gradients are pending sums over the data axes, copies of experts or mirrors."""
    derivation, layout = programs.derivations[name], programs.layout
    program = derivation.program
    for op in program.ops:
        for weight in op.weights:
            gradient = derivation.gradients.get(weight)
            used = program.tensors[weight].sharding
            if gradient is None or used is None:
                continue
            ranks = copies_of(weight, layout)
            copies = tuple(axis for axis in ranks if axis in gradient.sharding.unreduced)
            if copies or programs.mirrors > 1:
                yield _Parameter(weight, used, _first(op, weight, program), copies)


def _first(op: Op, weight: str, program: Program) -> tuple[str, ...]:
    """The dimensions that are stored first: experts, rows of a table, outputs of a linear layer, else the first.

    Biases and norms over all heads are one vector, convolutions stored by channel.
    Source: torch.nn.Linear keeps its weight as [out, in].
    """
    dims = program.tensors[weight].dims
    if op.function == "convolution":
        return dims[:-1]
    vector = op.rule is Rule.NORM and set(dims) <= set(op.over)
    vector = vector or op.rule in (Rule.BIAS, Rule.POINTWISE)
    if vector and dims[0] not in ("E", "P"):
        return dims
    if op.rule is Rule.CONTRACT and weight == op.weights[0] and dims[0] != "E":
        # None where a layer has one output: [1, in].
        return tuple(dim for dim in dims if dim in program.tensors[op.output].dims)
    return dims[:1]


def _split(sharding: Sharding) -> tuple[str, ...]:
    return tuple(axis for axes in sharding.split for axis in axes)
