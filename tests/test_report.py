"""Which notebooks run and when; what is left and said when one fails."""

import shutil

import nbformat
import pytest

from lib import paths, report

CELL = "llama.cpp/tiny-trinity/gen16/ctx32"


def write(path, code, parameters="run = 'x'  # a run"):
    cells = [
        nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell(f"from IPython.display import Markdown, display\n{code}"),
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}, "language_info": {"name": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)


@pytest.fixture
def run(scratch_run, tmp_path, monkeypatch):
    """A run of one cell of the fixture, and two small notebooks that stand for the project's."""
    target = paths.run_folder(scratch_run)
    shutil.copytree(paths.RUNS / "fixture" / CELL, target / CELL)
    shutil.copy(paths.RUNS / "fixture" / "manifest.json", target)
    write(tmp_path / "10-throughput.ipynb", "display(Markdown(f'## Ten of {run}'))")
    write(tmp_path / "11-energy.ipynb", "display(Markdown('## Eleven'))")
    monkeypatch.setattr(report, "notebooks", lambda: sorted(tmp_path.glob("*.ipynb")))
    return scratch_run


def ran(folder):
    """When each executed notebook was written."""
    return {p.name: p.stat().st_mtime_ns for p in (folder / "notebooks").glob("*.ipynb")}


def test_only_what_changed_runs(run, tmp_path, capfd):
    folder = paths.REPORTS / run
    assert report.main(["--run", run]) == 0
    assert "2 of 2 notebooks run" in capfd.readouterr().out
    assert f"## Ten of {run}" in (folder / "report.md").read_text()
    first = ran(folder)

    assert report.main(["--run", run]) == 0
    assert "nothing changed, no notebook run" in capfd.readouterr().out
    assert ran(folder) == first

    write(tmp_path / "11-energy.ipynb", "display(Markdown('## Eleven, changed'))")
    assert report.main(["--run", run]) == 0
    assert "1 of 2 notebooks run" in capfd.readouterr().out
    second = ran(folder)
    assert {name for name in first if first[name] != second[name]} == {"11-energy.ipynb"}
    assert "Eleven, changed" in (folder / "report.md").read_text()


def test_outputs_in_a_source_notebook_make_nothing_stale(run, tmp_path, capfd):
    assert report.main(["--run", run]) == 0
    source = tmp_path / "11-energy.ipynb"
    notebook = nbformat.read(source, as_version=4)
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text="seen in JupyterLab")]
    nbformat.write(notebook, source)
    capfd.readouterr()
    assert report.main(["--run", run]) == 0
    assert "nothing changed" in capfd.readouterr().out


def test_a_failed_notebook_is_kept_with_its_traceback_and_the_report_says_so(run, tmp_path, capfd):
    write(tmp_path / "11-energy.ipynb", "raise ValueError('broken on purpose')")
    assert report.main(["--run", run]) == 4
    said = capfd.readouterr().err.strip().splitlines()
    assert said == [
        "report: notebook 11-energy failed: ValueError: broken on purpose; "
        f"see report/{run}/notebooks/11-energy.failed.ipynb"
    ]
    folder = paths.REPORTS / run
    assert "broken on purpose" in (folder / "notebooks" / "11-energy.failed.ipynb").read_text()
    text = (folder / "report.md").read_text()
    assert "Notebook 11-energy failed; its part is missing here." in text and "## Ten of" in text
    write(tmp_path / "11-energy.ipynb", "display(Markdown('## Eleven'))")
    assert report.main(["--run", run]) == 0
    assert not (folder / "notebooks" / "11-energy.failed.ipynb").exists()
    assert "failed" not in (folder / "report.md").read_text()


@pytest.mark.parametrize(
    ("name", "said"),
    [("no-such-run", "report: no run in runs/no-such-run; 'make sweep' makes one"), ("../up", "report: RUN '../up'")],
)
def test_an_unknown_run_is_one_line(name, said, capfd):
    assert report.main(["--run", name]) == 1
    err = capfd.readouterr().err
    assert err.startswith(said) and err.count("\n") == 1
    assert not (paths.REPORTS / name).exists()


def test_a_lost_stamp_of_the_tables_is_made_again(run, capfd):
    assert report.main(["--run", run]) == 0
    (paths.run_folder(run) / "tables" / "stamp").unlink()
    capfd.readouterr()
    assert report.main(["--run", run]) == 0
    assert "nothing changed" in capfd.readouterr().out, "the same tables have the same stamp"
