"""Other programs that take cores or memory from what is to be measured. They are named; none is ever ended."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil

WINDOW_S = 0.3
# Heavy: this much of one core, or this share of the machine's memory.
HEAVY_CORES, HEAVY_MEMORY = 0.2, 0.25


@dataclass(frozen=True)
class Heavy:
    """A process and what it takes: cores (CPU seconds per second) and resident memory in bytes."""

    pid: int
    name: str
    cores: float
    memory_bytes: int


@dataclass(frozen=True)
class _Use:
    """One process at one moment: time and its CPU time in seconds (None: not ours to read), resident bytes."""

    at_s: float
    cpu_s: float | None
    memory_bytes: int


def look(window_s: float = WINDOW_S) -> tuple[list[Heavy], float]:
    """Heavy processes over `window_s` seconds, the heaviest first, this one left out; and cores busy beside all seen.

    The second number is what belongs to processes whose CPU time cannot be read (on macOS those of other users, to
    which the system's own belong) or which live too briefly to be seen twice.
    """
    busy_before, at_s, before = _busy_s(), time.monotonic(), _uses()
    time.sleep(window_s)
    after = _uses()
    cores = {pid: _cores(before.get(pid), use) for pid, use in after.items()}
    unseen = (_busy_s() - busy_before) / (time.monotonic() - at_s) - sum(cores.values())
    limit = HEAVY_MEMORY * psutil.virtual_memory().total
    chosen = [
        Heavy(pid, _name(pid), cores[pid], use.memory_bytes) for pid, use in after.items()
        if pid != os.getpid() and (cores[pid] >= HEAVY_CORES or use.memory_bytes >= limit)
    ]  # fmt: skip
    return sorted(chosen, key=lambda p: (-p.cores, -p.memory_bytes)), max(0.0, unseen)


def _uses() -> dict[int, _Use]:
    found = {}
    for process in psutil.process_iter(["cpu_times", "memory_info"]):
        cpu, memory = process.info["cpu_times"], process.info["memory_info"]
        found[process.pid] = _Use(time.monotonic(), cpu and cpu.user + cpu.system, memory.rss if memory else 0)
    return found


def _cores(before: _Use | None, after: _Use) -> float:
    if before is None or before.cpu_s is None or after.cpu_s is None:
        return 0.0
    return max(0.0, after.cpu_s - before.cpu_s) / (after.at_s - before.at_s)


def _busy_s() -> float:
    """CPU seconds that all cores together have been busy since the machine started."""
    spent = psutil.cpu_times()
    return sum(getattr(spent, kind, 0.0) for kind in ("user", "nice", "system", "irq", "softirq"))


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "a process that has ended"
