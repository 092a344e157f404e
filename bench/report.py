"""How long `make report` takes on the run `quick` when nothing changed, and what runs when one notebook did."""

from __future__ import annotations

import subprocess
import sys
import time

from bench import row
from lib.paths import REPORTS, ROOT, RUNS
from lib.report import notebooks

RUN = "quick"


def bench(scale: float = 1.0) -> list[dict]:
    """Rows for a report that is up to date, and for one stale notebook; nothing if the run is not there."""
    if not (RUNS / RUN).is_dir():
        print(f"bench: no run {RUN!r}, so the report is not measured; 'make sweep report' makes it")
        return []
    _build()
    unchanged_s = _build()[0]
    stale = notebooks()[0]
    (REPORTS / RUN / "notebooks" / stale.name).with_suffix(".key").write_text("stale")
    one_s, said = _build()
    return [
        row("report, nothing changed", unchanged_s, "s", at_most=3.0),
        row("report, one notebook changed", one_s, "s"),
        row("  notebooks run for it", int(said.split(": ")[1].split(" of ")[0]), "notebooks", at_most=1),
    ]


def _build() -> tuple[float, str]:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "lib.report", "--run", RUN], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return time.perf_counter() - began, done.stdout.strip().splitlines()[-1]


if __name__ == "__main__":
    print(bench())
