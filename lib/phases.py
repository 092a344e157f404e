"""Power by phase of a request: which part of each power sample is prefill, decode or neither, and what follows.

A sample is the mean power over (end - elapsed, end]. Prefill is [start, start + TTFT), decode [start + TTFT, end) of
each measured request. With several requests at once, prefill is "any prefill running" and decode is "decode only".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

PHASES = ("prefill", "decode")
ALL = (*PHASES, "between")
# The published median wants this many samples that lie wholly inside a phase; below it the fit leads.
ENOUGH_INSIDE = 10
# A fit needs this much of a phase under samples, in units of one sample; with less there is no power to speak of.
MIN_FIT_SAMPLES = 2.0
# Worst standard error, as a share of the power, and worst condition number with which a fit may lead.
MAX_FIT_ERROR, MAX_CONDITION = 0.05, 30.0
# Share of the requests' time that must lie under power samples; below it log and requests do not belong together.
MIN_COVERAGE = 0.5
# The counters count whole millijoules: rounding alone leaves this much, root mean square.
COUNTER_J = 1e-3 / np.sqrt(6)
# A clock surer than this needs no alignment.
MIN_SHIFT_S = 5e-5
# With fewer samples around edges than this, powers and shift would fit whatever noise there is.
MIN_SHIFT_ROWS = 12
_EDGE_S = 1e-6  # float64 epoch seconds resolve 0.24 us; a sample may stick out by this much and still count as inside


@dataclass(frozen=True)
class Windows:
    """Phases on the wall clock, sorted: `prefill` and `busy` are (n, 2) arrays of start and end, epoch seconds."""

    prefill: np.ndarray
    busy: np.ndarray

    @property
    def span(self) -> tuple[float, float]:
        """First start and last end, epoch seconds."""
        return float(self.busy[0, 0]), float(self.busy[-1, 1])

    def length_s(self, phase: str) -> float:
        """Time of prefill or decode over all requests, s."""
        prefill_s = float(np.sum(self.prefill[:, 1] - self.prefill[:, 0]))
        return prefill_s if phase == "prefill" else float(np.sum(self.busy[:, 1] - self.busy[:, 0])) - prefill_s


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
        return (getattr(self, f"{phase}_s") >= self.elapsed_s - _EDGE_S) & (self.elapsed_s > 0)


def split(times_s: np.ndarray, elapsed_s: np.ndarray, found: Windows) -> Split:
    """Cut samples (end times in epoch seconds, lengths in seconds) at the phases' edges. Lost time is nobody's.

    A sample without time or length (NaN) counts as of length 0 and lies outside.
    """
    times_s, elapsed_s = _known(np.asarray(times_s, float), np.asarray(elapsed_s, float))
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


def _known(times_s: np.ndarray, elapsed_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    known = np.isfinite(times_s) & np.isfinite(elapsed_s)
    return np.where(known, times_s, -1.0), np.where(known, elapsed_s, 0.0)


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
class Fit:
    """Power of each phase by least squares, W, with its standard error, W; NaN where it cannot be had.

    `shift_s` is what was added to the samples' times for it; `condition` that of the overlaps, columns of length 1.
    """

    power_W: dict[str, float]
    error_W: dict[str, float]
    condition: float
    residual_J: float
    rows: int
    shift_s: float = 0.0

    @property
    def known(self) -> tuple[str, ...]:
        """The phases that have a power."""
        return tuple(name for name, value in self.power_W.items() if value == value)

    def leads(self, phase: str) -> bool:
        """Whether it is sure enough of this phase to be quoted."""
        power_W = self.power_W[phase]
        return power_W > 0 and self.error_W[phase] <= MAX_FIT_ERROR * power_W and self.condition <= MAX_CONDITION


def fit(power_W: np.ndarray, parts: Split) -> Fit:
    """Mean power of prefill, decode and the time between, by least squares on the samples' overlaps with them.

    Each sample's energy is modelled as the sum of overlap x power, which uses straddling samples too. Rows are in
    joules because the counters round energy, not power. A phase with less than two samples' worth of overlap is NaN;
    samples that touch it, or that reach outside the span, are left out.
    """
    overlap_s = np.column_stack([getattr(parts, f"{n}_s") for n in ALL])
    known = ~np.isnan(power_W) & (parts.elapsed_s > 0)
    typical_s = np.median(parts.elapsed_s[known]) if known.any() else np.nan
    enough = overlap_s[known].sum(axis=0) >= MIN_FIT_SAMPLES * typical_s
    use = known & (np.abs(overlap_s[:, enough].sum(axis=1) - parts.elapsed_s) < _EDGE_S)
    solved = _solve(overlap_s[use][:, enough], power_W[use] * parts.elapsed_s[use])
    names = [n for n, is_enough in zip(ALL, enough, strict=True) if is_enough]
    nothing = dict.fromkeys(ALL, float("nan"))
    power, error = (nothing | dict(zip(names, map(float, v), strict=True)) for v in solved[:2])
    return Fit(power, error, *solved[2:], rows=int(use.sum()))


def _solve(overlap_s: np.ndarray, energy_J: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Powers, their standard errors, condition number, and the root mean square residual in J."""
    rows, unknowns = overlap_s.shape
    lost = np.full(unknowns, np.nan)
    if not unknowns or rows <= unknowns:
        return lost, lost, float("inf"), float("inf")
    lengths = np.linalg.norm(overlap_s, axis=0)
    if not lengths.all():
        return lost, lost, float("inf"), float("inf")
    left, strength, right = np.linalg.svd(overlap_s / lengths, full_matrices=False)
    if strength[-1] < 1e-6 * strength[0]:
        return lost, lost, float("inf"), float("inf")
    power_W = right.T @ (left.T @ energy_J / strength) / lengths
    residual_J = energy_J - overlap_s @ power_W
    noise_J = max(float(np.sqrt(np.sum(residual_J**2) / (rows - unknowns))), COUNTER_J)
    error_W = noise_J * np.linalg.norm(right.T / strength, axis=1) / lengths
    return power_W, error_W, float(strength[0] / strength[-1]), float(np.sqrt(np.mean(residual_J**2)))


def aligned_fit(
    power_W: np.ndarray, times_s: np.ndarray, elapsed_s: np.ndarray, found: Windows, bound_s: float
) -> Fit:
    """The fit at the shift of all samples' times, within +-bound_s, at which it describes the steps of power best.

    The rebuilt clock of a short log is known to several milliseconds only: whole seconds pass too seldom. The power
    itself steps at the phases' edges, so the samples around them say where in that bound the log lies. The bound is
    the clock's own and is never exceeded; in a long log it is about a millisecond and this does next to nothing.
    """
    near = _near_edges(times_s, elapsed_s, found, bound_s)

    def at(shift_s: float) -> Fit:
        parts = split(times_s[near] + shift_s, elapsed_s[near], found)
        return replace(fit(power_W[near], parts), shift_s=float(shift_s))

    still = at(0.0)
    worth = bound_s > MIN_SHIFT_S and still.rows >= MIN_SHIFT_ROWS and len(still.known) > 1
    shift_s = _best_shift(at, still, bound_s, elapsed_s) if worth else 0.0
    return replace(fit(power_W, split(times_s + shift_s, elapsed_s, found)), shift_s=shift_s)


def _near_edges(times_s: np.ndarray, elapsed_s: np.ndarray, found: Windows, bound_s: float) -> np.ndarray:
    """Mask of the samples that a shift can bring across an edge, and their neighbours; the rest say nothing of it."""
    edges = np.sort(np.concatenate([found.prefill.ravel(), found.busy.ravel()]))
    pad_s = bound_s + 1.5 * np.nanmedian(elapsed_s) if len(elapsed_s) else 0.0
    return np.searchsorted(edges, times_s + pad_s) > np.searchsorted(edges, times_s - elapsed_s - pad_s)


def _best_shift(at: Callable[[float], Fit], still: Fit, bound_s: float, elapsed_s: np.ndarray) -> float:
    """Least squares of the samples and of the shift itself, which a third of the bound is held to be usual for.

    With noisy power the samples say little and the shift stays near 0; with steady power they decide.
    """
    count = 2 * min(100, max(4, int(np.ceil(8 * bound_s / np.nanmedian(elapsed_s))))) + 1
    tried = [at(s) for s in np.linspace(-bound_s, bound_s, count)]
    free = still.rows - len(still.known) - 1
    least_J = min((f.residual_J for f in tried if f.known == still.known), default=still.residual_J)
    noise_J = max(least_J * np.sqrt(still.rows / free), COUNTER_J)

    def cost(one: Fit) -> float:
        if one.known != still.known:  # a phase that drops out takes its residuals along: nothing to compare
            return np.inf
        return still.rows * (one.residual_J / noise_J) ** 2 + (3 * one.shift_s / bound_s) ** 2

    best, step_s = min(tried, key=cost), 2 * bound_s / (count - 1)
    low_s, high_s = max(-bound_s, best.shift_s - step_s), min(bound_s, best.shift_s + step_s)
    golden = (np.sqrt(5) - 1) / 2
    while high_s - low_s > MIN_SHIFT_S:
        left, right = at(high_s - golden * (high_s - low_s)), at(low_s + golden * (high_s - low_s))
        low_s, high_s = (low_s, right.shift_s) if cost(left) < cost(right) else (left.shift_s, high_s)
        best = min(best, left, right, key=cost)
    return best.shift_s if np.isfinite(cost(best)) else 0.0


@dataclass(frozen=True)
class PhasePower:
    """Power of one phase by three estimators, in watts; NaN where there is none, with `reason` then saying why.

    `median_W`: median of the samples wholly inside (published method), or by midpoint where fewer than ten are.
    `fit_W`: least squares over all samples on their overlaps, `fit_error_W` its standard error. `integral_W`: energy
    under the samples over time. `power_W` is the one to quote: the median where ten samples lie inside, else the fit
    where it is sure enough, else the median by midpoint; `estimator` (median, fit, midpoint) names it. `samples` counts
    those inside, `samples_midpoint` those by midpoint; `length_s` is the phase's time over all requests.
    """

    power_W: float
    estimator: str
    median_W: float
    fit_W: float
    fit_error_W: float
    integral_W: float
    length_s: float
    covered_s: float
    coverage_pct: float
    samples: int
    samples_midpoint: int
    reason: str


def phase_power(
    phase: str, power_W: np.ndarray, parts: Split, found: Windows, fitted: Fit, doubt_s: float = 0.0
) -> PhasePower:
    """Power of `phase` from samples' power in watts (NaN where a rail is missing) and their split.

    doubt_s: bound of the clock's error. A midpoint says nothing about a phase that is shorter than that, so there
    is no power then, with the reason.
    """
    known = ~np.isnan(power_W)
    inside, near = known & parts.inside(phase), known & (parts.midpoint == phase)
    chosen = inside if inside.sum() >= ENOUGH_INSIDE else near
    median_W = float(np.median(power_W[chosen])) if chosen.any() else float("nan")
    overlap_s = np.where(known, getattr(parts, f"{phase}_s"), 0.0)
    covered_s, length_s = float(overlap_s.sum()), found.length_s(phase)
    value_W, estimator = _leading(phase, int(inside.sum()), median_W, fitted)
    reason = "" if estimator else f"no {phase} power: {covered_s * 1000:.0f} ms of {phase} under power samples"
    each_s = length_s / len(found.prefill)
    if estimator == "midpoint" and doubt_s > each_s:
        value_W, estimator = float("nan"), ""
        lasts, known_to = f"{each_s * 1000:.0f} ms", f"{doubt_s * 1000:.0f} ms"
        reason = f"no {phase} power: it lasts {lasts} and the log's clock is known to {known_to}"
    return PhasePower(
        power_W=value_W,
        estimator=estimator,
        median_W=median_W,
        fit_W=fitted.power_W[phase],
        fit_error_W=fitted.error_W[phase],
        integral_W=float(np.nansum(power_W * overlap_s) / covered_s) if covered_s else float("nan"),
        length_s=length_s,
        covered_s=covered_s,
        coverage_pct=100 * covered_s / length_s if length_s else float("nan"),
        samples=int(inside.sum()),
        samples_midpoint=int(near.sum()),
        reason=reason,
    )


def _leading(phase: str, inside: int, median_W: float, fitted: Fit) -> tuple[float, str]:
    if inside >= ENOUGH_INSIDE:
        return median_W, "median"
    if fitted.leads(phase):
        return fitted.power_W[phase], "fit"
    return (median_W, "midpoint") if not np.isnan(median_W) else (float("nan"), "")
