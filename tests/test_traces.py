"""Figures over time: what thinning keeps, which windows are shaded, where the means lie."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import legend_texts, readable

from lib import traces

pytestmark = pytest.mark.usefixtures("look")


def test_thinning_keeps_every_dip_and_the_order_of_time():
    time_s = np.arange(50_000) * 0.05
    values = np.full(50_000, 10.0)
    values[[7_001, 31_337]] = 3.0, 99.0
    thin_s, thin = traces.thinned(time_s, values, stretches=100)
    assert len(thin) <= 200 and (np.diff(thin_s) > 0).all()
    assert thin.min() == 3.0 and thin.max() == 99.0
    assert thin_s[np.argmin(thin)] == pytest.approx(350.05) and thin_s[np.argmax(thin)] == pytest.approx(1566.85)


def test_few_samples_stay_whole_and_missing_ones_are_left_out():
    time_s, values = np.arange(5.0), np.array([1.0, np.nan, 3.0, 4.0, 5.0])
    thin_s, thin = traces.thinned(time_s, values)
    assert list(thin_s) == [0, 2, 3, 4] and list(thin) == [1, 3, 4, 5]
    assert len(traces.thinned(time_s, np.full(5, np.nan))[0]) == 0
    assert traces.spread(time_s, np.full(5, np.nan)).empty


def test_spread_is_median_lowest_and_highest_of_each_stretch():
    found = traces.spread(np.arange(8.0), np.array([1, 2, 9, 2, 5, 5, 5, 6.0]), stretches=2)
    assert found[["mid", "low", "high"]].to_numpy().tolist() == [[2, 1, 9], [5, 5, 6]]
    assert list(found["time_s"]) == [1.75, 5.25]


@pytest.fixture
def lines():
    rng = np.random.default_rng(2)
    pairs = [("llama.cpp", "trinity-nano"), ("mlx-lm", "trinity-nano"), ("llama.cpp", "gemma4-e4b")]
    return {
        pair: pd.DataFrame({"time_s": np.arange(3000) * 0.05, "rss_MB": 4000.0 + 100 * n + rng.normal(0, 1, 3000)})
        for n, pair in enumerate(pairs)
    }


@pytest.mark.parametrize("bands", [False, True])
def test_a_panel_a_backend_and_a_line_with_a_last_marker_a_model(lines, bands):
    figure = traces.over_run(lines, "rss_MB", "RSS (MB)", bands=bands)
    readable(figure)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["llama.cpp", "MLX-LM"]
    assert [len(ax.lines) for ax in figure.axes] == [4, 2], "a line and its marker"
    assert [len(ax.collections) for ax in figure.axes] == ([2, 1] if bands else [0, 0])
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert legend_texts(figure)[:2] == ["trinity-nano (6B=1B)", "gemma4-e4b (8B=4.5B)"]
    table = traces.frame(lines, "rss_MB")
    assert list(table.columns) == ["backend", "model", "time_s", "mid", "low", "high"]
    assert (table["low"] <= table["mid"]).all() and (table["mid"] <= table["high"]).all()


def test_phases_shades_the_first_requests_and_dashes_the_means():
    n = 200
    samples = pd.DataFrame({
        "time_s": 1e9 + 0.05 * np.arange(n), "elapsed_ms": 50.0,
        "phase": np.where(np.arange(n) % 20 < 6, "prefill", "decode"), "gpu_active_pct": 99.0,
        "gpu_freq_MHz": np.where(np.arange(n) % 20 < 6, 1470.0, 1550.0),
    })  # fmt: skip
    samples.loc[10, "gpu_freq_MHz"] = 0.0  # idle: no clock
    requests = pd.DataFrame({
        "start_ns": [int(1e18) + k * 1_000_000_000 for k in range(6)], "ttft_ms": 300.0,
        "end_ns": [int(1e18) + k * 1_000_000_000 + 900_000_000 for k in range(6)],
    })  # fmt: skip
    axes = {"gpu_freq_MHz": "GPU clock (MHz)", "gpu_active_pct": "GPU residency (%)"}
    figure = traces.phases(samples, requests, axes, count=4)
    readable(figure)
    assert legend_texts(figure) == ["prefill", "decode", "mean in prefill", "mean in decode"]
    for ax in figure.axes:
        assert [round(patch.get_width(), 3) for patch in ax.patches] == [0.3, 0.6] * 4
        assert ax.get_xlim() == (0, pytest.approx(3.9))
    low, high = figure.axes[0].get_ylim()
    assert 1450 < low < 1470 < 1550 < high < 1570, "an idle sample does not press the phases together"
    assert "are cut off" in figure.texts[0].get_text()
    means = [line.get_ydata()[0] for line in figure.axes[0].lines[1:]]
    assert means == [1470.0, 1550.0]
    assert traces.means(samples, "gpu_freq_MHz") == {"prefill": 1470.0, "decode": 1550.0}
    assert traces.means(samples.assign(gpu_freq_MHz=np.nan), "gpu_freq_MHz") == {}
