"""The kinds of figure that several notebooks draw: lines against prompt length, bars of the best cells."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from lib import metrics, style

KEYS = ["backend", "model", "ctx", "gen"]


def series(cells: pd.DataFrame) -> list[tuple[str, str]]:
    """(backend, model) pairs present, in the order of every legend."""
    pairs = set(zip(cells["backend"], cells["model"], strict=True))
    backends, names = style.backends_in_order([b for b, _ in pairs]), style.in_order([m for _, m in pairs])
    return [(b, m) for m in names for b in backends if (b, m) in pairs]


def lines_by_prompt(cells: pd.DataFrame, names: list[str], log_y: tuple[str, ...] = ()) -> Figure:
    """A grid of panels: one row a generation length, one column a metric; y axes are shared down a column.

    `cells` has backend, model, ctx, gen and the metrics in `names`; missing values leave a gap in the line.
    """
    gens = sorted(cells["gen"].unique())
    size = (4.6 * len(names), 2.9 * len(gens) + 0.9)
    figure, grid = plt.subplots(len(gens), len(names), figsize=size, sharex=True, sharey="col", squeeze=False)
    for axes, gen in zip(grid, gens, strict=True):
        for ax, name in zip(axes, names, strict=True):
            _draw_lines(ax, cells[cells["gen"] == gen], name)
            ax.set_yscale("log" if name in log_y else "linear")
            ax.set_title(f"gen {gen} tokens", loc="left")
    for ax, name in zip(grid[0], names, strict=True):
        if name not in log_y:
            ax.set_ylim(bottom=0)
    for ax, name in ((ax, name) for axes in grid for ax, name in zip(axes, names, strict=True)):
        ax.set_ylabel(metrics.heading(name))
    prompt_axis(grid[-1], sorted(cells["ctx"].unique()))
    legend(figure, series(cells))
    return figure


def _draw_lines(ax: Axes, cells: pd.DataFrame, name: str) -> None:
    for backend, model in series(cells):
        own = cells[(cells["backend"] == backend) & (cells["model"] == model)].sort_values("ctx")
        ax.plot(
            own["ctx"], own[name], color=style.colour(model), linestyle=style.line(backend),
            marker=style.marker(model), markerfacecolor="white" if style.hatch(backend) else None,
        )  # fmt: skip


def prompt_axis(axes: np.ndarray, ticks: list[int]) -> None:
    """Prompt length on a logarithmic axis with the measured lengths as its ticks."""
    for ax in axes:
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_locator(FixedLocator(ticks))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
        ax.tick_params(axis="x", rotation=45 if len(ticks) > 4 else 0)
        ax.set_xlabel("Prompt length (tokens, log scale)")


def legend(figure: Figure, pairs: list[tuple[str, str]]) -> None:
    """Legend below the panels, outside the data: a colour for each model, a line style for each backend."""
    names, backends = style.in_order([m for _, m in pairs]), style.backends_in_order([b for b, _ in pairs])
    handles = [Line2D([], [], color=style.colour(m), marker=style.marker(m), label=style.label(m)) for m in names]
    handles += [Line2D([], [], color="#444444", linestyle=style.line(b), label=style.title(b)) for b in backends]
    place_legend(figure, handles)


def place_legend(figure: Figure, handles: list) -> None:
    """Lay the panels out and put a legend of `handles` below them."""
    figure.tight_layout()
    figure.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=min(3, len(handles)), frameon=False
    )


def best_cells(cells: pd.DataFrame, name: str) -> pd.DataFrame:
    """The best cell of each backend and model by `name`: highest value, or lowest where less is better."""
    known = cells[cells[name].notna()]
    grouped = known.groupby(["backend", "model"])[name]
    rows = grouped.idxmin() if metrics.BY_NAME[name].better == "low" else grouped.idxmax()
    return known.loc[rows, [*KEYS, name]].reset_index(drop=True)


def bars(best: dict[str, pd.DataFrame]) -> Figure:
    """One panel a metric, one bar a model and backend, with value and cell (prompt/gen) at the bar.

    `best` maps a metric to a frame with backend, model, ctx, gen and that metric.
    """
    pairs = series(pd.concat([frame[KEYS] for frame in best.values()]))
    size = (4.6 * len(best), 0.42 * len(pairs) + 1.9)
    figure, axes = plt.subplots(1, len(best), figsize=size, sharey=True, squeeze=False)
    for ax, (name, frame) in zip(axes[0], best.items(), strict=True):
        _draw_bars(ax, frame, name, pairs)
    axes[0][0].set_yticks(range(len(pairs)), [style.label(m) for _, m in pairs])
    axes[0][0].invert_yaxis()
    backends = style.backends_in_order([b for b, _ in pairs])
    handles = [
        Patch(facecolor="#CCCCCC", edgecolor="#444444", hatch=style.hatch(b), label=style.title(b)) for b in backends
    ]
    place_legend(figure, handles)
    return figure


def _draw_bars(ax: Axes, frame: pd.DataFrame, name: str, pairs: list[tuple[str, str]]) -> None:
    places = {pair: place for place, pair in enumerate(pairs)}
    digits = min(1, metrics.BY_NAME[name].digits) if frame[name].max() >= 100 else metrics.BY_NAME[name].digits
    for row in frame.itertuples(index=False):
        value, place = getattr(row, name), places[(row.backend, row.model)]
        ax.barh(place, value, color=style.colour(row.model), hatch=style.hatch(row.backend), edgecolor="white")
        ax.annotate(
            f"{value:.{digits}f}  @ {row.ctx}/{row.gen}", (value, place), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=9,
        )  # fmt: skip
    ax.set_xlim(0, 1.75 * frame[name].max())  # room for the value and the cell behind the longest bar
    ax.set_xlabel(metrics.heading(name))
    ax.grid(axis="y", visible=False)


def seen_lines(cells: pd.DataFrame, name: str) -> str:
    """What a line figure shows, in words for a reader who cannot see it: each line's first and last value."""
    metric = metrics.BY_NAME[name]
    gen = cells["gen"].max()
    parts = []
    for backend, model in series(cells):
        own = cells[(cells["backend"] == backend) & (cells["model"] == model) & (cells["gen"] == gen)].sort_values(
            "ctx"
        )
        own = own[own[name].notna()]
        if len(own) > 1:
            first, last = own.iloc[0], own.iloc[-1]
            parts.append(
                f"{style.title(backend)} {model} {first[name]:.{metric.digits}f} to {last[name]:.{metric.digits}f}"
            )
    lengths = f"from prompt {cells['ctx'].min()} to {cells['ctx'].max()} tokens at gen {gen}"
    return f"{metric.title} in {metric.unit} {lengths}: {', '.join(parts)}." if parts else ""


def seen_bars(best: dict[str, pd.DataFrame]) -> str:
    """What a bar figure shows, in words: the best of each metric."""
    parts = []
    for name, frame in best.items():
        metric = metrics.BY_NAME[name]
        row = frame.loc[frame[name].idxmin() if metric.better == "low" else frame[name].idxmax()]
        value = f"{row[name]:.{metric.digits}f} {metric.unit}"
        parts.append(f"{metric.title}: {style.title(row['backend'])} {row['model']} is first with {value}")
    return f"{'; '.join(parts)}." if parts else ""


def best_frame(best: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The frames of `best` under one another, for the CSV beside a bar figure: metric, cell, value."""
    parts = [frame.rename(columns={name: "value"}).assign(metric=name) for name, frame in best.items()]
    return pd.concat(parts, ignore_index=True)


def band(figure: Figure, cells: pd.DataFrame, name: str, column: int) -> None:
    """Shade the spread of `name` over generation lengths, in every panel of one column of a lines_by_prompt figure."""
    rows = cells["gen"].nunique()
    panels = np.array(figure.axes[: rows * (len(figure.axes) // rows)]).reshape(rows, -1)[:, column]
    for backend, model in series(cells):
        own = cells[(cells["backend"] == backend) & (cells["model"] == model)]
        spread = own.groupby("ctx")[name].agg(["min", "max"]).dropna()
        for ax in panels:
            ax.fill_between(
                spread.index, spread["min"], spread["max"], color=style.colour(model), alpha=0.15, linewidth=0
            )
