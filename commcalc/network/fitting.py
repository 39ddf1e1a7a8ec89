"""The cost law of measured times: non-negative least squares on the relative error.

The law ``t = t0 + c sqrt(x) + x / B`` is linear in ``t0``, ``c`` and ``1/B``, so a fit needs no search: of the
subsets of three terms the best one without a negative term is the answer. Relative errors count, not seconds: plain
least squares would follow the largest sizes alone and put the latency of a clean log at three times its value. A few
rounds with weights ``1/sqrt|error|`` turn squares into absolute values, so that a few slow rows do not bend the law.

``B`` stays below 1.5 times the largest busbw seen. A log that ends before the plateau would otherwise give an endless
bandwidth, and one of a tree over two nodes twice the link's.

Source of the form, the rounds and the guard: fits of ten forms to 269 published sweeps of nccl-tests, rccl-tests and
oneCCL, whose error was 4 % in the median and 17 % at the 90th percentile below 1 MiB, 3 and 17 % above.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from operator import mul, truediv
from typing import NamedTuple

from commcalc.errors import SpecError
from commcalc.network.cost import added
from commcalc.network.law import Law, between

# Payload in bytes, seconds.
Point = tuple[int, float]

ROUNDS = 8
# More points than these are thinned for a fit, and of these so many are left out one by one.
_MOST_FITTED, _MOST_LEFT_OUT = 1000, 100
# How far the law's bandwidth may pass the largest busbw seen.
GUARD = 1.5
# Errors smaller than this weigh alike: a point that the law meets must not hold it fast.
_MET = 0.01
# A first row this many times the next is cold; a row this many times a larger size is slow.
COLD, SLOW = 1.5, 1.3
# Fastest call that a benchmark times: shorter ones are rows that did not run, in seconds.
SHORTEST_S = 1e-6
# What rounding leaves of a sum of squares.
_ROUNDING = 1e-13
_FEWEST_LEFT_OUT = 4


class Fit(NamedTuple):
    """A law and how far it is from its points.

    ``median`` and ``p90`` are relative errors ``|predicted/measured - 1|`` on the points it was fitted to; those left
    out predict each point by the fit to the others, None below 4 points. ``capped``: the points set no bandwidth
    below `GUARD` times the largest busbw, so that is what the law has.
    """

    law: Law
    median: float
    p90: float
    left_out_median: float | None
    left_out_p90: float | None
    capped: bool


def cleaned(points: Sequence[Point]) -> tuple[list[Point], list[tuple[Point, str]]]:
    """One time per size, sorted by size, and the rows that say nothing about the link, each with the reason.

    Give every row: of several times of one size (in and out of place, repeated runs) the least is kept, since what
    disturbs a run makes it slower; the others are not told. Dropped are size 0, times below 1 us, a first size
    that takes more than 1.5 times the next, and a size that takes more than 1.3 times a larger one. `SpecError` where
    a number is no size or time, or every time is 0.

    >>> kept, dropped = cleaned([(8, 9e-5), (16, 9e-6), (32, 1e-5), (16, 1.1e-5)])
    >>> kept, dropped
    ([(16, 9e-06), (32, 1e-05)], [((8, 9e-05), 'cold: first row, 10.0 times the next')])
    """
    _check(points)
    dropped = [(point, "size 0") for point in points if point[0] == 0]
    dropped += [(point, "time below 1 us") for point in points if point[0] > 0 and point[1] < SHORTEST_S]
    kept = _one_per_size([point for point in points if point[0] > 0 and point[1] >= SHORTEST_S])
    if len(kept) > 1 and kept[0][1] > COLD * kept[1][1]:
        dropped.append((kept[0], f"cold: first row, {kept[0][1] / kept[1][1]:.1f} times the next"))
        del kept[0]
    fast: list[Point] = []
    least = None
    for point in reversed(kept):
        if least is not None and point[1] > SLOW * least:
            dropped.append((point, f"slower than a larger size ({point[1] / least:.1f} times)"))
            continue
        least = point[1] if least is None else min(least, point[1])
        fast.append(point)
    return fast[::-1], sorted(dropped)


def law_of_points(points: Sequence[Point], factor: float) -> Law:
    """The law alone of clean points of at least two sizes; `fit` also says how good it is."""
    return _law(_thinned(points), factor)[0]


def _thinned(points: Sequence[Point]) -> list[Point]:
    """At most some thousand points, evenly chosen: more make no better law."""
    return list(points[:: -(-len(points) // _MOST_FITTED) or 1])


def fit(points: Sequence[Point], factor: float) -> Fit:
    """The law of points (payload bytes, seconds); ``factor`` is bus bytes per byte of payload.

    Two sizes fix no square root: then ``c`` is 0. `SpecError` for less than two sizes or times that are not positive.

    >>> found = fit([(2**k, 1e-5 + 2**k / 1e11) for k in range(13, 31)], 1.0)
    >>> f"{found.law.t0_s:.3g} {found.law.c:.3g} {found.law.bandwidth:.4g} {found.p90:.1f}"
    '1e-05 0 1e+11 0.0'
    """
    _check(points)
    if not (isfinite(factor) and factor > 0):
        raise SpecError(f"{factor} bytes on the bus per byte: a group of one device moves nothing to fit")
    points = _one_per_size(points)
    if points and (points[0][0] == 0 or min(seconds for _, seconds in points) <= 0):
        raise SpecError("a size or time of 0 fits no law", hint="drop such rows first")
    if len(points) < 2:
        told = "a single size fixes no law" if points else "no size is left to fit"
        raise SpecError(f"{told}; give at least 2, better 5", hint="measure from 8 KiB to 1 GiB")
    points = _thinned(points)
    law, capped = _law(points, factor)
    errors = [_error(law, factor, point) for point in points]
    left_out: list[float] = []
    if len(points) >= _FEWEST_LEFT_OUT:
        for at in range(0, len(points), -(-len(points) // _MOST_LEFT_OUT)):
            others, _ = _law(points[:at] + points[at + 1 :], factor)
            left_out.append(_error(others, factor, points[at]))
    return Fit(
        law,
        quantile(errors, 0.5),
        quantile(errors, 0.9),
        quantile(left_out, 0.5) if left_out else None,
        quantile(left_out, 0.9) if left_out else None,
        capped,
    )


def left_out_lines(points: Sequence[Point]) -> tuple[float, float]:
    """Median and 90th percentile of the relative error of straight lines: each inner point by its two neighbours.

    `SpecError` below three sizes.

    >>> [round(error, 3) for error in left_out_lines([(1000, 1e-6), (2000, 4e-6), (3000, 3e-6)])]
    [0.5, 0.5]
    """
    _check(points)
    points = _one_per_size(points)
    if len(points) < 3:
        raise SpecError(f"{len(points)} sizes have no point between others", hint="give at least 3")
    errors = []
    for at in range(1, len(points) - 1):
        size, seconds = points[at]
        errors.append(abs(float(between((points[at - 1], points[at + 1]), size)) / seconds - 1))
    return quantile(errors, 0.5), quantile(errors, 0.9)


def latency_rule(t0: Mapping[int, float], steps: Callable[[int], int]) -> tuple[float, float]:
    """Base and seconds per step, both at least 0, of ``t0 = base + step * k`` over the group sizes of ``t0``.

    ``steps`` gives ``k``: ``2(n-1)`` of an AllReduce on a ring, ``n-1`` of an AllGather. Relative errors count.
    `SpecError` for less than two group sizes.

    >>> base, step = latency_rule({2: 5.8e-6, 4: 9.6e-6, 8: 15.0e-6}, lambda n: 2 * (n - 1))
    >>> f"{1e6 * base:.1f} + {1e6 * step:.2f} k"
    '4.3 + 0.79 k'
    """
    if len(t0) < 2:
        raise SpecError(f"{len(t0)} group sizes fix no latency per step", hint="measure groups of two sizes")
    for n, seconds in t0.items():
        if not isfinite(seconds) or seconds < 0:
            raise SpecError(f"{seconds} is no latency of {n} devices")
    # A latency of 0 is a fit that found none: no relative error of it counts.
    rows = [(1 / seconds, steps(n) / seconds) for n, seconds in t0.items() if seconds > 0]
    if len(rows) < 2:
        return min(t0.values()), 0.0
    base, step = _non_negative(rows, [1.0] * len(rows), [1.0] * len(rows))
    return base, step


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies, between two of them in proportion.

    >>> quantile([3.0, 1.0, 2.0, 10.0], 0.5)
    2.5
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _check(points: Sequence[Point]) -> None:
    for size, seconds in points:
        if not isfinite(size) or size < 0:
            raise SpecError(f"{size} is no size in bytes")
        if not isfinite(seconds) or seconds < 0:
            raise SpecError(f"{seconds} s is no time of {size} bytes")
    if points and not any(seconds for _, seconds in points):
        raise SpecError("every time is 0: nothing was measured")


def _one_per_size(points: Sequence[Point]) -> list[Point]:
    least: dict[int, float] = {}
    for size, seconds in points:
        least[size] = min(seconds, least.get(size, seconds))
    return sorted(least.items())


def _error(law: Law, factor: float, point: Point) -> float:
    size, seconds = point
    return abs(float(law.seconds(factor * size)) / seconds - 1)


def _law(points: Sequence[Point], factor: float) -> tuple[Law, bool]:
    """The law of at least one point with distinct sizes, and whether the guard on the bandwidth was at work.

    The guard is a least slope: with ``1/B = slope + rest`` the rest is a term like the others, at least 0.
    """
    on_bus = [(factor * size, seconds) for size, seconds in points]
    slope = min(seconds / size for size, seconds in on_bus) / GUARD
    wanted = [1 - slope * size / seconds for size, seconds in on_bus]
    rows: list[tuple[float, ...]] = [
        (1 / seconds, size / seconds) if len(points) == 2 else (1 / seconds, size / seconds, size**0.5 / seconds)
        for size, seconds in on_bus
    ]
    weights = [1.0] * len(rows)
    found: tuple[float, ...] = ()
    for _ in range(1 + ROUNDS):
        found = _non_negative(rows, wanted, weights)
        weights = [1 / max(abs(added(map(mul, found, row)) - aim), _MET) for row, aim in zip(rows, wanted, strict=True)]
    t0, rest, c = (*found, 0.0) if len(found) == 2 else found
    return Law(t0, c, 1 / (slope + rest)), rest == 0


def _non_negative(
    rows: Sequence[tuple[float, ...]], wanted: Sequence[float], weights: Sequence[float]
) -> tuple[float, ...]:
    """Terms of at least 0 with the least weighted squares of ``row . terms - wanted``.

    Exact: least squares themselves where no term is negative, else the least of all subsets of terms whose own has
    none. A term that explains no more than rounding is left out.
    """
    count = len(rows[0])
    columns = [[row[i] for row in rows] for i in range(count)]
    weighted = [list(map(mul, column, weights)) for column in columns]
    scale = [added(map(mul, column, other)) ** 0.5 or 1.0 for column, other in zip(columns, weighted, strict=True)]
    gram = [
        [sum(map(mul, weighted[i], columns[j])) / (scale[i] * scale[j]) for j in range(count)] for i in range(count)
    ]
    aims = [sum(map(mul, weighted[i], wanted)) / scale[i] for i in range(count)]
    all_of = added(map(mul, weights, map(mul, wanted, wanted)))
    solved = _solve([[*gram[i], aims[i]] for i in range(count)])
    if solved is not None and min(solved) > _ROUNDING**0.5 * all_of**0.5:
        return tuple(map(truediv, solved, scale))
    best, least = (0.0,) * count, all_of
    for subset in sorted(range(1, 2**count), key=int.bit_count):
        chosen = [i for i in range(count) if subset >> i & 1]
        solved = _solve([[gram[i][j] for j in chosen] + [aims[i]] for i in chosen])
        if solved is None or min(solved) < 0:
            continue
        # At the solution of the normal equations the squares left are those wanted less those explained.
        left = all_of - added(map(mul, solved, [aims[i] for i in chosen]))
        if left < least - _ROUNDING * all_of:
            least = left
            terms = dict(zip(chosen, solved, strict=True))
            best = tuple(terms.get(i, 0.0) / scale[i] for i in range(count))
    return best


def _solve(rows: list[list[float]]) -> list[float] | None:
    """The solution of a few equations, each a list of its coefficients and what they make; None where it is not one."""
    count = len(rows)
    for at in range(count):
        pivot = max(range(at, count), key=lambda i: abs(rows[i][at]))
        rows[at], rows[pivot] = rows[pivot], rows[at]
        if abs(rows[at][at]) < _ROUNDING:
            return None
        for other in range(count):
            if other != at:
                ratio = rows[other][at] / rows[at][at]
                rows[other] = [value - ratio * top for value, top in zip(rows[other], rows[at], strict=True)]
    return [rows[i][count] / rows[i][i] for i in range(count)]
