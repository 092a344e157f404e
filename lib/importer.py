"""Artifacts of the earlier benchmark scripts, copied into a run that the report can be built from.

    python -m lib.importer --from FOLDER --run NAME

A cell is a folder <backend>/<model>/gen<G>/ctx<P> that has a request file or a summary, anywhere below FOLDER; files
are copied as they are, none is changed. What the earlier scripts did not record (the machine, flags, the model's hash)
stays missing. The same command again copies what has come since. Exit codes: 0 done, 1 a mistake to correct first.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from lib import command, ledger
from lib.backends import BACKENDS
from lib.cell import BACKEND_NAMES, TRACES
from lib.cells import CELL_FILES
from lib.files import TinymoeError, free_MB, read_json, write_json
from lib.paths import cell_folder, relative, run_folder, server_folder

REQUESTS = tuple(name for name in TRACES if name != "cell.json")
FILES = tuple(name for name in CELL_FILES if name != "cell.json")
SERVER_FILES = ("server.log", "server.json")
OTHER_NAMES = BACKEND_NAMES | {"llama_cpp": "llama.cpp", "mlx_vlm": "mlx-vlm"}
POWER = {"kind": "powermetrics", "basis": "measured", "scope": "package", "rails": "CPU + GPU + ANE"}
_PLACE = re.compile(r"gen(\d+)/ctx(\d+)")


class ImportError_(TinymoeError):
    """A folder that holds nothing to import, or a run that must not be written into."""


class Found:
    """One cell below the folder: where it is, and what it is by its place."""

    def __init__(self, folder: Path, gen: int, ctx: int):
        self.folder, self.gen, self.ctx = folder, gen, ctx
        self.server = folder.parents[1]
        self.model, given = self.server.name, self.server.parent.name
        self.backend = OTHER_NAMES.get(given, given)

    @property
    def key(self) -> str:
        return f"{self.backend}/{self.model}/gen{self.gen}/ctx{self.ctx}"


def find(source: Path) -> list[Found]:
    """The cells below `source`, in order of their place. ImportError_ if there is none, or if two are the same cell."""
    if not source.is_dir():
        raise ImportError_(f"{source}: no such folder; FROM names the folder of the earlier scripts' artifacts")
    cells = sorted(_cells(source), key=lambda cell: cell.key)
    if not cells:
        raise ImportError_(f"{source}: no cell here; a cell is <backend>/<model>/gen<G>/ctx<P> with {REQUESTS[0]}")
    for one, other in itertools.pairwise(cells):
        if one.key == other.key:
            raise ImportError_(f"{one.folder} and {other.folder} are both {one.key}; import them into two runs")
    return cells


def _cells(source: Path) -> Iterator[Found]:
    for folder in source.glob("**/gen*/ctx*"):
        place = _PLACE.fullmatch("/".join(folder.parts[-2:]))
        inside = len(folder.relative_to(source).parts) >= 4
        if place and inside and any((folder / name).is_file() for name in REQUESTS):
            yield Found(folder, int(place[1]), int(place[2]))


def run(source: Path, run_dir: Path) -> int:
    """Copy every cell below `source` into `run_dir`; returns the exit code. ImportError_ if that must not be."""
    cells = find(source)
    _check(source, cells, run_dir)
    with ledger.lock(run_dir):
        new = [cell for cell in cells if _copy(cell, run_dir)]
        write_json(run_dir / "manifest.json", _manifest(source, cells, run_dir))
    models = len({(cell.backend, cell.model) for cell in cells})
    print(
        f"import: {len(new)} of {len(cells)} cells of {models} servers copied from {source} to {relative(run_dir)}; "
        f"'make report RUN={run_dir.name}' builds the report"
    )
    return 0


def _check(source: Path, cells: list[Found], run_dir: Path) -> None:
    unknown = sorted({cell.backend for cell in cells} - set(BACKENDS))
    if unknown:
        raise ImportError_(f"{source}: backend folder {unknown[0]!r} is not known; name it llama.cpp, mlx-lm or ollama")
    manifest = run_dir / "manifest.json"
    if manifest.exists() and "imported" not in read_json(manifest):
        raise ImportError_(f"{relative(run_dir)} is a measured run; choose another RUN to import into")
    for cell in cells:  # refuses names that cannot be folders before anything is written
        cell_folder(run_dir, cell.backend, cell.model, cell.ctx, cell.gen)
    need_MB = sum(p.stat().st_size for cell in cells for p in _files(cell.folder, FILES)) / 1e6
    if free_MB(run_dir) < 1.1 * need_MB:
        raise ImportError_(
            f"{relative(run_dir)}: {free_MB(run_dir):.0f} MB free, {need_MB:.0f} MB needed; free some space"
        )


def _files(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [folder / name for name in names if (folder / name).is_file()]


def _copy(cell: Found, run_dir: Path) -> bool:
    """Copy one cell, cell.json last; False if it is there already."""
    target = cell_folder(run_dir, cell.backend, cell.model, cell.ctx, cell.gen)
    if (target / "cell.json").exists():
        return False
    target.mkdir(parents=True, exist_ok=True)
    for path in _files(cell.folder, FILES):
        shutil.copy2(path, target)
    for path in _files(cell.server, SERVER_FILES):
        shutil.copy2(path, server_folder(run_dir, cell.backend, cell.model))
    write_json(target / "cell.json", _facts(cell))
    return True


def _facts(cell: Found) -> dict:
    """cell.json of an imported cell; which cell was the first of its server is left to the analysis."""
    return {
        "schema": ledger.SCHEMA, "backend": cell.backend, "model": cell.model, "ctx": cell.ctx, "gen": cell.gen,
        "plan": None, "plan_hash": None, "state": "ok", "reason": "", "imported": True, "power": POWER,
    }  # fmt: skip


def _manifest(source: Path, cells: list[Found], run_dir: Path) -> dict:
    """What is known of an imported run: its grid, and that nothing else is."""
    grid = {
        "backends": sorted({c.backend for c in cells}), "models": sorted({c.model for c in cells}),
        "prompts": sorted({c.ctx for c in cells}), "gens": sorted({c.gen for c in cells}),
    }  # fmt: skip
    note = "powermetrics of the earlier scripts; the machine and its settings were not recorded"
    return {
        "schema": 1, "run": run_dir.name, "imported": {"folder": source.name, "cells": len(cells)}, "grid": grid,
        "power": POWER | {"note": note}, "idle": {"power_W": None, "basis": "not recorded"}, "synthetic": False,
    }  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Copy artifacts of the earlier scripts into a run.")
    parser.add_argument("--from", dest="source", required=True, help="folder of the earlier scripts' artifacts")
    parser.add_argument("--run", required=True, help="name of the run to make")
    args = parser.parse_args(argv)
    return command.run("import", lambda: run(Path(args.source).expanduser(), run_folder(args.run)))


if __name__ == "__main__":
    sys.exit(main())
