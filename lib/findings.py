"""What a run's table of cells says as a whole: who leads where, what crosses, what is kept, what to recommend.

Every function takes the usable cells (a row a cell, published column names) and returns a frame; an empty frame means
that the run cannot answer. The sentences made of them stand in the notebooks and in `lib.prose`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import pandas as pd

from lib import formulas, metrics, stats, style

SERIES = ["backend", "model"]
CELL = ["ctx", "gen"]
PAIR = ("llama.cpp", "mlx-lm")
"""The two backends that are compared, in the order of a ratio's denominator and numerator."""
MISMATCH_PCT = 1.0
"""Cells whose output is further than this from the length asked, in percent, are marked as no like-for-like."""
TIE_PCT = 2.0
"""A lead below this, in percent, is called no lead."""


def is_low(name: str) -> bool:
    """Whether less of the metric `name` is better."""
    return metrics.BY_NAME[name].less_is_better


def better(name: str, one: float, other: float) -> bool:
    """Whether `one` is better than `other` by the metric `name`; False if either is missing."""
    return bool(one < other if is_low(name) else one > other)


def best_rows(cells: pd.DataFrame, name: str, by: list[str], largest: bool = False) -> pd.DataFrame:
    """The row with the best value of `name` in each group by `by`; with `largest` the highest, whatever is better."""
    known = cells[cells[name].notna()]
    grouped = known.groupby(by)[name]
    return known.loc[grouped.idxmin() if is_low(name) and not largest else grouped.idxmax()]


# --- along the prompt lengths ---


def retention(cells: pd.DataFrame) -> pd.DataFrame:
    """Output rate kept at the longest prompt, in percent of that at the shortest, at the longest generation (I.9).

    Columns: backend, model, gen, short_ctx, long_ctx, short_tok_s, long_tok_s, retention_pct; best first. A model
    without both ends has no row, and neither has any where the run has one prompt length.
    """
    if cells.empty or cells["ctx"].nunique() < 2:
        return pd.DataFrame(columns=[*SERIES, "retention_pct"])
    gen, ends = cells["gen"].max(), (cells["ctx"].min(), cells["ctx"].max())
    table = _by_prompt(cells[cells["gen"] == gen], "output_tok_s").reindex(columns=ends).dropna()
    rows = table.reset_index().set_axis([*SERIES, "short_tok_s", "long_tok_s"], axis=1)
    rows = rows.assign(gen=gen, short_ctx=ends[0], long_ctx=ends[1])
    rows["retention_pct"] = formulas.retention_pct(rows["long_tok_s"], rows["short_tok_s"])
    return rows.sort_values("retention_pct", ascending=False, ignore_index=True)


def _by_prompt(cells: pd.DataFrame, name: str) -> pd.DataFrame:
    return cells.pivot_table(index=SERIES, columns="ctx", values=name, aggfunc="first")


def crossovers(cells: pd.DataFrame, name: str) -> pd.DataFrame:
    """Where one model overtakes another as the prompt grows, under one backend at one generation length.

    Columns: backend, gen, overtaking, overtaken, low_ctx, high_ctx (the overtaking model is worse at low_ctx and
    better at high_ctx), low_gap_pct, high_gap_pct (its value against the other's, in percent). Lengths at which the
    two are closer than TIE_PCT, or at which their intervals overlap (columns <name>_low and <name>_high, if `cells`
    has them), are passed over: nobody leads there.
    """
    rows = [
        {"backend": backend, "gen": gen} | crossing
        for (backend, gen), own in cells.groupby(["backend", "gen"])
        for crossing in _crossings(own, name)
    ]
    names = ["backend", "gen", "overtaking", "overtaken", "low_ctx", "high_ctx", "low_gap_pct", "high_gap_pct"]
    return pd.DataFrame(rows, columns=names)


def _crossings(cells: pd.DataFrame, name: str) -> list[dict]:
    """Crossings between the lines of one backend and generation length."""
    table, found = _by_prompt(cells, name).droplevel("backend"), []
    known = [column for column in (f"{name}_low", f"{name}_high") if column in cells]
    ends = [_by_prompt(cells, column).droplevel("backend") for column in known]
    for one, other in combinations(style.in_order(list(table.index)), 2):
        gap_pct = (100 * (table.loc[one] / table.loc[other] - 1)).dropna()
        clear = gap_pct[(gap_pct.abs() >= TIE_PCT) & _apart(ends, one, other, gap_pct.index)]
        for (low, before), (high, after) in pairwise(clear.items()):
            if (before > 0) != (after > 0):
                up, down = (one, other) if (after > 0) != is_low(name) else (other, one)
                gaps = [100 * (table.at[up, c] / table.at[down, c] - 1) for c in (low, high)]
                found.append({
                    "overtaking": up, "overtaken": down, "low_ctx": low, "high_ctx": high,
                    "low_gap_pct": gaps[0], "high_gap_pct": gaps[1],
                })  # fmt: skip
    return found


def _apart(ends: list[pd.DataFrame], one: str, other: str, lengths: pd.Index) -> pd.Series:
    """At which prompt lengths the intervals of two models do not overlap; true where one is not known."""
    if len(ends) < 2:
        return pd.Series(True, lengths)
    (low, high) = (end.reindex(index=[one, other], columns=lengths) for end in ends)
    overlap = (low.loc[one] <= high.loc[other]) & (low.loc[other] <= high.loc[one])
    return ~overlap


def with_intervals(cells: pd.DataFrame, requests: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    """`cells` with the 95 % interval of each median over requests: <name>_low and <name>_high.

    `columns` maps a metric to the column of `requests`. NaN with fewer than two requests.
    """
    sent = requests[(requests["phase"] == "profiling") & requests["error"].isna()]
    groups = dict(list(sent.groupby([*SERIES, *CELL])))
    places, none = list(cells[[*SERIES, *CELL]].itertuples(index=False, name=None)), sent.head(0)
    for name, column in columns.items():
        found = [stats.median_ci(groups.get(place, none)[column], 2000) for place in places]
        cells = cells.assign(**{f"{name}_low": [low for low, _ in found], f"{name}_high": [high for _, high in found]})
    return cells


def peaks(cells: pd.DataFrame, name: str) -> pd.DataFrame:
    """At which prompt length each line is best and worst: backend, model, gen, best_ctx, worst_ctx, inside.

    `inside` says that the best lies at neither end. Lines that lack a prompt length, or have fewer than three, have no
    row: where their end is missing nobody knows whether the best was there.
    """
    rows, lengths = [], cells["ctx"].nunique()
    for (backend, model, gen), own in cells[cells[name].notna()].groupby([*SERIES, "gen"]):
        line = own.set_index("ctx")[name].sort_index()
        if len(line) > 2 and len(line) == lengths:
            best, worst = (line.idxmin(), line.idxmax()) if is_low(name) else (line.idxmax(), line.idxmin())
            inside = line.index[0] < best < line.index[-1]
            rows.append((backend, model, gen, best, worst, inside))
    return pd.DataFrame(rows, columns=[*SERIES, "gen", "best_ctx", "worst_ctx", "inside"])


def gen_spread_pct(cells: pd.DataFrame, name: str) -> pd.DataFrame:
    """How far `name` moves with generation length at one prompt length: 100 (max - min) / median, in percent.

    Columns: backend, model, ctx, spread_pct; only where there are two generation lengths or more.
    """
    grouped = cells[cells[name].notna()].groupby([*SERIES, "ctx"])[name]
    several = grouped.count() > 1
    spread = 100 * (grouped.max() - grouped.min()) / grouped.median()
    return spread[several].rename("spread_pct").reset_index()


def shared_medians(cells: pd.DataFrame, name: str, backend: str) -> tuple[pd.Series, int]:
    """Median of `name` by model under one backend over the cells that every model there has, and how many those are.

    Medians over different cells compare cells, not models. Models without a value are left out.
    """
    own = cells[(cells["backend"] == backend) & cells[name].notna()]
    table = own.pivot_table(index="model", columns=CELL, values=name, aggfunc="first").dropna(axis=1)
    return table.median(axis=1), table.shape[1]


def leaders(cells: pd.DataFrame, name: str) -> pd.DataFrame:
    """Who is best at each prompt length, by backend and generation length: backend, gen, ctx, model, value."""
    rows = best_rows(cells, name, ["backend", "gen", "ctx"])
    return rows[["backend", "gen", "ctx", "model", name]].rename(columns={name: "value"}).reset_index(drop=True)


# --- backend against backend ---


def shared(cells: pd.DataFrame) -> list[str]:
    """Models with usable cells under both backends, in the fixed order."""
    served = cells.groupby("model")["backend"].agg(set)
    return style.in_order([model for model, seen in served.items() if set(PAIR) <= seen])


def head_to_head(cells: pd.DataFrame, name: str) -> pd.DataFrame:
    """The cells that both backends have: model, ctx, gen, llama.cpp, mlx-lm and ratio = MLX-LM / llama.cpp."""
    known = cells[cells[name].notna()]
    table = known.pivot_table(index=["model", *CELL], columns="backend", values=name, aggfunc="first")
    table = table.reindex(columns=list(PAIR)).dropna().reset_index()
    table.columns.name = None
    return table.assign(ratio=table[PAIR[1]] / table[PAIR[0]])


def wins(head: pd.DataFrame, name: str) -> pd.DataFrame:
    """Cells that each backend wins, by model: model, cells, llama.cpp, mlx-lm; from a `head_to_head` frame."""
    if head.empty:
        return pd.DataFrame(columns=["model", "cells", *PAIR])
    won = (head["ratio"] < 1) if is_low(name) else (head["ratio"] > 1)
    grouped = head.assign(mlx=won, llama=(head["ratio"] != 1) & ~won).groupby("model")
    table = grouped.agg(cells=("ratio", "size"), **{PAIR[0]: ("llama", "sum"), PAIR[1]: ("mlx", "sum")}).reset_index()
    return table.set_index("model").loc[style.in_order(list(table["model"]))].reset_index()


def winners(table: pd.DataFrame) -> set[str]:
    """Backends that win more cells than the other for at least one model, from a `wins` frame."""
    apart = table[table[PAIR[0]] != table[PAIR[1]]]
    return {PAIR[0] if row[PAIR[0]] > row[PAIR[1]] else PAIR[1] for _, row in apart.iterrows()}


def ratio_intervals(requests: pd.DataFrame, head: pd.DataFrame, name: str) -> pd.DataFrame:
    """`head` with the 95 % bootstrap interval of each ratio of medians (low, high), from the single requests.

    `name` is the column of `requests`. NaN where a side has fewer than two requests.
    """
    sent = requests[(requests["phase"] == "profiling") & requests["error"].isna()]
    values = {key: own[name].to_numpy(float) for key, own in sent.groupby([*SERIES, *CELL])}
    none = np.array([])

    def interval(row: pd.Series) -> tuple[float, float]:
        place = (row["model"], row["ctx"], row["gen"])
        return stats.ratio_ci(*(values.get((backend, *place), none) for backend in reversed(PAIR)), n_resamples=2000)

    ends = [interval(row) for _, row in head.iterrows()]
    return head.assign(low=[low for low, _ in ends], high=[high for _, high in ends])


# --- what to use ---


@dataclass(frozen=True)
class UseCase:
    """A row of the table of recommendations: who is best by `metric` over the cells that `prompts` names.

    `prompts` is short (the shorter half of the prompt lengths), long (the longest) or all; `worst` compares each
    candidate's worst cell, not the mean of its cells.
    """

    title: str
    metric: str
    prompts: str
    rule: str
    worst: bool = False


USE_CASES = (
    UseCase("Short prompts, speed", "output_tok_s", "short", "highest output rate"),
    UseCase("Short prompts, whole answer soonest", "asked_s", "short", "shortest latency at the length asked"),
    UseCase("Long documents, writing speed", "output_tok_s", "long", "highest output rate"),
    UseCase("Long documents, whole answer soonest", "asked_s", "long", "shortest latency at the length asked"),
    UseCase("Energy or battery", "asked_J", "all", "least energy at the length asked"),
    UseCase("Smallest memory", "peak_ram_MB", "all", "smallest peak memory in the worst cell", worst=True),
)


def of_the_length_asked(cells: pd.DataFrame) -> pd.DataFrame:
    """`cells` with asked_s and asked_J: latency and energy of an answer of the length asked, at the measured pace.

    They equal request latency and energy where the output has that length, and compare those that ended early fairly.
    """
    asked_s = (cells["ttft_ms"] + (cells["gen"] - 1) * cells["itl_ms"]) / 1000
    return cells.assign(asked_s=asked_s, asked_J=cells["prefill_J"] + cells["gen"] * cells["mJ_per_output_tok"] / 1000)


def recommendations(cells: pd.DataFrame) -> pd.DataFrame:
    """Best backend and model for each use case, over the cells that all its candidates have.

    Columns: use_case, rule, metric, cells (how many were compared), candidates, backend, model, score, next_backend,
    next_model, margin_pct (how much better the winner is, in percent of the runner-up), left_out ((backend, model)
    pairs with too few comparable cells), contested_by (those of them that beat the winner over the cells they share
    with it: then the table cannot recommend). The score is the geometric mean over the cells compared (or the worst
    cell's value). A use case without candidates has no row; one with a single candidate has no runner-up.
    """
    cells = of_the_length_asked(cells)
    return pd.DataFrame([row for case in USE_CASES if (row := _recommend(cells, case))])


def _recommend(cells: pd.DataFrame, case: UseCase) -> dict | None:
    table = _candidates(cells, case)
    scores, count = _scores(table, case)
    if scores.empty:
        return None
    (backend, model), score = scores.index[0], scores.iloc[0]
    left_out = [pair for pair in cells.groupby(SERIES).groups if pair not in scores.index]
    row = {
        "use_case": case.title, "rule": case.rule, "metric": case.metric, "cells": count, "candidates": len(scores),
        "backend": backend, "model": model, "score": score,
        "next_backend": "", "next_model": "", "margin_pct": float("nan"),
        "left_out": left_out,
        "contested_by": [pair for pair in left_out if _beats(table, pair, scores.index[0], case.metric)],
    }  # fmt: skip
    if len(scores) > 1:
        row |= dict(zip(("next_backend", "next_model"), scores.index[1], strict=True))
        row["margin_pct"] = 100 * abs(score / scores.iloc[1] - 1)
    return row


def _beats(table: pd.DataFrame, pair: tuple[str, str], winner: tuple[str, str], name: str) -> bool:
    """Whether `pair` is better than `winner` over the cells that the two share; False if they share none."""
    if pair not in table.index:
        return False
    both = table.loc[[pair, winner]].dropna(axis=1)
    mine, best = np.log(both).mean(axis=1)
    return better(name, mine, best)


def _candidates(cells: pd.DataFrame, case: UseCase) -> pd.DataFrame:
    """The cells of a use case that have a value, a column a cell, a row a backend and model."""
    known = cells[cells[case.metric].notna()]
    lengths = sorted(cells["ctx"].unique())
    wanted = {"short": lengths[: -(-len(lengths) // 2)], "long": lengths[-1:], "all": lengths}[case.prompts]
    known = known[known["ctx"].isin(wanted)]
    return known.pivot_table(index=SERIES, columns=CELL, values=case.metric, aggfunc="first")


def _scores(table: pd.DataFrame, case: UseCase) -> tuple[pd.Series, int]:
    """Score of each candidate, best first, and how many cells it stands on: those that every candidate has.

    A candidate with less than half of the cells would shrink the comparison for all, and is left out.
    """
    table = table[table.notna().sum(axis=1) * 2 >= table.shape[1]].dropna(axis=1)
    if table.shape[1] == 0:
        return pd.Series(dtype=float), 0
    low = is_low(case.metric)
    worst = table.max(axis=1) if low else table.min(axis=1)
    scores = worst if case.worst else np.exp(np.log(table).mean(axis=1))
    return scores.sort_values(ascending=low), table.shape[1]


# --- over the requests of a cell ---


def slowdown_pct(requests: pd.DataFrame) -> pd.DataFrame:
    """How much slower decode was in the last third of a cell's requests than in the first, in percent (by median ITL).

    Columns: backend, model, ctx, gen, slowdown_pct; cells of fewer than six requests say nothing and have no row.
    """
    sent = requests[(requests["phase"] == "profiling") & requests["error"].isna()].sort_values("start_ns")
    rows = []
    for key, own in sent.groupby([*SERIES, *CELL]):
        third = len(own) // 3
        if third > 1:
            first, last = own["itl_ms"].head(third).median(), own["itl_ms"].tail(third).median()
            rows.append((*key, 100 * (last / first - 1)))
    return pd.DataFrame(rows, columns=[*SERIES, *CELL, "slowdown_pct"])


def cost_ratio(cells: pd.DataFrame) -> pd.Series:
    """How many times the energy of an input token an output token takes, by cell; cells without power are left out."""
    known = cells[cells["output_tok_J"].notna() & cells["prefill_tok_J"].notna()]
    return known["prefill_tok_J"] / known["output_tok_J"]
