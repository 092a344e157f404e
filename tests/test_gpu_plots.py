"""Segments and split violins of the GPU."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import legend_texts, readable
from whole_sweep import cells as whole

from lib import gpu_plots

pytestmark = pytest.mark.usefixtures("look")


def samples(states=(1470, 1578)):
    """200 samples a phase and backend that alternate between two clocks."""
    rng, n = np.random.default_rng(3), 200
    return pd.DataFrame({
        "backend": np.repeat(["llama.cpp", "mlx-lm"], 2 * n), "ctx": 256, "gen": 32,
        "phase": np.tile(np.repeat(["prefill", "decode"], n), 2),
        "gpu_freq_MHz": np.resize(states, 4 * n) + rng.normal(0, 4, 4 * n),
    })  # fmt: skip


def halves(ax):
    return [body.get_paths()[0].vertices[:, 0] for body in ax.collections]


def test_violins_have_a_half_a_backend_and_the_two_states_dotted():
    figure = gpu_plots.violins(samples())
    readable(figure)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["gen 32 tokens, prefill", "gen 32 tokens, decode"]
    for ax in figure.axes:
        left, right = halves(ax)
        assert left.max() <= 0 <= right.min() and left.min() < 0 < right.max()
        assert [round(line.get_ydata()[0]) for line in ax.lines] == pytest.approx([1470, 1578], abs=1)
    assert legend_texts(figure)[:2] == ["llama.cpp, left half", "MLX-LM, right half"]
    assert legend_texts(figure)[2].startswith("two states: 14")


def test_no_dotted_line_where_the_clock_has_one_state():
    figure = gpu_plots.violins(samples(states=(1500,)))
    assert len(figure.axes[0].lines) == 0 and len(legend_texts(figure)) == 2


def test_a_clock_that_never_moved_is_a_line_and_one_backend_a_half():
    still = samples().assign(gpu_freq_MHz=1500.0)
    figure = gpu_plots.violins(still[still["backend"] == "llama.cpp"])
    (line,) = figure.axes[0].collections
    assert line.get_segments()[0].tolist() == [[-gpu_plots.VIOLIN_WIDTH, 1500.0], [0.0, 1500.0]]


def test_segments_run_from_prefill_to_decode_of_each_cell_in_a_panel_a_backend():
    cells = whole().dropna(subset=["prefill_power_W"])
    figure = gpu_plots.segments(cells)
    readable(figure)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["llama.cpp"] * 2 + ["MLX-LM"] * 2
    drawn = [sum(len(c.get_segments()) for c in ax.collections) for ax in figure.axes]
    assert drawn == [102, 102, 50, 50], "108 and 53 cells less the warm-up cells"
    first = figure.axes[0].collections[0].get_segments()[0]
    own = cells[(cells["model"] == "lfm2.5-8b-a1b") & (cells["backend"] == "llama.cpp")].sort_values("ctx").iloc[0]
    assert first[0].tolist() == [own["prefill_power_W"], own["gpu_prefill_freq_MHz"]]
    assert first[1].tolist() == [own["decode_power_W"], own["gpu_decode_freq_MHz"]]
