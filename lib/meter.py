"""The stand-in power meter: a program that writes powermetrics' text format for a machine without powermetrics.

    python -m lib.meter --pid 4711 --idle-W 1 --slope-W-per-core 4

Its power is modelled, not measured: idle + slope x (CPU seconds used by process `pid` per second). The text says so
in its first line, so that the raw file alone cannot be taken for a measurement. Like powermetrics it stamps whole
seconds, prints the exact length of each sample as `elapsed`, and needs some milliseconds more than it was asked for.
It ends when its output is closed, so it cannot outlive the harness that reads it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable

# powermetrics asked for 50 ms delivers a sample every 56.4 ms or so; the stand-in keeps that.
OVERHEAD_MS = 6.4


def cpu_clock(pid: int) -> Callable[[], float]:
    """A function that returns the CPU seconds that process `pid` has used so far, all threads, dead ones included.

    On Linux the kernel's per-process clock gives nanoseconds (/proc's ticks of 10 ms would be a fifth of a sample);
    elsewhere psutil, which is fine enough on macOS. Once the process is gone it returns the last value.
    """
    read = _posix_clock(pid) if sys.platform == "linux" else _psutil_clock(pid)
    last = 0.0

    def seconds() -> float:
        nonlocal last
        with contextlib.suppress(OSError, LookupError):
            last = read()
        return last

    return seconds


def _posix_clock(pid: int) -> Callable[[], float]:
    clock_id = ctypes.c_int()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.clock_getcpuclockid(pid, ctypes.byref(clock_id)) != 0:
        raise LookupError(f"no process {pid}")
    return lambda: time.clock_gettime(clock_id.value)


def _psutil_clock(pid: int) -> Callable[[], float]:
    import psutil

    process = psutil.Process(pid)

    def seconds() -> float:
        try:
            times = process.cpu_times()
        except psutil.Error as e:
            raise LookupError(str(e)) from e
        return times.user + times.system

    return seconds


def header() -> str:
    """The lines powermetrics prints once, with this program's name where the machine's model stands."""
    boot = time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(time.time() - time.monotonic()))
    return (
        "Machine model: tinymoe stand-in meter (modelled, no sensor)\n"
        f"OS version: {os.uname().sysname}-{os.uname().release}\nBoot arguments: \nBoot time: {boot}\n\n\n"
    )


def block(end_s: float, elapsed_ms: float, cpu_mW: int) -> str:
    """One sample in powermetrics' form; `end_s` (epoch s) is printed with the local zone's offset and no fraction."""
    stamp = time.strftime("%a %b %e %H:%M:%S %Y %z", time.localtime(end_s))
    return (
        f"\n*** Sampled system activity ({stamp}) ({elapsed_ms:.2f}ms elapsed) ***\n\n\n"
        f"**** Processor usage ****\n\nCPU Power: {cpu_mW:d} mW\n"
        f"Combined Power (CPU + GPU + ANE): {cpu_mW:d} mW\n\n"
    )


def sample(read_cpu_s: Callable[[], float], period_s: float, idle_W: float, slope_W: float, out: int) -> None:
    """Write a block every `period_s` until the output is closed. Deadlines keep the period from drifting."""
    start = deadline = time.perf_counter()
    used_s = read_cpu_s()
    while True:
        deadline += period_s
        time.sleep(max(0.0, deadline - time.perf_counter()))
        end, now_s, now_used_s = time.perf_counter(), time.time(), read_cpu_s()
        elapsed_s = end - start
        power_W = idle_W + slope_W * (now_used_s - used_s) / elapsed_s
        os.write(out, block(now_s, 1000 * elapsed_s, round(1000 * power_W)).encode())
        start, used_s, deadline = end, now_used_s, max(deadline, end)


def main(argv: list[str] | None = None) -> int:
    """Run the meter on standard output; the exit code is 0 when the reader closes it or SIGINT arrives."""
    parser = argparse.ArgumentParser(description="Stand-in power meter: modelled power in powermetrics' text format.")
    parser.add_argument("--pid", type=int, required=True, help="process whose CPU time drives the model; 0: idle only")
    parser.add_argument("--interval-ms", type=int, default=50, help="asked sampling interval, ms")
    parser.add_argument("--idle-W", type=float, required=True, help="modelled power at rest, W")
    parser.add_argument("--slope-W-per-core", type=float, required=True, help="added power of one busy core, W")
    args = parser.parse_args(argv)
    period_s = (args.interval_ms + OVERHEAD_MS) / 1000
    out = sys.stdout.fileno()
    try:
        read_cpu_s = cpu_clock(args.pid) if args.pid else lambda: 0.0
        os.write(out, header().encode())
        sample(read_cpu_s, period_s, args.idle_W, args.slope_W_per_core, out)
    except LookupError as e:
        print(f"lib.meter: {e}; give the pid of a running server", file=sys.stderr)
        return 1
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
