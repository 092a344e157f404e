"""The metrics of a cell: name, unit, title, formula and source, in one table that every heading and axis reads."""

from __future__ import annotations

from dataclasses import dataclass

KEYS = ["backend", "model", "ctx", "gen"]
"""What tells the cells of a run apart, in every table."""


@dataclass(frozen=True)
class Metric:
    """One column of the cells table.

    `better` is high, low or empty; `digits` are decimals in tables; `from_power` columns are void in a warm-up cell.
    """

    name: str
    unit: str
    title: str
    formula: str
    source: str
    better: str = ""
    digits: int = 2
    from_power: bool = False

    @property
    def less_is_better(self) -> bool:
        return self.better == "low"


def _m(name: str, unit: str, title: str, formula: str, source: str, better: str = "", digits: int = 2) -> Metric:
    return Metric(name, unit, title, formula, source, better, digits)


def _p(name: str, unit: str, title: str, formula: str, source: str, better: str = "", digits: int = 2) -> Metric:
    return Metric(name, unit, title, formula, source, better, digits, from_power=True)


_REQUESTS, _LOG = "profile_export.jsonl", "powermetrics.log"

ALL = (
    _m("isl", "tokens", "Input tokens", "median prompt tokens by the server's usage", _REQUESTS, digits=0),
    _m("osl", "tokens", "Output tokens", "median completion tokens by the server's usage", _REQUESTS, digits=1),
    _m("osl_mismatch_pct", "%", "OSL mismatch", "100 (osl - gen) / gen", "I.12", digits=1),
    _m("output_tok_s", "tok/s", "Output rate", "median of 1 / ITL over requests", _REQUESTS, "high"),
    _m("prefill_tok_s", "tok/s", "Prefill rate", "median of ISL / TTFT over requests", _REQUESTS, "high", 1),
    _m("ttft_ms", "ms", "TTFT p50", "median time to the first token", "I.11", "low", 1),
    _m("ttft_p90_ms", "ms", "TTFT p90", "90th percentile of time to the first token", "I.11", "low", 1),
    _m("ttft_p99_ms", "ms", "TTFT p99", "99th percentile of time to the first token", "I.11", "low", 1),
    _m("itl_ms", "ms", "ITL p50", "median of (request latency - TTFT) / (OSL - 1)", "I.11", "low"),
    _m("itl_p99_ms", "ms", "ITL p99", "99th percentile of the requests' ITL", "I.11", "low"),
    _m("rl_ms", "ms", "Request latency p50", "median time to the last token", "I.11", "low", 1),
    _m("rl_p90_ms", "ms", "Request latency p90", "90th percentile of request latency", "I.11", "low", 1),
    _m("rl_p99_ms", "ms", "Request latency p99", "99th percentile of request latency", "I.11", "low", 1),
    _m("p50_decode_s", "s", "Decode duration p50", "median of request end - first token", "I.5", digits=3),
    _p("total_power_W", "W", "Total power", "median of all samples in the cell's window", "I.2", "low"),
    _p("prefill_power_W", "W", "Prefill power", "median of the samples inside prefill; a fit if few", "I.5", "low"),
    _p("decode_power_W", "W", "Decode power", "median of the samples inside decode; a fit if few", "I.5", "low"),
    _p("prefill_J", "J", "Prefill energy", "prefill_power_W x ttft_s", "I.5", "low"),
    _p("decode_J", "J", "Decode energy", "decode_power_W x p50_decode_s", "I.5", "low"),
    _p("total_J", "J", "Request energy", "prefill_J + decode_J", "I.5", "low"),
    _p("prefill_pct", "%", "Prefill share of energy", "100 prefill_J / total_J", "I.5", digits=1),
    _p("request_J_avg", "J", "Request energy, cross-check", "total_power_W x rl_s", "I.4"),
    _p("output_tok_J", "tok/J", "Output efficiency", "osl / (decode_power_W x p50_decode_s)", "I.3", "high", 3),
    _p("prefill_tok_J", "tok/J", "Prefill efficiency", "isl / prefill_J", "I.6", "high"),
    _p("total_tok_J", "tok/J", "Total efficiency", "(isl + osl) / total_J", "I.6", "high"),
    _p("mJ_per_output_tok", "mJ/tok", "Decode energy per token", "1000 decode_J / osl", "I.7", "low", 1),
    _p("identity_pct", "%", "Identity error", "100 (output_tok_J x decode_power_W / output_tok_s - 1)", "3.1"),
    _m("peak_ram_MB", "MB", "Peak RSS", "largest resident memory of the server in the cell", "I.13", "low", 0),
    _p("gpu_freq_MHz", "MHz", "GPU clock", "mean over samples above 0 MHz", "I.14", digits=0),
    _p("gpu_active_pct", "%", "GPU residency", "mean over all samples", "I.14", digits=1),
    _p("gpu_prefill_freq_MHz", "MHz", "GPU clock in prefill", "as GPU clock, samples in prefill", "I.14", digits=0),
    _p("gpu_decode_freq_MHz", "MHz", "GPU clock in decode", "as GPU clock, samples in decode", "I.14", digits=0),
    _p("gpu_prefill_active_pct", "%", "GPU residency in prefill", "as GPU residency, samples in prefill", "I.14", digits=1),
    _p("gpu_decode_active_pct", "%", "GPU residency in decode", "as GPU residency, samples in decode", "I.14", digits=1),
    _p("p_freq_MHz", "MHz", "P-cluster clock", "mean over samples above 0 MHz", "I.14", digits=0),
    _p("p_active_pct", "%", "P-cluster residency", "mean over all samples", "I.14", digits=1),
    _p("e_freq_MHz", "MHz", "E-cluster clock", "mean over samples above 0 MHz", "I.14", digits=0),
    _p("e_active_pct", "%", "E-cluster residency", "mean over all samples", "I.14", digits=1),
)  # fmt: skip

ALSO_FROM_POWER = (
    "net_total_J", "prefill_integral_J", "decode_integral_J", "total_integral_J", "estimators_apart_pct",
)  # fmt: skip
"""Columns that are no metric of the report and yet follow from power: void in a warm-up cell like those above."""

OF_A_RUN = (
    _m("asked_s", "s", "Latency of an answer of the length asked", "(TTFT + (gen - 1) ITL) / 1000", "I.11", "low", 3),
    _p("asked_J", "J", "Energy of an answer of the length asked", "prefill_J + gen decode_J / osl", "I.5", "low", 1),
    _m("retention_pct", "%", "Output rate kept", "100 tok/s at the longest prompt / tok/s at the shortest", "I.9", "high", 1),
)  # fmt: skip
"""Metrics that comparisons over a run use: no column of the cells table."""

BY_NAME = {metric.name: metric for metric in (*ALL, *OF_A_RUN)}


def heading(name: str) -> str:
    """Title with unit, as in a table heading or on an axis: "Output rate (tok/s)"."""
    metric = BY_NAME[name]
    return f"{metric.title} ({metric.unit})"
