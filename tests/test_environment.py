"""The doors into the project agree: conda's file, the pins, the Makefile and what they promise."""

import re
import subprocess
import tomllib

import yaml

from lib.paths import ROOT


def pins():
    """Pinned names and versions of requirements.txt."""
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return dict(re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", line).groups() for line in lines if not line.startswith("#"))


def direct():
    """Names of the direct dependencies in pyproject.toml, extras left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {re.match(r"[A-Za-z0-9._-]+", d)[0].lower() for d in project["dependencies"]}


def test_conda_installs_exactly_the_pins():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, pip, rest = environment["dependencies"]
    assert pip == "pip" and rest == {"pip": ["-r requirements.txt"]}
    assert python in {"python=3.11", "python=3.12", "python=3.13"}


def test_every_direct_dependency_is_pinned():
    assert direct() <= {name.lower() for name in pins()}


def test_the_packages_of_the_shape_are_there():
    wanted = {
        "jupyterlab",
        "papermill",
        "nbconvert",
        "pandas",
        "numpy",
        "seaborn",
        "matplotlib",
        "httpx",
        "pytest",
        "nbval",
    }
    assert wanted <= direct()
    assert tuple(map(int, pins()["nbconvert"].split("."))) >= (7, 17, 1), "two security fixes"


def test_help_lists_every_target():
    listed = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    text = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"^\.PHONY: (.+)$", text, re.MULTILINE)[1].split())
    assert phony == {line.split()[0] for line in listed.splitlines() if re.match(r"  [a-z-]+ {2,}\S", line)}


def test_ci_calls_the_readmes_test_command():
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text()
    assert "make test" in (ROOT / "README.md").read_text()


def test_no_absolute_path_of_a_machine_is_committed():
    found = subprocess.run(
        ["git", "grep", "-nIE", r"/(root|home|Users|work)/[A-Za-z0-9]", "--", ".", ":!tests/test_environment.py"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert found.returncode in (1, 128), found.stdout  # 1: nothing found; 128: not a git checkout


def test_no_large_file_is_committed():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    for name in listed.stdout.decode().split("\0")[:-1]:
        assert (ROOT / name).stat().st_size < 5_000_000, name
