"""How true the phase powers are on synthetic cells of known power, and how fast a run's tables are read.

Run as `python -m bench.cells [--scale 0.25]`. Errors are the worst over many random logs (17.5 W in prefill, 13 W in
decode, 6 W between); everything is synthetic. Reading again what has not changed must take under a second for a run
of the published size; the import of pandas, which every reader pays once, is shown beside it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench import row
from lib import cell, cells, clock, phases, powermetrics
from lib.paths import ROOT
from tests import synthetic_cell
from tests.synthetic_cell import Spec

SHORT = Spec(requests=5, ttft_s=0.12, gen=64)
TRUTH_W = {"prefill": 17.5, "decode": 13.0}


def solved(spec: Spec) -> dict:
    """Powers of one synthetic cell by our way and by two simpler ones, W; the clock's and the aligned error, ms."""
    made = synthetic_cell.make(spec)
    power_W = sum(np.round(mJ / made.elapsed_ms * 1e3) for mJ in made.rails_mJ.values()) / 1e3
    elapsed_s, stamps = made.elapsed_ms / 1e3, np.floor(made.sample_end_s)
    start_s, end_s = made.start_ns / 1e9, made.end_ns / 1e9
    found = phases.windows(start_s, (made.first_ns - made.start_ns) / 1e9, end_s)
    rebuilt = clock.rebuild(stamps, made.elapsed_ms)
    fitted = phases.aligned_fit(power_W, rebuilt.times_s, elapsed_s, found, rebuilt.error_ms / 1e3)
    times_s = rebuilt.times_s + fitted.shift_s
    parts = phases.split(times_s, elapsed_s, found)
    result = {p: phases.phase_power(p, power_W, parts, found, fitted).power_W for p in phases.PHASES}
    middle = phases.split(made.sample_end_s, elapsed_s, found).midpoint == "prefill"
    stamped = phases.split(stamps + elapsed_s / 2, elapsed_s, found).midpoint == "prefill"
    return result | {
        "midpoints": power_W[middle].mean(),
        "stamps": np.median(power_W[stamped]) if stamped.any() else float("nan"),
        "clock_ms": np.abs(rebuilt.times_s - made.sample_end_s).max() * 1e3,
        "aligned_ms": np.abs(times_s - made.sample_end_s).max() * 1e3,
    }


def truth(scale: float = 1.0) -> list[dict]:
    """Worst errors over random logs: every prompt length of the published sweep, and a short cell."""
    rows = []
    for ctx in synthetic_cell.TTFT_S:
        count = max(2, round((40 if ctx < 30720 else 6) * scale))
        found = [solved(s) for s in synthetic_cell.many(Spec(ctx=ctx), range(count))]
        rows.append(row(f"prefill power, ctx {ctx}, worst of {count}", _worst_pct(found, "prefill"), "%", 1.0))
        rows.append(row(f"decode power, ctx {ctx}, worst of {count}", _worst_pct(found, "decode"), "%", 0.3))
    return rows + _short(max(4, round(40 * scale))) + _stamps(max(4, round(20 * scale)))


def _short(count: int) -> list[dict]:
    found = [solved(s) for s in synthetic_cell.many(SHORT, range(count))]
    said = f"5 requests of 120 ms and 64 tokens, worst of {count}"
    return [
        row(f"prefill power, {said}", _worst_pct(found, "prefill"), "%", 2.0),
        row(f"decode power, {said}", _worst_pct(found, "decode"), "%", 0.3),
        row("the same prefill by midpoints, mean error", 100 * (_mean(found, "midpoints") / 17.5 - 1), "%"),
        row("clock error before alignment, worst", max(f["clock_ms"] for f in found), "ms"),
        row("clock error after alignment, worst", max(f["aligned_ms"] for f in found), "ms", 1.0),
    ]


def _stamps(count: int) -> list[dict]:
    found = [solved(s) for s in synthetic_cell.many(Spec(), range(count))]
    return [row("17.5 W prefill read by whole-second stamps, ctx 256", np.median([f["stamps"] for f in found]), "W")]


def spread(scale: float = 1.0) -> list[dict]:
    """Spread of prefill power across generation lengths where the truth is one: published as 2 to 3.6 W."""
    rows = []
    for ctx in (256, 512):
        seeds = range(max(2, round(10 * scale)))
        specs = [s for gen in (256, 512, 1024) for s in synthetic_cell.many(Spec(ctx=ctx, gen=gen), seeds)]
        found = [solved(s)["prefill"] for s in specs]
        rows.append(row(f"spread of prefill power over gen, ctx {ctx}", max(found) - min(found), "W", 0.05))
    return rows


def _worst_pct(found: list[dict], phase: str) -> float:
    return max(abs(100 * (f[phase] / TRUTH_W[phase] - 1)) for f in found)


def _mean(found: list[dict], name: str) -> float:
    return float(np.mean([f[name] for f in found]))


# --- speed ---


def timed(work: Callable[[], object], times: int = 3) -> float:
    """Seconds that `work` takes, best of some."""
    best_s = float("inf")
    for _ in range(times):
        began_s = time.perf_counter()
        work()
        best_s = min(best_s, time.perf_counter() - began_s)
    return best_s


def one_cell() -> list[dict]:
    """A cell of the longest prompt read from its files, as a multiple of the reading of its power log alone."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run" / "llama.cpp" / "m" / "gen1024" / "ctx30720"
        synthetic_cell.write(folder, Spec(ctx=30720, gen=1024))
        log_s = timed(lambda: powermetrics.read(folder / "powermetrics.log"))
        cell_s = timed(lambda: cell.read_whole(folder))
    return [
        row("longest cell read, s", cell_s, "s"),
        row("longest cell read, in readings of its power log", cell_s / log_s, "x", 4.0),
    ]


def whole_run(scale: float = 1.0) -> list[dict]:
    """A run of 162 small cells: first reading, reading again, reading after one cell changed."""
    count = max(6, round(162 * scale))
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        for number in range(count):
            folder = run / "llamacpp" / f"m{number // 18}" / f"gen{number % 3}" / f"ctx{number}"
            spec = Spec(requests=3, gen=32, ttft_s=0.3, ctx=256, start_s=1.783e9 + 60 * number)
            synthetic_cell.write(folder, spec, kind="older")
        first_s = timed(lambda: cells.read_run(run), 1)
        again_s = timed(lambda: cells.read_run(run))
        (folder / "rss.log").write_text("1\n")
        one_s = timed(lambda: cells.read_run(run), 1)
    return [
        row(f"{count} small cells, first reading", first_s, "s"),
        row(f"{count} small cells, reading again", again_s, "s", 1.0),
        row(f"{count} small cells, one of them changed", one_s, "s"),
        row("reading again, in first readings", again_s / first_s, "x", 0.1),
        row("import of pandas, once a process", timed(_import_pandas, 2), "s"),
    ]


def _import_pandas() -> None:
    subprocess.run([sys.executable, "-c", "import pandas"], cwd=ROOT, check=True)


def bench(scale: float = 1.0) -> list[dict]:
    """All rows; `scale` is the part of the random logs and cells to make."""
    return truth(scale) + spread(scale) + one_cell() + whole_run(scale)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="part of the random logs and cells to make")
    for one in bench(parser.parse_args().scale):
        target = one.get("target")
        note = "" if target is None else f"   target {target:g}: {'ok' if one['met'] else 'MISSED'}"
        print(f"  {one['name']:66s} {one['value']:10.4f} {one['unit']:3s}{note}")


if __name__ == "__main__":
    main()
