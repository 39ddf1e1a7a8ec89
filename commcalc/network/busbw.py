"""What the numbers of a benchmark mean: time, algorithm bandwidth and bus bandwidth, any one from any other.

    algbw = payload / time,  busbw = algbw * factor,  factor = bytes sent by one device on a ring / payload

    all_reduce                                                2 (n-1)/n
    all_gather, reduce_scatter, all_to_all, gather, scatter     (n-1)/n
    broadcast, reduce, send_recv, permute                        1

On a ring busbw is what one device really sends per second, so it never exceeds the link's one-way rate. Where the
switch reduces, a device sends ``payload (1 + 1/n)`` instead: the rate on the wire is ``algbw (n+1)/n``, and busbw is
``2W(n-1)/(n+1)`` at a wire rate of W, rightly above the link rate for larger groups.

Sources: nccl-tests doc/PERFORMANCE.md for the factors; NVIDIA/nccl issues 1374 and 1455, measured on 5 to 8 H100:
algbw (n+1)/n is 309.6, 309.2, 308.6, 307.1 GB/s.
"""

from typing import Any, NamedTuple

from commcalc.algebra.collective import Kind, wire_ratio
from commcalc.errors import UnknownName, UsageError

Number = Any
# Kinds that benchmarks name beside those of the algebra, by the kind whose factor they have.
LIKE = {"reduce": Kind.BROADCAST, "gather": Kind.ALL_GATHER, "scatter": Kind.ALL_GATHER}
KINDS = (*(kind.value for kind in Kind if kind is not Kind.SLICE), *LIKE)


# What no link is faster than, in bytes per second.
_FASTEST = 1e18


class Bandwidths(NamedTuple):
    """One measurement or prediction of a collective over ``n`` devices.

    ``time_s`` and ``payload_bytes`` are None where only rates are known. ``wire`` is the rate in bytes per second at
    which one device sends; ``link`` the one-way rate of its link, where that is known; ``own_copy`` is that of the
    `InNetworkReduction`.
    """

    kind: str
    n: Number
    payload_bytes: Number | None
    time_s: Number | None
    algbw: Number
    busbw: Number
    wire: Number
    in_network: bool = False
    link: float | None = None
    own_copy: bool = True

    @property
    def sent(self) -> tuple[Number, Number]:
        """What one device sends per byte of payload, as a quotient."""
        return wire_factor(self.kind, self.n, self.in_network, self.own_copy)

    @property
    def share_of_link(self) -> Number | None:
        """What of the link's one-way rate the wire uses."""
        return None if self.link is None else self.wire / self.link


def kind_named(text: str) -> str:
    """The kind of a common spelling: ``AllReduce``, ``all-reduce`` and ``allreduce`` are ``all_reduce``.

    >>> kind_named("AllReduce"), kind_named("sendrecv")
    ('all_reduce', 'send_recv')
    """
    folded = {kind.replace("_", ""): kind for kind in KINDS}
    found = folded.get(text.strip().replace("_", "").replace("-", "").replace(" ", "").lower())
    if found is None:
        raise UnknownName("collective", text, KINDS, where="KIND")
    return found


def ratio(kind: str, n: Number) -> tuple[Number, Number]:
    """The factor from algbw to busbw as a quotient.

    >>> ratio("all_reduce", 8), ratio("broadcast", 8)
    ((14, 8), (1, 1))
    """
    return wire_ratio(LIKE[kind] if kind in LIKE else Kind(kind), n)


def formula(kind: str) -> str:
    """The factor in symbols."""
    over, _ = ratio(kind, 3)
    return {4: "2(n-1)/n", 2: "(n-1)/n"}.get(over, "1")


def wire_factor(kind: str, n: Number, in_network: bool, own_copy: bool = True) -> tuple[Number, Number]:
    """Bytes that one device sends per byte of payload: on a ring, or where the switch reduces.

    ``own_copy``: each device then sends its share of the result too (`InNetworkReduction`).

    >>> wire_factor("all_reduce", 8, True)
    (9, 8)
    """
    if not in_network:
        return ratio(kind, n)
    from commcalc.network.link import in_network_ratio

    return in_network_ratio(n, own_copy)


def bandwidths(
    kind: str,
    n: Number,
    *,
    payload_bytes: Number | None = None,
    time_s: Number | None = None,
    algbw: Number | None = None,
    busbw: Number | None = None,
    in_network: bool = False,
    link: float | None = None,
    own_copy: bool = True,
) -> Bandwidths:
    """All of time, algbw and busbw from the one that is given; rates are bytes per second, ``n`` devices.

    A time needs the payload. `UsageError` where none or several are given, or where a group of one has a busbw.

    >>> round(bandwidths("all_reduce", 8, payload_bytes=2**30, time_s=5.07e-3).busbw / 1e9, 2)
    370.62
    """
    given = [name for name, value in (("time", time_s), ("algbw", algbw), ("busbw", busbw)) if value is not None]
    if len(given) != 1:
        told = "none of time, algbw, busbw is given" if not given else f"{' and '.join(given)} are given"
        raise UsageError(
            f"{told}; one of them gives the others",
            where=" ".join(f"--{name}" for name in given) or "the command line",
            hint="--time 5ms, --algbw 200GB/s or --busbw 370GB/s",
        )
    if in_network and kind != Kind.ALL_REDUCE:
        raise UsageError(f"a switch reduces all_reduce, not {kind}", where="--in-network", hint="leave it out")
    over, under = ratio(kind, n)
    if time_s is not None:
        if payload_bytes is None:
            raise UsageError("a time without the payload", where="--time", hint="add --bytes 1GiB")
        algbw = payload_bytes / time_s
        if isinstance(algbw, float) and algbw > _FASTEST:
            raise UsageError(
                f"{payload_bytes} B in {time_s:.4g} s is faster than 10^18 B/s: no link is",
                where="--time", hint="--time 5ms",
            )  # fmt: skip
    elif busbw is not None:
        if isinstance(n, int) and n == 1:
            raise UsageError("a group of one device sends nothing: its busbw is 0", where="--group-size 1 --busbw")
        algbw = busbw * under / over
    if time_s is None and payload_bytes is not None:
        time_s = payload_bytes / algbw
    bus = algbw * over / under if busbw is None else busbw
    sent, of = wire_factor(kind, n, in_network, own_copy)
    return Bandwidths(kind, n, payload_bytes, time_s, algbw, bus, algbw * sent / of, in_network, link, own_copy)
