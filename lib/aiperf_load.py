"""aiperf as the load generator of a cell: a program in an environment of its own, whose files are kept as written.

`make aiperf-env` makes the environment. aiperf makes its own prompts, of the same exact lengths, with the model's
tokenizer; its start-up takes seconds a cell, and its processes a good deal more of the machine than our client does:
what it cost stands in the cell.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lib import aiperf
from lib.files import TinymoeError
from lib.machine import children_cpu_s
from lib.paths import CACHE, ROOT
from lib.plan import Cell, Plan

PROGRAM = ROOT / ".venv-aiperf" / "bin" / "aiperf"
READY = ".aiperf_results_ready.json"
FILES = ("profile_export.jsonl", "profile_export_aiperf.json")
# Start-up and tear-down of aiperf's processes beside the requests themselves.
SLACK_S = 180.0
LOOK_S = 0.5
# aiperf polls without pause while a request runs, unless a rate is set; one far above what can be reached changes
# nothing else and saves half a core.
RATE = "100"
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")  # with these set aiperf refuses a local tokenizer


class LoadError(TinymoeError):
    """aiperf is not installed or did not do its work."""


@dataclass(frozen=True)
class Outcome:
    """What came of a cell's load: `reason` is empty if aiperf completed it; `records` are its request lines."""

    reason: str
    records: list[dict]
    cpu_s: float


def command(plan: Plan, cell: Cell, base_url: str, model: str, tokenizer: Path, extras: dict, out: Path) -> list[str]:
    """aiperf's command line for one cell: one user, exact lengths, the server's own token counts."""
    return [
        str(PROGRAM), "profile", "--model", model, "--url", base_url, "--endpoint-type", "chat", "--streaming",
        "--tokenizer", str(tokenizer.resolve()),
        "--synthetic-input-tokens-mean", str(cell.ctx), "--synthetic-input-tokens-stddev", "0",
        "--output-tokens-mean", str(cell.gen), "--extra-inputs", json.dumps({"temperature": 0} | extras),
        "--use-server-token-count", "--warmup-request-count", str(plan.warmup), "--request-count", str(plan.requests),
        "--concurrency", "1", "--request-rate", RATE, "--arrival-pattern", "constant", "--random-seed", str(plan.seed),
        "--request-timeout-seconds", f"{plan.request_timeout_s:g}", "--ui", "none", "--no-gpu-telemetry",
        "--no-server-metrics", "--artifact-dir", str(out),
    ]  # fmt: skip


def environment() -> dict[str, str]:
    """The child's environment: our cache for its temporary files, and nothing that keeps it from a local tokenizer."""
    temporary = CACHE / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    return {k: v for k, v in os.environ.items() if k not in _OFFLINE} | {"TMPDIR": str(temporary)}


def run(
    plan: Plan, cell: Cell, base_url: str, model: str, tokenizer: Path, extras: dict, folder: Path,
    tick: Callable[[], None],
) -> Outcome:  # fmt: skip
    """Send the cell's requests by aiperf; its two request files end up in `folder`, the rest in `folder`/aiperf.

    `tick` is called for each request that has come back. LoadError if there is no aiperf or no warm-up in the plan
    (aiperf needs one).
    """
    if not PROGRAM.exists():
        raise LoadError("load: aiperf is not installed; 'make aiperf-env' makes its environment")
    if plan.warmup < 1:
        raise LoadError("load: aiperf needs a warm-up request; set 'warmup: 1' or more in the plan")
    out = folder / "aiperf"
    began_s = children_cpu_s()
    said = _execute(command(plan, cell, base_url, model, tokenizer, extras, out), plan, folder, out, tick)
    for name in FILES:
        if (out / name).exists():
            shutil.copy2(out / name, folder / name)
    records = aiperf.read_records(folder / FILES[0])[0] if (folder / FILES[0]).exists() else []
    return Outcome(said or incomplete(out, records, plan.requests), records, children_cpu_s() - began_s)


def incomplete(out: Path, records: list[dict], wanted: int) -> str:
    """Why aiperf's work is not complete, although it ended with 0; empty if it is."""
    measured = [r for r in records if r.get("metadata", {}).get("benchmark_phase") == "profiling"]
    failed = [r for r in measured if r.get("error")]
    if failed:
        first = failed[0]["error"]
        what = f"{first.get('type')}: {first.get('message')}"
        return f"{len(failed)} of {len(measured)} requests failed; the first: {what}"
    if len(measured) != wanted or not (out / READY).exists():
        return f"aiperf ended with {len(measured)} of {wanted} requests; see aiperf.log"
    without = sum("usage_completion_tokens" not in r.get("metrics", {}) for r in measured)
    return f"the server counted no tokens in {without} of {wanted} requests" if without else ""


def _execute(words: list[str], plan: Plan, folder: Path, out: Path, tick: Callable[[], None]) -> str:
    """Run aiperf to its end, or end it when it takes too long; a line on what went wrong, or nothing."""
    limit_s = SLACK_S + (plan.warmup + plan.requests) * plan.request_timeout_s
    with (folder / "aiperf.log").open("wb") as log:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, env=environment(),
            start_new_session=True,
        )  # fmt: skip
        try:
            late = _follow(process, out / FILES[0], time.monotonic() + limit_s, tick)
        finally:
            _end(process)
    if late:
        return f"aiperf did not end within {limit_s:.0f} s; see aiperf.log"
    return f"aiperf ended with exit code {process.returncode}; see aiperf.log" if process.returncode else ""


def _follow(process: subprocess.Popen, lines: Path, until_s: float, tick: Callable[[], None]) -> bool:
    """Wait for the end, and tick for each new request line; True if the time is over before."""
    seen = 0
    while True:
        ended = process.poll() is not None
        count = lines.read_bytes().count(b"\n") if lines.exists() else 0
        for _ in range(count - seen):
            tick()
        seen = count
        if ended or time.monotonic() > until_s:
            return not ended
        time.sleep(LOOK_S)


def _end(process: subprocess.Popen) -> None:
    """End aiperf and what it started: they are one session, whose leader is the process that we started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
