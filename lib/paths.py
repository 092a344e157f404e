"""Where things are: the repository root and the folders of a run."""

from __future__ import annotations

import os
import re
from pathlib import Path

from lib.files import TinymoeError

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "runs"
PLANS = RUNS / "plans"
FIGURES = ROOT / "figures"
REPORTS = ROOT / "report"
NOTEBOOKS = ROOT / "notebooks"
CACHE = ROOT / ".cache"
# Folder inside a run for attempts that a later one replaced.
ASIDE = "superseded"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def safe_name(name: str, what: str) -> str:
    """`name` if it can be a folder: letters, digits, dot, dash, underscore, not starting with a dot or dash.

    Raises TinymoeError otherwise, so that no plan or option can point outside the project.
    """
    if not _NAME.fullmatch(name):
        raise TinymoeError(f"{what} {name!r} cannot be a folder name; use letters, digits, '.', '_' and '-'")
    return name


def run_folder(run: str) -> Path:
    """Folder of the run called `run`; it need not exist yet."""
    return RUNS / safe_name(run, "RUN")


def server_folder(run_dir: Path, backend: str, model: str) -> Path:
    """Folder of one server's life: server.log, server.json and its cells."""
    return run_dir / safe_name(backend, "backend") / safe_name(model, "model")


def cell_folder(run_dir: Path, backend: str, model: str, ctx: int, gen: int) -> Path:
    """Folder of one cell's artifacts."""
    return server_folder(run_dir, backend, model) / f"gen{gen:d}" / f"ctx{ctx:d}"


def relative(path: Path) -> str:
    """`path` as a person reads it: from the repository root where it, or a link to it, lies inside; else as it is."""
    for place in (path.resolve(), Path(os.path.abspath(path))):
        if place.is_relative_to(ROOT):
            return str(place.relative_to(ROOT))
    return str(path)
