"""What the appendix's figures say, in sentences: power by phase, tails of latency, generation and output length."""

from __future__ import annotations

import pandas as pd

from lib import stats, style
from lib.counts import of_all
from lib.prose import between, listed, number, plural
from lib.tables import escape

OFF_PCT = 5.0
"""An output further from the length asked than this, in percent, is named."""


def phase_gap(cells: pd.DataFrame) -> list[str]:
    """Prefill power against decode power: counted, and the median gap at the shortest and the longest prompt."""
    known = cells.dropna(subset=["prefill_power_W", "decode_power_W"])
    if known.empty:
        return []
    gap_W = known["prefill_power_W"] - known["decode_power_W"]
    more = int((gap_W > 0).sum())
    where = of_all(more, len(known), "cell")
    by_ctx = gap_W.groupby(known["ctx"]).median().sort_index()
    parts = [f"{by_ctx[c]:+.1f} W at prompt {c}" for c in dict.fromkeys((by_ctx.index[0], by_ctx.index[-1]))]
    return [
        f"Prefill draws more power than decode in {where}; prefill minus decode is {' and '.join(parts)} in the median."
    ]


def tails(cells: pd.DataFrame) -> list[str]:
    """How far p99 of request latency lies above the median, and what a p99 of so few requests is; of cells with two."""
    known = cells.dropna(subset=["rl_ms", "rl_p99_ms"])
    known = known[known["n"] > 1]
    if known.empty:
        return []
    ratio = known["rl_p99_ms"] / known["rl_ms"]
    widest = known.loc[ratio.idxmax()]
    who = f"{escape(widest['model'])} under {style.title(widest['backend'])}"
    last = f", the widest for {who}" if len(known) > 1 else ""
    said = [f"p99 of request latency is {between(ratio, 3, 'times')} the median{last}."]
    few = known[[stats.p99_is_max(int(n)) for n in known["n"]]]
    if len(few):
        counts = between(few["n"], 0, "requests")
        said.append(
            f"With {counts} a cell, p99 lies between the two slowest of them: it is close to the maximum and no tail."
        )
    return said


def by_gen(cells: pd.DataFrame, name: str) -> pd.DataFrame:
    """Median of `name` over prompt lengths, by backend, model and gen: only over the lengths that every gen has.

    Otherwise a cell that is missing or void at one generation length (a warm-up) would pass for an effect of it.
    """
    known, parts = cells.dropna(subset=[name]), []
    for (backend, model), own in known.groupby(["backend", "model"]):
        whole = own.groupby("ctx")["gen"].nunique() == own["gen"].nunique()
        used = own[own["ctx"].isin(whole.index[whole])]
        table = used.groupby("gen")[name].median().reset_index()
        parts.append(table.assign(backend=backend, model=model, prompts=int(whole.sum())))
    columns = ["backend", "model", "gen", name, "prompts"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def gen_effect(table: pd.DataFrame, name: str) -> str:
    """How the shortest and the longest generation compare, from `by_gen`: counted, with the range of the change."""
    wide = table.pivot_table(index=["backend", "model"], columns="gen", values=name, aggfunc="first")
    if wide.shape[1] < 2:
        return ""
    short, long = wide.columns[0], wide.columns[-1]
    change_pct = (100 * (wide[long] / wide[short] - 1)).dropna()
    if change_pct.empty:
        return ""
    more = int((change_pct > 0).sum())
    return (
        f"From gen {short} to gen {long} the median rises for {more} of {plural(len(change_pct), 'line')} of model and "
        f"backend; the change is {change_pct.min():+.1f} to {change_pct.max():+.1f} %."
    )


def output_lengths(cells: pd.DataFrame) -> list[str]:
    """A sentence a backend on the length of outputs against the length asked; models far off are named with ranges."""
    known = cells.dropna(subset=["osl_mismatch_pct"])
    return [_lengths(known[known["backend"] == b], b) for b in style.backends_in_order(list(known["backend"]))]


def _lengths(cells: pd.DataFrame, backend: str) -> str:
    off = cells[cells["osl_mismatch_pct"].abs() > OFF_PCT]
    rest = cells.loc[cells["osl_mismatch_pct"].abs() <= OFF_PCT, "osl_mismatch_pct"]
    within = f"within {number(rest.abs().max(), 1)} % of" if rest.abs().max() >= 0.05 else "at"
    count = of_all(len(rest), len(cells), "cell")
    inside = f"the outputs of {count} are {within} the length asked" if len(rest) else ""
    parts = [
        f"{escape(model)} is off by {listed(_far(part, gen) for gen, part in own.groupby('gen'))}"
        for model in style.in_order(list(off["model"])) if len(own := off[off["model"] == model])
    ]  # fmt: skip
    return f"Under {style.title(backend)}, {'; '.join(p for p in (inside, *parts) if p)}."


def _far(cells: pd.DataFrame, gen: int) -> str:
    values = cells["osl_mismatch_pct"]
    low, high = f"{values.min():+.1f}", f"{values.max():+.1f}"
    span = f"{low} %" if low == high else f"{low} to {high} %"
    return f"{span} at gen {gen} ({plural(len(values), 'cell')})"
