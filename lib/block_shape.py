"""Many blocks of one shape read at once.

Blocks of one run mostly have the same lines; only their numbers differ. A clean block that `lib.text_block` has read
becomes a shape: the bytes that must stand at the start and the end of each line, and where its number is. Other
blocks are compared with it in numpy, eight bytes at a time. What fits gets exactly the numbers that `lib.text_block`
would give; what does not fit, or holds anything unusual, is left to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lib.text_block import STAMP, Block, Known, Line, from_cores, stamp_s

_PREFIX = b"*** Sampled system activity ("
_STAMP_LENGTH = 30
_ELAPSED_AT = len(_PREFIX) + _STAMP_LENGTH + len(b") (")
_WIDTH = 12
"""Longest number that is read here, its leading blanks included."""
_TENS = 10.0 ** np.arange(_WIDTH + 1)
_ALL = (1 << 64) - 1


class Heads(NamedTuple):
    """Headers of the usual form in a buffer, as arrays: number of their line, epoch seconds, elapsed."""

    line: np.ndarray
    stamp_s: np.ndarray
    elapsed_ms: np.ndarray


class Lines:
    """The complete lines of a buffer.

    text: its bytes. words: at each byte, the eight from there on as one number. starts, ends: of each line.
    """

    def __init__(self, buffer: bytes):
        self.text = np.frombuffer(buffer + b"\n" * 64, dtype=np.uint8)
        self.words = np.ndarray((len(self.text) - 7,), dtype="<u8", buffer=self.text, strides=(1,))
        self.ends = np.flatnonzero(self.text[: len(buffer)] == 10)
        self.starts = np.concatenate([[0], self.ends[:-1] + 1]) if len(self.ends) else self.ends

    def heads(self) -> Heads:
        """All lines that are headers of the usual form, `Sampled` with its elapsed, to the last byte."""
        first = np.uint64(int.from_bytes(_PREFIX[:8], "little"))
        line = np.flatnonzero(self.words[self.starts] == first)
        line = line[self.ends[line] - self.starts[line] > _ELAPSED_AT]
        start = self.starts[line]
        stamps, good = self._stamps(start + len(_PREFIX))
        elapsed, good_number, end = self.numbers(start + _ELAPSED_AT)
        good &= good_number & (self.text[start + _ELAPSED_AT] != 32)
        good &= self._hold(start, _PREFIX) & self._hold(start + _ELAPSED_AT - 3, b") (")
        good &= self._hold(end, b"ms elapsed) ***\n")
        return Heads(line[good], stamps[good], elapsed[good])

    def numbers(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Decimal numbers at these places, after any blanks: values, which are whole, and the places after them.

        Mantissa and power of ten are exact, so their quotient is the number that `float` gives for the same digits.
        """
        place = np.arange(_WIDTH)[:, None]
        chars = self.text[at + place]
        digits = chars - np.uint8(48)
        other = digits > 9
        first = other.argmin(axis=0)
        good = ((chars != 32).argmax(axis=0) == first) & ~other[first, np.arange(len(at))]
        other &= place > first
        whole = other.argmax(axis=0)
        dotted = chars[whole, np.arange(len(at))] == 46
        stop = np.where(dotted, (other & (place > whole)).argmax(axis=0), whole)
        mantissa = np.zeros(len(at), dtype=np.int64)
        used = (digits <= 9) & (place >= first) & (place < stop)
        for row, use in zip(digits, used, strict=True):
            mantissa = np.where(use, mantissa * 10 + row, mantissa)
        decimals = np.where(dotted & (stop > whole), stop - whole - 1, 0)
        return mantissa / _TENS[decimals], good & (stop > first), at + stop

    def _stamps(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Epoch seconds of the dates at these places, and which have the form of a date."""
        chars = self.text[at[:, None] + np.arange(_STAMP_LENGTH)]
        new = np.ones(len(chars), dtype=bool)
        new[1:] = (chars[1:] != chars[:-1]).any(axis=1)
        texts = [row.tobytes() for row in chars[new]]
        good = np.array([STAMP.fullmatch(text) is not None for text in texts], dtype=bool)
        seconds = [stamp_s(text) if fits else np.nan for text, fits in zip(texts, good, strict=True)]
        group = np.cumsum(new) - 1
        return np.array(seconds, dtype=np.float64)[group], good[group]

    def _hold(self, at: np.ndarray, text: bytes) -> np.ndarray:
        """Whether `text` stands at these places."""
        good = np.ones(len(at), dtype=bool)
        for offset, word, mask in _words(text):
            good &= (self.words[at + offset] & np.uint64(mask)) == np.uint64(word)
        return good


class Shape:
    """What all blocks like `block` have in common. A Shape exists only for a block without oddities or free text."""

    def __init__(self, block: Block):
        self.count = len(block.lines)
        self.thermal = block.thermal
        self.hits = 0
        self._least = np.zeros(self.count, dtype=np.int64)
        checks: list[tuple[int, int, bool, int, int]] = []
        values: list[_Field] = []
        self._cores: dict[str, dict[int, dict[str, _Field]]] = {}
        cluster = ""
        for number, line in enumerate(block.lines):
            if number == 0:
                continue
            if line.known is None:
                checks += [(number, k, False, w, m) for k, w, m in _words(line.text + b"\n")]
                continue
            cluster = line.known.cluster or cluster
            checks += self._edges(number, line)
            field = _field(number, line)
            if line.known.column:
                values.append(field)
            elif line.known.core >= 0 and cluster:
                self._cores.setdefault(cluster, {}).setdefault(line.known.core, {})[line.known.unit] = field
        self._checks = _Checks(checks)
        self._values = _Fields(values)
        self.columns = [field.column for field in values]

    def _edges(self, number: int, line: Line) -> list[tuple[int, int, bool, int, int]]:
        """Checks of a line with a value: its fixed head, and its ending before the newline."""
        head, tail = line.text[: line.head], line.ending + b"\n"
        self._least[number] = len(head) + len(line.ending)
        ahead = [(number, k, False, w, m) for k, w, m in _words(head)]
        return ahead + [(number, k + 1 - len(tail), True, w, m) for k, w, m in _words(tail)]

    def read(self, lines: Lines, head: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Which of the blocks whose headers are these lines fit, and the columns of those that do."""
        fits = self._checks.hold(lines, head)
        place = head[:, None] + np.arange(self.count)
        fits &= (lines.ends[place] - lines.starts[place] >= self._least).all(axis=1)
        where = np.flatnonzero(fits)
        numbers, whole = self._values.read(lines, head[where])
        columns = dict(zip(self.columns, numbers, strict=True))
        from_cores_names = np.full(len(where), None, dtype=object)
        for name, cores in self._cores.items():
            whole &= self._from_cores(lines, head[where], name, list(cores.values()), columns, from_cores_names)
        fits[where[~whole]] = False
        columns = {name: values[whole] for name, values in columns.items()}
        if self.thermal:
            columns["thermal_pressure"] = np.full(int(whole.sum()), self.thermal, dtype=object)
        if any(name is not None for name in from_cores_names):
            columns["cluster_from_cores"] = from_cores_names[whole]
        return fits, columns

    def _from_cores(self, lines, head, name, cores, columns, names) -> np.ndarray:
        """Replace the zeros of a cluster whose cores were busy, in place; which rows could be decided."""
        decided = np.ones(len(head), dtype=bool)
        freq, active = columns.get(f"{name}_freq_MHz"), columns.get(f"{name}_active_pct")
        if freq is None or active is None:
            return decided
        zero = np.flatnonzero((freq == 0) & (active == 0))
        if not len(zero):
            return decided
        if any(len(core) < 2 for core in cores):
            decided[zero] = False
            return decided
        f, f_whole = _Fields([core["MHz"] for core in cores]).read(lines, head[zero])
        a, a_whole = _Fields([core["%"] for core in cores]).read(lines, head[zero])
        busy = (a > 0).any(axis=0) & f_whole & a_whole
        mean_freq, mean_active = from_cores(list(f), list(a))
        freq[zero[busy]], active[zero[busy]] = mean_freq[busy], mean_active[busy]
        for i in zero[busy]:
            names[i] = name if names[i] is None else f"{names[i]},{name}"
        decided[zero] = f_whole & a_whole
        return decided


class _Field(NamedTuple):
    """A number in a line: where its blanks begin, and the (at most eight) bytes after it as a number and its mask."""

    column: str
    line: int
    start: int
    word: int
    mask: int


def _field(number: int, line: Line) -> _Field:
    known: Known = line.known
    rest = line.text[line.head :].lstrip(b" ")
    after = rest.lstrip(b"0123456789.")
    if after.startswith(b"% ("):
        after = b"% ("
    else:
        after += b"\n"
    [(_, word, mask)] = _words(after[:8])
    return _Field(known.column, number, line.head, word, mask)


class _Fields:
    """Numbers at the same places of every block."""

    def __init__(self, fields: list[_Field]):
        self._line = np.array([f.line for f in fields], dtype=np.int64)[:, None]
        self._start = np.array([f.start for f in fields], dtype=np.int64)[:, None]
        self._word = np.array([f.word for f in fields], dtype=np.uint64)[:, None]
        self._mask = np.array([f.mask for f in fields], dtype=np.uint64)[:, None]

    def read(self, lines: Lines, head: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers (field, block), and in which blocks all of them are whole."""
        at = lines.starts[head + self._line] + self._start
        value, good, end = lines.numbers(at.ravel())
        good = good.reshape(at.shape) & ((lines.words[end].reshape(at.shape) & self._mask) == self._word)
        return value.reshape(at.shape), good.all(axis=0)


class _Checks:
    """Bytes that must stand at the same places of every block, counted from the start or the end of a line."""

    def __init__(self, checks: list[tuple[int, int, bool, int, int]]):
        line, offset, from_end, word, mask = zip(*checks, strict=True)
        self._line, self._offset = np.array(line), np.array(offset)
        self._from_end = np.array(from_end)
        self._word, self._mask = np.array(word, dtype=np.uint64), np.array(mask, dtype=np.uint64)

    def hold(self, lines: Lines, head: np.ndarray) -> np.ndarray:
        """Which blocks have all of them."""
        place = head[:, None] + self._line
        at = np.where(self._from_end, lines.ends[place], lines.starts[place]) + self._offset
        return ((lines.words[at] & self._mask) == self._word).all(axis=1)


def _words(text: bytes) -> list[tuple[int, int, int]]:
    """`text` as (offset, number of eight bytes, mask), so that comparing all of them compares the whole."""
    if len(text) < 8:
        return [(0, int.from_bytes(text, "little"), (1 << 8 * len(text)) - 1)]
    offsets = [*range(0, len(text) - 8, 8), len(text) - 8]
    return [(k, int.from_bytes(text[k : k + 8], "little"), _ALL) for k in offsets]
