"""What the CPU clusters' clocks and residencies say, in sentences. A sentence without its data is ""."""

from __future__ import annotations

import pandas as pd

from lib import findings, style
from lib.counts import of_all
from lib.prose import between, plural, span

IDLE_PCT = 5.0
"""A cluster that is active for less of the time than this, in percent, is called near idle."""
STEP_PCT = 5.0
"""A clock that leaves its run's median by more than this, in percent, has stepped."""


def near_idle(cells: pd.DataFrame) -> str:
    """In how many cells the efficiency cores are near idle, and how far the others go."""
    known = cells.dropna(subset=["e_active_pct"])
    if known.empty:
        return ""
    busy = known.loc[known["e_active_pct"] >= IDLE_PCT, "e_active_pct"]
    if len(busy) == len(known):
        return f"E-cluster residency is {between(busy, 1, '%')}: in no cell below {IDLE_PCT:g} %."
    share = of_all(len(known) - len(busy), len(known), "cell")
    rest = f"; in the others it is {between(busy, 1, '%')}" if len(busy) else ""
    return f"E-cluster residency is below {IDLE_PCT:g} % in {share}{rest}."


def busier(cells: pd.DataFrame) -> str:
    """Which cluster is the busier, counted over cells."""
    known = cells.dropna(subset=["e_active_pct", "p_active_pct"])
    if known.empty:
        return ""
    more = int((known["p_active_pct"] > known["e_active_pct"]).sum())
    return f"The P-cluster is the busier one in {of_all(more, len(known), 'cell')}."


def by_length(cells: pd.DataFrame) -> str:
    """Range of P-cluster residency at the shortest and at the longest prompt, and whether every line rises."""
    known = cells.dropna(subset=["p_active_pct"])
    if known.empty:
        return ""
    lengths = sorted(known["ctx"].unique())
    parts = [
        f"{span(known.loc[known['ctx'] == ctx, 'p_active_pct'], 'p_active_pct')} at prompt {ctx}"
        for ctx in dict.fromkeys((lengths[0], lengths[-1]))
    ]
    return f"P-cluster residency is {' and '.join(parts)}."


def saturated(cells: pd.DataFrame) -> str:
    """How busy the P-cluster and the GPU are at the longest prompt, over the whole cell."""
    known = cells.dropna(subset=["p_active_pct", "gpu_active_pct"])
    if known.empty:
        return ""
    ctx = known["ctx"].max()
    own = known[known["ctx"] == ctx]
    cluster, gpu = span(own["p_active_pct"], "p_active_pct"), span(own["gpu_active_pct"], "gpu_active_pct")
    return f"At prompt {ctx} the P-cluster is active for {cluster} of the time, the GPU for {gpu}."


def clock_spread(cells: pd.DataFrame) -> str:
    """Lowest and highest P-cluster clock of any cell, and the largest difference between its phases."""
    known = cells["p_freq_MHz"].dropna()
    if known.empty:
        return ""
    spread_pct = 100 * (known.max() / known.min() - 1)
    what = f"The mean P-cluster clock is {span(known, 'p_freq_MHz')} over {plural(len(known), 'cell')}, "
    phases = [f"p_{phase}_freq_MHz" for phase in ("prefill", "decode")]
    apart = (cells[phases[1]] - cells[phases[0]]).abs().max() if set(phases) <= set(cells) else float("nan")
    text = f"{what}a spread of {spread_pct:.1f} %"
    return f"{text}; prefill and decode are at most {apart:.0f} MHz apart." if apart == apart else f"{text}."


def backends(cells: pd.DataFrame) -> str:
    """The P-cluster clock of one backend against the other's, over the cells that both have."""
    head = findings.head_to_head(cells, "p_freq_MHz")
    if head.empty:
        return ""
    llama, mlx = findings.PAIR
    apart = head[mlx] - head[llama]
    middle = round(apart.median())
    how = f"{'higher' if middle > 0 else 'lower'} by {abs(middle)} MHz" if middle else "the same"
    return (
        f"Over the {plural(len(head), 'cell')} that both have, {style.title(mlx)}'s P-cluster clock is {how} in the "
        f"median (from {apart.min():+.0f} to {apart.max():+.0f} MHz)."
    )


def canonical(cells: pd.DataFrame) -> str:
    """Ranges of both clusters' residency and of the P-cluster's clock over the canonical cells."""
    known = cells.dropna(subset=["e_active_pct", "p_active_pct"])
    if known.empty:
        return ""
    ranges = [f"{span(known[name], name)}" for name in ("e_active_pct", "p_active_pct")]
    clocks = [
        f"{span(own['p_freq_MHz'].dropna(), 'p_freq_MHz')} under {style.title(backend)}"
        for backend in style.backends_in_order(list(known["backend"]))
        if len(own := known[known["backend"] == backend].dropna(subset=["p_freq_MHz"]))
    ]
    text = f"At the canonical cell E-cluster residency is {ranges[0]} and P-cluster residency {ranges[1]}"
    return f"{text}; the P-cluster's clock is {' and '.join(clocks)}." if clocks else f"{text}."


def steps(lines: dict[tuple[str, str], pd.DataFrame]) -> str:
    """Whether the P-cluster's clock leaves its own median during the canonical runs.

    `lines` maps (backend, model) to a frame of samples with p_freq_MHz and phase.
    """
    parts, medians = [], []
    for samples in lines.values():
        clock = samples.loc[samples["p_freq_MHz"] > 0, "p_freq_MHz"]
        if len(clock):
            medians.append(clock.median())
            parts.append(100 * (clock / medians[-1] - 1))
    if not parts:
        return ""
    off_pct = pd.concat(parts)
    away = 100 * (off_pct.abs() > STEP_PCT).mean()
    text = f"Over these runs the median clock is {between(pd.Series(medians), 0, 'MHz')}"
    if not away:
        return f"{text}; no sample of any run is more than {STEP_PCT:g} % away from its run's median."
    return f"{text}; {away:.2g} % of the samples are more than {STEP_PCT:g} % away from their run's median."
