"""Notebooks run in this process: a kernel costs each notebook two seconds, and many tests want to see what they say.

What differs from a kernel: notebooks share the process's imports. `make report` and nbval use real kernels.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from matplotlib.figure import Figure

from lib import paths, report


@contextmanager
def _in_notebooks_folder():
    before, main = Path.cwd(), sys.modules["__main__"]
    os.chdir(paths.NOTEBOOKS)
    sys.path.insert(0, str(paths.NOTEBOOKS))
    try:
        yield
    finally:
        sys.path.remove(str(paths.NOTEBOOKS))
        os.chdir(before)
        sys.modules["__main__"] = main  # the shell puts its own there, and processes started later would look for it


def execute(source: Path, run: str, draw: bool = True) -> nbformat.NotebookNode:
    """The notebook with its Markdown and text outputs, run on `run`. Raises what a cell raises.

    Without `draw` figures are made, but not laid out and drawn.
    """
    with nullcontext() if draw else _without_drawing():
        return _execute(source, run)


def _execute(source: Path, run: str) -> nbformat.NotebookNode:
    mpl.use("Agg")
    notebook = nbformat.read(source, as_version=4)
    with _in_notebooks_folder():
        shell = InteractiveShell.instance()
        shell.reset(new_session=False)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                parameters = "parameters" in cell.metadata.get("tags", [])
                cell.outputs = _outputs(shell, cell.source + (f"\nrun = {run!r}" if parameters else ""))
    return notebook


def _outputs(shell: InteractiveShell, code: str) -> list:
    with capture_output() as captured:
        done = shell.run_cell(code)
    done.raise_error()
    outputs = [nbformat.v4.new_output("stream", text=captured.stdout)] if captured.stdout else []
    return outputs + [nbformat.v4.new_output("display_data", data=dict(o.data)) for o in captured.outputs]


def text(notebook: nbformat.NotebookNode) -> str:
    """All that the notebook's cells put into the report, and what they print."""
    shown = [o.get("text") or o["data"].get("text/markdown", "") for c in notebook.cells for o in c.get("outputs", [])]
    return "\n\n".join(shown)


def _keep(path: Path, text: str) -> None:
    """Write a stand-in unless the drawn figure is there: the fixture's are committed."""
    if not path.exists():
        path.write_text(text)


@contextmanager
def _without_drawing():
    """Figures are made but not laid out and drawn, which is most of a report's time."""
    empty = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda _, path, **__: _keep(Path(path), empty))
        patch.setattr(Figure, "tight_layout", lambda *_, **__: None)
        patch.setattr(plt, "show", lambda: plt.close("all"))
        yield


def build(run: str, draw: bool = True) -> str:
    """The whole report of `run` from every notebook; returns report.md. report.html stands beside it."""
    from lib import cells, join
    from lib.files import read_optional

    run_dir = paths.run_folder(run)
    cells.update(run_dir)
    folder = paths.REPORTS / run
    (folder / "notebooks").mkdir(parents=True, exist_ok=True)
    ready = {}
    for source in report.notebooks():
        ready[source] = folder / "notebooks" / source.name
        nbformat.write(execute(source, run, draw), ready[source])
    join.write(run, folder, ready, [], read_optional(run_dir / "manifest.json"))
    return (folder / "report.md").read_text()
