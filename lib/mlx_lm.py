"""MLX-LM: mlx_lm.server of this Python environment, and where a model's text ends."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import tokenizers

from lib.backend import HOST, Backend, token_counter
from lib.files import read_optional
from lib.models import Model


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

    def tokenize(self, base_url: str, model_path: Path, model: Model | None = None) -> Callable[[str], int]:
        """Counts with the model's own tokenizer.json, the one the server uses; it has no request for that."""
        return token_counter(model_path / "tokenizer.json")


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
