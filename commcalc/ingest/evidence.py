"""What the rows of a sweep tell about its collective and ranks where no line says it.

The columns decide: a reduction is named or not, a root is a rank or not, ``count`` is a share of ``size`` or all of it.
And busbw/algbw is 2(n-1)/n for an AllReduce, (n-1)/n for what is shared out, 1 for the rest.
"""

from __future__ import annotations

import math
from heapq import heappush, heappushpop

from commcalc.ingest.sweeps import ELEMENT_BYTES, Block, Point

_KEPT = 12
_MOST_RANKS = 2**20
# Below this many GB/s two decimals say nothing about the ratio.
_TELLING = 1.0


class Evidence:
    """Collected over the rows of one sweep."""

    def __init__(self) -> None:
        self.busbw = 0.0
        self.algbw = 0.0
        self.redop: str | None = None
        self.rooted = False
        self.shares: int | None = None
        self._shares_agree = True
        # Rows with the largest busbw, and the bounds they set to busbw/algbw.
        self._best: list[tuple[float, float, float]] = []

    def add(self, point: Point, *, share: bool) -> None:
        """Take a row; ``share`` says whether its count is a share of the size, as in nccl-tests."""
        self.redop = point.redop
        self.rooted = self.rooted or (point.root is not None and point.root >= 0)
        width = ELEMENT_BYTES.get(point.dtype)
        if share and point.elements and width:
            parts, rest = divmod(point.size, point.elements * width)
            self._shares_agree = self._shares_agree and not rest and self.shares in (None, parts)
            self.shares = parts if self._shares_agree else None
        for block in (point.out, point.inside):
            if block is not None and block.algbw is not None and block.busbw is not None:
                self._weigh(block)

    def _weigh(self, block: Block) -> None:
        algbw, busbw = float(block.algbw or 0.0), float(block.busbw or 0.0)
        self.algbw = max(self.algbw, algbw)
        self.busbw = max(self.busbw, busbw)
        if min(busbw, algbw) < _TELLING:
            return
        low = (busbw - block.busbw_half) / (algbw + block.algbw_half)
        high = (busbw + block.busbw_half) / (algbw - block.algbw_half)
        self._keep((busbw, low * (1 - 1e-7), high * (1 + 1e-7)))

    def _keep(self, entry: tuple[float, float, float]) -> None:
        if len(self._best) < _KEPT:
            heappush(self._best, entry)
        else:
            heappushpop(self._best, entry)

    def join(self, other: Evidence) -> None:
        """Add what another part of the same sweep tells."""
        self.busbw, self.algbw = max(self.busbw, other.busbw), max(self.algbw, other.algbw)
        self.rooted = self.rooted or other.rooted
        self._shares_agree = self._shares_agree and other._shares_agree and self.shares == other.shares
        self.shares = self.shares if self._shares_agree else None
        for entry in other._best:
            self._keep(entry)

    def ratio(self) -> tuple[float, float] | None:
        """Bounds of busbw/algbw that the best rows agree on."""
        bounds: tuple[float, float] | None = None
        for _, low, high in sorted(self._best, reverse=True):
            if bounds is None:
                bounds = low, high
            elif low <= bounds[1] and high >= bounds[0]:  # a row that disagrees is an odd one out
                bounds = max(low, bounds[0]), min(high, bounds[1])
        return bounds

    def crossed(self) -> bool:
        """Whether the bandwidths show more than one rank: alone, busbw is 0, or algbw where the factor is 1."""
        bounds = self.ratio()
        shared = (self.shares or 1) > 1 or (bounds is not None and not bounds[0] <= 1 <= bounds[1])
        return self.busbw > 0.0 and (self._reduces() or shared)

    def _reduces(self) -> bool:
        return self.redop not in (None, "none")

    def collectives(self, ranks: int | None) -> set[str]:
        """The collectives whose rows look like these."""
        bounds = self.ratio()
        shared = None if self.shares is None else self.shares > 1
        if bounds is not None and (bounds[1] < 1 or bounds[0] > 1):
            shared = bounds[1] < 1
        if self._reduces():
            if self.rooted and not (bounds is not None and bounds[0] > 1):
                return {"reduce"}
            if not shared and bounds is not None and bounds[0] <= 1 <= bounds[1] and (ranks or 2) > 2:
                return {"reduce"}
            return {"all_reduce", "reduce_scatter"} if shared is None else {("all_reduce", "reduce_scatter")[shared]}
        whole, parts = ({"broadcast"}, {"gather", "scatter"}) if self.rooted else ({"sendrecv"}, set(_PARTS))
        if bounds is not None and bounds[0] > 1:
            return {"all_reduce"}  # a table without its reduction column
        if self.redop is None and shared is not True and bounds is None:
            return whole | parts | {"all_reduce", "reduce_scatter", "broadcast"}
        return whole | parts if shared is None else (whole, parts)[shared]

    def _by_ratio(self, name: str) -> tuple[int, int] | None:
        """Smallest and largest number of ranks that give the ratio."""
        bounds = self.ratio()
        passes = 2 if name == "all_reduce" else 1
        if bounds is None or name in ("sendrecv", "broadcast", "reduce"):
            return None
        low, high = (passes / (passes - bound) if bound < passes else math.inf for bound in bounds)
        return max(1, math.ceil(low - 1e-9)), math.floor(min(high, _MOST_RANKS) + 1e-9)

    def ranks_by_ratio(self, name: str | None, notes: list[str]) -> int | None:
        """The number of ranks that busbw/algbw gives; where several fit closely, the roundest of them, said so."""
        if name is None:
            possible = self.collectives(None)
            name = "all_gather" if possible and possible <= {*_PARTS, "gather", "scatter"} else None
        found = self._by_ratio(name) if name else None
        if found is None or found[1] < found[0] or found[1] < 2:
            return None
        least, most = found
        if least == most:
            notes.append(f"{least} ranks, from busbw/algbw")
            return least
        if most > least * 1.1:
            notes.append(f"the ranks are not told: {least} or more fit busbw/algbw")
            return None
        roundest = max(range(least, most + 1), key=lambda ranks: ranks & -ranks)
        notes.append(f"about {roundest} ranks: {least} to {most} fit busbw/algbw")
        return roundest

    def allows(self, ranks: int) -> bool:
        """Whether some collective over so many ranks would show this ratio."""
        possible = self.collectives(ranks)
        return not possible or any(self._fits(name, ranks) for name in possible)

    def _fits(self, name: str, ranks: int) -> bool:
        found = self._by_ratio(name)
        return found is None or found[0] <= ranks <= found[1]

    def check(self, name: str, ranks: int, notes: list[str]) -> None:
        """Note a ratio that ``name`` over ``ranks`` does not show."""
        if not self._fits(name, ranks):
            bounds = self.ratio()
            seen = f"{bounds[0]:.4g}" if bounds else "unknown"
            notes.append(f"busbw/algbw is {seen}, which {name} over {ranks} ranks does not give")


_PARTS = ("all_gather", "alltoall", "hypercube")
