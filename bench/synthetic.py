"""How long the synthetic run takes to write at its default size, the one that CI writes, and how large it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench import row
from lib.paths import ROOT, run_folder
from lib.plan import load, selected

PLAN = "paper"


def bench(scale: float = 1.0) -> list[dict]:
    """Rows for every cell of the plan, with fewer requests each at a smaller scale. Targets are those of two cores."""
    plan = load(PLAN)
    requests = max(1, round(scale * plan.requests))
    run_dir = run_folder(f"bench-{os.getpid()}")
    try:
        seconds = _write(run_dir, requests)
        size_MB = sum(path.stat().st_size for path in run_dir.rglob("*") if path.is_file()) / 1e6
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)
    what = f"synthetic run, {len(list(selected(plan)))} cells of {requests} requests"
    return [row(what, seconds, "s", at_most=60.0), row("  on disk", size_MB, "MB", at_most=200.0)]


def _write(run_dir: Path, requests: int) -> float:
    command = [sys.executable, "-m", "lib.sweep", "--plan", PLAN, "--run", run_dir.name, "--requests", str(requests)]
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    print(bench())
