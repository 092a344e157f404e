"""Sentences from numbers: small pieces that computed text is made of. A sentence without its data is not said."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from IPython.display import Markdown, display

from lib import metrics, style
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


def listed(words: Iterable[str]) -> str:
    """Words as a person lists them: a, b and c."""
    words = list(words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def value(name: str, amount: float) -> str:
    """An amount with the decimals and unit of its metric: 63.73 tok/s."""
    metric = metrics.BY_NAME[name]
    return f"{number(float(amount), metric.digits)} {metric.unit}"


def plural(count: int, word: str) -> str:
    """1 cell, 2 cells."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def who(row: pd.Series) -> str:
    """Model and backend of a row."""
    return f"{escape(str(row['model']))} under {style.title(row['backend'])}"


def leader(cells: pd.DataFrame, name: str) -> pd.Series | None:
    """The row with the best value of `name`; None if no row has one."""
    known = cells[cells[name].notna()]
    if known.empty:
        return None
    low = metrics.BY_NAME[name].better == "low"
    return known.loc[known[name].idxmin() if low else known[name].idxmax()]


def leads(cells: pd.DataFrame, name: str, where: str) -> str:
    """Who leads on `name` among the rows, by how much, over whom. Empty with fewer than two rows that have a value."""
    known = cells[cells[name].notna()].sort_values(name, ascending=metrics.BY_NAME[name].better == "low")
    if len(known) < 2:
        return ""
    first, second = known.iloc[0], known.iloc[1]
    gap_pct = abs(100 * (first[name] / second[name] - 1)) if second[name] else float("nan")
    out = len(cells) - len(known)
    missing = f" {plural(out, 'model')} without a value {'is' if out == 1 else 'are'} not compared." if out else ""
    title, side = metrics.BY_NAME[name].title, "above" if first[name] > second[name] else "below"
    return (
        f"{title}: {who(first)} leads {where} with {value(name, first[name])}, "
        f"{number(gap_pct, 1)} % {side} {who(second)} ({value(name, second[name])}).{missing}"
    )


def trend(cells: pd.DataFrame, name: str) -> str:
    """How `name` moves with prompt length: lines that rise or fall at every step, counted. Empty with one length."""
    rising = falling = lines = 0
    for _, own in cells[cells[name].notna()].groupby(["backend", "model", "gen"]):
        steps = own.sort_values("ctx")[name].diff().dropna()
        if steps.empty:
            continue
        lines, rising, falling = lines + 1, rising + bool((steps > 0).all()), falling + bool((steps < 0).all())
    if not lines:
        return ""
    mixed = lines - rising - falling
    parts = [f"{falling} fall at every step" if falling else "", f"{rising} rise at every step" if rising else ""]
    parts.append(f"{mixed} do neither" if mixed else "")
    title = metrics.BY_NAME[name].title
    return f"{title} with prompt length: of {plural(lines, 'line')}, {listed(p for p in parts if p)}."
