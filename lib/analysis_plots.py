"""The figures of the analysis: a request's energy split between its phases, and the ratio of the two backends."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from lib import findings, metrics, plots, style


def split(shares: pd.DataFrame) -> Figure:
    """A bar for each backend and model, split into prefill and decode. `shares` has backend, model and prefill_pct."""
    pairs = plots.series(shares)
    values = shares.set_index(["backend", "model"])["prefill_pct"]
    figure, ax = plt.subplots(figsize=(7.6, 0.42 * len(pairs) + 1.9))
    for place, (backend, model) in enumerate(pairs):
        prefill = values[(backend, model)]
        look = {"hatch": style.hatch(backend), "edgecolor": "white"}
        ax.barh(place, prefill, color=style.PHASE_COLOURS["prefill"], **look)
        ax.barh(place, 100 - prefill, left=prefill, color=style.PHASE_COLOURS["decode"], **look)
        ax.annotate(f"{prefill:.0f} %", (prefill, place), xytext=(4, 0), textcoords="offset points", va="center")
    ax.set_yticks(range(len(pairs)), [f"{style.label(m)}, {style.title(b)}" for b, m in pairs])
    ax.invert_yaxis()
    ax.set(xlabel="Share of the energy of a request (%); the number is prefill's", xlim=(0, 100))
    ax.grid(axis="y", visible=False)
    plots.place_legend(figure, [Patch(color=style.PHASE_COLOURS[p], label=p) for p in ("prefill", "decode")])
    return figure


def ratios(cells: pd.DataFrame, names: list[str]) -> Figure:
    """MLX-LM over llama.cpp in every cell that both have: a row of panels a generation length, a column a metric."""
    heads = {name: findings.head_to_head(cells, name) for name in names}
    gens = sorted({gen for head in heads.values() for gen in head["gen"]})
    size = (3.6 * len(names), 2.6 * len(gens) + 0.9)
    figure, grid = plt.subplots(len(gens), len(names), figsize=size, sharex=True, sharey="col", squeeze=False)
    for axes, gen in zip(grid, gens, strict=True):
        for ax, (name, head) in zip(axes, heads.items(), strict=True):
            ax.axhline(1, color="#666666", linewidth=1)
            for model, own in head[head["gen"] == gen].groupby("model"):
                ax.plot(own["ctx"], own["ratio"], color=style.colour(model), marker=style.marker(model))
            ax.set_title(f"{metrics.BY_NAME[name].title}, gen {gen}", loc="left", fontsize=10)
    for ax in grid[:, 0]:
        ax.set_ylabel("MLX-LM / llama.cpp")
    plots.prompt_axis(grid[-1], sorted({ctx for head in heads.values() for ctx in head["ctx"]}))
    plots.legend(figure, [(findings.PAIR[1], model) for model in findings.shared(cells)])
    return figure
