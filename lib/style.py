"""Colour, line, hatch and order of every series, and the look of every figure. Nothing about looks stands elsewhere."""

from __future__ import annotations

import zlib

import matplotlib as mpl
import matplotlib.style

from lib import models

# Okabe and Ito's eight colours, apart for the common kinds of colour blindness: the six darkest are the models', yellow
# and sky blue, which a line on white could not use, are the phases'. No colour means both.
_OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P")
# Models that are not in the table of models: one of these, by their name.
_STRANGERS = (("#8C8C8C", "X"), ("#7F4F24", "<"), ("#5E548E", ">"))
BACKENDS = ("llama.cpp", "mlx-lm", "ollama", "mlx-vlm")
BACKEND_TITLES = {"llama.cpp": "llama.cpp", "mlx-lm": "MLX-LM", "ollama": "Ollama", "mlx-vlm": "MLX-VLM"}
_LINES = {"llama.cpp": "-", "mlx-lm": "--", "ollama": "-.", "mlx-vlm": ":"}
_HATCHES = {"llama.cpp": "", "mlx-lm": "////", "ollama": "....", "mlx-vlm": "xxxx"}
PHASE_COLOURS = {"prefill": "#F0E442", "decode": "#56B4E9", "between": "#BBBBBB"}
# Lines of a phase on white: the same hues, darker.
PHASE_LINES = {"prefill": "#8A7F00", "decode": "#1F6E9C"}
INK, SOFT = "#333333", "#777777"
"""Text and outlines; what may stand back: notes, cells behind a value."""
WIDTH = 7.6
"""Width of every figure, inches: at half a page its letters are still as high as those of a footnote."""


_FULL = [model.name for model in models.MODELS if not model.tiny]


def _place(name: str) -> int:
    """Place of a model, or of the full model that a tiny one stands for, in the one table of models."""
    model = models.find(name)
    return _FULL.index(model.base or name) if model else len(_FULL)


def _look(name: str) -> tuple[str, str]:
    place = _place(name)
    if place < len(_FULL):
        return _OKABE_ITO[place % len(_OKABE_ITO)], _MARKERS[place % len(_MARKERS)]
    return _STRANGERS[zlib.crc32(name.encode()) % len(_STRANGERS)]


def colour(model: str) -> str:
    """Colour of a model: the same in every figure, and for a tiny model that of the model it stands for."""
    return _look(model)[0]


def marker(model: str) -> str:
    """Marker of a model, so that lines can be told apart in print."""
    return _look(model)[1]


def line(backend: str) -> str:
    """Line style of a backend: llama.cpp solid, MLX-LM dashed."""
    return _LINES.get(backend, ":")


def hatch(backend: str) -> str:
    """Hatch of a backend's bars: llama.cpp plain, MLX-LM hatched."""
    return _HATCHES.get(backend, "")


def face(backend: str, colour: str) -> str:
    """Fill of a marker: llama.cpp's are filled with `colour`, those of other backends hollow."""
    return "white" if hatch(backend) else colour


def title(backend: str) -> str:
    """Name of a backend as a person writes it."""
    return BACKEND_TITLES.get(backend, backend)


def label(model: str) -> str:
    """Name of a model with its total and active parameters; just the name if it is not in the table of models."""
    return models.label(model) if models.find(model) else model


def two_lines(model: str) -> str:
    """The label of a model with its parameters below the name, for axes where room is short."""
    return label(model).replace(" (", "\n(")


def in_order(names: list[str]) -> list[str]:
    """Models in the table's order; unknown ones last, by name."""
    return sorted(set(names), key=lambda name: (_place(name), name))


def backends_in_order(names: list[str]) -> list[str]:
    """Backends in the fixed order; unknown ones last, by name."""
    return sorted(set(names), key=lambda b: (BACKENDS.index(b) if b in BACKENDS else len(BACKENDS), b))


def use() -> None:
    """Set the look of every figure made afterwards: white ground, readable at half width, same file each time."""
    # matplotlib's copy of seaborn's theme: importing seaborn itself takes two seconds, so only notebooks that draw
    # with it do
    mpl.style.use("seaborn-v0_8-whitegrid")
    mpl.rcParams.update({
        "font.family": "DejaVu Sans", "figure.facecolor": "white", "savefig.facecolor": "white",
        "figure.dpi": 100, "savefig.bbox": "tight",
        "font.size": 10, "axes.titlesize": 10, "axes.labelsize": 10, "xtick.labelsize": 9, "ytick.labelsize": 9,
        "legend.fontsize": 9.5, "lines.linewidth": 1.5, "lines.markersize": 4.5, "lines.markeredgewidth": 1.2,
        "hatch.linewidth": 0.8,
        "grid.color": "#DDDDDD", "axes.edgecolor": "#666666", "svg.hashsalt": "tinymoe", "svg.fonttype": "path",
    })  # fmt: skip
