"""Sentences and figures of the appendix."""

import numpy as np
import pytest
from figure_checks import legend_texts, no_overlap, readable
from whole_sweep import cells as whole

from lib import appendix, appendix_plots

pytestmark = pytest.mark.usefixtures("look")


@pytest.fixture
def cells():
    return whole()


@pytest.fixture
def canonical(cells):
    return cells[(cells["ctx"] == 30720) & (cells["gen"] == 1024)]


def test_phase_gap_is_counted_with_its_medians(cells):
    assert appendix.phase_gap(cells) == [
        "Prefill draws more power than decode in all 152 cells; prefill minus decode is +5.0 W at prompt 256 and "
        "+3.0 W at prompt 30720 in the median."
    ]
    cells.loc[cells.index[-1], "prefill_power_W"] = 1.0
    assert "in 151 of 152 cells" in appendix.phase_gap(cells)[0]
    assert appendix.phase_gap(cells.assign(decode_power_W=np.nan)) == []


def test_tails_say_that_a_p99_of_few_is_the_maximum(canonical):
    ratio, note = appendix.tails(canonical)
    assert ratio.startswith("p99 of request latency is 1.050 times the median")
    assert note.startswith("With 20 requests a cell, p99 lies between the two slowest of them")
    assert len(appendix.tails(canonical.assign(n=100))) == 1
    assert appendix.tails(canonical.assign(n=1)) == [], "one request has no spread"


def test_generations_are_compared_on_the_prompt_lengths_that_all_have(cells):
    table = appendix.by_gen(cells, "output_tok_J")
    assert len(table) == 27 and set(table["prompts"]) == {4, 5}, "less the warm-up cell, and one not measured"
    # the rate does not depend on gen, so neither may the median, though gen 256 lacks its warm-up cell
    assert table.groupby(["backend", "model"])["output_tok_J"].nunique().eq(1).all()
    assert appendix.gen_effect(table, "output_tok_J").endswith("the change is +0.0 to +0.0 %.")
    more = table.assign(output_tok_J=table["output_tok_J"] * (1 + table["gen"] / 2560))
    assert "rises for 9 of 9 lines of model and backend; the change is +27.3 to +27.3 %" in appendix.gen_effect(
        more, "output_tok_J"
    )
    assert appendix.gen_effect(table[table["gen"] == 256], "output_tok_J") == ""


def test_output_lengths_name_who_is_far_off(cells):
    llama, mlx = appendix.output_lengths(cells)
    assert llama == "Under llama.cpp, the outputs of all 108 cells are at the length asked."
    assert mlx == (
        "Under MLX-LM, the outputs of 47 of 53 cells are at the length asked; granite4-h-tiny is off by -70.0 % at gen "
        "1024 (6 cells)."
    )


def test_phase_power_has_a_panel_a_model_and_gen_and_four_bars_a_length(cells):
    figure = appendix_plots.phase_power(cells[cells["model"].isin(("lfm2.5-8b-a1b", "smallthinker-4b-a0.6b"))])
    readable(figure)
    assert len(figure.axes) == 6 and len({ax.get_ylim() for ax in figure.axes}) == 1
    assert legend_texts(figure) == ["llama.cpp, prefill", "llama.cpp, decode", "MLX-LM, prefill", "MLX-LM, decode"]
    bars = figure.axes[0].patches
    assert len(bars) == 24 and sum(bool(b.get_hatch()) for b in bars) == 12
    assert np.isnan(bars[0].get_height()), "the warm-up cell has no bar, not one of 0 W"


def test_latency_spread_shows_three_percentiles(canonical):
    figure = appendix_plots.latency_spread(canonical)
    readable(figure)
    left, right = figure.axes
    assert len(left.patches) == 9 and left.get_xlim()[0] == 0
    assert legend_texts(figure)[-3:] == ["p50", "p90", "p99"]
    over = [line.get_xdata() for line in right.lines if len(line.get_xdata()) == 2]
    assert len(over) == 9 and all(list(x) == pytest.approx([0.0, 5.0]) for x in over)


def test_by_gen_draws_a_bar_a_gen_and_says_where_there_is_none(cells):
    figure = appendix_plots.by_gen(appendix.by_gen(cells, "output_tok_J"), "output_tok_J")
    readable(figure)
    assert [len(ax.patches) for ax in figure.axes] == [18, 18]
    assert [t.get_text() for t in figure.axes[1].texts].count("no value") == 3
    no_overlap(figure.axes[1].get_xticklabels())


def test_heat_maps_share_one_scale_centred_on_nothing(cells):
    reach = appendix_plots.reach_of(cells, "osl_mismatch_pct")
    assert reach == pytest.approx(70.0)
    assert appendix_plots.reach_of(cells.assign(osl_mismatch_pct=0.1), "osl_mismatch_pct") == 5.0
    assert appendix_plots.reach_of(cells.assign(osl_mismatch_pct=np.nan), "osl_mismatch_pct") == 5.0
    scales, cells = set(), cells[cells["gen"] != 512]
    for backend, rows in (("llama.cpp", 6), ("mlx-lm", 3)):
        figure = appendix_plots.heat(cells[cells["backend"] == backend], "osl_mismatch_pct", reach)
        figure.draw_without_rendering()
        maps = [ax for ax in figure.axes if ax.get_title(loc="left")]
        assert len(maps) == 2 and all(len(ax.texts) == 6 * rows for ax in maps)
        no_overlap([t for ax in maps for t in ax.texts])
        norm = maps[0].collections[0].norm
        scales.add((norm.vmin, norm.vcenter, norm.vmax))
    assert scales == {(-reach, 0.0, reach)}
    assert "−70.0" in [t.get_text() for t in maps[1].texts]
    assert [t.get_text() for t in maps[0].texts].count("–") == 1, "the cell that was not measured"
