"""The figures of the GPU notebook: clock and residency against power, and the clock's distribution."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lib import gpu, legends, plots, style

_WHAT = {"freq_MHz": "GPU clock (MHz)", "active_pct": "GPU residency (%)"}
PHASES = ("prefill", "decode")
# Half the width of a violin, in units of the distance between two prompt lengths.
VIOLIN_WIDTH = 0.44
# A violin is drawn from this many quantiles of its samples rather than from all of them, of which a long cell has tens
# of thousands: the same shape, the same bytes each time, and a figure in seconds.
QUANTILES = 300
# Points of a violin's outline; the file's size goes with it.
_OUTLINE = 60
_SIDES = (("left half", "#4D4D4D"), ("right half", "#BDBDBD"))


def segments(cells: pd.DataFrame) -> Figure:
    """A segment from prefill to decode for each cell: power across, GPU clock (left) and residency (right) up.

    A row of panels a backend, all on the same axes: in one panel the segments of a whole sweep hide one another.
    """
    backends = style.backends_in_order(list(cells["backend"]))
    size = (style.WIDTH, 2.4 * len(backends) + 0.6)
    figure, grid = plt.subplots(len(backends), 2, figsize=size, sharex=True, sharey="col", squeeze=False)
    for axes, backend in zip(grid, backends, strict=True):
        for ax, (what, label) in zip(axes, _WHAT.items(), strict=True):
            for model in style.in_order(list(cells["model"])):
                _segments(ax, plots.of(cells, backend, model), what, backend, style.colour(model), style.marker(model))
            ax.set_title(style.title(backend), loc="left")
            ax.set_ylabel(label)
    for ax in grid[-1]:
        ax.set_xlabel("Power of the phase (W)")
    legends.legend(
        figure, plots.series(cells), f"Marker: prefill; dot: decode of the same cell. {legends.NOT_FROM_ZERO}"
    )
    return figure


def _segments(ax: Axes, cells: pd.DataFrame, what: str, backend: str, colour: str, marker: str) -> None:
    ends = [cells[[f"{p}_power_W", f"gpu_{p}_{what}"]].to_numpy() for p in PHASES]
    lines = LineCollection(
        np.stack(ends, axis=1), colors=colour, linewidths=0.7, linestyles=style.line(backend), alpha=0.6
    )
    ax.add_collection(lines)
    look = {"color": colour, "linestyle": "", "markerfacecolor": style.face(backend, colour), "markeredgewidth": 0.9}
    ax.plot(*ends[0].T, marker=marker, markersize=4, **look)
    ax.plot(*ends[1].T, marker="o", markersize=2.2, **look)


def violins(samples: pd.DataFrame) -> Figure:
    """Split violins of the active GPU clock, models pooled: a row a gen, a column a phase, a violin a prompt length.

    `samples` has backend, ctx, gen, phase and gpu_freq_MHz; samples at 0 MHz (idle) are left out. Dotted lines mark the
    two states of the clock if its distribution over all samples has two, see lib.gpu.states.
    """
    active = samples[(samples["gpu_freq_MHz"] > 0) & samples["phase"].isin(PHASES)]
    gens, lengths = sorted(active["gen"].unique()), sorted(active["ctx"].unique())
    backends, found = style.backends_in_order(list(active["backend"].unique()))[:2], _states(active)
    size = (style.WIDTH, 1.9 * len(gens) + 0.7)
    figure, grid = plt.subplots(len(gens), 2, figsize=size, sharex=True, sharey=True, squeeze=False)
    for axes, gen in zip(grid, gens, strict=True):
        for ax, phase in zip(axes, PHASES, strict=True):
            own = active[(active["gen"] == gen) & (active["phase"] == phase)]
            _halves(ax, own, lengths, backends)
            for state_MHz in found:
                ax.axhline(state_MHz, color=style.INK, linestyle=":", linewidth=1, zorder=0)
            ax.set_title(f"gen {gen} tokens, {phase}", loc="left")
        axes[0].set_ylabel("GPU clock (MHz)")
    grid[0, 0].margins(y=0.06)
    for ax in grid[-1]:
        ax.set_xticks(range(len(lengths)), [str(n) for n in lengths])
        ax.set_xlabel("Prompt length (tokens)")
    handles = [
        Patch(facecolor=_SIDES[n][1], edgecolor=style.INK, label=f"{style.title(b)}, {_SIDES[n][0]}")
        for n, b in enumerate(backends)
    ]
    if found:
        text = f"two states: {found[0]:.0f} and {found[1]:.0f} MHz"
        handles.append(Line2D([], [], color=style.INK, linestyle=":", label=text))
    legends.place_legend(figure, handles, f"A violin shows the middle 99 % of its samples. {legends.NOT_FROM_ZERO}")
    return figure


def _states(active: pd.DataFrame) -> tuple:
    return gpu.states(active["gpu_freq_MHz"], gpu.even(active))


def _halves(ax: Axes, samples: pd.DataFrame, lengths: list[int], backends: list[str]) -> None:
    for side, backend in enumerate(backends):
        for place, ctx in enumerate(lengths):
            values = samples.loc[(samples["ctx"] == ctx) & (samples["backend"] == backend), "gpu_freq_MHz"].to_numpy()
            if len(values) > 1 and np.ptp(values) > 0:
                _half(ax, np.quantile(values, np.linspace(0.005, 0.995, QUANTILES)), place, side)
            elif len(values):  # a clock that never moved has no density: a line across its half
                ends = (place - VIOLIN_WIDTH, place) if side == 0 else (place, place + VIOLIN_WIDTH)
                ax.hlines(values[0], *ends, color=style.INK, linewidth=1.5)


def _half(ax: Axes, values: np.ndarray, place: int, side: int) -> None:
    """One half of a violin: the density of `values`, to the left (side 0) or to the right (side 1) of `place`."""
    body = ax.violinplot(
        [values], [place], widths=2 * VIOLIN_WIDTH, showextrema=False, points=_OUTLINE, bw_method=0.15
    )["bodies"][0]
    points = body.get_paths()[0].vertices
    low, high = (-np.inf, place) if side == 0 else (place, np.inf)
    points[:, 0] = np.clip(points[:, 0], low, high)
    body.set(facecolor=_SIDES[side][1], edgecolor=style.INK, alpha=1, linewidth=0.5)
