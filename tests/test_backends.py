"""Command lines, environment, request extras and log reasons of each server; nothing is started but --version."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lib import backends, llama_server, mlx_lm, models, tiny
from lib.backends import BackendError
from lib.paths import CACHE, ROOT
from lib.tiny import tokenizer

LLAMA, MLX = backends.get("llama.cpp"), backends.get("mlx-lm")


@pytest.fixture(autouse=True)
def no_llama_server(monkeypatch):
    """As on a machine without a llama-server of its own."""
    monkeypatch.delenv("LLAMA_SERVER", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.fixture
def binary(tmp_path):
    """A stand-in for a llama-server binary: it prints a version to stderr, as the real one does."""
    path = tmp_path / "llama-server"
    path.write_text("#!/bin/sh\necho 'version: 6500 (abc1234)' >&2\necho 'built with cc' >&2\n")
    path.chmod(0o755)
    return path


def test_unknown_backend():
    with pytest.raises(BackendError, match=r"'vllm' is not available; there are llama\.cpp, mlx-lm, ollama, mlx-vlm"):
        backends.get("vllm")


def test_llama_command_is_the_benchmark_s():
    command = LLAMA.command(Path("m.gguf"), 8123, 6144, ["-t", "2"])
    assert command == [
        sys.executable, "-m", "lib.llama_server", "-m", "m.gguf", "--host", "127.0.0.1", "--port", "8123", "-c", "6144",
        "-ngl", "99", "--parallel", "1", "-fa", "1", "-t", "1",
        "--ignore-eos", "--no-cache-prompt", "--cache-ram", "0", "-t", "2",
    ]  # fmt: skip


def test_llama_server_on_path_comes_before_the_wheel(binary, monkeypatch):
    monkeypatch.setenv("PATH", str(binary.parent))
    assert LLAMA.command(Path("m"), 1, 1)[0] == str(binary)


def test_llama_server_of_the_environment_comes_first(binary, monkeypatch):
    monkeypatch.setenv("LLAMA_SERVER", str(binary))
    assert LLAMA.command(Path("m"), 1, 1)[:2] == [str(binary), "-m"]
    assert LLAMA.version() == "llama-server version: 6500 (abc1234)"


def test_a_wrong_llama_server_is_not_passed_over(monkeypatch):
    monkeypatch.setenv("LLAMA_SERVER", "/nowhere/llama-server")
    with pytest.raises(BackendError, match=r"LLAMA_SERVER=/nowhere/llama-server is not a program"):
        LLAMA.command(Path("m"), 1, 1)


def test_mlx_command():
    assert MLX.command(Path("m"), 8123, 6144, ["--prefill-step-size", "512"]) == [
        sys.executable, "-m", "mlx_lm", "server", "--model", "m", "--host", "127.0.0.1", "--port", "8123",
        "--prompt-cache-size", "0", "--decode-concurrency", "1", "--prompt-concurrency", "1",
        "--prefill-step-size", "512",
    ]  # fmt: skip


def test_versions():
    assert LLAMA.version().startswith("xllamacpp 20")
    assert MLX.version().startswith("mlx-lm ") and ", mlx " in MLX.version()


@pytest.mark.parametrize("backend", [LLAMA, MLX], ids=lambda b: b.name)
def test_environment_stays_in_the_cache_and_offline(backend):
    env = backend.environment()
    assert env["HF_HUB_OFFLINE"] == "1"
    assert (Path(env["HF_HOME"]) / "hub").is_dir()
    for key in ("HF_HOME", "TMPDIR"):
        assert Path(env[key]).is_dir() and CACHE in Path(env[key]).parents


def test_llama_needs_nothing_in_a_request():
    assert LLAMA.request_extras(Path("m.gguf")) == {}


def test_every_end_of_text_is_biased_away(tmp_path):
    tokenizer.write(tmp_path, 1024)
    _write(tmp_path / "config.json", {"eos_token_id": [7, 8], "text_config": {"eos_token_id": 9}})
    _write(tmp_path / "generation_config.json", {"eos_token_id": 11})
    assert MLX.request_extras(tmp_path) == {"logit_bias": dict.fromkeys(("7", "8", "9", "11", "1214"), -100)}


@pytest.mark.parametrize(
    ("token", "ids"),
    [("<|pad|>", [1215]), ({"content": "<|pad|>"}, [1215]), ("<unknown>", []), (None, [])],
)
def test_end_of_text_of_the_tokenizer(tmp_path, token, ids):
    tokenizer.write(tmp_path, 1024)
    _write(tmp_path / "tokenizer_config.json", {"eos_token": token})
    _write(tmp_path / "config.json", {"text_config": None})
    assert mlx_lm.eos_ids(tmp_path) == ids


def test_no_files_no_end_of_text(tmp_path):
    assert mlx_lm.eos_ids(tmp_path) == []


def test_mlx_counts_without_template_and_specials():
    path = tiny.ensure(models.get("tiny-lfm2.5"), "mlx-lm", CACHE)
    count = MLX.tokenize("http://127.0.0.1:1", path)
    assert (count(""), count("a so it"), count("<|im_end|>")) == (0, 3, 1)


def test_llama_says_when_it_cannot_count():
    with pytest.raises(BackendError, match=r"127.0.0.1:1/tokenize does not count tokens"):
        LLAMA.tokenize("http://127.0.0.1:1", Path("m"))("text")


@pytest.mark.parametrize(
    ("backend", "log", "reason"),
    [
        (
            LLAMA,
            "0.00.025.585 I srv init: starting\n"
            "0.00.025.591 E gguf_init_from_file: failed to open GGUF file 'no.gguf' (No such file or directory)\n"
            "0.00.025.600 E llama_model_load: error loading model: failed to load model from no.gguf\n",
            "gguf_init_from_file: failed to open GGUF file 'no.gguf' (No such file or directory)",
        ),
        (
            LLAMA,
            "E llama_model_load: error loading model: error loading model architecture: "
            "unknown model architecture: 'new'\n",
            "error loading model: error loading model architecture: unknown model architecture: 'new'",
        ),
        (
            LLAMA,
            "0.1 E start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080\nlast\n",
            "couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080",
        ),
        (LLAMA, "error: invalid argument: --mlock\n", "error: invalid argument: --mlock"),
        (LLAMA, "0.00.1 I srv init: model loaded\n0.00.2 I slot release\n", ""),
        (LLAMA, "", ""),
        (
            MLX,
            "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'mlx_lm.models.q'\n\n"
            "Traceback (most recent call last):\n  raise ValueError(msg)\nValueError: Model type q not supported.\n",
            "ValueError: Model type q not supported.",
        ),
        (
            MLX,
            "ValueError: Missing 1 parameters: \nmodel.norm.weight.\n",
            "ValueError: Missing 1 parameters: model.norm.weight.",
        ),
        (MLX, "OSError: [Errno 48] Address already in use\n", "OSError: [Errno 48] Address already in use"),
        (MLX, "hub.errors.LocalEntryNotFoundError: no such file\n", "hub.errors.LocalEntryNotFoundError: no such file"),
    ],
)  # fmt: skip
def test_reason_in_the_log(backend, log, reason):
    assert backend.resident_reason(log) == reason


def test_unsupported_is_told_from_broken():
    assert MLX.is_unsupported("ValueError: Model type smallthinker not supported.")
    assert LLAMA.is_unsupported("error loading model: unknown model architecture: 'new'")
    assert not LLAMA.is_unsupported("error loading model: data is not within the file bounds")


def test_the_wheel_s_server_knows_its_version():
    run = subprocess.run(
        [sys.executable, "-m", "lib.llama_server", "--version"], cwd=ROOT, capture_output=True, text=True, check=True
    )  # fmt: skip
    assert run.stdout.startswith("version: xllamacpp 20")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.7", "example.org", "::"])
def test_the_wheel_s_server_refuses_other_hosts(host, capsys):
    with pytest.raises(SystemExit) as e:
        llama_server.parser().parse_args(["-m", "x", "--host", host])
    assert e.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"'{host}' is not loopback; use 127.0.0.1")


def test_the_wheel_s_server_takes_the_benchmark_s_flags():
    args = llama_server.parser().parse_args(LLAMA.command(Path("m.gguf"), 8123, 6144)[3:])
    params = llama_server.params(args)
    assert (params.model.path, params.port, params.n_ctx, params.n_parallel) == ("m.gguf", 8123, 6144, 1)
    assert (params.n_gpu_layers, params.cache_ram_mib, params.cache_prompt) == (99, 0, False)
    assert (params.cpuparams.n_threads, params.cpuparams_batch.n_threads) == (1, 1)
    assert params.sampling.ignore_eos and params.hostnames == ["127.0.0.1"]


def test_the_wheel_s_server_locks_memory_when_asked():
    import xllamacpp

    args = llama_server.parser().parse_args(["-m", "x", "--load-mode", "mlock"])
    assert llama_server.params(args).load_mode == xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_MLOCK


def _write(path, value):
    path.write_text(json.dumps(value))
