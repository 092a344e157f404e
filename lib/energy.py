"""Power, clocks and residencies of one cell: the log on its rebuilt clock, cut at the phases of the measured requests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lib import clock, formulas, phases, powermetrics

LOG_NAMES = ("powermetrics.log", "powermetrics.log.gz")
NAN = float("nan")
# Time in which power samples are missing beyond this, in s, is a gap that no energy is interpolated across.
GAP_S = 1.5


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
    """The power log with `time_s` (rebuilt end of each sample, epoch s) and `power_W`; attrs as the parser's, and `clock`.

    power_W is the Combined rail; where a log has none but CPU, GPU and ANE, their sum. Raises PowerLogError.
    """
    frame = powermetrics.read(log)
    rebuilt = clock.rebuild(frame["stamp_s"].to_numpy(float), frame["elapsed_ms"].to_numpy(float))
    attrs = frame.attrs
    combined_mW = frame["combined_mW"]
    if combined_mW.isna().all():
        combined_mW = frame[["cpu_mW", "gpu_mW", "ane_mW"]].sum(axis=1, skipna=False)
    frame = frame.assign(time_s=rebuilt.times_s, power_W=combined_mW / 1000)
    frame.attrs = attrs | {"clock": rebuilt}
    return _with_clusters(frame)


def _with_clusters(frame: pd.DataFrame) -> pd.DataFrame:
    """Add p_ and e_ columns: means over the performance and over the efficiency clusters, whatever they are called.

    Chips with S clusters (M5 under macOS 26.4 and later) call their smaller cores P; there S is performance.
    """
    names = [c.removesuffix("_active_pct") for c in frame.columns if c.endswith("_active_pct") and c[0].isupper()]
    fast = [n for n in names if n[0] == "S"] or [n for n in names if n[0] == "P"]
    for letter, members in (("p", fast), ("e", [n for n in names if n not in fast])):
        for what in ("freq_MHz", "active_pct"):
            columns = [f"{n}_{what}" for n in members]
            frame[f"{letter}_{what}"] = frame[columns].mean(axis=1) if columns else np.nan
    return frame


def columns(samples: pd.DataFrame, timing: Timing) -> tuple[dict, pd.DataFrame]:
    """Power columns of a cell, and its samples with their phase. A value that cannot be had is NaN, with `power_reason`."""
    found = phases.windows(timing.start_s, timing.ttft_s, timing.end_s)
    times_s, power_W = samples["time_s"].to_numpy(), samples["power_W"].to_numpy()
    parts = phases.split(times_s, samples["elapsed_ms"].to_numpy() / 1000, found)
    samples = samples.assign(phase=parts.midpoint)
    facts = {"phase_source": timing.source} | _clock_facts(samples) | _thermal(samples)
    reason = _refusal(samples, parts, found)
    if reason:
        return facts | {"power_reason": reason}, samples
    fitted = phases.fit(power_W, parts)
    prefill, decode = (phases.phase_power(p, power_W, parts, found, fitted) for p in phases.PHASES)
    facts |= {
        "total_power_W": float(np.nanmedian(power_W[parts.midpoint != "outside"])),
        "between_power_fit_W": fitted["between"],
        "conservation_pct": phases.conservation_pct(times_s, power_W, parts, found),
        "power_reason": "; ".join(r for r in (prefill.reason, decode.reason) if r),
    }
    for name, power in (("prefill", prefill), ("decode", decode)):
        facts |= _phase_facts(name, power)
    return facts | _hardware(samples, parts), samples


def _refusal(samples: pd.DataFrame, parts: phases.Split, found: phases.Windows) -> str:
    """Why no power of this log may be used; empty if it may."""
    if samples["power_W"].isna().all():
        return "the power log has no CPU, GPU and ANE power"
    busy_s = float(np.sum(found.busy[:, 1] - found.busy[:, 0]))
    covered_s = float((parts.prefill_s + parts.decode_s).sum())
    if covered_s < phases.MIN_COVERAGE * busy_s:
        return f"the power log covers {100 * covered_s / busy_s:.0f} % of the requests' time"
    first_s, last_s = found.span
    for gap in samples.attrs["clock"].gaps:
        end_s = samples["time_s"].iloc[gap.index]
        if first_s < end_s and end_s - gap.seconds < last_s and abs(gap.seconds) > GAP_S:
            return f"the power log lost {gap.seconds:.1f} s within the requests (sleep, lost samples or a stepped clock)"
    return ""


def _phase_facts(name: str, power: phases.PhasePower) -> dict:
    return {
        f"{name}_power_W": power.power_W,
        f"{name}_estimator": power.estimator,
        f"{name}_power_median_W": power.median_W,
        f"{name}_power_fit_W": power.fit_W,
        f"{name}_power_integral_W": power.integral_W,
        f"{name}_covered_s": power.covered_s,
        f"{name}_coverage_pct": power.coverage_pct,
        f"n_{name}_samples": power.samples,
        f"n_{name}_samples_midpoint": power.samples_midpoint,
    }


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
    """Worst thermal pressure reported, by the order of Apple's levels; None means not reported, not "no pressure"."""
    order = ["Nominal", "Light", "Moderate", "Heavy", "Trapping", "Critical"]
    seen = set(samples["thermal_pressure"].dropna())
    rank = {level: order.index(level) if level in order else len(order) for level in seen}
    return {"thermal_worst": max(seen, key=rank.__getitem__) if seen else None}


def _hardware(samples: pd.DataFrame, parts: phases.Split) -> dict:
    """Clocks and residencies over the cell's window and, for the GPU, by phase (samples inside, by midpoint if few)."""
    window = samples[parts.midpoint != "outside"]
    facts = {}
    for name in ("gpu", "p", "e"):
        facts |= _clocks(name, window)
    for phase in phases.PHASES:
        inside = parts.inside(phase)
        mask = inside if inside.sum() >= phases.ENOUGH_INSIDE else parts.midpoint == phase
        facts |= _clocks("gpu", samples[mask], f"_{phase}")
        facts |= _clocks("p", samples[mask], f"_{phase}") | _clocks("e", samples[mask], f"_{phase}")
    return facts


def _clocks(name: str, samples: pd.DataFrame, phase: str = "") -> dict:
    return {
        f"{name}{phase}_freq_MHz": formulas.gpu_freq_MHz(samples[f"{name}_freq_MHz"].to_numpy()),
        f"{name}{phase}_active_pct": formulas.residency_pct(samples[f"{name}_active_pct"].to_numpy()),
    }


def derived(row: dict) -> dict:
    """The energy columns that follow from a cell's power and latency columns by the published formulas."""
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
        "net_total_J": total_J - row["idle_W"] * (ttft_s + decode_s),
        "prefill_pct": formulas.prefill_pct(prefill_J, total_J),
        "request_J_avg": formulas.request_J_avg(row["total_power_W"], rl_s),
        "output_tok_J": output_tok_J,
        "prefill_tok_J": formulas.prefill_tok_J(row["isl"], prefill_J),
        "total_tok_J": formulas.total_tok_J(row["isl"], row["osl"], total_J),
        "mJ_per_output_tok": formulas.mJ_per_output_tok(decode_J, row["osl"]),
        "identity_pct": formulas.identity_pct(output_tok_J, decode_power_W, row["output_tok_s"]),
    }
