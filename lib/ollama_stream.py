"""Ollama's own chat stream, one JSON object a line: the endpoint that says how long loading took.

Nobody has run this with a real Ollama yet. Its OpenAI-compatible stream has the same tokens and counts, but neither
durations nor a way to say keep_alive.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from lib.stream import Answer

PATH = "/api/chat"
# A loaded model takes milliseconds of `load_duration`; from this on, s, it was loaded inside the request.
COLD_S = 1.0
_TIMES = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")  # ns


def body(prompt: str, gen: int, model: str, extras: Mapping[str, Any] | None) -> bytes:
    """The request for at most `gen` tokens. num_ctx is not in it: another one than the model's would load it anew."""
    asked: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
        "options": {"num_predict": gen, "temperature": 0},
    }
    return json.dumps(asked | dict(extras or {})).encode()


class OllamaAnswer(Answer):
    """The stream as it arrives. `timings` are Ollama's durations in ns, as received, and whether the model was `cold`.

    Ollama does not say how many prompt tokens came from its cache, so that this stays unknown.
    """

    def end_of_stream(self, now: int) -> None:
        with contextlib.suppress(ValueError):
            json.loads(self._rest)  # whole, only without its newline
            self._line(self._rest, now)
            self._rest = b""
        super().end_of_stream(now)

    def _line(self, line: bytes, now: int) -> None:
        self._data(line, now)

    def _take(self, message: dict[str, Any], now: int) -> None:
        said = message.get("message")
        if isinstance(said, dict):
            self._delta({"content": said.get("content"), "reasoning": said.get("thinking")}, now)
        if isinstance(message.get("model"), str):
            self.model = message["model"]
        if message.get("done") is True:
            self.done = True
            self.finish_reason = str(message.get("done_reason") or "stop")
            counts = {"prompt_tokens": "prompt_eval_count", "completion_tokens": "eval_count"}
            self.usage = {ours: message[theirs] for ours, theirs in counts.items() if theirs in message}
            self.timings = {key: message[key] for key in _TIMES if isinstance(message.get(key), int | float)}
            self.timings["cold"] = self.timings.get("load_duration", 0) >= COLD_S * 1e9
