"""powermetrics' property lists: one document a sample, NUL bytes between them."""

from __future__ import annotations

import plistlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any
from xml.parsers.expat import ExpatError

import numpy as np

from lib.log_content import LogContent
from lib.text_block import from_cores

DOCUMENT_LIMIT = 4 << 20
"""A longer document is damage (real ones have up to 70 kB)."""
_END = b"</plist>"
_BROKEN = (ExpatError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)


class PlistLog(LogContent):
    """What a stream of property lists holds."""

    def add(self, document: bytes, offset: int) -> None:
        """Take one document, from its declaration to `</plist>`; one that cannot be read is noted and left out."""
        try:
            sample = plistlib.loads(document, fmt=plistlib.FMT_XML)
            row = _row(sample)
        except _BROKEN as error:
            self.note("broken document", offset, str(error)[:80])
            return
        self.machine = self.machine or _text(sample.get("hw_model"))
        self.build = self.build or _text(sample.get("kern_osversion"))
        self.pieces.append((1, row))


def read_plist(readinto: Callable[[memoryview], int]) -> PlistLog:
    """The PlistLog of a stream. readinto: fills a buffer and says how much, nothing at the end of the stream."""
    log = PlistLog()
    for document, offset, whole in _documents(_pieces(readinto)):
        if not whole and len(document) > DOCUMENT_LIMIT:
            log.note("broken document", offset, f"no end within {DOCUMENT_LIMIT >> 20} MB")
        elif not whole:
            log.note("cut block", offset, "")
        else:
            log.add(document, offset)
    return log


def _pieces(readinto: Callable[[memoryview], int]) -> Iterator[bytes]:
    space = bytearray(1 << 20)
    while count := readinto(memoryview(space)):
        yield bytes(space[:count])


def _documents(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, int, bool]]:
    """Each document, its offset in the stream, and whether its end is there; one that is too long has none."""
    buffer, offset, scanned = b"", 0, 0
    for piece in pieces:
        buffer += piece
        while (end := buffer.find(_END, scanned)) >= 0:
            document = buffer[: end + len(_END)]
            yield document.lstrip(b"\0 \t\r\n"), offset, True
            buffer, offset, scanned = buffer[len(document) :], offset + len(document), 0
        scanned = max(0, len(buffer) - len(_END))
        if len(buffer) > DOCUMENT_LIMIT:
            yield buffer, offset, False
            offset, buffer, scanned = offset + scanned, buffer[scanned:], 0
    if buffer.strip(b"\0 \t\r\n"):
        yield b"", offset, False


def _row(sample: dict[str, Any]) -> dict[str, np.ndarray]:
    """One row of arrays of length 1. Frequencies are Hz in clusters and MHz in the GPU; energies are mJ."""
    elapsed_s = _number(sample["elapsed_ns"]) / 1e9
    stamp = sample["timestamp"]
    if not isinstance(stamp, datetime):
        raise ValueError("timestamp is not a date")
    row = {"stamp_s": stamp.replace(tzinfo=UTC).timestamp(), "elapsed_ms": elapsed_s * 1e3}
    row |= _processor(sample.get("processor") or {}, elapsed_s)
    row |= _gpu(sample.get("gpu") or {}, elapsed_s)
    columns = {name: np.array([value], dtype=np.float64) for name, value in row.items() if name != _FROM}
    if row.get(_FROM):
        columns[_FROM] = np.array([row[_FROM]], dtype=object)
    if level := _text(sample.get("thermal_pressure")):
        columns["thermal_pressure"] = np.array([level], dtype=object)
    return columns


_FROM = "cluster_from_cores"


def _processor(processor: dict[str, Any], elapsed_s: float) -> dict[str, Any]:
    row: dict[str, Any] = {"combined_mW": _number(processor.get("combined_power"))}
    for rail in ("cpu", "gpu", "ane", "dram", "package"):
        power = _number(processor.get(f"{rail}_power"))
        row[f"{rail}_mW"] = power if power == power else _number(processor.get(f"{rail}_energy")) / elapsed_s
    names = []
    for cluster in processor.get("clusters") or []:
        name = str(cluster["name"]).removesuffix("-Cluster")
        freq, active, replaced = _cluster(cluster)
        row |= {f"{name}_freq_MHz": freq, f"{name}_active_pct": active}
        names += [name] * replaced
    row[_FROM] = ",".join(names)
    return row


def _cluster(cluster: dict[str, Any]) -> tuple[float, float, bool]:
    """Frequency (MHz), active residency (%), and whether they are those of the cores because the cluster's are 0."""
    freq, active = _number(cluster.get("freq_hz")) / 1e6, _active_pct(cluster)
    cores = cluster.get("cpus") or []
    core_active = [_active_pct(core) for core in cores]
    if freq == 0 and active == 0 and any(a > 0 for a in core_active):
        return *from_cores([_number(core.get("freq_hz")) / 1e6 for core in cores], core_active), True
    return freq, active, False


def _active_pct(part: dict[str, Any]) -> float:
    down = _number(part.get("down_ratio"))
    return round(100.0 * (1.0 - _number(part.get("idle_ratio")) - (down if down == down else 0.0)), 6) + 0.0


def _gpu(gpu: dict[str, Any], elapsed_s: float) -> dict[str, float]:
    idle = _number(gpu.get("idle_ratio"))
    return {
        "gpu_freq_MHz": _number(gpu.get("freq_hz")),
        "gpu_idle_pct": 100.0 * idle,
        "gpu_active_pct": 100.0 * (1.0 - idle),
        "gpu_section_mW": _number(gpu.get("gpu_energy")) / elapsed_s,
    }


def _number(value: Any) -> float:
    """The value if it is a number, else NaN."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else float("nan")


def _text(value: Any) -> str | None:
    return value[:80] if isinstance(value, str) and value else None
