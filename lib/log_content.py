"""What a power log held, whatever its form: pieces of rows, what the machine is called, and what was odd."""

from __future__ import annotations

import numpy as np


class LogContent:
    """Filled while a stream is read.

    pieces: (number of blocks, columns as arrays), one after another. machine, build: as printed, or None. summary:
    elapsed and rails of the Summary block, or None. odd: kind of oddity to how often it occurred, the offset of the
    first and its text. torn: row numbers of blocks with foreign lines.
    """

    def __init__(self) -> None:
        self.pieces: list[tuple[int, dict[str, np.ndarray]]] = []
        self.machine: str | None = None
        self.build: str | None = None
        self.summary: dict[str, float] | None = None
        self.odd: dict[str, list] = {}
        self.torn: set[int] = set()

    def note(self, kind: str, offset: int, text: str, count: int = 1) -> None:
        """Remember an oddity: how often its kind occurred, and where and what the first one was."""
        self.odd.setdefault(kind, [0, offset, text])[0] += count
