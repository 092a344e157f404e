"""Figures count what the data has: lines, bars, halves of violins, shaded windows; never a pixel."""

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from lib import gpu_plots, plots, style


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture
def cells():
    """Two models under two backends, two prompt and two generation lengths; one value is missing."""
    rows = [
        {"backend": b, "model": m, "ctx": c, "gen": g, "output_tok_s": 100.0 + c + g + (b != "llama.cpp")}
        for b in ("llama.cpp", "mlx-lm")
        for m in ("trinity-nano", "lfm2.5-8b-a1b")
        for c in (256, 512)
        for g in (32, 64)
    ]
    frame = pd.DataFrame(rows)
    frame["ttft_ms"] = frame["ctx"] / 2
    frame.loc[0, "output_tok_s"] = np.nan
    return frame


def test_lines_by_prompt_has_a_panel_a_metric_and_gen_and_a_line_a_series(cells):
    figure = plots.lines_by_prompt(cells, ["output_tok_s", "ttft_ms"])
    assert len(figure.axes) == 4
    for ax in figure.axes:
        assert len(ax.lines) == 4
        assert {line.get_linestyle() for line in ax.lines} == {"-", "--"}
        assert {line.get_color() for line in ax.lines} == {style.colour("trinity-nano"), style.colour("lfm2.5-8b-a1b")}
        assert ax.get_ylabel() in ("Output rate (tok/s)", "TTFT p50 (ms)")
    assert [t.get_text() for t in figure.legends[0].texts] == [
        "lfm2.5-8b-a1b (8.3B=1.5B)", "trinity-nano (6B=1B)", "llama.cpp", "MLX-LM",
    ]  # fmt: skip
    gap = next(line for line in figure.axes[0].lines if np.isnan(line.get_ydata()).any())
    assert gap.get_color() == style.colour("trinity-nano"), "a missing value leaves a gap, not a zero"


def test_best_cells_look_in_the_metrics_own_direction(cells):
    best = plots.best_cells(cells, "output_tok_s")
    assert set(zip(best["ctx"], best["gen"], strict=True)) == {(512, 64)}
    assert set(plots.best_cells(cells, "ttft_ms")["ctx"]) == {256}
    figure = plots.bars({"output_tok_s": best})
    assert len(figure.axes[0].patches) == len(best) == 4
    assert sum(bool(bar.get_hatch()) for bar in figure.axes[0].patches) == 2, "MLX-LM is hatched"
    texts = [t.get_text() for t in figure.axes[0].texts]
    assert all(text.endswith("@ 512/64") for text in texts)


def test_what_is_seen_is_said_in_words(cells):
    said = plots.seen_lines(cells, "output_tok_s")
    assert said.startswith("Output rate in tok/s from prompt 256 to 512 tokens at gen 64:")
    assert "MLX-LM trinity-nano 421.00 to 677.00" in said
    best = {"output_tok_s": plots.best_cells(cells, "output_tok_s")}
    # two models tie: the first of them is named
    assert plots.seen_bars(best) == "Output rate: MLX-LM lfm2.5-8b-a1b is first with 677.00 tok/s."


@pytest.fixture
def samples():
    rng = np.random.default_rng(3)
    n = 200
    return pd.DataFrame({
        "backend": np.repeat(["llama.cpp", "mlx-lm"], n), "model": "trinity-nano", "ctx": 256, "gen": 32,
        "time_s": np.tile(1e9 + 0.05 * np.arange(n), 2), "elapsed_ms": 50.0,
        "phase": np.tile(np.repeat(["prefill", "decode"], n // 2), 2),
        "gpu_freq_MHz": rng.normal(1500, 20, 2 * n), "gpu_active_pct": 99.0,
    })  # fmt: skip


def test_violins_have_a_half_a_backend(samples):
    figure = gpu_plots.violins(samples)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["gen 32 tokens, prefill", "gen 32 tokens, decode"]
    for ax in figure.axes:
        left, right = (body.get_paths()[0].vertices[:, 0] for body in ax.collections)
        assert left.max() <= 0 <= right.min() and left.min() < 0 < right.max()


def test_trace_shades_each_phase_of_the_first_requests(samples):
    requests = pd.DataFrame({
        "start_ns": [int(1e18) + k * 1_000_000_000 for k in range(6)], "ttft_ms": 300.0,
        "end_ns": [int(1e18) + k * 1_000_000_000 + 900_000_000 for k in range(6)],
    })  # fmt: skip
    figure = gpu_plots.trace(samples[samples["backend"] == "llama.cpp"], requests, count=4)
    for ax in figure.axes:
        assert len(ax.patches) == 8
        widths = [round(patch.get_width(), 3) for patch in ax.patches]
        assert widths == [0.3, 0.6] * 4


def test_segments_run_from_prefill_to_decode():
    cells = pd.DataFrame([{
        "backend": "llama.cpp", "model": "trinity-nano", "prefill_power_W": 17.5, "decode_power_W": 13.0,
        "gpu_prefill_freq_MHz": 1470.0, "gpu_decode_freq_MHz": 1550.0, "gpu_prefill_active_pct": 99.0,
        "gpu_decode_active_pct": 98.0,
    }])  # fmt: skip
    line = gpu_plots.segments(cells).axes[0].lines[0]
    assert list(line.get_xdata()) == [17.5, 13.0] and list(line.get_ydata()) == [1470.0, 1550.0]
