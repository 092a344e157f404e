"""A whole run as tables: cells.parquet (a row a cell), requests.parquet, samples.parquet in runs/<run>/tables.

    python -m lib.cells --run quick      brings the run's tables up to date and says what changed

Everything here can be rebuilt from the raw artifacts. What each cell gave is kept as a part beside the tables and is
read again only when one of the cell's files, the run's manifest or the code of the analysis has changed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from lib.files import TinymoeError, digest, sha256, write_atomic, write_json
from lib.paths import ASIDE, ROOT, relative, run_folder

ANALYSIS = ("aiperf", "cell", "cells", "clock", "energy", "formulas", "metrics", "phases", "powermetrics")
CELL_FILES = (
    "cell.json", "profile_export.jsonl", "profile_export_aiperf.json", "powermetrics.log", "powermetrics.log.gz",
    "rss.csv", "rss.log", "combo_info.json",
)  # fmt: skip
# Fewer stale cells than this are read in this process: starting others costs more.
PARALLEL_FROM = 4
TABLES = ("cells", "requests", "samples")


def read_cell(folder: Path | str) -> dict:
    """One cell's row; see lib.cell.read_whole for what may be missing and what is raised."""
    from lib import cell

    return cell.read_whole(Path(folder))[0]


def read_run(folder: Path | str):
    """All cells of the run in `folder` as a pandas.DataFrame, a row each, sorted by backend, model, gen and ctx.

    Cached: only cells that are new or changed are parsed, on all cores. Raises TinymoeError if there is no run.
    """
    import pandas as pd

    folder = Path(folder)
    update(folder)
    return pd.read_parquet(folder / "tables" / "cells.parquet")


def cell_folders(run_dir: Path) -> list[Path]:
    """Folders of settled cells. Where the run has a manifest of ours a cell counts only once it has its cell.json."""
    if not run_dir.is_dir():
        raise TinymoeError(f"no run in {relative(run_dir)}; 'make sweep' makes one")
    mark = "cell.json" if (run_dir / "manifest.json").exists() else "profile_export*.json*"
    found = {p.parent for p in run_dir.glob(f"*/*/gen*/ctx*/{mark}")}
    return sorted(f for f in found if f.relative_to(run_dir).parts[0] not in (ASIDE, "tables"))


def update(run_dir: Path) -> tuple[int, int]:
    """Bring the tables up to date; returns (cells read again, cells in all). Nothing is written if nothing changed."""
    folders = cell_folders(run_dir)
    if not folders:
        raise TinymoeError(f"{relative(run_dir)} has no cell yet; 'make sweep RUN={run_dir.name}' measures them")
    tables = run_dir / "tables"
    before = _read_index(tables)
    common = digest([_code(), _stat(run_dir / "manifest.json")])
    index = {str(f.relative_to(run_dir)): digest([common, [_stat(f / n) for n in CELL_FILES]]) for f in folders}
    stale = [f for f in folders if before.get(str(f.relative_to(run_dir))) != index[str(f.relative_to(run_dir))]]
    if stale or before != index or not all((tables / f"{t}.parquet").exists() for t in TABLES):
        _rebuild(run_dir, folders, stale)
        write_json(tables / "index.json", index)
        write_atomic(tables / "stamp", digest(index) + "\n")
    return len(stale), len(folders)


def _read_index(tables: Path) -> dict:
    try:
        return json.loads((tables / "index.json").read_text())
    except (OSError, json.JSONDecodeError):
        return {}  # a cache: without it everything is read again


def _code() -> list[str]:
    return [sha256(ROOT / "lib" / f"{name}.py") for name in ANALYSIS]


def _stat(path: Path) -> tuple[str, int, int] | None:
    try:
        facts = path.stat()
    except FileNotFoundError:
        return None
    return path.name, facts.st_size, facts.st_mtime_ns


def _rebuild(run_dir: Path, folders: list[Path], stale: list[Path]) -> None:
    from lib import parts

    (run_dir / "tables" / "parts").mkdir(parents=True, exist_ok=True)
    jobs = [(run_dir, folder) for folder in stale]
    if len(stale) < PARALLEL_FROM:
        for job in jobs:
            parts.make(*job)
    else:
        # spawn on every system: forking a process that has threads (a notebook's kernel) is not safe
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=context) as pool:
            list(pool.map(parts.make, *zip(*jobs, strict=True)))
    parts.join(run_dir, folders)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Bring a run's tables up to date with its raw artifacts.")
    parser.add_argument("--run", required=True)
    args = parser.parse_args(argv)
    try:
        run_dir = run_folder(args.run)
        stale, cells = update(run_dir)
    except TinymoeError as e:
        print(f"tables: {e}", file=sys.stderr)
        return 1
    print(f"tables: {stale} of {cells} cells read, in {relative(run_dir / 'tables')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
