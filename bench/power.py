"""How fast a power log is read and a clock rebuilt, and how much memory that takes.

A log of M4 form (100,000 blocks, about 450 MB at full scale) is generated; `grep -c`, which only has to find one
string, and a line-by-line loop with four regular expressions, which only finds four numbers, are the baselines.
All read the file from the page cache. Repeats alternate, so that a busy machine slows all of them, and the least time
of each counts. Memory is the peak of a process of its own less what it had after its imports.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import row
from lib import clock, powermetrics
from lib.paths import CACHE, ROOT
from tests import powerlog

BLOCKS = 100_000
LOOP_SHARE = 0.1
"""The loop is slow and its time goes with the length of the file: it reads this part, and its time is scaled."""
_FOUR = [
    re.compile(pattern)
    for pattern in (
        r"\*\*\* Sampled system activity \((.+?)\) \(([\d.]+)ms elapsed\)",
        r"^Combined Power \(CPU \+ GPU \+ ANE\): (\d+) mW",
        r"^GPU HW active frequency: (\d+) MHz",
        r"^GPU HW active residency: +([\d.]+)%",
    )
]
_MEMORY = """
import json, re, resource, sys
from pathlib import Path
from lib import powermetrics

def peak():  # on Linux ru_maxrss starts at the size of the parent
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

before = peak()
frame = powermetrics.read(sys.argv[1])
print(json.dumps([len(frame), (peak() - before) / 1e6]))
"""


def bench(scale: float = 1.0) -> list[dict]:
    """Rows for logs whose clusters read their own values, and for logs where all must be taken from the cores."""
    rows = []
    for zero, name in ((0.0, "power log"), (1.0, "power log, all clusters from cores")):
        path = CACHE / "bench" / "power.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            rows += _reading(path, name, max(1000, round(BLOCKS * scale)), zero)
        finally:
            path.unlink(missing_ok=True)
    return rows + _clock(max(1000, round(BLOCKS * scale)))


def _reading(path: Path, name: str, blocks: int, zero: float) -> list[dict]:
    truth = powerlog.write_big(path, blocks, zero=zero)
    gc.collect()
    least = _alternate({"grep": lambda: _grep(path), "read": lambda: powermetrics.read(path)}, times=5)
    loop_s = _seconds(lambda: _loop(path, int(blocks * LOOP_SHARE))) / LOOP_SHARE
    memory = subprocess.run(
        [sys.executable, "-c", _MEMORY, str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found, peak_MB = json.loads(memory.stdout)
    assert found == len(truth.rows), f"{found} of {len(truth.rows)} blocks"
    return [
        row(f"{name}: {blocks} blocks, {path.stat().st_size / 1e6:.0f} MB", least["read"], "s"),
        row(f"{name}: over grep -c", least["read"] / least["grep"], "x", at_most=6),
        row(f"{name}: loop of four regexes over it", loop_s / least["read"], "x", at_least=5),
        row(f"{name}: peak memory", peak_MB, "MB", at_most=250),
    ]


def _clock(samples: int) -> list[dict]:
    _, stamps, elapsed = zip(*powerlog.times(samples, drift_ppm=40), strict=True)
    seconds = min(_seconds(lambda: clock.rebuild(stamps, elapsed)) for _ in range(3))
    return [row(f"clock: {samples} samples", seconds, "s", at_most=2)]


def _alternate(jobs: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """Least time of each job, in turns."""
    least = dict.fromkeys(jobs, float("inf"))
    for _ in range(times):
        for name, job in jobs.items():
            least[name] = min(least[name], _seconds(job))
    return least


def _seconds(job: Callable[[], object]) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def _grep(path: Path) -> None:
    """Its output is read: grep stops at the first match when it writes to /dev/null."""
    subprocess.run(["grep", "-c", "Combined Power", str(path)], capture_output=True, check=True)


def _loop(path: Path, blocks: int) -> list[dict]:
    """What a simple script does: every line against four patterns, until so many blocks have been seen."""
    found: list[dict] = []
    with path.open() as lines:
        for line in lines:
            for number, pattern in enumerate(_FOUR):
                if m := pattern.search(line):
                    if number == 0:
                        found.append({})
                    found[-1][number] = m.groups()
            if len(found) > blocks:
                break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full size")
    for found in bench(parser.parse_args().scale):
        print(found)


if __name__ == "__main__":
    main()
