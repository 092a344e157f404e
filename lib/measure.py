"""One cell measured: samplers around warm-up and measured requests, then a verdict. The raw files are written here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from lib import aiperf, aiperf_load, rates
from lib.client import Client, Exchange
from lib.files import TinymoeError, write_json
from lib.memory import MemorySampler
from lib.meter import cpu_clock
from lib.plan import Cell, Plan
from lib.power import Meter, Source
from lib.server import Server

# A server whose connection broke is given this long to be seen dead before the next request is sent.
DYING_S = 1.0


@dataclass(frozen=True)
class Verdict:
    """`state` is ok, failed or invalid; `reason` is one line, empty when ok."""

    state: str
    reason: str = ""


@dataclass
class Prepared:
    """A cell's prompts and what the server needs in each request. Prompts are warm-ups first, then measured ones.

    `tokenizer` is the folder of the model's tokenizer, for a load generator that makes its own prompts.
    """

    prompts: list[str]
    extras: dict
    model_field: str
    tokenizer: Path | None = None


@dataclass
class Sent:
    """What came of a cell's requests: `counts` for cell.json, and the verdict of the load generator, if it has one."""

    counts: dict
    verdict: Verdict | None


def measure(
    plan: Plan, cell: Cell, server: Server, source: Source, prepared: Prepared, folder: Path,
    tick: Callable[[], None] = lambda: None, say: Callable[[str], None] = lambda _: None,
) -> dict:  # fmt: skip
    """Measure one cell into `folder` and return what belongs in cell.json; the caller writes that, last.

    `tick` is called after each request, `say` with what a person should know at once. A request that fails is recorded
    and the others go on; only when the server has died are the remaining ones not sent. Raises PowerError if the meter
    cannot start, OSError if the disk is full.
    """
    pid = server.worker_pid
    watch = Watch(pid)
    meter = Meter(source, pid, folder / "powermetrics.log", say)
    memory = MemorySampler(pid, folder / "rss.csv")
    meter.start()
    memory.start()
    started = time.time_ns(), time.monotonic()
    try:
        by = _by_aiperf if plan.load == "aiperf" else _by_client
        sent = by(plan, cell, server, prepared, folder, tick, watch)
    finally:
        clocks = _window(*started)
        meter.stop()
        memory.stop()
    observer = watch.observer(meter, memory)
    # as the analysis will read them; what the load generator itself faulted need not even be there
    requests = None if sent.verdict else aiperf.read_requests(folder / "profile_export.jsonl")
    verdict = sent.verdict or _slept(clocks) or _doubted(requests, cell)
    return {
        "state": verdict.state,
        "reason": verdict.reason,
        "counts": sent.counts,
        "short": None if requests is None else _short(requests, cell),
        "clocks": clocks,
        "power": asdict(source) | _meter_facts(meter),
        "memory": {"samples": memory.samples, "trouble": memory.trouble},
        "observer": observer,
    }


def _by_client(
    plan: Plan, cell: Cell, server: Server, prepared: Prepared, folder: Path, tick: Callable[[], None], watch: Watch
) -> Sent:
    """Send the requests by our own client and write both request files."""
    exchanges = _requests(plan, cell, server, prepared, folder, tick, watch)
    write_json(folder / "profile_export_aiperf.json", aiperf.summary(exchanges))
    return Sent(_counts(plan, exchanges), judge(plan, exchanges, server))


def _by_aiperf(
    plan: Plan, cell: Cell, server: Server, prepared: Prepared, folder: Path, tick: Callable[[], None], watch: Watch
) -> Sent:
    """Send the requests by aiperf, which writes both request files itself."""
    outcome = aiperf_load.run(
        plan, cell, server.base_url, prepared.model_field, prepared.tokenizer, prepared.extras, folder, tick
    )
    watch.add_load(outcome.cpu_s)
    reason = outcome.reason
    if reason and (death := server.death()):
        reason = f"{death}; {reason}"
    phases = [r["metadata"]["benchmark_phase"] for r in outcome.records]
    failed = sum(bool(r.get("error")) for r in outcome.records if r["metadata"]["benchmark_phase"] == "profiling")
    sent = phases.count("profiling")
    counts = {"planned": plan.requests, "sent": sent, "ok": sent - failed, "failed": failed, "censored": 0}
    return Sent(counts | {"warmup": phases.count("warmup")}, Verdict("failed", reason) if reason else None)


def _requests(
    plan: Plan, cell: Cell, server: Server, prepared: Prepared, folder: Path, tick: Callable[[], None], watch: Watch
) -> list[Exchange]:
    exchanges: list[Exchange] = []
    talk = Client(server.base_url, server.backend.dialect)
    with talk as client, (folder / "profile_export.jsonl").open("a", encoding="utf-8") as out:
        for number, prompt in enumerate(prepared.prompts):
            phase = "warmup" if number < plan.warmup else "profiling"
            index = number if phase == "warmup" else number - plan.warmup
            with watch.load():
                exchange = client.send(
                    prompt, cell.gen, phase=phase, index=index, extras=prepared.extras,
                    timeout_s=plan.request_timeout_s, model=prepared.model_field, target_isl=cell.ctx,
                )  # fmt: skip
            exchanges.append(exchange)
            aiperf.append_record(out, exchange)
            tick()
            if exchange.error and server.has_ended(_grace_s(exchange)):
                break
    return exchanges


def _grace_s(exchange: Exchange) -> float:
    """Time a server gets to be seen dead after an error: a connection that broke is the first sign of it."""
    return DYING_S if exchange.error["type"] in ("refused", "reset", "cut") else 0.0


class Watch:
    """CPU seconds of the observer: load generator, samplers, harness; and of the server, for comparison."""

    def __init__(self, server_pid: int):
        self._server_cpu_s = cpu_clock(server_pid)
        self._began = time.monotonic(), time.process_time(), self._server_cpu_s()
        self._load_cpu_s = self._program_cpu_s = 0.0

    @contextmanager
    def load(self) -> Iterator[None]:
        """Count the calling thread's CPU time inside as the load generator's."""
        began_s = time.thread_time()
        yield
        self._load_cpu_s += time.thread_time() - began_s

    def add_load(self, cpu_s: float) -> None:
        """Count CPU seconds of a load generator that is a program of its own."""
        self._load_cpu_s += cpu_s
        self._program_cpu_s += cpu_s

    def observer(self, meter: Meter, memory: MemorySampler) -> dict:
        """CPU seconds by part over the cell's window; `harness_cpu_s` is this process less its other parts."""
        began_s, began_cpu_s, began_server_s = self._began
        own_cpu_s = time.process_time() - began_cpu_s
        parts = self._load_cpu_s - self._program_cpu_s + meter.pump_cpu_s + memory.cpu_s
        return {
            "window_s": time.monotonic() - began_s,
            "load_generator_cpu_s": self._load_cpu_s,
            # the meter's share is that of all children that have ended meanwhile, and the load generator may be one
            "meter_cpu_s": meter.cpu_s - self._program_cpu_s,
            "meter_pump_cpu_s": meter.pump_cpu_s,
            "memory_sampler_cpu_s": memory.cpu_s,
            "harness_cpu_s": max(0.0, own_cpu_s - parts),
            "server_cpu_s": self._server_cpu_s() - began_server_s,
        }


def judge(plan: Plan, exchanges: list[Exchange], server: Server) -> Verdict | None:
    """What only the sweep can know against the requests: the server's death, failed ones."""
    measured = [e for e in exchanges if e.phase == "profiling"]
    failed = [e for e in measured if e.error]
    if exchanges[-1].error and (death := server.death()):
        return Verdict("failed", f"{death} in request {len(exchanges)} of {plan.warmup + plan.requests}")
    if failed:
        first = failed[0]
        return Verdict(
            "failed", f"{len(failed)} of {len(measured)} requests failed; "
            f"request {first.index + 1}: {first.error['type']}: {first.error['message']}"
        )  # fmt: skip
    cold = [e for e in measured if (e.server_timings or {}).get("cold")]
    if cold:
        load_s = cold[0].server_timings["load_duration"] / 1e9
        return Verdict(
            "invalid", f"cold: the model was loaded inside {len(cold)} of {len(measured)} requests, "
            f"for {load_s:.1f} s in request {cold[0].index + 1}"
        )  # fmt: skip
    return None


def _slept(clocks: dict) -> Verdict | None:
    """Whether the machine slept, or its clock was set, somewhere in the cell."""
    apart_s = clocks["wall_s"] - clocks["monotonic_s"]
    if abs(apart_s) > rates.SLEEP_S:
        return Verdict(
            "invalid", f"the machine slept or its clock was set: wall and monotonic clock part by {apart_s:.1f} s"
        )
    return None


def _doubted(requests: pd.DataFrame, cell: Cell) -> Verdict:
    """The analysis' own verdict on the request file just written: prompt cut, cache hit, sleep within a request."""
    state, reason = rates.doubt(requests, cell.ctx, cell.gen)
    return Verdict(state or "ok", reason)


def _counts(plan: Plan, exchanges: list[Exchange]) -> dict:
    measured = [e for e in exchanges if e.phase == "profiling"]
    return {
        "planned": plan.requests,
        "sent": len(measured),
        "ok": sum(e.error is None for e in measured),
        "failed": sum(e.error is not None for e in measured),
        "censored": sum(bool(e.error) and e.error["type"] == "timeout" for e in measured),
        "warmup": len(exchanges) - len(measured),
    }


def _short(requests: pd.DataFrame, cell: Cell) -> int:
    """Measured requests whose text ended before the length asked, by the server's own count."""
    ok = rates.good(requests)
    return int((ok["osl"][ok["token_source"] == "usage"] < cell.gen).sum())


def _window(start_ns: int, start_monotonic_s: float) -> dict:
    """The cell's window on the wall clock, and its length by both clocks: they part when the machine sleeps."""
    end_ns = time.time_ns()
    return {
        "start_ns": start_ns,
        "end_ns": end_ns,
        "wall_s": (end_ns - start_ns) / 1e9,
        "monotonic_s": time.monotonic() - start_monotonic_s,
    }


def _meter_facts(meter: Meter) -> dict:
    return {"samples": meter.samples, "longest_silence_s": meter.longest_silence_s, "trouble": meter.trouble}


def failure(error: Exception) -> dict:
    """The part of cell.json for a cell that could not be measured; an error not of ours is named with its kind."""
    kind = "" if isinstance(error, TinymoeError) else f"{type(error).__name__}: "
    return {"state": "failed", "reason": kind + " ".join(str(error).split())[:500]}
