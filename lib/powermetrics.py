"""A power log of macOS as rows: one per sample, with what was odd about the file.

Text, gzip and property lists are told apart by their first bytes. What a file does not hold is NaN; what is damaged
is left out and said in the notes, never guessed.
"""

from __future__ import annotations

import zlib
from collections import Counter
from io import RawIOBase
from pathlib import Path

import numpy as np
import pandas as pd

from lib.files import TinymoeError
from lib.plist_log import PlistLog, read_plist
from lib.text_log import TextLog, read_text

COLUMNS = [
    "stamp_s", "elapsed_ms", "combined_mW", "cpu_mW", "gpu_mW", "ane_mW", "dram_mW", "package_mW",
    "gpu_freq_MHz", "gpu_active_pct", "gpu_idle_pct", "gpu_section_mW", "thermal_pressure", "cluster_from_cores",
]  # fmt: skip
TEXTS = ("thermal_pressure", "cluster_from_cores")
RAILS = ("combined_mW", "cpu_mW", "gpu_mW", "ane_mW", "dram_mW", "package_mW")
GAP_S = 1.5
_PIECE = 1 << 20
_GZIP = b"\x1f\x8b"


class PowerLogError(TinymoeError):
    """A power log that cannot be read at all."""


def read(path: Path | str, fast: bool = True) -> pd.DataFrame:
    """One row per `Sampled` block of a powermetrics log, in file order.

    Columns: stamp_s (epoch seconds of the header, its own UTC offset applied), elapsed_ms, combined_mW, cpu_mW,
    gpu_mW (the rail of the Processor section, part of combined), ane_mW, dram_mW, package_mW, gpu_freq_MHz,
    gpu_active_pct, gpu_idle_pct, gpu_section_mW (the GPU section's own figure, never added to anything),
    thermal_pressure (text or None), and for each cluster, named as printed, `<name>_freq_MHz` and `<name>_active_pct`.
    NaN where a block does not say. A cluster that reads 0 MHz and 0 % while its own cores were busy takes the mean of
    their active residencies and the mean of their frequencies weighted by it; `cluster_from_cores` names such clusters
    (comma between them, None elsewhere).

    attrs: machine and os_build (None if absent), notes (list of sentences about damage and oddities; empty for a
    clean log). `fast=False` reads block by block; the result is the same.
    Raises PowerLogError if the file cannot be opened.
    """
    path = Path(path)
    log = _read_log(path, fast)
    columns, stale = _without_stale_blocks(_columns(log), log.torn)
    notes = [_sentence(kind, *entry) for kind, entry in log.odd.items()] + stale
    notes += _gpu_only(columns) + _checks(columns, log)
    texts = {name: pd.Series(columns[name], dtype=object) for name in TEXTS}
    frame = pd.DataFrame({**columns, **texts})
    frame.attrs = {"machine": log.machine, "os_build": log.build, "notes": notes}
    return frame


# --- bytes ---


def _read_log(path: Path, fast: bool) -> TextLog | PlistLog:
    try:
        with path.open("rb", buffering=0) as file:
            source = _Source(file)
            log = read_plist(source.readinto) if source.is_plist() else read_text(source.readinto, fast)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PowerLogError(f"{path}: byte 0: expected a powermetrics log: {reason}; check the path") from error
    if source.leading:
        entry = log.odd.setdefault("NUL bytes", [0, 0, ""])
        entry[0], entry[1] = entry[0] + source.leading, 0
    if source.problem:
        log.note(source.problem, source.count, "")
    return log


class _Source:
    """The bytes of a log, unpacked if they are gzip, without the NUL bytes in front.

    leading: how many those were. problem: "cut gzip", "broken gzip" or None. count: bytes given so far.
    """

    def __init__(self, file: RawIOBase):
        self._file = file
        self._unpack = None
        self._packed, self._inside = b"", False
        self.leading, self.count, self.problem = 0, 0, None
        self._first = file.read(_PIECE)
        if self._first.startswith(_GZIP):
            self._packed, self._first = self._first, b""
            self._unpack = zlib.decompressobj(wbits=31)
            self._first = self._next(_PIECE)
        self._skip_nul()

    def is_plist(self) -> bool:
        """Whether it is property lists, by the first bytes; a list whose start is lost counts too."""
        start = self._first.lstrip(b" \t\r\n\xef\xbb\xbf")[:64]
        return start.startswith((b"<?xml", b"<!DOCTYPE plist", b"<plist")) or (
            b"</plist>" in self._first and b"*** Sampled system activity" not in self._first
        )

    def readinto(self, view: memoryview) -> int:
        """Fill the view as far as possible; the number of bytes, 0 at the end."""
        if self._first or self._unpack:
            data = self._first or self._next(len(view))
            count = min(len(view), len(data))
            view[:count], self._first = data[:count], data[count:]
        else:
            count = self._file.readinto(view) or 0
        self.count += count
        return count

    def _skip_nul(self) -> None:
        while self._first and not self._first.strip(b"\0"):
            self.leading += len(self._first)
            self._first = self._next(_PIECE) if self._unpack else self._file.read(_PIECE)
        rest = self._first.lstrip(b"\0")
        self.leading += len(self._first) - len(rest)
        self._first = rest

    def _next(self, most: int) -> bytes:
        """Up to `most` unpacked bytes, whatever the ratio; members of the stream follow one another."""
        while not self.problem:
            self._packed = self._packed or self._file.read(_PIECE)
            if not self._packed:
                self.problem = "cut gzip" if self._inside else None
                return b""
            try:
                data = self._unpack.decompress(self._packed, most)
            except zlib.error:
                self.problem = "broken gzip"
                return b""
            self._inside, self._packed = not self._unpack.eof, self._unpack.unconsumed_tail
            if self._unpack.eof:
                self._packed = self._unpack.unused_data.lstrip(b"\0")
                self._unpack = zlib.decompressobj(wbits=31)
            if data:
                return data
        return b""


# --- rows ---


Columns = dict[str, np.ndarray]


def _columns(log: TextLog | PlistLog) -> Columns:
    """All rows: the fixed columns, then those of the clusters in the order in which they first appear."""
    clusters = dict.fromkeys(name for _, columns in log.pieces for name in columns if name not in COLUMNS)
    total = sum(count for count, _ in log.pieces)
    data: Columns = {}
    for name in [*COLUMNS, *clusters]:
        data[name] = np.full(total, None, dtype=object) if name in TEXTS else np.full(total, np.nan)
    at = 0
    for count, columns in log.pieces:
        for name, values in columns.items():
            data[name][at : at + count] = values
        at += count
    return data


def _without_stale_blocks(columns: Columns, torn: set[int]) -> tuple[Columns, list[str]]:
    """Leave out whole blocks of an older run: they follow foreign text and are dated before the block in front."""
    stamps = columns["stamp_s"]
    start = next((int(i) + 1 for i in np.flatnonzero(np.diff(stamps) < -2.0) if int(i) in torn), None)
    if start is None:
        return columns, []
    count = len(stamps) - start
    text = f"stale tail: {count} blocks after torn text, dated before block {start}; left out"
    return {name: values[:start] for name, values in columns.items()}, [text]


def _gpu_only(columns: Columns) -> list[str]:
    """Without any rail, the GPU section's power stands for the GPU rail, in place, and a note says so."""
    if any(np.isfinite(columns[rail]).any() for rail in RAILS) or np.isnan(columns["gpu_section_mW"]).all():
        return []
    columns["gpu_mW"] = columns["gpu_section_mW"].copy()
    return ["no Processor section: gpu_mW is the GPU section's own figure"]


# --- notes ---

_SENTENCES = {
    "cut block": "cut block: {n} at the end without all of its lines, left out (byte {at})",
    "unfinished block": "unfinished blocks: {n} before the end lack lines, what they have is kept (first at byte {at})",
    "stale tail": "stale tail: {n} lines after the last block, not read (first at byte {at}: {text!r})",
    "unknown line": "unknown lines: {n} inside blocks, not read (first at byte {at}: {text!r})",
    "torn line": "torn lines: {n} with a damaged value, not read (first at byte {at}: {text!r})",
    "repeated line": "repeated lines: {n} inside blocks, the first of each kept (first at byte {at}: {text!r})",
    "NUL bytes": "NUL bytes: {n} (first at byte {at}): another program cut the file while it was written",
    "no block": "no block: {n} stretches with {text} (first at byte {at}), left out",
    "after Summary": "summary: {n} blocks after it belong to an older run, left out (first at byte {at})",
    "torn header": "torn text: {n} headers in the middle of a line (first at byte {at})",
    "another machine": "second machine header: {text} (byte {at})",
    "broken gzip": "gzip: damaged after {at} unpacked bytes, the rest is lost",
    "cut gzip": "gzip: cut after {at} unpacked bytes",
    "broken document": "broken document: {n} property lists that cannot be read, left out (byte {at}: {text})",
}


def _sentence(kind: str, count: int, offset: int, text: str) -> str:
    return _SENTENCES[kind].format(n=count, at=offset, text=text)


def _checks(columns: Columns, log: TextLog | PlistLog) -> list[str]:
    """What the numbers themselves say about the file."""
    if not len(columns["stamp_s"]):
        return ["no samples: no whole block found"]
    checks = (_sum_note, _time_notes, _cores_note, _counter_notes)
    notes = [note for check in checks for note in check(columns)]
    return notes + (_summary_note(columns, log.summary) if log.summary else [])


def _sum_note(columns: Columns) -> list[str]:
    off = np.abs(columns["combined_mW"] - columns["cpu_mW"] - columns["gpu_mW"] - columns["ane_mW"])
    bad = np.flatnonzero(off > 1.001)
    if not bad.size:
        return []
    worst = f"first in block {bad[0] + 1}: {off[bad[0]]:.0f} mW"
    return [f"rails: Combined is not CPU + GPU + ANE within 1 mW in {bad.size} blocks ({worst})"]


def _time_notes(columns: Columns) -> list[str]:
    stamps, elapsed = columns["stamp_s"], columns["elapsed_ms"] / 1e3
    notes = []
    steps = np.diff(stamps)
    for i in np.flatnonzero(steps - elapsed[1:] > GAP_S)[:20]:
        notes.append(f"gap: block {i + 2} is {steps[i]:.0f} s after the one before but covers {elapsed[i + 1]:.3f} s")
    for i in np.flatnonzero(steps < 0)[:20]:
        notes.append(f"time goes back: block {i + 2} is {-steps[i]:.0f} s before the one in front")
    usual = np.nanmedian(elapsed) if np.isfinite(elapsed).any() else np.nan
    for i in np.flatnonzero(elapsed > max(10 * usual, usual + 2 * GAP_S))[:20]:
        notes.append(f"gap: block {i + 1} covers {elapsed[i]:.3f} s where others cover {usual:.3f} s")
    if count := int(np.isnan(elapsed).sum()):
        notes.append(f"elapsed: missing in {count} headers")
    if count := int(np.isnan(stamps).sum()):
        notes.append(f"date: not a moment in {count} headers")
    covered, span = np.nansum(elapsed[1:]), np.ptp(stamps[np.isfinite(stamps)]) if np.isfinite(stamps).any() else 0.0
    if covered > 1.02 * span + GAP_S:
        notes.append(f"second writer: blocks cover {covered:.1f} s of {span:.0f} s")
    return notes


def _cores_note(columns: Columns) -> list[str]:
    counts: Counter[str] = Counter()
    for names, count in Counter(columns["cluster_from_cores"].tolist()).items():
        counts.update({name: count for name in names.split(",")} if names else {})
    if not counts:
        return []
    each = ", ".join(f"{name} in {count} blocks" for name, count in counts.items())
    return [f"clusters: read 0 while their cores were busy, taken from the cores: {each}"]


def _counter_notes(columns: Columns) -> list[str]:
    """Counters that stand still, or that are published in batches."""
    notes = []
    cpu = columns["cpu_mW"]
    if len(cpu) < 10 or not (cpu == 0).any():
        return []
    busy = [values for name, values in columns.items() if name.endswith("_active_pct") and name != "gpu_active_pct"]
    if (cpu == 0).all() and busy and np.median(np.max(np.nan_to_num(busy), axis=0)) > 20:
        notes.append("rails: CPU Power is 0 in every block while cores are busy: not measured")
    for rail in ("combined_mW", "cpu_mW"):
        values = columns[rail]
        spikes = np.flatnonzero(values > 4 * np.nanmean(values)) if np.isfinite(values).any() else []
        if any(i >= 10 and (values[i - 10 : i] == 0).all() for i in spikes):
            notes.append(f"rails: {rail} is 0 for ten blocks or more, then a spike: counters published in batches")
    return notes


def _summary_note(columns: Columns, summary: dict[str, float]) -> list[str]:
    """Compare the Summary's rails with the stream's means weighted by elapsed."""
    weights = columns["elapsed_ms"]
    parts, agrees = [], True
    for rail in RAILS:
        known = np.isfinite(columns[rail]) & np.isfinite(weights)
        if rail not in summary or not weights[known].sum() > 0:
            continue
        mean = float(np.average(columns[rail][known], weights=weights[known]))
        agrees &= abs(mean - summary[rail]) <= max(5.0, 0.05 * abs(mean))
        parts.append(f"{rail} {summary[rail]:.0f}, blocks {mean:.0f}")
    if not parts:
        return ["summary: not counted; nothing to compare it with"]
    return [f"summary: not counted; {'agrees' if agrees else 'disagrees'} with the blocks ({'; '.join(parts)})"]
