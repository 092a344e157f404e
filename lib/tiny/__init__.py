"""Tiny random-weight models of the six architectures, made locally in seconds and kept in the cache.

They exercise the real servers; what they write means nothing.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import shutil
import tempfile
from pathlib import Path

from lib.files import TinymoeError
from lib.models import Model

CTX = 32768
GGUF_BACKEND, MLX_BACKEND = "llama.cpp", "mlx-lm"


class TinyError(TinymoeError):
    """A tiny model cannot be made."""


def ensure(model: Model, backend: str, cache: Path, ctx: int = CTX, eos_prone: bool = False) -> Path:
    """Path of the tiny model for `backend`: a GGUF file or an MLX-LM folder, made now if there is none.

    cache: the project's cache; models lie in `cache/models`. ctx: longest context in tokens. eos_prone: a
    variant that ends its text at once, for tests. TinyError if there is none to make.

    The name carries a hash of the code that makes the model, of the seed and of ctx, so that a change of
    any of them makes a new one. It appears complete or not at all.
    """
    if not model.tiny:
        raise TinyError(f"{model.name} is not a tiny model; choose a tiny one of lib/models.py")
    if backend not in (GGUF_BACKEND, MLX_BACKEND):
        raise TinyError(f"no tiny model for {backend!r}; only for {GGUF_BACKEND} and {MLX_BACKEND}")
    folder = cache / "models"
    variant = f"{model.name}{'-eos' if eos_prone else ''}-{_stamp(ctx)}"
    path = folder / (f"{variant}.gguf" if backend == GGUF_BACKEND else f"{variant}-4bit")
    if not path.exists():
        _make(model, backend, path, ctx, eos_prone)
    return path


def _make(model: Model, backend: str, path: Path, ctx: int, eos_prone: bool) -> None:
    """Write the model beside `path`, then rename it. Another process may do the same meanwhile: one wins."""
    weights = importlib.import_module("lib.tiny.weights")
    shape = importlib.import_module("lib.tiny.shapes").SHAPES[model.name]
    values = weights.make(shape, eos_prone=eos_prone)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        if backend == GGUF_BACKEND:
            made = draft / path.name
            importlib.import_module("lib.tiny.gguf").write(made, model.name, shape, values, ctx)
        else:
            made = draft / "model"
            made.mkdir()
            importlib.import_module("lib.tiny.mlx").write(made, shape, values, ctx)
        _publish(made, path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _publish(made: Path, path: Path) -> None:
    """Rename `made` to `path`; a folder that another process has just put there is as good."""
    try:
        os.replace(made, path)
    except OSError:
        if not path.is_dir():
            raise


@functools.cache
def _stamp(ctx: int) -> str:
    """Eight hex digits for the code of this package (the seed is in it) and ctx."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    text = b"".join(s.read_bytes() for s in sources if not s.name.startswith("__"))
    return hashlib.sha256(text + str(ctx).encode()).hexdigest()[:8]
