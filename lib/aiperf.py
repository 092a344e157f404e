"""aiperf's files: requests and their summary, written in its 0.13 schema and read from it or from us.

Definitions are aiperf's: a request's latency ends with its last text, the time to its first token is that
of any channel, and ITL is the time between the two over one token less than came. What aiperf's schema has
no word for stands under the key `tinymoe` of each line and of the summary; what only aiperf can know (its
workers, its credits) is left out.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
import pandas as pd

from lib.files import TinymoeError

if TYPE_CHECKING:
    from lib.client import Exchange

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

COLUMNS = {
    "index": "int64", "phase": "object", "start_ns": "int64", "ack_ns": "Int64", "end_ns": "int64",
    "ttft_ms": "float64", "ttfv_ms": "float64", "rl_ms": "float64", "itl_ms": "float64",
    "isl": "float64", "osl": "float64",
    "output_tok_s_per_user": "float64", "prefill_tok_s_per_user": "float64",
    "cached_tokens": "float64", "reasoning_tokens": "float64", "token_source": "object",
    "isl_client": "float64", "osl_client": "float64", "target_osl": "float64",
    "error": "object", "censored": "bool", "finish_reason": "object",
    "wall_s": "float64", "monotonic_s": "float64", "prompt_sha256": "object",
}  # fmt: skip
"""Columns of `read_requests` and their types."""


class AiperfError(TinymoeError):
    """A file of requests or their summary that is not there or is not what its name says."""


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

    Percentiles are linear, std has ddof 0. Raises AiperfError if no request of the profiling phase is given.
    """
    lines = [r if isinstance(r, dict) else record(r) for r in records]
    measured = [r for r in lines if r["metadata"]["benchmark_phase"] == "profiling"]
    if not measured:
        raise AiperfError("no request of the profiling phase; there is nothing to summarise")
    good = [r for r in measured if "error" not in r]
    warm = [r for r in lines if r["metadata"]["benchmark_phase"] == "warmup" and "error" not in r]
    return (
        {"schema_version": "1.4"}
        | _distributions(good)
        | _scalars(measured, good)
        | {"was_cancelled": False, "is_complete": True, "error_summary": _errors(measured)}
        | ({"warmup_metrics": _distributions(warm)} if warm else {})
        | {"tinymoe": _origin(measured)}
    )


def read_records(path: Path) -> tuple[list[Record], list[str]]:
    """The lines of a profile_export.jsonl, in file order, and notes on those that had to be left out.

    Raises AiperfError if the file is not there or cannot be read.
    """
    try:
        *lines, last = path.read_bytes().split(b"\n")
    except OSError as e:
        raise AiperfError(f"{path}: {e.strerror}; measure the cell again or point to its folder") from e
    records, notes = [], []
    for number, line in enumerate([*lines, last], start=1):
        if line.strip():
            found = _parsed(line)
            if isinstance(found, dict):
                records.append(found)
            elif number > len(lines):
                notes.append(f"cut last line dropped (line {number}, {len(line)} bytes)")
            else:
                notes.append(f"line {number} left out: {found}")
    if not records:
        notes.append("no request in the file")
    return records, notes


def read_requests(path: Path) -> pd.DataFrame:
    """One row a request of a profile_export.jsonl, ours or aiperf's own, sorted by start.

    Columns are COLUMNS. `isl`, `osl` and the rates follow the server's counts (`token_source` usage); where
    it gave none they follow aiperf's tokenizer (client) or the number of chunks (chunks). `isl_client` and
    `osl_client` are the counts made without the server: aiperf's, or the length that our prompt's content was
    made to have. `ttfv_ms` is the first visible token. `wall_s` and `monotonic_s` time the request by either
    clock and part if the machine slept; aiperf keeps no second clock, so there the first is end - start and
    the second its own total, or failing that the latency to the last token. A failed request keeps its row:
    `error` is its text, its metrics are NaN, and `censored` says that the deadline ended it.

    `attrs["notes"]` lists what was odd: a cut last line, a damaged line and its number, missing counts.
    Raises AiperfError if the file is not there or cannot be read.
    """
    records, notes = read_records(Path(path))
    rows = sorted((_row(r) for r in records), key=lambda row: row["start_ns"])
    frame = pd.DataFrame({c: pd.Series([row[c] for row in rows], dtype=kind) for c, kind in COLUMNS.items()})
    frame.attrs["notes"] = notes + _doubts(frame)
    return frame


def read_summary(path: Path) -> Record:
    """A profile_export_aiperf.json as a dict. Raises AiperfError if it is not there or no JSON object."""
    try:
        value = json.loads(Path(path).read_bytes())
    except OSError as e:
        raise AiperfError(f"{path}: {e.strerror}; if every request failed, aiperf writes no summary") from e
    except (ValueError, RecursionError) as e:
        raise AiperfError(f"{path}: not JSON ({e}); make it again from profile_export.jsonl") from e
    if not isinstance(value, dict):
        raise AiperfError(f"{path}: not a JSON object; make it again from profile_export.jsonl")
    return value


# Writing


def _metrics(x: Exchange) -> dict[str, Any]:
    """Metrics of a successful request; None where not known or not defined."""
    ttft, latency = _ms(x.start_ns, x.first_token_ns), _ms(x.start_ns, x.last_token_ns)
    decode = _ms(x.first_token_ns, x.last_token_ns)
    isl = x.target_isl if x.prompt_tokens is None else x.prompt_tokens
    osl = x.chunks if x.completion_tokens is None else x.completion_tokens
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
        "usage_prompt_tokens": x.prompt_tokens,
        "usage_completion_tokens": x.completion_tokens,
        "usage_total_tokens": _sum(x.prompt_tokens, x.completion_tokens),
        "usage_reasoning_tokens": x.reasoning_tokens,
        "http_req_connection_reused": None if x.connection_reused is None else int(x.connection_reused),
    }


def _beyond(x: Exchange) -> dict[str, Any]:
    """What we know of a request and aiperf's schema has no place for."""
    return {
        "written_by": "tinymoe, in the schema of aiperf 0.13",
        "token_source": "chunks" if None in (x.prompt_tokens, x.completion_tokens) else "usage",
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
    span_s = _span_ns(measured) / 1e9
    rates = {"request_throughput": ("requests/sec", len(good)), "input_token_throughput": ("tokens/sec", isl),
             "output_token_throughput": ("tokens/sec", osl),
             "total_token_throughput": ("tokens/sec", _sum(isl, osl))}  # fmt: skip
    scalars = {
        "request_count": ("requests", len(good)),
        "completed_request_count": ("requests", len(measured)),
        "error_request_count": ("requests", failed or None),
        "request_error_rate": ("%", 100 * failed / len(measured)),
        "benchmark_duration": ("sec", span_s),
        **{name: ("tokens", value) for name, value in totals.items()},
        **{k: (unit, v / span_s if v is not None and span_s > 0 else None) for k, (unit, v) in rates.items()},
    }
    return {k: {"unit": unit, "avg": float(v)} for k, (unit, v) in scalars.items() if v is not None}


def _errors(measured: list[Record]) -> list[Record]:
    seen = Counter(json.dumps(r["error"], sort_keys=True) for r in measured if "error" in r)
    return [{"error_details": json.loads(text), "count": n} for text, n in seen.items()]


def _origin(measured: list[Record]) -> Record:
    """Who wrote the summary, and what of the phase its schema has no place for."""
    own = [r.get("tinymoe", {}) for r in measured]
    cached = [o["cached_tokens"] for o in own if "cached_tokens" in o]
    return _known({
        "written_by": "tinymoe, in the schema of aiperf 0.13",
        "start_ns": min(r["metadata"]["request_start_ns"] for r in measured),
        "end_ns": max(r["metadata"]["request_end_ns"] for r in measured),
        "token_source": dict(Counter(o["token_source"] for o in own if "token_source" in o)),
        "cached_tokens_max": max(cached, default=None),
        "censored_request_count": sum(o.get("censored", False) for o in own),
    })  # fmt: skip


def _span_ns(records: list[Record]) -> int:
    times = [r["metadata"] for r in records]
    return max(t["request_end_ns"] for t in times) - min(t["request_start_ns"] for t in times)


def _total(records: list[Record], tag: str) -> float | None:
    values = [r["metrics"][tag]["value"] for r in records if tag in r["metrics"]]
    return sum(values) if values else None


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _finite(value: Any) -> Any:
    """`value` without NaN and infinity, which JSON has no word for (llama.cpp divides by a time of zero)."""
    if isinstance(value, Mapping):
        return {key: _finite(v) for key, v in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _ms(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / 1e6


def _seconds(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / 1e9


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


# Reading


def _parsed(line: bytes) -> Record | str:
    """A line as a record, or what is wrong with it."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return "not JSON"
    metadata = found.get("metadata") if isinstance(found, dict) else None
    if not isinstance(metadata, dict):
        return "no metadata"
    for key in ("request_start_ns", "request_end_ns"):
        if type(metadata.get(key)) is not int or not 0 <= metadata[key] < 2**63:
            return f"no {key}"
    return found


def _row(found: Record) -> dict[str, Any]:
    """One row of `read_requests`."""
    metadata, own = found["metadata"], _dict(found.get("tinymoe"))
    error = _error(found)
    start, end, ack = (metadata.get(f"request_{k}_ns") for k in ("start", "end", "ack"))
    total = _value(found, "http_req_total", "request_latency") / 1e3
    index = metadata.get("session_num")
    return {
        "index": index if type(index) is int else -1,
        "phase": str(metadata.get("benchmark_phase", "profiling")),
        "start_ns": start,
        "ack_ns": ack if type(ack) is int else pd.NA,
        "end_ns": end,
        **(_times_and_counts(found, own) if error is None else _NOTHING),
        "cached_tokens": _number(own.get("cached_tokens")),
        "target_osl": _target_osl(found, own),
        "error": error,
        "censored": bool(own.get("censored", error is not None and "timeout" in error.split(":")[0].lower())),
        "finish_reason": own.get("finish_reason"),
        "wall_s": _number(own.get("wall_s")) if own else (end - start) / 1e9,
        "monotonic_s": _number(own.get("monotonic_s")) if own else total,
        "prompt_sha256": own.get("prompt_sha256"),
    }


_NOTHING: dict[str, Any] = dict.fromkeys(
    ("ttft_ms", "ttfv_ms", "rl_ms", "itl_ms", "isl", "osl", "output_tok_s_per_user", "prefill_tok_s_per_user",
     "reasoning_tokens", "isl_client", "osl_client"), math.nan
) | {"token_source": None}  # fmt: skip


def _times_and_counts(found: Record, own: Record) -> dict[str, Any]:
    """Metrics of a successful request, with rates by the count that `isl` and `osl` show."""
    isl_file, osl_file = _value(found, "input_sequence_length"), _value(found, "output_sequence_length")
    isl = _value(found, "usage_prompt_tokens", "input_sequence_length")
    osl = _value(found, "usage_completion_tokens", "output_sequence_length")
    ttft, latency = _value(found, "time_to_first_token"), _value(found, "request_latency")
    itl, rate = _value(found, "inter_token_latency"), _value(found, "output_token_throughput_per_user")
    if osl != osl_file and not math.isnan(osl):  # aiperf divided by its own count
        itl = (latency - ttft) / (osl - 1) if osl > 1 else math.nan
        rate = 1000 / itl if itl > 0 else math.nan
    prefill = _value(found, "prefill_throughput_per_user")
    if isl != isl_file and not math.isnan(isl):
        prefill = 1000 * isl / ttft if ttft > 0 else math.nan
    return {
        "ttft_ms": ttft, "ttfv_ms": _value(found, "time_to_first_output_token"), "rl_ms": latency,
        "itl_ms": itl, "isl": isl, "osl": osl,
        "output_tok_s_per_user": rate, "prefill_tok_s_per_user": prefill,
        "reasoning_tokens": _value(found, "usage_reasoning_tokens", "reasoning_token_count"),
        "isl_client": _number(own.get("target_isl")) if own else isl_file,
        "osl_client": _number(own.get("chunks")) if own else osl_file,
        "token_source": own.get("token_source") or _source(found, isl, osl),
    }  # fmt: skip


def _source(found: Record, isl: float, osl: float) -> str | None:
    if math.isnan(isl) or math.isnan(osl):
        return None
    by_server = {"usage_prompt_tokens", "usage_completion_tokens"} <= _dict(found.get("metrics")).keys()
    return "usage" if by_server else "client"


def _target_osl(found: Record, own: Record) -> float:
    """Tokens asked for; aiperf says it only through the mismatch of its own count."""
    if own:
        return _number(own.get("target_osl"))
    mismatch, osl = _value(found, "osl_mismatch_diff_pct"), _value(found, "output_sequence_length")
    return round(osl / (1 + mismatch / 100)) if osl > 0 and mismatch > -100 else math.nan


def _error(found: Record) -> str | None:
    error = found.get("error")
    if error:
        said = _dict(error)
        return f"{said.get('type', 'error')}: {' '.join(str(said.get('message', error)).split())[:300]}"
    return "cancelled: by whoever ran the load" if found["metadata"].get("was_cancelled") is True else None


def _value(found: Record, *tags: str) -> float:
    """The first of these metrics that the record has, as a float; NaN if none."""
    metrics = _dict(found.get("metrics"))
    values = (_number(_dict(metrics.get(tag)).get("value")) for tag in tags)
    return next((v for v in values if not math.isnan(v)), math.nan)


def _number(value: Any) -> float:
    """A finite number as a float; anything else is missing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:
        return math.nan


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _doubts(frame: pd.DataFrame) -> list[str]:
    """Notes on requests that look whole and may not be."""
    good = frame[frame["error"].isna()]
    missing = int((good["token_source"] != "usage").sum())
    if not missing:
        return []
    return [f"{missing} of {len(good)} requests without the server's token count: counts are the client's; "
            "aiperf also takes an error inside a stream for the end of the answer"]  # fmt: skip
