"""How well and how cheaply the client measures, against a server with known times in a process of its own.

Errors are the client's times less the times at which the
server wrote; the medians are also held against what the server was told to do. Targets: TTFT within 2 ms,
ITL within 0.1 ms, 0.1 CPU s a second of load at 8 ms a token. At 1000 tok/s the cost is for information.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from bench import row
from lib.client import Client, Exchange
from lib.paths import ROOT

Row = dict[str, float | int | str]

# What a row of errors and costs is called, its unit, and its target at the published load.
SHOWN = {
    "ttft_error_ms": ("median TTFT less what the server was told", "ms", 2.0),
    "ttft_own_error_ms": ("median TTFT less the server's own log", "ms", 2.0),
    "itl_error_ms": ("median ITL less what the server was told", "ms", 0.1),
    "itl_own_error_ms": ("median ITL less the server's own log", "ms", 0.1),
    "cpu_s_per_s": ("load generator", "CPU s per s", 0.1),
    "failed": ("failed requests", "requests", 0.0),
}


@contextmanager
def stub_process(*options: str) -> Iterator[tuple[str, int]]:
    """The stub server in a process of its own; yields its address and its pid."""
    command = [sys.executable, "-m", "tests.stub_server", *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()


def load(ttft_ms: float, itl_ms: float, requests: int, tokens: int) -> Row:
    """One row: errors of the medians in ms and what the client cost, over `requests` after one warm-up."""
    with stub_process("--ttft-s", str(ttft_ms / 1e3), "--itl-s", str(itl_ms / 1e3)) as (url, _):
        with Client(url) as client:
            client.send("warm up", 8)
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            exchanges = [client.send(f"prompt {i}", tokens, index=i, timeout_s=120) for i in range(requests)]
            wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
        with urllib.request.urlopen(f"{url}/stub/log") as page:
            served = json.load(page)[1:]
    return {
        "requests": requests, "tokens": tokens, "ttft_true_ms": ttft_ms, "itl_true_ms": itl_ms,
        **_errors(exchanges, served, ttft_ms, itl_ms),
        "load_s": wall_s, "cpu_s": cpu_s, "cpu_s_per_s": cpu_s / wall_s,
        "cpu_us_per_token": 1e6 * cpu_s / (requests * tokens),
    }  # fmt: skip


def _errors(exchanges: list[Exchange], served: list[dict], ttft_ms: float, itl_ms: float) -> Row:
    """Median errors; `own` is against the server's log of the same request."""
    seen = [(_ttft_ms(x), _itl_ms(x.chunk_ns)) for x in exchanges]
    wrote = [((s["token_ns"][0] - x.monotonic_start_ns) / 1e6, _itl_ms(s["token_ns"]))
             for x, s in zip(exchanges, served, strict=True)]  # fmt: skip
    return {
        "failed": sum(x.error is not None for x in exchanges),
        "ttft_error_ms": statistics.median(t for t, _ in seen) - ttft_ms,
        "ttft_own_error_ms": statistics.median(a[0] - b[0] for a, b in zip(seen, wrote, strict=True)),
        "ttft_own_worst_ms": max(a[0] - b[0] for a, b in zip(seen, wrote, strict=True)),
        "itl_error_ms": statistics.median(i for _, i in seen) - itl_ms,
        "itl_own_error_ms": statistics.median(a[1] - b[1] for a, b in zip(seen, wrote, strict=True)),
    }


def _ttft_ms(x: Exchange) -> float:
    return (x.first_token_ns - x.start_ns) / 1e6


def _itl_ms(times_ns: list[int]) -> float:
    return (times_ns[-1] - times_ns[0]) / (len(times_ns) - 1) / 1e6


def bench(scale: float = 1.0) -> list[dict]:
    """The published load (TTFT 250 ms, ITL 8 ms, 20 requests of 256 tokens), and one of 1000 tok/s for information."""
    n = max(2, round(20 * scale))
    published, fast = load(250, 8, n, 256), load(50, 1, n, 1024)
    found = [row(f"client at 8 ms a token: {what}", abs(published[key]), unit, at_most=target)
             for key, (what, unit, target) in SHOWN.items()]  # fmt: skip
    fast_rows = [row(f"client at 1000 tok/s: {what}", abs(fast[key]), unit) for key, (what, unit, _) in SHOWN.items()]
    return found + fast_rows


if __name__ == "__main__":
    print(json.dumps(bench(0.25), indent=1))
