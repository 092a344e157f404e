"""The resident memory of a synthetic server over a cell, sampled every 50 ms."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lib.plan import Cell
from lib.synthetic.machine import LLAMA, LONGEST, Served
from lib.synthetic.timeline import TAIL_S, Timeline

INTERVAL_S = 0.05
PLATEAU = 2048
"""Prompt length from which llama.cpp's buffers no longer grow."""


def peak_MB(served: Served, backend: str, ctx: int) -> float:
    """Peak resident memory of a cell, MiB: grows with the prompt, then stays (llama.cpp) or grows on (MLX-LM)."""
    share = min(1.0, ctx / PLATEAU) if backend == LLAMA else ctx / LONGEST
    peak = served.ram_MB + (served.ram_long_MB - served.ram_MB) * share
    return max(peak, served.ram_peak_MB) if served.ram_peak_MB and ctx == served.ram_peak_ctx else peak


def write(path: Path, served: Served, cell: Cell, timeline: Timeline) -> None:
    """Write rss.csv: time_ns, rss_kb. Fills during prefill; some servers release memory between requests."""
    time_s = np.arange(0.0, timeline.end_s[-1] + TAIL_S, INTERVAL_S)
    peak = peak_MB(served, cell.backend, cell.ctx)
    request = np.searchsorted(timeline.start_s, time_s, side="right") - 1
    inside = (request >= 0) & (time_s <= timeline.end_s[request.clip(0)])
    knots = np.column_stack([timeline.start_s, timeline.first_s, timeline.end_s]).ravel()
    filled = np.interp(time_s, knots, np.tile([0.0, 1.0, 1.0], len(timeline.start_s)))
    rss_MB = peak - np.where(inside, served.sawtooth_MB * (1 - filled), served.sawtooth_MB)
    if served.ram_peak_MB and cell.ctx == served.ram_peak_ctx and cell.backend != LLAMA:
        rss_MB = np.where(request <= 0, rss_MB, rss_MB - 300.0)  # only the first request needs that much
    kb = np.rint(1024 * rss_MB).astype(int)
    lines = [f"{t},{k}\n" for t, k in zip(timeline.ns(time_s).tolist(), kb.tolist(), strict=True)]
    path.write_text("time_ns,rss_kb\n" + "".join(lines), encoding="ascii")
