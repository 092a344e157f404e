"""Figures count what the data has: lines, bars, ticks, legends; never a pixel."""

import itertools

import numpy as np
import pandas as pd
import pytest
from figure_checks import legend_texts, no_overlap, readable
from matplotlib.colors import to_hex
from whole_sweep import cells as whole

from lib import plots, style

pytestmark = pytest.mark.usefixtures("look")


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
        hollow = {line.get_linestyle() for line in ax.lines if to_hex(line.get_markerfacecolor()) == "#ffffff"}
        assert hollow == {"--"}
        assert ax.get_ylabel() in ("Output rate (tok/s)", "TTFT p50 (ms)")
    assert legend_texts(figure) == [
        "lfm2.5-8b-a1b (8.3B=1.5B)", "trinity-nano (6B=1B)", "llama.cpp (filled)", "MLX-LM (hollow)",
    ]  # fmt: skip
    gap = next(line for line in figure.axes[0].lines if np.isnan(line.get_ydata()).any())
    assert gap.get_color() == style.colour("trinity-nano"), "a missing value leaves a gap, not a zero"
    readable(figure)


@pytest.mark.parametrize(
    ("names", "kwargs"),
    [
        (["ttft_ms", "itl_ms", "rl_ms"], {"log_y": ("ttft_ms", "rl_ms")}),
        (["gpu_prefill_active_pct", "gpu_decode_active_pct"], {"zoom": True, "one_y": True}),
        (["p_freq_MHz"], {"zoom": True}),
    ],
)
def test_a_whole_sweep_is_readable(names, kwargs):
    cells = whole()
    figure = plots.lines_by_prompt(cells, names, **kwargs)
    readable(figure)
    assert len(figure.axes) == 3 * len(names) and all(len(ax.lines) == 9 for ax in figure.axes)
    assert len(legend_texts(figure)) == 8
    bottom = figure.axes[-1]
    assert [t.get_text() for t in bottom.get_xticklabels()] == ["256", "512", "1024", "2048", "4096", "30720"]
    heights = [t.get_window_extent() for t in bottom.get_xticklabels()]
    # turned by 60 degrees, neighbours are apart if their feet are further apart than the letters are high
    assert all(b.x1 - a.x1 > 9 for a, b in itertools.pairwise(heights))
    ranges = {ax.get_ylim() for ax in figure.axes}
    assert len(ranges) == (1 if kwargs.get("one_y") else len(names)), "panels that are compared share their y range"
    assert any("do not start at 0" in t.get_text() for t in figure.texts) == bool(kwargs.get("zoom"))
    logs = [ax.get_ylabel() for ax in figure.axes if ax.get_yscale() == "log"]
    assert len(logs) == 3 * len(kwargs.get("log_y", ())) and all("log)" in label for label in logs)
    linear = [ax.get_ylim()[0] for ax in figure.axes if ax.get_yscale() == "linear"]
    assert all(low == 0 for low in linear) != bool(kwargs.get("zoom"))


def test_prompt_lengths_too_near_for_labels_lose_some_labels_but_no_points():
    cells = whole()[["backend", "model", "ctx", "gen", "output_tok_s"]]
    near = pd.concat([cells, cells[cells["ctx"] == 256].assign(ctx=266)])
    figure = plots.lines_by_prompt(near, ["output_tok_s"])
    shown = [t.get_text() for t in figure.axes[-1].get_xticklabels()]
    assert "266" not in shown and len(shown) == 6
    assert len(figure.axes[0].lines[0].get_xdata()) == 7


def test_one_cell_is_a_figure_too(cells):
    one = cells.iloc[[1]]
    figure = plots.lines_by_prompt(one, ["output_tok_s"], zoom=True)
    readable(figure)
    assert len(figure.axes) == 1 and plots.seen_lines(one, "output_tok_s")
    readable(plots.bars({"output_tok_s": plots.best_cells(one, "output_tok_s")}))


def test_a_row_without_values_says_so(cells):
    cells.loc[cells["gen"] == 64, "output_tok_s"] = np.nan
    figure = plots.lines_by_prompt(cells, ["output_tok_s"])
    assert [[t.get_text() for t in ax.texts] for ax in figure.axes] == [[], ["no value"]]


def test_best_cells_look_in_the_metrics_own_direction(cells):
    best = plots.best_cells(cells, "output_tok_s")
    assert set(zip(best["ctx"], best["gen"], strict=True)) == {(512, 64)}
    assert set(plots.best_cells(cells, "ttft_ms")["ctx"]) == {256}
    assert set(plots.best_cells(cells, "ttft_ms", largest=True)["ctx"]) == {512}
    figure = plots.bars({"output_tok_s": best})
    assert len(figure.axes[0].patches) == len(best) == 4
    assert sum(bool(bar.get_hatch()) for bar in figure.axes[0].patches) == 2, "MLX-LM is hatched"
    texts = [t.get_text() for t in figure.axes[0].texts]
    assert (
        not any("@" in text for text in texts) and figure.texts[0].get_text() == "Every bar: prompt 512, gen 64 tokens"
    )
    mixed = plots.bars({"output_tok_s": best, "ttft_ms": plots.best_cells(cells, "ttft_ms")})
    assert [t.get_text().split(" @ ")[1] for ax in mixed.axes for t in ax.texts] == ["512/64"] * 4 + ["256/32"] * 4
    assert legend_texts(figure) == ["llama.cpp", "MLX-LM"]


def test_bars_of_a_whole_sweep_keep_values_inside_and_name_each_model_once():
    best = {name: plots.best_cells(whole(), name) for name in ("output_tok_s", "ttft_ms", "rl_ms")}
    figure = plots.bars(best)
    readable(figure)
    for ax in figure.axes:
        frame = ax.get_window_extent()
        no_overlap(ax.texts)
        assert all(t.get_window_extent().x1 <= frame.x1 for t in ax.texts)
        assert len(ax.patches) == 9
    names = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    assert len(names) == 6 and names[0] == "lfm2.5-8b-a1b\n(8.3B=1.5B)"


def test_bars_of_one_cell_may_share_their_axis():
    cells = whole()
    own = cells[(cells["ctx"] == 30720) & (cells["gen"] == 1024)]
    figure = plots.bars({n: own for n in ("e_active_pct", "p_active_pct")}, cell=False, one_x=True)
    assert len({ax.get_xlim() for ax in figure.axes}) == 1
    assert not any("@" in t.get_text() for ax in figure.axes for t in ax.texts) and not figure.texts


def test_the_band_spans_the_generation_lengths(cells):
    cells["prefill_power_W"] = 10.0 + cells["gen"] / 32
    figure = plots.lines_by_prompt(cells, ["output_tok_s", "prefill_power_W"])
    plots.band(figure, cells, "prefill_power_W", column=1)
    assert [len(ax.collections) for ax in figure.axes] == [0, 4, 0, 4]
    points = figure.axes[1].collections[0].get_paths()[0].vertices[:, 1]
    assert (points.min(), points.max()) == (11.0, 12.0)


def test_what_is_seen_is_said_in_words(cells):
    said = plots.seen_lines(cells, "output_tok_s")
    assert said == (
        "Output rate in tok/s at gen 64: at prompt 256 420.00 (llama.cpp trinity-nano) to 421.00 (MLX-LM "
        "trinity-nano); at prompt 512 676.00 (llama.cpp trinity-nano) to 677.00 (MLX-LM trinity-nano); 4 of 4 "
        "lines end higher than they begin."
    )
    best = {"output_tok_s": plots.best_cells(cells, "output_tok_s")}
    # two models tie: the first of them is named
    assert plots.seen_bars(best) == "Output rate: MLX-LM lfm2.5-8b-a1b is first with 677.00 tok/s."
    assert plots.seen_values(best) == (
        "Output rate (tok/s): 676.00 (llama.cpp lfm2.5-8b-a1b) to 677.00 (MLX-LM lfm2.5-8b-a1b)."
    )
    assert plots.seen_lines(cells.assign(output_tok_s=np.nan), "output_tok_s") == ""


def test_the_same_figure_is_the_same_file(cells, tmp_path):
    for name in ("a.svg", "b.svg"):
        figure = plots.bars({"ttft_ms": plots.best_cells(cells, "ttft_ms")})
        figure.savefig(tmp_path / name, metadata={"Date": None, "Creator": None})
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
