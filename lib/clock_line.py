"""The straight line from summed elapsed times to the wall clock, for samples without a gap.

Every stamp is two inequalities, `stamp <= end < stamp + 1`. Together they confine offset and rate to a convex region;
the estimate is the mean over it, weighted by what is believed about drift, and the bound its farthest corner.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

RATE_MAX = 200e-6
"""Largest drift believed, as a fraction: crystals keep within 100 ppm, a disciplined clock adds some."""
RATE_SIGMA = 25e-6
"""Width of the belief about drift; it decides where a log is too short to show its drift, and nowhere else."""
ROUNDING_S = 5e-6
"""Half of the last printed digit of elapsed."""
SHORT_S = 10.0
"""Below this span drift moves a sample less than the other doubts, and is taken as 0."""
LATE_SHARE = 0.05
"""Largest share of the seconds of a log with a stamp read late."""


class Line(NamedTuple):
    """end = offset + (1 + rate) x (elapsed sum - middle), all in seconds."""

    offset: float
    rate: float
    middle: float
    bound: float

    def at(self, ends):
        return self.offset + (1.0 + self.rate) * (ends - self.middle)


def fit(stamps: np.ndarray, ends: np.ndarray) -> Line:
    """The line through one segment: mean of all offsets and rates that its stamps allow."""
    known = np.isfinite(stamps)
    middle = (ends[0] + ends[-1]) / 2
    reach = (ends[-1] - ends[0]) / 2
    if not known.any():
        return Line(np.nan, 0.0, middle, np.nan)
    s, x = stamps[known], ends[known] - middle
    change = np.diff(s) != 0
    first, last = np.r_[True, change], np.r_[change, True]
    n = len(s)
    slack = min(ROUNDING_S * n, 4 * ROUNDING_S / np.sqrt(3) * np.sqrt(n))
    low, x_low = (s - x)[first], x[first]
    high, x_high = (s + 1 - x)[last], x[last]
    if 2 * reach < SHORT_S:
        return _fit_offset(low, high, middle, reach, slack)
    keep, rate = _drop_late(low, x_low, high, x_high, slack)
    return _fit_region(low[keep], x_low[keep], high, x_high, rate, middle, reach, slack)


def _fit_offset(low: np.ndarray, high: np.ndarray, middle: float, reach: float, slack: float) -> Line:
    bottom, top = low.max(), high.min()
    return Line((bottom + top) / 2, 0.0, middle, abs(top - bottom) / 2 + RATE_MAX * reach + slack)


def _excess(rate, low, x_low, high, x_high):
    """Smallest `lower bound - upper bound` of the offset at each rate: negative where the rate is possible."""
    return (low - rate * x_low).max() - (high - rate * x_high).min()


def _best_rate(*sides) -> float:
    """The rate of least excess, which is convex in the rate: golden section."""
    a, b = -RATE_MAX, RATE_MAX
    golden = (np.sqrt(5) - 1) / 2
    for _ in range(40):
        c, d = b - golden * (b - a), a + golden * (b - a)
        if _excess(c, *sides) < _excess(d, *sides):
            b = d
        else:
            a = c
    return (a + b) / 2


def _drop_late(low, x_low, high, x_high, slack):
    """Which lower bounds to believe, and the best rate.

    A stamp read late may be a second too high, never too low: only `stamp <= end` can be false. The worst of those
    are left out until the rest agree; if more than a few would have to go, none does and the region is widened.
    """
    keep = np.ones(len(low), dtype=bool)
    budget = max(2, int(LATE_SHARE * len(low)))
    first_rate = rate = _best_rate(low, x_low, high, x_high)
    while True:
        ceiling = (high - rate * x_high).min()
        beyond = np.where(keep, low - rate * x_low - ceiling, -np.inf)
        worst = beyond.max()
        if worst <= 2 * slack:
            return keep, rate
        keep &= beyond <= 0.75 * worst
        if np.count_nonzero(~keep) > budget:
            return np.ones(len(low), dtype=bool), first_rate
        rate = _best_rate(low[keep], x_low[keep], high, x_high)


def _fit_region(low, x_low, high, x_high, rate, middle, reach, slack) -> Line:
    """Mean of the region, widened first if rounding (`slack`) or anything else left it empty."""
    excess = _excess(rate, low, x_low, high, x_high)
    widen = max(0.0, excess / 2 + slack / 10) if excess > 0 else 1e-9
    low, high = low - widen, high + widen
    sides = (low, x_low, high, x_high)
    rates = np.linspace(_edge(rate, -RATE_MAX, sides), _edge(rate, RATE_MAX, sides), 65)
    bottom = np.array([(low - r * x_low).max() for r in rates])
    top = np.array([(high - r * x_high).min() for r in rates])
    weight = np.maximum(top - bottom, 0) * np.exp(-0.5 * (rates / RATE_SIGMA) ** 2)
    if not weight.sum() > 0:
        weight = np.ones_like(rates)
    offset = np.average((bottom + top) / 2, weights=weight)
    best = np.average(rates, weights=weight)
    bound = _bound(bottom - offset, top - offset, (rates - best) * reach)
    return Line(offset, best, middle, bound + slack)


def _bound(bottom, top, tilt) -> float:
    """Farthest corner of the region from the estimate, at either end of the segment."""
    return float(np.abs(np.concatenate([bottom + tilt, bottom - tilt, top + tilt, top - tilt])).max())


def _edge(inside: float, outside: float, sides) -> float:
    """The possible rate nearest to `outside`, by halving."""
    if _excess(outside, *sides) <= 0:
        return outside
    for _ in range(40):
        half = (inside + outside) / 2
        if _excess(half, *sides) <= 0:
            inside = half
        else:
            outside = half
    return inside
