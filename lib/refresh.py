"""The notebooks as they are committed: executed in order on the fixture, without timing metadata.

    python -m lib.refresh
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from lib.paths import NOTEBOOKS, relative
from lib.report import notebooks

# What a notebook keeps of a cell's metadata: nothing that changes from run to run.
KEPT = {"tags"}


def execute(path: Path) -> None:
    """Run one notebook in place with its own default parameters and keep the outputs. Raises what a cell raises."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(NOTEBOOKS)}}
    NotebookClient(notebook, resources=resources, record_timing=False).execute()
    for cell in notebook.cells:
        cell.metadata = {key: value for key, value in cell.metadata.items() if key in KEPT}
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def main() -> int:
    for path in notebooks():
        execute(path)
        print(f"refresh: {relative(path)} holds the outputs of the fixture")
    return 0


if __name__ == "__main__":
    sys.exit(main())
