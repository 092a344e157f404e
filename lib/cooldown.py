"""The pause before a cell: until power is back near the idle machine's, or the plan's limit is over."""

from __future__ import annotations

import time
from pathlib import Path

from lib import powermetrics
from lib.power import Meter, PowerError, Source

# Power is looked at this often, and has to be low for this long.
LOOK_S, CALM_S = 0.5, 2.0


def wait(source: Source, pid: int, idle_W: float | None, limit_s: float, within_pct: float, log: Path) -> dict:
    """Wait at most `limit_s` for power within `within_pct` percent of `idle_W`; returns what belongs in cell.json.

    `pid` is the server's, which is idle meanwhile. Keys: seconds, reached (None where there is no meter or no idle
    power to compare with: then the whole limit is waited), power_W at the end, limit_s. A meter that fails costs
    nothing but its comparison.
    """
    began_s = time.monotonic()
    facts = {"limit_s": limit_s, "reached": None, "power_W": None}
    if limit_s > 0 and source.kind != "none" and idle_W:
        try:
            facts |= _watch(Meter(source, pid, log), idle_W * (1 + within_pct / 100), began_s + limit_s)
        except PowerError as e:
            facts["trouble"] = str(e)
    if facts["reached"] is None:
        time.sleep(max(0.0, limit_s - (time.monotonic() - began_s)))
    return facts | {"seconds": time.monotonic() - began_s}


def _watch(meter: Meter, wanted_W: float, until_s: float) -> dict:
    """Look at the running meter's log until power is at most `wanted_W`, or until the time is over."""
    meter.start()
    try:
        while True:
            power_W = _recent_W(meter.log)
            if power_W is not None and power_W <= wanted_W:
                return {"reached": True, "power_W": power_W}
            if time.monotonic() >= until_s:
                return {"reached": False, "power_W": power_W}
            time.sleep(min(LOOK_S, max(0.01, until_s - time.monotonic())))
    finally:
        meter.stop()


def _recent_W(log: Path) -> float | None:
    """Median power of the last CALM_S of the log, W; None while it is shorter than that or cannot be read."""
    try:
        samples = powermetrics.read(log).dropna(subset=["combined_mW"])
    except (powermetrics.PowerLogError, OSError):
        return None
    age_s = samples["elapsed_ms"][::-1].cumsum()[::-1] / 1000
    if samples.empty or age_s.iloc[0] < CALM_S:
        return None
    return float(samples.loc[age_s <= CALM_S, "combined_mW"].median()) / 1000
