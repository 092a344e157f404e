"""llama.cpp: its llama-server, whichever there is."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx

from lib.backend import HOST, VERSION_TIMEOUT_S, Backend, BackendError, chosen_program
from lib.models import Model


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
        found = chosen_program("LLAMA_SERVER") or shutil.which("llama-server")
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

    def tokenize(self, base_url: str, model_path: Path, model: Model | None = None) -> Callable[[str], int]:
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
