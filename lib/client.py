"""One streamed chat request to a server on this machine, with the time of every token.

The times are the measurement: each is taken when the bytes left the socket, before anything is parsed.
Requests go one after another over one connection.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx

from lib import ollama_stream
from lib.files import TinymoeError
from lib.prompts import prompt_sha256
from lib.stream import Answer, Exchange

__all__ = ["Client", "ClientError", "Exchange"]

_DRAIN_NS = 1_000_000_000  # how long a stream that has said its last may take to close


class ClientError(TinymoeError):
    """A request that must not be sent; a server's fault is never this, but an Exchange with `error`."""


class Client:
    """A connection to one server at `base_url` (http://127.0.0.1:PORT), kept open between requests.

    dialect: openai, which all servers speak, or ollama. Raises ClientError for any other host: prompts go nowhere but
    to servers started on this machine.
    """

    def __init__(self, base_url: str, dialect: str = "openai") -> None:
        self._path, self._body, self._answer = _DIALECTS[dialect]
        self._wire = _Wire()
        self._http = httpx.Client(
            base_url=f"http://127.0.0.1:{_loopback_port(base_url)}", transport=_transport(self._wire),
            trust_env=False, timeout=None,
        )  # fmt: skip

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a server told to stop while it is open may wait for it."""
        self._http.close()

    def send(
        self,
        prompt: str,
        gen: int,
        *,
        phase: str = "profiling",
        index: int = 0,
        extras: Mapping[str, Any] | None = None,
        timeout_s: float = 600.0,
        model: str = "default_model",
        target_isl: int | None = None,
    ) -> Exchange:
        """Send `prompt`, ask for `gen` tokens, and read the stream to its end or to the deadline.

        `timeout_s` covers the whole request. `extras` are further keys of the body. Whatever the server
        does, an Exchange comes back; its `error["type"]` is one of refused, reset, cut (ended before it
        was complete), http (status other than 2xx), server (an error inside the stream), malformed (a
        message that is not JSON), empty (no token), timeout.

        A kept connection may have been closed by the server just before (llama.cpp closes after each stream,
        a moment later than its last byte). Such a request never began, so it is sent again, once, and its
        times are those of the second sending.
        """
        request_id = str(uuid.uuid4())
        request = self._http.build_request(
            "POST", self._path, content=self._body(prompt, gen, model, extras),
            headers={"content-type": "application/json", "accept": "text/event-stream",
                     "accept-encoding": "identity", "x-request-id": request_id},
        )  # fmt: skip
        wire = self._wire
        for _ in range(2):
            answer, connects, wire.received = self._answer(), wire.connects, 0
            wall_start, start = time.time_ns(), time.perf_counter_ns()
            self._read(request, answer, start + int(timeout_s * 1e9))
            end, wall_end = time.perf_counter_ns(), time.time_ns()
            reused = connects == wire.connects
            if not (reused and answer.lost and not wire.received):
                break
        return answer.exchange(
            wall_start - start, end, index=index, phase=phase, start_ns=wall_start,
            prompt_sha256=prompt_sha256(prompt), target_isl=target_isl, target_osl=gen, request_id=request_id,
            connection_reused=reused, monotonic_start_ns=start, monotonic_end_ns=end, wall_end_ns=wall_end,
        )  # fmt: skip

    def _read(self, request: httpx.Request, answer: Answer, deadline_ns: int) -> None:
        """Fill `answer` from the socket; every fault ends here as its error."""
        wire = self._wire
        wire.deadline_ns = deadline_ns
        try:
            response = self._http.send(request, stream=True)
            try:
                if not response.is_success:
                    answer.refuse(response.status_code, response.reason_phrase, response.read())
                    return
                answer.ack = wire.read_ns
                for data in response.iter_raw():
                    answer.feed(data, wire.read_ns)
                    if answer.over:  # read on to the end, so that the connection can be kept
                        wire.deadline_ns = min(wire.deadline_ns, wire.read_ns + _DRAIN_NS)
            finally:
                response.close()
            answer.end_of_stream(wire.read_ns)
        except httpx.HTTPError as fault:
            answer.break_off(fault)


def _loopback_port(url: str) -> int:
    try:
        parts = urlsplit(url)
        if parts.scheme == "http" and parts.hostname == "127.0.0.1":
            return parts.port or 80
    except ValueError:  # a port that is no number
        pass
    raise ClientError(f"{url}: only http://127.0.0.1:PORT is allowed; serve on loopback")


def _body(prompt: str, gen: int, model: str, extras: Mapping[str, Any] | None) -> bytes:
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": gen,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
    }
    return json.dumps(body | dict(extras or {})).encode()


# Endpoint, body of a request and reader of the answer.
_DIALECTS = {
    "openai": ("/v1/chat/completions", _body, Answer),
    "ollama": (ollama_stream.PATH, ollama_stream.body, ollama_stream.OllamaAnswer),
}


class _Wire(httpcore.NetworkBackend):
    """The one socket: it gives every wait what is left until the deadline, and notes when bytes arrived.

    httpx's own timeouts start anew with each read, so that a server which trickles would never time out.
    """

    def __init__(self) -> None:
        self.deadline_ns = self.read_ns = self.received = self.connects = 0
        self._backend = httpcore.SyncBackend()

    def left_s(self, expired: type[Exception]) -> float:
        """Seconds until the deadline; raises `expired` behind it."""
        left = self.deadline_ns - time.perf_counter_ns()
        if left <= 0:
            raise expired("no end before the deadline")
        return left / 1e9

    def connect_tcp(self, host: str, port: int, timeout=None, local_address=None, socket_options=None):
        self.connects += 1
        left = self.left_s(httpcore.ConnectTimeout)
        stream = self._backend.connect_tcp(host, port, left, local_address, socket_options)
        return _Socket(stream, self)


class _Socket(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, wire: _Wire) -> None:
        self._stream, self._wire = stream, wire
        self.get_extra_info, self.close = stream.get_extra_info, stream.close

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._stream.read(max_bytes, self._wire.left_s(httpcore.ReadTimeout))
        self._wire.read_ns = time.perf_counter_ns()
        self._wire.received += len(data)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._wire.left_s(httpcore.WriteTimeout))


def _transport(wire: _Wire) -> httpx.HTTPTransport:
    """httpx over our socket. It has no public door for a network backend, hence the pool put in by hand."""
    transport = httpx.HTTPTransport(verify=False, trust_env=False)  # no TLS: spares reading certificates
    transport._pool = httpcore.ConnectionPool(max_connections=1, network_backend=wire)
    return transport
