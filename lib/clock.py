"""When each power sample ended, finer than the whole seconds that powermetrics prints.

A header says the second in which a sample ended and, to 0.01 ms, how long the sample lasted. Summed elapsed times
give the spacing of the samples; the printed seconds say where the whole row of samples lies on the wall clock.
Every header is two inequalities, `stamp <= end < stamp + 1`, so offset and rate (the drift between the two clocks)
are confined to a small convex region. The estimate is the mean over that region, the bound its farthest corner.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lib.clock_line import RATE_MAX, Line, fit

LOOKAHEAD_S = 20.0
LATE_SECONDS = 0.25
"""Largest share of the seconds before a contradiction that may have a stamp read late."""
LATE_S = 0.25
"""A stamp is read at most so much after the end of its sample."""


class Gap(NamedTuple):
    """A place where stamps and elapsed times part.

    index: first sample after it. seconds: wall time that no sample covers; negative where the wall clock went back;
    NaN where it cannot be known. kind: "sleep" (the sample after it lasted unusually long, as after suspension),
    "lost" (blocks lost, or the clock set forwards), "back" (the clock set back, or a second writer),
    "no elapsed" (the header carries no duration).
    """

    index: int
    seconds: float
    kind: str


@dataclass(frozen=True, eq=False)
class Clock:
    """Rebuilt times of n samples.

    times_s: float64 (n,), epoch seconds of each sample's end, never decreasing; NaN only where no stamp is known.
    error_ms: bound of the error, worst over all samples; NaN without samples.
    drift_ppm: by how much the wall clock ran faster than elapsed time, mean over segments weighted by duration.
    roundtrip_pct: share of known stamps that the times reproduce when floored; NaN without stamps.
    gaps: what was found, in order; the log is solved separately on each side of each.
    """

    times_s: np.ndarray
    error_ms: float
    drift_ppm: float
    roundtrip_pct: float
    gaps: list[Gap]


def rebuild(stamp_s, elapsed_ms) -> Clock:
    """The Clock of n samples in file order, from the stamps (whole epoch seconds) and durations (ms) of their headers.

    NaN stamps constrain nothing; a NaN duration starts a new segment. A single sample is placed in the middle of its
    second with a bound of 500 ms. Where the wall clock was set back the later samples continue after the earlier ones
    (times never decrease): `times_s + sum of that gap's seconds` is then what the later wall clock showed.
    Raises ValueError when the lengths differ.
    """
    stamps = np.asarray(stamp_s, dtype=np.float64)
    elapsed = np.asarray(elapsed_ms, dtype=np.float64) / 1000.0
    if stamps.shape != elapsed.shape or stamps.ndim != 1:
        raise ValueError(f"stamps {stamps.shape} and elapsed {elapsed.shape} must be two rows of one length")
    elapsed = np.where(np.isfinite(elapsed) & (elapsed >= 0), elapsed, np.nan)
    known = np.isfinite(stamps)
    if not known.any():
        return Clock(np.full(len(stamps), np.nan), np.nan, np.nan, np.nan, [])
    base = float(np.floor(stamps[known][0]))
    stamps = np.where(known, stamps - base, np.nan)
    if len(stamps) > 1 and np.isnan(elapsed[1:]).all():
        return _by_stamps_alone(stamps, base)
    return _by_segments(stamps, elapsed, base)


def _by_segments(stamps: np.ndarray, elapsed: np.ndarray, base: float) -> Clock:
    ends = np.cumsum(np.nan_to_num(elapsed, nan=0.0))
    cuts = _find_cuts(stamps, ends, elapsed)
    edges = [0, *cuts, len(stamps)]
    lines = [fit(stamps[a:b], ends[a:b]) for a, b in pairwise(edges)]
    doubt = 0.0
    for k in range(1, len(lines)):
        if np.isnan(elapsed[edges[k]]):
            continue
        edges[k], extra = _place_cut(edges[k - 1], edges[k], stamps, ends, lines[k - 1], lines[k])
        doubt = max(doubt, extra)
    times = np.concatenate([line.at(ends[a:b]) for line, a, b in zip(lines, edges, edges[1:], strict=False)])
    roundtrip = _roundtrip(times, stamps)
    gaps = [_gap(i, times, elapsed) for i in edges[1:-1]]
    _never_back(times, elapsed, edges[1:-1])
    spans = np.array([ends[b - 1] - ends[a] for a, b in pairwise(edges)]) + 1e-9
    drift = float(np.average([line.rate for line in lines], weights=spans)) * 1e6
    error = (max(line.bound for line in lines) + doubt) * 1000.0
    return Clock(times + base, error, drift, roundtrip, gaps)


def _by_stamps_alone(stamps: np.ndarray, base: float) -> Clock:
    """Samples of one second spread evenly over it: all that can be said when no header carries a duration."""
    filled = np.maximum.accumulate(np.where(np.isnan(stamps), -np.inf, stamps))
    filled = np.where(np.isfinite(filled), filled, np.nanmin(stamps))
    starts = np.flatnonzero(np.r_[True, np.diff(filled) != 0])
    counts = np.diff(np.r_[starts, len(filled)])
    place = np.arange(len(filled)) - np.repeat(starts, counts)
    times = filled + (place + 0.5) / np.repeat(counts, counts)
    error = 1000.0 * (1.0 - 0.5 / counts.max())
    return Clock(times + base, error, 0.0, _roundtrip(times, stamps), [])


def _roundtrip(times: np.ndarray, stamps: np.ndarray) -> float:
    known = np.isfinite(stamps)
    return float(np.mean(np.floor(times[known] + 1e-9) == stamps[known])) * 100.0


def _gap(i: int, times: np.ndarray, elapsed: np.ndarray) -> Gap:
    seconds = float(times[i] - times[i - 1] - elapsed[i])
    if np.isnan(elapsed[i]):
        return Gap(i, seconds, "no elapsed")
    if seconds < 0:
        return Gap(i, seconds, "back")
    return Gap(i, seconds, "sleep" if elapsed[i] > 1.5 * np.nanmedian(elapsed) else "lost")


def _never_back(times: np.ndarray, elapsed: np.ndarray, cuts: list[int]) -> None:
    """Shift what follows a step back, in place, so that each sample still ends after the one before."""
    last = np.nan
    for i, stop in pairwise([0, *cuts, len(times)]):
        if times[i] < last:
            times[i:] += last + np.nan_to_num(elapsed[i]) - times[i]
        last = times[stop - 1] if np.isfinite(times[stop - 1]) else last


def _find_cuts(stamps: np.ndarray, ends: np.ndarray, elapsed: np.ndarray) -> list[int]:
    """Indices where a new segment begins.

    One pass keeps the interval of offsets `end - elapsed sum` that all stamps so far allow, widened as drift may
    move it. A stamp outside it is a gap, or a stamp read late.
    """
    low = stamps - ends
    at, lows, missing = ends.tolist(), low.tolist(), np.isnan(elapsed).tolist()
    cuts: list[int] = []
    start, floor, ceiling, before = 0, -np.inf, np.inf, at[0]
    for i, bottom in enumerate(lows):
        step = at[i] - before
        before = at[i]
        floor, ceiling = floor - RATE_MAX * step, ceiling + RATE_MAX * step
        if i and missing[i]:
            cut = True
        elif bottom > ceiling:
            if _is_late(i, bottom, ceiling, low, ends):
                continue
            cut = True
        elif bottom + 1 < floor:
            floor = _floor_without_late(start, i, bottom + 1, low, ends)
            cut = floor > bottom + 1
        else:
            cut = False
        if cut:
            cuts.append(i)
            start, floor, ceiling = i, -np.inf, np.inf
        if bottom == bottom:
            floor, ceiling = max(floor, bottom), min(ceiling, bottom + 1)
    return cuts


def _is_late(i: int, bottom: float, ceiling: float, low: np.ndarray, ends: np.ndarray) -> bool:
    """Whether the stamp of sample i is one read late, not the first after a gap.

    After a gap no later stamp contradicts it and others repeat it; a late one is contradicted or stays alone.
    """
    stop = int(np.searchsorted(ends, ends[i] + LOOKAHEAD_S, side="right"))
    grown = RATE_MAX * (ends[i + 1 : stop] - ends[i])
    ahead = low[i + 1 : stop]
    if np.any(ahead + 1 < bottom - grown):
        return bottom - ceiling < 1.0
    repeated = np.any(ahead > ceiling + grown)
    return not repeated and bottom - ceiling < LATE_S


def _floor_without_late(start: int, i: int, top: float, low: np.ndarray, ends: np.ndarray) -> float:
    """The lower end of the interval without the earlier stamps above `top`, if those were read late; else +inf.

    Late ones are few and late by little; before a step back nearly every second has one above.
    """
    seen = low[start:i] - RATE_MAX * (ends[i] - ends[start:i])
    above = seen > top
    seconds = np.round(low[start:i] + ends[start:i])
    few = max(2, LATE_SECONDS * np.unique(seconds[~np.isnan(seconds)]).size)
    if np.unique(seconds[above]).size > few or np.nanmax(seen) - top > LATE_S:
        return np.inf
    rest = seen[~above & ~np.isnan(seen)]
    return float(rest.max()) if rest.size else -np.inf


def _place_cut(start: int, cut: int, stamps, ends, left: Line, right: Line) -> tuple[int, float]:
    """The cut moved back over samples that both sides explain, and the doubt (s) that remains about those.

    A gap of under a second shows only when the next whole second passes, so the samples in between may lie on either
    side: half of them go to each.
    """
    first = cut
    while first > start + 1 and np.floor(right.at(ends[first - 1])) == stamps[first - 1]:
        first -= 1
    if first == cut:
        return cut, 0.0
    jump = abs(float(right.at(ends[cut]) - left.at(ends[cut])))
    return (first + cut + 1) // 2, jump
