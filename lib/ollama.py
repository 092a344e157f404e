"""Ollama: a server of our own, whose model is made from the same GGUF file that llama.cpp serves.

Nobody has run this with a real Ollama yet: it is written from its documentation and tested with a stand-in.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from lib import hashes, store
from lib.backend import HOST, VERSION_TIMEOUT_S, Backend, BackendError, Serving, chosen_program, token_counter
from lib.files import digest
from lib.models import Model
from lib.paths import CACHE, ROOT

# Where the macOS application keeps its command.
APPLICATION = "/Applications/Ollama.app/Contents/Resources/ollama"
FOREVER = -1  # as a number: the string "-1" is refused as a duration without a unit
ANSWER_TIMEOUT_S = 30.0


class Ollama(Backend):
    """`ollama serve` on a port of ours: $OLLAMA, else the one on PATH, else the macOS application's.

    The user's own Ollama, its models and its keys are left alone: port, home and models are the project's. What it
    cannot do: it has no switch against the end of a text, so that an answer may be shorter than asked, which the cell
    counts; it reports no cached tokens, so that only the prompts, no two of which begin alike, keep its cache out; and
    a GGUF file whose chat template it does not know gets none, so that the template's tokens differ from llama.cpp's.
    """

    name = "ollama"
    dialect = "ollama"
    computes_in_child = True  # `ollama serve` starts a runner for each model
    reasons = (
        r"listen tcp .*address already in use",
        r"unsupported (?:model )?architecture.*",
        r"unknown model architecture.*",
        r"error loading model: .*",
        r"failed to allocate.*",
        r"Error: .*",
        r"level=ERROR .*",
    )

    def command(self, model_path: Path, port: int, ctx_size: int, extra_flags: Iterable[str] = ()) -> list[str]:
        """Port, context and model come by the environment and by `prepare`; `ollama serve` takes no flags."""
        if flags := list(extra_flags):
            raise BackendError(f"ollama serve takes no flags; take {' '.join(flags)} out of the plan")
        return [self.program(), "serve"]

    def program(self) -> str:
        """Path of the ollama command."""
        found = chosen_program("OLLAMA") or shutil.which("ollama") or shutil.which(APPLICATION)
        if not found:
            raise BackendError("ollama is not installed; 'brew install ollama', or set OLLAMA to the program")
        return found

    def version(self) -> str:
        run = subprocess.run(
            [self.program(), "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False,
            env=os.environ | self.environment(1),  # a port on which no server answers
        )  # fmt: skip
        found = re.search(r"version (?:is )?(\d\S*)", run.stdout + run.stderr)
        return f"ollama {found[1]}" if found else "ollama, of a version that it does not say"

    def environment(self, port: int = 0) -> dict[str, str]:
        """One model, one request at a time, loaded for good, flash attention as under llama.cpp, nothing pruned."""
        home = CACHE / "ollama"
        home.mkdir(parents=True, exist_ok=True)
        return super().environment(port) | {
            "HOME": str(home),
            "OLLAMA_HOST": f"{HOST}:{port}",
            "OLLAMA_MODELS": str(home / "models"),
            "OLLAMA_KEEP_ALIVE": str(FOREVER),
            "OLLAMA_NUM_PARALLEL": "1",
            "OLLAMA_MAX_LOADED_MODELS": "1",
            "OLLAMA_FLASH_ATTENTION": "1",
            "OLLAMA_NOPRUNE": "1",
        }

    def model_field(self, serving: Serving) -> str:
        """A name that changes with the file and the context, so that a model made once is never another's."""
        path = ROOT / serving.path
        facts = path.stat()
        made_of = digest([str(serving.path), facts.st_size, facts.st_mtime_ns])[:8]
        return f"tinymoe-{serving.model.name}:{serving.ctx_size}-{made_of}".lower()

    def prepare(self, serving: Serving, timeout_s: float) -> None:
        """Make the model by a Modelfile, unless it has been made before."""
        name = self.model_field(serving)
        if name in {m.get("name") for m in _get(serving, "/api/tags").get("models") or []}:
            return
        path = (ROOT / serving.path).resolve()
        _lend(path)
        modelfile = CACHE / "ollama" / f"{serving.model.name}.Modelfile"
        modelfile.write_text(f"FROM {path}\nPARAMETER num_ctx {serving.ctx_size}\nPARAMETER temperature 0\n")
        try:
            made = subprocess.run(
                [self.program(), "create", name, "-f", str(modelfile)], capture_output=True, text=True,
                errors="replace", timeout=timeout_s, check=False, stdin=subprocess.DEVNULL, cwd=ROOT,
                env=os.environ | self.environment(serving.port),
            )  # fmt: skip
        except subprocess.TimeoutExpired as e:
            raise BackendError("ollama create is not done in time; give it more in the plan's ready_timeout_s") from e
        if made.returncode:
            said = [line.strip() for line in re.split(r"[\r\n]", made.stderr) if "rror" in line]
            raise BackendError(f"ollama create failed: {said[-1] if said else f'exit code {made.returncode}'}")

    def check(self, serving: Serving) -> dict[str, Any]:
        """What /api/ps says of the loaded model: that it stays loaded, with the context asked.

        `in_gpu_pct` is the share that is not left to the CPU. BackendError if it would be unloaded, or holds less.
        """
        name = self.model_field(serving)
        loaded = [m for m in _get(serving, "/api/ps").get("models") or [] if name in (m.get("name"), m.get("model"))]
        if not loaded:
            raise BackendError("/api/ps does not list the model after a request: keep_alive is not heard")
        found = loaded[0]
        until = str(found.get("expires_at", ""))
        if not until[:4].isdigit() or int(until[:4]) <= datetime.now(UTC).year + 1:
            raise BackendError(f"/api/ps unloads the model at {until or 'a time unsaid'}: keep_alive is not heard")
        context = found.get("context_length")  # not said by older versions
        if context is not None and context < serving.ctx_size:
            raise BackendError(f"/api/ps says a context of {context} tokens where {serving.ctx_size} were asked")
        size, in_gpu = found.get("size"), found.get("size_vram")
        share = 100 * in_gpu / size if size and in_gpu is not None else None
        return {"expires_at": until, "context_length": context, "loaded_bytes": size, "in_gpu_pct": share}

    def request_extras(self, model_path: Path) -> dict:
        """Stay loaded; and an error instead of a silent cut, in the versions that know these two words."""
        return {"keep_alive": FOREVER, "truncate": False, "shift": False}

    def tokenize(self, base_url: str, model_path: Path, model: Model | None = None) -> Callable[[str], int]:
        """Counts with the model's published tokenizer: Ollama has no request for that."""
        if model is None:
            raise BackendError("ollama counts no tokens, and which model's tokenizer is wanted was not said")
        return token_counter(store.tokenizer(model))


def _get(serving: Serving, path: str) -> dict[str, Any]:
    """The JSON object that the server answers. BackendError if it does not."""
    try:
        answer = httpx.get(f"{serving.base_url}{path}", timeout=ANSWER_TIMEOUT_S, trust_env=False)
        found = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as e:
        raise BackendError(f"ollama does not answer {path}: {e}") from e
    return found if isinstance(found, dict) else {}


def _lend(path: Path) -> None:
    """Give Ollama the model file as a blob of its own by a hard link, so that it need not copy gigabytes.

    It takes a blob that is there under its hash as it is. On another file system it makes its copy.
    """
    blob = CACHE / "ollama" / "models" / "blobs" / f"sha256-{hashes.sha256(path)}"
    if not blob.exists():
        blob.parent.mkdir(parents=True, exist_ok=True)
        try:
            blob.hardlink_to(path)
        except OSError:
            return
