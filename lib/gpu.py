"""What the GPU's clock and residency say: states of the clock, prefill against decode, in numbers and sentences.

`cells` has a row a usable cell with backend, model, ctx, gen and the gpu_ columns; a sentence without its data is "".
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from lib import findings, style, traces
from lib.counts import of_all
from lib.prose import between, listed, number
from lib.tables import escape

# Width of a bin of the clock's histogram, MHz, and the bins over which it is smoothed.
_BIN_MHZ, _SMOOTH = 4.0, np.array([1.0, 2.0, 3.0, 2.0, 1.0]) / 9
# Two peaks are two states if the lower is at least this share of the higher, and the valley between at most this share
# of the lower.
_PEAK_SHARE, _VALLEY_SHARE = 0.15, 0.5
# Samples within _NEAR_MHZ of a state belong to it; _NEAR_SHARE of all must belong to one of the two.
_NEAR_MHZ, _NEAR_SHARE = 15.0, 0.8
# Fewer active samples than this say nothing of states.
_ENOUGH = 100
HAND_OFF_S = 0.5
"""A clock's peak this near to the first token, s, comes at the hand-off from prefill to decode."""
CLOCKS = ["gpu_prefill_freq_MHz", "gpu_decode_freq_MHz"]
RESIDENCIES = ["gpu_prefill_active_pct", "gpu_decode_active_pct"]


def states(clock_MHz: pd.Series | np.ndarray, weights: np.ndarray | None = None) -> tuple[float, float] | tuple[()]:
    """The two clocks (MHz, lower first) about which the active samples gather; empty if there are not just two.

    The published account of two states is a finding about one chip. Here it must show in the histogram: two peaks, a
    valley between them, and nearly all of the samples near one of the two. `weights`: see `even`.
    """
    values = np.asarray(clock_MHz, dtype=float)
    weights = np.ones(len(values)) if weights is None else np.asarray(weights)
    values, weights = values[values > 0], weights[values > 0]
    if len(values) < _ENOUGH or np.ptp(values) < 4 * _BIN_MHZ:
        return ()
    edges = np.arange(values.min() - 5 * _BIN_MHZ, values.max() + 6 * _BIN_MHZ, _BIN_MHZ)
    counts = np.convolve(np.histogram(values, edges, weights=weights)[0], _SMOOTH, mode="same")
    first = int(np.argmax(counts))
    found = [second for second in _peaks(counts) if second != first and _apart(counts, first, second)]
    if not found:
        return ()
    second = max(found, key=lambda place: counts[place])
    low, high = sorted((first, second))
    split_MHz = edges[low + int(np.argmin(counts[low : high + 1]))] + _BIN_MHZ / 2
    two = float(np.median(values[values < split_MHz])), float(np.median(values[values >= split_MHz]))
    near = np.minimum(*(np.abs(values - state) for state in two)) <= _NEAR_MHZ
    return two if weights[near].sum() >= _NEAR_SHARE * weights.sum() else ()


def even(samples: pd.DataFrame) -> np.ndarray:
    """Weights that give each cell's phase the same say: a long prompt has a hundred times the samples of a short one.

    `samples` has phase and whatever of backend, model, ctx and gen tells its cells apart.
    """
    keys = [key for key in ("backend", "model", "ctx", "gen", "phase") if key in samples]
    return (1 / samples.groupby(keys, observed=True)["phase"].transform("size")).to_numpy()


def _peaks(counts: np.ndarray) -> list[int]:
    inner = (counts[1:-1] >= counts[:-2]) & (counts[1:-1] > counts[2:])
    return [int(place) + 1 for place in np.flatnonzero(inner)]


def _apart(counts: np.ndarray, one: int, other: int) -> bool:
    low, high = sorted((one, other))
    lower = min(counts[one], counts[other])
    return lower >= _PEAK_SHARE * max(counts[one], counts[other]) and counts[low:high].min() <= _VALLEY_SHARE * lower


def gaps(cells: pd.DataFrame) -> pd.DataFrame:
    """Cells with both clocks, with `gap_MHz`: decode clock minus prefill clock."""
    known = cells.dropna(subset=CLOCKS)
    return known.assign(gap_MHz=known[CLOCKS[1]] - known[CLOCKS[0]])


def higher(cells: pd.DataFrame) -> str:
    """In how many cells decode runs at the higher clock."""
    gap_MHz = gaps(cells)["gap_MHz"]
    if gap_MHz.empty:
        return ""
    count = int((gap_MHz > 0).sum())
    return f"The mean GPU clock is higher in decode than in prefill in {of_all(count, len(gap_MHz), 'cell')}."


def by_length(cells: pd.DataFrame) -> list[str]:
    """A sentence a backend: decode clock minus prefill clock at the shortest and at the longest prompt."""
    said, known = [], gaps(cells)
    for backend in style.backends_in_order(list(known["backend"])):
        own = known[known["backend"] == backend]
        ends = {c: own.loc[own["ctx"] == c, "gap_MHz"] for c in (own["ctx"].min(), own["ctx"].max())}
        parts = [f"{_signed(gap_MHz)} at prompt {c}" for c, gap_MHz in ends.items()]
        grows = "" if len(ends) < 2 else _grows(*(gap_MHz.median() for gap_MHz in ends.values()))
        said.append(f"Under {style.title(backend)}, decode clock minus prefill clock is {' and '.join(parts)}{grows}.")
    return said


def _signed(values: pd.Series) -> str:
    low, high = f"{values.min():+.0f}", f"{values.max():+.0f}"
    return f"{low} MHz" if low == high else f"{low} to {high} MHz"


def _grows(short_MHz: float, long_MHz: float) -> str:
    if f"{short_MHz:+.0f}" == f"{long_MHz:+.0f}":
        return ""
    word = "wider" if abs(long_MHz) > abs(short_MHz) else "narrower"
    return f": in the median {word} at the longest prompt ({long_MHz:+.0f} against {short_MHz:+.0f} MHz)"


def ceiling(at_canonical: pd.DataFrame, peak_MHz: float) -> str:
    """The highest clock of any sample and how near the canonical cells' means come to it."""
    means = at_canonical[CLOCKS].stack().dropna() if len(at_canonical) else pd.Series(dtype=float)
    if means.empty or not peak_MHz > 0:
        return ""
    below_pct = 100 * (1 - means / peak_MHz)
    return (
        f"The highest clock of any sample is {peak_MHz:.0f} MHz; the canonical cells' means, of either phase, are "
        f"{number(below_pct.min(), 1)} to {number(below_pct.max(), 1)} % below it."
    )


def crossover(cells: pd.DataFrame) -> str:
    """From which prompt length on prefill is the more resident phase, in the median over all cells of a length."""
    known = cells.dropna(subset=RESIDENCIES)
    lead = (known[RESIDENCIES[0]] - known[RESIDENCIES[1]]).groupby(known["ctx"]).median().sort_index()
    if lead.empty:
        return ""
    start = "In the median over cells, GPU residency is higher in"
    ends = f" ({lead.iloc[0]:+.2f} points at prompt {lead.index[0]}, {lead.iloc[-1]:+.2f} at {lead.index[-1]})"
    ends = ends if len(lead) > 1 else ""
    if (lead > 0).all() or (lead < 0).all():
        phase, other = ("prefill", "decode") if lead.iloc[0] > 0 else ("decode", "prefill")
        return f"{start} {phase} than in {other} at every prompt length{ends}."
    behind = lead[lead <= 0]
    if behind.index[-1] < lead.index[-1] and (lead[lead.index <= behind.index[-1]] <= 0).all():
        first = lead.index[lead.index > behind.index[-1]][0]
        return f"{start} decode up to prompt {behind.index[-1]} and in prefill from prompt {first} on{ends}."
    which = listed(str(c) for c in lead.index[lead > 0])
    if not which:
        return f"In the median over cells, GPU residency in prefill is at no prompt length above decode's{ends}."
    return f"{start} prefill at {which} tokens only: there is no one crossover{ends}."


def backends(cells: pd.DataFrame, ctx: int, gen: int) -> list[str]:
    """Residency of one backend against the other's, over the cells that both have: in decode by model, in prefill."""
    prefill, decode = (findings.head_to_head(cells, name) for name in RESIDENCIES)
    if decode.empty:
        return []
    llama, mlx = findings.PAIR
    apart = (decode[mlx] - decode[llama]).groupby(decode["model"]).median()
    parts = [f"{apart[m]:+.1f} points for {escape(m)}" for m in style.in_order(list(apart.index))]
    below = of_all(int((decode[mlx] < decode[llama]).sum()), len(decode), "cell")
    said = [
        f"In decode, GPU residency is lower under {style.title(mlx)} in {below} that both have; "
        f"{style.title(mlx)} minus {style.title(llama)} is {listed(parts)} in the median."
    ]
    at = decode[(decode["ctx"] == ctx) & (decode["gen"] == gen)]
    if len(at):
        here = [f"{between(at[b], 1, '%')} under {style.title(b)}" for b in (mlx, llama)]
        said.append(f"At prompt {ctx}, gen {gen} residency in decode is {' and '.join(here)}, same models.")
    if len(prefill):
        gap = (prefill[mlx] - prefill[llama]).median()
        said.append(f"In prefill the same difference is {gap:+.1f} points over all models.")
    return said


def cycles(cells: pd.DataFrame) -> pd.DataFrame:
    """Energy per GPU cycle of each phase, nJ: backend, model, prefill_nJ, decode_nJ, for cells with power and clock."""
    needed = [*CLOCKS, "prefill_power_W", "decode_power_W"]
    known = cells.dropna(subset=needed)
    table = known[["backend", "model"]].copy()
    for phase in ("prefill", "decode"):
        table[f"{phase}_nJ"] = 1000 * known[f"{phase}_power_W"] / known[f"gpu_{phase}_freq_MHz"]
    return table


def cycle_cost(table: pd.DataFrame) -> str:
    """What a cycle costs in either phase, from `cycles`."""
    if table.empty:
        return ""
    ratio = table["prefill_nJ"] / table["decode_nJ"]
    count = int((ratio > 1).sum())
    where = of_all(count, len(ratio), "canonical cell")
    prefill, decode = (between(table[f"{phase}_nJ"], 1, "nJ") for phase in ("prefill", "decode"))
    times = between(ratio, 2, "times decode's")
    return f"A GPU cycle goes with {prefill} in prefill and {decode} in decode: more in prefill in {where}, {times}."


def gathered(samples: pd.DataFrame) -> str:
    """Whether the clock has two states, and how much of each phase is in the upper one.

    `samples` has phase and gpu_freq_MHz.
    """
    active = samples[(samples["gpu_freq_MHz"] > 0) & samples["phase"].isin(("prefill", "decode"))]
    if len(active) < _ENOUGH:
        return ""
    found = states(active["gpu_freq_MHz"], even(active))
    if not found:
        low, high = active["gpu_freq_MHz"].quantile([0.01, 0.99])
        band = f"98 % of the active samples are at {low:.0f} to {high:.0f} MHz"
        return f"The clock does not gather about two states; {band}."
    upper = active["gpu_freq_MHz"] > sum(found) / 2
    share = {p: 100 * upper[active["phase"] == p].mean() for p in ("prefill", "decode") if (active["phase"] == p).any()}
    parts = [f"{value:.0f} % of the samples in {phase}" for phase, value in share.items()]
    two = f"{found[0]:.0f} and {found[1]:.0f} MHz"
    away = _strays(active, found)
    return f"The clock gathers about two states, {two}; nearer to the upper are {listed(parts)}.{away}"


def _strays(active: pd.DataFrame, found: tuple[float, float]) -> str:
    """In which phase and at which prompt lengths most samples are near neither state."""
    near = sum((active["gpu_freq_MHz"] - state).abs() <= _NEAR_MHZ for state in found) > 0
    if "ctx" not in active:
        return ""
    share = (100 * (1 - near)).groupby([active["phase"], active["ctx"]]).mean()
    away = share[share > 50]
    parts = [f"{escape(str(phase))} at prompt {ctx} ({value:.0f} %)" for (phase, ctx), value in away.items()]
    return f" Most samples are near neither in {listed(parts)}." if parts else ""


def ramp(samples: pd.DataFrame, requests: pd.DataFrame) -> str:
    """Whether the clock moves within prefill: medians of its first and last quarter, over the requests of one cell."""
    first_ns = requests["start_ns"] + 1e6 * requests["ttft_ms"]
    begin_s, length_s = requests["start_ns"].to_numpy() / 1e9, (first_ns - requests["start_ns"]).to_numpy() / 1e9
    own = samples[(samples["phase"] == "prefill") & (samples["gpu_freq_MHz"] > 0)]
    place = np.searchsorted(begin_s, own["time_s"].to_numpy(), side="right") - 1
    kept = place >= 0
    share = (own["time_s"].to_numpy()[kept] - begin_s[place[kept]]) / length_s[place[kept]]
    clock = own["gpu_freq_MHz"].to_numpy()[kept]
    ends = [clock[share <= 0.25], clock[share >= 0.75]]
    if min(map(len, ends)) < 10:
        return ""
    early, late = map(np.median, ends)
    if f"{early:.0f}" == f"{late:.0f}":
        return f"Within prefill the clock does not move: first and last quarter have the same median, {early:.0f} MHz."
    return (
        f"Within prefill the median clock goes from {early:.0f} MHz in the first quarter to {late:.0f} MHz in the last."
    )


def phase_means(samples: pd.DataFrame) -> str:
    """Mean clock and residency in both phases of one cell, and the largest clock."""
    found = {name: traces.means(samples, name) for name in ("gpu_freq_MHz", "gpu_active_pct")}
    if any(len(means) < 2 for means in found.values()):
        return ""
    clock, active = found.values()
    highest = samples["gpu_freq_MHz"].max()
    return (
        f"On average the clock is {clock['prefill']:.0f} MHz in prefill and {clock['decode']:.0f} MHz in decode, "
        f"at most {highest:.0f} MHz; residency {active['prefill']:.1f} and {active['decode']:.1f} %."
    )


def between_requests(samples: pd.DataFrame) -> str:
    """Where residency is lowest: between requests or within a phase."""
    lowest = samples.groupby("phase", observed=True)["gpu_active_pct"].min().dropna()
    lowest = lowest[lowest.index.isin(("prefill", "decode", "between"))]
    if len(lowest) < 2:
        return ""
    where = {"between": "between two requests"}.get(lowest.idxmin(), f"in {lowest.idxmin()}")
    inside = lowest[lowest.index != "between"].min()
    rest = f" (within a request not below {inside:.1f} %)" if lowest.idxmin() == "between" else ""
    return f"The sample with the lowest residency, {lowest.min():.1f} %, lies {where}{rest}."


def band(cells: pd.DataFrame) -> str:
    """How narrow the band of mean clocks is beside the spread of output rates."""
    known = cells.dropna(subset=["gpu_decode_freq_MHz", "output_tok_s"])
    if len(known) < 2:
        return ""
    clock, rate = known["gpu_decode_freq_MHz"], known["output_tok_s"]
    factors = [number(values.max() / values.min()) for values in (clock, rate)]
    what = f"Mean clocks in decode are {between(clock, 0, 'MHz')}, a factor of {factors[0]}"
    return f"{what}; output rates span a factor of {factors[1]}."


def hand_off(samples: pd.DataFrame, requests: pd.DataFrame) -> str:
    """In how many requests of one cell the highest clock comes at the hand-off from prefill to decode."""
    time_s, clock = samples["time_s"].to_numpy(), samples["gpu_freq_MHz"].to_numpy()
    near = count = 0
    for request in requests.itertuples():
        own = (time_s >= request.start_ns / 1e9) & (time_s <= request.end_ns / 1e9) & (clock > 0)
        if own.sum() < 10 or np.ptp(clock[own]) == 0:
            continue
        first_token_s = request.start_ns / 1e9 + request.ttft_ms / 1000
        highest_s = time_s[own][clock[own] == clock[own].max()]
        count, near = count + 1, near + bool(np.abs(highest_s - first_token_s).min() <= HAND_OFF_S)
    if not count:
        return ""
    where = of_all(near, count, "request")
    return f"The highest clock of a request comes within {HAND_OFF_S:g} s of its first token in {where}."
