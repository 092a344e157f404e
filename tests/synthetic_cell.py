"""Cell folders with known power: requests, power log, memory, as the published scripts or our sweep would leave them.

Nothing here is shared with the readers. Power is constant within a phase; the log integrates it over a grid of samples
that knows nothing of the requests, floors the counters to 1 mJ, the stamps to whole seconds, and prints elapsed to
0.01 ms by a clock that drifts against the wall clock.
"""

from __future__ import annotations

import datetime
import json
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

TTFT_S = {256: 0.245, 512: 0.43, 1024: 0.82, 2048: 1.65, 4096: 3.4, 30720: 34.0}
"""Time to the first token at each published prompt length, s; of the size that the report shows."""
PHASES = ("between", "prefill", "decode")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True)
class Spec:
    """What a synthetic cell is made of. Powers in W, times in s unless the name says otherwise."""

    ctx: int = 256
    gen: int = 256
    requests: int = 20
    warmup: int = 0
    ttft_s: float | None = None
    tok_s: float = 80.0
    spread: float = 0.01
    gap_s: float = 0.25
    tail_s: float = 0.002
    lead_s: float = 1.3
    power_W: dict = field(default_factory=lambda: {"prefill": 17.5, "decode": 13.0, "between": 6.0, "warmup": 15.0})
    noise_W: float = 0.0
    interval_ms: float = 56.4
    jitter_ms: float = 0.35
    drift_ppm: float | None = None
    zones: tuple[tuple[float, str], ...] = ((-np.inf, "+0530"),)
    start_s: float | None = None
    ack_s: float = 0.008
    template_tokens: int = 12
    seed: int = 0


@dataclass(frozen=True)
class Made:
    """The truth of one cell: arrays by request (epoch ns; warm-ups first) and by sample (epoch s, s, mJ)."""

    spec: Spec
    start_ns: np.ndarray
    first_ns: np.ndarray
    last_ns: np.ndarray
    end_ns: np.ndarray
    sample_end_s: np.ndarray
    elapsed_ms: np.ndarray
    rails_mJ: dict


def make(spec: Spec) -> Made:
    """Times and energies of a cell, without files."""
    rng = np.random.default_rng(spec.seed)
    began_s = spec.start_s if spec.start_s is not None else 1_783_000_000 + rng.uniform(0, 10_000_000)
    start, first, last, end = _requests(spec, began_s, rng)
    base_ns = int(start[0]) - int(began_s % 1 * 1e9) - 100_000_000_000  # times below are seconds after this
    t = [(x - base_ns) / 1e9 for x in (start, first, end)]
    ends, elapsed_ms = _samples(spec, t[0][0] - spec.lead_s, t[2][-1] + 1.0, rng)
    rails = _rails(spec, ends, *t, rng)
    return Made(spec, start, first, last, end, ends[1:] + base_ns / 1e9, elapsed_ms, rails)


def _requests(spec: Spec, began_s: float, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    n = spec.requests + spec.warmup
    ttft_s = (spec.ttft_s or TTFT_S[spec.ctx]) * (1 + spec.spread * rng.standard_normal(n).clip(-3, 3))
    decode_s = (spec.gen - 1) / spec.tok_s * (1 + spec.spread * rng.standard_normal(n).clip(-3, 3))
    gaps_s = spec.gap_s * rng.uniform(0.6, 1.4, n)
    whole_s = ttft_s + decode_s + spec.tail_s + gaps_s
    offset_s = np.append(0.0, np.cumsum(whole_s)[:-1])
    start = int(began_s * 1e9) + (offset_s * 1e9).astype(np.int64)
    first = start + (ttft_s * 1e9).astype(np.int64)
    last = first + (decode_s * 1e9).astype(np.int64)
    return start, first, last, last + int(spec.tail_s * 1e9)


def _samples(spec: Spec, from_s: float, to_s: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    count = int((to_s - from_s) / spec.interval_ms * 1e3) + 1
    drift = (rng.uniform(-40, 40) if spec.drift_ppm is None else spec.drift_ppm) * 1e-6
    length_s = (spec.interval_ms + spec.jitter_ms * rng.standard_normal(count)) / 1e3
    ends = from_s + rng.uniform(0, 0.1) + np.append(0.0, np.cumsum(length_s))
    return ends, np.round(length_s / (1 + drift) * 1e3, 2)


def _rails(spec: Spec, edges, start, first, end, rng: np.random.Generator) -> dict:
    """Whole mJ of each sample, from counters that count whole mJ: CPU a tenth of the power, GPU the rest, ANE none."""
    warm = spec.warmup
    knots, power = [edges[0] - 1.0], [spec.power_W["between"]]
    for i in range(len(start)):
        phase_W = [spec.power_W["warmup"]] * 2 if i < warm else [spec.power_W[p] for p in ("prefill", "decode")]
        knots += [start[i], first[i], end[i]]
        power += [*phase_W, spec.power_W["between"]]
    knots = np.append(knots, edges[-1] + 1.0)
    energy_J = np.append(0.0, np.cumsum(np.diff(knots) * power))
    noise_J = spec.noise_W * np.diff(edges) * rng.standard_normal(len(edges) - 1)
    each_J = np.diff(np.interp(edges, knots, energy_J)) + noise_J
    total_J = np.cumsum(np.append(rng.uniform(0, 1), each_J))
    shares = {"cpu": 0.1, "gpu": 0.9, "ane": 0.0}
    return {rail: np.diff(np.floor(total_J * share * 1e3)) for rail, share in shares.items()}


# --- files -------------------------------------------------------------------------------------------------------


def write(folder: Path, spec: Spec, kind: str = "ours", **cell_facts) -> Made:
    """Make the cell and write its folder; kind `ours` (cell.json, rss.csv) or `older` (combo_info.json, rss.log)."""
    made = make(spec)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "profile_export.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records(made)))
    (folder / "profile_export_aiperf.json").write_text(json.dumps(summary(made)))
    (folder / "powermetrics.log").write_text(log_text(made))
    if kind == "older":
        (folder / "combo_info.json").write_text(json.dumps({"prompt": spec.ctx, "gen": spec.gen}))
        (folder / "rss.log").write_text("3400000\n3500000\n3481600\n")
    else:
        times = made.start_ns[0] + np.arange(3) * 50_000_000
        rows = zip(times, (3400000, 3500000, 3481600), strict=True)
        (folder / "rss.csv").write_text("time_ns,rss_kb\n" + "".join(f"{t},{kb}\n" for t, kb in rows))
        (folder / "cell.json").write_text(json.dumps(cell_json(made, folder) | cell_facts))
    return made


def cell_json(made: Made, folder: Path) -> dict:
    """What our sweep would write last."""
    spec = made.spec
    counts = {"planned": spec.requests, "sent": spec.requests, "ok": spec.requests, "failed": 0, "warmup": spec.warmup}
    return {
        "schema": 1,
        "backend": folder.parents[2].name, "model": folder.parents[1].name, "ctx": spec.ctx, "gen": spec.gen,
        "settled_ns": int(made.end_ns[-1]) + 10**9, "state": "ok", "reason": "", "first_of_life": False,
        "counts": counts,
        "power": {
            "kind": "powermetrics", "basis": "measured", "scope": "package", "rails": "CPU + GPU + ANE", "trouble": "",
        },
        "observer": {"window_s": 1.0, "load_generator_cpu_s": 0.1},
    }  # fmt: skip


def records(made: Made) -> list[dict]:
    """Lines of profile_export.jsonl in aiperf's schema."""
    return [_record(made, i) for i in range(len(made.start_ns))]


def _record(made: Made, i: int) -> dict:
    spec = made.spec
    start, first, last, end = (int(x[i]) for x in (made.start_ns, made.first_ns, made.last_ns, made.end_ns))
    ttft_ms, latency_ms = (first - start) / 1e6, (last - start) / 1e6
    itl_ms = (latency_ms - ttft_ms) / (spec.gen - 1) if spec.gen > 1 else None
    isl = spec.ctx + spec.template_tokens
    values = {
        "request_latency": (latency_ms, "ms"), "time_to_first_token": (ttft_ms, "ms"),
        "time_to_first_output_token": (ttft_ms, "ms"), "inter_token_latency": (itl_ms, "ms"),
        "output_token_throughput_per_user": (1000 / itl_ms if itl_ms else None, "tokens/sec/user"),
        "prefill_throughput_per_user": (spec.ctx / ttft_ms * 1000, "tokens/sec/user"),
        "input_sequence_length": (spec.ctx, "tokens"), "output_sequence_length": (spec.gen, "tokens"),
        "usage_prompt_tokens": (isl, "tokens"), "usage_completion_tokens": (spec.gen, "tokens"),
    }  # fmt: skip
    warm = i < spec.warmup
    return {
        "metadata": {
            "session_num": i if warm else i - spec.warmup, "x_request_id": str(uuid.UUID(int=i)),
            "request_start_ns": start, "request_ack_ns": start + int(spec.ack_s * 1e9), "request_end_ns": end,
            "benchmark_phase": "warmup" if warm else "profiling", "was_cancelled": False,
        },
        "metrics": {k: {"value": v, "unit": unit} for k, (v, unit) in values.items() if v is not None},
    }  # fmt: skip


def summary(made: Made) -> dict:
    """profile_export_aiperf.json: the percentiles that the readers need."""
    lines = [r for r in records(made) if r["metadata"]["benchmark_phase"] == "profiling"]
    found = {"request_count": {"unit": "requests", "avg": float(len(lines))}}
    for tag in lines[0]["metrics"]:
        values = [r["metrics"][tag]["value"] for r in lines]
        points = {f"p{q}": float(np.percentile(values, q)) for q in (50, 90, 99)}
        found[tag] = {"unit": lines[0]["metrics"][tag]["unit"], "avg": float(np.mean(values)), **points}
    span_s = (int(made.end_ns[-1]) - int(made.start_ns[made.spec.warmup])) / 1e9
    return found | {"benchmark_duration": {"unit": "sec", "avg": span_s}}


def log_text(made: Made, combined: bool = True, rails: bool = True) -> str:
    """powermetrics' text of an M4; without `combined` as macOS 12 has it, without `rails` package power as on Intel."""
    head = "Machine model: Mac16,10\nOS version: 24F74\nBoot arguments: \nBoot time: Tue Jan  6 15:22:35 2026\n\n\n\n"
    return head + "\n\n".join(_block(made, i, combined, rails) for i in range(len(made.elapsed_ms)))


def _block(made: Made, i: int, combined: bool, rails: bool) -> str:
    ms = made.elapsed_ms[i]
    mJ = {rail: made.rails_mJ[rail][i] for rail in made.rails_mJ}
    mW = {rail: round(value / ms * 1e3) for rail, value in mJ.items()} | {"all": round(sum(mJ.values()) / ms * 1e3)}
    busy = mW["all"] > 7000
    mhz, active = (1550 if mW["all"] < 15000 else 1470, 99.0) if busy else (0, 0.0)
    lines = [
        f"*** Sampled system activity ({_date(made, i)}) ({ms:.2f}ms elapsed) ***", "", "",
        "**** Processor usage ****", "",
        "E-Cluster Online: 100%", "E-Cluster HW active frequency: 1080 MHz",
        "E-Cluster HW active residency:  20.00% (900 MHz:   0% 1080 MHz: 100%)",
        "E-Cluster idle residency:  80.00%", "",
        "P-Cluster HW active frequency: 4000 MHz",
        "P-Cluster HW active residency:  40.00% (912 MHz:   0% 4000 MHz: 100%)",
        "P-Cluster idle residency:  60.00%", "",
        *(f"{rail.upper()} Power: {mW[rail]} mW" for rail in ("cpu", "gpu", "ane") if rails),
        *([f"Combined Power (CPU + GPU + ANE): {mW['all']} mW"] if combined and rails else []),
        *([] if rails else [f"Intel energy model derived package power (CPUs+GT+SA): {mW['all'] / 1e3:.2f}W"]),
        "", "**** Thermal pressure ****", "", "Current pressure level: Nominal", "",
        "**** GPU usage ****", "",
        f"GPU HW active frequency: {mhz} MHz", f"GPU HW active residency: {active:6.2f}% (338 MHz:   0%)",
        f"GPU idle residency: {100 - active:6.2f}%", f"GPU Power: {mW['gpu']} mW", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _date(made: Made, i: int) -> str:
    """The whole second in which sample i ended, in the zone that holds then."""
    second = int(np.floor(made.sample_end_s[i]))
    zone = [name for since_s, name in made.spec.zones if made.sample_end_s[i] >= since_s][-1]
    offset_min = (1 if zone[0] == "+" else -1) * (int(zone[1:3]) * 60 + int(zone[3:]))
    at = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=second + 60 * offset_min)
    return f"{_DAYS[at.weekday()]} {_MONTHS[at.month - 1]} {at.day:2d} {at:%H:%M:%S} {at.year} {zone}"


def many(spec: Spec, seeds: range) -> list[Spec]:
    """The same cell with other random times, in other zones."""
    zones = ("+0530", "-0700", "+0000", "+1300", "-0330")
    return [replace(spec, seed=s, zones=((-np.inf, zones[s % len(zones)]),)) for s in seeds]
