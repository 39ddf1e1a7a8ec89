"""Worked answers about links and collectives (tests/data/goldens_links.yaml), each from the closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from commcalc.algebra.collective import Convention, Kind
from commcalc.network.busbw import bandwidths, ratio, wire_factor
from commcalc.network.cost import Algorithm, Cost, cost_on, in_network, share
from commcalc.network.crossing import ring_hops, tree_steps
from commcalc.network.forms import ceil_log2, form
from commcalc.network.hierarchy import Priced, price
from commcalc.network.link import InNetworkReduction, Level, Network, Topology, Wraparound
from commcalc.network.placement import place
from commcalc.network.primitive import PRIMITIVES, compare
from commcalc.network.torus import Span, cost_on_axes, send_across
from conftest import DATA, ask, fields

BOOK, EXACT = Convention.TEXTBOOK, Convention.EXACT
AR, AG, RS, A2A, BROADCAST = Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL, Kind.BROADCAST
_A = Algorithm
CASES = {case["id"]: case for case in yaml.safe_load((DATA / "goldens_links.yaml").read_text())["cases"]}
ANSWERS: dict[str, Callable[[Any], dict[str, Any]]] = {}
# Cases of these topics whose question is not what a link or a collective costs.
ELSEWHERE = {
    "GPU-21": "memory and days of a training run, which have no answer yet",
    "GPU-25": "traffic of a ragged AllToAll of experts, which has no ledger yet",
}


def answers(ident: str) -> Callable[[Callable[[Any], dict[str, Any]]], object]:
    def keep(function: Callable[[Any], dict[str, Any]]) -> object:
        ANSWERS[ident] = function
        return function

    return keep


def torus(spans: tuple[Span, ...], w_bidi: float, hop: float = 0.0) -> Level:
    """A torus whose axes have ``w_bidi`` both ways together, as the scaling book counts them."""
    return Level("ici", w_bidi / 2, Topology.TORUS, latency_s=hop, shape=tuple(span.members for span in spans))


def on_axes(kind: Kind, payload: int, spans: tuple[Span, ...], level: Level, convention: Convention = BOOK) -> Cost:
    algorithm = _A.TORUS if len(spans) > 1 else _A.RING_TWO_WAY if spans[0].ring else _A.LINE
    found = cost_on_axes(algorithm, kind, payload, spans, level, convention)
    assert found is not None
    return found


def closed(*sizes: int) -> tuple[Span, ...]:
    return tuple(Span(size, 1, True, size) for size in sizes)


def switch(
    algorithm: Algorithm, kind: Kind, payload: int, n: int, level: Level, convention: Convention = EXACT
) -> Cost:
    found = cost_on(algorithm, kind, payload, n, level, convention)
    assert found is not None
    return found


@answers("TOR-01")
def _(x: Any) -> dict[str, Any]:
    axis = closed(4)
    return {"time_wrap": 1e6 * on_axes(AG, x.E * x.F * x.dtype, axis, torus(axis, x.W_bidi)).time_s}


@answers("TOR-03")
def _(x: Any) -> dict[str, Any]:
    line = (Span(x.Y),)
    cost = on_axes(AG, x.E * x.F * x.dtype, line, torus(line, 2 * x.W_uni, x.T_min * 1e-6))
    return {"shard": cost.egress_bytes // (x.Y + 1), "hop_bandwidth_time": 1e6 * cost.bandwidth_s / cost.steps,
            "total": 1e6 * cost.time_s}  # fmt: skip


@answers("TOR-04")
def _(x: Any) -> dict[str, Any]:
    axis = closed(4)
    return {"time": 1e6 * on_axes(AG, x.B * x.D * x.dtype // x.Y, axis, torus(axis, x.W_bidi)).time_s}


@answers("TOR-05")
def _(x: Any) -> dict[str, Any]:
    axes = closed(x.X, x.Y)
    cost = on_axes(AG, x.B * x.D * x.dtype, axes, torus(axes, x.W_bidi, x.T_min * 1e-6))
    return {"time": 1e6 * cost.bandwidth_s, "latency_floor": 1e6 * cost.latency_s}


@answers("TOR-08")
def _(x: Any) -> dict[str, Any]:
    two, three = closed(4, 4), closed(4, 4, 4)
    whole = x.B * x.D * x.dtype
    return {"part1_improved": 1e6 * on_axes(AG, whole // x.Y, two, torus(two, x.W_bidi)).time_s,
            "part2_improved": 1e6 * on_axes(AG, whole, three, torus(three, x.W_bidi)).time_s}  # fmt: skip


@answers("TOR-09")
def _(x: Any) -> dict[str, Any]:
    axis = closed(x.X)
    cost = on_axes(AG, x.B * x.dtype, axis, torus(axis, 2 * x.W_uni, x.T_min * 1e-6))
    return {"bytes_total": x.B * x.dtype, "bytes_per_device": x.B * x.dtype / x.X, "hops": cost.steps,
            "time": 1e6 * cost.time_s}  # fmt: skip


@answers("TOR-11")
def _(x: Any) -> dict[str, Any]:
    axis = closed(x.N)
    return {"hops": on_axes(AG, 1, axis, torus(axis, 2e9)).steps}


@answers("TOR-13")
def _(x: Any) -> dict[str, Any]:
    """Latency over the time of one byte, for one hop of a line of two."""
    line = (Span(2),)
    cost = on_axes(Kind.PERMUTE, 10**9, line, torus(line, 2 * x.W_uni, x.T_min))
    return {"threshold": cost.latency_s / cost.bandwidth_s * 10**9}


@answers("TOR-15")
def _(x: Any) -> dict[str, Any]:
    both, one = closed(x.A, x.B), closed(8)
    return {"time_2d": 1e6 * on_axes(A2A, x.V // (x.A * x.B), both, torus(both, x.W_bidi)).time_s,
            "time_1d": 1e6 * on_axes(A2A, x.V // 8, one, torus(one, x.W_bidi)).time_s}  # fmt: skip


@answers("TOR-16")
def _(x: Any) -> dict[str, Any]:
    whole = x.N * x.N
    gather, moved = form(_A.RING, AG, x.D), form(_A.RING, A2A, x.D)
    assert gather is not None and moved is not None
    sent = share(whole, gather.link), share(whole // x.D, moved.link)
    return {"allgather": sent[0], "alltoall": sent[1], "ratio": sent[1] / sent[0]}


@answers("TOR-17")
def _(x: Any) -> dict[str, Any]:
    """In the limit of many devices, where the sources state it."""

    def link(algorithm: Algorithm, kind: Kind, n: int) -> float:
        found = form(algorithm, kind, n)
        assert found is not None
        return found.link[0] / found.link[1]

    many = 2**30
    sent = form(_A.RING_TWO_WAY, A2A, x.D)
    assert sent is not None
    return {
        "allgather_speedup": link(_A.RING, AG, many) / link(_A.RING_TWO_WAY, AG, many),
        "alltoall_speedup_limit": link(_A.RING, A2A, many) / link(_A.RING_TWO_WAY, A2A, many),
        "ratio": link(_A.RING_TWO_WAY, A2A, many) / many / link(_A.RING_TWO_WAY, AG, many),
        "chunks_sent_total": x.D * sent.sent[0] / sent.sent[1],  # of the D chunks that one device holds
    }


@answers("TOR-18")
def _(x: Any) -> dict[str, Any]:
    return {"time": 1e6 * switch(_A.RING, AG, x.V, x.axis, Level("axis", x.W_uni)).time_s}


@answers("TOR-19")
def _(x: Any) -> dict[str, Any]:
    line = Span(x.side)
    level = torus((line, line), 2 * x.W_uni, x.T_hop * 1e-6)
    cost = send_across(x.n * x.dtype, (line,) * x.ports, level)
    return {"hops": cost.steps, "first_byte": 1e6 * cost.latency_s, "transfer": 1e6 * cost.bandwidth_s,
            "total": 1e6 * cost.time_s}  # fmt: skip


@answers("TOR-20")
def _(x: Any) -> dict[str, Any]:
    """The corner chip takes 15/16 of the matrix over both its ports; each host feeds its chips over 8 PCIe links."""
    line = Span(4)
    ici = send_across(int(x.total * 15 // 16), (line,) * x.ports, torus((line, line), 2 * x.W_uni))
    pcie = switch(_A.DIRECT, Kind.SEND_RECV, int(x.total) // x.hosts, 2, Level("pcie", x.pcie_links * x.pcie))
    return {"pcie": 1e3 * pcie.time_s, "ici": 1e3 * ici.time_s, "hbm": 1e3 * x.total / x.hbm,
            "flops": 1e3 * 2 * x.b * x.n**2 / x.C}  # fmt: skip


@answers("TOR-21")
def _(x: Any) -> dict[str, Any]:
    axis = closed(16)
    shard = x.b * x.s * x.d * x.dtype // x.ways
    return {"shard": shard, "time": 1e3 * on_axes(RS, shard, axis, torus(axis, x.W_bidi)).time_s}


@answers("TOR-23")
def _(x: Any) -> dict[str, Any]:
    line = (Span(x.n),)
    level = torus(line, 2 * x.W_uni, x.T_min)
    large = on_axes(AG, 10**9, line, level)
    small = on_axes(AG, x.B * x.D * x.dtype, line, level)
    return {"threshold": large.latency_s / large.bandwidth_s * 10**9, "buffer": x.B * x.D * x.dtype,
            "latency_bound": small.bound == "latency"}  # fmt: skip


@answers("TOR-25")
def _(x: Any) -> dict[str, Any]:
    gather = form(_A.RING, AG, x.X)
    assert gather is not None
    return {"per_device": x.V * (1 - gather.sent[0] / gather.sent[1]), "reached": x.eff * x.W_uni}


@answers("TOR-26")
def _(x: Any) -> dict[str, Any]:
    level = torus(closed(16), x.W_bidi)
    network = Network((level._replace(wraparound=Wraparound.ALL, devices=16),))
    found = compare(x.V, place(16, 1, network), network, convention=BOOK)
    times = {one.way.kind: 1e6 * one.way.time_s for one in found}
    return {"alltoall": times[A2A], "allgather": times[AG], "reducescatter": times[RS], "allreduce": times[AR],
            "order_holds": tuple(one.way.kind for one in found) == PRIMITIVES}  # fmt: skip


def node(x: Any, latency: float = 0.0) -> Level:
    return Level("nvlink", x.W, devices=x.N, latency_s=latency)


@answers("GPU-01")
def _(x: Any) -> dict[str, Any]:
    """What a ring of all GPUs sends in a second; the switches hold more."""
    each = Level("nvlink", x.links * x.link_bw, devices=x.gpus)
    total = x.switch_ports * x.link_bw * x.switches
    return {"gpu_egress": each.rate, "switch_total": total, "usable": min(each.rate * x.gpus, total),
            "bisection": each.rate * x.gpus}  # fmt: skip


@answers("GPU-03")
def _(x: Any) -> dict[str, Any]:
    return {"limit_time": 1e3 * switch(_A.RING, AG, x.D * x.F * x.dtype, x.N, node(x), BOOK).time_s}


@answers("GPU-05")
def _(x: Any) -> dict[str, Any]:
    held = int(x.V) // x.N
    exact, rough = (switch(_A.PAIRWISE, A2A, held, x.N, node(x), convention).time_s for convention in (EXACT, BOOK))
    filled = switch(_A.PAIRWISE, A2A, held * x.k // x.N, x.N, node(x), BOOK).time_s
    axis = closed(x.N)
    ring = on_axes(A2A, held, axis, torus(axis, x.W)).time_s
    return {"dense_exact": 1e6 * exact, "dense_rough": 1e6 * rough, "half_filled": 1e6 * filled,
            "gain_over_tpu": ring / rough, "half_over_dense": filled / rough}  # fmt: skip


@answers("GPU-08")
def _(x: Any) -> dict[str, Any]:
    port = Level("ib", x.nic / 8).rate
    su, leaf_up, spine = x.nodes_su * x.nics * port, x.leaf * x.spine * x.cables * port, x.spine * x.ports * port
    return {"node": x.nics * port, "su_down": su, "su_up": leaf_up, "spine_total": spine,
            "per_node": spine / (x.nodes_su * x.sus),
            "switch_count": 4 * x.nodes_su * x.sus + x.leaf * x.sus + x.spine}  # fmt: skip


@answers("GPU-09")
def _(x: Any) -> dict[str, Any]:
    return {"per_su": x.spine * x.ports * Level("ib", x.nic / 8).rate / x.sus}


@answers("GPU-10")
def _(x: Any) -> dict[str, Any]:
    one = x.ports * Level("ib", x.nic / 8).rate / 1000
    return {"one_switch": one, "sixteen": x.spine * one}


@answers("GPU-12")
def _(x: Any) -> dict[str, Any]:
    """With its own copy counted a GPU takes in what it sends out: 8 GB and the ninth that is its own result."""
    payload, level = int(x.V), node(x)._replace(in_network=InNetworkReduction())
    sharp, ring = in_network(payload, x.N, level, BOOK), switch(_A.RING, AR, payload, x.N, level)
    return {"ingress": x.N * sharp.egress_bytes, "time_sharp": 1e6 * sharp.time_s, "time_ring": 1e6 * ring.time_s,
            "predicted_gain": ring.time_s / sharp.time_s}  # fmt: skip


def two_levels(inside: int, w_gpu: float, w_node: float) -> Network:
    return Network((Level("nvlink", w_gpu, devices=inside), Level("ib", w_node / inside)))


@answers("GPU-14")
def _(x: Any) -> dict[str, Any]:
    """What the array passes in a second inside and between, by the phases of a gather over both nodes."""
    network = two_levels(x.N, x.W_gpu * 1e9, x.W_node * 1e9)
    payload = 16 * 10**9
    found = price(AG, payload, place(x.N * x.M, 1, network), network)
    inside = {phase.level: payload / phase.cost.time_s / 1e9 for phase in found.phases}
    return {"inside": inside["nvlink"], "between": inside["ib"], "limited_by": "node" if inside["nvlink"] < inside["ib"]
            else "leaf"}  # fmt: skip


@answers("GPU-15")
def _(x: Any) -> dict[str, Any]:
    """Over 32 nodes with Y inside: 8 shards of a node gather their own 1/8 through their own port each."""
    whole = 2 * x.D * x.F
    port = Level("ib", x.W_node / 8)
    y_8 = switch(_A.RING, AG, whole // 8, x.leaf, port).time_s
    y_16 = switch(_A.RING, AG, whole // x.Y, x.su // x.Y, Level("ib", x.su_bw / x.su), BOOK).time_s
    return {"y_le_8": 1e3 * y_8, "y_16": 1e3 * y_16, "per_gpu_bw": x.su_bw / x.su / 1e9}


@answers("GPU-16")
def _(x: Any) -> dict[str, Any]:
    """A reduction over the outer axis of an array split Y ways inside, the larger of its levels (the book's limit)."""

    def total(y: int) -> float:
        inner = Level("nvlink", x.W_gpu, devices=x.D_node)
        outer = Level("ib", x.W_node / x.D_node)
        inside = switch(_A.RING, RS, int(x.V), 2**20, inner, BOOK).time_s / min(y, x.D_node)
        # Each GPU of a node sends its part of 1/Y or of 1/D_node, whichever is smaller, through its share of the ports.
        across = switch(_A.RING, RS, int(x.V) // max(y, x.D_node), 2**20, outer, BOOK).time_s
        return 1e6 * max(inside, across)

    return {"y4_total": total(4), "y8_total": total(8), "y32_total": total(32)}


def intensity(flops: float, rate: float) -> float:
    """FLOP in the time that a byte takes to leave."""
    return flops * switch(_A.DIRECT, Kind.SEND_RECV, 1, 2, Level("link", rate)).time_s


@answers("GPU-17")
def _(x: Any) -> dict[str, Any]:
    across = intensity(x.C, x.W_node)
    halves = switch(_A.RING, AG, 1, 2, Level("ib", x.W_node)).time_s * x.C
    return {"in_node": intensity(x.C, x.W_gpu), "across": across, "llama3": x.n * across / 1e6,
            "h800": intensity(x.C, x.W_h800), "h800_total": x.n_ds * intensity(x.C, x.W_h800) / 1e6,
            "moe": x.E / x.k * across, "two_nodes": halves}  # fmt: skip


@answers("GPU-18")
def _(x: Any) -> dict[str, Any]:
    across = x.F / intensity(x.C, x.W_node)
    return {"in_node": x.F / intensity(x.C, x.W_gpu), "across": across, "two_nodes": across + 8}


@answers("GPU-19")
def _(x: Any) -> dict[str, Any]:
    return {"limit": x.F / intensity(x.C, x.W_gpu)}


@answers("GPU-20")
def _(x: Any) -> dict[str, Any]:
    return {"in_node": intensity(x.C, x.W_gpu), "across": intensity(x.C, x.W_node)}


@answers("GPU-27")
def _(x: Any) -> dict[str, Any]:
    return {"shape": [x.D, x.F // x.tp], "bytes": x.D * x.F // x.tp * x.dtype / 1e6}


@answers("NCC-01")
def _(x: Any) -> dict[str, Any]:
    names = {"AllReduce": "all_reduce", "ReduceScatter": "reduce_scatter", "AllGather": "all_gather",
             "Broadcast": "broadcast", "Reduce": "reduce", "AlltoAll": "all_to_all"}  # fmt: skip
    return {name: ratio(kind, x.n)[0] / ratio(kind, x.n)[1] for name, kind in names.items()}


@answers("NCC-03")
def _(x: Any) -> dict[str, Any]:
    rates = {"bus_16MiB": x.alg_16m, "bus_1GiB": x.alg_1g, "bus_16GiB": x.alg_16g}
    return {name: bandwidths("all_reduce", x.n, algbw=rate).busbw for name, rate in rates.items()}


@answers("NCC-05")
def _(x: Any) -> dict[str, Any]:
    kinds = {"allreduce": "all_reduce", "reducescatter": "reduce_scatter", "broadcast": "broadcast"}
    found = {name: bandwidths(kind, x.n, payload_bytes=x.S, busbw=x.B).time_s for name, kind in kinds.items()}
    return {name: 1e6 * time for name, time in found.items() if time}


@answers("NCC-06")
def _(x: Any) -> dict[str, Any]:
    return {"gpu_bw": x.link * x.links}


@answers("NCC-07")
def _(x: Any) -> dict[str, Any]:
    """NCCL's base beside the steps of the ring."""
    costs = {name: switch(_A.RING, AR, 0, x.n, Level("nvlink", 1e9, latency_s=late * 1e-6))
             for name, late in (("ll", x.hw_ll), ("simple", x.hw_simple))}  # fmt: skip
    return {"steps": costs["ll"].steps, "ring_ll": x.base_ll + 1e6 * costs["ll"].time_s,
            "ring_simple": x.base_simple + 1e6 * costs["simple"].time_s}  # fmt: skip


def cluster(inside: int, intra_us: float, inter_us: float) -> Network:
    return Network((Level("nvlink", 1e9, devices=inside, latency_s=intra_us * 1e-6),
                    Level("net", 1e9, latency_s=inter_us * 1e-6)))  # fmt: skip


@answers("NCC-08")
def _(x: Any) -> dict[str, Any]:
    network = cluster(x.n // x.nodes, max(x.intra, 3 * x.net_overhead), x.inter)
    at = place(x.n, 1, network)
    found = price(AR, 0, at, network, _A.RING).cost
    return {"inter_steps": 2 * dict(ring_hops(at))[1], "latency": x.base + 1e6 * found.time_s}


@answers("NCC-09")
def _(x: Any) -> dict[str, Any]:
    network = cluster(x.n // x.nodes, x.intra, x.inter)
    found = price(AR, 0, place(x.n, 1, network), network, _A.DOUBLE_BINARY_TREE).cost
    return {"latency": x.base + 1e6 * found.time_s}


@answers("NCC-10")
def _(x: Any) -> dict[str, Any]:
    found = bandwidths("all_reduce", x.n, payload_bytes=x.S, busbw=x.bus * 1e9)
    assert found.time_s is not None
    return {"algbw": found.algbw / 1e9, "time": x.lat + 1e6 * found.time_s}


def link(x: Any) -> Level:
    """Thakur's alpha and beta as a level."""
    return Level("link", 1e6 / x.beta, latency_s=x.alpha * 1e-6)


def us(algorithm: Algorithm, kind: Kind, x: Any, sums: float = 0.0) -> float:
    """Microseconds with ``sums`` bytes per payload byte added up at gamma, which commcalc does not count."""
    return float(1e6 * switch(algorithm, kind, x.n, x.p, link(x)).time_s + sums * x.n * x.gamma)


@answers("ALG-01")
def _(x: Any) -> dict[str, Any]:
    return {"time": us(_A.RECURSIVE_DOUBLING, AG, x)}


@answers("ALG-02")
def _(x: Any) -> dict[str, Any]:
    return {"time": us(_A.RING, AG, x)}


@answers("ALG-03")
def _(x: Any) -> dict[str, Any]:
    return {"time": us(_A.BRUCK, AG, x)}


@answers("ALG-06")
def _(x: Any) -> dict[str, Any]:
    sums = (x.p - 1) / x.p
    return {"recursive_halving": us(_A.RECURSIVE_HALVING, RS, x, sums), "pairwise": us(_A.PAIRWISE, RS, x, sums)}


@answers("ALG-08")
def _(x: Any) -> dict[str, Any]:
    return {"time": us(_A.RABENSEIFNER, AR, x, (x.p - 1) / x.p)}


@answers("ALG-09")
def _(x: Any) -> dict[str, Any]:
    """MPICH counts 2 (p-1)/p for what the 2^k ranks left over do among themselves: of 12 ranks 8, so 2 * 7/8."""
    return {"time": us(_A.RABENSEIFNER, AR, x, 1 + (x.p - 1) / x.p) + 2 * (1 / 8 - 1 / x.p) * x.n * x.beta}


@answers("ALG-10")
def _(x: Any) -> dict[str, Any]:
    """A reduce-scatter and a gather: the two halves of Rabenseifner's AllReduce."""
    return {"pow2": us(_A.RABENSEIFNER, AR, x, (x.p - 1) / x.p)}


@answers("ALG-11")
def _(x: Any) -> dict[str, Any]:
    """Thakur counts all n bytes in the pairwise exchange, the block that a rank keeps too."""
    return {"bruck": us(_A.BRUCK, A2A, x), "pairwise": us(_A.PAIRWISE, A2A, x) + x.n / x.p * x.beta}


@answers("ALG-12")
def _(x: Any) -> dict[str, Any]:
    """A scatter costs what a gather does: halving the data, or one peer after another."""
    return {"binomial": us(_A.RECURSIVE_HALVING, RS, x), "linear": us(_A.PAIRWISE, RS, x)}


@answers("ALG-14")
def _(x: Any) -> dict[str, Any]:
    """The two-shot broadcast scatters and gathers: 2 (p-1)/p n against n lg p."""

    def through(algorithm: Algorithm, p: int, convention: Convention = EXACT) -> float:
        return float(switch(algorithm, BROADCAST, 2**20, p, Level("link", 1e9), convention).bandwidth_s)

    shots, tree = _A.TWO_SHOT, _A.BINOMIAL_TREE
    return {"p4_long_wins": through(shots, x.p4) < through(tree, x.p4),
            "p8_long_wins": through(shots, x.p8, BOOK) < through(tree, x.p8),
            "p4_coarse": through(shots, x.p4, BOOK) < through(tree, x.p4)}  # fmt: skip


@answers("ALG-15")
def _(x: Any) -> dict[str, Any]:
    ring = switch(_A.RING, AR, x.n, x.p, Level("link", 1e9))
    bound = 2 * (x.p - 1) / x.p * x.n
    return {"lower_bound": bound, "ring_attains": ring.egress_bytes == bound}


@answers("ALG-16")
def _(x: Any) -> dict[str, Any]:
    """Least of each term alone, from the algorithms that reach it; no AllReduce reaches both at once."""
    sums = (x.p - 1) / x.p
    fewest = ceil_log2(x.p) * x.alpha
    bandwidth = 1e6 * switch(_A.RABENSEIFNER, AR, x.n, x.p, link(x)).bandwidth_s
    return {"broadcast": us(_A.DOUBLE_BINARY_TREE, BROADCAST, x), "allgather": us(_A.BRUCK, AG, x),
            "reduce_scatter": us(_A.RECURSIVE_HALVING, RS, x, sums),
            "allreduce": fewest + bandwidth + sums * x.n * x.gamma}  # fmt: skip


@answers("ALG-17")
def _(x: Any) -> dict[str, Any]:
    """A reduce is the broadcast backwards, with a sum in every step."""
    log = ceil_log2(x.p)
    return {"reduce": us(_A.BINOMIAL_TREE, BROADCAST, x, log), "tree_allreduce": us(_A.BINOMIAL_TREE, AR, x, log)}


def tokens_of_a_device(batch: int, length: int, devices: int) -> int:
    """Tokens of a step for each of ``devices``, of which as many hold the same tokens as the batch asks for."""
    replicas = math.gcd(batch, devices)
    model = fields(hidden_size=64, num_hidden_layers=1)
    priced = ask(model, parallelism__dp=replicas, workload__global_batch_size=batch, workload__sequence_length=length)
    tokens, rest = divmod(priced.ledger.sizes["T"] * priced.ledger.microbatches * replicas, devices)
    assert rest == 0
    return tokens


@answers("GPU-22")
def tokens_of_megatrons_runs(given: Any) -> dict[str, Any]:
    runs = {"16B": (192, 192), "70B": (384, 768), "314B": (1536, 3072)}
    return {name: tokens_of_a_device(batch, given.s, devices) for name, (batch, devices) in runs.items()}


@answers("GPU-23")
def tokens_of_deepseeks_batch(given: Any) -> dict[str, Any]:
    each = tokens_of_a_device(given.b, given.s, given.n)
    return {"batch": each * given.n, "per_gpu": each, "batch_in_dp_section": each * given.n}


@pytest.mark.parametrize("ident", [ident for ident in CASES if ident not in ELSEWHERE])
def test_golden(ident: str) -> None:
    case = CASES[ident]
    given = SimpleNamespace(**{name.partition("__")[0]: value for name, value in case["inputs"].items()})
    got = ANSWERS[ident](given)
    want = {value["name"]: value.get("recomputed", value.get("value")) for value in case["expected"]}
    assert got.keys() == want.keys()
    for name, value in want.items():
        same = math.isclose(got[name], value, rel_tol=1e-9) if isinstance(value, float) else got[name] == value
        assert same, f"{name}: {got[name]!r} is not {value!r}"


def test_every_case_is_answered_or_named() -> None:
    assert set(ANSWERS) | set(ELSEWHERE) == set(CASES)
    assert not set(ANSWERS) & set(ELSEWHERE)


# NCCL 2.30.7, src/graph/tuning.cc, AllReduce of no bytes: base, hardware latency of a step inside and between, in us.
# The plateau of a large Simple ring over nodes, 1.4, is NCCL's own.
NCCL = [
    ("ring LL, 8", _A.RING, 8, 1, 6.6, 0.6, 0.0, 1.0, 15.0),
    ("ring LL128, 8", _A.RING, 8, 1, 14.0, 1.9, 0.0, 1.0, 40.6),
    ("ring Simple, 8", _A.RING, 8, 1, 8.4, 3.4, 0.0, 1.0, 56.0),
    ("ring LL128, 4x8", _A.RING, 32, 4, 14.0, 1.9, 4.0, 1.0, 144.4),
    ("ring Simple, 4x8", _A.RING, 32, 4, 8.4, 3.4, 14.0, 1.4, 395.92),
]


@pytest.mark.parametrize(("name", "algorithm", "n", "nodes", "base", "intra", "inter", "plateau", "want"), NCCL)
def test_latencies_of_nccl(
    name: str,
    algorithm: Algorithm,
    n: int,
    nodes: int,
    base: float,
    intra: float,
    inter: float,
    plateau: float,
    want: float,
) -> None:
    network = cluster(n // nodes, intra, inter)
    found: Priced = price(AR, 0, place(n, 1, network, n), network, algorithm)
    assert (base + 1e6 * found.cost.time_s) * plateau == pytest.approx(want), name


def test_latency_of_nccls_tree_in_one_node() -> None:
    """A chain of 8: 6.8 us and 14 steps of 0.6 us (LL)."""
    down, across = tree_steps(8, 1)
    assert (6.8 + down * 0.6, across) == (pytest.approx(15.2), 0)


def test_what_a_device_sends_where_the_switch_reduces() -> None:
    """NCC and GPU-12: 9/8 of the payload with its own copy, all of it without."""
    assert wire_factor("all_reduce", 8, True) == (9, 8)
    tree = Level("ib", 50e9, in_network=InNetworkReduction(own_copy=False))
    assert in_network(8 * 10**9, 8, tree).egress_bytes == 8 * 10**9
