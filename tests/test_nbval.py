"""nbval compares the notebooks' checked cells: it passes on the code as it is, and fails when a formula changes."""

import os
import shutil
import subprocess
import sys

import pytest

from lib import paths

NOTEBOOK = "11-energy.ipynb"


@pytest.fixture
def tree(tmp_path):
    """The project with one notebook, in another folder."""
    for name in ("lib", "runs/fixture"):
        shutil.copytree(paths.ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "tables"))
    (tmp_path / "notebooks").mkdir()
    for name in (NOTEBOOK, "_root.py"):
        shutil.copy(paths.NOTEBOOKS / name, tmp_path / "notebooks")
    return tmp_path


def nbval(tree):
    """What `make nbval` does, in `tree`; returns the exit code and what was said."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval-lax", "--nbval-current-env"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        [*command, "--rootdir", str(tree), "notebooks"], cwd=tree, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_the_committed_outputs_hold_and_a_changed_formula_does_not(tree):
    code, said = nbval(tree)
    assert code == 0, said
    formulas = tree / "lib" / "formulas.py"
    text = formulas.read_text()
    right = "return _ratio(osl, decode_power_W * p50_decode_s)"
    assert right in text
    formulas.write_text(text.replace(right, right.replace("osl,", "1.01 * osl,")))
    code, said = nbval(tree)
    assert code == 1 and "Cell outputs differ" in said and NOTEBOOK in said
