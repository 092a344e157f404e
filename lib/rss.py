"""Resident memory of a server: over one cell's run, between its requests, and along the prompt lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from lib import findings, rates, style
from lib.counts import of_all
from lib.prose import between, listed, number, plural
from lib.tables import escape

INTERVAL_S = 0.05
"""Asked distance of two samples, s: what the older rss.log, which has no times, is laid out by."""
PLATEAU_PCT = 2.0
"""Peak RSS counts as level while it is within this much of its maximum."""
SAWTOOTH_PCT = 1.0
"""A server lets memory go between requests if RSS falls by more than this share of its peak."""


def series(folder: Path) -> pd.DataFrame:
    """RSS over a cell's run: time_s (since the first sample), at_ns (epoch; NaN where the file has no times), rss_MB.

    Empty if the cell has no file or no sample.
    """
    path = next((folder / name for name in rates.RSS_NAMES if (folder / name).exists()), None)
    read = rates.read_rss(path) if path else pd.DataFrame({"rss_kb": []})
    if not len(read):
        return pd.DataFrame(columns=["time_s", "at_ns", "rss_MB"], dtype=float)
    if "time_ns" in read:
        at_ns = read["time_ns"].to_numpy()
        return pd.DataFrame({"time_s": (at_ns - at_ns[0]) / 1e9, "at_ns": at_ns, "rss_MB": read["rss_kb"] / 1024})
    return pd.DataFrame({"time_s": INTERVAL_S * np.arange(len(read)), "at_ns": np.nan, "rss_MB": read["rss_kb"] / 1024})


def why_missing(cells: pd.DataFrame) -> str:
    """Why no cell has a peak RSS; empty if one has."""
    if cells.empty:
        return "no cell was measured"
    if cells["peak_ram_MB"].notna().any():
        return ""
    reasons = [reason for reason in cells["memory_reason"] if isinstance(reason, str) and reason]
    return reasons[0] if reasons else "no cell has a peak RSS"


def drop_MB(memory: pd.DataFrame, requests: pd.DataFrame) -> float:
    """How far RSS falls between requests, MB: the median over gaps of the level in decode before it minus the lowest
    sample from the request's end to the next one's first token.

    `memory` is a `series`, `requests` the cell's requests (start_ns, ttft_ms, end_ns). NaN without two requests or
    without times; a server that only grows has 0.
    """
    sent = requests.sort_values("start_ns")
    at_ns, rss_MB = memory["at_ns"].to_numpy(dtype=float), memory["rss_MB"].to_numpy()
    first_ns = (sent["start_ns"] + 1e6 * sent["ttft_ms"]).to_numpy(dtype=float)
    end_ns = sent["end_ns"].to_numpy(dtype=float)
    drops = []
    for now, end, following in zip(first_ns[:-1], end_ns[:-1], first_ns[1:], strict=True):
        level, gap = rss_MB[(at_ns >= now) & (at_ns < end)], rss_MB[(at_ns >= end) & (at_ns < following)]
        if len(level) and len(gap):
            drops.append(max(0.0, float(np.median(level) - gap.min())))
    return float(np.median(drops)) if drops else float("nan")


def sawtooth(drops: pd.DataFrame) -> list[str]:
    """A sentence a backend: which servers let memory go between requests and by how much, and which stay level.

    `drops` has backend, model, drop_MB and peak_ram_MB.
    """
    said, known = [], drops.dropna(subset=["drop_MB", "peak_ram_MB"])
    for backend in style.backends_in_order(list(known["backend"])):
        own = known[known["backend"] == backend]
        falls = own["drop_MB"] > SAWTOOTH_PCT / 100 * own["peak_ram_MB"]
        parts = [f"{escape(r.model)} by {number(r.drop_MB, 0)} MB" for r in own[falls].itertuples()]
        level = [escape(m) for m in own.loc[~falls, "model"]]
        text = f"RSS falls between requests for {listed(parts)}" if parts else ""
        rest = f"{listed(level)} {'stays' if len(level) == 1 else 'stay'} level" if level else ""
        said.append(f"Under {style.title(backend)}, {'; '.join(p for p in (text, rest) if p)}.")
    return said


def plateau(cells: pd.DataFrame) -> pd.DataFrame:
    """From which prompt length on peak RSS stays within PLATEAU_PCT of its maximum, and at which that maximum lies.

    Columns: backend, model, from_ctx (NaN if the longest prompt is further below it), max_ctx, first_ctx, last_ctx; of
    the largest value over generation lengths at each prompt length. Lines of one prompt length have no row.
    """
    rows = []
    for (backend, model), own in cells.dropna(subset=["peak_ram_MB"]).groupby(["backend", "model"]):
        line = own.groupby("ctx")["peak_ram_MB"].max().sort_index()
        low = line.index[line < (1 - PLATEAU_PCT / 100) * line.max()]
        level = line.index if low.empty else line.index[line.index > low[-1]]
        if len(line) > 1:
            start = float(level[0]) if len(level) else float("nan")
            rows.append((backend, model, start, line.idxmax(), line.index[0], line.index[-1]))
    return pd.DataFrame(rows, columns=["backend", "model", "from_ctx", "max_ctx", "first_ctx", "last_ctx"])


def plateaus(cells: pd.DataFrame) -> list[str]:
    """A sentence a backend: where growth ends, or that the largest peak is one that does not last."""
    table = plateau(cells)
    within = f"within {PLATEAU_PCT:g} % of its maximum"
    return [
        f"Under {style.title(backend)}, peak RSS is {within} {'; '.join(_ends(table[table['backend'] == backend]))}."
        for backend in style.backends_in_order(list(table["backend"]))
    ]


def _ends(lines: pd.DataFrame) -> list[str]:
    start = lines["from_ctx"]
    flat, late, lost = start == lines["first_ctx"], start == lines["last_ctx"], start.isna()
    kinds = {"at every prompt length for": flat}
    kinds |= {
        f"from prompt {c:.0f} on for": (start == c) & ~flat & ~late
        for c in sorted(start[~flat & ~late & ~lost].unique())
    }
    kinds |= {"only at the longest prompt for": late & ~flat}
    kinds |= {
        f"at prompt {c}, but not from any longer one on, for": lost & (lines["max_ctx"] == c)
        for c in sorted(lines.loc[lost, "max_ctx"].unique())
    }
    return [f"{words} {_models(lines.loc[mask, 'model'], len(lines))}" for words, mask in kinds.items() if mask.any()]


def _models(names: pd.Series, count: int) -> str:
    """Models by name; "every model" if these are all of several."""
    if len(names) == count > 1:
        return "every model"
    return listed(map(escape, style.in_order(list(names))))


def lower_backend(cells: pd.DataFrame, ctx: int, gen: int) -> str:
    """Whether one backend's peak RSS is the lower in every cell that both have, and by how much at one cell."""
    head = findings.head_to_head(cells, "peak_ram_MB")
    if head.empty:
        return ""
    llama, mlx = findings.PAIR
    lower = int((head["ratio"] < 1).sum())
    one, few = (mlx, lower) if lower >= len(head) / 2 else (llama, int((head["ratio"] > 1).sum()))
    other = llama if one == mlx else mlx
    if not few:
        return f"Peak RSS is the same under both backends in {of_all(len(head), len(head), 'cell')} that both have."
    at = head[(head["ctx"] == ctx) & (head["gen"] == gen)]
    at = at.assign(less_pct=100 * (1 - at[one] / at[other]))
    at = at[at["less_pct"] > 0].set_index("model")
    parts = [
        f"{escape(m)} {at.at[m, one]:.0f} against {at.at[m, other]:.0f} MB" for m in style.in_order(list(at.index))
    ]
    where = of_all(few, len(head), "cell")
    here = f" At prompt {ctx}, gen {gen} by {between(at['less_pct'], 1, '%')}: {listed(parts)}." if parts else ""
    return f"{style.title(one)}'s peak RSS is below {style.title(other)}'s in {where} that both have.{here}"


def headroom(cells: pd.DataFrame, memory_bytes: float | None) -> str:
    """The largest peak RSS, and what it leaves of the machine's memory where that is known."""
    known = cells.dropna(subset=["peak_ram_MB"])
    if known.empty:
        return ""
    row = known.loc[known["peak_ram_MB"].idxmax()]
    cell = f"{escape(row['model'])} under {style.title(row['backend'])} at prompt {row['ctx']}, gen {row['gen']}"
    text = f"The largest peak RSS of {plural(len(known), 'cell')} is {row['peak_ram_MB']:.0f} MB, {cell}"
    if not memory_bytes:
        return f"{text}."
    left_MB = memory_bytes / 2**20 - row["peak_ram_MB"]
    return f"{text}; it leaves {left_MB / 1024:.1f} of the machine's {memory_bytes / 2**30:.0f} GB to everything else."
