"""Keeps the machine awake while a sweep runs: macOS' own caffeinate, which ends by itself when this process does.

Not run on a Mac yet: written from the manual page, tested with a stand-in.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from lib import machine

# Display, idle, disk and system sleep; -w ends it when the process with this pid has ended, however it ended.
COMMAND = ("caffeinate", "-dims", "-w")
STOP_S = 5.0


@contextmanager
def awake() -> Iterator[str]:
    """Keep the machine from sleeping inside; gives a line that says what was done, empty where nothing is needed."""
    if not machine.is_macos():
        yield ""
        return
    try:
        process = subprocess.Popen([*COMMAND, str(os.getpid())], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    except OSError as e:
        yield f"the machine may fall asleep: caffeinate did not start ({e})"
        return
    try:
        yield "sleep is off while the sweep runs (caffeinate)"
    finally:
        process.terminate()
        process.wait(STOP_S)
