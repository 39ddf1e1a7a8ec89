"""A switch that sums, and collectives over two levels: domains of devices, and links across between the domains.

Every function is a program of one group (`commcalc.simulate.wire`); shapes are those of
`commcalc.simulate.algorithms`. The hierarchical ones take ``domains``, all with as many members; the group is their
members in order. All domains work at the same time, and so do all the groups across.
Sources: NVLS as in nccl-tests pull 239 (a device also multicasts its own n-th of the sum); SHARP, where the switches
keep the sum; NCCL's hierarchical form as in the scaling book, part 12.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TypeVar

import numpy as np

from commcalc.errors import UsageError
from commcalc.simulate import rings
from commcalc.simulate.wire import SWITCH, Array, Combine, Node, Rounds, Wire, lock_step, reduce_in_chunks

Domains = Sequence[Sequence[Node]]

In = TypeVar("In")
Out = TypeVar("Out")


def all_reduce(
    wire: Wire, ranks: Sequence[Node], buffers: Sequence[Array], combine: Combine, own_copy: bool = True
) -> Rounds[list[Array]]:
    """Every device sends its buffer to the switch, which sums.

    With ``own_copy`` the switch returns to each device its own n-th of the sum, and the device sends that once to the
    switch, which multicasts it to all; else the switch sends the sum to all.
    """
    if len(ranks) == 1:
        return list(buffers)
    arrived = [wire.send(rank, SWITCH, buffer) for rank, buffer in zip(ranks, buffers, strict=True)]
    yield
    total = reduce(combine, arrived)
    if not own_copy:
        result = [wire.send(SWITCH, rank, total) for rank in ranks]
        yield
        return result
    shares = np.array_split(total.ravel(), len(ranks))
    owned = [wire.send(SWITCH, rank, share) for rank, share in zip(ranks, shares, strict=True)]
    yield
    returned = [wire.send(rank, SWITCH, share) for rank, share in zip(ranks, owned, strict=True)]
    yield
    got = [[wire.send(SWITCH, rank, share) for share in returned] for rank in ranks]
    yield
    return [np.concatenate(own).reshape(total.shape) for own in got]


def hierarchical_all_reduce(
    wire: Wire, domains: Domains, buffers: Sequence[Array], combine: Combine
) -> Rounds[list[Array]]:
    """ReduceScatter inside each domain, AllReduce of every share across, AllGather inside; rings."""
    members, number = _even(domains)

    def scatter(parts: list[list[Array]]) -> Rounds[list[Array]]:
        shares = yield from _inside(domains, parts, partial(_ring_scatter, wire, combine))
        summed = yield from _across(domains, shares, partial(_ring_reduce, wire, combine))
        return [summed[d][p] for d in range(number) for p in range(members)]

    def gather(shares: list[Array]) -> Rounds[list[list[Array]]]:
        got = yield from _inside(domains, shares, partial(rings.all_gather, wire))
        return [blocks for domain in got for blocks in domain]

    return (yield from reduce_in_chunks(buffers, members, scatter, gather))


def hierarchical_reduce_scatter(
    wire: Wire, domains: Domains, parts: Sequence[Sequence[Array]], combine: Combine
) -> Rounds[list[Array]]:
    """Inside each domain for all members with the same position together, then across between those; rings."""
    members, number = _even(domains)
    packed = [[_pack(own[p::members]) for p in range(members)] for own in parts]
    shares = yield from _inside(domains, packed, partial(_ring_scatter, wire, combine))
    for_them = [[_unpack(share, parts[0][p::members]) for p, share in enumerate(domain)] for domain in shares]
    result = yield from _across(domains, for_them, partial(_ring_scatter, wire, combine))
    return [result[d][p] for d in range(number) for p in range(members)]


def hierarchical_all_gather(wire: Wire, domains: Domains, blocks: Sequence[Array]) -> Rounds[list[list[Array]]]:
    """Across between members with the same position, then inside each domain what these got; rings."""
    members, number = _even(domains)
    table = [list(blocks[d * members : (d + 1) * members]) for d in range(number)]
    columns = yield from _across(domains, table, partial(rings.all_gather, wire))
    packed = [_pack(got) for domain in columns for got in domain]
    gathered = yield from _inside(domains, packed, partial(rings.all_gather, wire))
    result = []
    for domain in gathered:
        for by_position in domain:
            column = [_unpack(by_position[p], blocks[p::members]) for p in range(members)]
            result.append([column[p][d] for d in range(number) for p in range(members)])
    return result


def hierarchical_all_to_all(
    wire: Wire, domains: Domains, parts: Sequence[Sequence[Array]]
) -> Rounds[list[list[Array]]]:
    """To every member its own message: first pairwise inside each domain, then pairwise to all of the other domains."""
    members, number = _even(domains)
    ranks = [rank for domain in domains for rank in domain]
    got = [{i: parts[i][i]} for i in range(len(ranks))]
    for over in range(number):
        for ahead in range(members):
            if over == ahead == 0:
                continue
            for i, rank in enumerate(ranks):
                d, p = divmod(i, members)
                to = (d + over) % number * members + (p + ahead) % members
                got[to][i] = wire.send(rank, ranks[to], parts[i][to])
            yield
    return [[own[j] for j in range(len(ranks))] for own in got]


def hierarchical_broadcast(wire: Wire, domains: Domains, buffer: Array) -> Rounds[list[Array]]:
    """From the first device to the first of every domain, then inside each domain; chains."""
    _even(domains)
    heads = yield from rings.broadcast(wire, [domain[0] for domain in domains], buffer)
    got = yield from lock_step(
        [rings.broadcast(wire, domain, head) for domain, head in zip(domains, heads, strict=True)]
    )
    return [copy for domain in got for copy in domain]


def _ring_scatter(wire: Wire, combine: Combine, ranks: Sequence[Node], parts: list[list[Array]]) -> Rounds[list[Array]]:
    return rings.reduce_scatter(wire, ranks, parts, combine)


def _ring_reduce(wire: Wire, combine: Combine, ranks: Sequence[Node], buffers: list[Array]) -> Rounds[list[Array]]:
    return rings.all_reduce(wire, ranks, buffers, combine)


def _even(domains: Domains) -> tuple[int, int]:
    """Members of one domain, and how many domains there are; `UsageError` where the domains differ in size."""
    sizes = {len(domain) for domain in domains}
    if len(sizes) != 1:
        raise UsageError(f"domains of {', '.join(map(str, sorted(sizes)))} members; all must have as many")
    return sizes.pop(), len(domains)


def _inside(
    domains: Domains, given: Sequence[In], program: Callable[[Sequence[Node], list[In]], Rounds[list[Out]]]
) -> Rounds[list[list[Out]]]:
    """The program in every domain at once, on what each member of the group has: results by domain and position."""
    members = len(domains[0])
    own = [list(given[d * members : (d + 1) * members]) for d in range(len(domains))]
    return lock_step([program(domain, its) for domain, its in zip(domains, own, strict=True)])


def _across(
    domains: Domains, given: Sequence[Sequence[In]], program: Callable[[Sequence[Node], list[In]], Rounds[list[Out]]]
) -> Rounds[list[list[Out]]]:
    """The program between the members of every position at once; given and results by domain and position."""
    columns = [
        (list(ranks), list(own))
        for ranks, own in zip(zip(*domains, strict=True), zip(*given, strict=True), strict=True)
    ]
    got = yield from lock_step([program(ranks, own) for ranks, own in columns])
    return [list(row) for row in zip(*got, strict=True)]


def _pack(arrays: Sequence[Array]) -> Array:
    """Several arrays as one flat one."""
    return np.concatenate([array.ravel() for array in arrays])


def _unpack(packed: Array, like: Sequence[Array]) -> list[Array]:
    """The arrays that were packed, in the shapes of ``like``."""
    ends = np.cumsum([array.size for array in like])[:-1]
    return [flat.reshape(array.shape) for flat, array in zip(np.split(packed, ends), like, strict=True)]
