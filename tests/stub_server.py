"""A chat server with known times and known faults, on loopback, for tests and benchmarks.

As a context manager, `with Stub(Script(...)) as stub` serves at `stub.base_url` from a thread of the same
process. `python -m tests.stub_server --port 0` serves in a process of its own and prints its address.

What a request gets is the next of the scripts given, then the default; a `stub` object in the request's body
overrides single fields. Every write is logged with its time: `stub.log`, or GET /stub/log.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Script:
    """What one request gets. Times are in seconds, from the end of the request's body."""

    ttft_s: float = 0.0  # to the first token
    itl_s: float = 0.0  # between tokens
    tokens: int | None = None  # early end if fewer than max_tokens; None: max_tokens
    tokens_per_chunk: int = 1
    reasoning: int = 0  # so many of the tokens are reasoning, and come first
    reasoning_key: str = "reasoning_content"
    role_first: bool = True  # a first event with a role and no text
    empty_deltas: int = 0  # events without text after the tokens, while usage grows
    usage: str = "end"  # "end" (its own event, choices []), "finish" (with finish_reason), "each", "none"
    prompt_tokens: int | None = None  # None: counted from the content, with TEMPLATE tokens of template
    cached_tokens: int | None = 0
    timings: bool = False  # llama.cpp's timings
    comments: int = 0  # keep-alive comments during prefill
    ack: str = "early"  # headers at once, or "late": with the first token
    newline: str = "\n"
    text: str = "word "  # of each token
    split: int | None = None  # bytes a write; None: an event a write
    finish: bool = True  # the event with finish_reason
    done: bool = True  # [DONE]
    fault: str | None = None  # see FAULTS
    fault_after: int = 0  # tokens sent before the fault


FAULTS = ("error-data", "error-event", "malformed", "fin", "rst", "stall", "empty", "http-400", "http-429",
          "http-500", "http-503", "hang-up", "stale")  # fmt: skip
TEMPLATE = 5


@dataclass
class Served:
    """One request as the server saw it; times are time.perf_counter_ns() of this machine."""

    body: dict[str, Any]
    headers: dict[str, str]
    script: dict[str, Any]
    received_ns: int
    token_ns: list[int] = field(default_factory=list)  # just before the write of each chunk with text
    chunk_tokens: list[int] = field(default_factory=list)
    end_ns: int = 0  # just before the last write
    connection: int = 0  # client's port: the same for two requests over one connection


def count_tokens(text: str) -> int:
    """Tokens by the stub's tokenizer: a word of up to six letters is one, a longer one two."""
    return sum(1 + (len(word) > 6) for word in re.findall(r"\S+", text))


class Stub:
    """The server. `scripts` are used one a request, in order; after them `default` is."""

    def __init__(self, *scripts: Script, default: Script | None = None, port: int = 0) -> None:
        self.scripts = list(scripts)
        self.default = default or (scripts[-1] if scripts else Script())
        self.log: list[Served] = []
        self.connections = 0
        self.stop = threading.Event()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.stub = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Stub:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def next_script(self, overrides: dict[str, Any]) -> Script:
        script = self.scripts.pop(0) if self.scripts else self.default
        return replace(script, **overrides)


def events(script: Script, max_tokens: int, prompt_tokens: int) -> Iterator[tuple[float, str, int]]:
    """The stream as (seconds from the start, event, tokens of text in it), without HTTP."""
    total = max_tokens if script.tokens is None else script.tokens
    for i in range(script.comments):
        yield script.ttft_s * i / script.comments, f": keepalive {i}/{script.comments}", 0
    if script.role_first:
        at = 0.0 if script.ack == "early" else script.ttft_s
        yield at, _event({"role": "assistant", "content": None}), 0
    sent = 0
    while sent < total:
        if script.fault not in (None, "stale") and sent >= script.fault_after:
            return
        n = min(script.tokens_per_chunk, (script.reasoning if sent < script.reasoning else total) - sent)
        key = script.reasoning_key if sent < script.reasoning else "content"
        at = script.ttft_s + sent * script.itl_s
        sent += n
        usage = _usage(script, prompt_tokens, sent) if script.usage == "each" else None
        yield at, _event({key: script.text * n}, usage=usage), n
    at = script.ttft_s + max(total - 1, 0) * script.itl_s
    yield from ((at, item, 0) for item in _ending(script, max_tokens, prompt_tokens, total))


def _ending(script: Script, max_tokens: int, prompt_tokens: int, total: int) -> Iterator[str]:
    usage = _usage(script, prompt_tokens, total)
    for i in range(script.empty_deltas):
        growing = _usage(script, prompt_tokens, total - script.empty_deltas + i)
        yield _event({"content": ""}, usage=growing)
    if script.finish:
        reason = "length" if total >= max_tokens else "stop"
        yield _event({}, finish=reason, usage=usage if script.usage in ("finish", "each") else None)
    if script.usage == "end":
        yield _event(None, usage=usage, timings=_timings(script, prompt_tokens, total))
    if script.done:
        yield "data: [DONE]"


def _event(delta: dict | None, finish: str | None = None, **more: dict | None) -> str:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    event = {"id": "chatcmpl-stub", "object": "chat.completion.chunk", "created": 1, "model": "stub"}
    event |= {"choices": choices} | {key: value for key, value in more.items() if value}
    return "data: " + json.dumps(event, ensure_ascii=False)


def _usage(script: Script, prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    usage: dict[str, Any] = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens,
                             "total_tokens": prompt_tokens + completion_tokens}  # fmt: skip
    if script.cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": script.cached_tokens}
    if script.reasoning:
        usage["completion_tokens_details"] = {"reasoning_tokens": min(script.reasoning, completion_tokens)}
    return usage


def _timings(script: Script, prompt_tokens: int, total: int) -> dict[str, Any] | None:
    if not script.timings:
        return None
    return {"cache_n": script.cached_tokens or 0, "prompt_n": prompt_tokens, "prompt_ms": script.ttft_s * 1e3,
            "predicted_n": total, "predicted_ms": max(total - 1, 0) * script.itl_s * 1e3}  # fmt: skip


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    stub: Stub

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left early is part of the game."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: Any) -> None:
        pass

    def setup(self) -> None:
        super().setup()
        self.served = 0
        self.server.stub.connections += 1

    def do_GET(self) -> None:
        answers = {
            "/health": {"status": "ok"},
            "/v1/models": {"object": "list", "data": [{"id": "stub", "object": "model"}]},
            "/stub/log": [asdict(s) for s in self.server.stub.log],
        }
        known = self.path in answers
        self._json(200 if known else 404, answers.get(self.path, {"error": {"message": "no such page"}}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        received = time.perf_counter_ns()
        if self.path == "/tokenize":
            self._json(200, {"tokens": list(range(count_tokens(body.get("content", ""))))})
        elif self.path == "/v1/chat/completions":
            self._chat(body, received)
        else:
            self._json(404, {"error": {"message": "no such page"}})

    def _chat(self, body: dict[str, Any], received: int) -> None:
        script = self.server.stub.next_script(body.get("stub", {}))
        kept = {k: v for k, v in body.items() if k != "messages"}
        served = Served(kept, dict(self.headers), asdict(script), received, connection=self.client_address[1])
        self.server.stub.log.append(served)
        self.served += 1
        if script.fault == "hang-up" or (script.fault == "stale" and self.served > 1):
            self.close_connection = True  # no answer; of "stale", only where it has served before
            return
        content = " ".join(m["content"] for m in body["messages"])
        asked = count_tokens(content) + TEMPLATE if script.prompt_tokens is None else script.prompt_tokens
        if script.fault and script.fault.startswith("http-"):
            status = int(script.fault[5:])
            error = {"message": f"stub says\n{status}", "type": "stub", "code": status}
            self._json(status, {"error": error})
            return
        self._stream(script, served, int(body.get("max_tokens", 16)), asked)

    def _stream(self, script: Script, served: Served, max_tokens: int, prompt_tokens: int) -> None:
        if script.ack == "late":
            self._wait(served.received_ns, script.ttft_s)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        if script.fault != "empty":
            for at, event, tokens in events(script, max_tokens, prompt_tokens):
                self._wait(served.received_ns, at)
                now = time.perf_counter_ns()
                if tokens:
                    served.token_ns.append(now)
                    served.chunk_tokens.append(tokens)
                served.end_ns = now
                self._send(event + 2 * script.newline, script.split)
        if not self._misbehave(script):
            self.wfile.write(b"0\r\n\r\n")

    def _misbehave(self, script: Script) -> bool:
        """The fault after the tokens; True if the body must not be ended as HTTP wants."""
        if script.fault == "error-data":
            self._send('data: {"error": {"message": "stub ran out of luck", "code": 500}}\n\n')
            self._send("data: [DONE]\n\n")
        elif script.fault == "error-event":
            self._send('event: error\ndata: {"message": "stub ran out of luck"}\n\n')
        elif script.fault == "malformed":
            self._send('data: {"choices": [{"del\n\n')
            self._send(_event({}, finish="stop") + "\n\ndata: [DONE]\n\n")
        elif script.fault == "fin":
            self.wfile.write(b"40\r\ndata: {")  # 64 bytes promised
            self.close_connection = True
        elif script.fault == "rst":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            os.close(self.connection.detach())  # http.server itself would send FIN first
        elif script.fault == "stall":
            self.server.stub.stop.wait()
            self.close_connection = True
        return script.fault in ("fin", "rst", "stall")

    def _send(self, text: str, size: int | None = None) -> None:
        data = text.encode()
        for i in range(0, len(data), size or len(data)):
            piece = data[i : i + (size or len(data))]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def _json(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    @staticmethod
    def _wait(since_ns: int, seconds: float) -> None:
        """Sleep until a fixed time, so that errors do not add up over a stream."""
        left = since_ns / 1e9 + seconds - time.perf_counter()
        if left > 0:
            time.sleep(left)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    for name, default in asdict(Script()).items():
        if type(default) in (int, float, str):
            parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    options = vars(parser.parse_args())
    port = options.pop("port")
    with Stub(Script(**options), port=port) as stub:
        print(stub.base_url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
