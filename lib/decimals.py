"""Short decimal numbers in bytes, many at once.

Eight bytes are one 64-bit number, and all of them are worked on together: which are digits is a pattern of eight
bits, and tables say for each pattern where the number begins and ends and how to bring its digits together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_EVERY = 0x0101010101010101
_HIGH = np.uint64(0x80 * _EVERY)
_LOWER = np.uint64(0x7F * _EVERY)
_TO_HIGH = np.uint64(0x76 * _EVERY)
_ZEROS = np.uint64(0x30 * _EVERY)
_BLANKS = np.uint64(0x20 * _EVERY)
_GATHER = np.uint64(0x0102040810204080)
_FOURS = np.uint64(0x000000FF000000FF)
_EVEN = np.uint64(100 + (1000000 << 32))
_ODD = np.uint64(1 + (10000 << 32))
_7, _8, _10, _16, _32, _56, _DOT, _BYTE = (np.uint64(k) for k in (7, 8, 10, 16, 32, 56, 46, 255))


class _Tables(NamedTuple):
    """For each pattern of non-digits (bit k: byte k is none), and for the same + 256 if a dot ends the first run.

    blank: bytes that must be blanks. whole, part: bytes of the digits before and after the dot. whole_up, part_up:
    bits to shift them up by. ten: the power of ten to divide by. stop: bytes that the number takes; 8 if it may go on
    or there is none. dot: bits to shift down by to see the byte after the first run.
    """

    blank: np.ndarray
    whole: np.ndarray
    part: np.ndarray
    whole_up: np.ndarray
    part_up: np.ndarray
    ten: np.ndarray
    stop: np.ndarray
    dot: np.ndarray


def _tables() -> _Tables:
    rows = [_row(pattern ^ 255, dotted) for dotted in (False, True) for pattern in range(256)]
    kinds = [np.uint64] * 5 + [np.float64, np.int64, np.uint64]
    return _Tables(*(np.array(column, dtype=kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)))


def _row(digits: int, dotted: bool) -> tuple[int, int, int, int, int, float, int, int]:
    first = next((k for k in range(8) if digits >> k & 1), 8)
    end = _run(digits, first)
    stop = _run(digits, end + 1) if dotted and end < 8 else end
    whole = _below(end) - _below(first)
    part = _below(stop) - _below(end + 1) if stop > end else 0
    decimals = stop - end - 1 if stop > end else 0
    part_up = 8 * (8 - stop)
    whole_up = min(part_up + 8 * (stop > end), 63)
    return _below(first), whole, part, whole_up, min(part_up, 63), 10.0**decimals, stop, 8 * min(end, 7)


def _run(digits: int, start: int) -> int:
    """Where the run of digits that begins at `start` ends."""
    end = start
    while end < 8 and digits >> end & 1:
        end += 1
    return end


def _below(k: int) -> int:
    return (1 << 8 * k) - 1


_OF = _tables()


def read(words: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers such as `  9.61` or ` 1020` at these places, after any blanks, ending within seven bytes.

    words: at each byte of the text, the eight from there on (little-endian). Returns values, which of them are whole
    numbers that end within seven bytes, and the place after each, all in the form of `at`. Mantissa and power of ten
    are exact, so the quotient is what `float` gives for the same characters.
    """
    word = words[at]
    digit = word ^ _ZEROS
    other = digit & _LOWER
    other += _TO_HIGH
    other |= digit
    other &= _HIGH
    other >>= _7
    other *= _GATHER
    other >>= _56
    pattern = other.view(np.int64)
    dotted = ((word >> _OF.dot[pattern]) & _BYTE) == _DOT
    pattern += dotted * np.int64(256)
    stop = _OF.stop[pattern]
    good = ((word ^ _BLANKS) & _OF.blank[pattern]) == 0
    good &= stop < 8
    whole = digit & _OF.whole[pattern]
    whole <<= _OF.whole_up[pattern]
    digit &= _OF.part[pattern]
    digit <<= _OF.part_up[pattern]
    whole |= digit
    return _eight_digits(whole) / _OF.ten[pattern], good, at + stop


def _eight_digits(digits: np.ndarray) -> np.ndarray:
    """Worth of eight bytes that each hold 0 to 9, the most significant one first in memory: pairs, then fours."""
    pairs = digits * _10
    pairs += digits >> _8
    odd = pairs >> _16
    odd &= _FOURS
    odd *= _ODD
    pairs &= _FOURS
    pairs *= _EVEN
    pairs += odd
    pairs >>= _32
    return pairs
