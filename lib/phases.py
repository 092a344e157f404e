"""Power by phase of a request: which part of each power sample is prefill, decode or neither, and what follows.

A sample is the mean power over (end - elapsed, end]. Prefill is [start, start + TTFT), decode [start + TTFT, end) of
each measured request. With several requests at once, prefill is "any prefill running" and decode is "decode only".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PHASES = ("prefill", "decode")
# The published median wants this many samples that lie wholly inside a phase; below it the fit leads.
ENOUGH_INSIDE = 10
# A fit needs this much of a phase under samples, in units of one sample; with less there is no power to speak of.
MIN_FIT_SAMPLES = 2.0
# Share of the requests' time that must lie under power samples; below it log and requests do not belong together.
MIN_COVERAGE = 0.5
_EDGE_S = 1e-6  # float64 epoch seconds resolve 0.24 us; a sample may stick out by this much and still count as inside


@dataclass(frozen=True)
class Windows:
    """Phases on the wall clock as sorted edges: `prefill` and `busy` are (n, 2) arrays of start and end, epoch seconds."""

    prefill: np.ndarray
    busy: np.ndarray

    @property
    def span(self) -> tuple[float, float]:
        """First start and last end, epoch seconds."""
        return float(self.busy[0, 0]), float(self.busy[-1, 1])


def windows(start_s: np.ndarray, ttft_s: np.ndarray, end_s: np.ndarray) -> Windows:
    """Phase windows of requests, from arrays of equal length (epoch seconds, seconds, epoch seconds).

    Overlapping windows are merged, so that concurrent requests are not counted twice. ValueError without requests.
    """
    if len(start_s) == 0:
        raise ValueError("no measured requests, so no phases")
    first_token_s = np.minimum(start_s + ttft_s, end_s)
    return Windows(_merge(start_s, first_token_s), _merge(start_s, end_s))


def _merge(start_s: np.ndarray, end_s: np.ndarray) -> np.ndarray:
    order = np.argsort(start_s, kind="stable")
    start_s, reach_s = np.asarray(start_s)[order], np.maximum.accumulate(np.asarray(end_s)[order])
    opens = np.append(True, start_s[1:] > reach_s[:-1])
    closes = np.append(opens[1:], True)
    return np.column_stack([start_s[opens], reach_s[closes]])


def _time_inside(edges: np.ndarray, times_s: np.ndarray) -> np.ndarray:
    """Seconds spent inside the windows up to each time: the integral of their indicator function."""
    knots, inside = edges.ravel(), np.repeat(np.cumsum(edges[:, 1] - edges[:, 0]), 2)
    inside[::2] = np.append(0.0, inside[1:-1:2])
    return np.interp(times_s, knots, inside)


@dataclass(frozen=True)
class Split:
    """Seconds of each sample in prefill, in decode and between requests (within the span), arrays of one per sample."""

    elapsed_s: np.ndarray
    prefill_s: np.ndarray
    decode_s: np.ndarray
    between_s: np.ndarray
    midpoint: np.ndarray

    def inside(self, phase: str) -> np.ndarray:
        """Mask of the samples that lie wholly inside the phase."""
        return getattr(self, f"{phase}_s") >= self.elapsed_s - _EDGE_S


def split(times_s: np.ndarray, elapsed_s: np.ndarray, found: Windows) -> Split:
    """Cut samples (end times in epoch seconds, lengths in seconds) at the phases' edges. Lost time is nobody's."""
    times_s, elapsed_s = np.asarray(times_s, float), np.asarray(elapsed_s, float)
    begin_s = times_s - elapsed_s
    middle_s = times_s - elapsed_s / 2
    parts = {}
    for name, edges in (("prefill", found.prefill), ("busy", found.busy), ("span", np.array([found.span]))):
        parts[name] = _time_inside(edges, times_s) - _time_inside(edges, begin_s)
    return Split(
        elapsed_s=elapsed_s,
        prefill_s=parts["prefill"],
        decode_s=parts["busy"] - parts["prefill"],
        between_s=parts["span"] - parts["busy"],
        midpoint=_phase_at(middle_s, found),
    )


def _phase_at(when_s: np.ndarray, found: Windows) -> np.ndarray:
    """Phase at each time: prefill, decode, between (two requests) or outside (before the first, after the last)."""

    def within(edges: np.ndarray) -> np.ndarray:
        row = np.searchsorted(edges[:, 0], when_s, side="right") - 1
        return (row >= 0) & (when_s < edges[np.maximum(row, 0), 1])

    first_s, last_s = found.span
    between = (when_s >= first_s) & (when_s < last_s)
    choices = [within(found.prefill), within(found.busy), between]
    return np.select(choices, ["prefill", "decode", "between"], "outside")


@dataclass(frozen=True)
class PhasePower:
    """Power of one phase by three estimators, in watts; NaN where there is none, with `reason` then saying why.

    `median_W`: median of the samples wholly inside (published method), or by midpoint where fewer than ten are.
    `fit_W`: least squares over all samples on their overlap fractions. `integral_W`: energy under the samples over time.
    `power_W` is the one to quote: the median where ten samples lie inside, else the fit, else the median by midpoint;
    `estimator` names it. `samples` counts those inside, `samples_midpoint` those by midpoint.
    """

    power_W: float
    estimator: str
    median_W: float
    fit_W: float
    integral_W: float
    covered_s: float
    coverage_pct: float
    samples: int
    samples_midpoint: int
    reason: str


def fit(power_W: np.ndarray, parts: Split) -> dict[str, float]:
    """Mean power of prefill, decode and the time between, W, by least squares on overlap fractions.

    Each sample's power is modelled as the time-weighted mean of the phases' powers, which uses straddling samples too.
    Samples are weighted by their length, since the counters quantise energy and not power. A phase with less than
    two samples' worth of overlap is NaN; samples that touch it, or that reach outside the span, are left out.
    """
    names = ("prefill", "decode", "between")
    overlap_s = np.column_stack([getattr(parts, f"{n}_s") for n in names])
    known = ~np.isnan(power_W)
    typical_s = np.median(parts.elapsed_s[known]) if known.any() else np.nan
    enough = overlap_s[known].sum(axis=0) >= MIN_FIT_SAMPLES * typical_s
    tiles = np.abs(overlap_s[:, enough].sum(axis=1) - parts.elapsed_s) < _EDGE_S
    use = known & tiles
    result = dict.fromkeys(names, float("nan"))
    if use.sum() >= max(2, enough.sum()) and enough.any():
        # Rows in joules: overlap (s) x power (W) = energy (J), whose rounding error is the same in every row.
        values, _, rank, _ = np.linalg.lstsq(
            overlap_s[use][:, enough], power_W[use] * parts.elapsed_s[use], rcond=None
        )  # fmt: skip
        if rank == enough.sum():
            result |= dict(zip(np.array(names)[enough], map(float, values), strict=True))
    return result


def phase_power(phase: str, power_W: np.ndarray, parts: Split, found: Windows, fitted: dict[str, float]) -> PhasePower:
    """Power of `phase` from samples' power in watts (NaN where a rail is missing) and their split."""
    known = ~np.isnan(power_W)
    inside, near = known & parts.inside(phase), known & (parts.midpoint == phase)
    chosen = inside if inside.sum() >= ENOUGH_INSIDE else near
    median_W = float(np.median(power_W[chosen])) if chosen.any() else float("nan")
    overlap_s = np.where(known, getattr(parts, f"{phase}_s"), 0.0)
    covered_s, length_s = float(overlap_s.sum()), _length_s(phase, found)
    value_W, estimator = _leading(int(inside.sum()), median_W, fitted[phase])
    return PhasePower(
        power_W=value_W,
        estimator=estimator,
        median_W=median_W,
        fit_W=fitted[phase],
        integral_W=float(np.nansum(power_W * overlap_s) / covered_s) if covered_s else float("nan"),
        covered_s=covered_s,
        coverage_pct=100 * covered_s / length_s if length_s else float("nan"),
        samples=int(inside.sum()),
        samples_midpoint=int(near.sum()),
        reason="" if estimator else f"no {phase} power: {covered_s * 1000:.0f} ms of {phase} under power samples",
    )


def _leading(inside: int, median_W: float, fit_W: float) -> tuple[float, str]:
    if inside >= ENOUGH_INSIDE:
        return median_W, "median"
    if fit_W > 0:
        return fit_W, "fit"
    return (median_W, "midpoint") if not np.isnan(median_W) else (float("nan"), "")


def _length_s(phase: str, found: Windows) -> float:
    prefill_s = float(np.sum(found.prefill[:, 1] - found.prefill[:, 0]))
    if phase == "prefill":
        return prefill_s
    return float(np.sum(found.busy[:, 1] - found.busy[:, 0])) - prefill_s


def conservation_pct(times_s: np.ndarray, power_W: np.ndarray, parts: Split, found: Windows) -> float:
    """Energy of prefill, decode and between against that of the samples clipped to the span, in percent off.

    The clipping is done on the samples' own edges and not through the phases, so that it can disagree. NaN if no sample
    reaches into the span.
    """
    first_s, last_s = found.span
    clipped_s = np.minimum(times_s, last_s) - np.maximum(times_s - parts.elapsed_s, first_s)
    whole_J = np.nansum(power_W * np.clip(clipped_s, 0, None))
    phases_J = sum(np.nansum(power_W * getattr(parts, f"{n}_s")) for n in ("prefill", "decode", "between"))
    return float(100 * (phases_J / whole_J - 1)) if whole_J else float("nan")
