"""Sweeps on the real llama.cpp server: what is measured, what is kept, what each fault leaves and says."""

import contextlib
import json
import shutil

import psutil
import pytest

from lib import cells, client, ledger, paths, store, sweep
from lib.files import read_json

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("llama")]


def go(plan, run, *more):
    return sweep.main(["--plan", plan, "--run", run, *more])


def records(run):
    """cell.json of every cell of the run, by its key."""
    folder = paths.run_folder(run)
    found = [read_json(p) for p in folder.glob("*/*/gen*/ctx*/cell.json")]
    return {f"{c['backend']}/{c['model']}/{c['ctx']}/{c['gen']}": c for c in found}


def test_a_cell_has_every_artifact_and_a_second_sweep_does_nothing(scratch_run, make_plan, capfd):
    plan = make_plan(prompts="32, 48")
    assert go(plan, scratch_run) == 0
    folder = paths.cell_folder(paths.run_folder(scratch_run), "llama.cpp", "tiny-trinity", 32, 8)
    assert {p.name for p in folder.iterdir()} == {
        "cell.json", "powermetrics.log", "profile_export.jsonl", "profile_export_aiperf.json", "rss.csv",
    }  # fmt: skip
    record = read_json(folder / "cell.json")
    assert record["state"] == "ok" and record["reason"] == ""
    assert record["counts"] == {"planned": 2, "sent": 2, "ok": 2, "failed": 0, "censored": 0, "warmup": 1}
    assert record["first_of_life"] is True
    assert record["observer"]["load_generator_cpu_s"] > 0
    lines = [json.loads(line) for line in (folder / "profile_export.jsonl").read_text().splitlines()]
    assert [line["metadata"]["benchmark_phase"] for line in lines] == ["warmup", "profiling", "profiling"]
    assert all(line["metrics"]["usage_completion_tokens"]["value"] == 8 for line in lines), "exactly gen tokens"
    manifest = read_json(paths.run_folder(scratch_run) / "manifest.json")
    assert manifest["power"]["basis"] == "modelled" and manifest["attempts"][0]["ended"]

    before = {p: p.stat().st_mtime_ns for p in paths.run_folder(scratch_run).rglob("*") if p.is_file()}
    capfd.readouterr()
    assert go(plan, scratch_run) == 0
    assert "nothing to do, every cell is settled" in capfd.readouterr().out
    assert before == {p: p.stat().st_mtime_ns for p in paths.run_folder(scratch_run).rglob("*") if p.is_file()}

    rows = cells.read_run(paths.run_folder(scratch_run))
    assert list(rows["n"]) == [2, 2]
    assert (rows["osl_mismatch_pct"] == 0).all()
    assert sorted(rows["warmup"]) == [False, True]


def test_a_changed_plan_measures_only_what_changed_and_keeps_the_old(scratch_run, make_plan, capfd):
    assert go(make_plan(), scratch_run) == 0
    first = records(scratch_run)
    assert go(make_plan(prompts="32, 48"), scratch_run) == 0
    second = records(scratch_run)
    assert len(second) == 2
    assert second["llama.cpp/tiny-trinity/32/8"] == first["llama.cpp/tiny-trinity/32/8"], "measured twice"
    assert go(make_plan(requests=3), scratch_run) == 0
    assert records(scratch_run)["llama.cpp/tiny-trinity/32/8"]["counts"]["ok"] == 3
    old = list((paths.run_folder(scratch_run) / paths.ASIDE).rglob("cell.json"))
    assert [read_json(p)["counts"]["ok"] for p in old] == [2], "the superseded measurement must be kept"


def test_an_unfinished_attempt_is_put_aside_not_mixed(scratch_run, make_plan):
    folder = paths.cell_folder(paths.run_folder(scratch_run), "llama.cpp", "tiny-trinity", 32, 8)
    folder.mkdir(parents=True)
    (folder / "profile_export.jsonl").write_text('{"from": "a killed attempt"}\n')
    assert go(make_plan(), scratch_run) == 0
    assert len((folder / "profile_export.jsonl").read_text().splitlines()) == 3
    kept = list((paths.run_folder(scratch_run) / paths.ASIDE).rglob("profile_export.jsonl"))
    assert [p.read_text() for p in kept] == ['{"from": "a killed attempt"}\n']


def test_a_server_killed_in_a_cell_fails_that_cell_and_the_next_goes_on(scratch_run, make_plan, monkeypatch, capfd):
    sent = client.Client.send
    state = {"sent": 0}

    def send(self, *args, **kwargs):
        state["sent"] += 1
        if state["sent"] == 2:
            port = int(str(self._http.base_url).rsplit(":", 1)[1].strip("/"))
            _kill_listener(port)
        return sent(self, *args, **kwargs)

    monkeypatch.setattr(client.Client, "send", send)
    assert go(make_plan(prompts="32, 48"), scratch_run) == 3
    found = records(scratch_run)
    killed = found["llama.cpp/tiny-trinity/32/8"]
    assert killed["state"] == "failed"
    assert killed["reason"].startswith("server killed by SIGKILL") and killed["reason"].endswith("in request 2 of 3")
    assert found["llama.cpp/tiny-trinity/48/8"]["state"] == "ok"
    assert "failed, server killed by SIGKILL" in capfd.readouterr().out
    monkeypatch.setattr(client.Client, "send", sent)
    assert go(make_plan(prompts="32, 48"), scratch_run) == 3, "settled as failed until it is asked for again"
    assert go(make_plan(prompts="32, 48"), scratch_run, "--retry") == 0
    assert records(scratch_run)["llama.cpp/tiny-trinity/48/8"] == found["llama.cpp/tiny-trinity/48/8"]


def _kill_listener(port):
    """Kill our own child that listens on `port`."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(c.laddr.port == port and c.status == psutil.CONN_LISTEN for c in child.net_connections("tcp")):
                child.kill()  # and not waited for: its end must reach the harness that started it


def test_a_request_that_times_out_fails_the_cell_as_censored(scratch_run, make_plan, capfd):
    assert go(make_plan(timeout_s=0.001), scratch_run) == 3
    record = records(scratch_run)["llama.cpp/tiny-trinity/32/8"]
    assert record["reason"].startswith("2 of 2 requests failed; request 1: timeout")
    assert record["counts"]["censored"] == 2


def test_a_broken_model_file_fails_its_cells_with_the_servers_reason(scratch_run, make_plan, monkeypatch, tmp_path):
    real = store.locate

    def locate(model, backend, ctx_size):
        if model.name != "tiny-lfm2.5":
            return real(model, backend, ctx_size)
        cut = tmp_path / "cut.gguf"
        cut.write_bytes(real(model, backend, ctx_size).read_bytes()[:100_000])
        return cut

    monkeypatch.setattr(store, "locate", locate)
    assert go(make_plan(models="tiny-lfm2.5, tiny-trinity"), scratch_run) == 3
    found = records(scratch_run)
    assert "llama.cpp tiny-lfm2.5" in found["llama.cpp/tiny-lfm2.5/32/8"]["reason"]
    assert (
        "corrupted" in found["llama.cpp/tiny-lfm2.5/32/8"]["reason"]
        or "gguf" in found["llama.cpp/tiny-lfm2.5/32/8"]["reason"]
    )
    assert found["llama.cpp/tiny-trinity/32/8"]["state"] == "ok"


def test_a_server_that_dies_while_loading(scratch_run, make_plan, monkeypatch, tmp_path):
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho 'error: no memory for the model' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("LLAMA_SERVER", str(program))
    assert go(make_plan(prompts="32, 48"), scratch_run) == 3
    reasons = {c["reason"] for c in records(scratch_run).values()}
    assert len(reasons) == 1 and "no memory for the model" in reasons.pop()


def test_power_none_leaves_no_log(scratch_run, make_plan):
    assert go(make_plan(power="none"), scratch_run) == 0
    folder = paths.cell_folder(paths.run_folder(scratch_run), "llama.cpp", "tiny-trinity", 32, 8)
    assert not (folder / "powermetrics.log").exists()
    row = cells.read_run(paths.run_folder(scratch_run)).iloc[0]
    assert row["power_reason"] == "power was not sampled (power: none)"
    assert row["decode_power_W"] != row["decode_power_W"], "no power must be NaN"


def test_dry_run_starts_nothing(scratch_run, make_plan, capfd):
    assert go(make_plan(prompts="32, 48"), scratch_run, "--dry-run") == 0
    said = capfd.readouterr().out
    assert "would run llama.cpp tiny-trinity ctx 48 gen 8: about 0:00:0" in said
    assert "2 of 2 cells to run, 2 requests each after 1 warm-up" in said
    assert not paths.run_folder(scratch_run).exists()


def test_dry_run_of_the_published_sweep(capfd):
    assert sweep.main(["--plan", "mac-mini-m4", "--dry-run"]) == 0
    said = capfd.readouterr().out.splitlines()
    assert len(said) == 217 and sum("would record mlx-lm smallthinker" in line for line in said) == 18
    assert "216 of 216 cells to run, 20 requests each after 1 warm-up, about 32:" in said[-1]


def test_a_model_that_nobody_has_published_keeps_its_row_with_the_reason(scratch_run, make_plan, capfd):
    assert go(make_plan(models="smallthinker-4b-a0.6b", backends="mlx-lm"), scratch_run) == 0
    (record,) = records(scratch_run).values()
    assert record["reason"] == "smallthinker-4b-a0.6b: no conversion for mlx-lm is published"
    assert (record["state"], record["unsupported"]) == ("failed", True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--plan", "nonesuch"], "sweep: no plan 'nonesuch' in runs/plans"),
        (["--run", "../up"], "sweep: RUN '../up' cannot be a folder name"),
        (["--only", "vllm"], "sweep: ONLY=vllm matches no backend or model"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_1(arguments, said, capfd):
    assert sweep.main(arguments) == 1
    out = capfd.readouterr()
    assert out.err.startswith(said) and out.err.count("\n") == 1 and out.out == ""


def test_too_little_space_is_said_before_anything_starts(scratch_run, make_plan, monkeypatch, capfd):
    monkeypatch.setattr(sweep, "free_MB", lambda _: 12.0)
    assert go(make_plan(), scratch_run) == 1
    assert "12 MB free, about" in capfd.readouterr().err
    assert not paths.run_folder(scratch_run).exists()


def test_a_run_that_another_sweep_writes_is_refused_with_its_pid(scratch_run, make_plan, capfd):
    with ledger.lock(paths.run_folder(scratch_run)):
        assert go(make_plan(), scratch_run) == 1
    assert f"another sweep (pid {psutil.Process().pid}) writes this run" in capfd.readouterr().err
    shutil.rmtree(paths.run_folder(scratch_run))
