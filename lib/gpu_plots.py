"""The figures of the GPU notebook: clock and residency against power, the clock's distribution, one cell's trace."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from lib import plots, style

PHASES = ("prefill", "decode")
# Half the width of a violin, in units of the distance between two prompt lengths.
VIOLIN_WIDTH = 0.42


def segments(cells: pd.DataFrame) -> Figure:
    """A segment from prefill to decode for each cell: power across, GPU clock (left) and residency (right) up."""
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.0))
    for ax, what, label in zip(axes, ("freq_MHz", "active_pct"), ("GPU clock (MHz)", "GPU residency (%)"), strict=True):
        for cell in cells.itertuples():
            power_W = [getattr(cell, f"{p}_power_W") for p in PHASES]
            value = [getattr(cell, f"gpu_{p}_{what}") for p in PHASES]
            colour = style.colour(cell.model)
            ax.plot(power_W, value, color=colour, linestyle=style.line(cell.backend), linewidth=1)
            ax.plot(power_W[0], value[0], marker="s", color=colour, markersize=4)
            ax.plot(power_W[1], value[1], marker="o", color=colour, markersize=4, markerfacecolor="white")
        ax.set(xlabel="Power (W): square prefill, circle decode", ylabel=label)
    plots.legend(figure, plots.series(cells))
    return figure


def violins(samples: pd.DataFrame) -> Figure:
    """Split violins of the active GPU clock, models pooled: a row a gen, a column a phase, a violin a prompt length.

    `samples` has backend, ctx, gen, phase and gpu_freq_MHz; samples at 0 MHz (idle) are left out.
    """
    active = samples[(samples["gpu_freq_MHz"] > 0) & samples["phase"].isin(PHASES)]
    gens, lengths = sorted(active["gen"].unique()), sorted(active["ctx"].unique())
    backends = style.backends_in_order(list(active["backend"]))[:2]
    size = (9.6, 2.6 * len(gens) + 0.9)
    figure, grid = plt.subplots(len(gens), 2, figsize=size, sharex=True, sharey=True, squeeze=False)
    for axes, gen in zip(grid, gens, strict=True):
        for ax, phase in zip(axes, PHASES, strict=True):
            own = active[(active["gen"] == gen) & (active["phase"] == phase)]
            _halves(ax, own, lengths, backends)
            ax.set_title(f"gen {gen} tokens, {phase}", loc="left")
        axes[0].set_ylabel("GPU clock (MHz)")
    for ax in grid[-1]:
        ax.set_xticks(range(len(lengths)), [str(n) for n in lengths])
        ax.set_xlabel("Prompt length (tokens)")
    sides = ("left half", "right half")
    handles = [Patch(color=_half_colour(n), label=f"{style.title(b)}, {sides[n]}") for n, b in enumerate(backends)]
    plots.place_legend(figure, handles)
    return figure


def _half_colour(side: int) -> str:
    return ("#555555", "#BBBBBB")[side]


def _halves(ax: Axes, samples: pd.DataFrame, lengths: list[int], backends: list[str]) -> None:
    for side, backend in enumerate(backends):
        for place, ctx in enumerate(lengths):
            values = samples.loc[(samples["ctx"] == ctx) & (samples["backend"] == backend), "gpu_freq_MHz"].to_numpy()
            if len(values) > 1 and np.ptp(values) > 0:
                _half(ax, values, place, side)


def _half(ax: Axes, values: np.ndarray, place: int, side: int) -> None:
    """One half of a violin: the density of `values`, to the left (side 0) or to the right (side 1) of `place`."""
    body = ax.violinplot([values], [place], widths=2 * VIOLIN_WIDTH, showextrema=False)["bodies"][0]
    points = body.get_paths()[0].vertices
    low, high = (-np.inf, place) if side == 0 else (place, np.inf)
    points[:, 0] = np.clip(points[:, 0], low, high)
    body.set(facecolor=_half_colour(side), edgecolor="#333333", alpha=1, linewidth=0.6)


def trace(samples: pd.DataFrame, requests: pd.DataFrame, count: int = 4) -> Figure:
    """GPU clock and residency over the first `count` requests of one cell, with prefill and decode shaded."""
    shown = requests.sort_values("start_ns").head(count)
    origin_s, last_s = shown["start_ns"].iloc[0] / 1e9, shown["end_ns"].iloc[-1] / 1e9
    own = samples[samples["time_s"].between(origin_s, last_s)]
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.2))
    names = (("gpu_freq_MHz", "GPU clock (MHz)"), ("gpu_active_pct", "GPU residency (%)"))
    for ax, (name, label) in zip(axes, names, strict=True):
        for request in shown.itertuples():
            begin = request.start_ns / 1e9 - origin_s
            edges = (begin, begin + request.ttft_ms / 1000, request.end_ns / 1e9 - origin_s)
            for phase, low, high in zip(PHASES, edges[:2], edges[1:], strict=True):
                ax.axvspan(low, high, color=style.PHASE_COLOURS[phase], alpha=0.3, linewidth=0)
        middle_s = own["time_s"] - own["elapsed_ms"] / 2000 - origin_s
        ax.plot(middle_s, own[name], color="#333333", linewidth=1)
        ax.set(xlabel="Time (s)", ylabel=label)
    handles = [Patch(color=style.PHASE_COLOURS[p], alpha=0.3, label=p) for p in PHASES]
    plots.place_legend(figure, handles)
    return figure
