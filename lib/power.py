"""A power meter running beside a cell: powermetrics on macOS, the stand-in elsewhere, or none.

The meter's standard output is a pipe that this process copies to powermetrics.log. Closing the pipe is how a meter is
stopped: it ends at its next write. That needs no right to signal a process that sudo started, and it happens by
itself if the harness is killed, so no meter is left behind.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lib import machine, powermetrics
from lib.files import TinymoeError
from lib.paths import ROOT
from lib.plan import Plan

POWERMETRICS = "/usr/bin/powermetrics"
SAMPLERS = "cpu_power,gpu_power,thermal"
# Longest wait for the first sample; powermetrics needs about a second to start.
FIRST_SAMPLE_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 5.0
IDLE_S = 10.0
# A meter that says nothing for this long has failed, unless samples are asked for more rarely than that.
SILENT_S = 2.0
# Shortest log: stamps are whole seconds, and a log in which none changes cannot place its samples within a second.
MIN_LOG_S = 1.2


class PowerError(TinymoeError):
    """The power meter cannot be started or gave nothing."""


@dataclass(frozen=True)
class Source:
    """Where power comes from and what it means; written into the manifest and every cell.

    `basis` is measured, modelled or none; `scope` names what the watts cover; `note` is for people.
    """

    kind: str
    basis: str
    scope: str
    rails: str
    interval_ms: int
    note: str
    idle_W: float | None = None
    slope_W_per_core: float | None = None


def choose(plan: Plan) -> Source:
    """The power source that the plan asks for, on this machine.

    `auto` is powermetrics where it can be run without a password, else the stand-in, with the reason in `note`.
    Raises PowerError if `powermetrics` is asked for and cannot be had.
    """
    if plan.power == "none":
        return Source("none", "none", "none", "", 0, "power: none in the plan; nothing was sampled")
    refusal = "" if plan.power == "modelled" else powermetrics_refusal()
    if plan.power == "powermetrics" and refusal:
        raise PowerError(
            f"power: powermetrics cannot be used: {refusal}; or set 'power: modelled' or 'none' in the plan"
        )
    if plan.power == "modelled" or refusal:
        return _stand_in(plan, refusal or "asked for by the plan")
    return Source(
        "powermetrics", "measured", "package", "CPU + GPU + ANE", plan.power_interval_ms,
        "Apple's own estimate of the CPU, GPU and ANE rails, by powermetrics; no DRAM, board or wall power",
    )  # fmt: skip


def _stand_in(plan: Plan, why: str) -> Source:
    model = plan.modelled_power
    return Source(
        "stand-in meter", "modelled", "server process CPU", "CPU", plan.power_interval_ms,
        f"{why}; power = {model.idle_W:g} W + {model.slope_W_per_core:g} W "
        "x CPU seconds of the server per second; no GPU rail",
        model.idle_W, model.slope_W_per_core,
    )  # fmt: skip


def powermetrics_refusal() -> str:
    """Why powermetrics cannot be run here without a password; empty if it can. One sample is taken as the proof.

    Not run on a Mac yet: written from the manual page, tested with stand-ins.
    """
    if not machine.is_macos():
        return "powermetrics exists on macOS only"
    trial = ["sudo", "-n", POWERMETRICS, "-n", "1", "-i", "50", "--samplers", "cpu_power"]
    try:
        done = subprocess.run(trial, capture_output=True, text=True, timeout=15, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"'sudo -n {POWERMETRICS}' did not run ({e})"
    if "Sampled system activity" in done.stdout:
        return ""
    said = (done.stderr or done.stdout).strip().splitlines()
    return f"'sudo -n {POWERMETRICS}' said: {said[0] if said else 'nothing'}; allow that one program in sudoers"


def command(source: Source, pid: int) -> list[str]:
    """Command line of the meter for a server with process id `pid` (0: the idle machine)."""
    if source.kind == "powermetrics":
        return [
            "sudo", "-n", POWERMETRICS, "--samplers", SAMPLERS,
            "--sample-rate", str(source.interval_ms), "--buffer-size", "1",
        ]  # fmt: skip
    return [
        # -S -E: the meter needs the standard library only, and starts in a third of the CPU time without site-packages
        sys.executable, "-S", "-E", "-m", "lib.meter", "--pid", str(pid), "--interval-ms", str(source.interval_ms),
        "--idle-W", str(source.idle_W), "--slope-W-per-core", str(source.slope_W_per_core),
    ]  # fmt: skip


class Meter:
    """One meter process and the thread that copies its text to a file. `none` sources do nothing.

    After `stop()`: `samples` text blocks seen, `cpu_s` of the meter process, `pump_cpu_s` of the copying thread,
    `longest_silence_s` between two pieces of output, `trouble` (empty, or one line: what went wrong). `alarm` is
    called with a line, from another thread, when a running meter falls silent.
    """

    def __init__(self, source: Source, pid: int, log: Path, alarm: Callable[[str], None] = lambda _: None):
        self.source, self.pid, self.log, self._alarm = source, pid, log, alarm
        self._silent_s = max(SILENT_S, 3 * source.interval_ms / 1000)
        self.samples, self.cpu_s, self.pump_cpu_s, self.longest_silence_s = 0, 0.0, 0.0, 0.0
        self.trouble = ""
        self._first, self._stopping = threading.Event(), threading.Event()
        self._first_s = 0.0
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        """Start the meter and wait for its first sample. PowerError with the meter's own words if none comes."""
        if self.source.kind == "none":
            return
        self._children_cpu_s = machine.children_cpu_s()
        # What it says goes to a file, not a pipe: nobody reads it while the meter runs. Closed with this object.
        self._words = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                command(self.source, self.pid), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=self._words, cwd=ROOT, start_new_session=True, bufsize=0,
            )  # fmt: skip
        except OSError as e:
            raise PowerError(f"the power meter cannot be started: {e}") from e
        self._thread = threading.Thread(target=self._pump, name="meter", daemon=True)
        self._thread.start()
        if not self._first.wait(FIRST_SAMPLE_TIMEOUT_S) or self.trouble:
            self.stop()
            what = self.trouble or f"the power meter gave no sample within {FIRST_SAMPLE_TIMEOUT_S:g} s"
            raise PowerError(f"{what}{self._said()}")

    def stop(self) -> None:
        """Take one more sample, so that the last interval covers the cell's end, and close the pipe. Twice is safe."""
        if self._process is None:
            return
        process, self._process = self._process, None
        if self._first.is_set() and not self.trouble:
            time.sleep(max(0.0, MIN_LOG_S - (time.monotonic() - self._first_s)))
        self._stopping.set()
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            self.trouble = self.trouble or "the power meter went silent"
        process.stdout.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.trouble = self.trouble or "the power meter did not end when its output was closed"
            _end(process)
        self.cpu_s = machine.children_cpu_s() - self._children_cpu_s
        if self.longest_silence_s > self._silent_s and not self.trouble:
            self.trouble = f"the power meter was silent for {self.longest_silence_s:.1f} s"

    def _pump(self) -> None:
        pipe = self._process.stdout.fileno()
        try:
            with self.log.open("wb", buffering=0) as out:
                self._copy(pipe, out)
        except OSError as e:
            self.trouble = f"powermetrics.log could not be written ({e.strerror})"
        self._first.set()
        self.pump_cpu_s = time.thread_time()

    def _copy(self, pipe: int, out: BinaryIO) -> None:
        last = time.monotonic()
        while piece := self._read(pipe):
            now = time.monotonic()
            if self.samples:  # the start-up of the meter is no silence
                self.longest_silence_s = max(self.longest_silence_s, now - last)
            last = now
            out.write(piece)
            if seen := piece.count(b"*** Sampled "):
                self._first_s = self._first_s or now
                self.samples += seen
                self._first.set()
                if self._stopping.is_set():
                    return
        self.trouble = "the power meter ended before it was stopped"

    def _read(self, pipe: int) -> bytes:
        """The next piece of output; the alarm is raised once if it is late."""
        if self.samples and not select.select([pipe], [], [], self._silent_s)[0]:
            self._alarm(f"power meter: silent for {self._silent_s:g} s; this cell will have no power")
        return os.read(pipe, 1 << 16)

    def _said(self) -> str:
        self._words.seek(0)
        words = self._words.read().decode(errors="replace").strip().splitlines()
        return f"; it said: {words[-1]}" if words else ""


def idle(source: Source, run_dir: Path, seconds: float = IDLE_S) -> dict | None:
    """Power at rest before the first server: `power_W` (median of the samples) and its basis. None without a meter.

    The log stays in the run's folder. For the stand-in it is the model's own constant, and says so.
    """
    if source.kind == "none":
        return None
    if source.basis == "modelled":
        return {"power_W": source.idle_W, "basis": source.basis, "samples": 0}
    log = run_dir / f"idle-{time.time_ns()}.log"
    meter = Meter(source, 0, log)
    meter.start()
    time.sleep(seconds)
    meter.stop()
    rails_mW = powermetrics.read(log)["combined_mW"].dropna()
    power_W = float(rails_mW.median()) / 1000 if len(rails_mW) else None
    return {"power_W": power_W, "basis": source.basis, "samples": len(rails_mW), "log": log.name}


def _end(process: subprocess.Popen) -> None:
    try:
        process.kill()
        process.wait(STOP_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        pass  # started through sudo and not ours to signal; it ends at its next write to the closed pipe
