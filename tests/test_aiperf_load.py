"""aiperf as a cell's load generator: its command line, what makes its work complete, and its end.

A stand-in program leaves the files that aiperf leaves. The comparison with the real aiperf runs where
`make aiperf-env` has been run.
"""

import itertools
import json
import os
import stat
import time
from types import SimpleNamespace

import psutil
import pytest

from lib import aiperf_load, cells, measure, paths, plan, sweep

CELL = plan.Cell("mlx-lm", "tiny-trinity", 64, 32)
STAND_IN = """#!{python}
import json, os, pathlib, sys, time
out = pathlib.Path(sys.argv[sys.argv.index("--artifact-dir") + 1])
out.mkdir(parents=True)
(out / "said.json").write_text(json.dumps({{"argv": sys.argv[1:], "offline": os.environ.get("HF_HUB_OFFLINE", "")}}))
{body}
"""
LINES = """
def line(phase, **more):
    metadata = {"benchmark_phase": phase, "request_start_ns": 10**18, "request_end_ns": 10**18 + 10**9}
    metrics = {"usage_completion_tokens": {"value": 32, "unit": "tokens"}}
    return json.dumps({"metadata": metadata, "metrics": metrics} | more) + "\\n"
"""


def make_plan(**more):
    base = dict(backends=["mlx-lm"], models=["tiny-trinity"], prompts=[64], gens=[32], requests=2, load="aiperf")
    return plan.Plan(**base | more)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A function that puts a stand-in for aiperf in its place, which does what `body` says."""
    import sys

    def make(body):
        path = tmp_path / "aiperf"
        path.write_text(STAND_IN.format(python=sys.executable, body=LINES + body))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(aiperf_load, "PROGRAM", path)

    return make


def run(tmp_path, ticks=None, **more):
    folder = tmp_path / "cell"
    folder.mkdir()
    tick = (lambda: ticks.append(1)) if ticks is not None else lambda: None
    return aiperf_load.run(
        make_plan(**more),
        CELL,
        "http://127.0.0.1:9",
        "default_model",
        tmp_path,
        {"logit_bias": {"7": -100}},
        folder,
        tick,
    )


GOOD = """
(out / "profile_export.jsonl").write_text(line("warmup") + line("profiling") + line("profiling"))
(out / "profile_export_aiperf.json").write_text("{}")
(out / ".aiperf_results_ready.json").write_text("{}")
"""


def test_complete_work_is_kept_and_counted(program, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    program(GOOD)
    ticks = []
    outcome = run(tmp_path, ticks)
    assert outcome.reason == "" and len(outcome.records) == len(ticks) == 3 and outcome.cpu_s > 0
    assert (tmp_path / "cell" / "profile_export.jsonl").exists()
    said = json.loads((tmp_path / "cell" / "aiperf" / "said.json").read_text())
    assert said["offline"] == "", "with it set aiperf refuses a local tokenizer"
    words = said["argv"]
    asked = dict(itertools.pairwise(words))
    assert asked["--synthetic-input-tokens-mean"] == "64" and asked["--output-tokens-mean"] == "32"
    assert asked["--concurrency"] == "1" and asked["--request-count"] == "2" and asked["--warmup-request-count"] == "1"
    assert json.loads(asked["--extra-inputs"]) == {"temperature": 0, "logit_bias": {"7": -100}}
    assert asked["--url"].startswith("http://127.0.0.1:") and "--use-server-token-count" in words


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("sys.exit(1)", "aiperf ended with exit code 1; see aiperf.log"),
        (GOOD.replace('line("profiling") + line', "line"), "aiperf ended with 1 of 2 requests; see aiperf.log"),
        (GOOD.replace('(out / ".aiperf', '(out / ".not'), "aiperf ended with 2 of 2 requests; see aiperf.log"),
        (
            GOOD.replace(
                'line("profiling")', 'line("profiling", error={"type": "TimeoutError", "message": "late"})', 1
            ),
            "1 of 2 requests failed; the first: TimeoutError: late",
        ),
        (
            GOOD.replace('line("profiling")', 'line("profiling", metrics={})', 1),
            "the server counted no tokens in 1 of 2 requests",
        ),
    ],
)
def test_incomplete_work_says_why(program, tmp_path, body, reason):
    program(body)
    assert run(tmp_path).reason == reason


def test_one_that_does_not_end_is_ended_with_all_that_it_started(program, tmp_path, monkeypatch):
    monkeypatch.setattr(aiperf_load, "SLACK_S", 0.0)
    program(
        "import subprocess\nchild = subprocess.Popen(['sleep', '60'])\n"
        "(out / 'pid').write_text(str(child.pid))\ntime.sleep(60)"
    )
    outcome = run(tmp_path, request_timeout_s=0.5)
    assert outcome.reason == "aiperf did not end within 2 s; see aiperf.log"
    child = int((tmp_path / "cell" / "aiperf" / "pid").read_text())
    for _ in range(100):
        if not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.05)
    else:
        pytest.fail("what aiperf started is still there")


def test_without_the_program_or_a_warm_up_it_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(aiperf_load, "PROGRAM", tmp_path / "none")
    with pytest.raises(aiperf_load.LoadError, match="'make aiperf-env' makes its environment"):
        run(tmp_path)
    monkeypatch.setattr(aiperf_load, "PROGRAM", tmp_path)
    (tmp_path / "cell").rmdir()
    with pytest.raises(aiperf_load.LoadError, match="needs a warm-up request"):
        run(tmp_path, warmup=0)


def test_a_failed_load_is_the_cell_s_verdict(program, tmp_path, monkeypatch):
    program("sys.exit(1)")
    server = SimpleNamespace(
        base_url="http://127.0.0.1:9", death=lambda: "the server was killed by signal 9", pid=os.getpid()
    )
    prepared = measure.Prepared([], {}, "default_model", tmp_path)
    folder = tmp_path / "cell"
    folder.mkdir()
    sent = measure._by_aiperf(make_plan(), CELL, server, prepared, folder, lambda: None, measure.Watch(os.getpid()))
    assert sent.verdict.state == "failed"
    assert sent.verdict.reason.startswith("the server was killed by signal 9; aiperf ended with exit code 1")
    assert sent.counts["sent"] == 0 and sent.counts["planned"] == 2


@pytest.mark.server
@pytest.mark.xdist_group("mlx")
@pytest.mark.skipif(not aiperf_load.PROGRAM.exists(), reason="aiperf is not installed ('make aiperf-env')")
def test_both_load_generators_agree_on_a_real_server(tmp_path, scratch_run):
    """Medians of TTFT and ITL within 3 ms and 2 %, as each other's; what each costs stands in the cell."""
    found = {}
    for load in ("httpx", "aiperf"):
        path = tmp_path / f"{load}.yaml"
        path.write_text(
            "backends: [mlx-lm]\nmodels: [tiny-trinity]\nprompts: [64]\ngens: [64]\nrequests: 12\nwarmup: 2\n"
            f"power: none\nload: {load}\nsmoke: [32]\nrequest_timeout_s: 60.0\n"
        )
        run_name = f"{scratch_run}-{load}"
        try:
            assert sweep.main(["--plan", str(path), "--run", run_name]) == 0
            found[load] = cells.read_run(paths.run_folder(run_name)).iloc[0]
        finally:
            import shutil

            shutil.rmtree(paths.run_folder(run_name), ignore_errors=True)
    ours, theirs = found["httpx"], found["aiperf"]
    for name in ("ttft_ms", "itl_ms"):
        assert abs(ours[name] - theirs[name]) <= max(3.0, 0.02 * ours[name])
    assert ours["load_generator_cpu_s"] < theirs["load_generator_cpu_s"]
