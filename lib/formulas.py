"""The published formulas as pure functions (Appendix I of the report). Inputs and outputs are floats or arrays of them.

NaN in gives NaN out; a zero denominator gives NaN, never infinity. Nothing here reads a file.
"""

from __future__ import annotations

import numpy as np


def _ratio(numerator: float, denominator: float) -> float:
    """numerator / denominator, NaN where the denominator is zero."""
    divisor = np.where(np.asarray(denominator) == 0, np.nan, denominator)
    return (np.asarray(numerator) / divisor)[()]


def prefill_J(prefill_power_W: float, ttft_s: float) -> float:
    """Energy of one prefill in joules (I.5): prefill power (W) x time to first token (s)."""
    return prefill_power_W * ttft_s


def decode_J(decode_power_W: float, p50_decode_s: float) -> float:
    """Energy of one decode in joules (I.5): decode power (W) x median decode duration (s)."""
    return decode_power_W * p50_decode_s


def total_J(prefill_J: float, decode_J: float) -> float:
    """Energy of one request in joules (I.5): the sum of its phases."""
    return prefill_J + decode_J


def prefill_pct(prefill_J: float, total_J: float) -> float:
    """Share of the request's energy that prefill takes, in percent (I.5)."""
    return 100 * _ratio(prefill_J, total_J)


def request_J_avg(total_power_W: float, rl_s: float) -> float:
    """Energy of one request from the whole window's power, in joules (I.4). A cross-check only."""
    return total_power_W * rl_s


def output_tok_J(osl: float, decode_power_W: float, p50_decode_s: float) -> float:
    """Output tokens per joule of decode energy (I.3), the main efficiency metric; osl in tokens."""
    return _ratio(osl, decode_power_W * p50_decode_s)


def prefill_tok_J(isl: float, prefill_J: float) -> float:
    """Input tokens per joule of prefill energy (I.6); isl in tokens."""
    return _ratio(isl, prefill_J)


def total_tok_J(isl: float, osl: float, total_J: float) -> float:
    """All tokens of a request, in and out, per joule of its energy (I.6)."""
    return _ratio(isl + osl, total_J)


def mJ_per_output_tok(decode_J: float, osl: float) -> float:
    """Decode energy per output token in millijoules (I.7)."""
    return 1000 * _ratio(decode_J, osl)


def retention_pct(long_tok_s: float, short_tok_s: float) -> float:
    """Output rate kept at the longest prompt, in percent of the rate at the shortest (I.9), both at the longest gen."""
    return 100 * _ratio(long_tok_s, short_tok_s)


def osl_mismatch_pct(osl: float, gen: float) -> float:
    """Signed difference of generated and asked tokens in percent of the asked (I.12)."""
    return 100 * _ratio(osl - gen, gen)


def identity_pct(output_tok_J: float, decode_power_W: float, output_tok_s: float) -> float:
    """How far tok/J x W is from tok/s, in percent of tok/s (section 3.1; the published bound is 1.3 %)."""
    return 100 * (_ratio(output_tok_J * decode_power_W, output_tok_s) - 1)


def gpu_freq_MHz(freq_MHz: np.ndarray) -> float:
    """Mean active clock (I.14): mean over samples above 0 MHz; NaN if there is none."""
    active = freq_MHz[freq_MHz > 0]
    return float(active.mean()) if active.size else float("nan")


def residency_pct(active_pct: np.ndarray) -> float:
    """Mean active residency in percent (I.14): mean over all samples that report it; NaN if none does."""
    known = active_pct[~np.isnan(active_pct)]
    return float(known.mean()) if known.size else float("nan")
