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
from lib.text_block import Block, Line, from_cores
from lib.text_buffer import BEFORE, WINDOW, TextBuffer
from lib.text_grammar import STAMP, stamp_s

_PREFIX = b"*** Sampled system activity ("
_STAMP_LENGTH = 30
_SECONDS = [17, 18]
"""Where the seconds stand in a date."""
_TILE = 128
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
    line = np.flatnonzero(text.bytes_[starts[:-1]] == _PREFIX[0])
    line = line[_hold(text, starts[line], _PREFIX[:8])]
    line = line[_hold(text, starts[line] + 8, _PREFIX[8:])]
    start = starts[line]
    stamps, good = _stamps(text, start + len(_PREFIX))
    elapsed, good_number, end = decimals.read(text.words, start + _ELAPSED_AT)
    good &= good_number & (text.bytes_[start + _ELAPSED_AT] != 32)
    good &= _hold(text, start + _ELAPSED_AT - 3, b") (") & _hold(text, end, b"ms elapsed) ***\n")
    return Heads(line[good], stamps[good], elapsed[good])


def _stamps(text: TextBuffer, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Epoch seconds of the dates at these places, and which have the form of a date.

    Only the seconds differ between most neighbours, so a date is taken apart when something else changes.
    """
    chars = text.windows[at].view(np.uint8).reshape(len(at), WINDOW)[:, :_STAMP_LENGTH]
    tens, units = (chars[:, k].astype(np.int64) - 48 for k in _SECONDS)
    good = (tens >= 0) & (tens <= 9) & (units >= 0) & (units <= 9)
    chars[:, _SECONDS] = 48
    new = np.ones(len(at), dtype=bool)
    new[1:] = (chars[1:] != chars[:-1]).any(axis=1)
    minutes = [row.tobytes() for row in chars[new]]
    minutes = [stamp_s(date) if STAMP.fullmatch(date) else None for date in minutes]
    group = np.cumsum(new) - 1
    good &= np.array([minute is not None for minute in minutes], dtype=bool)[group]
    return np.array(minutes, dtype=np.float64)[group] + 10 * tens + units, good


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
        cores: dict[str, dict[int, dict[str, _Field]]] = {}
        for number, line in enumerate(block.lines):
            if line.known is None:
                continue
            cluster = line.known.cluster or cluster
            if line.known.column:
                values.append(_field(number, line))
            elif line.known.core >= 0 and cluster:
                core = cores.setdefault(cluster, {}).setdefault(line.known.core, {})
                core[line.known.unit] = _field(number, line)
        self.columns = [field.column for field in values]
        self._values = _Fields(values)
        self._cores = {name: _core_fields(list(of.values())) for name, of in cores.items()}

    def read(self, text: TextBuffer, starts: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Which blocks fit, and the columns of those that do.

        starts (blocks, count + 1): where the lines of each block begin, and where its last one ends.
        """
        fits = self._frame.holds(text, starts)
        where = np.flatnonzero(fits)
        starts = starts if fits.all() else starts[where]
        numbers, whole = self._values.read(text, starts)
        columns = dict(zip(self.columns, numbers.T, strict=True))
        replaced = np.zeros(len(where), dtype=np.int64)
        for bit, (name, fields) in enumerate(self._cores.items()):
            decided, taken = _fill_from_cores(text, starts, name, fields, columns)
            whole &= decided
            replaced[taken] |= 1 << bit
        if replaced.any():
            columns["cluster_from_cores"] = self._names(replaced)
        if self.thermal:
            columns["thermal_pressure"] = np.full(len(where), self.thermal, dtype=object)
        if not whole.all():
            fits[where[~whole]] = False
            columns = {name: values[whole] for name, values in columns.items()}
        return fits, columns

    def _names(self, replaced: np.ndarray) -> np.ndarray:
        """Names of the clusters whose bits are set, None without any."""
        names = np.full(len(replaced), None, dtype=object)
        for bits in np.unique(replaced[replaced > 0]).tolist():
            names[replaced == bits] = ",".join(name for k, name in enumerate(self._cores) if bits >> k & 1)
        return names


def _fill_from_cores(text, starts, name, fields: _Fields | None, columns) -> tuple[np.ndarray, np.ndarray]:
    """Replace the zeros of a cluster whose cores were busy, in place.

    Returns which blocks could be decided, and the numbers of those where it was done.

    fields: frequencies of all its cores, then their residencies; None if a core lacks one.
    """
    decided = np.ones(len(starts), dtype=bool)
    freq, active = columns.get(f"{name}_freq_MHz"), columns.get(f"{name}_active_pct")
    known = freq is not None and active is not None
    zero = np.flatnonzero((freq == 0) & (active == 0)) if known else np.zeros(0, dtype=np.int64)
    if not len(zero):
        return decided, zero
    if fields is None:
        decided[zero] = False
        return decided, zero[:0]
    numbers, whole = fields.read(text, starts[zero] if len(zero) < len(starts) else starts)
    decided[zero] = whole
    half = numbers.shape[1] // 2
    core_freq, core_active = numbers[:, :half].T.copy(), numbers[:, half:].T.copy()
    busy = (core_active > 0).any(axis=0) & whole
    mean_freq, mean_active = from_cores(list(core_freq), list(core_active))
    taken = zero[busy]
    freq[taken], active[taken] = mean_freq[busy], mean_active[busy]
    return decided, taken


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


def _core_fields(cores: list[dict[str, _Field]]) -> _Fields | None:
    whole = all(len(core) == 2 for core in cores)
    return _Fields([core["MHz"] for core in cores] + [core["%"] for core in cores]) if whole else None


class _Fields:
    """Numbers at the same places of every block."""

    def __init__(self, fields: list[_Field]):
        self._line = np.array([f.line for f in fields], dtype=np.int64)
        self._start = np.array([f.start for f in fields], dtype=np.int64)
        self._word = np.array([f.word for f in fields], dtype=np.uint64)
        self._mask = np.array([f.mask for f in fields], dtype=np.uint64)

    def read(self, text: TextBuffer, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers (block, field), and in which blocks all of them are whole."""
        at = starts.take(self._line, axis=1)
        at += self._start
        value, good, end = decimals.read(text.words, at)
        after = text.words[end]
        after &= self._mask
        good &= after == self._word
        return value, good.all(axis=1)


class _Frame:
    """The fixed bytes of a block: of each line its first ones, or all, and the ending before its newline.

    They are compared in windows, one for each line that is not blank: the end of the line before it (and the blank
    lines between), and its own start. What is longer is compared apart.
    """

    def __init__(self, block_lines: list[Line]):
        count = len(block_lines)
        self._least, self._most = np.zeros(count, dtype=np.int64), np.full(count, 1 << 40)
        self._more: list[tuple[int, int, bytes]] = []
        places, bytes_, masks = [], [], []
        before = b""
        for number, line in enumerate([*block_lines, None]):
            if line is not None and line.known is None and not line.text and number:
                self._least[number] = self._most[number] = 1
                if len(before) == BEFORE:
                    self._more.append((number, -BEFORE, before))
                    before = b""
                before += b"\n"
                continue
            head = self._head(number, line) if line is not None and number else b""
            own = head[: WINDOW - BEFORE]
            if len(head) > len(own):
                self._more.append((number, len(own), head[len(own) :]))
            room = WINDOW - BEFORE - len(own)
            places.append(number)
            bytes_.append(before.rjust(BEFORE, b"\0") + own + b"\0" * room)
            masks.append((b"\xff" * len(before)).rjust(BEFORE, b"\0") + b"\xff" * len(own) + b"\0" * room)
            before = b"" if line is None or line.known is None else line.ending + b"\n"
        self._places = np.array(places[1:])
        self._mask = np.frombuffer(b"".join(masks[1:]), dtype="<u8")
        self._word = np.frombuffer(b"".join(bytes_[1:]), dtype="<u8")

    def _head(self, number: int, line: Line) -> bytes:
        """The fixed bytes at a line's start; the least and most that the line may take go with them."""
        if line.known is None:
            self._least[number] = self._most[number] = len(line.text) + 1
            return line.text + b"\n"
        self._least[number] = line.head + len(line.ending) + 1
        return line.text[: line.head]

    def holds(self, text: TextBuffer, starts: np.ndarray) -> np.ndarray:
        """In which blocks, by the starts of their lines and the end of the last, all bytes are as they should."""
        length = starts[:, 1:] - starts[:, :-1]
        fits = ((length >= self._least) & (length <= self._most)).all(axis=1)
        for first in range(0, len(starts), _TILE):
            seams = text.windows[starts[first : first + _TILE].take(self._places, axis=1) - BEFORE].view("<u8")
            seams &= self._mask
            fits[first : first + _TILE] &= (seams == self._word).all(axis=1)
        for number, at, rest in self._more:
            fits &= _hold(text, starts[:, number] + at, rest)
        return fits


def _word_and_mask(text: bytes) -> tuple[int, int]:
    """At most eight bytes as a number, and the mask of those that count."""
    return int.from_bytes(text, "little"), (1 << 8 * len(text)) - 1
