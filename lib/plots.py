"""The kinds of figure that several notebooks draw: lines against prompt length, bars of cells; axes and legends."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from lib import findings, metrics, style
from lib.legends import NOT_FROM_ZERO, hatch_handle, legend, place_legend

# Two prompt lengths nearer than this share of the axis would have overlapping labels: the first keeps its own.
_APART = 0.055
# Longest title of a y axis that a panel has room for on one line, letters.
_LETTERS = 24


def series(cells: pd.DataFrame) -> list[tuple[str, str]]:
    """(backend, model) pairs present, in the order of every legend."""
    pairs = set(zip(cells["backend"], cells["model"], strict=True))
    backends, names = style.backends_in_order([b for b, _ in pairs]), style.in_order([m for _, m in pairs])
    return [(b, m) for m in names for b in backends if (b, m) in pairs]


def of(cells: pd.DataFrame, backend: str, model: str) -> pd.DataFrame:
    """The rows of one backend and model, by prompt length."""
    return cells[(cells["backend"] == backend) & (cells["model"] == model)].sort_values("ctx")


# --- lines against prompt length ---


def lines_by_prompt(
    cells: pd.DataFrame, names: list[str], log_y: tuple[str, ...] = (), zoom: bool = False, one_y: bool = False
) -> Figure:
    """A grid of panels: one row a generation length, one column a metric; y axes are shared down a column.

    `cells` has backend, model, ctx, gen and the metrics in `names`; missing values leave a gap in the line. Linear y
    axes start at 0, or with `zoom` show the measured band and say so. With `one_y` all columns share one y range.
    """
    gens = sorted(cells["gen"].unique())
    size, shared = (style.WIDTH, 2.05 * len(gens) + 0.7), "all" if one_y else "col"
    figure, grid = plt.subplots(len(gens), len(names), figsize=size, sharex=True, sharey=shared, squeeze=False)
    for axes, gen in zip(grid, gens, strict=True):
        for ax, name in zip(axes, names, strict=True):
            _draw_lines(ax, cells[cells["gen"] == gen], name)
            ax.set_title(f"gen {gen} tokens", loc="left")
            heading = metrics.heading(name)
            ax.set_ylabel(_short(heading.replace(")", ", log)") if name in log_y else heading))
    for ax, name in zip(grid[0], names, strict=True):
        _scale(ax, cells[name].max(), name in log_y, zoom)
    prompt_axis(grid[-1], sorted(cells["ctx"].unique()))
    legend(figure, series(cells), NOT_FROM_ZERO if zoom else "")
    return figure


def _short(heading: str) -> str:
    """A heading on two lines of about the same length if it is long."""
    words = heading.split()
    cuts = [(" ".join(words[:n]), " ".join(words[n:])) for n in range(1, len(words))]
    return heading if len(heading) <= _LETTERS or not cuts else "\n".join(min(cuts, key=lambda two: max(map(len, two))))


def _draw_lines(ax: Axes, cells: pd.DataFrame, name: str) -> None:
    for backend, model in series(cells):
        own, colour = of(cells, backend, model), style.colour(model)
        ax.plot(
            own["ctx"], own[name], color=colour, linestyle=style.line(backend),
            marker=style.marker(model), markerfacecolor=style.face(backend, colour),
        )  # fmt: skip
    if not cells[name].notna().any():
        ax.text(0.5, 0.5, "no value", transform=ax.transAxes, ha="center", va="center", color=style.SOFT)


def _scale(ax: Axes, largest: float, log: bool, zoom: bool) -> None:
    if log:
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 1e3 else (1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_locator(NullLocator())
    elif not zoom:
        ax.set_ylim(0, max(ax.get_ylim()[1], 1.06 * largest) if largest > 0 else None)


def prompt_axis(axes: np.ndarray, ticks: list[int]) -> None:
    """Prompt length on a logarithmic axis, the measured lengths as its ticks; labels that would touch are left out."""
    for ax in axes:
        ax.set_xscale("log", base=2)
        ax.set_xlim(ticks[0] / 2**0.4, ticks[-1] * 2**0.4)
        ax.xaxis.set_major_locator(FixedLocator(_readable(ticks)))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
        ax.tick_params(axis="x", rotation=60 if len(ticks) > 4 else 0)
        ax.set_xlabel("Prompt length (tokens, log)")


def _readable(ticks: list[int]) -> list[int]:
    span = math.log2(ticks[-1] / ticks[0]) or 1.0
    kept = [ticks[0]]
    for tick in ticks[1:]:
        if math.log2(tick / kept[-1]) >= _APART * span:
            kept.append(tick)
    return kept


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


def seen_lines(cells: pd.DataFrame, name: str) -> str:
    """What a line figure shows, in words for a reader who cannot see it: the extremes at both ends, and the directions.

    Of the longest generation length that has values; empty if none has.
    """
    known = cells[cells[name].notna()]
    if known.empty:
        return ""
    own = known[known["gen"] == known["gen"].max()]
    metric, lengths = metrics.BY_NAME[name], sorted(own["ctx"].unique())
    at = dict.fromkeys((lengths[0], lengths[-1]))
    ends = [f"at prompt {ctx} {_extremes(own[own['ctx'] == ctx], name)}" for ctx in at]
    return f"{metric.title} in {metric.unit} at gen {own['gen'].max()}: {'; '.join(ends)}{_directions(own, name)}."


def _extremes(cells: pd.DataFrame, name: str) -> str:
    low, high = cells.loc[cells[name].idxmin()], cells.loc[cells[name].idxmax()]
    if low[name] == high[name]:
        return _point(low, name) if len(cells) == 1 else f"{low[name]:.{metrics.BY_NAME[name].digits}f} in all"
    return f"{_point(low, name)} to {_point(high, name)}"


def _point(row: pd.Series, name: str) -> str:
    return f"{row[name]:.{metrics.BY_NAME[name].digits}f} ({style.title(row['backend'])} {row['model']})"


def _directions(cells: pd.DataFrame, name: str) -> str:
    """How many lines end above where they begin; nothing with one prompt length."""
    lines = [own.sort_values("ctx")[name].to_numpy() for _, own in cells.groupby(["backend", "model"])]
    lines = [values for values in lines if len(values) > 1]
    higher = sum(values[-1] > values[0] for values in lines)
    return f"; {higher} of {len(lines)} lines end higher than they begin" if lines else ""


# --- bars ---


def best_cells(cells: pd.DataFrame, name: str, largest: bool = False) -> pd.DataFrame:
    """The best cell of each backend and model by `name`: highest value, or lowest where less is better.

    With `largest` the highest value whatever is better.
    """
    rows = findings.best_rows(cells, name, findings.SERIES, largest)
    return rows[[*metrics.KEYS, name]].reset_index(drop=True)


def bars(best: dict[str, pd.DataFrame], cell: bool = True, one_x: bool = False) -> Figure:
    """One panel a metric, a group of bars a model, a bar a backend, with its value and (`cell`) its cell, prompt/gen.

    `best` maps a metric to a frame with backend, model, that metric and, with `cell`, ctx and gen. With `one_x` all
    panels share one x range. Where all bars come from one cell it is named once, below.
    """
    pairs = series(pd.concat([frame[["backend", "model"]] for frame in best.values()]))
    places, middles = bar_places(pairs)
    size = (style.WIDTH, bar_height(places))
    figure, axes = plt.subplots(1, len(best), figsize=size, sharey=True, sharex=one_x, squeeze=False)
    at = set().union(*(zip(f["ctx"], f["gen"], strict=True) for f in best.values())) if cell else set()
    for ax, (name, frame) in zip(axes[0], best.items(), strict=True):
        _draw_bars(ax, frame, name, places, len(at) > 1)
    name_bars(axes[0][0], places, middles)
    note = "@ prompt/gen (tokens): the cell that a bar comes from" if len(at) > 1 else ""
    note = "Every bar: prompt {}, gen {} tokens".format(*at.pop()) if len(at) == 1 else note
    place_legend(figure, [hatch_handle(b) for b in style.backends_in_order([b for b, _ in pairs])], note)
    ends = [_room(ax) for ax in axes[0]]
    for ax, end in zip(axes[0], ends, strict=True):
        ax.set_xlim(0, max(ends) if one_x else end)
    return figure


def bar_places(pairs: list[tuple[str, str]]) -> tuple[dict, dict]:
    """Place of each (backend, model) from the top, with a gap between models, and the middle of each model's bars."""
    places, middles, at = {}, {}, 0.0
    for model in style.in_order([m for _, m in pairs]):
        own = [pair for pair in pairs if pair[1] == model]
        places |= {pair: at + n for n, pair in enumerate(own)}
        middles[model] = at + (len(own) - 1) / 2
        at += max(len(own), 1.3) + 0.4  # a label of two lines needs the room of more than one bar
    return places, middles


def bar_height(places: dict) -> float:
    """Height of a figure of such bars, inches."""
    return 0.27 * (max(places.values()) + 1) + 0.9


def name_bars(ax: Axes, places: dict, middles: dict) -> None:
    """Models as labels of the y axis, the first on top."""
    ax.set_yticks(list(middles.values()), [style.two_lines(m) for m in middles], fontsize=9)
    ax.set_ylim(max(places.values()) + 0.8, -0.8)
    ax.grid(axis="y", visible=False)


def bar_look(backend: str, model: str) -> dict:
    """Colour, hatch and edge of a model's bar."""
    return {"color": style.colour(model), "hatch": style.hatch(backend), "edgecolor": "white"}


def _draw_bars(ax: Axes, frame: pd.DataFrame, name: str, places: dict, cell: bool) -> None:
    digits = min(metrics.BY_NAME[name].digits, 1 if frame[name].max() >= 100 else 2)
    for row in frame.dropna(subset=[name]).itertuples(index=False):
        value, place = getattr(row, name), places[(row.backend, row.model)]
        ax.barh(place, value, height=0.9, **bar_look(row.backend, row.model))
        text = f"{value:.{digits}f}" + (f" @ {row.ctx}/{row.gen}" if cell else "")
        note = ax.annotate(text, (value, place), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8)
        note.set_in_layout(False)  # the axis is made to end behind it, see _room
    ax.set_xlabel(metrics.heading(name))
    ax.grid(axis="y", visible=False)


def _room(ax: Axes) -> float:
    """Where the x axis must end for the text behind each bar to stay inside the panel."""
    width = ax.get_window_extent().width
    return max(note.xy[0] * width / (width - note.get_window_extent().width - 10) for note in ax.texts)


def seen_bars(best: dict[str, pd.DataFrame]) -> str:
    """What a bar figure shows, in words: the best of each metric."""
    parts = []
    for name, frame in best.items():
        metric = metrics.BY_NAME[name]
        row = frame.loc[frame[name].idxmin() if metric.less_is_better else frame[name].idxmax()]
        value = f"{row[name]:.{metric.digits}f} {metric.unit}"
        parts.append(f"{metric.title}: {style.title(row['backend'])} {row['model']} is first with {value}")
    return f"{'; '.join(parts)}." if parts else ""


def seen_values(best: dict[str, pd.DataFrame]) -> str:
    """What a bar figure of one cell shows, in words: each metric's lowest and highest bar."""
    parts = [f"{metrics.heading(name)}: {_extremes(frame, name)}" for name, frame in best.items() if len(frame)]
    return f"{'; '.join(parts)}." if parts else ""


def best_frame(best: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The frames of `best` under one another, for the CSV beside a bar figure: metric, cell, value."""
    parts = [frame.rename(columns={name: "value"}).assign(metric=name) for name, frame in best.items()]
    return pd.concat(parts, ignore_index=True)
