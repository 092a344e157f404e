"""Figures from a notebook to the report: saved with the data behind them, shown with number and caption."""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import Markdown, display
from matplotlib.figure import Figure

from lib import registry
from lib.paths import FIGURES, NOTEBOOKS


def folder(run: str) -> Path:
    """Where the figures of a run are."""
    return FIGURES / run


def show(run: str, item_id: str, figure: Figure, data: pd.DataFrame, seen: str = "") -> None:
    """Save `figure` as SVG and `data` as CSV under figures/<run>/, then show it with anchor, number and caption.

    `seen` says in words what this run's figure shows; it is added to the alternative text.
    """
    item = registry.get(item_id)
    target = folder(run) / f"{item.stem}.svg"
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    data.to_csv(target.with_suffix(".csv"), index=False, float_format="%.6g")
    alt = " ".join(part for part in (f"{item.alt}.", seen) if part)
    link = os.path.relpath(target, NOTEBOOKS)
    _display(
        item, f"![{_escape(alt)}]({link})\n\n**{item.name}.** {item.caption}. [Data]({Path(link).with_suffix('.csv')})"
    )


def missing(item_id: str, reason: str) -> None:
    """Say in the figure's place why there is none."""
    item = registry.get(item_id)
    _display(item, f"**{item.name}.** {item.caption}: *not available: {reason}.*")


def _display(item: registry.Item, text: str) -> None:
    display(Markdown(f'<a id="{item.id}"></a>\n\n{text}'))


def _escape(text: str) -> str:
    """Square brackets would end a Markdown image's text."""
    return text.replace("[", "(").replace("]", ")").replace("\n", " ")
