"""What we measured, in the schema of aiperf 0.13: a line a request, and the summary of a cell.

What that schema has no word for stands under the key `tinymoe` of each line and of the summary; what only
aiperf can know (its workers, its credits) is left out.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from lib.stream import Exchange

Record = dict[str, Any]

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)

UNITS = {
    "request_latency": "ms",
    "time_to_first_token": "ms",
    "time_to_first_output_token": "ms",
    "time_to_second_token": "ms",
    "inter_token_latency": "ms",
    "inter_chunk_latency": "ms",
    "decode_duration": "ms",
    "output_token_throughput_per_user": "tokens/sec/user",
    "e2e_output_token_throughput": "tokens/sec/user",
    "prefill_throughput_per_user": "tokens/sec/user",
    "input_sequence_length": "tokens",
    "output_sequence_length": "tokens",
    "output_token_count": "tokens",
    "reasoning_token_count": "tokens",
    "osl_mismatch_diff_pct": "%",
    "usage_prompt_tokens": "tokens",
    "usage_completion_tokens": "tokens",
    "usage_total_tokens": "tokens",
    "usage_reasoning_tokens": "tokens",
    "http_req_connection_reused": "ratio",
    "error_isl": "tokens",
}
"""Metrics of one request that we write, and their units. inter_chunk_latency is a list."""

_TOTALS = {
    "total_isl": "input_sequence_length",
    "total_osl": "output_sequence_length",
    "total_output_tokens": "output_token_count",
    "total_reasoning_tokens": "reasoning_token_count",
    "total_usage_prompt_tokens": "usage_prompt_tokens",
    "total_usage_completion_tokens": "usage_completion_tokens",
    "total_usage_total_tokens": "usage_total_tokens",
    "total_usage_reasoning_tokens": "usage_reasoning_tokens",
    "total_error_isl": "error_isl",
}


def record(exchange: Exchange) -> Record:
    """One request as a line of profile_export.jsonl; without times of tokens if it failed."""
    x = exchange
    metadata = {
        "session_num": x.index,
        "x_request_id": x.request_id,
        "conversation_id": x.conversation_id,
        "turn_index": 0,
        "request_start_ns": x.start_ns,
        "request_ack_ns": x.ack_ns,
        "request_end_ns": x.end_ns,
        "benchmark_phase": x.phase,
        "profiling_index": 0 if x.phase == "profiling" else None,
        "phase_name": x.phase,
        "phase_kind": x.phase,
        "was_cancelled": False,
    }
    values = {"error_isl": x.target_isl} if x.error else _metrics(x)
    line = {
        "metadata": _known(metadata),
        "metrics": {tag: {"value": value, "unit": UNITS[tag]} for tag, value in _known(values).items()},
    }
    return line | ({"error": dict(x.error)} if x.error else {}) | {"tinymoe": _known(_beyond(x))}


def append_record(file: Path | TextIO, exchange: Exchange) -> None:
    """Append one request to a profile_export.jsonl and flush, so that a kill loses none that was measured."""
    if isinstance(file, Path):
        with file.open("a", encoding="utf-8") as f:
            return append_record(f, exchange)
    file.write(json.dumps(record(exchange), allow_nan=False, separators=(",", ":")) + "\n")
    file.flush()


def summary(records: Iterable[Record | Exchange]) -> Record:
    """Contents of profile_export_aiperf.json: statistics over the successful requests of the profiling phase.

    `records` are Exchanges or lines of profile_export.jsonl (`aiperf.read_records`). Percentiles are linear,
    std has ddof 0; rates are over the time from the first start to the last end. A metric that no request has
    is left out, so of failed requests alone only counts remain.
    """
    lines = [r if isinstance(r, dict) else record(r) for r in records]
    measured = [r for r in lines if r["metadata"]["benchmark_phase"] == "profiling"]
    good = [r for r in measured if not r.get("error")]
    warm = [r for r in lines if r["metadata"]["benchmark_phase"] == "warmup" and not r.get("error")]
    return (
        {"schema_version": "1.4"}
        | _distributions(good)
        | _scalars(measured, good)
        | {"was_cancelled": False, "is_complete": True, "error_summary": _errors(measured)}
        | ({"warmup_metrics": _distributions(warm)} if warm else {})
        | {"tinymoe": _origin(measured)}
    )


def _metrics(x: Exchange) -> dict[str, Any]:
    """Metrics of a successful request; None where not known or not defined."""
    ttft, latency = _ms(x.start_ns, x.first_token_ns), _ms(x.start_ns, x.last_token_ns)
    decode = _ms(x.first_token_ns, x.last_token_ns)
    isl, osl = x.prompt_tokens or x.target_isl, x.completion_tokens or x.chunks
    itl = decode / (osl - 1) if osl > 1 else None
    reasoning = x.reasoning_tokens if x.reasoning_tokens is not None or x.reasoning_chunks else 0
    gaps = [(b - a) / 1e6 for a, b in zip(x.chunk_ns[:-1], x.chunk_ns[1:], strict=True)]
    return {
        "request_latency": latency,
        "time_to_first_token": ttft,
        "time_to_first_output_token": _ms(x.start_ns, x.first_visible_ns),
        "time_to_second_token": gaps[0] if gaps else None,
        "inter_token_latency": itl,
        "inter_chunk_latency": gaps or None,
        "decode_duration": decode,
        "output_token_throughput_per_user": 1000 / itl if itl else None,
        "e2e_output_token_throughput": 1000 * osl / latency if latency else None,
        "prefill_throughput_per_user": 1000 * isl / ttft if isl is not None and ttft else None,
        "input_sequence_length": isl,
        "output_sequence_length": osl,
        "output_token_count": osl - reasoning if x.first_visible_ns and reasoning is not None else None,
        "reasoning_token_count": reasoning,
        "osl_mismatch_diff_pct": 100 * (osl - x.target_osl) / x.target_osl if x.target_osl else None,
        "usage_prompt_tokens": x.prompt_tokens or None,
        "usage_completion_tokens": x.completion_tokens or None,
        "usage_total_tokens": _sum(x.prompt_tokens, x.completion_tokens),
        "usage_reasoning_tokens": x.reasoning_tokens,
        "http_req_connection_reused": None if x.connection_reused is None else int(x.connection_reused),
    }


def _beyond(x: Exchange) -> dict[str, Any]:
    """What we know of a request and aiperf's schema has no place for."""
    return {
        "written_by": "tinymoe, in the schema of aiperf 0.13",
        "token_source": "usage" if x.prompt_tokens and x.completion_tokens else "chunks",
        "cached_tokens": x.cached_tokens,
        "prompt_sha256": x.prompt_sha256,
        "finish_reason": x.finish_reason,
        "model": x.model,
        "censored": x.censored,
        "chunks": x.chunks,
        "target_isl": x.target_isl,
        "target_osl": x.target_osl,
        "first_token_ns": x.first_token_ns,
        "wall_s": _seconds(x.start_ns, x.wall_end_ns),
        "monotonic_s": _seconds(x.monotonic_start_ns, x.monotonic_end_ns),
        "server_timings": None if x.server_timings is None else _finite(x.server_timings),
    }


def _distributions(records: list[Record]) -> Record:
    """Statistics of each metric that any of the records has."""
    found = {}
    for tag, unit in UNITS.items():
        values = [r["metrics"][tag]["value"] for r in records if tag in r["metrics"]]
        pooled = np.hstack(values) if values else np.array([])  # inter_chunk_latency is a list a request
        if pooled.size:
            found[tag] = {"unit": unit} | _statistics(pooled)
    return found


def _statistics(x: np.ndarray) -> dict[str, float | int]:
    percentiles = zip(PERCENTILES, np.percentile(x, PERCENTILES), strict=True)
    return (
        {"avg": float(x.mean())}
        | {f"p{q}": float(value) for q, value in percentiles}
        | {"min": float(x.min()), "max": float(x.max()), "std": float(x.std())}
        | {"count": int(x.size), "sum": float(x.sum())}
    )


def _scalars(measured: list[Record], good: list[Record]) -> Record:
    """Counts, totals and rates of the whole phase, from its first start to its last end."""
    failed = len(measured) - len(good)
    totals = {name: _total(measured if name == "total_error_isl" else good, tag)
              for name, tag in _TOTALS.items()}  # fmt: skip
    isl, osl = totals["total_isl"], totals["total_osl"]
    span_s = (_end_ns(measured) - _start_ns(measured)) / 1e9
    rates = {"request_throughput": ("requests/sec", len(good)), "input_token_throughput": ("tokens/sec", isl),
             "output_token_throughput": ("tokens/sec", osl),
             "total_token_throughput": ("tokens/sec", _sum(isl, osl))}  # fmt: skip
    scalars = {
        "request_count": ("requests", len(good)),
        "completed_request_count": ("requests", len(measured)),
        "error_request_count": ("requests", failed or None),
        "request_error_rate": ("%", 100 * failed / len(measured) if measured else None),
        "benchmark_duration": ("sec", span_s if measured else None),
        **{name: ("tokens", value) for name, value in totals.items()},
        **{k: (unit, v / span_s if v is not None and span_s > 0 else None) for k, (unit, v) in rates.items()},
    }
    return {k: {"unit": unit, "avg": float(v)} for k, (unit, v) in scalars.items() if v is not None}


def _errors(measured: list[Record]) -> list[Record]:
    seen = Counter(json.dumps(r["error"], sort_keys=True) for r in measured if r.get("error"))
    return [{"error_details": json.loads(text), "count": n} for text, n in seen.items()]


def _origin(measured: list[Record]) -> Record:
    """Who wrote the summary, and what of the phase its schema has no place for."""
    own = [r.get("tinymoe", {}) for r in measured]
    cached = [o["cached_tokens"] for o in own if "cached_tokens" in o]
    return _known({
        "written_by": "tinymoe, in the schema of aiperf 0.13",
        "start_ns": _start_ns(measured) or None,
        "end_ns": _end_ns(measured) or None,
        "token_source": dict(Counter(o["token_source"] for o in own if "token_source" in o)),
        "cached_tokens_max": max(cached, default=None),
        "censored_request_count": sum(o.get("censored", False) for o in own),
    })  # fmt: skip


def _start_ns(records: list[Record]) -> int:
    return min((r["metadata"]["request_start_ns"] for r in records), default=0)


def _end_ns(records: list[Record]) -> int:
    return max((r["metadata"]["request_end_ns"] for r in records), default=0)


def _total(records: list[Record], tag: str) -> float | None:
    values = [r["metrics"][tag]["value"] for r in records if tag in r["metrics"]]
    return sum(values) if values else None


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _finite(value: Any) -> Any:
    """`value` without NaN and infinity, which JSON has no word for (llama.cpp divides by a time of zero)."""
    if isinstance(value, Mapping):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _ms(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / 1e6


def _seconds(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / 1e9


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


