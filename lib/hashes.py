"""SHA-256 of model files: computed once, recorded with size and time of change, compared ever after."""

from __future__ import annotations

from pathlib import Path

from lib import files
from lib.files import TinymoeError, read_optional, write_json
from lib.paths import CACHE, relative

RECORD = CACHE / "models.json"
# Smaller files are hashed each time: that takes less than a record is worth.
HEAVY_BYTES = 10_000_000


class HashError(TinymoeError):
    """A file that is not the one it was."""


def sha256(path: Path, expected: str | None = None, record: Path | None = None) -> str:
    """SHA-256 of a file; of a heavy one from `record` (.cache/models.json) while its size and time are the recorded.

    expected: what the hub says it is. HashError if the file has another hash than that, or than was recorded.
    """
    record = record or RECORD
    facts = path.stat()
    if facts.st_size < HEAVY_BYTES:
        return _compared(path, files.sha256(path), expected)
    key, known = str(path.resolve()), read_optional(record)
    now = {"size": facts.st_size, "mtime_ns": facts.st_mtime_ns}
    before = known.get(key, {})
    if before.items() >= now.items():
        return _compared(path, before["sha256"], expected)
    found = _compared(path, files.sha256(path), before.get("sha256"), "when it was recorded in .cache/models.json")
    found = _compared(path, found, expected)
    write_json(record, read_optional(record) | {key: now | {"sha256": found}})
    return found


def _compared(path: Path, found: str, expected: str | None, where: str = "on the hub") -> str:
    """`found`, or HashError if it is not `expected`."""
    if expected and found != expected:
        raise HashError(
            f"{relative(path)}: SHA-256 is {found[:12]}..., {where} it is {expected[:12]}...; "
            "remove the file and fetch it again with 'make models'"
        )
    return found
