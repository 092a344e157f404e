"""The power log of a synthetic cell: text in the form of powermetrics on an M4, integrated over the phases' true power.

A sample knows nothing of the requests: it integrates whatever lies between its ends. Energies are whole millijoules,
stamps whole seconds, `elapsed` has two decimals and a clock of its own, as in real logs.
"""

from __future__ import annotations

import gzip
import time
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from lib.plan import Cell
from lib.synthetic.machine import BOOST_MHZ, Served, boosted_share, clock_MHz, e_cluster_pct, p_cluster, residency_pct
from lib.synthetic.timeline import LEAD_S, PHASES, TAIL_S, Timeline

ACHIEVED, JITTER_MS, DRIFT_PPM = 1.128, 0.35, 18.0
"""Achieved over asked interval, its spread, and how fast the log's clock runs against the wall clock."""
NOISE, BETWEEN_W, CPU_SHARE = 0.01, 5.0, 0.12
WARM_W, WARM_S, COOLED_S = 1.25, 40.0, 60.0
"""After a server's start power lies WARM_W above the steady state for WARM_S, and is back at COOLED_S."""
ZONE_S = 19_800
DAYS, MONTHS = "MonTueWedThuFriSatSun", "JanFebMarAprMayJunJulAugSepOctNovDec"
P_STATES = (
    912,
    1260,
    1512,
    1800,
    2088,
    2352,
    2616,
    2868,
    3096,
    3300,
    3468,
    3624,
    3756,
    3876,
    3936,
    3984,
    4044,
    4104,
    4416,
    4464,
)
E_STATES = (900, 1080, 1476, 1860, 2172, 2496, 2808, 2892)
GPU_STATES = (338, 618, 796, 924, 952, 1056, 1062, 1182, 1182, 1312, 1242, 1380, 1326, 1470, 1578)
HEADER = """Machine model: Mac16,10
OS version: 24F74 (synthetic: written from a model of the machine, no meter ran)
Boot arguments: 
Boot time: Fri Jul  3 21:02:03 2026


"""
_BLOCK = """
*** Sampled system activity (%s +0530) (%.2fms elapsed) ***


**** Processor usage ****

E-Cluster Online: 100%%
E-Cluster HW active frequency: %d MHz
E-Cluster HW active residency: %6.2f%% (%s)
E-Cluster idle residency: %6.2f%%
%s
P-Cluster HW active frequency: %d MHz
P-Cluster HW active residency: %6.2f%% (%s)
P-Cluster idle residency: %6.2f%%
%s
CPU Power: %d mW
GPU Power: %d mW
ANE Power: 0 mW
Combined Power (CPU + GPU + ANE): %d mW

**** GPU usage ****

GPU HW active frequency: %d MHz
GPU HW active residency: %6.2f%% (%s)
GPU SW requested state: (P1 :   0%% P2 :   0%% P3 :   0%% P4 : 100%%)
GPU idle residency: %6.2f%%
GPU Power: %d mW

"""


@dataclass(frozen=True)
class Levels:
    """What each phase is like: arrays over PHASES; gpu_MHz has a row for the steady state and one for the boost."""

    power_W: np.ndarray
    gpu_MHz: np.ndarray
    boosted: float
    gpu_pct: np.ndarray
    p_MHz: float
    p_pct: np.ndarray
    e_pct: np.ndarray


def levels(served: Served, cell: Cell) -> Levels:
    """The levels of a cell by the model of the machine."""
    p_MHz, p_pct = p_cluster(served, cell.ctx, cell.gen)
    e_pct = e_cluster_pct(served, cell.ctx, cell.gen)
    gpu_MHz = [[1470.0, *(clock_MHz(served, p, cell.ctx, fast) for p in PHASES[1:])] for fast in (False, True)]
    return Levels(
        np.array([BETWEEN_W, served.prefill_W, served.decode_power_W(cell.ctx, cell.gen)]),
        np.array(gpu_MHz), boosted_share(cell.ctx),
        np.array([5.0, *(residency_pct(served, p, cell.ctx) for p in PHASES[1:])]),
        p_MHz, np.array([30.0, p_pct, p_pct]), np.array([6.0, e_pct, e_pct]),
    )  # fmt: skip


def write(
    path: Path, served: Served, cell: Cell, timeline: Timeline, interval_ms: float, age_s: float, per_core: bool,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """Write the log to `path`, compressed if it ends in .gz. `age_s` is the server's age at the cell's origin."""
    ends_s, elapsed_ms = _samples(timeline, interval_ms, rng)
    columns = _columns(levels(served, cell), timeline, ends_s, elapsed_ms, age_s, rng)
    stamps = (timeline.origin_ns // 1_000_000_000 + np.floor(timeline.origin_ns % 10**9 / 1e9 + ends_s[1:])).astype(int)
    text = HEADER + "".join(_blocks(stamps, elapsed_ms, columns, per_core))
    if path.suffix == ".gz":
        # mtime 0: the same plan gives the same bytes
        path.write_bytes(gzip.compress(text.encode("ascii"), compresslevel=1, mtime=0))
    else:
        path.write_text(text, encoding="ascii")


def _samples(timeline: Timeline, interval_ms: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the samples (s of the timeline, first of all where sampling begins) and their elapsed fields, ms."""
    span_s = timeline.end_s[-1] + TAIL_S
    step_ms = ACHIEVED * interval_ms
    n = int(1000 * (span_s + LEAD_S / 2) / step_ms) + 1
    elapsed_ms = np.round(step_ms + JITTER_MS * rng.standard_normal(n).clip(-4, 4), 2)
    begin_s = -LEAD_S / 2 * rng.uniform(0.8, 1.0)
    ends_s = begin_s + np.concatenate([[0.0], np.cumsum(elapsed_ms / 1000)]) * (1 + DRIFT_PPM / 1e6)
    return ends_s, elapsed_ms


def _mean(values: np.ndarray, timeline: Timeline, ends_s: np.ndarray) -> np.ndarray:
    """Mean over each sample of a quantity that has one value in each phase."""
    times, phase = timeline.edges()
    knots = np.concatenate([[min(ends_s[0], times[1]) - 1], times[1:], [ends_s[-1] + 1]])
    area = np.concatenate([[0.0], np.cumsum(np.diff(knots) * values[phase])])
    return np.diff(np.interp(ends_s, knots, area)) / np.diff(ends_s)


def _columns(
    level: Levels,
    timeline: Timeline,
    ends_s: np.ndarray,
    elapsed_ms: np.ndarray,
    age_s: float,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """What each block prints."""
    n = len(elapsed_ms)
    middle_s = (ends_s[1:] + ends_s[:-1]) / 2
    times, phase = timeline.edges()
    at = phase[np.searchsorted(times, middle_s, side="right") - 1]
    warm_W = WARM_W * np.interp(age_s + middle_s, [WARM_S, COOLED_S], [1.0, 0.0]) * (at > 0)
    power_W = (_mean(level.power_W, timeline, ends_s) + warm_W) * (1 + NOISE * rng.standard_normal(n).clip(-3, 3))
    cpu_mJ = np.rint(CPU_SHARE * power_W * elapsed_ms).astype(int)
    gpu_mJ = np.rint((1 - CPU_SHARE) * power_W * elapsed_ms).astype(int)
    request = np.searchsorted(timeline.start_s, middle_s, side="right") - 1
    fast = ((request + 0.5) / len(timeline.start_s) < level.boosted).astype(int)
    gpu_MHz = level.gpu_MHz[fast, at] + 3.0 * rng.standard_normal(n)
    gpu_MHz[1:][(at[1:] == 2) & (at[:-1] == 1)] = BOOST_MHZ
    return {
        "cpu_mW": _milliwatts(cpu_mJ, elapsed_ms), "gpu_mW": _milliwatts(gpu_mJ, elapsed_ms),
        "all_mW": _milliwatts(cpu_mJ + gpu_mJ, elapsed_ms),
        "gpu_MHz": np.rint(gpu_MHz).clip(338, BOOST_MHZ).astype(int),
        "gpu_pct": (_mean(level.gpu_pct, timeline, ends_s) + 0.05 * rng.standard_normal(n)).clip(0, 100),
        "p_MHz": np.rint(level.p_MHz + 12.0 * rng.standard_normal(n)).astype(int),
        "p_pct": (_mean(level.p_pct, timeline, ends_s) + 0.4 * rng.standard_normal(n)).clip(0, 100),
        "e_MHz": np.rint(1080 + 30.0 * rng.standard_normal(n)).astype(int),
        "e_pct": (_mean(level.e_pct, timeline, ends_s) + 0.15 * rng.standard_normal(n)).clip(0.01, 100),
    }  # fmt: skip


def _milliwatts(mJ: np.ndarray, elapsed_ms: np.ndarray) -> np.ndarray:
    return np.rint(1000 * mJ / elapsed_ms).astype(int)


def _blocks(stamps: np.ndarray, elapsed_ms: np.ndarray, c: dict[str, np.ndarray], per_core: bool) -> list[str]:
    rows = zip(stamps.tolist(), elapsed_ms.tolist(), *(c[name].tolist() for name in c), strict=True)
    return [_block(*row, per_core) for row in rows]


def _block(
    stamp: int, elapsed_ms: float, cpu_mW: int, gpu_mW: int, all_mW: int, gpu_MHz: int, gpu_pct: float, p_MHz: int,
    p_pct: float, e_MHz: int, e_pct: float, per_core: bool,
) -> str:  # fmt: skip
    e_cores = _cores(0, 6, e_MHz, round(e_pct), E_STATES) if per_core else ""
    p_cores = _cores(6, 4, p_MHz, round(p_pct), P_STATES) if per_core else ""
    return _BLOCK % (
        _date(stamp), elapsed_ms, e_MHz, e_pct, _states(E_STATES, e_MHz, 100), 100 - e_pct, e_cores,
        p_MHz, p_pct, _states(P_STATES, p_MHz, 100), 100 - p_pct, p_cores, cpu_mW, gpu_mW, all_mW,
        gpu_MHz, gpu_pct, _states(GPU_STATES, gpu_MHz, round(gpu_pct)), 100 - gpu_pct, gpu_mW,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _date(stamp: int) -> str:
    """As powermetrics writes it, whatever the locale: the day padded with a blank."""
    t = time.gmtime(stamp + ZONE_S)
    day, month = DAYS[3 * t.tm_wday :][:3], MONTHS[3 * t.tm_mon - 3 :][:3]
    return f"{day} {month} {t.tm_mday:2d} {t.tm_hour:02d}:{t.tm_min:02d}:{t.tm_sec:02d} {t.tm_year}"


@lru_cache(maxsize=65536)
def _states(states: tuple[int, ...], at_MHz: int, active_pct: int) -> str:
    """The list of clock states: the active time divided between the two around `at_MHz`, so that it is their mean."""
    known = sorted(set(states))
    above = min(max(bisect_left(known, at_MHz), 1), len(known) - 1)
    low, high = known[above - 1], known[above]
    upper = min(max((at_MHz - low) / (high - low), 0.0), 1.0)
    share = {states.index(low): active_pct * (1 - upper), states.index(high): active_pct * upper}
    return " ".join(f"{state} MHz: {_percent(share.get(n, 0.0))}" for n, state in enumerate(states))


def _percent(value: float) -> str:
    """As powermetrics writes shares: two digits that count and no leading zero."""
    if value >= 9.95 or value < 0.005:
        return f"{value:3.0f}%"
    return f"{value:.1f}%" if value >= 0.995 else f"{value:.2f}%"[1:]


@lru_cache(maxsize=65536)
def _cores(first: int, count: int, at_MHz: int, active_pct: int, states: tuple[int, ...]) -> str:
    return "".join(
        f"CPU {n} frequency: {at_MHz} MHz\n"
        f"CPU {n} active residency: {active_pct:6.2f}% ({_states(states, at_MHz, active_pct)})\n"
        f"CPU {n} idle residency: {100 - active_pct:6.2f}%\n"
        for n in range(first, first + count)
    )
