"""The streaming client against a server with known times and faults: counts and orders, never durations."""

import itertools
import json
import socket
import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import client as client_module
from lib.client import Client, ClientError
from lib.prompts import prompt_sha256
from lib.stream import Answer
from tests.stub_server import TEMPLATE, Script, Stub, events

PROMPT = "one two three"


@pytest.fixture(scope="module")
def stub():
    with Stub() as server:
        yield server


@pytest.fixture
def send(stub):
    """Send one request with its script; the server's view of it is `stub.log[-1]`."""
    with Client(stub.base_url) as client:

        def one(gen=8, timeout_s=20.0, prompt=PROMPT, **script):
            return client.send(prompt, gen, extras={"stub": script}, timeout_s=timeout_s, target_isl=3)

        yield one


def _url(listener):
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def arrivals(exchange):
    """Arrival of each chunk on the monotonic clock, which client and server share."""
    return [t - exchange.start_ns + exchange.monotonic_start_ns for t in exchange.chunk_ns]


def test_a_plain_answer(send, stub):
    x = send(itl_s=0.001)
    assert x.error is None and not x.censored
    assert (x.chunks, x.completion_tokens, x.prompt_tokens) == (8, 8, 3 + TEMPLATE)
    assert (x.cached_tokens, x.reasoning_tokens, x.reasoning_chunks) == (0, None, 0)
    assert (x.finish_reason, x.model, x.server_timings) == ("length", "stub", None)
    assert (x.target_isl, x.target_osl, x.prompt_sha256) == (3, 8, prompt_sha256(PROMPT))
    assert (x.index, x.phase, x.conversation_id) == (0, "profiling", "session_000000")
    assert x.request_id == stub.log[-1].headers["x-request-id"]


def test_times_are_in_order_and_after_the_server_wrote(send, stub):
    x = send(ttft_s=0.01, itl_s=0.002)
    moments = [x.start_ns, x.ack_ns, x.first_token_ns, *x.chunk_ns, x.last_token_ns, x.end_ns]
    assert moments == sorted(moments)
    assert x.first_token_ns == x.first_visible_ns == x.chunk_ns[0]
    assert x.last_token_ns == x.chunk_ns[-1]
    assert all(seen >= written for seen, written in zip(arrivals(x), stub.log[-1].token_ns, strict=True))
    assert x.monotonic_end_ns - x.monotonic_start_ns >= x.end_ns - x.start_ns
    assert x.wall_end_ns >= x.start_ns


def test_body_is_what_both_servers_understand(stub):
    with Client(stub.base_url) as client:
        client.send(PROMPT, 4, extras={"logit_bias": {"2": -100}, "temperature": 0.5}, model="m")
    body = stub.log[-1].body
    assert body == {"model": "m", "max_tokens": 4, "stream": True, "stream_options": {"include_usage": True},
                    "temperature": 0.5, "logit_bias": {"2": -100}}  # fmt: skip


def test_long_prompt_of_any_characters(send):
    assert send(prompt="größe 数 \U0001f600 " * 10_000).prompt_tokens == 30_000 + TEMPLATE


def test_one_connection_serves_all_requests(stub):
    before = stub.connections
    with Client(stub.base_url) as client:
        first, second, third = (client.send(PROMPT, 2, index=i, phase="warmup") for i in range(3))
    assert [x.connection_reused for x in (first, second, third)] == [False, True, True]
    assert stub.connections == before + 1
    assert (third.index, third.phase) == (2, "warmup")


def test_a_request_to_a_connection_that_the_server_has_closed_is_sent_again(send, stub):
    send()
    served = len(stub.log)
    x = send(fault="stale")
    assert (x.error, x.completion_tokens, x.connection_reused) == (None, 8, False)
    assert len(stub.log) == served + 2
    assert stub.log[-1].received_ns >= x.monotonic_start_ns > stub.log[-2].received_ns


def test_a_server_that_hangs_up_each_time_gets_no_third_request(send, stub):
    send()
    served = len(stub.log)
    x = send(fault="hang-up")
    assert x.error["type"] in ("cut", "reset") and x.ack_ns is None
    assert len(stub.log) == served + 2


def test_header_before_prefill_and_after_it(send, stub):
    early = send(ttft_s=0.2, ack="early")
    written = stub.log[-1].token_ns[0] - early.monotonic_start_ns + early.start_ns
    assert early.ack_ns < written <= early.first_token_ns
    late = send(ttft_s=0.2, ack="late")
    waited = stub.log[-1].received_ns + 200_000_000 - late.monotonic_start_ns + late.start_ns
    assert waited <= late.ack_ns <= late.first_token_ns


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_comes_first_and_counts_once(send, key):
    x = send(gen=20, reasoning=15, reasoning_key=key, itl_s=0.001)
    assert (x.chunks, x.reasoning_chunks, x.completion_tokens, x.reasoning_tokens) == (20, 15, 20, 15)
    assert x.first_token_ns == x.chunk_ns[0]
    assert x.first_visible_ns == x.chunk_ns[15]


def test_only_reasoning_until_the_limit(send):
    x = send(gen=10, reasoning=10)
    assert x.error is None
    assert x.first_visible_ns is None
    assert (x.first_token_ns, x.last_token_ns) == (x.chunk_ns[0], x.chunk_ns[9])


def test_chunks_are_not_tokens(send, stub):
    x = send(gen=256, tokens_per_chunk=4)
    assert (x.chunks, x.completion_tokens) == (64, 256)
    assert stub.log[-1].chunk_tokens == [4] * 64


def test_empty_deltas_roles_and_comments_are_no_tokens(send):
    x = send(gen=8, empty_deltas=3, usage="each", comments=5, ttft_s=0.02)
    assert (x.chunks, x.completion_tokens, x.error) == (8, 8, None)


@pytest.mark.parametrize("usage", ["end", "finish", "each"])
def test_usage_wherever_it_comes(send, usage):
    assert send(usage=usage).completion_tokens == 8


def test_no_usage(send):
    x = send(usage="none")
    assert (x.completion_tokens, x.prompt_tokens, x.cached_tokens, x.chunks) == (None, None, None, 8)
    assert x.error is None


def test_end_is_the_last_message_not_the_last_token(send):
    x = send(gen=2, itl_s=0.0, usage="end")
    assert x.end_ns >= x.last_token_ns
    without = send(gen=2, usage="none", finish=False, done=False, fault="stall", fault_after=2, timeout_s=0.2)
    assert without.error["type"] == "timeout"  # neither finish nor [DONE]: nobody said that it was all


def test_llama_cpp_timings_are_kept_and_count_the_cache(send):
    x = send(timings=True, cached_tokens=2)
    assert x.server_timings["cache_n"] == 2 and x.server_timings["predicted_n"] == 8
    answer = Answer()
    answer.feed(b'data: {"choices": [], "usage": {"prompt_tokens": 9}, "timings": {"cache_n": 4}}\n\n', 1)
    assert answer.exchange(0, 1, index=0, phase="profiling", start_ns=0).cached_tokens == 4


def test_what_the_server_says_is_reported_as_it_is(send):
    assert send(prompt_tokens=2050).prompt_tokens == 2050
    assert send(cached_tokens=7).cached_tokens == 7
    early = send(gen=32, tokens=20)
    assert (early.completion_tokens, early.finish_reason, early.error) == (20, "stop", None)


FAULTS = {
    "error-data": ("server", "stub ran out of luck", 500, 3),
    "error-event": ("server", "stub ran out of luck", None, 3),
    "malformed": ("malformed", "not a JSON object", None, 3),
    "fin": ("cut", "after 3 chunks", None, 3),
    "rst": ("reset", "after 3 chunks", None, 3),
    "stall": ("timeout", "after 3 chunks", None, 3),
    "empty": ("empty", "no token", None, 0),
    "http-400": ("http", "400 Bad Request: stub says 400", 400, 0),
    "http-429": ("http", "429 Too Many Requests: stub says 429", 429, 0),
    "http-500": ("http", "500 Internal Server Error: stub says 500", 500, 0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_servers_fault_is_an_exchange_and_the_next_request_works(send, fault):
    kind, message, code, chunks = FAULTS[fault]
    x = send(fault=fault, fault_after=3, timeout_s=0.3 if fault == "stall" else 20)
    assert (x.error["type"], x.error.get("code"), x.chunks) == (kind, code, chunks)
    assert message in x.error["message"] and "\n" not in x.error["message"]
    assert x.censored == (fault == "stall")
    assert (x.ack_ns is None) == (kind == "http")
    assert x.end_ns >= (x.last_token_ns or x.start_ns)
    assert send().error is None


def test_a_server_that_is_not_there():
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}") as client:
        x = client.send(PROMPT, 4)
    assert x.error["type"] == "refused" and x.ack_ns is None


def test_a_trickle_of_comments_does_not_move_the_deadline(send):
    x = send(ttft_s=60.0, comments=600, timeout_s=0.5)  # a comment every 0.1 s
    assert x.error["type"] == "timeout" and x.censored and x.chunks == 0
    assert x.monotonic_end_ns - x.monotonic_start_ns >= 500_000_000


def test_a_server_that_accepts_and_says_nothing():
    with socket.create_server(("127.0.0.1", 0)) as s, Client(_url(s)) as client:
        assert client.send(PROMPT, 4, timeout_s=0.2).error["type"] == "timeout"


def test_a_server_that_speaks_no_http():
    with socket.create_server(("127.0.0.1", 0)) as s, Client(_url(s)) as client:

        def answer_nonsense():
            connection, _ = s.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"hello\r\n\r\n")

        threading.Thread(target=answer_nonsense, daemon=True).start()
        assert client.send(PROMPT, 4, timeout_s=5).error["type"] in ("cut", "reset")


def test_an_answer_that_is_whole_need_not_be_closed(send, monkeypatch):
    monkeypatch.setattr(client_module, "_DRAIN_NS", 50_000_000)
    x = send(fault="stall", fault_after=8)  # stalls behind [DONE]
    assert (x.error, x.completion_tokens) == (None, 8)
    assert send().error is None


def test_sleep_shows_as_two_clocks_that_part(send, monkeypatch):
    now = client_module.time.time_ns
    readings = [now(), now() + 660_000_000_000]
    monkeypatch.setattr(client_module.time, "time_ns", lambda: readings.pop(0) if readings else now())
    x = send()
    assert x.wall_end_ns - x.start_ns >= 660_000_000_000
    assert x.end_ns - x.start_ns < 660_000_000_000
    assert x.monotonic_end_ns - x.monotonic_start_ns < 660_000_000_000


@pytest.mark.parametrize(
    "url",
    ["http://example.org", "http://localhost:80", "http://127.0.0.1@example.org/", "https://127.0.0.1:80",
     "http://192.168.1.2:80", "127.0.0.1:80", "http://[::1]:80", "http://127.0.0.1:port", ""],
)  # fmt: skip
def test_prompts_go_nowhere_but_to_loopback(url):
    with pytest.raises(ClientError, match=r"only http://127\.0\.0\.1"):
        Client(url)


def test_proxies_of_the_environment_are_not_used(send, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert send().error is None


# The parser alone

STREAMS = {
    "plain": Script(),
    "reasoning": Script(reasoning=4, reasoning_key="reasoning"),
    "letters of several bytes": Script(text="größe 数据\U0001f600"),
    "comments, CRLF": Script(newline="\r\n", comments=3, empty_deltas=2, usage="each"),
    "no usage, no end": Script(usage="none", finish=False, done=False),
    "llama.cpp": Script(timings=True, tokens_per_chunk=3),
    "error": Script(fault="error-data", fault_after=2),
}


def wire(script: Script) -> bytes:
    text = "".join(event + 2 * script.newline for _, event, _ in events(script, 10, 17))
    if script.fault:
        text += 'data: {"error": {"message": "stub ran\\nout", "code": 500}}\n\n'
    return text.encode()


def parsed(pieces, closed=True):
    answer = Answer()
    for piece in pieces:
        answer.feed(piece, 1000)
    if closed:
        answer.end_of_stream(1000)
    return answer.exchange(5, 1000, index=0, phase="profiling", start_ns=5)


@settings(deadline=None)
@given(st.sampled_from(sorted(STREAMS)), st.lists(st.floats(0, 1), max_size=12))
def test_a_stream_split_anywhere_is_the_same_exchange(name, places):
    data = wire(STREAMS[name])
    cuts = [0, *sorted(int(f * len(data)) for f in places), len(data)]
    whole = parsed([data])
    assert parsed([data[a:b] for a, b in itertools.pairwise(cuts)]) == whole
    assert whole.chunks == {"error": 2, "llama.cpp": 4}.get(name, 10)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_read_byte_by_byte(name):
    data = wire(STREAMS[name])
    assert parsed([data[i : i + 1] for i in range(len(data))]) == parsed([data])


def test_an_answer_with_a_damaged_line_is_read_to_its_end():
    data = wire(Script(timings=True)).split(b"\n\n")
    x = parsed([b"\n\n".join([*data[:4], b"data: {nonsense", *data[4:]])])
    assert x.error["type"] == "malformed"
    assert (x.chunks, x.completion_tokens) == (10, 10)


def test_counts_that_no_server_means_are_unknown():
    for value in ("-1", "true", "1.5", '"9"', "9" * 400):
        x = parsed([f'data: {{"choices": [], "usage": {{"completion_tokens": {value}}}}}\n\n'.encode()])
        assert x.completion_tokens is None


def test_an_error_nested_to_the_limit_of_the_reader():
    for depth in range(700, 1001, 5):
        assert parsed([b'data: {"error": ' + b"[" * depth + b"]" * depth + b"}\n\n"]).error


def test_real_writes_of_three_bytes(send):
    x = send(gen=4, split=3, text="größe", newline="\r\n")
    assert (x.chunks, x.completion_tokens, x.error) == (4, 4, None)


def test_a_stream_cut_at_any_byte_is_never_taken_for_whole():
    data = wire(Script(timings=True))
    done = data.index(b'"length"')
    for end in range(len(data)):
        x = parsed([data[:end]])
        if end < done:
            assert x.error["type"] in ("cut", "empty")
        assert x.chunks <= 10
    assert parsed([data]).error is None


def test_last_line_without_its_newline():
    assert parsed([wire(Script()).rstrip()]).error is None


KEYS = ["choices", "delta", "content", "usage", "error", "timings", "model", "completion_tokens",
        "finish_reason", "code", "message"]  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=8,
)
lines = values.map(lambda value: b"data: " + json.dumps(value).encode() + b"\n\n")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40) | lines, max_size=4))
def test_whatever_comes_is_an_exchange(pieces):
    x = parsed(pieces)
    assert x.error is None or {"type", "message"} <= x.error.keys()
    assert x == replace(x)


@pytest.mark.parametrize(
    ("stream", "kind", "message"),
    [
        (b"", "empty", "no token in the answer"),
        (b'{"message": "not a stream"}', "empty", "it began: {"),
        (b'error: {"message": "old style"}\n\n', "server", "old style"),
        (b'data: {"error": "plain words"}\n\n', "server", "plain words"),
        (b'data: {"error": {"code": "bad"}}\n\n', "server", '"code": "bad"'),
        (b"event: error\ndata: no json\n\n", "server", "no json"),
        (b"data: [1, 2]\n\n", "malformed", "[1, 2]"),
        (b'data: {"error": "half a \\ud83d character"}\n\n', "server", "half a ? character"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "malformed", "[[["),
        (b"data: \xff\xfe\n\n", "malformed", "not a JSON object"),
        (b'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n', "cut", "after 0 chunks"),
        (b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n', "empty", "no token"),
    ],
)
def test_what_is_wrong_with_a_stream(stream, kind, message):
    error = parsed([stream]).error
    assert error["type"] == kind and message in error["message"]
    assert len(error["message"]) < 400
