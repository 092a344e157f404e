"""A stretch of a long text in memory, with views of it for numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

BEFORE = 8
"""Newlines in front of the text, so that what stands before its first line can be looked at like any other."""
WINDOW = 40
_AFTER = 4096
_FIRST = 1 << 16
_SCAN = 1 << 18
"""Bytes scanned at once: they stay in the cache between the two steps."""


class TextBuffer:
    """Text that is filled at its end and dropped at its start; the memory is taken once and stays.

    data: the bytes, text from `BEFORE` to `stop`, newlines around it. offset: where the text stands in the stream.
    bytes_, words, windows: at each place the byte, the eight bytes as a little-endian number, the next `WINDOW` bytes.
    NUL bytes are turned into newlines as they come: `nul` counts them, `first_nul` is the offset of the first.
    """

    def __init__(self, piece: int):
        """piece: most bytes taken at once. Less memory is taken while the text is short."""
        self.stop, self.offset = BEFORE, 0
        self.nul, self.first_nul = 0, 0
        self._starts = np.empty(0, dtype=np.int64)
        self._most, self._piece = piece, min(piece, _FIRST)
        self._take_memory(2 * self._piece)

    def _take_memory(self, room: int) -> None:
        """Make room for so many bytes of text, keeping what is there."""
        size = BEFORE + room + _AFTER
        data = bytearray(b"\n" * size)
        data[: self.stop] = self.data[: self.stop] if self.stop > BEFORE else b"\n" * BEFORE
        self.data = data
        self.bytes_ = np.frombuffer(data, dtype=np.uint8)
        self.words = np.ndarray((size - 7,), dtype="<u8", buffer=data, strides=(1,))
        self.windows = np.ndarray((size - WINDOW,), dtype=f"V{WINDOW}", buffer=data, strides=(1,))
        self._is_newline = np.zeros(min(_SCAN, size), dtype=bool)

    def __len__(self) -> int:
        return self.stop - BEFORE

    def fill(self, readinto: Callable[[memoryview], int | None]) -> bool:
        """Take the next piece; False at the end of the stream."""
        if self.stop + self._piece + _AFTER > len(self.data):
            self._take_memory(2 * (len(self) + self._piece))
        with memoryview(self.data) as view:
            count = readinto(view[self.stop : self.stop + self._piece]) or 0
        self._without_nul(self.stop, self.stop + count)
        self.stop += count
        self.data[self.stop : self.stop + _AFTER] = b"\n" * _AFTER
        if count == self._piece:
            self._piece = min(4 * self._piece, self._most)
        return count > 0

    def _without_nul(self, start: int, stop: int) -> None:
        first = self.data.find(b"\0", start, stop)
        if first < 0:
            return
        self.first_nul = self.first_nul if self.nul else self.position(first)
        self.nul += self.data.count(b"\0", start, stop)
        self.data[first:stop] = self.data[first:stop].replace(b"\0", b"\n")

    def drop(self, place: int) -> None:
        """Forget the text before `place`."""
        self.offset += place - BEFORE
        rest = self.data[place : self.stop]
        self.data[BEFORE : BEFORE + len(rest)] = rest
        self.stop = BEFORE + len(rest)

    def position(self, place: int) -> int:
        """Offset in the stream of a place in the buffer."""
        return self.offset + place - BEFORE

    def line_starts(self) -> np.ndarray:
        """Where each complete line begins, and where the last of them ends. The next call writes over it."""
        first, count = BEFORE - 1, 0
        while first < self.stop:
            stop = min(first + len(self._is_newline), self.stop)
            found = np.flatnonzero(np.equal(self.bytes_[first:stop], 10, out=self._is_newline[: stop - first]))
            if count + len(found) > len(self._starts):
                more = np.empty(2 * (count + len(found)), dtype=np.int64)
                self._starts = np.concatenate([self._starts[:count], more])
            np.add(found, first + 1, out=self._starts[count : count + len(found)])
            first, count = stop, count + len(found)
        return self._starts[:count]
