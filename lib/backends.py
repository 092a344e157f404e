"""The servers that can run a model, by the names that plans and folders use."""

from __future__ import annotations

from lib.backend import Backend, BackendError
from lib.llama_cpp import LlamaCpp
from lib.mlx_lm import MlxLm
from lib.mlx_vlm import MlxVlm
from lib.ollama import Ollama

BACKENDS: dict[str, Backend] = {b.name: b for b in (LlamaCpp(), MlxLm(), Ollama(), MlxVlm())}


def get(name: str) -> Backend:
    """The backend called `name`. BackendError with the known names if there is none."""
    if name not in BACKENDS:
        raise BackendError(f"backend {name!r} is not available; there are {', '.join(BACKENDS)}")
    return BACKENDS[name]
