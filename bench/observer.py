"""What a cell's samplers and harness cost, around a load of known pace: CPU seconds per second of the cell's window."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

from bench import row
from bench.client import stub_process
from lib import power
from lib.measure import Prepared, measure
from lib.paths import CACHE
from lib.plan import Cell, Plan

REQUESTS, TOKENS, TTFT_S, ITL_S = 20, 256, 0.25, 0.008


def bench(scale: float = 1.0) -> list[dict]:
    """A cell of the published pace (250 ms to the first token, 8 ms a token) against the stub server."""
    plan = Plan(
        backends=["llama.cpp"], models=["tiny-trinity"], prompts=[8], gens=[TOKENS],
        requests=max(2, round(REQUESTS * scale)), warmup=1, power="modelled",
    )  # fmt: skip
    with (
        stub_process("--ttft-s", str(TTFT_S), "--itl-s", str(ITL_S)) as (url, pid),
        tempfile.TemporaryDirectory(dir=_folder()) as folder,
    ):
        server = SimpleNamespace(pid=pid, base_url=url, has_ended=lambda _: False, death=lambda: "")
        prepared = Prepared([f"prompt {n}" for n in range(plan.requests + plan.warmup)], {}, "stub")
        cell = Cell("llama.cpp", "tiny-trinity", 8, TOKENS)
        facts = measure(plan, cell, server, power.choose(plan), prepared, Path(folder), lambda: None)
    return _rows(facts["observer"])


def _folder() -> Path:
    path = CACHE / "bench"
    path.mkdir(parents=True, exist_ok=True)
    return path


def _rows(observer: dict) -> list[dict]:
    window_s = observer["window_s"]
    parts = ("meter_cpu_s", "meter_pump_cpu_s", "memory_sampler_cpu_s", "harness_cpu_s")
    unit = "CPU s per s"
    return [
        row("load generator in a cell", observer["load_generator_cpu_s"] / window_s, unit, at_most=0.1),
        row("samplers and harness in a cell", sum(observer[p] for p in parts) / window_s, unit, at_most=0.05),
        *(row(f"  {p.removesuffix('_cpu_s').replace('_', ' ')}", observer[p] / window_s, unit) for p in parts),
    ]


if __name__ == "__main__":
    print(json.dumps(bench(0.25), indent=1))
