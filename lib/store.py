"""Where a model's files are on this machine: tiny ones are made on demand, others must be there."""

from __future__ import annotations

from pathlib import Path

from lib import tiny
from lib.files import TinymoeError
from lib.models import Model
from lib.paths import CACHE


class StoreError(TinymoeError):
    """A model that is not on this machine."""


def locate(model: Model, backend: str) -> Path:
    """GGUF file (llama.cpp) or model folder (mlx-lm) of `model`. StoreError if it is not here and cannot be made."""
    if model.tiny:
        return tiny.ensure(model, backend, CACHE)
    raise StoreError(
        f"{model.name} under {backend}: downloading models is not part of this version; use the tiny- models"
    )
