"""Real servers with tiny models: ready, asked, and stopped; and every way in which one does not serve."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import httpx
import psutil
import pytest

from lib import backends, models, server, tiny
from lib.paths import CACHE, ROOT
from lib.server import Server, ServerError

CTX = 2048
LLAMA, MLX = "llama.cpp", "mlx-lm"
SERVED = [(LLAMA, m.name) for m in models.TINY] + [
    (MLX, m.name) for m in models.TINY if m.architecture != "smallthinker"
]
both = pytest.mark.parametrize("backend", [LLAMA, MLX])


def made(backend, name="tiny-gemma4-e2b", **options):
    """Path of a tiny model in the project's cache."""
    return tiny.ensure(models.get(name), backend, CACHE, **options)


@contextlib.contextmanager
def serving(backend, folder, path=None, name="tiny-gemma4-e2b", **options):
    """A server that is ready."""
    path = path or made(backend, name)
    with Server(backends.get(backend), models.get(name), path, folder, ctx_size=CTX, **options) as s:
        s.wait_ready(90)
        yield s


def failure(backend, folder, path, **options):
    """The error of a server that must not become ready."""
    with pytest.raises(ServerError) as e, serving(backend, folder, path, **options):
        pass
    assert "\n" not in str(e.value)
    return e.value


def chat(s, tokens, **extras):
    """Text, completion tokens and finish reason of one chat request."""
    body = {"model": s.model_field, "messages": [{"role": "user", "content": "Tell me of the river"}]}
    url = f"{s.base_url}/v1/chat/completions"
    answer = httpx.post(url, json={**body, "max_tokens": tokens, "temperature": 0, **extras}, timeout=60)
    choice, usage = answer.raise_for_status().json()["choices"][0], answer.json()["usage"]
    return choice["message"]["content"], usage["completion_tokens"], choice["finish_reason"]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """One llama.cpp server for all tests that only ask."""
    with serving(LLAMA, tmp_path_factory.mktemp("llama")) as s:
        yield s


@pytest.mark.server
@pytest.mark.parametrize(("backend", "name"), SERVED)
def test_every_tiny_model_is_served(backend, name, tmp_path):
    with serving(backend, tmp_path, name=name) as s:
        text, tokens, reason = chat(s, 24, **s.request_extras)
    assert not psutil.pid_exists(s.pid)
    assert (tokens, reason) == (24, "length")
    assert text.isascii() and text.isprintable() and len(text) >= 24


@pytest.mark.server
@both
def test_the_end_of_text_is_ignored(backend, tmp_path):
    path = made(backend, eos_prone=True)
    with serving(backend, tmp_path, path) as s:
        _, tokens, reason = chat(s, 16, **s.request_extras)
        plain = chat(s, 16)[1:]
    assert (tokens, reason) == (16, "length")
    if backend == MLX:  # without the bias this model ends at once; llama.cpp's flag holds for every request
        assert plain == (1, "stop")


@pytest.mark.server
def test_both_servers_count_alike(llama):
    count = backends.get(MLX).tokenize("", made(MLX))
    texts = ["", "time", " a so it", "It's 3.14, (or 22/7)!\n\n  Ünïcödé 漢字 🙂", "<|im_end|>", "x" * 300]
    assert [llama.count_tokens(t) for t in texts[:4]] == [count(t) for t in texts[:4]]
    assert llama.count_tokens(texts[5]) == count(texts[5])


@pytest.mark.server
def test_smoke_asks_each_length_that_fits(llama):
    found = llama.smoke((32, 256, 512, 4096))
    assert [f["prompt_tokens"] > n for f, n in zip(found, (32, 256, 512), strict=True)] == [True] * 3
    assert all(f["completion_tokens"] == server.SMOKE_TOKENS and f["seconds"] > 0 for f in found)
    assert llama.smoke((CTX,)) == []


@pytest.mark.server
def test_description(llama):
    about = llama.describe()
    assert about["model_path"].startswith(".cache/models/tiny-gemma4-e2b-")
    assert about["command"][-1] == "0" and str(ROOT) not in " ".join(about["command"])
    assert about["pid"] == llama.pid and about["created_s"] == psutil.Process(llama.pid).create_time()
    assert (about["backend"], about["model"], about["ctx_size"]) == (LLAMA, "tiny-gemma4-e2b", CTX)
    assert len(about["sha256"]) == 64 and about["size_bytes"] == made(LLAMA).stat().st_size
    assert about["total_B"] == models.get("tiny-gemma4-e2b").total_B
    assert about["port"] == llama.port and about["version"].startswith(("xllamacpp", "llama-server"))
    assert llama.identity().items() <= about.items()


@pytest.mark.server
def test_it_listens_on_loopback_only_and_in_a_group_of_its_own(llama):
    listening = [c for c in psutil.Process(llama.pid).net_connections() if c.status == psutil.CONN_LISTEN]
    assert {c.laddr.ip for c in listening} == {"127.0.0.1"}
    assert os.getpgid(llama.pid) == llama.pid != os.getpgrp()
    assert llama.log.read_text()


@pytest.mark.server
def test_stop_can_be_called_again(tmp_path):
    with serving(LLAMA, tmp_path) as s:
        assert s.alive() and s.death() == ""
        s.stop()
        assert not s.alive() and not psutil.pid_exists(s.pid)


@pytest.mark.server
def test_death_is_told(tmp_path):
    with serving(LLAMA, tmp_path) as s:
        psutil.Process(s.pid).kill()
        s._popen.wait(5)
        assert not s.alive()
        assert s.death().startswith("server killed by SIGKILL: see ")
        with pytest.raises(ServerError, match="tiny-gemma4-e2b: a trial request of 32 tokens failed: server killed"):
            s.smoke()


@pytest.mark.server
def test_sigterm_ends_the_wheel_s_server_with_0(tmp_path):
    command = [sys.executable, "-m", "lib.llama_server", "-m", str(made(LLAMA)), "--port", str(server._free_port())]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as p:
        try:
            assert any("listening" in line for line in p.stdout)
            p.send_signal(signal.SIGTERM)
            assert p.wait(60) == 0
        finally:
            p.kill()  # or leaving the block would wait for it for ever


@both
def test_missing_model(backend, tmp_path):
    error = failure(backend, tmp_path, tmp_path / "gone")
    assert str(error).startswith(f"{backend} tiny-gemma4-e2b: model ")
    assert str(error).endswith("gone is missing; make or fetch it again")


@pytest.mark.server
def test_truncated_gguf(tmp_path):
    whole = made(LLAMA).read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    error = failure(LLAMA, tmp_path, tmp_path / "cut.gguf")
    assert "is not within the file bounds, model is corrupted or incomplete" in str(error)
    assert not error.unsupported


@pytest.mark.server
def test_truncated_mlx_checkpoint(tmp_path):
    shutil.copytree(made(MLX), tmp_path / "cut")
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    error = failure(MLX, tmp_path, tmp_path / "cut")
    assert "RuntimeError: [load_safetensors]" in str(error) and not error.unsupported


@pytest.mark.server
def test_unsupported_model(tmp_path):
    error = failure(MLX, tmp_path, made(MLX, "tiny-smallthinker"), name="tiny-smallthinker")
    assert str(error) == "mlx-lm tiny-smallthinker: ValueError: Model type smallthinker not supported."
    assert error.unsupported


@pytest.mark.server
@both
def test_a_port_taken_meanwhile_is_given_up_for_another(backend, tmp_path, monkeypatch):
    free = server._free_port
    with _taken() as port:
        ports = iter([port, free()])
        monkeypatch.setattr(server, "_free_port", lambda: next(ports))
        with serving(backend, tmp_path) as s:
            assert s.port != port and s.alive()


@pytest.mark.server
def test_ports_always_taken(tmp_path, monkeypatch):
    with _taken() as port:
        tries = []
        monkeypatch.setattr(server, "_free_port", lambda: tries.append(1) or port)
        assert f"couldn't bind HTTP server socket, hostname: 127.0.0.1, port: {port}" in str(
            failure(LLAMA, tmp_path, made(LLAMA))
        )
        assert len(tries) == server.PORT_TRIES


@contextlib.contextmanager
def _taken():
    """A port of loopback on which another program listens, and never answers."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        yield s.getsockname()[1]


class Program(backends.Backend):
    """A "server" that is a line of Python."""

    name = "program"
    reasons = (r"boom.*",)

    def __init__(self, code):
        self.code = code

    def command(self, model_path, port, ctx_size, extra_flags=()):
        return [sys.executable, "-c", self.code, str(port)]


def program(code, folder):
    """A Server whose process runs `code`."""
    return Server(Program(code), models.get("tiny-trinity"), folder, folder, ctx_size=CTX)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('boom: no memory'); raise SystemExit(3)", "server ended with exit code 3: boom: no memory"),
        ("raise SystemExit(4)", "server ended with exit code 4: see "),
        ("import os; os.kill(os.getpid(), 9)", "server killed by SIGKILL: see "),
        ("import time; time.sleep(60)", "not ready in time; see "),
    ],
)
def test_one_that_never_gets_ready(code, said, tmp_path):
    with program(code, tmp_path) as s:
        with pytest.raises(ServerError, match=f"^program tiny-trinity: {said}"):
            s.wait_ready(1.5)
        assert not s.alive()


def test_an_earlier_server_s_log_is_not_its_reason(tmp_path):
    (tmp_path / "server.log").write_text("boom: long ago\n")
    with program("raise SystemExit(1)", tmp_path) as s, pytest.raises(ServerError, match="exit code 1: see"):
        s.wait_ready(5)


STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); time.sleep(60)"


def test_stop_kills_what_does_not_end(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "STOP_S", 0.3)
    with program(STUBBORN, tmp_path) as s:
        _wait_for(s.log, "deaf")
    assert not s.alive()


def test_stop_ends_children_too(tmp_path):
    code = "import subprocess, sys, time; p = subprocess.Popen(['sleep', '60']); print(p.pid, 'up'); time.sleep(60)"
    with program(code, tmp_path) as s:
        _wait_for(s.log, "up")
        child = int(s.log.read_text().split()[0])
        assert psutil.pid_exists(child)
    assert not psutil.pid_exists(child)


def test_stop_leaves_a_process_with_another_start_time_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "STOP_S", 0.3)
    with program("import time; time.sleep(60)", tmp_path) as s:
        created_s, s._created_s = s._created_s, 0.0
        s.stop()
        assert s.alive()
        s._created_s = created_s
    assert not s.alive()


def test_a_program_that_does_not_exist(tmp_path):
    s = program("", tmp_path)
    s.backend.command = lambda *_: ["/nowhere/llama-server"]
    with pytest.raises(ServerError, match="/nowhere/llama-server does not start: No such file"):
        s.start()
    assert not s.alive()
    s.stop()


def test_not_started(tmp_path):
    with pytest.raises(ServerError, match="not started"):
        _ = program("", tmp_path).pid


def _wait_for(log, text):
    deadline = time.monotonic() + 10
    while text not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
