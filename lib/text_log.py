"""powermetrics' text as a stream: where its blocks begin and end, and what is damaged about it.

Bytes come in pieces, so that a log of any size needs little memory. Blocks of the usual shape are read together by
`lib.block_shape`, all others one at a time by `lib.text_block`; both give the same numbers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lib import text_block
from lib.block_shape import Heads, Lines, Shape
from lib.text_block import HEADER, Block

BLOCK_LIMIT = 4 << 20
"""More text than this without a header is no block (real ones have up to 20 kB)."""
_CARRY = 1 << 16
"""More text than this after the last header of the usual form is looked through for headers of other forms."""
_SHAPES_MAX = 24
_LEARN_MAX = 4
"""Blocks that are tried as shapes, per piece of the stream."""
_MARK = b" system activity ("
_MACHINE = re.compile(rb"^Machine model: *([^\n]*)$", re.M)
_BUILD = re.compile(rb"^OS version: *([^\n]*)$", re.M)
_END_OF_SECTION = {
    b"Processor usage": (
        b"Combined Power (CPU + GPU + ANE)",
        b"Package Power",
        b"Intel energy model derived package power (CPUs+GT+SA)",
    ),
    b"GPU usage": (b"GPU Power",),
    b"Thermal pressure": (b"Current pressure level",),
}
"""The line with which each section is complete; the Processor section has one of three, by age and maker."""


class Head(NamedTuple):
    """A header: where its line starts and ends in the buffer, and what it says."""

    start: int
    end: int
    summary: bool
    stamp: bytes
    elapsed_ms: float


class TextLog:
    """What a text log holds; filled by `feed`, closed by `finish`.

    columns: name to list of arrays, whose blocks follow one another. machine, build: as printed, or None.
    summary: elapsed and rails of the Summary block, or None. torn: row numbers of blocks with foreign lines.
    """

    def __init__(self, fast: bool = True):
        self.pieces: list[tuple[int, dict[str, np.ndarray]]] = []
        self.machine: str | None = None
        self.build: str | None = None
        self.summary: dict[str, float] | None = None
        self.odd: dict[str, list] = {}
        self.torn: set[int] = set()
        self._fast = fast
        self._shapes: list[Shape] = []
        self._rows = 0
        self._ends: set[tuple[bytes, int]] = set()
        self._buffer = b""
        self._offset = 0
        self._stopped = False
        self._skipping = False

    # --- input ---

    def feed(self, data: bytes) -> None:
        """Take the next piece of the stream."""
        if 0 in data:
            data = self._without_nul(data)
        self._buffer += data
        if self._fast:
            self._take_by_shape()
        if not self._fast or len(self._buffer) > _CARRY:
            heads = _heads(self._buffer, whole_lines=True)
            if heads:
                self._take(heads[:-1], heads[-1].start)
        if len(self._buffer) > BLOCK_LIMIT:
            self._skip()

    def finish(self) -> None:
        """The stream has ended: what is left is the last block."""
        heads = _heads(self._buffer, whole_lines=False)
        self._preamble(heads[0].start if heads else len(self._buffer))
        for k, head in enumerate(heads):
            stop = heads[k + 1].start if k + 1 < len(heads) else len(self._buffer)
            self._one(head, stop, last=k + 1 == len(heads))
        if self._skipping:
            self.note("no block", self._offset, f"more than {BLOCK_LIMIT >> 20} MB without a header")
        self._buffer = b""

    def note(self, kind: str, offset: int, text: str) -> None:
        """Remember an oddity: how often its kind occurred, and where and what the first one was."""
        entry = self.odd.setdefault(kind, [0, offset, text])
        entry[0] += 1

    def _without_nul(self, data: bytes) -> bytes:
        count = data.count(0)
        where = self._offset + len(self._buffer) + data.index(0)
        entry = self.odd.setdefault("NUL bytes", [0, where, ""])
        entry[0] += count
        return data.replace(b"\0", b"\n")

    def _skip(self) -> None:
        """Forget text that is too long to be a block, but for a tail that may hold the start of a header."""
        if not self._skipping and self._offset == 0:
            self._machine_header(self._buffer[:BLOCK_LIMIT])
        self._skipping = True
        cut = len(self._buffer) - 256
        self._drop(cut)

    def _drop(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._offset += count

    def _preamble(self, stop: int) -> None:
        if self._rows == 0 and not self._skipping:
            self._machine_header(self._buffer[:stop])

    def _machine_header(self, text: bytes) -> None:
        for m, name in ((_MACHINE.search(text), "machine"), (_BUILD.search(text), "build")):
            value = m[1].strip().decode("ascii", "replace")[:80] if m else None
            old = getattr(self, name)
            if value and old and value != old:
                self.note("another machine", self._offset, f"{name} {value}, before it {old}")
            setattr(self, name, old or value)

    # --- blocks ---

    def _take(self, heads: list[Head], stop: int) -> None:
        """Read the blocks from these headers to `stop`, one at a time."""
        self._begin(heads[0].start if heads else stop)
        self._each(heads, stop)
        self._drop(stop)

    def _begin(self, start: int) -> None:
        """The first header is at `start` of the buffer: look at what stands before it."""
        self._preamble(start)
        if self._skipping:
            self.note("no block", self._offset, f"more than {BLOCK_LIMIT >> 20} MB without a header")
            self._skipping = False

    def _each(self, heads: list[Head], stop: int) -> None:
        edges = [head.start for head in heads] + [stop]
        for head, end in zip(heads, edges[1:], strict=True):
            self._one(head, end, last=False)

    def _take_by_shape(self) -> None:
        """Read the blocks between headers of the usual form: those of known shape together, the others singly."""
        lines = Lines(self._buffer)
        heads = lines.heads()
        if len(heads.line) < 2:
            return
        starts = lines.starts[heads.line]
        self._begin_before(int(starts[0]))
        shape_of, columns_of = self._match(lines, heads)
        for a, b in _runs(shape_of):
            if shape_of[a] < 0:
                text_heads = _heads(self._buffer, True, int(starts[a]), int(starts[b]))
                self._each(text_heads, int(starts[b]))
            elif self._stopped:
                self.note("after Summary", self._offset + int(starts[a]), "")
                self.odd["after Summary"][0] += b - a - 1
            else:
                self._add_rows(b - a, _slice(columns_of, a, b))
        self._drop(int(starts[-1]))

    def _begin_before(self, start: int) -> None:
        """What stands before the first header of the usual form: headers of other forms, or none."""
        others = _heads(self._buffer, True, 0, start)
        self._begin(others[0].start if others else start)
        self._each(others, start)

    def _match(self, lines: Lines, heads: Heads) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """For each header but the last the number of the shape that its block has, or -1, and the blocks' columns."""
        total = len(heads.line) - 1
        counts = np.diff(heads.line)
        shape_of = np.full(total, -1)
        columns = {"stamp_s": heads.stamp_s[:-1], "elapsed_ms": heads.elapsed_ms[:-1]}
        tried, attempts = 0, 0
        while True:
            for number in range(tried, len(self._shapes)):
                self._match_one(number, lines, heads.line[:-1], counts, shape_of, columns)
            tried = len(self._shapes)
            left = np.flatnonzero(shape_of < 0)
            if not len(left):
                return shape_of, columns
            while tried == len(self._shapes):
                if attempts >= _LEARN_MAX or tried >= _SHAPES_MAX or attempts >= len(left):
                    return shape_of, columns
                self._learn(lines, heads.line, int(left[attempts]))
                attempts += 1

    def _match_one(self, number, lines, line, counts, shape_of, columns) -> None:
        shape = self._shapes[number]
        asked = np.flatnonzero((shape_of < 0) & (counts == shape.count))
        if not len(asked):
            return
        fits, found = shape.read(lines, line[asked])
        rows = asked[fits]
        shape_of[rows] = number
        for name, values in found.items():
            if name not in columns:
                columns[name] = np.full(len(shape_of), None if values.dtype == object else np.nan)
            columns[name][rows] = values

    def _learn(self, lines: Lines, line: np.ndarray, k: int) -> None:
        """Make a shape of block k, if it is of the strict grammar and all its numbers are numbers."""
        text = self._buffer[int(lines.ends[line[k]]) : int(lines.starts[line[k + 1]])]
        block = text_block.parse(text) if len(text) <= BLOCK_LIMIT else None
        if block and block.plain and not any(value != value for value in block.values.values()):
            self._shapes.append(Shape(block))
            self._ends.add(text_block.last_key(block))
            if b"Machine model: " in text:
                self._machine_header(text)

    def _one(self, head: Head, stop: int, last: bool) -> None:
        text = self._buffer[head.end : stop]
        if self._stopped:
            self.note("after Summary", self._offset + head.start, "")
            return
        if head.start and self._buffer[head.start - 1] != 10:
            self.note("torn header", self._offset + head.start, "")
        if b"Machine model: " in text:
            self._machine_header(text)
        if len(text) > BLOCK_LIMIT:
            self.note("no block", self._offset + head.start, f"more than {BLOCK_LIMIT >> 20} MB without a header")
            return
        block = text_block.parse(text)
        if last and not head.summary and not self._is_complete(block, text):
            self.note("cut block", self._offset + head.start, "")
            return
        self._keep(head, block, last)

    def _keep(self, head: Head, block: Block, last: bool) -> None:
        at = self._offset + head.end
        for odd in block.odd:
            self.note(self._odd_kind(odd.kind, last), at + odd.offset, odd.text.decode("ascii", "replace"))
        if head.summary:
            self.summary = {"elapsed_ms": head.elapsed_ms, **block.values}
            self._stopped = b"Machine model" not in block.keys
            return
        if block.odd:
            self.torn.add(self._rows)
        else:
            self._ends.add(text_block.last_key(block))
        self._add_rows(1, _row(head, block))

    def _odd_kind(self, kind: str, last: bool) -> str:
        return "stale tail" if last and kind != "torn line" else kind

    def _add_rows(self, count: int, columns: dict[str, np.ndarray]) -> None:
        self.pieces.append((count, columns))
        self._rows += count

    def _is_complete(self, block: Block, text: bytes) -> bool:
        """Whether nothing is missing at the end: sections are closed, and the last line of an earlier block is there.

        The first block of a log has no earlier one to be compared with: it counts when its sections are closed.
        """
        keys = Counter(block.keys)
        closed = all(any(keys[k] for k in _END_OF_SECTION[s]) for s in block.sections if s in _END_OF_SECTION)
        if b"GPU usage" in block.sections and b"Processor usage" in block.sections:
            closed = closed and "gpu_section_mW" in block.values
        if not closed or not block.sections:
            return False
        if any(odd.kind == "torn line" for odd in block.odd):
            return False
        if self._ends:
            return any(keys[key] >= count for key, count in self._ends)
        return bool(text.endswith(b"\n") or (not block.odd and block.keys))


def _row(head: Head, block: Block) -> dict[str, np.ndarray]:
    row = {name: np.array([value]) for name, value in block.values.items()}
    row["stamp_s"] = np.array([text_block.stamp_s(head.stamp)])
    row["elapsed_ms"] = np.array([head.elapsed_ms])
    if block.thermal:
        row["thermal_pressure"] = np.array([block.thermal], dtype=object)
    if block.cluster_from_cores:
        row["cluster_from_cores"] = np.array([block.cluster_from_cores], dtype=object)
    return row


def _runs(shape_of: np.ndarray) -> list[tuple[int, int]]:
    """Stretches (first, one past the last) of blocks that all have a shape, or all have none."""
    edges = np.flatnonzero(np.diff(shape_of >= 0)) + 1
    return list(pairwise([0, *edges.tolist(), len(shape_of)]))


def _slice(columns: dict[str, np.ndarray], a: int, b: int) -> dict[str, np.ndarray]:
    return {name: values[a:b] for name, values in columns.items()}


def _heads(buffer: bytes, whole_lines: bool, start: int = 0, stop: int | None = None) -> list[Head]:
    """All headers in a part of the buffer: a line, or the end of a torn line, that is a header to its last byte."""
    heads = []
    at = buffer.find(_MARK, start, stop)
    while at >= 0:
        if m := at >= 11 and HEADER.match(buffer, at - 11):
            end = m.end() + (buffer[m.end() : m.end() + 1] == b"\r")
            if buffer[end : end + 1] == b"\n" or (end == len(buffer) and not whole_lines):
                elapsed = float(m["elapsed"]) if m["elapsed"] else float("nan")
                heads.append(Head(m.start(), end, m["kind"] == b"Summary", m["stamp"], elapsed))
        at = buffer.find(_MARK, at + 1, stop)
    return heads


def read_text(pieces: Iterable[bytes], fast: bool = True) -> TextLog:
    """The TextLog of a stream given in pieces of any size."""
    log = TextLog(fast)
    for piece in pieces:
        log.feed(piece)
    log.finish()
    return log
