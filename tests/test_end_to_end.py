"""The whole path on real servers: sweep, tables, report. One model under llama.cpp, one under MLX-LM, a small grid."""

import re

import pandas as pd
import pytest

from lib import cells, paths, report, sweep

pytestmark = pytest.mark.server


def whole(plan, run, backend):
    """Sweep and report; the cells and the two texts of the report."""
    assert sweep.main(["--plan", plan, "--run", run]) == 0
    assert report.main(["--run", run, "--jobs", "2"]) == 0
    rows = cells.read_run(paths.run_folder(run))
    assert set(rows["backend"]) == {backend} and set(rows["state"]) == {"ok"}
    folder = paths.REPORTS / run
    return rows, (folder / "report.md").read_text(), (folder / "report.html").read_text()


def check(rows, text, page, run):
    """What must hold of any report, whatever was measured."""
    assert (rows["osl"] == rows["gen"]).all(), "exactly gen tokens"
    assert (rows["isl"] - rows["ctx"]).nunique() == 1, "the template's tokens and nothing else beside the prompt"
    assert (rows["cached_tokens_max"] == 0).all()
    steady = rows[~rows["warmup"]]
    power_W = steady["decode_power_W"]
    assert power_W.dropna().between(0.9, 12).all() and power_W.notna().any(), "modelled: 1 W idle, 4 W a core"
    assert (steady.loc[power_W.isna(), "power_reason"] != "").all(), "no power without a reason"
    assert (rows[rows["warmup"]]["decode_power_W"].isna()).all()
    assert "Power is modelled, not measured" in text
    assert not re.search(r"\bnan\b|\bNaN\b|\bNone\b", text), "missing values print as dashes"
    assert text.count("not available: this meter has no GPU rail") >= 4, "the GPU figures say why they are missing"
    for external in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert external.startswith(("#", "data:")), f"the page refers to {external[:80]}"
    assert not re.search(r"@import|url\(http", page)
    assert "<img" in page and all("alt=" in tag for tag in re.findall(r"<img[^>]*>", page))
    assert str(paths.ROOT) not in text
    data = pd.read_csv(paths.FIGURES / run / "fig-01.csv")
    assert len(data) == len(rows)
    merged = data.merge(rows, on=["backend", "model", "ctx", "gen"])
    pd.testing.assert_series_equal(merged["output_tok_s_x"], merged["output_tok_s_y"], check_names=False, rtol=1e-5)


@pytest.mark.xdist_group("llama")
def test_llama_cpp(scratch_run, make_plan, capfd):
    plan = make_plan(models="tiny-granite4-h", prompts="32, 256", gens="16, 32", requests="3")
    check(*whole(plan, scratch_run, "llama.cpp"), scratch_run)
    capfd.readouterr()
    assert report.main(["--run", scratch_run]) == 0
    assert "nothing changed, no notebook run" in capfd.readouterr().out


@pytest.mark.xdist_group("mlx")
def test_mlx_lm(scratch_run, make_plan):
    plan = make_plan(backends="mlx-lm", models="tiny-lfm2.5", prompts="32, 64", gens="16", requests="3")
    check(*whole(plan, scratch_run, "mlx-lm"), scratch_run)


@pytest.mark.xdist_group("mlx")
def test_a_model_that_mlx_lm_does_not_know_keeps_its_row_with_the_servers_reason(scratch_run, make_plan):
    plan = make_plan(backends="mlx-lm", models="tiny-smallthinker")
    assert sweep.main(["--plan", plan, "--run", scratch_run]) == 0, "not a failure: the backend cannot serve it"
    row = cells.read_run(paths.run_folder(scratch_run)).iloc[0]
    assert row["state"] == "failed" and row["unsupported"]
    assert "Model type smallthinker not supported" in row["reason"]
    assert report.main(["--run", scratch_run]) == 0
    assert "Model type smallthinker not supported" in (paths.REPORTS / scratch_run / "report.md").read_text()
