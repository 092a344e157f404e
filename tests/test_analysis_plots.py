"""Figures of the analysis: shares of energy, ratios of the backends."""

import pytest
from figure_checks import legend_texts, readable
from whole_sweep import cells as whole

from lib import analysis_plots

pytestmark = pytest.mark.usefixtures("look")


def test_split_bars_are_whole_and_say_both_shares():
    shares = whole()[["backend", "model"]].drop_duplicates().assign(prefill_pct=30.0)
    shares.iloc[0, 2] = 97.0
    figure = analysis_plots.split(shares)
    readable(figure)
    (ax,) = figure.axes
    assert len(ax.patches) == 18 and sum(bar.get_width() for bar in ax.patches) == pytest.approx(900)
    texts = [t.get_text() for t in ax.texts]
    assert texts.count("30 %") == texts.count("70 %") == 8 and texts.count("97 %") == 1
    assert "3 %" not in texts, "no room for it"
    assert legend_texts(figure) == ["prefill", "decode", "llama.cpp", "MLX-LM"]


def test_ratios_have_a_line_a_shared_model():
    figure = analysis_plots.ratios(whole(), ["output_tok_s"])
    readable(figure)
    assert [len(ax.lines) for ax in figure.axes] == [4] * 3, "three models and the line at 1"
    assert legend_texts(figure)[-1] == "both the same" and len(legend_texts(figure)) == 4
