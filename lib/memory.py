"""Resident memory of a process, sampled every 50 ms without forking, with the time of each sample."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psutil

INTERVAL_S = 0.05


class MemorySampler:
    """A thread that appends `time_ns,rss_kb` lines to a CSV file until it is stopped or the process is gone.

    time_ns is epoch nanoseconds, rss_kb is kilobytes of 1024 bytes as `ps` counts them. After `stop()`: `samples`,
    `cpu_s` of the thread, `trouble` (empty, or one line: what went wrong).
    """

    def __init__(self, pid: int, path: Path):
        self._process, self._path = psutil.Process(pid), path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self.samples, self.cpu_s, self.trouble = 0, 0.0, ""

    def start(self) -> None:
        """Begin sampling."""
        self._thread.start()

    def stop(self) -> None:
        """End sampling and wait for the last line. Safe to call twice."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with self._path.open("w", encoding="ascii", buffering=1) as out:
                out.write("time_ns,rss_kb\n")
                self._sample(out)
        except OSError as e:
            self.trouble = f"rss.csv could not be written ({e.strerror})"
        except psutil.NoSuchProcess:
            self.trouble = "the server's process was gone"
        self.cpu_s = time.thread_time()

    def _sample(self, out) -> None:
        deadline = time.monotonic()
        while True:
            out.write(f"{time.time_ns()},{self._process.memory_info().rss // 1024}\n")
            self.samples += 1
            deadline = max(deadline + INTERVAL_S, time.monotonic())
            if self._stop.wait(deadline - time.monotonic()):
                return
