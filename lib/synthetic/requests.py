"""The request files of a synthetic cell, in the schema of aiperf: one line a request, and their statistics."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from lib.plan import Cell
from lib.synthetic.timeline import Timeline

ACK_S, CLOSE_S = 0.008, 0.0005
"""Response header after the request's start; end of the stream after its last token."""
NOTE = "tinymoe, synthetic: no server answered; in the schema of aiperf 0.13"
_MS, _RATE, _TOKENS = "ms", "tokens/sec/user", "tokens"
_PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def write(folder: Path, cell: Cell, timeline: Timeline) -> None:
    """Write profile_export.jsonl and profile_export_aiperf.json into `folder`."""
    records = [_record(cell, timeline, n) for n in range(len(timeline.start_s))]
    lines = [json.dumps(record, separators=(",", ":")) + "\n" for record in records]
    (folder / "profile_export.jsonl").write_text("".join(lines), encoding="utf-8")
    summary = _summary(records[timeline.warmup :])
    (folder / "profile_export_aiperf.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")


def _record(cell: Cell, timeline: Timeline, n: int) -> dict:
    warm = n < timeline.warmup
    start, ack, end = (
        int(timeline.ns(t)) for t in (timeline.start_s[n], timeline.start_s[n] + ACK_S, timeline.end_s[n] + CLOSE_S)
    )
    phase, index = ("warmup", n) if warm else ("profiling", n - timeline.warmup)
    prompt = hashlib.sha256(f"synthetic/{cell.model}/{cell.ctx}/{cell.gen}/{n}".encode()).hexdigest()
    metadata = {
        "session_num": index, "x_request_id": f"synthetic-{prompt[:24]}", "conversation_id": f"session_{index:06d}",
        "turn_index": 0, "request_start_ns": start, "request_ack_ns": ack, "request_end_ns": end,
        "benchmark_phase": phase, "phase_name": phase, "phase_kind": phase, "was_cancelled": False,
    }  # fmt: skip
    beyond = {
        "written_by": NOTE, "token_source": "usage", "cached_tokens": 0, "prompt_sha256": prompt,
        "finish_reason": "length" if timeline.osl[n] == cell.gen else "stop", "censored": False,
        "target_isl": cell.ctx, "target_osl": cell.gen,
        "wall_s": (end - start) / 1e9, "monotonic_s": (end - start) / 1e9,
    }  # fmt: skip
    return {"metadata": metadata, "metrics": _metrics(cell, timeline, n), "tinymoe": beyond}


def _metrics(cell: Cell, timeline: Timeline, n: int) -> dict:
    ttft_s, latency_s = timeline.first_s[n] - timeline.start_s[n], timeline.end_s[n] - timeline.start_s[n]
    osl = int(timeline.osl[n])
    step_s = (latency_s - ttft_s) / (osl - 1)
    values = {
        "request_latency": (1000 * latency_s, _MS), "time_to_first_token": (1000 * ttft_s, _MS),
        "time_to_first_output_token": (1000 * ttft_s, _MS), "time_to_second_token": (1000 * step_s, _MS),
        "inter_token_latency": (1000 * step_s, _MS), "decode_duration": (1000 * (latency_s - ttft_s), _MS),
        "output_token_throughput_per_user": (1 / step_s, _RATE),
        "prefill_throughput_per_user": (cell.ctx / ttft_s, _RATE),
        "e2e_output_token_throughput": (osl / latency_s, _RATE),
        "input_sequence_length": (cell.ctx, _TOKENS), "output_sequence_length": (osl, _TOKENS),
        "output_token_count": (osl, _TOKENS), "reasoning_token_count": (0, _TOKENS),
        "osl_mismatch_diff_pct": (100 * (osl - cell.gen) / cell.gen, "%"),
        "usage_prompt_tokens": (cell.ctx, _TOKENS), "usage_completion_tokens": (osl, _TOKENS),
        "usage_total_tokens": (cell.ctx + osl, _TOKENS),
    }  # fmt: skip
    return {tag: {"value": float(v) if unit != _TOKENS else int(v), "unit": unit} for tag, (v, unit) in values.items()}


def _summary(records: list[dict]) -> dict:
    found = {tag: _statistics(tag, unit["unit"], records) for tag, unit in records[0]["metrics"].items()}
    counts = {"request_count": {"unit": "requests", "avg": len(records)}}
    state = {"was_cancelled": False, "is_complete": True, "error_summary": []}
    return {"schema_version": "1.4"} | found | counts | state | {"tinymoe": {"written_by": NOTE, "synthetic": True}}


def _statistics(tag: str, unit: str, records: list[dict]) -> dict:
    x = np.array([record["metrics"][tag]["value"] for record in records], float)
    ranks = {f"p{q}": float(v) for q, v in zip(_PERCENTILES, np.percentile(x, _PERCENTILES), strict=True)}
    whole = {
        "min": float(x.min()),
        "max": float(x.max()),
        "std": float(x.std()),
        "count": len(x),
        "sum": float(x.sum()),
    }
    return {"unit": unit, "avg": float(x.mean())} | ranks | whole
