"""Sentences from numbers: small pieces that computed text is made of. A sentence without its data is not said."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from IPython.display import Markdown, display

from lib import findings, metrics, style
from lib.findings import TIE_PCT
from lib.tables import escape, number


def say(*sentences: str) -> None:
    """Show the sentences that have something to say as one paragraph; nothing at all if none has."""
    said = [s for s in sentences if s]
    if said:
        display(Markdown(" ".join(said)))


def points(*sentences: str) -> None:
    """Show the sentences that have something to say as a list."""
    said = [f"- {s}" for s in sentences if s]
    if said:
        display(Markdown("\n".join(said)))


def heading(text: str) -> None:
    """A bold line that opens a list, for parts that need no place in the contents."""
    display(Markdown(f"**{text}**"))


def listed(words: Iterable[str]) -> str:
    """Words as a person lists them: a, b and c."""
    words = list(words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


LONG_MS = 10_000
"""From here on a sentence says seconds instead of milliseconds."""


def value(name: str, amount: float) -> str:
    """An amount with the decimals and unit of its metric: 63.73 tok/s; many milliseconds as seconds."""
    metric = metrics.BY_NAME[name]
    if metric.unit == "ms" and amount >= LONG_MS:
        return f"{number(float(amount) / 1000, 1)} s"
    return f"{number(float(amount), metric.digits)} {metric.unit}"


def plural(count: int, word: str, several: str = "") -> str:
    """1 cell, 2 cells; `several` where an s alone does not make the plural."""
    return f"{count} {word}" if count == 1 else f"{count} {several or word + 's'}"


def who(row: pd.Series) -> str:
    """Model and backend of a row."""
    return f"{escape(str(row['model']))} under {style.title(row['backend'])}"


def leader(cells: pd.DataFrame, name: str) -> pd.Series | None:
    """The row with the best value of `name`; None if no row has one."""
    known = cells[cells[name].notna()]
    if known.empty:
        return None
    return known.loc[known[name].idxmin() if metrics.BY_NAME[name].less_is_better else known[name].idxmax()]


def leads(cells: pd.DataFrame, name: str, where: str) -> str:
    """Who leads on `name` among the rows, by how much, over whom, and whether that is more than chance.

    Chance is told from <name>_low and <name>_high where the rows have them. Empty with fewer than two rows that have a
    value.
    """
    known = cells[cells[name].notna()].sort_values(name, ascending=metrics.BY_NAME[name].less_is_better)
    if len(known) < 2:
        return ""
    first, second = known.iloc[0], known.iloc[1]
    gap_pct = abs(100 * (first[name] / second[name] - 1)) if second[name] else float("nan")
    out = len(cells) - len(known)
    missing = f" {plural(out, 'model')} without a value {'is' if out == 1 else 'are'} not compared." if out else ""
    title, side = metrics.BY_NAME[name].title, "above" if first[name] > second[name] else "below"
    return (
        f"{title}: {who(first)} leads {where} with {value(name, first[name])}, "
        f"{number(gap_pct, 1)} % {side} {who(second)} ({value(name, second[name])}){_by_chance(first, second, name)}."
        f"{missing}"
    )


def _by_chance(first: pd.Series, second: pd.Series, name: str) -> str:
    """Says that a lead may be chance: the 95 % intervals of the two medians overlap."""
    low, high = f"{name}_low", f"{name}_high"
    if low not in first or pd.isna(first[low]) or pd.isna(second[low]):
        return ""
    overlap = first[low] <= second[high] and second[low] <= first[high]
    return "; their 95 % intervals overlap, so this may be chance" if overlap else ""


def trend(cells: pd.DataFrame, name: str) -> str:
    """How `name` moves with prompt length: lines that rise or fall at every step, counted. Empty with one length."""
    lengths = cells["ctx"].nunique()
    every = " at every step" if lengths > 2 else ""
    rising = falling = level = lines = partial = 0
    for _, own in cells[cells[name].notna()].groupby(["backend", "model", "gen"]):
        steps = own.sort_values("ctx")[name].diff().dropna()
        if len(own) < lengths or steps.empty:  # a line without an end would count as one that never turns there
            partial += len(own) < lengths
            continue
        lines, level = lines + 1, level + bool((steps == 0).all())
        rising, falling = rising + bool((steps > 0).all()), falling + bool((steps < 0).all())
    if not lines:
        return ""
    mixed = lines - rising - falling - level
    parts = [f"{falling} {'falls' if falling == 1 else 'fall'}{every}" if falling else ""]
    parts.append(f"{rising} {'rises' if rising == 1 else 'rise'}{every}" if rising else "")
    parts.append(f"{level} {'stays' if level == 1 else 'stay'} level" if level else "")
    parts.append(f"{mixed} {'goes' if mixed == 1 else 'go'} up and down" if mixed else "")
    title = metrics.BY_NAME[name].title
    rest = f" {plural(partial, 'line')} without every length {_is(partial)} not counted." if partial else ""
    return f"{title} with prompt length: of {plural(lines, 'line')}, {listed(p for p in parts if p)}.{rest}"


def overtaking(row: pd.Series | object) -> str:
    """One crossing of `findings.crossovers`: who overtakes whom, between which prompt lengths."""
    return (
        f"{escape(row.overtaking)} overtakes {escape(row.overtaken)} between prompt {row.low_ctx} and {row.high_ctx} "
        f"(from {number(abs(row.low_gap_pct), 1)} % behind to {number(abs(row.high_gap_pct), 1)} % ahead)"
    )


def crossings(found: pd.DataFrame, backend: str, gen: int) -> str:
    """Every crossing under one backend at one generation length; says so if there is none."""
    own = found[(found["backend"] == backend) & (found["gen"] == gen)]
    where = f"Under {style.title(backend)} at gen {gen}"
    if own.empty:
        return f"{where} no model clearly overtakes another as the prompt grows."
    return f"{where}, {listed(overtaking(row) for row in own.itertuples())}."


def between(values: pd.Series, digits: int, unit: str) -> str:
    """Smallest to largest of `values`: 34.1 to 112.6 s; one number if both print the same."""
    low, high = (number(float(v), digits) for v in (values.min(), values.max()))
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def span(values: pd.Series, name: str) -> str:
    """`between` with the decimals and the unit of the metric `name`; many milliseconds as seconds."""
    if metrics.BY_NAME[name].unit == "ms" and values.max() >= LONG_MS:
        return between(values / 1000, 1, "s")
    return between(values, metrics.BY_NAME[name].digits, metrics.BY_NAME[name].unit)


def verdict(table: pd.DataFrame, name: str) -> str:
    """Which backend wins how many shared cells of each model, from `findings.wins`. Empty without a shared cell."""
    if table.empty:
        return ""
    parts = [_won(row) for _, row in table.iterrows()]
    return f"{metrics.BY_NAME[name].title}, of the cells that both backends have: {'; '.join(parts)}."


def _won(row: pd.Series) -> str:
    backend = max(("llama.cpp", "mlx-lm"), key=lambda b: row[b])
    which = "all" if row[backend] == row["cells"] else str(row[backend])
    if row["llama.cpp"] == row["mlx-lm"]:
        return f"{escape(row['model'])} is split evenly over {plural(row['cells'], 'cell')}"
    return f"{escape(row['model'])} is ahead under {style.title(backend)} in {which} of {row['cells']}"


def by_context(cells: pd.DataFrame, leaders: pd.DataFrame, crossed: pd.DataFrame, backend: str) -> str:
    """Whether one model is fastest at every prompt length under `backend`, at the longest generation, or who gives way.

    `leaders` and `crossed` are `findings.leaders` and `findings.crossovers` by output rate. Empty with fewer than two
    models or prompt lengths.
    """
    own = cells[cells["backend"] == backend]
    line = leaders[(leaders["backend"] == backend) & (leaders["gen"] == own["gen"].max())].sort_values("ctx")
    if len(line) < 2 or own["model"].nunique() < 2:
        return ""
    first, last, where = line.iloc[0], line.iloc[-1], f"Under {style.title(backend)} at gen {line['gen'].iloc[0]}"
    if line["model"].nunique() == 1:
        return f"{where}, {escape(first['model'])} is the fastest model at every prompt length."
    if first["model"] == last["model"]:
        return f"{where}, {escape(first['model'])} is fastest at both ends of the sweep, not at every length between."
    if not gives_way(crossed, first, last):
        return (
            f"{where}, {escape(first['model'])} leads at {first['ctx']} tokens and {escape(last['model'])} at "
            f"{last['ctx']}, but one of these leads is below {TIE_PCT:g} %: neither clearly gives way."
        )
    end = own[(own["model"] == first["model"]) & (own["ctx"] == last["ctx"]) & (own["gen"] == last["gen"])]
    left = f"{100 * end['output_tok_s'].iloc[0] / first['value']:.1f} %"
    return (
        f"{where}, the fastest model depends on the prompt: {escape(first['model'])} leads at {first['ctx']} with "
        f"{value('output_tok_s', first['value'])} and keeps {left} of that at {last['ctx']}, where "
        f"{escape(last['model'])} leads with {value('output_tok_s', last['value'])}."
    )


def gives_way(crossed: pd.DataFrame, first: pd.Series, last: pd.Series) -> bool:
    """Whether the leader at the longest prompt clearly overtook the leader at the shortest (rows of one line)."""
    same = (crossed["backend"] == last["backend"]) & (crossed["gen"] == last["gen"])
    return bool((same & (crossed["overtaking"] == last["model"]) & (crossed["overtaken"] == first["model"])).any())


def why_efficient(cells: pd.DataFrame, where: str) -> str:
    """Why the leader in tokens per joule leads: by rate, by power, or by both, against the leader in rate or the next.

    `cells` are one backend's cells of one length. Empty with fewer than two that have power.
    """
    known = cells[cells["output_tok_J"].notna()].sort_values("output_tok_J", ascending=False)
    if len(known) < 2:
        return ""
    first, other = known.iloc[0], known.iloc[1]
    faster, cooler = first["output_tok_s"] > other["output_tok_s"], first["decode_power_W"] < other["decode_power_W"]
    rate, power = (
        f"{value(name, first[name])} against {value(name, other[name])}" for name in ("output_tok_s", "decode_power_W")
    )
    how = {
        (True, True): f"it is faster ({rate}) and draws less power in decode ({power})",
        (True, False): f"it is faster ({rate}), though not at less power in decode ({power})",
        (False, True): f"it draws less power in decode ({power}), which outweighs its rate ({rate})",
    }.get((faster, cooler), "")
    return f"{who(first)} is more efficient than {escape(str(other['model']))} {where} because {how}." if how else ""


def peaking(found: pd.DataFrame, name: str) -> str:
    """Where the lines of `findings.peaks` are best and worst: inside the sweep or at an end. Empty without a line."""
    if found.empty:
        return ""
    inside, worst = found[found["inside"]], found["worst_ctx"].mode().iloc[0]
    best = "no line is best inside the sweep"
    if len(inside):
        share = f"{plural(len(inside), 'line')} of {len(found)} {_is(len(inside))}"
        best = f"{share} best inside the sweep, at a prompt of {between(inside['best_ctx'], 0, 'tokens')}"
    last = int((found["worst_ctx"] == worst).sum())
    return f"{metrics.BY_NAME[name].title}: {best}; {last} {_is(last)} worst at {worst} tokens."


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def of_medians(cells: pd.DataFrame, names: list[str], backend: str) -> str:
    """Who leads each metric by the median over the cells that all models under `backend` have.

    A lead below TIE_PCT is none. Empty with fewer than two models or without a common cell.
    """
    parts = [said for name in names if (said := _first_by_median(*findings.shared_medians(cells, name, backend), name))]
    where = f"Medians under {style.title(backend)} over the cells that all models have"
    return f"{where}: {'; '.join(parts)}." if parts else ""


def _first_by_median(medians: pd.Series, count: int, name: str) -> str:
    if len(medians) < 2 or not count:
        return ""
    ranked = medians.sort_values(ascending=metrics.BY_NAME[name].less_is_better)
    title, (first, second) = metrics.BY_NAME[name].title, ranked.iloc[:2]
    if abs(100 * (first / second - 1)) < TIE_PCT:
        return f"{title}: {escape(ranked.index[0])} and {escape(ranked.index[1])} within {TIE_PCT:g} %"
    return f"{title}: {escape(ranked.index[0])} first ({value(name, first)}, {plural(count, 'cell')})"
