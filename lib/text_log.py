"""powermetrics' text as a stream: where its blocks begin and end, and what is damaged about it.

Bytes come in pieces, so that a log of any size needs little memory. Blocks of the usual shape are read together by
`lib.block_shape`, all others one at a time by `lib.text_block`; both give the same numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from lib import text_block
from lib.block_shape import Heads, Shape, find_heads
from lib.log_content import LogContent
from lib.text_block import Block
from lib.text_buffer import BEFORE, TextBuffer
from lib.text_grammar import HEADER, stamp_s

PIECE = 4 << 20
"""Bytes of the stream that are worked on at once."""
BLOCK_LIMIT = 4 << 20
"""More text than this without a header is no block (real ones have up to 20 kB)."""
_CARRY = 1 << 16
"""More text than this after the last header of the usual form is looked through for headers of other forms."""
_FEW = 4
"""Up to so many blocks are quicker read one at a time."""
_SHAPES_MAX = 24
_LEARN_MAX = 4
"""Blocks that are tried as shapes, per piece of the stream."""
_MARK = b" system activity ("
_MACHINE = re.compile(rb"^Machine model: *([^\n]*)$", re.M)
_BUILD = re.compile(rb"^OS version: *([^\n]*)$", re.M)


class Head(NamedTuple):
    """A header: where its line starts and ends in the buffer, and what it says."""

    start: int
    end: int
    summary: bool
    stamp: bytes
    elapsed_ms: float


class TextLog(LogContent):
    """What a text log holds; made by `read_text`."""

    def __init__(self, fast: bool = True):
        super().__init__()
        self._fast = fast
        self._shapes: list[Shape] = []
        self._singles: list[dict[str, Any]] = []
        self._rows = 0
        self._ends: set[tuple[bytes, int]] = set()
        self._text = TextBuffer(PIECE)
        self._stopped = False
        self._skipping = False

    # --- the stream ---

    def take(self, readinto: Callable[[memoryview], int | None]) -> bool:
        """Read the next piece of the stream; False at its end, when the last block has been read too."""
        if not self._text.fill(readinto):
            self._finish()
            return False
        if self._fast:
            self._take_by_shape()
        if not self._fast or len(self._text) > min(_CARRY, PIECE):
            heads = self._heads(BEFORE, self._text.stop, ended=False)
            if heads:
                self._begin(heads[0].start)
                self._each(heads[:-1], heads[-1].start)
                self._text.drop(heads[-1].start)
        if len(self._text) > BLOCK_LIMIT:
            self._skip()
        return True

    def _finish(self) -> None:
        stop = self._text.stop
        heads = self._heads(BEFORE, stop, ended=True)
        self._begin(heads[0].start if heads else stop)
        for k, head in enumerate(heads):
            self._one(head, heads[k + 1].start if k + 1 < len(heads) else stop, last=k + 1 == len(heads))
        self._flush()
        if self._text.nul:
            self.odd = {"NUL bytes": [self._text.nul, self._text.first_nul, ""], **self.odd}

    def _skip(self) -> None:
        """Forget text that is too long to be a block, but for a tail that may hold the start of a header."""
        if not self._skipping and self._rows == 0:
            self._machine_header(self._slice(BEFORE, self._text.stop))
        if not self._skipping:
            self._note_no_block(BEFORE)
        self._skipping = True
        self._text.drop(self._text.stop - 256)

    def _begin(self, start: int) -> None:
        """The first header is at `start`: look at what stands before it."""
        if self._skipping:
            self._skipping = False
        elif self._rows == 0:
            self._machine_header(self._slice(BEFORE, start))

    def _note_no_block(self, place: int) -> None:
        self.note("no block", self._text.position(place), f"more than {BLOCK_LIMIT >> 20} MB without a header")

    def _slice(self, start: int, stop: int) -> bytes:
        return bytes(self._text.data[start:stop])

    def _machine_header(self, text: bytes) -> None:
        for m, name in ((_MACHINE.search(text), "machine"), (_BUILD.search(text), "build")):
            value = m[1].strip().decode("ascii", "replace")[:80] if m else None
            old = getattr(self, name)
            if value and old and value != old:
                self.note("another machine", self._text.offset, f"{name} {value}, before it {old}")
            setattr(self, name, old or value)

    def _heads(self, start: int, stop: int, ended: bool) -> list[Head]:
        """All headers in a part of the buffer: a line, or the end of a torn line, that is one to its last byte.

        ended: whether the stream ends at `stop`, so that a last line without a newline is whole.
        """
        heads, data = [], self._text.data
        at = data.find(_MARK, start, stop)
        while at >= 0:
            if m := HEADER.match(data, at - 11, stop):
                end = m.end() + (data[m.end()] == 13)
                if (end < stop and data[end] == 10) or (end == stop and ended):
                    elapsed = float(m["elapsed"]) if m["elapsed"] else float("nan")
                    heads.append(Head(m.start(), end, m["kind"] == b"Summary", bytes(m["stamp"]), elapsed))
            at = data.find(_MARK, at + 1, stop)
        return heads

    # --- blocks by shape ---

    def _take_by_shape(self) -> None:
        """Read the blocks between headers of the usual form: those of known shape together, the others singly."""
        starts = self._text.line_starts()
        heads = find_heads(self._text, starts)
        if len(heads.line) <= _FEW:
            return
        places = starts[heads.line].tolist()
        others = self._heads(BEFORE, places[0], ended=False)
        self._begin(others[0].start if others else places[0])
        self._each(others, places[0])
        shape_of, columns = self._match(starts, heads)
        for a, b in _runs(shape_of):
            if shape_of[a] < 0:
                self._each(self._heads(places[a], places[b], ended=False), places[b])
            elif self._stopped:
                self.note("after Summary", self._text.position(places[a]), "", b - a)
            else:
                self._add(b - a, {name: values[a:b] for name, values in columns.items()})
        self._text.drop(places[-1])

    def _match(self, starts: np.ndarray, heads: Heads) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """For each header but the last the number of the shape that its block has, or -1, and the blocks' columns."""
        shape_of = np.full(len(heads.line) - 1, -1)
        columns = {"stamp_s": heads.stamp_s[:-1], "elapsed_ms": heads.elapsed_ms[:-1]}
        tried = attempts = 0
        while True:
            for number in range(tried, len(self._shapes)):
                self._match_one(number, starts, heads.line, shape_of, columns)
            tried = len(self._shapes)
            left = np.flatnonzero(shape_of < 0)
            while tried == len(self._shapes):
                if attempts >= min(_LEARN_MAX, len(left)) or tried >= _SHAPES_MAX:
                    return shape_of, columns
                block = int(left[attempts])
                self._learn(*starts[[heads.line[block] + 1, heads.line[block + 1]]].tolist())
                attempts += 1

    def _match_one(self, number: int, starts, line, shape_of, columns) -> None:
        shape = self._shapes[number]
        asked = np.flatnonzero((shape_of < 0) & (np.diff(line) == shape.count))
        if not len(asked):
            return
        blocks = np.lib.stride_tricks.sliding_window_view(starts, shape.count + 1)
        fits, found = shape.read(self._text, blocks[line[asked]])
        rows = asked[fits]
        shape_of[rows] = number
        for name, values in found.items():
            if name not in columns:
                columns[name] = np.full(len(shape_of), None if values.dtype == object else np.nan)
            columns[name][rows] = values

    def _learn(self, start: int, stop: int) -> None:
        """Make a shape of the block whose second line is at `start`, if all of it is known and all its values are
        numbers."""
        text = self._slice(start - 1, stop)
        block = text_block.parse(text) if len(text) <= BLOCK_LIMIT else None
        usual = block and block.plain and text_block.is_closed(block)
        if usual and not any(value != value for value in block.values.values()):
            self._shapes.append(Shape(block))
            self._ends.add(text_block.last_key(block))
            if b"Machine model: " in text:
                self._machine_header(text)

    # --- blocks one at a time ---

    def _each(self, heads: list[Head], stop: int) -> None:
        edges = [head.start for head in heads] + [stop]
        for head, end in zip(heads, edges[1:], strict=True):
            self._one(head, end, last=False)

    def _one(self, head: Head, stop: int, last: bool) -> None:
        where = self._text.position(head.start)
        if self._stopped:
            self.note("after Summary", where, "")
            return
        if stop - head.end > BLOCK_LIMIT:
            self._note_no_block(head.start)
            return
        text = self._slice(head.end, stop)
        if self._text.data[head.start - 1] != 10:
            self.note("torn header", where, "")
        if b"Machine model: " in text:
            self._machine_header(text)
        block = text_block.parse(text)
        if last and not head.summary and not text_block.is_complete(block, text, self._ends):
            self.note("cut block", where, "")
            return
        self._keep(head, block, last, b"Machine model: " in text, last or text.endswith(b"\n\n"))

    def _keep(self, head: Head, block: Block, last: bool, followed: bool, spaced: bool) -> None:
        """followed: the machine header of another run comes after the block. spaced: a blank line ends it."""
        at = self._text.position(head.end)
        for odd in block.odd:
            self.note(self._odd_kind(odd.kind, last), at + odd.offset, odd.text.decode("ascii", "replace"))
        if head.summary:
            self.summary = {"elapsed_ms": head.elapsed_ms, **block.values}
            self._stopped = not followed
            return
        closed = text_block.is_closed(block)
        if not closed:
            self.note("unfinished block", at, "")
        if block.odd or not (spaced and closed):
            self.torn.add(self._rows)
        else:
            self._ends.add(text_block.last_key(block))
        self._singles.append(_row(head, block))
        self._rows += 1
        if len(self._singles) >= 1024:
            self._flush()

    def _odd_kind(self, kind: str, last: bool) -> str:
        return "stale tail" if last and kind != "torn line" else kind

    def _add(self, count: int, columns: dict[str, np.ndarray]) -> None:
        self._flush()
        self.pieces.append((count, columns))
        self._rows += count

    def _flush(self) -> None:
        """Rows that came singly become columns."""
        rows, self._singles = self._singles, []
        if rows:
            names = dict.fromkeys(name for row in rows for name in row)
            self.pieces.append((len(rows), {name: _column(name, rows) for name in names}))


def _row(head: Head, block: Block) -> dict[str, Any]:
    row = {**block.values, "stamp_s": stamp_s(head.stamp), "elapsed_ms": head.elapsed_ms}
    row |= {"thermal_pressure": block.thermal} if block.thermal else {}
    return row | ({"cluster_from_cores": block.cluster_from_cores} if block.cluster_from_cores else {})


def _column(name: str, rows: list[dict[str, Any]]) -> np.ndarray:
    if name in ("thermal_pressure", "cluster_from_cores"):
        return np.array([row.get(name) for row in rows], dtype=object)
    return np.array([row.get(name, np.nan) for row in rows], dtype=np.float64)


def _runs(shape_of: np.ndarray) -> list[tuple[int, int]]:
    """Stretches (first, one past the last) of blocks that all have a shape, or all have none."""
    edges = np.flatnonzero(np.diff(shape_of >= 0)) + 1
    return list(pairwise([0, *edges.tolist(), len(shape_of)]))


def read_text(readinto: Callable[[memoryview], int | None], fast: bool = True) -> TextLog:
    """The TextLog of a stream. readinto: fills a buffer and says how much, nothing at the end of the stream.

    fast: read blocks of one shape together; without it the result is the same.
    """
    log = TextLog(fast)
    while log.take(readinto):
        pass
    return log
