"""Where a model's files are on this machine: tiny ones are made on demand, others must have been downloaded."""

from __future__ import annotations

from pathlib import Path

from lib import tiny
from lib.files import TinymoeError
from lib.models import Model
from lib.paths import CACHE


class StoreError(TinymoeError):
    """A model that is not on this machine."""


def locate(model: Model, backend: str, ctx_size: int, cache: Path = CACHE) -> Path:
    """Where the files of `model` for `backend` are: a GGUF file, or a folder for the MLX servers.

    A tiny model is made now if `cache` lacks it, for at least ctx_size tokens. A full one must have been
    downloaded, into the usual Hugging Face cache: these are gigabytes, so nothing is fetched unasked.
    StoreError with the command that fetches it if it is not there.
    """
    if model.tiny:
        return tiny.ensure(model, backend, cache, max(ctx_size, tiny.CTX))
    gguf = backend in ("llama.cpp", "ollama")
    repo = model.gguf_repo if gguf else model.mlx_repo
    if not repo:
        raise StoreError(f"{model.name}: no conversion for {backend} is published")
    return _downloaded(model, repo, model.gguf_file if gguf else "")


def _downloaded(model: Model, repo: str, pattern: str) -> Path:
    """Snapshot of `repo` in the Hugging Face cache, or the one file in it that matches `pattern`."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    include = f" --include '{pattern}'" if pattern else ""
    missing = StoreError(f"{model.name} is not on this machine; fetch it: hf download {repo}{include}")
    try:
        folder = Path(snapshot_download(repo, local_files_only=True))
    except LocalEntryNotFoundError as e:
        raise missing from e
    if not pattern:
        return folder
    files = sorted(folder.glob(pattern))
    if not files:
        raise missing
    return files[0]
