"""Figures over time: samples of a cell as a line, thinned so that no dip or peak is lost, with phases shaded."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lib import legends, style

PHASES = ("prefill", "decode")
# Stretches of time that a line is thinned to. A line of 50,000 samples would weigh a megabyte as SVG; the lowest and
# the highest sample of each stretch weigh 20 KB and look the same, since a stretch is narrower than a pixel.
STRETCHES = 500


def thinned(time_s: np.ndarray, values: np.ndarray, stretches: int = STRETCHES) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest value of each of `stretches` equal stretches of time, in their own order.

    Two arrays (s, and the unit of `values`); missing values are left out. Returned whole if they are few anyway.
    """
    known = np.isfinite(values)
    time_s, values = np.asarray(time_s)[known], np.asarray(values)[known]
    if len(values) <= 2 * stretches:
        return time_s, values
    edges = np.linspace(time_s[0], time_s[-1], stretches + 1)
    place = np.clip(np.searchsorted(edges, time_s, side="right") - 1, 0, stretches - 1)
    by_value = np.lexsort((values, place))
    first = np.flatnonzero(np.diff(place[by_value], prepend=-1))
    last = np.append(first[1:], len(values)) - 1
    kept = np.unique(np.concatenate([by_value[first], by_value[last]]))
    return time_s[kept], values[kept]


def spread(time_s: np.ndarray, values: np.ndarray, stretches: int = 120) -> pd.DataFrame:
    """Each of `stretches` equal stretches of time: time_s (middle), mid (median), low and high (extremes)."""
    known = np.isfinite(values)
    time_s, values = np.asarray(time_s)[known], np.asarray(values)[known]
    if not len(values):
        return pd.DataFrame(columns=["time_s", "mid", "low", "high"], dtype=float)
    edges = np.linspace(time_s[0], time_s[-1], stretches + 1)
    place = np.clip(np.searchsorted(edges, time_s, side="right") - 1, 0, stretches - 1)
    grouped = pd.Series(values).groupby(place)
    found = pd.DataFrame({"mid": grouped.median(), "low": grouped.min(), "high": grouped.max()})
    found.insert(0, "time_s", (edges[:-1] + edges[1:])[found.index] / 2)
    return found


def over_run(lines: dict[tuple[str, str], pd.DataFrame], name: str, label: str, bands: bool = False) -> Figure:
    """One line a backend and model over the time since its cell began: a panel a backend, one y range.

    `lines` maps (backend, model) to a frame with `time_s` (s since the start) and `name`; `label` is the axis title.
    With `bands` a line is the median of each stretch of time and a band reaches from its lowest to its highest sample:
    for a signal whose samples scatter more than the lines are apart.
    """
    backends = style.backends_in_order([b for b, _ in lines])
    size = (style.WIDTH, 2.1 * len(backends) + 0.6)
    figure, grid = plt.subplots(len(backends), 1, figsize=size, sharex=True, sharey=True, squeeze=False)
    for ax, backend in zip(grid[:, 0], backends, strict=True):
        for model in style.in_order([m for b, m in lines if b == backend]):
            own = lines[(backend, model)]
            _line(ax, own["time_s"].to_numpy(), own[name].to_numpy(), backend, model, bands)
        ax.set_title(style.title(backend), loc="left")
        ax.set_ylabel(label)
    grid[-1, 0].set_xlabel("Time since the cell began (s)")
    grid[0, 0].set_xlim(left=0)
    note = "Line: median of a stretch of the run; band: its lowest to highest sample. " if bands else ""
    legends.legend(figure, list(lines), f"{note}The marker ends a run. {legends.NOT_FROM_ZERO}")
    return figure


def _line(ax: Axes, time_s: np.ndarray, values: np.ndarray, backend: str, model: str, bands: bool) -> None:
    colour = style.colour(model)
    if bands:
        found = spread(time_s, values)
        ax.fill_between(found["time_s"], found["low"], found["high"], color=colour, alpha=0.12, linewidth=0)
        time_s, values = found["time_s"].to_numpy(), found["mid"].to_numpy()
    else:
        time_s, values = thinned(time_s, values)
    ax.plot(time_s, values, color=colour, linestyle=style.line(backend), linewidth=1.0)
    # The model's marker where its line ends, so that lines can be told apart without colour.
    if len(values):
        ax.plot(
            time_s[-1], values[-1], marker=style.marker(model), color=colour, linestyle="", clip_on=False, zorder=5,
            markerfacecolor=style.face(backend, colour),
        )  # fmt: skip


def frame(lines: dict[tuple[str, str], pd.DataFrame], name: str) -> pd.DataFrame:
    """The data beside `over_run`: backend, model and, for each stretch of time, median, lowest and highest value."""
    parts = [
        spread(own["time_s"].to_numpy(), own[name].to_numpy(), STRETCHES).assign(backend=b, model=m)
        for (b, m), own in lines.items()
    ]
    return pd.concat(parts, ignore_index=True)[["backend", "model", "time_s", "mid", "low", "high"]]


def phases(samples: pd.DataFrame, requests: pd.DataFrame, names: dict[str, str], count: int = 4) -> Figure:
    """Columns of samples over the first `count` requests of one cell, a panel each, prefill and decode shaded.

    `names` maps a column to its axis title. The dashed lines are the means of the samples of a phase that are shown;
    where a value of 0 means idle (a clock), zeros are left out of the mean. The y range is that of the samples within
    requests: a GPU that idles between two of them would press the phases into one line.
    """
    shown = requests.sort_values("start_ns").head(count)
    origin_s, last_s = shown["start_ns"].iloc[0] / 1e9, shown["end_ns"].iloc[-1] / 1e9
    own = samples[samples["time_s"].between(origin_s, last_s)]
    middle_s = (own["time_s"] - own["elapsed_ms"] / 2000 - origin_s).to_numpy()
    cut = False
    figure, axes = plt.subplots(len(names), 1, figsize=(style.WIDTH, 1.9 * len(names) + 0.4), sharex=True)
    for ax, (name, label) in zip(np.atleast_1d(axes), names.items(), strict=True):
        _shade(ax, shown, origin_s)
        ax.plot(*thinned(middle_s, own[name].to_numpy(), 2 * STRETCHES), color=style.INK, linewidth=0.8)
        for phase, mean in means(own, name).items():
            ax.axhline(mean, color=style.PHASE_LINES[phase], linestyle=(0, (5, 3)), linewidth=1.6)
        ax.set(ylabel=label, xlim=(0, last_s - origin_s), ylim=_within(own, name))
        cut = cut or own[name].min() < ax.get_ylim()[0]
    np.atleast_1d(axes)[-1].set_xlabel("Time since the first request (s)")
    handles = [Patch(color=style.PHASE_COLOURS[p], alpha=0.35, label=p) for p in PHASES]
    handles += [Line2D([], [], color=style.PHASE_LINES[p], linestyle=(0, (5, 3)), label=f"mean in {p}") for p in PHASES]
    note = " Lower samples, as between requests, are cut off." if cut else ""
    legends.place_legend(figure, handles, f"{legends.NOT_FROM_ZERO}{note}")
    return figure


def _within(samples: pd.DataFrame, name: str) -> tuple[float, float]:
    """A y range that shows the samples of both phases, but for the lowest half percent."""
    used = _used(samples, name)
    inside = used.loc[used["phase"].isin(PHASES), name]
    low, high = (inside.quantile(0.005), inside.max()) if len(inside) else (0.0, 1.0)
    pad = max(0.1 * (high - low), 0.002 * abs(high))
    return low - pad, high + pad


def _used(samples: pd.DataFrame, name: str) -> pd.DataFrame:
    """Samples with a value; of a clock those above 0 MHz."""
    return samples[samples[name] > 0] if name.endswith("_freq_MHz") else samples[samples[name].notna()]


def means(samples: pd.DataFrame, name: str) -> dict[str, float]:
    """Mean of `name` in each phase that has samples; for a clock over the samples above 0 MHz."""
    used = _used(samples, name)
    return {p: float(own.mean()) for p in PHASES if len(own := used.loc[used["phase"] == p, name])}


def _shade(ax: Axes, requests: pd.DataFrame, origin_s: float) -> None:
    for request in requests.itertuples():
        begin = request.start_ns / 1e9 - origin_s
        edges = (begin, begin + request.ttft_ms / 1000, request.end_ns / 1e9 - origin_s)
        for phase, low, high in zip(PHASES, edges[:2], edges[1:], strict=True):
            ax.axvspan(low, high, color=style.PHASE_COLOURS[phase], alpha=0.35, linewidth=0)
