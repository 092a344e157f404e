"""The figures of the appendix: power of the phases, spread of latency, efficiency by generation length, heat maps."""

from __future__ import annotations

import textwrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lib import legends, metrics, plots, style

PHASES = ("prefill", "decode")
PERCENTILES = {"rl_ms": ("p50", "o"), "rl_p90_ms": ("p90", "|"), "rl_p99_ms": ("p99", ">")}
_GREYS = ("#D9D9D9", "#969696", "#525252", "#252525")
# A heat map reaches at least this far on both sides of 0, %: a mismatch of a token must not look like a disaster.
_LEAST_PCT = 5.0


def phase_power(cells: pd.DataFrame) -> Figure:
    """A grid of panels, a row a model and a column a gen: bars of prefill and decode power by prompt length.

    `cells` has backend, model, ctx, gen, prefill_power_W and decode_power_W. Bars of each prompt length stand side by
    side: prefill and decode of the first backend, then of the second (hatched).
    """
    models, gens, lengths = _axes(cells)
    kinds = [(b, p) for b in style.backends_in_order(list(cells["backend"])) for p in PHASES]
    size = (style.WIDTH, 1.3 * len(models) + 1.0)
    figure, grid = plt.subplots(len(models), len(gens), figsize=size, sharex=True, sharey=True, squeeze=False)
    for axes, model in zip(grid, models, strict=True):
        for ax, gen in zip(axes, gens, strict=True):
            own = cells[(cells["model"] == model) & (cells["gen"] == gen)]
            _power_bars(ax, own, lengths, kinds)
            ax.annotate(f"gen {gen} tokens", (0.02, 0.96), xycoords="axes fraction", va="top", fontsize=8)
        axes[0].set_title(style.label(model), loc="left")
        axes[0].set_ylabel("Power (W)")
    grid[0, 0].set_ylim(0, 1.25 * cells[[f"{p}_power_W" for p in PHASES]].max().max())  # room for the text on top
    for ax in grid[-1]:
        ax.set_xticks(range(len(lengths)), [str(n) for n in lengths], rotation=60 if len(lengths) > 4 else 0)
        ax.set_xlabel("Prompt length (tokens)")
    legends.place_legend(figure, [_kind_handle(b, p) for b, p in kinds])
    return figure


def _axes(cells: pd.DataFrame) -> tuple[list, list, list]:
    """Models in the fixed order, generation lengths, prompt lengths."""
    return style.in_order(list(cells["model"])), sorted(cells["gen"].unique()), sorted(cells["ctx"].unique())


def _power_bars(ax: Axes, cells: pd.DataFrame, lengths: list[int], kinds: list[tuple[str, str]]) -> None:
    width = 0.84 / len(kinds)
    for n, (backend, phase) in enumerate(kinds):
        own = cells[cells["backend"] == backend].set_index("ctx")[f"{phase}_power_W"].reindex(lengths)
        places = np.arange(len(lengths)) + (n - (len(kinds) - 1) / 2) * width
        ax.bar(
            places, own, width, color=style.PHASE_COLOURS[phase], hatch=2 * style.hatch(backend), edgecolor=style.INK,
            linewidth=0.4,
        )  # fmt: skip
    ax.grid(axis="x", visible=False)


def _kind_handle(backend: str, phase: str) -> Patch:
    return Patch(
        facecolor=style.PHASE_COLOURS[phase], hatch=2 * style.hatch(backend), edgecolor=style.INK, linewidth=0.4,
        label=f"{style.title(backend)}, {phase}",
    )  # fmt: skip


def latency_spread(cells: pd.DataFrame) -> Figure:
    """Request latency of one cell a backend and model: p50 as a bar with p90 and p99 (s), and both over p50 (%).

    `cells` has backend, model and the columns in PERCENTILES (ms).
    """
    pairs = plots.series(cells)
    places, middles = plots.bar_places(pairs)
    figure, axes = plt.subplots(1, 2, figsize=(style.WIDTH, plots.bar_height(places)), sharey=True)
    for row in cells.itertuples(index=False):
        place = places[(row.backend, row.model)]
        axes[0].barh(place, row.rl_ms / 1000, height=0.9, **plots.bar_look(row.backend, row.model))
        for name in list(PERCENTILES)[1:]:
            axes[0].plot(getattr(row, name) / 1000, place, color=style.INK, **_mark(name))
        over_pct = [100 * (getattr(row, name) / row.rl_ms - 1) for name in PERCENTILES]
        axes[1].plot(over_pct[::2], [place, place], color=style.colour(row.model), linewidth=1.2)
        for name, value in zip(PERCENTILES, over_pct, strict=True):
            axes[1].plot(value, place, color=style.colour(row.model), **_mark(name))
    plots.name_bars(axes[0], places, middles)
    axes[0].set(xlabel="Request latency (s)", xlim=(0, None))
    axes[1].set(xlabel="Above the median (%)")
    axes[1].grid(axis="y", visible=False)
    handles = [legends.hatch_handle(b) for b in style.backends_in_order([b for b, _ in pairs])]
    marks = [Line2D([], [], color=style.INK, label=label, **_mark(name)) for name, (label, _) in PERCENTILES.items()]
    legends.place_legend(figure, [*handles, *marks], "Bar, and 0 % on the right: p50.")
    return figure


def _mark(name: str) -> dict:
    return {"marker": PERCENTILES[name][1], "linestyle": "", "markersize": 9 if PERCENTILES[name][1] == "|" else 4.5}


def by_gen(table: pd.DataFrame, name: str) -> Figure:
    """Grouped bars of `name`: a panel a backend, a group a model, a bar a generation length, the longer the darker.

    `table` has backend, model, gen and `name`.
    """
    backends, models = style.backends_in_order(list(table["backend"])), style.in_order(list(table["model"]))
    gens = sorted(table["gen"].unique())
    width, size = 0.8 / len(gens), (style.WIDTH, 2.2 * len(backends) + 0.9)
    figure, grid = plt.subplots(len(backends), 1, figsize=size, sharex=True, sharey=True, squeeze=False)
    for ax, backend in zip(grid[:, 0], backends, strict=True):
        for n, gen in enumerate(gens):
            own = table[(table["backend"] == backend) & (table["gen"] == gen)].set_index("model")[name].reindex(models)
            places = np.arange(len(models)) + (n - (len(gens) - 1) / 2) * width
            drawn = ax.bar(places, own, width, color=_GREYS[n % len(_GREYS)], edgecolor="white", linewidth=0.5)
            texts = ["" if np.isnan(value) else f"{value:.2f}" for value in own]
            ax.bar_label(drawn, texts, fontsize=7.5, padding=1.5)
        for place, model in enumerate(models):
            if not len(table[(table["backend"] == backend) & (table["model"] == model)]):
                ax.text(place, 0, "no value", ha="center", va="bottom", fontsize=8, color=style.SOFT)
        ax.set_title(style.title(backend), loc="left")
        ax.set_ylabel(metrics.heading(name))
        ax.grid(axis="x", visible=False)
        ax.margins(y=0.12)
    names = [textwrap.fill(style.label(m).replace(" (", "\n("), 15, replace_whitespace=False) for m in models]
    grid[-1, 0].set_xticks(range(len(models)), names, fontsize=8)
    handles = [Patch(facecolor=_GREYS[n % len(_GREYS)], label=f"gen {gen} tokens") for n, gen in enumerate(gens)]
    legends.place_legend(figure, handles)
    return figure


def heat(cells: pd.DataFrame, name: str, reach: float) -> Figure:
    """Heat map of `name` (%), one backend: a panel a gen, a row a model, a column a prompt length, values in the cells.

    Colours diverge from 0 to -reach and +reach, see `reach_of`; a cell without a value has a dash.
    """
    models, gens, lengths = _axes(cells)
    figure, grid = plt.subplots(
        len(gens), 1, figsize=(style.WIDTH, len(gens) * (0.3 * len(models) + 0.35) + 0.5), sharex=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    look = {"norm": TwoSlopeNorm(0.0, -reach, reach), "cmap": "PuOr_r"}
    for ax, gen in zip(grid[:, 0], gens, strict=True):
        wide = cells[cells["gen"] == gen].pivot(index="model", columns="ctx", values=name)
        wide = wide.reindex(models, columns=lengths)
        _map(ax, wide.to_numpy(), look)
        ax.set_yticks(range(len(models)), [style.label(m) for m in models], fontsize=8.5)
        ax.set_title(f"gen {gen} tokens", loc="left")
    grid[-1, 0].set_xticks(range(len(lengths)), [str(n) for n in lengths])
    grid[-1, 0].set_xlabel("Prompt length (tokens)")
    bar = figure.colorbar(ScalarMappable(**look), ax=list(grid[:, 0]), fraction=0.04, pad=0.02)
    bar.set_label(metrics.heading(name))
    return figure


def _map(ax: Axes, values: np.ndarray, look: dict) -> None:
    ax.set_facecolor("#EEEEEE")
    edges = [np.arange(size + 1) - 0.5 for size in values.shape[::-1]]
    ax.pcolormesh(*edges, np.ma.masked_invalid(values), edgecolors="white", linewidth=1, **look)
    for (row, column), value in np.ndenumerate(values):
        known = not np.isnan(value)
        dark = known and abs(value) > 0.6 * look["norm"].vmax
        text = (f"{value:+.1f}".replace("-", "−") if round(value, 1) else "0.0") if known else "–"
        colour = "white" if dark else "black"
        ax.text(column, row, text, ha="center", va="center", fontsize=8.5, color=colour)
    ax.invert_yaxis()
    ax.grid(visible=False)


def reach_of(cells: pd.DataFrame, name: str) -> float:
    """How far the colours of `heat` must reach from 0 for all of `cells`, so that several maps share one scale."""
    largest = cells[name].abs().max()
    return max(_LEAST_PCT, float(largest)) if largest == largest else _LEAST_PCT
