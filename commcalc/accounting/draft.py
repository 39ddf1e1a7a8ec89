"""From the schedules of a model's programs to rows: what each collective of them moves, and how often."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from commcalc.accounting.programs import EMBEDDING, HEAD, Programs, copies_of, repeated
from commcalc.accounting.rows import GROUPS, RECOMPUTE, ROOT, TIED, TO_NEXT, TO_PREVIOUS, UPDATE, Call, Row, Stage
from commcalc.algebra.collective import Convention, Kind, wire_bytes
from commcalc.algebra.notation import format_tensor
from commcalc.algebra.program import Role
from commcalc.algebra.schedule import BACKWARD, FORWARD, Event
from commcalc.algebra.sharding import Sharding
from commcalc.algebra.size import Product, Size, total
from commcalc.transformer.layout import CHOICES, COMBINE, DISPATCH, EP, ETP, TP, Layout
from commcalc.transformer.spec import Model
from commcalc.transformer.work import CpComm, Dispatch, Framework, Parallelism, Workload, copies_of_a_token
from commcalc.units import Dtype


class Draft(NamedTuple):
    """A question with its programs; ``sizes`` maps every name in the formulas to its number."""

    model: Model
    parallel: Parallelism
    work: Workload
    convention: Convention
    programs: Programs
    sizes: dict[str, int]

    def rows(self) -> list[Row]:
        """The rows of every program in the order they run: embedding, blocks, head forward; then backward."""
        derivations = self.programs.derivations
        rows = [row for name, one in derivations.items() for row in self._events(name, FORWARD, one.steps(FORWARD))]
        for name in reversed(derivations):
            again, why = repeated(name, derivations[name], self.programs.dialect, self.work)
            rows += self._events(name, RECOMPUTE, again, why)
            rows += self._events(name, BACKWARD, derivations[name].steps(BACKWARD))
        return [row for row in rows if row.group_size > 1]

    def of_stage(self, stage: Stage) -> list[Row]:
        """The rows that no program has: of parameters and their gradients, and between stages."""
        between = [one for one in self._messages() if stage.times[one.part]]
        rows = [self._call(one) for one in between if one.per == "microbatch"]
        if self.work.phase.training:
            rows += self._syncs(stage)
            rows += [self._call(one) for one in self._exchanges(stage)]
        rows += [self._call(one) for one in between if one.per != "microbatch"]
        return [row for row in rows if row.group_size > 1]

    def _messages(self) -> Iterable[Call]:
        """What pipeline stages send."""
        if self.parallel.pp == 1:
            return ()
        from commcalc.accounting.pipeline import messages

        return messages(self.model, self.programs, self.parallel, self.work, self.sizes)

    def _exchanges(self, stage: Stage) -> Iterable[Call]:
        """What ranks exchange that hold the same parameters."""
        if not self.programs.summed:
            return ()
        from commcalc.accounting.data_parallel import calls

        return calls(self.programs, self.parallel, self.work, self.sizes, stage)

    def sent(self, rows: list[Row], stage: Stage, microbatches: int) -> int:
        """Wire bytes of a stage in a step, to find the busiest."""
        both = [*rows, *self.of_stage(stage)]
        return sum(row.wire_bytes * times_in_step(row, stage, microbatches) for row in both)

    def _syncs(self, stage: Stage) -> list[Row]:
        """One coalesced AllReduce for the gradients of parameters that the ranks of a TP group hold alike, once a step.

        Under ZeRO 3 it is of shards; under ZeRO 2 gradients leave in every microbatch, so that it comes before.
        Source: Megatron-LM core/distributed/finalize_model_grads.py, _allreduce_non_tensor_model_parallel_grads.
        """
        groups: dict[tuple[str, ...], list[tuple[str, Size]]] = {}
        tables: set[tuple[str, tuple[str, ...]]] = set()  # one that embedding and head share has one gradient
        bits, layout = self.work.grad_dtype.bits, self.programs.layout
        for name, derivation in self.programs.derivations.items():
            # Embedding and head hold their weights once, however often they run.
            times = min(stage.times[name], 1) if name in (EMBEDDING, HEAD) else stage.times[name]
            for weight, grad in derivation.pending:
                axes = tuple(axis for axis in grad.unreduced if axis not in copies_of(weight, layout))
                if times and axes and (weight, axes) not in tables:
                    tables |= {(weight, axes)} if name in (EMBEDDING, HEAD) else set()
                    held = [grad.local_elements()]
                    if self.parallel.zero == 3:
                        from commcalc.accounting.data_parallel import shards

                        held = shards(self.programs, self.parallel, name, weight, self.sizes) or held
                    products = tuple(one._replace(factor=times * one.factor) for one in held)
                    groups.setdefault(axes, []).append((weight, Size(products, bits)))
        rows = []
        for axes, members in groups.items():
            names = ", ".join(sorted({f"d{weight}" for weight, _ in members}))
            payload = total(size for _, size in members)
            note = "gradients of parameters that the ranks of the group hold alike, in one call"
            row = self._row(
                "all", UPDATE, "replicated parameters", "gradient_sync", Kind.ALL_REDUCE, axes, names,
                Role.GRADIENT, payload, "microbatch" if self.parallel.zero == 2 else "step", note,
            )  # fmt: skip
            rows.append(row)
        return rows

    def _call(self, one: Call) -> Row:
        """A collective of parameters, or between stages, as a row."""
        of = "" if one.part == "all" else f" of {'embedding and head' if one.part == ROOT else 'a layer'}"
        sublayer = "pipeline" if one.part in (TO_NEXT, TO_PREVIOUS, TIED) else f"parameters{of}"
        row = self._row(
            one.part, one.direction, sublayer, one.op, one.kind, one.axes, one.tensor, one.role, one.payload,
            one.per, one.note,
        )  # fmt: skip
        if one.part == TIED or one.mirrored:  # first and last stage alone; the ranks of two stages
            n = 2 if one.part == TIED else row.group_size * self.programs.mirrors
            wire = wire_bytes(one.kind, row.payload_bytes, n, self.convention)
            row = row._replace(group_size=n, wire_bytes=wire, mirrored=one.mirrored)
        return row._replace(calls=one.calls, group=one.group or row.group)

    def _events(self, part: str, direction: str, events: Sequence[Event], note: str = "") -> list[Row]:
        """Rows of one pass of a program; keys and values that go round a ring are one message of each hop."""
        rows = []
        ring = self.parallel.cp > 1 and self.parallel.cp_comm is CpComm.RING
        rounds: dict[tuple[Kind, str], list[Event]] = {}
        places: dict[tuple[Kind, str], int] = {}
        for event in events:
            if not ring or event.label != "attention" or event.step.axes != self.programs.layout.context:
                rows.append(self._event(part, direction, event, note))
                continue
            round_ = (event.step.kind, event.note)
            if round_ not in rounds:
                places[round_] = len(rows)
            rounds.setdefault(round_, []).append(event)
        for which, together in reversed(rounds.items()):
            rows.insert(places[which], self._round(part, direction, together, note))
        return rows

    def _round(self, part: str, direction: str, events: Sequence[Event], note: str) -> Row:
        """What was gathered or scattered over a context group, passed on from rank to rank instead.

        Source: Ring Attention, Liu et al. 2023, arXiv:2310.01889, section 3; Transformer Engine
        attention/dot_product_attention/context_parallel.py sends keys with values, and in the backward pass their
        gradients too.
        """
        gathers = events[0].step.kind is Kind.ALL_GATHER
        held = [event.step.before if gathers else event.step.after for event in events]
        bits = dtypes(self.work)[events[0].role].bits
        payload = total([self.own(one.local_size(bits)) for one in held])
        names = ", ".join(event.tensor for event in events)
        per = "block" if part in self.programs.blocks else "microbatch"
        row = self._row(
            part, direction, events[0].sublayer, events[0].label, Kind.SEND_RECV, events[0].step.axes, names,
            events[0].role, payload, per, note or events[0].note or "one hop of a ring",
        )  # fmt: skip
        return row._replace(calls=self.parallel.cp - 1)

    def _event(self, part: str, direction: str, event: Event, note: str = "") -> Row:
        step, label = event.step, event.label
        payload = self._with_scales(event, self.own(step.payload(self._sent_as(event).bits), step.axes))
        per = "block" if part in self.programs.blocks else "microbatch"
        row = self._row(
            part, direction, event.sublayer, label, step.kind, step.axes,
            notation_of(self.programs.layout, event.tensor, step.before), event.role, payload, per, note or event.note,
        )  # fmt: skip
        return row._replace(group=group_of(self.programs.layout, event), dtype=self._sent_as(event))

    def _sent_as(self, event: Event) -> Dtype:
        """The element type of what goes to experts and comes back; gradients stay in the type of the work."""
        asked = {DISPATCH: self.work.dispatch_dtype, COMBINE: self.work.combine_dtype}.get(event.label)
        if event.tensor == "chosen" and self.parallel.framework in (Framework.VLLM, Framework.SGLANG):
            return Dtype.INT32
        if event.tensor in CHOICES and self.parallel.ep_nodes > 1:  # DeepEP csrc/kernels/internode.cu; else topk_idx_t
            return Dtype.INT32
        forward = not event.tensor.startswith("d") and event.role is Role.ACTIVATION
        return asked if asked and forward and self.programs.layout.moves_tokens else dtypes(self.work)[event.role]

    def _with_scales(self, event: Event, size: Size) -> Size:
        """With the scale that each block of elements of a narrow type has, in fp32."""
        if not self.work.scale_block or event.label != DISPATCH or self._sent_as(event).bits > 8:
            return size
        rows = [tuple(dim for dim in one.dims if dim != "D") for one in size.products]
        each = -(-self.sizes["D"] // self.work.scale_block) * Dtype.FP32.bits // size.bits
        scales = [
            one._replace(factor=one.factor * each, dims=dims) for one, dims in zip(size.products, rows, strict=True)
        ]
        return size._replace(products=(*size.products, *scales))

    def _row(
        self,
        part: str,
        direction: str,
        sublayer: str,
        op: str,
        kind: Kind,
        axes: tuple[str, ...],
        tensor: str,
        role: Role,
        payload: Size,
        per: str,
        note: str,
    ) -> Row:
        layout = self.programs.layout
        n = layout.mesh.size(axes)
        count = payload.value(self.sizes)
        return Row(
            part, direction, sublayer, op, kind, group_of_axes(layout, axes) if axes else "", n, axes, tensor, role,
            dtypes(self.work)[role], payload, count, wire_bytes(kind, count, n, self.convention), 1, per, note,
        )  # fmt: skip

    def own(self, size: Size, over: tuple[str, ...] = ()) -> Size:
        """A size in tokens of one data-parallel rank; rows for experts, sent ``over`` axes, as tokens."""
        return size._replace(products=tuple(self._of_one_rank(product, over) for product in size.products))

    def _of_one_rank(self, product: Product, over: tuple[str, ...]) -> Product:
        dims, factor = product.dims, product.factor
        if not {"T", "B", "Q"} & set(dims):
            return product
        layout = self.programs.layout
        rows = "Q" in dims
        axes = tuple(axis for axis in product.axes if axis not in layout.data)
        if rows and self.work.capacity_factor is None:
            rest = tuple(dim for dim in dims if dim not in ("E", "Q"))
            dims = ("T", "C", *rest)
            if self.parallel.moves_tokens and self.parallel.sends_tokens is Dispatch.DEDUPLICATED:
                # A copy of the token goes with all of its choices.
                dims = ("T", *rest) if rest else dims
                part = "node_copies" if over and over == layout.expert_nodes else "copies"
                factor *= copies_of_a_token(self.sizes["E"], self.sizes["C"], self.parallel)[part].numerator
                axes = (*axes, part)
        # What more tokens than one rank has were gathered from.
        gathered = [axis for axis in layout.data if axis not in product.axes]
        factor *= layout.mesh.size(gathered)
        if rows and self.work.imbalance != 1:
            factor *= self.work.imbalance.numerator
            axes = (*axes, "imbalance")
        return Product(factor, dims, axes)


def notation_of(layout: Layout, name: str, sharding: Sharding) -> str:
    """A tensor as one data-parallel rank sees it."""
    return format_tensor(name, of_one_rank(layout, sharding), layout.mesh)


def of_one_rank(layout: Layout, sharding: Sharding) -> Sharding:
    """How an activation lies on the devices that share a microbatch."""
    for dim in ("T", "B", "Q", "E", "W") if layout.data else ():
        if dim in sharding.dims:
            sharding = sharding.with_dim(dim, [axis for axis in sharding.axes_of(dim) if axis not in layout.data])
    return sharding


def group_of(layout: Layout, event: Event) -> str:
    """What the ranks of a collective of a program are called; those of a layer with experts may be an expert group."""
    axes, label = event.step.axes, event.label
    if layout.moves_tokens and event.sublayer == "moe":
        moved = label in (DISPATCH, COMBINE, "router", "experts")
        if moved and set(axes) <= set(layout.expert_tp):
            return ETP
        # Sums over ranks that have the same tokens are of TP.
        same = all(layout.mesh.owner(axis) == TP and axis not in layout.stream.get("T", ()) for axis in axes)
        if moved and label != "experts" and not (same and event.step.kind is Kind.ALL_REDUCE):
            return EP
    return group_of_axes(layout, axes)


def group_of_axes(layout: Layout, axes: tuple[str, ...]) -> str:
    """The group of an axis; parts of one are of its group, save for those with names of their own."""
    return axes[0] if len(axes) == 1 and axes[0] in GROUPS else layout.mesh.owner(axes[0])


def dtypes(work: Workload) -> dict[Role, Dtype]:
    """The element type in which tensors of each role are sent."""
    narrow = {Role.MASK: Dtype.INT8, Role.INDEX: Dtype.INT64}
    activations = {Role.ACTIVATION: work.dtype, Role.WEIGHT: work.dtype}
    return narrow | activations | {Role.GRADIENT: work.grad_dtype, Role.FP32: Dtype.FP32}


def times_in_step(row: Row, stage: Stage, microbatches: int) -> int:
    """How often a row happens in a step on one device of a stage."""
    if row.per == "step":
        return row.calls
    each = row.calls * stage.times[row.part]
    # "layer": once in a step for each layer of the kind. From every end come equally many microbatches.
    return each if row.per == "layer" else each * (microbatches // stage.ends)
