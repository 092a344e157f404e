"""The table of cells of a whole sweep, 161 cells with plain round values, for tests of figures and sentences."""

import numpy as np
import pandas as pd

PROMPTS, GENS = (256, 512, 1024, 2048, 4096, 30720), (256, 512, 1024)
MODELS = {
    "lfm2.5-8b-a1b": 83.0, "trinity-nano": 87.0, "smallthinker-4b-a0.6b": 126.0, "granite4-h-tiny": 50.0,
    "gemma4-e2b": 52.0, "gemma4-e4b": 27.0,
}  # fmt: skip
UNDER_MLX = ("lfm2.5-8b-a1b", "trinity-nano", "granite4-h-tiny")
VOID = ("_W", "_J", "_MHz", "active_pct")


def cells():
    """One row a cell, warm-up cells void as the analysis leaves them; values rise or fall with prompt length."""
    rows = [
        _row(backend, model, ctx, gen)
        for backend in ("llama.cpp", "mlx-lm") for model in MODELS for gen in GENS for ctx in PROMPTS
        if backend == "llama.cpp" or (model in UNDER_MLX and (model, ctx, gen) != ("trinity-nano", 256, 256))
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    assert len(frame) == 161
    from_power = [name for name in frame if name.endswith(VOID)]
    frame.loc[frame["warmup"], from_power] = np.nan
    return frame


def _row(backend, model, ctx, gen):
    far, mlx = np.log2(ctx / 256) / np.log2(30720 / 256), backend == "mlx-lm"
    rate = MODELS[model] * (1 - 0.4 * far)
    ttft_ms = 200 + ctx * 100 / MODELS[model]
    osl = 0.3 * gen if mlx and model == "granite4-h-tiny" and gen == 1024 else gen
    row = {
        "backend": backend, "model": model, "ctx": ctx, "gen": gen, "n": 20, "state": "ok", "osl": osl,
        "warmup": gen == 256 and ctx == (512 if mlx and model == "trinity-nano" else 256),
        "osl_mismatch_pct": 100 * (osl - gen) / gen, "output_tok_s": rate, "ttft_ms": ttft_ms,
        "rl_ms": ttft_ms + 1000 * osl / rate, "itl_ms": 1000 / rate, "prefill_tok_s": 1000 * ctx / ttft_ms,
        "prefill_power_W": 17.0, "decode_power_W": 12.0 + 2 * far - 2 * mlx, "total_power_W": 14.0,
        "output_tok_J": rate / 13, "peak_ram_MB": 30 * MODELS[model] * (0.8 if mlx else 1) * (0.9 if ctx < 1024 else 1),
        "gpu_prefill_freq_MHz": 1560 - 80 * far, "gpu_decode_freq_MHz": 1562 - 20 * far,
        "gpu_prefill_active_pct": 98.0 + 1.9 * far, "gpu_decode_active_pct": 95.0 if mlx else 99.0,
        "gpu_active_pct": 97 + 2 * far, "p_freq_MHz": 4000.0 - 20 * mlx, "p_active_pct": 88 + 8 * far,
        "p_prefill_freq_MHz": 4001.0, "p_decode_freq_MHz": 3996.0, "e_active_pct": 6.0 if rate > 126 - 1e-9 else 1.5,
    }  # fmt: skip
    return row | {"rl_p90_ms": 1.01 * row["rl_ms"], "rl_p99_ms": 1.05 * row["rl_ms"]}
