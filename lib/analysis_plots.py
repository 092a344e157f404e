"""The figures of the analysis: a request's energy split between its phases, and the ratio of the two backends."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lib import findings, legends, metrics, plots, style


def split(shares: pd.DataFrame) -> Figure:
    """A bar for each backend and model, split into prefill and decode. `shares` has backend, model and prefill_pct."""
    pairs = plots.series(shares)
    places, middles = plots.bar_places(pairs)
    figure, ax = plt.subplots(figsize=(style.WIDTH, plots.bar_height(places)))
    for row in shares.dropna(subset=["prefill_pct"]).itertuples(index=False):
        parts = {"prefill": (0.0, row.prefill_pct), "decode": (row.prefill_pct, 100 - row.prefill_pct)}
        for phase, (left, width) in parts.items():
            _part(ax, places[(row.backend, row.model)], left, width, phase, row.backend)
    plots.name_bars(ax, places, middles)
    ax.set(xlabel="Share of the energy of a request (%)", xlim=(0, 100))
    handles = [Patch(facecolor=style.PHASE_COLOURS[p], edgecolor=style.INK, label=p) for p in ("prefill", "decode")]
    handles += [legends.hatch_handle(b) for b in style.backends_in_order([b for b, _ in pairs])]
    legends.place_legend(figure, handles)
    return figure


def _part(ax: Axes, place: float, left: float, width: float, phase: str, backend: str) -> None:
    """One phase's part of a bar with its share, if there is room for it."""
    look = {"color": style.PHASE_COLOURS[phase], "hatch": style.hatch(backend), "edgecolor": "white"}
    ax.barh(place, width, left=left, height=0.9, **look)
    if width >= 6:
        box = {"boxstyle": "round,pad=0.15", "facecolor": style.PHASE_COLOURS[phase], "edgecolor": "none"}
        middle = left + width / 2
        ax.text(middle, place, f"{width:.0f} %", ha="center", va="center", fontsize=8.5, color=style.INK, bbox=box)


def ratios(cells: pd.DataFrame, names: list[str]) -> Figure:
    """MLX-LM over llama.cpp in every cell that both have: a row of panels a generation length, a column a metric."""
    heads = {name: findings.head_to_head(cells, name) for name in names}
    gens = sorted({gen for head in heads.values() for gen in head["gen"]})
    size = (style.WIDTH, 2.05 * len(gens) + 0.7)
    figure, grid = plt.subplots(len(gens), len(names), figsize=size, sharex=True, sharey="col", squeeze=False)
    for axes, gen in zip(grid, gens, strict=True):
        for ax, (name, head) in zip(axes, heads.items(), strict=True):
            ax.axhline(1, color=style.SOFT, linewidth=1)
            for model, own in head[head["gen"] == gen].groupby("model"):
                ax.plot(own["ctx"], own["ratio"], color=style.colour(model), marker=style.marker(model))
            ax.set_title(f"{metrics.BY_NAME[name].title}, gen {gen}", loc="left", fontsize=10)
    for ax in grid[:, 0]:
        ax.set_ylabel("MLX-LM / llama.cpp (ratio)")
    plots.prompt_axis(grid[-1], sorted({ctx for head in heads.values() for ctx in head["ctx"]}))
    names = findings.shared(cells)
    handles = [Line2D([], [], color=style.colour(m), marker=style.marker(m), label=style.label(m)) for m in names]
    handles.append(Line2D([], [], color=style.SOFT, label="both the same"))
    legends.place_legend(figure, handles, "The y axes show the measured band only.")
    return figure
