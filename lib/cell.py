"""One row a cell, from its raw artifacts.

Missing values are NaN; `reason` says why a cell has none at all, `power_reason` why it has no power, `memory_reason`
why no memory. What was odd about the files is in `request_note` and `log_notes`.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd

from lib import energy, metrics, powermetrics, rates
from lib.files import TinymoeError, read_json
from lib.rates import read_rss

__all__ = ["VOID", "read_rss", "read_whole", "unreadable", "void"]

NAN = float("nan")
BACKEND_NAMES = {"llamacpp": "llama.cpp", "mlx": "mlx-lm", "mlx_lm": "mlx-lm"}
STATES = ("ok", "failed", "invalid")
# Any of these is something of a cell.
TRACES = ("cell.json", "profile_export.jsonl", "profile_export_aiperf.json")
VOID = "void: first cell after the server's start (warm-up rule)"


def read_whole(folder: Path) -> tuple[dict, pd.DataFrame, pd.DataFrame]:
    """The cell in `folder` (runs/<run>/<backend>/<model>/gen<G>/ctx<P>): its row, its requests (warm-ups included) and
    its power samples with time and phase; either frame may be empty.

    Folders of the earlier scripts (no cell.json; rss.log) are read as they are. Damage costs values and gives reasons.
    Raises TinymoeError only if there is nothing of a cell in the folder.
    """
    folder = Path(folder).absolute()
    row = _empty_row() | _identity(folder) | _source(folder) | rates.memory(folder)
    requests, summary, row["request_note"] = rates.requests_or_summary(folder)
    row |= _rates(requests, summary, row)
    power, samples = _power(folder, row, _timing(requests))
    row |= power
    if row["sleep_reason"]:
        row |= _unless_settled(row, "invalid", row["sleep_reason"])
    row |= energy.derived(row) | {"ack_note": _ack_note(row)}
    if row["state"] != "ok":
        row |= _without_values(row)
    elif row["warmup"] and not math.isnan(row["total_power_W"]):  # without power the reason for that stays
        row |= void()
    return row, requests, samples


def unreadable(folder: Path, error: Exception) -> dict:
    """The row of a cell whose files broke the reader in a way that nobody foresaw: invalid, with what was raised."""
    reason = f"could not be read: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    row = _empty_row() | _identity_by_place(folder) | {"state": "invalid", "reason": reason, "says_warmup": True}
    return row | {"power_reason": reason, "power_source": "unknown", "power_basis": "unknown", "power_scope": "unknown"}


def void() -> dict:
    """What stands in the power-derived columns of a warm-up cell: nothing, and the reason.

    The estimators themselves (`<phase>_power_median_W`, `_fit_W`, `_integral_W`) stay visible; they are in no metric,
    so that no ranking, median or best-of reads them.
    """
    names = [m.name for m in metrics.ALL if m.from_power] + list(metrics.ALSO_FROM_POWER)
    return dict.fromkeys(names, NAN) | {"power_reason": VOID}


def _without_values(row: dict) -> dict:
    """A failed or invalid cell has no values at all: they would enter medians and rankings."""
    names = [k for k in row if k.endswith(("_W", "_J")) and k != "idle_W"]
    return dict.fromkeys([*(m.name for m in metrics.ALL), *names], NAN) | {"power_reason": row["reason"]}


def _empty_row() -> dict:
    numbers = ("idle_W", "first_start_ns", "whole_s", *(f"{p}_{k}" for p in ("prefill", "decode") for k in _RAW))
    row = dict.fromkeys(_TEXTS, "") | dict.fromkeys(_COUNTS, 0) | dict.fromkeys(numbers, NAN)
    row |= {"state": "ok", "warmup": False, "says_warmup": False, "synthetic": False, "unsupported": False}
    row |= dict.fromkeys(("thermal_worst", "thermal_start", "thermal_end"))
    return row | dict.fromkeys(metrics.ALSO_FROM_POWER, NAN) | {m.name: NAN for m in metrics.ALL}


_TEXTS = (
    "backend", "model", "reason", "power_reason", "sleep_reason", "memory_reason", "phase_source", "request_note",
    "log_notes", "ack_note", "prefill_estimator", "decode_estimator", "token_source",
)  # fmt: skip
_COUNTS = ("ctx", "gen", "n", "n_failed", "n_warmup", "n_prefill_samples", "n_decode_samples", "n_power_samples")
_RAW = (
    "power_median_W", "power_fit_W", "power_fit_error_W", "power_integral_W", "window_s", "covered_s", "coverage_pct",
)  # fmt: skip


# --- who, what, where from ---


def _identity(folder: Path) -> dict:
    """Who and what: from cell.json, else from the folder's place in the run (folders of the earlier scripts)."""
    if not any((folder / name).exists() for name in TRACES):
        raise TinymoeError(f"{folder}: no cell here; a cell is <backend>/<model>/gen<G>/ctx<P> with {TRACES[1]}")
    facts, trouble = _record(folder)
    row = _identity_by_place(folder) | {k: facts[k] for k in ("backend", "model", "ctx", "gen") if k in facts}
    if not isinstance(row.get("ctx"), int) or not isinstance(row.get("gen"), int):
        raise TinymoeError(f"{folder}: no cell here; its folder is not gen<G>/ctx<P> and no cell.json says what it is")
    if trouble:
        return row | {"state": "invalid", "reason": trouble}
    return row | (_facts_of_ours(facts) if facts else {})


def _record(folder: Path) -> tuple[dict, str]:
    """cell.json, and why it cannot be trusted; an empty dict where the earlier scripts left none."""
    path = folder / "cell.json"
    if not path.exists():
        return {}, ""
    try:
        facts = read_json(path)
    except (TinymoeError, OSError) as e:
        return {}, f"cell.json is damaged: {str(e).removeprefix(f'{path}: ')}"
    if not isinstance(facts, dict) or facts.get("state") not in STATES:
        return facts if isinstance(facts, dict) else {}, "cell.json is damaged: it says no state"
    return facts, ""


def _identity_by_place(folder: Path) -> dict:
    parts = folder.parts
    try:
        ctx, gen = int(parts[-1].removeprefix("ctx")), int(parts[-2].removeprefix("gen"))
        return {"backend": BACKEND_NAMES.get(parts[-4], parts[-4]), "model": parts[-3], "ctx": ctx, "gen": gen}
    except (ValueError, IndexError):
        return {}


def _facts_of_ours(facts: dict) -> dict:
    observer, power, counts = (_dict(facts.get(key)) for key in ("observer", "power", "counts"))
    row = {
        "state": facts["state"],
        "reason": str(facts.get("reason") or ""),
        "warmup": bool(facts.get("first_of_life", False)),
        "says_warmup": "first_of_life" in facts,
        "unsupported": bool(facts.get("unsupported", False)),
        "power_trouble": str(power.get("trouble") or ""),
        "longest_silence_s": _number(power.get("longest_silence_s")),
        "window_s": _number(observer.get("window_s")),
        "settled_ns": facts.get("settled_ns", 0),
        "n_planned": _number(counts.get("planned")),
    }
    return row | {key: _number(value) for key, value in observer.items() if key.endswith("_cpu_s")}


def _source(folder: Path) -> dict:
    """Where the cell's power comes from: cell.json, else the run's manifest; the earlier scripts used powermetrics.

    If the manifest is there and damaged, source, basis and scope are "unknown".
    """
    manifest, default = {}, ("powermetrics", "measured", "package", "CPU + GPU + ANE")
    path = folder.parents[3] / "manifest.json" if len(folder.parents) > 3 else None
    if path and path.exists():
        try:
            manifest = _dict(read_json(path))
        except (TinymoeError, OSError):
            default = ("unknown",) * 4
    power = _dict(_record(folder)[0].get("power")) or _dict(manifest.get("power"))
    keys = ("kind", "basis", "scope", "rails")
    source, basis, scope, rails = (power.get(k, d) for k, d in zip(keys, default, strict=True))
    return {
        "power_source": source,
        "power_basis": basis,
        "power_scope": scope,
        "power_rails": rails,
        "idle_W": _number(_dict(manifest.get("idle")).get("power_W")),
        "synthetic": bool(manifest.get("synthetic", False)),
    }


def _dict(value: object) -> dict:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else NAN


# --- requests and power ---


def _rates(requests: pd.DataFrame, summary: dict, row: dict) -> dict:
    """Rates, and the state that the requests themselves call for where cell.json says ok or nothing."""
    if len(requests):
        found = rates.of_requests(requests, row["gen"])
        found |= _unless_settled(row, *rates.doubt(requests, row["ctx"], row["gen"]))
        planned = row.get("n_planned", NAN)
        if len(rates.measured(requests)) < planned:
            more = f"{len(rates.measured(requests))} of {planned:.0f} requests in profile_export.jsonl"
            found["request_note"] = "; ".join(n for n in (row["request_note"], more) if n)
        return found
    found = rates.of_summary(summary, row["gen"])
    return found | ({} if found["n"] else _unless_settled(row, "failed", f"no requests: {row['request_note']}"))


def _unless_settled(row: dict, state: str, reason: str) -> dict:
    """The new state, unless the cell already has a worse one with its reason."""
    return {"state": state, "reason": reason} if state and row["state"] == "ok" else {}


def _timing(requests: pd.DataFrame) -> energy.Timing | None:
    """When the measured requests ran; None without one. Those without a first token have no phases and are left out."""
    if requests.empty:
        return None
    ok = rates.good(requests)
    ok = ok[ok["ttft_ms"].notna()]
    if ok.empty:
        return None
    start_s = ok["start_ns"].to_numpy(np.int64) / 1e9
    return energy.Timing(start_s, ok["ttft_ms"].to_numpy() / 1000, ok["end_ns"].to_numpy(np.int64) / 1e9, "timestamps")


def _power(folder: Path, row: dict, timing: energy.Timing | None) -> tuple[dict, pd.DataFrame]:
    nothing = pd.DataFrame()
    if row["power_source"] == "none":
        return {"power_reason": "power was not sampled (power: none)"}, nothing
    if row.get("power_trouble"):
        return {"power_reason": row["power_trouble"]}, nothing
    log = energy.find_log(folder)
    if log is None:
        return {"power_reason": "no powermetrics.log"}, nothing
    try:
        samples = energy.read_samples(log)
    except powermetrics.PowerLogError as e:
        return {"power_reason": str(e)}, nothing
    if samples.empty:
        return {"power_reason": "the power log has no sample"}, nothing
    if timing is None and row["n"] and row["request_note"] and not math.isnan(row["ttft_ms"]):
        medians_s = row["ttft_ms"] / 1000, row["rl_ms"] / 1000
        timing = energy.place_timeline(samples, *medians_s, row["n"], row["whole_s"])
    if timing is None:
        return {"power_reason": "no request times to place the power samples by"}, nothing
    facts, samples = energy.columns(samples, timing)
    started = {} if row["first_start_ns"] == row["first_start_ns"] else {"first_start_ns": 1e9 * timing.start_s[0]}
    return facts | started, samples


def _ack_note(row: dict) -> str:
    """Says that the response header came long before the first token, where that could be mistaken for the edge."""
    if not row.get("ack_to_first_token_ms", NAN) > row.get("sample_ms", NAN):
        return ""
    return f"headers came {row['ack_to_first_token_ms']:.0f} ms before the first token; phases are split at the token"
