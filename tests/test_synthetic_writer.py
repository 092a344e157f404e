"""A synthetic run that is killed, refused or scaled: how it ends, and what the same command then does."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from lib import paths, sweep
from lib.synthetic import writer

# Runs of its own: beside the whole run of test_synthetic, not after it.
pytestmark = pytest.mark.xdist_group("paper-writer")


def command(run, *more):
    return ["--plan", "paper", "--run", run, "--requests", "1", *more]


def settled(run):
    return sorted(paths.run_folder(run).glob("*/*/gen*/ctx*/cell.json"))


def wait_until(true, process):
    while not true() and process.poll() is None:
        time.sleep(0.02)


def test_killed_in_the_middle_the_same_command_writes_exactly_the_161_cells(scratch_run):
    process = subprocess.Popen([sys.executable, "-m", "lib.sweep", *command(scratch_run)], stdout=subprocess.DEVNULL)
    wait_until(lambda: len(settled(scratch_run)) >= 5, process)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    assert process.wait() == -signal.SIGKILL and workers
    assert psutil.wait_procs(workers, timeout=30)[1] == [], "no worker stays behind and keeps the lock"
    before = {path: path.stat().st_mtime_ns for path in settled(scratch_run)}
    assert 5 <= len(before) < 161
    assert sweep.main(command(scratch_run)) == 0
    after = {path: path.stat().st_mtime_ns for path in settled(scratch_run)}
    assert len(after) == 161 and before.items() <= after.items(), "what was settled is not written again"


def test_interrupted_it_ends_with_130_and_whole_cells(scratch_run):
    process = subprocess.Popen(
        [sys.executable, "-m", "lib.sweep", *command(scratch_run)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: len(settled(scratch_run)) >= 5, process)
    os.killpg(process.pid, signal.SIGTERM)  # as Ctrl-C does, to the workers too
    said = process.communicate()[1]
    assert process.returncode == 130 and said.count("\n") == 1 and "interrupted" in said
    for path in settled(scratch_run):
        assert {"powermetrics.log.gz", "profile_export.jsonl", "rss.csv"} <= {p.name for p in path.parent.iterdir()}


def test_a_killed_worker_is_one_line(scratch_run):
    process = subprocess.Popen(
        [sys.executable, "-m", "lib.sweep", *command(scratch_run)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: settled(scratch_run), process)
    psutil.Process(process.pid).children()[-1].kill()
    said = process.communicate()[1]
    assert process.returncode == 1 and said.count("\n") == 1 and "a process that wrote cells was killed" in said


def test_a_dry_run_says_the_size_and_writes_nothing(scratch_run, capsys):
    assert sweep.main(command(scratch_run, "--dry-run", "--only", "gemma4-e4b")) == 0
    said = capsys.readouterr().out
    assert "18 of 18 cells to write, 1 requests each" in said and " MB" in said
    assert not paths.run_folder(scratch_run).exists()


def test_more_requests_write_every_cell_again_and_keep_the_old_ones(scratch_run):
    only = ("--only", "trinity-nano")
    assert sweep.main(command(scratch_run, *only)) == 0
    assert len(settled(scratch_run)) == 35, "18 under llama.cpp; 17 under MLX-LM, where one is missing"
    assert sweep.main(["--plan", "paper", "--run", scratch_run, "--requests", "2", *only]) == 0
    aside = paths.run_folder(scratch_run) / paths.ASIDE
    assert len(settled(scratch_run)) == 35 and len(list(aside.rglob("cell.json"))) == 35


def test_a_folder_that_cannot_be_written_is_one_line(scratch_run, capfd):
    folder = paths.run_folder(scratch_run)
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("root writes everywhere")
    assert sweep.main(command(scratch_run)) == 1
    err = capfd.readouterr().err
    assert scratch_run in err and err.count("\n") == 1


def test_another_model_of_the_machine_writes_every_cell_again(scratch_run, monkeypatch, capsys):
    cell = ("--only", "gemma4-e4b")
    assert sweep.main(command(scratch_run, *cell)) == 0
    monkeypatch.setattr(writer, "model_hash", lambda: "another")
    assert sweep.main(command(scratch_run, *cell, "--dry-run")) == 0
    assert "18 of 18 cells to write" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [["--requests", "many"], ["--interval-ms", "fast"]])
def test_a_word_where_a_number_belongs_is_refused(wrong, capfd):
    with pytest.raises(SystemExit):
        sweep.main(["--plan", "paper", *wrong])
    assert "invalid int value" in capfd.readouterr().err


def test_an_interval_the_meter_cannot_have_is_one_line(capfd):
    assert sweep.main(["--plan", "paper", "--interval-ms", "0"]) == 1
    err = capfd.readouterr().err
    assert "power_interval_ms" in err and err.count("\n") == 1
