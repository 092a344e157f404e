"""What is committed of the fixture: notebooks executed in order, without timing metadata; the report joined from them.

    python -m lib.refresh
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from lib import join
from lib.files import read_json
from lib.paths import NOTEBOOKS, REPORTS, RUNS, relative
from lib.report import notebooks

# What a notebook keeps of a cell's metadata: nothing that changes from run to run.
KEPT = {"tags"}


def execute(path: Path) -> None:
    """Run one notebook in place with its own default parameters and keep the outputs. Raises what a cell raises."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(NOTEBOOKS)}}
    NotebookClient(notebook, resources=resources, record_timing=False).execute()
    for cell in notebook.cells:
        # what libraries say on standard error names paths of this machine
        if cell.cell_type == "code":
            cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
        cell.metadata = {key: value for key, value in cell.metadata.items() if key in KEPT}
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def example(folder: Path) -> None:
    """Write the example report into `folder`, from the committed outputs of the notebooks."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = read_json(RUNS / "fixture" / "manifest.json")
    join.write("fixture", folder, {path: path for path in notebooks()}, [], manifest)


def main() -> int:
    for path in notebooks():
        execute(path)
        print(f"refresh: {relative(path)} holds the outputs of the fixture")
    example(REPORTS / "example")
    print("refresh: report/example is joined from them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
