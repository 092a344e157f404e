"""Legends below figures, outside the data: a colour for each model, a line, fill or hatch for each backend, a note."""

from __future__ import annotations

import textwrap

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lib import style

NOT_FROM_ZERO = "The y axes show the measured band only; they do not start at 0."
# Letters of a line of a note.
_NOTE_LETTERS = 96


def legend(figure: Figure, pairs: list[tuple[str, str]], note: str = "") -> None:
    """Legend below the panels: a colour and marker for each model, a line style and fill for each backend."""
    names, backends = style.in_order([m for _, m in pairs]), style.backends_in_order([b for b, _ in pairs])
    handles = [Line2D([], [], color=style.colour(m), marker=style.marker(m), label=style.label(m)) for m in names]
    place_legend(figure, [*handles, *(backend_handle(b) for b in backends)], note)


def backend_handle(backend: str) -> Line2D:
    """Line of a backend in a legend, which says how its markers are filled."""
    fill = "hollow" if style.hatch(backend) else "filled"
    return Line2D(
        [], [], color=style.INK, linestyle=style.line(backend), marker="o",
        markerfacecolor=style.face(backend, style.INK), label=f"{style.title(backend)} ({fill})",
    )  # fmt: skip


def hatch_handle(backend: str) -> Patch:
    """Bar of a backend in a legend."""
    return Patch(facecolor="#999999", edgecolor="white", hatch=style.hatch(backend), label=style.title(backend))


def place_legend(figure: Figure, handles: list, note: str = "") -> None:
    """Lay the panels out, put a legend of `handles` below them in as many columns as fit, and `note` under it."""
    figure.tight_layout(pad=0.6, w_pad=1.0)
    for columns in range(min(5, len(handles)), 0, -1):
        box = figure.legend(
            handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=columns, frameon=False,
            handlelength=2.6, columnspacing=1.4, borderaxespad=0.2,
        )  # fmt: skip
        extent = box.get_window_extent()
        if extent.width <= figure.bbox.width:
            break
        box.remove()
    if note:
        below = min(0.0, extent.y0 / figure.bbox.height) if handles else 0.0
        text = textwrap.fill(note, _NOTE_LETTERS)
        figure.text(0.5, below, text, ha="center", va="top", fontsize=9, color=style.INK)
