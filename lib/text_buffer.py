"""A stretch of a long text in memory, with views of it for numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

BEFORE = 8
"""Newlines in front of the text, so that what stands before its first line can be looked at like any other."""
WINDOW = 40
_AFTER = 4096
_SCAN = 1 << 18
"""Bytes scanned at once: they stay in the cache between the two steps."""


class TextBuffer:
    """Text that is filled at its end and dropped at its start; the memory is taken once and stays.

    data: the bytes, text from `BEFORE` to `stop`, newlines around it. offset: where the text stands in the stream.
    bytes_, words, windows: at each place the byte, the eight bytes as a little-endian number, the next `WINDOW` bytes.
    NUL bytes are turned into newlines as they come: `nul` counts them, `first_nul` is the offset of the first.
    """

    def __init__(self, piece: int, rest: int):
        """piece: most bytes taken at once. rest: most bytes that may be left when more are taken."""
        self.data = bytearray(b"\n" * (BEFORE + piece + rest + _AFTER))
        self.stop, self.offset = BEFORE, 0
        self.nul, self.first_nul = 0, 0
        self.bytes_ = np.frombuffer(self.data, dtype=np.uint8)
        size = len(self.data)
        self.words = np.ndarray((size - 7,), dtype="<u8", buffer=self.data, strides=(1,))
        self.windows = np.ndarray((size - WINDOW,), dtype=f"V{WINDOW}", buffer=self.data, strides=(1,))
        self._piece = piece
        self._is_newline = np.zeros(_SCAN, dtype=bool)

    def __len__(self) -> int:
        return self.stop - BEFORE

    def fill(self, readinto: Callable[[memoryview], int | None]) -> bool:
        """Take the next piece; False at the end of the stream."""
        with memoryview(self.data) as view:
            count = readinto(view[self.stop : self.stop + self._piece]) or 0
        self._without_nul(self.stop, self.stop + count)
        self.stop += count
        self.data[self.stop : self.stop + _AFTER] = b"\n" * _AFTER
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
        """Where each complete line begins, and where the last of them ends."""
        first, parts = BEFORE - 1, []
        while first < self.stop:
            stop = min(first + len(self._is_newline), self.stop)
            newline = np.equal(self.bytes_[first:stop], 10, out=self._is_newline[: stop - first])
            parts.append(np.flatnonzero(newline) + (first + 1))
            first = stop
        return np.concatenate(parts)
