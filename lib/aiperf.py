"""aiperf's files, requests and their summary: read, be they aiperf's own or ours, and written in its schema.

Definitions are aiperf's: a request's latency ends with its last text, the time to its first token is that
of any channel, and ITL is the time between the two over one token less than came.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.aiperf_export import Record, append_record, record, summary
from lib.files import TinymoeError

__all__ = ["COLUMNS", "AiperfError", "append_record", "read_records", "read_requests", "read_summary",
           "record", "summary"]  # fmt: skip

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

    `attrs["notes"]` lists what was odd: a cut last line, a damaged line and its number, missing counts, answers that
    were read late (`is_bunched`), whose token times are NaN.
    Raises AiperfError if the file is not there or cannot be read.
    """
    records, notes = read_records(Path(path))
    rows = sorted((_row(r) for r in records), key=lambda row: row["start_ns"])
    frame = pd.DataFrame({c: pd.Series([row[c] for row in rows], dtype=kind) for c, kind in COLUMNS.items()})
    bunched = sum(is_bunched(r) for r in records if _error(r) is None)
    if bunched:
        notes = [*notes, f"{bunched} of {len(records)} answers came all at once: no time of their tokens is known"]
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
        if _whole(metadata.get(key)) is None:
            return f"no {key}"
    return found


def _row(found: Record) -> dict[str, Any]:
    """One row of `read_requests`."""
    metadata, own = found["metadata"], _dict(found.get("tinymoe"))
    error = _error(found)
    start, end, ack = (metadata.get(f"request_{k}_ns") for k in ("start", "end", "ack"))
    total_s = _value(found, "http_req_total", "request_latency") / 1e3
    index = _whole(metadata.get("session_num"))
    return {
        "index": -1 if index is None else index,
        "phase": str(metadata.get("benchmark_phase", "profiling")),
        "start_ns": start,
        "ack_ns": _whole(ack),
        "end_ns": end,
        **(_times_and_counts(found, own) if error is None else _NOTHING),
        "cached_tokens": _number(own.get("cached_tokens")),
        "target_osl": _target_osl(found, own),
        "error": error,
        "censored": bool(own.get("censored", error is not None and "timeout" in error.split(":")[0].lower())),
        "finish_reason": _text(own.get("finish_reason")),
        "wall_s": float(np.fmax(_number(own.get("wall_s")), (end - start) / 1e9)),
        "monotonic_s": total_s if math.isnan(clock_s := _number(own.get("monotonic_s"))) else clock_s,
        "prompt_sha256": _text(own.get("prompt_sha256")),
    }


_NOTHING: dict[str, Any] = dict.fromkeys(
    ("ttft_ms", "ttfv_ms", "rl_ms", "itl_ms", "isl", "osl", "output_tok_s_per_user", "prefill_tok_s_per_user",
     "reasoning_tokens", "isl_client", "osl_client"), math.nan
) | {"token_source": None}  # fmt: skip


BUNCHED_SHARE, AT_ONCE_MS, ENOUGH_GAPS = 0.5, 0.02, 8
"""More than this share of a request's gaps between chunks below AT_ONCE_MS: its answer was read late, all at once."""
_TOKEN_TIMES = ("ttft_ms", "ttfv_ms", "itl_ms", "output_tok_s_per_user", "prefill_tok_s_per_user")


def is_bunched(found: Record) -> bool:
    """Whether most tokens of a request arrived together: then its first token was seen late, and no rate is known.

    The client, or the machine, could not keep up. Its latency stands: the last token was there when it ended.
    """
    gaps = _dict(_dict(found.get("metrics")).get("inter_chunk_latency")).get("value")
    gaps = [_number(gap) for gap in gaps] if isinstance(gaps, list) else []
    return len(gaps) >= ENOUGH_GAPS and sum(gap < AT_ONCE_MS for gap in gaps) > BUNCHED_SHARE * len(gaps)


def _times_and_counts(found: Record, own: Record) -> dict[str, Any]:
    """Metrics of a successful request, with rates by the count that `isl` and `osl` show; no token times if bunched."""
    row = _as_written(found, own)
    return row | (dict.fromkeys(_TOKEN_TIMES, math.nan) if is_bunched(found) else {})


def _as_written(found: Record, own: Record) -> dict[str, Any]:
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
        "token_source": _text(own.get("token_source")) or _source(found, isl, osl),
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


def _whole(value: Any) -> int | None:
    """A count or a time that 64 bits hold; anything else is missing."""
    return value if type(value) is int and 0 <= value < 2**63 else None


def _number(value: Any) -> float:
    """A finite number as a float; anything else is missing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:
        return math.nan


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


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
