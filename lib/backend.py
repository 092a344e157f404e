"""What every server that can run a model has in common: its command line, its environment, and what it is asked."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from lib.files import TinymoeError
from lib.models import Model
from lib.paths import CACHE

HOST = "127.0.0.1"
VERSION_TIMEOUT_S = 30
# What the servers say of a model that this version does not know.
_UNSUPPORTED = re.compile(r"Model type \S+ not supported|unknown model architecture|unsupported (model )?architecture")


class BackendError(TinymoeError):
    """A backend that does not exist or is not installed."""


@dataclass(frozen=True)
class Serving:
    """A server at work: `path` is the model's, as the server was given it; `ctx_size` its context in tokens."""

    base_url: str
    port: int
    model: Model
    path: Path
    ctx_size: int


class Backend:
    """What every backend has. A subclass says how its server is started and spoken to.

    name: as plans and folders have it. dialect: how lib.client speaks to it. computes_in_child: whether a process that
    the server starts does the work, whose memory and CPU time are then the ones that count. reasons: patterns of log
    lines that say why a server does not serve, the most telling first.
    """

    name = ""
    dialect = "openai"
    computes_in_child = False
    reasons: tuple[str, ...] = ()

    def command(self, model_path: Path, port: int, ctx_size: int, extra_flags: Iterable[str] = ()) -> list[str]:
        """The command line that serves `model_path` on loopback, run from the repository root.

        extra_flags come last, so that they win over the benchmark's own. BackendError if there is no such
        program.
        """
        raise NotImplementedError

    def model_field(self, serving: Serving) -> str:
        """What a request has to say as its "model"."""
        return "default_model"

    def prepare(self, serving: Serving, timeout_s: float) -> None:
        """What is to be done once the server listens, before its first request. BackendError if that fails."""

    def check(self, serving: Serving) -> dict[str, Any]:
        """Facts for server.json once a request has been answered. BackendError if the model is not served as asked."""
        return {}

    def version(self) -> str:
        """Name and version of the server and of what computes in it, in one line."""
        raise NotImplementedError

    def tokenize(self, base_url: str, model_path: Path, model: Model | None = None) -> Callable[[str], int]:
        """A function that counts a text's tokens as the server does, without template and specials."""
        raise NotImplementedError

    def request_extras(self, model_path: Path) -> dict:
        """What a request's body needs so that the end of the text is never taken."""
        return {}

    def environment(self, port: int = 0) -> dict[str, str]:
        """Variables to add to the environment of the server on `port`: no network, nothing outside the project's cache.

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


def chosen_program(variable: str) -> str | None:
    """The program that the environment variable names, as a path; None if it is not set. BackendError if it is none."""
    chosen = os.environ.get(variable)
    if not chosen:
        return None
    if found := shutil.which(chosen):
        return found
    raise BackendError(f"{variable}={chosen} is not a program; correct it or unset it")


def token_counter(tokenizer: Path) -> Callable[[str], int]:
    """A function that counts a text's tokens by a tokenizer.json, without template and specials."""
    found = tokenizers.Tokenizer.from_file(str(tokenizer))
    return lambda text: len(found.encode(text, add_special_tokens=False))


def _plain(line: str) -> str:
    """A log line without llama.cpp's time, level and file in front, and without surrounding blanks."""
    return re.sub(r"^[\d.]+ [A-Z] ", "", line).strip()
