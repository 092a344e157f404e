"""The backend MLX-VLM against a stand-in for its program: nobody has run it with the real one yet."""

import sys
from pathlib import Path

import pytest

from lib import backends, models, paths, store, sweep
from lib.backend import BackendError
from lib.files import read_json
from lib.server import Server, ServerError
from tests.fake_servers import program

VLM = backends.get("mlx-vlm")
group = pytest.mark.xdist_group("mlx-vlm")


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts the stand-in, with its faults, in place of the program."""

    def put(**faults):
        monkeypatch.setenv("MLX_VLM_SERVER", str(program(tmp_path, "mlx_vlm.server", **faults)))

    return put


def test_command_says_the_host(install, tmp_path):
    install()
    assert VLM.command(Path("m"), 8123, 6144, ["--prefill-step-size", "512"]) == [
        str(tmp_path / "mlx_vlm.server"), "--model", "m", "--host", "127.0.0.1", "--port", "8123",
        "--prefill-step-size", "512",
    ]  # fmt: skip


@group
def test_a_cell_is_measured(install, scratch_run, make_plan):
    install(eos_after=5)
    assert sweep.main(["--plan", make_plan(backends="mlx-vlm"), "--run", scratch_run, "--skip-doctor"]) == 0
    folder = paths.run_folder(scratch_run) / "mlx-vlm" / "tiny-trinity"
    record, about = read_json(folder / "gen8" / "ctx32" / "cell.json"), read_json(folder / "server.json")
    assert (record["state"], record["short"], record["counts"]["ok"]) == ("ok", 2, 2)
    assert about["model_path"].startswith(".cache/models/tiny-trinity-") and about["checks"] == {}


@group
def test_a_model_that_it_does_not_know(install, tmp_path):
    install(refuses="Model type afmoe not supported.")
    model = models.get("tiny-trinity")
    path = store.locate(model, "mlx-vlm", 1024)
    with Server(VLM, model, path, tmp_path / "run", ctx_size=1024) as s, pytest.raises(ServerError) as e:
        s.wait_ready(20)
    assert str(e.value) == "mlx-vlm tiny-trinity: ValueError: Model type afmoe not supported."
    assert e.value.unsupported


def test_a_missing_program_says_what_to_install(monkeypatch):
    monkeypatch.delenv("MLX_VLM_SERVER", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(BackendError, match=r"^mlx_vlm\.server is not installed; 'pip install mlx-vlm' into .* set MLX"):
        VLM.command(Path("m"), 1, 1)
    monkeypatch.setenv("MLX_VLM_SERVER", "/nowhere/server")
    with pytest.raises(BackendError, match=r"MLX_VLM_SERVER=/nowhere/server is not a program"):
        VLM.command(Path("m"), 1, 1)


@pytest.mark.parametrize(
    ("first", "version"),
    [
        ("#!{folder}/python3", "mlx-vlm 0.3.9, mlx 0.32.4"),
        ("#!/bin/sh", "mlx-vlm, of a version that its program does not say"),
    ],
)
def test_version_is_that_of_its_own_environment(tmp_path, monkeypatch, first, version):
    python, server = tmp_path / "python3", tmp_path / "mlx_vlm.server"
    python.write_text("#!/bin/sh\necho 'mlx-vlm 0.3.9, mlx 0.32.4'\n")
    server.write_text(first.format(folder=tmp_path) + "\n")
    for file in (python, server):
        file.chmod(0o755)
    monkeypatch.setenv("MLX_VLM_SERVER", str(server))
    assert VLM.version() == version
