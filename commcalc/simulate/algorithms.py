"""Every collective by every algorithm, on real arrays over a wire that counts.

A group is ``ranks``, its members in order. Arrays may have any shape, and blocks of different members different sizes.
``combine`` is any commutative and associative sum of two arrays (``np.add``, ``np.maximum``). Nothing given is changed,
and no result shares memory with it. A group of one device moves nothing. `UsageError` where the algorithm does not run
the kind, or not for so many members.

Hierarchical algorithms need the domains besides (`commcalc.simulate.switches`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from commcalc.algebra.collective import Kind
from commcalc.errors import UsageError
from commcalc.network.link import Algorithm
from commcalc.simulate import exchanges, rings, switches, trees
from commcalc.simulate.wire import Array, Combine, Node, Rounds, Wire, run

_A = Algorithm
_AG, _RS, _AR, _A2A = Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_REDUCE, Kind.ALL_TO_ALL
_BROADCAST = Kind.BROADCAST
_REDUCING = (_RS, _AR)

# Programs of one group: (wire, ranks, arrays), and for those that reduce also (combine).
PROGRAMS: dict[tuple[Kind, Algorithm], Callable[..., Rounds[Any]]] = {
    (_AG, _A.RING): rings.all_gather,
    (_RS, _A.RING): rings.reduce_scatter,
    (_AR, _A.RING): rings.all_reduce,
    (_A2A, _A.RING): rings.all_to_all,
    (_BROADCAST, _A.RING): rings.broadcast,
    (_AG, _A.RING_TWO_WAY): rings.two_way_all_gather,
    (_RS, _A.RING_TWO_WAY): rings.two_way_reduce_scatter,
    (_AR, _A.RING_TWO_WAY): rings.two_way_all_reduce,
    (_A2A, _A.RING_TWO_WAY): rings.two_way_all_to_all,
    (_BROADCAST, _A.RING_TWO_WAY): rings.two_way_broadcast,
    (_AG, _A.LINE): rings.line_all_gather,
    (_RS, _A.LINE): rings.line_reduce_scatter,
    (_AR, _A.LINE): rings.line_all_reduce,
    (_A2A, _A.LINE): rings.line_all_to_all,
    (_BROADCAST, _A.LINE): rings.broadcast,  # from one end to the other
    (_AG, _A.RECURSIVE_DOUBLING): exchanges.doubling_all_gather,
    (_AR, _A.RECURSIVE_DOUBLING): exchanges.doubling_all_reduce,
    (_RS, _A.RECURSIVE_HALVING): exchanges.halving_reduce_scatter,
    (_AR, _A.RABENSEIFNER): exchanges.rabenseifner_all_reduce,
    (_AG, _A.BRUCK): exchanges.bruck_all_gather,
    (_A2A, _A.BRUCK): exchanges.bruck_all_to_all,
    (_A2A, _A.PAIRWISE): exchanges.pairwise_all_to_all,
    (_RS, _A.PAIRWISE): exchanges.pairwise_reduce_scatter,
    (_AG, _A.DIRECT): exchanges.direct_all_gather,
    (_RS, _A.DIRECT): exchanges.direct_reduce_scatter,
    (_A2A, _A.DIRECT): exchanges.direct_all_to_all,
    (_BROADCAST, _A.DIRECT): exchanges.direct_broadcast,
    (_AR, _A.ONE_SHOT): exchanges.one_shot_all_reduce,
    (_AR, _A.TWO_SHOT): exchanges.two_shot_all_reduce,
    (_BROADCAST, _A.TWO_SHOT): exchanges.two_shot_broadcast,
    (_AR, _A.BINOMIAL_TREE): trees.binomial_all_reduce,
    (_BROADCAST, _A.BINOMIAL_TREE): trees.binomial_broadcast,
    (_AR, _A.DOUBLE_BINARY_TREE): trees.two_trees_all_reduce,
    (_BROADCAST, _A.DOUBLE_BINARY_TREE): trees.two_trees_broadcast,
    (_AR, _A.IN_NETWORK): switches.all_reduce,
}
_POWERS = (_A.RECURSIVE_DOUBLING, _A.RECURSIVE_HALVING)


def runs(kind: Kind, algorithm: Algorithm, n: int) -> bool:
    """Whether ``algorithm`` runs ``kind`` over ``n`` members; a message is ``direct``, by `send`.

    >>> runs(Kind.ALL_GATHER, Algorithm.RECURSIVE_DOUBLING, 8), runs(Kind.ALL_GATHER, Algorithm.RECURSIVE_DOUBLING, 6)
    (True, False)
    """
    if kind in (Kind.SEND_RECV, Kind.PERMUTE):
        return algorithm is _A.DIRECT
    return (kind, algorithm) in PROGRAMS and (algorithm not in _POWERS or n & (n - 1) == 0)


def program(
    kind: Kind, algorithm: Algorithm, wire: Wire, ranks: Sequence[Node], arrays: Any, combine: Combine = np.add
) -> Rounds[Any]:
    """The rounds of one group, for `run` or, with other groups at the same time, `lock_step`; arrays as below."""
    algorithm = Algorithm(algorithm)
    n = len(ranks)
    if (kind, algorithm) not in PROGRAMS:
        others = ", ".join(one for of, one in PROGRAMS if of is kind)
        raise UsageError(f"{algorithm} does not run {kind} here", hint=f"algorithms that do: {others or 'none'}")
    if not runs(kind, algorithm, n):
        raise UsageError(f"{algorithm} needs a power of two of devices, not {n}")
    own = _copies(arrays)
    if kind in _REDUCING:
        return PROGRAMS[kind, algorithm](wire, ranks, own, combine)
    return PROGRAMS[kind, algorithm](wire, ranks, own)


def all_gather(algorithm: Algorithm, wire: Wire, ranks: Sequence[Node], blocks: Sequence[Array]) -> list[list[Array]]:
    """``result[i][j]``: the block of member j as member i got it."""
    result: list[list[Array]] = run(wire, program(_AG, algorithm, wire, ranks, blocks))
    return result


def reduce_scatter(
    algorithm: Algorithm, wire: Wire, ranks: Sequence[Node], parts: Sequence[Sequence[Array]], combine: Combine = np.add
) -> list[Array]:
    """``result[j]``: ``parts[i][j]`` of all members i combined, at member j."""
    result: list[Array] = run(wire, program(_RS, algorithm, wire, ranks, parts, combine))
    return result


def all_reduce(
    algorithm: Algorithm, wire: Wire, ranks: Sequence[Node], buffers: Sequence[Array], combine: Combine = np.add
) -> list[Array]:
    """``result[i]``: all buffers combined, as member i got it; cut into chunks where the algorithm needs them."""
    result: list[Array] = run(wire, program(_AR, algorithm, wire, ranks, buffers, combine))
    return result


def all_to_all(
    algorithm: Algorithm, wire: Wire, ranks: Sequence[Node], parts: Sequence[Sequence[Array]]
) -> list[list[Array]]:
    """``result[i][j]``: ``parts[j][i]``, what member j held for member i."""
    result: list[list[Array]] = run(wire, program(_A2A, algorithm, wire, ranks, parts))
    return result


def send(wire: Wire, moves: Sequence[tuple[Node, Node, Array]]) -> list[Array]:
    """Messages (source, target, array), all in one step: what arrives of each."""
    arrived = [wire.send(source, target, np.asarray(data)) for source, target, data in moves]
    wire.step()
    return arrived


def _copies(arrays: Any) -> Any:
    """The same nest of lists with arrays of its own."""
    return [_copies(one) for one in arrays] if isinstance(arrays, list | tuple) else np.array(arrays)
