"""The servers that can run a model: command lines, environment, and what each needs in a request."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx
import tokenizers

from lib.files import TinymoeError, read_optional
from lib.paths import CACHE

HOST = "127.0.0.1"
VERSION_TIMEOUT_S = 30
# What the logs of both servers say of a model that this version does not know.
_UNSUPPORTED = re.compile(r"Model type \S+ not supported|unknown model architecture")


class BackendError(TinymoeError):
    """A backend that does not exist or is not installed."""


class Backend:
    """What every backend has. A subclass says how its server is started and spoken to.

    name: as plans and folders have it. model_field: the "model" of a request. reasons: patterns of log
    lines that say why a server does not serve, the most telling first.
    """

    name = ""
    model_field = "default_model"
    reasons: tuple[str, ...] = ()

    def command(self, model_path: Path, port: int, ctx_size: int, extra_flags: Iterable[str] = ()) -> list[str]:
        """The command line that serves `model_path` on loopback, run from the repository root.

        extra_flags come last, so that they win over the benchmark's own. BackendError if there is no such
        program.
        """
        raise NotImplementedError

    def version(self) -> str:
        """Name and version of the server and of what computes in it, in one line."""
        raise NotImplementedError

    def tokenize(self, base_url: str, model_path: Path) -> Callable[[str], int]:
        """A function that counts a text's tokens as the server does, without template and specials."""
        raise NotImplementedError

    def request_extras(self, model_path: Path) -> dict:
        """What a request's body needs so that the end of the text is never taken."""
        return {}

    def environment(self) -> dict[str, str]:
        """Variables to add to the server's environment: no network, nothing outside the project's cache.

        The hub folder has to exist, or MLX-LM answers /v1/models with an empty body. MLX keeps the kernels
        that it compiles under TMPDIR; in the cache they are found again, and nobody else can put one there.
        """
        hub, temporary = CACHE / "huggingface" / "hub", CACHE / "tmp"
        for folder in (hub, temporary):
            folder.mkdir(parents=True, exist_ok=True)
        return {
            "HF_HOME": str(hub.parent),
            "HF_HUB_OFFLINE": "1",
            "TMPDIR": str(temporary),
            "PYTHONUNBUFFERED": "1",
        }

    def resident_reason(self, log: str) -> str:
        """The server's own reason for not serving, one line from its log; "" if the log gives none."""
        lines = [_plain(line) for line in log.splitlines()]
        for pattern in self.reasons:
            for line, following in itertools.pairwise([*lines, ""]):
                if found := re.search(pattern, line):
                    return f"{found[0]} {following}".strip() if found[0].endswith(":") else found[0]
        return ""

    @staticmethod
    def is_unsupported(reason: str) -> bool:
        """Whether `reason` says that the server does not know this kind of model: no use in trying again."""
        return bool(_UNSUPPORTED.search(reason))


class LlamaCpp(Backend):
    """llama.cpp's llama-server: $LLAMA_SERVER, else the one on PATH, else the one in the xllamacpp wheel."""

    name = "llama.cpp"
    reasons = (
        r"couldn't bind HTTP server socket.*",
        r"gguf_init_from_file\w*: failed.*",
        r"error loading model: .*",
        r"error: .*",
        r"error while handling argument.*",
        r"GGML_ASSERT.*",
        r"failed to allocate.*",
    )
    flags = (
        "-ngl", "99", "--parallel", "1", "-fa", "1", "-t", "1",
        "--ignore-eos", "--no-cache-prompt", "--cache-ram", "0",
    )  # fmt: skip

    def command(self, model_path: Path, port: int, ctx_size: int, extra_flags: Iterable[str] = ()) -> list[str]:
        where = ["-m", str(model_path), "--host", HOST, "--port", str(port), "-c", str(ctx_size)]
        return [*self.program(), *where, *self.flags, *extra_flags]

    def program(self) -> list[str]:
        """llama-server, as the first words of a command line."""
        if chosen := os.environ.get("LLAMA_SERVER"):
            if found := shutil.which(chosen):
                return [found]
            raise BackendError(f"LLAMA_SERVER={chosen} is not a program; correct it or unset it")
        found = shutil.which("llama-server")
        return [found] if found else [sys.executable, "-m", "lib.llama_server"]

    def version(self) -> str:
        """What `--version` prints: "llama-server version: ..." of a binary, "xllamacpp ..." of the wheel."""
        program = self.program()
        if len(program) > 1:
            return f"xllamacpp {importlib.metadata.version('xllamacpp')}"
        run = subprocess.run(
            [*program, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
        line = re.search(r"version: .*", run.stdout + run.stderr)
        if not line:
            raise BackendError(f"{program[0]} --version says no version; set LLAMA_SERVER to a llama-server")
        return f"llama-server {line[0]}"

    def tokenize(self, base_url: str, model_path: Path) -> Callable[[str], int]:
        """Asks the running server. The function raises BackendError when it does not answer."""
        client = httpx.Client(base_url=base_url, trust_env=False, timeout=60)

        def count(text: str) -> int:
            body = {"content": text, "add_special": False, "parse_special": False}
            try:
                answer = client.post("/tokenize", json=body, headers={"connection": "close"})
                return len(answer.raise_for_status().json()["tokens"])
            except (httpx.HTTPError, KeyError, json.JSONDecodeError) as e:
                raise BackendError(f"{base_url}/tokenize does not count tokens: {e}; see server.log") from e

        return count


class MlxLm(Backend):
    """mlx_lm.server of this Python environment."""

    name = "mlx-lm"
    reasons = (
        r"OSError: .*Address already in use",
        r"(ValueError|TypeError|RuntimeError|KeyError|IndexError): .*",
        r"[\w.]*(Error|Exception|NotFound)\b: (?!No module named).*",
        r"error: .*",
    )
    flags = ("--prompt-cache-size", "0", "--decode-concurrency", "1", "--prompt-concurrency", "1")

    def command(self, model_path: Path, port: int, ctx_size: int, extra_flags: Iterable[str] = ()) -> list[str]:
        """mlx_lm.server has no context size: memory grows with what is asked of it."""
        where = ["--model", str(model_path), "--host", HOST, "--port", str(port)]
        return [sys.executable, "-m", "mlx_lm", "server", *where, *self.flags, *extra_flags]

    def version(self) -> str:
        return ", ".join(f"{p} {importlib.metadata.version(p)}" for p in ("mlx-lm", "mlx"))

    def request_extras(self, model_path: Path) -> dict:
        """A logit bias against every end of text: mlx_lm.server has no switch to ignore it."""
        return {"logit_bias": {str(i): -100 for i in eos_ids(model_path)}}

    def tokenize(self, base_url: str, model_path: Path) -> Callable[[str], int]:
        """Counts with the model's own tokenizer.json, the one the server uses; it has no request for that."""
        tokenizer = tokenizers.Tokenizer.from_file(str(model_path / "tokenizer.json"))
        return lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def eos_ids(model_path: Path) -> list[int]:
    """Every token id at which MLX-LM would end a text, sorted.

    From config.json and its text_config, from generation_config.json, and the eos_token of
    tokenizer_config.json.
    """
    ids: set[int] = set()
    config = read_optional(model_path / "config.json")
    for source in (config, config.get("text_config") or {}, read_optional(model_path / "generation_config.json")):
        value = source.get("eos_token_id")
        ids.update(value if isinstance(value, list) else [] if value is None else [value])
    token = read_optional(model_path / "tokenizer_config.json").get("eos_token")
    text = token.get("content") if isinstance(token, dict) else token
    if text:
        tokenizer = tokenizers.Tokenizer.from_file(str(model_path / "tokenizer.json"))
        ids.add(tokenizer.token_to_id(text))
    return sorted(ids - {None})


def _plain(line: str) -> str:
    """A log line without llama.cpp's time, level and file in front, and without surrounding blanks."""
    return re.sub(r"^[\d.]+ [A-Z] ", "", line).strip()


BACKENDS: dict[str, Backend] = {b.name: b for b in (LlamaCpp(), MlxLm())}


def get(name: str) -> Backend:
    """The backend called `name`. BackendError with the known names if there is none."""
    if name not in BACKENDS:
        raise BackendError(f"backend {name!r} is not available; there are {', '.join(BACKENDS)}")
    return BACKENDS[name]
