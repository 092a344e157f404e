"""A chat server's event stream as it arrives, and the request that it makes in the end.

Nothing here touches a socket or a clock: bytes come in with the time of their arrival, an Exchange goes out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

_MESSAGE = 300  # characters kept of a server's error message


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One request and what came back.

    `*_ns` are epoch nanoseconds: the wall clock read once at the start, plus monotonic differences. The
    exception is `wall_end_ns`, the wall clock read again at the end: where it parts from `end_ns`'s clock
    the machine slept or its clock was set. None means that it did not happen or the server did not say.
    """

    index: int  # within its phase
    phase: str  # "warmup" or "profiling"
    start_ns: int  # just before sending, so the first request of a connection includes connecting
    end_ns: int  # last message of the stream, with usage and [DONE]; when it failed, the time of that
    ack_ns: int | None = None  # response headers of a 2xx answer: a diagnostic, not a token
    first_token_ns: int | None = None  # first text of any channel, visible or reasoning
    first_visible_ns: int | None = None  # first text that is not reasoning
    last_token_ns: int | None = None
    chunk_ns: Sequence[int] = ()  # arrival of each chunk with text
    reasoning_chunks: int = 0  # how many of them were reasoning only
    prompt_tokens: int | None = None  # this and the next three as the server counted
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    model: str | None = None
    server_timings: Mapping[str, Any] | None = None  # llama.cpp's own, as received
    error: Mapping[str, Any] | None = None  # type, message and, of an HTTP or server error, code
    prompt_sha256: str | None = None
    target_isl: int | None = None  # tokens of the content that the prompt was made to have
    target_osl: int | None = None
    request_id: str | None = None  # the X-Request-ID header
    connection_reused: bool | None = None
    monotonic_start_ns: int | None = None
    monotonic_end_ns: int | None = None
    wall_end_ns: int | None = None

    @property
    def chunks(self) -> int:
        """Chunks with text; not a number of tokens."""
        return len(self.chunk_ns)

    @property
    def conversation_id(self) -> str:
        """The name by which aiperf files a prompt."""
        return f"session_{self.index:06d}"

    @property
    def censored(self) -> bool:
        """True if the deadline ended the request: it took at least this long."""
        return bool(self.error) and self.error["type"] == "timeout"


class Answer:
    """A server-sent event stream as it arrives; times are the caller's, in nanoseconds of any one clock.

    One JSON value per `data:` line, as every server here sends it; lines end in LF or CRLF. Comments
    (keep-alives during prefill), roles and empty deltas are not tokens.
    """

    def __init__(self) -> None:
        self.ack: int | None = None
        self.end: int | None = None
        self.first_visible: int | None = None
        self.chunks: list[int] = []
        self.reasoning_chunks = 0
        self.usage: dict[str, Any] = {}
        self.timings: dict[str, Any] | None = None
        self.finish_reason: str | None = None
        self.model: str | None = None
        self.error: dict[str, Any] | None = None
        self.done = False
        self._rest = self._event = self._stray = b""

    @property
    def over(self) -> bool:
        """True once nothing of worth can follow: [DONE] or the server's own error."""
        return self.done or (self.error is not None and self.error["type"] == "server")

    @property
    def lost(self) -> bool:
        """True if the connection failed before the answer was whole, other than by the deadline."""
        return self.error is not None and self.error["type"] in ("cut", "reset")

    def feed(self, data: bytes, now: int) -> None:
        """Take the bytes of one read, which may end anywhere, even inside a character."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line.rstrip(b"\r"), now)

    def end_of_stream(self, now: int) -> None:
        """The body ended as HTTP says it should; decide whether the answer is whole."""
        last = self._rest.strip()
        if last[5:].strip() == b"[DONE]" or _json(last[5:]) is not None:  # whole, only without its newline
            self._line(last, now)
        if self.done or self.finish_reason:
            if not self.chunks:
                self._fail("empty", "no token in the answer")
        elif self.end is None:
            self._fail("empty", f"no token in the answer{self._said()}")
        else:
            self._fail("cut", f"the stream ended after {len(self.chunks)} chunks without saying why")

    def refuse(self, status: int, reason: str, body: bytes) -> None:
        """An answer with an HTTP status that is not 2xx."""
        value = _json(body)
        said = value.get("error", value) if isinstance(value, dict) else body.decode("utf-8", "replace")
        self._fail("http", f"{status} {reason}: {_message(said)}", status)

    def break_off(self, fault: httpx.HTTPError) -> None:
        """The connection failed; after the last token that no longer matters."""
        if self.error or self.done or (self.finish_reason and self.chunks):
            return
        kinds = {httpx.TimeoutException: "timeout", httpx.ConnectError: "refused",
                 httpx.NetworkError: "reset", httpx.ProtocolError: "cut"}  # fmt: skip
        kind = next((name for cls, name in kinds.items() if isinstance(fault, cls)), type(fault).__name__)
        self._fail(kind, f"{_message(str(fault)) or type(fault).__name__} after {len(self.chunks)} chunks")

    def exchange(self, offset_ns: int, failed_at: int, **known: Any) -> Exchange:
        """The Exchange, its times moved by `offset_ns`; `failed_at` is its end if it has an error."""

        def at(t: int | None) -> int | None:
            return None if t is None else t + offset_ns

        end = failed_at if self.error or self.end is None else self.end
        chunk_ns = tuple(t + offset_ns for t in self.chunks)
        return Exchange(
            end_ns=end + offset_ns, ack_ns=at(self.ack), first_visible_ns=at(self.first_visible),
            first_token_ns=chunk_ns[0] if chunk_ns else None,
            last_token_ns=chunk_ns[-1] if chunk_ns else None,
            chunk_ns=chunk_ns, reasoning_chunks=self.reasoning_chunks,
            finish_reason=self.finish_reason, model=self.model, server_timings=self.timings, error=self.error,
            **_counts(self.usage, self.timings), **known,
        )  # fmt: skip

    def _line(self, line: bytes, now: int) -> None:
        if line.startswith(b"data:"):
            self._data(line[5:].strip(), now)
        elif line.startswith(b"event:"):
            self._event = line[6:].strip()
        elif line.startswith(b"error:"):  # llama.cpp before it put errors into data
            self._fail("server", _message(line[6:].decode("utf-8", "replace").strip()))
        elif not line:
            self._event = b""
        elif not line.startswith(b":"):
            self._stray = self._stray or line

    def _data(self, payload: bytes, now: int) -> None:
        if self.done or not payload:
            return
        self.end = now
        if payload == b"[DONE]":
            self.done = True
            return
        message = _json(payload)
        error = message.get("error") if isinstance(message, dict) else None
        if self._event == b"error" or error:
            said = error or message or payload.decode("utf-8", "replace")
            self._fail("server", _message(said), _code(said))
        elif isinstance(message, dict):
            self._take(message, now)
        else:
            self._fail("malformed", f"not a JSON object: {_message(payload.decode('utf-8', 'replace'))}")

    def _take(self, message: dict[str, Any], now: int) -> None:
        """One well-formed message of the stream."""
        if isinstance(message.get("usage"), dict):
            self.usage = message["usage"]
        if isinstance(message.get("timings"), dict):
            self.timings = message["timings"]
        if isinstance(message.get("model"), str):
            self.model = _message(message["model"])
        choices = message.get("choices")
        if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
            return
        if isinstance(choices[0].get("finish_reason"), str):
            self.finish_reason = _message(choices[0]["finish_reason"])
        delta = choices[0].get("delta")
        if isinstance(delta, dict):
            self._delta(delta, now)

    def _delta(self, delta: dict[str, Any], now: int) -> None:
        visible = _has_text(delta, "content")
        if visible and self.first_visible is None:
            self.first_visible = now
        if visible or _has_text(delta, "reasoning_content") or _has_text(delta, "reasoning"):
            self.chunks.append(now)
            self.reasoning_chunks += not visible

    def _fail(self, kind: str, message: str, code: int | None = None) -> None:
        """Keep the first error: what follows is its consequence."""
        if self.error is None:
            self.error = {"type": kind, "message": message} | ({} if code is None else {"code": code})

    def _said(self) -> str:
        text = _message((self._stray or self._rest).decode("utf-8", "replace"))
        return f"; it began: {text}" if text else ""


def _json(data: bytes) -> Any:
    """The value, or None if there is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _has_text(delta: dict[str, Any], key: str) -> bool:
    text = delta.get(key)
    return isinstance(text, str) and text != ""


def _counts(usage: dict[str, Any], timings: dict[str, Any] | None) -> dict[str, int | None]:
    """Token counts that the server gave; llama.cpp's cache count stands in where usage has none."""
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    return {
        "prompt_tokens": _count(usage, "prompt_tokens"),
        "completion_tokens": _count(usage, "completion_tokens"),
        "reasoning_tokens": _count(usage.get("completion_tokens_details"), "reasoning_tokens"),
        "cached_tokens": _count(timings, "cache_n") if cached is None else cached,
    }


def _count(holder: Any, key: str) -> int | None:
    value = holder.get(key) if isinstance(holder, dict) else None
    return value if type(value) is int and 0 <= value < 2**31 else None


def _message(said: Any) -> str:
    """A server's words on one line, cut to a readable length, in characters that any file can hold."""
    try:
        if isinstance(said, dict):
            said = said.get("message") or json.dumps(said)
        return " ".join(str(said).split())[:_MESSAGE].encode("utf-8", "replace").decode()
    except RecursionError:
        return "(nested too deeply to show)"


def _code(said: Any) -> int | None:
    return _count(said, "code")
