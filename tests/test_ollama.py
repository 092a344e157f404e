"""The backend Ollama against a stand-in for its program: nobody has run it with the real one yet."""

import json
import os
from pathlib import Path

import psutil
import pytest

from lib import backends, cells, hashes, models, ollama, paths, store, sweep
from lib.backend import BackendError, Serving
from lib.files import read_json
from lib.ollama_stream import OllamaAnswer, body
from lib.paths import CACHE
from lib.server import Server, ServerError
from tests.fake_servers import program

OLLAMA = backends.get("ollama")
MODEL = models.get("tiny-trinity")
CTX = 1024
group = pytest.mark.xdist_group("ollama")


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts the stand-in, with its faults, in place of the program."""
    monkeypatch.setattr(ollama, "CACHE", tmp_path / "cache")

    def put(**faults):
        monkeypatch.setenv("OLLAMA", str(program(tmp_path, "ollama", **faults)))

    return put


def server(folder):
    return Server(OLLAMA, MODEL, store.locate(MODEL, "ollama", CTX), folder / "run", ctx_size=CTX)


def refusal(folder):
    """Why the server does not get ready."""
    with server(folder) as s, pytest.raises(ServerError) as e:
        s.wait_ready(20)
    assert not s.alive() and "\n" not in str(e.value)
    return str(e.value)


@group
def test_a_model_is_made_loaded_and_described(install, tmp_path):
    install()
    with server(tmp_path) as s:
        s.wait_ready(20)
        smoke = s.smoke((32,))
        about, worker = s.describe(), s.worker_pid
        assert psutil.Process(worker).parent().pid == s.pid, "the runner's memory counts, not the server's"
    assert not psutil.pid_exists(worker)
    assert smoke[0]["prompt_tokens"] > 20 and smoke[0]["completion_tokens"] == 8
    assert about["command"] == [os.environ["OLLAMA"], "serve"] and about["version"] == "ollama 0.21.2"
    assert about["checks"] == {
        "expires_at": "2318-03-04T12:00:00.123456789Z", "context_length": CTX, "loaded_bytes": 4000, "in_gpu_pct": 75.0,
    }  # fmt: skip
    modelfile = (tmp_path / "cache" / "ollama" / "tiny-trinity.Modelfile").read_text().splitlines()
    assert modelfile[0] == f"FROM {store.locate(MODEL, 'ollama', CTX)}" and "PARAMETER num_ctx 1024" in modelfile
    blob = tmp_path / "cache" / "ollama" / "models" / "blobs" / f"sha256-{about['sha256']}"
    assert blob.samefile(store.locate(MODEL, "ollama", CTX)) or hashes.sha256(blob) == about["sha256"]


@group
@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ({"create": "unsupported architecture \"AfmoeForCausalLM\""}, "ollama create failed: Error: unsupported arch"),
        ({"forgets": True}, "/api/ps unloads the model at 2026-01-01T00:05:00Z: keep_alive is not heard"),
        ({"context": 512}, "/api/ps says a context of 512 tokens where 1024 were asked"),
    ],
)  # fmt: skip
def test_one_that_does_not_serve_as_asked(install, tmp_path, faults, said):
    install(**faults)
    assert refusal(tmp_path).startswith(f"ollama tiny-trinity: {said}")


@group
def test_a_cell_is_measured_over_its_own_endpoint(install, scratch_run, make_plan):
    install()
    assert sweep.main(["--plan", make_plan(backends="ollama"), "--run", scratch_run, "--skip-doctor"]) == 0
    (record,) = _records(scratch_run)
    assert (record["state"], record["short"], record["counts"]["ok"]) == ("ok", 0, 2)
    row = cells.read_run(paths.run_folder(scratch_run)).iloc[0]
    assert (row["isl"], row["osl"], row["osl_mismatch_pct"]) == (36, 8, 0)
    assert row["peak_ram_MB"] > 55, "that of the runner"


@group
def test_a_cell_says_that_it_was_cold(install, scratch_run, make_plan):
    install(load_s=12.5)
    assert sweep.main(["--plan", make_plan(backends="ollama"), "--run", scratch_run, "--skip-doctor"]) == 3
    (record,) = _records(scratch_run)
    reason = "cold: the model was loaded inside 2 of 2 requests, for 12.5 s in request 1"
    assert (record["state"], record["reason"]) == ("invalid", reason)
    requests = next(paths.run_folder(scratch_run).rglob("profile_export.jsonl")).read_text().splitlines()
    assert [json.loads(line)["tinymoe"]["server_timings"]["cold"] for line in requests] == [True] * 3


def test_a_sweep_without_the_program_says_what_to_install(monkeypatch, scratch_run, make_plan):
    monkeypatch.delenv("OLLAMA", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(ollama, "APPLICATION", "/nowhere/ollama")
    assert sweep.main(["--plan", make_plan(backends="ollama"), "--run", scratch_run, "--skip-doctor"]) == 3
    (record,) = _records(scratch_run)
    assert record["reason"] == "ollama is not installed; 'brew install ollama', or set OLLAMA to the program"


def _records(run):
    return [read_json(p) for p in paths.run_folder(run).glob("*/*/gen*/ctx*/cell.json")]


def test_a_wrong_program_is_not_passed_over(monkeypatch):
    monkeypatch.setenv("OLLAMA", "/nowhere/ollama")
    with pytest.raises(BackendError, match="OLLAMA=/nowhere/ollama is not a program"):
        OLLAMA.command(Path("m.gguf"), 1, 1)


def test_it_takes_no_flags(install):
    install()
    with pytest.raises(BackendError, match="ollama serve takes no flags; take -t 2 out of the plan"):
        OLLAMA.command(Path("m.gguf"), 1, 1, ["-t", "2"])


def test_environment_is_the_project_s_own():
    env = OLLAMA.environment(8123)
    assert env["OLLAMA_HOST"] == "127.0.0.1:8123" and env["OLLAMA_KEEP_ALIVE"] == "-1"
    for key in ("HOME", "OLLAMA_MODELS", "HF_HOME"):
        assert CACHE in Path(env[key]).parents


def test_the_name_changes_with_context_and_file(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"abc")
    names = [OLLAMA.model_field(Serving("", 1, MODEL, path, ctx)) for ctx in (512, 1024)]
    path.write_bytes(b"abcd")
    names.append(OLLAMA.model_field(Serving("", 1, MODEL, path, 512)))
    assert len(set(names)) == 3 and names[0].startswith("tinymoe-tiny-trinity:512-")


def test_requests_stay_loaded_and_are_not_cut():
    sent = body("Hi", 7, "m", OLLAMA.request_extras(Path("m")))
    assert b'"num_predict": 7' in sent and b'"keep_alive": -1' in sent and b'"truncate": false' in sent
    assert b"num_ctx" not in sent


def answer(text, pieces=1):
    """The Exchange that a stream makes, fed in so many pieces, at times 1, 2, ..."""
    found, data = OllamaAnswer(), text.encode()
    size = -(-len(data) // pieces)
    for n in range(pieces):
        found.feed(data[n * size : (n + 1) * size], n + 1)
    found.end_of_stream(99)
    return found.exchange(0, 99, index=0, phase="profiling", start_ns=0)


CHUNK = '{"model":"m","message":{"role":"assistant","content":"a"},"done":false}\n'
THOUGHT = '{"model":"m","message":{"role":"assistant","content":"","thinking":"hm"},"done":false}\n'
END = (
    '{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"length",'
    '"total_duration":9000000000,"load_duration":%d,"prompt_eval_count":40,"eval_count":3,"eval_duration":5}'
)


@pytest.mark.parametrize("pieces", [1, 7, 200])
def test_stream(pieces):
    x = answer(THOUGHT + CHUNK * 2 + END % 20_000_000, pieces)
    assert x.error is None and (x.chunks, x.reasoning_chunks) == (3, 1)
    assert (x.prompt_tokens, x.completion_tokens, x.cached_tokens) == (40, 3, None)
    assert (x.finish_reason, x.model) == ("length", "m")
    assert x.server_timings == {
        "total_duration": 9_000_000_000, "load_duration": 20_000_000, "eval_duration": 5, "cold": False,
    }  # fmt: skip


def test_a_load_inside_the_request_is_cold():
    assert answer(CHUNK + END % 1_000_000_000).server_timings["cold"] is True


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (CHUNK * 2, {"type": "cut", "message": "the stream ended after 2 chunks without saying why"}),
        (CHUNK + CHUNK[:30], {"type": "cut", "message": "the stream ended after 1 chunks without saying why"}),
        (CHUNK + '{"error":"out of memory"}\n', {"type": "server", "message": "out of memory"}),
        (END % 5, {"type": "empty", "message": "no token in the answer"}),
        ("oops\n", {"type": "malformed", "message": "not a JSON object: oops"}),
    ],
)
def test_a_stream_with_a_fault(text, error):
    assert answer(text).error == error
