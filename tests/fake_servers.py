"""Stand-ins for programs that are not installed here: `ollama` and `mlx_vlm.server`, as their documentation has them.

`program(folder, "ollama", **faults)` writes one that a backend can start. Faults, by program:
ollama: load_s (load_duration of each chat, s), eos_after (tokens), forgets (keep_alive is not heard), context (what
/api/ps says), create (what `create` fails with). mlx_vlm.server: eos_after; refuses (what loading fails with).
Every prompt has PROMPT_TOKENS. Nothing but Python's own library is imported, so that they start at once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request, urlopen

PROMPT_TOKENS = 36


def program(folder: Path, name: str, **faults: object) -> Path:
    """An executable file called `name` in `folder`."""
    path = folder / name
    facts = json.dumps({"name": name} | faults)
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        f"import fake_servers\nsys.exit(fake_servers.main({facts!r}, sys.argv[1:]))\n"
    )
    path.chmod(0o755)
    return path


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server
        if self.path == "/api/tags":
            self._json(200, {"models": [{"name": m} for m in server.models]})
        elif self.path == "/api/ps":
            until = "2026-01-01T00:05:00Z" if server.faults.get("forgets") else "2318-03-04T12:00:00.123456789Z"
            context = server.faults.get("context") or server.models.get(server.loaded, {}).get("num_ctx")
            loaded = {"name": server.loaded, "size": 4000, "size_vram": 3000, "expires_at": until}
            self._json(200, {"models": [loaded | {"context_length": context}] if server.loaded else []})
        else:
            self._json(404, {"error": "no such page"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/create":
            self.server.models[body["name"]] = body
            self._json(200, {})
        elif self.server.faults.get("refuses"):
            print(f"ValueError: {self.server.faults['refuses']}", flush=True)
            self._json(500, {"detail": f"Failed to load model: {self.server.faults['refuses']}"})
        elif body["model"] not in self.server.models:
            self._json(404, {"error": f"model '{body['model']}' not found"})
        elif self.path == "/api/chat":
            self._native(body)
        else:
            self._openai(body)

    def _counts(self, body: dict, wanted: int) -> tuple[int, int]:
        self.server.loaded = body["model"]
        return PROMPT_TOKENS, min(wanted, self.server.faults.get("eos_after", wanted))

    def _native(self, body: dict) -> None:
        assert "num_ctx" not in body["options"] and body["keep_alive"] == -1
        wanted = body["options"]["num_predict"]
        prompt, tokens = self._counts(body, wanted)
        lines = [{"model": body["model"], "message": {"role": "assistant", "content": "word "}, "done": False}] * tokens
        load_ns = int(1e9 * self.server.faults.get("load_s", 0.02))
        lines.append({
            "model": body["model"], "message": {"role": "assistant", "content": ""}, "done": True,
            "done_reason": "length" if tokens == wanted else "stop", "total_duration": load_ns + 5,
            "load_duration": load_ns, "prompt_eval_duration": 3, "prompt_eval_count": prompt, "eval_count": tokens,
        })  # fmt: skip
        self._stream([json.dumps(line) + "\n" for line in lines], "application/x-ndjson")

    def _openai(self, body: dict) -> None:
        prompt, tokens = self._counts(body, body["max_tokens"])
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens,
                 "prompt_tokens_details": {"cached_tokens": 0}}  # fmt: skip
        if not body.get("stream"):
            self._json(200, {"choices": [{"message": {"content": "word " * tokens}}], "usage": usage})
            return
        events = [{"choices": [{"delta": {"content": "word "}, "finish_reason": None}]}] * tokens
        reason = "length" if tokens == body["max_tokens"] else "stop"
        events.append({"choices": [{"delta": {"content": None}, "finish_reason": reason}], "usage": usage})
        self._stream([f"data: {json.dumps(e)}\n\n" for e in events] + ["data: [DONE]\n\n"], "text/event-stream")

    def _stream(self, parts: list[str], kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in parts:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part.encode()), part.encode()))
        self.wfile.write(b"0\r\n\r\n")

    def _json(self, status: int, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _serve(port: int, faults: dict, models: dict) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    server.daemon_threads, server.faults, server.models, server.loaded = True, faults, models, ""
    server.serve_forever()


def main(facts: str, arguments: list[str]) -> int:
    """What the stand-in does, by its name and its command line."""
    faults = json.loads(facts)
    return {"ollama": _ollama, "mlx_vlm.server": _mlx_vlm}[faults.pop("name")](faults, arguments)


def _ollama(faults: dict, arguments: list[str]) -> int:
    host, port = os.environ["OLLAMA_HOST"].split(":")
    assert host == "127.0.0.1" and Path(os.environ["HOME"]).name == "ollama"
    if arguments == ["--version"]:
        print("Warning: could not connect to a running Ollama instance", file=sys.stderr)
        print("Warning: client version is 0.21.2", file=sys.stderr)
    elif arguments == ["serve"]:
        runner = subprocess.Popen([sys.executable, "-c", "import time; x = 'x' * 60_000_000; time.sleep(600)"])
        try:
            _serve(int(port), faults, {})
        finally:
            runner.kill()
    elif faults.get("create"):
        print(f"gathering model components\r\nError: {faults['create']}", file=sys.stderr)
        return 1
    else:
        name = arguments[arguments.index("create") + 1]
        lines = dict(line.rsplit(" ", 1) for line in Path(arguments[-1]).read_text().splitlines())
        assert Path(lines["FROM"]).is_file()
        body = {"name": name, "num_ctx": int(lines["PARAMETER num_ctx"])}
        urlopen(Request(f"http://127.0.0.1:{port}/create", json.dumps(body).encode())).close()
    return 0


def _mlx_vlm(faults: dict, arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    for option, kind in (("--model", str), ("--host", str), ("--port", int)):
        parser.add_argument(option, type=kind, required=True)
    args = parser.parse_args(arguments)
    assert args.host == "127.0.0.1"
    _serve(args.port, faults, {args.model: {}})
    return 0
