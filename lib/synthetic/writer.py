"""Writes a synthetic run: manifest, one server.json a server, and every cell's artifacts, cell.json last.

A run goes on where it was left: a cell that is settled under the same plan and model is not written again, an older one
is moved aside, as in a measured sweep.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import numpy as np
from rich.console import Console

from lib import ledger, models
from lib.files import TinymoeError, digest, free_MB, write_json
from lib.paths import cell_folder, relative, server_folder
from lib.plan import Cell, Plan, selected
from lib.synthetic import memory, powerlog, requests, timeline
from lib.synthetic.configs import CONFIGS
from lib.synthetic.machine import Served
from lib.synthetic.servers import SERVED

FIRST_NS = 1_783_100_000_000_000_000
"""When the first server of every synthetic run starts: a day in July 2026."""
BETWEEN_CELLS_S, LOADING_S = 5.0, 60.0
PACE = 20
"""Cells follow each other as if each had the published number of requests: what the start of a server does to its first
cell is over in the second one, however few requests are written."""
BLOCK_BYTES = {False: 1500, True: 4900}
"""Text of a block of the log, without and with each core."""
PACKED = 0.14
"""What gzip leaves of it."""
NOTE = "synthetic: no meter ran; power follows from a model of the machine (lib/synthetic/machine.py)"
POWER = {"kind": "synthetic powermetrics", "basis": "simulated", "scope": "package", "rails": "CPU + GPU + ANE"}


def run(plan: Plan, run_dir: Path, only: str, console: Console, dry_run: bool) -> int:
    """Write what is not settled yet of the selected cells; returns the exit code. TinymoeError if it cannot begin."""
    cells = list(selected(plan, only))
    begins = _begins(plan)
    todo = [cell for cell in cells if not _settled(plan, run_dir, cell)]
    need_MB = sum(_size_MB(plan, cell) for cell in todo)
    what = f"plan {plan.name} (synthetic), run {run_dir.name}: {len(todo)} of {len(cells)} cells to write"
    if dry_run:
        console.print(f"{what}, {plan.requests} requests each, about {need_MB:.0f} MB", markup=False)
        return 0
    if todo:
        ledger.check_kind(run_dir, synthetic=True)
        _check_space(run_dir, need_MB)
        with ledger.lock(run_dir):
            write_json(run_dir / "manifest.json", _manifest(plan, run_dir))
            _write_all(plan, run_dir, todo, begins, console)
    done = f"{len(todo)} cells written" if todo else "nothing to do, every cell is written"
    console.print(f"run {run_dir.name} (synthetic): {done}; artifacts in {relative(run_dir)}", markup=False)
    return 0


def _settled(plan: Plan, run_dir: Path, cell: Cell) -> bool:
    found = ledger.read(run_dir, cell)
    return found is not None and (found["plan_hash"], found.get("model_hash")) == (plan.cell_hash(cell), model_hash())


@lru_cache(maxsize=1)
def model_hash() -> str:
    """Hash of the model of the machine and of what writes it down: a cell of another one is written again."""
    return digest([path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.py"))])


def _served(cell: Cell) -> Served:
    try:
        return SERVED[cell.backend, cell.model]
    except KeyError:
        known = ", ".join("/".join(pair) for pair in SERVED)
        raise TinymoeError(f"no model of {cell.backend}/{cell.model} in lib/synthetic; there are {known}") from None


def _begins(plan: Plan) -> dict[Cell, tuple[int, float]]:
    """When each cell of the plan begins (epoch ns), and how old its server is then (s); whatever is written."""
    begins, at_s = {}, 0.0
    for backend, model in plan.servers():
        at_s += LOADING_S
        started_s = at_s
        for cell in plan.cells(backend, model):
            begins[cell] = FIRST_NS + round(at_s * 1e9), at_s - started_s
            at_s += 1.05 * _seconds(cell, max(PACE, plan.requests + plan.warmup)) + BETWEEN_CELLS_S
    return begins


def _seconds(cell: Cell, requests: int) -> float:
    served = _served(cell)
    request_s = served.ttft_s(cell.ctx) + served.osl(cell.ctx, cell.gen) * served.step_s(cell.ctx, cell.gen)
    return requests * (request_s + timeline.GAP_S)


def _size_MB(plan: Plan, cell: Cell) -> float:
    seconds = _seconds(cell, plan.requests + plan.warmup)
    blocks = seconds / (powerlog.ACHIEVED * plan.power_interval_ms / 1000)
    text = blocks * BLOCK_BYTES[plan.synthetic.per_core] * (PACKED if plan.synthetic.gzip else 1.0)
    return (text + 25 * seconds / memory.INTERVAL_S) / 1e6


def _check_space(run_dir: Path, need_MB: float) -> None:
    have_MB = free_MB(run_dir)
    if have_MB < 1.1 * need_MB:
        raise TinymoeError(f"{relative(run_dir)}: {have_MB:.0f} MB free, {need_MB:.0f} MB needed; free some space")


def _write_all(plan: Plan, run_dir: Path, todo: list[Cell], begins: dict, console: Console) -> None:
    """Servers first, then the cells on all processors, longest first so that none is left for the end."""
    for backend, model in dict.fromkeys((c.backend, c.model) for c in todo):
        folder = server_folder(run_dir, backend, model)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "server.json", _server(plan, backend, model))
    first = {next(iter(plan.cells(*server))) for server in plan.servers()}
    with ProcessPoolExecutor(os.cpu_count(), initializer=_end_with_parent) as pool:
        order = sorted(todo, key=lambda c: -_seconds(c, 1))
        jobs = [pool.submit(_write, plan, run_dir, c, *begins[c], c in first) for c in order]
        for number, _ in enumerate(_finished(pool, jobs), 1):
            if number % 20 == 0:
                console.print(f"[{number}/{len(jobs)}] cells written", markup=False)


def _end_with_parent() -> None:
    """Let this worker end when its parent is killed: it would keep the run's lock and wait for work for ever."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _finished(pool: ProcessPoolExecutor, jobs: list) -> Iterator[None]:
    """Wait for the jobs in order; whatever ends the wait also takes back what has not begun."""
    try:
        for job in jobs:
            job.result()
            yield
    except BrokenProcessPool:
        raise TinymoeError(
            "a process that wrote cells was killed, perhaps for want of memory; the same command goes on from here"
        ) from None
    except BaseException:
        pool.shutdown(wait=True, cancel_futures=True)
        raise


def _write(plan: Plan, run_dir: Path, cell: Cell, origin_ns: int, age_s: float, first: bool) -> None:
    """One cell: moved aside what an earlier attempt left, artifacts, then cell.json."""
    folder = cell_folder(run_dir, cell.backend, cell.model, cell.ctx, cell.gen)
    ledger.put_aside(run_dir, folder)
    folder.mkdir(parents=True)
    served, rng = _served(cell), np.random.default_rng([plan.seed, zlib.crc32(cell.key.encode())])
    times = timeline.make(served, cell, plan.requests, plan.warmup, origin_ns, rng)
    requests.write(folder, cell, times)
    log = folder / ("powermetrics.log.gz" if plan.synthetic.gzip else "powermetrics.log")
    powerlog.write(log, served, cell, times, plan.power_interval_ms, age_s, plan.synthetic.per_core, rng)
    memory.write(folder / "rss.csv", served, cell, times)
    ledger.write(run_dir, cell, plan, _facts(plan, times, first))


def _facts(plan: Plan, times: timeline.Timeline, first: bool) -> dict:
    window_s = float(times.end_s[-1] + timeline.TAIL_S)
    counts = {"planned": plan.requests, "sent": plan.requests, "ok": plan.requests, "failed": 0, "censored": 0}
    end_ns = times.origin_ns + round(window_s * 1e9)
    return {
        "state": "ok", "reason": "", "synthetic": True, "model_hash": model_hash(),
        "first_of_life": first, "seconds": window_s,
        "counts": counts | {"warmup": plan.warmup},
        "clocks": {"start_ns": times.origin_ns, "end_ns": end_ns, "wall_s": window_s, "monotonic_s": window_s},
        "power": POWER | {"interval_ms": plan.power_interval_ms, "note": NOTE, "trouble": ""},
    }  # fmt: skip


def _server(plan: Plan, backend: str, model: str) -> dict:
    """server.json: the command that would serve the model, and that none did."""
    known = models.get(model)
    common = {"backend": backend, "model": model, "synthetic": True, "host": "127.0.0.1", "ctx_size": plan.ctx_size}
    sizes = {"total_B": known.total_B, "active_B": known.active_B, "tiny": False, "config": CONFIGS.get(model, {})}
    return common | _launch(plan, backend, model) | sizes


def _launch(plan: Plan, backend: str, model: str) -> dict:
    """Command line and version. No file of a model is named: none was there."""
    if backend == "llama.cpp":
        flags = "-ngl 99 --parallel 1 -fa 1 -t 1 --ignore-eos --no-cache-prompt --cache-ram 0"
        words = f"llama-server -m {model}-Q4_K_M.gguf --host 127.0.0.1 -c {plan.ctx_size} {flags}"
    else:
        words = f"mlx_lm.server --model {model}-4bit --host 127.0.0.1 --prompt-cache-size 0 --decode-concurrency 1"
    return {"command": words.split(), "version": "none: synthetic run, no server was started"}


def _manifest(plan: Plan, run_dir: Path) -> dict:
    return {
        "schema": 1, "run": run_dir.name, "plan": plan.model_dump(), "seed": plan.seed, "synthetic": True,
        "power": POWER | {"interval_ms": plan.power_interval_ms, "note": NOTE},
        "idle": {"power_W": None, "basis": "not simulated"},
        "machine": "Mac16,10 (synthetic)", "chip": "Apple M4", "cores": {"physical": 10, "logical": 10},
        "memory_bytes": 16 * 2**30, "os": "macOS 15.5 (synthetic)", "os_build": "24F74", "mains_power": True,
        "python": None, "packages": {}, "git_commit": None,
        "attempts": [{"started": datetime.now(UTC).isoformat(timespec="seconds")}],
    }  # fmt: skip
