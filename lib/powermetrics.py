"""A power log of macOS as rows: one per sample, with what was odd about the file.

Text, gzip and property lists are told apart by their first bytes. What a file does not hold is NaN; what is damaged
is left out and said in the notes, never guessed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import chain
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
    problems: list[tuple[str, int]] = []
    try:
        pieces = _pieces(path, problems)
        leading, first = _skip_nul(pieces)
        rest = chain([first], pieces)
        log = read_plist(rest) if _is_plist(first) else read_text(rest, fast)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PowerLogError(f"{path}: byte 0: expected a powermetrics log: {reason}; check the path") from error
    for kind, offset in problems:
        log.note(kind, offset, "")
    if leading:
        entry = log.odd.setdefault("NUL bytes", [0, 0, ""])
        entry[0], entry[1] = entry[0] + leading, 0
    return log


def _pieces(path: Path, problems: list[tuple[str, int]]) -> Iterator[bytes]:
    """The bytes of a file in pieces, unpacked if they are gzip; damage of the packing goes to `problems`."""
    with path.open("rb", buffering=0) as file:
        first = file.read(_PIECE)
        raw = chain([first], iter(lambda: file.read(_PIECE), b""))
        yield from _unpacked(raw, problems) if first.startswith(_GZIP) else raw


def _unpacked(raw: Iterator[bytes], problems: list[tuple[str, int]]) -> Iterator[bytes]:
    """Members of a gzip stream one after another, at most `_PIECE` bytes at a time whatever the ratio."""
    unpack, inside, count = zlib.decompressobj(wbits=31), False, 0
    for data in raw:
        while data:
            try:
                piece = unpack.decompress(data, _PIECE)
            except zlib.error:
                problems.append(("broken gzip", count))
                return
            inside, count = not unpack.eof, count + len(piece)
            yield piece
            data = unpack.unconsumed_tail
            if unpack.eof:
                data = unpack.unused_data.lstrip(b"\0")
                unpack = zlib.decompressobj(wbits=31)
    if inside:
        tail = unpack.flush()
        problems.append(("cut gzip", count + len(tail)))
        yield tail


def _skip_nul(pieces: Iterator[bytes]) -> tuple[int, bytes]:
    """How many NUL bytes the stream starts with, and the rest of the piece in which they end."""
    leading = 0
    for piece in pieces:
        rest = piece.lstrip(b"\0")
        leading += len(piece) - len(rest)
        if rest:
            return leading, rest
    return leading, b""


def _is_plist(first: bytes) -> bool:
    start = first.lstrip(b" \t\r\n\xef\xbb\xbf")[:64]
    return start.startswith((b"<?xml", b"<!DOCTYPE plist", b"<plist")) or (
        b"</plist>" in first and b"*** Sampled system activity" not in first
    )


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
    named = frame["cluster_from_cores"].dropna()
    if named.empty:
        return []
    counts = named.str.split(",").explode().value_counts(sort=False)
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
