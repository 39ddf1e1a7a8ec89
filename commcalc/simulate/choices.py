"""Every choice of experts that a token may make, once: what an average over all choices is exact on.

A token chooses C of E experts; where it may go to some of the nodes alone, to L of N, it chooses the nodes first and
then C experts of those. Each rank has a token for each of these choices, or several, in an order drawn at random.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, count
from math import comb

import numpy as np

from commcalc.accounting.ledger import Ledger
from commcalc.errors import UsageError
from commcalc.simulate.capacity import ranks_of
from commcalc.simulate.wire import Array
from commcalc.transformer.spec import Model
from commcalc.transformer.work import Dispatch, Parallelism, Workload

# Tokens of a rank, beyond which a run takes too long.
_MOST = 1000


def sends_copies(parallel: Parallelism) -> bool:
    """Whether tokens go once to a rank, so that it matters which experts are chosen together."""
    return parallel.moves_tokens and parallel.sends_tokens is Dispatch.DEDUPLICATED


def ways(model: Model, parallel: Parallelism) -> int:
    """How many choices there are; `UsageError` where they are too many to run them all.

    Degrees that are not legal leave none: that is for the ledger to say, and here as if there were one.
    """
    experts, chosen, nodes = model.num_experts or 1, model.num_experts_per_tok or 1, parallel.ep_nodes
    limit = parallel.node_limit or nodes
    found = comb(nodes, limit) * comb(limit * (experts // nodes), chosen)
    if found > _MOST:
        raise UsageError(
            f"a token may choose among {experts} experts in {found:,} ways, and verify has a token for each of them",
            where="--dispatch deduplicated",
            hint="fewer experts: --set model.num_experts=8 --set model.num_experts_per_tok=2",
        )
    return max(found, 1)


def every_choice(experts: int, chosen: int, nodes: int, limit: int) -> Array:
    """All choices, [ways, C], each in rising order.

    >>> every_choice(4, 2, nodes=2, limit=1).tolist()
    [[0, 1], [2, 3]]
    """

    def each() -> Iterator[tuple[int, ...]]:
        on_node = experts // nodes
        for some in combinations(range(nodes), limit):
            open_to = [expert for expert in range(experts) if expert // on_node in some]
            yield from combinations(open_to, chosen)

    return np.array(list(each()))


def drawn(ledger: Ledger, tokens: int, rng: np.random.Generator) -> Array | None:
    """The choices of all tokens, [T, C], each as often as others on every rank; None where routers choose."""
    parallel, sizes = ledger.parallel, ledger.sizes
    if not sends_copies(parallel) or "E" not in sizes:
        return None
    nodes = parallel.ep_nodes
    found = every_choice(sizes["E"], sizes["C"], nodes, parallel.node_limit or nodes)
    ranks = ranks_of(ledger)
    each = tokens // ranks
    if each % len(found):
        raise _uneven(each, len(found), "workload.sequence_length (--seq)")
    return np.concatenate([rng.permutation(np.tile(found, (each // len(found), 1))) for _ in range(ranks)])


def _uneven(tokens: int, choices: int, where: str) -> UsageError:
    told = f"{tokens} tokens of a rank are no multiple of the {choices} choices that a token may make"
    return UsageError(told, where=where, hint="leave it out: then there are as many as are needed")


def check_choices(work: Workload, model: Model, parallel: Parallelism, where: str) -> None:
    """`UsageError` where the tokens of a rank are not as many for each choice as for any other."""
    each, choices = work.tokens // (parallel.tp * parallel.cp), ways(model, parallel)
    if each % choices:
        raise _uneven(each, choices, where)


def with_every_choice(work: Workload, model: Model, parallel: Parallelism) -> Workload:
    """``work`` with as few tokens as give each rank one for every choice, or as many again."""
    each = ways(model, parallel) * parallel.tp * parallel.cp
    if work.tokens_per_sequence == 1:
        many = -(-work.micro_batch_size // each) * each
        return work._replace(
            micro_batch_size=many, global_batch_size=work.global_batch_size // work.micro_batch_size * many
        )
    step = parallel.tp * (2 * parallel.cp if parallel.cp > 1 else 1)
    length = next(one for one in count(step, step) if work.micro_batch_size * one % each == 0)
    return work._replace(sequence_length=length)
