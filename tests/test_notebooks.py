"""Each notebook runs on the committed fixture, and its checked cell shows the fixture's own numbers."""

import io
import re
import shutil

import in_process
import nbformat
import pandas as pd
import pytest

from lib import cells, paths, refresh, report

FIXTURE = paths.RUNS / "fixture"
NOTEBOOKS = report.notebooks()


def checked_cell(notebook):
    """The one cell tagged for checking, which must be the last."""
    found = [c for c in notebook.cells if "nbval-check-output" in c.metadata.get("tags", [])]
    assert len(found) == 1 and found[0] is notebook.cells[-1]
    return found[0]


@pytest.fixture(scope="module")
def ok():
    """The usable cells of the fixture, straight from its artifacts."""
    rows = cells.read_run(FIXTURE)
    return rows[rows["state"] == "ok"]


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs_on_the_fixture(source, ok):
    done = in_process.execute(source, "fixture", draw=False)
    text = "".join(out.get("text", "") for out in checked_cell(done).outputs)
    if source.stem[:2] in {"10", "11", "12", "13"}:
        table = pd.read_csv(io.StringIO(text), na_values="missing")
        merged = table.merge(ok, on=["backend", "model", "ctx", "gen"], suffixes=("", "_true"))
        assert len(merged) == len(ok) == len(table)
        for name in table.columns.drop(["backend", "model", "ctx", "gen"]):
            pd.testing.assert_series_equal(
                merged[name].astype(float), merged[f"{name}_true"].astype(float), check_names=False, rtol=1e-3
            )
    else:
        assert text.strip()


def test_the_fixture_has_both_backends_and_a_refused_model(ok):
    rows = cells.read_run(FIXTURE)
    assert set(ok["backend"]) == {"llama.cpp", "mlx-lm"}
    refused = rows[rows["state"] == "failed"]
    assert set(refused["model"]) == {"tiny-smallthinker"} and refused["unsupported"].all()
    short = ok[ok["osl"] < ok["gen"]]
    assert short[["backend", "model", "ctx", "gen"]].values.tolist() == [["mlx-lm", "tiny-granite4-h", 128, 48]]
    assert (ok["osl"] <= ok["gen"]).all()
    assert (rows["power_basis"] == "modelled").all()


def test_prompts_differ_within_a_cell_and_are_the_same_for_both_backends(ok):
    sent = pd.read_parquet(FIXTURE / "tables" / "requests.parquet")
    keys = ["model", "ctx", "gen", "phase", "index"]
    assert not sent.duplicated(["backend", "model", "ctx", "gen", "prompt_sha256"]).any()
    pairs = sent.pivot(index=keys, columns="backend", values="prompt_sha256").dropna()
    assert len(pairs) == 48 and (pairs["llama.cpp"] == pairs["mlx-lm"]).all()


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda p: p.stem)
def test_shape(source):
    notebook = nbformat.read(source, as_version=4)
    first, second = notebook.cells[:2]
    assert first.cell_type == "markdown" and "**Question.**" in first.source and "**Inputs.**" in first.source
    assert second.metadata["tags"] == ["parameters"]
    assert all("#" in line for line in second.source.splitlines()), "each parameter says what it is"
    assert all(len(c.source.splitlines()) <= 30 for c in notebook.cells if c.cell_type == "code")
    checked_cell(notebook)


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda p: p.stem)
def test_committed_outputs_are_whole_and_in_order(source):
    """nbval runs a cell without a count but compares nothing, so each must have been executed, in order."""
    notebook = nbformat.read(source, as_version=4)
    code = [c for c in notebook.cells if c.cell_type == "code" and c.source]
    assert [c.execution_count for c in code] == list(range(1, len(code) + 1))
    assert checked_cell(notebook).outputs, "a checked cell without outputs checks nothing"
    assert all(set(c.metadata) <= {"tags"} for c in notebook.cells) and "papermill" not in notebook.metadata
    assert not any(out.output_type == "error" for c in code for out in c.outputs)


def test_every_notebook_of_the_report_order_is_there():
    from lib.join import ORDER

    assert {p.stem for p in NOTEBOOKS} == {name for name, _ in ORDER}


def test_the_example_report_is_joined_from_the_committed_notebooks(tmp_path):
    """`make refresh` was run: what is committed under report/example is what the notebooks say."""
    folder = paths.REPORTS / "example"
    again = paths.REPORTS / f"test-{tmp_path.name}"
    try:
        refresh.example(again)
        for name in ("report.md", "report.html"):
            assert (again / name).read_text() == (folder / name).read_text(), "run 'make refresh'"
            assert (folder / name).stat().st_size < 5e6
    finally:
        shutil.rmtree(again, ignore_errors=True)


def test_the_readme_shows_figures_that_are_there():
    shown = re.findall(r"!\[[^\]]+\]\((figures/fixture/[^)]+)\)", (paths.ROOT / "README.md").read_text())
    assert len(shown) == 2 and all((paths.ROOT / path).exists() for path in shown)
