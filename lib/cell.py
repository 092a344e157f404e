"""One row a cell, from its raw artifacts.

Missing values are NaN; `reason` says why a cell has none at all, `power_reason` why it has no power.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from lib import aiperf, energy, formulas, metrics, powermetrics
from lib.files import TinymoeError, read_json

NAN = float("nan")
BACKEND_NAMES = {"llamacpp": "llama.cpp", "mlx": "mlx-lm", "mlx_lm": "mlx-lm"}
RSS_NAMES = ("rss.csv", "rss.log")
VOID = "void: first cell after the server's start (warm-up rule)"


def read_whole(folder: Path) -> tuple[dict, pd.DataFrame, pd.DataFrame]:
    """The cell in `folder` (runs/<run>/<backend>/<model>/gen<G>/ctx<P>): its row, its requests (warm-ups included) and its
    power samples with time and phase; either frame may be empty.

    Folders of the earlier scripts (no cell.json; rss.log) are read as they are. Raises TinymoeError if there is nothing
    of a cell in the folder or its cell.json is damaged.
    """
    row = _empty_row() | _identity(folder) | _source(folder)
    requests, samples = pd.DataFrame(), pd.DataFrame()
    if row["state"] == "failed" and not (folder / "profile_export.jsonl").exists():
        return row, requests, samples
    try:
        requests = aiperf.read_requests(folder / "profile_export.jsonl")
        timing = _timing(requests)
        row |= _rates(requests, row["gen"])
    except aiperf.AiperfError as e:
        row |= _summary_rates(folder, row["gen"])
        timing = _timeline(folder)
        row["request_note"] = str(e)
    row["peak_ram_MB"] = _peak_ram_MB(folder)
    power, samples = _power(folder, row, timing)
    row |= power
    row |= energy.derived(row)
    if row["state"] != "ok":
        row |= _without_values(row)
    elif row["warmup"]:
        row |= void()
    return row, requests, samples


def void() -> dict:
    """What stands in the power-derived columns of a warm-up cell: nothing, and the reason."""
    names = [m.name for m in metrics.ALL if m.from_power] + ["net_total_J"]
    return dict.fromkeys(names, NAN) | {"power_reason": VOID}


def _without_values(row: dict) -> dict:
    """A failed or invalid cell has no values at all: they would enter medians and rankings."""
    return dict.fromkeys((m.name for m in metrics.ALL), NAN) | {"net_total_J": NAN, "power_reason": row["reason"]}


def _empty_row() -> dict:
    return {
        "backend": "", "model": "", "ctx": 0, "gen": 0, "n": 0, "state": "ok", "reason": "", "warmup": False,
        "synthetic": False, "unsupported": False, "power_reason": "", "phase_source": "", "request_note": "",
        "thermal_worst": None, "log_notes": "", "prefill_estimator": "", "decode_estimator": "", "idle_W": NAN, "first_start_ns": NAN,
        "n_prefill_samples": 0, "n_decode_samples": 0, "n_power_samples": 0, "net_total_J": NAN,
    } | {m.name: NAN for m in metrics.ALL}  # fmt: skip


def _identity(folder: Path) -> dict:
    """Who and what: from cell.json, else from the folder's place in the run (folders of the earlier scripts)."""
    record = folder / "cell.json"
    if record.exists():
        facts = read_json(record)
        row = {key: facts[key] for key in ("backend", "model", "ctx", "gen", "state", "reason")}
        return row | _facts_of_ours(facts)
    try:
        ctx, gen = int(folder.name.removeprefix("ctx")), int(folder.parent.name.removeprefix("gen"))
    except ValueError:
        raise TinymoeError(f"{folder}: no cell here; a cell's folder is <backend>/<model>/gen<G>/ctx<P>") from None
    if not any((folder / name).exists() for name in ("profile_export.jsonl", "profile_export_aiperf.json")):
        raise TinymoeError(f"{folder}: nothing was measured here (no profile_export files)")
    backend = folder.parents[2].name
    return {"backend": BACKEND_NAMES.get(backend, backend), "model": folder.parents[1].name, "ctx": ctx, "gen": gen}


def _facts_of_ours(facts: dict) -> dict:
    observer, power = facts.get("observer", {}), facts.get("power", {})
    row = {
        "warmup": bool(facts.get("first_of_life", False)),
        "unsupported": bool(facts.get("unsupported", False)),
        "power_trouble": power.get("trouble", ""),
        "longest_silence_s": power.get("longest_silence_s", NAN),
        "window_s": observer.get("window_s", NAN),
        "settled_ns": facts.get("settled_ns", 0),
    }
    return row | {key: value for key, value in observer.items() if key.endswith("_cpu_s")}


def _source(folder: Path) -> dict:
    """Where the cell's power comes from: from the run's manifest; folders of the earlier scripts used powermetrics."""
    path = folder.parents[3] / "manifest.json"
    manifest = read_json(path) if path.exists() else {}
    record = folder / "cell.json"
    power = (read_json(record).get("power") if record.exists() else None) or manifest.get("power") or {}
    return {
        "power_source": power.get("kind", "powermetrics"),
        "power_basis": power.get("basis", "measured"),
        "power_scope": power.get("scope", "package"),
        "power_rails": power.get("rails", "CPU + GPU + ANE"),
        "idle_W": _number((manifest.get("idle") or {}).get("power_W")),
        "synthetic": bool(manifest.get("synthetic", False)),
    }


def _number(value: float | None) -> float:
    return NAN if value is None else float(value)


def good(requests: pd.DataFrame) -> pd.DataFrame:
    """The measured requests that succeeded: no warm-ups, no errors."""
    return requests[(requests["phase"] == "profiling") & requests["error"].isna()]


def _rates(requests: pd.DataFrame, gen: int) -> dict:
    """Latency and rate columns by the published definitions: medians and percentiles over successful requests."""
    ok = good(requests)
    if ok.empty:
        return {"n": 0}
    decode_s = (ok["end_ns"] - ok["start_ns"]) / 1e9 - ok["ttft_ms"] / 1000
    row = {
        "n": len(ok),
        "first_start_ns": int(requests["start_ns"].min()),
        "isl": ok["isl"].median(),
        "osl": ok["osl"].median(),
        "output_tok_s": ok["output_tok_s_per_user"].median(),
        "prefill_tok_s": ok["prefill_tok_s_per_user"].median(),
        "p50_decode_s": decode_s.median(),
        "token_source": "/".join(sorted(ok["token_source"].dropna().unique())),
        "cached_tokens_max": ok["cached_tokens"].max(),
    }
    for name, wanted in (("ttft", (90, 99)), ("itl", (99,)), ("rl", (90, 99))):
        row[f"{name}_ms"] = ok[f"{name}_ms"].median()
        row |= {f"{name}_p{q}_ms": ok[f"{name}_ms"].quantile(q / 100) for q in wanted}
    return row | {"osl_mismatch_pct": formulas.osl_mismatch_pct(row["osl"], gen)}


def _summary_rates(folder: Path, gen: int) -> dict:
    """The same columns from the summary file, when the requests are not there; p50_decode_s is RL - TTFT of medians."""
    summary = aiperf.read_summary(folder / "profile_export_aiperf.json")

    def stat(tag: str, key: str = "p50") -> float:
        return _number(summary.get(tag, {}).get(key))

    row = {
        "n": int(summary.get("request_count", {}).get("avg", 0)),
        "isl": stat("input_sequence_length"),
        "osl": stat("output_sequence_length"),
        "output_tok_s": stat("output_token_throughput_per_user"),
        "prefill_tok_s": stat("prefill_throughput_per_user"),
    }
    for name, tag, wanted in (
        ("ttft", "time_to_first_token", (90, 99)),
        ("itl", "inter_token_latency", (99,)),
        ("rl", "request_latency", (90, 99)),
    ):
        row[f"{name}_ms"] = stat(tag)
        row |= {f"{name}_p{q}_ms": stat(tag, f"p{q}") for q in wanted}
    row["p50_decode_s"] = (row["rl_ms"] - row["ttft_ms"]) / 1000
    return row | {"osl_mismatch_pct": formulas.osl_mismatch_pct(row["osl"], gen)}


def _timing(requests: pd.DataFrame) -> energy.Timing | None:
    ok = good(requests)
    if ok.empty:
        return None
    start_s = ok["start_ns"].to_numpy(np.int64) / 1e9
    return energy.Timing(start_s, ok["ttft_ms"].to_numpy() / 1000, ok["end_ns"].to_numpy(np.int64) / 1e9, "timestamps")


def _timeline(folder: Path) -> energy.Timing | None:
    """Requests laid end to end from the log's first sample, by TTFT and latency p50: the published fallback.

    None where log or summary are missing. The cell is marked `timeline`.
    """
    log = energy.find_log(folder)
    summary = aiperf.read_summary(folder / "profile_export_aiperf.json")
    try:
        ttft_s, rl_s = (summary[tag]["p50"] / 1000 for tag in ("time_to_first_token", "request_latency"))
        n = int(summary["request_count"]["avg"])
        first = energy.read_samples(log).iloc[0] if log else None
    except (KeyError, IndexError, TinymoeError):
        return None
    if first is None or n < 1:
        return None
    start_s = first["time_s"] - first["elapsed_ms"] / 1000 + rl_s * np.arange(n)
    return energy.Timing(start_s, np.full(n, ttft_s), start_s + rl_s, "timeline")


def _power(folder: Path, row: dict, timing: energy.Timing | None) -> tuple[dict, pd.DataFrame]:
    nothing = pd.DataFrame()
    if row["power_source"] == "none":
        return {"power_reason": "power was not sampled (power: none)"}, nothing
    if row.get("power_trouble"):
        return {"power_reason": row["power_trouble"]}, nothing
    log = energy.find_log(folder)
    if log is None:
        return {"power_reason": "no powermetrics.log"}, nothing
    if timing is None:
        return {"power_reason": "no request times to place the power samples by"}, nothing
    try:
        samples = energy.read_samples(log)
    except powermetrics.PowerLogError as e:
        return {"power_reason": str(e)}, nothing
    if samples.empty:
        return {"power_reason": "the power log has no sample"}, nothing
    return energy.columns(samples, timing)


def _peak_ram_MB(folder: Path) -> float:
    """Largest RSS in MB of 1024 x 1024 bytes, as published; NaN if no sample is there."""
    path = next((folder / n for n in RSS_NAMES if (folder / n).exists()), None)
    if path is None:
        return NAN
    rss_kb = read_rss(path)["rss_kb"]
    return float(rss_kb.max()) / 1024 if len(rss_kb) else NAN


def read_rss(path: Path) -> pd.DataFrame:
    """`time_ns` (missing in the older rss.log) and `rss_kb`; lines that are not whole numbers are left out."""
    has_time = path.suffix == ".csv"
    names = ["time_ns", "rss_kb"] if has_time else ["rss_kb"]
    frame = pd.read_csv(path, header=0 if has_time else None, names=names, dtype=str, on_bad_lines="skip")
    return frame.apply(pd.to_numeric, errors="coerce").dropna().astype("int64")
