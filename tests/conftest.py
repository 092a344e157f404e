"""What several test modules share: a run under runs/ that is gone afterwards, and a small plan."""

import os
import shutil
import uuid
from pathlib import Path

import pytest

from lib import machine, paths

# Small programs that print what a Mac's own do; each says in its first lines how it can be told to fail.
STAND_INS = Path(__file__).with_name("stand_ins")

PLAN = """
backends: [{backends}]
models: [{models}]
prompts: [{prompts}]
gens: [{gens}]
requests: {requests}
warmup: 1
order: as-listed
power: {power}
smoke: [32]
request_timeout_s: {timeout_s}
"""


@pytest.fixture
def scratch_run():
    """Name of a run that does not exist yet; what it leaves in runs, report and figures is removed afterwards."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    for root in (paths.RUNS, paths.REPORTS, paths.FIGURES):
        shutil.rmtree(root / name, ignore_errors=True)


@pytest.fixture
def look():
    """Figures have the project's look, need no screen, and are closed afterwards."""
    import matplotlib.pyplot as plt  # here: most tests draw nothing

    from lib import style

    plt.switch_backend("Agg")
    style.use()
    yield
    plt.close("all")


@pytest.fixture
def make_plan(tmp_path):
    """A function that writes a plan and returns its path; keys not given are the smallest that work."""

    def make(extra: str = "", **kwargs: str) -> str:
        values = {
            "backends": "llama.cpp", "models": "tiny-trinity", "prompts": "32", "gens": "8", "requests": "2",
            "power": "modelled", "timeout_s": "60.0",
        }  # fmt: skip
        path = Path(tmp_path) / "plan.yaml"
        path.write_text(PLAN.format(**values | {k: str(v) for k, v in kwargs.items()}) + extra)
        return str(path)

    return make


@pytest.fixture
def mac(monkeypatch):
    """This machine passes for a Mac mini M4: its programs are those of tests/stand_ins, first on PATH.

    Call it with what goes wrong, mac(sudo="password", thermal="Heavy"): each becomes a variable STAND_IN_<NAME>.
    """
    for name in [name for name in os.environ if name.startswith("STAND_IN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{STAND_INS}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(machine, "is_macos", lambda: True)

    def but(**wrong: str) -> None:
        for name, value in wrong.items():
            monkeypatch.setenv(f"STAND_IN_{name.upper()}", value)

    return but
