"""Many blocks of one shape read at once.

Blocks of one run mostly have the same lines; only their numbers differ. A clean block that `lib.text_block` has read
becomes a shape: the bytes that must stand at the start and the end of each line, and where its number is. Other
blocks are compared with it in numpy, eight bytes at a time. What fits gets exactly the numbers that `lib.text_block`
would give; what does not fit, or holds anything unusual, is left to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lib import decimals
from lib.text_block import STAMP, Block, Line, from_cores, stamp_s
from lib.text_buffer import BEFORE, WINDOW, TextBuffer

_PREFIX = b"*** Sampled system activity ("
_STAMP_LENGTH = 30
_SECONDS = [17, 18]
"""Where the seconds stand in a date."""
_TILE = 256
"""Blocks compared at once: their windows stay in the cache."""
_ELAPSED_AT = len(_PREFIX) + _STAMP_LENGTH + len(b") (")


class Heads(NamedTuple):
    """Headers of the usual form in a buffer, as arrays: number of their line, epoch seconds, elapsed."""

    line: np.ndarray
    stamp_s: np.ndarray
    elapsed_ms: np.ndarray


def find_heads(text: TextBuffer, starts: np.ndarray) -> Heads:
    """All lines that are headers of the usual form, `Sampled` with its elapsed, to the last byte.

    starts: where the lines begin, and where the last one ends.
    """
    word, _ = _word_and_mask(_PREFIX[:8])
    line = np.flatnonzero(text.words[starts[:-1]] == np.uint64(word))
    start = starts[line]
    stamps, good = _stamps(text, start + len(_PREFIX))
    elapsed, good_number, end = decimals.read(text.words, start + _ELAPSED_AT)
    good &= good_number & (text.bytes_[start + _ELAPSED_AT] != 32)
    good &= _hold(text, start, _PREFIX) & _hold(text, start + _ELAPSED_AT - 3, b") (")
    good &= _hold(text, end, b"ms elapsed) ***\n")
    return Heads(line[good], stamps[good], elapsed[good])


def _stamps(text: TextBuffer, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Epoch seconds of the dates at these places, and which have the form of a date.

    Only the seconds differ between most neighbours, so a date is taken apart when something else changes.
    """
    chars = text.bytes_[at[:, None] + np.arange(_STAMP_LENGTH)]
    seconds = chars[:, _SECONDS].astype(np.int64) - 48
    good = ((seconds >= 0) & (seconds <= 9)).all(axis=1)
    chars[:, _SECONDS] = 48
    new = np.ones(len(chars), dtype=bool)
    new[1:] = (chars[1:] != chars[:-1]).any(axis=1)
    minutes = [row.tobytes() for row in chars[new]]
    minutes = [stamp_s(date) if STAMP.fullmatch(date) else None for date in minutes]
    group = np.cumsum(new) - 1
    good &= np.array([minute is not None for minute in minutes], dtype=bool)[group]
    return np.array(minutes, dtype=np.float64)[group] + seconds @ [10, 1], good


def _hold(text: TextBuffer, at: np.ndarray, what: bytes) -> np.ndarray:
    """Whether these bytes stand at these places."""
    good = np.ones(len(at), dtype=bool)
    for k in range(0, len(what), 8):
        word, mask = _word_and_mask(what[k : k + 8])
        good &= (text.words[at + k] & np.uint64(mask)) == np.uint64(word)
    return good


class Shape:
    """What all blocks like `block` have in common; `block` must be plain and all its values numbers."""

    def __init__(self, block: Block):
        self.count = len(block.lines)
        self.thermal = block.thermal
        self._frame = _Frame(block.lines)
        cluster, values = "", []
        self._cores: dict[str, dict[int, dict[str, _Field]]] = {}
        for number, line in enumerate(block.lines):
            if line.known is None:
                continue
            cluster = line.known.cluster or cluster
            if line.known.column:
                values.append(_field(number, line))
            elif line.known.core >= 0 and cluster:
                core = self._cores.setdefault(cluster, {}).setdefault(line.known.core, {})
                core[line.known.unit] = _field(number, line)
        self.columns = [field.column for field in values]
        self._values = _Fields(values)

    def read(self, text: TextBuffer, starts: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Which blocks fit, and the columns of those that do.

        starts (blocks, count + 1): where the lines of each block begin, and where its last one ends.
        """
        fits = self._frame.holds(text, starts)
        where = np.flatnonzero(fits)
        starts = starts[where]
        numbers, whole = self._values.read(text, starts)
        columns = dict(zip(self.columns, numbers, strict=True))
        names = np.full(len(where), None, dtype=object)
        for name, cores in self._cores.items():
            whole &= _fill_from_cores(text, starts, name, list(cores.values()), columns, names)
        fits[where[~whole]] = False
        columns = {name: values[whole] for name, values in columns.items()}
        if self.thermal:
            columns["thermal_pressure"] = np.full(int(whole.sum()), self.thermal, dtype=object)
        columns["cluster_from_cores"] = names[whole]
        return fits, columns


def _fill_from_cores(text, starts, name, cores, columns, names) -> np.ndarray:
    """Replace the zeros of a cluster whose cores were busy, in place; which blocks could be decided."""
    decided = np.ones(len(starts), dtype=bool)
    freq, active = columns.get(f"{name}_freq_MHz"), columns.get(f"{name}_active_pct")
    zero = np.flatnonzero((freq == 0) & (active == 0)) if freq is not None and active is not None else []
    if not len(zero):
        return decided
    if any(len(core) < 2 for core in cores):
        decided[zero] = False
        return decided
    fields = _Fields([core["MHz"] for core in cores] + [core["%"] for core in cores])
    numbers, whole = fields.read(text, starts[zero])
    decided[zero] = whole
    busy = zero[(numbers[len(cores) :] > 0).any(axis=0) & whole]
    mean_freq, mean_active = from_cores(list(numbers[: len(cores)]), list(numbers[len(cores) :]))
    taken = np.isin(zero, busy, assume_unique=True)
    freq[busy], active[busy] = mean_freq[taken], mean_active[taken]
    names[busy] = [name if old is None else f"{old},{name}" for old in names[busy]]
    return decided


class _Field(NamedTuple):
    """A number in a line: where its blanks begin, and the (at most eight) bytes after it as a number and its mask."""

    column: str
    line: int
    start: int
    word: int
    mask: int


def _field(number: int, line: Line) -> _Field:
    after = line.text[line.head :].lstrip(b" ").lstrip(b"0123456789.")
    after = b"% (" if after.startswith(b"% (") else after + b"\n"
    word, mask = _word_and_mask(after[:8])
    return _Field(line.known.column, number, line.head, word, mask)


class _Fields:
    """Numbers at the same places of every block."""

    def __init__(self, fields: list[_Field]):
        self._line = np.array([f.line for f in fields], dtype=np.int64)
        self._start = np.array([f.start for f in fields], dtype=np.int64)[:, None]
        self._word = np.array([f.word for f in fields], dtype=np.uint64)[:, None]
        self._mask = np.array([f.mask for f in fields], dtype=np.uint64)[:, None]

    def read(self, text: TextBuffer, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers (field, block), and in which blocks all of them are whole."""
        at = starts.T[self._line] + self._start
        value, good, end = decimals.read(text.words, at)
        good &= (text.words[end] & self._mask) == self._word
        return value, good.all(axis=0)


class _Frame:
    """The fixed bytes of a block: of each line its first ones, or all, and the ending before its newline.

    They are compared in windows over the seams between lines, which hold the end of one and the start of the next;
    what is longer is compared apart.
    """

    def __init__(self, block_lines: list[Line]):
        masks = np.zeros((len(block_lines), WINDOW), dtype=np.uint8)
        bytes_ = np.zeros_like(masks)
        self._least = np.zeros(len(block_lines), dtype=np.int64)
        self._more: list[tuple[int, int, bytes]] = []
        for number, line in enumerate(block_lines[1:], 1):
            head = line.text + b"\n" if line.known is None else line.text[: line.head]
            self._least[number] = len(head) if line.known is None else len(head) + len(line.ending) + 1
            own = head[: WINDOW - BEFORE]
            bytes_[number - 1, BEFORE : BEFORE + len(own)] = list(own)
            masks[number - 1, BEFORE : BEFORE + len(own)] = 255
            if len(head) > len(own):
                self._more.append((number, len(own), head[len(own) :]))
            tail = (b"" if line.known is None else line.ending) + b"\n"
            bytes_[number, BEFORE - len(tail) : BEFORE] = list(tail)
            masks[number, BEFORE - len(tail) : BEFORE] = 255
        self._mask = masks.view("<u8").ravel()
        self._word = bytes_.view("<u8").ravel() & self._mask

    def holds(self, text: TextBuffer, starts: np.ndarray) -> np.ndarray:
        """In which blocks, by the starts of their lines and the end of the last, all bytes are as they should."""
        fits = (starts[:, 1:] - starts[:, :-1] >= self._least).all(axis=1)
        for first in range(0, len(starts), _TILE):
            seams = text.windows[starts[first : first + _TILE, 1:] - BEFORE].view("<u8")
            seams &= self._mask
            fits[first : first + _TILE] &= (seams == self._word).all(axis=1)
        for number, at, rest in self._more:
            fits &= _hold(text, starts[:, number] + at, rest)
        return fits


def _word_and_mask(text: bytes) -> tuple[int, int]:
    """At most eight bytes as a number, and the mask of those that count."""
    return int.from_bytes(text, "little"), (1 << 8 * len(text)) - 1
