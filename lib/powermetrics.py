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
    frame = _frame(log)
    frame, stale = _without_stale_blocks(frame, log.torn)
    notes = [_sentence(kind, *entry) for kind, entry in log.odd.items()] + stale
    notes += _gpu_only(frame) + _checks(frame, log)
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


def _frame(log: TextLog | PlistLog) -> pd.DataFrame:
    """All rows: the fixed columns, then those of the clusters in the order in which they first appear."""
    clusters = dict.fromkeys(name for _, columns in log.pieces for name in columns if name not in COLUMNS)
    names = [name for name in clusters if name.endswith(("_freq_MHz", "_active_pct"))]
    total = sum(count for count, _ in log.pieces)
    data: dict[str, np.ndarray] = {}
    for name in [*COLUMNS, *names]:
        data[name] = np.full(total, None, dtype=object) if name in TEXTS else np.full(total, np.nan)
    at = 0
    for count, columns in log.pieces:
        for name, values in columns.items():
            if name in data:
                data[name][at : at + count] = values
        at += count
    return pd.DataFrame({name: pd.Series(v, dtype=v.dtype) for name, v in data.items()})


def _without_stale_blocks(frame: pd.DataFrame, torn: set[int]) -> tuple[pd.DataFrame, list[str]]:
    """Leave out whole blocks of an older run: they follow foreign text and are dated before the block in front."""
    back = np.flatnonzero(np.diff(frame["stamp_s"].to_numpy()) < -2.0)
    start = next((int(i) + 1 for i in back if int(i) in torn), None)
    if start is None:
        return frame, []
    count = len(frame) - start
    text = f"stale tail: {count} blocks after torn text, dated before block {start}; left out"
    return frame.iloc[:start].reset_index(drop=True), [text]


def _gpu_only(frame: pd.DataFrame) -> list[str]:
    """Without any rail, the GPU section's power stands for the GPU rail, in place, and a note says so."""
    if frame[list(RAILS)].notna().any(axis=None) or not frame["gpu_section_mW"].notna().any():
        return []
    frame["gpu_mW"] = frame["gpu_section_mW"]
    return ["no Processor section: gpu_mW is the GPU section's own figure"]


# --- notes ---

_SENTENCES = {
    "cut block": "cut block: {n} at the end without all of its lines, left out (byte {at})",
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


def _checks(frame: pd.DataFrame, log: TextLog | PlistLog) -> list[str]:
    """What the numbers themselves say about the file."""
    if frame.empty:
        return ["no samples: no whole block found"]
    checks = (_sum_note, _time_notes, _cores_note, _counter_notes)
    notes = [note for check in checks for note in check(frame)]
    return notes + (_summary_note(frame, log.summary) if log.summary else [])


def _sum_note(frame: pd.DataFrame) -> list[str]:
    off = (frame["combined_mW"] - frame["cpu_mW"] - frame["gpu_mW"] - frame["ane_mW"]).abs()
    bad = np.flatnonzero(off > 1.001)
    if not bad.size:
        return []
    worst = f"first in block {bad[0] + 1}: {off.iloc[bad[0]]:.0f} mW"
    return [f"rails: Combined is not CPU + GPU + ANE within 1 mW in {bad.size} blocks ({worst})"]


def _time_notes(frame: pd.DataFrame) -> list[str]:
    stamps, elapsed = frame["stamp_s"].to_numpy(), frame["elapsed_ms"].to_numpy() / 1e3
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
    covered, span = np.nansum(elapsed[1:]), np.nanmax(stamps) - np.nanmin(stamps) if len(stamps) > 1 else 0.0
    if covered > 1.02 * span + GAP_S:
        notes.append(f"second writer: blocks cover {covered:.1f} s of {span:.0f} s")
    return notes


def _cores_note(frame: pd.DataFrame) -> list[str]:
    counts: Counter[str] = Counter()
    for names, count in Counter(frame["cluster_from_cores"].to_numpy()).items():
        counts.update({name: count for name in names.split(",")} if names else {})
    if not counts:
        return []
    each = ", ".join(f"{name} in {count} blocks" for name, count in counts.items())
    return [f"clusters: read 0 while their cores were busy, taken from the cores: {each}"]


def _counter_notes(frame: pd.DataFrame) -> list[str]:
    notes = []
    busy = frame[[c for c in frame.columns if c.endswith("_active_pct") and c != "gpu_active_pct"]].max(axis=1)
    cpu = frame["cpu_mW"].dropna()
    if len(cpu) >= 10 and (cpu == 0).all() and busy.median() > 20:
        notes.append("rails: CPU Power is 0 in every block while cores are busy: not measured")
    for rail in ("combined_mW", "cpu_mW"):
        values = frame[rail].to_numpy()
        zero = values == 0
        spike = np.flatnonzero(values > 4 * np.nanmean(values)) if np.isfinite(values).any() else np.array([])
        if len(values) >= 10 and any(i >= 10 and zero[i - 10 : i].all() for i in spike.astype(int)):
            notes.append(f"rails: {rail} is 0 for ten blocks or more, then a spike: counters published in batches")
    return notes


def _summary_note(frame: pd.DataFrame, summary: dict[str, float]) -> list[str]:
    """Compare the Summary's rails with the stream's means weighted by elapsed."""
    weights = frame["elapsed_ms"]
    parts, agrees = [], True
    for rail in RAILS:
        known = frame[rail].notna() & weights.notna()
        if rail not in summary or not (weights[known].sum() > 0):
            continue
        mean = float((frame[rail] * weights)[known].sum() / weights[known].sum())
        agrees &= abs(mean - summary[rail]) <= max(5.0, 0.05 * abs(mean))
        parts.append(f"{rail} {summary[rail]:.0f}, blocks {mean:.0f}")
    if not parts:
        return ["summary: not counted; nothing to compare it with"]
    return [f"summary: not counted; {'agrees' if agrees else 'disagrees'} with the blocks ({'; '.join(parts)})"]
