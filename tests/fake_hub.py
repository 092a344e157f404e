"""A Hugging Face hub on loopback with a few small repositories, for tests.

`with FakeHub({"org/name": {"file": b"..."}}) as fake` serves at `fake.url`. A repository given as an integer answers
every question with that status; "gated" answers as a gated one does.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c0ffee" + "0" * 34
LFS_BYTES = 1000  # files from this size on are large ones, with a SHA-256


class FakeHub:
    """`asked` lists (method, path) of each request; `cut_after` ends the next file's body after so many bytes."""

    def __init__(self, repos: dict[str, dict[str, bytes] | int | str]):
        self.repos, self.asked, self.headers = repos, [], []
        self.cut_after: int | None = None
        self.wrong_hash = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.fake = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeHub:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def files(self, repo: str) -> list[dict]:
        """Name, size and hash of each file, in the words of the two lists that the hub has."""
        found = []
        for name, data in self.repos[repo].items():
            entry = {"rfilename": name, "path": name, "type": "file", "size": len(data), "oid": _git_id(data)}
            entry["blobId"] = entry["oid"]
            if len(data) >= LFS_BYTES:
                digest = "0" * 64 if self.wrong_hash else hashlib.sha256(data).hexdigest()
                entry["lfs"] = {"sha256": digest, "oid": digest, "size": len(data), "pointerSize": 130}
            found.append(entry)
        return found


def _git_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        fake = self.server.fake
        path = self.path.partition("?")[0]
        fake.asked.append((self.command, path))
        fake.headers.append({key.lower(): value for key, value in self.headers.items()})
        found = re.match(r"(?:/api/models)?/([\w.-]+/[\w.-]+)(/.*)?$", path)
        repo, rest = (found[1], found[2] or "") if found else ("", "")
        here = fake.repos.get(repo, 404)
        if here == "gated":
            self._send(403, {"error": "restricted"}, {"X-Error-Code": "GatedRepo"})
        elif isinstance(here, int):
            code = {"X-Error-Code": "RepoNotFound"} if here == 404 else {}
            self._send(here, {"error": "the hub's own words"}, code)
        elif rest.startswith("/resolve/"):
            self._file(rest.split("/", 3)[3], here)
        elif rest.startswith("/tree/"):
            self._send(200, fake.files(repo))
        else:
            self._send(200, {"id": repo, "sha": COMMIT, "siblings": fake.files(repo), "tags": []})

    def _file(self, name: str, files: dict[str, bytes]) -> None:
        if name not in files:
            self._send(404, {}, {"X-Error-Code": "EntryNotFound"})
            return
        fake, data = self.server.fake, files[name]
        digest = hashlib.sha256(data).hexdigest() if len(data) >= LFS_BYTES else _git_id(data)
        start = int((self.headers.get("Range") or "bytes=0-")[6:].split("-")[0] or 0)
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{digest}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        whole = data[start:]
        if fake.cut_after is not None and len(data) >= LFS_BYTES:
            whole, fake.cut_after, self.close_connection = whole[: fake.cut_after], None, True
        self.wfile.write(whole)

    def _send(self, status: int, value: object, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for key, text in (headers or {}).items():
            self.send_header(key, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
