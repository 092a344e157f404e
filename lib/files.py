"""Files on disk: atomic writes, hashes, free space; and the error that every module's own error derives from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any


class TinymoeError(Exception):
    """An error that a person can act on: one line that says what, where and what to do."""


def write_atomic(path: Path, text: str) -> None:
    """Write `text` so that a reader sees the old file or the whole new one, never a part.

    The data reaches the disk before the rename, so a power cut cannot leave an empty file under the final name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("w", encoding="utf-8") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, indented, without NaN or Infinity (ValueError if there is one)."""
    write_atomic(path, json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """The value in a JSON file. TinymoeError with the place if the file is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as e:
        raise TinymoeError(f"{path}: not JSON ({e}); restore the file or remove its cell's folder") from e


def read_optional(path: Path) -> Any:
    """The value in a JSON file; an empty dictionary if there is no such file. TinymoeError if it is damaged."""
    return read_json(path) if path.exists() else {}


def read_object(path: Path) -> dict:
    """The object in a JSON file; empty if the file is not there, is damaged or holds something else.

    For facts that a table can do without: what reads them says that they are missing.
    """
    try:
        found = read_optional(path)
    except TinymoeError:
        return {}
    return found if isinstance(found, dict) else {}


def digest(value: Any) -> str:
    """Sixteen hex digits that stand for a JSON-like value, the same whatever the order of its keys."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def sha256(path: Path) -> str:
    """SHA-256 of a file, read in pieces so that a model of many GB needs no memory."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def free_MB(path: Path) -> float:
    """Free space in MB (10^6 bytes) on the file system that holds `path` or its nearest existing parent."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free / 1e6
