"""One server process from launch to stop: on loopback, watched, ended only by the pid and start noted."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import psutil

from lib import store
from lib.backend import HOST, Backend, BackendError, Serving
from lib.files import TinymoeError, read_json, read_optional
from lib.hashes import sha256
from lib.models import Model
from lib.paths import ROOT, relative

PORT_TRIES = 3
STOP_S = 5.0  # from SIGTERM to SIGKILL
POLL_S = 0.05
PROBE_TIMEOUT_S = 120.0  # of one request while the server gets ready
SMOKE_TOKENS = 8
SMOKE_TIMEOUT_S = 300.0
TEMPLATE_ROOM_TOKENS = 64
LOG_TAIL_BYTES = 200_000


class ServerError(TinymoeError):
    """A server that does not start, does not answer, or has died.

    unsupported: its backend does not know this kind of model, so that there is nothing to try again.
    """

    def __init__(self, message: str, unsupported: bool = False):
        super().__init__(message)
        self.unsupported = unsupported


class Server:
    """A server of `backend` for the model at `path`, its log in `folder`/server.log. Use it with `with`.

    ctx_size: context in tokens. extra_flags: appended to the command line. The process gets a group of its
    own, so that Ctrl-C at the terminal reaches only the harness, which then stops it.
    """

    def __init__(
        self, backend: Backend, model: Model, path: Path, folder: Path, *, ctx_size: int,
        extra_flags: Iterable[str] = (),
    ):  # fmt: skip
        self.backend, self.model, self.path, self.folder = backend, model, path, folder
        self.ctx_size, self.extra_flags = ctx_size, list(extra_flags)
        self.log = folder / "server.log"
        self.port, self.command = 0, [""]
        self._prepared, self._checks = False, {}
        self._popen: subprocess.Popen[bytes] | None = None
        self._process: psutil.Process | None = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the server; ServerError before it was started."""
        if self._popen is None:
            raise ServerError(f"{self._who()}: not started")
        return self._popen.pid

    @property
    def worker_pid(self) -> int:
        """Process id of what computes: the server, or the largest process that it started if those do the work."""
        if self.backend.computes_in_child and self._process is not None:
            with contextlib.suppress(psutil.Error, ValueError):
                return max(self._process.children(recursive=True), key=lambda p: p.memory_info().rss).pid
        return self.pid

    @property
    def base_url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def serving(self) -> Serving:
        """This server as its backend's hooks see it."""
        return Serving(self.base_url, self.port, self.model, Path(relative(self.path)), self.ctx_size)

    @property
    def model_field(self) -> str:
        """What a request has to say as its "model"."""
        return self.backend.model_field(self.serving)

    @functools.cached_property
    def request_extras(self) -> dict[str, Any]:
        """What a request needs beside prompt and lengths, so that the end of the text is not taken."""
        return self.backend.request_extras(self.path)

    @functools.cached_property
    def count_tokens(self) -> Callable[[str], int]:
        """Counts the tokens of a text with this server's tokenizer, without template."""
        return self.backend.tokenize(self.base_url, self.path, self.model)

    def start(self) -> None:
        """Launch the process on a free port and note its pid and start time. It is not ready yet."""
        if not self.path.exists():
            raise ServerError(f"{self._who()}: model {relative(self.path)} is missing; make or fetch it again")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port, self._prepared = _free_port(), False
        # Seen from the root, where it runs: servers repeat the path, and artifacts are to name no machine's folders.
        served = Path(relative(self.path))
        self.command = self.backend.command(served, self.port, self.ctx_size, self.extra_flags)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            try:
                self._popen = subprocess.Popen(
                    self.command, cwd=ROOT, env=os.environ | self.backend.environment(self.port),
                    stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
            except OSError as e:
                raise ServerError(f"{self._who()}: {self.command[0]} does not start: {e.strerror}") from e
        self._process = psutil.Process(self._popen.pid)
        self._created_s = self._process.create_time()

    def alive(self) -> bool:
        """Whether the process that was started still runs."""
        return self._popen is not None and self._popen.poll() is None

    def has_ended(self, within_s: float) -> bool:
        """Whether the process has ended, or does within `within_s` seconds: a reset connection comes before its end."""
        if self._popen is None:
            return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(within_s)
        return not self.alive()

    def wait_ready(self, timeout_s: float) -> None:
        """Return when a real request for one token has been answered.

        Health checks do not do: MLX-LM's says ok before the model is loaded, and also when it never will
        be. ServerError with the server's own reason if it ends, refuses the model or takes longer than
        timeout_s. If another program takes the port between choice and use, the server is started again, on
        another one.
        """
        deadline = time.monotonic() + timeout_s
        for tries_left in reversed(range(PORT_TRIES)):
            failure = self._probe_until(deadline)
            if failure is None:
                return
            self.stop()
            if not (tries_left and _port_taken(failure)):
                unsupported = self.backend.is_unsupported(failure)
                raise ServerError(f"{self._who()}: {failure}", unsupported)
            self.start()

    def _probe_until(self, deadline: float) -> str | None:
        """None once the server answers, else why it does not."""
        while (left_s := deadline - time.monotonic()) > 0:
            if not self.alive():
                return self.death()
            if not self._listens():  # not yet, or another program has taken the port: ask no one but ours
                if _port_taken(reason := self._reason()):  # MLX-LM's process lives on after that
                    return reason
                time.sleep(POLL_S)
                continue
            try:
                if not self._prepared:
                    self.backend.prepare(self.serving, left_s)
                    self._prepared = True
                self._ask("Hello", 1, min(left_s, PROBE_TIMEOUT_S))
                self._checks = self.backend.check(self.serving)
                return None
            except BackendError as e:
                return str(e) if self.alive() else self.death()
            except httpx.HTTPStatusError as e:
                if e.response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    return self._reason() or f"answers {e.response.status_code}: {e.response.text.strip()}"
            except httpx.TransportError:
                pass
            time.sleep(POLL_S)
        return f"not ready in time; see {relative(self.log)}, or give it more in the plan's ready_timeout_s"

    def _listens(self) -> bool:
        """Whether our own process holds the port; also true where the system does not let us look."""
        try:
            family = [self._process, *self._process.children(recursive=True)]
            ports = {c.laddr.port for p in family for c in p.net_connections("tcp") if c.laddr}
        except psutil.AccessDenied:
            return True
        except psutil.Error:
            return False
        return self.port in ports

    def smoke(self, lengths: Iterable[int] = (32, 256, 512)) -> list[dict[str, Any]]:
        """One short request about each prompt length in tokens; those beyond the context are left out.

        A list of {prompt_tokens, completion_tokens, seconds}. ServerError if one fails or brings no token.
        """
        longest = self.ctx_size - SMOKE_TOKENS - TEMPLATE_ROOM_TOKENS
        return [self._smoke(n) for n in lengths if n <= longest]

    def _smoke(self, length: int) -> dict[str, Any]:
        try:
            words = max(1, length // self.count_tokens(" time"))
            began = time.perf_counter()
            usage = self._ask(("time " * words).strip(), SMOKE_TOKENS, SMOKE_TIMEOUT_S)
        except (httpx.HTTPError, BackendError) as e:
            why = self.death() if not self.alive() else str(e) or type(e).__name__
            raise ServerError(f"{self._who()}: a trial request of {length} tokens failed: {why}") from e
        if not usage["completion_tokens"]:
            raise ServerError(f"{self._who()}: a trial request of {length} tokens brought no token")
        return usage | {"seconds": time.perf_counter() - began}

    def _ask(self, prompt: str, tokens: int, timeout_s: float) -> dict[str, int]:
        """One chat request: its prompt and completion tokens, as the server counts them, or
        httpx.HTTPError.
        """
        body = {
            "model": self.model_field,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "temperature": 0,
        }
        answer = httpx.post(
            f"{self.base_url}/v1/chat/completions", json=body | self.request_extras, timeout=timeout_s,
            trust_env=False, headers={"connection": "close"},
        )  # fmt: skip
        usage = answer.raise_for_status().json()["usage"]
        return {key: usage[key] for key in ("prompt_tokens", "completion_tokens")}

    def stop(self) -> None:
        """End the process and its children: SIGTERM, then SIGKILL for what is left.

        Connections to it have to be closed before: llama.cpp waits for a client that does not read. Only a
        process with the pid and start time noted is signalled; nothing happens if it has ended already.
        """
        if self._process is None or self._popen is None:
            return
        family = self._family()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in family:
                with contextlib.suppress(psutil.Error):  # it has ended: psutil checks pid and start time
                    process.send_signal(number)
            _, family = psutil.wait_procs(family, timeout=STOP_S)
            if not family:
                break
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(STOP_S)

    def _family(self) -> list[psutil.Process]:
        """The server's process, if it is still the one that was started, and its children."""
        with contextlib.suppress(psutil.Error):
            if self.alive() and self._process.create_time() == self._created_s:
                return [self._process, *self._process.children(recursive=True)]
        return []

    def death(self) -> str:
        """How the process ended, with the server's own reason if its log has one; "" while it runs."""
        if self._popen is None or (code := self._popen.poll()) is None:
            return ""
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"server {how}: {self._reason() or 'see ' + relative(self.log)}"

    def _reason(self) -> str:
        """The server's own reason, from what this start wrote to the log."""
        with self.log.open("rb") as f:
            f.seek(max(self._log_start, self.log.stat().st_size - LOG_TAIL_BYTES))
            return self.backend.resident_reason(f.read().decode(errors="replace"))

    def _who(self) -> str:
        return f"{self.backend.name} {self.model.name}"

    def identity(self) -> dict[str, Any]:
        """What tells this life of the server from any other: pid and start time (float epoch seconds)."""
        return {"pid": self.pid, "created_s": self._created_s}

    def describe(self) -> dict[str, Any]:
        """All that server.json says of this server: how it was started, and exactly which model it serves.

        For a folder, sha256 maps each file to its own; size_bytes is the sum; config is its config.json.
        """
        files = [self.path] if self.path.is_file() else sorted(p for p in self.path.rglob("*") if p.is_file())
        hashes = {str(p.relative_to(self.path)): sha256(p) for p in files if p != self.path}
        return {
            "backend": self.backend.name,
            "model": self.model.name,
            "command": [_short(word) for word in self.command],
            "version": self.backend.version(),
            **self.identity(),
            "host": HOST,
            "port": self.port,
            "ctx_size": self.ctx_size,
            "model_path": relative(self.path),
            "source": store.source(self.path),
            "sha256": hashes or sha256(self.path),
            "size_bytes": sum(p.stat().st_size for p in files),
            "checks": self._checks,
            "total_B": self.model.total_B,
            "active_B": self.model.active_B,
            "tiny": self.model.tiny,
            "config": read_optional(self.path / "config.json"),
        }


def end_orphans(run_dir: Path) -> list[str]:
    """End servers of this run that a killed sweep left behind, and say which.

    Only a process that still has the pid and the start time that server.json recorded is ended.
    """
    ended = []
    for record in sorted(run_dir.glob("*/*/server.json")):
        facts = read_json(record)
        with contextlib.suppress(psutil.Error, KeyError, TypeError):
            process = psutil.Process(facts["pid"])
            if abs(process.create_time() - facts["created_s"]) < 0.01:
                process.kill()
                process.wait(STOP_S)
                ended.append(f"{facts['backend']} {facts['model']} (pid {facts['pid']})")
    return ended


def _free_port() -> int:
    """A port of loopback that nobody listens on at this moment."""
    with socket.socket() as s:
        s.bind((HOST, 0))
        return s.getsockname()[1]


def _port_taken(failure: str) -> bool:
    return "couldn't bind" in failure or "address already in use" in failure.lower()


def _short(word: str) -> str:
    """A word of the command line; a path inside the repository from its root."""
    return word.removeprefix(f"{ROOT}/")
