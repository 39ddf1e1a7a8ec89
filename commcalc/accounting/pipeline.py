"""What pipeline stages exchange: activations to the next stage, their gradients back, and a tied table's gradient.

A message is the residual stream as one rank holds it, so split by tokens where the layout splits it (Megatron-LM
core/pipeline_parallel/p2p_communication.py; without sequence parallelism every TP rank sends the whole). Bubbles:
Narayanan et al. 2021, arXiv:2104.04473, section 2.2 (1F1B, and interleaved by v chunks, which multiplies messages by
v); DeepSeek-V3, arXiv:2412.19437, table 2 (ZB1P and DualPipe, in units of a chunk's forward pass F, with B = 2F of
which W = F is for the weights, and F and B overlapped in 2.5F).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from commcalc.accounting.data_parallel import shards
from commcalc.accounting.programs import EMBEDDING, Programs
from commcalc.accounting.rows import TIED, TO_NEXT, TO_PREVIOUS, UPDATE, Call
from commcalc.algebra.collective import Kind
from commcalc.algebra.program import Role
from commcalc.algebra.schedule import BACKWARD, FORWARD
from commcalc.algebra.size import Product, Size
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Framework, Parallelism, Schedule, Workload

# Forward, backward, of that for weights, and both overlapped, of a chunk on one stage.
_F, _B, _W, _BOTH = Fraction(1), Fraction(2), Fraction(1), Fraction(5, 2)


def messages(
    model: Model, programs: Programs, parallel: Parallelism, work: Workload, sizes: Mapping[str, int]
) -> Iterator[Call]:
    """The exchanges of one stage; how many a stage has, `Stage.times` says."""
    if parallel.pp == 1:
        return
    bits = work.dtype.bits
    stream = programs.layout.stream_of("T", "D")
    data = programs.layout.data
    held = Product(1, ("T", "D"), tuple(axis for axes in stream.split for axis in axes if axis not in data))
    if parallel.framework is Framework.VLLM:
        yield from _of_vllm(programs, parallel, bits)
        return
    payload = Size((held,), bits)
    yield Call(
        TO_NEXT, FORWARD, "send activation", Kind.SEND_RECV, ("pp",), "X", Role.ACTIVATION, payload, "microbatch"
    )  # fmt: skip
    if not work.phase.training:
        return
    yield Call(
        TO_PREVIOUS, BACKWARD, "send gradient", Kind.SEND_RECV, ("pp",), "dX", Role.ACTIVATION, payload, "microbatch"
    )  # fmt: skip
    if EMBEDDING in programs.derivations and (model.tie_word_embeddings or work.predict_layers):
        table = programs.derivations[EMBEDDING].program.tensors["E"].sharding
        if table is not None:
            size = table.local_size(work.grad_dtype.bits)
            # Of shards, as Megatron-FSDP adds them (_allreduce_embedding_grad).
            if parallel.zero == 3 and programs.layout.replicas:
                size = Size(tuple(shards(programs, parallel, EMBEDDING, "E", sizes)), work.grad_dtype.bits)
            note = "first and last stage hold the table: their gradients are added"
            per = "microbatch" if parallel.zero == 2 else "step"  # before gradients leave
            yield Call(
                TIED, UPDATE, "tied_embedding", Kind.ALL_REDUCE, ("pp",), "dE", Role.GRADIENT, size, per, 1, note
            )


def _of_vllm(programs: Programs, parallel: Parallelism, bits: int) -> Iterator[Call]:
    """Hidden states and residual, a part from each TP rank, and gathered where they arrive.

    Source: vLLM 0.33.0 distributed/parallel_state.py, send_tensor_dict and recv_tensor_dict.
    """
    tp = programs.layout.mesh.expand(["tp"]) if parallel.tp > 1 else ()
    message = Size((Product(1, ("T", "D"), tp),), bits)
    yield Call(
        TO_NEXT, FORWARD, "send activation", Kind.SEND_RECV, ("pp",), "X, residual", Role.ACTIVATION, message,
        "microbatch", 2,
    )  # fmt: skip
    if tp:
        whole = Size((Product(1, ("T", "D"), ()),), bits)
        yield Call(
            TO_PREVIOUS, FORWARD, "receive activation", Kind.ALL_GATHER, tp, "X, residual", Role.ACTIVATION, whole,
            "microbatch", 2,
        )  # fmt: skip


def bubble(parallel: Parallelism, microbatches: int, *, training: bool = True) -> Fraction:
    """Idle time of a stage over the time of its work, by schedule; without a backward pass there is nothing to fill in.

    >>> bubble(Parallelism(pp=8), 64)
    Fraction(7, 64)
    """
    p, m = parallel.pp, microbatches
    if not training:
        return Fraction(p - 1, m)
    if parallel.schedule is Schedule.ZB1P:
        return (p - 1) * (_F + _B - 2 * _W) / (m * (_F + _B))
    if parallel.schedule is Schedule.DUALPIPE:
        return (Fraction(p, 2) - 1) * (_BOTH + _B - 3 * _W) / (m * (_F + _B))
    return Fraction(p - 1, m * parallel.virtual_stages)
