"""Every collective by every algorithm, moved for real and counted, beside the closed forms that times are made of.

Counted are steps, what the busiest device sends, what the busiest directed link carries, and what must pass one after
another. The data are whole numbers, so that results must be equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from math import lcm
from typing import Any

import numpy as np

from commcalc.algebra.collective import Kind
from commcalc.network.cost import Algorithm
from commcalc.network.forms import form
from commcalc.network.hierarchy import price
from commcalc.network.link import Level, Network, in_network_ratio
from commcalc.network.placement import place
from commcalc.simulate import switches
from commcalc.simulate.algorithms import PROGRAMS, program, runs, send
from commcalc.simulate.check import Check, Run, exact
from commcalc.simulate.wire import Array, Rounds, Wire, run

KINDS = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL, Kind.BROADCAST)
_HIERARCHICAL: dict[Kind, Callable[..., Rounds[Any]]] = {
    Kind.ALL_REDUCE: switches.hierarchical_all_reduce,
    Kind.ALL_GATHER: switches.hierarchical_all_gather,
    Kind.REDUCE_SCATTER: switches.hierarchical_reduce_scatter,
    Kind.ALL_TO_ALL: switches.hierarchical_all_to_all,
    Kind.BROADCAST: switches.hierarchical_broadcast,
}


# Here whole messages are handed on where the closed form sends small pieces that follow one another without a gap, or
# all that a line's link has to carry at once.
_IN_PIECES = (
    *((Kind.BROADCAST, algorithm) for algorithm in (Algorithm.RING, Algorithm.RING_TWO_WAY, Algorithm.LINE)),
    *((kind, Algorithm.DOUBLE_BINARY_TREE) for kind in (Kind.ALL_REDUCE, Kind.BROADCAST)),
    (Kind.ALL_TO_ALL, Algorithm.LINE),
)
_AT_ONCE = (Algorithm.DIRECT, Algorithm.ONE_SHOT, Algorithm.TWO_SHOT)


def check_collectives(most: int, seed: int) -> list[Run]:
    """All algorithms for groups of 2 to ``most`` devices, switches that sum, and two levels."""
    rng = np.random.default_rng(seed)
    found = []
    for kind in KINDS:
        for algorithm in Algorithm:
            if (kind, algorithm) in PROGRAMS and algorithm is not Algorithm.IN_NETWORK:
                found += [_flat(kind, algorithm, n, rng) for n in range(2, most + 1) if _applies(kind, algorithm, n)]
    for own_copy in (True, False):
        found += [_in_network(n, own_copy, rng) for n in range(2, most + 1)]
    pairs = [(members, domains) for members in range(2, most + 1) for domains in range(2, most // members + 1)]
    found += [_two_levels(kind, members, domains, rng) for kind in KINDS for members, domains in pairs]
    return [*found, *(_message(n, rng) for n in range(2, most + 1))]


def _applies(kind: Kind, algorithm: Algorithm, n: int) -> bool:
    """A ring of two has one link, not two ways round; it is a line."""
    return runs(kind, algorithm, n) and (algorithm is not Algorithm.RING_TWO_WAY or n > 2)


def payload_of(n: int) -> int:
    """Elements that every algorithm cuts without a rest: into n parts, halves of these, and 2^k parts."""
    return 2 * lcm(n, 1 << (n.bit_length() - 1))


def given(kind: Kind, n: int, payload: int, rng: np.random.Generator) -> Any:
    """What the members have before: a buffer, a block, or a part for everyone."""
    buffers = [rng.integers(-1000, 1000, payload) for _ in range(n)]
    if kind is Kind.ALL_GATHER:
        return [buffer[: payload // n] for buffer in buffers]
    if kind in (Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL):
        return [np.split(buffer, n) for buffer in buffers]
    return buffers[0] if kind is Kind.BROADCAST else buffers


def wanted(kind: Kind, n: int, arrays: Any) -> Any:
    """What they must have after."""
    if kind is Kind.ALL_GATHER:
        return [list(arrays)] * n
    if kind is Kind.REDUCE_SCATTER:
        return [reduce(np.add, [own[at] for own in arrays]) for at in range(n)]
    if kind is Kind.ALL_REDUCE:
        return [reduce(np.add, arrays)] * n
    if kind is Kind.ALL_TO_ALL:
        return [[arrays[j][i] for j in range(n)] for i in range(n)]
    return [arrays] * n


def _right(found: Any, expected: Any) -> bool:
    """Whether two nests of arrays are equal."""
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(_right, found, expected))
    return np.array_equal(found, expected)


def _result(found: Any, expected: Any, where: str) -> Check:
    return exact("result", 1, int(_right(found, expected)), where, "the devices end with something else")


def _flat(kind: Kind, algorithm: Algorithm, n: int, rng: np.random.Generator) -> Run:
    payload, wire, where = payload_of(n), Wire(bits=8), f"{kind} by {algorithm} over {n}"
    arrays = given(kind, n, payload, rng)
    found = run(wire, program(kind, algorithm, wire, range(n), arrays))
    checks = [_result(found, wanted(kind, n, arrays), where)]
    closed = form(algorithm, kind, n)
    if closed is None:
        checks.append(Check("steps", 0, wire.steps, False, where, "it runs, but has no closed form"))
    else:
        checks += [
            exact("steps", int(closed.steps), wire.steps, where, "another number of steps"),
            _bytes("egress_bytes", closed.sent, payload, wire.sent_max, where),
            _bytes("link_bytes", closed.link, payload, wire.link_max, where),
        ]
        if (kind, algorithm) not in _IN_PIECES:  # of all peers at once: what one port lets out
            serial = wire.sent_max if algorithm in _AT_ONCE else wire.serial
            checks.append(_bytes("bytes_in_sequence", closed.through, payload, serial, where))
    return Run("", (("n", n),), f"{kind} by {algorithm}", tuple(checks))


def _bytes(what: str, ratio: tuple[int, int], payload: int, found: int, where: str) -> Check:
    expected = Fraction(*ratio) * payload
    return exact(what, float(expected), found, where, "other bytes", f"{Fraction(*ratio)} of {payload}")


def _in_network(n: int, own_copy: bool, rng: np.random.Generator) -> Run:
    payload, wire = payload_of(n), Wire(bits=8)
    case = f"{Kind.ALL_REDUCE} by {Algorithm.IN_NETWORK}" + ("" if own_copy else ", the switch keeps the sum")
    arrays = given(Kind.ALL_REDUCE, n, payload, rng)
    found = run(wire, switches.all_reduce(wire, range(n), arrays, np.add, own_copy))
    where = f"{case} over {n}"
    checks = (
        _result(found, wanted(Kind.ALL_REDUCE, n, arrays), where),
        _bytes("egress_bytes", in_network_ratio(n, own_copy), payload, wire.sent_max, where),
    )
    return Run("", (("n", n),), case, checks)


def _two_levels(kind: Kind, members: int, domains: int, rng: np.random.Generator) -> Run:
    """Domains of so many members: bytes of one device inside and across are those of the phases on either level."""
    n = members * domains
    payload, wire, where = payload_of(n), Wire(bits=8), f"{kind} over {domains} domains of {members}"
    ranks = [range(at * members, (at + 1) * members) for at in range(domains)]
    arrays = given(kind, n, payload, rng)
    reducing = [np.add] if kind in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER) else []
    found = run(wire, _HIERARCHICAL[kind](wire, ranks, arrays, *reducing))
    network = Network((Level("inside", 1.0, devices=members), Level("across", 1.0)))
    phases = price(kind, payload, place(n, 1, network), network, Algorithm.HIERARCHICAL).phases
    sent = {level: [0] * n for level in ("inside", "across")}
    for (source, target), count in wire.links.items():
        level = "inside" if int(source) // members == int(target) // members else "across"
        sent[level][int(source)] += count
    checks = [_result(found, wanted(kind, n, arrays), where)]
    for level, counts in sent.items():
        here = [phase for phase in phases if phase.level == level]
        expected = sum(int(phase.cost.egress_bytes) for phase in here)
        formula = " + ".join(f"{phase.kind} of {phase.payload_bytes}" for phase in here)
        checks.append(exact(f"egress_bytes_{level}", expected, max(counts), where, "other bytes", formula))
    steps = sum(int(phase.cost.steps) for phase in phases)
    checks.append(exact("steps", steps, wire.steps, where, "another number of steps"))
    return Run("", (("across", domains), ("inside", members)), f"{kind} by {Algorithm.HIERARCHICAL}", tuple(checks))


def _message(n: int, rng: np.random.Generator) -> Run:
    """Everyone sends its buffer to the next."""
    payload, wire, where = payload_of(n), Wire(bits=8), f"{Kind.PERMUTE} over {n}"
    buffers: Sequence[Array] = given(Kind.ALL_REDUCE, n, payload, rng)
    found = send(wire, [(at, (at + 1) % n, buffer) for at, buffer in enumerate(buffers)])
    checks = [_result(found, list(buffers), where)]
    closed = form(Algorithm.DIRECT, Kind.PERMUTE, n)
    if closed is None:
        checks.append(Check("steps", 0, wire.steps, False, where, "it runs, but has no closed form"))
    else:
        checks += [
            exact("steps", int(closed.steps), wire.steps, where, "another number of steps"),
            _bytes("egress_bytes", closed.sent, payload, wire.sent_max, where),
        ]
    return Run("", (("n", n),), f"{Kind.PERMUTE} by {Algorithm.DIRECT}", tuple(checks))
