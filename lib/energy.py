"""Power, clocks and residencies of one cell: the log on its rebuilt clock, cut at the measured requests' phases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lib import clock, formulas, phases, powermetrics

LOG_NAMES = ("powermetrics.log", "powermetrics.log.gz")
NAN = float("nan")
# Time in which power samples are missing, or by which one sample outlasts the others, beyond which the machine slept.
GAP_S = 1.5
# Apple's levels, mildest first; a level that is not here counts as worse than all of them.
THERMAL_LEVELS = ("Nominal", "Light", "Moderate", "Heavy", "Trapping", "Critical")
# Power of this many W in every sample while cores are this busy (%) is a counter that does not count.
STUCK_W, STUCK_BUSY_PCT = 0.0, 20.0


@dataclass(frozen=True)
class Timing:
    """When the measured requests ran: arrays of epoch seconds and seconds; `source` is timestamps or timeline."""

    start_s: np.ndarray
    ttft_s: np.ndarray
    end_s: np.ndarray
    source: str


def find_log(folder: Path) -> Path | None:
    """The cell's power log, or None."""
    return next((folder / name for name in LOG_NAMES if (folder / name).exists()), None)


def read_samples(log: Path) -> pd.DataFrame:
    """The power log with `time_s` (rebuilt end of each sample, epoch s), `power_W`, and p_ and e_ columns of clusters.

    power_W is the Combined rail; where macOS prints none (12 and older) but CPU, GPU and ANE, their sum, with a note.
    NaN where a rail is missing. attrs as the parser's, and `clock`. Raises PowerLogError.
    """
    frame = powermetrics.read(log)
    rebuilt = clock.rebuild(frame["stamp_s"].to_numpy(float), frame["elapsed_ms"].to_numpy(float))
    added_mW = frame[["cpu_mW", "gpu_mW", "ane_mW"]].sum(axis=1, skipna=False)
    stands_in = frame["combined_mW"].isna() & added_mW.notna()
    notes = list(frame.attrs["notes"])
    if stands_in.any():
        notes.append(f"rails: no Combined in {stands_in.sum()} of {len(frame)} blocks; CPU + GPU + ANE added up there")
    power_W = frame["combined_mW"].fillna(added_mW) / 1000
    attrs = frame.attrs | {"notes": notes, "clock": rebuilt}
    frame = _with_clusters(frame.assign(time_s=rebuilt.times_s, power_W=power_W))
    frame.attrs = attrs
    return frame


def _with_clusters(frame: pd.DataFrame) -> pd.DataFrame:
    """Add p_ and e_ columns: means over the performance and over the efficiency clusters, whatever they are called.

    Chips with S clusters (M5 under macOS 26.4 and later) call their smaller cores P; there S is performance.
    """
    names = [c.removesuffix("_active_pct") for c in frame.columns if c.endswith("_active_pct") and c[0].isupper()]
    fast = [n for n in names if n[0] == "S"] or [n for n in names if n[0] == "P"]
    new = {}
    for letter, members in (("p", fast), ("e", [n for n in names if n not in fast])):
        for what in ("freq_MHz", "active_pct"):
            columns = [f"{n}_{what}" for n in members]
            new[f"{letter}_{what}"] = frame[columns].mean(axis=1) if columns else np.nan
    return frame.assign(**new)


def columns(samples: pd.DataFrame, timing: Timing) -> tuple[dict, pd.DataFrame]:
    """Power columns of a cell, and its samples with their phase.

    A value that cannot be had is NaN, with `power_reason`. `sleep_reason` is set if samples are missing between the
    requests' first start and last end: then nothing was measured that can be used. `time_s` in the samples includes
    `clock_shift_ms`, by which the log was aligned to the requests within the clock's own bound.
    """
    found = phases.windows(timing.start_s, timing.ttft_s, timing.end_s)
    times_s, power_W = samples["time_s"].to_numpy(), samples["power_W"].to_numpy()
    elapsed_s = samples["elapsed_ms"].to_numpy() / 1000
    fitted = phases.aligned_fit(power_W, times_s, elapsed_s, found, _bound_s(samples, timing))
    samples = samples.assign(time_s=times_s + fitted.shift_s)
    parts = phases.split(samples["time_s"].to_numpy(), elapsed_s, found)
    samples = samples.assign(phase=parts.midpoint)
    facts = {"phase_source": timing.source, "clock_shift_ms": 1000 * fitted.shift_s}
    facts |= _clock_facts(samples) | _thermal(samples[parts.midpoint != "outside"])
    facts["sleep_reason"] = _sleep(samples, found)
    reason = facts["sleep_reason"] or _refusal(samples, parts, found)
    if reason:
        return facts | {"power_reason": reason}, samples
    return facts | _power_facts(samples, parts, found, fitted) | _hardware(samples, parts), samples


def _bound_s(samples: pd.DataFrame, timing: Timing) -> float:
    """How far the log may be shifted: the clock's bound; not at all on a timeline, whose own doubt is far greater."""
    error_ms = samples.attrs["clock"].error_ms
    return error_ms / 1000 if timing.source == "timestamps" and np.isfinite(error_ms) else 0.0


def _refusal(samples: pd.DataFrame, parts: phases.Split, found: phases.Windows) -> str:
    """Why no power of this log may be used; empty if it may."""
    busy_s = found.length_s("prefill") + found.length_s("decode")
    covered_s = float((parts.prefill_s + parts.decode_s).sum())
    if covered_s < phases.MIN_COVERAGE * busy_s:
        return f"the power log covers {100 * covered_s / busy_s:.0f} % of the requests' time"
    if samples["power_W"].isna().all():
        if samples["package_mW"].notna().any():
            return "the power log has package power only, another scope than CPU + GPU + ANE"
        return "the power log has no CPU, GPU and ANE power"
    clusters = [c for c in ("p_active_pct", "e_active_pct") if samples[c].notna().any()]
    if clusters and (samples["cpu_mW"] <= STUCK_W).all() and samples[clusters].max(axis=1).median() > STUCK_BUSY_PCT:
        return "the CPU rail reads 0 W in every sample while the cores are busy: power was not measured"
    return ""


def _sleep(samples: pd.DataFrame, found: phases.Windows) -> str:
    """Why the machine must have slept, or its clock been set, during the requests; empty if it did not."""
    first_s, last_s = found.span
    ends_s, elapsed_s = samples["time_s"].to_numpy(), samples["elapsed_ms"].to_numpy() / 1000
    for gap in samples.attrs["clock"].gaps:
        from_s = ends_s[gap.index - 1]
        to_s = max(from_s, ends_s[gap.index] - elapsed_s[gap.index])
        if abs(gap.seconds) > GAP_S and first_s < to_s and from_s < last_s:
            return f"the power log lost {gap.seconds:.1f} s within the requests (sleep, lost samples or a clock set)"
    long = (elapsed_s > np.nanmedian(elapsed_s) + GAP_S) & (ends_s > first_s) & (ends_s - elapsed_s < last_s)
    if long.any():
        return f"one power sample within the requests lasted {elapsed_s[long].max():.1f} s: the machine slept"
    return ""


def _power_facts(samples: pd.DataFrame, parts: phases.Split, found: phases.Windows, fitted: phases.Fit) -> dict:
    times_s, power_W = samples["time_s"].to_numpy(), samples["power_W"].to_numpy()
    doubt_s = samples.attrs["clock"].error_ms / 1000
    prefill, decode = (phases.phase_power(p, power_W, parts, found, fitted, doubt_s) for p in phases.PHASES)
    facts = {
        "total_power_W": formulas.total_power_W(power_W[parts.midpoint != "outside"]),
        "between_power_fit_W": fitted.power_W["between"],
        "fit_condition": fitted.condition,
        "conservation_pct": conservation_pct(times_s, power_W, parts, found),
        "power_reason": "; ".join(r for r in (prefill.reason, decode.reason) if r),
    }
    for name, power in (("prefill", prefill), ("decode", decode)):
        facts |= _phase_facts(name, power)
    return facts


def _phase_facts(name: str, power: phases.PhasePower) -> dict:
    return {
        f"{name}_power_W": power.power_W,
        f"{name}_estimator": power.estimator,
        f"{name}_power_median_W": power.median_W,
        f"{name}_power_fit_W": power.fit_W,
        f"{name}_power_fit_error_W": power.fit_error_W,
        f"{name}_power_integral_W": power.integral_W,
        f"{name}_window_s": power.length_s,
        f"{name}_covered_s": power.covered_s,
        f"{name}_coverage_pct": power.coverage_pct,
        f"n_{name}_samples": power.samples,
        f"n_{name}_samples_midpoint": power.samples_midpoint,
    }


def conservation_pct(times_s: np.ndarray, power_W: np.ndarray, parts: phases.Split, found: phases.Windows) -> float:
    """Energy of prefill, decode and between against that of the whole span, in percent off.

    The whole is read from the running sum of the samples' energies, as from a counter, at the span's ends, and not
    through the phases, so that it can disagree: where samples overlap or time is lost it does. NaN if no sample
    reaches into the span.
    """
    good = ~np.isnan(power_W) & (parts.elapsed_s > 0)
    if not good.any():
        return NAN
    times_s, energy_J = times_s[good], (power_W * parts.elapsed_s)[good]
    edges_s = np.append(times_s[0] - parts.elapsed_s[good][0], times_s)
    counter_J = np.append(0.0, np.cumsum(energy_J))
    whole_J = np.diff(np.interp(found.span, edges_s, counter_J))[0]
    phases_J = sum(np.nansum(power_W * getattr(parts, f"{n}_s")) for n in phases.ALL)
    return float(100 * (phases_J / whole_J - 1)) if whole_J > 0 else NAN


def _clock_facts(samples: pd.DataFrame) -> dict:
    rebuilt = samples.attrs["clock"]
    return {
        "clock_error_ms": rebuilt.error_ms,
        "clock_drift_ppm": rebuilt.drift_ppm,
        "clock_roundtrip_pct": rebuilt.roundtrip_pct,
        "n_power_samples": len(samples),
        "sample_ms": float(samples["elapsed_ms"].median()),
        "log_notes": "; ".join(samples.attrs["notes"]),
    }


def _thermal(samples: pd.DataFrame) -> dict:
    """Thermal pressure at the start and end of the window and at its worst; None means not reported, never "none"."""
    seen = samples["thermal_pressure"].dropna().tolist()
    rank = {level: place for place, level in enumerate(THERMAL_LEVELS)}
    worst = max(seen, key=lambda level: rank.get(level, len(rank)), default=None)
    start, end = (seen[0], seen[-1]) if seen else (None, None)
    return {"thermal_worst": worst, "thermal_start": start, "thermal_end": end}


def _hardware(samples: pd.DataFrame, parts: phases.Split) -> dict:
    """Clocks and residencies over the cell's window and by phase (samples inside, by midpoint if few)."""
    masks = {"": parts.midpoint != "outside"}
    for phase in phases.PHASES:
        inside = parts.inside(phase)
        masks[f"_{phase}"] = inside if inside.sum() >= phases.ENOUGH_INSIDE else parts.midpoint == phase
    facts = {}
    for name in ("gpu", "p", "e"):
        freq_MHz, active_pct = (samples[f"{name}_{what}"].to_numpy() for what in ("freq_MHz", "active_pct"))
        for phase, mask in masks.items():
            facts[f"{name}{phase}_freq_MHz"] = formulas.gpu_freq_MHz(freq_MHz[mask])
            facts[f"{name}{phase}_active_pct"] = formulas.residency_pct(active_pct[mask])
    return facts


def place_timeline(samples: pd.DataFrame, ttft_s: float, rl_s: float, n: int, whole_s: float) -> Timing | None:
    """Requests laid end to end by their median TTFT and latency: the published fallback when their times are lost.

    `whole_s`: time from the first start to the last end, NaN if unknown (then the requests follow without a gap). They
    are laid where the log shows most energy, since it begins before and ends after them. None if the log is shorter
    than half of them, or has no power.
    """
    whole_s = whole_s if whole_s > n * rl_s else n * rl_s
    good = samples[["time_s", "elapsed_ms", "power_W"]].dropna()
    ends_s, elapsed_s = good["time_s"].to_numpy(), good["elapsed_ms"].to_numpy() / 1000
    if n < 1 or not rl_s > 0 or elapsed_s.sum() < phases.MIN_COVERAGE * whole_s:
        return None
    begins_s, energy_J = ends_s - elapsed_s, np.append(0.0, np.cumsum(good["power_W"].to_numpy() * elapsed_s))
    edges_s = np.append(begins_s[0], ends_s)
    within_J = np.interp(begins_s + whole_s, edges_s, energy_J) - energy_J[:-1]
    start_s = begins_s[int(np.argmax(within_J))] + (whole_s - rl_s) / max(1, n - 1) * np.arange(n)
    return Timing(start_s, np.full(n, ttft_s), start_s + rl_s, "timeline")


def derived(row: dict) -> dict:
    """The energy columns that follow from a cell's power and latency columns by the published formulas.

    `<phase>_integral_J` are the check by the other estimator: the phase's mean power under the samples x its mean time
    per request. `estimators_apart_pct` is how far the published sum is from theirs.
    """
    ttft_s, rl_s = row["ttft_ms"] / 1000, row["rl_ms"] / 1000
    decode_power_W, decode_s = row["decode_power_W"], row["p50_decode_s"]
    prefill_J = formulas.prefill_J(row["prefill_power_W"], ttft_s)
    decode_J = formulas.decode_J(decode_power_W, decode_s)
    total_J = formulas.total_J(prefill_J, decode_J)
    output_tok_J = formulas.output_tok_J(row["osl"], decode_power_W, decode_s)
    return {
        "prefill_J": prefill_J,
        "decode_J": decode_J,
        "total_J": total_J,
        "net_total_J": formulas.net_J(total_J, row["idle_W"], ttft_s + decode_s),
        "prefill_pct": formulas.prefill_pct(prefill_J, total_J),
        "request_J_avg": formulas.request_J_avg(row["total_power_W"], rl_s),
        "output_tok_J": output_tok_J,
        "prefill_tok_J": formulas.prefill_tok_J(row["isl"], prefill_J),
        "total_tok_J": formulas.total_tok_J(row["isl"], row["osl"], total_J),
        "mJ_per_output_tok": formulas.mJ_per_output_tok(decode_J, row["osl"]),
        "identity_pct": formulas.identity_pct(output_tok_J, decode_power_W, row["output_tok_s"]),
        "identity_bound_pct": formulas.identity_bound_pct(row["osl"]),
    } | _by_integral(row, total_J)


def _by_integral(row: dict, total_J: float) -> dict:
    prefill_J, decode_J = (
        row[f"{p}_power_integral_W"] * row[f"{p}_window_s"] / row["n"] if row["n"] else NAN for p in phases.PHASES
    )
    return {
        "prefill_integral_J": prefill_J,
        "decode_integral_J": decode_J,
        "total_integral_J": prefill_J + decode_J,
        "estimators_apart_pct": formulas.apart_pct(total_J, prefill_J + decode_J),
    }
