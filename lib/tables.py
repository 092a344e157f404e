"""Tables as Markdown: units in the headings, numbers to the right, a dash where a value is missing."""

from __future__ import annotations

import html
import math
import re

import pandas as pd
from IPython.display import Markdown, display

from lib import metrics, registry, style

DASH = "–"
_NUMBER = re.compile(rf"[-+]?\d+(\.\d+)?|{DASH}")
_TITLES = {
    "backend": "Backend", "model": "Model", "ctx": "Prompt (tokens)", "gen": "Gen (tokens)", "n": "n", "state": "State",
    "reason": "Reason", "cells": "Cells",
}  # fmt: skip


def show(item_id: str, frame: pd.DataFrame, note: str = "", empty: str = "nothing to list") -> None:
    """Show `frame` under its number and caption, with a note below. An empty frame says `empty` instead of both."""
    item = registry.get(item_id)
    body = markdown(frame) if len(frame) else f"*{empty}.*"
    below = f"*{note}*" if note and len(frame) else ""
    parts = [f'<a id="{item.id}"></a>', f"**{item.name}.** {item.caption}", body, below]
    display(Markdown("\n\n".join(p for p in parts if p)))


def markdown(frame: pd.DataFrame) -> str:
    """The frame as a Markdown table. Columns named like metrics get their title, unit and decimals."""
    names = [str(c) for c in frame.columns]
    right = [pd.api.types.is_numeric_dtype(frame[c]) or _all_numbers(frame[c]) for c in frame.columns]
    head = [escape(_title(n)) for n in names]
    rule = ["---:" if r else "---" for r in right]
    rows = [
        [_text(name, value) for name, value in zip(names, row, strict=True)] for row in frame.itertuples(index=False)
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def _all_numbers(column: pd.Series) -> bool:
    """Whether a column of text holds numbers that were formatted before, and dashes."""
    return all(isinstance(value, str) and _NUMBER.fullmatch(value) for value in column)


def _title(name: str) -> str:
    return metrics.heading(name) if name in metrics.BY_NAME else _TITLES.get(name, name)


def _text(name: str, value: object) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return DASH
    if name == "backend":
        return escape(style.title(str(value)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value, metrics.BY_NAME[name].digits if name in metrics.BY_NAME else 2)
    return escape(str(value)) or DASH


def number(value: float, digits: int = 2) -> str:
    """A number with fixed decimals, a dash if it is missing."""
    return DASH if math.isnan(value) else f"{value:.{digits}f}"


def escape(text: str) -> str:
    """Text from outside, harmless in a Markdown table and in HTML: no tags, cell breaks, line breaks or links."""
    safe = html.escape(" ".join(text.split()), quote=False)
    return safe.replace("|", "&#124;").replace("[", "&#91;").replace("`", "&#96;")
