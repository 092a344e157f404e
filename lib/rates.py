"""What a cell's requests say without a power log: rates, latencies, counts, and whether they can be used at all."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lib import aiperf, formulas

NAN = float("nan")
RSS_NAMES = ("rss.csv", "rss.log")
# Percentiles beside the median, by column.
PERCENTILES = {"ttft": (90, 99), "itl": (99,), "rl": (90, 99)}
_TAGS = {"ttft": "time_to_first_token", "itl": "inter_token_latency", "rl": "request_latency"}
# Wall and monotonic clock of a request may part by this much, s, before the machine is held to have slept.
SLEEP_S = 1.0
# Fewer prompt tokens than this share of the target mean that the server cut the prompt.
WHOLE_SHARE = 0.98


def measured(requests: pd.DataFrame) -> pd.DataFrame:
    """The requests that count, failed ones included: no warm-ups."""
    return requests[requests["phase"] == "profiling"]


def good(requests: pd.DataFrame) -> pd.DataFrame:
    """The measured requests that succeeded: no warm-ups, no errors."""
    return requests[(requests["phase"] == "profiling") & requests["error"].isna()]


def of_requests(requests: pd.DataFrame, gen: int) -> dict:
    """Latency and rate columns by the published definitions: medians and percentiles over successful requests.

    Units are in the names; NaN where no request says. With no successful request only the counts are there.
    """
    ok, sent = good(requests), measured(requests)
    counts = {"n": len(ok), "n_failed": len(sent) - len(ok), "n_warmup": len(requests) - len(sent)}
    if ok.empty:
        return counts
    row = counts | {
        "first_start_ns": int(requests["start_ns"].min()),
        "isl": ok["isl"].median(),
        "osl": ok["osl"].median(),
        "output_tok_s": ok["output_tok_s_per_user"].median(),
        "prefill_tok_s": ok["prefill_tok_s_per_user"].median(),
        "p50_decode_s": ((ok["end_ns"] - ok["start_ns"]) / 1e9 - ok["ttft_ms"] / 1000).median(),
    }
    for name, wanted in PERCENTILES.items():
        row[f"{name}_ms"] = ok[f"{name}_ms"].median()
        row |= {f"{name}_p{q}_ms": ok[f"{name}_ms"].quantile(q / 100) for q in wanted}
    return row | {"osl_mismatch_pct": formulas.osl_mismatch_pct(row["osl"], gen)} | _diagnostics(ok)


def _diagnostics(ok: pd.DataFrame) -> dict:
    """Columns that explain others: counts made without the server, first visible token, header, end of the stream."""
    first_ns = ok["start_ns"] + 1e6 * ok["ttft_ms"]
    ack_ns = pd.Series(ok["ack_ns"].to_numpy(dtype=float, na_value=NAN), index=ok.index)
    return {
        "isl_client": ok["isl_client"].median(),
        "osl_client": ok["osl_client"].median(),
        "template_tokens": (ok["isl"] - ok["isl_client"]).median(),
        "reasoning_tokens": ok["reasoning_tokens"].median(),
        "ttfv_ms": ok["ttfv_ms"].median(),
        "ack_to_first_token_ms": (first_ns - ack_ns).median() / 1e6,
        "stream_tail_ms": ((ok["end_ns"] - ok["start_ns"]) / 1e6 - ok["rl_ms"]).median(),
        "token_source": "/".join(sorted(ok["token_source"].dropna().unique())),
        "cached_tokens_max": ok["cached_tokens"].max(),
    }  # fmt: skip


def of_summary(summary: dict, gen: int) -> dict:
    """The same columns from profile_export_aiperf.json; `whole_s`: time from first start to last end (NaN if not said).

    p50_decode_s is then latency - TTFT of the medians.
    """

    def stat(tag: str, key: str = "p50") -> float:
        found = summary.get(tag)
        value = found.get(key) if isinstance(found, dict) else None
        return float(value) if isinstance(value, int | float) else NAN

    count = stat("request_count", "avg")
    row = {
        "n": int(count) if count > 0 else 0,
        "isl": stat("usage_prompt_tokens"),
        "osl": stat("usage_completion_tokens"),
        "output_tok_s": stat("output_token_throughput_per_user"),
        "prefill_tok_s": stat("prefill_throughput_per_user"),
        "whole_s": stat("benchmark_duration", "avg"),
    }
    for name, tag in (("isl", "input_sequence_length"), ("osl", "output_sequence_length")):
        row[name] = stat(tag) if pd.isna(row[name]) else row[name]
    for name, wanted in PERCENTILES.items():
        row[f"{name}_ms"] = stat(_TAGS[name])
        row |= {f"{name}_p{q}_ms": stat(_TAGS[name], f"p{q}") for q in wanted}
    row["p50_decode_s"] = (row["rl_ms"] - row["ttft_ms"]) / 1000
    return row | {"osl_mismatch_pct": formulas.osl_mismatch_pct(row["osl"], gen)}


def doubt(requests: pd.DataFrame, ctx: int, gen: int) -> tuple[str, str]:
    """State and reason where the requests cannot be used: (failed | invalid, why), else two empty strings."""
    ok, sent = good(requests), measured(requests)
    if len(sent) and ok.empty:
        return "failed", f"all {len(sent)} requests failed; the first: {sent['error'].iloc[0]}"
    if ok.empty:
        return "failed", "no measured request in profile_export.jsonl"
    reason = _slept(sent) or _truncated(ok, ctx, gen)
    if not reason and ok["cached_tokens"].max() > 0:
        reason = f"the server reused {ok['cached_tokens'].max():.0f} cached prompt tokens"
    return ("invalid", reason) if reason else ("", "")


def _slept(sent: pd.DataFrame) -> str:
    apart_s = (sent["wall_s"] - sent["monotonic_s"]).abs()
    if not apart_s.max() > SLEEP_S:
        return ""
    worst = sent.loc[apart_s.idxmax()]
    return (
        f"the machine slept or its clock was set: request {worst['index'] + 1} took {worst['wall_s']:.1f} s "
        f"by the wall clock and {worst['monotonic_s']:.1f} s by the monotonic one"
    )


def _truncated(ok: pd.DataFrame, ctx: int, gen: int) -> str:
    """The server's own count falls short of the prompt, or prompt and output always end at the same full context."""
    seen = ok[ok["token_source"] == "usage"]
    if seen["isl"].min() < WHOLE_SHARE * ctx:
        return f"truncated: the server saw {seen['isl'].min():.0f} of {ctx} prompt tokens"
    ends = (seen["isl"] + seen["osl"]).unique()
    if len(ends) == 1 and ends[0] % 1024 == 0 and seen["osl"].max() < WHOLE_SHARE * gen:
        return f"truncated: prompt and output end at {ends[0]:.0f} tokens in every request"
    return ""


def memory(folder: Path) -> dict:
    """`peak_ram_MB` (MB of 1024 x 1024 bytes, as published); NaN with a `memory_reason` if there is no sample."""
    path = next((folder / n for n in RSS_NAMES if (folder / n).exists()), None)
    rss_kb = read_rss(path)["rss_kb"] if path else []
    reason = "" if len(rss_kb) else f"{path.name} has no sample" if path else "no rss.csv"
    return {"peak_ram_MB": formulas.peak_ram_MB(rss_kb), "memory_reason": reason}


def read_rss(path: Path) -> pd.DataFrame:
    """Columns `time_ns` (not in the older rss.log) and `rss_kb`, whole numbers; other lines are left out."""
    names = ["time_ns", "rss_kb"] if path.suffix == ".csv" else ["rss_kb"]
    split = (line.split(",") for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
    rows = [r for r in split if len(r) == len(names) and all(v.strip().isascii() and v.strip().isdigit() for v in r)]
    return pd.DataFrame([[int(v) for v in r] for r in rows], columns=names, dtype="int64")


def requests_or_summary(folder: Path) -> tuple[pd.DataFrame, dict, str]:
    """Requests of a cell, or else its summary, or neither (both empty), and a note on what was odd."""
    notes = []
    try:
        requests = aiperf.read_requests(folder / "profile_export.jsonl")
        notes += requests.attrs["notes"]
        if len(requests):
            return requests, {}, "; ".join(notes)
    except aiperf.AiperfError as e:
        notes.append(str(e))
    try:
        return pd.DataFrame(), aiperf.read_summary(folder / "profile_export_aiperf.json"), "; ".join(notes)
    except aiperf.AiperfError as e:
        return pd.DataFrame(), {}, "; ".join([*notes, str(e)])
