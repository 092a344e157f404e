"""The published formulas as pure functions (Appendix I of the report). Inputs and outputs are floats or arrays of them.

NaN in gives NaN out; a zero denominator gives NaN, never infinity. Nothing here reads a file.
"""

from __future__ import annotations

import numpy as np


def _ratio(numerator: float, denominator: float) -> float:
    """numerator / denominator, NaN where the denominator is zero."""
    divisor = np.where(np.asarray(denominator) == 0, np.nan, denominator)
    return (np.asarray(numerator) / divisor)[()]


def _median(values: np.ndarray) -> float:
    known = np.asarray(values, float)
    known = known[~np.isnan(known)]
    return float(np.median(known)) if known.size else float("nan")


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


def prefill_tok_s(isl: float, ttft_s: float) -> float:
    """Prompt tokens per second of prefill (I.8), of one request: isl (tokens) / TTFT (s)."""
    return _ratio(isl, ttft_s)


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


def identity_bound_pct(osl: float) -> float:
    """Largest |identity_pct| that definitions explain, in percent: the published 1.3 %, more for short outputs.

    tok/J counts all osl tokens, tok/s only the osl - 1 after the first, which alone is 100 / (osl - 1) %: 0.39 % at
    the 256 tokens where the published bound was found. The rest of that bound, 0.91 %, stays for the stream's tail.
    """
    return np.maximum(1.3, 0.91 + _ratio(100.0, osl - 1))[()]


def net_J(gross_J: float, idle_W: float, seconds: float) -> float:
    """Energy above idle in joules: gross energy less idle power (W) over the same time (s); not in the appendix."""
    return gross_J - idle_W * seconds


def apart_pct(one: float, other: float) -> float:
    """How far `one` is from `other`, in percent of `other`."""
    return 100 * (_ratio(one, other) - 1)


def decode_tok_J(osl: float, decode_J: float) -> float:
    """Output tokens per joule of decode energy (I.6): the same as output_tok_J (I.3)."""
    return _ratio(osl, decode_J)


def total_power_W(power_W: np.ndarray) -> float:
    """Median power of all samples in the window, W (I.2); NaN samples are left out, NaN if none is left."""
    return _median(power_W)


def best_total_tok_J(values: np.ndarray) -> float:
    """The largest total_tok_J of a model over its cells (I.10), void cells being NaN; NaN if all are."""
    known = np.asarray(values, float)
    known = known[~np.isnan(known)]
    return float(known.max()) if known.size else float("nan")


def peak_ram_MB(rss_kb: np.ndarray) -> float:
    """Largest resident memory (I.13) in MB of 1024 x 1024 bytes, from samples in kB of 1024; NaN without samples."""
    return float(np.max(rss_kb)) / 1024 if len(rss_kb) else float("nan")


def gpu_freq_MHz(freq_MHz: np.ndarray) -> float:
    """Mean active clock (I.14): mean over samples above 0 MHz; NaN if there is none."""
    active = freq_MHz[freq_MHz > 0]
    return float(active.mean()) if active.size else float("nan")


def residency_pct(active_pct: np.ndarray) -> float:
    """Mean active residency in percent (I.14): mean over all samples that report it; NaN if none does."""
    known = active_pct[~np.isnan(active_pct)]
    return float(known.mean()) if known.size else float("nan")
