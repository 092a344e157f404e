"""A whole run as tables: cells.parquet (a row a cell), requests.parquet, samples.parquet in runs/<run>/tables.

    python -m lib.cells --run quick      brings the run's tables up to date and says what changed

Everything here can be rebuilt from the raw artifacts. What each cell gave is kept as a part beside the tables and is
read again only when one of the cell's files, the run's manifest or the code of the analysis has changed.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import queue
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lib.files import TinymoeError, digest, sha256, write_atomic, write_json
from lib.paths import ASIDE, ROOT, relative, run_folder

if TYPE_CHECKING:
    import pandas as pd

# Every module of lib/ that has a part in a cell's row: a change of one of them makes every cell stale.
ANALYSIS = (
    "aiperf", "aiperf_export", "block_shape", "cell", "cells", "clock", "clock_line", "decimals", "energy", "files",
    "formulas", "log_content", "metrics", "parts", "paths", "phases", "plist_log", "powermetrics", "rates",
    "stream", "text_block", "text_buffer", "text_grammar", "text_log",
)  # fmt: skip
CELL_FILES = (
    "cell.json", "profile_export.jsonl", "profile_export_aiperf.json", "powermetrics.log", "powermetrics.log.gz",
    "rss.csv", "rss.log", "combo_info.json",
)  # fmt: skip
# Fewer stale cells than this are read in this process: starting others costs more (two seconds, for their imports).
PARALLEL_FROM = 8
TABLES = ("cells", "requests", "samples")
_PLACE = re.compile(r"[^/]+/[^/]+/gen\d+/ctx\d+")


def read_cell(folder: Path | str) -> dict:
    """One cell's row; see lib.cell.read_whole for what may be missing and what is raised.

    A folder of the earlier scripts does not say whether it was the first of its server to run; its neighbours do.
    """
    from lib import cell

    row = cell.read_whole(Path(folder))[0]
    if not row["says_warmup"] and row["first_start_ns"] == row["first_start_ns"] and _is_first(Path(folder), row):
        row |= {"warmup": True} | (cell.void() if row["state"] == "ok" else {})
    return row


def _is_first(folder: Path, row: dict) -> bool:
    from lib import cell

    folder = folder.absolute()
    beside = [f for f in folder.parents[1].glob("gen*/ctx*") if _PLACE.fullmatch("/".join(f.parts[-4:]))]
    others = [f for f in beside if f != folder]
    for other in others:
        if not any((other / name).exists() for name in cell.TRACES):
            continue
        found = cell.read_whole(other)[0]
        if found["says_warmup"] or found["first_start_ns"] < row["first_start_ns"]:
            return False
    return True


def read_run(folder: Path | str) -> pd.DataFrame:
    """All cells of the run in `folder` as a pandas.DataFrame, a row each, sorted by backend, model, gen and ctx.

    Cached: only cells that are new or changed are parsed, on all cores. Raises TinymoeError if there is no run.
    """
    import pandas as pd

    folder = Path(folder)
    update(folder)
    try:
        return pd.read_parquet(folder / "tables" / "cells.parquet")
    except (OSError, ValueError):  # damaged without a trace in its size or date
        (folder / "tables" / "index.json").unlink(missing_ok=True)
        update(folder)
        return pd.read_parquet(folder / "tables" / "cells.parquet")


def cell_folders(run_dir: Path) -> list[Path]:
    """Folders of settled cells. Where the run has a manifest of ours a cell counts only once it has its cell.json."""
    if not run_dir.is_dir():
        raise TinymoeError(f"no run in {relative(run_dir)}; 'make sweep' makes one")
    mark = "cell.json" if (run_dir / "manifest.json").exists() else "profile_export*.json*"
    found = {p.parent for pattern in {mark, "cell.json"} for p in run_dir.glob(f"*/*/gen*/ctx*/{pattern}")}
    kept = [f for f in found if f.relative_to(run_dir).parts[0] not in (ASIDE, "tables")]
    return sorted(f for f in kept if _PLACE.fullmatch(f.relative_to(run_dir).as_posix()))


def update(run_dir: Path) -> tuple[int, int]:
    """Bring the tables up to date; returns (cells read again, cells in all). Nothing is written if nothing changed.

    Two processes may do this at once: the second waits for the first and then finds the work done.
    """
    run_dir = run_dir.absolute()
    folders = cell_folders(run_dir)
    if not folders:
        raise TinymoeError(f"{relative(run_dir)} has no cell yet; 'make sweep RUN={run_dir.name}' measures them")
    raw = _raw(run_dir, folders)
    if _is_current(run_dir, raw):
        return 0, len(folders)
    with _lock(run_dir / "tables"):
        stale = _stale(run_dir, raw)
        if stale or not _is_current(run_dir, raw):
            _rebuild(run_dir, list(raw), stale)
            _write_index(run_dir, raw)
    return len(stale), len(folders)


# --- what is stale ---


def _raw(run_dir: Path, folders: list[Path]) -> dict[Path, str]:
    """A digest of each cell's raw files (size and dates), the run's manifest and the code that reads them."""
    code = [sha256(path) for name in ANALYSIS if (path := ROOT / "lib" / f"{name}.py").exists()]
    common = digest([code, _stats(run_dir, ["manifest.json"])])
    return {folder: digest([common, _stats(folder, CELL_FILES)]) for folder in folders}


def _stats(folder: Path, names: tuple[str, ...] | list[str]) -> list[list | None]:
    found = []
    for name in names:
        try:
            facts = os.stat(folder / name)
            found.append([name, facts.st_size, facts.st_mtime_ns])
        except OSError:
            found.append(None)
    return found


def _parts(run_dir: Path, folder: Path) -> list[list | None]:
    """What the cell's parts look like: one that was cut, lost or overwritten differs from the index."""
    key = digest(str(folder.relative_to(run_dir)))
    return _stats(run_dir / "tables" / "parts", [f"{key}.{e}" for e in ("json", "requests.parquet", "samples.parquet")])


def _tables(run_dir: Path) -> list[list | None]:
    return _stats(run_dir / "tables", [f"{name}.parquet" for name in TABLES])


def _read_index(run_dir: Path) -> dict:
    """{"cells": {folder: [digest, parts]}, "tables": ...}; empty if there is none or it is damaged: it is a cache."""
    try:
        index = json.loads((run_dir / "tables" / "index.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return index if isinstance(index, dict) and isinstance(index.get("cells"), dict) else {}


def _is_current(run_dir: Path, raw: dict[Path, str]) -> bool:
    index = _read_index(run_dir)
    same_cells = set(index.get("cells", ())) == {str(f.relative_to(run_dir)) for f in raw}
    whole = index.get("tables") == _tables(run_dir) and (run_dir / "tables" / "stamp").exists()
    return same_cells and whole and not _stale(run_dir, raw)


def _stale(run_dir: Path, raw: dict[Path, str]) -> list[Path]:
    known = _read_index(run_dir).get("cells", {})
    return [f for f, key in raw.items() if known.get(str(f.relative_to(run_dir))) != [key, _parts(run_dir, f)]]


def _write_index(run_dir: Path, raw: dict[Path, str]) -> None:
    """The index last, so that a kill before leaves what counts as stale."""
    cells = {str(f.relative_to(run_dir)): [key, _parts(run_dir, f)] for f, key in raw.items()}
    write_json(run_dir / "tables" / "index.json", {"cells": cells, "tables": _tables(run_dir)})
    stamp = digest({name: key for name, (key, _) in cells.items()})
    write_atomic(run_dir / "tables" / "stamp", stamp + "\n")


@contextmanager
def _lock(tables: Path) -> Iterator[None]:
    """One process at a time; the lock of one that died is free."""
    tables.mkdir(parents=True, exist_ok=True)
    with (tables / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# --- reading again ---


def _rebuild(run_dir: Path, folders: list[Path], stale: list[Path]) -> None:
    from lib import parts

    (run_dir / "tables" / "parts").mkdir(parents=True, exist_ok=True)
    _make(run_dir, stale)
    try:
        parts.join(run_dir, folders)
    except (OSError, ValueError, KeyError):  # a part damaged without a trace in its size or date
        _make(run_dir, folders)
        parts.join(run_dir, folders)


def _make(run_dir: Path, folders: list[Path]) -> None:
    """The parts of these cells, on all cores if there are several."""
    if len(folders) < PARALLEL_FROM:
        from lib import parts

        for folder in folders:
            parts.make(run_dir, folder)
        return
    # Programs of our own rather than multiprocessing: that runs the caller's script again in each process, which a
    # notebook or a script without a main guard does not survive, and forking a process with threads is not safe.
    todo: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for folder in folders:
        todo.put(folder)
    workers = min(os.cpu_count() or 1, len(folders))
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda _: _work(run_dir, todo), range(workers)))


def _work(run_dir: Path, todo: queue.SimpleQueue[Path]) -> None:
    """Feed one worker, cell by cell, until none is left."""
    command = [sys.executable, "-m", "lib.parts", str(run_dir)]
    # Unbuffered, so that nothing is left to be written to a worker that has died.
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as worker:
        while True:
            try:
                folder = todo.get_nowait()
            except queue.Empty:
                break
            if not _done(worker, folder):
                raise TinymoeError(f"{relative(folder)}: the process that read it ended; read the run again")
        worker.stdin.close()


def _done(worker: subprocess.Popen, folder: Path) -> bool:
    try:
        worker.stdin.write(os.fsencode(folder) + b"\n")
    except BrokenPipeError:
        return False
    return worker.stdout.readline() == b"done\n"


def main(argv: list[str] | None = None) -> int:
    from lib import command  # the program's, not the reading's: a change of it makes no cell stale

    parser = argparse.ArgumentParser(description="Bring a run's tables up to date with its raw artifacts.")
    parser.add_argument("--run", required=True)
    args = parser.parse_args(argv)
    return command.run("tables", lambda: _say(run_folder(args.run)))


def _say(run_dir: Path) -> int:
    stale, cells = update(run_dir)
    print(f"tables: {stale} of {cells} cells read, in {relative(run_dir / 'tables')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
