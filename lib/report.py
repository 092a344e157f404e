"""The report of a run: notebooks executed, joined, and written as Markdown and as one HTML file.

    python -m lib.report --run quick [--jobs 2]

A notebook runs again only if its source, the code in lib/ or the run's tables changed since it last ran; what it gave
is kept in report/<run>/notebooks/. A notebook that fails is kept with its traceback as NN.failed.ipynb, and the
report is built without it and says so. Exit codes: 0 done; 1 a mistake to correct first; 4 a notebook failed.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import sys
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from lib import cells, command
from lib.files import TinymoeError, digest, read_object, sha256
from lib.paths import NOTEBOOKS, REPORTS, ROOT, relative, run_folder


class ReportError(TinymoeError):
    """A notebook or a reference in it that the report cannot be built from."""


def notebooks() -> list[Path]:
    """The numbered notebooks, in order."""
    return sorted(NOTEBOOKS.glob("[0-9][0-9]-*.ipynb"))


def build(run: str, jobs: int) -> int:
    """Bring the report of `run` up to date and say what was done; returns the exit code."""
    run_dir = run_folder(run)
    cells.update(run_dir)
    folder = REPORTS / run
    (folder / "notebooks").mkdir(parents=True, exist_ok=True)
    servers = [sha256(path) for path in sorted(run_dir.glob("*/*/server.json"))]
    common = [run, (run_dir / "tables" / "stamp").read_text(), servers, _code()]
    keys = {source: digest([common, _source(source)]) for source in notebooks()}
    stale = [source for source, key in keys.items() if not _is_fresh(folder, source, key)]
    failures = _execute_all(stale, folder, run, keys, jobs)
    _write(run, folder, keys, bool(stale))
    _say(run, folder, stale, failures)
    return 4 if failures else 0


def _execute_all(stale: list[Path], folder: Path, run: str, keys: dict[Path, str], jobs: int) -> list[str]:
    """Run the stale notebooks, `jobs` at a time, in processes that import papermill once each."""
    if not stale:
        return []
    context = multiprocessing.get_context("spawn")
    workers, chatter = min(jobs, len(stale)), str(folder / "notebooks" / "kernels.log")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_quiet, initargs=(chatter,)) as pool:
        futures = [pool.submit(_execute, source, folder, run, keys[source]) for source in stale]
        return [line for s, future in zip(stale, futures, strict=True) if (line := _result(s, future))]


def _result(source: Path, future: Future) -> str:
    """A notebook's line of failure, or nothing; a worker that was killed is a failure too."""
    try:
        return future.result()
    except BrokenProcessPool:
        return f"notebook {source.stem} failed: its process was killed; 'make report' runs it again"


def _quiet(log: str) -> None:
    """Send what kernels say on standard error to a file: start-up notices, nothing a person can act on."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 2)


def _say(run: str, folder: Path, stale: list[Path], failures: list[str]) -> None:
    for failure in failures:
        print(f"report: {failure}", file=sys.stderr)
    what = f"{len(stale)} of {len(notebooks())} notebooks run" if stale else "nothing changed, no notebook run"
    print(f"report of run {run}: {what}; {relative(folder / 'report.md')} and report.html")


def _code() -> list[str]:
    files = sorted([*(ROOT / "lib").rglob("*.py"), *(ROOT / "lib").rglob("*.j2"), NOTEBOOKS / "_root.py"])
    return [sha256(f) for f in files]


def _source(path: Path) -> list:
    """What a notebook does: its cells without outputs, so that running it in JupyterLab makes nothing stale."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (json.JSONDecodeError, KeyError) as e:
        raise ReportError(f"{relative(path)}: not a notebook ({e}); restore it with git") from e
    return [[c["cell_type"], c["source"], c.get("metadata", {}).get("tags", [])] for c in found]


def executed(folder: Path, source: Path) -> Path:
    """Where the executed copy of a notebook is."""
    return folder / "notebooks" / source.name


def _is_fresh(folder: Path, source: Path, key: str) -> bool:
    path = executed(folder, source)
    return path.exists() and path.with_suffix(".key").exists() and path.with_suffix(".key").read_text() == key


def _execute(source: Path, folder: Path, run: str, key: str) -> str:
    """Run one notebook and keep it as executed or as failed; returns a line about its failure, or nothing."""
    import papermill  # here, in the worker: a report with nothing to run needs no second of imports

    target = executed(folder, source)
    running, failed = target.with_suffix(".running.ipynb"), target.with_suffix(".failed.ipynb")
    for old in (target.with_suffix(".key"), failed):
        old.unlink(missing_ok=True)
    logging.getLogger("papermill").setLevel(logging.ERROR)
    try:
        papermill.execute_notebook(
            str(source), str(running), parameters={"run": run}, kernel_name="python3", cwd=str(NOTEBOOKS),
            progress_bar=False,
        )  # fmt: skip
    except Exception as e:  # whatever a notebook does, it is reported and the others go on
        target.unlink(missing_ok=True)
        if running.exists():
            running.replace(failed)
        return f"notebook {source.stem} failed: {_last_line(e)}; see {relative(failed)}"
    running.replace(target)
    target.with_suffix(".key").write_text(key)
    return ""


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _write(run: str, folder: Path, keys: dict[Path, str], changed: bool) -> None:
    """Join and convert, unless what they would give is there already."""
    ready = {s: executed(folder, s) for s in keys if _is_fresh(folder, s, keys[s])}
    key = digest([sorted(keys[s] for s in ready), len(keys)])
    stamp = folder / "report.key"
    whole = all((folder / name).exists() for name in ("report.md", "report.html"))
    if not changed and whole and stamp.exists() and stamp.read_text() == key:
        return
    from lib import join

    missing = [s.stem for s in keys if s not in ready]
    join.write(run, folder, ready, missing, read_object(run_folder(run) / "manifest.json"))
    stamp.write_text(key)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the report of a run.")
    parser.add_argument("--run", required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="notebooks at a time")
    args = parser.parse_args(argv)
    return command.run("report", lambda: build(args.run, max(1, args.jobs)))


if __name__ == "__main__":
    sys.exit(main())
