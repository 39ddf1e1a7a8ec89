"""Closed forms of the algorithms: steps, bytes one device sends, bytes on the busiest link, bytes in sequence.

Each is a ratio to the payload (`over`, `under`), for whole numbers and integer arrays ``n`` alike; nothing here knows
rates or clocks. Payloads are those of nccl-tests: AllReduce the buffer, AllGather the gathered result, ReduceScatter
the unreduced input, AllToAll what one device holds.

    algorithm            collective          steps               sent by one device        in sequence
    ring                 AG, RS              n-1                 (n-1)/n                   (n-1)/n
                         AR                  2(n-1)              2(n-1)/n                  2(n-1)/n
                         A2A (forwarded)     n-1                 (n-1)/2                   (n-1)/2
                         broadcast           n-1                 1                         1
    ring-two-way         AG, RS              floor(n/2)          (n-1)/n                   (n-1)/2n on each link
                         AR                  2 floor(n/2)        2(n-1)/n                  (n-1)/n
                         A2A                 floor(n/2)          n/4 (odd: (n^2-1)/4n)     half of that
    line                 AG                  n-1                 (n+1)/n in the middle     (n-1)/n
                         RS                  n-1                 (n-1)/n                   (n-1)/n
                         A2A                 n-1                 about n/2                 floor(n/2) ceil(n/2)/n
    recursive-doubling   AG, n = 2^k         log2 n              (n-1)/n                   (n-1)/n
                         AR, n = 2^k         log2 n              log2 n                    log2 n
    recursive-halving    RS, n = 2^k         log2 n              (n-1)/n                   (n-1)/n
    rabenseifner         AR                  2 log2 n            2(n-1)/n                  2(n-1)/n
                         AR, n not 2^k       2 floor(log2 n)+2   2(p-1)/p + 1              2(p-1)/p + 2, p = 2^k < n
    bruck                AG                  ceil(log2 n)        (n-1)/n                   (n-1)/n
                         A2A                 ceil(log2 n)        sum of popcounts / n      the same
    binomial-tree        AR                  2 ceil(log2 n)      ceil(log2 n) at the root  2 ceil(log2 n)
                         broadcast           ceil(log2 n)        ceil(log2 n)              ceil(log2 n)
    double-binary-tree   AR                  2 ceil(log2 n)      2 (n = 2: 1, n = 3: 3/2)  the same
                         broadcast           ceil(log2 n)        1                         1
    pairwise             A2A                 n-1                 (n-1)/n                   (n-1)/n
    direct               AG, RS, A2A         1                   (n-1)/n                   (n-1)/n
    one-shot             AR                  1                   n-1                       n-1
    two-shot             AR                  2                   2(n-1)/n                  2(n-1)/n

Sources: Thakur, Rabenseifner, Gropp 2005 (MPICH) for recursive doubling and halving, Rabenseifner, Bruck, pairwise and
binomial trees; Patarasuk and Yuan 2009 for the ring; Sanders, Speck, Traeff 2009 for two trees at once, each with half
of the buffer, every device inside one of them and a leaf of the other; the scaling book, part 3, for the ring used
both ways; one- and two-shot as in TensorRT-LLM and XLA. Bytes counted by a simulator that moves real data agree for
n = 2..16.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from commcalc.algebra.collective import Kind
from commcalc.network.link import Algorithm

Number = Any
Ratio = tuple[Number, Number]
AG, RS, AR, A2A = Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_REDUCE, Kind.ALL_TO_ALL
BROADCAST = Kind.BROADCAST
MESSAGES = (Kind.SEND_RECV, Kind.PERMUTE)


class Form(NamedTuple):
    """What an algorithm does for one collective; ratios to the payload.

    ``through`` is what must pass one port (on a ring or line: one link) one after another; ``link`` the most that one
    directed link carries, an ordered pair of devices where each has its own.
    """

    steps: Number
    sent: Ratio
    link: Ratio
    through: Ratio


def floor_log2(n: Number) -> Number:
    """Largest k with 2^k <= n, for whole numbers and arrays of at least 1.

    >>> floor_log2(12), floor_log2(16)
    (3, 4)
    """
    if isinstance(n, int):
        return n.bit_length() - 1
    return sum((n >= 2**k) * 1 for k in range(1, 63))


def ceil_log2(n: Number) -> Number:
    """Least k with 2^k >= n, for whole numbers and arrays of at least 1.

    >>> ceil_log2(12), ceil_log2(16), ceil_log2(1)
    (4, 4, 0)
    """
    if isinstance(n, int):
        return (n - 1).bit_length()
    return sum((n > 2**k) * 1 for k in range(62))


def power_of_two(n: Number) -> Number:
    """Whether n is a power of two.

    >>> power_of_two(8), power_of_two(12)
    (True, False)
    """
    return n & (n - 1) == 0


def popcounts(n: Number) -> Number:
    """Ones in the binary forms of 0 .. n-1 together: blocks that one rank sends in Bruck's AllToAll.

    >>> popcounts(16), popcounts(6)
    (32, 7)
    """
    top = n if isinstance(n, int) else int(n.max())
    total = n * 0
    for bit in range(top.bit_length()):
        half = 2**bit
        rest = n % (2 * half) - half
        total = total + n // (2 * half) * half + rest * (rest > 0)
    return total


def ring_form(kind: Kind, n: Number) -> Form:
    """A one-way ring; what an AllToAll sends is forwarded by those between."""
    if kind in MESSAGES:
        return Form(_some(n), (_some(n), 1), (_some(n), 1), (_some(n), 1))
    if kind is BROADCAST:
        return Form(n - 1, (_some(n), 1), (_some(n), 1), (_some(n), 1))
    if kind is A2A:
        return _same(n - 1, (n - 1, 2))
    passes = 2 if kind is AR else 1
    return _same(passes * (n - 1), (passes * (n - 1), n))


def _two_way(kind: Kind, n: Number) -> Form | None:
    if kind in MESSAGES:
        return ring_form(kind, n)
    if kind is BROADCAST:  # half of the message each way round
        return Form(n - 1, (_some(n), 1), (_some(n), 2), (_some(n), 2))
    if kind is A2A:
        blocks = n * n - n % 2
        return Form(n // 2, (blocks, 4 * n), (blocks, 8 * n), (blocks, 8 * n))
    passes = 2 if kind is AR else 1
    half = (passes * (n - 1), 2 * n)
    return Form(passes * (n // 2), (passes * (n - 1), n), half, half)


def _line(kind: Kind, n: Number) -> Form | None:
    middle = (n > 2) * 1
    if kind is Kind.PERMUTE:  # from the last device back to the first against the others
        return Form(n - 1, (_some(n) + middle, 1), (_some(n), 1), (_some(n), 1))
    if kind in (Kind.SEND_RECV, BROADCAST):
        return ring_form(kind, n)
    if kind is A2A:
        at = (n - 1) // 2
        cut = (n // 2) * (n - n // 2)
        return Form(n - 1, ((at + 1) * (n - 1 - at) + at * (n - at), n), (cut, n), (cut, n))
    one_way = (n - 1, n)
    if kind is RS:
        return _same(n - 1, one_way)
    gathered = n - 1 + 2 * middle
    if kind is AG:
        return Form(n - 1, (gathered, n), one_way, one_way)
    return Form(2 * (n - 1), (gathered + n - 1, n), (_some(n), 1), (2 * (n - 1), n))


def _doubling(kind: Kind, n: Number) -> Form | None:
    log = ceil_log2(n)
    if kind is AG:
        return Form(log, (n - 1, n), (_some(n), 2), (n - 1, n))
    return Form(log, (log, 1), (_some(n), 1), (log, 1)) if kind is AR else None


def _halving(kind: Kind, n: Number) -> Form | None:
    return Form(ceil_log2(n), (n - 1, n), (_some(n), 2), (n - 1, n)) if kind is RS else None


def _rabenseifner(kind: Kind, n: Number) -> Form | None:
    if kind is not AR:
        return None
    odd = (n & (n - 1) != 0) * 1  # the surplus over a power of two hands its data to a neighbour before and after
    core = 2 ** floor_log2(n)
    sent, through = ((2 * (core - 1) + times * odd * core, core) for times in (1, 2))
    return Form(2 * floor_log2(n) + 2 * odd, sent, (_some(n), 1), through)


def _binomial(kind: Kind, n: Number) -> Form | None:
    log = ceil_log2(n)
    if kind is AR:
        return Form(2 * log, (log, 1), (_some(n), 1), (2 * log, 1))
    return Form(log, (log, 1), (_some(n), 1), (log, 1)) if kind is BROADCAST else None


def _two_trees(kind: Kind, n: Number) -> Form | None:
    log = ceil_log2(n)
    if kind is AR:
        return Form(2 * log, tree_ratio(n), (_some(n), 1), tree_ratio(n))
    # The two trees are over the other devices; where that is one, both halves cross the same link.
    return Form(log, (_some(n), 1), (_some(n) + (n == 2) * 1, 2), (_some(n), 1)) if kind is BROADCAST else None


def tree_ratio(n: Number) -> Ratio:
    """What the busiest of ``n`` members of two trees sends in an AllReduce per byte of the buffer, as a quotient.

    Half up and half down to each of two children in one tree, half up as a leaf of the other: 2. Of two devices each is
    the other's root, and of three none has two children.

    >>> tree_ratio(2), tree_ratio(3), tree_ratio(8)
    ((2, 2), (3, 2), (4, 2))
    """
    return (_some(n) + (n > 1) * 1 + (n > 2) * 1 + (n > 3) * 1, 2)


def _bruck(kind: Kind, n: Number) -> Form | None:
    log = ceil_log2(n)
    if kind is AG:  # 1, 2, 4, ... blocks, and in the last step what is left
        last = n - 2 ** (log - (log > 0))
        before = 2 ** (log - (log > 1) * 2) * (log > 1)
        most = last * (last >= before) + before * (before > last)
        return Form(log, (n - 1, n), (most * (n > 1), n), (n - 1, n))
    return Form(log, (popcounts(n), n), (n // 2, n), (popcounts(n), n)) if kind is A2A else None


def _pairwise(kind: Kind, n: Number) -> Form | None:
    return Form(n - 1, (n - 1, n), (_some(n), n), (n - 1, n)) if kind in (A2A, RS) else None


def _direct(kind: Kind, n: Number) -> Form | None:
    some = _some(n)
    if kind in (AG, RS, A2A):
        return Form(some, (n - 1, n), (some, n), (n - 1, n))
    if kind is BROADCAST:
        return Form(some, (n - 1, 1), (some, 1), (n - 1, 1))
    return ring_form(kind, n) if kind in MESSAGES else None


def _one_shot(kind: Kind, n: Number) -> Form | None:
    return Form(_some(n), (n - 1, 1), (_some(n), 1), (n - 1, 1)) if kind is AR else None


def _two_shot(kind: Kind, n: Number) -> Form | None:
    """Scatter and gather over all peers at once: an AllReduce, or a broadcast through all."""
    some = _some(n)
    if kind is AR:
        return Form(2 * some, (2 * (n - 1), n), (2 * some, n), (2 * (n - 1), n))
    return Form(2 * some, (2 * (n - 1), n), (2 * some, n), (2 * (n - 1), n)) if kind is BROADCAST else None


def _some(n: Number) -> Number:
    return (n > 1) * 1


def _same(steps: Number, ratio: Ratio) -> Form:
    return Form(steps, ratio, ratio, ratio)


FORMS: dict[Algorithm, Callable[[Kind, Number], Form | None]] = {
    Algorithm.RING: ring_form,
    Algorithm.RING_TWO_WAY: _two_way,
    Algorithm.LINE: _line,
    Algorithm.RECURSIVE_DOUBLING: _doubling,
    Algorithm.RECURSIVE_HALVING: _halving,
    Algorithm.RABENSEIFNER: _rabenseifner,
    Algorithm.BINOMIAL_TREE: _binomial,
    Algorithm.DOUBLE_BINARY_TREE: _two_trees,
    Algorithm.BRUCK: _bruck,
    Algorithm.PAIRWISE: _pairwise,
    Algorithm.DIRECT: _direct,
    Algorithm.ONE_SHOT: _one_shot,
    Algorithm.TWO_SHOT: _two_shot,
}
# Algorithms that halve or double need 2^k devices.
ONLY_POWERS = (Algorithm.RECURSIVE_DOUBLING, Algorithm.RECURSIVE_HALVING)


def form(algorithm: Algorithm, kind: Kind, n: Number) -> Form | None:
    """How ``algorithm`` runs ``kind`` over ``n`` devices; None where it does not.

    >>> form(Algorithm.RING, Kind.ALL_REDUCE, 8).sent
    (14, 8)
    """
    make = FORMS.get(algorithm)
    if make is None or (algorithm in ONLY_POWERS and isinstance(n, int) and not power_of_two(n)):
        return None
    return make(kind, n)


# Where the scaling book takes the limit of many devices: (n-1)/n is 1, and an odd ring sends as an even one.
_DROPS = (
    Algorithm.RING, Algorithm.RING_TWO_WAY, Algorithm.RECURSIVE_DOUBLING, Algorithm.RECURSIVE_HALVING,
    Algorithm.RABENSEIFNER, Algorithm.BRUCK, Algorithm.PAIRWISE, Algorithm.DIRECT, Algorithm.TWO_SHOT,
)  # fmt: skip
_KEEPS = ((Algorithm.RECURSIVE_DOUBLING, AR), (Algorithm.BRUCK, A2A), (Algorithm.DIRECT, BROADCAST))


def textbook(algorithm: Algorithm, kind: Kind, n: Number, exact: Form) -> Form:
    """The same in the limit of many devices; an open line keeps its hops, as the scaling book, part 3, counts them."""
    if algorithm not in _DROPS or kind in MESSAGES or (algorithm, kind) in _KEEPS:
        return exact
    if kind is BROADCAST and algorithm is not Algorithm.TWO_SHOT:
        return exact
    if algorithm is Algorithm.RING_TWO_WAY and kind is A2A:
        return exact._replace(sent=(n * _some(n), 4), link=(n * _some(n), 8), through=(n * _some(n), 8))
    if algorithm is Algorithm.RABENSEIFNER:
        odd = (n & (n - 1) != 0) * 1
        return exact._replace(sent=(2 * _some(n) + odd, 1), through=(2 * _some(n) + 2 * odd, 1))

    def limit(ratio: Ratio) -> Ratio:
        over, under = ratio
        return over * n, under * (n - 1 + (n == 1))

    return exact._replace(sent=limit(exact.sent), link=limit(exact.link), through=limit(exact.through))
