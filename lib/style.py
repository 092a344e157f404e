"""Colour, line, hatch and order of every series, and the look of every figure. Nothing about looks stands elsewhere."""

from __future__ import annotations

import matplotlib as mpl
import matplotlib.style

from lib import models

# Okabe and Ito's palette, dark enough on white and apart for the common kinds of colour blindness; one for each model.
_OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
BACKENDS = ("llama.cpp", "mlx-lm", "ollama", "mlx-vlm")
BACKEND_TITLES = {"llama.cpp": "llama.cpp", "mlx-lm": "MLX-LM", "ollama": "Ollama", "mlx-vlm": "MLX-VLM"}
_LINES = {"llama.cpp": "-", "mlx-lm": "--", "ollama": "-.", "mlx-vlm": ":"}
_HATCHES = {"llama.cpp": "", "mlx-lm": "////", "ollama": "....", "mlx-vlm": "xxxx"}
PHASE_COLOURS = {"prefill": "#E69F00", "decode": "#56B4E9", "between": "#BBBBBB"}


_FULL = [model.name for model in models.MODELS if not model.tiny]


def _place(name: str) -> int:
    """Place of a model, or of the full model that a tiny one stands for, in the one table of models."""
    model = models.find(name)
    return _FULL.index(model.base or name) if model else len(_FULL)


def colour(model: str) -> str:
    """Colour of a model: the same in every figure, and for a tiny model that of the model it stands for."""
    return _OKABE_ITO[_place(model) % len(_OKABE_ITO)]


def marker(model: str) -> str:
    """Marker of a model, so that lines can be told apart in print."""
    return _MARKERS[_place(model) % len(_MARKERS)]


def line(backend: str) -> str:
    """Line style of a backend: llama.cpp solid, MLX-LM dashed."""
    return _LINES.get(backend, ":")


def hatch(backend: str) -> str:
    """Hatch of a backend's bars: llama.cpp plain, MLX-LM hatched."""
    return _HATCHES.get(backend, "")


def title(backend: str) -> str:
    """Name of a backend as a person writes it."""
    return BACKEND_TITLES.get(backend, backend)


def label(model: str) -> str:
    """Name of a model with its total and active parameters; just the name if it is not in the table of models."""
    return models.label(model) if models.find(model) else model


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
        "axes.titlesize": 12, "axes.labelsize": 11, "xtick.labelsize": 10, "ytick.labelsize": 10,
        "legend.fontsize": 10, "lines.linewidth": 1.8, "lines.markersize": 6, "hatch.linewidth": 0.8,
        "grid.color": "#DDDDDD", "axes.edgecolor": "#666666", "svg.hashsalt": "tinymoe", "svg.fonttype": "path",
    })  # fmt: skip
